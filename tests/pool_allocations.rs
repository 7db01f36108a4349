//! Counts allocations of a whole process with a pool, once everything that is used again is there: none for a payload job, nor for waiting until
//! there is room for it, nor for a batch; and how much memory a queue comes to that is never fuller than one item. W11.
//!
//! Cost: a second. One test function: other tests of the same process would be counted too.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    collections::VecDeque,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
};

use leasehold::pool::{Job, JobPriority, JobQueue, Order, Pool, SegmentedQueue};

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

/// How jobs come in.
#[derive(Clone, Copy, Debug)]
enum How {
    /// One by one, again and again while there is no room.
    Tries,
    /// One by one; waits for room.
    Waits,
    /// So many together, again and again while there is no room for all.
    Together(u64),
}

fn round(pool: &Pool<u64>, how: How, batch: &mut VecDeque<Job<u64>>, done: &mut u64) -> u64 {
    let before = ALLOCATIONS.load(Relaxed);
    for i in 0..JOBS {
        let mut job = Job::new(i, |_, _| Ok(())).cleanup(|_, _| ());
        match how {
            How::Waits => pool.submit(job).expect("open"),
            How::Tries => {
                while let Err(refused) = pool.try_submit(job) {
                    job = refused.into_job();
                    thread::yield_now();
                }
            }
            How::Together(many) => {
                batch.push_back(job);
                while (i + 1) % many == 0 && pool.try_submit_many(batch).is_err() {
                    thread::yield_now();
                }
            }
        }
    }
    *done += JOBS;
    while pool.stats().done < *done {
        thread::yield_now();
    }
    ALLOCATIONS.load(Relaxed) - before
}

/// Segments that wait for their end are counted by what their slots take: a thread keeps some dozens of them, not hundreds.
fn segments_do_not_gather() {
    let before = ALLOCATIONS.load(Relaxed);
    let (queue, mut one) = (SegmentedQueue::<[u64; 6]>::bounded(10), VecDeque::with_capacity(1));
    for _ in 0..100_000 {
        queue.push([1; 6], JobPriority::default()).expect("there is room");
        assert_eq!(queue.pop_many(1, &mut one), 1);
        one.clear();
    }
    let allocations = ALLOCATIONS.load(Relaxed) - before;
    println!("a queue of 100,000 items, one after the other: {allocations} allocations");
    // Two a segment, of which fewer than twenty fill a bag; up to three bags wait.
    assert!(allocations <= 200, "{allocations}");
}

#[test]
fn a_payload_job_allocates_nothing_once_warm() {
    segments_do_not_gather();
    let all = [(Order::Fifo, 1), (Order::Fifo, 2), (Order::Priority, 2)];
    let ways = [How::Tries, How::Waits, How::Together(50)];
    for ((order, workers), how) in all.into_iter().flat_map(|it| ways.map(|how| (it, how))) {
        let pool = Pool::<u64>::builder().workers(workers).order(order).build().expect("in range");
        let mut done = 0;
        let mut batch = VecDeque::with_capacity(64);
        let rounds: Vec<u64> = (0..20).map(|_| round(&pool, how, &mut batch, &mut done)).collect();
        println!("{order:?}, {workers} workers, {how:?}: {rounds:?} allocations in {JOBS} jobs each");
        // Warm: segments come back some dozens at a time, later if somebody is preempted in a section, so it takes a while until there are enough of
        // them, and of the reclaimer's lists. In a quarter of the rounds at least nothing is allocated at all.
        let mut warm = rounds[10..].to_vec();
        warm.sort_unstable();
        assert_eq!(warm[warm.len() / 4], 0, "{order:?}, {workers} workers, {how:?}: {warm:?}");
        // Some rounds have segments made anew while somebody sits in a section, two allocations each, or a bell while another one is still in
        // somebody's hands: all ten together for less than one segment in ten that is used up, of 3,125 a round.
        let most = JOBS / 64 * 2;
        assert!(
            warm.iter().sum::<u64>() <= most,
            "{order:?}, {workers} workers, {how:?}: {warm:?}, at most {most} in all"
        );
    }
}
