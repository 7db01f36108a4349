//! What stands behind a lease beside its scheduler: nothing, or, where many processes share a fleet, a claim on one unit.

use std::time::Duration;

use leasehold::Lease;

use super::asset::Asset;

/// Ties leases to claims, and watches what is done under them.
pub trait Claims: Send + Sync {
    /// The lease is about to be used. `None`: its claim has ended already.
    fn claimed(&self, lease: &mut Lease<'_, Asset>) -> Option<Box<dyn Claimed>>;
}

/// A use of a unit, until it is dropped, which is before the lease is returned.
pub trait Claimed: Send + Sync {
    /// For how long the unit may be used if nothing more is heard of the server; zero: not any more.
    fn left(&self) -> Duration;
}
