//! One worker: takes jobs, runs them, sleeps when there are none.
//!
//! ```text
//!     its own tray --> the queue, a batch --> another one's tray, half --> looks again a few times --> sleeps
//! ```
//!
//! # How many are awake
//!
//! To wake a worker costs microseconds, to run a small job takes nanoseconds. So there is a *pace*, the measured mean time of a job, and
//! three rules:
//!
//! * A submitter wakes one if all sleep, at once; and for each job if jobs are long (10 µs); and if the keeper is off duty, which says that who is
//!   awake is in a job that has turned out long, or has just been woken.
//! * A worker that takes a batch wakes another one if what is left, at the present pace, is work for 200 µs.
//! * Otherwise the keeper is on duty (`keeper`), called by whoever leaves something while others sleep, be it a job in the queue or a batch on
//!   a tray: if a millisecond later it has not moved, one job has turned out longer than the pace, and the keeper wakes one more, and each
//!   millisecond after that twice as many.
//!
//! A worker that keeps up with its submitters would take every job by itself, and the queue's words would go to and fro between two
//! processors for each. So after a small batch of short jobs it pauses, about a microsecond, and takes what has come meanwhile. Only while jobs
//! come: one that comes to an idle pool is begun at once. So is the first one that comes while all that are awake are in jobs that have turned out
//! long. One that comes a moment after such a job has begun, or while others come and go beside it, is begun when the keeper has looked: a
//! millisecond or two later. To know more, a worker would have to read the clock for each job, which costs more than the job.
//!
//! While jobs are long a batch is one job. The pace falls at once to what is measured, and rises by an eighth of the difference.
//!
//! # Who is robbed
//!
//! To take from another one's tray costs a system call that interrupts its worker (`tray`), so that is done only to one that has not moved
//! between two looks, or since the keeper has looked, or when the pool is closed and this worker is about to end. Whoever lies down while
//! something lies on a tray calls the keeper. One that the keeper has found comes before the queue: what is held up there may be more urgent
//! than all that is in it, and a queue that is never empty must not hide it.

use std::time::Duration;

use super::{
    EndingKind, Metrics,
    core::{Core, Tally},
    job::Job,
    queue::JobQueue,
    tray::{Hand, Next},
};
use crate::sync::{
    Clock, Spin, Timestamp,
    atomic::Ordering,
    barrier,
    count::{AtomicU64, AtomicUsize},
};

/// Jobs that are taken at once.
pub const BATCH: usize = if cfg!(any(loom, shuttle)) { 2 } else { 64 };

/// A job that takes so long is long.
const LONG_NANOS: u64 = 10_000;

/// Work for so long is worth waking somebody.
const WORTH_NANOS: u64 = 200_000;

/// How often a worker that finds nothing looks again before it sleeps.
/// Some microseconds; it does not yield, for on a busy machine whoever sleeps is back sooner than whoever yields.
const LOOKS: u32 = if cfg!(any(loom, shuttle)) { 0 } else { Spin::YIELD_AFTER };

/// Steps of a spin in which jobs gather, each twice as long as the one before.
const GATHER: u32 = 5;

/// Of the batches that are small the time is taken of one in so many.
const SAMPLE: u32 = 8;

/// How long a worker sleeps at most where the barrier gives no order.
const UNORDERED: Duration = Duration::from_millis(1);

/// The mean time of a job, in nanoseconds.
pub struct Pace(AtomicU64);

impl Pace {
    /// Not known yet: long.
    pub fn new() -> Self {
        Pace(AtomicU64::new(if cfg!(any(loom, shuttle)) { LONG_NANOS - 1 } else { WORTH_NANOS }))
    }

    fn nanos(&self) -> u64 {
        // Relaxed: an estimate.
        self.0.load(Ordering::Relaxed)
    }

    pub fn is_long(&self) -> bool {
        self.nanos() >= LONG_NANOS
    }

    /// Whether so many jobs are work for another worker.
    fn is_worth_waking(&self, jobs: usize) -> bool {
        // In a model there are never many, and whoever may be woken is.
        cfg!(any(loom, shuttle)) || self.nanos().saturating_mul(jobs as u64) >= WORTH_NANOS
    }

    fn learn(&self, nanos: u64) {
        if cfg!(any(loom, shuttle)) {
            return;
        }
        let old = self.nanos();
        let new = if nanos < old { nanos } else { old + (nanos - old) / 8 };
        // What hardly differs is not worth the line.
        if new.abs_diff(old) * 8 > old {
            self.0.store(new, Ordering::Relaxed);
        }
    }
}

/// Lets jobs gather.
fn pause() {
    if !cfg!(any(loom, shuttle)) {
        let mut spin = Spin::new();
        for _ in 0..GATHER {
            spin.once();
        }
    }
}

/// When a batch is measured, and when jobs should gather.
#[derive(Default)]
struct Pulse {
    /// When the present batch was taken, and of how many jobs it is, if it is measured.
    measured: Option<(Timestamp, u64)>,
    /// Batches since one was.
    unmeasured: u32,
    /// The last batch was small.
    small: bool,
}

/// The tray whose worker the keeper has found held up: its number and one, or 0.
#[derive(Default)]
pub struct HeldUp(AtomicUsize);

impl HeldUp {
    /// Says which.
    pub fn tell(&self, worker: usize) {
        // Relaxed, here and below: a hint.
        self.0.store(worker + 1, Ordering::Relaxed);
    }

    fn ask(&self) -> Option<usize> {
        if self.0.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.0.swap(0, Ordering::Relaxed).checked_sub(1)
    }
}

/// Where a worker has seen another one: the number of its tray, and how far it was.
type Glance = Option<(usize, usize)>;

/// What came of filling a tray: so many jobs, and what the worker finds on it now.
struct Taken {
    jobs: usize,
    next: Next,
}

/// Why a worker that found nothing goes on.
enum Rest {
    /// There is something on its tray, or nothing is begun any more.
    Found(Taken),
    /// It has slept.
    Woken,
    /// There is nothing for it to do any more; whether it was dismissed, and is counted no more.
    Over { dismissed: bool },
}

impl<T: Send + 'static, M: Metrics> Core<T, M> {
    /// A worker's life. Whether it was dismissed, and is counted no more.
    pub fn work(&self, me: usize) -> bool {
        barrier::prepare();
        let mut hand = self.trays[me].hand().expect("one worker for each tray");
        let tally = &*self.tallies[me];
        let mut pulse = Pulse::default();
        // When the job that is begun next begins; none if no times are taken, or it is not known.
        let mut begun = None;
        let mut next = hand.begin();
        loop {
            next = match next {
                Next::Run => {
                    hand.run(|job| self.run(job, me, tally, &mut begun));
                    hand.begin()
                }
                Next::Fill => {
                    self.before_batch(&mut pulse);
                    let mut taken = self.find(me, &mut hand, &mut None, false);
                    if taken.next == Next::Fill {
                        taken = match self.rest(me, &mut hand) {
                            Rest::Found(taken) => taken,
                            Rest::Woken => {
                                pulse.small = false;
                                continue;
                            }
                            Rest::Over { dismissed } => return dismissed,
                        };
                    }
                    if taken.next == Next::Run {
                        self.after_batch(&mut pulse, taken.jobs);
                        self.spread(taken.jobs - 1);
                        begun = self.moment();
                    }
                    taken.next
                }
                Next::Revoked => return false,
            };
        }
    }

    fn before_batch(&self, pulse: &mut Pulse) {
        if let Some((since, jobs)) = pulse.measured.take() {
            let took = self.own_clock.now().saturating_since(since);
            self.pace.learn(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX) / jobs);
        }
        if pulse.small && !self.pace.is_long() {
            pause();
        }
    }

    fn after_batch(&self, pulse: &mut Pulse, jobs: usize) {
        pulse.small = jobs < BATCH / 4;
        pulse.unmeasured += 1;
        if !cfg!(any(loom, shuttle)) && (!pulse.small || pulse.unmeasured >= SAMPLE || self.pace.is_long()) {
            pulse.measured = Some((self.own_clock.now(), jobs as u64));
            pulse.unmeasured = 0;
        }
    }

    /// Fills the tray: T5 and T6. [`Next::Fill`] if there is nothing. Then rings those who wait for room, and comes to what the reclaimer
    /// frees: user code, which must not run while the tray is being filled.
    fn find(&self, me: usize, hand: &mut Hand<'_, Job<T>>, glance: &mut Glance, at_once: bool) -> Taken {
        let section = self.queue.section();
        if !hand.fill() {
            return Taken { jobs: 0, next: Next::Revoked };
        }
        let jobs = self.take(me, hand, glance, at_once);
        let next = hand.filled();
        drop(section);
        // Also if nothing was taken: producers may have been passed by.
        if self.room.freed(jobs, |silent| self.free_places(silent)) {
            // K3; F1 was K1, and F2 K2.
            self.keeper.call();
        }
        Taken { jobs, next }
    }

    /// Takes from a tray that is held up, or a batch from the queue or, if there is nothing, from another tray; `at_once`, even if its
    /// worker has moved since `glance`.
    fn take(&self, me: usize, hand: &mut Hand<'_, Job<T>>, glance: &mut Glance, at_once: bool) -> usize {
        if let Some(held_up) = self.held_up.ask()
            && held_up != me
        {
            let stolen = hand.steal(&self.trays[held_up]);
            if stolen > 0 {
                return stolen;
            }
        }
        let most = if self.pace.is_long() { 1 } else { BATCH };
        let taken = self.queue.pop_into(most, |job| hand.put(job));
        if taken > 0 {
            return taken;
        }
        let last = glance.take();
        for other in (1..self.trays.len()).map(|i| (me + i) % self.trays.len()) {
            let tray = &self.trays[other];
            if tray.waiting() == 0 {
                continue;
            }
            let now = (other, tray.front());
            if at_once || last == Some(now) {
                let stolen = hand.steal(tray);
                if stolen > 0 {
                    return stolen;
                }
            }
            glance.get_or_insert(now);
        }
        0
    }

    /// Whether another worker is just taking something, or has more than it runs. While that is so in a pool that is closed nobody ends: it
    /// may be more than that worker can run in time, and it is in the queue no more.
    ///
    /// One look at each, not at all of them at once: what goes from one tray to another meanwhile may be missed, and is left to whoever took it.
    fn others_have_more(&self, me: usize) -> bool {
        self.trays.iter().enumerate().any(|(other, tray)| other != me && tray.has_more())
    }

    /// Nothing was found: looks again for a while, then sleeps.
    fn rest(&self, me: usize, hand: &mut Hand<'_, Job<T>>) -> Rest {
        let mut spin = Spin::new();
        let mut glance = None;
        for _ in 0..LOOKS {
            spin.once();
            let closed = self.is_closed();
            let taken = self.find(me, hand, &mut glance, closed);
            if taken.next != Next::Fill {
                return Rest::Found(taken);
            }
            if closed && !self.others_have_more(me) {
                return Rest::Over { dismissed: false };
            }
        }
        let ordered = self.beds.lie_down(me, self.time());
        // B3. Whether it is closed first: what is not found then will not come.
        let closed = self.is_closed();
        let mut taken = self.find(me, hand, &mut glance, closed || cfg!(any(loom, shuttle)));
        while closed && taken.next == Next::Fill && self.others_have_more(me) {
            spin.once();
            taken = self.find(me, hand, &mut glance, true);
        }
        if taken.next != Next::Fill || closed {
            let dismissed = self.beds.get_up(me);
            if taken.next != Next::Run {
                return Rest::Over { dismissed };
            }
            if dismissed {
                // It has work to do, and stays; those who were told that there is one less are told so.
                let before = self.beds.enlist();
                self.scaled(before, before + 1);
            }
            return Rest::Found(taken);
        }
        if glance.is_some() || self.beds.count().workers > self.scaling.least {
            // Another one has more than it runs; or this one may be one too many. Somebody must see to that in time. After the
            // barrier of B2.
            self.call_keeper();
        }
        let dismissed = if ordered { self.beds.sleep(me) } else { self.beds.doze(me, UNORDERED) };
        if dismissed { Rest::Over { dismissed } } else { Rest::Woken }
    }

    /// Wakes another worker if the jobs that are left are worth it, and otherwise has the keeper look after them.
    fn spread(&self, on_tray: usize) {
        // K2. No model would miss this one: what was taken was found by `find`, which ends with F2, after K1. It is here so that nobody has to know.
        barrier::light();
        let count = self.beds.count();
        if count.asleep == 0 {
            // Nobody can be woken: one more may be needed, or what is on the tray may turn out to be held up.
            if on_tray > 0 || self.scaling.may_grow(count.workers) && !self.queue.is_empty() {
                self.call_keeper();
            }
            return;
        }
        let left = on_tray + self.queue.len();
        let woken = left > 0 && self.pace.is_worth_waking(left) && self.beds.wake_one();
        // Who was woken comes to the queue first, and may find something there for ever: to what lies on the tray he need not come.
        if on_tray > 0 || left > 0 && !woken {
            self.call_keeper();
        }
    }

    /// Runs a job, which has begun when the one before it ended. Never panics, unless something is wrong in here.
    #[inline]
    fn run(&self, job: &mut Job<T>, me: usize, tally: &Tally, begun: &mut Option<Timestamp>) {
        if M::TIMED && begun.is_none() {
            // The clock has failed, be it that the worker has begun anew: the present moment is a little late, and the one before is another job's.
            *begun = self.moment();
        }
        let waited = begun.map(|begun| begun.saturating_since(job.since()));
        if M::TIMED {
            self.tell(|metrics| metrics.begun(waited));
        }
        let count = |kind: EndingKind| {
            let count = &tally.ended[kind as usize];
            // Relaxed: this worker alone writes it.
            count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            // Whoever waits for the job must be told, whatever the clock does.
            let ended = self.moment();
            let ran = ended
                .zip(std::mem::replace(begun, ended))
                .map(|(ended, begun)| ended.saturating_since(begun));
            // What was cancelled did not run, however long its cleanup took.
            let ran = if kind == EndingKind::Cancelled { None } else { ran };
            self.tell(|metrics| metrics.ended(kind, ran));
        };
        job.execute(&self.stopping, me, waited, &|payload, ending| self.report(payload, ending), count);
    }
}

impl EndingKind {
    /// How many kinds there are.
    pub(super) const COUNT: usize = 5;
}
