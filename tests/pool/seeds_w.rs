//! What goes wrong in wpool, one test for each; the numbers are those of the inventory of its defects. Those of its
//! queues are in `seeds_w_queues`; W11 is in `pool_allocations`.

use std::{
    collections::VecDeque,
    fs,
    sync::{
        Arc, Barrier,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::Duration,
};

use leasehold::{
    Clock, MonotonicClock, Timestamp,
    pool::{CancelToken, Ending, Job, JobPriority, Order, Pool, RejectReason, Task},
};

use super::common::{
    Gate, LONG, alone, at_gate, block, bounded, eventually, eventually_quiet, in_time, task, warm,
};

/// W1: no count of what is pending can lose a job, for there is none. Four submit at once to workers that have just fallen asleep, or
/// are about to: all is run, and all workers sleep again, none waiting for what is not there.
#[test]
fn w01_no_job_is_stranded() {
    const ROUNDS: u64 = 500;
    let pool = Arc::new(bounded(2, 10));
    let start = Arc::new(Barrier::new(5));
    let producers: Vec<_> = (0..4)
        .map(|_| {
            let (pool, start) = (Arc::clone(&pool), Arc::clone(&start));
            thread::spawn(move || {
                for round in 0..ROUNDS {
                    start.wait();
                    pool.submit(task(|| ())).expect("open");
                    if round % 7 == 0 {
                        pool.submit(task(thread::yield_now)).expect("open");
                    }
                }
            })
        })
        .collect();
    let mut submitted = 0;
    for round in 0..ROUNDS {
        submitted += if round % 7 == 0 { 8 } else { 4 };
        start.wait();
        eventually("all are run, and all sleep", || {
            let stats = pool.stats();
            stats.done == submitted && stats.idle == stats.workers
        });
    }
    producers.into_iter().for_each(|producer| producer.join().unwrap());
    assert_eq!(pool.stats().done, submitted);
}

/// W2: a worker with nothing to do does not burn a processor while another one runs a long job.
#[test]
fn w02_idle_workers_burn_nothing_while_others_work() {
    alone("seeds_w::w02_idle_workers_burn_nothing_while_others_work", || {
        let pool = bounded(4, 10);
        let go = block(&pool);
        eventually("the others sleep", || pool.stats().idle == 3);
        eventually_quiet(Duration::from_millis(200), &["lease-worker"]);
        assert_eq!(pool.stats().idle, 3);
        drop(go);
    });
}

/// W3: a shutdown runs what was accepted, all of which still waits when it begins.
#[test]
fn w03_a_shutdown_drains() {
    let (pool, count) = (Arc::new(bounded(1, 500)), Arc::new(AtomicUsize::new(0)));
    let go = block(&pool);
    for _ in 0..500 {
        let count = Arc::clone(&count);
        pool.submit(task(move || _ = count.fetch_add(1, SeqCst))).expect("open");
    }
    let ending = {
        let pool = Arc::clone(&pool);
        thread::spawn(move || pool.shutdown(LONG))
    };
    eventually("it has begun", || {
        pool.try_submit(task(|| ())).is_err_and(|refused| refused.reason == RejectReason::Closed)
    });
    assert_eq!((pool.stats().queued, count.load(SeqCst)), (500, 0));
    drop(go);
    assert!(ending.join().unwrap().is_complete());
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
    // Runs until it is told that the other one is cancelled.
    let told = Arc::new(AtomicUsize::new(0));
    let slow = Job::new(Arc::clone(&told), |told, _| {
        while told.load(SeqCst) == 0 {
            thread::yield_now();
        }
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
    told.store(1, SeqCst);
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

/// W13: an idle pool has no ticker: its threads do not wake up, the keeper's neither.
#[test]
fn w13_an_idle_pool_sleeps() {
    alone("seeds_w::w13_an_idle_pool_sleeps", || {
        let pool = bounded(3, 10);
        for _ in 0..100 {
            pool.submit(task(|| ())).expect("open");
        }
        eventually("all sleep", || pool.stats().done == 100 && pool.stats().idle == 3);
        // Who sleeps by the pool's count is about to.
        eventually_quiet(Duration::from_millis(300), &["lease-worker", "lease-keeper"]);
        assert_eq!((pool.stats().done, pool.stats().idle), (100, 3));
    });
}

/// Keeps the pool's keeper at a gate, when that asks for the time: as it does before it looks at anything.
struct WithoutKeeper(MonotonicClock, Gate);

impl Clock for WithoutKeeper {
    fn now(&self) -> Timestamp {
        if thread::current().name() == Some("lease-keeper") {
            self.1.pass();
        }
        self.0.now()
    }
}

/// W13 too: a lone job is begun by whoever submits it, and not at the next look of anybody: here nobody looks, for the keeper is held at a gate, and idle
/// workers do not wake up of themselves, as above.
#[test]
fn w13_a_lone_job_is_begun_at_once() {
    for (workers, order) in [(1, Order::Fifo), (3, Order::Fifo), (1, Order::Priority), (3, Order::Priority)] {
        let gate = Gate::default();
        let clock = WithoutKeeper(MonotonicClock::new(), gate.clone());
        let pool = Pool::<Task>::builder().workers(workers).order(order).clock(clock);
        let pool = pool.build().expect("in range");
        for i in 0..200 {
            eventually("all sleep", || pool.stats().idle == workers);
            let answer = pool.spawn(move |_| i).expect("open");
            assert_eq!(in_time("it is begun", move || answer.wait().expect("run")), i);
        }
        gate.open();
    }
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

/// W15: a pool that asks for pinned workers is built and works with the feature (the everyday tests) and without it (the sanitizers' build). What is
/// particular to a system is in `core_affinity`; that the library compiles for others is `verification/platforms`.
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

/// W16: workers are pinned within what the process may use, and pinning never stops a pool. All processors first; then the last one only, which a
/// count from 0 would miss.
#[test]
fn w16_pinning_keeps_to_what_is_allowed() {
    let single = |part: &str| part.parse::<usize>().expect("a number");
    let numbers = move |list: String| -> Vec<usize> {
        let ranges = list.split(',').map(|part| part.split_once('-').unwrap_or((part, part)));
        ranges.flat_map(|(from, to)| single(from)..=single(to)).collect()
    };
    let look = move || {
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
        // The workers' threads may use what the one that starts them may.
        let allowed = processors("/proc/thread-self/status").map(numbers);
        for handle in handles {
            let (worker, on) = handle.wait().expect("done");
            let (Some(allowed), Some(on)) = (&allowed, on.map(numbers)) else { continue };
            if cfg!(feature = "pinning") {
                assert_eq!(on, [allowed[worker % allowed.len()]], "worker {worker}");
            } else {
                assert_eq!(on, *allowed);
            }
        }
        allowed
    };
    look();
    #[cfg(feature = "pinning")]
    {
        let last = core_affinity::get_core_ids().and_then(|all| all.last().copied()).expect("some");
        let narrowed = thread::spawn(move || {
            let is_narrowed = core_affinity::set_for_current(last);
            (is_narrowed, look())
        });
        let (is_narrowed, allowed) = narrowed.join().unwrap();
        if is_narrowed && let Some(allowed) = allowed {
            assert_eq!(allowed, [last.id]);
        }
    }
}

/// W17: there a goroutine's `Goexit` ends a worker, and its batch with it. No call of Rust ends a thread but from outside of it; what comes
/// nearest is a panic, here, and one of user code outside of any job, in `told`: `a_worker_outlives_its_clock`. A job that leaves in any other way than by
/// returning takes nothing with it: the rest of its batch is run, by the same worker, and nothing stays counted as taken.
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

/// W19: what the documents show is compiled and run: every block of Rust that speaks of a pool is a doctest.
#[test]
fn w19_examples_in_the_documents_are_compiled() {
    let library = include_str!("../../src/lib.rs");
    let mut shown = 0;
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
                shown += 1;
            }
        }
    }
    assert!(shown > 0, "they show a pool");
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
