//! Awaiting a job's end, as a thread or as a task.
//!
//! One cell, two owners: whoever has the job, and the handle. A mutex around what there is and who is to be woken; the waker is
//! taken out and called with the mutex free.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use super::job::Ending;
use crate::{
    node::{quietly, wake},
    sync::{Arc, Clock, Condvar, MonotonicClock, Mutex, MutexGuard, wait_for},
};

/// A job that has ended.
pub struct Finished<T> {
    /// How.
    pub ending: Ending,
    /// What it was about; none only if whoever got the job back has taken it out, or has made another handle of it.
    pub payload: Option<T>,
}

impl<T> Finished<T> {
    /// Drops it where nobody is interested in a panic: one by one, for a second panic on the way from a first one would end the process.
    fn discard(self) {
        let Finished { ending, payload } = self;
        let _ = quietly(|| drop(payload));
        let _ = quietly(|| drop(ending));
    }
}

impl<T> fmt::Debug for Finished<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Finished").field("ending", &self.ending).finish_non_exhaustive()
    }
}

struct State<T> {
    finished: Option<Finished<T>>,
    waker: Option<Waker>,
    /// Nobody will come for it.
    abandoned: bool,
}

pub(super) struct Cell<T> {
    state: Mutex<State<T>>,
    ended: Condvar,
    /// Who awaits it is given the payload. Here and not in the job: each job is moved several times, and few have a handle.
    pub returns: bool,
}

impl<T> Cell<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        // No code that can panic runs under it.
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Called once, by whoever ends the job.
    pub fn finish(&self, finished: Finished<T>) {
        let mut state = self.state();
        let unheard = if state.abandoned {
            Some(finished)
        } else {
            state.finished = Some(finished);
            None
        };
        let waker = state.waker.take();
        drop(state);
        self.ended.notify_one();
        if let Some(unheard) = unheard {
            unheard.discard();
        }
        if let Some(waker) = waker {
            wake(waker);
        }
    }
}

pub(super) fn pair<T>(returns: bool) -> (Arc<Cell<T>>, JobHandle<T>) {
    let state = State { finished: None, waker: None, abandoned: false };
    let cell = Arc::new(Cell { state: Mutex::new(state), ended: Condvar::new(), returns });
    (Arc::clone(&cell), JobHandle { cell })
}

/// Awaits a job: a thread by [`wait`](JobHandle::wait), a task by `.await`.
///
/// Every job ends, at the latest when it is dropped, and its handle is told. Dropping the handle leaves the job alone.
///
/// *Blocking*, by a mutex that is held for a few moves.
#[must_use]
pub struct JobHandle<T> {
    cell: Arc<Cell<T>>,
}

impl<T> JobHandle<T> {
    /// Whether the job has ended.
    pub fn is_finished(&self) -> bool {
        self.cell.state().finished.is_some()
    }

    /// Waits until the job has ended.
    pub fn wait(self) -> Finished<T> {
        let mut state = self.cell.state();
        loop {
            if let Some(finished) = state.finished.take() {
                return finished;
            }
            state = wait_for(&self.cell.ended, state, None);
        }
    }

    /// As [`wait`](JobHandle::wait), for so long at most.
    ///
    /// # Errors
    /// The handle, if the job had not ended by then.
    pub fn wait_timeout(self, limit: Duration) -> Result<Finished<T>, Self> {
        let clock = MonotonicClock::new();
        let until = clock.now().saturating_add(limit);
        let mut state = self.cell.state();
        loop {
            if let Some(finished) = state.finished.take() {
                return Ok(finished);
            }
            let left = until.saturating_since(clock.now());
            if left.is_zero() {
                drop(state);
                return Err(self);
            }
            state = wait_for(&self.cell.ended, state, Some(left));
        }
    }
}

/// Cancel-safe: what a dropped future does not take is dropped with the job's cell.
///
/// # Panics
/// If it is polled after it was ready.
impl<T> Future for JobHandle<T> {
    type Output = Finished<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Finished<T>> {
        // Cloned with the mutex free: it is user code.
        let new = context.waker().clone();
        let mut state = self.cell.state();
        let useless = match state.finished.take() {
            Some(finished) => {
                state.abandoned = true;
                drop(state);
                let _ = quietly(|| drop(new));
                return Poll::Ready(finished);
            }
            None => {
                assert!(!state.abandoned, "polled after it was ready");
                state.waker.replace(new)
            }
        };
        drop(state);
        let _ = quietly(|| drop(useless));
        Poll::Pending
    }
}

impl<T> Drop for JobHandle<T> {
    fn drop(&mut self) {
        let mut state = self.cell.state();
        state.abandoned = true;
        let (finished, waker) = (state.finished.take(), state.waker.take());
        drop(state);
        if let Some(finished) = finished {
            finished.discard();
        }
        let _ = quietly(|| drop(waker));
    }
}

impl<T> fmt::Debug for JobHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobHandle").field("is_finished", &self.is_finished()).finish()
    }
}
