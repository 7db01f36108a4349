//! What is lent in a load run.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use leasehold::{Capacity, Resource};

use super::scenario::{Ranking, Scenario};

/// A resource of the fleet. Lower ranks go first: the tier, then the load, then the number of its own.
#[derive(Clone, Debug)]
pub struct Asset {
    pub index: u32,
    pub base: u32,
    pub capacity: Capacity,
    tier: u8,
    ranking: Ranking,
    /// Read by nobody: it counts by being there.
    _counted: Option<Counted>,
}

/// How many values of a fleet exist: those in it, and those that were replaced or removed and not yet freed.
#[derive(Clone, Debug, Default)]
pub struct Census(Arc<AtomicI64>);

/// One more, while it lives.
#[derive(Debug)]
struct Counted(Census);

impl Census {
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed).max(0) as u64
    }

    fn one(&self) -> Counted {
        self.0.fetch_add(1, Ordering::Relaxed);
        Counted(self.clone())
    }
}

impl Clone for Counted {
    fn clone(&self) -> Self {
        self.0.one()
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Asset {
    /// The resource at `index` with this number of its own, which counts only if ranks are fixed.
    pub fn new(scenario: &Scenario, index: u32, base: u32) -> Self {
        // Beyond the fleet are those that replace its members: see the referee.
        let lineage = index % scenario.resources;
        Asset {
            index,
            base,
            capacity: scenario.capacity_of(lineage),
            tier: scenario.tier_of(lineage),
            ranking: scenario.ranking,
            _counted: None,
        }
    }

    /// The same, counted for as long as it exists.
    pub fn counted(self, census: &Census) -> Self {
        Asset { _counted: Some(census.one()), ..self }
    }

    /// The same with another capacity: that part of it which a process has of a fleet that many share.
    #[cfg(any(test, all(feature = "cluster", unix)))]
    pub fn with_capacity(self, capacity: Capacity) -> Self {
        Asset { capacity, ..self }
    }

    /// The rank with so many leases out.
    pub fn rank(&self, in_flight: u32) -> u64 {
        let within = match self.ranking {
            Ranking::Fixed => u64::from(self.base),
            Ranking::LeastLoaded => match self.capacity {
                Capacity::Exclusive => u64::from(in_flight.min(1)) * u64::from(u32::MAX),
                Capacity::Limited(limit) => {
                    u64::from(in_flight.min(limit)) * u64::from(u32::MAX) / u64::from(limit)
                }
                // Without a limit there is no share: as busy as one of a thousand.
                Capacity::Unlimited => u64::from(in_flight.min(1_000)) * u64::from(u32::MAX) / 1_000,
            },
        };
        u64::from(self.tier) << 32 | within
    }
}

impl Resource for Asset {
    type Key = u32;
    type Priority = u64;

    fn key(&self) -> u32 {
        self.index
    }

    fn priority(&self, in_flight: u32) -> u64 {
        self.rank(in_flight)
    }

    fn capacity(&self) -> Capacity {
        self.capacity
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_census_counts_copies() {
        let census = Census::default();
        let asset = Asset::new(&Scenario::default(), 0, 0).counted(&census);
        let copy = asset.clone();
        assert_eq!(census.count(), 2);
        drop((asset, copy));
        assert_eq!(census.count(), 0);
    }

    #[test]
    fn tier_then_load_or_number() {
        let scenario =
            Scenario { tiers: 2, ranking: Ranking::LeastLoaded, capacity: vec![4], ..Scenario::default() };
        let (first, second) = (Asset::new(&scenario, 0, 9), Asset::new(&scenario, 1, 1));
        assert!(first.rank(3) < second.rank(0), "the better tier goes first however busy");
        assert!(first.rank(1) < first.rank(2));
        let fixed = Scenario { ranking: Ranking::Fixed, ..scenario };
        assert!(Asset::new(&fixed, 0, 1).rank(3) < Asset::new(&fixed, 2, 2).rank(0));
    }
}
