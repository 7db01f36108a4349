//! Hands out *leases* on the best available *resource* of a fleet, at once, to very many callers.

mod heap;
mod lookup;
mod node;
mod rank;
mod resource;
mod scheduler;
mod shard;
mod sync;

pub use node::{Hold, Standing};
pub use rank::{Narrow, Priority};
pub use resource::{Capacity, Entry, Resource};
pub use scheduler::{
    AcquireError, AcquireKeyError, BuildError, Builder, InsertError, KeyError, Lease, NoneEligible, Overflow,
    OwnedLease, ParseTokenError, Peek, Reasons, Rejected, ReleaseError, Removed, ResourceState, Scheduler, Stats, Token,
    UpdateError, WeightsError,
};
pub use shard::Ties;
pub use sync::{Clock, ManualClock, MonotonicClock, SplitMix64, Timestamp};

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
    pub mod sync {
        pub use crate::sync::*;
    }
}
