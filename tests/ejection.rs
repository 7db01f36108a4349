//! Ejection, recovery and cooldown, on a clock that is moved by hand.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::{
    future::Future,
    sync::{
        Arc, Barrier,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use leasehold::{
    AcquireError, Backoff, BuildError, Builder, Capacity, Cooldown, Ejection, Entry, KeyError, ManualClock,
    Outcome, Phase, Resource, Scheduler, Standing, Timestamp,
};
use proptest::prelude::*;

type Plain = Entry<u32, u64, Option<Cooldown>>;
type Fleet = Scheduler<Plain>;

const OK: Outcome = Outcome::Ok { latency: Duration::from_millis(10) };

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn rules() -> Ejection {
    Ejection::default().consecutive_failures(3).max_share(50).jitter(0)
}

fn fleet_of(
    members: u32,
    capacity: Capacity,
    set: impl FnOnce(Builder<Plain>) -> Builder<Plain>,
) -> (Fleet, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new());
    let fleet = set(Fleet::builder().shards(1).seed(7).clock(clock.clone())).build().expect("in range");
    for key in 0..members {
        fleet.insert(Entry::new(key, u64::from(key), None).with_capacity(capacity)).expect("new");
    }
    (fleet, clock)
}

fn fail(fleet: &Fleet, key: u32, times: u32) {
    for _ in 0..times {
        fleet.acquire_key(&key).expect("eligible").finish(Outcome::Failed);
    }
}

fn standing(fleet: &Fleet, key: u32) -> Standing {
    fleet.snapshot().into_iter().find(|state| state.key == key).expect("a member").standing
}

fn phase(fleet: &Fleet, key: u32) -> Phase {
    fleet.resource_stats(&key).expect("remembered").phase
}

#[test]
fn a_resource_that_fails_is_ejected_in_the_return_and_comes_back_as_one_probe() {
    let (fleet, clock) = fleet_of(2, Capacity::Exclusive, |builder| builder.ejection(rules()));
    fail(&fleet, 0, 2);
    assert_eq!(standing(&fleet, 0), Standing::Eligible);
    fail(&fleet, 0, 1);
    assert_eq!((standing(&fleet, 0), fleet.ejected_by_rules()), (Standing::Ejected, 1));
    let other = fleet.acquire().expect("the other one");
    let Err(AcquireError::NoneEligible(none)) = fleet.acquire() else { panic!("one is lent, one ejected") };
    assert_eq!(
        (none.reasons.ejected, none.retry_after),
        (1, Some(seconds(30))),
        "the moment at which it comes back"
    );
    clock.advance(seconds(30));
    let probe = fleet.acquire().expect("its time is over");
    assert_eq!((*probe.key(), phase(&fleet, 0), fleet.ejected_by_rules()), (0, Phase::Probing, 0));
    probe.finish(Outcome::Failed);
    assert_eq!(
        fleet.resource_stats(&0).expect("remembered").ejected_until,
        Some(seconds(90).as_nanos() as u64)
    );
    clock.advance(seconds(59));
    assert!(fleet.acquire().is_err(), "twice as long");
    clock.advance(seconds(1));
    fleet.acquire().expect("again").finish(OK);
    assert_eq!(phase(&fleet, 0), Phase::Ramping);
    clock.advance(seconds(31));
    let _ = fleet.tick();
    assert_eq!(phase(&fleet, 0), Phase::Healthy);
    drop(other);
    let stats = fleet.stats();
    assert_eq!((stats.ejected, stats.readmitted), (2, 2));
}

#[test]
fn of_a_thousand_who_come_when_it_is_over_one_gets_the_probe() {
    let (fleet, clock) = fleet_of(2, Capacity::Limited(64), |builder| builder.ejection(rules()));
    fail(&fleet, 1, 3);
    fleet.exclude(&0).expect("a member");
    clock.advance(seconds(30));
    let start = Barrier::new(8);
    let leases: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    start.wait();
                    (0..125).filter_map(|_| fleet.acquire().ok()).collect::<Vec<_>>()
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });
    assert_eq!(leases.len(), 1, "one probe");
    for lease in leases {
        lease.finish(OK);
    }
    // Then more and more, linearly: half of the ramp, half of the units.
    let all_of = |key: u32| (0..).map_while(|_| fleet.acquire_key(&key).ok()).collect::<Vec<_>>();
    for (gone, expected) in [(0, 1), (15, 32), (10, 53), (5, 64)] {
        clock.advance(seconds(gone));
        let _ = fleet.tick();
        let leases = all_of(1);
        assert!(leases.len().abs_diff(expected) <= 4, "{} of {expected}", leases.len());
    }
    assert_eq!((all_of(1).len(), phase(&fleet, 1)), (64, Phase::Healthy));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    /// For every size of fleet: after whatever failures, never more than the share is ejected, and if all fail, exactly it.
    #[test]
    fn never_more_than_the_share(percent in 0u32..=100, order in any::<u64>()) {
        for members in 1..=64u32 {
            let rules = rules().max_share(percent).consecutive_failures(1);
            let (fleet, _) = fleet_of(members, Capacity::Exclusive, |builder| builder.ejection(rules));
            let places = members * percent / 100;
            for i in 0..members {
                let key = (order as u32).wrapping_add(i.wrapping_mul(1 + 2 * (order >> 40) as u32)) % members;
                if let Ok(lease) = fleet.acquire_key(&key) {
                    lease.finish(Outcome::Failed);
                }
                let ejected = fleet.stats().reasons.ejected;
                prop_assert!(ejected <= u64::from(places), "{ejected} of {members} with {percent} %");
                prop_assert_eq!(ejected, u64::from(fleet.ejected_by_rules()));
            }
            for key in 0..members {
                if let Ok(lease) = fleet.acquire_key(&key) {
                    lease.finish(Outcome::Failed);
                }
            }
            prop_assert_eq!(fleet.ejected_by_rules(), places, "of {} with {} %", members, percent);
            // Those who leave take their places with them.
            for key in 0..members {
                fleet.remove(&key).expect("a member");
                let left = members - key - 1;
                prop_assert!(100 * u64::from(fleet.ejected_by_rules()) <= u64::from(left * percent));
                prop_assert_eq!(fleet.stats().reasons.ejected, u64::from(fleet.ejected_by_rules()));
            }
        }
    }
}

#[test]
fn by_hand_takes_over() {
    let (fleet, clock) = fleet_of(4, Capacity::Limited(4), |builder| builder.ejection(rules()));
    fail(&fleet, 0, 3);
    assert!(fleet.readmit(&0).expect("a member"), "the operator knows better");
    assert_eq!((phase(&fleet, 0), fleet.ejected_by_rules()), (Phase::Healthy, 0));
    assert_eq!((0..).map_while(|_| fleet.acquire_key(&0).ok()).collect::<Vec<_>>().len(), 4);
    fail(&fleet, 1, 3);
    assert!(!fleet.eject(&1).expect("a member"), "it was");
    assert_eq!(fleet.ejected_by_rules(), 0);
    clock.advance(seconds(1000));
    let _ = fleet.tick();
    assert_eq!(standing(&fleet, 1), Standing::Ejected, "and stays so, as it was done by hand");
    fail(&fleet, 2, 3);
    fleet.remove(&2).expect("a member");
    assert_eq!(fleet.ejected_by_rules(), 0);
    assert_eq!(fleet.acquire_key(&2).err().map(|error| error.to_string().is_empty()), Some(false));
    #[cfg(feature = "internals")]
    fleet.check_invariants();
}

/// By hand two, by rules as many as the share allows: neither takes the other's place, and time ends only what the rules have done.
#[test]
fn by_hand_and_by_rules_at_once() {
    let (fleet, clock) = fleet_of(6, Capacity::Exclusive, |builder| builder.ejection(rules()));
    // Half of six may be ejected by the rules; all but one are out.
    for key in [0, 1] {
        assert!(fleet.eject(&key).expect("a member"));
    }
    for key in [2, 3, 4] {
        fail(&fleet, key, 3);
        assert_eq!((standing(&fleet, key), phase(&fleet, key)), (Standing::Ejected, Phase::Ejected));
    }
    assert_eq!((fleet.ejected_by_rules(), fleet.stats().reasons.ejected), (3, 5));
    // There is no place for a fourth, whatever was done by hand: it rests.
    fail(&fleet, 5, 3);
    assert_eq!((fleet.ejected_by_rules(), standing(&fleet, 5)), (3, Standing::Cooling));
    // Who was ejected by the rules is ejected by hand as well: that gives the place back, and takes it out of their hands.
    assert!(!fleet.eject(&4).expect("a member"), "it was out");
    assert_eq!((fleet.ejected_by_rules(), fleet.stats().reasons.ejected), (2, 5));
    fail_when_rested(&fleet, &clock, 5);
    assert_eq!((fleet.ejected_by_rules(), fleet.stats().reasons.ejected), (3, 6));
    // When the time of the rules is over, theirs come back, and nobody else.
    clock.advance(seconds(60));
    let _ = fleet.tick();
    for (key, expected) in [0, 1, 4]
        .map(|key| (key, Standing::Ejected))
        .into_iter()
        .chain([2, 3, 5].map(|key| (key, Standing::Eligible)))
    {
        assert_eq!(standing(&fleet, key), expected, "{key}");
    }
    assert_eq!(fleet.ejected_by_rules(), 0);
    // Those three were taken out by hand and come back by hand, in good health.
    for key in [0, 1, 4] {
        assert!(fleet.readmit(&key).expect("a member"));
        assert_eq!((standing(&fleet, key), phase(&fleet, key)), (Standing::Eligible, Phase::Healthy));
    }
    #[cfg(feature = "internals")]
    fleet.check_invariants();
}

/// Lets its rest end, and one more call fail.
fn fail_when_rested(fleet: &Fleet, clock: &ManualClock, key: u32) {
    clock.advance(seconds(2));
    let _ = fleet.tick();
    fail(fleet, key, 1);
}

#[test]
fn an_update_during_the_probe_keeps_it_one() {
    let (fleet, clock) =
        fleet_of(2, Capacity::Limited(4), |builder| builder.ejection(rules().ramp(Duration::ZERO)));
    fail(&fleet, 0, 3);
    clock.advance(seconds(30));
    let _ = fleet.tick();
    fleet.update(Entry::new(0, 0, None).with_capacity(Capacity::Limited(9))).expect("a member");
    let probe = fleet.acquire_key(&0).expect("the probe");
    assert!(fleet.acquire_key(&0).is_err(), "one");
    probe.finish(OK);
    assert_eq!(
        (0..).map_while(|_| fleet.acquire_key(&0).ok()).collect::<Vec<_>>().len(),
        9,
        "what the update says"
    );
}

#[test]
fn waiters_get_the_probe() {
    let (fleet, clock) = fleet_of(2, Capacity::Exclusive, |builder| builder.ejection(rules()));
    fail(&fleet, 0, 3);
    fleet.exclude(&1).expect("a member");
    let mut waiting = std::pin::pin!(fleet.acquire_async());
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(waiting.as_mut().poll(&mut context).is_pending());
    clock.advance(seconds(30));
    let _ = fleet.tick();
    let std::task::Poll::Ready(Ok(lease)) = waiting.as_mut().poll(&mut context) else { panic!("it is due") };
    assert_eq!((*lease.key(), phase(&fleet, 0)), (0, Phase::Probing));
}

/// A successful probe without a ramp gives all units back at once: to all who wait.
#[test]
fn waiters_get_all_units_that_a_probe_gives_back() {
    let (fleet, clock) = fleet_of(1, Capacity::Limited(4), |builder| {
        builder.ejection(rules().max_share(100).ramp(Duration::ZERO))
    });
    fail(&fleet, 0, 3);
    clock.advance(seconds(30));
    let probe = fleet.acquire().expect("it is due");
    let mut waiting: Vec<_> = (0..4).map(|_| Box::pin(fleet.acquire_async())).collect();
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(waiting.iter_mut().all(|one| one.as_mut().poll(&mut context).is_pending()));
    probe.finish(OK);
    let served: Vec<_> = waiting.iter_mut().map(|one| one.as_mut().poll(&mut context)).collect();
    assert!(served.iter().all(std::task::Poll::is_ready), "four units, four who wait");
}

/// Waiting tasks have no timer here: a rest of zero must not need one.
#[test]
fn no_rest_is_handed_on_at_once() {
    let (fleet, _) = fleet_of(1, Capacity::Exclusive, |builder| {
        builder.cooldown(Cooldown::default().on_rate_limit(Backoff::None))
    });
    let plain = Fleet::builder().shards(1).build().expect("in range");
    plain.insert(Entry::new(0, 0, None)).expect("new");
    let none = Outcome::RateLimited { retry_after: Duration::ZERO };
    for fleet in [&fleet, &plain] {
        for end in [0, 1, 2] {
            let lease = fleet.acquire().expect("free");
            let mut waiting = std::pin::pin!(fleet.acquire_async());
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            assert!(waiting.as_mut().poll(&mut context).is_pending());
            match end {
                0 => lease.release_after(Duration::ZERO),
                1 => lease.finish(none),
                _ => lease.finish_after(OK, Duration::ZERO),
            }
            assert!(waiting.as_mut().poll(&mut context).is_ready(), "end {end}");
        }
        assert_eq!(fleet.stats().cooled, 0);
    }
}

/// Leases from before the ejection decide nothing.
#[test]
fn what_was_lent_before_is_no_probe() {
    let (fleet, clock) =
        fleet_of(1, Capacity::Limited(4), |builder| builder.ejection(rules().max_share(100)));
    let old: Vec<_> = (0..3).map(|_| fleet.acquire().expect("free")).collect();
    fail(&fleet, 0, 3);
    clock.advance(seconds(30));
    let _ = fleet.tick();
    assert_eq!(phase(&fleet, 0), Phase::Probing);
    old.into_iter().for_each(|lease| lease.finish(OK));
    assert_eq!(phase(&fleet, 0), Phase::Probing, "they say nothing of how it is now");
    fleet.acquire().expect("the probe").finish(OK);
    assert_eq!(phase(&fleet, 0), Phase::Ramping);
}

/// Nor do they later: a resource that has recovered is judged by what came since, the probe first.
#[test]
fn what_was_lent_before_does_not_eject_it_after_the_probe() {
    let slow = Outcome::Ok { latency: seconds(30) };
    let by_latency = rules().latency(3.0, 8);
    let by_rate = rules().failure_rate(50, 8);
    for (rules, old, next) in [(by_latency, slow, OK), (by_rate, Outcome::Failed, Outcome::Failed)] {
        let (fleet, clock) =
            fleet_of(2, Capacity::Limited(16), |builder| builder.ejection(rules.max_share(50)));
        // What is usual.
        (0..20).for_each(|_| fleet.acquire_key(&1).expect("free").finish(OK));
        let hang: Vec<_> = (0..12).map(|_| fleet.acquire_key(&0).expect("free")).collect();
        fail(&fleet, 0, 3);
        clock.advance(seconds(30));
        let _ = fleet.tick();
        hang.into_iter().for_each(|lease| lease.finish(old));
        assert_eq!(phase(&fleet, 0), Phase::Probing);
        fleet.acquire_key(&0).expect("the probe").finish(OK);
        clock.advance(seconds(15));
        let _ = fleet.tick();
        assert_eq!(phase(&fleet, 0), Phase::Ramping);
        fleet.acquire_key(&0).expect("on the ramp").finish(next);
        assert_eq!(phase(&fleet, 0), Phase::Ramping, "{old:?} is of before");
    }
}

/// Traffic of one thread for so many calls; 0 says so at once, the others need `call`. Answers how many calls 0 has got.
fn traffic(fleet: &Fleet, clock: &ManualClock, calls: u32, bad: Outcome, call: Duration) -> u32 {
    let mut failed = 0;
    for _ in 0..calls {
        let lease = fleet.acquire().expect("somebody is eligible");
        if *lease.key() == 0 {
            failed += 1;
            clock.advance(Duration::from_micros(10));
            lease.finish(bad);
        } else {
            clock.advance(call);
            lease.finish(Outcome::Ok { latency: call });
        }
    }
    failed
}

/// However long a call takes, and however small the fleet is: up to nine have no place by default.
#[test]
fn who_fails_at_once_gets_less_than_two_percent_of_every_traffic() {
    for call in [10, 100, 1_000].map(Duration::from_millis) {
        for members in 2..=12 {
            let (fleet, clock) =
                fleet_of(members, Capacity::Exclusive, |builder| builder.ejection(Ejection::default()));
            let failed = traffic(&fleet, &clock, 20_000, Outcome::Failed, call);
            assert!(failed < 400, "{failed} of 20,000 calls of {call:?}, of {members}");
        }
    }
}

/// The condition on the promise, as `Ejection::without_place` and the guide say it: fifty calls must fit into the longest ejection, 300 s. With
/// calls of 5 s sixty do; with calls of 10 s only thirty, and it is asked again after 300 s all the same.
#[test]
fn the_promise_holds_as_long_as_fifty_calls_fit_into_the_longest_ejection() {
    // The second fleet has a place for it: there it is ejected, for 270 s to 300 s.
    for members in [2, 10] {
        let share = |call: u64| {
            let (fleet, clock) =
                fleet_of(members, Capacity::Exclusive, |builder| builder.ejection(Ejection::default()));
            // In the long run: until the rests are as long as they get.
            traffic(&fleet, &clock, 2_000, Outcome::Failed, seconds(call));
            traffic(&fleet, &clock, 20_000, Outcome::Failed, seconds(call))
        };
        let (short, long) = (share(5), share(10));
        assert!(short < 400, "{short} of 20,000 calls of 5 s, of {members}");
        assert!(
            (400..800).contains(&long),
            "{long} of 20,000 calls of 10 s, of {members}: more, and not much"
        );
    }
}

/// Four threads, each with one call at a time, for so many calls; as `traffic`, but that who finds nothing asks again.
fn crowded(fleet: &Fleet, clock: &ManualClock, calls: u32, call: Duration) -> u32 {
    let (begun, failed) = (AtomicU32::new(0), AtomicU32::new(0));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while begun.load(SeqCst) < calls {
                    let Ok(lease) = fleet.acquire() else {
                        // The only one that works is lent: whoever has it lets time pass.
                        thread::yield_now();
                        continue;
                    };
                    begun.fetch_add(1, SeqCst);
                    if *lease.key() == 0 {
                        failed.fetch_add(1, SeqCst);
                        lease.finish(Outcome::Failed);
                    } else {
                        // Four calls side by side take as long as one.
                        clock.advance(call / 4);
                        lease.finish(Outcome::Ok { latency: call });
                    }
                }
            });
        }
    });
    failed.into_inner()
}

/// As most have it: several threads, several shards, the default strategy. Key 0 ranks best.
#[test]
#[cfg_attr(miri, ignore = "too long; nothing of it is unsafe")]
fn who_fails_at_once_gets_less_than_two_percent_of_several_threads() {
    for capacity in [Capacity::Exclusive, Capacity::Unlimited] {
        for members in [2, 10, 100] {
            for call in [10, 1_000].map(Duration::from_millis) {
                let clock = Arc::new(ManualClock::new());
                let builder = Fleet::builder().shards(8).seed(7).clock(clock.clone());
                let fleet = builder.ejection(Ejection::default()).build().expect("in range");
                for key in 0..members {
                    fleet.insert(Entry::new(key, u64::from(key), None).with_capacity(capacity)).expect("new");
                }
                let failed = crowded(&fleet, &clock, 20_000, call);
                assert!(failed >= 5, "it is the best: {failed} of {members}");
                assert!(failed < 400, "{failed} of 20,000 calls of {call:?}, of {members}, {capacity:?}");
                #[cfg(feature = "internals")]
                fleet.check_invariants();
            }
        }
    }
}

/// "Try again at once", each time.
#[test]
fn who_limits_the_rate_at_once_gets_little() {
    let at_once = Outcome::RateLimited { retry_after: Duration::ZERO };
    let (fleet, clock) = fleet_of(5, Capacity::Exclusive, |builder| builder.ejection(Ejection::default()));
    let limited = traffic(&fleet, &clock, 20_000, at_once, Duration::from_millis(10));
    assert!(limited < 400, "{limited} of 20,000");
    let (fleet, clock) = fleet_of(5, Capacity::Exclusive, |builder| builder.cooldown(Cooldown::default()));
    let limited = traffic(&fleet, &clock, 20_000, at_once, Duration::from_millis(10));
    assert!(limited < 400, "{limited} of 20,000");
}

/// All are slower than they were: whoever is slower than the median is no outlier by that, and somebody is always lent.
#[test]
fn a_slow_down_of_the_whole_fleet_lends_on() {
    let rules = Ejection::default().latency(2.0, 8).max_share(20).jitter(0);
    let (fleet, clock) = fleet_of(10, Capacity::Exclusive, |builder| builder.ejection(rules));
    for (call, calls) in [(10, 2_000), (1_000, 2_000)] {
        for _ in 0..calls {
            let leases: Vec<_> = (0..).map_while(|_| fleet.acquire().ok()).collect();
            assert!(leases.len() >= 8, "all but the share: {}", leases.len());
            // Each for itself, as if they worked side by side.
            let call = Duration::from_millis(call);
            clock.advance(call);
            leases.into_iter().for_each(|lease| lease.finish(Outcome::Ok { latency: call }));
        }
    }
}

#[test]
fn who_fails_at_once_gets_less_than_two_percent() {
    let (fleet, clock) = fleet_of(10, Capacity::Exclusive, |builder| builder.ejection(Ejection::default()));
    let failed = traffic(&fleet, &clock, 20_000, Outcome::Failed, Duration::from_millis(10));
    assert!(failed < 400, "{failed} of 20,000, and it is the best by rank");
    // Not even without ejection, if failures cool.
    let backoff = Backoff::Exponential { base: Duration::from_millis(100), longest: seconds(60) };
    let rules = Cooldown::default().on_failure(backoff);
    let (fleet, clock) = fleet_of(10, Capacity::Exclusive, |builder| builder.cooldown(rules));
    let failed = traffic(&fleet, &clock, 20_000, Outcome::Failed, Duration::from_millis(10));
    assert!(failed < 400, "{failed} of 20,000");
}

/// What counts is how many of the last 64 outcomes are failures, not how many there were in all, or in a row.
#[test]
fn by_failure_rate_over_a_window_that_slides() {
    let rules = rules().consecutive_failures(0).failure_rate(25, 20);
    let (fleet, clock) = fleet_of(4, Capacity::Exclusive, |builder| builder.ejection(rules));
    let tell = |outcomes: &[Outcome]| {
        for &outcome in outcomes {
            fleet.acquire_key(&0).expect("eligible").finish(outcome);
        }
    };
    tell(&[OK; 14]);
    tell(&[Outcome::Failed; 5]);
    assert_eq!(phase(&fleet, 0), Phase::Healthy, "more than a quarter, of 19: too few to say so");
    tell(&[OK; 64]);
    assert_eq!(fleet.resource_stats(&0).expect("remembered").recent_failures, 0, "the old ones have left it");
    for _ in 0..15 {
        tell(&[Outcome::Failed, OK, OK]);
    }
    let stats = fleet.resource_stats(&0).expect("remembered");
    assert_eq!(
        (stats.recent_failures, stats.recent, stats.phase),
        (15, 64, Phase::Healthy),
        "less than a quarter"
    );
    tell(&[OK, OK]);
    assert_eq!((fleet.ejected_by_rules(), phase(&fleet, 0)), (0, Phase::Healthy));
    tell(&[Outcome::Failed]);
    let stats = fleet.resource_stats(&0).expect("remembered");
    assert_eq!((stats.recent_failures, stats.phase), (16, Phase::Ejected), "16 of 64");
    assert_eq!((fleet.ejected_by_rules(), standing(&fleet, 0)), (1, Standing::Ejected));
    assert_eq!(stats.ejected_until, Some(seconds(30).as_nanos() as u64));
    // After the probe the window is empty: one failure is not a quarter of 20.
    clock.advance(seconds(30));
    tell(&[OK]);
    assert_eq!(fleet.resource_stats(&0).expect("remembered").recent, 1);
    clock.advance(seconds(30));
    tell(&[Outcome::Failed]);
    assert_eq!(phase(&fleet, 0), Phase::Healthy);
}

#[test]
fn slow_ones_are_ejected_by_latency() {
    let rules = rules().latency(3.0, 8);
    let (fleet, _clock) = fleet_of(8, Capacity::Exclusive, |builder| builder.ejection(rules));
    for _ in 0..20 {
        for key in 0..8 {
            if let Ok(lease) = fleet.acquire_key(&key) {
                let latency = Duration::from_millis(if key == 3 { 100 } else { 10 });
                lease.finish(Outcome::Ok { latency });
            }
        }
    }
    assert_eq!((fleet.ejected_by_rules(), phase(&fleet, 3)), (1, Phase::Ejected));
}

/// The fleet's median is not what the slow one makes of it, however few and however spread they are.
#[test]
fn slow_ones_are_ejected_by_latency_in_every_fleet() {
    for members in 2..=9 {
        for shards in [1, 2, members as usize, 8] {
            let rules = rules().latency(3.0, 8).max_share(50);
            let fleet = Fleet::builder().shards(shards).ejection(rules).build().expect("in range");
            for key in 0..members {
                fleet.insert(Entry::new(key, 0, None)).expect("new");
            }
            for _ in 0..40 {
                for key in 0..members {
                    if let Ok(lease) = fleet.acquire_key(&key) {
                        let latency = Duration::from_millis(if key == 1 { 1_000 } else { 1 });
                        lease.finish(Outcome::Ok { latency });
                    }
                }
            }
            assert_eq!(
                (fleet.ejected_by_rules(), phase(&fleet, 1)),
                (1, Phase::Ejected),
                "{members} in {shards} shards"
            );
        }
    }
}

/// Whoever was the only one of its shard takes its latency along, however it goes: the others are compared with each other.
#[test]
fn what_is_not_lent_any_more_has_no_part_in_the_median() {
    const LENT: [&str; 8] = [
        "remove",
        "exclude",
        "eject",
        "drain",
        "drain_timeout",
        "drain_deadline",
        "drain_async",
        "drain_all",
    ];
    let cases = LENT.map(|how| [(how, false), (how, true)]).into_iter().flatten();
    for (how, is_lent) in cases.chain([("evict", false)]) {
        let rules = rules().latency(3.0, 5).max_share(50);
        let fleet = Fleet::builder().shards(2).seed(7).ejection(rules).build().expect("in range");
        let lone = 1_000;
        fleet.insert(Entry::new(lone, 9, None)).expect("new");
        let members = || fleet.stats_by_shard().iter().map(|shard| shard.members).collect::<Vec<_>>();
        let home = members().iter().position(|&count| count == 1);
        let mut others = Vec::new();
        let mut with_it = Vec::new();
        for key in 0..12 {
            let before = members();
            fleet.insert(Entry::new(key, 0, None)).expect("new");
            let here = before.iter().zip(members()).position(|(&before, now)| now > before);
            if here == home { with_it.push(key) } else { others.push(key) }
        }
        for key in with_it {
            fleet.remove(&key).expect("a member");
        }
        assert!(others.len() >= 4);
        let call = |key: &u32, millis| {
            fleet
                .acquire_key(key)
                .map(|lease| lease.finish(Outcome::Ok { latency: Duration::from_millis(millis) }))
        };
        for _ in 0..20 {
            call(&lone, 1).expect("eligible");
        }
        // What comes back later has no part in it either.
        let lease = is_lent.then(|| fleet.acquire_key(&lone).expect("eligible"));
        match how {
            "remove" => drop(fleet.remove(&lone).expect("a member")),
            "evict" => assert_eq!(fleet.evict_worst(), Some(lone)),
            "exclude" => assert_eq!(fleet.exclude(&lone), Ok(true)),
            "drain" => assert_eq!(fleet.drain(&lone), Ok(true)),
            "drain_timeout" => drop(fleet.drain_timeout(&lone, Duration::ZERO).expect("a member")),
            "drain_deadline" => drop(fleet.drain_deadline(&lone, Timestamp::ZERO).expect("a member")),
            "drain_async" => drop(fleet.drain_async(&lone).expect("a member")),
            "drain_all" => {
                drop(fleet.drain_all(Timestamp::ZERO));
                others.iter().for_each(|key| assert_eq!(fleet.undrain(key), Ok(true)));
            }
            _ => assert_eq!(fleet.eject(&lone), Ok(true)),
        }
        if let Some(lease) = lease {
            lease.finish(Outcome::Ok { latency: Duration::from_millis(1) });
        }
        for _ in 0..20 {
            for key in &others {
                call(key, 10).unwrap_or_else(|_| {
                    panic!("{how}, lent: {is_lent}: {key} is ejected, for it was compared with what is gone")
                });
            }
        }
        assert_eq!(fleet.ejected_by_rules(), 0, "{how}, lent: {is_lent}");
    }
}

#[test]
fn on_the_ramp_an_exclusive_one_works_a_growing_part_of_the_time() {
    let (fleet, clock) = fleet_of(2, Capacity::Exclusive, |builder| builder.ejection(rules()));
    fail(&fleet, 0, 3);
    clock.advance(seconds(30));
    let start = fleet.now();
    fleet.acquire_key(&0).expect("the probe").finish(OK);
    let mut busy = [0u32; 3];
    while fleet.now().saturating_since(start) < seconds(30) {
        let third = (fleet.now().saturating_since(start).as_secs() / 10).min(2) as usize;
        match fleet.acquire_key(&0) {
            Ok(lease) => {
                clock.advance(Duration::from_millis(10));
                lease.finish(OK);
                busy[third] += 1;
            }
            Err(_) => clock.advance(Duration::from_millis(1)),
        }
    }
    // A third of the ramp is 10 s, 1,000 calls; its middle is at 1/6, 1/2, 5/6.
    for (busy, expected) in busy.into_iter().zip([167, 500, 833]) {
        assert!(busy.abs_diff(expected) < 60, "{busy} of {expected}");
    }
}

#[test]
fn c06_cooldown_is_strict_for_every_policy() {
    // Fixed, exponential, from Retry-After; of the fleet, of one resource, of one call: from the return on nobody gets it.
    let rules = Cooldown::default()
        .on_failure(Backoff::Fixed(seconds(2)))
        .on_rate_limit(Backoff::Exponential { base: seconds(1), longest: seconds(4) })
        .retry_after_at_most(seconds(60));
    let (fleet, clock) = fleet_of(1, Capacity::Exclusive, |builder| builder.cooldown(rules));
    let rests = |rest: Duration| {
        clock.advance(rest - Duration::from_nanos(1));
        assert!(fleet.acquire().is_err(), "before the deadline");
        clock.advance(Duration::from_nanos(1));
        fleet.acquire().expect("at the deadline")
    };
    let limited = |seconds_: u64| Outcome::RateLimited { retry_after: seconds(seconds_) };
    fleet.acquire().expect("free").finish(Outcome::Failed);
    rests(seconds(2)).finish(limited(0));
    rests(seconds(2)).finish(limited(7));
    rests(seconds(7)).finish(limited(1_000_000));
    rests(seconds(60)).finish(OK);
    fleet.acquire().expect("a success lets nobody rest").finish(limited(0));
    rests(seconds(1)).finish_after(OK, seconds(9));
    rests(seconds(9)).finish_after(limited(11), seconds(9));
    rests(seconds(11)).release_after(seconds(3));
    let own = Cooldown::default().on_failure(Backoff::Fixed(seconds(5)));
    drop(rests(seconds(3)));
    fleet.remove(&0).expect("a member");
    #[derive(Clone)]
    struct Own(Cooldown);
    impl Resource for Own {
        type Key = u8;
        type Priority = ();
        fn key(&self) -> u8 {
            0
        }
        fn priority(&self, _: u32) {}
        fn cooldown(&self) -> Option<Cooldown> {
            Some(self.0)
        }
    }
    let clock = Arc::new(ManualClock::new());
    let fleet = Scheduler::<Own>::builder().clock(clock.clone()).cooldown(rules).build().expect("in range");
    assert!(fleet.insert(Own(own)).is_ok());
    fleet.acquire().expect("free").finish(Outcome::Failed);
    clock.advance(seconds(4));
    assert!(fleet.acquire().is_err());
    clock.advance(seconds(1));
    assert!(fleet.acquire().is_ok(), "its own rule counts");
    // Also in a fleet that remembers nothing; there each outcome is the first.
    let clock = Arc::new(ManualClock::new());
    let fleet = Scheduler::<Own>::builder().clock(clock.clone()).build().expect("in range");
    let rules = own.on_rate_limit(Backoff::Fixed(seconds(2))).retry_after_at_most(seconds(3));
    assert!(fleet.insert(Own(rules)).is_ok());
    let mut by_token = false;
    for (outcome, rest) in [(Outcome::Failed, 5), (limited(0), 2), (limited(60), 3), (Outcome::Failed, 5)] {
        let lease = fleet.acquire().expect("free");
        if by_token {
            fleet.finish(lease.into_token(), outcome).expect("out");
        } else {
            lease.finish(outcome);
        }
        by_token = !by_token;
        clock.advance(seconds(rest) - Duration::from_nanos(1));
        assert!(fleet.acquire().is_err(), "{outcome:?}: before the deadline");
        clock.advance(Duration::from_nanos(1));
    }
    for outcome in [OK, Outcome::Cancelled] {
        fleet.acquire().expect("at the deadline").finish(outcome);
    }
}

#[test]
fn c06_what_was_put_back_early_is_not_freed_again_by_the_old_deadline() {
    // The seed's timer re-activates whatever has the key when it fires.
    let (fleet, clock) = fleet_of(1, Capacity::Exclusive, |builder| builder.ejection(rules().max_share(100)));
    fleet.acquire().expect("free").release_after(seconds(5));
    fleet.warm(&0).expect("a member");
    let holder = fleet.acquire().expect("warmed");
    clock.advance(seconds(6));
    let _ = fleet.tick();
    assert!(fleet.acquire().is_err(), "held");
    fleet.remove(&0).expect("a member");
    fleet.insert(Entry::new(0, 0, None)).expect("new");
    fail(&fleet, 0, 3);
    fleet.remove(&0).expect("a member");
    fleet.insert(Entry::new(0, 0, None)).expect("new");
    fleet.exclude(&0).expect("a member");
    clock.advance(seconds(60));
    let _ = fleet.tick();
    assert_eq!(
        standing(&fleet, 0),
        Standing::Excluded,
        "a deadline of the old one means nothing to the new one"
    );
    drop(holder);
    assert!(matches!(fleet.readmit(&7), Err(KeyError::NotFound { key: 7 })));
}

#[test]
fn rules_are_checked() {
    let built = Fleet::builder().ejection(Ejection::default().max_share(101)).build();
    assert!(matches!(built, Err(BuildError::Ejection { .. })));
}
