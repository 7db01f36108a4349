//! What one slot holds: an address, a state, and a fragment of the item's hash, in one pointer-sized word.
//!
//! ```text
//!  63        48 47                      3   2     1 0
//! | fragment   | address                 | wide | state |
//! ```
//!
//! The fragment of an item is odd, so that words without an item never match one. An address that needs the upper bits
//! itself (32-bit targets, tagged or 52-bit addresses) is kept whole and marked *wide*: it matches every fragment,
//! which costs a look at the item's key and nothing else.

/// The state bits: 0 is an item (or, without an address, `EMPTY`).
const STATE: usize = 0b011;
const FROZEN: usize = 0b001;
const DEAD: usize = 0b010;
const WIDE: usize = 0b100;
const LOW: usize = STATE | WIDE;

/// Frozen nothing.
const SEALED: usize = FROZEN;
const MOVED: usize = 0b011;

/// Where the fragment starts; 32-bit targets have none.
const SHIFT: u32 = if usize::BITS == 64 { 48 } else { 0 };
const ADDRESS: usize = if SHIFT == 0 { !LOW } else { ((1 << SHIFT) - 1) & !LOW };

/// A slot's content, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content<T> {
    /// Never used, and the end of a chain.
    Empty,
    /// The end of a chain in a table that is being left.
    Sealed,
    /// Held an item that is, or was, in the next table.
    Moved,
    /// An item of the map.
    Item(*mut T),
    /// An item of the map that is being copied to the next table.
    Frozen(*mut T),
    /// The address of an item that was removed: for comparison only.
    Dead(usize),
}

/// The part of a hash that is kept in a slot, in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fragment(usize);

impl Fragment {
    /// The fragment of a mixed hash. Disjoint from the bits that choose the slot in any table up to 2^40.
    #[inline(always)]
    pub(super) fn new(hash: u64) -> Self {
        Fragment(if SHIFT == 0 { 0 } else { ((hash >> 8) as u16 as usize | 1) << SHIFT })
    }

    /// Whether `word` is a live item with this fragment: the common answer, in one comparison.
    #[inline(always)]
    pub(super) fn is_item<T>(self, word: *mut T) -> bool {
        // Both the upper bits and the three low bits must be equal to those of the fragment.
        SHIFT != 0 && (word.addr() ^ self.0) & !ADDRESS == 0
    }

    /// Whether a lookup of this fragment that meets `word`, neither empty nor `is_item`, must look at it closely. If
    /// not, it is an item with another fragment, in any state, or a dead one.
    #[inline(always)]
    pub(super) fn needs_care<T>(self, word: *mut T) -> bool {
        let word = word.addr();
        SHIFT == 0
            || word >> SHIFT == 0
            || word & WIDE != 0
            || (word & STATE != DEAD && (word ^ self.0) >> SHIFT == 0)
    }

    /// Whether a word that holds an address may be that of an item with this fragment.
    #[inline(always)]
    pub(super) fn may_match<T>(self, word: *mut T) -> bool {
        word.addr() & WIDE != 0 || (word.addr() ^ self.0) >> SHIFT == 0
    }
}

/// The word for a live item. `T` must be aligned to 8 bytes (see `Map::with_capacity`).
#[inline]
pub(super) fn item<T>(item: *mut T, fragment: Fragment) -> *mut T {
    if SHIFT != 0 && item.addr() & !ADDRESS == 0 {
        item.map_addr(|address| address | fragment.0)
    } else {
        item.map_addr(|address| address | WIDE)
    }
}

/// The same item, frozen.
#[inline]
pub(super) fn frozen<T>(item: *mut T) -> *mut T {
    item.map_addr(|address| address & !STATE | FROZEN)
}

/// The same item, thawed: the word under which it enters the next table.
#[inline]
pub(super) fn thawed<T>(item: *mut T) -> *mut T {
    item.map_addr(|address| address & !STATE)
}

/// The same item, removed.
#[inline]
pub(super) fn dead<T>(item: *mut T) -> *mut T {
    item.map_addr(|address| address & !STATE | DEAD)
}

/// The word of a chain's closed end.
#[inline]
pub(super) fn sealed<T>() -> *mut T {
    std::ptr::without_provenance_mut(SEALED)
}

/// The word left behind by an item.
#[inline]
pub(super) fn moved<T>() -> *mut T {
    std::ptr::without_provenance_mut(MOVED)
}

/// The item of a word that `is_item`.
#[inline(always)]
pub(super) fn address<T>(word: *mut T) -> *mut T {
    word.map_addr(
        |address| if SHIFT != 0 && address & WIDE == 0 { address & ADDRESS } else { address & !LOW },
    )
}

/// The item of a word known to be a live item that is not wide.
#[inline(always)]
pub(super) fn narrow_address<T>(word: *mut T) -> *mut T {
    word.map_addr(|address| address & ADDRESS)
}

/// Takes a word apart.
#[inline]
pub(super) fn content<T>(word: *mut T) -> Content<T> {
    match (word.addr() & STATE, word.addr()) {
        (_, 0) => Content::Empty,
        (_, SEALED) => Content::Sealed,
        (MOVED, _) => Content::Moved,
        (FROZEN, _) => Content::Frozen(address(word)),
        (DEAD, _) => Content::Dead(address(word).addr()),
        _ => Content::Item(address(word)),
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::ptr::without_provenance_mut;

    use super::*;

    #[test]
    fn states_and_addresses_survive_packing() {
        let narrow = 0x7fff_dead_bee8_usize & ADDRESS;
        for address in [narrow, 8, usize::MAX & !LOW] {
            let pointer = without_provenance_mut::<u64>(address);
            for hash in [0, 1, u64::MAX, 0x1234_5678_9abc_def0] {
                let fragment = Fragment::new(hash);
                let word = item(pointer, fragment);
                assert_eq!(content(word), Content::Item(pointer));
                assert_eq!(content(frozen(word)), Content::Frozen(pointer));
                assert_eq!(thawed(frozen(word)), word);
                assert_eq!(content(dead(word)), Content::Dead(address));
                assert!(fragment.may_match(word) && fragment.may_match(frozen(word)));
                let is_narrow = SHIFT != 0 && address & !ADDRESS == 0;
                assert_eq!(fragment.is_item(word), is_narrow);
                assert!(!fragment.is_item(frozen(word)) && !fragment.is_item(dead(word)));
                if is_narrow {
                    assert_eq!(narrow_address(word), pointer);
                    assert!(!Fragment::new(!hash).may_match(word));
                }
            }
        }
    }

    #[test]
    fn only_words_that_cannot_matter_to_a_lookup_are_passed_over() {
        let (hash, other) = (0x1234_5678_9abc_def0, !0x1234_5678_9abc_def0);
        let (fragment, others) = (Fragment::new(hash), Fragment::new(other));
        let narrow = without_provenance_mut::<u64>(0x7fff_dead_bee8_usize & ADDRESS);
        let wide = without_provenance_mut::<u64>(usize::MAX & !LOW);
        // Ends of chains, and items with this fragment that are in the map.
        assert!(fragment.needs_care(sealed::<u64>()) && fragment.needs_care(moved::<u64>()));
        assert!(fragment.needs_care(frozen(item(narrow, fragment))));
        // An address that leaves no room for a fragment may be anybody's.
        for owner in [fragment, others] {
            let word = item(wide, owner);
            assert!(fragment.needs_care(word) && fragment.needs_care(frozen(word)));
        }
        if SHIFT != 0 {
            // Everybody else is passed over: other items in any state, and dead ones.
            let word = item(narrow, others);
            assert!(!fragment.needs_care(word) && !fragment.needs_care(frozen(word)));
            assert!(!fragment.needs_care(dead(word)) && !fragment.needs_care(dead(item(narrow, fragment))));
        }
    }

    #[test]
    fn words_without_an_item_match_no_fragment() {
        for word in [without_provenance_mut::<u64>(0), sealed(), moved()] {
            for hash in 0..u64::from(u16::MAX) {
                assert!(!Fragment::new(hash << 8).is_item(word));
            }
        }
        assert_eq!(content::<u64>(without_provenance_mut(0)), Content::Empty);
        assert_eq!(content::<u64>(sealed()), Content::Sealed);
        assert_eq!(content::<u64>(moved()), Content::Moved);
    }
}
