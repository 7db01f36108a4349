//! A pool of workers: bounded, with batches, priorities, back-pressure, and a shutdown that tells the truth.
//!
//! ```
//! use leasehold::pool::{Job, Pool};
//! use std::{sync::atomic::{AtomicU64, Ordering}, time::Duration};
//!
//! static SUM: AtomicU64 = AtomicU64::new(0);
//!
//! let pool = Pool::builder().workers(2).capacity(100).build()?;
//! for number in 1..=1_000u64 {
//!     // Waits while the queue is full. No allocation: the payload and a plain function.
//!     pool.submit(Job::new(number, |number, _| {
//!         SUM.fetch_add(*number, Ordering::Relaxed);
//!         Ok(())
//!     }))?;
//! }
//! assert!(pool.shutdown(Duration::from_secs(10)).is_complete());
//! assert_eq!(SUM.load(Ordering::Relaxed), 500_500);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | module | idea |
//! |---|---|
//! | `queue` | where jobs wait: segments, first in first out; revolving buckets, by priority |
//! | `job`, `task`, `handle`, `cancel` | what is run, and what becomes of it |
//! | `tray` | what a worker has taken and not begun, where the others see it |
//! | `worker`, `beds` | who works, who sleeps, who is woken |
//! | `room`, `submit` | how jobs come in, and who waits for room |
//! | `lease`, `lease_job` | jobs that run with a lease of a scheduler |
//! | `keeper`, `marks` | the one who looks again after a while; how many workers there are |
//! | `life`, `shutdown` | how threads begin and end |
//!
//! # What a job goes through
//!
//! ```text
//!   try_submit, submit, ...     queue          tray of a worker          run: Done, Failed, Panicked
//!        |  full, closed:         |                   |
//!        v  it comes back         |  a batch          |  one by one       cancelled before: Cancelled
//!      accepted ----------------> + ----------------> + ----------------> cleanup, handle
//!                                 |                   |
//!                                 +------ shutdown, when time is up: handed back; pool dropped: Dropped, cleanup, handle
//! ```
//!
//! # Guarantees
//!
//! * **Once.** A job that was accepted is run once, or ends cancelled or dropped, or is handed back by a shutdown. Its cleanup runs once in
//!   each case but the last, where the job is the caller's again.
//! * **Bounded.** Never more jobs wait than the capacity; up to one batch of 64 for each worker has been taken and not begun.
//!   What waits for a lease is not among them ([`Pool::submit_with_lease`]): its bound is that of its scheduler, [`max_waiters`](crate::Builder::max_waiters).
//! * **Nothing is hidden.** What a worker has taken and not begun, others may take; a job that turns out long holds up those behind it
//!   for about a millisecond, if a worker is idle.
//! * **A lone job starts at once** if all workers sleep: one is woken for it. So it does while jobs are long and one sleeps, and beside jobs that have
//!   turned out long, after a millisecond or two in which nothing else came. While jobs are known to be short and somebody is awake, that one is
//!   expected to come to it: if he is in a job that turns out long, another one is woken a millisecond or two later.
//! * **Idle is idle.** No thread of a pool wakes up while there is nothing to do. Unless the system refuses the barrier that it has promised (`membarrier`,
//!   with which it orders who lies down): then each idle worker looks again every millisecond.
//! * **Panics stay where they are.** Those of jobs, cleanups, handlers, payloads' `Drop`, metrics and wakers stop in the pool; the worker
//!   goes on. So do workers and the keeper if the clock panics: what asks for times is not done until it tells them again.
//! * **Shutdown drains, and tells the truth**: within its limit what was accepted is run, jobs that wait for a lease as well; what was not is handed
//!   back, those that still wait for a lease as [`LeaseJob`]s, which go on waiting. See [`Pool::shutdown`].
//!
//! # Limitations
//!
//! * The keeper's millisecond is a bound on how long a job is overlooked, not on how long it waits.
//! * Who waits for room is rung in turn, and then has to be faster than newcomers: no place is kept for it.
//! * A job that never ends keeps its thread. Nothing can stop it; [`Context::is_cancelled`] asks it to.
//! * With several workers, first in first out is the order in which jobs are taken, in batches; not that in which they end.

// In a model some bounds are nothing, so that each step is one that the model takes.
#![cfg_attr(any(loom, shuttle), allow(clippy::absurd_extreme_comparisons, clippy::reversed_empty_ranges))]
// Clippy resolves the facade's names to the types behind them and cannot tell the way through it from the way around.
#![allow(clippy::disallowed_types)]

use std::fmt;

use crate::sync::Arc;

mod beds;
mod builder;
mod cancel;
mod core;
mod handle;
mod job;
mod keeper;
mod lease;
mod lease_job;
mod life;
mod marks;
mod metrics;
mod pinning;
mod queue;
mod room;
mod shutdown;
mod stats;
mod submit;
mod task;
mod tray;
mod worker;

pub use builder::{BuildError, Builder, Order};
pub use cancel::CancelToken;
pub use handle::{Finished, JobHandle};
pub use job::{Cleanup, Context, Ending, EndingKind, Failure, Job, Run};
pub use lease_job::{LeaseJob, LeaseJobError};
pub use metrics::{AtomicMetrics, Histogram, Metrics, NoMetrics};
pub use queue::{BucketQueue, JobPriority, JobQueue, PushError, Refusal, SegmentedQueue};
pub use shutdown::Shutdown;
pub use stats::PoolStats;
pub use submit::{RejectReason, SubmitError, SubmitFuture};
pub use task::{Task, TaskHandle};

/// What models look at by itself.
#[cfg(any(loom, shuttle, feature = "internals"))]
#[doc(hidden)]
pub(crate) mod inner {
    #[cfg(any(loom, shuttle))]
    pub use super::keeper::Memory;
    pub use super::{
        keeper::Keeper,
        room::{InLine, Room},
        tray::{Hand, Next, Tray},
    };
}

/// The most workers that a pool can have.
pub const MAX_WORKERS: usize = 1 << 14;

/// Workers that run jobs, and a queue in which jobs wait for them.
///
/// Shared by reference, or in an `Arc`. Dropping it drops what was not begun and waits for nobody; [`shutdown`](Pool::shutdown) ends it in
/// order. See the [module](self) for what it guarantees.
pub struct Pool<T: Send + 'static, M: Metrics = NoMetrics> {
    core: Arc<core::Core<T, M>>,
}

impl<T: Send + 'static> Pool<T> {
    /// Sets up a pool.
    pub fn builder() -> Builder<T> {
        Builder::new()
    }
}

impl<T: Send + 'static, M: Metrics> fmt::Debug for Pool<T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("stats", &self.stats()).finish()
    }
}
