//! Those who wait for room in a full queue.
//!
//! ```text
//!   submitter                                        worker
//!     W1  push: full                                   F1  pop: there is room
//!     W2  onto the list, waiting += 1                  F2  light barrier
//!     W3  heavy barrier                                F3  read the count: nobody: done
//!     W4  push once more: full                         F4  the queue is at most half full: off the list, as many as
//!     W5  wait to be rung; then W1                         there is room for, waiting -= 1 each; ring them
//! ```
//!
//! **Nobody waits for ever.** W3 and F2 are a full fence on both sides: if W4 finds the queue full, every pop after that
//! finds somebody waiting, and one of them finds the queue half empty, because all that is in it is popped. So nobody is
//! woken for each single place: a submitter that is as fast as the workers would be, at every job.
//!
//! Those who wait are woken in the order in which they came. Who was woken tries again, and may find that a newcomer was
//! faster; then it waits at the end of the list.
//!
//! **Who gives up** leaves the list. If it was rung already, it rings the next one in its place.

use std::{collections::VecDeque, task::Waker, time::Duration};

use crate::{
    node::quietly,
    sync::{
        Arc, CachePadded, Condvar, Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
        barrier, wait_for,
    },
};

struct Bell {
    rung: bool,
    waker: Option<Waker>,
}

/// One who waits.
pub struct Waiter {
    bell: Mutex<Bell>,
    alarm: Condvar,
}

impl Waiter {
    fn bell(&self) -> MutexGuard<'_, Bell> {
        // No code that can panic runs under it.
        self.bell.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn ring(&self) {
        let mut bell = self.bell();
        bell.rung = true;
        let waker = bell.waker.take();
        drop(bell);
        self.alarm.notify_one();
        if let Some(waker) = waker {
            // User code. A panic must not reach the worker.
            let _ = quietly(|| waker.wake());
        }
    }

    /// W5, for a thread. May come back for nothing.
    pub fn sleep(&self, limit: Option<Duration>) {
        let mut bell = self.bell();
        if !bell.rung {
            bell = wait_for(&self.alarm, bell, limit);
        }
        drop(bell);
    }

    /// W5, for a task: whether it was rung; if not, `waker` is.
    pub fn rung_or_leave(&self, waker: &Waker) -> bool {
        // Cloned and dropped with the mutex free: both are user code.
        let new = waker.clone();
        let mut bell = self.bell();
        let rung = bell.rung;
        let useless = if rung { Some(new) } else { bell.waker.replace(new) };
        drop(bell);
        let _ = quietly(|| drop(useless));
        rung
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let waker = self.bell.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner).waker.take();
        let _ = quietly(|| drop(waker));
    }
}

/// All who wait.
#[derive(Default)]
pub struct Room {
    waiting: CachePadded<AtomicUsize>,
    list: Mutex<VecDeque<Arc<Waiter>>>,
}

impl Room {
    fn list(&self) -> MutexGuard<'_, VecDeque<Arc<Waiter>>> {
        // No code that can panic runs under it.
        self.list.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// W2 and W3. `false` if nothing is ordered, and whoever waits must look again by itself before long.
    pub fn wait(&self, waker: Option<Waker>) -> (Arc<Waiter>, bool) {
        barrier::prepare();
        let waiter =
            Arc::new(Waiter { bell: Mutex::new(Bell { rung: false, waker }), alarm: Condvar::new() });
        let mut list = self.list();
        list.push_back(Arc::clone(&waiter));
        // Relaxed, here and below: W3 and F2 order it.
        self.waiting.fetch_add(1, Ordering::Relaxed);
        drop(list);
        (waiter, barrier::heavy())
    }

    /// Leaves the list. `served`: the waiter has what it waited for, or was rung and has tried.
    pub fn leave(&self, waiter: &Arc<Waiter>, served: bool) {
        let mut list = self.list();
        let at = list.iter().position(|other| Arc::ptr_eq(other, waiter));
        let next = match at {
            Some(at) => {
                // Its waker is user code: dropped with the last reference, the caller's.
                let _ = list.remove(at);
                self.waiting.fetch_sub(1, Ordering::Relaxed);
                None
            }
            None if !served => self.take(&mut list),
            None => None,
        };
        drop(list);
        if let Some(next) = next {
            next.ring();
        }
    }

    fn take(&self, list: &mut VecDeque<Arc<Waiter>>) -> Option<Arc<Waiter>> {
        let next = list.pop_front()?;
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        Some(next)
    }

    /// F2 to F4. `free` says for how many there is room, 0 if the queue is more than half full.
    #[inline]
    pub fn freed(&self, free: impl FnOnce() -> usize) {
        barrier::light();
        // Relaxed: the barrier orders it.
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.ring(free());
        }
    }

    /// Rings so many, in order.
    #[cold]
    pub fn ring(&self, count: usize) {
        for _ in 0..count {
            let next = self.take(&mut self.list());
            match next {
                Some(next) => next.ring(),
                None => return,
            }
        }
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}
