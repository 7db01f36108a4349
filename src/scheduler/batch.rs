//! Insertion of many resources at once: all or nothing, never visible in part. The protocol is in `shard::staged`.

use std::{cmp::Reverse, collections::BinaryHeap, hash::BuildHasher};

use super::{
    Scheduler,
    core::Core,
    error::{InsertError, Rejected},
    insert::{Newcomer, Refusal},
};
use crate::{
    lookup::Keyed,
    node::{Draft, Node},
    resource::Resource,
    shard::Run,
};

/// The members so far. If they do not all get in, they are undone one by one, the last one first: the next
/// newcomers then take their slots in the order in which these had them.
struct Members<'a, R: Resource>(Vec<Newcomer<'a, R>>);

impl<R: Resource> Members<'_, R> {
    /// The resources come back in the order in which they were given.
    fn take_back(&mut self) -> Vec<R> {
        let mut resources: Vec<R> = self.0.drain(..).rev().map(Newcomer::take_back).collect();
        resources.reverse();
        resources
    }
}

impl<R: Resource> Drop for Members<'_, R> {
    fn drop(&mut self) {
        while self.0.pop().is_some() {}
    }
}

impl<R: Resource> Core<R> {
    /// Homes for a batch: where a resource wants to be, else always the shard with the fewest members then.
    fn homes(&self, drafts: &[Draft<R>]) -> Result<Vec<u32>, InsertError<R::Key>> {
        let mut homes = Vec::with_capacity(drafts.len());
        let mut emptiest: BinaryHeap<Reverse<(u64, u32)>> = (0..self.shards.len() as u32)
            .map(|i| Reverse((self.shards[i as usize].face().members(), i)))
            .collect();
        for draft in drafts {
            let home = match self.wanted_home(draft)? {
                Some(home) => home,
                None => {
                    let mut least = emptiest.peek_mut().expect("there is at least one shard");
                    least.0.0 += 1;
                    least.0.1
                }
            };
            homes.push(home);
        }
        Ok(homes)
    }

    /// Gives nodes their slots, a bounded number for each turn of the lock. The error is the first that has got none.
    fn seat<'n>(&self, home: usize, nodes: &[&'n Node<R>]) -> Result<(), &'n Node<R>> {
        for piece in nodes.chunks(SEAT_AT_ONCE) {
            let Some(mut locked) = self.shards[home].lock_with_slots(piece.len(), None) else {
                return Err(piece[0]);
            };
            for node in piece {
                locked.seat(node);
            }
        }
        Ok(())
    }

    fn insert_batch(&self, drafts: Vec<Draft<R>>) -> Result<usize, Rejected<Vec<R>, InsertError<R::Key>>> {
        let reject = |drafts: Vec<Draft<R>>, error| {
            let returned = drafts.into_iter().map(|draft| draft.resource).collect();
            Err(Rejected { returned, error })
        };
        let count = drafts.len();
        let homes = match self.homes(&drafts) {
            Ok(homes) => homes,
            Err(error) => return reject(drafts, error),
        };
        // Pinned before the turn is taken: the end of the section may run the `Drop` of garbage, user code that might want the turn.
        let guard = self.pin();
        let Some(turn) = self.batch.take() else {
            return reject(drafts, InsertError::Reentered);
        };
        // B1.
        let number = self.roster.next_batch();
        let mut members = Members(Vec::with_capacity(count));
        // B2.
        let mut rest = drafts.into_iter().zip(homes);
        for (draft, home) in rest.by_ref() {
            members.0.push(Newcomer::new(self, draft, home, number));
            if let Err(key) = members.0.last_mut().expect("just pushed").link() {
                let mut returned = members.take_back();
                returned.extend(rest.map(|(draft, _)| draft.resource));
                return Err(Rejected { returned, error: InsertError::Duplicate { key } });
            }
        }
        // Cloned while everything can still be undone.
        let first_key = members.0[0].node().key().clone();
        // B3.
        let mut by_shard: Vec<Vec<&Node<R>>> = self.shards.iter().map(|_| Vec::new()).collect();
        for newcomer in &members.0 {
            by_shard[newcomer.node().home() as usize].push(newcomer.node());
        }
        for (home, nodes) in by_shard.iter().enumerate() {
            if let Err(first) = self.seat(home, nodes) {
                let key = first.key().clone();
                let error = Refusal::ShardFull.error(key, home as u32);
                return Err(Rejected { returned: members.take_back(), error });
            }
        }
        let runs: Vec<Option<Box<Run<R>>>> = by_shard
            .into_iter()
            .map(|nodes| (!nodes.is_empty()).then(|| Box::new(Run::new(number, nodes))))
            .collect();
        let staged: Vec<usize> = (0..runs.len()).filter(|&i| runs[i].is_some()).collect();
        for (shard, run) in self.shards.iter().zip(runs) {
            if let Some(run) = run {
                shard.lock().stage(run);
            }
        }
        // B4.
        let max = self.max_resources.map_or(u32::MAX, |(max, _)| max);
        let committed =
            u32::try_from(count).is_ok_and(|count| self.roster.commit(number, count, max).is_ok());
        let mut nodes = Vec::new();
        if committed {
            // The guard keeps them from now on.
            nodes = members.0.drain(..).map(Newcomer::release).collect();
            // B5.
            for &i in &staged {
                self.absorb(&self.shards[i]);
            }
        }
        for &i in &staged {
            let run = self.shards[i].lock().unstage();
            drop(run);
        }
        let outcome = if committed {
            Ok(count)
        } else {
            let error = InsertError::Full { key: first_key, max: max as usize };
            Err(Rejected { returned: members.take_back(), error })
        };
        // Lookups alone may follow.
        self.map.finish_growth_after(count, &guard);
        drop(turn);
        // B5 has held the lock of each shard with a part of the batch: the gate is up to date. Filters may insert batches.
        for node in nodes {
            if self.waiters.gate().is_free() {
                break;
            }
            // SAFETY: the guard, which is older than the batch, keeps it.
            #[allow(unsafe_code)]
            self.offer_node(unsafe { node.as_ref() }, &guard);
        }
        drop(guard);
        outcome
    }
}

/// Members of a batch that get their slots in one critical section.
const SEAT_AT_ONCE: usize = if cfg!(any(loom, shuttle)) { 1 } else { 64 };

impl<R: Resource, S: BuildHasher> Scheduler<R, S> {
    /// Adds many resources at once: all of them, or none. Nobody ever sees a part of them.
    ///
    /// An empty batch does nothing. In a bounded fleet a batch that does not fit is refused, whatever the overflow rule.
    ///
    /// # Progress and cost
    /// Batches wait for each other. Each shard's lock is held for O(1) or O(log n) at a time, never two at once. Three
    /// allocations per resource at most, outside the locks.
    ///
    /// # Consistency
    /// Linearizable: all members become visible by one compare-and-swap.
    ///
    /// # Callbacks
    /// Each resource is asked once for key, capacity, priority and home; `Hash` once per key. `Eq` runs while other
    /// batches wait; if it inserts a batch itself, that one is refused with [`InsertError::Reentered`]. If one panics, the
    /// fleet is as before.
    ///
    /// # Errors
    /// All resources come back in order, with the reason and the key that was in the way.
    ///
    /// ```
    /// use leasehold::{Entry, Scheduler};
    ///
    /// let scheduler = Scheduler::<Entry<u32, u32, ()>>::builder().build()?;
    /// let batch = (0..100).map(|i| Entry::new(i, i, ())).collect();
    /// assert_eq!(scheduler.insert_batch(batch)?, 100);
    /// let again = vec![Entry::new(100, 0, ()), Entry::new(5, 0, ())];
    /// assert_eq!(scheduler.insert_batch(again).unwrap_err().returned.len(), 2);
    /// assert_eq!(scheduler.len(), 100);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn insert_batch(&self, resources: Vec<R>) -> Result<usize, Rejected<Vec<R>, InsertError<R::Key>>> {
        if self.core.is_closed() {
            return Err(Rejected { returned: resources, error: InsertError::Closed });
        }
        if resources.is_empty() {
            return Ok(0);
        }
        let mut drafts = Vec::with_capacity(resources.len());
        let mut rest = resources.into_iter();
        while let Some(resource) = rest.next() {
            let key = resource.key();
            let hash = self.hasher.hash_one(&key);
            match self.core.draft(key, hash, resource) {
                Ok(draft) => drafts.push(draft),
                Err(Rejected { returned, error }) => {
                    let accepted = drafts.into_iter().map(|draft: Draft<R>| draft.resource);
                    return Err(Rejected {
                        returned: accepted.chain([returned]).chain(rest).collect(),
                        error,
                    });
                }
            }
        }
        self.core.insert_batch(drafts)
    }
}
