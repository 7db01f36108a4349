//! Iteration: along the list.

use std::{iter::FusedIterator, ptr::NonNull};

use super::{DefaultReclaim, Keyed, Map, Reclaim, link, raw::Word};

/// The items of a [`Map`]; made by [`Map::iter`].
pub struct Iter<'g, 'p, T, C = DefaultReclaim>
where
    T: Keyed,
    C: Reclaim + 'p,
{
    map: &'g Map<T, C>,
    guard: &'g C::Guard<'p>,
    /// Where it goes on: the link after the last item.
    word: Word<'g, T, C::Guard<'p>>,
}

impl<'g, 'p, T, C> Iter<'g, 'p, T, C>
where
    T: Keyed + Send + Sync + 'static,
    C: Reclaim,
{
    pub(super) fn new(map: &'g Map<T, C>, guard: &'g C::Guard<'p>) -> Self {
        Iter { map, guard, word: Word::load(map.buckets(guard).cell(0), guard) }
    }

    /// The next item, with the word that led to it.
    fn next_word(&mut self) -> Option<(&'g T, *mut T)> {
        while self.word.is_cell() {
            if link::cell(self.word.word()).is_null() {
                return None;
            }
            let cell = self.map.buckets.follow(self.word.word());
            self.word = Word::load(cell, self.guard);
        }
        let (item, word) = (self.word.item(), link::item(self.word.word()));
        self.word = Word::load(&item.link().0, self.guard);
        Some((item, word))
    }

    /// The next item, as the pointer with which it came.
    pub(super) fn next_pointer(&mut self) -> Option<NonNull<T>> {
        self.next_word().and_then(|(_, word)| NonNull::new(word))
    }
}

impl<'g, T, C> Iterator for Iter<'g, '_, T, C>
where
    T: Keyed + Send + Sync + 'static,
    C: Reclaim,
{
    type Item = &'g T;

    fn next(&mut self) -> Option<&'g T> {
        self.next_word().map(|(item, _)| item)
    }
}

impl<T, C> FusedIterator for Iter<'_, '_, T, C>
where
    T: Keyed + Send + Sync + 'static,
    C: Reclaim,
{
}
