//! Jobs that need a resource of a scheduler.

use super::{Context, Metrics, Pool, SubmitError, Task, TaskHandle};
use crate::{Outcome, OwnedLease, Resource};

/// Returns the lease as failed if the job panics.
struct Held<R: Resource>(Option<OwnedLease<R>>);

impl<R: Resource> Drop for Held<R> {
    fn drop(&mut self) {
        if let Some(lease) = self.0.take() {
            lease.finish(Outcome::Failed);
        }
    }
}

impl<M: Metrics> Pool<Task, M> {
    /// Submits a job that runs with a lease: a worker calls `acquire`, then `body` with what was lent, and returns it with the outcome that
    /// `body` tells. If `body` panics it is returned as [`Outcome::Failed`].
    ///
    /// `acquire` says how, and for how long, the lease is waited for; **its worker waits with it**, so there should be about as many workers as
    /// leases. If it fails the job ends with its error, and `body` is not called.
    ///
    /// *Blocking*, as [`submit`](Pool::submit), if the queue is full.
    ///
    /// # Errors
    /// As `submit`.
    ///
    /// ```
    /// use leasehold::{Entry, Outcome, Scheduler, pool::{Pool, Task}};
    /// use std::{sync::Arc, time::Duration};
    ///
    /// let keys = Arc::new(Scheduler::<Entry<&str, u32, &str>>::builder().build()?);
    /// keys.insert(Entry::new("first", 1, "sk-1"))?;
    ///
    /// let pool = Pool::<Task>::builder().workers(2).build()?;
    /// let here = Arc::clone(&keys);
    /// let answer = pool.submit_with_lease(
    ///     move || here.request().timeout(Duration::from_secs(1)).wait_owned(),
    ///     |key, _| (key.value.len(), Outcome::Ok { latency: Duration::ZERO }),
    /// )?;
    /// assert_eq!(answer.wait().unwrap()?, 4);
    /// assert_eq!(keys.stats().in_flight, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn submit_with_lease<R, O, E>(
        &self,
        acquire: impl FnOnce() -> Result<OwnedLease<R>, E> + Send + 'static,
        body: impl FnOnce(&OwnedLease<R>, &Context<'_>) -> (O, Outcome) + Send + 'static,
    ) -> Result<TaskHandle<Result<O, E>>, SubmitError<Task>>
    where
        R: Resource,
        O: Send + 'static,
        E: Send + 'static,
    {
        self.spawn(move |context| {
            let mut held = Held(Some(acquire()?));
            let lease = held.0.as_ref().expect("just put there");
            let (value, outcome) = body(lease, context);
            if let Some(lease) = held.0.take() {
                lease.finish(outcome);
            }
            Ok(value)
        })
    }
}
