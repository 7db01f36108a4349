//! Clusters as a collector of `prometheus-client`.

use std::{fmt, sync::PoisonError};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, NoLabelSet},
    metrics::MetricType,
    registry::Unit,
};

use super::{handle::Cluster, keeper::Board, stats::ClusterStats};
use crate::{
    resource::Resource,
    sync::{Arc, Mutex, Weak},
};

/// A name, what it says, and the number.
type Level = (&'static str, &'static str, fn(&ClusterStats) -> f64);
type Count = (&'static str, &'static str, fn(&ClusterStats) -> u64);

const LEVELS: [Level; 10] = [
    ("cluster_connected", "Whether the engine has answered the last request.", |stats| {
        f64::from(u8::from(stats.connected))
    }),
    (
        "cluster_hears_news",
        "Whether holds of others are heard of at once, and not with renewals alone.",
        |stats| f64::from(u8::from(stats.hears_news)),
    ),
    ("cluster_namesakes", "Other processes that have the member's name.", |stats| f64::from(stats.namesakes)),
    ("cluster_live", "Whether there is a session whose claims are good.", |stats| {
        f64::from(u8::from(stats.live))
    }),
    ("cluster_suspended", "Whether nothing is lent because the claims are about to end.", |stats| {
        f64::from(u8::from(stats.suspended))
    }),
    ("cluster_units_held", "Units claimed.", |stats| f64::from(stats.held)),
    ("cluster_units_lendable", "Units claimed that are lent.", |stats| f64::from(stats.lendable)),
    ("cluster_units_free", "Units that no member has.", |stats| f64::from(stats.free)),
    ("cluster_members", "Members of the fleet.", |stats| stats.members.len() as f64),
    ("cluster_imbalance", "The part of all units that other members should have.", |stats| stats.imbalance),
];

const COUNTS: [Count; 11] = [
    ("cluster_renewals", "Renewals of the session that were acknowledged.", |stats| stats.renewals),
    ("cluster_units_claimed", "Units that were claimed.", |stats| stats.claimed),
    ("cluster_units_returned", "Units that were given back.", |stats| stats.returned),
    ("cluster_units_lost", "Units whose claims have ended without having been given back.", |stats| {
        stats.losses
    }),
    ("cluster_units_reinstated", "Units that were taken over into a new epoch.", |stats| stats.reinstated),
    ("cluster_epochs", "Restarts and failovers of the engine that were noticed.", |stats| stats.epochs),
    ("cluster_leases_revoked", "Leases that were revoked because their claims had ended.", |stats| {
        stats.revoked
    }),
    ("cluster_leases_outlived", "Leases that outlived their claims and could not be revoked.", |stats| {
        stats.outlived
    }),
    ("cluster_requests", "Requests to the engine.", |stats| stats.requests),
    (
        "cluster_faults",
        "Changes that the scheduler has refused, or whose callbacks have panicked.",
        |stats| stats.faults,
    ),
    ("cluster_request_failures", "Requests to the engine whose fate is unknown.", |stats| stats.failures),
];

/// The metrics of any number of clusters, each with its member's name in the label `member`, and in `fleet` the name that its engine has for the
/// fleet ([`Engine::fleet`](super::Engine::fleet)), if it has one. Clones are the same collector.
///
/// Nothing is counted for it: a scrape reads [`Cluster::stats`].
///
/// ```
/// use leasehold::{Entry, Scheduler, cluster::{Cluster, ClusterCollector, MemoryEngine, Share, Terms}};
/// use prometheus_client::registry::Registry;
/// use std::{sync::Arc, time::Duration};
///
/// let keys = Arc::new(Scheduler::<Entry<Arc<str>, u64, ()>>::builder().max_hold(Duration::from_secs(30)).build()?);
/// let cluster = Cluster::builder("gateway-1")
///     .terms(Terms::new(Duration::from_secs(3)))
///     .share(Share::new("sk-1", 1))
///     .start(MemoryEngine::new(), &keys, |share, _| Entry::new(share.name.clone(), share.rank, ()))?;
/// let collector = ClusterCollector::new();
/// collector.watch(&cluster);
/// let mut registry = Registry::default();
/// registry.register_collector(Box::new(collector));
/// let text = leasehold::prometheus::text(&registry)?;
/// assert!(text.contains("leasehold_cluster_live{member=\"gateway-1\"} 1.0\n"), "{text}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default)]
pub struct ClusterCollector(Arc<Mutex<Vec<Watched>>>);

/// What is watched: its names, and what it posts.
#[derive(Clone)]
pub struct Watched {
    pub fleet: Option<Arc<str>>,
    pub member: Arc<str>,
    pub board: Weak<Board>,
}

impl Watched {
    /// Whether its series would be the other's: a scrape with a series twice is refused as a whole.
    fn is_like(&self, other: &Watched) -> bool {
        self.board.ptr_eq(&other.board) || (&self.fleet, &self.member) == (&other.fleet, &other.member)
    }
}

/// The labels of a cluster's series.
type Labels = Vec<(&'static str, Arc<str>)>;

impl ClusterCollector {
    /// It watches nobody yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Watches a cluster as long as it lives, instead of one that was watched before under the same names, in the same fleet.
    pub fn watch<R: Resource, S>(&self, cluster: &Cluster<R, S>) {
        let new = cluster.watched();
        let mut watched = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        watched.retain(|other| !other.is_like(&new));
        watched.push(new);
    }

    fn read(&self) -> Vec<(Labels, ClusterStats)> {
        let watched = {
            let mut watched = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            watched.retain(|one| one.board.strong_count() > 0);
            watched.clone()
        };
        let of = |one: Watched| {
            let fleet = one.fleet.map(|fleet| ("fleet", fleet));
            let labels = fleet.into_iter().chain([("member", one.member)]).collect();
            Some((labels, one.board.upgrade()?.stats()))
        };
        watched.into_iter().filter_map(of).collect()
    }
}

impl fmt::Debug for ClusterCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.read().into_iter().map(|(labels, _)| labels).collect();
        f.debug_tuple("ClusterCollector").field(&names).finish()
    }
}

impl Collector for ClusterCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let read = self.read();
        for (name, help, level) in LEVELS {
            let name = format!("leasehold_{name}");
            let mut family = encoder.encode_descriptor(&name, help, None, MetricType::Gauge)?;
            for (labels, stats) in &read {
                family.encode_family(labels)?.encode_gauge(&level(stats))?;
            }
        }
        for (name, help, count) in COUNTS {
            let name = format!("leasehold_{name}");
            let mut family = encoder.encode_descriptor(&name, help, None, MetricType::Counter)?;
            for (labels, stats) in &read {
                family.encode_family(labels)?.encode_counter::<NoLabelSet, _, u64>(&count(stats), None)?;
            }
        }
        let help = "How long the engine has taken for a request.";
        let name = "leasehold_cluster_request";
        let mut family =
            encoder.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Histogram)?;
        for (labels, stats) in &read {
            let last = stats.engine_histogram.len() - 1;
            let bound = |place: usize| {
                if place == last { f64::MAX } else { (1u64 << (place + 1)) as f64 / 1e6 }
            };
            let buckets: Vec<(f64, u64)> = stats
                .engine_histogram
                .iter()
                .enumerate()
                .map(|(place, count)| (bound(place), *count))
                .collect();
            let count = stats.engine_histogram.iter().sum();
            let sum = stats.engine_nanos as f64 / 1e9;
            family.encode_family(labels)?.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
        }
        Ok(())
    }
}
