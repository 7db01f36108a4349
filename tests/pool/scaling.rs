//! Pools whose workers come and go.

use std::{
    collections::VecDeque,
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::Duration,
};

use leasehold::{
    Clock, ManualClock, Timestamp,
    pool::{AtomicMetrics, JobPriority, Metrics, Order, Pool, Task},
};

use super::common::{Gate, LONG, alone, at_gate, eventually, task, warm};

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
    let stats = pool.stats();
    assert_eq!(stats.scaled_down, 5, "one at a time");
    // Told afterwards.
    eventually("the metrics know", || pool.metrics().scalings() == stats.scaled_up + stats.scaled_down);
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

/// Stands still but when it is told to go on, and knows how often the keeper has looked.
#[derive(Default)]
struct Watched {
    time: ManualClock,
    looks: AtomicUsize,
}

impl Clock for Watched {
    fn now(&self) -> Timestamp {
        if thread::current().name() == Some("lease-keeper") {
            self.looks.fetch_add(1, SeqCst);
        }
        self.time.now()
    }
}

/// Jobs of five milliseconds each, by the pool's clock, in a queue of which `waiting` are never begun yet, and, in one by priority, another one that can
/// wait; after so many of them, whether there came to be another worker. Between two jobs the keeper looks once at least.
fn comes_while_jobs_pass(order: Order, waiting: usize, jobs: usize) -> bool {
    let clock = Arc::new(Watched::default());
    let pool = Pool::<Task>::builder()
        .adaptive(1, 2)
        .capacity(1_000)
        .scale_up_at(1.0)
        .scale_up_after(Duration::from_millis(50))
        .scale_rest(Duration::ZERO)
        .order(order)
        .clock(Arc::clone(&clock))
        .build()
        .expect("in range");
    let (pass, passes) = mpsc::channel();
    let passes = Arc::new(Mutex::new(passes));
    let submit = |priority| {
        let passes = Arc::clone(&passes);
        let job = task(move || {
            let _ = passes.lock().unwrap().recv();
        });
        pool.try_submit(job.priority(priority)).expect("room");
    };
    (0..=waiting).for_each(|_| submit(JobPriority::HIGHEST));
    if order == Order::Priority {
        eventually("one is begun", || pool.stats().queued == waiting);
        submit(JobPriority::LOWEST);
    }
    for job in 1..=jobs as u64 {
        submit(JobPriority::HIGHEST);
        pass.send(()).expect("they wait for it");
        eventually("one more is done", || pool.stats().done == job);
        clock.time.advance(Duration::from_millis(5));
        let looks = clock.looks.load(SeqCst);
        // The second one has begun after it was five milliseconds later.
        eventually("the keeper looks", || clock.looks.load(SeqCst) >= looks + 2);
        if pool.stats().scaled_up > 0 {
            return true;
        }
    }
    drop(pass);
    false
}

/// A queue that moves all the time, and in which each job waits for long.
#[test]
fn workers_come_when_jobs_wait_for_long_though_the_queue_moves() {
    assert!(comes_while_jobs_pass(Order::Fifo, 100, 30));
}

/// A queue that is never empty, and in which nobody waits for long.
#[test]
fn workers_do_not_come_when_nobody_waits_for_long() {
    assert!(!comes_while_jobs_pass(Order::Fifo, 2, 60));
}

/// The others come and go within ten milliseconds; the one that can wait does, and is not begun before the twentieth of them.
#[test]
fn workers_come_when_a_job_waits_for_long_though_more_urgent_ones_do_not() {
    assert!(comes_while_jobs_pass(Order::Priority, 2, 20));
}

/// Notes each change of the number of workers.
#[derive(Default)]
struct Steps(Mutex<Vec<(usize, usize)>>);

impl Metrics for Steps {
    const TIMED: bool = false;

    fn scaled(&self, from: usize, to: usize) {
        self.0.lock().unwrap().push((from, to));
    }
}

fn crowded(rest: Duration, gate: &Gate) -> Pool<Task, Steps> {
    let pool = Pool::<Task>::builder()
        .adaptive(8, 40)
        .capacity(100)
        .scale_up_at(0.1)
        .scale_rest(rest)
        .metrics(Steps::default())
        .build()
        .expect("in range");
    for _ in 0..100 {
        pool.submit(at_gate(gate)).expect("open");
    }
    pool
}

/// A quarter of those there are comes at a time, one at least.
#[test]
fn workers_come_by_a_quarter() {
    let gate = Gate::default();
    let pool = crowded(Duration::ZERO, &gate);
    eventually("as many as may be", || {
        pool.metrics().0.lock().unwrap().last().is_some_and(|&(_, to)| to == 40)
    });
    let steps = pool.metrics().0.lock().unwrap().clone();
    assert_eq!(steps, [(8, 10), (10, 12), (12, 15), (15, 18), (18, 22), (22, 27), (27, 33), (33, 40)]);
    assert_eq!((pool.stats().scaled_up, pool.stats().workers), (8, 40));
    gate.open();
}

/// Not again before some time has passed, however crowded the queue is.
#[test]
fn workers_come_once_in_a_while() {
    let gate = Gate::default();
    let pool = crowded(LONG, &gate);
    eventually("some come", || pool.stats().scaled_up == 1);
    thread::sleep(Duration::from_millis(100));
    assert_eq!((pool.stats().scaled_up, pool.stats().workers), (1, 10));
    gate.open();
}

/// The system's limits of this process, while it is narrowed to what it uses now; nothing where there is no such command.
struct Narrowed;

impl Narrowed {
    fn limit(to: &str) -> bool {
        let own = std::process::id().to_string();
        let set = Command::new("prlimit").args(["--pid", &own, &format!("--as={to}:unlimited")]).status();
        set.is_ok_and(|set| set.success())
    }

    /// Memory for this and that, and not for the stack of a thread.
    fn new() -> Option<Self> {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let used = status.lines().find_map(|line| line.strip_prefix("VmSize:"))?;
        let used: usize = used.trim().strip_suffix(" kB")?.parse().ok()?;
        Self::limit(&(1024 * (used + 1_000)).to_string()).then_some(Narrowed)
    }
}

impl Drop for Narrowed {
    fn drop(&mut self) {
        assert!(Self::limit("unlimited"));
    }
}

/// A worker that the system does not start is counted, and does not count as one that has come: another attempt is made long before the next increase
/// would be due.
#[test]
fn a_worker_that_is_not_started_is_tried_again() {
    alone("scaling::a_worker_that_is_not_started_is_tried_again", || {
        let gate = Gate::default();
        let builder = Pool::<Task>::builder().adaptive(1, 2).scale_up_after(Duration::from_millis(1));
        let pool = builder.scale_rest(100 * LONG).metrics(Steps::default()).build().expect("in range");
        pool.submit(at_gate(&gate)).expect("open");
        gate.has(1);
        let Some(narrowed) = Narrowed::new() else { return };
        if thread::Builder::new().spawn(|| ()).is_ok() {
            // It has a stack left over.
            return;
        }
        pool.submit(at_gate(&gate)).expect("open");
        eventually("it is tried", || pool.stats().unstarted > 1);
        let stats = pool.stats();
        assert_eq!((stats.workers, stats.scaled_up), (1, 0));
        drop(narrowed);
        gate.has(2);
        assert_eq!((pool.stats().workers, pool.stats().scaled_up), (2, 1));
        assert_eq!(*pool.metrics().0.lock().unwrap(), [(1, 2)]);
        gate.open();
    });
}
