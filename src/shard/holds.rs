//! How many members have each hold; a resource with several counts in each.
//!
//! Counted where a flag moves: a lease that is neither followed by a cooling nor by an ejection does not come here. Words as those of
//! the face: written under the shard's lock between its F1 and F4, read by anyone, of one moment if the face's sequence says so.
//!
//! An exclusion and its end are no such place: both are on the face, and how often they happened says how many are excluded. What is
//! counted here of that is what it does not say: one less for each that has left the fleet while it was excluded.

// Clippy resolves the facade's names to the types behind them and cannot tell the way through it from the way around.
#![allow(clippy::disallowed_types)]

use crate::{
    node::{Hold, Moved, State},
    sync::{atomic::Ordering, count::AtomicU64},
};

/// The counts of one shard.
#[derive(Debug)]
pub struct Holds([AtomicU64; Hold::ALL.len()]);

impl Default for Holds {
    fn default() -> Self {
        Holds(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Holds {
    /// How many members have it; of those excluded, see the header.
    pub(super) fn of(&self, hold: Hold) -> u64 {
        // Relaxed, here and below: as the words of the face.
        self.0[hold as usize].load(Ordering::Relaxed)
    }

    /// Brings the counts in line with a transition. To be called by the holder of the lock.
    pub(super) fn follow(&self, moved: Moved) {
        let (was, is) = (counted(moved.from), counted(moved.to));
        let mut changed = was ^ is;
        while changed != 0 {
            let place = changed.trailing_zeros();
            self.add(place as usize % Hold::ALL.len(), is >> place & 1 == 1);
            changed &= changed - 1;
        }
    }

    /// The same for a transition of a member in which this hold has moved, and no other, and which the face counts. To be called by the
    /// holder of the lock.
    #[inline]
    pub(super) fn follow_one(&self, hold: Hold, is_held: bool) {
        if hold != Hold::Excluded {
            self.add(hold as usize, is_held);
        }
    }

    #[inline]
    fn add(&self, place: usize, more: bool) {
        let cell = &self.0[place];
        let count = cell.load(Ordering::Relaxed);
        cell.store(if more { count.wrapping_add(1) } else { count.wrapping_sub(1) }, Ordering::Relaxed);
    }
}

/// One bit for each hold that counts. What has left the fleet, or is not in it yet, is held back by nothing.
pub(super) fn counted(state: State) -> u32 {
    if state.is_removed() || state.is_staged() { 0 } else { state.holds() }
}
