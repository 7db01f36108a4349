//! Rank errors and delays against an exact view.
//!
//! A steady state: half of the fleet is out, at most 50,000 of it. One of those that are out, drawn at random, comes back,
//! and the next one is asked for. The view beside it is two Fenwick trees, by rank: of what is in, and of what was lent.

use leasehold::{Lease, SplitMix64};

use super::{Fleet, Item};

/// Both sides of what order was lost: each time that a worse one is lent while a better one can be had, the one's rank error and the
/// other's delay grow by one.
pub struct Quality {
    /// Of each lending: how many better ones could be had.
    pub errors: Summary,
    /// Of each that was lent: how many worse ones were lent while it could be had.
    pub delays: Summary,
}

pub struct Summary {
    pub mean: f64,
    pub p99: u64,
    pub max: u64,
}

impl Summary {
    fn of(mut values: Vec<u64>) -> Self {
        values.sort_unstable();
        let at = |share: f64| values[((values.len() - 1) as f64 * share) as usize];
        let mean = values.iter().sum::<u64>() as f64 / values.len() as f64;
        Summary { mean, p99: at(0.99), max: at(1.0) }
    }
}

/// Counts below a place, each O(log n).
struct Counts(Vec<i64>);

impl Counts {
    fn full(size: usize) -> Self {
        let mut counts = vec![0; size + 1];
        for at in 1..=size {
            counts[at] += 1;
            let next = at + (at & at.wrapping_neg());
            if next <= size {
                counts[next] += counts[at];
            }
        }
        Counts(counts)
    }

    fn none(size: usize) -> Self {
        Counts(vec![0; size + 1])
    }

    fn add(&mut self, place: usize, count: i64) {
        let mut at = place + 1;
        while at < self.0.len() {
            self.0[at] += count;
            at += at & at.wrapping_neg();
        }
    }

    fn below(&self, place: usize) -> u64 {
        let (mut at, mut sum) = (place, 0);
        while at > 0 {
            sum += self.0[at];
            at -= at & at.wrapping_neg();
        }
        sum as u64
    }
}

/// Ranks 0 to n - 1 in a random order.
pub fn permutation(size: u32, seed: u64) -> Vec<u32> {
    let mut random = SplitMix64::new(seed);
    let mut ranks: Vec<u32> = (0..size).collect();
    for left in (1..ranks.len()).rev() {
        ranks.swap(left, random.below(left as u32 + 1) as usize);
    }
    ranks
}

/// The fleet and the exact view beside it.
struct View<'f> {
    fleet: &'f Fleet,
    /// What is in, by rank.
    there: Counts,
    /// How often each rank was lent, and all together.
    lent: Counts,
    lendings: u64,
    /// Of each rank, the worse ones that had been lent when it came in.
    before: Vec<u64>,
}

impl<'f> View<'f> {
    fn new(fleet: &'f Fleet, resources: u32) -> Self {
        let size = resources as usize;
        let (there, lent) = (Counts::full(size), Counts::none(size));
        View { fleet, there, lent, lendings: 0, before: vec![0; size] }
    }

    /// How often a worse one than this was lent, from the beginning.
    fn worse_lent(&self, rank: usize) -> u64 {
        self.lendings - self.lent.below(rank + 1)
    }

    /// Lends one: with its rank error, and its delay.
    fn take(&mut self) -> (Lease<'f, Item>, u64, u64) {
        let lease = self.fleet.acquire().expect("half of the fleet is in");
        let rank = lease.priority as usize;
        let error = self.there.below(rank);
        let delay = self.worse_lent(rank) - self.before[rank];
        self.there.add(rank, -1);
        self.lent.add(rank, 1);
        self.lendings += 1;
        (lease, error, delay)
    }

    fn give_back(&mut self, lease: Lease<'f, Item>) {
        let rank = lease.priority as usize;
        drop(lease);
        self.there.add(rank, 1);
        self.before[rank] = self.worse_lent(rank);
    }
}

pub fn measure(fleet: &Fleet, resources: u32, samples: u32, seed: u64) -> Quality {
    let out = (resources / 2).min(50_000) as usize;
    let mut random = SplitMix64::new(SplitMix64::mix(seed));
    let mut view = View::new(fleet, resources);
    let mut leases: Vec<Lease<'_, Item>> = (0..out).map(|_| view.take().0).collect();
    let (mut errors, mut delays) = (Vec::new(), Vec::new());
    // A fleet's worth of steps first, so that where it began is forgotten.
    let warm_up = (out * 4).min(200_000);
    for step in 0..warm_up + samples as usize {
        let place = random.below(leases.len() as u32) as usize;
        view.give_back(leases.swap_remove(place));
        let (lease, error, delay) = view.take();
        leases.push(lease);
        if step >= warm_up {
            errors.push(error);
            delays.push(delay);
        }
    }
    Quality { errors: Summary::of(errors), delays: Summary::of(delays) }
}

#[cfg(test)]
mod tests {
    use leasehold::Strategy;

    use super::*;

    #[test]
    fn counts_what_is_below() {
        let mut counts = Counts::full(10);
        assert_eq!((counts.below(0), counts.below(7), counts.below(10)), (0, 7, 10));
        counts.add(3, -1);
        assert_eq!((counts.below(3), counts.below(4)), (3, 3));
    }

    #[test]
    fn the_exact_order_has_no_error_and_others_have() {
        let errors = |choices| {
            let builder = Fleet::builder().shards(4).strategy(Strategy::BestOf { choices }).seed(1);
            let fleet = builder.build().unwrap();
            let ranks = permutation(200, 3);
            ranks.iter().zip(0..).for_each(|(&rank, key)| fleet.insert(Item::new(key, rank, ())).unwrap());
            measure(&fleet, 200, 2_000, 1)
        };
        let exact = errors(usize::MAX);
        for summary in [exact.errors, exact.delays] {
            assert_eq!((summary.mean, summary.max), (0.0, 0));
        }
        let (one, two) = (errors(1), errors(2));
        for (summary, worse) in [(two.errors, one.errors), (two.delays, one.delays)] {
            let mean = summary.mean;
            assert!(mean > 0.5 && mean < 10.0 && summary.p99 <= summary.max, "{mean}");
            assert!(worse.mean > mean, "{} {mean}", worse.mean);
        }
    }

    /// Each inversion is somebody's rank error and somebody's delay: from the first lending to the last, with those that still wait to be
    /// lent, the sums are equal. And the delay of each is what a plain look at all of them counts.
    #[test]
    fn what_one_gains_others_wait_for() {
        let builder = Fleet::builder().shards(4).strategy(Strategy::BestOf { choices: 1 }).seed(1);
        let fleet = builder.build().unwrap();
        let size = 60;
        let ranks = permutation(size, 3);
        ranks.iter().zip(0..).for_each(|(&rank, key)| fleet.insert(Item::new(key, rank, ())).unwrap());
        let mut view = View::new(&fleet, size);
        let mut plain: Vec<Option<u64>> = vec![Some(0); size as usize];
        let mut random = SplitMix64::new(5);
        let (mut leases, mut errors, mut delays) = (Vec::new(), 0, 0);
        for step in 0..3_000 {
            if step >= 30 {
                let back: Lease<'_, Item> = leases.swap_remove(random.below(leases.len() as u32) as usize);
                plain[back.priority as usize] = Some(0);
                view.give_back(back);
            }
            let (lease, error, delay) = view.take();
            let rank = lease.priority as usize;
            assert_eq!(plain[rank].take(), Some(delay));
            plain[..rank].iter_mut().flatten().for_each(|waited| *waited += 1);
            leases.push(lease);
            errors += error;
            delays += delay;
        }
        let still: u64 = plain.iter().flatten().sum();
        assert_eq!(errors, delays + still);
        assert!(delays > 1_000, "{delays}");
    }
}
