//! How a pool ends, and what it says about it.

use std::{
    cell::RefCell,
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use leasehold::pool::{AtomicMetrics, Context, EndingKind, Metrics, Pool, RejectReason, Task};

use super::common::{Gate, LONG, alone, at_gate, closures, eventually, in_time, task, threads};

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
        here.arrive();
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

/// None of its threads is left, the keeper's neither, whatever they were at.
#[test]
fn a_dropped_pool_leaves_no_thread() {
    alone("ending::a_dropped_pool_leaves_no_thread", || {
        for (least, most) in [(1, 1), (3, 3), (1, 4)] {
            let gate = Gate::default();
            let pool = Pool::<Task>::builder().adaptive(least, most).build().expect("in range");
            pool.submit(at_gate(&gate)).expect("open");
            gate.has(1);
            if threads("lease-worker").is_none() {
                return;
            }
            // A thread takes its name when it runs.
            eventually("all have begun", || {
                (threads("lease-worker"), threads("lease-keeper")) == (Some(least), Some(1))
            });
            drop(pool);
            eventually("only what runs a job is left", || {
                (threads("lease-worker"), threads("lease-keeper")) == (Some(1), Some(0))
            });
            gate.open();
            eventually("nothing is left", || threads("lease-worker") == Some(0));
        }
    });
}

#[test]
fn a_dropped_pool_waits_for_nobody_and_drops_what_it_has() {
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

/// A job of the only worker ends its pool: what nobody would run is handed back, and nothing is called complete.
#[test]
fn a_shutdown_from_the_only_worker_hands_back_what_waits() {
    let pool = Arc::new(closures(1));
    let (gate, here) = (Gate::default(), Arc::clone(&pool));
    pool.submit(at_gate(&gate)).expect("open");
    let handle = pool.spawn(move |_| here.shutdown(LONG)).expect("open");
    for _ in 0..5 {
        pool.submit(task(|| ())).expect("open");
    }
    gate.open();
    let ended = in_time("it returns", move || handle.wait().expect("done"));
    assert!(!ended.is_complete());
    assert_eq!((ended.unrun.len(), ended.handed_back, ended.still_running), (5, 5, 0));
    assert_eq!(pool.shutdown(LONG).handed_back, 5);
    assert_eq!(pool.stats().done, 2);
}

/// Two jobs that both end their pool do not wait for each other.
#[test]
fn two_jobs_may_end_their_pool_at_once() {
    let pool = Arc::new(closures(2));
    let both = Arc::new(Barrier::new(2));
    let handles: Vec<_> = (0..2)
        .map(|_| {
            let (here, both) = (Arc::clone(&pool), Arc::clone(&both));
            let end = move |_: &Context<'_>| {
                both.wait();
                here.shutdown(Duration::MAX).is_complete()
            };
            pool.spawn(end).expect("open")
        })
        .collect();
    for handle in handles {
        assert!(in_time("it returns", move || handle.wait().expect("done")));
    }
    assert!(pool.shutdown(LONG).is_complete());
}

/// As above, with a job that neither can run: it is handed back, and neither is told that the other one's is running.
#[test]
fn who_is_in_a_shutdown_is_not_said_to_run() {
    let pool = Arc::new(closures(2));
    let (both, queued) = (Arc::new(Barrier::new(2)), Gate::default());
    let handles: Vec<_> = (0..2)
        .map(|_| {
            let (here, both, queued) = (Arc::clone(&pool), Arc::clone(&both), queued.clone());
            let end = move |_: &Context<'_>| {
                both.wait();
                queued.pass();
                let ended = here.shutdown(LONG);
                (ended.unrun.len(), ended.handed_back, ended.still_running)
            };
            pool.spawn(end).expect("open")
        })
        .collect();
    queued.has(2);
    pool.submit(task(|| ())).expect("open");
    queued.open();
    let told: Vec<_> = handles
        .into_iter()
        .map(|handle| in_time("it returns", move || handle.wait().expect("done")))
        .collect();
    assert_eq!(told.iter().map(|told| told.0).sum::<usize>(), 1, "{told:?}");
    assert!(told.iter().all(|told| (told.1, told.2) == (1, 0)), "{told:?}");
}

/// Whoever waits for the end is told how many jobs were handed back, also in the moment in which that happens.
#[test]
fn a_patient_shutdown_is_told_what_a_hasty_one_was_given() {
    for _ in 0..300 {
        let pool = Arc::new(closures(2));
        for _ in 0..30 {
            pool.submit(task(|| ())).expect("open");
        }
        let start = Arc::new(Barrier::new(2));
        let patient = {
            let (pool, start) = (Arc::clone(&pool), Arc::clone(&start));
            thread::spawn(move || {
                start.wait();
                pool.shutdown(Duration::MAX)
            })
        };
        start.wait();
        let hasty = pool.shutdown(Duration::ZERO);
        let patient = patient.join().unwrap();
        let back = hasty.unrun.len() + patient.unrun.len();
        assert_eq!(patient.handed_back, back);
        assert_eq!(pool.stats().done as usize + back, 30);
    }
}

/// Takes its time when its thread ends.
pub struct AtTheEnd(pub Arc<AtomicBool>);

impl Drop for AtTheEnd {
    fn drop(&mut self) {
        thread::sleep(Duration::from_millis(50));
        self.0.store(true, SeqCst);
    }
}

thread_local! {
    pub static LEFT: RefCell<Option<AtTheEnd>> = const { RefCell::new(None) };
}

/// Threads are joined: when a shutdown returns, what jobs have left in their thread-locals has been dropped.
#[test]
fn a_shutdown_joins_its_threads() {
    for from_inside in [false, true] {
        let dropped = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let (pool, both) = (Arc::new(closures(2)), Arc::new(Barrier::new(2)));
        let jobs = dropped.clone().map(|dropped| {
            let both = Arc::clone(&both);
            let leave = move |_: &Context<'_>| {
                both.wait();
                LEFT.set(Some(AtTheEnd(dropped)));
            };
            pool.spawn(leave).expect("open")
        });
        jobs.into_iter().for_each(|job| job.wait().expect("run"));
        if from_inside {
            // Of the two threads it joins the other one.
            let (here, seen) = (Arc::clone(&pool), dropped.clone());
            let ends = move |_: &Context<'_>| {
                let ended = here.shutdown(LONG).is_complete();
                (ended, seen.iter().filter(|dropped| dropped.load(SeqCst)).count())
            };
            assert_eq!(pool.spawn(ends).expect("open").wait().expect("run"), (true, 1));
        }
        assert!(pool.shutdown(LONG).is_complete());
        assert!(dropped.iter().all(|dropped| dropped.load(SeqCst)), "from inside: {from_inside}");
    }
}

/// The last owner of a pool is one of its own jobs: it is dropped there, nobody waits for anybody, and all threads end.
#[test]
fn a_job_may_be_the_last_owner_of_its_pool() {
    alone("ending::a_job_may_be_the_last_owner_of_its_pool", || {
        for workers in [1, 3] {
            let (pool, gate) = (Arc::new(closures(workers)), Gate::default());
            let (here, inner) = (Arc::clone(&pool), gate.clone());
            let job = pool.spawn(move |_| {
                inner.pass();
                assert_eq!(Arc::strong_count(&here), 1);
                drop(here);
                7
            });
            gate.has(1);
            // Behind it, as soon as all are busy.
            let others: Vec<_> = (1..workers).map(|_| pool.submit(at_gate(&gate))).collect();
            assert!(others.iter().all(Result::is_ok));
            gate.has(workers);
            let (behind, told) = task(|| ()).with_handle();
            pool.submit(behind).expect("open");
            drop(pool);
            gate.open();
            assert_eq!(in_time("it ends", move || job.expect("open").wait().expect("run")), 7);
            let ending = in_time("the other one is told", move || told.wait().ending.kind());
            // Another worker may have been faster than the drop.
            assert!(ending == EndingKind::Dropped || workers > 1 && ending == EndingKind::Done, "{ending:?}");
            eventually("all threads end", || {
                [threads("lease-worker"), threads("lease-keeper")].iter().all(|left| left.unwrap_or(0) == 0)
            });
        }
    });
}

/// Counts what was accepted, has ended, and was not run.
#[derive(Clone, Default)]
struct Sums(Arc<[AtomicUsize; 3]>);

impl Metrics for Sums {
    const TIMED: bool = false;

    fn accepted(&self, count: usize) {
        self.0[0].fetch_add(count, SeqCst);
    }

    fn ended(&self, _: EndingKind, _: Option<Duration>) {
        self.0[1].fetch_add(1, SeqCst);
    }

    fn unrun(&self, count: usize) {
        self.0[2].fetch_add(count, SeqCst);
    }
}

/// What was accepted has ended, or was not run: metrics are told both, whether a shutdown hands jobs back or they are dropped with the pool.
#[test]
fn what_was_not_run_is_counted() {
    for is_dropped in [false, true] {
        let (gate, sums) = (Gate::default(), Sums::default());
        let pool = Pool::<Task>::builder().workers(1).metrics(sums.clone()).build().expect("in range");
        pool.submit(at_gate(&gate)).expect("open");
        gate.has(1);
        (0..10).for_each(|_| pool.submit(task(|| ())).expect("open"));
        let told = || [0, 1, 2].map(|i| sums.0[i].load(SeqCst));
        if is_dropped {
            drop(pool);
        } else {
            let ended = pool.shutdown(Duration::ZERO);
            assert_eq!((ended.unrun.len(), pool.stats().handed_back), (10, 10));
            assert_eq!(pool.shutdown(Duration::ZERO).handed_back, 10);
            assert_eq!(pool.stats().handed_back, 10, "once");
        }
        assert_eq!(told(), [11, 0, 10]);
        gate.open();
        eventually("it ends", || told() == [11, 1, 10]);
    }
    let gate = Gate::default();
    let builder = Pool::<Task>::builder().workers(1).metrics(AtomicMetrics::default());
    let pool = builder.build().expect("in range");
    pool.submit(at_gate(&gate)).expect("open");
    gate.has(1);
    pool.submit(task(|| ())).expect("open");
    assert_eq!(pool.shutdown(Duration::ZERO).unrun.len(), 1);
    assert_eq!((pool.metrics().accepted(), pool.metrics().unrun()), (2, 1));
    gate.open();
}
