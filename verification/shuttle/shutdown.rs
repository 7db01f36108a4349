//! Shutting down: workers hold and return, somebody drains the fleet until a deadline, somebody closes, time goes on. Nothing hangs, and
//! the report says what was out, no more and no less.

use std::time::Duration;

use leasehold::{
    DrainReport, Overdue, Token,
    internals::sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
        thread,
    },
};
use shuttle::{
    future::block_on,
    rand::{Rng, thread_rng},
};

use crate::{
    common::scenario_at_least,
    driver::{Fleet, Setup},
    tasks::try_for,
};

const MEMBERS: u8 = 3;
const LIMIT: Duration = Duration::from_nanos(40);

/// When a lease was out, by a clock of all threads.
#[derive(Clone, Copy)]
struct Held {
    key: u8,
    /// Not before this, and certainly from `lent` on.
    asked: u64,
    lent: u64,
    /// Certainly until this, and not after `back`.
    returning: u64,
    back: u64,
}

#[derive(Default)]
struct Book {
    now: AtomicU64,
    held: Mutex<Vec<Held>>,
}

impl Book {
    fn tick(&self) -> u64 {
        self.now.fetch_add(1, SeqCst)
    }
}

/// The report is of one moment between `call` and `done`: it counts what was out all the time, and nothing that was not out at all.
fn demand_exact(report: &DrainReport<u8>, book: &Book, call: u64, done: u64) {
    let held = book.held.lock().expect("no panic");
    for key in 0..MEMBERS {
        let of_key = || held.iter().filter(|held| held.key == key);
        let surely = of_key().filter(|held| held.lent < call && held.returning > done).count();
        let perhaps = of_key().filter(|held| held.asked < done && held.back > call).count();
        let said =
            report.outstanding.iter().find(|out| out.key == key).map_or(0, |out| out.in_flight as usize);
        assert!(
            (surely..=perhaps).contains(&said),
            "{said} of resource {key}: {surely} to {perhaps} were out"
        );
    }
}

fn shut_down(overdue: Option<Overdue>) {
    let setup = Setup { shards: 2, units: 2, by_load: false, room: 0, rules: false, period: 1 };
    let fleet = Arc::new(Fleet::with(setup, |builder| match overdue {
        Some(overdue) => builder.max_hold(LIMIT).overdue(overdue),
        None => builder,
    }));
    for key in 0..MEMBERS {
        fleet.scheduler.insert(fleet.resource(key)).expect("new");
    }
    let book = Arc::new(Book::default());
    let over = Arc::new(AtomicBool::new(false));
    let lost: Arc<Mutex<Vec<Token>>> = Arc::default();
    let mut workers = Vec::new();
    for _ in 0..3 {
        let (fleet, book, lost) = (Arc::clone(&fleet), Arc::clone(&book), Arc::clone(&lost));
        workers.push(thread::spawn(move || {
            for _ in 0..2 {
                let asked = book.tick();
                // Who waits, waits until the close at most: it wakes everybody.
                let lease = if thread_rng().r#gen() {
                    block_on(fleet.scheduler.acquire_async()).ok()
                } else {
                    fleet.scheduler.acquire().ok()
                };
                let Some(lease) = lease else { continue };
                let lent = book.tick();
                let key = lease.check();
                let index = {
                    let mut held = book.held.lock().expect("no panic");
                    held.push(Held { key, asked, lent, returning: u64::MAX, back: u64::MAX });
                    held.len() - 1
                };
                thread::yield_now();
                if thread_rng().gen_range(0..4) == 0 {
                    lost.lock().expect("no panic").push(lease.into_token());
                    continue;
                }
                let returning = book.tick();
                book.held.lock().expect("no panic")[index].returning = returning;
                drop(lease);
                let back = book.tick();
                book.held.lock().expect("no panic")[index].back = back;
            }
        }));
    }
    let drainer = {
        let (fleet, book) = (Arc::clone(&fleet), Arc::clone(&book));
        thread::spawn(move || {
            let call = book.tick();
            let report = fleet.scheduler.drain_all_timeout(LIMIT / 2);
            let done = book.tick();
            (report, call, done)
        })
    };
    let closer = {
        let fleet = Arc::clone(&fleet);
        thread::spawn(move || assert!(fleet.scheduler.close()))
    };
    // Without it a lost lease would keep the drainer for ever: there is no time in a model.
    let timekeeper = {
        let (fleet, over) = (Arc::clone(&fleet), Arc::clone(&over));
        thread::spawn(move || {
            while !over.load(SeqCst) {
                fleet.clock.advance(LIMIT / 8);
                let _ = fleet.scheduler.tick();
                thread::yield_now();
            }
        })
    };
    workers.into_iter().for_each(|worker| worker.join().expect("no panic"));
    let (report, call, done) = drainer.join().expect("no panic");
    over.store(true, SeqCst);
    timekeeper.join().expect("no panic");
    closer.join().expect("no panic");
    if overdue != Some(Overdue::Revoke) {
        // A revocation ends a lease unknown to its holder.
        demand_exact(&report, &book, call, done);
    }
    assert!(report.undrained.is_empty());
    assert!(fleet.scheduler.acquire().is_err(), "nothing is lent any more");
    // What the workers have lost is out, exactly; or was taken back.
    let lost = lost.lock().expect("no panic");
    fleet.clock.advance(if overdue == Some(Overdue::Revoke) { LIMIT } else { Duration::ZERO });
    let _ = fleet.scheduler.tick();
    let left = fleet.scheduler.drain_all_timeout(Duration::ZERO);
    let expected = if overdue == Some(Overdue::Revoke) { 0 } else { lost.len() as u64 };
    assert_eq!(left.leases(), expected, "{left}");
    let holders: usize = left.outstanding.iter().map(|out| out.holders.len()).sum();
    assert_eq!(holders as u64, if overdue.is_some() { expected } else { 0 });
    for token in lost.iter() {
        assert_eq!(fleet.scheduler.release(*token).is_ok(), expected > 0, "returns land after all");
    }
    assert!(fleet.scheduler.drain_all_timeout(Duration::ZERO).is_drained());
    assert_eq!(fleet.scheduler.check_invariants().in_flight, 0);
    let Ok(fleet) = Arc::try_unwrap(fleet) else { panic!("all threads are gone") };
    fleet.finish();
}

/// So many schedules under each of the two schedulers, whatever the tier: 10,000 in all.
const SCHEDULES: usize = 5_000;

#[test]
fn a_shutdown() {
    scenario_at_least("a_shutdown", SCHEDULES, || shut_down(None));
}

#[test]
fn a_shutdown_that_names_the_holders() {
    scenario_at_least("a_shutdown_that_names_the_holders", 0, || shut_down(Some(Overdue::Report)));
}

#[test]
fn a_shutdown_that_takes_back() {
    scenario_at_least("a_shutdown_that_takes_back", 0, || shut_down(Some(Overdue::Revoke)));
}

/// Leases come back one after the other, while others ask and look: no report says that one is out and a later one is not, and no
/// later report says that more are out.
#[test]
fn a_report_is_of_one_moment() {
    scenario_at_least("a_report_is_of_one_moment", 0, || {
        let fleet = Arc::new(Fleet::new(Setup {
            shards: 2,
            units: 1,
            by_load: false,
            room: 0,
            rules: false,
            period: 1,
        }));
        let leases = [0, 1, 2].map(|key| {
            fleet.scheduler.insert(fleet.resource(key)).expect("new");
            fleet.scheduler.acquire_key_owned(&key).expect("free")
        });
        // The sweeps meet the resources of the first shard first, and so do the reports.
        let drains = [(); 2].map(|()| fleet.scheduler.drain_all_async());
        let returner = thread::spawn(move || leases.into_iter().for_each(drop));
        let reporters = drains.map(|drain| {
            thread::spawn(move || {
                let mut before = 3;
                for _ in 0..2 {
                    let mut keys: Vec<u8> = drain.report().outstanding.iter().map(|out| out.key).collect();
                    keys.sort_unstable();
                    assert!([0, 1, 2].ends_with(&keys), "{keys:?}");
                    assert!(keys.len() <= before, "what was back is out again: {keys:?}");
                    before = keys.len();
                }
            })
        });
        assert!(fleet.scheduler.acquire().is_err(), "all of it drains");
        for other in reporters.into_iter().chain([returner]) {
            other.join().expect("no panic");
        }
        let Ok(fleet) = Arc::try_unwrap(fleet) else { panic!("all threads are gone") };
        fleet.finish();
    });
}

/// Resources come, go, drain and are lent again while somebody waits for the whole fleet, several times. Nobody hangs.
#[test]
fn drains_of_a_fleet_in_motion() {
    scenario_at_least("drains_of_a_fleet_in_motion", 0, || {
        let setup = Setup { shards: 2, units: 2, by_load: true, room: 0, rules: false, period: 1 };
        let fleet = Arc::new(Fleet::new(setup));
        for key in 0..MEMBERS {
            fleet.scheduler.insert(fleet.resource(key)).expect("new");
        }
        let mut threads = Vec::new();
        let mut hire = |work: fn(&Fleet)| {
            let fleet = Arc::clone(&fleet);
            threads.push(thread::spawn(move || work(&fleet)));
        };
        for _ in 0..2 {
            hire(|fleet| {
                for _ in 0..3 {
                    if let Ok(lease) = fleet.scheduler.acquire() {
                        lease.check();
                        thread::yield_now();
                    }
                }
            });
        }
        hire(|fleet| {
            // The workers always come back.
            assert!(fleet.scheduler.drain_all(leasehold::Timestamp::MAX).outstanding.is_empty());
            let _ = fleet.scheduler.undrain_all();
        });
        hire(|fleet| {
            for key in [0, 1] {
                if let Ok(report) = fleet.scheduler.drain_deadline(&key, leasehold::Timestamp::MAX) {
                    assert!(report.outstanding.is_empty());
                }
                let _ = fleet.scheduler.undrain(&key);
            }
        });
        // What it has got of several when it gives up, or before, is nobody's to wait for.
        hire(|fleet| drop(try_for(fleet.scheduler.acquire_many_async(2), 4)));
        hire(|fleet| {
            let _ = fleet.scheduler.remove(&1);
            let _ = fleet.scheduler.insert(fleet.resource(1));
            let _ = fleet.scheduler.insert(fleet.resource(4));
        });
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        let _ = fleet.scheduler.undrain_all();
        let stats = fleet.scheduler.stats();
        assert_eq!((stats.in_flight, stats.eligible, stats.reasons.total(), stats.leaving), (0, 4, 0, 0));
        let Ok(fleet) = Arc::try_unwrap(fleet) else { panic!("all threads are gone") };
        fleet.finish();
    });
}
