//! Counts what the running thread allocates, so that memory is measured and not estimated.
//!
//! Bytes are those that were asked for, without what the system's allocator adds; [`Tally::blocks_of_glibc`] is the same
//! with what glibc's adds. Counters are the thread's own: counting costs a nanosecond and shares nothing, so it does not
//! disturb what is timed. What another thread frees is not seen, so memory is measured while there is none.

#![allow(unsafe_code)]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    sync::atomic::{AtomicI64, Ordering},
};

/// What was allocated, less what was freed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Calls that made or moved a block; freeing is not subtracted.
    pub allocations: u64,
    /// Bytes asked for.
    pub bytes: i64,
    /// Bytes of the blocks that glibc's allocator makes of them: 8 more, in steps of 16, at least 32.
    pub blocks_of_glibc: i64,
}

thread_local! {
    static TALLY: Cell<Tally> = const { Cell::new(Tally { allocations: 0, bytes: 0, blocks_of_glibc: 0 }) };
    /// Of [`Tally::bytes`], what [`LIVE`] knows.
    static TOLD: Cell<i64> = const { Cell::new(0) };
}

/// What all threads have allocated and not freed, in bytes, as far as they have told.
static LIVE: AtomicI64 = AtomicI64::new(0);

/// A thread tells when it has this much to tell, so that it seldom touches what all share.
const TELLS_AT: i64 = 16 << 10;

/// Bytes that the program has allocated and not freed: within 16 KiB for each thread that has ever run.
pub fn live_bytes() -> i64 {
    LIVE.load(Ordering::Relaxed)
}

/// Runs `f` and tells what it allocated in this thread and did not free.
pub fn tally<T>(f: impl FnOnce() -> T) -> (T, Tally) {
    let before = TALLY.get();
    let result = f();
    let after = TALLY.get();
    let difference = Tally {
        allocations: after.allocations - before.allocations,
        bytes: after.bytes - before.bytes,
        blocks_of_glibc: after.blocks_of_glibc - before.blocks_of_glibc,
    };
    (result, difference)
}

/// A block of `size` bytes comes (`sign` 1) or goes (-1).
#[inline]
fn note(size: usize, sign: i64) {
    let block = (size + 8).next_multiple_of(16).max(32);
    let mut tally = TALLY.get();
    tally.allocations += u64::from(sign > 0);
    tally.bytes += sign * size as i64;
    tally.blocks_of_glibc += sign * block as i64;
    TALLY.set(tally);
    let untold = tally.bytes - TOLD.get();
    if untold.abs() >= TELLS_AT {
        TOLD.set(tally.bytes);
        LIVE.fetch_add(untold, Ordering::Relaxed);
    }
}

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

// SAFETY: passes everything on to the system's allocator; the counters neither allocate nor unwind.
unsafe impl GlobalAlloc for Counting {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size(), 1);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size(), 1);
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        note(layout.size(), -1);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(layout.size(), -1);
        note(size, 1);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use super::*;

    #[test]
    fn what_stays_is_counted() {
        let (kept, tally) = tally(|| {
            drop(black_box(Box::new([0u8; 1_000])));
            black_box(Box::new([0u8; 100]))
        });
        assert_eq!(tally, Tally { allocations: 2, bytes: 100, blocks_of_glibc: 112 });
        drop(kept);
    }

    #[test]
    fn the_whole_program_is_known_roughly() {
        let before = live_bytes();
        let block = black_box(vec![0u8; 64 << 20]);
        let grown = live_bytes() - before;
        // Other tests allocate meanwhile, but not that much.
        assert!((63 << 20..66 << 20).contains(&grown), "{grown}");
        drop(block);
        assert!(live_bytes() - before < 1 << 20);
    }

    #[test]
    fn growth_is_counted_once() {
        let (kept, tally) = tally(|| {
            let mut numbers: Vec<u64> = Vec::with_capacity(4);
            numbers.extend(0..4);
            numbers.reserve_exact(96);
            black_box(numbers)
        });
        assert_eq!((tally.allocations, tally.bytes), (2, 800));
        drop(kept);
    }
}
