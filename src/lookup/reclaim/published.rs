//! A value that many read, each in a section, and few replace as a whole.
//!
//! # States of a version
//!
//! | state | who can reach it | left by |
//! |---|---|---|
//! | made | its maker | W2: current; or somebody else's W2 came first, and it is freed |
//! | current | whoever is in a section, through the word | W2 of the next version, or the end of the cell |
//! | replaced | guards that are older than its W3 | the end of the last of them: it is freed |
//!
//! # Steps
//!
//! ```text
//!   reader, in a section                 writer, in a section
//!     L1  load the word                    W1  make a version
//!     L2  read what it leads to            W2  swap the word, or compare and swap it
//!                                          W3  retire what was there
//! ```
//!
//! **Nothing is freed under a reader.** W2 takes a version out of the word for good, and W3 comes after it: a guard that is younger
//! than W3 does not come to that version, and an older one keeps it (rules 1 and 2 of `reclaim`).
//!
//! **Each version is freed once.** W2 answers with what was there, so each is replaced by one writer. The last one goes with the cell.
//!
//! **A refinement takes nothing back.** Its W2 expects the version that it was made of. The writer's own section keeps that one, so no
//! other has its address meanwhile.
//!
//! # Why not `ArcSwap`
//!
//! That keeps a version alive for each reader by itself, with two locked instructions and a thread-local of its own. Who reads here is in a
//! section anyway, for the sake of what comes next: then a look is one load. The price: what was replaced is freed when the thread
//! that did so seals a bag, and not while an older guard lives anywhere in the process. Who replaces much asks for that at once, as
//! `Scheduler::set_shard_weights` does.

use std::{fmt, marker::PhantomData, ptr};

use super::{DefaultReclaim, Guard, Reclaim};
use crate::sync::{
    UnsafeCell,
    atomic::{AtomicPtr, Ordering},
};

/// A value that is read without waiting and replaced as a whole.
///
/// A reader keeps the version that it has loaded.
pub struct Published<T, C = DefaultReclaim> {
    current: AtomicPtr<Version<T>>,
    /// The current version is owned.
    owned: PhantomData<Box<T>>,
    /// Guards of `C` protect it.
    reclaim: PhantomData<fn(C)>,
}

struct Version<T> {
    /// Nothing. Loom sees plain memory only here: a read that no publication orders fails, and so does a read beside the freeing.
    seal: UnsafeCell<()>,
    /// Loom sees a version that is never freed by this.
    #[cfg(loom)]
    _track: crate::sync::Track<()>,
    value: T,
}

impl<T> Version<T> {
    fn boxed(value: T) -> *mut Self {
        Box::into_raw(Box::new(Version {
            seal: UnsafeCell::new(()),
            #[cfg(loom)]
            _track: crate::sync::Track::new(()),
            value,
        }))
    }

    #[inline(always)]
    fn value(&self) -> &T {
        self.seal.with(|_| ());
        &self.value
    }

    /// # Safety
    /// Made by `boxed`, and nobody can be reading it, nor will.
    unsafe fn free(version: *mut Self) {
        // SAFETY: the caller's promise.
        let version = unsafe { Box::from_raw(version) };
        version.seal.with_mut(|_| ());
    }
}

impl<T, C> Published<T, C>
where
    T: Send + Sync + 'static,
    C: Reclaim,
{
    /// Publishes `value` as the first version.
    ///
    /// # Safety
    /// All guards that the cell's methods are ever given come from one and the same instance of `C`.
    pub unsafe fn new(value: T) -> Self {
        let current = AtomicPtr::new(Version::boxed(value));
        Published { current, owned: PhantomData, reclaim: PhantomData }
    }

    /// L1 and L2: the version that is current at some moment of this call. Wait-free, one load.
    #[inline(always)]
    pub fn load<'g>(&'g self, guard: &'g C::Guard<'_>) -> &'g T {
        // Acquire: pairs with the Release of W2: the version is complete.
        let current = guard.protect(&self.current, Ordering::Acquire);
        guard.touch(current);
        // SAFETY: never null; what was replaced is retired by W3, after it has left the word, through guards of the same reclaimer; and
        // the cell, which owns the last one, is borrowed.
        unsafe { &*current }.value()
    }

    /// W1 to W3: puts `value` in the place of the current version, and answers what that was.
    pub fn replace<'g>(&'g self, value: T, guard: &'g C::Guard<'_>) -> &'g T {
        let new = Version::boxed(value);
        // AcqRel: pairs with L1 and with itself.
        // - Release: who reads it finds the version complete;
        // - Acquire: so do we the one that we have replaced, which may be another writer's.
        let old = self.current.swap(new, Ordering::AcqRel);
        self.retire(old, guard);
        guard.touch(old);
        // SAFETY: retired by us, while the guard lived, which it still does.
        unsafe { &*old }.value()
    }

    /// W1 to W3, with the current version replaced by what `f` makes of it; `None` leaves it. Nothing that is published in between is
    /// lost: then `f` is asked again.
    pub fn refine(&self, guard: &C::Guard<'_>, mut f: impl FnMut(&T) -> Option<T>) {
        loop {
            // Acquire, touched and followed as in `load`.
            let old = guard.protect(&self.current, Ordering::Acquire);
            guard.touch(old);
            // SAFETY: as in `load`.
            let Some(new) = f(unsafe { &*old }.value()) else { return };
            let new = Version::boxed(new);
            // Release: as in `replace`; we have acquired the old one. Relaxed on failure: it is loaded again.
            match self.current.compare_exchange(old, new, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return self.retire(old, guard),
                // SAFETY: nobody else has ever had it.
                Err(_) => unsafe { Version::free(new) },
            }
        }
    }

    /// W3. `old` has just been taken out of the word by the caller.
    fn retire(&self, old: *mut Version<T>, guard: &C::Guard<'_>) {
        // SAFETY: rule 2: out of the word, by us, and nothing else leads to it. It came from `boxed`, and may be freed on any thread.
        unsafe { guard.retire(old, Version::free) };
    }
}

impl<T, C> Drop for Published<T, C> {
    fn drop(&mut self) {
        // Relaxed: nobody else is here.
        let current = self.current.swap(ptr::null_mut(), Ordering::Relaxed);
        // SAFETY: the current version was never retired, and no borrow of the cell is left.
        unsafe { Version::free(current) };
    }
}

impl<T, C> fmt::Debug for Published<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Published").finish_non_exhaustive()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering::Relaxed},
        },
        time::{Duration, Instant},
    };

    use super::*;
    use crate::lookup::collect_garbage;

    struct Counted(u32, Arc<AtomicUsize>);

    impl Drop for Counted {
        fn drop(&mut self) {
            self.1.fetch_add(1, Relaxed);
        }
    }

    fn cell(freed: &Arc<AtomicUsize>) -> (DefaultReclaim, Published<Counted>) {
        // SAFETY: the guards are those of the reclaimer beside it.
        (DefaultReclaim::new(), unsafe { Published::new(Counted(0, Arc::clone(freed))) })
    }

    #[test]
    fn what_was_replaced_lives_as_long_as_a_guard_of_then() {
        let freed = Arc::new(AtomicUsize::new(0));
        let (reclaim, cell) = cell(&freed);
        let guard = reclaim.pin();
        let first = cell.load(&guard);
        assert_eq!(cell.replace(Counted(1, Arc::clone(&freed)), &reclaim.pin()).0, 0);
        collect_garbage();
        assert_eq!((first.0, cell.load(&guard).0, freed.load(Relaxed)), (0, 1, 0));
        drop(guard);
        // Others in this process may be reading something at the moment.
        let end = Instant::now() + Duration::from_secs(20);
        while freed.load(Relaxed) == 0 && Instant::now() < end {
            collect_garbage();
        }
        assert_eq!(freed.load(Relaxed), 1, "nobody can be reading it any more");
        drop(cell);
        assert_eq!(freed.load(Relaxed), 2, "the last version goes with the cell");
    }

    #[test]
    fn a_refinement_that_is_none_leaves_everything() {
        let freed = Arc::new(AtomicUsize::new(0));
        let (reclaim, cell) = cell(&freed);
        let guard = reclaim.pin();
        cell.refine(&guard, |_| None);
        assert_eq!(cell.load(&guard).0, 0);
        cell.refine(&guard, |old| Some(Counted(old.0 + 7, Arc::clone(&freed))));
        assert_eq!(cell.load(&guard).0, 7);
    }
}
