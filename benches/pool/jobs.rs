//! Empty jobs, end to end.

use std::{
    collections::VecDeque,
    hint::black_box,
    time::{Duration, Instant},
};

use leasehold::pool::{Job, Pool};

use crate::report::{Report, median};

/// Many, so that a round is long beside the slices in which a busy machine hands out its processors.
const JOBS: u64 = 400_000;
const ROUNDS: usize = 15;
const CAPACITY: usize = 1_000;

/// Processor time of all threads of this process, in nanoseconds; none where the system does not say.
fn processor_nanos() -> Option<u64> {
    let mut sum = 0;
    for task in std::fs::read_dir("/proc/self/task").ok()? {
        let status = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        sum += status.split(' ').next()?.parse::<u64>().ok()?;
    }
    Some(sum)
}

struct Ours {
    pool: Pool<u64>,
    submitted: u64,
}

fn job(i: u64) -> Job<u64> {
    Job::new(i, |i, _| {
        black_box(*i);
        Ok(())
    })
}

impl Ours {
    /// Without a bound, as the others are.
    fn new(workers: usize) -> Self {
        let pool = Pool::builder().workers(workers).unbounded().build().expect("in range");
        Ours { pool, submitted: 0 }
    }

    fn bounded(workers: usize) -> Self {
        let pool = Pool::builder().workers(workers).capacity(CAPACITY).build().expect("in range");
        Ours { pool, submitted: 0 }
    }

    fn wait(&mut self) {
        self.submitted += JOBS;
        while self.pool.stats().done < self.submitted {
            std::thread::yield_now();
        }
    }

    fn singly(&mut self) -> Duration {
        let start = Instant::now();
        for i in 0..JOBS {
            self.pool.submit(job(i)).expect("open");
        }
        self.wait();
        start.elapsed()
    }

    fn by_many(&mut self, producers: u64) -> Duration {
        let start = Instant::now();
        let pool = &self.pool;
        each(producers, |i| pool.submit(job(i)).expect("open"));
        self.wait();
        start.elapsed()
    }

    fn in_batches(&mut self) -> Duration {
        let start = Instant::now();
        let mut batch = VecDeque::with_capacity(64);
        for i in 0..JOBS {
            batch.push_back(job(i));
            if batch.len() == 64 {
                while self.pool.try_submit_many(&mut batch).is_err() {
                    let first = batch.pop_front().expect("refused");
                    self.pool.submit(first).expect("open");
                }
            }
        }
        for job in batch {
            self.pool.submit(job).expect("open");
        }
        self.wait();
        start.elapsed()
    }
}

/// So many threads submit all jobs, each its share.
fn each(producers: u64, submit: impl Fn(u64) + Sync) {
    std::thread::scope(|scope| {
        for producer in 0..producers {
            let submit = &submit;
            scope.spawn(move || (producer..JOBS).step_by(producers as usize).for_each(submit));
        }
    });
}

fn rayon_by_many(pool: &rayon::ThreadPool, producers: u64) -> Duration {
    let start = Instant::now();
    pool.in_place_scope_fifo(|scope| {
        each(producers, |i| scope.spawn_fifo(move |_| _ = black_box(i)));
    });
    start.elapsed()
}

fn threadpool_by_many(pool: &threadpool::ThreadPool, producers: u64) -> Duration {
    let start = Instant::now();
    std::thread::scope(|scope| {
        for producer in 0..producers {
            // It is not shared, but cloned.
            let pool = pool.clone();
            scope.spawn(move || {
                for i in (producer..JOBS).step_by(producers as usize) {
                    pool.execute(move || _ = black_box(i));
                }
            });
        }
    });
    pool.join();
    start.elapsed()
}

fn rusty_by_many(pool: &rusty_pool::ThreadPool, producers: u64) -> Duration {
    let start = Instant::now();
    each(producers, |i| pool.execute(move || _ = black_box(i)));
    pool.join();
    start.elapsed()
}

fn rayon_round(pool: &rayon::ThreadPool) -> Duration {
    let start = Instant::now();
    pool.in_place_scope_fifo(|scope| {
        for i in 0..JOBS {
            scope.spawn_fifo(move |_| _ = black_box(i));
        }
    });
    start.elapsed()
}

fn threadpool_round(pool: &threadpool::ThreadPool) -> Duration {
    let start = Instant::now();
    for i in 0..JOBS {
        pool.execute(move || _ = black_box(i));
    }
    pool.join();
    start.elapsed()
}

fn rusty_round(pool: &rusty_pool::ThreadPool) -> Duration {
    let start = Instant::now();
    for i in 0..JOBS {
        pool.execute(move || _ = black_box(i));
    }
    pool.join();
    start.elapsed()
}

const NAMES: [&str; 15] = [
    "leasehold, 2 workers",
    "leasehold, 2 workers, batches of 64",
    "leasehold, 16 workers",
    "rayon spawn_fifo, 2 threads",
    "threadpool, 2 threads",
    "rusty_pool, 2 threads",
    "leasehold, 2 workers, a queue of 1,000",
    "leasehold, 2 workers, 4 producers",
    "rayon spawn_fifo, 2 threads, 4 producers",
    "threadpool, 2 threads, 4 producers",
    "rusty_pool, 2 threads, 4 producers",
    "leasehold, 2 workers, 16 producers",
    "rayon spawn_fifo, 2 threads, 16 producers",
    "threadpool, 2 threads, 16 producers",
    "rusty_pool, 2 threads, 16 producers",
];

pub fn run(report: &mut Report) {
    let (mut two, mut batches, mut sixteen) = (Ours::new(2), Ours::new(2), Ours::new(16));
    let mut bounded = Ours::bounded(2);
    let rayon = rayon::ThreadPoolBuilder::new().num_threads(2).build().expect("threads");
    let threadpool = threadpool::ThreadPool::new(2);
    let rusty = rusty_pool::ThreadPool::new(2, 2, Duration::from_secs(60));
    let mut rounds: Vec<[f64; NAMES.len()]> = Vec::new();
    let mut burnt: Vec<[f64; NAMES.len()]> = Vec::new();
    for turn in 0..=ROUNDS {
        let mut nanos = [0.0; NAMES.len()];
        let mut processor = [0.0; NAMES.len()];
        for i in (0..NAMES.len()).map(|i| (i + turn) % NAMES.len()) {
            let before = processor_nanos();
            let time = match i {
                0 => two.singly(),
                1 => batches.in_batches(),
                2 => sixteen.singly(),
                3 => rayon_round(&rayon),
                4 => threadpool_round(&threadpool),
                5 => rusty_round(&rusty),
                6 => bounded.singly(),
                7 => two.by_many(4),
                8 => rayon_by_many(&rayon, 4),
                9 => threadpool_by_many(&threadpool, 4),
                10 => rusty_by_many(&rusty, 4),
                11 => two.by_many(16),
                12 => rayon_by_many(&rayon, 16),
                13 => threadpool_by_many(&threadpool, 16),
                _ => rusty_by_many(&rusty, 16),
            };
            nanos[i] = time.as_nanos() as f64 / JOBS as f64;
            let spent = processor_nanos().zip(before).map_or(0, |(after, before)| after - before);
            processor[i] = spent as f64 / JOBS as f64;
        }
        // The first one warms up.
        if turn > 0 {
            rounds.push(nanos);
            burnt.push(processor);
        }
    }
    for (i, name) in NAMES.iter().enumerate() {
        let (time, spent) = (median(rounds.iter().map(|r| r[i])), median(burnt.iter().map(|r| r[i])));
        println!("{name:<42} {time:>8.1} ns a job, {spent:>8.1} ns of processors");
    }
    println!();
    // Of the three that begin there.
    let best_of = |round: &[f64; NAMES.len()], at: usize| round[at].min(round[at + 1]).min(round[at + 2]);
    let best = |round: &[f64; NAMES.len()]| best_of(round, 3);
    let ratio = |i: usize| median(rounds.iter().map(|round| round[i] / best(round)));
    // What others do at the same time changes it less than the first.
    let spent = median(burnt.iter().map(|spent| spent[0] / best(spent)));
    println!("{:<40} {spent:>8.3}", "processor time to the least of the three");
    report.bar("payload jobs to the best of the three pools", ratio(0), 0.35);
    report.bar("the same in batches", ratio(1), 0.35);
    // The bound that a pool has by default; the others have none.
    report.bar("the same through a queue of 1,000", ratio(6), 0.35);
    for (producers, at) in [(4, 7), (16, 11)] {
        let ratio = median(rounds.iter().map(|round| round[at] / best_of(round, at + 1)));
        println!("{:<40} {ratio:>8.3}", format!("{producers} producers to the best of the three"));
    }
    let crowd = median(rounds.iter().map(|round| round[2] / round[0]));
    report.bar("16 workers to 2", crowd, 1.3);
}
