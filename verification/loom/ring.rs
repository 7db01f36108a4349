//! The affinity ring: published as a whole, read once per decision.
//!
//! Two shards with a resource of several units each. Whatever weights are published, a lookup sees a complete ring, and an
//! acquisition by affinity finds a resource.

use leasehold::internals::sync::Arc;

use crate::{
    common::model,
    driver::{Fleet, Setup},
};

fn republishing(look: fn(&Fleet)) {
    model(move || {
        let fleet = Arc::new(Fleet::new(Setup { shards: 2, units: 4, ..Setup::default() }));
        for key in 0..2 {
            fleet.scheduler.insert(fleet.resource(key)).expect("new");
        }
        let other = {
            let fleet = Arc::clone(&fleet);
            crate::common::spawn(move || {
                fleet.scheduler.set_shard_weights(&[1, 3]).expect("valid");
                fleet.scheduler.set_shard_weights(&[3, 1]).expect("valid");
            })
        };
        look(&fleet);
        other.join().expect("no panic");
        let Ok(fleet) = Arc::try_unwrap(fleet) else { panic!("all threads are gone") };
        fleet.finish();
    });
}

#[test]
fn publish_peek() {
    republishing(|fleet| {
        for id in 0..3 {
            fleet.scheduler.peek_by_affinity(&id).expect("both shards show something").check();
        }
    });
}

#[test]
fn publish_acquire() {
    republishing(|fleet| {
        fleet.scheduler.acquire_by_affinity(&1).expect("both shards have some").check();
        fleet.scheduler.acquire_by_affinity(&2).expect("both shards have some").check();
    });
}

/// One snapshot is one version: the same id, asked twice of it, has the same shard.
#[test]
fn publish_load() {
    use leasehold::internals::{ring::Ring, sync::Published};
    model(|| {
        let ring = Arc::new(Published::new(Ring::new(&[1, 1], 2).expect("valid")));
        let other = {
            let ring = Arc::clone(&ring);
            crate::common::spawn(move || ring.store(Ring::new(&[1, 1, 1], 2).expect("valid")))
        };
        let (first, second) = {
            let (first, second) = (ring.load(), ring.load());
            assert!(first.shard_of(u64::MAX) < first.shards());
            (first.shards(), second.shards())
        };
        assert!(first <= second, "versions are seen in order");
        other.join().expect("no panic");
        assert_eq!(ring.load().shards(), 3);
    });
}
