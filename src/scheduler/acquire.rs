//! Lending without a filter: the best resource of some shard, a named one, several at once.
//!
//! # The walk
//!
//! ```text
//! A1  warm up what is due (one load while nothing cools)
//! A2  the strategy chooses a shard; try its lock, lend its best. If the lock is taken and the strategy is one that stays:
//!     it chooses again, for this acquisition and those after it; the same once more. Not if the owner of the lock only looks: that is
//!     over soon and does not come again, so it is waited for
//! A3  the shard of the best published rank, if it is another; try its lock
//! A4  all shards from a random one on: skip those that show nothing, try the others' locks
//! A5  if locks were busy: the same, waiting for each lock whose shard shows something
//! A6  the double look: nothing eligible anywhere, and nothing has changed since  -> "none"; otherwise back to A3
//! ```
//!
//! # Why "none" is honest
//!
//! A6 reads each shard's sequence (R1), finds nothing eligible, nothing due and no committed batch waiting, and then
//! reads all sequences again (R3, R4). If all are the same, every shard was without an eligible resource from its first
//! reading to its second. All first readings precede all second ones, so there is one instant in between at which it
//! held for all shards: the linearization point of "none". A resource returned behind the scan changes a sequence.
//!
//! A6 itself takes no shard's lock and writes nothing. If it fails, it is because of something that somebody else did: a change that is
//! going on (its maker holds the lock, so A6 waits for that), a change since, a batch that has become visible (A6 absorbs it)
//! or a deadline that has come (A6 warms up what is due). Then the walk begins again. So it does if leases that are overdue were
//! taken back after A6; if there were none, "none" was true before anybody looked for them.

use std::{borrow::Borrow, hash::BuildHasher, hash::Hash};

use super::{
    Scheduler,
    core::{ABSORB_AT_ONCE, Core, open},
    error::{AcquireError, AcquireKeyError, NoneEligible},
    lease::{Lease, OwnedLease},
};
use crate::{
    node::{Node, Standing},
    resource::Resource,
    shard::{Bare, Forecast, Lent, Locked, NEVER, Pin, Shard},
    strategy::{Cell, ShardView},
    sync::{Timestamp, atomic::Ordering},
};

/// What came of trying one shard.
pub(super) enum Tried<R: Resource> {
    Lent(Lent<R>),
    Empty,
    Busy,
}

/// How far the walk has got when the usual case turns out not to be one.
#[derive(Clone, Copy)]
pub(super) enum Got {
    Nowhere,
    /// A2 has chosen this shard, or a number that is none.
    Chosen(usize),
    /// And it has nothing to lend.
    Empty(usize),
    /// And its lock was taken.
    Busy(usize),
}

impl<R: Resource> Core<R> {
    /// Lends the best of one shard, after a piece of a committed batch has been absorbed.
    #[inline]
    pub(super) fn lend_best(
        &self,
        locked: &mut Locked<'_, R>,
        forecast: Option<&Forecast<R>>,
    ) -> Option<Lent<R>> {
        let _ = locked.absorb(&self.roster, ABSORB_AT_ONCE);
        locked.lend_best(forecast)
    }

    /// As [`lend_best`](Self::lend_best), for one who has asked for the best of all.
    #[inline]
    fn lend_to_order(&self, locked: &mut Locked<'_, R>, forecast: Option<&Forecast<R>>) -> Option<Lent<R>> {
        #[allow(unused_mut)]
        let mut lent = self.lend_best(locked, forecast)?;
        #[cfg(feature = "telemetry")]
        self.note_order(&mut lent);
        Some(lent)
    }

    /// The rank that the best resource a shard shows will have when it has been lent, if it is one that is ranked by its load.
    /// Runs user code.
    fn forecast_best(&self, shard: &Shard<R>, guard: &Pin<'_>) -> Option<Forecast<R>> {
        let node = self.follow(shard.face().best(), guard)?;
        if !node.is_shared() {
            return None;
        }
        Some(self.forecast(node, node.state.load().in_flight() + 1, guard))
    }

    /// The rank of a resource at a load. Runs user code.
    pub(super) fn forecast(&self, node: &Node<R>, in_flight: u32, guard: &Pin<'_>) -> Forecast<R> {
        self.rank_of(node, node.value(guard), in_flight)
    }

    /// The shard that the strategy has chosen.
    fn try_chosen(&self, shard: &Shard<R>) -> Tried<R> {
        if !self.unusual.load(Ordering::Relaxed) {
            return self.try_lend(shard, None);
        }
        let guard = self.pin();
        let forecast = self.forecast_best(shard, &guard);
        self.try_lend(shard, forecast.as_ref())
    }

    #[inline]
    fn try_lend(&self, shard: &Shard<R>, forecast: Option<&Forecast<R>>) -> Tried<R> {
        match shard.try_lock(self.pin_for_events()) {
            None => Tried::Busy,
            Some(mut locked) => {
                let lent = self.lend_to_order(&mut locked, forecast);
                locked.finish();
                lent.map_or(Tried::Empty, Tried::Lent)
            }
        }
    }

    /// Whether a shard shows something to lend.
    #[inline]
    pub(super) fn shows_some(&self, shard: &Shard<R>) -> bool {
        let face = shard.face();
        face.standing(Standing::Eligible) > 0
            || (face.staged() != 0 && self.roster.is_committed(face.staged()))
    }

    /// A2. `None`: the strategy has chosen a number that is none.
    #[inline(always)]
    fn chosen(&self, cell: &Cell, got: &mut Got) -> Option<(usize, &Shard<R>)> {
        if let Some((current, shard)) = self.stay(cell) {
            *got = Got::Chosen(current);
            return Some((current, shard));
        }
        let index = self.choose(cell);
        *got = Got::Chosen(index);
        Some((index, self.shards.get(index)?))
    }

    /// The usual case of [`lend`](Self::lend): an exclusive resource of the chosen shard, nothing recorded, no sample. `None`: nothing was
    /// lent; `lend` goes on from where this has got.
    ///
    /// Two words come back, in registers. A whole lease would be written to memory and copied from there, by loads that are
    /// wider than the stores before them: each such copy waits 4 ns for the stores.
    pub(super) fn lend_usual(&self, got: &mut Got) -> Option<Bare<R>> {
        // Relaxed: a hint; what is lent is looked at under the lock.
        if self.unusual.load(Ordering::Relaxed) || self.is_closed() {
            return None;
        }
        self.thaw_due();
        let cell = self.stripe();
        let (index, shard) = self.chosen(cell, got)?;
        let Some(mut locked) = shard.try_lock(self.pin_for_events()) else {
            *got = Got::Busy(index);
            return None;
        };
        let _ = locked.absorb(&self.roster, ABSORB_AT_ONCE);
        let lent = locked.lend_best_exclusive();
        if lent.is_none() && locked.shows_none() {
            *got = Got::Empty(index);
        }
        #[cfg(feature = "telemetry")]
        if let Some((node, _)) = lent {
            self.pass_exclusive(shard, node);
        }
        locked.finish();
        lent
    }

    /// As [`lend_usual`](Self::lend_usual), for one unit of several, of a resource whose load is as it was when its rank was
    /// asked for. Runs user code.
    #[inline(never)]
    pub(super) fn lend_loaded(&self, got: &mut Got) -> Option<Bare<R>> {
        if !matches!(got, Got::Nowhere) || self.limits.is_some() || self.is_closed() {
            return None;
        }
        #[cfg(feature = "telemetry")]
        if self.meters.as_ref().is_some_and(super::telemetry::Meters::times) {
            return None;
        }
        self.thaw_due();
        let cell = self.stripe();
        let (index, shard) = self.chosen(cell, got)?;
        let guard = self.pin();
        let forecast = self.forecast_best(shard, &guard)?;
        let Some(mut locked) = shard.try_lock(self.pin_for_events()) else {
            *got = Got::Busy(index);
            return None;
        };
        let _ = locked.absorb(&self.roster, ABSORB_AT_ONCE);
        let lent = locked.lend_best_loaded(&forecast);
        #[cfg(feature = "telemetry")]
        if let Some(lent) = &lent {
            self.pass(lent);
        }
        locked.finish();
        lent.map(|lent| (lent.node, lent.value))
    }

    /// As [`lend`](Self::lend), for one who has asked for the best: an acquisition of which the error in rank may be sampled.
    pub(super) fn lend_sampled(&self, got: Got) -> Result<Lent<R>, AcquireError> {
        let lent = self.lend(got)?;
        #[cfg(feature = "telemetry")]
        self.look_at_order(&lent);
        Ok(lent)
    }

    /// The best resource, as the strategy understands it.
    pub(super) fn lend(&self, got: Got) -> Result<Lent<R>, AcquireError> {
        let (chosen, tried) = match got {
            Got::Nowhere => {
                open(self)?;
                self.thaw_due();
                (self.choose(self.stripe()), None)
            }
            Got::Chosen(chosen) => (chosen, None),
            Got::Empty(chosen) => (chosen, Some(Tried::Empty)),
            Got::Busy(chosen) => (chosen, Some(Tried::Busy)),
        };
        let Some(shard) = self.shards.get(chosen) else {
            return Err(AcquireError::Strategy { chosen, shards: self.shards.len() });
        };
        match tried.unwrap_or_else(|| self.try_chosen(shard)) {
            Tried::Lent(lent) => Ok(lent),
            Tried::Empty => {
                self.selector.ran_dry(self.cell());
                self.lend_elsewhere(chosen)
            }
            Tried::Busy => {
                #[cfg(feature = "telemetry")]
                if shard.is_looked_at()
                    && let Some(lent) = self.lend_to_order(&mut self.lock(shard), None)
                {
                    return Ok(lent);
                }
                let cell = self.stripe();
                if self.selector.crowded(cell)
                    && let another = self.choose(cell)
                    && another != chosen
                    && let Some(shard) = self.shards.get(another)
                    && let Tried::Lent(lent) = self.try_chosen(shard)
                {
                    return Ok(lent);
                }
                self.lend_elsewhere(chosen)
            }
        }
    }

    /// A3 to A6.
    #[cold]
    fn lend_elsewhere(&self, chosen: usize) -> Result<Lent<R>, AcquireError> {
        let shards = self.shards.len();
        loop {
            // A3. Not the next index: an empty shard's callers must not all land on its neighbour.
            let best = (0..shards)
                .filter(|&i| i != chosen || shards == 1)
                .filter_map(|i| self.best_rank(i).map(|rank| (rank, i)))
                .min();
            if let Some((_, best)) = best
                && let Tried::Lent(lent) = self.try_lend(&self.shards[best], None)
            {
                return Ok(lent);
            }
            // A4.
            let start = self.cell().draw_below(shards as u32) as usize;
            let from_start = || (0..shards).map(|i| &self.shards[(start + i) % shards]);
            let mut busy = false;
            for shard in from_start().filter(|shard| self.shows_some(shard)) {
                match self.try_lend(shard, None) {
                    Tried::Lent(lent) => return Ok(lent),
                    Tried::Empty => {}
                    Tried::Busy => busy = true,
                }
            }
            // A5.
            if busy {
                for shard in from_start().filter(|shard| self.shows_some(shard)) {
                    if let Some(lent) = self.lend_to_order(&mut self.lock(shard), None) {
                        return Ok(lent);
                    }
                }
            }
            // A6.
            if let Some(none) = self.none_eligible() {
                if self.reap_for_more() {
                    continue;
                }
                return Err(AcquireError::NoneEligible(none));
            }
        }
    }

    /// The answer to somebody who does not wait: counts it, if it is that there is nothing.
    #[cold]
    pub(super) fn in_vain(&self, error: AcquireError) -> AcquireError {
        if matches!(error, AcquireError::NoneEligible(_)) {
            self.waiters.counts.in_vain();
        }
        error
    }

    /// The double look. `None` if something may be eligible, or has changed: look again.
    pub(super) fn none_eligible(&self) -> Option<NoneEligible> {
        let mut none = NoneEligible::default();
        let mut earliest = NEVER;
        let mut first = 0u64;
        for shard in &self.shards {
            let face = shard.face();
            let Some(sequence) = face.begin_read() else {
                // A change is going on. Its maker holds the lock: wait for that, do not spin on the word.
                drop(shard.lock());
                return None;
            };
            // Sequences only grow, so equal sums mean equal sequences.
            first = first.wrapping_add(sequence);
            if self.shows_some(shard) {
                return None;
            }
            earliest = earliest.min(face.earliest());
            for standing in Standing::OBSTACLES {
                none.reasons.add(standing, u64::from(face.standing(standing)));
            }
        }
        // Between the two readings: what the words say of those that come back is of that instant too.
        let (mut due, mut told) = (earliest, earliest);
        if let Some(health) = &self.health {
            due = due.min(health.earliest());
            told = self.first_back(health, earliest);
        }
        let mut second = 0u64;
        for shard in &self.shards {
            // Nothing of a shard is read after its R4.
            let staged = shard.face().staged();
            if staged != 0 && self.roster.is_committed(staged) {
                self.absorb(shard);
                return None;
            }
            second = second.wrapping_add(shard.face().end_read());
        }
        if first != second {
            return None;
        }
        if due != NEVER {
            // Read last: what was not due now was not due at the instant in between.
            let now = self.now();
            if due <= now {
                self.thaw(now, true);
                return None;
            }
            if told != NEVER {
                none.until(told, now);
            }
        }
        Some(none)
    }
}

impl<R: Resource, S: BuildHasher> Scheduler<R, S> {
    /// Lends the best eligible resource.
    ///
    /// *Best* is what the [strategy](crate::Strategy) makes of it: with the default, the best of a shard that was
    /// the better of two when this thread last chose; with `BestOf` over all shards, the best of the fleet.
    ///
    /// # Progress and cost
    /// Does not wait for a busy shard while another one shows something to lend; blocks on a shard's lock only when every
    /// shard that shows something is busy. O(log n) for a fleet of n, O(shards) if the chosen one has nothing, and if
    /// nothing is eligible, for the moment that is told, at most the number of those that the [rules](crate::Ejection) have ejected or
    /// let back. No allocation. The clock is read only while something is cooling.
    ///
    /// # Consistency
    /// Linearizable: the lease begins at the compare-and-swap of the resource's state word.
    ///
    /// # Callbacks
    /// A custom strategy and a custom clock, before anything is changed; [`Resource::priority`], if the best resource has more than
    /// one unit of capacity, before anything is changed, and once more after the lease has begun if the load was another by then. If
    /// that panics, the lease is returned. If it finds nothing and [takes back](crate::Overdue::Revoke) what is overdue, the same of those
    /// resources, where a panic stops and the resource keeps the rank it had, and the filters and wakers of those who wait for them.
    ///
    /// # Errors
    /// [`AcquireError::NoneEligible`] if at some instant inside this call no resource was eligible.
    ///
    /// ```
    /// use leasehold::{Entry, Scheduler};
    ///
    /// let scheduler = Scheduler::<Entry<&str, u32, u16>>::builder().shards(1).build()?;
    /// scheduler.insert(Entry::new("slow", 9, 8001))?;
    /// scheduler.insert(Entry::new("fast", 1, 8002))?;
    /// let best = scheduler.acquire()?;
    /// assert_eq!(best.value, 8002);
    /// let next = scheduler.acquire()?;
    /// assert_eq!(next.value, 8001);
    /// assert!(scheduler.acquire().is_err());
    /// drop(best);
    /// assert_eq!(scheduler.acquire()?.value, 8002);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    #[track_caller]
    pub fn acquire(&self) -> Result<Lease<'_, R>, AcquireError> {
        let mut got = Got::Nowhere;
        if let Some(lent) = self.core.lend_usual(&mut got) {
            return Ok(Lease::bare(&self.core, lent, true));
        }
        match self.core.lend_loaded(&mut got) {
            Some(lent) => Ok(Lease::bare(&self.core, lent, false)),
            None => self.acquire_anyhow(got),
        }
    }

    #[track_caller]
    fn acquire_anyhow(&self, got: Got) -> Result<Lease<'_, R>, AcquireError> {
        // Not in a closure: the caller's place in the program would be lost.
        match self.core.lend_sampled(got) {
            Ok(lent) => Ok(Lease::new(&self.core, lent)),
            Err(error) => Err(self.core.in_vain(error)),
        }
    }

    /// As [`acquire`](Scheduler::acquire), for a lease that may outlive the scheduler.
    #[track_caller]
    pub fn acquire_owned(&self) -> Result<OwnedLease<R>, AcquireError> {
        self.acquire().map(|lease| lease.into_owned(&self.core))
    }

    /// Lends the resource with this key.
    ///
    /// Blocking on its home shard's lock. O(log n) and one lookup. No allocation but in the error.
    ///
    /// # Errors
    /// [`AcquireKeyError::NotEligible`] says what stood in the way at the linearization point.
    #[track_caller]
    pub fn acquire_key<Q>(&self, key: &Q) -> Result<Lease<'_, R>, AcquireKeyError<Q::Owned>>
    where
        R::Key: Borrow<Q>,
        Q: Hash + Eq + ToOwned + ?Sized,
    {
        let core = &*self.core;
        if core.is_closed() {
            return Err(AcquireKeyError::Closed);
        }
        core.thaw_due();
        let hash = self.hasher.hash_one(key);
        let guard = core.pin();
        let node =
            core.find(hash, key, &guard).ok_or_else(|| AcquireKeyError::NotFound { key: key.to_owned() })?;
        let state = match core.take_named_or_reap(node) {
            Ok(lent) => return Ok(Lease::new(core, lent)),
            Err(state) => state,
        };
        if state.is_removed() {
            return Err(AcquireKeyError::NotFound { key: key.to_owned() });
        }
        let standing = state.standing();
        let earliest = Some(core.comes_back(node, state)).filter(|&moment| moment != NEVER);
        let earliest = earliest.map(Timestamp::from_nanos);
        core.waiters.counts.in_vain();
        Err(AcquireKeyError::NotEligible {
            key: key.to_owned(),
            standing,
            in_flight: state.in_flight(),
            earliest,
        })
    }

    /// As [`acquire_key`](Scheduler::acquire_key), for a lease that may outlive the scheduler.
    #[track_caller]
    pub fn acquire_key_owned<Q>(&self, key: &Q) -> Result<OwnedLease<R>, AcquireKeyError<Q::Owned>>
    where
        R::Key: Borrow<Q>,
        Q: Hash + Eq + ToOwned + ?Sized,
    {
        self.acquire_key(key).map(|lease| lease.into_owned(&self.core))
    }

    /// Lends `count` units at once, or none. A resource with several units may be among them more than once.
    ///
    /// The units are taken one by one; if one cannot be had, those taken are returned. So two callers that want all of
    /// a small fleet may both fail, but nobody waits while holding: no deadlock. One allocation, a
    /// few more if `count` exceeds the number of resources.
    ///
    /// # Errors
    /// [`AcquireError::NoneEligible`] if at some instant inside this call fewer than `count` units were free.
    #[track_caller]
    pub fn acquire_many(&self, count: usize) -> Result<Vec<Lease<'_, R>>, AcquireError> {
        open(&self.core)?;
        // Not reserved blindly: a caller's number is not a promise of ours.
        let mut leases = Vec::with_capacity(count.min(self.len()));
        for _ in 0..count {
            leases.push(self.acquire()?);
        }
        Ok(leases)
    }

    /// As [`acquire_many`](Scheduler::acquire_many), for leases that may outlive the scheduler.
    #[track_caller]
    pub fn acquire_many_owned(&self, count: usize) -> Result<Vec<OwnedLease<R>>, AcquireError> {
        let leases = self.acquire_many(count)?;
        Ok(leases.into_iter().map(|lease| lease.into_owned(&self.core)).collect())
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
