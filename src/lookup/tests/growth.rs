//! Growth in the midst of other work, and steps that another thread has left half done.

use super::{
    super::{
        Iter, Map, Reclaim,
        buckets::{CHUNK, is_behind, spread},
        grow::link,
        link::{is_marked, marked},
    },
    DefaultReclaim, Item, Spread, drain, drops, retire,
};
use crate::sync::{Arc, atomic::AtomicUsize, atomic::Ordering};

type Pin<'a> = <DefaultReclaim as Reclaim>::Guard<'a>;

fn insert(map: &Map<Item>, key: u32, drops: &Arc<AtomicUsize>) {
    map.insert(Item::boxed(key, Spread::Good, 0, drops), &map.pin()).expect("new");
}

fn get<'g>(map: &Map<Item>, key: u32, guard: &'g Pin<'_>) -> Option<&'g Item> {
    map.get(Spread::Good.hash(key), &key, guard)
}

/// A map whose growth has just begun, and how many items it has.
fn growing(drops: &Arc<AtomicUsize>) -> (Map<Item>, u32) {
    let map = Map::with_capacity(0);
    let mut key = 0;
    while !map.statistics(&map.pin()).growing || key < 500 {
        insert(&map, key, drops);
        key += 1;
        assert!(key < 10_000, "many buckets are more than one insertion links");
    }
    (map, key)
}

/// A map that is growing can be used, drained and dropped, and the growth be completed at a request.
#[test]
fn a_growth_may_stand_still() {
    for finish in [false, true] {
        let drops = drops();
        let (mut map, items) = growing(&drops);
        {
            let guard = map.pin();
            map.check_invariants(&guard);
            assert!(map.iter(&guard).count() == items as usize);
            assert!((0..items).all(|key| get(&map, key, &guard).is_some()));
            assert!((items..2 * items).all(|key| get(&map, key, &guard).is_none()));
            let before = map.statistics(&guard).buckets;
            if finish {
                map.finish_growth(&guard);
                let after = map.statistics(&guard);
                assert_eq!((after.buckets, after.growing), (2 * before, false));
                map.check_invariants(&guard);
            }
        }
        assert_eq!(drain(&mut map), items as usize);
        drop(map);
        assert_eq!(drops.load(Ordering::Relaxed), items as usize);
    }
}

/// Every insertion links its share, so a growth is over after as many as there are shares.
#[test]
fn each_insertion_does_its_share_of_a_growth() {
    let drops = drops();
    let (mut map, items) = growing(&drops);
    let shares = {
        let level = map.buckets.level();
        map.buckets.unclaimed(level).div_ceil(CHUNK)
    };
    assert!(shares > 1);
    for share in 0..shares {
        assert!(map.statistics(&map.pin()).growing, "over after {share} of {shares}");
        insert(&map, items + share as u32, &drops);
    }
    assert!(!map.statistics(&map.pin()).growing, "not over after {shares} insertions");
    map.check_invariants(&map.pin());
    drain(&mut map);
}

/// A thread that is stopped with its share in hand holds up the growth, and no operation.
#[test]
fn a_stalled_helper_holds_up_the_growth_and_nothing_else() {
    let drops = drops();
    let (mut map, items) = growing(&drops);
    {
        let guard = map.pin();
        let level = map.buckets.level();
        let stalled = map.buckets.claim(level).expect("it has just begun");
        map.finish_growth(&guard);
        assert_eq!(map.buckets.level(), level, "not complete");
        for key in items..3 * items {
            insert(&map, key, &drops);
        }
        for key in 0..3 * items {
            let item = get(&map, key, &guard).expect("there");
            if key % 3 == 0 {
                retire(&guard, map.remove_item(item, &guard).expect("nobody else removes"));
                assert!(get(&map, key, &guard).is_none());
            }
        }
        let left = map.iter(&guard).count();
        let count = stalled.len();
        stalled.for_each(|index| link(&map.buckets, level, index, &guard));
        map.buckets.linked(level, count);
        assert_eq!(map.buckets.level().len(), 2 * level.len());
        map.check_invariants(&guard);
        assert_eq!(map.iter(&guard).count(), left);
    }
    drain(&mut map);
}

#[test]
fn room_is_made_ahead() {
    let drops = drops();
    let mut map: Map<Item> = Map::with_capacity(0);
    (0..10).for_each(|key| insert(&map, key, &drops));
    {
        let guard = map.pin();
        map.reserve(5_000, &guard);
        let before = map.statistics(&guard);
        assert_eq!((before.buckets, before.growing), (16_384, false));
        map.check_invariants(&guard);
        (10..5_000).for_each(|key| insert(&map, key, &drops));
        assert_eq!(map.statistics(&guard).buckets, 16_384);
        map.reserve(100, &guard);
        assert_eq!(map.statistics(&guard).buckets, 16_384);
    }
    assert_eq!(drain(&mut map), 5_000);
}

/// A thread may stop between marking an item and taking it out: everybody else takes it for removed, and takes it out.
#[test]
fn a_marked_item_is_taken_out_by_whoever_comes_by() {
    for comes_by in 0..3 {
        let drops = drops();
        let mut map: Map<Item> = Map::with_capacity(0);
        map.insert(Item::boxed(1, Spread::Collide, 0, &drops), &map.pin()).expect("new");
        map.insert(Item::boxed(2, Spread::Collide, 0, &drops), &map.pin()).expect("new");
        {
            let guard = map.pin();
            let first = Iter::new(&map, &guard).next_pointer().expect("there");
            let item = map.get(7, &1, &guard).expect("there");
            assert!(std::ptr::eq(first.as_ptr(), item));
            item.link.0.store(marked(item.link.0.load(Ordering::Relaxed)), Ordering::Relaxed);
            match comes_by {
                0 => assert!(map.remove_item(item, &guard).is_none(), "another has removed it"),
                1 => {
                    map.insert(Item::boxed(1, Spread::Collide, 9, &drops), &guard).expect("the key is free");
                    assert_eq!(map.get(7, &1, &guard).map(|item| item.value), Some(9));
                }
                _ => {
                    let second = map.get(7, &2, &guard).expect("behind it");
                    retire(&guard, map.remove_item(second, &guard).expect("nobody else removes"));
                }
            }
            assert!(is_marked(item.link.0.load(Ordering::Relaxed)));
            assert!(map.iter(&guard).all(|other| !std::ptr::eq(other, item)));
            map.check_invariants(&guard);
            // The one who marked it does this in the end.
            retire(&guard, first);
        }
        drain(&mut map);
    }
}

#[test]
fn the_order_is_that_of_numbers_read_backwards() {
    let numbers = [0, 1, 2, 3, 7, 8, 1 << 63, u64::MAX - 1, u64::MAX, 0x1234_5678_9abc_def0];
    for (a, b) in numbers.iter().flat_map(|a| numbers.iter().map(move |b| (*a, *b))) {
        assert_eq!(is_behind(a, b), a.reverse_bits() > b.reverse_bits(), "{a} {b}");
    }
}

#[test]
fn spreads_are_mixed() {
    let mut buckets = [0; 64];
    for hash in 0..6_400_u64 {
        buckets[(spread(hash) % 64) as usize] += 1;
    }
    assert!(buckets.iter().all(|&items| (60..140).contains(&items)), "{buckets:?}");
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
        assert_eq!(format!("{:?}", occupied.existing.link), "Link");
    }
    drain(&mut map);
}
