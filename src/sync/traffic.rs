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
//! **Not seen:** plain memory (heap entries, slots, values), `std`'s mutexes, and what the reclaimer and `ArcSwap`
//! do inside; pins and snapshots are counted as such.

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
    /// Snapshots of published values, each two accesses to a word of the thread's own.
    pub snapshots: u64,
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
            snapshots: self.snapshots - earlier.snapshots,
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
        Cell::new(Traffic { loads: 0, stores: 0, rmws: 0, fetched: 0, taken: 0, pins: 0, snapshots: 0 })
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

/// A snapshot of a published value.
pub fn note_snapshot() {
    note(|traffic| traffic.snapshots += 1);
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::sync::{CachePadded, atomic::AtomicU64};

    /// What `f` does in a thread of its own.
    fn elsewhere(f: impl FnOnce() + Send) -> Traffic {
        let here = || {
            let before = traffic();
            f();
            traffic() - before
        };
        thread::scope(|scope| scope.spawn(here).join().unwrap())
    }

    #[test]
    fn lines_go_to_and_fro() {
        let word = CachePadded::new(AtomicU64::new(0));
        let add = || _ = word.fetch_add(1, Ordering::Relaxed);
        let load = || _ = word.load(Ordering::Relaxed);
        add();
        assert_eq!(elsewhere(add), Traffic { rmws: 1, taken: 1, ..Traffic::default() });
        assert_eq!(elsewhere(load), Traffic { loads: 1, fetched: 1, ..Traffic::default() });
        let before = traffic();
        load();
        load();
        add();
        add();
        word.store(0, Ordering::Relaxed);
        let expected = Traffic { loads: 2, fetched: 1, rmws: 2, stores: 1, taken: 1, ..Traffic::default() };
        assert_eq!(traffic() - before, expected);
    }

    #[test]
    fn what_nobody_wrote_moves_once_it_is_written() {
        let word = CachePadded::new(AtomicU64::new(0));
        let load = || _ = word.load(Ordering::Relaxed);
        load();
        assert_eq!(elsewhere(load).fetched, 0);
        let before = traffic();
        word.store(1, Ordering::Relaxed);
        assert_eq!((traffic() - before).taken, 1);
        assert_eq!(elsewhere(|| (0..2).for_each(|_| load())).fetched, 1);
    }

    #[test]
    fn words_of_one_line_go_together() {
        let words = CachePadded::new([AtomicU64::new(0), AtomicU64::new(0)]);
        words[0].store(1, Ordering::Relaxed);
        assert_eq!(elsewhere(|| words[1].store(1, Ordering::Relaxed)).taken, 1);
        let before = traffic();
        words[0].store(1, Ordering::Relaxed);
        assert_eq!((traffic() - before).taken, 1);
    }
}
