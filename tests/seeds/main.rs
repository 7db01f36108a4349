//! The defects of the Go scheduler that this crate answers to, C1 to C30: one test each, by number, that fails if we have
//! it too. `docs/migrating-from-go.md` lists them; those that cannot exist here have their reason there.
//!
//! Races are hammered by real threads for a bounded number of rounds; the model checkers explore them exhaustively.
//!
//! Cost: about 5 s.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

mod choice;
mod states;
mod whole;

use std::{
    hash::{Hash, Hasher},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use leasehold::{
    AcquireError, AcquireKeyError, Affinity, BuildError, Capacity, Entry, InsertError, KeyError, ManualClock,
    Outcome, Overdue, ReleaseError, Resource, Scheduler, Standing, Strategy, Ties, WaitError, WeightsError,
};

type Plain = Entry<u32, u64, u64>;
type Fleet = Scheduler<Plain>;

const ROUNDS: u32 = 2_000;

fn fleet(shards: usize) -> Fleet {
    let strategy = Strategy::BestOf { choices: usize::MAX };
    Fleet::builder().shards(shards).strategy(strategy).build().expect("in range")
}

fn filled(shards: usize, count: u32) -> Fleet {
    let fleet = fleet(shards);
    for key in 0..count {
        fleet.insert(Entry::new(key, u64::from(key), 0)).expect("new");
    }
    fleet
}

/// Runs all at once, `rounds` times, and looks at the result of each round.
fn race(rounds: u32, all: &[&(dyn Fn() + Sync)], after: impl Fn()) {
    for _ in 0..rounds {
        let start = Barrier::new(all.len());
        std::thread::scope(|scope| {
            for &one in all {
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    one();
                });
            }
        });
        after();
    }
}

trait AfterRace {
    fn check_after_race(&self) -> (u64, u64);
}

impl AfterRace for Fleet {
    fn check_after_race(&self) -> (u64, u64) {
        #[cfg(feature = "internals")]
        self.check_invariants();
        let stats = self.stats();
        assert!(stats.consistent);
        (stats.members, stats.eligible)
    }
}
