//! Leases that are taken back while they come back: of all who would end one lease one does, the late holder still reads its value,
//! and whoever lists sees no lease that is not one.

use std::time::Duration;

use leasehold::{
    Overdue, OwnedLease, ReleaseError, Token,
    internals::sync::{Arc, UnsafeCell, thread},
};

use crate::{
    common::{SHORT, model, model_within},
    driver::{Fleet, Res, Setup},
};

/// A fleet of one resource, whose leases may be held for [`SHORT`].
fn fleet(setup: Setup, overdue: Overdue) -> Arc<Fleet> {
    let fleet = Fleet::with(setup, |builder| builder.max_hold(SHORT).overdue(overdue));
    fleet.scheduler.insert(fleet.resource(0)).expect("new");
    Arc::new(fleet)
}

/// As [`fleet`], with its one unit lent.
fn lent(overdue: Overdue) -> (Arc<Fleet>, OwnedLease<Res>, Token) {
    let fleet = fleet(Setup::default(), overdue);
    let mut lease = fleet.scheduler.acquire_owned().expect("a unit is free");
    let token = lease.token();
    (fleet, lease, token)
}

fn spawn<T: 'static>(fleet: &Arc<Fleet>, body: impl FnOnce(&Fleet) -> T + 'static) -> thread::JoinHandle<T> {
    let fleet = Arc::clone(fleet);
    crate::common::spawn(move || body(&fleet))
}

/// Nothing is out, everything was counted, nothing leaks.
fn settle(fleet: Arc<Fleet>, revoked: u64) {
    assert_eq!(fleet.scheduler.check_invariants().in_flight, 0);
    let stats = fleet.scheduler.stats();
    assert_eq!((stats.lent, stats.revoked), (stats.returned, revoked));
    assert!(fleet.scheduler.leases().is_empty());
    let Ok(fleet) = Arc::try_unwrap(fleet) else { panic!("all threads are gone") };
    fleet.finish();
}

fn is_revoked<T>(result: &Result<T, ReleaseError>) -> bool {
    matches!(result, Err(ReleaseError::Revoked { .. }))
}

fn is_stale<T>(result: &Result<T, ReleaseError>) -> bool {
    matches!(result, Err(ReleaseError::Stale { .. }))
}

/// The guard comes back: one of the two returns the unit, and the other is told.
#[test]
fn revoke_return() {
    model(|| {
        let (fleet, lease, token) = lent(Overdue::Report);
        let other = spawn(&fleet, move |fleet| fleet.scheduler.revoke(token));
        lease.check();
        let mine = lease.try_release();
        let other = other.join().expect("no panic");
        assert!(mine.is_ok() != other.is_ok(), "{mine:?}, {other:?}");
        assert!(mine.is_ok() || is_revoked(&mine));
        assert!(other.is_ok() || is_stale(&other));
        settle(fleet, u64::from(other.is_ok()));
    });
}

/// The token comes back, and no guard is left.
#[test]
fn revoke_redeem() {
    model(|| {
        let (fleet, lease, token) = lent(Overdue::Report);
        assert_eq!(lease.into_token(), token);
        let other = spawn(&fleet, move |fleet| fleet.scheduler.revoke(token));
        let mine = fleet.scheduler.release(token);
        let other = other.join().expect("no panic");
        assert!(mine.is_ok() != other.is_ok(), "{mine:?}, {other:?}");
        assert!(mine.is_ok() || is_revoked(&mine));
        assert!(other.is_ok() || is_stale(&other));
        settle(fleet, u64::from(other.is_ok()));
    });
}

/// The token comes back beside its guard, which ends later.
#[test]
fn revoke_redeem_guarded() {
    model(|| {
        let (fleet, lease, token) = lent(Overdue::Report);
        let other = spawn(&fleet, move |fleet| fleet.scheduler.revoke(token));
        let mine = fleet.scheduler.release(token);
        let other = other.join().expect("no panic");
        assert!(mine.is_ok() != other.is_ok(), "{mine:?}, {other:?}");
        assert_eq!(lease.is_revoked(), other.is_ok());
        lease.check();
        assert_eq!(is_revoked(&lease.try_release()), other.is_ok());
        settle(fleet, u64::from(other.is_ok()));
    });
}

/// Guard, token and revocation at once.
#[test]
fn revoke_return_redeem() {
    model_within(1, || {
        let (fleet, lease, token) = lent(Overdue::Report);
        let revoker = spawn(&fleet, move |fleet| fleet.scheduler.revoke(token));
        let redeemer = spawn(&fleet, move |fleet| fleet.scheduler.release(token));
        lease.check();
        let ended =
            [lease.try_release(), revoker.join().expect("no panic"), redeemer.join().expect("no panic")];
        assert_eq!(ended.iter().filter(|ended| ended.is_ok()).count(), 1, "{ended:?}");
        settle(fleet, u64::from(ended[1].is_ok()));
    });
}

#[test]
fn revoke_revoke() {
    model(|| {
        let (fleet, lease, token) = lent(Overdue::Report);
        let other = spawn(&fleet, move |fleet| fleet.scheduler.revoke(token));
        let mine = fleet.scheduler.revoke(token);
        let other = other.join().expect("no panic");
        assert!(
            mine.is_ok() != other.is_ok() && (is_revoked(&mine) || is_revoked(&other)),
            "{mine:?}, {other:?}"
        );
        assert!(lease.is_revoked());
        lease.check();
        drop(lease);
        settle(fleet, 1);
    });
}

/// By hand, and because it is overdue.
#[test]
fn revoke_reap() {
    model(|| {
        let (fleet, lease, token) = lent(Overdue::Revoke);
        fleet.clock.advance(SHORT);
        let other = spawn(&fleet, |fleet| fleet.scheduler.reap_overdue());
        let mine = fleet.scheduler.revoke(token);
        assert_eq!(other.join().expect("no panic"), usize::from(mine.is_err()));
        drop(lease);
        settle(fleet, 1);
    });
}

/// Who frees the node: the removal, the revocation, or the end of the guard, which still reads its value.
#[test]
fn revoke_remove() {
    model(|| {
        let (fleet, lease, token) = lent(Overdue::Report);
        let other = spawn(&fleet, move |fleet| fleet.scheduler.revoke(token).expect("nobody else ends it"));
        fleet.scheduler.remove(&0).expect("nobody else removes");
        lease.check();
        other.join().expect("no panic");
        assert_eq!(*lease.key(), lease.check());
        assert!(is_revoked(&lease.try_release()));
        assert_eq!(fleet.scheduler.check_invariants().leaving, 0, "the last one frees it");
        settle(fleet, 1);
    });
}

/// As before, with the guard in the race.
#[test]
fn revoke_remove_return() {
    model_within(1, || {
        let (fleet, lease, token) = lent(Overdue::Report);
        let revoker = spawn(&fleet, move |fleet| fleet.scheduler.revoke(token).is_ok());
        let remover = spawn(&fleet, move |fleet| fleet.scheduler.remove(&0).expect("nobody else removes"));
        lease.check();
        let mine = lease.try_release().is_ok();
        remover.join().expect("no panic");
        let revoked = revoker.join().expect("no panic");
        assert!(mine != revoked);
        assert_eq!(fleet.scheduler.check_invariants().leaving, 0, "the last one frees it");
        settle(fleet, u64::from(revoked));
    });
}

/// The value is superseded while its lease is taken back.
#[test]
fn revoke_update() {
    model(|| {
        let (fleet, lease, token) = lent(Overdue::Report);
        let other = spawn(&fleet, move |fleet| fleet.scheduler.revoke(token).expect("nobody else ends it"));
        fleet.scheduler.update_with(&0, |old| old.again(1)).expect("a member");
        other.join().expect("no panic");
        lease.check();
        assert_eq!(lease.version, 0);
        drop(lease);
        settle(fleet, 1);
    });
}

/// The unit that was taken back is lent again; the late guard ends, and does not free it.
#[test]
fn late_drop_acquire() {
    model(|| {
        let (fleet, lease, token) = lent(Overdue::Report);
        fleet.scheduler.revoke(token).expect("out");
        let other = spawn(&fleet, |fleet| {
            let next = fleet.scheduler.acquire().expect("it was taken back");
            next.check();
            assert!(fleet.scheduler.acquire().is_err(), "it has one unit");
            next.try_release().expect("nobody ends it");
        });
        lease.check();
        drop(lease);
        other.join().expect("no panic");
        settle(fleet, 1);
    });
}

/// The entry that a late token names is not the next lease's.
#[test]
fn late_redeem_mint() {
    model(|| {
        let (fleet, lease, token) = lent(Overdue::Report);
        let _ = lease.into_token();
        fleet.scheduler.revoke(token).expect("out");
        let other = spawn(&fleet, |fleet| {
            let next = fleet.scheduler.acquire().expect("it was taken back");
            next.check();
            next.try_release().expect("nobody ends it");
        });
        assert!(is_revoked(&fleet.scheduler.release(token)));
        other.join().expect("no panic");
        settle(fleet, 1);
    });
}

/// One revoked token is remembered in a model: the entry of the one before is free again, while its token comes late.
#[test]
fn forget_late_redeem() {
    model(|| {
        let fleet = fleet(Setup { units: 2, ..Setup::default() }, Overdue::Report);
        let first = fleet.scheduler.acquire().expect("a unit is free").into_token();
        let second = fleet.scheduler.acquire().expect("a unit is free").into_token();
        fleet.scheduler.revoke(first).expect("out");
        let other = spawn(&fleet, move |fleet| {
            fleet.scheduler.revoke(second).expect("out");
            fleet.scheduler.acquire().expect("taken back").try_release().expect("nobody ends it");
        });
        let late = fleet.scheduler.release(first);
        assert!(is_revoked(&late) || is_stale(&late), "{late:?}");
        other.join().expect("no panic");
        assert!(is_revoked(&fleet.scheduler.release(second)), "the last one is remembered");
        settle(fleet, 2);
    });
}

/// The guard becomes its token while it is taken back; then the token comes back.
#[test]
fn revoke_into_token() {
    model(|| {
        let (fleet, lease, token) = lent(Overdue::Report);
        let other = spawn(&fleet, move |fleet| fleet.scheduler.revoke(token));
        assert_eq!(lease.into_token(), token);
        let mine = fleet.scheduler.release(token);
        let other = other.join().expect("no panic");
        assert!(mine.is_ok() != other.is_ok(), "{mine:?}, {other:?}");
        assert!(mine.is_ok() || is_revoked(&mine));
        assert!(other.is_ok() || is_stale(&other));
        settle(fleet, u64::from(other.is_ok()));
    });
}

/// A renewal that has succeeded in time is kept to: what was seen to be overdue before is not any more.
#[test]
fn renew_reap() {
    model(|| {
        let (fleet, mut lease, _) = lent(Overdue::Revoke);
        fleet.clock.advance(SHORT);
        let other = spawn(&fleet, |fleet| fleet.scheduler.reap_overdue());
        let renewed = lease.renew(Duration::from_secs(1));
        let revoked = other.join().expect("no panic");
        assert!(renewed.is_ok() != (revoked == 1), "{renewed:?}, {revoked} revoked");
        assert_eq!(lease.is_revoked(), revoked == 1);
        assert_eq!(fleet.scheduler.reap_overdue(), 0);
        assert_eq!(lease.try_release().is_ok(), renewed.is_ok());
        settle(fleet, revoked as u64);
    });
}

/// A renewal to an earlier moment while a look goes on: the next look is not put off.
#[test]
fn renew_earlier_reap() {
    model(|| {
        let (fleet, mut lease, _) = lent(Overdue::Revoke);
        let other = spawn(&fleet, |fleet| fleet.scheduler.reap_overdue());
        lease.renew(SHORT / 2).expect("not overdue");
        assert_eq!(other.join().expect("no panic"), 0);
        fleet.clock.advance(SHORT / 2);
        assert!(fleet.scheduler.acquire().is_ok(), "an acquisition that finds nothing looks");
        assert!(lease.is_revoked());
        drop(lease);
        settle(fleet, 1);
    });
}

/// Two look at once: each lease is taken back, and counted, once.
#[test]
fn reap_reap() {
    model(|| {
        let (fleet, lease, _) = lent(Overdue::Revoke);
        fleet.clock.advance(SHORT);
        let other = spawn(&fleet, |fleet| fleet.scheduler.reap_overdue());
        let mine = fleet.scheduler.reap_overdue();
        assert_eq!(mine + other.join().expect("no panic"), 1);
        assert_eq!(fleet.scheduler.stats().overdue, 1);
        drop(lease);
        settle(fleet, 1);
    });
}

/// Two see the same overdue lease: counted once.
#[test]
fn notice_notice() {
    model(|| {
        let (fleet, lease, _) = lent(Overdue::Report);
        fleet.clock.advance(SHORT);
        let other = spawn(&fleet, |fleet| fleet.scheduler.overdue().len());
        assert_eq!((fleet.scheduler.overdue().len(), other.join().expect("no panic")), (1, 1));
        assert_eq!(fleet.scheduler.stats().overdue, 1);
        drop(lease);
        settle(fleet, 0);
    });
}

/// Somebody lists while the lease comes back and its resource goes: what is listed is alive.
#[test]
fn list_return_remove() {
    model(|| {
        let (fleet, lease, token) = lent(Overdue::Report);
        let other = spawn(&fleet, move |fleet| {
            fleet.scheduler.remove(&0).expect("nobody else removes");
            drop(lease);
        });
        for info in fleet.scheduler.leases() {
            assert_eq!((info.key, info.token), (0, token));
        }
        other.join().expect("no panic");
        settle(fleet, 0);
    });
}

/// Somebody lists while an entry passes on to a lease of another resource: no mixture of the two is listed.
#[test]
fn list_return_lend() {
    model(|| {
        let fleet = fleet(Setup::default(), Overdue::Report);
        fleet.scheduler.insert(fleet.resource(1)).expect("new");
        let lease = fleet.scheduler.acquire_key_owned(&0).expect("a unit is free");
        let other = spawn(&fleet, move |fleet| {
            fleet.clock.advance(SHORT / 2);
            fleet.scheduler.remove(&0).expect("nobody else removes");
            drop(lease);
            fleet.scheduler.acquire_key_owned(&1).expect("a unit is free")
        });
        for info in fleet.scheduler.leases() {
            let later = info.since.as_nanos() > 0;
            assert_eq!(later, info.key == 1, "{info:?}");
            assert_eq!(info.deadline, info.since.saturating_add(SHORT));
        }
        drop(other.join().expect("no panic"));
        settle(fleet, 0);
    });
}

/// As before, but nothing else orders the two leases: one ends, one begins in another shard, and a third thread lists.
fn list_return_lend_elsewhere(renewed: bool) {
    model_within(1, move || {
        let fleet = fleet(Setup { shards: 2, ..Setup::default() }, Overdue::Report);
        fleet.scheduler.insert(fleet.resource(1)).expect("new");
        let mut lease = fleet.scheduler.acquire_key_owned(&0).expect("a unit is free");
        let (old, line) = (lease.token(), line!() - 1);
        let one = spawn(&fleet, move |_| drop(lease));
        let two = spawn(&fleet, move |fleet| {
            fleet.clock.advance(SHORT / 2);
            let mut lease = fleet.scheduler.acquire_key_owned(&1).expect("a unit is free");
            if renewed {
                lease.renew(3 * SHORT).expect("nobody ends it");
            }
            lease
        });
        for info in fleet.scheduler.leases() {
            let is_old = info.token == old;
            let (since, held) = (info.since.as_nanos(), info.deadline.saturating_since(info.since));
            assert_eq!(
                (info.key == 0, since == 0, info.call_site.line() == line),
                (is_old, is_old, is_old),
                "{info:?}"
            );
            assert!(held == SHORT || (renewed && !is_old && held == 3 * SHORT), "{info:?}");
        }
        one.join().expect("no panic");
        drop(two.join().expect("no panic"));
        settle(fleet, 0);
    });
}

#[test]
fn list_return_lend_in_another_shard() {
    list_return_lend_elsewhere(false);
}

#[test]
fn list_return_renew_in_another_shard() {
    list_return_lend_elsewhere(true);
}

/// What a holder has found out, and the lease if that is left.
type Answer = (bool, Option<OwnedLease<Res>>);

/// Plain memory that a revoker writes before it revokes, and a holder reads who finds that out. The lease, if it is left, ends later:
/// its end would order more.
fn told(overdue: Overdue, revoke: fn(&Fleet, Token), ask: fn(&Fleet, OwnedLease<Res>, Token) -> Answer) {
    model(move || {
        let (fleet, lease, token) = lent(overdue);
        fleet.clock.advance(SHORT);
        let cell = Arc::new(UnsafeCell::new(0));
        let other = {
            let cell = Arc::clone(&cell);
            spawn(&fleet, move |fleet| {
                // SAFETY: who reads it has seen what comes after.
                cell.with_mut(|cell| unsafe { *cell = 1 });
                revoke(fleet, token);
            })
        };
        let (revoked, lease) = ask(&fleet, lease, token);
        if revoked {
            // SAFETY: as above.
            assert_eq!(cell.with(|cell| unsafe { *cell }), 1);
        }
        other.join().expect("no panic");
        drop(lease);
        let revoked = fleet.scheduler.stats().revoked;
        settle(fleet, revoked);
    });
}

#[test]
fn revoke_tells_who_asks() {
    told(
        Overdue::Report,
        |fleet, token| fleet.scheduler.revoke(token).expect("nobody else ends it"),
        |_, lease, _| (lease.is_revoked(), Some(lease)),
    );
}

#[test]
fn reap_tells_who_asks() {
    told(
        Overdue::Revoke,
        |fleet, _| assert_eq!(fleet.scheduler.reap_overdue(), 1),
        |_, lease, _| (lease.is_revoked(), Some(lease)),
    );
}

#[test]
fn revoke_tells_who_returns() {
    told(
        Overdue::Report,
        |fleet, token| {
            let _ = fleet.scheduler.revoke(token);
        },
        |fleet, lease, token| {
            assert_eq!(lease.into_token(), token);
            (is_revoked(&fleet.scheduler.release(token)), None)
        },
    );
}
