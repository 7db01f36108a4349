//! A job that waits for a lease: what it asks for, and what it does with that.

use std::{
    error::Error,
    fmt,
    future::Future,
    pin::Pin,
    sync::PoisonError,
    task::{Context as Polled, Poll},
};

use super::{
    CancelToken, Context, Ending, Job, JobPriority, RejectReason, Task, TaskHandle,
    task::{Body, Slot},
};
use crate::{
    Outcome, OwnedLease, Resource,
    node::quietly,
    sync::{Arc, Mutex},
};

/// Tells the handle why there is no lease, and drops what would have been called.
pub(super) type Tell = Box<dyn FnOnce() + Send>;

/// The wait for the lease. It holds everything that the job needs, so that it can be dropped at any moment.
type Ask = Pin<Box<dyn Future<Output = Result<Body, Tell>> + Send>>;

/// A job that needs a resource of a scheduler, and does not have it yet.
///
/// Submitted by [`Pool::submit_when_lent`](super::Pool::submit_when_lent); [`Pool::submit_with_lease`](super::Pool::submit_with_lease) makes one and
/// submits it. A shutdown hands back those that were not run ([`Shutdown::unlent`](super::Shutdown::unlent)): such a job can be submitted to another
/// pool, or awaited by whoever has it, or dropped, which ends its wait and tells its handle.
///
/// **It is a future** of a job with the lease in it, for any pool of tasks; of `None` if there is no lease, or it was cancelled, and then the job has
/// ended, its handle was told. Cancel-safe, as the wait itself is: it may be polled by one after the other.
///
/// What was handed back goes on standing in its scheduler's line, and may be lent what nobody uses: poll it, submit it or drop it soon.
///
/// ```
/// use leasehold::{Entry, Outcome, Scheduler, pool::{LeaseJob, Pool, Task}};
/// use std::{sync::Arc, time::Duration};
///
/// let keys = Arc::new(Scheduler::<Entry<&str, u32, &str>>::builder().build()?);
/// keys.insert(Entry::new("first", 1, "sk-1"))?;
/// let held = keys.acquire_owned()?;
///
/// let first = Pool::<Task>::builder().workers(1).build()?;
/// let (job, answer) = LeaseJob::new(keys.acquire_async_owned(), |key, _| {
///     (key.value.len(), Outcome::Ok { latency: Duration::ZERO })
/// });
/// first.submit_when_lent(job)?;
///
/// // The key does not come in time: the job is ours again, and goes to another pool.
/// let ended = first.shutdown(Duration::ZERO);
/// let second = Pool::<Task>::builder().workers(1).build()?;
/// for job in ended.unlent {
///     second.submit_when_lent(job)?;
/// }
/// drop(held);
/// assert_eq!(answer.wait().unwrap()?, 4);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub struct LeaseJob {
    /// None once the lease is there. Dropped first: what it holds is gone when the job's handle is told.
    ask: Option<Ask>,
    /// None when it has ended, or somebody has it.
    job: Option<Job<Task>>,
}

/// What has come of a wait.
pub(super) enum Asked {
    /// The job has its lease: [`LeaseJob::into_lent`].
    Lent,
    /// There is no lease. The job is as it was.
    Without(Tell),
    /// It was cancelled: the wait has ended, the lease that it may have come to is returned.
    Cancelled,
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

/// What is called when the lease is there.
fn with_lease<R: Resource, O: Send + 'static, E: Send + 'static>(
    lease: OwnedLease<R>,
    result: Slot<Result<O, E>>,
    body: impl FnOnce(&OwnedLease<R>, &Context<'_>) -> (O, Outcome) + Send + 'static,
) -> Body {
    let mut held = Held(Some(lease), Outcome::Cancelled);
    Box::new(move |context| {
        held.1 = Outcome::Failed;
        let lease = held.0.as_ref().expect("returned below");
        let (value, outcome) = body(lease, context);
        held.1 = outcome;
        drop(held);
        *result.lock().unwrap_or_else(PoisonError::into_inner) = Some(Ok(value));
        Ok(())
    })
}

impl LeaseJob {
    /// A job that calls `body` with what `lease` comes to, and a handle of what that returns: see
    /// [`Pool::submit_with_lease`](super::Pool::submit_with_lease). Nothing is asked before it is submitted, or polled.
    pub fn new<R, O, E>(
        lease: impl Future<Output = Result<OwnedLease<R>, E>> + Send + 'static,
        body: impl FnOnce(&OwnedLease<R>, &Context<'_>) -> (O, Outcome) + Send + 'static,
    ) -> (Self, TaskHandle<Result<O, E>>)
    where
        R: Resource,
        O: Send + 'static,
        E: Send + 'static,
    {
        let result: Slot<Result<O, E>> = Arc::new(Mutex::new(None));
        let (job, handle) = Task::unset(Arc::clone(&result));
        let ask: Ask = Box::pin(async move {
            // Moved here: they stay until the lease is there, however it is waited for.
            let (result, body) = (result, body);
            match lease.await {
                Ok(lease) => Ok(with_lease(lease, result, body)),
                Err(error) => Err(Box::new(move || {
                    *result.lock().unwrap_or_else(PoisonError::into_inner) = Some(Err(error));
                    drop(body);
                }) as Tell),
            }
        });
        (LeaseJob { ask: Some(ask), job: Some(job) }, handle)
    }

    /// One that has its lease, or that nobody has asked anything for.
    pub(super) fn lent(job: Job<Task>) -> Self {
        LeaseJob { ask: None, job: Some(job) }
    }

    fn with(mut self, change: impl FnOnce(Job<Task>) -> Job<Task>) -> Self {
        self.job = self.job.map(change);
        self
    }

    /// Sets how urgent it is, once it has its lease: among the jobs of a pool with [`Order::Priority`](super::Order::Priority). Who is lent what first is the
    /// scheduler's to say.
    pub fn priority(self, priority: JobPriority) -> Self {
        self.with(|job| job.priority(priority))
    }

    /// Lets a token cancel it, until it begins. The token is looked at whenever the wait is polled, at the latest when the lease comes, which is
    /// returned at once, as [`Outcome::Cancelled`]; and once more by the worker that would run it. It ends as [`Ending::Cancelled`], which a pool counts
    /// as [refused](RejectReason::Cancelled) as long as the job is not in its queue. While it waits for room with its lease the token wakes it, and it is polled where that is cancelled;
    /// a wait for a lease it does not wake: one that is long ends when it would have ended.
    pub fn cancel_with(self, token: CancelToken) -> Self {
        self.with(|job| job.cancel_with(token))
    }

    /// Sets what is done when it has ended, however, after the lease is returned: exactly once, where that happens. A job that has got no lease ends as
    /// [`Ending::Dropped`], which its cleanup is told; so is that of one that panicked while it waited. A panic in it stops there.
    ///
    /// ```
    /// use leasehold::{Entry, Outcome, Scheduler, pool::{CancelToken, EndingKind, JobPriority, LeaseJob, Pool, Task}};
    /// use std::sync::{Arc, mpsc};
    ///
    /// let keys = Arc::new(Scheduler::<Entry<&str, u32, ()>>::builder().build()?);
    /// keys.insert(Entry::new("first", 1, ()))?;
    /// let held = keys.acquire_owned()?;
    /// let pool = Pool::<Task>::builder().workers(1).build()?;
    ///
    /// let (token, (tell, told)) = (CancelToken::new(), mpsc::channel());
    /// let (job, answer) = LeaseJob::new(keys.acquire_async_owned(), |_, _| ((), Outcome::Cancelled));
    /// let job = job.priority(JobPriority::HIGHEST).cancel_with(token.clone());
    /// pool.submit_when_lent(job.cleanup(move |ending| tell.send(ending.kind()).unwrap()))?;
    ///
    /// token.cancel();
    /// // The lease comes, and goes back at once.
    /// drop(held);
    /// assert_eq!(told.recv()?, EndingKind::Cancelled);
    /// assert!(answer.wait().is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cleanup(self, cleanup: impl FnOnce(&Ending) + Send + 'static) -> Self {
        self.with(|mut job| {
            Task::set_cleanup(&mut job, Box::new(cleanup));
            job
        })
    }

    /// How urgent it is.
    pub fn get_priority(&self) -> JobPriority {
        self.job.as_ref().map_or(JobPriority::NORMAL, Job::get_priority)
    }

    /// Whether its token was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.job.as_ref().is_some_and(Job::is_cancelled)
    }

    /// Whether it has its lease, and waits for room: it was handed back before there was any.
    pub fn is_lent(&self) -> bool {
        self.ask.is_none()
    }

    /// One step of the wait: user code.
    pub(super) fn ask(&mut self, context: &mut Polled<'_>) -> Poll<Asked> {
        if self.is_cancelled() {
            return Poll::Ready(Asked::Cancelled);
        }
        let Some(ask) = &mut self.ask else { return Poll::Ready(Asked::Lent) };
        let asked = std::task::ready!(ask.as_mut().poll(context));
        self.ask = None;
        Poll::Ready(match asked {
            // Dropped uncalled, the body returns the lease.
            Ok(body) if self.is_cancelled() => {
                let _ = quietly(|| drop(body));
                Asked::Cancelled
            }
            Ok(body) => {
                if let Some(job) = &mut self.job {
                    Task::set(job, body);
                }
                Asked::Lent
            }
            Err(tell) => Asked::Without(tell),
        })
    }

    /// The job with its lease.
    pub(super) fn into_lent(mut self) -> Option<Job<Task>> {
        self.job.take()
    }

    /// Ends one without a lease: its handle is told, and its cleanup run. Never panics.
    pub(super) fn end_without(self, tell: Tell) {
        let _ = quietly(tell);
        self.discard();
    }

    /// Ends one that was cancelled: its wait first, its lease is returned, its cleanup is run, its handle told. Never panics.
    pub(super) fn end_cancelled(self) {
        let LeaseJob { ask, job } = self;
        let _ = quietly(|| drop(ask));
        if let Some(job) = job {
            job.end_cancelled();
        }
    }

    /// Drops it where nobody is interested in a panic.
    pub(super) fn discard(self) {
        let LeaseJob { ask, job } = self;
        let _ = quietly(|| drop(ask));
        let _ = quietly(|| drop(job));
    }
}

impl Future for LeaseJob {
    type Output = Option<Job<Task>>;

    /// # Panics
    /// If the wait does, or if it is polled after it was ready.
    fn poll(mut self: Pin<&mut Self>, context: &mut Polled<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        assert!(this.job.is_some(), "polled after it was ready");
        let asked = std::task::ready!(this.ask(context));
        let job = this.job.take();
        Poll::Ready(match asked {
            Asked::Lent => job,
            Asked::Without(tell) => {
                LeaseJob { ask: None, job }.end_without(tell);
                None
            }
            Asked::Cancelled => {
                LeaseJob { ask: this.ask.take(), job }.end_cancelled();
                None
            }
        })
    }
}

impl fmt::Debug for LeaseJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseJob")
            .field("priority", &self.get_priority().get())
            .field("is_cancelled", &self.is_cancelled())
            .field("is_lent", &self.is_lent())
            .finish_non_exhaustive()
    }
}

/// A job that waits for a lease and was not accepted, and why.
pub struct LeaseJobError {
    /// The job, as it was.
    pub job: LeaseJob,
    /// Why it was not accepted.
    pub reason: RejectReason,
}

impl LeaseJobError {
    /// The job, as it was.
    pub fn into_job(self) -> LeaseJob {
        self.job
    }
}

impl fmt::Debug for LeaseJobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseJobError").field("reason", &self.reason).finish_non_exhaustive()
    }
}

impl fmt::Display for LeaseJobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl Error for LeaseJobError {}
