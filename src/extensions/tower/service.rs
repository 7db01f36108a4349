//! The service.

use std::{
    fmt,
    future::Future,
    mem,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    pin::Pin,
    task::{Context, Poll, ready},
};

use tower_service::Service;

use super::{
    BoxError,
    classify::{ByResult, Classify},
    future::{ResponseFuture, failing},
    held::{LeaseRef, Leased},
    hold::{Hold, WithResponse},
    layer::Source,
};
use crate::{AcquireOwned, OwnedLease, Resource, WaitError, sync::Arc};

/// A service each call of which has a lease; made by a [`LeaseLayer`](super::LeaseLayer). See the [module](super).
pub struct LeaseService<T, R: Resource, H = WithResponse, C = ByResult> {
    inner: T,
    source: Arc<dyn Source<R>>,
    hold: H,
    classify: C,
    state: State<R>,
}

enum State<R: Resource> {
    Idle,
    Waiting(AcquireOwned<R>),
    Ready(OwnedLease<R>),
    /// The next call fails with this.
    Refused(WaitError),
}

impl<T, R: Resource, H, C> LeaseService<T, R, H, C> {
    pub(super) fn new(inner: T, source: Arc<dyn Source<R>>, hold: H, classify: C) -> Self {
        LeaseService { inner, source, hold, classify, state: State::Idle }
    }

    /// The inner service.
    pub fn get_ref(&self) -> &T {
        &self.inner
    }

    fn poll_lease(&mut self, context: &mut Context<'_>) -> Poll<Result<(), WaitError>> {
        loop {
            self.state = match &mut self.state {
                // It was kept for too long: what it was for may be lent to somebody else by now. What has said that it is ready stays ready, so another one is
                // taken only if it is there; if none is, the call fails.
                State::Ready(lease) if lease.is_revoked() => {
                    match Pin::new(&mut self.source.request()).poll(context) {
                        Poll::Ready(Ok(lease)) => State::Ready(lease),
                        Poll::Ready(Err(WaitError::Closed)) => return Poll::Ready(Err(WaitError::Closed)),
                        Poll::Ready(Err(_)) | Poll::Pending => return Poll::Ready(Ok(())),
                    }
                }
                State::Ready(_) | State::Refused(_) => return Poll::Ready(Ok(())),
                State::Idle => State::Waiting(self.source.request()),
                State::Waiting(wait) => {
                    match catch_unwind(AssertUnwindSafe(|| Pin::new(wait).poll(context))) {
                        Ok(polled) => match ready!(polled) {
                            Ok(lease) => State::Ready(lease),
                            Err(WaitError::Closed) => return Poll::Ready(Err(WaitError::Closed)),
                            Err(error) => State::Refused(error),
                        },
                        Err(payload) => {
                            // A filter's, most often, and then the wait has ended: the service is used again by whoever catches it.
                            self.state = State::Idle;
                            resume_unwind(payload);
                        }
                    }
                }
            };
        }
    }
}

impl<T, Request, R, H, C> Service<Request> for LeaseService<T, R, H, C>
where
    T: Service<Leased<Request, R>> + Clone,
    T::Error: Into<BoxError>,
    R: Resource,
    H: Hold<T::Response, R> + Clone,
    C: Classify<T::Response, T::Error> + Clone,
{
    type Response = H::Held;
    type Error = BoxError;
    type Future = ResponseFuture<T::Future, R, H, C>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        // The inner service first, each time: a lease is scarcer than readiness, and is not to be held for it.
        let ready = match ready!(self.inner.poll_ready(context)) {
            Ok(()) => ready!(self.poll_lease(context)).map_err(Into::into),
            Err(error) => Err(error.into()),
        };
        if ready.is_err() {
            self.state = State::Idle;
        }
        Poll::Ready(ready)
    }

    /// # Panics
    /// Unless the service is ready.
    fn call(&mut self, request: Request) -> Self::Future {
        let lease = match mem::replace(&mut self.state, State::Idle) {
            // It was kept for too long. What it was for may be lent to somebody else by now.
            State::Ready(lease) if lease.is_revoked() => {
                Err(lease.try_release().expect_err("it was taken back").into())
            }
            State::Ready(lease) => Ok(LeaseRef::new(lease)),
            State::Refused(error) => Err(error.into()),
            State::Idle | State::Waiting(_) => panic!("called without having been ready"),
        };
        let lease = match lease {
            Ok(lease) => lease,
            Err(error) => {
                // The inner service was made ready for a call that does not come. What it has reserved for it, it keeps until it is
                // dropped; a clone has reserved nothing.
                self.inner = self.inner.clone();
                return ResponseFuture::refused(error);
            }
        };
        let since = self.source.now();
        let leased = Leased { request, lease: lease.clone() };
        let future = failing(&lease, || self.inner.call(leased));
        let (source, hold, classify) = (Arc::clone(&self.source), self.hold.clone(), self.classify.clone());
        ResponseFuture::new(future, lease, since, source, hold, classify)
    }
}

/// The clone is not ready, and does not wait.
impl<T: Clone, R: Resource, H: Clone, C: Clone> Clone for LeaseService<T, R, H, C> {
    fn clone(&self) -> Self {
        let (hold, classify) = (self.hold.clone(), self.classify.clone());
        LeaseService::new(self.inner.clone(), Arc::clone(&self.source), hold, classify)
    }
}

impl<T: fmt::Debug, R: Resource, H, C> fmt::Debug for LeaseService<T, R, H, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            State::Idle => "idle",
            State::Waiting(_) => "waiting",
            State::Ready(_) => "ready",
            State::Refused(_) => "refused",
        };
        f.debug_struct("LeaseService")
            .field("inner", &self.inner)
            .field("state", &state)
            .finish_non_exhaustive()
    }
}
