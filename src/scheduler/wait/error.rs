//! Why a wait ended without a lease.

use std::{error::Error, fmt, time::Duration};

/// Why a wait ended without a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitError {
    /// The scheduler is closed, or was closed meanwhile.
    Closed,
    /// The deadline came first.
    TimedOut {
        /// How long the request has waited.
        waited: Duration,
    },
    /// So many wait already that no more are let in.
    QueueFull {
        /// How many wait.
        waiting: usize,
        /// The most allowed.
        max: usize,
    },
    /// The deadline cannot be met as things go; told at once instead of after a wait in vain.
    Shed {
        /// How long it is expected to take; zero if nothing was handed over yet.
        expected: Duration,
        /// How long there was time.
        left: Duration,
    },
    /// The resource that was asked for is not in the fleet, or was removed meanwhile.
    NotFound,
    /// A custom strategy chose a shard that does not exist.
    Strategy {
        /// What it chose.
        chosen: usize,
        /// How many shards there are.
        shards: usize,
    },
}

impl fmt::Display for WaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WaitError::Closed => f.write_str("the scheduler is closed"),
            WaitError::TimedOut { waited } => write!(f, "nothing became available in {waited:?}"),
            WaitError::QueueFull { waiting, max } => {
                write!(f, "{waiting} requests are waiting: at most {max} are allowed")
            }
            WaitError::Shed { left: Duration::ZERO, .. } => f.write_str("the deadline has passed already"),
            WaitError::Shed { expected, left } => {
                write!(f, "the deadline cannot be met: about {expected:?} to wait, {left:?} left")
            }
            WaitError::NotFound => f.write_str("the resource that was asked for is not in the fleet"),
            WaitError::Strategy { chosen, shards } => {
                write!(f, "the strategy chose shard {chosen}: allowed are 0 to {}", shards - 1)
            }
        }
    }
}

impl Error for WaitError {}
