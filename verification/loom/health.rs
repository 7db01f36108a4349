//! Ejection in the return (`health::share`, `scheduler::health`): never more than the share, one probe, nothing lost.

use std::time::Duration;

use leasehold::{Backoff, Ejection, Outcome, Phase, internals::sync::Arc};

use crate::{
    common::model_within,
    driver::{Fleet, Setup},
};

/// Two members with two units each, of which half may be ejected after one failure.
fn fleet(members: u8, percent: u32) -> Arc<Fleet> {
    fleet_in(1, members, percent)
}

fn fleet_in(shards: usize, members: u8, percent: u32) -> Arc<Fleet> {
    fleet_with(shards, members, percent, Duration::ZERO)
}

fn fleet_with(shards: usize, members: u8, percent: u32, ramp: Duration) -> Arc<Fleet> {
    let rules = Ejection::default()
        .consecutive_failures(1)
        .max_share(percent)
        .jitter(0)
        .base(Duration::from_nanos(10))
        .without_place(Backoff::None)
        .ramp(ramp);
    let setup = Setup { shards, units: 2, ..Setup::default() };
    let fleet = Arc::new(Fleet::with(setup, |builder| builder.ejection(rules)));
    for key in 0..members {
        fleet.scheduler.insert(fleet.resource(key)).expect("new");
    }
    fleet
}

fn fail(fleet: &Fleet, key: u8) {
    fleet.scheduler.acquire_key(&key).expect("eligible").finish(Outcome::Failed);
}

fn share_holds(fleet: &Fleet, percent: u64) {
    let stats = fleet.scheduler.stats();
    assert!(100 * stats.reasons.ejected <= percent * stats.members, "too many: {}", stats.reasons.ejected);
    assert_eq!(u64::from(fleet.scheduler.ejected_by_rules()), stats.reasons.ejected, "places are counted");
}

fn end(fleet: Arc<Fleet>) {
    fleet.scheduler.check_invariants();
    let Ok(fleet) = Arc::try_unwrap(fleet) else { panic!("all threads are gone") };
    fleet.finish();
}

/// Two fail at once, one place: one is ejected.
#[test]
fn one_place_for_two() {
    model_within(2, || {
        let fleet = fleet(2, 50);
        let other = {
            let fleet = Arc::clone(&fleet);
            crate::common::spawn(move || fail(&fleet, 0))
        };
        fail(&fleet, 1);
        other.join().expect("no panic");
        assert_eq!(fleet.scheduler.ejected_by_rules(), 1);
        share_holds(&fleet, 50);
        end(fleet);
    });
}

/// Two fail at once, one place, and nobody leaves: somebody who looks meanwhile never sees more ejected than may be, either.
#[test]
fn at_no_moment_more_than_the_share() {
    model_within(2, || {
        let fleet = fleet(2, 50);
        let others = [0, 1].map(|key| {
            let fleet = Arc::clone(&fleet);
            crate::common::spawn(move || fail(&fleet, key))
        });
        for _ in 0..2 {
            let ejected = fleet.scheduler.ejected_by_rules();
            assert!(ejected <= 1, "half of two: {ejected}");
        }
        others.into_iter().for_each(|other| other.join().expect("no panic"));
        assert_eq!(fleet.scheduler.ejected_by_rules(), 1);
        share_holds(&fleet, 50);
        end(fleet);
    });
}

/// A member leaves while another one is ejected: the place that goes with it is not taken.
#[test]
fn eject_remove() {
    model_within(2, || {
        let fleet = fleet(2, 50);
        let other = {
            let fleet = Arc::clone(&fleet);
            crate::common::spawn(move || fail(&fleet, 0))
        };
        fleet.scheduler.remove(&1).expect("a member");
        other.join().expect("no panic");
        share_holds(&fleet, 50);
        assert_eq!(fleet.scheduler.ejected_by_rules(), 0, "half of one is none");
        end(fleet);
    });
}

/// The same with a lock for each of the two: what orders them is the fences of `health::share` alone.
#[test]
fn eject_remove_two_shards() {
    model_within(2, || {
        let fleet = fleet_in(2, 2, 50);
        let other = {
            let fleet = Arc::clone(&fleet);
            crate::common::spawn(move || fail(&fleet, 0))
        };
        fleet.scheduler.remove(&1).expect("a member");
        other.join().expect("no panic");
        share_holds(&fleet, 50);
        assert_eq!(fleet.scheduler.ejected_by_rules(), 0, "half of one is none");
        end(fleet);
    });
}

/// Its time is over, one gets the probe.
#[test]
fn one_probe_for_two() {
    model_within(2, || {
        let fleet = fleet(1, 100);
        fail(&fleet, 0);
        fleet.clock.advance(Duration::from_nanos(10));
        let other = {
            let fleet = Arc::clone(&fleet);
            crate::common::spawn(move || fleet.scheduler.acquire().map(|lease| lease.into_token()).ok())
        };
        let mine = fleet.scheduler.acquire().map(|lease| lease.into_token()).ok();
        let theirs = other.join().expect("no panic");
        let probes: Vec<_> = [mine, theirs].into_iter().flatten().collect();
        assert_eq!(probes.len(), 1, "there are two units, and one probe");
        let ok = Outcome::Ok { latency: Duration::from_nanos(1) };
        probes.into_iter().for_each(|token| fleet.scheduler.finish(token, ok).expect("out"));
        assert_eq!(fleet.scheduler.resource_stats(&0).expect("remembered").phase, Phase::Healthy);
        share_holds(&fleet, 100);
        end(fleet);
    });
}

/// The last lease from before comes back without a word beside the end of the ejection: what is lent after both is the probe, and what
/// becomes of it decides.
#[test]
fn probe_older_return() {
    model_within(2, || {
        let fleet = fleet(1, 100);
        let old = fleet.scheduler.acquire_owned().expect("free");
        fail(&fleet, 0);
        fleet.clock.advance(Duration::from_nanos(10));
        let other = crate::common::spawn(move || drop(old));
        let mine = fleet.scheduler.acquire().map(|lease| lease.into_token()).ok();
        other.join().expect("no panic");
        let again = || fleet.scheduler.acquire().expect("due, and nothing is out").into_token();
        let probe = mine.unwrap_or_else(again);
        assert!(fleet.scheduler.acquire().is_err(), "one");
        let ok = Outcome::Ok { latency: Duration::from_nanos(1) };
        fleet.scheduler.finish(probe, ok).expect("out");
        assert_eq!(fleet.scheduler.resource_stats(&0).expect("remembered").phase, Phase::Healthy);
        share_holds(&fleet, 100);
        end(fleet);
    });
}

/// It comes back by hand while it is ejected: the place is free again, whichever comes first.
#[test]
fn eject_readmit() {
    model_within(2, || {
        let fleet = fleet(1, 100);
        let other = {
            let fleet = Arc::clone(&fleet);
            crate::common::spawn(move || fail(&fleet, 0))
        };
        let _ = fleet.scheduler.readmit(&0);
        other.join().expect("no panic");
        share_holds(&fleet, 100);
        let _ = fleet.scheduler.readmit(&0);
        assert_eq!(fleet.scheduler.ejected_by_rules(), 0);
        end(fleet);
    });
}

/// A probe succeeds, and the ramp that begins is entered, while the resource is removed: whichever is later finds the other one.
#[test]
fn probe_ramps_remove() {
    model_within(2, || {
        let fleet = fleet_with(1, 1, 100, Duration::from_nanos(160));
        fail(&fleet, 0);
        fleet.clock.advance(Duration::from_nanos(10));
        let probe = fleet.scheduler.acquire().expect("the probe").into_token();
        let other = {
            let fleet = Arc::clone(&fleet);
            crate::common::spawn(move || {
                let ok = Outcome::Ok { latency: Duration::from_nanos(1) };
                fleet.scheduler.finish(probe, ok).expect("out");
            })
        };
        fleet.scheduler.remove(&0).expect("a member");
        other.join().expect("no panic");
        assert_eq!(fleet.scheduler.stats().leaving, 0, "nobody has it, the book neither");
        end(fleet);
    });
}

/// The same with an ejection that is entered.
#[test]
fn eject_itself_remove() {
    model_within(2, || {
        let fleet = fleet(1, 100);
        let lease = fleet.scheduler.acquire().expect("free").into_token();
        let other = {
            let fleet = Arc::clone(&fleet);
            crate::common::spawn(move || fleet.scheduler.finish(lease, Outcome::Failed).expect("out"))
        };
        fleet.scheduler.remove(&0).expect("a member");
        other.join().expect("no panic");
        assert_eq!(fleet.scheduler.stats().leaving, 0, "nobody has it, the book neither");
        end(fleet);
    });
}

/// A step of the ramp leaves a deadline alone in the way of a unit, while somebody looks for it.
#[test]
fn ramp_step_cooling_acquire() {
    model_within(2, || {
        let fleet = fleet_with(1, 1, 100, Duration::from_nanos(160));
        fail(&fleet, 0);
        fleet.clock.advance(Duration::from_nanos(10));
        let ok = Outcome::Ok { latency: Duration::from_nanos(1) };
        fleet.scheduler.acquire().expect("the probe").finish(ok);
        let lease = fleet.scheduler.acquire().expect("one unit").into_token();
        fleet.scheduler.cool(&0, Duration::from_nanos(400)).expect("a member");
        fleet.clock.advance(Duration::from_nanos(161));
        let other = {
            let fleet = Arc::clone(&fleet);
            crate::common::spawn(move || {
                assert!(fleet.scheduler.acquire_key(&0).is_err(), "it rests");
            })
        };
        let _ = fleet.scheduler.tick();
        other.join().expect("no panic");
        assert!(fleet.scheduler.tick().is_some(), "the end of its rest");
        fleet.scheduler.check_invariants();
        fleet.scheduler.release(lease).expect("out");
        end(fleet);
    });
}
