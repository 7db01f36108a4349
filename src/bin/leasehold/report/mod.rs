//! The report: what is told about a replay, in one structure for all forms.

mod csv;
mod json;
mod table;

use serde::Serialize;

use crate::{
    cli::Format,
    fleet::Fleet,
    simulate::{Distribution, Statistics, jain},
};

/// Version of the JSON form. Fields may be added under the same number; none changes or goes.
pub const SCHEMA: u32 = 1;

#[derive(Debug, Serialize)]
pub struct Report {
    pub schema: u32,
    pub trace: Trace,
    pub fleet: FleetSummary,
    pub settings: Settings,
    pub subjects: Vec<Subject>,
}

#[derive(Debug, Serialize)]
pub struct Trace {
    pub source: String,
    pub format: &'static str,
    pub requests: u64,
    pub skipped_rows: u64,
}

#[derive(Debug, Serialize)]
pub struct FleetSummary {
    pub source: String,
    pub resources: u64,
}

#[derive(Debug, Serialize)]
pub struct Settings {
    pub seed: u64,
    pub shards: u32,
    pub speed: f64,
    pub limit: Option<u64>,
    pub max_retries: u32,
    pub max_queue: u32,
}

/// One scheduler's run.
#[derive(Debug, Serialize)]
pub struct Subject {
    pub name: String,
    pub completed: u64,
    pub failed: u64,
    pub rejected: u64,
    pub retried: u64,
    pub rate_limited: u64,
    pub duration_ns: u64,
    pub waiting_ns: Waiting,
    pub rank_error: RankError,
    /// How many strictly worse ones were lent while a resource could be had, for each lease of it.
    pub delay: RankError,
    pub disagreements: u64,
    pub fairness: Fairness,
    pub events: Events,
    pub series: Series,
    pub resources: Vec<ResourceUse>,
}

/// Intervals of equal length, from the first arrival on.
#[derive(Debug, Serialize)]
pub struct Series {
    pub seconds_of_an_interval: f64,
    pub points: Vec<Point>,
}

#[derive(Debug, Serialize)]
pub struct Point {
    /// The end of the interval, in seconds.
    pub at: f64,
    /// Requests a second that were served in it, and the longest line.
    pub completed: f64,
    pub waiting: u64,
}

#[derive(Debug, Serialize)]
pub struct Waiting {
    pub mean: f64,
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    pub p99_9: u64,
    pub max: u64,
    /// Share of requests, and what it does not exceed: for a curve.
    pub curve: Vec<(f64, u64)>,
}

#[derive(Debug, Serialize)]
pub struct RankError {
    pub mean: f64,
    pub p99: u64,
    pub max: u64,
    /// Error and how often it was seen, of those that were seen.
    pub histogram: Vec<(u64, u64)>,
}

impl RankError {
    fn new(distribution: &Distribution) -> Self {
        RankError {
            mean: rounded(distribution.mean()),
            p99: distribution.quantile(0.99),
            max: distribution.max(),
            histogram: distribution.counts(),
        }
    }
}

#[derive(Debug, Serialize)]
pub struct Fairness {
    /// Over the whole fleet.
    pub all: f64,
    /// Inside each tier, averaged over the resources.
    pub within_tiers: f64,
}

#[derive(Debug, Serialize)]
pub struct Events {
    pub emitted: u64,
    pub dropped: u64,
}

#[derive(Debug, Serialize)]
pub struct ResourceUse {
    pub key: String,
    pub tier: u8,
    pub leases: u64,
    /// Share of its slots in use, averaged over the run.
    pub utilisation: f64,
}

impl Report {
    pub fn render(&self, format: Format) -> String {
        match format {
            Format::Table => table::render(self),
            Format::Json => json::render(self),
            Format::Csv => csv::render(self),
        }
    }
}

impl Subject {
    pub fn new(name: &str, fleet: &Fleet, statistics: &Statistics, (emitted, dropped): (u64, u64)) -> Self {
        let share = |held: u128, slots: u32| match statistics.end {
            0 => 0.0,
            end => held as f64 / (f64::from(slots) * end as f64),
        };
        let uses = fleet.resources.iter().zip(&statistics.usage);
        // The share by weight is what the scheduler evens out, so it is what fairness is about.
        let shares: Vec<(u8, f64)> = uses
            .clone()
            .map(|(spec, usage)| (spec.tier, share(usage.held, spec.max_in_flight) / f64::from(spec.weight)))
            .collect();
        let waiting = &statistics.waiting;
        let seconds = statistics.series.width() as f64 / 1e9;
        let points = statistics.series.points().map(|(end, interval)| Point {
            at: end as f64 / 1e9,
            completed: rounded(interval.completed as f64 / seconds),
            waiting: interval.waiting,
        });
        Subject {
            name: name.to_owned(),
            completed: statistics.completed,
            failed: statistics.failed,
            rejected: statistics.rejected,
            retried: statistics.retried,
            rate_limited: statistics.rate_limited,
            duration_ns: statistics.end,
            waiting_ns: Waiting {
                mean: rounded(waiting.mean()),
                p50: waiting.quantile(0.5),
                p90: waiting.quantile(0.9),
                p99: waiting.quantile(0.99),
                p99_9: waiting.quantile(0.999),
                max: waiting.max(),
                curve: waiting.curve(),
            },
            rank_error: RankError::new(&statistics.rank_error),
            delay: RankError::new(&statistics.delay),
            series: Series { seconds_of_an_interval: seconds, points: points.collect() },
            disagreements: statistics.disagreements,
            fairness: fairness(&shares),
            events: Events { emitted, dropped },
            resources: uses
                .map(|(spec, usage)| ResourceUse {
                    key: spec.key.get_ref().clone(),
                    tier: spec.tier,
                    leases: usage.leases,
                    utilisation: rounded(share(usage.held, spec.max_in_flight)),
                })
                .collect(),
        }
    }
}

fn fairness(shares: &[(u8, f64)]) -> Fairness {
    let all: Vec<f64> = shares.iter().map(|&(_, share)| share).collect();
    let mut sum = 0.0;
    for tier in 0..=u8::MAX {
        let of_tier: Vec<f64> =
            shares.iter().filter(|&&(of, _)| of == tier).map(|&(_, share)| share).collect();
        sum += jain(&of_tier) * of_tier.len() as f64;
    }
    Fairness { all: rounded(jain(&all)), within_tiers: rounded(sum / shares.len() as f64) }
}

/// Six decimals: enough for any reader, and nothing of the last bit.
fn rounded(number: f64) -> f64 {
    (number * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A report with a number in every field, for the tests of the forms.
    pub fn sample() -> Report {
        let fleet = Fleet::built_in();
        let mut statistics = Statistics::new(fleet.resources.len());
        statistics.completed = 990;
        statistics.failed = 4;
        statistics.rejected = 6;
        statistics.retried = 12;
        statistics.rate_limited = 8;
        statistics.end = 10_000_000_000;
        (0..994).for_each(|i| statistics.waiting.record(i * 1_000_000));
        (0..994).for_each(|i| statistics.rank_error.record(i % 3));
        statistics.usage[0].leases = 5;
        statistics.usage[0].held = 20_000_000_000;
        Report {
            schema: SCHEMA,
            trace: Trace { source: "a,b.csv".into(), format: "azure", requests: 1_000, skipped_rows: 2 },
            fleet: FleetSummary { source: fleet.name.clone(), resources: fleet.resources.len() as u64 },
            settings: Settings { seed: 1, shards: 4, speed: 1.0, limit: None, max_retries: 3, max_queue: 9 },
            subjects: ["sticky:2:16", "mutex"]
                .map(|name| Subject::new(name, &fleet, &statistics, (7, 1)))
                .into(),
        }
    }

    #[test]
    fn utilisation_is_the_share_of_slots() {
        let report = sample();
        assert_eq!(report.subjects[0].resources[0].utilisation, 0.5);
        assert_eq!(report.subjects[0].resources[1].utilisation, 0.0);
    }

    #[test]
    fn fairness_knows_tiers() {
        let fairness = fairness(&[(0, 0.8), (0, 0.8), (1, 0.0), (1, 0.0)]);
        assert_eq!((fairness.all, fairness.within_tiers), (0.5, 1.0));
    }
}
