//! One shard after the other.

use super::Cell;
use crate::sync::atomic::Ordering;

#[inline]
pub(super) fn select(cell: &Cell, shards: u32) -> usize {
    // Relaxed: see `Cell`.
    let next = cell.current.load(Ordering::Relaxed);
    // The counter never leaves 0..shards once it is in, so it cannot overflow; a new cell starts anywhere.
    let next = if next < shards { next } else { next % shards };
    cell.current.store(if next + 1 == shards { 0 } else { next + 1 }, Ordering::Relaxed);
    next as usize
}
