//! One table: a header and its slots.

#![allow(unsafe_code)]

use super::budget::Budget;
use crate::sync::{
    CachePadded,
    atomic::{AtomicPtr, AtomicU64, Ordering},
    count::AtomicUsize,
};

/// Slots that a writer moves for each visit to a table that is being left.
///
/// Only progress depends on it: a chunk may be of any size, as each slot moves by itself.
pub(super) const CHUNK: usize = if cfg!(any(loom, shuttle)) { 1 } else { 64 };

/// The most slots that one table can have; its counts are 32 bits wide.
pub(super) const MAX_SLOTS: usize = 1 << 31;

/// A table of the map. The first fields are read by everybody and written at most once.
pub(super) struct Table<T> {
    slots: Slots<T>,
    /// How far a mixed hash is shifted to give its home slot.
    shift: u32,
    /// The table to which the items of this one are moving, or null.
    pub(super) next: AtomicPtr<Table<T>>,
    /// Room that was kept for the items of the table before.
    pub(super) kept: usize,
    pub(super) budget: Budget,
    /// The next chunk to be moved.
    claimed: CachePadded<AtomicUsize>,
    /// Chunks moved in the upper half, items found in them in the lower.
    moved: CachePadded<AtomicU64>,
    /// Loom reports an `Arc` that is never dropped, and so a table.
    #[cfg(loom)]
    _leak: crate::sync::Arc<()>,
}

impl<T> Table<T> {
    /// An empty table with a power of two of slots, at least 2, that keeps room for `kept` copies.
    pub(super) fn new(slots: usize, kept: usize) -> Box<Self> {
        assert!(slots <= MAX_SLOTS, "a map has at most 2^31 slots");
        debug_assert!(slots.is_power_of_two() && slots >= 2);
        Box::new(Table {
            slots: Slots::new(slots),
            shift: u64::BITS - slots.trailing_zeros(),
            next: AtomicPtr::new(std::ptr::null_mut()),
            kept,
            budget: Budget::new(slots, kept),
            claimed: CachePadded::new(AtomicUsize::new(0)),
            moved: CachePadded::new(AtomicU64::new(0)),
            #[cfg(loom)]
            _leak: crate::sync::Arc::new(()),
        })
    }

    /// The number of slots.
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The slot at which the chain of a mixed hash begins. The leading bits, so that tables of all sizes have their
    /// items in about the same order, which iteration lives on.
    #[inline(always)]
    pub(super) fn home(&self, hash: u64) -> usize {
        (hash >> self.shift) as usize
    }

    /// The last mixed hash that shares its home with `hash`.
    pub(super) fn last_of_home(&self, hash: u64) -> u64 {
        hash | ((1 << self.shift) - 1)
    }

    /// The slot after `index`, round the end.
    #[inline(always)]
    pub(super) fn after(&self, index: usize) -> usize {
        (index + 1) & (self.len() - 1)
    }

    /// A slot; `index` counts modulo the number of slots.
    #[inline(always)]
    pub(super) fn slot(&self, index: usize) -> &AtomicPtr<T> {
        self.slots.get(index & (self.len() - 1))
    }

    fn chunks(&self) -> usize {
        self.len().div_ceil(CHUNK)
    }

    /// Takes charge of a chunk that nobody else has taken.
    pub(super) fn claim_chunk(&self) -> Option<std::ops::Range<usize>> {
        // Relaxed: who gets which chunk is all that is decided here. The look beforehand bounds the counter.
        if self.claimed.load(Ordering::Relaxed) >= self.chunks() {
            return None;
        }
        let chunk = self.claimed.fetch_add(1, Ordering::Relaxed);
        (chunk < self.chunks()).then(|| chunk * CHUNK..((chunk + 1) * CHUNK).min(self.len()))
    }

    /// Reports a claimed chunk as moved, with the number of its `MOVED` slots. Answers that number for the whole
    /// table if this was the last chunk.
    pub(super) fn chunk_moved(&self, items: usize) -> Option<usize> {
        let report = 1 << 32 | items as u64;
        // AcqRel: pairs with itself on the reports of the other chunks.
        // - ours completes the count: we see all slots as final and may replace the root;
        // - it does not: whoever completes it sees our slots as final.
        let reported = self.moved.fetch_add(report, Ordering::AcqRel) + report;
        (reported >> 32 == self.chunks() as u64).then_some((reported & u64::from(u32::MAX)) as usize)
    }

    /// Hands the table to a link.
    pub(super) fn into_link(self: Box<Self>) -> *mut Self {
        Box::into_raw(self)
    }
}

/// A power of two of slots, all `EMPTY` to begin with.
#[cfg(not(any(loom, shuttle)))]
struct Slots<T> {
    first: std::ptr::NonNull<AtomicPtr<T>>,
    mask: usize,
}

#[cfg(not(any(loom, shuttle)))]
mod slots {
    use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
    use std::ptr::NonNull;

    use super::{AtomicPtr, Slots};

    // SAFETY: a `Slots` owns its atomics, which may be used from any thread.
    unsafe impl<T> Send for Slots<T> {}
    // SAFETY: as above.
    unsafe impl<T> Sync for Slots<T> {}

    impl<T> Slots<T> {
        fn layout(slots: usize) -> Layout {
            // On a line of its own, so that a chain of up to eight slots from an aligned home is one cache miss.
            Layout::array::<AtomicPtr<T>>(slots)
                .and_then(|layout| layout.align_to(64))
                .expect("at most 2^31 slots")
        }

        /// Zeroed by the allocator: for a large table, page by page as they are touched, not here.
        pub(super) fn new(slots: usize) -> Self {
            assert!(slots > 0);
            let layout = Self::layout(slots);
            // SAFETY: the layout is not empty.
            let memory = unsafe { alloc_zeroed(layout) };
            // A zeroed `AtomicPtr` is null, which is `EMPTY`.
            let Some(first) = NonNull::new(memory.cast()) else { handle_alloc_error(layout) };
            Slots { first, mask: slots - 1 }
        }

        #[inline(always)]
        pub(super) fn len(&self) -> usize {
            self.mask + 1
        }

        #[inline(always)]
        pub(super) fn get(&self, index: usize) -> &AtomicPtr<T> {
            debug_assert!(index <= self.mask);
            // SAFETY: `Table::slot`, the only caller, keeps the index below `len`; the memory lives as long as `self`.
            unsafe { self.first.add(index).as_ref() }
        }
    }

    impl<T> Drop for Slots<T> {
        fn drop(&mut self) {
            // SAFETY: allocated in `new` with this layout; atomics need no drop.
            unsafe { dealloc(self.first.as_ptr().cast(), Self::layout(self.mask + 1)) }
        }
    }
}

/// A model's atomics cannot be zeroed memory.
#[cfg(any(loom, shuttle))]
mod model {
    use super::AtomicPtr;

    pub(super) struct Slots<T>(Box<[AtomicPtr<T>]>);

    impl<T> Slots<T> {
        pub(super) fn new(slots: usize) -> Self {
            Slots((0..slots).map(|_| AtomicPtr::new(std::ptr::null_mut())).collect())
        }

        pub(super) fn len(&self) -> usize {
            self.0.len()
        }

        pub(super) fn get(&self, index: usize) -> &AtomicPtr<T> {
            &self.0[index]
        }
    }
}

#[cfg(any(loom, shuttle))]
use model::Slots;

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn the_last_hash_of_a_home_is_the_last_one() {
        for slots in [2usize, 4, 64, 1 << 12] {
            let table = Table::<u64>::new(slots, 0);
            for hash in [0, 1, 1 << 63, u64::MAX / 3, u64::MAX - 1, u64::MAX] {
                let last = table.last_of_home(hash);
                assert!(last >= hash && table.home(last) == table.home(hash));
                assert!(last == u64::MAX || table.home(last + 1) == table.home(hash) + 1);
            }
        }
    }

    #[test]
    fn each_slot_is_in_one_chunk_and_the_last_report_knows_the_sum() {
        for slots in [2, CHUNK, 2 * CHUNK, 16 * CHUNK] {
            let table = Table::<u64>::new(slots, 0);
            let chunks: Vec<_> = std::iter::from_fn(|| table.claim_chunk()).collect();
            assert!(chunks.iter().cloned().flatten().eq(0..slots), "{chunks:?}");
            assert!(table.claim_chunk().is_none(), "all are taken");
            let reports: Vec<_> = chunks.iter().map(|chunk| table.chunk_moved(chunk.len())).collect();
            let (last, before) = reports.split_last().expect("one chunk at least");
            assert!(before.iter().all(Option::is_none), "others are still at it");
            assert_eq!(*last, Some(slots));
        }
    }
}
