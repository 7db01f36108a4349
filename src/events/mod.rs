//! Events: what happened to which resource, in the order in which it happened.
//!
//! Off unless the builder asks for room. Then each shard has a bounded ring, and whoever wants the events takes them out;
//! no thread is started, no callback is called, no clock is read.
//!
//! Counters are not made of events: they are counted where the transition happens, and are exact whether or not anybody
//! takes the events in time.

mod ring;

pub use ring::{Range, Ring};

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum EventKind {
    /// It joined the fleet.
    Inserted,
    /// Its value was replaced.
    Updated,
    /// It was removed by key.
    Removed,
    /// It was removed from the worst end.
    Evicted,
    /// A lease on it began.
    Acquired,
    /// A lease on it ended.
    Released,
    /// It was excluded.
    Excluded,
    /// Its exclusion ended.
    Included,
    /// It began to cool, or its deadline moved.
    Cooled,
    /// Its cooling ended, by the deadline or by hand.
    Warmed,
    /// It was ejected.
    Ejected,
    /// Its ejection ended.
    Readmitted,
    /// It began to drain.
    Drained,
    /// Its draining ended.
    Undrained,
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Event<K> {
    /// What happened.
    pub kind: EventKind,
    /// To which resource.
    pub key: K,
    /// The generation of its state word afterwards.
    pub generation: u32,
    /// The resource's home shard.
    pub shard: u32,
    /// Counts the events of that shard from 0, dropped ones included: a gap shows what was lost.
    pub sequence: u64,
}
