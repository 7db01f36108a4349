//! A timer that is one thread.
#![cfg(not(any(loom, shuttle)))]
// The user has asked for this thread, which is what the ban is about; it is not part of any model.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::{
    cmp::Ordering,
    collections::BinaryHeap,
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use super::time::Timer;
use crate::node::quietly;

/// A [`Timer`] that is one thread of its own. The thread ends, and is waited for, when the timer is dropped.
#[derive(Debug)]
pub struct ThreadTimer {
    shared: Arc<Shared>,
    thread: Option<thread::JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    calls: Mutex<Calls>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Calls {
    heap: BinaryHeap<Call>,
    ends: bool,
    number: u64,
}

/// Ordered by its moment, the earliest greatest.
struct Call {
    at: Instant,
    number: u64,
    call: Box<dyn FnOnce() + Send>,
}

impl Shared {
    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut calls = self.calls();
        while !calls.ends {
            let now = Instant::now();
            match calls.heap.peek().map(|call| call.at) {
                Some(at) if at <= now => {
                    let due = calls.heap.pop().expect("just seen");
                    drop(calls);
                    let _ = quietly(due.call);
                    calls = self.calls();
                }
                Some(at) => {
                    let waited = self.changed.wait_timeout(calls, at - now);
                    calls = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
                None => calls = self.changed.wait(calls).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

impl ThreadTimer {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the system starts no thread.
    pub fn new() -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let thread = {
            let shared = Arc::clone(&shared);
            thread::Builder::new().name("leasehold-timer".into()).spawn(move || shared.run())?
        };
        Ok(ThreadTimer { shared, thread: Some(thread) })
    }
}

impl Timer for ThreadTimer {
    fn call_after(&self, after: Duration, call: Box<dyn FnOnce() + Send>) {
        // Later than any program lives: never.
        let Some(at) = Instant::now().checked_add(after) else { return };
        let mut calls = self.shared.calls();
        calls.number += 1;
        let number = calls.number;
        calls.heap.push(Call { at, number, call });
        drop(calls);
        self.shared.changed.notify_one();
    }
}

impl Drop for ThreadTimer {
    fn drop(&mut self) {
        self.shared.calls().ends = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take()
            // The last owner of a scheduler may be a call of its own timer.
            && thread.thread().id() != thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

impl Ord for Call {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl PartialOrd for Call {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Call {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Call {}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Call").field("at", &self.at).finish_non_exhaustive()
    }
}
