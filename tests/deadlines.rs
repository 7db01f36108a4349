//! Leases with a limit on how long they are held: recorded, listed, revoked; and what a late holder can do.
//!
//! Cost: under a second.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::{
    collections::BTreeSet,
    future::Future,
    mem,
    panic::Location,
    pin::Pin,
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use leasehold::{
    AcquireError, BuildError, Capacity, Entry, LeaseInfo, ManualClock, Outcome, Overdue, OwnedLease,
    ReleaseError, Scheduler, Timestamp, Token,
};

type Fleet = Scheduler<Entry<u32, u32, String>>;

const LIMIT: Duration = Duration::from_secs(10);

fn fleet(overdue: Overdue, capacity: Capacity, members: u32) -> (Fleet, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new());
    let fleet = Fleet::builder()
        .shards(2)
        .clock(Arc::clone(&clock))
        .max_hold(LIMIT)
        .overdue(overdue)
        .build()
        .expect("in range");
    for key in 0..members {
        fleet.insert(Entry::new(key, key, format!("value {key}")).with_capacity(capacity)).expect("new");
    }
    (fleet, clock)
}

fn keys(leases: &[LeaseInfo<u32>]) -> Vec<u32> {
    leases.iter().map(|lease| lease.key).collect()
}

/// The lines below the caller's, in this file.
#[track_caller]
fn lines_below(count: u32) -> std::ops::RangeInclusive<u32> {
    let line = Location::caller().line();
    line + 1..=line + count
}

#[test]
fn every_form_records_its_caller() {
    let (fleet, _) = fleet(Overdue::Report, Capacity::Limited(20), 1);
    let many;
    let many_owned;
    let lines = lines_below(12);
    let all = (
        fleet.acquire().expect("free"),
        fleet.acquire_owned().expect("free"),
        fleet.acquire_key(&0).expect("free"),
        fleet.acquire_key_owned(&0).expect("free"),
        fleet.acquire_where(|_| true).expect("free"),
        fleet.acquire_where_owned(|_| true).expect("free"),
        fleet.acquire_excluding(&[7]).expect("free"),
        fleet.acquire_excluding_owned(&[7]).expect("free"),
        fleet.acquire_by_affinity("id").expect("free"),
        fleet.acquire_by_affinity_owned("id").expect("free"),
    );
    many = fleet.acquire_many(2).expect("free");
    many_owned = fleet.acquire_many_owned(2).expect("free");
    let leases = fleet.leases();
    assert_eq!(leases.len(), 14);
    assert!(leases.iter().all(|lease| lease.call_site.file() == file!()), "{leases:#?}");
    let sites: BTreeSet<u32> = leases.iter().map(|lease| lease.call_site.line()).collect();
    assert_eq!(sites.len(), 12, "each of the forms is a place of its own: {sites:?}");
    assert!(
        sites.iter().all(|line| (*lines.start()..=lines.end() + 2).contains(line)),
        "{sites:?} in {lines:?}"
    );
    let tokens: BTreeSet<Token> = leases.iter().map(|lease| lease.token).collect();
    assert_eq!(tokens.len(), 14);
    drop((all, many, many_owned));
    assert_eq!(fleet.leases(), []);
    assert_eq!(fleet.stats().in_flight, 0);
}

/// What is out now, the lease that is given included, was asked for in this line; and ends with it.
fn was_asked_for_in<L>(fleet: &Fleet, line: u32, lease: L) {
    let leases = fleet.leases();
    assert!(!leases.is_empty(), "line {line}");
    for lease in &leases {
        assert_eq!((lease.call_site.file(), lease.call_site.line()), (file!(), line), "{lease}");
    }
    drop(lease);
    assert_eq!(fleet.leases(), []);
}

fn polled<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Each of the five that waits: for so long, until then, as a task, and as one that borrows nothing. Whether it had to wait or not.
#[test]
fn every_waiting_form_records_its_caller() {
    let (fleet, _) = fleet(Overdue::Report, Capacity::Limited(2), 1);
    let (now, end) = (Duration::ZERO, Timestamp::MAX);
    macro_rules! here {
        ($lease:expr) => {
            was_asked_for_in(&fleet, line!(), $lease.expect("free"))
        };
    }
    here!(fleet.acquire_timeout(now));
    here!(fleet.acquire_key_timeout(&0, now));
    here!(fleet.acquire_by_affinity_timeout("id", now));
    here!(fleet.acquire_where_timeout(|_| true, now));
    here!(fleet.acquire_many_timeout(2, now));
    here!(fleet.acquire_deadline(end));
    here!(fleet.acquire_key_deadline(&0, end));
    here!(fleet.acquire_by_affinity_deadline("id", end));
    here!(fleet.acquire_where_deadline(|_| true, end));
    here!(fleet.acquire_many_deadline(2, end));
    // Not the lines in which they are polled.
    macro_rules! task {
        ($future:expr) => {{
            let mut at_once = std::pin::pin!($future);
            let Poll::Ready(lease) = polled(at_once.as_mut()) else { panic!("it is free") };
            was_asked_for_in(&fleet, line!(), lease.expect("free"));
            let all = fleet.acquire_many(2).expect("free");
            let mut waits = std::pin::pin!($future);
            assert!(polled(waits.as_mut()).is_pending(), "nothing is free");
            drop(all);
            let Poll::Ready(lease) = polled(waits.as_mut()) else { panic!("it was handed over") };
            was_asked_for_in(&fleet, line!(), lease.expect("handed over"));
        }};
    }
    task!(fleet.acquire_async());
    task!(fleet.acquire_key_async(&0));
    task!(fleet.acquire_by_affinity_async("id"));
    task!(fleet.acquire_where_async(|_| true));
    task!(fleet.acquire_many_async(2));
    task!(fleet.acquire_async_owned());
    task!(fleet.acquire_key_async_owned(&0));
    task!(fleet.acquire_by_affinity_async_owned("id"));
    task!(fleet.acquire_where_async_owned(|_| true));
    task!(fleet.acquire_many_async_owned(2));
    assert_eq!(fleet.stats().in_flight, 0);
}

/// A unit that was handed to a task is the task's, and no lease, until the task is polled: what drains tells of it as of what is out, and
/// names no holder; no list has it, and no limit takes it back. From the poll on it is a lease as any other, and its time begins there.
#[test]
fn a_unit_that_waits_for_its_task_is_out_and_nobodys() {
    let waiting = |fleet: &Fleet| {
        let lease = fleet.acquire_owned().expect("free");
        let mut task = Box::pin(fleet.acquire_async_owned());
        assert!(polled(task.as_mut()).is_pending(), "nothing is free");
        (lease, task)
    };
    let is_out = |fleet: &Fleet, holders: &[u32]| {
        let drain = fleet.drain_all_async();
        let report = drain.report();
        drop(drain);
        let [out] = &*report.outstanding else { panic!("one resource is out: {report}") };
        let lines: Vec<u32> = out.holders.iter().map(|holder| holder.call_site.line()).collect();
        assert_eq!((out.key, out.in_flight, &*lines), (0, 1, holders), "{report}");
        assert!(!report.is_drained() && report.leases() == 1 && report.undrained.is_empty(), "{report}");
        assert_eq!(
            fleet.drain_all(Timestamp::ZERO).outstanding,
            report.outstanding,
            "a thread is told the same"
        );
        assert_eq!(fleet.leases().len(), holders.len());
        let stats = fleet.stats();
        assert_eq!((stats.in_flight, stats.revoked, stats.waits.handed_off), (1, 0, holders.len() as u64));
    };
    for (drains_before, is_polled) in [(false, false), (false, true), (true, false), (true, true)] {
        let (fleet, clock) = fleet(Overdue::Revoke, Capacity::Exclusive, 1);
        let (lease, mut task) = waiting(&fleet);
        if drains_before {
            // What drains is handed to nobody: the unit comes back, and the task waits on.
            let _ = fleet.drain_all(Timestamp::ZERO);
            drop(lease);
            assert!(polled(task.as_mut()).is_pending());
            assert!(fleet.drain_all(Timestamp::ZERO).is_drained());
            // It is offered to whoever waits when the draining ends.
            assert_eq!(fleet.undrain_all(), 1);
        } else {
            drop(lease);
        }
        is_out(&fleet, &[]);
        clock.advance(10 * LIMIT);
        assert_eq!((fleet.reap_overdue(), fleet.overdue(), fleet.revoked()), (0, vec![], vec![]));
        let _ = fleet.tick();
        is_out(&fleet, &[]);
        if !is_polled {
            drop(task);
        } else {
            let Poll::Ready(lease) = polled(task.as_mut()) else { panic!("it was handed over") };
            let lease = lease.expect("handed over before it drained");
            let listed = fleet.leases();
            let now = Timestamp::ZERO.saturating_add(10 * LIMIT);
            assert_eq!(
                (listed[0].since, listed[0].deadline),
                (now, now.saturating_add(LIMIT)),
                "from the poll on"
            );
            is_out(&fleet, &[listed[0].call_site.line()]);
            clock.advance(LIMIT);
            assert_eq!(keys(&fleet.overdue()), [0]);
            assert!(lease.is_revoked());
        }
        assert!(fleet.drain_all(Timestamp::ZERO).is_drained());
        let stats = fleet.stats();
        assert_eq!((stats.in_flight, stats.revoked), (0, u64::from(is_polled)));
    }
}

#[test]
fn nothing_is_recorded_without_a_limit() {
    let fleet = Fleet::builder().build().expect("in range");
    fleet.insert(Entry::new(1, 1, String::new())).expect("new");
    let mut lease = fleet.acquire().expect("free");
    assert_eq!((fleet.leases(), fleet.overdue(), fleet.reap_overdue()), (vec![], vec![], 0));
    let _ = lease.token();
    assert_eq!(fleet.leases(), [], "a token alone records nothing");
    assert_eq!(lease.renew(Duration::ZERO), Ok(()), "and there is nothing to renew");
    assert!(!lease.is_revoked());
    assert_eq!(lease.try_release(), Ok(()));
    assert_eq!(fleet.tick(), None);
}

#[test]
fn no_time_at_all_is_refused() {
    let built = Fleet::builder().max_hold(Duration::ZERO).build();
    assert!(matches!(built, Err(BuildError::MaxHold)));
    let fleet = Fleet::builder().max_hold(Duration::MAX).overdue(Overdue::Revoke).build().expect("in range");
    fleet.insert(Entry::new(1, 1, String::new())).expect("new");
    let lease = fleet.acquire().expect("free");
    assert_eq!(fleet.leases().len(), 1, "recorded without a limit");
    assert!(fleet.overdue().is_empty() && !lease.is_revoked());
}

#[test]
fn a_report_leaves_the_lease_to_its_holder() {
    let (fleet, clock) = fleet(Overdue::Report, Capacity::Exclusive, 2);
    let first = fleet.acquire_key(&0).expect("free");
    clock.advance(Duration::from_secs(4));
    let second = fleet.acquire_key(&1).expect("free");
    let leases = fleet.leases();
    assert_eq!(keys(&leases), [0, 1], "the oldest first");
    assert_eq!(leases[0].held_for, Duration::from_secs(4));
    assert_eq!(
        (leases[0].since, leases[0].deadline),
        (Timestamp::ZERO, Timestamp::ZERO.saturating_add(LIMIT))
    );
    assert_eq!(leases[0].overdue_by(), None);
    clock.advance(Duration::from_secs(7));
    let overdue = fleet.overdue();
    assert_eq!(keys(&overdue), [0]);
    assert_eq!(overdue[0].overdue_by(), Some(Duration::from_secs(1)));
    assert!(!overdue[0].revoked);
    let text = overdue[0].to_string();
    assert!(text.contains("0 is held for 11s by tests/deadlines.rs:") && text.contains("1s over"), "{text}");
    assert!(fleet.acquire().is_err(), "nothing is taken back");
    assert_eq!(fleet.reap_overdue(), 0);
    assert!(!first.is_revoked());
    let stats = fleet.stats();
    assert_eq!((stats.overdue, stats.revoked, stats.in_flight), (1, 0, 2), "each is counted once");
    assert_eq!(first.try_release(), Ok(()));
    assert_eq!(fleet.overdue(), []);
    clock.advance(Duration::from_secs(60));
    let _ = fleet.reap_overdue();
    assert_eq!(fleet.stats().overdue, 2);
    drop(second);
}

#[test]
fn an_acquisition_that_finds_nothing_takes_back() {
    let ways: [fn(&Fleet) -> Option<u32>; 5] = [
        |fleet| Some(*fleet.acquire().ok()?.key()),
        |fleet| Some(*fleet.acquire_key(&0).ok()?.key()),
        |fleet| Some(*fleet.acquire_where(|entry| entry.key == 0).ok()?.key()),
        |fleet| Some(*fleet.acquire_by_affinity(&7).ok()?.key()),
        |fleet| Some(*fleet.acquire_many(1).ok()?[0].key()),
    ];
    for way in ways {
        let (fleet, clock) = fleet(Overdue::Revoke, Capacity::Exclusive, 1);
        let late = fleet.acquire().expect("free");
        assert_eq!(way(&fleet), None);
        clock.advance(LIMIT - Duration::from_nanos(1));
        assert_eq!(way(&fleet), None, "one nanosecond early");
        clock.advance(Duration::from_nanos(1));
        assert_eq!(way(&fleet), Some(0));
        assert!(late.is_revoked());
        assert_eq!(late.value, "value 0", "the value is pinned");
        assert_eq!(fleet.stats().in_flight, 0);
        drop(late);
        let stats = fleet.stats();
        assert_eq!((stats.in_flight, stats.overdue, stats.revoked), (0, 1, 1));
    }
}

#[test]
fn a_late_holder_disturbs_nobody() {
    type Late = OwnedLease<Entry<u32, u32, String>>;
    let ends: [fn(Late) -> Option<ReleaseError>; 6] = [
        |late| {
            drop(late);
            None
        },
        |late| {
            late.release_after(Duration::from_secs(1 << 30));
            None
        },
        |late| {
            late.finish(Outcome::RateLimited { retry_after: Duration::from_secs(1 << 30) });
            None
        },
        |late| late.try_release().err(),
        |late| late.try_finish(Outcome::Failed).err(),
        |mut late| late.renew(LIMIT).err(),
    ];
    for (i, end) in ends.into_iter().enumerate() {
        let (fleet, clock) = fleet(Overdue::Revoke, Capacity::Exclusive, 1);
        let mut late = fleet.acquire_owned().expect("free");
        let token = late.token();
        clock.advance(LIMIT);
        let next = fleet.acquire().expect("taken back");
        assert_eq!(fleet.release(token), Err(ReleaseError::Revoked { generation: token.generation() }));
        assert_eq!(fleet.revoke(token), Err(ReleaseError::Revoked { generation: token.generation() }));
        let told = end(late);
        assert_eq!(told, (i >= 3).then_some(ReleaseError::Revoked { generation: token.generation() }));
        assert!(
            matches!(fleet.acquire(), Err(AcquireError::NoneEligible(none)) if none.reasons.at_capacity == 1)
        );
        assert!(!next.is_revoked());
        assert_eq!(next.try_release(), Ok(()));
        let stats = fleet.stats();
        assert_eq!((stats.lent, stats.returned, stats.in_flight, stats.revoked), (2, 2, 0, 1));
        assert_eq!(
            (stats.failed, stats.rate_limited, stats.cooled),
            (0, 0, 0),
            "a late outcome counts for nothing"
        );
    }
}

#[test]
fn a_late_holder_keeps_the_value_it_was_lent() {
    let (fleet, clock) = fleet(Overdue::Revoke, Capacity::Exclusive, 1);
    let late = fleet.acquire().expect("free");
    clock.advance(LIMIT);
    assert_eq!(fleet.reap_overdue(), 1);
    fleet.update(Entry::new(0, 0, "new".to_owned())).expect("a member");
    let next = fleet.acquire().expect("free");
    fleet.remove(&0).expect("a member");
    leasehold::collect_garbage();
    assert_eq!((late.value.as_str(), next.value.as_str()), ("value 0", "new"));
    drop(next);
    assert_eq!(fleet.stats().leaving, 1, "the pin keeps the node");
    assert_eq!((late.value.as_str(), *late.key()), ("value 0", 0));
    drop(late);
    assert_eq!(fleet.stats().leaving, 0);
}

#[test]
fn a_renewal_gives_more_time_or_less() {
    let (fleet, clock) = fleet(Overdue::Revoke, Capacity::Exclusive, 2);
    let mut longer = fleet.acquire_key(&0).expect("free");
    let mut shorter = fleet.acquire_key(&1).expect("free");
    assert_eq!(fleet.reap_overdue(), 0, "from now on the limit is not looked at for a while");
    longer.renew(3 * LIMIT).expect("not revoked");
    shorter.renew(LIMIT / 10).expect("not revoked");
    clock.advance(LIMIT / 10);
    assert_eq!(*fleet.acquire().expect("taken back early").key(), 1);
    assert_eq!(
        shorter.renew(LIMIT).map_err(|error| error.to_string()),
        Err("the lease was revoked: generation 1".to_owned())
    );
    clock.advance(2 * LIMIT);
    assert!(fleet.overdue().is_empty() && !longer.is_revoked());
    clock.advance(LIMIT);
    assert_eq!(keys(&fleet.overdue()), [0]);
    assert!(longer.is_revoked());
}

#[test]
fn a_renewed_lease_may_be_overdue_again() {
    let (fleet, clock) = fleet(Overdue::Report, Capacity::Exclusive, 1);
    let mut lease = fleet.acquire().expect("free");
    for round in 1..=3 {
        clock.advance(LIMIT);
        assert_eq!(fleet.overdue().len(), 1);
        assert_eq!(fleet.overdue().len(), 1);
        assert_eq!(fleet.stats().overdue, round, "once for each time");
        lease.renew(LIMIT).expect("out");
        assert_eq!(fleet.overdue(), []);
    }
}

#[test]
fn a_lease_is_revoked_by_hand_once() {
    let fleet = Fleet::builder().build().expect("in range");
    fleet.insert(Entry::new(1, 1, "v".to_owned())).expect("new");
    let mut lease = fleet.acquire().expect("free");
    let token = lease.token();
    assert_eq!(fleet.revoke(token), Ok(()));
    assert!(matches!(fleet.revoke(token), Err(ReleaseError::Revoked { .. })));
    assert!(lease.is_revoked());
    let token_again = lease.into_token();
    assert_eq!(token, token_again);
    assert!(
        matches!(fleet.release(token), Err(ReleaseError::Revoked { .. })),
        "the token outlives its guard"
    );
    let returned = fleet.acquire().expect("free").into_token();
    assert_eq!(fleet.release(returned), Ok(()));
    assert!(matches!(fleet.revoke(returned), Err(ReleaseError::Stale { .. })));
    assert_eq!(fleet.revoke(Token::from_bytes([7; 16])), Err(ReleaseError::Foreign));
    assert_eq!((fleet.stats().revoked, fleet.stats().in_flight), (1, 0));
}

#[test]
fn a_guard_whose_token_was_returned_is_stale_and_not_revoked() {
    let fleet = Fleet::builder().build().expect("in range");
    fleet.insert(Entry::new(1, 1, "v".to_owned())).expect("new");
    let mut lease = fleet.acquire().expect("free");
    let token = lease.token();
    assert_eq!(fleet.release(token), Ok(()));
    let stale = ReleaseError::Stale { generation: token.generation(), current: token.generation() + 1 };
    assert_eq!((fleet.release(token), fleet.revoke(token)), (Err(stale), Err(stale)));
    assert!(!lease.is_revoked());
    assert_eq!(lease.renew(LIMIT), Ok(()), "without a limit nothing is renewed");
    assert_eq!(lease.try_release(), Err(stale));
}

#[test]
fn revoked_tokens_are_remembered_for_a_while() {
    let fleet = Fleet::builder().build().expect("in range");
    fleet.insert(Entry::new(1, 1, "v".to_owned())).expect("new");
    let tokens: Vec<Token> = (0..4_100)
        .map(|_| {
            let token = fleet.acquire().expect("free").into_token();
            fleet.revoke(token).expect("out");
            token
        })
        .collect();
    let told: Vec<bool> = tokens
        .iter()
        .map(|&token| match fleet.release(token) {
            Err(ReleaseError::Revoked { .. }) => true,
            Err(ReleaseError::Stale { .. }) => false,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(told.iter().filter(|&&revoked| revoked).count(), 4_096);
    assert!(told[4..].iter().all(|&revoked| revoked), "the last ones");
    let most = tokens.iter().map(|token| token.slot()).max().expect("some");
    assert!(most < 4_097, "entries are used again: {most}");
}

#[test]
fn what_is_never_given_back_is_reclaimed() {
    let (fleet, clock) = fleet(Overdue::Revoke, Capacity::Exclusive, 3);
    let fleet = Arc::new(fleet);
    mem::forget(fleet.acquire().expect("free"));
    let _lost = fleet.acquire().expect("free").into_token();
    let holder = Arc::clone(&fleet);
    let stop = Arc::new(AtomicBool::new(false));
    let stuck = Arc::clone(&stop);
    let thread = std::thread::spawn(move || {
        let lease = holder.acquire().expect("free");
        // It hangs, as far as anybody can tell.
        while !stuck.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        (lease.is_revoked(), lease.value.clone())
    });
    while fleet.leases().len() < 3 {
        std::thread::yield_now();
    }
    assert!(fleet.acquire().is_err());
    clock.advance(LIMIT);
    let all = fleet.acquire_many(3).expect("all three were taken back");
    assert_eq!(all.len(), 3);
    stop.store(true, Ordering::Relaxed);
    let (revoked, value) = thread.join().expect("no panic");
    assert!(revoked && value.starts_with("value"));
    assert_eq!(fleet.stats().in_flight, 3);
    drop(all);
    assert_eq!((fleet.stats().in_flight, fleet.stats().revoked), (0, 3));
}

#[test]
fn time_is_looked_at_by_whoever_ticks() {
    let (fleet, clock) = fleet(Overdue::Revoke, Capacity::Exclusive, 1);
    let lease = fleet.acquire().expect("free");
    let next = fleet.tick().expect("a lease is out");
    assert_eq!(next, Timestamp::ZERO.saturating_add(LIMIT));
    clock.advance_to(next);
    let _ = fleet.tick();
    assert!(lease.is_revoked());
}

/// Threads acquire, overstay, renew and return, while others revoke: nothing is lent twice, lost or counted twice.
#[test]
fn threads_overstay_and_capacity_is_kept() {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 2_000;
    let (fleet, clock) = fleet(Overdue::Revoke, Capacity::Limited(2), 2);
    let start = Barrier::new(THREADS as usize + 1);
    let returned = AtomicU64::new(0);
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (fleet, start, returned, done) = (&fleet, &start, &returned, &done);
            scope.spawn(move || {
                start.wait();
                for round in 0..ROUNDS {
                    let Ok(mut lease) = fleet.acquire() else { continue };
                    assert!(lease.value.starts_with("value"));
                    match (thread + round) % 5 {
                        0 => {
                            let _ = lease.renew(LIMIT);
                        }
                        1 => std::thread::yield_now(),
                        2 if round % 50 == 0 => {
                            mem::forget(lease);
                            continue;
                        }
                        _ => {}
                    }
                    let was_revoked = lease.is_revoked();
                    match lease.try_release() {
                        Ok(()) => {
                            assert!(!was_revoked);
                            returned.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(error) => assert!(matches!(error, ReleaseError::Revoked { .. }), "{error}"),
                    }
                }
                done.fetch_add(1, Ordering::Relaxed);
            });
        }
        start.wait();
        while done.load(Ordering::Relaxed) < THREADS {
            clock.advance(LIMIT / 3);
            let listed = fleet.leases();
            assert!(listed.len() <= 4, "two resources with two units: {listed:#?}");
            let stats = fleet.stats();
            assert!(!stats.consistent || stats.in_flight <= 4);
        }
    });
    clock.advance(LIMIT);
    let _ = fleet.reap_overdue();
    let stats = fleet.stats();
    assert_eq!((stats.in_flight, stats.available), (0, 4));
    assert_eq!(stats.returned, returned.into_inner() + stats.revoked);
    assert!(stats.revoked > 0 && stats.overdue >= stats.revoked, "{stats:?}");
    #[cfg(feature = "internals")]
    fleet.check_invariants();
}

// Those who wait.

/// Polls once.
fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn those_who_wait_are_recorded_with_their_place() {
    let (fleet, _) = fleet(Overdue::Report, Capacity::Limited(20), 1);
    let second = Duration::from_secs(1);
    let first = line!() + 1;
    let one = fleet.acquire_timeout(second).expect("free");
    let two = fleet.acquire_key_deadline(&0, Timestamp::MAX).expect("free");
    let mut three = fleet.acquire_async();
    let mut four = fleet.acquire_where_async_owned(|_| true);
    let five = fleet.acquire_many_timeout(2, second).expect("free");
    let six = fleet.request().class(3).wait().expect("free");
    let Poll::Ready(Ok(three)) = poll(&mut three) else { panic!("free") };
    let Poll::Ready(Ok(four)) = poll(&mut four) else { panic!("free") };
    let sites: Vec<u32> = fleet.leases().iter().map(|lease| lease.call_site.line()).collect();
    let expected: BTreeSet<u32> = (first..first + 6).collect();
    assert_eq!(
        (sites.len(), sites.into_iter().collect()),
        (7, expected),
        "where it was asked for, not where it was polled"
    );
    drop((one, two, three, four, five, six));
    assert_eq!(fleet.leases(), []);
}

#[test]
fn what_is_revoked_goes_to_the_first_who_waits() {
    let (fleet, clock) = fleet(Overdue::Revoke, Capacity::Exclusive, 1);
    let mut late = fleet.acquire().expect("free");
    let token = late.token();
    let mut first = fleet.acquire_async();
    let mut second = fleet.acquire_async();
    assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
    fleet.revoke(token).expect("out");
    assert!(fleet.acquire().is_err(), "it was never free in between");
    assert!(poll(&mut second).is_pending());
    let Poll::Ready(Ok(next)) = poll(&mut first) else { panic!("handed over") };
    assert_eq!(next.value, late.value);
    drop(late);
    assert!(poll(&mut second).is_pending(), "a late drop hands nothing over");
    clock.advance(LIMIT);
    let _ = fleet.tick();
    assert!(matches!(poll(&mut second), Poll::Ready(Ok(_))), "time has taken it back");
    assert!(next.is_revoked());
}

/// With the machine's clock: the thread that waits keeps the time, and nobody else does anything.
#[test]
fn a_thread_that_waits_takes_back_what_is_overdue() {
    let limit = Duration::from_millis(20);
    let fleet = Fleet::builder().max_hold(limit).overdue(Overdue::Revoke).build().expect("in range");
    fleet.insert(Entry::new(0, 0, "v".to_owned())).expect("new");
    let start = Instant::now();
    mem::forget(fleet.acquire().expect("free"));
    let lease = fleet.acquire_timeout(Duration::from_secs(60)).expect("taken back");
    assert!(start.elapsed() >= limit && start.elapsed() < Duration::from_secs(30));
    // A renewal to an earlier moment reaches who sleeps until a later one.
    let mut lease = lease;
    lease.renew(Duration::from_secs(1 << 20)).expect("in time");
    // It has not waited if it came when the other one was overdue.
    let before = fleet.stats().waits.waited;
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| fleet.acquire_timeout(Duration::from_secs(60)).map(drop));
        let start = Instant::now();
        while fleet.stats().waits.waited <= before {
            assert!(start.elapsed() < Duration::from_secs(60), "it does not wait");
            std::thread::yield_now();
        }
        lease.renew(limit).expect("in time");
        waiting.join().expect("no panic").expect("taken back");
    });
    assert!(lease.is_revoked());
}

#[test]
fn undraining_a_fleet_serves_those_who_wait() {
    let (fleet, _) = fleet(Overdue::Report, Capacity::Exclusive, 2);
    assert!(fleet.drain_all(Timestamp::ZERO).is_drained());
    let mut waiting = [fleet.acquire_async(), fleet.acquire_async()];
    assert!(waiting.iter_mut().all(|waiting| poll(waiting).is_pending()));
    fleet.insert(Entry::new(9, 0, "new".to_owned())).expect("new");
    assert!(waiting.iter_mut().all(|waiting| poll(waiting).is_pending()), "newcomers drain");
    assert_eq!(fleet.undrain_all(), 3);
    let mut lent: Vec<_> = waiting
        .iter_mut()
        .map(|waiting| match poll(waiting) {
            Poll::Ready(Ok(lease)) => lease,
            _ => panic!("served"),
        })
        .collect();
    assert_eq!(lent.len(), 2);
    // A drain waits for them, too.
    let mut drain = fleet.drain_all_async();
    assert!(poll(&mut drain).is_pending());
    lent.clear();
    assert!(matches!(poll(&mut drain), Poll::Ready(report) if report.is_drained()));
}

/// A lease that comes back while somebody is finding it overdue: what is told afterwards is nothing, and what is counted is what is told.
#[test]
fn nobody_is_told_of_an_overdue_lease_that_has_come_back() {
    let rounds = if cfg!(miri) { 20 } else { 40_000 };
    let builder = Fleet::builder().shards(1).max_hold(Duration::from_nanos(1)).overdue(Overdue::Report);
    let fleet = builder.event_capacity(1 << 12).build().expect("in range");
    fleet.insert(Entry::new(0, 0, String::new())).expect("new");
    let is_done = AtomicBool::new(false);
    let told = std::thread::scope(|scope| {
        let reaper = scope.spawn(|| {
            let (mut before, mut next, mut told) = (leasehold::EventKind::Released, 0, 0);
            loop {
                let last = is_done.load(Ordering::SeqCst);
                let _ = fleet.reap_overdue();
                let events = fleet.take_events(usize::MAX);
                for event in &events {
                    use leasehold::EventKind::{Acquired, Overdue};
                    let is_gap = event.sequence != next;
                    let in_order = event.kind != Overdue || before == Acquired;
                    assert!(is_gap || in_order, "{:?} after {before:?}", event.kind);
                    told += u64::from(event.kind == Overdue);
                    (before, next) = (event.kind, event.sequence + 1);
                }
                if last && events.is_empty() {
                    return told;
                }
            }
        });
        for _ in 0..rounds {
            let lease = fleet.acquire().expect("free");
            drop(lease);
        }
        is_done.store(true, Ordering::SeqCst);
        reaper.join().expect("no panic")
    });
    let stats = fleet.stats();
    assert!(stats.events_dropped > 0 || stats.overdue == told, "{} found, {told} told", stats.overdue);
}
