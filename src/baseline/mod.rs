//! The yardstick: what a good engineer would write with one mutex, behind the same trait as the scheduler.
//!
//! * [`MutexScheduler`]: the best resource first; one mutex, one `BinaryHeap`, one `HashMap`.
//! * [`RoundRobinScheduler`]: one after the other without regard to priority; what most programs have.
//!
//! Both keep the scheduler's promises on capacity, holds and removal, so that a comparison compares like with like.
//! What they lack is what a mutex cannot give: a caller waits while another one is inside.
//!
//! ```
//! use leasehold::{Entry, Outcome, baseline::{Lend, Lent, MutexScheduler}};
//!
//! let fleet = MutexScheduler::new();
//! fleet.insert(Entry::new("slow", 20u32, ())).unwrap();
//! fleet.insert(Entry::new("fast", 10u32, ())).unwrap();
//!
//! let lease = fleet.acquire().unwrap();
//! assert_eq!(lease.key, "fast");
//! lease.finish(Outcome::Failed);
//! ```

mod mutex;
mod round_robin;

use std::{error::Error, fmt, ops::Deref, time::Duration};

pub use mutex::{MutexLease, MutexScheduler};
pub use round_robin::{RoundRobinLease, RoundRobinScheduler};

use crate::{
    outcome::Outcome,
    resource::Resource,
    sync::{Mutex, MutexGuard, Timestamp},
};

/// What the scheduler and the yardsticks can all do: enough for benchmarks and replays to be generic over them.
///
/// # Callbacks and panics
/// The closures run outside every lock. A panic in a method of the resource or in a closure leaves the fleet usable
/// and loses no resource.
pub trait Lend<R: Resource>: Send + Sync {
    /// A lease on one resource; dropping it returns the resource.
    type Lease<'a>: Lent<R>
    where
        Self: 'a,
        R: 'a;

    /// Adds a resource. Comes back if its key is taken or its capacity is out of range.
    fn insert(&self, resource: R) -> Result<(), R>;

    /// Adds all of them or, if one cannot be added, none. Never visible in part.
    fn insert_batch(&self, resources: Vec<R>) -> Result<(), Vec<R>>;

    /// Replaces the resource of the same key; leases and holds stay. Comes back if there is none or its capacity is
    /// out of range.
    fn update(&self, resource: R) -> Result<(), R>;

    /// Takes the resource out of the fleet; `false` if there is none of this key. A lease on it stays valid, its
    /// return has no effect.
    fn remove(&self, key: &R::Key) -> bool;

    /// How many resources the fleet has, whatever their state.
    fn len(&self) -> usize;

    /// Whether the fleet has no resource.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A lease on the best eligible resource.
    fn acquire(&self) -> Result<Self::Lease<'_>, Unavailable>;

    /// A lease on this resource; `None` if it does not exist or is not eligible.
    fn acquire_key(&self, key: &R::Key) -> Option<Self::Lease<'_>>;

    /// A lease on the best eligible resource whose key is not among `keys`.
    fn acquire_excluding(&self, keys: &[R::Key]) -> Result<Self::Lease<'_>, Unavailable>;

    /// Runs `f` on the best eligible resource without taking capacity.
    fn peek_with<T>(&self, f: impl FnOnce(&R) -> T) -> Option<T>;

    /// Runs `f` on this resource, whatever its state.
    fn get_with<T>(&self, key: &R::Key, f: impl FnOnce(&R) -> T) -> Option<T>;

    /// Holds the resource back until [`Lend::include`]. `true` if that changed something.
    fn exclude(&self, key: &R::Key) -> bool;

    /// Ends what [`Lend::exclude`] began. `true` if that changed something.
    fn include(&self, key: &R::Key) -> bool;

    /// Holds the resource back for `duration` from now on; the later end counts. `true` if that changed something.
    fn cool(&self, key: &R::Key, duration: Duration) -> bool;
}

/// A lease: the resource, until dropped.
pub trait Lent<R: Resource>: Deref<Target = R> {
    /// Returns the resource and tells what became of the work.
    fn finish(self, outcome: Outcome);
}

/// No resource is eligible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unavailable {
    /// The earliest moment at which the end of a cooling alone will make a resource eligible, if one is so cooling.
    pub earliest: Option<Timestamp>,
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.earliest {
            Some(moment) => write!(f, "no resource is eligible before {} ns", moment.as_nanos()),
            None => f.write_str("no resource is eligible"),
        }
    }
}

impl Error for Unavailable {}

/// The state, whether or not a thread has panicked while it held the lock: every change is complete before user code
/// can panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
