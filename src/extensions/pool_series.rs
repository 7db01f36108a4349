//! What is measured of a worker pool, under which names.

use super::series::{Kind, Series, Value, counter, counters, gauge, gauges, seconds};
use crate::pool::{Histogram, PoolStats};

/// Every family that a pool may have, with nothing counted.
#[cfg(feature = "metrics")]
pub fn every_series() -> Vec<Series> {
    series(&PoolStats::default(), Some((&Histogram::default(), &Histogram::default())))
}

/// Everything that a pool tells; what its metrics keep at the end.
pub fn series(stats: &PoolStats, distributions: Option<(&Histogram, &Histogram)>) -> Vec<Series> {
    let mut all = vec![
        gauge("pool_queue_depth", "Jobs in the queue.", stats.queued as u64),
        gauge(
            "pool_jobs_taken",
            "Jobs that a worker has taken and not begun, where others may take them.",
            stats.taken as u64,
        ),
        gauge("pool_submitters_waiting", "Submitters that wait for room.", stats.waiting as u64),
        gauge("pool_leases_awaited", "Jobs that wait for a lease.", stats.awaiting_lease as u64),
        counter(
            "pool_leases_given_up",
            "Jobs that waited for a lease, or with one for room, and were handed back or dropped.",
            stats.given_up as u64,
        ),
        counter(
            "pool_leases_missed",
            "Jobs that waited for a lease and have ended without one.",
            stats.unlent,
        ),
        counter(
            "pool_jobs_handed_back",
            "Jobs that were accepted and not run, but handed back by a shutdown.",
            stats.handed_back,
        ),
        gauges(
            "pool_workers",
            "Workers, by whether they sleep.",
            Some("state"),
            vec![
                ("busy", stats.workers.saturating_sub(stats.idle) as u64),
                ("idle", stats.idle.min(stats.workers) as u64),
            ],
        ),
        counters(
            "pool_jobs",
            "Jobs that were processed, by how they ended.",
            Some("ended"),
            vec![
                ("done", stats.done),
                ("failed", stats.failed),
                ("panicked", stats.panicked),
                ("cancelled", stats.cancelled),
            ],
        ),
        counters(
            "pool_rejected",
            "Submissions that were refused, by why.",
            Some("reason"),
            vec![
                ("full", stats.rejected_full),
                ("closed", stats.rejected_closed),
                ("cancelled", stats.rejected_cancelled),
                ("timed_out", stats.rejected_timed_out),
            ],
        ),
        counters(
            "pool_scalings",
            "Changes of the number of workers.",
            Some("direction"),
            vec![("up", stats.scaled_up), ("down", stats.scaled_down)],
        ),
        counter("pool_workers_unstarted", "Workers that the system has not started.", stats.unstarted),
    ];
    if let Some((waited, ran)) = distributions {
        all.push(times("pool_queue_wait", "How long jobs have waited until they began.", waited));
        all.push(times("pool_run", "How long jobs have run.", ran));
    }
    all
}

/// Bounds are powers of two of nanoseconds: every second one from a microsecond on, up to a minute.
fn times(name: &'static str, help: &'static str, histogram: &Histogram) -> Series {
    let all: Vec<u64> = histogram.buckets().map(|(_, count)| count).collect();
    let mut buckets = Vec::new();
    let mut from = 0;
    for exponent in (10..=36).step_by(2) {
        buckets.push((seconds(1 << exponent), all[from..=exponent].iter().sum()));
        from = exponent + 1;
    }
    buckets.push((f64::MAX, all[from..].iter().sum()));
    let sum = histogram.sum().as_secs_f64();
    let samples = vec![("", Value::Distribution { sum, buckets })];
    Series { name, help, unit: Some("seconds"), kind: Kind::Histogram, label: None, samples }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times_fall_into_the_buckets_that_hold_them() {
        let histogram = Histogram::default();
        for nanos in [0, 1_023, 1_024, 4_095, 4_096, 1 << 36, u64::MAX] {
            histogram.record(Duration::from_nanos(nanos));
        }
        let Value::Distribution { buckets, .. } = &times("x", "", &histogram).samples[0].1 else { panic!() };
        let filled: Vec<_> = buckets.iter().copied().filter(|&(_, count)| count > 0).collect();
        assert_eq!(filled, [(1.024e-6, 2), (4.096e-6, 2), (1.6384e-5, 1), (f64::MAX, 2)]);
    }
}
