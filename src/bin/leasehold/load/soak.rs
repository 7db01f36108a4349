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
//!
//! Both are looked at, for the first alone says little where many threads gather. Freed though somebody stayed is only what was freed between two
//! looks that the same reader read through: not what is freed in the moment in which one that has gone still counts as staying.

#[cfg(feature = "metrics")]
mod published;
mod readers;
#[cfg(feature = "prometheus")]
mod scraped;
#[cfg(feature = "tracing")]
mod traced;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use leasehold::{Backoff, Builder, Cooldown, Overdue, Overflow, Scheduler};
use serde::{Deserialize, Serialize};
use tokio::{runtime::Runtime, task::JoinSet};

use readers::LATER;
pub use readers::{Stays, Watch};

use super::{
    asset::{Asset, Census},
    chores::{Done, NEGLECTED},
    drive::State,
    processors,
    referee::Referee,
    result::Check,
    scenario::{Driver, Scenario},
    subject::Subject,
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
    /// Growth over the whole run, at its pace after the first quarter, over the fleet's size: 0.01 is one per cent. `None`: the run was too
    /// short to measure it.
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
    /// Values that these older ones alone had kept: retired after they came, and before the newer ones did.
    #[serde(default)]
    pub kept_by_the_older: u64,
}

/// What a thread gathers before it frees, at most: the library's documentation says so. Of many threads each gathers less.
const GATHERS: u64 = 128;

/// Of fewer values it may be that all wait with the threads that gather them.
const SOME: u64 = 2_000;
/// Follows what waits to be freed from look to look.
pub struct Garbage {
    soak: Soak,
    before: u64,
    /// As the look before has told.
    stays: Stays,
}

impl Garbage {
    pub fn new(fleet_bytes: u64) -> Self {
        let soak = Soak { fleet_bytes, ..Soak::default() };
        Garbage { soak, before: 0, stays: Stays::default() }
    }

    /// At this moment so many values exist beyond the fleet's members, and so many have been retired in all.
    pub fn look(&mut self, waits: u64, retired: u64, stays: Stays) {
        let soak = &mut self.soak;
        if stays.have_gone_on_since(&self.stays) {
            let freed = (self.before + retired.saturating_sub(soak.retired)).saturating_sub(waits);
            soak.freed_while_it_stayed += freed;
        }
        if let Some(since) = stays.since {
            if self.stays.since.is_none() && soak.retired > 0 {
                // The time without it is over.
                soak.most_after_it_left = soak.most_after_it_left.max(waits);
            }
            // The older one has gone, and the newer one has been there all the time.
            if let Some(before) = self.stays.since.filter(|&before| before < since) {
                soak.overlaps += 1;
                soak.kept_by_the_older += since - before;
            }
            soak.most_while_it_stayed = soak.most_while_it_stayed.max(waits);
            let in_this_stay = retired.saturating_sub(since);
            soak.most_retired_in_a_stay = soak.most_retired_in_a_stay.max(in_this_stay);
            soak.most_unexplained = soak.most_unexplained.max(waits.saturating_sub(in_this_stay));
        }
        soak.times_freed += u64::from(waits < self.before);
        (self.before, self.stays, soak.retired) = (waits, stays, retired);
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

/// Seconds of a quarter at the least: of fewer the pace is an accident.
const QUARTER: usize = 5;
/// Looks that are compared with each other at the most.
const COMPARED: usize = 512;

/// The pace at which memory grows times the length of the run, over the fleet's size. The first quarter is for warming up; of all pairs of later
/// looks the median of their slopes is taken (Theil and Sen): neither readers that come and go nor a few looks that are off change it.
fn growth(bytes: &[u64], fleet: u64) -> Option<f64> {
    let quarter = bytes.len() / 4;
    if quarter < QUARTER || fleet == 0 {
        return None;
    }
    let together = (bytes.len() - quarter).div_ceil(COMPARED);
    let looks: Vec<f64> = bytes[quarter..]
        .chunks_exact(together)
        .map(|looks| looks.iter().sum::<u64>() as f64 / together as f64)
        .collect();
    let mut slopes = Vec::new();
    for (at, before) in looks.iter().enumerate() {
        let later = looks[at + 1..].iter().zip(1..);
        slopes.extend(later.map(|(after, steps)| (after - before) / f64::from(steps)));
    }
    let middle = slopes.len() / 2;
    let (_, pace, _) = slopes.select_nth_unstable_by(middle, f64::total_cmp);
    Some(*pace * bytes.len() as f64 / together as f64 / fleet as f64)
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
    runtime: &Runtime,
    checks: &mut Vec<Check>,
    interrupted: bool,
) -> Soak {
    let excused = interrupted || state.length < AT_WORK_FROM;
    let worked = |name: &str, count: u64, what: &str| {
        Check::that(name, excused || count > 0, format!("{count} {what}"))
    };
    collect_everywhere(runtime);
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
    checks.push(freed_behind(&soak, state.length, interrupted));
    let found = format!("{} wait at the end, at most {gathered} may", soak.left_over);
    checks.push(Check::that("freed", soak.left_over <= gathered, found));
    checks.push(freeing_goes_on(&soak, state.length, interrupted));
    soak
}

/// Whoever has retired something frees it himself, or leaves it behind when he ends, which the runtime's threads have not: while a reader stayed they have
/// gathered whatever died with a lease that came back to them.
fn collect_everywhere(runtime: &Runtime) {
    let threads = runtime.metrics().num_workers();
    // As many as there are threads, each of which stays with one; for a while, in case one of them is not to be had.
    let there = Arc::new(AtomicUsize::new(0));
    runtime.block_on(async {
        let mut tasks = JoinSet::new();
        for _ in 0..threads {
            let there = Arc::clone(&there);
            tasks.spawn(async move {
                let since = Instant::now();
                // Relaxed, both: a count that publishes nothing.
                there.fetch_add(1, Ordering::Relaxed);
                while there.load(Ordering::Relaxed) < threads && since.elapsed() < LATER {
                    thread::sleep(Duration::from_millis(1));
                }
                leasehold::collect_garbage();
            });
        }
        while tasks.join_next().await.is_some() {}
    });
    leasehold::collect_garbage();
}

/// From this length on everybody has had a turn, also on a machine that has stood still for a while.
const AT_WORK_FROM: Duration = Duration::from_secs(1);

/// From this length on the older reader has gone while the newer one stayed: until then what waits may have had no occasion to come down.
const JUDGED_FROM: Duration = Duration::from_secs(3 * LATER.as_secs());

fn freeing_goes_on(soak: &Soak, length: Duration, interrupted: bool) -> Check {
    let is_judged = length >= JUDGED_FROM;
    let holds = interrupted || !is_judged || soak.retired == 0 || soak.times_freed > 0;
    let found = match is_judged {
        true => format!("came down {} times", soak.times_freed),
        false => format!("not judged in less than {} s", JUDGED_FROM.as_secs()),
    };
    Check::that("freeing goes on", holds, found)
}

/// The older reader goes, and what predates the newer one is freed while that one stays: most of it, but for what is still with the threads that
/// gather it, and for what no look has seen on a machine that stalled.
fn freed_behind(soak: &Soak, length: Duration, interrupted: bool) -> Check {
    const PART: u64 = 4;
    let Soak { overlaps, freed_while_it_stayed: freed, kept_by_the_older: kept, .. } = *soak;
    let goes_on = overlaps > 0 && freed > 0 && freed >= kept / PART;
    let holds = interrupted || soak.retired < SOME || goes_on || length < JUDGED_FROM;
    let found = format!(
        "{freed} freed while a reader stayed, of {kept} that an older one had kept, {overlaps} times; a {PART}th must be"
    );
    Check::that("freed behind a reader", holds, found)
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

/// Whatever the scenario asks to be done to the fleet has been done, unless there was no time for that. Whoever finds all of it lent has tried to
/// borrow several, and that is no fault.
fn done(scenario: &Scenario, state: &State) -> Check {
    idle(scenario, &state.chores, state.length)
}

fn idle(scenario: &Scenario, chores: &Done, length: Duration) -> Check {
    let Done { updates, removals, insertions, exclusions, drains, several, neglected, .. } = *chores;
    let idle: Vec<&str> = [
        ("updates", scenario.updates, updates),
        ("removals", scenario.churn, removals.min(insertions)),
        ("exclusions", scenario.exclusions, exclusions),
        ("drains", scenario.drains, drains),
        ("several", scenario.several, several + chores.in_vain),
        ("neglected leases", scenario.several / NEGLECTED as f64, neglected + chores.none_to_neglect),
    ]
    .into_iter()
    // Of so many at least one finds its resource there.
    .filter(|&(_, rate, done)| done == 0 && rate * length.as_secs_f64() >= 20.0 && length >= AT_WORK_FROM)
    .map(|(what, ..)| what)
    .collect();
    let found = if idle.is_empty() { "all of them done".into() } else { format!("never: {idle:?}") };
    Check::that("chores", idle.is_empty(), found)
}

/// Values that exist beyond the fleet's members.
pub fn waiting(census: &Census, members: usize) -> u64 {
    census.count().saturating_sub(members as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A leak is told as what it comes to over the run, however long that is.
    #[test]
    fn growth_is_that_of_the_whole_run() {
        for seconds in [40, 600, 4_000] {
            let leak: Vec<u64> = (0..seconds).map(|second| 1_000_000 + second * 2_000 / seconds).collect();
            let found = growth(&leak, 100_000).unwrap();
            assert!((found - 0.02).abs() < 0.002, "{found} in {seconds} s");
        }
        let grows: Vec<u64> = (0..100).map(|second| 1_000_000 + second * 1_000).collect();
        assert!((growth(&grows, 100_000).unwrap() - 1.0).abs() < 0.02);
        // What the first quarter takes, what readers keep for two seconds of four, and a few looks that are off.
        let flat: Vec<u64> = (0..120)
            .map(|second| 1_000_000 + [0, 900, 1_800, 900][second % 4] - if second < 25 { 50_000 } else { 0 })
            .map(|bytes| if bytes % 7 == 0 { bytes + 9_000 } else { bytes })
            .collect();
        let found = growth(&flat, 100_000).unwrap();
        assert!(found.abs() < 0.001, "{found}");
        // Not measured, which is not the same as none.
        assert_eq!([&grows[..2], &grows[..19], &[]].map(|bytes| growth(bytes, 10)), [None; 3]);
    }

    /// What is full is not idle: several were wanted all the time, and nothing was to be had.
    #[test]
    fn a_full_fleet_is_no_fault() {
        let scenario = Scenario { several: 50.0, ..Scenario::default() };
        let holds = |chores| idle(&scenario, &chores, Duration::from_secs(20)).holds;
        assert!(!holds(Done::default()));
        assert!(!holds(Done { in_vain: 900, ..Done::default() }), "nobody has tried to neglect one");
        assert!(holds(Done { in_vain: 900, none_to_neglect: 60, ..Done::default() }));
        assert!(holds(Done { several: 900, neglected: 60, ..Done::default() }));
    }

    /// What waits comes down when the older reader goes, and not before: a shorter run is not judged, and says so.
    #[test]
    fn freeing_is_judged_when_it_can_be_seen() {
        let soak = Soak { retired: 1_000, ..Soak::default() };
        let of = |soak: &Soak, millis| freeing_goes_on(soak, Duration::from_millis(millis), false);
        for millis in [400, 2_000, 2_999] {
            let check = of(&soak, millis);
            assert!(check.holds && check.found == "not judged in less than 3 s", "{check:?}");
        }
        assert!(!of(&soak, 3_000).holds);
        assert!(of(&Soak { times_freed: 1, ..soak }, 3_000).holds);
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
        for (waits, retired, since, reading) in [
            (0, 0, Some(0), [1, 0]),
            (50, 60, Some(0), [1, 0]),
            (80, 100, Some(0), [1, 2]),
            (90, 110, None, [0, 0]),
            (3, 150, None, [0, 0]),
            (5, 160, Some(160), [3, 0]),
            (9, 165, Some(160), [3, 4]),
            // The older one has gone: of nine that waited eight are freed, of ten that were retired since none.
            (11, 175, Some(165), [0, 4]),
        ] {
            garbage.look(waits, retired, Stays { since, reading });
        }
        let soak = garbage.finish(2, 1);
        assert_eq!((soak.overlaps, soak.kept_by_the_older), (1, 5));
        assert_eq!(soak.freed_while_it_stayed, 10 + 10 + 1 + 8);
        assert_eq!((soak.most_while_it_stayed, soak.most_retired_in_a_stay), (80, 100));
        assert_eq!((soak.most_after_it_left, soak.times_freed, soak.retired), (5, 1, 175));
        // 9 wait though only 5 were retired in that stay; that 100 were in another one excuses nothing.
        assert_eq!(soak.most_unexplained, 5);
    }

    /// What is freed in the moments in which nobody reads, of which one that has gone still counts as staying, was not freed behind a reader: who
    /// frees only then is seen. Looks of both readers' course every 100 ms, a hundred values a look.
    #[test]
    fn a_reclaimer_that_waits_for_a_moment_without_readers_is_seen() {
        let check = |frees_behind: bool| {
            let mut garbage = Garbage::new(10);
            let (mut waits, mut retired, mut came) = (0, 0, [0, 0]);
            for look in 0..400u64 {
                let moments = [look, look + 30].map(|look| look % 40);
                let number = |place: usize| 1 + 2 * ((look + 30 * place as u64) / 40) + place as u64;
                let started = look >= 10;
                retired += 100;
                (0..2).filter(|&place| moments[place] == 0).for_each(|place| came[place] = retired);
                let reads = |place: usize| moments[place] < 20 && (place == 0 || started);
                let counts = |place: usize| moments[place] < 23 && (place == 0 || started);
                let least = |is: &dyn Fn(usize) -> bool| {
                    (0..2).filter(|&place| is(place)).map(|place| came[place]).min()
                };
                let kept = least(&reads).map_or(0, |since| retired - since);
                waits = if frees_behind || kept == 0 { kept } else { waits + 100 };
                let reading = [0, 1].map(|place| if reads(place) { number(place) } else { 0 });
                garbage.look(waits, retired, Stays { since: least(&counts), reading });
            }
            freed_behind(&garbage.finish(20, 0), Duration::from_secs(40), false)
        };
        let (good, bad) = (check(true), check(false));
        assert!(good.holds, "{good:?}");
        assert!(!bad.holds, "{bad:?}");
    }
}
