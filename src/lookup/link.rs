//! What one link of the list holds: where it goes on, and whether its owner has been removed, in one pointer-sized word.
//!
//! ```text
//!  63        48 47                      3   2      1      0
//! | fragment   | address                 | wide | cell | mark |
//! ```
//!
//! | bit | meaning |
//! |---|---|
//! | mark | the item that owns the link has been removed. Never set in a cell |
//! | cell | the address, which may use the wide bit and all above, is that of a bucket's cell; without one, it is the end of the list |
//! | wide | the address is an item's and needs the upper bits itself (32-bit targets, tagged or 52-bit addresses): no fragment |
//!
//! The fragment is a part of the hash of the item to which the link leads: a lookup knows from the link whether it is worth a
//! closer look. A word without any bit is found in a cell that has not been linked yet, and nowhere in the list.

use crate::sync::atomic::AtomicPtr;

const MARK: usize = 0b001;
const CELL: usize = 0b010;
const WIDE: usize = 0b100;
const LOW: usize = MARK | CELL | WIDE;
/// The alignment that leaves the low bits of an item's address free.
pub(super) const ALIGNMENT: usize = LOW + 1;

const FRAGMENTS: bool = usize::BITS == 64;
/// The part of a word that is the address of an item, if it is not wide.
const ADDRESS: usize = if FRAGMENTS { (1_usize << (usize::BITS / 4 * 3)) - LOW - 1 } else { !LOW };

/// The part of a spread hash that is kept in a link, in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fragment(usize);

impl Fragment {
    /// The fragment of a spread hash. Disjoint from the bits that choose the bucket of up to 2^40.
    #[inline(always)]
    pub(super) fn new(spread: u64) -> Self {
        // What is left of the cut on a 32-bit target is not used.
        Fragment((spread << 8) as usize & !(ADDRESS | LOW))
    }

    /// Whether `word` leads to an item with this fragment, and its owner is there: the common answer, in one comparison.
    #[inline(always)]
    pub(super) fn is_item<T>(self, word: *mut T) -> bool {
        FRAGMENTS && (word.addr() ^ self.0) & !ADDRESS == 0
    }
}

/// The word that leads to an item.
#[inline(always)]
pub(super) fn to_item<T>(item: *mut T, fragment: Fragment) -> *mut T {
    if FRAGMENTS && item.addr() & !ADDRESS == 0 {
        item.map_addr(|address| address | fragment.0)
    } else {
        item.map_addr(|address| address | WIDE)
    }
}

/// The item of a word that leads to one.
#[inline(always)]
pub(super) fn item<T>(word: *mut T) -> *mut T {
    word.map_addr(|address| if FRAGMENTS && address & WIDE == 0 { address & ADDRESS } else { address & !LOW })
}

/// The item of a word that `is_item`.
#[inline(always)]
pub(super) fn narrow_item<T>(word: *mut T) -> *mut T {
    word.map_addr(|address| address & ADDRESS)
}

/// The place in an item by which a [`Map`](super::Map) strings it on its list. Belongs to the map.
pub struct Link<T>(pub(super) AtomicPtr<T>);

impl<T> Link<T> {
    /// In no list.
    #[inline]
    pub fn new() -> Self {
        Link(AtomicPtr::new(std::ptr::null_mut()))
    }
}

impl<T> Default for Link<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> std::fmt::Debug for Link<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Link")
    }
}

/// A bucket: the link to its first item. It is a member of the list itself.
pub(super) type Cell<T> = AtomicPtr<T>;

/// Whether the owner of a link with this word has been removed.
#[inline(always)]
pub(super) fn is_marked<T>(word: *mut T) -> bool {
    word.addr() & MARK != 0
}

/// The word of a link whose owner has been removed.
#[inline(always)]
pub(super) fn marked<T>(word: *mut T) -> *mut T {
    word.map_addr(|address| address | MARK)
}

/// Whether [`Fragment::is_item`] may say no of the very fragment: the link's owner has been removed, or the item is wide.
#[inline(always)]
pub(super) fn is_vague<T>(word: *mut T) -> bool {
    word.addr() & (MARK | WIDE) != 0
}

/// Where a link leads, whatever has become of its owner.
#[inline(always)]
pub(super) fn unmarked<T>(word: *mut T) -> *mut T {
    word.map_addr(|address| address & !MARK)
}

/// Whether a link leads to a cell, or to the end; else it leads to an item.
#[inline(always)]
pub(super) fn is_cell<T>(word: *mut T) -> bool {
    word.addr() & CELL != 0
}

/// The end of the list.
#[inline(always)]
pub(super) fn end<T>() -> *mut T {
    std::ptr::without_provenance_mut(CELL)
}

/// The word that leads to a cell.
#[inline(always)]
pub(super) fn to_cell<T>(cell: *const Cell<T>) -> *mut T {
    cell.cast::<T>().cast_mut().map_addr(|address| address | CELL)
}

/// The cell of a word that `is_cell`; null for the end.
#[inline(always)]
pub(super) fn cell<T>(word: *mut T) -> *const Cell<T> {
    word.map_addr(|address| address & !(CELL | MARK)).cast_const().cast()
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn words_come_apart_as_they_were_put_together() {
        for address in [0x7fff_dead_bee8_usize & ADDRESS, 8, usize::MAX & !LOW] {
            let here = std::ptr::without_provenance_mut::<u64>(address);
            for spread in [0, 1, u64::MAX, 0x1234_5678_9abc_def0] {
                let fragment = Fragment::new(spread);
                let word = to_item(here, fragment);
                assert!(!is_cell(word) && !is_marked(word) && item(word) == here);
                assert!(
                    is_marked(marked(word)) && unmarked(marked(word)) == word && item(marked(word)) == here
                );
                assert_eq!(fragment.is_item(word), FRAGMENTS && address & !ADDRESS == 0);
                assert!(!fragment.is_item(marked(word)) && !Fragment::new(!spread).is_item(word));
                assert!(!fragment.is_item(end::<u64>()));
            }
        }
    }

    #[test]
    fn cells_come_back() {
        let bucket: Cell<u64> = AtomicPtr::new(std::ptr::null_mut());
        let there = to_cell(&raw const bucket);
        for word in [there, marked(there)] {
            assert!(is_cell(word) && cell(word) == &raw const bucket && unmarked(word) == there);
        }
        assert!(is_cell(end::<u64>()) && cell(end::<u64>()).is_null() && !is_marked(end::<u64>()));
    }
}
