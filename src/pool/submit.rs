//! How jobs come in.

use std::{
    collections::VecDeque,
    error::Error,
    fmt,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use super::{
    Metrics, Pool,
    core::{Core, Waiting},
    job::Job,
    queue::{JobQueue, Refusal},
    room::Waiter,
};
use crate::sync::{Arc, Spin};

/// How long somebody waits for room at most where the barrier gives no order, until it looks again.
const UNORDERED: Duration = Duration::from_millis(1);

/// How often a submitter looks for room before it waits for it.
const LOOKS: u32 = if cfg!(any(loom, shuttle)) { 0 } else { Spin::YIELD_AFTER };

/// Why a job was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RejectReason {
    /// The queue is full.
    Full,
    /// The pool takes no more jobs.
    Closed,
    /// The job was cancelled before.
    Cancelled,
    /// There was no room in time.
    TimedOut,
}

impl RejectReason {
    pub(super) const COUNT: usize = 4;
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RejectReason::Full => "the pool's queue is full",
            RejectReason::Closed => "the pool takes no more jobs",
            RejectReason::Cancelled => "the job was cancelled before it was submitted",
            RejectReason::TimedOut => "the pool's queue had no room in time",
        })
    }
}

impl Error for RejectReason {}

impl From<Refusal> for RejectReason {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Full => RejectReason::Full,
            Refusal::Closed => RejectReason::Closed,
        }
    }
}

/// A job that was not accepted, and why.
pub struct SubmitError<T> {
    /// The job, as it was.
    pub job: Job<T>,
    /// Why it was not accepted.
    pub reason: RejectReason,
}

impl<T> SubmitError<T> {
    /// The job, as it was.
    pub fn into_job(self) -> Job<T> {
        self.job
    }
}

impl<T> fmt::Debug for SubmitError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubmitError").field("reason", &self.reason).finish_non_exhaustive()
    }
}

impl<T> fmt::Display for SubmitError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl<T> Error for SubmitError<T> {}

impl<T: Send + 'static, M: Metrics> Core<T, M> {
    /// Accepts a job if there is room; counts nothing.
    #[inline]
    fn accept(&self, job: Job<T>) -> Result<(), SubmitError<T>> {
        if job.is_cancelled() {
            return Err(SubmitError { job, reason: RejectReason::Cancelled });
        }
        match self.push(job) {
            Ok(()) => {
                self.arrived();
                self.tell(|metrics| metrics.accepted(1));
                Ok(())
            }
            Err(refused) => Err(SubmitError { job: refused.item, reason: refused.reason.into() }),
        }
    }

    /// Counts a refusal.
    #[cold]
    fn refuse<O>(&self, refused: SubmitError<T>) -> Result<O, SubmitError<T>> {
        self.reject(refused.reason);
        Err(refused)
    }

    /// W1, and what follows if there is no room, or if the job is refused.
    #[inline]
    fn submit(&self, job: Job<T>, limit: Option<Duration>) -> Result<(), SubmitError<T>> {
        match self.accept(job) {
            Ok(()) => Ok(()),
            Err(SubmitError { job, reason: RejectReason::Full }) => {
                self.accept_waiting(job, limit).or_else(|refused| self.refuse(refused))
            }
            Err(refused) => self.refuse(refused),
        }
    }

    /// W1 to W5 of `room`, for a thread.
    #[cold]
    fn accept_waiting(&self, mut job: Job<T>, limit: Option<Duration>) -> Result<(), SubmitError<T>> {
        let until = limit.map(|limit| self.clock.now().saturating_add(limit));
        // Workers that are at work make room within microseconds.
        let mut spin = Spin::new();
        for _ in 0..LOOKS {
            spin.once();
            job = match self.accept(job) {
                Err(SubmitError { job, reason: RejectReason::Full }) => job,
                other => return other,
            };
        }
        loop {
            let (waiter, ordered) = self.room.wait(None);
            job = match self.accept(job) {
                Err(SubmitError { job, reason: RejectReason::Full }) => job,
                other => {
                    self.room.leave(&waiter, other.is_ok());
                    return other;
                }
            };
            let left = until.map(|until| until.saturating_since(self.clock.now()));
            if left.is_some_and(|left| left.is_zero()) {
                self.room.leave(&waiter, false);
                return Err(SubmitError { job, reason: RejectReason::TimedOut });
            }
            let nap = if ordered { left } else { Some(left.unwrap_or(UNORDERED).min(UNORDERED)) };
            waiter.sleep(nap);
            job = match self.accept(job) {
                Err(SubmitError { job, reason: RejectReason::Full }) => job,
                other => {
                    self.room.leave(&waiter, other.is_ok());
                    return other;
                }
            };
            // Rung, and somebody else was faster; or not rung at all.
            self.room.leave(&waiter, true);
        }
    }
}

impl<T: Send + 'static, M: Metrics> Pool<T, M> {
    /// Submits a job if there is room.
    ///
    /// *Progress:* as the queue's push, lock-free with [`Order::Fifo`](super::Order::Fifo); if all workers sleep, one is woken.
    ///
    /// # Errors
    /// The job, if the queue is full, the pool is closed, or the job was cancelled.
    ///
    /// ```
    /// use leasehold::pool::{Job, Pool, RejectReason};
    ///
    /// let pool = Pool::builder().workers(1).capacity(1).build()?;
    /// # let (started, begun) = std::sync::mpsc::channel();
    /// # let (go, gone) = std::sync::mpsc::channel::<()>();
    /// # let blocker = Job::new((started, gone), |(started, gone), _| { started.send(())?; let _ = gone.recv(); Ok(()) });
    /// # pool.try_submit(blocker)?;
    /// # begun.recv()?;
    /// // While the only worker is busy, one job waits, and no more.
    /// # let idle = || { let (a, _) = std::sync::mpsc::channel(); let (_, b) = std::sync::mpsc::channel(); Job::new((a, b), |_, _| Ok(())) };
    /// pool.try_submit(idle())?;
    /// let refused = pool.try_submit(idle()).unwrap_err();
    /// assert_eq!(refused.reason, RejectReason::Full);
    /// let job_is_back = refused.into_job();
    /// # drop((job_is_back, go));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn try_submit(&self, job: Job<T>) -> Result<(), SubmitError<T>> {
        self.core.accept(job).or_else(|refused| self.core.refuse(refused))
    }

    /// Submits a job, waiting for room if there is none.
    ///
    /// *Blocking*, on the workers. Those who wait are let in in order, but a newcomer may be faster. Each wait allocates once.
    ///
    /// A job that submits to its own pool in this way holds a worker while it waits; if all workers do, it is for ever. Such a job takes
    /// [`try_submit`](Self::try_submit) or [`submit_timeout`](Self::submit_timeout).
    ///
    /// # Errors
    /// The job, if the pool is closed, now or while it waits, or if the job was cancelled.
    #[inline]
    pub fn submit(&self, job: Job<T>) -> Result<(), SubmitError<T>> {
        self.core.submit(job, None)
    }

    /// As [`submit`](Self::submit), for so long at most, by the pool's [clock](super::Builder::clock).
    ///
    /// # Errors
    /// As `submit`, or if there was no room in time.
    pub fn submit_timeout(&self, job: Job<T>, limit: Duration) -> Result<(), SubmitError<T>> {
        self.core.submit(job, Some(limit))
    }

    /// As [`submit`](Self::submit), for a task: on any runtime.
    ///
    /// Cancel-safe: a future that is dropped before it is ready drops its job, which was not accepted, and passes on its place in the
    /// queue for room. [`into_job`](SubmitFuture::into_job) gives the job back instead.
    pub fn submit_async(&self, job: Job<T>) -> SubmitFuture<'_, T, M> {
        SubmitFuture::new(&self.core, job)
    }

    /// Submits jobs from the front of `jobs` until none is left or one is refused, as by [`try_submit`](Self::try_submit), and wakes workers
    /// once. Those that were not accepted are still there, the refused one first.
    ///
    /// # Errors
    /// Why not all were accepted. One refusal is counted.
    pub fn try_submit_many(&self, jobs: &mut VecDeque<Job<T>>) -> Result<(), RejectReason> {
        let core = &*self.core;
        let cancelled = jobs.iter().position(Job::is_cancelled);
        let rest = cancelled.map(|at| jobs.split_off(at));
        let before = jobs.len();
        let mut refusal = None;
        match &core.queue {
            Waiting::Fifo(queue) => {
                if M::TIMED {
                    let now = core.stamp();
                    jobs.iter_mut().for_each(|job| job.set_since(now));
                }
                refusal = queue.push_many(jobs, super::JobPriority::NORMAL).err();
            }
            Waiting::Priority(_) => {
                while let Some(job) = jobs.pop_front() {
                    if let Err(refused) = core.push(job) {
                        jobs.push_front(refused.item);
                        refusal = Some(refused.reason);
                        break;
                    }
                }
            }
        }
        let accepted = before - jobs.len();
        if accepted > 0 {
            core.arrived();
            core.tell(|metrics| metrics.accepted(accepted));
        }
        let mut reason = refusal.map(RejectReason::from);
        if let Some(mut rest) = rest {
            jobs.append(&mut rest);
            reason = reason.or(Some(RejectReason::Cancelled));
        }
        match reason {
            None => Ok(()),
            Some(reason) => {
                core.reject(reason);
                Err(reason)
            }
        }
    }
}

/// A job on its way into a pool; see [`Pool::submit_async`].
///
/// # Panics
/// If it is polled after it was ready.
#[must_use = "futures do nothing unless polled"]
pub struct SubmitFuture<'a, T: Send + 'static, M: Metrics> {
    core: &'a Core<T, M>,
    job: Option<Job<T>>,
    waiter: Option<Arc<Waiter>>,
}

impl<'a, T: Send + 'static, M: Metrics> SubmitFuture<'a, T, M> {
    pub(super) fn new(core: &'a Core<T, M>, job: Job<T>) -> Self {
        SubmitFuture { core, job: Some(job), waiter: None }
    }

    /// The job, if it was not accepted yet.
    pub fn into_job(mut self) -> Option<Job<T>> {
        self.job.take()
    }

    /// One attempt.
    fn attempt(&mut self) -> Poll<Result<(), SubmitError<T>>> {
        let job = self.job.take().expect("polled after it was ready");
        match self.core.accept(job) {
            Err(SubmitError { job, reason: RejectReason::Full }) => {
                self.job = Some(job);
                Poll::Pending
            }
            other => Poll::Ready(other.or_else(|refused| self.core.refuse(refused))),
        }
    }
}

// A job is moved in and out; nothing points into it.
impl<T: Send + 'static, M: Metrics> Unpin for SubmitFuture<'_, T, M> {}

impl<T: Send + 'static, M: Metrics> Future for SubmitFuture<'_, T, M> {
    type Output = Result<(), SubmitError<T>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let Some(waiter) = &this.waiter
            && !waiter.rung_or_leave(context.waker())
        {
            return Poll::Pending;
        }
        // W1, at first, and again each time it was rung.
        let submitted = this.attempt();
        if let Some(waiter) = this.waiter.take() {
            // One that is refused, because it was cancelled meanwhile, leaves its place to the next.
            this.core.room.leave(&waiter, !matches!(submitted, Poll::Ready(Err(_))));
        }
        if submitted.is_ready() {
            return submitted;
        }
        // Whether it is ordered does not matter: a pop that did not see us was followed by others, or by its worker's B2 and B3, which rings
        // too; that one and W3 have a fence of their own, whatever the kernel says. To wake ourselves would be to be polled again at once,
        // without end where a waker polls there and then (`lease`).
        let (waiter, _ordered) = this.core.room.wait(Some(context.waker().clone()));
        // W4.
        let submitted = this.attempt();
        if let Poll::Ready(submitted) = submitted {
            this.core.room.leave(&waiter, submitted.is_ok());
            return Poll::Ready(submitted);
        }
        this.waiter = Some(waiter);
        Poll::Pending
    }
}

impl<T: Send + 'static, M: Metrics> Drop for SubmitFuture<'_, T, M> {
    fn drop(&mut self) {
        if let Some(waiter) = self.waiter.take() {
            self.core.room.leave(&waiter, false);
        }
    }
}

impl<T: Send + 'static, M: Metrics> fmt::Debug for SubmitFuture<'_, T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubmitFuture").field("waits", &self.waiter.is_some()).finish_non_exhaustive()
    }
}
