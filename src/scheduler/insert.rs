//! Insertion of one resource.
//!
//! # Steps
//!
//! ```text
//! I1  ask the resource for key, capacity, rank, home (user code; nothing is changed yet)
//! I2  roster += 1, or make room by the overflow rule (not for a key that is there already)
//! I3  seat the node: a slot of its home shard, under the lock, STAGED; room for its heap entry is made
//! I4  link it into the lookup (user code: Eq). The key exists: undo I3 and I2
//! I5  admit it under the home lock: STAGED -> eligible, into the heap              <- visible by key and to acquire
//! ```
//!
//! Nothing is reachable before it is complete: between I4 and I5 the lookup answers with a `STAGED` node, which everyone
//! takes for absent. An inserter of the same key that meets it finishes I5 first, so that its own "duplicate" is true.
//! A panic at any point undoes what was done.

use std::{hash::BuildHasher, ptr::NonNull};

use super::{
    Scheduler,
    builder::Overflow,
    core::Core,
    error::{InsertError, Rejected},
};
use crate::{
    heap,
    lookup::{Guard, Keyed, Occupied},
    node::{self, Draft, Node},
    rank::Priority,
    resource::Resource,
    shard::Count,
    sync::SplitMix64,
};

/// Membership that was counted for a resource that is not in yet; taken off again if it does not get in.
struct Counted<'a, R: Resource>(&'a Core<R>);

impl<R: Resource> Drop for Counted<'_, R> {
    fn drop(&mut self) {
        self.0.roster.subtract();
    }
}

/// A node with a slot that nobody can see yet; freed with its slot if it does not get in.
pub(super) struct Seated<'a, R: Resource> {
    core: &'a Core<R>,
    node: Option<NonNull<Node<R>>>,
}

#[allow(unsafe_code)]
impl<'a, R: Resource> Seated<'a, R> {
    /// I3. Gives the draft back if its shard is full.
    pub(super) fn new(core: &'a Core<R>, draft: Draft<R>, home: u32, batch: u32) -> Result<Self, Draft<R>> {
        // The lock is taken with room made ahead; the node is allocated before that.
        let node = Box::new(Node::new(draft, home, batch));
        let Some(mut locked) = core.shards[home as usize].lock_with_slot() else {
            let node = Box::into_raw(node);
            // SAFETY: never visible, and taken apart here, once.
            let draft = unsafe { take_apart(node) };
            // SAFETY: just made by `into_raw`.
            unsafe { node::free(node) };
            return Err(draft);
        };
        let node = NonNull::from(Box::leak(node));
        // SAFETY: just allocated, owned by `Seated` from here on.
        locked.seat(unsafe { node.as_ref() });
        Ok(Seated { core, node: Some(node) })
    }

    pub(super) fn node(&self) -> NonNull<Node<R>> {
        self.node.expect("until it is released or taken back")
    }

    /// It got in: the scheduler owns it now.
    pub(super) fn release(mut self) {
        self.node = None;
    }

    /// It did not get in: the resource comes back, slot and node are given up. With `linked`, the lookup has known the
    /// node (and has been made to forget it), so others may still compare keys with it.
    pub(super) fn take_back(mut self, linked: bool) -> R {
        let node = self.node.take().expect("until it is released or taken back");
        // SAFETY: `STAGED`, and about to be given up by its only owner.
        let resource = unsafe { node.as_ref().take_unborn() };
        self.give_up(node, linked);
        resource
    }

    fn give_up(&self, node: NonNull<Node<R>>, linked: bool) {
        // SAFETY: owned by `self` until freed below.
        let alive = unsafe { node.as_ref() };
        self.core.home(alive).lock().unseat(alive);
        if linked {
            // SAFETY: rule 5 of `node`: out of lookup, slot table and heaps; never visible. Given up here.
            unsafe { self.core.pin().retire(node.as_ptr(), node::free) };
        } else {
            // SAFETY: nobody else has ever seen it. Given up here.
            unsafe { node::free(node.as_ptr()) };
        }
    }
}

/// The parts of a node that was never visible. The node's memory stays the caller's.
///
/// # Safety
/// As for [`Node::take_unborn`], and nobody else can reach the node.
#[allow(unsafe_code)]
unsafe fn take_apart<R: Resource>(node: *mut Node<R>) -> Draft<R> {
    // SAFETY: passed on to the caller.
    let node = unsafe { &*node };
    // SAFETY: passed on to the caller.
    let resource = unsafe { node.take_unborn() };
    Draft { key: node.key().clone(), hash: node.hash(), limit: 1, rank: node.rank(), resource }
}

impl<R: Resource> Drop for Seated<'_, R> {
    fn drop(&mut self) {
        if let Some(node) = self.node.take() {
            // A panic in the user's `Eq` while it was being linked: the lookup does not have it.
            self.give_up(node, false);
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
        let rank = resource.priority(0).rank();
        Ok(Draft { key, hash, limit, rank, resource })
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

    /// I2. Evicts for the newcomer if the overflow rule says so.
    fn count_in(&self, draft: &Draft<R>) -> Result<Counted<'_, R>, InsertError<R::Key>> {
        let (max, overflow) = self.max_resources.unwrap_or((u32::MAX, Overflow::Reject));
        loop {
            if self.roster.add(max).is_ok() {
                return Ok(Counted(self));
            }
            // I4 would find it, but by then somebody would have been evicted for nothing.
            if self.find(draft.hash, &draft.key, &self.pin()).is_some() {
                return Err(InsertError::Duplicate { key: draft.key.clone() });
            }
            let made_room = overflow == Overflow::EvictWorst
                && self.evict(|worst| (worst.rank() > draft.rank).then_some(())).is_some();
            if !made_room {
                return Err(InsertError::Full { key: draft.key.clone(), max: max as usize });
            }
        }
    }

    /// I2 to I5.
    fn insert(&self, draft: Draft<R>) -> Result<(), Rejected<R, InsertError<R::Key>>> {
        let home = match self.wanted_home(&draft) {
            Ok(home) => home,
            Err(error) => return Err(Rejected { returned: draft.resource, error }),
        };
        let counted = match self.count_in(&draft) {
            Ok(counted) => counted,
            Err(error) => return Err(Rejected { returned: draft.resource, error }),
        };
        // After an eviction, which may have made another shard the emptiest.
        let home = home.unwrap_or_else(|| self.balanced_home(draft.hash));
        let seated = match Seated::new(self, draft, home, 0) {
            Ok(seated) => seated,
            Err(draft) => {
                let max = heap::Entry::MAX_SLOT as usize;
                let error = InsertError::ShardFull { key: draft.key, shard: home as usize, max };
                return Err(Rejected { returned: draft.resource, error });
            }
        };
        match self.link(seated.node()) {
            Ok(()) => {
                // From here on nothing can fail or panic.
                let node = seated.node();
                seated.release();
                std::mem::forget(counted);
                self.admit(node);
                Ok(())
            }
            Err(key) => {
                Err(Rejected { returned: seated.take_back(false), error: InsertError::Duplicate { key } })
            }
        }
    }

    /// I4, for an insertion alone and for a member of a batch. Answers with the key if it exists.
    #[allow(unsafe_code)]
    pub(super) fn link(&self, node: NonNull<Node<R>>) -> Result<(), R::Key> {
        loop {
            let guard = self.pin();
            let existing = match self.insert_pointer(node, &guard) {
                Ok(()) => return Ok(()),
                Err(existing) => existing,
            };
            // SAFETY: owned by the caller.
            let newcomer = unsafe { node.as_ref() };
            let state = existing.state.load();
            if state.is_removed() {
                // On its way out; help the lookup to forget it.
                let _ = self.map.remove_item(existing, &guard);
                continue;
            }
            if state.is_staged() && !self.roster.is_committed(existing.batch()) {
                if existing.batch() == 0 {
                    // An insertion between I4 and I5: finish it, then it is a true duplicate.
                    self.admit(NonNull::from(existing));
                } else if existing.batch() != newcomer.batch() {
                    // A batch between B2 and B4 will come or go: wait for its end.
                    drop(guard);
                    drop(self.batch.lock());
                    continue;
                }
            }
            return Err(existing.key().clone());
        }
    }

    /// I5. May be done by several; one does it.
    #[allow(unsafe_code)]
    pub(super) fn admit(&self, node: NonNull<Node<R>>) {
        // SAFETY: linked by us, or found under a guard; a node that is staged or was just admitted is not freed while
        // the inserter has not returned, and a helper holds a guard.
        let node = unsafe { node.as_ref() };
        let _ = self.lock(self.home(node)).admit(node);
    }

    fn insert_pointer<'g>(
        &self,
        node: NonNull<Node<R>>,
        guard: &'g crate::shard::Pin<'_>,
    ) -> Result<(), &'g Node<R>> {
        // SAFETY: the node stays allocated until it was removed from the lookup and retired through a guard.
        #[allow(unsafe_code)]
        match unsafe { self.map.insert_raw(node, guard) } {
            Ok(_) => Ok(()),
            Err(Occupied { existing, .. }) => Err(existing),
        }
    }

    /// Evicts the worst eligible resource of the fleet, unless `judge` answers `None` about it. Passes the answer on.
    ///
    /// `judge` may run user code: it comes before anything is changed.
    pub(super) fn evict<T>(&self, judge: impl Fn(&Node<R>) -> Option<T>) -> Option<T> {
        let guard = self.pin();
        loop {
            let node = self.worst(&guard)?;
            let judgement = judge(node)?;
            let shard = self.home(node);
            let mut locked = self.lock(shard);
            // It must still be the worst of its shard, and eligible.
            if locked.worst().is_some_and(|worst| std::ptr::eq(worst, node))
                && locked.remove(node, Count::Evicted).is_ok()
            {
                drop(locked);
                self.forget(node, &guard);
                return Some(judgement);
            }
        }
    }

    /// The worst eligible node of the fleet: a look at each shard, one lock at a time.
    pub(super) fn worst<'g>(&'g self, _guard: &'g crate::shard::Pin<'_>) -> Option<&'g Node<R>> {
        let mut worst: Option<&Node<R>> = None;
        for shard in &self.shards {
            let mut locked = self.lock(shard);
            while !locked.absorb(&self.roster, super::core::ABSORB_AT_ONCE) {
                drop(locked);
                locked = self.lock(shard);
            }
            if let Some(node) = locked.worst()
                && worst.is_none_or(|worst| node.rank() >= worst.rank())
            {
                worst = Some(node);
            }
        }
        worst
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
    /// Blocking on the home shard's lock (twice, O(log n)), and on a batch that is inserting the same key. Allocates the
    /// node, the value, and now and then a segment, always outside the lock.
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
        if self.core.is_closed() {
            return Err(Rejected { returned: resource, error: InsertError::Closed });
        }
        let key = resource.key();
        let hash = self.hasher.hash_one(&key);
        let draft = self.core.draft(key, hash, resource)?;
        self.core.insert(draft)
    }

    /// Removes the worst eligible resource of the fleet; answers with its key, or `None` if nothing is eligible, or the
    /// scheduler is closed.
    ///
    /// Blocking on one shard's lock at a time; O(shards + log n).
    ///
    /// # Callbacks
    /// `Clone` of the key, and the clock while something is cooling: before anything is changed.
    pub fn evict_worst(&self) -> Option<R::Key> {
        if self.core.is_closed() {
            return None;
        }
        self.core.evict(|worst| Some(worst.key().clone()))
    }
}
