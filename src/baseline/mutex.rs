//! One mutex, one `BinaryHeap`, one `HashMap`.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap, HashSet, binary_heap::PeekMut},
    fmt,
    ops::Deref,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    time::Duration,
};

use super::{Lend, Lent, Unavailable, lock};
use crate::{
    DefaultHashBuilder,
    outcome::Outcome,
    rank::Priority,
    resource::Resource,
    sync::{
        Arc, Clock, MonotonicClock, Mutex, MutexGuard, Timestamp,
        atomic::{AtomicU64, Ordering},
    },
};

/// Hands out the best resource of a fleet under one mutex: the honest opponent of the scheduler.
///
/// Same meaning of capacity, holds, ranks and removal. Ties go to the resource that has queued longest: it enters the
/// queue at its end when it is lent with capacity left, and when it becomes eligible.
///
/// # Progress and complexity
/// Blocking: every operation takes the one lock. `acquire` and the return are O(log n) amortised; entries that a
/// change has overtaken stay in the heap until they surface or outnumber the others, then it is rebuilt in O(n).
///
/// # Callbacks and panics
/// `Hash` and `Eq` of keys run under the lock, as does `Resource::priority` where it depends on a count that only the
/// lock makes known: while other leases on the same resource are out. Closures and drops of resources run outside.
pub struct MutexScheduler<R: Resource> {
    state: Mutex<State<R>>,
    /// The earliest deadline in the cooling queue, so that the clock is read only while something cools, and outside
    /// the lock. Relaxed: who misses a new deadline has merely looked before it was set; that it lies in the future
    /// keeps the resource from being missed.
    earliest: AtomicU64,
    clock: Box<dyn Clock>,
}

const NEVER: u64 = u64::MAX;

struct State<R: Resource> {
    slots: Vec<Slot<R>>,
    free: Vec<u32>,
    index: HashMap<R::Key, u32, DefaultHashBuilder>,
    /// One current entry for each eligible resource, and overtaken ones.
    ready: BinaryHeap<Reverse<Ready>>,
    overtaken: usize,
    /// One entry for each cooling resource, at its deadline or, after a prolongation, before it, and those of removed
    /// ones.
    cooling: BinaryHeap<Reverse<Cooling>>,
    removed_cooling: usize,
    /// Counts queueings; the tie-break.
    tick: u64,
    /// Kept for its memory: slots, and entries that were passed over.
    excluded: Vec<u32>,
    passed: Vec<Reverse<Ready>>,
}

/// 24 bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Ready {
    rank: u64,
    tick: u64,
    slot: u32,
    version: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Cooling {
    deadline: u64,
    slot: u32,
    generation: u32,
}

struct Slot<R> {
    /// `None` while the slot is free.
    value: Option<Arc<R>>,
    /// The rank with no lease out.
    idle_rank: u64,
    /// The rank of the entry in the heap, if `queued`.
    rank: u64,
    /// When the cooling ends; `None` if there is none.
    cooling: Option<u64>,
    in_flight: u32,
    limit: u32,
    /// Told apart by it: leases on this resource from those on former ones of the slot.
    generation: u32,
    /// Told apart by it: the current entry in the heap from overtaken ones.
    version: u32,
    queued: bool,
    excluded: bool,
}

/// What is computed before the lock is taken.
struct Prepared<R: Resource> {
    key: R::Key,
    value: Arc<R>,
    idle_rank: u64,
    limit: u32,
}

impl<R: Resource> Prepared<R> {
    fn new(resource: R) -> Result<Self, R> {
        let Some(limit) = resource.capacity().limit() else { return Err(resource) };
        let key = resource.key();
        let idle_rank = resource.priority(0).rank();
        Ok(Prepared { key, value: Arc::new(resource), idle_rank, limit })
    }

    fn into_inner(self) -> R {
        Arc::try_unwrap(self.value).ok().expect("not shared with anybody yet")
    }
}

impl<R: Resource> Slot<R> {
    fn eligible(&self) -> bool {
        self.value.is_some() && !self.excluded && self.cooling.is_none() && self.in_flight < self.limit
    }

    /// The rank with `in_flight` leases out. Runs user code unless there are none.
    fn rank(&self, in_flight: u32) -> u64 {
        match &self.value {
            Some(value) if in_flight > 0 => value.priority(in_flight).rank(),
            _ => self.idle_rank,
        }
    }
}

impl<R: Resource> State<R> {
    fn new() -> Self {
        State {
            slots: Vec::new(),
            free: Vec::new(),
            index: HashMap::default(),
            ready: BinaryHeap::new(),
            overtaken: 0,
            cooling: BinaryHeap::new(),
            removed_cooling: 0,
            tick: 0,
            excluded: Vec::new(),
            passed: Vec::new(),
        }
    }

    /// The current entry for the slot; the one before, if any, is overtaken.
    fn entry(&mut self, slot: u32, rank: u64) -> Reverse<Ready> {
        self.tick += 1;
        let at = &mut self.slots[slot as usize];
        at.version = at.version.wrapping_add(1);
        (at.queued, at.rank) = (true, rank);
        Reverse(Ready { rank, tick: self.tick, slot, version: at.version })
    }

    /// Overtakes the slot's entry, if it has one, without removing it.
    fn unqueue(&mut self, slot: u32) {
        let at = &mut self.slots[slot as usize];
        if std::mem::take(&mut at.queued) {
            at.version = at.version.wrapping_add(1);
            self.overtaken += 1;
        }
    }

    /// Makes the heap agree with the slot's state: an entry of this rank if it is eligible, none otherwise.
    fn requeue(&mut self, slot: u32, rank: u64) {
        let at = &self.slots[slot as usize];
        let eligible = at.eligible();
        if eligible && at.queued && at.rank == rank {
            return;
        }
        self.unqueue(slot);
        if eligible {
            let entry = self.entry(slot, rank);
            self.ready.push(entry);
        }
        self.sweep();
    }

    /// Rebuilds the heap if overtaken entries are most of it.
    fn sweep(&mut self) {
        if self.overtaken > 64 && self.overtaken * 2 > self.ready.len() {
            let slots = &self.slots;
            self.ready.retain(|Reverse(entry)| slots[entry.slot as usize].version == entry.version);
            self.overtaken = 0;
        }
    }

    /// The best eligible slot, its entry left on top of the heap.
    fn best(&mut self) -> Option<u32> {
        while let Some(top) = self.ready.peek_mut() {
            let Ready { slot, version, .. } = top.0;
            if self.slots[slot as usize].version == version {
                return Some(slot);
            }
            PeekMut::pop(top);
            self.overtaken -= 1;
        }
        None
    }

    /// Takes one unit of the slot on top of the heap. The entry is replaced in place while capacity is left.
    fn lend_top(&mut self, slot: u32) -> (Arc<R>, u32) {
        let at = &self.slots[slot as usize];
        let in_flight = at.in_flight + 1;
        if in_flight < at.limit {
            // May panic; nothing has changed yet.
            let rank = at.rank(in_flight);
            let entry = self.entry(slot, rank);
            *self.ready.peek_mut().expect("the slot's entry") = entry;
        } else {
            self.ready.pop();
            self.slots[slot as usize].queued = false;
        }
        self.lent(slot)
    }

    /// Takes one unit of an eligible slot, wherever its entry is.
    fn lend(&mut self, slot: u32) -> (Arc<R>, u32) {
        let at = &self.slots[slot as usize];
        let in_flight = at.in_flight + 1;
        // May panic; nothing has changed yet.
        let rank = if in_flight < at.limit { at.rank(in_flight) } else { 0 };
        let lent = self.lent(slot);
        self.unqueue(slot);
        self.requeue(slot, rank);
        lent
    }

    fn lent(&mut self, slot: u32) -> (Arc<R>, u32) {
        let at = &mut self.slots[slot as usize];
        at.in_flight += 1;
        (at.value.clone().expect("only slots in use are queued"), at.generation)
    }

    /// Ends the coolings that are over by `now`.
    fn end_coolings(&mut self, now: u64) {
        while let Some(Reverse(top)) = self.cooling.peek().copied()
            && top.deadline <= now
        {
            let rank = self.cooling_rank(top);
            self.cooling.pop();
            match rank {
                None => self.removed_cooling -= 1,
                Some((deadline, _)) if deadline > now => {
                    self.cooling.push(Reverse(Cooling { deadline, ..top }))
                }
                Some((_, rank)) => {
                    self.slots[top.slot as usize].cooling = None;
                    self.requeue(top.slot, rank);
                }
            }
        }
    }

    /// The deadline of an entry's resource as of now and the rank to queue it at; `None` if it was removed.
    fn cooling_rank(&self, entry: Cooling) -> Option<(u64, u64)> {
        let at = &self.slots[entry.slot as usize];
        (at.generation == entry.generation)
            .then(|| (at.cooling.expect("an entry for each cooling"), at.rank(at.in_flight)))
    }

    /// The earliest moment at which the end of a cooling alone makes a resource eligible.
    fn earliest(&self, excluded: &[u32]) -> Option<Timestamp> {
        let deadline = |entry: &Reverse<Cooling>| {
            let Reverse(Cooling { slot, generation, .. }) = *entry;
            let at = &self.slots[slot as usize];
            let alone = at.generation == generation
                && !at.excluded
                && at.in_flight < at.limit
                && !excluded.contains(&slot);
            at.cooling.filter(|_| alone)
        };
        // Usually the first one is it: its entry is current, so no other can be earlier.
        let first = self.cooling.peek()?;
        deadline(first)
            .filter(|&deadline| deadline == first.0.deadline)
            .or_else(|| self.cooling.iter().filter_map(deadline).min())
            .map(Timestamp::from_nanos)
    }

    /// Cools until `deadline`; the caller requeues.
    fn cool(&mut self, slot: u32, deadline: u64) -> bool {
        let at = &mut self.slots[slot as usize];
        let generation = at.generation;
        match &mut at.cooling {
            Some(present) if *present >= deadline => return false,
            // Its entry stays where it is and moves on when it surfaces: one entry a resource, however often cooled.
            Some(present) => *present = deadline,
            None => {
                at.cooling = Some(deadline);
                self.cooling.push(Reverse(Cooling { deadline, slot, generation }));
            }
        }
        self.unqueue(slot);
        self.sweep();
        true
    }

    fn insert(&mut self, Prepared { key, value, idle_rank, limit }: Prepared<R>) {
        // First what can panic: `Hash` and `Eq`.
        let slot = self.free.last().copied().unwrap_or(self.slots.len() as u32);
        self.index.insert(key, slot);
        if self.free.pop().is_none() {
            self.slots.push(Slot {
                value: None,
                idle_rank: 0,
                rank: 0,
                cooling: None,
                in_flight: 0,
                limit: 0,
                generation: 0,
                version: 0,
                queued: false,
                excluded: false,
            });
        }
        let at = &mut self.slots[slot as usize];
        (at.value, at.idle_rank, at.limit) = (Some(value), idle_rank, limit);
        let entry = self.entry(slot, idle_rank);
        self.ready.push(entry);
    }

    /// Empties the slot; what it held is the caller's to drop, outside the lock.
    fn remove(&mut self, slot: u32) -> Option<Arc<R>> {
        self.unqueue(slot);
        let at = &mut self.slots[slot as usize];
        at.generation = at.generation.wrapping_add(1);
        (at.in_flight, at.excluded) = (0, false);
        let value = at.value.take();
        if at.cooling.take().is_some() {
            self.removed_cooling += 1;
        }
        self.free.push(slot);
        self.sweep();
        if self.removed_cooling > 64 && self.removed_cooling * 2 > self.cooling.len() {
            let slots = &self.slots;
            self.cooling.retain(|Reverse(entry)| slots[entry.slot as usize].generation == entry.generation);
            self.removed_cooling = 0;
        }
        value
    }
}

impl<R: Resource> MutexScheduler<R> {
    /// An empty fleet on the machine's clock.
    pub fn new() -> Self {
        Self::with_clock(MonotonicClock::new())
    }

    /// An empty fleet on this clock.
    pub fn with_clock(clock: impl Clock + 'static) -> Self {
        MutexScheduler {
            state: Mutex::new(State::new()),
            earliest: AtomicU64::new(NEVER),
            clock: Box::new(clock),
        }
    }

    /// Room for this many resources, made ahead.
    pub fn reserve(&self, additional: usize) {
        let mut state = lock(&self.state);
        state.slots.reserve(additional);
        state.index.reserve(additional);
        state.ready.reserve(additional);
    }

    /// Locks the state, with the coolings ended that are over.
    fn now(&self) -> MutexGuard<'_, State<R>> {
        if self.earliest.load(Ordering::Relaxed) == NEVER {
            return lock(&self.state);
        }
        let now = self.clock.now().as_nanos();
        let mut state = lock(&self.state);
        state.end_coolings(now);
        self.publish_earliest(&state);
        state
    }

    /// After each change of the cooling queue, still under the lock.
    fn publish_earliest(&self, state: &State<R>) {
        let earliest = state.cooling.peek().map_or(NEVER, |entry| entry.0.deadline);
        self.earliest.store(earliest, Ordering::Relaxed);
    }

    /// Lengths of the two queues and of the slots.
    #[cfg(test)]
    pub(super) fn lengths(&self) -> [usize; 3] {
        let state = lock(&self.state);
        [state.ready.len(), state.cooling.len(), state.slots.len()]
    }

    fn lease(&self, slot: u32, (value, generation): (Arc<R>, u32)) -> MutexLease<'_, R> {
        MutexLease { scheduler: self, value, slot, generation, cool: None }
    }

    fn deadline(&self, duration: Duration) -> u64 {
        // One short of "never", which the published deadline needs for itself.
        self.clock.now().saturating_add(duration).as_nanos().min(NEVER - 1)
    }

    fn give_back(&self, slot: u32, generation: u32, cool: Option<Duration>) {
        let deadline = cool.map(|duration| self.deadline(duration));
        let mut state = lock(&self.state);
        let at = &mut state.slots[slot as usize];
        if at.generation != generation {
            // Removed in the meantime.
            return;
        }
        at.in_flight -= 1;
        if let Some(deadline) = deadline {
            state.cool(slot, deadline);
            self.publish_earliest(&state);
        }
        let at = &state.slots[slot as usize];
        if !at.eligible() {
            return;
        }
        // User code, and the lease is gone already: a panic must not take the resource with it.
        let rank = catch_unwind(AssertUnwindSafe(|| at.rank(at.in_flight)));
        let fallback = at.idle_rank;
        state.requeue(slot, *rank.as_ref().unwrap_or(&fallback));
        drop(state);
        if let Err(panic) = rank {
            resume_unwind(panic);
        }
    }

    /// Changes the slot of `key` by `change`, which says whether anything changed, and queues it accordingly.
    fn change(&self, key: &R::Key, change: impl FnOnce(&mut State<R>, u32) -> bool) -> bool {
        let mut state = lock(&self.state);
        let Some(&slot) = state.index.get(key) else { return false };
        let at = &state.slots[slot as usize];
        let rank = at.rank(at.in_flight);
        let changed = change(&mut state, slot);
        if changed {
            state.requeue(slot, rank);
            self.publish_earliest(&state);
        }
        changed
    }
}

impl<R: Resource> Default for MutexScheduler<R> {
    fn default() -> Self {
        Self::new()
    }
}

impl<R: Resource> Lend<R> for MutexScheduler<R> {
    type Lease<'a> = MutexLease<'a, R>;

    fn insert(&self, resource: R) -> Result<(), R> {
        let prepared = Prepared::new(resource)?;
        let mut state = lock(&self.state);
        if state.index.contains_key(&prepared.key) {
            drop(state);
            return Err(prepared.into_inner());
        }
        state.insert(prepared);
        Ok(())
    }

    fn insert_batch(&self, resources: Vec<R>) -> Result<(), Vec<R>> {
        let keys: Vec<R::Key> = resources.iter().map(Resource::key).collect();
        let distinct: HashSet<&R::Key, DefaultHashBuilder> = keys.iter().collect();
        let valid = resources.iter().all(|resource| resource.capacity().limit().is_some());
        if distinct.len() != keys.len() || !valid {
            return Err(resources);
        }
        let prepared: Vec<_> = resources.into_iter().flat_map(Prepared::new).collect();
        let mut state = lock(&self.state);
        if keys.iter().any(|key| state.index.contains_key(key)) {
            drop(state);
            return Err(prepared.into_iter().map(Prepared::into_inner).collect());
        }
        prepared.into_iter().for_each(|prepared| state.insert(prepared));
        Ok(())
    }

    fn update(&self, resource: R) -> Result<(), R> {
        let prepared = Prepared::new(resource)?;
        let mut state = lock(&self.state);
        let Some(&slot) = state.index.get(&prepared.key) else {
            drop(state);
            return Err(prepared.into_inner());
        };
        let in_flight = state.slots[slot as usize].in_flight;
        let rank =
            if in_flight == 0 { prepared.idle_rank } else { prepared.value.priority(in_flight).rank() };
        let at = &mut state.slots[slot as usize];
        let old = at.value.replace(prepared.value);
        (at.idle_rank, at.limit) = (prepared.idle_rank, prepared.limit);
        state.requeue(slot, rank);
        drop(state);
        drop(old);
        Ok(())
    }

    fn remove(&self, key: &R::Key) -> bool {
        let mut state = lock(&self.state);
        let Some((key, slot)) = state.index.remove_entry(key) else { return false };
        let value = state.remove(slot);
        self.publish_earliest(&state);
        drop(state);
        drop((key, value));
        true
    }

    fn len(&self) -> usize {
        lock(&self.state).index.len()
    }

    fn acquire(&self) -> Result<MutexLease<'_, R>, Unavailable> {
        let mut state = self.now();
        let Some(slot) = state.best() else { return Err(Unavailable { earliest: state.earliest(&[]) }) };
        let lent = state.lend_top(slot);
        drop(state);
        Ok(self.lease(slot, lent))
    }

    fn acquire_key(&self, key: &R::Key) -> Option<MutexLease<'_, R>> {
        let mut state = self.now();
        let slot = *state.index.get(key)?;
        if !state.slots[slot as usize].eligible() {
            return None;
        }
        let lent = state.lend(slot);
        drop(state);
        Some(self.lease(slot, lent))
    }

    fn acquire_excluding(&self, keys: &[R::Key]) -> Result<MutexLease<'_, R>, Unavailable> {
        let mut guard = self.now();
        let state = &mut *guard;
        // Slots, not keys, are compared below: each key is hashed once.
        let mut excluded = std::mem::take(&mut state.excluded);
        excluded.clear();
        excluded.extend(keys.iter().filter_map(|key| state.index.get(key)));
        while let Some(slot) = state.best().filter(|slot| excluded.contains(slot)) {
            debug_assert!(state.slots[slot as usize].eligible());
            state.passed.extend(state.ready.pop());
        }
        // The entries that were passed over go back even if `priority` panics.
        let found = state.best();
        let lent = catch_unwind(AssertUnwindSafe(|| found.map(|slot| (slot, state.lend_top(slot)))));
        state.ready.extend(state.passed.drain(..));
        let earliest = if found.is_none() { state.earliest(&excluded) } else { None };
        state.excluded = excluded;
        drop(guard);
        match lent {
            Ok(Some((slot, lent))) => Ok(self.lease(slot, lent)),
            Ok(None) => Err(Unavailable { earliest }),
            Err(panic) => resume_unwind(panic),
        }
    }

    fn peek_with<T>(&self, f: impl FnOnce(&R) -> T) -> Option<T> {
        let mut state = self.now();
        let slot = state.best()?;
        let value = state.slots[slot as usize].value.clone()?;
        drop(state);
        Some(f(&value))
    }

    fn get_with<T>(&self, key: &R::Key, f: impl FnOnce(&R) -> T) -> Option<T> {
        let state = lock(&self.state);
        let slot = *state.index.get(key)?;
        let value = state.slots[slot as usize].value.clone()?;
        drop(state);
        Some(f(&value))
    }

    fn exclude(&self, key: &R::Key) -> bool {
        self.change(key, |state, slot| !std::mem::replace(&mut state.slots[slot as usize].excluded, true))
    }

    fn include(&self, key: &R::Key) -> bool {
        self.change(key, |state, slot| std::mem::take(&mut state.slots[slot as usize].excluded))
    }

    fn cool(&self, key: &R::Key, duration: Duration) -> bool {
        let deadline = self.deadline(duration);
        self.change(key, |state, slot| state.cool(slot, deadline))
    }
}

impl<R: Resource> fmt::Debug for MutexScheduler<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MutexScheduler").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// A lease of a [`MutexScheduler`]: the resource, until dropped.
#[must_use = "dropping a lease returns the resource"]
pub struct MutexLease<'a, R: Resource> {
    scheduler: &'a MutexScheduler<R>,
    value: Arc<R>,
    slot: u32,
    generation: u32,
    /// How long to cool the resource on its return.
    cool: Option<Duration>,
}

impl<R: Resource> Deref for MutexLease<'_, R> {
    type Target = R;

    fn deref(&self) -> &R {
        &self.value
    }
}

impl<R: Resource> Lent<R> for MutexLease<'_, R> {
    fn finish(mut self, outcome: Outcome) {
        if let Outcome::RateLimited { retry_after } = outcome {
            // The drop that follows cools and returns under one lock.
            self.cool = Some(retry_after);
        }
    }
}

impl<R: Resource> Drop for MutexLease<'_, R> {
    fn drop(&mut self) {
        self.scheduler.give_back(self.slot, self.generation, self.cool);
    }
}

impl<R: Resource + fmt::Debug> fmt::Debug for MutexLease<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MutexLease").field(&self.value).finish()
    }
}
