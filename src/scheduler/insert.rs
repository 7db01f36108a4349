//! Insertion of one resource.
//!
//! # Steps
//!
//! ```text
//! I1  ask the resource for key, capacity, rank, home (user code; nothing is changed yet)
//! I2  make the node, STAGED
//! I3  link it into the lookup (user code: Eq). The key exists: undo I2
//! I4  count it in: roster += 1. The fleet is full: seat the node, then evict by the overflow rule, or undo I3 and I2
//! I5  under the home lock, with room made before: seat the node if that is still to be done, in a slot of its home shard, and
//!     admit it: STAGED -> eligible, into the heap                                  <- visible by key and to acquire
//! I6  forget whom I4 has evicted
//! ```
//!
//! Nothing is reachable before it is complete: between I3 and I5 the lookup answers with a `STAGED` node, which everyone
//! takes for absent. An inserter of the same key that meets it waits: from I3 to I5 no user code runs, so the wait is for
//! a few locks and some room to be allocated. (With events, `Clone` of the keys of evicted and absorbed resources does: it must not come back here.) Undoing aborts the node first, so that whoever holds it can tell.
//!
//! The node belongs to its inserter until I5; from then on it may be removed and freed at any time, so the inserter holds a
//! guard from I3 to the end. A panic of user code happens before I4 or after I5; it undoes what was done, or nothing.

use std::{hash::BuildHasher, ptr::NonNull};

use super::{
    Scheduler,
    builder::Overflow,
    core::Core,
    error::{InsertError, Rejected},
};
use crate::{
    health::Seen,
    heap,
    lookup::{Guard, Keyed, Occupied},
    node::{self, Draft, Node},
    rank::Priority,
    resource::Resource,
    shard::{Count, Gone, Lent, Locked, Pin},
    sync::{Spin, SplitMix64},
};

/// A node that nobody can see yet; undone if it does not get in.
pub(super) struct Newcomer<'a, R: Resource> {
    core: &'a Core<R>,
    node: Option<NonNull<Node<R>>>,
    /// The lookup knows it.
    linked: bool,
    /// It has a slot. Told for an insertion alone: those of a batch get theirs together.
    seated: bool,
    /// It is to drain from the first.
    drains: bool,
}

#[allow(unsafe_code)]
impl<'a, R: Resource> Newcomer<'a, R> {
    /// I2.
    pub(super) fn new(core: &'a Core<R>, draft: Draft<R>, home: u32, batch: u32) -> Self {
        Newcomer {
            core,
            node: Some(Node::boxed(draft, home, batch)),
            linked: false,
            seated: false,
            drains: false,
        }
    }

    /// Takes the home lock with the node in a slot. `None` if the shard is full.
    fn lock_seated(&mut self) -> Option<Locked<'a, R>> {
        let core = self.core;
        let shard = &core.shards[self.node().home() as usize];
        if self.seated {
            return Some(core.lock(shard));
        }
        let mut locked = shard.lock_with_slots(1, core.pin_for_events())?;
        locked.seat(self.node());
        self.seated = true;
        Some(locked)
    }

    /// The node. Ours until it is released.
    pub(super) fn node(&self) -> &Node<R> {
        let node = self.node.expect("until it is released or taken back");
        // SAFETY: owned by `self`.
        unsafe { node.as_ref() }
    }

    /// I3. Answers with the key if it exists.
    pub(super) fn link(&mut self) -> Result<(), R::Key> {
        let node = self.node.expect("until it is released or taken back");
        // SAFETY: the node stays allocated until it was removed from the lookup and retired through a guard.
        unsafe { self.core.link(node) }?;
        self.linked = true;
        Ok(())
    }

    /// It gets in: the scheduler owns it now. A guard of the caller keeps it for him.
    pub(super) fn release(mut self) -> NonNull<Node<R>> {
        self.node.take().expect("until it is released or taken back")
    }

    /// It does not get in: the resource comes back, everything else is undone.
    pub(super) fn take_back(mut self) -> R {
        let node = self.node.take().expect("until it is released or taken back");
        // SAFETY: owned by `self`, given up here.
        unsafe { self.undo(node) }
    }

    /// Undoes I3 and I2.
    ///
    /// # Safety
    /// `node` is the one that `self` owned; it is given up here.
    unsafe fn undo(&self, node: NonNull<Node<R>>) -> R {
        let core = self.core;
        // SAFETY: owned until freed below.
        let alive = unsafe { node.as_ref() };
        core.home(alive).lock().abort(alive);
        let guard = core.pin();
        if self.linked {
            // An inserter of the same key may have been faster.
            let _ = core.map.remove_item(alive, &guard);
        }
        // SAFETY: aborted without having been admitted, so nobody reads its value; ours alone.
        let resource = unsafe { alive.take_unborn() };
        // SAFETY: rule 5 of `node`: out of lookup, slot table and heaps. Given up here.
        unsafe { guard.retire(node.as_ptr(), Node::free) };
        resource
    }
}

impl<R: Resource> Drop for Newcomer<'_, R> {
    fn drop(&mut self) {
        if let Some(node) = self.node.take() {
            // A panic in the user's `Eq`. SAFETY: owned by `self`, given up here.
            #[allow(unsafe_code)]
            let resource = unsafe { self.undo(node) };
            let _ = node::quietly(|| drop(resource));
        }
    }
}

impl<R: Resource> Core<R> {
    /// I1 for everything but the key's hash.
    pub(super) fn draft(
        &self,
        key: R::Key,
        hash: u64,
        resource: R,
    ) -> Result<Draft<R>, Rejected<R, InsertError<R::Key>>> {
        let capacity = resource.capacity();
        let Some(limit) = capacity.limit() else {
            return Err(Rejected { returned: resource, error: InsertError::Capacity { key, capacity } });
        };
        self.expect_limit(limit);
        let remember = self.health.is_some();
        let ranked = self.ranks_by_outcomes();
        let rank = if ranked {
            resource.priority_seen(0, Seen::default()).rank()
        } else {
            resource.priority(0).rank()
        };
        Ok(Draft { key, hash, limit, rank, resource, remember, ranked })
    }

    /// The home that a resource asks for.
    pub(super) fn wanted_home(&self, draft: &Draft<R>) -> Result<Option<u32>, InsertError<R::Key>> {
        let shards = self.shards.len();
        match draft.resource.home(shards) {
            Some(home) if home >= shards => Err(InsertError::Home { key: draft.key.clone(), home, shards }),
            home => Ok(home.map(|home| home as u32)),
        }
    }

    /// The shard with the fewest members: of all, if there are few; else of a sample that follows from the hash.
    fn balanced_home(&self, hash: u64) -> u32 {
        let shards = self.shards.len() as u32;
        let members = |i: &u32| self.shards[*i as usize].face().members();
        if shards <= SAMPLE {
            return (0..shards).min_by_key(members).unwrap_or(0);
        }
        let mut random = SplitMix64::new(hash);
        (0..SAMPLE).map(|_| random.below(shards)).min_by_key(members).unwrap_or(0)
    }

    /// The bound and the overflow rule of a fleet that has no room now.
    fn full(&self) -> Option<(u32, Overflow)> {
        self.max_resources.filter(|(max, _)| self.roster.members() >= *max)
    }

    /// I4 of a full fleet. The evicted node is out of the fleet, but not forgotten yet. No user code runs here.
    fn make_place<'g>(
        &'g self,
        newcomer: &mut Newcomer<'_, R>,
        guard: &'g Pin<'_>,
    ) -> Result<(&'g Node<R>, Gone), Refusal> {
        let (max, overflow) = self.max_resources.unwrap_or((u32::MAX, Overflow::Reject));
        if overflow != Overflow::EvictWorst {
            return Err(Refusal::Full(max as usize));
        }
        // Nobody is evicted in vain.
        drop(newcomer.lock_seated().ok_or(Refusal::ShardFull)?);
        let rank = newcomer.node().rank();
        // The newcomer takes over its place in the roster.
        self.evict(guard, |worst| worst.rank() > rank).ok_or(Refusal::Full(max as usize))
    }

    /// I4 and I5.
    fn let_in<'g>(
        &'g self,
        newcomer: &mut Newcomer<'_, R>,
        guard: &'g Pin<'_>,
    ) -> Result<LetIn<'g, R>, Refusal> {
        let max = self.max_resources.map_or(u32::MAX, |(max, _)| max);
        let evicted = match self.roster.add(max) {
            Ok(()) => None,
            Err(_) => Some(self.make_place(newcomer, guard)?),
        };
        let Some(mut locked) = newcomer.lock_seated() else {
            // Not after an eviction: then it has a slot.
            self.roster.subtract();
            return Err(Refusal::ShardFull);
        };
        let admitted = locked.admit(newcomer.node(), newcomer.drains || self.roster.newcomers_drain());
        debug_assert!(admitted.is_ok(), "only its inserter admits a node that is not in a batch");
        let taken = self.take_for_waiters(&mut locked, newcomer.node());
        Ok(LetIn { evicted, taken })
    }

    /// I2 to I6.
    fn insert(&self, draft: Draft<R>, drains: bool) -> Result<(), Rejected<R, InsertError<R::Key>>> {
        let home = match self.wanted_home(&draft) {
            Ok(home) => home.unwrap_or_else(|| self.balanced_home(draft.hash)),
            Err(error) => return Err(Rejected { returned: draft.resource, error }),
        };
        if let Some(max) = self.full() {
            // Most refusals are found here, before anything is made. I3 and I4 decide.
            let guard = self.pin();
            let refused = if self.find(draft.hash, &draft.key, &guard).is_some() {
                Some(InsertError::Duplicate { key: draft.key.clone() })
            } else if max.1 == Overflow::Reject {
                Some(InsertError::Full { key: draft.key.clone(), max: max.0 as usize })
            } else {
                // The worst may be one whose cooling is over. The clock is user code: nothing is changed yet.
                self.thaw_due();
                None
            };
            if let Some(error) = refused {
                return Err(Rejected { returned: draft.resource, error });
            }
        }
        let mut newcomer = Newcomer::new(self, draft, home, 0);
        newcomer.drains = drains;
        let guard = self.pin();
        if let Err(key) = newcomer.link() {
            return Err(Rejected { returned: newcomer.take_back(), error: InsertError::Duplicate { key } });
        }
        let LetIn { evicted, taken } = match self.let_in(&mut newcomer, &guard) {
            Ok(let_in) => let_in,
            Err(refusal) => {
                let node = newcomer.node.expect("it is ours");
                let returned = newcomer.take_back();
                // The place in the roster may have been taken and given back. Not before the newcomer is out: this runs user code.
                self.trim_ejected();
                // SAFETY: given up, but the guard, which is older, keeps it. Cloned now, when nothing is left to undo.
                #[allow(unsafe_code)]
                let key = unsafe { node.as_ref() }.key().clone();
                return Err(Rejected { returned, error: refusal.error(key, home) });
            }
        };
        let node = newcomer.release();
        // First: what follows may run user code. SAFETY: the guard, which is older than the admission, keeps it.
        #[allow(unsafe_code)]
        self.hand_on(taken, unsafe { node.as_ref() }, &guard);
        if let Some((evicted, gone)) = evicted {
            self.forget(evicted, gone, &guard);
        }
        Ok(())
    }

    /// I3, for an insertion alone and for a member of a batch. Answers with the key if it exists.
    ///
    /// # Safety
    /// The caller owns the node, and keeps it until it was removed from the lookup and retired through a guard.
    #[allow(unsafe_code)]
    unsafe fn link(&self, node: NonNull<Node<R>>) -> Result<(), R::Key> {
        let mut spin = Spin::new();
        loop {
            let guard = self.pin();
            // SAFETY: passed on to the caller.
            let existing = match unsafe { self.map.insert_raw(node, &guard) } {
                Ok(_) => {
                    if self.hub.is_some() {
                        // SAFETY: owned by the caller. Not visible yet, and nobody else has its key until it has been removed.
                        unsafe { node.as_ref() }.set_membership(self.roster.number());
                    }
                    return Ok(());
                }
                Err(Occupied { existing, .. }) => existing,
            };
            if self.visible(existing).is_none() {
                if existing.state.load().is_removed() {
                    // On its way out; help the lookup to forget it.
                    let _ = self.map.remove_item(existing, &guard);
                    continue;
                }
                // SAFETY: owned by the caller.
                let ours = unsafe { node.as_ref() }.batch();
                if existing.batch() == 0 {
                    // An insertion between I3 and I5 will soon be one way or the other.
                    spin.once();
                    continue;
                }
                if existing.batch() != ours && !self.batch.is_ours() {
                    // A batch between B2 and B4: wait for its end.
                    self.batch.wait();
                    continue;
                }
            }
            return Err(existing.key().clone());
        }
    }

    /// Evicts the worst eligible resource of the fleet if `condition` says yes to it. Its roster entry and its forgetting
    /// are the caller's. No user code runs here.
    fn evict<'g>(
        &'g self,
        guard: &'g Pin<'_>,
        condition: impl Fn(&Node<R>) -> bool,
    ) -> Option<(&'g Node<R>, Gone)> {
        loop {
            let node = self.worst(guard).filter(|worst| condition(worst))?;
            let mut locked = self.lock_settled(self.home(node));
            // It must still be the worst of its shard, and as bad as it was.
            if locked.worst().is_some_and(|worst| std::ptr::eq(worst, node))
                && condition(node)
                && let Ok(gone) = locked.remove(node, Count::Evicted)
            {
                // It was eligible, so the rules have not ejected it: no place comes back.
                let _ = self.take_over(&mut locked, node);
                return Some((node, gone));
            }
        }
    }

    /// The worst eligible node of the fleet: a look at each shard, one lock at a time.
    pub(super) fn worst<'g>(&'g self, _guard: &'g Pin<'_>) -> Option<&'g Node<R>> {
        let mut worst: Option<&Node<R>> = None;
        for shard in &self.shards {
            // Absorbed under the very lock: a batch that commits in between may be half absorbed by others.
            if let Some(node) = self.lock_settled(shard).worst()
                && worst.is_none_or(|worst| node.rank() >= worst.rank())
            {
                worst = Some(node);
            }
        }
        worst
    }
}

/// What comes of an admission.
struct LetIn<'g, R: Resource> {
    /// Whom the newcomer has replaced.
    evicted: Option<(&'g Node<R>, Gone)>,
    /// A unit of the newcomer, for those who wait.
    taken: Option<Lent<R>>,
}

/// Why a newcomer does not get in, once its key has been found to be new.
pub(super) enum Refusal {
    /// As many as the fleet may have.
    Full(usize),
    ShardFull,
}

impl Refusal {
    pub(super) fn error<K>(self, key: K, home: u32) -> InsertError<K> {
        match self {
            Refusal::Full(max) => InsertError::Full { key, max },
            Refusal::ShardFull => {
                let max = heap::Entry::MAX_SLOT as usize + 1;
                InsertError::ShardFull { key, shard: home as usize, max }
            }
        }
    }
}

/// How many shards an insertion looks at.
const SAMPLE: u32 = 16;

impl<R: Resource, S: BuildHasher> Scheduler<R, S> {
    /// Adds a resource to the fleet.
    ///
    /// It becomes visible to lookups and to acquisitions in one transition. Its home is the shard it
    /// [asks for](Resource::home), or the one with the fewest members among up to 16.
    ///
    /// # Progress and cost
    /// Blocking on the home shard's lock (O(log n)), and on an insertion or a batch that is inserting the same key.
    /// Allocates the node, with the value in it, and now and then a segment, always outside the lock. An eviction looks at each shard.
    ///
    /// # Callbacks
    /// The resource's methods, `Hash` and `Eq` of the key. If one panics, the fleet is as before and the resource is
    /// dropped.
    ///
    /// # Errors
    /// The resource comes back with an [`InsertError`].
    ///
    /// ```
    /// use leasehold::{Entry, InsertError, Scheduler};
    ///
    /// let scheduler = Scheduler::<Entry<&str, u32, u16>>::builder().build()?;
    /// scheduler.insert(Entry::new("a", 1, 8001))?;
    /// let rejected = scheduler.insert(Entry::new("a", 2, 8002)).unwrap_err();
    /// assert_eq!(rejected.error, InsertError::Duplicate { key: "a" });
    /// assert_eq!(rejected.into_inner().value, 8002);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn insert(&self, resource: R) -> Result<(), Rejected<R, InsertError<R::Key>>> {
        self.insert_as(resource, false)
    }

    /// As [`insert`](Self::insert), of a resource that drains from the first: nobody who waits gets a unit of it before
    /// [`undrain`](Self::undrain).
    #[cfg(feature = "cluster")]
    pub(crate) fn insert_draining(&self, resource: R) -> Result<(), Rejected<R, InsertError<R::Key>>> {
        self.insert_as(resource, true)
    }

    fn insert_as(&self, resource: R, drains: bool) -> Result<(), Rejected<R, InsertError<R::Key>>> {
        if self.core.is_closed() {
            return Err(Rejected { returned: resource, error: InsertError::Closed });
        }
        let key = resource.key();
        let hash = self.hasher.hash_one(&key);
        let draft = self.core.draft(key, hash, resource)?;
        self.core.insert(draft, drains)
    }

    /// Removes the worst eligible resource of the fleet; answers with its key, or `None` if nothing is eligible, or the
    /// scheduler is closed.
    ///
    /// Blocking on one shard's lock at a time; O(shards + log n).
    ///
    /// # Callbacks
    /// The clock, while something is cooling, before anything is changed; `Clone` of the key at the end.
    pub fn evict_worst(&self) -> Option<R::Key> {
        let core = &*self.core;
        if core.is_closed() {
            return None;
        }
        core.thaw_due();
        let guard = core.pin();
        let (node, gone) = core.evict(&guard, |_| true)?;
        core.roster.subtract();
        core.forget(node, gone, &guard);
        Some(node.key().clone())
    }
}
