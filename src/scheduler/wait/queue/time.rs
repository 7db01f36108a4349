//! Who looks after the time.

use super::{Arc, NEVER, Ordering, Queue, Resource, Waiter};

/// A call that is so late is not waited for any more. It may come all the same, and then does what is due.
const LOST: u64 = 1_000_000_000;

fn is_lost(moment: u64, now: u64) -> bool {
    moment.saturating_add(LOST) <= now
}

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
    pub fn needs_call(&self, moment: u64) -> bool {
        self.calls.first().is_none_or(|&first| moment < first)
    }

    /// As [`needs_call`](Self::needs_call); then the call counts as one to come.
    pub fn expect_call(&mut self, moment: u64) -> bool {
        self.needs_call(moment) && self.calls.insert(moment)
    }

    /// Forgets the calls that should have been made long before `now`: a timer that has lost one would be asked for no later moment any
    /// more. Answers the first deadline to be looked after, if there were any, or one was dropped; whoever hears it asks for that.
    pub fn forget_lost_calls(&mut self, now: u64) -> Option<u64> {
        if self.calls.first().is_some_and(|&first| is_lost(first, now)) {
            self.calls.retain(|&moment| !is_lost(moment, now));
            self.has_lost_calls = true;
        }
        std::mem::take(&mut self.has_lost_calls).then(|| self.first_deadline())
    }

    /// The timer has called, or will not.
    pub fn called(&mut self, moment: u64, is_made: bool) {
        self.calls.remove(&moment);
        self.has_lost_calls |= !is_made;
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
