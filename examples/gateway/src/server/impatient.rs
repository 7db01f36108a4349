//! A stream that does not wait for ever for a peer who does not read.

use std::{
    future::Future,
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep},
};

/// Fails a write that has been pending for too long.
///
/// A peer that keeps its connection and reads nothing fills the sockets' buffers. From then on nobody looks at the answer's body any
/// more, and no limit that is kept there takes effect: it is the connection that must be given up.
#[derive(Debug)]
pub struct Impatient<S> {
    stream: S,
    limit: Duration,
    /// Made when it is first needed: most peers read.
    patience: Option<Pin<Box<Sleep>>>,
    is_waiting: bool,
}

impl<S> Impatient<S> {
    /// Every write must get something off within `limit`. Needs a tokio runtime.
    pub fn new(stream: S, limit: Duration) -> Self {
        Impatient { stream, limit, patience: None, is_waiting: false }
    }

    /// What has come of a write, or of a flush.
    fn judge<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.is_waiting = false;
            return written;
        }
        let limit = self.limit;
        let patience = self.patience.get_or_insert_with(|| Box::pin(sleep(limit)));
        if !self.is_waiting {
            self.is_waiting = true;
            patience.as_mut().reset(Instant::now() + limit);
        }
        patience.as_mut().poll(context).map(|()| {
            Err(io::Error::new(io::ErrorKind::TimedOut, format!("the peer has read nothing for {limit:?}")))
        })
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Impatient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Impatient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judge(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.judge(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        if flushed.is_ready() { flushed } else { self.judge(context, flushed) }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(context);
        if shut.is_ready() { shut } else { self.judge(context, shut) }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::poll_fn,
        sync::{Arc, Mutex},
        task::Waker,
    };

    use super::*;

    const LIMIT: Duration = Duration::from_millis(100);

    /// Takes as many bytes as there is room for, and tells when there is room again.
    #[derive(Clone, Default)]
    struct Pipe(Arc<Mutex<(usize, Option<Waker>)>>);

    impl Pipe {
        fn make_room(&self, bytes: usize) {
            let mut pipe = self.0.lock().expect("no panic");
            pipe.0 += bytes;
            if let Some(waker) = pipe.1.take() {
                waker.wake();
            }
        }
    }

    impl AsyncWrite for Pipe {
        fn poll_write(
            self: Pin<&mut Self>,
            context: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            let mut pipe = self.0.lock().expect("no panic");
            let written = pipe.0.min(bytes.len());
            if written == 0 {
                pipe.1 = Some(context.waker().clone());
                return Poll::Pending;
            }
            pipe.0 -= written;
            Poll::Ready(Ok(written))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    async fn write(stream: &mut Impatient<Pipe>, bytes: usize) -> io::Result<()> {
        let mut left = bytes;
        while left > 0 {
            let all = vec![0; left];
            left -= poll_fn(|context| Pin::new(&mut *stream).poll_write(context, &all)).await?;
            // As a server does it.
            poll_fn(|context| Pin::new(&mut *stream).poll_flush(context)).await?;
        }
        Ok(())
    }

    #[tokio::test]
    async fn a_write_that_nobody_reads_fails() {
        let pipe = Pipe::default();
        pipe.make_room(8);
        let mut stream = Impatient::new(pipe, LIMIT);
        let started = Instant::now();
        let error = write(&mut stream, 9).await.expect_err("it does not fit");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(started.elapsed() >= LIMIT);
    }

    /// Whether a peer that reads each `step` is served by one who gives it four of them.
    async fn is_served(step: Duration) -> io::Result<()> {
        let pipe = Pipe::default();
        let mut stream = Impatient::new(pipe.clone(), 4 * step);
        let reading = tokio::spawn({
            let pipe = pipe.clone();
            async move {
                for _ in 0..8 {
                    sleep(step).await;
                    pipe.make_room(8);
                }
            }
        });
        // Twice as long as a single write may take.
        write(&mut stream, 64).await?;
        reading.await.expect("no panic");
        // Having had to wait does not count for the next one.
        sleep(5 * step).await;
        pipe.make_room(8);
        write(&mut stream, 8).await
    }

    #[tokio::test]
    async fn a_peer_that_reads_now_and_then_has_as_much_time_again() {
        // On a busy machine it may read later than it should; then it is given more time.
        if is_served(LIMIT).await.is_err() {
            is_served(LIMIT * 10).await.expect("it is read");
        }
    }
}
