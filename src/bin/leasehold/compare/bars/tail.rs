//! The slowest acquisitions: each is timed by itself, its return is not.

use std::{hint::black_box, time::Instant};

use hdrhistogram::Histogram;
use leasehold::{Strategy, baseline::Lend};

use super::{Measured, Setting, pairs::mutex};
use crate::compare::{
    cases::Asset,
    measure::{BATCH, Turn, repeat, together},
};

/// How much longer a run is than others: the quantiles of a short one rest on a handful of acquisitions.
const LONGER: u32 = 4;

pub fn p99_9(setting: &Setting) -> Measured {
    against_mutex(setting, 0.999)
}

pub fn p99_99(setting: &Setting) -> Measured {
    against_mutex(setting, 0.9999)
}

fn against_mutex(setting: &Setting, quantile: f64) -> Measured {
    let (scheduler, mutex) = (setting.scheduler(Strategy::default()), mutex(setting));
    setting.ratio([
        Box::new(|seed| quantile_of_run(setting, seed, quantile, &scheduler)) as Turn<'_>,
        Box::new(|seed| quantile_of_run(setting, seed, quantile, &mutex)),
    ])
}

fn quantile_of_run<L: Lend<Asset>>(setting: &Setting, seed: u64, quantile: f64, lender: &L) -> f64 {
    let plan = setting.plan();
    let histograms = together(&plan, seed, |_| {
        let mut histogram = Histogram::<u64>::new(3).expect("three digits are allowed");
        let acquire = || {
            let start = Instant::now();
            let lease = lender.acquire().expect("there is a resource for each thread");
            let time = start.elapsed();
            black_box(lease.value);
            drop(lease);
            time.as_nanos() as u64
        };
        repeat(plan.length / 4, || {
            (0..BATCH).for_each(|_| _ = acquire());
        });
        repeat(plan.length * LONGER, || {
            for _ in 0..BATCH {
                histogram.record(acquire()).expect("the histogram resizes itself");
            }
        });
        histogram
    });
    let mut all = Histogram::<u64>::new(3).expect("as above");
    histograms.iter().for_each(|histogram| all.add(histogram).expect("it resizes itself"));
    all.value_at_quantile(quantile) as f64
}
