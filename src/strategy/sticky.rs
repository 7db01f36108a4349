//! Staying on a shard, and choosing the best of several.

use std::hint::select_unpredictable;

use super::{Cell, ShardView, two_below};
use crate::sync::{SplitMix64, atomic::Ordering};

/// A shard to stay on.
#[derive(Clone, Copy)]
pub struct Stay {
    /// Of a cell of another selector it may be any number.
    pub shard: usize,
    /// The rank that its best may have: nothing that was drawn with it has become better than it is now.
    ///
    /// That bounds the loss in order: as resources are taken, the shard's best rank rises; once it passes the
    /// runner-up's, staying would prefer locality to rank.
    pub bound: u64,
    /// For how many more acquisitions; 1 or more.
    pub(super) left: u32,
}

/// The current shard while its time lasts.
#[inline(always)]
pub(super) fn current(cell: &Cell) -> Option<Stay> {
    // Relaxed: see `Cell`.
    let left = cell.left.load(Ordering::Relaxed);
    if left == 0 {
        return None;
    }
    Some(Stay {
        shard: cell.current.load(Ordering::Relaxed) as usize,
        bound: cell.bound.load(Ordering::Relaxed),
        left,
    })
}

/// It is stayed there once more.
#[inline(always)]
pub(super) fn stayed(cell: &Cell, stay: Stay) {
    // Not a read-modify-write, and what was read is not read again: if two threads count as one, the stay is a little longer.
    cell.left.store(stay.left - 1, Ordering::Relaxed);
}

/// A new choice. `shards` is 2 or more.
pub(super) fn choose_anew<V: ShardView>(
    view: &V,
    cell: &Cell,
    shards: u32,
    choices: u32,
    period: u32,
) -> usize {
    let (chosen, bound) = cell.with_random(|random| choose(view, random, shards, choices));
    if period > 1 {
        cell.current.store(chosen as u32, Ordering::Relaxed);
        cell.left.store(period - 1, Ordering::Relaxed);
        cell.bound.store(bound, Ordering::Relaxed);
    }
    chosen
}

/// The best rank among `choices` distinct random shards, and the second best rank (`u64::MAX` if there is none). Nothing
/// eligible loses; at a tie the first drawn stays.
#[inline]
fn choose<V: ShardView>(view: &V, random: &mut SplitMix64, shards: u32, choices: u32) -> (usize, u64) {
    match choices {
        1 => (random.below(shards) as usize, u64::MAX),
        // Also when there are only two: drawing both in random order is looking at all from a random start.
        2 => {
            let (first, second) = two_below(random, shards);
            let (one, other) = (view.best_rank(first), view.best_rank(second));
            let swap = better(other, one);
            let loser = select_unpredictable(swap, one, other);
            (select_unpredictable(swap, second, first), loser.unwrap_or(u64::MAX))
        }
        _ if choices >= shards => all(view, random, shards),
        _ => several(view, random, shards, choices),
    }
}

/// The best and the second best so far.
struct Best {
    shard: usize,
    rank: Option<u64>,
    second: u64,
}

impl Best {
    fn result(self) -> (usize, u64) {
        (self.shard, self.second)
    }
}

/// Every shard, in order, from a random one on.
///
/// Among equal ranks the first after the start wins: threads spread over them, and a scan of ascending addresses,
/// which the prefetcher likes, is enough. The shares of equals are not equal if they lie in clusters.
fn all<V: ShardView>(view: &V, random: &mut SplitMix64, shards: u32) -> (usize, u64) {
    let start = random.below(shards) as usize;
    let mut best = Best { shard: start, rank: view.best_rank(start), second: u64::MAX };
    for shard in (start + 1..shards as usize).chain(0..start) {
        let rank = view.best_rank(shard);
        // A branch that is seldom taken: in a scan of n shards the best so far changes about ln(n) times.
        if better(rank, best.rank) {
            best = Best { shard, rank, second: best.rank.unwrap_or(u64::MAX) };
        } else {
            best.second = best.second.min(rank.unwrap_or(u64::MAX));
        }
    }
    best.result()
}

/// One random shard out of each of `choices` equal sections, the sections turned by a random angle.
///
/// Distinct without remembering what was drawn. Each shard is drawn equally often, and first equally often, which
/// decides ties. Not all sets are equally likely (near neighbours seldom meet), which is as good unless ranks repeat
/// from section to section. Nothing here branches on a random number.
fn several<V: ShardView>(view: &V, random: &mut SplitMix64, shards: u32, choices: u32) -> (usize, u64) {
    let turn = random.below(shards);
    // Where sections end, in 16-bit fixed point. Rounding down may leave out the very last place, not a shard: the
    // turn puts each one there in its turn.
    let width = (shards << 16) / choices;
    let mut draw = |section: u32| {
        let (from, to) = ((section * width) >> 16, ((section + 1) * width) >> 16);
        let place = turn + from + random.below(to - from);
        select_unpredictable(place < shards, place, place.wrapping_sub(shards)) as usize
    };
    let shard = draw(0);
    let mut best = Best { shard, rank: view.best_rank(shard), second: u64::MAX };
    for section in 1..choices {
        let shard = draw(section);
        let rank = view.best_rank(shard);
        let wins = better(rank, best.rank);
        let loser = select_unpredictable(wins, best.rank, rank).unwrap_or(u64::MAX);
        best.second = best.second.min(loser);
        best.shard = select_unpredictable(wins, shard, best.shard);
        best.rank = select_unpredictable(wins, rank, best.rank);
    }
    best.result()
}

#[inline]
fn better(challenger: Option<u64>, holder: Option<u64>) -> bool {
    let lower = challenger.unwrap_or(u64::MAX) < holder.unwrap_or(u64::MAX);
    challenger.is_some() & (holder.is_none() | lower)
}
