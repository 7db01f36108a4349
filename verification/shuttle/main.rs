//! Random schedules of more threads and longer programs than loom can take, sequentially consistent.
//!
//! ```sh
//! SHUTTLE_SILENCE_WARNINGS=1 RUSTFLAGS="--cfg shuttle" cargo nextest run --test shuttle --features internals
//! ```
//!
//! `run` beside this file does that. A failure prints its schedule: run the scenario again with that text in
//! `SHUTTLE_REPLAY`, then pin it in `pinned.rs`.
//!
//! | file | what |
//! |---|---|
//! | `stories` | the whole scheduler, 4 or 5 threads, by story |
//! | `observing` | events from the rings to readers, beside a fleet at work |
//! | `looking` | looks, filters and evictions while batches come and values change |
//! | `shutdown` | drains, deadlines and the end |
//! | `tasks` | what the stories about waiting have in common |
//! | `waiting` | waiters of all kinds, shutdown |
//! | `queueing` | who is let into the queue, and who goes first |
//! | `wishes` | each kind of those who wait by itself; how each is counted |
//! | `timer` | the timer that wakes tasks |
//! | `timekeeper` | the thread that looks after the time |
//! | `lookup` | the map: random programs |
//! | `pool` | the worker pool: submitters, cancellations, panics, each way to end |
//! | `pinned` | schedules that failed once, and the way back from what a failure prints |
#![cfg(shuttle)]
// Clippy cannot tell the facade's names from those behind them.
#![allow(unsafe_code, missing_docs, dead_code, clippy::disallowed_types)]

#[path = "../linearizability/checker.rs"]
mod checker;
mod common;
#[path = "../linearizability/driver.rs"]
mod driver;
mod looking;
mod lookup;
mod observing;
mod pinned;
mod pool;
mod queueing;
mod shutdown;
#[path = "../linearizability/specification.rs"]
mod specification;
mod stories;
mod tasks;
mod timekeeper;
mod timer;
#[path = "../loom/told.rs"]
mod told;
mod waiting;
mod wishes;

/// Histories of random programs; the real threads' ones are in the `linearizability` target.
#[test]
fn histories() {
    common::scenario("histories", || stories::anything(4, 8));
}
