//! One error type per family of operations. Each says which key, which state, which range was allowed.

use std::{error::Error, fmt, time::Duration};

use crate::{node::Standing, resource::Capacity, ring::RingError, strategy::StrategyError, sync::Timestamp};

/// Something that was handed in and not accepted: it comes back, with the reason.
pub struct Rejected<T, E> {
    /// What was handed in.
    pub returned: T,
    /// Why it was not accepted.
    pub error: E,
}

impl<T, E> Rejected<T, E> {
    /// What was handed in.
    pub fn into_inner(self) -> T {
        self.returned
    }
}

impl<T, E: fmt::Debug> fmt::Debug for Rejected<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rejected").field("error", &self.error).finish_non_exhaustive()
    }
}

impl<T, E: fmt::Display> fmt::Display for Rejected<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<T, E: Error> Error for Rejected<T, E> {}

/// Why a builder's settings make no scheduler.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum BuildError {
    /// The number of shards is out of range.
    Shards {
        /// What was asked for.
        given: usize,
        /// The largest number allowed; the smallest is 1.
        max: usize,
    },
    /// The strategy cannot work with these shards.
    Strategy(StrategyError),
    /// The ring cannot be built from these weights.
    Ring(RingError),
    /// There is not that much room for events.
    EventCapacity {
        /// What was asked for, per shard.
        given: usize,
        /// The largest number allowed.
        max: usize,
    },
    /// The rules of ejection are not consistent.
    Ejection {
        /// What is wrong.
        fault: &'static str,
    },
    /// No thread could be started for an observer.
    Observer {
        /// What the system says.
        error: String,
    },
    /// More resources are expected than the shards can hold.
    Expected {
        /// What was asked for.
        given: usize,
        /// The largest number allowed.
        max: usize,
    },
    /// There must be one weight per shard.
    Weights {
        /// How many were given.
        given: usize,
        /// How many shards there are.
        shards: usize,
    },
    /// A bounded fleet needs room for at least one resource, and at most `max`.
    MaxResources {
        /// What was asked for.
        given: usize,
        /// The largest number allowed; the smallest is 1.
        max: usize,
    },
    /// A lease that may be held for no time at all.
    MaxHold,
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::Shards { given, max } => write!(f, "{given} shards: allowed are 1 to {max}"),
            BuildError::Strategy(error) => error.fmt(f),
            BuildError::Ring(error) => error.fmt(f),
            BuildError::Ejection { fault } => write!(f, "rules of ejection: {fault}"),
            BuildError::Observer { error } => write!(f, "an observer has no thread: {error}"),
            BuildError::EventCapacity { given, max } => {
                write!(f, "room for {given} events per shard: at most {max} are allowed")
            }
            BuildError::Expected { given, max } => {
                write!(f, "{given} resources expected: at most {max} are allowed")
            }
            BuildError::Weights { given, shards } => {
                write!(f, "{given} weights: one for each of {shards} shards is needed")
            }
            BuildError::MaxResources { given, max } => {
                write!(f, "room for {given} resources: allowed are 1 to {max}")
            }
            BuildError::MaxHold => f.write_str("leases must be allowed to be held for more than no time"),
        }
    }
}

impl Error for BuildError {}

/// Why a resource was not inserted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InsertError<K> {
    /// A resource with this key is in the fleet, or another of the same batch has it.
    Duplicate {
        /// The key.
        key: K,
    },
    /// The fleet is bounded and full, and the overflow rule made no room.
    Full {
        /// The key.
        key: K,
        /// The most resources allowed.
        max: usize,
    },
    /// The home shard holds as many resources as it can tell apart.
    ShardFull {
        /// The key.
        key: K,
        /// The shard.
        shard: usize,
        /// The most resources allowed in it.
        max: usize,
    },
    /// The resource's capacity is out of range.
    Capacity {
        /// The key.
        key: K,
        /// What the resource asked for; allowed are 1 to [`Capacity::MAX`].
        capacity: Capacity,
    },
    /// The resource asked for a home that does not exist.
    Home {
        /// The key.
        key: K,
        /// What it asked for.
        home: usize,
        /// How many shards there are.
        shards: usize,
    },
    /// A callback of a batch's insertion has tried to insert a batch.
    Reentered,
    /// The scheduler is closed.
    Closed,
}

impl<K: fmt::Debug> fmt::Display for InsertError<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InsertError::Duplicate { key } => write!(f, "resource {key:?} is in the fleet already"),
            InsertError::Full { key, max } => {
                write!(f, "no room for resource {key:?}: at most {max} are allowed")
            }
            InsertError::ShardFull { key, shard, max } => {
                write!(f, "no room for resource {key:?} in shard {shard}: at most {max} are allowed there")
            }
            InsertError::Capacity { key, capacity } => {
                write!(f, "capacity of resource {key:?} is {capacity}: allowed are 1 to {}", Capacity::MAX)
            }
            InsertError::Home { key, home, shards } => {
                write!(f, "resource {key:?} wants shard {home}: allowed are 0 to {}", shards - 1)
            }
            InsertError::Reentered => {
                f.write_str("a callback of a batch's insertion must not insert a batch")
            }
            InsertError::Closed => f.write_str(CLOSED),
        }
    }
}

impl<K: fmt::Debug> Error for InsertError<K> {}

/// Why a resource was not updated.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UpdateError<K> {
    /// No resource with this key is in the fleet.
    NotFound {
        /// The key.
        key: K,
    },
    /// The new value has another key; keys are immutable.
    KeyChanged {
        /// The key in the fleet.
        key: K,
    },
    /// The new value's capacity is out of range.
    Capacity {
        /// The key.
        key: K,
        /// What the new value asked for; allowed are 1 to [`Capacity::MAX`].
        capacity: Capacity,
    },
    /// The scheduler is closed.
    Closed,
}

impl<K> UpdateError<K> {
    /// The same error, with the key as the caller spelled it.
    pub(super) fn about<O>(self, key: O) -> UpdateError<O> {
        match self {
            UpdateError::NotFound { .. } => UpdateError::NotFound { key },
            UpdateError::KeyChanged { .. } => UpdateError::KeyChanged { key },
            UpdateError::Capacity { capacity, .. } => UpdateError::Capacity { key, capacity },
            UpdateError::Closed => UpdateError::Closed,
        }
    }
}

impl<K: fmt::Debug> fmt::Display for UpdateError<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UpdateError::NotFound { key } => write!(f, "resource {key:?} is not in the fleet"),
            UpdateError::KeyChanged { key } => write!(f, "an update of resource {key:?} must keep its key"),
            UpdateError::Capacity { key, capacity } => {
                write!(f, "capacity of resource {key:?} is {capacity}: allowed are 1 to {}", Capacity::MAX)
            }
            UpdateError::Closed => f.write_str(CLOSED),
        }
    }
}

impl<K: fmt::Debug> Error for UpdateError<K> {}

/// Why an operation on one named resource did nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyError<K> {
    /// No resource with this key is in the fleet.
    NotFound {
        /// The key.
        key: K,
    },
    /// The scheduler is closed.
    Closed,
}

impl<K: fmt::Debug> fmt::Display for KeyError<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyError::NotFound { key } => write!(f, "resource {key:?} is not in the fleet"),
            KeyError::Closed => f.write_str(CLOSED),
        }
    }
}

impl<K: fmt::Debug> Error for KeyError<K> {}

/// Why a named resource was not lent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AcquireKeyError<K> {
    /// No resource with this key is in the fleet.
    NotFound {
        /// The key.
        key: K,
    },
    /// It is in the fleet, but not eligible.
    NotEligible {
        /// The key.
        key: K,
        /// What stood in the way.
        standing: Standing,
        /// Leases out.
        in_flight: u32,
        /// When it can be lent by itself: its cooling, or an ejection by the rules, ends. `None` if that takes a return, or somebody
        /// who clears a hold.
        earliest: Option<Timestamp>,
    },
    /// The scheduler is closed.
    Closed,
}

impl<K: fmt::Debug> fmt::Display for AcquireKeyError<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AcquireKeyError::NotFound { key } => write!(f, "resource {key:?} is not in the fleet"),
            AcquireKeyError::NotEligible { key, standing, in_flight, .. } => {
                let leases = if *in_flight == 1 { "lease" } else { "leases" };
                write!(
                    f,
                    "resource {key:?} is not eligible: {}, {in_flight} {leases} out",
                    in_words(*standing)
                )
            }
            AcquireKeyError::Closed => f.write_str(CLOSED),
        }
    }
}

impl<K: fmt::Debug> Error for AcquireKeyError<K> {}

const fn in_words(standing: Standing) -> &'static str {
    match standing {
        Standing::Eligible => "eligible",
        Standing::AtCapacity => "at capacity",
        Standing::Cooling => "cooling",
        Standing::Ejected => "ejected",
        Standing::Draining => "draining",
        Standing::Excluded => "excluded",
        Standing::Staged => "not yet in the fleet",
        Standing::Removed => "removed",
    }
}

/// Why nothing was lent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AcquireError {
    /// At some instant inside the call no resource was eligible (and passed the filter, if there was one).
    NoneEligible(NoneEligible),
    /// A custom strategy chose a shard that does not exist.
    Strategy {
        /// What it chose.
        chosen: usize,
        /// How many shards there are.
        shards: usize,
    },
    /// The scheduler is closed.
    Closed,
}

impl fmt::Display for AcquireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AcquireError::NoneEligible(none) => none.fmt(f),
            AcquireError::Strategy { chosen, shards } => {
                write!(f, "the strategy chose shard {chosen}: allowed are 0 to {}", shards - 1)
            }
            AcquireError::Closed => f.write_str(CLOSED),
        }
    }
}

impl Error for AcquireError {}

/// The state of the fleet at the instant at which no resource was eligible.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NoneEligible {
    /// How many resources are kept from being lent, and by what.
    pub reasons: Reasons,
    /// The earliest moment at which a resource will be eligible by itself, on the scheduler's clock. `None` if that takes
    /// a return, or somebody to clear a hold.
    pub earliest: Option<Timestamp>,
    /// The same as a span of time from now: what an HTTP server puts into `Retry-After`. A return may make a resource eligible
    /// earlier.
    pub retry_after: Option<Duration>,
}

impl NoneEligible {
    /// Somebody will be eligible at `earliest`, which is after `now`.
    pub(super) fn until(&mut self, earliest: u64, now: u64) {
        let (earliest, now) = (Timestamp::from_nanos(earliest), Timestamp::from_nanos(now));
        self.earliest = Some(earliest);
        self.retry_after = Some(earliest.saturating_since(now));
    }
}

impl fmt::Display for NoneEligible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Reasons { at_capacity, cooling, ejected, draining, excluded, filtered } = self.reasons;
        let reasons = [
            (at_capacity, "at capacity"),
            (cooling, "cooling"),
            (ejected, "ejected"),
            (draining, "draining"),
            (excluded, "excluded"),
            (filtered, "filtered out"),
        ];
        f.write_str("no resource is eligible")?;
        let mut separator = ": ";
        for (count, reason) in reasons.into_iter().filter(|(count, _)| *count > 0) {
            write!(f, "{separator}{count} {reason}")?;
            separator = ", ";
        }
        if self.reasons == Reasons::default() {
            f.write_str(": the fleet is empty")?;
        }
        match self.retry_after {
            Some(after) => write!(f, "; the next one in {after:?}"),
            None => Ok(()),
        }
    }
}

/// How many resources are kept from being lent, each counted under the one reason that matters most: excluded before
/// draining before ejected before at capacity before cooling.
///
/// Of the whole fleet, also if the caller's filter refuses some: what stands in the way of those is counted too, so that one at capacity need not
/// be one whose return would help. [`earliest`](NoneEligible::earliest) is of those that it accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Reasons {
    /// Every unit of capacity is out.
    pub at_capacity: u64,
    /// Only a deadline stands in the way.
    pub cooling: u64,
    /// Found unhealthy.
    pub ejected: u64,
    /// Leases run out before it goes.
    pub draining: u64,
    /// Taken out of rotation.
    pub excluded: u64,
    /// Eligible, but the caller's filter said no.
    pub filtered: u64,
}

impl Reasons {
    /// One more that stands there.
    pub(super) fn count(&mut self, standing: Standing) {
        self.add(standing, 1);
    }

    /// So many more that stand there.
    pub(super) fn add(&mut self, standing: Standing, number: u64) {
        match standing {
            Standing::AtCapacity => self.at_capacity += number,
            Standing::Cooling => self.cooling += number,
            Standing::Ejected => self.ejected += number,
            Standing::Draining => self.draining += number,
            Standing::Excluded => self.excluded += number,
            // Nothing is in the way, or it is not in the fleet.
            Standing::Eligible | Standing::Staged | Standing::Removed => {}
        }
    }

    /// All of them.
    pub const fn total(&self) -> u64 {
        self.at_capacity + self.cooling + self.ejected + self.draining + self.excluded + self.filtered
    }
}

/// Why a token, or the guard of a lease that has one, returned nothing. No other lease is touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReleaseError {
    /// The lease of this token has been returned already.
    Stale {
        /// The generation in the token.
        generation: u32,
        /// The generation that the slot has reached.
        current: u32,
    },
    /// The lease was taken back: it was overdue, or [`Scheduler::revoke`](crate::Scheduler::revoke) was called. Its resource may
    /// have been lent to others since.
    ///
    /// A guard is told this at any time. Of tokens without a guard the last 4,096 that were revoked are remembered; a later
    /// return is told that it is stale.
    Revoked {
        /// The generation of the lease.
        generation: u32,
    },
    /// The token was made by another scheduler, or by nobody.
    Foreign,
}

impl fmt::Display for ReleaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReleaseError::Stale { generation, current } => {
                write!(
                    f,
                    "the lease of this token was returned already: generation {generation}, now {current}"
                )
            }
            ReleaseError::Revoked { generation } => {
                write!(f, "the lease was revoked: generation {generation}")
            }
            ReleaseError::Foreign => f.write_str("the token is not one of this scheduler"),
        }
    }
}

impl Error for ReleaseError {}

/// Why new shard weights were not taken.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum WeightsError {
    /// The scheduler is closed.
    Closed,
    /// The ring cannot be built from them.
    Ring(RingError),
    /// There must be one weight per shard.
    Length {
        /// How many were given.
        given: usize,
        /// How many shards there are.
        shards: usize,
    },
}

impl fmt::Display for WeightsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WeightsError::Closed => f.write_str(CLOSED),
            WeightsError::Ring(error) => error.fmt(f),
            WeightsError::Length { given, shards } => {
                write!(f, "{given} weights: one for each of {shards} shards is needed")
            }
        }
    }
}

impl Error for WeightsError {}

const CLOSED: &str = "the scheduler is closed";
