//! A scheduler's numbers, and a pool's, for whatever recorder the `metrics` facade has.

use std::hash::BuildHasher;

use metrics::{Label, Unit, counter, describe_counter, describe_gauge, gauge};

use super::series::{Kind, Series, Value, every_series, series};
use crate::{Resource, Scheduler};

/// Hands the numbers of a scheduler to the recorder of the `metrics` facade, under the names and labels of the Prometheus collector,
/// with `name` in the label `scheduler`. To be called as often as they are to be fresh; [`describe_metrics`] once before.
///
/// Counters are set to their present value. The facade takes no distribution as a whole, and counters of whole numbers only: so a
/// distribution is counters, `_bucket` with its upper bound in the label `le` and what is below it, the lower buckets included, and `_count`;
/// and a gauge that only grows, `_sum`, in the unit of the name. To a Prometheus that scrapes the recorder's output this is a histogram. And a
/// counter of seconds is a gauge that only grows, without `_total`.
///
/// O(shards), as [`Scheduler::stats`]. Before, it lets time pass, by [`Scheduler::tick`]: what has cooled by then counts as eligible,
/// although nobody may have asked for it.
///
/// ```
/// use leasehold::{Entry, Scheduler};
///
/// let keys = Scheduler::<Entry<u8, u32, ()>>::builder().build()?;
/// leasehold::describe_metrics();
/// leasehold::publish_metrics("keys", &keys);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn publish_metrics<R: Resource, S: BuildHasher>(name: &str, scheduler: &Scheduler<R, S>) {
    scheduler.tick();
    publish("scheduler", name, series(&scheduler.stats(), scheduler.telemetry().as_ref()));
}

/// As [`publish_metrics`], of a worker pool, with `name` in the label `pool`: its [`stats`](crate::pool::Pool::stats), and the distributions of
/// waiting and running times if its [`Metrics`](crate::pool::Metrics) keep them. O(workers).
///
/// ```
/// use leasehold::pool::{AtomicMetrics, Pool};
///
/// let thumbnails = Pool::<u32>::builder().workers(1).metrics(AtomicMetrics::default()).build()?;
/// leasehold::describe_metrics();
/// leasehold::publish_pool_metrics("thumbnails", &thumbnails);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[cfg(feature = "pool")]
pub fn publish_pool_metrics<T: Send + 'static, M: crate::pool::Metrics>(
    name: &str,
    pool: &crate::pool::Pool<T, M>,
) {
    publish("pool", name, super::pool_series::series(&pool.stats(), pool.metrics().distributions()));
}

/// Hands these families over, of the one of that name.
fn publish(of: &'static str, name: &str, families: Vec<Series>) {
    for family in families {
        for (value, sample) in &family.samples {
            let labels = labels(of, name, &family, value);
            match sample {
                Value::Count(count) => counter!(counted(&family), labels).absolute(*count),
                Value::Level(level) | Value::Seconds(level) => {
                    gauge!(family.full_name(), labels).set(*level);
                }
                Value::Distribution { sum, buckets } => {
                    let [bucket, count, sum_of_all] = distributed(&family);
                    let mut below = 0;
                    for (bound, more) in buckets {
                        below += more;
                        let mut labels = labels.clone();
                        labels.push(Label::new("le", written(*bound)));
                        counter!(bucket.clone(), labels).absolute(below);
                    }
                    counter!(count, labels.clone()).absolute(below);
                    gauge!(sum_of_all, labels).set(*sum);
                }
            }
        }
    }
}

/// Tells the recorder of the `metrics` facade what each number of [`publish_metrics`] is, and in which unit; with the feature `pool` those of
/// `publish_pool_metrics`, too. To be called once, after the recorder was set.
pub fn describe_metrics() {
    let of_pools = {
        #[cfg(feature = "pool")]
        {
            super::pool_series::every_series()
        }
        #[cfg(not(feature = "pool"))]
        Vec::new()
    };
    for family in every_series().into_iter().chain(of_pools) {
        let unit = if family.unit.is_some() { Unit::Seconds } else { Unit::Count };
        match family.kind {
            Kind::Counter if family.unit.is_none() => {
                describe_counter!(counted(&family), unit, family.help);
            }
            Kind::Counter | Kind::Gauge => describe_gauge!(family.full_name(), unit, family.help),
            Kind::Histogram => {
                let [bucket, count, sum] = distributed(&family);
                describe_counter!(bucket, Unit::Count, family.help);
                describe_counter!(count, Unit::Count, family.help);
                describe_gauge!(sum, unit, family.help);
            }
        }
    }
}

fn counted(family: &Series) -> String {
    format!("{}_total", family.full_name())
}

fn distributed(family: &Series) -> [String; 3] {
    ["bucket", "count", "sum"].map(|suffix| format!("{}_{suffix}", family.full_name()))
}

/// As Prometheus writes it. The last bucket has no bound.
fn written(bound: f64) -> String {
    if bound == f64::MAX { "+Inf".to_owned() } else { bound.to_string() }
}

fn labels(of: &'static str, name: &str, family: &Series, value: &'static str) -> Vec<Label> {
    let mut labels = vec![Label::new(of, name.to_owned())];
    labels.extend(family.label.map(|label| Label::from_static_parts(label, value)));
    labels
}
