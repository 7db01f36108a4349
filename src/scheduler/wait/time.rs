//! Time: deadlines of waiters, and cooling that ends while somebody waits. No thread of ours runs.
//!
//! Somebody has to wake when the first of these moments comes. Who:
//!
//! * with a [`Timer`]: the timer, for everybody;
//! * else the *timekeeper*, one of the threads that wait: it sleeps until the first moment of all, the others until their own
//!   deadlines; when it leaves, another one takes over;
//! * else nobody: a deadline is then found by [`tick`](crate::Scheduler::tick), or by whoever polls or acquires.
//!
//! Nobody oversleeps:
//!
//! ```text
//! noter                                        timekeeper
//!   E1  earliest := min (Release)                 T1  queue mutex: become the keeper, set_for := min(earliest, deadlines)
//!   E2  load gate; 0: nobody waits               T2  sleep until then
//!   E3  queue mutex: earlier than set_for?
//!       set_for := it, poke the keeper
//! ```
//!
//! E3 before T1: T1 sees E1's word through the mutex. T1 before E3: E3 sees the keeper and what it is set for. E2 misses nobody
//! whose look into the cooling resource's shard (N2) came before it began to cool; whoever looks later finds the deadline in the
//! shard itself, and is a noter then.

use std::time::Duration;

use super::{error::WaitError, serve::Work, waiter::Waiter};
#[cfg(not(any(loom, shuttle)))]
use crate::node::quietly;
use crate::{
    resource::Resource,
    scheduler::{Scheduler, core::Core},
    shard::NEVER,
    sync::{Arc, Timestamp, atomic::Ordering},
};

/// Wakes the scheduler when a moment has come, for tasks that wait: see [`Builder::timer`](crate::Builder::timer).
///
/// ```no_run
/// use leasehold::{Entry, Scheduler, ThreadTimer};
///
/// let scheduler = Scheduler::<Entry<u32, u32, ()>>::builder().timer(ThreadTimer::new()?).build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Timer: Send + Sync {
    /// Runs `call` once, when `after` is over or a little later, on any thread; not inside this call. A timer that is
    /// dropped may drop its calls.
    ///
    /// Must not panic: the moment would be forgotten.
    fn call_after(&self, after: Duration, call: Box<dyn FnOnce() + Send>);
}

impl<T: Timer + ?Sized> Timer for Arc<T> {
    fn call_after(&self, after: Duration, call: Box<dyn FnOnce() + Send>) {
        (**self).call_after(after, call);
    }
}

impl<R: Resource> Core<R> {
    /// E1 and on: something that cools will be due then.
    #[inline]
    pub fn note(&self, moment: u64) {
        // Release, and a read-modify-write even if it changes nothing: pairs with the Acquire swap in `thaw`.
        // - we come first: the swap reads us, or a read-modify-write that has continued what we began, and the thaw that
        //   follows sees our shard's face;
        // - the swap comes first: our value stands.
        self.earliest.fetch_min(moment, Ordering::Release);
        if moment != NEVER && !self.waiters.gate().is_free() {
            self.alarm(moment);
        }
    }

    /// E3.
    #[cold]
    pub fn alarm(&self, moment: u64) {
        let keeper = {
            let mut queue = self.waiters.queue();
            if moment >= queue.set_for || (self.waiters.timer.is_none() && queue.keeper().is_none()) {
                return;
            }
            queue.set_for = moment;
            if self.waiters.timer.is_some() {
                queue.calls.insert(moment);
            }
            queue.keeper().cloned()
        };
        if let Some(keeper) = keeper {
            keeper.poke();
        }
        self.set_timer(moment);
    }

    #[cfg(not(any(loom, shuttle)))]
    fn set_timer(&self, moment: u64) {
        let Some(timer) = &self.waiters.timer else { return };
        // The clock and the timer are user code, and this may be inside a return.
        let now = quietly(|| self.now()).unwrap_or(moment);
        let core = crate::sync::Weak::clone(&self.waiters.core);
        let call = move || {
            if let Some(core) = core.upgrade() {
                core.ring(moment);
            }
        };
        let _ =
            quietly(|| timer.call_after(Duration::from_nanos(moment.saturating_sub(now)), Box::new(call)));
    }

    #[cfg(any(loom, shuttle))]
    fn set_timer(&self, _moment: u64) {}

    /// The timer's call.
    #[cfg(not(any(loom, shuttle)))]
    fn ring(&self, moment: u64) {
        {
            let mut queue = self.waiters.queue();
            // Earlier ones are on their way, or lost.
            queue.calls = queue.calls.split_off(&(moment + 1));
            queue.set_for = queue.calls.first().copied().unwrap_or(NEVER);
        }
        let next = self.tick();
        if next != NEVER && !self.waiters.gate().is_free() {
            self.alarm(next);
        }
    }

    /// Until when a waiting thread sleeps; it may have become the timekeeper.
    pub fn sleep_until(&self, waiter: &Arc<Waiter<R>>) -> u64 {
        if self.waiters.timer.is_some() {
            return waiter.deadline;
        }
        let mut queue = self.waiters.queue();
        if !queue.keep_time(waiter) {
            return waiter.deadline;
        }
        // T1. Relaxed: the mutex orders it, see above.
        let next = self.next_due().min(queue.first_deadline());
        queue.set_for = next;
        next.min(waiter.deadline)
    }

    /// The timekeeper has stopped waiting.
    #[cold]
    pub fn hand_over_time(&self, waiter: &Waiter<R>) {
        let heir = self.waiters.queue().hand_over_time(waiter);
        if let Some(heir) = heir {
            heir.poke();
        }
    }

    /// Does what is due, and says when something will be due again.
    pub fn tick(&self) -> u64 {
        let now = self.now();
        let mut work = Work::new();
        // Relaxed: a hint, as in `thaw_due`; who misses a deadline that is noted right now is told by its noter.
        while self.earliest.load(Ordering::Relaxed) <= now {
            self.thaw_for(now, true, &mut work);
        }
        let holders = self.tick_holders(now);
        if !self.waiters.gate().is_free() {
            let overdue = self.waiters.queue().leave_overdue(now);
            self.fail_all(overdue, |waiter| WaitError::TimedOut {
                waited: Duration::from_nanos(now.saturating_sub(waiter.since)),
            });
        }
        self.run(work);
        holders.min(self.next_due()).min(self.waiters.queue().first_deadline())
    }

    /// When something will be due that may serve those who wait: a cooling that ends, leases to be taken back.
    pub fn next_due(&self) -> u64 {
        // Relaxed: a hint, as in `thaw_due`.
        self.earliest.load(Ordering::Relaxed).min(self.next_reap())
    }
}

impl<R: Resource, S> Scheduler<R, S> {
    /// Does what time demands: warms up what has cooled, takes back leases that are [overdue](crate::Overdue::Revoke), lends
    /// both to those who wait, ends the waits, and the waits of drains, whose deadline has come. Answers with the moment at which it
    /// should be called next, `None` if nothing is due by itself; if leases are taken back, there always is such a moment.
    ///
    /// Never needed while a [`Timer`] is set or threads wait; needed for tasks otherwise, and with a clock that is moved by hand.
    /// Whoever sleeps until the moment it has answered is not told of an earlier one that comes up meanwhile: a resource that begins
    /// to cool, or that is included again when its deadline has passed. A timer is.
    ///
    /// Wakes up at most what is due; blocking on one shard's lock at a time.
    ///
    /// # Callbacks
    /// The clock, first; filters and wakers of those who are served.
    ///
    /// ```
    /// use leasehold::{Entry, ManualClock, Scheduler, WaitError};
    /// use std::{sync::Arc, time::Duration};
    ///
    /// let clock = Arc::new(ManualClock::new());
    /// let scheduler = Scheduler::<Entry<u32, u32, ()>>::builder().clock(Arc::clone(&clock)).build()?;
    /// let mut waiting = std::pin::pin!(scheduler.request().timeout(Duration::from_secs(5)).into_future());
    /// let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    /// assert!(waiting.as_mut().poll(&mut context).is_pending());
    /// clock.advance(Duration::from_secs(5));
    /// assert_eq!(scheduler.tick(), None);
    /// let std::task::Poll::Ready(Err(WaitError::TimedOut { waited })) = waiting.poll(&mut context) else { panic!() };
    /// assert_eq!(waited, Duration::from_secs(5));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn tick(&self) -> Option<Timestamp> {
        let next = self.core.tick();
        (next != NEVER).then(|| Timestamp::from_nanos(next))
    }
}
