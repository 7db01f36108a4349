//! Closing against everything that lends or changes the fleet: what began before may succeed or be refused, what begins
//! afterwards is refused, and a return always lands.

use leasehold::{AcquireError, WeightsError, internals::sync::Arc};

use crate::{
    common::{model, race, race_then, steps},
    driver::{
        Actor, Fleet, Setup,
        Step::{self, Release, ReleaseAfter},
    },
    specification::{
        Answer,
        Op::{self, *},
    },
};

/// `main` against a close; afterwards everything is refused.
fn closing(before: &[Op], main: Vec<Step>) {
    race_then(Setup::default(), steps(before), vec![main, steps(&[Close])], Vec::new(), |fleet, _| {
        refuses_everything(fleet);
    });
}

fn refuses_everything(fleet: &Fleet) {
    assert!(fleet.scheduler.is_closed());
    assert!(!fleet.scheduler.close(), "it was closed once");
    let ops = [
        Acquire,
        AcquireKey(0),
        Insert(5),
        InsertBatch(4, 2),
        Remove(0),
        Update(0),
        UpdateWith(0),
        Exclude(0),
        Include(0),
        Cool(0),
        Warm(0),
        Drain(0),
        Undrain(0),
    ];
    let mut actor = Actor::new(fleet, 9);
    for op in ops {
        actor.step(Step::Do(op));
        let answer = actor.events.last().expect("just recorded").answer;
        assert_eq!(answer, Answer::Closed, "{op:?} after the close");
    }
    assert!(matches!(fleet.scheduler.acquire_where(|_| true).err(), Some(AcquireError::Closed)));
    assert!(matches!(fleet.scheduler.acquire_by_affinity(&1).err(), Some(AcquireError::Closed)));
    assert_eq!(fleet.scheduler.set_shard_weights(&[1]), Err(WeightsError::Closed));
    assert!(fleet.scheduler.evict_worst().is_none());
}

#[test]
fn close_acquire() {
    closing(&[Insert(0)], steps(&[Acquire]));
}

#[test]
fn close_acquire_key() {
    closing(&[Insert(0)], steps(&[AcquireKey(0)]));
}

#[test]
fn close_release() {
    closing(&[Insert(0), Acquire], vec![Release]);
}

#[test]
fn close_release_after() {
    closing(&[Insert(0), Acquire], vec![ReleaseAfter]);
}

#[test]
fn close_exclude() {
    closing(&[Insert(0)], steps(&[Exclude(0)]));
}

#[test]
fn close_include() {
    closing(&[Insert(0), Exclude(0)], steps(&[Include(0)]));
}

#[test]
fn close_cool() {
    closing(&[Insert(0)], steps(&[Cool(0)]));
}

#[test]
fn close_warm() {
    closing(&[Insert(0), Cool(0)], steps(&[Warm(0)]));
}

#[test]
fn close_update() {
    closing(&[Insert(0)], steps(&[UpdateWith(0)]));
}

#[test]
fn close_remove() {
    closing(&[Insert(0), Acquire], vec![Step::Do(Remove(0)), Release]);
}

#[test]
fn close_evict() {
    closing(&[Insert(0)], steps(&[Evict]));
}

#[test]
fn close_insert() {
    closing(&[], steps(&[Insert(0)]));
}

#[test]
fn close_batch() {
    closing(&[], steps(&[InsertBatch(0, 2)]));
}

/// Looking is never refused.
#[test]
fn close_get() {
    closing(&[Insert(0)], steps(&[Get(0), Len { slack: 0 }]));
}

#[test]
fn close_close() {
    closing(&[Insert(0)], steps(&[Close]));
}

/// `main`, on two members that it must leave as they are, against a close.
fn beside(main: fn(&Fleet)) {
    model(move || {
        let fleet = Arc::new(Fleet::new(Setup::default()));
        Actor::new(&fleet, 0).run(&steps(&[Insert(0), Insert(1)]));
        let other = {
            let fleet = Arc::clone(&fleet);
            crate::common::spawn(move || assert!(fleet.scheduler.close(), "the only one"))
        };
        main(&fleet);
        other.join().expect("no panic");
        refuses_everything(&fleet);
        let tally = fleet.scheduler.check_invariants();
        assert_eq!((tally.members, tally.in_flight), (2, 0));
        let Ok(fleet) = Arc::try_unwrap(fleet) else { panic!("all threads are gone") };
        fleet.finish();
    });
}

#[test]
fn close_filter() {
    beside(|fleet| match fleet.scheduler.acquire_where(|resource| resource.key == 1) {
        Ok(lease) => assert_eq!(lease.check(), 1),
        Err(error) => assert!(matches!(error, AcquireError::Closed)),
    });
}

#[test]
fn close_affinity() {
    beside(|fleet| match fleet.scheduler.acquire_by_affinity(&1) {
        Ok(lease) => assert!(lease.check() < 2),
        Err(error) => assert!(matches!(error, AcquireError::Closed)),
    });
}

#[test]
fn close_weights() {
    beside(|fleet| match fleet.scheduler.set_shard_weights(&[3]) {
        Ok(()) => assert!(fleet.scheduler.peek_by_affinity(&1).is_some_and(|found| found.check() < 2)),
        Err(error) => assert_eq!(error, WeightsError::Closed),
    });
}

/// All or nothing: what was taken before the close comes back.
#[test]
fn close_acquire_many() {
    beside(|fleet| match fleet.scheduler.acquire_many(2) {
        Ok(leases) => assert_eq!(leases.len(), 2),
        Err(error) => assert!(matches!(error, AcquireError::Closed)),
    });
}

/// A token that was given out before is redeemed whenever.
#[test]
fn close_redeem() {
    beside(|fleet| {
        if let Ok(lease) = fleet.scheduler.acquire() {
            let token = lease.into_token();
            fleet.scheduler.release(token).expect("a return always lands");
        }
    });
}

/// Who is refused sees what the closer has done before.
#[test]
fn insert_close_refused_get() {
    race(Setup::default(), Vec::new(), vec![steps(&[Insert(0), Close]), steps(&[Insert(1), Get(0)])]);
}

/// As before, who comes too late to close.
#[test]
fn insert_close_close_get() {
    race(Setup::default(), Vec::new(), vec![steps(&[Insert(0), Close]), steps(&[Close, Get(0)])]);
}
