//! What the heap orders: 16 bytes, compared as one number.

use std::{cmp::Ordering, fmt, hint::select_unpredictable};

/// Bits of [`Entry`]'s second word that hold the slot; the others hold the tie.
const SLOT_BITS: u32 = 24;

/// A rank, a tie-breaker and the slot of the resource that they belong to.
///
/// Ordered by rank, then by tie, then by slot: `a < b` means that `a` is lent out first. The order is that of one
/// 128-bit integer, so that a comparison is two subtractions and no branch.
///
/// # Widths
///
/// * Slots have 24 bits. [`Entry::MAX_SLOT`] is one less than fits: the number of slots is then the number of
///   entries that a heap can hold, and owners have a value left that means "none".
/// * Ties have 40 bits and are cut to them, so a counter of pushes may simply run on. It wraps after 2^40 pushes,
///   some ten hours of nothing but pushes. At that moment the order among *equal ranks* is inverted once, between
///   entries from before and after the wrap; ranks are never affected, and no entry is lost or duplicated.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Entry {
    rank: u64,
    /// The tie above the slot.
    order: u64,
}

impl Entry {
    /// The largest slot number.
    pub const MAX_SLOT: u32 = (1 << SLOT_BITS) - 2;

    /// The largest tie; larger ones are cut to their low 40 bits.
    pub const MAX_TIE: u64 = (1 << (u64::BITS - SLOT_BITS)) - 1;

    /// An entry for `slot`.
    ///
    /// # Panics
    ///
    /// If `slot` is above [`Entry::MAX_SLOT`], in builds with debug assertions. Without them the surplus bits are
    /// cut off.
    #[inline]
    pub const fn new(rank: u64, tie: u64, slot: u32) -> Self {
        debug_assert!(slot <= Self::MAX_SLOT, "the slot does not fit into 24 bits");
        Entry { rank, order: tie << SLOT_BITS | (slot as u64 & ((1 << SLOT_BITS) - 1)) }
    }

    /// What decides first; lower is better.
    #[inline]
    pub const fn rank(self) -> u64 {
        self.rank
    }

    /// What decides among equal ranks; lower is better.
    #[inline]
    pub const fn tie(self) -> u64 {
        self.order >> SLOT_BITS
    }

    /// Whose entry this is.
    #[inline]
    pub const fn slot(self) -> u32 {
        (self.order & ((1 << SLOT_BITS) - 1)) as u32
    }

    /// `self` if `condition`, else `other`; without a branch.
    #[inline]
    pub(super) fn select(self, other: Self, condition: bool) -> Self {
        Entry {
            rank: select_unpredictable(condition, self.rank, other.rank),
            order: select_unpredictable(condition, self.order, other.order),
        }
    }

    #[inline]
    const fn key(self) -> u128 {
        (self.rank as u128) << u64::BITS | self.order as u128
    }
}

impl Ord for Entry {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

/// The operators compare keys directly: by default they would go through [`Ordering`].
impl PartialOrd for Entry {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }

    #[inline]
    fn lt(&self, other: &Self) -> bool {
        self.key() < other.key()
    }

    #[inline]
    fn le(&self, other: &Self) -> bool {
        self.key() <= other.key()
    }

    #[inline]
    fn gt(&self, other: &Self) -> bool {
        self.key() > other.key()
    }

    #[inline]
    fn ge(&self, other: &Self) -> bool {
        self.key() >= other.key()
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("rank", &self.rank())
            .field("tie", &self.tie())
            .field("slot", &self.slot())
            .finish()
    }
}
