//! The buckets: cells that never move, in segments of powers of two behind a small directory.
//!
//! A hash is spread, and its spread's trailing bits are the index of its bucket. The *order* of the list is that of the
//! spreads read backwards, so that the buckets of any number come one after the other, and twice as many cut each in two.

#![allow(unsafe_code)]

use super::link::{self, Cell};
use crate::sync::{
    CachePadded,
    atomic::{AtomicPtr, AtomicU64, Ordering},
    count::AtomicUsize,
};

/// The first segment and one for each doubling. Fewer in a model, where each is an object to watch; a map that has them all
/// grows no more.
const SEGMENTS: usize = if cfg!(any(loom, shuttle)) { 8 } else { 32 };
/// The most buckets.
pub(super) const MAX_BUCKETS: usize = 1 << (SEGMENTS - 1);

/// In the level: the buckets are being doubled.
const GROWING: u64 = 1 << 32;

/// How many buckets there are, and whether they are being doubled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Level(u64);

impl Level {
    #[inline(always)]
    pub(super) fn len(self) -> usize {
        self.0 as u32 as usize + 1
    }

    #[inline(always)]
    pub(super) fn is_growing(self) -> bool {
        self.0 & GROWING != 0
    }

    /// The bucket of a spread hash.
    #[inline(always)]
    pub(super) fn index(self, spread: u64) -> usize {
        (spread as u32 & self.0 as u32) as usize
    }
}

/// The multiplication by an odd number spreads a hash over the leading bits, which makes a weak hasher usable; they are
/// brought to the other end, where buckets are counted. One-to-one.
#[inline(always)]
pub(super) fn spread(hash: u64) -> u64 {
    hash.wrapping_mul(0x9e37_79b9_7f4a_7c15).swap_bytes()
}

/// Whether a spread hash is behind another in the list, which is sorted by the spreads read backwards. That of a bucket is its
/// index.
#[inline(always)]
pub(super) fn is_behind(spread: u64, other: u64) -> bool {
    // The last bit in which they differ decides.
    let differ = spread ^ other;
    spread & differ & differ.wrapping_neg() != 0
}

/// All buckets of a map.
pub(super) struct Buckets<T> {
    /// Read by everybody and rarely written, so on a line apart.
    head: CachePadded<Head<T>>,
    growth: CachePadded<Growth>,
    /// The map owns its cells.
    #[cfg(loom)]
    _leak: crate::sync::Arc<()>,
}

struct Head<T> {
    level: AtomicU64,
    /// The first segment has 2 to this power of cells.
    first_bits: u32,
    /// Where the cell of index 0 would be if each segment began there.
    origins: [AtomicPtr<Cell<T>>; SEGMENTS],
}

/// Both only ever grow, over all doublings: the numbers are those of cells.
struct Growth {
    claimed: AtomicUsize,
    linked: crate::sync::atomic::AtomicUsize,
}

impl<T> Buckets<T> {
    /// A power of two of buckets, all in the list.
    pub(super) fn new(len: usize) -> Self {
        debug_assert!(len.is_power_of_two() && len <= MAX_BUCKETS);
        let first = segment::allocate(len);
        let mut origins = [const { std::ptr::null_mut() }; SEGMENTS];
        origins[0] = first;
        let buckets = Buckets {
            head: CachePadded::new(Head {
                level: AtomicU64::new(len as u64 - 1),
                first_bits: len.trailing_zeros(),
                origins: origins.map(AtomicPtr::new),
            }),
            growth: CachePadded::new(Growth {
                claimed: AtomicUsize::new(len),
                linked: crate::sync::atomic::AtomicUsize::new(len),
            }),
            #[cfg(loom)]
            _leak: crate::sync::Arc::new(()),
        };
        buckets.string();
        buckets
    }

    /// Strings the first cells, of which nobody knows yet.
    fn string(&self) {
        let bits = self.head.first_bits;
        let mut next = link::end();
        for place in (0..1_u64 << bits).rev() {
            let index = if bits == 0 { 0 } else { place.reverse_bits() >> (u64::BITS - bits) };
            let cell = self.cell(index as usize);
            // Relaxed: whoever gives the map to another thread makes it visible.
            cell.store(next, Ordering::Relaxed);
            next = link::to_cell(cell);
        }
    }

    /// How many there are now.
    #[inline(always)]
    pub(super) fn level(&self) -> Level {
        // Acquire: pairs with the Release of `begin` and `complete`.
        // - it reads a level: the cells below its number are in the list, and the segments are there, that of the cells
        //   to come included;
        // - it reads an older one: its buckets stay in the list, too, and are only longer.
        Level(self.head.level.load(Ordering::Acquire))
    }

    /// A cell below the number of some level that the caller has read, or one that it has claimed.
    #[inline(always)]
    pub(super) fn cell(&self, index: usize) -> &Cell<T> {
        let segment = ((index >> self.head.first_bits << 1) | 1).ilog2() as usize;
        // Relaxed: the level, which was read by Acquire, came after it.
        let origin = self.head.origins[segment & (SEGMENTS - 1)].load(Ordering::Relaxed);
        // SAFETY: the segment of such a cell was published before the level (see `begin`), and lives as long as `self`.
        unsafe { &*origin.wrapping_add(index) }
    }

    fn segment_start(&self, segment: usize) -> usize {
        if segment == 0 { 0 } else { 1 << (self.head.first_bits as usize + segment - 1) }
    }

    fn segment_len(&self, segment: usize) -> usize {
        1 << (self.head.first_bits as usize + segment.saturating_sub(1))
    }

    /// The index of a cell that was met in the list.
    pub(super) fn index_of(&self, cell: *const Cell<T>) -> usize {
        for segment in (0..SEGMENTS).rev() {
            // Relaxed: who has met the cell comes after whoever has published its segment.
            let origin = self.head.origins[segment].load(Ordering::Relaxed);
            if origin.is_null() {
                continue;
            }
            let start = self.segment_start(segment);
            let first = origin.wrapping_add(start).addr();
            let index = cell.addr().wrapping_sub(first) / size_of::<Cell<T>>();
            if index < self.segment_len(segment) {
                return start + index;
            }
        }
        unreachable!("the list leads to cells of its own map only")
    }

    /// Follows a word that `is_cell`, other than the end.
    pub(super) fn follow(&self, word: *mut T) -> &Cell<T> {
        debug_assert!(link::is_cell(word) && !link::cell(word).is_null());
        // SAFETY: such words are made by `link::to_cell` from cells of this map, which live as long as `self`.
        unsafe { &*link::cell(word) }
    }

    /// Begins to double the buckets of a level, unless somebody else has.
    pub(super) fn begin(&self, level: Level) {
        let len = level.len();
        if level.is_growing() || len >= MAX_BUCKETS {
            return;
        }
        let origin = &self.head.origins[len.trailing_zeros() as usize - self.head.first_bits as usize + 1];
        // Acquire: pairs with the Release below.
        // - it reads a segment: its cells came before, and so before the level that we may be the one to publish;
        // - it does not: we bring one.
        if origin.load(Ordering::Acquire).is_null() {
            let fresh = segment::allocate::<T>(len);
            // Release, and Acquire on failure: as above, of somebody else's.
            let published = origin.compare_exchange(
                std::ptr::null_mut(),
                fresh.wrapping_sub(len),
                Ordering::Release,
                Ordering::Acquire,
            );
            if published.is_err() {
                // SAFETY: allocated above with this length, and known to nobody.
                unsafe { segment::free(fresh, len) };
            }
        }
        // Release: pairs with the Acquire of `level`; outcomes there. Relaxed on failure: it is not followed.
        let _ = self.head.level.compare_exchange(
            level.0,
            level.0 | GROWING,
            Ordering::Release,
            Ordering::Relaxed,
        );
    }

    /// Takes charge of some cells that the doubling of `level` is to link, and nobody else has taken.
    pub(super) fn claim(&self, level: Level) -> Option<std::ops::Range<usize>> {
        debug_assert!(level.is_growing());
        let end = 2 * level.len();
        // Relaxed: who gets which cells is all that is decided here.
        let mut start = self.growth.claimed.load(Ordering::Relaxed);
        while start < end {
            let next = end.min(start + CHUNK);
            match self.growth.claimed.compare_exchange_weak(start, next, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => return Some(start..next),
                Err(changed) => start = changed,
            }
        }
        None
    }

    /// Reports claimed cells as linked. The last report ends the doubling.
    pub(super) fn linked(&self, level: Level, cells: usize) {
        // AcqRel: pairs with itself on the reports of the others.
        // - ours completes the number: we see all cells linked, and may say so;
        // - it does not: whoever completes it sees ours.
        let linked = self.growth.linked.fetch_add(cells, Ordering::AcqRel) + cells;
        if linked == 2 * level.len() {
            // A store: nobody else changes the level while it is growing. Release: pairs with the Acquire of `level`.
            self.head.level.store(linked as u64 - 1, Ordering::Release);
        }
    }

    /// How many cells the doubling has still to give out.
    pub(super) fn unclaimed(&self, level: Level) -> usize {
        // Relaxed: a hint.
        (2 * level.len()).saturating_sub(self.growth.claimed.load(Ordering::Relaxed))
    }

    /// The number that it began with.
    pub(super) fn least(&self) -> usize {
        1 << self.head.first_bits
    }
}

impl<T> Drop for Buckets<T> {
    fn drop(&mut self) {
        for segment in 0..SEGMENTS {
            // Relaxed: nobody else is here.
            let origin = self.head.origins[segment].load(Ordering::Relaxed);
            if !origin.is_null() {
                let first = origin.wrapping_add(self.segment_start(segment));
                // SAFETY: allocated with this length in `new` or `begin`; nobody reads it any more.
                unsafe { segment::free(first, self.segment_len(segment)) };
            }
        }
    }
}

/// Cells that a thread takes charge of at a time. Only the length of a visit depends on it.
pub(super) const CHUNK: usize = if cfg!(any(loom, shuttle)) { 1 } else { 16 };

#[cfg(not(any(loom, shuttle)))]
mod segment {
    use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};

    use super::Cell;

    fn layout<T>(len: usize) -> Layout {
        Layout::array::<Cell<T>>(len).and_then(|layout| layout.align_to(64)).expect("at most 2^31 cells")
    }

    /// Zeroed by the allocator: for a large segment, page by page as they are touched, not here.
    pub(super) fn allocate<T>(len: usize) -> *mut Cell<T> {
        let layout = layout::<T>(len);
        // SAFETY: the layout is not empty. A zeroed `AtomicPtr` is a null one.
        let memory = unsafe { alloc_zeroed(layout) };
        if memory.is_null() {
            handle_alloc_error(layout)
        }
        memory.cast()
    }

    /// # Safety
    /// `first` came from `allocate` with the same length, and is given up here.
    pub(super) unsafe fn free<T>(first: *mut Cell<T>, len: usize) {
        // SAFETY: the caller's promise; atomics need no drop.
        unsafe { dealloc(first.cast(), layout::<T>(len)) }
    }
}

/// A model's atomics cannot be zeroed memory.
#[cfg(any(loom, shuttle))]
mod segment {
    use super::Cell;

    pub(super) fn allocate<T>(len: usize) -> *mut Cell<T> {
        let cells: Box<[Cell<T>]> = (0..len).map(|_| Cell::new(std::ptr::null_mut())).collect();
        Box::into_raw(cells).cast()
    }

    /// # Safety
    /// `first` came from `allocate` with the same length, and is given up here.
    pub(super) unsafe fn free<T>(first: *mut Cell<T>, len: usize) {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(first, len)) });
    }
}
