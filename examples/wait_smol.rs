//! Tasks on smol's executor, which has no timer: the scheduler's own serves.

use std::{sync::Arc, time::Duration};

use async_executor::Executor;
use futures_lite::future::{block_on, yield_now};
use leasehold::{Entry, Scheduler, ThreadTimer, WaitError};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let workers = Scheduler::<Entry<u32, u32, ()>>::builder().timer(ThreadTimer::new()?).build()?;
    for key in 0..2 {
        workers.insert(Entry::new(key, 0, ()))?;
    }
    let workers = Arc::new(workers);
    let executor = Executor::new();
    block_on(executor.run(async {
        let tasks: Vec<_> = (0..10)
            .map(|_| {
                let workers = Arc::clone(&workers);
                executor.spawn(async move {
                    let _lease = workers.acquire_async().await?;
                    yield_now().await;
                    Ok::<_, WaitError>(())
                })
            })
            .collect();
        for task in tasks {
            task.await?;
        }
        // A deadline of the request itself needs no timer of the executor's.
        let all = workers.acquire_many(2).expect("all are free");
        let late = workers.request().timeout(Duration::from_millis(5)).await;
        assert!(matches!(late, Err(WaitError::TimedOut { .. })));
        drop(all);
        Ok::<_, WaitError>(())
    }))?;
    let stats = workers.stats();
    assert_eq!((stats.in_flight, stats.waits.timed_out), (0, 1));
    println!("ten tasks through two workers, {} of them waited", stats.waits.handed_off);
    Ok(())
}
