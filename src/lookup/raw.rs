//! Following pointers. The rules are those of the module `lookup`.

#![allow(unsafe_code)]

use super::{Guard, table::Table, word};
use crate::sync::atomic::{AtomicPtr, Ordering};

/// Follows the address of an item that was loaded through `guard` in the state item or `FROZEN`, or whose insertion
/// is going on.
///
/// # Safety
///
/// That it was. By rule 2, or by the contract of `insert`, it is then valid while the guard lives.
#[inline(always)]
unsafe fn follow<T, G: Guard>(item: *mut T, guard: &G) -> &T {
    guard.touch(item);
    // SAFETY: the caller's promise.
    unsafe { &*item }
}

/// A word of a slot, loaded through a guard: what `word::content` says of it holds at the time of the load.
pub(super) struct Loaded<'g, T, G> {
    word: *mut T,
    guard: &'g G,
}

impl<T, G> Clone for Loaded<'_, T, G> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, G> Copy for Loaded<'_, T, G> {}

impl<'g, T, G: Guard> Loaded<'g, T, G> {
    /// Loads a slot.
    #[inline(always)]
    pub(super) fn load(slot: &AtomicPtr<T>, guard: &'g G) -> Self {
        // Acquire: pairs with the Release of every CAS on a slot.
        // - it reads that CAS's word: it also sees the item's contents and what its writer saw of the chain;
        // - it reads an older word: the answer drawn from it is right for a moment before that CAS.
        Loaded { word: guard.protect(slot, Ordering::Acquire), guard }
    }

    /// The word itself.
    #[inline(always)]
    pub(super) fn word(self) -> *mut T {
        self.word
    }

    /// The item, if the word is a live, narrow one with this fragment.
    #[inline(always)]
    pub(super) fn item_with(self, fragment: word::Fragment) -> Option<&'g T> {
        if fragment.is_item(self.word) {
            // SAFETY: a live item, loaded through the guard: rule 2.
            Some(unsafe { follow(word::narrow_address(self.word), self.guard) })
        } else {
            None
        }
    }

    /// Takes the word apart and follows its item.
    #[inline]
    pub(super) fn content(self) -> Content<'g, T> {
        self.content_if(|_| true)
    }

    /// Takes the word apart; its item is followed only if the word is `wanted`.
    #[inline]
    pub(super) fn content_if(self, wanted: impl Fn(*mut T) -> bool) -> Content<'g, T> {
        match word::content(self.word) {
            word::Content::Empty => Content::Empty,
            word::Content::Sealed => Content::Sealed,
            word::Content::Moved => Content::Moved,
            word::Content::Dead(_) => Content::Dead,
            word::Content::Item(_) | word::Content::Frozen(_) if !wanted(self.word) => Content::Other,
            // SAFETY: the slots of a table hold addresses that came through `insert` (rule 1); this one was loaded
            // as a live item through the guard: rule 2.
            word::Content::Item(item) => Content::Item(unsafe { follow(item, self.guard) }),
            // SAFETY: as above; it was loaded as `FROZEN`.
            word::Content::Frozen(item) => Content::Frozen(unsafe { follow(item, self.guard) }),
        }
    }
}

/// What a slot holds, with its item followed.
pub(super) enum Content<'g, T> {
    Empty,
    Sealed,
    Moved,
    Item(&'g T),
    Frozen(&'g T),
    Dead,
    /// An item, live or frozen, that was not asked for.
    Other,
}

/// The item that an insertion brings.
///
/// # Safety
///
/// The contract of `Map::insert`.
pub(super) unsafe fn arriving<T, G: Guard>(item: std::ptr::NonNull<T>, guard: &G) -> &T {
    // SAFETY: the contract keeps the item valid until its removal and beyond the life of today's guards. If the
    // insertion fails, the item is the caller's again, and our reference is not used after that.
    unsafe { follow(item.as_ptr(), guard) }
}

/// Loads the table behind `link`, which is the root or the `next` of a protected table.
#[inline(always)]
pub(super) fn table<'g, T, G: Guard>(link: &AtomicPtr<Table<T>>, guard: &'g G) -> Option<&'g Table<T>> {
    // Acquire: pairs with the Release CAS of `next` and of the root.
    // - it reads the new table: it sees its header and its slots, and, for the root, that all slots of the table
    //   before are final;
    // - it reads the older one: the slots of that one lead on.
    let table = guard.protect(link, Ordering::Acquire);
    guard.touch(table);
    // SAFETY: links are null or hold a table; rule 3.
    unsafe { table.as_ref() }
}

/// Retires a table that its caller has just replaced as root.
pub(super) fn retire_table<T: Send + Sync + 'static, G: Guard>(table: *mut Table<T>, guard: &G) {
    unsafe fn reclaim<T>(table: *mut Table<T>) {
        // SAFETY: made by `Table::into_link`; this runs once, when nobody can reach it.
        drop(unsafe { Box::from_raw(table) });
    }
    // SAFETY: the one thread whose CAS took it off the root calls this, once: rule 3.
    unsafe { guard.retire(table, reclaim::<T>) }
}

/// Frees a table and all that hang off it.
pub(super) fn free_tables<T>(mut table: *mut Table<T>) {
    while !table.is_null() {
        // SAFETY: called with `&mut Map` for its root, or for a table that was never published: rule 4. The next one
        // hangs off this one alone.
        let owned = unsafe { Box::from_raw(table) };
        // Relaxed: nobody else is here.
        table = owned.next.load(Ordering::Relaxed);
    }
}
