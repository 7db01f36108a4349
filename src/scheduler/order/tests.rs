//! With one thread the samples are exact: they are held against a plain model of the fleet, over random histories.

use std::collections::BTreeMap;

use super::*;
use crate::{
    Capacity, Entry, Lease, Scheduler, Strategy, delay::ONE_IN, lookup::Keyed, scheduler::Telemetry,
    sync::SplitMix64,
};

type Item = Entry<u32, u32, ()>;
type Fleet = Scheduler<Item>;

#[derive(Debug)]
struct One {
    rank: u32,
    shard: usize,
    out: u32,
    excluded: bool,
}

#[derive(Debug)]
struct ModelTag {
    key: u32,
    rank: u32,
    passed: u64,
    age: u32,
    /// Something else than a lending of the best has happened to it.
    disturbed: bool,
    /// It was removed; another one may have the key.
    gone: bool,
}

/// Where each member lives, by key.
fn homes(fleet: &Fleet) -> BTreeMap<u32, usize> {
    let core = &*fleet.core;
    let guard = core.pin();
    let members = core.map.iter(&guard).filter(|node| core.visible(node).is_some());
    members.map(|node| (*node.key(), node.home() as usize)).collect()
}

/// What the telemetry has to say.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    errors: (u64, u64),
    delays: (u64, u64),
    discarded: u64,
    given_up: u64,
}

impl Counts {
    fn of(telemetry: &Telemetry) -> Self {
        Counts {
            errors: (telemetry.rank_errors.count(), telemetry.rank_errors.sum()),
            delays: (telemetry.delays.count(), telemetry.delays.sum()),
            discarded: telemetry.delays_discarded,
            given_up: telemetry.delays_given_up,
        }
    }
}

/// The fleet, as anybody would write it down.
struct Model {
    capacity: u32,
    fleet: BTreeMap<u32, One>,
    every: u64,
    /// Lendings of each shard, and the number from which on the next is a sample.
    lendings: Vec<(u64, u64)>,
    /// Samples of each shard.
    samples: Vec<u32>,
    tag: Option<ModelTag>,
    counts: Counts,
}

impl Model {
    fn new(shards: u64, every: u64, capacity: u32) -> Self {
        let lendings = (1..=shards).map(|number| (0, (every - 1) * number / shards)).collect();
        let samples = vec![0; shards as usize];
        Model {
            capacity,
            fleet: BTreeMap::new(),
            every,
            lendings,
            samples,
            tag: None,
            counts: Counts::default(),
        }
    }

    fn is_eligible(&self, one: &One) -> bool {
        !one.excluded && one.out < self.capacity
    }

    fn disturb(&mut self, key: u32) {
        if let Some(tag) = &mut self.tag
            && tag.key == key
        {
            tag.disturbed = true;
        }
    }

    /// Of one that was named.
    fn named(&mut self, key: u32) {
        let one = self.fleet.get_mut(&key).expect("a member");
        one.out += 1;
        self.lendings[one.shard].0 += 1;
        self.disturb(key);
    }

    /// Of the best. Answers whether its return begins a sample.
    fn lent(&mut self, key: u32) -> bool {
        let one = &self.fleet[&key];
        let (rank, shard) = (one.rank, one.shard);
        let better = self.fleet.values().filter(|other| self.is_eligible(other) && other.rank < rank).count();
        self.fleet.get_mut(&key).expect("a member").out += 1;
        match &mut self.tag {
            Some(tag) if tag.key == key && !tag.gone && tag.rank != rank => tag.disturbed = true,
            Some(tag) if tag.key == key && !tag.gone => {
                let tag = self.tag.take().expect("it is there");
                if tag.disturbed {
                    self.counts.discarded += 1;
                } else {
                    self.counts.delays.0 += 1;
                    self.counts.delays.1 += tag.passed;
                }
            }
            Some(tag) => tag.passed += u64::from(rank > tag.rank),
            None => {}
        }
        let (lendings, due) = &mut self.lendings[shard];
        *lendings += 1;
        if *lendings <= *due {
            return false;
        }
        *due = *lendings - 1 + Watch::interval(self.every, *lendings);
        self.counts.errors.0 += 1;
        self.counts.errors.1 += better as u64;
        if let Some(tag) = &mut self.tag {
            tag.age += 1;
            if tag.disturbed || tag.gone {
                self.counts.discarded += 1;
                self.tag = None;
            } else if tag.age > crate::delay::PATIENCE {
                self.counts.given_up += 1;
                self.tag = None;
            }
        }
        self.samples[shard] += 1;
        self.tag.is_none() && self.samples[shard] % ONE_IN == 1
    }

    fn returned(&mut self, key: u32, is_marked: bool) {
        let Some(one) = self.fleet.get_mut(&key) else { return };
        one.out -= 1;
        let rank = one.rank;
        self.disturb(key);
        if is_marked && self.tag.is_none() && self.is_eligible(&self.fleet[&key]) {
            self.tag = Some(ModelTag { key, rank, passed: 0, age: 0, disturbed: false, gone: false });
        }
    }
}

/// A lease, of which member of its key, and whether its return begins a sample.
struct Out<'f> {
    lease: Lease<'f, Item>,
    membership: u64,
    is_marked: bool,
}

/// A random history. `others`: not only of the best being lent and returned.
fn history(shards: usize, every: u32, capacity: u32, seed: u64, others: bool) -> Counts {
    let strategy = match seed % 3 {
        0 => Strategy::BestOf { choices: 1 },
        1 => Strategy::default(),
        _ => Strategy::RoundRobin,
    };
    let builder = Fleet::builder().shards(shards).strategy(strategy).seed(seed).measure_order(every);
    let fleet = builder.build().unwrap();
    let mut model = Model::new(shards as u64, every.into(), capacity);
    let mut random = SplitMix64::new(SplitMix64::mix(seed));
    let limit = Capacity::Limited(capacity);
    let mut memberships = BTreeMap::new();
    let mut joined = 0;
    let mut insert = |model: &mut Model, memberships: &mut BTreeMap<u32, u64>, key: u32, rank: u32| {
        fleet.insert(Item::new(key, rank, ()).with_capacity(limit)).unwrap();
        let shard = homes(&fleet)[&key];
        model.fleet.insert(key, One { rank, shard, out: 0, excluded: false });
        joined += 1;
        memberships.insert(key, joined);
    };
    const KEYS: u32 = 80;
    for key in 0..KEYS {
        insert(&mut model, &mut memberships, key, random.below(60));
    }
    let mut leases: Vec<Out<'_>> = Vec::new();
    for step in 0..4_000 {
        let key = random.below(KEYS);
        match random.below(if others { 40 } else { 24 }) {
            0..12 => {
                if let Ok(lease) = fleet.acquire() {
                    let is_marked = model.lent(*lease.key());
                    let membership = memberships[lease.key()];
                    leases.push(Out { lease, membership, is_marked });
                }
            }
            12..24 => {
                if leases.len() > 20 || (!leases.is_empty() && random.below(2) == 0) {
                    let out = leases.swap_remove(random.below(leases.len() as u32) as usize);
                    let key = *out.lease.key();
                    drop(out.lease);
                    // Of one that is no member any more nothing comes back.
                    if memberships.get(&key) == Some(&out.membership) {
                        model.returned(key, out.is_marked);
                    }
                }
            }
            24..28 => {
                if let Ok(lease) = fleet.acquire_key(&key) {
                    model.named(key);
                    leases.push(Out { lease, membership: memberships[&key], is_marked: false });
                }
            }
            28..31 => {
                if fleet.exclude(&key) == Ok(true) {
                    model.fleet.get_mut(&key).unwrap().excluded = true;
                    model.disturb(key);
                }
            }
            31..35 => {
                if fleet.include(&key) == Ok(true) {
                    model.fleet.get_mut(&key).unwrap().excluded = false;
                    model.disturb(key);
                }
            }
            35..38 => {
                let rank = random.below(60);
                if fleet.update(Item::new(key, rank, ()).with_capacity(limit)).is_ok() {
                    model.fleet.get_mut(&key).unwrap().rank = rank;
                    model.disturb(key);
                }
            }
            38 => {
                if fleet.remove(&key).is_ok() {
                    model.fleet.remove(&key);
                    memberships.remove(&key);
                    if let Some(tag) = model.tag.as_mut().filter(|tag| tag.key == key) {
                        tag.gone = true;
                    }
                }
            }
            _ => {
                if !model.fleet.contains_key(&key) {
                    insert(&mut model, &mut memberships, key, random.below(60));
                }
            }
        }
        if step % 16 == 0 {
            let told = Counts::of(&fleet.telemetry().unwrap());
            assert_eq!(told, model.counts, "step {step}: {:?}", model.tag);
        }
    }
    let telemetry = fleet.telemetry().unwrap();
    assert_eq!((Counts::of(&telemetry), telemetry.rank_errors_saturated), (model.counts, 0));
    Counts::of(&telemetry)
}

#[test]
fn samples_are_exact_with_one_thread() {
    let mut all = Counts::default();
    for shards in [1, 2, 5, 16] {
        for every in [1, 3, 16] {
            for capacity in [1, 3] {
                for (seed, others) in [(0, false), (1, false), (2, false), (3, true), (4, true), (5, true)] {
                    let counts = history(shards, every, capacity, seed, others);
                    if shards == 1 && !others && capacity == 1 {
                        assert_eq!(
                            (counts.errors.1, counts.delays.1),
                            (0, 0),
                            "one shard has the exact order"
                        );
                    }
                    all.errors.1 += counts.errors.1;
                    all.delays.0 += counts.delays.0;
                    all.delays.1 += counts.delays.1;
                    all.discarded += counts.discarded;
                    all.given_up += counts.given_up;
                }
            }
        }
    }
    // Every kind of end was met.
    assert!(all.errors.1 > 10_000 && all.delays.0 > 1_000 && all.delays.1 > 1_000, "{all:?}");
    assert!(all.discarded > 100 && all.given_up > 10, "{all:?}");
}

/// All of the best are in the shard that is never asked.
#[test]
fn what_is_counted_has_a_bound() {
    let builder = Fleet::builder().shards(2).strategy(Strategy::Weighted(vec![0, 1])).measure_order(1);
    let fleet = builder.build().unwrap();
    for key in 0..3_000 {
        fleet.insert(Item::new(key, key, ())).unwrap();
    }
    let leases: Vec<_> = (0..1_000).map(|_| fleet.acquire().unwrap()).collect();
    let telemetry = fleet.telemetry().unwrap();
    let homes = homes(&fleet);
    let others = |rank| homes.range(..rank).filter(|&(_, &home)| home == 0).count() as u64;
    let exact: Vec<u64> = leases.iter().map(|lease| others(lease.priority)).collect();
    let most = MOST_OF_A_SHARD as u64;
    assert_eq!(telemetry.rank_errors.sum(), exact.iter().map(|&count| count.min(most)).sum::<u64>());
    assert_eq!(telemetry.rank_errors_saturated, exact.iter().filter(|&&count| count >= most).count() as u64);
    assert!(telemetry.rank_errors_saturated > 100);
}

/// A batch that is visible and not absorbed is there to be had.
#[test]
fn members_of_a_batch_count_at_once() {
    let builder = Fleet::builder().shards(2).strategy(Strategy::Weighted(vec![0, 1])).measure_order(1);
    let fleet = builder.build().unwrap();
    fleet.insert_batch((0..400).map(|key| Item::new(key, key, ())).collect()).unwrap();
    let lease = fleet.acquire().unwrap();
    let better = (0..lease.priority).count() as u64;
    assert_eq!(fleet.telemetry().unwrap().rank_errors.sum(), better);
}

#[test]
fn samples_are_in_no_step_with_anything() {
    for every in [1, 2, 3, 10, 1_024] {
        let intervals: Vec<u64> = (0..10_000).map(|lendings| Watch::interval(every, lendings)).collect();
        let mean = intervals.iter().sum::<u64>() as f64 / 1e4;
        assert!((mean / every as f64 - 1.0).abs() < 0.02, "{every}: {mean}");
        let bounds = every.div_ceil(2)..=every + every / 2;
        assert!(intervals.iter().all(|interval| bounds.contains(interval) && *interval > 0), "{every}");
    }
}

#[test]
fn as_many_are_sampled_as_were_asked_for() {
    for capacity in [Capacity::Exclusive, Capacity::Limited(3)] {
        for (every, expected) in [(0, 0), (1, 1_000), (10, 100), (7, 142)] {
            let fleet = Fleet::builder().shards(1).measure_order(every).build().unwrap();
            (0..64).for_each(|key| fleet.insert(Item::new(key, key, ()).with_capacity(capacity)).unwrap());
            (0..1_000).for_each(|_| drop(fleet.acquire().unwrap()));
            let telemetry = fleet.telemetry().unwrap();
            let count = telemetry.rank_errors.count();
            let most_off = if every > 1 { expected / 8 } else { 0 };
            assert!(count.abs_diff(expected) <= most_off, "{capacity:?} {every}: {count}");
            assert_eq!((telemetry.holds.count(), telemetry.waits.count()), (0, 0));
        }
    }
}

/// Whoever is tagged and never lent is given up, and the next one gets a turn.
#[test]
fn a_tag_does_not_stay_for_ever() {
    let fleet = Fleet::builder().shards(1).measure_order(1).build().unwrap();
    for key in 0..=ONE_IN {
        fleet.insert(Item::new(key, key, ())).unwrap();
    }
    // The last of these is the second that may begin a tag, and the worst. It comes back first, and is tagged; then the others, which are better.
    // Nobody has a use for it any more.
    let mut all: Vec<_> = (0..=ONE_IN).map(|_| fleet.acquire().unwrap()).collect();
    drop(all.pop());
    drop(all);
    (0..1_000).for_each(|_| drop(fleet.acquire().unwrap()));
    let telemetry = fleet.telemetry().unwrap();
    assert_eq!((telemetry.delays_given_up, telemetry.delays_discarded), (1, 0));
    // Those that may begin one after that do, and the next lending ends it.
    let (one_in, given_up) = (u64::from(ONE_IN), u64::from(ONE_IN + 1 + crate::delay::PATIENCE + 1));
    let begins = |sample: &u64| sample % one_in == 1;
    assert_eq!(telemetry.delays.count(), (given_up..1_000 + one_in + 1).filter(begins).count() as u64);
    assert_eq!(telemetry.delays.sum(), 0);
}
