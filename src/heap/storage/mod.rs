//! Room for entries that grows without moving any of them.
//!
//! # Layout
//!
//! Positions start at 1, as in the textbook heap: the children of `p` are `2p` and `2p + 1`, its grandchildren
//! `4p ..= 4p + 3`. Segment 0 has room for positions below 32 (position 0 is never used), every further segment for
//! exactly one level of the tree, so each is as long as all before it together:
//!
//! ```text
//! segment    0       1        2         3       ...   19
//! positions  0..32   32..64   64..128   128..256      2^23..2^24
//! ```
//!
//! Entries are stored four to a cache line, and the four grandchildren of a position start at a multiple of four: **a
//! step of two levels reads one line.** There is one pointer per level, moved back by the position that the level
//! begins with, so that an entry is at `pointer + position` on each. A [`Place`] is a position with its level.
//!
//! # Growth
//!
//! A segment is allocated and written to by whoever needs it, outside the lock ([`Segment::new`]); linking it in
//! writes one pointer (five for the first). Nothing is copied, ever, and room is never taken away.
//!
//! # Why `unsafe`
//!
//! With segments as slices, each access chooses a segment, subtracts its start and compares twice; measured at 1,250
//! entries, that makes a pop and push a third slower.

#![allow(unsafe_code)]

use std::ptr;

mod place;

use super::Entry;
use place::LIMIT;
pub(super) use place::Place;

/// The length of segment 0; any power of two from four on serves. Small in models, so that they cross a boundary.
const FIRST: u32 = if cfg!(any(loom, shuttle)) { 4 } else { 32 };

/// Where prefetching begins. The levels above are 32 KiB together and stay cached by themselves; there it would cost 3 %
/// to 5 % of a pop and push.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const COLD_LEVEL: u32 = 11;

/// Four entries, as many as a cache line holds: the grandchildren of one position.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
// Read through `place`'s pointers only, which the lint does not see.
#[allow(dead_code)]
pub(super) struct Line(pub(super) [Entry; 4]);

const _: () = assert!(size_of::<Line>() == 64 && FIRST >= 4);

/// Room for entries, made outside the lock and handed to [`MinMaxHeap::add_segment`](super::MinMaxHeap::add_segment).
pub struct Segment(Box<[Line]>);

impl Segment {
    /// Room for `len` entries, as told by [`MinMaxHeap::next_segment_len`](super::MinMaxHeap::next_segment_len).
    ///
    /// Allocates and writes all of it, so that no page is touched for the first time under the lock: O(`len`).
    #[cold]
    pub fn new(len: usize) -> Self {
        Segment(vec![Line::default(); len.div_ceil(4)].into_boxed_slice())
    }

    /// Entries that there is room for.
    #[inline]
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.0.len() * 4
    }
}

/// The segments in use, and how to get from a place to its entry.
pub(super) struct Storage {
    /// For each level in use, where the entry at position 0 would be if the level began there.
    levels: [*mut Entry; LIMIT.ilog2() as usize],
    /// Positions below have room: 0, or a power of two from `FIRST` to `LIMIT`.
    limit: u32,
    /// Entries are at positions `1..=len`; below `limit`, or 0.
    len: u32,
}

// SAFETY: the pointers are to memory that the storage owns alone, as a box does; entries are plain numbers.
unsafe impl Send for Storage {}
// SAFETY: as above, and through `&Storage` entries are only read.
unsafe impl Sync for Storage {}

impl Storage {
    pub(super) const fn new() -> Self {
        Storage { levels: [ptr::null_mut(); LIMIT.ilog2() as usize], limit: 0, len: 0 }
    }

    /// The number of positions that have room, not counting the unused position 0.
    #[inline]
    pub(super) fn capacity(&self) -> u32 {
        self.limit.saturating_sub(1)
    }

    /// The length that the next segment must have; `None` if there can be no further one.
    #[inline]
    pub(super) fn next_len(&self) -> Option<usize> {
        match self.limit {
            0 => Some(FIRST as usize),
            LIMIT => None,
            limit => Some(limit as usize),
        }
    }

    pub(super) fn add(&mut self, segment: Segment) -> Result<(), Segment> {
        if self.next_len() != Some(segment.len()) {
            return Err(segment);
        }
        // Segment 0 holds the first levels, each further one a level that begins at the old limit.
        let first = self.limit;
        let levels = if first == 0 { 0..FIRST.ilog2() } else { first.ilog2()..first.ilog2() + 1 };
        let origin = Box::into_raw(segment.0).cast::<Entry>().wrapping_sub(first as usize);
        self.levels[levels.start as usize..levels.end as usize].fill(origin);
        self.limit = if first == 0 { FIRST } else { first * 2 };
        Ok(())
    }

    /// Entries held.
    #[inline]
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// Makes place for an entry at the end; `None` if there is no room.
    #[inline]
    pub(super) fn extend(&mut self) -> Option<Place> {
        if self.len >= self.capacity() {
            return None;
        }
        self.len += 1;
        Some(Place::new(self.len))
    }

    /// Takes the last entry off the end.
    #[inline]
    pub(super) fn take_last(&mut self) -> Option<Entry> {
        let last = self.place(self.len)?;
        self.len -= 1;
        Some(self.get(last))
    }

    /// The place of the entry at `position`, if there is one.
    #[inline]
    pub(super) fn place(&self, position: u32) -> Option<Place> {
        (position.wrapping_sub(1) < self.len).then(|| Place::new(position))
    }

    /// The child with `index` 0 or 1, if there is one.
    #[inline]
    pub(super) fn child(&self, place: Place, index: u32) -> Option<Place> {
        Some(place.child(index)).filter(|child| child.position() <= self.len)
    }

    /// The grandchild with `index` 0 to 3, if there is one.
    #[inline]
    pub(super) fn grandchild(&self, place: Place, index: u32) -> Option<Place> {
        Some(place.grandchild(index)).filter(|grandchild| grandchild.position() <= self.len)
    }

    /// The first grandchild, if all four are there.
    #[inline]
    pub(super) fn grandchildren(&self, place: Place) -> Option<Place> {
        self.grandchild(place, 3).map(|last| last.in_line(0))
    }

    /// A pointer to the entry at `place`.
    ///
    /// Valid for reads and writes of the whole line that the entry is in: the position is below the limit, or was
    /// when the limit was lower (rules 2 and 3 of [`Place`]), so its level has a pointer (rule 1; the levels of
    /// positions 0 to 3 share one), and the segment consists of whole lines.
    #[inline]
    fn at(&self, place: Place) -> *mut Entry {
        debug_assert!(place.position() < self.limit, "rule 2");
        self.levels[place.level() as usize].wrapping_add(place.position() as usize)
    }

    /// Starts to load what can come after the line of `place`: the grandchildren of all four in it, 256 bytes in a row.
    ///
    /// Which of the four it will be is known only after two comparisons that wait for memory themselves. Where the
    /// processor has no such instruction in stable Rust, this does nothing.
    #[inline]
    pub(super) fn prefetch_below(&self, place: Place) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if let Some(first) = self.grandchild(place.in_line(0), 0).filter(|first| first.level() >= COLD_LEVEL)
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let line = self.at(first).cast::<Line>();
            for index in 0..4 {
                // SAFETY: a hint; it reads nothing that the program could see, whatever the address.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(line.wrapping_add(index).cast()) };
            }
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        let _ = place;
    }

    /// The entry at `place`.
    #[inline]
    pub(super) fn get(&self, place: Place) -> Entry {
        // SAFETY: as `at` says, the pointer is valid; writes need `&mut self`.
        unsafe { *self.at(place) }
    }

    /// Overwrites the entry at `place`.
    #[inline]
    pub(super) fn set(&mut self, place: Place, entry: Entry) {
        // SAFETY: as `at` says, the pointer is valid; `&mut self` excludes all others.
        unsafe { *self.at(place) = entry }
    }

    /// The four entries that share their grandparent with the one at `place`.
    #[inline]
    pub(super) fn line(&self, place: Place) -> &[Entry; 4] {
        // SAFETY: as `at` says, the line is valid from its first entry on; writes need `&mut self`.
        unsafe { &*self.at(place.in_line(0)).cast::<[Entry; 4]>() }
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        let mut first = 0;
        while first < self.limit {
            let (level, len) = if first == 0 { (0, FIRST) } else { (first.ilog2(), first) };
            let lines = self.levels[level as usize].wrapping_add(first as usize).cast::<Line>();
            // SAFETY: `add` took this pointer from a box of as many lines, and nothing else frees it.
            drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(lines, len as usize / 4)) });
            first += len;
        }
    }
}
