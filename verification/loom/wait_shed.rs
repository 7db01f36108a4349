//! Waiting: who cannot be served in time is told at once. It gets no unit, and leaves nothing behind that a unit could be lost on.
//!
//! Before the race one unit was handed over in 10 ns, and the clock stands still from then on.

use std::time::Duration;

use leasehold::{AcquireOwned, OwnedLease, WaitError, internals::sync::Arc};

use crate::{
    common::{SHORT, model, model_within},
    driver::{Fleet, Res, Setup},
    wait::{Task, at_rest, built, spawn},
};

const fn nanos(nanos: u64) -> Duration {
    Duration::from_nanos(nanos)
}

/// The one resource is lent.
fn fleet() -> (Arc<Fleet>, OwnedLease<Res>) {
    let fleet = built(Setup::default(), 1, |builder| builder.shed_late(true));
    let lease = fleet.scheduler.acquire_owned().expect("free");
    let mut task = Task::waiting(fleet.scheduler.acquire_async_owned());
    fleet.clock.advance(SHORT);
    drop(lease);
    let lease = task.done().expect("handed over");
    (fleet, lease)
}

/// One who has so much time: it waits, or was told how long it would take.
fn come(fleet: &Fleet, time: Duration) -> Result<Task<AcquireOwned<Res>>, Duration> {
    let mut task = Task::new(fleet.scheduler.request().timeout(time).owned());
    match task.poll() {
        None => Ok(task),
        Some(Err(WaitError::Shed { expected, left })) => {
            assert_eq!(left, time);
            Err(expected)
        }
        Some(other) => panic!("{other:?}"),
    }
}

/// One waits, and is served as another one comes, who has no time to be the second. If it is the first by then, it is let in.
#[test]
fn release_newcomer() {
    model(|| {
        let (fleet, lease) = fleet();
        let mut first = Task::waiting(fleet.scheduler.acquire_async_owned());
        let other = spawn(&fleet, |fleet| come(fleet, nanos(4)));
        drop(lease);
        let came = other.join().expect("no panic");
        drop(first.done().expect("the unit"));
        drop(first);
        match came {
            Ok(mut task) => drop(task.done().expect("the next one")),
            Err(expected) => assert_eq!(expected, nanos(20), "there was one before it"),
        }
        at_rest(fleet, 1);
    });
}

/// The one before it gives up.
#[test]
fn cancel_newcomer() {
    model(|| {
        let (fleet, lease) = fleet();
        let first = Task::waiting(fleet.scheduler.acquire_async_owned());
        let other = spawn(&fleet, |fleet| come(fleet, nanos(4)));
        drop(first);
        let came = other.join().expect("no panic");
        drop(lease);
        match came {
            Ok(mut task) => drop(task.done().expect("the unit")),
            Err(expected) => assert_eq!(expected, nanos(20), "there was one before it"),
        }
        at_rest(fleet, 1);
    });
}

/// Two come at the same time: neither counts for the other.
#[test]
fn newcomers() {
    model(|| {
        let (fleet, lease) = fleet();
        let mut first = Task::waiting(fleet.scheduler.acquire_async_owned());
        let other = spawn(&fleet, |fleet| come(fleet, nanos(19)).err());
        let mine = come(&fleet, nanos(19)).err();
        let theirs = other.join().expect("no panic");
        assert_eq!((mine, theirs), (Some(nanos(20)), Some(nanos(20))), "one each, behind the same one");
        assert_eq!(fleet.scheduler.stats().waits.shed, 2);
        drop(lease);
        drop(first.done().expect("the unit"));
        drop(first);
        at_rest(fleet, 1);
    });
}

/// Of two that come at the same time, one has the time to be the second.
#[test]
fn newcomers_for_the_second_place() {
    model_within(1, || {
        let (fleet, lease) = fleet();
        let mut first = Task::waiting(fleet.scheduler.acquire_async_owned());
        let other = spawn(&fleet, |fleet| come(fleet, nanos(20)));
        let mine = come(&fleet, nanos(20));
        let theirs = other.join().expect("no panic");
        let ((Ok(mut second), Err(expected)) | (Err(expected), Ok(mut second))) = (mine, theirs) else {
            panic!("one of them is the third")
        };
        assert_eq!(expected, nanos(30));
        drop(lease);
        drop(first.done().expect("the unit"));
        drop(second.done().expect("the next one"));
        drop((first, second));
        at_rest(fleet, 1);
    });
}

/// Its time is over when it comes, at the moment at which the unit is handed to the one that waits.
#[test]
fn release_overdue_newcomer() {
    model(|| {
        let (fleet, lease) = fleet();
        let mut first = Task::waiting(fleet.scheduler.acquire_async_owned());
        let other = spawn(&fleet, |fleet| come(fleet, Duration::ZERO).is_err());
        drop(lease);
        assert!(other.join().expect("no panic"), "told so");
        drop(first.done().expect("the unit"));
        drop(first);
        at_rest(fleet, 1);
    });
}
