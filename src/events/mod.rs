//! Events: what happened to which resource, in the order in which it happened.
//!
//! | file | idea |
//! |---|---|
//! | `ring` | a bounded ring for each shard, and one for what belongs to no resource |
//! | `hub` | what comes out of the rings goes to whoever observes, each with an inbox of its own |
//! | `flush` | a closing that tells everybody of everything |
//! | `observer` | what an observer is told |
//! | `dispatch` | the threads that call observers |
//!
//! Off unless the builder asks for room, and then without a thread, a callback or a clock: whoever wants the events takes them out.
//! A thread is started for each observer, and for nothing else.
//!
//! Counters are not made of events: they are counted where the transition happens, and are exact whether or not anybody
//! takes the events in time.

#[cfg(not(any(loom, shuttle)))]
mod dispatch;
mod flush;
mod hub;
mod observer;
mod ring;

#[cfg(not(any(loom, shuttle)))]
pub use dispatch::Dispatchers;
pub use hub::{Hub, News, Reader};
pub use observer::{Closing, Dropped, ObserveError, Observer};
pub use ring::{Range, Ring, is_plain};

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
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
    /// A lease on it was found to be held for longer than is allowed. Once for each lease, and again after a renewal.
    Overdue,
    /// Somebody began to wait: for the resource with this key, or for no particular one.
    WaitStarted,
    /// A wait ended, however. One that the closing ends may be told of after [`Closed`](EventKind::Closed), or to no observer at all:
    /// it is recorded by the thread that waited, when that runs again. It can then be taken out with
    /// [`take_events`](crate::Scheduler::take_events).
    WaitEnded,
    /// The scheduler was closed. Not the last event: returns still come, and ends of waits.
    Closed,
}

impl EventKind {
    /// Its name in `snake_case`, as metrics and traces use it.
    pub const fn name(self) -> &'static str {
        match self {
            EventKind::Inserted => "inserted",
            EventKind::Updated => "updated",
            EventKind::Removed => "removed",
            EventKind::Evicted => "evicted",
            EventKind::Acquired => "acquired",
            EventKind::Released => "released",
            EventKind::Excluded => "excluded",
            EventKind::Included => "included",
            EventKind::Cooled => "cooled",
            EventKind::Warmed => "warmed",
            EventKind::Ejected => "ejected",
            EventKind::Readmitted => "readmitted",
            EventKind::Drained => "drained",
            EventKind::Undrained => "undrained",
            EventKind::Overdue => "overdue",
            EventKind::WaitStarted => "wait_started",
            EventKind::WaitEnded => "wait_ended",
            EventKind::Closed => "closed",
        }
    }
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Event<K> {
    /// What happened.
    pub kind: EventKind,
    /// To which resource. `None` for a wait for no particular one, and for the closing.
    pub key: Option<K>,
    /// The generation of its state word afterwards; 0 if the event is about no resource's state. It may skip numbers: when the rules of
    /// [ejection](crate::Ejection) allow more leases, or fewer, that takes one, and nobody is told of it.
    pub generation: u32,
    /// Counts how often anything has joined the fleet, up to when this resource did: a key that is removed and inserted again has a larger
    /// number. 0 if the event is about no resource.
    ///
    /// The events of one shard come in order. A key that comes back may have another shard, and then nothing is promised of which comes first:
    /// the larger number is the later, and whoever keeps a state by key leaves out what is of a smaller one than he has seen of it.
    pub membership: u64,
    /// The resource's home shard. Waits and the closing belong to none: they are numbered apart, and have the number of shards here.
    pub shard: u32,
    /// Counts the events of that shard from 0, dropped ones included: a gap shows what was lost.
    pub sequence: u64,
}
