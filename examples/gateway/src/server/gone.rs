//! A client that goes, noticed also behind what it has sent and nobody has read yet.
//!
//! `hyper` looks for the end of a client's stream while it waits for an answer, but not past a byte that it has read already: one line break
//! after a request's body, or the next request, and the client's end is not seen before the answer is there.

use std::{io, os::fd::AsFd, time::Duration};

use tokio::{io::Interest, net::TcpStream, time::sleep};

/// How long a client that sends nothing any more is served on: what is about to end ends.
const GRACE: Duration = Duration::from_secs(1);

/// The socket of a connection a second time: with a readiness of its own, which the connection does not use up. Costs a descriptor.
#[derive(Debug)]
pub struct Watch(Option<TcpStream>);

impl Watch {
    /// Needs a tokio runtime. With no descriptor left nothing is watched.
    pub fn new(stream: &TcpStream) -> Self {
        let twin = stream.as_fd().try_clone_to_owned().map(std::net::TcpStream::from);
        Watch(twin.and_then(TcpStream::from_std).ok())
    }

    /// Ends a moment after the client has gone, or has said that it sends nothing any more, which is the same to `hyper`.
    pub async fn gone(&self) {
        let Some(twin) = &self.0 else { return std::future::pending().await };
        // What there is to read is the connection's. Nothing is said of it again until there is more, or the end.
        while twin.ready(Interest::READABLE).await.is_ok_and(|ready| !ready.is_read_closed()) {
            let _ = twin.try_io(Interest::READABLE, || Err::<(), _>(io::ErrorKind::WouldBlock.into()));
        }
        sleep(GRACE).await;
    }
}
