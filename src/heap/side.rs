//! The two orders of a min-max heap as types, so that each sift is written once and compiled twice.

use std::hint::select_unpredictable;

use super::Entry;

/// The order on one kind of level.
pub(super) trait Side {
    /// The order on the levels in between.
    type Other: Side<Other = Self>;

    /// Whether `a` belongs strictly above `b`.
    fn before(a: Entry, b: Entry) -> bool;

    /// The one of two that belongs above the other, without a branch: the outcome is a coin toss that no branch
    /// predictor can learn. The first, if they are equal.
    #[inline]
    fn first_of_two(a: (u32, Entry), b: (u32, Entry)) -> (u32, Entry) {
        let swap = Self::before(b.1, a.1);
        (select_unpredictable(swap, b.0, a.0), b.1.select(a.1, swap))
    }

    /// The one of four consecutive entries that belongs above the others, with its index: two comparisons side by
    /// side, then one.
    #[inline]
    fn first_of_four(line: &[Entry; 4]) -> (u32, Entry) {
        let left = Self::first_of_two((0, line[0]), (1, line[1]));
        let right = Self::first_of_two((2, line[2]), (3, line[3]));
        Self::first_of_two(left, right)
    }
}

/// Even levels, the root among them: smaller entries above.
pub(super) struct Min;

/// Odd levels: larger entries above.
pub(super) struct Max;

impl Side for Min {
    type Other = Max;

    #[inline]
    fn before(a: Entry, b: Entry) -> bool {
        a < b
    }
}

impl Side for Max {
    type Other = Min;

    #[inline]
    fn before(a: Entry, b: Entry) -> bool {
        a > b
    }
}
