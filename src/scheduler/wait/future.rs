//! The futures.

use std::{
    fmt,
    future::Future,
    panic::Location,
    pin::Pin,
    task::{Context, Poll},
};

use super::{error::WaitError, pending::Pending, waiter::Units};
use crate::{
    resource::Resource,
    scheduler::{
        acquire::Got,
        core::Core,
        lease::{Lease, OwnedLease},
    },
    sync::Arc,
};

/// Waits for one lease; made by [`acquire_async`](crate::Scheduler::acquire_async) and by awaiting a [`Request`](crate::Request).
///
/// Takes nothing until it is polled, needs no runtime, and may be polled by any. Allocates only if it has to wait; a filter and the list of
/// several are allocated when it is made. A key is looked up when it is made, too: what is inserted later under that key is another resource.
///
/// # Cancel safety
/// May be dropped at any moment. If a lease was already on its way, it goes to the next waiter.
///
/// ```
/// use leasehold::{Entry, Scheduler};
/// use std::{pin::pin, task::{Context, Waker}};
///
/// let scheduler = Scheduler::<Entry<u32, u32, ()>>::builder().build()?;
/// scheduler.insert(Entry::new(1, 0, ()))?;
/// let lease = scheduler.acquire()?;
/// let mut first = pin!(scheduler.acquire_async());
/// let mut context = Context::from_waker(Waker::noop());
/// assert!(first.as_mut().poll(&mut context).is_pending());
/// drop(lease);
/// assert!(scheduler.acquire().is_err(), "it has gone to the first who waits, directly");
/// assert!(first.poll(&mut context).is_ready());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "futures do nothing unless polled"]
pub struct Acquire<'s, R: Resource>(pub(super) Pending<&'s Core<R>, R>);

/// As [`Acquire`], for a lease that may outlive the scheduler; the future may as well.
#[must_use = "futures do nothing unless polled"]
pub struct AcquireOwned<R: Resource>(pub(super) Pending<Arc<Core<R>>, R>);

/// Waits for several leases; as [`Acquire`] otherwise.
#[must_use = "futures do nothing unless polled"]
pub struct AcquireMany<'s, R: Resource>(pub(super) Pending<&'s Core<R>, R>);

/// As [`AcquireMany`], for leases that may outlive the scheduler; the future may as well.
#[must_use = "futures do nothing unless polled"]
pub struct AcquireManyOwned<R: Resource>(pub(super) Pending<Arc<Core<R>>, R>);

/// All units. They are leases before user code runs, so that none is lost if it panics.
pub fn leases<'s, R: Resource>(
    core: &'s Core<R>,
    units: Units<R>,
    site: &'static Location<'static>,
) -> Vec<Lease<'s, R>> {
    let lents: Vec<_> = units.into_iter().collect();
    let mut leases: Vec<_> = lents.iter().map(|lent| Lease::unsettled(core, lent)).collect();
    for (lease, lent) in leases.iter_mut().zip(&lents) {
        lease.settle(lent, site);
    }
    leases
}

impl<'s, R: Resource> Future for Acquire<'s, R> {
    type Output = Result<Lease<'s, R>, WaitError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let (core, site) = (self.0.core, self.0.site);
        let mut got = Got::Nowhere;
        if let Some(lent) = self.0.lend_usual(&mut got) {
            return Poll::Ready(Ok(Lease::bare(core, lent, true)));
        }
        self.0.poll_one(context, got).map(|ended| ended.map(|lent| Lease::asked_at(core, lent, site)))
    }
}

impl<R: Resource> Future for AcquireOwned<R> {
    type Output = Result<OwnedLease<R>, WaitError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut got = Got::Nowhere;
        if let Some(lent) = self.0.lend_usual(&mut got) {
            let core = &self.0.core;
            return Poll::Ready(Ok(Lease::bare(core, lent, true).into_owned(core)));
        }
        let ended = std::task::ready!(self.0.poll_one(context, got));
        let (core, site) = (&self.0.core, self.0.site);
        Poll::Ready(ended.map(|lent| Lease::asked_at(core, lent, site).into_owned(core)))
    }
}

impl<'s, R: Resource> Future for AcquireMany<'s, R> {
    type Output = Result<Vec<Lease<'s, R>>, WaitError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let (core, site) = (self.0.core, self.0.site);
        self.0.poll(context).map(|ended| ended.map(|units| leases(core, units, site)))
    }
}

impl<R: Resource> Future for AcquireManyOwned<R> {
    type Output = Result<Vec<OwnedLease<R>>, WaitError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let ended = std::task::ready!(self.0.poll(context));
        let (core, site) = (&self.0.core, self.0.site);
        Poll::Ready(
            ended.map(|units| {
                leases(core, units, site).into_iter().map(|lease| lease.into_owned(core)).collect()
            }),
        )
    }
}

// Nothing in them is self-referential.
impl<R: Resource> Unpin for Acquire<'_, R> {}
impl<R: Resource> Unpin for AcquireOwned<R> {}
impl<R: Resource> Unpin for AcquireMany<'_, R> {}
impl<R: Resource> Unpin for AcquireManyOwned<R> {}

impl<R: Resource> fmt::Debug for Acquire<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire").finish_non_exhaustive()
    }
}

impl<R: Resource> fmt::Debug for AcquireOwned<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcquireOwned").finish_non_exhaustive()
    }
}

impl<R: Resource> fmt::Debug for AcquireMany<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcquireMany").finish_non_exhaustive()
    }
}

impl<R: Resource> fmt::Debug for AcquireManyOwned<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcquireManyOwned").finish_non_exhaustive()
    }
}
