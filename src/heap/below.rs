//! How many entries have a better rank than a given one, without taking them out.
//!
//! The way of [`best`](super::best), in any order: from an entry that is better to those whose predecessor it is, and no further where one is
//! not better. So what is looked at is the answer and its border: each entry has one predecessor and is looked at once, and none has more
//! than seven successors. The walk stops when it has counted as many as were asked for.

use super::{MinMaxHeap, best::successors, storage::Place};

struct Walk<'h> {
    heap: &'h MinMaxHeap,
    rank: u64,
    /// How many more are counted.
    left: usize,
}

impl Walk<'_> {
    /// Counts the entry at `place` and all behind it, if it is better. As deep as the tree has even levels: twelve at most.
    fn visit(&mut self, place: Place) {
        if self.left == 0 || self.heap.storage.get(place).rank() >= self.rank {
            return;
        }
        self.left -= 1;
        // What is on an odd level is nobody's predecessor.
        if place.is_min() {
            successors(self.heap, place, |next| self.visit(next));
        }
    }
}

/// How many are of a rank below `rank`; `most` if it is more than that.
pub(super) fn count(heap: &MinMaxHeap, rank: u64, most: usize) -> usize {
    let mut walk = Walk { heap, rank, left: most };
    if let Some(root) = heap.storage.place(1) {
        walk.visit(root);
    }
    most - walk.left
}
