//! Jobs that need a resource of a scheduler: they wait for it without a worker.
//!
//! ```text
//!   submit_with_lease                 whoever lends                  whoever makes room        a worker
//!     L1  on the list of errands        L3  wakes: the errand is       L4  wakes: it is in       L5  runs it, returns
//!     L2  asks for the lease                polled, and submitted          the queue                 the lease
//! ```
//!
//! An *errand* is a future that asks for the lease and then for room in the queue. It has no executor: whoever wakes it polls it, there and
//! then. That is a few moves, in which nothing of the job runs; a poll that is woken in the middle of another one follows it (`async-task`).
//! When the pool closes, what is on the list is dropped: the job is told so, and what it had asked for is given back.

use std::{collections::HashMap, future::Future, sync::PoisonError};

use async_task::{Runnable, Task as Errand};

use super::{Context, Metrics, Pool, RejectReason, SubmitFuture, Task, TaskHandle, core::Core};
use crate::{
    Outcome, OwnedLease, Resource,
    node::quietly,
    sync::{Arc, Mutex, MutexGuard},
};

/// Those that wait for a lease, or with one for room.
pub struct Errands(Mutex<Inner>);

struct Inner {
    open: bool,
    next: u64,
    running: HashMap<u64, Errand<()>>,
}

impl Default for Errands {
    fn default() -> Self {
        Errands(Mutex::new(Inner { open: true, next: 0, running: HashMap::new() }))
    }
}

impl Errands {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        // No code that can panic runs under it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number, if the pool is open.
    fn number(&self) -> Option<u64> {
        let mut inner = self.inner();
        inner.next += 1;
        inner.open.then_some(inner.next)
    }

    /// Puts one onto the list; it comes back if the pool has been closed.
    fn begin(&self, number: u64, errand: Errand<()>) -> Result<(), Errand<()>> {
        let mut inner = self.inner();
        if !inner.open {
            return Err(errand);
        }
        inner.running.insert(number, errand);
        Ok(())
    }

    fn end(&self, number: u64) {
        let errand = self.inner().running.remove(&number);
        if let Some(errand) = errand {
            // It is over, or is being dropped.
            errand.detach();
        }
    }

    /// Drops all there are, and lets none begin any more.
    pub fn close(&self) {
        let running = {
            let mut inner = self.inner();
            inner.open = false;
            std::mem::take(&mut inner.running)
        };
        for errand in running.into_values() {
            // What they hold is user code.
            let _ = quietly(|| drop(errand));
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.inner().running.len()
    }
}

/// Takes an errand off the list, whatever becomes of it.
struct Listed<M: Metrics>(Arc<Core<Task, M>>, u64);

impl<M: Metrics> Drop for Listed<M> {
    fn drop(&mut self) {
        self.0.errands.end(self.1);
    }
}

/// Returns the lease as failed if the job panics, and as cancelled if it was never run.
struct Held<R: Resource>(Option<OwnedLease<R>>, Outcome);

impl<R: Resource> Drop for Held<R> {
    fn drop(&mut self) {
        if let Some(lease) = self.0.take() {
            lease.finish(self.1);
        }
    }
}

/// Polls an errand, here and now.
fn poll(runnable: Runnable) {
    let _ = quietly(|| runnable.run());
}

impl<M: Metrics> Pool<Task, M> {
    /// Submits a job as soon as `lease` is there: a worker calls `body` with what was lent, and returns it with the outcome that `body`
    /// tells. If `body` panics it is returned as [`Outcome::Failed`].
    ///
    /// `lease` says how, and for how long, the lease is waited for: [`Scheduler::acquire_async_owned`](crate::Scheduler::acquire_async_owned)
    /// or another future. **No worker waits with it:** it is polled here, and then by whoever wakes it, so its `poll` should be short, as
    /// the scheduler's are. With the lease the job waits for room in the queue, if it is full, and then for a worker. How many wait for
    /// leases is the scheduler's to limit, not this pool's capacity. If there is no lease, the job ends with that error, and `body` is not called.
    ///
    /// A job that has no place in the queue yet when the pool closes is dropped: its handle is told so, its wait is given up, its lease is
    /// returned as [`Outcome::Cancelled`]. A shutdown neither waits for it nor hands it back.
    ///
    /// *Blocking*, by a mutex that is held for a few moves.
    ///
    /// # Errors
    /// [`RejectReason::Closed`], if the pool takes no more jobs.
    ///
    /// ```
    /// use leasehold::{Entry, Outcome, Scheduler, pool::{Pool, Task}};
    /// use std::{sync::Arc, time::Duration};
    ///
    /// let keys = Arc::new(Scheduler::<Entry<&str, u32, &str>>::builder().build()?);
    /// keys.insert(Entry::new("first", 1, "sk-1"))?;
    ///
    /// // Two workers, and any number of jobs that wait for the one key.
    /// let pool = Pool::<Task>::builder().workers(2).build()?;
    /// let answers: Vec<_> = (0..10)
    ///     .map(|_| {
    ///         pool.submit_with_lease(keys.acquire_async_owned(), |key, _| {
    ///             (key.value.len(), Outcome::Ok { latency: Duration::ZERO })
    ///         })
    ///     })
    ///     .collect::<Result<_, _>>()?;
    /// for answer in answers {
    ///     assert_eq!(answer.wait().unwrap()?, 4);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn submit_with_lease<R, O, E>(
        &self,
        lease: impl Future<Output = Result<OwnedLease<R>, E>> + Send + 'static,
        body: impl FnOnce(&OwnedLease<R>, &Context<'_>) -> (O, Outcome) + Send + 'static,
    ) -> Result<TaskHandle<Result<O, E>>, RejectReason>
    where
        R: Resource,
        O: Send + 'static,
        E: Send + 'static,
    {
        let core = Arc::clone(&self.core);
        let closed = |core: &Core<Task, M>| {
            core.reject(RejectReason::Closed);
            RejectReason::Closed
        };
        let Some(number) = core.errands.number() else { return Err(closed(&core)) };
        let (mut job, handle, result) = Task::unset();
        let (here, listed) = (Arc::clone(&core), Listed(Arc::clone(&core), number));
        // Everything is in it before it is polled, so that it can be dropped at any moment.
        let errand = async move {
            let _listed = listed;
            let lease = match lease.await {
                Ok(lease) => lease,
                Err(error) => {
                    *result.lock().unwrap_or_else(PoisonError::into_inner) = Some(Err(error));
                    return;
                }
            };
            let mut held = Held(Some(lease), Outcome::Cancelled);
            Task::set(&mut job, move |context| {
                held.1 = Outcome::Failed;
                let lease = held.0.as_ref().expect("returned below");
                let (value, outcome) = body(lease, context);
                held.1 = outcome;
                drop(held);
                *result.lock().unwrap_or_else(PoisonError::into_inner) = Some(Ok(value));
                Ok(())
            });
            // Who is refused is told by the job's drop.
            drop(SubmitFuture::new(&here, job).await);
        };
        let (runnable, errand) = async_task::spawn(errand, poll);
        if let Err(errand) = core.errands.begin(number, errand) {
            drop(errand);
            let _ = quietly(|| drop(runnable));
            return Err(closed(&core));
        }
        poll(runnable);
        Ok(handle)
    }
}
