//! An answer that is streamed token by token.

use std::{
    future::Future,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame};
use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep, sleep};

use super::counts::Guest;

/// What comes after the last token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// The end.
    Finish,
    /// The connection breaks.
    Cut,
    /// Nothing.
    Stall,
}

pin_project! {
    /// The body.
    pub struct Speech {
        #[pin]
        pause: Sleep,
        gap: Duration,
        left: u64,
        then: Then,
        bytes: u64,
        number: u64,
        has_paused: bool,
        is_over: bool,
        guest: Guest,
    }
}

impl Speech {
    /// So many tokens, one in each `gap`.
    pub fn new(tokens: u64, gap: Duration, then: Then, guest: Guest) -> Self {
        Speech {
            pause: sleep(Duration::ZERO),
            gap,
            left: tokens,
            then,
            bytes: 0,
            number: 0,
            has_paused: false,
            is_over: false,
            guest,
        }
    }
}

impl Body for Speech {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let mut this = self.project();
        if *this.is_over {
            return Poll::Ready(None);
        }
        // With no gap it says as much as is taken.
        if !this.gap.is_zero() {
            ready!(this.pause.as_mut().poll(context));
        }
        let text = if *this.left > 0 {
            *this.left -= 1;
            *this.number += 1;
            this.pause.reset(Instant::now() + *this.gap);
            format!("data: {{\"token\":{}}}\n\n", this.number)
        } else {
            match *this.then {
                Then::Finish => {
                    *this.is_over = true;
                    "data: [DONE]\n\n".to_owned()
                }
                Then::Stall => return Poll::Pending,
                // What was said is to be sent before the connection breaks.
                Then::Cut if !*this.has_paused => {
                    *this.has_paused = true;
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Then::Cut => {
                    this.guest.end(|counts| counts.cut += 1);
                    return Poll::Ready(Some(Err(io::Error::other("as it was told"))));
                }
            }
        };
        *this.bytes += text.len() as u64;
        if *this.is_over {
            let bytes = *this.bytes;
            this.guest.end(|counts| {
                counts.complete += 1;
                counts.bytes += bytes;
            });
        }
        Poll::Ready(Some(Ok(Frame::data(Bytes::from(text)))))
    }
}
