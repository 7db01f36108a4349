//! Runs programs of operations against a real scheduler and records what it answers.
//!
//! Used by all three checkers: the resource keeps its contents in the facade's cell, so that loom sees every access that
//! nothing orders, and counts its drops, so that nothing is lost and nothing is freed twice.

#![allow(clippy::disallowed_types)]

use std::{
    collections::VecDeque,
    hash::{BuildHasher, Hasher},
    sync::atomic::{AtomicIsize, AtomicU64, Ordering::SeqCst},
    time::Duration,
};

use leasehold::{
    AcquireError, AcquireKeyError, Backoff, Builder, Capacity, Ejection, Hold, InsertError, KeyError, Lease,
    NoneEligible, Outcome, Phase, Resource, Scheduler, Strategy, UpdateError,
    internals::sync::{Arc, ManualClock, SplitMix64, UnsafeCell},
};

use super::{
    checker::{Event, History},
    specification::{Answer, KEYS, LeaseId, Op, Seen, State},
};

/// A cooling that no clock of a test ends.
pub const FOR_EVER: Duration = Duration::from_secs(1 << 40);

/// An ejection that no clock of a test ends. Shorter, so that its end is a moment that the clock could reach.
const FOR_LONG: Duration = Duration::from_secs(1 << 30);

/// What is lent: ranked by key, so that the order is known.
pub struct Res {
    pub key: u8,
    pub version: u8,
    pub units: u8,
    /// The load makes it worse, so that every lease ranks it anew.
    pub by_load: bool,
    pub home: usize,
    /// The key once more, where the checkers watch.
    seal: UnsafeCell<u8>,
    alive: std::sync::Arc<AtomicIsize>,
}

// SAFETY: the cell is written before the value is published and read afterwards.
unsafe impl Sync for Res {}

impl Res {
    /// Reads what only a reader of a live, published value may read.
    pub fn check(&self) -> u8 {
        // SAFETY: see `Sync`.
        let seal = self.seal.with(|seal| unsafe { *seal });
        assert_eq!(seal, self.key, "the value is complete and alive");
        seal
    }

    pub fn again(&self, version: u8) -> Res {
        self.again_with_units(version, self.units)
    }

    pub fn again_with_units(&self, version: u8, units: u8) -> Res {
        self.alive.fetch_add(1, SeqCst);
        Res { version, units, seal: UnsafeCell::new(self.key), alive: self.alive.clone(), ..*self }
    }
}

impl Drop for Res {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // A second panic would hide the first.
            return;
        }
        // SAFETY: dropped by its only owner.
        self.seal.with_mut(|seal| unsafe { *seal = u8::MAX });
        self.alive.fetch_sub(1, SeqCst);
    }
}

impl Resource for Res {
    type Key = u8;
    type Priority = u32;

    fn key(&self) -> u8 {
        self.key
    }

    fn priority(&self, in_flight: u32) -> u32 {
        rank(self.key, if self.by_load { in_flight } else { 0 })
    }

    fn capacity(&self) -> Capacity {
        Capacity::Limited(u32::from(self.units))
    }

    fn home(&self, shards: usize) -> Option<usize> {
        Some(self.home % shards)
    }
}

fn rank(key: u8, load: u32) -> u32 {
    u32::from(key) + 100 * load
}

/// The same hashes in every run.
#[derive(Clone, Default)]
pub struct Fixed;

pub struct FixedHasher(u64);

impl Hasher for FixedHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = SplitMix64::mix(self.0 ^ u64::from(byte).wrapping_add(0x9e37));
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl BuildHasher for Fixed {
    type Hasher = FixedHasher;

    fn build_hasher(&self) -> FixedHasher {
        FixedHasher(0)
    }
}

/// What a fleet is made of.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub shards: usize,
    pub units: u8,
    pub by_load: bool,
    /// Room made ahead: few models are about growth.
    pub room: usize,
    /// One failure ejects, for ever, and all may be ejected at once.
    pub rules: bool,
    /// How many acquisitions stay in a shard: 1 looks at all of them each time, which is exact; more chooses the better of two, as the
    /// default does.
    pub period: u32,
}

impl Default for Setup {
    fn default() -> Self {
        Setup { shards: 1, units: 1, by_load: false, room: 2 * KEYS, rules: false, period: 1 }
    }
}

/// Of [`Setup::period`].
fn strategy(period: u32) -> Strategy {
    match period {
        1 => Strategy::BestOf { choices: usize::MAX },
        _ => Strategy::Sticky { choices: 2, period },
    }
}

/// Of [`Setup::rules`].
fn rules() -> Ejection {
    let rules = Ejection::default().consecutive_failures(1).max_share(100).without_place(Backoff::None);
    rules.jitter(0).base(FOR_LONG).longest(FOR_LONG)
}

/// A scheduler under test.
pub struct Fleet {
    pub scheduler: Scheduler<Res, Fixed>,
    pub clock: Arc<ManualClock>,
    pub setup: Setup,
    stamp: AtomicU64,
    alive: std::sync::Arc<AtomicIsize>,
}

impl Fleet {
    pub fn new(setup: Setup) -> Self {
        Self::with(setup, |builder| builder)
    }

    /// A fleet with more settings than [`Setup`] has.
    pub fn with(setup: Setup, more: impl FnOnce(Builder<Res, Fixed>) -> Builder<Res, Fixed>) -> Self {
        let clock = Arc::new(ManualClock::new());
        let builder = Scheduler::builder()
            .shards(setup.shards)
            .strategy(strategy(setup.period))
            .hasher(Fixed)
            .clock(Arc::clone(&clock))
            .seed(7)
            .virtual_nodes(2)
            .expected_resources(setup.room);
        let builder = if setup.rules { builder.ejection(rules()) } else { builder };
        let scheduler = more(builder).build().expect("valid settings");
        Fleet { scheduler, clock, setup, stamp: AtomicU64::new(1), alive: std::sync::Arc::default() }
    }

    /// What the specification knows of it.
    pub fn specification(&self) -> State {
        State::new(self.setup.units, self.setup.shards == 1 && !self.setup.by_load)
            .with_rules(self.setup.rules)
    }

    pub fn resource(&self, key: u8) -> Res {
        self.alive.fetch_add(1, SeqCst);
        Res {
            key,
            version: 0,
            units: self.setup.units,
            by_load: self.setup.by_load,
            home: key as usize,
            seal: UnsafeCell::new(key),
            alive: self.alive.clone(),
        }
    }

    /// Every member's state. Nothing else may be going on: then each rank is that of the present load.
    fn seen(&self) -> [Option<Seen>; KEYS] {
        let mut seen = [None; KEYS];
        for state in self.scheduler.snapshot() {
            let load = if self.setup.by_load { state.in_flight } else { 0 };
            assert_eq!(state.rank, u64::from(rank(state.key, load)), "the rank is that of another load");
            let held = |hold| state.holds.contains(&hold);
            let before = seen[state.key as usize].replace(Seen {
                in_flight: state.in_flight as u8,
                standing: state.standing,
                excluded: held(Hold::Excluded),
                cooling: held(Hold::Cooling),
                ejected: held(Hold::Ejected),
                draining: held(Hold::Draining),
                by_rules: self.setup.rules && self.phase(state.key) == Phase::Ejected,
            });
            assert!(before.is_none(), "each member is listed once");
        }
        seen
    }

    fn phase(&self, key: u8) -> Phase {
        self.scheduler.resource_stats(&key).expect("a member of a fleet with rules").phase
    }

    fn tick(&self) -> u64 {
        self.stamp.fetch_add(1, SeqCst)
    }

    /// At quiescence: the structure is consistent, and dropping it drops every resource, once.
    pub fn finish(self) {
        self.scheduler.check_invariants();
        drop(self.scheduler);
        // The real collector frees when it likes; the model's oracle is done when the scheduler is gone.
        let left = self.alive.load(SeqCst);
        assert!(
            left == 0 || (left > 0 && cfg!(not(any(loom, shuttle)))),
            "dropped once, all of them: {left} left"
        );
    }
}

/// One thread of a program: its leases, and what it has recorded.
pub struct Actor<'f> {
    fleet: &'f Fleet,
    thread: u8,
    taken: u8,
    leases: VecDeque<(LeaseId, Lease<'f, Res>)>,
    pub events: Vec<Event<Op, Answer>>,
}

/// What a thread is told to do: as an operation, with "the oldest lease" for a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Do(Op),
    Release,
    ReleaseAfter,
    Fail,
    /// As `Release`, by a token.
    Redeem,
}

impl<'f> Actor<'f> {
    pub fn new(fleet: &'f Fleet, thread: u8) -> Self {
        Actor { fleet, thread, taken: 0, leases: VecDeque::new(), events: Vec::new() }
    }

    /// Whether a lease is out with this thread.
    pub fn holds(&self) -> bool {
        !self.leases.is_empty()
    }

    pub fn run(&mut self, steps: &[Step]) {
        steps.iter().for_each(|&step| self.step(step));
    }

    pub fn step(&mut self, step: Step) {
        match step {
            Step::Do(op) => self.record(op, |actor| actor.perform(op)),
            Step::Release => {
                if let Some((id, lease)) = self.leases.pop_front() {
                    self.record(Op::Release(id), |_| {
                        lease.check();
                        lease.release();
                        Answer::Done
                    });
                }
            }
            Step::Fail => {
                if let Some((id, lease)) = self.leases.pop_front() {
                    self.record(Op::Fail(id), |_| {
                        lease.check();
                        lease.finish(Outcome::Failed);
                        Answer::Done
                    });
                }
            }
            Step::Redeem => {
                if let Some((id, lease)) = self.leases.pop_front() {
                    lease.check();
                    let token = lease.into_token();
                    self.record(Op::Release(id), |actor| {
                        actor.fleet.scheduler.release(token).expect("out");
                        Answer::Done
                    });
                }
            }
            Step::ReleaseAfter => {
                if let Some((id, lease)) = self.leases.pop_front() {
                    self.record(Op::ReleaseAfter(id), |_| {
                        lease.check();
                        lease.release_after(FOR_EVER);
                        Answer::Done
                    });
                }
            }
        }
    }

    fn record(&mut self, op: Op, f: impl FnOnce(&mut Self) -> Answer) {
        let call = self.fleet.tick();
        let answer = f(self);
        let done = self.fleet.tick();
        self.events.push(Event { op, answer, call, done });
    }

    fn lent(&mut self, lease: Lease<'f, Res>) -> Answer {
        let id = (self.thread, self.taken);
        self.taken += 1;
        let answer = Answer::Lent { key: lease.check(), version: lease.version, lease: id };
        self.leases.push_back((id, lease));
        answer
    }

    fn acquired(&mut self, result: Result<Lease<'f, Res>, AcquireError>) -> Answer {
        match result {
            Ok(lease) => self.lent(lease),
            Err(AcquireError::Closed) => Answer::Closed,
            Err(AcquireError::NoneEligible(NoneEligible { reasons, .. })) => {
                let (full, held) = (reasons.at_capacity, [reasons.draining, reasons.excluded]);
                let all = [full, reasons.cooling, reasons.ejected, held[0], held[1]];
                Answer::None(all.map(|count| count as u8))
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn perform(&mut self, op: Op) -> Answer {
        let fleet = self.fleet;
        let scheduler = &fleet.scheduler;
        let changed = |result: Result<bool, KeyError<u8>>| match result {
            Ok(changed) => Answer::Changed(changed),
            Err(KeyError::Closed) => Answer::Closed,
            Err(_) => Answer::NotFound,
        };
        match op {
            Op::Insert(key) => match scheduler.insert(fleet.resource(key)) {
                Ok(()) => Answer::Done,
                Err(rejected) => inserted(&rejected.error),
            },
            Op::InsertBatch(from, count) => {
                let batch = (from..from + count).map(|key| fleet.resource(key)).collect();
                match scheduler.insert_batch(batch) {
                    Ok(_) => Answer::Done,
                    Err(rejected) => inserted(&rejected.error),
                }
            }
            Op::Remove(key) => match scheduler.remove(&key) {
                Ok(removed) => Answer::Removed { in_flight: removed.in_flight as u8 },
                Err(KeyError::Closed) => Answer::Closed,
                Err(_) => Answer::NotFound,
            },
            Op::Update(key) => match scheduler.update(fleet.resource(key)) {
                Ok(()) => Answer::Done,
                Err(rejected) => updated(&rejected.error),
            },
            Op::UpdateWith(key) => {
                match scheduler.update_with(&key, |old| {
                    old.check();
                    old.again(old.version + 1)
                }) {
                    Ok(()) => Answer::Done,
                    Err(error) => updated(&error),
                }
            }
            Op::Acquire => self.acquired(scheduler.acquire()),
            Op::AcquireNear(id) => self.acquired(scheduler.acquire_by_affinity(&id)),
            Op::AcquireEven => match self.acquired(scheduler.acquire_where(|found| found.check() % 2 == 0)) {
                Answer::None(_) => Answer::NoneEven,
                answer => answer,
            },
            Op::AcquireKey(key) => match scheduler.acquire_key(&key) {
                Ok(lease) => self.lent(lease),
                Err(AcquireKeyError::Closed) => Answer::Closed,
                Err(AcquireKeyError::NotEligible { standing, .. }) => Answer::NotEligible(standing),
                Err(_) => Answer::NotFound,
            },
            Op::Release(_) | Op::ReleaseAfter(_) | Op::Fail(_) => unreachable!("told as steps"),
            Op::Exclude(key) => changed(scheduler.exclude(&key)),
            Op::Include(key) => changed(scheduler.include(&key)),
            Op::Cool(key) => changed(scheduler.cool(&key, FOR_EVER)),
            Op::Warm(key) => changed(scheduler.warm(&key)),
            Op::Eject(key) => changed(scheduler.eject(&key)),
            Op::Readmit(key) => changed(scheduler.readmit(&key)),
            Op::Drain(key) => changed(scheduler.drain(&key)),
            Op::Undrain(key) => changed(scheduler.undrain(&key)),
            Op::Get(key) => match scheduler.get(&key) {
                Some(found) => {
                    assert_eq!(found.check(), key);
                    Answer::Version(found.version)
                }
                None => Answer::NotFound,
            },
            Op::Len { .. } => Answer::Len(scheduler.len() as u8),
            Op::Evict => scheduler.evict_worst().map_or(Answer::NotFound, Answer::Evicted),
            Op::Snapshot => Answer::Fleet(fleet.seen()),
            Op::Close => Answer::Changed(scheduler.close()),
        }
    }
}

fn inserted(error: &InsertError<u8>) -> Answer {
    match error {
        InsertError::Duplicate { .. } => Answer::Duplicate,
        InsertError::Closed => Answer::Closed,
        other => panic!("{other}"),
    }
}

fn updated(error: &UpdateError<u8>) -> Answer {
    match error {
        UpdateError::NotFound { .. } => Answer::NotFound,
        UpdateError::Closed => Answer::Closed,
        other => panic!("{other}"),
    }
}

/// One operation, at random: what all threads of a random history do. Several at once are not among them: `acquire_many` takes one unit after the
/// other, and is no operation but so many.
pub fn any_step(random: &mut SplitMix64) -> Step {
    let key = random.below(KEYS as u32) as u8;
    Step::Do(match random.below(39) {
        0..4 => return Step::Release,
        4 => return Step::Redeem,
        5 => return Step::ReleaseAfter,
        6 => return Step::Fail,
        7..11 => Op::Acquire,
        11..13 => Op::AcquireKey(key),
        13 => Op::AcquireNear(key),
        14 => Op::AcquireEven,
        15..18 => Op::Insert(key),
        18..20 => Op::Remove(key),
        20 => Op::InsertBatch(key.min(KEYS as u8 - 2), 2),
        21 => Op::Exclude(key),
        22..24 => Op::Include(key),
        24..26 => Op::Warm(key),
        26 => Op::Cool(key),
        27 => Op::UpdateWith(key),
        28 => Op::Update(key),
        29 => Op::Evict,
        30 => Op::Len { slack: 0 },
        31 => Op::Drain(key),
        32 => Op::Undrain(key),
        33 => Op::Eject(key),
        34..36 => Op::Readmit(key),
        // Seldom: there is not much to be seen after it.
        36 if random.below(8) == 0 => Op::Close,
        _ => Op::Get(key),
    })
}

/// Gives every `len` the slack that its documentation allows it.
pub fn allow_slack(history: &mut History<Op, Answer>) {
    let moves: Vec<(u64, u64)> = history
        .iter()
        .flatten()
        .filter(|event| matches!(event.op, Op::Insert(_) | Op::Remove(_) | Op::Evict))
        .map(|event| (event.call, event.done))
        .collect();
    for event in history.iter_mut().flatten() {
        if let Op::Len { slack } = &mut event.op {
            let overlapping = moves.iter().filter(|&&(call, done)| call < event.done && event.call < done);
            *slack = overlapping.count() as u8;
        }
    }
}

/// Reads all that can be read of a quiescent fleet, as operations that must fit at the end of its history.
pub fn observe(actor: &mut Actor<'_>) {
    for key in 0..KEYS as u8 {
        actor.step(Step::Do(Op::Get(key)));
    }
    actor.step(Step::Do(Op::Len { slack: 0 }));
    actor.step(Step::Do(Op::Snapshot));
}
