//! A claim of a cluster's member, and its end. After [`Fence::check`] has said that a claim is good, it is, until the deadline that was
//! known then; a claim that was lost is never good again, whatever deadline a later session has.

use std::collections::HashMap;

use leasehold::internals::{
    cluster::{Claim, Fence, Fences, Lost, Unit},
    sync::{Arc, Clock, ManualClock, Timestamp},
};

use crate::{
    common::{model, spawn},
    driver::Setup,
    wait::{at_rest, fleet},
};

fn claim() -> Claim {
    Claim { unit: Unit { name: "a".into(), index: 0 }, token: 10 }
}

/// One unit, good until 100.
fn fences() -> (Arc<Fences<u8>>, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new());
    let shared: std::sync::Arc<dyn Clock> = std::sync::Arc::new(Arc::clone(&clock));
    let fences = Arc::new(Fences::new(HashMap::from([(1, 0)]), Arc::from_std(shared)));
    fences.set_good_until(Timestamp::from_nanos(100));
    fences.admit(0, &claim(), 1);
    (fences, clock)
}

fn bind(fences: &Arc<Fences<u8>>) -> Result<Fence<u8>, Lost> {
    Fences::bind(fences, 0, None)
}

/// Whether the unit leaves.
fn takes(fences: &Fences<u8>) -> bool {
    fences.take(0, &[claim()], 1).len() == 1
}

/// The claim has ended by the clock; what it stood for is lost, and then a new session begins: it is not good for a moment.
#[test]
fn check_lose_renew() {
    model(|| {
        let (fences, clock) = fences();
        let fence = bind(&fences).expect("good");
        clock.advance_to(Timestamp::from_nanos(150));
        let other = {
            let fences = Arc::clone(&fences);
            spawn(move || {
                assert!(fences.lose(0, &[claim()]).is_empty(), "no lease is recorded");
                fences.set_good_until(Timestamp::from_nanos(200));
            })
        };
        assert_eq!(fence.check(), Err(Lost));
        other.join().expect("no panic");
        assert_eq!(fence.check(), Err(Lost));
    });
}

/// It is lost before its deadline: a check says so from some moment on.
#[test]
fn check_lose() {
    model(|| {
        let (fences, _) = fences();
        let fence = bind(&fences).expect("good");
        let other = {
            let fences = Arc::clone(&fences);
            spawn(move || drop(fences.lose(0, &[claim()])))
        };
        if fence.check() == Err(Lost) {
            assert_eq!(fence.check(), Err(Lost), "for good");
        }
        other.join().expect("no panic");
        assert_eq!(fence.check(), Err(Lost));
    });
}

/// A unit leaves, or a lease is bound to it.
#[test]
fn bind_take() {
    model(|| {
        let (fences, _) = fences();
        let other = {
            let fences = Arc::clone(&fences);
            spawn(move || takes(&fences))
        };
        let bound = bind(&fences);
        let taken = other.join().expect("no panic");
        assert_eq!(bound.is_ok(), !taken, "a unit does not leave under a fence");
        if let Ok(fence) = bound {
            assert_eq!(fence.check(), Ok(10));
            drop(fence);
            assert!(takes(&fences), "nobody names it");
        }
        assert_eq!(bind(&fences).err(), Some(Lost), "it has left");
    });
}

/// The last fence of a unit ends as it is asked for: it leaves now, or when it is asked for again.
#[test]
fn drop_take() {
    model(|| {
        let (fences, _) = fences();
        let fence = bind(&fences).expect("good");
        let other = spawn(move || drop(fence));
        let taken = takes(&fences);
        other.join().expect("no panic");
        assert!(taken || takes(&fences));
        assert_eq!(bind(&fences).err(), Some(Lost), "it has left");
    });
}

/// A lease is bound to a unit that is being lost: it is told, so that it is revoked, or was not bound.
#[test]
fn bind_lose() {
    model(|| {
        let fleet = fleet(Setup::default(), 1);
        let token = fleet.scheduler.acquire().expect("free").into_token();
        let (fences, _) = fences();
        let other = {
            let fences = Arc::clone(&fences);
            spawn(move || fences.lose(0, &[claim()]))
        };
        let bound = Fences::bind(&fences, 0, Some(token));
        let lost = other.join().expect("no panic");
        if let Ok(fence) = bound {
            assert_eq!(lost, [token], "nobody would revoke it");
            assert_eq!(fence.check(), Err(Lost));
        }
        assert_eq!(bind(&fences).err(), Some(Lost));
        fleet.scheduler.release(token).expect("still out");
        at_rest(fleet, 1);
    });
}
