//! What is drawn comes from the seed, the round, the worker, the number of the request and the purpose: no draw depends on how many were made
//! before. So a scenario with cancellations has the same moments, lengths and wishes as the same one without, and a request that is
//! never sent shifts nobody else's luck.

use leasehold::SplitMix64;
use rand::{SeedableRng, rngs::SmallRng};

/// What something is drawn for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// When requests are sent: one after the other, whatever is drawn for each of them.
    Moments,
    Hold,
    Delay,
    /// What is asked for.
    Wish,
    /// Whether the caller gives up, and when.
    Patience,
    /// What the backend does.
    Fate,
    /// How the lease is returned.
    Return,
    /// Whether the order is looked at.
    Look,
}

/// The draws of one worker in one round.
#[derive(Clone, Copy, Debug)]
pub struct Draws(u64);

impl Draws {
    pub fn new(seed: u64, round: u32, worker: u32) -> Self {
        let own = u64::from(round) << 40 | u64::from(worker);
        // The seed mixed by itself first: else the next seed's first worker would be this seed's second.
        Draws(SplitMix64::mix(SplitMix64::mix(seed) ^ own))
    }

    /// A generator for this purpose of this request.
    pub fn of(self, purpose: Purpose, request: u64) -> SmallRng {
        // Far more requests than there will be, so that no two purposes meet.
        SmallRng::seed_from_u64(SplitMix64::mix(self.0 ^ ((purpose as u64) << 56 | request)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use rand::Rng;

    use super::*;

    #[test]
    fn no_two_draws_are_one() {
        let purposes = [
            Purpose::Moments,
            Purpose::Hold,
            Purpose::Delay,
            Purpose::Wish,
            Purpose::Patience,
            Purpose::Fate,
            Purpose::Return,
            Purpose::Look,
        ];
        let mut seen = HashSet::new();
        let mut all = 0;
        for (seed, round, worker) in [(1, 0, 0), (2, 0, 0), (1, 1, 0), (1, 0, 1), (1, 1, 1)] {
            for purpose in purposes {
                for request in 0..50 {
                    seen.insert(Draws::new(seed, round, worker).of(purpose, request).next_u64());
                    all += 1;
                }
            }
        }
        assert_eq!(seen.len(), all);
        let again = |draws: Draws| draws.of(Purpose::Fate, 7).next_u64();
        assert_eq!(again(Draws::new(3, 4, 5)), again(Draws::new(3, 4, 5)));
    }
}
