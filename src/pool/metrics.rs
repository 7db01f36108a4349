//! What a pool tells about itself while it works.

use std::time::Duration;

use super::{EndingKind, RejectReason};
use crate::sync::{
    CachePadded,
    atomic::Ordering,
    count::{AtomicU64, AtomicUsize},
};

/// Is told what happens in a pool. Every method does nothing unless it is written, so [`NoMetrics`] costs nothing.
///
/// Called by workers and submitters with no lock held; a panic in it stops there.
pub trait Metrics: Send + Sync + 'static {
    /// Whether times are taken: the clock is read when a job is accepted, when it has ended, and once for each batch. A job begins, for
    /// these times, when the one before it in its batch has ended, so what a worker does between two jobs is counted with the later one.
    /// Otherwise each `Option<Duration>` is `None`; so is one that is not known because the clock has panicked.
    const TIMED: bool;

    /// So many jobs were accepted.
    fn accepted(&self, count: usize) {
        let _ = count;
    }

    /// A job begins, or would if it had not been cancelled, after it has waited so long.
    fn begun(&self, waited: Option<Duration>) {
        let _ = waited;
    }

    /// A job has ended, after it ran so long; none if it was cancelled before, and did not run. Not called for jobs that were dropped without
    /// having been begun: those are [`unrun`](Self::unrun).
    fn ended(&self, how: EndingKind, ran: Option<Duration>) {
        let _ = (how, ran);
    }

    /// So many jobs that were accepted are not run: a shutdown hands them back, or they are dropped with the pool. At rest those that were accepted are those that
    /// have ended, and these.
    fn unrun(&self, count: usize) {
        let _ = count;
    }

    /// A job was refused.
    fn rejected(&self, reason: RejectReason) {
        let _ = reason;
    }

    /// How long jobs have waited, and how long they have run, if it keeps that: for exporters.
    fn distributions(&self) -> Option<(&Histogram, &Histogram)> {
        None
    }

    /// The number of workers has changed.
    fn scaled(&self, from: usize, to: usize) {
        let _ = (from, to);
    }
}

/// Counts nothing and takes no times.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoMetrics;

impl Metrics for NoMetrics {
    const TIMED: bool = false;
}

/// Two histograms and a few counts, in atomics.
///
/// ```
/// use leasehold::pool::{AtomicMetrics, Job, Pool};
///
/// let pool = Pool::builder().workers(1).metrics(AtomicMetrics::default()).build()?;
/// let (job, handle) = Job::new((), |_, _| Ok(())).with_handle();
/// pool.try_submit(job)?;
/// handle.wait();
/// pool.shutdown(std::time::Duration::from_secs(1));
/// assert_eq!(pool.metrics().waited().count(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct AtomicMetrics {
    waited: CachePadded<Histogram>,
    ran: CachePadded<Histogram>,
    accepted: CachePadded<AtomicU64>,
    unrun: AtomicU64,
    scaled: AtomicU64,
    most_workers: AtomicUsize,
}

impl AtomicMetrics {
    /// How long jobs have waited in the queue; but those of which it is not known, because the clock has panicked, here and in [`ran`](Self::ran).
    pub fn waited(&self) -> &Histogram {
        &self.waited
    }

    /// How long jobs have run; those that were cancelled before are not among them.
    pub fn ran(&self) -> &Histogram {
        &self.ran
    }

    /// How many jobs were accepted.
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// How many of them were not run: handed back by a shutdown, or dropped with the pool.
    pub fn unrun(&self) -> u64 {
        self.unrun.load(Ordering::Relaxed)
    }

    /// How often the number of workers has changed.
    pub fn scalings(&self) -> u64 {
        self.scaled.load(Ordering::Relaxed)
    }

    /// The most workers that there were after a change.
    pub fn most_workers(&self) -> usize {
        self.most_workers.load(Ordering::Relaxed)
    }
}

impl Metrics for AtomicMetrics {
    const TIMED: bool = true;

    // Relaxed, here and below: counts that order nothing.
    fn accepted(&self, count: usize) {
        self.accepted.fetch_add(count as u64, Ordering::Relaxed);
    }

    fn unrun(&self, count: usize) {
        self.unrun.fetch_add(count as u64, Ordering::Relaxed);
    }

    fn begun(&self, waited: Option<Duration>) {
        if let Some(waited) = waited {
            self.waited.record(waited);
        }
    }

    fn ended(&self, _how: EndingKind, ran: Option<Duration>) {
        if let Some(ran) = ran {
            self.ran.record(ran);
        }
    }

    fn distributions(&self) -> Option<(&Histogram, &Histogram)> {
        Some((&self.waited, &self.ran))
    }

    fn scaled(&self, _from: usize, to: usize) {
        self.scaled.fetch_add(1, Ordering::Relaxed);
        self.most_workers.fetch_max(to, Ordering::Relaxed);
    }
}

/// Bounds of the buckets of a [`Histogram`] are powers of two nanoseconds.
const BUCKETS: usize = 48;

/// How many durations fell between powers of two of nanoseconds.
///
/// Wait-free. A reader that comes while others record sees each bucket at its own moment.
#[derive(Debug)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    nanos: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { buckets: [const { AtomicU64::new(0) }; BUCKETS], nanos: AtomicU64::new(0) }
    }
}

impl Histogram {
    /// Adds a duration.
    pub fn record(&self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let bucket = (64 - nanos.leading_zeros() as usize).min(BUCKETS - 1);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// How many durations there are.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).sum()
    }

    /// The sum of all durations.
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::Relaxed))
    }

    /// The buckets in order: an upper bound, exclusive, and how many durations are below it and not below the one before. The last bound
    /// stands for all that is longer.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        self.buckets
            .iter()
            .enumerate()
            .map(|(i, bucket)| (Duration::from_nanos(1 << i), bucket.load(Ordering::Relaxed)))
    }

    /// A duration that at least the share `quantile` (0 to 1) of all do not exceed: the bound of a bucket, so up to twice the true value.
    /// Zero if there is none.
    pub fn quantile(&self, quantile: f64) -> Duration {
        let wanted = (self.count() as f64 * quantile).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bound, count) in self.buckets() {
            seen += count;
            if seen >= wanted && seen > 0 {
                return bound;
            }
        }
        Duration::ZERO
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn durations_fall_between_powers_of_two() {
        let histogram = Histogram::default();
        assert_eq!((histogram.count(), histogram.quantile(0.5)), (0, Duration::ZERO));
        for nanos in [0, 1, 2, 3, 1_000, u64::MAX] {
            histogram.record(Duration::from_nanos(nanos));
        }
        assert_eq!(histogram.count(), 6);
        let filled: Vec<_> = histogram.buckets().filter(|&(_, count)| count > 0).collect();
        let nanos = |exponent: u32| Duration::from_nanos(1 << exponent);
        assert_eq!(filled, [(nanos(0), 1), (nanos(1), 1), (nanos(2), 2), (nanos(10), 1), (nanos(47), 1)]);
        assert_eq!(histogram.quantile(0.5), nanos(2));
    }
}
