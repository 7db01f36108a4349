//! Waiting: a future is polled with another waker than before, as by a task that has moved, while it is served or woken. Whoever comes after
//! that poll rings the new one.

use leasehold::Fairness;

use crate::{
    common::model,
    driver::Setup,
    wait::{Task, at_rest, fleet, spawn, with},
};

#[test]
fn another_waker_release() {
    model(|| {
        let fleet = fleet(Setup::default(), 1);
        let lease = fleet.scheduler.acquire_owned().expect("free");
        let mut task = Task::waiting(fleet.scheduler.acquire_async_owned());
        let other = spawn(&fleet, move |_| drop(lease));
        let early = task.poll_anew();
        other.join().expect("no panic");
        let lease = early.unwrap_or_else(|| task.done());
        drop((task, lease.expect("handed over")));
        at_rest(fleet, 1);
    });
}

/// Throughput: a nudge, and a passer-by who may make it one in vain; then the waiter registers anew, with the new waker.
#[test]
fn another_waker_nudge() {
    model(|| {
        let fleet = with(Setup::default(), 1, Fairness::Throughput);
        let lease = fleet.scheduler.acquire_owned().expect("free");
        let mut task = Task::waiting(fleet.scheduler.acquire_async_owned());
        let other = spawn(&fleet, move |_| drop(lease));
        let passer_by = fleet.scheduler.acquire();
        let early = task.poll_anew();
        drop(passer_by);
        other.join().expect("no panic");
        let lease = early.unwrap_or_else(|| task.done());
        drop((task, lease.expect("it was nudged")));
        at_rest(fleet, 1);
    });
}
