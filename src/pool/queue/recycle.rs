//! Segments that wait to be used again.
//!
//! A stack of unlinked segments (R. K. Treiber, "Systems programming: coping with parallelism", 1986). What makes a stack with
//! a compare-and-swap unsafe, that a top which was popped comes back while somebody still believes to know what is below it, cannot
//! happen: a segment comes here through the reclaimer only, so after every guard that could have seen it has gone, and who pops
//! holds a guard.
//!
//! ```text
//!   take     T1  top, under the caller's guard      T2  below       T3  CAS top -> below: the segment is ours
//!   put      U1  reset: nobody else can reach it    U2  below := top                  U3  CAS top -> segment
//! ```

#![allow(unsafe_code)]

use super::segment::Segment;
use crate::{
    lookup::Guard,
    sync::{
        atomic::{AtomicPtr, Ordering},
        count::AtomicUsize,
    },
};

/// The segments of one queue that wait to be used again.
pub struct Store<T> {
    top: AtomicPtr<Segment<T>>,
    kept: AtomicUsize,
    limit: usize,
}

impl<T: Send + 'static> Store<T> {
    /// An empty one, which keeps up to `limit` segments.
    pub fn new(limit: usize) -> Self {
        Store { top: AtomicPtr::new(std::ptr::null_mut()), kept: AtomicUsize::new(0), limit }
    }

    /// A segment that is as new and the caller's alone, if there is one. Lock-free.
    ///
    /// It stays a pointer, not a box: whoever has lost T3 may still look at its `below`, and at nothing else of it.
    pub fn take(&self, guard: &impl Guard) -> Option<*mut Segment<T>> {
        loop {
            // T1. Acquire: pairs with the Release of U3: what is below it, and its reset.
            // Survives Acquire -> Relaxed: to read what was below in its life before, a thread would have to meet a segment that others have
            // put here, taken, used up and put here again. The models that go so far are cut short before they find it.
            let top = guard.protect(&self.top, Ordering::Acquire);
            if top.is_null() {
                return None;
            }
            // T2. Relaxed: written before U3 by whoever put it here. SAFETY: it was here at T1, and is freed through the reclaimer
            // only, not before our guard has gone.
            // Of the segment only this word is borrowed: the rest may be another one's already.
            let below = unsafe { &(*top).below }.load(Ordering::Relaxed);
            // T3. Relaxed: it finds the very store that T1 has acquired: a segment is put here again only after our guard has gone.
            // On failure T1 looks again.
            if self.top.compare_exchange(top, below, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                self.kept.fetch_sub(1, Ordering::Relaxed);
                return Some(top);
            }
        }
    }

    /// U1 to U3; what `retire` is given. Frees the segment if there are enough of them, or its queue has gone.
    ///
    /// # Safety
    /// The caller has the only access to the segment, which came from `Box::into_raw` and has no items.
    pub unsafe fn put(segment: *mut Segment<T>) {
        // SAFETY: the caller's promise.
        let mut segment = unsafe { Box::from_raw(segment) };
        let Some(store) = segment.reset() else { return };
        // Relaxed: a count that steers how much is kept.
        if store.kept.fetch_add(1, Ordering::Relaxed) >= store.limit {
            store.kept.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let segment = Box::into_raw(segment);
        // Relaxed: it is compared and passed on, not followed.
        let mut top = store.top.load(Ordering::Relaxed);
        loop {
            // Relaxed: published by U3. SAFETY: ours until U3.
            unsafe { &*segment }.below.store(top, Ordering::Relaxed);
            // U3. Release: pairs with the Acquire of T1 and T3; it also hands on what the earlier top was published with.
            match store.top.compare_exchange_weak(top, segment, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(found) => top = found,
            }
        }
    }
}

impl<T> Drop for Store<T> {
    fn drop(&mut self) {
        // Relaxed: nobody else is here.
        let mut top = self.top.load(Ordering::Relaxed);
        while !top.is_null() {
            // SAFETY: put here by `Box::into_raw`, and `&mut self` rules out that anybody takes it.
            let segment = unsafe { Box::from_raw(top) };
            top = segment.below.load(Ordering::Relaxed);
        }
    }
}
