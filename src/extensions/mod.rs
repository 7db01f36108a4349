//! What connects the scheduler with runtimes and frameworks; each behind a feature of its own.
//!
//! | file | idea |
//! |---|---|
//! | `tokio` | tokio's time as timer and clock |
//! | `series` | what is measured, under which names |
//! | `pool_series` | the same of a worker pool |
//! | `prometheus` | collectors for `prometheus-client` |
//! | `metrics` | the `metrics` facade |
//! | `tracing` | events and spans for `tracing` |
//! | `tower` | a lease for the life of a response |

#[cfg(feature = "metrics")]
mod metrics;
#[cfg(all(any(feature = "prometheus", feature = "metrics"), feature = "pool"))]
mod pool_series;
#[cfg(feature = "prometheus")]
pub mod prometheus;
#[cfg(any(feature = "prometheus", feature = "metrics"))]
mod series;
#[cfg(feature = "tokio")]
mod tokio;
#[cfg(feature = "tower")]
pub mod tower;
#[cfg(feature = "tracing")]
pub mod tracing;

#[cfg(feature = "tokio")]
pub use self::tokio::TokioTimer;
#[cfg(all(feature = "metrics", feature = "pool"))]
pub use metrics::publish_pool_metrics;
#[cfg(feature = "metrics")]
pub use metrics::{describe_metrics, publish_metrics};
