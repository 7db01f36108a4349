//! What an acquisition finds between a batch's becoming visible and its being absorbed, and beside locks that are held: made by a
//! callback in the midst of the absorption, and by a lock that the test holds.

use std::cell::RefCell;

use super::*;
use crate::{Affinity, Strategy, sync::Arc};

thread_local! {
    static HOOK: RefCell<Option<Box<dyn FnMut() -> bool>>> = const { RefCell::new(None) };
}

/// Its clones, which events need, call the hook until that says that it is done.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Key(u32);

impl Clone for Key {
    fn clone(&self) -> Self {
        if let Some(mut hook) = HOOK.take()
            && !hook()
        {
            HOOK.set(Some(hook));
        }
        Key(self.0)
    }
}

/// Ranked by its number, at home where it says.
struct Item {
    key: u32,
    home: usize,
}

impl Resource for Item {
    type Key = Key;
    type Priority = u32;

    fn key(&self) -> Key {
        Key(self.key)
    }

    fn priority(&self, _in_flight: u32) -> u32 {
        self.key
    }

    fn home(&self, _shards: usize) -> Option<usize> {
        Some(self.home)
    }
}

type Fleet = Arc<Scheduler<Item>>;

fn fleet(shards: usize, affinity: Affinity) -> Fleet {
    with_strategy(shards, affinity, Strategy::RoundRobin)
}

fn with_strategy(shards: usize, affinity: Affinity, strategy: Strategy) -> Fleet {
    let builder = Scheduler::<Item>::builder().shards(shards).strategy(strategy);
    Arc::new(builder.affinity(affinity).event_capacity(1024).build().expect("valid"))
}

/// Inserts a batch, and calls `look` once, when it is visible and a part of it is still to be absorbed.
fn in_the_midst(fleet: &Fleet, batch: Vec<Item>, look: impl FnMut(&Fleet) + 'static) {
    let (total, mut look) = (batch.len(), look);
    let inside = Arc::clone(fleet);
    HOOK.set(Some(Box::new(move || {
        if inside.len() < total {
            return false;
        }
        let waits = |shard: &Shard<Item>| shard.face().staged() != 0;
        assert!(inside.core.shards.iter().any(waits), "a part is still to be absorbed");
        look(&inside);
        true
    })));
    assert_eq!(fleet.insert_batch(batch).map_err(|rejected| rejected.error), Ok(total));
    assert!(HOOK.take().is_none(), "it has been called");
    let _ = fleet.check_invariants();
}

#[test]
fn every_member_of_a_visible_batch_is_lent() {
    let fleet = fleet(5, Affinity::Shard);
    let batch = (0..5).map(|key| Item { key, home: key as usize }).collect();
    in_the_midst(&fleet, batch, |fleet| {
        let leases: Vec<_> = (0..5).map(|_| fleet.acquire()).collect();
        let mut keys: Vec<u32> =
            leases.iter().map(|lease| lease.as_ref().expect("visible").key().0).collect();
        keys.sort_unstable();
        assert_eq!(keys, [0, 1, 2, 3, 4]);
        assert!(fleet.acquire().is_err(), "there are no more");
    });
}

/// What waits to be absorbed counts with its rank.
#[test]
fn the_best_of_a_visible_batch_is_the_best() {
    let fleet = with_strategy(2, Affinity::Shard, Strategy::BestOf { choices: usize::MAX });
    let batch = [(5, 0), (6, 0), (0, 1), (7, 1)].map(|(key, home)| Item { key, home });
    in_the_midst(&fleet, batch.into(), |fleet| {
        assert_eq!(fleet.acquire().expect("visible").key().0, 0);
    });
}

/// Beyond the few of a shard that are looked at first.
#[test]
fn a_filter_is_lent_the_best_that_it_accepts() {
    let fleet = fleet(1, Affinity::Shard);
    for key in 0..30 {
        assert!(fleet.insert(Item { key, home: 0 }).is_ok());
    }
    for (better, worse) in (10..29).flat_map(|better| (better + 1..30).map(move |worse| (better, worse))) {
        let lease = fleet.acquire_where(|item| item.key == better || item.key == worse);
        assert_eq!(lease.expect("there").key().0, better);
    }
}

#[test]
fn a_visible_batch_is_found_by_a_filter_and_by_several_at_once() {
    let fleet = fleet(2, Affinity::Shard);
    let batch = (0..6).map(|key| Item { key, home: usize::from(key > 0) }).collect();
    in_the_midst(&fleet, batch, |fleet| {
        assert_eq!(fleet.acquire_where(|item| item.key == 5).expect("visible").key().0, 5);
        assert_eq!(fleet.acquire_many(6).expect("visible").len(), 6);
    });
}

#[test]
fn an_id_has_its_resource_before_its_batch_is_absorbed() {
    for id in 0..40 {
        let fleet = fleet(2, Affinity::Resource);
        let batch = (0..64).map(|key| Item { key, home: usize::from(key > 0) }).collect();
        let during = std::rc::Rc::new(std::cell::Cell::new(None));
        let seen = std::rc::Rc::clone(&during);
        in_the_midst(&fleet, batch, move |fleet| {
            seen.set(Some(fleet.acquire_by_affinity(&id).expect("visible").key().0));
        });
        let after = fleet.acquire_by_affinity(&id).expect("there").key().0;
        assert_eq!(during.get(), Some(after), "id {id}");
    }
}

/// A shard whose lock somebody holds is passed by as long as another shows something.
#[test]
fn a_busy_shard_is_passed_by() {
    for busy in 0..4 {
        let fleet = fleet(4, Affinity::Shard);
        for key in 0..4 {
            let item = Item { key, home: key as usize };
            assert_eq!(fleet.insert(item).map_err(|rejected| rejected.error), Ok(()));
        }
        let held = fleet.core.shards[busy].lock();
        let leases: Vec<_> = (0..3).map(|_| fleet.acquire().expect("three are not busy")).collect();
        let mut homes: Vec<usize> = leases.iter().map(|lease| lease.home).collect();
        homes.sort_unstable();
        assert!(homes.into_iter().eq((0..4).filter(|&home| home != busy)));
        drop(held);
    }
}
