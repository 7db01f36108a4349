//! Acquisitions and returns a second, by all processors, strategies in turns: what the machine does meanwhile meets all
//! alike, and the ratio within a round is what counts.

use std::{
    hint::black_box,
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use super::Fleet;
use crate::load::processors;

/// Of each round, the nanoseconds of a pair of each fleet.
pub struct Speeds(Vec<Vec<f64>>);

impl Speeds {
    /// The median of the rounds, for one thread.
    pub fn nanos(&self, fleet: usize) -> f64 {
        median(self.0.iter().map(|round| round[fleet]))
    }

    /// Of all threads.
    pub fn per_second(&self, fleet: usize) -> f64 {
        f64::from(processors()) * 1e9 / self.nanos(fleet)
    }

    /// The median of the ratios within a round.
    pub fn ratio(&self, fleet: usize, base: usize) -> f64 {
        median(self.0.iter().map(|round| round[fleet] / round[base]))
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

pub fn measure(fleets: &[Fleet], rounds: u32, milliseconds: u64) -> Speeds {
    let length = Duration::from_millis(milliseconds);
    let round = |number: u32| {
        let mut times = vec![0.0; fleets.len()];
        let mut order: Vec<usize> = (0..fleets.len()).collect();
        if number % 2 == 1 {
            order.reverse();
        }
        order.into_iter().for_each(|index| times[index] = pairs(&fleets[index], length));
        times
    };
    Speeds((0..rounds).map(round).collect())
}

/// Nanoseconds of a pair, for one thread while all run.
fn pairs(fleet: &Fleet, length: Duration) -> f64 {
    let threads = processors() as usize;
    let (start, stop) = (Barrier::new(threads + 1), AtomicBool::new(false));
    thread::scope(|scope| {
        let work = || {
            start.wait();
            let since = Instant::now();
            let mut pairs = 0u64;
            // Once at the least: on a crowded machine a thread may start when all is over.
            loop {
                for _ in 0..64 {
                    // A fleet that is smaller than the machine may have nothing for a moment.
                    drop(black_box(fleet.acquire()));
                }
                pairs += 64;
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
            since.elapsed().as_nanos() as f64 / pairs as f64
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        start.wait();
        thread::sleep(length);
        stop.store(true, Ordering::Relaxed);
        let sum: f64 = workers.into_iter().map(|worker| worker.join().expect("nobody panics")).sum();
        sum / threads as f64
    })
}
