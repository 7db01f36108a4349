//! A scheduler's numbers for whatever recorder the `metrics` facade has.

use std::hash::BuildHasher;

use metrics::{Label, counter, gauge};

use super::series::{Series, Value, series};
use crate::{Resource, Scheduler};

/// Hands the numbers of a scheduler to the recorder of the `metrics` facade, under the names and labels of the Prometheus collector,
/// with `name` in the label `scheduler`. To be called as often as they are to be fresh.
///
/// Counters are set to their present value. The facade takes no distribution as a whole, and counters of whole numbers only: so a
/// distribution is a counter, `_count`, and a gauge that only grows, `_sum`, in the unit of its name.
///
/// O(shards), as [`Scheduler::stats`].
///
/// ```
/// use leasehold::{Entry, Scheduler};
///
/// let keys = Scheduler::<Entry<u8, u32, ()>>::builder().build()?;
/// leasehold::publish_metrics("keys", &keys);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn publish_metrics<R: Resource, S: BuildHasher>(name: &str, scheduler: &Scheduler<R, S>) {
    for family in series(&scheduler.stats(), scheduler.telemetry().as_ref()) {
        for (value, sample) in &family.samples {
            let labels = labels(name, &family, value);
            match sample {
                Value::Count(count) => {
                    counter!(format!("{}_total", family.full_name()), labels).absolute(*count)
                }
                Value::Level(level) => gauge!(family.full_name(), labels).set(*level),
                Value::Distribution { sum, buckets } => {
                    let count = buckets.iter().map(|(_, count)| count).sum();
                    counter!(format!("{}_count", family.full_name()), labels.clone()).absolute(count);
                    gauge!(format!("{}_sum", family.full_name()), labels).set(*sum);
                }
            }
        }
    }
}

fn labels(scheduler: &str, family: &Series, value: &'static str) -> Vec<Label> {
    let mut labels = vec![Label::new("scheduler", scheduler.to_owned())];
    labels.extend(family.label.map(|label| Label::from_static_parts(label, value)));
    labels
}
