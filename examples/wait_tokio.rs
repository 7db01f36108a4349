//! Tasks on tokio: a timeout around a wait, a wait beside something else, and a resource that cools while somebody waits.

use std::{sync::Arc, time::Duration};

use leasehold::{Entry, Outcome, Scheduler, TokioTimer};
use tokio::{
    sync::oneshot,
    time::{sleep, timeout},
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let keys = Scheduler::<Entry<&str, u32, &str>>::builder().timer(TokioTimer::current()).build()?;
    keys.insert(Entry::new("gold", 1, "sk-1"))?;
    let keys = Arc::new(keys);
    let lease = keys.acquire_owned()?;

    // Given up at any moment, a wait leaves nothing behind.
    assert!(timeout(Duration::from_millis(5), keys.acquire_async()).await.is_err());

    // Whatever comes first.
    let (sender, shutdown) = oneshot::channel();
    tokio::spawn(async move {
        sleep(Duration::from_millis(5)).await;
        sender.send(())
    });
    tokio::select! {
        lease = keys.acquire_async() => panic!("{lease:?} is not free"),
        signal = shutdown => signal?,
    }

    // It is returned, and cools; the one who waits is served when it is warm, by the timer.
    let waits = tokio::spawn(keys.acquire_async_owned());
    lease.finish(Outcome::RateLimited { retry_after: Duration::from_millis(20) });
    let lease = waits.await??;
    println!("{} after a rest", lease.value);

    drop(lease);
    let waits = keys.stats().waits;
    assert_eq!(waits.cancelled, 2);
    assert_eq!(keys.stats().in_flight, 0);
    Ok(())
}
