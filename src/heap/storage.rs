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
//! The segment of a position follows from its highest set bit. Entries are stored four to a cache line, and the four
//! grandchildren of a position start at a multiple of four: **a step of two levels reads one line.**
//!
//! # Growth
//!
//! A segment is allocated and written to by whoever needs it, outside the lock ([`Segment::new`]); linking it in is
//! one move of two words. Nothing is copied, ever.

use super::Entry;

/// The length of segment 0; any power of two from four on serves. Small in models, so that they cross a boundary.
const FIRST: u32 = if cfg!(any(loom, shuttle)) { 4 } else { 32 };

/// Segments at most, for positions below 2^24.
const SEGMENTS: usize = (25 - FIRST.ilog2()) as usize;

/// Four entries, as many as a cache line holds: the grandchildren of one position.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
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

/// The segments in use, and the arithmetic that finds a position in them.
pub(super) struct Storage {
    segments: [Segment; SEGMENTS],
    count: usize,
}

impl Storage {
    pub(super) fn new() -> Self {
        Storage { segments: std::array::from_fn(|_| Segment(Box::default())), count: 0 }
    }

    /// The number of positions that have room, not counting the unused position 0.
    #[inline]
    pub(super) fn capacity(&self) -> u32 {
        if self.count == 0 { 0 } else { (FIRST << (self.count - 1)) - 1 }
    }

    /// The length that the next segment must have; `None` if there can be no further one.
    pub(super) fn next_len(&self) -> Option<usize> {
        match self.count {
            0 => Some(FIRST as usize),
            SEGMENTS.. => None,
            count => Some((FIRST as usize) << (count - 1)),
        }
    }

    pub(super) fn add(&mut self, segment: Segment) -> Result<(), Segment> {
        if self.next_len() != Some(segment.len()) {
            return Err(segment);
        }
        self.segments[self.count] = segment;
        self.count += 1;
        Ok(())
    }

    /// Which segment, and where in it.
    #[inline]
    fn locate(position: u32) -> (usize, usize) {
        let level = (position | (FIRST - 1)).ilog2();
        // The highest bit selects the segment; in segment 0 it is part of the offset.
        let base = (1 << level) & !(FIRST - 1);
        ((level - (FIRST.ilog2() - 1)) as usize, (position ^ base) as usize)
    }

    /// The four entries whose positions share all but the low two bits with `position`.
    #[inline]
    pub(super) fn line(&self, position: u32) -> &[Entry; 4] {
        let (segment, offset) = Self::locate(position);
        &self.segments[segment].0[offset / 4].0
    }

    #[inline]
    pub(super) fn get(&self, position: u32) -> Entry {
        self.line(position)[position as usize % 4]
    }

    #[inline]
    pub(super) fn set(&mut self, position: u32, entry: Entry) {
        let (segment, offset) = Self::locate(position);
        self.segments[segment].0[offset / 4].0[position as usize % 4] = entry;
    }
}
