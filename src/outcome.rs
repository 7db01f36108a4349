//! How a lease ended, as its holder saw it.

use std::time::Duration;

/// What became of the work that a lease was taken for.
///
/// Told when the lease is finished; one call returns the capacity and records the outcome, so that nobody can acquire
/// the resource between the two. A lease that is merely dropped says nothing about its resource.
///
/// Failures never improve a resource's standing: a resource that fails at once must not look like a fast one.
///
/// ```
/// use leasehold::Outcome;
/// use std::time::Duration;
///
/// let outcome = Outcome::RateLimited { retry_after: Duration::from_secs(30) };
/// assert_ne!(outcome, Outcome::Failed);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Outcome {
    /// The work succeeded.
    Ok {
        /// How long the resource took for it.
        latency: Duration,
    },
    /// The work failed, and the resource is to blame.
    Failed,
    /// The resource refused and said when to come back: it cools for that long, from the moment of the return on; if outcomes are
    /// remembered, at least for as long as [`Cooldown::on_rate_limit`](crate::Cooldown::on_rate_limit) says.
    RateLimited {
        /// How long to leave the resource alone.
        retry_after: Duration,
    },
    /// The work was given up for reasons that say nothing about the resource.
    Cancelled,
}
