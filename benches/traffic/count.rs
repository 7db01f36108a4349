//! Threads in turns, and what they did.

use std::{
    sync::{Condvar, Mutex},
    thread,
};

use leasehold::internals::sync::traffic::{Traffic, traffic};

use crate::operations::{OPERATIONS, Operation};

/// Operations of each thread that are counted, after as many that are not.
const COUNTED: u32 = 500;

/// As many shards as the library would take on a machine with a processor for each thread.
pub fn shards(threads: usize) -> usize {
    (4 * threads).min(64)
}

const THREADS: [usize; 6] = [1, 2, 8, 16, 32, 64];

pub fn print(tsv: bool) {
    if !tsv {
        println!("| operation | threads | shards | rmw | stores | loads | lines moved | pins | snapshots |");
        println!("|---|---|---|---|---|---|---|---|---|");
    }
    for operation in OPERATIONS {
        for threads in THREADS {
            let shards = shards(threads);
            let Traffic { loads, stores, rmws, fetched, taken, pins, snapshots } =
                count(operation, threads, shards);
            let per = |count: u64| count as f64 / (threads as u32 * COUNTED) as f64;
            let numbers = [rmws, stores, loads, fetched + taken, pins, snapshots].map(per);
            if tsv {
                let numbers = numbers.map(|number| format!("{number:.4}")).join("\t");
                println!("{}\t{threads}\t{shards}\t{numbers}", operation.name);
            } else {
                let numbers = numbers.map(|number| format!("{number:.2}")).join(" | ");
                println!("| {} | {threads} | {shards} | {numbers} |", operation.name);
            }
        }
    }
}

fn count(operation: &Operation, threads: usize, shards: usize) -> Traffic {
    let turn = Turn { next: Mutex::new(0), changed: Condvar::new(), threads };
    let step = (operation.prepare)(shards);
    let work = |thread: usize| {
        let mut before = Traffic::default();
        for round in 0..2 * COUNTED {
            if round == COUNTED {
                before = traffic();
            }
            turn.take(thread, || step(thread, round));
        }
        traffic() - before
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
        snapshots: sum.snapshots + one.snapshots,
    })
}

/// Whose turn it is. Not of the facade, so not counted.
struct Turn {
    next: Mutex<usize>,
    changed: Condvar,
    threads: usize,
}

impl Turn {
    fn take(&self, thread: usize, f: impl FnOnce()) {
        let mut next = self.next.lock().expect("nobody panics");
        while *next != thread {
            next = self.changed.wait(next).expect("nobody panics");
        }
        drop(next);
        f();
        *self.next.lock().expect("nobody panics") = (thread + 1) % self.threads;
        self.changed.notify_all();
    }
}
