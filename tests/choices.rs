//! Which shard an acquisition goes to, as far as the public interface promises it; and what the scheduler shows of itself.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
    thread,
};

use leasehold::{Capacity, Entry, Resource, Scheduler, SelectShard, ShardView, SplitMix64, Strategy};

/// Best rank, eligible and available of each shard that a strategy was shown.
type Shown = Arc<Mutex<Vec<(Option<u64>, u32, u64)>>>;

/// Lives in the shard it is told to.
struct Homed {
    key: u32,
    home: usize,
    rank: u32,
    capacity: Capacity,
}

impl Resource for Homed {
    type Key = u32;
    type Priority = u32;
    fn key(&self) -> u32 {
        self.key
    }
    fn priority(&self, _: u32) -> u32 {
        self.rank
    }
    fn capacity(&self) -> Capacity {
        self.capacity
    }
    fn home(&self, _: usize) -> Option<usize> {
        Some(self.home)
    }
}

/// One unlimited resource of equal rank in each shard.
fn even(shards: usize, strategy: Strategy, seed: u64) -> Scheduler<Homed> {
    let fleet = Scheduler::builder().shards(shards).strategy(strategy).seed(seed).build().expect("in range");
    for home in 0..shards {
        let resource = Homed { key: home as u32, home, rank: 0, capacity: Capacity::Unlimited };
        assert!(fleet.insert(resource).is_ok());
    }
    fleet
}

fn walk(fleet: &Scheduler<Homed>, steps: usize) -> Vec<usize> {
    (0..steps).map(|_| fleet.acquire().expect("unlimited").shard()).collect()
}

#[test]
fn one_seed_makes_runs_repeat_and_another_does_not() {
    let strategies: [fn() -> Strategy; 5] = [
        Strategy::default,
        || Strategy::BestOf { choices: 2 },
        || Strategy::RoundRobin,
        || Strategy::Weighted(vec![1; 16]),
        || Strategy::Adaptive,
    ];
    for strategy in strategies {
        let name = format!("{:?}", strategy());
        let run = |seed| walk(&even(16, strategy(), seed), 200);
        assert_eq!(run(7), run(7), "{name}");
        let distinct: HashSet<Vec<usize>> = (0..8).map(run).collect();
        assert!(distinct.len() > 4, "{name}: {} different runs for 8 seeds", distinct.len());
    }
}

#[test]
fn threads_draw_different_numbers() {
    // Odd and even seeds: no bit of the seed may hide which thread it is.
    for seed in [0, 1, u64::MAX] {
        let fleet = even(16, Strategy::Weighted(vec![1; 16]), seed);
        let runs: HashSet<Vec<usize>> = (0..4)
            .map(|_| thread::scope(|scope| scope.spawn(|| walk(&fleet, 100)).join().expect("no panic")))
            .collect();
        // Threads that ran one after the other may have shared a cell, and gone on with its numbers.
        assert_eq!(runs.len(), 4, "seed {seed}");
        let mut side_by_side = HashSet::new();
        let start = std::sync::Barrier::new(4);
        thread::scope(|scope| {
            let (fleet, start) = (&fleet, &start);
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(move || {
                        start.wait();
                        walk(fleet, 100)
                    })
                })
                .collect();
            side_by_side.extend(threads.into_iter().map(|thread| thread.join().expect("no panic")));
        });
        assert_eq!(side_by_side.len(), 4, "seed {seed}");
    }
}

#[test]
fn a_sticky_thread_stays_for_its_period() {
    let fleet = even(16, Strategy::Sticky { choices: 2, period: 10 }, 1);
    let shards = walk(&fleet, 500);
    assert!(shards.chunks(10).all(|stay| stay.iter().all(|&shard| shard == stay[0])), "{shards:?}");
    assert!(shards.iter().collect::<HashSet<_>>().len() > 8, "and then moves on: {shards:?}");
}

/// Answers one shard, and remembers what it was shown.
struct Watching {
    answer: usize,
    shown: Shown,
}

impl SelectShard for Watching {
    fn select(&self, view: &dyn ShardView, _: &mut SplitMix64) -> usize {
        let shard = |i| (view.best_rank(i), view.eligible(i), view.available(i));
        *self.shown.lock().unwrap() = (0..view.shards()).map(shard).collect();
        self.answer
    }
}

fn watched(answer: usize, resources: Vec<Homed>) -> (Scheduler<Homed>, Shown) {
    let shown = Arc::new(Mutex::new(Vec::new()));
    let strategy = Strategy::Custom(Box::new(Watching { answer, shown: Arc::clone(&shown) }));
    let fleet = Scheduler::builder().shards(4).strategy(strategy).build().expect("in range");
    for resource in resources {
        assert!(fleet.insert(resource).is_ok());
    }
    (fleet, shown)
}

#[test]
fn a_custom_strategy_sees_the_shards_as_they_are() {
    let resource = |key, home, rank, capacity| Homed { key, home, rank, capacity };
    let (fleet, shown) = watched(
        1,
        vec![
            resource(1, 1, 5, Capacity::Limited(3)),
            resource(2, 1, 7, Capacity::Exclusive),
            resource(3, 3, 2, Capacity::Exclusive),
            resource(4, 3, 4, Capacity::Exclusive),
        ],
    );
    let _lease = fleet.acquire().expect("eligible");
    assert_eq!(*shown.lock().unwrap(), [(None, 0, 0), (Some(5), 2, 4), (None, 0, 0), (Some(2), 2, 2)]);
    fleet.exclude(&3).expect("known");
    drop(fleet.acquire());
    assert_eq!(*shown.lock().unwrap(), [(None, 0, 0), (Some(5), 2, 3), (None, 0, 0), (Some(4), 1, 1)]);
}

#[test]
fn if_the_chosen_shard_is_empty_the_best_of_the_others_is_lent() {
    let exclusive = |key, home, rank| Homed { key, home, rank, capacity: Capacity::Exclusive };
    let (fleet, _) = watched(0, vec![exclusive(1, 1, 5), exclusive(2, 2, 1), exclusive(3, 3, 3)]);
    for _ in 0..50 {
        assert_eq!(*fleet.acquire().expect("eligible").key(), 2);
    }
    let leases: Vec<_> = (0..3).map(|_| fleet.acquire().expect("eligible")).collect();
    assert_eq!(leases.iter().map(|lease| *lease.key()).collect::<Vec<_>>(), [2, 3, 1]);
    assert!(fleet.acquire().is_err());
}

#[test]
fn there_are_four_shards_a_processor_by_default() {
    let processors = thread::available_parallelism().expect("known").get();
    let fleet = Scheduler::<Entry<u32, u32, ()>>::builder().build().expect("in range");
    assert_eq!(fleet.shards(), (4 * processors).min(64));
}

#[test]
fn no_shards_events_are_kept_back_by_those_of_another() {
    let fleet = Scheduler::<Homed>::builder().shards(3).event_capacity(256).build().expect("in range");
    for key in 0..300 {
        let resource = Homed { key, home: key as usize % 3, rank: 0, capacity: Capacity::Exclusive };
        assert!(fleet.insert(resource).is_ok());
    }
    // Few at a time, from a random shard on.
    let some: HashSet<u32> = (0..60).flat_map(|_| fleet.take_events(1)).map(|event| event.shard).collect();
    assert_eq!(some.len(), 3, "only from {some:?}");
    // All at once, from all shards.
    assert_eq!(fleet.take_events(1_000).len(), 240);
    for round in 0..20 {
        for key in 0..3 {
            drop(fleet.acquire_key(&key));
        }
        assert_eq!(fleet.take_events(1_000).len(), 6, "in round {round}");
    }
}

#[test]
fn stats_name_the_strategy_and_whether_it_is_closed() {
    for (strategy, name) in [(Strategy::default(), "sticky"), (Strategy::RoundRobin, "round_robin")] {
        let fleet = even(2, strategy, 1);
        assert_eq!(
            (fleet.stats().strategy.as_str(), fleet.stats().closed, fleet.is_closed()),
            (name, false, false)
        );
        assert!(fleet.close());
        assert_eq!((fleet.stats().closed, fleet.is_closed()), (true, true));
    }
}
