//! The heap's operations, each a few lines around a sift.

use super::{
    Entry, Positions, Segment,
    best::{self, Best},
    side::{Max, Min},
    storage::{Place, Storage},
};

/// A double-ended priority queue over [`Entry`]: both the smallest and the largest are at hand.
///
/// Not synchronised: methods that change it take `&mut self` and are meant to run under a shard's spinlock. None of
/// them allocates, blocks, or runs user code. With n entries:
///
/// | method | time |
/// |---|---|
/// | [`peek_min`](Self::peek_min), [`peek_max`](Self::peek_max), [`len`](Self::len), [`capacity`](Self::capacity), [`get`](Self::get) | O(1) |
/// | [`push`](Self::push), [`pop_min`](Self::pop_min), [`pop_max`](Self::pop_max), [`remove`](Self::remove), [`replace`](Self::replace), [`replace_min`](Self::replace_min) | O(log n), some `log2 n` moves at most |
/// | [`add_segment`](Self::add_segment) | O(1) |
/// | [`best`](Self::best) | O(1): at most 8 entries visited, some 50 looked at |
/// | [`iter`](Self::iter), [`check_invariants`](Self::check_invariants) | O(n), not for use under a lock |
///
/// # Panics
///
/// [`remove`](Self::remove), [`replace`](Self::replace) and [`get`](Self::get) panic if the position is not in
/// `1..=len`, before anything is changed. If [`Positions::set`] panics, one entry is lost and another is there twice.
pub struct MinMaxHeap {
    pub(super) storage: Storage,
}

impl MinMaxHeap {
    /// An empty heap without room: see [`MinMaxHeap::add_segment`].
    pub const fn new() -> Self {
        MinMaxHeap { storage: Storage::new() }
    }

    /// Entries held.
    #[inline]
    pub fn len(&self) -> usize {
        self.storage.len() as usize
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.storage.len() == 0
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
        self.storage.place(1).map(|root| self.storage.get(root))
    }

    /// The largest entry.
    #[inline]
    pub fn peek_max(&self) -> Option<Entry> {
        self.max_place().map(|place| self.storage.get(place))
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
        let Some(end) = self.storage.extend() else { return Err(entry) };
        self.settle_leaf(end, entry, positions);
        Ok(())
    }

    /// Takes the smallest entry out.
    #[inline]
    pub fn pop_min(&mut self, positions: &mut impl Positions) -> Option<Entry> {
        let root = self.storage.place(1)?;
        let min = self.storage.get(root);
        if let Some(last) = self.take_last_but(root) {
            self.descend::<Min, _>(root, last, positions);
        }
        Some(min)
    }

    /// Takes the largest entry out.
    #[inline]
    pub fn pop_max(&mut self, positions: &mut impl Positions) -> Option<Entry> {
        let place = self.max_place()?;
        let max = self.storage.get(place);
        if let Some(last) = self.take_last_but(place) {
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
        if let Some(last) = self.take_last_but(place) {
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
        let root = self.storage.place(1)?;
        let min = self.storage.get(root);
        self.descend::<Min, _>(root, entry, positions);
        Some(min)
    }

    /// The smallest entries in order, [`Best::MAX`] at most.
    pub fn best(&self) -> Best {
        best::walk(self)
    }

    /// All entries, in the order of their positions.
    pub fn iter(&self) -> impl Iterator<Item = Entry> + '_ {
        self.places().map(|place| self.storage.get(place))
    }

    /// Panics unless every entry is in order with its parent and its grandparent.
    pub fn check_invariants(&self) {
        assert!(self.len() <= self.capacity(), "more entries than room");
        assert_eq!(self.places().count(), self.len());
        for place in self.places() {
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

    fn places(&self) -> impl Iterator<Item = Place> + '_ {
        (1..=self.storage.len()).map_while(|position| self.storage.place(position))
    }

    /// Where the largest entry is: the root if alone, else the larger child of the root.
    #[inline]
    fn max_place(&self) -> Option<Place> {
        let (Some(left), right) = (self.storage.place(2), self.storage.place(3)) else {
            return self.storage.place(1);
        };
        right.filter(|&right| self.storage.get(right) > self.storage.get(left)).or(Some(left))
    }

    /// Shortens the heap by its last entry, to be put where there is a hole; `None` if the hole was at the end.
    #[inline]
    fn take_last_but(&mut self, hole: Place) -> Option<Entry> {
        self.storage.take_last().filter(|_| hole.position() <= self.storage.len())
    }

    /// Panics if there is no entry at `position`.
    #[inline]
    #[track_caller]
    fn place(&self, position: u32) -> Place {
        let Some(place) = self.storage.place(position) else { panic!("no entry at position {position}") };
        place
    }
}

impl Default for MinMaxHeap {
    fn default() -> Self {
        Self::new()
    }
}
