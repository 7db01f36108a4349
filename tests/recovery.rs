//! The way back of what was ejected, and what is told meanwhile, on a clock that is moved by hand.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::{
    collections::HashSet,
    pin::Pin,
    sync::{Arc, Barrier, Mutex},
    task::{Context, Poll, Waker},
    thread,
    time::Duration,
};

use leasehold::{
    AcquireError, AcquireKeyError, Backoff, Builder, Capacity, Ejection, Entry, Lease, ManualClock, Outcome,
    Phase, Resource, Scheduler, SplitMix64, Standing, WaitError,
};

type Plain = Entry<u32, u64, ()>;
type Fleet = Scheduler<Plain>;

const OK: Outcome = Outcome::Ok { latency: Duration::from_millis(10) };

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn limited(after: Duration) -> Outcome {
    Outcome::RateLimited { retry_after: after }
}

/// Three failures, 30 s, half of the fleet.
fn rules() -> Ejection {
    Ejection::default().consecutive_failures(3).max_share(50).jitter(0)
}

fn build(set: impl FnOnce(Builder<Plain>) -> Builder<Plain>) -> (Fleet, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new());
    let fleet = set(Fleet::builder().shards(1).seed(7).clock(clock.clone())).build().expect("in range");
    (fleet, clock)
}

fn fleet_of(members: u32, capacity: Capacity, rules: Ejection) -> (Fleet, Arc<ManualClock>) {
    let (fleet, clock) = build(|builder| builder.ejection(rules));
    for key in 0..members {
        fleet.insert(Entry::new(key, u64::from(key), ()).with_capacity(capacity)).expect("new");
    }
    (fleet, clock)
}

fn fail(fleet: &Fleet, key: u32, times: u32) {
    for _ in 0..times {
        fleet.acquire_key(&key).expect("eligible").finish(Outcome::Failed);
    }
}

fn phase(fleet: &Fleet, key: u32) -> Phase {
    fleet.resource_stats(&key).expect("remembered").phase
}

/// Ejected, readmitted after 30 s, and probed: on the ramp from then on.
fn let_on_ramp(fleet: &Fleet, clock: &ManualClock, key: u32) {
    fail(fleet, key, 3);
    clock.advance(seconds(30));
    fleet.acquire_key(&key).expect("the probe").finish(OK);
    assert_eq!(phase(fleet, key), Phase::Ramping);
}

/// What "none" tells.
fn told(tried: Result<Lease<'_, Plain>, AcquireError>) -> Option<Duration> {
    match tried {
        Err(AcquireError::NoneEligible(none)) => none.retry_after,
        other => panic!("nothing is eligible: {other:?}"),
    }
}

#[test]
fn a_step_of_the_ramp_is_no_return_of_what_rests() {
    let (fleet, clock) = fleet_of(2, Capacity::Exclusive, rules());
    let_on_ramp(&fleet, &clock, 0);
    for key in [0, 1] {
        fleet.cool(&key, seconds(60)).expect("a member");
    }
    assert_eq!(told(fleet.acquire()), Some(seconds(60)), "the ramp has steps of less than 2 s");
}

/// On the ramp with its one unit out, and told to rest: a step gives it a second unit, and what is in the way then is the deadline alone.
#[test]
fn a_step_of_the_ramp_shows_when_what_rests_can_be_lent() {
    for by_name in [false, true] {
        let (fleet, clock) = fleet_of(1, Capacity::Limited(2), rules().max_share(100).ramp(seconds(32)));
        let_on_ramp(&fleet, &clock, 0);
        let lease = fleet.acquire().expect("one unit");
        fleet.cool(&0, seconds(60)).expect("a member");
        clock.advance(seconds(33));
        if by_name {
            fleet.acquire_key(&0).expect_err("it rests");
            assert_eq!(phase(&fleet, 0), Phase::Healthy, "the ramp is over");
        }
        assert_eq!(fleet.tick(), Some(fleet.now().saturating_add(seconds(27))), "the end of its rest");
        assert_eq!(phase(&fleet, 0), Phase::Healthy, "the ramp is over");
        #[cfg(feature = "internals")]
        fleet.check_invariants();
        clock.advance(seconds(27));
        assert!(fleet.peek().is_some(), "a look finds it");
        drop(fleet.acquire().expect("the second unit"));
        drop(lease);
    }
}

/// Removed on the ramp, with nobody who needs it: nothing waits for steps that will not come.
#[test]
fn what_is_removed_on_the_ramp_is_gone() {
    let ways: [fn(&Fleet); 3] = [
        |fleet| assert_eq!(fleet.remove(&0).expect("a member").in_flight, 0),
        |fleet| {
            assert!(fleet.eject(&0).expect("a member"), "by hand, and removed then");
            fleet.remove(&0).expect("a member");
        },
        |fleet| assert_eq!(fleet.evict_worst(), Some(0)),
    ];
    for end in ways {
        for capacity in [Capacity::Exclusive, Capacity::Limited(4)] {
            let (fleet, clock) = fleet_of(1, capacity, rules().max_share(100).ramp(seconds(3600)));
            let_on_ramp(&fleet, &clock, 0);
            end(&fleet);
            assert_eq!(fleet.stats().leaving, 0, "nobody has it");
        }
    }
}

#[test]
fn a_step_of_the_ramp_gives_an_exclusive_one_nothing() {
    let (fleet, clock) = fleet_of(2, Capacity::Exclusive, rules());
    let_on_ramp(&fleet, &clock, 0);
    let _lent = [0, 1].map(|key| fleet.acquire_key(&key).expect("free"));
    assert_eq!(told(fleet.acquire()), None, "that takes a return");
}

#[test]
fn the_end_of_an_ejection_frees_nothing_that_is_held_otherwise() {
    let (fleet, clock) = fleet_of(2, Capacity::Exclusive, rules());
    fail(&fleet, 0, 3);
    let _lent = fleet.acquire_key(&1).expect("free");
    assert_eq!(told(fleet.acquire()), Some(seconds(30)));
    for drains in [false, true] {
        assert!(if drains { fleet.drain(&0) } else { fleet.exclude(&0) }.expect("a member"));
        assert_eq!(told(fleet.acquire()), None, "that takes somebody");
        assert!(if drains { fleet.undrain(&0) } else { fleet.include(&0) }.expect("a member"));
        assert_eq!(told(fleet.acquire()), Some(seconds(30)));
    }
    fleet.cool(&0, seconds(70)).expect("a member");
    assert_eq!(told(fleet.acquire()), Some(seconds(70)), "the later one");
    clock.advance(seconds(70));
    assert!(fleet.acquire().is_ok());
}

#[test]
fn older_leases_keep_the_probe_back() {
    let (fleet, clock) = fleet_of(2, Capacity::Limited(4), rules());
    fleet.exclude(&1).expect("a member");
    let old = fleet.acquire().expect("free");
    fail(&fleet, 0, 3);
    assert_eq!(told(fleet.acquire()), None, "it comes back with one unit, and one is out");
    old.finish(limited(seconds(60)));
    assert_eq!(told(fleet.acquire()), Some(seconds(60)), "ejected for 30 s, and it rests for 60");
    clock.advance(seconds(60));
    assert!(fleet.acquire().is_ok());
}

/// The last lease from before comes back and says nothing: what is lent then is the probe, and there is no other.
#[test]
fn an_older_lease_that_says_nothing_is_not_taken_for_the_probe() {
    let ends: [fn(&Fleet, Lease<'_, Plain>); 4] = [
        |_, lease| drop(lease),
        |fleet, lease| fleet.release(lease.into_token()).expect("out"),
        |fleet, lease| fleet.revoke(lease.into_token()).expect("out"),
        |_, lease| lease.release_after(seconds(1)),
    ];
    for (number, end) in ends.into_iter().enumerate() {
        for others in [0, 1] {
            let (fleet, clock) = fleet_of(2, Capacity::Limited(4), rules());
            fleet.exclude(&1).expect("a member");
            let old = fleet.acquire().expect("free");
            let others: Vec<_> = (0..others).map(|_| fleet.acquire().expect("free")).collect();
            fail(&fleet, 0, 3);
            clock.advance(seconds(30));
            let _ = fleet.tick();
            assert_eq!(phase(&fleet, 0), Phase::Probing);
            others.into_iter().for_each(|other| other.finish(OK));
            end(&fleet, old);
            clock.advance(seconds(1));
            fleet.acquire().expect("the probe").finish(OK);
            assert_eq!(phase(&fleet, 0), Phase::Ramping, "end {number}");
        }
    }
}

/// As above, where the unit goes from hand to hand.
#[test]
fn an_older_lease_that_is_handed_on_is_the_probe_from_then_on() {
    let (fleet, clock) = fleet_of(2, Capacity::Limited(4), rules());
    fleet.exclude(&1).expect("a member");
    let old = fleet.acquire().expect("free");
    fail(&fleet, 0, 3);
    clock.advance(seconds(30));
    let _ = fleet.tick();
    let mut waiting = std::pin::pin!(fleet.acquire_async());
    let mut context = Context::from_waker(Waker::noop());
    assert!(waiting.as_mut().poll(&mut context).is_pending());
    drop(old);
    let Poll::Ready(Ok(probe)) = waiting.as_mut().poll(&mut context) else { panic!("it is handed on") };
    probe.finish(OK);
    assert_eq!(phase(&fleet, 0), Phase::Ramping);
}

/// As above, of one that was lent as the only unit, while there were more, and comes back as the only one again.
#[test]
fn an_older_lease_of_one_that_had_more_units_meanwhile_is_no_probe() {
    let (fleet, clock) = fleet_of(2, Capacity::Exclusive, rules());
    fleet.exclude(&1).expect("a member");
    let of = |capacity| fleet.update(Entry::new(0, 0, ()).with_capacity(capacity)).expect("a member");
    let old = fleet.acquire().expect("free");
    of(Capacity::Limited(4));
    fail(&fleet, 0, 3);
    clock.advance(seconds(30));
    let _ = fleet.tick();
    of(Capacity::Exclusive);
    drop(old);
    fleet.acquire().expect("the probe").finish(OK);
    assert_eq!(phase(&fleet, 0), Phase::Ramping);
}

/// As above, of one that had more units while it failed, and has one again when it comes back.
#[test]
fn an_older_lease_of_one_that_has_one_unit_again_is_no_probe() {
    let (fleet, clock) = fleet_of(2, Capacity::Exclusive, rules());
    fleet.exclude(&1).expect("a member");
    let of = |capacity| fleet.update(Entry::new(0, 0, ()).with_capacity(capacity)).expect("a member");
    let old = fleet.acquire().expect("free");
    of(Capacity::Limited(4));
    fail(&fleet, 0, 3);
    of(Capacity::Exclusive);
    clock.advance(seconds(30));
    let _ = fleet.tick();
    assert_eq!(phase(&fleet, 0), Phase::Probing);
    drop(old);
    fleet.acquire().expect("the probe").finish(OK);
    assert_eq!(phase(&fleet, 0), Phase::Ramping);
}

/// What a snapshot says of each, whoever asks need not work out from holds, limits and phases.
#[test]
fn a_snapshot_tells_when_each_can_be_lent() {
    let (fleet, clock) = fleet_of(6, Capacity::Limited(4), rules().ramp(seconds(32)));
    let _stream = fleet.acquire_key(&0).expect("free");
    (0..2).for_each(|key| fail(&fleet, key, 3));
    fleet.cool(&2, seconds(60)).expect("a member");
    let_on_ramp(&fleet, &clock, 3);
    let _probed = fleet.acquire_key(&3).expect("one unit");
    fail(&fleet, 1, 1);
    fleet.exclude(&4).expect("a member");
    fleet.cool(&4, seconds(5)).expect("a member");
    let now = fleet.now().as_nanos();
    let mut states = fleet.snapshot().into_vec();
    states.sort_by_key(|state| state.key);
    let ready: Vec<_> =
        states.iter().map(|state| state.ready_at.map(|at| at.saturating_sub(now) / 1_000_000_000)).collect();
    assert_eq!(
        ready,
        [
            None,     // a probe that older leases keep back
            Some(60), // ejected for the second time
            Some(30), // cooling for 60 s, of which 30 have passed
            Some(16), // on its ramp, with one of its four units, which is lent: half of the ramp
            None,     // excluded, whatever its cooling says
            Some(0),
        ]
    );
    assert_eq!(states[5].ready_at, Some(0), "now");
    assert!(states[0].holds.is_empty() && states[4].cooling_until.is_some());
}

#[test]
fn a_ramp_of_units_tells_when_there_is_one_more() {
    let (fleet, clock) = fleet_of(2, Capacity::Limited(4), rules().ramp(seconds(32)));
    fleet.exclude(&1).expect("a member");
    let_on_ramp(&fleet, &clock, 0);
    let _first = fleet.acquire().expect("one unit");
    assert_eq!(told(fleet.acquire()), Some(seconds(16)), "two of four at half of the ramp");
    clock.advance(seconds(10));
    assert_eq!(told(fleet.acquire()), Some(seconds(6)));
    assert_eq!(told(fleet.acquire_where(|_| true)), Some(seconds(6)));
    let Err(AcquireKeyError::NotEligible { earliest, .. }) = fleet.acquire_key(&0) else { panic!("full") };
    assert_eq!(earliest, Some(fleet.now().saturating_add(seconds(6))));
    clock.advance(seconds(6));
    assert!(fleet.acquire_where(|_| true).is_ok());
}

/// Whatever has happened: before the moment that is told nobody gets anything, and at it somebody does.
#[test]
fn the_moment_that_is_told_is_true() {
    for seed in 0..if cfg!(miri) { 2 } else { 400 } {
        let random = std::cell::RefCell::new(SplitMix64::new(seed));
        let draw = |below: u64| random.borrow_mut().next_u64() % below;
        let rules = rules().consecutive_failures(1).max_share(75).ramp(seconds(16 * draw(3)));
        let (fleet, clock) = build(|builder| builder.shards(1 + draw(2) as usize).ejection(rules));
        for key in 0..4 {
            let capacity = Capacity::Limited(1 + draw(4) as u32);
            fleet.insert(Entry::new(key, u64::from(key), ()).with_capacity(capacity)).expect("new");
        }
        let mut leases = Vec::new();
        let mut checked = 0;
        for _ in 0..300 {
            let key = draw(4) as u32;
            match draw(12) {
                0..=3 => leases.extend(fleet.acquire().ok()),
                4..=6 if !leases.is_empty() => {
                    let lease: Lease<'_, Plain> = leases.swap_remove(draw(leases.len() as u64) as usize);
                    lease.finish(
                        [OK, Outcome::Failed, Outcome::Failed, limited(seconds(draw(50)))][draw(4) as usize],
                    );
                }
                7 => drop(fleet.exclude(&key)),
                8 => drop(fleet.include(&key)),
                9 => drop(
                    fleet.update(Entry::new(key, 0, ()).with_capacity(Capacity::Limited(1 + draw(4) as u32))),
                ),
                10 => clock.advance(seconds(draw(9))),
                _ => {
                    let among = 1 + draw(15);
                    let filtered = draw(2) == 0;
                    let try_one = || {
                        if filtered {
                            fleet.acquire_where(|one| among >> one.key & 1 == 1)
                        } else {
                            fleet.acquire()
                        }
                    };
                    if let Ok(lease) = try_one() {
                        leases.push(lease);
                        continue;
                    }
                    checked += 1;
                    match told(try_one()) {
                        Some(after) => {
                            clock.advance(after - Duration::from_nanos(1));
                            assert!(try_one().is_err(), "seed {seed}: earlier than told");
                            clock.advance(Duration::from_nanos(1));
                            leases.push(try_one().unwrap_or_else(|error| panic!("seed {seed}: {error}")));
                        }
                        None => {
                            clock.advance(seconds(10_000));
                            assert!(try_one().is_err(), "seed {seed}: nothing was told");
                        }
                    }
                }
            }
        }
        assert!(checked > 0);
    }
}

#[test]
fn filters_and_names_see_an_ejection_end() {
    let (fleet, clock) = fleet_of(40, Capacity::Exclusive, rules().consecutive_failures(1));
    (0..20).for_each(|key| fail(&fleet, key, 1));
    let _lent: Vec<_> = (20..40).map(|key| fleet.acquire_key(&key).expect("free")).collect();
    assert_eq!(told(fleet.acquire_where(|one| one.key == 19)), Some(seconds(30)));
    let all_but_one: Vec<u32> = (0..40).filter(|&key| key != 19).collect();
    assert_eq!(told(fleet.acquire_excluding(&all_but_one)), Some(seconds(30)));
    let Err(AcquireKeyError::NotEligible { standing, earliest, .. }) = fleet.acquire_key(&19) else {
        panic!("ejected")
    };
    assert_eq!((standing, earliest), (Standing::Ejected, Some(fleet.now().saturating_add(seconds(30)))));
    clock.advance(seconds(30));
    // More are due than one call lets back.
    let _last = fleet.acquire_where(|one| one.key == 19).expect("due");
    let _before = fleet.acquire_key(&18).expect("due");
    assert!((0..18).all(|key| fleet.acquire_excluding(&[key]).is_ok()));
    #[cfg(feature = "internals")]
    {
        drop((_lent, _last, _before));
        fleet.check_invariants();
    }
}

/// The last of many that are due, by its name.
#[test]
fn a_name_that_is_due_is_lent_out_of_its_turn() {
    let (fleet, clock) = fleet_of(80, Capacity::Exclusive, rules().consecutive_failures(1));
    (0..40).for_each(|key| fail(&fleet, key, 1));
    clock.advance(seconds(30));
    for key in (0..40).rev() {
        fleet.acquire_key(&key).expect("due").finish(Outcome::Failed);
    }
    assert_eq!(fleet.ejected_by_rules(), 40, "each was a probe, and its place was free again");
    clock.advance(seconds(60));
    assert_eq!((0..80).map_while(|_| fleet.acquire().ok().map(Lease::into_token)).count(), 80);
    assert_eq!(fleet.ejected_by_rules(), 0);
}

#[test]
fn an_update_of_an_exclusive_one_keeps_its_probe_one() {
    let (fleet, clock) = fleet_of(2, Capacity::Exclusive, rules());
    let all = || (0..).map_while(|_| fleet.acquire_key(&0).ok()).collect::<Vec<_>>();
    fail(&fleet, 0, 3);
    clock.advance(seconds(30));
    let _ = fleet.tick();
    fleet.update(Entry::new(0, 0, ()).with_capacity(Capacity::Limited(9))).expect("a member");
    let mut probes = all();
    assert_eq!((probes.len(), phase(&fleet, 0)), (1, Phase::Probing));
    probes.pop().expect("one").finish(OK);
    assert_eq!((all().len(), phase(&fleet, 0)), (1, Phase::Ramping), "the ramp has just begun");
    clock.advance(seconds(15));
    assert_eq!(all().len(), 4, "half of it");
    clock.advance(seconds(15));
    assert_eq!((all().len(), phase(&fleet, 0)), (9, Phase::Healthy), "what the update says");
}

/// An update on the ramp, to more and to fewer.
#[test]
fn an_update_on_the_ramp_waits_for_its_end() {
    for units in [1, 9] {
        let (fleet, clock) = fleet_of(2, Capacity::Exclusive, rules());
        let all = || (0..).map_while(|_| fleet.acquire_key(&0).ok()).collect::<Vec<_>>();
        let_on_ramp(&fleet, &clock, 0);
        fleet.update(Entry::new(0, 0, ()).with_capacity(Capacity::Limited(units))).expect("a member");
        assert_eq!(all().len(), 1);
        clock.advance(seconds(30));
        let _ = fleet.tick();
        assert_eq!((all().len() as u32, phase(&fleet, 0)), (units, Phase::Healthy));
    }
}

#[test]
fn on_the_ramp_nobody_rests_less_than_who_succeeds() {
    let rests = |outcome: Outcome| {
        let (fleet, clock) = fleet_of(2, Capacity::Exclusive, rules());
        let_on_ramp(&fleet, &clock, 0);
        clock.advance(seconds(10));
        fleet.acquire_key(&0).expect("free").finish(outcome);
        fleet.exclude(&1).expect("a member");
        told(fleet.acquire())
    };
    assert_eq!(rests(OK), Some(Duration::from_millis(20)), "a third of the time");
    for outcome in [Outcome::Failed, Outcome::Cancelled, limited(Duration::ZERO)] {
        assert!(rests(outcome) >= rests(OK), "{outcome:?}: {:?}", rests(outcome));
    }
}

/// Traffic of one thread. Keys below `bad` fail at once, the others need `call`. Answers how many calls have failed, and how many found
/// nothing, of whom each comes again when it was told.
fn traffic(fleet: &Fleet, clock: &ManualClock, bad: u32, calls: u32, call: Duration) -> (u32, u32) {
    let (mut failed, mut none) = (0, 0);
    for _ in 0..calls {
        match fleet.acquire() {
            Ok(lease) if *lease.key() < bad => {
                failed += 1;
                clock.advance(Duration::from_micros(10));
                lease.finish(Outcome::Failed);
            }
            Ok(lease) => {
                clock.advance(call);
                lease.finish(Outcome::Ok { latency: call });
            }
            Err(AcquireError::NoneEligible(error)) => {
                none += 1;
                let after = error.retry_after.expect("somebody rests");
                assert!(after <= seconds(2), "{after:?}");
                clock.advance(after);
            }
            Err(error) => panic!("{error}"),
        }
    }
    (failed, none)
}

#[test]
fn without_a_place_who_fails_at_once_gets_little() {
    for (members, bad) in [(2, 1), (5, 1), (9, 1), (10, 2), (12, 5)] {
        for call in [10, 100, 1_000].map(Duration::from_millis) {
            let (fleet, clock) = fleet_of(members, Capacity::Exclusive, Ejection::default());
            let (failed, none) = traffic(&fleet, &clock, bad, 20_000, call);
            assert!(
                failed < 250 * bad && none == 0,
                "{failed} of 20,000 of {call:?}, {bad} bad of {members}; {none} found nothing"
            );
        }
    }
}

type Wait<'f> = Pin<Box<dyn Future<Output = Result<Lease<'f, Plain>, WaitError>> + 'f>>;

/// What one of a crowd is doing.
enum Doing<'f> {
    Nothing,
    Waiting(Wait<'f>),
    /// Until then.
    Calling(Lease<'f, Plain>, Duration),
}

/// Callers of whom each asks again when it has its answer: in the queue, or, if it does not wait, ten times in the time of a call. Key 0
/// fails within a tenth, the others need it all. Whoever asks at the same moment as others is lent before any of them comes back. Goes on
/// for 1,200 times as long as a call; answers how many calls there were, and how many of them have failed.
fn crowd(fleet: &Fleet, clock: &ManualClock, call: Duration, callers: u32, waits: bool) -> (u64, u64) {
    let mut context = Context::from_waker(Waker::noop());
    let mut crowd: Vec<_> = (0..callers).map(|_| Doing::Nothing).collect();
    let (mut calls, mut failed, mut now) = (0, 0, Duration::ZERO);
    while now < 1_200 * call {
        let _ = fleet.tick();
        let mut failing = Vec::new();
        for one in &mut crowd {
            if matches!(one, Doing::Calling(_, until) if *until <= now)
                && let Doing::Calling(lease, _) = std::mem::replace(one, Doing::Nothing)
            {
                lease.finish(Outcome::Ok { latency: call });
            }
            if waits && matches!(one, Doing::Nothing) {
                *one = Doing::Waiting(Box::pin(fleet.acquire_async()));
            }
            let lease = match one {
                Doing::Nothing => fleet.acquire().ok(),
                Doing::Waiting(wait) => match wait.as_mut().poll(&mut context) {
                    Poll::Ready(lease) => Some(lease.expect("nobody closes it")),
                    Poll::Pending => None,
                },
                Doing::Calling(..) => None,
            };
            let Some(lease) = lease else { continue };
            calls += 1;
            if *lease.key() == 0 {
                *one = Doing::Nothing;
                failing.push(lease);
            } else {
                *one = Doing::Calling(lease, now + call);
            }
        }
        failed += failing.len() as u64;
        failing.into_iter().for_each(|lease| lease.finish(Outcome::Failed));
        clock.advance(call / 10);
        now += call / 10;
    }
    (calls, failed)
}

/// When its rest is over, all of its units go to a crowd that waits, and all of them fail.
#[test]
#[cfg_attr(miri, ignore = "too long; nothing of it is unsafe")]
fn without_a_place_who_fails_at_once_gets_little_of_a_crowd() {
    for (units, members, call) in [(8, 2, 10), (8, 2, 100), (8, 2, 1_000), (8, 5, 1_000), (64, 2, 1_000)] {
        for waits in [true, false] {
            let (fleet, clock) = fleet_of(members, Capacity::Limited(units), Ejection::default());
            let callers = units * (members + 1);
            let (calls, failed) = crowd(&fleet, &clock, Duration::from_millis(call), callers, waits);
            assert!(
                50 * failed < calls,
                "{failed} of {calls} of {call} ms: {members} members of {units} units, {callers} callers, waiting: {waits}"
            );
            assert!(failed > u64::from(units), "it is asked now and then: {failed}");
        }
    }
}

/// Nobody else is there: what is left is to tell the truth, and to look now and then.
#[test]
fn a_fleet_of_which_all_fail_rests_and_says_until_when() {
    for members in [1, 2, 5] {
        let (fleet, clock) = fleet_of(members, Capacity::Exclusive, Ejection::default());
        let (failed, none) = traffic(&fleet, &clock, members, 2_000, seconds(1));
        assert!(failed > 100 && none > 100, "{failed} failed, {none} found nothing");
        // The fault is over: within a rest everybody is there.
        clock.advance(seconds(2));
        let leases: Vec<_> = (0..members).map(|_| fleet.acquire().expect("rested")).collect();
        leases.into_iter().for_each(|lease| lease.finish(OK));
        // Well again: one more failure is the first.
        fail(&fleet, 0, 4);
        assert_eq!(fleet.stats().eligible, u64::from(members));
    }
}

/// Nine of ten fail for so long, the tenth does all the work meanwhile; then all are well. How long it takes from then on until each of them
/// has had a call that succeeded, and until all are lent as before.
fn return_after(fault: Duration, call: Duration) -> [Duration; 2] {
    let (fleet, clock) = fleet_of(10, Capacity::Exclusive, Ejection::default());
    let since = |start| fleet.now().saturating_since(start);
    let start = fleet.now();
    while since(start) < fault {
        let lease = fleet.acquire().expect("the tenth never rests");
        let is_bad = *lease.key() < 9;
        clock.advance(if is_bad { Duration::from_micros(10) } else { call });
        lease.finish(if is_bad { Outcome::Failed } else { Outcome::Ok { latency: call } });
    }
    let healed = fleet.now();
    let mut served = HashSet::new();
    let mut all_served = None;
    loop {
        // Whoever is there works, side by side.
        let leases: Vec<_> = (0..).map_while(|_| fleet.acquire().ok()).collect();
        clock.advance(call);
        for lease in leases {
            served.insert(*lease.key());
            lease.finish(Outcome::Ok { latency: call });
        }
        if served.len() == 10 {
            all_served.get_or_insert(since(healed));
        }
        if (0..10).all(|key| phase(&fleet, key) == Phase::Healthy) && served.len() == 10 {
            return [all_served.expect("just now"), since(healed)];
        }
        assert!(since(healed) < seconds(1_000), "{served:?}");
    }
}

/// The guide says how long: the figures here are those that it names.
#[test]
#[cfg_attr(miri, ignore = "too long; nothing of it is unsafe")]
fn after_a_fault_of_nine_in_ten_all_are_back_when_rests_and_ejections_are_over() {
    // Both grow with the fault; no rest and no ejection is longer than 300 s.
    for (fault, served) in [(10, 20), (60, 27), (3_600, 224)] {
        let [back, healthy] = return_after(seconds(fault), Duration::from_millis(10));
        let about = seconds(served).mul_f64(0.9)..seconds(served).mul_f64(1.1);
        assert!(about.contains(&back) && back <= seconds(300), "{back:?} after a fault of {fault} s");
        let ramp = healthy - back;
        assert!(seconds(30) <= ramp && ramp < seconds(31), "the ramp of the one that was ejected: {ramp:?}");
    }
}

#[test]
fn of_many_that_fail_together_without_a_place_one_counts() {
    let (fleet, _clock) = fleet_of(1, Capacity::Limited(64), Ejection::default());
    let leases: Vec<_> = (0..64).map(|_| fleet.acquire().expect("free")).collect();
    leases.into_iter().for_each(|lease| lease.finish(Outcome::Failed));
    assert_eq!(told(fleet.acquire()), Some(Duration::from_millis(100)));
}

#[test]
fn rests_without_a_place_can_be_had_otherwise() {
    let (fleet, _clock) = fleet_of(1, Capacity::Exclusive, Ejection::default().without_place(Backoff::None));
    fail(&fleet, 0, 100);
    let fixed = Ejection::default().without_place(Backoff::Fixed(seconds(7)));
    let (fleet, _clock) = fleet_of(1, Capacity::Exclusive, fixed);
    fail(&fleet, 0, 5);
    assert_eq!(told(fleet.acquire()), Some(seconds(7)));
}

/// A probe that fails while somebody else has the place stays one, and is not asked all the time.
#[test]
fn a_probe_that_fails_without_a_place_rests() {
    let (fleet, clock) = fleet_of(2, Capacity::Limited(4), rules());
    fail(&fleet, 0, 3);
    clock.advance(seconds(30));
    let probe = fleet.acquire_key(&0).expect("the probe");
    fail(&fleet, 1, 3);
    probe.finish(Outcome::Failed);
    assert_eq!((phase(&fleet, 0), told(fleet.acquire())), (Phase::Probing, Some(Duration::from_millis(100))));
    clock.advance(Duration::from_millis(100));
    let probe = fleet.acquire().expect("rested");
    assert!(fleet.acquire().is_err(), "one");
    probe.finish(OK);
    assert_eq!(phase(&fleet, 0), Phase::Ramping);
}

#[test]
fn those_that_were_ejected_together_come_back_one_by_one() {
    let rules = Ejection::default().consecutive_failures(1).max_share(50).jitter(10);
    let (fleet, clock) = fleet_of(64, Capacity::Exclusive, rules);
    (0..32).for_each(|key| fail(&fleet, key, 1));
    let until = |key: u32| fleet.resource_stats(&key).expect("remembered").ejected_until.expect("ejected");
    let moments: HashSet<u64> = (0..32).map(until).collect();
    assert_eq!(moments.len(), 32, "no two at once");
    let (earliest, latest) = (seconds(27).as_nanos() as u64, seconds(30).as_nanos() as u64);
    assert!(moments.iter().all(|moment| (earliest..=latest).contains(moment)), "{moments:?}");
    let (first, last) = (moments.iter().min().expect("some"), moments.iter().max().expect("some"));
    assert!(last - first > seconds(1).as_nanos() as u64, "all over the range: {first} to {last}");
    clock.advance(seconds(27) - Duration::from_nanos(1));
    let _ = fleet.tick();
    assert_eq!(fleet.ejected_by_rules(), 32);
    clock.advance(seconds(3) + Duration::from_nanos(1));
    let _ = fleet.tick();
    assert_eq!(fleet.ejected_by_rules(), 0);
}

/// Threads eject, remove, insert and readmit in several shards: whenever all stand still, the share holds and places are counted.
#[test]
fn the_share_holds_whatever_threads_do() {
    const MEMBERS: u32 = 16;
    let rounds = if cfg!(miri) { 3 } else { 2_000 };
    for percent in [25, 50] {
        let rules = rules().consecutive_failures(1).max_share(percent).base(Duration::from_nanos(1 << 20));
        let fleet = Fleet::builder()
            .shards(4)
            .ejection(rules.without_place(Backoff::None))
            .build()
            .expect("in range");
        (0..MEMBERS).for_each(|key| fleet.insert(Entry::new(key, 0, ())).expect("new"));
        let (together, wrong) = (Barrier::new(4), Mutex::new(Vec::new()));
        thread::scope(|scope| {
            for number in 0..4 {
                let (fleet, together, wrong) = (&fleet, &together, &wrong);
                scope.spawn(move || {
                    let mut random = SplitMix64::new(number);
                    for _ in 0..rounds {
                        together.wait();
                        for _ in 0..4 {
                            let key = (random.next_u64() % u64::from(MEMBERS)) as u32;
                            match random.next_u64() % 6 {
                                0..=2 => {
                                    if let Ok(lease) = fleet.acquire_key(&key) {
                                        lease.finish(Outcome::Failed);
                                    }
                                }
                                3 => drop(fleet.remove(&key)),
                                4 => drop(fleet.insert(Entry::new(key, 0, ()))),
                                _ => drop(fleet.readmit(&key)),
                            }
                        }
                        together.wait();
                        if number == 0 {
                            let stats = fleet.stats();
                            let ejected = stats.reasons.ejected;
                            // A thread that panics would leave the others waiting.
                            if 100 * ejected > u64::from(percent) * stats.members
                                || u64::from(fleet.ejected_by_rules()) != ejected
                            {
                                wrong.lock().expect("no panic").push(stats);
                            }
                        }
                    }
                });
            }
        });
        let wrong = wrong.into_inner().expect("no panic");
        assert!(wrong.is_empty(), "{percent} %: {wrong:?}");
        #[cfg(feature = "internals")]
        fleet.check_invariants();
    }
}

/// Ranked by its load.
struct Loaded {
    key: u32,
    capacity: Capacity,
}

impl Resource for Loaded {
    type Key = u32;
    type Priority = u32;
    fn key(&self) -> u32 {
        self.key
    }
    fn priority(&self, in_flight: u32) -> u32 {
        in_flight
    }
    fn capacity(&self) -> Capacity {
        self.capacity
    }
}

/// A fleet of two of which the first is ejected by one failure, with so many other leases out; they come back after the probe has begun.
/// `meanwhile` comes before. Answers its rank, and how it is lent, when nothing is out any more.
fn rank_after_an_ejection(
    capacity: Capacity,
    others: u32,
    meanwhile: impl FnOnce(&Scheduler<Loaded>),
) -> (Scheduler<Loaded>, u64) {
    let clock = Arc::new(ManualClock::new());
    let rules = rules().consecutive_failures(1);
    let builder = Scheduler::<Loaded>::builder().shards(1).clock(clock.clone()).ejection(rules);
    let fleet = builder.build().expect("in range");
    for key in 0..2 {
        assert!(fleet.insert(Loaded { key, capacity }).is_ok());
    }
    let failed = fleet.acquire_key(&0).expect("free");
    let others: Vec<_> = (0..others).map(|_| fleet.acquire_key(&0).expect("free")).collect();
    failed.finish(Outcome::Failed);
    clock.advance(seconds(30));
    let _ = fleet.tick();
    assert_eq!(fleet.resource_stats(&0).expect("remembered").phase, Phase::Probing);
    meanwhile(&fleet);
    drop(others);
    let state = fleet.snapshot().into_iter().find(|state| state.key == 0).expect("a member");
    assert_eq!(state.in_flight, 0);
    (fleet, state.rank)
}

#[test]
fn leases_that_outlive_an_ejection_leave_no_rank_behind() {
    for others in 0..4 {
        let (fleet, rank) = rank_after_an_ejection(Capacity::Limited(4), others, |_| ());
        assert_eq!(rank, 0, "{others} came back late");
        drop(fleet.acquire_key(&0).expect("the probe"));
        let state = fleet.snapshot().into_iter().find(|state| state.key == 0).expect("a member");
        assert_eq!(state.rank, 0);
    }
}

#[test]
fn an_update_during_a_probe_leaves_no_rank_behind() {
    for (before, after) in [(4, 4), (4, 3), (1, 4)] {
        let capacity = Capacity::Limited(before);
        let (_, rank) = rank_after_an_ejection(capacity, before.min(2) - 1, |fleet| {
            let probe = fleet.acquire_key(&0).ok();
            assert!(fleet.update(Loaded { key: 0, capacity: Capacity::Limited(after) }).is_ok());
            drop(probe);
        });
        assert_eq!(rank, 0, "from {before} units to {after}");
    }
}

/// A clock that is at the end of time has no next step of a ramp: the ramp ends, and nobody who looks for what is due looks for ever.
#[test]
fn a_ramp_ends_at_the_end_of_time() {
    for capacity in [Capacity::Exclusive, Capacity::Limited(8.try_into().expect("not 0"))] {
        let (fleet, clock) = fleet_of(1, capacity, rules().consecutive_failures(1).max_share(100));
        fail(&fleet, 0, 1);
        assert_eq!(phase(&fleet, 0), Phase::Ejected);
        clock.advance(Duration::MAX);
        fleet.acquire().expect("the probe").finish(OK);
        fleet.tick();
        assert_eq!(phase(&fleet, 0), Phase::Healthy);
        let lease = fleet.acquire().expect("it is lent");
        if capacity == Capacity::Exclusive {
            fleet.acquire().expect_err("none is left");
        }
        drop(lease);
        // And what is ejected there comes back at once, once for each look.
        fail(&fleet, 0, 1);
        fleet.tick();
        fleet.acquire().expect("a probe").finish(OK);
        assert_eq!(phase(&fleet, 0), Phase::Healthy);
    }
}
