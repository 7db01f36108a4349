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
//! Why S2 need look only at grandchildren when all four exist: a child bounds its own children from the other side,
//! so it cannot come before them.

use super::{
    Entry, MinMaxHeap, Positions,
    side::{Max, Min, Side},
};

/// Whether a position is on an even level, where small entries are above.
#[inline]
fn on_min_level(position: u32) -> bool {
    position.ilog2().is_multiple_of(2)
}

impl MinMaxHeap {
    /// Puts `item` where it belongs, given that `hole` is free and all else is in order.
    #[inline]
    pub(super) fn settle(&mut self, hole: u32, item: Entry, positions: &mut impl Positions) {
        if on_min_level(hole) {
            self.settle_on::<Min, _>(hole, item, positions);
        } else {
            self.settle_on::<Max, _>(hole, item, positions);
        }
    }

    #[inline]
    fn settle_on<S: Side, P: Positions>(&mut self, hole: u32, item: Entry, positions: &mut P) {
        if hole >= 4 && S::before(item, self.storage.get(hole / 4)) {
            self.climb::<S, P>(hole, item, positions);
        } else {
            self.descend::<S, P>(hole, item, positions);
        }
    }

    /// Like [`MinMaxHeap::settle`] for a hole at the end: it has no descendants.
    #[inline]
    pub(super) fn settle_last(&mut self, item: Entry, positions: &mut impl Positions) {
        let hole = self.len;
        if on_min_level(hole) {
            self.settle_leaf::<Min, _>(hole, item, positions);
        } else {
            self.settle_leaf::<Max, _>(hole, item, positions);
        }
    }

    #[inline]
    fn settle_leaf<S: Side, P: Positions>(&mut self, hole: u32, item: Entry, positions: &mut P) {
        if hole >= 4 && S::before(item, self.storage.get(hole / 4)) {
            self.climb::<S, P>(hole, item, positions);
        } else {
            self.cross::<S, P>(hole, item, positions);
        }
    }

    /// S2 and S3: down S's levels, then S4.
    #[inline]
    pub(super) fn descend<S: Side, P: Positions>(&mut self, mut hole: u32, item: Entry, positions: &mut P) {
        while hole * 4 + 3 <= self.len {
            let line = self.storage.line(hole * 4);
            let first = S::first_of(line);
            let entry = line[first];
            if !S::before(entry, item) {
                return self.place(hole, item, positions);
            }
            self.place(hole, entry, positions);
            hole = hole * 4 + first as u32;
        }
        match self.first_below::<S>(hole) {
            None => self.cross::<S, P>(hole, item, positions),
            Some((_, entry)) if !S::before(entry, item) => self.place(hole, item, positions),
            Some((next, entry)) => {
                self.place(hole, entry, positions);
                if next >= hole * 4 {
                    self.cross::<S, P>(next, item, positions);
                } else {
                    // A child: the item is in order with its parent, which was before it.
                    self.climb::<S::Other, P>(next, item, positions);
                }
            }
        }
    }

    /// The first among the children and grandchildren of a position that has fewer than four grandchildren.
    #[inline]
    fn first_below<S: Side>(&self, hole: u32) -> Option<(u32, Entry)> {
        let grandchildren = hole * 4..=self.len.min(hole * 4 + 3);
        let children = hole * 2..=self.len.min(hole * 2 + 1);
        grandchildren
            .chain(children)
            .map(|position| (position, self.storage.get(position)))
            .reduce(|first, other| if S::before(other.1, first.1) { other } else { first })
    }

    /// S4: the hole is a leaf on one of S's levels, the item is in order with the grandparent.
    #[inline]
    fn cross<S: Side, P: Positions>(&mut self, hole: u32, item: Entry, positions: &mut P) {
        if hole > 1 {
            let parent = self.storage.get(hole / 2);
            if S::Other::before(item, parent) {
                self.place(hole, parent, positions);
                return self.climb::<S::Other, P>(hole / 2, item, positions);
            }
        }
        self.place(hole, item, positions);
    }

    /// Up S's levels, from a hole on one of them.
    #[inline]
    fn climb<S: Side, P: Positions>(&mut self, mut hole: u32, item: Entry, positions: &mut P) {
        while hole >= 4 {
            let above = self.storage.get(hole / 4);
            if !S::before(item, above) {
                break;
            }
            self.place(hole, above, positions);
            hole /= 4;
        }
        self.place(hole, item, positions);
    }

    #[inline]
    fn place(&mut self, position: u32, entry: Entry, positions: &mut impl Positions) {
        self.storage.set(position, entry);
        positions.set(entry.slot(), position);
    }
}
