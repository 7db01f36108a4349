//! Why this one, and why not the others.
//!
//! ```text
//! X1  let time pass; read the state of every resource, the best rank that every shard publishes, and for an id where it looks
//! X2  acquire, in the way that was asked for; a filter's answers are noted
//! X3  say of each resource what its state of X1, the answers and what was lent say of it
//! ```
//!
//! Nothing is held between X1 and X2: what is lent is lent as if nobody had asked why. So X3 may find that X1 and X2 do not fit, and says so:
//! [`Why::Changed`].

use std::{
    borrow::Borrow,
    collections::HashMap,
    hash::{BuildHasher, Hash},
};

use super::{AcquireError, AcquireKeyError, Lease, ResourceState, Scheduler};
use crate::{
    lookup::Keyed,
    node::{Node, Standing},
    resource::Resource,
    ring::affinity_hash,
    strategy::ShardView,
};

/// Why a resource was lent, or was not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Why {
    /// It was lent.
    Lent,
    /// Whoever asked does not want it: it is excluded by name, the filter has refused it, or another one was asked for by its key. Whatever
    /// else stands in its way is in the state.
    NotWanted,
    /// Something stands in its way; the state has the holds and their deadlines.
    NotEligible(Standing),
    /// What was lent ranks better.
    Outranked,
    /// It ranks as what was lent, and it was the other one's turn.
    Tied,
    /// It ranks better, but lives in a shard that was not chosen: order traded for speed, see [`Strategy`](crate::Strategy).
    AnotherShard,
    /// What was lent comes before it in the id's own order, whatever the ranks: its shard is another one, or it is no choice of the id's own
    /// there, or a later one. See [`Affinity`](crate::Affinity).
    Affinity,
    /// It ranks better, and lives in the shard that was chosen; or the filter has accepted it; or it comes before what was lent in the id's own
    /// order; or nothing could be lent, though it looked as if this could: somebody changed something between look and acquisition.
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

/// Where an id looks: a shard, and what of it is the id's own.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Preference<K> {
    /// The shard.
    pub shard: usize,
    /// With [`Affinity::Resource`](crate::Affinity::Resource) the resources that are tried there before the best one, in this order: at most
    /// three. None with [`Affinity::Shard`](crate::Affinity::Shard).
    pub choices: Vec<K>,
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
    /// The best rank that each shard published just before the acquisition, `None` if it had nothing to lend: what a strategy that goes by
    /// ranks compares, of the shards that it draws.
    pub published: Vec<Option<u64>>,
    /// Of an acquisition by affinity: every shard, in the order in which the id comes to them. Empty otherwise.
    pub preferences: Vec<Preference<K>>,
    /// What was lent.
    pub lent: Option<K>,
    /// Every resource, the best rank first, those that cannot be lent last.
    pub candidates: Vec<Candidate<K>>,
}

/// X1.
struct Look<K> {
    consistent: bool,
    now: u64,
    strategy: String,
    published: Vec<Option<u64>>,
    states: Vec<ResourceState<K>>,
}

impl<K: Eq + Clone> Look<K> {
    /// X3. `rule` says what ranks have no say in, of a candidate and what was lent.
    fn explain(
        self,
        lent: Option<&K>,
        is_refused: bool,
        rule: impl Fn(&ResourceState<K>, Option<&ResourceState<K>>) -> Option<Why>,
    ) -> Explanation<K> {
        let Look { consistent, now, strategy, published, mut states } = self;
        states.sort_by_key(|state| (state.standing != Standing::Eligible, state.rank, state.shard));
        let chosen = lent.and_then(|lent| states.iter().find(|state| state.key == *lent));
        let why = |state: &ResourceState<K>| match (rule(state, chosen), chosen) {
            _ if lent == Some(&state.key) => Why::Lent,
            (Some(Why::NotWanted), _) => Why::NotWanted,
            _ if state.standing != Standing::Eligible => Why::NotEligible(state.standing),
            _ if is_refused => Why::Refused,
            (Some(why), _) => why,
            (None, Some(chosen)) if state.rank > chosen.rank => Why::Outranked,
            (None, Some(chosen)) if state.rank == chosen.rank => Why::Tied,
            (None, Some(chosen)) if state.shard != chosen.shard => Why::AnotherShard,
            (None, _) => Why::Changed,
        };
        let whys: Vec<_> = states.iter().map(why).collect();
        let candidates = states.into_iter().zip(whys).map(|(state, why)| Candidate { state, why }).collect();
        let lent = lent.cloned();
        Explanation { consistent, now, strategy, published, preferences: Vec::new(), lent, candidates }
    }
}

/// What a filter has answered last, about those that it was asked about.
type Answers<K> = HashMap<K, bool>;

/// What the answers say. Who was not asked about is left to the ranks: the walk did not come to it.
fn by_answers<K: Hash + Eq>(
    answers: &Answers<K>,
    state: &ResourceState<K>,
    lent: Option<&ResourceState<K>>,
) -> Option<Why> {
    match answers.get(&state.key)? {
        false => Some(Why::NotWanted),
        // Accepted, and still something worse was lent.
        true => lent.is_some_and(|lent| state.rank < lent.rank).then_some(Why::Changed),
    }
}

/// What the order of an id says.
fn by_preference<K: Eq>(
    preferences: &[Preference<K>],
    state: &ResourceState<K>,
    lent: Option<&ResourceState<K>>,
) -> Option<Why> {
    let place = |state: &ResourceState<K>| {
        let turn = preferences.iter().position(|preference| preference.shard == state.shard)?;
        let choice = preferences[turn].choices.iter().position(|key| *key == state.key);
        // What is not the id's own comes after all that is.
        Some((turn, choice.unwrap_or(usize::MAX)))
    };
    match place(state)?.cmp(&place(lent?)?) {
        std::cmp::Ordering::Less => Some(Why::Changed),
        std::cmp::Ordering::Greater => Some(Why::Affinity),
        // Both are nobody's own in one shard: of these the best.
        std::cmp::Ordering::Equal => None,
    }
}

/// What is explained of an acquisition, whatever its way.
type Explained<'s, R, E> = (Result<Lease<'s, R>, E>, Explanation<<R as Resource>::Key>);

fn lent_of<'l, R: Resource, E>(lease: &'l Result<Lease<'_, R>, E>) -> Option<&'l R::Key> {
    lease.as_ref().ok().map(|lease| lease.key())
}

fn is_refused<T>(lease: &Result<T, AcquireError>) -> bool {
    matches!(lease, Err(AcquireError::Closed | AcquireError::Strategy { .. }))
}

impl<R: Resource, S: BuildHasher> Scheduler<R, S> {
    /// X1.
    fn look(&self) -> Look<R::Key> {
        let core = &*self.core;
        // What is due is not "cooling" any more, however much it is.
        core.tick();
        let snapshot = self.snapshot();
        Look {
            consistent: snapshot.is_consistent(),
            states: snapshot.into_vec(),
            now: core.now(),
            strategy: core.selector.name().to_owned(),
            published: (0..core.shards()).map(|shard| core.best_rank(shard)).collect(),
        }
    }

    /// As [`acquire`](Scheduler::acquire), and says why what was lent was lent, and why everything else was not. Before, it lets time pass, by
    /// [`tick`](Scheduler::tick).
    ///
    /// So do [`acquire_where_explained`](Scheduler::acquire_where_explained),
    /// [`acquire_excluding_explained`](Scheduler::acquire_excluding_explained),
    /// [`acquire_by_affinity_explained`](Scheduler::acquire_by_affinity_explained) and
    /// [`acquire_key_explained`](Scheduler::acquire_key_explained) for the other ways to acquire one at once. A wait has no explanation of this kind:
    /// it ends with what comes back, or becomes eligible, first and is wanted, whatever its rank; nothing is compared.
    ///
    /// For people and for tests: O(n log n), and one shard's lock at a time for each resource, as [`snapshot`](Scheduler::snapshot). What was looked at may have changed
    /// before the acquisition; [`Explanation::consistent`] says whether it had while it was read, [`Why::Changed`] where it shows.
    ///
    /// # Errors
    /// Those of [`acquire`](Scheduler::acquire); they are explained as well.
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
    pub fn acquire_explained(&self) -> Explained<'_, R, AcquireError> {
        // Each way has its acquisition in its own body, not in a closure: the caller's place in the program would be lost.
        let look = self.look();
        let lease = self.acquire();
        let explanation = look.explain(lent_of(&lease), is_refused(&lease), |_, _| None);
        (lease, explanation)
    }

    /// As [`acquire_where`](Scheduler::acquire_where), and explains itself as [`acquire_explained`](Scheduler::acquire_explained) does.
    ///
    /// What the filter has refused is [`Why::NotWanted`]. It is asked as in `acquire_where`, and not once more for the explanation: who was not
    /// asked about has the reason for which the search did not come to it. Its cost and progress are those of both; the keys of all that were
    /// asked about are cloned, under no lock.
    ///
    /// # Errors
    /// Those of [`acquire_where`](Scheduler::acquire_where).
    ///
    /// ```
    /// use leasehold::{Entry, Scheduler, Why};
    ///
    /// let scheduler = Scheduler::<Entry<&str, u32, &str>>::builder().shards(1).build()?;
    /// for (key, rank, region) in [("a", 1, "us"), ("b", 2, "eu"), ("c", 3, "us")] {
    ///     scheduler.insert(Entry::new(key, rank, region))?;
    /// }
    /// let (lease, explanation) = scheduler.acquire_where_explained(|entry| entry.value == "eu");
    /// assert_eq!(*lease?.key(), "b");
    /// let whys: Vec<_> = explanation.candidates.iter().map(|one| (one.state.key, one.why)).collect();
    /// assert_eq!(whys, [("a", Why::NotWanted), ("b", Why::Lent), ("c", Why::Outranked)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn acquire_where_explained(
        &self,
        mut accepts: impl FnMut(&R) -> bool,
    ) -> Explained<'_, R, AcquireError> {
        self.explained_where(&mut |_, resource| accepts(resource), |_| false)
    }

    /// As [`acquire_excluding`](Scheduler::acquire_excluding), and explains itself as [`acquire_explained`](Scheduler::acquire_explained) does:
    /// all of `keys` are [`Why::NotWanted`].
    ///
    /// # Errors
    /// Those of [`acquire_excluding`](Scheduler::acquire_excluding).
    ///
    /// ```
    /// use leasehold::{Entry, Scheduler, Why};
    ///
    /// let scheduler = Scheduler::<Entry<u8, u32, ()>>::builder().shards(1).build()?;
    /// for key in 0..3 {
    ///     scheduler.insert(Entry::new(key, key.into(), ()))?;
    /// }
    /// let (lease, explanation) = scheduler.acquire_excluding_explained(&[0, 2]);
    /// assert_eq!(*lease?.key(), 1);
    /// let whys: Vec<_> = explanation.candidates.iter().map(|one| one.why).collect();
    /// assert_eq!(whys, [Why::NotWanted, Why::Lent, Why::NotWanted]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn acquire_excluding_explained(&self, keys: &[R::Key]) -> Explained<'_, R, AcquireError> {
        if keys.is_empty() {
            return self.acquire_explained();
        }
        self.explained_where(&mut |node, _| !keys.contains(node.key()), |key| keys.contains(key))
    }

    /// With a filter, and with what is known to be refused without asking it.
    #[track_caller]
    fn explained_where(
        &self,
        accepts: &mut dyn FnMut(&Node<R>, &R) -> bool,
        refuses: impl Fn(&R::Key) -> bool,
    ) -> Explained<'_, R, AcquireError> {
        let look = self.look();
        let mut answers = Answers::new();
        let lent = self.core.lend_where(&mut |node, resource| {
            let answer = accepts(node, resource);
            // Of several answers about one resource the last one counts: it may have been updated.
            answers.insert(node.key().clone(), answer);
            answer
        });
        // Not `map`: see `acquire_explained`.
        let lease = match lent {
            Ok(lent) => Ok(Lease::new(&self.core, lent)),
            Err(error) => Err(self.core.in_vain(error)),
        };
        let explanation = look.explain(lent_of(&lease), is_refused(&lease), |state, lent| {
            if refuses(&state.key) { Some(Why::NotWanted) } else { by_answers(&answers, state, lent) }
        });
        (lease, explanation)
    }

    /// As [`acquire_by_affinity`](Scheduler::acquire_by_affinity), and explains itself as [`acquire_explained`](Scheduler::acquire_explained)
    /// does.
    ///
    /// [`Explanation::preferences`] has where the id looks. What comes after the resource that was lent is [`Why::Affinity`]; ranks count among
    /// those of one shard, if none of the id's own could be had there. One more lock of each shard; O(n × shards).
    ///
    /// # Errors
    /// Those of [`acquire_by_affinity`](Scheduler::acquire_by_affinity).
    ///
    /// ```
    /// use leasehold::{Affinity, Entry, Scheduler, Why};
    ///
    /// let scheduler = Scheduler::<Entry<u32, u32, ()>>::builder().shards(1).affinity(Affinity::Resource).build()?;
    /// scheduler.insert_batch((0..100).map(|key| Entry::new(key, key, ())).collect())?;
    /// let (lease, explanation) = scheduler.acquire_by_affinity_explained("session 7");
    /// assert_eq!(explanation.preferences[0].choices[0], *lease?.key());
    /// assert_eq!(explanation.candidates.iter().filter(|one| one.why == Why::Affinity).count(), 99);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn acquire_by_affinity_explained<I: Hash + ?Sized>(&self, id: &I) -> Explained<'_, R, AcquireError> {
        let look = self.look();
        let preferences = self.core.preferences(affinity_hash(id));
        let lease = self.acquire_by_affinity(id);
        let rule = |state: &ResourceState<R::Key>, lent: Option<&ResourceState<R::Key>>| {
            by_preference(&preferences, state, lent)
        };
        let explanation = look.explain(lent_of(&lease), is_refused(&lease), rule);
        (lease, Explanation { preferences, ..explanation })
    }

    /// As [`acquire_key`](Scheduler::acquire_key), and explains itself as [`acquire_explained`](Scheduler::acquire_explained) does: all others are
    /// [`Why::NotWanted`], and of the one that was asked for it is told what stands in its way.
    ///
    /// # Errors
    /// Those of [`acquire_key`](Scheduler::acquire_key).
    ///
    /// ```
    /// use leasehold::{Entry, Scheduler, Standing, Why};
    ///
    /// let scheduler = Scheduler::<Entry<&str, u32, ()>>::builder().shards(1).build()?;
    /// scheduler.insert(Entry::new("a", 0, ()))?;
    /// scheduler.insert(Entry::new("b", 1, ()))?;
    /// scheduler.exclude("b")?;
    /// let (lease, explanation) = scheduler.acquire_key_explained("b");
    /// assert!(lease.is_err());
    /// let whys: Vec<_> = explanation.candidates.iter().map(|one| one.why).collect();
    /// assert_eq!(whys, [Why::NotWanted, Why::NotEligible(Standing::Excluded)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn acquire_key_explained<Q>(&self, key: &Q) -> Explained<'_, R, AcquireKeyError<Q::Owned>>
    where
        R::Key: Borrow<Q>,
        Q: Hash + Eq + ToOwned + ?Sized,
    {
        let look = self.look();
        let lease = self.acquire_key(key);
        let is_refused = matches!(lease, Err(AcquireKeyError::Closed));
        let explanation = look.explain(lent_of(&lease), is_refused, |state, _| {
            (state.key.borrow() != key).then_some(Why::NotWanted)
        });
        (lease, explanation)
    }
}
