//! Cooling: the hint of the earliest deadline (`Core::earliest`) never lasts later than what cools, and a thaw warms each
//! resource once.
//!
//! One resource is due and is thawed by an acquisition, while another one starts to cool, in the same shard or another.
//! Afterwards the second deadline comes too, and a peek, which trusts the hint alone, must find it.

use leasehold::internals::sync::Arc;

use crate::{
    common::{SHORT, model_within},
    driver::{Fleet, Setup},
};

/// Resources 0, cooling and due, and 1. `main` makes 1 cool until `2 * SHORT` from the beginning, against a thaw.
fn thawing(shards: usize, main: fn(&Fleet)) {
    model_within(if shards == 1 { 2 } else { 1 }, move || {
        let fleet = Arc::new(Fleet::new(Setup { shards, ..Setup::default() }));
        for key in 0..2 {
            fleet.scheduler.insert(fleet.resource(key)).expect("new");
        }
        fleet.scheduler.cool(&0, SHORT).expect("a member");
        fleet.clock.advance(SHORT);
        let other = {
            let fleet = Arc::clone(&fleet);
            crate::common::spawn(move || drop(fleet.scheduler.acquire_key(&0).expect("due")))
        };
        main(&fleet);
        other.join().expect("no panic");
        fleet.scheduler.check_invariants();
        fleet.scheduler.exclude(&0).expect("a member");
        assert!(fleet.scheduler.peek().is_none(), "1 cools");
        fleet.clock.advance(SHORT);
        assert_eq!(fleet.scheduler.peek().map(|found| found.check()), Some(1), "its deadline has come");
        let Ok(fleet) = Arc::try_unwrap(fleet) else { panic!("all threads are gone") };
        fleet.finish();
    });
}

fn cool(fleet: &Fleet) {
    fleet.scheduler.cool(&1, SHORT).expect("a member");
}

#[test]
fn cool_thaw() {
    thawing(1, cool);
}

#[test]
fn cool_thaw_two_shards() {
    thawing(2, cool);
}

#[test]
fn release_after_thaw() {
    thawing(2, |fleet| fleet.scheduler.acquire_key(&1).expect("eligible").release_after(SHORT));
}

/// The deadline was there all the time, behind another hold.
#[test]
fn include_thaw() {
    thawing(2, |fleet| {
        fleet.scheduler.exclude(&1).expect("a member");
        fleet.scheduler.cool(&1, SHORT).expect("a member");
        fleet.scheduler.include(&1).expect("a member");
    });
}

/// The deadline was there all the time, behind a lease.
#[test]
fn release_of_a_cooling_one_thaw() {
    thawing(2, |fleet| {
        let lease = fleet.scheduler.acquire_key(&1).expect("eligible");
        fleet.scheduler.cool(&1, SHORT).expect("a member");
        drop(lease);
    });
}

/// Two thaws of one resource: it is warmed once, and both find it in some order.
#[test]
fn thaw_thaw() {
    model_within(2, || {
        let fleet = Arc::new(Fleet::new(Setup { units: 2, ..Setup::default() }));
        fleet.scheduler.insert(fleet.resource(0)).expect("new");
        fleet.scheduler.cool(&0, SHORT).expect("a member");
        fleet.clock.advance(SHORT);
        let other = {
            let fleet = Arc::clone(&fleet);
            crate::common::spawn(move || fleet.scheduler.acquire_key(&0).is_ok())
        };
        let mine = fleet.scheduler.acquire_key(&0).is_ok();
        assert!(mine && other.join().expect("no panic"), "due, and there are two units");
        assert_eq!(fleet.scheduler.stats().warmed, 1);
        let Ok(fleet) = Arc::try_unwrap(fleet) else { panic!("all threads are gone") };
        fleet.finish();
    });
}

/// The deadline is moved while a thaw looks at it: the later one counts.
#[test]
fn extend_thaw() {
    model_within(2, || {
        let fleet = Arc::new(Fleet::new(Setup::default()));
        fleet.scheduler.insert(fleet.resource(0)).expect("new");
        fleet.scheduler.cool(&0, SHORT).expect("a member");
        fleet.clock.advance(SHORT);
        let other = {
            let fleet = Arc::clone(&fleet);
            crate::common::spawn(move || fleet.scheduler.acquire_key(&0).is_ok())
        };
        fleet.scheduler.cool(&0, SHORT).expect("a member");
        other.join().expect("no panic");
        assert!(fleet.scheduler.acquire().is_err(), "it cools, whoever came first");
        fleet.clock.advance(SHORT);
        assert!(fleet.scheduler.peek().is_some(), "its deadline has come");
        let Ok(fleet) = Arc::try_unwrap(fleet) else { panic!("all threads are gone") };
        fleet.finish();
    });
}
