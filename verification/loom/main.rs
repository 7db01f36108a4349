//! All interleavings of two or three threads and few steps, and all orderings that the memory model allows them.
//!
//! ```sh
//! LOOM_MAX_PREEMPTIONS=2 RUSTFLAGS="--cfg loom --cfg crossbeam_loom" \
//!     cargo nextest run --test loom --features internals
//! ```
//!
//! `run` beside this file does that, and prints what each model cost. Run under nextest: a model that fails while epochs
//! are live aborts its process.
//!
//! | file | protocol |
//! |---|---|
//! | `spinlock` | exclusion, hand-over of what is guarded, the way to sleep |
//! | `transitions` | each pair of transitions of one resource, and of insertion with them |
//! | `lookup` | the map, alone |
#![cfg(loom)]
#![allow(unsafe_code, missing_docs)]

#[path = "../linearizability/checker.rs"]
mod checker;
mod common;
#[path = "../linearizability/driver.rs"]
mod driver;
mod lookup;
#[path = "../linearizability/specification.rs"]
mod specification;
mod spinlock;
mod transitions;
