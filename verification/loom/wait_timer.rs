//! Waiting: the timer that wakes tasks, against cancellation, closing, earlier moments, and others who look after what is due. Whoever
//! forgets to ask for a moment leaves a task asleep for ever.
//!
//! Time goes by only when the timer calls: the clock is moved to the moment of the first call, and the call is made.

use std::{future::Future, sync::OnceLock, time::Duration};

use leasehold::{
    Builder, Timer, Timestamp, WaitError,
    internals::sync::{Arc, Clock, Condvar, ManualClock, Mutex},
};
use loom::future::block_on;

use crate::{
    common::{SHORT, model, model_within},
    driver::{Fixed, Fleet, Res, Setup},
    wait::{Task, at_rest, built, spawn},
};

const LONG: Duration = Duration::from_nanos(20);

type Call = Box<dyn FnOnce() + Send>;

/// A timer whose calls are made by hand.
pub struct Calls {
    clock: OnceLock<Arc<ManualClock>>,
    asked: Mutex<Asked>,
    changed: Condvar,
}

#[derive(Default)]
struct Asked {
    calls: Vec<(u64, Call)>,
    ended: bool,
}

impl Timer for Calls {
    fn call_after(&self, after: Duration, call: Call) {
        let at = self.clock().now().saturating_add(after).as_nanos();
        self.asked.lock().expect("no panic").calls.push((at, call));
        self.changed.notify_one();
    }
}

impl Asked {
    fn first(&mut self) -> Option<(u64, Call)> {
        let first = (0..self.calls.len()).min_by_key(|&i| self.calls[i].0)?;
        Some(self.calls.swap_remove(first))
    }
}

impl Calls {
    fn clock(&self) -> &ManualClock {
        self.clock.get().expect("the fleet is there")
    }

    fn make(&self, (at, call): (u64, Call)) {
        self.clock().advance_to(Timestamp::from_nanos(at));
        call();
    }

    /// Makes the first call, which somebody must have asked for.
    fn ring(&self) {
        let first = self.asked.lock().expect("no panic").first();
        self.make(first.expect("somebody has asked for the moment"));
    }

    /// Makes calls until the task is woken: the one that it needs, or first one that was asked for by whoever saw an earlier moment.
    fn wake<F: Future>(&self, task: &Task<F>) {
        for _ in 0..3 {
            if !task.is_woken() {
                self.ring();
            }
        }
    }

    /// Makes calls until the other thread has ended.
    pub fn serve(&self) {
        let mut asked = self.asked.lock().expect("no panic");
        while !asked.ended {
            match asked.first() {
                Some(first) => {
                    drop(asked);
                    self.make(first);
                    asked = self.asked.lock().expect("no panic");
                }
                None => asked = self.changed.wait(asked).expect("no panic"),
            }
        }
    }

    pub fn end(&self) {
        self.asked.lock().expect("no panic").ended = true;
        self.changed.notify_one();
    }
}

/// Resources 0 to `count`, and the timer.
fn fleet(count: u8) -> (Arc<Fleet>, Arc<Calls>) {
    fleet_with(count, |builder| builder)
}

pub fn fleet_with(
    count: u8,
    more: impl FnOnce(Builder<Res, Fixed>) -> Builder<Res, Fixed>,
) -> (Arc<Fleet>, Arc<Calls>) {
    let asked = Mutex::new(Asked::default());
    let calls = Arc::new(Calls { clock: OnceLock::new(), asked, changed: Condvar::new() });
    let fleet = built(Setup::default(), count, |builder| more(builder.timer(Arc::clone(&calls))));
    assert!(calls.clock.set(Arc::clone(&fleet.clock)).is_ok());
    (fleet, calls)
}

/// What is returned cools for a while; the task that waits for it registers before, meanwhile, or after.
#[test]
fn register_release_after() {
    model_within(1, || {
        let (fleet, calls) = fleet(1);
        let lease = fleet.scheduler.acquire_owned().expect("free");
        let other = {
            let calls = Arc::clone(&calls);
            spawn(&fleet, move |fleet| {
                let served = block_on(fleet.scheduler.acquire_async()).map(|lease| lease.check());
                calls.end();
                served
            })
        };
        lease.release_after(SHORT);
        calls.serve();
        assert_eq!(other.join().expect("no panic"), Ok(0));
        at_rest(fleet, 1);
    });
}

/// Nothing comes back, and time goes by.
#[test]
fn register_deadline() {
    model(|| {
        let (fleet, calls) = fleet(1);
        let lease = fleet.scheduler.acquire_owned().expect("free");
        let other = {
            let calls = Arc::clone(&calls);
            spawn(&fleet, move |fleet| {
                let ended = block_on(fleet.scheduler.request().timeout(SHORT).owned());
                calls.end();
                ended.map(|lease| lease.check())
            })
        };
        calls.serve();
        assert_eq!(other.join().expect("no panic"), Err(WaitError::TimedOut { waited: SHORT }));
        drop(lease);
        at_rest(fleet, 1);
    });
}

/// The timer calls for the one whose unit comes at that moment.
#[test]
fn ring_release() {
    model(|| {
        let (fleet, calls) = fleet(1);
        let lease = fleet.scheduler.acquire_owned().expect("free");
        let mut first = Task::waiting(fleet.scheduler.request().timeout(SHORT).owned());
        let mut second = Task::waiting(fleet.scheduler.acquire_async_owned());
        let other = spawn(&fleet, move |_| drop(lease));
        calls.ring();
        other.join().expect("no panic");
        match first.done() {
            Ok(lease) => drop(lease),
            Err(error) => assert_eq!(error, WaitError::TimedOut { waited: SHORT }),
        }
        drop(second.done().expect("the next one"));
        drop((first, second));
        at_rest(fleet, 1);
    });
}

/// The timer calls for one that gives up: the later one is asked for all the same.
#[test]
fn ring_cancel() {
    model(|| {
        let (fleet, calls) = fleet(1);
        let lease = fleet.scheduler.acquire_owned().expect("free");
        let first = Task::waiting(fleet.scheduler.request().timeout(SHORT).owned());
        let mut second = Task::waiting(fleet.scheduler.request().timeout(LONG).owned());
        let other = spawn(&fleet, move |_| drop(first));
        calls.ring();
        other.join().expect("no panic");
        assert!(!second.is_woken());
        calls.ring();
        assert_eq!(second.done().err(), Some(WaitError::TimedOut { waited: LONG }));
        drop((second, lease));
        at_rest(fleet, 1);
    });
}

/// One registers with a later deadline as the timer calls for an earlier one: either of them asks for it.
#[test]
fn ring_register() {
    model(|| {
        let (fleet, calls) = fleet(1);
        let lease = fleet.scheduler.acquire_owned().expect("free");
        let mut first = Task::waiting(fleet.scheduler.request().timeout(SHORT).owned());
        let other = spawn(&fleet, |fleet| {
            let deadline = Timestamp::ZERO.saturating_add(LONG);
            Task::waiting(fleet.scheduler.request().deadline(deadline).owned())
        });
        calls.ring();
        let mut second = other.join().expect("no panic");
        assert_eq!(first.done().err(), Some(WaitError::TimedOut { waited: SHORT }));
        assert!(!second.is_woken());
        calls.ring();
        assert!(matches!(second.done(), Err(WaitError::TimedOut { .. })));
        drop((first, second, lease));
        at_rest(fleet, 1);
    });
}

/// A far moment is asked for; two nearer ones come up at the same time, a cooling and a deadline. The nearest of all is not slept through.
#[test]
fn nearer_register_release_after() {
    model_within(1, || {
        let (fleet, calls) = fleet(1);
        let lease = fleet.scheduler.acquire_owned().expect("free");
        let mut first = Task::waiting(fleet.scheduler.request().timeout(2 * LONG).owned());
        let other = spawn(&fleet, |fleet| Task::waiting(fleet.scheduler.request().timeout(LONG).owned()));
        lease.release_after(SHORT);
        let mut second = other.join().expect("no panic");
        calls.ring();
        assert_eq!(fleet.clock.now(), Timestamp::ZERO.saturating_add(SHORT));
        drop(first.done().expect("warm"));
        drop(second.done().expect("the next one"));
        drop((first, second));
        at_rest(fleet, 1);
    });
}

/// What a task waits for cools for longer as the timer calls: it is warm then, or the later moment is asked for.
#[test]
fn ring_extend() {
    model(|| {
        let (fleet, calls) = fleet(1);
        fleet.scheduler.cool(&0, SHORT).expect("a member");
        let mut task = Task::waiting(fleet.scheduler.acquire_async_owned());
        let other = spawn(&fleet, |fleet| {
            fleet.scheduler.cool(&0, LONG).expect("a member");
        });
        calls.ring();
        other.join().expect("no panic");
        calls.wake(&task);
        drop(task.done().expect("warm"));
        drop(task);
        // It may have begun to cool once more when it was lent.
        fleet.clock.advance(2 * LONG);
        at_rest(fleet, 1);
    });
}

/// Somebody who acquires looks after what is due as the timer calls: the next moment is asked for by one of them.
#[test]
fn ring_acquire() {
    model_within(1, || {
        let (fleet, calls) = fleet(2);
        fleet.scheduler.cool(&0, SHORT).expect("a member");
        fleet.scheduler.cool(&1, LONG).expect("a member");
        let mut task = Task::waiting(fleet.scheduler.acquire_key_async_owned(&1));
        let first = calls.asked.lock().expect("no panic").first().expect("asked for");
        fleet.clock.advance(SHORT);
        let other = spawn(&fleet, |fleet| drop(fleet.scheduler.acquire()));
        calls.make(first);
        other.join().expect("no panic");
        assert!(!task.is_woken());
        calls.wake(&task);
        drop(task.done().expect("warm"));
        drop(task);
        at_rest(fleet, 2);
    });
}

/// The timer calls as the scheduler is closed: whoever waits is told one or the other.
#[test]
fn ring_close() {
    model(|| {
        let (fleet, calls) = fleet(1);
        fleet.scheduler.cool(&0, SHORT).expect("a member");
        let mut task = Task::waiting(fleet.scheduler.acquire_async_owned());
        let other = spawn(&fleet, |fleet| assert!(fleet.scheduler.close()));
        calls.ring();
        other.join().expect("no panic");
        match task.done() {
            Ok(lease) => drop(lease),
            Err(error) => assert_eq!(error, WaitError::Closed),
        }
        drop(task);
        at_rest(fleet, 0);
    });
}
