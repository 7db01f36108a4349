//! A short sorted run in a ring, for entries that come in order: of equals, the one that was used last is always the largest.

use super::Entry;

/// Entries that it holds at most, a power of two. Few in models, so that they cross the boundary; nothing depends on the
/// number.
pub const TAIL: usize = if cfg!(any(loom, shuttle)) { 2 } else { 64 };

/// How far from the end an entry is put in place at most; farther, a heap is as fast.
const NEAR: usize = 8;

/// Ascending entries, [`TAIL`] at most. Both ends are at hand in O(1); all else is O(`TAIL`).
pub(super) struct Tail {
    entries: [Entry; TAIL],
    /// Where the smallest is.
    head: usize,
    len: usize,
}

impl Tail {
    pub(super) fn new() -> Self {
        Tail { entries: [Entry::default(); TAIL], head: 0, len: 0 }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.len == TAIL
    }

    #[inline(always)]
    fn place(&self, at: usize) -> usize {
        (self.head + at) & (TAIL - 1)
    }

    /// The entry with the index, smallest first.
    #[inline]
    pub(super) fn get(&self, at: usize) -> Entry {
        self.entries[self.place(at)]
    }

    #[inline]
    fn set(&mut self, at: usize, entry: Entry) {
        self.entries[self.place(at)] = entry;
    }

    /// The smallest.
    #[inline]
    pub(super) fn first(&self) -> Option<Entry> {
        (self.len > 0).then(|| self.get(0))
    }

    /// The largest.
    #[inline]
    pub(super) fn last(&self) -> Option<Entry> {
        (self.len > 0).then(|| self.get(self.len - 1))
    }

    /// Adds an entry that is smaller than all, if there is room.
    #[inline]
    pub(super) fn push_first(&mut self, entry: Entry) -> bool {
        if self.is_full() {
            return false;
        }
        self.head = self.place(TAIL - 1);
        self.len += 1;
        self.set(0, entry);
        true
    }

    #[inline]
    pub(super) fn pop_first(&mut self) -> Option<Entry> {
        let first = self.first()?;
        self.head = self.place(1);
        self.len -= 1;
        Some(first)
    }

    /// Adds an entry if there is room and it belongs near the end.
    #[inline]
    pub(super) fn push(&mut self, entry: Entry) -> bool {
        !self.is_full() && self.insert_within(entry, NEAR)
    }

    /// Adds an entry, wherever it belongs, if there is room.
    pub(super) fn insert(&mut self, entry: Entry) -> bool {
        !self.is_full() && self.insert_within(entry, TAIL)
    }

    #[inline]
    fn insert_within(&mut self, entry: Entry, most: usize) -> bool {
        let mut at = self.len;
        while at > 0 && entry < self.get(at - 1) {
            if self.len - at == most {
                return false;
            }
            at -= 1;
        }
        for to in (at..self.len).rev() {
            self.set(to + 1, self.get(to));
        }
        self.set(at, entry);
        self.len += 1;
        true
    }

    /// Puts an entry in the place of the one with the index, if it belongs between its neighbours.
    #[inline]
    pub(super) fn replace(&mut self, at: usize, entry: Entry) -> Option<Entry> {
        let fits = (at == 0 || self.get(at - 1) < entry) && (at + 1 == self.len || entry < self.get(at + 1));
        let old = self.get(at);
        if fits {
            self.set(at, entry);
        }
        fits.then_some(old)
    }

    /// Where the entry of a slot is. The largest are looked at first.
    pub(super) fn find(&self, slot: u32) -> Option<usize> {
        (0..self.len).rev().find(|&at| self.get(at).slot() == slot)
    }

    /// Takes out the entry with the index, which moves those on the shorter side.
    #[inline]
    pub(super) fn remove(&mut self, at: usize) -> Entry {
        let entry = self.get(at);
        if at < self.len / 2 {
            for to in (0..at).rev() {
                self.set(to + 1, self.get(to));
            }
            self.head = self.place(1);
        } else {
            for to in at..self.len - 1 {
                self.set(to, self.get(to + 1));
            }
        }
        self.len -= 1;
        entry
    }

    /// All entries, smallest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = Entry> + '_ {
        (0..self.len).map(|at| self.get(at))
    }

    /// Panics unless the entries ascend.
    pub(super) fn check_invariants(&self) {
        assert!(self.len <= TAIL, "no more entries than places");
        assert!((1..self.len).all(|at| self.get(at - 1) < self.get(at)), "the tail ascends");
    }
}
