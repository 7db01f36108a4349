//! The result of a load run: one structure for all forms. docs/cli.md describes its JSON.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::{
    chores::Done,
    outcome::Counts,
    scenario::{Driver, Scenario},
    soak::Soak,
};

/// Version of the JSON form. Fields may be added under the same number; none changes or goes.
pub const SCHEMA: u32 = 1;

/// What tells this JSON from that of other commands.
pub const KIND: &str = "load";

#[derive(Debug, Serialize, Deserialize)]
pub struct LoadResult {
    pub schema: u32,
    pub kind: String,
    /// The name of a ready scenario, or of its file.
    pub source: String,
    /// The run was ended by hand: what is here is what there was until then.
    pub interrupted: bool,
    pub processors: u32,
    pub scenario: Scenario,
    pub subjects: Vec<SubjectResult>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct SubjectResult {
    pub name: String,
    /// Why it had no part in this scenario; then there is no `run`.
    pub unfit: Option<String>,
    pub run: Option<Run>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Run {
    pub shards: Option<u32>,
    pub rounds: u32,
    /// The length of all rounds together.
    pub seconds: f64,
    pub requests: u64,
    pub unsent: u64,
    pub counts: Counts,
    /// Completed requests a second: of all rounds, and of each.
    pub throughput: f64,
    pub throughput_of_rounds: Vec<f64>,
    pub waiting_ns: Times,
    pub latency_ns: Times,
    /// Of requests that are not in it because somebody's time was over (they were never sent, cut by the end, timed out, given up): how long
    /// they had gone on by then. They would have taken at least that long.
    #[serde(default)]
    pub unanswered_ns: Times,
    /// Open loop only: the same as the latency, measured from when a request was really sent.
    pub uncorrected_ns: Option<Times>,
    /// How long leases were held; and, of that, before the backend answered, where the scenario has such a delay.
    #[serde(default)]
    pub held_ns: Times,
    #[serde(default)]
    pub delay_ns: Option<Times>,
    /// How late the tool itself was with requests whose worker slept until their moment: its clock's ticks.
    #[serde(default)]
    pub late_ns: Times,
    /// Open loop only: how late requests were sent because all workers were busy at their moment. More workers would have sent them in time.
    #[serde(default)]
    pub sent_late_ns: Option<Times>,
    /// The two parts of `latency_ns`: of requests that were completed, and of those that the backend failed. Older results have none.
    #[serde(default)]
    pub completed_ns: Option<Times>,
    #[serde(default)]
    pub failed_ns: Option<Times>,
    /// Who asked: what the scenario says, unless the subject has nothing of the kind. Figures of different drivers cannot be compared. Older
    /// results do not tell.
    #[serde(default)]
    pub driver: Option<Driver>,
    /// Leases that were passed on as tokens and returned twice.
    #[serde(default)]
    pub tokens: u64,
    pub rank_error: Option<RankError>,
    /// The same loss from the other side: strictly worse resources that were lent while a sampled one could be had. And samples that ended
    /// otherwise. Older results have none.
    #[serde(default)]
    pub delay: Option<RankError>,
    #[serde(default)]
    pub delays_unfinished: u64,
    pub fairness: Fairness,
    pub chores: Done,
    pub series: Vec<Point>,
    /// Of the last round.
    pub heat: Heat,
    pub soak: Option<Soak>,
    /// What each of many processes did, and what they did to each other.
    #[serde(default)]
    pub processes: Option<Processes>,
    pub checks: Vec<Check>,
    /// How often a rule was seen broken, and the first few in words.
    pub broken: u64,
    pub breaches: Vec<String>,
}

/// A distribution of times in nanoseconds, within 1 %.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Times {
    pub count: u64,
    pub mean: f64,
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    pub p99_9: u64,
    pub max: u64,
    /// Share of values, and the value that this share does not exceed: for a curve.
    pub curve: Vec<(f64, u64)>,
}

/// Resources that could be had and were strictly better than the one that was lent, or a delay, in lendings: a sample.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RankError {
    pub sampled: u64,
    pub mean: f64,
    pub p99: u64,
    pub max: u64,
    /// Error and how often it was seen, of those that were seen.
    pub histogram: Vec<(u64, u64)>,
}

/// Jain's index: 1 if all have the same, 1/n if one has everything.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Fairness {
    /// Leases over capacity, within tiers, averaged over the resources.
    pub resources: f64,
    /// Leases of each worker.
    pub workers: f64,
}

/// One moment of a round.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Point {
    pub round: u32,
    /// Seconds since the beginning of the subject's first round, other subjects' left out.
    pub at: f64,
    /// Requests a second since the point before: completed; not served because of the scheduler; because of the backend.
    pub completed: f64,
    pub refused: f64,
    pub failed: f64,
    /// Requests that wait, and leases that are out, now.
    pub waiting: u64,
    pub in_flight: u64,
    /// Waiting times of requests that got their lease since the point before.
    pub p50: u64,
    pub p99: u64,
}

/// Load of resources over time: 0 to 1.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Heat {
    /// Resources that a row stands for.
    pub resources_of_a_row: u32,
    /// Seconds that a column stands for.
    pub seconds_of_a_column: f64,
    /// Rows of columns.
    pub rows: Vec<Vec<f32>>,
}

/// A run of many processes that share the fleet through a server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Processes {
    /// The program that was started for the run, or the address of one that was there.
    pub server: String,
    /// After so long without a word a member's claims end.
    pub ttl_ns: u64,
    /// Units of the whole fleet, of which each belongs to one process at a time.
    pub units: u64,
    /// Uses of units whose times were compared.
    pub uses: u64,
    /// How often a unit was used by another process than before.
    pub handed_over: u64,
    pub rows: Vec<Process>,
}

/// One of them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Process {
    pub name: String,
    pub workers: u32,
    pub requests: u64,
    pub unsent: u64,
    pub counts: Counts,
    /// Completed requests a second.
    pub throughput: f64,
    pub waiting_ns: Times,
    pub latency_ns: Times,
    pub held: Held,
    /// Units that it claimed, gave back, and lost because the server was not heard of; and requests to the server whose fate is unknown.
    pub claimed: u64,
    pub returned: u64,
    pub lost: u64,
    pub server_failures: u64,
}

/// Units that a process had, of looks during its rounds.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Held {
    pub least: u32,
    pub mean: f64,
    pub most: u32,
}

/// Something that must be so at the end.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Check {
    pub name: String,
    pub holds: bool,
    /// The two numbers that should agree, or what is wrong.
    pub found: String,
}

impl Heat {
    /// Whether nothing was seen: of a round that was ended as it began there are rows without columns.
    pub fn is_empty(&self) -> bool {
        self.rows.iter().all(Vec::is_empty)
    }
}

impl Check {
    pub fn equal(name: &str, left: (&str, u64), right: (&str, u64)) -> Self {
        let found = format!("{} {}, {} {}", left.0, left.1, right.0, right.1);
        Check { name: name.into(), holds: left.1 == right.1, found }
    }

    pub fn that(name: &str, holds: bool, found: String) -> Self {
        Check { name: name.into(), holds, found }
    }

    /// Something was measured: somebody asked, and somebody was answered by what is behind the leases. Only a run that was interrupted may
    /// have had no time for that.
    pub fn played(interrupted: bool, requests: u64, counts: &Counts) -> Self {
        let answered = counts.completed + counts.peeked + counts.by_backend();
        let found = format!("{requests} requests, {answered} of them answered");
        Check::that(PLAYED, interrupted || (requests > 0 && answered > 0), found)
    }
}

const PLAYED: &str = "played";

impl Run {
    /// Nobody was answered, and nothing else is wrong: it was too short to tell anything of whom it has played, neither good nor bad.
    pub fn is_hollow(&self) -> bool {
        let mut wrong = self.checks.iter().filter(|check| !check.holds).map(|check| &*check.name);
        self.broken == 0 && wrong.next() == Some(PLAYED) && wrong.next().is_none()
    }

    /// What does not hold, in words.
    pub fn faults(&self) -> impl Iterator<Item = String> + '_ {
        let checks = self.checks.iter().filter(|check| !check.holds);
        let checks = checks.map(|Check { name, found, .. }| format!("{name}: {found}"));
        let more = self.broken.saturating_sub(self.breaches.len() as u64);
        let rest = (more > 0).then(|| format!("and {more} more"));
        checks.chain(self.breaches.iter().cloned()).chain(rest)
    }
}

impl Times {
    pub fn new(histogram: &Histogram<u64>) -> Self {
        let max = if histogram.is_empty() { 0 } else { histogram.max() };
        let quantile = |share| histogram.value_at_quantile(share).min(max);
        Times {
            count: histogram.len(),
            mean: (histogram.mean() * 10.0).round() / 10.0,
            p50: quantile(0.5),
            p90: quantile(0.9),
            p99: quantile(0.99),
            p99_9: quantile(0.999),
            max,
            curve: shares(histogram.len()).map(|share| (share, quantile(share))).collect(),
        }
    }
}

/// Shares that are evenly spaced on an axis of nines, as far as there are values to tell them apart.
pub fn shares(count: u64) -> impl Iterator<Item = f64> {
    const A_DECADE: u32 = 8;
    let decades = if count == 0 { 0.0 } else { (count as f64).log10() };
    let steps = (decades * f64::from(A_DECADE)).floor() as u32;
    (0..=steps).map(|step| 1.0 - 10f64.powf(-f64::from(step) / f64::from(A_DECADE)))
}

impl RankError {
    pub fn new(histogram: &Histogram<u64>) -> Option<Self> {
        if histogram.is_empty() {
            return None;
        }
        let counts = histogram.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value()));
        Some(RankError {
            sampled: histogram.len(),
            mean: (histogram.mean() * 1e3).round() / 1e3,
            p99: histogram.value_at_quantile(0.99).min(histogram.max()),
            max: histogram.max(),
            histogram: counts.collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_go_as_far_as_there_are_values() {
        let shares: Vec<f64> = shares(1_000).collect();
        assert_eq!((shares.len(), shares[0]), (25, 0.0));
        assert!((shares[8] - 0.9).abs() < 1e-9 && (shares[24] - 0.999).abs() < 1e-9);
        let mut histogram = Histogram::new_with_bounds(1, 1_000_000, 2).unwrap();
        let empty = Times::new(&histogram);
        assert_eq!((empty.count, empty.max, empty.curve.len()), (0, 0, 1));
        (1..=1_000).for_each(|value| histogram.record(value).unwrap());
        let times = Times::new(&histogram);
        assert!(times.curve.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1));
        assert!((495..=510).contains(&times.p50), "{}", times.p50);
    }

    #[test]
    fn checks_can_fail() {
        let check = |left, right| Check::equal("a", ("b", left), ("c", right));
        assert!(check(2, 2).holds && !check(1, 2).holds && !check(2, 1).holds);
        assert_eq!(check(1, 2).found, "b 1, c 2");
        // Where nothing was measured every count balances, and nothing is right.
        let counts = |completed, failed| {
            let mut counts = Counts { completed, ..Counts::default() };
            counts.backend.failed = failed;
            counts
        };
        for (interrupted, requests, counts, holds) in [
            (false, 0, counts(0, 0), false),
            (false, 5, counts(0, 0), false),
            (true, 0, counts(0, 0), true),
            (false, 5, counts(1, 0), true),
            (false, 5, counts(0, 5), true),
        ] {
            assert_eq!(Check::played(interrupted, requests, &counts).holds, holds, "{requests} {counts:?}");
        }
        let run = Run { checks: vec![check(2, 2), check(1, 2)], ..Run::default() };
        assert_eq!(run.faults().collect::<Vec<_>>(), ["a: b 1, c 2"]);
    }

    #[test]
    fn rank_errors_keep_their_counts() {
        let mut histogram = Histogram::new_with_bounds(1, 1 << 20, 3).unwrap();
        assert!(RankError::new(&histogram).is_none());
        [0, 0, 1, 3].into_iter().for_each(|error| histogram.record(error).unwrap());
        let error = RankError::new(&histogram).unwrap();
        assert_eq!((error.mean, error.max, error.sampled), (1.0, 3, 4));
        assert_eq!(error.histogram, [(0, 2), (1, 1), (3, 1)]);
    }
}
