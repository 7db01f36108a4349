//! The model's reclaimer: as eager as the rules allow, and a witness of every use.
//!
//! A retired pointer *dies* at the first moment at which a real reclaimer might have freed it: when the last guard
//! that was live at the retirement is dropped. From then on any [`Guard::touch`] of it fails the model, as do a second
//! retirement, and a guard that outlives its oracle. The memory itself is given back when the oracle is dropped, so
//! that an address means one object for a whole run.
//!
//! The book is kept in a mutex that the checkers do not see and that is never held across a schedule point. The only
//! instrumented part is one counter, whose read-modify-writes order what was unlinked before a retirement with the pins
//! that come after it, and nothing else. Pins of a real reclaimer make no thread's writes visible to another; if these
//! did, whoever pins after an inserter has pinned would see the item complete, and no model would miss the Release that
//! is to see to that.

#![allow(clippy::disallowed_types)]

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard},
};

use super::{Guard, Reclaim};
use crate::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Reclamation at the first legal moment, with checks.
pub struct Oracle {
    book: Mutex<Book>,
    tick: AtomicUsize,
}

#[derive(Default)]
struct Book {
    last_guard: u64,
    live_guards: BTreeSet<u64>,
    /// By address: the guards that still keep it alive; dead if none.
    retired: BTreeMap<usize, BTreeSet<u64>>,
    jobs: Vec<Box<dyn FnOnce()>>,
}

// SAFETY: the jobs run in the oracle's drop; each came with the promise that it may run on any thread.
unsafe impl Send for Oracle {}
// SAFETY: as above, and the book is behind a mutex.
unsafe impl Sync for Oracle {}

/// A live entry in the oracle's book.
pub struct OracleGuard<'a> {
    oracle: &'a Oracle,
    id: u64,
}

impl Oracle {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Fails if `pointer`, which something other than a guard is said to keep alive, has been retired.
    pub fn witness<T>(&self, pointer: *const T) {
        if std::thread::panicking() {
            return;
        }
        assert!(!self.book().retired.contains_key(&pointer.addr()), "retired while it was claimed");
    }

    /// How many pointers have been retired so far.
    pub fn retired(&self) -> usize {
        self.book().retired.len()
    }
}

// SAFETY: nothing is freed before the oracle is dropped, which its guards' borrow rules out while they live.
unsafe impl Reclaim for Oracle {
    type Guard<'a> = OracleGuard<'a>;

    fn new() -> Self {
        Oracle { book: Mutex::default(), tick: AtomicUsize::new(0) }
    }

    fn pin(&self) -> OracleGuard<'_> {
        // Acquire: pairs with the Release in `retire`: a guard that is not on a retirement's list must see what was unlinked
        // before it.
        self.tick.fetch_add(1, Ordering::Acquire);
        let mut book = self.book();
        book.last_guard += 1;
        let id = book.last_guard;
        book.live_guards.insert(id);
        OracleGuard { oracle: self, id }
    }

    fn owns(&self, guard: &OracleGuard<'_>) -> bool {
        std::ptr::eq(guard.oracle, self)
    }
}

// SAFETY: as above.
unsafe impl Guard for OracleGuard<'_> {
    fn protect<T>(&self, pointer: &AtomicPtr<T>, order: Ordering) -> *mut T {
        pointer.load(order)
    }

    unsafe fn retire<T: Send + 'static>(&self, pointer: *mut T, reclaim: unsafe fn(*mut T)) {
        // Release: see `pin`.
        self.oracle.tick.fetch_add(1, Ordering::Release);
        let mut book = self.oracle.book();
        let keepers = book.live_guards.clone();
        assert!(book.retired.insert(pointer.addr(), keepers).is_none(), "retired twice");
        // SAFETY: the caller's promise; it runs once, when all guards are gone.
        book.jobs.push(Box::new(move || unsafe { reclaim(pointer) }));
    }

    fn touch<T>(&self, pointer: *const T) {
        let alive =
            self.oracle.book().retired.get(&pointer.addr()).is_none_or(|keepers| keepers.contains(&self.id));
        assert!(alive, "used by a guard that does not keep it alive");
    }
}

impl Drop for OracleGuard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // A second panic would abort and hide the first.
            return;
        }
        // Nothing instrumented: what a guard may touch was settled when it pinned. A read-modify-write here, even a Relaxed one,
        // would hand on to the next pin all that came before this thread's last release fence.
        let mut book = self.oracle.book();
        book.live_guards.remove(&self.id);
        for keepers in book.retired.values_mut() {
            keepers.remove(&self.id);
        }
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let book = std::mem::take(&mut *self.book());
        assert!(book.live_guards.is_empty(), "a guard was leaked");
        for job in book.jobs {
            job();
        }
    }
}
