//! Waiting: probes. What the rules have ejected comes back with one unit, which is for one, whoever waits or comes by; what becomes of it
//! decides what the next ones get.

use std::time::Duration;

use leasehold::{Backoff, Ejection, Outcome, internals::sync::Arc};
use loom::future::block_on;

use crate::{
    common::{SHORT, model, model_within},
    driver::{Fleet, Setup},
    wait::{Task, at_rest, built, spawn, use_one},
    wait_timer::fleet_with,
};

const OK: Outcome = Outcome::Ok { latency: Duration::from_nanos(1) };

fn rules(ramp: Duration) -> Ejection {
    Ejection::default()
        .consecutive_failures(1)
        .max_share(100)
        .jitter(0)
        .base(SHORT)
        .longest(SHORT)
        .without_place(Backoff::None)
        .ramp(ramp)
}

/// One resource of so many units, which is ejected, and due.
fn due(units: u8, ramp: Duration) -> Arc<Fleet> {
    let fleet = built(Setup { units, ..Setup::default() }, 1, |builder| builder.ejection(rules(ramp)));
    fleet.scheduler.acquire().expect("eligible").finish(Outcome::Failed);
    assert_eq!(fleet.scheduler.ejected_by_rules(), 1);
    fleet.clock.advance(SHORT);
    fleet
}

/// One registers as a passer-by finds it due: the one probe is for one of them, and then for the other.
#[test]
fn probe_register_passer_by() {
    model(|| {
        let fleet = due(2, Duration::ZERO);
        let other = spawn(&fleet, |fleet| use_one(fleet.scheduler.acquire_async()));
        if let Ok(lease) = fleet.scheduler.acquire() {
            assert!(fleet.scheduler.acquire().is_err(), "one probe");
            lease.finish(OK);
        }
        assert_eq!(other.join().expect("no panic"), Ok(0));
        // Which of them tells how it went is not known: to be sure of both units, somebody does.
        if let Ok(lease) = fleet.scheduler.acquire() {
            lease.finish(OK);
        }
        at_rest(fleet, 2);
    });
}

/// Two wait as the probe goes well: all units are there again, and each of them gets one, in full or by the ramp.
fn probe_for_two(ramp: Duration) {
    model(move || {
        let fleet = due(2, ramp);
        let probe = fleet.scheduler.acquire_owned().expect("due");
        let mut first = Task::waiting(fleet.scheduler.acquire_async_owned());
        let other = spawn(&fleet, |fleet| {
            let mut task = Task::new(fleet.scheduler.acquire_async_owned());
            (task.poll().map(|ended| ended.expect("the second unit")), task)
        });
        probe.finish(OK);
        let (early, mut second) = other.join().expect("no panic");
        let first_lease = first.done().expect("the first unit");
        // Until the ramp is over.
        fleet.clock.advance(2 * ramp);
        let _ = fleet.scheduler.tick();
        let second_lease = early.unwrap_or_else(|| second.done().expect("the second unit"));
        drop((first, second, first_lease, second_lease));
        at_rest(fleet, 2);
    });
}

#[test]
fn probe_returns_well() {
    probe_for_two(Duration::ZERO);
}

#[test]
fn probe_returns_well_and_ramps() {
    probe_for_two(SHORT);
}

/// The probe fails as one registers: it is told by the timer when the next probe is due, and has that.
#[test]
fn probe_fails_register() {
    model_within(1, || {
        let (fleet, calls) = fleet_with(1, |builder| builder.ejection(rules(Duration::ZERO)));
        fleet.scheduler.acquire().expect("eligible").finish(Outcome::Failed);
        fleet.clock.advance(SHORT);
        let probe = fleet.scheduler.acquire_owned().expect("due");
        let other = {
            let calls = Arc::clone(&calls);
            spawn(&fleet, move |fleet| {
                let served = block_on(fleet.scheduler.acquire_async()).map(|lease| {
                    let key = lease.check();
                    lease.finish(OK);
                    key
                });
                calls.end();
                served
            })
        };
        probe.finish(Outcome::Failed);
        calls.serve();
        assert_eq!(other.join().expect("no panic"), Ok(0));
        at_rest(fleet, 1);
    });
}

/// A thread looks after that by itself: what is over at once, is over.
#[test]
fn probe_fails_register_thread() {
    model_within(1, || {
        let fleet = due(1, Duration::ZERO);
        let probe = fleet.scheduler.acquire_owned().expect("due");
        let other = spawn(&fleet, |fleet| fleet.scheduler.request().wait().map(|lease| lease.check()));
        probe.finish(Outcome::Failed);
        fleet.clock.advance(SHORT);
        let _ = fleet.scheduler.tick();
        assert_eq!(other.join().expect("no panic"), Ok(0));
        if let Ok(lease) = fleet.scheduler.acquire() {
            lease.finish(OK);
        }
        at_rest(fleet, 1);
    });
}

/// One waits by name for what is ejected, and gives up as its time is over: the probe is for whoever takes anything.
#[test]
fn probe_cancel_named() {
    model(|| {
        let fleet = built(Setup::default(), 1, |builder| builder.ejection(rules(Duration::ZERO)));
        fleet.scheduler.acquire().expect("eligible").finish(Outcome::Failed);
        let named = Task::waiting(fleet.scheduler.acquire_key_async_owned(&0));
        let mut any = Task::waiting(fleet.scheduler.acquire_async_owned());
        fleet.clock.advance(SHORT);
        let other = spawn(&fleet, |fleet| {
            let _ = fleet.scheduler.tick();
        });
        drop(named);
        other.join().expect("no panic");
        any.done().expect("the probe").finish(OK);
        drop(any);
        at_rest(fleet, 1);
    });
}
