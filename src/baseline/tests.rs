use std::{
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use proptest::prelude::*;

use super::*;
use crate::{
    Capacity, Entry, ManualClock, Scheduler,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
        thread,
    },
};

type Item = Entry<u32, u32, u64>;

const SECOND: Duration = Duration::from_secs(1);

fn item(key: u32, priority: u32) -> Item {
    Entry::new(key, priority, 0)
}

fn seconds(n: u64) -> Timestamp {
    Timestamp::from_nanos(n * 1_000_000_000)
}

/// One body for everything that the trait promises, whatever the order of choice.
macro_rules! promises {
    ($($name:ident: $scheduler:ident),*) => { $(
        mod $name {
            use super::*;

            fn empty() -> ($scheduler<Item>, Arc<ManualClock>) {
                let clock = Arc::new(ManualClock::new());
                ($scheduler::with_clock(clock.clone()), clock)
            }

            fn of(items: &[Item]) -> ($scheduler<Item>, Arc<ManualClock>) {
                let (fleet, clock) = empty();
                fleet.insert_batch(items.to_vec()).unwrap();
                (fleet, clock)
            }

            #[test]
            fn an_empty_fleet_has_nothing() { nothing(&empty().0); }
            #[test]
            fn capacity_is_kept() { capacity(&of(&[item(1, 0).with_capacity(Capacity::Limited(3)), item(2, 0)]).0); }
            #[test]
            fn leases_return_when_dropped_or_finished() { returning(&of(&[item(1, 0)]).0); }
            #[test]
            fn a_duplicate_or_impossible_resource_comes_back() { refusals(&of(&[item(1, 0)]).0); }
            #[test]
            fn c3_a_batch_is_all_or_nothing() { batches(&of(&[item(1, 0)]).0); }
            #[test]
            fn c4_a_return_after_removal_touches_nothing() { removal(&of(&[item(1, 0)]).0); }
            #[test]
            fn c4b_holds_and_leases_are_independent() { holds(&of(&[item(1, 0)]).0); }
            #[test]
            fn c6_cooling_begins_while_leased_and_ends_in_time() {
                let (fleet, clock) = of(&[item(1, 0)]);
                cooling(&fleet, &clock);
            }
            #[test]
            fn rate_limited_cools_with_the_return() {
                let (fleet, clock) = of(&[item(1, 0), item(2, 0)]);
                rate_limited(&fleet, &clock);
            }
            #[test]
            fn the_earliest_moment_is_one_that_the_clock_brings() {
                let (fleet, clock) = of(&[item(1, 0), item(2, 0), item(3, 0)]);
                earliest(&fleet, &clock);
            }
            #[test]
            fn excluded_keys_are_passed_over_and_stay() { excluding(&of(&[item(1, 0), item(2, 1), item(3, 2)]).0); }
            #[test]
            fn update_keeps_leases_and_holds() { updating(&of(&[item(1, 0)]).0); }
            #[test]
            fn closures_run_outside_of_the_lock() { closures(&of(&[item(1, 0)]).0); }
            #[test]
            fn threads_lose_nothing() {
                let items: Vec<Item> =
                    (0..8).map(|key| item(key, key).with_capacity(Capacity::Limited(1 + key % 3))).collect();
                let (fleet, clock) = of(&items);
                threads(&fleet, &clock);
            }
        }
    )* };
}

promises!(mutex: MutexScheduler, round_robin: RoundRobinScheduler, scheduler: Scheduler);

impl<R: crate::Resource> Scheduler<R> {
    fn with_clock(clock: Arc<ManualClock>) -> Self {
        Scheduler::builder().shards(2).clock(clock).build().expect("valid settings")
    }
}

fn nothing<L: Lend<Item>>(fleet: &L) {
    assert!(fleet.is_empty());
    assert_eq!(fleet.acquire().map(drop), Err(Unavailable { earliest: None }));
    assert_eq!(fleet.acquire_excluding(&[1]).map(drop), Err(Unavailable { earliest: None }));
    assert!(fleet.acquire_key(&1).is_none());
    assert!(fleet.peek_with(|_| ()).is_none());
    assert!(fleet.get_with(&1, |_| ()).is_none());
    assert!(!fleet.exclude(&1) && !fleet.include(&1) && !fleet.cool(&1, SECOND) && !fleet.remove(&1));
}

fn capacity<L: Lend<Item>>(fleet: &L) {
    let leases: Vec<_> = (0..4).map(|_| fleet.acquire().unwrap()).collect();
    assert_eq!(leases.iter().filter(|lease| lease.key == 1).count(), 3);
    assert!(fleet.acquire().is_err());
    assert!(fleet.acquire_key(&1).is_none());
    drop(leases);
    let one: Vec<_> = (0..3).map(|_| fleet.acquire_key(&1).unwrap()).collect();
    assert!(fleet.acquire_key(&1).is_none());
    drop(one);
    assert_eq!((0..4).map_while(|_| fleet.acquire().ok()).count(), 4);
}

fn returning<L: Lend<Item>>(fleet: &L) {
    let outcomes = [
        Outcome::Ok { latency: SECOND },
        Outcome::Failed,
        Outcome::Cancelled,
        Outcome::Ok { latency: Duration::ZERO },
    ];
    for outcome in outcomes {
        let lease = fleet.acquire().unwrap();
        assert!(fleet.acquire().is_err());
        lease.finish(outcome);
        drop(fleet.acquire().unwrap());
    }
}

fn refusals<L: Lend<Item>>(fleet: &L) {
    assert_eq!(fleet.insert(item(1, 9)), Err(item(1, 9)));
    let impossible = item(2, 0).with_capacity(Capacity::Limited(0));
    assert_eq!(fleet.insert(impossible), Err(impossible));
    assert_eq!(fleet.update(item(2, 0)), Err(item(2, 0)));
    let impossible = item(1, 0).with_capacity(Capacity::Limited(0));
    assert_eq!(fleet.update(impossible), Err(impossible));
    assert_eq!(fleet.len(), 1);
    assert!(!fleet.is_empty());
}

fn batches<L: Lend<Item>>(fleet: &L) {
    let taken = vec![item(2, 0), item(1, 0)];
    assert_eq!(fleet.insert_batch(taken.clone()), Err(taken));
    let twice = vec![item(2, 0), item(3, 0), item(2, 0)];
    assert_eq!(fleet.insert_batch(twice.clone()), Err(twice));
    let impossible = vec![item(2, 0), item(3, 0).with_capacity(Capacity::Limited(0))];
    assert_eq!(fleet.insert_batch(impossible.clone()), Err(impossible));
    assert_eq!(fleet.len(), 1);
    assert_eq!(fleet.insert_batch(vec![item(2, 0), item(3, 0)]), Ok(()));
    assert_eq!(fleet.len(), 3);
}

fn removal<L: Lend<Item>>(fleet: &L) {
    let old = fleet.acquire().unwrap();
    fleet.cool(&1, SECOND);
    fleet.exclude(&1);
    assert!(fleet.remove(&1));
    assert!(!fleet.remove(&1));
    // A new one in the same place, without the holds of the old one.
    fleet.insert(item(1, 5)).unwrap();
    let new = fleet.acquire().unwrap();
    assert_eq!((old.priority, new.priority), (0, 5), "both leases stay valid");
    old.finish(Outcome::RateLimited { retry_after: SECOND });
    assert!(fleet.acquire().is_err(), "the old return frees nothing");
    drop(new);
    drop(fleet.acquire().unwrap());
}

fn holds<L: Lend<Item>>(fleet: &L) {
    let lease = fleet.acquire().unwrap();
    assert!(fleet.exclude(&1), "legal while leased");
    assert!(!fleet.exclude(&1), "idempotent");
    drop(lease);
    assert!(fleet.acquire().is_err(), "a return clears no hold");
    assert!(fleet.include(&1));
    assert!(!fleet.include(&1));
    let lease = fleet.acquire().unwrap();
    fleet.exclude(&1);
    fleet.include(&1);
    assert!(fleet.acquire().is_err(), "including frees no lease");
    drop(lease);
    drop(fleet.acquire().unwrap());
    for _ in 0..1_000 {
        fleet.exclude(&1);
        fleet.include(&1);
    }
    let _lease = fleet.acquire().unwrap();
    assert!(fleet.acquire().is_err(), "never queued twice");
}

fn cooling<L: Lend<Item>>(fleet: &L, clock: &ManualClock) {
    let lease = fleet.acquire().unwrap();
    assert!(fleet.cool(&1, 3 * SECOND));
    assert!(!fleet.cool(&1, 3 * SECOND), "nothing new");
    assert!(!fleet.cool(&1, SECOND), "never shortened");
    drop(lease);
    assert_eq!(fleet.acquire().map(drop), Err(Unavailable { earliest: Some(seconds(3)) }));
    assert!(fleet.acquire_key(&1).is_none());
    assert!(fleet.cool(&1, 5 * SECOND));
    clock.advance(4 * SECOND);
    assert_eq!(fleet.acquire().map(drop), Err(Unavailable { earliest: Some(seconds(5)) }));
    fleet.exclude(&1);
    fleet.include(&1);
    assert!(fleet.acquire().is_err(), "including ends no cooling");
    clock.advance(SECOND);
    assert_eq!(fleet.peek_with(|item| item.key), Some(1));
    drop(fleet.acquire().unwrap());
    // Over and found, or over and not found yet: neither is in the way of the next one.
    assert!(fleet.cool(&1, SECOND));
    clock.advance(2 * SECOND);
    assert!(fleet.cool(&1, SECOND));
    assert!(fleet.acquire().is_err());
    clock.advance(SECOND);
    drop(fleet.acquire_key(&1).unwrap());
    assert!(fleet.cool(&1, Duration::MAX));
    assert!(fleet.acquire().is_err());
}

fn rate_limited<L: Lend<Item>>(fleet: &L, clock: &ManualClock) {
    let first = fleet.acquire().unwrap();
    let key = first.key;
    first.finish(Outcome::RateLimited { retry_after: 2 * SECOND });
    let other = fleet.acquire().unwrap();
    assert_ne!(other.key, key);
    assert_eq!(fleet.acquire().map(drop), Err(Unavailable { earliest: Some(seconds(2)) }));
    clock.advance(2 * SECOND);
    assert_eq!(fleet.acquire().unwrap().key, key);
}

fn earliest<L: Lend<Item>>(fleet: &L, clock: &ManualClock) {
    // 1 is excluded as well, 2 is leased as well: their deadlines bring nothing.
    let lease = fleet.acquire_key(&2).unwrap();
    fleet.cool(&1, SECOND);
    fleet.exclude(&1);
    fleet.cool(&2, 2 * SECOND);
    fleet.cool(&3, 3 * SECOND);
    assert_eq!(fleet.acquire().map(drop), Err(Unavailable { earliest: Some(seconds(3)) }));
    fleet.cool(&3, 9 * SECOND);
    assert_eq!(fleet.acquire().map(drop), Err(Unavailable { earliest: Some(seconds(9)) }));
    assert_eq!(fleet.acquire_excluding(&[3]).map(drop), Err(Unavailable { earliest: None }));
    fleet.include(&1);
    assert_eq!(fleet.acquire().map(drop), Err(Unavailable { earliest: Some(seconds(1)) }));
    drop(lease);
    fleet.remove(&1);
    assert_eq!(fleet.acquire().map(drop), Err(Unavailable { earliest: Some(seconds(2)) }));
    clock.advance(2 * SECOND);
    assert_eq!(fleet.acquire().unwrap().key, 2);
}

fn excluding<L: Lend<Item>>(fleet: &L) {
    for _ in 0..100 {
        let lease = fleet.acquire_excluding(&[1, 2, 99]).unwrap();
        assert_eq!(lease.key, 3);
        assert!(fleet.acquire_excluding(&[1, 2]).is_err());
    }
    assert_eq!(fleet.acquire_excluding(&[1, 2, 3]).map(drop), Err(Unavailable { earliest: None }));
    let leases: Vec<_> = (0..3).map(|_| fleet.acquire().unwrap()).collect();
    let mut keys: Vec<u32> = leases.iter().map(|lease| lease.key).collect();
    keys.sort_unstable();
    assert_eq!(keys, [1, 2, 3], "nothing was lost");
}

fn updating<L: Lend<Item>>(fleet: &L) {
    let lease = fleet.acquire().unwrap();
    let two = item(1, 7).with_capacity(Capacity::Limited(2));
    fleet.update(two).unwrap();
    assert_eq!(lease.priority, 0, "a lease keeps what it was given");
    let second = fleet.acquire().unwrap();
    assert_eq!(second.priority, 7);
    assert!(fleet.acquire().is_err());
    fleet.update(item(1, 8)).unwrap();
    drop(lease);
    assert!(fleet.acquire().is_err(), "one is out, and one is all there may be");
    drop(second);
    fleet.exclude(&1);
    fleet.update(item(1, 9)).unwrap();
    assert!(fleet.acquire().is_err());
    fleet.include(&1);
    assert_eq!(fleet.acquire().unwrap().priority, 9);
    assert_eq!(fleet.get_with(&1, |item| item.priority), Some(9));
}

fn closures<L: Lend<Item>>(fleet: &L) {
    // Would deadlock under the lock.
    assert_eq!(fleet.peek_with(|item| (item.key, fleet.len())), Some((1, 1)));
    assert_eq!(fleet.get_with(&1, |_| fleet.acquire().is_ok()), Some(true));
    assert!(catch_unwind(AssertUnwindSafe(|| fleet.peek_with(|_| panic!("in the closure")))).is_err());
    drop(fleet.acquire().unwrap());
}

fn threads<L: Lend<Item>>(fleet: &L, clock: &ManualClock) {
    let out: Vec<AtomicU32> = (0..8).map(|_| AtomicU32::new(0)).collect();
    thread::scope(|scope| {
        for seed in 0..4 {
            let out = &out;
            scope.spawn(move || {
                let mut random = crate::SplitMix64::new(seed);
                for _ in 0..3_000 {
                    let key = random.below(8);
                    match random.below(8) {
                        0 => _ = fleet.exclude(&key),
                        1 | 2 => _ = fleet.include(&key),
                        3 => _ = fleet.cool(&key, Duration::from_nanos(u64::from(random.below(9)))),
                        _ => {
                            clock.advance(Duration::from_nanos(1));
                            let Ok(lease) = fleet.acquire() else { continue };
                            let (key, limit) = (lease.key, 1 + lease.key % 3);
                            // Relaxed: a count on its own.
                            let now = out[key as usize].fetch_add(1, Ordering::Relaxed) + 1;
                            assert!(now <= limit, "{now} leases of {limit} on {key}");
                            out[key as usize].fetch_sub(1, Ordering::Relaxed);
                            let retry_after = Duration::from_nanos(2);
                            match random.below(3) {
                                0 => lease.finish(Outcome::RateLimited { retry_after }),
                                _ => drop(lease),
                            }
                        }
                    }
                }
            });
        }
    });
    clock.advance(SECOND);
    (0..8).for_each(|key| _ = fleet.include(&key));
    let leases: Vec<_> = std::iter::from_fn(|| fleet.acquire().ok()).collect();
    assert_eq!(leases.len(), (0..8).map(|key| 1 + key % 3).sum::<usize>(), "no unit of capacity was lost");
}

#[test]
fn the_best_rank_comes_first() {
    let fleet = MutexScheduler::new();
    for (key, priority) in [(1, 30), (2, 10), (3, 20)] {
        fleet.insert(item(key, priority)).unwrap();
    }
    assert_eq!(fleet.peek_with(|item| item.key), Some(2));
    let leases: Vec<_> = (0..3).map(|_| fleet.acquire().unwrap()).collect();
    assert_eq!(leases.iter().map(|lease| lease.key).collect::<Vec<_>>(), [2, 3, 1]);
    drop(leases);
    fleet.update(item(2, 40)).unwrap();
    assert_eq!(fleet.peek_with(|item| item.key), Some(3));
}

#[test]
fn c12_ties_go_to_the_least_recently_used() {
    let fleet = MutexScheduler::new();
    for key in 0..4 {
        fleet.insert(item(key, 1)).unwrap();
    }
    let keys: Vec<u32> = (0..12).map(|_| fleet.acquire().unwrap().key).collect();
    assert_eq!(keys, [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3]);
    // Shared ones too: each lending sends them to the end.
    let fleet = MutexScheduler::new();
    for key in 0..3 {
        fleet.insert(item(key, 1).with_capacity(Capacity::Unlimited)).unwrap();
    }
    let leases: Vec<_> = (0..6).map(|_| fleet.acquire().unwrap()).collect();
    assert_eq!(leases.iter().map(|lease| lease.key).collect::<Vec<_>>(), [0, 1, 2, 0, 1, 2]);
}

#[test]
fn round_robin_takes_turns_and_skips() {
    let fleet = RoundRobinScheduler::new();
    fleet.insert_batch((0..4).map(|key| item(key, 100 - key)).collect()).unwrap();
    fleet.exclude(&2);
    let keys: Vec<u32> = (0..6).map(|_| fleet.acquire().unwrap().key).collect();
    assert_eq!(keys, [0, 1, 3, 0, 1, 3]);
    let _leases: Vec<_> = (0..2).map(|_| fleet.acquire().unwrap()).collect();
    let keys: Vec<u32> = (0..2).map(|_| fleet.acquire().unwrap().key).collect();
    assert_eq!(keys, [3, 3]);
}

/// Ranked by the number of leases, and panics when told to.
struct LeastLoaded {
    key: u32,
    panics: AtomicU32,
}

impl Resource for LeastLoaded {
    type Key = u32;
    type Priority = u32;
    fn key(&self) -> u32 {
        self.key
    }
    fn priority(&self, in_flight: u32) -> u32 {
        // Relaxed: a test's switch.
        assert_ne!(self.panics.load(Ordering::Relaxed), in_flight + 1, "told to");
        in_flight
    }
    fn capacity(&self) -> Capacity {
        Capacity::Limited(4)
    }
}

fn least_loaded(keys: u32) -> MutexScheduler<LeastLoaded> {
    let fleet = MutexScheduler::new();
    for key in 0..keys {
        assert!(fleet.insert(LeastLoaded { key, panics: AtomicU32::new(0) }).is_ok());
    }
    fleet
}

#[test]
fn c11_priority_sees_the_leases() {
    let fleet = least_loaded(3);
    let mut leases: Vec<_> = (0..6).map(|_| fleet.acquire().unwrap()).collect();
    assert_eq!(leases.iter().map(|lease| lease.key).collect::<Vec<_>>(), [0, 1, 2, 0, 1, 2]);
    drop(leases.remove(4));
    assert_eq!(fleet.acquire().unwrap().key, 1, "one lease out, the others have two");
}

#[test]
fn c5_a_panic_in_priority_loses_nothing() {
    let fleet = least_loaded(1);
    let switch =
        |count| fleet.get_with(&0, |resource| resource.panics.store(count, Ordering::Relaxed)).unwrap();
    let panics = |f: &dyn Fn()| assert!(catch_unwind(AssertUnwindSafe(f)).is_err());

    switch(2);
    panics(&|| drop(fleet.acquire()));
    panics(&|| drop(fleet.acquire_key(&0)));
    panics(&|| drop(fleet.acquire_excluding(&[7])));
    switch(0);
    let (first, second, third) =
        (fleet.acquire().unwrap(), fleet.acquire().unwrap(), fleet.acquire().unwrap());
    switch(4);
    panics(&|| _ = fleet.exclude(&0));
    switch(3);
    assert!(catch_unwind(AssertUnwindSafe(|| drop(first))).is_err(), "told, and returned all the same");
    switch(0);
    drop((second, third));
    let leases: Vec<_> = std::iter::from_fn(|| fleet.acquire().ok()).collect();
    assert_eq!(leases.len(), 4);
}

#[test]
fn garbage_stays_bounded() {
    let clock = Arc::new(ManualClock::new());
    let fleet = MutexScheduler::with_clock(clock);
    fleet.insert_batch((0..10).map(|key| item(key, key)).collect()).unwrap();
    for round in 0..10_000u32 {
        let key = round % 10;
        fleet.update(item(key, round)).unwrap();
        fleet.cool(&key, Duration::from_secs(u64::from(round)));
        fleet.exclude(&key);
        fleet.include(&key);
        if round % 3 == 0 {
            fleet.remove(&key);
            fleet.insert(item(key, round)).unwrap();
        }
    }
    let [ready, cooling, slots] = fleet.lengths();
    assert!(ready <= 2 * 65 && cooling <= 2 * 65 + 10, "{ready} and {cooling} entries for 10 resources");
    assert_eq!(slots, 10);
}

/// Makes `count` overtaken entries of `key`.
fn overtake(fleet: &MutexScheduler<Item>, key: u32, count: usize) {
    for _ in 0..count {
        assert!(fleet.exclude(&key) && fleet.include(&key));
    }
}

#[test]
fn the_queue_is_rebuilt_when_the_overtaken_outnumber_the_others() {
    let length = |fleet: &MutexScheduler<Item>| fleet.lengths()[0];
    let fleet = MutexScheduler::new();
    fleet.insert_batch((0..100).map(|key| item(key, key)).collect()).unwrap();
    // While it is excluded, there are 99 others.
    overtake(&fleet, 99, 99);
    assert_eq!(length(&fleet), 199, "as many as the others are let be");
    overtake(&fleet, 99, 1);
    assert_eq!(length(&fleet), 100, "more are not");
    // A small queue is worth no rebuilding.
    let fleet = MutexScheduler::new();
    fleet.insert(item(1, 0)).unwrap();
    overtake(&fleet, 1, 64);
    assert_eq!(length(&fleet), 65);
    overtake(&fleet, 1, 1);
    assert_eq!(length(&fleet), 1);
    // Those that have surfaced are gone, and count no more.
    overtake(&fleet, 1, 60);
    fleet.update(item(1, 5)).unwrap();
    drop(fleet.acquire().unwrap());
    assert_eq!(length(&fleet), 1);
    overtake(&fleet, 1, 60);
    assert_eq!(length(&fleet), 61);
}

#[test]
fn the_cooling_queue_is_rebuilt_when_the_removed_outnumber_the_others() {
    let clock = Arc::new(ManualClock::new());
    let fleet = MutexScheduler::with_clock(clock.clone());
    let length = |fleet: &MutexScheduler<Item>| fleet.lengths()[1];
    let remove_cooling = |count: usize, after: Duration| {
        for _ in 0..count {
            fleet.insert(item(1_000, 0)).unwrap();
            assert!(fleet.cool(&1_000, after) && fleet.remove(&1_000));
        }
    };
    fleet.insert_batch((0..100).map(|key| item(key, key)).collect()).unwrap();
    (0..100).for_each(|key| assert!(fleet.cool(&key, 9 * SECOND)));
    remove_cooling(100, SECOND);
    assert_eq!(length(&fleet), 200, "as many as the others are let be");
    remove_cooling(1, SECOND);
    assert_eq!(length(&fleet), 100, "more are not");
    // Those whose time has come are gone, and count no more.
    remove_cooling(60, SECOND);
    clock.advance(SECOND);
    assert!(fleet.acquire().is_err());
    assert_eq!(length(&fleet), 100);
    remove_cooling(60, SECOND);
    assert_eq!(length(&fleet), 160);
    // A small queue is worth no rebuilding.
    (0..100).for_each(|key| assert!(fleet.remove(&key)));
    clock.advance(9 * SECOND);
    assert!(fleet.acquire().is_err());
    assert_eq!(length(&fleet), 0);
    remove_cooling(64, SECOND);
    assert_eq!(length(&fleet), 64);
    remove_cooling(1, SECOND);
    assert_eq!(length(&fleet), 0);
}

#[test]
fn the_longest_cooling_ends_with_time_itself() {
    let clock = Arc::new(ManualClock::new());
    let fleet = MutexScheduler::with_clock(clock.clone());
    fleet.insert(item(1, 0)).unwrap();
    fleet.cool(&1, Duration::MAX);
    clock.advance_to(Timestamp::from_nanos(u64::MAX - 2));
    assert!(fleet.acquire().is_err());
    clock.advance_to(Timestamp::MAX);
    drop(fleet.acquire().unwrap());
}

#[test]
fn an_update_ranks_by_the_leases_that_are_out() {
    let fleet = least_loaded(2);
    let _two: Vec<_> = (0..2).map(|_| fleet.acquire_key(&0).unwrap()).collect();
    let _one = fleet.acquire_key(&1).unwrap();
    assert!(fleet.update(LeastLoaded { key: 0, panics: AtomicU32::new(0) }).is_ok());
    assert_eq!(fleet.acquire().unwrap().key, 1, "it has fewer");
}

#[test]
fn priority_is_not_asked_under_the_lock_while_no_other_lease_is_out() {
    struct Asked(Arc<AtomicU32>);
    impl Resource for Asked {
        type Key = ();
        type Priority = ();
        fn key(&self) {}
        fn priority(&self, _: u32) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let asked = Arc::new(AtomicU32::new(0));
    let fleet = MutexScheduler::new();
    assert!(fleet.insert(Asked(asked.clone())).is_ok());
    // Before the lock is taken.
    assert_eq!(asked.swap(0, Ordering::Relaxed), 1);
    drop(fleet.acquire().unwrap());
    drop(fleet.acquire_key(&()).unwrap());
    assert!(fleet.exclude(&()) && fleet.include(&()));
    assert_eq!(asked.load(Ordering::Relaxed), 0);
}

#[test]
fn texts() {
    let text = |earliest| Unavailable { earliest }.to_string();
    assert_eq!(text(None), "no resource is eligible");
    assert_eq!(text(Some(Timestamp::from_nanos(5))), "no resource is eligible before 5 ns");
    let (mutex, round_robin) = (MutexScheduler::new(), RoundRobinScheduler::new());
    mutex.insert(item(1, 0)).unwrap();
    round_robin.insert(item(1, 0)).unwrap();
    assert_eq!(format!("{mutex:?}"), "MutexScheduler { len: 1, .. }");
    assert_eq!(format!("{round_robin:?}"), "RoundRobinScheduler { len: 1, .. }");
    assert!(format!("{:?}", mutex.acquire().unwrap()).starts_with("MutexLease(Entry { key: 1,"));
    assert!(format!("{:?}", round_robin.acquire().unwrap()).starts_with("RoundRobinLease(Entry { key: 1,"));
}

#[test]
fn the_clock_is_read_only_while_something_cools() {
    struct Counting(AtomicU32);
    impl crate::Clock for Counting {
        fn now(&self) -> Timestamp {
            // Relaxed: one thread.
            Timestamp::from_nanos(u64::from(self.0.fetch_add(1, Ordering::Relaxed)) * 1_000)
        }
    }
    let reads = Arc::new(Counting(AtomicU32::new(0)));
    let check = |acquire: &dyn Fn(), cool: &dyn Fn()| {
        let count = || reads.0.load(Ordering::Relaxed);
        let before = count();
        (0..100).for_each(|_| acquire());
        assert_eq!(count(), before);
        cool();
        (0..100).for_each(|_| acquire());
        assert!(
            (before + 2..before + 5).contains(&count()),
            "read while it cooled, not after: {}",
            count() - before
        );
    };
    let fleet = MutexScheduler::with_clock(reads.clone());
    fleet.insert_batch(vec![item(1, 0), item(2, 0)]).unwrap();
    check(&|| drop(fleet.acquire()), &|| _ = fleet.cool(&1, Duration::from_nanos(1_500)));
    let fleet = RoundRobinScheduler::with_clock(reads.clone());
    fleet.insert_batch(vec![item(1, 0), item(2, 0)]).unwrap();
    check(&|| drop(fleet.acquire()), &|| _ = fleet.cool(&1, Duration::from_nanos(1_500)));
}

/// What a scheduler over the keys 0 to 5 is told to do.
#[derive(Clone, Debug)]
enum Op {
    Insert(u32, u32, u32),
    Update(u32, u32, u32),
    Remove(u32),
    Acquire,
    AcquireKey(u32),
    AcquireExcluding(Vec<u32>),
    Return(usize, bool),
    Exclude(u32),
    Include(u32),
    Cool(u32, u64),
    Advance(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let key = 0u32..6;
    prop_oneof![
        3 => (key.clone(), 0u32..4, 1u32..4).prop_map(|(key, rank, limit)| Op::Insert(key, rank, limit)),
        2 => (key.clone(), 0u32..4, 1u32..4).prop_map(|(key, rank, limit)| Op::Update(key, rank, limit)),
        1 => key.clone().prop_map(Op::Remove),
        6 => Just(Op::Acquire),
        1 => key.clone().prop_map(Op::AcquireKey),
        1 => prop::collection::vec(key.clone(), 0..4).prop_map(Op::AcquireExcluding),
        5 => (any::<usize>(), any::<bool>()).prop_map(|(at, limited)| Op::Return(at, limited)),
        1 => key.clone().prop_map(Op::Exclude),
        1 => key.clone().prop_map(Op::Include),
        1 => (key, 0u64..9).prop_map(|(key, nanos)| Op::Cool(key, nanos)),
        1 => (1u64..6).prop_map(Op::Advance),
    ]
}

/// The definition of the semantics, in the plainest form.
#[derive(Debug)]
struct Model {
    now: u64,
    resources: HashMap<u32, ModelResource>,
    inserted: u64,
}

#[derive(Debug)]
struct ModelResource {
    id: u64,
    rank: u32,
    limit: u32,
    out: u32,
    excluded: bool,
    cool_until: u64,
}

impl Model {
    fn eligible_but_for_cooling(&self, key: u32, excluded: &[u32]) -> bool {
        let resource = &self.resources[&key];
        !resource.excluded && resource.out < resource.limit && !excluded.contains(&key)
    }

    fn eligible(&self, excluded: &[u32]) -> Vec<u32> {
        let cooled = |key: &u32| self.resources[key].cool_until <= self.now;
        let open = |key: &u32| self.eligible_but_for_cooling(*key, excluded);
        self.resources.keys().copied().filter(|key| cooled(key) && open(key)).collect()
    }

    fn earliest(&self, excluded: &[u32]) -> Option<Timestamp> {
        let open = self.resources.keys().filter(|&&key| self.eligible_but_for_cooling(key, excluded));
        open.map(|key| Timestamp::from_nanos(self.resources[key].cool_until)).min()
    }
}

/// Runs `ops` on a scheduler and on the model. `ranked`: the choice must be of the best rank.
fn against_the_model<L: Lend<Item>>(fleet: &L, clock: &ManualClock, ops: Vec<Op>, ranked: bool) {
    let mut model = Model { now: 0, resources: HashMap::new(), inserted: 0 };
    let mut leases = Vec::new();
    let make = |key, rank, limit| item(key, rank).with_capacity(Capacity::Limited(limit));
    for op in ops {
        let excluded: &[u32] = if let Op::AcquireExcluding(keys) = &op { keys } else { &[] };
        match op {
            Op::Insert(key, rank, limit) => {
                let free = !model.resources.contains_key(&key);
                assert_eq!(fleet.insert(make(key, rank, limit)).is_ok(), free);
                if free {
                    model.inserted += 1;
                    let id = model.inserted;
                    let new = ModelResource { id, rank, limit, out: 0, excluded: false, cool_until: 0 };
                    model.resources.insert(key, new);
                }
            }
            Op::Update(key, rank, limit) => {
                let known = model.resources.get_mut(&key);
                assert_eq!(fleet.update(make(key, rank, limit)).is_ok(), known.is_some());
                if let Some(resource) = known {
                    (resource.rank, resource.limit) = (rank, limit);
                }
            }
            Op::Remove(key) => assert_eq!(fleet.remove(&key), model.resources.remove(&key).is_some()),
            Op::Acquire | Op::AcquireExcluding(_) => {
                let eligible = model.eligible(excluded);
                let result =
                    if excluded.is_empty() { fleet.acquire() } else { fleet.acquire_excluding(excluded) };
                match result {
                    Ok(lease) => {
                        assert!(eligible.contains(&lease.key), "{} of {eligible:?}", lease.key);
                        let best = eligible.iter().map(|key| model.resources[key].rank).min();
                        let resource = model.resources.get_mut(&lease.key).expect("eligible");
                        assert_eq!(
                            (lease.priority, lease.capacity),
                            (resource.rank, Capacity::Limited(resource.limit))
                        );
                        assert!(
                            !ranked || Some(resource.rank) == best,
                            "{} instead of {best:?}",
                            resource.rank
                        );
                        resource.out += 1;
                        leases.push((lease.key, resource.id, lease));
                    }
                    Err(error) => {
                        assert!(eligible.is_empty(), "{eligible:?} are eligible");
                        assert_eq!(error.earliest, model.earliest(excluded));
                    }
                }
            }
            Op::AcquireKey(key) => {
                let lease = fleet.acquire_key(&key);
                assert_eq!(lease.is_some(), model.eligible(&[]).contains(&key));
                if let Some(lease) = lease {
                    let resource = model.resources.get_mut(&key).expect("eligible");
                    resource.out += 1;
                    leases.push((key, resource.id, lease));
                }
            }
            Op::Return(at, limited) if !leases.is_empty() => {
                let (key, id, lease) = leases.swap_remove(at % leases.len());
                let retry_after = Duration::from_nanos(3);
                match limited {
                    true => lease.finish(Outcome::RateLimited { retry_after }),
                    false => drop(lease),
                }
                if let Some(resource) = model.resources.get_mut(&key).filter(|resource| resource.id == id) {
                    resource.out -= 1;
                    if limited {
                        resource.cool_until = resource.cool_until.max(model.now + 3);
                    }
                }
            }
            Op::Return(..) => {}
            Op::Exclude(key) => {
                let resource = model.resources.get_mut(&key);
                let changed =
                    resource.is_some_and(|resource| !std::mem::replace(&mut resource.excluded, true));
                assert_eq!(fleet.exclude(&key), changed);
            }
            Op::Include(key) => {
                let resource = model.resources.get_mut(&key);
                let changed = resource.is_some_and(|resource| std::mem::take(&mut resource.excluded));
                assert_eq!(fleet.include(&key), changed);
            }
            Op::Cool(key, nanos) => {
                fleet.cool(&key, Duration::from_nanos(nanos));
                if let Some(resource) = model.resources.get_mut(&key) {
                    resource.cool_until = resource.cool_until.max(model.now + nanos);
                }
            }
            Op::Advance(nanos) => {
                clock.advance(Duration::from_nanos(nanos));
                model.now += nanos;
            }
        }
        assert_eq!(fleet.len(), model.resources.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn mutex_keeps_to_the_model(ops in prop::collection::vec(op(), 0..200)) {
        let clock = Arc::new(ManualClock::new());
        against_the_model(&MutexScheduler::with_clock(clock.clone()), &clock, ops, true);
    }

    #[test]
    fn round_robin_keeps_to_the_model(ops in prop::collection::vec(op(), 0..200)) {
        let clock = Arc::new(ManualClock::new());
        against_the_model(&RoundRobinScheduler::with_clock(clock.clone()), &clock, ops, false);
    }
}
