//! The queues of the pool: each item comes out once, in order, from segments of one and two slots, with producers that are passed by.
//!
//! The slots are the facade's cells: an item that is read before it is there, or a slot that has two owners, is a race that loom reports.
//! A segment that is used after its time is reported by the reclaimer's stand-in. That one never gives memory back, so a second one
//! here, `Eager`, does, at the first moment at which nobody holds a guard: segments are used again.

use std::{collections::VecDeque, sync::Mutex};

use leasehold::{
    internals::{
        lookup::reclaim::{Guard, Oracle, Reclaim},
        sync::{
            Arc,
            atomic::{AtomicPtr, AtomicUsize, Ordering},
        },
    },
    pool::{BucketQueue, JobPriority, JobQueue, Refusal, SegmentedQueue},
};

use crate::common::{lying_down, model, model_within, spawn};

const ANY: JobPriority = JobPriority::NORMAL;
const UNBOUNDED: u64 = u64::MAX;

type Segmented = SegmentedQueue<Box<u32>, Oracle>;

fn push<Q: JobQueue<Box<u32>>>(queue: &Q, item: u32) -> bool {
    queue.push(Box::new(item), ANY).is_ok()
}

fn pop<Q: JobQueue<Box<u32>>>(queue: &Q, max: usize) -> Vec<u32> {
    let mut items = VecDeque::new();
    let count = queue.pop_many(max, &mut items);
    assert_eq!(count, items.len());
    items.into_iter().map(|item| *item).collect()
}

/// Everything that is left, alone.
fn rest<Q: JobQueue<Box<u32>>>(queue: &Q) -> Vec<u32> {
    let mut all = Vec::new();
    loop {
        let some = pop(queue, 2);
        if some.is_empty() {
            return all;
        }
        all.extend(some);
    }
}

/// `producers` push so many items each, beside the main thread, which pops `pops` times at most `max`. Producer p pushes p × 10 and
/// up. Each comes out once, and of each producer in order.
fn pushing<Q: JobQueue<Box<u32>> + 'static>(
    queue: impl Fn() -> Q + Send + Sync + 'static,
    bound: usize,
    producers: &'static [u32],
    (pops, max): (usize, usize),
) {
    model_within(bound, move || {
        let queue = Arc::new(queue());
        let others: Vec<_> = producers
            .iter()
            .zip(1..)
            .map(|(&count, producer)| {
                let queue = Arc::clone(&queue);
                spawn(move || (0..count).for_each(|i| assert!(push(&*queue, 10 * producer + i))))
            })
            .collect();
        let mut all = Vec::new();
        for _ in 0..pops {
            all.extend(pop(&*queue, max));
        }
        others.into_iter().for_each(|other| other.join().expect("no panic"));
        all.extend(rest(&*queue));
        for (&count, producer) in producers.iter().zip(1..) {
            let of_one = all.iter().copied().filter(|item| item / 10 == producer);
            assert!(of_one.eq((0..count).map(|i| 10 * producer + i)), "{all:?}");
        }
        assert_eq!((queue.len(), queue.is_empty()), (0, true));
    });
}

#[test]
fn push_pop() {
    pushing(|| Segmented::with(UNBOUNDED, 2), 3, &[2], (2, 1));
}

/// Each item in a segment of its own: append, help, advance.
#[test]
fn push_pop_over_the_end_of_segments() {
    pushing(|| Segmented::with(UNBOUNDED, 1), 2, &[3], (3, 1));
}

#[test]
fn push_push_pop() {
    pushing(|| Segmented::with(UNBOUNDED, 2), 2, &[1, 1], (2, 1));
}

/// Both append, one of them in vain.
#[test]
fn push_push_pop_over_the_end_of_segments() {
    pushing(|| Segmented::with(UNBOUNDED, 1), 2, &[2, 1], (1, 2));
}

#[test]
fn push_pop_batch() {
    pushing(|| Segmented::with(UNBOUNDED, 2), 2, &[3], (2, 2));
}

/// Two consumers beside a producer: nothing comes twice, nothing is lost, and what one of them gets is in order. The first pops so often, the other once.
fn popping(slots: usize, (before, during): (u32, u32), max: usize, often: usize) {
    model(move || {
        let queue = Arc::new(Segmented::with(UNBOUNDED, slots));
        (0..before).for_each(|i| assert!(push(&*queue, i)));
        let consumers: Vec<_> = [often, 1]
            .into_iter()
            .map(|pops| {
                let queue = Arc::clone(&queue);
                spawn(move || (0..pops).flat_map(|_| pop(&*queue, max)).collect::<Vec<_>>())
            })
            .collect();
        (before..before + during).for_each(|i| assert!(push(&*queue, i)));
        let mut all: Vec<u32> = Vec::new();
        for consumer in consumers {
            let some = consumer.join().expect("no panic");
            assert!(some.is_sorted());
            all.extend(some);
        }
        let last = rest(&*queue);
        assert!(last.is_sorted());
        all.extend(last);
        all.sort_unstable();
        assert!(all.into_iter().eq(0..before + during));
    });
}

#[test]
fn pop_pop_push() {
    popping(2, (1, 1), 1, 1);
}

/// The second item is taken by the look at its slot; whoever goes on from there has not asked how far the producer is, but for the first.
#[test]
fn pop_pop_by_the_item() {
    popping(3, (1, 1), 1, 2);
}

#[test]
fn pop_pop_over_the_end_of_segments() {
    popping(1, (2, 1), 1, 1);
}

#[test]
fn pop_pop_batches() {
    popping(2, (3, 0), 2, 1);
}

/// A queue of one: of two producers one is refused until the item is out, and the bound holds at every moment.
#[test]
fn bounded_push_push_pop() {
    model(|| {
        let queue = Arc::new(Segmented::with(1, 2));
        let other = {
            let queue = Arc::clone(&queue);
            spawn(move || push(&*queue, 1))
        };
        let mine = push(&*queue, 2);
        let popped = pop(&*queue, 2);
        let theirs = other.join().expect("no panic");
        let last = rest(&*queue);
        assert!(popped.len() <= 1 && last.len() <= 1, "never two at once");
        assert_eq!(popped.len() + last.len(), usize::from(mine) + usize::from(theirs));
        assert!(mine || theirs, "there was room for one");
        assert!(push(&*queue, 3) && !push(&*queue, 4), "there is room for one again");
    });
}

/// What a closed queue has accepted is in it for whoever knows that it is closed.
fn closing(slots: usize, before: u32) {
    model(move || {
        let queue = Arc::new(Segmented::with(UNBOUNDED, slots));
        (0..before).for_each(|i| assert!(push(&*queue, i)));
        let other = {
            let queue = Arc::clone(&queue);
            spawn(move || (before..before + 2).take_while(|&i| push(&*queue, i)).count())
        };
        queue.close();
        let mut all = rest(&*queue);
        let refused = queue.push(Box::new(9), ANY).expect_err("closed");
        assert_eq!((*refused.item, refused.reason), (9, Refusal::Closed));
        let accepted = other.join().expect("no panic") as u32;
        // A producer that was passed by is refused, or its item was there before the close.
        all.extend(rest(&*queue));
        assert!(all.iter().copied().eq(0..before + accepted), "{all:?}, {accepted} accepted");
    });
}

#[test]
fn close_push() {
    closing(2, 0);
}

#[test]
fn close_push_at_the_end_of_a_segment() {
    closing(1, 1);
}

#[test]
fn close_close_push() {
    model(|| {
        let queue = Arc::new(Segmented::with(UNBOUNDED, 1));
        let others: Vec<_> = (0..2)
            .map(|i| {
                let queue = Arc::clone(&queue);
                spawn(move || {
                    let pushed = i == 0 && push(&*queue, 1);
                    queue.close();
                    pushed
                })
            })
            .collect();
        let accepted: Vec<_> = others.into_iter().map(|other| other.join().expect("no panic")).collect();
        assert_eq!(rest(&*queue).len(), accepted.into_iter().filter(|&pushed| pushed).count());
        assert!(!push(&*queue, 2));
    });
}

/// What is to be done once nobody holds a guard.
type Retired = Vec<Box<dyn FnOnce()>>;

/// Gives memory back as soon as nobody holds a guard.
struct Eager {
    /// How many hold one.
    book: Mutex<(usize, Retired)>,
    order: AtomicUsize,
}

struct EagerGuard<'a>(&'a Eager);

// SAFETY: the jobs came with the promise that they may run on any thread.
unsafe impl Send for Eager {}
// SAFETY: as above.
unsafe impl Sync for Eager {}

// SAFETY: a job runs when no guard is live.
unsafe impl Reclaim for Eager {
    type Guard<'a> = EagerGuard<'a>;

    fn new() -> Self {
        Eager { book: Mutex::default(), order: AtomicUsize::new(0) }
    }

    fn pin(&self) -> EagerGuard<'_> {
        self.order.fetch_add(1, Ordering::AcqRel);
        self.book.lock().expect("no panic").0 += 1;
        EagerGuard(self)
    }

    fn owns(&self, guard: &EagerGuard<'_>) -> bool {
        std::ptr::eq(guard.0, self)
    }
}

// SAFETY: as above.
unsafe impl Guard for EagerGuard<'_> {
    fn protect<T>(&self, pointer: &AtomicPtr<T>, order: Ordering) -> *mut T {
        pointer.load(order)
    }

    unsafe fn retire<T: Send + 'static>(&self, pointer: *mut T, reclaim: unsafe fn(*mut T)) {
        // SAFETY: the contract of `retire`: it runs when no guard is live.
        let give_back = move || unsafe { reclaim(pointer) };
        self.0.book.lock().expect("no panic").1.push(Box::new(give_back));
    }
}

impl Drop for EagerGuard<'_> {
    fn drop(&mut self) {
        // Who leaves last has seen what all others did.
        self.0.order.fetch_add(1, Ordering::AcqRel);
        let jobs = {
            let mut book = self.0.book.lock().expect("no panic");
            book.0 -= 1;
            if book.0 == 0 { std::mem::take(&mut book.1) } else { Vec::new() }
        };
        for job in jobs {
            job();
        }
    }
}

/// A segment's second life, while others are at work in the queue.
#[test]
fn segments_are_used_again() {
    pushing(|| SegmentedQueue::<Box<u32>, Eager>::with(UNBOUNDED, 1), 2, &[3], (3, 1));
}

/// Two that take from the store at once.
#[test]
fn segments_are_used_again_by_two() {
    model_within(2, || {
        let queue = Arc::new(SegmentedQueue::<Box<u32>, Eager>::with(UNBOUNDED, 1));
        for i in 0..3 {
            assert!(push(&*queue, i));
        }
        assert_eq!(rest(&*queue), [0, 1, 2], "two segments are in the store now");
        let other = {
            let queue = Arc::clone(&queue);
            spawn(move || assert!(push(&*queue, 10)))
        };
        assert!(push(&*queue, 20));
        let mut all = pop(&*queue, 1);
        other.join().expect("no panic");
        all.extend(rest(&*queue));
        all.sort_unstable();
        assert_eq!(all, [10, 20]);
    });
}

#[test]
fn buckets_push_pop() {
    pushing(|| BucketQueue::bounded(4), 2, &[2], (2, 1));
}

/// Whoever comes second to their lock sleeps.
#[test]
fn buckets_push_pop_lying_down() {
    lying_down(|| pushing(|| BucketQueue::bounded(4), 2, &[2], (2, 1)));
}

#[test]
fn buckets_push_push_pop() {
    pushing(|| BucketQueue::bounded(4), 2, &[1, 1], (1, 2));
}

/// Priorities that come while the turn moves on: nothing is stranded.
#[test]
fn buckets_turn() {
    model(|| {
        let queue = Arc::new(BucketQueue::bounded(4));
        let level = |number| JobPriority::new(number).expect("1 to 63");
        queue.push(Box::new(1), level(60)).expect("room");
        let other = {
            let queue = Arc::clone(&queue);
            spawn(move || {
                queue.push(Box::new(2), level(3)).expect("room");
                queue.push(Box::new(3), level(63)).expect("room");
            })
        };
        let mut all = pop(&*queue, 1);
        other.join().expect("no panic");
        all.extend(rest(&*queue));
        assert!(all == [1, 2, 3] || all == [2, 1, 3], "{all:?}");
    });
}

#[test]
fn buckets_close_push() {
    model(|| {
        let queue = Arc::new(BucketQueue::bounded(4));
        let other = {
            let queue = Arc::clone(&queue);
            spawn(move || push(&*queue, 1))
        };
        queue.close();
        let all = rest(&*queue);
        assert_eq!(all.len(), usize::from(other.join().expect("no panic")));
        assert!(!push(&*queue, 2));
    });
}
