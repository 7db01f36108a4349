//! Ranks that follow from outcomes: whatever others do between an outcome and the rank that follows from it, the last outcome counts.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::{
    future::Future,
    pin::pin,
    sync::{
        Arc, Barrier,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    task::{Context, Poll, Waker},
    thread,
    time::Duration,
};

use leasehold::{Capacity, Outcome, Resource, Scheduler, Seen};

const OK: Outcome = Outcome::Ok { latency: Duration::from_millis(10) };

#[test]
fn rank_by_outcomes() {
    struct Replica(u8);
    impl Resource for Replica {
        type Key = u8;
        type Priority = (u32, u32);
        fn key(&self) -> u8 {
            self.0
        }
        fn priority(&self, _: u32) -> (u32, u32) {
            (0, 0)
        }
        fn priority_seen(&self, _: u32, seen: Seen) -> (u32, u32) {
            (seen.failures, seen.latency.map_or(0, |latency| latency.as_millis() as u32))
        }
    }
    let fleet = Scheduler::<Replica>::builder().shards(1).rank_by_outcomes(true).build().expect("in range");
    for key in 0..3 {
        assert!(fleet.insert(Replica(key)).is_ok());
    }
    let tell = |key: u8, outcome| fleet.acquire_key(&key).expect("free").finish(outcome);
    for (key, millis) in [(0, 30), (1, 10), (2, 20)] {
        tell(key, Outcome::Ok { latency: Duration::from_millis(millis) });
    }
    assert_eq!(*fleet.acquire().expect("free").key(), 1, "the fastest");
    tell(1, Outcome::Failed);
    assert_eq!(*fleet.acquire().expect("free").key(), 2, "a failure does not look like a fast answer");
    assert!(fleet.update(Replica(2)).is_ok());
    assert_eq!(*fleet.acquire().expect("free").key(), 2, "what was seen stays");
}

/// Ranked by failures, then by a base. Whoever is asked about a certain number of failures stops in the question, once.
struct Stuck {
    key: u8,
    base: u32,
    capacity: Capacity,
    stop: Arc<Stop>,
}

struct Stop {
    /// Who is asked about so many failures, and one, stops; 0: nobody does, or any more.
    armed: AtomicU32,
    met: Barrier,
    goes: Barrier,
}

impl Resource for Stuck {
    type Key = u8;
    type Priority = (u32, u32);
    fn key(&self) -> u8 {
        self.key
    }
    fn priority(&self, _: u32) -> (u32, u32) {
        (0, self.base)
    }
    fn priority_seen(&self, _: u32, seen: Seen) -> (u32, u32) {
        if self.stop.armed.compare_exchange(seen.failures + 1, 0, SeqCst, SeqCst).is_ok() {
            self.stop.met.wait();
            self.stop.goes.wait();
        }
        (seen.failures, self.base)
    }
    fn capacity(&self) -> Capacity {
        self.capacity
    }
}

/// A fleet of two of which the first is better, and where whoever asks for a rank after the first failure stops.
fn stuck(capacity: Capacity) -> (Scheduler<Stuck>, Arc<Stop>) {
    let stop = Arc::new(Stop { armed: AtomicU32::new(2), met: Barrier::new(2), goes: Barrier::new(2) });
    let fleet = Scheduler::<Stuck>::builder().shards(1).rank_by_outcomes(true).build().expect("in range");
    for (key, base) in [(1, 0), (2, 1)] {
        assert!(fleet.insert(Stuck { key, base, capacity, stop: stop.clone() }).is_ok());
    }
    (fleet, stop)
}

fn rank(fleet: &Scheduler<Stuck>, key: u8) -> u64 {
    fleet.snapshot().into_iter().find(|state| state.key == key).expect("a member").rank
}

/// Returns the first with a failure; `meanwhile` runs before it is ranked by that.
fn between_return_and_rank<'f, T>(
    fleet: &'f Scheduler<Stuck>,
    stop: &Stop,
    meanwhile: impl FnOnce(&'f Scheduler<Stuck>) -> T,
) -> T {
    thread::scope(|scope| {
        let lease = fleet.acquire_key(&1).expect("free");
        scope.spawn(move || lease.finish(Outcome::Failed));
        stop.met.wait();
        let result = meanwhile(fleet);
        stop.goes.wait();
        result
    })
}

#[test]
fn a_failure_counts_also_if_somebody_acquires_before_it_is_ranked() {
    for capacity in [Capacity::Exclusive, Capacity::Limited(2)] {
        let (fleet, stop) = stuck(capacity);
        let held = between_return_and_rank(&fleet, &stop, |fleet| fleet.acquire_key(&1).expect("free again"));
        // Returned without a word of how it went.
        drop(held);
        assert!(rank(&fleet, 1) > rank(&fleet, 2), "{capacity:?}");
        assert_eq!(*fleet.acquire().expect("free").key(), 2, "{capacity:?}: the one that did not fail");
    }
}

#[test]
fn what_was_seen_later_is_not_overwritten_by_what_was_seen_before() {
    for capacity in [Capacity::Exclusive, Capacity::Limited(2)] {
        // The load is as it was when the failure was to be ranked; the outcomes are not.
        let (fleet, stop) = stuck(capacity);
        between_return_and_rank(&fleet, &stop, |fleet| {
            fleet.acquire_key(&1).expect("free again").finish(OK);
        });
        assert!(rank(&fleet, 1) < rank(&fleet, 2), "{capacity:?}: it has succeeded since");
        assert_eq!(*fleet.acquire().expect("free").key(), 1, "{capacity:?}");
    }
}

#[test]
fn an_update_does_not_undo_a_failure() {
    let (fleet, stop) = stuck(Capacity::Exclusive);
    stop.armed.store(1, SeqCst);
    thread::scope(|scope| {
        // Ranked before the failure, in force after it.
        scope.spawn(|| {
            let new = Stuck { key: 1, base: 0, capacity: Capacity::Exclusive, stop: stop.clone() };
            assert!(fleet.update(new).is_ok());
        });
        stop.met.wait();
        fleet.acquire_key(&1).expect("free").finish(Outcome::Failed);
        stop.goes.wait();
    });
    assert_eq!(*fleet.acquire().expect("free").key(), 2);
}

#[test]
fn a_failure_counts_also_if_the_unit_is_handed_on() {
    for capacity in [Capacity::Exclusive, Capacity::Limited(3)] {
        let (fleet, stop) = stuck(capacity);
        stop.armed.store(0, SeqCst);
        let full = match capacity {
            Capacity::Limited(units) => units,
            _ => 1,
        };
        let mut held: Vec<_> = (0..full).map(|_| fleet.acquire_key(&1).expect("free")).collect();
        let mut waiting = pin!(fleet.acquire_key_async(&1));
        let mut context = Context::from_waker(Waker::noop());
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        let before = rank(&fleet, 1);
        held.pop().expect("lent").finish(Outcome::Failed);
        assert!(rank(&fleet, 1) > before, "{capacity:?}: at once, and not when whoever has waited runs");
        let Poll::Ready(Ok(lease)) = waiting.as_mut().poll(&mut context) else { panic!("handed on") };
        drop((lease, held));
        assert!(rank(&fleet, 1) > rank(&fleet, 2), "{capacity:?}");
        assert_eq!(*fleet.acquire().expect("free").key(), 2);
    }
}
