//! Eight threads over every operation of the public interface, on the real machine.
//!
//! Live, on each lease: the resource's own counter of holders never exceeds its limit (it is kept in the value, by
//! atomics of the test, not by the scheduler), the value seen is one that was current while the lease began, and it is
//! not dropped while it is seen. At the end: the structure from scratch, every lease returned, every value dropped once.
//!
//! Cost: about 10 s in all. `STRESS_OPERATIONS` sets another number of operations; the other sizes are in `Size`.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use leasehold::{
    AcquireError, Capacity, InsertError, Outcome, Overflow, OwnedLease, Rejected, ReleaseError, Resource,
    Scheduler, SplitMix64, Strategy, Ties, Token,
};

/// How much is done: in one place.
struct Size {
    threads: usize,
    operations: u64,
    keys: u32,
}

const SIZE: Size = Size { threads: 8, operations: 400_000, keys: 24 };

/// Operations of each thread.
fn operations() -> u64 {
    std::env::var("STRESS_OPERATIONS").map_or(SIZE.operations, |text| text.parse().expect("a number"))
}

/// What outlives every version of a resource with one key *and one incarnation*: who holds it now.
#[derive(Default)]
struct Holders {
    now: AtomicU32,
    most: AtomicU32,
}

struct Unit {
    key: u32,
    limit: u32,
    version: u64,
    holders: Arc<Holders>,
    alive: Arc<AtomicI64>,
    dropped: AtomicBool,
}

impl Unit {
    fn new(key: u32, limit: u32, alive: &Arc<AtomicI64>) -> Self {
        alive.fetch_add(1, SeqCst);
        Unit {
            key,
            limit,
            version: 0,
            holders: Arc::default(),
            alive: Arc::clone(alive),
            dropped: AtomicBool::new(false),
        }
    }

    /// The next version of the same incarnation.
    fn next(&self) -> Self {
        self.alive.fetch_add(1, SeqCst);
        Unit {
            key: self.key,
            limit: self.limit,
            version: self.version + 1,
            holders: Arc::clone(&self.holders),
            alive: Arc::clone(&self.alive),
            dropped: AtomicBool::new(false),
        }
    }

    fn enter(&self) {
        assert!(!self.dropped.load(SeqCst), "a value that is lent has been dropped");
        let now = self.holders.now.fetch_add(1, SeqCst) + 1;
        self.holders.most.fetch_max(now, SeqCst);
        assert!(now <= self.limit, "{now} leases out, {} allowed", self.limit);
    }

    fn leave(&self) {
        assert!(!self.dropped.load(SeqCst), "a value that is lent has been dropped");
        assert!(self.holders.now.fetch_sub(1, SeqCst) > 0);
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        assert!(!self.dropped.swap(true, SeqCst), "dropped twice");
        self.alive.fetch_sub(1, SeqCst);
    }
}

impl Resource for Unit {
    type Key = u32;
    type Priority = u64;

    fn key(&self) -> u32 {
        self.key
    }

    fn priority(&self, in_flight: u32) -> u64 {
        u64::from(self.key % 3) + u64::from(in_flight)
    }

    fn capacity(&self) -> Capacity {
        if self.limit == 1 { Capacity::Exclusive } else { Capacity::Limited(self.limit) }
    }
}

type Fleet = Scheduler<Unit>;

#[derive(Default)]
struct Totals {
    lent: AtomicU64,
    none: AtomicU64,
    stale: AtomicU64,
}

fn limit(key: u32) -> u32 {
    [1, 1, 2, 5][key as usize % 4]
}

/// One thread's work. Leases of its own, tokens from a table that all share.
fn work(
    fleet: &Fleet,
    seed: u64,
    tokens: &Mutex<Vec<(Token, Arc<Holders>)>>,
    alive: &Arc<AtomicI64>,
    totals: &Totals,
) {
    let mut random = SplitMix64::new(seed);
    let mut held: Vec<OwnedLease<Unit>> = Vec::new();
    let short = Duration::from_nanos(300);
    for _ in 0..operations() {
        let key = random.below(SIZE.keys);
        let roll = random.below(100);
        let mut keep = |lease: Result<OwnedLease<Unit>, AcquireError>| match lease {
            Ok(lease) => {
                lease.enter();
                totals.lent.fetch_add(1, SeqCst);
                held.push(lease);
            }
            Err(AcquireError::NoneEligible(_)) => {
                totals.none.fetch_add(1, SeqCst);
            }
            Err(error) => panic!("{error:?}"),
        };
        match roll {
            0..=19 => keep(fleet.acquire_owned()),
            20..=23 => keep(fleet.acquire_by_affinity_owned(&key)),
            24..=25 => keep(fleet.acquire_excluding_owned(&[key, key + 1])),
            26 => keep(fleet.acquire_where_owned(|unit| unit.key >= key || unit.key < 2)),
            27..=30 => {
                if let Ok(lease) = fleet.acquire_key_owned(&key) {
                    assert_eq!(*lease.key(), key);
                    keep(Ok(lease));
                }
            }
            31 => {
                if let Ok(all) = fleet.acquire_many(3) {
                    assert_eq!(all.len(), 3);
                    all.iter().for_each(|lease| lease.enter());
                    totals.lent.fetch_add(3, SeqCst);
                    all.iter().for_each(|lease| lease.leave());
                }
            }
            32..=55 => {
                if !held.is_empty() {
                    let index = random.below(held.len() as u32) as usize;
                    let lease = held.swap_remove(index);
                    lease.leave();
                    match roll % 6 {
                        0 | 1 => drop(lease),
                        2 => lease.release(),
                        3 => lease.release_after(short),
                        4 => lease.finish(Outcome::RateLimited { retry_after: short }),
                        _ => lease.finish(Outcome::Ok { latency: short }),
                    }
                }
            }
            56..=59 => {
                if let Some(lease) = held.pop() {
                    // Left by whoever returns the token, before it does.
                    let holders = Arc::clone(&lease.holders);
                    let token = lease.into_token();
                    tokens.lock().unwrap().push((token, holders));
                }
            }
            60..=65 => {
                let taken = {
                    let mut tokens = tokens.lock().unwrap();
                    let count = tokens.len() as u32;
                    (count > 0).then(|| tokens.swap_remove(random.below(count) as usize))
                };
                if let Some((token, holders)) = taken {
                    assert!(holders.now.fetch_sub(1, SeqCst) > 0);
                    assert_eq!(fleet.release(token), Ok(()), "the one return of a token");
                    assert!(matches!(fleet.release(token), Err(ReleaseError::Stale { .. })));
                    totals.stale.fetch_add(1, SeqCst);
                }
            }
            66..=67 => {
                if let Some(mut lease) = held.pop() {
                    let token = lease.token();
                    lease.leave();
                    if key.is_multiple_of(2) {
                        assert_eq!(fleet.finish(token, Outcome::Failed), Ok(()));
                        assert!(!lease.dropped.load(SeqCst), "the guard still sees its value");
                        drop(lease);
                    } else {
                        drop(lease);
                        assert!(matches!(fleet.release(token), Err(ReleaseError::Stale { .. })));
                    }
                }
            }
            68..=73 => {
                let result = fleet.update_with(&key, Unit::next);
                assert!(result.is_ok() || !matches!(result, Err(leasehold::UpdateError::Closed)));
            }
            74..=75 => {
                if let Ok(removed) = fleet.remove(&key) {
                    assert!(removed.in_flight <= limit(key));
                }
            }
            76..=80 => match fleet.insert(Unit::new(key, limit(key), alive)) {
                Ok(()) => {}
                Err(Rejected { returned, error }) => {
                    assert_eq!(returned.key, key);
                    assert!(matches!(error, InsertError::Duplicate { .. } | InsertError::Full { .. }));
                }
            },
            81 => {
                let units = (key..key + 3).map(|key| Unit::new(key, limit(key), alive)).collect();
                let _ = fleet.insert_batch(units);
            }
            82 => {
                let _ = fleet.exclude(&key);
            }
            83..=84 => {
                let _ = fleet.include(&key);
            }
            85 => {
                let _ = fleet.eject(&key);
                let _ = fleet.readmit(&key);
            }
            86 => {
                let _ = fleet.drain(&key);
                let _ = fleet.undrain(&key);
            }
            87 => {
                let _ = fleet.cool(&key, short);
            }
            88 => {
                let _ = fleet.warm(&key);
            }
            89..=91 => {
                for peek in
                    [fleet.peek(), fleet.peek_by_affinity(&key), fleet.get(&key)].into_iter().flatten()
                {
                    assert!(!peek.dropped.load(SeqCst), "a value that is seen has been dropped");
                }
            }
            92 => {
                if let Some(worst) = fleet.peek_worst() {
                    assert!(!worst.dropped.load(SeqCst));
                }
            }
            93 if key == 0 => drop(fleet.evict_worst()),
            94 => {
                let stats = fleet.stats();
                // Otherwise they are of several moments, and more may have come back than had been lent when that was read.
                if stats.consistent {
                    assert_eq!(stats.members, stats.eligible + stats.reasons.total());
                    assert_eq!(stats.in_flight, stats.lent - stats.returned);
                }
            }
            95 if key < 4 => {
                for state in fleet.snapshot() {
                    assert!(state.in_flight <= state.limit, "{state:?}");
                }
                let keys: Vec<u32> = fleet.iter_keys().collect();
                assert!(keys.iter().all(|&key| key < SIZE.keys + 3));
            }
            96 if key < 2 => {
                let weights: Vec<u32> = (0..fleet.shards()).map(|_| 1 + random.below(3)).collect();
                fleet.set_shard_weights(&weights).expect("in range");
            }
            _ => {
                let _ = (fleet.len(), fleet.contains(&key));
            }
        }
        // A thread that holds all would leave nothing to the others.
        while held.len() > 4 {
            let lease = held.swap_remove(0);
            lease.leave();
        }
    }
    for lease in held {
        lease.leave();
    }
}

fn stress(shards: usize, strategy: Strategy, max: Option<(usize, Overflow)>, ties: Ties) {
    let name = format!("{strategy:?}, {shards} shards");
    let alive = Arc::new(AtomicI64::new(0));
    let totals = Totals::default();
    let tokens = Mutex::new(Vec::new());
    let mut builder = Fleet::builder().shards(shards).strategy(strategy).ties(ties);
    if let Some((max, overflow)) = max {
        builder = builder.max_resources(max, overflow);
    }
    let fleet = builder.build().expect("in range");
    for key in 0..SIZE.keys {
        let _ = fleet.insert(Unit::new(key, limit(key), &alive));
    }
    std::thread::scope(|scope| {
        for thread in 0..SIZE.threads as u64 {
            let (fleet, tokens, alive, totals) = (&fleet, &tokens, &alive, &totals);
            scope.spawn(move || work(fleet, thread + 1, tokens, alive, totals));
        }
    });
    let out = tokens.into_inner().unwrap();
    let tally = fleet.check_invariants();
    assert_eq!(tally.in_flight, out.len() as u64, "{name}: only tokens are out");
    for (token, holders) in out {
        holders.now.fetch_sub(1, SeqCst);
        fleet.release(token).expect("out");
    }
    let tally = fleet.check_invariants();
    assert_eq!((tally.in_flight, tally.leaving), (0, 0), "{name}: all leases are back");
    let stats = fleet.stats();
    assert!(stats.consistent);
    assert_eq!(stats.lent, stats.returned, "{name}");
    assert_eq!(stats.inserted, stats.removed + stats.evicted + stats.members, "{name}");
    assert_eq!(stats.members as usize, fleet.len());
    for state in fleet.snapshot() {
        assert_eq!(state.in_flight, 0, "{name}: {state:?}");
    }
    for key in fleet.iter_keys() {
        let unit = fleet.get(&key).expect("listed");
        assert_eq!(unit.holders.now.load(SeqCst), 0, "{name}: {key} is held by nobody");
    }
    assert!(fleet.close() && !fleet.close());
    let (lent, stale) = (totals.lent.load(SeqCst), totals.stale.load(SeqCst));
    assert!(
        lent > operations() / 8 && stale > 0,
        "{name}: {lent} leases, {stale} stale: hardly anything done"
    );
    println!("{name}: {lent} leases, {} times none, {stale} stale returns", totals.none.load(SeqCst));
    drop(fleet);
    for turn in 0..100_000 {
        if alive.load(SeqCst) == 0 {
            return;
        }
        leasehold::collect_garbage();
        if turn > 100 {
            std::thread::sleep(Duration::from_micros(100));
        }
    }
    panic!("{name}: {} values were not dropped", alive.load(SeqCst));
}

#[test]
fn sticky() {
    stress(4, Strategy::default(), None, Ties::LeastRecent);
}

#[test]
fn best_of_all_in_one_shard() {
    stress(1, Strategy::BestOf { choices: usize::MAX }, None, Ties::LeastRecent);
}

#[test]
fn best_of_all_in_eight_shards() {
    stress(8, Strategy::BestOf { choices: usize::MAX }, None, Ties::MostRecent);
}

#[test]
fn best_of_two() {
    stress(8, Strategy::BestOf { choices: 2 }, Some((20, Overflow::EvictWorst)), Ties::LeastRecent);
}

#[test]
fn round_robin() {
    stress(3, Strategy::RoundRobin, Some((20, Overflow::Reject)), Ties::LeastRecent);
}

#[test]
fn weighted() {
    stress(4, Strategy::Weighted(vec![1, 0, 3, 2]), None, Ties::MostRecent);
}

#[test]
fn adaptive() {
    stress(8, Strategy::Adaptive, None, Ties::LeastRecent);
}

/// Between two resources, each in a shard of its own, goes one that has a lease: it gets the next one before it returns the last. So at
/// every moment one or two are out, and a snapshot that is of one moment says so.
#[test]
fn snapshots_of_one_moment() {
    let alive = Arc::new(AtomicI64::new(0));
    let fleet = Fleet::builder().shards(2).build().expect("in range");
    for key in 0..2 {
        assert!(fleet.insert(Unit::new(key, 1, &alive)).is_ok());
    }
    let shards: Vec<usize> = fleet.snapshot().iter().map(|state| state.shard).collect();
    assert_ne!(shards[0], shards[1], "the emptiest shard takes a newcomer");
    let mut consistent = 0;
    let mut look = || {
        let snapshot = fleet.snapshot();
        let out: u32 = snapshot.iter().map(|state| state.in_flight).sum();
        assert!(
            !snapshot.is_consistent() || (1..=2).contains(&out),
            "{out} out, at one moment: {snapshot:?}"
        );
        consistent += u64::from(snapshot.is_consistent());
    };
    let mut lease = fleet.acquire_key(&0).expect("free");
    let _last = std::thread::scope(|scope| {
        let fleet = &fleet;
        let mover = scope.spawn(move || {
            for turn in 1..=operations() {
                lease = fleet.acquire_key(&(turn as u32 % 2)).expect("returned at the last turn");
            }
            lease
        });
        while !mover.is_finished() {
            look();
        }
        mover.join().expect("no panic")
    });
    look();
    println!("{consistent} snapshots of one moment");
    assert!(consistent > 0, "none when all stands still");
}
