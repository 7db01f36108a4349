//! How long single acquisitions take, from the median to the slowest: a histogram for each, not a mean.
//!
//! `--test`, as for the other benchmarks: one short run of each.

use std::{hint::black_box, sync::Mutex, time::Instant};

use hdrhistogram::Histogram;
use leasehold::{
    Strategy,
    baseline::{Lend, MutexScheduler},
};
use leasehold_benches::{Asset, RESOURCES, SHARDS, fill, scheduler, together};

const QUANTILES: [(&str, f64); 6] =
    [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("p99.99", 0.9999), ("max", 1.0)];

fn main() {
    let acquisitions = if std::env::args().any(|argument| argument == "--test") { 1_000 } else { 1_000_000 };
    println!("ns of an acquisition; its return is not in it; {acquisitions} of each thread\n");
    print!("{:<12} {:>7}", "", "threads");
    QUANTILES.iter().for_each(|(name, _)| print!(" {name:>10}"));
    println!();
    let fleet = scheduler(RESOURCES, SHARDS, Strategy::default());
    let mutex = fill(MutexScheduler::new(), RESOURCES);
    for threads in [1, 2, 8, 64] {
        let acquisitions = acquisitions / if threads > 8 { 10 } else { 1 };
        print("leasehold", threads, &times(threads, acquisitions, &fleet));
        print("mutex", threads, &times(threads, acquisitions, &mutex));
    }
}

fn times<L: Lend<Asset>>(threads: usize, acquisitions: u64, lender: &L) -> Histogram<u64> {
    let empty = || Histogram::<u64>::new(3).expect("three digits are allowed");
    let all = Mutex::new(empty());
    let one_by_one = |count| {
        let mut own = empty();
        for _ in 0..count {
            let start = Instant::now();
            let lease = lender.acquire().expect("there is a resource for each thread");
            own.record(start.elapsed().as_nanos() as u64).expect("it resizes itself");
            black_box(lease.value);
        }
        own
    };
    together(threads, 1, |_| {
        drop(one_by_one(acquisitions / 10));
        let own = one_by_one(acquisitions);
        all.lock().expect("nobody panics").add(own).expect("it resizes itself");
    });
    all.into_inner().expect("nobody panics")
}

fn print(name: &str, threads: usize, times: &Histogram<u64>) {
    print!("{name:<12} {threads:>7}");
    QUANTILES.iter().for_each(|&(_, quantile)| print!(" {:>10}", times.value_at_quantile(quantile)));
    println!();
}
