//! One flag for any number of jobs, and who is to be told.
//!
//! Whoever runs a job looks at the flag. Who waits for room with one may wait for long, and is *told*:
//!
//! ```text
//!   who waits                                          who cancels
//!     Y1  under the mutex: onto the list                 X1  under the mutex: the flag is set, the list is taken
//!     Y2  read the flag: refused                         X2  each on it is told, with the mutex free: wakers are user code
//!     Y3  sleep (W5 of `room`)
//!     Y4  under the mutex: off the list, if still on it
//! ```
//!
//! **Nobody is forgotten.** If X1 comes after Y1 it finds who waits, whose bell X2 makes wake up before Y3 or in it. If it comes before, Y2 sees
//! the flag.

use std::{fmt, sync::PoisonError};

use super::room::Waiter;
use crate::sync::{
    Arc, Mutex, MutexGuard,
    atomic::{AtomicBool, Ordering},
};

/// Cancels jobs: those that have not begun are not run; those that run may ask. Who waits for room with such a job gets it back.
///
/// Clones are the same token.
///
/// ```
/// use leasehold::pool::CancelToken;
///
/// let token = CancelToken::new();
/// let same = token.clone();
/// token.cancel();
/// assert!(same.is_cancelled());
/// ```
#[derive(Clone)]
pub struct CancelToken(Arc<Flag>);

struct Flag {
    cancelled: AtomicBool,
    /// Who is told.
    waiting: Mutex<Vec<Arc<Waiter>>>,
}

impl CancelToken {
    /// A token that is not cancelled.
    pub fn new() -> Self {
        CancelToken(Arc::new(Flag { cancelled: AtomicBool::new(false), waiting: Mutex::new(Vec::new()) }))
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Arc<Waiter>>> {
        // No code that can panic runs under it.
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cancels, for good. Who waits for room with a job of this token is woken here: a task's waker is called.
    ///
    /// *Blocking*, by a mutex that is held for a few moves.
    pub fn cancel(&self) {
        let waiting = {
            let mut waiting = self.waiting();
            // Relaxed: it publishes nothing, and a job that begins at the same time may or may not see it. Who comes onto the list later has the mutex
            // after us, and sees it.
            self.0.cancelled.store(true, Ordering::Relaxed);
            std::mem::take(&mut *waiting)
        };
        waiting.iter().for_each(|waiter| waiter.stir());
    }

    /// Whether it was cancelled. Wait-free.
    pub fn is_cancelled(&self) -> bool {
        // Relaxed: as above.
        self.0.cancelled.load(Ordering::Relaxed)
    }

    /// Y1: from now on it is told, until [`forget`](Self::forget); then the caller must look.
    pub(super) fn tell(&self, waiter: &Arc<Waiter>) {
        self.waiting().push(Arc::clone(waiter));
    }

    /// Y4.
    pub(super) fn forget(&self, waiter: &Arc<Waiter>) {
        let mut waiting = self.waiting();
        if let Some(at) = waiting.iter().position(|other| Arc::ptr_eq(other, waiter)) {
            // Not the last owner: the caller is one.
            waiting.swap_remove(at);
        }
    }
}

impl Default for CancelToken {
    fn default() -> Self {
        CancelToken::new()
    }
}

impl fmt::Debug for CancelToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancelToken").field("is_cancelled", &self.is_cancelled()).finish_non_exhaustive()
    }
}
