//! Which shard to try first.
//!
//! A strategy answers one question: where should this acquisition look first? If nothing is to be had there, the
//! scheduler goes on by itself. So a strategy can be wrong without harm, and it may look at words that are a moment
//! old.
//!
//! # State
//!
//! No strategy has a counter that all threads share: moving its cache line from core to core would cost more than all
//! the rest of an acquisition. What a strategy remembers is in a [`Cell`], of which the scheduler keeps one for each
//! stripe of threads. A cell is read and written by plain relaxed loads and stores, never by a read-modify-write. Two
//! threads that meet in one cell may draw the same number or stay a little longer than told: the choice blurs, and
//! that is all that can happen, because every value that a cell can hold is a legal one.
//!
//! # Order against locality
//!
//! The best resource of all is found by looking at all shards for each acquisition ([`Strategy::BestOf`] with
//! `usize::MAX` choices). [`Strategy::Sticky`] trades rank for locality: a thread stays on one shard for a while,
//! whose lines are then in its own cache.

mod adaptive;
mod custom;
mod round_robin;
mod sticky;
mod weighted;

use std::{error::Error, fmt};

pub use custom::SelectShard;
pub use sticky::Stay;

use crate::{
    shard_set::MAX_SHARDS,
    sync::{
        SplitMix64,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
};
use weighted::AliasTable;

/// What a strategy may look at: words that the shards publish.
///
/// Reading takes no lock. Each answer was true at some moment not long ago; two answers need not be of one moment.
/// Shards are numbered from 0; asking for one out of range may panic.
pub trait ShardView {
    /// How many shards there are.
    fn shards(&self) -> usize;

    /// The rank of the shard's best eligible resource, lower is better; `None` if it has none.
    fn best_rank(&self, shard: usize) -> Option<u64>;

    /// How many resources of the shard are eligible.
    fn eligible(&self, shard: usize) -> u32;

    /// How many leases the shard's eligible resources could still give out.
    fn available(&self, shard: usize) -> u64;
}

/// How to choose the shard that an acquisition tries first.
///
/// | strategy | reads | good at |
/// |---|---|---|
/// | `Sticky` | its shard's words, every `period`-th time those of `choices` shards | throughput, with a rank error that can be set |
/// | `BestOf` | `choices` words | rank: exact if it looks at all shards |
/// | `RoundRobin` | nothing | an even walk over all shards |
/// | `Weighted` | nothing | shards of unequal size |
/// | `Adaptive` | two words | evening out capacity |
/// | `Custom` | what it likes | knowing better |
///
/// ```
/// use leasehold::Strategy;
///
/// assert!(matches!(Strategy::default(), Strategy::Sticky { choices: 2, .. }));
/// ```
pub enum Strategy {
    /// Stay on one shard for `period` acquisitions, then choose again: the best rank among `choices` random shards.
    ///
    /// Chooses sooner when the shard has nothing eligible left, when somebody else is in it, or when its best has become worse than the runner-up was
    /// when it was chosen: the loss in order stays bounded by what was known then. `choices` at or above the number of
    /// shards looks at all.
    Sticky {
        /// Distinct shards compared for a choice: 1 or more.
        choices: usize,
        /// Acquisitions for one choice: 1 or more.
        period: u32,
    },
    /// For each acquisition the best rank among this many distinct random shards: `Sticky` with a period of 1.
    ///
    /// With `usize::MAX` the choice is exact: no shard published a better rank. Ties go to a random one.
    BestOf {
        /// Distinct shards compared: 1 or more.
        choices: usize,
    },
    /// One shard after the other. Each stripe of threads walks on its own, from its own start.
    RoundRobin,
    /// At random, in proportion to these weights, one for each **shard** (not resource); a weight of 0 is never
    /// chosen.
    ///
    /// Meant for resources that say where they live, through [`Resource::home`](crate::Resource::home).
    Weighted(Vec<u32>),
    /// Of two random shards the one that has more capacity **available**; falls back on the first at a tie.
    Adaptive,
    /// Your own choice.
    Custom(Box<dyn SelectShard>),
}

impl Default for Strategy {
    /// `Sticky` with two choices and a period of 256.
    ///
    /// Two choices, because with one the rank error grows without bound, with two it stays at the order of the number
    /// of shards, and each further one costs a cache miss for a much smaller gain. 256, because a thread that comes to a shard
    /// which another one has used waits for a dozen lines, a microsecond in all, which then weighs no more than a few
    /// nanoseconds an acquisition. What that costs in order is little, since the bound on the rank and not the period ends a
    /// stay that loses order: of the built-in trace a mean rank error of 2.1 instead of 2.0 with a period of 32 and 1.4 with one of 8
    /// (`docs/benchmarks.md`, Order). It is much where what comes back elsewhere would have been better and nobody who stays looks there: half
    /// of a fleet out of 8 shards, returned at random, about 20 where best-of-two has 4 (`docs/order-quality.md`).
    fn default() -> Self {
        Strategy::Sticky { choices: 2, period: 256 }
    }
}

impl fmt::Debug for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Strategy::Sticky { choices, period } => {
                f.debug_struct("Sticky").field("choices", choices).field("period", period).finish()
            }
            Strategy::BestOf { choices } => f.debug_struct("BestOf").field("choices", choices).finish(),
            Strategy::RoundRobin => f.write_str("RoundRobin"),
            Strategy::Weighted(weights) => f.debug_tuple("Weighted").field(weights).finish(),
            Strategy::Adaptive => f.write_str("Adaptive"),
            Strategy::Custom(select) => f.debug_tuple("Custom").field(&select.name()).finish(),
        }
    }
}

/// What a strategy remembers for one stripe of threads. Belongs to one [`Selector`].
///
/// 24 bytes; whoever keeps several puts each on cache lines of its own.
///
/// All accesses are Relaxed: the fields carry no other data, and each is legal in any combination with the others.
#[derive(Debug)]
pub struct Cell {
    /// State of a [`SplitMix64`].
    random: AtomicU64,
    /// The shard to stay on, or the next one of a walk.
    current: AtomicU32,
    /// How many more acquisitions may use `current` as it is.
    left: AtomicU32,
    /// The rank up to which staying on `current` loses no order against what else was drawn with it.
    bound: AtomicU64,
}

impl Cell {
    /// A cell whose choices, given what the shards publish, follow from `seed`.
    pub fn new(seed: u64) -> Self {
        // The mixed seed gives walks unrelated starts even if the seeds are 0, 1, 2 and so on.
        let mixed = SplitMix64::mix(seed.wrapping_add(0x9e37_79b9_7f4a_7c15));
        Cell {
            random: AtomicU64::new(mixed),
            current: AtomicU32::new((mixed >> 32) as u32),
            left: AtomicU32::new(0),
            bound: AtomicU64::new(u64::MAX),
        }
    }

    /// A cell that nobody has used yet; see [`Cell::seed`].
    pub fn blank() -> Self {
        Cell {
            random: AtomicU64::new(0),
            current: AtomicU32::new(0),
            left: AtomicU32::new(0),
            bound: AtomicU64::new(u64::MAX),
        }
    }

    /// Whether it still has to be seeded. (A generator passes 0 once in 2^64 numbers; to be seeded again does no harm.)
    #[inline]
    pub fn is_blank(&self) -> bool {
        self.random.load(Ordering::Relaxed) == 0
    }

    /// Makes a blank cell one of `seed`. Of two threads that share it and do this at once, either seed may stay.
    pub fn seed(&self, seed: u64) {
        let fresh = Cell::new(seed);
        self.current.store(fresh.current.load(Ordering::Relaxed), Ordering::Relaxed);
        self.random.store(fresh.random.load(Ordering::Relaxed).max(1), Ordering::Relaxed);
    }

    /// A random number below `bound`.
    #[inline]
    pub fn draw_below(&self, bound: u32) -> u32 {
        self.with_random(|random| random.below(bound))
    }

    /// Runs `f` with the cell's random numbers and keeps the state that it leaves.
    #[inline]
    fn with_random<T>(&self, f: impl FnOnce(&mut SplitMix64) -> T) -> T {
        let mut random = SplitMix64::new(self.random.load(Ordering::Relaxed));
        let result = f(&mut random);
        self.random.store(random.state(), Ordering::Relaxed);
        result
    }
}

/// A [`Strategy`] that has been checked against the number of shards and compiled for choosing.
pub struct Selector {
    shards: u32,
    kind: Kind,
}

enum Kind {
    /// One shard: there is nothing to choose.
    Single {
        name: &'static str,
    },
    Sticky {
        choices: u32,
        period: u32,
        name: &'static str,
    },
    RoundRobin,
    Weighted(AliasTable),
    Adaptive,
    Custom(Box<dyn SelectShard>),
}

const STICKY: &str = "sticky";
const BEST_OF: &str = "best_of";
const ROUND_ROBIN: &str = "round_robin";
const WEIGHTED: &str = "weighted";
const ADAPTIVE: &str = "adaptive";

impl Selector {
    /// Compiles `strategy` for `shards` shards.
    ///
    /// # Errors
    /// If `shards` is not in 1 to 1024, `choices` or `period` is 0, the number of weights is not `shards`, or all
    /// weights are 0.
    pub fn new(strategy: Strategy, shards: usize) -> Result<Selector, StrategyError> {
        if shards == 0 || shards > MAX_SHARDS {
            return Err(StrategyError::Shards { given: shards });
        }
        let sticky = |choices, period, name| match (choices, period) {
            (0, _) => Err(StrategyError::NoChoices),
            (_, 0) => Err(StrategyError::NoPeriod),
            _ => Ok(Kind::Sticky { choices: usize::min(choices, shards) as u32, period, name }),
        };
        let kind = match strategy {
            Strategy::Sticky { choices, period } => sticky(choices, period, STICKY)?,
            Strategy::BestOf { choices } => sticky(choices, 1, BEST_OF)?,
            Strategy::RoundRobin => Kind::RoundRobin,
            Strategy::Weighted(weights) if weights.len() != shards => {
                return Err(StrategyError::Weights { given: weights.len(), shards });
            }
            Strategy::Weighted(weights) => {
                Kind::Weighted(AliasTable::new(&weights).ok_or(StrategyError::NoWeight)?)
            }
            Strategy::Adaptive => Kind::Adaptive,
            Strategy::Custom(select) => Kind::Custom(select),
        };
        let kind = match kind {
            // A custom strategy wants to be asked all the same.
            Kind::Custom(select) => Kind::Custom(select),
            kind if shards == 1 => Kind::Single { name: kind.name() },
            kind => kind,
        };
        Ok(Selector { shards: shards as u32, kind })
    }

    /// The shard to try first.
    ///
    /// `view` must show as many shards as the selector was made for. The answer is below that number, except that a
    /// custom strategy's answer is passed on **unchecked**: the caller must expect any number.
    ///
    /// # Progress
    /// Wait-free, allocates nothing (a custom strategy: what it does). While a sticky strategy stays, it reads the
    /// cell and one published rank, and writes the cell once.
    ///
    /// # Panics
    /// Only if a custom strategy does; the cell then keeps its state.
    #[inline]
    pub fn select<V: ShardView>(&self, view: &V, cell: &Cell) -> usize {
        if let Some(stay) = self.current(cell)
            && stay.shard < self.shards as usize
            && view.best_rank(stay.shard).is_some_and(|rank| rank <= stay.bound)
        {
            self.stayed(cell, stay);
            return stay.shard;
        }
        self.select_anew(view, cell)
    }

    /// Where a sticky strategy would stay; to be told by [`stayed`](Self::stayed) if it does. The only shard, if there
    /// is one. `None` of any other strategy, and of a sticky one with a blank cell.
    #[inline(always)]
    pub fn current(&self, cell: &Cell) -> Option<Stay> {
        match self.kind {
            Kind::Sticky { .. } => sticky::current(cell),
            Kind::Single { .. } => Some(Stay { shard: 0, bound: u64::MAX, left: 1 }),
            _ => None,
        }
    }

    /// It was stayed there.
    #[inline(always)]
    pub fn stayed(&self, cell: &Cell, stay: Stay) {
        sticky::stayed(cell, stay);
    }

    fn select_anew<V: ShardView>(&self, view: &V, cell: &Cell) -> usize {
        match &self.kind {
            Kind::Single { .. } => 0,
            &Kind::Sticky { choices, period, .. } => {
                sticky::choose_anew(view, cell, self.shards, choices, period)
            }
            Kind::RoundRobin => round_robin::select(cell, self.shards),
            Kind::Weighted(table) => cell.with_random(|random| table.draw(random)),
            Kind::Adaptive => cell.with_random(|random| adaptive::select(view, random, self.shards)),
            Kind::Custom(select) => cell.with_random(|random| select.select(view, random)),
        }
    }

    /// Tells that the shard which [`Selector::select`] answered had nothing: a sticky strategy chooses anew next
    /// time.
    #[inline]
    pub fn ran_dry(&self, cell: &Cell) {
        if let Kind::Sticky { .. } = self.kind {
            cell.left.store(0, Ordering::Relaxed);
        }
    }

    /// Tells that somebody else was in the shard which [`Selector::select`] answered. Whether to ask again: a sticky strategy
    /// chooses anew, since two threads that stay on one shard cost each other more than any order is worth.
    #[inline]
    pub fn crowded(&self, cell: &Cell) -> bool {
        let stays = matches!(self.kind, Kind::Sticky { period: 2.., .. });
        if stays {
            cell.left.store(0, Ordering::Relaxed);
        }
        stays
    }

    /// Whether each choice is the best of all shards, so that the order is the fleet's.
    pub fn is_exact(&self) -> bool {
        match self.kind {
            Kind::Single { .. } => true,
            Kind::Sticky { choices, period, .. } => choices >= self.shards && period == 1,
            _ => false,
        }
    }

    /// A short name, for metrics and logs.
    pub fn name(&self) -> &str {
        match &self.kind {
            Kind::Custom(select) => select.name(),
            kind => kind.name(),
        }
    }
}

impl Kind {
    fn name(&self) -> &'static str {
        match self {
            Kind::Single { name } | Kind::Sticky { name, .. } => name,
            Kind::RoundRobin => ROUND_ROBIN,
            Kind::Weighted(_) => WEIGHTED,
            Kind::Adaptive => ADAPTIVE,
            Kind::Custom(_) => "custom",
        }
    }
}

impl fmt::Debug for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Selector")
            .field("name", &self.name())
            .field("shards", &self.shards)
            .finish_non_exhaustive()
    }
}

/// Two distinct numbers below `bound`, each pair equally likely. `bound` must be 2 or more.
#[inline]
fn two_below(random: &mut SplitMix64, bound: u32) -> (usize, usize) {
    // One 64-bit number is enough for both halves.
    let bits = random.next_u64();
    let scale = |half: u64, bound: u32| ((half * u64::from(bound)) >> 32) as u32;
    let first = scale(bits >> 32, bound);
    // The second one out of all but the first: numbers from `first` on move up by one.
    let second = scale(bits & u64::from(u32::MAX), bound - 1);
    (first as usize, (second + u32::from(second >= first)) as usize)
}

/// Why a strategy does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StrategyError {
    /// The number of shards is out of range: 1 to 1024.
    Shards {
        /// The number given.
        given: usize,
    },
    /// `choices` is 0.
    NoChoices,
    /// `period` is 0.
    NoPeriod,
    /// There must be one weight for each shard.
    Weights {
        /// The number of weights given.
        given: usize,
        /// The number of shards.
        shards: usize,
    },
    /// Every weight is 0.
    NoWeight,
}

impl fmt::Display for StrategyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StrategyError::Shards { given } => write!(f, "{given} shards; allowed are 1 to {MAX_SHARDS}"),
            StrategyError::NoChoices => f.write_str("0 choices; allowed are 1 and more"),
            StrategyError::NoPeriod => f.write_str("a period of 0; allowed are 1 and more"),
            StrategyError::Weights { given, shards } => {
                write!(f, "{given} weights for {shards} shards; there must be one for each")
            }
            StrategyError::NoWeight => f.write_str("all weights are 0; at least one must be positive"),
        }
    }
}

impl Error for StrategyError {}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
