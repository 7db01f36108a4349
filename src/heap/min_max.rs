//! The heap's operations, each a few lines around a sift.

use super::{
    Entry, Positions, Segment,
    best::{self, Best},
    place::Place,
    side::{Max, Min},
    storage::Storage,
};

/// A double-ended priority queue over [`Entry`]: both the smallest and the largest are at hand.
///
/// Not synchronised: methods that change it take `&mut self` and are meant to run under a shard's spinlock. None of
/// them allocates, blocks or runs user code. With n entries:
///
/// | method | time |
/// |---|---|
/// | [`peek_min`](Self::peek_min), [`peek_max`](Self::peek_max), [`len`](Self::len), [`capacity`](Self::capacity), [`get`](Self::get) | O(1) |
/// | [`push`](Self::push), [`pop_min`](Self::pop_min), [`pop_max`](Self::pop_max), [`remove`](Self::remove), [`replace`](Self::replace), [`replace_min`](Self::replace_min) | O(log n), at most `log2 n` moves |
/// | [`add_segment`](Self::add_segment) | O(1) |
/// | [`best`](Self::best) | O(1): at most 8 entries visited, some 40 looked at |
/// | [`iter`](Self::iter), [`check_invariants`](Self::check_invariants) | O(n), not for use under a lock |
///
/// # Panics
///
/// [`remove`](Self::remove), [`replace`](Self::replace) and [`get`](Self::get) panic if the position is not in
/// `1..=len`, before anything is changed. If [`Positions::set`] panics, one entry is lost and another is there twice.
pub struct MinMaxHeap {
    /// Entries are at positions `1..=len`.
    pub(super) len: u32,
    pub(super) storage: Storage,
}

impl MinMaxHeap {
    /// An empty heap without room: see [`MinMaxHeap::add_segment`].
    pub const fn new() -> Self {
        MinMaxHeap { len: 0, storage: Storage::new() }
    }

    /// Entries held.
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Entries that there is room for.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.storage.capacity() as usize
    }

    /// The length of the segment that [`MinMaxHeap::add_segment`] will take next; `None` if the heap can grow no
    /// further, at 2^24 - 1 entries.
    #[inline]
    pub fn next_segment_len(&self) -> Option<usize> {
        self.storage.next_len()
    }

    /// Adds room, by about as much as there is.
    ///
    /// Read [`MinMaxHeap::next_segment_len`] under the lock, let go of it, make the [`Segment`], and come back.
    ///
    /// # Errors
    ///
    /// Gives the segment back if it does not have the length that is due: somebody else has added one meanwhile. Let
    /// go of the lock before dropping it.
    pub fn add_segment(&mut self, segment: Segment) -> Result<(), Segment> {
        self.storage.add(segment)
    }

    /// The smallest entry.
    #[inline]
    pub fn peek_min(&self) -> Option<Entry> {
        (self.len > 0).then(|| self.storage.get(Place::ROOT))
    }

    /// The largest entry.
    #[inline]
    pub fn peek_max(&self) -> Option<Entry> {
        (self.len > 0).then(|| self.storage.get(self.max_place()))
    }

    /// The entry at `position`.
    #[inline]
    #[track_caller]
    pub fn get(&self, position: u32) -> Entry {
        self.storage.get(self.place(position))
    }

    /// Adds an entry.
    ///
    /// # Errors
    ///
    /// Gives the entry back if there is no room.
    #[inline]
    pub fn push(&mut self, entry: Entry, positions: &mut impl Positions) -> Result<(), Entry> {
        if self.len == self.storage.capacity() {
            return Err(entry);
        }
        self.len += 1;
        self.settle_leaf(Place::of(self.len), entry, positions);
        Ok(())
    }

    /// Takes the smallest entry out.
    #[inline]
    pub fn pop_min(&mut self, positions: &mut impl Positions) -> Option<Entry> {
        let min = self.peek_min()?;
        let last = self.take_last();
        if self.len > 0 {
            self.descend::<Min, _>(Place::ROOT, last, positions);
        }
        Some(min)
    }

    /// Takes the largest entry out.
    #[inline]
    pub fn pop_max(&mut self, positions: &mut impl Positions) -> Option<Entry> {
        if self.len < 2 {
            return self.pop_min(positions);
        }
        let place = self.max_place();
        let max = self.storage.get(place);
        let last = self.take_last();
        if place.position() <= self.len {
            self.descend::<Max, _>(place, last, positions);
        }
        Some(max)
    }

    /// Takes the entry at `position` out.
    #[inline]
    #[track_caller]
    pub fn remove(&mut self, position: u32, positions: &mut impl Positions) -> Entry {
        let place = self.place(position);
        let entry = self.storage.get(place);
        let last = self.take_last();
        if position <= self.len {
            self.settle(place, last, positions);
        }
        entry
    }

    /// Puts `entry` in the place of the one at `position`, which is returned, and restores the order.
    #[inline]
    #[track_caller]
    pub fn replace(&mut self, position: u32, entry: Entry, positions: &mut impl Positions) -> Entry {
        let place = self.place(position);
        let old = self.storage.get(place);
        self.settle(place, entry, positions);
        old
    }

    /// Takes the smallest entry out and puts `entry` in, in one sift.
    ///
    /// The smallest is chosen before `entry` goes in. On an empty heap the answer is `None` and `entry` is *not* put
    /// in.
    #[inline]
    pub fn replace_min(&mut self, entry: Entry, positions: &mut impl Positions) -> Option<Entry> {
        let min = self.peek_min()?;
        self.descend::<Min, _>(Place::ROOT, entry, positions);
        Some(min)
    }

    /// The smallest entries in order, [`Best::MAX`] at most.
    pub fn best(&self) -> Best {
        best::walk(self)
    }

    /// All entries, in the order of their positions.
    pub fn iter(&self) -> impl Iterator<Item = Entry> + '_ {
        (1..=self.len).map(|position| self.storage.get(Place::of(position)))
    }

    /// Panics unless every entry is in order with its parent and its grandparent.
    pub fn check_invariants(&self) {
        assert!(self.len <= self.storage.capacity(), "more entries than room");
        for place in (1..=self.len).map(Place::of) {
            let entry = self.storage.get(place);
            let check = |above: Option<Place>, is_upper: bool| {
                let Some(above) = above else { return };
                let bound = self.storage.get(above);
                let in_order = if is_upper { entry <= bound } else { entry >= bound };
                assert!(in_order, "{entry:?} at {place:?} is out of order with {bound:?} at {above:?}");
            };
            check(place.parent(), place.is_min());
            check(place.grandparent(), !place.is_min());
        }
    }

    /// Where the largest entry is, if there is any: the root if alone, else the larger child of the root.
    #[inline]
    fn max_place(&self) -> Place {
        match self.len {
            0..=1 => Place::ROOT,
            2 => Place::LEFT,
            _ if self.storage.get(Place::RIGHT) > self.storage.get(Place::LEFT) => Place::RIGHT,
            _ => Place::LEFT,
        }
    }

    /// Shortens the heap by its last entry. There must be one.
    #[inline]
    fn take_last(&mut self) -> Entry {
        let last = self.storage.get(Place::of(self.len));
        self.len -= 1;
        last
    }

    /// Panics if there is no entry at `position`.
    #[inline]
    #[track_caller]
    fn place(&self, position: u32) -> Place {
        assert!(position.wrapping_sub(1) < self.len, "no entry at position {position}");
        Place::of(position)
    }
}

impl Default for MinMaxHeap {
    fn default() -> Self {
        Self::new()
    }
}
