//! Two fleets in one Prometheus registry, and with the feature `pool` two pools: prints what a scrape would read.
//!
//! ```sh
//! cargo run --example metrics --features prometheus,pool | promtool check metrics
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
    #[cfg(feature = "pool")]
    let _pools = pools(&mut registry)?;
    print!("{}", text(&registry)?);
    Ok(())
}

#[cfg(feature = "pool")]
type Pool = leasehold::pool::Pool<u32, leasehold::pool::AtomicMetrics>;

/// Two pools that have run some jobs, of which some have failed.
#[cfg(feature = "pool")]
fn pools(registry: &mut Registry) -> Result<Vec<Arc<Pool>>, Box<dyn Error>> {
    use leasehold::pool::{AtomicMetrics, Job};

    let collector = leasehold::prometheus::PoolCollector::new();
    let mut pools = Vec::new();
    for name in ["thumbnails", "mail"] {
        let pool = Arc::new(
            leasehold::pool::Pool::builder()
                .workers(2)
                .capacity(100)
                .metrics(AtomicMetrics::default())
                .build()?,
        );
        collector.watch(name, &pool);
        for number in 0..50 {
            pool.submit(Job::new(
                number,
                |number, _| {
                    if *number % 10 == 9 { Err("nine".into()) } else { Ok(()) }
                },
            ))?;
        }
        let _ = pool.shutdown(Duration::from_secs(10));
        pools.push(pool);
    }
    registry.register_collector(Box::new(collector));
    Ok(pools)
}
