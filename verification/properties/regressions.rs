//! What the properties, the stress and the fault checks have found, each as a small story of its own.
//!
//! Cost: nothing to speak of.

use std::{sync::Arc, time::Duration};

use leasehold::{
    Affinity, Capacity, Entry, InsertError, ManualClock, Outcome, Overflow, Resource, Scheduler, SelectShard,
    ShardView, SplitMix64, Strategy, Ties,
};

type Plain = Entry<u32, u64, &'static str>;

/// Ranked by its load alone.
struct Loaded(Capacity);

impl Resource for Loaded {
    type Key = u32;
    type Priority = u32;

    fn key(&self) -> u32 {
        1
    }

    fn priority(&self, in_flight: u32) -> u32 {
        in_flight
    }

    fn capacity(&self) -> Capacity {
        self.0
    }
}

#[test]
fn a_duplicate_costs_nobody_its_place_in_a_full_fleet() {
    let full = Scheduler::<Plain>::builder().max_resources(2, Overflow::EvictWorst).build().unwrap();
    full.insert(Entry::new(1, 5, "held")).unwrap();
    full.insert(Entry::new(2, 9, "worst")).unwrap();
    let lease = full.acquire_key(&1).unwrap();
    let rejected = full.insert(Entry::new(1, 0, "again")).unwrap_err();
    assert_eq!(rejected.error, InsertError::Duplicate { key: 1 });
    assert!(full.contains(&2), "what was refused has evicted another");
    drop(lease);
    // The worst itself: it is not replaced by way of eviction either.
    let rejected = full.insert(Entry::new(2, 0, "again")).unwrap_err();
    assert_eq!(rejected.error, InsertError::Duplicate { key: 2 });
    assert_eq!(full.get(&2).unwrap().value, "worst");
}

#[test]
fn a_deadline_that_does_not_move_is_not_counted() {
    let clock = Arc::new(ManualClock::new());
    let one = Scheduler::<Plain>::builder().clock(Arc::clone(&clock)).build().unwrap();
    one.insert(Entry::new(1, 0, "").with_capacity(Capacity::Limited(2))).unwrap();
    let first = one.acquire().unwrap();
    let second = one.acquire().unwrap();
    first.release_after(Duration::from_secs(9));
    second.finish(Outcome::RateLimited { retry_after: Duration::from_secs(5) });
    assert_eq!(one.stats().cooled, 1, "the second deadline was earlier");
    assert!(one.warm(&1).unwrap());
    // Nor does a resource cool that is out of the fleet.
    one.cool(&1, Duration::from_secs(1)).unwrap();
    one.warm(&1).unwrap();
    let lease = one.acquire().unwrap();
    one.cool(&1, Duration::from_secs(1)).unwrap();
    let before = one.stats().cooled;
    one.remove(&1).unwrap();
    lease.release_after(Duration::from_secs(50));
    assert_eq!(one.stats().cooled, before);
}

#[test]
fn a_closed_fleet_is_not_evicted_from() {
    let one = Scheduler::<Plain>::builder().build().unwrap();
    one.insert(Entry::new(1, 0, "")).unwrap();
    one.close();
    assert_eq!(one.evict_worst(), None);
    assert_eq!(one.len(), 1);
}

#[test]
fn the_worst_may_be_one_whose_cooling_is_over() {
    let clock = Arc::new(ManualClock::new());
    let fleet = || {
        let fleet = Scheduler::<Plain>::builder()
            .clock(Arc::clone(&clock))
            .max_resources(1, Overflow::EvictWorst)
            .build()
            .unwrap();
        fleet.insert(Entry::new(1, 7, "")).unwrap();
        fleet.cool(&1, Duration::from_secs(1)).unwrap();
        clock.advance(Duration::from_secs(1));
        fleet
    };
    assert_eq!(fleet().peek_worst().map(|worst| worst.key), Some(1));
    assert_eq!(fleet().evict_worst(), Some(1));
    assert!(fleet().insert(Entry::new(2, 6, "")).is_ok(), "it can make room");
}

#[test]
fn the_most_recently_used_goes_first_however_it_was_acquired() {
    let fleet = Scheduler::<Plain>::builder().shards(1).ties(Ties::MostRecent).build().unwrap();
    for key in [1, 2] {
        fleet.insert(Entry::new(key, 0, "").with_capacity(Capacity::Limited(4))).unwrap();
    }
    let _lease = fleet.acquire_key(&1).unwrap();
    assert_eq!(*fleet.acquire().unwrap().key(), 1, "1 was used after 2 came");
}

#[test]
fn a_resource_that_became_shared_while_lent_is_ranked_by_its_load() {
    let one = Scheduler::<Loaded>::builder().build().unwrap();
    one.insert(Loaded(Capacity::Exclusive)).unwrap();
    let lease = one.acquire().unwrap();
    one.update(Loaded(Capacity::Limited(3))).unwrap();
    drop(lease);
    assert_eq!(one.snapshot()[0].rank, 0, "the lease that began as an exclusive one has ended");
}

#[test]
fn an_exact_strategy_is_exact_for_filters_too() {
    let fleet = Scheduler::<HomedEntry>::builder()
        .shards(2)
        .strategy(Strategy::BestOf { choices: usize::MAX })
        .build()
        .unwrap();
    // The one that is wanted comes after eight better ones of its shard, and before the other shard's.
    for key in 0..9 {
        fleet.insert(HomedEntry { key, rank: u64::from(key), home: 0 }).unwrap();
    }
    fleet.insert(HomedEntry { key: 100, rank: 50, home: 1 }).unwrap();
    assert_eq!(*fleet.acquire_where(|entry| entry.key >= 8).unwrap().key(), 8);
}

struct HomedEntry {
    key: u32,
    rank: u64,
    home: usize,
}

impl Resource for HomedEntry {
    type Key = u32;
    type Priority = u64;

    fn key(&self) -> u32 {
        self.key
    }

    fn priority(&self, _in_flight: u32) -> u64 {
        self.rank
    }

    fn home(&self, _shards: usize) -> Option<usize> {
        Some(self.home)
    }
}

#[test]
fn a_peek_survives_a_strategy_that_points_nowhere() {
    struct Nowhere;
    impl SelectShard for Nowhere {
        fn select(&self, view: &dyn ShardView, _random: &mut SplitMix64) -> usize {
            view.shards()
        }
    }
    let one = Scheduler::<Plain>::builder().strategy(Strategy::Custom(Box::new(Nowhere))).build().unwrap();
    one.insert(Entry::new(1, 0, "")).unwrap();
    assert!(one.peek().is_some(), "\"none\" means that there is none");
}

#[test]
fn an_undone_batch_is_never_seen() {
    // Undone and committed batches in turn, so that a number is used again; readers in between hold nodes of both.
    let fleet = Scheduler::<Plain>::builder().shards(2).build().unwrap();
    fleet.insert(Entry::new(0, 9, "there")).unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::SeqCst) {
                    for key in 1..5 {
                        assert!(fleet.get(&key).is_none_or(|seen| seen.value == "committed"));
                        let _ = fleet.update_with(&key, |old| *old);
                        drop(fleet.acquire_where(|entry| entry.key == key));
                    }
                }
            });
        }
        for _ in 0..20_000 {
            let undone = [1, 2, 3, 0].map(|key| Entry::new(key, 1, "undone"));
            assert!(fleet.insert_batch(undone.to_vec()).is_err());
            fleet.insert_batch(vec![Entry::new(4, 1, "committed")]).unwrap();
            fleet.remove(&4).unwrap();
        }
        done.store(true, std::sync::atomic::Ordering::SeqCst);
    });
    let tally = fleet.check_invariants();
    assert_eq!((tally.members, tally.in_flight), (1, 0));
}

#[test]
fn an_insertion_that_others_finish_and_undo_touches_nothing_freed() {
    let fleet = Scheduler::<Plain>::builder().shards(1).build().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for i in 0..20_000u32 {
                    let _ = fleet.insert(Entry::new(i % 2, 1, ""));
                    let _ = fleet.remove(&(i % 2));
                }
            });
        }
    });
    let stats = fleet.stats();
    assert_eq!(fleet.check_invariants().members, stats.inserted - stats.removed);
}

/// A resource whose `priority`, asked after a lease has begun, holds and frees it: the word's generation moves, the load
/// does not.
struct Restless;

static RESTLESS: std::sync::OnceLock<Scheduler<Restless>> = std::sync::OnceLock::new();

impl Resource for Restless {
    type Key = u8;
    type Priority = u32;

    fn key(&self) -> u8 {
        1
    }

    fn priority(&self, in_flight: u32) -> u32 {
        if let Some(fleet) = RESTLESS.get() {
            let _ = fleet.exclude(&1);
            let _ = fleet.include(&1);
        }
        in_flight
    }

    fn capacity(&self) -> Capacity {
        Capacity::Limited(4)
    }
}

#[test]
fn a_hold_in_between_does_not_leave_the_rank_of_another_load() {
    let fleet = RESTLESS.get_or_init(|| Scheduler::builder().shards(1).build().unwrap());
    fleet.insert(Restless).unwrap();
    let lease = fleet.acquire().unwrap();
    assert_eq!(fleet.snapshot()[0].rank, 1);
    drop(lease);
    assert_eq!(fleet.snapshot()[0].rank, 0);
}

#[test]
fn a_filter_is_asked_a_bounded_number_of_times_when_many_have_come_due() {
    let clock = Arc::new(ManualClock::new());
    let fleet = Scheduler::<Plain>::builder().shards(1).clock(Arc::clone(&clock)).build().unwrap();
    let members = 2_000;
    fleet.insert_batch((0..members).map(|key| Entry::new(key, u64::from(key), "")).collect()).unwrap();
    for key in 0..members {
        fleet.cool(&key, Duration::from_secs(1)).unwrap();
    }
    clock.advance(Duration::from_secs(1));
    let mut asked = 0;
    let lease = fleet
        .acquire_where(|entry| {
            asked += 1;
            entry.key == members - 1
        })
        .unwrap();
    assert_eq!(*lease.key(), members - 1);
    assert!(asked <= 2 * members, "asked {asked} times about {members} resources");
    drop(lease);
    assert!(fleet.acquire_key(&(members - 2)).is_ok());
    let cooling = fleet.stats().reasons.cooling;
    assert!(cooling > u64::from(members) - 100, "whose turn it is not stays cold: {cooling}");
}

#[test]
fn a_refused_insertion_moves_no_id() {
    let fleet = Scheduler::<Plain>::builder().shards(1).affinity(Affinity::Resource).build().unwrap();
    fleet.insert_batch((0..40).map(|key| Entry::new(key, u64::from(key), "")).collect()).unwrap();
    let choices = || (0..500u32).map(|id| *fleet.acquire_by_affinity(&id).unwrap().key()).collect::<Vec<_>>();
    let before = choices();
    assert!(fleet.insert(Entry::new(7, 0, "again")).is_err());
    assert_eq!(choices(), before, "by a duplicate");
    let batch = [100, 101, 102, 7].map(|key| Entry::new(key, 0, ""));
    assert!(fleet.insert_batch(batch.to_vec()).is_err());
    assert_eq!(choices(), before, "by a batch with a duplicate");
}
