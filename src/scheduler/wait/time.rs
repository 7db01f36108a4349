//! Time: deadlines of waiters, and cooling that ends while somebody waits. No thread of ours runs.
//!
//! Somebody has to wake when the first of these moments comes. Who:
//!
//! * the *timekeeper*, one of the threads that wait, if any does: it sleeps until the first moment of all, the others until their own
//!   deadlines; when it leaves, another one takes over. With a timer as well: a timer may be late, or never come, if it is a runtime that
//!   nobody drives, and a thread need not rely on it;
//! * with a [`Timer`]: the timer, for tasks;
//! * else nobody: a deadline is then found by [`tick`](crate::Scheduler::tick), or by whoever polls or acquires.
//!
//! Whoever polls, or is about to give up because its own deadline has come, first does what is due (`catch_up`): it may be for him.
//!
//! A timer is asked for a moment only if it will not call before that anyway: it has at most as many calls open as moments that were
//! each earlier than all before. After each call the next moment is asked for, while anybody waits, for a resource or for a drain. A call
//! that is not made would be waited for for ever: whoever registers, is refused, or polls a drain, forgets those that are a second late, and asks for what
//! is next instead of those and of those that were dropped.
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
//! shard itself, and is a noter then. What the rules of ejection let back no shard tells: so whoever looks, looks into their book first, with
//! its mutex, in which E1's thread has entered it, and is a noter of what he finds there.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    time::Duration,
};

use super::{error::WaitError, queue::Left, waiter::Waiter};
use crate::{
    node::{Hold, Node, Standing, quietly},
    resource::Resource,
    scheduler::{Scheduler, core::Core},
    shard::{Count, NEVER},
    sync::{Arc, Timestamp, Weak, atomic::Ordering},
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
    /// It is asked for a moment only if it will not call before that anyway. So it has at most as many calls open as there were moments each
    /// earlier than all before: one, as a rule, but as many as there are requests if each that comes has an earlier deadline than the last.
    /// A call that is a second late, or was dropped without having been run, counts as lost: whoever begins to wait then asks anew, for a resource, even if
    /// the queue is full, or as a task for a drain. Nobody else does: if those who wait already are the last to come, their moments go by.
    ///
    /// Should not panic: nobody hears of it, and the call counts as lost.
    fn call_after(&self, after: Duration, call: Box<dyn FnOnce() + Send>);
}

impl<T: Timer + ?Sized> Timer for Arc<T> {
    fn call_after(&self, after: Duration, call: Box<dyn FnOnce() + Send>) {
        (**self).call_after(after, call);
    }
}

/// When the timer calls if the clock has panicked, so that the moment is not known.
const CLOCKLESS: Duration = Duration::from_millis(10);

/// What a timer is asked for. Dropped without having been run, it counts as lost: whoever begins to wait then asks for what is next.
struct Call<R: Resource> {
    core: Weak<Core<R>>,
    moment: u64,
    is_made: bool,
}

impl<R: Resource> Call<R> {
    fn run(mut self) {
        let core = self.core.upgrade();
        self.is_made = true;
        drop(self);
        if let Some(core) = core {
            core.ring();
        }
    }
}

impl<R: Resource> Drop for Call<R> {
    fn drop(&mut self) {
        if let Some(core) = self.core.upgrade() {
            core.waiters.queue().called(self.moment, self.is_made);
        }
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
        if let Some(timer) = &self.waiters.timer {
            self.set_timer(&**timer, moment);
        }
        let keeper = {
            let mut queue = self.waiters.queue();
            let Some(keeper) = queue.keeper().filter(|_| moment < queue.set_for).cloned() else { return };
            queue.set_for = moment;
            keeper
        };
        keeper.poke();
    }

    fn set_timer(&self, timer: &dyn Timer, moment: u64) {
        if !self.waiters.queue().needs_call(moment) {
            return;
        }
        // The clock and the timer are user code, and this may be inside a return.
        let now = quietly(|| self.now());
        // What is due already is called for as of now: by its own moment it would soon count as lost, and be asked for again and again.
        let moment = now.map_or(moment, |now| moment.max(now));
        if !self.waiters.queue().expect_call(moment) {
            return;
        }
        let after = now.map_or(CLOCKLESS, |now| Duration::from_nanos(moment - now));
        let call = Call { core: Weak::clone(&self.waiters.core), moment, is_made: false };
        let _ = quietly(|| timer.call_after(after, Box::new(move || call.run())));
    }

    /// The timer's call.
    fn ring(&self) {
        let ticked = catch_unwind(AssertUnwindSafe(|| self.tick()));
        // If user code has panicked in its midst, the rest is still to be done.
        // Threads look after their own deadlines.
        let next = self.next_due().min(self.waiters.queue().first_deadline());
        if next != NEVER && (!self.waiters.gate().is_free() || self.drains.any()) {
            self.alarm(next);
        }
        if let Err(payload) = ticked {
            resume_unwind(payload);
        }
    }

    /// Somebody is in the queue, once more or for the first time: a timer and the timekeeper learn of what a task waits for. A thread
    /// looks after that by itself.
    pub fn tell_time(&self, waiter: &Waiter<R>) {
        if waiter.is_thread {
            return;
        }
        // Relaxed: a deadline that is noted later finds the waiter in the queue.
        let first = self.next_due().min(waiter.deadline);
        if first != NEVER {
            self.alarm(first);
        }
    }

    /// A task waits for a drain: a timer, or the timekeeper, learns when leases are to be taken back.
    pub fn tell_drain(&self) {
        if self.waiters.timer.is_some()
            && let Some(now) = quietly(|| self.now())
        {
            let untold = self.waiters.queue().forget_lost_calls(now);
            self.ask_anew(untold);
        }
        let due = self.next_reap();
        if due != NEVER {
            self.alarm(due);
        }
    }

    /// Calls of the timer were lost: it is asked for what they were to be for, the first of those deadlines or what is due before.
    pub fn ask_anew(&self, untold: Option<u64>) {
        if let Some(untold) = untold.map(|deadline| deadline.min(self.next_due()))
            && untold != NEVER
        {
            self.alarm(untold);
        }
    }

    /// Ends the waits of those who have left the queue because their deadline has come.
    pub fn fail_overdue(&self, overdue: Vec<Left<R>>, now: u64) {
        self.fail_all(overdue, |waiter| WaitError::TimedOut {
            waited: Duration::from_nanos(now.saturating_sub(waiter.since)),
        });
    }

    /// Does what is due for somebody who would wait on, or give up, in spite of it. Answers whether there was anything.
    pub fn catch_up(&self) -> bool {
        let due = self.next_due();
        let is_due = due != NEVER && due <= self.now();
        if is_due {
            let _ = self.tick();
        }
        is_due
    }

    /// Until when a waiting thread sleeps; it may have become the timekeeper.
    pub fn sleep_until(&self, waiter: &Arc<Waiter<R>>) -> u64 {
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
        loop {
            // Relaxed: a hint, as in `thaw_due`; who misses a deadline that is noted right now is told by its noter.
            let earliest = self.earliest.load(Ordering::Relaxed);
            // "Never" is not due at the end of time either.
            if earliest == NEVER || earliest > now {
                break;
            }
            self.thaw(now, true);
        }
        let holders = self.tick_holders(now);
        if !self.waiters.gate().is_free() {
            let overdue = self.waiters.queue().leave_overdue(now);
            self.fail_overdue(overdue, now);
        }
        holders.min(self.next_due()).min(self.waiters.queue().deadline())
    }

    /// When something will be due that may serve those who wait: a cooling that ends, leases to be taken back.
    pub fn next_due(&self) -> u64 {
        // Relaxed: a hint, as in `thaw_due`.
        self.earliest.load(Ordering::Relaxed).min(self.next_reap())
    }

    /// When one resource is back, if it rests until after `deadline`: whoever returns what meanwhile.
    pub fn rests_alone_beyond(&self, node: &Node<R>, deadline: u64) -> Option<u64> {
        let state = node.state.load();
        let rested = if state.is_held(Hold::Cooling) { node.deadline() } else { 0 };
        let readmitted = match state.standing() {
            Standing::Ejected => Some(self.comes_back(node, state)).filter(|&moment| moment != NEVER),
            _ => None,
        };
        Some(readmitted.unwrap_or(0).max(rested)).filter(|&due| due > deadline)
    }

    /// When the first resource is back, if the whole fleet rests until after `deadline` and no lease is out.
    pub fn rests_beyond(&self, deadline: u64) -> Option<u64> {
        // Returns first: a lease that is lent and returned in between counts as out, and not the other way round. On a machine that
        // swaps the readings that may fail: then a wait is refused that would have ended well, which an estimate may do.
        let sum =
            |count| self.shards.iter().fold(0, |sum: u64, shard| sum.wrapping_add(shard.face().count(count)));
        let returned = sum(Count::Returned);
        if sum(Count::Lent) != returned {
            return None;
        }
        // The faces tell of what cools, and the book of what the rules let back; nothing else comes by itself while no lease is out.
        let cooled = self.shards.iter().map(|shard| shard.face().earliest()).min().unwrap_or(NEVER);
        let due = self.health.as_ref().map_or(cooled, |health| self.first_back(health, cooled));
        (due != NEVER && due > deadline).then_some(due)
    }
}

impl<R: Resource, S> Scheduler<R, S> {
    /// Does what time demands: warms up what has cooled, takes back leases that are [overdue](crate::Overdue::Revoke), lends
    /// both to those who wait, ends the waits, and the waits of drains, whose deadline has come. Answers with the moment at which it
    /// should be called next, `None` if nothing is due by itself; if leases are taken back, there always is such a moment.
    ///
    /// Never needed while a [`Timer`] is set or threads wait; needed for tasks otherwise, and with a clock that is moved by hand.
    /// Whoever sleeps until the moment it has answered is not told of an earlier one that comes up meanwhile: a resource that begins
    /// to cool, or that is included again when its deadline has passed. A timer is. Deadlines of threads, of waits and of drains, are among
    /// the answers: they wake by themselves on a clock that goes by itself, and not on one that is moved by hand.
    ///
    /// Wakes up at most what is due; blocking on one shard's lock at a time.
    ///
    /// # Callbacks
    /// The clock, first; filters and wakers of those who are served, and of those whose time is over;
    /// [`Resource::priority`](crate::Resource::priority) of resources whose leases are taken back, where a panic stops: the resource keeps
    /// the rank it had.
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
