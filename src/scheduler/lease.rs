//! Leases: what an acquisition gives, and what gives it back.

use std::{fmt, mem, ops::Deref, time::Duration};

use super::{
    core::{Core, Held},
    token::{Ticket, Token},
};
use crate::{
    lookup::Keyed,
    outcome::Outcome,
    resource::Resource,
    shard::{Count, Lent},
    sync::Arc,
};

/// One unit of a resource's capacity, returned when it is dropped. Dereferences to the resource as it was when lent.
///
/// May be sent to, shared with and dropped by other threads. An update or removal of the resource does not disturb it:
/// the value stays as it was lent, and the return of a removed resource is a no-op but for the counts.
///
/// A lease that is leaked (`mem::forget`) keeps its unit of capacity for ever; its value, if superseded, leaks with it.
///
/// # Progress
/// Returning takes the home shard's lock: blocking, for as long as another thread works on that shard. O(log n). No
/// allocation. If the resource has more than one unit of capacity, [`Resource::priority`] runs after the return; should
/// it panic, the lease has been returned all the same.
#[must_use = "a lease that is dropped at once lends nothing"]
pub struct Lease<'s, R: Resource> {
    core: &'s Core<R>,
    held: Held<R>,
}

/// A [`Lease`] that keeps the scheduler's inner part alive instead of borrowing it: for tasks and threads that outlive
/// the caller.
#[must_use = "a lease that is dropped at once lends nothing"]
pub struct OwnedLease<R: Resource> {
    core: Arc<Core<R>>,
    held: Held<R>,
}

impl<'s, R: Resource> Lease<'s, R> {
    /// Wraps what a shard has lent, and ranks the resource by its new load. If that panics, the lease is returned.
    #[inline]
    pub(super) fn new(core: &'s Core<R>, lent: Lent<R>) -> Self {
        let lease = Self::unranked(core, &lent);
        lease.rank(&lent);
        lease
    }

    /// Wraps what a shard has lent. The resource keeps the rank of the load before, until [`rank`](Self::rank).
    #[inline]
    pub(super) fn unranked(core: &'s Core<R>, lent: &Lent<R>) -> Self {
        Lease { core, held: Held::new(lent) }
    }

    /// Ranks the resource by its new load.
    #[inline]
    pub(super) fn rank(&self, lent: &Lent<R>) {
        self.core.rerank_lent(&self.held, lent.rank, lent.state);
    }

    /// The same lease, no longer borrowing the scheduler. One reference count.
    pub(super) fn into_owned(self, core: &Arc<Core<R>>) -> OwnedLease<R> {
        let held = self.into_held();
        OwnedLease { core: Arc::clone(core), held }
    }

    fn into_held(self) -> Held<R> {
        let lease = mem::ManuallyDrop::new(self);
        Held {
            node: lease.held.node,
            value: lease.held.value,
            token: lease.held.token,
            exclusive: lease.held.exclusive,
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
    /// at which it can be lent before. If it is cooling already, the later deadline counts.
    pub fn release_after(self, duration: Duration) {
        let deadline = self.core.after(duration);
        let lease = mem::ManuallyDrop::new(self);
        lease.core.end(&lease.held, Some(deadline), None);
    }

    /// Returns the lease and says how the work went. [`Outcome::RateLimited`] cools the resource, as
    /// [`release_after`](Lease::release_after) does.
    pub fn finish(self, outcome: Outcome) {
        let (deadline, count) = self.core.judge(outcome);
        let lease = mem::ManuallyDrop::new(self);
        lease.core.end(&lease.held, deadline, count);
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
        let deadline = self.core.after(duration);
        let (core, held) = self.into_parts();
        core.end(&held, Some(deadline), None);
    }

    /// As [`Lease::finish`].
    pub fn finish(self, outcome: Outcome) {
        let (deadline, count) = self.core.judge(outcome);
        let (core, held) = self.into_parts();
        core.end(&held, deadline, count);
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
    let ticket = Ticket { node: held.node, value: held.value, exclusive: held.exclusive };
    // The pin first: once the token exists, its unit may be returned at any time, and the guard still dereferences.
    core.home(held.node()).lock().pin(held.node(), held.value);
    let token = core.tokens.mint(ticket);
    held.token = Some((token.slot(), token.generation()));
    token
}

fn mint<R: Resource>(core: &Core<R>, held: Held<R>) -> Token {
    match held.token {
        Some((slot, generation)) => {
            // The guard's pin ends here; the unit lives on in the token.
            let garbage = core.home(held.node()).lock().unpin(held.node(), held.value);
            core.retire(garbage);
            core.tokens.token(slot, generation)
        }
        None => core.tokens.mint(Ticket { node: held.node, value: held.value, exclusive: held.exclusive }),
    }
}

impl<R: Resource> Drop for Lease<'_, R> {
    #[inline]
    fn drop(&mut self) {
        self.core.end(&self.held, None, None);
    }
}

impl<R: Resource> Drop for OwnedLease<R> {
    fn drop(&mut self) {
        self.core.end(&self.held, None, None);
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
