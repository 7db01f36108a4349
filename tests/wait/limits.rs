//! Classes and their ageing, a full queue, waits that are shed.

use super::*;

/// A waiter is overtaken by later ones of a class d above it that arrive less than d x ageing after it, and by nobody else.
#[test]
fn classes_age_exactly() {
    for (class, ageing) in [(1u8, 1u32), (1, 4), (3, 5), (2, 0)] {
        let fleet = filled(Fleet::builder().shards(1).ageing(ageing).build().unwrap(), 1);
        let lease = fleet.acquire().unwrap();
        let mut low = waiting(&fleet);
        let bound = usize::from(class) * ageing as usize;
        let mut high: Vec<_> =
            (0..bound + 3).map(|_| Task::waiting(fleet.request().class(class).into_future())).collect();
        drop(lease);
        let mut overtaken = 0;
        while low.woken() == 0 {
            drop(high[overtaken].done().unwrap());
            overtaken += 1;
        }
        assert_eq!(overtaken, bound.saturating_sub(1), "class {class}, ageing {ageing}");
        drop(low.done().unwrap());
        for task in &mut high[overtaken..] {
            drop(task.done().unwrap());
        }
        at_rest(&fleet);
    }
}

/// However many more urgent ones keep coming, one of the lowest class is served after a bounded number of them.
#[test]
fn no_class_starves() {
    let fleet = filled(Fleet::builder().shards(1).ageing(4).build().unwrap(), 1);
    let mut lease = Some(fleet.acquire().unwrap());
    let mut low = waiting(&fleet);
    let mut queue = std::collections::VecDeque::new();
    let mut served = 0;
    for _ in 0..5_000 {
        queue.push_back(Task::waiting(fleet.request().class(u8::MAX).into_future()));
        drop(lease.take());
        if low.woken() > 0 {
            break;
        }
        lease = Some(queue.pop_front().unwrap().done().unwrap());
        served += 1;
    }
    assert_eq!(served, 255 * 4 - 1, "the stated bound");
    drop(low.done().unwrap());
    drop(queue);
    at_rest(&fleet);
}

#[test]
fn a_full_queue_says_so() {
    let fleet = filled(Fleet::builder().max_waiters(2).build().unwrap(), 1);
    let lease = fleet.acquire().unwrap();
    let (one, mut two) = (waiting(&fleet), waiting(&fleet));
    let refused = Task::new(fleet.acquire_async()).done().unwrap_err();
    assert_eq!(refused, WaitError::QueueFull { waiting: 2, max: 2 });
    assert_eq!(refused.to_string(), "2 requests are waiting: at most 2 are allowed");
    assert!(fleet.acquire_timeout(Duration::from_secs(1)).is_err_and(|error| error == refused));
    drop(one);
    let three = waiting(&fleet);
    drop((lease, three));
    drop(two.done().unwrap());
    at_rest(&fleet);
    assert_eq!((waits(&fleet).refused, waits(&fleet).waited), (2, 3));
}

#[test]
fn what_cannot_be_in_time_is_told_at_once() {
    let (fleet, clock) = timed(|builder| builder.shed_late(true), 1);
    let lease = fleet.acquire().unwrap();
    let mut task = Task::new(fleet.request().timeout(Duration::ZERO).into_future());
    assert_eq!(task.done().unwrap_err(), WaitError::Shed { expected: Duration::ZERO, left: Duration::ZERO });
    // Nothing is known yet: it waits.
    let mut tasks: Vec<_> =
        (0..10).map(|_| Task::waiting(fleet.request().timeout(SECOND).into_future())).collect();
    drop(lease);
    // One each second from now on.
    for task in tasks.drain(..4) {
        clock.advance(SECOND);
        let mut task = task;
        drop(task.done().unwrap());
    }
    // Five in four seconds, while somebody waited; five wait: the sixth will be served in 4.8 seconds.
    let late = fleet.request().timeout(4 * SECOND).wait().unwrap_err();
    assert!(
        matches!(late, WaitError::Shed { expected, left } if expected == SECOND * 24 / 5 && left == 4 * SECOND),
        "{late}"
    );
    let in_time = Task::waiting(fleet.request().timeout(20 * SECOND).into_future());
    let urgent = Task::waiting(fleet.request().class(1).timeout(4 * SECOND).into_future());
    drop((tasks, in_time, urgent));
    at_rest(&fleet);
    assert_eq!(waits(&fleet).shed, 2);
}

/// Returns that wake somebody to try for himself tell how things go as well as those that are handed over.
#[test]
fn what_cannot_be_in_time_is_told_with_barging_too() {
    let settings = |builder: leasehold::Builder<_>| builder.shed_late(true).fairness(Fairness::Throughput);
    let (fleet, clock) = timed(settings, 1);
    let mut lease = fleet.acquire().unwrap();
    let mut tasks: Vec<_> =
        (0..10).map(|_| Task::waiting(fleet.request().timeout(60 * SECOND).into_future())).collect();
    for mut task in tasks.drain(..5) {
        clock.advance(SECOND);
        drop(lease);
        lease = task.done().unwrap();
    }
    let late = fleet.request().timeout(4 * SECOND).wait().unwrap_err();
    assert!(matches!(late, WaitError::Shed { expected, .. } if expected == 6 * SECOND), "{late}");
    drop((tasks, lease));
    at_rest(&fleet);
}
