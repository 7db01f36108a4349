//! A batch of resources that becomes visible at once, over all shards, with no two locks held together.
//!
//! # States and steps
//!
//! Batches are serialised by the scheduler's `Turn`, so at most one is between B1 and B5.
//!
//! ```text
//! B1  number := roster's batch number + 1; every node carries it
//! B2  link each node into the lookup, STAGED; a key that exists undoes all
//! B3  in each shard: seat the nodes (a slot of their home shard), a bounded number per lock; a full shard undoes all. Then in
//!     each: hand over the whole run, O(1) under the lock
//! B4  roster: batch number := number, members += n, in one CAS                          <- the batch is visible
//! B5  in each shard: absorb the run, a bounded piece per lock; then take the empty run out
//! ```
//!
//! B4 is the linearization point. Whoever looks between B4 and B5 must see every member:
//!
//! * by key: a `STAGED` node whose batch is committed counts as found; who wants to change it absorbs first;
//! * by acquiring: whoever locks a shard with a committed run absorbs a piece before looking at the heap, and a shard
//!   that still holds a committed run is never counted as empty. The best of the run is on the shard's face, so that
//!   strategies and peeks take it into account.
//!
//! A batch that is undone (a key exists, no room, a panic) aborts its nodes, `STAGED -> REMOVED`, before the lookup forgets
//! them: its number is used again, and a reader that still holds such a node must not take it for a member of that later
//! batch.
//!
//! Before B4 a staged node is invisible: not found by key, not in a heap, not counted.

use std::ptr::NonNull;

use super::{Locked, face::Staged};
use crate::{
    node::Node,
    resource::Resource,
    sync::{
        atomic::{AtomicBool, AtomicU64, Ordering},
        count,
    },
};

/// The part of one batch that belongs to one shard, best first.
pub struct Run<R: Resource> {
    batch: u32,
    nodes: Vec<NonNull<Node<R>>>,
    next: usize,
}

impl<R: Resource> Run<R> {
    /// A run of nodes that have slots; ordered here, outside the lock.
    pub fn new(batch: u32, mut nodes: Vec<&Node<R>>) -> Self {
        // Stable, so that equal ranks keep the order in which they were given.
        nodes.sort_by_key(|node| node.rank());
        Run { batch, nodes: nodes.into_iter().map(NonNull::from).collect(), next: 0 }
    }

    fn is_empty(&self) -> bool {
        self.next == self.nodes.len()
    }
}

/// How many members there are, and which batch was the last to become visible: one word, so that both change at once.
#[derive(Debug)]
pub struct Roster {
    word: AtomicU64,
    /// Newcomers that were numbered.
    // Lint: `count` is std's own under loom, on purpose.
    #[allow(clippy::disallowed_types)]
    numbered: count::AtomicU64,
    /// Whoever is admitted drains from the beginning.
    newcomers_drain: AtomicBool,
}

/// The fleet has no room for that many.
#[derive(Clone, Copy, Debug)]
pub struct Full;

impl Roster {
    #[allow(clippy::disallowed_types)]
    pub fn new() -> Self {
        Roster {
            word: AtomicU64::new(0),
            numbered: count::AtomicU64::new(0),
            newcomers_drain: AtomicBool::new(false),
        }
    }

    /// A number for one that has its key, larger than those of all that have had the key before.
    pub fn number(&self) -> u64 {
        // Relaxed: an earlier holder of the key was numbered before it became visible, and has left the lookup before this one came in,
        // which orders the two steps; and steps of one word that are so ordered count in that order.
        self.numbered.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Whether those who are admitted drain from the beginning. The caller holds a shard's lock.
    pub fn newcomers_drain(&self) -> bool {
        // Relaxed: ordered by the shard's lock, which whoever changes it takes afterwards; outcomes in `scheduler::drain`.
        self.newcomers_drain.load(Ordering::Relaxed)
    }

    /// Changes that. The caller then goes over all shards, each with its lock.
    pub fn let_newcomers_drain(&self, drain: bool) {
        // Relaxed: as above.
        self.newcomers_drain.store(drain, Ordering::Relaxed);
    }

    const fn split(word: u64) -> (u32, u32) {
        ((word >> 32) as u32, word as u32)
    }

    /// Members, those included whose insertion is going on.
    pub fn members(&self) -> u32 {
        // Acquire: pairs with B4 as in `is_committed`.
        Self::split(self.word.load(Ordering::Acquire)).1
    }

    /// The number of the last batch that became visible.
    pub fn batch(&self) -> u32 {
        // Acquire: as in `is_committed`. A filter's scan that begins with B4's number finds every member of that batch.
        Self::split(self.word.load(Ordering::Acquire)).0
    }

    /// The number for the next batch: never 0, which means "no batch". The caller holds the batch mutex.
    pub fn next_batch(&self) -> u32 {
        // Relaxed: changes only under the batch mutex.
        Self::split(self.word.load(Ordering::Relaxed)).0.wrapping_add(1).max(1)
    }

    /// Whether the batch with this number is visible. 0 never is.
    pub fn is_committed(&self, batch: u32) -> bool {
        // Acquire: pairs with the Release of `change` at B4.
        // - it reads B4's word: every node of the batch is in the lookup and in its shard's run for us too;
        // - it reads an older word: the batch is not visible to us yet, as if we had come before B4.
        let (current, _) = Self::split(self.word.load(Ordering::Acquire));
        batch != 0 && (current.wrapping_sub(batch) as i32) >= 0
    }

    /// One more member, if there are fewer than `max`.
    pub fn add(&self, max: u32) -> Result<(), Full> {
        self.change(max, |batch, members| (batch, members.checked_add(1)))
    }

    /// One member less.
    pub fn subtract(&self) {
        let gone = self.change(u32::MAX, |batch, members| (batch, members.checked_sub(1)));
        debug_assert!(gone.is_ok(), "only a member is taken off");
    }

    /// B4.
    pub fn commit(&self, number: u32, members: u32, max: u32) -> Result<(), Full> {
        self.change(max, |_, old| (number, old.checked_add(members)))
    }

    fn change(&self, max: u32, step: impl Fn(u32, u32) -> (u32, Option<u32>)) -> Result<(), Full> {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let (batch, members) = Self::split(word);
            let (batch, Some(after)) = step(batch, members) else { return Err(Full) };
            if after > max && after > members {
                return Err(Full);
            }
            let new = u64::from(batch) << 32 | u64::from(after);
            // Release: pairs with the Acquire in `is_committed`; outcomes there. Failure Relaxed: only the word is reused.
            match self.word.compare_exchange_weak(word, new, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(found) => word = found,
            }
        }
    }
}

#[allow(unsafe_code)]
impl<R: Resource> Locked<'_, R> {
    /// B3: takes over a run. O(1).
    pub fn stage(&mut self, run: Box<Run<R>>) {
        debug_assert!(self.inner.staged.is_none(), "one batch at a time");
        // The sequence moves, so that an acquire that found the shard empty looks again after B4.
        self.write();
        self.inner.staged = Some(run);
        self.more_moved = true;
    }

    /// The run, to be dropped outside the lock: after B5, or when the batch is undone.
    pub fn unstage(&mut self) -> Option<Box<Run<R>>> {
        self.write();
        self.more_moved = true;
        self.inner.staged.take()
    }

    /// B5: admits up to `budget` nodes of a committed run. Answers whether the run is used up, or not committed.
    #[inline]
    pub fn absorb(&mut self, roster: &Roster, budget: usize) -> bool {
        match &self.inner.staged {
            Some(run) if !run.is_empty() && roster.is_committed(run.batch) => {
                self.absorb_some(roster, budget)
            }
            _ => true,
        }
    }

    #[cold]
    fn absorb_some(&mut self, roster: &Roster, budget: usize) -> bool {
        for _ in 0..budget {
            let Some(run) = self.inner.staged.as_mut() else { return true };
            let Some(&node) = run.nodes.get(run.next) else { break };
            run.next += 1;
            // SAFETY: a node in a run has a slot and is not spent (rule 5 of `node`).
            let admitted = self.admit(unsafe { node.as_ref() }, roster.newcomers_drain());
            debug_assert!(admitted.is_ok(), "a staged node is admitted once, under this lock");
        }
        self.write();
        self.more_moved = true;
        self.inner.staged.as_ref().is_none_or(|run| run.is_empty())
    }

    /// How many of a committed run that is not absorbed yet have a better rank. O(log n).
    #[cfg(feature = "telemetry")]
    pub(super) fn staged_better_than(&self, rank: u64, roster: &Roster) -> usize {
        match &self.inner.staged {
            Some(run) if roster.is_committed(run.batch) && !roster.newcomers_drain() => {
                // SAFETY: a node in a run is not spent (rule 5 of `node`). The run is ordered by rank.
                run.nodes[run.next..].partition_point(|node| unsafe { node.as_ref() }.rank() < rank)
            }
            _ => 0,
        }
    }

    /// What is left of the run, for the face.
    pub(super) fn staged(&self) -> Staged<R> {
        match self.inner.staged.as_ref().and_then(|run| Some((run.batch, *run.nodes.get(run.next)?))) {
            Some((batch, node)) => {
                // SAFETY: a node in a run is not spent (rule 5 of `node`).
                let rank = unsafe { node.as_ref() }.rank();
                Staged { batch, rank, best: node.as_ptr() }
            }
            None => Staged { batch: 0, rank: u64::MAX, best: std::ptr::null_mut() },
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn members_and_batch_number_change_together() {
        let roster = Roster::new();
        assert!(roster.add(2).is_ok());
        let number = roster.next_batch();
        assert!(!roster.is_committed(number));
        assert!(roster.commit(number, 2, 2).is_err(), "three do not fit into two");
        assert!(!roster.is_committed(number));
        assert!(roster.commit(number, 2, 3).is_ok());
        assert!(roster.is_committed(number));
        assert_eq!(roster.members(), 3);
        assert!(!roster.is_committed(0), "0 means no batch");
        assert!(roster.add(3).is_err());
        roster.subtract();
        assert!(roster.add(3).is_ok());
    }

    #[test]
    fn batch_numbers_survive_their_wrap() {
        let roster = Roster { word: AtomicU64::new(u64::from(u32::MAX) << 32 | 7), ..Roster::new() };
        let number = roster.next_batch();
        assert_eq!(number, 1, "0 is skipped");
        assert!(!roster.is_committed(number));
        assert!(roster.commit(number, 1, u32::MAX).is_ok());
        assert!(roster.is_committed(number));
        assert!(roster.is_committed(u32::MAX));
        assert_eq!(roster.members(), 8);
    }
}
