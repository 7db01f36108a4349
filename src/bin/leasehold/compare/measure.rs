//! Sides in turns, and what the numbers of the rounds say.

use std::{
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use leasehold::SplitMix64;

/// One batch of [`BATCH`] operations by one thread.
pub type Side<'a> = dyn Fn(&mut Worker) + Sync + 'a;

/// Operations between two looks at the clock, which costs as much as one or two of the fastest of them.
pub const BATCH: u32 = 256;

/// How a side is run.
#[derive(Clone, Copy)]
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

    /// Which of the threads this is, from 0.
    #[inline]
    pub fn thread(&self) -> usize {
        (self.own >> 32) as usize - 1
    }

    /// A key that is not in the fleet and that no other thread uses.
    #[inline]
    pub fn fresh_key(&mut self) -> u64 {
        self.own + u64::from(self.random.below(u32::MAX))
    }
}

/// One number of each side in each round: nanoseconds per operation and thread, unless told otherwise. The first side is
/// the subject, the others are its rivals.
pub struct Times(Vec<Vec<f64>>);

/// A side's run: what it measured. The argument differs from round to round.
pub type Turn<'a> = Box<dyn FnMut(u64) -> f64 + 'a>;

/// Lets every side run once in each of `rounds` rounds. The order within a round alternates, so that whatever the machine
/// does over time, and whatever one run leaves to the next, meets all alike.
pub fn take_turns(rounds: usize, sides: &mut [Turn<'_>]) -> Times {
    let round = |round: usize| {
        // All sides of a round get the same keys.
        let seed = round as u64;
        let mut numbers = vec![0.0; sides.len()];
        let run = |(side, number): (&mut Turn<'_>, &mut f64)| *number = side(seed);
        if round.is_multiple_of(2) {
            sides.iter_mut().zip(&mut numbers).for_each(run);
        } else {
            sides.iter_mut().zip(&mut numbers).rev().for_each(run);
        }
        numbers
    };
    Times((0..rounds).map(round).collect())
}

/// Runs both sides `plan.pairs` times, in turns.
pub fn alternate(plan: &Plan, a: &Side<'_>, b: &Side<'_>) -> Times {
    let side = |side| Box::new(move |seed| run(plan, seed, side)) as Turn<'_>;
    take_turns(plan.pairs, &mut [side(a), side(b)])
}

/// One run: threads start together, warm up for a quarter of its length, and stop by the clock, so that none works
/// alone while it is measured.
pub fn run(plan: &Plan, seed: u64, side: &Side<'_>) -> f64 {
    let work = |worker: &mut Worker| {
        repeat(plan.length / 4, || side(worker));
        repeat(plan.length, || side(worker))
    };
    let (time, batches) = together(plan, seed, work)
        .into_iter()
        .fold((Duration::ZERO, 0), |(time, batches), (more_time, more)| (time + more_time, batches + more));
    time.as_nanos() as f64 / (batches * u64::from(BATCH)) as f64
}

/// What `work` answers in each thread; they start together.
pub fn together<T: Send>(plan: &Plan, seed: u64, work: impl Fn(&mut Worker) -> T + Sync) -> Vec<T> {
    let barrier = Barrier::new(plan.threads);
    let start = |thread| {
        let mut worker = Worker::new(thread, plan.resources, seed);
        barrier.wait();
        work(&mut worker)
    };
    thread::scope(|scope| {
        let start = &start;
        let threads: Vec<_> = (0..plan.threads).map(|thread| scope.spawn(move || start(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("every operation succeeds")).collect()
    })
}

/// Repeats until `length` is over, at least once; answers the time it took and how often it was.
pub fn repeat(length: Duration, mut batch: impl FnMut()) -> (Duration, u64) {
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
    /// The medians of the subject and of the best rival of each round.
    pub fn medians(&self) -> [f64; 2] {
        let side = |pick: fn(&[f64]) -> f64| median(self.0.iter().map(|round| pick(round)).collect());
        [side(|round| round[0]), side(best_rival)]
    }

    /// The ratio of the subject to the best rival within each round: least, median, greatest. What slows a whole round
    /// leaves it alone, unlike the ratio of the medians.
    pub fn ratio(&self) -> [f64; 3] {
        let ratios: Vec<f64> = self.0.iter().map(|round| round[0] / best_rival(round)).collect();
        let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let greatest = ratios.iter().copied().fold(0.0, f64::max);
        [least, median(ratios), greatest]
    }

    #[cfg(test)]
    pub fn of<const SIDES: usize>(rounds: &[[f64; SIDES]]) -> Self {
        Times(rounds.iter().map(|round| round.to_vec()).collect())
    }
}

fn best_rival(round: &[f64]) -> f64 {
    round[1..].iter().copied().fold(f64::INFINITY, f64::min)
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
    fn the_best_rival_of_each_round_counts() {
        let times = Times::of(&[[10.0, 20.0, 40.0], [10.0, 80.0, 20.0], [10.0, 10.0, 5.0]]);
        assert_eq!(times.medians(), [10.0, 20.0]);
        assert_eq!(times.ratio(), [0.5, 0.5, 2.0]);
    }

    #[test]
    fn threads_know_their_number() {
        let plan = Plan { threads: 3, resources: 1, pairs: 1, length: Duration::ZERO };
        assert_eq!(together(&plan, 0, |worker| worker.thread()), [0, 1, 2]);
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
