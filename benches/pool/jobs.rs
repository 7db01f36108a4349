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

const NAMES: [&str; 7] = [
    "leasehold, 2 workers",
    "leasehold, 2 workers, batches of 64",
    "leasehold, 16 workers",
    "rayon spawn_fifo, 2 threads",
    "threadpool, 2 threads",
    "rusty_pool, 2 threads",
    "leasehold, 2 workers, a queue of 1,000",
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
                _ => bounded.singly(),
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
        println!("{name:<40} {time:>8.1} ns a job, {spent:>8.1} ns of processors");
    }
    println!();
    let best = |round: &[f64; NAMES.len()]| round[3].min(round[4]).min(round[5]);
    let ratio = |i: usize| median(rounds.iter().map(|round| round[i] / best(round)));
    // What others do at the same time changes it less than the first.
    let spent = median(burnt.iter().map(|spent| spent[0] / best(spent)));
    println!("{:<40} {spent:>8.3}", "processor time to the least of the three");
    report.bar("payload jobs to the best of the three pools", ratio(0), 0.35);
    report.bar("the same in batches", ratio(1), 0.35);
    let crowd = median(rounds.iter().map(|round| round[2] / round[0]));
    report.bar("16 workers to 2", crowd, 1.3);
}
