//! Bytes and allocations, counted by the program's own allocator.

use leasehold::{Scheduler, SplitMix64, Strategy};

use super::{Measured, Setting, changes, reads};
use crate::compare::{
    allocations::{Tally, tally},
    cases::{Asset, fleet},
    measure::{BATCH, Worker},
};

/// What a resource costs beside the user's value and its key: the key is counted once more, because the scheduler keeps
/// it apart from the value.
const OF_THE_USER: usize = size_of::<Asset>() + size_of::<u64>();

pub fn bytes(setting: &Setting) -> Measured {
    Measured::Figure(per_resource(setting, |tally| tally.bytes))
}

pub fn blocks(setting: &Setting) -> Measured {
    Measured::Figure(per_resource(setting, |tally| tally.blocks_of_glibc))
}

fn per_resource(setting: &Setting, bytes: fn(&Tally) -> i64) -> f64 {
    let scheduler = setting.empty(Strategy::default());
    settle(&scheduler);
    // The shards and all else that does not grow with the fleet are not counted.
    let ((), tally) = tally(|| {
        fleet(&scheduler, setting.resources);
        settle(&scheduler);
    });
    bytes(&tally) as f64 / f64::from(setting.resources) - OF_THE_USER as f64
}

/// Lets the reclaimer free what it can, of this scheduler or of another that the process had: looking drives it.
fn settle(scheduler: &Scheduler<Asset>) {
    for _ in 0..10_000 {
        let ((), tally) = tally(|| (0..1_000).for_each(|_| drop(scheduler.peek())));
        if tally.bytes == 0 {
            break;
        }
    }
}

/// Allocations for each resource of a batch.
pub fn batch_allocations(setting: &Setting) -> Measured {
    let (scheduler, batch) = (setting.empty(Strategy::default()), changes::batch(&mut SplitMix64::new(1)));
    let (inserted, tally) = tally(|| scheduler.insert_batch(batch));
    assert!(inserted.is_ok(), "the keys are distinct");
    Measured::Figure(tally.allocations as f64 / f64::from(changes::BATCH_SIZE))
}

/// Allocations for each look by affinity, after the first, which builds the ring.
pub fn affinity_allocations(setting: &Setting) -> Measured {
    let scheduler = setting.scheduler(Strategy::default());
    let mut worker = Worker::new(0, setting.resources, 1);
    let look = reads::by_affinity(&scheduler);
    look(&mut worker);
    let ((), tally) = tally(|| look(&mut worker));
    Measured::Figure(tally.allocations as f64 / f64::from(BATCH))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_resource_costs_something() {
        let setting =
            Setting { threads: 1, resources: 1_000, shards: 2, pairs: 5, length: Duration::from_millis(1) };
        let measured = || {
            let bytes = per_resource(&setting, |tally| tally.bytes);
            (bytes, per_resource(&setting, |tally| tally.blocks_of_glibc))
        };
        // What other tests of this process have retired may be freed in between, but not each time.
        let tries: Vec<_> = (0..5).map(|_| measured()).collect();
        let plausible = |&(asked, blocks): &(f64, f64)| 16.0 < asked && asked < blocks && blocks < 1_000.0;
        assert!(tries.iter().any(plausible), "{tries:?}");
    }
}
