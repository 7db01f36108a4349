//! What becomes of jobs: each is run once, in its order, and its end is told.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::Duration,
};

use leasehold::pool::{
    BuildError, CancelToken, Ending, EndingKind, Job, JobPriority, Order, Pool, RejectReason, Task,
};

use super::common::{Gate, LONG, at_gate, closures, eventually, poll, task};

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
    // Bounded, though nobody has asked for it.
    let (pool, gate) = (closures(1), Gate::default());
    pool.try_submit(at_gate(&gate)).expect("room");
    gate.has(1);
    (0..1_000).for_each(|_| pool.try_submit(task(|| ())).expect("room"));
    assert_eq!(pool.try_submit(task(|| ())).expect_err("1,000 wait").reason, RejectReason::Full);
    gate.open();
    let error = builder().adaptive(3, 2).build().expect_err("3 > 2").to_string();
    assert_eq!(error, "3 to 2 workers: allowed are 1 to 16384, the least not above the most");
}

/// A job has one handle; one that was made before is told.
#[test]
fn an_earlier_handle_is_told() {
    let (job, first) = task(|| ()).with_handle();
    let (job, second) = job.with_handle();
    let first = first.wait_timeout(LONG).expect("told");
    assert!(first.ending.kind() == EndingKind::Dropped && first.payload.is_none());
    let pool = closures(1);
    pool.submit(job).expect("open");
    assert_eq!(second.wait().ending.kind(), EndingKind::Done);
}

/// Of a batch what was cancelled is refused, as from everybody else.
#[test]
fn batches_end_before_a_cancelled_job() {
    for order in [Order::Fifo, Order::Priority] {
        let pool = Pool::<Task>::builder().workers(1).order(order).build().expect("in range");
        let token = CancelToken::new();
        let mut jobs: VecDeque<_> = (0..5).map(|_| task(|| ())).collect();
        jobs[2] = task(|| panic!("it was cancelled")).cancel_with(token.clone());
        token.cancel();
        assert_eq!(pool.try_submit_many(&mut jobs), Err(RejectReason::Cancelled));
        assert!(jobs.len() == 3 && jobs[0].is_cancelled());
        jobs.pop_front();
        pool.try_submit_many(&mut jobs).expect("room");
        assert!(pool.shutdown(LONG).is_complete());
        let stats = pool.stats();
        assert_eq!((stats.done, stats.cancelled, stats.rejected_cancelled), (4, 0, 1), "{order:?}");
    }
}

/// Panics in the drops of all that a job leaves behind, one after the other, where nobody asks for it.
#[test]
fn what_nobody_asks_for_may_panic_twice() {
    struct Nasty;
    impl Drop for Nasty {
        fn drop(&mut self) {
            std::panic::resume_unwind(Box::new("in drop"));
        }
    }
    let pool = Pool::<Nasty>::builder().workers(1).build().expect("in range");
    for asked in [false, true] {
        let job = Job::new(Nasty, |_, _| std::panic::panic_any(Nasty));
        let (job, handle) = job.with_handle();
        if asked {
            pool.submit(job).expect("open");
            eventually("it has ended", || handle.is_finished());
            drop(handle);
        } else {
            drop(handle);
            pool.submit(job).expect("open");
        }
    }
    assert!(pool.shutdown(LONG).is_complete());
    assert_eq!(pool.stats().panicked, 2);
}

/// What a closure holds is let go with its job, though nobody has asked its handle.
#[test]
fn a_closure_is_dropped_with_its_job() {
    let held = Arc::new(());
    let (job, handle) = {
        let held = Arc::clone(&held);
        task(move || drop(held)).with_handle()
    };
    drop(job);
    assert_eq!(Arc::strong_count(&held), 1);
    assert_eq!(handle.wait().ending.kind(), EndingKind::Dropped);
}

/// As above, if another cleanup is set: by whoever awaits its result.
#[test]
fn a_closure_with_another_cleanup_is_dropped_with_its_job() {
    static CLEANED: AtomicUsize = AtomicUsize::new(0);
    let held = Arc::new(());
    let here = Arc::clone(&held);
    let (job, answer) = Task::returning(move |_| drop(here));
    drop(job.cleanup(|_, ending| {
        CLEANED.fetch_add(usize::from(matches!(ending, Ending::Dropped)), SeqCst);
    }));
    assert_eq!((Arc::strong_count(&held), CLEANED.load(SeqCst)), (1, 1));
    assert!(matches!(answer.wait(), Err(Ending::Dropped)));
    // Whoever asks for the payload has it.
    let (job, _) = Task::returning(|_| ());
    let (job, handle) = job.with_handle();
    drop(job);
    assert!(handle.wait().payload.is_some());
}

/// A closure's job may have a token and a priority, and its result.
#[test]
fn a_closure_has_a_result_and_whatever_a_job_has() {
    let (pool, gate, token) = (closures(1), Gate::default(), CancelToken::new());
    pool.submit(at_gate(&gate)).expect("open");
    gate.has(1);
    let (job, kept) = Task::returning(|_| 1);
    pool.try_submit(job.priority(JobPriority::HIGHEST)).expect("room");
    let (job, cancelled) = Task::returning(|_| 2);
    pool.try_submit(job.cancel_with(token.clone())).expect("room");
    token.cancel();
    gate.open();
    assert_eq!(kept.wait().expect("done"), 1);
    assert!(matches!(cancelled.wait(), Err(Ending::Cancelled)));
}
