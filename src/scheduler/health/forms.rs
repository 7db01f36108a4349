//! What is remembered of a resource, for whoever asks.

use std::{
    borrow::Borrow,
    hash::{BuildHasher, Hash},
};

use crate::{
    health::{Record, ResourceStats},
    resource::Resource,
    scheduler::Scheduler,
};

impl<R: Resource, S: BuildHasher> Scheduler<R, S> {
    /// What the outcomes of the leases on this resource say so far. `None` if there is no such resource, or outcomes are not
    /// remembered: see [`Builder::remember_outcomes`](crate::Builder::remember_outcomes).
    ///
    /// Wait-free; one hash, expected O(1). No allocation. Each number is true at some moment of the call.
    ///
    /// ```
    /// use leasehold::{Entry, Outcome, Scheduler};
    /// use std::time::Duration;
    ///
    /// let scheduler = Scheduler::<Entry<u8, u32, ()>>::builder().remember_outcomes(true).build()?;
    /// scheduler.insert(Entry::new(1, 0, ()))?;
    /// scheduler.acquire()?.finish(Outcome::Ok { latency: Duration::from_micros(3) });
    /// let stats = scheduler.resource_stats(&1).expect("remembered");
    /// assert_eq!((stats.succeeded, stats.latency_nanos), (1, 3_000));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn resource_stats<Q>(&self, key: &Q) -> Option<ResourceStats>
    where
        R::Key: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let core = &*self.core;
        let hash = self.hasher.hash_one(key);
        let guard = core.pin();
        core.find(hash, key, &guard)?.record().map(Record::stats)
    }

    /// How many resources the [rules](crate::Ejection) hold ejected now: never more than their share, but for the moment in which one that
    /// is removed takes a place with it. Wait-free.
    pub fn ejected_by_rules(&self) -> u32 {
        self.core.health.as_ref().map_or(0, super::Health::ejected)
    }
}
