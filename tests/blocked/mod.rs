//! A pool in which everything that is counted has happened, or is the case: for the tests of those who export it.

use std::{
    sync::{Arc, Mutex, mpsc},
    task::{Context, Poll, Waker},
    thread,
    time::{Duration, Instant},
};

use leasehold::{
    Entry, Outcome, OwnedLease,
    pool::{AtomicMetrics, CancelToken, Job, Pool, RejectReason, Task},
};

pub type Watched = Pool<Task, AtomicMetrics>;

/// A sample's name and own label, and its value in each of three states.
type Row = (&'static str, Option<(&'static str, &'static str)>, [f64; 3]);

const LONG: Duration = Duration::from_secs(20);

/// Each sample with its own label, and what it is while the pool is blocked, when it is idle again, and when it has ended.
pub const EXPECTED: [Row; 23] = [
    ("queue_depth", None, [2.0, 0.0, 0.0]),
    ("submitters_waiting", None, [1.0, 0.0, 0.0]),
    ("leases_awaited", None, [1.0, 1.0, 0.0]),
    ("leases_given_up_total", None, [0.0, 0.0, 1.0]),
    ("leases_missed_total", None, [0.0, 1.0, 1.0]),
    ("jobs_handed_back_total", None, [0.0, 0.0, 0.0]),
    ("workers", Some(("state", "busy")), [2.0, 0.0, 0.0]),
    ("workers", Some(("state", "idle")), [0.0, 1.0, 0.0]),
    ("jobs_total", Some(("ended", "done")), [0.0, 2.0, 2.0]),
    ("jobs_total", Some(("ended", "failed")), [0.0, 1.0, 1.0]),
    ("jobs_total", Some(("ended", "panicked")), [0.0, 1.0, 1.0]),
    ("jobs_total", Some(("ended", "cancelled")), [0.0, 1.0, 1.0]),
    ("rejected_total", Some(("reason", "full")), [1.0, 1.0, 1.0]),
    ("rejected_total", Some(("reason", "timed_out")), [1.0, 1.0, 1.0]),
    ("rejected_total", Some(("reason", "cancelled")), [1.0, 1.0, 1.0]),
    ("rejected_total", Some(("reason", "closed")), [0.0, 0.0, 1.0]),
    ("scalings_total", Some(("direction", "up")), [1.0, 1.0, 1.0]),
    ("scalings_total", Some(("direction", "down")), [0.0, 1.0, 1.0]),
    ("workers_unstarted_total", None, [0.0, 0.0, 0.0]),
    ("queue_wait_seconds_count", None, [2.0, 5.0, 5.0]),
    ("queue_wait_seconds_bucket", Some(("le", "+Inf")), [2.0, 5.0, 5.0]),
    // What was cancelled did not run.
    ("run_seconds_count", None, [0.0, 4.0, 4.0]),
    ("run_seconds_bucket", Some(("le", "+Inf")), [0.0, 4.0, 4.0]),
];

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < LONG, "{what}");
        thread::sleep(Duration::from_micros(100));
    }
}

/// One worker, that has become two; all are at work, the queue is full, and was, and one waits for room. `look` is called in each of three states, with its
/// number; then for how long two jobs have run at least.
pub fn blocked(watch: impl FnOnce(&Arc<Watched>), mut look: impl FnMut(usize)) -> Duration {
    let pool = Pool::<Task>::builder()
        .adaptive(1, 2)
        .capacity(2)
        .scale_up_at(1.0)
        .scale_up_after(LONG)
        .scale_rest(Duration::ZERO)
        .idle_for(Duration::from_millis(30))
        .metrics(AtomicMetrics::default());
    let pool = Arc::new(pool.build().expect("in range"));
    watch(&pool);
    let (begin, begun) = mpsc::channel();
    let (go, gone) = mpsc::channel::<()>();
    let gone = Arc::new(Mutex::new(gone));
    let at_gate = || {
        let (begin, gone) = (begin.clone(), Arc::clone(&gone));
        Task::job(move |_| {
            begin.send(())?;
            // Until there is nobody who could send.
            let _ = gone.lock().map(|gone| gone.recv());
            Ok(())
        })
    };
    let nothing = || Task::job(|_| Ok(()));
    pool.submit(at_gate()).expect("open");
    begun.recv_timeout(LONG).expect("it has begun");
    pool.submit(at_gate()).expect("open");
    pool.submit(Task::job(|_| Err("failed".into()))).expect("open");
    // The queue is full: another worker comes, and takes the second one.
    begun.recv_timeout(LONG).expect("it has begun");
    let blocked = Instant::now();
    let token = CancelToken::new();
    pool.submit(nothing().cancel_with(token.clone())).expect("open");
    token.cancel();
    let refused = [
        pool.try_submit(nothing()),
        pool.submit_timeout(nothing(), Duration::from_millis(1)),
        pool.try_submit(nothing().cancel_with(token)),
    ];
    let reasons = refused.map(|refused| refused.expect_err("no room").reason);
    assert_eq!(reasons, [RejectReason::Full, RejectReason::TimedOut, RejectReason::Cancelled]);
    let mut waits = pool.submit_async(nothing());
    let mut context = Context::from_waker(Waker::noop());
    assert!(matches!(std::pin::Pin::new(&mut waits).poll(&mut context), Poll::Pending));
    let never = std::future::pending::<Result<OwnedLease<Entry<u32, u32, ()>>, ()>>();
    let waits_for_lease = pool.submit_with_lease(never, |_, _| ((), Outcome::Cancelled)).expect("open");
    eventually("all is counted", || pool.stats().scaled_up == 1 && pool.metrics().waited().count() == 2);
    look(0);

    let job: Option<Job<Task>> = waits.into_job();
    drop(job);
    let blocked = blocked.elapsed();
    drop(go);
    eventually("the queue is empty", || pool.stats().queued == 0);
    let refused = std::future::ready(Err::<OwnedLease<Entry<u32, u32, ()>>, _>(()));
    let misses = pool.submit_with_lease(refused, |_, _| ((), Outcome::Cancelled)).expect("open");
    assert!(misses.wait().expect("told").is_err());
    // Not by `panic!`, which would be printed.
    pool.submit(Task::job(|_| std::panic::resume_unwind(Box::new("panicked")))).expect("open");
    eventually("one worker is left, and sleeps", || {
        let stats = pool.stats();
        let ended = stats.panicked == 1 && pool.metrics().ran().count() == 4;
        ended && (stats.workers, stats.idle, stats.scaled_down) == (1, 1, 1)
    });
    look(1);

    let ended = pool.shutdown(Duration::ZERO);
    assert_eq!((ended.given_up, ended.handed_back), (1, 0));
    let _ = pool.shutdown(LONG);
    pool.try_submit(nothing()).expect_err("closed");
    look(2);
    drop(waits_for_lease);
    2 * blocked
}

/// A worker that has taken five jobs and not begun them, while `look` is called.
pub fn with_jobs_on_a_tray(watch: impl Fn(&Arc<Watched>), look: impl FnOnce()) {
    // How many are taken at once depends on how short jobs were, which a busy machine may blur.
    let start = Instant::now();
    while start.elapsed() < 3 * LONG {
        let pool = Pool::<Task>::builder().workers(1).metrics(AtomicMetrics::default());
        let pool = Arc::new(pool.build().expect("in range"));
        for _ in 0..2_000 {
            pool.submit(Task::job(|_| Ok(()))).expect("open");
        }
        eventually("it sleeps", || pool.stats().done == 2_000 && pool.stats().idle == 1);
        let (begin, begun) = mpsc::channel();
        let (go, gone) = mpsc::channel::<()>();
        let first = Task::job(move |_| {
            begin.send(())?;
            let _ = gone.recv();
            Ok(())
        });
        let mut jobs: std::collections::VecDeque<_> = [first].into();
        jobs.extend((0..5).map(|_| Task::job(|_| Ok(()))));
        pool.try_submit_many(&mut jobs).expect("room");
        begun.recv_timeout(LONG).expect("it has begun");
        if pool.stats().taken == 5 {
            watch(&pool);
            look();
            drop(go);
            return;
        }
        drop(go);
    }
    panic!("a batch is never taken");
}
