//! The affinity ring: published as a whole, read once per decision.
//!
//! Two shards with a resource of several units each. Whatever weights are published, a lookup sees a complete ring, and an
//! acquisition by affinity finds a resource.

use leasehold::internals::{
    lookup::{DefaultReclaim, Published, Reclaim},
    ring::Ring,
    sync::Arc,
};

use crate::{
    common::{model, model_within, spawn},
    driver::{Fleet, Setup},
};

fn fleet() -> Fleet {
    let fleet = Fleet::new(Setup { shards: 2, units: 4, ..Setup::default() });
    for key in 0..2 {
        fleet.scheduler.insert(fleet.resource(key)).expect("new");
    }
    fleet
}

fn end(fleet: Arc<Fleet>) {
    let Ok(fleet) = Arc::try_unwrap(fleet) else { panic!("all threads are gone") };
    fleet.finish();
}

fn republishing(look: fn(&Fleet)) {
    model(move || {
        let fleet = Arc::new(fleet());
        let other = {
            let fleet = Arc::clone(&fleet);
            spawn(move || {
                fleet.scheduler.set_shard_weights(&[1, 3]).expect("valid");
                fleet.scheduler.set_shard_weights(&[3, 1]).expect("valid");
            })
        };
        look(&fleet);
        other.join().expect("no panic");
        end(fleet);
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

/// Weights by two threads: those of one of them are there in the end, whoever looked meanwhile, and every ring is freed once.
#[test]
fn publish_publish() {
    model_within(1, || {
        let fleet = Arc::new(fleet());
        let other = {
            let fleet = Arc::clone(&fleet);
            spawn(move || fleet.scheduler.set_shard_weights(&[0, 1]).expect("valid"))
        };
        fleet.scheduler.peek_by_affinity(&1).expect("both shards show something").check();
        fleet.scheduler.set_shard_weights(&[1, 0]).expect("valid");
        fleet.scheduler.peek_by_affinity(&2).expect("both shards show something").check();
        other.join().expect("no panic");
        let of = |id: u8| fleet.scheduler.peek_by_affinity(&id).expect("both shards show something").check();
        assert!((0..3).map(of).all(|key| key == of(3)), "all ids go to the one shard with a weight");
        end(fleet);
    });
}

/// The scheduler ends with one of two threads, of which one has just replaced the ring, and the other has looked at it.
#[test]
fn publish_end() {
    model(|| {
        let fleet = Arc::new(fleet());
        let other = {
            let fleet = Arc::clone(&fleet);
            spawn(move || {
                fleet.scheduler.set_shard_weights(&[1, 3]).expect("valid");
                let _ = Arc::try_unwrap(fleet).map(Fleet::finish);
            })
        };
        fleet.scheduler.peek_by_affinity(&1).expect("both shards show something").check();
        let _ = Arc::try_unwrap(fleet).map(Fleet::finish);
        other.join().expect("no panic");
    });
}

// The cell alone (`lookup::reclaim::published`): W and L are its steps. That a version is freed under a reader the oracle tells, or the
// seal; that one never is, loom; that one is twice, the oracle.

struct Cell<T> {
    value: Published<T>,
    reclaim: DefaultReclaim,
}

fn cell<T: Send + Sync + 'static>(value: T) -> Arc<Cell<T>> {
    // SAFETY: guards come from the reclaimer beside it.
    Arc::new(Cell { value: unsafe { Published::new(value) }, reclaim: DefaultReclaim::new() })
}

/// One load is one version, and versions are seen in order.
#[test]
fn publish_load() {
    model(|| {
        let ring = cell(Ring::new(&[1, 1], 2).expect("valid"));
        let other = {
            let ring = Arc::clone(&ring);
            spawn(move || {
                let new = Ring::new(&[1, 1, 1], 2).expect("valid");
                let old = ring.value.replace(new, &ring.reclaim.pin()).shards();
                assert_eq!(old, 2, "there was no other");
            })
        };
        {
            let guard = ring.reclaim.pin();
            let (first, second) = (ring.value.load(&guard), ring.value.load(&guard));
            assert!(first.shard_of(u64::MAX) < first.shards());
            assert!(first.shards() <= second.shards(), "versions are seen in order");
        }
        other.join().expect("no panic");
        assert_eq!(ring.value.load(&ring.reclaim.pin()).shards(), 3);
    });
}

/// W2 against W2, and a reader in one section beside both: each version is answered to one writer, but for the last.
#[test]
fn replace_replace() {
    model(|| {
        let cell = cell(0);
        let others: Vec<_> = (1..=2)
            .map(|new| {
                let cell = Arc::clone(&cell);
                spawn(move || *cell.value.replace(new, &cell.reclaim.pin()))
            })
            .collect();
        {
            let guard = cell.reclaim.pin();
            let (first, second) = (cell.value.load(&guard), cell.value.load(&guard));
            assert!((0..=2).contains(first) && (*first == 0 || *second != 0));
        }
        let mut all: Vec<u8> = others.into_iter().map(|other| other.join().expect("no panic")).collect();
        all.push(*cell.value.load(&cell.reclaim.pin()));
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2]);
    });
}

/// A version that is made of an older one never replaces a newer one.
#[test]
fn refine_refine_replace() {
    model(|| {
        let cell = cell(0);
        let others: Vec<_> = (0..2)
            .map(|_| {
                let cell = Arc::clone(&cell);
                spawn(move || cell.value.refine(&cell.reclaim.pin(), |&old| Some(old + 1)))
            })
            .collect();
        assert!(*cell.value.replace(10, &cell.reclaim.pin()) <= 2);
        assert!(*cell.value.load(&cell.reclaim.pin()) >= 10, "what was published is not taken back");
        others.into_iter().for_each(|other| other.join().expect("no panic"));
        assert!((10..=12).contains(cell.value.load(&cell.reclaim.pin())));
    });
}

/// W3 against the end of the cell and of its reclaimer.
#[test]
fn replace_end() {
    model(|| {
        let cell = cell(0);
        let other = {
            let cell = Arc::clone(&cell);
            spawn(move || *cell.value.replace(1, &cell.reclaim.pin()))
        };
        assert!(*cell.value.load(&cell.reclaim.pin()) < 2);
        drop(cell);
        assert_eq!(other.join().expect("no panic"), 0);
    });
}
