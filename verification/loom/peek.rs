//! Looking without a lock: a peek, a `get`, a lease's value and a snapshot never read freed or unpublished memory, and see
//! values in the order in which they were published.
//!
//! The oracle fails a use of a node or value that a guard does not keep; the facade's cell inside the resource fails a read
//! that publication does not order; a lease asks the oracle about its value at each use.

use std::ops::Deref;

use leasehold::{Standing, internals::sync::Arc};

use crate::{
    common::{SHORT, model, model_within, steps},
    driver::{Actor, Fleet, Res, Setup},
    specification::Op::{self, *},
};

/// `before`, then `ops` in a second thread against `look` in the main one.
fn looking(setup: Setup, before: &'static [Op], ops: &'static [Op], look: fn(&Fleet)) {
    model(move || {
        let fleet = Arc::new(Fleet::new(setup));
        Actor::new(&fleet, 0).run(&steps(before));
        let other = {
            let fleet = Arc::clone(&fleet);
            crate::common::spawn(move || Actor::new(&fleet, 1).run(&steps(ops)))
        };
        look(&fleet);
        other.join().expect("no panic");
        let Ok(fleet) = Arc::try_unwrap(fleet) else { panic!("all threads are gone") };
        fleet.finish();
    });
}

fn seen(found: Option<impl Deref<Target = Res>>) -> Option<(u8, u8)> {
    found.map(|found| (found.check(), found.version))
}

#[test]
fn peek_remove() {
    looking(Setup::default(), &[Insert(0)], &[Remove(0)], |fleet| {
        let first = seen(fleet.scheduler.peek());
        let second = seen(fleet.scheduler.peek());
        assert!(first.is_some() || second.is_none(), "gone is gone");
    });
}

#[test]
fn peek_remove_of_the_best_of_two() {
    looking(Setup::default(), &[Insert(0), Insert(1)], &[Remove(0)], |fleet| {
        let first = seen(fleet.scheduler.peek()).expect("something is always shown");
        let second = seen(fleet.scheduler.peek()).expect("something is always shown");
        assert!(first <= second, "gone is gone");
    });
}

#[test]
fn peek_evict() {
    looking(Setup::default(), &[Insert(0)], &[Evict], |fleet| {
        seen(fleet.scheduler.peek());
        seen(fleet.scheduler.peek());
    });
}

#[test]
fn peek_remove_reinsert() {
    looking(Setup::default(), &[Insert(0)], &[Remove(0), Insert(0)], |fleet| {
        seen(fleet.scheduler.peek());
        seen(fleet.scheduler.peek());
    });
}

#[test]
fn peek_insert() {
    looking(Setup::default(), &[], &[Insert(0)], |fleet| {
        let first = seen(fleet.scheduler.peek());
        let second = seen(fleet.scheduler.peek());
        assert!(first.is_none() || second.is_some(), "it stays");
    });
}

#[test]
fn peek_batch() {
    looking(Setup::default(), &[], &[InsertBatch(0, 2)], |fleet| {
        seen(fleet.scheduler.peek());
        seen(fleet.scheduler.peek());
    });
}

/// Whoever has seen a member of a batch by key is shown something: as waiting, or, if the face says that nothing waits, in
/// the heap. By affinity, because that looks once, before there is a ring, where a plain peek looks twice.
#[test]
fn peek_batch_seen_by_key() {
    looking(Setup::default(), &[], &[InsertBatch(0, 1)], |fleet| {
        if fleet.scheduler.get(&0).is_some() {
            assert_eq!(seen(fleet.scheduler.peek_by_affinity(&1)), Some((0, 0)), "it is there, somewhere");
        }
    });
}

/// Who has found the batch by key has seen it committed: a peek must show it, staged, absorbed or in between.
#[test]
fn peek_batch_found_before() {
    looking(Setup::default(), &[], &[InsertBatch(0, 1)], |fleet| {
        if seen(fleet.scheduler.get(&0)).is_some() {
            assert!(seen(fleet.scheduler.peek()).is_some(), "it stays");
        }
    });
}

/// It is due, or it is warm: at every instant a peek may show it.
#[test]
fn peek_warm_of_what_is_due() {
    model(|| {
        let fleet = Arc::new(Fleet::new(Setup::default()));
        fleet.scheduler.insert(fleet.resource(0)).expect("new");
        fleet.scheduler.cool(&0, SHORT).expect("a member");
        fleet.clock.advance(SHORT);
        let other = {
            let fleet = Arc::clone(&fleet);
            crate::common::spawn(move || fleet.scheduler.warm(&0).expect("a member"))
        };
        assert!(seen(fleet.scheduler.peek()).is_some(), "its cooling is over");
        other.join().expect("no panic");
        let Ok(fleet) = Arc::try_unwrap(fleet) else { panic!("all threads are gone") };
        fleet.finish();
    });
}

#[test]
fn peek_update() {
    looking(Setup::default(), &[Insert(0)], &[UpdateWith(0)], |fleet| {
        let first = seen(fleet.scheduler.peek()).expect("a member");
        let second = seen(fleet.scheduler.peek()).expect("a member");
        assert!(first.1 <= second.1, "values are seen in order");
    });
}

#[test]
fn peek_update_update() {
    looking(Setup::default(), &[Insert(0)], &[UpdateWith(0), UpdateWith(0)], |fleet| {
        let kept = fleet.scheduler.peek().expect("a member");
        let before = kept.version;
        let after = seen(fleet.scheduler.peek()).expect("a member").1;
        assert!(before <= after, "values are seen in order");
        kept.check();
        assert_eq!(kept.version, before, "what was seen stays as it was");
    });
}

#[test]
fn peek_acquire() {
    looking(Setup::default(), &[Insert(0), Insert(1)], &[Acquire], |fleet| {
        seen(fleet.scheduler.peek()).expect("something is always shown");
    });
}

#[test]
fn get_update() {
    looking(Setup::default(), &[Insert(0)], &[UpdateWith(0), UpdateWith(0)], |fleet| {
        let first = seen(fleet.scheduler.get(&0)).expect("a member");
        let second = seen(fleet.scheduler.get(&0)).expect("a member");
        assert!(first.1 <= second.1, "values are seen in order");
    });
}

#[test]
fn get_remove() {
    looking(Setup::default(), &[Insert(0)], &[Remove(0)], |fleet| {
        let first = seen(fleet.scheduler.get(&0));
        let second = seen(fleet.scheduler.get(&0));
        assert!(first.is_some() || second.is_none(), "gone is gone");
    });
}

#[test]
fn peek_worst_remove() {
    looking(Setup::default(), &[Insert(0), Insert(1)], &[Remove(1)], |fleet| {
        seen(fleet.scheduler.peek_worst()).expect("something is always shown");
    });
}

#[test]
fn snapshot_remove() {
    looking(Setup::default(), &[Insert(0), Insert(1)], &[Remove(0)], |fleet| {
        let keys: Vec<u8> = fleet.scheduler.snapshot().iter().map(|state| state.key).collect();
        assert!(keys.contains(&1));
        assert!(fleet.scheduler.iter_keys().any(|key| key == 1));
    });
}

/// A snapshot that calls itself consistent is of one moment: of two things that one thread has done, in two shards, it does not show the second
/// alone. Whichever state is read first, one of the two models could see that.
fn not_the_second_alone(fleet: &Fleet, first: u8) {
    let snapshot = fleet.scheduler.snapshot();
    assert_eq!(snapshot.len(), 2);
    let excluded =
        |key| snapshot.iter().any(|state| state.key == key && state.standing == Standing::Excluded);
    assert!(!snapshot.is_consistent() || excluded(first) || !excluded(1 - first), "the second alone");
}

#[test]
fn snapshot_exclude_two_shards() {
    let setup = Setup { shards: 2, ..Setup::default() };
    looking(setup, &[Insert(0), Insert(1)], &[Exclude(0), Exclude(1)], |fleet| {
        not_the_second_alone(fleet, 0)
    });
}

#[test]
fn snapshot_exclude_two_shards_backwards() {
    let setup = Setup { shards: 2, ..Setup::default() };
    looking(setup, &[Insert(0), Insert(1)], &[Exclude(1), Exclude(0)], |fleet| {
        not_the_second_alone(fleet, 1)
    });
}

/// Stats that call themselves consistent are of one moment: a lease is at capacity, and is counted.
#[test]
fn stats_acquire() {
    looking(Setup::default(), &[Insert(0)], &[Acquire], |fleet| {
        let stats = fleet.scheduler.stats();
        if stats.consistent {
            assert_eq!((stats.members, stats.lent - stats.returned), (1, stats.reasons.at_capacity));
            assert_eq!(stats.eligible, 1 - stats.in_flight);
        }
    });
}

#[test]
fn stats_exclude_two_shards() {
    let setup = Setup { shards: 2, ..Setup::default() };
    looking(setup, &[Insert(0), Insert(1), Exclude(0)], &[Include(0), Exclude(1)], |fleet| {
        let stats = fleet.scheduler.stats();
        if stats.consistent {
            assert_eq!(stats.members, 2);
            assert_eq!(stats.excluded - stats.included, stats.reasons.excluded);
            assert!(stats.eligible > 0, "at every instant something was");
        }
    });
}

/// The lease's value lives until the lease ends, however many values come after it.
#[test]
fn lease_update_update() {
    looking(Setup::default(), &[Insert(0)], &[UpdateWith(0), UpdateWith(0)], |fleet| {
        let lease = fleet.scheduler.acquire().expect("eligible");
        let version = lease.version;
        lease.check();
        assert_eq!(lease.version, version);
    });
}

/// Two leases on different values of one resource end in either order.
#[test]
fn leases_on_two_values() {
    let setup = Setup { units: 2, ..Setup::default() };
    looking(setup, &[Insert(0)], &[UpdateWith(0), Acquire], |fleet| {
        let lease = fleet.scheduler.acquire().expect("two units");
        lease.check();
    });
}

#[test]
fn lease_remove() {
    looking(Setup::default(), &[Insert(0)], &[Remove(0), Insert(0)], |fleet| {
        if let Ok(lease) = fleet.scheduler.acquire() {
            lease.check();
            assert_eq!(lease.key(), &0);
        }
    });
}

/// A peek at resource 0, which is due, and at 1, which is not, against `other`. By affinity, as above.
fn peek_due(other: fn(&Fleet), judge: fn(Option<(u8, u8)>)) {
    model(move || {
        let fleet = Arc::new(Fleet::new(Setup::default()));
        for (key, span) in [(0, SHORT), (1, 9 * SHORT)] {
            fleet.scheduler.insert(fleet.resource(key)).expect("new");
            fleet.scheduler.cool(&key, span).expect("a member");
        }
        fleet.clock.advance(SHORT);
        let thread = {
            let fleet = Arc::clone(&fleet);
            crate::common::spawn(move || other(&fleet))
        };
        judge(seen(fleet.scheduler.peek_by_affinity(&1)));
        thread.join().expect("no panic");
        let Ok(fleet) = Arc::try_unwrap(fleet) else { panic!("all threads are gone") };
        fleet.finish();
    });
}

/// It moves from one heap to the other under the peek, and is in one of them all the time. A thaw moves it in the same way, but has no
/// model: while it is going on a peek may show nothing, so that there is no answer that would be wrong.
#[test]
fn peek_warm() {
    peek_due(
        |fleet| assert!(fleet.scheduler.warm(&0).expect("a member")),
        |shown| assert_eq!(shown, Some((0, 0)), "due, or warm"),
    );
}

/// It makes place for the next one, whose deadline has not come.
#[test]
fn peek_due_excluded() {
    peek_due(
        |fleet| assert!(fleet.scheduler.exclude(&0).expect("a member")),
        |shown| assert_ne!(shown, Some((1, 0)), "1 cools all the time"),
    );
}

/// A reader that pinned before a removal keeps the node, while a third thread's guard does not.
#[test]
fn peek_peek_remove() {
    model_within(1, || {
        let fleet = Arc::new(Fleet::new(Setup::default()));
        fleet.scheduler.insert(fleet.resource(0)).expect("new");
        let spawn = |body: fn(&Fleet)| {
            let fleet = Arc::clone(&fleet);
            crate::common::spawn(move || body(&fleet))
        };
        let one = spawn(|fleet| {
            seen(fleet.scheduler.peek());
        });
        let two = spawn(|fleet| drop(fleet.scheduler.remove(&0)));
        seen(fleet.scheduler.peek());
        one.join().expect("no panic");
        two.join().expect("no panic");
        let Ok(fleet) = Arc::try_unwrap(fleet) else { panic!("all threads are gone") };
        fleet.finish();
    });
}
