//! A tower service with an API key for each call, held until the response is dropped; a rate limit puts the key to rest.

use std::{convert::Infallible, sync::Arc, time::Duration};

use leasehold::{
    Entry, Outcome, Scheduler,
    tower::{ByResult, Classify, LeaseLayer, Leased},
};
use tower::{BoxError, Service, ServiceBuilder, ServiceExt, service_fn};

type Key = Entry<&'static str, u32, &'static str>;

/// Stands for the provider: one key is used up.
async fn provider(Leased { request, lease }: Leased<&str, Key>) -> Result<(u16, String), Infallible> {
    let status = if lease.value == "sk-1" { 429 } else { 200 };
    Ok((status, format!("{request} with {}", lease.value)))
}

fn by_status(result: Result<&(u16, String), &Infallible>, latency: Duration) -> Outcome {
    match result {
        Ok((429, _)) => Outcome::RateLimited { retry_after: Duration::from_secs(30) },
        other => ByResult.classify(other, latency),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let keys = Arc::new(Scheduler::<Key>::builder().shards(1).build()?);
    keys.insert(Entry::new("gold", 1, "sk-1"))?;
    keys.insert(Entry::new("silver", 2, "sk-2"))?;
    let mut service =
        ServiceBuilder::new().layer(LeaseLayer::new(&keys).classify(by_status)).service(service_fn(provider));

    let refused = service.ready().await?.call("hello").await?;
    assert_eq!(*refused, (429, "hello with sk-1".to_owned()));
    drop(refused);
    assert_eq!(keys.stats().reasons.cooling, 1);

    let answered = service.ready().await?.call("hello").await?;
    println!("{}: {}", answered.0, answered.1);
    // All keys are in use or at rest: the next one waits until this response is gone.
    let next = service.ready();
    assert!(futures_lite::future::poll_once(next).await.is_none());
    drop(answered);
    assert_eq!(service.ready().await?.call("again").await?.0, 200);
    Ok(())
}
