use std::collections::HashSet;

use super::*;
use crate::sync::thread;

/// Shards whose published words are given.
struct Fleet {
    ranks: Vec<Option<u64>>,
    available: Vec<u64>,
}

impl Fleet {
    fn ranked(ranks: impl IntoIterator<Item = Option<u64>>) -> Self {
        let ranks: Vec<_> = ranks.into_iter().collect();
        Fleet { available: vec![1; ranks.len()], ranks }
    }

    fn with_available(available: &[u64]) -> Self {
        Fleet { ranks: vec![Some(0); available.len()], available: available.to_vec() }
    }
}

impl ShardView for Fleet {
    fn shards(&self) -> usize {
        self.ranks.len()
    }
    fn best_rank(&self, shard: usize) -> Option<u64> {
        self.ranks[shard]
    }
    fn eligible(&self, shard: usize) -> u32 {
        u32::from(self.ranks[shard].is_some())
    }
    fn available(&self, shard: usize) -> u64 {
        self.available[shard]
    }
}

/// A view that records which shards' ranks were looked at.
struct Watched(std::cell::RefCell<Vec<usize>>, usize);

impl ShardView for Watched {
    fn shards(&self) -> usize {
        self.1
    }
    fn best_rank(&self, shard: usize) -> Option<u64> {
        self.0.borrow_mut().push(shard);
        Some(0)
    }
    fn eligible(&self, _: usize) -> u32 {
        1
    }
    fn available(&self, shard: usize) -> u64 {
        self.0.borrow_mut().push(shard);
        1
    }
}

fn selector(strategy: Strategy, shards: usize) -> Selector {
    Selector::new(strategy, shards).expect("a valid strategy")
}

fn every_strategy(shards: usize) -> Vec<Strategy> {
    vec![
        Strategy::default(),
        Strategy::BestOf { choices: 1 },
        Strategy::BestOf { choices: 2 },
        Strategy::BestOf { choices: 3 },
        Strategy::BestOf { choices: usize::MAX },
        Strategy::RoundRobin,
        Strategy::Weighted(vec![1; shards]),
        Strategy::Adaptive,
    ]
}

/// How often each shard was chosen in `draws` choices.
fn histogram(strategy: Strategy, fleet: &Fleet, draws: u32) -> Vec<u32> {
    let selector = selector(strategy, fleet.shards());
    let cell = Cell::new(7);
    let mut counts = vec![0; fleet.shards()];
    for _ in 0..draws {
        counts[selector.select(fleet, &cell)] += 1;
    }
    counts
}

fn assert_even(counts: &[u32], draws: u32) {
    let expected = f64::from(draws) / counts.len() as f64;
    // Six standard deviations, and the seed is fixed.
    let slack = 6.0 * expected.sqrt();
    assert!(counts.iter().all(|&count| (f64::from(count) - expected).abs() < slack), "{counts:?}");
}

#[test]
fn equal_shards_are_chosen_equally_often() {
    let fleet = Fleet::ranked([Some(5); 7]);
    for strategy in every_strategy(7) {
        // A sticky choice lasts for a whole period, so there are fewer of them.
        let weight = if let Strategy::Sticky { period, .. } = strategy { period } else { 1 };
        let draws = 7_000 * weight;
        let counts: Vec<u32> =
            histogram(strategy, &fleet, draws).iter().map(|count| count / weight).collect();
        assert_even(&counts, draws / weight);
    }
}

#[test]
fn a_stay_ends_where_somebody_else_is_and_only_then() {
    let fleet = Fleet::ranked([Some(5); 7]);
    let selector = Selector::new(Strategy::Sticky { choices: 7, period: 1_000 }, 7).unwrap();
    let cell = Cell::new(1);
    let first = selector.select(&fleet, &cell);
    assert!((0..20).all(|_| selector.select(&fleet, &cell) == first));
    // Of seven equals another one is chosen before long.
    assert!((0..20).any(|_| selector.crowded(&cell) && selector.select(&fleet, &cell) != first));
    let exact = Selector::new(Strategy::BestOf { choices: 7 }, 7).unwrap();
    assert!(!exact.crowded(&cell), "asking again would answer the same");
}

#[test]
fn choices_follow_from_the_seed() {
    let fleet = Fleet::ranked((0..16).map(|shard| (shard % 5 != 0).then_some(shard * 37 % 11)));
    for strategy in 0..every_strategy(16).len() {
        let run = |seed| {
            let selector = selector(every_strategy(16).swap_remove(strategy), 16);
            let cell = Cell::new(seed);
            (0..200).map(|_| selector.select(&fleet, &cell)).collect::<Vec<_>>()
        };
        assert_eq!(run(1), run(1));
        if strategy != 4 {
            assert_ne!(run(1), run(2), "strategy {strategy}");
        }
    }
}

#[test]
fn one_shard_is_always_the_answer() {
    let fleet = Fleet::ranked([None]);
    for strategy in every_strategy(1) {
        let selector = selector(strategy, 1);
        let cell = Cell::new(3);
        for _ in 0..5 {
            assert_eq!(selector.select(&fleet, &cell), 0);
            selector.ran_dry(&cell);
        }
    }
}

#[test]
fn the_largest_number_of_shards_is_reached_everywhere() {
    let fleet = Fleet::ranked([Some(1); MAX_SHARDS]);
    for strategy in every_strategy(MAX_SHARDS) {
        let name = format!("{strategy:?}");
        let period = if let Strategy::Sticky { period, .. } = strategy { period } else { 1 };
        let draws = period * 16_000;
        let counts = histogram(strategy, &fleet, draws);
        // A shard is missed with a probability of e^-15.6 or so.
        assert!(counts.iter().all(|&count| count > 0), "{name}");
    }
}

#[test]
fn sticky_stays_for_its_period() {
    let fleet = Fleet::ranked([Some(1); 64]);
    let selector = selector(Strategy::Sticky { choices: 2, period: 10 }, 64);
    let cell = Cell::new(1);
    let choices: Vec<usize> = (0..1_000).map(|_| selector.select(&fleet, &cell)).collect();
    for stay in choices.chunks(10) {
        assert!(stay.iter().all(|&shard| shard == stay[0]), "{stay:?}");
    }
    let changes = choices.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!((90..100).contains(&changes), "{changes}");
}

#[test]
fn c9_an_empty_shard_sends_nobody_to_its_neighbour() {
    let mut fleet = Fleet::ranked([Some(1); 16]);
    let selector = selector(Strategy::Sticky { choices: 2, period: 1_000_000 }, 16);
    let mut next = [0; 16];
    for seed in 0..16_000 {
        let cell = Cell::new(seed);
        fleet.ranks = vec![Some(1); 16];
        let first = selector.select(&fleet, &cell);
        assert_eq!(selector.select(&fleet, &cell), first, "stays");
        fleet.ranks[first] = None;
        let second = selector.select(&fleet, &cell);
        assert_ne!(second, first, "the other of two choices is not empty");
        next[(second + 16 - first) % 16] += 1;
    }
    assert_even(&next[1..], 16_000);
}

#[test]
fn ran_dry_ends_the_stay() {
    let fleet = Fleet::ranked([Some(1); 1_000]);
    let selector = selector(Strategy::Sticky { choices: 1, period: 1_000_000 }, 1_000);
    let cell = Cell::new(1);
    let first = selector.select(&fleet, &cell);
    assert_eq!(selector.select(&fleet, &cell), first);
    selector.ran_dry(&cell);
    assert_ne!(selector.select(&fleet, &cell), first);
}

#[test]
fn c13_looking_at_all_finds_the_exact_minimum() {
    let mut random = SplitMix64::new(5);
    for shards in [1, 2, 3, 7, 64, MAX_SHARDS] {
        let all = selector(Strategy::BestOf { choices: usize::MAX }, shards);
        let exactly = selector(Strategy::Sticky { choices: shards, period: 1 }, shards);
        let cell = Cell::new(9);
        for _ in 0..200 {
            let fleet =
                Fleet::ranked((0..shards).map(|_| (random.below(3) > 0).then(|| random.next_u64() >> 60)));
            let best = fleet.ranks.iter().flatten().min().copied();
            assert_eq!(fleet.ranks[all.select(&fleet, &cell)], best);
            assert_eq!(fleet.ranks[exactly.select(&fleet, &cell)], best);
        }
    }
}

#[test]
fn c13_more_choices_make_a_smaller_rank_error() {
    // The ranks 0 to 63 in no order, so the mean rank is the mean rank error: (n - d) / (d + 1) for d distinct draws.
    let mut ranks: Vec<u64> = (0..64).collect();
    ranks.sort_by_key(|&rank| SplitMix64::mix(rank));
    let fleet = Fleet::ranked(ranks.iter().copied().map(Some));
    for choices in [1, 2, 4, 8, 32] {
        let draws = 20_000;
        let counts = histogram(Strategy::BestOf { choices }, &fleet, draws);
        let sum: f64 = counts.iter().zip(&ranks).map(|(&count, &rank)| rank as f64 * f64::from(count)).sum();
        let (mean, expected) = (sum / f64::from(draws), (64 - choices) as f64 / (choices + 1) as f64);
        assert!((mean / expected - 1.0).abs() < 0.15, "{choices} choices: {mean} instead of {expected}");
    }
}

#[test]
fn c12_equals_share() {
    // Three equals among worse ones: whoever looks at all must not stick to the first of them.
    let fleet = Fleet::ranked([Some(9), Some(1), Some(9), Some(1), Some(9), Some(1)]);
    let counts = histogram(Strategy::BestOf { choices: 6 }, &fleet, 6_000);
    assert_eq!((counts[0], counts[2], counts[4]), (0, 0, 0));
    assert_even(&[counts[1], counts[3], counts[5]], 6_000);
    // All empty: any shard will do, as long as threads spread.
    let counts = histogram(Strategy::BestOf { choices: 2 }, &Fleet::ranked([None; 6]), 6_000);
    assert_even(&counts, 6_000);
}

#[test]
fn an_empty_shard_loses_to_the_worst_rank() {
    let fleet = Fleet::ranked([None, Some(u64::MAX), None]);
    for choices in [3, 1_000] {
        assert_eq!(histogram(Strategy::BestOf { choices }, &fleet, 100), [0, 100, 0]);
    }
    let fleet = Fleet::ranked([None, Some(u64::MAX)]);
    assert_eq!(histogram(Strategy::BestOf { choices: 2 }, &fleet, 100), [0, 100]);
}

#[test]
fn no_draw_looks_at_a_shard_twice() {
    for shards in [2, 3, 5, 64, MAX_SHARDS] {
        for choices in [1, 2, 3, 4, 5, 63, 64, 1023, usize::MAX] {
            let selector = selector(Strategy::BestOf { choices }, shards);
            let cell = Cell::new(11);
            for _ in 0..50 {
                let view = Watched(Vec::new().into(), shards);
                selector.select(&view, &cell);
                let looked = view.0.into_inner();
                let distinct: HashSet<usize> = looked.iter().copied().collect();
                assert_eq!(looked.len(), distinct.len(), "{looked:?}");
                // One choice needs no look.
                assert_eq!(looked.len(), if choices == 1 { 0 } else { choices.min(shards) });
            }
        }
        let adaptive = selector(Strategy::Adaptive, shards);
        let view = Watched(Vec::new().into(), shards);
        let cell = Cell::new(13);
        for _ in 0..500 {
            adaptive.select(&view, &cell);
            let looked = view.0.take();
            assert!(looked.len() == 2 && looked[0] != looked[1], "{looked:?}");
        }
    }
}

#[test]
fn every_pair_is_drawn_equally_often() {
    let mut random = SplitMix64::new(17);
    let mut counts = [0; 5 * 5];
    for _ in 0..20_000 {
        let (first, second) = two_below(&mut random, 5);
        counts[first * 5 + second] += 1;
    }
    let pairs: Vec<u32> = (0..25).filter(|pair| pair / 5 != pair % 5).map(|pair| counts[pair]).collect();
    assert_eq!(pairs.iter().sum::<u32>(), 20_000, "never a shard with itself");
    assert_even(&pairs, 20_000);
}

#[test]
fn c8_adaptive_goes_where_capacity_is_available() {
    // With two shards both are always looked at: the exhausted one must never be the answer.
    assert_eq!(histogram(Strategy::Adaptive, &Fleet::with_available(&[0, 100]), 100), [0, 100]);
    assert_eq!(histogram(Strategy::Adaptive, &Fleet::with_available(&[3, 2]), 100), [100, 0]);
    // Of four, the most exhausted is never chosen and the fullest most often: in half of all pairs.
    let counts = histogram(Strategy::Adaptive, &Fleet::with_available(&[10, 0, 40, 20]), 12_000);
    assert_eq!(counts[1], 0);
    assert!(counts[2] > counts[3] && counts[3] > counts[0] && counts[0] > 0, "{counts:?}");
    assert!(counts[2].abs_diff(6_000) < 350, "{counts:?}");
}

#[test]
fn round_robin_visits_each_shard_once_a_round() {
    let fleet = Fleet::ranked([None; 5]);
    let selector = selector(Strategy::RoundRobin, 5);
    let starts: HashSet<usize> = (0..100)
        .map(|seed| {
            let cell = Cell::new(seed);
            let round: Vec<usize> = (0..5).map(|_| selector.select(&fleet, &cell)).collect();
            selector.ran_dry(&cell);
            assert_eq!(selector.select(&fleet, &cell), round[0], "the walk goes on");
            assert!(round.windows(2).all(|pair| (pair[0] + 1) % 5 == pair[1]), "{round:?}");
            round[0]
        })
        .collect();
    assert_eq!(starts.len(), 5, "stripes start anywhere");
}

#[test]
fn c25_the_walk_survives_any_counter() {
    let fleet = Fleet::ranked([None; 3]);
    let selector = selector(Strategy::RoundRobin, 3);
    for start in [0, 2, 3, 1 << 31, u32::MAX - 1, u32::MAX] {
        let cell = Cell::new(1);
        cell.current.store(start, Ordering::Relaxed);
        let round: Vec<usize> = (0..4).map(|_| selector.select(&fleet, &cell)).collect();
        let first = (start % 3) as usize;
        assert_eq!(round, [first, (first + 1) % 3, (first + 2) % 3, first]);
    }
}

#[test]
fn weights_are_kept_to() {
    let weights = [0, 1, 2, 3, 0, 10, 84];
    let draws = 100_000;
    let counts = histogram(Strategy::Weighted(weights.to_vec()), &Fleet::ranked([None; 7]), draws);
    for (&count, weight) in counts.iter().zip(weights) {
        let expected = f64::from(draws * weight) / 100.0;
        assert!((f64::from(count) - expected).abs() <= 6.0 * expected.sqrt(), "{counts:?}");
    }
    // The extremes: a single weight, the largest weights, and equal ones.
    assert_eq!(histogram(Strategy::Weighted(vec![0, 0, 1]), &Fleet::ranked([None; 3]), 1_000), [0, 0, 1_000]);
    let weights = vec![u32::MAX; MAX_SHARDS];
    assert_even(
        &histogram(Strategy::Weighted(weights), &Fleet::ranked([None; MAX_SHARDS]), 1 << 20),
        1 << 20,
    );
}

#[test]
fn c14_weights_that_do_not_fit_are_an_error() {
    let error = |weights: &[u32]| Selector::new(Strategy::Weighted(weights.to_vec()), 3).unwrap_err();
    assert_eq!(error(&[1, 2]), StrategyError::Weights { given: 2, shards: 3 });
    assert_eq!(error(&[1; 4]), StrategyError::Weights { given: 4, shards: 3 });
    assert_eq!(error(&[0; 3]), StrategyError::NoWeight);
    assert_eq!(error(&[1, 2]).to_string(), "2 weights for 3 shards; there must be one for each");
}

#[test]
fn impossible_numbers_are_an_error() {
    let error = |strategy, shards| Selector::new(strategy, shards).unwrap_err();
    assert_eq!(error(Strategy::Sticky { choices: 0, period: 1 }, 4), StrategyError::NoChoices);
    assert_eq!(error(Strategy::Sticky { choices: 1, period: 0 }, 4), StrategyError::NoPeriod);
    assert_eq!(error(Strategy::BestOf { choices: 0 }, 1), StrategyError::NoChoices);
    assert_eq!(error(Strategy::Adaptive, 0), StrategyError::Shards { given: 0 });
    assert_eq!(error(Strategy::RoundRobin, 1025).to_string(), "1025 shards; allowed are 1 to 1024");
}

#[test]
fn exact_are_those_that_always_choose_the_best_of_all_shards() {
    let exact = |strategy, shards| selector(strategy, shards).is_exact();
    assert!(exact(Strategy::BestOf { choices: usize::MAX }, 8));
    assert!(exact(Strategy::BestOf { choices: 8 }, 8));
    assert!(exact(Strategy::Sticky { choices: 8, period: 1 }, 8));
    assert!(!exact(Strategy::BestOf { choices: 7 }, 8));
    assert!(!exact(Strategy::Sticky { choices: 8, period: 2 }, 8), "it stays with what was the best");
    for strategy in
        [Strategy::default(), Strategy::RoundRobin, Strategy::Weighted(vec![1; 8]), Strategy::Adaptive]
    {
        assert!(!exact(strategy, 8));
    }
    // Of one shard, each choice is the best; a custom one may still name a shard that does not exist.
    assert!(every_strategy(1).into_iter().all(|strategy| exact(strategy, 1)));
    assert!(!exact(Strategy::Custom(Box::new(Told(0))), 1));
}

#[test]
fn a_blank_cell_is_seeded_once() {
    let cell = Cell::blank();
    assert!(cell.is_blank());
    cell.seed(3);
    assert!(!cell.is_blank());
    let fleet = Fleet::ranked([Some(1); 64]);
    for strategy in [Strategy::RoundRobin, Strategy::BestOf { choices: 2 }] {
        let (seeded, fresh) = (Cell::blank(), Cell::new(3));
        seeded.seed(3);
        let selector = selector(strategy, 64);
        assert!((0..50).all(|_| selector.select(&fleet, &seeded) == selector.select(&fleet, &fresh)));
    }
    let drawn: HashSet<u32> = (0..100).map(|_| cell.draw_below(5)).collect();
    assert_eq!(drawn, (0..5).collect());
}

#[test]
fn debug_names_it() {
    assert_eq!(
        format!("{:?}", selector(Strategy::Adaptive, 3)),
        "Selector { name: \"adaptive\", shards: 3, .. }"
    );
}

#[test]
fn names() {
    let names: Vec<String> =
        every_strategy(2).into_iter().map(|strategy| selector(strategy, 2).name().to_owned()).collect();
    assert_eq!(
        names,
        ["sticky", "best_of", "best_of", "best_of", "best_of", "round_robin", "weighted", "adaptive"]
    );
    assert_eq!(selector(Strategy::RoundRobin, 1).name(), "round_robin");
    assert_eq!(format!("{:?}", Strategy::BestOf { choices: 2 }), "BestOf { choices: 2 }");
}

/// Answers whatever it is told to, or panics.
struct Told(usize);

impl SelectShard for Told {
    fn select(&self, _: &dyn ShardView, random: &mut SplitMix64) -> usize {
        random.next_u64();
        assert_ne!(self.0, 13, "unlucky");
        self.0
    }
    fn name(&self) -> &str {
        "told"
    }
}

#[test]
fn a_custom_answer_is_passed_on_raw() {
    for shards in [1, 3] {
        let fleet = Fleet::ranked(vec![None; shards]);
        let custom = |answer| selector(Strategy::Custom(Box::new(Told(answer))), shards);
        assert_eq!(custom(0).select(&fleet, &Cell::new(0)), 0);
        assert_eq!(custom(99).select(&fleet, &Cell::new(0)), 99, "the scheduler reports it");
        assert_eq!(custom(0).name(), "told");
    }
}

#[test]
fn a_custom_panic_leaves_the_cell_as_it_was() {
    let fleet = Fleet::ranked([None; 3]);
    let cell = Cell::new(5);
    let before = format!("{cell:?}");
    let custom = selector(Strategy::Custom(Box::new(Told(13))), 3);
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| custom.select(&fleet, &cell)));
    assert!(result.is_err());
    assert_eq!(format!("{cell:?}"), before);
}

#[test]
fn threads_that_meet_in_one_cell_do_no_harm() {
    const SHARDS: usize = 6;
    for strategy in every_strategy(SHARDS) {
        let name = format!("{strategy:?}");
        let selector = selector(strategy, SHARDS);
        let cell = Cell::new(21);
        let fleet = Fleet::ranked([Some(1), None, Some(1), Some(1), None, Some(2)]);
        let fleet = &fleet;
        let counts = thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        let mut counts = [0u32; SHARDS];
                        for step in 0..20_000 {
                            // Out of range panics here.
                            counts[selector.select(fleet, &cell)] += 1;
                            if step % 100 == 0 {
                                selector.ran_dry(&cell);
                            }
                        }
                        counts
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Vec<_>>()
        });
        // The choice may blur, but nobody gets stuck on one shard.
        let reached = (0..SHARDS).filter(|&shard| counts.iter().any(|counts| counts[shard] > 0)).count();
        assert!(reached >= 3, "{name}: {counts:?}");
    }
}
