//! A min-max heap: the best resource of a shard at one end, the worst at the other.
//!
//! # The structure
//!
//! M. D. Atkinson, J.-R. Sack, N. Santoro and T. Strothotte, "Min-max heaps and generalized priority queues",
//! Communications of the ACM 29 (10), 1986. A complete binary tree in an array, whose levels take turns: an entry on
//! an even level is the *smallest* of its subtree, an entry on an odd level the *largest* of its own. The root is the
//! minimum, the larger of its two children the maximum:
//!
//! ```text
//!   even (min)              5                 the smallest of all
//!   odd  (max)       61           80          each the largest of its subtree
//!   even (min)    24    9      12     31      each the smallest of its subtree
//!   odd  (max)  40 57  10 60  14 70  33 77
//! ```
//!
//! A sift goes two levels at a time, to one of four grandchildren; that is half as many dependent steps as in a
//! binary heap, and since the four lie in one cache line, half as many lines.
//!
//! # Its parts
//!
//! | file | idea |
//! |---|---|
//! | `entry` | what is ordered: (rank, tie, slot) in 16 bytes |
//! | `storage` | segments that double and never move, so that growth under a lock is O(1); all `unsafe` code is here |
//! | `side` | "small above" and "large above" as types |
//! | `sift` | how an entry finds its place |
//! | `best` | the first eight in order, without removing them |
//! | `below` | how many are better than a rank, without removing them |
//! | `min_max` | the operations |
//! | `tail` | a short sorted run for entries that come in order |
//! | `queue` | the heap with a short sorted front and a tail, as a shard uses it |
//!
//! # Removal from the middle
//!
//! The heap tells its owner where each entry goes through [`Positions`]; the owner keeps that number next to the
//! resource and gives it back to [`MinMaxHeap::remove`] or [`MinMaxHeap::replace`]. Positions start at 1, so 0 can
//! mean "not in the heap".

#[cfg(any(test, feature = "telemetry"))]
mod below;
mod best;
mod entry;
mod min_max;
mod queue;
mod side;
mod sift;
mod storage;
mod tail;
#[cfg(test)]
mod tests;

pub use best::Best;
pub use entry::Entry;
pub use min_max::MinMaxHeap;
pub use queue::Queue;
pub use storage::Segment;

/// The owner's record of where each entry is.
pub trait Positions {
    /// The entry of `slot` is now at `position`, which is at least 1.
    ///
    /// Called under the owner's lock, for entries that moved and for those that came in, never for one that left. It
    /// must not panic, and is crate code only: nothing here reaches a user's code.
    fn set(&mut self, slot: u32, position: u32);
}
