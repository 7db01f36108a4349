//! Pools whose workers come and go.

use std::{collections::VecDeque, thread, time::Duration};

use leasehold::pool::{AtomicMetrics, Pool, Task};

use super::common::{Gate, LONG, at_gate, eventually, task, warm};

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
    // Told when the count has moved already.
    eventually("the metrics know", || pool.metrics().most_workers() == 6);
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

/// What lies on the tray of a worker in a long job brings others, though nothing is in the queue.
#[test]
fn workers_come_for_what_lies_on_a_tray() {
    let pool = Pool::<Task>::builder()
        .adaptive(1, 4)
        .scale_up_after(Duration::from_millis(10))
        .build()
        .expect("in range");
    warm(&pool);
    let gate = Gate::default();
    let mut jobs: VecDeque<_> = [at_gate(&gate)].into();
    jobs.extend((0..60).map(|_| task(|| ())));
    pool.try_submit_many(&mut jobs).expect("room");
    gate.has(1);
    eventually("another worker has run them", || pool.stats().done == 2_060);
    assert!(pool.stats().workers > 1);
    gate.open();
}
