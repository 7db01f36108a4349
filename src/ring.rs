//! A weighted consistent-hash ring over shards: which shard serves an affinity key, and which ones after it.
//!
//! # Model
//!
//! The ring is the 2^54 values of a hash's top bits. Each shard has the same number of *points* on it, placed by
//! (shard, point number) alone. A key at `x` belongs to the shard with the lowest
//!
//! ```text
//! score = min over the shard's points p at or before x of (x - p) / weight
//! ```
//!
//! With equal weights this is the ordinary ring: the nearest point at or before the key. The usual way to weights is
//! to give a shard more points, a multiple of its weight *relative to the mean*; but then a change of one weight
//! changes the mean, and with it the points of all shards. Dividing the distance by the weight has no such coupling:
//!
//! * a score depends on its own shard only, so adding a shard moves keys only **to** it, and changing a weight moves
//!   keys only **to or from** that shard, exactly, whatever the weights;
//! * scores are compared, never added: only ratios of weights matter, there is nothing to normalise or to round;
//! * a shard of small weight has as many points as any other, so its share is as even as theirs.
//!
//! A shard's lowest score is close to exponentially distributed with rate `points * weight`, which makes its expected
//! share `weight / total`, up to an error of the order of 1 / points. The scheme is the linear method of
//! Schindelhauer and Schomaker, "Weighted distributed hash tables", SPAA 2005.
//!
//! # Form
//!
//! Nothing of that is left at lookup: `new` sweeps the lower envelope of all scores once and keeps the intervals that
//! it consists of, at most two a point, each a word (last key, shard). A table over the top bits of the hash has two to
//! four entries an interval; so among the hashes of one entry as a rule no interval ends, or one does. Then the entry
//! itself says who owns those before that end and those behind it, and a lookup reads nothing else:
//!
//! | bit 31 | 21 to 30 | 11 to 20 | 0 to 10 |
//! |---|---|---|---|
//! | 0 | the shard before the end | the shard behind it | the bits of the end that follow the top bits: the *cut* |
//! | 1: several end there | the first interval of the entry | | |
//!
//! A hash whose bits are the cut's own, one in 2048, may be on either side, and is looked for among the intervals.
//!
//! # Spread
//!
//! Share of the most loaded shard, of the least loaded one, and the standard deviation, relative to the mean, at
//! equal weights and the default of 160 points; exact (from the lengths of the intervals), the same on every machine:
//!
//! | shards | most | least | deviation |
//! |---|---|---|---|
//! | 2 | 1.024 | 0.976 | 0.024 |
//! | 8 | 1.159 | 0.907 | 0.080 |
//! | 32 | 1.116 | 0.887 | 0.060 |
//! | 1024 | 1.288 | 0.710 | 0.081 |
//!
//! The deviation falls with the square root of the number of points: for 1024 shards it is 0.126 at 64 points, 0.089
//! at 128 and 0.065 at 256. More points make the table larger, and a lookup slower where it drops out of a cache.

use std::{
    error::Error,
    fmt,
    hash::{Hash, Hasher},
    hint::select_unpredictable,
    iter::FusedIterator,
};

use crate::{
    shard_set::{MAX_SHARDS, ShardSet},
    sync::SplitMix64,
};

/// Low bits of an interval that hold its shard; the position has the others.
const SHARD_BITS: u32 = MAX_SHARDS.trailing_zeros();
const SHARD_MASK: u64 = MAX_SHARDS as u64 - 1;
/// Of an entry of the table: several intervals end among its hashes.
const CROWDED: u32 = 1 << 31;
/// Low bits of an entry that hold its cut; the shards have the others.
const CUT_BITS: u32 = 31 - 2 * SHARD_BITS;
const CUT_MASK: u32 = (1 << CUT_BITS) - 1;
/// Positions on the ring.
const SPAN: u64 = 1 << (64 - SHARD_BITS);

/// A weighted consistent-hash ring: an immutable value, built once, read by all, replaced as a whole.
///
/// # Progress
/// Every method but [`Ring::new`] is wait-free and allocates nothing.
///
/// # Memory
/// 8 bytes an interval, and 8 to 16 bytes more for the table that leads to it. At equal weights there is one interval
/// a point at most, at unequal ones up to two, 1.3 as a rule. With 160 points and equal weights: 25 KB for 8 shards,
/// 105 KB for 32, 3.4 MB for 1024. At the largest number of points, 2^20, no ring takes more than 32 MiB.
pub struct Ring {
    /// The intervals in ring order: the last position above the shard. The last one ends at the last position.
    ends: Box<[u64]>,
    /// For each value of a hash's top bits, who owns the hashes that begin with them. See the module.
    index: Box<[u32]>,
    /// How far to shift a hash for its top bits.
    shift: u32,
    shards: usize,
    /// The shards whose weight is not zero, and how many they are.
    weighted: ShardSet,
    weighted_len: usize,
}

impl Ring {
    /// Points of each shard, unless told otherwise.
    pub const DEFAULT_VIRTUAL_NODES: u32 = 160;

    /// The most points of all shards together.
    pub const MAX_POINTS: u64 = 1 << 20;

    /// Builds the ring of `weights.len()` shards, each with `virtual_nodes` points.
    ///
    /// Shares are proportional to weights; only their ratios matter. A shard of weight 0 gets no keys.
    ///
    /// # Complexity
    /// O(p log p) for p points; allocates.
    ///
    /// # Errors
    /// If there are no shards or more than 1024; if every weight is 0; if `virtual_nodes` is 0 or all points together
    /// are more than [`Ring::MAX_POINTS`].
    pub fn new(weights: &[u32], virtual_nodes: u32) -> Result<Ring, RingError> {
        let weighted = Self::check(weights, virtual_nodes)?;
        let shards = weights.len();
        let ends = sweep(&points(weights, virtual_nodes), weights);
        let (index, shift) = index(&ends);
        Ok(Ring { ends, index, shift, shards, weighted_len: weighted.len(), weighted })
    }

    /// The shards that have a weight, if a ring can be built: for those who want to know now and build later.
    pub(crate) fn check(weights: &[u32], virtual_nodes: u32) -> Result<ShardSet, RingError> {
        let shards = weights.len();
        if shards == 0 || shards > MAX_SHARDS {
            return Err(RingError::Shards { given: shards });
        }
        let limit = (Self::MAX_POINTS / shards as u64) as u32;
        if virtual_nodes == 0 || virtual_nodes > limit {
            return Err(RingError::VirtualNodes { given: virtual_nodes, limit });
        }
        let mut weighted = ShardSet::new();
        for (shard, _) in weights.iter().enumerate().filter(|&(_, &weight)| weight != 0) {
            weighted.insert(shard);
        }
        if weighted.is_empty() { Err(RingError::NoWeight) } else { Ok(weighted) }
    }

    /// How many shards the ring was built for.
    pub fn shards(&self) -> usize {
        self.shards
    }

    /// The shard that the key with this hash belongs to.
    ///
    /// `hash` must be evenly distributed over all 64 bits, as [`affinity_hash`] makes it; only the top 54 count.
    ///
    /// # Complexity
    /// O(1) expected: one word of the index, for one hash in 25 a few intervals, and for one in 2,048 a binary search of all. The longest run of intervals that
    /// share a word of the index is 7 at the largest ring of equal weights. Measured,
    /// on a busy machine and with the finaliser of a hash before it, against a table that leads to the intervals: 8.8 ns
    /// instead of 9.8 at 8 shards, 10.4 instead of 13.2 at 32, a third of the time at 1024, where one miss of the cache takes the
    /// place of two or three.
    #[inline]
    pub fn shard_of(&self, hash: u64) -> usize {
        let entry = self.index[(hash >> self.shift) as usize];
        let (next, cut) = (cut(hash, self.shift), entry & CUT_MASK);
        if entry & CROWDED != 0 || next == cut {
            return self.shard_in_search(hash);
        }
        // On which side it is no predictor can know.
        let owner = select_unpredictable(next < cut, entry >> (CUT_BITS + SHARD_BITS), entry >> CUT_BITS);
        shard(owner.into())
    }

    #[inline(never)]
    fn shard_in_search(&self, hash: u64) -> usize {
        shard(self.ends[self.interval(hash)])
    }

    /// All shards, each once, in the order in which the key with this hash should try them.
    ///
    /// The first is [`Ring::shard_of`]. The next ones come from re-hashing: as many shards share the keys of one that
    /// is out of service as there are, in proportion to their weights, instead of one neighbour taking them all. What
    /// the re-hashing has not met after about two attempts a shard follows in ring order; shards of weight 0 come
    /// last.
    ///
    /// A shard that is added, removed or re-weighted changes an order only where it gains or loses an attempt itself.
    ///
    /// # Complexity
    /// O(1) expected for each of the first half of the shards; O(intervals) for a whole pass at worst. The iterator
    /// is lazy, lives on the stack, and allocates nothing.
    pub fn successors(&self, hash: u64) -> Successors<'_> {
        Successors {
            ring: self,
            hash,
            random: SplitMix64::new(hash),
            seen: ShardSet::new(),
            weighted_left: self.weighted_len,
            stage: Stage::First,
        }
    }

    fn interval(&self, hash: u64) -> usize {
        let entry = self.index[(hash >> self.shift) as usize];
        if entry & CROWDED == 0 {
            return self.ends.partition_point(|&end| last(end) < hash);
        }
        let mut at = (entry & !CROWDED) as usize;
        while last(self.ends[at]) < hash {
            at += 1;
        }
        at
    }
}

/// The last hash of an interval: filling the shard's bits makes it include all hashes of its last position.
#[inline]
fn last(interval: u64) -> u64 {
    interval | SHARD_MASK
}

/// The bits of a hash that follow the top ones.
#[inline]
fn cut(hash: u64, shift: u32) -> u32 {
    (hash >> (shift - CUT_BITS)) as u32 & CUT_MASK
}

#[inline]
fn shard(interval: u64) -> usize {
    (interval & SHARD_MASK) as usize
}

/// Every point of every shard with a weight, in ring order: the position above the shard.
fn points(weights: &[u32], virtual_nodes: u32) -> Vec<u64> {
    let mut points = Vec::with_capacity(weights.len() * virtual_nodes as usize);
    for (shard, _) in weights.iter().enumerate().filter(|&(_, &weight)| weight != 0) {
        // A generator a shard: point number v is its v-th output, whatever the other shards and v's limit are.
        let mut random = SplitMix64::new(SplitMix64::mix(shard as u64 + 1));
        points.extend((0..virtual_nodes).map(|_| random.next_u64() & !SHARD_MASK | shard as u64));
    }
    points.sort_unstable();
    points
}

/// A score that grows from zero at `start`, and when it stops being the lowest of those that the stack holds.
struct Score {
    start: u64,
    weight: u32,
    shard: usize,
    until: u64,
}

/// The intervals of the lower envelope of all scores.
///
/// The stack holds what the envelope would be if no further point came: the lowest score on top, and below it those
/// that will take over, each with a larger weight than the one above. A new point starts at score zero, below all. It
/// ends the scores of no larger weight (they stay above it for ever), and those which it keeps below until their own
/// successor takes over. Each score is pushed and popped once.
///
/// Two laps: the first one finds the scores that reach over the start of the ring, the second one records.
fn sweep(points: &[u64], weights: &[u32]) -> Box<[u64]> {
    let mut stack: Vec<Score> = Vec::new();
    let mut record = Record { starts: Vec::with_capacity(points.len() + 1) };
    for lap in 0..2 {
        if lap == 1 {
            hand_over(&mut stack, SPAN, &mut Record::default());
            record.start(SPAN, stack[stack.len() - 1].shard);
        }
        let mut ignored = Record::default();
        let record = if lap == 1 { &mut record } else { &mut ignored };
        for &point in points {
            let start = (point >> SHARD_BITS) + lap * SPAN;
            let (shard, weight) = (shard(point), weights[shard(point)]);
            hand_over(&mut stack, start, record);
            let mut until = u64::MAX;
            while let Some(top) = stack.last() {
                if top.weight > weight {
                    until = crossing(top, start, weight);
                    if until < top.until {
                        break;
                    }
                }
                stack.pop();
                until = u64::MAX;
            }
            // A heavier score that starts at the same position takes over at once; the next hand-over sees to it.
            record.start(start, shard);
            stack.push(Score { start, weight, shard, until });
        }
        hand_over(&mut stack, (lap + 1) * SPAN - 1, record);
    }
    record.intervals()
}

/// The first position at which `old`, of the larger weight, is no longer above a score of `weight` that starts at
/// `start`.
fn crossing(old: &Score, start: u64, weight: u32) -> u64 {
    // (t - old.start) / old.weight = (t - start) / weight, solved for t. Positions have 55 bits, weights 32.
    let ahead = u128::from(start - old.start) * u128::from(weight);
    let after = ahead.div_ceil(u128::from(old.weight - weight));
    u64::try_from(after).map_or(u64::MAX, |after| start.saturating_add(after))
}

/// Lets successors take over up to and including position `now`.
fn hand_over(stack: &mut Vec<Score>, now: u64, record: &mut Record) {
    while let [.., next, top] = &stack[..]
        && top.until <= now
    {
        record.start(top.until, next.shard);
        stack.pop();
    }
}

/// Where intervals start, in ring order.
#[derive(Default)]
struct Record {
    starts: Vec<(u64, usize)>,
}

impl Record {
    fn start(&mut self, position: u64, shard: usize) {
        // Two owners of one position: the later one has it.
        if self.starts.last().is_some_and(|&(last, _)| last == position) {
            self.starts.pop();
        }
        if self.starts.last().is_none_or(|&(_, last)| last != shard) {
            self.starts.push((position, shard));
        }
    }

    fn intervals(self) -> Box<[u64]> {
        let ends = self.starts.iter().skip(1).map(|&(start, _)| start).chain([2 * SPAN]);
        self.starts
            .iter()
            .zip(ends)
            .map(|(&(_, shard), end)| ((end - 1 - SPAN) << SHARD_BITS) | shard as u64)
            .collect()
    }
}

/// The table over the top bits, two to four entries an interval, and the shift that leads to them.
///
/// With them one hash in 25 is in an entry where several intervals end, a branch that is mispredicted then; with half as
/// many it would be one in eight, with twice as many one in 85, in a table that drops out of the cache earlier.
fn index(ends: &[u64]) -> (Box<[u32]>, u32) {
    let bits = (ends.len() * 2).next_power_of_two().trailing_zeros().max(1);
    let shift = 64 - bits;
    let mut at = 0;
    let index = (0..1u64 << bits)
        .map(|top| {
            let (from, to) = (top << shift, top << shift | ((1 << shift) - 1));
            while last(ends[at]) < from {
                at += 1;
            }
            let first = ends[at];
            let next = if last(first) < to { ends[at + 1] } else { first };
            if last(next) < to {
                return CROWDED | at as u32;
            }
            let (before, behind) = (shard(first) as u32, shard(next) as u32);
            before << (CUT_BITS + SHARD_BITS) | behind << CUT_BITS | cut(last(first), shift)
        })
        .collect();
    (index, shift)
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring")
            .field("shards", &self.shards)
            .field("weighted", &self.weighted_len)
            .field("intervals", &self.ends.len())
            .finish_non_exhaustive()
    }
}

/// The shards in the order in which a key should try them. See [`Ring::successors`].
#[derive(Clone, Debug)]
pub struct Successors<'a> {
    ring: &'a Ring,
    hash: u64,
    random: SplitMix64,
    seen: ShardSet,
    /// Shards with a weight that have not been answered yet.
    weighted_left: usize,
    stage: Stage,
}

#[derive(Clone, Debug)]
enum Stage {
    First,
    Rehash { attempts: usize },
    Walk { at: usize, steps: usize },
    Rest { steps: usize },
}

impl Iterator for Successors<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let ring = self.ring;
        loop {
            let candidate = match &mut self.stage {
                Stage::First => {
                    self.stage = Stage::Rehash { attempts: 8 + 2 * ring.weighted_len };
                    ring.shard_of(self.hash)
                }
                Stage::Rehash { attempts } if *attempts != 0 && self.weighted_left != 0 => {
                    *attempts -= 1;
                    ring.shard_of(self.random.next_u64())
                }
                Stage::Rehash { .. } => {
                    self.stage = Stage::Walk { at: ring.interval(self.hash), steps: ring.ends.len() };
                    continue;
                }
                Stage::Walk { at, steps } if *steps != 0 && self.weighted_left != 0 => {
                    *steps -= 1;
                    // Backwards: the key's owner, had the points in between not been there.
                    *at = at.checked_sub(1).unwrap_or(ring.ends.len() - 1);
                    shard(ring.ends[*at])
                }
                Stage::Walk { .. } => {
                    // The walk has met all shards with a weight: each point owns at least its own position.
                    self.stage = Stage::Rest { steps: ring.shards };
                    continue;
                }
                Stage::Rest { steps: 0 } => return None,
                Stage::Rest { steps } => {
                    *steps -= 1;
                    // From anywhere on, so that shards without a weight share what is left to them.
                    ((self.hash % ring.shards as u64) as usize + *steps) % ring.shards
                }
            };
            if self.seen.insert(candidate) {
                self.weighted_left -= usize::from(ring.weighted.contains(candidate));
                return Some(candidate);
            }
        }
    }
}

impl FusedIterator for Successors<'_> {}

/// A hash for [`Ring::shard_of`], the same in every run, on every machine and in every version of this crate.
///
/// It is as portable as the value's own `Hash`: integers, `bool`, `char`, strings, byte slices, and what `derive`
/// makes of them do not depend on the machine (`usize` counts as 64 bits everywhere). Slices of wider integers do:
/// `std` hands their bytes over as they lie in memory, so that big-endian machines disagree with the others.
///
/// Not for hash tables that an adversary can fill: there is no secret in it.
///
/// # Complexity
/// One multiplication for each eight bytes, no allocation.
pub fn affinity_hash<T: Hash + ?Sized>(value: &T) -> u64 {
    let mut hasher = AffinityHasher(0);
    value.hash(&mut hasher);
    hasher.finish()
}

/// Folds 64-bit words into the state, each by a bijection of the state.
struct AffinityHasher(u64);

impl AffinityHasher {
    #[inline]
    fn word(&mut self, word: u64) {
        // 2^64 divided by the golden ratio, odd: a bijection, as is the shift that brings high bits down again.
        let product = (self.0 ^ word).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ (product >> 32);
    }
}

/// The methods for integers hand over values, where the default ones would hand over bytes in the machine's order.
impl Hasher for AffinityHasher {
    #[inline]
    fn finish(&self) -> u64 {
        SplitMix64::mix(self.0)
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let (words, tail) = bytes.as_chunks::<8>();
        for word in words {
            self.word(u64::from_le_bytes(*word));
        }
        // The other bytes, at most seven, read as two overlapping halves or three overlapping bytes; since that is
        // ambiguous, their number moves the state first.
        let number = tail.len() as u64;
        let rest = match *tail {
            [] => 0,
            [a] => u64::from(a),
            [a, b] => u64::from(a) | u64::from(b) << 8,
            [a, b, c] => u64::from(a) | u64::from(b) << 8 | u64::from(c) << 16,
            [a, b, c, d, ..] => {
                let [.., w, x, y, z] = *tail else { unreachable!("four bytes or more") };
                u64::from(u32::from_le_bytes([a, b, c, d]))
                    | u64::from(u32::from_le_bytes([w, x, y, z])) << 32
            }
        };
        self.0 = self.0.wrapping_add((number + 1).wrapping_mul(0xd1b5_4a32_d192_ed03));
        self.word(rest);
    }

    #[inline]
    fn write_u8(&mut self, value: u8) {
        self.word(value.into());
    }

    #[inline]
    fn write_u16(&mut self, value: u16) {
        self.word(value.into());
    }

    #[inline]
    fn write_u32(&mut self, value: u32) {
        self.word(value.into());
    }

    #[inline]
    fn write_u64(&mut self, value: u64) {
        self.word(value);
    }

    #[inline]
    fn write_u128(&mut self, value: u128) {
        self.word(value as u64);
        self.word((value >> 64) as u64);
    }

    #[inline]
    fn write_usize(&mut self, value: usize) {
        self.word(value as u64);
    }

    // The signed ones of std cast to the unsigned ones above; this one must widen with the sign.
    #[inline]
    fn write_isize(&mut self, value: isize) {
        self.word(value as i64 as u64);
    }
}

/// Why a ring could not be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RingError {
    /// The number of weights, and so of shards, is out of range: 1 to 1024.
    Shards {
        /// The number of weights given.
        given: usize,
    },
    /// Every weight is 0.
    NoWeight,
    /// The number of virtual nodes is out of range.
    VirtualNodes {
        /// The number given.
        given: u32,
        /// The largest number at this many shards; the smallest is 1.
        limit: u32,
    },
}

impl fmt::Display for RingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RingError::Shards { given } => write!(f, "{given} shard weights; allowed are 1 to {MAX_SHARDS}"),
            RingError::NoWeight => f.write_str("all shard weights are 0; at least one must be positive"),
            RingError::VirtualNodes { given, limit } => {
                write!(f, "{given} virtual nodes a shard; allowed are 1 to {limit} at this number of shards")
            }
        }
    }
}

impl Error for RingError {}

#[cfg(test)]
mod tests;
