//! Sequential semantics against an oracle, and stress with real threads. Schedules and orderings are the models' job
//! (`verification/`).

#![allow(clippy::disallowed_methods)]

use std::{collections::HashMap, hash::BuildHasher, ptr::NonNull};

use proptest::prelude::*;

use super::{
    Guard, Keyed, Link, Map, Occupied, Reclaim,
    reclaim::{DefaultReclaim, Epoch},
};
use crate::sync::{
    Arc, SplitMix64,
    atomic::{AtomicU64, AtomicUsize, Ordering},
    thread,
};

mod growth;

/// How a test spreads its keys.
#[derive(Clone, Copy, Debug)]
enum Spread {
    Good,
    /// Good in the leading bits only: fragments collide.
    Leading,
    /// The key itself.
    Identity,
    /// Four hashes for all keys.
    Crowded,
    /// One hash for all keys.
    Collide,
}

const SPREADS: [Spread; 5] =
    [Spread::Good, Spread::Leading, Spread::Identity, Spread::Crowded, Spread::Collide];

impl Spread {
    fn hash(self, key: u32) -> u64 {
        match self {
            Spread::Good => foldhash::fast::FixedState::default().hash_one(key),
            Spread::Leading => SplitMix64::mix(u64::from(key)) << 32,
            Spread::Identity => u64::from(key),
            Spread::Crowded => SplitMix64::mix(u64::from(key) % 4),
            Spread::Collide => 7,
        }
    }
}

struct Item {
    key: u32,
    hash: u64,
    value: u64,
    drops: Arc<AtomicUsize>,
    link: Link<Item>,
}

impl Item {
    fn boxed(key: u32, spread: Spread, value: u64, drops: &Arc<AtomicUsize>) -> Box<Item> {
        Box::new(Item { key, hash: spread.hash(key), value, drops: Arc::clone(drops), link: Link::new() })
    }
}

impl Drop for Item {
    fn drop(&mut self) {
        // Overwritten, so that a use after it is likely to be seen.
        self.key = u32::MAX;
        self.drops.fetch_add(1, Ordering::Relaxed);
    }
}

impl Keyed for Item {
    type Key = u32;

    fn key(&self) -> &u32 {
        &self.key
    }

    fn hash(&self) -> u64 {
        self.hash
    }

    fn link(&self) -> &Link<Item> {
        &self.link
    }
}

fn drops() -> Arc<AtomicUsize> {
    Arc::new(AtomicUsize::new(0))
}

#[allow(unsafe_code)]
fn free<T>(item: NonNull<T>) {
    // SAFETY: every item of these tests comes from a box, and each caller holds the only right to it.
    drop(unsafe { Box::from_raw(item.as_ptr()) });
}

#[allow(unsafe_code)]
fn retire<T: Send + 'static>(guard: &impl Guard, item: NonNull<T>) {
    unsafe fn reclaim<T>(item: *mut T) {
        // SAFETY: from a box, and run once.
        drop(unsafe { Box::from_raw(item) });
    }
    // SAFETY: `remove_item` has just returned it, so no new guard can reach it, and to nobody else.
    unsafe { guard.retire(item.as_ptr(), reclaim::<T>) }
}

fn drain<T: Keyed + Send + Sync + 'static, C: Reclaim>(map: &mut Map<T, C>) -> usize {
    map.drain().into_iter().map(free).count()
}

#[test]
fn what_is_inserted_is_found_until_removed() {
    let drops = drops();
    let mut map: Map<Item> = Map::with_capacity(0);
    for key in 0..1_000 {
        let guard = map.pin();
        assert!(map.get(Spread::Good.hash(key), &key, &guard).is_none());
        map.insert(Item::boxed(key, Spread::Good, 1, &drops), &guard).expect("new");
        assert_eq!(map.get(Spread::Good.hash(key), &key, &guard).map(|item| item.key), Some(key));
    }
    {
        let guard = map.pin();
        map.check_invariants(&guard);
        for key in (0..1_000).step_by(2) {
            let item = map.get(Spread::Good.hash(key), &key, &guard).expect("there");
            let removed = map.remove_item(item, &guard).expect("nobody else removes");
            assert!(std::ptr::eq(removed.as_ptr(), item));
            assert!(map.get(Spread::Good.hash(key), &key, &guard).is_none());
            assert!(map.remove_item(item, &guard).is_none(), "removed once");
            retire(&guard, removed);
        }
        map.check_invariants(&guard);
        assert_eq!(map.statistics(&guard).items, 500);
    }
    assert_eq!(drain(&mut map), 500);
    assert_eq!(map.statistics(&map.pin()).items, 0);
}

#[test]
fn an_occupied_key_gives_the_item_back() {
    let drops = drops();
    let mut map: Map<Item> = Map::with_capacity(4);
    {
        let guard = map.pin();
        map.insert(Item::boxed(1, Spread::Good, 10, &drops), &guard).expect("new");
        let Err(Occupied { existing, item }) = map.insert(Item::boxed(1, Spread::Good, 20, &drops), &guard)
        else {
            panic!("the key is taken")
        };
        assert_eq!((existing.value, item.value), (10, 20));
    }
    assert_eq!(drops.load(Ordering::Relaxed), 1);
    drain(&mut map);
    assert_eq!(drops.load(Ordering::Relaxed), 2);
}

/// Churn at a constant number of items builds up nothing, and the buckets follow a crowd.
#[test]
fn the_buckets_follow_the_number_of_items() {
    let drops = drops();
    let mut map: Map<Item> = Map::with_capacity(0);
    let insert = |map: &Map<Item>, key| {
        let guard = map.pin();
        map.insert(Item::boxed(key, Spread::Good, 0, &drops), &guard).expect("new");
    };
    let remove = |map: &Map<Item>, key: u32| {
        let guard = map.pin();
        let item = map.get(Spread::Good.hash(key), &key, &guard).expect("there");
        retire(&guard, map.remove_item(item, &guard).expect("nobody else removes"));
    };
    (0..100).for_each(|key| insert(&map, key));
    for key in 100..50_000 {
        remove(&map, key - 100);
        insert(&map, key);
    }
    let buckets = map.statistics(&map.pin()).buckets;
    assert!((256..=512).contains(&buckets), "{buckets} buckets for 100 items");
    (50_000..150_000).for_each(|key| insert(&map, key));
    let grown = map.statistics(&map.pin()).buckets;
    assert!((1 << 17..=1 << 19).contains(&grown), "{grown} buckets for 100,000 items");
    (50_000..150_000).for_each(|key| remove(&map, key));
    for key in 150_000..450_000 {
        insert(&map, key);
        remove(&map, key);
    }
    map.finish_growth(&map.pin());
    map.check_invariants(&map.pin());
    assert!(map.statistics(&map.pin()).buckets <= 2 * grown, "nothing is left to grow for");
    assert_eq!(drain(&mut map), 100);
}

/// Keys that more buckets would not part do not make the map grow for ever.
#[test]
fn equal_hashes_do_not_make_buckets() {
    for (spread, most) in [(Spread::Collide, 16), (Spread::Crowded, 64)] {
        let drops = drops();
        let mut map: Map<Item> = Map::with_capacity(0);
        for key in 0..1_000 {
            map.insert(Item::boxed(key, spread, 0, &drops), &map.pin()).expect("new");
        }
        assert!(map.statistics(&map.pin()).buckets <= most, "{spread:?}");
        drain(&mut map);
    }
}

#[test]
fn a_capacity_is_kept_without_growth() {
    let drops = drops();
    for items in [0, 1, 5, 6, 10, 11, 1_000, 5_000] {
        let mut map: Map<Item> = Map::with_capacity(items);
        let buckets = map.statistics(&map.pin()).buckets;
        assert_eq!(buckets, (items * 16).div_ceil(5).next_power_of_two().max(16), "{items}");
        for key in 0..items {
            map.insert(Item::boxed(key as u32, Spread::Good, 0, &drops), &map.pin()).expect("new");
        }
        let after = map.statistics(&map.pin());
        assert_eq!((after.buckets, after.growing), (buckets, false));
        map.check_invariants(&map.pin());
        drain(&mut map);
        assert_eq!(map.statistics(&map.pin()).buckets, buckets);
    }
}

/// A key whose `Eq` panics on demand; what it answers agrees with its `Hash`.
struct Touchy(u32);

impl std::hash::Hash for Touchy {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

std::thread_local! {
    static PANIC: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

impl PartialEq for Touchy {
    fn eq(&self, other: &Self) -> bool {
        assert!(!PANIC.get(), "user code");
        self.0 == other.0
    }
}

impl Eq for Touchy {}

struct TouchyItem(Touchy, Link<TouchyItem>, Arc<AtomicUsize>);

impl Drop for TouchyItem {
    fn drop(&mut self) {
        self.2.fetch_add(1, Ordering::Relaxed);
    }
}

impl Keyed for TouchyItem {
    type Key = Touchy;

    fn key(&self) -> &Touchy {
        &self.0
    }

    fn hash(&self) -> u64 {
        0
    }

    fn link(&self) -> &Link<TouchyItem> {
        &self.1
    }
}

#[test]
fn a_panic_in_eq_leaves_the_map_as_it_was() {
    let drops = drops();
    let mut map: Map<TouchyItem> = Map::with_capacity(0);
    let item = |key| Box::new(TouchyItem(Touchy(key), Link::new(), Arc::clone(&drops)));
    for key in 0..50 {
        let attempt = |map: &Map<TouchyItem>, key| {
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                map.insert(item(key), &map.pin()).is_ok()
            }))
        };
        if key > 0 {
            PANIC.set(true);
            assert!(attempt(&map, key).is_err());
            let get = std::panic::AssertUnwindSafe(|| map.get(0, &Touchy(key), &map.pin()).is_some());
            assert!(std::panic::catch_unwind(get).is_err());
            PANIC.set(false);
            assert_eq!(drops.load(Ordering::Relaxed), key as usize, "the rejected item was freed");
        }
        assert!(attempt(&map, key).expect("no panic"));
        map.check_invariants(&map.pin());
    }
    assert_eq!(drain(&mut map), 50);
}

#[derive(Clone, Debug)]
enum Op {
    Insert(u32),
    Remove(u32),
    Get(u32),
    Iterate,
    Check,
}

fn op(keys: u32) -> impl Strategy<Value = Op> {
    prop_oneof![
        30 => (0..keys).prop_map(Op::Insert),
        25 => (0..keys).prop_map(Op::Remove),
        20 => (0..keys).prop_map(Op::Get),
        1 => Just(Op::Iterate),
        1 => Just(Op::Check),
    ]
}

fn run<C: Reclaim>(ops: &[Op], spread: Spread) {
    let drops = drops();
    let mut made = 0;
    let mut map: Map<Item, C> = Map::with_capacity(0);
    let mut oracle: HashMap<u32, u64> = HashMap::new();
    for op in ops {
        let guard = map.pin();
        match *op {
            Op::Insert(key) => {
                made += 1;
                match map.insert(Item::boxed(key, spread, made, &drops), &guard) {
                    Ok(item) => {
                        assert_eq!(item.value, made);
                        assert!(oracle.insert(key, made).is_none());
                    }
                    Err(occupied) => assert_eq!(oracle.get(&key), Some(&occupied.existing.value)),
                }
            }
            Op::Remove(key) => match map.get(spread.hash(key), &key, &guard) {
                Some(item) => {
                    assert_eq!(oracle.remove(&key), Some(item.value));
                    retire(&guard, map.remove_item(item, &guard).expect("alone"));
                }
                None => assert!(!oracle.contains_key(&key)),
            },
            Op::Get(key) => {
                let found = map.get(spread.hash(key), &key, &guard);
                assert_eq!(found.map(|item| item.value), oracle.get(&key).copied());
            }
            Op::Iterate => {
                let items: HashMap<u32, u64> = map.iter(&guard).map(|item| (item.key, item.value)).collect();
                assert_eq!(map.iter(&guard).count(), items.len(), "an item was met twice");
                assert_eq!(items, oracle);
            }
            Op::Check => map.check_invariants(&guard),
        }
    }
    map.check_invariants(&map.pin());
    assert_eq!(drain(&mut map), oracle.len());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_500))]

    #[test]
    fn behaves_like_a_hash_map(ops in prop::collection::vec(op(60), 300), spread in 0..SPREADS.len()) {
        run::<DefaultReclaim>(&ops, SPREADS[spread]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn behaves_like_a_hash_map_over_many_sizes(ops in prop::collection::vec(op(5_000), 1_500), spread in 0..3usize) {
        run::<DefaultReclaim>(&ops, SPREADS[spread]);
    }
}

/// Sizes of the stress tests.
const THREADS: u64 = 6;
const ROUNDS: u64 = 60_000;

/// All threads insert and remove a few keys that they share, so that winners must be exactly one; one of them watches
/// keys that nobody touches.
fn stress<C: Reclaim>(spread: Spread, contested: u32, rounds: u64) {
    const STABLE: u32 = 1_000_000;
    const STABLES: u32 = 40;
    let drops = drops();
    let map: Arc<Map<Item, C>> = Arc::new(Map::with_capacity(0));
    for key in STABLE..STABLE + STABLES {
        map.insert(Item::boxed(key, spread, 0, &drops), &map.pin()).expect("new");
    }
    let balance: Arc<Vec<AtomicU64>> = Arc::new((0..contested).map(|_| AtomicU64::new(0)).collect());
    let made = Arc::new(AtomicUsize::new(STABLES as usize));
    let threads: Vec<_> = (0..THREADS)
        .map(|number| {
            let (map, drops, balance, made) =
                (Arc::clone(&map), Arc::clone(&drops), Arc::clone(&balance), Arc::clone(&made));
            thread::spawn(move || {
                let mut random = SplitMix64::new(number);
                for round in 0..rounds {
                    let guard = map.pin();
                    let key = random.below(contested);
                    match random.below(8) {
                        0..=3 => {
                            made.fetch_add(1, Ordering::Relaxed);
                            let item = Item::boxed(key, spread, number << 32 | round, &drops);
                            match map.insert(item, &guard) {
                                Ok(_) => {
                                    balance[key as usize].fetch_add(1, Ordering::Relaxed);
                                }
                                Err(occupied) => assert_eq!(occupied.existing.key, key),
                            }
                        }
                        4..=6 => {
                            if let Some(item) = map.get(spread.hash(key), &key, &guard) {
                                assert_eq!(item.key, key);
                                if let Some(item) = map.remove_item(item, &guard) {
                                    balance[key as usize].fetch_sub(1, Ordering::Relaxed);
                                    retire(&guard, item);
                                }
                            }
                        }
                        _ => {
                            let stable = STABLE + random.below(STABLES);
                            let found = map.get(spread.hash(stable), &stable, &guard);
                            assert_eq!(found.map(|item| item.key), Some(stable), "missed");
                            if round % 64 == 0 {
                                let mut met = vec![0u32; STABLES as usize];
                                let mut addresses = std::collections::HashSet::new();
                                for item in map.iter(&guard) {
                                    assert!(addresses.insert(std::ptr::from_ref(item)), "met twice");
                                    if item.key >= STABLE {
                                        met[(item.key - STABLE) as usize] += 1;
                                    }
                                }
                                assert!(met.iter().all(|&times| times == 1), "{met:?}");
                            }
                        }
                    }
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("no panic");
    }
    let mut map = Arc::into_inner(map).expect("all threads are gone");
    {
        let guard = map.pin();
        map.check_invariants(&guard);
        for key in 0..contested {
            let there = map.get(spread.hash(key), &key, &guard).is_some();
            assert_eq!(balance[key as usize].load(Ordering::Relaxed), u64::from(there), "key {key}");
        }
    }
    drain(&mut map);
    // What was retired is freed by whoever pins next, once no other test of this process is pinned and off its processor.
    drop(map);
    let made = made.load(Ordering::Relaxed);
    let patience = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while drops.load(Ordering::Relaxed) != made && std::time::Instant::now() < patience {
        crossbeam_epoch::pin().flush();
        super::collect_garbage();
        thread::yield_now();
    }
    assert_eq!(drops.load(Ordering::Relaxed), made, "every item is freed once");
}

#[test]
fn stress_few_keys_in_epochs() {
    stress::<Epoch>(Spread::Good, 8, ROUNDS);
}

#[test]
fn stress_few_keys() {
    stress::<DefaultReclaim>(Spread::Good, 8, ROUNDS);
}

#[test]
fn stress_many_keys() {
    stress::<DefaultReclaim>(Spread::Good, 3_000, ROUNDS);
}

#[test]
fn stress_one_hash() {
    stress::<DefaultReclaim>(Spread::Collide, 8, ROUNDS / 3);
}

#[cfg(feature = "seize")]
mod with_seize {
    use super::{super::reclaim::Seize, *};

    #[test]
    fn stress_many_keys() {
        stress::<Seize>(Spread::Good, 3_000, ROUNDS);
    }

    #[test]
    #[should_panic(expected = "the guard of another map")]
    fn a_foreign_guard_is_rejected() {
        let (one, other): (Map<Item, Seize>, Map<Item, Seize>) =
            (Map::with_capacity(0), Map::with_capacity(0));
        one.get(0, &0, &other.pin());
    }

    proptest! {
        #[test]
        fn behaves_like_a_hash_map(ops in prop::collection::vec(op(60), 300), spread in 0..SPREADS.len()) {
            run::<Seize>(&ops, SPREADS[spread]);
        }
    }
}
