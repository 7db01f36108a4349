//! Hands out *leases* on the best available *resource* of a fleet, at once, to very many callers.
//!
//! A [`Scheduler`] owns a fleet of [`Resource`]s: API keys, replicas, proxies, accounts, devices. [`Scheduler::acquire`]
//! lends the best one that is eligible; dropping the [`Lease`] returns it. Nothing waits for a global lock, nothing is
//! allocated on that path, no thread runs in the background, and time is read only while something is cooling, somebody waits, or leases have a
//! limit.
//!
//! ```
//! use leasehold::{Entry, Scheduler};
//! use std::time::Duration;
//!
//! let proxies = Scheduler::<Entry<&str, u32, u16>>::builder().shards(1).build()?;
//! proxies.insert(Entry::new("near", 1, 3128))?;
//! proxies.insert(Entry::new("far", 2, 3128))?;
//!
//! let lease = proxies.acquire()?;
//! assert_eq!((*lease.key(), lease.value), ("near", 3128));
//! // It is busy: give it back, and let it rest.
//! lease.release_after(Duration::from_secs(5));
//! assert_eq!(*proxies.acquire()?.key(), "far");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Vocabulary
//!
//! | word | meaning |
//! |---|---|
//! | resource | a value of the user's type; it has a key, a priority and a capacity. [`Entry`] wraps foreign types |
//! | key | identity, unique in the scheduler, immutable |
//! | rank | a `u64`, the order-preserving image of a [`Priority`]; **lower is better** |
//! | [`Capacity`] | how many leases may be out at once: one, n, or unlimited |
//! | in-flight | leases out now |
//! | [`Hold`] | a reason why a resource is not lent: excluded, cooling, ejected, draining. Independent of each other and of leases |
//! | eligible | no hold, and fewer leases out than the capacity |
//! | [`Lease`] | a guard for one unit of capacity |
//! | [`Token`] | the same as 16 bytes that may be copied; good for one return |
//! | shard | one lock and one heap; a resource lives in its home shard for life |
//! | [`Peek`] | a look at a value, without taking capacity |
//!
//! # What it does
//!
//! | to | use |
//! |---|---|
//! | lend | [`acquire`](Scheduler::acquire), [`acquire_key`](Scheduler::acquire_key), [`acquire_where`](Scheduler::acquire_where), [`acquire_excluding`](Scheduler::acquire_excluding), [`acquire_by_affinity`](Scheduler::acquire_by_affinity), [`acquire_many`](Scheduler::acquire_many); each also `_owned` |
//! | wait | [`request`](Scheduler::request), [`acquire_timeout`](Scheduler::acquire_timeout), [`acquire_async`](Scheduler::acquire_async) and the same for each way to lend; [`tick`](Scheduler::tick) |
//! | return | drop, [`Lease::release_after`], [`Lease::finish`] with an [`Outcome`], [`Scheduler::release`] for a token |
//! | look | [`peek`](Scheduler::peek), [`get`](Scheduler::get), [`stats`](Scheduler::stats), [`snapshot`](Scheduler::snapshot), [`acquire_explained`](Scheduler::acquire_explained) and the same for each way to lend at once but `acquire_many`, [`observe`](Scheduler::observe), [`take_events`](Scheduler::take_events) |
//! | change the fleet | [`insert`](Scheduler::insert), [`insert_batch`](Scheduler::insert_batch), [`update`](Scheduler::update), [`update_with`](Scheduler::update_with), [`remove`](Scheduler::remove), [`evict_worst`](Scheduler::evict_worst) |
//! | limit how long | [`Builder::max_hold`], [`leases`](Scheduler::leases), [`overdue`](Scheduler::overdue), [`revoke`](Scheduler::revoke), [`Lease::renew`] |
//! | shut down | [`drain_all`](Scheduler::drain_all), [`drain_timeout`](Scheduler::drain_timeout), [`drain_async`](Scheduler::drain_async), [`close`](Scheduler::close) |
//! | hold | [`exclude`](Scheduler::exclude) / [`include`](Scheduler::include), [`cool`](Scheduler::cool) / [`warm`](Scheduler::warm), [`eject`](Scheduler::eject) / [`readmit`](Scheduler::readmit), [`drain`](Scheduler::drain) / [`undrain`](Scheduler::undrain) |
//!
//! # Guarantees
//!
//! * **Capacity.** Leases out on a resource never exceed its capacity at the time of lending. An update that lowers the
//!   capacity revokes nothing: no more are lent until enough have come back.
//! * **One step.** Each change of a resource's state is one compare-and-swap of its state word.
//! * **Honest "none".** [`AcquireError::NoneEligible`] is answered only if at some instant inside the call nothing was
//!   eligible; it carries the reasons and the earliest moment at which something will be.
//! * **No user code under a lock.** Not a comparison, a hash, a clone, a drop or a closure. Each callback may panic: every
//!   lock is free then and no resource is lost. The one exception to "under no lock" is named at
//!   [`insert_batch`](Scheduler::insert_batch): other batches wait while the keys' `Eq` runs.
//! * **Fair waiting.** While somebody waits, what is returned goes to the first in order that it satisfies, directly; [`Fairness`]
//!   has the exceptions. A wait that is given up at any moment loses nothing.
//! * **Revocation fences.** Of guard, token and revocation one ends a lease; whoever comes later is told so, and touches nothing.
//! * **Exact counts.** [`Stats`] are counted where the change happens, not made of [`Event`]s. Events may find no room; each
//!   that is dropped is counted, and shows as a gap in the sequence, once another one of its shard comes.
//!
//! # Order
//!
//! Within a shard the best resource goes first, and of equals the one that has rested longest (or the one used last, see
//! [`Ties`]). Between shards the [`Strategy`] decides how much order is traded for speed. With one shard, or with
//! [`Strategy::BestOf`] over all shards, the best of the fleet is lent; with the default, a good one.
//!
//! # Features
//!
//! None is on by default; the plain library is complete.
//!
//! | feature | adds |
//! |---|---|
//! | `cli` | the command-line tool, with its dependencies |
//! | `peers` | `cli`, and other people's maps for `leasehold compare` |
//! | `serde` | `Serialize` for [`Stats`], [`Reasons`], [`Outcome`], [`ResourceState`], [`Snapshot`], [`Hold`], [`Standing`], [`Capacity`], [`Event`], [`EventKind`], [`Explanation`] |
//! | `tokio` | `TokioTimer`: a tokio runtime as the scheduler's timer, and its time as clock |
//! | `tower` | `tower::LeaseLayer`: a lease for the life of a response |
//! | `http-body` | `tower`, and leases that are held until the body of an `http::Response` ends |
//! | `seize` | the second reclaimer of the lookup map, for benchmarks and tests; the scheduler keeps to counted sections |
//! | `pool` | [`pool`]: a worker pool |
//! | `pinning` | `pool`, whose workers can be kept on processors |
//! | `cluster` | `cluster`: one fleet shared by many processes, through a Redis or Valkey server |
//! | `telemetry` | `Builder::measure`: distributions of hold and waiting times, and of the error in rank |
//! | `prometheus` | `prometheus::SchedulerCollector` and, with `pool`, `PoolCollector`, for the registry of `prometheus-client`; implies `telemetry` |
//! | `metrics` | `publish_metrics`, of a pool `publish_pool_metrics`, and `describe_metrics`, for the `metrics` facade; implies `telemetry` |
//! | `tracing` | `tracing::TracingObserver`; `tracing::traced`, `TracedLease` and their kin: spans around acquisitions and leases |
//! | `internals` | inner modules and structure checks, exempt from semantic versioning |
//!
//! # Limitations
//!
//! * [`Outcome`]s change what is lent next only if the builder says so: [`Builder::ejection`], [`Builder::cooldown`],
//!   [`Builder::rank_by_outcomes`].
//! * A resource never changes its shard, and the number of shards is fixed. Insertion balances, removal does not.
//! * A shard holds at most 16,777,215 resources, a resource at most [`Capacity::MAX`] leases, also if unlimited.
//! * Deadlines are found by whoever acquires next, up to sixteen a shard at a time: after many have passed together, it takes a
//!   while until the best of them is lent.
//! * Removed and replaced values are freed later: 128 at a time, by the thread that has removed or replaced them, or another one after
//!   that has ended; and not while any [`Peek`] in the process lives that is older, nor a call of a filter, a waker or a closure of
//!   yours that is: one that blocks stops freeing. Their `Drop` runs there; if it panics, the panic
//!   stops there. [`collect_garbage`] frees what can be freed now.
//! * A leaked lease, or a lost token, keeps its unit of capacity, unless there is a limit ([`Builder::max_hold`], with
//!   [`Overdue::Revoke`]). [`remove`](Scheduler::remove) and a new insertion of the same key replace the resource.
//! * Revoking frees the unit, and cannot stop the holder: it may still be at work on what the resource stands for. Pass
//!   [`Token::generation`] on, or ask [`Lease::is_revoked`], where that matters.
//! * A unit that is on its way to a waiting task is recorded when the task takes it: a future that is leaked in that moment keeps
//!   its unit, limit or not.
//! * Equal ranks are ordered by a 40-bit counter of a shard; when it wraps, their order is inverted once.

// Every primitive comes from `crate::sync`. Clippy sees through the facade's re-exports, so the ban on std's types holds in
// the loom build, where the facade's are loom's.
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![cfg_attr(loom, warn(clippy::disallowed_types))]
// Structure checks and measurements that only `internals` and the models reach; with either of them, what is unused is told.
#![cfg_attr(not(any(loom, shuttle, feature = "internals")), allow(dead_code, unused_imports))]

pub mod baseline;
#[cfg(all(feature = "cluster", not(any(loom, shuttle))))]
pub mod cluster;
/// What there is a model of.
#[cfg(loom)]
#[allow(dead_code)]
mod cluster {
    pub mod fence;
    pub mod unit;
}
#[cfg(any(feature = "telemetry", loom))]
mod delay;
mod events;
#[cfg(all(
    any(
        feature = "tokio",
        feature = "tower",
        feature = "prometheus",
        feature = "metrics",
        feature = "tracing"
    ),
    not(any(loom, shuttle))
))]
mod extensions;
mod health;
mod heap;
mod jump;
mod lookup;
mod node;
mod outcome;
#[cfg(any(feature = "pool", loom, shuttle))]
pub mod pool;
mod rank;
mod resource;
mod ring;
mod scheduler;
mod shard;
mod shard_set;
mod strategy;
mod sync;

pub use events::{Closing, Dropped, Event, EventKind};
#[cfg(not(any(loom, shuttle)))]
pub use events::{ObserveError, Observer};
#[cfg(all(feature = "tokio", not(any(loom, shuttle))))]
pub use extensions::TokioTimer;
#[cfg(all(feature = "prometheus", not(any(loom, shuttle))))]
pub use extensions::prometheus;
#[cfg(all(feature = "metrics", feature = "pool", not(any(loom, shuttle))))]
pub use extensions::publish_pool_metrics;
#[cfg(all(feature = "tower", not(any(loom, shuttle))))]
pub use extensions::tower;
#[cfg(all(feature = "tracing", not(any(loom, shuttle))))]
pub use extensions::tracing;
#[cfg(all(feature = "metrics", not(any(loom, shuttle))))]
pub use extensions::{describe_metrics, publish_metrics};
pub use health::{Backoff, Cooldown, Ejection, Phase, ResourceStats, Seen};
#[cfg(not(any(loom, shuttle)))]
pub use lookup::collect_garbage;
pub use node::{Hold, Standing};
pub use outcome::Outcome;
pub use rank::{Narrow, Priority};
pub use resource::{Capacity, Entry, Resource};
pub use ring::{Ring, RingError, affinity_hash};
#[cfg(not(any(loom, shuttle)))]
pub use scheduler::ThreadTimer;
pub use scheduler::{
    Acquire, AcquireError, AcquireKeyError, AcquireMany, AcquireManyOwned, AcquireOwned, Affinity,
    BuildError, Builder, Candidate, Drain, DrainReport, Explanation, Fairness, HoldCounts, InsertError,
    KeyError, Lease, LeaseInfo, Matching, NoneEligible, One, Outstanding, Overdue, Overflow, OwnedLease,
    ParseTokenError, Peek, Preference, Reasons, Rejected, ReleaseError, Removed, Request, ResourceState,
    Scheduler, Several, Snapshot, Stats, Timer, Token, UpdateError, WaitError, WaitStats, WeightsError, Why,
};
#[cfg(feature = "telemetry")]
pub use scheduler::{Distribution, Telemetry};
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
    #[cfg(loom)]
    pub mod cluster {
        pub use crate::cluster::{
            fence::{Fence, Fences, Lost},
            unit::{Claim, Unit},
        };
    }
    #[cfg(any(feature = "telemetry", loom))]
    pub mod delay {
        pub use crate::delay::*;
    }
    pub mod events {
        pub use crate::events::*;
    }
    pub mod heap {
        pub use crate::heap::*;
    }
    pub mod jump {
        pub use crate::jump::*;
    }
    pub mod lookup {
        pub use crate::lookup::*;
    }
    pub mod node {
        pub use crate::node::{Parting, Party};
    }
    #[cfg(any(feature = "pool", loom, shuttle))]
    pub mod pool {
        pub use crate::pool::inner::*;
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

/// Compiles and runs what the README shows.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;

/// Compiles what the chapter on clusters shows.
#[cfg(all(doctest, feature = "cluster"))]
#[doc = include_str!("../docs/cluster.md")]
struct ClusterDoctests;

/// Compiles and runs what the guide shows.
#[cfg(doctest)]
#[doc = include_str!("../docs/guide.md")]
struct GuideDoctests;
