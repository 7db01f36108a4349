//! The spinlock: exclusion, and that the next owner sees what the last one wrote.
//!
//! Loom's cell reports an access that the lock does not order, so a lost exclusion and a weak unlock both fail. A lock
//! whose owner has gone must be taken, so a lost unlock fails as a branch that never ends.

use leasehold::internals::sync::{Arc, SpinLock};

use crate::{
    common::{lying_down, model, race, steps},
    driver::Setup,
    specification::Op::{Acquire, Exclude, Insert},
};

fn count(lock: &SpinLock<u32>) {
    *lock.lock() += 1;
}

/// `threads` beside the main one; every increment counts.
fn counting(threads: u32) {
    model(move || {
        let lock = Arc::new(SpinLock::new(0));
        let others: Vec<_> = (0..threads)
            .map(|_| {
                let lock = Arc::clone(&lock);
                crate::common::spawn(move || count(&lock))
            })
            .collect();
        count(&lock);
        for other in others {
            other.join().expect("no panic");
        }
        assert_eq!(*lock.lock(), threads + 1);
        assert_eq!(lock.sleepers(), 0, "everyone who lay down has got up");
    });
}

#[test]
fn two_threads() {
    counting(1);
}

/// `looks` threads look, beside one that changes what they look at.
fn looking(looks: u32) {
    model(move || {
        let lock = Arc::new(SpinLock::new(0));
        let others: Vec<_> = (0..looks)
            .map(|_| {
                let lock = Arc::clone(&lock);
                crate::common::spawn(move || *lock.lock_to_look())
            })
            .collect();
        count(&lock);
        for other in others {
            let seen = other.join().expect("no panic");
            assert!(seen <= 1, "{seen}");
        }
        assert!(!lock.is_looked_at(), "it is free");
        assert_eq!((*lock.lock(), lock.sleepers()), (1, 0));
    });
}

#[test]
fn a_look_beside_a_change() {
    looking(1);
}

#[test]
fn two_looks_beside_a_change() {
    looking(2);
}

/// From the third failed attempt on a waiter counts as going nowhere (`Spin`), which this many threads need.
#[test]
fn three_threads() {
    counting(2);
}

/// Without waiting, so without any branch that is skipped: every schedule there is.
#[test]
fn try_lock() {
    model(|| {
        let lock = Arc::new(SpinLock::new(0));
        let other = {
            let lock = Arc::clone(&lock);
            crate::common::spawn(move || lock.try_lock().map(|mut value| *value += 1).is_some())
        };
        let mine = lock.try_lock().map(|mut value| *value += 1).is_some();
        let theirs = other.join().expect("no panic");
        assert!(mine || theirs, "the lock was free for one of them");
        let value = *lock.try_lock().expect("nobody holds it");
        assert_eq!(value, u32::from(mine) + u32::from(theirs));
    });
}

/// Whoever finds the lock taken lies down, and gets up.
#[test]
fn two_threads_that_lie_down() {
    lying_down(|| counting(1));
}

/// The same at a shard's lock. Those of the pool are in `pool`.
#[test]
fn a_shard_at_which_threads_lie_down() {
    lying_down(|| race(Setup::default(), steps(&[Insert(0)]), vec![steps(&[Acquire]), steps(&[Exclude(0)])]));
}

/// The road to sleep is short in a model: a waiter lies down, is counted, gets up and takes the lock.
#[test]
fn parking() {
    model(|| {
        let lock = Arc::new(SpinLock::new(0));
        let other = {
            let lock = Arc::clone(&lock);
            crate::common::spawn(move || *lock.lock_sleeping() += 1)
        };
        *lock.lock() += 1;
        other.join().expect("no panic");
        assert_eq!((*lock.lock(), lock.sleepers()), (2, 0));
    });
}
