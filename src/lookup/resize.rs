//! Moving from one table to the next. The protocol is told in the header of `lookup`.

use super::{
    Guard, Keyed, Map, Reclaim,
    budget::slots_for,
    map::mix,
    raw::{self, Content, Loaded},
    table::Table,
    word::{self, Fragment},
};
use crate::sync::atomic::{AtomicPtr, Ordering};

/// A table may shrink to this part of its size at once: the next table's own allowance must outlast the chunks.
const SHRINK_PART: usize = 4;

/// The final state of a slot that has been left.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Left {
    Sealed,
    Moved,
    Dead,
}

impl<T, C> Map<T, C>
where
    T: Keyed + Send + Sync + 'static,
    C: Reclaim,
{
    /// Hangs a next table off a worn-out one. On return there is one, ours or another's.
    #[cold]
    pub(super) fn begin_resize(&self, table: &Table<T>, guard: &C::Guard<'_>) {
        // The table before must have been left first: there is room for its items here, not in the next.
        self.finish_resize_into(table, guard);
        if raw::table(&table.next, guard).is_some() {
            return;
        }
        let items = table.budget.close();
        let slots = slots_for(items).max(table.len() / SHRINK_PART).max(self.least_slots);
        let next = Table::new(slots, items).into_link();
        // Release: pairs with the Acquire loads of `next`.
        // - a thread reads our table: it sees it empty and whole;
        // - it reads null: it may still use this table, whose closed budget bounds what can come.
        // No Acquire: it replaces null, and on failure the caller loads `next` again.
        let linked =
            table.next.compare_exchange(std::ptr::null_mut(), next, Ordering::Release, Ordering::Relaxed);
        if linked.is_err() {
            raw::free_tables(next);
        }
    }

    /// Moves all that is left, if a resize is going on.
    pub(super) fn finish_resize_now(&self, guard: &C::Guard<'_>) {
        if let Some(next) = raw::table(&self.root(guard).next, guard) {
            self.finish_resize_into(next, guard);
        }
    }

    /// Makes sure that no table is moving into `next` any more: moves all that is left of it.
    fn finish_resize_into(&self, next: &Table<T>, guard: &C::Guard<'_>) {
        let root = self.root(guard);
        if raw::table(&root.next, guard).is_some_and(|moving_to| std::ptr::eq(moving_to, next)) {
            let moved =
                (0..root.len()).filter(|&index| self.move_slot(root, next, index, guard) == Left::Moved);
            let moved = moved.count();
            self.promote(root, next, moved, guard);
        }
    }

    /// Moves one chunk of `table`, if there is one that nobody has in hand.
    pub(super) fn help(&self, table: &Table<T>, next: &Table<T>, guard: &C::Guard<'_>) {
        let Some(chunk) = table.claim_chunk() else { return };
        read_ahead(table, chunk.clone(), guard);
        let moved = chunk.filter(|&index| self.move_slot(table, next, index, guard) == Left::Moved).count();
        if let Some(moved) = table.chunk_moved(moved) {
            self.promote(table, next, moved, guard);
        }
    }

    /// Closes the chain of `hash` in `table` and moves all of its items.
    pub(super) fn seal(&self, table: &Table<T>, next: &Table<T>, hash: u64, guard: &C::Guard<'_>) {
        let mut index = table.home(hash);
        while self.move_slot(table, next, index, guard) != Left::Sealed {
            index = table.after(index);
        }
    }

    /// Brings one slot of a table that is being left into its final state.
    pub(super) fn move_slot(
        &self,
        table: &Table<T>,
        next: &Table<T>,
        index: usize,
        guard: &C::Guard<'_>,
    ) -> Left {
        let slot = table.slot(index);
        loop {
            let loaded = Loaded::load(slot, guard);
            match loaded.content() {
                Content::Sealed => return Left::Sealed,
                Content::Moved => return Left::Moved,
                Content::Dead => return Left::Dead,
                Content::Empty => {
                    if exchange(slot, loaded.word(), word::sealed()) {
                        return Left::Sealed;
                    }
                }
                Content::Item(_) | Content::Other => {
                    exchange(slot, loaded.word(), word::frozen(loaded.word()));
                }
                Content::Frozen(item) => {
                    copy(next, item, loaded.word(), guard);
                    // If it fails, another has written the same.
                    exchange(slot, loaded.word(), word::moved());
                    return Left::Moved;
                }
            }
        }
    }

    /// Makes `next` the root, if `table` still is, and retires `table`. All slots of `table` are final, and the caller
    /// sees them so; `moved` of them are `MOVED`.
    fn promote(&self, table: &Table<T>, next: &Table<T>, moved: usize, guard: &C::Guard<'_>) {
        // Before the exchange, so that whoever resizes `next` has the final number. All promoters know the same one.
        next.budget.set_copied_in(moved);
        let link = |table: &Table<T>| std::ptr::from_ref(table).cast_mut();
        // The words of the links themselves, whose provenance is that of the allocation. Relaxed, here and below: neither is
        // followed, and both tables came to us by Acquire loads.
        let old = guard.protect(&self.root, Ordering::Relaxed);
        if old != link(table) {
            return;
        }
        let new = guard.protect(&table.next, Ordering::Relaxed);
        // Release: pairs with the Acquire loads of the root.
        // - a thread reads the new root: it sees every slot of the old table as final, and needs that table no more;
        // - it reads the old one: its guard keeps it, and its slots lead on.
        // Relaxed on failure: somebody else has done it.
        if self.root.compare_exchange(old, new, Ordering::Release, Ordering::Relaxed).is_ok() {
            next.budget.refund(next.kept - moved);
            raw::retire_table(old, guard);
        }
    }
}

/// Reads the hashes of a chunk's items. Alone, these loads overlap; between the exchanges that follow, each would be a
/// cache miss that everything waits for.
fn read_ahead<T: Keyed, G: Guard>(table: &Table<T>, chunk: std::ops::Range<usize>, guard: &G) {
    if cfg!(any(loom, shuttle)) {
        return;
    }
    let hashes = chunk.filter_map(|index| match Loaded::load(table.slot(index), guard).content() {
        Content::Item(item) => Some(item.hash()),
        _ => None,
    });
    std::hint::black_box(hashes.fold(0, u64::wrapping_add));
}

/// One step of a slot. Release: pairs with the Acquire loads of slots.
/// - a walk reads `MOVED`: it sees the copy in the next table, or a later state of it; `SEALED` or `FROZEN`: it sees
///   the next table;
/// - it reads the word before: the item, if any, was in the map at that time.
///
/// No Acquire: whoever comes here has loaded the very word that is replaced, with Acquire. Relaxed on failure: the slot is
/// loaded again, or another has taken the same step.
fn exchange<T>(slot: &AtomicPtr<T>, from: *mut T, to: *mut T) -> bool {
    slot.compare_exchange(from, to, Ordering::Release, Ordering::Relaxed).is_ok()
}

/// Sees to it that a frozen item has been copied to the next table, once.
fn copy<T: Keyed, G: Guard>(next: &Table<T>, item: &T, frozen: *mut T, guard: &G) {
    let hash = mix(item.hash());
    let fragment = Fragment::new(hash);
    let same = |address: usize| address == std::ptr::from_ref(item).addr();
    let mut index = next.home(hash);
    loop {
        let slot = next.slot(index);
        // Nothing is followed here: only addresses are compared.
        let loaded = Loaded::load(slot, guard);
        match word::content(loaded.word()) {
            word::Content::Empty => {
                if exchange(slot, std::ptr::null_mut(), word::thawed(frozen)) {
                    return;
                }
                continue;
            }
            // Copied, whatever has become of it since; see "no resurrection".
            word::Content::Item(found) | word::Content::Frozen(found) if same(found.addr()) => return,
            word::Content::Dead(found) if same(found) => return,
            // The next table is being left itself, so this copy was made long ago.
            word::Content::Moved | word::Content::Sealed => return,
            _ => {}
        }
        debug_assert!(fragment.may_match(frozen));
        index = next.after(index);
    }
}
