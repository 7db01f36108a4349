//! The defects of the Go scheduler that this crate answers to, C1 to C30: one test each, by number, that fails if we have
//! it too. `docs/migrating-from-go.md` lists them; those that cannot exist here have their reason there.
//!
//! Races are hammered by real threads for a bounded number of rounds; the model checkers explore them exhaustively.
//!
//! Cost: about 5 s.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::{
    hash::{Hash, Hasher},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use leasehold::{
    AcquireError, AcquireKeyError, Affinity, BuildError, Capacity, Entry, InsertError, KeyError, ManualClock,
    Outcome, ReleaseError, Resource, Scheduler, Standing, Strategy, Ties,
};

type Plain = Entry<u32, u64, u64>;
type Fleet = Scheduler<Plain>;

const ROUNDS: u32 = 2_000;

fn fleet(shards: usize) -> Fleet {
    let strategy = Strategy::BestOf { choices: usize::MAX };
    Fleet::builder().shards(shards).strategy(strategy).build().expect("in range")
}

fn filled(shards: usize, count: u32) -> Fleet {
    let fleet = fleet(shards);
    for key in 0..count {
        fleet.insert(Entry::new(key, u64::from(key), 0)).expect("new");
    }
    fleet
}

/// Runs all at once, `rounds` times, and looks at the result of each round.
fn race(rounds: u32, all: &[&(dyn Fn() + Sync)], after: impl Fn()) {
    for _ in 0..rounds {
        let start = Barrier::new(all.len());
        std::thread::scope(|scope| {
            for &one in all {
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    one();
                });
            }
        });
        after();
    }
}

#[test]
fn c01_what_is_found_by_key_is_complete() {
    // Hold, update and remove a key while it is being inserted: no bystander is touched.
    let fleet = filled(1, 1);
    race(
        ROUNDS,
        &[
            &|| fleet.insert(Entry::new(7, 9, 0)).expect("new"),
            &|| {
                let _ = fleet.exclude(&7);
                let _ = fleet.update(Entry::new(7, 8, 1));
            },
            &|| drop(fleet.remove(&7)),
        ],
        || {
            let _ = fleet.remove(&7);
            let tally = fleet.check_after_race();
            assert_eq!(tally, (1, 1), "the bystander is eligible");
        },
    );
}

/// Members and eligible resources, with nothing going on.
trait AfterRace {
    fn check_after_race(&self) -> (u64, u64);
}

impl AfterRace for Fleet {
    fn check_after_race(&self) -> (u64, u64) {
        #[cfg(feature = "internals")]
        self.check_invariants();
        let stats = self.stats();
        assert!(stats.consistent);
        (stats.members, stats.eligible)
    }
}

#[test]
fn c02_an_excluded_newcomer_is_not_lent_and_not_queued_twice() {
    let fleet = fleet(1);
    race(
        ROUNDS,
        &[&|| fleet.insert(Entry::new(1, 0, 0)).expect("new"), &|| {
            if fleet.exclude(&1).is_ok() {
                assert!(fleet.acquire().is_err(), "excluded");
                fleet.include(&1).expect("known");
            }
        }],
        || {
            let first = fleet.acquire().expect("included");
            assert!(fleet.acquire().is_err(), "one resource, one holder");
            drop(first);
            fleet.remove(&1).expect("known");
        },
    );
}

#[test]
fn c02b_a_removed_newcomer_is_no_ghost() {
    let fleet = fleet(1);
    race(ROUNDS, &[&|| fleet.insert(Entry::new(1, 0, 0)).expect("new"), &|| drop(fleet.remove(&1))], || {
        if !fleet.contains(&1) {
            assert!(fleet.acquire().is_err(), "a ghost was lent");
            assert!(fleet.peek().is_none());
        }
        let _ = fleet.remove(&1);
        assert_eq!(fleet.check_after_race(), (0, 0));
    });
}

#[test]
fn c03_a_batch_is_visible_as_a_whole() {
    let batches = 400u32;
    let fleet = fleet(4);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for batch in 0..batches {
                let keys = batch * 20..batch * 20 + 20;
                fleet.insert_batch(keys.map(|key| Entry::new(key, 0, 0)).collect()).expect("new");
            }
        });
        for batch in 0..batches {
            // Whoever sees one member, whichever it is, sees all.
            let first = batch * 20 + batch % 20;
            while !fleet.contains(&first) {
                std::hint::spin_loop();
            }
            assert!((batch * 20..batch * 20 + 20).all(|key| fleet.contains(&key)), "a part of a batch");
            assert_eq!(fleet.len() % 20, 0);
        }
    });
    let refused =
        fleet.insert_batch(vec![Entry::new(9_001, 0, 0), Entry::new(9_002, 0, 0), Entry::new(1, 0, 0)]);
    assert_eq!(refused.unwrap_err().returned.len(), 3);
    assert_eq!(fleet.check_after_race(), (u64::from(batches) * 20, u64::from(batches) * 20));
}

#[test]
fn c04_a_return_frees_its_own_lease_only() {
    let fleet = filled(1, 1);
    let first = fleet.acquire().expect("free").into_token();
    fleet.release(first).expect("out");
    let second = fleet.acquire().expect("free");
    assert!(matches!(fleet.release(first), Err(ReleaseError::Stale { .. })), "doubled");
    assert!(fleet.acquire().is_err(), "the second lease is still out");
    // Removed and inserted anew while lent: the old lease is not the new resource's.
    fleet.remove(&0).expect("known");
    fleet.insert(Entry::new(0, 0, 1)).expect("gone");
    let third = fleet.acquire().expect("new");
    drop(second);
    assert!(fleet.acquire().is_err(), "the third lease is still out");
    drop(third);
    // Another scheduler's token.
    let other = filled(1, 1);
    let foreign = other.acquire().expect("free").into_token();
    assert_eq!(fleet.release(foreign), Err(ReleaseError::Foreign));
}

#[test]
fn c04b_holds_and_leases_are_independent() {
    let clock = Arc::new(ManualClock::new());
    let fleet = Fleet::builder().shards(1).clock(Arc::clone(&clock)).build().expect("in range");
    fleet.insert(Entry::new(0, 0, 0)).expect("new");
    let lease = fleet.acquire().expect("free");
    assert_eq!(fleet.include(&0), Ok(false));
    assert!(fleet.acquire().is_err(), "including frees no lease");
    fleet.exclude(&0).expect("known");
    fleet.cool(&0, Duration::from_secs(5)).expect("known");
    drop(lease);
    let standing = |fleet: &Fleet| fleet.snapshot()[0].standing;
    assert_eq!(standing(&fleet), Standing::Excluded, "a return clears no hold");
    fleet.include(&0).expect("known");
    assert_eq!(standing(&fleet), Standing::Cooling, "including ends no cooling");
    clock.advance(Duration::from_secs(5));
    assert!(fleet.acquire().is_ok());
}

#[test]
fn c04c_a_lent_resource_can_be_excluded() {
    let fleet = filled(1, 1);
    let lease = fleet.acquire().expect("free");
    assert_eq!(fleet.exclude(&0), Ok(true));
    drop(lease);
    assert!(fleet.acquire().is_err(), "it is not lent the moment it comes back");
}

/// Panics in `priority` when told to.
struct Moody(u32, Arc<AtomicBool>);

impl Resource for Moody {
    type Key = u32;
    type Priority = u32;

    fn key(&self) -> u32 {
        self.0
    }

    fn priority(&self, in_flight: u32) -> u32 {
        if self.1.load(SeqCst) {
            std::panic::resume_unwind(Box::new("moody"));
        }
        in_flight
    }

    fn capacity(&self) -> Capacity {
        Capacity::Limited(2)
    }
}

#[test]
fn c05_a_panic_leaves_no_lock_and_no_wrong_count() {
    // The thorough version is `verification/faults`.
    let moody = Arc::new(AtomicBool::new(false));
    let fleet = Scheduler::<Moody>::builder().shards(1).build().expect("in range");
    fleet.insert(Moody(0, Arc::clone(&moody))).expect("new");
    let lease = fleet.acquire().expect("free");
    moody.store(true, SeqCst);
    assert!(catch_unwind(AssertUnwindSafe(|| fleet.acquire().map(drop))).is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| fleet.insert(Moody(1, Arc::clone(&moody))).is_ok())).is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| drop(lease))).is_err());
    moody.store(false, SeqCst);
    let stats = fleet.stats();
    assert_eq!((stats.members, stats.eligible, stats.in_flight), (1, 1, 0));
    assert_eq!(fleet.acquire_many(2).expect("all free").len(), 2);
}

#[test]
fn c06_cooling_begins_in_the_return_itself() {
    let clock = Arc::new(ManualClock::new());
    let fleet = Fleet::builder().shards(1).clock(Arc::clone(&clock)).build().expect("in range");
    fleet.insert(Entry::new(0, 0, 0)).expect("new");
    let minute = Duration::from_secs(60);
    // (a), (b), (c): no window, nothing skipped, no event to drop.
    fleet.acquire().expect("free").finish(Outcome::RateLimited { retry_after: minute });
    assert!(fleet.acquire().is_err());
    // (d): ended early and lent again, the old deadline frees nothing.
    assert_eq!(fleet.warm(&0), Ok(true));
    let lease = fleet.acquire().expect("warm");
    clock.advance(2 * minute);
    assert!(fleet.acquire().is_err(), "lent");
    // (e): a second cooling takes the later deadline, also while lent.
    assert_eq!(fleet.cool(&0, 2 * minute), Ok(true));
    lease.release_after(minute);
    clock.advance(minute);
    assert!(fleet.acquire().is_err(), "extending never shortens");
    clock.advance(minute);
    assert!(fleet.acquire().is_ok());
    // (g): a new resource under the key does not inherit the deadline, nor end by it.
    fleet.cool(&0, minute).expect("known");
    fleet.remove(&0).expect("known");
    fleet.insert(Entry::new(0, 0, 1)).expect("gone");
    assert!(fleet.acquire().is_ok(), "the newcomer does not cool");
    fleet.exclude(&0).expect("known");
    clock.advance(2 * minute);
    assert!(fleet.acquire().is_err(), "the old deadline clears nothing of the newcomer");
}

#[test]
fn c07_of_concurrent_removals_one_succeeds_and_a_new_resource_stays() {
    let fleet = fleet(2);
    let removed = AtomicU32::new(0);
    let remove = || {
        if fleet.remove(&1).is_ok() {
            removed.fetch_add(1, SeqCst);
        }
    };
    let again = AtomicBool::new(false);
    fleet.insert(Entry::new(1, 0, 0)).expect("new");
    race(
        ROUNDS,
        &[&remove, &|| {
            remove();
            again.store(fleet.insert(Entry::new(1, 0, 1)).is_ok(), SeqCst);
        }],
        || {
            let members = u64::from(fleet.contains(&1));
            // One resource was in, one came at most: every one is either there or was removed once.
            let came = 1 + u32::from(again.load(SeqCst));
            assert_eq!(removed.swap(0, SeqCst) + members as u32, came);
            assert_eq!(fleet.check_after_race(), (members, members));
            if members == 0 {
                fleet.insert(Entry::new(1, 0, 0)).expect("gone");
            }
        },
    );
    assert_eq!(fleet.remove(&1).map(|removed| removed.in_flight), Ok(0));
    assert_eq!(fleet.remove(&1), Err(KeyError::NotFound { key: 1 }));
}

/// Lives where it is told.
struct Settled {
    key: u32,
    home: usize,
}

impl Resource for Settled {
    type Key = u32;
    type Priority = u32;

    fn key(&self) -> u32 {
        self.key
    }

    fn priority(&self, _in_flight: u32) -> u32 {
        self.key
    }

    fn home(&self, _shards: usize) -> Option<usize> {
        Some(self.home)
    }
}

#[test]
fn c08_adaptive_prefers_what_is_available() {
    let fleet =
        Scheduler::<Settled>::builder().shards(2).strategy(Strategy::Adaptive).build().expect("in range");
    for key in 0..100 {
        fleet.insert(Settled { key, home: usize::from(key >= 10) }).expect("new");
    }
    // 10 against 90: as long as shard 1 has more to give, it gives.
    let leases: Vec<_> = (0..80).map(|_| fleet.acquire().expect("free")).collect();
    assert!(leases.iter().all(|lease| lease.shard() == 1), "the exhausted shard was preferred");
}

#[test]
fn c09_the_callers_of_an_empty_shard_spread() {
    let fleet =
        Scheduler::<Settled>::builder().shards(8).strategy(Strategy::RoundRobin).build().expect("in range");
    for key in 0..700 {
        fleet.insert(Settled { key, home: 1 + key as usize % 7 }).expect("new");
    }
    // Shard 0 has nothing. Ids that belong to it go on to different shards.
    let mut by_shard = [0u32; 8];
    for id in 0..4_000u32 {
        let shard = fleet.acquire_by_affinity(&id).expect("free").shard();
        by_shard[shard] += 1;
    }
    assert_eq!(by_shard[0], 0);
    let (least, most) = (by_shard[1..].iter().min().unwrap(), by_shard[1..].iter().max().unwrap());
    assert!(most < &(2 * least), "a neighbour inherited it all: {by_shard:?}");
}

#[test]
fn c10_none_means_that_there_was_none() {
    // Two resources, two threads that each take and return one: at every instant one is free for the third.
    for shards in [1, 2] {
        let fleet = filled(shards, 3);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..ROUNDS * 10 {
                        drop(fleet.acquire().expect("three resources, three threads"));
                    }
                });
            }
        });
    }
}

/// Ranked by its leases.
struct Replica(u32);

impl Resource for Replica {
    type Key = u32;
    type Priority = u32;

    fn key(&self) -> u32 {
        self.0
    }

    fn priority(&self, in_flight: u32) -> u32 {
        in_flight
    }

    fn capacity(&self) -> Capacity {
        Capacity::Limited(10)
    }
}

#[test]
fn c11_shared_use_is_counted_and_reorders() {
    let fleet = Scheduler::<Replica>::builder().shards(1).build().expect("in range");
    for key in 0..4 {
        fleet.insert(Replica(key)).expect("new");
    }
    let leases: Vec<_> = (0..8).map(|_| fleet.acquire().expect("free")).collect();
    assert!(fleet.snapshot().iter().all(|state| state.in_flight == 2), "the least loaded goes first");
    drop(leases);
    let all = fleet.acquire_many(40).expect("capacity");
    assert!(fleet.acquire().is_err(), "and there is an end to it");
    drop(all);
}

#[test]
fn c12_equals_take_turns() {
    for (ties, expected) in [(Ties::LeastRecent, [0, 1, 2, 0, 1, 2]), (Ties::MostRecent, [2, 2, 2, 2, 2, 2])]
    {
        let fleet = Fleet::builder().shards(1).ties(ties).build().expect("in range");
        for key in 0..3 {
            fleet.insert(Entry::new(key, 5, 0)).expect("new");
        }
        assert_eq!([(); 6].map(|()| *fleet.acquire().expect("free").key()), expected, "{ties:?}");
    }
}

#[test]
fn c13_the_best_of_all_shards_can_be_asked_for() {
    let fleet = filled(8, 100);
    let leases: Vec<_> = (0..100).map(|_| fleet.acquire().expect("free")).collect();
    assert!(leases.iter().map(|lease| *lease.key()).eq(0..100), "in the order of priority, over all shards");
}

#[test]
fn c14_weights_can_belong_to_resources_and_are_checked() {
    let weighted = |weights| {
        Scheduler::<Settled>::builder().shards(2).strategy(Strategy::Weighted(weights)).seed(3).build()
    };
    assert!(matches!(weighted(vec![1]), Err(BuildError::Strategy(_))), "a wrong length is an error");
    assert!(matches!(weighted(vec![0, 0]), Err(BuildError::Strategy(_))));
    let fleet = weighted(vec![1, 9]).expect("in range");
    for key in 0..2 {
        fleet.insert(Settled { key, home: key as usize }).expect("new");
    }
    let heavy = (0..1_000).filter(|_| *fleet.acquire().expect("free").key() == 1).count();
    assert!((850..950).contains(&heavy), "{heavy} of 1,000 for a weight of 9 in 10");
}

#[test]
fn c15_an_id_keeps_its_shard_and_only_the_ring_moves_it() {
    let fleet = filled(8, 800);
    let homes = |fleet: &Fleet| -> Vec<usize> {
        (0..1_000u32).map(|id| fleet.acquire_by_affinity(&id).expect("free").shard()).collect()
    };
    let before = homes(&fleet);
    assert_eq!(before, homes(&fleet));
    fleet.set_shard_weights(&[1, 1, 1, 0, 1, 1, 1, 1]).expect("in range");
    for (old, new) in before.iter().zip(homes(&fleet)) {
        assert!(*old == new || *old == 3, "an id moved from {old} to {new}, though only shard 3 was closed");
    }
}

#[test]
fn c15_an_id_keeps_its_resource_while_priorities_change_and_others_come_and_go() {
    let fleet = Fleet::builder().shards(4).affinity(Affinity::Resource).build().expect("in range");
    fleet.insert_batch((0..400).map(|key| Entry::new(key, u64::from(key), 0)).collect()).expect("new keys");
    let choice = |fleet: &Fleet| -> Vec<u32> {
        (0..500u32).map(|id| *fleet.acquire_by_affinity(&id).expect("free").key()).collect()
    };
    let before = choice(&fleet);
    for key in 0..400 {
        fleet.update(Entry::new(key, 1_000 - u64::from(key), 0)).expect("a member");
    }
    assert_eq!(before, choice(&fleet), "priorities do not move an id");
    fleet.insert_batch((1_000..1_040).map(|key| Entry::new(key, 0, 0)).collect()).expect("new keys");
    let after = choice(&fleet);
    let moved = before
        .iter()
        .zip(&after)
        .filter(|(old, new)| old != new)
        .inspect(|(_, new)| assert!(**new >= 1_000))
        .count();
    assert!((10..100).contains(&moved), "one in eleven moves, and only to a newcomer: {moved}");
    // Fails over while its resource is out, the same way each time, and comes back.
    let held = fleet.acquire_by_affinity(&7u32).expect("free");
    let second = *fleet.acquire_by_affinity(&7u32).expect("free").key();
    assert_ne!(second, *held.key());
    assert_eq!(second, *fleet.acquire_by_affinity(&7u32).expect("free").key());
    drop(held);
    assert_eq!(*fleet.acquire_by_affinity(&7u32).expect("free").key(), after[7]);
}

#[test]
fn c15_a_hot_id_is_bounded_by_its_resources_capacity() {
    let fleet = Fleet::builder().shards(1).affinity(Affinity::Resource).build().expect("in range");
    let limited = |key| Entry::new(key, 0, 0).with_capacity(Capacity::Limited(3));
    fleet.insert_batch((0..10).map(limited).collect()).expect("new keys");
    let leases: Vec<_> = (0..30).map(|_| fleet.acquire_by_affinity("hot").expect("free")).collect();
    for key in 0..10 {
        assert_eq!(leases.iter().filter(|lease| *lease.key() == key).count(), 3);
    }
    assert!(fleet.acquire_by_affinity("hot").is_err());
}

#[test]
fn c16_keyed_operations_go_on_beside_a_stalled_one() {
    // One thread stays in the middle of a lookup, inside the key's own `Eq`: it stops nobody.
    #[derive(Debug)]
    struct Gate {
        reached: AtomicBool,
        open: AtomicBool,
    }
    #[derive(Clone, Debug)]
    struct Slow(u32, Arc<Gate>);
    impl Hash for Slow {
        fn hash<H: Hasher>(&self, state: &mut H) {
            self.0.hash(state);
        }
    }
    impl PartialEq for Slow {
        fn eq(&self, other: &Self) -> bool {
            if std::thread::current().name() == Some("stalled") {
                self.1.reached.store(true, SeqCst);
                while !self.1.open.load(SeqCst) {
                    std::thread::sleep(Duration::from_micros(50));
                }
            }
            self.0 == other.0
        }
    }
    impl Eq for Slow {}
    let gate = Arc::new(Gate { reached: AtomicBool::new(false), open: AtomicBool::new(false) });
    let fleet = Scheduler::<Entry<Slow, u32, ()>>::builder().shards(2).build().expect("in range");
    let key = |number| Slow(number, Arc::clone(&gate));
    fleet.insert(Entry::new(key(0), 0, ())).expect("new");
    std::thread::scope(|scope| {
        let stalled = std::thread::Builder::new().name("stalled".into());
        let found = stalled.spawn_scoped(scope, || fleet.get(&key(0)).is_some()).expect("a thread");
        while !gate.reached.load(SeqCst) {
            std::thread::yield_now();
        }
        for number in 1..200 {
            fleet.insert(Entry::new(key(number), 0, ())).expect("new");
            fleet.update(Entry::new(key(0), number, ())).expect("known");
            drop(fleet.acquire_key(&key(0)).expect("free"));
            fleet.remove(&key(number)).expect("known");
        }
        gate.open.store(true, SeqCst);
        assert!(found.join().expect("no panic"));
    });
}

#[test]
fn c17_no_update_is_lost() {
    let fleet = filled(1, 1);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    fleet.update_with(&0, |old| Entry { value: old.value + 1, ..*old }).expect("known");
                }
            });
        }
    });
    assert_eq!(fleet.get(&0).expect("known").value, u64::from(4 * ROUNDS));
}

/// The priority is a number that the application writes whenever it likes, also while the resource is queued and compared.
#[test]
fn c17_priorities_that_change_under_the_queue_break_no_order() {
    struct Loaded(u32, Arc<AtomicU32>);
    impl Resource for Loaded {
        type Key = u32;
        type Priority = u32;
        fn key(&self) -> u32 {
            self.0
        }
        fn priority(&self, _: u32) -> u32 {
            self.1.load(SeqCst)
        }
    }
    let fleet = Scheduler::<Loaded>::builder().shards(1).build().expect("in range");
    let loads: Vec<_> = (0..32).map(|load| Arc::new(AtomicU32::new(load))).collect();
    for (key, load) in (0..).zip(&loads) {
        assert!(fleet.insert(Loaded(key, Arc::clone(load))).is_ok());
    }
    let check = || {
        #[cfg(feature = "internals")]
        fleet.check_invariants();
    };
    // Turned upside down behind the scheduler's back: it goes by what it was told, until it is told anew.
    loads.iter().for_each(|load| load.store(100 - load.load(SeqCst), SeqCst));
    check();
    let leases: Vec<_> = (0..32).map(|_| fleet.acquire().expect("one is free")).collect();
    assert!(leases.iter().map(|lease| *lease.key()).eq(0..32), "the order of the ranks at insertion");
    drop(leases);
    check();
    assert_eq!(*fleet.acquire().expect("free").key(), 0, "a return of the only unit asks for no priority");
    assert!(fleet.update_with(&31, |old| Loaded(old.0, Arc::clone(&old.1))).is_ok());
    check();
    // And while others lend.
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = 1u32;
            while !done.load(SeqCst) {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                loads[random as usize >> 16 & 31].store(random & 0xff, SeqCst);
            }
        });
        let workers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    for i in 0..ROUNDS {
                        let lease = fleet.acquire().expect("more than there are threads");
                        let key = (*lease.key() + i) % 32;
                        drop(lease);
                        let _ = fleet.update_with(&key, |old| Loaded(old.0, Arc::clone(&old.1)));
                    }
                })
            })
            .collect();
        workers.into_iter().for_each(|worker| worker.join().expect("no panic"));
        done.store(true, SeqCst);
    });
    check();
    let leases: Vec<_> = std::iter::from_fn(|| fleet.acquire().ok()).collect();
    let mut keys: Vec<_> = leases.iter().map(|lease| *lease.key()).collect();
    keys.sort_unstable();
    assert!(keys.into_iter().eq(0..32), "nobody is lost, nobody is there twice");
}

#[test]
fn c18_counts_are_exact_under_load() {
    let fleet = filled(2, 8);
    let lent = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..ROUNDS * 5 {
                    lent.fetch_add(u64::from(fleet.acquire().is_ok()), SeqCst);
                }
            });
        }
    });
    let stats = fleet.stats();
    assert_eq!((stats.lent, stats.returned, stats.in_flight), (lent.load(SeqCst), lent.load(SeqCst), 0));
}

#[test]
fn c21_returns_land_after_close() {
    let fleet = filled(1, 2);
    let lease = fleet.acquire().expect("free");
    let token = fleet.acquire().expect("free").into_token();
    assert!(fleet.close());
    assert!(matches!(fleet.acquire(), Err(AcquireError::Closed)));
    assert_eq!(
        fleet.snapshot().iter().map(|state| state.in_flight).sum::<u32>(),
        2,
        "who is out can be listed"
    );
    assert_eq!(fleet.release(token), Ok(()));
    drop(lease);
    assert_eq!(fleet.stats().in_flight, 0);
}

#[test]
fn c22_stats_are_of_one_moment_or_say_so() {
    let fleet = filled(4, 12);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (fleet, done) = (&fleet, &done);
            scope.spawn(move || {
                for i in 0..ROUNDS * 10 {
                    let key = (i + thread) % 12;
                    let _ = (fleet.exclude(&key), fleet.include(&key), fleet.acquire().map(drop));
                }
                done.store(true, SeqCst);
            });
        }
        let mut consistent = 0;
        while !done.load(SeqCst) {
            let stats = fleet.stats();
            assert!(stats.eligible <= 12 && stats.reasons.total() <= 12, "a negative number: {stats:?}");
            if stats.consistent {
                consistent += 1;
                assert_eq!(stats.members, 12);
                assert!(stats.in_flight <= 2);
                // Words that are written at different places of one change: a reading with a change in its midst has only one of them.
                assert_eq!(stats.excluded - stats.included, stats.reasons.excluded, "{stats:?}");
                assert_eq!(stats.eligible, stats.shards.iter().map(|&one| u64::from(one)).sum::<u64>());
                assert!(stats.reasons.at_capacity <= stats.in_flight, "{stats:?}");
                assert_eq!(stats.available, stats.eligible, "one free unit each: {stats:?}");
            }
        }
        assert!(consistent > 0, "never consistent");
    });
}

/// What the documentation of `close` says of each call: it is refused, it returns what is out, or it only looks.
#[test]
fn c24_after_close_it_is_as_documented() {
    let fleet = filled(1, 3);
    let tokens: Vec<_> = (0..2).map(|_| fleet.acquire().expect("free").into_token()).collect();
    assert!(fleet.close());
    assert!(!fleet.close() && fleet.is_closed());
    let closed = |answer: Result<bool, KeyError<u32>>| answer == Err(KeyError::Closed);
    let hour = Duration::from_secs(3_600);
    let refused = [
        ("insert", fleet.insert(Entry::new(9, 0, 0)).is_err_and(|no| no.error == InsertError::Closed)),
        ("insert_batch", fleet.insert_batch(vec![]).is_err_and(|no| no.error == InsertError::Closed)),
        ("update", fleet.update(Entry::new(0, 0, 0)).is_err()),
        ("update_with", fleet.update_with(&0, |old| *old).is_err()),
        ("remove", fleet.remove(&0) == Err(KeyError::Closed)),
        ("evict_worst", fleet.evict_worst().is_none()),
        ("exclude", closed(fleet.exclude(&0))),
        ("include", closed(fleet.include(&0))),
        ("cool", closed(fleet.cool(&0, hour))),
        ("warm", closed(fleet.warm(&0))),
        ("eject", closed(fleet.eject(&0))),
        ("readmit", closed(fleet.readmit(&0))),
        ("drain", closed(fleet.drain(&0))),
        ("undrain", closed(fleet.undrain(&0))),
        ("acquire", matches!(fleet.acquire(), Err(AcquireError::Closed))),
        ("acquire_key", matches!(fleet.acquire_key(&0), Err(AcquireKeyError::Closed))),
        ("acquire_many", matches!(fleet.acquire_many(0), Err(AcquireError::Closed))),
        ("acquire_by_affinity", matches!(fleet.acquire_by_affinity(&0), Err(AcquireError::Closed))),
        ("acquire_where", matches!(fleet.acquire_where(|_| true), Err(AcquireError::Closed))),
        ("acquire_excluding", matches!(fleet.acquire_excluding(&[]), Err(AcquireError::Closed))),
        ("acquire_explained", matches!(fleet.acquire_explained().0, Err(AcquireError::Closed))),
        ("request().wait", fleet.request().timeout(hour).wait().is_err()),
        ("observe", fleet.observe(|_: &leasehold::Event<u32>| ()).is_err()),
    ];
    let looking = [
        ("len", fleet.len() == 3 && !fleet.is_empty()),
        ("stats", fleet.stats().members == 3 && fleet.stats().closed),
        ("stats_by_shard", fleet.stats_by_shard()[0].members == 3),
        ("snapshot", fleet.snapshot().len() == 3),
        ("iter_keys", fleet.iter_keys().count() == 3),
        ("contains", fleet.contains(&0) && !fleet.contains(&9)),
        ("get", fleet.get(&0).is_some()),
        ("peek", fleet.peek().is_some()),
        ("peek_worst", fleet.peek_worst().is_some()),
        ("peek_by_affinity", fleet.peek_by_affinity(&0).is_some()),
        ("take_events", fleet.take_events(9).is_empty()),
    ];
    let returning = [
        ("release", fleet.release(tokens[0]).is_ok() && fleet.release(tokens[0]).is_err()),
        ("finish", fleet.finish(tokens[1], Outcome::Failed).is_ok()),
        ("and both count", fleet.stats().in_flight == 0 && fleet.stats().failed == 1),
    ];
    for (call, is_so) in refused.into_iter().chain(looking).chain(returning) {
        assert!(is_so, "{call} does not do what it is documented to do after `close`");
    }
}

#[test]
fn c25_refused_insertions_move_nobody() {
    // Homes follow from how full the shards are, not from a counter that may wrap or run on.
    let fleet = fleet(2);
    for key in 0..10 {
        fleet.insert(Entry::new(key, 0, 0)).expect("new");
        assert!(fleet.insert(Entry::new(key, 0, 0)).is_err());
    }
    assert_eq!(fleet.stats().shards, [5, 5]);
}

#[test]
fn c27_affinity_allocates_nothing() {
    // Counted in `tests/allocations.rs`; here: an id of any length and type is taken by reference.
    let fleet = filled(4, 4);
    let long = "x".repeat(10_000);
    let shard = fleet.acquire_by_affinity(long.as_str()).expect("free").shard();
    assert_eq!(fleet.acquire_by_affinity(&*long).expect("free").shard(), shard);
    assert!(fleet.acquire_by_affinity(&[1u8, 2, 3][..]).is_ok());
}

#[test]
fn c28_filters_exclusions_several_at_once_and_the_instant_to_come_back() {
    let clock = Arc::new(ManualClock::new());
    let fleet = Fleet::builder().shards(1).clock(Arc::clone(&clock)).build().expect("in range");
    for key in 0..3 {
        fleet.insert(Entry::new(key, u64::from(key), 0)).expect("new");
    }
    assert_eq!(*fleet.acquire_where(|entry| entry.key > 0).expect("free").key(), 1);
    assert_eq!(*fleet.acquire_excluding(&[0, 1]).expect("free").key(), 2);
    let all = fleet.acquire_many(3).expect("free");
    for lease in all {
        lease.release_after(Duration::from_secs(7));
    }
    let Err(AcquireError::NoneEligible(none)) = fleet.acquire() else { panic!("all are cooling") };
    assert_eq!(none.reasons.cooling, 3);
    assert_eq!(none.retry_after, Some(Duration::from_secs(7)), "nobody has to spin");
    clock.advance(Duration::from_secs(7));
    assert!(fleet.acquire().is_ok());
}

#[test]
fn c29_newcomers_fill_the_gaps_of_those_removed() {
    let fleet = fleet(4);
    for key in 0..40 {
        fleet.insert(Entry::new(key, 0, 0)).expect("new");
    }
    let crowded: Vec<u32> =
        fleet.snapshot().iter().filter(|state| state.shard != 2).map(|state| state.key).collect();
    for key in &crowded {
        fleet.remove(key).expect("known");
    }
    assert_eq!(fleet.stats().shards, [0, 0, 10, 0]);
    for key in crowded {
        fleet.insert(Entry::new(key, 0, 0)).expect("gone");
    }
    assert_eq!(fleet.stats().shards, [10; 4]);
}

/// Counts how often it is asked for its key, and never answers the same twice.
struct Fickle(AtomicU32, Arc<AtomicU32>);

impl Resource for Fickle {
    type Key = u32;
    type Priority = u32;

    fn key(&self) -> u32 {
        self.1.fetch_add(1, SeqCst);
        self.0.fetch_add(1, SeqCst)
    }

    fn priority(&self, _in_flight: u32) -> u32 {
        0
    }
}

#[test]
fn c30_a_key_is_asked_for_once() {
    let asked = Arc::new(AtomicU32::new(0));
    let fleet = Scheduler::<Fickle>::builder().build().expect("in range");
    let batch = (0..10).map(|i| Fickle(AtomicU32::new(i * 100), Arc::clone(&asked))).collect();
    assert!(fleet.insert_batch(batch).is_ok());
    assert_eq!(asked.load(SeqCst), 10, "once for each");
    assert!(fleet.insert(Fickle(AtomicU32::new(5), Arc::clone(&asked))).is_ok());
    assert_eq!(asked.load(SeqCst), 11);
    // The key that was answered then stays the key.
    assert!((0..10).all(|i| fleet.contains(&(i * 100))));
    let lease = fleet.acquire_key(&300).expect("free");
    assert_eq!(*lease.key(), 300);
    drop(lease);
    assert!(fleet.remove(&300).is_ok());
}
