//! Submits empty jobs to a pool and waits for their end, and nothing else, so that `callgrind` counts the instructions of a job: the
//! difference of two runs, divided by the difference of their numbers of jobs.
//!
//! ```sh
//! valgrind --tool=callgrind target/release/jobs 100000          # one by one
//! valgrind --tool=callgrind target/release/jobs 100000 batches  # in batches of 64
//! valgrind --tool=callgrind target/release/jobs 100000 queue    # no pool: into the queue and out again
//! ```

use std::{collections::VecDeque, hint::black_box, time::Duration};

use leasehold::pool::{Job, JobPriority, JobQueue, Pool, SegmentedQueue};

fn job(i: u64) -> Job<u64> {
    Job::new(i, |i, _| {
        black_box(*i);
        Ok(())
    })
}

fn queue(items: u64) {
    let queue = SegmentedQueue::unbounded();
    for i in 0..items {
        queue.push(i, JobPriority::NORMAL).expect("open");
        black_box(queue.pop());
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let jobs: u64 = arguments.next().and_then(|jobs| jobs.parse().ok()).expect("a number of jobs");
    let how = arguments.next();
    if how.as_deref() == Some("queue") {
        return queue(jobs);
    }
    let pool = Pool::builder().workers(1).unbounded().build().expect("in range");
    match how.as_deref() {
        None => (0..jobs).for_each(|i| pool.submit(job(i)).expect("open")),
        Some("batches") => {
            let mut batch = VecDeque::with_capacity(64);
            for from in (0..jobs).step_by(64) {
                batch.extend((from..jobs.min(from + 64)).map(job));
                pool.try_submit_many(&mut batch).expect("open");
            }
        }
        Some(other) => panic!("what is {other}?"),
    }
    let ended = pool.shutdown(Duration::MAX);
    assert!(ended.is_complete());
    assert_eq!(pool.stats().done, jobs);
}
