//! `seize`: reference counts on batches of retired pointers, one collector per instance.
//!
//! Nothing outlives the collector: dropping it frees all that was retired through it.

use seize::Guard as _;

use super::{Guard, Reclaim};
use crate::sync::atomic::{AtomicPtr, Ordering};

/// Reclamation by `seize`, with a collector of its own.
#[derive(Debug)]
pub struct Seize(seize::Collector);

/// A thread that is active in one collector.
pub struct SeizeGuard<'a>(seize::LocalGuard<'a>);

// SAFETY: rules 1 and 3 are `seize`'s: a retired pointer is reclaimed after all guards that were active at the
// retirement have been dropped, and loads go through `protect`.
unsafe impl Reclaim for Seize {
    type Guard<'a> = SeizeGuard<'a>;

    fn new() -> Self {
        Seize(seize::Collector::new())
    }

    #[inline]
    fn pin(&self) -> SeizeGuard<'_> {
        SeizeGuard(self.0.enter())
    }

    #[inline]
    fn owns(&self, guard: &SeizeGuard<'_>) -> bool {
        std::ptr::eq(guard.0.collector(), &self.0)
    }
}

/// What to do with a pointer; `seize` passes a function, not a closure, so the function travels with it.
struct Job<T> {
    pointer: *mut T,
    reclaim: unsafe fn(*mut T),
}

// SAFETY: as above.
unsafe impl Guard for SeizeGuard<'_> {
    #[inline(always)]
    fn protect<T>(&self, pointer: &AtomicPtr<T>, order: Ordering) -> *mut T {
        self.0.protect(pointer, order)
    }

    unsafe fn retire<T: Send + 'static>(&self, pointer: *mut T, reclaim: unsafe fn(*mut T)) {
        unsafe fn run<T>(job: *mut Job<T>, _collector: &seize::Collector) {
            // SAFETY: allocated below, and `seize` runs this once.
            let job = unsafe { Box::from_raw(job) };
            // SAFETY: the promise given to `retire`.
            unsafe { (job.reclaim)(job.pointer) }
        }
        let job = Box::into_raw(Box::new(Job { pointer, reclaim }));
        // SAFETY: nobody else has `job`, and what it leads to is unreachable by the caller's promise.
        unsafe { self.0.defer_retire(job, run::<T>) }
    }
}
