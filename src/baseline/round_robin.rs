//! One after the other, under one mutex.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    ops::Deref,
    time::Duration,
};

use super::{Lend, Lent, Unavailable, lock};
use crate::{
    DefaultHashBuilder,
    outcome::Outcome,
    resource::Resource,
    sync::{
        Arc, Clock, MonotonicClock, Mutex, MutexGuard, Timestamp,
        atomic::{AtomicU64, Ordering},
    },
};

/// Hands out the resources of a fleet in turn, whatever their priority; skips those that are not eligible.
///
/// # Progress and complexity
/// Blocking: every operation takes the one lock. `acquire` is O(1) while most resources are eligible, O(n) when few
/// are.
///
/// # Callbacks and panics
/// `Hash` and `Eq` of keys run under the lock; priorities are never asked for. Closures and drops of resources run
/// outside.
pub struct RoundRobinScheduler<R: Resource> {
    state: Mutex<State<R>>,
    /// The latest deadline of all coolings, 0 if all are over: the clock is read only while it is not. Relaxed: who
    /// misses a new deadline has merely looked before it was set.
    latest: AtomicU64,
    clock: Box<dyn Clock>,
}

struct State<R: Resource> {
    slots: Vec<Slot<R>>,
    free: Vec<u32>,
    index: HashMap<R::Key, u32, DefaultHashBuilder>,
    /// The slot to look at first.
    cursor: usize,
}

struct Slot<R> {
    /// `None` while the slot is free.
    value: Option<Arc<R>>,
    in_flight: u32,
    limit: u32,
    generation: u32,
    excluded: bool,
    /// When the cooling ends, 0 if there has been none.
    cool_until: u64,
}

impl<R> Slot<R> {
    /// Eligible but for cooling.
    fn ready(&self) -> bool {
        self.value.is_some() && !self.excluded && self.in_flight < self.limit
    }
}

impl<R: Resource> State<R> {
    /// The next eligible slot in turn; the cursor stays.
    fn next(&self, now: u64, excluded: &[u32]) -> Result<u32, Unavailable> {
        let mut earliest = None;
        for at in (self.cursor..self.slots.len()).chain(0..self.cursor) {
            let slot = &self.slots[at];
            if slot.ready() && !excluded.contains(&(at as u32)) {
                if slot.cool_until <= now {
                    return Ok(at as u32);
                }
                earliest = Some(earliest.map_or(slot.cool_until, |earliest| slot.cool_until.min(earliest)));
            }
        }
        Err(Unavailable { earliest: earliest.map(Timestamp::from_nanos) })
    }

    fn lend(&mut self, slot: u32) -> (u32, u32, Arc<R>) {
        let at = &mut self.slots[slot as usize];
        at.in_flight += 1;
        (slot, at.generation, at.value.clone().expect("only slots in use are ready"))
    }

    fn insert(&mut self, key: R::Key, value: Arc<R>, limit: u32) {
        let slot = self.free.last().copied().unwrap_or(self.slots.len() as u32);
        self.index.insert(key, slot);
        let generation = match self.free.pop() {
            Some(_) => self.slots[slot as usize].generation,
            None => 0,
        };
        let new =
            Slot { value: Some(value), in_flight: 0, limit, generation, excluded: false, cool_until: 0 };
        match self.slots.get_mut(slot as usize) {
            Some(at) => *at = new,
            None => self.slots.push(new),
        }
    }
}

impl<R: Resource> RoundRobinScheduler<R> {
    /// An empty fleet on the machine's clock.
    pub fn new() -> Self {
        Self::with_clock(MonotonicClock::new())
    }

    /// An empty fleet on this clock.
    pub fn with_clock(clock: impl Clock + 'static) -> Self {
        let state = State { slots: Vec::new(), free: Vec::new(), index: HashMap::default(), cursor: 0 };
        RoundRobinScheduler { state: Mutex::new(state), latest: AtomicU64::new(0), clock: Box::new(clock) }
    }

    /// The locked state and the present moment, which is 0 as long as nothing cools.
    fn now(&self) -> (MutexGuard<'_, State<R>>, u64) {
        let latest = self.latest.load(Ordering::Relaxed);
        let now = if latest == 0 { 0 } else { self.clock.now().as_nanos() };
        let mut state = lock(&self.state);
        // Changed under the lock only, so the second look is exact.
        if now > 0 && self.latest.load(Ordering::Relaxed) <= now {
            // Forgotten, not merely over: later calls take the moment for 0.
            state.slots.iter_mut().for_each(|slot| slot.cool_until = 0);
            self.latest.store(0, Ordering::Relaxed);
        }
        (state, now)
    }

    fn deadline(&self, duration: Duration) -> u64 {
        self.clock.now().saturating_add(duration).as_nanos()
    }

    fn lease(&self, (slot, generation, value): (u32, u32, Arc<R>)) -> RoundRobinLease<'_, R> {
        RoundRobinLease { scheduler: self, value, slot, generation, cool: None }
    }

    /// Under the lock.
    fn cool_slot(&self, slot: &mut Slot<R>, deadline: u64) -> bool {
        let later = deadline > slot.cool_until;
        slot.cool_until = slot.cool_until.max(deadline);
        self.latest.fetch_max(deadline, Ordering::Relaxed);
        later
    }

    fn give_back(&self, slot: u32, generation: u32, cool: Option<Duration>) {
        let deadline = cool.map(|duration| self.deadline(duration));
        let mut state = lock(&self.state);
        let at = &mut state.slots[slot as usize];
        if at.generation == generation {
            at.in_flight -= 1;
            if let Some(deadline) = deadline {
                self.cool_slot(at, deadline);
            }
        }
    }

    fn change(&self, key: &R::Key, change: impl FnOnce(&mut Slot<R>) -> bool) -> bool {
        let mut state = lock(&self.state);
        match state.index.get(key) {
            Some(&slot) => change(&mut state.slots[slot as usize]),
            None => false,
        }
    }

    fn acquire_but(&self, keys: &[R::Key]) -> Result<RoundRobinLease<'_, R>, Unavailable> {
        let (mut state, now) = self.now();
        let excluded: Vec<u32> = keys.iter().filter_map(|key| state.index.get(key).copied()).collect();
        let slot = state.next(now, &excluded)?;
        state.cursor = slot as usize + 1;
        let lent = state.lend(slot);
        drop(state);
        Ok(self.lease(lent))
    }
}

impl<R: Resource> Default for RoundRobinScheduler<R> {
    fn default() -> Self {
        Self::new()
    }
}

impl<R: Resource> Lend<R> for RoundRobinScheduler<R> {
    type Lease<'a> = RoundRobinLease<'a, R>;

    fn insert(&self, resource: R) -> Result<(), R> {
        self.insert_batch(vec![resource]).map_err(|mut back| back.pop().expect("the one resource"))
    }

    fn insert_batch(&self, resources: Vec<R>) -> Result<(), Vec<R>> {
        let keys: Vec<R::Key> = resources.iter().map(Resource::key).collect();
        let distinct: HashSet<&R::Key, DefaultHashBuilder> = keys.iter().collect();
        let limits: Option<Vec<u32>> = resources.iter().map(|resource| resource.capacity().limit()).collect();
        let Some(limits) = limits.filter(|_| distinct.len() == keys.len()) else { return Err(resources) };
        let mut state = lock(&self.state);
        if keys.iter().any(|key| state.index.contains_key(key)) {
            drop(state);
            return Err(resources);
        }
        for ((key, resource), limit) in keys.into_iter().zip(resources).zip(limits) {
            state.insert(key, Arc::new(resource), limit);
        }
        Ok(())
    }

    fn update(&self, resource: R) -> Result<(), R> {
        let Some(limit) = resource.capacity().limit() else { return Err(resource) };
        let key = resource.key();
        let mut state = lock(&self.state);
        let Some(&slot) = state.index.get(&key) else {
            drop(state);
            return Err(resource);
        };
        let at = &mut state.slots[slot as usize];
        let old = at.value.replace(Arc::new(resource));
        at.limit = limit;
        drop(state);
        drop(old);
        Ok(())
    }

    fn remove(&self, key: &R::Key) -> bool {
        let mut state = lock(&self.state);
        let Some((key, slot)) = state.index.remove_entry(key) else { return false };
        let at = &mut state.slots[slot as usize];
        at.generation = at.generation.wrapping_add(1);
        let value = at.value.take();
        state.free.push(slot);
        drop(state);
        drop((key, value));
        true
    }

    fn len(&self) -> usize {
        lock(&self.state).index.len()
    }

    fn acquire(&self) -> Result<RoundRobinLease<'_, R>, Unavailable> {
        self.acquire_but(&[])
    }

    fn acquire_key(&self, key: &R::Key) -> Option<RoundRobinLease<'_, R>> {
        let (mut state, now) = self.now();
        let slot = *state.index.get(key)?;
        let at = &state.slots[slot as usize];
        if !at.ready() || at.cool_until > now {
            return None;
        }
        let lent = state.lend(slot);
        drop(state);
        Some(self.lease(lent))
    }

    fn acquire_excluding(&self, keys: &[R::Key]) -> Result<RoundRobinLease<'_, R>, Unavailable> {
        self.acquire_but(keys)
    }

    fn peek_with<T>(&self, f: impl FnOnce(&R) -> T) -> Option<T> {
        let (state, now) = self.now();
        let slot = state.next(now, &[]).ok()?;
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
        self.change(key, |slot| !std::mem::replace(&mut slot.excluded, true))
    }

    fn include(&self, key: &R::Key) -> bool {
        self.change(key, |slot| std::mem::take(&mut slot.excluded))
    }

    fn cool(&self, key: &R::Key, duration: Duration) -> bool {
        let deadline = self.deadline(duration);
        self.change(key, |slot| self.cool_slot(slot, deadline))
    }
}

impl<R: Resource> fmt::Debug for RoundRobinScheduler<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RoundRobinScheduler").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// A lease of a [`RoundRobinScheduler`]: the resource, until dropped.
#[must_use = "dropping a lease returns the resource"]
pub struct RoundRobinLease<'a, R: Resource> {
    scheduler: &'a RoundRobinScheduler<R>,
    value: Arc<R>,
    slot: u32,
    generation: u32,
    /// How long to cool the resource on its return.
    cool: Option<Duration>,
}

impl<R: Resource> Deref for RoundRobinLease<'_, R> {
    type Target = R;

    fn deref(&self) -> &R {
        &self.value
    }
}

impl<R: Resource> Lent<R> for RoundRobinLease<'_, R> {
    fn finish(mut self, outcome: Outcome) {
        if let Outcome::RateLimited { retry_after } = outcome {
            // The drop that follows cools and returns under one lock.
            self.cool = Some(retry_after);
        }
    }
}

impl<R: Resource> Drop for RoundRobinLease<'_, R> {
    fn drop(&mut self) {
        self.scheduler.give_back(self.slot, self.generation, self.cool);
    }
}

impl<R: Resource + fmt::Debug> fmt::Debug for RoundRobinLease<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RoundRobinLease").field(&self.value).finish()
    }
}
