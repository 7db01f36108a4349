//! The worker pool on real threads: what becomes of jobs, who is woken, how it ends.
//!
//! Cost: some seconds, most of it asleep.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::{
    collections::VecDeque,
    future::Future,
    pin::pin,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    task::{Context as Task_, Poll, Waker},
    thread,
    time::{Duration, Instant},
};

use leasehold::pool::{
    AtomicMetrics, BuildError, CancelToken, Ending, EndingKind, Job, JobPriority, Order, Pool, RejectReason,
    Task,
};

const LONG: Duration = Duration::from_secs(20);

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < LONG, "{what}");
        thread::sleep(Duration::from_micros(200));
    }
}

/// A gate that jobs wait at.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>, Arc<AtomicUsize>);

impl Gate {
    fn pass(&self) {
        self.1.fetch_add(1, SeqCst);
        let mut open = self.0.0.lock().unwrap();
        while !*open {
            open = self.0.1.wait(open).unwrap();
        }
    }

    fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    /// Waits until so many stand there.
    fn has(&self, count: usize) {
        eventually("jobs come to the gate", || self.1.load(SeqCst) >= count);
    }
}

fn task(f: impl FnOnce() + Send + 'static) -> Job<Task> {
    Task::job(move |_| {
        f();
        Ok(())
    })
}

fn at_gate(gate: &Gate) -> Job<Task> {
    let gate = gate.clone();
    task(move || gate.pass())
}

fn closures(workers: usize) -> Pool<Task> {
    Pool::builder().workers(workers).build().expect("in range")
}

fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    std::pin::Pin::new(future).poll(&mut Task_::from_waker(Waker::noop()))
}

#[test]
fn every_job_is_run_once_by_any_number_of_workers() {
    for (workers, order) in [(1, Order::Fifo), (2, Order::Fifo), (16, Order::Fifo), (3, Order::Priority)] {
        let runs: Arc<Vec<AtomicUsize>> = Arc::new((0..20_000).map(|_| AtomicUsize::new(0)).collect());
        let pool = Pool::builder().workers(workers).order(order).capacity(100).build().expect("in range");
        for i in 0..runs.len() {
            let job = Job::new((Arc::clone(&runs), i), |(runs, i), _| {
                runs[*i].fetch_add(1, SeqCst);
                Ok(())
            });
            let priority = JobPriority::new(1 + (i % 63) as u8).expect("1 to 63");
            pool.submit(job.priority(priority)).expect("open");
        }
        assert!(pool.shutdown(LONG).is_complete());
        assert!(runs.iter().all(|run| run.load(SeqCst) == 1), "{workers} workers, {order:?}");
        assert_eq!(pool.stats().done, 20_000);
    }
}

#[test]
fn batches_are_accepted_as_far_as_there_is_room() {
    let gate = Gate::default();
    let pool = Pool::<Task>::builder().workers(1).capacity(10).build().expect("in range");
    pool.try_submit(at_gate(&gate)).expect("room");
    gate.has(1);
    let count = Arc::new(AtomicUsize::new(0));
    let mut jobs: VecDeque<_> = (0..25)
        .map(|_| {
            let count = Arc::clone(&count);
            task(move || _ = count.fetch_add(1, SeqCst))
        })
        .collect();
    assert_eq!(pool.try_submit_many(&mut jobs), Err(RejectReason::Full));
    assert_eq!(jobs.len(), 15);
    gate.open();
    while pool.try_submit_many(&mut jobs).is_err() {}
    assert!(pool.shutdown(LONG).is_complete());
    assert_eq!(count.load(SeqCst), 25);
}

#[test]
fn urgent_jobs_go_first() {
    let gate = Gate::default();
    let pool = Pool::<Task>::builder().workers(1).order(Order::Priority).build().expect("in range");
    pool.try_submit(at_gate(&gate)).expect("room");
    gate.has(1);
    let (sender, receiver) = mpsc::channel();
    for number in [40, 7, 63, 1, 7] {
        let sender = sender.clone();
        let job = task(move || sender.send(number).unwrap());
        pool.try_submit(job.priority(JobPriority::new(number).expect("1 to 63"))).expect("room");
    }
    gate.open();
    assert!(pool.shutdown(LONG).is_complete());
    assert_eq!(receiver.try_iter().collect::<Vec<_>>(), [1, 7, 7, 40, 63]);
}

/// What became of a job: its cleanup, its handle, its payload.
#[test]
fn each_ending_is_told_once() {
    type Payload = (Arc<AtomicUsize>, u8);
    let reported = Arc::new(AtomicUsize::new(0));
    let here = Arc::clone(&reported);
    let pool = Pool::<Payload>::builder()
        .workers(1)
        .on_failure(move |payload: &Payload, ending| {
            assert!(
                payload.1 == 1 && matches!(ending, Ending::Failed(error) if error.to_string() == "no")
                    || payload.1 == 2
                        && matches!(ending, Ending::Panicked(p) if p.downcast_ref() == Some(&"oh"))
            );
            here.fetch_add(1, SeqCst);
        })
        .build()
        .expect("in range");
    let cleaned = Arc::new(AtomicUsize::new(0));
    let job = |does: u8| {
        Job::new((Arc::clone(&cleaned), does), |payload: &mut Payload, _| match payload.1 {
            1 => Err("no".into()),
            2 => std::panic::panic_any("oh"),
            _ => Ok(()),
        })
        .cleanup(|payload, _| _ = payload.0.fetch_add(1, SeqCst))
    };
    let kinds = [EndingKind::Done, EndingKind::Failed, EndingKind::Panicked];
    for (does, kind) in (0..).zip(kinds) {
        let (job, handle) = job(does).with_handle();
        pool.try_submit(job).expect("room");
        let finished = handle.wait();
        assert_eq!(finished.ending.kind(), kind);
        assert_eq!(finished.payload.expect("it is handed out").1, does);
        assert_eq!(cleaned.load(SeqCst), usize::from(does) + 1);
    }
    assert_eq!(reported.load(SeqCst), 2);
    // Cancelled before it begins.
    let token = CancelToken::new();
    let gate = Gate::default();
    let (blocker, stopper) = (gate.clone(), closures(1));
    stopper.try_submit(task(move || blocker.pass())).expect("room");
    let (cancelled, handle) = job(0).cancel_with(token.clone()).with_handle();
    token.cancel();
    let refused = pool.try_submit(cancelled).expect_err("cancelled");
    assert_eq!(refused.reason, RejectReason::Cancelled);
    drop(refused);
    assert_eq!(handle.wait().ending.kind(), EndingKind::Dropped);
    gate.open();
    // Dropped, taken apart.
    drop(job(0));
    assert_eq!(cleaned.load(SeqCst), 5);
    let (_, does) = job(9).into_payload();
    assert_eq!((does, cleaned.load(SeqCst)), (9, 5), "its payload is the caller's");
    let stats = pool.stats();
    assert_eq!((stats.done, stats.failed, stats.panicked, stats.rejected_cancelled), (1, 1, 1, 1));
}

#[test]
fn a_token_stops_what_has_not_begun() {
    let (gate, token) = (Gate::default(), CancelToken::new());
    let pool = closures(1);
    pool.try_submit(at_gate(&gate)).expect("room");
    gate.has(1);
    let handles: Vec<_> = (0..3)
        .map(|_| {
            let (job, handle) = task(|| panic!("it was cancelled")).cancel_with(token.clone()).with_handle();
            pool.try_submit(job).expect("room");
            handle
        })
        .collect();
    token.cancel();
    gate.open();
    for handle in handles {
        assert_eq!(handle.wait().ending.kind(), EndingKind::Cancelled);
    }
    assert_eq!(pool.stats().cancelled, 3);
}

/// Panics everywhere: the job, the handler, the cleanup, the payload's drop.
#[test]
fn a_worker_outlives_every_panic() {
    struct Nasty;
    impl Drop for Nasty {
        fn drop(&mut self) {
            if !thread::panicking() {
                panic!("in drop");
            }
        }
    }
    let pool = Pool::<Option<Nasty>>::builder()
        .workers(1)
        .on_failure(|_, _| panic!("in the handler"))
        .build()
        .expect("in range");
    for _ in 0..3 {
        let job = Job::new(Some(Nasty), |_, _| panic!("in the job")).cleanup(|_, _| panic!("in the cleanup"));
        pool.submit(job).expect("open");
    }
    let (job, handle) = Job::new(None, |_, _| Ok(())).with_handle();
    pool.submit(job).expect("open");
    assert_eq!(handle.wait().ending.kind(), EndingKind::Done);
    assert_eq!(pool.stats().workers, 1);
}

#[test]
fn results_reach_threads_and_tasks() {
    let pool = closures(2);
    assert_eq!(pool.spawn(|_| 6 * 7).expect("open").wait().expect("done"), 42);
    let handle = pool.spawn(|_| "text").expect("open");
    assert_eq!(futures_lite::future::block_on(handle.finished()).expect("done"), "text");
    let panicked = pool.spawn(|_| -> u8 { panic!("no result") }).expect("open");
    assert!(matches!(panicked.wait(), Err(Ending::Panicked(_))));
    let (job, mut handle) = task(|| ()).with_handle();
    assert!(poll(&mut handle).is_pending() && !handle.is_finished());
    let Err(handle) = handle.wait_timeout(Duration::from_millis(1)) else { panic!("it was not submitted") };
    pool.submit(job).expect("open");
    assert_eq!(handle.wait_timeout(LONG).expect("in time").ending.kind(), EndingKind::Done);
}

/// With two workers, one of them busy for long, all that came with its job is run by the other.
#[test]
fn a_long_job_hides_nothing() {
    for short_before in [0, 1_000] {
        let pool = Pool::<Task>::builder().workers(2).capacity(2_000).build().expect("in range");
        // So that jobs are known to be short, and batches are large.
        for _ in 0..short_before {
            pool.submit(task(|| ())).expect("open");
        }
        eventually("all are done", || pool.stats().done == short_before);
        let gate = Gate::default();
        let mut jobs: VecDeque<_> = [at_gate(&gate)].into();
        jobs.extend((0..40).map(|_| task(|| ())));
        pool.try_submit_many(&mut jobs).expect("room");
        gate.has(1);
        eventually("the others are done", || pool.stats().done == short_before + 40);
        gate.open();
        assert!(pool.shutdown(LONG).is_complete());
    }
}

#[test]
fn submitters_wait_for_room_or_time() {
    let gate = Gate::default();
    let pool = Arc::new(Pool::<Task>::builder().workers(1).capacity(1).build().expect("in range"));
    pool.submit(at_gate(&gate)).expect("open");
    gate.has(1);
    pool.submit(task(|| ())).expect("open");
    let start = Instant::now();
    let refused = pool.submit_timeout(task(|| ()), Duration::from_millis(20)).expect_err("full");
    assert_eq!(refused.reason, RejectReason::TimedOut);
    assert!(start.elapsed() >= Duration::from_millis(20));
    assert_eq!(pool.try_submit(refused.into_job()).expect_err("full").reason, RejectReason::Full);
    let waiting = {
        let pool = Arc::clone(&pool);
        thread::spawn(move || pool.submit(task(|| ())).is_ok())
    };
    let mut future = pool.submit_async(task(|| ()));
    assert!(poll(&mut future).is_pending());
    eventually("both wait", || pool.stats().waiting == 2);
    gate.open();
    assert!(waiting.join().unwrap());
    futures_lite::future::block_on(future).expect("room");
    assert!(pool.shutdown(LONG).is_complete());
    let stats = pool.stats();
    assert_eq!((stats.done, stats.rejected_full, stats.rejected_timed_out, stats.waiting), (4, 1, 1, 0));
}

/// A task that was woken for a place and gives up passes it on.
#[test]
fn a_submission_that_is_given_up_passes_its_place_on() {
    let gate = Gate::default();
    let pool = Pool::<Task>::builder().workers(1).capacity(1).build().expect("in range");
    pool.submit(at_gate(&gate)).expect("open");
    gate.has(1);
    pool.submit(task(|| ())).expect("open");
    let woken = Arc::new(AtomicUsize::new(0));
    struct Count(Arc<AtomicUsize>);
    impl std::task::Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }
    let waker = Waker::from(Arc::new(Count(Arc::clone(&woken))));
    let mut context = Task_::from_waker(&waker);
    let mut first = Box::pin(pool.submit_async(task(|| ())));
    let mut second = pin!(pool.submit_async(task(|| ())));
    assert!(first.as_mut().poll(&mut context).is_pending());
    assert!(second.as_mut().poll(&mut context).is_pending());
    gate.open();
    eventually("the first is woken", || woken.load(SeqCst) >= 1);
    drop(first);
    eventually("so is the second", || woken.load(SeqCst) >= 2);
    assert!(matches!(second.as_mut().poll(&mut context), Poll::Ready(Ok(()))));
    assert!(pool.shutdown(LONG).is_complete());
}

#[test]
fn a_shutdown_without_time_hands_back_what_was_not_run() {
    let gate = Gate::default();
    let pool = Arc::new(closures(1));
    pool.submit(at_gate(&gate)).expect("open");
    gate.has(1);
    for _ in 0..10 {
        pool.submit(task(|| panic!("not run"))).expect("open");
    }
    let others: Vec<_> = (0..3)
        .map(|_| {
            let pool = Arc::clone(&pool);
            thread::spawn(move || {
                let ended = pool.shutdown(Duration::from_millis(30));
                (ended.unrun.len(), ended.still_running)
            })
        })
        .collect();
    let told: Vec<_> = others.into_iter().map(|other| other.join().unwrap()).collect();
    assert_eq!(told.iter().map(|(unrun, _)| unrun).sum::<usize>(), 10, "each is handed to one of them");
    assert!(told.iter().all(|&(_, running)| running == 1), "{told:?}");
    let later = pool.shutdown(Duration::ZERO);
    assert_eq!((later.handed_back, later.is_complete()), (10, false));
    gate.open();
    let end = pool.shutdown(LONG);
    assert_eq!((end.handed_back, end.still_running), (10, 0));
    assert_eq!(pool.stats().workers, 0);
    assert_eq!(pool.try_submit(task(|| ())).expect_err("closed").reason, RejectReason::Closed);
}

/// Jobs that run are asked to end when time is up.
#[test]
fn long_jobs_are_asked_to_end() {
    let pool = closures(1);
    let begun = Gate::default();
    let here = begun.clone();
    pool.submit(Task::job(move |context| {
        here.1.fetch_add(1, SeqCst);
        while !context.is_cancelled() {
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }))
    .expect("open");
    begun.has(1);
    assert_eq!(pool.shutdown(Duration::from_millis(10)).still_running, 1);
    assert_eq!(pool.shutdown(LONG).still_running, 0);
    assert_eq!(pool.stats().done, 1);
}

#[test]
fn a_job_may_shut_its_own_pool_down() {
    let pool = Arc::new(closures(2));
    let here = Arc::clone(&pool);
    let handle = pool.spawn(move |_| here.shutdown(LONG).is_complete()).expect("open");
    assert!(handle.wait().expect("done"));
    assert!(pool.shutdown(LONG).is_complete());
}

/// Blocked submitters are let go when the pool ends, with their jobs.
#[test]
fn a_shutdown_lets_blocked_submitters_go() {
    let gate = Gate::default();
    let pool = Arc::new(Pool::<Task>::builder().workers(1).capacity(1).build().expect("in range"));
    pool.submit(at_gate(&gate)).expect("open");
    gate.has(1);
    pool.submit(task(|| ())).expect("open");
    let blocked: Vec<_> = (0..4)
        .map(|_| {
            let pool = Arc::clone(&pool);
            thread::spawn(move || pool.submit(task(|| ())).map_err(|refused| refused.reason))
        })
        .collect();
    eventually("they wait", || pool.stats().waiting == 4);
    let ended = pool.shutdown(Duration::ZERO);
    assert_eq!(ended.unrun.len(), 1);
    for thread in blocked {
        assert_eq!(thread.join().unwrap(), Err(RejectReason::Closed));
    }
    gate.open();
}

#[test]
fn a_dropped_pool_waits_for_nobody_and_leaks_no_thread() {
    let gate = Gate::default();
    let pool = closures(2);
    pool.submit(at_gate(&gate)).expect("open");
    gate.has(1);
    let (job, handle) = task(|| ()).with_handle();
    pool.submit(at_gate(&gate)).expect("open");
    pool.submit(job).expect("open");
    let start = Instant::now();
    let alive = Arc::new(());
    let inside = Arc::clone(&alive);
    pool.try_submit(task(move || drop(inside))).expect("room");
    drop(pool);
    assert!(start.elapsed() < LONG);
    assert!(matches!(handle.wait().ending.kind(), EndingKind::Dropped | EndingKind::Done));
    gate.open();
    eventually("what its jobs held is let go", || Arc::strong_count(&alive) == 1);
}

#[test]
fn workers_come_when_the_queue_is_full_and_go_when_they_idle() {
    let gate = Gate::default();
    let pool = Pool::<Task>::builder()
        .adaptive(1, 6)
        .capacity(20)
        .scale_up_at(0.5)
        .scale_up_after(LONG)
        .scale_rest(Duration::from_millis(1))
        .idle_for(Duration::from_millis(30))
        .metrics(AtomicMetrics::default())
        .build()
        .expect("in range");
    assert_eq!(pool.stats().workers, 1);
    for _ in 0..20 {
        pool.submit(at_gate(&gate)).expect("open");
    }
    eventually("as many as may be", || pool.stats().workers == 6);
    assert_eq!(pool.metrics().most_workers(), 6);
    gate.open();
    eventually("all are done", || pool.stats().done == 20);
    eventually("as few as may be", || pool.stats().workers == 1);
    thread::sleep(Duration::from_millis(60));
    assert_eq!(pool.stats().workers, 1, "and not fewer");
    assert_eq!(pool.spawn(|_| 1).expect("open").wait().expect("done"), 1);
}

/// A queue that is nowhere near full, and does not move.
#[test]
fn workers_come_when_jobs_wait_for_long() {
    let gate = Gate::default();
    let pool = Pool::<Task>::builder()
        .adaptive(1, 3)
        .capacity(1_000)
        .scale_up_after(Duration::from_millis(10))
        .scale_rest(Duration::ZERO)
        .build()
        .expect("in range");
    for _ in 0..3 {
        pool.submit(at_gate(&gate)).expect("open");
    }
    gate.has(3);
    assert_eq!(pool.stats().workers, 3);
    gate.open();
}

#[test]
fn settings_are_checked() {
    let builder = || Pool::<()>::builder();
    assert!(matches!(builder().workers(0).build(), Err(BuildError::Workers { .. })));
    assert!(matches!(builder().adaptive(3, 2).build(), Err(BuildError::Workers { least: 3, most: 2 })));
    assert!(matches!(builder().capacity(0).build(), Err(BuildError::Capacity(Some(0)))));
    assert!(matches!(builder().order(Order::Priority).unbounded().build(), Err(BuildError::Capacity(None))));
    assert!(matches!(builder().segment_slots(0).build(), Err(BuildError::SegmentSlots(0))));
    for share in [-0.1, 1.1, f64::NAN] {
        assert!(matches!(builder().scale_up_at(share).build(), Err(BuildError::Utilisation(_))));
    }
    let error = builder().adaptive(3, 2).build().expect_err("3 > 2").to_string();
    assert_eq!(error, "3 to 2 workers: allowed are 1 to 16384, the least not above the most");
}

/// Jobs with leases: never more at once than are lent, each returned with its outcome, also after a panic.
#[test]
fn jobs_run_with_leases() {
    use leasehold::{Entry, Outcome, Scheduler, WaitError};
    let fleet = Arc::new(Scheduler::<Entry<u32, u32, AtomicUsize>>::builder().build().expect("in range"));
    for key in 0..2 {
        fleet.insert(Entry::new(key, 0, AtomicUsize::new(0))).expect("new");
    }
    let pool = closures(4);
    let jobs: Vec<_> = (0..200)
        .map(|i| {
            pool.submit_with_lease(fleet.acquire_async_owned(), move |lease, _| {
                assert_eq!(lease.value.fetch_add(1, SeqCst), 0, "nobody else has it");
                lease.value.fetch_sub(1, SeqCst);
                assert!(i % 50 != 49, "one of fifty panics");
                (i, Outcome::Ok { latency: Duration::ZERO })
            })
            .expect("open")
        })
        .collect();
    let results: Vec<_> = jobs.into_iter().map(|job| job.wait()).collect();
    let panicked = results.iter().filter(|result| matches!(result, Err(Ending::Panicked(_)))).count();
    assert_eq!((panicked, results.len()), (4, 200));
    let stats = fleet.stats();
    assert_eq!(stats.in_flight, 0);
    eventually("they are told", || pool.stats().awaiting_lease == 0);
    // Nobody will lend any more.
    let held: Vec<_> = (0..2).map(|_| fleet.acquire_owned().expect("free")).collect();
    let late = pool.submit_with_lease(fleet.acquire_async_owned(), |_, _| ((), Outcome::Cancelled));
    fleet.close();
    assert!(matches!(late.expect("open").wait(), Ok(Err(WaitError::Closed))));
    drop(held);
}

/// Jobs that wait for a lease hold no worker, nor a place in the queue; with the lease they wait for one.
#[test]
fn a_job_waits_for_its_lease_without_a_worker() {
    use leasehold::{Entry, Outcome, Scheduler};
    let fleet = Arc::new(Scheduler::<Entry<u32, u32, ()>>::builder().build().expect("in range"));
    fleet.insert(Entry::new(1, 0, ())).expect("new");
    let pool = Pool::<Task>::builder().workers(1).capacity(1).build().expect("in range");
    let done = || Outcome::Ok { latency: Duration::ZERO };
    let held = fleet.acquire_owned().expect("free");
    let mut jobs: Vec<_> = (0..10)
        .map(|i| pool.submit_with_lease(fleet.acquire_async_owned(), move |_, _| (i, done())).expect("open"))
        .collect();
    assert_eq!(pool.stats().awaiting_lease, 10);
    assert_eq!(pool.spawn(|_| 7).expect("open").wait().expect("run"), 7, "the only worker is free");
    // A full queue: whoever gets the lease waits for room, and nobody for him.
    let gate = Gate::default();
    pool.submit(at_gate(&gate)).expect("open");
    gate.has(1);
    pool.try_submit(task(|| ())).expect("room");
    drop(held);
    eventually("the first has the lease", || fleet.stats().in_flight == 1);
    assert_eq!(pool.stats().awaiting_lease, 10);
    gate.open();
    let last = jobs.pop().expect("ten").wait();
    assert_eq!(last.expect("run").expect("lent"), 9);
    for (i, job) in jobs.into_iter().enumerate() {
        assert_eq!(job.wait().expect("run").expect("lent"), i);
    }
    eventually("all are over", || pool.stats().awaiting_lease == 0 && fleet.stats().in_flight == 0);
}

/// A pool that closes gives up what waits for leases: the jobs are told, and the scheduler keeps nobody.
#[test]
fn a_pool_that_closes_gives_up_waiting_for_leases() {
    use leasehold::{Entry, Outcome, Scheduler};
    let fleet = Arc::new(Scheduler::<Entry<u32, u32, ()>>::builder().build().expect("in range"));
    fleet.insert(Entry::new(1, 0, ())).expect("new");
    for dropped in [false, true] {
        let held = fleet.acquire_owned().expect("free");
        let pool = closures(1);
        let job = pool.submit_with_lease(fleet.acquire_async_owned(), |_, _| ((), Outcome::Failed));
        let job = job.expect("open");
        if dropped {
            drop(pool);
        } else {
            assert!(pool.shutdown(LONG).is_complete());
            let late = pool.submit_with_lease(fleet.acquire_async_owned(), |_, _| ((), Outcome::Failed));
            assert!(matches!(late, Err(RejectReason::Closed)));
            assert_eq!(pool.stats().rejected_closed, 1);
        }
        assert!(matches!(job.wait(), Err(Ending::Dropped)));
        drop(held);
        assert_eq!(fleet.stats().in_flight, 0, "nobody was lent anything");
    }
}

/// A future that panics, and one that is never woken, end with their jobs.
#[test]
fn a_lease_that_never_comes_is_told() {
    use leasehold::{Entry, Outcome, OwnedLease};
    type Lent = Result<OwnedLease<Entry<u32, u32, ()>>, ()>;
    let pool = closures(1);
    let panics = async { panic!("no lease") };
    let job = pool.submit_with_lease::<_, (), ()>(panics, |_: &OwnedLease<Entry<u32, u32, ()>>, _| {
        ((), Outcome::Failed)
    });
    assert!(matches!(job.expect("open").wait(), Err(Ending::Dropped)));
    assert_eq!(pool.stats().awaiting_lease, 0);
    let never = std::future::pending::<Lent>();
    let job = pool.submit_with_lease(never, |_, _| ((), Outcome::Failed)).expect("open");
    assert_eq!(pool.stats().awaiting_lease, 1);
    assert!(pool.shutdown(LONG).is_complete());
    assert!(matches!(job.wait(), Err(Ending::Dropped)));
}
