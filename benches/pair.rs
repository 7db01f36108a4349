//! Acquires and returns without waiting, and nothing else, so that `callgrind` counts the instructions of a pair: the difference
//! of two runs, divided by the difference of their numbers of pairs.
//!
//! ```sh
//! valgrind --tool=callgrind target/release/pair 100000
//! ```
//!
//! Only calls that were there before waiting was: the same program measures older versions.

use leasehold::{Entry, Scheduler};

fn main() {
    let pairs: u32 = std::env::args().nth(1).and_then(|pairs| pairs.parse().ok()).expect("a number of pairs");
    let fleet = Scheduler::<Entry<u32, u32, ()>>::builder().shards(8).seed(1).build().expect("valid");
    for key in 0..50 {
        fleet.insert(Entry::new(key, key % 5, ())).expect("a new key");
    }
    for _ in 0..pairs {
        drop(std::hint::black_box(fleet.acquire().expect("one is free")));
    }
}
