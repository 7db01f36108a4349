//! Lending and returning; ranks and values.

use std::ptr::NonNull;

use super::{Count, Locked};
#[cfg(feature = "telemetry")]
use crate::delay::Sample;
use crate::{
    health::Seen,
    heap::Entry,
    node::{Added, Hold, Moved, Node, Owned, Refused, Standing, State, Value},
    resource::Resource,
};

/// One unit of capacity that was taken.
pub struct Lent<R: Resource> {
    /// The resource. Not freed before the unit is given back.
    pub node: NonNull<Node<R>>,
    /// Its value at that moment. Not freed before the unit is given back.
    pub value: NonNull<Value<R>>,
    /// The word after the transition.
    pub state: State,
    /// The rank it has now.
    pub rank: u64,
    /// That is the rank of its new load.
    pub ranked: bool,
    /// Only one lease is allowed, and the rank does not depend on what becomes of it.
    pub exclusive: bool,
    /// The rank that it stood at when it was chosen.
    #[cfg(feature = "telemetry")]
    pub stood: u64,
    /// This lending is a sample of the order: see `scheduler::order`.
    #[cfg(feature = "telemetry")]
    pub sampled: Sample,
}

/// Node and value of a [`Lent`], in two registers.
pub type Bare<R> = (NonNull<Node<R>>, NonNull<Value<R>>);

// SAFETY: both pointers are to data that is `Send + Sync` and kept alive by the unit of capacity (rules 5 and 6 of `node`).
#[allow(unsafe_code)]
unsafe impl<R: Resource> Send for Lent<R> {}

/// The rank of a resource with a value, at a load and after outcomes, computed before the lock was taken: if the load is the one that it
/// is about to have, the change of load and that of the rank need one critical section. Whoever has it holds a guard that is older, or a
/// claim: no other value can have that address.
///
/// All that the rank depends on is here and is compared, not a number of it: what has changed and changed back makes no difference.
pub struct Forecast<R: Resource> {
    pub node: NonNull<Node<R>>,
    pub value: NonNull<Value<R>>,
    pub in_flight: u32,
    /// What outcomes had shown, if the rank depends on it.
    pub seen: Option<Seen>,
    pub rank: u64,
}

impl<R: Resource> Forecast<R> {
    /// Whether it has come true.
    #[inline]
    fn holds(&self, node: &Node<R>, state: State) -> bool {
        NonNull::from(node) == self.node
            && state.in_flight() == self.in_flight
            && node.value_ptr() == self.value
            && self.seen == node.seen()
            && node.is_shared()
    }
}

/// What nobody reaches any more: to be retired through a guard once the lock is free.
#[must_use = "garbage that is not retired leaks"]
pub struct Garbage<R: Resource> {
    /// A spent node.
    pub node: Option<NonNull<Node<R>>>,
    /// A superseded value without claims.
    pub value: Option<NonNull<Value<R>>>,
    /// That is the one that lives in the node itself.
    pub first: bool,
}

impl<R: Resource> Garbage<R> {
    pub(super) const NONE: Self = Garbage { node: None, value: None, first: false };

    /// A node that its remover is alone with.
    pub fn node(node: &Node<R>) -> Self {
        Garbage { node: Some(NonNull::from(node)), ..Self::NONE }
    }

    /// There is nothing to retire.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.node.is_none() && self.value.is_none()
    }
}

/// An update that happened.
pub struct Revalued<R: Resource> {
    /// The word before and after.
    pub moved: Moved,
    /// The old value, if no lease claims it.
    pub garbage: Garbage<R>,
}

#[allow(unsafe_code)]
impl<R: Resource> Locked<'_, R> {
    /// Lends the best eligible resource. O(log n), O(1) if it was in use lately.
    #[inline]
    pub fn lend_best(&mut self, forecast: Option<&Forecast<R>>) -> Option<Lent<R>> {
        let entry = self.inner.ready.peek_min()?;
        self.take(self.node_in(entry.slot()), true, forecast).ok()
    }

    /// As [`lend_best`](Self::lend_best), if the best is an exclusive resource.
    #[inline(always)]
    // With the telemetry it does not lend what is a sample: that goes the long way.
    pub fn lend_best_exclusive(&mut self) -> Option<Bare<R>> {
        let node = self.best()?;
        // What is not shared has one unit.
        if node.is_shared() && !node.is_single(self.details(node).limit) {
            return None;
        }
        #[cfg(feature = "telemetry")]
        if self.watch().is_due(self.face().count(Count::Lent)) {
            return None;
        }
        self.write();
        // What is in the ready heap is eligible; the word decides all the same.
        let moved = node.state.lend(1).ok()?;
        let inner = &mut **self.inner;
        let _ = inner.ready.pop_min(&mut inner.slots);
        let face = self.face();
        // It had nothing to spare.
        face.shift(Standing::Eligible, Standing::AtCapacity);
        self.tally(Count::Lent, node, moved.to);
        Some((NonNull::from(node), node.value_ptr()))
    }

    /// As [`lend_best`](Self::lend_best), if the forecast is of the best and comes true.
    #[inline]
    // As above for what is a sample.
    pub fn lend_best_loaded(&mut self, forecast: &Forecast<R>) -> Option<Lent<R>> {
        #[cfg(feature = "telemetry")]
        if self.watch().is_due(self.face().count(Count::Lent)) {
            return None;
        }
        let entry = self.inner.ready.peek_min()?;
        let node = self.node_in(entry.slot());
        let state = node.state.load();
        if NonNull::from(node) != forecast.node
            || node.value_ptr() != forecast.value
            || state.in_flight() + 1 != forecast.in_flight
            || forecast.seen != node.seen()
            || !node.is_shared()
        {
            return None;
        }
        let lent = self.take(node, true, Some(forecast)).ok()?;
        debug_assert!(lent.ranked, "nobody else changes its load meanwhile");
        Some(lent)
    }

    /// Whether there is nothing to lend.
    #[inline]
    pub fn shows_none(&self) -> bool {
        self.inner.ready.is_empty()
    }

    /// Lends `node` if it is eligible; otherwise tells where it stands. O(log n).
    pub fn lend(&mut self, node: &Node<R>) -> Result<Lent<R>, State> {
        self.take(node, false, None)
    }

    /// Warms a node up, out of its turn, if only its cooling stands in the way and is over at `now`.
    pub fn warm_if_due(&mut self, node: &Node<R>, now: u64) {
        let state = node.state.load();
        if state.standing() == Standing::Cooling && node.deadline() <= now {
            let _ = self.clear(node, Hold::Cooling, Count::Warmed);
        }
    }

    /// Lends the node in a slot, if there is one and it is eligible.
    pub fn lend_slot(&mut self, slot: u32) -> Option<Lent<R>> {
        if slot >= self.inner.slots.used() {
            return None;
        }
        let node = self.inner.slots.node(slot)?;
        // SAFETY: rule 5 of `node`: a node in the slot table is not spent, and the lock is held.
        self.take(unsafe { node.as_ref() }, false, None).ok()
    }

    #[inline]
    pub(super) fn take(
        &mut self,
        node: &Node<R>,
        is_best: bool,
        forecast: Option<&Forecast<R>>,
    ) -> Result<Lent<R>, State> {
        // A refusal must not look like a change to those who look without the lock.
        let state = node.state.load();
        if !state.is_eligible() {
            return Err(state);
        }
        self.write();
        let Owned { slot, limit, .. } = self.owned(node, |owned| *owned);
        // Whatever came out of the heap is validated by the word.
        let moved = node.state.lend(limit).map_err(|Refused(state)| state)?;
        let face = self.face();
        let forecast = forecast.filter(|forecast| forecast.holds(node, moved.to));
        #[cfg(feature = "telemetry")]
        let stood = node.rank();
        if let Some(forecast) = forecast {
            node.set_rank(forecast.rank);
        }
        let rank = node.rank();
        if moved.to.is_full() {
            if is_best {
                let inner = &mut **self.inner;
                let _ = inner.ready.pop_min(&mut inner.slots);
            } else {
                self.unqueue(Standing::Eligible, slot);
            }
            // That was its last free unit: it had nothing to spare.
            face.shift(Standing::Eligible, Standing::AtCapacity);
        } else {
            // It stays in the heap, but as the one used last among its equals; also among those that it will meet at the
            // rank of its new load.
            if is_best {
                let entry = Entry::new(rank, self.tie(), slot);
                let inner = &mut **self.inner;
                let replaced = inner.ready.replace_min(entry, &mut inner.slots);
                debug_assert!(replaced.is_ok(), "there is room for each node that has a slot");
            } else {
                self.requeue(slot, rank, true);
            }
            face.change_spare(1, 0);
        }
        self.tally(Count::Lent, node, moved.to);
        Ok(Lent {
            node: NonNull::from(node),
            value: node.value_ptr(),
            state: moved.to,
            rank,
            ranked: forecast.is_some(),
            exclusive: !node.is_shared(),
            #[cfg(feature = "telemetry")]
            stood,
            #[cfg(feature = "telemetry")]
            sampled: Sample::No,
        })
    }

    /// Changes the rank, or the place among equals, of an eligible node.
    #[inline]
    pub(super) fn requeue(&mut self, slot: u32, rank: u64, used: bool) {
        let position = self.inner.slots.position(slot);
        let tie = if used { self.tie() } else { self.inner.ready.get(slot, position).tie() };
        let inner = &mut **self.inner;
        let _ = inner.ready.replace(position, Entry::new(rank, tie, slot), &mut inner.slots);
    }

    /// Whether a unit that is given back now could be lent at once.
    pub fn would_be_eligible(&mut self, node: &Node<R>) -> bool {
        let state = node.state.load();
        let obstacle = state.standing();
        matches!(obstacle, Standing::Eligible | Standing::AtCapacity)
            && !state.is_held(Hold::Cooling)
            && state.in_flight() <= self.details(node).limit
    }

    /// Gives back one unit of capacity that was lent with `value`. O(log n).
    ///
    /// With a deadline the resource starts to cool in the same transition, and with `eject` it is ejected: there is no moment at which
    /// it can be lent. The caller has come through [`Shard::lock_with_cooling`] for the one, and for the other has made sure that it
    /// is a member, and not ejected.
    ///
    /// Answers what is to be retired, the transition, and whether the forecast has come true.
    pub fn give_back(
        &mut self,
        node: &Node<R>,
        value: NonNull<Value<R>>,
        holds: (Option<u64>, bool),
        outcome: Option<Count>,
        forecast: Option<&Forecast<R>>,
    ) -> (Garbage<R>, Moved, bool) {
        let before = self.details(node);
        let given = self.give_back_in_line(node, before, value, holds, outcome, forecast);
        Self::note_nothing_out(node, given.1);
        given
    }

    /// What a return of a resource that may be probed has to say: the probe is what is lent after it. Not for the usual return of an exclusive
    /// one: that is no such resource, see [`Node::is_single`].
    #[inline]
    pub fn note_nothing_out(node: &Node<R>, moved: Moved) {
        if moved.to.in_flight() == 0
            && let Some(record) = node.record()
        {
            record.nothing_is_out();
        }
    }

    /// As [`give_back`](Self::give_back), for the usual lease, of whose node the caller has read the [details](Self::details).
    #[inline(always)]
    pub fn give_back_in_line(
        &mut self,
        node: &Node<R>,
        before: Owned,
        value: NonNull<Value<R>>,
        (deadline, eject): (Option<u64>, bool),
        outcome: Option<Count>,
        forecast: Option<&Forecast<R>>,
    ) -> (Garbage<R>, Moved, bool) {
        self.write();
        let cool = deadline.is_some() && !node.state.load().is_removed();
        let holds = Added { cool, eject };
        let moved =
            node.state.give_back(before.limit, holds).expect("whoever gives back holds a unit of capacity");
        let mut garbage = Garbage::NONE;
        if value != node.value_ptr() {
            garbage.first = node.is_first(value);
            garbage.value = self.unclaim(node, value, |owned, claims| {
                owned.superseded -= 1;
                claims.leases -= 1;
            });
        }
        let forecast = forecast.filter(|forecast| forecast.holds(node, moved.to));
        if let Some(forecast) = forecast
            && forecast.rank != node.rank()
        {
            node.set_rank(forecast.rank);
            if moved.from.is_eligible() && moved.to.is_eligible() {
                self.requeue(before.slot, forecast.rank, false);
            }
        }
        let face = self.face();
        let mut cooled = false;
        if moved.from.is_full() && moved.to.is_eligible() {
            // By far the most common return: it stood at its capacity, since a return takes no hold away.
            self.queue_used(node.rank(), before.slot);
            // That is its first free unit: it has nothing to spare.
            debug_assert_eq!(before.limit - moved.to.in_flight(), 1, "it was full by its limit");
            face.shift(Standing::AtCapacity, Standing::Eligible);
        } else {
            if let Some(deadline) = deadline
                && cool
            {
                cooled = self.note_cooling(node, moved, deadline);
            }
            let owned = self.owned(node, |owned| *owned);
            self.follow(node, moved, before.limit, owned);
            if cool || eject {
                self.holds().follow(moved);
            }
            garbage.node = self.release_if_spent(node, moved.to);
        }
        self.tally(Count::Returned, node, moved.to);
        if cooled {
            self.tally(Count::Cooled, node, moved.to);
        }
        if eject {
            self.tally(Count::Ejected, node, moved.to);
        }
        if let Some(outcome) = outcome {
            self.face().tally(outcome);
        }
        (garbage, moved, forecast.is_some())
    }

    /// Gives back and lends again, as [`give_back`](Self::give_back) and [`lend`](Self::lend) one after the other: the unit of an exclusive
    /// resource that is as it was when it was lent, and nothing but that lease in its way. Then neither heaps nor standings change. `None`: it
    /// is not that, and nothing was done. O(1).
    pub fn hand_over(
        &mut self,
        node: &Node<R>,
        value: NonNull<Value<R>>,
        outcome: Option<Count>,
    ) -> Option<Lent<R>> {
        let state = node.state.load();
        // What may be probed has a record, and has to be told that nothing is out.
        let is_usual = state.standing() == Standing::AtCapacity
            && state.holds() == 0
            && state.in_flight() == 1
            && value == node.value_ptr()
            && !node.is_shared()
            && node.record().is_none();
        if !is_usual {
            return None;
        }
        self.write();
        // What is not shared has one unit.
        let returned = node.state.give_back(1, Added::default()).expect("a lease is out");
        self.tally(Count::Returned, node, returned.to);
        if let Some(outcome) = outcome {
            self.face().tally(outcome);
        }
        let moved = node.state.lend(1).expect("nothing is in its way");
        self.tally(Count::Lent, node, moved.to);
        let rank = node.rank();
        Some(Lent {
            node: NonNull::from(node),
            value,
            state: moved.to,
            rank,
            ranked: false,
            exclusive: true,
            #[cfg(feature = "telemetry")]
            stood: rank,
            #[cfg(feature = "telemetry")]
            sampled: Sample::No,
        })
    }

    /// Takes something off the claims on a superseded value; hands it out if that was the last claim.
    pub(super) fn unclaim(
        &mut self,
        node: &Node<R>,
        value: NonNull<Value<R>>,
        f: impl FnOnce(&mut Owned, &mut crate::node::Claims),
    ) -> Option<NonNull<Value<R>>> {
        self.owned(node, |owned| {
            // SAFETY: the home lock is held, and the caller's claim has kept the value alive until now (rule 6); the
            // closures touch nothing but their arguments.
            let claims = unsafe {
                value.as_ref().with_claims(|claims| {
                    f(owned, claims);
                    *claims
                })
            };
            (claims.leases == 0 && claims.pins.is_none()).then_some(value)
        })
    }

    #[inline]
    pub(super) fn release_if_spent(&mut self, node: &Node<R>, state: State) -> Option<NonNull<Node<R>>> {
        if !state.is_spent() {
            return None;
        }
        let owned = self.owned(node, |owned| *owned);
        if !owned.pins.is_none() {
            return None;
        }
        self.inner.slots.release(owned.slot);
        self.face().add_standing(Standing::Removed, u32::MAX);
        Some(NonNull::from(node))
    }

    /// Keeps the guard's value alive beyond its unit of capacity: its token is about to be given out.
    pub fn pin(&mut self, node: &Node<R>, value: NonNull<Value<R>>) {
        self.owned(node, |owned| {
            owned.pins.more();
            // SAFETY: the home lock is held, and the caller's lease keeps the value alive (rule 6).
            unsafe { value.as_ref().with_claims(|claims| claims.pins.more()) };
        });
    }

    /// Undoes [`Locked::pin`].
    pub fn unpin(&mut self, node: &Node<R>, value: NonNull<Value<R>>) -> Garbage<R> {
        self.write();
        let unclaimed = self.unclaim(node, value, |owned, claims| {
            owned.pins.less();
            claims.pins.less();
        });
        // The current value stays with its node.
        let value = unclaimed.filter(|&value| value != node.value_ptr());
        let first = value.is_some_and(|value| node.is_first(value));
        Garbage { node: self.release_if_spent(node, node.state.load()), value, first }
    }

    /// Keeps the node for somebody who waits for it; `false` if it is removed, and may be on its way to be freed.
    pub fn pin_node(&mut self, node: &Node<R>) -> bool {
        let is_member = !node.state.load().is_removed();
        if is_member {
            self.owned(node, |owned| owned.pins.more());
        }
        is_member
    }

    /// Keeps the node for somebody who waits until its leases are back, removed or not; `false` if none is out.
    pub fn pin_lent(&mut self, node: &Node<R>) -> bool {
        let is_lent = node.state.load().in_flight() > 0;
        if is_lent {
            self.owned(node, |owned| owned.pins.more());
        }
        is_lent
    }

    /// Undoes [`Locked::pin_node`].
    pub fn unpin_node(&mut self, node: &Node<R>) -> Garbage<R> {
        self.write();
        self.owned(node, |owned| owned.pins.less());
        Garbage { node: self.release_if_spent(node, node.state.load()), ..Garbage::NONE }
    }

    /// Keeps the node, which is not spent, for the scheduler's own books; undone by [`Locked::unpin_node`].
    pub fn keep_node(&mut self, node: &Node<R>) {
        self.owned(node, |owned| owned.pins.more());
    }

    /// Another limit on leases, with the same value. O(log n).
    pub fn relimit(&mut self, node: &Node<R>, limit: u32) {
        let before = self.owned(node, |owned| owned.limit);
        if limit == before || node.state.load().is_removed() {
            return;
        }
        self.write();
        let Ok(moved) = node.state.revalue(limit) else { return };
        let owned = self.owned(node, |owned| {
            owned.limit = limit;
            *owned
        });
        node.note_limit(limit);
        self.follow(node, moved, before, owned);
    }

    // Ranks and values.

    /// Gives `node` the rank that was computed, unless what it was computed for has changed since: then whoever changed it will do the
    /// same with a newer rank. That is so because everybody who changes a load or an outcome ranks anew afterwards, if
    /// [that changes the rank](Node::is_shared).
    pub fn rerank(&mut self, node: &Node<R>, forecast: &Forecast<R>) {
        let now = node.state.load();
        let rank = forecast.rank;
        if now.is_removed()
            || now.in_flight() != forecast.in_flight
            || node.value_ptr() != forecast.value
            || node.seen() != forecast.seen
            || node.rank() == rank
        {
            return;
        }
        self.write();
        node.set_rank(rank);
        if now.is_eligible() {
            let slot = self.owned(node, |owned| owned.slot);
            self.requeue(slot, rank, false);
        }
    }

    /// Replaces the value. With `expected`, only if that is still the current one.
    ///
    /// Gives the new value back in the error if the resource is gone, or the current value is another.
    pub fn revalue(
        &mut self,
        node: &Node<R>,
        value: Box<Value<R>>,
        limit: u32,
        rank: u64,
        expected: Option<NonNull<Value<R>>>,
    ) -> Result<Revalued<R>, (Box<Value<R>>, Refused)> {
        // As in `take`: a refusal must not look like a change.
        let state = node.state.load();
        let changed = expected.is_some_and(|expected| expected != node.value_ptr());
        if changed || state.is_removed() {
            return Err((value, Refused(state)));
        }
        // A limit that holds for a while stays; what holds afterwards is the new one.
        let limit = match node.record().filter(|record| record.full_limit().is_some()) {
            Some(record) => {
                record.set_full_limit(Some(limit));
                limit.min(self.owned(node, |owned| owned.limit))
            }
            None => limit,
        };
        self.write();
        self.face().touch_content();
        let moved = match node.state.revalue(limit) {
            Ok(moved) => moved,
            Err(refused) => return Err((value, refused)),
        };
        let old = node.swap_value(value);
        node.note_limit(limit);
        let (before, claimed, owned) = self.owned(node, |owned| {
            let before = std::mem::replace(&mut owned.limit, limit);
            let leases = moved.from.in_flight() - owned.superseded;
            owned.superseded += leases;
            // Each pin of a value is one of its node as well. Without either nobody has a claim on the value, which is not looked at.
            let claimed = leases > 0 || !owned.pins.is_none();
            let claimed = claimed && {
                // SAFETY: the home lock is held; the old value is freed only after this, by rule 6.
                unsafe {
                    old.as_ref().with_claims(|claims| {
                        claims.leases = leases;
                        leases > 0 || !claims.pins.is_none()
                    })
                }
            };
            (before, claimed, *owned)
        });
        node.set_rank(rank);
        if moved.from.is_eligible() && moved.to.is_eligible() {
            self.requeue(owned.slot, rank, false);
        }
        self.follow(node, moved, before, owned);
        self.tally(Count::Updated, node, moved.to);
        let garbage = Garbage { node: None, value: (!claimed).then_some(old), first: node.is_first(old) };
        Ok(Revalued { moved, garbage })
    }
}
