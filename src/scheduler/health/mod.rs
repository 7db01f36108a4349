//! Ejection, recovery and cooldown: how what `health` decides is carried out.
//!
//! | file | idea |
//! |---|---|
//! | this one | the steps |
//! | `book` | what is due when |
//! | `coming` | when a resource comes back by itself; what "none" tells |
//! | `forms` | the public surface |
//!
//! # Steps
//!
//! ```text
//! return with an outcome                         when it is due (an acquisition, a tick, a wait)
//!   O1  read the clock; the resource's cooldown    P1  take the entry out of the book
//!   O2  home lock: judge; a place under the        P2  home lock: still that ejection? one unit, PROBING, clear the hold
//!       share; give back, with the holds, in       P3  the place is free again; unpin; offer to whoever waits
//!       one CAS; pin
//!   O3  enter into the book; note the moment
//! ```
//!
//! **Exactly one probe.** P2 sets the limit to one unit before it clears the hold, in one critical section: from then on the word
//! allows one lease, until O2 of the probe sets the limit anew. Leases from before the ejection count against that unit, and their outcomes
//! decide nothing, then or later: the probe is lent when all of them are back, and its success is the first thing that the resource is
//! judged by from then on. No time ends a probe: whoever has it may still be at work, and a second one beside it would be two. A lease that
//! is never given back keeps its resource there until it is revoked; how many there are is counted.
//!
//! **No timer.** The book's first moment takes part in the hint that cooling has (`Core::earliest`): whoever finds that it has come does
//! what is due. Whoever finds nothing eligible asks for more than that: see `coming`.
//!
//! An entry that is in the book when its ejection is not any more (readmitted, or ejected, by hand; removed) is struck out, or found
//! stale in P2: it knows the moment that its ejection was to end. The pin of O2 belongs to one entry, which O3 makes in any case, and
//! strikes out itself if the record does not say so any more; a removal strikes out all that the resource has. Record first, book then:
//! of an entry and a removal the later one finds the other.

mod book;
mod coming;
mod forms;

use std::ptr::NonNull;

use book::{Book, Task};

use super::{core::Core, wait::Named};
use crate::{
    health::{Circumstances, Cooldown, Ejection, Phase, Record, Report, Share, Verdict, towards_median},
    node::{Hold, Node, Value, quietly},
    outcome::Outcome,
    resource::Resource,
    shard::{Count, Forecast, Locked, Pin},
    sync::{
        CachePadded,
        atomic::{AtomicU64, Ordering},
        count,
    },
};

/// Settings and state of a scheduler that remembers outcomes.
pub struct Health<R: Resource> {
    rules: Option<Ejection>,
    cooldown: Option<Cooldown>,
    /// Ranks depend on what was seen.
    pub ranks: bool,
    share: Share,
    /// Resources of which the probe has not decided yet. Written with their home's lock held.
    // Lint: `count` is std's own under loom, on purpose.
    #[allow(clippy::disallowed_types)]
    probing: count::AtomicU64,
    /// By shard: the median latency of successes. Written with the shard's lock held.
    medians: Box<[CachePadded<AtomicU64>]>,
    book: Book<R>,
}

/// An outcome, as it was told.
#[derive(Clone, Copy, Debug)]
pub struct Told {
    pub outcome: Outcome,
    pub now: u64,
    pub draw: u16,
}

/// What is entered into the book, and when it is due.
#[derive(Clone, Copy, Debug)]
pub struct Due {
    moment: u64,
    task: Task,
}

/// Steps in which a resource gets its units back.
const RAMP_STEPS: u32 = 16;

/// Nanoseconds from one step of a ramp to the next.
fn step_of(rules: &Ejection) -> u64 {
    let ramp = u64::try_from(rules.ramp.as_nanos()).unwrap_or(u64::MAX);
    (ramp / u64::from(RAMP_STEPS)).max(1)
}

impl<R: Resource> Health<R> {
    #[allow(clippy::disallowed_types)]
    pub fn new(rules: Option<Ejection>, cooldown: Option<Cooldown>, ranks: bool, shards: usize) -> Self {
        Health {
            rules,
            cooldown,
            ranks,
            share: Share::new(rules.map_or(0, |rules| rules.max_share)),
            probing: count::AtomicU64::new(0),
            medians: (0..shards).map(|_| CachePadded::new(AtomicU64::new(0))).collect(),
            book: Book::new(),
        }
    }

    /// When something is due next.
    pub fn earliest(&self) -> u64 {
        self.book.earliest()
    }

    /// As [`earliest`](Self::earliest), for one who stands in the queue already, and would wait.
    pub fn first_moment(&self) -> u64 {
        self.book.first_moment()
    }

    /// How many are ejected by the rules.
    pub fn ejected(&self) -> u32 {
        self.share.count()
    }

    /// How many have a probe that has not decided yet.
    pub fn probing(&self) -> u64 {
        self.probing.load(Ordering::Relaxed)
    }

    fn probe_began(&self) {
        // Relaxed, as below: a count.
        self.probing.fetch_add(1, Ordering::Relaxed);
    }

    fn probe_ended(&self) {
        let before = self.probing.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "only what has begun ends");
    }

    /// The fleet's median latency: the lower median of the shards'. 0 if there is none yet. Of more shards than [`ASKED`], so many are asked,
    /// evenly spread.
    fn median(&self) -> u64 {
        if self.rules.is_none_or(|rules| rules.latency.is_none()) {
            return 0;
        }
        let mut known = [0; ASKED];
        let mut count = 0;
        let step = self.medians.len().div_ceil(ASKED);
        for median in self.medians.iter().step_by(step.max(1)) {
            // Relaxed: estimates.
            let median = median.load(Ordering::Relaxed);
            if median > 0 {
                known[count] = median;
                count += 1;
            }
        }
        let known = &mut known[..count];
        if known.is_empty() { 0 } else { *known.select_nth_unstable((count - 1) / 2).1 }
    }

    /// A resource has left its shard, or is not lent any more: if it was the only one there, its latency is not the fleet's. The lock
    /// is its home's.
    fn forget_median(&self, locked: &Locked<'_, R>, node: &Node<R>) {
        if locked.live() <= 1 {
            self.medians[node.home() as usize].store(0, Ordering::Relaxed);
        }
    }
}

/// Shards of which the medians are compared.
const ASKED: usize = 64;

impl<R: Resource> Core<R> {
    /// O1. The clock was read, before anything was changed. A panic of `cooldown` stops here: it may be too late to undo anything.
    pub fn report(&self, node: &Node<R>, resource: &R, told: &Told) -> Option<Report> {
        let health = self.health.as_ref()?;
        let _ = node.record()?;
        let own = match told.outcome {
            Outcome::Failed | Outcome::RateLimited { .. } => quietly(|| resource.cooldown()).flatten(),
            _ => None,
        };
        // What a rate limit says holds for whoever has no rules.
        let cooldown = own.or(health.cooldown).or(Some(Cooldown::default()));
        let Told { outcome, now, draw } = *told;
        let successes = self.successes_without_place(health, node, outcome);
        Some(Report { outcome, now, cooldown, median: health.median(), successes, draw })
    }

    /// The fleet's successes, for one that fails while there seems to be no place for it. O(shards), and only for those: they rest after it.
    fn successes_without_place(&self, health: &Health<R>, node: &Node<R>, outcome: Outcome) -> Option<u64> {
        let is_asked = health.rules.is_some()
            && outcome == Outcome::Failed
            && !node.state.load().is_held(Hold::Cooling)
            && !health.share.has_place(self.roster.members());
        is_asked.then(|| self.shards.iter().map(|shard| shard.face().count(Count::Succeeded)).sum())
    }

    /// O2, all but the return itself. The lock is `node`'s home's.
    pub fn pass_judgement(&self, locked: &mut Locked<'_, R>, node: &Node<R>, report: &Report) -> Verdict {
        let Some((health, record)) = self.health.as_ref().zip(node.record()) else {
            return Verdict::default();
        };
        let state = node.state.load();
        let can_eject = !state.is_removed() && !state.is_held(Hold::Ejected);
        let has_one_unit = record.full_limit().unwrap_or(locked.details(node).limit) == 1;
        // What was lent before it was held has no part in the median any more, as what is not lent has none.
        let is_lent = !state.is_removed()
            && ![Hold::Excluded, Hold::Ejected, Hold::Draining].into_iter().any(|hold| state.is_held(hold));
        if let Outcome::Ok { latency } = report.outcome
            && is_lent
        {
            let median = &health.medians[node.home() as usize];
            let latency = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
            // Relaxed: under the lock; read as an estimate.
            median.store(towards_median(median.load(Ordering::Relaxed), latency), Ordering::Relaxed);
        }
        let cools = state.is_held(Hold::Cooling);
        let circumstances = Circumstances { can_eject, has_one_unit, cools, out: state.in_flight() };
        let take = || health.share.take(|| self.roster.members());
        // The phase may change with nothing else: whoever reads states has to notice.
        locked.change();
        let was_probing = record.phase() == Phase::Probing;
        let verdict = record.judge(report, health.rules.as_ref(), circumstances, take);
        if was_probing && record.phase() != Phase::Probing {
            health.probe_ended();
        }
        if verdict.eject.is_some() {
            health.forget_median(locked, node);
        }
        verdict
    }

    /// O2 after the return, with the lock still held: keeps the node for the book, and lets the ramp begin. Answers what it is kept for:
    /// O3 has to enter that, whatever has become of the resource since.
    pub fn after_judgement(
        &self,
        locked: &mut Locked<'_, R>,
        node: &Node<R>,
        verdict: &Verdict,
        now: u64,
    ) -> Option<Due> {
        let due = if let Some(moment) = verdict.eject {
            Due { moment, task: Task::Readmit }
        } else if verdict.ramps && !node.state.load().is_removed() {
            self.step_up(locked, node, now);
            node.record().filter(|record| record.phase() == Phase::Ramping)?;
            Due { moment: self.next_step(self.health.as_ref()?, now, now), task: Task::Ramp(now) }
        } else {
            return None;
        };
        locked.keep_node(node);
        Some(due)
    }

    /// O3. The lock is free; `after_judgement` has kept the node for `due`.
    pub fn enter_verdict(&self, node: &Node<R>, due: Option<Due>) {
        let Some((health, due)) = self.health.as_ref().zip(due) else { return };
        // As soon as it is entered, the pin may be gone, and the node with it.
        let guard = self.pin();
        self.enter(health, node, due);
        drop(guard);
        if due.task == Task::Readmit {
            self.trim_ejected();
        }
    }

    /// Enters what a pin was taken for, and takes it out again if it is not so any more: whoever took it over, or removed the resource, has
    /// changed the record first and looked into the book then. The book's mutex orders the two: if that was before this, this sees the
    /// record; if after, the entry was found.
    ///
    /// The caller is in a section.
    fn enter(&self, health: &Health<R>, node: &Node<R>, Due { moment, task }: Due) {
        let named = Named::new(node);
        let replaced = health.book.enter(moment, named, task);
        let is_so = node.record().is_some_and(|record| match task {
            Task::Readmit => record.phase() == Phase::Ejected && record.until() == moment,
            Task::Ramp(began) => record.phase() == Phase::Ramping && record.until() == began,
        });
        let struck = if is_so { None } else { health.book.strike(moment, named, task) };
        self.note(moment);
        for named in [replaced, struck].into_iter().flatten() {
            self.let_go(named);
        }
    }

    /// Gives the book's pin back.
    fn let_go(&self, named: Named<R>) {
        let garbage = self.home(named.node()).lock().unpin_node(named.node());
        self.retire(garbage);
    }

    /// The moment after `now` at which a ramp that began at `began` goes on.
    fn next_step(&self, health: &Health<R>, began: u64, now: u64) -> u64 {
        let step = health.rules.map_or(1, |rules| step_of(&rules));
        let gone = now.saturating_sub(began) / step;
        began.saturating_add((gone + 1).saturating_mul(step)).min(crate::shard::NEVER - 1)
    }

    /// Gives a resource on the ramp as many units as it may have since the last step until `now`; at its end it is as before. Not as many
    /// as between two steps: whoever comes late would find more than was told.
    fn step_up(&self, locked: &mut Locked<'_, R>, node: &Node<R>, now: u64) {
        let Some((health, record)) = self.health.as_ref().zip(node.record()) else { return };
        let Some(rules) = health.rules else { return };
        let full = record.full_limit().unwrap_or(locked.details(node).limit);
        let began = record.until();
        // At the end of time there is no next step.
        let is_last = self.next_step(health, began, now) <= now;
        let now = now.saturating_sub(now.saturating_sub(began) % step_of(&rules));
        let is_over = is_last || record.ramp_is_over(&rules, now);
        if is_over {
            locked.change();
            record.set_phase(Phase::Healthy);
            record.set_full_limit(None);
        }
        locked.relimit(node, if is_over { full } else { record.ramped(&rules, now, full) });
    }

    /// With units to spare, a deadline may be all that is in a resource's way: then it is on its shard's face, and nobody has noted it. The
    /// lock is free: with it held the face does not show the deadline yet, and a thaw in between would take the note away.
    fn note_if_cooling(&self, node: &Node<R>) {
        if node.state.load().is_held(Hold::Cooling) {
            self.note_earliest(self.home(node));
        }
    }

    // P1 to P3.

    /// Does a few of the things that are due at `now`; what becomes eligible goes to those who wait.
    pub fn settle_due(&self, health: &Health<R>, now: u64, guard: &Pin<'_>) {
        for _ in 0..super::core::THAW_AT_ONCE {
            let Some((moment, named, task)) = health.book.next(now) else { return };
            match task {
                Task::Readmit => self.probe(health, moment, named.node()),
                Task::Ramp(began) => self.ramp(health, began, now, named.node()),
            }
            // The entry's pin keeps the node until the end.
            self.offer_node(named.node(), guard);
            self.let_go(named);
        }
    }

    /// P2 and P3, but for the pin.
    fn probe(&self, health: &Health<R>, moment: u64, node: &Node<R>) {
        let Some(record) = node.record() else { return };
        let shard = self.home(node);
        let moved = {
            let mut locked = self.lock(shard);
            if record.phase() != Phase::Ejected || record.until() != moment {
                return;
            }
            locked.change();
            begin_probe(&mut locked, node, record);
            health.probe_began();
            locked.clear(node, Hold::Ejected, Count::Readmitted)
        };
        health.share.give_back();
        if moved.is_ok_and(|moved| moved.to.is_held(Hold::Cooling)) {
            self.note_earliest(shard);
        }
    }

    /// The caller is in a section.
    fn ramp(&self, health: &Health<R>, began: u64, now: u64, node: &Node<R>) {
        let Some(record) = node.record() else { return };
        let goes_on = {
            let mut locked = self.lock(self.home(node));
            if record.phase() != Phase::Ramping || record.until() != began || node.state.load().is_removed() {
                return;
            }
            self.step_up(&mut locked, node, now);
            let goes_on = record.phase() == Phase::Ramping;
            if goes_on {
                locked.keep_node(node);
            }
            goes_on
        };
        self.note_if_cooling(node);
        if !goes_on {
            return;
        }
        self.enter(health, node, Due { moment: self.next_step(health, began, now), task: Task::Ramp(began) });
    }

    /// R3 of `health::share`: as many as there are too many come back early, those first that would anyway.
    pub fn trim_ejected(&self) {
        let Some(health) = &self.health else { return };
        // Not asked first whether there are any: a count that was read before the fence of R2 may be one too old.
        while health.share.exceeds(|| self.roster.members()) {
            let Some((moment, named)) = health.book.first_ejection() else { return };
            self.probe(health, moment, named.node());
            let guard = self.pin();
            self.offer_node(named.node(), &guard);
            self.let_go(named);
        }
    }

    // By hand.

    /// It is not lent any more, until somebody says otherwise. The lock is its home's.
    pub fn forget_median(&self, locked: &Locked<'_, R>, node: &Node<R>) {
        if let Some(health) = &self.health {
            health.forget_median(locked, node);
        }
    }

    /// Somebody has ejected or readmitted it by hand, or removed it: the rules begin anew. The lock is its home's. Answers when the
    /// ejection was to end, if it was the rules'.
    pub fn take_over(&self, locked: &mut Locked<'_, R>, node: &Node<R>) -> Option<u64> {
        let record = node.record()?;
        let until = (record.phase() == Phase::Ejected).then(|| record.until());
        if let Some(health) = &self.health {
            health.forget_median(locked, node);
            if record.phase() == Phase::Probing {
                health.probe_ended();
            }
        }
        if record.phase() != Phase::Healthy {
            locked.change();
            record.begin_anew();
            if let Some(full) = record.full_limit() {
                record.set_full_limit(None);
                locked.relimit(node, full);
            }
        }
        until
    }

    /// What follows, with the lock free. Gives the place back: the hold is gone, or not the rules' any more.
    pub fn taken_over(&self, node: &Node<R>, until: u64) {
        let Some(health) = &self.health else { return };
        health.share.give_back();
        self.strike(health, until, node);
    }

    /// Takes the end of an ejection out of the book, if it is there yet.
    fn strike(&self, health: &Health<R>, until: u64, node: &Node<R>) {
        if let Some(named) = health.book.strike(until, Named::new(node), Task::Readmit) {
            self.let_go(named);
        }
    }

    /// Takes all that the book has of a removed resource out of it: nothing of that will come, and its pins would keep the value.
    pub fn strike_all(&self, node: &Node<R>) {
        let Some(health) = &self.health else { return };
        while let Some(named) = health.book.strike_any(Named::new(node)) {
            self.let_go(named);
        }
    }

    /// Whether ranks depend on what was seen.
    #[inline]
    pub fn ranks_by_outcomes(&self) -> bool {
        self.health.as_ref().is_some_and(|health| health.ranks)
    }

    /// The rank of a resource with a value, at a load, and after what was seen of it. Runs user code.
    #[inline]
    pub fn rank_of(&self, node: &Node<R>, value: &Value<R>, in_flight: u32) -> Forecast<R> {
        use crate::rank::Priority;
        let seen = node.seen();
        let rank = match seen {
            Some(seen) => value.resource().priority_seen(in_flight, seen).rank(),
            None => value.resource().priority(in_flight).rank(),
        };
        Forecast { node: NonNull::from(node), value: NonNull::from(value), in_flight, seen, rank }
    }
}

/// P2 before the hold is cleared: one unit.
fn begin_probe<R: Resource>(locked: &mut Locked<'_, R>, node: &Node<R>, record: &Record) {
    record.begin_probe(node.state.load().in_flight());
    // Also if that is one: an update meanwhile may allow more, which then holds after the ramp and not before.
    if record.full_limit().is_none() {
        record.set_full_limit(Some(locked.details(node).limit));
    }
    locked.relimit(node, 1);
    // Also if that was the limit already: an exclusive lease from before is looked at when it comes back.
    node.note_limit(1);
}
