//! Waiting: names among others. Whoever came first is served first, by name or not; and who waits for another resource is in nobody's way.

use leasehold::{AcquireOwned, WaitError, internals::sync::Arc};

use crate::{
    common::{model, model_within},
    driver::{Fleet, Res, Setup},
    told::Told,
    wait::{Task, at_rest, fleet, spawn},
};

fn named(fleet: &Fleet, key: u8) -> Task<AcquireOwned<Res>> {
    Task::waiting(fleet.scheduler.acquire_key_async_owned(&key))
}

fn open(fleet: &Fleet) -> Task<AcquireOwned<Res>> {
    Task::waiting(fleet.scheduler.acquire_async_owned())
}

/// Served one after the other by one unit, in this order, and nobody else is woken.
fn in_turn(tasks: Vec<Task<AcquireOwned<Res>>>) {
    let mut left = tasks.into_iter();
    while let Some(mut first) = left.next() {
        assert!(left.as_slice().iter().all(|task| !task.is_woken()), "it was before them");
        drop(first.done().expect("the unit"));
    }
}

/// A unit comes back while one gives up who is of no account: those who wait are served in turn.
fn release(wait: fn(&Fleet) -> Vec<Task<AcquireOwned<Res>>>, ask: fn(&Fleet) -> AcquireOwned<Res>) {
    model(move || {
        let fleet = fleet(Setup::default(), 2);
        let lease = fleet.scheduler.acquire_key_owned(&0).expect("free");
        let kept = fleet.scheduler.acquire_key_owned(&1).expect("free");
        let tasks = wait(&fleet);
        let gone = Task::waiting(ask(&fleet));
        let other = spawn(&fleet, move |_| drop(lease));
        drop(gone);
        other.join().expect("no panic");
        in_turn(tasks);
        drop(kept);
        at_rest(fleet, 2);
    });
}

#[test]
fn named_before_open_release() {
    release(|fleet| vec![named(fleet, 0), open(fleet)], |fleet| fleet.scheduler.acquire_async_owned());
}

#[test]
fn open_before_named_release() {
    release(|fleet| vec![open(fleet), named(fleet, 0)], |fleet| fleet.scheduler.acquire_key_async_owned(&0));
}

#[test]
fn named_before_named_release() {
    release(
        |fleet| vec![named(fleet, 0), named(fleet, 0)],
        |fleet| fleet.scheduler.acquire_key_async_owned(&1),
    );
}

/// The one that came first for the name gives up: the second of the name is next, before one that takes anything and came later.
#[test]
fn cancel_release_same_name() {
    model(|| {
        let fleet = fleet(Setup::default(), 1);
        let lease = fleet.scheduler.acquire_owned().expect("free");
        let first = named(&fleet, 0);
        let rest = vec![named(&fleet, 0), open(&fleet)];
        let other = spawn(&fleet, move |_| drop(lease));
        drop(first);
        other.join().expect("no panic");
        in_turn(rest);
        at_rest(fleet, 1);
    });
}

/// Two resources come back at once: one is wanted by name, and the other is for whoever takes anything, though that one came later.
#[test]
fn release_release_of_another_name() {
    model(|| {
        let fleet = fleet(Setup { shards: 2, ..Setup::default() }, 2);
        let zero = fleet.scheduler.acquire_key_owned(&0).expect("free");
        let one = fleet.scheduler.acquire_key_owned(&1).expect("free");
        let mut by_name = named(&fleet, 1);
        let mut any = open(&fleet);
        let other = spawn(&fleet, move |_| drop(one));
        drop(zero);
        other.join().expect("no panic");
        let leases = [by_name.done(), any.done()].map(|ended| ended.expect("the unit"));
        assert_eq!([leases[0].check(), leases[1].check()], [1, 0]);
        drop((by_name, any, leases));
        at_rest(fleet, 2);
    });
}

/// Nobody waits but for another resource: what comes back is free, and whoever then asks for it by name has it.
#[test]
fn release_beside_another_name() {
    model(|| {
        let fleet = fleet(Setup::default(), 2);
        let zero = fleet.scheduler.acquire_key_owned(&0).expect("free");
        let one = fleet.scheduler.acquire_key_owned(&1).expect("free");
        let mut waits = named(&fleet, 1);
        let other = spawn(&fleet, move |_| drop(zero));
        let mut second = Task::new(fleet.scheduler.acquire_key_async_owned(&0));
        let early = second.poll();
        other.join().expect("no panic");
        let lease = early.unwrap_or_else(|| second.done()).expect("it came back");
        assert_eq!((lease.check(), waits.is_woken()), (0, false));
        drop((lease, second, one));
        drop(waits.done().expect("the unit"));
        drop(waits);
        at_rest(fleet, 2);
    });
}

/// The resource is removed while its unit comes back: its waiter is told, or has it; who takes anything is served by the newcomer.
#[test]
fn remove_release_next() {
    model_within(2, || {
        let fleet: Arc<Fleet> = fleet(Setup::default(), 1);
        let lease = fleet.scheduler.acquire_owned().expect("free");
        let mut told = Told { leases: 1, ..Told::default() };
        let (mut by_name, mut any) = (named(&fleet, 0), open(&fleet));
        let other = spawn(&fleet, move |_| drop(lease));
        fleet.scheduler.remove(&0).expect("a member");
        other.join().expect("no panic");
        let ended = by_name.done();
        told.ended(&ended);
        assert!(
            ended.as_ref().is_ok_and(|lease| lease.check() == 0)
                || ended.as_ref().err() == Some(&WaitError::NotFound)
        );
        drop((ended, by_name));
        assert!(!any.is_woken(), "nothing was eligible but for the one before it");
        fleet.scheduler.insert(fleet.resource(0)).expect("removed");
        let ended = any.done();
        told.ended(&ended);
        drop((ended, any));
        told.demand(&fleet);
        at_rest(fleet, 1);
    });
}
