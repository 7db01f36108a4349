//! Hands out *leases* on the best available *resource* of a fleet, at once, to very many callers.

// Clippy sees through the facade's re-exports. The loom build, where they are loom's types, is where the ban on std's
// holds.
#![cfg_attr(not(loom), allow(clippy::disallowed_types))]

pub mod baseline;
mod outcome;
mod rank;
mod resource;
#[allow(dead_code)]
mod ring;
#[allow(dead_code)]
mod shard_set;
#[allow(dead_code)]
mod strategy;
#[allow(dead_code)]
mod sync;

pub use outcome::Outcome;
pub use rank::{Narrow, Priority};
pub use resource::{Capacity, Entry, Resource};
pub use strategy::{SelectShard, ShardView, Strategy};
pub use sync::{Clock, ManualClock, MonotonicClock, SplitMix64, Timestamp};

/// Hashes keys, unless another hasher is given: fast, seeded at random, and resistant to collisions made from outside
/// as far as `foldhash` is.
pub type DefaultHashBuilder = foldhash::quality::RandomState;

/// The inner modules, for benchmarks, fuzz targets and model checkers. Exempt from semantic versioning.
#[cfg(any(loom, shuttle, feature = "internals"))]
#[doc(hidden)]
pub mod internals {
    pub mod ring {
        pub use crate::ring::*;
    }
    pub mod shard_set {
        pub use crate::shard_set::*;
    }
    pub mod strategy {
        pub use crate::strategy::*;
    }
    pub mod sync {
        pub use crate::sync::*;
    }
}
