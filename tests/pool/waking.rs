//! Who is woken, and when: no job waits for a long one while others sleep.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use leasehold::pool::{Job, JobPriority, Order, Pool, Task};

use super::common::{
    Gate, LONG, alone, at_gate, block, eventually, in_time, naps, once_of_many, task, warm, warm_with,
};

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

/// What lies behind a long job is found by a worker that never finds the queue empty, for which the keeper must know of it: who was woken for it need not come to it.
/// Half of the times a pool is taken that has the pace which that needs, several microseconds a job.
#[test]
fn a_queue_that_is_never_empty_hides_nothing() {
    const MANY: u64 = 63;
    for _ in 0..5 {
        let pool =
            Arc::new(Pool::<Task>::builder().workers(2).order(Order::Priority).build().expect("in range"));
        warm_with(&pool, Duration::from_micros(5));
        // The keeper goes off duty.
        thread::sleep(Duration::from_millis(5));
        let before = pool.stats().done;
        let (gate, over) = (Gate::default(), Arc::new(AtomicBool::new(false)));
        let mut jobs: VecDeque<_> = [at_gate(&gate).priority(JobPriority::HIGHEST)].into();
        jobs.extend((0..MANY).map(|_| task(|| ())));
        jobs.push_back(again(&pool, &over).priority(JobPriority::LOWEST));
        pool.try_submit_many(&mut jobs).expect("room");
        gate.has(1);
        let chained = Arc::clone(&over);
        eventually("those behind the long one are done", || {
            pool.stats().taken == 0 && pool.stats().done >= before + MANY
        });
        chained.store(true, SeqCst);
        gate.open();
        assert!(pool.shutdown(LONG).is_complete());
    }
}

/// A job that comes again when it is run, until it is over.
fn again(pool: &Arc<Pool<Task>>, over: &Arc<AtomicBool>) -> Job<Task> {
    let (here, over) = (Arc::downgrade(pool), Arc::clone(over));
    task(move || {
        if let Some(pool) = here.upgrade()
            && !over.load(SeqCst)
        {
            let _ = pool.try_submit(again(&pool, &over).priority(JobPriority::LOWEST));
        }
    })
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
    const MANY: usize = 30_000;
    const URGENT: usize = 20;
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
    for _ in 0..URGENT {
        let (urgent, others, seen) = (Arc::clone(&urgent), Arc::clone(&others), Arc::clone(&seen));
        let job = task(move || {
            urgent.fetch_add(1, SeqCst);
            seen.store(others.load(SeqCst), SeqCst);
        });
        pool.try_submit(job.priority(JobPriority::HIGHEST)).expect("room");
    }
    for _ in 0..MANY {
        let (urgent, others) = (Arc::clone(&urgent), Arc::clone(&others));
        // So long that they outlast whoever is to come to the urgent ones' help, on any machine; afterwards they are of no interest.
        let job = task(move || {
            if urgent.load(SeqCst) < URGENT {
                thread::sleep(Duration::from_millis(1));
            }
            others.fetch_add(1, SeqCst);
        });
        pool.try_submit(job.priority(JobPriority::LOWEST)).expect("room");
    }
    mine.open();
    long.has(1);
    yours.open();
    eventually("the urgent ones are done", || urgent.load(SeqCst) == URGENT);
    let overtaken_by = seen.load(SeqCst);
    assert!(overtaken_by < MANY / 2, "{overtaken_by} of {MANY} went before the last urgent one");
    long.open();
}

/// A lone job that comes while one worker is in a long job and the others sleep is begun within a few milliseconds, though jobs are known to be short: the
/// keeper looks a millisecond or two later. Half of the times: a busy machine may be late.
#[test]
fn a_lone_job_beside_a_long_one_starts_soon() {
    let pool = Pool::<Task>::builder().workers(4).build().expect("in range");
    let delay = || {
        warm(&pool);
        let go = block(&pool);
        eventually("the others sleep", || pool.stats().idle == 3);
        // The keeper goes off duty.
        thread::sleep(Duration::from_millis(5));
        let start = Instant::now();
        let begun = pool.spawn(move |_| start.elapsed()).expect("open");
        let delay = in_time("it is begun", move || begun.wait().expect("run"));
        drop(go);
        eventually("all are done", || pool.stats().idle == 4);
        delay
    };
    let median = || {
        let mut delays: Vec<_> = (0..21).map(|_| delay()).collect();
        delays.sort_unstable();
        println!("{delays:?}");
        delays[delays.len() / 2]
    };
    once_of_many(median, |&median| median < Duration::from_millis(20));
}

/// A crowd of jobs that turn out long, known to be short, is begun by all workers after a few rounds of the keeper, which wakes twice as many in each: not
/// after as many rounds as there are workers, 62 ms here. Half of the times: a busy machine may be late.
#[test]
fn a_crowd_of_long_jobs_is_begun_soon() {
    const MANY: usize = 64;
    let pool = Pool::<Task>::builder().workers(MANY).build().expect("in range");
    let delay = || {
        warm(&pool);
        // The keeper goes off duty.
        thread::sleep(Duration::from_millis(5));
        let gate = Gate::default();
        let mut jobs: VecDeque<_> = (0..MANY).map(|_| at_gate(&gate)).collect();
        let start = Instant::now();
        pool.try_submit_many(&mut jobs).expect("room");
        gate.has(MANY);
        let delay = start.elapsed();
        gate.open();
        delay
    };
    once_of_many(delay, |&delay| delay < Duration::from_millis(40));
}

/// A batch of short jobs wakes one worker of four that sleep, not one for each job, nor all: so often do threads go to sleep again afterwards. A
/// quarter of the times at the least: on a busy machine whoever sleeps by the pool's count goes to sleep later, and jobs take longer.
#[test]
fn a_batch_wakes_one_worker() {
    alone("waking::a_batch_wakes_one_worker", || {
        let pool = Pool::<Task>::builder().workers(4).build().expect("in range");
        if naps("lease-worker").is_none() {
            return;
        }
        let mut woken: Vec<_> = (0..41)
            .map(|_| {
                warm(&pool);
                let mut before = naps("lease-worker");
                // Who sleeps by the pool's count may not have gone to sleep quite yet.
                eventually("they sleep", || {
                    thread::sleep(Duration::from_millis(2));
                    std::mem::replace(&mut before, naps("lease-worker")) == before
                });
                let done = pool.stats().done;
                let mut jobs: VecDeque<_> = (0..64).map(|_| task(|| ())).collect();
                pool.try_submit_many(&mut jobs).expect("room");
                eventually("they are done", || pool.stats().done == done + 64 && pool.stats().idle == 4);
                let mut after = naps("lease-worker");
                eventually("they sleep", || {
                    thread::sleep(Duration::from_millis(2));
                    std::mem::replace(&mut after, naps("lease-worker")) == after
                });
                after.unwrap_or(0) - before.unwrap_or(0)
            })
            .collect();
        woken.sort_unstable();
        println!("{woken:?}");
        let quarter = woken.len() / 4;
        assert!(woken[woken.len() - quarter] >= 1, "somebody was woken: {woken:?}");
        assert!(woken[quarter] <= 2, "{woken:?}");
    });
}
