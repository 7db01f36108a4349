//! Distributions: how long leases are held, how long requests wait, how far from the best what is lent is.
//!
//! Off unless the builder asks, and then nobody takes the shortest way: an acquisition reads the clock and notes the moment in its
//! guard, a return reads it again and adds the difference to the histogram of its stripe, with no shard's lock held. Stripes are
//! chosen by thread; each has a mutex that two threads of one stripe, and whoever reads, share for as long as an addition takes.
//!
//! The error in rank is sampled: of every so many plain acquisitions of a thread's stripe, one looks at what the other shards show, and counts
//! those that show something better. A hint: what they show may have changed since the choice. Whoever names a key, an id or a filter has not asked for
//! the best, and is not sampled; nor is a wait.

use std::sync::PoisonError;

use hdrhistogram::Histogram;

use super::core::Core;
use crate::{
    node::quietly,
    resource::Resource,
    strategy::ShardView,
    sync::{
        CachePadded, Mutex,
        atomic::{AtomicU32, Ordering},
        thread_hint,
    },
};

/// The longest time that is told apart, in nanoseconds: an hour.
const LONGEST: u64 = 3_600_000_000_000;
/// Significant digits.
const DIGITS: u8 = 2;

/// What one stripe has measured.
struct Stripe {
    holds: Histogram<u64>,
    waits: Histogram<u64>,
    rank_errors: Histogram<u64>,
    sums: [u64; 3],
}

impl Stripe {
    fn new() -> Self {
        let times = || Histogram::new_with_bounds(1, LONGEST, DIGITS).expect("bounds in range");
        let shards = Histogram::new_with_bounds(1, crate::shard_set::MAX_SHARDS as u64, DIGITS);
        Stripe { holds: times(), waits: times(), rank_errors: shards.expect("bounds in range"), sums: [0; 3] }
    }
}

/// What the threads of one stripe share.
struct Part {
    stripe: Mutex<Stripe>,
    /// Acquisitions, to tell which are sampled.
    count: AtomicU32,
}

/// Where acquisitions and returns are measured.
pub struct Meters {
    stripes: Box<[CachePadded<Part>]>,
    /// One of so many acquisitions is looked at for its rank.
    every: u32,
}

/// A distribution, as far as it was measured.
#[derive(Clone, Debug)]
pub struct Distribution {
    histogram: Histogram<u64>,
    sum: u64,
}

impl Distribution {
    /// How many values there are.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Their sum: of the values themselves, not of what the histogram makes of them. Saturates at 2^64 - 1: in nanoseconds, 584 years.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// The value that `quantile` of all values, 0 to 1, are not above: two significant digits, so up to 1 % too great. A time of more
    /// than an hour counts as an hour here, and in `max` and `counts`.
    pub fn quantile(&self, quantile: f64) -> u64 {
        self.histogram.value_at_quantile(quantile)
    }

    /// The greatest, with two significant digits; an hour for any time above.
    pub fn max(&self) -> u64 {
        self.histogram.max()
    }

    /// How many are in each bucket, by upper bounds that grow. Values up to 1 % above a bound may count as below it: the histogram
    /// keeps two significant digits.
    pub fn counts(&self, bounds: impl IntoIterator<Item = f64>) -> Vec<u64> {
        let mut below = 0;
        let counts = bounds.into_iter().map(|bound| {
            // Saturates: the greatest bound takes the rest.
            let up_to = if bound as u64 >= LONGEST {
                self.count()
            } else {
                self.histogram.count_between(0, bound as u64)
            };
            let count = up_to.saturating_sub(below);
            below = below.max(up_to);
            count
        });
        counts.collect()
    }
}

/// What was measured so far; see [`Scheduler::telemetry`](crate::Scheduler::telemetry).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Telemetry {
    /// How long leases were held, in nanoseconds.
    pub holds: Distribution,
    /// How long requests waited that ended with a lease, in nanoseconds.
    pub waits: Distribution,
    /// Shards that showed something better than what was lent, of those calls of [`acquire`](crate::Scheduler::acquire) and
    /// [`acquire_owned`](crate::Scheduler::acquire_owned) that were sampled.
    pub rank_errors: Distribution,
}

impl Meters {
    pub fn new(every: u32) -> Self {
        let stripes = crate::sync::parallelism().next_power_of_two().clamp(1, 16);
        let stripe =
            |_| CachePadded::new(Part { stripe: Mutex::new(Stripe::new()), count: AtomicU32::new(0) });
        Meters { stripes: (0..stripes).map(stripe).collect(), every }
    }

    fn part(&self) -> &Part {
        let hash = (thread_hint() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        &self.stripes[hash as usize & (self.stripes.len() - 1)]
    }

    fn add(&self, which: usize, value: u64) {
        let mut stripe = self.part().stripe.lock().unwrap_or_else(PoisonError::into_inner);
        stripe.sums[which] = stripe.sums[which].saturating_add(value);
        let Stripe { holds, waits, rank_errors, .. } = &mut *stripe;
        [holds, waits, rank_errors][which].saturating_record(value);
    }

    /// A wait has ended with a lease.
    pub fn waited(&self, nanos: u64) {
        self.add(1, nanos);
    }

    /// Whether this acquisition is one of the sample.
    fn samples(&self) -> bool {
        // Relaxed: a count that may lose one.
        let count = &self.part().count;
        let next = count.load(Ordering::Relaxed).wrapping_add(1);
        count.store(next, Ordering::Relaxed);
        self.every > 0 && next.is_multiple_of(self.every)
    }

    fn read(&self) -> Telemetry {
        let mut sum = Stripe::new();
        for stripe in &self.stripes {
            let stripe = stripe.stripe.lock().unwrap_or_else(PoisonError::into_inner);
            for (sum, part) in [
                (&mut sum.holds, &stripe.holds),
                (&mut sum.waits, &stripe.waits),
                (&mut sum.rank_errors, &stripe.rank_errors),
            ] {
                sum.add(part).expect("made alike");
            }
            sum.sums.iter_mut().zip(stripe.sums).for_each(|(sum, part)| *sum = sum.saturating_add(part));
        }
        let [holds, waits, rank_errors] = sum.sums;
        Telemetry {
            holds: Distribution { histogram: sum.holds, sum: holds },
            waits: Distribution { histogram: sum.waits, sum: waits },
            rank_errors: Distribution { histogram: sum.rank_errors, sum: rank_errors },
        }
    }
}

impl<R: Resource> Core<R> {
    /// Something was lent: what is to be noted in its guard. 0: nothing is measured. Runs user code, the clock.
    #[inline]
    pub fn lease_began(&self) -> u64 {
        // A clock that panics, or that stands at its origin, makes this lease one that is not measured.
        self.meters.as_ref().map_or(0, |_| quietly(|| self.now()).unwrap_or(0))
    }

    /// The best was asked for, and this was lent: what the other shards show, if this acquisition is one of the sample.
    #[inline]
    pub fn sample_rank(&self, shard: usize, rank: u64) {
        if let Some(meters) = self.meters.as_ref().filter(|meters| meters.samples()) {
            self.measure_rank(meters, shard, rank);
        }
    }

    #[cold]
    fn measure_rank(&self, meters: &Meters, shard: usize, rank: u64) {
        let others = (0..self.shards.len()).filter(|&other| other != shard);
        let better = others.filter(|&other| self.best_rank(other).is_some_and(|best| best < rank)).count();
        meters.add(2, better as u64);
    }

    /// A lease that began then has ended. The lock is free.
    #[cold]
    pub fn lease_ended(&self, since: u64) {
        if let Some(meters) = &self.meters {
            let now = quietly(|| self.now()).unwrap_or(since);
            meters.add(0, now.saturating_sub(since));
        }
    }
}

impl<R: Resource, S> super::Scheduler<R, S> {
    /// The distributions that were measured so far; `None` unless [`Builder::measure`](crate::Builder::measure) asked for them.
    ///
    /// Blocking on one stripe's mutex at a time. Allocates histograms of about 40 kB. Values that are added meanwhile may be missing.
    ///
    /// ```
    /// use leasehold::{Entry, Scheduler};
    ///
    /// let scheduler = Scheduler::<Entry<u8, u32, ()>>::builder().measure(1).build()?;
    /// scheduler.insert(Entry::new(1, 0, ()))?;
    /// drop(scheduler.acquire()?);
    /// let telemetry = scheduler.telemetry().expect("asked for");
    /// assert_eq!((telemetry.holds.count(), telemetry.rank_errors.max()), (1, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn telemetry(&self) -> Option<Telemetry> {
        self.core.meters.as_ref().map(Meters::read)
    }
}
