//! What a pool's handle, its workers and its keeper share.

use std::sync::PoisonError;

use super::{
    Ending, EndingKind, Metrics, RejectReason,
    beds::Beds,
    job::Job,
    keeper::{Keeper, Scaling},
    life::Life,
    queue::{BucketQueue, JobPriority, JobQueue, PushError, Refusal, SegmentedQueue},
    room::Room,
    tray::Tray,
    worker::{HeldUp, Pace},
};
use crate::{
    node::quietly,
    sync::{
        CachePadded, Clock, Condvar, MonotonicClock, Mutex, MutexGuard, Timestamp,
        atomic::{AtomicBool, AtomicU32, Ordering},
        barrier,
        count::AtomicU64,
    },
};

/// Jobs come in and are run.
pub const OPEN: u32 = 0;
/// Of jobs only those come in that wait for a lease already.
pub const ENDING: u32 = 1;
/// No job comes in any more; those that are in are run.
pub const DRAINING: u32 = 2;

/// A pool's handler of failures.
pub type Handler<T> = Box<dyn Fn(&T, &Ending) + Send + Sync>;

/// The order in which jobs are begun. One for each pool, so its size does not matter.
#[allow(clippy::large_enum_variant)]
pub enum Waiting<J: Send + 'static> {
    Fifo(SegmentedQueue<J>),
    Priority(BucketQueue<J>),
}

/// What one worker has done; written by it alone.
#[derive(Default)]
pub struct Tally {
    pub ended: [AtomicU64; EndingKind::COUNT],
}

impl Tally {
    /// How many jobs it has ended, however.
    pub fn ended(&self) -> u64 {
        // Relaxed: counts.
        self.ended.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

pub struct Core<T: Send + 'static, M: Metrics> {
    pub queue: Waiting<Job<T>>,
    pub beds: Beds,
    pub room: Room,
    pub pace: Pace,
    pub keeper: Keeper,
    pub held_up: HeldUp,
    pub trays: Box<[Tray<Job<T>>]>,
    pub tallies: Box<[CachePadded<Tally>]>,
    pub phase: AtomicU32,
    /// A shutdown has run out of time: what runs should end.
    pub stopping: AtomicBool,
    pub life: Mutex<Life>,
    /// A worker has ended.
    pub ended: Condvar,
    /// Held by the one that takes out what was not run.
    pub revoking: Mutex<()>,
    pub rejected: [AtomicU64; RejectReason::COUNT],
    pub handler: Option<Handler<T>>,
    pub metrics: M,
    pub clock: Box<dyn Clock>,
    /// What the pace is measured by, whatever the user's clock does: one that stands still would make every job short.
    pub own_clock: MonotonicClock,
    pub scaling: Scaling,
    /// How often there came to be more workers, and fewer.
    pub scaled: [AtomicU64; 2],
    /// How often the system has started none when one was to come.
    pub unstarted: AtomicU64,
    /// Jobs that were accepted and were handed back.
    pub handed_back: AtomicU64,
    /// Jobs that have ended because there was no lease for them.
    pub unlent: AtomicU64,
    pub errands: super::lease::Errands,
    pub pinned: bool,
}

impl<T: Send + 'static, M: Metrics> Core<T, M> {
    pub fn life(&self) -> MutexGuard<'_, Life> {
        // No user code runs under it.
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether jobs come in no more. Acquire: pairs with the Release of `close`: whoever sees it finds in the queue all that was
    /// accepted.
    pub fn is_closed(&self) -> bool {
        self.phase.load(Ordering::Acquire) == DRAINING
    }

    /// Whether jobs are taken from anybody.
    #[inline]
    pub fn is_open(&self) -> bool {
        // Relaxed: whoever does not see E1 yet is as one who came before it; whether his job is in is decided by the queue's own closing, at D1.
        self.phase.load(Ordering::Relaxed) == OPEN
    }

    /// The present moment, if anything asks for times.
    pub fn stamp(&self) -> Timestamp {
        if M::TIMED { self.clock.now() } else { Timestamp::ZERO }
    }

    /// The same, where nobody may be held up by it: none if nothing asks for times, or the clock fails.
    #[inline]
    pub fn moment(&self) -> Option<Timestamp> {
        if M::TIMED { self.time() } else { None }
    }

    /// The present moment, unless the clock fails: for those who go on without it.
    pub fn time(&self) -> Option<Timestamp> {
        quietly(|| self.clock.now())
    }

    /// Tells the metrics, whatever they do.
    #[inline]
    pub fn tell(&self, f: impl FnOnce(&M)) {
        let _ = quietly(|| f(&self.metrics));
    }

    /// Tells the handler of failures.
    pub fn report(&self, payload: &T, ending: &Ending) {
        if let Some(handler) = &self.handler {
            handler(payload, ending);
        }
    }

    /// Puts a job into the queue, without waking anybody.
    #[inline]
    pub fn push(&self, mut job: Job<T>) -> Result<(), PushError<Job<T>>> {
        if M::TIMED {
            job.set_since(self.clock.now());
        }
        self.push_stamped(job)
    }

    /// As [`push`](Self::push), of one that says when it was accepted. In a section no user code runs here.
    #[inline]
    pub fn push_stamped(&self, job: Job<T>) -> Result<(), PushError<Job<T>>> {
        let priority = job.get_priority();
        match &self.queue {
            Waiting::Fifo(queue) => queue.push_one(job),
            Waiting::Priority(queue) => queue.push(job, priority),
        }
    }

    /// N3 and N4 of `beds`, or K2 to K4 of `keeper`, after something has come into the queue, whose push is N1 and N2, or K1.
    #[inline]
    pub fn arrived(&self) {
        let count = self.beds.count();
        if count.asleep > 0 && (count.asleep == count.workers || self.pace.is_long()) && self.beds.wake_one()
        {
            return;
        }
        // Whoever is awake comes soon; or he is in a job that has turned out long, as he is if the keeper is off duty, or will, and then this one must not
        // wait for it while others sleep, or could be started.
        if count.asleep > 0 || self.scaling.may_grow(count.workers) {
            if let Waiting::Priority(_) = self.queue {
                // K2; in the other queue it is P6.
                barrier::light();
            }
            if self.call_keeper() {
                self.beds.wake_one();
            }
        }
    }

    /// K3 and K4 of `keeper`; whether it was off duty. Where there can be but one worker there is nobody to be called.
    #[inline]
    pub fn call_keeper(&self) -> bool {
        self.scaling.most > 1 && self.keeper.call()
    }

    pub fn reject(&self, reason: RejectReason) {
        // Relaxed: a count.
        self.rejected[reason as usize].fetch_add(1, Ordering::Relaxed);
        self.tell(|metrics| metrics.rejected(reason));
    }

    /// The number of workers has changed.
    pub fn scaled(&self, from: usize, to: usize) {
        // Relaxed: a count.
        self.scaled[usize::from(to < from)].fetch_add(1, Ordering::Relaxed);
        self.tell(|metrics| metrics.scaled(from, to));
    }

    /// So many jobs were taken out, to be handed back or to be dropped.
    pub fn tell_unrun(&self, count: usize) {
        if count > 0 {
            self.tell(|metrics| metrics.unrun(count));
        }
    }

    /// E1 of `shutdown`: takes no jobs any more but those that wait for a lease already, and lets go who waits for room. Idempotent.
    pub fn stop_intake(&self) {
        self.errands.stop();
        // Relaxed, all: see `is_open`. Who comes onto the list of `room` after the ring has had its mutex after us, and sees it.
        let _ = self.phase.compare_exchange(OPEN, ENDING, Ordering::Relaxed, Ordering::Relaxed);
        self.room.ring_all();
    }

    /// D1 and D2: lets nothing in any more, and wakes all who wait for something that will not come. Idempotent.
    pub fn close(&self) {
        self.errands.close();
        self.queue.close();
        // Release: pairs with the Acquire of `is_closed`.
        self.phase.store(DRAINING, Ordering::Release);
        self.room.ring_all();
        self.beds.wake_all();
    }

    /// How many jobs that waited for a lease were given up.
    pub fn given_up(&self) -> usize {
        self.errands.given_up()
    }

    /// For how many jobs there is room, 0 if it is not worth ringing anybody: F4 of `room`. So many have come out since anybody was rung.
    pub fn free_places(&self, silent: usize) -> usize {
        let Some(capacity) = self.queue.capacity() else { return usize::MAX };
        let (len, half) = (self.queue.len(), capacity / 2);
        if len <= half || silent >= half || self.pace.is_long() {
            return capacity.saturating_sub(len);
        }
        // What has come out may be jobs that turn out long, and then nothing else does: the keeper sees to those who are left.
        0
    }

    /// For how many jobs there is room that nobody has been rung for, though somebody waits.
    pub fn unrung_places(&self) -> usize {
        if self.room.waiting() == 0 {
            return 0;
        }
        self.queue.capacity().map_or(0, |capacity| capacity.saturating_sub(self.queue.len()))
    }
}

macro_rules! each {
    ($waiting:expr, $queue:ident => $body:expr) => {
        match $waiting {
            Waiting::Fifo($queue) => $body,
            Waiting::Priority($queue) => $body,
        }
    };
}

impl<J: Send + 'static> Waiting<J> {
    /// Keeps what the queue's reclaimer frees, which may be anything of this process, from being freed by a pop, until it is dropped.
    #[inline]
    pub fn section(&self) -> Option<impl Sized> {
        match self {
            Waiting::Fifo(queue) => Some(queue.section()),
            Waiting::Priority(_) => None,
        }
    }

    /// The turn, and a bit for each number of turns after which something is due; nothing if there are no turns.
    pub fn turns(&self) -> (u64, u64) {
        match self {
            Waiting::Fifo(_) => (0, 0),
            Waiting::Priority(queue) => queue.turns(),
        }
    }

    /// Takes at most `max` jobs out, which are given to `into`; answers how many.
    #[inline]
    pub fn pop_into(&self, max: usize, into: impl FnMut(J)) -> usize {
        each!(self, queue => queue.pop_into(max, into))
    }
}

impl<J: Send + 'static> JobQueue<J> for Waiting<J> {
    fn push(&self, item: J, priority: JobPriority) -> Result<(), PushError<J>> {
        each!(self, queue => queue.push(item, priority))
    }

    fn push_many(
        &self,
        items: &mut std::collections::VecDeque<J>,
        priority: JobPriority,
    ) -> Result<(), Refusal> {
        each!(self, queue => queue.push_many(items, priority))
    }

    fn pop_many(&self, max: usize, into: &mut std::collections::VecDeque<J>) -> usize {
        each!(self, queue => queue.pop_many(max, into))
    }

    fn len(&self) -> usize {
        each!(self, queue => queue.len())
    }

    fn capacity(&self) -> Option<usize> {
        each!(self, queue => queue.capacity())
    }

    fn passed(&self) -> u64 {
        each!(self, queue => queue.passed())
    }

    fn close(&self) {
        each!(self, queue => queue.close());
    }
}
