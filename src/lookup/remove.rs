//! Removal.

use std::ptr::NonNull;

use super::{
    Keyed, Map, Reclaim,
    buckets::{is_behind, spread},
    link,
    raw::Word,
    walk::{Found, walk},
};
use crate::sync::atomic::Ordering;

impl<T, C> Map<T, C>
where
    T: Keyed + Send + Sync + 'static,
    C: Reclaim,
{
    /// Removes the item at the address of `item`.
    pub(super) fn remove_pointer(&self, item: &T, guard: &C::Guard<'_>) -> Option<NonNull<T>> {
        let spread = spread(item.hash());
        let buckets = self.buckets(guard);
        let level = buckets.level();
        let start = buckets.cell(level.index(spread));
        let locate = || {
            let ends = |other| is_behind(other, spread);
            walk(buckets, Some(level), start, guard, ends, |other| std::ptr::eq(other, item))
        };
        // R1. If it has been removed, it is out of the list after this.
        let Found::Item(item, place) = locate() else { return None };
        // R2.
        let mut next = Word::load(&item.link().0, guard);
        let won = loop {
            if next.is_marked() {
                break false;
            }
            // Release: pairs with the Acquire loads of links: who takes the item out of the list passes on what we did before.
            // No Acquire: the load has read the very word. Relaxed on failure: it is loaded again.
            let marked = item.link().0.compare_exchange(
                next.word(),
                link::marked(next.word()),
                Ordering::Release,
                Ordering::Relaxed,
            );
            if marked.is_ok() {
                break true;
            }
            next = Word::load(&item.link().0, guard);
        };
        // R3.
        if !won || !place.exchange(next.word()) {
            // Whoever removed it may not have come to this yet, or the place is another one by now: look for it once more.
            let _ = locate();
        }
        if won { NonNull::new(link::item(place.word.word())) } else { None }
    }
}
