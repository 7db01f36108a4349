//! Who looks after the time.

use super::{Arc, NEVER, Ordering, Queue, Resource, Waiter};

impl<R: Resource> Queue<R> {
    /// The first deadline that somebody else than its waiter must look after.
    pub fn first_deadline(&self) -> u64 {
        self.task_deadlines.first_key_value().map_or(NEVER, |(&(deadline, _), _)| deadline)
    }

    /// The first deadline of all.
    pub fn deadline(&self) -> u64 {
        let threads = self.thread_deadlines.first_key_value().map_or(NEVER, |(&(deadline, _), _)| deadline);
        threads.min(self.first_deadline())
    }

    /// Whether the timer must be asked for this moment: it will not call by then anyway.
    pub fn expect_call(&mut self, moment: u64) -> bool {
        self.calls.first().is_none_or(|&first| moment < first) && self.calls.insert(moment)
    }

    /// The timer has called, or will not.
    pub fn called(&mut self, moment: u64) {
        self.calls.remove(&moment);
    }

    /// The thread that looks after the time, if one does.
    pub fn keeper(&self) -> Option<&Arc<Waiter<R>>> {
        self.keeper.as_ref()
    }

    /// Lets `waiter` look after the time if nobody does. Answers whether it does.
    pub fn keep_time(&mut self, waiter: &Arc<Waiter<R>>) -> bool {
        if self.keeper.is_none() && self.contains(waiter) {
            // Relaxed: see `Waiter::is_timekeeper`.
            waiter.keeps_time.store(true, Ordering::Relaxed);
            self.keeper = Some(Arc::clone(waiter));
        }
        self.keeper.as_ref().is_some_and(|keeper| keeper.order == waiter.order)
    }

    /// The keeper has left: another thread takes over, and is to be poked.
    pub fn hand_over_time(&mut self, waiter: &Waiter<R>) -> Option<Arc<Waiter<R>>> {
        if self.keeper.as_ref().is_none_or(|keeper| keeper.order != waiter.order) {
            return None;
        }
        self.keeper = None;
        self.set_for = NEVER;
        let heir = self.threads.first().and_then(|first| self.threads.get(first)).cloned()?;
        self.keep_time(&heir);
        Some(heir)
    }
}
