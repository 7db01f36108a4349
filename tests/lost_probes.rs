//! Probes that are not given back: with a limit on how long leases are held they cost a while, without one they are to be seen.

use std::{
    future::Future,
    mem,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use leasehold::{Builder, Capacity, Ejection, Entry, ManualClock, Outcome, Overdue, Phase, Scheduler};

type Plain = Entry<u32, u64, ()>;
type Fleet = Scheduler<Plain>;

const OK: Outcome = Outcome::Ok { latency: Duration::from_millis(10) };

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Two members, of which one is excluded, and one has just been ejected, for 30 s.
fn ejected(
    capacity: Capacity,
    set: impl FnOnce(Builder<Plain>) -> Builder<Plain>,
) -> (Fleet, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new());
    let rules = Ejection::default().consecutive_failures(1).max_share(50).jitter(0).ramp(Duration::ZERO);
    let builder = Fleet::builder().shards(1).clock(clock.clone()).ejection(rules);
    let fleet = set(builder).build().expect("in range");
    for key in 0..2 {
        fleet.insert(Entry::new(key, 10 + u64::from(key), ()).with_capacity(capacity)).expect("new");
    }
    fleet.exclude(&1).expect("a member");
    fleet.acquire().expect("free").finish(Outcome::Failed);
    assert!(fleet.acquire().is_err(), "ejected");
    (fleet, clock)
}

fn phase(fleet: &Fleet) -> Phase {
    fleet.resource_stats(&0).expect("remembered").phase
}

fn revoking(builder: Builder<Plain>) -> Builder<Plain> {
    builder.max_hold(seconds(5)).overdue(Overdue::Revoke)
}

#[test]
fn a_probe_that_is_leaked_is_taken_back_and_the_next_lease_is_the_probe() {
    for capacity in [Capacity::Exclusive, Capacity::Limited(8), Capacity::Unlimited] {
        let (fleet, clock) = ejected(capacity, revoking);
        clock.advance(seconds(30));
        mem::forget(fleet.acquire().expect("the probe"));
        clock.advance(seconds(4));
        assert!(fleet.acquire().is_err(), "{capacity:?}: exactly one");
        clock.advance(seconds(1));
        let mut probe = fleet.acquire().expect("taken back");
        assert_eq!((fleet.stats().revoked, phase(&fleet)), (1, Phase::Probing), "{capacity:?}");
        assert!(fleet.acquire().is_err(), "{capacity:?}: again exactly one");
        // It fails, is leaked, is late, and at last succeeds.
        probe.renew(seconds(100)).expect("out");
        probe.finish(Outcome::Failed);
        assert_eq!((phase(&fleet), fleet.ejected_by_rules()), (Phase::Ejected, 1), "{capacity:?}");
        clock.advance(seconds(60));
        let late = fleet.acquire().expect("the probe");
        clock.advance(seconds(5));
        let probe = fleet.acquire().expect("taken back");
        assert!(late.try_finish(Outcome::Failed).is_err(), "somebody else has it");
        assert_eq!(phase(&fleet), Phase::Probing, "{capacity:?}: what comes too late decides nothing");
        probe.finish(OK);
        assert_ne!(phase(&fleet), Phase::Probing, "{capacity:?}");
        drop(fleet.acquire().expect("it is back"));
    }
}

#[test]
fn leases_from_before_that_are_leaked_keep_the_probe_back_until_they_are_taken_back() {
    let clock = Arc::new(ManualClock::new());
    let rules = Ejection::default().consecutive_failures(1).max_share(100).jitter(0);
    let fleet = revoking(Fleet::builder().shards(1).clock(clock.clone()).ejection(rules));
    let fleet = fleet.max_hold(seconds(40)).build().expect("in range");
    fleet.insert(Entry::new(0, 0, ()).with_capacity(Capacity::Limited(4))).expect("new");
    for _ in 0..2 {
        mem::forget(fleet.acquire().expect("free"));
    }
    fleet.acquire().expect("free").finish(Outcome::Failed);
    clock.advance(seconds(30));
    assert!(fleet.acquire().is_err(), "they count against the probe's unit");
    assert_eq!((phase(&fleet), fleet.stats().probing), (Phase::Probing, 1));
    clock.advance(seconds(10));
    let probe = fleet.acquire().expect("taken back");
    assert!(fleet.acquire().is_err(), "exactly one");
    probe.finish(OK);
    assert_eq!((phase(&fleet), fleet.stats().probing), (Phase::Ramping, 0));
}

#[test]
fn who_waits_gets_the_probe_that_was_leaked_by_another() {
    let (fleet, clock) = ejected(Capacity::Exclusive, revoking);
    clock.advance(seconds(30));
    mem::forget(fleet.acquire().expect("the probe"));
    let mut waiting = pin!(fleet.acquire_async());
    let mut context = Context::from_waker(Waker::noop());
    assert!(waiting.as_mut().poll(&mut context).is_pending());
    clock.advance(seconds(5));
    let _ = fleet.tick();
    let Poll::Ready(Ok(probe)) = waiting.poll(&mut context) else { panic!("it was taken back for it") };
    probe.finish(OK);
    assert_eq!(fleet.stats().probing, 0);
}

#[test]
fn without_a_limit_a_probe_that_is_leaked_is_to_be_seen() {
    let (fleet, clock) = ejected(Capacity::Limited(8), |builder| builder);
    let since = || fleet.resource_stats(&0).expect("remembered").probing_since;
    assert_eq!((fleet.stats().probing, since()), (0, None));
    clock.advance(seconds(31));
    mem::forget(fleet.acquire().expect("the probe"));
    clock.advance(seconds(100_000));
    let none = fleet.acquire().map(drop).expect_err("for ever");
    assert_eq!(none.to_string(), fleet.acquire().map(drop).expect_err("as before").to_string());
    assert_eq!((fleet.stats().probing, since()), (1, Some(seconds(30).as_nanos() as u64)));
    assert_eq!(fleet.stats().reasons.at_capacity, 1);
    // By hand: one unit is lost, the others are back.
    assert_eq!(fleet.readmit(&0), Ok(false), "it was not ejected any more");
    let all: Vec<_> = (0..).map_while(|_| fleet.acquire().ok()).collect();
    assert_eq!((all.len(), fleet.stats().probing, since()), (7, 0, None));
}

#[test]
fn every_way_out_of_a_probe_is_counted() {
    type End = fn(&Fleet);
    let ways: [(&str, End); 8] = [
        ("it succeeds", |fleet| fleet.acquire().expect("the probe").finish(OK)),
        ("it fails", |fleet| fleet.acquire().expect("the probe").finish(Outcome::Failed)),
        ("ejected by hand", |fleet| assert!(fleet.eject(&0).expect("a member"))),
        ("readmitted by hand", |fleet| assert!(!fleet.readmit(&0).expect("a member"))),
        ("removed", |fleet| assert_eq!(fleet.remove(&0).expect("a member").in_flight, 0)),
        ("removed while it is lent", |fleet| {
            let probe = fleet.acquire().expect("the probe");
            assert_eq!(fleet.remove(&0).expect("a member").in_flight, 1);
            probe.finish(OK);
        }),
        ("evicted", |fleet| assert_eq!(fleet.evict_worst(), Some(0))),
        ("replaced by a better one", |fleet| {
            fleet.insert(Entry::new(7, 0, ())).expect("it is the worst that can be lent");
            assert!(!fleet.contains(&0));
        }),
    ];
    for (way, end) in ways {
        for capacity in [Capacity::Exclusive, Capacity::Limited(8)] {
            let bounded = |builder: Builder<Plain>| builder.max_resources(2, leasehold::Overflow::EvictWorst);
            let (fleet, clock) = ejected(capacity, bounded);
            clock.advance(seconds(30));
            let _ = fleet.tick();
            assert_eq!(fleet.stats().probing, 1, "{way}");
            let says_nothing = fleet.acquire().expect("the probe");
            says_nothing.finish(Outcome::Cancelled);
            assert_eq!(fleet.stats().probing, 1, "{way}: it has said nothing");
            end(&fleet);
            assert_eq!(fleet.stats().probing, 0, "{way}");
            assert_eq!(fleet.stats_by_shard()[0].probing, 0);
        }
    }
}
