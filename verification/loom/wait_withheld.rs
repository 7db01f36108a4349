//! Waiting: a unit is in somebody's hand, on its way to whoever waits, while its resource is taken out. Nobody who asks afterwards gets it.

use crate::{
    common::model,
    driver::{Fleet, Setup},
    wait::{Task, at_rest, fleet, spawn},
};

/// The one who waits gives up after resource 0 was taken out, and another one asks.
fn ask_after(take_out: impl Fn(&Fleet), undo: impl Fn(&Fleet)) {
    let fleet = fleet(Setup::default(), 2);
    let one = fleet.scheduler.acquire_key_owned(&0).expect("free");
    let other = fleet.scheduler.acquire_key_owned(&1).expect("free");
    let before = Task::waiting(fleet.scheduler.acquire_async_owned());
    let returner = spawn(&fleet, move |_| drop(one));
    take_out(&fleet);
    drop(before);
    let mut after = Task::new(fleet.scheduler.acquire_async_owned());
    assert!(after.poll().is_none(), "it was taken out before");
    returner.join().expect("no panic");
    assert!(after.poll().is_none(), "it was taken out before");
    drop(other);
    assert_eq!(after.done().expect("the other one").check(), 1);
    drop(after);
    undo(&fleet);
    at_rest(fleet, 2);
}

#[test]
fn ask_after_an_exclusion() {
    model(|| {
        ask_after(
            |fleet| assert!(fleet.scheduler.exclude(&0).is_ok()),
            |fleet| assert!(fleet.scheduler.include(&0).is_ok()),
        );
    });
}

#[test]
fn ask_after_a_removal() {
    model(|| {
        ask_after(
            |fleet| assert!(fleet.scheduler.remove(&0).is_ok()),
            |fleet| fleet.scheduler.insert(fleet.resource(0)).expect("it is gone"),
        );
    });
}
