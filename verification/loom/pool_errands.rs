//! Jobs that wait for a lease, against the pool's end: P1, P2 and L1 to L6 of `pool::lease` and E1, E2 and D1 of `pool::shutdown`.
//!
//! What is modelled is the list of errands, the lock around it and the sleep at E2. That a woken future is polled once at a time is
//! `async_task`'s business, whose atomics loom does not see: here they order nothing, and a poll that they would have let through twice, or
//! not at all, is not found.
//!
//! A lease comes, or does not, when the model says so. A wake-up that is lost is a shutdown that sleeps for ever, which loom reports.

use std::{
    future::{Future, poll_fn},
    sync::{
        Arc as StdArc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Poll, Waker},
    time::Duration,
};

use leasehold::{
    Outcome, OwnedLease,
    internals::sync::{Arc, Mutex},
    pool::{Pool, Task, TaskHandle},
};

use crate::{
    common::{model_within, spawn},
    driver::{Fleet, Res, Setup},
};

type Answer = Result<OwnedLease<Res>, &'static str>;

/// Where one errand waits.
#[derive(Clone)]
struct Gate(Arc<Mutex<(Option<Answer>, Option<Waker>)>>);

impl Gate {
    fn new() -> Self {
        Gate(Arc::new(Mutex::new((None, None))))
    }

    fn lease(&self) -> impl Future<Output = Answer> + Send + 'static {
        let here = self.clone();
        poll_fn(move |context| {
            let mut state = here.0.lock().expect("no panic");
            match state.0.take() {
                Some(answer) => Poll::Ready(answer),
                None => {
                    state.1 = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
    }

    /// Answers, and polls the errand if it waits already.
    fn open(&self, answer: Answer) {
        let waker = {
            let mut state = self.0.lock().expect("no panic");
            state.0 = Some(answer);
            state.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// How often a job was run. Not instrumented, as in `pool`.
type Runs = StdArc<AtomicUsize>;

fn pool() -> Pool<Task> {
    Pool::builder().workers(1).capacity(4).segment_slots(2).build().expect("in range")
}

fn submit(pool: &Pool<Task>, gate: &Gate, runs: &Runs) -> TaskHandle<Result<(), &'static str>> {
    let runs = StdArc::clone(runs);
    let body = move |_: &OwnedLease<Res>, _: &leasehold::pool::Context<'_>| {
        runs.fetch_add(1, SeqCst);
        ((), Outcome::Ok { latency: Duration::ZERO })
    };
    pool.submit_with_lease(gate.lease(), body).expect("open")
}

/// So many errands end without a lease, each on a thread of its own, while a shutdown waits for them: it is woken, and each handle has been told when it
/// returns.
fn ending(errands: usize, bound: usize) {
    model_within(bound, move || {
        let (pool, runs) = (pool(), Runs::default());
        let gates: Vec<_> = (0..errands).map(|_| Gate::new()).collect();
        let handles: Vec<_> = gates.iter().map(|gate| submit(&pool, gate, &runs)).collect();
        let others: Vec<_> =
            gates.into_iter().map(|gate| spawn(move || gate.open(Err("there is none")))).collect();
        let ended = pool.shutdown(Duration::MAX);
        assert!(ended.is_complete(), "{ended:?}");
        for handle in handles {
            assert!(handle.is_finished(), "the shutdown has said that all has ended");
            assert_eq!(handle.wait().expect("an answer"), Err("there is none"));
        }
        others.into_iter().for_each(|other| other.join().expect("no panic"));
        assert_eq!(runs.load(SeqCst), 0);
    });
}

#[test]
fn errand_ends_shutdown() {
    ending(1, 2);
}

#[test]
fn errand_ends_errand_ends_shutdown() {
    ending(2, 1);
}

/// A lease comes while a shutdown ends the pool, with time or without.
fn entering(limit: Duration) {
    model_within(1, move || {
        let fleet = Arc::new(Fleet::new(Setup::default()));
        fleet.scheduler.insert(fleet.resource(0)).expect("new");
        let lease = fleet.scheduler.acquire_owned().expect("free");
        let (pool, runs, gate) = (pool(), Runs::default(), Gate::new());
        let handle = submit(&pool, &gate, &runs);
        let other = spawn(move || gate.open(Ok(lease)));
        let ended = pool.shutdown(limit);
        let (unrun, given_up, mut unlent) = (ended.unrun.len(), ended.given_up, ended.unlent.len());
        let is_complete = ended.is_complete();
        drop(ended);
        other.join().expect("no panic");
        let mut later = pool.shutdown(Duration::MAX);
        assert_eq!((later.unrun.len(), later.handed_back, later.given_up), (0, unrun, given_up));
        // P2: one that was being polled is handed back to the next.
        unlent += later.unlent.len();
        assert_eq!(unlent, given_up, "what was given up is handed back");
        later.unlent.clear();
        let run = runs.load(SeqCst);
        assert_eq!((run + unrun + given_up, handle.wait().is_ok()), (1, run == 1), "one of them");
        assert!(limit.is_zero() || is_complete && run == 1, "there was time");
        drop((later, pool));
        let tally = fleet.scheduler.check_invariants();
        assert_eq!((tally.members, tally.in_flight), (1, 0), "the lease is back");
        let Ok(fleet) = Arc::try_unwrap(fleet) else { panic!("all threads are gone") };
        fleet.finish();
    });
}

#[test]
fn errand_enters_shutdown() {
    entering(Duration::MAX);
}

/// Without time: it is given up and handed back, or it is in the queue and run or handed back; never two of them, never none.
///
/// That L4 must look at the list under the lock is not shown: it takes two preemptions, in a tree that is cut short before.
#[test]
fn errand_enters_shutdown_now() {
    entering(Duration::ZERO);
}
