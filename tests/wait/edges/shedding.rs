//! Shedding: what the pace is measured on, and whom it is about.

use super::*;

#[test]
fn idle_time_is_not_the_pace() {
    let (fleet, clock) = fleet(|builder| builder.shed_late(true), 1);
    let hand_over = |pause: Duration| {
        let lease = fleet.acquire().unwrap();
        let mut task = waiting(fleet.acquire_async());
        clock.advance(pause);
        drop(lease);
        drop(done(&mut task).unwrap());
    };
    for _ in 0..10 {
        hand_over(SECOND);
    }
    // Nobody comes for a day.
    clock.advance(86_400 * SECOND);
    hand_over(SECOND);
    let lease = fleet.acquire().unwrap();
    let mut task = fleet.request().timeout(10 * SECOND).into_future();
    assert!(poll(&mut task).is_pending(), "it takes a second");
    drop(lease);
}

#[test]
fn a_slow_time_is_forgotten() {
    let (fleet, clock) = fleet(|builder| builder.shed_late(true), 1);
    for _ in 0..10 {
        let lease = fleet.acquire().unwrap();
        let mut task = waiting(fleet.acquire_async());
        clock.advance(1_000 * SECOND);
        drop(lease);
        drop(done(&mut task).unwrap());
    }
    let mut shed = 0;
    for _ in 0..10_000 {
        let lease = fleet.acquire().unwrap();
        let _before = waiting(fleet.acquire_async());
        let mut task = fleet.request().timeout(10 * SECOND).into_future();
        if poll(&mut task).is_ready() {
            shed += 1;
        }
        clock.advance(SECOND);
        drop(lease);
    }
    assert!(shed > 0, "at first it is slow");
    assert!(shed < 9_000, "all are shed: so the pace is never measured again ({shed})");
}

/// What is before one, and what one wants, is counted in units, and in the order in which it is served.
#[test]
fn what_is_before_one_is_counted_in_units_by_order() {
    let (fleet, clock) = fleet(|builder| builder.shed_late(true).ageing(8), 1);
    let hand_over = |times: u32| {
        for _ in 0..times {
            let lease = fleet.acquire().unwrap();
            let mut task = waiting(fleet.acquire_async());
            clock.advance(SECOND);
            drop(lease);
            drop(done(&mut task).unwrap());
        }
    };
    hand_over(10);
    let _lease = fleet.acquire().unwrap();
    let _before = waiting(fleet.acquire_many_async(50));
    let refused = |mut task: leasehold::Acquire<'_, Entry<u32, u32, u32>>| {
        matches!(poll(&mut task), Poll::Ready(Err(WaitError::Shed { .. })))
    };
    assert!(refused(fleet.request().timeout(40 * SECOND).into_future()), "fifty before it");
    assert!(!refused(fleet.request().timeout(60 * SECOND).into_future()));
    let _many: Vec<_> = (0..100).map(|_| waiting(fleet.acquire_async())).collect();
    // Of a higher class, but only as far ahead as the ageing says.
    assert!(refused(fleet.request().class(1).timeout(40 * SECOND).into_future()), "150 less eight");
    assert!(!refused(fleet.request().class(100).timeout(40 * SECOND).into_future()), "the first");
    assert!(!refused(fleet.request().key(&0).timeout(SECOND).into_future()), "who knows");
}

/// Those who wait for a certain resource keep nobody from another, and say nothing about how fast others come back.
#[test]
fn what_others_take_is_all_that_counts() {
    for fairness in [Fairness::Strict, Fairness::Throughput] {
        let (fleet, clock) = fleet(|builder| builder.shed_late(true).fairness(fairness), 2);
        let _held = fleet.acquire_key(&0).unwrap();
        let mut lease = fleet.acquire().unwrap();
        let _named: Vec<_> = (0..100).map(|_| waiting(fleet.acquire_key_async(&0))).collect();
        let _filtered: Vec<_> = (0..100)
            .map(|_| waiting(fleet.request().matching(|entry| entry.key == 0).into_future()))
            .collect();
        for _ in 0..10 {
            let mut task = waiting(fleet.acquire_async());
            clock.advance(SECOND);
            drop(lease);
            lease = done(&mut task).unwrap();
        }
        // A crowd for the other one is served at once, which is nobody else's pace.
        for _ in 0..1_000 {
            let mut task = waiting(fleet.acquire_key_async(&1));
            drop(lease);
            lease = done(&mut task).unwrap();
        }
        let _before = waiting(fleet.acquire_async());
        let mut late = fleet.request().timeout(SECOND).into_future();
        assert!(
            matches!(poll(&mut late), Poll::Ready(Err(WaitError::Shed { expected, .. })) if expected == 2 * SECOND),
            "{late:?}"
        );
        let _in_time = waiting(fleet.request().timeout(3 * SECOND).into_future());
    }
}

/// When all is at rest, it is known how long.
#[test]
fn who_cannot_outwait_the_rest_is_told_at_once() {
    let (fleet, clock) = fleet(|builder| builder.shed_late(true), 2);
    let lease = fleet.acquire_key(&0).unwrap();
    fleet.acquire_key(&1).unwrap().release_after(60 * SECOND);
    drop(waiting(fleet.request().timeout(SECOND).into_future()));
    lease.release_after(30 * SECOND);
    let shed = Poll::Ready(Some(WaitError::Shed { expected: 30 * SECOND, left: SECOND }));
    let ask = |request: leasehold::Request<'_, _>| poll(&mut request.into_future()).map(Result::err);
    assert_eq!(ask(fleet.request().timeout(SECOND)), shed);
    assert_eq!(ask(fleet.request().timeout(30 * SECOND)), Poll::Pending);
    clock.advance(30 * SECOND);
    drop(fleet.request().timeout(SECOND).wait().unwrap());
    // Of nothing at all it is not known when it comes.
    fleet.remove(&0).unwrap();
    fleet.remove(&1).unwrap();
    assert_eq!(ask(fleet.request().timeout(SECOND)), Poll::Pending);
}

/// Whoever collects stands before every class, and what it has got already is nobody's to wait for.
#[test]
fn one_that_collects_is_before_all_with_what_it_lacks() {
    let (fleet, clock) = fleet(|builder| builder.shed_late(true), 10);
    let mut leases = fleet.acquire_many(10).unwrap();
    let _many = waiting(fleet.acquire_many_async(10));
    // One each second, to the one that collects.
    for lease in leases.drain(1..) {
        clock.advance(SECOND);
        drop(lease);
    }
    let ask =
        |class: u8, timeout: Duration| poll(&mut fleet.request().class(class).timeout(timeout).into_future());
    for class in [0, 100] {
        assert!(ask(class, 5 * SECOND).is_pending(), "one is lacking, and then it is served");
        let shed = ask(class, SECOND);
        assert!(
            matches!(shed, Poll::Ready(Err(WaitError::Shed { expected, .. })) if expected == 2 * SECOND),
            "class {class}: {shed:?}"
        );
    }
}

/// Nobody is told to be late because of what may be behind it.
#[test]
fn those_who_want_several_may_all_be_behind_one_of_a_higher_class() {
    let (fleet, clock) = fleet(|builder| builder.shed_late(true).ageing(2), 1);
    for _ in 0..10 {
        let lease = fleet.acquire().unwrap();
        let mut task = waiting(fleet.acquire_async());
        clock.advance(SECOND);
        drop(lease);
        drop(done(&mut task).unwrap());
    }
    let _lease = fleet.acquire().unwrap();
    let _before = waiting(fleet.acquire_async());
    let _several = [(); 2].map(|()| waiting(fleet.acquire_many_async(50)));
    assert!(poll(&mut fleet.request().class(1).timeout(20 * SECOND).into_future()).is_pending(), "second");
    assert!(poll(&mut fleet.request().timeout(90 * SECOND).into_future()).is_ready(), "after 101");
}

/// More than there is in the world is more than there is in the fleet, and no more than that.
#[test]
fn whoever_wants_too_many_hinders_nobody_who_counts() {
    let (fleet, clock) = fleet(|builder| builder.shed_late(true), 2);
    let leases = fleet.acquire_many(2).unwrap();
    let greedy: Vec<_> =
        [usize::MAX, usize::MAX, 1].map(|count| waiting(fleet.acquire_many_async(count))).into();
    clock.advance(SECOND);
    drop(leases);
    let mut late = fleet.request().timeout(SECOND).into_future();
    let _ = poll(&mut late);
    drop(greedy);
    drop(fleet.acquire_many_timeout(2, SECOND).expect("all are back"));
    let mut next = waiting(fleet.acquire_many_async(3));
    drop(poll(&mut next));
    assert_eq!(fleet.stats().waits.failed, 0);
}

/// One that is waited for by name may rest while others do not.
#[test]
fn who_names_what_rests_for_longer_is_told_at_once() {
    let hour = 3_600 * SECOND;
    for waits in [false, true] {
        let (fleet, clock) = fleet(|builder| builder.shed_late(true), 2);
        let _other = waits.then(|| fleet.acquire_key(&1).unwrap());
        fleet.cool(&0, hour).unwrap();
        let ask = |key: u32, timeout: Duration| {
            poll(&mut fleet.request().key(&key).timeout(timeout).into_future()).map(Result::err)
        };
        assert_eq!(ask(0, SECOND), Poll::Ready(Some(WaitError::Shed { expected: hour, left: SECOND })));
        assert_eq!(ask(0, hour), Poll::Pending);
        assert_eq!(ask(1, SECOND), if waits { Poll::Pending } else { Poll::Ready(None) });
        clock.advance(hour);
        assert_eq!(ask(0, SECOND), Poll::Ready(None));
    }
}

/// What the rules have ejected is back at a known moment, if nothing of it is out; for whoever names it, and for everybody if it is all
/// that comes back.
#[test]
fn what_was_ejected_is_back_at_a_known_moment() {
    let rules = Ejection::default().consecutive_failures(1).max_share(100).jitter(0);
    let (fleet, clock) = fleet(|builder| builder.shed_late(true).ejection(rules), 1);
    fleet.acquire_key(&0).unwrap().finish(Outcome::Failed);
    let ask = |timeout: Duration| {
        let mut answers: Vec<_> = [fleet.request().key(&0), fleet.request(), fleet.request().affinity("x")]
            .map(|request| poll(&mut request.timeout(timeout).into_future()).map(Result::err))
            .into();
        let picky = fleet.request().matching(|_| true).timeout(timeout);
        answers.push(poll(&mut picky.into_future()).map(Result::err));
        answers.dedup();
        assert_eq!(answers.len(), 1, "{answers:?}");
        answers.remove(0)
    };
    assert_eq!(ask(SECOND), Poll::Ready(Some(WaitError::Shed { expected: 30 * SECOND, left: SECOND })));
    assert_eq!(ask(30 * SECOND), Poll::Pending);
    // By hand as well: who knows when.
    fleet.exclude(&0).unwrap();
    assert_eq!(ask(SECOND), Poll::Pending);
    fleet.include(&0).unwrap();
    clock.advance(30 * SECOND);
    assert_eq!(ask(Duration::ZERO), Poll::Ready(None));
}

/// Of what rests, that which is back first: whichever it is.
#[test]
fn who_is_told_at_once_is_told_the_first_moment() {
    let rules = Ejection::default().consecutive_failures(1).max_share(100).jitter(0);
    for rest in [3_600, 10] {
        let (fleet, _) = fleet(|builder| builder.shed_late(true).ejection(rules), 2);
        fleet.cool(&0, rest * SECOND).unwrap();
        fleet.acquire_key(&1).unwrap().finish(Outcome::Failed);
        let ask =
            |timeout: Duration| poll(&mut fleet.request().timeout(timeout).into_future()).map(Result::err);
        let expected = rest.min(30) * SECOND;
        let left = 5 * SECOND;
        assert_eq!(ask(left), Poll::Ready(Some(WaitError::Shed { expected, left })));
        assert_eq!(ask(expected), Poll::Pending);
        // It was to be back before, once.
        fleet.cool(&0, 3_600 * SECOND).unwrap();
        let (expected, left) = (30 * SECOND, 20 * SECOND);
        assert_eq!(ask(left), Poll::Ready(Some(WaitError::Shed { expected, left })));
    }
}

/// Whoever takes anything is told by the same count, as a task and as a thread: those before it, and as many units as it wants itself.
#[test]
fn what_one_wants_is_counted_with_what_is_before_it() {
    for fairness in [Fairness::Strict, Fairness::Throughput] {
        let (fleet, clock) = fleet(|builder| builder.shed_late(true).fairness(fairness), 1);
        let mut lease = fleet.acquire().unwrap();
        for _ in 0..10 {
            let mut task = waiting(fleet.acquire_async());
            clock.advance(SECOND);
            drop(lease);
            lease = done(&mut task).unwrap();
        }
        let many = |count: usize, seconds: u32| {
            poll(&mut fleet.request().many(count).timeout(seconds * SECOND).into_future()).map(Result::err)
        };
        let near = |seconds: u32| {
            poll(&mut fleet.request().affinity("x").timeout(seconds * SECOND).into_future()).map(Result::err)
        };
        let shed = |expected: u32, left: u32| {
            Some(WaitError::Shed { expected: expected * SECOND, left: left * SECOND })
        };
        // The first in line is let in, whatever it wants.
        assert_eq!((many(50, 1), near(1)), (Poll::Pending, Poll::Pending));
        let _before = waiting(fleet.acquire_async());
        assert_eq!(many(50, 40), Poll::Ready(shed(51, 40)));
        assert_eq!(many(50, 50), Poll::Ready(shed(51, 50)));
        assert_eq!(many(50, 51), Poll::Pending);
        assert_eq!(near(1), Poll::Ready(shed(2, 1)));
        assert_eq!(near(2), Poll::Pending);
        // Threads, which do not wait.
        assert_eq!(fleet.acquire_many_timeout(50, 40 * SECOND).err(), shed(51, 40));
        assert_eq!(fleet.acquire_by_affinity_timeout("x", SECOND).err(), shed(2, 1));
        // And what one who wants several takes is before the next one.
        let _several = waiting(fleet.request().many(50).timeout(60 * SECOND).into_future());
        assert_eq!(many(7, 40), Poll::Ready(shed(58, 40)));
        assert_eq!(near(40), Poll::Ready(shed(52, 40)));
        assert_eq!(near(52), Poll::Pending);
        assert_eq!(fleet.stats().waits.shed, 7);
        drop(lease);
    }
}
