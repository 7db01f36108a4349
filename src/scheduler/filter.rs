//! Lending with a filter: only resources that the caller says yes to.
//!
//! The filter is user code, so it runs outside every lock, on candidates that a guard keeps alive; the one chosen is
//! then lent only if it is still eligible.
//!
//! ```text
//! W1  per shard, in the walk's order: copy up to eight of the best under the lock; unlock; ask the filter, best first;
//!     lend the first it accepts
//! W2  no luck: go over the whole fleet by the lookup, collect the best-ranked accepted one, lend it; also collect the
//!     earliest deadline of an accepted one that only cools
//! W3  none: the double look of an acquire, around W2, with "eligible but refused" counted as filtered
//! ```
//!
//! W3 is honest as in `acquire`: if no sequence moved between before W2 and after it, every resource that was eligible
//! at the instant after W2 had been so before W2 with the same value, and was refused.

use std::hash::BuildHasher;

use super::{
    Scheduler,
    core::{ABSORB_AT_ONCE, Core, open},
    error::{AcquireError, NoneEligible},
    lease::{Lease, OwnedLease},
};
use crate::{
    heap::Best,
    lookup::Keyed,
    node::{Node, Standing},
    resource::Resource,
    shard::{Lent, NEVER, Pin, Shard},
    sync::Timestamp,
};

impl<R: Resource> Core<R> {
    fn lend_where(
        &self,
        accepts: &mut dyn FnMut(&Node<R>, &Pin<'_>) -> bool,
    ) -> Result<Lent<R>, AcquireError> {
        open(self)?;
        self.thaw_due();
        let guard = self.pin();
        let shards = self.shards.len();
        let chosen = self.selector.select(self, self.cell());
        if chosen >= shards {
            return Err(AcquireError::Strategy { chosen, shards });
        }
        if self.selector.is_exact() {
            // The strategy promises the best of the fleet, so a shard is not enough.
            if let Some(lent) = self.lend_best_where(self.shards.iter(), accepts, &guard) {
                return Ok(lent);
            }
        } else {
            // W1.
            for i in 0..shards {
                let shard = &self.shards[(chosen + i) % shards];
                if self.shows_some(shard)
                    && let Some(lent) = self.lend_best_where(std::iter::once(shard), accepts, &guard)
                {
                    return Ok(lent);
                }
            }
        }
        loop {
            let before = self.sequences();
            // W2.
            let mut best: Option<(u64, &Node<R>)> = None;
            let mut earliest = NEVER;
            for node in self.map.iter(&guard) {
                let Some(state) = self.visible(node) else { continue };
                if state.is_staged() || state.is_eligible() {
                    let rank = node.rank();
                    if best.is_none_or(|(least, _)| rank < least) && accepts(node, &guard) {
                        best = Some((rank, node));
                    }
                } else if state.standing() == Standing::Cooling
                    && node.deadline() < earliest
                    && accepts(node, &guard)
                {
                    earliest = node.deadline();
                }
            }
            if let Some((_, node)) = best {
                self.settle(node);
                let lent = self.lock(self.home(node)).lend(node);
                match lent {
                    Ok(lent) => return Ok(lent),
                    Err(_) => continue,
                }
            }
            // W3.
            if let Some(none) = self.none_eligible(|_| false)
                && before.is_some()
                && self.sequences() == before
            {
                // Only a resource that is acceptable is worth waiting for.
                let earliest = (earliest != NEVER).then(|| Timestamp::from_nanos(earliest));
                let retry_after =
                    earliest.map(|moment| moment.saturating_since(Timestamp::from_nanos(self.now())));
                return Err(AcquireError::NoneEligible(NoneEligible { earliest, retry_after, ..none }));
            }
        }
    }

    /// The sum of all sequences, if no change is going on. Sequences only grow: equal sums, equal sequences.
    fn sequences(&self) -> Option<u64> {
        self.shards.iter().try_fold(0u64, |sum, shard| Some(sum.wrapping_add(shard.face().begin_read()?)))
    }

    /// W1: the best accepted of the best few of each shard; nothing if a shard that was not looked through may have a
    /// better one.
    fn lend_best_where<'a>(
        &'a self,
        shards: impl Iterator<Item = &'a Shard<R>>,
        accepts: &mut dyn FnMut(&Node<R>, &Pin<'_>) -> bool,
        guard: &Pin<'_>,
    ) -> Option<Lent<R>> {
        let mut best: Option<(u64, &Node<R>)> = None;
        // The best rank from which on there may be acceptable ones that were not offered.
        let mut unseen = None;
        for shard in shards {
            let mut few: [Option<&Node<R>>; Best::MAX] = [None; Best::MAX];
            {
                let mut locked = self.lock(shard);
                let _ = locked.absorb(&self.roster, ABSORB_AT_ONCE);
                for (place, node) in few.iter_mut().zip(locked.best_nodes()) {
                    *place = Some(node);
                }
            }
            let mut last = 0;
            let settled = few.into_iter().flatten().any(|node| {
                last = node.rank();
                if best.is_some_and(|(least, _)| last >= least) {
                    return true;
                }
                let accepted = accepts(node, guard);
                if accepted {
                    best = Some((last, node));
                }
                accepted
            });
            if !settled && few[Best::MAX - 1].is_some() {
                unseen = Some(unseen.map_or(last, |least: u64| least.min(last)));
            }
        }
        let (rank, node) = best?;
        if unseen.is_some_and(|unseen| unseen < rank) {
            return None;
        }
        self.lock(self.home(node)).lend(node).ok()
    }
}

impl<R: Resource, S: BuildHasher> Scheduler<R, S> {
    /// Lends the best eligible resource that `accepts` says yes to.
    ///
    /// # Progress and cost
    /// If one of the eight best of a shard is accepted: O(log n). Otherwise the filter is asked about every eligible
    /// resource of the fleet: O(n). Blocking on one shard's lock at a time.
    ///
    /// # Callbacks
    /// `accepts` runs outside every lock, may be asked about one resource several times, about some that are not lent in
    /// the end, and about some that are cooling, to find the earliest one worth waiting for. If it panics, nothing has changed.
    ///
    /// # Errors
    /// [`AcquireError::NoneEligible`] if at some instant inside this call no eligible resource was acceptable; those that
    /// were refused are counted as [`filtered`](super::Reasons::filtered).
    ///
    /// ```
    /// use leasehold::{Entry, Scheduler};
    ///
    /// let scheduler = Scheduler::<Entry<u32, u32, &str>>::builder().build()?;
    /// scheduler.insert(Entry::new(1, 10, "eu"))?;
    /// scheduler.insert(Entry::new(2, 20, "us"))?;
    /// let lease = scheduler.acquire_where(|resource| resource.value == "us")?;
    /// assert_eq!(lease.key(), &2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn acquire_where(&self, mut accepts: impl FnMut(&R) -> bool) -> Result<Lease<'_, R>, AcquireError> {
        let lent = self.core.lend_where(&mut |node, guard| accepts(node.value(guard).resource()))?;
        Ok(Lease::new(&self.core, lent))
    }

    /// As [`acquire_where`](Scheduler::acquire_where), for a lease that may outlive the scheduler.
    pub fn acquire_where_owned(
        &self,
        accepts: impl FnMut(&R) -> bool,
    ) -> Result<OwnedLease<R>, AcquireError> {
        self.acquire_where(accepts).map(|lease| lease.into_owned(&self.core))
    }

    /// Lends the best eligible resource that is none of `keys`: to try again elsewhere.
    ///
    /// As [`acquire_where`](Scheduler::acquire_where), with up to `keys.len()` comparisons per candidate.
    pub fn acquire_excluding(&self, keys: &[R::Key]) -> Result<Lease<'_, R>, AcquireError> {
        if keys.is_empty() {
            return self.acquire();
        }
        let lent = self.core.lend_where(&mut |node, _| !keys.contains(node.key()))?;
        Ok(Lease::new(&self.core, lent))
    }

    /// As [`acquire_excluding`](Scheduler::acquire_excluding), for a lease that may outlive the scheduler.
    pub fn acquire_excluding_owned(&self, keys: &[R::Key]) -> Result<OwnedLease<R>, AcquireError> {
        self.acquire_excluding(keys).map(|lease| lease.into_owned(&self.core))
    }
}
