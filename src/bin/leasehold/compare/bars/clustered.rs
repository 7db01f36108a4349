//! What it costs to share the fleet with other processes: an acquisition asks nobody, but two threads watch.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use leasehold::{
    Entry, Overdue, Scheduler, SplitMix64,
    cluster::{Cluster, MemoryEngine, Share, Terms},
};

use super::{Measured, Setting};
use crate::compare::{
    cases::{Asset, Operation, side},
    measure::alternate,
};

fn empty(setting: &Setting, recorded: bool) -> Arc<Scheduler<Asset>> {
    let mut builder = Scheduler::builder().shards(setting.shards);
    if recorded {
        builder = builder.max_hold(Duration::from_secs(60)).overdue(Overdue::Revoke);
    }
    Arc::new(builder.build().expect("in range"))
}

/// A cluster requires that leases are recorded, unless told otherwise; so both sides record them.
pub fn against_alone(setting: &Setting) -> Measured {
    compare(setting, true)
}

/// With unrecorded leases, against a plain scheduler.
pub fn against_plain(setting: &Setting) -> Measured {
    compare(setting, false)
}

/// The same resources, claimed by the only member of a fleet in memory, and inserted by hand.
fn compare(setting: &Setting, recorded: bool) -> Measured {
    let mut random = SplitMix64::new(1);
    let ranks: Vec<u64> = (0..setting.resources).map(|_| random.next_u64() & Share::MAX_RANK).collect();
    let alone = empty(setting, recorded);
    let assets: Vec<Asset> = ranks.iter().zip(0..).map(|(&rank, key)| Entry::new(key, rank, key)).collect();
    assert!(alone.insert_batch(assets).is_ok(), "the keys are distinct");

    let shared = empty(setting, recorded);
    let cluster = Cluster::builder("compare")
        .terms(Terms::default().floor(setting.resources).unrecorded_leases(!recorded))
        .shares(ranks.iter().zip(0u64..).map(|(&rank, key)| Share::new(key.to_string(), rank)))
        .start(MemoryEngine::new(), &shared, |share, _| {
            let key = share.name.parse().expect("it was written above");
            Entry::new(key, share.rank, key)
        })
        .expect("the engine is in memory");
    let began = Instant::now();
    while cluster.stats().lendable < setting.resources {
        assert!(
            began.elapsed() < Duration::from_secs(120),
            "not everything was claimed: {:?}",
            cluster.stats()
        );
        thread::sleep(Duration::from_millis(10));
    }
    let pair = |scheduler| side::<Scheduler<Asset>>(Operation::AcquireRelease, scheduler);
    let times = alternate(&setting.plan(), &pair(&shared), &pair(&alone));
    let stats = cluster.stats();
    assert!(stats.renewals > 1 && stats.losses == 0, "it was claimed all the time: {stats:?}");
    Measured::Ratio(times)
}
