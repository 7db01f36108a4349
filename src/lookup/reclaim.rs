//! When memory that others may still be reading is freed.
//!
//! The map, and the scheduler above it, unlink first and free later. *Later* is this module's business, behind two
//! small traits, so that the reclaimer can be exchanged and, in a model, replaced by one that is as eager as the
//! rules allow:
//!
//! | reclaimer | built when | character |
//! |---|---|---|
//! | `Sections` | no model | counted sections, one domain for the process; the default |
//! | [`Epoch`] | always | `crossbeam-epoch`, the process's collector, for comparison |
//! | `Seize` | feature `seize`, no model | `seize`, one collector per instance, which frees everything when dropped |
//! | `Oracle` | in a model | kills at the first legal moment and checks every use; the default there |
//!
//! [`Published`] is built on them: a value that is replaced as a whole.
//!
//! # Rules
//!
//! 1. A pointer read through [`Guard::protect`] stays valid while that guard lives, if whoever frees it does so
//!    through [`Guard::retire`] of the same reclaimer.
//! 2. `retire` is called once per pointer, after the last place from which a new guard could reach it was cleared.
//! 3. The function given to `retire` runs once, on any thread, after every guard that was live at the `retire` has
//!    been dropped. It may run as late as the reclaimer likes.

#![allow(unsafe_code)]

use crate::sync::atomic::{AtomicPtr, Ordering};

mod epoch;
#[cfg(any(loom, shuttle))]
mod oracle;
#[cfg(all(test, not(any(loom, shuttle))))]
mod parked;
mod published;
pub mod sections;
#[cfg(all(feature = "seize", not(any(loom, shuttle))))]
mod seize;

pub use epoch::{Epoch, EpochGuard};
#[cfg(any(loom, shuttle))]
pub use oracle::{Oracle, OracleGuard};
pub use published::Published;
#[cfg(not(any(loom, shuttle)))]
pub use sections::{Sections, SectionsGuard, collect_garbage};
#[cfg(all(feature = "seize", not(any(loom, shuttle))))]
pub use seize::{Seize, SeizeGuard};

/// The reclaimer that is used where none is named.
#[cfg(not(any(loom, shuttle)))]
pub type DefaultReclaim = Sections;
/// The reclaimer that is used where none is named.
#[cfg(any(loom, shuttle))]
pub type DefaultReclaim = Oracle;

/// A way to free memory once nobody can be reading it.
///
/// # Safety
///
/// An implementation must keep rules 1 and 3 of the module for the guards that `pin` hands out.
pub unsafe trait Reclaim: Send + Sync + 'static {
    /// Shows that a thread may be reading; see [`Guard`].
    type Guard<'a>: Guard
    where
        Self: 'a;

    /// A reclaimer with nothing retired.
    fn new() -> Self;

    /// Starts a section in which what is read through the guard stays valid. Wait-free but for a thread's first.
    fn pin(&self) -> Self::Guard<'_>;

    /// Whether `guard` protects what is retired through guards of `self`.
    fn owns(&self, guard: &Self::Guard<'_>) -> bool;
}

/// A section in which what is read through it stays valid.
///
/// # Safety
///
/// As for [`Reclaim`].
pub unsafe trait Guard {
    /// Loads `pointer` such that rule 1 holds for the result. At least as strong as `order`.
    fn protect<T>(&self, pointer: &AtomicPtr<T>, order: Ordering) -> *mut T;

    /// Arranges for `reclaim(pointer)` once every guard that is live now has been dropped.
    ///
    /// # Safety
    ///
    /// Rule 2 must hold, and `reclaim` must be sound to call on `pointer` from any thread at that time.
    /// It should not unwind: that would go through whoever happens to collect garbage.
    unsafe fn retire<T: Send + 'static>(&self, pointer: *mut T, reclaim: unsafe fn(*mut T));

    /// As [`retire`](Self::retire), of something that has so many bytes elsewhere: for reclaimers that bound by bytes what waits.
    ///
    /// # Safety
    ///
    /// As for [`retire`](Self::retire).
    unsafe fn retire_owner<T: Send + 'static>(
        &self,
        pointer: *mut T,
        bytes: usize,
        reclaim: unsafe fn(*mut T),
    ) {
        let _ = bytes;
        // SAFETY: passed on.
        unsafe { self.retire(pointer, reclaim) }
    }

    /// Says that `pointer` is about to be used. Free in production; in a model the oracle fails it if the time for
    /// that is over.
    #[inline(always)]
    fn touch<T>(&self, pointer: *const T) {
        let _ = pointer;
    }
}
