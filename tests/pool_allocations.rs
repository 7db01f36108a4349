//! Counts allocations of a whole process with a pool, once everything that is used again is there: none for a payload job itself; what is left is
//! a list of the reclaimer's for each hundred segments. W11.
//!
//! Cost: a second. One test function: other tests of the same process would be counted too.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
};

use leasehold::pool::{Job, Order, Pool};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: passes everything on to the system's allocator.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const JOBS: u64 = 200_000;

fn round(pool: &Pool<u64>, done: &mut u64) -> u64 {
    let before = ALLOCATIONS.load(Relaxed);
    for i in 0..JOBS {
        let mut job = Job::new(i, |_, _| Ok(())).cleanup(|_, _| ());
        // Not `submit`: who waits for room allocates a place in the queue for it.
        while let Err(refused) = pool.try_submit(job) {
            job = refused.into_job();
            thread::yield_now();
        }
    }
    *done += JOBS;
    while pool.stats().done < *done {
        thread::yield_now();
    }
    ALLOCATIONS.load(Relaxed) - before
}

#[test]
fn a_payload_job_allocates_nothing_once_warm() {
    for (order, workers) in [(Order::Fifo, 1), (Order::Fifo, 2), (Order::Priority, 2)] {
        let pool = Pool::<u64>::builder().workers(workers).order(order).build().expect("in range");
        let mut done = 0;
        let rounds: Vec<u64> = (0..20).map(|_| round(&pool, &mut done)).collect();
        println!("{order:?}, {workers} workers: {rounds:?} allocations in {JOBS} jobs each");
        // Warm: segments come back by the hundred, later if somebody is preempted in a section, so it takes a while until there are enough.
        // What is left is the reclaimer's: a list for each hundred segments, of who was in a section. In half of the rounds at least there is no
        // more than that.
        let mut warm = rounds[10..].to_vec();
        warm.sort_unstable();
        let list = JOBS / 64 / 100 + 1;
        assert!(warm[warm.len() / 2] <= list, "{order:?}, {workers} workers: {warm:?}, for lists {list}");
    }
}
