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

/// Of each round what was seen of each fleet.
pub struct Speeds(Vec<Vec<Speed>>);

/// Nanoseconds of a pair for one thread while all run, and pairs a second of all of them together. The second does not follow from the first:
/// where threads are not equally fast the mean of their times says less than the sum of their rates.
#[derive(Clone, Copy, Debug, Default)]
struct Speed {
    nanos: f64,
    per_second: f64,
}

impl Speed {
    /// From the nanoseconds of a pair of each thread.
    fn of(nanos: &[f64]) -> Self {
        let mean = nanos.iter().sum::<f64>() / nanos.len() as f64;
        Speed { nanos: mean, per_second: nanos.iter().map(|nanos| 1e9 / nanos).sum() }
    }
}

impl Speeds {
    /// The median of the rounds, for one thread.
    pub fn nanos(&self, fleet: usize) -> f64 {
        median(self.0.iter().map(|round| round[fleet].nanos))
    }

    /// Of all threads together, the median of the rounds.
    pub fn per_second(&self, fleet: usize) -> f64 {
        median(self.0.iter().map(|round| round[fleet].per_second))
    }

    /// The median of the ratios within a round.
    pub fn ratio(&self, fleet: usize, base: usize) -> f64 {
        median(self.0.iter().map(|round| round[fleet].nanos / round[base].nanos))
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
        let mut times = vec![Speed::default(); fleets.len()];
        let mut order: Vec<usize> = (0..fleets.len()).collect();
        if number % 2 == 1 {
            order.reverse();
        }
        order.into_iter().for_each(|index| times[index] = pairs(&fleets[index], length));
        times
    };
    Speeds((0..rounds).map(round).collect())
}

fn pairs(fleet: &Fleet, length: Duration) -> Speed {
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
        let nanos: Vec<f64> =
            workers.into_iter().map(|worker| worker.join().expect("nobody panics")).collect();
        Speed::of(&nanos)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One thread at 100 ns and one at 300: 10 million and 3.3 million a second, which is not 2 over the mean of 200 ns.
    #[test]
    fn rates_add_up() {
        let speed = Speed::of(&[100.0, 300.0]);
        assert_eq!(speed.nanos, 200.0);
        assert!((speed.per_second / (1e9 / 100.0 + 1e9 / 300.0) - 1.0).abs() < 1e-12, "{}", speed.per_second);
    }
}
