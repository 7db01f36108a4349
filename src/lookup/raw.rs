//! Following pointers. The rules are those of the module `lookup`.

#![allow(unsafe_code)]

use super::{Guard, Keyed, link};
use crate::sync::atomic::{AtomicPtr, Ordering};

/// Follows the address of an item that was loaded through `guard`, or whose insertion is going on.
///
/// # Safety
///
/// That it was. By rule 2, or by the contract of `insert_raw`, it is then valid while the guard lives.
#[inline(always)]
unsafe fn follow<T, G: Guard>(item: *mut T, guard: &G) -> &T {
    guard.touch(item);
    // SAFETY: the caller's promise.
    unsafe { &*item }
}

/// The word of a link of the list, loaded through a guard.
pub(super) struct Word<'g, T, G> {
    word: *mut T,
    guard: &'g G,
}

impl<T, G> Clone for Word<'_, T, G> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, G> Copy for Word<'_, T, G> {}

impl<'g, T: Keyed, G: Guard> Word<'g, T, G> {
    /// Loads a link of the list.
    #[inline(always)]
    pub(super) fn load(link: &AtomicPtr<T>, guard: &'g G) -> Self {
        // Acquire: pairs with the Release of every CAS on a link.
        // - it reads that CAS's word: it also sees the contents of what the word leads to, and what came before a removal that it
        //   is the consequence of;
        // - it reads an older one: the answer drawn from it is right for a moment before that CAS.
        Word { word: guard.protect(link, Ordering::Acquire), guard }
    }

    /// The word itself.
    #[inline(always)]
    pub(super) fn word(self) -> *mut T {
        self.word
    }

    #[inline(always)]
    pub(super) fn is_cell(self) -> bool {
        link::is_cell(self.word)
    }

    #[inline(always)]
    pub(super) fn is_marked(self) -> bool {
        link::is_marked(self.word)
    }

    /// Whether nothing can be told of the item that the link leads to without following it.
    #[inline(always)]
    pub(super) fn is_vague(self) -> bool {
        link::is_vague(self.word)
    }

    /// The same, as if the link's owner had not been removed.
    #[inline(always)]
    pub(super) fn unmarked(self) -> Self {
        Word { word: link::unmarked(self.word), guard: self.guard }
    }

    /// The item that the link leads to; it must not be a cell.
    #[inline(always)]
    pub(super) fn item(self) -> &'g T {
        debug_assert!(!self.is_cell() && !self.word.is_null());
        // SAFETY: a word of a linked link that is not one of a cell holds an address that came through `insert_raw` (rule 1), and this
        // one was loaded through the guard (rule 2).
        unsafe { follow(link::item(self.word), self.guard) }
    }

    /// The item that the link leads to, if it has this fragment and the link's owner has not been removed.
    #[inline(always)]
    pub(super) fn item_with(self, fragment: link::Fragment) -> Option<&'g T> {
        // SAFETY: as in `item`.
        fragment.is_item(self.word).then(|| unsafe { follow(link::narrow_item(self.word), self.guard) })
    }
}

/// The item that an insertion brings.
///
/// # Safety
///
/// The contract of `Map::insert_raw`.
pub(super) unsafe fn arriving<T, G: Guard>(item: std::ptr::NonNull<T>, guard: &G) -> &T {
    // SAFETY: the contract keeps the item valid until its removal and beyond the life of today's guards. If the
    // insertion fails, the item is the caller's again, and our reference is not used after that.
    unsafe { follow(item.as_ptr(), guard) }
}
