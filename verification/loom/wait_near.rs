//! Waiting: near to an id. The id's own shard is looked at first, and all others as well; whatever comes back is for whoever waits, near or
//! not, in order.

use leasehold::Affinity;
use loom::future::block_on;

use crate::{
    common::model_within,
    driver::{Fleet, Setup},
    wait::{Task, at_rest, built, fleet, spawn},
};

fn two_shards() -> Setup {
    Setup { shards: 2, ..Setup::default() }
}

/// One waits near to an id, whose ring may not have been built yet, as the only resource comes back, in the id's own shard or the other one.
fn register_release(key: u8, affinity: Affinity) {
    model_within(1, move || {
        let fleet = built(two_shards(), 0, |builder| builder.affinity(affinity));
        fleet.scheduler.insert(fleet.resource(key)).expect("new");
        let lease = fleet.scheduler.acquire_owned().expect("free");
        let other = spawn(&fleet, |fleet| {
            block_on(fleet.scheduler.acquire_by_affinity_async(&7)).map(|lease| lease.check())
        });
        drop(lease);
        assert_eq!(other.join().expect("no panic"), Ok(key));
        at_rest(fleet, 1);
    });
}

#[test]
fn near_register_release() {
    register_release(0, Affinity::Shard);
}

#[test]
fn near_register_release_in_the_other_shard() {
    register_release(1, Affinity::Shard);
}

#[test]
fn near_register_release_of_its_own() {
    register_release(0, Affinity::Resource);
}

#[test]
fn near_register_release_of_its_own_in_the_other_shard() {
    register_release(1, Affinity::Resource);
}

/// The look is all that it has: what is free came before it stood in the queue, and is in either shard. A waiter by name keeps it from trying
/// before it registers.
fn look(key: u8) {
    model_within(1, move || {
        let fleet = fleet(two_shards(), 3);
        let held = fleet.scheduler.acquire_key_owned(&2).expect("free");
        let other_one = fleet.scheduler.acquire_key_owned(&(1 - key)).expect("free");
        let mut named = Task::waiting(fleet.scheduler.acquire_key_async_owned(&2));
        let other = spawn(&fleet, |fleet| {
            block_on(fleet.scheduler.acquire_by_affinity_async_owned(&7)).expect("it is free").check()
        });
        drop(held);
        assert_eq!(other.join().expect("no panic"), key);
        drop(named.done().expect("the unit"));
        drop((named, other_one));
        at_rest(fleet, 3);
    });
}

#[test]
fn near_look_in_the_first_shard() {
    look(0);
}

#[test]
fn near_look_in_the_second_shard() {
    look(1);
}

/// One that is near, and gives up, is no different from any other: the unit is the next one's.
#[test]
fn near_cancel_release() {
    model_within(1, || {
        let fleet = fleet(two_shards(), 1);
        let lease = fleet.scheduler.acquire_owned().expect("free");
        let first = Task::waiting(fleet.scheduler.acquire_by_affinity_async_owned(&7));
        let mut second = Task::waiting(fleet.scheduler.acquire_by_affinity_async_owned(&8));
        let other = spawn(&fleet, move |_| drop(lease));
        drop(first);
        other.join().expect("no panic");
        drop(second.done().expect("the next one"));
        drop(second);
        at_rest(fleet, 1);
    });
}

/// Near or not, whoever came first is served first.
#[test]
fn near_newcomer() {
    model_within(1, || {
        let fleet = fleet(two_shards(), 1);
        let lease = fleet.scheduler.acquire_owned().expect("free");
        let mut first = Task::waiting(fleet.scheduler.acquire_async_owned());
        let other = spawn(&fleet, move |_| drop(lease));
        let mut second = Task::waiting(fleet.scheduler.acquire_by_affinity_async_owned(&7));
        other.join().expect("no panic");
        assert!(!second.is_woken(), "one unit");
        drop(first.done().expect("handed over"));
        drop(second.done().expect("handed over"));
        drop((first, second));
        at_rest(fleet, 1);
    });
}

/// The weights of the shards, and with them the ring, are set anew while it looks.
#[test]
fn near_register_weights() {
    model_within(1, || {
        let fleet = fleet(two_shards(), 1);
        let lease = fleet.scheduler.acquire_owned().expect("free");
        let other = spawn(&fleet, |fleet: &Fleet| {
            block_on(fleet.scheduler.acquire_by_affinity_async(&7)).map(|lease| lease.check())
        });
        fleet.scheduler.set_shard_weights(&[1, 3]).expect("two shards");
        drop(lease);
        assert_eq!(other.join().expect("no panic"), Ok(0));
        at_rest(fleet, 1);
    });
}
