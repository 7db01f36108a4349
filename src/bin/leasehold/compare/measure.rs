//! Two sides in turns, and what the times of the pairs say.

use std::{
    array,
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use leasehold::SplitMix64;

/// One batch of [`BATCH`] operations by one thread.
pub type Side<'a> = dyn Fn(&mut Worker) + Sync + 'a;

/// Operations between two looks at the clock, which costs as much as one or two of the fastest of them.
pub const BATCH: u32 = 256;

/// How the two sides are run.
pub struct Plan {
    pub threads: usize,
    /// The keys of the fleet are the numbers below.
    pub resources: u32,
    pub pairs: usize,
    pub length: Duration,
}

/// What belongs to one thread in one run. It lives on that thread's stack: the measured loop shares nothing but the
/// subject.
pub struct Worker {
    random: SplitMix64,
    resources: u32,
    /// Keys from here on are this thread's alone.
    own: u64,
}

impl Worker {
    /// `seed` differs between runs: a run does not find the cache lines of the one before.
    pub fn new(thread: usize, resources: u32, seed: u64) -> Self {
        let thread = thread as u64 + 1;
        Worker {
            random: SplitMix64::new(SplitMix64::mix(seed ^ SplitMix64::mix(thread))),
            resources,
            own: thread << 32,
        }
    }

    #[inline]
    pub fn random(&mut self) -> u64 {
        self.random.next_u64()
    }

    /// The key of any resource of the fleet.
    #[inline]
    pub fn key(&mut self) -> u64 {
        u64::from(self.random.below(self.resources))
    }

    /// A key that is not in the fleet and that no other thread uses.
    #[inline]
    pub fn fresh_key(&mut self) -> u64 {
        self.own + u64::from(self.random.below(u32::MAX))
    }
}

/// Nanoseconds per operation and thread, by pair.
pub struct Times(Vec<[f64; 2]>);

/// Runs both sides `plan.pairs` times. The order within a pair alternates, so that whatever the machine does over
/// time, and whatever one run leaves to the next, meets both alike.
pub fn alternate(plan: &Plan, a: &Side<'_>, b: &Side<'_>) -> Times {
    let pair = |round: usize| {
        // Both sides of a pair get the same keys.
        let seed = round as u64;
        if round.is_multiple_of(2) {
            let a = run(plan, seed, a);
            [a, run(plan, seed, b)]
        } else {
            let b = run(plan, seed, b);
            [run(plan, seed, a), b]
        }
    };
    Times((0..plan.pairs).map(pair).collect())
}

/// One run: threads start together, warm up for a quarter of its length, and stop by the clock, so that none works
/// alone while it is measured.
fn run(plan: &Plan, seed: u64, side: &Side<'_>) -> f64 {
    let barrier = Barrier::new(plan.threads);
    let work = |thread| {
        let mut worker = Worker::new(thread, plan.resources, seed);
        barrier.wait();
        repeat(plan.length / 4, || side(&mut worker));
        repeat(plan.length, || side(&mut worker))
    };
    let (time, batches) = thread::scope(|scope| {
        let threads: Vec<_> = (0..plan.threads).map(|thread| scope.spawn(move || work(thread))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("every operation succeeds"))
            .fold((Duration::ZERO, 0), |(time, batches), (more_time, more_batches)| {
                (time + more_time, batches + more_batches)
            })
    });
    time.as_nanos() as f64 / (batches * u64::from(BATCH)) as f64
}

/// Repeats until `length` is over, at least once; answers the time it took and how often it was.
fn repeat(length: Duration, mut batch: impl FnMut()) -> (Duration, u64) {
    let start = Instant::now();
    let mut batches = 0;
    loop {
        batch();
        batches += 1;
        let time = start.elapsed();
        if time >= length {
            return (time, batches);
        }
    }
}

impl Times {
    /// The median of each side.
    pub fn medians(&self) -> [f64; 2] {
        array::from_fn(|side| median(self.0.iter().map(|pair| pair[side]).collect()))
    }

    /// The ratio of the first side to the second within each pair: least, median, greatest. What slows both sides of
    /// a pair leaves it alone, unlike the ratio of the medians.
    pub fn ratio(&self) -> [f64; 3] {
        let ratios: Vec<f64> = self.0.iter().map(|[a, b]| a / b).collect();
        let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let greatest = ratios.iter().copied().fold(0.0, f64::max);
        [least, median(ratios), greatest]
    }

    #[cfg(test)]
    pub fn of(pairs: &[[f64; 2]]) -> Self {
        Times(pairs.to_vec())
    }
}

/// The middle one, or halfway between the two in the middle.
fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_unstable_by(f64::total_cmp);
    let middle = numbers.len() / 2;
    if numbers.len().is_multiple_of(2) {
        f64::midpoint(numbers[middle - 1], numbers[middle])
    } else {
        numbers[middle]
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(vec![3.0]), 3.0);
        assert_eq!(median(vec![9.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 100.0, 2.0]), 3.0);
    }

    #[test]
    fn ratio_is_that_of_pairs() {
        // One pair was disturbed as a whole, one on one side.
        let times = Times::of(&[[10.0, 20.0], [11.0, 22.0], [300.0, 600.0], [12.0, 24.0], [90.0, 20.0]]);
        assert_eq!(times.medians(), [12.0, 22.0]);
        assert_eq!(times.ratio(), [0.5, 0.5, 4.5]);
    }

    #[test]
    fn sides_take_turns() {
        let order = Mutex::new(Vec::new());
        let note = |name| {
            let mut order = order.lock().unwrap();
            if order.last() != Some(&name) {
                order.push(name);
            }
        };
        let plan = Plan { threads: 2, resources: 1, pairs: 5, length: Duration::ZERO };
        let times = alternate(&plan, &|_: &mut Worker| note('a'), &|_: &mut Worker| note('b'));
        // Neighbouring runs of the same side look like one here.
        assert_eq!(order.lock().unwrap().iter().collect::<String>(), "ababab");
        assert!(times.medians().iter().all(|&time| time > 0.0));
    }

    #[test]
    fn workers_differ() {
        let keys = |thread, seed| {
            let mut worker = Worker::new(thread, 1_000, seed);
            (0..20).map(|_| worker.key()).collect::<Vec<_>>()
        };
        assert_eq!(keys(0, 1), keys(0, 1));
        assert_ne!(keys(0, 1), keys(1, 1));
        assert_ne!(keys(0, 1), keys(0, 2));
        assert!(keys(0, 1).iter().all(|&key| key < 1_000));
        let (first, second) = (Worker::new(0, 1, 0).fresh_key(), Worker::new(1, 1, 0).fresh_key());
        assert!(first > u64::from(u32::MAX) && second >> 32 == 2);
    }
}
