//! One thread, our side and a rival's in turns of short slices: ratios that repeat to a few percent on a machine that does other
//! things too.
//!
//! What else runs takes whole time slices of the kernel, milliseconds. A slice here is some tens of microseconds, so that most are
//! undisturbed, and the tenth part that was fastest all the more; of each side that tenth's upper end is shown, with the medians beside it.
//!
//! ```sh
//! cargo bench --manifest-path benches/Cargo.toml --bench slices                       # every row
//! cargo bench --manifest-path benches/Cargo.toml --bench slices -- get update         # those whose names contain one of these
//! target/release/deps/slices-... --only get 5000000                                   # our side alone, so often: for a profiler
//! target/release/deps/slices-... --theirs get 5000000                                 # the other side alone
//! ```
//!
//! Two threads are `leasehold compare`'s.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    hash::BuildHasher,
    hint::black_box,
    ptr::NonNull,
    sync::Mutex,
    time::{Duration, Instant},
};

use leasehold::{
    DefaultHashBuilder, Entry, Scheduler, Strategy,
    baseline::{Lend, MutexScheduler},
    internals::lookup::{Guard, Keyed, Link, Map},
};
use leasehold_benches::{
    Asset, Loaded, RESOURCES, SHARDS, Worker, assets, fill, fill_loaded, scheduler as of_strategy,
};

/// Operations in a slice.
const SLICE: u32 = 1_000;
/// Slices of each side.
const TURNS: usize = 400;

/// Does so many operations, and tells how long they took.
type Side = Box<dyn FnMut(u32) -> Duration>;

struct Row {
    name: &'static str,
    /// Each side is made when its row comes: fleets that lie about would share the caches.
    sides: fn() -> (Side, Side),
    slice: u32,
}

const ROWS: &[Row] = &[
    row("pair/heap", || (pairs(fleet(), |asset| asset.value), bare_heap())),
    row("pair/mutex", || (pairs(fleet(), |asset| asset.value), pairs(mutexed(), |asset| asset.value))),
    row("peek/lock", || (peeks(), locks())),
    row("get/scc", || (gets(), gets_of_scc())),
    row("get/papaya", || (gets(), gets_of_papaya())),
    row("churn/dashmap", || (churn(), churn_of_dashmap())),
    row("churn/scc", || (churn(), churn_of_scc())),
    row("update/mutex", || (updates(fleet()), updates(mutexed()))),
    row("exclude+include/mutex", || (exclusions(fleet()), exclusions(mutexed()))),
    row("least-loaded/mutex", || {
        let scheduler = Scheduler::builder().shards(SHARDS).seed(1).build().expect("in range");
        let sides = (fill_loaded(scheduler), fill_loaded(MutexScheduler::new()));
        (pairs(sides.0, |loaded: &Loaded| loaded.0), pairs(sides.1, |loaded: &Loaded| loaded.0))
    }),
    Row { slice: 1, ..row("insert-batch/mutex", || (batches(fleet()), batches(mutexed()))) },
];

fn timed(times: u32, mut operation: impl FnMut()) -> Duration {
    let start = Instant::now();
    for _ in 0..times {
        operation();
    }
    start.elapsed()
}

const fn row(name: &'static str, sides: fn() -> (Side, Side)) -> Row {
    Row { name, sides, slice: SLICE }
}

fn fleet() -> Scheduler<Asset> {
    of_strategy(RESOURCES, SHARDS, Strategy::default())
}

fn mutexed() -> MutexScheduler<Asset> {
    fill(MutexScheduler::new(), RESOURCES)
}

fn pairs<R, L>(lender: L, read: fn(&R) -> u64) -> Side
where
    R: leasehold::Resource,
    L: Lend<R> + 'static,
{
    Box::new(move |times| timed(times, || _ = black_box(read(&lender.acquire().expect("one is free")))))
}

fn bare_heap() -> Side {
    let heap: BinaryHeap<_> =
        assets(RESOURCES).into_iter().map(|asset| Reverse((asset.priority, asset.key))).collect();
    let heap = Mutex::new(heap);
    Box::new(move |times| {
        timed(times, || {
            let best = heap.lock().expect("no panic").pop().expect("not empty");
            heap.lock().expect("no panic").push(black_box(best));
        })
    })
}

fn peeks() -> Side {
    let fleet = fleet();
    Box::new(move |times| timed(times, || _ = black_box(fleet.peek().expect("nobody holds one").value)))
}

fn locks() -> Side {
    let mutex = Mutex::new(0_u64);
    Box::new(move |times| timed(times, || _ = black_box(*mutex.lock().expect("no panic"))))
}

/// A random key each time, of one that is there.
fn by_key(mut operation: impl FnMut(u64) + 'static) -> Side {
    let mut worker = Worker::new(0);
    Box::new(move |times| timed(times, || operation(worker.below(RESOURCES))))
}

fn gets() -> Side {
    let fleet = fleet();
    by_key(move |key| _ = black_box(fleet.get(&key).expect("it is there").value))
}

fn gets_of_scc() -> Side {
    let index = scc::HashIndex::<u64, Asset, DefaultHashBuilder>::default();
    for asset in assets(RESOURCES) {
        assert!(index.insert_sync(asset.key, asset).is_ok(), "a new key");
    }
    by_key(move |key| _ = black_box(index.peek_with(&key, |_, asset| asset.value).expect("it is there")))
}

fn gets_of_papaya() -> Side {
    let map: papaya::HashMap<u64, Asset, DefaultHashBuilder> =
        assets(RESOURCES).into_iter().map(|asset| (asset.key, asset)).collect();
    by_key(move |key| _ = black_box(map.pin().get(&key).expect("it is there").value))
}

/// A new key each time, beside those that stay.
fn by_new_key(mut operation: impl FnMut(u64) + 'static) -> Side {
    let mut next = u64::from(RESOURCES);
    Box::new(move |times| {
        timed(times, || {
            operation(next);
            next += 1;
        })
    })
}

/// An item of our map, as the scheduler's: on its own, retired after its removal.
struct Item {
    key: u64,
    hash: u64,
    link: Link<Item>,
}

impl Keyed for Item {
    type Key = u64;

    fn key(&self) -> &u64 {
        &self.key
    }

    fn hash(&self) -> u64 {
        self.hash
    }

    fn link(&self) -> &Link<Item> {
        &self.link
    }
}

/// Drains the map at its end.
struct Items(Map<Item>);

impl Drop for Items {
    fn drop(&mut self) {
        for item in self.0.drain() {
            // SAFETY: the map is empty, no guard of it lives, and the item came out of a box.
            drop(unsafe { Box::from_raw(item.as_ptr()) });
        }
    }
}

fn churn() -> Side {
    let hasher = DefaultHashBuilder::default();
    let item = move |key| Box::new(Item { key, hash: hasher.hash_one(key), link: Link::new() });
    let items = Items(Map::with_capacity(RESOURCES as usize));
    for key in 0..u64::from(RESOURCES) {
        assert!(items.0.insert(item(key), &items.0.pin()).is_ok(), "a new key");
    }
    by_new_key(move |key| {
        let guard = items.0.pin();
        let inserted = items.0.insert(item(key), &guard).expect("a new key");
        let removed: NonNull<Item> = items.0.remove_item(inserted, &guard).expect("it was inserted");
        // SAFETY: whoever has removed the item retires it, once; it came out of a box.
        unsafe { guard.retire(removed.as_ptr(), |item| drop(Box::from_raw(item))) };
    })
}

fn churn_of_dashmap() -> Side {
    let map: dashmap::DashMap<u64, u64, DefaultHashBuilder> =
        (0..u64::from(RESOURCES)).map(|key| (key, key)).collect();
    by_new_key(move |key| {
        assert!(map.insert(key, key).is_none(), "a new key");
        assert!(map.remove(&key).is_some(), "it was inserted");
    })
}

fn churn_of_scc() -> Side {
    let map = scc::HashMap::<u64, u64, DefaultHashBuilder>::default();
    for key in 0..u64::from(RESOURCES) {
        assert!(map.insert_sync(key, key).is_ok(), "a new key");
    }
    by_new_key(move |key| {
        assert!(map.insert_sync(key, key).is_ok(), "a new key");
        assert!(map.remove_sync(&key).is_some(), "it was inserted");
    })
}

fn updates<L: Lend<Asset> + 'static>(lender: L) -> Side {
    let mut priorities = Worker::new(1);
    by_key(move |key| {
        let priority = priorities.random();
        assert!(lender.update(Entry::new(key, priority, key)).is_ok(), "it is there");
    })
}

fn exclusions<L: Lend<Asset> + 'static>(lender: L) -> Side {
    by_key(move |key| assert!(lender.exclude(&key) && lender.include(&key), "it is there"))
}

/// A thousand more each time; they are removed again out of sight of the clock.
fn batches<L: Lend<Asset> + 'static>(lender: L) -> Side {
    Box::new(move |times| {
        let mut taken = Duration::ZERO;
        for _ in 0..times {
            let new = u64::from(RESOURCES)..u64::from(RESOURCES) + 1_000;
            let mut batch = Some(new.clone().map(|key| Entry::new(key, key, key)).collect());
            taken += timed(1, || {
                let batch = batch.take().expect("once");
                assert!(lender.insert_batch(batch).is_ok(), "the keys are distinct");
            });
            for key in new {
                assert!(lender.remove(&key), "it was inserted");
            }
        }
        taken
    })
}

fn compare(row: &Row) {
    let (mut ours, mut theirs) = (row.sides)();
    let each = |side: &mut Side| side(row.slice).as_nanos() as f64 / f64::from(row.slice);
    let (mut us, mut them): (Vec<_>, Vec<_>) =
        (0..TURNS).map(|_| (each(&mut ours), each(&mut theirs))).unzip();
    us.sort_by(f64::total_cmp);
    them.sort_by(f64::total_cmp);
    let (tenth, middle) = (TURNS / 10, TURNS / 2);
    println!(
        "{:<24}{:>10.1}{:>10.1}{:>10.3}{:>10.3}",
        row.name,
        us[tenth],
        them[tenth],
        us[tenth] / them[tenth],
        us[middle] / them[middle]
    );
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if let [flag, name, times] = arguments.as_slice()
        && (flag == "--only" || flag == "--theirs")
    {
        let row = ROWS.iter().find(|row| row.name.starts_with(name.as_str())).expect("the name of a row");
        let (ours, theirs) = (row.sides)();
        let mut side = if flag == "--only" { ours } else { theirs };
        println!("{}: {:?}", row.name, side(times.parse().expect("a number of operations")));
        return;
    }
    println!("{:<24}{:>10}{:>10}{:>10}{:>10}", "row", "ours, ns", "theirs", "ratio", "medians");
    for row in ROWS {
        if arguments.is_empty() || arguments.iter().any(|wanted| row.name.contains(wanted.as_str())) {
            compare(row);
        }
    }
}
