//! The map's public face.

use std::{borrow::Borrow, fmt, hash::Hash, ptr::NonNull};

use super::{
    DefaultReclaim, Iter, Reclaim,
    budget::{limit, slots_for},
    find::find,
    raw::{self, Content, Loaded},
    table::{CHUNK, Table},
};
use crate::sync::atomic::{AtomicPtr, Ordering};

/// The size of a map for which nothing is known. In a model the first insertion uses a table up and the second
/// resizes. No logic depends on it: each table carries its own size.
const LEAST_SLOTS: usize = if cfg!(any(loom, shuttle)) { 2 } else { 16 };

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

    /// Called with an item that is likely to be the one that is looked for, before its key is compared: an opportunity to
    /// [`prefetch`](crate::sync::prefetch) what the caller will read after that.
    #[inline(always)]
    fn expect(&self) {}
}

/// The multiplication by an odd number that spreads a hash over the leading bits; makes a weak hasher usable.
#[inline(always)]
pub(super) fn mix(hash: u64) -> u64 {
    hash.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// A lock-free hash map of items that are allocated, owned and freed by its user.
///
/// All operations take a [`Guard`](super::Guard) from [`Map::pin`]; what they answer lives as long as it. An item that was removed
/// may be freed through [`Guard::retire`](super::Guard::retire) at once, or kept.
///
/// **Progress.** [`get`](Map::get) never waits, retries or writes. [`insert`](Map::insert) and
/// [`remove_item`](Map::remove_item) are lock-free; while a resize is going on each moves a bounded share of it.
///
/// **Consistency.** Every operation on one key takes effect at one moment between its call and its return.
///
/// **Panics.** Every operation panics if its guard comes from another map (where reclaimers have instances), and
/// passes on a panic of the key's `Eq`; then nothing has been changed.
pub struct Map<T: Keyed, C: Reclaim = DefaultReclaim> {
    pub(super) root: AtomicPtr<Table<T>>,
    pub(super) least_slots: usize,
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

/// The state of a map's tables, for tests and curious users. Exact only while nobody writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statistics {
    /// Items in the map.
    pub items: usize,
    /// Slots of the newest table.
    pub slots: usize,
    /// Slots of the newest table that have been used, by items in the map or removed ones.
    pub used: usize,
    /// Whether a resize is going on.
    pub resizing: bool,
}

impl<T, C> Map<T, C>
where
    T: Keyed + Send + Sync + 'static,
    C: Reclaim,
{
    /// The alignment that leaves room for the state of a slot.
    const ALIGNED: () = assert!(align_of::<T>() >= 8, "items must be aligned to 8 bytes");

    /// An empty map with room for about `items` items before its first resize; it never shrinks below that.
    ///
    /// # Panics
    ///
    /// If `items` needs more than 2^31 slots.
    pub fn with_capacity(items: usize) -> Self {
        let () = Self::ALIGNED;
        // An eighth of the limit may be out of one thread's reach.
        let mut slots = LEAST_SLOTS;
        while limit(slots) - limit(slots) / 8 < items {
            slots *= 2;
        }
        Map { root: AtomicPtr::new(Table::new(slots, 0).into_link()), least_slots: slots, reclaim: C::new() }
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
    pub(super) fn root<'g>(&self, guard: &'g C::Guard<'_>) -> &'g Table<T> {
        assert!(self.reclaim.owns(guard), "the guard of another map");
        raw::table(&self.root, guard).expect("there is always a root")
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
        find(self.root(guard), mix(hash), key, guard)
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
        let fresh = Table::new(self.least_slots, 0).into_link();
        // Relaxed: nobody else is here.
        let old = self.root.load(Ordering::Relaxed);
        self.root = AtomicPtr::new(fresh);
        raw::free_tables(old);
        items
    }

    /// Completes a resize that is going on, if any, in one go.
    ///
    /// Never necessary. While a resize is under way, lookups read two tables; it goes on with every insertion and
    /// removal, and stands still without them. Worth calling after a bulk load that only lookups follow.
    pub fn finish_resize(&self, guard: &C::Guard<'_>) {
        self.finish_resize_now(guard);
    }

    /// As [`finish_resize`](Map::finish_resize), if it is no more work than so many insertions would have done of it anyhow.
    pub fn finish_resize_after(&self, insertions: usize, guard: &C::Guard<'_>) {
        if self.root(guard).len() <= insertions.saturating_mul(CHUNK) {
            self.finish_resize_now(guard);
        }
    }

    /// Counts what there is.
    pub fn statistics(&self, guard: &C::Guard<'_>) -> Statistics {
        let root = self.root(guard);
        let next = raw::table(&root.next, guard);
        let newest = next.unwrap_or(root);
        Statistics {
            items: self.iter(guard).count(),
            slots: newest.len(),
            used: newest.budget.used_and_removed().0,
            resizing: next.is_some(),
        }
    }

    /// Checks everything that must hold while nobody writes.
    ///
    /// # Panics
    ///
    /// If something does not.
    pub fn check_invariants(&self, guard: &C::Guard<'_>) {
        let root = self.root(guard);
        let next = raw::table(&root.next, guard);
        let mut items = Vec::new();
        for table in [Some(root), next].into_iter().flatten() {
            let (mut used, mut dead) = (0, 0);
            for index in 0..table.len() {
                let content = Loaded::load(table.slot(index), guard).content();
                used += usize::from(!matches!(content, Content::Empty | Content::Sealed));
                match content {
                    Content::Dead => dead += 1,
                    Content::Item(item) => items.push(item),
                    Content::Empty => {}
                    Content::Frozen(_) => panic!("frozen, and nobody is at it"),
                    Content::Moved | Content::Sealed | Content::Other => {
                        assert!(next.is_some() && std::ptr::eq(table, root), "left, and no next table");
                    }
                }
            }
            assert!(used <= limit(table.len()), "{used} of {} slots used", table.len());
            let (counted_used, counted_dead) = table.budget.used_and_removed();
            // While the table before is being left, all that is kept for its items is counted as used.
            if std::ptr::eq(table, root) {
                assert_eq!((counted_used, counted_dead), (used, dead), "counts");
            } else {
                assert!(counted_used >= used && counted_dead == dead, "counts");
            }
        }
        assert!(next.is_none_or(|next| raw::table(&next.next, guard).is_none()), "three tables");
        for (number, &item) in items.iter().enumerate() {
            let found = self.get(item.hash(), item.key(), guard);
            assert!(
                found.is_some_and(|found| std::ptr::eq(found, item)),
                "item {number} is not found by its key"
            );
        }
        assert_eq!(self.iter(guard).count(), items.len(), "iteration");
        let slots = next.unwrap_or(root).len();
        let most = slots_for(items.len()).max(self.least_slots);
        assert!(
            limit(slots) >= items.len() && slots >= self.least_slots,
            "{slots} slots, at most {most} wanted"
        );
    }
}

impl<T: Keyed, C: Reclaim> Drop for Map<T, C> {
    fn drop(&mut self) {
        // Relaxed: nobody else is here.
        raw::free_tables(self.root.load(Ordering::Relaxed));
    }
}

impl<T: Keyed, C: Reclaim> fmt::Debug for Map<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Map").finish_non_exhaustive()
    }
}
