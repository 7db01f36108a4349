//! 1,000 tasks over 50 resources, 1 ms, 50 rounds each.

use std::time::{Duration, Instant};

use crate::{
    peers::{self, DEADPOOL, NAMES, Pool, STRICT, Workload},
    report::{Report, median, millis, percentile},
};

const TASKS: usize = 1_000;
const EACH: usize = 50;
const HOLD: Duration = Duration::from_millis(1);
const RUNS: usize = 7;

#[derive(Clone, Copy)]
struct Outcome {
    p50: Duration,
    p99: Duration,
    max: Duration,
    total: Duration,
}

struct Crowd;

impl Workload for Crowd {
    const SIZE: usize = 50;
    type Outcome = Outcome;

    async fn run(&self, pool: impl Pool) -> Outcome {
        let start = Instant::now();
        let tasks: Vec<_> = (0..TASKS)
            .map(|_| {
                let pool = pool.clone();
                tokio::spawn(async move {
                    let mut waits = Vec::with_capacity(EACH);
                    for _ in 0..EACH {
                        let before = Instant::now();
                        let lease = pool.get().await;
                        waits.push(before.elapsed());
                        tokio::time::sleep(HOLD).await;
                        drop(lease);
                    }
                    waits
                })
            })
            .collect();
        let mut waits = Vec::with_capacity(TASKS * EACH);
        for task in tasks {
            waits.extend(task.await.expect("no panic"));
        }
        let total = start.elapsed();
        let (p50, p99, max) =
            (percentile(&mut waits, 0.5), percentile(&mut waits, 0.99), percentile(&mut waits, 1.0));
        Outcome { p50, p99, max, total }
    }
}

pub fn run(report: &mut Report) {
    let runs = peers::take_turns(&Crowd, RUNS);
    println!(
        "{:<24} {:>10} {:>10} {:>10} {:>10}   ms, medians of {RUNS} runs",
        "", "p50", "p99", "longest", "total"
    );
    for (i, name) in NAMES.iter().enumerate() {
        let of = |value: fn(&Outcome) -> Duration| median(runs.iter().map(|run| millis(value(&run[i]))));
        println!(
            "{name:<24} {:>10.3} {:>10.3} {:>10.3} {:>10.1}",
            of(|outcome| outcome.p50),
            of(|outcome| outcome.p99),
            of(|outcome| outcome.max),
            of(|outcome| outcome.total)
        );
    }
    println!();
    let tail = median(runs.iter().map(|run| millis(run[STRICT].p99) / millis(run[STRICT].p50)));
    report.bar("crowd: p99 to p50", tail, 1.15);
    // How much of a difference is none: the same pool, one turn after the other.
    let mut itself: Vec<f64> = runs
        .windows(2)
        .map(|turns| millis(turns[1][DEADPOOL].total) / millis(turns[0][DEADPOOL].total))
        .collect();
    itself.sort_by(f64::total_cmp);
    println!(
        "deadpool's total to its own, turn by turn: {:.3} to {:.3}",
        itself[0],
        itself[itself.len() - 1]
    );
    let total = median(runs.iter().map(|run| millis(run[STRICT].total) / millis(run[DEADPOOL].total)));
    report.bar("crowd: total time to deadpool's", total, 1.0);
}
