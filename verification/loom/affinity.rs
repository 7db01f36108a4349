//! Affinity: the ring that is built when it is first asked for (`scheduler::affinity`, `Rings`), and ids that belong to a
//! resource by its slot ([`Affinity::Resource`]).
//!
//! Even keys live in shard 0, odd ones in shard 1, if there are two.

use std::sync::Mutex;

use leasehold::{Affinity, internals::sync::Arc};

use crate::{
    common::{model, model_within, spawn, steps},
    driver::{Actor, Fleet, Setup},
    specification::Op::{self, *},
};

const TWO: Setup = Setup { shards: 2, units: 1, by_load: false, room: 12, rules: false, period: 1 };

fn end(fleet: Arc<Fleet>) {
    let Ok(fleet) = Arc::try_unwrap(fleet) else { panic!("all threads are gone") };
    fleet.finish();
}

// The ring.

/// The first two lookups of all, against `main`: both build the ring, and something is eligible all the time.
fn building(bound: usize, before: &'static [Op], main: &'static [Op]) {
    model_within(bound, move || {
        let fleet = Arc::new(Fleet::new(TWO));
        Actor::new(&fleet, 0).run(&steps(before));
        let other = {
            let fleet = Arc::clone(&fleet);
            spawn(move || {
                let lease = fleet.scheduler.acquire_by_affinity(&1);
                lease.expect("at every instant something was eligible").check();
                fleet.scheduler.peek_by_affinity(&2).map(|found| found.check());
            })
        };
        Actor::new(&fleet, 1).run(&steps(main));
        other.join().expect("no panic");
        end(fleet);
    });
}

#[test]
fn build_insert() {
    building(2, &[Insert(0)], &[Insert(1)]);
}

#[test]
fn build_remove() {
    building(2, &[Insert(0), Insert(1)], &[Remove(0)]);
}

#[test]
fn build_batch() {
    building(2, &[Insert(0)], &[InsertBatch(2, 2)]);
}

/// What is there changes its shard behind the lookup.
#[test]
fn build_insert_remove() {
    building(2, &[Insert(0)], &[Insert(1), Remove(0)]);
}

/// Where these many ids go.
fn shards(fleet: &Fleet) -> Vec<u8> {
    let shard = |id: u8| fleet.scheduler.peek_by_affinity(&id).expect("both show something").check();
    (0..4).map(shard).collect()
}

/// Weights that are set while a ring is built from older ones win.
fn weighing(threads: usize, bound: usize) {
    model_within(bound, move || {
        let fleet = Arc::new(Fleet::new(Setup { units: 4, ..TWO }));
        Actor::new(&fleet, 0).run(&steps(&[Insert(0), Insert(1)]));
        let others: Vec<_> = (0..threads)
            .map(|_| {
                let fleet = Arc::clone(&fleet);
                spawn(move || {
                    fleet.scheduler.acquire_by_affinity(&1).expect("units are free").check();
                })
            })
            .collect();
        fleet.scheduler.set_shard_weights(&[0, 1]).expect("valid");
        assert_eq!(shards(&fleet), [1; 4], "what this thread has set is what it sees");
        for other in others {
            other.join().expect("no panic");
        }
        assert_eq!(shards(&fleet), [1; 4], "the ring of older weights came too late");
        end(fleet);
    });
}

#[test]
fn build_weights() {
    weighing(1, 2);
}

#[test]
fn build_build_weights() {
    weighing(2, 1);
}

// Ids of resources.

fn by_resource(setup: Setup) -> Fleet {
    Fleet::with(setup, |builder| builder.affinity(Affinity::Resource))
}

/// The first id that belongs to `key` in a fleet of `keys` keys in one shard. Asked once, before the model.
fn id_of(key: u8, keys: u8) -> u8 {
    let found = std::sync::Arc::new(Mutex::new(None));
    let out = found.clone();
    let mut builder = loom::model::Builder::new();
    // Many operations of one thread.
    builder.max_branches = 20_000;
    builder.check(move || {
        let fleet = by_resource(Setup::default());
        (0..keys).for_each(|key| fleet.scheduler.insert(fleet.resource(key)).expect("new"));
        let owner = |id: &u8| fleet.scheduler.acquire_by_affinity(id).expect("eligible").check();
        let id = (0..100).find(|id| owner(id) == key);
        *out.lock().expect("no panic") = id;
        fleet.finish();
    });
    let id = *found.lock().expect("no panic");
    id.expect("some id belongs to each")
}

/// An acquisition by the id of key 1, of the two that are there, against `main`. `judge` gets the key that was lent.
fn own(bound: usize, setup: Setup, main: &'static [Op], judge: fn(Option<u8>)) {
    let id = id_of(1, 2);
    model_within(bound, move || {
        let fleet = Arc::new(by_resource(setup));
        Actor::new(&fleet, 0).run(&steps(&[Insert(0), Insert(1)]));
        let other = {
            let fleet = Arc::clone(&fleet);
            spawn(move || fleet.scheduler.acquire_by_affinity(&id).ok().map(|lease| lease.check()))
        };
        {
            let mut actor = Actor::new(&fleet, 1);
            actor.run(&steps(main));
            // What it took, it holds until the other has ended.
            judge(other.join().expect("no panic"));
        }
        end(fleet);
    });
}

/// Another one is lent in its place.
#[test]
fn own_remove() {
    own(2, Setup::default(), &[Remove(1)], |key| assert!(key.is_some(), "0 was eligible all the time"));
}

/// Its slot is given to the newcomer.
#[test]
fn own_remove_insert() {
    own(2, Setup::default(), &[Remove(1), Insert(2)], |key| {
        assert!(key.is_some(), "0 was eligible all the time")
    });
}

#[test]
fn own_remove_reinsert() {
    own(2, Setup::default(), &[Remove(1), Insert(1)], |key| {
        assert!(key.is_some(), "0 was eligible all the time")
    });
}

/// Slots come while one is chosen, and the table of slots grows.
#[test]
fn own_insert() {
    own(2, Setup { room: 0, ..Setup::default() }, &[Insert(2), Insert(3)], |key| {
        assert!(key.is_some(), "0 was eligible all the time")
    });
}

#[test]
fn own_acquire_key() {
    own(2, Setup::default(), &[AcquireKey(1)], |key| assert!(key.is_some(), "0 was eligible all the time"));
}

#[test]
fn own_exclude() {
    own(2, Setup::default(), &[Exclude(1)], |key| assert!(key.is_some(), "0 was eligible all the time"));
}

#[test]
fn own_update() {
    own(2, Setup::default(), &[UpdateWith(1)], |key| assert_eq!(key, Some(1)));
}

/// Nothing is there at first: no slot is chosen.
#[test]
fn own_in_an_empty_shard() {
    model(|| {
        let fleet = Arc::new(by_resource(Setup { room: 0, ..Setup::default() }));
        let other = {
            let fleet = Arc::clone(&fleet);
            spawn(move || fleet.scheduler.acquire_by_affinity(&1).ok().map(|lease| lease.check()))
        };
        Actor::new(&fleet, 0).run(&steps(&[Insert(0)]));
        assert!(matches!(other.join().expect("no panic"), None | Some(0)));
        end(fleet);
    });
}

/// Whoever has seen a member of a batch is lent his own of it, though it may be the last one to be absorbed.
#[test]
fn own_of_a_batch() {
    let id = id_of(2, 3);
    model(move || {
        let fleet = Arc::new(by_resource(Setup::default()));
        let other = {
            let fleet = Arc::clone(&fleet);
            spawn(move || Actor::new(&fleet, 0).run(&steps(&[InsertBatch(0, 3)])))
        };
        if fleet.scheduler.get(&0).is_some() {
            assert_eq!(fleet.scheduler.acquire_by_affinity(&id).expect("all are free").check(), 2);
        }
        other.join().expect("no panic");
        end(fleet);
    });
}
