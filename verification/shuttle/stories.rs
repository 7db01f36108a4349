//! The whole scheduler, by story. Each ends in quiescence: the structure is consistent, and every resource is dropped once.

use std::time::Duration;

use leasehold::{
    AcquireError, Backoff, Ejection, Outcome, Phase, Token,
    internals::sync::{
        Arc, Mutex, SplitMix64,
        atomic::{AtomicU32, Ordering},
        thread,
    },
};
use shuttle::rand::{Rng, thread_rng};

use crate::{
    checker::demand,
    common::scenario,
    driver::{Actor, Fleet, Setup, Step, allow_slack, any_step, observe},
    specification::Op,
};

/// Threads working on one fleet, joined in the end.
struct Crew {
    fleet: Arc<Fleet>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Crew {
    /// A fleet with resources 0 to `members`.
    fn new(setup: Setup, members: u8) -> Self {
        Crew::on(Fleet::new(setup), members)
    }

    fn on(fleet: Fleet, members: u8) -> Self {
        let fleet = Arc::new(fleet);
        for key in 0..members {
            fleet.scheduler.insert(fleet.resource(key)).expect("new");
        }
        Crew { fleet, threads: Vec::new() }
    }

    fn hire(&mut self, work: impl FnOnce(&Fleet) + Send + 'static) {
        let fleet = Arc::clone(&self.fleet);
        self.threads.push(thread::spawn(move || work(&fleet)));
    }

    fn finish(self, in_flight: u64) {
        for thread in self.threads {
            thread.join().expect("no panic");
        }
        assert_eq!(self.fleet.scheduler.check_invariants().in_flight, in_flight);
        let Ok(fleet) = Arc::try_unwrap(self.fleet) else { panic!("all threads are gone") };
        fleet.finish();
    }
}

const SHARDS: Setup = Setup { shards: 3, units: 2, by_load: true, room: 0, rules: false, period: 1 };

/// Resources go, one by one, while four threads lend what is left. A lease outlives its resource.
#[test]
fn a_fleet_that_shrinks_under_load() {
    scenario("a_fleet_that_shrinks_under_load", || {
        let mut crew = Crew::new(SHARDS, 5);
        for _ in 0..4 {
            crew.hire(|fleet| {
                for _ in 0..4 {
                    if let Ok(lease) = fleet.scheduler.acquire() {
                        let key = lease.check();
                        thread::yield_now();
                        assert_eq!(*lease.key(), key);
                    }
                }
            });
        }
        crew.hire(|fleet| {
            for key in 0..5 {
                fleet.scheduler.remove(&key).expect("nobody else removes");
                assert!(fleet.scheduler.get(&key).is_none());
            }
            assert!(matches!(fleet.scheduler.acquire(), Err(AcquireError::NoneEligible(_))));
        });
        crew.finish(0);
    });
}

/// One key comes and goes, by two threads, while others lend it, look at it and hold it back.
#[test]
fn a_key_that_flaps() {
    scenario("a_key_that_flaps", || {
        let mut crew = Crew::new(SHARDS, 1);
        let balance = Arc::new(AtomicU32::new(1));
        for _ in 0..2 {
            let balance = Arc::clone(&balance);
            crew.hire(move |fleet| {
                for _ in 0..3 {
                    if fleet.scheduler.remove(&0).is_ok() {
                        balance.fetch_sub(1, Ordering::SeqCst);
                    }
                    if fleet.scheduler.insert(fleet.resource(0)).is_ok() {
                        balance.fetch_add(1, Ordering::SeqCst);
                    }
                }
            });
        }
        crew.hire(|fleet| {
            for _ in 0..4 {
                if let Ok(lease) = fleet.scheduler.acquire_key(&0) {
                    lease.check();
                }
                fleet.scheduler.peek().map(|found| found.check());
            }
        });
        crew.hire(|fleet| {
            for _ in 0..3 {
                let _ = fleet.scheduler.exclude(&0);
                let _ = fleet.scheduler.update_with(&0, |old| {
                    old.check();
                    fleet.resource(old.key)
                });
                let _ = fleet.scheduler.include(&0);
            }
        });
        let fleet = Arc::clone(&crew.fleet);
        for thread in std::mem::take(&mut crew.threads) {
            thread.join().expect("no panic");
        }
        assert_eq!(fleet.scheduler.len() as u32, balance.load(Ordering::SeqCst), "insertions less removals");
        drop(fleet);
        crew.finish(0);
    });
}

/// Resources cool while they are lent, time goes on, and nothing is forgotten: in the end all can be had again.
#[test]
fn cooling_while_leased() {
    scenario("cooling_while_leased", || {
        let mut crew =
            Crew::new(Setup { shards: 2, units: 1, by_load: false, room: 0, rules: false, period: 1 }, 3);
        for i in 0..2u64 {
            crew.hire(move |fleet| {
                for round in 0..4 {
                    if let Ok(lease) = fleet.scheduler.acquire() {
                        let key = *lease.key();
                        let _ = fleet.scheduler.cool(&key, Duration::from_nanos(5 + i));
                        if round % 2 == 0 {
                            lease.release_after(Duration::from_nanos(10));
                        }
                    }
                }
            });
        }
        crew.hire(|fleet| {
            for _ in 0..6 {
                fleet.clock.advance(Duration::from_nanos(3));
                fleet.scheduler.peek().map(|found| found.check());
            }
        });
        crew.hire(|fleet| {
            for key in 0..3 {
                let _ = fleet.scheduler.warm(&key);
            }
        });
        let fleet = Arc::clone(&crew.fleet);
        for thread in std::mem::take(&mut crew.threads) {
            thread.join().expect("no panic");
        }
        fleet.clock.advance(Duration::from_secs(1));
        // A peek trusts the hint of the earliest deadline alone.
        assert!(fleet.scheduler.peek().is_some(), "a deadline was forgotten");
        let leases = fleet.scheduler.acquire_many(3).expect("every deadline has come");
        drop(leases);
        drop(fleet);
        crew.finish(0);
    });
}

/// Resources fail, are ejected, removed, readmitted by hand and by time: the share holds, places are counted, and all that are left come
/// back, by one probe each.
#[test]
fn ejections_in_mid_flight() {
    const OK: Outcome = Outcome::Ok { latency: Duration::from_nanos(1) };
    const LONG: Duration = Duration::from_nanos(10);
    scenario("ejections_in_mid_flight", || {
        let rules = Ejection::default().consecutive_failures(1).max_share(50).jitter(0).ramp(Duration::ZERO);
        let rules = rules.base(LONG).longest(LONG).without_place(Backoff::Fixed(LONG / 3));
        let mut crew = Crew::on(Fleet::with(SHARDS, |builder| builder.ejection(rules)), 5);
        for _ in 0..2 {
            crew.hire(|fleet| {
                for _ in 0..3 {
                    if let Ok(lease) = fleet.scheduler.acquire() {
                        lease.finish(Outcome::Failed);
                    }
                }
            });
        }
        crew.hire(|fleet| {
            for key in 0..2 {
                let _ = fleet.scheduler.readmit(&key);
                fleet.scheduler.remove(&key).expect("nobody else removes");
            }
        });
        crew.hire(|fleet| {
            for _ in 0..3 {
                fleet.clock.advance(LONG / 2);
                if let Ok(lease) = fleet.scheduler.acquire_where(|one| one.key > 1) {
                    lease.finish(OK);
                }
            }
        });
        for thread in std::mem::take(&mut crew.threads) {
            thread.join().expect("no panic");
        }
        let scheduler = &crew.fleet.scheduler;
        let ejected = u64::from(scheduler.ejected_by_rules());
        assert_eq!(scheduler.stats().reasons.ejected, ejected, "places are counted");
        assert!(ejected <= 1, "half of three");
        crew.fleet.clock.advance(2 * LONG);
        for key in 2..5 {
            let probes: Vec<_> = std::iter::from_fn(|| scheduler.acquire_key(&key).ok()).collect();
            let is_probe = scheduler.resource_stats(&key).expect("remembered").phase == Phase::Probing;
            assert_eq!(probes.len(), if is_probe { 1 } else { 2 });
            probes.into_iter().for_each(|probe| probe.finish(OK));
            assert_eq!(scheduler.resource_stats(&key).expect("remembered").phase, Phase::Healthy);
        }
        crew.finish(0);
    });
}

/// Somebody closes while everything is going on: afterwards nothing is lent, and every return lands.
#[test]
fn close_in_mid_flight() {
    scenario("close_in_mid_flight", || {
        let mut crew = Crew::new(SHARDS, 3);
        for _ in 0..3 {
            crew.hire(|fleet| {
                let mut leases = Vec::new();
                for _ in 0..3 {
                    let closed = fleet.scheduler.is_closed();
                    match fleet.scheduler.acquire() {
                        Ok(lease) => {
                            assert!(!closed, "lent after it was seen closed");
                            leases.push(lease);
                        }
                        Err(AcquireError::Closed) => assert!(fleet.scheduler.is_closed()),
                        Err(_) => {}
                    }
                }
            });
        }
        crew.hire(|fleet| {
            let _ = fleet.scheduler.insert(fleet.resource(4));
            let _ = fleet.scheduler.insert_batch(vec![fleet.resource(5), fleet.resource(3)]);
            let _ = fleet.scheduler.remove(&0);
        });
        crew.hire(|fleet| assert!(fleet.scheduler.close(), "the only one"));
        crew.finish(0);
    });
}

/// Batches come and go while others lend: whoever sees a member sees all.
#[test]
fn batches_against_acquirers() {
    scenario("batches_against_acquirers", || {
        let mut crew = Crew::new(SHARDS, 0);
        crew.hire(|fleet| {
            fleet.scheduler.insert_batch((0..4).map(|key| fleet.resource(key)).collect()).expect("new");
            for key in 0..2 {
                fleet.scheduler.remove(&key).expect("a member");
            }
        });
        crew.hire(|fleet| {
            // Overlaps the first one: it gets in if that one has not come yet, or keys 4 and 3 are free, which 3 never is.
            let overlapping = fleet.scheduler.insert_batch(vec![fleet.resource(4), fleet.resource(5)]);
            assert!(overlapping.is_ok());
            assert!(fleet.scheduler.insert_batch(vec![fleet.resource(3), fleet.resource(4)]).is_err());
        });
        crew.hire(|fleet| {
            if fleet.scheduler.get(&2).is_some() {
                assert!(fleet.scheduler.get(&3).is_some(), "a part of a batch was seen");
                fleet.scheduler.acquire().expect("something is there").check();
            }
        });
        crew.hire(|fleet| {
            if let Ok(lease) = fleet.scheduler.acquire_key(&5) {
                lease.check();
                assert!(fleet.scheduler.get(&4).is_some(), "a part of a batch was seen");
            }
        });
        crew.finish(0);
    });
}

/// Values change under leases: each lease keeps its own, none is lost, the last update stands.
#[test]
fn updates_under_leases() {
    scenario("updates_under_leases", || {
        let mut crew =
            Crew::new(Setup { shards: 1, units: 3, by_load: true, room: 0, rules: false, period: 1 }, 2);
        for _ in 0..2 {
            crew.hire(|fleet| {
                for key in 0..2 {
                    let lease = fleet.scheduler.acquire_key(&key);
                    let version = lease.as_ref().ok().map(|lease| lease.version);
                    fleet.scheduler.update_with(&key, |old| old.again(old.version + 1)).expect("a member");
                    if let Ok(lease) = lease {
                        lease.check();
                        assert_eq!(Some(lease.version), version, "a lease keeps its value");
                    }
                }
            });
        }
        for _ in 0..2 {
            crew.hire(|fleet| {
                for _ in 0..3 {
                    if let Ok(lease) = fleet.scheduler.acquire() {
                        lease.check();
                    }
                }
            });
        }
        let fleet = Arc::clone(&crew.fleet);
        for thread in std::mem::take(&mut crew.threads) {
            thread.join().expect("no panic");
        }
        for key in 0..2 {
            assert_eq!(fleet.scheduler.get(&key).expect("a member").version, 2, "no update is lost");
        }
        drop(fleet);
        crew.finish(0);
    });
}

/// Tokens are minted here and redeemed there, twice each; one of two wins.
#[test]
fn tokens_across_threads() {
    scenario("tokens_across_threads", || {
        let mut crew = Crew::new(SHARDS, 3);
        let desk: Arc<Mutex<Vec<Token>>> = Arc::new(Mutex::new(Vec::new()));
        let won = Arc::new(AtomicU32::new(0));
        let minted = Arc::new(AtomicU32::new(0));
        for _ in 0..2 {
            let (desk, minted) = (Arc::clone(&desk), Arc::clone(&minted));
            crew.hire(move |fleet| {
                for _ in 0..3 {
                    if let Ok(mut lease) = fleet.scheduler.acquire() {
                        // A guard beside its token first: the token it becomes is the same.
                        let token = if thread_rng().gen_bool(0.5) {
                            let early = lease.token();
                            let late = lease.into_token();
                            assert_eq!(early, late);
                            late
                        } else {
                            lease.into_token()
                        };
                        minted.fetch_add(1, Ordering::SeqCst);
                        desk.lock().expect("no panic").extend([token, token]);
                    }
                }
            });
        }
        for _ in 0..3 {
            let (desk, won) = (Arc::clone(&desk), Arc::clone(&won));
            crew.hire(move |fleet| {
                for _ in 0..4 {
                    let token = desk.lock().expect("no panic").pop();
                    if let Some(token) = token
                        && fleet.scheduler.release(token).is_ok()
                    {
                        won.fetch_add(1, Ordering::SeqCst);
                    }
                }
            });
        }
        let fleet = Arc::clone(&crew.fleet);
        for thread in std::mem::take(&mut crew.threads) {
            thread.join().expect("no panic");
        }
        for token in desk.lock().expect("no panic").drain(..) {
            if fleet.scheduler.release(token).is_ok() {
                won.fetch_add(1, Ordering::SeqCst);
            }
        }
        assert_eq!(won.load(Ordering::SeqCst), minted.load(Ordering::SeqCst), "each token wins once");
        drop(fleet);
        crew.finish(0);
    });
}

/// Two shards take turns in having the only eligible resource, never without an overlap: an acquisition that finds none
/// has not looked twice.
pub fn turns() {
    let fleet = Arc::new(Fleet::new(Setup {
        shards: 2,
        units: 4,
        by_load: false,
        room: 12,
        rules: false,
        period: 1,
    }));
    let mut main = Actor::new(&fleet, 0);
    main.run(&[Op::Insert(0), Op::Insert(1), Op::Exclude(1)].map(Step::Do));
    let others: Vec<_> = (1..=3)
        .map(|number| {
            let fleet = Arc::clone(&fleet);
            thread::spawn(move || {
                let mut actor = Actor::new(&fleet, number);
                for _ in 0..2 {
                    actor.run(&[Step::Do(Op::Acquire), Step::Release]);
                }
                actor.events
            })
        })
        .collect();
    for _ in 0..3 {
        main.run(&[Op::Include(1), Op::Exclude(0), Op::Include(0), Op::Exclude(1)].map(Step::Do));
    }
    let mut history: Vec<_> = others.into_iter().map(|other| other.join().expect("no panic")).collect();
    history.push(std::mem::take(&mut main.events));
    drop(main);
    let _ = demand(&fleet.specification(), &history);
    let Ok(fleet) = Arc::try_unwrap(fleet) else { panic!("all threads are gone") };
    fleet.finish();
}

#[test]
fn honest_none() {
    scenario("honest_none", turns);
}

/// Random programs of four threads, and every answer explained.
pub fn anything(threads: u8, length: usize) {
    let shards = thread_rng().gen_range(1..=2usize);
    let (units, rules) = (thread_rng().gen_range(1..=2), thread_rng().gen_bool(0.5));
    let setup = Setup { shards, units, by_load: false, room: 0, rules, period: 1 };
    let fleet = Arc::new(Fleet::new(setup));
    let actors: Vec<_> = (1..=threads)
        .map(|number| {
            let fleet = Arc::clone(&fleet);
            let mut random = SplitMix64::new(thread_rng().r#gen());
            thread::spawn(move || {
                let mut actor = Actor::new(&fleet, number);
                for _ in 0..length {
                    actor.step(any_step(&mut random));
                }
                while actor.holds() {
                    actor.step(Step::Release);
                }
                actor.events
            })
        })
        .collect();
    let mut history: Vec<_> = actors.into_iter().map(|actor| actor.join().expect("no panic")).collect();
    {
        let mut last = Actor::new(&fleet, 0);
        observe(&mut last);
        history.push(last.events);
    }
    allow_slack(&mut history);
    let end = demand(&fleet.specification(), &history);
    let tally = fleet.scheduler.check_invariants();
    assert_eq!((tally.members as usize, tally.in_flight as usize), (end.len(), end.in_flight()));
    assert_eq!(fleet.scheduler.ejected_by_rules() as usize, end.ejected_by_rules(), "places are counted");
    let Ok(fleet) = Arc::try_unwrap(fleet) else { panic!("all threads are gone") };
    fleet.finish();
}
