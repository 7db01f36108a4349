//! What goes wrong in the two Go pools that this one replaces, one test for each; the numbers are those of the inventory of their defects.
//! W: wpool. A: go-adaptive-pool. W11 is in `pool_allocations`, A9 in `prometheus`.
//!
//! Cost: some seconds, most of it asleep.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::{
    collections::VecDeque,
    fs,
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use leasehold::pool::{
    AtomicMetrics, BucketQueue, CancelToken, Ending, Job, JobPriority, JobQueue, Order, Pool, RejectReason,
    SegmentedQueue, Task,
};

const LONG: Duration = Duration::from_secs(20);
const ANY: JobPriority = JobPriority::NORMAL;

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < LONG, "{what}");
        thread::sleep(Duration::from_micros(100));
    }
}

fn task(f: impl FnOnce() + Send + 'static) -> Job<Task> {
    Task::job(move |_| {
        f();
        Ok(())
    })
}

fn closures(workers: usize, capacity: usize) -> Pool<Task> {
    Pool::builder().workers(workers).capacity(capacity).build().expect("in range")
}

/// A job that has begun and runs until the sender is dropped.
fn block(pool: &Pool<Task>) -> mpsc::Sender<()> {
    let (go, gone) = mpsc::channel::<()>();
    let (begin, begun) = mpsc::channel();
    pool.submit(task(move || {
        begin.send(()).unwrap();
        let _ = gone.recv();
    }))
    .expect("open");
    begun.recv().unwrap();
    go
}

/// Processor time that the process has used, in ticks, if the system says so.
fn ticks() -> Option<u64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let mut fields = stat.rsplit(')').next()?.split_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

/// How often the threads of that name have gone to sleep of themselves.
fn naps(name: &str) -> Option<u64> {
    let mut sum = None;
    for entry in fs::read_dir("/proc/self/task").ok()? {
        let path = entry.ok()?.path();
        let Ok(status) = fs::read_to_string(path.join("status")) else { continue };
        if status.lines().next()?.contains(name) {
            let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
            *sum.get_or_insert(0) += line.trim().parse::<u64>().ok()?;
        }
    }
    sum
}

/// For what looks at all threads of the process: does nothing beside other tests, or where the system does not tell.
fn alone(look: impl FnOnce() -> Option<()>) {
    // Each test has a process of its own under nextest.
    if std::env::var_os("NEXTEST").is_some() {
        let _ = look();
    }
}

/// W1: no count of what is pending can lose a job: there is none. One job at a time, each after the worker has had time to fall
/// asleep, or has not.
#[test]
fn w01_no_job_is_stranded() {
    let pool = closures(2, 10);
    for round in 0..2_000u64 {
        let handle = pool.spawn(move |_| round).expect("open");
        if round % 7 == 0 {
            thread::yield_now();
        }
        let finished = handle.wait().expect("done");
        assert_eq!(finished, round);
    }
}

/// W2: a worker with nothing to do does not burn a processor while another one runs a long job.
#[test]
fn w02_idle_workers_burn_nothing_while_others_work() {
    let pool = closures(4, 10);
    let go = block(&pool);
    eventually("the others sleep", || pool.stats().idle == 3);
    alone(|| {
        let before = naps("lease-worker")?;
        thread::sleep(Duration::from_millis(200));
        assert!(naps("lease-worker")? - before <= 3, "they sleep on");
        Some(())
    });
    assert_eq!(pool.stats().idle, 3);
    drop(go);
}

/// W3: a shutdown runs what was accepted.
#[test]
fn w03_a_shutdown_drains() {
    let (pool, count) = (closures(2, 500), Arc::new(AtomicUsize::new(0)));
    let go = block(&pool);
    for _ in 0..500 {
        let count = Arc::clone(&count);
        pool.submit(task(move || _ = count.fetch_add(1, SeqCst))).expect("open");
    }
    drop(go);
    assert!(pool.shutdown(LONG).is_complete());
    assert_eq!(count.load(SeqCst), 500);
}

/// W4: what is accepted while the pool shuts down is run.
#[test]
fn w04_accepted_means_run_whatever_comes() {
    for _ in 0..200 {
        let (pool, run) = (Arc::new(closures(2, 1_000)), Arc::new(AtomicUsize::new(0)));
        let start = Arc::new(Barrier::new(3));
        let submitters: Vec<_> = (0..2)
            .map(|_| {
                let (pool, run, start) = (Arc::clone(&pool), Arc::clone(&run), Arc::clone(&start));
                thread::spawn(move || {
                    start.wait();
                    let submit = || {
                        let run = Arc::clone(&run);
                        pool.try_submit(task(move || _ = run.fetch_add(1, SeqCst)))
                    };
                    (0..50).filter(|_| submit().is_ok()).count()
                })
            })
            .collect();
        start.wait();
        let ended = pool.shutdown(LONG);
        assert!(ended.is_complete());
        let run_then = run.load(SeqCst);
        let accepted: usize = submitters.into_iter().map(|thread| thread.join().unwrap()).sum();
        assert_eq!(run_then, accepted);
    }
}

/// W5: every order that can be chosen is built, and runs jobs, and ends.
#[test]
fn w05_whatever_can_be_chosen_is_there() {
    for order in [Order::Fifo, Order::Priority] {
        let pool = Pool::<Task>::builder().workers(2).order(order).build().expect("in range");
        assert_eq!(pool.spawn(|_| 1).expect("open").wait().expect("run"), 1, "{order:?}");
        assert!(pool.shutdown(LONG).is_complete(), "{order:?}");
    }
}

/// W6: what becomes of jobs can be observed: whoever sets the pool up says who is told of failures.
#[test]
fn w06_failures_reach_the_handler() {
    let (sender, told) = mpsc::channel();
    let sender = std::sync::Mutex::new(sender);
    let pool = Pool::<u32>::builder()
        .workers(1)
        .on_failure(move |number: &u32, ending| {
            let what = match ending {
                Ending::Failed(error) => error.to_string(),
                Ending::Panicked(panic) => (*panic.downcast_ref::<&str>().expect("a text")).to_owned(),
                other => format!("{other:?}"),
            };
            sender.lock().unwrap().send((*number, what)).unwrap();
        })
        .build()
        .expect("in range");
    for number in 0..4 {
        pool.submit(Job::new(number, |number, _| match *number {
            1 => Err("failed".into()),
            // Not by `panic!`, which would be printed.
            2 => std::panic::resume_unwind(Box::new("panicked")),
            _ => Ok(()),
        }))
        .expect("open");
    }
    assert!(pool.shutdown(LONG).is_complete());
    let told: Vec<_> = told.try_iter().collect();
    assert_eq!(told, [(1, "failed".to_owned()), (2, "panicked".to_owned())]);
}

/// W7: the cleanup runs for a job that was cancelled too, and it is counted.
#[test]
fn w07_a_cancelled_job_is_cleaned_up() {
    let pool = Pool::<Arc<AtomicUsize>>::builder().workers(1).build().expect("in range");
    let (cleaned, token) = (Arc::new(AtomicUsize::new(0)), CancelToken::new());
    let slow = Job::new(Arc::new(AtomicUsize::new(0)), |_, _| {
        thread::sleep(Duration::from_millis(30));
        Ok(())
    });
    pool.submit(slow).expect("open");
    let job = Job::new(Arc::clone(&cleaned), |_, _| panic!("it was cancelled"))
        .cancel_with(token.clone())
        .cleanup(|cleaned, ending| {
            assert!(matches!(ending, Ending::Cancelled));
            cleaned.fetch_add(1, SeqCst);
        });
    pool.submit(job).expect("open");
    token.cancel();
    assert!(pool.shutdown(LONG).is_complete());
    assert_eq!((cleaned.load(SeqCst), pool.stats().cancelled), (1, 1));
}

/// W8: the queue has a bound, and says so.
#[test]
fn w08_a_full_queue_refuses() {
    let pool = closures(1, 5);
    let _go = block(&pool);
    (0..5).for_each(|_| pool.try_submit(task(|| ())).expect("room"));
    assert_eq!(pool.try_submit(task(|| ())).expect_err("full").reason, RejectReason::Full);
    assert_eq!((pool.stats().queued, pool.stats().rejected_full), (5, 1));
}

/// W9: producers that stall hold up nobody. With far more threads than processors some producer is always in the middle of a
/// push; what the others have pushed comes out all the same, and in time.
#[test]
fn w09_a_stalled_producer_stops_nobody() {
    let queue = Arc::new(SegmentedQueue::<u64>::with(u64::MAX, 2));
    let done = Arc::new(AtomicBool::new(false));
    let producers: Vec<_> = (0..16)
        .map(|_| {
            let (queue, done) = (Arc::clone(&queue), Arc::clone(&done));
            thread::spawn(move || {
                let mut pushed = 0u64;
                while !done.load(SeqCst) {
                    queue.push(pushed, ANY).expect("unbounded");
                    pushed += 1;
                    if queue.len() > 10_000 {
                        thread::yield_now();
                    }
                }
                pushed
            })
        })
        .collect();
    let (start, mut popped) = (Instant::now(), 0u64);
    while popped < 200_000 {
        popped += u64::from(queue.pop().is_some());
        assert!(start.elapsed() < LONG, "{popped} came out");
    }
    done.store(true, SeqCst);
    let pushed: u64 = producers.into_iter().map(|producer| producer.join().unwrap()).sum();
    while queue.pop().is_some() {
        popped += 1;
    }
    assert_eq!(popped, pushed);
}

/// W10: segments are used again only when nobody can see them. Tiny segments, many threads, values that are checked.
#[test]
fn w10_segments_are_reclaimed_safely() {
    let queue = Arc::new(SegmentedQueue::<Box<u64>>::with(u64::MAX, 1));
    let (sum, threads) = (Arc::new(AtomicUsize::new(0)), 8u64);
    let each = if cfg!(miri) { 50 } else { 20_000u64 };
    let all: Vec<_> = (0..threads)
        .map(|thread| {
            let (queue, sum) = (Arc::clone(&queue), Arc::clone(&sum));
            thread::spawn(move || {
                for i in 0..each {
                    queue.push(Box::new(thread * each + i), ANY).expect("unbounded");
                    if let Some(item) = queue.pop() {
                        sum.fetch_add(*item as usize, SeqCst);
                    }
                }
            })
        })
        .collect();
    all.into_iter().for_each(|thread| thread.join().unwrap());
    while let Some(item) = queue.pop() {
        sum.fetch_add(*item as usize, SeqCst);
    }
    let count = threads * each;
    assert_eq!(sum.load(SeqCst) as u64, count * (count - 1) / 2);
}

/// W12: an empty queue is small, whatever the segments' size: one of them.
#[test]
fn w12_nothing_is_made_ahead() {
    let Some(before) = resident() else { return };
    let queues: Vec<_> = (0..20).map(|_| SegmentedQueue::<[u8; 32]>::with(u64::MAX, 4_096)).collect();
    let grown = resident().unwrap().saturating_sub(before);
    assert!(grown < 20 * 1_024 * 1_024, "{grown} bytes for {} queues", queues.len());
}

/// Bytes that are resident.
fn resident() -> Option<u64> {
    let statm = fs::read_to_string("/proc/self/statm").ok()?;
    Some(statm.split_whitespace().nth(1)?.parse::<u64>().ok()? * 4_096)
}

/// W13: an idle pool has no ticker: its threads do not wake up, the keeper's neither.
#[test]
fn w13_an_idle_pool_sleeps() {
    let pool = closures(3, 10);
    for _ in 0..100 {
        pool.submit(task(|| ())).expect("open");
    }
    eventually("all sleep", || pool.stats().done == 100 && pool.stats().idle == 3);
    thread::sleep(Duration::from_millis(20));
    let stats = pool.stats();
    thread::sleep(Duration::from_millis(100));
    assert_eq!(stats, pool.stats());
    alone(|| {
        let before = (naps("lease-worker")?, naps("lease-keeper")?, ticks()?);
        thread::sleep(Duration::from_millis(300));
        assert_eq!((naps("lease-worker")?, naps("lease-keeper")?), (before.0, before.1), "they sleep on");
        assert!(ticks()? - before.2 <= 2);
        Some(())
    });
}

/// W13 too: a single job is begun at once, not at the next tick of anything.
#[test]
fn w13_a_lone_job_is_begun_at_once() {
    let pool = closures(2, 10);
    let mut waits: Vec<Duration> = (0..101)
        .map(|_| {
            thread::sleep(Duration::from_micros(300));
            let start = Instant::now();
            pool.spawn(move |_| start.elapsed()).expect("open").wait().expect("done")
        })
        .collect();
    waits.sort_unstable();
    assert!(waits[50] < Duration::from_millis(5), "{:?}, and that on a busy machine", waits[50]);
}

/// W14: jobs behind a long one in the same batch are run by others.
#[test]
fn w14_a_long_job_hides_nothing() {
    let pool = closures(3, 1_000);
    // Short ones first, so that batches are taken whole.
    for _ in 0..2_000 {
        pool.submit(task(|| ())).expect("open");
    }
    eventually("done", || pool.stats().done == 2_000);
    let (go, gone) = mpsc::channel::<()>();
    let mut jobs = VecDeque::from([task(move || _ = gone.recv())]);
    jobs.extend((0..60).map(|_| task(|| ())));
    pool.try_submit_many(&mut jobs).expect("room");
    eventually("all but the long one", || pool.stats().done == 2_060);
    drop(go);
}

/// W15: a pool that asks for pinned workers is built and works in every build: with the feature, without it, and where the system
/// pins nothing.
#[test]
fn w15_pinning_can_be_asked_for_anywhere() {
    let pool = Pool::<Task>::builder().workers(3).pinned(true).build().expect("in any build");
    let answers: Vec<_> = (0..30).map(|i| pool.spawn(move |_| i).expect("open")).collect();
    for (i, answer) in answers.into_iter().enumerate() {
        assert_eq!(answer.wait().expect("run"), i);
    }
}

/// W16: workers are pinned within what the process may use, and pinning never stops a pool.
#[test]
fn w16_pinning_keeps_to_what_is_allowed() {
    let pool = Pool::<Task>::builder().workers(5).pinned(true).build().expect("in range");
    for i in 0..50 {
        assert_eq!(pool.spawn(move |_| i).expect("open").wait().expect("done"), i);
    }
}

/// W17: a job that leaves in any other way than by returning takes nothing with it: the rest of its batch is run, by the same worker, and
/// nothing stays counted as taken.
#[test]
fn w17_a_job_that_unwinds_leaves_its_batch() {
    let pool = closures(1, 1_000);
    let go = block(&pool);
    let workers = Arc::new(std::sync::Mutex::new(Vec::new()));
    for i in 0..200 {
        let workers = Arc::clone(&workers);
        let leaves = move || {
            workers.lock().unwrap().push(thread::current().id());
            if i % 2 == 1 {
                std::panic::resume_unwind(Box::new(i));
            }
        };
        pool.submit(task(leaves)).expect("room");
    }
    drop(go);
    eventually("all have ended", || pool.stats().done + pool.stats().panicked == 201);
    let stats = pool.stats();
    assert_eq!((stats.done, stats.panicked, stats.taken, stats.queued, stats.workers), (101, 100, 0, 0, 1));
    let workers = workers.lock().unwrap();
    assert!(workers.len() == 200 && workers.iter().all(|id| *id == workers[0]), "one thread has run all");
}

/// W18: nothing in the queue, nor in the store of its segments, takes a lock, as its documents say.
#[test]
fn w18_the_queue_takes_no_lock() {
    for (file, source) in [
        ("segmented.rs", include_str!("../src/pool/queue/segmented.rs")),
        ("segment.rs", include_str!("../src/pool/queue/segment.rs")),
        ("recycle.rs", include_str!("../src/pool/queue/recycle.rs")),
    ] {
        let code = source.lines().filter(|line| !line.trim_start().starts_with("//"));
        for line in code {
            for lock in ["Mutex", "SpinLock", "RwLock", "Condvar", ".lock()"] {
                assert!(!line.contains(lock), "{file}: {line}");
            }
        }
    }
}

/// W19: what the documents show is compiled and run: every block of Rust that speaks of a pool is a doctest.
#[test]
fn w19_examples_in_the_documents_are_compiled() {
    let library = include_str!("../src/lib.rs");
    for (name, document) in
        [("README.md", include_str!("../README.md")), ("docs/guide.md", include_str!("../docs/guide.md"))]
    {
        assert!(library.contains(&format!("include_str!(\"../{name}\")")), "{name} is part of the doctests");
        let mut fence = "";
        for line in document.lines() {
            if let Some(language) = line.trim_start().strip_prefix("```") {
                fence = if fence.is_empty() && !language.is_empty() { language } else { "" };
            } else if line.contains("pool::") && fence.starts_with("rust") {
                assert!(!fence.contains("ignore"), "{name}: {line}");
            }
        }
    }
}

/// W20: after the turn has gone round, what is more urgent still goes first.
#[test]
fn w20_priorities_survive_the_wrap() {
    let queue = BucketQueue::bounded(10);
    for round in 0..300u32 {
        for number in [63, 40, 2] {
            queue.push((round, number), JobPriority::new(number).expect("1 to 63")).expect("room");
        }
        let mut out = VecDeque::new();
        queue.pop_many(3, &mut out);
        assert_eq!(out, [(round, 2), (round, 40), (round, 63)]);
    }
}

/// W21: no job is stranded in a bucket while the turn moves on.
#[test]
fn w21_no_job_is_stranded_in_a_bucket() {
    let pool =
        Pool::<Task>::builder().workers(3).order(Order::Priority).capacity(64).build().expect("in range");
    let pool = Arc::new(pool);
    let threads: Vec<_> = (0..4u8)
        .map(|thread| {
            let pool = Arc::clone(&pool);
            thread::spawn(move || {
                for i in 0..2_000u32 {
                    let number = 1 + ((i * 7 + u32::from(thread)) % 63) as u8;
                    let job = task(|| ()).priority(JobPriority::new(number).expect("1 to 63"));
                    pool.submit(job).expect("open");
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    eventually("all are run", || pool.stats().done == 8_000);
    assert_eq!(pool.stats().queued, 0);
}

/// W22: what a queue by priority says about itself is so: how much is in it, how much has come out, whether there may be work; and
/// each of its refusals does occur.
#[test]
fn w22_a_queue_by_priority_tells_the_truth() {
    let queue = BucketQueue::bounded(100);
    assert_eq!((queue.len(), queue.is_empty(), queue.passed(), queue.capacity()), (0, true, 0, Some(100)));
    let level = |number| JobPriority::new(number).expect("1 to 63");
    for i in 0..100u8 {
        queue.push(i, level(1 + i % 63)).expect("room");
        assert_eq!((queue.len(), queue.is_empty()), (usize::from(i) + 1, false));
    }
    assert_eq!(queue.push(100, level(1)).expect_err("full").reason, leasehold::pool::Refusal::Full);
    let mut out = VecDeque::new();
    for popped in 1..=100 {
        assert_eq!(queue.pop_many(1, &mut out), 1);
        assert_eq!((queue.len(), queue.passed()), (100 - popped, popped as u64));
    }
    // At the moment of their push all were due at turn 0 + p: the more urgent first, then the earlier.
    let urgency = |i: &u8| (i % 63, *i);
    assert!(out.make_contiguous().is_sorted_by_key(urgency), "{out:?}");
    queue.close();
    assert_eq!(queue.push(0, ANY).expect_err("closed").reason, leasehold::pool::Refusal::Closed);
}

/// W23: more than one worker can be woken: jobs that wait for each other meet.
#[test]
fn w23_as_many_workers_wake_as_are_needed() {
    let pool = closures(4, 10);
    for _ in 0..20 {
        let meet = Arc::new(Barrier::new(4));
        let handles: Vec<_> = (0..4)
            .map(|_| {
                let meet = Arc::clone(&meet);
                pool.spawn(move |_| _ = meet.wait()).expect("open")
            })
            .collect();
        handles.into_iter().for_each(|handle| handle.wait().expect("they have met"));
    }
}

/// A1: a submitter that is blocked when the pool ends gets its job back.
#[test]
fn a01_a_blocked_submitter_gets_its_job_back() {
    let pool = Arc::new(closures(1, 1));
    let go = block(&pool);
    pool.submit(task(|| ())).expect("open");
    let blocked = {
        let pool = Arc::clone(&pool);
        thread::spawn(move || pool.submit(task(|| ())).expect_err("closed").reason)
    };
    eventually("it waits", || pool.stats().waiting == 1);
    let _ = pool.shutdown(Duration::ZERO);
    assert_eq!(blocked.join().unwrap(), RejectReason::Closed);
    drop(go);
}

fn adaptive(least: usize, most: usize) -> Pool<Task> {
    Pool::builder()
        .adaptive(least, most)
        .capacity(40)
        .scale_up_at(0.1)
        .scale_rest(Duration::ZERO)
        .idle_for(Duration::from_millis(10))
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
}

/// A4: when time is up, jobs that run are told.
#[test]
fn a04_running_jobs_are_told_to_end() {
    let pool = closures(1, 10);
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
    let pool = Arc::new(closures(1, 10));
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
    let pool = closures(1, 1_000);
    for _ in 0..500 {
        pool.submit_timeout(task(|| ()), Duration::ZERO).expect("room");
    }
    let full = closures(1, 1);
    let _go = block(&full);
    full.submit_timeout(task(|| ()), Duration::ZERO).expect("room");
    let refused = full.submit_timeout(task(|| ()), Duration::ZERO).expect_err("full");
    // A8: the reason says which.
    assert_eq!(refused.reason, RejectReason::TimedOut);
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
    let (pool, token) = (closures(1, 10), CancelToken::new());
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
    let run = std::process::Command::new(std::env::current_exe().expect("a test"))
        .args(["--exact", "a13_failing_jobs_write_nothing", "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .expect("it starts");
    let (out, err) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success() && out.contains("1 passed"), "{out}{err}");
    assert!(!out.contains("a13 has failed") && err.is_empty(), "{out}{err}");
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

/// A15: more workers than processors may be the least.
#[test]
fn a15_the_least_may_be_above_the_processors() {
    let many = thread::available_parallelism().map_or(1, usize::from) + 3;
    assert_eq!(Pool::<()>::builder().workers(many).build().expect("in range").stats().workers, many);
}

/// A16: a shutdown that has run out of time returns then, not a second later.
#[test]
fn a16_time_is_up_when_it_is_up() {
    let pool = closures(1, 10);
    let _go = block(&pool);
    let start = Instant::now();
    let _ = pool.shutdown(Duration::from_millis(20));
    assert!(start.elapsed() < Duration::from_millis(900));
}
