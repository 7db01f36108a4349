//! Jump hashing over slots, alone and as ids meet it: with `Affinity::Resource` an id finds its resource again.
//!
//! Alone: against a search from the front, and for its promise that a further slot moves hashes only to itself. In a
//! scheduler: an id is lent what its three choices lead to, in slots of which the one given back last is taken first; and as
//! promised, an id whose resource is still eligible is lent that one, or one that has become eligible meanwhile.
//!
//! Input: hashes and numbers of slots; then one byte for the shards, two for each operation.
#![cfg_attr(fuzzing, no_main)]

use std::collections::{BTreeMap, BTreeSet};

use leasehold::{
    Affinity, Capacity, Lease, Resource, Scheduler, SplitMix64, affinity_hash, internals::jump::jump,
};
use leasehold_fuzz::{Bytes, target};

/// The slot that takes `hash` from `slot` when the table grows, if it is below `slots`: the first one after it for which a
/// fair draw of 32 bits says so. As the paper has it: slot b is left for the first j with u < (b + 1) / j.
fn leaves_for(slot: u64, draw: u64, slots: u64) -> Option<u64> {
    // The largest j with j * draw <= (b + 1) * 2^32, by bisection instead of division.
    let holds = |j: u64| u128::from(j) * u128::from(draw) <= u128::from(slot + 1) << 32;
    if !holds(slots) {
        let (mut low, mut high) = (slot + 1, slots);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if holds(middle) { low = middle } else { high = middle }
        }
        return Some(low);
    }
    None
}

fn slot_of(hash: u64, slots: u32) -> u32 {
    let mut random = SplitMix64::new(hash);
    let mut slot = 0;
    loop {
        let draw = (random.next_u64() >> 32) + 1;
        match leaves_for(slot, draw, slots.into()) {
            Some(next) => slot = next,
            None => return slot as u32,
        }
    }
}

fn check_jump(hash: u64, slots: u32) {
    if slots == 0 {
        assert_eq!(jump(hash, 0), 0);
        return;
    }
    let slot = jump(hash, slots);
    assert!(slot < slots);
    assert_eq!(slot, slot_of(hash, slots));
    if let Some(more) = slots.checked_add(1) {
        let after = jump(hash, more);
        assert!(after == slot || after == slots, "{slot} moved to {after} of {more}");
    }
}

/// Ranked by its key: who is the best is known.
struct Seat {
    key: u8,
    units: u32,
    home: Option<usize>,
}

impl Resource for Seat {
    type Key = u8;
    type Priority = u8;

    fn key(&self) -> u8 {
        self.key
    }

    fn priority(&self, _in_flight: u32) -> u8 {
        self.key
    }

    fn capacity(&self) -> Capacity {
        Capacity::Limited(self.units)
    }

    fn home(&self, shards: usize) -> Option<usize> {
        self.home.map(|home| home % shards)
    }
}

/// What is known of a member.
struct Known {
    units: u32,
    out: u32,
    excluded: bool,
}

impl Known {
    fn eligible(&self) -> bool {
        !self.excluded && self.out < self.units
    }
}

const KEYS: u8 = 48;
const IDS: u8 = 24;

/// The last answer for an id.
struct Last {
    key: u8,
    /// Who has become eligible since.
    since: BTreeSet<u8>,
    /// Who has come since. The id may be a newcomer's from now on, and find it busy.
    newcomers: BTreeSet<u8>,
    /// One of these has gone again, or the last answer itself.
    gone: bool,
}

/// The slots of one shard.
#[derive(Clone, Default)]
struct Slots {
    keys: Vec<Option<u8>>,
    free: Vec<usize>,
}

impl Slots {
    fn take(&mut self, key: u8) {
        match self.free.pop() {
            Some(slot) => self.keys[slot] = Some(key),
            None => self.keys.push(Some(key)),
        }
    }

    fn give_back(&mut self, key: u8) {
        let Some(slot) = self.keys.iter().position(|&seated| seated == Some(key)) else { return };
        self.keys[slot] = None;
        self.free.push(slot);
    }
}

struct Checked<'s> {
    fleet: &'s Scheduler<Seat>,
    known: BTreeMap<u8, Known>,
    last: BTreeMap<u8, Last>,
    slots: Vec<Slots>,
    held: Vec<Lease<'s, Seat>>,
}

impl<'s> Checked<'s> {
    fn change(&mut self, key: u8, change: impl FnOnce(&mut Known)) {
        let Some(known) = self.known.get_mut(&key) else { return };
        let before = known.eligible();
        change(known);
        if !before && known.eligible() {
            self.became_eligible(key);
        }
    }

    fn became_eligible(&mut self, key: u8) {
        for last in self.last.values_mut() {
            last.since.insert(key);
        }
    }

    fn came(&mut self, key: u8, units: u32) {
        self.known.insert(key, Known { units, out: 0, excluded: false });
        self.became_eligible(key);
        for last in self.last.values_mut() {
            last.newcomers.insert(key);
        }
        let snapshot = self.fleet.snapshot();
        let state = snapshot.iter().find(|state| state.key == key).expect("inserted");
        self.slots[state.shard].take(key);
    }

    fn eligible(&self, key: u8) -> bool {
        self.known.get(&key).is_some_and(Known::eligible)
    }

    /// What an id must be lent in this shard: one of its own choices, or the best.
    fn choice(&self, id: u8, shard: usize) -> Option<u8> {
        let keys = &self.slots[shard].keys;
        let mut random = SplitMix64::new(affinity_hash(&id));
        let mut own = (0..3).filter_map(|_| keys[slot_of(random.next_u64(), keys.len() as u32) as usize]);
        own.find(|&key| self.eligible(key))
            .or_else(|| keys.iter().flatten().copied().filter(|&key| self.eligible(key)).min())
    }

    fn insert(&mut self, key: u8, b: u8) {
        let units = 1 + u32::from(b % 3);
        let home = (b & 64 != 0).then_some(usize::from(b >> 4 & 3));
        let inserted = self.fleet.insert(Seat { key, units, home });
        assert_eq!(inserted.is_ok(), !self.known.contains_key(&key));
        if inserted.is_ok() {
            self.came(key, units);
        }
    }

    fn acquire(&mut self, id: u8, keep: bool) {
        match self.fleet.acquire_by_affinity(&id) {
            Ok(lease) => {
                let key = *lease.key();
                assert!(self.known[&key].eligible(), "{key} was not eligible");
                if let Some(last) = self.last.get(&id)
                    && self.eligible(last.key)
                    && !last.gone
                    && last.newcomers.iter().all(|&newcomer| self.eligible(newcomer))
                {
                    let moved = key != last.key;
                    assert!(!moved || last.since.contains(&key), "id {id} went from {} to {key}", last.key);
                }
                assert_eq!(Some(key), self.choice(id, lease.shard()), "not the choice of id {id}");
                if keep {
                    self.change(key, |known| known.out += 1);
                    self.held.push(lease);
                }
                // Lent and returned at once, it was eligible before and is.
                let (since, newcomers) = (BTreeSet::new(), BTreeSet::new());
                self.last.insert(id, Last { key, since, newcomers, gone: false });
            }
            Err(_) => assert!(!self.known.values().any(Known::eligible), "there was one"),
        }
    }

    fn step(&mut self, [kind, b]: [u8; 2]) {
        let key = b % KEYS;
        match kind % 16 {
            0..=2 => self.insert(key, kind.rotate_left(3) ^ b),
            3 => {
                (0..8).for_each(|i| self.insert((key + i) % KEYS, kind.wrapping_add(b).rotate_left(i.into())))
            }
            4 => {
                assert_eq!(self.fleet.remove(&key).is_ok(), self.known.remove(&key).is_some());
                // The slot goes back with the last lease.
                self.held.retain(|lease| *lease.key() != key);
                self.slots.iter_mut().for_each(|slots| slots.give_back(key));
                for last in self.last.values_mut() {
                    last.gone |= last.key == key || last.newcomers.contains(&key);
                }
            }
            5 => {
                assert_eq!(self.fleet.exclude(&key).is_ok(), self.known.contains_key(&key));
                self.change(key, |known| known.excluded = true);
            }
            6 => {
                assert_eq!(self.fleet.include(&key).is_ok(), self.known.contains_key(&key));
                self.change(key, |known| known.excluded = false);
            }
            7..=11 => self.acquire(b % IDS, kind >= 128),
            12 => {
                if !self.held.is_empty() {
                    let lease = self.held.swap_remove(usize::from(b) % self.held.len());
                    let key = *lease.key();
                    drop(lease);
                    self.change(key, |known| known.out -= 1);
                }
            }
            13 => (0..IDS).for_each(|id| self.acquire(id, false)),
            14 => {
                let keys: Vec<u8> = (0..4).map(|i| (key + i * 7) % KEYS).collect();
                let seats = keys.iter().map(|&key| Seat { key, units: 1, home: None }).collect();
                let inserted = self.fleet.insert_batch(seats);
                assert_eq!(inserted.is_ok(), !keys.iter().any(|key| self.known.contains_key(key)));
                if inserted.is_ok() {
                    keys.into_iter().for_each(|key| self.came(key, 1));
                }
            }
            _ => {
                if let Ok(lease) = self.fleet.acquire_key(&key) {
                    self.change(key, |known| known.out += 1);
                    self.held.push(lease);
                }
            }
        }
    }
}

fn run(data: &[u8]) {
    let mut bytes = Bytes(data);
    for _ in 0..4 {
        let hash = bytes.u64();
        let slots = bytes.u32() >> (bytes.u8() % 32);
        check_jump(hash, slots);
        check_jump(affinity_hash(&hash), slots % 100);
    }
    let shards = 1 + usize::from(bytes.u8() % 4);
    let fleet = Scheduler::<Seat>::builder().shards(shards).affinity(Affinity::Resource).virtual_nodes(8);
    let fleet = fleet.build().expect("in range");
    let mut checked = Checked {
        fleet: &fleet,
        known: BTreeMap::new(),
        last: BTreeMap::new(),
        slots: vec![Slots::default(); shards],
        held: Vec::new(),
    };
    while !bytes.is_empty() {
        checked.step(bytes.array());
    }
    let tally = fleet.check_invariants();
    assert_eq!(tally.members, checked.known.len() as u64);
    assert_eq!(tally.in_flight, checked.held.len() as u64);
}

target!(run);
