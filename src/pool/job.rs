//! What is run: a payload and a function, with what belongs to it.

use std::{any::Any, error::Error, fmt, time::Duration};

use super::{
    cancel::CancelToken,
    handle::{self, Finished, JobHandle},
    queue::JobPriority,
};
use crate::{
    node::quietly,
    sync::{
        Arc, Timestamp,
        atomic::{AtomicBool, Ordering},
    },
};

/// Why a job failed, in its own words.
pub type Failure = Box<dyn Error + Send + Sync>;

/// What a job does with its payload.
pub type Run<T> = fn(&mut T, &Context<'_>) -> Result<(), Failure>;

/// What is done with a payload when its job has ended, however.
pub type Cleanup<T> = fn(&mut T, &Ending);

/// How a job ended.
pub enum Ending {
    /// Its function returned `Ok`.
    Done,
    /// Its function returned this error.
    Failed(Failure),
    /// Its function panicked, with this payload.
    Panicked(Box<dyn Any + Send>),
    /// Its token was cancelled before it began.
    Cancelled,
    /// It was dropped without having been run: with its pool, or by whoever had it.
    Dropped,
}

impl Ending {
    /// The same, without what it carries.
    pub fn kind(&self) -> EndingKind {
        match self {
            Ending::Done => EndingKind::Done,
            Ending::Failed(_) => EndingKind::Failed,
            Ending::Panicked(_) => EndingKind::Panicked,
            Ending::Cancelled => EndingKind::Cancelled,
            Ending::Dropped => EndingKind::Dropped,
        }
    }
}

impl fmt::Debug for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ending::Failed(error) => f.debug_tuple("Failed").field(error).finish(),
            _ => self.kind().fmt(f),
        }
    }
}

/// How a job ended, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndingKind {
    /// Its function returned `Ok`.
    Done,
    /// Its function returned an error.
    Failed,
    /// Its function panicked.
    Panicked,
    /// It was cancelled before it began.
    Cancelled,
    /// It was never run.
    Dropped,
}

/// What a job is told while it runs.
pub struct Context<'a> {
    pub(super) token: Option<&'a CancelToken>,
    pub(super) stopping: &'a AtomicBool,
    pub(super) worker: usize,
    pub(super) waited: Option<Duration>,
}

impl Context<'_> {
    /// Whether the job should come to an end: its token was cancelled, or its pool's shutdown has run out of time. A long job asks
    /// now and then.
    pub fn is_cancelled(&self) -> bool {
        // Relaxed: a request that publishes nothing.
        self.stopping.load(Ordering::Relaxed) || self.token.is_some_and(CancelToken::is_cancelled)
    }

    /// The number of the worker that runs it, from 0.
    pub fn worker(&self) -> usize {
        self.worker
    }

    /// How long the job has waited in the queue; none if the pool takes no times ([`Metrics::TIMED`](super::Metrics::TIMED)).
    pub fn waited(&self) -> Option<Duration> {
        self.waited
    }
}

impl fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("worker", &self.worker)
            .field("is_cancelled", &self.is_cancelled())
            .finish_non_exhaustive()
    }
}

/// A payload and what to do with it.
///
/// The function is a plain one, so that a job needs no allocation of its own. A job of another kind for each payload is an `enum`; a
/// closure is a [`Task`](super::Task).
///
/// **The cleanup runs exactly once,** whatever becomes of the job: when it has been run (done, failed or panicked), when it was
/// cancelled, and when it is dropped, by the pool or by whoever got it back; but not if the payload is taken out again
/// ([`into_payload`](Job::into_payload)). It runs where that happens.
///
/// *Panics* of the function, of the cleanup, and of the payload's `Drop` stop in the pool.
///
/// ```
/// use leasehold::pool::{EndingKind, Job, Pool};
///
/// let pool = Pool::builder().workers(1).build()?;
/// let job = Job::new(20, |number: &mut u32, _| {
///     *number += 1;
///     Ok(())
/// });
/// let (job, handle) = job.with_handle();
/// pool.try_submit(job)?;
/// let finished = handle.wait();
/// assert_eq!((finished.ending.kind(), finished.payload), (EndingKind::Done, Some(21)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub struct Job<T> {
    /// Gone when the job has ended. No larger for that: a function's address is never null.
    body: Option<Body<T>>,
}

struct Body<T> {
    payload: T,
    run: Run<T>,
    cleanup: Option<Cleanup<T>>,
    token: Option<CancelToken>,
    handle: Option<Arc<handle::Cell<T>>>,
    /// When it was accepted, if times are taken.
    since: Timestamp,
    priority: JobPriority,
}

impl<T> Body<T> {
    fn is_cancelled(&self) -> bool {
        self.token.as_ref().is_some_and(CancelToken::is_cancelled)
    }
}

/// What is told to whoever looks after failures.
pub(super) type Report<'a, T> = &'a dyn Fn(&T, &Ending);

impl<T> Job<T> {
    /// A job that does `run` with `payload`.
    pub const fn new(payload: T, run: Run<T>) -> Self {
        Job {
            body: Some(Body {
                payload,
                run,
                cleanup: None,
                token: None,
                handle: None,
                since: Timestamp::ZERO,
                priority: JobPriority::NORMAL,
            }),
        }
    }

    fn body(&self) -> &Body<T> {
        self.body.as_ref().expect("a job that somebody has did not end")
    }

    fn with(mut self, change: impl FnOnce(&mut Body<T>)) -> Self {
        if let Some(body) = &mut self.body {
            change(body);
        }
        self
    }

    /// Sets how urgent it is; only a pool with [`Order::Priority`](super::Order::Priority) asks.
    pub fn priority(self, priority: JobPriority) -> Self {
        self.with(|body| body.priority = priority)
    }

    /// Sets what is done when it has ended, however, in place of what was set before, be it by [`LeaseJob::cleanup`](super::LeaseJob::cleanup).
    pub fn cleanup(self, cleanup: Cleanup<T>) -> Self {
        self.with(|body| body.cleanup = Some(cleanup))
    }

    /// Lets a token cancel it, until it begins: while it waits for room it comes back, and afterwards it is not run.
    pub fn cancel_with(self, token: CancelToken) -> Self {
        self.with(|body| body.token = Some(token))
    }

    /// The job, and a handle by which its end can be awaited. One allocation.
    ///
    /// A job has one handle: one that was made before is told that the job was dropped.
    pub fn with_handle(self) -> (Self, JobHandle<T>) {
        self.awaited(true)
    }

    /// The same, of a job whose payload is dropped when it has ended, before the handle is told, unless the handle `returns` it.
    pub(super) fn awaited(self, returns: bool) -> (Self, JobHandle<T>) {
        let (cell, handle) = handle::pair(returns);
        let mut replaced = None;
        let job = self.with(|body| replaced = body.handle.replace(cell));
        if let Some(replaced) = replaced {
            replaced.finish(Finished { ending: Ending::Dropped, payload: None });
        }
        (job, handle)
    }

    /// How urgent it is.
    pub fn get_priority(&self) -> JobPriority {
        self.body().priority
    }

    /// What it is about.
    pub fn payload(&self) -> &T {
        &self.body().payload
    }

    /// Whether its token was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.body().is_cancelled()
    }

    /// Its token, if it has one.
    pub(super) fn token(&self) -> Option<&CancelToken> {
        self.body().token.as_ref()
    }

    /// Takes the payload out. The job is over: its cleanup does not run, and a handle is told that it was dropped.
    pub fn into_payload(mut self) -> T {
        let body = self.body.take().expect("a job that somebody has did not end");
        if let Some(cell) = body.handle {
            cell.finish(Finished { ending: Ending::Dropped, payload: None });
        }
        body.payload
    }

    /// The payload, of a job that has not ended.
    pub(super) fn payload_mut(&mut self) -> Option<&mut T> {
        self.body.as_mut().map(|body| &mut body.payload)
    }

    /// When it was accepted, if times are taken.
    pub(super) fn since(&self) -> Timestamp {
        self.body().since
    }

    /// Sets when it was accepted.
    pub(super) fn set_since(&mut self, since: Timestamp) {
        if let Some(body) = &mut self.body {
            body.since = since;
        }
    }

    /// Runs it, or not if it was cancelled, and ends it. Never panics. `count` is called when everything about it has been done but
    /// dropping its payload or telling its handle.
    #[inline]
    pub(super) fn execute(
        &mut self,
        stopping: &AtomicBool,
        worker: usize,
        waited: Option<Duration>,
        report: Report<'_, T>,
        count: impl FnOnce(EndingKind),
    ) {
        let Some(body) = &mut self.body else { return };
        let ending = if body.is_cancelled() {
            Ending::Cancelled
        } else {
            let context = Context { token: body.token.as_ref(), stopping, worker, waited };
            let (run, payload) = (body.run, &mut body.payload);
            let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(payload, &context)));
            match ran {
                // In place: nothing about it but its payload is left.
                Ok(Ok(())) if body.cleanup.is_none() && body.handle.is_none() => {
                    count(EndingKind::Done);
                    if std::mem::needs_drop::<T>() {
                        let _ = quietly(|| self.body = None);
                    } else {
                        self.body = None;
                    }
                    return;
                }
                Ok(Ok(())) => Ending::Done,
                Ok(Err(failure)) => Ending::Failed(failure),
                Err(panic) => Ending::Panicked(panic),
            }
        };
        if let Some(body) = self.body.take() {
            body.end(ending, Some(report), count);
        }
    }
}

impl<T> Body<T> {
    fn end(mut self, ending: Ending, report: Option<Report<'_, T>>, count: impl FnOnce(EndingKind)) {
        if matches!(ending, Ending::Failed(_) | Ending::Panicked(_))
            && let Some(report) = report
        {
            let _ = quietly(|| report(&self.payload, &ending));
        }
        if let Some(cleanup) = self.cleanup {
            let payload = &mut self.payload;
            let cleaned =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| cleanup(payload, &ending)));
            if let Err(panic) = cleaned {
                let ending = Ending::Panicked(panic);
                if let Some(report) = report {
                    let _ = quietly(|| report(&self.payload, &ending));
                }
                let _ = quietly(|| drop(ending));
            }
        }
        count(ending.kind());
        let (handle, payload) = (self.handle, self.payload);
        let payload = if handle.as_ref().is_some_and(|cell| cell.returns) {
            Some(payload)
        } else {
            if std::mem::needs_drop::<T>() {
                let _ = quietly(|| drop(payload));
            }
            None
        };
        match handle {
            Some(cell) => cell.finish(Finished { ending, payload }),
            None if matches!(ending, Ending::Done) => {}
            None => {
                let _ = quietly(|| drop(ending));
            }
        }
    }
}

impl<T> Job<T> {
    /// Ends one that was cancelled before it was in a queue: its cleanup is run, its handle told. Never panics.
    pub(super) fn end_cancelled(mut self) {
        if let Some(body) = self.body.take() {
            body.end(Ending::Cancelled, None, |_| ());
        }
    }

    #[cold]
    fn end_unrun(&mut self) {
        if let Some(body) = self.body.take() {
            body.end(Ending::Dropped, None, |_| ());
        }
    }
}

/// A job that was never run ends here: see [`Ending::Dropped`].
impl<T> Drop for Job<T> {
    #[inline]
    fn drop(&mut self) {
        if self.body.is_some() {
            self.end_unrun();
        }
    }
}

impl<T> fmt::Debug for Job<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job")
            .field("priority", &self.get_priority().get())
            .field("is_cancelled", &self.is_cancelled())
            .finish_non_exhaustive()
    }
}
