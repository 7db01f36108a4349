//! How a pool ends.
//!
//! ```text
//!     D1  close the queue: what was accepted is in it, nothing else comes in
//!     D2  wake all who sleep, and all who wait for room
//!     D3  wait until the last worker has ended: workers end when the queue is closed, and nothing is left. Those whose
//!         jobs are in a shutdown too are not waited for by such a job
//!     D4  out of time, or nobody is left who would run what is left: revoke every tray (`tray`, R1), then empty the
//!         queue: that is what was not run
//!     D5  how many were handed back, after whoever is at D4 has said so
//! ```
//!
//! A submission that runs at the same time as D1 is accepted before it, and its job is run, or handed back by D4; or it is refused, and
//! its job is in the error. Of several shutdowns the first to run out of time does D4, the others are told how many it got.

use std::{fmt, time::Duration};

use super::{Metrics, Pool, core::Core, job::Job, life::Life, queue::JobQueue};
use crate::{
    node::quietly,
    sync::{atomic::Ordering, wait_for},
};

/// What a shutdown has come to.
#[must_use]
pub struct Shutdown<T> {
    /// Jobs that were not run, for this caller to run, keep or drop.
    pub unrun: Vec<Job<T>>,
    /// How many jobs were handed back to this caller and to others, all in all.
    pub handed_back: usize,
    /// How many workers were in a job when time was up, the caller's own not counted. One that had just ended its last job may be among them.
    pub still_running: usize,
}

impl<T> Shutdown<T> {
    /// Whether nothing was handed back, to anybody, and no job was running when time was up: all that was accepted has ended, run or
    /// cancelled.
    ///
    /// Not that every thread has ended: one that had nothing to do any more when time was up may be about to. And `false` does not mean that a
    /// job is running: see [`still_running`](Self::still_running).
    pub fn is_complete(&self) -> bool {
        self.handed_back == 0 && self.still_running == 0
    }
}

impl<T> fmt::Debug for Shutdown<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shutdown")
            .field("unrun", &self.unrun.len())
            .field("handed_back", &self.handed_back)
            .field("still_running", &self.still_running)
            .finish()
    }
}

impl<T: Send + 'static, M: Metrics> Core<T, M> {
    /// D1 and D2.
    pub fn begin_to_end(&self) {
        self.life().closed = true;
        self.close();
    }

    /// D4. What was not run; how many jobs are running.
    pub fn revoke(&self) -> (Vec<Job<T>>, usize) {
        // Relaxed: a request that publishes nothing.
        self.stopping.store(true, Ordering::Relaxed);
        let own = self.life().own();
        let mut unrun = Vec::new();
        let mut running = 0;
        for (worker, tray) in self.trays.iter().enumerate() {
            running += usize::from(tray.revoke(&mut unrun, own == Some(worker)));
        }
        // No worker takes anything any more.
        let mut rest = std::collections::VecDeque::new();
        while self.queue.pop_many(64, &mut rest) > 0 {
            unrun.extend(rest.drain(..));
        }
        (unrun, running)
    }
}

/// One who is in a shutdown.
struct Inside<'a, T: Send + 'static, M: Metrics> {
    core: &'a Core<T, M>,
    /// It is a job of the pool itself.
    is_job: bool,
}

impl<'a, T: Send + 'static, M: Metrics> Inside<'a, T, M> {
    fn new(core: &'a Core<T, M>) -> Self {
        let mut life = core.life();
        let is_job = life.own().is_some();
        if is_job {
            life.inside += 1;
            drop(life);
            // Other jobs that wait here wait for one less.
            core.ended.notify_all();
        }
        Inside { core, is_job }
    }

    /// Whether a worker is there that will end by itself.
    fn waits_for(&self, life: &Life) -> bool {
        life.alive > if self.is_job { life.inside } else { 0 }
    }
}

impl<T: Send + 'static, M: Metrics> Drop for Inside<'_, T, M> {
    fn drop(&mut self) {
        if self.is_job {
            self.core.life().inside -= 1;
        }
    }
}

impl<T: Send + 'static, M: Metrics> Pool<T, M> {
    /// Takes no more jobs, runs those that are in, and waits until every worker has ended; for `limit` at most.
    ///
    /// When time is up, no further job is begun, those that were not are handed back, and those that run are told so
    /// ([`Context::is_cancelled`](super::Context::is_cancelled)); they are not waited for, and their threads end with them.
    ///
    /// May be called by several threads, and again: all are told the truth, each job is handed back to one of them. [`Duration::MAX`] sets no
    /// limit.
    ///
    /// Called by a job of this pool it waits neither for that one nor for others that are in a call of this. If no worker is left beside these,
    /// time is up: what has not begun is handed back.
    ///
    /// *Blocking*, on the jobs.
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
        core.begin_to_end();
        let until = core.clock.now().saturating_add(limit);
        let inside = Inside::new(core);
        let mut life = core.life();
        while inside.waits_for(&life) {
            drop(life);
            // User code.
            let left = until.saturating_since(core.clock.now());
            life = core.life();
            if left.is_zero() || !inside.waits_for(&life) {
                break;
            }
            let limit = (limit != Duration::MAX).then_some(left);
            life = wait_for(&core.ended, life, limit);
        }
        let out_of_time = inside.waits_for(&life);
        let ended = life.take_ended();
        drop(life);
        core.keeper.end();
        let (mut unrun, mut still_running) = (Vec::new(), 0);
        // Or nobody is left who would run what is left: the caller is a job.
        if out_of_time || core.something_waits() {
            // User code, what the reclaimer frees, comes after the turn.
            let _section = core.queue.section();
            let _turn = core.revoking.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let (jobs, running) = core.revoke();
            (unrun, still_running) = (jobs, running);
            core.life().handed_back += unrun.len();
            // Those who sleep, or look for work, end.
            core.beds.wake_all();
        }
        for thread in ended {
            // They have ended, or are about to: nothing of ours, and no user code, is left to run in them.
            let _ = thread.join();
        }
        let keeper = core.life().keeper.take();
        if let Some(keeper) = keeper {
            let _ = keeper.join();
        }
        // D5. Whoever has ended the workers that we have waited for holds it until it has counted what it was given.
        let turn = core.revoking.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let handed_back = core.life().handed_back;
        drop(turn);
        Shutdown { unrun, handed_back, still_running }
    }
}

/// Takes no more jobs, and drops those that were not begun: their cleanup runs here, their handles are told. What runs is told to end
/// and is not waited for; its thread ends with it, all others at once.
impl<T: Send + 'static, M: Metrics> Drop for Pool<T, M> {
    fn drop(&mut self) {
        let core = &*self.core;
        core.begin_to_end();
        core.keeper.end();
        let (unrun, _) = core.revoke();
        core.beds.wake_all();
        for job in unrun {
            // A job's own drop stops what it can; this is for the rest.
            let _ = quietly(|| drop(job));
        }
        // Threads of workers end by themselves.
    }
}
