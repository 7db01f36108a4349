//! The state of every resource, of one moment if the fleet stands still for so long.
//!
//! States are read one by one, each under its shard's lock. The sequences of all shards are read before the first and after the last: if
//! nothing has moved, all states are of the moment in between. That is the validation of `stats`, see `shard::face`.

use std::{hash::BuildHasher, ops::Deref};

use super::{Scheduler, core::Core};
use crate::{
    health::{Phase, Record},
    lookup::Keyed,
    node::{Hold, Node, Standing},
    resource::Resource,
    shard::{NEVER, Pin},
};

/// The state of one resource at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ResourceState<K> {
    /// Identity.
    pub key: K,
    /// The home shard.
    pub shard: usize,
    /// The rank at the present load; lower is better.
    pub rank: u64,
    /// Leases out.
    pub in_flight: u32,
    /// Leases allowed at once.
    pub limit: u32,
    /// What matters most of what stands in the way.
    pub standing: Standing,
    /// Every hold that is set.
    pub holds: Vec<Hold>,
    /// When cooling ends, in nanoseconds on the scheduler's clock, if it cools.
    pub cooling_until: Option<u64>,
    /// Until when it is ejected, in nanoseconds on the scheduler's clock, if the rules have ejected it.
    pub ejected_until: Option<u64>,
    /// From when on it can be lent by itself, in nanoseconds on the scheduler's clock; 0 if it can be now. `None` if that takes a return, or
    /// somebody who ends a hold: then also if it has a deadline beside it.
    pub ready_at: Option<u64>,
    /// Where it is on its way back after an ejection by the rules.
    pub phase: Phase,
    /// Grows with every return, cleared hold, update and removal.
    pub generation: u32,
}

/// The state of every resource; see [`Scheduler::snapshot`]. A slice, in no order.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Snapshot<K> {
    states: Vec<ResourceState<K>>,
    consistent: bool,
}

impl<K> Snapshot<K> {
    /// Whether all states are of one moment: nothing changed while they were read. If not, each is of some moment of the call.
    pub fn is_consistent(&self) -> bool {
        self.consistent
    }

    /// The states themselves, for instance to sort them.
    pub fn into_vec(self) -> Vec<ResourceState<K>> {
        self.states
    }
}

impl<K> Deref for Snapshot<K> {
    type Target = [ResourceState<K>];

    fn deref(&self) -> &Self::Target {
        &self.states
    }
}

impl<K> IntoIterator for Snapshot<K> {
    type Item = ResourceState<K>;
    type IntoIter = std::vec::IntoIter<ResourceState<K>>;

    fn into_iter(self) -> Self::IntoIter {
        self.states.into_iter()
    }
}

impl<'a, K> IntoIterator for &'a Snapshot<K> {
    type Item = &'a ResourceState<K>;
    type IntoIter = std::slice::Iter<'a, ResourceState<K>>;

    fn into_iter(self) -> Self::IntoIter {
        self.states.iter()
    }
}

/// How often the states are read before they are given out as they are.
const TRIES: usize = 3;

impl<R: Resource> Core<R> {
    /// The sum of all shards' sequences; `None` while a change goes on, or a batch is coming in, whose members are visible by key
    /// before they are in their shards.
    fn sequences(&self) -> Option<u64> {
        self.shards.iter().try_fold(0u64, |sum, shard| {
            let face = shard.face();
            let sequence = face.begin_read()?;
            (face.staged() == 0).then(|| sum.wrapping_add(sequence))
        })
    }

    /// The state of a member. Blocking on its home shard's lock. Clones the key.
    fn state_of(&self, node: &Node<R>) -> Option<ResourceState<R::Key>> {
        let (state, owned, rank, deadline, health, ready) = {
            let mut locked = self.home(node).lock();
            // All under the lock, also what is remembered of the outcomes: an ejection changes both at once.
            let health = node.record().map(Record::stats).unwrap_or_default();
            let state = node.state.load();
            let ready = if state.is_eligible() { 0 } else { self.comes_back(node, state) };
            (state, locked.details(node), node.rank(), node.deadline(), health, ready)
        };
        (!state.is_removed()).then(|| ResourceState {
            key: node.key().clone(),
            shard: node.home() as usize,
            rank,
            in_flight: state.in_flight(),
            limit: owned.limit,
            standing: state.standing(),
            holds: Hold::ALL.into_iter().filter(|&hold| state.is_held(hold)).collect(),
            cooling_until: state.is_held(Hold::Cooling).then_some(deadline),
            ejected_until: health.ejected_until.filter(|_| state.is_held(Hold::Ejected)),
            ready_at: (ready != NEVER).then_some(ready),
            phase: health.phase,
            generation: state.generation(),
        })
    }

    fn read_states(&self, guard: &Pin<'_>) -> Vec<ResourceState<R::Key>> {
        let members = self.map.iter(guard).filter(|node| self.visible(node).is_some());
        members
            .filter_map(|node| {
                self.settle(node);
                self.state_of(node)
            })
            .collect()
    }
}

impl<R: Resource, S: BuildHasher> Scheduler<R, S> {
    /// The state of every resource, in no order. Each is exact at its own moment; all are of one moment if
    /// [`is_consistent`](Snapshot::is_consistent) says so: the shards' sequences are compared before and after, and the states read
    /// again, three times at most, if something has changed. One whose cooling is over stands [`Cooling`](Standing::Cooling) until an
    /// acquisition has warmed it up; compare `cooling_until` with [`now`](Scheduler::now).
    ///
    /// Blocking on one shard's lock at a time, once per resource and attempt: for people and dashboards, not for hot paths. Clones every
    /// key, with no lock held; a panic there comes out here.
    ///
    /// ```
    /// use leasehold::{Entry, Scheduler, Standing};
    ///
    /// let scheduler = Scheduler::<Entry<u8, u32, ()>>::builder().build()?;
    /// scheduler.insert(Entry::new(1, 0, ()))?;
    /// let _lease = scheduler.acquire()?;
    /// let snapshot = scheduler.snapshot();
    /// assert!(snapshot.is_consistent());
    /// assert_eq!((snapshot.len(), snapshot[0].standing), (1, Standing::AtCapacity));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn snapshot(&self) -> Snapshot<R::Key> {
        let core = &*self.core;
        let guard = core.pin();
        let read = || {
            let before = core.sequences();
            let states = core.read_states(&guard);
            let consistent = before.is_some() && before == core.sequences();
            Snapshot { states, consistent }
        };
        (1..TRIES).fold(read(), |snapshot, _| if snapshot.consistent { snapshot } else { read() })
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::{sync::Arc, time::Duration};

    use crate::{Ejection, Entry, ManualClock, Outcome, Phase, Scheduler};

    #[test]
    fn a_phase_that_changes_alone_shows_in_the_sequences() {
        let clock = Arc::new(ManualClock::new());
        let rules = Ejection::default().consecutive_failures(1).max_share(100).jitter(0);
        let rules = rules.ramp(Duration::from_secs(16));
        let builder = Scheduler::<Entry<u32, u32, ()>>::builder().shards(1).clock(clock.clone());
        let fleet = builder.ejection(rules).build().expect("in range");
        fleet.insert(Entry::new(1, 0, ())).expect("new");
        fleet.acquire().expect("free").finish(Outcome::Failed);
        clock.advance(Duration::from_secs(1_000));
        let _ = fleet.tick();
        fleet.acquire().expect("a probe").finish(Outcome::Ok { latency: Duration::from_millis(1) });
        let phase = || fleet.snapshot()[0].phase;
        // It has one unit: until the end of the ramp nothing changes but the phase.
        clock.advance(Duration::from_secs(15));
        let _ = fleet.tick();
        assert_eq!(phase(), Phase::Ramping);
        let before = fleet.core.sequences().expect("nothing goes on");
        clock.advance(Duration::from_secs(15));
        let _ = fleet.tick();
        assert_eq!(phase(), Phase::Healthy);
        assert_ne!(fleet.core.sequences(), Some(before), "who has read in between reads again");
    }
}
