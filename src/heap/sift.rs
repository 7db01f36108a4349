//! Moving a hole to where an entry belongs.
//!
//! All changes come down to one: there is a *hole* at some position, everything else is in order, and an *item* has
//! to go in. Entries move into the hole one at a time, the item is written once at the end.
//!
//! ```text
//! settle   on a level of side S, with the hole at h:
//!   S1  the item belongs above h's grandparent          -> climb S's levels from h; done
//!   S2  some descendant of h belongs above the item     -> the first of them moves up, the hole takes its place; repeat
//!   S3  none does, and h has descendants                -> the item goes to h; done
//!   S4  h is a leaf, the item belongs beyond its parent -> the parent moves down, climb the *other* levels; done
//! ```
//!
//! Why S3 need not look at h's parent, which bounds h from the other side: the parent also bounds every descendant
//! of h, and the item does not go beyond those. This saves one comparison a step against the textbook, which swaps
//! with the parent on the way down.
//!
//! The usual variant that lets the hole sink to a leaf and then climbs saves S3's comparison, 2 % where the item comes
//! from the end; it costs a whole way down and up where the item belongs near the top, which is what requeuing does.
//!
//! Why S2 need look only at grandchildren when all four exist: a child bounds its own children from the other side,
//! so it cannot come before them.

use super::{
    Entry, MinMaxHeap, Positions,
    side::{Max, Min, Side},
    storage::Place,
};

impl MinMaxHeap {
    /// Puts `item` where it belongs, given that `hole` is free and all else is in order.
    #[inline]
    pub(super) fn settle(&mut self, hole: Place, item: Entry, positions: &mut impl Positions) {
        if hole.is_min() {
            self.settle_on::<Min, _>(hole, item, positions);
        } else {
            self.settle_on::<Max, _>(hole, item, positions);
        }
    }

    #[inline]
    fn settle_on<S: Side, P: Positions>(&mut self, hole: Place, item: Entry, positions: &mut P) {
        if self.is_above_grandparent::<S>(hole, item) {
            self.climb::<S, P>(hole, item, positions);
        } else {
            self.descend::<S, P>(hole, item, positions);
        }
    }

    /// Like [`MinMaxHeap::settle`], for a hole without descendants.
    #[inline]
    pub(super) fn settle_leaf(&mut self, hole: Place, item: Entry, positions: &mut impl Positions) {
        if hole.is_min() {
            self.settle_leaf_on::<Min, _>(hole, item, positions);
        } else {
            self.settle_leaf_on::<Max, _>(hole, item, positions);
        }
    }

    #[inline]
    fn settle_leaf_on<S: Side, P: Positions>(&mut self, hole: Place, item: Entry, positions: &mut P) {
        if self.is_above_grandparent::<S>(hole, item) {
            self.climb::<S, P>(hole, item, positions);
        } else {
            self.cross::<S, P>(hole, item, positions);
        }
    }

    /// The condition of S1.
    #[inline]
    fn is_above_grandparent<S: Side>(&self, hole: Place, item: Entry) -> bool {
        hole.grandparent().is_some_and(|above| S::before(item, self.storage.get(above)))
    }

    /// Up S's levels, from a hole on one of them.
    #[inline]
    fn climb<S: Side, P: Positions>(&mut self, mut hole: Place, item: Entry, positions: &mut P) {
        while let Some(above) = hole.grandparent() {
            let entry = self.storage.get(above);
            if !S::before(item, entry) {
                break;
            }
            self.put(hole, entry, positions);
            hole = above;
        }
        self.put(hole, item, positions);
    }

    /// S2 and S3: down S's levels, then S4.
    #[inline]
    pub(super) fn descend<S: Side, P: Positions>(&mut self, mut hole: Place, item: Entry, positions: &mut P) {
        while let Some(below) = self.storage.grandchildren(hole) {
            // The next step's lines, while this one compares: a third of the time in heaps beyond the second-level cache.
            self.storage.prefetch_below(below);
            let (index, entry) = S::first_of_four(self.storage.line(below));
            if !S::before(entry, item) {
                return self.put(hole, item, positions);
            }
            self.put(hole, entry, positions);
            hole = below.in_line(index);
        }
        self.descend_last::<S, P>(hole, item, positions);
    }

    /// The last step down, from a hole with fewer than four grandchildren; below it there are only leaves.
    #[inline]
    fn descend_last<S: Side, P: Positions>(&mut self, hole: Place, item: Entry, positions: &mut P) {
        let Some(left) = self.storage.child(hole, 0) else {
            return self.cross::<S, P>(hole, item, positions);
        };
        let (below, entry) = match self.storage.child(hole, 1) {
            Some(right) if self.storage.grandchild(hole, 0).is_none() => {
                let (left_entry, right_entry) = (self.storage.get(left), self.storage.get(right));
                let (index, entry) = S::first_of_two((0, left_entry), (1, right_entry));
                (if index == 0 { left } else { right }, entry)
            }
            _ => self.first_of_few::<S>(hole, left),
        };
        if !S::before(entry, item) {
            return self.put(hole, item, positions);
        }
        self.put(hole, entry, positions);
        if below.is_min() == hole.is_min() {
            self.cross::<S, P>(below, item, positions);
        } else {
            // A child: the item is in order with its parent, which was before it.
            self.climb::<S::Other, P>(below, item, positions);
        }
    }

    /// The first among one or two children and up to three grandchildren. Only one hole in a heap is like that, the
    /// one whose descendants are the last entries.
    #[cold]
    fn first_of_few<S: Side>(&self, hole: Place, left: Place) -> (Place, Entry) {
        let mut first = (left, self.storage.get(left));
        let right = self.storage.child(hole, 1);
        let grandchildren = (0..3).map_while(|index| self.storage.grandchild(hole, index));
        for place in right.into_iter().chain(grandchildren) {
            let entry = self.storage.get(place);
            if S::before(entry, first.1) {
                first = (place, entry);
            }
        }
        first
    }

    /// S4: the hole is a leaf on one of S's levels, the item is in order with the grandparent.
    #[inline]
    fn cross<S: Side, P: Positions>(&mut self, hole: Place, item: Entry, positions: &mut P) {
        if let Some(parent) = hole.parent() {
            let entry = self.storage.get(parent);
            if S::Other::before(item, entry) {
                self.put(hole, entry, positions);
                return self.climb::<S::Other, P>(parent, item, positions);
            }
        }
        self.put(hole, item, positions);
    }

    #[inline]
    fn put(&mut self, place: Place, entry: Entry, positions: &mut impl Positions) {
        self.storage.set(place, entry);
        positions.set(entry.slot(), place.position());
    }
}
