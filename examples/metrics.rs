//! Two fleets in one Prometheus registry, and with the feature `pool` two pools: prints what a scrape would read.
//!
//! ```sh
//! cargo run --example metrics --features prometheus,pool | promtool check metrics
//! ```
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::{error::Error, panic::resume_unwind, sync::Arc, thread, time::Duration};

use leasehold::{
    Ejection, Entry, Event, EventKind, Outcome, Scheduler,
    prometheus::{SchedulerCollector, text},
};
use prometheus_client::registry::Registry;

type Fleet = Scheduler<Entry<u32, u32, ()>>;

const SOME: Duration = Duration::from_millis(2);

fn main() -> Result<(), Box<dyn Error>> {
    let collector = SchedulerCollector::new();
    let keys = Fleet::builder()
        .shards(4)
        .measure(1)
        .ejection(Ejection::default().consecutive_failures(1).max_share(20))
        .max_hold(SOME)
        .max_waiters(1)
        // Too little, so that some are dropped; and an observer that cannot bear to see anybody removed.
        .event_capacity(8)
        .observer(|event: &Event<u32>| {
            if event.kind == EventKind::Removed {
                resume_unwind(Box::new("an observer's panic is counted"));
            }
        });
    // What is recorded is in no sample of the delay: so this one has no limit for its leases.
    let fleets = [Arc::new(keys.build()?), Arc::new(Fleet::builder().measure(1).build()?)];
    for (name, fleet) in ["keys", "replicas"].into_iter().zip(&fleets) {
        collector.watch(name, fleet);
        for key in 0..10 {
            fleet.insert(Entry::new(key, key, ()))?;
        }
        for _ in 0..100 {
            fleet.acquire()?.finish(Outcome::Ok { latency: SOME });
        }
    }
    // A sample of the delay is of no use if it is asked for by name. One sample in 16 of a shard begins one.
    while fleets[1].telemetry().is_some_and(|seen| seen.delays_discarded == 0) {
        let returned = *fleets[1].acquire()?.key();
        drop(fleets[1].acquire_key(&returned)?);
    }
    lives(&fleets[0])?;
    waits(&fleets[0])?;
    let mut registry = Registry::default();
    registry.register_collector(Box::new(collector));
    #[cfg(feature = "pool")]
    let _pools = pools(&mut registry)?;
    print!("{}", text(&registry)?);
    Ok(())
}

/// All that can happen to a resource and to a lease.
fn lives(fleet: &Fleet) -> Result<(), Box<dyn Error>> {
    fleet.update(Entry::new(0, 1, ()))?;
    fleet.cool(&1, SOME)?;
    fleet.warm(&1)?;
    fleet.eject(&1)?;
    fleet.readmit(&1)?;
    fleet.drain(&1)?;
    fleet.undrain(&1)?;
    fleet.exclude(&1)?;
    fleet.include(&1)?;
    while fleet.stats().observer_panics == 0 {
        fleet.insert(Entry::new(10, 10, ()))?;
        // Until there is room again.
        thread::sleep(10 * SOME);
        fleet.remove(&10)?;
        thread::sleep(10 * SOME);
    }
    fleet.evict_worst();
    // As a scrape finds them: one of each is left.
    fleet.exclude(&3)?;
    fleet.drain(&4)?;
    fleet.acquire_key(&5)?.finish(Outcome::Failed);
    fleet.acquire_key(&6)?.finish(Outcome::RateLimited { retry_after: Duration::from_secs(5) });
    fleet.acquire_key(&7)?.finish(Outcome::Cancelled);
    let leaving = fleet.acquire_key(&8)?.into_token();
    fleet.remove(&8)?;
    // Held for too long, and taken back.
    let mut held = fleet.acquire_key(&7)?;
    thread::sleep(2 * SOME);
    fleet.reap_overdue();
    fleet.revoke(held.token())?;
    let _ = leaving;
    Ok(())
}

/// All that can become of a request that has to wait.
fn waits(fleet: &Fleet) -> Result<(), Box<dyn Error>> {
    let lease = fleet.acquire_key(&0)?;
    thread::scope(|scope| {
        let waiting = scope.spawn(|| fleet.request().key(&0).wait().map(drop));
        while fleet.stats().waits.waited == 0 {
            thread::yield_now();
        }
        // One may wait, and does.
        assert!(fleet.request().key(&0).timeout(SOME).wait().is_err(), "the queue is full");
        thread::sleep(SOME);
        drop(lease);
        waiting.join().expect("no panic")
    })?;
    let _lease = fleet.acquire_key(&0)?;
    assert!(fleet.acquire_key(&0).is_err(), "it does not wait");
    assert!(fleet.request().key(&0).timeout(SOME).wait().is_err(), "in vain");
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
