//! One fleet, shared by many processes.
//!
//! | file | idea |
//! |---|---|
//! | `unit` | resources and the units that they are divided into |
//! | `terms` | times and margins |
//! | `engine` | what is asked of the system that members share; the contract |
//! | `ledger`, `memory` | that contract as a data structure, and an engine made of it |
//! | `member` | a member as a pure state machine |
//! | `desk` | the scheduler, as the member sees it |
//! | `spent` | leases that stand for uses of a budget |
//! | `keeper`, `post` | the thread that drives the member, and the one that waits for the engine |
//! | `fence` | what ties a lease to a unit and its token |
//! | `stats`, `collector` | what is told of a cluster, and to Prometheus |
//! | `handle` | settings, start, stop |
//! | `start_error` | why there is no start |
//! | `redis` | the engine for Redis and Valkey servers |
//! | `holds` | which holds the fleet has |
//! | `planted` | mistakes that its tests must notice |
//! | `rendezvous` | which member an id belongs to |

#[cfg(feature = "prometheus")]
mod collector;
mod desk;
mod engine;
mod fence;
mod handle;
mod holds;
mod keeper;
mod ledger;
mod member;
mod memory;
mod planted;
mod post;
mod redis;
mod rendezvous;
#[cfg(test)]
mod simulation;
mod spent;
mod start_error;
mod stats;
mod terms;
mod unit;

pub use self::redis::{RedisEngine, RedisEngineError};
#[cfg(feature = "prometheus")]
pub use collector::ClusterCollector;
pub use engine::{
    Change, End, Engine, EngineError, HoldKind, HoldNote, Line, MemberView, Overview, Reply, Request,
    Session, TURN, View,
};
pub use fence::{Fence, Lost};
pub use handle::{Builder, CloseReport, Cluster, Start};
pub use memory::MemoryEngine;
pub use start_error::StartError;
pub use stats::ClusterStats;
pub use terms::{Terms, TermsError};
pub use unit::{Claim, RollError, Share, Unit};
