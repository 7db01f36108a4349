//! What a long run is watched for: memory that grows, and memory that is not freed.
//!
//! Two readers stay, each for a while that overlaps the other's:
//!
//! ```text
//!             0 s      1 s      2 s      3 s      4 s      5 s
//! the older   looks----------------|  away           looks---...
//! the newer            looks----------------|  away           looks---...
//! ```
//!
//! While a reader stays, nothing that was replaced or removed since it came can be freed, by any reclaimer that protects by time: so what
//! waits to be freed is **at most what was retired since the older of those who stay came**, plus what each thread gathers before it frees. When
//! that one goes, what predates the newer one must be freed **though the newer one stays**: a reclaimer that only goes on when nobody reads
//! would not do that. After both have gone everything is.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use leasehold::{Backoff, Builder, Cooldown, Event, Overdue, Overflow, Scheduler};
use serde::{Deserialize, Serialize};

use super::{
    asset::{Asset, Census},
    chores::{Done, NEGLECTED},
    drive::State,
    processors,
    referee::Referee,
    result::Check,
    scenario::{Driver, Scenario},
    subject::Subject,
    worker::Round,
};

/// Every feature that can be on beside the others. What requests and chores do with them is in the scenario. docs/cli.md says what is left out.
pub fn everything_on(builder: Builder<Asset>, scenario: &Scenario) -> Builder<Asset> {
    let builder = builder
        .remember_outcomes(true)
        .rank_by_outcomes(true)
        .cooldown(Cooldown::default().on_rate_limit(Backoff::None))
        .event_capacity(1 << 12)
        // Longer than any lease, also of whoever takes every unit at the end; but for those that a chore neglects, whose end it sets. That these
        // are revoked, and no others, is checked.
        .max_hold(Duration::from_secs(3_600))
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
    /// The most that waited beyond what had been retired since the older reader came, look by look: what its stay does not explain.
    #[serde(default)]
    pub most_unexplained: u64,
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
    /// Numbers that went to the recorder of the `metrics` facade.
    #[serde(default)]
    pub published: u64,
    /// Times that the older of two readers went while the newer one stayed, and values that were freed while somebody stayed.
    #[serde(default)]
    pub overlaps: u64,
    #[serde(default)]
    pub freed_while_it_stayed: u64,
}

/// What the readers and the watcher share.
pub struct Watch {
    /// Of each reader: how many values had been retired when it came, or [`AWAY`].
    since: [AtomicU64; 2],
    times: AtomicU64,
    published: AtomicU64,
    /// Events that were read, and lines that were scraped.
    events: Arc<AtomicU64>,
    scraped: AtomicU64,
}

/// What a thread gathers before it frees, at most: the library's documentation says so. Of many threads each gathers less.
const GATHERS: u64 = 128;

/// Of fewer values it may be that all wait with the threads that gather them.
const SOME: u64 = 2_000;
/// How much later the second reader comes. Each stays for twice as long, and is away for as long as that.
const LATER: Duration = Duration::from_secs(1);
/// What a reader has held back may take so long to be freed; until then it counts as staying.
const FREED_WITHIN: Duration = Duration::from_millis(300);
/// The reader is not there.
const AWAY: u64 = u64::MAX;

impl Default for Watch {
    fn default() -> Self {
        Watch {
            since: [AWAY; 2].map(AtomicU64::new),
            times: AtomicU64::new(0),
            published: AtomicU64::new(0),
            events: Arc::default(),
            scraped: AtomicU64::new(0),
        }
    }
}

impl Watch {
    /// Both readers come and go until the round ends.
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
        thread::scope(|scope| {
            // Sections of one thread are one section, so each reader has its own.
            scope.spawn(|| self.come_and_go(round, scheduler, 1));
            self.come_and_go(round, scheduler, 0);
        });
    }

    fn come_and_go(&self, round: &Round, scheduler: &Arc<Scheduler<Asset>>, place: usize) {
        #[cfg(feature = "prometheus")]
        let registry = scraped::registry(scheduler);
        let mut moment = round.begins + place as u64 * LATER.as_nanos() as u64;
        let mut until = |length: Duration| {
            moment += length.as_nanos() as u64;
            moment
        };
        pause(round, until(Duration::ZERO));
        while !round.stop.is_set() {
            // SeqCst, here and below: whoever sees that it stays sees what had been retired when it came, and not less.
            let before = round.retired.load(Ordering::SeqCst);
            let seen = scheduler.peek();
            // SeqCst, and so in `stays_since`: one order of both readers' comings and goings, or a look could miss the older one.
            self.since[place].store(before, Ordering::SeqCst);
            self.times.fetch_add(1, Ordering::Relaxed);
            pause(round, until(2 * LATER));
            drop(seen);
            let end = round.clock.now() + FREED_WITHIN.as_nanos() as u64;
            #[cfg(feature = "prometheus")]
            self.scraped.fetch_add(scraped::lines(&registry), Ordering::Relaxed);
            #[cfg(feature = "metrics")]
            self.published.fetch_add(published::publish(scheduler), Ordering::Relaxed);
            pause(round, end);
            self.since[place].store(AWAY, Ordering::SeqCst);
            pause(round, until(2 * LATER));
        }
    }

    /// While somebody stays: how many values had been retired when the older of those who do came.
    pub fn stays_since(&self) -> Option<u64> {
        let since = self.since.iter().map(|since| since.load(Ordering::SeqCst)).min();
        since.filter(|&since| since != AWAY)
    }

    pub fn stays(&self) -> u64 {
        self.times.load(Ordering::Relaxed)
    }
}

/// Until then, or the end of the round.
fn pause(round: &Round, end: u64) {
    while round.clock.now() < end && !round.stop.is_set() {
        thread::sleep(Duration::from_millis(10));
    }
}

/// Follows what waits to be freed from look to look.
pub struct Garbage {
    soak: Soak,
    before: u64,
    /// As the look before has told.
    since: Option<u64>,
}

impl Garbage {
    pub fn new(fleet_bytes: u64) -> Self {
        let soak = Soak { fleet_bytes, ..Soak::default() };
        Garbage { soak, before: 0, since: None }
    }

    /// At this moment so many values exist beyond the fleet's members, and so many have been retired in all; `since`: how many of these when the
    /// older of those readers came that stay, if one does.
    pub fn look(&mut self, waits: u64, retired: u64, since: Option<u64>) {
        let soak = &mut self.soak;
        if let Some(since) = since {
            if self.since.is_none() && soak.retired > 0 {
                // The time without it is over.
                soak.most_after_it_left = soak.most_after_it_left.max(waits);
            }
            // The older one has gone, and the newer one has been there all the time.
            soak.overlaps += u64::from(self.since.is_some_and(|before| before < since));
            if self.since.is_some() {
                let freed = (self.before + retired.saturating_sub(soak.retired)).saturating_sub(waits);
                soak.freed_while_it_stayed += freed;
            }
            soak.most_while_it_stayed = soak.most_while_it_stayed.max(waits);
            let in_this_stay = retired.saturating_sub(since);
            soak.most_retired_in_a_stay = soak.most_retired_in_a_stay.max(in_this_stay);
            soak.most_unexplained = soak.most_unexplained.max(waits.saturating_sub(in_this_stay));
        }
        soak.times_freed += u64::from(waits < self.before);
        (self.before, self.since, soak.retired) = (waits, since, retired);
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

/// The end of a soak: what was replaced or removed is freed, and memory is where it was. If it was `interrupted` there may have been no time
/// for anything to be at work.
pub fn conclude(
    garbage: Garbage,
    scenario: &Scenario,
    state: &State,
    checks: &mut Vec<Check>,
    interrupted: bool,
) -> Soak {
    let worked = |name: &str, count: u64, what: &str| {
        Check::that(name, interrupted || count > 0, format!("{count} {what}"))
    };
    leasehold::collect_garbage();
    let members = state.subject.fleet().map_or(0, |fleet| (fleet.len)());
    let mut soak = garbage.finish(state.watch.stays(), waiting(&state.census, members));
    checks.extend(memory(&soak, state.length));
    checks.push(done(scenario, state));
    if let Some(scheduler) = state.subject.scheduler() {
        let neglected = ("neglected", state.chores.neglected);
        checks.push(Check::equal("revoked", ("seen", scheduler.stats().revoked), neglected));
        soak.events = state.watch.events.load(Ordering::Relaxed);
        checks.push(worked("observer", soak.events, "events read"));
        if is_long(state.length) {
            checks.extend(at_work(scheduler).map(|(name, count, what)| worked(name, count, what)));
        }
    }
    soak.scraped = state.watch.scraped.load(Ordering::Relaxed);
    if cfg!(feature = "prometheus") {
        checks.push(worked("scrapes", soak.scraped, "lines"));
    }
    soak.published = state.watch.published.load(Ordering::Relaxed);
    if cfg!(feature = "metrics") {
        checks.push(worked("metrics", soak.published, "numbers published"));
    }
    #[cfg(feature = "tracing")]
    {
        soak.traced = traced::count();
        checks.push(worked("tracing", soak.traced, "events"));
    }
    // What threads gather before they free: the chores' and this one, and those in which the last lease of a replaced value may end. And
    // the values of leases that are out.
    let gathered = GATHERS * (2 + returning(scenario));
    // Look by look: what is retired in a long stay must not excuse what waits in a short one.
    let bound = gathered + u64::from(scenario.workers);
    let unexplained = soak.most_unexplained;
    let found = format!(
        "{unexplained} wait beyond what was retired since the older reader came, at most {bound} may"
    );
    checks.push(Check::that("garbage", unexplained <= bound, found));
    // The older reader goes, and what predates the newer one is freed while that one stays.
    let (overlaps, freed) = (soak.overlaps, soak.freed_while_it_stayed);
    let goes_on =
        interrupted || soak.retired < SOME || (overlaps > 0 && freed > 0) || state.length < 3 * LATER;
    let found =
        format!("{freed} freed while a reader stayed, of {overlaps} times that an older one went before it");
    checks.push(Check::that("freed behind a reader", goes_on, found));
    let found = format!("{} wait at the end, at most {gathered} may", soak.left_over);
    checks.push(Check::that("freed", soak.left_over <= gathered, found));
    let found = format!("came down {} times", soak.times_freed);
    let goes_on = interrupted || soak.retired == 0 || soak.times_freed > 0;
    checks.push(Check::that("freeing goes on", goes_on, found));
    soak
}

/// Threads on which leases are returned: the runtime's, and the workers where these are threads or have the pool's.
fn returning(scenario: &Scenario) -> u64 {
    let runtime = u64::from(processors());
    match scenario.driver {
        Driver::Tasks => runtime,
        Driver::Threads => u64::from(scenario.workers),
        Driver::Pool => runtime + u64::from(scenario.workers).min(2_000),
    }
}

/// What the scenario has on, and how often it was at work.
fn at_work(scheduler: &Scheduler<Asset>) -> impl Iterator<Item = (&'static str, u64, &'static str)> {
    let stats = scheduler.stats();
    let counts = vec![
        ("ejection", stats.ejected, "ejected"),
        ("cooling", stats.cooled, "cooled"),
        ("the bounded queue", stats.waits.shed + stats.waits.refused, "shed or refused"),
        ("hand-over", stats.waits.handed_off, "handed over"),
    ];
    #[cfg(feature = "telemetry")]
    let counts = {
        let measured = scheduler.telemetry();
        let count = |of: fn(&leasehold::Telemetry) -> u64| measured.as_ref().map_or(0, of);
        let holds = ("holding times", count(|telemetry| telemetry.holds.count()), "measured");
        let orders = ("order", count(|telemetry| telemetry.rank_errors.count()), "looks");
        [counts, vec![holds, orders]].concat()
    };
    counts.into_iter()
}

/// Whether memory can be judged in a run of this length.
fn is_long(length: Duration) -> bool {
    length.as_secs() >= 4 * QUARTER as u64
}

/// Nothing can be said of memory in a short run, and so nothing is; in one that is long enough not to know is wrong too.
fn memory(soak: &Soak, length: Duration) -> Option<Check> {
    match soak.growth {
        Some(growth) => {
            let percent = format!("{:.3} % of {} bytes", growth * 100.0, soak.fleet_bytes);
            Some(Check::that("memory", growth < 0.01, percent))
        }
        None if is_long(length) => {
            let found = format!("not measured: {} looks, {} bytes", soak.heap_bytes.len(), soak.fleet_bytes);
            Some(Check::that("memory", false, found))
        }
        None => None,
    }
}

/// Whatever the scenario asks to be done to the fleet has been done, unless there was no time for that.
fn done(scenario: &Scenario, state: &State) -> Check {
    let Done { updates, removals, insertions, exclusions, drains, several, neglected, .. } = state.chores;
    let idle: Vec<&str> = [
        ("updates", scenario.updates, updates),
        ("removals", scenario.churn, removals.min(insertions)),
        ("exclusions", scenario.exclusions, exclusions),
        ("drains", scenario.drains, drains),
        ("several", scenario.several, several),
        ("neglected leases", scenario.several / NEGLECTED as f64, neglected),
    ]
    .into_iter()
    // Of so many at least one finds its resource there.
    .filter(|&(_, rate, done)| done == 0 && rate * state.length.as_secs_f64() >= 20.0)
    .map(|(what, ..)| what)
    .collect();
    let found = if idle.is_empty() { "all of them done".into() } else { format!("never: {idle:?}") };
    Check::that("chores", idle.is_empty(), found)
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

/// A recorder of the `metrics` facade that counts what it is told.
#[cfg(feature = "metrics")]
mod published {
    use std::sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    };

    use leasehold::{Scheduler, publish_metrics};
    use metrics::{
        Counter, CounterFn, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
        with_local_recorder,
    };

    use super::Asset;

    #[derive(Default)]
    struct Counts(Arc<Told>);

    #[derive(Default)]
    struct Told(AtomicU64);

    impl Told {
        fn one_more(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl CounterFn for Told {
        fn increment(&self, _: u64) {
            self.one_more();
        }

        fn absolute(&self, _: u64) {
            self.one_more();
        }
    }

    impl GaugeFn for Told {
        fn increment(&self, _: f64) {
            self.one_more();
        }

        fn decrement(&self, _: f64) {
            self.one_more();
        }

        fn set(&self, _: f64) {
            self.one_more();
        }
    }

    impl Recorder for Counts {
        fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

        fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

        fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
            Counter::from_arc(Arc::clone(&self.0))
        }

        fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
            Gauge::from_arc(Arc::clone(&self.0))
        }

        fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
            Histogram::noop()
        }
    }

    /// Publishes once; how many numbers that were.
    pub fn publish(scheduler: &Scheduler<Asset>) -> u64 {
        let recorder = Counts::default();
        with_local_recorder(&recorder, || publish_metrics("soak", scheduler));
        recorder.0.0.load(Ordering::Relaxed)
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

    /// A soak that does not know whether memory grew has not done what it is for.
    #[test]
    fn memory_that_is_not_measured_is_wrong_in_a_long_run() {
        let of = |growth| Soak { growth, ..Soak::default() };
        let holds =
            |growth, seconds| memory(&of(growth), Duration::from_secs(seconds)).map(|check| check.holds);
        assert_eq!((holds(Some(0.009), 600), holds(Some(0.011), 600)), (Some(true), Some(false)));
        assert_eq!((holds(None, 19), holds(None, 20)), (None, Some(false)));
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
            // The older one has gone: of nine that waited eight are freed, of ten that were retired since none.
            (11, 175, Some(165)),
        ] {
            garbage.look(waits, retired, since);
        }
        let soak = garbage.finish(2, 1);
        assert_eq!((soak.overlaps, soak.freed_while_it_stayed), (1, 10 + 10 + 1 + 8));
        assert_eq!((soak.most_while_it_stayed, soak.most_retired_in_a_stay), (80, 100));
        assert_eq!((soak.most_after_it_left, soak.times_freed, soak.retired), (5, 1, 175));
        // 9 wait though only 5 were retired in that stay; that 100 were in another one excuses nothing.
        assert_eq!(soak.most_unexplained, 5);
    }
}
