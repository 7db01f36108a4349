//! Which of two comes last.
//!
//! Two parties use one piece of memory, each for as long as it likes, and whoever is done last gives it back:
//!
//! ```text
//! P1  use the memory, for the last time
//! P2  leave a mark, and look for the other's
//! P3  it is there: the other has done P1 and P2, the memory is ours alone
//! ```
//!
//! P2 is one read-modify-write, so exactly one of the two finds the other's mark. Model: `parting`.

use crate::sync::atomic::{AtomicU8, Ordering};

/// The two marks.
#[derive(Debug, Default)]
pub struct Parting(AtomicU8);

/// One of the two; each is played once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Party {
    /// The first one.
    One = 1,
    /// The other one.
    Other = 2,
}

impl Parting {
    /// Both are there.
    pub fn new() -> Self {
        Parting(AtomicU8::new(0))
    }

    /// P2 and the question of P3: whether the memory is ours alone now. Wait-free.
    pub fn leave(&self, party: Party) -> bool {
        // AcqRel: pairs with itself.
        // - we find the other's mark: all that it did to the memory came before, and we give it back;
        // - we do not: it will find ours, and what we did will have come before.
        self.0.fetch_or(party as u8, Ordering::AcqRel) != 0
    }
}
