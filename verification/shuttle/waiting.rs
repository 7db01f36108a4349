//! Waiting, by story. A lost wake-up is a thread that waits when all others have ended: shuttle calls that a deadlock. In the end
//! nothing is out, every wait has ended once, and every unit can be had.

use std::{
    future::{Future, IntoFuture},
    task::{Context, Poll, Waker},
    time::Duration,
};

use leasehold::{
    Fairness, Timestamp, WaitError,
    internals::sync::{Arc, SplitMix64, thread},
};
use shuttle::{
    future::block_on,
    rand::{Rng, thread_rng},
};

use crate::{
    common::{scenario, scenario_at_least},
    driver::{Fleet, Res, Setup},
    tasks::{spawn, try_for, waits_have_ended},
};

const SHORT: Duration = Duration::from_nanos(10);
pub const MEMBERS: u8 = 3;
/// What everything is updated to in the end.
const LAST: u8 = 100;

pub fn fleet(fairness: Fairness) -> Arc<Fleet> {
    let setup = Setup { shards: 2, units: 1, by_load: false, room: 0, rules: false, period: 1 };
    let fleet = Arc::new(Fleet::with(setup, |builder| builder.fairness(fairness).ageing(2)));
    for key in 0..MEMBERS {
        fleet.scheduler.insert(fleet.resource(key)).expect("new");
    }
    fleet
}

pub fn fairness() -> Fairness {
    if thread_rng().r#gen() { Fairness::Strict } else { Fairness::Throughput }
}

pub fn at_rest(fleet: Arc<Fleet>) {
    waits_have_ended(&fleet);
    assert_eq!(fleet.scheduler.check_invariants().in_flight, 0);
    if !fleet.scheduler.is_closed() {
        fleet.clock.advance(Duration::from_secs(1));
        let all = fleet.scheduler.acquire_many(usize::from(MEMBERS)).expect("no unit is lost");
        assert!(fleet.scheduler.acquire().is_err(), "none is doubled");
        drop(all);
    }
    let Ok(fleet) = Arc::try_unwrap(fleet) else { panic!("all threads are gone") };
    fleet.finish();
}

/// Waits in one of all ways. `true` if it was for nothing.
fn wait_somehow(fleet: &Fleet, random: &mut SplitMix64) -> Result<(), WaitError> {
    let scheduler = &fleet.scheduler;
    let key = random.below(u32::from(MEMBERS)) as u8;
    let class = random.below(3) as u8;
    let tries = random.below(4);
    let check = |lease: leasehold::Lease<'_, Res>| {
        lease.check();
        thread::yield_now();
    };
    match random.below(11) {
        0 => block_on(scheduler.acquire_async()).map(check),
        1 => scheduler.request().class(class).wait().map(check),
        2 => block_on(scheduler.acquire_key_async(&key)).map(check),
        3 => scheduler.request().key(&key).class(class).wait().map(check),
        4 => block_on(scheduler.acquire_by_affinity_async(&key)).map(check),
        5 => {
            let mut asked = 0;
            let accepts = |res: &Res| {
                asked += 1;
                res.check() != key
            };
            scheduler.request().matching(accepts).class(class).wait().map(check)
        }
        6 => block_on(scheduler.acquire_where_async(move |res| res.check() != key)).map(check),
        7 => block_on(scheduler.acquire_many_async(2)).map(|leases| leases.into_iter().for_each(check)),
        8 => block_on(scheduler.acquire_where_async(|res| res.version == LAST)).map(check),
        9 => try_for(scheduler.request().key(&key).into_future(), tries).map_or(Ok(()), |got| got.map(check)),
        _ => try_for(scheduler.acquire_many_async(2), tries)
            .map_or(Ok(()), |got| got.map(|leases| leases.into_iter().for_each(check))),
    }
}

/// Waiters of all kinds, passers-by, cancellations, holds that come and go, resources that are removed and come back. Every wait
/// for what comes back ends.
fn everything(fairness: Fairness) {
    let fleet = fleet(fairness);
    let (mut waiters, mut others) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        waiters.push(spawn(&fleet, |fleet, random| {
            for _ in 0..3 {
                match wait_somehow(fleet, random) {
                    Ok(()) | Err(WaitError::NotFound) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }));
    }
    others.push(spawn(&fleet, |fleet, random| {
        for _ in 0..4 {
            match random.below(3) {
                0 => drop(fleet.scheduler.acquire()),
                1 => {
                    if let Ok(lease) = fleet.scheduler.acquire() {
                        lease.release_after(SHORT);
                    }
                }
                _ => {
                    let _ = fleet.scheduler.tick();
                }
            }
            fleet.clock.advance(SHORT);
        }
    }));
    others.push(spawn(&fleet, |fleet, random| {
        for _ in 0..3 {
            let key = random.below(u32::from(MEMBERS)) as u8;
            match random.below(4) {
                0 => {
                    fleet.scheduler.exclude(&key).expect("a member");
                    fleet.scheduler.include(&key).expect("a member");
                }
                1 => {
                    fleet.scheduler.remove(&key).expect("a member");
                    fleet.scheduler.insert(fleet.resource(key)).expect("removed");
                }
                2 => {
                    fleet.scheduler.remove(&key).expect("a member");
                    fleet.scheduler.insert_batch(vec![fleet.resource(key)]).expect("removed");
                }
                _ => fleet.scheduler.update_with(&key, |old| old.again(old.version + 1)).expect("a member"),
            }
        }
    }));
    for other in others {
        other.join().expect("no panic");
    }
    // What cools, or has been included since it was due, may be all that a task waits for, and no timer rings for it.
    fleet.clock.advance(SHORT);
    let _ = fleet.scheduler.tick();
    // What some wait for, while others return what they ask about.
    for key in 0..MEMBERS {
        fleet.scheduler.update_with(&key, |old| old.again(LAST)).expect("a member");
    }
    for waiter in waiters {
        waiter.join().expect("no panic");
    }
    at_rest(fleet);
}

#[test]
fn waiters_of_all_kinds() {
    scenario("waiters_of_all_kinds", || everything(Fairness::Strict));
}

#[test]
fn waiters_of_all_kinds_in_a_hurry() {
    scenario("waiters_of_all_kinds_in_a_hurry", || everything(Fairness::Throughput));
}

/// Threads that time out, at a tick of somebody else, while units are handed over.
#[test]
fn overdue_at_the_hand_off() {
    scenario("overdue_at_the_hand_off", || {
        let fleet = fleet(fairness());
        let mut threads = Vec::new();
        for _ in 0..3 {
            threads.push(spawn(&fleet, |fleet, random| {
                for _ in 0..3 {
                    let key = random.below(u32::from(MEMBERS)) as u8;
                    let waited = match random.below(3) {
                        0 => fleet.scheduler.acquire_timeout(SHORT),
                        1 => fleet.scheduler.acquire_key_timeout(&key, SHORT),
                        _ => fleet.scheduler.acquire_where_timeout(|res| res.check() == key, SHORT),
                    };
                    match waited {
                        Ok(lease) => assert!(lease.check() < MEMBERS),
                        Err(error) => assert!(matches!(error, WaitError::TimedOut { .. }), "{error}"),
                    }
                }
            }));
        }
        let leases = fleet.scheduler.acquire_many_owned(2);
        for lease in leases.into_iter().flatten() {
            thread::yield_now();
            drop(lease);
        }
        // All of them have time until then, or come later, when everything is free.
        fleet.clock.advance(SHORT);
        let _ = fleet.scheduler.tick();
        for thread in threads {
            thread.join().expect("no panic");
        }
        at_rest(fleet);
    });
}

/// So many schedules under each of the two schedulers, whatever the tier: 10,000 in all.
const SHUTDOWNS: usize = 5_000;

/// Somebody closes while everybody waits: nobody hangs, and returns after it land. Then somebody waits for the last lease, and nobody
/// ticks: what ends that wait is the return.
#[test]
fn shutdown() {
    scenario_at_least("shutdown", SHUTDOWNS, || {
        let fleet = fleet(fairness());
        let mut threads = Vec::new();
        let mut held = fleet.scheduler.acquire_many_owned(3).expect("free");
        let last = held.pop();
        for _ in 0..4 {
            threads.push(spawn(&fleet, |fleet, random| {
                for _ in 0..3 {
                    match wait_somehow(fleet, random) {
                        Err(WaitError::Closed) => assert!(fleet.scheduler.is_closed()),
                        Ok(()) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            }));
        }
        threads.push(spawn(&fleet, |fleet, _| assert!(fleet.scheduler.close(), "the only one")));
        for lease in held {
            thread::yield_now();
            drop(lease);
        }
        for thread in threads {
            thread.join().expect("no panic");
        }
        let returner = thread::spawn(move || drop(last));
        assert!(fleet.scheduler.drain_all(Timestamp::MAX).is_drained());
        returner.join().expect("no panic");
        at_rest(fleet);
    });
}

/// Somebody takes resources out, by an exclusion or for good, and asks afterwards, while others wait, collect and return: whatever was on
/// its way then, what was taken out is not lent to it.
#[test]
fn who_takes_out_and_asks_afterwards() {
    scenario("who_takes_out_and_asks_afterwards", || {
        let fleet = fleet(fairness());
        let threads: Vec<_> = (0..3)
            .map(|_| {
                spawn(&fleet, |fleet, random| {
                    for _ in 0..2 {
                        match random.below(3) {
                            0 => drop(try_for(fleet.scheduler.acquire_many_async(2), 3)),
                            1 => drop(try_for(fleet.scheduler.acquire_async(), 3)),
                            _ => drop(fleet.scheduler.acquire()),
                        }
                    }
                })
            })
            .collect();
        let gone = thread_rng().gen_range(0..MEMBERS);
        let removes = thread_rng().r#gen();
        if removes {
            fleet.scheduler.remove(&gone).expect("a member");
        } else {
            fleet.scheduler.exclude(&gone).expect("a member");
        }
        for _ in 0..2 {
            if let Some(asked) = try_for(fleet.scheduler.acquire_async(), 4) {
                assert_ne!(asked.expect("not closed").check(), gone, "it was taken out before");
            }
        }
        for thread in threads {
            thread.join().expect("no panic");
        }
        if removes {
            fleet.scheduler.insert(fleet.resource(gone)).expect("removed");
        } else {
            fleet.scheduler.include(&gone).expect("a member");
        }
        at_rest(fleet);
    });
}

/// Filters that take their time, so that more comes to one than whoever asks it goes on with: whoever is passed over looks for itself, and
/// is not forgotten.
#[test]
fn filters_that_others_come_to() {
    scenario("filters_that_others_come_to", || {
        let fleet = fleet(fairness());
        let held = fleet.scheduler.acquire_many_owned(usize::from(MEMBERS)).expect("free");
        let waiters = [2, 2, 1].map(|key| {
            spawn(&fleet, move |fleet, random| {
                let accepts = move |res: &Res| {
                    thread::yield_now();
                    res.check() == key
                };
                let request = fleet.scheduler.request().matching(accepts);
                let served =
                    if random.below(2) == 0 { request.wait() } else { block_on(request.into_future()) };
                assert_eq!(served.expect("it comes back").check(), key);
            })
        });
        let returners: Vec<_> = held.into_iter().map(|lease| thread::spawn(move || drop(lease))).collect();
        // Somebody gives up meanwhile.
        let key = thread_rng().gen_range(0..MEMBERS);
        drop(try_for(fleet.scheduler.acquire_where_async(move |res| res.check() == key), 3));
        for thread in waiters.into_iter().chain(returners) {
            thread.join().expect("no panic");
        }
        at_rest(fleet);
    });
}

/// FIFO: of those who wait for the same, whoever came first is served first.
#[test]
fn first_come_first_served() {
    scenario("first_come_first_served", || {
        let fleet = fleet(Fairness::Strict);
        let held = fleet.scheduler.acquire_many_owned(usize::from(MEMBERS)).expect("free");
        let mut first = Box::pin(fleet.scheduler.acquire_async_owned());
        assert!(first.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let others: Vec<_> = (0..2)
            .map(|_| spawn(&fleet, |fleet, _| drop(block_on(fleet.scheduler.acquire_async()))))
            .collect();
        let passer_by = spawn(&fleet, |fleet, _| drop(fleet.scheduler.acquire()));
        let mut held = held.into_iter();
        drop(held.next());
        let served = first.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let Poll::Ready(Ok(lease)) = served else { panic!("the first is served by the first return") };
        drop((lease, held));
        for thread in others.into_iter().chain([passer_by]) {
            thread.join().expect("no panic");
        }
        drop(first);
        at_rest(fleet);
    });
}
