//! Lookup.

use std::borrow::Borrow;

use super::{
    Guard, Keyed,
    raw::{self, Content, Loaded},
    table::Table,
    word::Fragment,
};

/// The item with `key` in the chain of `hash`, beginning in `table`.
#[inline]
pub(super) fn find<'g, T, Q, G>(table: &'g Table<T>, hash: u64, key: &Q, guard: &'g G) -> Option<&'g T>
where
    T: Keyed<Key: Borrow<Q>>,
    Q: Eq + ?Sized,
    G: Guard,
{
    let fragment = Fragment::new(hash);
    let mut index = table.home(hash);
    loop {
        let loaded = Loaded::load(table.slot(index), guard);
        if let Some(item) = loaded.item_with(fragment) {
            if item.key().borrow() == key {
                return Some(item);
            }
        } else if loaded.word().is_null() {
            // `EMPTY`, and nothing on the way has left this table: none at this moment.
            return None;
        } else if fragment.needs_care(loaded.word()) {
            return find_slowly(table, hash, key, guard);
        }
        index = table.after(index);
    }
}

/// As `find`, in the presence of removed items, resizes and wide addresses.
#[cold]
#[inline(never)]
fn find_slowly<'g, T, Q, G>(mut table: &'g Table<T>, hash: u64, key: &Q, guard: &'g G) -> Option<&'g T>
where
    T: Keyed<Key: Borrow<Q>>,
    Q: Eq + ?Sized,
    G: Guard,
{
    let fragment = Fragment::new(hash);
    // The item that was frozen in the table before, until something shows that it has been copied.
    let mut inherited: Option<&'g T> = None;
    loop {
        let mut frozen = None;
        // Whether an item of this chain may be in the next table.
        let mut leads_on = false;
        let mut index = table.home(hash);
        loop {
            let loaded = Loaded::load(table.slot(index), guard);
            match loaded.content_if(|word| fragment.may_match(word)) {
                Content::Item(item) if item.key().borrow() == key => return Some(item),
                Content::Frozen(item) if item.key().borrow() == key => {
                    frozen = Some(item);
                    leads_on = true;
                }
                Content::Item(_) | Content::Frozen(_) | Content::Other => {}
                Content::Dead(address) => {
                    // Copied, and removed since.
                    inherited = inherited.filter(|item| std::ptr::from_ref(*item).addr() != address);
                }
                Content::Moved => leads_on = true,
                Content::Sealed => {
                    leads_on = true;
                    break;
                }
                Content::Empty => break,
            }
            index = table.after(index);
        }
        if !leads_on {
            // At the moment `EMPTY` was read, an inherited item had not been copied, so it was not removed either.
            return inherited;
        }
        // This table is being left, so the one before has been: what was frozen there has been copied here, and was
        // met as frozen, moved or dead.
        inherited = frozen;
        // Whoever froze, moved or sealed had seen the next table, and we have seen his word.
        table = raw::table(&table.next, guard)?;
    }
}
