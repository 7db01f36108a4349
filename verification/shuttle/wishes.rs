//! Each kind of those who wait by itself, by story: names in their turn, ids, collectors, probes; and how each end is counted.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
    time::Duration,
};

use leasehold::{
    AcquireOwned, Backoff, Ejection, Fairness, Outcome, OwnedLease, WaitError,
    internals::sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
        thread,
    },
};
use shuttle::{
    future::block_on,
    rand::{Rng, thread_rng},
};

use crate::{
    common::scenario,
    driver::{Fleet, Res, Setup},
    tasks::{spawn, try_for},
    told::Told,
    waiting::{MEMBERS, at_rest, fairness, fleet},
};

const SHORT: Duration = Duration::from_nanos(10);

fn poll(future: &mut AcquireOwned<Res>) -> Option<OwnedLease<Res>> {
    match Pin::new(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(ended) => Some(ended.expect("a member, and open")),
        Poll::Pending => None,
    }
}

/// Some wait by name, some for anything, some near to an id, and one of them gives up while all three resources come back: nobody is
/// overtaken by one who came later for what he would have taken; what somebody wants is not free; and then all are served, in turn.
#[test]
fn names_in_turn() {
    scenario("names_in_turn", || {
        let fleet = fleet(Fairness::Strict);
        let held = fleet.scheduler.acquire_many_owned(usize::from(MEMBERS)).expect("free");
        // Whom each would take, in the order in which they came.
        let mut waiting: Vec<(Option<u8>, AcquireOwned<Res>)> = (0..5)
            .map(|_| {
                let key = thread_rng().gen_range(0..MEMBERS);
                let (wants, mut future) = match thread_rng().gen_range(0..4) {
                    0 => (None, fleet.scheduler.acquire_async_owned()),
                    1 => (None, fleet.scheduler.acquire_by_affinity_async_owned(&key)),
                    _ => (Some(key), fleet.scheduler.acquire_key_async_owned(&key)),
                };
                assert!(poll(&mut future).is_none(), "all is lent");
                (wants, future)
            })
            .collect();
        let gone = waiting.remove(thread_rng().gen_range(0..waiting.len()));
        let mut threads: Vec<_> = held.into_iter().map(|lease| thread::spawn(move || drop(lease))).collect();
        threads.push(thread::spawn(move || drop(gone)));
        for thread in threads {
            thread.join().expect("no panic");
        }
        let takes = |wants: Option<u8>, key: u8| wants.is_none_or(|wanted| wanted == key);
        while !waiting.is_empty() {
            let served: Vec<_> = waiting.iter_mut().map(|(_, future)| poll(future)).collect();
            for (later, lease) in served.iter().enumerate() {
                let Some(key) = lease.as_ref().map(|lease| lease.check()) else { continue };
                let overtaken = (0..later).find(|&i| served[i].is_none() && takes(waiting[i].0, key));
                assert_eq!(overtaken, None, "{key} is for one who came before {later}");
            }
            let lent: Vec<u8> = served.iter().flatten().map(|lease| lease.check()).collect();
            for (i, (wants, _)) in waiting.iter().enumerate() {
                let is_free = |key: u8| !lent.contains(&key) && takes(*wants, key);
                assert!(served[i].is_some() || !(0..MEMBERS).any(is_free), "it waits beside what it wants");
            }
            assert!(!lent.is_empty(), "somebody is served");
            let mut lasts = served.iter().map(Option::is_none);
            waiting.retain(|_| lasts.next().expect("as many"));
        }
        at_rest(fleet);
    });
}

/// Threads and tasks wait near to ids, whose ring is built late and changes with the weights, while resources are taken out and come back.
#[test]
fn near_to_an_id() {
    scenario("near_to_an_id", || {
        let fleet = fleet(fairness());
        let waiters: Vec<_> = (0..4)
            .map(|_| {
                spawn(&fleet, |fleet, random| {
                    for _ in 0..2 {
                        let id = random.below(16);
                        let near = || fleet.scheduler.request().affinity(&id).class(1);
                        let served = match random.below(3) {
                            0 => near().wait_owned(),
                            1 => block_on(near().owned()),
                            _ => match try_for(near().owned(), 2) {
                                Some(ended) => ended,
                                None => continue,
                            },
                        };
                        served.expect("in the end").check();
                        thread::yield_now();
                    }
                })
            })
            .collect();
        let others = [
            spawn(&fleet, |fleet, random| {
                fleet.scheduler.set_shard_weights(&[1, 1 + random.below(4)]).expect("two shards");
            }),
            spawn(&fleet, |fleet, random| {
                let key = random.below(u32::from(MEMBERS)) as u8;
                fleet.scheduler.exclude(&key).expect("a member");
                fleet.scheduler.include(&key).expect("a member");
            }),
        ];
        for thread in waiters.into_iter().chain(others) {
            thread.join().expect("no panic");
        }
        at_rest(fleet);
    });
}

/// Several want several, up to all that there is; some give up with what they have, and some run out of time; a resource is removed and comes
/// back. No two wait for each other.
#[test]
fn collectors() {
    scenario("collectors", || {
        let fleet = fleet(fairness());
        let waiters: Vec<_> = (0..3)
            .map(|_| {
                spawn(&fleet, |fleet, random| {
                    for _ in 0..2 {
                        let (count, class) = (2 + random.below(2) as usize, random.below(2) as u8);
                        let request = || fleet.scheduler.request().class(class).many(count);
                        let ended = match random.below(4) {
                            0 => request().wait_owned(),
                            1 => block_on(request().owned()),
                            2 => match try_for(request().owned(), 1 + random.below(3)) {
                                Some(ended) => ended,
                                None => continue,
                            },
                            _ => fleet.scheduler.request().timeout(Duration::ZERO).many(count).wait_owned(),
                        };
                        match ended {
                            Ok(leases) => {
                                assert_eq!(leases.len(), count, "all of them");
                                leases.iter().for_each(|lease| assert!(lease.check() < MEMBERS));
                                thread::yield_now();
                            }
                            Err(error) => assert!(matches!(error, WaitError::TimedOut { .. }), "{error}"),
                        }
                    }
                })
            })
            .collect();
        let others = [
            spawn(&fleet, |fleet, _| {
                for _ in 0..2 {
                    if let Ok(lease) = fleet.scheduler.acquire_owned() {
                        lease.check();
                        thread::yield_now();
                    }
                }
            }),
            spawn(&fleet, |fleet, random| {
                let key = random.below(u32::from(MEMBERS)) as u8;
                fleet.scheduler.remove(&key).expect("a member");
                fleet.scheduler.insert(fleet.resource(key)).expect("removed");
            }),
        ];
        for thread in waiters.into_iter().chain(others) {
            thread.join().expect("no panic");
        }
        at_rest(fleet);
    });
}

/// Those who wait get probes of what was ejected, and fail or not; somebody lets time go by. Nobody is forgotten, and in the end all comes
/// back.
#[test]
fn probes_for_those_who_wait() {
    const OK: Outcome = Outcome::Ok { latency: Duration::from_nanos(1) };
    scenario("probes_for_those_who_wait", || {
        let ramp = if thread_rng().r#gen() { SHORT } else { Duration::ZERO };
        let rules = Ejection::default()
            .consecutive_failures(1)
            .max_share(100)
            .jitter(0)
            .base(SHORT)
            .longest(SHORT)
            .without_place(Backoff::Fixed(SHORT))
            .ramp(ramp);
        let setup = Setup { shards: 2, units: 2, by_load: false, room: 0, rules: false, period: 1 };
        let fairness = fairness();
        let fleet = Arc::new(Fleet::with(setup, |builder| builder.fairness(fairness).ejection(rules)));
        for key in 0..2 {
            fleet.scheduler.insert(fleet.resource(key)).expect("new");
        }
        let over = Arc::new(AtomicBool::new(false));
        let time = {
            let over = Arc::clone(&over);
            spawn(&fleet, move |fleet, _| {
                while !over.load(SeqCst) {
                    fleet.clock.advance(SHORT / 2);
                    let _ = fleet.scheduler.tick();
                    thread::yield_now();
                }
            })
        };
        let threads: Vec<_> = (0..3)
            .map(|_| {
                spawn(&fleet, |fleet, random| {
                    for _ in 0..3 {
                        let key = random.below(2) as u8;
                        let ended = match random.below(4) {
                            0 => block_on(fleet.scheduler.acquire_key_async_owned(&key)),
                            1 => fleet.scheduler.request().wait_owned(),
                            2 => match try_for(fleet.scheduler.acquire_async_owned(), 2) {
                                Some(ended) => ended,
                                None => continue,
                            },
                            _ => block_on(fleet.scheduler.acquire_async_owned()),
                        };
                        let lease = ended.expect("in the end");
                        lease.check();
                        thread::yield_now();
                        match random.below(3) {
                            0 => lease.finish(OK),
                            1 => drop(lease),
                            _ => lease.finish(Outcome::Failed),
                        }
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("no panic");
        }
        over.store(true, SeqCst);
        time.join().expect("no panic");
        // By one probe each, which goes well.
        fleet.clock.advance(2 * SHORT);
        for key in 0..2 {
            fleet.scheduler.acquire_key(&key).expect("due, or well").finish(OK);
        }
        fleet.clock.advance(2 * SHORT);
        let _ = fleet.scheduler.tick();
        crate::tasks::waits_have_ended(&fleet);
        let all = fleet.scheduler.acquire_many(4).expect("no unit is lost");
        assert!(fleet.scheduler.acquire().is_err(), "none is doubled");
        drop(all);
        assert_eq!(fleet.scheduler.check_invariants().in_flight, 0);
        let Ok(fleet) = Arc::try_unwrap(fleet) else { panic!("all threads are gone") };
        fleet.finish();
    });
}

/// What one thread was told: after it had waited for it, and at once.
type Book = (Told, Told);

/// Waits as a task; `None` if it gives up after so many polls.
fn ask<T>(
    future: impl Future<Output = Result<T, WaitError>>,
    polls: Option<u32>,
    (told, at_once): &mut Book,
) -> Option<Result<T, WaitError>> {
    let mut future = pin!(future);
    let mut waits = false;
    let noting = poll_fn(|context| {
        let polled = future.as_mut().poll(context);
        waits |= polled.is_pending();
        polled
    });
    let ended = match polls {
        None => Some(block_on(noting)),
        Some(times) => try_for(noting, times),
    };
    match &ended {
        None => told.cancelled += 1,
        Some(ended) if waits => told.ended(ended),
        Some(ended) => at_once.ended(ended),
    }
    ended
}

/// Waits that end in every way there is: each is counted as what it was told, in its kind, and each unit that was nobody's lease is.
#[test]
fn each_end_is_counted_as_what_it_was() {
    scenario("each_end_is_counted_as_what_it_was", || {
        let setup = Setup { shards: 2, units: 1, by_load: false, room: 0, rules: false, period: 1 };
        let fairness = fairness();
        let fleet =
            Arc::new(Fleet::with(setup, |builder| builder.fairness(fairness).max_waiters(3).shed_late(true)));
        for key in 0..MEMBERS {
            fleet.scheduler.insert(fleet.resource(key)).expect("new");
        }
        let held = fleet.scheduler.acquire_many_owned(usize::from(MEMBERS)).expect("free");
        let threads: Vec<_> = (0..4)
            .map(|_| {
                spawn(&fleet, |fleet, random| {
                    let mut book = Book::default();
                    for _ in 0..3 {
                        let key = random.below(u32::from(MEMBERS)) as u8;
                        let request = fleet.scheduler.request().class(random.below(2) as u8);
                        let request = match random.below(3) {
                            0 => request,
                            time => request.timeout(SHORT * (time - 1)),
                        };
                        let polls = (random.below(2) == 0).then(|| 1 + random.below(2));
                        match random.below(4) {
                            0 => {
                                let accepts = move |res: &Res| res.check() != key;
                                drop(ask(request.matching(accepts).owned(), polls, &mut book));
                            }
                            1 => {
                                let many = ask(request.many(2).owned(), polls, &mut book);
                                book.0.leases += u64::from(matches!(many, Some(Ok(_))));
                            }
                            2 => drop(ask(request.key(&key).owned(), polls, &mut book)),
                            _ => drop(ask(request.owned(), polls, &mut book)),
                        }
                    }
                    book
                })
            })
            .collect();
        let other = spawn(&fleet, |fleet, random| {
            let key = random.below(u32::from(MEMBERS)) as u8;
            fleet.scheduler.remove(&key).expect("a member");
            fleet.scheduler.insert(fleet.resource(key)).expect("removed");
        });
        for lease in held {
            thread::yield_now();
            drop(lease);
        }
        fleet.clock.advance(SHORT);
        let _ = fleet.scheduler.tick();
        other.join().expect("no panic");
        // Whoever waits without a deadline is served, or told that nothing comes any more.
        if thread_rng().r#gen() {
            assert!(fleet.scheduler.close());
        }
        let mut told = Told { leases: u64::from(MEMBERS), ..Told::default() };
        let mut at_once = Told::default();
        for thread in threads {
            let (after, before) = thread.join().expect("no panic");
            (told, at_once) = (told.and(after), at_once.and(before));
        }
        told.demand_but_for(at_once, &fleet);
        at_rest(fleet);
    });
}
