//! Both queues by themselves. Orders, bounds and ageing are exact here; what threads do to them is in the models too.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread,
};

use super::*;
use crate::{lookup::reclaim::Epoch, sync::SplitMix64};

const ANY: JobPriority = JobPriority::NORMAL;

fn level(number: u8) -> JobPriority {
    JobPriority::new(number).expect("1 to 63")
}

/// Everything that is in it.
fn drain<T>(queue: &impl JobQueue<T>) -> Vec<T> {
    let mut all = VecDeque::new();
    while queue.pop_many(3, &mut all) > 0 {}
    all.into()
}

/// Counts how often it is dropped.
struct Dropped(Arc<AtomicUsize>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn first_in_first_out_across_segments() {
    for slots in [1, 2, 3, 5, 64] {
        let queue = SegmentedQueue::<u32>::with(u64::MAX, slots);
        for i in 0..200 {
            queue.push(i, ANY).expect("unbounded");
        }
        assert_eq!(queue.len(), 200);
        let mut batch = VecDeque::new();
        assert!(queue.pop_many(7, &mut batch) <= 7);
        let mut many: VecDeque<u32> = (200..300).collect();
        queue.push_many(&mut many, ANY).expect("unbounded");
        let rest = drain(&queue);
        assert!(batch.into_iter().chain(rest).eq(0..300), "segments of {slots}");
        assert_eq!((queue.len(), queue.passed()), (0, 300));
        assert!(queue.is_empty() && queue.pop().is_none());
    }
}

#[test]
fn a_full_queue_hands_the_item_back() {
    for slots in [1, 2, 3, 64] {
        let queue = SegmentedQueue::<String>::with(3, slots);
        for text in ["a", "b", "c"] {
            queue.push(text.into(), ANY).expect("room");
        }
        let refused = queue.push("d".into(), ANY).expect_err("full");
        assert_eq!((refused.item.as_str(), refused.reason), ("d", Refusal::Full));
        assert_eq!(refused_text(&refused), "the queue is full");
        assert_eq!(queue.pop().as_deref(), Some("a"));
        let mut more: VecDeque<String> = ["e".into(), "f".into()].into();
        assert_eq!(queue.push_many(&mut more, ANY), Err(Refusal::Full));
        assert_eq!(more, ["f"]);
        assert_eq!(drain(&queue), ["b", "c", "e"]);
    }
}

fn refused_text<T>(refused: &PushError<T>) -> String {
    refused.to_string()
}

#[test]
fn a_closed_queue_gives_out_what_it_has() {
    // Closed in the middle of a segment, at its end, and when the next one is there.
    for before in 0..6 {
        let queue = SegmentedQueue::<u8>::with(u64::MAX, 2);
        for i in 0..before {
            queue.push(i, ANY).expect("open");
        }
        queue.close();
        queue.close();
        assert_eq!(queue.push(9, ANY).expect_err("closed").reason, Refusal::Closed);
        assert!(drain(&queue).into_iter().eq(0..before));
        assert_eq!(queue.push(9, ANY).expect_err("closed").reason, Refusal::Closed);
    }
}

#[test]
fn what_is_left_is_dropped_once() {
    for slots in [1, 2, 64] {
        let dropped = Arc::new(AtomicUsize::new(0));
        let queue = SegmentedQueue::<Dropped>::with(u64::MAX, slots);
        for _ in 0..10 {
            queue.push(Dropped(Arc::clone(&dropped)), ANY).expect("unbounded");
        }
        for _ in 0..4 {
            drop(queue.pop().expect("there are ten"));
        }
        let found = dropped.load(Ordering::SeqCst);
        assert_eq!(found, 4);
        drop(queue);
        let found = dropped.load(Ordering::SeqCst);
        assert_eq!(found, 10);
    }
    let dropped = Arc::new(AtomicUsize::new(0));
    let queue = BucketQueue::bounded(10);
    for i in 0..10 {
        queue.push(Dropped(Arc::clone(&dropped)), level(i + 1)).expect("room");
    }
    drop(queue);
    let found = dropped.load(Ordering::SeqCst);
    assert_eq!(found, 10);
}

/// `threads` producers and as many consumers: each item comes out once, of each producer in order.
fn exactly_once<Q: JobQueue<u64> + 'static>(queue: Q, threads: u64, each: u64, in_order: bool) {
    let queue = Arc::new(queue);
    let (seen, left) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(threads * each)));
    let done = Arc::new(AtomicBool::new(false));
    let producers: Vec<_> = (0..threads)
        .map(|thread| {
            let queue = Arc::clone(&queue);
            thread::spawn(move || {
                let mut random = SplitMix64::new(thread);
                let mut next = 0;
                let mut batch = VecDeque::new();
                while next < each || !batch.is_empty() {
                    if batch.is_empty() {
                        let count = 1 + u64::from(random.below(9)).min(each - next - 1);
                        batch.extend((next..next + count).map(|i| thread << 32 | i));
                        next += count;
                    }
                    let level = level(1 + random.below(63) as u8);
                    let pushed = if batch.len() == 1 {
                        queue.push(batch.pop_front().expect("one"), level).map_err(|refused| {
                            batch.push_front(refused.item);
                            refused.reason
                        })
                    } else {
                        queue.push_many(&mut batch, level)
                    };
                    if let Err(reason) = pushed {
                        assert_eq!(reason, Refusal::Full);
                        thread::yield_now();
                    }
                }
            })
        })
        .collect();
    let consumers: Vec<_> = (0..threads)
        .map(|thread| {
            let (queue, seen, left) = (Arc::clone(&queue), Arc::clone(&seen), Arc::clone(&left));
            let done = Arc::clone(&done);
            thread::spawn(move || {
                let mut last = vec![None; 64];
                let mut batch = VecDeque::new();
                while !done.load(Ordering::SeqCst) {
                    let taken = queue.pop_many(1 + thread as usize % 7, &mut batch);
                    assert_eq!(taken, batch.len());
                    for item in batch.drain(..) {
                        let (producer, number) = ((item >> 32) as usize, item & 0xffff_ffff);
                        assert!(!in_order || last[producer].is_none_or(|last| last < number), "out of order");
                        last[producer] = Some(number);
                        seen.fetch_add(SplitMix64::mix(item), Ordering::SeqCst);
                        if left.fetch_sub(1, Ordering::SeqCst) == 1 {
                            done.store(true, Ordering::SeqCst);
                        }
                    }
                    if taken == 0 {
                        thread::yield_now();
                    }
                }
            })
        })
        .collect();
    for thread in producers.into_iter().chain(consumers) {
        thread.join().expect("no panic");
    }
    let expected = (0..threads).fold(0u64, |sum, thread| {
        (0..each).fold(sum, |sum, i| sum.wrapping_add(SplitMix64::mix(thread << 32 | i)))
    });
    let found = seen.load(Ordering::SeqCst);
    assert_eq!(found, expected, "each came out once");
    assert_eq!(queue.len(), 0);
    assert_eq!(queue.pop_many(1, &mut VecDeque::new()), 0);
}

const EACH: u64 = if cfg!(miri) { 20 } else { 3_000 };
const THREADS: u64 = if cfg!(miri) { 2 } else { 16 };

#[test]
fn each_item_comes_out_once_from_small_segments() {
    for slots in [1, 2, 3, 5] {
        exactly_once(SegmentedQueue::<u64>::with(u64::MAX, slots), THREADS, EACH, true);
    }
}

#[test]
fn each_item_comes_out_once_from_a_bounded_queue() {
    exactly_once(SegmentedQueue::<u64>::with(7, 2), THREADS, EACH, true);
    exactly_once(SegmentedQueue::<u64>::with(1_000, 64), THREADS, EACH, true);
}

#[test]
fn each_item_comes_out_once_under_another_reclaimer() {
    exactly_once(SegmentedQueue::<u64, Epoch>::with(u64::MAX, 2), THREADS, EACH, true);
}

#[test]
fn each_item_comes_out_once_from_buckets() {
    exactly_once(BucketQueue::bounded(100), THREADS, EACH, false);
}

/// A producer that stalls in the middle of its push, for as long as it likes: what others have pushed behind it comes out, and when it goes on its
/// item is its own again, to be pushed anew. W9.
#[test]
#[allow(unsafe_code)]
fn a_stalled_producer_stops_nobody() {
    let store = Arc::new(recycle::Store::new(0));
    let mut segment = segment::Segment::<&str>::new(3);
    // SAFETY: nobody else has it.
    unsafe { segment::Segment::place(&raw mut *segment, 0, store) };
    let reserve = || match segment.reserve(1, |_| usize::MAX) {
        segment::Reserved::Slots(index, 1) => index,
        _ => panic!("there are three"),
    };
    let stalled = reserve();
    for item in ["second", "third"] {
        segment.publish(reserve(), item).expect("nobody has passed by");
    }
    let segment::Claimed::Slots(first, 3) = segment.claim(3) else { panic!("three are reserved") };
    let out: Vec<_> = (first..first + 3).map(|index| segment.take(index)).collect();
    assert_eq!(out, [None, Some("second"), Some("third")]);
    assert_eq!(segment.publish(stalled, "first"), Err("first"), "it comes too late");
    segment.drop_items();
}

/// Eight producers and nobody who takes: exactly so many are accepted as there is room for.
#[test]
fn producers_together_keep_the_bound() {
    for slots in [1, 2, 3, 64] {
        let queue = Arc::new(SegmentedQueue::<u32>::with(5, slots));
        let accepted = Arc::new(AtomicUsize::new(0));
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let (queue, accepted) = (Arc::clone(&queue), Arc::clone(&accepted));
                thread::spawn(move || {
                    for i in 0..200 {
                        accepted.fetch_add(usize::from(queue.push(i, ANY).is_ok()), Ordering::SeqCst);
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("no panic");
        }
        let found = accepted.load(Ordering::SeqCst);
        assert_eq!(found, 5);
        assert_eq!(drain(&*queue).len(), 5);
    }
}

#[test]
fn urgent_items_go_first_and_equals_in_order() {
    let queue = BucketQueue::bounded(1_000);
    for (item, number) in [(1, 40), (2, 3), (3, 63), (4, 3), (5, 1), (6, 40)] {
        queue.push(item, level(number)).expect("room");
    }
    assert_eq!(drain(&queue), [5, 2, 4, 1, 6, 3]);
}

/// After the turn has gone round, the order is still that of what is due: see W20.
#[test]
fn the_order_is_right_after_the_wrap() {
    let queue = BucketQueue::bounded(1_000);
    for round in 0..500u32 {
        queue.push(2 * round, level(63)).expect("room");
        queue.push(2 * round + 1, level(1 + (round % 62) as u8)).expect("room");
        assert_eq!(drain(&queue), [2 * round + 1, 2 * round], "round {round}");
    }
}

/// The bound of the module's header, with a hog that keeps the queue full with what is most urgent.
#[test]
fn nobody_starves() {
    const CAPACITY: usize = 8;
    for patient in [1, 2, 5, 32, 63] {
        let queue = BucketQueue::bounded(CAPACITY);
        let mut hog = 0;
        let feed = |queue: &BucketQueue<Option<u64>>, hog: &mut u64| {
            while queue.push(Some(*hog), JobPriority::HIGHEST).is_ok() {
                *hog += 1;
            }
        };
        // Any turn to begin at.
        for _ in 0..100 {
            queue.push(Some(0), level(7)).expect("room");
            drain(&queue);
        }
        queue.push(None, level(patient)).expect("room");
        let mut before = 0;
        loop {
            feed(&queue, &mut hog);
            let mut one = VecDeque::new();
            assert_eq!(queue.pop_many(1, &mut one), 1);
            if one[0].is_none() {
                break;
            }
            before += 1;
        }
        let bound = usize::from(patient) * CAPACITY;
        assert!(before <= bound, "priority {patient} waited for {before}, the bound is {bound}");
    }
}

/// Against a list that is sorted by what is due.
#[test]
fn buckets_are_a_sorted_list() {
    let mut random = SplitMix64::new(7);
    let queue = BucketQueue::bounded(50);
    let (mut model, mut turn) = (VecDeque::<(u64, u64)>::new(), 0u64);
    for number in 0..if cfg!(miri) { 500 } else { 50_000 } {
        if random.below(2) == 0 {
            let urgency = 1 + random.below(63) as u8;
            let pushed = queue.push(number, level(urgency));
            assert_eq!(pushed.is_ok(), model.len() < 50);
            if pushed.is_ok() {
                let due = turn + u64::from(urgency);
                let at = model.partition_point(|&(other, _)| other <= due);
                model.insert(at, (due, number));
            }
        } else {
            let mut one = VecDeque::new();
            queue.pop_many(1, &mut one);
            let expected = model.pop_front();
            assert_eq!(one.pop_front(), expected.map(|(_, number)| number));
            turn = expected.map_or(turn, |(due, _)| due);
        }
        assert_eq!(queue.len(), model.len());
    }
}

#[test]
fn closed_buckets_give_out_what_they_have() {
    let queue = BucketQueue::bounded(3);
    queue.push(1, ANY).expect("room");
    queue.close();
    assert_eq!(queue.push(2, ANY).expect_err("closed").reason, Refusal::Closed);
    let mut more = VecDeque::from([3, 4]);
    assert_eq!(queue.push_many(&mut more, ANY), Err(Refusal::Closed));
    assert_eq!((more.len(), drain(&queue)), (2, vec![1]));
}
