//! The lookup map against `HashMap`: growth, collisions, keys that come again, and items that are read after they
//! have been removed, under both reclaimers.
//!
//! Input: one byte for the reclaimer and the spread of hashes, one for the capacity, three for each operation. An operation
//! may pin and run some of the following ones under its guard.
#![cfg_attr(fuzzing, no_main)]
#![allow(unsafe_code)]

use std::{
    collections::HashMap,
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use leasehold::{
    SplitMix64,
    internals::lookup::{
        Guard, Keyed, Link, Map, Occupied, Reclaim,
        reclaim::{Epoch, Seize},
    },
};
use leasehold_fuzz::{Bytes, target};

/// How hashes are spread.
#[derive(Clone, Copy)]
enum Spread {
    Good,
    /// Good in the leading bits only: fragments collide.
    Leading,
    Identity,
    /// Four hashes for all keys.
    Crowded,
    /// Fifteen bits: fragments tell items apart, homes do not.
    Fragments,
}

impl Spread {
    fn hash(self, key: u32) -> u64 {
        match self {
            Spread::Good => SplitMix64::mix(u64::from(key)),
            Spread::Leading => SplitMix64::mix(u64::from(key)) << 32,
            Spread::Identity => u64::from(key),
            Spread::Crowded => SplitMix64::mix(u64::from(key % 4)),
            Spread::Fragments => SplitMix64::mix(u64::from(key)) >> 49,
        }
    }
}

struct Item {
    key: u32,
    hash: u64,
    version: u64,
    alive: Arc<AtomicUsize>,
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
        // Whoever still reads it, reads this.
        (self.key, self.version) = (u32::MAX, u64::MAX);
        self.alive.fetch_sub(1, SeqCst);
    }
}

fn retire(guard: &impl Guard, item: NonNull<Item>) {
    unsafe fn reclaim(item: *mut Item) {
        // SAFETY: from a box, run once.
        drop(unsafe { Box::from_raw(item) });
    }
    // SAFETY: `remove_item` has returned it, to us alone.
    unsafe { guard.retire(item.as_ptr(), reclaim) }
}

/// Guards that are held one inside the other.
const DEPTH: u32 = 3;

struct Checked<C: Reclaim> {
    map: Map<Item, C>,
    spread: Spread,
    /// Key to version.
    model: HashMap<u32, u64>,
    versions: u64,
    alive: Arc<AtomicUsize>,
}

impl<C: Reclaim> Checked<C> {
    fn insert(&mut self, key: u32) {
        self.versions += 1;
        let version = self.versions;
        self.alive.fetch_add(1, SeqCst);
        let (hash, alive) = (self.spread.hash(key), Arc::clone(&self.alive));
        let item = Box::new(Item { key, hash, version, alive, link: Link::new() });
        let guard = self.map.pin();
        match (self.map.insert(item, &guard), self.model.get(&key)) {
            (Ok(inserted), None) => {
                assert_eq!((inserted.key, inserted.version), (key, version));
                self.model.insert(key, version);
            }
            (Err(Occupied { existing, item }), Some(&known)) => {
                assert_eq!((existing.key, existing.version), (key, known), "the one that is there");
                assert_eq!((item.key, item.version), (key, version), "the rejected one comes back");
            }
            (result, known) => panic!("{key}: inserted {}, known {known:?}", result.is_ok()),
        }
    }

    fn remove(&mut self, key: u32) {
        let guard = self.map.pin();
        let found = self.map.get(self.spread.hash(key), &key, &guard);
        let known = self.model.remove(&key);
        assert_eq!(found.map(|item| item.version), known);
        if let Some(item) = found {
            let removed = self.map.remove_item(item, &guard).expect("nobody else removes");
            assert!(std::ptr::eq(removed.as_ptr(), item), "the pointer with which it came");
            assert!(self.map.remove_item(item, &guard).is_none(), "removed once");
            retire(&guard, removed);
            assert!(self.map.get(self.spread.hash(key), &key, &guard).is_none());
            assert_eq!((item.key, Some(item.version)), (key, known), "readable under the guard");
        }
    }

    fn check(&self) {
        let guard = self.map.pin();
        self.map.check_invariants(&guard);
        let mut met = HashMap::new();
        for item in self.map.iter(&guard) {
            assert!(met.insert(item.key, item.version).is_none(), "{} is met twice", item.key);
        }
        assert_eq!(met, self.model);
        let statistics = self.map.statistics(&guard);
        assert_eq!(statistics.items, self.model.len());
        assert!(statistics.buckets.is_power_of_two());
    }

    fn run(&mut self, bytes: &mut Bytes<'_>, mut left: usize, depth: u32) {
        while left > 0 && !bytes.is_empty() {
            left -= 1;
            let [kind, a, b] = bytes.array();
            let key = u32::from(a % 32);
            match kind % 16 {
                0..=3 => self.insert(key),
                4..=6 => self.remove(key),
                7 => {
                    let guard = self.map.pin();
                    let found = self.map.get(self.spread.hash(key), &key, &guard);
                    assert_eq!(found.map(|item| item.version), self.model.get(&key).copied());
                }
                // A crowd of other keys comes, or goes.
                8 => (0..u32::from(b)).for_each(|i| self.insert(256 * (1 + u32::from(a % 4)) + i)),
                9 => (0..u32::from(b)).for_each(|i| self.remove(256 * (1 + u32::from(a % 4)) + i)),
                // The same key again and again: nothing is built up.
                10 => {
                    for _ in 0..b % 64 {
                        self.remove(key);
                        self.insert(key);
                    }
                }
                11 if b % 2 == 0 => self.map.finish_growth(&self.map.pin()),
                11 => self.map.reserve(8 * usize::from(a), &self.map.pin()),
                12 if depth < DEPTH => self.under_a_guard(key, bytes, usize::from(b), depth),
                13 => {
                    // Keys that never are.
                    let guard = self.map.pin();
                    let absent = 100_000 + key;
                    assert!(self.map.get(self.spread.hash(absent), &absent, &guard).is_none());
                }
                14 if depth == 0 => self.drain(),
                _ => self.check(),
            }
        }
    }

    /// What is read through a guard stays as it was, whatever is done meanwhile. An iteration that was begun before goes on.
    fn under_a_guard(&mut self, key: u32, bytes: &mut Bytes<'_>, left: usize, depth: u32) {
        let map: *const Map<Item, C> = &raw const self.map;
        // SAFETY: a map is changed through shared references, and only replaced as a whole by `drain`, which does not run
        // at this depth. It is neither moved nor dropped before `run` returns.
        let map = unsafe { &*map };
        let guard = map.pin();
        let item = map.get(self.spread.hash(key), &key, &guard);
        let known = self.model.get(&key).copied();
        let before = self.model.clone();
        let mut iteration = map.iter(&guard);
        let mut met: HashMap<u32, u64> =
            iteration.by_ref().take(left % 8).map(|item| (item.key, item.version)).collect();
        self.run(bytes, left, depth + 1);
        assert_eq!(item.map(|item| (item.key, item.version)), known.map(|version| (key, version)));
        for item in iteration {
            assert!(met.insert(item.key, item.version).is_none_or(|earlier| earlier != item.version));
        }
        for (key, version) in before {
            if self.model.get(&key) == Some(&version) {
                assert_eq!(met.get(&key), Some(&version), "it was there all the time");
            }
        }
    }

    fn drain(&mut self) {
        let items = self.map.drain();
        assert_eq!(items.len(), self.model.len());
        for item in items {
            // SAFETY: drained, so ours alone; every item is from a box, and no guard is live.
            let item = unsafe { Box::from_raw(item.as_ptr()) };
            assert_eq!(self.model.remove(&item.key), Some(item.version));
        }
        self.check();
    }
}

fn play<C: Reclaim>(spread: Spread, bytes: &mut Bytes<'_>) {
    let alive = Arc::new(AtomicUsize::new(0));
    let capacity = usize::from(bytes.u8());
    let mut checked = Checked::<C> {
        map: Map::with_capacity(capacity),
        spread,
        model: HashMap::new(),
        versions: 0,
        alive: Arc::clone(&alive),
    };
    checked.run(bytes, usize::MAX, 0);
    checked.check();
    checked.drain();
    drop(checked);
    // Seize has freed all with the map; epochs need some turns.
    for _ in 0..10_000 {
        if alive.load(SeqCst) == 0 {
            return;
        }
        crossbeam_epoch::pin().flush();
    }
    panic!("{} items were not freed", alive.load(SeqCst));
}

fn run(data: &[u8]) {
    let mut bytes = Bytes(data);
    let first = bytes.u8();
    let spread = [Spread::Good, Spread::Leading, Spread::Identity, Spread::Crowded, Spread::Fragments]
        [usize::from(first >> 1) % 5];
    match first % 2 {
        0 => play::<Epoch>(spread, &mut bytes),
        _ => play::<Seize>(spread, &mut bytes),
    }
}

target!(run);
