//! Schedulers, and pools, as collectors of `prometheus-client`.
//!
//! One collector for all schedulers of a registry, not one for each: a family may have its description once in an exposition, and the
//! label `scheduler` tells the samples apart. The same for pools.

use std::{
    collections::HashMap,
    fmt,
    hash::BuildHasher,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, NoLabelSet, text},
    metrics::MetricType,
    registry::{Registry, Unit},
};

use super::series::{Kind, Series, Value, series};
use crate::{Resource, Scheduler};

/// Something that can be read while it lives. Under the collector's lock it is only made to live on: reading it runs user code, and so does
/// its end, which whoever reads it may bring about.
trait Source: Send + Sync {
    fn live(&self) -> Option<Box<dyn Alive>>;
}

/// Something that lives at least until it has been read.
trait Alive {
    fn read(&self) -> Vec<Series>;
}

impl<R: Resource, S: BuildHasher + Send + Sync + 'static> Source for Weak<Scheduler<R, S>> {
    fn live(&self) -> Option<Box<dyn Alive>> {
        Some(Box::new(self.upgrade()?))
    }
}

impl<R: Resource, S: BuildHasher> Alive for Arc<Scheduler<R, S>> {
    fn read(&self) -> Vec<Series> {
        // What time has brought about is to be seen, also if nobody has asked for anything since.
        self.tick();
        series(&self.stats(), self.telemetry().as_ref())
    }
}

#[cfg(feature = "pool")]
impl<T: Send + 'static, M: crate::pool::Metrics> Source for Weak<crate::pool::Pool<T, M>> {
    fn live(&self) -> Option<Box<dyn Alive>> {
        Some(Box::new(self.upgrade()?))
    }
}

#[cfg(feature = "pool")]
impl<T: Send + 'static, M: crate::pool::Metrics> Alive for Arc<crate::pool::Pool<T, M>> {
    fn read(&self) -> Vec<Series> {
        super::pool_series::series(&self.stats(), self.metrics().distributions())
    }
}

struct Watched {
    name: String,
    source: Box<dyn Source>,
}

/// What a collector watches.
#[derive(Clone, Default)]
struct Watch(Arc<Mutex<Vec<Watched>>>);

impl Watch {
    fn all(&self) -> MutexGuard<'_, Vec<Watched>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, name: &str, source: Box<dyn Source>) {
        let name = escaped(name);
        let mut watched = self.all();
        watched.retain(|other| other.name != name);
        watched.push(Watched { name, source });
    }

    fn names(&self) -> Vec<String> {
        self.all().iter().map(|watched| watched.name.clone()).collect()
    }

    /// Every family once, the samples of each source with its name under `label`.
    fn encode(&self, label: &'static str, mut encoder: DescriptorEncoder) -> fmt::Result {
        let alive: Vec<(String, Box<dyn Alive>)> = {
            let mut watched = self.all();
            let mut alive = Vec::with_capacity(watched.len());
            watched.retain(|watched| {
                let source = watched.source.live();
                let lives = source.is_some();
                alive.extend(source.map(|source| (watched.name.clone(), source)));
                lives
            });
            alive
        };
        // The lock is free: one that nobody else keeps any more dies here, as soon as it is read.
        let read: Vec<(String, Vec<Series>)> =
            alive.into_iter().map(|(name, source)| (name, source.read())).collect();
        // Who measures more has the same families, and some at the end.
        let Some((_, families)) = read.iter().max_by_key(|(_, families)| families.len()) else {
            return Ok(());
        };
        for (place, family) in families.iter().enumerate() {
            let unit = family.unit.map(|_| Unit::Seconds);
            let name = format!("leasehold_{}", family.name);
            let kind = match family.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
                Kind::Histogram => MetricType::Histogram,
            };
            let mut metric = encoder.encode_descriptor(&name, family.help, unit.as_ref(), kind)?;
            for (source, family) in read.iter().filter_map(|(name, all)| Some((name, all.get(place)?))) {
                for (value, sample) in &family.samples {
                    let mut labels = vec![(label, source.as_str())];
                    labels.extend(family.label.map(|label| (label, *value)));
                    let mut metric = metric.encode_family(&labels)?;
                    match sample {
                        Value::Count(count) => metric.encode_counter::<NoLabelSet, _, u64>(count, None)?,
                        Value::Seconds(sum) => metric.encode_counter::<NoLabelSet, _, u64>(sum, None)?,
                        Value::Level(level) => metric.encode_gauge(level)?,
                        Value::Distribution { sum, buckets } => {
                            let count = buckets.iter().map(|(_, count)| count).sum();
                            metric.encode_histogram::<NoLabelSet>(*sum, count, buckets, None)?;
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

/// The metrics of any number of schedulers, each with its name in the label `scheduler`. Clones are the same collector.
///
/// Nothing is counted for it: a scrape reads [`Scheduler::stats`], and [`Scheduler::telemetry`] if that was asked for; O(shards). Before, it
/// lets time pass, by [`Scheduler::tick`]: what has cooled by then counts as eligible, although nobody may have asked for it.
///
/// # Callbacks
/// Those of `tick`, and the name of a custom strategy. If the scheduler is given up during a scrape, that may be who drops it: what
/// it has, observers included, may use this collector, but not the registry if that is locked for the scrape.
///
/// ```
/// use leasehold::{Entry, Scheduler, prometheus::SchedulerCollector};
/// use prometheus_client::registry::Registry;
/// use std::sync::Arc;
///
/// let keys = Arc::new(Scheduler::<Entry<u8, u32, ()>>::builder().shards(1).build()?);
/// let collector = SchedulerCollector::new();
/// collector.watch("keys", &keys);
/// let mut registry = Registry::default();
/// registry.register_collector(Box::new(collector));
/// keys.insert(Entry::new(1, 0, ()))?;
/// let text = leasehold::prometheus::text(&registry)?;
/// assert!(text.contains("leasehold_resources{scheduler=\"keys\"} 1.0\n"));
/// assert!(text.contains("leasehold_transitions_total{scheduler=\"keys\",kind=\"inserted\"} 1\n"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default)]
pub struct SchedulerCollector(Watch);

impl SchedulerCollector {
    /// It watches nobody yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Watches a scheduler under this name, as long as it lives; it is not kept alive. A name that is in use goes to the newcomer. It may
    /// have any characters: those that the format reserves are escaped.
    pub fn watch<R: Resource, S: BuildHasher + Send + Sync + 'static>(
        &self,
        name: impl Into<String>,
        scheduler: &Arc<Scheduler<R, S>>,
    ) {
        self.0.add(&name.into(), Box::new(Arc::downgrade(scheduler)));
    }
}

impl fmt::Debug for SchedulerCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SchedulerCollector").field(&self.0.names()).finish()
    }
}

impl Collector for SchedulerCollector {
    fn encode(&self, encoder: DescriptorEncoder) -> fmt::Result {
        self.0.encode("scheduler", encoder)
    }
}

/// The metrics of any number of worker pools, each with its name in the label `pool`. Clones are the same collector.
///
/// A scrape reads [`Pool::stats`](crate::pool::Pool::stats), and the distributions of waiting and running times if the pool's
/// [`Metrics`](crate::pool::Metrics) keep them, as [`AtomicMetrics`](crate::pool::AtomicMetrics) do.
///
/// ```
/// use leasehold::{pool::{AtomicMetrics, Job, Pool}, prometheus::PoolCollector};
/// use prometheus_client::registry::Registry;
/// use std::{sync::Arc, time::Duration};
///
/// let pool = Arc::new(Pool::builder().workers(2).metrics(AtomicMetrics::default()).build()?);
/// let collector = PoolCollector::new();
/// collector.watch("thumbnails", &pool);
/// let mut registry = Registry::default();
/// registry.register_collector(Box::new(collector));
/// pool.submit(Job::new(0u8, |_, _| Ok(())))?;
/// pool.shutdown(Duration::MAX);
/// let text = leasehold::prometheus::text(&registry)?;
/// assert!(text.contains("leasehold_pool_jobs_total{pool=\"thumbnails\",ended=\"done\"} 1\n"));
/// assert!(text.contains("leasehold_pool_run_seconds_count{pool=\"thumbnails\"} 1\n"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[cfg(feature = "pool")]
#[derive(Clone, Default)]
pub struct PoolCollector(Watch);

#[cfg(feature = "pool")]
impl PoolCollector {
    /// It watches nobody yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Watches a pool under this name, as long as it lives; it is not kept alive. A name that is in use goes to the newcomer.
    pub fn watch<T: Send + 'static, M: crate::pool::Metrics>(
        &self,
        name: impl Into<String>,
        pool: &Arc<crate::pool::Pool<T, M>>,
    ) {
        self.0.add(&name.into(), Box::new(Arc::downgrade(pool)));
    }
}

#[cfg(feature = "pool")]
impl fmt::Debug for PoolCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PoolCollector").field(&self.0.names()).finish()
    }
}

#[cfg(feature = "pool")]
impl Collector for PoolCollector {
    fn encode(&self, encoder: DescriptorEncoder) -> fmt::Result {
        self.0.encode("pool", encoder)
    }
}

/// A label's value as both formats want it. `prometheus-client` writes values as they are, and one bad sample spoils the whole scrape.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// The registry in Prometheus' own text format (`text/plain; version=0.0.4`). The `prometheus-client` crate writes OpenMetrics, which
/// differs: a counter's description lacks its `_total`, an info's its `_info`; there are units, exemplars and types that the older format
/// does not have. Here an info and a state set are gauges, what is unknown is untyped, and units and exemplars are left out.
///
/// Label values of other collectors are passed on as these wrote them: a quote that is not escaped stays so.
///
/// # Errors
/// What a collector of the registry answers.
pub fn text(registry: &Registry) -> Result<String, fmt::Error> {
    let mut open = String::new();
    text::encode(&mut open, registry)?;
    // By family: what its samples have at the end of their names, and its type. Known before its help comes.
    let families: HashMap<&str, (&str, &str)> = open
        .lines()
        .filter_map(|line| {
            let (name, kind) = line.strip_prefix("# TYPE ")?.split_once(' ')?;
            let plain = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                "stateset" => ("", "gauge"),
                "histogram" | "summary" | "gauge" => ("", kind),
                _ => ("", "untyped"),
            };
            Some((name, plain))
        })
        .collect();
    let mut plain = String::with_capacity(open.len());
    for line in open.lines() {
        let Some(described) = line.strip_prefix("# ") else {
            plain.push_str(without_exemplar(line));
            plain.push('\n');
            continue;
        };
        let mut words = described.splitn(3, ' ');
        let (what, name) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let &(suffix, kind) = families.get(name).unwrap_or(&("", "untyped"));
        match what {
            "TYPE" => plain.push_str(&format!("# TYPE {name}{suffix} {kind}\n")),
            "HELP" => {
                plain.push_str(&format!("# HELP {name}{suffix} {}\n", words.next().unwrap_or_default()));
            }
            // `UNIT`, and `EOF` at the end.
            _ => {}
        }
    }
    Ok(plain)
}

/// A sample without what follows its value behind a `#`. Labels may have one too, in quotes.
fn without_exemplar(sample: &str) -> &str {
    let (mut is_quoted, mut is_escaped) = (false, false);
    for (at, c) in sample.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' if is_quoted => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            '#' if !is_quoted => return sample[..at].trim_end(),
            _ => {}
        }
    }
    sample
}
