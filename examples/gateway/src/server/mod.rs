//! Sockets: HTTP/1.1 with limits on what a client may cost, and an end that lets requests finish.

mod gone;
mod impatient;

use std::{error::Error, io, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use http::{Request, Response};
use http_body::Body;
use hyper::{body::Incoming, server::conn::http1, service::Service};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    sync::{Semaphore, oneshot, watch},
    task::{JoinHandle, JoinSet},
    time::{sleep, timeout},
};
use tracing::{debug, warn};

use self::{gone::Watch, impatient::Impatient};

/// What a server allows.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Connections at once, of two descriptors each; further ones wait to be accepted.
    pub connections: usize,
    /// Header fields of a request; with more it is answered 431.
    pub headers: usize,
    /// Bytes of a request's head; with more it is answered 431.
    pub head_bytes: usize,
    /// How long a client may take for the head of a request.
    pub head_time: Duration,
    /// How long a client may read nothing of what is written to it.
    pub write_time: Duration,
    /// Bytes that the system keeps for a client that reads slowly, more or less: no client can cost more, and one must read about a third of
    /// it in each `write_time`, which is when the system lets more be written.
    pub send_buffer: u32,
}

impl Default for Bounds {
    fn default() -> Self {
        Bounds {
            connections: 1_024,
            headers: 100,
            head_bytes: 64 * 1024,
            head_time: Duration::from_secs(30),
            write_time: Duration::from_secs(30),
            send_buffer: 128 * 1024,
        }
    }
}

/// A server on one socket. Dropped, it ends at once.
#[derive(Debug)]
pub struct Server {
    /// Where it listens.
    pub address: SocketAddr,
    stop: oneshot::Sender<Duration>,
    task: AbortOnDrop,
}

#[derive(Debug)]
struct AbortOnDrop(JoinHandle<bool>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Server {
    /// Listens, and serves every connection with a clone of `service`. An error of the service breaks the connection off.
    ///
    /// # Errors
    /// The address cannot be had.
    pub async fn start<S, B>(address: SocketAddr, bounds: Bounds, service: S) -> io::Result<Server>
    where
        S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
        S::Future: Send,
        S::Error: Into<Box<dyn Error + Send + Sync>>,
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let listener = listen(address, bounds.send_buffer)?;
        let address = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel();
        let task = AbortOnDrop(tokio::spawn(run(listener, bounds, service, stopped)));
        Ok(Server { address, stop, task })
    }

    /// Accepts nobody from now on but those who have connected by then, closes idle connections, and lets the others finish the request
    /// that they are at. Answers whether all did within `limit`; the rest is broken off.
    pub async fn stop(mut self, limit: Duration) -> bool {
        let _ = self.stop.send(limit);
        (&mut self.task.0).await.unwrap_or(false)
    }
}

/// Connections have the buffer of the socket that accepts them.
fn listen(address: SocketAddr, send_buffer: u32) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.set_send_buffer_size(send_buffer)?;
    socket.bind(address)?;
    socket.listen(1_024)
}

async fn run<S, B>(
    listener: TcpListener,
    bounds: Bounds,
    service: S,
    stopped: oneshot::Receiver<Duration>,
) -> bool
where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let mut protocol = http1::Builder::new();
    protocol
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.head_time)
        .max_headers(bounds.headers)
        .max_buf_size(bounds.head_bytes);
    let permits = Arc::new(Semaphore::new(bounds.connections));
    let (tell, stopping) = watch::channel(false);
    // Dropped at the end, with whatever still runs.
    let mut connections = JoinSet::new();
    let mut stopped = pin!(stopped);
    let limit = loop {
        // The permit first: who cannot be served yet waits in the system's queue.
        let accepted = async {
            let permit = Arc::clone(&permits).acquire_owned().await.expect("never closed");
            (listener.accept().await, permit)
        };
        let (accepted, permit) = tokio::select! {
            accepted = accepted => accepted,
            // If the sender is gone, so is the server.
            limit = &mut stopped => break limit.unwrap_or(Duration::ZERO),
        };
        let Some(stream) = ready(accepted).await else { continue };
        while connections.try_join_next().is_some() {}
        let connection = serve(protocol.clone(), stream, bounds, service.clone(), stopping.clone());
        connections.spawn(async move {
            let _permit = permit;
            connection.await;
        });
    };
    let _ = tell.send(true);
    for stream in queued(listener) {
        let (permit, service) = (Arc::clone(&permits).acquire_owned(), service.clone());
        let connection = serve(protocol.clone(), stream, bounds, service, stopping.clone());
        connections.spawn(async move {
            let _permit = permit.await;
            connection.await;
        });
    }
    let all = async { while connections.join_next().await.is_some() {} };
    timeout(limit, all).await.is_ok()
}

/// Those that the system has accepted for us by now, and whose requests may have come: to close the socket would break them off. Closes it.
fn queued(listener: TcpListener) -> Vec<TcpStream> {
    let Ok(listener) = listener.into_std() else { return Vec::new() };
    let accepted = std::iter::from_fn(|| listener.accept().ok());
    let stream = |(stream, _): (std::net::TcpStream, SocketAddr)| {
        stream.set_nonblocking(true).ok()?;
        let stream = TcpStream::from_std(stream).ok()?;
        let _ = stream.set_nodelay(true);
        Some(stream)
    };
    accepted.filter_map(stream).collect()
}

/// One connection, to its end; once the server stops, to the end of the request that it is at, or that has come by then.
async fn serve<S, B>(
    protocol: http1::Builder,
    stream: TcpStream,
    bounds: Bounds,
    service: S,
    mut stopping: watch::Receiver<bool>,
) where
    S: Service<Request<Incoming>, Response = Response<B>>,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: Body + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    // Before it has read anything a connection that is told to end reads nothing any more. So it is made when there is something.
    let has_come = tokio::select! {
        biased;
        come = timeout(bounds.head_time, stream.readable()) => come.is_ok(),
        () = until_it_stops(&mut stopping) => timeout(GRACE, stream.readable()).await.is_ok(),
    };
    if !has_come {
        return;
    }
    let watch = Watch::new(&stream);
    let stream = TokioIo::new(Impatient::new(stream, bounds.write_time));
    let mut connection = pin!(protocol.serve_connection(stream, service));
    let to_its_end = async {
        tokio::select! {
            // First: what has come is read.
            biased;
            ended = connection.as_mut() => ended,
            () = until_it_stops(&mut stopping) => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        }
    };
    tokio::select! {
        biased;
        ended = to_its_end => {
            if let Err(error) = ended {
                debug!(%error, "a connection was broken off");
            }
        }
        () = watch.gone() => debug!("a client has gone"),
    }
}

async fn until_it_stops(stopping: &mut watch::Receiver<bool>) {
    // An error: the sender is gone, and so is the server.
    let _ = stopping.wait_for(|&stops| stops).await;
}

/// How long the first byte of a client may take that has connected before the server stopped: it is under way.
pub const GRACE: Duration = Duration::from_secs(1);

async fn ready(accepted: io::Result<(TcpStream, SocketAddr)>) -> Option<TcpStream> {
    match accepted {
        Ok((stream, _)) => {
            // Small pieces of a stream are to leave at once.
            let _ = stream.set_nodelay(true);
            Some(stream)
        }
        Err(error) => {
            // Out of file descriptors, most likely: that passes when others end.
            warn!(%error, "nobody can be accepted");
            sleep(Duration::from_millis(50)).await;
            None
        }
    }
}
