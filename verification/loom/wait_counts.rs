//! Waiting: each request is counted once, as what it was told, and so is each unit that was on its way to somebody and was nobody's lease.

use std::time::Duration;

use leasehold::{AcquireOwned, Fairness, OwnedLease, internals::sync::Arc};

use crate::{
    common::{SHORT, model},
    driver::{Fleet, Res, Setup},
    told::Told,
    wait::{Task, at_rest, built, spawn},
};

/// One resource, which is lent. At most two wait, and nobody waits whose time is over.
fn lent(fairness: Fairness) -> (Arc<Fleet>, OwnedLease<Res>, Told) {
    let fleet =
        built(Setup::default(), 1, |builder| builder.fairness(fairness).max_waiters(2).shed_late(true));
    let lease = fleet.scheduler.acquire_owned().expect("free");
    (fleet, lease, Told { leases: 1, ..Told::default() })
}

/// The one who waits first.
type First = Task<AcquireOwned<Res>>;

/// Two wait; the unit comes back while `beside` does something to the first, who may be left. Then all end, and are counted.
fn release(
    fairness: Fairness,
    ask: fn(&Fleet) -> AcquireOwned<Res>,
    beside: fn(&Fleet, First, &mut Told) -> Option<First>,
) {
    model(move || {
        let (fleet, lease, mut told) = lent(fairness);
        let first = Task::waiting(ask(&fleet));
        let mut second = Task::waiting(fleet.scheduler.acquire_async_owned());
        let other = spawn(&fleet, move |_| drop(lease));
        let first = beside(&fleet, first, &mut told);
        other.join().expect("no panic");
        if let Some(mut first) = first {
            let ended = first.done();
            told.ended(&ended);
            drop((ended, first));
        }
        if second.is_woken() {
            let ended = second.done();
            told.ended(&ended);
            drop((ended, second));
        } else {
            told.cancelled += 1;
            drop(second);
        }
        told.demand(&fleet);
        let free = if fleet.scheduler.is_closed() { 0 } else { fleet.scheduler.stats().members as usize };
        at_rest(fleet, free);
    });
}

fn any(fleet: &Fleet) -> AcquireOwned<Res> {
    fleet.scheduler.acquire_async_owned()
}

fn cancel(_: &Fleet, task: Task<AcquireOwned<Res>>, told: &mut Told) -> Option<Task<AcquireOwned<Res>>> {
    drop(task);
    // Whatever it had by then.
    told.cancelled += 1;
    None
}

#[test]
fn counts_cancel_release() {
    release(Fairness::Strict, any, cancel);
}

#[test]
fn counts_cancel_nudge() {
    release(Fairness::Throughput, any, cancel);
}

#[test]
fn counts_overdue_release() {
    release(
        Fairness::Strict,
        |fleet| fleet.scheduler.request().timeout(SHORT).owned(),
        |fleet, task, _| {
            fleet.clock.advance(SHORT);
            let _ = fleet.scheduler.tick();
            Some(task)
        },
    );
}

#[test]
fn counts_remove_release() {
    release(
        Fairness::Strict,
        |fleet| fleet.scheduler.acquire_key_async_owned(&0),
        |fleet, task, _| {
            fleet.scheduler.remove(&0).expect("a member");
            Some(task)
        },
    );
}

#[test]
fn counts_close_release() {
    release(Fairness::Strict, any, |fleet, task, _| {
        assert!(fleet.scheduler.close());
        Some(task)
    });
}

/// Others come meanwhile, of whom one is refused, or one has no time; they have waited only if they were let in.
fn come(fleet: &Fleet, task: Task<AcquireOwned<Res>>, told: &mut Told) -> Option<Task<AcquireOwned<Res>>> {
    for time in [Duration::ZERO, SHORT] {
        let mut late = Task::new(fleet.scheduler.request().timeout(time).owned());
        match late.poll() {
            Some(Ok(_)) => panic!("those who wait are before it"),
            Some(ended) => told.ended(&ended),
            None => {
                drop(late);
                told.cancelled += 1;
            }
        }
    }
    Some(task)
}

#[test]
fn counts_newcomers_release() {
    release(Fairness::Strict, any, come);
}

/// One that collects gives up as its first part comes: the part was nobody's lease.
#[test]
fn counts_part_cancel() {
    model(|| {
        let (fleet, lease, mut told) = lent(Fairness::Strict);
        let many = Task::waiting(fleet.scheduler.acquire_many_async_owned(2));
        let other = spawn(&fleet, move |_| drop(lease));
        drop(many);
        told.cancelled += 1;
        other.join().expect("no panic");
        told.demand(&fleet);
        at_rest(fleet, 1);
    });
}
