//! Closing against everything that lends or changes the fleet: what began before may succeed or be refused, what begins
//! afterwards is refused, and a return always lands.

use leasehold::{
    AcquireError, Hold, KeyError, Overdue, OwnedLease, Timestamp, WeightsError, internals::sync::Arc,
};

use crate::{
    common::{SHORT, model, race, race_then, steps},
    driver::{
        Actor, Fleet, Res, Setup,
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
    assert_eq!(fleet.scheduler.eject(&0), Err(KeyError::Closed));
    assert_eq!(fleet.scheduler.readmit(&0), Err(KeyError::Closed));
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
fn close_drain() {
    closing(&[Insert(0), Acquire], vec![Step::Do(Drain(0)), Release]);
}

#[test]
fn close_undrain() {
    closing(&[Insert(0), Drain(0)], steps(&[Undrain(0)]));
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
    beside_after(|_| (), main);
}

/// The same, with something done before.
fn beside_after(before: fn(&Fleet), main: fn(&Fleet)) {
    model(move || {
        let fleet = Arc::new(Fleet::new(Setup::default()));
        Actor::new(&fleet, 0).run(&steps(&[Insert(0), Insert(1)]));
        before(&fleet);
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

/// What was answered is so: nobody else ejects or readmits.
fn is_ejected(fleet: &Fleet, key: u8, expected: bool) {
    let snapshot = fleet.scheduler.snapshot();
    let state = snapshot.iter().find(|state| state.key == key).expect("a member");
    assert_eq!(state.holds.contains(&Hold::Ejected), expected);
}

#[test]
fn close_eject() {
    beside(|fleet| match fleet.scheduler.eject(&1) {
        Ok(changed) => is_ejected(fleet, 1, changed),
        Err(error) => {
            assert_eq!(error, KeyError::Closed);
            is_ejected(fleet, 1, false);
        }
    });
}

#[test]
fn close_readmit() {
    let eject = |fleet: &Fleet| assert_eq!(fleet.scheduler.eject(&1), Ok(true));
    beside_after(eject, |fleet| match fleet.scheduler.readmit(&1) {
        Ok(changed) => {
            assert!(changed);
            is_ejected(fleet, 1, false);
        }
        Err(error) => {
            assert_eq!(error, KeyError::Closed);
            is_ejected(fleet, 1, true);
        }
    });
}

/// `main`, with the one lease there is, which may be held for [`SHORT`], against a close. It ends here at the latest.
fn ending(overdue: Overdue, main: fn(&Fleet, OwnedLease<Res>)) {
    model(move || {
        let limited = |builder: leasehold::Builder<_, _>| builder.max_hold(SHORT).overdue(overdue);
        let fleet = Arc::new(Fleet::with(Setup::default(), limited));
        fleet.scheduler.insert(fleet.resource(0)).expect("new");
        let lease = fleet.scheduler.acquire_owned().expect("free");
        let other = {
            let fleet = Arc::clone(&fleet);
            crate::common::spawn(move || assert!(fleet.scheduler.close(), "the only one"))
        };
        main(&fleet, lease);
        other.join().expect("no panic");
        refuses_everything(&fleet);
        let (tally, stats) = (fleet.scheduler.check_invariants(), fleet.scheduler.stats());
        assert_eq!((tally.members, tally.in_flight, stats.lent), (1, 0, stats.returned));
        assert!(fleet.scheduler.leases().is_empty());
        let Ok(fleet) = Arc::try_unwrap(fleet) else { panic!("all threads are gone") };
        fleet.finish();
    });
}

/// What is out is taken back, open or closed, and its holder is told.
#[test]
fn close_revoke() {
    ending(Overdue::Report, |fleet, mut lease| {
        let token = lease.token();
        fleet.scheduler.revoke(token).expect("nobody else ends it");
        assert!(lease.is_revoked());
        lease.check();
        assert_eq!(fleet.scheduler.stats().revoked, 1);
    });
}

/// The same by its deadline.
#[test]
fn close_reap() {
    ending(Overdue::Revoke, |fleet, lease| {
        fleet.clock.advance(SHORT);
        assert_eq!(fleet.scheduler.reap_overdue(), 1);
        assert!(lease.is_revoked());
    });
}

/// A holder goes on as if nothing had happened, and is given more time.
#[test]
fn close_renew() {
    ending(Overdue::Revoke, |fleet, mut lease| {
        lease.renew(2 * SHORT).expect("it is out");
        fleet.clock.advance(SHORT);
        assert_eq!(fleet.scheduler.reap_overdue(), 0);
        lease.try_release().expect("it was out");
    });
}

/// Whoever waits until all is back is not sent away by the close, and is told when it is: by the last return, which comes after it.
#[test]
fn close_drain_return() {
    model(|| {
        let fleet = Arc::new(Fleet::new(Setup::default()));
        fleet.scheduler.insert(fleet.resource(0)).expect("new");
        let lease = fleet.scheduler.acquire_owned().expect("free");
        let other = {
            let fleet = Arc::clone(&fleet);
            crate::common::spawn(move || {
                assert!(fleet.scheduler.close(), "the only one");
                drop(lease);
            })
        };
        assert!(fleet.scheduler.drain_all(Timestamp::MAX).is_drained());
        other.join().expect("no panic");
        refuses_everything(&fleet);
        assert_eq!(fleet.scheduler.check_invariants().in_flight, 0);
        let Ok(fleet) = Arc::try_unwrap(fleet) else { panic!("all threads are gone") };
        fleet.finish();
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
