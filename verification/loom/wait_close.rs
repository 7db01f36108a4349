//! Waiting: closing against each kind of those who wait. Each is told that it is closed, or has got what came back; and all that was on
//! its way lands: the units, the filter, the pin of a name.

use leasehold::{AcquireOwned, Fairness, OwnedLease, WaitError, internals::sync::Arc};
use loom::{future::block_on, thread};

use crate::{
    common::{model, model_within},
    driver::{Fleet, Res, Setup},
    told::Told,
    wait::{Task, at_rest, fleet, spawn, with},
};

fn close(fleet: &Fleet) {
    assert!(fleet.scheduler.close(), "the only one");
}

/// Nothing is out any more.
fn landed(fleet: Arc<Fleet>, told: Told) {
    told.demand(&fleet);
    at_rest(fleet, 0);
}

/// One begins to wait for what is lent, beside the close; it comes back afterwards.
fn close_register(bound: usize, ask: fn(&Fleet) -> Result<u8, WaitError>) {
    model_within(bound, move || {
        let fleet = fleet(Setup { shards: 2, ..Setup::default() }, 1);
        let lease = fleet.scheduler.acquire_owned().expect("free");
        let other = spawn(&fleet, ask);
        close(&fleet);
        assert_eq!(other.join().expect("no panic"), Err(WaitError::Closed));
        drop(lease);
        at_rest(fleet, 0);
    });
}

#[test]
fn close_register_named() {
    close_register(2, |fleet| block_on(fleet.scheduler.acquire_key_async(&0)).map(|lease| lease.check()));
}

#[test]
fn close_register_filter() {
    close_register(2, |fleet| {
        block_on(fleet.scheduler.acquire_where_async(|res| res.check() == 0)).map(|lease| lease.check())
    });
}

#[test]
fn close_register_near() {
    close_register(1, |fleet| {
        block_on(fleet.scheduler.acquire_by_affinity_async(&1)).map(|lease| lease.check())
    });
}

#[test]
fn close_register_many() {
    close_register(2, |fleet| {
        block_on(fleet.scheduler.acquire_many_async(2)).map(|leases| leases[0].check())
    });
}

/// As a thread: what ends its sleep is the close.
#[test]
fn close_register_thread() {
    close_register(2, |fleet| fleet.scheduler.request().key(&0).wait().map(|lease| lease.check()));
}

/// One waits for what comes back beside the close.
fn close_release(bound: usize, fairness: Fairness, ask: fn(&Fleet) -> AcquireOwned<Res>) {
    model_within(bound, move || {
        let fleet = with(Setup::default(), 1, fairness);
        let lease = fleet.scheduler.acquire_owned().expect("free");
        let mut told = Told { leases: 1, ..Told::default() };
        let mut task = Task::waiting(ask(&fleet));
        let other = spawn(&fleet, move |_| drop(lease));
        close(&fleet);
        other.join().expect("no panic");
        let ended = task.done();
        told.ended(&ended);
        assert!(!matches!(ended, Err(ref error) if *error != WaitError::Closed), "{:?}", ended.err());
        drop((ended, task));
        landed(fleet, told);
    });
}

#[test]
fn close_release_named() {
    close_release(2, Fairness::Strict, |fleet| fleet.scheduler.acquire_key_async_owned(&0));
}

#[test]
fn close_release_near() {
    close_release(1, Fairness::Strict, |fleet| fleet.scheduler.acquire_by_affinity_async_owned(&1));
}

/// The filter is being asked as its wait ends.
#[test]
fn close_release_filter() {
    close_release(2, Fairness::Strict, |fleet| {
        fleet.scheduler.acquire_where_async_owned(|res| {
            thread::yield_now();
            res.check() == 0
        })
    });
}

/// The nudge is on its way as the wait ends.
#[test]
fn close_release_nudge() {
    close_release(2, Fairness::Throughput, |fleet| fleet.scheduler.acquire_async_owned());
}

#[test]
fn close_release_nudge_named() {
    close_release(2, Fairness::Throughput, |fleet| fleet.scheduler.acquire_key_async_owned(&0));
}

/// Two units come to a filter, and one of them is parked there: all of it lands.
#[test]
fn close_parked() {
    model_within(1, || {
        let fleet = fleet(Setup::default(), 2);
        let leases = [(); 2].map(|()| fleet.scheduler.acquire_owned().expect("free"));
        let mut told = Told { leases: 2, ..Told::default() };
        let mut task = Task::waiting(fleet.scheduler.acquire_where_async_owned(|res| {
            thread::yield_now();
            res.check() == 1
        }));
        let others = leases.map(|lease| spawn(&fleet, move |_| drop(lease)));
        close(&fleet);
        for other in others {
            other.join().expect("no panic");
        }
        let ended = task.done();
        told.ended(&ended);
        assert!(
            ended.as_ref().is_ok_and(|lease| lease.check() == 1)
                || ended.as_ref().err() == Some(&WaitError::Closed)
        );
        drop((ended, task));
        landed(fleet, told);
    });
}

/// A filter that borrows is back before its owner's call returns, closed or served.
#[test]
fn close_release_borrowed_filter() {
    model_within(1, || {
        let fleet = fleet(Setup::default(), 1);
        let lease = fleet.scheduler.acquire_owned().expect("free");
        let returner = spawn(&fleet, move |_| drop(lease));
        let closer = spawn(&fleet, close);
        let mut asked = 0;
        let accepts = |res: &Res| {
            asked += 1;
            thread::yield_now();
            res.check() == 0
        };
        let waited = fleet.scheduler.request().matching(accepts).wait().map(|lease| lease.check());
        // Would race with a question that is still being asked.
        let _ = asked + 1;
        assert!(waited == Ok(0) || waited == Err(WaitError::Closed), "{waited:?}");
        returner.join().expect("no panic");
        closer.join().expect("no panic");
        at_rest(fleet, 0);
    });
}

/// Two units are lent, and one who waits for both has, or is about to get, `parts` of them as the next comes back beside the close.
fn close_collector(parts: usize) {
    model(move || {
        let fleet = fleet(Setup { shards: 2, ..Setup::default() }, 2);
        let mut leases: Vec<OwnedLease<Res>> = fleet.scheduler.acquire_many_owned(2).expect("free");
        let mut told = Told { leases: 2, ..Told::default() };
        let mut many = Task::waiting(fleet.scheduler.acquire_many_async_owned(2));
        leases.truncate(2 - parts);
        let next = leases.pop().expect("one is left");
        let other = spawn(&fleet, move |_| drop(next));
        close(&fleet);
        other.join().expect("no panic");
        drop(leases);
        let ended = many.done();
        match &ended {
            Ok(leases) => {
                assert_eq!((leases.len(), parts), (2, 1), "all or nothing");
                told.leases += 1;
            }
            Err(error) => assert_eq!(*error, WaitError::Closed),
        }
        told.ended(&ended);
        drop((ended, many));
        landed(fleet, told);
    });
}

/// Its first part is on its way.
#[test]
fn close_first_part() {
    close_collector(0);
}

/// It has a part, and the last unit is on its way.
#[test]
fn close_last_part() {
    close_collector(1);
}

/// Throughput: one was woken, in vain, for a passer-by came first. Whether it finds the close as it tries, before it stands in the queue
/// again, or in the queue, it is told.
fn close_nudged(ask: fn(&Fleet) -> AcquireOwned<Res>) {
    model(move || {
        let fleet = with(Setup::default(), 1, Fairness::Throughput);
        let lease = fleet.scheduler.acquire_owned().expect("free");
        let mut told = Told { leases: 2, ..Told::default() };
        let mut task = Task::waiting(ask(&fleet));
        drop(lease);
        let passer_by = fleet.scheduler.acquire_owned().expect("it is free, and one was woken for it");
        assert!(task.is_woken());
        let rings = task.rings();
        let other = spawn(&fleet, close);
        let early = task.poll();
        other.join().expect("no panic");
        let ended = early.unwrap_or_else(|| {
            assert!(task.rings() > rings, "told");
            task.poll().expect("told")
        });
        told.ended(&ended);
        assert_eq!(ended.err(), Some(WaitError::Closed));
        drop((passer_by, task));
        landed(fleet, told);
    });
}

#[test]
fn close_nudged_in_vain() {
    close_nudged(|fleet| fleet.scheduler.acquire_async_owned());
}

#[test]
fn close_nudged_in_vain_named() {
    close_nudged(|fleet| fleet.scheduler.acquire_key_async_owned(&0));
}

#[test]
fn close_nudged_in_vain_filter() {
    close_nudged(|fleet| fleet.scheduler.acquire_where_async_owned(|res| res.check() == 0));
}

/// It gives up instead.
#[test]
fn close_nudged_cancel() {
    model(|| {
        let fleet = with(Setup::default(), 1, Fairness::Throughput);
        let lease = fleet.scheduler.acquire_owned().expect("free");
        let first = Task::waiting(fleet.scheduler.acquire_async_owned());
        let mut second = Task::waiting(fleet.scheduler.acquire_async_owned());
        drop(lease);
        assert!(first.is_woken());
        let other = spawn(&fleet, close);
        drop(first);
        other.join().expect("no panic");
        assert_eq!(second.done().err(), Some(WaitError::Closed), "nothing is lent any more");
        drop(second);
        landed(fleet, Told { leases: 1, cancelled: 1, closed: 1, ..Told::default() });
    });
}
