//! Rank errors against an exact view.
//!
//! A steady state: half of the fleet is out, at most 50,000 of it. One of those that are out, drawn at random, comes back,
//! and the next one is asked for. The view beside it is a Fenwick tree of what is in, by rank.

use leasehold::{Lease, SplitMix64};

use super::{Fleet, Item};

pub struct Errors {
    pub mean: f64,
    pub p99: u64,
    pub max: u64,
}

/// Counts below a place, each O(log n).
struct Counts(Vec<i32>);

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

    fn add(&mut self, place: usize, count: i32) {
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

pub fn measure(fleet: &Fleet, resources: u32, samples: u32, seed: u64) -> Errors {
    let out = (resources / 2).min(50_000) as usize;
    let mut random = SplitMix64::new(SplitMix64::mix(seed));
    let mut counts = Counts::full(resources as usize);
    let take = |counts: &mut Counts| {
        let lease = fleet.acquire().expect("half of the fleet is in");
        let rank = lease.priority as usize;
        let error = counts.below(rank);
        counts.add(rank, -1);
        (lease, error)
    };
    let mut leases: Vec<Lease<'_, Item>> = (0..out).map(|_| take(&mut counts).0).collect();
    let mut errors = Vec::with_capacity(samples as usize);
    // A fleet's worth of steps first, so that where it began is forgotten.
    let warm_up = (out * 4).min(200_000);
    for step in 0..warm_up + samples as usize {
        let place = random.below(leases.len() as u32) as usize;
        let back = leases.swap_remove(place);
        counts.add(back.priority as usize, 1);
        drop(back);
        let (lease, error) = take(&mut counts);
        leases.push(lease);
        if step >= warm_up {
            errors.push(error);
        }
    }
    errors.sort_unstable();
    let at = |share: f64| errors[((errors.len() - 1) as f64 * share) as usize];
    let mean = errors.iter().sum::<u64>() as f64 / errors.len() as f64;
    Errors { mean, p99: at(0.99), max: at(1.0) }
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
        assert_eq!((exact.mean, exact.max), (0.0, 0));
        let two = errors(2);
        assert!(two.mean > 0.5 && two.mean < 10.0 && two.p99 <= two.max, "{}", two.mean);
        assert!(errors(1).mean > two.mean);
    }
}
