//! Insertion.

use std::ptr::NonNull;

use super::{
    Guard, Keyed, Map, Reclaim,
    map::mix,
    raw::{self, Content, Loaded},
    table::Table,
    word::{self, Fragment},
};
use crate::sync::atomic::Ordering;

/// What an attempt to insert into one table came to.
enum Attempt<'g, T> {
    Inserted,
    /// An item with this key is in the map.
    Occupied(&'g T),
    /// The table may use no more slots.
    WornOut,
    /// The table is being left.
    Left,
}

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
        let hash = mix(arriving.hash());
        let mut table = self.root(guard);
        loop {
            // This look for a next table comes after the item's allocation and before any use of `table`: the module's
            // "no resurrection" argument needs it.
            if raw::table(&table.next, guard).is_none() {
                match try_insert(table, item, arriving, hash, guard) {
                    Attempt::Inserted => return Ok(()),
                    Attempt::Occupied(existing) => return Err(existing),
                    Attempt::WornOut => self.begin_resize(table, guard),
                    Attempt::Left => {}
                }
            }
            let next = raw::table(&table.next, guard).expect("worn out or left: there is a next table");
            self.help(table, next, guard);
            self.seal(table, next, hash, guard);
            table = next;
        }
    }
}

fn try_insert<'g, T: Keyed, G: Guard>(
    table: &'g Table<T>,
    item: NonNull<T>,
    arriving: &T,
    hash: u64,
    guard: &'g G,
) -> Attempt<'g, T> {
    let fragment = Fragment::new(hash);
    let word = word::item(item.as_ptr(), fragment);
    let mut index = table.home(hash);
    loop {
        match Loaded::load(table.slot(index), guard).content_if(|word| fragment.may_match(word)) {
            // The user's `Eq`: we hold nothing that a panic would lose.
            Content::Item(existing) if existing.key() == arriving.key() => {
                return Attempt::Occupied(existing);
            }
            Content::Item(_) | Content::Other | Content::Dead => {}
            Content::Frozen(_) | Content::Moved | Content::Sealed => return Attempt::Left,
            Content::Empty => {
                let Some(permit) = table.budget.consume() else { return Attempt::WornOut };
                // Release: pairs with the Acquire loads of slots.
                // - a walk reads our word: it sees the item's contents;
                // - it reads `EMPTY`: it is before us, and tells its caller that the key is absent or, as an
                //   inserter, fails here in its turn.
                // No Acquire: what it replaces is the slot as the table was made. Relaxed on failure: the slot is loaded again.
                if table
                    .slot(index)
                    .compare_exchange(std::ptr::null_mut(), word, Ordering::Release, Ordering::Relaxed)
                    .is_ok()
                {
                    permit.spend();
                    return Attempt::Inserted;
                }
                // Somebody was faster at this very slot: look at it again.
                continue;
            }
        }
        index = table.after(index);
    }
}
