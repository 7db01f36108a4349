//! What connects the scheduler with runtimes and frameworks; each behind a feature of its own.
//!
//! | file | idea |
//! |---|---|
//! | `tokio` | tokio's time as timer and clock |
//! | `tower` | a lease for the life of a response |

#[cfg(feature = "tokio")]
mod tokio;
#[cfg(feature = "tower")]
pub mod tower;

#[cfg(feature = "tokio")]
pub use self::tokio::TokioTimer;
