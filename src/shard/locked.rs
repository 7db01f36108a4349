//! Each transition together with its consequence for the heaps and the face.

use std::{mem::ManuallyDrop, ptr::NonNull};

use super::{
    Inner, NEVER, Pin, Room, Shard, Shortage, Ties,
    face::{Count, Face},
};
use crate::{
    events,
    heap::Entry,
    node::{Hold, Moved, Node, Owned, Refused, Standing, State, Value},
    resource::Resource,
    sync::{SpinGuard, planted},
};

/// A shard whose lock is held. Publishes the face when dropped, then unlocks.
pub struct Locked<'s, R: Resource> {
    shard: &'s Shard<R>,
    pub(super) inner: ManuallyDrop<SpinGuard<'s, Inner<R>>>,
    writing: bool,
    /// The run of a batch has changed.
    pub(super) run_moved: bool,
    /// Events of this critical section, to be completed after it.
    events: events::Range,
    /// Keeps the nodes of those events alive until then; without it they are dropped.
    pin: Option<Pin<'s>>,
}

/// One unit of capacity that was taken.
pub struct Lent<R: Resource> {
    /// The resource. Not freed before the unit is given back.
    pub node: NonNull<Node<R>>,
    /// Its value at that moment. Not freed before the unit is given back.
    pub value: NonNull<Value<R>>,
    /// The word after the transition.
    pub state: State,
    /// The rank it was lent at.
    pub rank: u64,
    /// Only one lease is allowed, so that the rank does not depend on the load.
    pub exclusive: bool,
}

/// What nobody reaches any more: to be retired through a guard once the lock is free.
#[must_use = "garbage that is not retired leaks"]
pub struct Garbage<R: Resource> {
    /// A spent node.
    pub node: Option<NonNull<Node<R>>>,
    /// A superseded value without claims.
    pub value: Option<NonNull<Value<R>>>,
}

impl<R: Resource> Garbage<R> {
    const NONE: Self = Garbage { node: None, value: None };

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
impl<'s, R: Resource> Locked<'s, R> {
    #[inline]
    pub(super) fn new(shard: &'s Shard<R>, inner: SpinGuard<'s, Inner<R>>, pin: Option<Pin<'s>>) -> Self {
        Locked {
            shard,
            inner: ManuallyDrop::new(inner),
            writing: false,
            run_moved: false,
            events: events::Range::default(),
            pin,
        }
    }

    /// Counts what happened to `node`, and makes an event of it if anybody wants events.
    #[inline]
    fn tally(&mut self, count: Count, node: &Node<R>, state: State) {
        self.face().tally(count);
        if self.shard.events.is_some() {
            self.emit(count, node, state);
        }
    }

    #[cold]
    fn emit(&mut self, count: Count, node: &Node<R>, state: State) {
        let (Some(ring), Some(kind)) = (&self.shard.events, count.event()) else { return };
        // SAFETY: the lock is held.
        let emitted =
            self.pin.is_some() && unsafe { ring.reserve(&mut self.events, kind, node, state.generation()) };
        self.face().tally(if emitted { Count::EventsEmitted } else { Count::EventsDropped });
    }

    /// Frees the lock, and gives the pin back for another turn.
    pub(super) fn unlock(mut self) -> Option<Pin<'s>> {
        debug_assert!(self.events.is_empty(), "the pin is still needed");
        self.pin.take()
    }

    pub(super) fn face(&self) -> &'s Face<R> {
        &self.shard.face
    }

    /// F1 of the face's protocol, once per critical section, before the first CAS.
    #[inline]
    pub(super) fn write(&mut self) {
        if !self.writing {
            self.writing = true;
            self.shard.face.begin_write();
        }
    }

    #[inline]
    pub(super) fn owned<O>(&mut self, node: &Node<R>, f: impl FnOnce(&mut Owned) -> O) -> O {
        assert_eq!(node.home(), self.shard.index, "a node is touched only under its home lock");
        // SAFETY: `self` holds the home lock, mutably borrowed, so `f` is the only access; `f` is a closure of this crate
        // that touches nothing but its argument.
        unsafe { node.with_owned(f) }
    }

    /// The node in a slot.
    ///
    /// The reference outlives the borrow of `self`: the node is freed only after its slot was released under this lock
    /// and the lock was freed.
    #[inline]
    fn node_in(&self, slot: u32) -> &'s Node<R> {
        let node = self.inner.slots.node(slot).expect("a queued slot is in use");
        // SAFETY: rule 5 of `node`: a node in the slot table is not spent.
        unsafe { &*node.as_ptr() }
    }

    // Room.

    pub(super) fn shortage_for_slot(&self) -> Option<Shortage> {
        self.shortage_for(self.inner.slots.live() as usize + 1)
    }

    /// What is missing for `nodes` nodes in all. Every node that has a slot may become eligible.
    pub(super) fn shortage_for(&self, nodes: usize) -> Option<Shortage> {
        let inner = &**self.inner;
        if inner.slots.capacity() < nodes {
            return Some(inner.slots.next_segment_len().map_or(Shortage::Exhausted, Shortage::Slots));
        }
        if inner.ready.capacity() < nodes {
            return Some(inner.ready.next_segment_len().map_or(Shortage::Exhausted, Shortage::Ready));
        }
        None
    }

    pub(super) fn shortage_for_cooling(&self) -> Option<Shortage> {
        let inner = &**self.inner;
        if inner.cooling.capacity() <= inner.cooled as usize {
            // A full heap of the largest size has a place for every slot there can be.
            return inner.cooling.next_segment_len().map(Shortage::Cooling);
        }
        None
    }

    pub(super) fn add_room(&mut self, room: Room<R>) -> Option<Room<R>> {
        match room {
            Room::Slots(segment) => self.inner.slots.add_segment(segment).err().map(Room::Slots),
            Room::Ready(segment) => self.inner.ready.add_segment(segment).err().map(Room::Ready),
            Room::Cooling(segment) => self.inner.cooling.add_segment(segment).err().map(Room::Cooling),
        }
    }

    // Heaps.

    /// A number that orders equal ranks as the tie rule says.
    #[inline]
    fn tie(&mut self) -> u64 {
        self.inner.ticket += 1;
        match self.inner.ties {
            Ties::LeastRecent => self.inner.ticket,
            Ties::MostRecent => u64::MAX - self.inner.ticket,
        }
    }

    #[inline]
    fn queue(&mut self, standing: Standing, rank: u64, slot: u32) {
        let tie = self.tie();
        let inner = &mut **self.inner;
        let entry = Entry::new(rank, tie, slot);
        let pushed = match standing {
            Standing::Eligible => inner.ready.push(entry, &mut inner.slots),
            _ => inner.cooling.push(entry, &mut inner.slots),
        };
        debug_assert!(pushed.is_ok(), "room was made before the lock was taken");
    }

    #[inline]
    fn unqueue(&mut self, standing: Standing, slot: u32) {
        let inner = &mut **self.inner;
        let position = inner.slots.position(slot);
        let entry = match standing {
            Standing::Eligible => inner.ready.remove(slot, position, &mut inner.slots),
            _ => inner.cooling.remove(position, &mut inner.slots),
        };
        debug_assert_eq!(entry.slot(), slot);
    }

    /// Brings heaps and face in line with a transition of `node`. `before` is the limit that held until then.
    #[inline]
    fn follow(&mut self, node: &Node<R>, moved: Moved, before: u32, owned: Owned) {
        let (from, to) = (moved.from.standing(), moved.to.standing());
        // A cooling node is queued anew even if it stays cooling: its deadline may have moved.
        if from != to || to == Standing::Cooling {
            if matches!(from, Standing::Eligible | Standing::Cooling) {
                self.unqueue(from, owned.slot);
            }
            match to {
                Standing::Eligible => {
                    self.queue(to, node.rank(), owned.slot);
                    if from == Standing::Excluded && planted("include_queues_twice") {
                        self.queue(to, node.rank(), owned.slot);
                    }
                }
                Standing::Cooling => self.queue(to, node.deadline(), owned.slot),
                _ => {}
            }
        }
        let face = self.face();
        if from != to {
            face.shift(from, to);
        }
        let free = |state: State, limit: u32| {
            if state.is_eligible() { limit.saturating_sub(state.in_flight()) } else { 0 }
        };
        face.change_available(free(moved.from, before), free(moved.to, owned.limit));
    }

    // Lending and returning.

    /// Lends the best eligible resource. O(log n), O(1) if it was in use lately.
    #[inline]
    pub fn lend_best(&mut self) -> Option<Lent<R>> {
        let entry = self.inner.ready.peek_min()?;
        self.take(self.node_in(entry.slot()), true).ok()
    }

    /// Lends `node` if it is eligible; otherwise tells where it stands. O(log n).
    pub fn lend(&mut self, node: &Node<R>) -> Result<Lent<R>, State> {
        self.take(node, false)
    }

    /// Lends the node in a slot, if there is one and it is eligible.
    pub fn lend_slot(&mut self, slot: u32) -> Option<Lent<R>> {
        if slot >= self.inner.slots.used() {
            return None;
        }
        let node = self.inner.slots.node(slot)?;
        // SAFETY: rule 5 of `node`: a node in the slot table is not spent, and the lock is held.
        self.take(unsafe { node.as_ref() }, false).ok()
    }

    #[inline]
    fn take(&mut self, node: &Node<R>, is_best: bool) -> Result<Lent<R>, State> {
        // A refusal must not look like a change to those who look without the lock.
        let state = node.state.load();
        if !state.is_eligible() && !planted("lend_unchecked") {
            return Err(state);
        }
        self.write();
        let Owned { slot, limit, .. } = self.owned(node, |owned| *owned);
        // Whatever came out of the heap is validated by the word.
        let moved = node.state.lend(limit).map_err(|Refused(state)| state)?;
        let face = self.face();
        let rank = node.rank();
        if moved.to.is_full() {
            if is_best {
                let inner = &mut **self.inner;
                let _ = inner.ready.pop_min(&mut inner.slots);
            } else {
                self.unqueue(Standing::Eligible, slot);
            }
            face.shift(Standing::Eligible, Standing::AtCapacity);
            // All that was free of it, should the limit have been lowered below the leases that are out.
            face.change_available(limit.saturating_sub(moved.from.in_flight()), 0);
        } else {
            // It stays in the heap, but as the one used last among its equals; also among those that it will meet at the
            // rank of its new load.
            self.requeue(slot, rank, true);
            face.change_available(1, 0);
        }
        self.tally(Count::Lent, node, moved.to);
        Ok(Lent {
            node: NonNull::from(node),
            value: node.value_ptr(),
            state: moved.to,
            rank,
            exclusive: limit == 1,
        })
    }

    /// Changes the rank, or the place among equals, of an eligible node.
    #[inline]
    fn requeue(&mut self, slot: u32, rank: u64, used: bool) {
        let position = self.inner.slots.position(slot);
        let tie = if used { self.tie() } else { self.inner.ready.get(slot, position).tie() };
        let inner = &mut **self.inner;
        let _ = inner.ready.replace(position, Entry::new(rank, tie, slot), &mut inner.slots);
    }

    /// Gives back one unit of capacity that was lent with `value`. O(log n).
    ///
    /// With a deadline the resource starts to cool in the same transition: there is no moment at which it can be lent.
    /// The caller has then come through [`Shard::lock_with_cooling`].
    #[inline]
    pub fn give_back(
        &mut self,
        node: &Node<R>,
        value: NonNull<Value<R>>,
        deadline: Option<u64>,
        outcome: Option<Count>,
    ) -> (Garbage<R>, Moved) {
        self.write();
        let before = self.details(node);
        let cool = deadline.is_some() && !node.state.load().is_removed();
        let moved =
            node.state.give_back(before.limit, cool).expect("whoever gives back holds a unit of capacity");
        let mut garbage = Garbage::NONE;
        if value != node.value_ptr() {
            garbage.value = self.unclaim(node, value, |owned, claims| {
                owned.superseded -= 1;
                claims.leases -= 1;
            });
        }
        let face = self.face();
        let mut cooled = false;
        if moved.from.standing() == Standing::AtCapacity && moved.to.is_eligible() {
            // By far the most common return.
            self.queue(Standing::Eligible, node.rank(), before.slot);
            face.shift(Standing::AtCapacity, Standing::Eligible);
            face.change_available(0, before.limit - moved.to.in_flight());
        } else {
            if let Some(deadline) = deadline
                && cool
            {
                cooled = self.note_cooling(node, moved, deadline);
            }
            let owned = self.owned(node, |owned| *owned);
            self.follow(node, moved, before.limit, owned);
            garbage.node = self.release_if_spent(node, moved.to);
        }
        self.tally(Count::Returned, node, moved.to);
        if cooled {
            self.tally(Count::Cooled, node, moved.to);
        }
        if let Some(outcome) = outcome {
            self.face().tally(outcome);
        }
        (garbage, moved)
    }

    /// Takes something off the claims on a superseded value; hands it out if that was the last claim.
    fn unclaim(
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
            (claims.leases == 0 && claims.pins == 0).then_some(value)
        })
    }

    #[inline]
    fn release_if_spent(&mut self, node: &Node<R>, state: State) -> Option<NonNull<Node<R>>> {
        if !state.is_spent() {
            return None;
        }
        let owned = self.owned(node, |owned| *owned);
        if owned.pins > 0 {
            return None;
        }
        self.inner.slots.release(owned.slot);
        self.face().add_standing(Standing::Removed, u32::MAX);
        Some(NonNull::from(node))
    }

    /// Keeps the guard's value alive beyond its unit of capacity: its token is about to be given out.
    pub fn pin(&mut self, node: &Node<R>, value: NonNull<Value<R>>) {
        self.owned(node, |owned| {
            owned.pins += 1;
            // SAFETY: the home lock is held, and the caller's lease keeps the value alive (rule 6).
            unsafe { value.as_ref().with_claims(|claims| claims.pins += 1) };
        });
    }

    /// Undoes [`Locked::pin`].
    pub fn unpin(&mut self, node: &Node<R>, value: NonNull<Value<R>>) -> Garbage<R> {
        self.write();
        let unclaimed = self.unclaim(node, value, |owned, claims| {
            owned.pins -= 1;
            claims.pins -= 1;
        });
        // The current value stays with its node.
        let value = unclaimed.filter(|&value| value != node.value_ptr());
        Garbage { node: self.release_if_spent(node, node.state.load()), value }
    }

    // Ranks and values.

    /// Gives `node` the rank that was computed for this value and load, unless either has changed since: then whoever changed
    /// it will do the same with a newer rank.
    ///
    /// The caller's claim or guard keeps the value, so no other one can have its address.
    pub fn rerank(&mut self, node: &Node<R>, value: NonNull<Value<R>>, in_flight: u32, rank: u64) {
        let now = node.state.load();
        if now.is_removed()
            || now.in_flight() != in_flight
            || node.value_ptr() != value
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
        if expected.is_some_and(|expected| expected != node.value_ptr()) && !planted("update_blind") {
            return Err((value, Refused(node.state.load())));
        }
        self.write();
        self.face().touch_content();
        let moved = match node.state.revalue(limit) {
            Ok(moved) => moved,
            Err(refused) => return Err((value, refused)),
        };
        let old = node.swap_value(value);
        let before = self.owned(node, |owned| std::mem::replace(&mut owned.limit, limit));
        let claimed = self.owned(node, |owned| {
            let leases = moved.from.in_flight() - owned.superseded;
            owned.superseded += leases;
            // SAFETY: the home lock is held; the old value is freed only after this, by rule 6.
            let claims = unsafe {
                old.as_ref().with_claims(|claims| {
                    claims.leases = leases;
                    *claims
                })
            };
            claims.leases > 0 || claims.pins > 0
        });
        node.set_rank(rank);
        let owned = self.owned(node, |owned| *owned);
        if moved.from.is_eligible() && moved.to.is_eligible() {
            self.requeue(owned.slot, rank, false);
        }
        self.follow(node, moved, before, owned);
        self.tally(Count::Updated, node, moved.to);
        Ok(Revalued { moved, garbage: Garbage { node: None, value: (!claimed).then_some(old) } })
    }

    // Membership.

    /// Makes a staged node visible and eligible in one transition. The caller has room for a slot.
    ///
    /// Refused if somebody else did it before.
    pub fn admit(&mut self, node: &Node<R>) -> Result<Moved, Refused> {
        self.write();
        if !node.state.load().is_staged() {
            return Err(Refused(node.state.load()));
        }
        let owned = self.owned(node, |owned| *owned);
        let slot = if owned.slot == Owned::NO_SLOT { self.seat(node) } else { owned.slot };
        self.face().touch_content();
        let moved = node.state.admit()?;
        let owned = Owned { slot, ..owned };
        // A staged node is not counted before it is visible.
        self.face().add_standing(Standing::Staged, 1);
        self.follow(node, moved, owned.limit, owned);
        self.tally(Count::Inserted, node, moved.to);
        Ok(moved)
    }

    /// Gives `node` a slot. The caller has made room.
    pub fn seat(&mut self, node: &Node<R>) -> u32 {
        let slot = self.inner.slots.take(NonNull::from(node));
        self.face().set_slots(self.inner.slots.used());
        self.owned(node, |owned| owned.slot = slot);
        slot
    }

    /// Undoes the insertion of a staged node: marks it and takes its slot back.
    pub fn abort(&mut self, node: &Node<R>) {
        self.write();
        if node.state.abort().is_ok() {
            let slot = self.owned(node, |owned| owned.slot);
            self.inner.slots.release(slot);
        }
    }

    /// Takes `node` out of the fleet. Exactly one caller succeeds, and must then forget the key and call
    /// [`Locked::unlink`].
    pub fn remove(&mut self, node: &Node<R>, count: Count) -> Result<Moved, Refused> {
        self.write();
        let moved = node.state.remove()?;
        let owned = self.owned(node, |owned| *owned);
        self.follow(node, moved, owned.limit, owned);
        if moved.from.is_held(Hold::Cooling) {
            self.inner.cooled -= 1;
        }
        self.tally(count, node, moved.to);
        Ok(moved)
    }

    /// The lookup has forgotten the key.
    pub fn unlink(&mut self, node: &Node<R>) -> Garbage<R> {
        self.write();
        let Ok(moved) = node.state.unlink() else { return Garbage::NONE };
        Garbage { node: self.release_if_spent(node, moved.to), value: None }
    }

    // Holds.

    /// Adds a hold other than cooling. `from == to` if it was there already.
    pub fn hold(&mut self, node: &Node<R>, hold: Hold, count: Count) -> Result<Moved, Refused> {
        debug_assert_ne!(hold, Hold::Cooling, "cooling has a deadline");
        self.write();
        let moved = node.state.hold(hold)?;
        self.after_hold(node, moved, count);
        Ok(moved)
    }

    /// Lets `node` cool until `deadline`, or until its present deadline if that is later.
    ///
    /// The caller has come through [`Shard::lock_with_cooling`]. Answers whether anything changed.
    pub fn cool(&mut self, node: &Node<R>, deadline: u64) -> Result<bool, Refused> {
        self.write();
        let moved = node.state.hold(Hold::Cooling)?;
        let changed = self.note_cooling(node, moved, deadline);
        if changed {
            let owned = self.owned(node, |owned| *owned);
            self.follow(node, moved, owned.limit, owned);
            self.tally(Count::Cooled, node, moved.to);
        }
        Ok(changed)
    }

    /// Keeps the later of two deadlines, and count of who cools.
    fn note_cooling(&mut self, node: &Node<R>, moved: Moved, deadline: u64) -> bool {
        let was_cooling = moved.from.is_held(Hold::Cooling);
        if !was_cooling {
            self.inner.cooled += 1;
        }
        let old = node.deadline();
        let later = if was_cooling { deadline.max(old) } else { deadline };
        node.set_deadline(later);
        !was_cooling || later != old
    }

    /// Clears a hold. `from == to` if it was not there.
    pub fn clear(&mut self, node: &Node<R>, hold: Hold, count: Count) -> Result<Moved, Refused> {
        self.write();
        let moved = node.state.clear(hold)?;
        if hold == Hold::Cooling && moved.from.is_held(Hold::Cooling) {
            self.inner.cooled -= 1;
        }
        self.after_hold(node, moved, count);
        Ok(moved)
    }

    fn after_hold(&mut self, node: &Node<R>, moved: Moved, count: Count) {
        if moved.from != moved.to {
            let owned = self.owned(node, |owned| *owned);
            self.follow(node, moved, owned.limit, owned);
            self.tally(count, node, moved.to);
        }
    }

    /// Warms up to `budget` resources whose deadline has come. Answers how many; less than `budget` means that no
    /// further one is due.
    pub fn thaw(&mut self, now: u64, budget: usize) -> usize {
        let mut thawed = 0;
        while thawed < budget
            && let Some(entry) = self.inner.cooling.peek_min()
            && entry.rank() <= now
        {
            let node = self.node_in(entry.slot());
            let cleared = self.clear(node, Hold::Cooling, Count::Warmed);
            debug_assert!(cleared.is_ok(), "a cooling node is a member");
            thawed += 1;
        }
        thawed
    }

    // Looking.

    /// The limit and what else the words do not tell.
    pub fn details(&mut self, node: &Node<R>) -> Owned {
        self.owned(node, |owned| *owned)
    }

    /// Up to eight of the best nodes, best first, with their ranks.
    pub fn best_nodes(&self) -> impl Iterator<Item = &'s Node<R>> + use<'_, 's, R> {
        let best = self.inner.ready.best();
        (0..best.len()).map(move |i| self.node_in(best[i].slot()))
    }

    /// The worst eligible node.
    pub fn worst(&self) -> Option<&'s Node<R>> {
        self.inner.ready.peek_max().map(|entry| self.node_in(entry.slot()))
    }
}

impl<R: Resource> Drop for Locked<'_, R> {
    /// F3 and F4 of the face's protocol; then the lock is freed; then events are completed, which runs user code.
    #[inline]
    fn drop(&mut self) {
        if self.writing {
            let inner = &**self.inner;
            let node = |slot| inner.slots.node(slot).map_or(std::ptr::null_mut(), NonNull::as_ptr);
            let (rank, best) = match inner.ready.peek_min() {
                Some(entry) => (entry.rank(), node(entry.slot())),
                None => (u64::MAX, std::ptr::null_mut()),
            };
            let (earliest, first_due) = match inner.cooling.peek_min() {
                Some(entry) => (entry.rank(), node(entry.slot())),
                None => (NEVER, std::ptr::null_mut()),
            };
            let staged = if self.run_moved { Some(self.staged()) } else { None };
            self.shard.face.end_write(rank, best, earliest, first_due, staged);
        }
        // SAFETY: dropped once, here, and not used again.
        #[allow(unsafe_code)]
        unsafe {
            ManuallyDrop::drop(&mut self.inner)
        };
        if !self.events.is_empty()
            && let (Some(ring), Some(pin)) = (&self.shard.events, &self.pin)
        {
            // SAFETY: the lock is free, the range is of this critical section, and there are events only with a pin.
            #[allow(unsafe_code)]
            unsafe {
                ring.publish(self.events, pin)
            };
        }
    }
}
