//! Hands out *leases* on the best available *resource* of a fleet, at once, to very many callers.

// Clippy sees through the facade's re-exports. The loom build, where they are loom's types, is where the ban on std's
// holds.
#![cfg_attr(not(loom), allow(clippy::disallowed_types))]

pub mod baseline;
mod heap;
mod lookup;
mod node;
mod outcome;
mod rank;
mod resource;
mod ring;
mod scheduler;
mod shard;
mod shard_set;
mod strategy;
mod sync;

pub use node::{Hold, Standing};
pub use outcome::Outcome;
pub use rank::{Narrow, Priority};
pub use resource::{Capacity, Entry, Resource};
pub use ring::{Ring, RingError};
pub use scheduler::{
    AcquireError, AcquireKeyError, BuildError, Builder, InsertError, KeyError, Lease, NoneEligible, Overflow,
    OwnedLease, ParseTokenError, Peek, Reasons, Rejected, ReleaseError, Removed, ResourceState, Scheduler,
    Stats, Token, UpdateError, WeightsError,
};
pub use shard::Ties;
pub use strategy::{SelectShard, ShardView, Strategy, StrategyError};
pub use sync::{Clock, ManualClock, MonotonicClock, SplitMix64, Timestamp};

/// Hashes keys, unless another hasher is given: fast, seeded at random, and resistant to collisions made from outside
/// as far as `foldhash` is.
pub type DefaultHashBuilder = foldhash::quality::RandomState;

/// The inner modules, for benchmarks, fuzz targets and model checkers. Exempt from semantic versioning.
#[cfg(any(loom, shuttle, feature = "internals"))]
#[doc(hidden)]
pub mod internals {
    pub mod heap {
        pub use crate::heap::*;
    }
    pub mod lookup {
        pub use crate::lookup::*;
    }
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
