//! Why this one, and why not the others.

use std::hash::BuildHasher;

use super::{AcquireError, Lease, ResourceState, Scheduler};
use crate::{node::Standing, resource::Resource};

/// Why a resource was lent, or was not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Why {
    /// It was lent.
    Lent,
    /// Something stands in its way; the state has the holds and their deadlines.
    NotEligible(Standing),
    /// What was lent ranks better.
    Outranked,
    /// It ranks as what was lent, and it was the other one's turn.
    Tied,
    /// It ranks better, but lives in a shard that was not chosen: order traded for speed, see [`Strategy`](crate::Strategy).
    AnotherShard,
    /// It ranks better, and lives in the shard that was chosen; or nothing could be lent, though it looked as if this could:
    /// somebody changed something between look and acquisition.
    Changed,
    /// Nothing was looked for: the scheduler is closed, or its strategy chose a shard that does not exist. The error tells which.
    Refused,
}

/// One resource of an [`Explanation`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Candidate<K> {
    /// How it stood just before the acquisition.
    pub state: ResourceState<K>,
    /// Why it was lent, or was not.
    pub why: Why,
}

/// What an acquisition saw and decided.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Explanation<K> {
    /// Whether all states are of one moment: nothing changed while they were read. If not, each is of some moment of the call.
    pub consistent: bool,
    /// The scheduler's clock, in nanoseconds, just before the acquisition.
    pub now: u64,
    /// The strategy.
    pub strategy: String,
    /// What was lent.
    pub lent: Option<K>,
    /// Every resource, the best rank first, those that cannot be lent last.
    pub candidates: Vec<Candidate<K>>,
}

impl<R: Resource, S: BuildHasher> Scheduler<R, S> {
    /// As [`acquire`](Scheduler::acquire), and says why what was lent was lent, and why everything else was not.
    ///
    /// For people and for tests: O(n log n), and one shard's lock at a time for each resource, as [`snapshot`](Scheduler::snapshot). What was looked at may have changed
    /// before the acquisition; [`Explanation::consistent`] says whether it had while it was read, [`Why::Changed`] where it shows.
    ///
    /// ```
    /// use leasehold::{Entry, Scheduler, Standing, Why};
    ///
    /// let scheduler = Scheduler::<Entry<&str, u32, ()>>::builder().shards(1).build()?;
    /// for (key, rank) in [("a", 1), ("b", 2), ("c", 0)] {
    ///     scheduler.insert(Entry::new(key, rank, ()))?;
    /// }
    /// scheduler.exclude("c")?;
    /// let (lease, explanation) = scheduler.acquire_explained();
    /// assert_eq!(*lease?.key(), "a");
    /// let whys: Vec<_> = explanation.candidates.iter().map(|one| (one.state.key, one.why)).collect();
    /// assert_eq!(whys, [("a", Why::Lent), ("b", Why::Outranked), ("c", Why::NotEligible(Standing::Excluded))]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn acquire_explained(&self) -> (Result<Lease<'_, R>, AcquireError>, Explanation<R::Key>) {
        let core = &*self.core;
        // What is due is not "cooling" any more.
        core.thaw_due();
        let snapshot = self.snapshot();
        let consistent = snapshot.is_consistent();
        let mut states = snapshot.into_vec();
        let now = core.now();
        let lease = self.acquire();
        states.sort_by_key(|state| (state.standing != Standing::Eligible, state.rank, state.shard));
        let lent = lease.as_ref().ok().map(|lease| lease.key().clone());
        let chosen = lent.as_ref().and_then(|lent| states.iter().find(|state| state.key == *lent));
        let chosen = chosen.map(|state| (state.rank, state.shard));
        let is_refused = matches!(lease, Err(AcquireError::Closed | AcquireError::Strategy { .. }));
        let why = |state: &ResourceState<R::Key>| match (&lent, chosen) {
            (Some(lent), _) if state.key == *lent => Why::Lent,
            _ if state.standing != Standing::Eligible => Why::NotEligible(state.standing),
            _ if is_refused => Why::Refused,
            (_, Some((rank, _))) if state.rank > rank => Why::Outranked,
            (_, Some((rank, _))) if state.rank == rank => Why::Tied,
            (_, Some((_, shard))) if state.shard != shard => Why::AnotherShard,
            _ => Why::Changed,
        };
        let candidates: Vec<_> =
            states.into_iter().map(|state| Candidate { why: why(&state), state }).collect();
        let strategy = core.selector.name().to_owned();
        (lease, Explanation { consistent, now, strategy, lent, candidates })
    }
}
