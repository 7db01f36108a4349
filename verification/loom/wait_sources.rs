//! Waiting: everything but a return that makes a resource eligible, or ends a wait, against a registration. Whoever is not told
//! waits for ever: a deadlock.

use leasehold::{OwnedLease, WaitError};
use loom::future::block_on;

use crate::{
    common::{SHORT, model, model_within},
    driver::{Fleet, Res, Setup},
    wait::{Task, at_rest, fleet, spawn, use_one},
};

/// One waits for anything while `main` makes something eligible, or has done so.
fn told(bound: usize, setup: Setup, before: fn(&Fleet), main: fn(&Fleet), free: usize) {
    model_within(bound, move || {
        let fleet = fleet(setup, 0);
        before(&fleet);
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
