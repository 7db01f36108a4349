//! How jobs come in.

use std::{
    collections::VecDeque,
    error::Error,
    fmt,
    pin::Pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use super::{
    Metrics, Pool,
    core::{Core, Waiting},
    job::Job,
    queue::{JobQueue, Refusal},
    room::InLine,
};
use crate::{node::quietly, sync::Spin};

/// How often a submitter looks for room before it waits for it.
const LOOKS: u32 = if cfg!(any(loom, shuttle)) { 0 } else { Spin::YIELD_AFTER };

/// Why a job was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RejectReason {
    /// The queue is full.
    Full,
    /// The pool takes no more jobs.
    Closed,
    /// The job was cancelled before there was room for it.
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
            RejectReason::Cancelled => "the job was cancelled before it was accepted",
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
        if !self.is_open() {
            return Err(SubmitError { job, reason: RejectReason::Closed });
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

    /// As [`accept`](Self::accept), of the errand of that number: also in a pool that is ending, unless it was given up.
    fn accept_errand(&self, number: u64, mut job: Job<T>) -> Result<(), SubmitError<T>> {
        // User code, the clock and what the reclaimer frees: before the list is locked, and after.
        job.set_since(self.stamp());
        let section = self.queue.section();
        let entered = self.errands.enter(number, job, |job| {
            self.push_stamped(job)
                .map_err(|refused| SubmitError { job: refused.item, reason: refused.reason.into() })
        });
        let _ = quietly(|| drop(section));
        match entered {
            Ok(is_last) => {
                self.arrived();
                self.after_errand(is_last);
                self.tell(|metrics| metrics.accepted(1));
                Ok(())
            }
            Err(refused) => Err(refused),
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
        let mut again = false;
        loop {
            let waiter = self.wait_for_room(&job, None, again);
            // W4, and Y2 of `cancel`.
            job = match self.accept(job) {
                Err(SubmitError { job, reason: RejectReason::Full }) => job,
                other => {
                    // Not rung before it tried: a ring that came since was for another place.
                    waiter.leave(false);
                    return other;
                }
            };
            let left = until.map(|until| until.saturating_since(self.clock.now()));
            if left.is_some_and(|left| left.is_zero()) {
                waiter.leave(false);
                return Err(SubmitError { job, reason: RejectReason::TimedOut });
            }
            let rung = waiter.sleep(left);
            job = match self.accept(job) {
                Err(SubmitError { job, reason: RejectReason::Full }) => job,
                other => {
                    waiter.leave(rung && other.is_ok());
                    return other;
                }
            };
            // Rung, and somebody else was faster; or not rung at all.
            again = waiter.leave(true);
        }
    }
}

impl<T: Send + 'static, M: Metrics> Core<T, M> {
    /// W2 and W3, and Y1 of `cancel`.
    fn wait_for_room(&self, job: &Job<T>, waker: Option<Waker>, again: bool) -> InLine<'_> {
        let (mut waiter, ordered) = self.room.wait(waker, again);
        if !ordered {
            // A task that woke itself instead would be polled again at once, without end where a waker polls there and then (`lease`).
            self.keeper.call();
        }
        if let Some(token) = job.token() {
            waiter.heed(token);
        }
        waiter
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
    /// *Blocking*, on the workers. Those who wait are rung in order, as jobs are begun; a newcomer may be faster than who was rung, which
    /// then is the next to be. Allocates nothing, once as many have waited at a time, up to 256; what is beyond is allocated each time. So with a token
    /// that is no clone of one with which as many have waited.
    ///
    /// A job that submits to its own pool in this way holds a worker while it waits; if all workers do, it is for ever. Such a job takes
    /// [`try_submit`](Self::try_submit) or [`submit_timeout`](Self::submit_timeout).
    ///
    /// # Errors
    /// The job, if the pool is closed or the job is cancelled, before or while it waits: then it comes back at once.
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
    /// queue for room. [`into_job`](SubmitFuture::into_job) gives the job back instead. It is woken if its job is cancelled, and refused.
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
        if !core.is_open() && !jobs.is_empty() {
            core.reject(RejectReason::Closed);
            return Err(RejectReason::Closed);
        }
        if M::TIMED {
            // User code: before anything is taken out of `jobs`, or lies in the queue without anybody having been woken.
            let now = core.stamp();
            jobs.iter_mut().for_each(|job| job.set_since(now));
        }
        let cancelled = jobs.iter().position(Job::is_cancelled);
        let rest = cancelled.map(|at| jobs.split_off(at));
        let before = jobs.len();
        let mut refusal = None;
        match &core.queue {
            Waiting::Fifo(queue) => refusal = queue.push_many(jobs, super::JobPriority::NORMAL).err(),
            Waiting::Priority(queue) => {
                while let Some(job) = jobs.pop_front() {
                    let priority = job.get_priority();
                    if let Err(refused) = queue.push(job, priority) {
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
    /// Dropped before the job, which is user code.
    waiter: Option<InLine<'a>>,
    job: Option<Job<T>>,
    /// The number of the errand that it belongs to.
    errand: Option<u64>,
}

impl<'a, T: Send + 'static, M: Metrics> SubmitFuture<'a, T, M> {
    pub(super) fn new(core: &'a Core<T, M>, job: Job<T>) -> Self {
        SubmitFuture { core, waiter: None, job: Some(job), errand: None }
    }

    /// That of an errand, which comes in also while the pool is ending. It has its job only while it is polled: in between the list has it.
    pub(super) fn of_errand(core: &'a Core<T, M>, number: u64) -> Self {
        SubmitFuture { core, waiter: None, job: None, errand: Some(number) }
    }

    /// Gives an errand's its job, for a poll.
    pub(super) fn set_job(&mut self, job: Job<T>) {
        self.job = Some(job);
    }

    /// Takes it back, after one that was not ready.
    pub(super) fn take_job(&mut self) -> Option<Job<T>> {
        self.job.take()
    }

    fn accept(&self, job: Job<T>) -> Result<(), SubmitError<T>> {
        match self.errand {
            None => self.core.accept(job),
            Some(number) => self.core.accept_errand(number, job),
        }
    }

    /// The job, if it was not accepted yet.
    pub fn into_job(mut self) -> Option<Job<T>> {
        self.job.take()
    }

    /// One attempt.
    fn attempt(&mut self) -> Poll<Result<(), SubmitError<T>>> {
        let job = self.job.take().expect("polled after it was ready");
        match self.accept(job) {
            Err(SubmitError { job, reason: RejectReason::Full }) => {
                self.job = Some(job);
                Poll::Pending
            }
            // An errand is refused if it was given up: that is counted already.
            Err(refused) if self.errand.is_some() => Poll::Ready(Err(refused)),
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
        // Taken out, so that it leaves even if the attempt panics.
        let waiter = this.waiter.take();
        // W1, at first, and again each time it was rung.
        let submitted = this.attempt();
        // One that is refused, because it was cancelled meanwhile, leaves its place to the next.
        let served = !matches!(submitted, Poll::Ready(Err(_)));
        let again = waiter.is_some_and(|waiter| waiter.leave(served));
        if submitted.is_ready() {
            return submitted;
        }
        let waker = context.waker().clone();
        let job = this.job.as_ref().expect("it was refused for want of room");
        let waiter = this.core.wait_for_room(job, Some(waker), again);
        // W4, and Y2 of `cancel`.
        let submitted = this.attempt();
        if submitted.is_ready() {
            // As in `accept_waiting`.
            waiter.leave(false);
            return submitted;
        }
        this.waiter = Some(waiter);
        Poll::Pending
    }
}

impl<T: Send + 'static, M: Metrics> fmt::Debug for SubmitFuture<'_, T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubmitFuture").field("waits", &self.waiter.is_some()).finish_non_exhaustive()
    }
}
