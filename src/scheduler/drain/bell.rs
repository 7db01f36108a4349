//! How one who waits for a drain is woken: a task by its waker, a thread by a condition variable of its own, so that no stray wake-up
//! is left with the user's thread.

use std::{task::Waker, time::Duration};

use crate::{
    node::wake,
    sync::{Arc, Condvar, Mutex, wait_for},
};

/// Rings once.
pub enum Bell {
    Task(Waker),
    Thread(Arc<Sleeper>),
}

impl Bell {
    pub fn ring(self) {
        match self {
            // User code. A panic must not reach whoever happens to return something.
            Bell::Task(waker) => wake(waker),
            Bell::Thread(sleeper) => sleeper.wake(),
        }
    }
}

/// A thread that sleeps.
pub struct Sleeper {
    rung: Mutex<bool>,
    alarm: Condvar,
}

impl Sleeper {
    pub fn new() -> Self {
        Sleeper { rung: Mutex::new(false), alarm: Condvar::new() }
    }

    fn wake(&self) {
        *self.rung.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = true;
        self.alarm.notify_one();
    }

    /// Sleeps until woken, or `limit` is over. May wake for nothing.
    pub fn sleep(&self, limit: Option<Duration>) {
        let mut rung = self.rung.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if !*rung {
            rung = wait_for(&self.alarm, rung, limit);
        }
        *rung = false;
    }
}
