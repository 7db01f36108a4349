//! What the words of the facade cost in traffic between cores; only in the build that counts, `--cfg leasehold_counted`.
//!
//! Each access of an atomic of the facade is counted for the thread that makes it, and its cache line is followed
//! through a model of a coherence protocol: a store leaves the line with the thread that made it alone, a load gives the
//! thread a copy.
//!
//! | access | moves the line from another core if |
//! |---|---|
//! | load | this thread does not have it, and it has been written |
//! | store, read-modify-write | another thread has it |
//!
//! A line that nobody has written since [`forget_lines`] comes to each thread once, and then stays: that is not counted.
//! Caches have no limit here.
//!
//! **Not seen:** plain memory (heap entries, slots, values), `std`'s mutexes, and what the reclaimer does
//! inside; pins are counted as such.

use std::{
    cell::Cell,
    ops::Sub,
    sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};

/// What one thread has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Loads of atomics.
    pub loads: u64,
    /// Stores to atomics.
    pub stores: u64,
    /// Read-modify-writes of atomics, successful or not.
    pub rmws: u64,
    /// Lines that had to come from another core for a load.
    pub fetched: u64,
    /// Lines that had to be taken from other cores for a store or a read-modify-write.
    pub taken: u64,
    /// Sections of the reclaimer, each two stores to a word of the thread's own.
    pub pins: u64,
}

impl Sub for Traffic {
    type Output = Traffic;

    fn sub(self, earlier: Traffic) -> Traffic {
        Traffic {
            loads: self.loads - earlier.loads,
            stores: self.stores - earlier.stores,
            rmws: self.rmws - earlier.rmws,
            fetched: self.fetched - earlier.fetched,
            taken: self.taken - earlier.taken,
            pins: self.pins - earlier.pins,
        }
    }
}

/// Lines are found by a hash; two that share an entry are taken for one. There are far fewer lines than entries.
const ENTRIES: usize = 1 << 22;
const LINE_BYTES: usize = 64;

/// What is known of a line.
struct Line {
    /// The threads that have it, a bit each.
    holders: AtomicU64,
    written: AtomicBool,
}

static LINES: [Line; ENTRIES] =
    [const { Line { holders: AtomicU64::new(0), written: AtomicBool::new(false) } }; ENTRIES];
static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static TRAFFIC: Cell<Traffic> = const {
        Cell::new(Traffic { loads: 0, stores: 0, rmws: 0, fetched: 0, taken: 0, pins: 0 })
    };
    /// This thread's bit. Threads beyond 64 share bits, and then see too few transfers.
    static BIT: u64 = 1 << (THREADS.fetch_add(1, Ordering::Relaxed) % 64);
}

/// What this thread has done since it began.
pub fn traffic() -> Traffic {
    TRAFFIC.get()
}

fn note(change: impl FnOnce(&mut Traffic)) {
    let mut traffic = TRAFFIC.get();
    change(&mut traffic);
    TRAFFIC.set(traffic);
}

/// From now on nobody has any line: what was done before, to prepare, is not what is counted.
pub fn forget_lines() {
    for line in &LINES {
        line.holders.store(0, Ordering::Relaxed);
        line.written.store(false, Ordering::Relaxed);
    }
}

fn line_of(address: usize) -> &'static Line {
    let hash = ((address / LINE_BYTES) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    &LINES[(hash >> 42) as usize]
}

/// A load at this address.
pub fn note_load<T>(word: *const T) {
    let bit = BIT.with(|bit| *bit);
    let line = line_of(word.addr());
    let has = line.holders.fetch_or(bit, Ordering::Relaxed) & bit != 0;
    let fetched = !has && line.written.load(Ordering::Relaxed);
    note(|traffic| {
        traffic.loads += 1;
        traffic.fetched += u64::from(fetched);
    });
}

/// Whether the line had to be taken from others.
fn own<T>(word: *const T) -> u64 {
    let bit = BIT.with(|bit| *bit);
    let line = line_of(word.addr());
    line.written.store(true, Ordering::Relaxed);
    u64::from(line.holders.swap(bit, Ordering::Relaxed) & !bit != 0)
}

/// A store at this address.
pub fn note_store<T>(word: *const T) {
    let taken = own(word);
    note(|traffic| {
        traffic.stores += 1;
        traffic.taken += taken;
    });
}

/// A read-modify-write at this address.
pub fn note_rmw<T>(word: *const T) {
    let taken = own(word);
    note(|traffic| {
        traffic.rmws += 1;
        traffic.taken += taken;
    });
}

/// A section of the reclaimer.
pub fn note_pin() {
    note(|traffic| traffic.pins += 1);
}
