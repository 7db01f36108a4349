//! Gets and drops one thing of many, and nothing else: nobody waits, or, with `handed-` before the subject, nearly everybody does: 40 tasks
//! over 4, each of which lets the others run while it holds its own. So that `callgrind` counts the instructions of a pair: the difference
//! of two runs, divided by the difference of their numbers of pairs.
//!
//! ```sh
//! valgrind --tool=callgrind target/release/count async 100000
//! ```

#[path = "waiting/peers.rs"]
#[allow(dead_code)]
mod peers;

use std::{future::Future, hint::black_box, sync::Arc};

use leasehold::Fairness;
use tokio::{runtime::Builder, sync::Semaphore};

const SIZE: usize = 50;

async fn repeat<F: Future>(pairs: u32, mut pair: impl FnMut() -> F) {
    for _ in 0..pairs {
        drop(black_box(pair().await));
    }
}

/// Tasks that take turns.
async fn handed(pool: impl peers::Pool, pairs: u32) {
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let pool = pool.clone();
            tokio::spawn(async move {
                for _ in 0..pairs / TASKS {
                    let lease = pool.get().await;
                    tokio::task::yield_now().await;
                    drop(black_box(lease));
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic");
    }
}

const TASKS: u32 = 40;
const FEW: usize = 4;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let subject = arguments.next().expect("a subject");
    let pairs: u32 = arguments.next().and_then(|pairs| pairs.parse().ok()).expect("a number of pairs");
    let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async {
        let fleet = peers::fleet(SIZE as u32, Fairness::Strict);
        match &*subject {
            "acquire" => repeat(pairs, async || fleet.acquire().expect("one is free")).await,
            "async" => repeat(pairs, || fleet.acquire_async()).await,
            "owned" => repeat(pairs, async || fleet.acquire_owned().expect("one is free")).await,
            "async_owned" => repeat(pairs, || fleet.acquire_async_owned()).await,
            "deadpool" => {
                let pool = peers::deadpool(SIZE).await;
                repeat(pairs, || pool.get()).await;
            }
            "bb8" => {
                let pool = peers::bb8(SIZE).await;
                repeat(pairs, || pool.get()).await;
            }
            "semaphore" => {
                let semaphore = Arc::new(Semaphore::new(SIZE));
                repeat(pairs, || semaphore.acquire()).await;
            }
            "handed-strict" => handed(peers::leasehold(FEW, Fairness::Strict), pairs).await,
            "handed-throughput" => handed(peers::leasehold(FEW, Fairness::Throughput), pairs).await,
            "handed-deadpool" => handed(peers::deadpool(FEW).await, pairs).await,
            "handed-bb8" => handed(peers::bb8(FEW).await, pairs).await,
            _ => panic!("no such subject: {subject}"),
        }
    });
}
