//! How a pool ends.
//!
//! ```text
//!     E1  take no more jobs, and no more errands (`lease`); let go those who wait for room, but for errands
//!     E2  wait until no errand is left: each has come into the queue, or come to nothing. Until time is up, or somebody else is at
//!         D1, or nobody is left who would run anything, or nobody may wait: see below
//!     D1  close the queue: what was accepted is in it, nothing else comes in. Errands that are left are given up
//!     D2  wake all who sleep, and all who wait for room
//!     D3  wait until the last worker has ended: workers end when the queue is closed, and nothing is left. Others may come meanwhile
//!         (`keeper`), until it is seen, under the mutex under which one is counted before it begins, that none is left or that time is up.
//!         Of the pool's own threads, those of its jobs and the keeper's, none that is in a shutdown waits for another one that is,
//!         here or at D5
//!     D4  out of time, or nobody is left who would run what is left: revoke every tray (`tray`, R1), then empty the
//!         queue: that is what was not run. Only then are running jobs told to end
//!     D5  join the threads that have ended; the keeper's too, unless it does not end in time
//!     D6  how many were handed back, after whoever is at D4 has said so; and the jobs of errands that were given up
//! ```
//!
//! ```text
//!     OPEN ---E1---> ENDING ---D1---> DRAINING           a drop: OPEN ---D1---> DRAINING
//! ```
//!
//! **Who waits for errands.** An errand may need the lease that a job holds, and a job that is in a shutdown holds it until that is over. So a thread of the
//! pool waits at E2 within its limit, and not at all without one. One that is in the middle of an errand's poll does not wait for any: that one cannot end
//! meanwhile, nor could those that are woken here and polled next.
//!
//! **No two wait for each other.** Threads that are not the pool's are waited for by nobody. A thread of the pool in a shutdown waits for those that are
//! not in one: they end by themselves; and what they run is user code, which may be what comes into a shutdown next, and then says so.
//!
//! **Whoever is told to end begins nothing more.** A job asks after D4 has been told; its worker then comes to its tray by T2, which comes after S2, so
//! that T3 finds nothing, or under a lock that R1 has had.
//!
//! **The clock** is the user's, and may panic. It is read before E1, where nothing has happened yet; after that a reading that fails is one by which time is
//! up, so that what D4 has taken out is not lost.
//!
//! A submission that runs at the same time as E1 and D1 is accepted before D1, and its job is run, or handed back by D4; or it is refused, and
//! its job is in the error. Of several shutdowns the first to run out of time does D4, the others are told how many it got.

use std::{fmt, time::Duration};

use super::{LeaseJob, Metrics, Pool, core::Core, job::Job, life::Life, queue::JobQueue};
use crate::{
    node::quietly,
    sync::{MutexGuard, Timestamp, atomic::Ordering, wait_for},
};

/// What a shutdown has come to.
#[must_use]
pub struct Shutdown<T> {
    /// Jobs that were not run, for this caller to run, keep or drop.
    pub unrun: Vec<Job<T>>,
    /// How many jobs were handed back to this caller and to others, all in all.
    pub handed_back: usize,
    /// Jobs that waited for a lease, or with one for a place in the queue, when time was up, in the order in which they were submitted: for this caller to
    /// submit to another pool ([`Pool::submit_when_lent`]), to await, or to drop. One that was just being polled, be it by a thread that calls this in the
    /// middle of that, is handed back to whoever calls [`Pool::shutdown`] after that poll.
    pub unlent: Vec<LeaseJob>,
    /// How many such jobs there were, handed back to this caller, to others, or yet to be, all in all; and those whose wait has panicked, or had ended without
    /// a lease or with a cancelled token just when time was up, which are dropped, and their handles told.
    pub given_up: usize,
    /// How many workers were in a job when time was up. Not counted are the caller's own, and those whose job was in a shutdown of this pool
    /// too: of two such neither can wait for the other. One that had just ended its last job may be among them. And
    /// how many jobs whose lease had failed were just being told so.
    pub still_running: usize,
}

impl<T> Shutdown<T> {
    /// Whether nothing was handed back, to anybody, nothing was given up, and no job was running when time was up: all that was accepted has
    /// ended, run or cancelled; but for jobs that have called a shutdown themselves.
    ///
    /// Not that every thread has ended: one that had nothing to do any more when time was up may be about to. And `false` does not mean that a
    /// job is running: see [`still_running`](Self::still_running).
    pub fn is_complete(&self) -> bool {
        self.handed_back == 0 && self.given_up == 0 && self.still_running == 0
    }
}

impl<T> fmt::Debug for Shutdown<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shutdown")
            .field("unrun", &self.unrun.len())
            .field("handed_back", &self.handed_back)
            .field("unlent", &self.unlent.len())
            .field("given_up", &self.given_up)
            .field("still_running", &self.still_running)
            .finish()
    }
}

impl<T: Send + 'static, M: Metrics> Core<T, M> {
    /// E1 and E2.
    fn end_errands(&self, end: Option<Timestamp>, inside: &Inside<'_, T, M>) {
        self.stop_intake();
        if super::lease::is_polling() || inside.is_ours && end.is_none() {
            return;
        }
        // If no worker is left, nobody would run what comes into the queue; but those that got no lease end without one.
        let nobody_runs = |life: &Life| !inside.waits_for(life) && self.errands.ending() == 0;
        drop(self.wait_until(end, |life| self.errands.is_over() || nobody_runs(life)));
    }

    /// D1 and D2.
    pub fn begin_to_end(&self) {
        self.close();
        // Whoever is at E2. It has looked before that lock was free, and sleeps; or it sees that there are none.
        self.after_errand(true);
    }

    /// Waits until something is so, or time is up; whether it is so.
    fn wait_until(&self, end: Option<Timestamp>, so: impl Fn(&Life) -> bool) -> (MutexGuard<'_, Life>, bool) {
        let mut life = self.life();
        while !so(&life) {
            let left = match end {
                None => None,
                Some(end) => {
                    drop(life);
                    // User code.
                    let now = quietly(|| self.clock.now()).unwrap_or(end);
                    life = self.life();
                    Some(end.saturating_since(now))
                }
            };
            if left.is_some_and(|left| left.is_zero()) || so(&life) {
                break;
            }
            life = wait_for(&self.ended, life, left);
        }
        let is_so = so(&life);
        (life, is_so)
    }

    /// D5, for the keeper. It may be in user code, which takes its time, or is in a shutdown itself, be it this one.
    fn join_keeper(&self, end: Option<Timestamp>, inside: &Inside<'_, T, M>) {
        self.keeper.end();
        let (mut life, _) = self.wait_until(end, |life| !life.keeps || inside.is_ours && life.keeper_inside);
        let keeper = if life.keeps { None } else { life.keeper.take() };
        drop(life);
        if let Some(keeper) = keeper {
            keeper.join();
        }
    }

    /// D4. What was not run; how many jobs are running, but for the caller's own and those of the workers that are `inside` a shutdown.
    pub fn revoke(&self, inside: &[usize]) -> (Vec<Job<T>>, usize) {
        let own = self.life().own();
        let mut unrun = Vec::new();
        let mut running = 0;
        for (worker, tray) in self.trays.iter().enumerate() {
            let counts = own != Some(worker) && !inside.contains(&worker);
            running += usize::from(tray.revoke(&mut unrun, own == Some(worker), counts));
        }
        // No worker takes anything any more.
        let mut rest = std::collections::VecDeque::new();
        while self.queue.pop_many(64, &mut rest) > 0 {
            unrun.extend(rest.drain(..));
        }
        // After what has not begun is out of reach: a worker whose job ends because it is told so begins no other.
        // Relaxed: a request that publishes nothing. Whoever has seen it comes to its tray later: T2 after S2 (`tray`), or the lock after R1.
        self.stopping.store(true, Ordering::Relaxed);
        (unrun, running)
    }
}

/// One who is in a shutdown.
struct Inside<'a, T: Send + 'static, M: Metrics> {
    core: &'a Core<T, M>,
    /// It is a thread of the pool itself, in a job or in other user code.
    is_ours: bool,
    /// As what it has entered; `None` if it was inside already: a clock may end the pool in the midst of a shutdown.
    entered: Option<Ours>,
}

/// A thread of the pool.
enum Ours {
    Worker(usize),
    Keeper,
}

impl<'a, T: Send + 'static, M: Metrics> Inside<'a, T, M> {
    fn new(core: &'a Core<T, M>) -> Self {
        let mut life = core.life();
        let ours = life.own().map(Ours::Worker).or_else(|| life.is_keeper().then_some(Ours::Keeper));
        let is_ours = ours.is_some();
        let entered = ours.filter(|ours| match *ours {
            Ours::Worker(worker) if life.inside.contains(&worker) => false,
            Ours::Worker(worker) => {
                life.inside.push(worker);
                true
            }
            Ours::Keeper => !std::mem::replace(&mut life.keeper_inside, true),
        });
        drop(life);
        if entered.is_some() {
            // Others that wait here wait for one less.
            core.ended.notify_all();
        }
        Inside { core, is_ours, entered }
    }

    /// Whether a worker is there that will end by itself.
    fn waits_for(&self, life: &Life) -> bool {
        life.alive > if self.is_ours { life.inside.len() } else { 0 }
    }
}

impl<T: Send + 'static, M: Metrics> Drop for Inside<'_, T, M> {
    fn drop(&mut self) {
        match self.entered {
            Some(Ours::Worker(worker)) => self.core.life().inside.retain(|inside| *inside != worker),
            Some(Ours::Keeper) => self.core.life().keeper_inside = false,
            None => {}
        }
    }
}

impl<T: Send + 'static, M: Metrics> Pool<T, M> {
    /// Takes no more jobs, runs those that are in, those that wait for a lease as well ([`submit_with_lease`](Pool::submit_with_lease)), and waits until
    /// every worker has ended; for `limit` at most.
    ///
    /// When time is up, leases are waited for no longer, no further job is begun, those that were not are handed back, with a lease or without, and those that run are told so
    /// ([`Context::is_cancelled`](super::Context::is_cancelled)); they are not waited for, and their threads end with them.
    ///
    /// Until then workers come as they do in a pool that is open, within the bounds of [`adaptive`](super::Builder::adaptive): jobs that wait for others which are still in the queue
    /// are not waited for in vain as long as one more may come. But not while what the keeper itself calls, a metric or a clock, is in a call of this.
    ///
    /// May be called by several threads, and again: all are told the truth, each job is handed back to one of them. [`Duration::MAX`] sets no
    /// limit.
    ///
    /// Called by a job of this pool, or by what else its threads call, metrics, clocks and wakers, it waits neither for that thread nor for others of
    /// the pool that are in a call of this. If no worker is left beside these, time is up: what has not begun is handed back. Such a
    /// caller may hold the very lease that a job waits for. So it waits for leases within its limit, and with [`Duration::MAX`] not at all: jobs that still
    /// wait for one are given up. A call from within a future that waits for a lease waits for none either;
    /// it must not wait without a limit for a job that itself waits for that thread, or for what another job of that thread's is to give back.
    ///
    /// *Blocking*, on the jobs. Threads that have ended are joined, and with them whatever jobs have left in their thread-locals is dropped, which must
    /// not call this; that alone is outside the limit. A thread that has not ended when time is up is not waited for; a later call joins it.
    ///
    /// # Panics
    /// If the pool's [clock](super::Builder::clock) does when the call begins: then nothing has happened. If it panics later, time is up. With
    /// [`Duration::MAX`] it is not read.
    ///
    /// ```
    /// use leasehold::pool::{Job, Pool};
    /// use std::time::Duration;
    ///
    /// let pool = Pool::builder().workers(2).build()?;
    /// for i in 0..100u64 {
    ///     pool.submit(Job::new(i, |_, _| Ok(())))?;
    /// }
    /// let ended = pool.shutdown(Duration::from_secs(10));
    /// assert!(ended.is_complete());
    /// assert!(pool.try_submit(Job::new(0, |_, _| Ok(()))).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shutdown(&self, limit: Duration) -> Shutdown<T> {
        let core = &*self.core;
        // User code: before anything has happened.
        let end = (limit != Duration::MAX).then(|| core.clock.now().saturating_add(limit));
        let inside = Inside::new(core);
        core.end_errands(end, &inside);
        core.begin_to_end();
        let (mut life, in_time) = core.wait_until(end, |life| !inside.waits_for(life));
        // In the same section: who begins is waited for, or does not begin.
        life.closed = true;
        let ended = life.take_ended();
        // As it is now that time is up: they go on, and may be out of it when it is this one's turn.
        let in_shutdowns = life.inside.clone();
        drop(life);
        let (mut unrun, mut still_running) = (Vec::new(), 0);
        // Or nobody is left who would run what is left: the caller is a job.
        if !in_time || core.something_waits() {
            let section = core.queue.section();
            {
                let _turn = core.revoking.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                let (jobs, running) = core.revoke(&in_shutdowns);
                (unrun, still_running) = (jobs, running);
                core.life().handed_back += unrun.len();
                // Relaxed: a count, the same, for who reads it without the lock.
                core.handed_back.fetch_add(unrun.len() as u64, Ordering::Relaxed);
                // Those who sleep, or look for work, end.
                core.beds.wake_all();
            }
            // User code, metrics and what the reclaimer frees: after the turn, and not at the expense of what is to be handed back.
            core.tell_unrun(unrun.len());
            let _ = quietly(|| drop(section));
        }
        for thread in ended {
            // They have ended, or are about to: nothing of ours is left to run in them. What jobs have left in thread-locals may be.
            let _ = thread.join();
        }
        core.join_keeper(end, &inside);
        // Time was up before these were told, or nobody has waited for it: E2.
        still_running += core.errands.ending();
        // D6. Whoever has ended the workers that we have waited for holds it until it has counted what it was given.
        let turn = core.revoking.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let handed_back = core.life().handed_back;
        drop(turn);
        let unlent = core.errands.take_unlent();
        Shutdown { unrun, handed_back, unlent, given_up: core.given_up(), still_running }
    }
}

/// Takes no more jobs, and drops those that were not begun: their cleanup runs here, their handles are told. What runs is told to end
/// and is not waited for; its thread ends with it, all others at once.
impl<T: Send + 'static, M: Metrics> Drop for Pool<T, M> {
    fn drop(&mut self) {
        let core = &*self.core;
        core.life().closed = true;
        core.begin_to_end();
        core.errands.forsake();
        core.keeper.end();
        let section = core.queue.section();
        let (unrun, _) = core.revoke(&[]);
        core.beds.wake_all();
        // User code: metrics, and what the reclaimer frees.
        core.tell_unrun(unrun.len());
        let _ = quietly(|| drop(section));
        for job in unrun {
            // A job's own drop stops what it can; this is for the rest.
            let _ = quietly(|| drop(job));
        }
        // Threads of workers end by themselves.
    }
}
