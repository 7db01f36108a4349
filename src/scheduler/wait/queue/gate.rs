//! The gate: what the rest of the scheduler sees of the queue.

use std::ops::{Deref, DerefMut};

use super::Queue;
use crate::{
    resource::Resource,
    sync::{
        MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
};

/// The word beside the queue: 0 if nobody waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gate(u64);

const OPEN: u64 = 1;

impl Gate {
    pub const fn new(word: u64) -> Self {
        Gate(word)
    }

    /// Nobody waits.
    #[inline]
    pub const fn is_free(self) -> bool {
        self.0 == 0
    }

    /// Somebody takes anything.
    pub const fn is_open(self) -> bool {
        self.0 & OPEN != 0
    }

    /// Nobody has registered since this ticket.
    pub fn is_unchanged(self, ticket: u64) -> bool {
        self.is_free() || self.0 >> 1 == ticket
    }
}

/// The queue's mutex. Sets the gate when it is freed.
pub struct QueueGuard<'a, R: Resource> {
    queue: MutexGuard<'a, Queue<R>>,
    gate: &'a AtomicU64,
}

impl<'a, R: Resource> QueueGuard<'a, R> {
    pub fn new(queue: MutexGuard<'a, Queue<R>>, gate: &'a AtomicU64) -> Self {
        QueueGuard { queue, gate }
    }
}

impl<R: Resource> Deref for QueueGuard<'_, R> {
    type Target = Queue<R>;

    fn deref(&self) -> &Queue<R> {
        &self.queue
    }
}

impl<R: Resource> DerefMut for QueueGuard<'_, R> {
    fn deref_mut(&mut self) -> &mut Queue<R> {
        &mut self.queue
    }
}

impl<R: Resource> Drop for QueueGuard<'_, R> {
    fn drop(&mut self) {
        let queue = &*self.queue;
        let is_open = queue.collector.is_some() || !queue.open.is_empty();
        let word = if queue.len == 0 { 0 } else { queue.ticket << 1 | u64::from(is_open) };
        // Relaxed, both: written under the mutex only; readers are ordered by the shards' locks (module header).
        if self.gate.load(Ordering::Relaxed) != word {
            self.gate.store(word, Ordering::Relaxed);
        }
    }
}
