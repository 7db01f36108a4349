//! The timer that wakes tasks, by story: nobody ticks, so whoever waits for what cools, or for its deadline, waits for a call. One that
//! is not asked for leaves a task asleep: a deadlock.

use std::{future::IntoFuture, sync::OnceLock, time::Duration};

use leasehold::{
    Builder, Fairness, Overdue, Timer, Timestamp, WaitError,
    internals::sync::{Arc, Clock, Condvar, ManualClock, Mutex, SplitMix64, thread},
};
use shuttle::{
    future::block_on,
    rand::{Rng, thread_rng},
};

use crate::{
    common::scenario,
    driver::{Fixed, Fleet, Res, Setup},
    tasks::{spawn, try_for, waits_have_ended},
};

const SHORT: Duration = Duration::from_nanos(10);
const MEMBERS: u8 = 2;

type Call = Box<dyn FnOnce() + Send>;

/// A timer that is one thread of the scenario. Time goes by only when it calls.
struct Calls {
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
        self.asked.lock().unwrap().calls.push((at, call));
        self.changed.notify_one();
    }
}

impl Calls {
    fn clock(&self) -> &ManualClock {
        self.clock.get().expect("the fleet is there")
    }

    /// Makes one call after another until the end, and then those that are left.
    fn run(&self) {
        loop {
            let mut asked = self.asked.lock().unwrap();
            while asked.calls.is_empty() && !asked.ended {
                asked = self.changed.wait(asked).unwrap();
            }
            let Some(first) = (0..asked.calls.len()).min_by_key(|&i| asked.calls[i].0) else { return };
            let (at, call) = asked.calls.swap_remove(first);
            drop(asked);
            self.clock().advance_to(Timestamp::from_nanos(at));
            call();
            // There may be a next moment for ever: others have their turn.
            thread::yield_now();
        }
    }

    fn end(&self) {
        self.asked.lock().unwrap().ended = true;
        self.changed.notify_one();
    }
}

fn fleet() -> (Fleet, Arc<Calls>) {
    fleet_with(|builder| builder)
}

fn fleet_with(more: impl FnOnce(Builder<Res, Fixed>) -> Builder<Res, Fixed>) -> (Fleet, Arc<Calls>) {
    let setup = Setup { shards: 2, units: 1, by_load: false, room: 0, rules: false, period: 1 };
    let fairness = if thread_rng().r#gen() { Fairness::Strict } else { Fairness::Throughput };
    let (asked, changed) = (Mutex::new(Asked::default()), Condvar::new());
    let calls = Arc::new(Calls { clock: OnceLock::new(), asked, changed });
    let fleet = Fleet::with(setup, |builder| more(builder.fairness(fairness).timer(Arc::clone(&calls))));
    assert!(calls.clock.set(Arc::clone(&fleet.clock)).is_ok());
    for key in 0..MEMBERS {
        fleet.scheduler.insert(fleet.resource(key)).expect("new");
    }
    (fleet, calls)
}

fn start(calls: &Arc<Calls>) -> thread::JoinHandle<()> {
    let calls = Arc::clone(calls);
    thread::spawn(move || calls.run())
}

/// Waits as a task in one of several ways; what it gets cools when it comes back, as a rule.
fn wait(fleet: &Fleet, random: &mut SplitMix64) -> Result<(), WaitError> {
    let scheduler = &fleet.scheduler;
    let key = random.below(u32::from(MEMBERS)) as u8;
    let time = SHORT * (1 + random.below(3));
    let ended = match random.below(6) {
        0 => block_on(scheduler.acquire_async()),
        1 => block_on(scheduler.acquire_key_async(&key)),
        2 => block_on(scheduler.request().timeout(time).into_future()),
        3 => block_on(scheduler.request().key(&key).timeout(time).into_future()),
        4 => block_on(scheduler.acquire_where_async(move |res| res.check() == key)),
        _ => match try_for(scheduler.request().timeout(time).into_future(), 1 + random.below(3)) {
            Some(ended) => ended,
            None => return Ok(()),
        },
    };
    let lease = ended?;
    lease.check();
    thread::yield_now();
    match random.below(3) {
        0 => drop(lease),
        cooling => lease.release_after(SHORT * cooling),
    }
    Ok(())
}

/// Tasks wait, cool what they had, time out and give up; somebody cools and warms by hand.
#[test]
fn a_timer_wakes_everybody() {
    scenario("a_timer_wakes_everybody", || {
        let (fleet, calls) = fleet();
        let fleet = Arc::new(fleet);
        let timer = start(&calls);
        let mut threads: Vec<_> = (0..3)
            .map(|_| {
                spawn(&fleet, |fleet, random| {
                    for _ in 0..2 {
                        match wait(fleet, random) {
                            Ok(()) | Err(WaitError::TimedOut { .. }) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                })
            })
            .collect();
        threads.push(spawn(&fleet, |fleet, random| {
            for _ in 0..2 {
                let key = random.below(u32::from(MEMBERS)) as u8;
                fleet.scheduler.cool(&key, SHORT * random.below(4)).expect("a member");
                if random.below(2) == 0 {
                    fleet.scheduler.warm(&key).expect("a member");
                }
            }
        }));
        for thread in threads {
            thread.join().expect("no panic");
        }
        calls.end();
        timer.join().expect("no panic");
        waits_have_ended(&fleet);
        assert_eq!(fleet.scheduler.check_invariants().in_flight, 0);
        fleet.clock.advance(Duration::from_secs(1));
        let all = fleet.scheduler.acquire_many(usize::from(MEMBERS)).expect("no unit is lost");
        assert!(fleet.scheduler.acquire().is_err(), "none is doubled");
        drop(all);
        let Ok(fleet) = Arc::try_unwrap(fleet) else { panic!("all threads are gone") };
        fleet.finish();
    });
}

/// Somebody closes while tasks wait for calls; and the scheduler is dropped while calls are still to be made, or one is being made.
#[test]
fn a_timer_outlives_its_scheduler() {
    scenario("a_timer_outlives_its_scheduler", || {
        let (fleet, calls) = fleet();
        let fleet = Arc::new(fleet);
        let timer = start(&calls);
        for key in 0..MEMBERS {
            fleet.scheduler.cool(&key, SHORT * (1 + u32::from(key))).expect("a member");
        }
        let threads: Vec<_> = (0..2)
            .map(|_| {
                spawn(&fleet, |fleet, random| match wait(fleet, random) {
                    Ok(()) | Err(WaitError::TimedOut { .. } | WaitError::Closed) => {}
                    Err(error) => panic!("{error}"),
                })
            })
            .collect();
        if thread_rng().r#gen() {
            assert!(fleet.scheduler.close());
        }
        for thread in threads {
            thread.join().expect("no panic");
        }
        // A wait that is given up leaves its call.
        let _ = try_for(fleet.scheduler.request().key(&0).timeout(SHORT).into_future(), 1);
        waits_have_ended(&fleet);
        drop(fleet);
        calls.end();
        timer.join().expect("no panic");
        assert_eq!(Arc::strong_count(&calls), 1, "the scheduler has let go of its timer");
    });
}

/// Tasks wait, and most of them keep what they get for as long as they may, or renew it: whoever waits behind them is woken as it is taken
/// back, and so is whoever waits for a drain in the end.
#[test]
fn a_timer_takes_back_what_is_overdue() {
    scenario("a_timer_takes_back_what_is_overdue", || {
        let (fleet, calls) = fleet_with(|builder| builder.max_hold(SHORT).overdue(Overdue::Revoke));
        let fleet = Arc::new(fleet);
        let timer = start(&calls);
        let threads: Vec<_> = (0..3)
            .map(|_| {
                spawn(&fleet, |fleet, random| {
                    let mut kept = Vec::new();
                    for _ in 0..2 {
                        let key = random.below(u32::from(MEMBERS)) as u8;
                        let lease = match random.below(4) {
                            0 => block_on(fleet.scheduler.acquire_key_async_owned(&key)),
                            1 => block_on(
                                fleet.scheduler.acquire_where_async_owned(move |res| res.check() == key),
                            ),
                            2 => match try_for(fleet.scheduler.acquire_async_owned(), 2) {
                                Some(ended) => ended,
                                None => continue,
                            },
                            _ => block_on(fleet.scheduler.acquire_async_owned()),
                        };
                        let mut lease = lease.expect("in the end");
                        match random.below(4) {
                            0 => drop(lease),
                            1 => {
                                // It may be taken back in the midst of it.
                                let _ = lease.renew(SHORT * 2);
                                kept.push(lease);
                            }
                            _ => kept.push(lease),
                        }
                    }
                    kept
                })
            })
            .collect();
        let kept: Vec<_> = threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect();
        assert!(block_on(fleet.scheduler.drain_all_async()).is_drained());
        assert!(kept.iter().all(|lease| lease.is_revoked()), "nobody is waited for any longer");
        drop(kept);
        calls.end();
        timer.join().expect("no panic");
        assert_eq!(fleet.scheduler.undrain_all(), usize::from(MEMBERS));
        waits_have_ended(&fleet);
        assert_eq!(fleet.scheduler.check_invariants().in_flight, 0);
        let all = fleet.scheduler.acquire_many(usize::from(MEMBERS)).expect("no unit is lost");
        assert!(fleet.scheduler.acquire().is_err(), "none is doubled");
        drop(all);
        let Ok(fleet) = Arc::try_unwrap(fleet) else { panic!("all threads are gone") };
        fleet.finish();
    });
}
