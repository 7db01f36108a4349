//! One result of those of many processes.

use super::{
    super::{
        chores::Done,
        fairness,
        outcome::Counts,
        result::{Check, Fairness, Heat, Point, Process, Processes, Run, Times},
        scenario::{Loop, Scenario},
    },
    TTL,
    part::{Counted, Part},
    server::Server,
    verdict::judge,
};
use crate::simulate::jain;

/// How many broken rules are told in words; all are counted.
const TOLD: usize = 20;

/// The parts together. If the run was `interrupted` it may be that nothing was used.
pub fn merge(scenario: &Scenario, server: &Server, units: u64, parts: &[Part], interrupted: bool) -> Run {
    let runs = || parts.iter().map(|part| &part.run);
    let sum = |pick: fn(&Run) -> u64| runs().map(pick).sum::<u64>();
    let mut counts = Counts::default();
    runs().for_each(|run| counts.merge(&run.counts));
    let spans =
        parts.iter().enumerate().flat_map(|(place, part)| part.spans.iter().map(move |span| (place, span)));
    let verdict = judge(scenario, spans);
    let unused: u64 = parts.iter().map(|part| part.unused).sum();
    let mut checks = vec![
        Check::equal("requests of all", ("begun", sum(|run| run.requests)), ("ended", counts.total())),
        Check::equal("uses of units", ("noted", verdict.uses + unused), ("leases", counts.leases())),
        Check::equal("uses that go on", ("noted", verdict.open), ("expected", 0)),
        Check::played(interrupted, sum(|run| run.requests), &counts),
        Check::that("units were used", verdict.uses > 0 || interrupted, format!("{} uses", verdict.uses)),
        Check::that(
            "no unit lent by two at once",
            verdict.violations.is_empty(),
            format!("{} of {} uses", verdict.violations.len(), verdict.uses),
        ),
    ];
    let mut breaches: Vec<String> = verdict.violations.iter().take(TOLD).cloned().collect();
    for Part { name, run, .. } in parts {
        checks.extend(
            run.checks.iter().map(|check| Check { name: format!("{name}: {}", check.name), ..check.clone() }),
        );
        breaches.extend(run.breaches.iter().map(|breach| format!("{name}: {breach}")));
    }
    breaches.truncate(TOLD);
    let mut chores = Done::default();
    runs().for_each(|run| chores.merge(run.chores));
    let times = |pick: fn(&Part) -> &Counted| Times::new(&Counted::sum(parts.iter().map(pick)));
    let served: Vec<f64> = parts.iter().flat_map(|part| &part.served).map(|&served| served as f64).collect();
    let mut leases = vec![0; scenario.resources as usize];
    for part in parts {
        leases.iter_mut().zip(&part.leases).for_each(|(sum, leases)| *sum += leases);
    }
    let rounds = runs().map(|run| run.throughput_of_rounds.len()).min().unwrap_or(0);
    Run {
        shards: runs().find_map(|run| run.shards),
        rounds: rounds as u32,
        seconds: runs().map(|run| run.seconds).fold(0.0, f64::max),
        requests: sum(|run| run.requests),
        unsent: sum(|run| run.unsent),
        counts,
        throughput: runs().map(|run| run.throughput).sum(),
        throughput_of_rounds: (0..rounds)
            .map(|round| runs().map(|run| run.throughput_of_rounds[round]).sum())
            .collect(),
        waiting_ns: times(|part| &part.times.waiting),
        latency_ns: times(|part| &part.times.latency),
        unanswered_ns: times(|part| &part.times.unanswered),
        uncorrected_ns: (scenario.pace == Loop::Open).then(|| times(|part| &part.times.uncorrected)),
        held_ns: times(|part| &part.times.held),
        delay_ns: (!scenario.delay.is_zero()).then(|| times(|part| &part.times.delayed)),
        late_ns: times(|part| &part.times.late),
        sent_late_ns: (scenario.pace == Loop::Open).then(|| times(|part| &part.times.sent_late)),
        completed_ns: Some(times(|part| &part.times.completed)),
        failed_ns: Some(times(|part| &part.times.failed)),
        driver: runs().find_map(|run| run.driver),
        tokens: sum(|run| run.tokens),
        rank_error: None,
        delay: None,
        delays_unfinished: 0,
        fairness: Fairness { resources: fairness(scenario, &leases), workers: jain(&served) },
        chores,
        series: series(parts),
        heat: heat(parts),
        soak: None,
        processes: Some(Processes {
            server: server.name.clone(),
            ttl_ns: TTL.as_nanos() as u64,
            units,
            uses: verdict.uses,
            handed_over: verdict.handed_over,
            rows: parts.iter().map(row).collect(),
        }),
        checks,
        broken: verdict.violations.len() as u64 + sum(|run| run.broken),
        breaches,
    }
}

fn row(part: &Part) -> Process {
    let run = &part.run;
    Process {
        name: part.name.clone(),
        workers: part.served.len() as u32,
        requests: run.requests,
        unsent: run.unsent,
        counts: run.counts.clone(),
        throughput: run.throughput,
        waiting_ns: run.waiting_ns.clone(),
        latency_ns: run.latency_ns.clone(),
        held: part.held,
        claimed: part.claimed,
        returned: part.returned,
        lost: part.lost,
        server_failures: part.server_failures,
    }
}

/// Looks of all processes at what is nearly the same moment. Percentiles cannot be added: the worst process's stand there.
fn series(parts: &[Part]) -> Vec<Point> {
    let most = parts.iter().map(|part| part.run.series.len()).max().unwrap_or(0);
    let points = (0..most).map(|index| {
        let mut points = parts.iter().filter_map(|part| part.run.series.get(index));
        let first = *points.next().expect("the longest has one");
        points.fold(first, |sum, point| Point {
            round: sum.round.max(point.round),
            at: sum.at.max(point.at),
            completed: sum.completed + point.completed,
            refused: sum.refused + point.refused,
            failed: sum.failed + point.failed,
            waiting: sum.waiting + point.waiting,
            in_flight: sum.in_flight + point.in_flight,
            p50: sum.p50.max(point.p50),
            p99: sum.p99.max(point.p99),
        })
    });
    points.collect()
}

/// Each process has measured its leases against the whole capacity, so its loads add up.
fn heat(parts: &[Part]) -> Heat {
    let mut heats = parts.iter().map(|part| &part.run.heat);
    let Some(mut sum) = heats.next().cloned() else { return Heat::default() };
    for heat in heats {
        for (sums, loads) in sum.rows.iter_mut().zip(&heat.rows) {
            sums.iter_mut().zip(loads).for_each(|(sum, load)| *sum = (*sum + load).min(1.0));
        }
    }
    sum
}
