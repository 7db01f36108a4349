//! What a worker has taken and not begun, where the others see it.
//!
//! A worker takes a batch out of the queue, so that the queue's shared words move once for many jobs, and runs one job after another.
//! The rest of the batch lies on its *tray*: anybody may take from there while it is busy, so a long job hides nothing.
//!
//! # States of a job
//!
//! Every job that has left the queue is in exactly one of these, and whoever looks under the tray's lock sees which:
//!
//! | state | shown by |
//! |---|---|
//! | on the way from a queue, or from another tray, to this one | `filling` |
//! | on the tray | `jobs` |
//! | being run | `running` |
//!
//! ```text
//!   worker                                            thief
//!     T1  lock: a job? running, jobs -= 1, run it       S1  its own tray says `filling` (T1)
//!         none: filling                                 S2  lock: take half of the jobs from the other end
//!     T2  take a batch elsewhere (T1 said filling)      S3  its own T3
//!     T3  lock: not filling; the batch is on the tray;
//!         the first of it is taken as in T1
//!   stop
//!     R1  lock: revoked, take all jobs; if filling: unlock, wait a little, again
//! ```
//!
//! After R1 no job of this tray begins any more: T1 and T3 refuse. So what a shutdown that has run out of time takes out is exactly
//! what was not run. `filling` lasts as long as a pop, in which no user code runs.
//!
//! The lock is uncontended but for thieves and R1: a compare-and-swap and a store on a line of the worker's own, for each job.

use std::collections::VecDeque;

use crate::sync::{
    CachePadded, Spin, SpinLock,
    atomic::{AtomicUsize, Ordering},
};

struct Inner<J> {
    jobs: VecDeque<J>,
    running: bool,
    filling: bool,
    revoked: bool,
}

/// What a worker finds on its own tray.
pub enum Next<J> {
    /// This, to be run at once.
    Run(J),
    /// Nothing: take a batch elsewhere, and [`fill`](Tray::fill) it in, be it empty.
    Fill,
    /// Nothing is begun any more.
    Revoked,
}

/// The jobs of one worker.
pub struct Tray<J> {
    inner: SpinLock<Inner<J>>,
    /// How many jobs there are; a hint for thieves, so that they leave alone what is empty.
    len: CachePadded<AtomicUsize>,
}

impl<J> Tray<J> {
    /// An empty one, for up to `capacity` jobs.
    pub fn new(capacity: usize) -> Self {
        Tray {
            inner: SpinLock::new(Inner {
                jobs: VecDeque::with_capacity(capacity),
                running: false,
                filling: false,
                revoked: false,
            }),
            len: CachePadded::new(AtomicUsize::new(0)),
        }
    }

    /// How many jobs lie on it, as far as is known.
    pub fn waiting(&self) -> usize {
        // Relaxed: a hint; the lock decides.
        self.len.load(Ordering::Relaxed)
    }

    /// T1. The worker's last job, if there was one, has ended.
    pub fn next(&self) -> Next<J> {
        let mut inner = self.inner.lock();
        self.take(&mut inner)
    }

    fn take(&self, inner: &mut Inner<J>) -> Next<J> {
        inner.running = false;
        if inner.revoked {
            return Next::Revoked;
        }
        match inner.jobs.pop_front() {
            Some(job) => {
                inner.running = true;
                // Relaxed: see `waiting`.
                self.len.store(inner.jobs.len(), Ordering::Relaxed);
                Next::Run(job)
            }
            None => {
                inner.filling = true;
                Next::Fill
            }
        }
    }

    /// T3. `batch`, which may be empty, comes onto the tray; an empty one with room for as many comes back. [`Next::Fill`] if there was
    /// nothing in it: the tray is being filled again.
    pub fn fill(&self, batch: &mut VecDeque<J>) -> Next<J> {
        let mut inner = self.inner.lock();
        inner.filling = false;
        std::mem::swap(&mut inner.jobs, batch);
        if inner.revoked {
            // For R1, which waits for it.
            return Next::Revoked;
        }
        self.take(&mut inner)
    }

    /// The worker takes nothing any more: it goes to sleep, or ends.
    pub fn rest(&self) {
        self.inner.lock().filling = false;
    }

    /// S2: moves half of the jobs, at least one if there is one, to the back of `batch`. The thief's own tray is being filled.
    pub fn steal(&self, batch: &mut VecDeque<J>) -> usize {
        let mut inner = self.inner.lock();
        if inner.revoked {
            return 0;
        }
        let left = inner.jobs.len() / 2;
        let taken = inner.jobs.len() - left;
        // The later half: the first is what the owner takes next.
        batch.extend(inner.jobs.drain(left..));
        // Relaxed: see `waiting`.
        self.len.store(left, Ordering::Relaxed);
        taken
    }

    /// R1. All that is not running comes to `unrun`; whether something is.
    pub fn revoke(&self, unrun: &mut Vec<J>) -> bool {
        let mut spin = Spin::new();
        loop {
            let mut inner = self.inner.lock();
            inner.revoked = true;
            let jobs = std::mem::take(&mut inner.jobs);
            self.len.store(0, Ordering::Relaxed);
            let (running, filling) = (inner.running, inner.filling);
            drop(inner);
            unrun.extend(jobs);
            if !filling {
                return running;
            }
            spin.once();
        }
    }

    /// Whether a job is being run.
    pub fn is_running(&self) -> bool {
        self.inner.lock().running
    }
}
