//! Threads in turns, and what they did.

use std::{
    sync::{
        Barrier, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    thread::{self, Thread},
};

use leasehold::internals::sync::traffic::{Traffic, forget_lines, traffic};

use crate::operations::{OPERATIONS, Operation, RESOURCES};

/// Operations of each thread that are counted.
const COUNTED: u32 = 500;

/// Operations of all threads before: every resource has been used a few times.
const BEFORE: u32 = 5 * RESOURCES;

/// As many shards as the library would take on a machine with a processor for each thread.
pub fn shards(threads: usize) -> usize {
    (4 * threads).min(64)
}

const THREADS: [usize; 6] = [1, 2, 8, 16, 32, 64];

/// Prints a row for each operation; answers the same as lines of numbers for the program `queueing`: operation, threads,
/// shards, read-modify-writes, stores, loads, lines moved, pins.
pub fn print() -> String {
    let heads: String = THREADS.iter().map(|threads| format!(" {threads} |")).collect();
    println!("| operation | rmw | stores | loads | pins | lines moved, threads:{heads}");
    println!("|---|---|---|---|---|{}", "---|".repeat(1 + THREADS.len()));
    let mut lines = String::new();
    for operation in OPERATIONS {
        let counts = THREADS.map(|threads| {
            let shards = shards(threads);
            let Traffic { loads, stores, rmws, fetched, taken, pins } = count(operation, threads, shards);
            let per = |count: u64| count as f64 / f64::from(threads as u32 * COUNTED);
            let numbers = [rmws, stores, loads, fetched + taken, pins].map(per);
            let columns = numbers.map(|number| format!("{number:.4}")).join("\t");
            lines += &format!("{}\t{threads}\t{shards}\t{columns}\n", operation.name);
            numbers
        });
        let [rmws, stores, loads, _, pins] = counts[0];
        print!("| {} | {rmws:.1} | {stores:.1} | {loads:.1} | {pins:.0} | |", operation.name);
        counts.iter().for_each(|numbers| print!(" {:.1} |", numbers[3]));
        println!();
    }
    lines
}

fn count(operation: &Operation, threads: usize, shards: usize) -> Traffic {
    let turns = Turns::new(threads);
    let step = (operation.prepare)(shards);
    forget_lines();
    let before = (BEFORE / threads as u32).max(COUNTED);
    let work = |thread: usize| {
        turns.come(thread);
        (0..before).for_each(|round| turns.take(thread, || step(thread, round)));
        let started = traffic();
        (before..before + COUNTED).for_each(|round| turns.take(thread, || step(thread, round)));
        traffic() - started
    };
    let all: Vec<Traffic> = thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("every operation succeeds")).collect()
    });
    all.into_iter().fold(Traffic::default(), |sum, one| Traffic {
        loads: sum.loads + one.loads,
        stores: sum.stores + one.stores,
        rmws: sum.rmws + one.rmws,
        fetched: sum.fetched + one.fetched,
        taken: sum.taken + one.taken,
        pins: sum.pins + one.pins,
    })
}

/// Whose turn it is. Not of the facade, so not counted.
struct Turns {
    next: AtomicUsize,
    threads: Vec<OnceLock<Thread>>,
    all: Barrier,
}

impl Turns {
    fn new(threads: usize) -> Self {
        let (next, all) = (AtomicUsize::new(0), Barrier::new(threads));
        Turns { next, threads: (0..threads).map(|_| OnceLock::new()).collect(), all }
    }

    /// Waits until all threads have come.
    fn come(&self, thread: usize) {
        self.threads[thread].set(thread::current()).expect("each comes once");
        self.all.wait();
    }

    fn take(&self, thread: usize, f: impl FnOnce()) {
        while self.next.load(Ordering::Acquire) != thread {
            thread::park();
        }
        f();
        let next = (thread + 1) % self.threads.len();
        self.next.store(next, Ordering::Release);
        self.threads[next].get().expect("all have come").unpark();
    }
}
