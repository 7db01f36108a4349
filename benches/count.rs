//! Gets and drops one thing of many, nobody waits, and nothing else, so that `callgrind` counts the instructions of a pair: the difference
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
            _ => panic!("acquire, async, owned, async_owned, deadpool, bb8 or semaphore"),
        }
    });
}
