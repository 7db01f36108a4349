//! Waiting: time-outs at the very moment of the hand-off. Who has got the unit keeps it; who has not leaves it to the next one, who gets it
//! at once. The other one is of a lower class here: so it is the next one although it came first.
//!
//! There is no time in a model: whoever may wait for nothing times out by itself, as a thread does, with its place in the queue and all.

use std::time::Duration;

use leasehold::{Fairness, Timestamp, WaitError};
use loom::thread;

use crate::{
    common::{SHORT, model, model_within},
    driver::{Fleet, Res, Setup},
    told::Told,
    wait::{Task, at_rest, fleet, spawn, with},
};

/// One that has no time is the first, as a thread, as the one unit comes back; then it is the next one's.
fn next(bound: usize, fairness: Fairness, wait: fn(&Fleet) -> Result<u8, WaitError>) {
    model_within(bound, move || {
        let fleet = with(Setup::default(), 1, fairness);
        let lease = fleet.scheduler.acquire_owned().expect("free");
        let mut next = Task::waiting(fleet.scheduler.acquire_async_owned());
        let other = spawn(&fleet, wait);
        drop(lease);
        match other.join().expect("no panic") {
            Ok(key) => assert_eq!(key, 0),
            Err(error) => assert_eq!(error, WaitError::TimedOut { waited: Duration::ZERO }),
        }
        // Strict: one unit, one delivery.
        assert!(fairness == Fairness::Throughput || next.rings() == 1);
        drop(next.done().expect("the next one"));
        drop(next);
        at_rest(fleet, 1);
    });
}

#[test]
fn thread_release_next() {
    next(2, Fairness::Strict, |fleet| {
        fleet.scheduler.request().class(1).timeout(Duration::ZERO).wait().map(|lease| lease.check())
    });
}

#[test]
fn thread_release_next_named() {
    next(2, Fairness::Strict, |fleet| {
        fleet.scheduler.request().class(1).key(&0).timeout(Duration::ZERO).wait().map(|lease| lease.check())
    });
}

#[test]
fn thread_release_next_near() {
    next(1, Fairness::Strict, |fleet| {
        let request = fleet.scheduler.request().class(1).affinity(&1);
        request.timeout(Duration::ZERO).wait().map(|lease| lease.check())
    });
}

/// Its filter, which borrows, is being asked as its time is over.
#[test]
fn thread_release_next_filter() {
    next(2, Fairness::Strict, |fleet| {
        let mut asked = 0;
        let accepts = |res: &Res| {
            asked += 1;
            thread::yield_now();
            res.check() == 0
        };
        let request = fleet.scheduler.request().class(1).timeout(Duration::ZERO);
        let waited = request.matching(accepts).wait().map(|lease| lease.check());
        // Would race with a question that is still being asked.
        let _ = asked + 1;
        waited
    });
}

/// Throughput: the nudge goes on.
#[test]
fn thread_nudge_next() {
    next(2, Fairness::Throughput, |fleet| {
        fleet.scheduler.request().class(1).timeout(Duration::ZERO).wait().map(|lease| lease.check())
    });
}

#[test]
fn thread_nudge_next_named() {
    next(2, Fairness::Throughput, |fleet| {
        fleet.scheduler.request().class(1).key(&0).timeout(Duration::ZERO).wait().map(|lease| lease.check())
    });
}

/// It sleeps, or does not yet, as the time goes by, and then the unit comes back.
#[test]
fn sleeper_release_next() {
    model(|| {
        let fleet = fleet(Setup::default(), 1);
        let lease = fleet.scheduler.acquire_owned().expect("free");
        let mut next = Task::waiting(fleet.scheduler.acquire_async_owned());
        let other = spawn(&fleet, |fleet| {
            let deadline = Timestamp::ZERO.saturating_add(SHORT);
            fleet.scheduler.request().class(1).deadline(deadline).wait().map(|lease| lease.check())
        });
        fleet.clock.advance(SHORT);
        drop(lease);
        match other.join().expect("no panic") {
            Ok(key) => assert_eq!(key, 0),
            Err(WaitError::TimedOut { waited }) => assert!(waited.is_zero() || waited == SHORT),
            Err(error) => panic!("{error}"),
        }
        assert_eq!(next.rings(), 1, "one unit, one delivery");
        drop(next.done().expect("the next one"));
        drop(next);
        at_rest(fleet, 1);
    });
}

/// The time of one that collects is over, whatever it has by then: all of it goes to the others.
#[test]
fn collector_release_next() {
    model(|| {
        let fleet = fleet(Setup { shards: 2, ..Setup::default() }, 2);
        let one = fleet.scheduler.acquire_owned().expect("free");
        let two = fleet.scheduler.acquire_owned().expect("free");
        let mut nexts = [(); 2].map(|()| Task::waiting(fleet.scheduler.acquire_async_owned()));
        let other = spawn(&fleet, |fleet| {
            let request = fleet.scheduler.request().class(1).timeout(Duration::ZERO);
            request.many(2).wait().map(|leases| leases.len())
        });
        drop(one);
        drop(two);
        match other.join().expect("no panic") {
            Ok(count) => assert_eq!(count, 2),
            Err(error) => assert_eq!(error, WaitError::TimedOut { waited: Duration::ZERO }),
        }
        for next in &mut nexts {
            drop(next.done().expect("the next one"));
        }
        drop(nexts);
        at_rest(fleet, 2);
    });
}

/// As a task that is polled when its time is over, in the midst of the hand-off, or of the nudge.
fn polled(fairness: Fairness) {
    model(move || {
        let fleet = with(Setup::default(), 1, fairness);
        let lease = fleet.scheduler.acquire_owned().expect("free");
        let mut told = Told { leases: 1, ..Told::default() };
        let mut first = Task::waiting(fleet.scheduler.request().timeout(SHORT).owned());
        let mut second = Task::waiting(fleet.scheduler.acquire_async_owned());
        fleet.clock.advance(SHORT);
        let other = spawn(&fleet, move |_| drop(lease));
        let ended = first.poll().expect("its time is over");
        told.ended(&ended);
        match ended {
            Ok(lease) => drop(lease),
            Err(error) => assert_eq!(error, WaitError::TimedOut { waited: SHORT }),
        }
        other.join().expect("no panic");
        let ended = second.done();
        told.ended(&ended);
        drop(ended.expect("the next one"));
        drop((first, second));
        told.demand(&fleet);
        at_rest(fleet, 1);
    });
}

#[test]
fn poll_release_next() {
    polled(Fairness::Strict);
}

#[test]
fn poll_nudge_next() {
    polled(Fairness::Throughput);
}
