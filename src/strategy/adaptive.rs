//! The power of two choices over available capacity.

use super::{ShardView, two_below};
use crate::sync::SplitMix64;

/// Of two distinct random shards the one that can give out more leases. `shards` is 2 or more.
#[inline]
pub(super) fn select<V: ShardView>(view: &V, random: &mut SplitMix64, shards: u32) -> usize {
    let (first, second) = two_below(random, shards);
    // More is better. The first one is random already, so a tie needs no coin.
    if view.available(second) > view.available(first) { second } else { first }
}
