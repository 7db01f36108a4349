//! What is allocated is freed, and with the size that it was allocated with: an allocator keeps the balance.
//!
//! A fleet that uses every part of itself is built, worked and dropped over and over; once the reclaimer has come round,
//! the balance of the thread must not have moved.
//!
//! Cost: a second. One test function: threads of other tests would free what this one has allocated.
#![cfg(feature = "internals")]
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    sync::Arc,
    time::Duration,
};

use leasehold::{
    Affinity, Capacity, Entry, ManualClock, Outcome, Overflow, Scheduler, SplitMix64,
    internals::heap::{Entry as HeapEntry, MinMaxHeap, Positions, Segment},
};

struct Balancing;

thread_local! {
    /// Bytes and blocks allocated by this thread less those that it freed.
    static BALANCE: Cell<(isize, isize)> = const { Cell::new((0, 0)) };
}

fn book(bytes: isize, blocks: isize) {
    // A thread that is going away books no more.
    let _ = BALANCE.try_with(|balance| {
        let (all, count) = balance.get();
        balance.set((all + bytes, count + blocks));
    });
}

// SAFETY: every call is passed on to the system's allocator with the arguments that came in.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Balancing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        book(layout.size() as isize, 1);
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        book(-(layout.size() as isize), -1);
        // SAFETY: passed on.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static BALANCING: Balancing = Balancing;

struct Nowhere;

impl Positions for Nowhere {
    fn set(&mut self, _: u32, _: u32) {}
}

fn heap() {
    let mut heap = MinMaxHeap::new();
    for slot in 0..200 {
        while heap.len() == heap.capacity() {
            assert!(
                heap.add_segment(Segment::new(heap.next_segment_len().expect("far from the end"))).is_ok()
            );
        }
        assert!(heap.push(HeapEntry::new(u64::from(slot % 7), 0, slot), &mut Nowhere).is_ok());
    }
}

type Item = Entry<u32, u32, String>;

fn item(key: u32) -> Item {
    Entry::new(key, key % 5, format!("value {key}")).with_capacity(Capacity::Limited(1 + key % 3))
}

/// Everything that a fleet can be made to allocate.
fn fleet() {
    let clock = Arc::new(ManualClock::new());
    for affinity in [Affinity::Shard, Affinity::Resource] {
        let fleet = Scheduler::<Item>::builder()
            .shards(3)
            .clock(Arc::clone(&clock))
            .affinity(affinity)
            .event_capacity(64)
            .max_resources(900, Overflow::EvictWorst)
            .build()
            .expect("in range");
        for key in 0..300 {
            fleet.insert(item(key)).expect("new");
        }
        assert!(fleet.insert_batch((1_000..1_200).map(item).collect()).is_ok_and(|count| count == 200));
        // Batches and single resources that are refused: a key exists already, or exists twice.
        assert!(fleet.insert_batch(vec![item(2_000), item(7), item(2_001)]).is_err());
        assert!(fleet.insert_batch(vec![item(2_000), item(2_001), item(2_000)]).is_err());
        assert!(fleet.insert(item(8)).is_err());
        // More than there is room for: the better ones take others' places.
        for key in 3_000..3_500 {
            let _ = fleet.insert(item(key));
        }
        let mut random = SplitMix64::new(1);
        let mut tokens = Vec::new();
        for round in 0..2_000 {
            let key = random.below(300);
            match round % 10 {
                0 => drop(fleet.acquire_by_affinity(&key)),
                1 => {
                    if let Ok(lease) = fleet.acquire() {
                        tokens.push(lease.into_token());
                    }
                }
                2 => _ = fleet.update(item(key)),
                3 => {
                    let lease = fleet.acquire_key(&key);
                    let _ = fleet.update(item(key));
                    drop(lease);
                }
                4 => {
                    let lease = fleet.acquire_key(&key);
                    let _ = fleet.remove(&key);
                    drop(lease);
                }
                5 => _ = fleet.insert(item(key)),
                6 => _ = fleet.cool(&key, Duration::from_nanos(50)),
                7 => drop(fleet.acquire_where(|item| item.value.ends_with('7'))),
                8 => _ = fleet.take_events(16),
                _ => {
                    clock.advance(Duration::from_nanos(10));
                    drop(fleet.acquire_many(3));
                }
            }
        }
        for token in tokens.drain(..tokens.len() / 2) {
            fleet.finish(token, Outcome::Failed).expect("out");
        }
        // The other tokens are never returned; what is out is dropped with the fleet.
        let _ = fleet.evict_worst();
        let peek = fleet.peek();
        drop(peek);
    }
}

/// Lets the reclaimer free all that was retired. There is no other thread to wait for.
fn come_round() {
    for _ in 0..1_000 {
        leasehold::collect_garbage();
    }
}

/// The balance after one more run.
fn balance(scenario: fn()) -> (isize, isize) {
    scenario();
    come_round();
    BALANCE.get()
}

/// Runs after which a scenario that loses a block each time would have lost as many.
const RUNS: usize = 50;

#[test]
fn the_balance_does_not_move() {
    for scenario in [heap, fleet] {
        // Warm: the thread is known to the reclaimer, whose own lists have found their length.
        let warm = (0..6).map(|_| balance(scenario)).max().expect("six");
        // The reclaimer keeps one of its own blocks more now and then, and gives it back. What a scenario loses, it
        // loses in every run, and no later run is as low again.
        let after: [_; RUNS] = std::array::from_fn(|_| balance(scenario));
        let lowest = *after.iter().skip(RUNS / 2).min().expect("half of them");
        assert!(lowest <= warm, "bytes and blocks: {lowest:?} after {warm:?}; {after:?}");
    }
}
