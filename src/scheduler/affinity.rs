//! Affinity: the same id finds the same shard, or the same resource, again.
//!
//! The ring is built when it is first asked for: who does not use affinity pays nothing for it. Until then the published
//! value is the weights alone. Weights that are set meanwhile win over a ring that was being built from older ones.

use std::hash::{BuildHasher, Hash};

use super::{
    Scheduler,
    core::{Core, open},
    error::{AcquireError, WeightsError},
    lease::{Lease, OwnedLease},
};
use crate::{
    jump::jump,
    resource::Resource,
    ring::{Ring, affinity_hash},
    shard::{Lent, Shard},
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
const CHOICES: u64 = 3;

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
}

impl<R: Resource> Core<R> {
    /// Runs `f` on the ring: one snapshot per decision.
    pub(super) fn with_ring<T>(&self, f: impl FnOnce(&Ring) -> T) -> T {
        let rings = self.ring.load();
        if let Rings::Built(ring) = &**rings {
            return f(ring);
        }
        drop(rings);
        self.build_ring();
        let rings = self.ring.load();
        match &**rings {
            Rings::Built(ring) => f(ring),
            // Weights were planned anew in between; one decision does not wait for that.
            Rings::Planned(weights) => f(&self.build(weights)),
        }
    }

    #[cold]
    fn build_ring(&self) {
        self.ring.refine(|rings| match rings {
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
            let lent = self.with_ring(|ring| {
                let first = &self.shards[ring.shard_of(hash)];
                // Waits for the lock: affinity is worth more than some tens of nanoseconds.
                self.lend_of(first, hash).or_else(|| {
                    let mut others = ring.successors(hash).skip(1).map(|i| &self.shards[i]);
                    others.find_map(
                        |shard| if self.shows_some(shard) { self.lend_of(shard, hash) } else { None },
                    )
                })
            });
            if let Some(lent) = lent {
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

    /// The resource of a shard that an id is lent.
    pub(super) fn lend_of(&self, shard: &Shard<R>, hash: u64) -> Option<Lent<R>> {
        if self.affinity == Affinity::Shard {
            return self.lend_best(&mut self.lock(shard), None);
        }
        // All of a batch: the id's own resource may be its last.
        if shard.face().staged() != 0 {
            self.absorb(shard);
        }
        // Chosen before the lock is taken; a slot that is free is passed over.
        let slots = shard.face().slots();
        let mut random = SplitMix64::new(hash);
        let chosen: [u32; CHOICES as usize] = std::array::from_fn(|_| jump(random.next_u64(), slots));
        let mut locked = self.lock(shard);
        chosen.into_iter().find_map(|slot| locked.lend_slot(slot)).or_else(|| locked.lend_best(None))
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
        let lent = self.core.lend_by_affinity(hash)?;
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
        core.ring.store(Rings::plan(weights.to_vec(), core.virtual_nodes).map_err(WeightsError::Ring)?);
        Ok(())
    }
}
