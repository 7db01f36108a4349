//! How a pool is doing.

use super::{EndingKind, Metrics, Pool, RejectReason, queue::JobQueue};
use crate::sync::atomic::Ordering;

/// How a pool is doing. Each number is of its own moment; at rest they agree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStats {
    /// Workers that there are.
    pub workers: usize,
    /// Workers that sleep.
    pub idle: usize,
    /// Jobs in the queue.
    pub queued: usize,
    /// Jobs that a worker has taken and not begun, where others may take them.
    pub taken: usize,
    /// Submitters that wait for room.
    pub waiting: usize,
    /// Jobs that wait for a lease, or with one for room: see [`Pool::submit_with_lease`].
    pub awaiting_lease: usize,
    /// Jobs that waited for a lease, or with one for room, and were not run: the pool had no more time for them, and a shutdown hands them back
    /// ([`Shutdown::unlent`](super::Shutdown::unlent)) or a drop drops them; or what they waited with panicked.
    pub given_up: usize,
    /// Jobs that waited for a lease and have ended without one, for there was none: their handles were told. Never in the queue, they are not among the other
    /// endings.
    pub unlent: u64,
    /// Jobs that were accepted and not run: a shutdown has handed them back ([`Shutdown::unrun`](super::Shutdown::unrun)).
    pub handed_back: u64,
    /// How often there came to be more workers; also by one that was about to go, and has found something to do.
    pub scaled_up: u64,
    /// How often there came to be fewer. Those that end with the pool are not among them.
    pub scaled_down: u64,
    /// How often the system has started no thread when one more worker was to come.
    pub unstarted: u64,
    /// Jobs that ended well.
    pub done: u64,
    /// Jobs that returned an error.
    pub failed: u64,
    /// Jobs that panicked.
    pub panicked: u64,
    /// Jobs that were cancelled before they began.
    pub cancelled: u64,
    /// Submissions that were refused because the queue was full.
    pub rejected_full: u64,
    /// Submissions that were refused because the pool was closed.
    pub rejected_closed: u64,
    /// Submissions that were refused because the job was cancelled.
    pub rejected_cancelled: u64,
    /// Submissions that found no room in time.
    pub rejected_timed_out: u64,
}

impl<T: Send + 'static, M: Metrics> Pool<T, M> {
    /// How the pool is doing. Wait-free but for the queue's length and the number of those that wait for leases, which is under a mutex for a
    /// moment; O(workers).
    pub fn stats(&self) -> PoolStats {
        let core = &*self.core;
        let count = core.beds.count();
        // Relaxed, both: counts.
        let ended = |kind: EndingKind| {
            let tallies = core.tallies.iter();
            tallies.map(|tally| tally.ended[kind as usize].load(Ordering::Relaxed)).sum()
        };
        let rejected = |reason: RejectReason| core.rejected[reason as usize].load(Ordering::Relaxed);
        PoolStats {
            workers: count.workers,
            idle: count.asleep,
            queued: core.queue.len(),
            taken: core.trays.iter().map(super::tray::Tray::waiting).sum(),
            waiting: core.room.waiting(),
            awaiting_lease: core.errands.count(),
            given_up: core.given_up(),
            scaled_up: core.scaled[0].load(Ordering::Relaxed),
            scaled_down: core.scaled[1].load(Ordering::Relaxed),
            unlent: core.unlent.load(Ordering::Relaxed),
            handed_back: core.handed_back.load(Ordering::Relaxed),
            unstarted: core.unstarted.load(Ordering::Relaxed),
            done: ended(EndingKind::Done),
            failed: ended(EndingKind::Failed),
            panicked: ended(EndingKind::Panicked),
            cancelled: ended(EndingKind::Cancelled),
            rejected_full: rejected(RejectReason::Full),
            rejected_closed: rejected(RejectReason::Closed),
            rejected_cancelled: rejected(RejectReason::Cancelled),
            rejected_timed_out: rejected(RejectReason::TimedOut),
        }
    }

    /// What is told what happens.
    pub fn metrics(&self) -> &M {
        &self.core.metrics
    }
}
