//! What a worker has taken and not begun, where the others see it.
//!
//! A worker takes a batch out of the queue, so that the queue's shared words move once for many jobs, and runs one job after another.
//! The rest of the batch lies on its *tray*: anybody may take from there while it is busy, so a long job hides nothing.
//!
//! ```text
//!     slots   | begun ... | the worker's next ...      | given away to thieves |
//!             0           front ->                  <- back              what was filled in
//! ```
//!
//! `front` is the worker's: it begins the job before it. `back` is changed under the lock only: by the worker when it has filled the
//! tray, and by thieves.
//!
//! # Steps
//!
//! ```text
//!   worker                                            thief, or the end
//!     T1  front += 1                                    S1  lock; the job at `back` is not wanted less than half: back := lower
//!     T2  light barrier                                 S2  heavy barrier
//!     T3  front <= back: the job before it is begun     S3  read front; back := front, if that is higher
//!     T4  otherwise lock: a job before `back` after     S4  what is from there to the old back is the thief's
//!         all: as T3; none: RESTING
//!     T5  lock: FILLING; take a batch elsewhere into
//!         the slots
//!     T6  lock: WORKING, front := 1, back := so many:
//!         the first is begun; nothing: RESTING
//! ```
//!
//! **Each job has one taker.** T2 and S2 are a full fence on both sides (`sync::barrier`). If T2 comes first, S3 reads the worker's
//! new `front`, and leaves it what is before it. If S2 comes first, T3 reads the lower `back`, and whatever is not before it is settled under
//! the lock, where T4 finds what S3 has left. So a worker begins a job with a store and a load of its own lines, and a thief, who comes seldom,
//! pays for both with a system call; it comes only if the worker seems to be held up (`worker`).
//!
//! **The end** (R1) is a thief that takes everything and leaves the tray `revoked`: from then on T4, T5 and T6 begin nothing. A job that is
//! before `front` at S3 has begun, or is about to: it counts as running. While the worker is FILLING, jobs are on their way to the tray, and
//! R1 looks again: it lasts as long as a pop, in which no user code runs: wakers, clocks and what a reclaimer frees come after T6, while the
//! tray is WORKING or RESTING. So whoever runs such code, and what that code waits for, can end the pool. A worker that ends it between T5 and
//! T6 all the same does not wait for itself.
//!
//! While the tray is RESTING its worker begins nothing before it has had the lock, so whoever has it needs no S2.
//!
//! **The lock** is held over S2, a system call of some microseconds, although a spinlock is meant for tens of nanoseconds. Of those who may
//! wait for it, other thieves do not: they go elsewhere (`try_lock`). The worker comes to it at T4, when it has run all that it is left, and what it
//! would find there is what is being decided; it spins, yields, and at last sleeps. R1 comes once in a pool's life.
//!
//! # Who may touch a slot
//!
//! 1. The worker, which has the tray's only [`Hand`]: all slots while it is FILLING; the slot before `front` while it runs that job.
//! 2. Whoever holds the lock: those from `front` (S3) to `back`.
//!
//! The protocol, without the barrier on one side only, is that of Cilk's deque (M. Frigo, C. Leiserson, K. Randall, "The implementation
//! of the Cilk-5 multithreaded language", 1998).

#![allow(unsafe_code)]

use std::mem::MaybeUninit;

use crate::sync::{
    CachePadded, Spin, SpinLock, UnsafeCell,
    atomic::{AtomicBool, AtomicUsize, Ordering},
    barrier,
};

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// The worker sleeps, or there is none.
    Resting,
    /// Jobs are on their way to the tray.
    Filling,
    /// The worker runs a job, or is between two.
    Working,
}

struct Inner {
    state: State,
    revoked: bool,
}

/// The jobs of one worker.
pub struct Tray<J> {
    /// Written by the worker alone.
    front: CachePadded<AtomicUsize>,
    shared: CachePadded<Shared>,
    slots: Box<[UnsafeCell<MaybeUninit<J>>]>,
    /// Somebody has the hand.
    taken: AtomicBool,
}

struct Shared {
    /// Changed under the lock.
    back: AtomicUsize,
    inner: SpinLock<Inner>,
}

// SAFETY: jobs go from one thread to another, by the rules of the module; each is accessed by one thread at a time.
unsafe impl<J: Send> Send for Tray<J> {}
// SAFETY: as above.
unsafe impl<J: Send> Sync for Tray<J> {}

/// What a worker finds on its own tray.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// A job, begun: [`Hand::run`].
    Run,
    /// Nothing: [`fill`](Hand::fill) it with what is found elsewhere.
    Fill,
    /// Nothing is begun any more.
    Revoked,
}

/// A tray's worker.
pub struct Hand<'a, J> {
    tray: &'a Tray<J>,
    /// As `tray.front`, but for what T1 has asked for in vain.
    front: usize,
    /// Jobs in the slots that T6 has not published.
    filled: usize,
    /// The job before `front` is begun, and not over.
    running: bool,
}

impl<J> Tray<J> {
    /// An empty one, for up to `capacity` jobs.
    pub fn new(capacity: usize) -> Self {
        Tray {
            front: CachePadded::new(AtomicUsize::new(0)),
            shared: CachePadded::new(Shared {
                back: AtomicUsize::new(0),
                inner: SpinLock::new(Inner { state: State::Resting, revoked: false }),
            }),
            slots: (0..capacity).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect(),
            taken: AtomicBool::new(false),
        }
    }

    /// How many jobs wait on it, as far as is known.
    pub fn waiting(&self) -> usize {
        // Relaxed, here and below: a hint; the lock decides.
        self.shared.back.load(Ordering::Relaxed).saturating_sub(self.front())
    }

    /// Whether more is on its way to it, or on it, than its worker has begun. Blocking, on the lock.
    pub fn has_more(&self) -> bool {
        let inner = self.shared.inner.lock();
        !inner.revoked && (inner.state == State::Filling || self.waiting() > 0)
    }

    /// How far the worker is; a hint that tells whether it is held up.
    pub fn front(&self) -> usize {
        self.front.load(Ordering::Relaxed)
    }

    /// The worker's hand; none if somebody has it.
    pub fn hand(&self) -> Option<Hand<'_, J>> {
        // Relaxed: tells that nobody has the hand. What the last one has left it has left under the lock, which it had taken before it
        // said so; it is read under the lock here.
        if self.taken.swap(true, Ordering::Relaxed) {
            return None;
        }
        let mut inner = self.shared.inner.lock();
        if self.waiting() > 0 {
            // Left by a worker that has come to grief.
            inner.state = State::Working;
        }
        Some(Hand { tray: self, front: self.front(), filled: 0, running: false })
    }

    /// S1 to S4, under the lock: leaves the first `share`-th part, or nothing for 0. Answers the slots that are the caller's, unless
    /// nothing is ordered.
    fn take(&self, state: State, share: usize) -> Option<std::ops::Range<usize>> {
        // Relaxed, here and below: the lock orders `back` among those who change it; S2 orders it with the worker.
        let old = self.shared.back.load(Ordering::Relaxed);
        // An old `front` makes it look more, never less.
        let waiting = old.saturating_sub(self.front());
        if waiting == 0 {
            return Some(old..old);
        }
        let lower = old - waiting + waiting.checked_div(share).unwrap_or(0);
        self.shared.back.store(lower, Ordering::Relaxed);
        let ordered = state == State::Resting || barrier::heavy();
        // S3. Not further than there are jobs: the worker may have asked for one that is not there.
        let new = if ordered { lower.max(self.front()).min(old) } else { old };
        self.shared.back.store(new, Ordering::Relaxed);
        ordered.then_some(new..old)
    }

    /// # Safety
    /// The slot is the caller's, and holds a job, which nobody takes again.
    unsafe fn read(&self, index: usize) -> J {
        self.slots[index].with(|slot| {
            // SAFETY: the caller's promise.
            unsafe { (*slot).assume_init_read() }
        })
    }

    /// R1. All that has not begun comes to `unrun`; whether something has, and is not over. `own`: the caller is the tray's worker, in the
    /// middle of something; what it is just taking then counts as begun, and is dropped with the pool. What the worker is in the middle of is not asked for
    /// unless it `counts`.
    ///
    /// If the kernel refuses the barrier that it has promised, what is on the tray of a worker that works counts as begun.
    pub fn revoke(&self, unrun: &mut Vec<J>, own: bool, counts: bool) -> bool {
        barrier::prepare();
        let mut spin = Spin::new();
        loop {
            // Nothing is allocated under the lock.
            unrun.reserve(self.slots.len());
            let mut inner = self.shared.inner.lock();
            inner.revoked = true;
            if inner.state != State::Filling {
                let jobs = self.take(inner.state, 0);
                let waits = jobs.is_none() && self.waiting() > 0;
                for index in jobs.unwrap_or_default() {
                    // SAFETY: rule 2, and S4.
                    unrun.push(unsafe { self.read(index) });
                }
                return waits || inner.state == State::Working && counts;
            }
            drop(inner);
            if own {
                return true;
            }
            spin.once();
        }
    }
}

impl<J> Hand<'_, J> {
    /// T1 to T4. The last job, if there was one, is over.
    #[inline]
    pub fn begin(&mut self) -> Next {
        let front = self.front + 1;
        // T1. Relaxed, here and at T3: T2 orders them.
        self.tray.front.store(front, Ordering::Relaxed);
        // T2.
        barrier::light();
        // T3.
        if front <= self.tray.shared.back.load(Ordering::Relaxed) {
            self.front = front;
            self.running = true;
            return Next::Run;
        }
        self.settle()
    }

    /// T4.
    #[cold]
    fn settle(&mut self) -> Next {
        let mut inner = self.tray.shared.inner.lock();
        // Relaxed: under the lock.
        if self.front < self.tray.shared.back.load(Ordering::Relaxed) {
            self.front += 1;
            self.running = true;
            return Next::Run;
        }
        self.front = 0;
        self.tray.front.store(0, Ordering::Relaxed);
        self.tray.shared.back.store(0, Ordering::Relaxed);
        inner.state = State::Resting;
        if inner.revoked { Next::Revoked } else { Next::Fill }
    }

    /// T5. [`Next::Fill`] was the last answer: from here to [`filled`](Hand::filled) jobs may be [`put`](Hand::put) on the tray, and no user
    /// code may run. `false` if nothing is begun any more.
    #[must_use]
    pub fn fill(&mut self) -> bool {
        let mut inner = self.tray.shared.inner.lock();
        if inner.revoked {
            return false;
        }
        inner.state = State::Filling;
        true
    }

    /// Runs `f` with the job that [`begin`](Hand::begin) has begun, and drops what is left of it.
    ///
    /// # Panics
    /// If there is none; and with `f`.
    #[inline]
    pub fn run<R>(&mut self, f: impl FnOnce(&mut J) -> R) -> R {
        /// Drops the job, whatever `f` does.
        struct End<'a, J>(&'a mut MaybeUninit<J>);
        impl<J> Drop for End<'_, J> {
            fn drop(&mut self) {
                // SAFETY: it was there, and nobody comes to this slot again before it is filled anew.
                unsafe { self.0.assume_init_drop() }
            }
        }
        assert!(std::mem::take(&mut self.running), "no job was begun");
        self.tray.slots[self.front - 1].with_mut(|slot| {
            // SAFETY: rule 1; T3 and T4 begin jobs only where there is one.
            let end = End(unsafe { &mut *slot });
            // SAFETY: as above.
            f(unsafe { end.0.assume_init_mut() })
        })
    }

    /// T5: puts a job on the tray.
    ///
    /// # Panics
    /// If there is no room.
    #[inline]
    pub fn put(&mut self, job: J) {
        self.tray.slots[self.filled].with_mut(|slot| {
            // SAFETY: rule 1.
            unsafe { (*slot).write(job) };
        });
        self.filled += 1;
    }

    /// T6. What was put on the tray is there, and the first of it is begun. [`Next::Fill`] if that is nothing: the worker takes nothing for now.
    pub fn filled(&mut self) -> Next {
        let mut inner = self.tray.shared.inner.lock();
        let filled = std::mem::take(&mut self.filled);
        // Relaxed, both: under the lock.
        self.tray.shared.back.store(filled, Ordering::Relaxed);
        if inner.revoked || filled == 0 {
            // For R1, which waits for it.
            inner.state = State::Resting;
            return if inner.revoked { Next::Revoked } else { Next::Fill };
        }
        inner.state = State::Working;
        self.front = 1;
        self.tray.front.store(1, Ordering::Relaxed);
        self.running = true;
        Next::Run
    }

    /// S1 to S4: moves half of the jobs of another tray, at least one if there is one, to this one, which is being filled. Takes nothing
    /// if somebody else is at it. The caller has prepared for barriers.
    pub fn steal(&mut self, victim: &Tray<J>) -> usize {
        let Some(inner) = victim.shared.inner.try_lock() else { return 0 };
        if inner.revoked || inner.state == State::Filling {
            return 0;
        }
        // The later half: the first is what the owner takes next.
        let jobs = victim.take(inner.state, 2).unwrap_or_default();
        let taken = jobs.len();
        for index in jobs {
            // SAFETY: rule 2, and S4.
            self.put(unsafe { victim.read(index) });
        }
        taken
    }
}

/// What was put on the tray and not published is there for thieves; so is a job that was begun and not run.
impl<J> Drop for Hand<'_, J> {
    fn drop(&mut self) {
        let mut inner = self.tray.shared.inner.lock();
        // Relaxed, all three: under the lock.
        if inner.state == State::Filling {
            self.tray.shared.back.store(self.filled, Ordering::Relaxed);
        }
        self.tray.front.store(self.front - usize::from(self.running), Ordering::Relaxed);
        inner.state = State::Resting;
        drop(inner);
        // Relaxed: see `hand`.
        self.tray.taken.store(false, Ordering::Relaxed);
    }
}

impl<J> Drop for Tray<J> {
    fn drop(&mut self) {
        // Relaxed, both: nobody else is here.
        for index in self.front.load(Ordering::Relaxed)..self.shared.back.load(Ordering::Relaxed) {
            // SAFETY: nobody is here, so what is before `back` and not before `front` is there and nobody's.
            drop(unsafe { self.read(index) });
        }
    }
}
