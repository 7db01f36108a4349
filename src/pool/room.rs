//! Those who wait for room in a full queue.
//!
//! ```text
//!   submitter                                        worker
//!     W1  push: full                                   F1  pop: there is room
//!     W2  onto the list, waiting += 1                  F2  light barrier
//!     W3  heavy barrier                                F3  read the count: nobody: done
//!     W4  push once more: full                         F4  off the list, as many as there is room for, waiting -= 1
//!     W5  wait to be rung; then W1                         each; ring them. Or nobody, if jobs are short and little has
//!                                                          come out. Somebody is left: the keeper is on duty. See below
//! ```
//!
//! **Nobody is forgotten.** W3 and F2 are a full fence on both sides: if W4 finds the queue full, every pop after that finds somebody waiting.
//!
//! **When they are rung.** To wake somebody costs microseconds. While jobs are long that is nothing, and each that comes out lets one in. While
//! they are short, nobody is woken for each single place, for a submitter that is as fast as the workers would be at every job; F4 rings when
//! the queue is at most half full, *or* when half of its capacity has come out since anybody was rung: newcomers may be filling it as fast as it
//! is emptied, and it need never be half empty. So of what comes out every half of a capacity rings, if there is room at that moment.
//!
//! Those who wait are woken in the order in which they came. Who was woken tries again, and may find that a newcomer was faster; then it waits
//! at the front of the list, and is the next to be rung. No place is kept for it: against newcomers who try without a pause it may lose again and
//! again.
//!
//! **Who is left.** Nobody knows of one who was rung when he will try: a task may not be polled for long, though there is room and others wait. So whoever
//! rings at F4 and leaves somebody on the list has the keeper be on duty, as if it had rung nobody: if nothing comes out for a round, that rings for all the
//! room that there is.
//!
//! **Who is told of something else**, that its job was cancelled (`cancel`), wakes up as if it had been rung, looks, and leaves as one who gives up.
//!
//! **Who gives up** leaves the list. If it was rung already, it rings the next one in its place. So does **who finds room by itself**, in W4 or
//! after a sleep that nobody has ended: the place it was rung for, meanwhile, is another one.
//!
//! A bell is used again when nobody holds it any more but the list of those that are spare: so to wait allocates nothing, once there have been as
//! many at a time.

use std::{collections::VecDeque, task::Waker, time::Duration};

use super::cancel::CancelToken;
use crate::{
    node::{quietly, wake},
    sync::{
        Arc, CachePadded, Condvar, Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
        barrier, wait_for,
    },
};

#[derive(Default)]
struct Bell {
    rung: bool,
    /// There is something else to look at.
    stirred: bool,
    waker: Option<Waker>,
}

/// One who waits.
pub struct Waiter {
    bell: Mutex<Bell>,
    alarm: Condvar,
}

impl Waiter {
    fn new(waker: Option<Waker>) -> Self {
        Waiter { bell: Mutex::new(Bell { waker, ..Bell::default() }), alarm: Condvar::new() }
    }

    fn bell(&self) -> MutexGuard<'_, Bell> {
        // No code that can panic runs under it.
        self.bell.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn ring(&self) {
        self.wake(|bell| bell.rung = true);
    }

    /// Wakes who waits, for another reason than room.
    pub fn stir(&self) {
        self.wake(|bell| bell.stirred = true);
    }

    fn wake(&self, note: impl FnOnce(&mut Bell)) {
        let mut bell = self.bell();
        note(&mut bell);
        let waker = bell.waker.take();
        drop(bell);
        self.alarm.notify_one();
        if let Some(waker) = waker {
            // User code. A panic must not reach the worker, nor whoever cancels.
            wake(waker);
        }
    }

    /// W5, for a thread: whether it was rung. May come back for nothing.
    pub fn sleep(&self, limit: Option<Duration>) -> bool {
        let mut bell = self.bell();
        if !bell.rung && !bell.stirred {
            bell = wait_for(&self.alarm, bell, limit);
        }
        bell.rung
    }

    /// W5, for a task: whether it was rung, or is to look at something else; if not, `waker` will be called.
    pub fn rung_or_leave(&self, waker: &Waker) -> bool {
        // Cloned and dropped with the mutex free: both are user code.
        let new = waker.clone();
        let mut bell = self.bell();
        let woken = bell.rung || bell.stirred;
        let useless = if woken { Some(new) } else { bell.waker.replace(new) };
        drop(bell);
        let _ = quietly(|| drop(useless));
        woken
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let waker = self.bell.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner).waker.take();
        let _ = quietly(|| drop(waker));
    }
}

/// A waiter on the list, or rung. Whoever has it may come to grief, by the user's clock: what is dropped leaves, as one who gives up.
pub struct InLine<'a> {
    room: &'a Room,
    /// There until it leaves.
    waiter: Option<Arc<Waiter>>,
    /// Tells it when its job is cancelled.
    token: Option<CancelToken>,
}

impl InLine<'_> {
    /// From now on it is told when `token` is cancelled; at which the caller looks afterwards.
    pub fn heed(&mut self, token: &CancelToken) {
        if let Some(waiter) = &self.waiter {
            token.tell(waiter);
            self.token = Some(token.clone());
        }
    }

    /// Leaves the list. `served`: it was rung, and then it has tried. Whether it was rung.
    pub fn leave(mut self, served: bool) -> bool {
        self.go(served)
    }

    fn go(&mut self, served: bool) -> bool {
        let Some(waiter) = self.waiter.take() else { return false };
        if let Some(token) = self.token.take() {
            token.forget(&waiter);
        }
        self.room.leave(waiter, served)
    }
}

impl std::ops::Deref for InLine<'_> {
    type Target = Waiter;

    fn deref(&self) -> &Waiter {
        self.waiter.as_ref().expect("it has not left")
    }
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        self.go(false);
    }
}

/// Bells that are kept to be used again.
const SPARE: usize = 256;

#[derive(Default)]
struct Line {
    waiting: VecDeque<Arc<Waiter>>,
    /// Of those who have left, the first one first. Whoever has rung one may hold it for a moment longer.
    spare: VecDeque<Arc<Waiter>>,
}

impl Line {
    /// A bell that nobody else holds, if there is one.
    fn spare(&mut self) -> Option<Arc<Waiter>> {
        Arc::get_mut(self.spare.front_mut()?)?;
        self.spare.pop_front()
    }
}

/// All who wait.
#[derive(Default)]
pub struct Room {
    waiting: CachePadded<AtomicUsize>,
    /// So many have come out while somebody waited and nobody was rung.
    silent: AtomicUsize,
    line: Mutex<Line>,
}

impl Room {
    fn line(&self) -> MutexGuard<'_, Line> {
        // No code that can panic runs under it.
        self.line.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn waiter(&self, waker: Option<Waker>) -> Arc<Waiter> {
        let spare = self.line().spare();
        let Some(waiter) = spare else { return Arc::new(Waiter::new(waker)) };
        // Its waker is gone: see `leave`.
        *waiter.bell() = Bell { waker, ..Bell::default() };
        waiter
    }

    /// W2 and W3; at the front of the list, if it was rung before, and in vain. `false` if nothing is ordered, and whoever makes room may not see
    /// who waits: then the keeper must be on duty.
    pub fn wait(&self, waker: Option<Waker>, again: bool) -> (InLine<'_>, bool) {
        barrier::prepare();
        let waiter = self.waiter(waker);
        let mut line = self.line();
        if line.waiting.is_empty() {
            // Relaxed: see `freed`.
            self.silent.store(0, Ordering::Relaxed);
        }
        let here = Arc::clone(&waiter);
        if again {
            line.waiting.push_front(here);
        } else {
            line.waiting.push_back(here);
        }
        // Relaxed, here and below: W3 and F2 order it.
        self.waiting.fetch_add(1, Ordering::Relaxed);
        drop(line);
        let waiter = InLine { room: self, waiter: Some(waiter), token: None };
        (waiter, barrier::heavy())
    }

    /// As [`InLine::leave`].
    fn leave(&self, waiter: Arc<Waiter>, served: bool) -> bool {
        let waker = waiter.bell().waker.take();
        let mut line = self.line();
        let at = line.waiting.iter().position(|other| Arc::ptr_eq(other, &waiter));
        let next = match at {
            Some(at) => {
                let _ = line.waiting.remove(at);
                self.waiting.fetch_sub(1, Ordering::Relaxed);
                None
            }
            None if !served => self.take(&mut line),
            None => None,
        };
        if line.spare.len() < SPARE {
            line.spare.push_back(waiter);
        }
        drop(line);
        // User code.
        let _ = quietly(|| drop(waker));
        if let Some(next) = next {
            next.ring();
        }
        at.is_none()
    }

    fn take(&self, line: &mut Line) -> Option<Arc<Waiter>> {
        let next = line.waiting.pop_front()?;
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        Some(next)
    }

    /// F2 to F4, when so many have come out. `free` is told how many have since anybody was rung, and says for how many there is room, 0 if it is
    /// not worth ringing anybody. Whether somebody is left on the list: then the keeper must be on duty.
    #[inline]
    #[must_use]
    pub fn freed(&self, count: usize, free: impl FnOnce(usize) -> usize) -> bool {
        barrier::light();
        // Relaxed: the barrier orders it.
        self.waiting.load(Ordering::Relaxed) > 0 && self.answer(count, free)
    }

    /// F4.
    #[cold]
    fn answer(&self, count: usize, free: impl FnOnce(usize) -> usize) -> bool {
        // Relaxed, both: a count that decides when it is worth ringing, and nothing else.
        let silent = self.silent.fetch_add(count, Ordering::Relaxed) + count;
        let places = free(silent);
        if places > 0 {
            self.silent.store(0, Ordering::Relaxed);
            self.ring(places);
        }
        self.waiting() > 0
    }

    /// Rings so many, in order.
    #[cold]
    pub fn ring(&self, count: usize) {
        for _ in 0..count {
            let next = self.take(&mut self.line());
            match next {
                Some(next) => next.ring(),
                None => return,
            }
        }
    }

    /// Rings everybody who waits now, and nobody who comes later, be it one who was rung in vain. From the back: who goes to the front again, as
    /// one rung in vain does, stands there as before.
    #[cold]
    pub fn ring_all(&self) {
        let mut line = self.line();
        let all = std::mem::take(&mut line.waiting);
        self.waiting.fetch_sub(all.len(), Ordering::Relaxed);
        drop(line);
        all.into_iter().rev().for_each(|waiter| waiter.ring());
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}
