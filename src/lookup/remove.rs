//! Removal.

use std::ptr::NonNull;

use super::{
    Keyed, Map, Reclaim,
    map::mix,
    raw::{self, Content, Loaded},
    table::Table,
    word::{self, Fragment},
};
use crate::sync::atomic::Ordering;

impl<T, C> Map<T, C>
where
    T: Keyed + Send + Sync + 'static,
    C: Reclaim,
{
    /// Removes the item at the address of `item`, wherever it is by now.
    pub(super) fn remove_pointer(&self, item: &T, guard: &C::Guard<'_>) -> Option<NonNull<T>> {
        let hash = mix(item.hash());
        let mut table = self.root(guard);
        loop {
            if let Some(next) = raw::table(&table.next, guard) {
                self.help(table, next, guard);
            }
            let removed = self.try_remove(table, item, hash, guard);
            if removed.is_some() {
                return removed;
            }
            // It is not here, dead here, or has moved on, and never comes back to this table.
            table = raw::table(&table.next, guard)?;
        }
    }

    fn try_remove(&self, table: &Table<T>, item: &T, hash: u64, guard: &C::Guard<'_>) -> Option<NonNull<T>> {
        let fragment = Fragment::new(hash);
        let mut index = table.home(hash);
        loop {
            let loaded = Loaded::load(table.slot(index), guard);
            match loaded.content_if(|word| fragment.may_match(word)) {
                Content::Item(found) if std::ptr::eq(found, item) => {
                    // Release: pairs with the Acquire loads of slots, by which the next inserter of the key comes past.
                    // - he reads our word: what we did before the removal is visible to him;
                    // - he reads the item: he finds the key occupied, which it then was.
                    // No Acquire: the load above has read the very word that is replaced. On failure another removed the item or
                    // froze it: Relaxed, the slot is loaded again.
                    let dead = word::dead(loaded.word());
                    if table
                        .slot(index)
                        .compare_exchange(loaded.word(), dead, Ordering::Release, Ordering::Relaxed)
                        .is_ok()
                    {
                        table.budget.removed();
                        return NonNull::new(word::address(loaded.word()));
                    }
                    continue;
                }
                Content::Frozen(found) if std::ptr::eq(found, item) => {
                    // It can be removed from the next table only, and only after this slot has stopped leading to it:
                    // otherwise a reader could meet it here after it has been retired.
                    let next = raw::table(&table.next, guard).expect("frozen: there is a next table");
                    self.move_slot(table, next, index, guard);
                    return None;
                }
                Content::Empty | Content::Sealed => return None,
                // A dead item at this very address may be an earlier one, so it decides nothing.
                _ => {}
            }
            index = table.after(index);
        }
    }
}
