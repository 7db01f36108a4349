//! What goes wrong in wpool's queues, one test for each; the rest is in `seeds_w`.

use std::{
    collections::VecDeque,
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::Instant,
};

use leasehold::pool::{BucketQueue, JobPriority, JobQueue, SegmentedQueue};

use super::common::{ANY, LONG};

/// W9: producers that stall hold up nobody. One that stalls for good, in the middle of its push, is in `pool::queue::tests`:
/// `a_stalled_producer_stops_nobody`. Here, with far more threads than processors, some producer always is; all that is pushed comes out.
#[test]
fn w09_a_stalled_producer_stops_nobody() {
    let queue = Arc::new(SegmentedQueue::<u64>::with(u64::MAX, 2));
    let done = Arc::new(AtomicBool::new(false));
    let producers: Vec<_> = (0..16)
        .map(|_| {
            let (queue, done) = (Arc::clone(&queue), Arc::clone(&done));
            thread::spawn(move || {
                let mut pushed = 0u64;
                while !done.load(SeqCst) {
                    queue.push(pushed, ANY).expect("unbounded");
                    pushed += 1;
                    if queue.len() > 10_000 {
                        thread::yield_now();
                    }
                }
                pushed
            })
        })
        .collect();
    let (start, mut popped) = (Instant::now(), 0u64);
    while popped < 200_000 {
        popped += u64::from(queue.pop().is_some());
        assert!(start.elapsed() < LONG, "{popped} came out");
    }
    done.store(true, SeqCst);
    let pushed: u64 = producers.into_iter().map(|producer| producer.join().unwrap()).sum();
    while queue.pop().is_some() {
        popped += 1;
    }
    assert_eq!(popped, pushed);
}

/// W10: segments are used again only when nobody can see them. Tiny segments, many threads, values that are checked.
#[test]
fn w10_segments_are_reclaimed_safely() {
    let queue = Arc::new(SegmentedQueue::<Box<u64>>::with(u64::MAX, 1));
    let (sum, threads) = (Arc::new(AtomicUsize::new(0)), 8u64);
    let each = if cfg!(miri) { 50 } else { 20_000u64 };
    let all: Vec<_> = (0..threads)
        .map(|thread| {
            let (queue, sum) = (Arc::clone(&queue), Arc::clone(&sum));
            thread::spawn(move || {
                for i in 0..each {
                    queue.push(Box::new(thread * each + i), ANY).expect("unbounded");
                    if let Some(item) = queue.pop() {
                        sum.fetch_add(*item as usize, SeqCst);
                    }
                }
            })
        })
        .collect();
    all.into_iter().for_each(|thread| thread.join().unwrap());
    while let Some(item) = queue.pop() {
        sum.fetch_add(*item as usize, SeqCst);
    }
    let count = threads * each;
    assert_eq!(sum.load(SeqCst) as u64, count * (count - 1) / 2);
}

/// W12: an empty queue is small, whatever the segments' size: one of them.
#[test]
fn w12_nothing_is_made_ahead() {
    let Some(before) = resident() else { return };
    let queues: Vec<_> = (0..20).map(|_| SegmentedQueue::<[u8; 32]>::with(u64::MAX, 4_096)).collect();
    let grown = resident().unwrap().saturating_sub(before);
    assert!(grown < 20 * 1_024 * 1_024, "{grown} bytes for {} queues", queues.len());
}

/// Bytes that are resident.
fn resident() -> Option<u64> {
    let statm = fs::read_to_string("/proc/self/statm").ok()?;
    Some(statm.split_whitespace().nth(1)?.parse::<u64>().ok()? * 4_096)
}

/// W18: nothing in the queue, nor in the store of its segments, takes a lock, as its documents say. The reclaimer behind them has one, for what
/// threads leave when they end: of those that live, one that frees tries it, and goes on without.
#[test]
fn w18_the_queue_takes_no_lock() {
    for (file, source) in [
        ("segmented.rs", include_str!("../../src/pool/queue/segmented.rs")),
        ("segment.rs", include_str!("../../src/pool/queue/segment.rs")),
        ("recycle.rs", include_str!("../../src/pool/queue/recycle.rs")),
    ] {
        let code = source.lines().filter(|line| !line.trim_start().starts_with("//"));
        for line in code {
            for lock in ["Mutex", "SpinLock", "RwLock", "Condvar", ".lock()"] {
                assert!(!line.contains(lock), "{file}: {line}");
            }
        }
    }
}

/// W20: after the turn has gone round, what is more urgent still goes first.
#[test]
fn w20_priorities_survive_the_wrap() {
    let queue = BucketQueue::bounded(10);
    for round in 0..300u32 {
        for number in [63, 40, 2] {
            queue.push((round, number), JobPriority::new(number).expect("1 to 63")).expect("room");
        }
        let mut out = VecDeque::new();
        queue.pop_many(3, &mut out);
        assert_eq!(out, [(round, 2), (round, 40), (round, 63)]);
    }
}

/// W22: what a queue by priority says about itself is so: how much is in it, how much has come out, whether there may be work; and
/// each of its refusals does occur.
#[test]
fn w22_a_queue_by_priority_tells_the_truth() {
    let queue = BucketQueue::bounded(100);
    assert_eq!((queue.len(), queue.is_empty(), queue.passed(), queue.capacity()), (0, true, 0, Some(100)));
    let level = |number| JobPriority::new(number).expect("1 to 63");
    for i in 0..100u8 {
        queue.push(i, level(1 + i % 63)).expect("room");
        assert_eq!((queue.len(), queue.is_empty()), (usize::from(i) + 1, false));
    }
    assert_eq!(queue.push(100, level(1)).expect_err("full").reason, leasehold::pool::Refusal::Full);
    let mut out = VecDeque::new();
    for popped in 1..=100 {
        assert_eq!(queue.pop_many(1, &mut out), 1);
        assert_eq!((queue.len(), queue.passed()), (100 - popped, popped as u64));
    }
    // At the moment of their push all were due at turn 0 + p: the more urgent first, then the earlier.
    let urgency = |i: &u8| (i % 63, *i);
    assert!(out.make_contiguous().is_sorted_by_key(urgency), "{out:?}");
    queue.close();
    assert_eq!(queue.push(0, ANY).expect_err("closed").reason, leasehold::pool::Refusal::Closed);
}
