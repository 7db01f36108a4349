//! What goes wrong in wpool, one test for each; the numbers are those of the inventory of its defects. W11 is in `pool_allocations`.

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
    BucketQueue, CancelToken, Ending, Job, JobPriority, JobQueue, Order, Pool, RejectReason, SegmentedQueue,
    Task,
};

use super::common::{ANY, Gate, LONG, alone, at_gate, block, bounded, eventually, naps, task, ticks, warm};

/// W1: no count of what is pending can lose a job: there is none. One job at a time, each after the worker has had time to fall
/// asleep, or has not.
#[test]
fn w01_no_job_is_stranded() {
    let pool = bounded(2, 10);
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
    alone("seeds_w::w02_idle_workers_burn_nothing_while_others_work", || {
        let pool = bounded(4, 10);
        let go = block(&pool);
        eventually("the others sleep", || pool.stats().idle == 3);
        thread::sleep(Duration::from_millis(20));
        let before = (naps("lease-worker"), ticks());
        thread::sleep(Duration::from_millis(200));
        if let (Some(naps_before), Some(ticks_before)) = before {
            assert!(naps("lease-worker").unwrap() - naps_before <= 3, "they sleep on");
            assert!(ticks().unwrap() - ticks_before <= 2);
        }
        assert_eq!(pool.stats().idle, 3);
        drop(go);
    });
}

/// W3: a shutdown runs what was accepted.
#[test]
fn w03_a_shutdown_drains() {
    let (pool, count) = (bounded(2, 500), Arc::new(AtomicUsize::new(0)));
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
        let (pool, run) = (Arc::new(bounded(2, 1_000)), Arc::new(AtomicUsize::new(0)));
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
    let pool = bounded(1, 5);
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
    alone("seeds_w::w13_an_idle_pool_sleeps", || {
        let pool = bounded(3, 10);
        for _ in 0..100 {
            pool.submit(task(|| ())).expect("open");
        }
        eventually("all sleep", || pool.stats().done == 100 && pool.stats().idle == 3);
        thread::sleep(Duration::from_millis(50));
        let before = (pool.stats(), naps("lease-worker"), naps("lease-keeper"));
        let ticks_before = ticks();
        thread::sleep(Duration::from_millis(300));
        assert_eq!((pool.stats(), naps("lease-worker"), naps("lease-keeper")), before, "they sleep on");
        if let Some(ticks_before) = ticks_before {
            assert!(ticks().unwrap() - ticks_before <= 2);
        }
    });
}

/// W13 too: a single job is begun at once, not at the next tick of anything.
#[test]
fn w13_a_lone_job_is_begun_at_once() {
    let pool = bounded(2, 10);
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

/// W14: jobs behind a long one are run by others: those of the same batch, and those that come when it has begun.
#[test]
fn w14_a_long_job_hides_nothing() {
    let pool = bounded(3, 1_000);
    // So that batches are taken whole.
    warm(&pool);
    let gate = Gate::default();
    let mut jobs = VecDeque::from([at_gate(&gate)]);
    jobs.extend((0..60).map(|_| task(|| ())));
    pool.try_submit_many(&mut jobs).expect("room");
    eventually("all but the long one", || pool.stats().done == 2_060);
    gate.has(1);
    for later in 1..=10 {
        pool.try_submit(task(|| ())).expect("room");
        eventually("what came later", || pool.stats().done == 2_060 + later);
    }
    gate.open();
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

/// What the system allows a thread to run on, as it writes it.
fn processors(of: &str) -> Option<String> {
    let status = fs::read_to_string(of).ok()?;
    Some(status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?.trim().to_owned())
}

/// W16: workers are pinned within what the process may use, and pinning never stops a pool.
#[test]
fn w16_pinning_keeps_to_what_is_allowed() {
    let single = |part: &str| part.parse::<usize>().expect("a number");
    let numbers = |list: String| -> Vec<usize> {
        let ranges = list.split(',').map(|part| part.split_once('-').unwrap_or((part, part)));
        ranges.flat_map(|(from, to)| single(from)..=single(to)).collect()
    };
    let pool = Pool::<Task>::builder().workers(5).pinned(true).build().expect("in range");
    let meet = Arc::new(Barrier::new(5));
    let handles: Vec<_> = (0..5)
        .map(|_| {
            let meet = Arc::clone(&meet);
            pool.spawn(move |context| {
                meet.wait();
                (context.worker(), processors("/proc/thread-self/status"))
            })
            .expect("open")
        })
        .collect();
    let allowed = processors("/proc/self/status").map(numbers);
    for handle in handles {
        let (worker, on) = handle.wait().expect("done");
        let (Some(allowed), Some(on)) = (&allowed, on.map(numbers)) else { continue };
        if cfg!(feature = "pinning") {
            assert_eq!(on, [allowed[worker % allowed.len()]], "worker {worker}");
        } else {
            assert_eq!(on, *allowed);
        }
    }
}

/// W17: a job that leaves in any other way than by returning takes nothing with it: the rest of its batch is run, by the same worker, and
/// nothing stays counted as taken.
#[test]
fn w17_a_job_that_unwinds_leaves_its_batch() {
    let pool = bounded(1, 1_000);
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
        ("segmented.rs", include_str!("../../src/pool/queue/segmented.rs")),
        ("segment.rs", include_str!("../../src/pool/queue/segment.rs")),
        ("recycle.rs", include_str!("../../src/pool/queue/recycle.rs")),
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
    let library = include_str!("../../src/lib.rs");
    for (name, document) in [
        ("README.md", include_str!("../../README.md")),
        ("docs/guide.md", include_str!("../../docs/guide.md")),
    ] {
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
    let pool = bounded(4, 10);
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
