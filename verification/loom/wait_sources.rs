//! Waiting: everything but a return that makes a resource eligible, or ends a wait, against a registration. Whoever is not told
//! waits for ever: a deadlock.

use std::time::Duration;

use leasehold::{Backoff, Ejection, Outcome, OwnedLease, WaitError, internals::sync::Arc};
use loom::future::block_on;

use crate::{
    common::{SHORT, model, model_within},
    driver::{Fleet, Res, Setup},
    wait::{Task, at_rest, built, fleet, spawn, use_one},
};

/// One waits for anything while `main` makes something eligible, or has done so.
fn told(bound: usize, setup: Setup, before: fn(&Fleet), main: fn(&Fleet), free: usize) {
    let make = move || {
        let fleet = fleet(setup, 0);
        before(&fleet);
        fleet
    };
    told_in(bound, make, main, free);
}

/// As [`told`], in a fleet of another make.
fn told_in(
    bound: usize,
    make: impl Fn() -> Arc<Fleet> + Send + Sync + 'static,
    main: fn(&Fleet),
    free: usize,
) {
    model_within(bound, move || {
        let fleet = make();
        let other = spawn(&fleet, |fleet| use_one(fleet.scheduler.acquire_async()));
        main(&fleet);
        assert!(other.join().expect("no panic").is_ok());
        at_rest(fleet, free);
    });
}

fn one() -> Setup {
    Setup::default()
}

fn insert_one(fleet: &Fleet) {
    fleet.scheduler.insert(fleet.resource(0)).expect("new");
}

#[test]
fn insert() {
    told(2, one(), |_| (), insert_one, 1);
}

#[test]
fn insert_two_shards() {
    told(
        1,
        Setup { shards: 2, ..one() },
        |_| (),
        |fleet| {
            fleet.scheduler.insert(fleet.resource(1)).expect("new");
        },
        1,
    );
}

#[test]
fn include() {
    told(
        2,
        one(),
        |fleet| {
            insert_one(fleet);
            fleet.scheduler.exclude(&0).expect("a member");
        },
        |fleet| assert!(fleet.scheduler.include(&0).expect("a member")),
        1,
    );
}

#[test]
fn warm() {
    told(
        2,
        one(),
        |fleet| {
            insert_one(fleet);
            fleet.scheduler.cool(&0, SHORT).expect("a member");
        },
        |fleet| assert!(fleet.scheduler.warm(&0).expect("a member")),
        1,
    );
}

/// More units by an update, while all are lent.
#[test]
fn update_named() {
    model(|| {
        let fleet = fleet(one(), 1);
        let lease = fleet.scheduler.acquire_owned().expect("free");
        let other = spawn(&fleet, |fleet| use_one(fleet.scheduler.acquire_key_async(&0)));
        fleet.scheduler.update_with(&0, |old| old.again_with_units(1, 2)).expect("a member");
        assert_eq!(other.join().expect("no panic"), Ok(0));
        drop(lease);
        at_rest(fleet, 2);
    });
}

/// An update makes acceptable what was not.
#[test]
fn update_filter() {
    model(|| {
        let fleet = fleet(one(), 1);
        let other = spawn(&fleet, |fleet| {
            block_on(fleet.scheduler.acquire_where_async(|res| res.version == 1)).map(|lease| lease.check())
        });
        fleet.scheduler.update_with(&0, |old| old.again(1)).expect("a member");
        assert_eq!(other.join().expect("no panic"), Ok(0));
        at_rest(fleet, 1);
    });
}

/// As above, while the only unit is on its way back: whoever returns it may have asked about the old value.
#[test]
fn update_filter_release() {
    model_within(2, || {
        let fleet = fleet(one(), 1);
        let lease = fleet.scheduler.acquire_owned().expect("free");
        let mut task = Task::waiting(fleet.scheduler.acquire_where_async_owned(|res| res.version == 1));
        let other = spawn(&fleet, move |_| drop(lease));
        fleet.scheduler.update_with(&0, |old| old.again(1)).expect("a member");
        other.join().expect("no panic");
        drop(task.done().expect("told by whoever came last"));
        drop(task);
        at_rest(fleet, 1);
    });
}

/// The same with the unit in hand: it was taken for one who has left since.
#[test]
fn update_filter_cancel() {
    model_within(2, || {
        let fleet = fleet(one(), 1);
        let lease = fleet.scheduler.acquire_owned().expect("free");
        let mut task = Task::waiting(fleet.scheduler.acquire_where_async_owned(|res| res.version == 1));
        let open = Task::waiting(fleet.scheduler.acquire_async_owned());
        let other = spawn(&fleet, move |_| drop(lease));
        fleet.scheduler.update_with(&0, |old| old.again(1)).expect("a member");
        drop(open);
        other.join().expect("no panic");
        drop(task.done().expect("told by whoever came last"));
        drop(task);
        at_rest(fleet, 1);
    });
}

#[test]
fn batch() {
    told(
        1,
        one(),
        |_| (),
        |fleet| {
            fleet.scheduler.insert_batch(vec![fleet.resource(0), fleet.resource(1)]).expect("new");
        },
        2,
    );
}

#[test]
fn batch_two_shards() {
    told(
        1,
        Setup { shards: 2, ..one() },
        |_| (),
        |fleet| {
            fleet.scheduler.insert_batch(vec![fleet.resource(0), fleet.resource(1)]).expect("new");
        },
        2,
    );
}

/// Its time has come, and somebody else's acquisition warms it up.
#[test]
fn thaw() {
    model_within(2, || {
        let fleet = fleet(one(), 2);
        // Two are warmed by one thaw; the acquisition takes one at most.
        fleet.scheduler.cool(&0, SHORT).expect("a member");
        fleet.scheduler.cool(&1, SHORT).expect("a member");
        let mut task = Task::waiting(fleet.scheduler.acquire_async_owned());
        fleet.clock.advance(SHORT);
        let other = spawn(&fleet, |fleet| {
            let _ = fleet.scheduler.tick();
        });
        // Kept: it is not the return of this one that serves the task.
        let kept = fleet.scheduler.acquire_owned();
        other.join().expect("no panic");
        drop(task.done().expect("warm"));
        drop((task, kept));
        at_rest(fleet, 2);
    });
}

/// One takes anything; what becomes eligible by `main` is for it, and not for a passer-by.
fn no_passer_by(before: fn(&Fleet), main: fn(&Fleet)) {
    model(move || {
        let fleet = fleet(one(), 0);
        before(&fleet);
        let mut task = Task::waiting(fleet.scheduler.acquire_async_owned());
        // Nothing is due before somebody waits.
        fleet.clock.advance(SHORT);
        let other = spawn(&fleet, main);
        assert!(fleet.scheduler.acquire().is_err(), "no barging");
        other.join().expect("no panic");
        drop(task.done().expect("handed over"));
        drop(task);
        at_rest(fleet, 1);
    });
}

#[test]
fn passer_by_insert() {
    no_passer_by(|_| (), insert_one);
}

#[test]
fn passer_by_include() {
    no_passer_by(
        |fleet| {
            insert_one(fleet);
            fleet.scheduler.exclude(&0).expect("a member");
        },
        |fleet| assert!(fleet.scheduler.include(&0).expect("a member")),
    );
}

/// The passer-by warms it up itself, or somebody else does.
#[test]
fn passer_by_thaw() {
    no_passer_by(
        |fleet| {
            insert_one(fleet);
            fleet.scheduler.cool(&0, SHORT).expect("a member");
        },
        |fleet| {
            let _ = fleet.scheduler.tick();
        },
    );
}

/// More units than are lent.
#[test]
fn passer_by_update() {
    model(|| {
        let fleet = fleet(one(), 1);
        let lease = fleet.scheduler.acquire_owned().expect("free");
        let mut task = Task::waiting(fleet.scheduler.acquire_async_owned());
        let other = spawn(&fleet, |fleet| {
            fleet.scheduler.update_with(&0, |old| old.again_with_units(1, 2)).expect("a member");
        });
        assert!(fleet.scheduler.acquire().is_err(), "no barging");
        other.join().expect("no panic");
        drop(task.done().expect("handed over"));
        drop((task, lease));
        at_rest(fleet, 2);
    });
}

#[test]
fn thaw_register() {
    told(
        1,
        one(),
        |fleet| {
            insert_one(fleet);
            fleet.scheduler.cool(&0, SHORT).expect("a member");
            fleet.clock.advance(SHORT);
        },
        |fleet| {
            let _ = fleet.scheduler.tick();
        },
        1,
    );
}

/// Returned while it cools, and due at once.
fn cool_and_return(fleet: &Fleet, lease: OwnedLease<Res>) {
    fleet.scheduler.cool(lease.key(), std::time::Duration::ZERO).expect("a member");
    drop(lease);
}

/// It cools when it is returned and is due at once: the thread that sleeps looks after the time.
#[test]
fn cooling_return() {
    model(|| {
        let fleet = fleet(one(), 1);
        let lease = fleet.scheduler.acquire_owned().expect("free");
        let other = spawn(&fleet, |fleet| fleet.scheduler.request().wait().map(|lease| lease.check()));
        cool_and_return(&fleet, lease);
        assert_eq!(other.join().expect("no panic"), Ok(0));
        at_rest(fleet, 1);
    });
}

/// The timekeeper leaves at the moment at which something begins to cool: the other one takes over.
#[test]
fn timekeeper_leaves() {
    model_within(1, || {
        let fleet = fleet(one(), 2);
        let one = fleet.scheduler.acquire_owned().expect("free");
        let two = fleet.scheduler.acquire_owned().expect("free");
        let others = [(); 2].map(|()| {
            spawn(&fleet, |fleet| {
                // Kept, so that the other one depends on what cools.
                fleet.scheduler.request().wait_owned().expect("in the end")
            })
        });
        drop(one);
        cool_and_return(&fleet, two);
        for lease in others.map(|other| other.join().expect("no panic")) {
            drop(lease);
        }
        at_rest(fleet, 2);
    });
}

#[test]
fn close() {
    model(|| {
        let fleet = fleet(one(), 1);
        let lease = fleet.scheduler.acquire_owned().expect("free");
        let other = spawn(&fleet, |fleet| use_one(fleet.scheduler.acquire_async()));
        assert!(fleet.scheduler.close());
        assert_eq!(other.join().expect("no panic"), Err(WaitError::Closed));
        drop(lease);
        at_rest(fleet, 0);
    });
}

#[test]
fn close_release() {
    model(|| {
        let fleet = fleet(one(), 1);
        let lease = fleet.scheduler.acquire_owned().expect("free");
        let mut task = Task::waiting(fleet.scheduler.acquire_async_owned());
        let other = spawn(&fleet, move |_| drop(lease));
        assert!(fleet.scheduler.close());
        other.join().expect("no panic");
        let _ = task.done();
        drop(task);
        at_rest(fleet, 0);
    });
}

#[test]
fn remove_named() {
    model(|| {
        let fleet = fleet(one(), 1);
        let lease = fleet.scheduler.acquire_owned().expect("free");
        let other = spawn(&fleet, |fleet| use_one(fleet.scheduler.acquire_key_async(&0)));
        fleet.scheduler.remove(&0).expect("a member");
        assert_eq!(other.join().expect("no panic"), Err(WaitError::NotFound));
        drop(lease);
        at_rest(fleet, 0);
    });
}

/// It is removed, returned and inserted anew under the same key.
#[test]
fn remove_named_release() {
    model_within(1, || {
        let fleet = fleet(one(), 1);
        let lease = fleet.scheduler.acquire_owned().expect("free");
        let waiter = spawn(&fleet, |fleet| use_one(fleet.scheduler.acquire_key_async(&0)));
        let other = spawn(&fleet, move |_| drop(lease));
        fleet.scheduler.remove(&0).expect("a member");
        fleet.scheduler.insert(fleet.resource(0)).expect("removed");
        other.join().expect("no panic");
        let _ = waiter.join().expect("no panic");
        at_rest(fleet, 1);
    });
}

/// Two that take anything, and two resources: the second relies on the look of the first.
#[test]
fn lean() {
    model_within(1, || {
        let fleet = fleet(one(), 0);
        let others = [(); 2].map(|()| {
            spawn(&fleet, |fleet| block_on(fleet.scheduler.acquire_async_owned()).expect("in the end"))
        });
        fleet.scheduler.insert(fleet.resource(0)).expect("new");
        fleet.scheduler.insert(fleet.resource(1)).expect("new");
        for lease in others.map(|other| other.join().expect("no panic")) {
            drop(lease);
        }
        at_rest(fleet, 2);
    });
}

/// As above, where both stand in the queue from the first: something is free that none of those who have looked wants.
#[test]
fn lean_where_something_is_free() {
    model_within(1, || {
        let fleet = fleet(one(), 3);
        let held = fleet.scheduler.acquire_key_owned(&2).expect("free");
        // The gate is not free: nobody tries without a place in the queue.
        let named = Task::waiting(fleet.scheduler.acquire_key_async_owned(&2));
        let other = spawn(&fleet, |fleet| {
            block_on(fleet.scheduler.acquire_async_owned()).expect("one of the two").check()
        });
        let mine = block_on(fleet.scheduler.acquire_async_owned()).expect("one of the two");
        other.join().expect("no panic");
        drop((mine, named, held));
        at_rest(fleet, 3);
    });
}

/// A fleet, and what of it is out.
type Made = (Arc<Fleet>, Option<OwnedLease<Res>>);

/// By `main` several units become eligible, while one waits already and another one begins to: each gets one, and keeps it.
/// What `make` has lent stays lent meanwhile.
fn several(bound: usize, make: fn() -> Made, main: fn(&Fleet), free: usize) {
    model_within(bound, move || {
        let (fleet, lease) = make();
        let mut first = Task::waiting(fleet.scheduler.acquire_async_owned());
        let other =
            spawn(&fleet, |fleet| block_on(fleet.scheduler.acquire_async_owned()).expect("in the end"));
        main(&fleet);
        let second = other.join().expect("no panic");
        drop((first.done().expect("handed over"), second, lease));
        drop(first);
        at_rest(fleet, free);
    });
}

fn undrain(fleet: &Fleet, count: usize) {
    assert_eq!(fleet.scheduler.undrain_all(), count);
}

/// Both drain.
fn drained(shards: usize) -> (Arc<Fleet>, Option<OwnedLease<Res>>) {
    let fleet = fleet(Setup { shards, ..one() }, 2);
    drop(fleet.scheduler.drain_all_async());
    (fleet, None)
}

#[test]
fn undrain_all() {
    told_in(
        2,
        || {
            let fleet = fleet(one(), 1);
            drop(fleet.scheduler.drain_all_async());
            fleet
        },
        |fleet| undrain(fleet, 1),
        1,
    );
}

#[test]
fn undrain_all_of_two() {
    several(2, || drained(1), |fleet| undrain(fleet, 2), 2);
}

#[test]
fn undrain_all_two_shards() {
    several(1, || drained(2), |fleet| undrain(fleet, 2), 2);
}

/// Lent, and so many units more by an update.
#[test]
fn update_several() {
    several(
        2,
        || {
            let fleet = fleet(one(), 1);
            let lease = fleet.scheduler.acquire_owned().expect("free");
            (fleet, Some(lease))
        },
        |fleet| {
            fleet.scheduler.update_with(&0, |old| old.again_with_units(1, 3)).expect("a member");
        },
        3,
    );
}

/// One failure ejects, for [`SHORT`].
fn ejecting(setup: Setup, members: u8, share: u32) -> Arc<Fleet> {
    let rules = Ejection::default()
        .consecutive_failures(1)
        .max_share(share)
        .jitter(0)
        .base(SHORT)
        .without_place(Backoff::None)
        .ramp(SHORT);
    let fleet = built(setup, members, |builder| builder.ejection(rules));
    fleet.scheduler.acquire_key(&0).expect("eligible").finish(Outcome::Failed);
    assert_eq!(fleet.scheduler.ejected_by_rules(), 1);
    fleet
}

/// What is due by then is done.
fn after(fleet: &Fleet, time: Duration) {
    fleet.clock.advance(time);
    let _ = fleet.scheduler.tick();
}

/// Its time is over, and it is lent as a probe.
#[test]
fn readmit_by_rules() {
    told_in(2, || ejecting(one(), 1, 100), |fleet| after(fleet, SHORT), 1);
}

/// What it has is lent, and a step of its ramp gives one unit more.
#[test]
fn ramp_step() {
    model(|| {
        let fleet = ejecting(Setup { units: 4, ..one() }, 1, 100);
        fleet.clock.advance(SHORT);
        let probe = fleet.scheduler.acquire().expect("the probe");
        probe.finish(Outcome::Ok { latency: Duration::from_nanos(1) });
        let lease = fleet.scheduler.acquire_owned().expect("one unit");
        assert!(fleet.scheduler.acquire().is_err(), "and no more yet");
        let other = spawn(&fleet, |fleet| use_one(fleet.scheduler.acquire_async()));
        after(&fleet, SHORT / 2);
        assert_eq!(other.join().expect("no panic"), Ok(0));
        drop(lease);
        after(&fleet, SHORT);
        at_rest(fleet, 4);
    });
}

/// A member leaves, and what is ejected would be more than the share: it comes back early.
#[test]
fn trim() {
    told_in(
        2,
        || {
            let fleet = ejecting(one(), 2, 50);
            fleet.scheduler.exclude(&1).expect("a member");
            fleet
        },
        |fleet| {
            fleet.scheduler.remove(&1).expect("a member");
        },
        1,
    );
}
