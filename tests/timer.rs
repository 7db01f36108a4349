//! What the scheduler asks of a timer.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::{
    future::{Future, IntoFuture},
    pin::pin,
    sync::{Arc, Mutex},
    task::{Context, Waker},
    time::{Duration, Instant},
};

use leasehold::{Clock, Entry, ManualClock, Scheduler, Timer, Timestamp};

type Call = Box<dyn FnOnce() + Send>;

/// Calls that are made by hand, when the clock has come to them.
#[derive(Default)]
struct Calls {
    clock: Arc<ManualClock>,
    waiting: Mutex<Vec<(u64, Call)>>,
}

impl Timer for Calls {
    fn call_after(&self, after: Duration, call: Call) {
        let at = self.clock.now().saturating_add(after).as_nanos();
        self.waiting.lock().unwrap().push((at, call));
    }
}

impl Calls {
    /// Moves the clock, and makes the calls that are due.
    fn advance(&self, duration: Duration) {
        self.clock.advance(duration);
        let now = self.clock.now().as_nanos();
        let (due, later) = self.waiting.lock().unwrap().drain(..).partition(|&(at, _)| at <= now);
        *self.waiting.lock().unwrap() = later;
        let due: Vec<(u64, Call)> = due;
        for (_, call) in due {
            call();
        }
    }

    fn len(&self) -> usize {
        self.waiting.lock().unwrap().len()
    }
}

fn fleet(calls: &Arc<Calls>, resources: u32) -> Scheduler<Entry<u32, u32, ()>> {
    let builder = Scheduler::builder().shards(1).clock(Arc::clone(&calls.clock)).timer(Arc::clone(calls));
    let fleet = builder.build().unwrap();
    for key in 0..resources {
        fleet.insert(Entry::new(key, 0, ())).unwrap();
    }
    fleet
}

/// A task that is polled again and again has asked once.
#[test]
fn polls_ask_for_nothing() {
    let calls = Arc::new(Calls::default());
    let fleet = fleet(&calls, 1);
    let held = fleet.acquire().unwrap();
    let mut wait = pin!(fleet.request().timeout(Duration::from_secs(60)).into_future());
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..1000 {
        assert!(wait.as_mut().poll(&mut context).is_pending());
        calls.advance(Duration::from_millis(1));
    }
    assert_eq!(calls.len(), 1);
    calls.advance(Duration::from_secs(60));
    assert!(wait.as_mut().poll(&mut context).is_ready());
    assert_eq!(calls.len(), 0, "nobody waits, nothing cools");
    drop(held);
}

/// Waits with a deadline that are served, or given up, long before it.
#[test]
fn waits_that_end_early_leave_one_call() {
    let calls = Arc::new(Calls::default());
    let fleet = fleet(&calls, 1);
    let mut context = Context::from_waker(Waker::noop());
    for round in 0..1000 {
        let held = fleet.acquire().unwrap();
        let mut wait = Box::pin(fleet.request().timeout(Duration::from_secs(5)).into_future());
        assert!(wait.as_mut().poll(&mut context).is_pending());
        if round % 2 == 0 {
            drop(held);
            assert!(wait.as_mut().poll(&mut context).is_ready());
        }
        calls.advance(Duration::from_millis(10));
        assert!(calls.len() <= 1, "{} calls in round {round}", calls.len());
    }
}

/// Deadlines that come ever earlier each need a call; once they are over, so are the calls.
#[test]
fn ever_earlier_deadlines_are_asked_for_once_each() {
    let calls = Arc::new(Calls::default());
    let fleet = fleet(&calls, 1);
    let held = fleet.acquire().unwrap();
    let mut context = Context::from_waker(Waker::noop());
    let mut waits: Vec<_> = (1..=100)
        .rev()
        .map(|seconds| Box::pin(fleet.request().timeout(Duration::from_secs(seconds)).into_future()))
        .collect();
    for _ in 0..3 {
        for wait in &mut waits {
            assert!(wait.as_mut().poll(&mut context).is_pending());
        }
    }
    assert_eq!(calls.len(), 100);
    for seconds in (1..=100).rev() {
        assert_eq!(calls.len(), seconds);
        calls.advance(Duration::from_secs(1));
        let mut last = waits.pop().unwrap();
        assert!(last.as_mut().poll(&mut context).is_ready());
        assert!(waits.iter_mut().all(|wait| wait.as_mut().poll(&mut context).is_pending()));
    }
    assert_eq!(calls.len(), 0);
    drop(held);
}

/// One far deadline, and many near ones before it: the far one is asked for once, not once for each near one.
#[test]
fn calls_do_not_pile_up() {
    let calls = Arc::new(Calls::default());
    let fleet = fleet(&calls, 2);
    let held = fleet.acquire_key(&1).unwrap();
    let mut wait = pin!(fleet.request().key(&1).timeout(Duration::from_secs(3600)).into_future());
    let mut context = Context::from_waker(Waker::noop());
    assert!(wait.as_mut().poll(&mut context).is_pending());
    for _ in 0..100 {
        fleet.cool(&0, Duration::from_millis(10)).unwrap();
        calls.advance(Duration::from_millis(10));
        assert!(fleet.acquire().is_ok(), "warm again");
    }
    assert!(calls.len() <= 2, "{} calls", calls.len());
    // It is still asked for.
    calls.advance(Duration::from_secs(3600));
    assert!(wait.as_mut().poll(&mut context).is_ready());
    drop(held);
}

/// Requests that come too late, one after the other, while the timer is late: what it has been asked for is not lost because its moment is
/// long over.
#[test]
fn what_is_due_already_is_asked_for_once() {
    let calls = Arc::new(Calls::default());
    calls.clock.advance(Duration::from_secs(3600));
    let fleet = fleet(&calls, 1);
    let held = fleet.acquire().unwrap();
    let long_ago = Timestamp::ZERO.saturating_add(Duration::from_secs(1));
    let mut context = Context::from_waker(Waker::noop());
    let mut late = || {
        let mut wait = pin!(fleet.request().deadline(long_ago).into_future());
        assert!(wait.as_mut().poll(&mut context).is_ready(), "it is over");
    };
    (0..100).for_each(|_| late());
    assert_eq!(calls.len(), 1);
    // A call that is a second late is lost: it is asked for anew, once.
    calls.clock.advance(Duration::from_secs(2));
    (0..100).for_each(|_| late());
    assert_eq!(calls.len(), 2);
    calls.advance(Duration::ZERO);
    late();
    assert_eq!(calls.len(), 1, "it has called");
    drop(held);
}

/// A timer that never calls: a runtime that nobody drives.
struct Idle;

impl Timer for Idle {
    fn call_after(&self, _: Duration, _: Call) {}
}

/// Threads keep their own time, whatever the timer does: for what cools when they begin to wait, and for what begins to cool later.
#[test]
fn a_thread_does_not_rely_on_the_timer() {
    let soon = Duration::from_millis(20);
    let fleet = Scheduler::<Entry<u32, u32, ()>>::builder().timer(Idle).build().unwrap();
    fleet.insert(Entry::new(0, 0, ())).unwrap();
    fleet.cool(&0, soon).unwrap();
    let lease = fleet.request().wait().unwrap();
    // It has not waited if it came when the resource had cooled.
    let before = fleet.stats().waits.waited;
    std::thread::scope(|scope| {
        let others = [(); 2].map(|()| scope.spawn(|| drop(fleet.request().wait().unwrap())));
        let start = Instant::now();
        while fleet.stats().waits.waited < before + 2 {
            assert!(start.elapsed() < Duration::from_secs(60), "they do not wait");
            std::thread::yield_now();
        }
        std::thread::sleep(soon);
        lease.release_after(soon);
        for other in others {
            other.join().unwrap();
        }
    });
}
