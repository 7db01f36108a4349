//! Runs operations on the real scheduler and on the oracle, and compares everything after each.
//!
//! | file | operations |
//! |---|---|
//! | `membership` | who is in the fleet |
//! | `lending` | taking units |
//! | `returning` | giving them back, by guards and by tokens |
//! | `holds` | holds, and the weights of shards |
//! | `looks` | looks that take nothing |
//! | `guard` | a lease, with what the oracle knows of it |

mod guard;
mod holds;
mod lending;
mod looks;
mod membership;
mod returning;

use std::{
    collections::BTreeMap,
    ops::{Deref, RangeInclusive},
    sync::Arc,
    time::Duration,
};

use leasehold::{
    AcquireError, AcquireKeyError, Hold, InsertError, KeyError, Lease, ManualClock, NoneEligible, Outcome,
    OwnedLease, Peek, Rejected, ReleaseError, Standing, Token, UpdateError, WeightsError,
};

use self::guard::{Guard, Held};
use super::{
    config::Config,
    op::{Accept, Change, Ended, Op},
    oracle::{LeaseFacts, Oracle, Refusal},
    resource::{Item, Key, Ledger, ModelHash, Site, Spec, probe},
};

/// The scheduler under test.
pub type Scheduler = leasehold::Scheduler<Item, ModelHash>;

/// How often which operation ended how: a run that met nothing has checked nothing.
#[derive(Debug, Default)]
pub struct Coverage(pub BTreeMap<(&'static str, &'static str), u64>);

impl Coverage {
    fn saw(&mut self, op: &'static str, end: &'static str) {
        *self.0.entry((op, end)).or_default() += 1;
    }

    pub fn add(&mut self, other: Coverage) {
        for (key, count) in other.0 {
            *self.0.entry(key).or_default() += count;
        }
    }

    pub fn operations(&self) -> u64 {
        self.0.values().sum()
    }
}

/// Both schedulers, and everything that is out.
pub struct Driver<'s> {
    real: &'s Scheduler,
    clock: &'s ManualClock,
    ledger: &'s Arc<Ledger>,
    pub oracle: Oracle,
    pub coverage: Coverage,
    held: Vec<Held<'s>>,
    tokens: Vec<Token>,
    peeks: Vec<(Peek<'s, Item>, u32)>,
    /// Where each id was sent when every shard had something to lend.
    affinity: BTreeMap<u8, usize>,
    versions: u32,
}

impl<'s> Driver<'s> {
    pub fn new(config: Config, real: &'s Scheduler, clock: &'s ManualClock, ledger: &'s Arc<Ledger>) -> Self {
        let mut driver = Driver {
            real,
            clock,
            ledger,
            oracle: Oracle::new(config),
            coverage: Coverage::default(),
            held: Vec::new(),
            tokens: Vec::new(),
            peeks: Vec::new(),
            affinity: BTreeMap::new(),
            versions: 0,
        };
        let room = config.max.map_or(usize::MAX, |(max, _)| max);
        for key in 0..config.initial.min(room.min(200) as u8) {
            let bytes = [0, key, key.wrapping_mul(29) ^ config.seed as u8, key >> 2, 0, 0];
            if let Op::Insert(spec) = Op::decode(bytes) {
                driver.insert(Spec { home: spec.home.filter(|&home| home < config.shards), ..spec });
            }
        }
        driver
    }

    /// Runs one operation on both sides and compares what can be seen of it.
    pub fn step(&mut self, op: &Op) {
        let end = self.run_op(op);
        self.coverage.saw(op.name(), end);
        self.check();
    }

    fn run_op(&mut self, op: &Op) -> &'static str {
        match op {
            Op::Insert(_)
            | Op::InsertBatch(_)
            | Op::Update(_)
            | Op::UpdateWith { .. }
            | Op::Remove(_)
            | Op::EvictWorst => self.membership(op),
            Op::Acquire { .. }
            | Op::AcquireKey { .. }
            | Op::AcquireWhere { .. }
            | Op::AcquireExcluding { .. }
            | Op::AcquireByAffinity { .. }
            | Op::AcquireMany { .. } => self.lending(op),
            Op::End { .. }
            | Op::Token { .. }
            | Op::IntoToken { .. }
            | Op::Redeem { .. }
            | Op::RedeemForeign { .. } => self.returning(op),
            Op::Exclude(_)
            | Op::Include(_)
            | Op::Warm(_)
            | Op::Eject(_)
            | Op::Readmit(_)
            | Op::Drain(_)
            | Op::Undrain(_)
            | Op::Cool { .. }
            | Op::SetWeights(_) => self.holding(op),
            Op::Get { .. }
            | Op::Peek { .. }
            | Op::PeekByAffinity { .. }
            | Op::PeekWorst
            | Op::DropPeeks
            | Op::Snapshot => self.looking(op),
            Op::Advance(span) => {
                self.clock.advance(*span);
                self.oracle.now += span.as_nanos() as u64;
                assert_eq!(self.real.now().as_nanos(), self.oracle.now);
                "ok"
            }
            Op::Close => {
                assert_eq!(self.real.close(), !self.oracle.closed, "one call closes");
                self.oracle.closed = true;
                assert!(self.real.is_closed());
                "ok"
            }
        }
    }

    /// The structure from scratch, and every count.
    pub fn check(&self) {
        let (real, oracle) = (self.real, &self.oracle);
        let tally = real.check_invariants();
        assert_eq!(tally.members, oracle.by_key.len() as u64, "members");
        assert_eq!(tally.in_flight, oracle.in_flight(), "leases out");
        assert_eq!(tally.leaving, oracle.leaving(), "removed but lent");
        assert_eq!(real.len(), oracle.by_key.len());
        assert_eq!(real.is_empty(), oracle.by_key.is_empty());
        let stats = real.stats();
        let none = oracle.none(|_| true);
        assert!(stats.consistent, "nobody else is here");
        assert_eq!(stats.members, oracle.by_key.len() as u64);
        assert_eq!(stats.eligible, none.filtered);
        assert_eq!(stats.reasons.at_capacity, none.at_capacity);
        assert_eq!(stats.reasons.cooling, none.cooling);
        assert_eq!(stats.reasons.ejected, none.ejected);
        assert_eq!(stats.reasons.draining, none.draining);
        assert_eq!(stats.reasons.excluded, none.excluded);
        assert_eq!(stats.reasons.filtered, 0);
        assert_eq!(stats.available, oracle.available());
        assert_eq!(stats.leaving, oracle.leaving());
        assert_eq!(stats.in_flight, oracle.in_flight());
        assert_eq!(stats.closed, oracle.closed);
        assert_eq!(stats.shards.len(), oracle.config.shards);
        for (shard, &eligible) in stats.shards.iter().enumerate() {
            assert_eq!(eligible as usize, oracle.in_shard(shard).count(), "eligible in shard {shard}");
        }
        macro_rules! same {
            ($($count:ident)*) => { $( assert_eq!(stats.$count, oracle.counts.$count, stringify!($count)); )* };
        }
        same!(inserted updated removed evicted lent returned excluded included cooled warmed);
        same!(ejected readmitted drained undrained succeeded failed rate_limited cancelled);
    }

    /// Ends every borrowed lease; what is owned outlives the scheduler.
    fn finish(mut self) -> (Vec<(OwnedLease<Item>, LeaseFacts)>, Coverage) {
        self.check_snapshot();
        self.peeks.clear();
        let mut owned = Vec::new();
        for held in std::mem::take(&mut self.held) {
            held.check();
            match held {
                Held { guard: Guard::Owned(lease), facts, .. } => owned.push((lease, facts)),
                Held { guard, facts, token } => {
                    drop(guard);
                    let out = token.is_none_or(|token| self.redeem(token).is_some());
                    if out {
                        self.oracle.give_back(&facts, None, None);
                    }
                    if token.is_some() {
                        self.oracle.unpin(facts.node);
                    }
                }
            }
        }
        self.check();
        (owned, self.coverage)
    }
}

/// Waits until every resource is dropped. Collection is other threads' business too: bounded, but patient.
pub fn settle(ledger: &Ledger, expected: RangeInclusive<i64>) {
    for turn in 0..30_000 {
        if expected.contains(&ledger.alive()) {
            return;
        }
        leasehold::collect_garbage();
        if turn > 64 {
            std::thread::yield_now();
        }
        if turn > 1_000 {
            std::thread::sleep(Duration::from_micros(100));
        }
    }
    panic!("{} resources alive instead of {expected:?}: each is dropped once", ledger.alive());
}

/// One run: builds the scheduler, runs all operations, checks everything at the end, and that nothing leaks.
pub fn run(config: Config, ops: &[Op]) -> Coverage {
    let clock = Arc::new(ManualClock::new());
    let ledger = Arc::new(Ledger::default());
    let scheduler = config.build(&clock);
    let (owned, coverage) = {
        let mut driver = Driver::new(config, &scheduler, &clock, &ledger);
        driver.check();
        for (i, op) in ops.iter().enumerate() {
            driver.step(op);
            if i % 16 == 15 {
                driver.check_snapshot();
            }
        }
        driver.finish()
    };
    drop(scheduler);
    for (lease, facts) in owned {
        assert_eq!(lease.version, facts.version, "an owned lease outlives the scheduler");
    }
    settle(&ledger, 0..=0);
    coverage
}
