//! Waiting, as users meet it: order, hand-off, cancellation at every poll, deadlines, limits. The interleavings are the models'
//! business (`verification/loom/wait*.rs`, `verification/shuttle/waiting.rs`).
//!
//! Cost: a few seconds, most of it real sleeping.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

mod cancel;
mod collectors;
mod crowd;
mod edges;
mod filters;
mod hand_off;
mod limits;
mod nudges;
mod random;
mod time;

use std::{
    future::{Future, IntoFuture},
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    task::{Context, Poll, Wake, Waker},
    thread,
    time::{Duration, Instant},
};

use leasehold::{
    Acquire, AcquireOwned, Capacity, Clock, Entry, Fairness, Lease, ManualClock, MonotonicClock, Outcome,
    Scheduler, ThreadTimer, Timestamp, WaitError, WaitStats,
};

type Fleet = Scheduler<Entry<u32, u32, u32>>;

fn fleet(resources: u32) -> Fleet {
    filled(Fleet::builder().shards(2).build().unwrap(), resources)
}

fn filled(fleet: Fleet, resources: u32) -> Fleet {
    for key in 0..resources {
        fleet.insert(Entry::new(key, key, 0)).unwrap();
    }
    fleet
}

/// Counts how often it is woken.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// One task, polled by hand.
struct Task<F> {
    future: Pin<Box<F>>,
    bell: Arc<Bell>,
}

impl<F: Future> Task<F> {
    fn new(future: F) -> Self {
        Task { future: Box::pin(future), bell: Arc::default() }
    }

    fn poll(&mut self) -> Poll<F::Output> {
        let waker = Waker::from(Arc::clone(&self.bell));
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }

    /// Polled once, and waiting.
    fn waiting(future: F) -> Self {
        let mut task = Self::new(future);
        assert!(task.poll().is_pending(), "nothing is free");
        task
    }

    fn woken(&self) -> usize {
        self.bell.0.load(SeqCst)
    }

    fn done(&mut self) -> F::Output {
        match self.poll() {
            Poll::Ready(output) => output,
            Poll::Pending => panic!("still waiting"),
        }
    }
}

fn waiting(fleet: &Fleet) -> Task<Acquire<'_, Entry<u32, u32, u32>>> {
    Task::waiting(fleet.acquire_async())
}

fn waits(fleet: &Fleet) -> WaitStats {
    fleet.stats().waits
}

/// Nobody waits, nothing is out.
fn at_rest(fleet: &Fleet) {
    let stats = fleet.stats();
    assert_eq!(stats.in_flight, 0, "everything came back");
    let WaitStats { waited, handed_off, timed_out, cancelled, failed, closed, histogram, .. } = stats.waits;
    assert_eq!(waited, handed_off + timed_out + cancelled + failed + closed, "every wait has ended once");
    assert_eq!(histogram.iter().sum::<u64>(), handed_off);
    #[cfg(feature = "internals")]
    fleet.check_invariants();
    let all = fleet.acquire_many(stats.available as usize).expect("all are free");
    assert!(fleet.acquire().is_err());
    drop(all);
}

/// A fleet with a clock that is moved by hand.
fn timed(
    settings: impl FnOnce(leasehold::Builder<Entry<u32, u32, u32>>) -> leasehold::Builder<Entry<u32, u32, u32>>,
    resources: u32,
) -> (Fleet, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new());
    let fleet = settings(Fleet::builder().shards(2).clock(Arc::clone(&clock))).build().unwrap();
    (filled(fleet, resources), clock)
}

const SECOND: Duration = Duration::from_secs(1);
