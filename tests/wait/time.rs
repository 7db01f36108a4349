//! Deadlines, and cooling that ends: by ticks, by a thread that waits, by a timer.

use super::*;

#[test]
fn deadlines_by_ticks() {
    let (fleet, clock) = timed(|builder| builder, 1);
    let lease = fleet.acquire().unwrap();
    let mut early = Task::waiting(fleet.request().timeout(SECOND).into_future());
    let mut late = Task::waiting(
        fleet.request().deadline(leasehold::Timestamp::ZERO.saturating_add(3 * SECOND)).into_future(),
    );
    let mut never = waiting(&fleet);
    assert_eq!(fleet.tick().map(|at| at.as_nanos()), Some(1_000_000_000));
    clock.advance(2 * SECOND);
    assert_eq!(fleet.tick().map(|at| at.as_nanos()), Some(3_000_000_000));
    assert_eq!(early.woken(), 1);
    assert_eq!(early.done().unwrap_err(), WaitError::TimedOut { waited: 2 * SECOND });
    // A task that is polled late finds out by itself.
    clock.advance(2 * SECOND);
    assert_eq!(late.done().unwrap_err(), WaitError::TimedOut { waited: 4 * SECOND });
    assert_eq!(fleet.tick(), None);
    drop(lease);
    drop(never.done().unwrap());
    at_rest(&fleet);
    assert_eq!(waits(&fleet).timed_out, 2);
}

#[test]
fn cooling_ends_by_ticks() {
    let (fleet, clock) = timed(|builder| builder, 2);
    for lease in fleet.acquire_many(2).unwrap() {
        lease.release_after(SECOND);
    }
    let mut any = waiting(&fleet);
    let mut named = Task::waiting(fleet.acquire_key_async(&1));
    let mut filtered = Task::waiting(fleet.acquire_where_async(|entry| entry.key == 0));
    assert_eq!(fleet.tick().map(|at| at.as_nanos()), Some(1_000_000_000));
    assert_eq!((any.woken(), named.woken(), filtered.woken()), (0, 0, 0));
    clock.advance(SECOND);
    assert_eq!(fleet.tick(), None);
    assert_eq!(any.woken() + named.woken() + filtered.woken(), 2);
    let first = any.done().unwrap();
    drop(first);
    drop(named.done().unwrap());
    drop(filtered.done().unwrap());
    at_rest(&fleet);
}

#[test]
fn a_thread_wakes_when_cooling_ends() {
    let fleet = fleet(1);
    fleet.acquire().unwrap().release_after(Duration::from_millis(30));
    let start = Instant::now();
    drop(fleet.acquire_timeout(Duration::from_secs(30)).unwrap());
    assert!((25..5_000).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
    // It sleeps already when something begins to cool.
    let lease = fleet.acquire().unwrap();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(|| drop(fleet.request().wait().unwrap()))).collect();
        while waits(&fleet).waited < 4 {
            thread::yield_now();
        }
        thread::sleep(Duration::from_millis(10));
        lease.release_after(Duration::from_millis(20));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    assert!(start.elapsed() < Duration::from_secs(20));
    at_rest(&fleet);
}

/// A thread that waits keeps the time for a task.
#[test]
fn a_waiting_thread_looks_after_the_time_of_tasks() {
    let fleet = fleet(1);
    let lease = fleet.acquire().unwrap();
    let mut task = Task::waiting(fleet.request().timeout(Duration::from_millis(50)).into_future());
    thread::scope(|scope| {
        let thread = scope.spawn(|| drop(fleet.request().wait().unwrap()));
        while task.woken() == 0 {
            thread::yield_now();
        }
        assert!(matches!(task.done().unwrap_err(), WaitError::TimedOut { .. }));
        drop(lease);
        thread.join().unwrap();
    });
    at_rest(&fleet);
}

#[test]
fn a_timer_wakes_tasks() {
    let timer = Arc::new(ThreadTimer::new().unwrap());
    let fleet = filled(Fleet::builder().timer(Arc::clone(&timer)).build().unwrap(), 1);
    fleet.acquire().unwrap().release_after(Duration::from_millis(30));
    let mut task = waiting(&fleet);
    let mut hopeless = Task::waiting(fleet.request().timeout(Duration::from_millis(10)).into_future());
    let start = Instant::now();
    while task.woken() == 0 || hopeless.woken() == 0 {
        assert!(start.elapsed() < Duration::from_secs(20), "nobody rang");
        thread::yield_now();
    }
    drop(task.done().unwrap());
    drop(task);
    assert!(matches!(hopeless.done().unwrap_err(), WaitError::TimedOut { .. }));
    // Something begins to cool while somebody waits.
    let lease = fleet.acquire().unwrap();
    let mut task = waiting(&fleet);
    lease.release_after(Duration::from_millis(10));
    while task.woken() == 0 {
        assert!(start.elapsed() < Duration::from_secs(20), "nobody rang");
        thread::yield_now();
    }
    drop(task.done().unwrap());
    drop((task, hopeless));
    at_rest(&fleet);
    drop(fleet);
    assert_eq!(Arc::strong_count(&timer), 1, "the scheduler is gone, and its calls with it");
}
