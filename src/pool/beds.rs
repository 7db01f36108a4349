//! Where idle workers sleep, and who wakes them.
//!
//! An idle worker costs nothing: it sleeps until it is woken, without a time limit.
//!
//! # Steps
//!
//! ```text
//!   whoever brings work                              a worker that found none
//!     N1  the work is where workers look               B1  under the mutex: onto the list, asleep += 1
//!     N2  light barrier: the push's own                B2  heavy barrier
//!     N3  read the count: all asleep? wake one:        B3  look for work once more. Found: under the mutex off the
//!         under the mutex off the list, asleep -= 1        list, asleep -= 1 (or, if that has been done: the bell
//!     N4  ring its bell                                    has rung or will); work
//!                                                      B4  wait for the bell
//! ```
//!
//! **Nothing is left lying while all sleep.** N2 and B2 are a full fence on both sides (`sync::barrier`): either N3 sees the worker
//! asleep, or B3 sees the work. If N3 sees somebody awake who then goes to sleep, his B3 comes after that N1. So of the
//! workers there are, the last one to lie down finds what was brought before, and what is brought later wakes one.
//!
//! N2 is P6 of `queue::segmented`, between a push and all that follows it. The buckets have their lock in its place: a pop of B3 that did not
//! find the work held it before the push did, so that N3 sees whatever that worker did before, lying down included.
//!
//! **Who is woken counts as awake at once,** by whoever takes it off the list. So a burst wakes one worker, not all; more are woken if
//! there is work enough for them (`worker`), and by the keeper, if one turns out to be held up (`keeper`).
//!
//! The last to lie down is the first to be woken: its lines are still in a cache, and the others stay idle, so that surplus ones can be
//! seen to be so.

use std::time::Duration;

use crate::sync::{
    CachePadded, Condvar, Mutex, MutexGuard, Timestamp,
    atomic::{AtomicU64, Ordering},
    barrier, wait_for,
};

const WORKER: u64 = 1 << 32;
const ASLEEP: u64 = 1;

/// How many workers there are, and how many of them sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    pub workers: usize,
    pub asleep: usize,
}

struct Bed {
    bell: Mutex<Bell>,
    rung: Condvar,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Bell {
    Silent,
    /// There may be work.
    Rung,
    /// The worker is to end.
    Dismissed,
}

/// One who sleeps.
#[derive(Clone, Copy)]
struct Sleeper {
    worker: usize,
    /// `None` if the clock has failed.
    since: Option<Timestamp>,
}

/// The beds of a pool's workers.
pub struct Beds {
    /// Workers, times `WORKER`, and those of them that sleep. Changed under the mutex.
    count: CachePadded<AtomicU64>,
    sleepers: Mutex<Vec<Sleeper>>,
    beds: Box<[Bed]>,
}

impl Beds {
    /// Beds for so many workers, of whom none is there yet.
    pub fn new(most: usize) -> Self {
        Beds {
            count: CachePadded::new(AtomicU64::new(0)),
            sleepers: Mutex::new(Vec::with_capacity(most)),
            beds: (0..most).map(|_| Bed { bell: Mutex::new(Bell::Silent), rung: Condvar::new() }).collect(),
        }
    }

    fn sleepers(&self) -> MutexGuard<'_, Vec<Sleeper>> {
        // No code that can panic runs under it.
        self.sleepers.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// How many there are. The caller has put a barrier before it, if it matters.
    #[inline]
    pub fn count(&self) -> Count {
        // Relaxed: N3; the barrier orders it.
        let count = self.count.load(Ordering::Relaxed);
        Count { workers: (count / WORKER) as usize, asleep: (count % WORKER) as usize }
    }

    /// A worker is there, awake. How many there were before.
    pub fn enlist(&self) -> usize {
        // Relaxed, here and below: the count orders nothing by itself; see N2, B2.
        (self.count.fetch_add(WORKER, Ordering::Relaxed) / WORKER) as usize
    }

    /// A worker, awake and not dismissed, is there no more. What it might have been counted on for must be seen to: as after B2.
    pub fn discharge(&self) {
        self.count.fetch_sub(WORKER, Ordering::Relaxed);
    }

    /// B1 and B2. Answers `false` if nothing is ordered, and the worker must look again by itself before long. One who does not know the moment sleeps
    /// since [`dismiss_one`](Self::dismiss_one) has come to it.
    pub fn lie_down(&self, worker: usize, now: Option<Timestamp>) -> bool {
        let mut sleepers = self.sleepers();
        sleepers.push(Sleeper { worker, since: now });
        self.count.fetch_add(ASLEEP, Ordering::Relaxed);
        drop(sleepers);
        barrier::heavy()
    }

    /// B3, if there is work after all. Whether the worker has been dismissed, and is counted no more.
    pub fn get_up(&self, worker: usize) -> bool {
        let mut sleepers = self.sleepers();
        let at = sleepers.iter().position(|sleeper| sleeper.worker == worker);
        if let Some(at) = at {
            sleepers.remove(at);
            self.count.fetch_sub(ASLEEP, Ordering::Relaxed);
            return false;
        }
        drop(sleepers);
        // Somebody has taken it off the list, and rings.
        self.sleep(worker)
    }

    /// B4. Whether the worker has been dismissed.
    pub fn sleep(&self, worker: usize) -> bool {
        let bed = &self.beds[worker];
        let mut bell = bed.bell.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        while *bell == Bell::Silent {
            bell = wait_for(&bed.rung, bell, None);
        }
        std::mem::replace(&mut *bell, Bell::Silent) == Bell::Dismissed
    }

    /// B4 and B3 in one, where nothing is ordered: gets up after `limit` at the latest. Whether the worker has been dismissed.
    #[cold]
    pub fn doze(&self, worker: usize, limit: Duration) -> bool {
        let bed = &self.beds[worker];
        let bell = bed.bell.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if *bell == Bell::Silent {
            drop(wait_for(&bed.rung, bell, Some(limit)));
        } else {
            drop(bell);
        }
        self.get_up(worker)
    }

    /// N4.
    fn ring(&self, worker: usize, how: Bell) {
        let bed = &self.beds[worker];
        *bed.bell.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = how;
        bed.rung.notify_one();
    }

    /// N3 and N4: wakes one, if one sleeps. Blocking, on a mutex that is held for a few moves.
    pub fn wake_one(&self) -> bool {
        let mut sleepers = self.sleepers();
        let Some(sleeper) = sleepers.pop() else { return false };
        self.count.fetch_sub(ASLEEP, Ordering::Relaxed);
        drop(sleepers);
        self.ring(sleeper.worker, Bell::Rung);
        true
    }

    /// Wakes everybody.
    pub fn wake_all(&self) {
        while self.wake_one() {}
    }

    /// Sends the one home that has slept longest, if that is since `moment` or longer, and more than `least` are there. It is counted
    /// no more. Answers since when it slept, or the one that would be next; none if nobody may go.
    pub fn dismiss_one(&self, now: Timestamp, moment: Option<Timestamp>, least: usize) -> Option<Timestamp> {
        let mut sleepers = self.sleepers();
        let first = sleepers.first_mut()?;
        if self.count().workers <= least {
            return None;
        }
        let since = *first.since.get_or_insert(now);
        if moment.is_some_and(|moment| since <= moment) {
            let first = sleepers.remove(0);
            // Both at once, under the mutex: two that idle for too long at the same time are not both counted as surplus.
            self.count.fetch_sub(WORKER + ASLEEP, Ordering::Relaxed);
            drop(sleepers);
            self.ring(first.worker, Bell::Dismissed);
        }
        Some(since)
    }
}
