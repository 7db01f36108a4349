//! Growth. The protocol is told in the header of `lookup`.

use super::{
    Guard, Keyed, Map, Reclaim,
    buckets::{Buckets, Level, MAX_BUCKETS, is_behind},
    link,
    raw::Word,
    walk::{Found, walk},
};
use crate::sync::atomic::Ordering;

/// Of so many buckets the items are counted to judge all, or of all, if there are fewer: first of a few, and then, before those are
/// believed, of more and more. Among many looks, some small samples mislead.
const SAMPLES: [usize; 3] = [64, 512, 4_096];
/// More than so many items of one bucket are not counted: more buckets would not part them, or they are rare.
const DEPTH: usize = 4;
/// The buckets are doubled when three in eight have an item, by the mean.
const FULL: (usize, usize) = (3, 8);

/// One in so many insertions looks at a sample, by the mean: at least eight while so many items come as there are buckets.
const fn interval(buckets: usize) -> usize {
    let part = buckets / 8;
    if part == 0 {
        1
    } else if part > 512 {
        512
    } else {
        part
    }
}

/// The number of buckets that `items` do not make grow, or hardly ever; as many as there can be if those are not enough.
pub(super) const fn buckets_for(items: usize, least: usize) -> usize {
    let mut buckets = least;
    while buckets < MAX_BUCKETS && (buckets as u64 * 5 / 16) < items as u64 {
        buckets *= 2;
    }
    buckets
}

impl<T, C> Map<T, C>
where
    T: Keyed + Send + Sync + 'static,
    C: Reclaim,
{
    /// What an insertion does for the growth of the map.
    #[inline]
    pub(super) fn grow_after(&self, level: Level, spread: u64, guard: &C::Guard<'_>) {
        if level.is_growing() {
            self.help(level, guard);
        } else if (spread.swap_bytes() >> 32) as usize & (interval(level.len()) - 1) == 0 {
            self.look(level, spread, guard);
        }
    }

    /// Looks whether it is time to grow.
    #[cold]
    fn look(&self, level: Level, spread: u64, guard: &C::Guard<'_>) {
        let is_full = |&sample: &usize| is_full(&self.buckets, level, spread, sample.min(level.len()), guard);
        if SAMPLES.iter().all(is_full) {
            self.buckets.begin(level);
            let now = self.buckets.level();
            if now.is_growing() {
                self.help(now, guard);
            }
        }
    }

    /// Links some cells of a growth. Answers whether there were any left.
    #[cold]
    pub(super) fn help(&self, level: Level, guard: &C::Guard<'_>) -> bool {
        let Some(cells) = self.buckets.claim(level) else { return false };
        let count = cells.len();
        cells.for_each(|index| link(&self.buckets, level, index, guard));
        self.buckets.linked(level, count);
        true
    }

    /// Makes room for so many items in all, alone if need be.
    pub(super) fn grow_to(&self, items: usize, guard: &C::Guard<'_>) {
        loop {
            let level = self.buckets.level();
            if level.is_growing() {
                if !self.help(level, guard) {
                    // Others have the rest in hand.
                    return;
                }
            } else if level.len() < buckets_for(items, 1) {
                self.buckets.begin(level);
            } else {
                return;
            }
        }
    }
}

/// Whether the buckets from that of `spread` on are so full that all should be doubled.
fn is_full<T: Keyed, G: Guard>(
    buckets: &Buckets<T>,
    level: Level,
    spread: u64,
    sample: usize,
    guard: &G,
) -> bool {
    let mut items = 0;
    for offset in 0..sample {
        let mut word = Word::load(buckets.cell(level.index(spread.wrapping_add(offset as u64))), guard);
        for _ in 0..DEPTH {
            if word.is_cell() {
                break;
            }
            items += 1;
            word = Word::load(&word.item().link().0, guard);
        }
    }
    items * FULL.1 >= sample * FULL.0
}

/// Puts a cell into the list that nobody else has claimed.
pub(super) fn link<T: Keyed, G: Guard>(buckets: &Buckets<T>, level: Level, index: usize, guard: &G) {
    let cell = buckets.cell(index);
    // The bucket that it cuts in two: the same index without its leading bit.
    let start = buckets.cell(level.index(index as u64));
    // Before the items of the same order, too.
    let ends = |other| !is_behind(index as u64, other);
    loop {
        // Between the two there are items only: all other cells of this level are behind, and there are none of a later one.
        let Found::End(place) = walk(buckets, None, start, guard, ends, |_| false) else {
            unreachable!("no item is wanted")
        };
        // Relaxed: nobody can see it before the exchange.
        cell.store(place.word.word(), Ordering::Relaxed);
        if place.exchange(link::to_cell(cell)) {
            return;
        }
    }
}
