//! What time demands of a scheduler that has no thread of its own.

use super::{Scheduler, core::Core};
use crate::{
    resource::Resource,
    shard::NEVER,
    sync::{Timestamp, atomic::Ordering},
};

impl<R: Resource> Core<R> {
    /// Does what is due, and says when something will be due again.
    pub fn tick(&self) -> u64 {
        let now = self.now();
        // Relaxed: a hint, as in `thaw_due`.
        while self.earliest.load(Ordering::Relaxed) <= now {
            self.thaw(now, true);
        }
        self.earliest.load(Ordering::Relaxed).min(self.tick_holders(now))
    }

    /// The part that is about those who hold leases, or wait until they are back.
    pub fn tick_holders(&self, now: u64) -> u64 {
        if let Some(limits) = &self.limits {
            let _ = self.reap_due(limits, now);
        }
        self.drains.tick(now).min(self.next_reap())
    }
}

impl<R: Resource, S> Scheduler<R, S> {
    /// Does what time demands: warms up what has cooled, takes back leases that are overdue, ends drains whose deadline has come.
    /// Answers with the moment at which it should be called next, `None` if nothing is due by itself.
    pub fn tick(&self) -> Option<Timestamp> {
        let next = self.core.tick();
        (next != NEVER).then(|| Timestamp::from_nanos(next))
    }
}
