//! Callbacks that call the scheduler that called them: from every method of the resource, from a filter, from an update,
//! and from `Drop`. On the test's own thread: what others run of its drops calls nobody.
//!
//! Cost: nothing to speak of.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::sync::{
    Arc, OnceLock, Weak,
    atomic::{AtomicU32, Ordering},
};

use leasehold::{Capacity, Entry, InsertError, Resource, Scheduler};

/// Calls the scheduler that it is in, from every one of its callbacks.
struct Caller {
    key: u8,
    home: Arc<OnceLock<Weak<Scheduler<Caller>>>>,
    calls: Arc<AtomicU32>,
}

thread_local! {
    /// Nobody calls back from inside; and no other thread at all, which may run drops at any time.
    static INSIDE: std::cell::Cell<bool> = const { std::cell::Cell::new(true) };
    static DROPS: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

impl Caller {
    fn call(&self) {
        let Some(fleet) = self.home.get().and_then(Weak::upgrade) else { return };
        // One level is enough, and each level would go through all callbacks again.
        if INSIDE.replace(true) {
            return;
        }
        self.calls.fetch_add(1, Ordering::Relaxed);
        let other = Caller { key: 100, home: Arc::clone(&self.home), calls: Arc::clone(&self.calls) };
        let _ = fleet.insert(other);
        drop(fleet.acquire());
        drop(fleet.acquire_key(&1));
        drop(fleet.acquire_where(|caller| caller.key == 2));
        drop(fleet.peek());
        let _ = fleet.cool(&1, std::time::Duration::from_nanos(1));
        let _ = fleet.warm(&1);
        let _ = fleet.update_with(&2, |old| Caller {
            key: old.key,
            home: Arc::clone(&old.home),
            calls: Arc::clone(&old.calls),
        });
        let _ = fleet.remove(&100);
        let _ = (fleet.stats(), fleet.snapshot().len());
        INSIDE.set(false);
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        // A drop that calls leaves two more to be dropped later: if all of them did, there would be no end of it.
        if DROPS.replace(DROPS.get() + 1).is_multiple_of(4) {
            self.call();
        }
    }
}

impl Resource for Caller {
    type Key = u8;
    type Priority = u32;

    fn key(&self) -> u8 {
        self.call();
        self.key
    }

    fn priority(&self, in_flight: u32) -> u32 {
        self.call();
        in_flight
    }

    fn capacity(&self) -> Capacity {
        self.call();
        Capacity::Limited(3)
    }

    fn home(&self, _shards: usize) -> Option<usize> {
        self.call();
        None
    }
}

#[test]
fn every_callback_may_call_the_scheduler() {
    INSIDE.set(false);
    let home = Arc::new(OnceLock::new());
    let calls = Arc::new(AtomicU32::new(0));
    let caller = |key| Caller { key, home: Arc::clone(&home), calls: Arc::clone(&calls) };
    let fleet = Arc::new(Scheduler::<Caller>::builder().shards(2).build().unwrap());
    fleet.insert_batch(vec![caller(1), caller(2)]).map_err(|rejected| rejected.error).unwrap();
    home.set(Arc::downgrade(&fleet)).ok().unwrap();
    for key in 3..9 {
        assert!(fleet.insert(caller(key)).is_ok());
    }
    for _ in 0..50 {
        let lease = fleet.acquire().unwrap();
        let filtered = fleet.acquire_where(|candidate| {
            candidate.call();
            candidate.key >= 3
        });
        assert!(fleet.update(caller(4)).is_ok());
        let _ = fleet.update_with(&5, |old| {
            old.call();
            caller(5)
        });
        drop((lease, filtered));
        fleet.remove(&6).unwrap();
        assert!(fleet.insert(caller(6)).is_ok());
        leasehold::collect_garbage();
        let stats = fleet.stats();
        assert_eq!((stats.members, stats.eligible, stats.in_flight), (8, 8, 0));
        #[cfg(feature = "internals")]
        fleet.check_invariants();
    }
    assert!(calls.load(Ordering::Relaxed) > 500, "hardly anybody called");
    INSIDE.set(true);
}

/// A key whose `Eq` inserts a batch.
#[derive(Clone, Debug)]
struct Batching(u8);

type BatchingFleet = Scheduler<Entry<Batching, u32, ()>>;

thread_local! {
    static FLEET: std::cell::RefCell<Option<Arc<BatchingFleet>>> =
        const { std::cell::RefCell::new(None) };
    static REFUSED: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

impl std::hash::Hash for Batching {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl PartialEq for Batching {
    fn eq(&self, other: &Self) -> bool {
        if let Some(fleet) = FLEET.take() {
            let batch = vec![Entry::new(Batching(50), 0, ()), Entry::new(Batching(51), 0, ())];
            if fleet.insert_batch(batch).is_err_and(|rejected| rejected.error == InsertError::Reentered) {
                REFUSED.set(REFUSED.get() + 1);
            }
            FLEET.set(Some(fleet));
        }
        self.0 == other.0
    }
}

impl Eq for Batching {}

#[test]
fn a_batch_inside_a_batch_is_refused() {
    let fleet = Arc::new(Scheduler::builder().shards(2).build().expect("in range"));
    fleet.insert(Entry::new(Batching(1), 0, ())).expect("new");
    FLEET.set(Some(Arc::clone(&fleet)));
    let batch = vec![Entry::new(Batching(2), 0, ()), Entry::new(Batching(1), 0, ())];
    let rejected = fleet.insert_batch(batch).expect_err("one exists");
    FLEET.take();
    assert!(matches!(rejected.error, InsertError::Duplicate { key: Batching(1) }));
    assert!(REFUSED.get() > 0, "nobody has compared keys");
    assert_eq!(fleet.len(), 1);
    // The turn is free again.
    fleet.insert_batch(vec![Entry::new(Batching(2), 0, ())]).expect("new");
}
