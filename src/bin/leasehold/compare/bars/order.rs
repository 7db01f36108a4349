//! Rank error: how many eligible resources were strictly better than the one lent.

use leasehold::{Scheduler, Strategy, baseline::Lend};

use super::{Measured, Setting};
use crate::compare::{
    cases::{Asset, Operation, fleet, side},
    measure::run,
};

/// Acquisitions that a mean rests on. Those of one fleet depend on each other, so there are many fleets.
const ACQUISITIONS: u64 = 200_000;

pub fn best_of_two(setting: &Setting) -> Measured {
    mean(setting, 2)
}

pub fn best_of_all(setting: &Setting) -> Measured {
    mean(setting, usize::MAX)
}

/// Leases are taken and kept until half of the fleet is out, then from another fleet: the model for which the error is
/// known.
fn mean(setting: &Setting, choices: usize) -> Measured {
    let (mut errors, mut acquisitions) = (0, 0);
    let mut seed = 1;
    while acquisitions < ACQUISITIONS {
        let builder = Scheduler::builder().shards(setting.shards).seed(seed);
        let scheduler = builder.strategy(Strategy::BestOf { choices }).build().expect("in range");
        fleet(&scheduler, setting.resources);
        let some = (setting.resources / 2).max(1);
        errors += errors_of(&scheduler, some);
        acquisitions += u64::from(some);
        seed += 1;
    }
    Measured::Figure(errors as f64 / acquisitions as f64)
}

/// After two threads have worked on a fleet in strict order, all is lent by one: each must be the best that is left.
pub fn strict_at_quiescence(setting: &Setting) -> Measured {
    let scheduler = setting.scheduler(Strategy::BestOf { choices: usize::MAX });
    run(&setting.plan(), 0, &side(Operation::AcquireRelease, &scheduler));
    let errors = errors_of(&scheduler, setting.resources);
    Measured::Figure(errors as f64 / f64::from(setting.resources))
}

/// The sum of the rank errors of `acquisitions`, whose leases are kept until the end.
fn errors_of(scheduler: &Scheduler<Asset>, acquisitions: u32) -> u64 {
    let mut ranks: Vec<u64> = (0..scheduler.len() as u64)
        .map(|key| scheduler.get_with(&key, |asset| asset.priority).expect("all keys are there"))
        .collect();
    ranks.sort_unstable();
    let mut eligible = Prefixes::ones(ranks.len());
    let mut errors = 0;
    let leases: Vec<_> = (0..acquisitions)
        .map(|_| {
            let lease = scheduler.acquire().expect("there are enough");
            // The first of its rank: equals are not better.
            let position = ranks.partition_point(|&rank| rank < lease.priority);
            errors += eligible.below(position);
            eligible.take(position);
            lease
        })
        .collect();
    drop(leases);
    errors
}

/// Sums of the first n of many counters (a Fenwick tree).
struct Prefixes(Vec<u64>);

impl Prefixes {
    fn ones(count: usize) -> Self {
        // The node of index i covers as many counters as its lowest bit says.
        Prefixes((0..=count).map(|index| 1 << index.trailing_zeros().min(63)).collect())
    }

    /// The sum of the counters before `position`.
    fn below(&self, position: usize) -> u64 {
        let (mut index, mut sum) = (position, 0);
        while index > 0 {
            sum += self.0[index];
            index &= index - 1;
        }
        sum
    }

    /// Takes one off the counter at `position`.
    fn take(&mut self, position: usize) {
        let mut index = position + 1;
        while index < self.0.len() {
            self.0[index] -= 1;
            index += index & index.wrapping_neg();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_sums() {
        let mut prefixes = Prefixes::ones(10);
        assert_eq!(prefixes.below(10), 10);
        prefixes.take(3);
        prefixes.take(9);
        assert_eq!([0, 3, 4, 9, 10].map(|position| prefixes.below(position)), [0, 3, 3, 8, 8]);
    }

    #[test]
    fn errors_are_those_of_a_plain_count() {
        let scheduler = Scheduler::<Asset>::builder().shards(4).seed(1).build().unwrap();
        fleet(&scheduler, 50);
        let errors = errors_of(&scheduler, 30);
        // The same seed, so the same choices, counted one by one.
        let scheduler = Scheduler::<Asset>::builder().shards(4).seed(1).build().unwrap();
        fleet(&scheduler, 50);
        let mut left: Vec<u64> =
            (0..50).map(|key| scheduler.get_with(&key, |asset| asset.priority).unwrap()).collect();
        let mut expected = 0;
        let mut leases = Vec::new();
        for _ in 0..30 {
            let lease = scheduler.acquire().unwrap();
            expected += left.iter().filter(|&&rank| rank < lease.priority).count() as u64;
            left.retain(|&rank| rank != lease.priority);
            leases.push(lease);
        }
        assert_eq!(errors, expected);
        assert!(errors > 0);
    }
}
