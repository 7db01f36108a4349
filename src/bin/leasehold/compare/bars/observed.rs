//! What it costs to be watched.

use std::{
    hint::black_box,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, Thread},
    time::{Duration, Instant},
};

use leasehold::{
    Builder, Entry, Event, Observer, Resource, Scheduler, SplitMix64,
    prometheus::{SchedulerCollector, text},
};
use prometheus_client::registry::Registry;

use super::{Measured, Setting, locked};
use crate::compare::{
    cases::Asset,
    measure::{BATCH, Turn, Worker, run, take_turns},
};

/// Often, for a scrape.
const SCRAPED_EVERY: Duration = Duration::from_millis(100);

/// Room for events per shard; whoever gives the builder an observer and no capacity has at most a quarter of it. On a busy machine the observer's
/// thread does not run whenever it likes to.
const ROOM: usize = 1 << 16;

struct Counting(Arc<AtomicU64>);

impl<K> Observer<K> for Counting {
    fn on_event(&mut self, _: &Event<K>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// One of so many acquisitions is looked at for its rank.
const SAMPLED: u32 = 1_024;

/// As many shards as a scheduler has at most unless it is told otherwise.
const MOST_SHARDS: usize = 64;

/// A key that has to be cloned for each event, and allocates then.
type Named = Entry<String, u64, u64>;

/// A key that is cloned without allocating: as the names of the gateway's keys.
type Shared = Entry<Arc<str>, u64, u64>;

/// The same scheduler with an observer, a registry that is read all the time and samples of the error in rank, and with nothing. Without
/// [`measure`]: that reads the clock twice for each lease, which is about what a pair costs.
///
/// Who reads the registry rests while the other side has its turn, and that turn begins when the observer has been told of everything: on a
/// machine without a processor to spare it would be slower for it, and the ratio smaller than it would be in two processes.
///
/// Dropping an event is cheaper than telling of it: so there is room for them, and the share that was dropped all the same belongs to the
/// result.
///
/// [`measure`]: leasehold::Builder::measure
pub fn against_unobserved(setting: &Setting) -> Measured {
    watched(setting, asset, |builder| builder.measure_order(SAMPLED))
}

/// The same with keys that are text.
pub fn strings_against_unobserved(setting: &Setting) -> Measured {
    let named = |key, rank| Named::new(format!("resource-{key}"), rank, key);
    watched(setting, named, |builder| builder.measure_order(SAMPLED))
}

/// The same with keys that are shared text.
pub fn shared_strings_against_unobserved(setting: &Setting) -> Measured {
    let named = |key, rank| Shared::new(format!("resource-{key}").into(), rank, key);
    watched(setting, named, |builder| builder.measure_order(SAMPLED))
}

/// The same with the time of each lease.
pub fn measured_against_unobserved(setting: &Setting) -> Measured {
    watched(setting, asset, |builder| builder.measure(SAMPLED))
}

/// Samples of the order alone: no observer, no events, and nobody who reads.
pub fn sampled_against_unsampled(setting: &Setting) -> Measured {
    sampled_in(setting)
}

/// The same where a look has the most to read: the best of each shard.
pub fn sampled_in_many_shards(setting: &Setting) -> Measured {
    sampled_in(&Setting { shards: MOST_SHARDS, ..*setting })
}

fn sampled_in(setting: &Setting) -> Measured {
    let plan = setting.plan();
    // A fleet of its own in each run: two equal ones differ by up to 2 % for good, by where their memory lies.
    let turn = |builder: fn() -> Builder<Asset>| -> Turn<'_> {
        Box::new(move |seed| run(&plan, seed, &pairs(&filled(builder(), setting, asset))))
    };
    let sampled = turn(|| Scheduler::builder().measure_order(SAMPLED));
    Measured::Ratio(take_turns(plan.pairs, &mut [sampled, turn(Scheduler::builder)]))
}

fn asset(key: u64, rank: u64) -> Asset {
    Asset::new(key, rank, key)
}

/// A fleet of what `make` makes of keys and ranks.
fn filled<R: Resource>(
    builder: Builder<R>,
    setting: &Setting,
    make: impl Fn(u64, u64) -> R,
) -> Arc<Scheduler<R>> {
    let scheduler = builder.shards(setting.shards).build().expect("in range");
    let mut random = SplitMix64::new(1);
    let resources = (0..u64::from(setting.resources)).map(|key| make(key, random.next_u64())).collect();
    assert!(scheduler.insert_batch(resources).is_ok(), "the keys are distinct and the fleet is unbounded");
    Arc::new(scheduler)
}

fn pairs<R: Resource>(scheduler: &Scheduler<R>) -> impl Fn(&mut Worker) + Sync {
    move |_| {
        for _ in 0..BATCH {
            let lease = scheduler.acquire().expect("there is a resource for each thread");
            black_box(&*lease);
        }
    }
}

/// Whether the registry is to be read.
#[derive(Default)]
struct Watch {
    /// Locked for each reading: whoever says that it is over waits for the one that is going on.
    is_on: Mutex<bool>,
    is_over: AtomicBool,
}

impl Watch {
    fn begin(&self, scraper: &Thread) {
        locked(&self.is_on, |is_on| *is_on = true);
        scraper.unpark();
    }

    fn end(&self) {
        locked(&self.is_on, |is_on| *is_on = false);
    }

    fn stop(&self, scraper: &Thread) {
        self.is_over.store(true, Ordering::Relaxed);
        scraper.unpark();
    }

    /// Reads while it is to be read, and sleeps while it is not. Answers how much was read.
    fn scrape(&self, read: impl Fn() -> usize) -> usize {
        let mut scraped = 0;
        while !self.is_over.load(Ordering::Relaxed) {
            match locked(&self.is_on, |is_on| is_on.then(&read)) {
                // Whoever stops or begins does not wait for it.
                Some(read) => {
                    scraped += read;
                    thread::park_timeout(SCRAPED_EVERY);
                }
                None => thread::park(),
            }
        }
        scraped
    }
}

/// Longer than an observer's thread takes on a machine that gives it any time.
const PATIENCE: Duration = Duration::from_secs(2);

/// Waits until the observer has been told of everything, so that nothing is left to do in the other side's turn. On a machine that is too
/// busy for that within [`PATIENCE`] the row says less, and what is dropped shows it.
fn all_told<R: Resource>(observed: &Scheduler<R>, seen: &AtomicU64) {
    let begun = Instant::now();
    let is_told = || {
        let stats = observed.stats();
        seen.load(Ordering::Relaxed) + stats.events_missed >= stats.events_emitted
    };
    while !is_told() && begun.elapsed() < PATIENCE {
        thread::sleep(Duration::from_millis(1));
    }
}

fn watched<R: Resource>(
    setting: &Setting,
    make: impl Fn(u64, u64) -> R,
    measured: impl FnOnce(Builder<R>) -> Builder<R>,
) -> Measured {
    let seen = Arc::new(AtomicU64::new(0));
    let plain = filled(Scheduler::builder(), setting, &make);
    let observing = Scheduler::builder().event_capacity(ROOM).observer(Counting(Arc::clone(&seen)));
    let observed = filled(measured(observing), setting, &make);
    let collector = SchedulerCollector::new();
    collector.watch("observed", &observed);
    let mut registry = Registry::default();
    registry.register_collector(Box::new(collector));

    let watch = Watch::default();
    let times = thread::scope(|scope| {
        let scraper = scope.spawn(|| watch.scrape(|| text(&registry).expect("text").len()));
        let plan = setting.plan();
        let (observed_side, plain_side) = (pairs(&observed), pairs(&plain));
        let mut observed_turn = |seed| {
            // Whoever has had nothing to tell for so long sleeps for long: it is to be awake when the turn begins.
            drop(observed.acquire());
            all_told(&observed, &seen);
            watch.begin(scraper.thread());
            let time = run(&plan, seed, &observed_side);
            watch.end();
            all_told(&observed, &seen);
            time
        };
        let plain_turn = |seed| run(&plan, seed, &plain_side);
        let times = take_turns(plan.pairs, &mut [Box::new(&mut observed_turn), Box::new(plain_turn)]);
        watch.stop(scraper.thread());
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
