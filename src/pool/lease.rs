//! Jobs that need a resource of a scheduler: they wait for it without a worker.
//!
//! ```text
//!   submit_with_lease                 whoever lends                  whoever makes room        a worker
//!     L1  on the list of errands        L3  wakes: the errand is       L4  wakes: it is in       L5  runs it, returns
//!     L2  asks for the lease                polled, and submitted          the queue                 the lease
//! ```
//!
//! An *errand* is a future that asks for the lease and then for room in the queue. It has no executor: whoever wakes it polls it, there and
//! then. That is a few moves, in which nothing of the job runs. One that is woken on a thread that is in the middle of a poll, be it its own
//! or that of another one, follows it: so the stack does not grow with those who wake each other.
//!
//! **The end.** A shutdown lets no more errands begin, and waits for those on the list (`shutdown`, E1 and E2); what is left when its time is up is
//! *given up*: its job is handed back. An errand leaves the list, all its life under one mutex, at the moment at
//! which it is decided what becomes of its job: it comes into the queue, or ends with an error in place of the lease, or is given up. So a job that is run
//! was never given up, whoever looks when, and the count of those that were only rises.
//!
//! **Who has the job.** The list; whoever polls the errand takes it out for the poll (P1), in which no lock is held, and puts it back (P2). So whoever
//! gives up has the jobs of all that are not being polled at that moment, at once and without waiting for anybody's code. One that is being polled finds at
//! P2, or at L4, that it is not on the list any more, and leaves its job with those that are to be handed back: to the next shutdown that asks.
//!
//! ```text
//!   an errand                                         a shutdown
//!     P1  lock: still on the list? its job is taken     E1  lock: none begins any more
//!         from there, and polled without the lock       E2  lock: none on the list? D1. Otherwise sleep
//!     P2  it waits on: lock: still on the list? the     time is up, D1: lock: all off the list, given up, and their
//!         job goes there. Otherwise to those that are       jobs to those that are to be handed back; then the
//!         to be handed back                                 queue is closed, and whoever sleeps at E2 woken
//!     L4  lock: still on the list? into the queue,      D6  lock: takes those that are to be handed back
//!         and off the list. Otherwise as P2
//!     L6  if none begins any more and that was the
//!         last one: whoever sleeps at E2 is woken
//!
//!   One that ends without a lease is off the list, but counted at E2 until its job's handle is told: "all has ended" is true of handles too.
//! ```

use std::{
    cell::RefCell,
    collections::{HashMap, VecDeque},
    future::{Future, poll_fn},
    pin::Pin,
    sync::PoisonError,
    task::{Context as Polled, Poll},
};

use async_task::{Runnable, Task as Errand};

use super::{
    Context, Job, LeaseJob, LeaseJobError, Metrics, Pool, RejectReason, SubmitError, SubmitFuture, Task,
    TaskHandle, core::Core, lease_job::Asked,
};
use crate::{
    Outcome, OwnedLease, Resource,
    node::quietly,
    sync::{Arc, Mutex, MutexGuard, atomic::Ordering},
};

/// Those that wait for a lease, or with one for room.
pub struct Errands(Mutex<Inner>);

struct Inner {
    open: bool,
    next: u64,
    /// None of one that has a number and is about to begin.
    running: HashMap<u64, Option<Place>>,
    /// So many are off the list, and their jobs are about to be told that there is no lease.
    ending: usize,
    /// So many were accepted and came to nothing.
    given_up: usize,
    /// The jobs of those that were given up, to be handed back.
    unlent: Vec<LeaseJob>,
    /// The pool is gone: nobody will ask for them.
    forsaken: bool,
}

/// One on the list.
struct Place {
    errand: Errand<()>,
    /// None while it is being polled.
    job: Option<LeaseJob>,
}

impl Inner {
    fn is_over(&self) -> bool {
        !self.open && self.running.is_empty() && self.ending == 0
    }
}

impl Default for Errands {
    fn default() -> Self {
        Errands(Mutex::new(Inner {
            open: true,
            next: 0,
            running: HashMap::new(),
            ending: 0,
            given_up: 0,
            unlent: Vec::new(),
            forsaken: false,
        }))
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
        if !inner.open {
            return None;
        }
        inner.next += 1;
        let number = inner.next;
        inner.running.insert(number, None);
        Some(number)
    }

    /// Puts one onto the list, with its job; both come back if all have been given up.
    fn begin(&self, number: u64, errand: Errand<()>, job: LeaseJob) -> Result<(), (Errand<()>, LeaseJob)> {
        match self.inner().running.get_mut(&number) {
            Some(place) => {
                *place = Some(Place { errand, job: Some(job) });
                Ok(())
            }
            None => Err((errand, job)),
        }
    }

    /// P1: its job, unless it was given up.
    fn take(&self, number: u64) -> Option<LeaseJob> {
        self.inner().running.get_mut(&number)?.as_mut()?.job.take()
    }

    /// P2: the job goes to where it was, or to those that are handed back. It is answered if nobody wants it.
    fn put_back(&self, number: u64, job: LeaseJob) -> Option<LeaseJob> {
        let mut inner = self.inner();
        if let Some(Some(place)) = inner.running.get_mut(&number) {
            place.job = Some(job);
        } else if inner.forsaken {
            return Some(job);
        } else {
            inner.unlent.push(job);
        }
        None
    }

    /// L4. Refuses one that is not on the list any more, or that `push` refuses, which runs no user code. Otherwise whether it was the last at L6.
    pub fn enter<T>(
        &self,
        number: u64,
        job: Job<T>,
        push: impl FnOnce(Job<T>) -> Result<(), SubmitError<T>>,
    ) -> Result<bool, SubmitError<T>> {
        let mut inner = self.inner();
        if !inner.running.contains_key(&number) {
            return Err(SubmitError { job, reason: RejectReason::Closed });
        }
        push(job)?;
        let errand = inner.running.remove(&number);
        let is_last = inner.is_over();
        drop(inner);
        if let Some(Some(place)) = errand {
            place.errand.detach();
        }
        Ok(is_last)
    }

    /// Gives one up, if it is on the list: then answers whether it was the last at L6.
    fn give_up(&self, number: u64) -> Option<bool> {
        let mut inner = self.inner();
        let place = inner.running.remove(&number)?;
        // One that never began was not accepted.
        inner.given_up += usize::from(place.is_some());
        let is_last = inner.is_over();
        drop(inner);
        if let Some(place) = place {
            place.errand.detach();
        }
        Some(is_last)
    }

    /// Takes off the list one whose job ends without a lease; whether it was there. It is over with [`ended`](Self::ended).
    fn end(&self, number: u64) -> bool {
        let mut inner = self.inner();
        let Some(place) = inner.running.remove(&number) else { return false };
        inner.ending += 1;
        drop(inner);
        if let Some(place) = place {
            place.errand.detach();
        }
        true
    }

    /// The job of one that `end` has taken off was told. Whether it was the last at L6.
    fn ended(&self) -> bool {
        let mut inner = self.inner();
        inner.ending -= 1;
        inner.is_over()
    }

    /// E1: lets none begin any more.
    pub fn stop(&self) {
        self.inner().open = false;
    }

    /// E2: whether none begins any more, none is left, and whoever waits for the jobs of those that ended without a lease has been told.
    pub fn is_over(&self) -> bool {
        self.inner().is_over()
    }

    /// Gives up all there are, and lets none begin any more. In the order in which they were submitted.
    pub fn close(&self) {
        let errands: Vec<_> = {
            let mut inner = self.inner();
            inner.open = false;
            let mut running: Vec<_> = std::mem::take(&mut inner.running).into_iter().collect();
            running.sort_unstable_by_key(|&(number, _)| number);
            let places = running.into_iter().filter_map(|(_, place)| place);
            let (errands, jobs): (Vec<_>, Vec<_>) = places.map(|place| (place.errand, place.job)).unzip();
            inner.given_up += errands.len();
            inner.unlent.extend(jobs.into_iter().flatten());
            errands
        };
        for errand in errands {
            // What they hold, be it the waker of one that waits for room, is user code.
            let _ = quietly(|| drop(errand));
        }
    }

    /// D6: takes the jobs that are to be handed back.
    pub fn take_unlent(&self) -> Vec<LeaseJob> {
        std::mem::take(&mut self.inner().unlent)
    }

    /// Drops those that nobody has asked for, and from now on all that are given up.
    pub fn forsake(&self) {
        let unlent = {
            let mut inner = self.inner();
            inner.forsaken = true;
            std::mem::take(&mut inner.unlent)
        };
        // User code, all that they hold.
        unlent.into_iter().for_each(LeaseJob::discard);
    }

    /// Those whose jobs are about to be told that there is no lease.
    pub fn ending(&self) -> usize {
        self.inner().ending
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.inner().running.len()
    }

    /// How many were accepted and came to nothing.
    pub fn given_up(&self) -> usize {
        self.inner().given_up
    }
}

impl<T: Send + 'static, M: Metrics> Core<T, M> {
    /// L6. After the job's handle was told, if the job has ended.
    pub fn after_errand(&self, is_last: bool) {
        if is_last {
            // Whoever is at E2 has looked before, and sleeps when this lock is free; or looks after.
            drop(self.life());
            self.ended.notify_all();
        }
    }
}

/// Whether this thread is in the middle of an errand's poll.
pub fn is_polling() -> bool {
    LATER.try_with(|later| later.borrow().is_some()).unwrap_or(false)
}

/// Takes an errand off the list, whatever becomes of it.
struct Listed<M: Metrics> {
    core: Arc<Core<Task, M>>,
    number: u64,
}

impl<M: Metrics> Drop for Listed<M> {
    fn drop(&mut self) {
        // One that has come into the queue is not there any more.
        if let Some(is_last) = self.core.errands.give_up(self.number) {
            self.core.after_errand(is_last);
        }
    }
}

#[cfg(not(any(loom, shuttle)))]
crate::sync::thread_local! {
    /// What this thread is to poll when it is done with the poll that it is in, if it is in one.
    static LATER: RefCell<Option<VecDeque<Runnable>>> = const { RefCell::new(None) };
}
// Those of a model take no constants.
#[cfg(any(loom, shuttle))]
crate::sync::thread_local! {
    static LATER: RefCell<Option<VecDeque<Runnable>>> = RefCell::new(None);
}

/// Polls an errand, here and now; or, in the middle of a poll, after that one.
fn poll(runnable: Runnable) {
    let mut this = Some(runnable);
    // A thread that is about to end has no list any more, and polls what it wakes one in the other.
    let is_listed = LATER.try_with(|later| {
        let mut later = later.borrow_mut();
        match &mut *later {
            Some(later) => later.extend(this.take()),
            none => *none = Some(VecDeque::new()),
        }
    });
    let is_listed = is_listed.is_ok();
    while let Some(runnable) = this {
        let _ = quietly(|| runnable.run());
        this = if is_listed { LATER.try_with(next).ok().flatten() } else { None };
    }
}

/// What comes after a poll; if nothing does, the thread is in none any more.
fn next(later: &RefCell<Option<VecDeque<Runnable>>>) -> Option<Runnable> {
    let mut later = later.borrow_mut();
    let next = later.as_mut().and_then(VecDeque::pop_front);
    if next.is_none() {
        *later = None;
    }
    next
}

impl<M: Metrics> Pool<Task, M> {
    /// Submits a job as soon as `lease` is there: a worker calls `body` with what was lent, and returns it with the outcome that `body`
    /// tells. If `body` panics it is returned as [`Outcome::Failed`].
    ///
    /// `lease` says how, and for how long, the lease is waited for: [`Scheduler::acquire_async_owned`](crate::Scheduler::acquire_async_owned)
    /// or another future. **No worker waits with it:** it is polled here, and then by whoever wakes it, so its `poll` should be short, as
    /// the scheduler's are. A priority, a token that cancels it, and a cleanup may be given to a [`LeaseJob`]. With the lease the job waits for room in the queue, if it is full, and then for a worker. How many wait for
    /// leases is the scheduler's to limit, not this pool's capacity. If there is no lease, the job ends with that error, and `body` is not called.
    ///
    /// A shutdown waits for it: while there is time the lease may come, and the job is run. A job that has no place in the queue yet when time is up
    /// is *given up*: it is handed back as a [`LeaseJob`] ([`Shutdown::unlent`](super::Shutdown::unlent)), still waiting, for another pool, or to be
    /// dropped; its handle is told when that is. When the pool is dropped so is the job: its handle is told, its wait is ended, its lease
    /// is returned as [`Outcome::Cancelled`]. A lease that never comes is waited for as long as the shutdown's limit
    /// says: give the wait a limit of its own, or close the scheduler.
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
        let (job, handle) = LeaseJob::new(lease, body);
        self.submit_when_lent(job).map_err(|refused| {
            let LeaseJobError { job, reason } = refused;
            job.discard();
            reason
        })?;
        Ok(handle)
    }

    /// Submits a job as soon as its lease is there, as [`submit_with_lease`](Self::submit_with_lease) does.
    ///
    /// *Blocking*, by a mutex that is held for a few moves.
    ///
    /// # Errors
    /// The job, if the pool takes no more: [`RejectReason::Closed`].
    pub fn submit_when_lent(&self, job: LeaseJob) -> Result<(), LeaseJobError> {
        let core = Arc::clone(&self.core);
        let closed = |core: &Core<Task, M>, job| {
            core.reject(RejectReason::Closed);
            LeaseJobError { job, reason: RejectReason::Closed }
        };
        let Some(number) = core.errands.number() else { return Err(closed(&core, job)) };
        let listed = Listed { core: Arc::clone(&core), number };
        let errand = async move {
            // Moved here, and first: it is dropped last.
            let listed = listed;
            let Listed { core, number } = &listed;
            let mut room = SubmitFuture::of_errand(&**core, *number);
            poll_fn(|context| core.step(*number, &mut room, context)).await;
        };
        let (runnable, errand) = async_task::spawn(errand, poll);
        if let Err((errand, job)) = core.errands.begin(number, errand, job) {
            drop(errand);
            let _ = quietly(|| drop(runnable));
            return Err(closed(&core, job));
        }
        poll(runnable);
        Ok(())
    }
}

impl<M: Metrics> Core<Task, M> {
    /// One poll of an errand: P1 to L6. Ready when it is decided what becomes of its job.
    fn step(&self, number: u64, room: &mut SubmitFuture<'_, Task, M>, context: &mut Polled<'_>) -> Poll<()> {
        // P1. None: it was given up, and its job is handed back.
        let Some(mut job) = self.errands.take(number) else { return Poll::Ready(()) };
        match job.ask(context) {
            Poll::Pending => {
                self.put_back(number, job);
                return Poll::Pending;
            }
            Poll::Ready(Asked::Without(tell)) => {
                // Under the lock of the list: whoever was told that it was given up is not told otherwise.
                if self.errands.end(number) {
                    // Relaxed: a count.
                    self.unlent.fetch_add(1, Ordering::Relaxed);
                    // Its handle is told, and its cleanup run, before a shutdown says that all has ended.
                    job.end_without(tell);
                    self.after_errand(self.errands.ended());
                } else {
                    let _ = quietly(|| drop(tell));
                    job.discard();
                }
                return Poll::Ready(());
            }
            Poll::Ready(Asked::Cancelled) => {
                self.end_cancelled(number, job);
                return Poll::Ready(());
            }
            Poll::Ready(Asked::Lent) => {}
        }
        let Some(job) = job.into_lent() else { return Poll::Ready(()) };
        room.set_job(job);
        match Pin::new(&mut *room).poll(context) {
            Poll::Pending => {
                if let Some(job) = room.take_job() {
                    self.put_back(number, LeaseJob::lent(job));
                }
                Poll::Pending
            }
            Poll::Ready(Ok(())) => Poll::Ready(()),
            Poll::Ready(Err(refused)) => {
                // L4: it was given up.
                self.put_back(number, LeaseJob::lent(refused.job));
                Poll::Ready(())
            }
        }
    }

    /// One that was cancelled before it was in the queue: as one that ends without a lease. If it was given up it is not counted twice.
    fn end_cancelled(&self, number: u64, job: LeaseJob) {
        let was_listed = self.errands.end(number);
        if was_listed {
            self.reject(RejectReason::Cancelled);
        }
        job.end_cancelled();
        if was_listed {
            self.after_errand(self.errands.ended());
        }
    }

    /// P2.
    fn put_back(&self, number: u64, job: LeaseJob) {
        if let Some(job) = self.errands.put_back(number, job) {
            job.discard();
        }
    }
}
