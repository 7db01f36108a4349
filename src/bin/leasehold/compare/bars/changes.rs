//! Changes of the fleet.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use leasehold::{
    Entry, SplitMix64, Strategy,
    baseline::{Lend, MutexScheduler},
};

use super::{Measured, Setting, pairs::mutex};
use crate::compare::{
    cases::{Asset, Operation, side},
    measure::{Turn, alternate},
};

pub fn update(setting: &Setting) -> Measured {
    against_mutex(setting, Operation::Update)
}

pub fn exclude_include(setting: &Setting) -> Measured {
    against_mutex(setting, Operation::ExcludeInclude)
}

fn against_mutex(setting: &Setting, operation: Operation) -> Measured {
    let (scheduler, mutex) = (setting.scheduler(Strategy::default()), mutex(setting));
    Measured::Ratio(alternate(&setting.plan(), &side(operation, &scheduler), &side(operation, &mutex)))
}

/// Resources of a batch.
pub const BATCH_SIZE: u32 = 1_000;

/// Each batch goes into an empty fleet, without room made ahead; making that fleet, the batch, and dropping both, are not
/// part of the time.
pub fn insert_batch(setting: &Setting) -> Measured {
    let length = setting.length;
    setting.ratio([
        Box::new(move |seed| batches(length, seed, || setting.empty(Strategy::default()))) as Turn<'_>,
        Box::new(move |seed| batches(length, seed, MutexScheduler::<Asset>::new)),
    ])
}

/// Nanoseconds for each resource.
fn batches<L: Lend<Asset>>(length: Duration, seed: u64, empty: impl Fn() -> L) -> f64 {
    let mut random = SplitMix64::new(seed);
    let mut insert = || {
        let (fleet, assets) = (empty(), batch(&mut random));
        let start = Instant::now();
        let inserted = fleet.insert_batch(assets);
        let time = start.elapsed();
        assert!(inserted.is_ok(), "the keys are distinct");
        black_box(&fleet);
        time
    };
    insert();
    let (mut time, mut batches) = (Duration::ZERO, 0);
    while time < length || batches == 0 {
        time += insert();
        batches += 1;
    }
    time.as_nanos() as f64 / f64::from(batches * BATCH_SIZE)
}

pub fn batch(random: &mut SplitMix64) -> Vec<Asset> {
    (0..u64::from(BATCH_SIZE)).map(|key| Entry::new(key, random.next_u64(), key)).collect()
}
