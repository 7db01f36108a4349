//! What a pool says how long things took, when its clock fails.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use leasehold::{
    Clock, ManualClock, Timestamp,
    pool::{EndingKind, Metrics, Pool, Task},
};

use super::common::{Gate, LONG, at_gate, eventually, task};

/// Fails once, when a worker reads it for the n-th time from when it was told to: 0 is never.
#[derive(Default)]
struct FailsAt(ManualClock, AtomicUsize);

impl Clock for FailsAt {
    fn now(&self) -> Timestamp {
        let is_worker = thread::current().name().is_some_and(|name| name.starts_with("lease-worker"));
        let left = if is_worker { self.1.load(SeqCst) } else { 0 };
        if left > 0 {
            // One worker is all that there is.
            self.1.store(left - 1, SeqCst);
            if left == 1 {
                std::panic::resume_unwind(Box::new("no time"));
            }
        }
        self.0.now()
    }
}

type Times = Vec<Option<Duration>>;

/// Keeps what it is told of each job: how long it waited, how long it ran.
#[derive(Default)]
struct Told(Mutex<(Times, Times)>);

impl Metrics for Told {
    const TIMED: bool = true;

    fn begun(&self, waited: Option<Duration>) {
        self.0.lock().unwrap().0.push(waited);
    }

    fn ended(&self, _: EndingKind, ran: Option<Duration>) {
        self.0.lock().unwrap().1.push(ran);
    }
}

/// Whichever reading fails, of the times that are told each is right, or it is none: here none at all but of what that reading was for.
#[test]
fn times_are_right_or_none_whatever_the_clock_does() {
    const SECOND: Duration = Duration::from_secs(1);
    // As many as there are, and one that comes too late to matter.
    for (short_before, fails_at) in (0..10).flat_map(|at| [(0, at), (2_000, at)]) {
        let clock = Arc::new(FailsAt::default());
        clock.0.advance(1_000 * SECOND);
        let builder = Pool::<Task>::builder().workers(1).clock(Arc::clone(&clock)).metrics(Told::default());
        let pool = builder.build().expect("in range");
        // So that jobs are known to be short, and are taken together.
        for _ in 0..short_before {
            pool.submit(task(|| ())).expect("open");
        }
        eventually("they are done", || pool.stats().done == short_before && pool.stats().idle == 1);
        std::mem::take(&mut *pool.metrics().0.lock().unwrap());
        let gate = Gate::default();
        pool.submit(at_gate(&gate)).expect("open");
        gate.has(1);
        for _ in 0..3 {
            let clock = Arc::clone(&clock);
            pool.submit(task(move || clock.0.advance(SECOND))).expect("open");
        }
        clock.0.advance(5 * SECOND);
        clock.1.store(fails_at, SeqCst);
        gate.open();
        eventually("all are done", || pool.stats().done == short_before + 4);
        assert!(pool.shutdown(LONG).is_complete());
        let (waited, ran) = std::mem::take(&mut *pool.metrics().0.lock().unwrap());
        let what = format!("{short_before} before, number {fails_at} fails: {waited:?}, {ran:?}");
        let is_right = |told: &[Option<Duration>], right: [u64; 4]| {
            told.len() == 4
                && told
                    .iter()
                    .zip(right)
                    .all(|(told, right)| told.is_none_or(|told| told == Duration::from_secs(right)))
        };
        assert!(is_right(&waited, [0, 5, 6, 7]) && is_right(&ran, [5, 1, 1, 1]), "{what}");
        let unknown = waited.iter().chain(&ran).filter(|told| told.is_none()).count();
        assert!(unknown <= usize::from(fails_at > 0), "{what}");
    }
}
