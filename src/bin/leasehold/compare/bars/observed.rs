//! What it costs to be watched.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use leasehold::{
    Event, Observer, Scheduler, Strategy,
    prometheus::{SchedulerCollector, text},
};
use prometheus_client::registry::Registry;

use super::{Measured, Setting};
use crate::compare::{
    cases::{Asset, Operation, fleet, side},
    measure::alternate,
};

/// Often, for a scrape.
const SCRAPED_EVERY: Duration = Duration::from_millis(100);

/// Room for events per shard. An observer's thread that had nothing to do while the other side ran looks again after 16 ms; and on a busy
/// machine it does not run whenever it likes to.
const ROOM: usize = 1 << 16;

struct Counting(Arc<AtomicU64>);

impl Observer<u64> for Counting {
    fn on_event(&mut self, _: &Event<u64>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// The same scheduler with an observer and a registry that is read all the time, and with nothing. Without [`measure`]: that reads the
/// clock twice for each lease, which is about what a pair costs.
///
/// Dropping an event is cheaper than telling of it: so there is room for them, and the share that was dropped all the same belongs to the
/// result.
///
/// [`measure`]: leasehold::Builder::measure
pub fn against_unobserved(setting: &Setting) -> Measured {
    let plain = setting.scheduler(Strategy::default());
    let seen = Arc::new(AtomicU64::new(0));
    let observed = Scheduler::<Asset>::builder()
        .shards(setting.shards)
        .event_capacity(ROOM)
        .observer(Counting(Arc::clone(&seen)))
        .build()
        .expect("in range");
    let observed = Arc::new(observed);
    fleet(&*observed, setting.resources);
    let collector = SchedulerCollector::new();
    collector.watch("observed", &observed);
    let mut registry = Registry::default();
    registry.register_collector(Box::new(collector));

    let stop = AtomicBool::new(false);
    let times = thread::scope(|scope| {
        let scraper = scope.spawn(|| {
            let mut scraped = 0;
            while !stop.load(Ordering::Relaxed) {
                scraped += text(&registry).expect("text").len();
                thread::sleep(SCRAPED_EVERY);
            }
            scraped
        });
        let pair = |scheduler| side::<Scheduler<Asset>>(Operation::AcquireRelease, scheduler);
        let times = alternate(&setting.plan(), &pair(&observed), &pair(&plain));
        stop.store(true, Ordering::Relaxed);
        assert!(scraper.join().expect("no panic") > 0, "it was scraped");
        times
    });
    // All that found room is told, or missed by the observer.
    observed.close();
    let stats = observed.stats();
    let told = seen.load(Ordering::Relaxed);
    assert_eq!(told + stats.events_missed, stats.events_emitted, "it was observed");
    let all = stats.events_emitted + stats.events_dropped;
    Measured::Observed(times, (all - told) as f64 / all as f64)
}
