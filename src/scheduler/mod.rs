//! The scheduler: a fleet of resources, and everything that can be done with it.
//!
//! | file | idea |
//! |---|---|
//! | `builder` | settings |
//! | `core` | what is shared: shards, lookup, roster, tokens; cooling; returning |
//! | `insert`, `batch`, `update` | membership |
//! | `acquire`, `filter`, `affinity` | lending |
//! | `lease`, `token` | what is lent, and how it comes back |
//! | `lend` | the yardsticks' trait |
//! | `turn` | whose turn it is to insert a batch |
//! | `holds` | reasons not to lend |
//! | `health` | ejection, recovery, cooldown |
//! | `deadlines` | how long leases may be held |
//! | `drain` | waiting until leases have come back |
//! | `query`, `stats`, `explain`, `telemetry` | looking |
//! | `wait` | waiting: the queue of threads and tasks; what time demands |
//! | `error` | one error type per family |

mod acquire;
mod affinity;
mod batch;
mod builder;
mod core;
mod deadlines;
mod drain;
mod error;
mod explain;
mod filter;
mod health;
mod held;
mod holds;
mod insert;
mod lease;
mod lend;
#[cfg(feature = "telemetry")]
mod order;
mod query;
mod returning;
mod snapshot;
mod stats;
#[cfg(feature = "telemetry")]
mod telemetry;
mod token;
mod turn;
mod update;
mod wait;

use std::{fmt, hash::BuildHasher};

pub use affinity::Affinity;
pub use builder::{Builder, Overflow};
pub use deadlines::{LeaseInfo, Overdue};
pub use drain::{Drain, DrainReport, Outstanding};
pub use error::{
    AcquireError, AcquireKeyError, BuildError, InsertError, KeyError, NoneEligible, Reasons, Rejected,
    ReleaseError, UpdateError, WeightsError,
};
pub use explain::{Candidate, Explanation, Preference, Why};
use lease::outcome_count;
pub use lease::{Lease, OwnedLease};
pub use query::Peek;
use returning::Ending;
pub use snapshot::{ResourceState, Snapshot};
pub use stats::{HoldCounts, Stats};
#[cfg(feature = "telemetry")]
pub use telemetry::{Distribution, Telemetry};
pub use token::{ParseTokenError, Token};
pub use update::Removed;
#[cfg(not(any(loom, shuttle)))]
pub use wait::ThreadTimer;
pub use wait::{
    Acquire, AcquireMany, AcquireManyOwned, AcquireOwned, Fairness, Matching, One, Request, Several, Timer,
    WaitError, WaitStats,
};

use self::core::Core;
#[cfg(not(any(loom, shuttle)))]
use crate::events::{ObserveError, Observer};
use crate::{
    DefaultHashBuilder,
    events::{Closing, EventKind},
    outcome::Outcome,
    resource::Resource,
    sync::{Arc, atomic::Ordering},
};

/// Lends the best available resource of a fleet to many callers at once.
///
/// See the [crate documentation](crate) for an overview. All methods take `&self` and may be called from any thread. The
/// scheduler starts no thread but those of [observers](Builder::observer), reads no environment variable, and shares nothing with others but
/// the list of threads that may be reading what is to be freed (`collect_garbage`).
pub struct Scheduler<R: Resource, S = DefaultHashBuilder> {
    core: Arc<Core<R>>,
    hasher: S,
}

impl<R: Resource> Scheduler<R> {
    /// Settings for a new scheduler.
    pub fn builder() -> Builder<R> {
        Builder::new()
    }
}

impl<R: Resource, S: BuildHasher> Scheduler<R, S> {
    /// Returns the lease of a token.
    ///
    /// Blocking on the home shard's lock; O(log n). Of several returns of equal tokens exactly one succeeds. Works on a
    /// closed scheduler too.
    ///
    /// # Errors
    /// [`ReleaseError`]; nothing is touched then.
    ///
    /// ```
    /// use leasehold::{Entry, ReleaseError, Scheduler};
    ///
    /// let scheduler = Scheduler::<Entry<u8, u32, ()>>::builder().build()?;
    /// scheduler.insert(Entry::new(1, 0, ()))?;
    /// let token = scheduler.acquire()?.into_token();
    /// scheduler.release(token)?;
    /// assert!(matches!(scheduler.release(token), Err(ReleaseError::Stale { .. })));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn release(&self, token: Token) -> Result<(), ReleaseError> {
        self.core.redeem(token, &Ending::default())
    }

    /// Returns the lease of a token and says how the work went, as [`Lease::finish`].
    ///
    /// # Errors
    /// As [`release`](Scheduler::release).
    pub fn finish(&self, token: Token, outcome: Outcome) -> Result<(), ReleaseError> {
        self.core.redeem(token, &self.core.judge(outcome))
    }

    /// Closes the scheduler: whatever would lend or change the fleet answers `Closed` from now on, and every wait ends with it. What has no
    /// error for that does nothing: [`evict_worst`](Scheduler::evict_worst) and [`undrain_all`](Scheduler::undrain_all) answer that there was
    /// nothing.
    ///
    /// Leases stay valid, and returns land. What brings leases back still works: `revoke`, `reap_overdue`, and the drains that wait
    /// (`drain_all`, `drain_timeout` and their like); and so does [`tick`](Scheduler::tick), which lets time pass. Looking (`get`, `peek`, `len`,
    /// `stats`, `snapshot`, `leases`, `resource_stats`, `telemetry`, `take_events`) still answers.
    ///
    /// Blocking on the queue of those who wait, for a moment. Idempotent: `true` for the one call that closed it. An acquisition that
    /// began before may still succeed.
    ///
    /// Observers are told of all that has happened before, and their threads are waited for, unless an observer is the one who closes.
    /// Nobody is called after this has returned, and an event that hangs while it is recorded is waited for no longer than
    /// [`Closing::Flush`] says. What happens later, ends of waits among it, can be taken out with [`take_events`](Scheduler::take_events).
    pub fn close(&self) -> bool {
        self.close_with(Closing::Flush)
    }

    /// As [`close`](Scheduler::close), and says what happens to events that observers have not been told of.
    pub fn close_with(&self, closing: Closing) -> bool {
        // AcqRel: Release pairs with the Acquire in `is_closed`; Acquire lets a second closer see what the first one did.
        let closed = !self.core.closed.swap(true, Ordering::AcqRel);
        self.core.fail_everybody();
        if closed {
            let flushed = self.core.hub.as_ref().filter(|_| closing == Closing::Flush);
            flushed.inspect(|hub| hub.begin_flush());
            self.core.tell(EventKind::Closed, None);
            flushed.inspect(|hub| hub.mark_flush());
        }
        #[cfg(not(any(loom, shuttle)))]
        self.core.dispatchers.stop(closing, closed);
        closed
    }

    /// Tells somebody of events from now on, in a thread of its own; also of those that nobody has taken out yet. What was dropped before
    /// the first event that it sees is not told.
    ///
    /// As [`Builder::observer`], for somebody who needs the scheduler, for instance to call it back: give it a
    /// [`Weak`](std::sync::Weak) reference. O(shards).
    ///
    /// # Errors
    /// [`ObserveError`]: the scheduler is closed, was built without [`event_capacity`](Builder::event_capacity), or there is no thread.
    #[cfg(not(any(loom, shuttle)))]
    pub fn observe(&self, observer: impl Observer<R::Key> + 'static) -> Result<(), ObserveError> {
        self.core.observe(None, Box::new(observer))
    }

    /// What an observer's thread reads from, without the thread: for models.
    #[cfg(any(test, loom, shuttle, feature = "internals"))]
    #[doc(hidden)]
    pub fn event_reader(&self) -> Option<crate::events::Reader<R>> {
        self.core.hub.as_ref().map(|hub| crate::events::Hub::reader(hub, Some(0)))
    }

    /// One turn of an observer's thread at the rings: for models. Answers whether there was more than fits into a batch.
    #[cfg(any(test, loom, shuttle, feature = "internals"))]
    #[doc(hidden)]
    pub fn pump_events(&self, wait: bool) -> bool {
        self.core.hub.as_ref().is_some_and(|hub| hub.pump(wait))
    }

    /// Whether the scheduler is closed.
    pub fn is_closed(&self) -> bool {
        self.core.is_closed()
    }

    /// How many shards there are.
    pub fn shards(&self) -> usize {
        self.core.shards.len()
    }

    /// Panics unless the whole structure is consistent: for tests, models and fuzz targets. Nothing else may be going on.
    #[cfg(any(test, loom, shuttle, feature = "internals"))]
    #[doc(hidden)]
    pub fn check_invariants(&self) -> crate::shard::Tally {
        self.core.check_invariants()
    }
}

impl<R: Resource, S> fmt::Debug for Scheduler<R, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheduler")
            .field("shards", &self.core.shards.len())
            .field("members", &self.core.roster.members())
            .field("closed", &self.core.is_closed())
            .finish_non_exhaustive()
    }
}
