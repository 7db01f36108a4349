//! The result for people who read a terminal.

use super::{
    result::{LoadResult, Process, Processes, Run, Times},
    scenario::Driver,
};

/// A heading and the text below it.
type Column<T = Run> = (&'static str, fn(&T) -> String);

const REQUESTS: [Column; 8] = [
    ("per second", |run| format!("{:.0}", run.throughput)),
    ("requests", |run| run.requests.to_string()),
    ("completed", |run| run.counts.completed.to_string()),
    ("scheduler", |run| run.counts.by_scheduler().to_string()),
    ("backend", |run| run.counts.by_backend().to_string()),
    ("cancelled", |run| run.counts.by_caller().to_string()),
    ("too late", |run| run.counts.too_late.to_string()),
    ("unsent", |run| run.unsent.to_string()),
];

const REFUSED: [Column; 6] = [
    ("none", |run| run.counts.scheduler.none_eligible.to_string()),
    ("timed out", |run| run.counts.scheduler.timed_out.to_string()),
    ("shed", |run| run.counts.scheduler.shed.to_string()),
    ("queue full", |run| run.counts.scheduler.queue_full.to_string()),
    ("closed", |run| run.counts.scheduler.closed.to_string()),
    ("not there", |run| run.counts.scheduler.not_eligible.to_string()),
];

const TROUBLE: [Column; 3] = [
    ("failed", |run| run.counts.backend.failed.to_string()),
    ("429s", |run| run.counts.backend.rate_limited.to_string()),
    ("timed out", |run| run.counts.backend.timed_out.to_string()),
];

const WAITING: [Column; 5] = [
    ("p50", |run| millis(run.waiting_ns.p50)),
    ("p90", |run| millis(run.waiting_ns.p90)),
    ("p99", |run| millis(run.waiting_ns.p99)),
    ("p99.9", |run| millis(run.waiting_ns.p99_9)),
    ("max", |run| millis(run.waiting_ns.max)),
];

const LATENCY: [Column; 11] = [
    ("p50", |run| optional(run.completed_ns.as_ref(), |times: &Times| millis(times.p50))),
    ("p99", |run| optional(run.completed_ns.as_ref(), |times: &Times| millis(times.p99))),
    ("max", |run| optional(run.completed_ns.as_ref(), |times: &Times| millis(times.max))),
    ("failed p99", |run| {
        optional(run.failed_ns.as_ref().filter(|times| times.count > 0), |times: &Times| millis(times.p99))
    }),
    ("unanswered", |run| run.unanswered_ns.count.to_string()),
    (
        "p99 at least",
        |run| if run.unanswered_ns.count > 0 { millis(run.unanswered_ns.p99) } else { "-".into() },
    ),
    ("p99 if sent late", |run| optional(run.uncorrected_ns.as_ref(), |times: &Times| millis(times.p99))),
    ("max if sent late", |run| optional(run.uncorrected_ns.as_ref(), |times: &Times| millis(times.max))),
    ("held p50", |run| millis(run.held_ns.p50)),
    ("delay p50", |run| optional(run.delay_ns.as_ref(), |times: &Times| millis(times.p50))),
    ("tool late p99", |run| millis(run.late_ns.p99)),
];

/// Of open loops: requests that came when all workers were busy, and how late they were sent.
const BUSY: [Column; 3] = [
    ("sent late", |run| optional(run.sent_late_ns.as_ref(), |times: &Times| times.count.to_string())),
    ("by p99", |run| optional(run.sent_late_ns.as_ref(), |times: &Times| millis(times.p99))),
    ("by max", |run| optional(run.sent_late_ns.as_ref(), |times: &Times| millis(times.max))),
];

const ORDER: [Column; 9] = [
    ("rank error", |run| optional(run.rank_error.as_ref(), |error| format!("{:.2}", error.mean))),
    ("p99", |run| optional(run.rank_error.as_ref(), |error| error.p99.to_string())),
    ("looks", |run| optional(run.rank_error.as_ref(), |error| error.sampled.to_string())),
    ("delay", |run| optional(run.delay.as_ref(), |delay| format!("{:.2}", delay.mean))),
    ("p99", |run| optional(run.delay.as_ref(), |delay| delay.p99.to_string())),
    ("looks", |run| optional(run.delay.as_ref(), |delay| delay.sampled.to_string())),
    ("fairness", |run| fairness(run, run.fairness.resources)),
    ("of workers", |run| fairness(run, run.fairness.workers)),
    ("broken rules", |run| run.broken.to_string()),
];

pub fn render(result: &LoadResult) -> String {
    let scenario = &result.scenario;
    let mut text = format!(
        "scenario  {}: {} workers, {} resources, {} loop, hold {}, {} rounds of {}, seed {}\n",
        shown(&result.source),
        scenario.workers,
        scenario.resources,
        if scenario.pace == super::scenario::Loop::Open { "open" } else { "closed" },
        scenario.hold,
        scenario.rounds,
        scenario.duration,
        scenario.seed
    );
    if result.interrupted {
        text += "PARTIAL: the run was interrupted; what follows is what there was until then\n";
    }
    text.push('\n');
    let runs: Vec<(&str, &Run)> = result
        .subjects
        .iter()
        .filter_map(|subject| subject.run.as_ref().map(|run| (subject.name.as_str(), run)))
        .collect();
    part(&mut text, "requests", &REQUESTS, &runs);
    part(&mut text, "scheduler's", &REFUSED, &runs);
    part(&mut text, "backend's", &TROUBLE, &runs);
    part(&mut text, "waiting, ms", &WAITING, &runs);
    part(&mut text, "latency, ms", &LATENCY, &runs);
    if runs.iter().any(|(_, run)| run.sent_late_ns.is_some()) {
        part(&mut text, "all busy, ms", &BUSY, &runs);
    }
    part(&mut text, "order", &ORDER, &runs);
    if let Some(first) = runs.iter().find_map(|(_, run)| run.driver)
        && runs.iter().any(|(_, run)| run.driver.is_some_and(|driver| driver != first))
    {
        let by = |driver| match driver {
            Driver::Tasks => "tasks",
            Driver::Threads => "threads",
            Driver::Pool => "jobs of the pool",
        };
        let asked = runs.iter().filter_map(|(name, run)| Some(format!("{name} by {}", by(run.driver?))));
        text += &format!(
            "note  asked in different ways, compare those that were asked alike: {}\n\n",
            asked.collect::<Vec<_>>().join(", ")
        );
    }
    runs.iter().filter_map(|(_, run)| run.processes.as_ref()).for_each(|part| processes(&mut text, part));
    for (name, run) in &runs {
        if let Some(soak) = &run.soak {
            text += &format!(
                "soak {name}: fleet {} kB, growth {}; waiting to be freed: at most {} while a reader stayed ({} retired \
                 meanwhile), {} after it had left, {} at the end\n",
                soak.fleet_bytes / 1_000,
                soak.growth.map_or("not measured, the run was too short".into(), |growth| format!(
                    "{:.2} % of it",
                    growth * 100.0
                )),
                soak.most_while_it_stayed,
                soak.most_retired_in_a_stay,
                soak.most_after_it_left,
                soak.left_over,
            );
        }
        let balanced = run.checks.iter().filter(|check| check.holds).count();
        text += &format!("{name}: {balanced} of {} checks hold\n", run.checks.len());
        run.faults().for_each(|fault| text += &format!("  WRONG  {fault}\n"));
    }
    if runs.is_empty() {
        text += "NOTHING was measured: no subject fits the scenario\n";
    }
    for subject in &result.subjects {
        if let Some(unfit) = &subject.unfit {
            text += &format!("{}: not measured, {unfit}\n", subject.name);
        }
    }
    text
}

fn part(text: &mut String, title: &str, columns: &[Column], runs: &[(&str, &Run)]) {
    let width = runs.iter().map(|(name, _)| name.len()).max().unwrap_or(0).max(16);
    *text += &format!("{title:<width$}");
    columns.iter().for_each(|(heading, _)| *text += &format!("  {heading:>10}"));
    text.push('\n');
    for (name, run) in runs {
        *text += &format!("{name:<width$}");
        for (heading, cell) in columns {
            *text += &format!("  {:>1$}", cell(run), heading.len().max(10));
        }
        text.push('\n');
    }
    text.push('\n');
}

/// A line a process, and what they did to each other.
fn processes(text: &mut String, processes: &Processes) {
    const COLUMNS: [Column<Process>; 11] = [
        ("workers", |process| process.workers.to_string()),
        ("units held", |process| {
            let held = process.held;
            format!("{:.1} ({}..{})", held.mean, held.least, held.most)
        }),
        ("requests", |process| process.requests.to_string()),
        ("completed", |process| process.counts.completed.to_string()),
        ("scheduler", |process| process.counts.by_scheduler().to_string()),
        ("backend", |process| process.counts.by_backend().to_string()),
        ("cancelled", |process| process.counts.by_caller().to_string()),
        ("wait p50", |process| millis(process.waiting_ns.p50)),
        ("wait p99", |process| millis(process.waiting_ns.p99)),
        ("latency p99", |process| millis(process.latency_ns.p99)),
        ("lost units", |process| process.lost.to_string()),
    ];
    *text += &format!("{:<16}", "processes");
    COLUMNS.iter().for_each(|(heading, _)| *text += &format!("  {heading:>14}"));
    for process in &processes.rows {
        *text += &format!("\n{:<16}", process.name);
        COLUMNS.iter().for_each(|(_, cell)| *text += &format!("  {:>14}", cell(process)));
    }
    *text += &format!(
        "\n{} units shared through {}: {} uses, a unit went to another process {} times\n\n",
        processes.units,
        shown(&processes.server),
        processes.uses,
        processes.handed_over
    );
}

/// Where nothing was lent there is nothing to be fair about.
fn fairness(run: &Run, index: f64) -> String {
    if run.counts.leases() > 0 { format!("{index:.3}") } else { "-".into() }
}

/// Milliseconds, three digits after the point.
fn millis(nanos: u64) -> String {
    format!("{:.3}", nanos as f64 / 1e6)
}

fn optional<T>(value: Option<T>, text: impl FnOnce(T) -> String) -> String {
    value.map_or("-".into(), text)
}

/// Names come from the user; a control character must not reach the terminal.
fn shown(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}
