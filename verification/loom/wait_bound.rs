//! Waiting: a bounded queue. Never more wait than are let in; who is refused leaves nothing behind; who leaves makes room.

use leasehold::{AcquireOwned, Fairness, OwnedLease, WaitError, internals::sync::Arc};

use crate::{
    common::model,
    driver::{Fleet, Res, Setup},
    wait::{Task, at_rest, built, spawn},
};

/// One resource; so many may wait for it.
fn fleet(fairness: Fairness, max: usize) -> Arc<Fleet> {
    built(Setup::default(), 1, |builder| builder.fairness(fairness).max_waiters(max))
}

/// What has become of a newcomer.
enum Came {
    In(Task<AcquireOwned<Res>>),
    Refused,
    Served(OwnedLease<Res>),
}

/// A newcomer to a queue that takes `max`.
fn come(fleet: &Fleet, max: usize) -> Came {
    let mut task = Task::new(fleet.scheduler.acquire_async_owned());
    match task.poll() {
        None => Came::In(task),
        Some(Ok(lease)) => Came::Served(lease),
        Some(Err(error)) => {
            assert_eq!(error, WaitError::QueueFull { waiting: max, max });
            Came::Refused
        }
    }
}

/// Of two newcomers one is let in.
#[test]
fn newcomers_for_one_place() {
    model(|| {
        let fleet = fleet(Fairness::Strict, 1);
        let lease = fleet.scheduler.acquire_owned().expect("free");
        let other = spawn(&fleet, |fleet| come(fleet, 1));
        let mine = come(&fleet, 1);
        let theirs = other.join().expect("no panic");
        let ((Came::In(mut task), Came::Refused) | (Came::Refused, Came::In(mut task))) = (mine, theirs)
        else {
            panic!("one place, one that waits")
        };
        drop(lease);
        drop(task.done().expect("the unit"));
        drop(task);
        assert_eq!(fleet.scheduler.stats().waits.refused, 1);
        at_rest(fleet, 1);
    });
}

/// One gives up as another one comes, who is let in if it finds the place free; the unit is for whoever waits then.
#[test]
fn cancel_newcomer() {
    model(|| {
        let fleet = fleet(Fairness::Strict, 1);
        let lease = fleet.scheduler.acquire_owned().expect("free");
        let first = Task::waiting(fleet.scheduler.acquire_async_owned());
        let other = spawn(&fleet, |fleet| come(fleet, 1));
        drop(first);
        let came = other.join().expect("no panic");
        drop(lease);
        match came {
            Came::In(mut task) => drop(task.done().expect("the unit")),
            Came::Refused => drop(fleet.scheduler.acquire().expect("nobody waits")),
            Came::Served(_) => panic!("it is lent"),
        }
        at_rest(fleet, 1);
    });
}

/// One is served as another one comes. Nobody overtakes it, and it makes room.
#[test]
fn release_newcomer() {
    model(|| {
        let fleet = fleet(Fairness::Strict, 1);
        let lease = fleet.scheduler.acquire_owned().expect("free");
        let mut first = Task::waiting(fleet.scheduler.acquire_async_owned());
        let other = spawn(&fleet, |fleet| come(fleet, 1));
        drop(lease);
        let came = other.join().expect("no panic");
        drop(first.done().expect("the unit"));
        drop(first);
        match came {
            Came::In(mut task) => drop(task.done().expect("the next one")),
            Came::Refused => drop(fleet.scheduler.acquire().expect("nobody waits")),
            Came::Served(_) => panic!("it has overtaken the one that waits"),
        }
        at_rest(fleet, 1);
    });
}

/// Nobody may wait: a newcomer has what comes back, or it stays free.
#[test]
fn release_nobody_may_wait() {
    model(|| {
        let fleet = fleet(Fairness::Strict, 0);
        let lease = fleet.scheduler.acquire_owned().expect("free");
        let other = spawn(&fleet, |fleet| !matches!(come(fleet, 0), Came::In(_)));
        drop(lease);
        assert!(other.join().expect("no panic"), "nobody waits");
        at_rest(fleet, 1);
    });
}

/// Throughput: whoever was woken to try has its place still, for it may come back.
#[test]
fn nudge_newcomer() {
    model(|| {
        let fleet = fleet(Fairness::Throughput, 1);
        let lease = fleet.scheduler.acquire_owned().expect("free");
        let mut first = Task::waiting(fleet.scheduler.acquire_async_owned());
        let other = spawn(&fleet, move |_| drop(lease));
        let taken = fleet.scheduler.acquire_owned().ok();
        let came = come(&fleet, 1);
        other.join().expect("no panic");
        assert!(!matches!(came, Came::In(_)), "the only place is taken");
        let early = first.poll();
        drop((taken, came));
        if early.is_none() {
            drop(first.done().expect("woken again"));
        }
        drop((early, first));
        at_rest(fleet, 1);
    });
}

/// Throughput: one is woken as it gives up. Its place is free for the next one, once.
#[test]
fn nudge_cancel_newcomers() {
    model(|| {
        let fleet = fleet(Fairness::Throughput, 1);
        let lease = fleet.scheduler.acquire_owned().expect("free");
        let first = Task::waiting(fleet.scheduler.acquire_async_owned());
        let other = spawn(&fleet, move |_| drop(lease));
        drop(first);
        other.join().expect("no panic");
        let lease = fleet.scheduler.acquire_owned().expect("nobody waits");
        let Came::In(mut second) = come(&fleet, 1) else { panic!("there is room") };
        assert!(matches!(come(&fleet, 1), Came::Refused), "for one");
        drop(lease);
        drop(second.done().expect("the unit"));
        drop(second);
        at_rest(fleet, 1);
    });
}
