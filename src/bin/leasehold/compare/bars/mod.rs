//! What the scheduler is held to: each row has a baseline of its own and a bar.
//!
//! * [`pairs`]: taking and returning; one thread, two, many; small fleets and large ones.
//! * [`reads`]: peek, get, affinity.
//! * [`changes`]: update, holds, batches, the lookup's churn.
//! * [`tail`]: the slowest acquisitions.
//! * [`order`]: rank error.
//! * [`memory`]: bytes and allocations.
//! * `clustered`: what it costs to share the fleet with other processes; only with the feature `cluster`.
//! * `observed`: what it costs to be watched; only with the feature `peers`, as the next.
//! * [`peers`]: other people's maps.
//!
//! To add one: a line in [`ROWS`] and its function, which answers [`Measured`].

mod changes;
#[cfg(feature = "cluster")]
mod clustered;
#[cfg(not(feature = "cluster"))]
#[path = "clustered_absent.rs"]
mod clustered;
mod memory;
#[cfg(feature = "peers")]
mod observed;
mod order;
mod pairs;
#[cfg(feature = "peers")]
mod peers;
#[cfg(not(feature = "peers"))]
#[path = "peers_absent.rs"]
mod peers;
mod reads;
mod tail;

use std::{sync::Mutex, time::Duration};

use leasehold::{Scheduler, Strategy};

use super::{
    cases::{Asset, fleet},
    measure::{Plan, Times, Turn, take_turns},
};

/// One row: what is measured, against what, and how good it must be.
pub struct Row {
    pub name: &'static str,
    pub threads: usize,
    /// Whom it is measured against; without one, the figure itself is held to the bar.
    pub baseline: Option<&'static str>,
    pub bar: Bar,
    pub unit: &'static str,
    resources: fn(u32) -> u32,
    measure: fn(&Setting) -> Measured,
}

/// The most that the ratio, or the figure of a row without a baseline, may be.
#[derive(Clone, Copy)]
pub enum Bar {
    AtMost(f64),
    /// The mean rank error of best-of-two over n shards, and 5 %: 5n/6 - 1 + 1/(6n), after Walzer and Williams, "A simple
    /// yet exact analysis of the MultiQueue", 2024.
    BestOfTwo,
    /// None: for comparison only.
    Open,
}

/// The greatest share of events that may be dropped where observing is timed.
pub const MOST_DROPPED: f64 = 0.01;

/// Under what a row is measured.
#[derive(Clone, Copy)]
pub struct Setting {
    pub threads: usize,
    pub resources: u32,
    pub shards: usize,
    pub pairs: usize,
    pub length: Duration,
}

pub enum Measured {
    /// Ratios of pairs, or more sides.
    Ratio(Times),
    /// The same for a subject that is observed, and the share of its events that were dropped: what drops them is timed at something else.
    #[cfg_attr(not(feature = "peers"), allow(dead_code))]
    Observed(Times, f64),
    /// One number.
    Figure(f64),
    /// It is not in this build, for want of this feature.
    #[cfg_attr(all(feature = "peers", feature = "cluster"), allow(dead_code))]
    Absent(&'static str),
}

const HEAP: &str = "Mutex<BinaryHeap>";
const MUTEX: &str = "MutexScheduler";
const LOCK: &str = "Mutex lock+unlock";

/// In the order of the report.
pub const ROWS: &[Row] = &[
    row("pair", 1, HEAP, Bar::AtMost(0.65), pairs::against_heap),
    row("pair", 2, HEAP, Bar::AtMost(0.25), pairs::against_heap),
    row("pair/best-of-2", 2, HEAP, Bar::AtMost(1.5), pairs::best_of_two_against_heap),
    row("pair/2-threads-to-1", 2, "itself, 1 thread", Bar::AtMost(1.25), pairs::two_threads_to_one),
    row("return-elsewhere", 2, MUTEX, Bar::AtMost(0.8), pairs::elsewhere_against_mutex),
    row("return-elsewhere/heap", 2, HEAP, Bar::AtMost(0.8), pairs::elsewhere_against_heap),
    row("peek/lock", 1, LOCK, Bar::AtMost(0.75), reads::peek_against_lock),
    row("peek/2-threads-to-1", 2, "itself, 1 thread", Bar::AtMost(1.2), reads::peek_two_threads_to_one),
    row("get/scc", 1, "scc::HashIndex", Bar::AtMost(1.0), peers::get_against_index),
    row("get/scc", 2, "scc::HashIndex", Bar::AtMost(1.0), peers::get_against_index),
    row("get/papaya", 1, "papaya", Bar::AtMost(0.8), peers::get_against_papaya),
    row("get/papaya", 2, "papaya", Bar::AtMost(0.8), peers::get_against_papaya),
    row("lookup-churn", 1, "dashmap", Bar::AtMost(1.2), peers::churn_against_dashmap),
    row("lookup-churn", 2, "dashmap, scc::HashMap", Bar::AtMost(1.1), peers::churn_against_the_better),
    row("lookup-churn/boxes", 1, "dashmap of boxes", Bar::Open, peers::churn_against_boxes),
    row("lookup-churn/boxes", 2, "dashmap of boxes", Bar::Open, peers::churn_against_boxes),
    row("update/mutex", 1, MUTEX, Bar::AtMost(0.6), changes::update),
    row("update/mutex", 2, MUTEX, Bar::AtMost(0.4), changes::update),
    row("exclude+include/mutex", 1, MUTEX, Bar::AtMost(0.7), changes::exclude_include),
    row("exclude+include/mutex", 2, MUTEX, Bar::AtMost(0.4), changes::exclude_include),
    row("affinity-peek", 1, "peek", Bar::AtMost(3.0), reads::affinity_against_peek),
    figure("affinity-peek/allocations", 1, "allocations", Bar::AtMost(0.0), memory::affinity_allocations),
    row("insert-batch", 1, MUTEX, Bar::AtMost(0.7), changes::insert_batch).of(|_| changes::BATCH_SIZE),
    // Its own node and value, and the heaps, slots and tables that grow with the fleet.
    figure("insert-batch/allocations", 1, "allocations", Bar::AtMost(3.0), memory::batch_allocations)
        .of(|_| changes::BATCH_SIZE),
    row("pair/16", 2, MUTEX, Bar::AtMost(0.35), pairs::against_mutex).of(|_| 16),
    row("pair/256", 2, MUTEX, Bar::AtMost(0.35), pairs::against_mutex).of(|_| 256),
    row("strict", 2, MUTEX, Bar::AtMost(1.2), pairs::strict_against_mutex),
    figure("strict/rank-error", 2, "ranks", Bar::AtMost(0.0), order::strict_at_quiescence),
    row("least-loaded", 1, MUTEX, Bar::AtMost(1.0), pairs::least_loaded).of(|_| 256),
    row("least-loaded", 2, MUTEX, Bar::AtMost(0.5), pairs::least_loaded).of(|_| 256),
    row("growth", 1, "a thousandth of it", Bar::AtMost(1.6), pairs::growth)
        .of(|resources| resources.saturating_mul(100).min(10_000_000)),
    // A throughput of 1.5 times the baseline's.
    row("64-threads", 64, MUTEX, Bar::AtMost(1.0 / 1.5), pairs::against_mutex),
    row("64-threads/p99.9", 64, MUTEX, Bar::AtMost(1.0), tail::p99_9),
    row("acquire/p99.99", 2, MUTEX, Bar::AtMost(0.5), tail::p99_99),
    row("pair/sampled", 1, "itself, unsampled", Bar::AtMost(1.02), peers::sampled_against_unsampled),
    row("pair/sampled", 2, "itself, unsampled", Bar::AtMost(1.02), peers::sampled_against_unsampled),
    row("pair/sampled-64-shards", 1, "itself, unsampled", Bar::AtMost(1.02), peers::sampled_in_many_shards),
    row("pair/sampled-64-shards", 2, "itself, unsampled", Bar::AtMost(1.02), peers::sampled_in_many_shards),
    row("pair/observed", 1, "itself, unobserved", Bar::AtMost(1.25), peers::observed_against_unobserved),
    row("pair/observed-arc", 1, "itself, unobserved", Bar::Open, peers::shared_strings_against_unobserved),
    row("pair/observed-string", 1, "itself, unobserved", Bar::Open, peers::strings_against_unobserved),
    row("pair/observed-measured", 1, "itself, unobserved", Bar::Open, peers::measured_against_unobserved),
    row("pair/recorded", 1, "itself, unrecorded", Bar::Open, pairs::recorded_against_unrecorded),
    row("pair/clustered", 1, "itself, alone", Bar::AtMost(1.05), clustered::against_alone),
    row("pair/clustered-plain", 1, "itself, alone", Bar::AtMost(1.05), clustered::against_plain),
    figure("memory", 1, "bytes", Bar::AtMost(128.0), memory::bytes),
    figure("memory/blocks", 1, "bytes", Bar::Open, memory::blocks),
    figure("rank-error/best-of-2", 1, "ranks", Bar::BestOfTwo, order::best_of_two),
    figure("rank-error/best-of-all", 1, "ranks", Bar::AtMost(0.0), order::best_of_all),
];

/// The least fleet that a row with no size of its own is measured on: enough for 64 threads, and for leases on their way
/// to another thread.
const LEAST_RESOURCES: u32 = 128;

const fn row(
    name: &'static str,
    threads: usize,
    baseline: &'static str,
    bar: Bar,
    measure: fn(&Setting) -> Measured,
) -> Row {
    Row { baseline: Some(baseline), ..figure(name, threads, "ns", bar, measure) }
}

const fn figure(
    name: &'static str,
    threads: usize,
    unit: &'static str,
    bar: Bar,
    measure: fn(&Setting) -> Measured,
) -> Row {
    Row { name, threads, baseline: None, bar, unit, resources: |resources| resources, measure }
}

impl Row {
    /// On a fleet of another size, made of that of the other rows.
    const fn of(self, resources: fn(u32) -> u32) -> Self {
        Row { resources, ..self }
    }

    /// What the row is measured under, if the fleet is to have so many resources and the scheduler so many shards.
    pub fn setting(&self, resources: u32, shards: usize, pairs: usize, length: Duration) -> Setting {
        let resources = (self.resources)(resources.max(LEAST_RESOURCES));
        Setting { threads: self.threads, resources, shards, pairs, length }
    }

    pub fn measure(&self, setting: &Setting) -> Measured {
        (self.measure)(setting)
    }
}

impl Bar {
    pub fn limit(self, shards: usize) -> Option<f64> {
        let shards = shards as f64;
        match self {
            Bar::AtMost(limit) => Some(limit),
            Bar::BestOfTwo => Some(1.05 * (5.0 * shards / 6.0 - 1.0 + 1.0 / (6.0 * shards))),
            Bar::Open => None,
        }
    }
}

impl Setting {
    pub fn plan(&self) -> Plan {
        let Setting { threads, resources, pairs, length, .. } = *self;
        Plan { threads, resources, pairs, length }
    }

    pub fn with_threads(&self, threads: usize) -> Self {
        Setting { threads, ..*self }
    }

    /// A scheduler with a full fleet.
    fn scheduler(&self, strategy: Strategy) -> Scheduler<Asset> {
        let scheduler = self.empty(strategy);
        fleet(&scheduler, self.resources);
        scheduler
    }

    fn empty(&self, strategy: Strategy) -> Scheduler<Asset> {
        Scheduler::builder().shards(self.shards).strategy(strategy).build().expect("in range")
    }

    /// Lets the sides take turns; the first is the subject.
    fn ratio<const SIDES: usize>(&self, mut sides: [Turn<'_>; SIDES]) -> Measured {
        Measured::Ratio(take_turns(self.pairs, &mut sides))
    }
}

/// A mutex as it is used here: nobody panics inside.
fn locked<T, O>(mutex: &Mutex<T>, f: impl FnOnce(&mut T) -> O) -> O {
    f(&mut mutex.lock().expect("nobody panics inside"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn rows_are_told_apart() {
        let names: BTreeSet<_> = ROWS.iter().map(|row| (row.name, row.threads)).collect();
        assert_eq!(names.len(), ROWS.len());
    }

    #[test]
    fn fleets_suffice_for_the_threads() {
        for row in ROWS {
            let setting = row.setting(1, 8, 5, Duration::ZERO);
            assert!(setting.resources as usize >= 2 * row.threads, "{}", row.name);
        }
    }

    #[test]
    fn one_shard_has_no_rank_error() {
        assert!(Bar::BestOfTwo.limit(1).unwrap().abs() < 1e-9);
        assert!((Bar::BestOfTwo.limit(8).unwrap() - 1.05 * 5.6875).abs() < 1e-9);
    }
}
