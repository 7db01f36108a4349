//! 10,000 tasks over 4 resources, 20 rounds each; each resource is held for 1 ms.
//!
//! All subjects run at the same time, on the same two threads: they sleep most of it, and the longest waits of seconds are not
//! those of a processor that was taken away for a while.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use leasehold::Fairness;
use tokio::runtime::Builder;

use crate::{
    peers::{self, NAMES, Pool, STRICT},
    report::{Report, mean, millis},
};

const TASKS: usize = 10_000;
const SIZE: usize = 4;
const EACH: usize = 20;
const HOLD: Duration = Duration::from_millis(1);

/// Of all waits but each task's first.
struct Outcome {
    mean: Duration,
    longest: Duration,
    /// The longest to the mean, in acquisitions by others in between.
    by_number: f64,
    total: Duration,
}

async fn queue(pool: impl Pool) -> Outcome {
    let (served, arrived) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    // Nobody is served before all have arrived: else the first ones would run their rounds through a short queue.
    let mut all = Vec::new();
    for _ in 0..SIZE {
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
                    tokio::time::sleep(HOLD).await;
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
    let mut numbers = Vec::with_capacity(TASKS * EACH);
    for task in tasks {
        for (time, number) in task.await.expect("no panic").into_iter().skip(1) {
            times.push(time);
            numbers.push(number);
        }
    }
    let mean_number = numbers.iter().sum::<u64>() as f64 / numbers.len() as f64;
    Outcome {
        mean: mean(&times),
        longest: times.iter().copied().max().expect("some"),
        by_number: numbers.iter().copied().max().expect("some") as f64 / mean_number,
        total: start.elapsed(),
    }
}

pub fn run(report: &mut Report) {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_time().build().expect("a runtime");
    let outcomes: Vec<Outcome> = runtime.block_on(async {
        let (deadpool, bb8) = (peers::deadpool(SIZE).await, peers::bb8(SIZE).await);
        let queues = [
            tokio::spawn(queue(peers::leasehold(SIZE, Fairness::Strict))),
            tokio::spawn(queue(peers::leasehold(SIZE, Fairness::Throughput))),
            tokio::spawn(queue(deadpool)),
            tokio::spawn(queue(bb8)),
        ];
        let mut outcomes = Vec::new();
        for queue in queues {
            outcomes.push(queue.await.expect("no panic"));
        }
        outcomes
    });
    println!(
        "{:<24} {:>10} {:>10} {:>10} {:>10} {:>10}   ms",
        "", "mean", "longest", "ratio", "by number", "total"
    );
    let ratio = |outcome: &Outcome| millis(outcome.longest) / millis(outcome.mean);
    for (outcome, name) in outcomes.iter().zip(NAMES) {
        println!(
            "{name:<24} {:>10.3} {:>10.3} {:>10.3} {:>10.3} {:>10.1}",
            millis(outcome.mean),
            millis(outcome.longest),
            ratio(outcome),
            outcome.by_number,
            millis(outcome.total)
        );
    }
    println!();
    report.bar("queue: longest wait to the mean", ratio(&outcomes[STRICT]), 1.2);
    report.bar("queue: the same in acquisitions by others", outcomes[STRICT].by_number, 1.2);
}
