//! A resource of the fleet as the scheduler sees it.

use leasehold::{Capacity, Resource};

use super::Spec;

/// What is lent. The better tier comes first; inside a tier, the smaller load for its size and weight.
#[derive(Clone, Debug)]
pub struct Server {
    /// Position in the fleet file; the key.
    pub index: u32,
    tier: u8,
    slots: u32,
    weight: u32,
}

impl Server {
    pub fn new(index: u32, spec: &Spec) -> Self {
        Server { index, tier: spec.tier, slots: spec.max_in_flight, weight: spec.weight }
    }
}

impl Resource for Server {
    type Key = u32;
    /// Tier, then load.
    type Priority = (u8, u16);

    fn key(&self) -> u32 {
        self.index
    }

    /// The load is the share of the slots in use, in 65,535ths, divided by the weight: at weight 2 a resource looks half
    /// as busy as it is, and gets twice its share.
    fn priority(&self, in_flight: u32) -> (u8, u16) {
        let full = u64::from(self.slots) * u64::from(self.weight);
        let load = u64::from(in_flight.min(self.slots)) * u64::from(u16::MAX) / full;
        (self.tier, load as u16)
    }

    fn capacity(&self) -> Capacity {
        Capacity::Limited(self.slots)
    }
}

#[cfg(test)]
mod tests {
    use leasehold::Priority;

    use super::*;

    #[test]
    fn tier_first_then_load() {
        let small = Server { index: 0, tier: 1, slots: 4, weight: 1 };
        let large = Server { index: 1, tier: 1, slots: 8, weight: 1 };
        let heavy = Server { index: 2, tier: 1, slots: 4, weight: 2 };
        let better = Server { index: 3, tier: 0, slots: 1, weight: 1 };
        assert!(better.priority(1).rank() < small.priority(0).rank());
        assert!(large.priority(1).rank() < small.priority(1).rank());
        assert_eq!(large.priority(2).rank(), small.priority(1).rank());
        assert_eq!(heavy.priority(2).rank(), small.priority(1).rank());
        let largest = Server { index: 4, tier: 255, slots: 65_536, weight: 1 };
        assert_eq!(largest.priority(65_536), (255, u16::MAX));
    }
}
