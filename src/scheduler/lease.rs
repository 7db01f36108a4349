//! Leases: what an acquisition gives, and what gives it back.

use std::{fmt, mem, ops::Deref, panic::Location, time::Duration};

use super::{core::Core, error::ReleaseError, held::Held, token::Token};
use crate::{
    lookup::Keyed,
    outcome::Outcome,
    resource::Resource,
    shard::{Bare, Count, Lent},
    sync::{Arc, Proven},
};

/// One unit of a resource's capacity, returned when it is dropped. Dereferences to the resource as it was when lent.
///
/// May be sent to, shared with and dropped by other threads. An update or removal of the resource does not disturb it:
/// the value stays as it was lent, and the return of a removed resource is a no-op but for the counts.
///
/// A lease that is leaked (`mem::forget`) keeps its unit of capacity until somebody revokes it, see
/// [`Builder::max_hold`](crate::Builder::max_hold), or for ever; its value, if superseded, is never dropped, nor is the block of memory
/// that the value was in: nothing else knows of it. Other values are dropped with the scheduler at the latest.
///
/// A lease that was revoked still reads its value, and its drop changes nothing: see [`is_revoked`](Lease::is_revoked).
///
/// # Progress
/// Returning takes the home shard's lock: blocking, for as long as another thread works on that shard. O(log n). No
/// allocation, unless somebody waits: then the unit is handed over in this call, which takes the queue's mutex and the waiter's, may
/// allocate, asks the filters of those who wait and wakes a thread or a waker, outside every lock; a panic of theirs does not come out
/// here. If the resource has more than one unit of capacity, [`Resource::priority`] runs before the return, and once more after
/// it if the load was another by then; should it panic, the lease has been returned all the same.
#[must_use = "a lease that is dropped at once lends nothing"]
pub struct Lease<'s, R: Resource> {
    core: &'s Core<R>,
    held: Proven<Held<R>>,
}

/// A [`Lease`] that keeps the scheduler's inner part alive instead of borrowing it: for tasks and threads that outlive
/// the caller.
#[must_use = "a lease that is dropped at once lends nothing"]
pub struct OwnedLease<R: Resource> {
    core: Arc<Core<R>>,
    held: Proven<Held<R>>,
}

impl<'s, R: Resource> Lease<'s, R> {
    /// Wraps what a shard has lent, records it if leases are, and ranks the resource by its new load. If either panics, the
    /// lease is returned.
    #[inline]
    #[track_caller]
    pub(super) fn new(core: &'s Core<R>, lent: Lent<R>) -> Self {
        Self::asked_at(core, lent, Location::caller())
    }

    /// As [`new`](Self::new), for somebody who has asked elsewhere.
    #[inline]
    pub(super) fn asked_at(core: &'s Core<R>, lent: Lent<R>, site: &'static Location<'static>) -> Self {
        let mut lease = Self::unsettled(core, &lent);
        lease.settle(&lent, site);
        lease
    }

    /// Wraps what a shard has lent in registers: nothing is recorded, and the resource has the rank of its load. `exclusive`: it has one
    /// unit.
    #[inline(always)]
    pub(super) fn bare(core: &'s Core<R>, lent: Bare<R>, exclusive: bool) -> Self {
        Lease { core, held: Proven::new(Held::of(lent, exclusive)) }
    }

    /// Wraps what a shard has lent. What runs user code comes later: [`settle`](Self::settle).
    #[inline]
    pub(super) fn unsettled(core: &'s Core<R>, lent: &Lent<R>) -> Self {
        Lease { core, held: Proven::new(Held::new(lent)) }
    }

    /// Records it, if leases are, and ranks the resource by its new load.
    #[inline]
    pub(super) fn settle(&mut self, lent: &Lent<R>, site: &'static Location<'static>) {
        // First: the entry of a recorded lease has it too.
        #[cfg(feature = "telemetry")]
        {
            self.held.since = self.core.lease_began() | self.core.mark(lent);
        }
        if let Some(limits) = &self.core.limits {
            self.core.record(limits, &mut self.held, site);
        }
        self.core.rerank_lent(&self.held, lent);
    }

    /// The same lease, no longer borrowing the scheduler. One reference count.
    pub(super) fn into_owned(self, core: &Arc<Core<R>>) -> OwnedLease<R> {
        let held = self.into_held();
        OwnedLease { core: Arc::clone(core), held: Proven::new(held) }
    }

    fn into_held(self) -> Held<R> {
        let lease = mem::ManuallyDrop::new(self);
        Held {
            node: lease.held.node,
            value: lease.held.value,
            token: lease.held.token,
            exclusive: lease.held.exclusive,
            #[cfg(feature = "telemetry")]
            since: lease.held.since,
        }
    }

    /// The resource's key.
    pub fn key(&self) -> &R::Key {
        self.held.node().key()
    }

    /// The shard that the resource lives in.
    pub fn shard(&self) -> usize {
        self.held.node().home() as usize
    }

    /// Returns the lease. The same as dropping it.
    pub fn release(self) {}

    /// Returns the lease, and lets the resource cool for `duration` from now on, in one transition: there is no moment
    /// at which it can be lent before. If it is cooling already, the later deadline counts. Zero: as [`release`](Lease::release).
    pub fn release_after(self, duration: Duration) {
        let deadline = self.core.rest(duration);
        let lease = mem::ManuallyDrop::new(self);
        let _ = lease.core.end(&lease.held, deadline, None);
    }

    /// Returns the lease and says how the work went. [`Outcome::RateLimited`] cools the resource, as
    /// [`release_after`](Lease::release_after) does.
    pub fn finish(self, outcome: Outcome) {
        let ending = self.core.judge(outcome);
        let lease = mem::ManuallyDrop::new(self);
        let _ = lease.core.conclude(&lease.held, &ending);
    }

    /// As [`finish`](Lease::finish), and lets the resource cool for `rest` from now on, or for as long as the outcome asks for, if that
    /// is longer.
    pub fn finish_after(self, outcome: Outcome, rest: Duration) {
        let ending = self.core.judge(outcome).and_rest_until(self.core.rest(rest));
        let lease = mem::ManuallyDrop::new(self);
        let _ = lease.core.conclude(&lease.held, &ending);
    }

    /// Returns the lease, and says whether it was this call that did.
    ///
    /// # Errors
    /// [`ReleaseError::Revoked`] if the lease was taken back before, [`ReleaseError::Stale`] if its token was returned. The guard
    /// is gone in any case, and no other lease is touched.
    ///
    /// ```
    /// use leasehold::{Entry, ReleaseError, Scheduler};
    ///
    /// let scheduler = Scheduler::<Entry<u8, u32, ()>>::builder().build()?;
    /// scheduler.insert(Entry::new(1, 0, ()))?;
    /// let mut lease = scheduler.acquire()?;
    /// scheduler.revoke(lease.token())?;
    /// let other = scheduler.acquire()?;
    /// assert!(matches!(lease.try_release(), Err(ReleaseError::Revoked { .. })));
    /// assert_eq!(other.try_release(), Ok(()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_release(self) -> Result<(), ReleaseError> {
        let lease = mem::ManuallyDrop::new(self);
        lease.core.end(&lease.held, None, None)
    }

    /// As [`finish`](Lease::finish), and says whether it was this call that returned the lease. The outcome of one that was
    /// returned before is not counted, and cools nothing.
    ///
    /// # Errors
    /// As [`try_release`](Lease::try_release).
    pub fn try_finish(self, outcome: Outcome) -> Result<(), ReleaseError> {
        let ending = self.core.judge(outcome);
        let lease = mem::ManuallyDrop::new(self);
        lease.core.conclude(&lease.held, &ending)
    }

    /// As [`finish_after`](Lease::finish_after), and says whether it was this call that returned the lease.
    ///
    /// # Errors
    /// As [`try_finish`](Lease::try_finish).
    pub fn try_finish_after(self, outcome: Outcome, rest: Duration) -> Result<(), ReleaseError> {
        let ending = self.core.judge(outcome).and_rest_until(self.core.rest(rest));
        let lease = mem::ManuallyDrop::new(self);
        lease.core.conclude(&lease.held, &ending)
    }

    /// As [`release_after`](Lease::release_after), and says whether it was this call that returned the lease. That of a lease that was
    /// returned before cools nothing.
    ///
    /// # Errors
    /// As [`try_release`](Lease::try_release).
    pub fn try_release_after(self, duration: Duration) -> Result<(), ReleaseError> {
        let deadline = self.core.rest(duration);
        let lease = mem::ManuallyDrop::new(self);
        lease.core.end(&lease.held, deadline, None)
    }

    /// Whether the lease was taken back, by [`Scheduler::revoke`](crate::Scheduler::revoke) or because it is overdue. The value can
    /// still be read. Wait-free.
    pub fn is_revoked(&self) -> bool {
        is_revoked(self.core, &self.held)
    }

    /// Lets the lease be held for `hold` from now on: longer, or shorter, than [`max_hold`](crate::Builder::max_hold) says. Without
    /// that setting it does nothing. Lock-free; if leases are taken back, and the moment is earlier than any that is known, those who wait
    /// are told, under short mutexes.
    ///
    /// # Callbacks
    /// The clock, before anything is changed.
    ///
    /// # Errors
    /// As [`try_release`](Lease::try_release): there is nothing left to renew.
    pub fn renew(&mut self, hold: Duration) -> Result<(), ReleaseError> {
        self.core.renew(&self.held, hold)
    }

    /// A token for this lease, while the guard lives on. Whichever comes back first, guard or token, returns the unit;
    /// the other is then refused, or does nothing. Asked again, the token is the same.
    ///
    /// Lock-free but for a short look under the home shard's lock; allocates when the token table grows.
    pub fn token(&mut self) -> Token {
        mint_pinned(self.core, &mut self.held)
    }

    /// Turns the guard into a token. From now on only [`Scheduler::release`](crate::Scheduler::release) or
    /// [`Scheduler::finish`](crate::Scheduler::finish) returns the unit; a token that is lost keeps it for ever.
    #[must_use = "a token that is lost keeps its unit of capacity for ever"]
    pub fn into_token(self) -> Token {
        let core = self.core;
        mint(core, self.into_held())
    }
}

impl<R: Resource> OwnedLease<R> {
    fn into_parts(self) -> (Arc<Core<R>>, Held<R>) {
        let lease = mem::ManuallyDrop::new(self);
        let held = Held {
            node: lease.held.node,
            value: lease.held.value,
            token: lease.held.token,
            exclusive: lease.held.exclusive,
            #[cfg(feature = "telemetry")]
            since: lease.held.since,
        };
        // SAFETY: the lease is not dropped, so this is the one move out of the field.
        #[allow(unsafe_code)]
        let core = unsafe { std::ptr::read(&lease.core) };
        (core, held)
    }

    /// The resource's key.
    pub fn key(&self) -> &R::Key {
        self.held.node().key()
    }

    /// The shard that the resource lives in.
    pub fn shard(&self) -> usize {
        self.held.node().home() as usize
    }

    /// As [`Lease::release`].
    pub fn release(self) {}

    /// As [`Lease::release_after`].
    pub fn release_after(self, duration: Duration) {
        let deadline = self.core.rest(duration);
        let (core, held) = self.into_parts();
        let _ = core.end(&held, deadline, None);
    }

    /// As [`Lease::finish`].
    pub fn finish(self, outcome: Outcome) {
        let ending = self.core.judge(outcome);
        let (core, held) = self.into_parts();
        let _ = core.conclude(&held, &ending);
    }

    /// As [`Lease::finish_after`].
    pub fn finish_after(self, outcome: Outcome, rest: Duration) {
        let ending = self.core.judge(outcome).and_rest_until(self.core.rest(rest));
        let (core, held) = self.into_parts();
        let _ = core.conclude(&held, &ending);
    }

    /// As [`Lease::try_release`].
    ///
    /// # Errors
    /// As there.
    pub fn try_release(self) -> Result<(), ReleaseError> {
        let (core, held) = self.into_parts();
        core.end(&held, None, None)
    }

    /// As [`Lease::try_finish`].
    ///
    /// # Errors
    /// As there.
    pub fn try_finish(self, outcome: Outcome) -> Result<(), ReleaseError> {
        let ending = self.core.judge(outcome);
        let (core, held) = self.into_parts();
        core.conclude(&held, &ending)
    }

    /// As [`Lease::try_finish_after`].
    ///
    /// # Errors
    /// As there.
    pub fn try_finish_after(self, outcome: Outcome, rest: Duration) -> Result<(), ReleaseError> {
        let ending = self.core.judge(outcome).and_rest_until(self.core.rest(rest));
        let (core, held) = self.into_parts();
        core.conclude(&held, &ending)
    }

    /// As [`Lease::try_release_after`].
    ///
    /// # Errors
    /// As there.
    pub fn try_release_after(self, duration: Duration) -> Result<(), ReleaseError> {
        let deadline = self.core.rest(duration);
        let (core, held) = self.into_parts();
        core.end(&held, deadline, None)
    }

    /// As [`Lease::is_revoked`].
    pub fn is_revoked(&self) -> bool {
        is_revoked(&self.core, &self.held)
    }

    /// As [`Lease::renew`].
    ///
    /// # Errors
    /// As there.
    pub fn renew(&mut self, hold: Duration) -> Result<(), ReleaseError> {
        self.core.renew(&self.held, hold)
    }

    /// As [`Lease::token`].
    pub fn token(&mut self) -> Token {
        mint_pinned(&self.core, &mut self.held)
    }

    /// As [`Lease::into_token`].
    #[must_use = "a token that is lost keeps its unit of capacity for ever"]
    pub fn into_token(self) -> Token {
        let (core, held) = self.into_parts();
        mint(&core, held)
    }
}

fn mint_pinned<R: Resource>(core: &Core<R>, held: &mut Held<R>) -> Token {
    if let Some((slot, generation)) = held.token {
        return core.tokens.token(slot, generation);
    }
    // The pin first: once the token exists, its unit may be returned at any time, and the guard still dereferences.
    core.home(held.node()).lock().pin(held.node(), held.value);
    let token = core.tokens.mint(held.ticket(), true, None);
    held.token = Some((token.slot(), token.generation()));
    token
}

fn mint<R: Resource>(core: &Core<R>, held: Held<R>) -> Token {
    match held.token {
        Some((slot, generation)) => {
            // The guard and its pin end here; the unit, if it is still out, lives on in the token.
            core.tokens.part(slot, generation);
            let garbage = core.home(held.node()).lock().unpin(held.node(), held.value);
            core.retire(garbage);
            core.tokens.token(slot, generation)
        }
        None => core.tokens.mint(held.ticket(), false, None),
    }
}

fn is_revoked<R: Resource>(core: &Core<R>, held: &Held<R>) -> bool {
    held.token.is_some_and(|(slot, _)| core.tokens.is_revoked(slot))
}

impl<R: Resource> Drop for Lease<'_, R> {
    #[inline]
    fn drop(&mut self) {
        let _ = self.core.end(&self.held, None, None);
    }
}

impl<R: Resource> Drop for OwnedLease<R> {
    fn drop(&mut self) {
        let _ = self.core.end(&self.held, None, None);
    }
}

impl<R: Resource> Deref for Lease<'_, R> {
    type Target = R;

    #[inline]
    fn deref(&self) -> &R {
        self.core.witness(&self.held);
        self.held.resource()
    }
}

impl<R: Resource> Deref for OwnedLease<R> {
    type Target = R;

    #[inline]
    fn deref(&self) -> &R {
        self.core.witness(&self.held);
        self.held.resource()
    }
}

impl<R: Resource> fmt::Debug for Lease<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("key", self.key()).finish_non_exhaustive()
    }
}

impl<R: Resource> fmt::Debug for OwnedLease<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedLease").field("key", self.key()).finish_non_exhaustive()
    }
}

/// What an outcome is counted as.
pub(super) fn outcome_count(outcome: Outcome) -> Count {
    match outcome {
        Outcome::Ok { .. } => Count::Succeeded,
        Outcome::Failed => Count::Failed,
        Outcome::RateLimited { .. } => Count::RateLimited,
        Outcome::Cancelled => Count::Cancelled,
    }
}
