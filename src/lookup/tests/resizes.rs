//! Resizes in the midst of other work: what helpers leave behind, copies that come late, sizes.

use super::{
    super::{
        Map, raw,
        resize::Left,
        table::{CHUNK, Table},
        word,
    },
    Item, Spread, drain, drops, retire,
};
use crate::sync::atomic::Ordering;

/// A reader finds every item once while the table shrinks, when a group of hashes that the old table keeps apart is one in the new table.
#[test]
fn a_shrinking_resize_may_stand_still() {
    let drops = drops();
    let mut map: Map<Item> = Map::with_capacity(0);
    let insert = |key| {
        map.insert(Item::boxed(key, Spread::Good, 0, &drops), &map.pin()).expect("new");
    };
    let remove = |key: u32| {
        let guard = map.pin();
        let item = map.get(Spread::Good.hash(key), &key, &guard).expect("there");
        retire(&guard, map.remove_item(item, &guard).expect("nobody else removes"));
    };
    (0..5_000).for_each(insert);
    (500..5_000).for_each(remove);
    let shrinks = || {
        let guard = map.pin();
        let root = map.root(&guard);
        raw::table(&root.next, &guard).is_some_and(|next| next.len() < root.len())
    };
    let mut churn = 5_000;
    while !shrinks() {
        insert(churn);
        remove(churn);
        churn += 1;
        assert!(churn < 50_000, "it shrinks some time");
    }
    {
        let guard = map.pin();
        let mut keys: Vec<u32> = map.iter(&guard).map(|item| item.key).collect();
        keys.sort_unstable();
        assert!(keys.into_iter().eq(0..500), "each once");
    }
    assert_eq!(drain(&mut map), 500);
}

/// While an item is frozen, waiting to be copied, it is one of the map like any other.
#[test]
fn a_frozen_item_is_in_the_map() {
    let drops = drops();
    let mut map: Map<Item> = Map::with_capacity(0);
    map.insert(Item::boxed(1, Spread::Good, 5, &drops), &map.pin()).expect("new");
    {
        let guard = map.pin();
        let table = map.root(&guard);
        for index in 0..table.len() {
            let slot = table.slot(index);
            let word = slot.load(Ordering::Relaxed);
            if !word.is_null() {
                slot.store(word::frozen(word), Ordering::Relaxed);
            }
        }
        assert_eq!(map.get(Spread::Good.hash(1), &1, &guard).map(|item| item.value), Some(5));
        assert!(map.get(Spread::Good.hash(2), &2, &guard).is_none());
        assert_eq!(map.iter(&guard).map(|item| item.key).collect::<Vec<_>>(), [1]);
    }
    assert_eq!(drain(&mut map), 1);
}

/// Freezes the slot of `item`, as a thread does that is about to move it.
fn freeze(table: &Table<Item>, item: &Item) {
    let slot = (0..table.len()).map(|index| table.slot(index)).find(|slot| {
        let word = slot.load(Ordering::Relaxed);
        !word.is_null() && std::ptr::eq(word::address(word), item)
    });
    let slot = slot.expect("it is in this table");
    slot.store(word::frozen(slot.load(Ordering::Relaxed)), Ordering::Relaxed);
}

/// An item that is frozen is removed from the next table, and others of its chain from their own.
#[test]
fn an_item_can_be_removed_while_it_or_another_is_frozen() {
    for frozen in 0..3 {
        let drops = drops();
        let mut map: Map<Item> = Map::with_capacity(0);
        for key in 0..3 {
            map.insert(Item::boxed(key, Spread::Collide, 0, &drops), &map.pin()).expect("new");
        }
        for removed in 0..3 {
            let guard = map.pin();
            let get = |key: u32| map.get(Spread::Collide.hash(key), &key, &guard);
            let root = map.root(&guard);
            if removed == 0 {
                map.begin_resize(root, &guard);
                freeze(root, get(frozen).expect("there"));
            }
            let item = get(removed).expect("there");
            retire(&guard, map.remove_item(item, &guard).expect("nobody else removes"));
            assert!(get(removed).is_none());
            assert!((removed + 1..3).all(|key| get(key).is_some()), "the others stay");
        }
        map.finish_resize(&map.pin());
        map.check_invariants(&map.pin());
        assert_eq!(drain(&mut map), 0);
    }
}

/// The same while the thread that froze it stalls with all chunks in hand, so that nobody else moves them: who removes a frozen item
/// moves that, and passes by another's.
#[test]
fn an_item_can_be_removed_while_a_thread_stalls() {
    for (frozen, first) in (0..3).flat_map(|frozen| (0..3).map(move |first| (frozen, first))) {
        let drops = drops();
        let mut map: Map<Item> = Map::with_capacity(0);
        for key in 0..3 {
            map.insert(Item::boxed(key, Spread::Collide, 0, &drops), &map.pin()).expect("new");
        }
        {
            let guard = map.pin();
            let get = |key: u32| map.get(Spread::Collide.hash(key), &key, &guard);
            let root = map.root(&guard);
            map.begin_resize(root, &guard);
            while root.claim_chunk().is_some() {}
            freeze(root, get(frozen).expect("there"));
            for gone in 0..3 {
                let removed = (first + gone) % 3;
                let item = get(removed).expect("there");
                retire(&guard, map.remove_item(item, &guard).expect("nobody else removes"));
                assert!(get(removed).is_none());
                assert_eq!(
                    (0..3).filter(|&key| get(key).is_some()).count(),
                    2 - gone as usize,
                    "the others stay"
                );
            }
        }
        assert_eq!(drain(&mut map), 0);
    }
}

/// A thread that is slow in moving an item comes when the item has been moved by another, and removed: it must not bring
/// it back.
#[test]
fn a_late_copy_brings_nothing_back() {
    let drops = drops();
    let mut map: Map<Item> = Map::with_capacity(0);
    map.insert(Item::boxed(1, Spread::Good, 0, &drops), &map.pin()).expect("new");
    {
        let guard = map.pin();
        let get = || map.get(Spread::Good.hash(1), &1, &guard);
        let root = map.root(&guard);
        map.begin_resize(root, &guard);
        let item = get().expect("there");
        freeze(root, item);
        let index = (0..root.len()).find(|&index| !root.slot(index).load(Ordering::Relaxed).is_null());
        let index = index.expect("the frozen slot");
        let frozen = root.slot(index).load(Ordering::Relaxed);
        let next = raw::table(&root.next, &guard).expect("just made");
        assert!(map.move_slot(root, next, index, &guard) == Left::Moved);
        let late = |frozen| {
            root.slot(index).store(frozen, Ordering::Relaxed);
            assert!(map.move_slot(root, next, index, &guard) == Left::Moved);
        };
        // While it is there: no second one.
        late(frozen);
        assert_eq!(map.iter(&guard).count(), 1);
        retire(&guard, map.remove_item(item, &guard).expect("nobody else removes"));
        late(frozen);
        assert!(get().is_none());
        assert_eq!(map.iter(&guard).count(), 0);
    }
    assert_eq!(drain(&mut map), 0);
}

/// Every write that comes by moves a chunk, so a resize is over after as many writes as there are chunks.
#[test]
fn each_write_moves_its_share_of_a_resize() {
    let drops = drops();
    let mut map: Map<Item> = Map::with_capacity(0);
    (0..4_000).for_each(|key| {
        map.insert(Item::boxed(key, Spread::Good, 0, &drops), &map.pin()).expect("new");
    });
    map.finish_resize(&map.pin());
    {
        let guard = map.pin();
        let root = map.root(&guard);
        map.begin_resize(root, &guard);
        let chunks = root.len().div_ceil(CHUNK);
        // A removal and an insertion: two writes a turn.
        for write in 1..=chunks / 2 {
            assert!(map.statistics(&guard).resizing, "over after {write} turns, {chunks} chunks");
            let item = map.get(Spread::Good.hash(write as u32), &(write as u32), &guard).expect("there");
            retire(&guard, map.remove_item(item, &guard).expect("nobody else removes"));
            map.insert(Item::boxed(50_000 + write as u32, Spread::Good, 0, &drops), &guard).expect("new");
        }
        assert!(!map.statistics(&guard).resizing, "not over after {chunks} writes");
        map.check_invariants(&guard);
    }
    assert_eq!(drain(&mut map), 4_000);
}

/// However few are left: a table that is much smaller would be worn out before the old one has been left.
#[test]
fn a_table_shrinks_to_a_quarter_at_once_and_no_further() {
    let drops = drops();
    let mut map: Map<Item> = Map::with_capacity(0);
    (0..10_000).for_each(|key| {
        map.insert(Item::boxed(key, Spread::Good, 0, &drops), &map.pin()).expect("new");
    });
    for key in 1..10_000 {
        let guard = map.pin();
        let item = map.get(Spread::Good.hash(key), &key, &guard).expect("there");
        retire(&guard, map.remove_item(item, &guard).expect("nobody else removes"));
    }
    map.finish_resize(&map.pin());
    for _ in 0..3 {
        let guard = map.pin();
        let before = map.root(&guard).len();
        map.begin_resize(map.root(&guard), &guard);
        map.finish_resize(&guard);
        assert_eq!(map.root(&guard).len(), before / 4);
    }
    assert_eq!(drain(&mut map), 1);
}

#[test]
fn texts() {
    let drops = drops();
    let mut map: Map<Item> = Map::with_capacity(0);
    assert_eq!(format!("{map:?}"), "Map { .. }");
    map.insert(Item::boxed(1, Spread::Good, 0, &drops), &map.pin()).expect("new");
    {
        let guard = map.pin();
        let Err(occupied) = map.insert(Item::boxed(1, Spread::Good, 0, &drops), &guard) else {
            panic!("the key is taken")
        };
        assert_eq!(format!("{occupied:?}: {occupied}"), "Occupied: an item with this key is in the map");
    }
    drain(&mut map);
}
