//! Moments that come up while somebody is busy, or that a timer forgets; and what is due and is not warmed up yet.

use super::*;

impl HandTimer {
    /// Whether a call is open that was asked for no later than so long after the asking.
    fn is_asked_for(&self, after: Duration) -> bool {
        self.0.lock().unwrap().iter().any(|(asked, _)| *asked <= after)
    }
}

/// Somebody takes leases back, and has put the next look off until he knows when that is. Whoever begins to wait meanwhile, or is called
/// by the timer, sees the later moment.
#[test]
fn who_goes_to_sleep_while_others_take_leases_back_does_not_oversleep() {
    let timer = Arc::new(HandTimer::default());
    let with = Arc::clone(&timer);
    let settings = |builder: Builder<_>| builder.timer(with).max_hold(10 * SECOND).overdue(Overdue::Revoke);
    let (fleet, clock) = fleet(settings, 2);
    let _zero = fleet.acquire_key(&0).unwrap();
    clock.advance(5 * SECOND);
    let _one = fleet.acquire_key(&1).unwrap();
    let stage = Arc::new(AtomicUsize::new(0));
    let asked = Arc::clone(&stage);
    let mut slow = waiting(fleet.acquire_where_async(move |entry| {
        if entry.key == 0 && asked.load(SeqCst) == 1 {
            asked.store(2, SeqCst);
            while asked.load(SeqCst) == 2 {
                thread::yield_now();
            }
        }
        entry.key == 0
    }));
    clock.advance(5 * SECOND);
    stage.store(1, SeqCst);
    let mut named = thread::scope(|scope| {
        scope.spawn(|| assert_eq!(fleet.reap_overdue(), 1));
        while stage.load(SeqCst) != 2 {
            thread::yield_now();
        }
        let named = waiting(fleet.acquire_key_async(&1));
        while timer.is_asked_for(5 * SECOND) {
            timer.call();
        }
        stage.store(3, SeqCst);
        named
    });
    assert!(timer.is_asked_for(5 * SECOND), "the second lease is overdue then");
    clock.advance(5 * SECOND);
    timer.call();
    timer.call();
    drop(done(&mut named).expect("taken back"));
    drop(done(&mut slow).expect("taken back"));
}

/// What is due is for those who wait, also if so much is due that not all of it is warmed up at once.
#[test]
fn who_names_what_is_due_does_not_overtake() {
    for filter in [false, true] {
        let (clock, all) = (Arc::new(ManualClock::new()), 20);
        let fleet = Fleet::builder().shards(1).clock(Arc::clone(&clock)).build().unwrap();
        for key in 0..all {
            fleet.insert(Entry::new(key, key, 0)).unwrap();
            fleet.cool(&key, SECOND).unwrap();
        }
        let mut tasks: Vec<_> = (0..all).map(|_| waiting(fleet.acquire_async())).collect();
        clock.advance(SECOND);
        for key in (0..all).rev() {
            let barged = if filter {
                fleet.acquire_where(|entry| entry.key == key).is_ok()
            } else {
                fleet.acquire_key(&key).is_ok()
            };
            assert!(!barged, "{key} is for those who wait");
        }
        let _ = fleet.tick();
        for task in &mut tasks {
            std::mem::forget(done(task).expect("its own"));
        }
    }
}

/// A call that was neither made nor dropped.
#[test]
fn a_timer_that_forgets_a_call_is_asked_again() {
    let timer = Arc::new(HandTimer::default());
    let with = Arc::clone(&timer);
    let (fleet, clock) = fleet(|builder| builder.timer(with), 1);
    let _lease = fleet.acquire().unwrap();
    let mut first = waiting(fleet.request().timeout(SECOND).into_future());
    std::mem::forget(timer.0.lock().unwrap().pop_front());
    clock.advance(5 * SECOND);
    let bell = Arc::new(Bell::default());
    let mut second = fleet.request().timeout(SECOND).into_future();
    assert!(poll_with(&mut second, &Waker::from(Arc::clone(&bell))).is_pending());
    clock.advance(SECOND);
    while timer.call() {}
    assert_eq!(bell.0.load(SeqCst), 1, "its deadline has come");
    assert!(matches!(done(&mut first), Err(WaitError::TimedOut { .. })));
    assert!(matches!(done(&mut second), Err(WaitError::TimedOut { .. })));
}

/// A timer that has dropped a call is asked for what others wait for already, by whoever comes next, whatever that one wants.
#[test]
fn a_call_that_is_dropped_is_asked_for_again_for_those_who_wait_already() {
    for newcomer in ["a task", "a thread", "a task for what cools", "a task with a filter"] {
        let timer = Arc::new(HandTimer::default());
        let with = Arc::clone(&timer);
        let (fleet, clock) = fleet(|builder| builder.timer(with), 2);
        let lease = fleet.acquire_key(&0).unwrap();
        fleet.cool(&1, 2 * SECOND).unwrap();
        let bell = Arc::new(Bell::default());
        let waker = Waker::from(Arc::clone(&bell));
        let mut first = fleet.request().key(&0).timeout(SECOND).into_future();
        assert!(poll_with(&mut first, &waker).is_pending());
        let mut second = fleet.acquire_key_async(&1);
        assert!(poll_with(&mut second, &waker).is_pending());
        assert_eq!(timer.calls(), 1);
        timer.0.lock().unwrap().clear();
        match newcomer {
            "a task" => drop(waiting(fleet.acquire_key_async(&0))),
            "a thread" => {
                assert!(fleet.request().key(&0).timeout(Duration::ZERO).wait().is_err(), "it is lent");
            }
            "a task for what cools" => drop(waiting(fleet.acquire_key_async(&1))),
            _ => {
                // It may take its time, in which nobody oversleeps.
                let (timer, asked) = (Arc::clone(&timer), Arc::new(AtomicUsize::new(0)));
                let here = Arc::clone(&asked);
                let filter = move |_: &_| {
                    here.store(timer.calls(), SeqCst);
                    false
                };
                drop(waiting(fleet.request().matching(filter).into_future()));
                assert_eq!(asked.load(SeqCst), 1, "before the filter was asked");
            }
        }
        assert_eq!(timer.calls(), 1, "by {newcomer}");
        clock.advance(SECOND);
        assert!(timer.call());
        assert_eq!(bell.0.load(SeqCst), 1);
        assert!(matches!(done(&mut first), Err(WaitError::TimedOut { .. })));
        // And so it goes on.
        clock.advance(SECOND);
        assert!(timer.call());
        assert_eq!(bell.0.load(SeqCst), 2);
        assert!(done(&mut second).is_ok());
        drop(lease);
    }
}

/// As above, by whoever begins to wait for a drain.
#[test]
fn a_call_that_was_lost_is_asked_for_again_by_a_drain() {
    let timer = Arc::new(HandTimer::default());
    let with = Arc::clone(&timer);
    let (fleet, clock) =
        fleet(|builder| builder.timer(with).max_hold(10 * SECOND).overdue(Overdue::Revoke), 1);
    let _lease = fleet.acquire().unwrap();
    let first = waiting(fleet.request().timeout(SECOND).into_future());
    std::mem::forget(timer.0.lock().unwrap().pop_front());
    drop(first);
    clock.advance(5 * SECOND);
    let bell = Arc::new(Bell::default());
    let mut drain = fleet.drain_async(&0).unwrap();
    assert!(poll_with(&mut drain, &Waker::from(Arc::clone(&bell))).is_pending());
    assert!(timer.is_asked_for(5 * SECOND), "the lease is overdue then");
    clock.advance(5 * SECOND);
    while timer.call() {}
    assert_eq!(bell.0.load(SeqCst), 1);
    assert!(done(&mut drain).is_drained());
}

/// As above, where no lease is taken back: the drain asks for those who wait for a resource.
#[test]
fn a_call_that_was_dropped_is_asked_for_again_by_any_drain() {
    let timer = Arc::new(HandTimer::default());
    let with = Arc::clone(&timer);
    let (fleet, clock) = fleet(|builder| builder.timer(with), 1);
    let _lease = fleet.acquire().unwrap();
    let mut first = waiting(fleet.request().timeout(SECOND).into_future());
    timer.0.lock().unwrap().clear();
    let _drain = waiting(fleet.drain_async(&0).unwrap());
    clock.advance(SECOND);
    assert!(timer.call(), "it was asked for");
    assert!(matches!(done(&mut first), Err(WaitError::TimedOut { .. })));
}

/// A full queue keeps nobody out for the sake of those whose time is over, and who is refused asks for those whose time is not.
#[test]
fn a_call_that_was_lost_fills_no_queue() {
    let timer = Arc::new(HandTimer::default());
    let with = Arc::clone(&timer);
    let (fleet, clock) = fleet(|builder| builder.timer(with).max_waiters(2), 1);
    let _lease = fleet.acquire().unwrap();
    let mut first = waiting(fleet.request().timeout(SECOND).into_future());
    let mut second = waiting(fleet.request().timeout(10 * SECOND).into_future());
    timer.0.lock().unwrap().clear();
    assert!(matches!(done(&mut fleet.acquire_async()), Err(WaitError::QueueFull { .. })));
    assert!(timer.is_asked_for(SECOND), "for the first of those who wait");
    timer.0.lock().unwrap().clear();
    clock.advance(SECOND);
    let third = waiting(fleet.acquire_async());
    assert!(timer.is_asked_for(9 * SECOND), "for the second");
    assert!(matches!(done(&mut first), Err(WaitError::TimedOut { waited }) if waited == SECOND));
    drop(third);
    clock.advance(9 * SECOND);
    while timer.call() {}
    assert!(matches!(done(&mut second), Err(WaitError::TimedOut { .. })));
    let waits = fleet.stats().waits;
    assert_eq!((waits.waited, waits.refused, waits.timed_out, waits.cancelled), (3, 1, 2, 1));
}

/// Nobody hears of a timer's panic. The call counts as lost.
#[test]
fn a_timer_that_panics_is_asked_again() {
    #[derive(Default)]
    struct Panicking(AtomicUsize, HandTimer);
    impl Timer for Panicking {
        fn call_after(&self, after: Duration, call: Box<dyn FnOnce() + Send>) {
            assert!(self.0.fetch_add(1, SeqCst) > 1, "planted");
            self.1.call_after(after, call);
        }
    }
    let timer = Arc::new(Panicking::default());
    let with = Arc::clone(&timer);
    let (fleet, clock) = fleet(|builder| builder.timer(with), 1);
    let lease = fleet.acquire().unwrap();
    let mut first = waiting(fleet.request().timeout(2 * SECOND).into_future());
    // In the return.
    lease.release_after(SECOND);
    assert_eq!((timer.0.load(SeqCst), timer.1.calls()), (2, 0));
    let mut second = waiting(fleet.acquire_async());
    assert_eq!(timer.1.calls(), 1);
    clock.advance(SECOND);
    assert!(timer.1.call());
    drop(done(&mut first).expect("warm"));
    drop(done(&mut second).expect("the next one"));
}
