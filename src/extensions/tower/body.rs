//! A lease for the life of a body.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use http::Response;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::{held::LeaseRef, hold::Hold};
use crate::{Outcome, Resource};

/// The lease is held until the body of an [`http::Response`] has ended, has failed, or is dropped: see [`HeldBody`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WithBody;

impl<B: Body, R: Resource> Hold<Response<B>, R> for WithBody {
    type Held = Response<HeldBody<B, R>>;

    fn hold(&self, response: Response<B>, lease: LeaseRef<R>) -> Self::Held {
        response.map(|body| HeldBody::new(body, lease))
    }
}

pin_project! {
    /// A body that holds the lease of its response.
    ///
    /// The lease ends with the first of these: the last frame was taken, whether the body says so with that frame
    /// ([`is_end_stream`](Body::is_end_stream)) or when it is polled again; the body has failed; the body is dropped. An empty body holds
    /// nothing. A body that does not know its end and is dropped after its last frame counts as dropped before its end.
    #[derive(Debug)]
    pub struct HeldBody<B, R: Resource> {
        #[pin]
        body: B,
        lease: BodyLease<R>,
    }
}

/// The lease, while the body has not ended.
#[derive(Debug)]
struct BodyLease<R: Resource>(Option<LeaseRef<R>>);

impl<R: Resource> BodyLease<R> {
    fn end(&mut self) {
        self.0 = None;
    }

    fn overrule(&mut self, outcome: Outcome) {
        if let Some(lease) = self.0.take() {
            lease.overrule(outcome);
        }
    }

    /// Runs the body's code. A panic of it goes on, and counts against the resource: the body was not given up, it went wrong.
    fn failing<T>(&self, run: impl FnOnce() -> T) -> T {
        let panicked = Panicked(self.0.as_ref());
        let done = run();
        std::mem::forget(panicked);
        done
    }
}

/// Says so if it is dropped in the midst of a panic of the body. The lease ends when the body is dropped, which says less.
struct Panicked<'a, R: Resource>(Option<&'a LeaseRef<R>>);

impl<R: Resource> Drop for Panicked<'_, R> {
    fn drop(&mut self) {
        if let Some(lease) = self.0 {
            lease.overrule(Outcome::Failed);
        }
    }
}

impl<R: Resource> Drop for BodyLease<R> {
    fn drop(&mut self) {
        self.overrule(Outcome::Cancelled);
    }
}

impl<B: Body, R: Resource> HeldBody<B, R> {
    fn new(body: B, lease: LeaseRef<R>) -> Self {
        let mut lease = BodyLease(Some(lease));
        if lease.failing(|| body.is_end_stream()) {
            lease.end();
        }
        HeldBody { body, lease }
    }
}

impl<B: Body, R: Resource> Body for HeldBody<B, R> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut this = self.project();
        let (frame, is_last) = ready!(this.lease.failing(|| {
            let polled = this.body.as_mut().poll_frame(context);
            polled.map(|frame| {
                let is_last = match &frame {
                    None => true,
                    Some(Ok(_)) => this.body.is_end_stream(),
                    Some(Err(_)) => false,
                };
                (frame, is_last)
            })
        }));
        match &frame {
            Some(Err(_)) => this.lease.overrule(Outcome::Failed),
            _ if is_last => this.lease.end(),
            _ => {}
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.lease.failing(|| self.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.lease.failing(|| self.body.size_hint())
    }
}
