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

use super::{Entry, MinMaxHeap, storage::Place};

/// The smallest entries of a heap in ascending order; dereferences to a slice.
#[derive(Clone, Copy, Debug)]
pub struct Best {
    entries: [Entry; Best::MAX],
    len: usize,
}

impl Best {
    /// How many there are at most.
    pub const MAX: usize = if cfg!(any(loom, shuttle)) { 2 } else { 8 };

    /// The first few of entries that come in order.
    pub(super) fn collect(entries: impl Iterator<Item = Entry>) -> Self {
        let mut best = Best { entries: [Entry::default(); Best::MAX], len: 0 };
        for (place, entry) in best.entries.iter_mut().zip(entries) {
            *place = entry;
            best.len += 1;
        }
        best
    }
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
    places: [Place; Best::MAX],
}

impl Walk {
    fn offer(&mut self, place: Place, entry: Entry) {
        let entries = &mut self.found.entries;
        let mut at = self.found.len;
        if at < Best::MAX {
            self.found.len += 1;
        } else if entry < entries[at - 1] {
            at -= 1;
        } else {
            return;
        }
        while at > 0 && entry < entries[at - 1] {
            entries[at] = entries[at - 1];
            self.places[at] = self.places[at - 1];
            at -= 1;
        }
        entries[at] = entry;
        self.places[at] = place;
    }
}

/// The entries whose predecessor is at `place`, which is on an even level: none of them is smaller.
#[inline]
pub(super) fn successors(heap: &MinMaxHeap, place: Place, mut offer: impl FnMut(Place)) {
    if let Some(grandchildren) = heap.storage.grandchildren(place) {
        (0..4).for_each(|index| offer(grandchildren.in_line(index)));
    } else {
        (0..3).filter_map(|index| heap.storage.grandchild(place, index)).for_each(&mut offer);
        let children = (0..2).filter_map(|index| heap.storage.child(place, index));
        children.filter(|&child| heap.storage.child(child, 0).is_none()).for_each(&mut offer);
    }
    if place.position().is_multiple_of(2) {
        place.parent().into_iter().for_each(&mut offer);
    }
}

pub(super) fn walk(heap: &MinMaxHeap) -> Best {
    let found = Best { entries: [Entry::default(); Best::MAX], len: 0 };
    let Some(root) = heap.storage.place(1) else { return found };
    let mut walk = Walk { found, places: [root; Best::MAX] };
    walk.offer(root, heap.storage.get(root));
    let mut visited = 0;
    while visited < walk.found.len {
        let place = walk.places[visited];
        visited += 1;
        if !place.is_min() {
            continue; // nobody's predecessor
        }
        successors(heap, place, |next| walk.offer(next, heap.storage.get(next)));
    }
    walk.found
}
