//! A queue by priority in which nobody starves: 64 buckets that revolve.
//!
//! ```text
//!     bucket   ...  t-1 |  t  | t+1 | t+2 | ...           t: the turn, a number that only grows; bucket = number mod 64
//!                  push: p = 1..63 goes to t+p            pop: from the first bucket at or after t that has anything,
//!                                                              which becomes the turn
//! ```
//!
//! A push at turn t with priority p makes an item *due* at t + p. Items are popped in the order of what is due, and in that of
//! their arrival if equally so. All that is in the queue is due at t to t + 63: 64 numbers, so a bucket's number tells which,
//! and the next one is found **relative to the turn** (the mask of what is not empty, rotated by the turn), never by its own number.
//!
//! **Nobody starves.** A push never goes to the bucket whose turn it is, since p is at least 1: so when its turn comes, a bucket
//! holds a fixed set of items. An item of priority p waits for the buckets of at most p turns to be emptied, its own included: at most
//! p × capacity items go before it, whatever is pushed later. Two items that were pushed at the same turn go by their priority.
//!
//! **Nothing is stranded.** Turn, mask, and the buckets' lists change together, under one lock: there is no moment at which an
//! item is in a bucket whose bit is not set. A lock, because these are three things and because a pop takes many items at
//! once; under it nothing runs but moves of items, up to 64 of them in one go, and of indices.

use std::collections::VecDeque;

use super::{JobPriority, JobQueue, PushError, Refusal};
use crate::sync::{
    SpinLock,
    atomic::Ordering,
    count::{AtomicU64, AtomicUsize},
};

const BUCKETS: u64 = 64;
const NONE: u32 = u32::MAX;

/// Places in one chunk of places.
const CHUNK: usize = if cfg!(any(loom, shuttle)) { 2 } else { 64 };

/// Items moved in one critical section, at most.
const AT_ONCE: usize = 64;

struct Place<T> {
    item: Option<T>,
    next: u32,
}

#[derive(Clone, Copy)]
struct List {
    first: u32,
    last: u32,
}

const EMPTY: List = List { first: NONE, last: NONE };

struct Buckets<T> {
    /// Grows by linking chunks; its own memory is made at the beginning.
    chunks: Vec<Box<[Place<T>]>>,
    free: u32,
    lists: [List; BUCKETS as usize],
    /// A bit for each list that is not empty.
    mask: u64,
    turn: u64,
    len: usize,
    closed: bool,
}

/// A queue by priority: items with a lower [`JobPriority`] go first, waiting items age, none starves.
///
/// An item of priority p is overtaken by at most p × capacity items, whatever is pushed after it: see the module's header for why.
///
/// *Progress:* blocking, by a spinlock that is held for some tens of nanoseconds (up to a microsecond for a batch of 64).
///
/// *Ordering:* what happened before a push happens before what follows the pop of that item.
///
/// *Complexity:* O(1) for each item. Memory for items is made as it is needed and kept.
///
/// ```
/// use leasehold::pool::{BucketQueue, JobPriority, JobQueue};
/// use std::collections::VecDeque;
///
/// let queue = BucketQueue::bounded(10);
/// queue.push("can wait", JobPriority::LOWEST)?;
/// queue.push("in a hurry", JobPriority::HIGHEST)?;
/// let mut batch = VecDeque::new();
/// queue.pop_many(10, &mut batch);
/// assert_eq!(batch, ["in a hurry", "can wait"]);
/// # Ok::<(), leasehold::pool::PushError<&str>>(())
/// ```
pub struct BucketQueue<T> {
    buckets: SpinLock<Buckets<T>>,
    len: AtomicUsize,
    passed: AtomicU64,
    capacity: usize,
}

impl<T> Buckets<T> {
    fn place(&mut self, index: u32) -> &mut Place<T> {
        &mut self.chunks[index as usize / CHUNK][index as usize % CHUNK]
    }

    /// Puts an item into the list that is due at `due`; back if there is no place.
    fn put(&mut self, item: T, due: u64) -> Result<(), T> {
        let index = self.free;
        if index == NONE {
            return Err(item);
        }
        let place = self.place(index);
        let free = place.next;
        (place.item, place.next) = (Some(item), NONE);
        self.free = free;
        let bucket = (due % BUCKETS) as usize;
        match self.lists[bucket].last {
            NONE => self.lists[bucket] = List { first: index, last: index },
            last => {
                self.place(last).next = index;
                self.lists[bucket].last = index;
            }
        }
        self.mask |= 1 << bucket;
        self.len += 1;
        Ok(())
    }

    /// Takes the first item of the first list in turn.
    fn take(&mut self) -> Option<T> {
        if self.mask == 0 {
            return None;
        }
        let here = (self.turn % BUCKETS) as u32;
        self.turn += u64::from(self.mask.rotate_right(here).trailing_zeros());
        let bucket = (self.turn % BUCKETS) as usize;
        let index = self.lists[bucket].first;
        let free = self.free;
        let place = self.place(index);
        let item = place.item.take();
        let next = std::mem::replace(&mut place.next, free);
        self.free = index;
        if next == NONE {
            self.lists[bucket] = EMPTY;
            self.mask &= !(1 << bucket);
        } else {
            self.lists[bucket].first = next;
        }
        self.len -= 1;
        item
    }

    /// Adds the places of a chunk.
    fn add(&mut self, chunk: Box<[Place<T>]>) {
        let from = (self.chunks.len() * CHUNK) as u32;
        self.chunks.push(chunk);
        for index in from..from + CHUNK as u32 {
            self.place(index).next = std::mem::replace(&mut self.free, index);
        }
    }
}

impl<T> BucketQueue<T> {
    /// The most that a queue takes.
    pub const MAX_CAPACITY: usize = 1 << 24;

    /// A queue that takes up to `capacity` items at once: at least one, at most [`MAX_CAPACITY`](Self::MAX_CAPACITY).
    pub fn bounded(capacity: usize) -> Self {
        let capacity = capacity.clamp(1, Self::MAX_CAPACITY);
        BucketQueue {
            buckets: SpinLock::new(Buckets {
                chunks: Vec::with_capacity(capacity.div_ceil(CHUNK)),
                free: NONE,
                lists: [EMPTY; BUCKETS as usize],
                mask: 0,
                turn: 0,
                len: 0,
                closed: false,
            }),
            len: AtomicUsize::new(0),
            passed: AtomicU64::new(0),
            capacity,
        }
    }

    /// Pushes from the front of what `next` answers, until that is nothing or is refused; what is refused comes back.
    fn push_some(
        &self,
        mut next: impl FnMut() -> Option<T>,
        priority: JobPriority,
    ) -> Result<(), PushError<T>> {
        let mut chunk = None;
        let mut in_hand = next();
        // Freed and made with the lock free.
        while in_hand.is_some() {
            let mut buckets = self.buckets.lock();
            // In this order: one that is not needed is not freed here.
            if buckets.chunks.len() < self.capacity.div_ceil(CHUNK)
                && let Some(chunk) = chunk.take()
            {
                buckets.add(chunk);
            }
            let mut refused = None;
            let before = buckets.len;
            for _ in 0..AT_ONCE {
                let Some(item) = in_hand.take() else { break };
                refused = match (buckets.closed, buckets.len >= self.capacity) {
                    (true, _) => Some((item, Some(Refusal::Closed))),
                    (_, true) => Some((item, Some(Refusal::Full))),
                    _ => {
                        let due = buckets.turn + u64::from(priority.get());
                        buckets.put(item, due).err().map(|item| (item, None))
                    }
                };
                if refused.is_some() {
                    break;
                }
                in_hand = next();
            }
            // Relaxed: a count for those who do not take the lock; exact when nobody is inside.
            self.len.fetch_add(buckets.len - before, Ordering::Relaxed);
            drop(buckets);
            match refused {
                None => {}
                Some((item, Some(reason))) => return Err(PushError { item, reason }),
                Some((item, None)) => {
                    in_hand = Some(item);
                    chunk = Some((0..CHUNK).map(|_| Place { item: None, next: NONE }).collect());
                }
            }
        }
        Ok(())
    }
}

impl<T> BucketQueue<T> {
    /// At most `max` items are given to `into`, under the lock: a move and nothing else. Answers how many.
    pub(in crate::pool) fn pop_into(&self, max: usize, mut into: impl FnMut(T)) -> usize {
        let mut taken = 0;
        let mut buckets = self.buckets.lock();
        while taken < max.min(AT_ONCE) {
            let Some(item) = buckets.take() else { break };
            into(item);
            taken += 1;
        }
        // Relaxed: as in `push_some`.
        self.len.fetch_sub(taken, Ordering::Relaxed);
        self.passed.fetch_add(taken as u64, Ordering::Relaxed);
        drop(buckets);
        taken
    }
}

impl<T> BucketQueue<T> {
    /// The turn, and a bit for each number of turns after which something is due: 0 for what is due now.
    pub(in crate::pool) fn turns(&self) -> (u64, u64) {
        let buckets = self.buckets.lock();
        (buckets.turn, buckets.mask.rotate_right((buckets.turn % BUCKETS) as u32))
    }
}

impl<T: Send> JobQueue<T> for BucketQueue<T> {
    fn push(&self, item: T, priority: JobPriority) -> Result<(), PushError<T>> {
        let mut item = Some(item);
        self.push_some(|| item.take(), priority)
    }

    fn push_many(&self, items: &mut VecDeque<T>, priority: JobPriority) -> Result<(), Refusal> {
        self.push_some(|| items.pop_front(), priority).map_err(|refused| {
            items.push_front(refused.item);
            refused.reason
        })
    }

    fn pop_many(&self, max: usize, into: &mut VecDeque<T>) -> usize {
        // Nothing is allocated under the lock.
        into.reserve(max.min(self.capacity).min(AT_ONCE));
        self.pop_into(max, |item| into.push_back(item))
    }

    fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    fn capacity(&self) -> Option<usize> {
        Some(self.capacity)
    }

    fn passed(&self) -> u64 {
        self.passed.load(Ordering::Relaxed)
    }

    fn close(&self) {
        self.buckets.lock().closed = true;
    }
}

impl<T> std::fmt::Debug for BucketQueue<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BucketQueue")
            .field("len", &self.len.load(Ordering::Relaxed))
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}
