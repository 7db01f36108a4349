//! What a long run is watched for: memory that grows, and memory that is not freed.
//!
//! A reader stays: it looks at a resource and keeps what it sees for a second, goes for a second, and so on. While it
//! stays, nothing that was replaced or removed since it came can be freed, by any reclaimer that lets readers be: so what
//! waits to be freed is **at most what was retired since it came**, plus what each thread gathers before it frees. What
//! had been retired before is freed all the same. After it has gone everything is.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use leasehold::{Builder, Cooldown, Event, Overdue, Overflow};
use serde::{Deserialize, Serialize};

use super::{
    asset::{Asset, Census},
    drive::State,
    processors,
    referee::Referee,
    result::Check,
    scenario::Scenario,
    subject::Subject,
    worker::Round,
};

/// Every feature that can be on beside the others. What requests and chores do with them is in the scenario.
pub fn everything_on(builder: Builder<Asset>, scenario: &Scenario) -> Builder<Asset> {
    let builder = builder
        .remember_outcomes(true)
        .cooldown(Cooldown::default())
        .event_capacity(1 << 12)
        // Longer than any lease of the scenario: that nobody is revoked is checked.
        .max_hold(Duration::from_secs(30))
        .overdue(Overdue::Revoke)
        .max_resources(scenario.resources as usize, Overflow::Reject);
    #[cfg(feature = "telemetry")]
    let builder = builder.measure(64).measure_order(64);
    #[cfg(feature = "tracing")]
    let builder = builder.observer(traced::observer());
    builder
}

/// What was seen.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Soak {
    /// What the fleet took when it was inserted.
    pub fleet_bytes: u64,
    /// Bytes allocated and not freed, each second.
    pub heap_bytes: Vec<u64>,
    /// Growth from the second quarter of the run to the last, over the fleet's size: 0.01 is one per cent. `None`: the run was too short
    /// to measure it.
    pub growth: Option<f64>,
    /// Times that the reader came and stayed.
    pub stays: u64,
    /// Values that were replaced or removed.
    pub retired: u64,
    /// The most that waited to be freed while the reader stayed, and the most that were retired during a stay.
    pub most_while_it_stayed: u64,
    pub most_retired_in_a_stay: u64,
    /// The most that waited to be freed at the end of a time without it, and at the end of the run.
    pub most_after_it_left: u64,
    pub left_over: u64,
    /// How often the most that waits to be freed came down: the reclaimer goes on.
    pub times_freed: u64,
    /// Events that an observer has read, lines of all scrapes together, and events that went to `tracing`; 0 without the feature.
    #[serde(default)]
    pub events: u64,
    #[serde(default)]
    pub scraped: u64,
    #[serde(default)]
    pub traced: u64,
}

/// What the reader and the watcher share.
#[derive(Default)]
pub struct Watch {
    stays: AtomicBool,
    times: AtomicU64,
    /// Values that had been retired when it last came.
    retired_before: AtomicU64,
    /// Events that were read, and lines that were scraped.
    events: Arc<AtomicU64>,
    scraped: AtomicU64,
}

/// What a thread gathers before it frees: the library's documentation says so.
const GATHERS: u64 = 128;

/// How long the reader stays, and how long it is away.
pub const STAY: Duration = Duration::from_secs(1);

impl Watch {
    /// Comes and goes until the round ends.
    pub fn read(&self, round: &Round) {
        let Subject::Leasehold(scheduler) = &*round.subject else { return };
        let seen = Arc::clone(&self.events);
        // One for all rounds: it ends with the scheduler.
        let observer = move |_: &Event<u32>| {
            seen.fetch_add(1, Ordering::Relaxed);
        };
        if round.number == 0
            && let Err(error) = scheduler.observe(observer)
        {
            round.referee.breach(format!("the observer was refused: {error}"));
        }
        #[cfg(feature = "prometheus")]
        let registry = scraped::registry(scheduler);
        while !round.stop.is_set() {
            // SeqCst, here and below: whoever sees that it stays sees what had been retired when it came, and not less.
            self.retired_before.store(round.retired.load(Ordering::SeqCst), Ordering::SeqCst);
            let seen = scheduler.peek();
            self.stays.store(true, Ordering::SeqCst);
            self.times.fetch_add(1, Ordering::Relaxed);
            pause(round, STAY);
            drop(seen);
            #[cfg(feature = "prometheus")]
            self.scraped.fetch_add(scraped::lines(&registry), Ordering::Relaxed);
            self.stays.store(false, Ordering::SeqCst);
            pause(round, STAY);
        }
    }

    /// While it stays: how many values had been retired when it came.
    pub fn stays_since(&self) -> Option<u64> {
        self.stays.load(Ordering::SeqCst).then(|| self.retired_before.load(Ordering::SeqCst))
    }

    pub fn stays(&self) -> u64 {
        self.times.load(Ordering::Relaxed)
    }
}

fn pause(round: &Round, length: Duration) {
    let end = round.clock.now() + length.as_nanos() as u64;
    while round.clock.now() < end && !round.stop.is_set() {
        thread::sleep(Duration::from_millis(10));
    }
}

/// Follows what waits to be freed from look to look.
pub struct Garbage {
    soak: Soak,
    before: u64,
    stayed: bool,
}

impl Garbage {
    pub fn new(fleet_bytes: u64) -> Self {
        let soak = Soak { fleet_bytes, ..Soak::default() };
        Garbage { soak, before: 0, stayed: false }
    }

    /// At this moment so many values exist beyond the fleet's members, and so many have been retired in all; `since`: when the
    /// reader came, if it stays.
    pub fn look(&mut self, waits: u64, retired: u64, since: Option<u64>) {
        let soak = &mut self.soak;
        if let Some(since) = since {
            if !self.stayed && soak.retired > 0 {
                // The time without it is over.
                soak.most_after_it_left = soak.most_after_it_left.max(waits);
            }
            soak.most_while_it_stayed = soak.most_while_it_stayed.max(waits);
            soak.most_retired_in_a_stay = soak.most_retired_in_a_stay.max(retired.saturating_sub(since));
        }
        soak.times_freed += u64::from(waits < self.before);
        (self.before, self.stayed, soak.retired) = (waits, since.is_some(), retired);
    }

    pub fn heap(&mut self, bytes: u64) {
        self.soak.heap_bytes.push(bytes);
    }

    pub fn finish(mut self, stays: u64, left_over: u64) -> Soak {
        self.soak.stays = stays;
        self.soak.left_over = left_over;
        self.soak.growth = growth(&self.soak.heap_bytes, self.soak.fleet_bytes);
        self.soak
    }
}

/// Seconds of a quarter at the least: of fewer the median is an accident.
const QUARTER: usize = 5;

/// The median of the last quarter less that of the second, over the fleet's size. The first quarter is for warming up.
fn growth(bytes: &[u64], fleet: u64) -> Option<f64> {
    let quarter = bytes.len() / 4;
    if quarter < QUARTER || fleet == 0 {
        return None;
    }
    let median = |part: &[u64]| {
        let mut part = part.to_vec();
        part.sort_unstable();
        part[part.len() / 2] as f64
    };
    Some((median(&bytes[3 * quarter..]) - median(&bytes[quarter..2 * quarter])) / fleet as f64)
}

/// Replaces each value once: from then on it is in a block of its own, which the first one is not, and that would look like
/// memory that grows.
pub fn warm_up(subject: &Subject, referee: &Referee, census: &Census) {
    if let Some(fleet) = subject.fleet() {
        for index in 0..referee.lineages() {
            (fleet.update)(referee.asset(index).counted(census));
        }
        leasehold::collect_garbage();
    }
}

/// The end of a soak: what was replaced or removed is freed, and memory is where it was.
pub fn conclude(garbage: Garbage, scenario: &Scenario, state: &State, checks: &mut Vec<Check>) -> Soak {
    leasehold::collect_garbage();
    let members = state.subject.fleet().map_or(0, |fleet| (fleet.len)());
    let mut soak = garbage.finish(state.watch.stays(), waiting(&state.census, members));
    // Nothing can be said of memory in a short run, and so nothing is.
    if let Some(growth) = soak.growth {
        let percent = format!("{:.3} % of {} bytes", growth * 100.0, soak.fleet_bytes);
        checks.push(Check::that("memory", growth < 0.01, percent));
    }
    if let Some(scheduler) = state.subject.scheduler() {
        checks.push(Check::equal("revoked", ("seen", scheduler.stats().revoked), ("expected", 0)));
        soak.events = state.watch.events.load(Ordering::Relaxed);
        checks.push(Check::that("observer", soak.events > 0, format!("{} events read", soak.events)));
    }
    soak.scraped = state.watch.scraped.load(Ordering::Relaxed);
    if cfg!(feature = "prometheus") {
        checks.push(Check::that("scrapes", soak.scraped > 0, format!("{} lines", soak.scraped)));
    }
    #[cfg(feature = "tracing")]
    {
        soak.traced = traced::count();
        checks.push(Check::that("tracing", soak.traced > 0, format!("{} events", soak.traced)));
    }
    // What threads gather before they free: the chores' and this one, and those of the runtime, in which the last lease of a
    // replaced value may end. And the values of leases that are out.
    let gathered = GATHERS * (2 + u64::from(processors()));
    let bound = soak.most_retired_in_a_stay + gathered + u64::from(scenario.workers);
    let found = format!("{} wait, at most {bound} may", soak.most_while_it_stayed);
    checks.push(Check::that("garbage", soak.most_while_it_stayed <= bound, found));
    let found = format!("{} wait at the end, at most {gathered} may", soak.left_over);
    checks.push(Check::that("freed", soak.left_over <= gathered, found));
    let found = format!("came down {} times", soak.times_freed);
    checks.push(Check::that("freeing goes on", soak.retired == 0 || soak.times_freed > 0, found));
    soak
}

/// Values that exist beyond the fleet's members.
pub fn waiting(census: &Census, members: usize) -> u64 {
    census.count().saturating_sub(members as u64)
}

#[cfg(feature = "prometheus")]
mod scraped {
    use std::sync::Arc;

    use leasehold::{
        Scheduler,
        prometheus::{SchedulerCollector, text},
    };
    use prometheus_client::registry::Registry;

    use super::Asset;

    pub fn registry(scheduler: &Arc<Scheduler<Asset>>) -> Registry {
        let collector = SchedulerCollector::new();
        collector.watch("soak", scheduler);
        let mut registry = Registry::default();
        registry.register_collector(Box::new(collector));
        registry
    }

    /// Scrapes once.
    pub fn lines(registry: &Registry) -> u64 {
        text(registry).map_or(0, |text| text.lines().count() as u64)
    }
}

/// A subscriber that counts what it is told: without one nothing would be made of the events.
#[cfg(feature = "tracing")]
mod traced {
    use std::sync::atomic::{AtomicU64, Ordering};

    use leasehold::tracing::TracingObserver;
    use tracing::{
        Event, Metadata, Subscriber,
        span::{Attributes, Id, Record},
    };

    static EVENTS: AtomicU64 = AtomicU64::new(0);

    struct Counts;

    impl Subscriber for Counts {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            metadata.target() == "leasehold"
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn event(&self, _: &Event<'_>) {
            EVENTS.fetch_add(1, Ordering::Relaxed);
        }

        fn enter(&self, _: &Id) {}

        fn exit(&self, _: &Id) {}
    }

    pub fn observer() -> TracingObserver {
        // Of several subjects only the first sets it; it counts for all.
        let _ = tracing::subscriber::set_global_default(Counts);
        TracingObserver::new("soak")
    }

    pub fn count() -> u64 {
        EVENTS.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_between_quarters() {
        let flat: Vec<u64> =
            [9, 9, 5, 6, 5, 5, 6, 5].into_iter().flat_map(|bytes| [bytes * 1_000; 3]).collect();
        assert!(growth(&flat, 100_000).unwrap().abs() < 0.02);
        let grows: Vec<u64> = (0..100).map(|second| 1_000_000 + second * 1_000).collect();
        assert!((growth(&grows, 100_000).unwrap() - 0.5).abs() < 0.02);
        // Not measured, which is not the same as none.
        assert_eq!([&grows[..2], &grows[..19], &[]].map(|bytes| growth(bytes, 10)), [None; 3]);
    }

    #[test]
    fn garbage_is_followed() {
        let mut garbage = Garbage::new(10);
        let first = Some(0);
        for (waits, retired, since) in [
            (0, 0, first),
            (50, 60, first),
            (80, 100, first),
            (90, 110, None),
            (3, 150, None),
            (5, 160, Some(160)),
            (9, 165, Some(160)),
        ] {
            garbage.look(waits, retired, since);
        }
        let soak = garbage.finish(2, 1);
        assert_eq!((soak.most_while_it_stayed, soak.most_retired_in_a_stay), (80, 100));
        assert_eq!((soak.most_after_it_left, soak.times_freed, soak.retired), (5, 1, 165));
    }
}
