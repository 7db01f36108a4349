//! What the scheduler asks of a timer.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::{
    future::{Future, IntoFuture},
    pin::pin,
    sync::{Arc, Mutex},
    task::{Context, Waker},
    time::Duration,
};

use leasehold::{Clock, Entry, ManualClock, Scheduler, Timer};

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

/// One far deadline, and many near ones before it: the far one is asked for once, not once for each near one.
#[test]
fn calls_do_not_pile_up() {
    let calls = Arc::new(Calls::default());
    let fleet = Scheduler::<Entry<u32, u32, ()>>::builder()
        .clock(Arc::clone(&calls.clock))
        .timer(Arc::clone(&calls))
        .build()
        .unwrap();
    for key in 0..2 {
        fleet.insert(Entry::new(key, 0, ())).unwrap();
    }
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
