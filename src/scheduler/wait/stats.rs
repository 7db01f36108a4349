//! Counts of waits: each where the wait begins or ends.

// Clippy resolves the facade's names to the types behind them and cannot tell the way through it from the way around.
#![allow(clippy::disallowed_types)]

use crate::sync::{CachePadded, atomic::Ordering, count::AtomicU64, thread_hint};

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
    /// Units that were taken on behalf of requests that wait, and came back without having been anybody's lease: the request had ended
    /// meanwhile, with nobody else there, or had not got all that it wanted; or the resource was removed, held, or updated, on the way. They are in [`Stats::lent`](crate::Stats::lent) and in
    /// `returned`.
    pub unused: u64,
    /// How long those in `handed_off` have waited, together, in nanoseconds; and those who are just about to be counted there.
    pub waiting_nanos: u64,
    /// How long those have waited who got nothing, those in `timed_out`, `cancelled`, `failed` and `closed`, together, in nanoseconds; and those
    /// who are just about to be counted there. Until their request has heard of it: a task that is polled late has waited until then.
    pub waited_in_vain_nanos: u64,
    /// How many of those in `handed_off`, and of those who are just about to be counted there, have waited for 2^i nanoseconds and less than 2^(i+1), at index i; index 0 has those
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

/// Threads that count in different stripes do not wait for each other's cache lines. A power of two.
#[cfg(not(any(loom, shuttle)))]
const STRIPES: usize = 8;
#[cfg(any(loom, shuttle))]
const STRIPES: usize = 1;

/// The counters behind [`WaitStats`]. Each orders nothing but itself.
#[derive(Debug, Default)]
pub struct Counts {
    // Boxed: a scheduler is moved a few times while it is built, on whatever stack.
    stripes: Box<[CachePadded<Stripe>; STRIPES]>,
}

/// What some of the threads have counted. A wait changes its first cache line, and the one with its length's bucket.
#[derive(Debug)]
#[repr(C)]
struct Stripe {
    waited: AtomicU64,
    endings: [AtomicU64; 5],
    nanos: AtomicU64,
    vain: AtomicU64,
    histogram: [AtomicU64; BUCKETS],
    shed: AtomicU64,
    refused: AtomicU64,
    unused: AtomicU64,
    /// Of those who did not wait.
    in_vain: AtomicU64,
}

impl Default for Stripe {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        Stripe {
            waited: zero(),
            endings: std::array::from_fn(|_| zero()),
            nanos: zero(),
            vain: zero(),
            histogram: std::array::from_fn(|_| zero()),
            shed: zero(),
            refused: zero(),
            unused: zero(),
            in_vain: zero(),
        }
    }
}

// Relaxed, but for `ended`: counts, changed by read-modify-writes only.
impl Counts {
    fn stripe(&self) -> &Stripe {
        // The high bits of a product have all of a factor's in them.
        let mixed = (thread_hint() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.stripes[(mixed >> 32) as usize & (STRIPES - 1)]
    }

    pub fn began(&self) {
        self.stripe().waited.fetch_add(1, Ordering::Relaxed);
    }

    pub fn ended(&self, ending: Ending) {
        // Release: pairs with the Acquire in `read`: who sees the end of a wait sees its beginning and its length, which the same request
        // has counted before, in whatever stripe.
        // Survives Release -> Relaxed: loom does not see counts (`sync::count`); a reader would have to see the later of two
        // read-modify-writes of one thread without the earlier, on other words, which this processor never shows.
        self.stripe().endings[ending as usize].fetch_add(1, Ordering::Release);
    }

    /// How long one of those handed off has waited.
    pub fn took(&self, nanos: u64) {
        let stripe = self.stripe();
        stripe.nanos.fetch_add(nanos, Ordering::Relaxed);
        stripe.histogram[(nanos | 1).ilog2() as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How long one has waited who got nothing.
    pub fn waited_in_vain(&self, nanos: u64) {
        self.stripe().vain.fetch_add(nanos, Ordering::Relaxed);
    }

    pub fn shed(&self) {
        self.stripe().shed.fetch_add(1, Ordering::Relaxed);
    }

    pub fn refused(&self) {
        self.stripe().refused.fetch_add(1, Ordering::Relaxed);
    }

    /// A unit has come back that nobody has used.
    pub fn unused(&self) {
        self.stripe().unused.fetch_add(1, Ordering::Relaxed);
    }

    /// Somebody who does not wait has found nothing.
    pub fn in_vain(&self) {
        self.stripe().in_vain.fetch_add(1, Ordering::Relaxed);
    }

    /// How often that was so.
    pub fn read_in_vain(&self) -> u64 {
        self.sum(|stripe| stripe.in_vain.load(Ordering::Relaxed))
    }

    fn sum(&self, of: impl Fn(&Stripe) -> u64) -> u64 {
        // As the read-modify-writes do, a sum of times wraps around.
        self.stripes.iter().fold(0, |sum, stripe| sum.wrapping_add(of(stripe)))
    }

    pub fn read(&self) -> WaitStats {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        // Acquire, and before the beginnings and lengths are read: see `ended`. Never more ends than waits, nor than lengths.
        // Survives Acquire -> Relaxed: as its partner in `ended`.
        let ending =
            |ending: Ending| self.sum(|stripe| stripe.endings[ending as usize].load(Ordering::Acquire));
        let (handed_off, timed_out) = (ending(Ending::HandedOff), ending(Ending::TimedOut));
        let (cancelled, failed) = (ending(Ending::Cancelled), ending(Ending::Failed));
        let closed = ending(Ending::Closed);
        WaitStats {
            waited: self.sum(|stripe| read(&stripe.waited)),
            handed_off,
            timed_out,
            cancelled,
            failed,
            closed,
            shed: self.sum(|stripe| read(&stripe.shed)),
            refused: self.sum(|stripe| read(&stripe.refused)),
            unused: self.sum(|stripe| read(&stripe.unused)),
            waiting_nanos: self.sum(|stripe| read(&stripe.nanos)),
            waited_in_vain_nanos: self.sum(|stripe| read(&stripe.vain)),
            histogram: (0..BUCKETS).map(|i| self.sum(|stripe| read(&stripe.histogram[i]))).collect(),
        }
    }
}
