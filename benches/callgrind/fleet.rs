//! What the counted operations work on. Nothing here is counted but [`random_keys`], which is the same in all cases.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    future::Future,
    pin::pin,
    sync::Mutex,
    task::{Context, Poll, Waker},
};

use foldhash::quality::FixedState;
use leasehold::{
    Scheduler, SplitMix64,
    baseline::{Lend, MutexScheduler},
};
use leasehold_benches::{Asset, Loaded, RESOURCES, SHARDS, assets, fill, fill_loaded};

/// How often a case repeats its operation.
pub const TIMES: u32 = 1_000;

pub type Fleet = Scheduler<Asset, FixedState>;
pub type Least = Scheduler<Loaded, FixedState>;
pub type Mutexed = MutexScheduler<Asset>;
pub type Bare = Mutex<BinaryHeap<Reverse<(u64, u32)>>>;

/// Everything that is done once for each thread or scheduler has been done.
pub fn fleet() -> Fleet {
    let builder = Scheduler::builder().hasher(FixedState::default()).shards(SHARDS).seed(1);
    let fleet = fill(builder.build().expect("in range"), RESOURCES);
    for id in random_keys() {
        drop(fleet.acquire_by_affinity(&id).expect("one is free"));
        drop(fleet.acquire().expect("one is free"));
    }
    fleet
}

/// As [`fleet`], after an update of each: so what another update supersedes is memory of its own, and is freed.
pub fn changed() -> Fleet {
    let fleet = fleet();
    for key in 0..u64::from(RESOURCES) {
        assert!(fleet.update(Asset::new(key, key, 0)).is_ok(), "known");
    }
    fleet
}

/// An empty fleet, and what is to be inserted.
pub fn batch() -> (Fleet, Vec<Asset>) {
    let builder = Scheduler::builder().hasher(FixedState::default()).shards(SHARDS).seed(1);
    let mut random = SplitMix64::new(3);
    let assets = (0..u64::from(TIMES)).map(|key| Asset::new(key, random.next_u64(), key)).collect();
    (builder.build().expect("in range"), assets)
}

pub fn least() -> Least {
    let builder = Scheduler::builder().hasher(FixedState::default()).shards(SHARDS).seed(1);
    let fleet = fill_loaded(builder.build().expect("in range"));
    (0..TIMES).for_each(|_| drop(fleet.acquire().expect("one is free")));
    fleet
}

pub fn mutexed() -> Mutexed {
    let fleet = fill(MutexScheduler::new(), RESOURCES);
    (0..TIMES).for_each(|_| drop(fleet.acquire().expect("one is free")));
    fleet
}

pub fn bare() -> Bare {
    Mutex::new(assets(RESOURCES).iter().map(|asset| Reverse((asset.priority, asset.key as u32))).collect())
}

/// The same keys of the fleet in each case.
pub fn random_keys() -> impl Iterator<Item = u64> {
    let mut random = SplitMix64::new(2);
    (0..TIMES).map(move |_| u64::from(random.below(RESOURCES)))
}

/// A key that is not in the fleet.
pub fn once(key: u64) -> u64 {
    key + (1 << 32)
}

/// What a future answers that is ready at its first poll.
pub fn ready<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("one is free"),
    }
}
