//! Random programs on the lookup map: every answer is checked against what the other threads can have done.

use std::{
    collections::{BTreeMap, HashSet},
    ptr::NonNull,
};

use leasehold::internals::{
    lookup::{DefaultReclaim, Guard, Keyed, Link, Map, Reclaim},
    sync::{
        Arc, SplitMix64,
        atomic::{AtomicUsize, Ordering},
        thread,
    },
};
use shuttle::rand::{Rng, thread_rng};

use crate::common::scenario;

struct Item {
    key: u32,
    hash: u64,
    freed: Arc<AtomicUsize>,
    link: Link<Item>,
}

impl Keyed for Item {
    type Key = u32;

    fn key(&self) -> &u32 {
        &self.key
    }

    fn hash(&self) -> u64 {
        self.hash
    }

    fn link(&self) -> &Link<Item> {
        &self.link
    }
}

impl Drop for Item {
    fn drop(&mut self) {
        self.freed.fetch_add(1, Ordering::Relaxed);
    }
}

/// Three hashes for all keys, so that chains are long and shared.
fn hash(key: u32) -> u64 {
    SplitMix64::mix(u64::from(key % 3))
}

fn retire(guard: &impl Guard, item: NonNull<Item>) {
    unsafe fn reclaim(item: *mut Item) {
        // SAFETY: from a box, run once.
        drop(unsafe { Box::from_raw(item) });
    }
    // SAFETY: `remove_item` has returned it, to us alone.
    unsafe { guard.retire(item.as_ptr(), reclaim) }
}

const CONTESTED: u32 = 4;
const THREADS: u32 = 4;
/// A key that is there from beginning to end.
const STABLE: u32 = 100;

/// What one thread has done to the contested keys: insertions minus removals, and insertions that were tried.
#[derive(Default)]
struct Account {
    balance: BTreeMap<u32, i32>,
    made: usize,
}

fn insert(
    map: &Map<Item>,
    key: u32,
    freed: &Arc<AtomicUsize>,
    guard: &<DefaultReclaim as Reclaim>::Guard<'_>,
) -> bool {
    map.insert(Box::new(Item { key, hash: hash(key), freed: Arc::clone(freed), link: Link::new() }), guard)
        .is_ok()
}

/// Inserts, removes, looks up and iterates; own keys must behave as in a map of one's own.
fn program(map: &Map<Item>, thread: u32, freed: &Arc<AtomicUsize>, steps: u32) -> Account {
    let mut random = thread_rng();
    let mut account = Account::default();
    let own = 200 + thread;
    let mut own_is_there = false;
    for _ in 0..steps {
        let guard = map.pin();
        let key = random.gen_range(0..CONTESTED);
        match random.gen_range(0..10) {
            0..=2 => {
                account.made += 1;
                if insert(map, key, freed, &guard) {
                    *account.balance.entry(key).or_default() += 1;
                }
            }
            3..=4 => {
                if let Some(item) = map.get(hash(key), &key, &guard) {
                    assert_eq!(item.key, key);
                    if let Some(item) = map.remove_item(item, &guard) {
                        *account.balance.entry(key).or_default() -= 1;
                        retire(&guard, item);
                    }
                }
            }
            5..=7 => {
                let found = map.get(hash(own), &own, &guard);
                assert_eq!(found.is_some(), own_is_there, "nobody else touches this key");
                match found {
                    Some(item) => retire(&guard, map.remove_item(item, &guard).expect("nobody else removes")),
                    None => {
                        account.made += 1;
                        assert!(insert(map, own, freed, &guard), "nobody else inserts");
                    }
                }
                own_is_there = !own_is_there;
            }
            8 => assert!(map.get(hash(STABLE), &STABLE, &guard).is_some(), "it is there all the time"),
            _ => {
                let mut met = HashSet::new();
                let (mut stable, mut mine) = (0, 0);
                for item in map.iter(&guard) {
                    assert!(met.insert(std::ptr::from_ref(item)), "met twice");
                    stable += u32::from(item.key == STABLE);
                    mine += u32::from(item.key == own);
                }
                assert_eq!((stable, mine), (1, u32::from(own_is_there)));
            }
        }
    }
    account
}

fn run(steps: u32) {
    let map: Arc<Map<Item>> = Arc::new(Map::with_capacity(0));
    let freed = Arc::new(AtomicUsize::new(0));
    assert!(insert(&map, STABLE, &freed, &map.pin()));
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (map, freed) = (Arc::clone(&map), Arc::clone(&freed));
            thread::spawn(move || program(&map, thread, &freed, steps))
        })
        .collect();
    let accounts: Vec<_> = threads.into_iter().map(|thread| thread.join().expect("no panic")).collect();
    let made = 1 + accounts.iter().map(|account| account.made).sum::<usize>();
    let mut map = Arc::try_unwrap(map).expect("all threads are gone");
    {
        let guard = map.pin();
        map.check_invariants(&guard);
        for key in 0..CONTESTED {
            let balance: i32 = accounts.iter().filter_map(|account| account.balance.get(&key)).sum();
            let there = map.get(hash(key), &key, &guard).is_some();
            assert_eq!(balance, i32::from(there), "key {key}");
        }
    }
    for item in map.drain() {
        // SAFETY: drained, so ours alone; every item is from a box.
        drop(unsafe { Box::from_raw(item.as_ptr()) });
    }
    drop(map);
    assert_eq!(freed.load(Ordering::Relaxed), made, "every item is freed once");
}

#[test]
fn random_programs() {
    scenario("random_programs", || run(12));
}

#[test]
fn long_programs() {
    scenario("long_programs", || run(80));
}
