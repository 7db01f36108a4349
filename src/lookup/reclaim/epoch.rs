//! `crossbeam-epoch`, on the collector that the process shares.
//!
//! A collector of our own would need a thread-local table of handles per scheduler; `pin` would then cost a lookup
//! on top of its 6 ns. The shared collector frees a retired pointer some pins later, on whichever thread pins.

use std::marker::PhantomData;

use super::{Guard, Reclaim};
use crate::sync::atomic::{AtomicPtr, Ordering};

/// Epoch-based reclamation by `crossbeam-epoch`.
#[derive(Debug, Default)]
pub struct Epoch(());

/// A pinned thread.
#[derive(Debug)]
pub struct EpochGuard<'a> {
    guard: crossbeam_epoch::Guard,
    // Keeps the signature of the reclaimers that own their collector.
    reclaim: PhantomData<&'a Epoch>,
}

// SAFETY: rules 1 and 3 are `crossbeam-epoch`'s: a deferred function runs after all threads that were pinned at the
// deferral have been unpinned.
unsafe impl Reclaim for Epoch {
    type Guard<'a> = EpochGuard<'a>;

    fn new() -> Self {
        Epoch(())
    }

    #[inline]
    fn pin(&self) -> EpochGuard<'_> {
        EpochGuard { guard: crossbeam_epoch::pin(), reclaim: PhantomData }
    }

    #[inline(always)]
    fn owns(&self, _guard: &EpochGuard<'_>) -> bool {
        // One collector serves all instances.
        true
    }
}

// SAFETY: as above.
unsafe impl Guard for EpochGuard<'_> {
    #[inline(always)]
    fn protect<T>(&self, pointer: &AtomicPtr<T>, order: Ordering) -> *mut T {
        // The pin's fence is all the protection there is.
        pointer.load(order)
    }

    #[inline]
    unsafe fn retire<T: Send + 'static>(&self, pointer: *mut T, reclaim: unsafe fn(*mut T)) {
        // SAFETY: by the caller's promise `reclaim` may run on any thread once all guards live now are gone, which is
        // when the collector runs it; `T: Send + 'static` lets what it owns go there.
        unsafe { self.guard.defer_unchecked(move || reclaim(pointer)) }
    }
}
