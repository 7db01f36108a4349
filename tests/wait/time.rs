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

/// How long those have waited who were served, in all and each, exactly, and nobody else; and how long those who were not.
#[test]
fn lengths_are_exact() {
    for fairness in [Fairness::Strict, Fairness::Throughput] {
        let (fleet, clock) = timed(|builder| builder.fairness(fairness), 1);
        drop(fleet.acquire_timeout(SECOND).unwrap());
        let mut lease = Some(fleet.acquire().unwrap());
        let in_vain = |until: u64| [1, 3, 1024].into_iter().filter(|&nanos| nanos <= until).sum::<u64>();
        for nanos in [1, 3, 1024] {
            let mut task = waiting(&fleet);
            let gives_up = waiting(&fleet);
            clock.advance(Duration::from_nanos(nanos));
            drop(gives_up);
            assert_eq!(waits(&fleet).waited_in_vain_nanos, in_vain(nanos));
            drop(lease.take());
            lease = Some(task.done().unwrap());
        }
        let late = fleet.acquire_timeout(Duration::ZERO).unwrap_err();
        assert_eq!(late, WaitError::TimedOut { waited: Duration::ZERO });
        // Each other end: a deadline, a removal, and below a closing.
        let mut short = Task::waiting(fleet.request().timeout(Duration::from_nanos(10)).into_future());
        let mut late = Task::waiting(fleet.request().timeout(Duration::from_nanos(10)).into_future());
        clock.advance(Duration::from_nanos(20));
        let _ = fleet.tick();
        assert_eq!(short.done().unwrap_err(), WaitError::TimedOut { waited: Duration::from_nanos(20) });
        // It is told later.
        clock.advance(Duration::from_nanos(80));
        assert!(late.done().is_err());
        assert_eq!(waits(&fleet).waited_in_vain_nanos, 1028 + 20 + 100);
        fleet.insert(Entry::new(1, 0, 0)).unwrap();
        let other = fleet.acquire().unwrap();
        let mut named = Task::waiting(fleet.acquire_key_async(&1));
        clock.advance(Duration::from_nanos(7));
        fleet.remove(&1).unwrap();
        assert_eq!(named.done().unwrap_err(), WaitError::NotFound);
        drop((other, lease));
        let waits = waits(&fleet);
        assert_eq!((waits.waited, waits.handed_off, waits.cancelled), (10, 3, 3));
        assert_eq!((waits.timed_out, waits.failed), (3, 1));
        assert_eq!((waits.waiting_nanos, waits.waited_in_vain_nanos), (1028, 1028 + 20 + 100 + 7));
        let lengths: Vec<_> = waits.histogram.iter().enumerate().filter(|(_, count)| **count > 0).collect();
        assert_eq!(lengths, [(0, &1), (1, &1), (10, &1)]);
        at_rest(&fleet);
        let _lease = fleet.acquire().unwrap();
        let mut sent_away = waiting(&fleet);
        clock.advance(SECOND);
        fleet.close();
        assert_eq!(sent_away.done().unwrap_err(), WaitError::Closed);
        let waits = fleet.stats().waits;
        assert_eq!((waits.closed, waits.waited_in_vain_nanos), (1, 1_000_000_000 + 1028 + 20 + 100 + 7));
    }
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
    // Before it begins to cool: on a busy machine there may be any time in between.
    let start = Instant::now();
    fleet.acquire().unwrap().release_after(Duration::from_millis(30));
    drop(fleet.acquire_timeout(Duration::from_secs(30)).unwrap());
    assert!((25..5_000).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
    // It sleeps already when something begins to cool.
    let lease = fleet.acquire().unwrap();
    // It has not waited if it came when the resource had cooled.
    let before = waits(&fleet).waited;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(|| drop(fleet.request().wait().unwrap()))).collect();
        while waits(&fleet).waited < before + 3 {
            assert!(start.elapsed() < Duration::from_secs(60), "they do not wait");
            thread::yield_now();
        }
        thread::sleep(Duration::from_millis(10));
        lease.release_after(Duration::from_millis(20));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    assert!(start.elapsed() < Duration::from_secs(60));
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
    let start = Instant::now();
    // Until both wait before the resource has cooled and the time is up.
    let (mut task, mut hopeless) = loop {
        assert!(start.elapsed() < Duration::from_secs(60), "nobody waits");
        fleet.acquire().unwrap().release_after(Duration::from_millis(30));
        let mut task = Task::new(fleet.acquire_async());
        let mut hopeless = Task::new(fleet.request().timeout(Duration::from_millis(10)).into_future());
        if task.poll().is_pending() && hopeless.poll().is_pending() {
            break (task, hopeless);
        }
        // It may be cooling still.
        drop((task, hopeless));
        drop(fleet.acquire_timeout(Duration::from_secs(60)).unwrap());
    };
    let start = Instant::now();
    while task.woken() == 0 || hopeless.woken() == 0 {
        assert!(start.elapsed() < Duration::from_secs(60), "nobody rang");
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
        assert!(start.elapsed() < Duration::from_secs(60), "nobody rang");
        thread::yield_now();
    }
    drop(task.done().unwrap());
    drop((task, hopeless));
    at_rest(&fleet);
    drop(fleet);
    assert_eq!(Arc::strong_count(&timer), 1, "the scheduler is gone, and its calls with it");
}
