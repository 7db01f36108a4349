//! A strategy of your own: which shard an acquisition tries first.
//!
//! It sees what the shards publish, without a lock, and cannot do harm: if the chosen shard has nothing, the
//! scheduler goes on by itself.

use leasehold::{Resource, Scheduler, SelectShard, ShardView, SplitMix64, Strategy};

/// Two racks; this process stands in the first one.
const NEAR: usize = 0;
const FAR: usize = 1;

struct Machine {
    name: &'static str,
    rack: usize,
}

impl Resource for Machine {
    type Key = &'static str;
    type Priority = u8;

    fn key(&self) -> &'static str {
        self.name
    }

    fn priority(&self, _in_flight: u32) -> u8 {
        0
    }

    // One shard a rack.
    fn home(&self, _shards: usize) -> Option<usize> {
        Some(self.rack)
    }
}

/// The near rack while it has more than `reserve` machines free, then the far one.
struct NearFirst {
    reserve: u32,
}

impl SelectShard for NearFirst {
    fn select(&self, view: &dyn ShardView, _random: &mut SplitMix64) -> usize {
        if view.eligible(NEAR) > self.reserve { NEAR } else { FAR }
    }

    fn name(&self) -> &str {
        "near_first"
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let machines = Scheduler::<Machine>::builder()
        .shards(2)
        .strategy(Strategy::Custom(Box::new(NearFirst { reserve: 1 })))
        .build()?;
    for (name, rack) in [("n1", NEAR), ("n2", NEAR), ("n3", NEAR), ("f1", FAR)] {
        machines.insert(Machine { name, rack })?;
    }

    let leases = (0..4).map(|_| machines.acquire()).collect::<Result<Vec<_>, _>>()?;
    let racks: Vec<usize> = leases.iter().map(|lease| lease.rack).collect();
    // The third goes far to keep one in reserve; the fourth finds the far rack empty and takes the reserve.
    assert_eq!(racks, [NEAR, NEAR, FAR, NEAR]);
    assert_eq!(machines.stats().strategy, "near_first");
    println!("racks in order of lending: {racks:?}");
    Ok(())
}
