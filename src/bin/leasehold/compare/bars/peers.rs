//! Other people's maps, with the hasher of ours and keys and values of the same size. Where items come and go, each has room made ahead.

use std::{hash::BuildHasher, hint::black_box, ptr::NonNull};

use dashmap::DashMap;
use leasehold::{
    DefaultHashBuilder, Entry, Strategy,
    internals::lookup::{Guard, Keyed, Link, Map},
};

pub use super::observed::{
    against_unobserved as observed_against_unobserved, measured_against_unobserved,
    sampled_against_unsampled, sampled_in_many_shards, shared_strings_against_unobserved,
    strings_against_unobserved,
};
use super::{Measured, Setting};
use crate::compare::{
    cases::{Asset, Operation, side},
    measure::{BATCH, Side, Turn, Worker, alternate, run},
};

type Index = scc::HashIndex<u64, Asset, DefaultHashBuilder>;
type Papaya = papaya::HashMap<u64, Asset, DefaultHashBuilder>;

fn asset(key: u64) -> Asset {
    Entry::new(key, key, key)
}

fn keys(setting: &Setting) -> std::ops::Range<u64> {
    0..u64::from(setting.resources)
}

fn capacity(setting: &Setting) -> usize {
    setting.resources as usize
}

fn hasher() -> DefaultHashBuilder {
    DefaultHashBuilder::default()
}

/// What the scheduler answers by key, from the value of its resource.
pub fn get_against_index(setting: &Setting) -> Measured {
    let scheduler = setting.scheduler(Strategy::default());
    let index = Index::default();
    for key in keys(setting) {
        assert!(index.insert_sync(key, asset(key)).is_ok(), "a new key");
    }
    let peek = |worker: &mut Worker| {
        for _ in 0..BATCH {
            black_box(index.peek_with(&worker.key(), |_, asset| asset.value).expect("all keys are there"));
        }
    };
    Measured::Ratio(alternate(&setting.plan(), &side(Operation::Get, &scheduler), &peek))
}

pub fn get_against_papaya(setting: &Setting) -> Measured {
    let scheduler = setting.scheduler(Strategy::default());
    let map = Papaya::default();
    for key in keys(setting) {
        assert!(map.pin().insert(key, asset(key)).is_none(), "a new key");
    }
    let get = |worker: &mut Worker| {
        for _ in 0..BATCH {
            black_box(map.pin().get(&worker.key()).expect("all keys are there").value);
        }
    };
    Measured::Ratio(alternate(&setting.plan(), &side(Operation::Get, &scheduler), &get))
}

pub fn churn_against_dashmap(setting: &Setting) -> Measured {
    churn(setting, &[&dashmap_of_values(setting)])
}

pub fn churn_against_the_better(setting: &Setting) -> Measured {
    let map = scc::HashMap::<u64, u64, _>::with_capacity_and_hasher(capacity(setting), hasher());
    for key in keys(setting) {
        assert!(map.insert_sync(key, key).is_ok(), "a new key");
    }
    let scc = |worker: &mut Worker| {
        for _ in 0..BATCH {
            let key = worker.fresh_key();
            assert!(map.insert_sync(key, key).is_ok(), "a new key");
            assert!(map.remove_sync(&key).is_some(), "it was inserted");
        }
    };
    churn(setting, &[&dashmap_of_values(setting), &scc])
}

/// Dashmap holding what ours holds: boxes that stay where they are, with key and value.
pub fn churn_against_boxes(setting: &Setting) -> Measured {
    let mut map = DashMap::<u64, Box<[u64; 2]>, _>::with_capacity_and_hasher(capacity(setting), hasher());
    map.extend(keys(setting).map(|key| (key, Box::new([key, key]))));
    let boxes = |worker: &mut Worker| {
        for _ in 0..BATCH {
            let key = worker.fresh_key();
            assert!(map.insert(key, Box::new([key, key])).is_none(), "a new key");
            assert!(map.remove(&key).is_some(), "it was inserted");
        }
    };
    churn(setting, &[&boxes])
}

fn dashmap_of_values(setting: &Setting) -> impl Fn(&mut Worker) + Sync {
    let mut map = DashMap::<u64, u64, _>::with_capacity_and_hasher(capacity(setting), hasher());
    map.extend(keys(setting).map(|key| (key, key)));
    move |worker| {
        for _ in 0..BATCH {
            let key = worker.fresh_key();
            assert!(map.insert(key, key).is_none(), "a new key");
            assert!(map.remove(&key).is_some(), "it was inserted");
        }
    }
}

/// An item of our map: it is allocated for each insertion and retired after its removal.
struct Item {
    key: u64,
    hash: u64,
    link: Link<Item>,
    /// Only written, as theirs is.
    _value: u64,
}

impl Item {
    fn boxed(key: u64, hasher: &DefaultHashBuilder) -> Box<Self> {
        Box::new(Item { key, hash: hasher.hash_one(key), link: Link::new(), _value: black_box(key) })
    }
}

impl Keyed for Item {
    type Key = u64;

    fn key(&self) -> &u64 {
        &self.key
    }

    fn hash(&self) -> u64 {
        self.hash
    }

    fn link(&self) -> &Link<Item> {
        &self.link
    }
}

/// Our lookup map, first, and the rivals.
fn churn(setting: &Setting, rivals: &[&Side<'_>]) -> Measured {
    let hasher = hasher();
    let mut map: Map<Item> = Map::with_capacity(capacity(setting));
    for key in keys(setting) {
        let item = Item::boxed(key, &hasher);
        assert!(map.insert(item, &map.pin()).is_ok(), "a new key");
    }
    let plan = setting.plan();
    let times = {
        let ours = |worker: &mut Worker| {
            for _ in 0..BATCH {
                let key = worker.fresh_key();
                let item = Item::boxed(key, &hasher);
                let guard = map.pin();
                let inserted = map.insert(item, &guard).expect("a new key");
                let removed = map.remove_item(inserted, &guard).expect("it was inserted");
                retire(removed, &guard);
            }
        };
        let turn = |side| Box::new(move |seed| run(&plan, seed, side)) as Turn<'_>;
        let mut turns = vec![turn(&ours as &Side<'_>)];
        turns.extend(rivals.iter().map(|&rival| turn(rival)));
        crate::compare::measure::take_turns(setting.pairs, &mut turns)
    };
    for item in map.drain() {
        free(item);
    }
    Measured::Ratio(times)
}

fn retire(item: NonNull<Item>, guard: &impl Guard) {
    // SAFETY: the one who removed the item retires it, once; it came out of a box.
    #[allow(unsafe_code)]
    unsafe {
        guard.retire(item.as_ptr(), |item| drop(Box::from_raw(item)));
    }
}

fn free(item: NonNull<Item>) {
    // SAFETY: the map has been emptied, no guard of it lives, and the item came out of a box.
    #[allow(unsafe_code)]
    drop(unsafe { Box::from_raw(item.as_ptr()) });
}
