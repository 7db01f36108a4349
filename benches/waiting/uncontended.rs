//! One task, 50 resources, nobody waits.

use std::{
    future::Future,
    hint::black_box,
    sync::Arc,
    time::{Duration, Instant},
};

use leasehold::Fairness;
use tokio::{
    runtime::{Builder, Runtime},
    sync::Semaphore,
};

use crate::{
    peers,
    report::{Report, median},
};

const ROUNDS: usize = 61;
const PAIRS: u32 = 10_000;
const SIZE: usize = 50;

async fn timed<F: Future>(mut pair: impl FnMut() -> F) -> Duration {
    let start = Instant::now();
    for _ in 0..PAIRS {
        drop(black_box(pair().await));
    }
    start.elapsed()
}

/// Get and drop, once for each subject.
async fn round(subjects: &Subjects, turn: usize) -> [f64; NAMES.len()] {
    let mut nanos = [0.0; NAMES.len()];
    for i in (0..NAMES.len()).map(|i| (i + turn) % NAMES.len()) {
        let time = match i {
            PAIR => timed(async || subjects.fleet.acquire().expect("one is free")).await,
            ASYNC => timed(|| subjects.fleet.acquire_async()).await,
            OWNED_PAIR => timed(async || subjects.fleet.acquire_owned().expect("one is free")).await,
            OWNED => timed(|| subjects.fleet.acquire_async_owned()).await,
            DEADPOOL => timed(|| subjects.deadpool.get()).await,
            BB8 => timed(|| subjects.bb8.get()).await,
            _ => timed(|| subjects.semaphore.acquire()).await,
        };
        nanos[i] = time.as_nanos() as f64 / f64::from(PAIRS);
    }
    nanos
}

struct Subjects {
    fleet: peers::Fleet,
    deadpool: peers::Deadpool,
    bb8: peers::Bb8,
    semaphore: Arc<Semaphore>,
}

const PAIR: usize = 0;
const ASYNC: usize = 1;
const OWNED_PAIR: usize = 2;
const OWNED: usize = 3;
const DEADPOOL: usize = 4;
const BB8: usize = 5;
const NAMES: [&str; 7] = [
    "leasehold acquire",
    "leasehold acquire_async",
    "leasehold acquire_owned",
    "leasehold acquire_async_owned",
    "deadpool get",
    "bb8 get",
    "tokio Semaphore acquire",
];

pub fn run(report: &mut Report) {
    let runtime: Runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
    let rounds: Vec<_> = runtime.block_on(async {
        let subjects = Subjects {
            fleet: peers::fleet(SIZE as u32, Fairness::Strict),
            deadpool: peers::deadpool(SIZE).await,
            bb8: peers::bb8(SIZE).await,
            semaphore: Arc::new(Semaphore::new(SIZE)),
        };
        let _warm = round(&subjects, 0).await;
        let mut rounds = Vec::new();
        for turn in 0..ROUNDS {
            rounds.push(round(&subjects, turn).await);
        }
        rounds
    });
    for (i, name) in NAMES.iter().enumerate() {
        println!("{name:<32} {:>8.1} ns", median(rounds.iter().map(|round| round[i])));
    }
    println!();
    let ratio = |a: usize, b: usize| median(rounds.iter().map(|round| round[a] / round[b]));
    report.bar("acquire_async to the non-waiting pair", ratio(ASYNC, PAIR), 1.5);
    report.bar("acquire_async to deadpool", ratio(ASYNC, DEADPOOL), 0.35);
}
