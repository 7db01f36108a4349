//! Samples of the order that a scheduler keeps: errors in rank, and delays.
//!
//! Of so many lendings of a shard, more or less at random, the next one to somebody who has asked for the best is a sample. It goes the long way of
//! [`acquire`](super::acquire); nobody else does more than compare two numbers: the lendings of the shard with the next sample, and the rank of
//! the tagged resource with none.
//!
//! # The error in rank
//!
//! After the lending, with no lock held, the sample goes over the other shards. Of each whose published best is strictly better than what was
//! lent it takes the lock, one at a time, waiting for it, in a way that drives nobody away from the shard (`sync::spinlock`, *look*), and counts the resources there that can be had and are strictly better: those of the
//! ready heap, from the root and no further than they are better, and those of a batch that has become visible and waits to be absorbed. A
//! resource counts once, whatever its units. Those whose cooling is over and that nobody has warmed up yet are in no heap, and do not count. Its own
//! shard had nothing better: what was lent was the best of that.
//!
//! At most [`MOST_OF_A_SHARD`] are counted under one lock, and [`MOST`] in all: what comes to more is counted as that, and as a sample that
//! saturates.
//!
//! It is no snapshot: the shards are counted one after the other, and after the lending. With one thread it is exact.
//!
//! # The delay
//!
//! The protocol is in the header of [`delay`](crate::delay). Of [so many](crate::delay::ONE_IN) samples of a shard the lease of one is marked, if nobody is tagged; its return is T1, unless it has a token. Lendings of the
//! best are those that may be samples: by a plain acquisition, one of many, or a request that does not wait. What is lent by key, id or filter or
//! handed to one who waits passes nobody, and if it is the tagged one, that ends the tag at the next sample, discarded.

use std::ptr::NonNull;

use super::{core::Core, held::node_of, telemetry::Measure};
use crate::{
    delay::{Ended, Sample, Standing, Watch},
    node::{Node, State},
    resource::Resource,
    shard::{Count, Lent, Pin, Shard},
    strategy::ShardView,
};

/// In a lease's notes: its return begins a sample of the delay. No moment is that late.
pub const MARK: u64 = 1 << 63;

/// Better resources that are counted in one critical section, at most.
pub const MOST_OF_A_SHARD: usize = 512;
/// Better resources that are counted for one sample, at most.
pub const MOST: usize = 4_096;

/// The shards of a scheduler of which one lending out of so many is a sample. Their first samples are spread, so that they take turns.
pub fn watched<R: Resource>(shards: Box<[Shard<R>]>, every: u32) -> Box<[Shard<R>]> {
    let count = shards.len() as u64;
    let first = |index: u32| u64::from(every.saturating_sub(1)) * (u64::from(index) + 1) / count;
    shards
        .into_iter()
        .map(|shard| {
            let first = first(shard.index());
            shard.watched(Watch::new(every, first))
        })
        .collect()
}

/// A node's identity.
fn address<R: Resource>(node: &Node<R>) -> usize {
    std::ptr::from_ref(node).addr()
}

/// A node that can be had, as a tag compares it. To be called under its home lock.
fn standing<R: Resource>(node: &Node<R>, state: State) -> Standing {
    Standing { rank: node.rank(), word: word(state, 0) }
}

/// Generation and leases out, less those that were lent since.
fn word(state: State, since: u32) -> u64 {
    u64::from(state.generation()) << 32 | u64::from(state.in_flight().wrapping_sub(since))
}

#[allow(unsafe_code)]
impl<R: Resource> Core<R> {
    /// The best of a shard was lent to one who has asked for the best of all. Under the shard's lock.
    #[inline]
    pub(super) fn note_order(&self, lent: &mut Lent<R>) {
        if self.meters.is_none() {
            return;
        }
        let shard = self.home(node_of(lent));
        lent.sampled = shard.watch().take_sample(shard.face().count(Count::Lent));
        self.pass(lent);
    }

    /// P1 and E1. Under the shard's lock.
    #[inline]
    pub(super) fn pass(&self, lent: &Lent<R>) {
        let node = node_of(lent);
        let watch = self.home(node).watch();
        if self.delays.pass(watch, lent.stood) {
            watch.lent(&self.delays, address(node), Standing { rank: lent.stood, word: word(lent.state, 1) });
        }
    }

    /// The same for one that has no other unit, and so the rank that it had.
    #[inline(always)]
    pub(super) fn pass_exclusive(&self, shard: &Shard<R>, node: NonNull<Node<R>>) {
        // SAFETY: rule 5 of `node`: a node is not freed before the unit that was just lent is given back.
        let alive = unsafe { node.as_ref() };
        if self.delays.pass(shard.watch(), alive.rank()) {
            self.lent_exclusive(shard, alive);
        }
    }

    #[cold]
    #[inline(never)]
    fn lent_exclusive(&self, shard: &Shard<R>, node: &Node<R>) {
        let stood = Standing { rank: node.rank(), word: word(node.state.load(), 1) };
        shard.watch().lent(&self.delays, address(node), stood);
    }

    /// What was passed everywhere.
    fn passed(&self) -> u64 {
        self.shards.iter().map(|shard| shard.watch().passed()).sum()
    }

    /// A tag has ended.
    fn delay_ended(&self, ended: Option<Ended>) {
        if let Some((meters, ended)) = self.meters.as_ref().zip(ended) {
            match ended {
                Ended::Lent(passed) => meters.add(Measure::Delay, passed),
                Ended::Discarded => meters.unfinished(0),
                Ended::GivenUp => meters.unfinished(1),
            }
        }
    }

    /// E2, by a reader.
    pub(super) fn settle_delay(&self) {
        self.delay_ended(self.delays.settle(|| self.passed()));
    }

    /// Somebody has asked for the best, and this was lent: what is to be done for the samples. The lock is free.
    #[inline]
    pub(super) fn look_at_order(&self, lent: &Lent<R>) {
        if lent.sampled != Sample::No {
            self.look_around(lent);
        }
    }

    #[cold]
    fn look_around(&self, lent: &Lent<R>) {
        let Some(meters) = &self.meters else { return };
        let (home, rank) = (node_of(lent).home() as usize, lent.stood);
        let (mut better, mut saturates) = (0, false);
        for other in (0..self.shards.len()).filter(|&other| other != home) {
            if better == MOST || self.best_rank(other).is_none_or(|best| best >= rank) {
                continue;
            }
            let most = MOST_OF_A_SHARD.min(MOST - better);
            // Nothing changes under it, so it makes no event.
            let found = self.shards[other].lock_to_look().better_than(rank, &self.roster, most);
            better += found;
            saturates |= found == most;
        }
        meters.add(Measure::RankError, better as u64);
        if saturates {
            meters.saturated();
        }
        let ended = self.delays.review(
            || self.passed(),
            |tag| {
                let shard = &self.shards[tag.home as usize];
                let locked = shard.lock();
                let node = locked.node_at(tag.slot);
                let standing = node.and_then(|node| {
                    let state = node.state.load();
                    state.is_eligible().then(|| standing(node, state))
                });
                (locked, shard.watch(), standing)
            },
        );
        self.delay_ended(ended);
    }

    /// What is to be noted in the guard of what was lent: whether its return begins a sample of the delay.
    #[inline]
    pub(super) fn mark(&self, lent: &Lent<R>) -> u64 {
        if lent.sampled == Sample::AndDelay && !self.delays.is_on() { MARK } else { 0 }
    }

    /// T1 and T2: the resource was given back, which had been like that before. The guard is older than that.
    pub(super) fn begin_delay(&self, node: NonNull<Node<R>>, before: State, _: &Pin<'_>) {
        // SAFETY: rule 5 of `node`: the guard is older than the return, before which the node was not spent.
        let node = unsafe { node.as_ref() };
        let shard = self.home(node);
        let (ended, _) = self.delays.begin(
            shard.watch(),
            (node.home(), address(node)),
            || self.passed(),
            || {
                let mut locked = shard.lock();
                let state = node.state.load();
                let is_the_return = state.generation() == before.generation().wrapping_add(1)
                    && state.in_flight().wrapping_add(1) == before.in_flight();
                (state.is_eligible() && is_the_return).then(|| {
                    let slot = locked.details(node).slot;
                    (locked, standing(node, state), slot)
                })
            },
        );
        self.delay_ended(ended);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
