//! 10,000 tasks over 4 resources, 20 rounds each; who holds one lets the other tasks run once.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use crate::{
    peers::{self, NAMES, Pool, STRICT, Workload},
    report::{Report, mean, median, millis},
};

const TASKS: usize = 10_000;
const EACH: usize = 20;
const RUNS: usize = 5;

/// Of all waits but each task's first.
#[derive(Clone, Copy)]
struct Outcome {
    mean: Duration,
    longest: Duration,
    /// The same in acquisitions by others in between, which no disturbance of the machine changes.
    overtaken: f64,
    total: Duration,
}

struct Queue;

impl Workload for Queue {
    const SIZE: usize = 4;
    type Outcome = Outcome;

    async fn run(&self, pool: impl Pool) -> Outcome {
        let (served, arrived) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        // Nobody is served before all have arrived: else the first ones would run their rounds through a short queue.
        let mut all = Vec::new();
        for _ in 0..Self::SIZE {
            all.push(pool.get().await);
        }
        let tasks: Vec<_> = (0..TASKS)
            .map(|_| {
                let (pool, served, arrived) = (pool.clone(), Arc::clone(&served), Arc::clone(&arrived));
                tokio::spawn(async move {
                    let mut waits = Vec::with_capacity(EACH);
                    arrived.fetch_add(1, Relaxed);
                    for _ in 0..EACH {
                        let (before, number) = (Instant::now(), served.load(Relaxed));
                        let lease = pool.get().await;
                        waits.push((before.elapsed(), served.fetch_add(1, Relaxed) - number));
                        tokio::task::yield_now().await;
                        drop(lease);
                    }
                    waits
                })
            })
            .collect();
        while arrived.load(Relaxed) < TASKS as u64 {
            tokio::task::yield_now().await;
        }
        let start = Instant::now();
        drop(all);
        let mut times = Vec::with_capacity(TASKS * EACH);
        let mut between = Vec::with_capacity(TASKS * EACH);
        for task in tasks {
            for (time, number) in task.await.expect("no panic").into_iter().skip(1) {
                times.push(time);
                between.push(number);
            }
        }
        let total = start.elapsed();
        let mean_between = between.iter().sum::<u64>() as f64 / between.len() as f64;
        Outcome {
            mean: mean(&times),
            longest: times.iter().copied().max().expect("some"),
            overtaken: between.iter().copied().max().expect("some") as f64 / mean_between,
            total,
        }
    }
}

pub fn run(report: &mut Report) {
    let runs = peers::take_turns(&Queue, RUNS);
    println!(
        "{:<24} {:>10} {:>10} {:>10} {:>10} {:>10}   ms, medians of {RUNS} runs",
        "", "mean", "longest", "ratio", "by number", "total"
    );
    let ratio = |outcome: &Outcome| millis(outcome.longest) / millis(outcome.mean);
    for (i, name) in NAMES.iter().enumerate() {
        let of = |value: &dyn Fn(&Outcome) -> f64| median(runs.iter().map(|run| value(&run[i])));
        println!(
            "{name:<24} {:>10.3} {:>10.3} {:>10.3} {:>10.3} {:>10.1}",
            of(&|outcome| millis(outcome.mean)),
            of(&|outcome| millis(outcome.longest)),
            of(&ratio),
            of(&|outcome| outcome.overtaken),
            of(&|outcome| millis(outcome.total))
        );
    }
    println!();
    report.bar(
        "queue: longest wait to the mean, in time",
        median(runs.iter().map(|run| ratio(&run[STRICT]))),
        1.2,
    );
    report.bar(
        "queue: longest wait to the mean, in acquisitions by others",
        median(runs.iter().map(|run| run[STRICT].overtaken)),
        1.2,
    );
}
