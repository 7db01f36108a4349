//! Where jobs wait: two queues behind one small trait.
//!
//! | queue | order | progress |
//! |---|---|---|
//! | [`SegmentedQueue`] | first in, first out | lock-free; a stalled producer delays nothing but its own item |
//! | [`BucketQueue`] | by priority, waiting jobs age, none starves | one short spinlock |
//!
//! Both hand out batches, refuse what they have no room for with the item in the error, and can be *closed*: from then on nothing
//! comes in, and what is in comes out.

use std::{collections::VecDeque, error::Error, fmt};

mod bucket;
mod recycle;
#[allow(unsafe_code)]
mod segment;
#[allow(unsafe_code)]
mod segmented;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

pub use bucket::BucketQueue;
pub use segmented::{SEGMENT_SLOTS, SegmentedQueue};

/// How urgent a job is: 1 to 63, **lower goes first**. A [`SegmentedQueue`] ignores it.
///
/// ```
/// use leasehold::pool::JobPriority;
///
/// assert!(JobPriority::new(0).is_none() && JobPriority::new(64).is_none());
/// assert_eq!(JobPriority::default(), JobPriority::NORMAL);
/// assert!(JobPriority::HIGHEST < JobPriority::LOWEST);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobPriority(u8);

impl JobPriority {
    /// Goes first: 1.
    pub const HIGHEST: JobPriority = JobPriority(1);
    /// What a job has that names none: 32.
    pub const NORMAL: JobPriority = JobPriority(32);
    /// Goes last: 63.
    pub const LOWEST: JobPriority = JobPriority(63);

    /// The priority of that number, if it is one of 1 to 63.
    pub const fn new(number: u8) -> Option<Self> {
        if number >= 1 && number <= 63 { Some(JobPriority(number)) } else { None }
    }

    /// Its number.
    pub const fn get(self) -> u8 {
        self.0
    }
}

impl Default for JobPriority {
    fn default() -> Self {
        Self::NORMAL
    }
}

/// Why a queue took nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no room now.
    Full,
    /// Nothing comes in any more.
    Closed,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::Full => "the queue is full",
            Refusal::Closed => "the queue is closed",
        })
    }
}

/// An item that was refused, and why.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PushError<T> {
    /// The item, as it was.
    pub item: T,
    /// Why it was refused.
    pub reason: Refusal,
}

// Neither asks anything of `T`.
impl<T> fmt::Debug for PushError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PushError").field("reason", &self.reason).finish_non_exhaustive()
    }
}

impl<T> fmt::Display for PushError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl<T> Error for PushError<T> {}

/// A queue of many producers and many consumers.
///
/// An item that was pushed comes out once, or is dropped with the queue.
pub trait JobQueue<T>: Send + Sync {
    /// Puts an item in.
    ///
    /// # Errors
    /// The item, if there is no room, or the queue is closed.
    fn push(&self, item: T, priority: JobPriority) -> Result<(), PushError<T>>;

    /// Takes items from the front of `items` and puts them in, all with one priority, in their order, until none is left
    /// or one is refused. What did not go in is still in `items`.
    ///
    /// # Errors
    /// Why not all went in. So many did as are missing from `items`.
    fn push_many(&self, items: &mut VecDeque<T>, priority: JobPriority) -> Result<(), Refusal>;

    /// Takes at most `max` items out and puts them at the back of `into`; answers how many. 0 if the queue was empty at some moment
    /// of this call.
    fn pop_many(&self, max: usize, into: &mut VecDeque<T>) -> usize;

    /// How many items are in it: exact if nobody is pushing or popping, otherwise near.
    fn len(&self) -> usize;

    /// Whether nothing is in it, with the same reservation.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many items it takes; `None` if there is no limit. Never exceeded.
    fn capacity(&self) -> Option<usize>;

    /// How many items have come out so far, or been given a place in vain.
    fn passed(&self) -> u64;

    /// Lets nothing in any more. A push that runs at the same time either has succeeded, and its item can be popped by whoever
    /// knows that this call has returned, or is refused. Calling it again does nothing.
    fn close(&self);
}
