//! TEMPORARY copy of `leasehold::baseline` until it lands.
use leasehold::{Resource, Timestamp};
use std::{ops::Deref, time::Duration};
pub trait Lend<R: Resource>: Send + Sync {
    type Lease<'a>: Lent<R>
    where
        Self: 'a,
        R: 'a;
    fn insert_batch(&self, resources: Vec<R>) -> Result<(), Vec<R>>;
    fn acquire(&self) -> Result<Self::Lease<'_>, Unavailable>;
    fn acquire_excluding(&self, keys: &[R::Key]) -> Result<Self::Lease<'_>, Unavailable>;
}
pub trait Lent<R: Resource>: Deref<Target = R> {
    fn finish(self, outcome: Outcome);
}
#[derive(Debug)]
pub struct Unavailable {
    pub earliest: Option<Timestamp>,
}
#[allow(dead_code)]
pub enum Outcome {
    Ok { latency: Duration },
    Failed,
    RateLimited { retry_after: Duration },
    Cancelled,
}
