//! What goes wrong in go-adaptive-pool, one test for each; the numbers are those of the inventory of its defects. A9 is in `prometheus`.

use std::{
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use leasehold::pool::{AtomicMetrics, CancelToken, Job, Pool, RejectReason, SubmitError, Task};

use super::common::{LONG, block, bounded, eventually, once_of_many, rerun, task};

/// A1: a submitter that is blocked when the pool ends gets its job back.
#[test]
fn a01_a_blocked_submitter_gets_its_job_back() {
    type Numbered = (u32, Option<(mpsc::Sender<()>, mpsc::Receiver<()>)>);
    let job = |number, held| {
        Job::<Numbered>::new((number, held), |(_, held), _| {
            if let Some((begin, gone)) = held {
                let _ = begin.send(());
                let _ = gone.recv();
            }
            Ok(())
        })
    };
    let ((begin, begun), (go, gone)) = (mpsc::channel(), mpsc::channel());
    let pool = Arc::new(Pool::<Numbered>::builder().workers(1).capacity(1).build().expect("in range"));
    pool.submit(job(1, Some((begin, gone)))).expect("open");
    begun.recv_timeout(LONG).expect("it runs");
    pool.submit(job(2, None)).expect("room for one");
    let blocked = {
        let pool = Arc::clone(&pool);
        thread::spawn(move || pool.submit(job(3, None)).expect_err("closed"))
    };
    eventually("it waits", || pool.stats().waiting == 1);
    let ended = pool.shutdown(Duration::ZERO);
    let unrun: Vec<u32> = ended.unrun.iter().map(|job| job.payload().0).collect();
    assert_eq!(unrun, [2], "what was in the queue is the shutdown's");
    let refused = blocked.join().expect("no panic");
    assert_eq!(refused.reason, RejectReason::Closed);
    assert_eq!(refused.into_job().payload().0, 3);
    drop(go);
}

fn adaptive(least: usize, most: usize) -> Pool<Task> {
    adaptive_for(least, most, Duration::from_millis(10))
}

fn adaptive_for(least: usize, most: usize, idle: Duration) -> Pool<Task> {
    Pool::builder()
        .adaptive(least, most)
        .capacity(40)
        .scale_up_at(0.1)
        .scale_rest(Duration::ZERO)
        .idle_for(idle)
        .build()
        .expect("in range")
}

/// Brings it to its most workers, and lets all of them be idle at the same moment.
fn swell(pool: &Pool<Task>, most: usize) {
    let meet = Arc::new(Barrier::new(most));
    let jobs: Vec<_> = (0..2 * most)
        .map(|_| {
            let meet = Arc::clone(&meet);
            pool.spawn(move |_| _ = meet.wait()).expect("open")
        })
        .collect();
    jobs.into_iter().for_each(|job| job.wait().expect("they have met"));
}

/// A2: idle workers that expire at the same moment never make fewer than the least.
#[test]
fn a02_never_fewer_than_the_least() {
    let pool = adaptive(2, 6);
    for _ in 0..3 {
        swell(&pool, 6);
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(60) {
            assert!(pool.stats().workers >= 2);
        }
        eventually("the least is left", || pool.stats().workers == 2);
    }
    assert_eq!(pool.spawn(|_| 1).expect("open").wait().expect("done"), 1);
}

/// A3: a worker in a long job does not idle.
#[test]
fn a03_a_long_job_is_no_idleness() {
    let pool = adaptive(1, 2);
    let (first, second) = (block(&pool), block(&pool));
    thread::sleep(Duration::from_millis(50));
    assert_eq!((pool.stats().workers, pool.stats().idle), (2, 0));
    drop(first);
    drop(second);
    eventually("now one goes", || pool.stats().workers == 1);
    // Nor has it idled in the moment after: a job that was longer than what counts as idle is not held against it.
    let pool = adaptive_for(1, 2, Duration::from_millis(400));
    let (first, second) = (block(&pool), block(&pool));
    thread::sleep(Duration::from_millis(500));
    let end = Instant::now();
    drop((first, second));
    thread::sleep(Duration::from_millis(100));
    let workers = pool.stats().workers;
    // On a machine so busy that it cannot be told nothing is said.
    assert!(workers == 2 || end.elapsed() > Duration::from_millis(350), "{workers} workers are left");
    eventually("one goes in its time", || pool.stats().workers == 1);
}

/// A4: when time is up, jobs that run are told.
#[test]
fn a04_running_jobs_are_told_to_end() {
    let pool = bounded(1, 10);
    let (begin, begun) = mpsc::channel();
    let job = Task::job(move |context| {
        begin.send(()).unwrap();
        while !context.is_cancelled() {
            thread::yield_now();
        }
        Ok(())
    });
    pool.submit(job).expect("open");
    begun.recv().unwrap();
    assert_eq!(pool.shutdown(Duration::from_millis(1)).still_running, 1);
    assert_eq!(pool.shutdown(LONG).still_running, 0);
}

/// A5: jobs that were not run are handed back, and the shutdown does not claim success.
#[test]
fn a05_what_was_not_run_is_handed_back() {
    let pool = Pool::<u32>::builder().workers(1).build().expect("in range");
    pool.submit(Job::new(1, |_, context| {
        while !context.is_cancelled() {
            thread::yield_now();
        }
        Ok(())
    }))
    .expect("open");
    eventually("it runs", || pool.stats().queued == 0);
    for i in 10..20 {
        pool.submit(Job::new(i, |_, _| Ok(()))).expect("open");
    }
    let ended = pool.shutdown(Duration::from_millis(1));
    assert!(!ended.is_complete());
    let mut back: Vec<u32> = ended.unrun.into_iter().map(Job::into_payload).collect();
    back.sort_unstable();
    assert!(back.into_iter().eq(10..20));
}

/// A6: every caller of a shutdown is told the truth, and keeps to its own time.
#[test]
fn a06_each_shutdown_has_its_own_time_and_the_truth() {
    let pool = Arc::new(bounded(1, 10));
    let go = block(&pool);
    pool.submit(task(|| ())).expect("open");
    let patient = {
        let pool = Arc::clone(&pool);
        thread::spawn(move || pool.shutdown(LONG))
    };
    let start = Instant::now();
    let hasty = pool.shutdown(Duration::from_millis(20));
    assert!(start.elapsed() < LONG / 2);
    assert_eq!((hasty.unrun.len(), hasty.still_running), (1, 1));
    drop(go);
    let patient = patient.join().unwrap();
    assert_eq!((patient.unrun.len(), patient.handed_back, patient.is_complete()), (0, 1, false));
}

/// A7: a submission with no time at all is accepted if there is room, every time.
#[test]
fn a07_no_time_is_enough_if_there_is_room() {
    let pool = bounded(1, 1_000);
    for _ in 0..500 {
        pool.submit_timeout(task(|| ()), Duration::ZERO).expect("room");
    }
}

/// A8: whoever is refused is told why: a queue that is full is another thing than time that is up, and that another thing than an end.
#[test]
fn a08_each_refusal_says_why() {
    let full = bounded(1, 1);
    let _go = block(&full);
    full.submit_timeout(task(|| ()), Duration::ZERO).expect("room");
    let reason = |refused: Result<(), SubmitError<Task>>| refused.expect_err("refused").reason;
    assert_eq!(reason(full.try_submit(task(|| ()))), RejectReason::Full);
    assert_eq!(reason(full.submit_timeout(task(|| ()), Duration::ZERO)), RejectReason::TimedOut);
    assert_eq!(reason(full.submit_timeout(task(|| ()), Duration::from_millis(5))), RejectReason::TimedOut);
    let token = CancelToken::new();
    token.cancel();
    assert_eq!(reason(full.try_submit(task(|| ()).cancel_with(token))), RejectReason::Cancelled);
    let _ = full.shutdown(Duration::ZERO);
    assert_eq!(reason(full.try_submit(task(|| ()))), RejectReason::Closed);
    assert_eq!(reason(full.submit_timeout(task(|| ()), LONG)), RejectReason::Closed);
    let stats = full.stats();
    let told =
        (stats.rejected_full, stats.rejected_timed_out, stats.rejected_cancelled, stats.rejected_closed);
    assert_eq!(told, (1, 2, 1, 2));
}

/// A10: a second worker comes long before the queue is full, if it does not move.
#[test]
fn a10_delay_brings_workers_too() {
    let pool = Pool::<Task>::builder()
        .adaptive(1, 2)
        .capacity(100_000)
        .scale_up_after(Duration::from_millis(5))
        .build()
        .expect("in range");
    let _go = block(&pool);
    let handle = pool.spawn(|_| ()).expect("open");
    eventually("another worker runs it", || handle.is_finished());
}

/// A11: a job whose submitter has given up is not run.
#[test]
fn a11_what_was_given_up_is_not_run() {
    let (pool, token) = (bounded(1, 10), CancelToken::new());
    let go = block(&pool);
    let run = Arc::new(AtomicBool::new(false));
    let here = Arc::clone(&run);
    pool.submit(task(move || here.store(true, SeqCst)).cancel_with(token.clone())).expect("open");
    token.cancel();
    drop(go);
    assert!(pool.shutdown(LONG).is_complete());
    assert!(!run.load(SeqCst));
}

/// A12: waiting and running are told apart, so are busy and idle workers, and what failed from what went well.
#[test]
fn a12_each_number_means_one_thing() {
    let pool =
        Pool::<bool>::builder().workers(1).metrics(AtomicMetrics::default()).build().expect("in range");
    for fails in [false, true, false] {
        pool.submit(Job::new(fails, |fails, context| {
            assert!(context.waited().is_some());
            thread::sleep(Duration::from_millis(10));
            if *fails { Err("failed".into()) } else { Ok(()) }
        }))
        .expect("open");
    }
    assert!(pool.shutdown(LONG).is_complete());
    let (metrics, stats) = (pool.metrics(), pool.stats());
    assert_eq!((stats.done, stats.failed), (2, 1));
    assert_eq!((metrics.accepted(), metrics.waited().count(), metrics.ran().count()), (3, 3, 3));
    assert!(metrics.ran().sum() >= Duration::from_millis(30));
    assert!(metrics.waited().sum() >= Duration::from_millis(29), "the third has waited for two");
    assert_eq!((stats.scaled_up, stats.scaled_down, metrics.scalings()), (0, 0, 0));
}

/// A12 too: a worker in a job is busy, the others are idle; a job that was cancelled did not run, and is not told among those that did.
#[test]
fn a12_busy_is_not_idle_and_cancelled_is_not_run() {
    let pool =
        Pool::<Task>::builder().workers(3).metrics(AtomicMetrics::default()).build().expect("in range");
    let (begin, begun) = mpsc::channel();
    let (go, gone) = mpsc::channel::<()>();
    pool.submit(task(move || {
        begin.send(()).unwrap();
        let _ = gone.recv();
    }))
    .expect("open");
    begun.recv().unwrap();
    eventually("the others sleep", || (pool.stats().workers, pool.stats().idle) == (3, 2));
    drop(go);
    eventually("all do", || (pool.stats().workers, pool.stats().idle) == (3, 3));
    let token = CancelToken::new();
    let stops = token.clone();
    // In its own worker's way: the second cannot begin before the first has ended.
    let single =
        Pool::<Task>::builder().workers(1).metrics(AtomicMetrics::default()).build().expect("in range");
    let jobs = [task(move || stops.cancel()), task(|| ()).cancel_with(token)];
    assert!(single.try_submit_many(&mut jobs.into()).is_ok());
    assert!(single.shutdown(LONG).is_complete());
    let (stats, metrics) = (single.stats(), single.metrics());
    assert_eq!((stats.done, stats.cancelled), (1, 1));
    assert_eq!((metrics.waited().count(), metrics.ran().count()), (2, 1));
}

/// A13: jobs that fail write nothing anywhere: who is told is the handler. This test runs itself once more, with the failing jobs, and
/// reads what that has written.
#[test]
fn a13_failing_jobs_write_nothing() {
    const INSIDE: &str = "LEASEHOLD_TEST_A13";
    if std::env::var_os(INSIDE).is_some() {
        let pool = Pool::<u32>::builder().workers(2).build().expect("in range");
        for i in 0..500 {
            pool.submit(Job::new(i, |_, _| Err("a13 has failed".into()))).expect("open");
        }
        assert!(pool.shutdown(LONG).is_complete());
        assert_eq!(pool.stats().failed, 500);
        return;
    }
    let (out, err) = rerun("seeds_a::a13_failing_jobs_write_nothing", INSIDE);
    assert!(out.contains("1 passed") && !out.contains("a13 has failed") && err.is_empty(), "{out}{err}");
    assert!(out.lines().count() < 10, "{out}");
}

/// A14: no two workers have the same number at the same time.
#[test]
fn a14_worker_numbers_are_distinct() {
    let pool = adaptive(1, 5);
    for _ in 0..3 {
        let meet = Arc::new(Barrier::new(5));
        let handles: Vec<_> = (0..5)
            .map(|_| {
                let meet = Arc::clone(&meet);
                let number = move |context: &leasehold::pool::Context<'_>| {
                    meet.wait();
                    context.worker()
                };
                pool.spawn(number).expect("open")
            })
            .collect();
        let mut numbers: Vec<_> = handles.into_iter().map(|handle| handle.wait().expect("done")).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [0, 1, 2, 3, 4]);
        eventually("they go", || pool.stats().workers == 1);
    }
}

/// A15: more workers than processors may be the least. There it was enough to set the least alone, above a most that was the number of processors;
/// here no call sets the least alone: `workers` and `adaptive` say both.
#[test]
fn a15_the_least_may_be_above_the_processors() {
    let many = thread::available_parallelism().map_or(1, usize::from) + 3;
    assert_eq!(Pool::<()>::builder().workers(many).build().expect("in range").stats().workers, many);
}

/// A16: a shutdown that has run out of time returns then, not a second later.
#[test]
fn a16_time_is_up_when_it_is_up() {
    let take = || {
        let pool = bounded(1, 10);
        let _go = block(&pool);
        let start = Instant::now();
        let _ = pool.shutdown(Duration::from_millis(20));
        start.elapsed()
    };
    once_of_many(take, |&took| took < Duration::from_millis(900));
}
