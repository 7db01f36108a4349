//! The queue alone: one producer, one consumer, each a thread.

use std::{
    collections::VecDeque,
    hint::black_box,
    time::{Duration, Instant},
};

use crossbeam_queue::SegQueue;
use leasehold::pool::{JobPriority, JobQueue, SegmentedQueue};

use crate::report::{Report, median};

const ITEMS: u64 = 200_000;
const ROUNDS: usize = 21;
/// All of them: what is measured is the queue, not how soon the system wakes whoever waits for room.
const WIDE: usize = ITEMS as usize;
/// What a pool has by default: here the bound acts, and a producer that is faster waits for room.
const NARROW: usize = 1_000;
const BATCH: usize = 64;
const ANY: JobPriority = JobPriority::NORMAL;

/// Runs both and waits for both.
fn pair(producer: impl FnOnce() + Send, consumer: impl FnOnce() + Send) -> Duration {
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(producer);
        scope.spawn(consumer);
    });
    start.elapsed()
}

/// Made once, as the queue is: a ring of its capacity, the memory of which is touched before anything is measured.
struct Channel(crossbeam_channel::Sender<u64>, crossbeam_channel::Receiver<u64>);

impl Channel {
    fn new(capacity: usize) -> Self {
        let (sender, receiver) = crossbeam_channel::bounded(capacity);
        Channel(sender, receiver)
    }

    fn round(&self) -> Duration {
        pair(
            || (0..ITEMS).for_each(|i| self.0.send(i).expect("open")),
            || {
                for item in self.1.iter().take(ITEMS as usize) {
                    black_box(item);
                }
            },
        )
    }
}

fn segments_in_batches(queue: &SegmentedQueue<u64>) -> Duration {
    pair(
        || {
            let mut batch = VecDeque::with_capacity(BATCH);
            for i in 0..ITEMS {
                batch.push_back(i);
                if batch.len() == BATCH || i + 1 == ITEMS {
                    while queue.push_many(&mut batch, ANY).is_err() {
                        std::thread::yield_now();
                    }
                }
            }
        },
        || {
            let mut batch = VecDeque::with_capacity(BATCH);
            let mut left = ITEMS as usize;
            while left > 0 {
                let taken = queue.pop_many(BATCH, &mut batch);
                left -= taken;
                for item in batch.drain(..) {
                    black_box(item);
                }
                if taken == 0 {
                    std::thread::yield_now();
                }
            }
        },
    )
}

/// Push and pop, alternating, one thread: what a queue costs by itself.
fn alternating(mut push: impl FnMut(u64), mut pop: impl FnMut() -> Option<u64>) -> Duration {
    let start = Instant::now();
    for i in 0..ITEMS {
        push(i);
        black_box(pop());
    }
    start.elapsed()
}

/// One producer, one consumer, item by item, without a bound.
fn singly(push: impl Fn(u64) + Send, pop: impl Fn() -> Option<u64> + Send) -> Duration {
    pair(
        || (0..ITEMS).for_each(push),
        move || {
            let mut left = ITEMS;
            while left > 0 {
                match pop() {
                    Some(item) => {
                        black_box(item);
                        left -= 1;
                    }
                    None => std::thread::yield_now(),
                }
            }
        },
    )
}

const NAMES: [&str; 8] = [
    "crossbeam bounded channel",
    "leasehold, bounded, batches of 64",
    "SegQueue, 1 producer, 1 consumer",
    "leasehold, 1 producer, 1 consumer",
    "SegQueue, push and pop",
    "leasehold, push and pop",
    "crossbeam bounded channel of 1,000",
    "leasehold of 1,000, batches of 64",
];

pub fn run(report: &mut Report) {
    let (wide, narrow) = (SegmentedQueue::bounded(WIDE), SegmentedQueue::bounded(NARROW));
    let (wide_channel, narrow_channel) = (Channel::new(WIDE), Channel::new(NARROW));
    let (open, theirs) = (SegmentedQueue::unbounded(), SegQueue::new());
    let mut rounds: Vec<[f64; NAMES.len()]> = Vec::new();
    for turn in 0..=ROUNDS {
        let mut nanos = [0.0; NAMES.len()];
        for i in (0..NAMES.len()).map(|i| (i + turn) % NAMES.len()) {
            let push = |i| open.push(i, ANY).expect("unbounded");
            let time = match i {
                0 => wide_channel.round(),
                1 => segments_in_batches(&wide),
                2 => singly(|i| theirs.push(i), || theirs.pop()),
                3 => singly(push, || open.pop()),
                4 => alternating(|i| theirs.push(i), || theirs.pop()),
                5 => alternating(push, || open.pop()),
                6 => narrow_channel.round(),
                _ => segments_in_batches(&narrow),
            };
            nanos[i] = time.as_nanos() as f64 / ITEMS as f64;
        }
        if turn > 0 {
            rounds.push(nanos);
        }
    }
    for (i, name) in NAMES.iter().enumerate() {
        println!("{name:<40} {:>8.1} ns an item", median(rounds.iter().map(|round| round[i])));
    }
    println!();
    let ratio = |a: usize, b: usize| median(rounds.iter().map(|round| round[a] / round[b]));
    report.bar("batches to crossbeam's bounded channel", ratio(1, 0), 1.0);
    report.bar("the same with room for 1,000", ratio(7, 6), 1.0);
    report.bar("push and pop to SegQueue, two threads", ratio(3, 2), 0.8);
    report.bar("push and pop to SegQueue, one thread", ratio(5, 4), 0.8);
}
