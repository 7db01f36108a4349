//! Insertion.

use std::ptr::NonNull;

use super::{
    Keyed, Map, Reclaim,
    buckets::{is_behind, spread},
    link::{self, Fragment},
    walk::{Found, walk},
};
use crate::sync::atomic::Ordering;

impl<T, C> Map<T, C>
where
    T: Keyed + Send + Sync + 'static,
    C: Reclaim,
{
    /// Inserts `arriving`, which `item` points to. The error is the item that has its key.
    pub(super) fn insert_pointer<'g>(
        &self,
        item: NonNull<T>,
        arriving: &T,
        guard: &'g C::Guard<'_>,
    ) -> Result<(), &'g T> {
        let hash = arriving.hash();
        let spread = spread(hash);
        let buckets = self.buckets(guard);
        let level = buckets.level();
        let start = buckets.cell(level.index(spread));
        loop {
            // The user's `Eq`: we hold nothing that a panic would lose.
            let same = |other: &T| other.hash() == hash && other.key() == arriving.key();
            match walk(buckets, Some(level), start, guard, |other| is_behind(other, spread), same) {
                Found::Item(existing, _) => return Err(existing),
                Found::End(place) => {
                    // Relaxed: nobody else can see it before the exchange.
                    arriving.link().0.store(place.word.word(), Ordering::Relaxed);
                    if place.exchange(link::to_item(item.as_ptr(), Fragment::new(spread))) {
                        break;
                    }
                }
            }
        }
        self.grow_after(level, spread, guard);
        Ok(())
    }
}
