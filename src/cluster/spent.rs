//! Leases that stand for uses of a budget: they are kept out until their period is over.

use std::{
    collections::{HashMap, VecDeque},
    sync::PoisonError,
    time::Duration,
};

use crate::{
    node::quietly,
    resource::Resource,
    scheduler::OwnedLease,
    sync::{Mutex, MutexGuard, Timestamp},
};

/// By period: the leases of those resources, in the order in which they end.
type Queues<R> = HashMap<Duration, VecDeque<(Timestamp, OwnedLease<R>)>>;

/// See the module.
pub struct Spent<R: Resource> {
    periods: HashMap<R::Key, Duration>,
    queues: Mutex<Queues<R>>,
}

impl<R: Resource> Spent<R> {
    /// None yet, of resources with these periods.
    pub fn new(periods: HashMap<R::Key, Duration>) -> Self {
        Spent { periods, queues: Mutex::new(HashMap::new()) }
    }

    fn queues(&self) -> MutexGuard<'_, Queues<R>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a lease for the period of its resource; if that has none it comes back at once. O(1).
    pub fn keep(&self, now: Timestamp, mut lease: OwnedLease<R>) {
        if let Some(&period) = self.periods.get(lease.key()) {
            // Nobody takes it back, or reports it, whatever of `max_hold` the use has left: `end` returns it. An error: it was taken back already.
            // The scheduler's clock is user code: a panic must not give back what was used.
            let _ = quietly(|| lease.renew(Duration::MAX));
            let end = now.saturating_add(period);
            self.queues().entry(period).or_default().push_back((end, lease));
        }
    }

    /// Returns those whose period is over. What a return calls is called outside the lock.
    pub fn end(&self, now: Timestamp) {
        if self.periods.is_empty() {
            return;
        }
        let mut over = Vec::new();
        for queue in self.queues().values_mut() {
            while queue.front().is_some_and(|(end, _)| *end <= now) {
                over.extend(queue.pop_front());
            }
        }
        drop(over);
    }
}
