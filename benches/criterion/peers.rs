//! Other people's maps, queues and pools beside the scheduler, on one thread and on two.
//!
//! * `get`: a random key among 10,000.
//! * `insert+remove`: a key that is new and no other thread's.
//! * `pair`: takes the best and gives it back. Pools hand out anything, so their figure has no order in it.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    hint::black_box,
    sync::RwLock,
};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use crossbeam_skiplist::SkipSet;
use dashmap::DashMap;
use leasehold::{DefaultHashBuilder, Entry, Strategy, internals::sync::CachePadded};
use leasehold_benches::{Asset, RESOURCES, SHARDS, Worker, assets, scheduler, together};
use lockfree_object_pool::LinearObjectPool;

fn measure(c: &mut Criterion, group: &str, name: &str, operation: impl Fn(&mut Worker) + Sync) {
    let mut group = c.benchmark_group(group);
    for threads in [1, 2] {
        group.bench_function(BenchmarkId::new(name, threads), |b| {
            b.iter_custom(|operations| together(threads, operations, &operation));
        });
    }
}

fn pairs_of_keys() -> impl Iterator<Item = (u64, Asset)> {
    assets(RESOURCES).into_iter().map(|asset| (asset.key, asset))
}

fn get(c: &mut Criterion) {
    let fleet = scheduler(RESOURCES, SHARDS, Strategy::default());
    measure(c, "get", "leasehold", |worker| {
        black_box(fleet.get(&worker.below(RESOURCES)).expect("there").value);
    });
    let map: papaya::HashMap<u64, Asset, DefaultHashBuilder> = pairs_of_keys().collect();
    measure(c, "get", "papaya", |worker| {
        black_box(map.pin().get(&worker.below(RESOURCES)).expect("there").value);
    });
    let map: DashMap<u64, Asset, DefaultHashBuilder> = pairs_of_keys().collect();
    measure(c, "get", "dashmap", |worker| {
        black_box(map.get(&worker.below(RESOURCES)).expect("there").value);
    });
    let map = scc::HashIndex::<u64, Asset, DefaultHashBuilder>::default();
    pairs_of_keys().for_each(|(key, asset)| assert!(map.insert_sync(key, asset).is_ok()));
    measure(c, "get", "scc::HashIndex", |worker| {
        black_box(map.peek_with(&worker.below(RESOURCES), |_, asset| asset.value).expect("there"));
    });
    let map: flurry::HashMap<u64, Asset, DefaultHashBuilder> = pairs_of_keys().collect();
    measure(c, "get", "flurry", |worker| {
        black_box(map.pin().get(&worker.below(RESOURCES)).expect("there").value);
    });
    let map: HashMap<u64, Asset, DefaultHashBuilder> = pairs_of_keys().collect();
    let map = RwLock::new(map);
    measure(c, "get", "RwLock<HashMap>", |worker| {
        let map = map.read().expect("nobody panics");
        black_box(map.get(&worker.below(RESOURCES)).expect("there").value);
    });
}

fn insert_remove(c: &mut Criterion) {
    const GROUP: &str = "insert+remove";
    let fleet = scheduler(RESOURCES, SHARDS, Strategy::default());
    measure(c, GROUP, "leasehold", |worker| {
        let key = worker.fresh_key();
        assert!(fleet.insert(Entry::new(key, key, 0)).is_ok() && fleet.remove(&key).is_ok());
    });
    let map: papaya::HashMap<u64, Asset, DefaultHashBuilder> = pairs_of_keys().collect();
    measure(c, GROUP, "papaya", |worker| {
        let (key, map) = (worker.fresh_key(), map.pin());
        assert!(map.insert(key, Entry::new(key, key, 0)).is_none() && map.remove(&key).is_some());
    });
    let map: DashMap<u64, Asset, DefaultHashBuilder> = pairs_of_keys().collect();
    measure(c, GROUP, "dashmap", |worker| {
        let key = worker.fresh_key();
        assert!(map.insert(key, Entry::new(key, key, 0)).is_none() && map.remove(&key).is_some());
    });
    let map = scc::HashMap::<u64, Asset, DefaultHashBuilder>::default();
    pairs_of_keys().for_each(|(key, asset)| assert!(map.insert_sync(key, asset).is_ok()));
    measure(c, GROUP, "scc::HashMap", |worker| {
        let key = worker.fresh_key();
        assert!(map.insert_sync(key, Entry::new(key, key, 0)).is_ok() && map.remove_sync(&key).is_some());
    });
    let map: flurry::HashMap<u64, Asset, DefaultHashBuilder> = pairs_of_keys().collect();
    measure(c, GROUP, "flurry", |worker| {
        let (key, map) = (worker.fresh_key(), map.pin());
        assert!(map.insert(key, Entry::new(key, key, 0)).is_none() && map.remove(&key).is_some());
    });
}

fn pair(c: &mut Criterion) {
    const GROUP: &str = "pair";
    let fleet = scheduler(RESOURCES, SHARDS, Strategy::default());
    measure(c, GROUP, "leasehold", |_| drop(black_box(fleet.acquire().expect("one is free"))));
    let entries = || assets(RESOURCES).into_iter().map(|asset| (asset.priority, asset.key));
    let heap = std::sync::Mutex::new(entries().map(Reverse).collect::<BinaryHeap<_>>());
    measure(c, GROUP, "std Mutex<BinaryHeap>", |_| {
        let best = heap.lock().expect("nobody panics").pop().expect("one is free");
        heap.lock().expect("nobody panics").push(black_box(best));
    });
    let heap = parking_lot::Mutex::new(entries().map(Reverse).collect::<BinaryHeap<_>>());
    measure(c, GROUP, "parking_lot Mutex<BinaryHeap>", |_| {
        let best = heap.lock().pop().expect("one is free");
        heap.lock().push(black_box(best));
    });
    // Each thread stays on its heap: no order between threads.
    let heaps: Vec<_> = (0..SHARDS)
        .map(|shard| {
            let own = entries().filter(|entry| entry.1 as usize % SHARDS == shard);
            CachePadded::new(parking_lot::Mutex::new(own.map(Reverse).collect::<BinaryHeap<_>>()))
        })
        .collect();
    measure(c, GROUP, "parking_lot heap of the thread's own", |worker| {
        let heap = &heaps[worker.thread % SHARDS];
        let best = heap.lock().pop().expect("one is free");
        heap.lock().push(black_box(best));
    });
    let set: SkipSet<(u64, u64)> = entries().collect();
    measure(c, GROUP, "crossbeam-skiplist", |_| {
        let best = *set.pop_front().expect("one is free").value();
        set.insert(black_box(best));
    });
    let pool = LinearObjectPool::<u64>::new(|| 0, |_| ());
    measure(c, GROUP, "lockfree-object-pool (no order)", |_| drop(black_box(pool.pull())));
    let pool = object_pool::Pool::<u64>::new(RESOURCES as usize, || 0);
    measure(c, GROUP, "object-pool (no order)", |_| drop(black_box(pool.try_pull().expect("one is free"))));
}

criterion_group!(benches, get, insert_remove, pair);
criterion_main!(benches);
