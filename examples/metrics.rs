//! Two fleets in one Prometheus registry: prints what a scrape would read.
//!
//! ```sh
//! cargo run --example metrics --features prometheus | promtool check metrics
//! ```
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::{error::Error, sync::Arc, time::Duration};

use leasehold::{
    Entry, Outcome, Scheduler,
    prometheus::{SchedulerCollector, text},
};
use prometheus_client::registry::Registry;

type Fleet = Scheduler<Entry<u32, u32, ()>>;

fn main() -> Result<(), Box<dyn Error>> {
    let collector = SchedulerCollector::new();
    let fleets =
        [Arc::new(Fleet::builder().shards(4).measure(1).build()?), Arc::new(Fleet::builder().build()?)];
    for (name, fleet) in ["keys", "replicas"].into_iter().zip(&fleets) {
        collector.watch(name, fleet);
        for key in 0..10 {
            fleet.insert(Entry::new(key, key, ()))?;
        }
        for _ in 0..100 {
            fleet.acquire()?.finish(Outcome::Ok { latency: Duration::from_millis(2) });
        }
    }
    fleets[0].exclude(&3)?;
    fleets[0].acquire()?.finish(Outcome::RateLimited { retry_after: Duration::from_secs(5) });
    let mut registry = Registry::default();
    registry.register_collector(Box::new(collector));
    print!("{}", text(&registry)?);
    Ok(())
}
