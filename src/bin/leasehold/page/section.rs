//! What is shown of one result, whatever command it is from.

use super::table::count;
use crate::load::{
    result::{Heat, LoadResult, Point, Processes, Times},
    scenario::{Driver, Loop, Scenario},
};

pub struct Section {
    pub title: String,
    pub partial: bool,
    /// A simulation: its times say nothing of the machine.
    pub virtual_time: bool,
    pub facts: Vec<(String, String)>,
    /// The size of the fleet.
    pub resources: u32,
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
    /// As the result has them; `None` if there is nothing of the kind.
    pub waits: Option<Quantiles>,
    pub latencies: Option<Quantiles>,
    /// Latency from when a request was really sent, where that is another moment than the one that was meant.
    pub uncorrected: Option<Quantiles>,
    /// Of requests that nobody answered, how long they had gone on; and how many these are.
    pub unanswered: Option<Quantiles>,
    pub unanswered_count: Option<u64>,
    /// Of requests that the backend failed; how late requests were sent because all workers were busy, and how many.
    pub failures: Option<Quantiles>,
    pub sent_late: Option<Quantiles>,
    pub sent_late_count: Option<u64>,
    /// How long leases were held, and the backend's delay in that; how late the tool itself was.
    pub held: Option<Quantiles>,
    pub delay: Option<Quantiles>,
    pub late: Option<Quantiles>,
    /// Shares of all requests that have no part in the waits, as they got no lease, and in the latencies, as they were not completed.
    pub share_without_wait: f64,
    pub share_without_latency: f64,
    /// Who asked, if the result tells.
    pub driver: Option<Driver>,
    /// For the charts: share, and nanoseconds that this share does not exceed.
    pub waiting: Vec<(f64, u64)>,
    pub latency: Vec<(f64, u64)>,
    /// Not served because of the scheduler, because of the backend, because the caller gave up, because its time was over before
    /// anybody could send it, because nobody came to send it.
    pub refused: u64,
    pub failed: u64,
    pub cancelled: Option<u64>,
    pub too_late: Option<u64>,
    pub unsent: Option<u64>,
    pub rank: Option<Rank>,
    pub passed_over: Option<PassedOver>,
    /// `None` if nobody has had a lease.
    pub fairness: Option<f64>,
    pub fairness_of_workers: Option<f64>,
    pub series: Vec<Point>,
    pub heat: Option<Heat>,
    /// Of each resource by its name: from 0 to 1, over the whole run.
    pub utilisation: Vec<(String, f64)>,
    pub processes: Option<Processes>,
    pub faults: Vec<String>,
}

pub struct Rank {
    pub mean: f64,
    pub p99: u64,
    pub max: u64,
    pub histogram: Vec<(u64, u64)>,
    /// Of how many samples that is; `None` if it is of every lease.
    pub looks: Option<u64>,
    /// `None` for what has none.
    pub shards: Option<u32>,
}

/// The same loss as the rank error, seen from those that were not lent: the delay of docs/order-quality.md.
pub struct PassedOver {
    pub mean: f64,
    pub p99: u64,
    /// As of [`Rank`].
    pub looks: Option<u64>,
}

impl Rank {
    /// What best-of-two over so many queues has on average: 5n/6 - 1 + 1/(6n), as docs/benchmarks.md tells.
    pub fn law(&self) -> Option<f64> {
        self.shards.map(crate::order::law)
    }
}

/// Times that shares of the requests did not exceed, in nanoseconds.
#[derive(Clone, Copy)]
pub struct Quantiles {
    pub p50: u64,
    pub p99: u64,
    pub p99_9: u64,
    pub max: u64,
}

impl Quantiles {
    /// `None` of no values at all.
    fn of(times: &Times) -> Option<Self> {
        let &Times { p50, p99, p99_9, max, .. } = times;
        (times.count > 0).then_some(Quantiles { p50, p99, p99_9, max })
    }
}

/// Why nobody outside can tell which of the resources could be had, if that is so: then there is no rank error and no delay.
fn without_order(scenario: &Scenario) -> Option<&'static str> {
    match scenario {
        Scenario { ejection: true, .. } => {
            Some("whom the scheduler has ejected nobody outside knows, so there is no order to compare with")
        }
        Scenario { drains, .. } if *drains > 0.0 => {
            Some("who is drained just then nobody outside knows, so there is no order to compare with")
        }
        _ => None,
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
        let mut facts: Vec<(String, String)> =
            facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        if let Some(why) = without_order(scenario) {
            facts.push(("rank errors".into(), format!("not looked at: {why}")));
        }
        for subject in &result.subjects {
            // What memory's growth was measured against, and what it was.
            if let Some(soak) = subject.run.as_ref().and_then(|run| run.soak.as_ref()) {
                let growth = soak
                    .growth
                    .map_or_else(|| "not measured".into(), |growth| format!("{:.2} %", growth * 100.0));
                let heap = soak.heap_bytes.iter().max().map_or(0.0, |&bytes| bytes as f64);
                let told = format!(
                    "fleet {} bytes, heap at most {} bytes in {} looks, growth {growth}; {} values retired, at most {} waited to be freed",
                    count(soak.fleet_bytes as f64),
                    count(heap),
                    soak.heap_bytes.len(),
                    count(soak.retired as f64),
                    count(soak.most_while_it_stayed as f64),
                );
                facts.push((format!("soak of {}", subject.name), told));
            }
        }
        let settings = toml::to_string(scenario).expect("a scenario is plain values");
        let resources = scenario.resources;
        let is_open = scenario.pace == Loop::Open;
        let (mut rows, mut unfit) = (Vec::new(), Vec::new());
        for subject in result.subjects {
            if let Some(reason) = subject.unfit {
                unfit.push((subject.name, reason));
                continue;
            }
            let Some(run) = subject.run else { continue };
            let shards = run.shards;
            let was_lent = run.counts.leases() > 0;
            let requests = (run.requests + run.unsent).max(1) as f64;
            let completed = run.completed_ns.as_ref().unwrap_or(&run.latency_ns);
            // Who only looks wants no lease.
            let without = |count: u64| 1.0 - (count + run.counts.peeked).min(run.requests) as f64 / requests;
            rows.push(Row {
                share_without_wait: without(run.waiting_ns.count),
                share_without_latency: without(completed.count),
                driver: run.driver,
                failures: run.failed_ns.as_ref().and_then(Quantiles::of),
                sent_late: run.sent_late_ns.as_ref().and_then(Quantiles::of),
                sent_late_count: run.sent_late_ns.as_ref().map(|late| late.count),
                throughput: Some(run.throughput),
                refused: run.counts.by_scheduler(),
                failed: run.counts.by_backend(),
                cancelled: Some(run.counts.by_caller()),
                too_late: is_open.then_some(run.counts.too_late),
                unsent: is_open.then_some(run.unsent),
                rank: run.rank_error.as_ref().map(|error| Rank {
                    mean: error.mean,
                    p99: error.p99,
                    max: error.max,
                    histogram: error.histogram.clone(),
                    looks: Some(error.sampled),
                    shards,
                }),
                passed_over: run.delay.as_ref().map(|delay| PassedOver {
                    mean: delay.mean,
                    p99: delay.p99,
                    looks: Some(delay.sampled),
                }),
                fairness: was_lent.then_some(run.fairness.resources),
                fairness_of_workers: was_lent.then_some(run.fairness.workers),
                faults: run.faults().collect(),
                waits: Quantiles::of(&run.waiting_ns),
                latencies: Quantiles::of(completed),
                latency: completed.curve.clone(),
                uncorrected: run.uncorrected_ns.as_ref().and_then(Quantiles::of),
                unanswered: Quantiles::of(&run.unanswered_ns),
                unanswered_count: Some(run.unanswered_ns.count),
                held: Quantiles::of(&run.held_ns),
                delay: run.delay_ns.as_ref().and_then(Quantiles::of),
                late: Quantiles::of(&run.late_ns),
                waiting: run.waiting_ns.curve,
                series: run.series,
                processes: run.processes,
                heat: Some(run.heat).filter(|heat| !heat.is_empty()),
                utilisation: Vec::new(),
                name: subject.name,
            });
        }
        Section {
            title: result.source.clone(),
            partial: result.interrupted,
            virtual_time: false,
            facts,
            resources,
            settings: Some(settings),
            rows,
            unfit,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where a chart is missing the page says why.
    #[test]
    fn a_page_without_rank_errors_says_why() {
        let of = |ready: &str| without_order(&Scenario::open(ready, &[]).unwrap());
        assert_eq!(of("gateway"), None);
        for ready in ["scraper", "flapping", "soak"] {
            assert!(of(ready).is_some_and(|why| why.contains("no order to compare with")), "{ready}");
        }
    }
}
