//! The figures at one and two threads, and the price of a transfer.

use std::{
    hint::black_box,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use leasehold::{
    Strategy,
    baseline::{Lend, MutexScheduler},
};
use leasehold_benches::{RESOURCES, Worker, fill, median, scheduler, together};

use super::model::Kind;

/// What is measured and modelled.
pub struct Operation {
    pub name: &'static str,
    /// Under which name its traffic was counted.
    pub traffic: &'static str,
    pub kind: Kind,
    step: Box<dyn Fn(&mut Worker) + Sync>,
}

pub const STRICT: &str = "pair/strict";
pub const MUTEX: &str = "MutexScheduler pair";

/// As in `traffic`: what the library takes by default.
fn shards(threads: usize) -> usize {
    (4 * threads).min(64)
}

pub fn operations() -> Vec<Operation> {
    let fleet = |strategy| scheduler(RESOURCES, shards(2), strategy);
    let pair = |strategy| {
        let fleet = fleet(strategy);
        Box::new(move |_: &mut Worker| drop(black_box(fleet.acquire().expect("one is free")))) as Box<_>
    };
    let own = |name, kind, step| Operation { name, traffic: name, kind, step };
    let (peeked, gotten) = (fleet(Strategy::default()), fleet(Strategy::default()));
    let mutex = fill(MutexScheduler::new(), RESOURCES);
    vec![
        own("pair", Kind::Locks(shards), pair(Strategy::default())),
        own("pair/best-of-2", Kind::Locks(shards), pair(Strategy::BestOf { choices: 2 })),
        // All go for the best of all: one lock.
        own(STRICT, Kind::Locks(|_| 1), pair(Strategy::BestOf { choices: usize::MAX })),
        own(
            "peek",
            Kind::Free,
            Box::new(move |_| {
                black_box(peeked.peek().expect("one is free").value);
            }),
        ),
        own(
            "get",
            Kind::Free,
            Box::new(move |worker| {
                black_box(gotten.get(&worker.below(RESOURCES)).expect("all keys are there").value);
            }),
        ),
        Operation {
            name: MUTEX,
            traffic: STRICT,
            kind: Kind::Locks(|_| 1),
            step: Box::new(move |_| drop(black_box(mutex.acquire().expect("one is free")))),
        },
    ]
}

/// Nanoseconds per operation and thread.
pub struct Figures {
    pub alone: f64,
    pub two: f64,
}

const OPERATIONS: u64 = 300_000;
const ROUNDS: usize = 7;

impl Figures {
    pub fn of(operation: &Operation) -> Self {
        let run = |threads| {
            let time = together(threads, OPERATIONS, &operation.step);
            time.as_nanos() as f64 / OPERATIONS as f64
        };
        run(2);
        let rounds: Vec<_> = (0..ROUNDS).map(|_| [run(1), run(2)]).collect();
        let side = |side: usize| median(rounds.iter().map(|round| round[side]).collect());
        Figures { alone: side(0), two: side(1) }
    }
}

/// Nanoseconds for a line to go from one core to another: two threads write to it in turns, each waiting for the other.
/// The least of many short stretches: whatever else happens only makes one longer.
pub fn transfer_time() -> f64 {
    const TURNS: u64 = 100;
    const STRETCHES: u64 = 2_000;
    let turn = AtomicU64::new(0);
    let shortest = Mutex::new(f64::INFINITY);
    together(2, STRETCHES, |worker| {
        let own = worker.thread as u64;
        let start = Instant::now();
        for _ in 0..TURNS {
            let mut looks = 0;
            while turn.load(Ordering::Acquire) % 2 != own {
                looks += 1;
                // Without a processor of its own the other thread would never come.
                if looks % 10_000 == 9_999 { std::thread::yield_now() } else { std::hint::spin_loop() }
            }
            turn.fetch_add(1, Ordering::AcqRel);
        }
        // Both threads' turns are in the time of one.
        let time = start.elapsed().as_nanos() as f64 / TURNS as f64 / 2.0;
        let mut shortest = shortest.lock().expect("nobody panics");
        *shortest = shortest.min(time);
    });
    shortest.into_inner().expect("nobody panics")
}
