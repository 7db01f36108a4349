//! Waiting: one queue of threads and tasks, fair, cancel-safe, with nothing lost.
//!
//! | file | idea |
//! |---|---|
//! | `queue` | who waits, in which order; the gate |
//! | `waiter` | one who waits: what is handed over, and how he is woken |
//! | `serve` | a unit looks for a taker |
//! | `look` | a waiter looks for a unit |
//! | `named` | a certain resource is taken, if those who wait leave anything of it |
//! | `wish` | what is asked for |
//! | `pending` | one request from its first attempt to its end, for threads and tasks alike |
//! | `work` | what whoever asks filters has to do for others |
//! | `filter` | the filter of a waiter, run by whoever returns something |
//! | `time` | deadlines, cooling, the timekeeper, [`Timer`] |
//! | `timer` | a timer that is one thread |
//! | `request`, `forms`, `future` | the public surface |
//! | `error`, `stats` | what went wrong; what happened |
//!
//! # States of a waiter
//!
//! ```text
//!             register                unit                      looks
//!   (fresh) ------------> QUEUED ---------------> CLAIMED ----------------> READY --------> (done)
//!                          |  ^                      |   delivered                   lease
//!                          |  | nudge lost           | gone: the unit goes to the next
//!                          |  +--- NUDGED <----------+ (Throughput only)
//!                          |
//!                          +--> FAILED   closed, removed (key), overdue, a panic of the filter
//!                          +--> GONE     cancelled: dropped, timed out
//! ```
//!
//! `QUEUED` is membership in the queue, guarded by its mutex. **Whoever takes a waiter out of the queue, and nobody else, may
//! end its wait.** The rest is the waiter's phase, behind a mutex of the waiter's own. No two of these mutexes, but for P2
//! below, and none of them and a shard's lock, are ever held together; no user code, filter or waker runs under any of them.
//!
//! # The gate
//!
//! One word beside the queue, written under its mutex: 0 if nobody waits, else the ticket of the latest registration and
//! whether somebody waits who takes anything. All that the rest of the scheduler pays for waiting is one Relaxed load of
//! it: made with the home shard's lock held, or after it was held.
//!
//! ```text
//! waiter                                         maker (whoever makes a resource eligible)
//!   N1  queue mutex: insert, gate := ticket        M1  home lock: the change
//!   N2  each shard's lock, one after another:      M2  in it or after it: load gate; 0: nobody waits
//!       look, take                                 M3  not 0: look for a taker
//! ```
//!
//! Why that needs no fence: N2 and M1 hold the same lock, in one order or the other.
//!
//! * N2 first: the gate's store comes before M2's load, through the lock. M2 sees this ticket or a later word, 0 only if the
//!   waiter is served already.
//! * M1 first: N2 sees what M1 has made eligible, and takes it.
//!
//! So N2 has to take each lock (for a named resource that of its home): a look at the published words would leave a gap. It is done once for each registration, and
//! not at all by one who takes anything and finds another such waiter in the queue who has done it (*settled*): while that one
//! is queued, everything eligible has a maker who is still in M3, and who will find either of them.
//!
//! # Direct hand-off
//!
//! A unit that comes back while somebody waits is given back and taken again **in one critical section** of its home lock:
//! it is never eligible for a moment, so no passer-by can have it. It is *in hand* then, a lease as any other, and looks for
//! a taker:
//!
//! ```text
//! H1  home lock: gate 0, or known that nobody wants the present value: give back, done. Not eligible afterwards (held, removed, above
//!     a lowered limit): give back, done
//! H2  somebody takes anything (a bit of the gate says so): give back and take, in this critical section; on to H4
//! H3  only filters and names wait: ask them about the present value; nobody: note the ticket and the value, back to H1; somebody, or
//!     a filter that is away: as H2
//! H4  queue mutex: the first in order whose wish it satisfies leaves the queue; filters are asked outside of it. The filter of
//!     the next in order is away: the unit is parked there (see "Filters"), done. But if the resource was removed, or is held,
//!     since the unit was taken: a return, H1; whoever stands here may have asked afterwards
//! H5  deliver: the waiter's mutex: store the unit, READY, wake. It is gone: on with H4
//! H6  nobody in H4: home lock: give back if the gate is 0 or still has the ticket of the beginning of H4; else somebody has
//!     registered since, who may have passed this shard before: on with H4, asking the newcomers only. The value that was asked
//!     about is not the present one: give back and take, in this critical section; on with H4, asking everybody
//! ```
//!
//! Why H1 and H6 look at the value: an update finds a resource that is lent out at its capacity, or in hand, and has nothing to offer. It
//! is under the same lock: before H1 or H6, and is seen there; or after it, and finds what it may offer.
//!
//! Nothing can go wrong between H4 and H5, for the unit is lent already: so nobody who has left the queue ever has to be put
//! back. That is the reason for taking before searching. Its price: a unit for which the last taker has gone between H2 and H4
//! counts as lent and returned once more.
//!
//! A unit that is handed on leaves its resource's load, and so its rank, as it was. One that is taken on behalf of a waiter from what is
//! eligible adds to the load; the waiter ranks the resource anew when it picks the unit up.
//!
//! Most often nobody waits but those who take anything, one unit each, and the resource is exclusive and as it was when it was lent. Then H2
//! leaves heaps and standings alone, for they would be as before, and changes the word and the counts; H4 asks for the first of the line
//! only (`hand_over`, `hand_to_first`). Whatever is otherwise is seen under the same locks, and goes the long way from the step where it was seen.
//!
//! The same H4 to H6 serve every other source. If somebody takes anything, H2 holds for an insertion, an update, a hold and a cooling
//! that end: the change and the taking are one critical section. Otherwise, and after a batch, the rules of ejection, and an end of
//! draining for the whole fleet, the change is made first, and then the resource is lent on behalf of whoever wants it, as long as it is
//! eligible: a passer-by may come first in that moment. So it is for all units but the first of a resource that becomes eligible with
//! several: how many are wanted only the queue's mutex knows, and what is taken for nobody would be missing elsewhere. Units that are in the hands of a waiter that is cancelled are returned, which is
//! again H1.
//!
//! # Order
//!
//! By arrival, less `class x ageing` ([`Builder::ageing`](super::Builder::ageing)); equal ones by arrival. A static total order:
//! a waiter is overtaken by later arrivals only if they are of a higher class, d classes above it, and then by fewer than
//! `d x ageing` of them: those that arrive less than `d x ageing` after it. So nobody starves.
//!
//! `acquire_many` collects. From its first unit on it stands before all others that take anything, so that at most one waiter holds a
//! part and wants more: no two wait for each other. This is the exception to the bound above: it is before those of a higher class, too,
//! until it has all. Whoever begins to collect is the first in order of those who take anything. So one of them is overtaken by one collector at
//! most, which has begun before it came, and by the units that this one lacked then. Not before those who want one resource, or have a filter, and come before it in
//! order: a sequence of collectors would overtake them for ever.
//!
//! ## Parts
//!
//! Nobody uses a unit that a collector has got, so a resource that drains, or was removed, is not to wait for it: the part is taken back.
//!
//! ```text
//! drain, removal                                deliverer (H5) of a part
//!   P1  home lock: the hold, the removal          P3  the waiter's mutex: store the unit
//!   P2  queue mutex, in it the waiter's:          P4  look at the word: leaving: P2
//!       take what is leaving; so many more
//!       are missing. Then give it back
//! ```
//!
//! P3 before P2, in the order of the waiter's mutex: P2 takes the unit. P2 before P3: P4 sees what P1 has written. P2 needs both mutexes
//! at once, the queue's first: between "it has one fewer" and "it lacks one more" a last unit could come and find the waiter neither
//! complete nor in the queue. P2 is left out if the gate says that nobody waits. It may say so after a collector has registered, and a part that was in hand
//! before has come to it: the gate is read after P1, and nothing orders it against P4. But then N2 of that collector comes after P1, in the resource's
//! lock; so at the end of N2 it does P2 for itself. What was claimed for it before, in the queue's mutex, is found there; who claims later sees the word
//! in H4. Nobody takes the queue's mutex while holding a waiter's. Whoever has lost all its parts, with none on its
//! way, stands in its own place again.
//!
//! # Filters
//!
//! Asked by whoever has something to offer, outside all locks. While asked, a filter is *away*, out of the queue's hands. Whoever comes
//! to it then, with a unit in hand, can neither ask nor pass it over: its waiter would be overtaken by those behind it, by one unit after
//! the other. So it leaves the unit there, *parked*, with its search, and has nothing more to do:
//!
//! ```text
//! whoever comes (H4)                           the asker
//!   F1  queue mutex: the filter is away:         F3  queue mutex: the filter is put back, or its waiter has left; take
//!       park the unit                                what is parked there
//!                                                F4  go on with the own unit; then with those, each where its search was
//! ```
//!
//! F1 before F3: the asker takes the unit. F3 before F1: the filter is not away. Each filter that was taken out is put back by the same
//! asker, once, whatever its answer was, also if it has panicked, and if its waiter has left; so no unit stays parked.
//!
//! Others may bring more as long as it asks. It is not kept busy by that for ever, nor does a unit stay parked for longer than it takes to
//! ask about some that came before it:
//!
//! ```text
//! the asker, after the 16th of them about      the waiter of a filter that was passed over
//! which it has asked                             F7  queue mutex: a new ticket for all that has passed it over, in
//!   F5  go on with those that are left, the          the old place; take the filter out. Then N2. The filter is
//!       oldest first; ask no filter any more         away: whoever brings it back (F3) tells the waiter once more
//!   F6  where one would have to be asked:
//!       pass it over; when all is done, and
//!       back (H6), tell its waiter
//! ```
//!
//! Told after H6, the N2 of F7 sees what was given back. (Told before, it would be a newcomer for H6, to be passed over and told again: two threads
//! could go on like that for ever if the waiter's was favoured.) What was parked elsewhere meanwhile is still in hand: then F7 makes it a newcomer for
//! whoever goes on with that. So nothing is lost on such a waiter, but it is overtaken: a filter that takes so
//! long that others come faster than it answers is at the expense of its own waiter.
//!
//! It ends: no unit asks anybody about the same value twice, but for a look's, which begins anew once; and a thread passes over only after 16 units have had answers that were new to them. (Were F7
//! a new registration for every search, two waiters who look in turn could keep the units that neither of them wants on their way for ever.)
//!
//! F4 is also for the rest of the resource, if whoever came has just made it eligible and it has more units: F1 ends that offer.
//!
//! A waiter is the first asker of its own filter: it registers with the filter away, for its N2. What it finds there goes to those before
//! it that want it, or is parked with itself.
//!
//! The search for what an N2 has taken, and no other, passes over filters that are away: what it brings was eligible, so they have looked
//! at it and refused it, or its maker is still in M3, or they look now, and it is as with a passer-by. A look that parked what it finds
//! would go on looking, and park everything. If nobody takes it, the search begins anew and passes nobody over; so nothing is given back
//! that one of those has not been asked about. A panic of a filter is caught, ends that wait, and goes on in the waiter's own thread or task.
//!
//! # Names
//!
//! A waiter for one resource keeps the node by a pin (`node`, rule 5) as long as it waits, so the queue may hold its
//! address. A removal fails the waiters of the node before it forgets it; one that registers at the same time finds the node
//! removed in its N2.
//!
//! # Nudges
//!
//! With [`Fairness::Throughput`] a unit that comes back is eligible at once, and the first waiter that wants *that resource* is woken to
//! try, which need not be what it takes: it takes what is best for it. Several such nudges may be under way. So that none is lost each
//! carries the resource, pinned, and whoever has got it answers for it: if he has taken something else, or nothing, gives up, fails or
//! panics, and the resource is still eligible, the nudge goes to the next who wants that resource. So for each eligible resource that
//! somebody in the queue wants there is a nudge under way, or a maker in M3, or a waiter that has still to look (N2). Whoever has tried in
//! vain passes on before he registers anew.
//!
//! # Cancellation
//!
//! The waiter leaves the queue, and that was all; or somebody has claimed it: its phase becomes `GONE`, and the deliverer, or
//! the canceller if the unit is there already, sends the unit on. Nobody waits for anybody, with one exception: a filter that
//! borrows (blocking forms only) must be back before its owner's call returns.
//!
//! # Departures from the first design
//!
//! * The queue and the waiters have mutexes, not spinlocks: an entry is allocated in the queue's, and a condition variable
//!   wakes threads, so that no stray wake-up token is left with the user's thread.
//! * The unit is taken before a taker is claimed, not after: see above.
//! * Other sources offer the very resource that has changed, instead of looking through all shards for each waiter.

mod error;
mod filter;
mod forms;
mod future;
mod look;
mod named;
mod pending;
mod queue;
mod request;
mod serve;
mod stats;
mod time;
mod timer;
mod waiter;
mod wish;
mod work;

pub use error::WaitError;
pub use future::{Acquire, AcquireMany, AcquireManyOwned, AcquireOwned};
pub use queue::Gate;
pub use request::{Matching, One, Request, Several};
pub use stats::WaitStats;
pub use time::Timer;
#[cfg(not(any(loom, shuttle)))]
pub use timer::ThreadTimer;
pub(super) use waiter::Named;

use std::{fmt, time::Duration};

use self::{
    queue::{Queue, QueueGuard},
    stats::Counts,
};
use super::core::Core;
use crate::{
    resource::Resource,
    shard::NEVER,
    sync::{
        CachePadded, Mutex, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

/// Who gets what is returned while somebody waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Fairness {
    /// The first waiter that it satisfies, directly: it is never eligible in between. Every waiting form queues behind those
    /// who wait already. A request that is not let into the queue ([`max_waiters`](super::Builder::max_waiters),
    /// [`shed_late`](super::Builder::shed_late)) takes what is free, as a form that does not wait would.
    ///
    /// What becomes eligible otherwise goes to those who wait as well. If one of them takes anything, no passer-by comes first after an
    /// insertion, an update, the end of a hold or of a rest; one may after a batch, the end of an ejection by the [rules](crate::Ejection)
    /// and [`undrain_all`](super::Scheduler::undrain_all), and while all who wait want something certain. Of a resource that becomes eligible
    /// with several units the first is handed over like that; the others follow one by one, and a passer-by may come between.
    #[default]
    Strict,
    /// Whoever comes first: it becomes eligible, and the first waiter that it satisfies is woken to try for itself. No bound on how long
    /// one waits.
    ///
    /// A task that was woken and is neither polled nor dropped keeps the next one from being woken for that resource, also beyond its own deadline; and it
    /// counts towards [`max_waiters`](super::Builder::max_waiters) as long. The resource is free meanwhile, for whoever asks.
    Throughput,
}

/// Settings of the waiters.
#[derive(Debug)]
pub struct Rules {
    pub fairness: Fairness,
    /// Arrivals that make up for one class.
    pub ageing: u32,
    pub max: usize,
    pub shed_late: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Rules { fairness: Fairness::default(), ageing: 32, max: usize::MAX, shed_late: false }
    }
}

impl Rules {
    /// Why somebody is not let into the queue.
    fn refuse<R: Resource>(&self, queue: &mut Queue<R>, newcomer: &Newcomer) -> Option<WaitError> {
        let waiting = queue.waiting();
        if waiting >= self.max {
            return Some(WaitError::QueueFull { waiting, max: self.max });
        }
        let &Newcomer { class, units, takes_any, now, deadline, rests_until } = newcomer;
        if !self.shed_late || deadline == NEVER {
            return None;
        }
        let left = deadline.saturating_sub(now);
        let shed = |expected| {
            let (expected, left) = (Duration::from_nanos(expected), Duration::from_nanos(left));
            Some(WaitError::Shed { expected, left })
        };
        if let Some(due) = rests_until {
            return shed(due.saturating_sub(now));
        }
        let ahead = queue.ahead_of(class);
        queue.pace.forget_if_silent(now);
        let expected = queue.pace.expect(ahead.saturating_add(units));
        // The first in line is let in whatever the pace was: if nobody were, it would never be measured again. How long a certain resource
        // takes is not known.
        let is_late =
            left == 0 || (takes_any && ahead > 0 && expected.is_some_and(|expected| expected > left));
        if is_late { shed(expected.unwrap_or(0)) } else { None }
    }
}

/// One who wants to be let into the queue.
struct Newcomer {
    class: u8,
    units: u64,
    /// Whatever is best, not a certain one.
    takes_any: bool,
    now: u64,
    deadline: u64,
    /// Nothing comes back before, and that is too late.
    rests_until: Option<u64>,
}

/// All who wait for something of one scheduler.
pub struct Waiters<R: Resource> {
    gate: CachePadded<AtomicU64>,
    queue: Mutex<Queue<R>>,
    rules: Rules,
    pub counts: Counts,
    timer: Option<Box<dyn Timer>>,
    /// For the timer's calls.
    core: Weak<Core<R>>,
}

impl<R: Resource> Waiters<R> {
    /// Nobody yet.
    pub fn new(rules: Rules, timer: Option<Box<dyn Timer>>) -> Self {
        Waiters {
            gate: CachePadded::new(AtomicU64::new(0)),
            queue: Mutex::new(Queue::new(rules.ageing)),
            rules,
            counts: Counts::default(),
            timer,
            core: Weak::new(),
        }
    }

    /// Before the core is shared.
    #[cfg(not(loom))]
    pub fn know_core(&mut self, core: &Weak<Core<R>>) {
        self.core = Weak::clone(core);
    }

    /// Before anybody else has the core. The model checker's shared pointer cannot be made around a weak one of itself.
    #[cfg(loom)]
    pub fn know_core(&self, core: &crate::sync::Arc<Core<R>>) {
        self.core.point_to(core);
    }

    /// Who waits, roughly. See the module header for when that is enough.
    #[inline]
    pub fn gate(&self) -> Gate {
        // In a build where nobody may wait: what the load costs is counted by the difference (`benches/instructions`).
        if cfg!(leasehold_gateless) {
            return Gate::new(0);
        }
        // Relaxed: ordered by the shard's lock against N1; both outcomes are in the module header.
        Gate::new(self.gate.load(Ordering::Relaxed))
    }

    fn queue(&self) -> QueueGuard<'_, R> {
        // No code that can panic in the middle of a change runs under it.
        let queue = self.queue.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        QueueGuard::new(queue, &self.gate)
    }

    /// Whether anybody waits, as the mutex knows.
    pub fn anybody(&self) -> bool {
        self.queue().waiting() > 0
    }

    /// What has happened so far.
    pub fn stats(&self) -> WaitStats {
        self.counts.read()
    }

    /// What becomes eligible is for those who wait. For the holder of its home's lock.
    #[inline]
    pub fn hands_on(&self) -> bool {
        self.gate().is_open() && self.is_strict()
    }

    fn is_strict(&self) -> bool {
        self.rules.fairness == Fairness::Strict
    }
}

impl<R: Resource> fmt::Debug for Waiters<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiters").field("rules", &self.rules).finish_non_exhaustive()
    }
}
