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
pub(super) fn find<'g, T, Q, G>(mut table: &'g Table<T>, hash: u64, key: &Q, guard: &'g G) -> Option<&'g T>
where
    T: Keyed<Key: Borrow<Q>>,
    Q: Eq + ?Sized,
    G: Guard,
{
    let fragment = Fragment::new(hash);
    let mut index = table.home(hash);
    // Whether an item of this chain may be in the next table.
    let mut leads_on = false;
    loop {
        let loaded = Loaded::load(table.slot(index), guard);
        if let Some(item) = loaded.item_with(fragment) {
            item.expect();
            if item.key().borrow() == key {
                return Some(item);
            }
        } else if fragment.needs_care(loaded.word()) {
            match loaded.content_if(|word| fragment.may_match(word)) {
                // A frozen item is in the map: its remover waits for `MOVED`.
                Content::Item(item) | Content::Frozen(item) if item.key().borrow() == key => {
                    return Some(item);
                }
                Content::Item(_) | Content::Frozen(_) | Content::Dead | Content::Other => {}
                Content::Moved => leads_on = true,
                // Nothing on the way has left this table: at this moment, there is none.
                Content::Empty if !leads_on => return None,
                Content::Empty | Content::Sealed => {
                    // Whoever moved or sealed had seen the next table, and we have seen his word: it is there.
                    table = raw::table(&table.next, guard)?;
                    index = table.home(hash);
                    leads_on = false;
                    continue;
                }
            }
        }
        index = table.after(index);
    }
}
