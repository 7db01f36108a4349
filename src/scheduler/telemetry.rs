//! Distributions: how long leases are held, how long requests wait, how far from the best what is lent is.
//!
//! Off unless the builder asks, and then nobody takes the shortest way: an acquisition reads the clock and notes the moment in its
//! guard, a return reads it again and adds the difference to the histogram of its stripe, with no shard's lock held. Stripes are
//! chosen by thread; each has a mutex that two threads of one stripe, and whoever reads, share for as long as an addition takes.
//!
//! The error in rank is sampled: of every so many plain acquisitions of a thread's cell, one looks at what the other shards show, and counts
//! those that show something better. A hint: what they show may have changed since the choice. Whoever names a key, an id or a filter has not
//! asked for the best, and is not sampled; nor is a wait. With [`Builder::measure_order`] nothing else is done, the clock is not read, and the
//! shortest way is taken: what it costs is a countdown in the cell that the choice of a shard has just used.
//!
//! [`Builder::measure_order`]: crate::Builder::measure_order

use std::sync::PoisonError;

use hdrhistogram::Histogram;

use super::core::Core;
use crate::{
    node::quietly,
    resource::Resource,
    strategy::{Cell, ShardView},
    sync::{CachePadded, Mutex, thread_hint},
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

/// Where acquisitions and returns are measured.
pub struct Meters {
    stripes: Box<[CachePadded<Mutex<Stripe>>]>,
    /// One of so many acquisitions is looked at for its rank; 0: none.
    every: u32,
    /// Whether leases and waits are timed.
    times: bool,
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

#[cfg(feature = "metrics")]
impl Telemetry {
    /// Nothing was measured.
    pub(crate) fn nothing() -> Self {
        Meters::new(0, false).read()
    }
}

impl Meters {
    pub fn new(every: u32, times: bool) -> Self {
        let stripes = crate::sync::parallelism().next_power_of_two().clamp(1, 16);
        let stripe = |_| CachePadded::new(Mutex::new(Stripe::new()));
        Meters { stripes: (0..stripes).map(stripe).collect(), every, times }
    }

    /// Whether leases and waits are timed.
    pub fn times(&self) -> bool {
        self.times
    }

    fn stripe(&self) -> &Mutex<Stripe> {
        let hash = (thread_hint() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        &self.stripes[hash as usize & (self.stripes.len() - 1)]
    }

    fn add(&self, which: usize, value: u64) {
        let mut stripe = self.stripe().lock().unwrap_or_else(PoisonError::into_inner);
        stripe.sums[which] = stripe.sums[which].saturating_add(value);
        let Stripe { holds, waits, rank_errors, .. } = &mut *stripe;
        [holds, waits, rank_errors][which].saturating_record(value);
    }

    /// A wait has ended with a lease.
    pub fn waited(&self, nanos: u64) {
        self.add(1, nanos);
    }

    fn read(&self) -> Telemetry {
        let mut sum = Stripe::new();
        for stripe in &self.stripes {
            let stripe = stripe.lock().unwrap_or_else(PoisonError::into_inner);
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
        let times = self.meters.as_ref().is_some_and(|meters| meters.times);
        if times { quietly(|| self.now()).unwrap_or(0) } else { 0 }
    }

    /// The best was asked for, and this was lent: what the other shards show, if this acquisition is one of the sample.
    #[inline]
    pub fn sample_rank(&self, shard: usize, rank: u64) {
        if let Some(meters) = &self.meters
            && self.cell().samples(meters.every)
        {
            self.look_at_order(meters, shard, rank);
        }
    }

    /// The same for what the shortest way has lent, of which nothing is noted.
    #[inline]
    pub fn lent_shortly(&self, cell: &Cell, shard: usize, rank: impl FnOnce() -> u64) {
        if let Some(meters) = &self.meters
            && cell.samples(meters.every)
        {
            self.look_at_order(meters, shard, rank());
        }
    }

    /// How many other shards show something better.
    #[cold]
    fn look_at_order(&self, meters: &Meters, shard: usize, rank: u64) {
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
    /// The distributions that were measured so far; `None` unless [`Builder::measure`](crate::Builder::measure) or
    /// [`Builder::measure_order`](crate::Builder::measure_order) asked for them.
    ///
    /// Of [`Builder::measure_order`](crate::Builder::measure_order) only the error in rank has values.
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

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use crate::{Capacity, Entry, Scheduler, Strategy};

    type Item = Entry<u32, u32, ()>;

    fn fleet(capacity: Capacity, every: u32) -> Scheduler<Item> {
        let builder = Scheduler::builder().shards(4).strategy(Strategy::BestOf { choices: 1 }).seed(1);
        let fleet: Scheduler<Item> = builder.measure_order(every).build().unwrap();
        for key in 0..64 {
            fleet.insert(Entry::new(key, key, ()).with_capacity(capacity)).unwrap();
        }
        fleet
    }

    #[test]
    fn one_out_of_so_many_is_looked_at_whatever_its_capacity() {
        for capacity in [Capacity::Exclusive, Capacity::Limited(3)] {
            for (every, expected) in [(0, 0), (1, 1_000), (10, 100)] {
                let fleet = fleet(capacity, every);
                (0..1_000).for_each(|_| drop(fleet.acquire().unwrap()));
                let telemetry = fleet.telemetry().unwrap();
                assert_eq!(telemetry.rank_errors.count(), expected, "{capacity:?} {every}");
                assert_eq!((telemetry.holds.count(), telemetry.waits.count()), (0, 0));
                if every == 1 {
                    // One random shard of four: on average one and a half others show something better.
                    let mean = telemetry.rank_errors.sum() as f64 / 1e3;
                    assert!((1.3..1.7).contains(&mean) && telemetry.rank_errors.max() == 3, "{mean}");
                }
            }
        }
    }

    #[test]
    fn order_alone_leaves_times_as_they_are() {
        let builder = || Scheduler::<Item>::builder().shards(2);
        for (scheduler, holds) in [
            (builder().measure(2).measure_order(1), 10),
            (builder().measure_order(1).measure(2), 10),
            (builder().measure_order(1), 0),
        ] {
            let scheduler = scheduler.build().unwrap();
            scheduler.insert(Entry::new(1, 0, ())).unwrap();
            (0..10).for_each(|_| drop(scheduler.acquire().unwrap()));
            assert_eq!(scheduler.telemetry().unwrap().holds.count(), holds);
        }
    }
}
