//! Waiting: leases that are taken back while somebody waits for them, as a thread, as a task, or for a drain. No time goes by, so
//! whoever is not told sleeps for ever: a deadlock.

use std::time::Duration;

use leasehold::{Overdue, Timestamp, internals::sync::Arc};

use loom::future::block_on;

use crate::{
    common::{SHORT, model, model_within},
    driver::{Fleet, Setup},
    wait::{Task, at_rest, built, spawn},
    wait_timer::fleet_with,
};

/// One resource, whose leases are taken back after [`SHORT`].
fn fleet() -> Arc<Fleet> {
    built(Setup::default(), 1, |builder| builder.max_hold(SHORT).overdue(Overdue::Revoke))
}

/// Taken back by hand as its guard comes back: whoever waits gets one unit, once.
#[test]
fn revoke_return_waiter() {
    model(|| {
        let fleet = fleet();
        let mut lease = fleet.scheduler.acquire_owned().expect("free");
        let token = lease.token();
        let mut first = Task::waiting(fleet.scheduler.acquire_async_owned());
        let mut second = Task::waiting(fleet.scheduler.acquire_async_owned());
        let other = spawn(&fleet, move |fleet| fleet.scheduler.revoke(token).is_ok());
        let returned = lease.try_release().is_ok();
        assert!(other.join().expect("no panic") != returned, "one of the two");
        assert_eq!((first.rings(), second.rings()), (1, 0), "one unit, one delivery");
        drop(first.done().expect("handed over"));
        drop(second.done().expect("the next one"));
        drop((first, second));
        at_rest(fleet, 1);
    });
}

/// A lease is renewed to this very moment while a thread goes to sleep until the moment before the renewal.
#[test]
fn renew_earlier_waiter() {
    model(|| {
        let fleet = fleet();
        let mut lease = fleet.scheduler.acquire_owned().expect("free");
        let other = spawn(&fleet, |fleet| fleet.scheduler.request().wait().map(|lease| lease.check()));
        // It may be taken back in the midst of it.
        let _ = lease.renew(Duration::ZERO);
        assert_eq!(other.join().expect("no panic"), Ok(0));
        assert!(lease.is_revoked());
        drop(lease);
        at_rest(fleet, 1);
    });
}

/// The same, and the thread waits for a drain.
#[test]
fn renew_earlier_drain() {
    model(|| {
        let fleet = fleet();
        let mut lease = fleet.scheduler.acquire_owned().expect("free");
        let other = spawn(&fleet, |fleet| fleet.scheduler.drain_all(Timestamp::MAX).is_drained());
        // It may be taken back in the midst of it.
        let _ = lease.renew(Duration::ZERO);
        assert!(other.join().expect("no panic"));
        assert!(lease.is_revoked());
        drop(lease);
        assert_eq!(fleet.scheduler.undrain_all(), 1);
        at_rest(fleet, 1);
    });
}

/// Nobody acquires, and an overdue lease does not come back: whoever drains takes it back, while its holder reads what it has.
#[test]
fn drain_reaps() {
    model(|| {
        let fleet = fleet();
        let lease = fleet.scheduler.acquire_owned().expect("free");
        fleet.clock.advance(SHORT);
        let other = spawn(&fleet, |fleet| fleet.scheduler.drain_all(Timestamp::MAX).is_drained());
        lease.check();
        let _ = lease.is_revoked();
        assert!(other.join().expect("no panic"));
        assert!(lease.is_revoked());
        lease.check();
        drop(lease);
        assert_eq!(fleet.scheduler.undrain_all(), 1);
        at_rest(fleet, 1);
    });
}

/// It comes back at that moment: one of the two returns it, and the drain ends.
#[test]
fn drain_reaps_return() {
    model(|| {
        let fleet = fleet();
        let lease = fleet.scheduler.acquire_owned().expect("free");
        fleet.clock.advance(SHORT);
        let other = spawn(&fleet, |fleet| fleet.scheduler.drain_all(Timestamp::MAX).is_drained());
        let returned = lease.try_release().is_ok();
        assert!(other.join().expect("no panic"));
        assert_eq!(fleet.scheduler.stats().revoked, u64::from(!returned));
        assert_eq!(fleet.scheduler.undrain_all(), 1);
        at_rest(fleet, 1);
    });
}

/// It is renewed at that moment: it is taken back, or kept to, and then waited for.
#[test]
fn drain_reaps_renew() {
    model(|| {
        let fleet = fleet();
        let mut lease = fleet.scheduler.acquire_owned().expect("free");
        fleet.clock.advance(SHORT);
        let other = spawn(&fleet, |fleet| fleet.scheduler.drain_all(Timestamp::MAX).is_drained());
        let renewed = lease.renew(Duration::from_secs(1)).is_ok();
        assert_eq!(lease.is_revoked(), !renewed);
        drop(lease);
        assert!(other.join().expect("no panic"));
        assert_eq!(fleet.scheduler.stats().revoked, u64::from(!renewed));
        assert_eq!(fleet.scheduler.undrain_all(), 1);
        at_rest(fleet, 1);
    });
}

/// Somebody else looks for what is overdue: whichever of the two finds it, the drain is told.
#[test]
fn drain_reap_reap() {
    model(|| {
        let fleet = fleet();
        let lease = fleet.scheduler.acquire_owned().expect("free");
        fleet.clock.advance(SHORT);
        let other = spawn(&fleet, |fleet| fleet.scheduler.drain_all(Timestamp::MAX).is_drained());
        assert!(fleet.scheduler.reap_overdue() <= 1);
        assert!(other.join().expect("no panic"));
        assert_eq!(fleet.scheduler.stats().revoked, 1, "once");
        drop(lease);
        assert_eq!(fleet.scheduler.undrain_all(), 1);
        at_rest(fleet, 1);
    });
}

/// A task cannot look by itself: the timer does.
#[test]
fn drain_async_reaps() {
    model_within(1, || {
        let (fleet, calls) = fleet_with(1, |builder| builder.max_hold(SHORT).overdue(Overdue::Revoke));
        let lease = fleet.scheduler.acquire_owned().expect("free");
        let other = {
            let calls = Arc::clone(&calls);
            spawn(&fleet, move |fleet| {
                let report = block_on(fleet.scheduler.drain_all_async());
                calls.end();
                report.is_drained()
            })
        };
        calls.serve();
        assert!(other.join().expect("no panic"));
        assert!(lease.is_revoked());
        drop(lease);
        assert_eq!(fleet.scheduler.undrain_all(), 1);
        at_rest(fleet, 1);
    });
}

/// Somebody looks, and has put the next look off until it has seen when a lease is overdue: whoever goes to sleep meanwhile is woken at
/// that moment, not later.
fn reap(wait: fn(&Fleet) -> bool) {
    model_within(1, move || {
        let (fleet, calls) = fleet_with(1, |builder| builder.max_hold(SHORT).overdue(Overdue::Revoke));
        let lease = fleet.scheduler.acquire_owned().expect("free");
        fleet.clock.advance(SHORT / 2);
        let other = {
            let calls = Arc::clone(&calls);
            spawn(&fleet, move |fleet| {
                let came = wait(fleet);
                calls.end();
                came
            })
        };
        let _ = fleet.scheduler.reap_overdue();
        calls.serve();
        assert!(other.join().expect("no panic"));
        assert!(lease.is_revoked());
        assert_eq!(fleet.scheduler.revoked()[0].held_for, SHORT, "nobody overslept");
        drop(lease);
        let _ = fleet.scheduler.undrain_all();
        at_rest(fleet, 1);
    });
}

#[test]
fn reap_waiter() {
    reap(|fleet| block_on(fleet.scheduler.acquire_async()).is_ok());
}

#[test]
fn reap_drain() {
    reap(|fleet| block_on(fleet.scheduler.drain_all_async()).is_drained());
}
