//! The first few entries in order, without taking them out.
//!
//! A best-first walk: visit the smallest candidate, then make candidates of those that can come next. To each entry
//! there is one *predecessor* that is not larger, and the entry becomes a candidate when that one is visited:
//!
//! | entry | predecessor |
//! |---|---|
//! | on an even level | its grandparent |
//! | on an odd level, with children | its left child |
//! | on an odd level, a leaf | its parent |
//!
//! Only as many candidates as are still wanted are kept, in order, so the array has a fixed length.

use std::ops::Deref;

use super::{Entry, MinMaxHeap};

/// The smallest entries of a heap in ascending order; dereferences to a slice.
#[derive(Clone, Copy, Debug)]
pub struct Best {
    entries: [Entry; Best::MAX],
    len: usize,
}

impl Best {
    /// How many there are at most.
    pub const MAX: usize = 8;
}

impl Deref for Best {
    type Target = [Entry];

    #[inline]
    fn deref(&self) -> &[Entry] {
        &self.entries[..self.len]
    }
}

/// Visited entries first, then candidates, all in ascending order; where it is full, the largest falls out.
struct Walk {
    found: Best,
    positions: [u32; Best::MAX],
}

impl Walk {
    fn offer(&mut self, entry: Entry, position: u32) {
        let mut at = self.found.len;
        if at == Best::MAX {
            if entry >= self.found.entries[at - 1] {
                return;
            }
            at -= 1;
        } else {
            self.found.len += 1;
        }
        while at > 0 && entry < self.found.entries[at - 1] {
            self.found.entries[at] = self.found.entries[at - 1];
            self.positions[at] = self.positions[at - 1];
            at -= 1;
        }
        self.found.entries[at] = entry;
        self.positions[at] = position;
    }
}

pub(super) fn walk(heap: &MinMaxHeap) -> Best {
    let found = Best { entries: [Entry::default(); Best::MAX], len: 0 };
    let mut walk = Walk { found, positions: [0; Best::MAX] };
    let offer = |walk: &mut Walk, position| walk.offer(heap.storage.get(position), position);
    if heap.len > 0 {
        offer(&mut walk, 1);
    }
    let mut visited = 0;
    while visited < walk.found.len {
        let position = walk.positions[visited];
        visited += 1;
        // An entry on an odd level is nobody's predecessor.
        if position.ilog2() % 2 == 1 {
            continue;
        }
        for grandchild in position * 4..=heap.len.min(position * 4 + 3) {
            offer(&mut walk, grandchild);
        }
        for child in position * 2..=heap.len.min(position * 2 + 1) {
            if child * 2 > heap.len {
                offer(&mut walk, child);
            }
        }
        if position > 1 && position.is_multiple_of(2) {
            offer(&mut walk, position / 2);
        }
    }
    walk.found
}
