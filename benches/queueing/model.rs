//! Threads in a closed network of stations, one for each lock; solved exactly by mean value analysis.

use super::Moved;

/// Where an operation waits.
#[derive(Clone, Copy)]
pub enum Kind {
    /// Behind the locks of so many shards, of which each operation needs one at random.
    Locks(fn(usize) -> usize),
    /// Nowhere.
    Free,
}

pub struct Model {
    /// Nanoseconds of an operation when there is one thread.
    pub alone: f64,
    /// Nanoseconds until a line has come from another core.
    pub transfer: f64,
    pub moved: Moved,
    /// The share of the counted lines that really move: the counts are for threads that take turns.
    pub turns: f64,
    pub kind: Kind,
}

/// The part of an operation's own work that is done with the lock held.
const LOCKED: f64 = 0.6;

/// Lines of plain memory that come along with each counted line: what the lock guards is not of the facade.
const PLAIN: f64 = 0.5;

impl Model {
    /// Nanoseconds of an operation for a thread, with `threads` threads on as many processors.
    pub fn time(&self, threads: usize) -> f64 {
        let moving = self.moved_at(threads) * self.turns * self.transfer;
        match self.kind {
            Kind::Free => self.alone + moving,
            Kind::Locks(stations) => {
                let service = LOCKED * self.alone + (1.0 + PLAIN) * moving;
                mean_value(threads, stations(threads), (1.0 - LOCKED) * self.alone, service)
            }
        }
    }

    /// Between two counts linear; beyond the last one it stays.
    fn moved_at(&self, threads: usize) -> f64 {
        let before = self.moved.range(..=threads).next_back();
        let after = self.moved.range(threads..).next();
        match (before, after) {
            (Some((&n, &low)), Some((&m, &high))) if n < m => {
                low + (high - low) * (threads - n) as f64 / (m - n) as f64
            }
            (Some((_, &moved)), _) | (None, Some((_, &moved))) => moved,
            (None, None) => 0.0,
        }
    }
}

/// The time of one round of a customer: `think`, then `service` at one of `stations`, any with the same probability, where
/// customers queue. Service times are exponential, which is what makes the solution exact.
fn mean_value(customers: usize, stations: usize, think: f64, service: f64) -> f64 {
    let (mut queue, mut time) = (0.0, think + service);
    for present in 1..=customers {
        // Who arrives sees the queue of a network with one customer less.
        let residence = service * (1.0 + queue);
        time = think + residence;
        queue = present as f64 / time * residence / stations as f64;
    }
    time
}

/// The value of `turns` for which the model says what was measured at two threads.
pub fn fitted_turns(mut model: Model, measured: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..50 {
        model.turns = f64::midpoint(low, high);
        if model.time(2) < measured { low = model.turns } else { high = model.turns }
    }
    low
}
