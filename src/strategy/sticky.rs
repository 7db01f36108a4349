//! Staying on a shard, and choosing the best of several.

use super::{Cell, ShardView, two_below};
use crate::{
    shard_set::ShardSet,
    sync::{SplitMix64, atomic::Ordering},
};

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
            if better(view.best_rank(second), view.best_rank(first)) { second } else { first }
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
    best(view, (start..shards as usize).chain(0..start))
}

/// Floyd's sampling: `choices` draws for `choices` distinct numbers, never one more.
///
/// It makes all sets of numbers equally likely, but not all orders of them, and at a tie the first one wins. Turning
/// the set by a random angle mends that.
fn several<V: ShardView>(view: &V, random: &mut SplitMix64, shards: u32, choices: u32) -> usize {
    let turn = random.below(shards) as usize;
    let mut drawn = ShardSet::new();
    best(
        view,
        (shards - choices..shards).map(|last| {
            let draw = random.below(last + 1) as usize;
            // `last` itself cannot have been drawn before.
            let draw = if drawn.contains(draw) { last as usize } else { draw };
            drawn.insert(draw);
            let turned = draw + turn;
            if turned < shards as usize { turned } else { turned - shards as usize }
        }),
    )
}

#[inline]
fn best<V: ShardView>(view: &V, mut candidates: impl Iterator<Item = usize>) -> usize {
    let mut best = candidates.next().unwrap_or(0);
    let mut best_rank = view.best_rank(best);
    for candidate in candidates {
        let rank = view.best_rank(candidate);
        if better(rank, best_rank) {
            (best, best_rank) = (candidate, rank);
        }
    }
    best
}

#[inline]
fn better(challenger: Option<u64>, holder: Option<u64>) -> bool {
    match (challenger, holder) {
        (Some(challenger), Some(holder)) => challenger < holder,
        (challenger, holder) => challenger.is_some() && holder.is_none(),
    }
}
