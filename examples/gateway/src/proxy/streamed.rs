//! The provider's answer on its way to the client, with the key in its hand.

use std::{
    error::Error,
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep, sleep};

use super::attempt::{Attempt, End};
use crate::metrics::{BodyEnd, Visit};

/// Why a body has ended before its time. The client sees that the connection breaks.
#[derive(Debug)]
pub enum Broken {
    /// The provider has broken off.
    CutOff(hyper::Error),
    /// Nothing came for too long.
    Stalled,
    /// The key was taken back.
    Revoked,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Broken::CutOff(_) => "the provider broke the answer off",
            Broken::Stalled => "the provider stopped sending",
            Broken::Revoked => "the key was held for too long",
        })
    }
}

impl Error for Broken {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Broken::CutOff(error) => Some(error),
            Broken::Stalled | Broken::Revoked => None,
        }
    }
}

pin_project! {
    /// A body that holds its key until it has ended, has failed, or is dropped because the client has gone.
    pub struct Streamed {
        #[pin]
        body: Incoming,
        #[pin]
        idle: Sleep,
        idle_limit: Duration,
        // Told at the next poll.
        broken: Option<Broken>,
        held: Held,
    }
}

/// What is held while the body lasts, and told how it ended.
struct Held {
    attempt: Attempt,
    visit: Visit,
    bytes: u64,
    is_over: bool,
}

impl Held {
    fn end(&mut self, end: End) {
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        let body = match end {
            End::Complete => BodyEnd::Complete,
            End::Abandoned => BodyEnd::Abandoned,
            End::RateLimited { .. } | End::Failed(_) | End::GivenUp => BodyEnd::Failed,
        };
        self.visit.body_ended(body, self.bytes);
        self.attempt.end(end);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.end(End::Abandoned);
    }
}

impl Streamed {
    /// Passes `body` on; nothing for as long as `idle_limit` is a failure. Needs a tokio runtime.
    pub fn new(body: Incoming, attempt: Attempt, visit: Visit, idle_limit: Duration) -> Self {
        let mut held = Held { attempt, visit, bytes: 0, is_over: false };
        if body.is_end_stream() {
            held.end(End::Complete);
        }
        Streamed { body, idle: sleep(idle_limit), idle_limit, broken: None, held }
    }
}

impl Body for Streamed {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let mut this = self.project();
        if let Some(broken) = this.broken.take() {
            return Poll::Ready(Some(Err(broken)));
        }
        let held = this.held;
        let (broken, how) = if held.attempt.is_revoked() {
            // Somebody else may be using the key by now.
            (Broken::Revoked, "revoked")
        } else if let Poll::Ready(frame) = this.body.as_mut().poll_frame(context) {
            this.idle.reset(Instant::now() + *this.idle_limit);
            match frame {
                Some(Ok(frame)) => {
                    held.bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
                    // A body of known length is not polled again after its last frame.
                    if this.body.is_end_stream() {
                        held.end(End::Complete);
                    }
                    return Poll::Ready(Some(Ok(frame)));
                }
                None => {
                    held.end(End::Complete);
                    return Poll::Ready(None);
                }
                Some(Err(error)) => (Broken::CutOff(error), "cut_off"),
            }
        } else if this.idle.as_mut().poll(context).is_ready() {
            (Broken::Stalled, "stalled")
        } else {
            return Poll::Pending;
        };
        held.end(End::Failed(how));
        // An error breaks the connection at once, with all that is still to be written to it. What came before, the head of the answer
        // if nothing else, is the client's: the server writes it out when it finds that nothing more is ready.
        *this.broken = Some(broken);
        context.waker().wake_by_ref();
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
