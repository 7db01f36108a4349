//! C8 to C15: which one is chosen, by rank or by affinity.

use super::*;

/// Lives where it is told.
struct Settled {
    key: u32,
    home: usize,
}

impl Resource for Settled {
    type Key = u32;
    type Priority = u32;

    fn key(&self) -> u32 {
        self.key
    }

    fn priority(&self, _in_flight: u32) -> u32 {
        self.key
    }

    fn home(&self, _shards: usize) -> Option<usize> {
        Some(self.home)
    }
}

#[test]
fn c08_adaptive_prefers_what_is_available() {
    let fleet =
        Scheduler::<Settled>::builder().shards(2).strategy(Strategy::Adaptive).build().expect("in range");
    for key in 0..100 {
        fleet.insert(Settled { key, home: usize::from(key >= 10) }).expect("new");
    }
    // 10 against 90: as long as shard 1 has more to give, it gives.
    let leases: Vec<_> = (0..80).map(|_| fleet.acquire().expect("free")).collect();
    assert!(leases.iter().all(|lease| lease.shard() == 1), "the exhausted shard was preferred");
}

/// Lives where it is told, and is lent to several.
struct Common {
    key: u32,
    home: usize,
}

impl Resource for Common {
    type Key = u32;
    type Priority = u32;

    fn key(&self) -> u32 {
        self.key
    }

    fn priority(&self, in_flight: u32) -> u32 {
        in_flight
    }

    fn capacity(&self) -> Capacity {
        Capacity::Limited(8)
    }

    fn home(&self, _shards: usize) -> Option<usize> {
        Some(self.home)
    }
}

/// What is lent to several stays in its shard's heap while it is out: a count of what is in the heap, as the seed has it, never learns of
/// the load.
#[test]
fn c08_adaptive_evens_out_what_is_lent_to_several() {
    let load = |homes: &[usize], leases: u32| {
        let fleet =
            Scheduler::<Common>::builder().shards(2).strategy(Strategy::Adaptive).build().expect("in range");
        for (key, &home) in (0..).zip(homes) {
            fleet.insert(Common { key, home }).expect("new");
        }
        let leases: Vec<_> = (0..leases).map(|_| fleet.acquire().expect("free")).collect();
        [0, 1].map(|shard| leases.iter().filter(|lease| lease.shard() == shard).count())
    };
    // Ten of eight units each: 80 of 160 units are kept, half of them in each shard.
    assert_eq!(load(&[[0; 10], [1; 10]].concat(), 80), [40, 40]);
    // Five and fifteen: the smaller shard, which the seed prefers, is left alone until the other one has as little to give.
    let uneven = [vec![0; 5], vec![1; 15]].concat();
    assert_eq!(load(&uneven, 80), [0, 80]);
    assert_eq!(load(&uneven, 120), [20, 100]);
}

#[test]
fn c09_the_callers_of_an_empty_shard_spread() {
    let fleet =
        Scheduler::<Settled>::builder().shards(8).strategy(Strategy::RoundRobin).build().expect("in range");
    for key in 0..700 {
        fleet.insert(Settled { key, home: 1 + key as usize % 7 }).expect("new");
    }
    // Shard 0 has nothing. Ids that belong to it go on to different shards.
    let mut by_shard = [0u32; 8];
    for id in 0..4_000u32 {
        let shard = fleet.acquire_by_affinity(&id).expect("free").shard();
        by_shard[shard] += 1;
    }
    assert_eq!(by_shard[0], 0);
    let (least, most) = (by_shard[1..].iter().min().unwrap(), by_shard[1..].iter().max().unwrap());
    assert!(most < &(2 * least), "a neighbour inherited it all: {by_shard:?}");
}

#[test]
fn c10_none_means_that_there_was_none() {
    // Two resources, two threads that each take and return one: at every instant one is free for the third.
    for shards in [1, 2] {
        let fleet = filled(shards, 3);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..ROUNDS * 10 {
                        drop(fleet.acquire().expect("three resources, three threads"));
                    }
                });
            }
        });
    }
}

/// Ranked by its leases.
struct Replica(u32);

impl Resource for Replica {
    type Key = u32;
    type Priority = u32;

    fn key(&self) -> u32 {
        self.0
    }

    fn priority(&self, in_flight: u32) -> u32 {
        in_flight
    }

    fn capacity(&self) -> Capacity {
        Capacity::Limited(10)
    }
}

#[test]
fn c11_shared_use_is_counted_and_reorders() {
    let fleet = Scheduler::<Replica>::builder().shards(1).build().expect("in range");
    for key in 0..4 {
        fleet.insert(Replica(key)).expect("new");
    }
    let leases: Vec<_> = (0..8).map(|_| fleet.acquire().expect("free")).collect();
    assert!(fleet.snapshot().iter().all(|state| state.in_flight == 2), "the least loaded goes first");
    drop(leases);
    let all = fleet.acquire_many(40).expect("capacity");
    assert!(fleet.acquire().is_err(), "and there is an end to it");
    drop(all);
}

#[test]
fn c12_equals_take_turns() {
    for (ties, expected) in [(Ties::LeastRecent, [0, 1, 2, 0, 1, 2]), (Ties::MostRecent, [2, 2, 2, 2, 2, 2])]
    {
        let fleet = Fleet::builder().shards(1).ties(ties).build().expect("in range");
        for key in 0..3 {
            fleet.insert(Entry::new(key, 5, 0)).expect("new");
        }
        assert_eq!([(); 6].map(|()| *fleet.acquire().expect("free").key()), expected, "{ties:?}");
    }
}

#[test]
fn c13_the_best_of_all_shards_can_be_asked_for() {
    let fleet = filled(8, 100);
    let leases: Vec<_> = (0..100).map(|_| fleet.acquire().expect("free")).collect();
    assert!(leases.iter().map(|lease| *lease.key()).eq(0..100), "in the order of priority, over all shards");
}

#[test]
fn c14_weights_can_belong_to_resources_and_are_checked() {
    let weighted = |weights| {
        Scheduler::<Settled>::builder().shards(2).strategy(Strategy::Weighted(weights)).seed(3).build()
    };
    assert!(matches!(weighted(vec![1]), Err(BuildError::Strategy(_))), "a wrong length is an error");
    assert!(matches!(weighted(vec![0, 0]), Err(BuildError::Strategy(_))));
    let fleet = weighted(vec![1, 9]).expect("in range");
    for key in 0..2 {
        fleet.insert(Settled { key, home: key as usize }).expect("new");
    }
    let heavy = (0..1_000).filter(|_| *fleet.acquire().expect("free").key() == 1).count();
    assert!((850..950).contains(&heavy), "{heavy} of 1,000 for a weight of 9 in 10");
}

#[test]
fn c15_an_id_keeps_its_shard_and_only_the_ring_moves_it() {
    let fleet = filled(8, 800);
    let homes = |fleet: &Fleet| -> Vec<usize> {
        (0..1_000u32).map(|id| fleet.acquire_by_affinity(&id).expect("free").shard()).collect()
    };
    let before = homes(&fleet);
    assert_eq!(before, homes(&fleet));
    fleet.set_shard_weights(&[1, 1, 1, 0, 1, 1, 1, 1]).expect("in range");
    for (old, new) in before.iter().zip(homes(&fleet)) {
        assert!(*old == new || *old == 3, "an id moved from {old} to {new}, though only shard 3 was closed");
    }
}

#[test]
fn c15_an_id_keeps_its_resource_while_priorities_change_and_others_come_and_go() {
    let fleet = Fleet::builder().shards(4).affinity(Affinity::Resource).build().expect("in range");
    fleet.insert_batch((0..400).map(|key| Entry::new(key, u64::from(key), 0)).collect()).expect("new keys");
    let choice = |fleet: &Fleet| -> Vec<u32> {
        (0..500u32).map(|id| *fleet.acquire_by_affinity(&id).expect("free").key()).collect()
    };
    let before = choice(&fleet);
    for key in 0..400 {
        fleet.update(Entry::new(key, 1_000 - u64::from(key), 0)).expect("a member");
    }
    assert_eq!(before, choice(&fleet), "priorities do not move an id");
    fleet.insert_batch((1_000..1_040).map(|key| Entry::new(key, 0, 0)).collect()).expect("new keys");
    let after = choice(&fleet);
    let moved = before
        .iter()
        .zip(&after)
        .filter(|(old, new)| old != new)
        .inspect(|(_, new)| assert!(**new >= 1_000))
        .count();
    assert!((10..100).contains(&moved), "one in eleven moves, and only to a newcomer: {moved}");
    // Fails over while its resource is out, the same way each time, and comes back.
    let held = fleet.acquire_by_affinity(&7u32).expect("free");
    let second = *fleet.acquire_by_affinity(&7u32).expect("free").key();
    assert_ne!(second, *held.key());
    assert_eq!(second, *fleet.acquire_by_affinity(&7u32).expect("free").key());
    drop(held);
    assert_eq!(*fleet.acquire_by_affinity(&7u32).expect("free").key(), after[7]);
}

#[test]
fn c15_a_hot_id_is_bounded_by_its_resources_capacity() {
    let fleet = Fleet::builder().shards(1).affinity(Affinity::Resource).build().expect("in range");
    let limited = |key| Entry::new(key, 0, 0).with_capacity(Capacity::Limited(3));
    fleet.insert_batch((0..10).map(limited).collect()).expect("new keys");
    let leases: Vec<_> = (0..30).map(|_| fleet.acquire_by_affinity("hot").expect("free")).collect();
    for key in 0..10 {
        assert_eq!(leases.iter().filter(|lease| *lease.key() == key).count(), 3);
    }
    assert!(fleet.acquire_by_affinity("hot").is_err());
}
