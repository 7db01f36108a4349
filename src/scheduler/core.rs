//! The scheduler without its hasher: what leases and tokens need to come back to.

use std::ops::{Deref, DerefMut};

#[cfg(feature = "telemetry")]
use super::telemetry::Meters;
use super::{
    affinity::{Affinity, Rings},
    builder::Overflow,
    deadlines::Limits,
    drain::Drains,
    error::AcquireError,
    health::Health,
    token::{Left, Ticket, Tokens},
    turn::Turn,
    wait::Waiters,
};
#[cfg(not(any(loom, shuttle)))]
use crate::events::{Dispatchers, ObserveError, Observer};
use crate::{
    events::{EventKind, Hub, is_plain},
    lookup::{Guard, Map, Published},
    node::{self, Node, State},
    resource::Resource,
    shard::{Count, Garbage, Locked, NEVER, Pin, Roster, Shard},
    strategy::{Cell, Selector, ShardView},
    sync::{
        Arc, CachePadded, Clock, Proven, SplitMix64, Timestamp,
        atomic::{AtomicBool, AtomicU64, Ordering},
        thread_hint,
    },
};

/// Everything but the hasher. Dereferences to its parts.
pub struct Core<R: Resource>(Proven<Parts<R>>);

/// What a core is made of.
pub struct Parts<R: Resource> {
    pub shards: Box<[Shard<R>]>,
    pub map: Map<Node<R>>,
    pub tokens: Tokens<R>,
    pub roster: Roster,
    /// Serialises batches; held across user code.
    pub batch: Turn,
    pub selector: Selector,
    pub cells: Box<[CachePadded<Cell>]>,
    pub seed: u64,
    /// Cells in use.
    pub seeded: AtomicU64,
    pub ring: Published<Rings>,
    pub affinity: Affinity,
    pub clock: Box<dyn Clock>,
    pub max_resources: Option<(u32, Overflow)>,
    pub virtual_nodes: u32,
    /// The events, if anybody wants them.
    pub hub: Option<Arc<Hub<R>>>,
    #[cfg(not(any(loom, shuttle)))]
    pub dispatchers: Dispatchers,
    /// Leases are recorded, or some resource has had more than one unit: then [`lend_usual`](Self::lend_usual) is not tried.
    pub unusual: AtomicBool,
    /// Outcomes are remembered, and have consequences.
    pub health: Option<Health<R>>,
    #[cfg(feature = "telemetry")]
    pub meters: Option<Meters>,
    #[cfg(feature = "telemetry")]
    pub delays: crate::delay::Delays,
    pub closed: AtomicBool,
    /// No cooling resource becomes eligible before this moment. A hint: the shards' faces decide.
    pub earliest: CachePadded<AtomicU64>,
    /// How long leases may be held, if that is limited.
    pub limits: Option<Limits<R::Key>>,
    pub drains: Drains,
    pub waiters: Waiters<R>,
}

impl<R: Resource> Deref for Core<R> {
    type Target = Parts<R>;

    #[inline]
    fn deref(&self) -> &Parts<R> {
        &self.0
    }
}

impl<R: Resource> DerefMut for Core<R> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Parts<R> {
        &mut self.0
    }
}

impl<R: Resource> Core<R> {
    pub fn new(parts: Parts<R>) -> Self {
        Core(Proven::new(parts))
    }

    #[inline]
    pub fn pin(&self) -> Pin<'_> {
        self.map.pin()
    }

    /// A pin for a critical section that may make events; none if nobody wants events, or they need none.
    #[inline]
    pub fn pin_for_events(&self) -> Option<Pin<'_>> {
        if !is_plain::<R::Key>() && self.hub.is_some() { Some(self.pin()) } else { None }
    }

    /// To be told of each limit before a resource has it.
    #[inline]
    pub fn expect_limit(&self, limit: u32) {
        // Relaxed: a hint, for `lend_usual`. Looked at first, because its line is everybody's.
        if limit != 1 && !self.unusual.load(Ordering::Relaxed) {
            self.unusual.store(true, Ordering::Relaxed);
        }
    }

    /// Takes a shard's lock for something that may make events.
    #[inline]
    pub fn lock<'a>(&'a self, shard: &'a Shard<R>) -> Locked<'a, R> {
        shard.lock_pinned(self.pin_for_events())
    }

    /// Starts an observer's thread.
    #[cfg(not(any(loom, shuttle)))]
    pub fn observe(
        &self,
        from: Option<u64>,
        observer: Box<dyn Observer<R::Key>>,
    ) -> Result<(), ObserveError> {
        let hub = self.hub.as_ref().ok_or(ObserveError::NoEvents)?;
        self.dispatchers.start(hub, from, observer)
    }

    /// Makes an event that belongs to no shard. The caller keeps the node, if there is one.
    #[inline]
    pub fn tell(&self, kind: EventKind, node: Option<&Node<R>>) {
        if let Some(hub) = &self.hub {
            hub.tell(kind, node, &self.pin());
        }
    }

    #[inline]
    pub fn home(&self, node: &Node<R>) -> &Shard<R> {
        &self.shards[node.home() as usize]
    }

    /// The shard on which a sticky strategy stays, or the only one, if it has nothing but its ready heap to show: the usual case of
    /// [`choose`](Self::choose), in line, with one look at the shard. It may be one that is empty, if the rank of its best has no bound.
    #[inline(always)]
    pub fn stay(&self, cell: &Cell) -> Option<(usize, &Shard<R>)> {
        let stay = self.selector.current(cell)?;
        let shard = self.shards.get(stay.shard)?;
        let face = shard.face();
        if face.staged() != 0 || face.best_rank_or_last() > stay.bound {
            return None;
        }
        self.selector.stayed(cell, stay);
        Some((stay.shard, shard))
    }

    /// The shard that the strategy would try first. `cell` is its memory for the running thread, used before or not.
    #[inline(never)]
    pub fn choose(&self, cell: &Cell) -> usize {
        self.selector.select(self, self.seeded(cell))
    }

    /// The strategy's memory for the running thread; blank if nobody has used it yet.
    #[inline(always)]
    pub fn stripe(&self) -> &Cell {
        // Multiplicative hashing: thread-local addresses differ in a few middle bits only.
        let hash = (thread_hint() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // The number of cells is a power of two.
        &self.cells[(hash >> 40) as usize & (self.cells.len() - 1)]
    }

    /// The strategy's memory for the running thread.
    #[inline]
    pub fn cell(&self) -> &Cell {
        self.seeded(self.stripe())
    }

    #[inline]
    fn seeded<'c>(&self, cell: &'c Cell) -> &'c Cell {
        if cell.is_blank() {
            self.seed_cell(cell);
        }
        cell
    }

    /// Seeds follow the order in which cells are first used, not their places, which depend on addresses: so a program of
    /// one thread repeats.
    #[cold]
    fn seed_cell(&self, cell: &Cell) {
        // Relaxed: the numbers only have to differ.
        let number = self.seeded.fetch_add(1, Ordering::Relaxed);
        cell.seed(SplitMix64::mix(self.seed ^ number));
    }

    #[inline]
    pub fn is_closed(&self) -> bool {
        // Acquire: pairs with the Release in `close`: who sees it closed sees all that happened before.
        self.closed.load(Ordering::Acquire)
    }

    pub fn now(&self) -> u64 {
        self.clock.now().as_nanos()
    }

    /// The moment that is `duration` from now.
    pub fn after(&self, duration: std::time::Duration) -> u64 {
        // One less than "never": it is a moment, if a late one.
        Timestamp::from_nanos(self.now()).saturating_add(duration).as_nanos().min(NEVER - 1)
    }

    /// When a rest that begins now is over. No rest is none, not one that is over at once: waiters would wait until somebody looks.
    pub fn rest(&self, duration: std::time::Duration) -> Option<u64> {
        (!duration.is_zero()).then(|| self.after(duration))
    }

    /// Retires what nobody reaches any more. Must not run under a shard's lock: the end of its section may run other
    /// garbage's `Drop`.
    #[inline]
    pub fn retire(&self, garbage: Garbage<R>) {
        if !garbage.is_empty() {
            self.retire_all(garbage);
        }
    }

    #[cold]
    fn retire_all(&self, garbage: Garbage<R>) {
        self.retire_in(garbage, &self.pin());
    }

    /// As [`retire`](Self::retire), in a section that goes on.
    #[inline]
    #[allow(unsafe_code)]
    pub fn retire_in(&self, garbage: Garbage<R>, guard: &Pin<'_>) {
        if let Some(value) = garbage.value {
            let free = if garbage.first { Node::drop_first } else { node::free };
            // SAFETY: rule 6 of `node`: superseded, and the last claim is gone. It is given up here.
            unsafe { guard.retire(value.as_ptr(), free) };
        }
        if let Some(node) = garbage.node {
            // SAFETY: rule 5 of `node`: spent, without pins, out of lookup, slot table and face. The box is given up here.
            unsafe { guard.retire(node.as_ptr(), Node::free) };
        }
    }

    // Cooling.

    /// Lowers the hint after a resource began to cool.
    pub fn note_earliest(&self, shard: &Shard<R>) {
        let earliest = shard.face().earliest();
        if earliest != NEVER {
            self.note(earliest);
        }
    }

    /// Warms up what is due. Costs one load while nothing cools.
    #[inline]
    pub fn thaw_due(&self) {
        // Relaxed: a hint; who must be sure asks the faces.
        let earliest = self.earliest.load(Ordering::Relaxed);
        if earliest != NEVER {
            let now = self.now();
            if now >= earliest {
                self.thaw(now, false);
            }
        }
    }

    /// Warms up some of what is due at `now` in every shard that is not busy; in all of them if `wait`. The next call does
    /// the next few. What is warm goes to those who wait.
    #[cold]
    pub fn thaw(&self, now: u64, wait: bool) {
        let guard = self.pin();
        // Acquire: pairs with the Release in `note`; outcomes there. No Release: what a thaw does to a face only makes
        // its earliest deadline later, so whoever misses that has a hint that is too early.
        self.earliest.swap(NEVER, Ordering::Acquire);
        let mut earliest = NEVER;
        for shard in &self.shards {
            self.thaw_few(shard, now, wait, &guard);
            earliest = earliest.min(shard.face().earliest());
        }
        if let Some(health) = &self.health {
            self.settle_due(health, now, &guard);
            earliest = earliest.min(health.earliest());
        }
        // As in `note_earliest`; a deadline that was noted after the swap stands if it is earlier.
        self.note(earliest);
    }

    /// Warms up a few of what is due in one shard: neither its lock nor the caller is held up by how many are due.
    fn thaw_few(&self, shard: &Shard<R>, now: u64, wait: bool, guard: &Pin<'_>) {
        let mut left = THAW_AT_ONCE;
        while left > 0 && shard.face().earliest() <= now {
            let locked = if wait { Some(self.lock(shard)) } else { shard.try_lock(self.pin_for_events()) };
            let Some(mut locked) = locked else { return };
            // One by one while somebody waits: each is taken for them where it is warmed up.
            let at_once = if self.waiters.hands_on() { 1 } else { left };
            left -= at_once;
            let mut thawed = [None; THAW_AT_ONCE];
            let _ = locked.thaw(now, &mut thawed[..at_once]);
            let mut taken = thawed[0].and_then(|node| self.take_for_waiters(&mut locked, node));
            drop(locked);
            for node in thawed.into_iter().flatten() {
                self.hand_on(taken.take(), node, guard);
            }
        }
    }

    /// The word of a node that a lookup found, if it is visible: not removed, and not part of a batch to come.
    #[inline]
    pub fn visible(&self, node: &Node<R>) -> Option<State> {
        let state = node.state.load();
        if state.is_in() { Some(state) } else { self.visible_staged(node, state) }
    }

    /// The same of one that is staged or removed.
    #[cold]
    fn visible_staged(&self, node: &Node<R>, mut state: State) -> Option<State> {
        if state.is_staged() {
            if !self.roster.is_committed(node.batch()) {
                return None;
            }
            // The number may be that of an earlier batch, which was undone: then its abort happened before the commit that
            // we have just seen, and this load sees it.
            state = node.state.load();
        }
        (!state.is_removed()).then_some(state)
    }

    /// The visible node with this key.
    #[inline]
    pub fn find<'g, Q>(&self, hash: u64, key: &Q, guard: &'g Pin<'_>) -> Option<&'g Node<R>>
    where
        R::Key: std::borrow::Borrow<Q>,
        Q: Eq + ?Sized,
    {
        self.map.get(hash, key, guard).filter(|node| self.visible(node).is_some())
    }

    /// Makes sure that a visible node is in its shard's heaps: absorbs the batch it came with.
    #[inline]
    pub fn settle(&self, node: &Node<R>) {
        if node.state.load().is_staged() {
            self.absorb(self.home(node));
        }
    }

    /// Absorbs all of a committed run.
    #[cold]
    pub fn absorb(&self, shard: &Shard<R>) {
        drop(self.lock_settled(shard));
    }

    /// Takes a shard's lock with nothing of a committed run left to absorb: for those to whom the worst matters, which a run
    /// gives last. The lock is freed between pieces.
    pub fn lock_settled<'a>(&'a self, shard: &'a Shard<R>) -> Locked<'a, R> {
        loop {
            let mut locked = self.lock(shard);
            if locked.absorb(&self.roster, ABSORB_AT_ONCE) {
                return locked;
            }
        }
    }

    /// Panics unless the whole structure is consistent. Nothing else may be going on.
    #[cfg(any(test, loom, shuttle, feature = "internals"))]
    pub fn check_invariants(&self) -> crate::shard::Tally {
        let mut sum = crate::shard::Tally::default();
        for shard in &self.shards {
            let tally = shard.check_invariants();
            sum.members += tally.members;
            sum.in_flight += tally.in_flight;
            sum.leaving += tally.leaving;
        }
        assert_eq!(sum.members, u64::from(self.roster.members()), "the roster counts the members");
        assert_eq!(self.drains.waiting(), 0, "nobody waits for a drain");
        let guard = self.pin();
        let by_key = self.map.iter(&guard).filter(|node| self.visible(node).is_some()).count();
        assert_eq!(by_key as u64, sum.members, "every member is found by key");
        let total = |count| self.shards.iter().map(|shard| shard.face().count(count)).sum::<u64>();
        assert_eq!(total(Count::Lent) - total(Count::Returned), sum.in_flight, "lent, less returned, is out");
        let gone = total(Count::Removed) + total(Count::Evicted);
        assert_eq!(total(Count::Inserted) - gone, sum.members, "inserted, less removed, is in");
        let earliest = self.shards.iter().map(|shard| shard.face().earliest()).min();
        // Relaxed: nothing else is going on.
        let noted = self.earliest.load(Ordering::Relaxed);
        assert!(earliest.is_none_or(|earliest| noted <= earliest), "no deadline is earlier than the hint");
        if let Some(health) = &self.health {
            assert!(noted <= health.earliest(), "nothing is due earlier than the hint");
        }
        sum
    }
}

/// Resources warmed up in one critical section.
pub const THAW_AT_ONCE: usize = if cfg!(any(loom, shuttle)) { 2 } else { 16 };
/// Members of a batch admitted in one critical section.
/// Not less than what a filter is offered at a time: then none of those left behind is better than the ones offered. (In a
/// model it is less, and no model asks for the best there.)
pub const ABSORB_AT_ONCE: usize = if cfg!(any(loom, shuttle)) { 1 } else { 16 };

impl<R: Resource> Core<R> {
    /// The better rank of a shard's ready heap and of the batch that waits there, if it counts.
    #[cold]
    fn best_rank_of_both(&self, shard: usize) -> Option<u64> {
        let face = self.shards[shard].face();
        let ready = face.best_rank();
        if face.staged() == 0 || !self.roster.is_committed(face.staged()) {
            return ready;
        }
        Some(ready.unwrap_or(u64::MAX).min(face.staged_rank()))
    }
}

impl<R: Resource> ShardView for Core<R> {
    #[inline]
    fn shards(&self) -> usize {
        self.shards.len()
    }

    #[inline]
    fn best_rank(&self, shard: usize) -> Option<u64> {
        let face = self.shards[shard].face();
        if face.staged() == 0 { face.best_rank() } else { self.best_rank_of_both(shard) }
    }

    #[inline]
    fn eligible(&self, shard: usize) -> u32 {
        self.shards[shard].face().standing(node::Standing::Eligible)
    }

    #[inline]
    fn available(&self, shard: usize) -> u64 {
        self.shards[shard].face().available()
    }
}

impl<R: Resource> Drop for Core<R> {
    /// Frees what is left. No lease is alive; some may have been forgotten, and tokens may be out.
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        for Left { ticket: Ticket { node, value, .. }, unit, pin } in self.tokens.drain() {
            if !unit && !pin {
                // It claims nothing.
                continue;
            }
            // SAFETY: the unit of capacity, or the pin of a forgotten guard, kept both (rules 5 and 6 of `node`); nobody else
            // is here. Leases are counted on superseded values only.
            let superseded = unsafe {
                let superseded = value != node.as_ref().value_ptr();
                value.as_ref().with_claims(|claims| {
                    claims.leases -= u32::from(unit && superseded);
                    if pin {
                        claims.pins.less();
                    }
                    superseded && claims.leases == 0 && claims.pins.is_none()
                })
            };
            if superseded {
                // SAFETY: rule 6: that was the last claim. The node is still there.
                unsafe {
                    let free = if node.as_ref().is_first(value) { Node::drop_first } else { node::free };
                    free(value.as_ptr());
                }
            }
        }
        for shard in &mut self.shards {
            for node in shard.drain_nodes() {
                // SAFETY: a node in a slot table is not spent, so it has not been retired; `&mut self` is the last owner.
                unsafe { Node::free(node.as_ptr()) };
            }
        }
    }
}

/// A shortcut for operations that must not run on a closed scheduler.
pub fn open<R: Resource>(core: &Core<R>) -> Result<(), AcquireError> {
    if core.is_closed() { Err(AcquireError::Closed) } else { Ok(()) }
}
