//! Waiting where it is easily got wrong: callbacks that panic or call back, clocks at their end, limits, timers.
#![allow(clippy::undocumented_unsafe_blocks, unsafe_code)]

mod moments;
mod parked;
mod shedding;
mod updates;
mod wakers;

use std::{
    collections::VecDeque,
    future::{Future, IntoFuture},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker},
    thread,
    time::{Duration, Instant},
};

use leasehold::{
    Builder, Capacity, Clock, Ejection, Entry, Fairness, ManualClock, Outcome, Overdue, Resource, Scheduler,
    ThreadTimer, Timer, Timestamp, WaitError,
};

type Fleet = Scheduler<Entry<u32, u32, u32>>;

const SECOND: Duration = Duration::from_secs(1);

/// A fleet with a clock that is moved by hand.
fn fleet(
    settings: impl FnOnce(Builder<Entry<u32, u32, u32>>) -> Builder<Entry<u32, u32, u32>>,
    resources: u32,
) -> (Fleet, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new());
    let fleet = settings(Fleet::builder().shards(2).clock(Arc::clone(&clock))).build().unwrap();
    for key in 0..resources {
        fleet.insert(Entry::new(key, key, 0)).unwrap();
    }
    (fleet, clock)
}

fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    poll_with(future, Waker::noop())
}

fn poll_with<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(waker))
}

fn waiting<F: Future + Unpin>(mut future: F) -> F {
    assert!(poll(&mut future).is_pending(), "nothing is free");
    future
}

fn done<F: Future + Unpin>(future: &mut F) -> F::Output {
    match poll(future) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("still waiting"),
    }
}

/// Runs it in a thread of its own; fails if it does not end.
#[track_caller]
fn ends(what: impl FnOnce() + Send + 'static) {
    let (tell, told) = mpsc::channel();
    let thread = thread::spawn(move || {
        what();
        let _ = tell.send(());
    });
    match told.recv_timeout(Duration::from_secs(20)) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it hangs"),
        _ => thread.join().unwrap(),
    }
}

/// A timer whose calls are made by hand.
#[derive(Default)]
struct HandTimer(Mutex<VecDeque<Call>>);

type Call = (Duration, Box<dyn FnOnce() + Send>);

impl Timer for HandTimer {
    fn call_after(&self, after: Duration, call: Box<dyn FnOnce() + Send>) {
        self.0.lock().unwrap().push_back((after, call));
    }
}

impl HandTimer {
    fn calls(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// Makes the oldest call.
    fn call(&self) -> bool {
        let call = self.0.lock().unwrap().pop_front();
        call.map(|(_, call)| call()).is_some()
    }
}

#[test]
fn the_end_of_time_is_a_moment() {
    ends(|| {
        let (fleet, clock) = fleet(|builder| builder, 1);
        let _lease = fleet.acquire().unwrap();
        let mut late = waiting(fleet.request().timeout(Duration::MAX).into_future());
        let mut never = waiting(fleet.acquire_async());
        clock.advance_to(Timestamp::MAX);
        let _ = fleet.tick();
        assert!(matches!(done(&mut late), Err(WaitError::TimedOut { .. })));
        assert!(poll(&mut never).is_pending());
        fleet.cool(&0, SECOND).unwrap();
        let _ = fleet.tick();
    });
}

#[test]
fn a_second_attempt_has_a_deadline_as_well() {
    let timer = Arc::new(HandTimer::default());
    let with = Arc::clone(&timer);
    let (fleet, clock) = fleet(|builder| builder.fairness(Fairness::Throughput).timer(with), 1);
    let lease = fleet.acquire().unwrap();
    let mut short = waiting(fleet.request().class(0).timeout(SECOND).into_future());
    let bell = Arc::new(Bell::default());
    let waker = Waker::from(Arc::clone(&bell));
    let mut long = fleet.request().class(1).timeout(3 * SECOND).into_future();
    assert!(poll_with(&mut long, &waker).is_pending());
    // It is woken, and somebody else is faster.
    drop(lease);
    assert_eq!(bell.0.load(SeqCst), 1);
    let _lease = fleet.acquire().unwrap();
    clock.advance(SECOND);
    while timer.call() {}
    assert!(matches!(done(&mut short), Err(WaitError::TimedOut { .. })));
    assert!(poll_with(&mut long, &waker).is_pending());
    clock.advance(2 * SECOND);
    while timer.call() {}
    assert_eq!(bell.0.load(SeqCst), 2, "the deadline wakes it");
}

#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[test]
fn a_timer_takes_back_what_is_overdue_for_a_thread() {
    let fleet = Fleet::builder()
        .timer(ThreadTimer::new().unwrap())
        .max_hold(Duration::from_millis(30))
        .overdue(Overdue::Revoke)
        .build()
        .unwrap();
    fleet.insert(Entry::new(0, 0, 0)).unwrap();
    std::mem::forget(fleet.acquire().unwrap());
    drop(fleet.acquire_timeout(Duration::from_secs(60)).expect("taken back"));
}

/// A task that nobody polls until it is woken.
#[test]
fn a_timer_takes_back_what_is_overdue_for_a_task() {
    let fleet = Fleet::builder()
        .timer(ThreadTimer::new().unwrap())
        .max_hold(Duration::from_millis(30))
        .overdue(Overdue::Revoke)
        .build()
        .unwrap();
    fleet.insert(Entry::new(0, 0, 0)).unwrap();
    let bell = Arc::new(Bell::default());
    let start = Instant::now();
    // Until it waits before the other lease is overdue.
    let (forgotten, mut task) = loop {
        assert!(start.elapsed() < Duration::from_secs(60), "it does not wait");
        let forgotten = fleet.acquire().unwrap();
        let mut task = fleet.acquire_async();
        if poll_with(&mut task, &Waker::from(Arc::clone(&bell))).is_pending() {
            break (forgotten, task);
        }
    };
    while bell.0.load(SeqCst) == 0 {
        assert!(start.elapsed() < Duration::from_secs(120), "nobody rings");
        thread::yield_now();
    }
    assert!(forgotten.is_revoked(), "it was taken back before anybody polled");
    drop(done(&mut task).unwrap());
}

#[test]
fn a_far_moment_is_asked_for_once() {
    let timer = Arc::new(HandTimer::default());
    let with = Arc::clone(&timer);
    let (fleet, clock) = fleet(|builder| builder.timer(with), 1);
    let lease = fleet.acquire().unwrap();
    let _far = waiting(fleet.request().timeout(3_600 * SECOND).into_future());
    for _ in 0..100 {
        let _near = waiting(fleet.request().timeout(SECOND).into_future());
        clock.advance(SECOND);
        // The near one's call.
        let near = timer.0.lock().unwrap().pop_back();
        near.unwrap().1();
    }
    assert!(timer.calls() <= 2, "{} calls for one moment", timer.calls());
    drop(lease);
}

#[test]
fn a_call_that_is_lost_is_asked_for_again() {
    let timer = Arc::new(HandTimer::default());
    let with = Arc::clone(&timer);
    let (fleet, _clock) = fleet(|builder| builder.timer(with), 1);
    let _lease = fleet.acquire().unwrap();
    drop(waiting(fleet.request().timeout(SECOND).into_future()));
    timer.0.lock().unwrap().clear();
    let _later = waiting(fleet.request().timeout(2 * SECOND).into_future());
    assert_eq!(timer.calls(), 1);
}

#[test]
fn what_is_due_comes_before_a_timeout() {
    // A task that is polled late.
    let (fleet, clock) = fleet(|builder| builder, 1);
    fleet.acquire().unwrap().release_after(SECOND);
    let mut task = waiting(fleet.request().timeout(2 * SECOND).into_future());
    clock.advance(3 * SECOND);
    drop(done(&mut task).expect("free for two seconds"));
    // A newcomer behind one who waits, who has no time at all.
    fleet.acquire().unwrap().release_after(SECOND);
    let mut first = waiting(fleet.acquire_async());
    clock.advance(SECOND);
    let mut second = fleet.acquire_async();
    assert!(poll(&mut second).is_pending());
    let lease = done(&mut first).expect("whoever polls looks at the time");
    drop(lease);
    drop(done(&mut second).unwrap());
}

#[test]
fn who_names_a_resource_takes_back_what_is_overdue() {
    let (fleet, clock) = fleet(|builder| builder.max_hold(SECOND).overdue(Overdue::Revoke), 1);
    std::mem::forget(fleet.acquire().unwrap());
    clock.advance(SECOND);
    let lease = fleet.acquire_key_timeout(&0, Duration::ZERO).expect("overdue");
    std::mem::forget(lease);
    let _first = waiting(fleet.acquire_key_async(&0));
    drop(_first);
    clock.advance(SECOND);
    let mut task = fleet.acquire_key_async(&0);
    drop(done(&mut task).expect("overdue"));
}

#[test]
fn who_need_not_wait_is_not_refused() {
    for (waiters, shed) in [(1, false), (usize::MAX, true)] {
        let (fleet, _) = fleet(|builder| builder.max_waiters(waiters).shed_late(shed), 3);
        let _lease = fleet.acquire_key(&0).unwrap();
        let _waits = waiting(fleet.acquire_key_async(&0));
        drop(fleet.acquire_timeout(Duration::ZERO).expect("two are free"));
        drop(fleet.acquire_key_timeout(&1, Duration::ZERO).expect("free"));
        drop(fleet.acquire_where_timeout(|entry| entry.key == 2, Duration::ZERO).expect("free"));
        drop(fleet.acquire_many_timeout(2, Duration::ZERO).expect("free"));
        assert_eq!((fleet.stats().waits.refused, fleet.stats().waits.shed), (0, 0));
    }
}

/// As the forms that do not wait, a named request looks at the time: what the rules have put away may be due, though nobody has looked.
#[test]
fn who_names_a_resource_finds_what_is_due() {
    let rules = || Ejection::default().consecutive_failures(3).max_share(100).jitter(0);
    for (waiters, shed) in [(0, false), (usize::MAX, true)] {
        let settings = |builder: Builder<_>| builder.max_waiters(waiters).shed_late(shed).ejection(rules());
        let (fleet, clock) = fleet(settings, 0);
        fleet.insert(Entry::new(0, 0, 0).with_capacity(Capacity::Limited(8))).unwrap();
        for _ in 0..3 {
            fleet.acquire_key(&0).unwrap().finish(Outcome::Failed);
        }
        clock.advance(30 * SECOND);
        let probe = fleet.acquire_key_timeout(&0, Duration::ZERO).expect("its time is over");
        probe.finish(Outcome::Ok { latency: SECOND });
        // It may have one more at each step of its ramp.
        let _first = fleet.acquire_key(&0).unwrap();
        assert!(fleet.acquire_key_timeout(&0, Duration::ZERO).is_err());
        clock.advance(15 * SECOND);
        drop(fleet.acquire_key_timeout(&0, Duration::ZERO).expect("half of its ramp"));
        assert_eq!(
            (fleet.stats().waits.refused, fleet.stats().waits.shed),
            if shed { (0, 1) } else { (1, 0) }
        );
    }
}

#[test]
fn those_woken_to_try_count_as_waiting() {
    let (fleet, _) = fleet(|builder| builder.max_waiters(2).fairness(Fairness::Throughput), 1);
    let mut lease = Some(fleet.acquire().unwrap());
    let mut waits = VecDeque::from([waiting(fleet.acquire_async()), waiting(fleet.acquire_async())]);
    let mut admitted = 0;
    for _ in 0..20 {
        // Wakes one of them, and takes what it was woken for.
        drop(lease.take());
        lease = Some(fleet.acquire().unwrap());
        let mut more = fleet.acquire_async();
        if poll(&mut more).is_pending() {
            admitted += 1;
            waits.push_back(more);
        }
    }
    assert_eq!(admitted, 0);
}

#[test]
fn closed_is_closed_for_all() {
    let (fleet, _) = fleet(|builder| builder, 1);
    fleet.close();
    assert_eq!(done(&mut fleet.acquire_many_async(0)).map(drop), Err(WaitError::Closed));
    assert_eq!(done(&mut fleet.acquire_key_async(&7)).map(drop), Err(WaitError::Closed));
}

// Wakers.

type Act = Box<dyn Fn() + Send + Sync>;

/// A waker that does something when it is cloned, and when it is dropped.
struct Odd {
    on_clone: Act,
    on_drop: Act,
}

// SAFETY: the data is an `Arc<Odd>`, of which each function takes, gives or borrows one count as the contract says.
static ODD: RawWakerVTable = RawWakerVTable::new(
    |data| unsafe {
        ((*data.cast::<Odd>()).on_clone)();
        Arc::increment_strong_count(data.cast::<Odd>());
        RawWaker::new(data, &ODD)
    },
    |data| unsafe { Arc::decrement_strong_count(data.cast::<Odd>()) },
    |_| {},
    |data| unsafe {
        let odd = Arc::from_raw(data.cast::<Odd>());
        (odd.on_drop)();
    },
);

fn odd(on_clone: impl Fn() + Send + Sync + 'static, on_drop: impl Fn() + Send + Sync + 'static) -> Waker {
    let odd = Arc::new(Odd { on_clone: Box::new(on_clone), on_drop: Box::new(on_drop) });
    // SAFETY: as above.
    unsafe { Waker::from_raw(RawWaker::new(Arc::into_raw(odd).cast(), &ODD)) }
}

fn boom() {
    std::panic::resume_unwind(Box::new("boom"));
}

#[test]
fn a_waker_that_panics_when_cloned_after_a_nudge() {
    let (fleet, _) = fleet(|builder| builder.fairness(Fairness::Throughput), 1);
    let armed = Arc::new(AtomicBool::new(false));
    let is_armed = Arc::clone(&armed);
    let waker = odd(
        move || {
            if is_armed.load(SeqCst) {
                boom();
            }
        },
        || {},
    );
    let lease = fleet.acquire().unwrap();
    let mut task = fleet.acquire_async();
    assert!(poll_with(&mut task, &waker).is_pending());
    drop(lease);
    let lease = fleet.acquire().unwrap();
    armed.store(true, SeqCst);
    assert!(catch_unwind(AssertUnwindSafe(|| poll_with(&mut task, &waker).is_pending())).is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| drop(task))).is_ok(), "a drop that panics ends the process");
    drop(lease);
    let waits = fleet.stats().waits;
    assert_eq!(waits.waited, waits.failed + waits.cancelled);
    assert_eq!(fleet.stats().in_flight, 0);
    armed.store(false, SeqCst);
}

#[test]
fn a_waker_that_panics_when_dropped_loses_nothing() {
    let (fleet, _) = fleet(|builder| builder, 1);
    let fleet = Arc::new(fleet);
    let lease = Arc::new(Mutex::new(Some(fleet.acquire_owned().unwrap())));
    let armed = Arc::new(AtomicBool::new(true));
    let (returns, is_armed) = (Arc::clone(&lease), Arc::clone(&armed));
    // The hand-off comes while it is being cloned.
    let waker = odd(
        move || drop(returns.lock().unwrap().take()),
        move || {
            if is_armed.load(SeqCst) {
                boom();
            }
        },
    );
    let mut task = waiting(fleet.acquire_async());
    let polled = catch_unwind(AssertUnwindSafe(|| poll_with(&mut task, &waker)));
    let _ = catch_unwind(AssertUnwindSafe(|| drop(task)));
    drop(polled);
    armed.store(false, SeqCst);
    drop(waker);
    assert_eq!(fleet.stats().in_flight, 0, "the unit comes back");
}

#[test]
fn a_drain_whose_waker_panics_when_dropped_keeps_nothing() {
    let (fleet, _) = fleet(|builder| builder, 1);
    let lease = fleet.acquire().unwrap();
    let armed = Arc::new(AtomicBool::new(true));
    let is_armed = Arc::clone(&armed);
    let waker = odd(
        || {},
        move || {
            if is_armed.load(SeqCst) {
                boom();
            }
        },
    );
    let mut drain = fleet.drain_async(&0).unwrap();
    assert!(poll_with(&mut drain, &waker).is_pending());
    let dropped = catch_unwind(AssertUnwindSafe(|| drop(drain)));
    armed.store(false, SeqCst);
    fleet.remove(&0).unwrap();
    drop(lease);
    assert!(dropped.is_ok());
    #[cfg(feature = "internals")]
    assert_eq!(fleet.check_invariants().leaving, 0);
}

// Panics of others, while somebody's work is left.

/// Its rank is computed by user code that may panic.
struct Touchy(u32, Arc<AtomicBool>);

impl Resource for Touchy {
    type Key = u32;
    type Priority = u32;

    fn key(&self) -> u32 {
        self.0
    }

    fn priority(&self, _: u32) -> u32 {
        if self.1.swap(false, SeqCst) {
            boom();
        }
        0
    }

    fn capacity(&self) -> Capacity {
        Capacity::Limited(2)
    }
}

#[test]
fn a_timer_goes_on_after_a_panic() {
    let (timer, clock) = (Arc::new(HandTimer::default()), Arc::new(ManualClock::new()));
    let armed = Arc::new(AtomicBool::new(false));
    let fleet = Scheduler::<Touchy>::builder()
        .shards(1)
        .clock(Arc::clone(&clock))
        .timer(Arc::clone(&timer))
        .max_hold(SECOND)
        .overdue(Overdue::Revoke)
        .build()
        .unwrap();
    fleet.insert(Touchy(0, Arc::clone(&armed))).unwrap();
    let _lost = [fleet.acquire().unwrap().into_token(), fleet.acquire().unwrap().into_token()];
    let bell = Arc::new(Bell::default());
    let waker = Waker::from(Arc::clone(&bell));
    let mut never = fleet.request().matching(|_| false).timeout(2 * SECOND).into_future();
    assert!(poll_with(&mut never, &waker).is_pending());
    armed.store(true, SeqCst);
    clock.advance(SECOND);
    for _ in 0..5 {
        let _ = catch_unwind(AssertUnwindSafe(|| timer.call()));
    }
    clock.advance(SECOND);
    for _ in 0..5 {
        let _ = catch_unwind(AssertUnwindSafe(|| timer.call()));
    }
    assert_eq!(bell.0.load(SeqCst), 1, "its deadline has come");
}

#[test]
fn statistics_never_tell_of_more_ends_than_waits() {
    let (fleet, _) = fleet(|builder| builder, 1);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut lease = fleet.acquire().unwrap();
            for _ in 0..150_000 {
                drop(waiting(fleet.acquire_async()));
                let mut next = waiting(fleet.acquire_async());
                drop(lease);
                lease = done(&mut next).unwrap();
            }
            drop(lease);
            over.store(true, SeqCst);
        });
        while !over.load(SeqCst) {
            let waits = fleet.stats().waits;
            let ended = waits.handed_off + waits.timed_out + waits.cancelled + waits.failed + waits.closed;
            assert!(waits.waited >= ended, "{} waited, {ended} ended", waits.waited);
            let lengths = waits.histogram.iter().sum::<u64>();
            assert!(lengths >= waits.handed_off, "{lengths} lengths of {} hand-offs", waits.handed_off);
        }
    });
}

// Drains wait as well.

#[test]
fn a_drain_takes_back_what_is_overdue() {
    let settings = || Fleet::builder().max_hold(Duration::from_millis(30)).overdue(Overdue::Revoke);
    let fleet = settings().build().unwrap();
    fleet.insert(Entry::new(0, 0, 0)).unwrap();
    std::mem::forget(fleet.acquire().unwrap());
    assert!(fleet.drain_all_timeout(Duration::from_secs(60)).is_drained());
    // As a task, with a timer: until it waits before the lease is overdue.
    let start = Instant::now();
    let waits = || {
        let fleet = settings().timer(ThreadTimer::new().unwrap()).build().unwrap();
        fleet.insert(Entry::new(0, 0, 0)).unwrap();
        std::mem::forget(fleet.acquire().unwrap());
        let bell = Arc::new(Bell::default());
        let mut drain = fleet.drain_all_async();
        if poll_with(&mut drain, &Waker::from(Arc::clone(&bell))).is_ready() {
            return false;
        }
        while bell.0.load(SeqCst) == 0 {
            assert!(start.elapsed() < Duration::from_secs(120), "nobody rings");
            thread::yield_now();
        }
        assert!(done(&mut drain).is_drained());
        true
    };
    while !waits() {
        assert!(start.elapsed() < Duration::from_secs(60), "it does not wait");
    }
}

/// Those who collect several units come one after another, and one who waits for a certain resource stands before them.
#[test]
fn a_name_is_not_overtaken_by_collectors() {
    let (fleet, _) = fleet(|builder| builder, 3);
    let mut leases = fleet.acquire_many(3).unwrap();
    leases.sort_by_key(|lease| *lease.key());
    let mut named = waiting(fleet.acquire_key_async(&0));
    let mut odd = waiting(fleet.acquire_where_async(|entry| entry.key == 0));
    let mut many =
        VecDeque::from([waiting(fleet.acquire_many_async(2)), waiting(fleet.acquire_many_async(2))]);
    // The last one has a part before 0 comes back.
    drop(leases.pop());
    drop(leases.remove(0));
    drop(done(&mut named).expect("it came first"));
    drop(done(&mut odd).expect("it came second"));
    drop(leases);
    for mut many in many.drain(..) {
        drop(done(&mut many).unwrap());
    }
}
