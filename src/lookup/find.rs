//! Lookup.

use std::borrow::Borrow;

use super::{
    Guard, Keyed,
    buckets::{Buckets, Level, is_behind, spread},
    link::{self, Cell, Fragment},
    raw::Word,
};

/// The item with `key`, whose hash is `hash`.
#[inline]
pub(super) fn find<'g, T, Q, G>(buckets: &Buckets<T>, hash: u64, key: &Q, guard: &'g G) -> Option<&'g T>
where
    T: Keyed<Key: Borrow<Q>>,
    Q: Eq + ?Sized,
    G: Guard,
{
    let spread = spread(hash);
    let fragment = Fragment::new(spread);
    let level = buckets.level();
    let mut word = Word::load(buckets.cell(level.index(spread)), guard);
    loop {
        // Removed or not, an item that is met was in the map at some moment of this call: see the module's header.
        let item = if let Some(item) = word.item_with(fragment) {
            item.expect();
            if item.key().borrow() == key {
                return Some(item);
            }
            item
        } else if word.is_cell() {
            word = Word::load(goes_on(buckets, level, spread, word)?, guard);
            continue;
        } else {
            let item = word.item();
            if word.is_vague() && item.hash() == hash && item.key().borrow() == key {
                return Some(item);
            }
            item
        };
        word = Word::load(&item.link().0, guard);
    }
}

/// The cell that `word` leads to, if the bucket of `spread` does not end before it. Not inlined: what it needs is then computed
/// here, and not by every lookup.
#[inline(never)]
fn goes_on<'b, T: Keyed, G: Guard>(
    buckets: &'b Buckets<T>,
    level: Level,
    spread: u64,
    word: Word<'_, T, G>,
) -> Option<&'b Cell<T>> {
    // The cells of a later level come into the list when it has begun, and we have seen the word of whoever put this one there: if
    // the level is still the same, it is a cell of that level, and so the next bucket.
    if !level.is_growing() && buckets.level() == level {
        return None;
    }
    passes(buckets, word, |index| is_behind(index, spread))
}

/// The cell that `word` leads to, if what is searched belongs behind it, as `ends` tells from its index.
#[cold]
pub(super) fn passes<'b, T: Keyed, G: Guard>(
    buckets: &'b Buckets<T>,
    word: Word<'_, T, G>,
    ends: impl Fn(u64) -> bool,
) -> Option<&'b Cell<T>> {
    let cell = link::cell(word.word());
    if cell.is_null() || ends(buckets.index_of(cell) as u64) {
        return None;
    }
    Some(buckets.follow(word.word()))
}
