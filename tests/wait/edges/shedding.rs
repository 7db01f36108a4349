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
