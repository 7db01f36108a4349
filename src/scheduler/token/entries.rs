//! Where a table's entries are: chunks that never move, each doubling the table, and a list of the free ones.

#![allow(unsafe_code)]

use std::{
    panic::Location,
    ptr::{self, NonNull},
};

use super::word::Word;
use crate::{
    node::{Node, Value},
    resource::Resource,
    sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering},
};

/// One entry. The fields beside the word belong to the lease that minted it; see `table` for who may read them when.
pub struct Entry<R: Resource> {
    word: AtomicU64,
    pub node: AtomicPtr<Node<R>>,
    pub value: AtomicPtr<Value<R>>,
    pub exclusive: AtomicU32,
    /// As [`Ticket::since`](super::Ticket).
    #[cfg(feature = "telemetry")]
    pub measured: AtomicU64,
    /// When it was lent, until when it may be held, and by whom it was asked for: if that is recorded.
    pub since: AtomicU64,
    pub deadline: AtomicU64,
    pub site: AtomicPtr<Location<'static>>,
    next: AtomicU32,
}

impl<R: Resource> Entry<R> {
    fn new() -> Self {
        Entry {
            word: AtomicU64::new(Word::FIRST.bits()),
            node: AtomicPtr::new(ptr::null_mut()),
            value: AtomicPtr::new(ptr::null_mut()),
            exclusive: AtomicU32::new(0),
            #[cfg(feature = "telemetry")]
            measured: AtomicU64::new(0),
            since: AtomicU64::new(0),
            deadline: AtomicU64::new(0),
            site: AtomicPtr::new(ptr::null_mut()),
            next: AtomicU32::new(NIL),
        }
    }

    pub fn load(&self, order: Ordering) -> Word {
        Word::from_bits(self.word.load(order))
    }

    /// For the owner of a free entry.
    pub fn store(&self, word: Word, order: Ordering) {
        self.word.store(word.bits(), order);
    }

    pub fn compare_exchange(&self, from: Word, to: Word, ok: Ordering, no: Ordering) -> Result<(), Word> {
        self.word.compare_exchange(from.bits(), to.bits(), ok, no).map(drop).map_err(Word::from_bits)
    }
}

const NIL: u32 = u32::MAX;
/// Length of the first chunk; each further one doubles the table. Small in models, so that they cross a boundary.
const FIRST: u32 = if cfg!(any(loom, shuttle)) { 2 } else { 64 };
const CHUNKS: usize = (32 - FIRST.ilog2()) as usize;

const fn locate(index: u32) -> (usize, usize) {
    let level = (index | (FIRST - 1)).ilog2();
    let chunk = level + 1 - FIRST.ilog2();
    let base = (1 << level) & !(FIRST - 1);
    (chunk as usize, (index ^ base) as usize)
}

const fn chunk_len(chunk: usize) -> usize {
    if chunk == 0 { FIRST as usize } else { (FIRST as usize) << (chunk - 1) }
}

/// All entries of one table.
pub struct Entries<R: Resource> {
    chunks: [AtomicPtr<Entry<R>>; CHUNKS],
    /// Indices that were ever given out.
    used: AtomicU32,
    /// Tag in the upper half, first free index in the lower.
    free: AtomicU64,
}

impl<R: Resource> Entries<R> {
    pub fn new() -> Self {
        Entries {
            chunks: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
            used: AtomicU32::new(0),
            free: AtomicU64::new(u64::from(NIL)),
        }
    }

    /// Every index that was given out before.
    pub fn used(&self) -> std::ops::Range<u32> {
        // Relaxed: an entry that is missed is one that was taken meanwhile; its chunk is found, or not, through `get`.
        0..self.used.load(Ordering::Relaxed)
    }

    pub fn get(&self, index: u32) -> Option<&Entry<R>> {
        let (chunk, offset) = locate(index);
        // Acquire: pairs with the Release of the CAS in `chunk_for`: a chunk that is seen is completely written.
        let entries = self.chunks.get(chunk)?.load(Ordering::Acquire);
        // SAFETY: a chunk, once installed, has `chunk_len(chunk)` entries and stays until the table is dropped; `locate`
        // answers offsets below that.
        (!entries.is_null()).then(|| unsafe { &*entries.add(offset) })
    }

    /// Makes sure that the chunk of `index` is there.
    fn chunk_for(&self, index: u32) {
        let (chunk, _) = locate(index);
        let cell = &self.chunks[chunk];
        // Relaxed: `get`, which follows it, loads it again.
        if !cell.load(Ordering::Relaxed).is_null() {
            return;
        }
        let entries: Box<[Entry<R>]> = (0..chunk_len(chunk)).map(|_| Entry::new()).collect();
        let entries = Box::into_raw(entries).cast::<Entry<R>>();
        // Release: pairs with the Acquire in `get`. Failure Relaxed: the winner's chunk is found through `get`.
        if cell.compare_exchange(ptr::null_mut(), entries, Ordering::Release, Ordering::Relaxed).is_err() {
            // SAFETY: ours was not installed, so this is the only owner.
            drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(entries, chunk_len(chunk))) });
        }
    }

    /// M1: an entry for the caller alone.
    pub fn take(&self) -> (u32, &Entry<R>) {
        let slot = self.pop_free().unwrap_or_else(|| {
            // Relaxed: the number alone is taken; the chunk is found or made below.
            let slot = self.used.fetch_add(1, Ordering::Relaxed);
            assert!(slot < NIL, "fewer than 2^32 tokens are out at once");
            self.chunk_for(slot);
            slot
        });
        (slot, self.get(slot).expect("its chunk is there"))
    }

    fn pop_free(&self) -> Option<u32> {
        // Acquire: pairs with the Release of R4.
        // - it reads R4's head: the entry's `next` and R3's loads are behind us;
        // - it reads an older head: the tag makes the CAS fail.
        let mut head = self.free.load(Ordering::Acquire);
        loop {
            let index = head as u32;
            if index == NIL {
                return None;
            }
            let next = self.get(index)?.next.load(Ordering::Relaxed);
            let new = (head >> 32).wrapping_add(1) << 32 | u64::from(next);
            // Relaxed: by its tag it is the very head that was loaded, and a read-modify-write passes on what pushes have
            // published. On failure Acquire, as above: that head is the next to be followed.
            match self.free.compare_exchange_weak(head, new, Ordering::Relaxed, Ordering::Acquire) {
                Ok(_) => return Some(index),
                Err(found) => head = found,
            }
        }
    }

    /// R4: gives an entry back. The caller has just freed its word.
    pub fn give_back(&self, index: u32, entry: &Entry<R>) {
        // Relaxed: the CAS below validates it; `next` is read by who has read that CAS.
        let mut head = self.free.load(Ordering::Relaxed);
        loop {
            entry.next.store(head as u32, Ordering::Relaxed);
            let new = (head >> 32).wrapping_add(1) << 32 | u64::from(index);
            // Release: pairs with the Acquire in `pop_free`. Failure Relaxed: only the word is reused.
            match self.free.compare_exchange_weak(head, new, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(found) => head = found,
            }
        }
    }
}

/// A pointer that M2 has stored.
pub fn stored<T>(cell: &AtomicPtr<T>) -> Option<NonNull<T>> {
    // Acquire: pairs with the Release of M2, for those who look without owning (`table`, "Looking").
    NonNull::new(cell.load(Ordering::Acquire))
}

impl<R: Resource> Drop for Entries<R> {
    fn drop(&mut self) {
        for (chunk, cell) in self.chunks.iter().enumerate() {
            // Relaxed: `&mut self`.
            let entries = cell.load(Ordering::Relaxed);
            if !entries.is_null() {
                let entries = ptr::slice_from_raw_parts_mut(entries, chunk_len(chunk));
                // SAFETY: installed once by `chunk_for`; `&mut self` is the last owner.
                drop(unsafe { Box::from_raw(entries) });
            }
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn locate_covers_every_index_once() {
        let mut expected = (0, 0);
        for index in 0..10_000 {
            assert_eq!(locate(index), expected);
            expected.1 += 1;
            if expected.1 == chunk_len(expected.0) {
                expected = (expected.0 + 1, 0);
            }
        }
        let (chunk, offset) = locate(u32::MAX);
        assert_eq!(chunk, CHUNKS - 1 + usize::from(CHUNKS == 26));
        assert!(offset < chunk_len(chunk));
    }

    #[test]
    fn the_free_list_is_never_the_same_word_again() {
        // So that whoever has read it before others took from it and gave back does not take it for unchanged.
        let entries = Entries::<crate::Entry<u32, u32, ()>>::new();
        let mut seen = std::collections::HashSet::from([entries.free.load(Ordering::Relaxed)]);
        let (first, entry) = entries.take();
        entries.give_back(first, entry);
        assert!(seen.insert(entries.free.load(Ordering::Relaxed)));
        for _ in 0..1_000 {
            let (slot, entry) = entries.take();
            assert_eq!(slot, first, "it is used again");
            assert!(seen.insert(entries.free.load(Ordering::Relaxed)), "taken");
            entries.give_back(slot, entry);
            assert!(seen.insert(entries.free.load(Ordering::Relaxed)), "given back");
        }
        assert_eq!(entries.used(), 0..1);
    }

    #[test]
    fn what_was_given_back_last_is_taken_first_and_each_once() {
        let entries = Entries::<crate::Entry<u32, u32, ()>>::new();
        let taken: Vec<u32> = (0..200).map(|_| entries.take().0).collect();
        assert_eq!(taken, Vec::from_iter(0..200));
        for slot in [3, 190, 64] {
            entries.give_back(slot, entries.get(slot).expect("its chunk is there"));
        }
        let again: Vec<u32> = (0..4).map(|_| entries.take().0).collect();
        assert_eq!(again, [64, 190, 3, 200]);
    }

    #[test]
    fn an_entry_is_found_if_its_chunk_is_there() {
        let entries = Entries::<crate::Entry<u32, u32, ()>>::new();
        assert!(entries.get(0).is_none());
        let (slot, entry) = entries.take();
        assert!(entries.get(slot).is_some_and(|found| std::ptr::eq(found, entry)));
        assert!(entries.get(FIRST - 1).is_some());
        for index in [FIRST, FIRST << 3, u32::MAX >> 1, u32::MAX] {
            assert!(entries.get(index).is_none(), "{index}");
        }
    }
}
