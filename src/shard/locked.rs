//! Each transition together with its consequence for the heaps and the face.

use std::{mem::ManuallyDrop, ptr::NonNull};

use super::{
    Inner, NEVER, Pin, Room, Shard, Shortage, Ties,
    face::{Count, Face},
    holds::Holds,
};
use crate::{
    events::{self, EventKind},
    heap::Entry,
    node::{Moved, Node, Owned, Standing, State},
    resource::Resource,
    sync::{SpinGuard, atomic::Ordering},
};

/// A shard whose lock is held. Publishes the face when dropped, then unlocks.
pub struct Locked<'s, R: Resource> {
    shard: &'s Shard<R>,
    pub(super) inner: ManuallyDrop<SpinGuard<'s, Inner<R>>>,
    writing: bool,
    /// The cooling heap or the run of a batch has changed.
    pub(super) more_moved: bool,
    /// Events of this critical section, to be completed after it.
    events: events::Range,
    /// Keeps the nodes of those events alive until then; without it they are dropped, unless keys [are plain](events::is_plain).
    pin: Option<Pin<'s>>,
}

#[allow(unsafe_code)]
impl<'s, R: Resource> Locked<'s, R> {
    #[inline]
    pub(super) fn new(shard: &'s Shard<R>, inner: SpinGuard<'s, Inner<R>>, pin: Option<Pin<'s>>) -> Self {
        Locked {
            shard,
            inner: ManuallyDrop::new(inner),
            writing: false,
            more_moved: false,
            events: events::Range::default(),
            pin,
        }
    }

    /// Counts what happened to `node`, and makes an event of it if anybody wants events.
    #[inline]
    pub(super) fn tally(&mut self, count: Count, node: &Node<R>, state: State) {
        self.face().tally(count);
        // One branch if nobody does: `count` is known where this is compiled.
        if self.shard.events.is_some()
            && let Some(kind) = count.event()
        {
            self.emit(kind, node, state);
        }
    }

    /// Makes an event, if anybody wants events.
    // Not in line, and cold: out of the way of those who do without.
    #[cold]
    #[inline(never)]
    pub fn emit(&mut self, kind: EventKind, node: &Node<R>, state: State) {
        let Some(ring) = &self.shard.events else { return };
        if events::is_plain::<R::Key>() || self.pin.is_some() {
            // SAFETY: the lock is held.
            unsafe { ring.reserve(&mut self.events, kind, Some(node), state.generation()) };
        } else {
            // The key could not be read later: the event is numbered, and dropped.
            // SAFETY: the lock is held.
            unsafe { ring.lose() };
        }
    }

    /// Frees the lock, and gives the pin back for another turn.
    pub(super) fn unlock(mut self) -> Option<Pin<'s>> {
        debug_assert!(self.events.is_empty(), "the pin is still needed");
        self.pin.take()
    }

    pub(super) fn face(&self) -> &'s Face<R> {
        &self.shard.face
    }

    #[cfg(feature = "telemetry")]
    #[inline(always)]
    pub(super) fn watch(&self) -> &'s crate::delay::Watch {
        &self.shard.watch
    }

    pub(super) fn holds(&self) -> &'s Holds {
        &self.shard.holds
    }

    /// Says that something changes that only the record of a resource shows: to be called before. Whoever compares the face's sequences
    /// sees it.
    pub fn change(&mut self) {
        self.write();
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
        // Not `assert_eq`, which would have both in memory for its message.
        assert!(node.home() == self.shard.index, "a node is touched only under its home lock");
        // SAFETY: `self` holds the home lock, mutably borrowed, so `f` is the only access; `f` is a closure of this crate
        // that touches nothing but its argument.
        unsafe { node.with_owned(f) }
    }

    /// The node in a slot.
    ///
    /// The reference outlives the borrow of `self`: the node is freed only after its slot was released under this lock
    /// and the lock was freed.
    #[inline]
    pub(super) fn node_in(&self, slot: u32) -> &'s Node<R> {
        let node = self.inner.slots.node(slot).expect("a queued slot is in use");
        // SAFETY: rule 5 of `node`: a node in the slot table is not spent.
        unsafe { &*node.as_ptr() }
    }

    /// The best eligible node.
    #[inline(always)]
    pub(super) fn best(&self) -> Option<&'s Node<R>> {
        if self.writing {
            return Some(self.node_in(self.inner.ready.peek_min()?.slot()));
        }
        // As long as nothing has been changed under this lock the face says it, and the slot table need not be asked.
        // Relaxed: written by whoever had the lock before.
        let best = self.face().best().load(Ordering::Relaxed);
        debug_assert_eq!(
            NonNull::new(best),
            self.inner.ready.peek_min().and_then(|entry| self.inner.slots.node(entry.slot()))
        );
        // SAFETY: as in `node_in`: it is in the slot table.
        unsafe { best.cast_const().as_ref() }
    }

    /// Resources that live here, those included that were removed and are still lent.
    pub fn live(&self) -> u32 {
        self.inner.slots.live()
    }

    // Room.

    pub(super) fn shortage_for_more(&self, nodes: usize) -> Option<Shortage> {
        self.shortage_for(self.inner.slots.live() as usize + nodes)
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
    pub(super) fn tie(&mut self) -> u64 {
        self.inner.ticket += 1;
        match self.inner.ties {
            Ties::LeastRecent => self.inner.ticket,
            Ties::MostRecent => u64::MAX - self.inner.ticket,
        }
    }

    #[inline]
    pub(super) fn queue(&mut self, standing: Standing, rank: u64, slot: u32) {
        let tie = self.tie();
        let inner = &mut **self.inner;
        let entry = Entry::new(rank, tie, slot);
        let pushed = match standing {
            Standing::Eligible => inner.ready.push(entry, &mut inner.slots),
            _ => {
                self.more_moved = true;
                inner.cooling.push(entry, &mut inner.slots)
            }
        };
        debug_assert!(pushed.is_ok(), "room was made before the lock was taken");
    }

    /// As [`queue`](Self::queue), for a resource that was just used and is eligible again.
    #[inline(always)]
    pub(super) fn queue_used(&mut self, rank: u64, slot: u32) {
        let entry = Entry::new(rank, self.tie(), slot);
        let inner = &mut **self.inner;
        let pushed = inner.ready.push_used(entry, &mut inner.slots);
        debug_assert!(pushed.is_ok(), "room was made before the lock was taken");
    }

    #[inline]
    pub(super) fn unqueue(&mut self, standing: Standing, slot: u32) {
        let inner = &mut **self.inner;
        let position = inner.slots.position(slot);
        let entry = match standing {
            Standing::Eligible => inner.ready.remove(slot, position, &mut inner.slots),
            _ => {
                self.more_moved = true;
                inner.cooling.remove(position, &mut inner.slots)
            }
        };
        debug_assert_eq!(entry.slot(), slot);
    }

    /// Brings heaps and face in line with a transition of `node`. `before` is the limit that held until then.
    #[inline]
    pub(super) fn follow(&mut self, node: &Node<R>, moved: Moved, before: u32, owned: Owned) {
        let (from, to) = (moved.from.standing(), moved.to.standing());
        // A cooling node is queued anew even if it stays cooling: its deadline may have moved.
        if from != to || to == Standing::Cooling {
            if matches!(from, Standing::Eligible | Standing::Cooling) {
                self.unqueue(from, owned.slot);
            }
            match to {
                Standing::Eligible => self.queue(to, node.rank(), owned.slot),
                Standing::Cooling => self.queue(to, node.deadline(), owned.slot),
                _ => {}
            }
        }
        let face = self.face();
        if from != to {
            face.shift(from, to);
        }
        // What is eligible has a free unit: none comes without this one.
        let spare =
            |state: State, limit: u32| if state.is_eligible() { limit - state.in_flight() - 1 } else { 0 };
        face.change_spare(spare(moved.from, before), spare(moved.to, owned.limit));
    }
}

impl<R: Resource> Locked<'_, R> {
    /// The same as dropping it, in line: for the two steps of the usual lease.
    #[inline(always)]
    pub fn finish(self) {
        self.finish_knowing(None);
    }

    /// As [`finish`](Self::finish), after something was done to `node`, which has the slot, and may now be the best: then the slot table need
    /// not be asked for it.
    #[inline(always)]
    pub fn finish_after(self, node: &Node<R>, slot: u32) {
        self.finish_knowing(Some((slot, node)));
    }

    #[inline(always)]
    fn finish_knowing(self, known: Option<(u32, &Node<R>)>) {
        let mut locked = ManuallyDrop::new(self);
        locked.publish_and_unlock(known);
        // Nothing else of it needs to be dropped.
        drop(locked.pin.take());
    }

    /// F3 and F4 of the face's protocol; then the lock is freed; then events are completed, which runs user code.
    ///
    /// To be called once, last.
    #[inline(always)]
    fn publish_and_unlock(&mut self, known: Option<(u32, &Node<R>)>) {
        if self.writing {
            if self.more_moved {
                self.publish_all();
            } else {
                let (rank, best) = self.best_known(known);
                self.shard.face.end_write(rank, best, None);
            }
        }
        // SAFETY: dropped once, here, and not used again.
        #[allow(unsafe_code)]
        unsafe {
            ManuallyDrop::drop(&mut self.inner)
        };
        if !events::is_plain::<R::Key>() && !self.events.is_empty() {
            self.complete_events();
        }
    }

    /// The best of the ready heap, for the face; `known` is a slot whose node is known.
    #[inline(always)]
    fn best_known(&self, known: Option<(u32, &Node<R>)>) -> (u64, *mut Node<R>) {
        match (self.inner.ready.peek_min(), known) {
            (Some(entry), Some((slot, node))) if slot == entry.slot() => {
                (entry.rank(), std::ptr::from_ref(node).cast_mut())
            }
            (Some(entry), _) => (entry.rank(), self.published(entry.slot())),
            _ => (u64::MAX, std::ptr::null_mut()),
        }
    }

    /// The node in a slot, for the face.
    #[inline(always)]
    fn published(&self, slot: u32) -> *mut Node<R> {
        self.inner.slots.node(slot).map_or(std::ptr::null_mut(), NonNull::as_ptr)
    }

    /// F3 and F4 where more than the ready heap has changed.
    #[cold]
    #[inline(never)]
    fn publish_all(&self) {
        let (rank, best) = self.best_known(None);
        let cooling = match self.inner.cooling.peek_min() {
            Some(entry) => (entry.rank(), self.published(entry.slot())),
            None => (NEVER, std::ptr::null_mut()),
        };
        self.shard.face.end_write(rank, best, Some((cooling, self.staged())));
    }

    #[cold]
    fn complete_events(&mut self) {
        if let (Some(ring), Some(pin)) = (&self.shard.events, &self.pin) {
            // SAFETY: the lock is free, the range is of this critical section, and there are events only with a pin.
            #[allow(unsafe_code)]
            unsafe {
                ring.publish(self.events, pin)
            };
        }
    }
}

impl<R: Resource> Drop for Locked<'_, R> {
    #[inline]
    fn drop(&mut self) {
        self.publish_and_unlock(None);
    }
}
