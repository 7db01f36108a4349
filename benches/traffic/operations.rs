//! The operations whose traffic is counted, on a fleet of 1,000 resources with random priorities.

use std::{hint::black_box, sync::Mutex};

use leasehold::{Entry, Scheduler, SplitMix64, Strategy};
use leasehold_benches::{Asset, Loaded, fill_loaded, scheduler};

/// One operation of a thread; the number differs from operation to operation.
type Step = Box<dyn Fn(usize, u32) + Sync>;

pub struct Operation {
    pub name: &'static str,
    /// Makes the fleet with so many shards, and the operation on it.
    pub prepare: fn(usize) -> Step,
}

pub const OPERATIONS: &[Operation] = &[
    Operation { name: "pair", prepare: |shards| pair(shards, Strategy::default()) },
    Operation { name: "pair/best-of-2", prepare: |shards| pair(shards, Strategy::BestOf { choices: 2 }) },
    Operation {
        name: "pair/strict",
        prepare: |shards| pair(shards, Strategy::BestOf { choices: usize::MAX }),
    },
    Operation { name: "return-elsewhere", prepare: |shards| elsewhere(shards) },
    Operation { name: "least-loaded", prepare: |shards| least_loaded(shards) },
    Operation { name: "peek", prepare: |shards| peek(shards) },
    Operation { name: "get", prepare: |shards| get(shards) },
    Operation { name: "affinity", prepare: |shards| affinity(shards) },
    Operation { name: "peek-by-affinity", prepare: |shards| peek_by_affinity(shards) },
    Operation { name: "update", prepare: |shards| update(shards) },
    Operation { name: "exclude+include", prepare: |shards| exclude_include(shards) },
    Operation { name: "insert+remove", prepare: |shards| insert_remove(shards) },
];

/// Few, so that what lies between two uses of a resource is what other threads do, and not that it was never used.
pub const RESOURCES: u32 = 1_000;

fn fleet(shards: usize, strategy: Strategy) -> Scheduler<Asset> {
    scheduler(RESOURCES, shards, strategy)
}

/// A number that thread and round decide.
fn drawn(thread: usize, round: u32) -> u64 {
    SplitMix64::mix(((thread as u64) << 32) + u64::from(round) + 1)
}

fn key(thread: usize, round: u32) -> u64 {
    drawn(thread, round) % u64::from(RESOURCES)
}

fn pair(shards: usize, strategy: Strategy) -> Step {
    let fleet = fleet(shards, strategy);
    Box::new(move |_, _| drop(black_box(fleet.acquire().expect("one is free"))))
}

/// Each thread returns what the thread before it took.
fn elsewhere(shards: usize) -> Step {
    let fleet = fleet(shards, Strategy::default());
    let handed = Mutex::new(None);
    Box::new(move |_, _| {
        let taken = fleet.acquire_owned().expect("one is free");
        let before = handed.lock().expect("nobody panics").replace(taken);
        drop(before);
    })
}

fn least_loaded(shards: usize) -> Step {
    let builder = Scheduler::<Loaded>::builder().shards(shards).seed(1);
    let fleet = fill_loaded(builder.build().expect("in range"));
    Box::new(move |_, _| drop(black_box(fleet.acquire().expect("one is free"))))
}

fn peek(shards: usize) -> Step {
    let fleet = fleet(shards, Strategy::default());
    Box::new(move |_, _| {
        black_box(fleet.peek().expect("one is free").value);
    })
}

fn get(shards: usize) -> Step {
    let fleet = fleet(shards, Strategy::default());
    Box::new(move |thread, round| {
        black_box(fleet.get(&key(thread, round)).expect("all keys are there").value);
    })
}

fn affinity(shards: usize) -> Step {
    let fleet = fleet(shards, Strategy::default());
    Box::new(move |thread, round| {
        drop(black_box(fleet.acquire_by_affinity(&key(thread, round)).expect("one is free")));
    })
}

fn peek_by_affinity(shards: usize) -> Step {
    let fleet = fleet(shards, Strategy::default());
    Box::new(move |thread, round| {
        black_box(fleet.peek_by_affinity(&key(thread, round)).expect("one is free").value);
    })
}

fn update(shards: usize) -> Step {
    let fleet = fleet(shards, Strategy::default());
    Box::new(move |thread, round| {
        let (key, priority) = (key(thread, round), drawn(round as usize, thread as u32));
        assert!(fleet.update(Entry::new(key, priority, 0)).is_ok(), "all keys are there");
    })
}

fn exclude_include(shards: usize) -> Step {
    let fleet = fleet(shards, Strategy::default());
    Box::new(move |thread, round| {
        let key = key(thread, round);
        assert!(fleet.exclude(&key).is_ok() && fleet.include(&key).is_ok(), "all keys are there");
    })
}

fn insert_remove(shards: usize) -> Step {
    let fleet = fleet(shards, Strategy::default());
    Box::new(move |thread, round| {
        let key = u64::from(RESOURCES) + drawn(thread, round) / 2;
        assert!(fleet.insert(Entry::new(key, key, 0)).is_ok(), "a new key");
        assert!(fleet.remove(&key).is_ok(), "it was inserted");
    })
}
