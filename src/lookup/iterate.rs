//! Iteration, in the order of the mixed hashes.
//!
//! A home slot is the leading bits of a hash, so in any table the items of a range of hashes are in the chains of
//! neighbouring homes. The iteration goes from range to range: a range is one home of the root at that time, its items
//! are collected from that table and, if the chain leads on, from the next ones. What has been visited is therefore
//! told by one number, the hash reached, whatever tables have come and gone: no item is met twice.

use std::{iter::FusedIterator, ptr::NonNull};

use super::{
    DefaultReclaim, Guard, Keyed, Map, Reclaim,
    map::mix,
    raw::{self, Content, Loaded},
    table::Table,
    word,
};

/// The items of a [`Map`]; made by [`Map::iter`].
pub struct Iter<'g, 'p, T, C = DefaultReclaim>
where
    T: Keyed,
    C: Reclaim + 'p,
{
    map: &'g Map<T, C>,
    guard: &'g C::Guard<'p>,
    /// The first hash that has not been visited; `None` at the end.
    from: Option<u64>,
    /// The words of the last range's items, to be handed out.
    found: Vec<Loaded<'g, T, C::Guard<'p>>>,
}

impl<'g, 'p, T, C> Iter<'g, 'p, T, C>
where
    T: Keyed + Send + Sync + 'static,
    C: Reclaim,
{
    pub(super) fn new(map: &'g Map<T, C>, guard: &'g C::Guard<'p>) -> Self {
        Iter { map, guard, from: Some(0), found: Vec::new() }
    }

    /// The next item, with its word.
    fn next_loaded(&mut self) -> Option<(&'g T, *mut T)> {
        while self.found.is_empty() {
            let from = self.from?;
            let root = self.map.root(self.guard);
            let to = root.last_of_home(from);
            collect(root, from, to, self.guard, &mut self.found);
            self.from = to.checked_add(1);
        }
        let loaded = self.found.pop()?;
        match loaded.content() {
            Content::Item(item) | Content::Frozen(item) => Some((item, loaded.word())),
            _ => unreachable!("only items are collected"),
        }
    }

    /// The next item, as the pointer with which it came.
    pub(super) fn next_pointer(&mut self) -> Option<NonNull<T>> {
        self.next_loaded().and_then(|(_, word)| NonNull::new(word::address(word)))
    }
}

impl<'g, T, C> Iterator for Iter<'g, '_, T, C>
where
    T: Keyed + Send + Sync + 'static,
    C: Reclaim,
{
    type Item = &'g T;

    fn next(&mut self) -> Option<&'g T> {
        self.next_loaded().map(|(item, _)| item)
    }
}

impl<T, C> FusedIterator for Iter<'_, '_, T, C>
where
    T: Keyed + Send + Sync + 'static,
    C: Reclaim,
{
}

/// Adds the items whose mixed hashes are in `from..=to`, beginning in `table`.
///
/// An item that stays in the map is met in the first table, live or frozen; or it has left that table, then the walk
/// leads on and it is met in the next. An item that moves between the two looks is met twice, and added once.
fn collect<'g, T: Keyed, G: Guard>(
    mut table: &'g Table<T>,
    from: u64,
    to: u64,
    guard: &'g G,
    found: &mut Vec<Loaded<'g, T, G>>,
) {
    loop {
        let mut leads_on = false;
        for home in table.home(from)..=table.home(to) {
            let mut index = home;
            loop {
                let loaded = Loaded::load(table.slot(index), guard);
                match loaded.content() {
                    Content::Item(item) | Content::Frozen(item) => {
                        let hash = mix(item.hash());
                        let address = word::address(loaded.word()).addr();
                        // In the order of `found` the root's items come first; ranges are a few items long.
                        if (from..=to).contains(&hash)
                            && table.home(hash) == home
                            && found.iter().all(|other| word::address(other.word()).addr() != address)
                        {
                            found.push(loaded);
                        }
                    }
                    Content::Moved => leads_on = true,
                    Content::Sealed => {
                        leads_on = true;
                        break;
                    }
                    Content::Empty => break,
                    Content::Dead | Content::Other => {}
                }
                index = table.after(index);
            }
        }
        match raw::table(&table.next, guard) {
            Some(next) if leads_on => table = next,
            _ => return,
        }
    }
}
