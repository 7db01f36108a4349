//! Jobs that run with a lease of a scheduler.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    task::{Poll, Waker},
    thread,
    time::Duration,
};

use leasehold::pool::{Ending, Pool, RejectReason, Task};

use super::common::{Gate, LONG, at_gate, closures, eventually, in_time, poll, task};

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
    assert_eq!((stats.in_flight, stats.succeeded, stats.failed), (0, 196, 4), "each with its outcome");
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

pub type Fleet = leasehold::Scheduler<leasehold::Entry<u32, u32, ()>>;

/// Of one resource.
pub fn one() -> Arc<Fleet> {
    let fleet = Arc::new(Fleet::builder().build().expect("in range"));
    fleet.insert(leasehold::Entry::new(1, 0, ())).expect("new");
    fleet
}

pub fn done() -> leasehold::Outcome {
    leasehold::Outcome::Ok { latency: Duration::ZERO }
}

/// Jobs that were accepted are run, those that wait for a lease as well, if it comes in time; meanwhile nothing else comes in.
#[test]
fn a_shutdown_drains_what_waits_for_leases() {
    for (limit, capacity) in [(LONG, 1_000), (Duration::MAX, 1_000), (LONG, 1)] {
        let fleet = one();
        let held = fleet.acquire_owned().expect("free");
        let pool = Arc::new(Pool::<Task>::builder().workers(1).capacity(capacity).build().expect("in range"));
        let jobs: Vec<_> = (0..5)
            .map(|i| pool.submit_with_lease(fleet.acquire_async_owned(), move |_, _| (i, done())))
            .map(|job| job.expect("open"))
            .collect();
        let ending = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || pool.shutdown(limit))
        };
        eventually("nothing comes in", || pool.spawn(|_| ()).is_err());
        let late = pool.submit_with_lease(fleet.acquire_async_owned(), |_, _| ((), done()));
        assert!(matches!(late, Err(RejectReason::Closed)));
        let refused = [
            pool.try_submit(task(|| ())),
            pool.submit_timeout(task(|| ()), LONG),
            poll_once(pool.submit_async(task(|| ()))),
        ];
        assert!(refused.into_iter().all(|it| it.is_err_and(|it| it.reason == RejectReason::Closed)));
        let mut many: VecDeque<_> = [task(|| ())].into();
        assert_eq!((pool.try_submit_many(&mut many), many.len()), (Err(RejectReason::Closed), 1));
        assert_eq!((pool.stats().awaiting_lease, pool.stats().rejected_closed >= 6), (5, true));
        drop(held);
        let ended = in_time("all are run", move || ending.join().expect("no panic"));
        assert!(ended.is_complete(), "{ended:?}");
        let answers: Vec<_> = jobs.into_iter().map(|job| job.wait().expect("run").expect("lent")).collect();
        assert_eq!(answers, [0, 1, 2, 3, 4]);
        assert_eq!((fleet.stats().in_flight, pool.stats().given_up), (0, 0));
    }
}

pub fn poll_once<F: Future + Unpin>(mut future: F) -> F::Output {
    match poll(&mut future) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it is ready"),
    }
}

/// Who waits for room is let go when a shutdown begins, but for jobs that wait with a lease: they come in, in their order.
#[test]
fn a_shutdown_lets_submitters_go_and_jobs_with_leases_in() {
    let (fleet, gate) = (Arc::new(Fleet::builder().build().expect("in range")), Gate::default());
    (0..4).for_each(|key| fleet.insert(leasehold::Entry::new(key, 0, ())).expect("new"));
    let pool = Arc::new(Pool::<Task>::builder().workers(1).capacity(1).build().expect("in range"));
    pool.submit(at_gate(&gate)).expect("open");
    gate.has(1);
    pool.submit(task(|| ())).expect("room");
    let order = Arc::new(Mutex::new(Vec::new()));
    let with_lease = |i: u32| {
        let order = Arc::clone(&order);
        let job = pool.submit_with_lease(fleet.acquire_async_owned(), move |_, _| {
            order.lock().unwrap().push(i);
            ((), done())
        });
        job.expect("open")
    };
    let first: Vec<_> = (0..2).map(with_lease).collect();
    let blocked = {
        let pool = Arc::clone(&pool);
        thread::spawn(move || pool.submit(task(|| ())).map_err(|refused| refused.reason))
    };
    eventually("it waits", || pool.stats().waiting == 3);
    let last: Vec<_> = (2..4).map(with_lease).collect();
    assert_eq!((pool.stats().waiting, fleet.stats().in_flight), (5, 4));
    let ending = {
        let pool = Arc::clone(&pool);
        thread::spawn(move || pool.shutdown(LONG))
    };
    assert_eq!(blocked.join().expect("no panic"), Err(RejectReason::Closed), "at once");
    // All were rung; these lie down again.
    eventually("they wait on", || pool.stats().waiting == 4);
    gate.open();
    let ended = in_time("all are run", move || ending.join().expect("no panic"));
    assert!(ended.is_complete(), "{ended:?}");
    first.into_iter().chain(last).for_each(|job| job.wait().expect("run").expect("lent"));
    assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3]);
}

/// When time is up, or the pool is dropped, what still waits for a lease is given up: the jobs are told, and the scheduler keeps nobody.
#[test]
fn a_pool_without_time_gives_up_waiting_for_leases() {
    let fleet = one();
    for limit in [None, Some(Duration::ZERO), Some(Duration::from_millis(20))] {
        let held = fleet.acquire_owned().expect("free");
        let pool = closures(1);
        let job = pool.submit_with_lease(fleet.acquire_async_owned(), |_, _| ((), done()));
        let job = job.expect("open");
        if let Some(limit) = limit {
            let ended = pool.shutdown(limit);
            assert_eq!((ended.given_up, ended.handed_back, ended.is_complete()), (1, 0, false));
            assert_eq!((ended.unlent.len(), job.is_finished()), (1, false), "it is handed back");
            assert_eq!((pool.stats().given_up, pool.shutdown(LONG).given_up), (1, 1), "all are told");
            let late = pool.submit_with_lease(fleet.acquire_async_owned(), |_, _| ((), done()));
            assert!(matches!(late, Err(RejectReason::Closed)));
            assert_eq!(pool.stats().rejected_closed, 1);
        } else {
            drop(pool);
        }
        assert!(matches!(job.wait(), Err(Ending::Dropped)));
        drop(held);
        assert_eq!(fleet.stats().in_flight, 0, "nobody was lent anything");
    }
}

/// One that has time waits for leases; one that has none gives them up, and then both are told.
#[test]
fn a_hasty_shutdown_ends_a_patient_ones_wait_for_leases() {
    let fleet = one();
    let held = fleet.acquire_owned().expect("free");
    let pool = Arc::new(closures(2));
    let job = pool.submit_with_lease(fleet.acquire_async_owned(), |_, _| ((), done())).expect("open");
    let patient = {
        let pool = Arc::clone(&pool);
        thread::spawn(move || pool.shutdown(Duration::MAX))
    };
    eventually("it has begun", || pool.spawn(|_| ()).is_err());
    assert_eq!(pool.shutdown(Duration::from_millis(5)).given_up, 1);
    assert_eq!(in_time("it ends", move || patient.join().expect("no panic")).given_up, 1);
    assert!(matches!(job.wait(), Err(Ending::Dropped)));
    drop(held);
}

/// A job that ends its pool holds what another job waits for: it waits for that one until its time is up, and without a limit not at all.
#[test]
fn a_job_that_ends_its_pool_does_not_wait_for_its_own_lease_for_ever() {
    for workers in [1, 2] {
        for limit in [Duration::MAX, Duration::from_millis(20)] {
            let (fleet, gate) = (one(), Gate::default());
            let pool = Arc::new(closures(workers));
            let (here, at_gate) = (Arc::clone(&pool), gate.clone());
            let ends = pool.submit_with_lease(fleet.acquire_async_owned(), move |_, _| {
                at_gate.pass();
                (here.shutdown(limit), done())
            });
            let waits = pool.submit_with_lease(fleet.acquire_async_owned(), |_, _| ((), done()));
            let (ends, waits) = (ends.expect("open"), waits.expect("open"));
            gate.has(1);
            gate.open();
            let ended = in_time("it returns", move || ends.wait().expect("run").expect("lent"));
            assert_eq!((ended.given_up, ended.is_complete()), (1, false), "{workers} workers, {limit:?}");
            assert_eq!((ended.unlent.len(), waits.is_finished()), (1, false), "it is handed back");
            drop(ended);
            assert!(matches!(waits.wait(), Err(Ending::Dropped)));
            assert_eq!(pool.shutdown(LONG).given_up, 1);
            eventually("it is returned", || fleet.stats().in_flight == 0);
        }
    }
}

/// A job that ends its pool waits, within its limit, for what another worker can run meanwhile.
#[test]
fn a_job_that_ends_its_pool_waits_for_leases_of_others() {
    let (fleet, gate) = (one(), Gate::default());
    let held = fleet.acquire_owned().expect("free");
    let pool = Arc::new(closures(2));
    let here = Arc::clone(&pool);
    let waits = pool.submit_with_lease(fleet.acquire_async_owned(), |_, _| (7, done())).expect("open");
    let at_gate = gate.clone();
    let ends = pool.spawn(move |_| {
        at_gate.arrive();
        here.shutdown(LONG)
    });
    gate.has(1);
    eventually("it has begun", || pool.spawn(|_| ()).is_err());
    drop(held);
    let ended = in_time("it returns", move || ends.expect("open").wait().expect("run"));
    assert!(ended.is_complete(), "{ended:?}");
    assert_eq!(waits.wait().expect("run").expect("lent"), 7);
}

/// What is asked for a lease may end the pool: it does not wait for itself.
#[test]
fn a_wait_for_a_lease_may_end_the_pool() {
    for limit in [Duration::MAX, LONG] {
        let pool = Arc::new(closures(1));
        let here = Arc::clone(&pool);
        let lease = async move {
            let ended = here.shutdown(limit);
            Err::<leasehold::OwnedLease<leasehold::Entry<u32, u32, ()>>, _>(ended.given_up)
        };
        let started = std::time::Instant::now();
        let job = pool.submit_with_lease(lease, |_, _| ((), done())).expect("open");
        let ending = in_time("it ends", move || job.wait());
        assert!(matches!(ending, Err(Ending::Dropped)), "it was given up by itself");
        assert!(started.elapsed() < LONG);
        assert_eq!(pool.shutdown(LONG).given_up, 1);
    }
}

/// Is called when a job has come in, before whoever has submitted it knows.
struct OnAccepted(Gate);

impl leasehold::pool::Metrics for OnAccepted {
    const TIMED: bool = false;

    fn accepted(&self, _: usize) {
        self.0.pass();
    }
}

/// A job that has come into the queue is not given up any more, though whoever lent it the lease is still about it.
#[test]
fn a_job_that_was_run_is_not_given_up() {
    let (fleet, gate) = (one(), Gate::default());
    let held = fleet.acquire_owned().expect("free");
    let builder = Pool::<Task>::builder().workers(1).metrics(OnAccepted(gate.clone()));
    let pool = Arc::new(builder.build().expect("in range"));
    let job = pool.submit_with_lease(fleet.acquire_async_owned(), |_, _| (7, done())).expect("open");
    let lends = thread::spawn(move || drop(held));
    gate.has(1);
    assert_eq!(job.wait().expect("run").expect("lent"), 7);
    for limit in [Duration::ZERO, LONG] {
        let here = Arc::clone(&pool);
        let ended = in_time("it ends", move || here.shutdown(limit));
        assert_eq!((ended.given_up, ended.handed_back), (0, 0), "{ended:?}");
        assert_eq!(pool.stats().given_up, 0);
    }
    assert!(pool.shutdown(LONG).is_complete());
    gate.open();
    lends.join().expect("no panic");
}

/// Leases come, one after the other, while the pool is ended, with some time or with none: what was accepted was run, or is handed back, or given up.
#[test]
fn leases_that_come_at_the_end_are_accounted_for() {
    let mut all = [0; 3];
    for round in 0..400_u64 {
        let fleet = one();
        let held = fleet.acquire_owned().expect("free");
        let pool = Arc::new(Pool::<Task>::builder().workers(2).capacity(2).build().expect("in range"));
        let ran = Arc::new(AtomicUsize::new(0));
        let start = Arc::new(std::sync::Barrier::new(3));
        let submits = {
            let (pool, fleet, ran, start) =
                (Arc::clone(&pool), Arc::clone(&fleet), Arc::clone(&ran), Arc::clone(&start));
            thread::spawn(move || {
                let submit = || {
                    let ran = Arc::clone(&ran);
                    let job = pool.submit_with_lease(fleet.acquire_async_owned(), move |_, _| {
                        ran.fetch_add(1, SeqCst);
                        ((), done())
                    });
                    job.is_ok()
                };
                let before: usize = (0..6).map(|_| usize::from(submit())).sum();
                start.wait();
                before + (0..6).map(|_| usize::from(submit())).sum::<usize>()
            })
        };
        let lends = {
            let start = Arc::clone(&start);
            thread::spawn(move || {
                start.wait();
                drop(held);
            })
        };
        start.wait();
        let limits = [Duration::ZERO, Duration::from_micros(round % 100), Duration::from_millis(1), LONG];
        let limit = limits[round as usize % limits.len()];
        let first = pool.shutdown(limit);
        let accepted = submits.join().expect("no panic");
        lends.join().expect("no panic");
        let mut end = pool.shutdown(LONG);
        assert_eq!((end.unrun.len(), end.still_running), (0, 0));
        let back = first.unrun.len();
        assert_eq!((end.handed_back, end.given_up), (back, first.given_up), "nothing changes any more");
        // One that was being polled when time was up has been left for the second one.
        let unlent = first.unlent.len() + end.unlent.len();
        assert_eq!(unlent, end.given_up, "each is handed back");
        drop((first, std::mem::take(&mut end.unlent)));
        let ran = ran.load(SeqCst);
        assert_eq!(ran + back + end.given_up, accepted, "{limit:?}: {end:?}, {ran} were run");
        assert_eq!(end.given_up, pool.stats().given_up);
        assert!(limit != LONG || ran == accepted, "{limit:?}: {end:?}, {ran} of {accepted} were run");
        eventually("all is returned", || fleet.stats().in_flight == 0 && pool.stats().awaiting_lease == 0);
        for (sum, count) in all.iter_mut().zip([ran, back, end.given_up]) {
            *sum += count;
        }
    }
    println!("run, handed back, given up: {all:?}");
    assert!(all[0] > 0 && all[2] > 0, "{all:?}");
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
    assert_eq!((pool.stats().awaiting_lease, pool.stats().given_up), (0, 1));
    let never = std::future::pending::<Lent>();
    let job = pool.submit_with_lease(never, |_, _| ((), Outcome::Failed)).expect("open");
    assert_eq!(pool.stats().awaiting_lease, 1);
    assert_eq!(pool.shutdown(Duration::from_millis(1)).given_up, 2);
    assert!(matches!(job.wait(), Err(Ending::Dropped)));
}

/// A future that wakes itself, or its like, any number of times: it is polled as often, and the stack does not grow.
#[test]
fn a_lease_may_be_asked_for_any_number_of_times() {
    use leasehold::{Entry, Outcome, Scheduler};
    const MANY: u32 = 200_000;
    let fleet = Arc::new(Scheduler::<Entry<u32, u32, ()>>::builder().build().expect("in range"));
    fleet.insert(Entry::new(1, 0, ())).expect("new");
    let pool = closures(1);
    let lease = {
        let (fleet, mut polls) = (Arc::clone(&fleet), 0);
        async move {
            std::future::poll_fn(|context| {
                polls += 1;
                if polls == MANY {
                    return Poll::Ready(());
                }
                context.waker().wake_by_ref();
                Poll::Pending
            })
            .await;
            fleet.acquire_async_owned().await
        }
    };
    let job = pool.submit_with_lease(lease, |_, _| (7, Outcome::Failed)).expect("open");
    assert_eq!(job.wait().expect("run").expect("lent"), 7);
    // Each wakes the next one, in its own poll.
    let wakers: Arc<Vec<Mutex<Option<Waker>>>> =
        Arc::new((0..=MANY / 10).map(|_| Mutex::default()).collect());
    let jobs: Vec<_> = (0..MANY as usize / 10)
        .map(|i| {
            let (fleet, wakers, mut waits) = (Arc::clone(&fleet), Arc::clone(&wakers), true);
            let lease = async move {
                std::future::poll_fn(|context| {
                    if std::mem::take(&mut waits) {
                        *wakers[i].lock().unwrap() = Some(context.waker().clone());
                        return Poll::Pending;
                    }
                    let next = wakers[i + 1].lock().unwrap().take();
                    next.into_iter().for_each(Waker::wake);
                    Poll::Ready(())
                })
                .await;
                fleet.acquire_async_owned().await
            };
            pool.submit_with_lease(lease, |_, _| ((), Outcome::Failed)).expect("open")
        })
        .collect();
    let first = wakers[0].lock().unwrap().take().expect("it waits");
    first.wake();
    jobs.into_iter().for_each(|job| job.wait().expect("run").expect("lent"));
    eventually("all have returned", || pool.stats().awaiting_lease == 0 && fleet.stats().in_flight == 0);
    assert_eq!((pool.stats().given_up, pool.shutdown(LONG).is_complete()), (0, true));
}

/// A job that was dropped has returned its lease, though nobody has asked its handle.
#[test]
fn a_dropped_job_returns_its_lease_at_once() {
    use leasehold::{Entry, Outcome, Scheduler};
    let fleet = Arc::new(Scheduler::<Entry<u32, u32, ()>>::builder().build().expect("in range"));
    fleet.insert(Entry::new(1, 0, ())).expect("new");
    let (gate, pool) = (Gate::default(), closures(1));
    pool.submit(at_gate(&gate)).expect("open");
    gate.has(1);
    let job = pool.submit_with_lease(fleet.acquire_async_owned(), |_, _| ((), Outcome::Failed));
    let unread = job.expect("open");
    assert_eq!((fleet.stats().in_flight, pool.stats().queued), (1, 1));
    drop(pool);
    assert_eq!(fleet.stats().in_flight, 0, "it is not captive in the handle");
    assert!(matches!(unread.wait(), Err(Ending::Dropped)));
    gate.open();
}

/// A job that ends without its lease has ended, handle and all, when a shutdown says so: one that sleeps till then, and one that comes meanwhile.
#[test]
fn a_job_whose_lease_fails_is_told_before_the_shutdown_is() {
    use leasehold::{Entry, Outcome, Scheduler};
    struct Slow(mpsc::Sender<()>, Gate);
    impl Drop for Slow {
        fn drop(&mut self) {
            let _ = self.0.send(());
            self.1.pass();
            thread::sleep(Duration::from_millis(100));
        }
    }
    for comes_meanwhile in [false, true] {
        let fleet = Arc::new(Scheduler::<Entry<u32, u32, ()>>::builder().build().expect("in range"));
        let pool = closures(1);
        let (is_ending, ending) = mpsc::channel();
        let gate = Gate::default();
        let slow = Slow(is_ending, gate.clone());
        let job = pool.submit_with_lease(fleet.acquire_async_owned(), move |_, _| {
            let _slow = &slow;
            ((), Outcome::Cancelled)
        });
        let job = job.expect("open");
        let ends = {
            let fleet = Arc::clone(&fleet);
            thread::spawn(move || {
                thread::sleep(Duration::from_millis(20));
                fleet.close()
            })
        };
        if comes_meanwhile {
            ending.recv_timeout(LONG).expect("the job is dropped");
            assert!(!pool.shutdown(Duration::ZERO).is_complete(), "it has not ended");
        }
        gate.open();
        assert!(in_time("it ends", move || pool.shutdown(LONG)).is_complete());
        assert!(job.is_finished(), "all that was accepted has ended: {comes_meanwhile}");
        assert!(ends.join().expect("no panic"));
    }
}
