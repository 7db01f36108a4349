//! Lending with a filter: only resources that the caller says yes to.
//!
//! The filter is user code, so it runs outside every lock, on candidates that a guard keeps alive; the one chosen is
//! then lent only if it is still eligible, with the very value that the filter has seen.
//!
//! ```text
//! W1  per shard, in the walk's order: copy up to eight of the best under the lock; unlock; ask the filter, best first;
//!     lend the first it accepts
//! W2  no luck: read each shard's content number, with no change going on there, and the batch number; go over the whole
//!     fleet by the lookup and ask the filter about everyone; lend the best-ranked accepted one that is eligible
//! W3  none is: read the words of all accepted ones again, then the numbers again; if nothing has changed: "none", unless the
//!     cooling, or the ejection, of an accepted one is over: that one is let back and lent
//! ```
//!
//! # Why "none" is honest
//!
//! Take the instant between W2 and W3. Had anybody been admitted, or got another value, between the two readings of the
//! numbers and before that instant, a number would differ: it grows before the CAS. (A number that has grown already while its
//! CAS is still to come would hide it, hence "no change going on": the first reading is validated by the shard's sequence.)
//! So everyone who was a member then was asked about with the value he had then. Those refused do not matter; those accepted
//! had the same word before and after the instant, not eligible, and a word does not come back (whatever can make it eligible
//! moves its generation).
//!
//! Lending and returning of resources that the filter refuses does not disturb. Updates and insertions anywhere do: then the
//! whole is repeated. Somebody else has got something done each time.

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
    node::{Node, Standing, Value},
    resource::Resource,
    shard::{Lent, NEVER, Pin, Shard},
};

/// A resource that the filter has accepted for this value.
struct Candidate<'g, R: Resource> {
    rank: u64,
    node: &'g Node<R>,
    value: &'g Value<R>,
}

impl<R: Resource> Core<R> {
    pub(super) fn lend_where(
        &self,
        accepts: &mut dyn FnMut(&Node<R>, &R) -> bool,
    ) -> Result<Lent<R>, AcquireError> {
        open(self)?;
        self.thaw_due();
        let guard = self.pin();
        let shards = self.shards.len();
        let chosen = self.choose(self.stripe());
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
            // W2.
            let before = self.content_at_rest();
            let mut best: Option<Candidate<'_, R>> = None;
            let mut accepted = Vec::new();
            let mut none = NoneEligible::default();
            for node in self.map.iter(&guard) {
                let Some(state) = self.visible(node) else { continue };
                let value = node.value(&guard);
                let accepts = accepts(node, value.resource());
                let standing = if state.is_staged() { Standing::Eligible } else { state.standing() };
                match standing {
                    Standing::Eligible if accepts => {
                        let rank = node.rank();
                        if best.as_ref().is_none_or(|best| rank < best.rank) {
                            best = Some(Candidate { rank, node, value });
                        }
                    }
                    Standing::Eligible => none.reasons.filtered += 1,
                    other => none.reasons.count(other),
                }
                if accepts && standing != Standing::Eligible {
                    accepted.push((Candidate { rank: node.rank(), node, value }, state));
                }
            }
            if let Some(best) = best {
                self.settle(best.node);
                match self.lend_candidate(&best) {
                    Some(lent) => return Ok(lent),
                    None => continue,
                }
            }
            // W3.
            let unchanged = accepted.iter().all(|(candidate, state)| candidate.node.state.load() == *state);
            if !unchanged || self.content() != before {
                continue;
            }
            // Only a resource that is acceptable is worth waiting for.
            let coming = accepted.iter().filter_map(|(candidate, state)| {
                let moment = self.comes_back(candidate.node, *state);
                (moment != NEVER).then_some((moment, candidate))
            });
            if let Some(earliest) = coming.clone().map(|(moment, _)| moment).min() {
                let now = self.now();
                let due = coming.filter(|(moment, _)| *moment <= now);
                if let Some((_, best)) = due.min_by_key(|(_, candidate)| candidate.rank) {
                    // That one, now; the others that are due have time.
                    match self.take_due(best.node, Some(best.value), now, &guard) {
                        Ok(lent) => return Ok(lent),
                        Err(_) => continue,
                    }
                }
                none.until(earliest, now);
            }
            if self.reap_for_more() {
                continue;
            }
            return Err(AcquireError::NoneEligible(none));
        }
    }

    /// What changes when somebody is admitted, gets another value, or becomes visible with a batch.
    fn content(&self) -> (u64, u32) {
        // Each only grows: equal sums, equal numbers.
        let sum = self.shards.iter().fold(0u64, |sum, shard| sum.wrapping_add(shard.face().content()));
        (sum, self.roster.batch())
    }

    /// The same, where no shard is in the middle of a change: every number that has grown has had its effect.
    fn content_at_rest(&self) -> (u64, u32) {
        let mut sum = 0u64;
        for shard in &self.shards {
            let face = shard.face();
            let content = loop {
                let Some(sequence) = face.begin_read() else {
                    // Its maker holds the lock: wait for that.
                    drop(shard.lock());
                    continue;
                };
                let content = face.content();
                if face.end_read() == sequence {
                    break content;
                }
            };
            sum = sum.wrapping_add(content);
        }
        (sum, self.roster.batch())
    }

    /// Lends what the filter has accepted, if it is eligible and its value is still the one that was accepted.
    fn lend_candidate(&self, candidate: &Candidate<'_, R>) -> Option<Lent<R>> {
        let mut locked = self.lock(self.home(candidate.node));
        // The guard keeps the accepted value, so no other one can have its address.
        if !std::ptr::eq(candidate.node.value_ptr().as_ptr(), candidate.value) {
            return None;
        }
        locked.lend(candidate.node).ok()
    }

    /// W1: the best accepted of the best few of each shard; nothing if a shard that was not looked through may have a
    /// better one.
    fn lend_best_where<'a>(
        &'a self,
        shards: impl Iterator<Item = &'a Shard<R>>,
        accepts: &mut dyn FnMut(&Node<R>, &R) -> bool,
        guard: &Pin<'_>,
    ) -> Option<Lent<R>> {
        let mut best: Option<Candidate<'_, R>> = None;
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
                if best.as_ref().is_some_and(|best| last >= best.rank) {
                    return true;
                }
                let value = node.value(guard);
                let accepted = accepts(node, value.resource());
                if accepted {
                    best = Some(Candidate { rank: last, node, value });
                }
                accepted
            });
            if !settled && few[Best::MAX - 1].is_some() {
                unseen = Some(unseen.map_or(last, |least: u64| least.min(last)));
            }
        }
        let best = best?;
        if unseen.is_some_and(|unseen| unseen < best.rank) {
            return None;
        }
        self.lend_candidate(&best)
    }
}

impl<R: Resource, S: BuildHasher> Scheduler<R, S> {
    /// Lends the best eligible resource that `accepts` says yes to.
    ///
    /// # Progress and cost
    /// If one of the eight best of a shard is accepted: O(log n), no allocation. Otherwise the filter is asked about the whole
    /// fleet: O(n), one allocation, and again as long as others insert or update meanwhile. Blocking on one shard's lock at
    /// a time. The lease is on the very value that was accepted.
    ///
    /// # Callbacks
    /// `accepts` runs outside every lock, may be asked about one resource several times, about some that are not lent in
    /// the end, and about some that are not eligible, to find the earliest one worth waiting for. If it panics, nothing has
    /// changed. The filter of a form that waits is run by others as well, who wait for it: see
    /// [`Request::matching`](super::Request::matching).
    ///
    /// # Errors
    /// [`AcquireError::NoneEligible`] if at some instant inside this call no eligible resource was acceptable; those that
    /// were refused are counted as [`filtered`](super::Reasons::filtered). What has come back and is being offered to somebody who waits is
    /// not eligible: with a slow filter in the queue that may take as long as asking it some times.
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
    #[track_caller]
    pub fn acquire_where(&self, mut accepts: impl FnMut(&R) -> bool) -> Result<Lease<'_, R>, AcquireError> {
        let lent = self.core.lend_where(&mut |_, resource| accepts(resource));
        let lent = lent.map_err(|error| self.core.in_vain(error))?;
        Ok(Lease::new(&self.core, lent))
    }

    /// As [`acquire_where`](Scheduler::acquire_where), for a lease that may outlive the scheduler.
    #[track_caller]
    pub fn acquire_where_owned(
        &self,
        accepts: impl FnMut(&R) -> bool,
    ) -> Result<OwnedLease<R>, AcquireError> {
        self.acquire_where(accepts).map(|lease| lease.into_owned(&self.core))
    }

    /// Lends the best eligible resource that is none of `keys`: to try again elsewhere.
    ///
    /// As [`acquire_where`](Scheduler::acquire_where), with up to `keys.len()` comparisons per candidate.
    #[track_caller]
    pub fn acquire_excluding(&self, keys: &[R::Key]) -> Result<Lease<'_, R>, AcquireError> {
        if keys.is_empty() {
            return self.acquire();
        }
        let lent = self.core.lend_where(&mut |node, _| !keys.contains(node.key()));
        let lent = lent.map_err(|error| self.core.in_vain(error))?;
        Ok(Lease::new(&self.core, lent))
    }

    /// As [`acquire_excluding`](Scheduler::acquire_excluding), for a lease that may outlive the scheduler.
    #[track_caller]
    pub fn acquire_excluding_owned(&self, keys: &[R::Key]) -> Result<OwnedLease<R>, AcquireError> {
        self.acquire_excluding(keys).map(|lease| lease.into_owned(&self.core))
    }
}
