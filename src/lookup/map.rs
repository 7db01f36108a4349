//! The map's public face.

use std::{borrow::Borrow, fmt, hash::Hash, ptr::NonNull};

use super::{
    DefaultReclaim, Iter, Link, Reclaim,
    buckets::{Buckets, CHUNK, is_behind, spread},
    find::find,
    grow::buckets_for,
    link, raw,
    raw::Word,
};

/// The number of buckets of a map for which nothing is known. In a model the first insertion makes it grow, and so does the second.
/// No logic depends on it.
const LEAST_BUCKETS: usize = if cfg!(any(loom, shuttle)) { 1 } else { 16 };

/// An item that carries its own key and remembers its hash.
///
/// Key and hash must not change while the item is in a map. A wrong implementation makes items unfindable, nothing
/// worse.
pub trait Keyed {
    /// What the item is found by. Its `Eq` may panic: the operation is then not done, and the map is as before.
    type Key: Hash + Eq;

    /// The key.
    fn key(&self) -> &Self::Key;

    /// The hash of the key, computed once, by whatever hasher the map's user has chosen. Must not panic.
    fn hash(&self) -> u64;

    /// The place that the map uses to string the item on its list. Must always be the same one, and must not panic.
    fn link(&self) -> &Link<Self>
    where
        Self: Sized;

    /// Called with an item that is likely to be the one that is looked for, before its key is compared: an opportunity to
    /// [`prefetch`](crate::sync::prefetch) what the caller will read after that.
    #[inline(always)]
    fn expect(&self) {}
}

/// A lock-free hash map of items that are allocated, owned and freed by its user.
///
/// All operations take a [`Guard`](super::Guard) from [`Map::pin`]; what they answer lives as long as it. An item that was removed
/// may be freed through [`Guard::retire`](super::Guard::retire) at once, or kept.
///
/// **Progress.** [`get`](Map::get) never waits, retries or writes. [`insert`](Map::insert) and
/// [`remove_item`](Map::remove_item) are lock-free; while the map grows, an insertion does a bounded share of it.
///
/// **Consistency.** Every operation on one key takes effect at one moment between its call and its return.
///
/// **Panics.** Every operation panics if its guard comes from another map (where reclaimers have instances), and
/// passes on a panic of the key's `Eq`; then nothing has been changed.
pub struct Map<T: Keyed, C: Reclaim = DefaultReclaim> {
    pub(super) buckets: Buckets<T>,
    pub(super) reclaim: C,
}

/// The error of an insertion: the key is taken.
pub struct Occupied<'g, T, I = Box<T>> {
    /// The item in the map that has the key.
    pub existing: &'g T,
    /// The item that was to be inserted.
    pub item: I,
}

impl<T, I> fmt::Debug for Occupied<'_, T, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Occupied")
    }
}

impl<T, I> fmt::Display for Occupied<'_, T, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an item with this key is in the map")
    }
}

impl<T, I> std::error::Error for Occupied<'_, T, I> {}

/// The state of a map's buckets, for tests and curious users. Exact only while nobody writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statistics {
    /// Items in the map.
    pub items: usize,
    /// Buckets in use; while they are being doubled, the number before.
    pub buckets: usize,
    /// Whether they are being doubled.
    pub growing: bool,
}

impl<T, C> Map<T, C>
where
    T: Keyed + Send + Sync + 'static,
    C: Reclaim,
{
    /// The alignment that leaves room for the state of a link.
    const ALIGNED: () = assert!(align_of::<T>() >= link::ALIGNMENT, "items must be aligned to 8 bytes");

    /// An empty map with room for about `items` items before it grows. It has at most 2^31 buckets, which are then fuller.
    pub fn with_capacity(items: usize) -> Self {
        let () = Self::ALIGNED;
        Map { buckets: Buckets::new(buckets_for(items, LEAST_BUCKETS)), reclaim: C::new() }
    }

    /// A guard for this map's operations, and for whatever else is retired through it.
    #[inline]
    pub fn pin(&self) -> C::Guard<'_> {
        self.reclaim.pin()
    }

    /// The reclaimer.
    pub fn reclaim(&self) -> &C {
        &self.reclaim
    }

    #[inline(always)]
    pub(super) fn buckets(&self, guard: &C::Guard<'_>) -> &Buckets<T> {
        assert!(self.reclaim.owns(guard), "the guard of another map");
        &self.buckets
    }

    /// The item with `key`, whose hash is `hash`.
    ///
    /// Never waits, retries or writes; see the progress table of the module for the one step that depends on others.
    #[inline]
    pub fn get<'g, Q>(&self, hash: u64, key: &Q, guard: &'g C::Guard<'_>) -> Option<&'g T>
    where
        T::Key: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        find(self.buckets(guard), hash, key, guard)
    }

    /// Inserts `item`, unless there is one with its key.
    ///
    /// The map does not free the item: take it back with [`Map::remove_item`] or [`Map::drain`].
    ///
    /// # Errors
    ///
    /// The item that has the key, and the rejected one.
    #[allow(unsafe_code)]
    pub fn insert<'g>(&self, item: Box<T>, guard: &'g C::Guard<'_>) -> Result<&'g T, Occupied<'g, T>> {
        /// Frees the box if `Eq` panics.
        struct Arriving<T>(NonNull<T>);
        impl<T> Drop for Arriving<T> {
            fn drop(&mut self) {
                // SAFETY: from the box below, and not in the map.
                drop(unsafe { Box::from_raw(self.0.as_ptr()) });
            }
        }
        let arriving = Arriving(NonNull::from(Box::leak(item)));
        // SAFETY: just out of a box, so valid and in no map; nothing frees it while the map has it but what its
        // remover does, unsafely, with the pointer he is given.
        let inserted = unsafe { self.insert_raw(arriving.0, guard) };
        let item = std::mem::ManuallyDrop::new(arriving).0;
        inserted.map_err(|occupied| Occupied {
            existing: occupied.existing,
            // SAFETY: it was not inserted, so it is ours again.
            item: unsafe { Box::from_raw(item.as_ptr()) },
        })
    }

    /// Inserts the item that `item` points to, unless there is one with its key.
    ///
    /// # Safety
    ///
    /// * `item` points to a valid `T`, which no map holds, and of which no exclusive reference is in use.
    /// * If the insertion succeeds, the item stays valid and is not moved until [`Map::remove_item`] or [`Map::drain`]
    ///   has returned it, and for remove_item also until all guards that were live at that moment are gone: free it
    ///   through [`Guard::retire`](super::Guard::retire). It must not be inserted again before that.
    ///
    /// # Errors
    ///
    /// The item that has the key, and the rejected one.
    #[allow(unsafe_code)]
    pub unsafe fn insert_raw<'g>(
        &self,
        item: NonNull<T>,
        guard: &'g C::Guard<'_>,
    ) -> Result<&'g T, Occupied<'g, T, NonNull<T>>> {
        // SAFETY: the caller's promise.
        let arriving = unsafe { raw::arriving(item, guard) };
        match self.insert_pointer(item, arriving, guard) {
            Ok(()) => Ok(arriving),
            Err(existing) => Err(Occupied { existing, item }),
        }
    }

    /// Removes exactly `item`, not another with its key. Of several callers one wins: it gets the pointer with which
    /// the item came, fit to be freed through [`Guard::retire`](super::Guard::retire).
    #[must_use = "the winner owns the item"]
    pub fn remove_item(&self, item: &T, guard: &C::Guard<'_>) -> Option<NonNull<T>> {
        self.remove_pointer(item, guard)
    }

    /// The items, in the order of their hashes.
    ///
    /// An item that is in the map from the call to the end of the iteration is met exactly once, any other at most
    /// once. Nothing is blocked or moved meanwhile.
    pub fn iter<'g, 'p>(&'g self, guard: &'g C::Guard<'p>) -> Iter<'g, 'p, T, C> {
        Iter::new(self, guard)
    }

    /// Empties the map and hands out the pointers with which the items came.
    ///
    /// Guards of a reclaimer without instances that are still live may hold references to the items.
    pub fn drain(&mut self) -> Vec<NonNull<T>> {
        let items = {
            let guard = self.pin();
            let mut iter = self.iter(&guard);
            let mut items = Vec::new();
            while let Some(item) = iter.next_pointer() {
                items.push(item);
            }
            items
        };
        self.buckets = Buckets::new(self.buckets.least());
        items
    }

    /// Makes room for so many items in all before the map grows by itself. Others that insert meanwhile take part in the work, and who is
    /// stopped with a part of it in hand finishes it later.
    pub fn reserve(&self, items: usize, guard: &C::Guard<'_>) {
        let _ = self.buckets(guard);
        self.grow_to(items, guard);
    }

    /// Completes a growth that is going on, if any, as far as others have not taken charge of it.
    ///
    /// Never necessary. While the map grows, a lookup that finds nothing takes longer; it goes on with every insertion, and stands
    /// still without them. Worth calling after a bulk load that only lookups follow.
    pub fn finish_growth(&self, guard: &C::Guard<'_>) {
        let _ = self.buckets(guard);
        self.grow_to(0, guard);
    }

    /// As [`finish_growth`](Map::finish_growth), if it is no more work than so many insertions would have done of it anyhow.
    pub fn finish_growth_after(&self, insertions: usize, guard: &C::Guard<'_>) {
        let buckets = self.buckets(guard);
        let level = buckets.level();
        if level.is_growing() && buckets.unclaimed(level) <= insertions.saturating_mul(CHUNK) {
            self.grow_to(0, guard);
        }
    }

    /// Counts what there is.
    pub fn statistics(&self, guard: &C::Guard<'_>) -> Statistics {
        let level = self.buckets(guard).level();
        Statistics { items: self.iter(guard).count(), buckets: level.len(), growing: level.is_growing() }
    }

    /// Checks everything that must hold while nobody writes.
    ///
    /// # Panics
    ///
    /// If something does not.
    pub fn check_invariants(&self, guard: &C::Guard<'_>) {
        let buckets = self.buckets(guard);
        let level = buckets.level();
        let (mut items, mut met) = (Vec::new(), vec![0]);
        let mut place = 0;
        let mut word = Word::load(buckets.cell(0), guard);
        while !link::cell(word.word()).is_null() {
            assert!(!word.is_marked(), "removed, and nobody is at it");
            let next = if word.is_cell() {
                let cell = buckets.follow(word.word());
                let index = buckets.index_of(cell);
                met.push(index);
                assert!(is_behind(index as u64, place), "a cell out of order");
                word = Word::load(cell, guard);
                index as u64
            } else {
                let item = word.item();
                items.push(item);
                assert!(!is_behind(place, spread(item.hash())), "an item out of order");
                word = Word::load(&item.link().0, guard);
                spread(item.hash())
            };
            place = next;
        }
        met.sort_unstable();
        assert!(met.iter().copied().take(level.len()).eq(0..level.len()), "a bucket is not in the list");
        let rest = met.len() - level.len();
        assert!(rest == 0 || (level.is_growing() && rest <= level.len()), "cells of no level");
        for (number, &item) in items.iter().enumerate() {
            let found = self.get(item.hash(), item.key(), guard);
            assert!(
                found.is_some_and(|found| std::ptr::eq(found, item)),
                "item {number} is not found by its key"
            );
        }
        assert_eq!(self.iter(guard).count(), items.len(), "iteration");
    }
}

impl<T: Keyed, C: Reclaim> fmt::Debug for Map<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Map").finish_non_exhaustive()
    }
}
