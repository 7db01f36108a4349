//! The two orders of a min-max heap as types, so that each sift is written once and compiled twice.

use super::Entry;

/// The order on one kind of level.
pub(super) trait Side {
    /// The order on the levels in between.
    type Other: Side<Other = Self>;

    /// Whether `a` belongs strictly above `b`.
    fn before(a: Entry, b: Entry) -> bool;

    /// The index of the entry that belongs above the three others.
    ///
    /// Two comparisons side by side, then one; indices come from arithmetic because the outcome is a coin toss that
    /// no branch predictor can learn.
    #[inline]
    fn first_of(line: &[Entry; 4]) -> usize {
        let left = usize::from(Self::before(line[1], line[0]));
        let right = 2 + usize::from(Self::before(line[3], line[2]));
        std::hint::select_unpredictable(Self::before(line[right], line[left]), right, left)
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
