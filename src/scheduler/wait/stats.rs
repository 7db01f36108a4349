//! Counts of waits: each where the wait begins or ends.

// Clippy resolves the facade's names to the types behind them and cannot tell the way through it from the way around.
#![allow(clippy::disallowed_types)]

use crate::sync::{CachePadded, atomic::Ordering, count::AtomicU64};

/// What has become of requests that had to wait.
///
/// Each wait that has ended is counted once: `waited - (handed_off + timed_out + cancelled + failed + closed)` are waiting now (or
/// were leaked): a number that is never negative, also while waits begin and end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct WaitStats {
    /// Requests that were let into the queue.
    pub waited: u64,
    /// Waits that ended with a lease.
    pub handed_off: u64,
    /// Waits that ended with their deadline.
    pub timed_out: u64,
    /// Waits that were given up: a future was dropped.
    pub cancelled: u64,
    /// Waits that ended because the resource was removed, or a callback panicked or chose wrongly.
    pub failed: u64,
    /// Waits that ended with the closing of the scheduler.
    pub closed: u64,
    /// Requests that were told at once that their deadline could not be met. They are not in `waited`.
    pub shed: u64,
    /// Requests that were refused because too many waited. They are not in `waited`.
    pub refused: u64,
    /// How long those in `handed_off` have waited, together, in nanoseconds.
    pub waiting_nanos: u64,
    /// How many of those in `handed_off` have waited for 2^i nanoseconds and less than 2^(i+1), at index i; index 0 has those
    /// below 2.
    pub histogram: Vec<u64>,
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Ending {
    HandedOff,
    TimedOut,
    Cancelled,
    Failed,
    Closed,
}

/// Powers of two of nanoseconds.
const BUCKETS: usize = 64;

/// The counters behind [`WaitStats`]. Each orders nothing but itself.
#[derive(Debug)]
pub struct Counts {
    waited: CachePadded<AtomicU64>,
    endings: [AtomicU64; 5],
    shed: AtomicU64,
    refused: AtomicU64,
    nanos: AtomicU64,
    histogram: [AtomicU64; BUCKETS],
}

impl Default for Counts {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        Counts {
            waited: CachePadded::new(zero()),
            endings: std::array::from_fn(|_| zero()),
            shed: zero(),
            refused: zero(),
            nanos: zero(),
            histogram: std::array::from_fn(|_| zero()),
        }
    }
}

// Relaxed, but for `ended`: counts, changed by read-modify-writes only.
impl Counts {
    pub fn began(&self) {
        self.waited.fetch_add(1, Ordering::Relaxed);
    }

    pub fn ended(&self, ending: Ending) {
        // Release: pairs with the Acquire in `read`: who sees the end of a wait sees its beginning, which the same request has
        // counted before.
        // Survives Release -> Relaxed: loom does not see counts (`sync::count`); a reader would have to see the later of two
        // read-modify-writes of one thread without the earlier, on other words, which this processor never shows.
        self.endings[ending as usize].fetch_add(1, Ordering::Release);
    }

    /// How long one of those handed off has waited.
    pub fn took(&self, nanos: u64) {
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
        self.histogram[(nanos | 1).ilog2() as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub fn shed(&self) {
        self.shed.fetch_add(1, Ordering::Relaxed);
    }

    pub fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub fn read(&self) -> WaitStats {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        // Acquire, and before the beginnings are read: see `ended`. Never more ends than waits.
        // Survives Acquire -> Relaxed: as its partner in `ended`.
        let endings = self.endings.each_ref().map(|count| count.load(Ordering::Acquire));
        let ending = |ending: Ending| endings[ending as usize];
        WaitStats {
            waited: read(&self.waited),
            handed_off: ending(Ending::HandedOff),
            timed_out: ending(Ending::TimedOut),
            cancelled: ending(Ending::Cancelled),
            failed: ending(Ending::Failed),
            closed: ending(Ending::Closed),
            shed: read(&self.shed),
            refused: read(&self.refused),
            waiting_nanos: read(&self.nanos),
            histogram: self.histogram.iter().map(read).collect(),
        }
    }
}
