//! The thread that looks after a pool while there is something to look after.
//!
//! Workers and submitters decide by what they see in passing; what nobody passes is the keeper's: a job that turns out long and has
//! others behind it, a queue that has become slow, a worker that has been idle for too long, room in the queue for which nobody was rung. It
//! sleeps, without a limit, while nothing waits and no surplus worker idles: an idle pool has no ticker.
//!
//! Of those who sleep it wakes one when something is held up, and twice as many a millisecond later if that is still so, but not more than there are jobs
//! that wait: a crowd of jobs that turn out long is run by all workers after as many rounds as their number has binary digits.
//!
//! A pool has one if it may have more than one worker, or if its queue has a bound: then somebody may wait for room.
//!
//! ```text
//!   whoever leaves something                           keeper
//!     K1  it is in the queue, or on a tray; or it sleeps
//!         beside a tray, or as one too many; or
//!         room, while somebody waits for it     L1  sleep until called, or until an idle worker is due
//!     K2  a barrier                                      L2  look: wake one, grow, shrink, ring for room
//!     K3  on duty? done                                  L3  nothing waits, nothing has moved: off duty
//!     K4  on duty, by a swap; under the mutex: call      L4  heavy barrier
//!                                                        L5  look again; something waits: on duty, L1 for a millisecond
//! ```
//!
//! **Nothing is overlooked.** K2 and L4 are a full fence on both sides: either K3 sees that the keeper is off duty, or L5 sees
//! what was left.
//!
//! Of room, L5 must see who waits for it, too: he was counted before his W3 (`room`), which came before F2, that is K2; for otherwise his W4
//! would have found the room.
//!
//! **Nobody calls often.** While jobs come and go the keeper stays on duty, though nothing may wait at the moment at which it looks. So a call is
//! a load, but for the first one after a pause.
//!
//! **Off duty says that who is awake is held up,** or has just been woken: it goes off duty when nothing has moved for a round. So whoever brings a job and
//! finds it off duty, while some work and some sleep, wakes one of these beside calling it: the job is begun at once, though somebody else is awake who might
//! have come to it. That is one wake-up for each call, and no more work for whoever finds it on duty. A job that comes while it is on duty, beside
//! one that is longer than the pace and others that come and go, is seen to a millisecond or two later.
//!
//! # How many workers
//!
//! One more, or a quarter of those there are, if the queue is fuller than a share of its capacity, or if what waited at some moment, in it or on
//! a tray, has not been begun after a while (`marks`); not again before some time has passed since some have come. One less, when it has slept for long:
//! sleeping is the only idleness there is, so a long job is none. Only the keeper decides, so there are never fewer than the least or more than
//! the most. It does so while the pool drains, too: what runs may wait for what is in the queue. There one less is one that has found nothing,
//! and ends.

use std::time::Duration;

use super::{
    Metrics,
    core::Core,
    life,
    marks::{Marks, Seen},
    queue::JobQueue,
    tray::Tray,
};
use crate::{
    node::quietly,
    sync::{
        Arc, CachePadded, Condvar, Mutex, MutexGuard, Timestamp,
        atomic::{AtomicBool, Ordering},
        barrier, wait_for,
    },
};

/// How often it looks while something waits.
const ROUND: Duration = Duration::from_millis(1);

/// When the system has started no thread, or the clock has failed, it is asked again after so long, if not later anyway.
const RETRY: Duration = Duration::from_millis(100);

/// The bounds and the speed of change of a pool's workers.
#[derive(Clone, Copy, Debug)]
pub struct Scaling {
    pub least: usize,
    pub most: usize,
    /// The share of the capacity from which on the queue is too full.
    pub utilisation: f64,
    /// How long what is in the queue may stay.
    pub delay: Duration,
    /// From one change upwards to the next.
    pub rest: Duration,
    /// How long a worker sleeps until it is sent home.
    pub idle: Duration,
}

impl Scaling {
    /// Whether there may be more workers than so many.
    #[inline]
    pub fn may_grow(&self, workers: usize) -> bool {
        workers < self.most
    }
}

#[derive(Default)]
struct Orders {
    called: bool,
    ends: bool,
}

/// The keeper's desk.
#[derive(Default)]
pub struct Keeper {
    on_duty: CachePadded<AtomicBool>,
    orders: Mutex<Orders>,
    call: Condvar,
}

/// What the keeper remembers from one look to the next.
#[derive(Default)]
pub struct Memory {
    /// What had come out of the queue, and what each worker had ended, at the last look.
    passed: u64,
    ended: Vec<u64>,
    marks: Marks,
    grown: Option<Timestamp>,
    /// The system has started no thread.
    refused: Option<Timestamp>,
    /// Between the last two looks something was taken, or ended.
    moved: bool,
    /// Between the last two looks nothing came out of the queue.
    still: bool,
    /// So many were to be woken at the last look.
    roused: usize,
}

impl Keeper {
    fn orders(&self) -> MutexGuard<'_, Orders> {
        // No code that can panic runs under it.
        self.orders.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// K3 and K4. The caller has been through K2. Whether it was off duty.
    #[inline]
    pub fn call(&self) -> bool {
        // Relaxed: K2 and L4 order it.
        let called = !self.on_duty.load(Ordering::Relaxed) && !self.on_duty.swap(true, Ordering::Relaxed);
        if called {
            self.wake();
        }
        called
    }

    #[cold]
    fn wake(&self) {
        self.orders().called = true;
        self.call.notify_one();
    }

    /// Ends the thread.
    pub fn end(&self) {
        self.orders().ends = true;
        self.call.notify_one();
    }

    /// L1. Whether it goes on.
    pub fn rest(&self, limit: Option<Duration>) -> bool {
        let mut orders = self.orders();
        if !orders.called && !orders.ends {
            orders = wait_for(&self.call, orders, limit);
        }
        orders.called = false;
        !orders.ends
    }

    /// Relaxed: asked by the keeper itself, or when nothing else goes on.
    fn is_on_duty(&self) -> bool {
        self.on_duty.load(Ordering::Relaxed)
    }

    /// Nobody need call.
    pub fn go_on_duty(&self) {
        // Relaxed, here and below: K2 and L4 order it.
        self.on_duty.store(true, Ordering::Relaxed);
    }

    /// L3 to L5, where L2 has found nothing. `false` if it stays on duty after all.
    pub fn go_off_duty(&self, something_waits: impl FnOnce() -> bool) -> bool {
        self.on_duty.store(false, Ordering::Relaxed);
        // L4.
        let ordered = barrier::heavy();
        // L5.
        let stays = !ordered || something_waits();
        if stays {
            self.go_on_duty();
        }
        !stays
    }
}

impl<T: Send + 'static, M: Metrics> Core<T, M> {
    /// How many jobs wait to be begun, more or less.
    fn waiting(&self) -> usize {
        self.queue.len() + self.trays.iter().map(Tray::waiting).sum::<usize>()
    }

    /// Whether something waits to be begun.
    pub fn something_waits(&self) -> bool {
        self.waiting() > 0
    }

    /// Whether something waits for the keeper. A single worker is neither woken nor joined by others: to jobs it comes by itself.
    fn needs_keeper(&self) -> bool {
        self.unrung_places() > 0 || self.scaling.most > 1 && self.something_waits()
    }

    /// Whether what waits, in the queue or on a tray, has not moved since the last look.
    fn is_stuck(&self, memory: &mut Memory) -> bool {
        let passed = std::mem::replace(&mut memory.passed, self.queue.passed());
        memory.still = passed == memory.passed;
        memory.moved = !memory.still;
        let mut stuck = memory.still && !self.queue.is_empty();
        memory.ended.resize(self.trays.len(), 0);
        let trays = self.trays.iter().zip(&self.tallies).zip(&mut memory.ended);
        for (worker, ((tray, tally), before)) in trays.enumerate() {
            let ended = tally.ended();
            if ended != std::mem::replace(before, ended) {
                memory.moved = true;
            } else if tray.waiting() > 0 {
                self.held_up.tell(worker);
                stuck = true;
            }
        }
        stuck
    }

    /// When it should be done again; none if nobody will be due.
    fn shrink(&self, now: Option<Timestamp>) -> Option<Duration> {
        let Some(now) = now else {
            // The clock has failed, and may tell later who is due.
            return (self.beds.count().workers > self.scaling.least).then_some(RETRY);
        };
        let idle = u64::try_from(self.scaling.idle.as_nanos()).unwrap_or(u64::MAX);
        loop {
            // Those who sleep since then, or longer, go.
            let moment = now.as_nanos().checked_sub(idle).map(Timestamp::from_nanos);
            let count = self.beds.count().workers;
            let since = self.beds.dismiss_one(now, moment, self.scaling.least)?;
            if moment.is_none_or(|moment| since > moment) {
                return Some(since.saturating_add(self.scaling.idle).saturating_since(now));
            }
            self.scaled(count, count - 1);
            self.release_ended();
        }
    }

    /// Lets go of threads that have ended.
    fn release_ended(&self) {
        let ended = self.life().take_ended();
        drop(ended);
    }
}

/// The keeper's thread, from its first step to its last.
pub fn run<T: Send + 'static, M: Metrics>(core: &Arc<Core<T, M>>) {
    let mut memory = Memory::default();
    // No user code unwinds to here; what would is a fault of ours. It costs the pool no keeper: who calls only one that is off duty would call nobody.
    while quietly(|| keep(core, &mut memory)).is_none() {}
    core.life().keeps = false;
    core.ended.notify_all();
}

/// Until it is to end.
fn keep<T: Send + 'static, M: Metrics>(core: &Arc<Core<T, M>>, memory: &mut Memory) {
    barrier::prepare();
    // When an idle worker is due to be sent home.
    let mut due: Option<Duration> = None;
    // If it has begun before, and come to grief in the middle of something, it goes on: nobody calls one that is on duty.
    let mut on_duty = core.keeper.is_on_duty();
    while core.keeper.rest(if on_duty { Some(ROUND) } else { due }) {
        due = look(core, memory);
        on_duty = memory.moved || core.needs_keeper();
        if on_duty {
            core.keeper.go_on_duty();
        } else {
            on_duty = !core.keeper.go_off_duty(|| core.needs_keeper());
            due = core.shrink(core.time());
            memory.marks = Marks::default();
            memory.roused = 0;
        }
    }
}

/// A model has no time, so it looks when it likes; see `Builder::build`.
#[cfg(any(loom, shuttle))]
impl<T: Send + 'static, M: Metrics> super::Pool<T, M> {
    /// L2.
    #[doc(hidden)]
    pub fn look(&self, memory: &mut Memory) {
        look(&self.core, memory);
    }

    /// L3 to L5 where L2 has found nothing, for a thread that will do it; until then the keeper is on duty. Whether it is off duty afterwards.
    #[doc(hidden)]
    pub fn go_off_duty(&self) -> impl FnOnce() -> bool + Send + use<T, M> {
        let core = Arc::clone(&self.core);
        core.keeper.go_on_duty();
        move || core.keeper.go_off_duty(|| core.needs_keeper())
    }

    /// Whether the keeper is on duty, or called.
    #[doc(hidden)]
    pub fn is_looked_after(&self) -> bool {
        self.core.keeper.is_on_duty()
    }
}

/// L2. When it should look again for the sake of those who idle.
pub fn look<T: Send + 'static, M: Metrics>(core: &Arc<Core<T, M>>, memory: &mut Memory) -> Option<Duration> {
    // What asks for no time is done also if the clock fails.
    let now = core.time();
    // Each time, so that it is told of each tray how it was one look before.
    let stuck = core.is_stuck(memory);
    let waiting = core.waiting();
    memory.roused = if stuck { (2 * memory.roused).max(1).min(waiting) } else { 0 };
    if waiting > 0 {
        if core.beds.count().asleep == 0 {
            if let Some(now) = now {
                grow(core, memory, now);
            }
        } else {
            let _ = (0..memory.roused).all(|_| core.beds.wake_one());
        }
    }
    let due = core.shrink(now);
    if memory.still {
        // User code, wakers: last.
        core.room.ring(core.unrung_places());
    }
    due
}

fn grow<T: Send + 'static, M: Metrics>(core: &Arc<Core<T, M>>, memory: &mut Memory, now: Timestamp) {
    let count = core.beds.count();
    if !core.scaling.may_grow(count.workers) {
        return;
    }
    let (in_queue, passed) = (core.queue.len(), core.queue.passed());
    let too_full = core
        .queue
        .capacity()
        .is_some_and(|capacity| in_queue as f64 >= core.scaling.utilisation * capacity as f64);
    // What lies on trays is not begun.
    let on_trays: usize = core.trays.iter().map(Tray::waiting).sum();
    let begun = passed.saturating_sub(on_trays as u64);
    let (turn, due_in) = core.queue.turns();
    let seen = Seen { begun, accepted: passed + in_queue as u64, turn, due_in };
    let too_slow = memory.marks.is_late(&seen, now, core.scaling.delay);
    let has_passed =
        |since: Option<Timestamp>, limit| since.is_none_or(|since| now.saturating_since(since) >= limit);
    let rested = has_passed(memory.grown, core.scaling.rest)
        && has_passed(memory.refused, RETRY.min(core.scaling.rest));
    if !(too_full || too_slow) || !rested {
        return;
    }
    let more = (count.workers / 4).max(1).min(core.scaling.most - count.workers);
    let mut started = 0;
    // Not at all, though there may be more: one that was dismissed has its number until its thread has ended, or the pool has. Then it is tried at the next look.
    while started < more {
        match life::start(core) {
            Ok(true) => started += 1,
            Ok(false) => break,
            Err(_) => {
                memory.refused = Some(now);
                // Relaxed: a count.
                core.unstarted.fetch_add(1, Ordering::Relaxed);
                break;
            }
        }
    }
    if started > 0 {
        memory.grown = Some(now);
        core.scaled(count.workers, count.workers + started);
    }
}
