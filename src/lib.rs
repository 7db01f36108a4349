//! Hands out *leases* on the best available *resource* of a fleet, at once, to very many callers.

#[allow(dead_code)]
mod lookup;
mod rank;
mod resource;
#[allow(dead_code)]
mod sync;

pub use rank::{Narrow, Priority};
pub use resource::{Capacity, Entry, Resource};
pub use sync::{Clock, ManualClock, MonotonicClock, SplitMix64, Timestamp};

/// The inner modules, for benchmarks, fuzz targets and model checkers. Exempt from semantic versioning.
#[cfg(any(loom, shuttle, feature = "internals"))]
#[doc(hidden)]
pub mod internals {
    pub mod lookup {
        pub use crate::lookup::*;
    }
    pub mod sync {
        pub use crate::sync::*;
    }
}
