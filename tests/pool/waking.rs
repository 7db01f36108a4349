//! Who is woken, and when: no job waits for a long one while others sleep.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use leasehold::pool::{JobPriority, Order, Pool, Task};

use super::common::{Gate, LONG, at_gate, eventually, in_time, task, warm};

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

/// A job that comes after a long one has begun is run while that one runs, though jobs are known to be short and nobody waits for it.
#[test]
fn a_lone_job_behind_a_long_one_is_begun_by_another_worker() {
    for order in [Order::Fifo, Order::Priority] {
        let pool = Pool::<Task>::builder().workers(16).order(order).build().expect("in range");
        warm(&pool);
        let gate = Gate::default();
        pool.try_submit(at_gate(&gate)).expect("room");
        gate.has(1);
        for i in 0..3 {
            let handle = pool.spawn(move |_| i).expect("open");
            let answer = in_time("it is run beside the long one", || handle.wait().expect("done"));
            assert_eq!(answer, i, "{order:?}");
        }
        gate.open();
    }
}

/// What a worker in a long job has taken is not overtaken for ever by what comes later, though no worker is idle.
#[test]
fn urgent_jobs_behind_a_long_one_are_taken_by_a_busy_worker() {
    const MANY: usize = 100_000;
    let pool = Pool::<Task>::builder()
        .workers(2)
        .order(Order::Priority)
        .capacity(2 * MANY)
        .build()
        .expect("in range");
    warm(&pool);
    // Both workers stand at a gate of their own while the queue is filled.
    let (mine, yours, long) = (Gate::default(), Gate::default(), Gate::default());
    pool.try_submit(at_gate(&mine)).expect("room");
    mine.has(1);
    let handle = pool.try_submit(at_gate(&yours));
    handle.expect("room");
    // Were it not woken by itself, a crowd does it.
    while pool.stats().idle > 0 {
        pool.try_submit(task(|| thread::sleep(Duration::from_micros(10)))).expect("room");
        thread::sleep(Duration::from_millis(1));
    }
    yours.has(1);
    let (urgent, others) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    pool.try_submit(at_gate(&long).priority(JobPriority::HIGHEST)).expect("room");
    let seen = Arc::new(AtomicUsize::new(0));
    for _ in 0..20 {
        let (urgent, others, seen) = (Arc::clone(&urgent), Arc::clone(&others), Arc::clone(&seen));
        let job = task(move || {
            urgent.fetch_add(1, SeqCst);
            seen.store(others.load(SeqCst), SeqCst);
        });
        pool.try_submit(job.priority(JobPriority::HIGHEST)).expect("room");
    }
    for _ in 0..MANY {
        let others = Arc::clone(&others);
        let job = task(move || {
            let start = Instant::now();
            while start.elapsed() < Duration::from_micros(2) {
                std::hint::spin_loop();
            }
            others.fetch_add(1, SeqCst);
        });
        pool.try_submit(job.priority(JobPriority::LOWEST)).expect("room");
    }
    mine.open();
    long.has(1);
    yours.open();
    eventually("the urgent ones are done", || urgent.load(SeqCst) == 20);
    let overtaken_by = seen.load(SeqCst);
    assert!(overtaken_by < MANY / 2, "{overtaken_by} of {MANY} went before the last urgent one");
    long.open();
}
