//! What is shown of one result, whatever command it is from.

use crate::load::result::{Heat, LoadResult, Point, Processes};

pub struct Section {
    pub title: String,
    pub partial: bool,
    /// A simulation: its times say nothing of the machine.
    pub virtual_time: bool,
    pub facts: Vec<(String, String)>,
    /// The whole scenario, as a file.
    pub settings: Option<String>,
    pub rows: Vec<Row>,
    /// Who had no part, and why.
    pub unfit: Vec<(String, String)>,
}

/// One subject.
pub struct Row {
    pub name: String,
    pub throughput: Option<f64>,
    /// Share and nanoseconds that this share does not exceed.
    pub waiting: Vec<(f64, u64)>,
    pub latency: Vec<(f64, u64)>,
    pub longest_wait: u64,
    /// Not served because of the scheduler, because of the backend.
    pub refused: u64,
    pub failed: u64,
    pub rank: Option<Rank>,
    pub fairness: f64,
    pub fairness_of_workers: Option<f64>,
    pub series: Vec<Point>,
    pub heat: Option<Heat>,
    pub processes: Option<Processes>,
    pub faults: Vec<String>,
}

pub struct Rank {
    pub mean: f64,
    pub p99: u64,
    pub max: u64,
    pub histogram: Vec<(u64, u64)>,
    /// `None` for what has none.
    pub shards: Option<u32>,
}

impl Rank {
    /// What best-of-two over so many queues has on average: 5n/6 - 1 + 1/(6n), as docs/benchmarks.md tells.
    pub fn law(&self) -> Option<f64> {
        self.shards.map(crate::order::law)
    }
}

impl Row {
    /// The time that this share of requests did not exceed, as near as the curve tells.
    pub fn waited(&self, share: f64) -> Option<u64> {
        let near = |&&(at, _): &&(f64, u64)| (at - share).abs() < 0.002 * (1.0 - share).max(0.001) * 100.0;
        self.waiting.iter().find(near).map(|&(_, nanos)| nanos)
    }
}

impl Section {
    pub fn of_load(result: LoadResult) -> Self {
        let scenario = &result.scenario;
        let facts = [
            ("workers", scenario.workers.to_string()),
            ("resources", scenario.resources.to_string()),
            ("capacities", format!("{:?}", scenario.capacity)),
            ("hold", scenario.hold.to_string()),
            ("rounds", format!("{} of {}", scenario.rounds, scenario.duration)),
            ("seed", scenario.seed.to_string()),
            ("processors", result.processors.to_string()),
        ];
        let settings = toml::to_string(scenario).expect("a scenario is plain values");
        let (mut rows, mut unfit) = (Vec::new(), Vec::new());
        for subject in result.subjects {
            if let Some(reason) = subject.unfit {
                unfit.push((subject.name, reason));
                continue;
            }
            let Some(run) = subject.run else { continue };
            let shards = run.shards;
            rows.push(Row {
                throughput: Some(run.throughput),
                refused: run.counts.by_scheduler(),
                failed: run.counts.by_backend(),
                rank: run.rank_error.as_ref().map(|error| Rank {
                    mean: error.mean,
                    p99: error.p99,
                    max: error.max,
                    histogram: error.histogram.clone(),
                    shards,
                }),
                fairness: run.fairness.resources,
                fairness_of_workers: Some(run.fairness.workers),
                faults: run.faults().collect(),
                waiting: run.waiting_ns.curve,
                longest_wait: run.waiting_ns.max,
                latency: run.latency_ns.curve,
                series: run.series,
                processes: run.processes,
                heat: Some(run.heat).filter(|heat| !heat.rows.is_empty()),
                name: subject.name,
            });
        }
        Section {
            title: result.source.clone(),
            partial: result.interrupted,
            virtual_time: false,
            facts: facts.map(|(name, value)| (name.to_owned(), value)).into(),
            settings: Some(settings),
            rows,
            unfit,
        }
    }
}
