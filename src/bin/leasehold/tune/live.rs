//! The few that serve the workload best, with real threads.

use std::time::Duration;

use serde::Serialize;

use super::{Setting, Tune, workload::Workload};
use crate::{
    error::Result,
    load::{
        self, processors,
        result::Run,
        scenario::{Distribution, Driver, Fairness, Loop, Scenario, Shape, Span},
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

/// The one that was chosen, on the workload itself, with one fairness.
#[derive(Clone, Serialize)]
pub struct Fair {
    pub fairness: &'static str,
    pub throughput: f64,
    pub waiting_p99_9_ns: u64,
}

pub fn measure(workload: &Workload, finalists: &[Setting], options: &Tune) -> Result<Vec<Live>> {
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
    let result = load::play("tune", scenario)?;
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
    let mut rounds = run.throughput_of_rounds.clone();
    rounds.sort_by(f64::total_cmp);
    rounds.get(rounds.len() / 2).copied().unwrap_or(0.0)
}

/// Both kinds of fairness, which differ only where somebody waits: on the workload itself, shortened.
pub fn fairness(workload: &Workload, winner: &Setting, options: &Tune) -> Result<[Fair; 2]> {
    let play = |fairness, name| -> Result<Fair> {
        let scenario = &workload.scenario;
        let scenario = Scenario {
            fairness,
            subjects: vec![winner.name()],
            rounds: options.rounds.min(3),
            duration: Span(Duration::from_millis(options.milliseconds * 2)),
            soak: false,
            // What has moments of its own is played from its beginning; here the pressure counts.
            burst: if scenario.burst == Shape::Trace { Shape::Steady } else { scenario.burst },
            hold: if scenario.hold == Distribution::Trace {
                Distribution::Exponential(Span(Duration::from_millis(5)))
            } else {
                scenario.hold
            },
            trace: None,
            ..scenario.clone()
        };
        let result = load::play("tune", scenario)?;
        let run = result.subjects.into_iter().find_map(|subject| subject.run);
        Ok(Fair {
            fairness: name,
            throughput: run.as_ref().map_or(0.0, median),
            waiting_p99_9_ns: run.as_ref().map_or(0, |run| run.waiting_ns.p99_9),
        })
    };
    Ok([play(Fairness::Strict, "Strict")?, play(Fairness::Throughput, "Throughput")?])
}
