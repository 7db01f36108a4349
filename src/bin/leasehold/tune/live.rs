//! The few that serve the workload best, with real threads.

use std::time::Duration;

use serde::Serialize;

use super::{Setting, Tune, workload::Workload};
use crate::{
    error::Result,
    load::{
        self, Interrupt, processors,
        result::Run,
        scenario::{Driver, Fairness, Loop, Scenario, Span},
    },
};

/// What one setting did under threads that do nothing but borrow and return.
#[derive(Serialize)]
pub struct Live {
    pub setting: String,
    /// The median of the rounds.
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
    /// Requests that were not completed, whoever was to answer for that, in all rounds.
    pub lost: u64,
}

pub fn measure(
    workload: &Workload,
    finalists: &[Setting],
    options: &Tune,
    interrupt: &Interrupt,
) -> Result<Vec<Live>> {
    let Scenario { resources, capacity, ranking, tiers, seed, .. } = workload.scenario.clone();
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
        seed,
        ..Scenario::default()
    };
    let result = load::play("tune", scenario, interrupt)?;
    let runs = result.subjects.into_iter().filter_map(|subject| subject.run.map(|run| (subject.name, run)));
    Ok(runs
        .map(|(setting, run)| Live {
            setting,
            pairs_per_second: median(&run),
            waiting_p99_ns: run.waiting_ns.p99,
        })
        .collect())
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

/// All finalists with both kinds of fairness, which differ only where somebody waits: on the workload itself, in short rounds. Both
/// kinds take turns, and every second time in the opposite order.
pub fn play(
    workload: &Workload,
    finalists: &[Setting],
    options: &Tune,
    interrupt: &Interrupt,
) -> Result<Vec<Played>> {
    let scenario = &workload.scenario;
    let least = Duration::from_millis(options.milliseconds * 2);
    let one = scenario.think.mean() + scenario.delay.mean() + workload.mean_hold();
    let wished = (one * LEASES).max(scenario.burst.period());
    let scenario = Scenario {
        subjects: finalists.iter().map(Setting::name).collect(),
        rounds: 1,
        duration: Span(least.max(wished.min(LONGEST)).min(scenario.duration.0.max(least))),
        soak: false,
        ..scenario.clone()
    };
    let names =
        |fairness: Fairness| (fairness, if fairness == Fairness::Strict { "Strict" } else { "Throughput" });
    let mut kinds = [Fairness::Strict, Fairness::Throughput].map(names);
    let mut runs: Vec<(String, &'static str, Run)> = Vec::new();
    for round in 0..options.rounds.min(ROUNDS) {
        for (fairness, name) in kinds {
            if interrupt.is_raised() {
                return Ok(Vec::new());
            }
            let seed = scenario.seed.wrapping_add(round.into());
            let scenario = Scenario { fairness, seed, ..scenario.clone() };
            let result = load::play("tune", scenario, interrupt)?;
            let played = result.subjects.into_iter();
            runs.extend(played.filter_map(|subject| subject.run.map(|run| (subject.name, name, run))));
        }
        kinds.reverse();
    }
    let mut played = Vec::new();
    for setting in finalists.iter().map(Setting::name) {
        for kind in ["Strict", "Throughput"] {
            let of = || runs.iter().filter(|(name, fairness, _)| (name, *fairness) == (&setting, kind));
            let requests: u64 = of().map(|(_, _, run)| run.requests + run.unsent).sum();
            let completed: u64 = of().map(|(_, _, run)| run.counts.completed + run.counts.peeked).sum();
            let cut: u64 = of().map(|(_, _, run)| run.counts.cut_short + run.counts.cut_waiting).sum();
            played.push(Played {
                setting: setting.clone(),
                fairness: kind,
                throughput: middle(of().map(|(_, _, run)| run.throughput).collect()),
                waiting_p99_9_ns: middle(of().map(|(_, _, run)| run.waiting_ns.p99_9 as f64).collect())
                    as u64,
                lost: requests.saturating_sub(completed + cut),
            });
        }
    }
    Ok(played)
}
