//! Why a cluster does not start.

use std::{error::Error, fmt, time::Duration};

use super::{terms::TermsError, unit::RollError};
use crate::sync::Arc;

/// Bytes of a member's name.
pub const MAX_NAME: usize = 200;

/// Why a cluster does not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// Times that cannot be kept.
    Terms(TermsError),
    /// A list that is no fleet.
    Roll(RollError),
    /// Two shares make resources with one key.
    Keys,
    /// A member's name is 1 to 200 bytes without control characters.
    Name(Arc<str>),
    /// The scheduler does not record its leases, so they could not be revoked.
    Unrecorded,
    /// The scheduler takes leases back that are held for longer than `max_hold` ([`Overdue::Revoke`](crate::Overdue::Revoke)), and a budget's
    /// period is no shorter: a use that has begun would be lent again before its period is over.
    MaxHold {
        /// Which budget.
        name: Arc<str>,
        /// Its period.
        period: Duration,
        /// After how long leases are taken back.
        max_hold: Duration,
    },
    /// The scheduler is bounded: making room would remove resources, and with them the count of their leases.
    Bounded,
    /// The fleet has another time to live.
    Refused {
        /// The fleet's.
        ttl: Duration,
    },
    /// The engine does not answer.
    Engine(String),
    /// The system starts no thread.
    Thread(std::io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Terms(error) => error.fmt(f),
            StartError::Roll(error) => error.fmt(f),
            StartError::Keys => f.write_str("two shares make resources with the same key: each needs a key of its own"),
            StartError::Name(name) => {
                write!(f, "the member's name is {name:?}: 1 to {MAX_NAME} bytes without control characters are allowed")
            }
            StartError::Unrecorded => f.write_str(
                "the scheduler does not record its leases, so those that outlive their claims could not be revoked: set \
                 `Builder::max_hold`, or allow `Terms::unrecorded_leases` and use fences",
            ),
            StartError::MaxHold { name, period, max_hold } => write!(
                f,
                "the scheduler takes leases back after {max_hold:?}, and the budget {name:?} has a period of {period:?}: its uses would be lent \
                 again too early; set a `Builder::max_hold` longer than that, or `Overdue::Report`"
            ),
            StartError::Bounded => f.write_str(
                "the scheduler has `Builder::max_resources`, and the cluster decides which resources it has: leave the bound out",
            ),
            StartError::Refused { ttl } => write!(
                f,
                "the fleet has a time to live of {ttl:?}: use that; to change it stop all processes, then use another name for the fleet"
            ),
            StartError::Engine(message) => write!(
                f,
                "the engine does not answer: {message}; start it, or choose `Start::Empty` to begin without units"
            ),
            StartError::Thread(error) => write!(f, "no thread could be started: {error}"),
        }
    }
}

impl Error for StartError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            StartError::Terms(error) => Some(error),
            StartError::Roll(error) => Some(error),
            StartError::Thread(error) => Some(error),
            _ => None,
        }
    }
}
