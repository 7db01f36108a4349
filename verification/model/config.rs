//! A scheduler's settings, decoded from bytes.

use std::sync::Arc;

use leasehold::{
    Builder, Clock, ManualClock, Overflow, Scheduler, SelectShard, ShardView, SplitMix64, Strategy, Ties,
    Timestamp,
};

use super::resource::{Item, ModelHash, Site, probe};

/// Which strategy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// The best of all shards for each acquisition.
    Exact,
    BestOfTwo,
    Sticky {
        period: u32,
    },
    RoundRobin,
    Weighted,
    Adaptive,
    /// Always this shard, which may not exist.
    Custom {
        shard: usize,
    },
}

/// Settings.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    pub shards: usize,
    pub plan: Plan,
    pub ties: Ties,
    pub max: Option<(usize, Overflow)>,
    pub hash_mask: u64,
    pub expected: usize,
    pub seed: u64,
    /// How many resources are in the fleet before the first operation.
    pub initial: u8,
}

struct Fixed(usize);

impl SelectShard for Fixed {
    fn select(&self, _view: &dyn ShardView, _random: &mut SplitMix64) -> usize {
        probe(Site::Select);
        self.0
    }
}

/// A manual clock whose reading may be made to fail.
#[derive(Clone)]
pub struct ProbedClock(pub Arc<ManualClock>);

impl Clock for ProbedClock {
    fn now(&self) -> Timestamp {
        probe(Site::Clock);
        self.0.now()
    }
}

impl Config {
    /// Any bytes make settings; the number of shards is the caller's choice.
    pub fn decode(shards: usize, bytes: [u8; 6]) -> Config {
        let [plan, ties, max, mask, seed, initial] = bytes;
        let plan = match plan % 8 {
            0 | 1 => Plan::Exact,
            2 => Plan::BestOfTwo,
            3 => Plan::Sticky { period: 1 + u32::from(plan >> 3) },
            4 => Plan::RoundRobin,
            5 => Plan::Weighted,
            6 => Plan::Adaptive,
            _ => Plan::Custom {
                shard: if plan >> 3 == 31 { shards + 3 } else { (plan >> 3) as usize % shards },
            },
        };
        Config {
            shards,
            plan,
            ties: if ties % 2 == 0 { Ties::LeastRecent } else { Ties::MostRecent },
            max: match max % 4 {
                0 | 1 => None,
                2 => Some((1 + (max >> 2) as usize % 12, Overflow::Reject)),
                _ => Some((1 + (max >> 2) as usize % 12, Overflow::EvictWorst)),
            },
            hash_mask: [u64::MAX, 0xff, 0x3, 0][mask as usize % 4],
            expected: if mask >> 7 == 1 { 64 } else { 0 },
            seed: u64::from(seed),
            initial: initial % 25,
        }
    }

    /// Whether each acquisition promises the best of the fleet.
    pub fn is_exact(&self) -> bool {
        match self.plan {
            Plan::Custom { .. } => false,
            Plan::Exact => true,
            Plan::BestOfTwo => self.shards <= 2,
            Plan::Sticky { period } => self.shards == 1 || (period == 1 && self.shards <= 2),
            _ => self.shards == 1,
        }
    }

    /// The shard that does not exist, if the custom strategy answers one.
    pub fn bad_choice(&self) -> Option<usize> {
        match self.plan {
            Plan::Custom { shard } if shard >= self.shards => Some(shard),
            _ => None,
        }
    }

    fn strategy(&self) -> Strategy {
        match self.plan {
            Plan::Exact => Strategy::BestOf { choices: usize::MAX },
            Plan::BestOfTwo => Strategy::BestOf { choices: 2 },
            Plan::Sticky { period } => Strategy::Sticky { choices: 2, period },
            Plan::RoundRobin => Strategy::RoundRobin,
            Plan::Weighted => Strategy::Weighted((1..=self.shards as u32).collect()),
            Plan::Adaptive => Strategy::Adaptive,
            Plan::Custom { shard } => Strategy::Custom(Box::new(Fixed(shard))),
        }
    }

    pub fn build(&self, clock: &Arc<ManualClock>) -> Scheduler<Item, ModelHash> {
        self.builder(clock).build().expect("settings in range")
    }

    /// With room for so many events per shard.
    pub fn build_with_events(&self, clock: &Arc<ManualClock>, events: usize) -> Scheduler<Item, ModelHash> {
        self.builder(clock).event_capacity(events).build().expect("settings in range")
    }

    /// For more settings than these.
    pub fn builder(&self, clock: &Arc<ManualClock>) -> Builder<Item, ModelHash> {
        let mut builder = Scheduler::<Item>::builder()
            .shards(self.shards)
            .strategy(self.strategy())
            .ties(self.ties)
            .hasher(ModelHash { mask: self.hash_mask })
            .clock(ProbedClock(Arc::clone(clock)))
            .seed(self.seed)
            .expected_resources(self.expected)
            // The ring has checks of its own; a small one builds fast.
            .virtual_nodes(8);
        if let Some((max, overflow)) = self.max {
            builder = builder.max_resources(max, overflow);
        }
        builder
    }
}
