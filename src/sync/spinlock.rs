//! A spinlock with bounded back-off that ends in sleeping.
//!
//! # Why not a mutex
//!
//! A shard is locked for some tens of nanoseconds. Unlocking here is one plain store, where a mutex that must know
//! whether somebody sleeps needs a read-modify-write; that is a third of the price of the whole critical section.
//! The cost of the saving: a sleeper may miss its wake-up, so every sleep is bounded by a timeout.
//!
//! # Protocol
//!
//! ```text
//! lock    L1  CAS state FREE -> LOCKED (Acquire); done if it succeeds
//!         L2  spin, then yield, re-reading state before each new CAS
//!         L3  sleepers += 1; look at state once more; sleep on the condition variable, at most MAX_SLEEP
//!         L4  sleepers -= 1; back to L1
//! unlock  U1  store state FREE (Release)
//!         U2  if sleepers is not 0, wake one
//! look    K1  as L1
//!         K2  sleepers += 1; CAS again and again, at most IMPATIENT times; sleepers -= 1; if none has succeeded, L2
//!         K3  state := LOOKED
//! ```
//!
//! A look is a critical section that changes nothing and comes once in a thousand of the others, from a thread that has no other use for the lock.
//! Whoever has found the lock to be [looked at](SpinLock::is_looked_at) knows that it is worth waiting for: its owner will not be back. And whoever
//! looks hurries: a thread that takes the lock again as soon as it has freed it, all in its own cache, may do so for microseconds
//! before another one sees the lock free. In K2 it counts as a sleeper, so that each U2 goes the long way, to wake somebody, with the lock
//! free meanwhile: that is time enough.
//!
//! U1 and U2 touch two words without a fence between them. If U2 reads 0 while a sleeper is between L3's two steps,
//! the wake-up is missed and that sleeper tries again after `MAX_SLEEP`. Exclusion never depends on it.
//!
//! Not fair: a newcomer may overtake a sleeper. The lock is never held across user code, allocation or a system call,
//! so whoever holds it is either running or was preempted by the kernel. One user departs from it, and says why: the trays of
//! the worker pool, whose thieves call for a barrier under it (`pool::tray`).

#![allow(unsafe_code)]

use std::{
    fmt,
    mem::ManuallyDrop,
    ops::{Deref, DerefMut},
};

use super::{
    Condvar, MutPtr, Mutex, Spin, UnsafeCell,
    atomic::{AtomicU32, Ordering},
};

const FREE: u32 = 0;
const LOCKED: u32 = 1;
/// Locked, by somebody who only looks.
#[cfg(any(feature = "telemetry", loom))]
const LOOKED: u32 = 2;

/// Attempts of a look that make the owner's way longer. A hundred times what it needs if the owner runs; if not, there is no hurry.
#[cfg(any(feature = "telemetry", loom))]
const IMPATIENT: u32 = if cfg!(any(loom, shuttle)) { 1 } else { 1_000 };

/// Failed attempts before a thread goes to sleep: six that spin, four that yield.
const SLEEP_AFTER: u32 = Spin::YIELD_AFTER + 4;

#[cfg(any(loom, shuttle))]
std::thread_local! {
    /// [`SLEEP_AFTER`], which no model is long enough for, unless the model has asked for less. All threads of a model are one.
    static PATIENCE: std::cell::Cell<u32> = const { std::cell::Cell::new(SLEEP_AFTER) };
    /// How often somebody has lain down.
    static LAIN_DOWN: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// From now on whoever finds a lock taken in this model lies down at once.
#[cfg(any(loom, shuttle))]
pub fn lie_down_at_once() {
    PATIENCE.set(0);
}

/// How often somebody has lain down in this model, in all its executions.
#[cfg(any(loom, shuttle))]
pub fn lain_down() -> u64 {
    LAIN_DOWN.get()
}

/// The longest sleep before another attempt, and so the price of a missed wake-up.
#[cfg(not(any(loom, shuttle)))]
const MAX_SLEEP: std::time::Duration = std::time::Duration::from_micros(500);

/// Mutual exclusion for critical sections of some tens of nanoseconds.
///
/// Blocking: a thread waits while another holds the lock; it spins, then yields, then sleeps. A panic while the lock
/// is held frees it; what it guards must keep its own invariants (no user code runs under it).
#[repr(C)]
pub struct SpinLock<T> {
    state: AtomicU32,
    sleepers: AtomicU32,
    value: UnsafeCell<T>,
    bed: Mutex<()>,
    alarm: Condvar,
}

// SAFETY: the lock hands out `&mut T` to one thread at a time, so sending `T` between threads is all it takes.
unsafe impl<T: Send> Send for SpinLock<T> {}
// SAFETY: as above; a shared `SpinLock<T>` gives no unguarded access to `T`.
unsafe impl<T: Send> Sync for SpinLock<T> {}

impl<T> SpinLock<T> {
    /// A free lock around `value`.
    pub fn new(value: T) -> Self {
        SpinLock {
            state: AtomicU32::new(FREE),
            sleepers: AtomicU32::new(0),
            value: UnsafeCell::new(value),
            bed: Mutex::new(()),
            alarm: Condvar::new(),
        }
    }

    /// Takes the lock if it is free. Wait-free.
    #[inline]
    pub fn try_lock(&self) -> Option<SpinGuard<'_, T>> {
        // Acquire: pairs with the Release store in `drop` of the guard.
        // - it reads FREE from that store: it also sees all that was written under the lock;
        // - it reads LOCKED: nothing is read, nothing is claimed (Relaxed on failure).
        self.state
            .compare_exchange(FREE, LOCKED, Ordering::Acquire, Ordering::Relaxed)
            .ok()
            .map(|_| SpinGuard { value: ManuallyDrop::new(self.value.get_mut()), lock: self })
    }

    /// Takes the lock, waiting for it if need be.
    #[inline]
    pub fn lock(&self) -> SpinGuard<'_, T> {
        match self.try_lock() {
            Some(guard) => guard,
            None => self.lock_contended(),
        }
    }

    /// Takes the lock soon, for a look at what it guards; see the header of the module.
    #[cfg(any(feature = "telemetry", loom))]
    pub fn lock_to_look(&self) -> SpinGuard<'_, T> {
        let guard = self.try_lock().unwrap_or_else(|| self.hurry());
        // Relaxed: who reads it reads a hint, and FREE is for the guard to store.
        self.state.store(LOOKED, Ordering::Relaxed);
        guard
    }

    /// K2.
    #[cfg(any(feature = "telemetry", loom))]
    #[cold]
    fn hurry(&self) -> SpinGuard<'_, T> {
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        let soon = (0..IMPATIENT).find_map(|_| {
            core::hint::spin_loop();
            // Relaxed: as in `lock_contended`.
            (self.state.load(Ordering::Relaxed) == FREE).then(|| self.try_lock()).flatten()
        });
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
        soon.unwrap_or_else(|| self.lock_contended())
    }

    /// Whether somebody has the lock who only looks. A hint.
    #[cfg(any(feature = "telemetry", loom))]
    pub fn is_looked_at(&self) -> bool {
        self.state.load(Ordering::Relaxed) == LOOKED
    }

    #[cold]
    fn lock_contended(&self) -> SpinGuard<'_, T> {
        #[cfg(not(any(loom, shuttle)))]
        let patience = SLEEP_AFTER;
        #[cfg(any(loom, shuttle))]
        let patience = PATIENCE.get();
        let mut spin = Spin::new();
        loop {
            if spin.attempts() < patience {
                spin.once();
            } else {
                self.sleep();
            }
            // Relaxed: a hint that saves a failing CAS, which would take the line from its owner.
            if self.state.load(Ordering::Relaxed) == FREE
                && let Some(guard) = self.try_lock()
            {
                return guard;
            }
        }
    }

    /// L3 and L4. In a model the timeout is what happens first, always: the sleep becomes a schedule point.
    #[cold]
    fn sleep(&self) {
        // Relaxed, here and below: a count that steers a courtesy; see the module header on what a stale read costs.
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        #[cfg(any(loom, shuttle))]
        {
            LAIN_DOWN.set(LAIN_DOWN.get() + 1);
            let mut spin = Spin::new();
            for _ in 0..3 {
                spin.once();
            }
        }
        #[cfg(not(any(loom, shuttle)))]
        {
            let bed = self.bed.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            if self.state.load(Ordering::Relaxed) != FREE {
                drop(self.alarm.wait_timeout(bed, MAX_SLEEP));
            }
        }
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
    }

    /// Threads that have lain down.
    #[cfg(any(loom, shuttle))]
    pub fn sleepers(&self) -> u32 {
        self.sleepers.load(Ordering::Relaxed)
    }

    /// Takes the lock the longest way: lies down first, as a waiter does after `SLEEP_AFTER` failed attempts, which no
    /// model is long enough to reach by itself; also if the lock is free.
    #[cfg(any(loom, shuttle))]
    pub fn lock_sleeping(&self) -> SpinGuard<'_, T> {
        self.sleep();
        self.lock()
    }

    #[cold]
    fn wake_one(&self) {
        // Taking the bed's lock orders this wake-up after a sleeper's last look at the state.
        drop(self.bed.lock());
        self.alarm.notify_one();
    }
}

impl<T> fmt::Debug for SpinLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let locked = self.state.load(Ordering::Relaxed) != FREE;
        f.debug_struct("SpinLock").field("locked", &locked).finish_non_exhaustive()
    }
}

/// Exclusive access to what a [`SpinLock`] guards; frees the lock when dropped, also while unwinding.
#[must_use]
pub struct SpinGuard<'a, T> {
    value: ManuallyDrop<MutPtr<T>>,
    lock: &'a SpinLock<T>,
}

impl<T> Deref for SpinGuard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the guard holds the lock, and the reference borrows the guard.
        unsafe { (*self.value).deref() }
    }
}

impl<T> DerefMut for SpinGuard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard holds the lock, and the reference borrows the guard mutably.
        unsafe { (*self.value).deref() }
    }
}

/// U1 and U2.
impl<T> Drop for SpinGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: dropped once, here, and not used again. Loom's watch on the value must end while we hold the lock.
        unsafe { ManuallyDrop::drop(&mut self.value) };
        // Release: pairs with the Acquire in `try_lock`.
        // - the next owner reads FREE: it sees all that was written under the lock;
        // - it reads LOCKED: it waits.
        self.lock.state.store(FREE, Ordering::Release);
        // Relaxed: see the module header; a missed sleeper wakes by its timeout.
        if self.lock.sleepers.load(Ordering::Relaxed) != 0 {
            self.lock.wake_one();
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::sync::{Arc, thread};

    #[test]
    fn excludes_with_more_threads_than_processors() {
        let lock = Arc::new(SpinLock::new(0u64));
        let threads: Vec<_> = (0..16)
            .map(|_| {
                let lock = Arc::clone(&lock);
                thread::spawn(move || {
                    for _ in 0..5_000 {
                        *lock.lock() += 1;
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("no panic");
        }
        assert_eq!(*lock.lock(), 16 * 5_000);
        assert_eq!(lock.sleepers.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_waiter_sleeps_and_is_let_in() {
        let lock = Arc::new(SpinLock::new(()));
        let guard = lock.lock();
        let waiter = {
            let lock = Arc::clone(&lock);
            thread::spawn(move || drop(lock.lock()))
        };
        while lock.sleepers.load(Ordering::Relaxed) == 0 {
            thread::yield_now();
        }
        assert!(lock.try_lock().is_none());
        drop(guard);
        waiter.join().expect("no panic");
    }

    #[test]
    fn a_panic_frees_the_lock() {
        let lock = Arc::new(SpinLock::new(1));
        let panicking = {
            let lock = Arc::clone(&lock);
            thread::spawn(move || {
                let _guard = lock.lock();
                panic!("while locked");
            })
        };
        assert!(panicking.join().is_err());
        assert_eq!(*lock.try_lock().expect("free"), 1);
    }
}
