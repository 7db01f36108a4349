//! Affinity: the same id finds the same shard, or the same resource, again.
//!
//! The ring is built when it is first asked for: who does not use affinity pays nothing for it. Until then the published
//! value is the weights alone. Weights that are set meanwhile win over a ring that was being built from older ones.
//!
//! | published | becomes | by |
//! |---|---|---|
//! | weights | their ring | whoever asks for it: a refinement, which gives way to newer weights |
//! | weights, or a ring | other weights | `set_shard_weights`: a replacement, whatever is there |
//!
//! The ring is read in a section of the reclaimer, as nodes and values are; how it is replaced under those who read it is told in
//! `lookup::reclaim::published`. A peek reads ring, node and value in one section; an acquisition leaves its section when it knows the
//! shard, and takes the lock without (one that is [explained](Scheduler::acquire_by_affinity_explained) looks at all shards in one section first). So an old ring lives as long as the longest section that was open when it was replaced: a [`Peek`] that
//! is kept keeps it too, and so does a filter that blocks, of any scheduler in the process. Nothing else does. A ring may be large, so
//! whoever replaces it does not leave it to the next 127 things that are retired, but frees it, with what else is due, before the
//! call returns; if somebody was in a section just then, the next call of that thread does, or what else it retires.
//!
//! [`Peek`]: super::Peek

use std::hash::{BuildHasher, Hash};

use super::{
    Scheduler,
    core::{Core, open},
    error::{AcquireError, WeightsError},
    explain::Preference,
    lease::{Lease, OwnedLease},
};
use crate::{
    jump::jump,
    lookup::{Keyed, Published},
    resource::Resource,
    ring::{Ring, affinity_hash},
    shard::{Lent, Pin, Shard},
    sync::SplitMix64,
};

/// What an id belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Affinity {
    /// A shard: it is lent the best resource there. Order comes before sameness.
    #[default]
    Shard,
    /// A resource of that shard: it is lent that one again and again, whatever its priority, as long as it is eligible;
    /// then a second and a third choice of the id's own, then the best of the shard. Sameness comes before order: for prompt
    /// caches and sessions. After many removals without insertions more ids come to the later choices. A hot id loads one
    /// resource up to its capacity, and spills over after that.
    Resource,
}

/// Choices of an id's own before the best of the shard.
const CHOICES: usize = 3;

/// The ring, or what it will be made of.
pub enum Rings {
    /// Weights that a ring can be made of.
    Planned(Vec<u32>),
    /// The ring.
    Built(Ring),
}

impl Rings {
    /// Checks the weights; builds nothing yet.
    pub fn plan(weights: Vec<u32>, virtual_nodes: u32) -> Result<Self, crate::ring::RingError> {
        Ring::check(&weights, virtual_nodes)?;
        Ok(Rings::Planned(weights))
    }

    /// Publishes them to a core that is being made.
    #[allow(unsafe_code)]
    pub fn publish(self) -> Published<Rings> {
        // SAFETY: a core gives its ring's cell no guards but those of its own map.
        unsafe { Published::new(self) }
    }
}

impl<R: Resource> Core<R> {
    /// The ring, if it has been built: the usual case.
    #[inline(always)]
    pub(super) fn built_ring<'g>(&'g self, guard: &'g Pin<'_>) -> Option<&'g Ring> {
        match self.ring.load(guard) {
            Rings::Built(ring) => Some(ring),
            Rings::Planned(_) => None,
        }
    }

    /// Runs `f` on the ring: one version for all of it.
    #[inline]
    pub(super) fn with_ring<T>(&self, guard: &Pin<'_>, f: impl FnOnce(&Ring) -> T) -> T {
        if let Some(ring) = self.built_ring(guard) {
            return f(ring);
        }
        self.build_ring(guard);
        match self.ring.load(guard) {
            Rings::Built(ring) => f(ring),
            // Weights were planned anew in between; one decision does not wait for that.
            Rings::Planned(weights) => f(&self.build(weights)),
        }
    }

    #[cold]
    fn build_ring(&self, guard: &Pin<'_>) {
        self.ring.refine(guard, |rings| match rings {
            Rings::Planned(weights) => Some(Rings::Built(self.build(weights))),
            Rings::Built(_) => None,
        });
    }

    fn build(&self, weights: &[u32]) -> Ring {
        Ring::new(weights, self.virtual_nodes).expect("checked when it was planned")
    }

    /// The shard of the ring, then the others in the id's own order.
    pub(super) fn lend_by_affinity(&self, hash: u64) -> Result<Lent<R>, AcquireError> {
        open(self)?;
        self.thaw_due();
        loop {
            // A section of its own, which ends before the lock is taken: what is done under the lock may enter another one.
            let first = {
                let guard = self.pin();
                self.with_ring(&guard, |ring| ring.shard_of(hash))
            };
            // Waits for the lock: affinity is worth more than some tens of nanoseconds.
            let lent = self.lend_of(&self.shards[first], hash);
            if let Some(lent) = lent.or_else(|| self.lend_of_others(first, hash)) {
                return Ok(lent);
            }
            if let Some(none) = self.none_eligible() {
                if self.reap_for_more() {
                    continue;
                }
                return Err(AcquireError::NoneEligible(none));
            }
        }
    }

    /// Of the shards but `first`, in the id's own order on the ring as it is now.
    #[cold]
    fn lend_of_others(&self, first: usize, hash: u64) -> Option<Lent<R>> {
        let guard = self.pin();
        self.with_ring(&guard, |ring| {
            let mut others = ring.successors(hash).filter(|&i| i != first).map(|i| &self.shards[i]);
            others.find_map(|shard| if self.shows_some(shard) { self.lend_of(shard, hash) } else { None })
        })
    }

    /// The slots of a shard that are an id's own, the first choice first. Two may be the same.
    #[inline]
    fn own_slots(&self, shard: &Shard<R>, hash: u64) -> [u32; CHOICES] {
        // All of a batch: the id's own resource may be its last.
        if shard.face().staged() != 0 {
            self.absorb(shard);
        }
        let slots = shard.face().slots();
        let mut random = SplitMix64::new(hash);
        std::array::from_fn(|_| jump(random.next_u64(), slots))
    }

    /// The resource of a shard that an id is lent.
    pub(super) fn lend_of(&self, shard: &Shard<R>, hash: u64) -> Option<Lent<R>> {
        if self.affinity == Affinity::Shard {
            return self.lend_best(&mut self.lock(shard), None);
        }
        // Chosen before the lock is taken; a slot that is free is passed over.
        let chosen = self.own_slots(shard, hash);
        let mut locked = self.lock(shard);
        chosen.into_iter().find_map(|slot| locked.lend_slot(slot)).or_else(|| locked.lend_best(None))
    }

    /// Where an id looks, in its own order: for whoever asks why. Blocking on one shard's lock at a time; clones keys, under no lock.
    pub(super) fn preferences(&self, hash: u64) -> Vec<Preference<R::Key>> {
        let guard = self.pin();
        let order: Vec<usize> = self.with_ring(&guard, |ring| ring.successors(hash).collect());
        let choices = |shard| self.choices(&self.shards[shard], hash, &guard);
        order.into_iter().map(|shard| Preference { shard, choices: choices(shard) }).collect()
    }

    /// The resources of a shard that [`lend_of`](Self::lend_of) tries before the best one. The guard keeps them while their keys are cloned.
    fn choices(&self, shard: &Shard<R>, hash: u64, _guard: &Pin<'_>) -> Vec<R::Key> {
        if self.affinity == Affinity::Shard {
            return Vec::new();
        }
        let slots = self.own_slots(shard, hash);
        let nodes = {
            let locked = shard.lock();
            // Neither what is removed and still lent, nor what is part of a batch to come.
            slots.map(|slot| {
                let node = (slot < locked.slots_used()).then(|| locked.node_at(slot)).flatten();
                node.filter(|node| self.visible(node).is_some())
            })
        };
        let mut choices = Vec::new();
        for node in nodes.into_iter().flatten() {
            if !choices.contains(node.key()) {
                choices.push(node.key().clone());
            }
        }
        choices
    }
}

impl<R: Resource, S: BuildHasher> Scheduler<R, S> {
    /// Lends a resource of the shard that `id` belongs to: the best one, or, with [`Affinity::Resource`], the id's own. Of
    /// the next shard in that id's own order if the first has nothing.
    ///
    /// The same id finds the same shard as long as its weight stays; the order of the others differs from id to id, so
    /// that the callers of an empty shard spread over all others. With [`Affinity::Resource`], an insertion moves few ids,
    /// and only to the newcomer; a removal moves the ids of the one removed. Blocking on a shard's lock; O(log n). No
    /// allocation, but for the first call, which builds the ring.
    ///
    /// # Errors
    /// As [`acquire`](Scheduler::acquire).
    ///
    /// ```
    /// use leasehold::{Affinity, Entry, Scheduler};
    ///
    /// let scheduler = Scheduler::<Entry<u32, u32, ()>>::builder().affinity(Affinity::Resource).build()?;
    /// scheduler.insert_batch((0..100).map(|key| Entry::new(key, key, ())).collect())?;
    /// let key = *scheduler.acquire_by_affinity("session 7")?.key();
    /// scheduler.update_with(&key, |old| Entry { priority: 1_000, ..*old })?;
    /// assert_eq!(*scheduler.acquire_by_affinity("session 7")?.key(), key);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn acquire_by_affinity<I: Hash + ?Sized>(&self, id: &I) -> Result<Lease<'_, R>, AcquireError> {
        let hash = affinity_hash(id);
        let lent = self.core.lend_by_affinity(hash).map_err(|error| self.core.in_vain(error))?;
        Ok(Lease::new(&self.core, lent))
    }

    /// As [`acquire_by_affinity`](Scheduler::acquire_by_affinity), for a lease that may outlive the scheduler.
    #[track_caller]
    pub fn acquire_by_affinity_owned<I: Hash + ?Sized>(&self, id: &I) -> Result<OwnedLease<R>, AcquireError> {
        self.acquire_by_affinity(id).map(|lease| lease.into_owned(&self.core))
    }

    /// Publishes new weights for the affinity ring, one per shard. Wait-free for readers; the ring is built by the next
    /// one that needs it, O(points × log points).
    ///
    /// Raising or lowering one weight moves only ids to or from that shard.
    ///
    /// The old ring is freed in this call, as [`collect_garbage`](crate::collect_garbage) would, with what else is due; if somebody is
    /// looking just then, in this thread's next one, and not while an older [`Peek`](super::Peek) lives.
    ///
    /// # Errors
    /// [`WeightsError`]; the old weights stay.
    pub fn set_shard_weights(&self, weights: &[u32]) -> Result<(), WeightsError> {
        let core = &*self.core;
        if core.is_closed() {
            return Err(WeightsError::Closed);
        }
        let shards = core.shards.len();
        if weights.len() != shards {
            return Err(WeightsError::Length { given: weights.len(), shards });
        }
        let rings = Rings::plan(weights.to_vec(), core.virtual_nodes).map_err(WeightsError::Ring)?;
        core.ring.replace(rings, &core.pin());
        // A ring is large, up to 32 MiB: 127 of them must not wait here for one more. Also if there was none by now: the last call may have left one.
        #[cfg(not(any(loom, shuttle)))]
        crate::lookup::collect_garbage();
        Ok(())
    }
}
