//! The few that serve the workload best, with real threads.

use std::time::Duration;

use serde::Serialize;

use super::{Setting, Tune, workload::Workload};
use crate::{
    error::Result,
    load::{
        self, Interrupt, processors,
        result::{LoadResult, Run},
        scenario::{Driver, Fairness, Loop, Scenario, Shape, Span},
    },
};

/// What one setting did under threads that do nothing but borrow and return.
#[derive(Serialize)]
pub struct Live {
    pub setting: String,
    /// The median of the rounds; 0 for all if some round was too short.
    pub pairs_per_second: f64,
    pub waiting_p99_ns: u64,
}

/// One setting with one fairness on the workload itself.
#[derive(Clone, Debug, Serialize)]
pub struct Played {
    pub setting: String,
    pub fairness: &'static str,
    /// Completed requests a second, and what waiting took at most of 99.9 %: medians of the rounds.
    pub throughput: f64,
    pub waiting_p99_9_ns: u64,
    /// Requests of all rounds; those that were not completed, whoever was to answer for that; and of these those that got no lease: the scheduler
    /// refused them, or nobody came to send them.
    pub requests: u64,
    pub lost: u64,
    pub refused: u64,
}

impl Played {
    /// The share of requests that got no lease.
    pub fn refused_share(&self) -> f64 {
        self.refused as f64 / self.requests.max(1) as f64
    }
}

/// Runs in which no rule was broken; and of the others what was. Of a setting that breaks a rule nothing is to be recommended, however fast it is.
#[derive(Debug, Default)]
pub struct Sound<T> {
    pub runs: T,
    /// The setting, and what is wrong.
    pub broken: Vec<(String, String)>,
    /// How long a round was in which nobody was answered, if there was one. That breaks no rule, but whoever had it cannot be compared.
    pub too_short: Option<Duration>,
}

/// Keeps the settings of which every run is sound.
fn sound(runs: Vec<Ran>) -> Sound<Vec<Ran>> {
    let mut broken: Vec<(String, String)> = Vec::new();
    for Ran { setting, run, .. } in runs.iter().filter(|ran| !ran.run.is_hollow()) {
        if let Some(fault) = run.faults().next()
            && broken.iter().all(|(name, _)| name != setting)
        {
            broken.push((setting.clone(), fault));
        }
    }
    let is_sound = |ran: &Ran| broken.iter().all(|(name, _)| *name != ran.setting);
    let runs: Vec<Ran> = runs.into_iter().filter(is_sound).collect();
    let shortest = runs.iter().filter(|ran| is_hollow(&runs, ran)).map(|ran| ran.run.seconds);
    let too_short = shortest.min_by(f64::total_cmp).map(Duration::from_secs_f64);
    Sound { runs, broken, too_short }
}

/// Whether a setting was answered in none of its rounds with this fairness.
fn is_hollow(runs: &[Ran], one: &Ran) -> bool {
    let same = |ran: &&Ran| (&ran.setting, ran.fairness) == (&one.setting, one.fairness);
    runs.iter().filter(same).all(|ran| ran.run.is_hollow())
}

/// A run of a setting, with a fairness where that was chosen.
#[derive(Debug)]
struct Ran {
    setting: String,
    fairness: &'static str,
    run: Run,
}

impl Ran {
    fn all(result: LoadResult, fairness: &'static str) -> impl Iterator<Item = Ran> {
        let subjects = result.subjects.into_iter();
        subjects.filter_map(move |subject| Some(Ran { setting: subject.name, fairness, run: subject.run? }))
    }
}

pub fn measure(
    workload: &Workload,
    finalists: &[Setting],
    options: &Tune,
    interrupt: &Interrupt,
) -> Result<Sound<Vec<Live>>> {
    let Scenario { resources, capacity, ranking, tiers, given_tiers, seed, .. } = workload.scenario.clone();
    let scenario = Scenario {
        driver: Driver::Threads,
        workers: (2 * processors()).max(4),
        pace: Loop::Closed,
        duration: Span(Duration::from_millis(options.milliseconds)),
        rounds: options.rounds,
        tokens: 0.0,
        subjects: finalists.iter().map(Setting::name).collect(),
        resources,
        capacity,
        ranking,
        tiers,
        given_tiers,
        seed,
        ..Scenario::default()
    };
    let result = load::play("tune", scenario, interrupt)?;
    let Sound { runs, broken, too_short } = sound(Ran::all(result, "").collect());
    let live = |Ran { setting, run, .. }: Ran| Live {
        setting,
        // Either all can be compared or none.
        pairs_per_second: if too_short.is_some() { 0.0 } else { median(&run) },
        waiting_p99_ns: run.waiting_ns.p99,
    };
    Ok(Sound { runs: runs.into_iter().map(live).collect(), broken, too_short })
}

fn median(run: &Run) -> f64 {
    middle(run.throughput_of_rounds.clone())
}

fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// Rounds of the workload itself at the most.
const ROUNDS: u32 = 3;
/// A round of it has room for so many leases one after the other, and for a period of its shape, but is no longer than this.
const LEASES: u32 = 4;
const LONGEST: Duration = Duration::from_secs(2);
/// Whatever that bound is, so many requests of an open loop come in a round and a lease and a half is over: up to this length, and where it is
/// longer than the other bound it is played only once.
const ARRIVALS: f64 = 4.0;
const LONGEST_OF_ALL: Duration = Duration::from_secs(8);

/// How long a round of the workload is, and how many there are.
fn rounds(workload: &Workload, options: &Tune) -> (Duration, u32) {
    let scenario = &workload.scenario;
    let asked = Duration::from_millis(options.milliseconds * 2);
    let one = scenario.think.mean() + workload.mean_hold();
    let wished = (one * LEASES).max(scenario.burst.period()).min(LONGEST);
    let arrivals = match (scenario.pace, scenario.burst) {
        (Loop::Open, Shape::Steady) => Duration::from_secs_f64(ARRIVALS / scenario.rate),
        _ => Duration::ZERO,
    };
    let needed = (arrivals + one * 3 / 2).min(LONGEST_OF_ALL);
    let length = asked.max(wished.max(needed).min(scenario.duration.0));
    (length, if length > LONGEST.max(asked) { 1 } else { options.rounds.min(ROUNDS) })
}

/// All finalists with both kinds of fairness, which differ only where somebody waits: on the workload itself, in short rounds. Both
/// kinds take turns, and every second time in the opposite order, as do the finalists: what the machine does meanwhile meets all alike.
pub fn play(
    workload: &Workload,
    finalists: &[Setting],
    options: &Tune,
    interrupt: &Interrupt,
) -> Result<Sound<Vec<Played>>> {
    let scenario = &workload.scenario;
    let (length, rounds) = rounds(workload, options);
    let mut subjects: Vec<String> = finalists.iter().map(Setting::name).collect();
    let scenario = Scenario {
        rounds: 1,
        duration: Span(length),
        soak: false,
        close_at: Span::default(),
        ..scenario.clone()
    };
    let names =
        |fairness: Fairness| (fairness, if fairness == Fairness::Strict { "Strict" } else { "Throughput" });
    let mut kinds = [Fairness::Strict, Fairness::Throughput].map(names);
    let mut runs: Vec<Ran> = Vec::new();
    for round in 0..rounds {
        for (fairness, name) in kinds {
            if interrupt.is_raised() {
                return Ok(Sound::default());
            }
            let seed = scenario.seed.wrapping_add(round.into());
            let scenario = Scenario { subjects: subjects.clone(), fairness, seed, ..scenario.clone() };
            let result = load::play("tune", scenario, interrupt)?;
            runs.extend(Ran::all(result, name));
        }
        kinds.reverse();
        subjects.reverse();
    }
    let Sound { runs, broken, too_short } = sound(runs);
    let mut played = Vec::new();
    for setting in finalists.iter().map(Setting::name) {
        for kind in ["Strict", "Throughput"] {
            let of = || {
                runs.iter().filter(|ran| (&ran.setting, ran.fairness) == (&setting, kind)).map(|ran| &ran.run)
            };
            if of().next().is_none() {
                continue;
            }
            let requests: u64 = of().map(|run| run.requests + run.unsent).sum();
            let completed: u64 = of().map(|run| run.counts.completed + run.counts.peeked).sum();
            let cut: u64 = of().map(|run| run.counts.cut_short + run.counts.cut_waiting).sum();
            played.push(Played {
                setting: setting.clone(),
                fairness: kind,
                throughput: middle(of().map(|run| run.throughput).collect()),
                waiting_p99_9_ns: middle(of().map(|run| run.waiting_ns.p99_9 as f64).collect()) as u64,
                requests,
                lost: requests.saturating_sub(completed + cut),
                refused: of().map(|run| run.unsent + run.counts.by_scheduler() + run.counts.too_late).sum(),
            });
        }
    }
    Ok(Sound { runs: played, broken, too_short: too_short.map(|_| length) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{outcome::Counts, result::Check};

    /// One run that breaks a rule takes out its setting, and no other one.
    #[test]
    fn who_breaks_a_rule_is_out() {
        let ran = |setting: &str, fairness, holds, broken| {
            let checks = vec![Check::that("leases", holds, "given 3, ended 2".into())];
            Ran { setting: setting.into(), fairness, run: Run { checks, broken, ..Run::default() } }
        };
        let runs = vec![
            ran("sticky@8", "Strict", true, 0),
            ran("strict@8", "Strict", true, 0),
            ran("sticky@8", "Throughput", true, 0),
            ran("strict@8", "Throughput", false, 0),
            ran("best-of:2@8", "Strict", true, 3),
        ];
        let Sound { runs, broken, too_short } = sound(runs);
        assert_eq!(too_short, None);
        let kept: Vec<_> = runs.iter().map(|ran| (&*ran.setting, ran.fairness)).collect();
        assert_eq!(kept, [("sticky@8", "Strict"), ("sticky@8", "Throughput")]);
        let wrong: Vec<_> = broken.iter().map(|(name, fault)| (&**name, &**fault)).collect();
        assert_eq!(wrong, [("strict@8", "leases: given 3, ended 2"), ("best-of:2@8", "and 3 more")]);
    }

    /// Where nobody was answered there is nothing to compare, and nothing is broken either; beside another fault that one counts.
    #[test]
    fn who_was_not_answered_breaks_no_rule() {
        let ran = |setting: &str, answered, others_hold| {
            let counts = Counts { completed: answered, ..Counts::default() };
            let checks = vec![
                Check::played(false, 5, &counts),
                Check::that("leases", others_hold, "given 3, ended 2".into()),
            ];
            let run = Run { checks, seconds: 0.5, ..Run::default() };
            Ran { setting: setting.into(), fairness: "Strict", run }
        };
        let all = sound(vec![ran("sticky@8", 0, true), ran("strict@8", 5, true)]);
        assert_eq!((all.runs.len(), all.broken.len()), (2, 0));
        assert_eq!(all.too_short, Some(Duration::from_millis(500)));
        // One of two rounds is enough.
        let all = sound(vec![ran("sticky@8", 0, true), ran("sticky@8", 5, true)]);
        assert_eq!((all.runs.len(), all.too_short), (2, None));
        let all = sound(vec![ran("sticky@8", 0, false)]);
        assert_eq!((all.runs.len(), all.broken.len(), all.too_short), (0, 1, None));
    }

    /// A round is as long as its leases and its requests need, up to a bound; and what is longer than usual is played once.
    #[test]
    fn rounds_are_long_enough_for_the_workload() {
        let of = |text: &str, milliseconds: u64| {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("mine.toml");
            std::fs::write(&path, text).unwrap();
            let tune = Tune {
                scenario: path.to_str().unwrap().into(),
                trace: None,
                fleet: None,
                speed: 1.0,
                requests: 100,
                milliseconds,
                rounds: 5,
                seed: None,
                format: crate::output::Format::Table,
                out: None,
            };
            let (length, times) = rounds(&Workload::open(&tune).unwrap(), &tune);
            (length.as_millis(), times)
        };
        for (text, milliseconds, expected) in [
            ("hold = \"fixed 5ms\"", 100, (200, 3)),
            ("hold = \"fixed 200ms\"", 100, (800, 3)),
            ("hold = \"fixed 5s\"\nduration = \"60s\"", 100, (7_500, 1)),
            ("hold = \"fixed 50s\"\nduration = \"60s\"", 100, (8_000, 1)),
            ("hold = \"fixed 50s\"\nduration = \"60s\"", 30_000, (60_000, 3)),
            ("loop = \"open\"\nrate = 0.5\nhold = \"fixed 5ms\"\nduration = \"60s\"", 100, (8_000, 1)),
            // No longer than the scenario's own.
            ("hold = \"fixed 5s\"\nduration = \"1s\"", 100, (1_000, 3)),
        ] {
            assert_eq!(of(text, milliseconds), expected, "{text}");
        }
    }
}
