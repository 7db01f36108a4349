//! One vocabulary and one truth for every sequential check of the scheduler.
//!
//! | file | idea |
//! |---|---|
//! | `resource` | the resource that is lent: its rank, capacity and home follow from a `Spec`; counts who is alive |
//! | `config` | a scheduler's settings, decoded from bytes |
//! | `op` | one `Op` for every operation of the public interface, decoded from bytes |
//! | `oracle` | the plain sequential scheduler: ordered maps, no heap, no state word, no lock |
//! | `drive` | runs operations on the real scheduler and the oracle side by side, and compares everything |
//!
//! A plain module, not a crate: `#[path = "../model/mod.rs"] mod model;`. It depends on the standard library and on
//! `leasehold` with the feature `internals`. Six bytes make one operation, so that a fuzzer's bytes and a property
//! test's arrays are the same thing.
//!
//! Cost: about 2 µs an operation with optimisation level 1, the full structure check after each included.
#![allow(dead_code, unused_imports)]

mod config;
mod drive;
mod op;
mod oracle;
mod resource;

pub use config::{Config, Plan};
pub use drive::{Coverage, Driver, Scheduler, run, settle};
pub use op::{Accept, Change, Ended, Op};
pub use oracle::Oracle;
pub use resource::{Item, Key, Ledger, ModelHash, Planted, Probe, Site, Slope, Spec, probe};
