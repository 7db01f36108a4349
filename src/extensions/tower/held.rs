//! A lease with several owners, and what holds it.

use std::{
    fmt,
    ops::{Deref, DerefMut},
};

use crate::{
    Outcome, OwnedLease, Resource,
    node::quietly,
    sync::{Arc, Mutex},
};

/// A lease that is shared between the inner service and whatever holds the response. Returned when the last one is dropped.
pub struct LeaseRef<R: Resource>(Arc<Shared<R>>);

struct Shared<R: Resource> {
    /// There until the drop.
    lease: Option<OwnedLease<R>>,
    outcome: Mutex<Option<Outcome>>,
}

impl<R: Resource> LeaseRef<R> {
    pub(super) fn new(lease: OwnedLease<R>) -> Self {
        LeaseRef(Arc::new(Shared { lease: Some(lease), outcome: Mutex::new(None) }))
    }

    /// What the lease will end with. The first call counts, but for [`overrule`](Self::overrule).
    pub(super) fn settle(&self, outcome: Outcome) {
        let mut settled = self.0.outcome();
        if settled.is_none() {
            *settled = Some(outcome);
        }
    }

    /// Something came up after a good start.
    pub(super) fn overrule(&self, outcome: Outcome) {
        let mut settled = self.0.outcome();
        if matches!(*settled, None | Some(Outcome::Ok { .. })) {
            *settled = Some(outcome);
        }
    }
}

impl<R: Resource> Shared<R> {
    fn lease(&self) -> &OwnedLease<R> {
        self.lease.as_ref().expect("until the drop")
    }

    fn outcome(&self) -> crate::sync::MutexGuard<'_, Option<Outcome>> {
        self.outcome.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl<R: Resource> Drop for Shared<R> {
    fn drop(&mut self) {
        let outcome = self.outcome().take();
        if let (Some(lease), Some(outcome)) = (self.lease.take(), outcome) {
            // The clock may fail, in a drop that may be part of a panic: then it is returned without an outcome.
            let _ = quietly(|| lease.finish(outcome));
        }
    }
}

impl<R: Resource> Clone for LeaseRef<R> {
    fn clone(&self) -> Self {
        LeaseRef(Arc::clone(&self.0))
    }
}

impl<R: Resource> Deref for LeaseRef<R> {
    type Target = OwnedLease<R>;

    fn deref(&self) -> &OwnedLease<R> {
        self.0.lease()
    }
}

impl<R: Resource> fmt::Debug for LeaseRef<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.lease().fmt(f)
    }
}

/// A request with the lease to serve it with: what the inner service gets.
#[derive(Debug)]
pub struct Leased<Request, R: Resource> {
    /// What the caller has sent.
    pub request: Request,
    /// Dereferences to the lease, and so to the resource.
    pub lease: LeaseRef<R>,
}

/// A response that holds its lease. Dereferences to the response.
#[derive(Debug)]
pub struct Held<Response, R: Resource> {
    response: Response,
    lease: LeaseRef<R>,
}

impl<Response, R: Resource> Held<Response, R> {
    pub(super) fn new(response: Response, lease: LeaseRef<R>) -> Self {
        Held { response, lease }
    }

    /// The lease.
    pub fn lease(&self) -> &LeaseRef<R> {
        &self.lease
    }

    /// The response; the lease ends.
    pub fn into_response(self) -> Response {
        self.response
    }

    /// Both, to be held in another way.
    pub fn into_parts(self) -> (Response, LeaseRef<R>) {
        (self.response, self.lease)
    }
}

impl<Response, R: Resource> Deref for Held<Response, R> {
    type Target = Response;

    fn deref(&self) -> &Response {
        &self.response
    }
}

impl<Response, R: Resource> DerefMut for Held<Response, R> {
    fn deref_mut(&mut self) -> &mut Response {
        &mut self.response
    }
}
