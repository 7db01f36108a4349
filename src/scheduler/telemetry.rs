//! Distributions: how long leases are held, how long requests wait, how far from the best what is lent is.
//!
//! Off unless the builder asks, and then nobody takes the shortest way: an acquisition reads the clock and notes the moment in its
//! guard, a return reads it again and adds the difference to the histogram of its stripe, with no shard's lock held. Stripes are
//! chosen by thread; each has a mutex that two threads of one stripe, and whoever reads, share for as long as an addition takes.
//!
//! The order is sampled: see [`order`](super::order). With [`Builder::measure_order`] nothing else is measured, the clock is not read, and what is
//! no sample takes the shortest way.
//!
//! [`Builder::measure_order`]: crate::Builder::measure_order

use std::sync::PoisonError;

use hdrhistogram::Histogram;

use super::{
    core::Core,
    order::{MARK, MOST},
};
use crate::{
    node::quietly,
    resource::Resource,
    sync::{CachePadded, Mutex, thread_hint},
};

/// The longest time that is told apart, in nanoseconds: an hour.
const LONGEST: u64 = 3_600_000_000_000;
/// Significant digits.
const DIGITS: u8 = 2;

/// The longest delay that is told apart.
const MOST_PASSED: u64 = 1 << 32;

/// What is measured, each in a distribution.
#[derive(Clone, Copy, Debug)]
pub enum Measure {
    Hold,
    Wait,
    RankError,
    Delay,
}

/// How many there are.
const MEASURES: usize = 4;

/// What one stripe has measured.
struct Stripe {
    /// In the order of [`Measure`].
    histograms: [Histogram<u64>; MEASURES],
    sums: [u64; MEASURES],
    /// Samples of the rank error that are of that or more.
    saturated: u64,
    /// Samples of the delay that were discarded, and given up.
    unfinished: [u64; 2],
}

impl Stripe {
    fn new() -> Self {
        let up_to = |most| Histogram::new_with_bounds(1, most, DIGITS).expect("bounds in range");
        Stripe {
            histograms: [LONGEST, LONGEST, MOST as u64, MOST_PASSED].map(up_to),
            sums: [0; MEASURES],
            saturated: 0,
            unfinished: [0; 2],
        }
    }
}

/// Where acquisitions and returns are measured.
pub struct Meters {
    stripes: Box<[CachePadded<Mutex<Stripe>>]>,
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
    /// How long leases were held, in nanoseconds, however they ended: by their guard, by their token, or taken back, which counts as held
    /// until then. As many as [`Stats::returned`](crate::Stats::returned), but for those that began while the clock panicked, and units that
    /// [nobody used](crate::WaitStats::unused).
    pub holds: Distribution,
    /// How long requests waited that ended with a lease, in nanoseconds.
    pub waits: Distribution,
    /// How many resources that could be had were strictly better than what was lent, of those acquisitions that were sampled: see
    /// [`Builder::measure_order`](crate::Builder::measure_order).
    pub rank_errors: Distribution,
    /// Of these, how many are of so much or more: in one other shard 512 resources or more were better, or 4,096 in all, and counting stopped.
    pub rank_errors_saturated: u64,
    /// How many worse resources were lent while one could be had, from its return until it was lent, of those that were sampled: see
    /// [`Builder::measure_order`](crate::Builder::measure_order).
    pub delays: Distribution,
    /// Samples of the delay that ended with something else than a lending of the best: the resource was excluded, removed, updated, lent to somebody
    /// who had named it, and so on. Nothing of them is in `delays`.
    pub delays_discarded: u64,
    /// Samples of the delay of which the resource had not been lent after 64 further samples of the rank error. Nothing of them is in `delays`: the
    /// longest ones are missing there.
    pub delays_given_up: u64,
}

#[cfg(feature = "metrics")]
impl Telemetry {
    /// Nothing was measured.
    pub(crate) fn nothing() -> Self {
        Meters::new(false).read()
    }
}

impl Meters {
    pub fn new(times: bool) -> Self {
        let stripes = crate::sync::parallelism().next_power_of_two().clamp(1, 16);
        let stripe = |_| CachePadded::new(Mutex::new(Stripe::new()));
        Meters { stripes: (0..stripes).map(stripe).collect(), times }
    }

    /// Whether leases and waits are timed.
    pub fn times(&self) -> bool {
        self.times
    }

    fn stripe(&self) -> &Mutex<Stripe> {
        let hash = (thread_hint() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        &self.stripes[hash as usize & (self.stripes.len() - 1)]
    }

    fn change<T>(&self, f: impl FnOnce(&mut Stripe) -> T) -> T {
        f(&mut self.stripe().lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn add(&self, what: Measure, value: u64) {
        self.change(|stripe| {
            let sum = &mut stripe.sums[what as usize];
            *sum = sum.saturating_add(value);
            stripe.histograms[what as usize].saturating_record(value);
        });
    }

    /// A wait has ended with a lease.
    pub fn waited(&self, nanos: u64) {
        self.add(Measure::Wait, nanos);
    }

    /// The last rank error is of that or more.
    pub fn saturated(&self) {
        self.change(|stripe| stripe.saturated += 1);
    }

    /// A sample of the delay has come to nothing: 0 for one that was discarded, 1 for one that was given up.
    pub fn unfinished(&self, how: usize) {
        self.change(|stripe| stripe.unfinished[how] += 1);
    }

    fn read(&self) -> Telemetry {
        let mut sum = Stripe::new();
        for stripe in &self.stripes {
            let stripe = stripe.lock().unwrap_or_else(PoisonError::into_inner);
            for (sum, part) in sum.histograms.iter_mut().zip(&stripe.histograms) {
                sum.add(part).expect("made alike");
            }
            sum.sums.iter_mut().zip(stripe.sums).for_each(|(sum, part)| *sum = sum.saturating_add(part));
            sum.saturated += stripe.saturated;
            sum.unfinished.iter_mut().zip(stripe.unfinished).for_each(|(sum, part)| *sum += part);
        }
        let Stripe { histograms, sums, saturated, unfinished: [discarded, given_up] } = sum;
        let mut parts =
            histograms.into_iter().zip(sums).map(|(histogram, sum)| Distribution { histogram, sum });
        let mut next = || parts.next().expect("as many as there are measures");
        Telemetry {
            holds: next(),
            waits: next(),
            rank_errors: next(),
            rank_errors_saturated: saturated,
            delays: next(),
            delays_discarded: discarded,
            delays_given_up: given_up,
        }
    }
}

impl<R: Resource> Core<R> {
    /// Something was lent: what is to be noted in its guard. 0: nothing is measured. Runs user code, the clock.
    #[inline]
    pub fn lease_began(&self) -> u64 {
        // A nanosecond later: a clock may stand at its origin. One that panics makes this lease one that is not measured.
        let times = self.meters.as_ref().is_some_and(|meters| meters.times);
        if times { quietly(|| self.now().saturating_add(1).min(MARK - 1)).unwrap_or(0) } else { 0 }
    }

    /// A lease of which that was noted when it began has ended. The lock is free. Answers whether its return begins a sample of the delay.
    #[cold]
    pub fn lease_ended(&self, noted: u64) -> bool {
        let since = noted & !MARK;
        if let Some(meters) = &self.meters
            && since > 0
        {
            let began = since - 1;
            let now = quietly(|| self.now()).unwrap_or(began);
            meters.add(Measure::Hold, now.saturating_sub(began));
        }
        noted & MARK != 0
    }
}

impl<R: Resource, S> super::Scheduler<R, S> {
    /// The distributions that were measured so far; `None` unless [`Builder::measure`](crate::Builder::measure) or
    /// [`Builder::measure_order`](crate::Builder::measure_order) asked for them.
    ///
    /// Of [`Builder::measure_order`](crate::Builder::measure_order) only rank errors and delays have values.
    ///
    /// Blocking on one stripe's mutex at a time. Allocates histograms of about 60 kB. Values that are added meanwhile may be missing.
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
        self.core.settle_delay();
        self.core.meters.as_ref().map(Meters::read)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::{sync::Arc, time::Duration};

    use crate::{Entry, ManualClock, Scheduler};

    type Item = Entry<u32, u32, ()>;

    fn timed() -> (Scheduler<Item>, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::new());
        let fleet = Scheduler::<Item>::builder().shards(1).clock(clock.clone()).measure(0).build().unwrap();
        fleet.insert(Entry::new(1, 0, ())).unwrap();
        (fleet, clock)
    }

    #[test]
    fn a_lease_that_begins_at_the_clocks_origin_is_timed() {
        let (fleet, clock) = timed();
        for held in [Duration::from_secs(5), Duration::ZERO, Duration::from_nanos(1)] {
            let lease = fleet.acquire().unwrap();
            clock.advance(held);
            drop(lease);
        }
        let holds = fleet.telemetry().unwrap().holds;
        assert_eq!((holds.count(), holds.sum()), (3, 5_000_000_001));
    }

    #[test]
    fn only_the_call_that_ends_a_lease_times_it() {
        let (fleet, clock) = timed();
        let holds = || fleet.telemetry().unwrap().holds;
        // By its token, revoked, by its token alone, by its guard; and what comes later ends nothing.
        let mut lease = fleet.acquire().unwrap();
        let token = lease.token();
        clock.advance(Duration::from_secs(1));
        fleet.release(token).unwrap();
        assert_eq!((holds().count(), holds().sum()), (1, 1_000_000_000));
        clock.advance(Duration::from_secs(70));
        drop(lease);
        let mut lease = fleet.acquire().unwrap();
        let token = lease.token();
        clock.advance(Duration::from_secs(2));
        fleet.revoke(token).unwrap();
        assert_eq!((holds().count(), holds().sum()), (2, 3_000_000_000));
        clock.advance(Duration::from_secs(70));
        assert!(lease.try_finish(crate::Outcome::Failed).is_err() && fleet.release(token).is_err());
        let token = fleet.acquire().unwrap().into_token();
        clock.advance(Duration::from_secs(4));
        fleet.finish(token, crate::Outcome::Cancelled).unwrap();
        assert!(fleet.release(token).is_err());
        assert_eq!((holds().count(), holds().sum()), (3, 7_000_000_000));
        let mut lease = fleet.acquire().unwrap();
        let _ = lease.token();
        clock.advance(Duration::from_secs(8));
        lease.release();
        let mut lease = fleet.acquire().unwrap();
        let token = lease.token();
        clock.advance(Duration::from_secs(16));
        assert_eq!(lease.into_token(), token);
        fleet.release(token).unwrap();
        assert_eq!((holds().count(), holds().sum()), (5, 31_000_000_000));
        assert_eq!(fleet.stats().returned, holds().count());
    }

    #[test]
    fn leases_that_are_overdue_are_timed_when_they_are_taken_back() {
        let clock = Arc::new(ManualClock::new());
        let builder = Scheduler::<Item>::builder().shards(1).clock(clock.clone()).measure(0);
        let max_hold = Duration::from_secs(5);
        let fleet = builder.max_hold(max_hold).overdue(crate::Overdue::Revoke).build().unwrap();
        fleet.insert(Entry::new(1, 0, ())).unwrap();
        std::mem::forget(fleet.acquire().unwrap());
        clock.advance(Duration::from_secs(7));
        // The second one is found by an acquisition, the third by its guard.
        let late = fleet.acquire().unwrap();
        clock.advance(Duration::from_secs(6));
        let last = fleet.acquire().unwrap();
        clock.advance(Duration::from_secs(1));
        drop((late, last));
        let holds = fleet.telemetry().unwrap().holds;
        assert_eq!((holds.count(), holds.sum()), (3, 14_000_000_000));
        assert_eq!((fleet.stats().returned, fleet.stats().revoked), (3, 2));
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
