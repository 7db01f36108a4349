//! The future of a response.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;

use super::{BoxError, classify::Classify, held::LeaseRef, hold::Hold, layer::Source};
use crate::{Outcome, Resource, Timestamp, sync::Arc};

pin_project! {
    /// The future of a [`LeaseService`](super::LeaseService). Dropped before its end, it returns the lease.
    pub struct ResponseFuture<F, R: Resource, H, C> {
        #[pin]
        kind: Kind<F, R, H, C>,
    }
}

pin_project! {
    #[project = Projected]
    enum Kind<F, R: Resource, H, C> {
        Called {
            // Dropped before the lease: the inner service is done with it then.
            #[pin]
            future: F,
            call: Call<R, H, C>,
        },
        Refused {
            error: Option<BoxError>,
        },
    }
}

/// What is known about a call.
struct Call<R: Resource, H, C> {
    /// There until the answer.
    lease: Option<LeaseRef<R>>,
    since: Timestamp,
    source: Arc<dyn Source<R>>,
    hold: H,
    classify: C,
}

/// Fails the lease if it is dropped in the midst of a panic of the inner service: its response was not given up, it went wrong.
struct Panicked<'a, R: Resource>(&'a LeaseRef<R>);

impl<R: Resource> Drop for Panicked<'_, R> {
    fn drop(&mut self) {
        self.0.settle(Outcome::Failed);
    }
}

/// Runs the inner service's code, or what judges its answer; a panic of it goes on, and counts against the resource.
pub(super) fn failing<R: Resource, T>(lease: &LeaseRef<R>, run: impl FnOnce() -> T) -> T {
    let panicked = Panicked(lease);
    let done = run();
    std::mem::forget(panicked);
    done
}

impl<R: Resource, H, C> Drop for Call<R, H, C> {
    fn drop(&mut self) {
        if let Some(lease) = self.lease.take() {
            lease.settle(Outcome::Cancelled);
        }
    }
}

impl<F, R: Resource, H, C> ResponseFuture<F, R, H, C> {
    pub(super) fn new(
        future: F,
        lease: LeaseRef<R>,
        since: Timestamp,
        source: Arc<dyn Source<R>>,
        hold: H,
        classify: C,
    ) -> Self {
        let call = Call { lease: Some(lease), since, source, hold, classify };
        ResponseFuture { kind: Kind::Called { future, call } }
    }

    pub(super) fn refused(error: BoxError) -> Self {
        ResponseFuture { kind: Kind::Refused { error: Some(error) } }
    }
}

impl<F, Response, Error, R, H, C> Future for ResponseFuture<F, R, H, C>
where
    F: Future<Output = Result<Response, Error>>,
    Error: Into<BoxError>,
    R: Resource,
    H: Hold<Response, R>,
    C: Classify<Response, Error>,
{
    type Output = Result<H::Held, BoxError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let (future, call) = match self.project().kind.project() {
            Projected::Called { future, call } => (future, call),
            Projected::Refused { error } => {
                return Poll::Ready(Err(error.take().expect("polled after its end")));
            }
        };
        let lease = call.lease.as_ref().expect("polled after its end");
        let result = ready!(failing(lease, || future.poll(context)));
        let outcome = failing(lease, || {
            let latency = call.source.now().saturating_since(call.since);
            call.classify.classify(result.as_ref(), latency)
        });
        let lease = call.lease.take().expect("just seen");
        lease.settle(outcome);
        Poll::Ready(match result {
            Ok(response) => Ok(call.hold.hold(response, lease)),
            Err(error) => Err(error.into()),
        })
    }
}

impl<F, R: Resource, H, C> fmt::Debug for ResponseFuture<F, R, H, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
