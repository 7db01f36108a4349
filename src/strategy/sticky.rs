//! Staying on a shard, and choosing the best of several.

use std::hint::select_unpredictable;

use super::{Cell, ShardView, two_below};
use crate::sync::{SplitMix64, atomic::Ordering};

/// The current shard while its time lasts and it has something, else a new choice. `shards` is 2 or more.
#[inline]
pub(super) fn select<V: ShardView>(view: &V, cell: &Cell, shards: u32, choices: u32, period: u32) -> usize {
    // Relaxed: see `Cell`.
    let left = cell.left.load(Ordering::Relaxed);
    if left != 0 {
        let current = cell.current.load(Ordering::Relaxed);
        // The comparison guards against a cell of another selector; `best_rank` would check the bound anyway.
        if current < shards && view.best_rank(current as usize).is_some() {
            // Not a read-modify-write: if two threads count as one, the stay is a little longer.
            cell.left.store(left - 1, Ordering::Relaxed);
            return current as usize;
        }
    }
    let chosen = cell.with_random(|random| choose(view, random, shards, choices));
    if period > 1 {
        cell.current.store(chosen as u32, Ordering::Relaxed);
        cell.left.store(period - 1, Ordering::Relaxed);
    }
    chosen
}

/// The best rank among `choices` distinct random shards. Nothing eligible loses; at a tie the first drawn stays.
#[inline]
fn choose<V: ShardView>(view: &V, random: &mut SplitMix64, shards: u32, choices: u32) -> usize {
    match choices {
        1 => random.below(shards) as usize,
        // Also when there are only two: drawing both in random order is looking at all from a random start.
        2 => {
            let (first, second) = two_below(random, shards);
            select_unpredictable(better(view.best_rank(second), view.best_rank(first)), second, first)
        }
        _ if choices >= shards => all(view, random, shards),
        _ => several(view, random, shards, choices),
    }
}

/// Every shard, in order, from a random one on.
///
/// Among equal ranks the first after the start wins: threads spread over them, and a scan of ascending addresses,
/// which the prefetcher likes, is enough. The shares of equals are not equal if they lie in clusters.
fn all<V: ShardView>(view: &V, random: &mut SplitMix64, shards: u32) -> usize {
    let start = random.below(shards) as usize;
    let (mut best, mut best_rank) = (start, view.best_rank(start));
    for shard in (start + 1..shards as usize).chain(0..start) {
        let rank = view.best_rank(shard);
        // A branch that is seldom taken: in a scan of n shards the best so far changes about ln(n) times.
        if rank.is_some_and(|rank| best_rank.is_none_or(|best| rank < best)) {
            (best, best_rank) = (shard, rank);
        }
    }
    best
}

/// One random shard out of each of `choices` equal sections, the sections turned by a random angle.
///
/// Distinct without remembering what was drawn. Each shard is drawn equally often, and first equally often, which
/// decides ties. Not all sets are equally likely (near neighbours seldom meet), which is as good unless ranks repeat
/// from section to section. Nothing here branches on a random number.
fn several<V: ShardView>(view: &V, random: &mut SplitMix64, shards: u32, choices: u32) -> usize {
    let turn = random.below(shards);
    // Where sections end, in 16-bit fixed point. Rounding down may leave out the very last place, not a shard: the
    // turn puts each one there in its turn.
    let width = (shards << 16) / choices;
    let mut draw = |section: u32| {
        let (from, to) = ((section * width) >> 16, ((section + 1) * width) >> 16);
        let place = turn + from + random.below(to - from);
        select_unpredictable(place < shards, place, place.wrapping_sub(shards)) as usize
    };
    let mut best = draw(0);
    let mut best_rank = view.best_rank(best);
    for section in 1..choices {
        let shard = draw(section);
        let rank = view.best_rank(shard);
        let better = better(rank, best_rank);
        best = select_unpredictable(better, shard, best);
        best_rank = select_unpredictable(better, rank, best_rank);
    }
    best
}

#[inline]
fn better(challenger: Option<u64>, holder: Option<u64>) -> bool {
    let lower = challenger.unwrap_or(u64::MAX) < holder.unwrap_or(u64::MAX);
    challenger.is_some() & (holder.is_none() | lower)
}
