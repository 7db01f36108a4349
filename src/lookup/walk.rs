//! The writers' way through the list: takes out what has been removed, and stops where something belongs.

use super::{
    Guard, Keyed,
    buckets::{Buckets, Level, spread},
    find::passes,
    link::{self, Cell},
    raw::Word,
};
use crate::sync::atomic::{AtomicPtr, Ordering};

/// A place in the list: a link, and where it led.
pub(super) struct Place<'l, 'g, T, G> {
    pub(super) link: &'l AtomicPtr<T>,
    /// Not marked.
    pub(super) word: Word<'g, T, G>,
}

impl<T: Keyed, G: Guard> Place<'_, '_, T, G> {
    /// Lets the link lead to `new`, if it still leads where it did, and its owner has not been removed.
    #[must_use]
    pub(super) fn exchange(&self, new: *mut T) -> bool {
        // Release: pairs with the Acquire loads of links.
        // - a walk reads our word: it sees what the item or cell behind it contains, and, as we saw the mark of what we take
        //   out, what came before its removal;
        // - it reads the word before: it is before us.
        // No Acquire: what is replaced was loaded with Acquire. Relaxed on failure: the walk begins anew.
        self.link.compare_exchange(self.word.word(), new, Ordering::Release, Ordering::Relaxed).is_ok()
    }
}

/// What a walk ends with.
pub(super) enum Found<'l, 'g, T, G> {
    /// At an item that was asked for.
    Item(&'g T, Place<'l, 'g, T, G>),
    /// The place before what ends the walk.
    End(Place<'l, 'g, T, G>),
}

/// Walks from `start` up to the first item or cell whose spread `ends` the walk, or the first item that is `wanted`. Every
/// removed item on the way is taken out of the list.
///
/// `level` was read before; without it, the caller knows that the first cell on the way ends the walk.
#[inline]
pub(super) fn walk<'l, 'g: 'l, T: Keyed, G: Guard>(
    buckets: &'l Buckets<T>,
    level: Option<Level>,
    start: &'l Cell<T>,
    guard: &'g G,
    ends: impl Fn(u64) -> bool,
    mut wanted: impl FnMut(&'g T) -> bool,
) -> Found<'l, 'g, T, G> {
    'anew: loop {
        let mut place = Place { link: start, word: Word::load(start, guard) };
        loop {
            if place.word.is_cell() {
                // As in `find`: if the level is still the same, this is the next bucket.
                if level.is_none_or(|level| !level.is_growing() && buckets.level() == level) {
                    return Found::End(place);
                }
                let Some(cell) = passes(buckets, place.word, &ends) else { return Found::End(place) };
                place = Place { link: cell, word: Word::load(cell, guard) };
                continue;
            }
            let item = place.word.item();
            let next = Word::load(&item.link().0, guard);
            if next.is_marked() {
                if !place.exchange(link::unmarked(next.word())) {
                    continue 'anew;
                }
                place.word = next.unmarked();
                continue;
            }
            if wanted(item) {
                return Found::Item(item, place);
            }
            if ends(spread(item.hash())) {
                return Found::End(place);
            }
            place = Place { link: &item.link().0, word: next };
        }
    }
}
