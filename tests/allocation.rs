//! What promises to allocate nothing allocates nothing.
#![cfg(feature = "internals")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell as StdCell,
    hint::black_box,
};

use leasehold::{
    ShardView, Strategy,
    internals::{
        ring::{Ring, affinity_hash},
        strategy::{Cell, Selector},
    },
};

struct Counting;

thread_local! {
    static ALLOCATIONS: StdCell<u64> = const { StdCell::new(0) };
}

// SAFETY: every call is passed on to the system's allocator with the arguments that came in.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that is going away counts no more.
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: passed on.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations of this thread while `f` runs.
fn allocations(f: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.with(StdCell::get);
    f();
    ALLOCATIONS.with(StdCell::get) - before
}

#[test]
fn the_counter_counts() {
    assert_eq!(allocations(|| drop(black_box(Box::new(1)))), 1);
}

#[test]
fn c27_an_affinity_lookup_allocates_nothing() {
    let ring = Ring::new(&[1; 64], Ring::DEFAULT_VIRTUAL_NODES).expect("valid");
    let tenant = String::from("tenant-42");
    let count = allocations(|| {
        for user in 0..1_000u64 {
            let hash = affinity_hash(&(tenant.as_str(), user));
            black_box(ring.shard_of(hash));
            assert_eq!(ring.successors(hash).count(), 64);
        }
    });
    assert_eq!(count, 0);
}

struct Even;

impl ShardView for Even {
    fn shards(&self) -> usize {
        64
    }
    fn best_rank(&self, shard: usize) -> Option<u64> {
        Some(shard as u64 % 7)
    }
    fn eligible(&self, _: usize) -> u32 {
        1
    }
    fn available(&self, shard: usize) -> u64 {
        shard as u64 % 5
    }
}

#[test]
fn no_strategy_allocates() {
    let strategies = [
        Strategy::default(),
        Strategy::BestOf { choices: 5 },
        Strategy::BestOf { choices: usize::MAX },
        Strategy::RoundRobin,
        Strategy::Weighted((0..64).collect()),
        Strategy::Adaptive,
    ];
    for strategy in strategies {
        let selector = Selector::new(strategy, 64).expect("valid");
        let cell = Cell::new(1);
        let count = allocations(|| {
            for _ in 0..1_000 {
                black_box(selector.select(&Even, &cell));
                selector.ran_dry(&cell);
            }
        });
        assert_eq!(count, 0, "{}", selector.name());
    }
}
