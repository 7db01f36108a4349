//! Whose turn it is to insert a batch.

use crate::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicUsize, Ordering},
    thread_hint,
};

/// A mutex that knows its owner, so that user code that comes back here from inside is told, not left to wait for itself.
#[derive(Debug)]
pub struct Turn {
    mutex: Mutex<()>,
    /// The owner's [`thread_hint`], 0 for none. No two living threads share one outside of models.
    owner: AtomicUsize,
}

/// The turn is ours.
pub struct Taken<'a> {
    turn: &'a Turn,
    _guard: MutexGuard<'a, ()>,
}

impl Turn {
    pub fn new() -> Self {
        Turn { mutex: Mutex::new(()), owner: AtomicUsize::new(0) }
    }

    /// Whether the running thread has the turn.
    pub fn is_ours(&self) -> bool {
        // Relaxed: a thread's own stores are all that matters; others' never equal its hint.
        self.owner.load(Ordering::Relaxed) == thread_hint()
    }

    /// Waits for the turn; `None` if the running thread has it already.
    pub fn take(&self) -> Option<Taken<'_>> {
        if self.is_ours() {
            return None;
        }
        // User code may have panicked under it in another thread; the mutex guards no data.
        let guard = self.mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // Relaxed, here and in `drop`: as in `is_ours`.
        self.owner.store(thread_hint(), Ordering::Relaxed);
        Some(Taken { turn: self, _guard: guard })
    }

    /// Waits until whoever has the turn now is done.
    pub fn wait(&self) {
        drop(self.mutex.lock());
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.turn.owner.store(0, Ordering::Relaxed);
    }
}
