//! The scheduler without its hasher: what leases and tokens need to come back to.

use std::{fmt, ptr::NonNull};

use super::{
    builder::Overflow,
    error::{AcquireError, ReleaseError},
    outcome_count,
    token::{Ticket, Token, Tokens},
};
use crate::{
    lookup::{DefaultReclaim, Guard, Map, Reclaim},
    node::{self, Node, State, Value},
    outcome::Outcome,
    rank::Priority,
    resource::Resource,
    ring::Ring,
    shard::{Count, Garbage, Lent, NEVER, Roster, Shard},
    strategy::{Cell, Selector, ShardView},
    sync::{
        CachePadded, Clock, Mutex, Published, Timestamp,
        atomic::{AtomicBool, AtomicU64, Ordering},
        planted, thread_hint,
    },
};

/// A section in which nodes and values found by this thread stay allocated.
pub type Pin<'a> = <DefaultReclaim as Reclaim>::Guard<'a>;

/// Everything but the hasher.
pub struct Core<R: Resource> {
    pub shards: Box<[Shard<R>]>,
    pub map: Map<Node<R>>,
    pub tokens: Tokens<R>,
    pub roster: Roster,
    /// Serialises batches; held across user code, never together with a shard's lock wanted by that code.
    pub batch: Mutex<()>,
    pub selector: Selector,
    pub cells: Box<[CachePadded<Cell>]>,
    pub ring: Published<Ring>,
    pub clock: Box<dyn Clock>,
    pub max_resources: Option<(u32, Overflow)>,
    pub virtual_nodes: u32,
    pub closed: AtomicBool,
    /// No cooling resource becomes eligible before this moment. A hint: the shards' faces decide.
    pub earliest: CachePadded<AtomicU64>,
}

/// The part of a lease that is the same for all kinds of guards.
pub struct Held<R: Resource> {
    pub node: NonNull<Node<R>>,
    pub value: NonNull<Value<R>>,
    /// The entry and generation of the token that was minted from the live guard.
    pub token: Option<(u32, u32)>,
    pub exclusive: bool,
}

// SAFETY: both pointers are to data that is `Send + Sync` and kept alive by the unit of capacity (rules 5 and 6 of `node`).
#[allow(unsafe_code)]
unsafe impl<R: Resource> Send for Held<R> {}
// SAFETY: as above; a shared `Held` gives shared access only.
#[allow(unsafe_code)]
unsafe impl<R: Resource> Sync for Held<R> {}

impl<R: Resource> Held<R> {
    pub fn new(lent: &Lent<R>) -> Self {
        Held { node: lent.node, value: lent.value, token: None, exclusive: lent.exclusive }
    }

    #[inline]
    pub fn node(&self) -> &Node<R> {
        // SAFETY: rule 5 of `node`: the unit of capacity, or the pin of the token, keeps it.
        #[allow(unsafe_code)]
        unsafe {
            self.node.as_ref()
        }
    }

    #[inline]
    pub fn resource(&self) -> &R {
        // SAFETY: rule 6 of `node`: the unit of capacity, or the pin of the token, keeps it.
        #[allow(unsafe_code)]
        unsafe { self.value.as_ref() }.resource()
    }
}

impl<R: Resource> Core<R> {
    #[inline]
    pub fn pin(&self) -> Pin<'_> {
        self.map.pin()
    }

    #[inline]
    pub fn home(&self, node: &Node<R>) -> &Shard<R> {
        &self.shards[node.home() as usize]
    }

    /// The strategy's memory for the running thread.
    #[inline]
    pub fn cell(&self) -> &Cell {
        // Multiplicative hashing: thread-local addresses differ in a few middle bits only.
        let hash = (thread_hint() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // The number of cells is a power of two.
        &self.cells[(hash >> 40) as usize & (self.cells.len() - 1)]
    }

    #[inline]
    pub fn is_closed(&self) -> bool {
        // Acquire: pairs with the Release in `close`: who sees it closed sees all that happened before.
        self.closed.load(Ordering::Acquire)
    }

    pub fn now(&self) -> u64 {
        self.clock.now().as_nanos()
    }

    /// The moment that is `duration` from now.
    pub fn after(&self, duration: std::time::Duration) -> u64 {
        Timestamp::from_nanos(self.now()).saturating_add(duration).as_nanos()
    }

    /// Retires what nobody reaches any more. Must not run under a shard's lock: it may run other garbage's `Drop`.
    #[inline]
    pub fn retire(&self, garbage: Garbage<R>) {
        if !garbage.is_empty() {
            self.retire_all(garbage);
        }
    }

    #[cold]
    #[allow(unsafe_code)]
    fn retire_all(&self, garbage: Garbage<R>) {
        let guard = self.pin();
        if let Some(value) = garbage.value {
            // SAFETY: rule 6 of `node`: superseded, and the last claim is gone. The box is given up here.
            unsafe { guard.retire(value.as_ptr(), node::free) };
        }
        if let Some(node) = garbage.node {
            // SAFETY: rule 5 of `node`: spent, without pins, out of lookup, slot table and face. The box is given up here.
            unsafe { guard.retire(node.as_ptr(), node::free) };
        }
    }

    // Cooling.

    /// Lowers the hint after a resource began to cool.
    pub fn note_earliest(&self, shard: &Shard<R>) {
        let earliest = shard.face().earliest();
        if earliest != NEVER {
            // AcqRel, and a read-modify-write even if it changes nothing: pairs with the swap in `thaw`.
            // - we come first: the swap reads us, and the thaw that follows sees our shard's face;
            // - the swap comes first: our value stands.
            self.earliest.fetch_min(earliest, Ordering::AcqRel);
        }
    }

    /// Warms up what is due. Costs one load while nothing cools.
    #[inline]
    pub fn thaw_due(&self) {
        // Relaxed: a hint; who must be sure asks the faces.
        let earliest = self.earliest.load(Ordering::Relaxed);
        if earliest != NEVER {
            let now = self.now();
            if now >= earliest {
                self.thaw(now, false);
            }
        }
    }

    /// Warms up what is due at `now` in every shard that is not busy; in all of them if `wait`.
    #[cold]
    pub fn thaw(&self, now: u64, wait: bool) {
        // AcqRel: pairs with `note_earliest`; outcomes there.
        self.earliest.swap(NEVER, Ordering::AcqRel);
        let mut earliest = NEVER;
        for shard in &self.shards {
            while shard.face().earliest() <= now {
                let Some(mut locked) = (if wait { Some(shard.lock()) } else { shard.try_lock() }) else {
                    break;
                };
                // A few at a time, so that the lock is not held longer than for other operations.
                if locked.thaw(now, THAW_AT_ONCE) < THAW_AT_ONCE {
                    break;
                }
            }
            earliest = earliest.min(shard.face().earliest());
        }
        self.earliest.fetch_min(earliest, Ordering::AcqRel);
    }

    // Returning.

    /// Gives the resource the rank of its load after a lease was taken. Runs user code.
    #[inline]
    pub fn rerank_lent(&self, held: &Held<R>, lent_rank: u64, state: State) {
        if !held.exclusive {
            self.rerank_held(held, lent_rank, state);
        }
    }

    fn rerank_held(&self, held: &Held<R>, lent_rank: u64, state: State) {
        let rank = held.resource().priority(state.in_flight()).rank();
        if rank != lent_rank {
            self.home(held.node()).lock().rerank(held.node(), state, rank);
        }
    }

    /// In a model: fails unless the lease's node and value are alive, which its unit of capacity or its pin answers for.
    #[inline(always)]
    pub fn witness(&self, held: &Held<R>) {
        #[cfg(any(loom, shuttle))]
        {
            self.map.reclaim().witness(held.node.as_ptr());
            self.map.reclaim().witness(held.value.as_ptr());
        }
        let _ = held;
    }

    /// Ends a lease: by its guard.
    #[inline]
    pub fn end(&self, held: &Held<R>, deadline: Option<u64>, outcome: Option<Count>) {
        self.witness(held);
        match held.token {
            None => self.give_back(held.node, held.value, held.exclusive, deadline, outcome),
            Some(token) => self.end_pinned(held, token, deadline, outcome),
        }
    }

    /// A guard whose token was given out: somebody may have returned the unit already; the pin ends in any case.
    #[cold]
    fn end_pinned(&self, held: &Held<R>, token: (u32, u32), deadline: Option<u64>, outcome: Option<Count>) {
        if self.tokens.redeem(self.tokens.token(token.0, token.1)).is_ok() {
            self.give_back(held.node, held.value, held.exclusive, deadline, outcome);
        }
        let garbage = self.home(held.node()).lock().unpin(held.node(), held.value);
        self.retire(garbage);
    }

    /// Ends a lease: by its token.
    pub fn redeem(
        &self,
        token: Token,
        deadline: Option<u64>,
        outcome: Option<Count>,
    ) -> Result<(), ReleaseError> {
        let Ticket { node, value, exclusive } = self.tokens.redeem(token)?;
        self.give_back(node, value, exclusive, deadline, outcome);
        Ok(())
    }

    /// The deadline that an outcome asks for, and what it counts as. Reads the clock, which is user code, before
    /// anything is changed.
    pub fn judge(&self, outcome: Outcome) -> (Option<u64>, Option<Count>) {
        let deadline = match outcome {
            Outcome::RateLimited { retry_after } => Some(self.after(retry_after)),
            _ => None,
        };
        (deadline, Some(outcome_count(outcome)))
    }

    #[allow(unsafe_code)]
    fn give_back(
        &self,
        node: NonNull<Node<R>>,
        value: NonNull<Value<R>>,
        exclusive: bool,
        deadline: Option<u64>,
        outcome: Option<Count>,
    ) {
        // A resource that is ranked by its load is read once more after the unlock, when others may already have removed
        // it. Pinned before the lock is taken, because pinning may run other garbage's `Drop`.
        let guard = (!exclusive).then(|| self.pin());
        // SAFETY: rule 5 of `node`: the unit of capacity that is given back below has kept it until here.
        let node = unsafe { node.as_ref() };
        let shard = self.home(node);
        let mut locked = if deadline.is_some() { shard.lock_with_cooling() } else { shard.lock() };
        let (garbage, moved) = locked.give_back(node, value, deadline, outcome);
        drop(locked);
        if deadline.is_some() || moved.to.is_held(node::Hold::Cooling) {
            self.note_earliest(shard);
        }
        let gone = garbage.node.is_some() || moved.to.is_removed();
        self.retire(garbage);
        if let Some(guard) = guard
            && !gone
        {
            self.rerank_returned(node, moved.to, &guard);
        }
    }

    /// Gives the resource the rank of its load after a return. Runs user code, maybe inside a `Drop`.
    fn rerank_returned(&self, node: &Node<R>, state: State, guard: &Pin<'_>) {
        let rerank = || {
            let rank = node.value(guard).resource().priority(state.in_flight()).rank();
            // A hint: `rerank` looks again under the lock.
            if rank != node.rank() {
                self.home(node).lock().rerank(node, state, rank);
            }
        };
        if std::thread::panicking() {
            // A second panic would abort the process. The resource keeps the rank it had.
            if let Err(payload) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(rerank)) {
                std::mem::forget(payload);
            }
        } else {
            rerank();
        }
    }

    /// The word of a node that a lookup found, if it is visible: not removed, and not part of a batch to come.
    #[inline]
    pub fn visible(&self, node: &Node<R>) -> Option<State> {
        let state = node.state.load();
        let early = planted("batch_in_part") && node.batch() != 0;
        if state.is_removed() || (state.is_staged() && !early && !self.roster.is_committed(node.batch())) {
            None
        } else {
            Some(state)
        }
    }

    /// The visible node with this key.
    #[inline]
    pub fn find<'g, Q>(&self, hash: u64, key: &Q, guard: &'g Pin<'_>) -> Option<&'g Node<R>>
    where
        R::Key: std::borrow::Borrow<Q>,
        Q: Eq + ?Sized,
    {
        self.map.get(hash, key, guard).filter(|node| self.visible(node).is_some())
    }

    /// Makes sure that a visible node is in its shard's heaps: absorbs the batch it came with.
    #[inline]
    pub fn settle(&self, node: &Node<R>) {
        if node.state.load().is_staged() {
            self.absorb(self.home(node));
        }
    }

    /// Absorbs all of a committed run.
    #[cold]
    pub fn absorb(&self, shard: &Shard<R>) {
        while !shard.lock().absorb(&self.roster, ABSORB_AT_ONCE) {}
    }

    /// Panics unless the whole structure is consistent. Nothing else may be going on.
    pub fn check_invariants(&self) -> crate::shard::Tally {
        let mut sum = crate::shard::Tally::default();
        for shard in &self.shards {
            let tally = shard.check_invariants();
            sum.members += tally.members;
            sum.in_flight += tally.in_flight;
            sum.leaving += tally.leaving;
        }
        assert_eq!(sum.members, u64::from(self.roster.members()), "the roster counts the members");
        let guard = self.pin();
        let by_key = self.map.iter(&guard).filter(|node| self.visible(node).is_some()).count();
        assert_eq!(by_key as u64, sum.members, "every member is found by key");
        let total = |count| self.shards.iter().map(|shard| shard.face().count(count)).sum::<u64>();
        assert_eq!(total(Count::Lent) - total(Count::Returned), sum.in_flight, "lent, less returned, is out");
        let gone = total(Count::Removed) + total(Count::Evicted);
        assert_eq!(total(Count::Inserted) - gone, sum.members, "inserted, less removed, is in");
        sum
    }
}

/// Resources warmed up in one critical section.
const THAW_AT_ONCE: usize = 8;
/// Members of a batch admitted in one critical section.
pub const ABSORB_AT_ONCE: usize = if cfg!(any(loom, shuttle)) { 1 } else { 16 };

impl<R: Resource> ShardView for Core<R> {
    #[inline]
    fn shards(&self) -> usize {
        self.shards.len()
    }

    #[inline]
    fn best_rank(&self, shard: usize) -> Option<u64> {
        self.shards[shard].face().best_rank()
    }

    #[inline]
    fn eligible(&self, shard: usize) -> u32 {
        self.shards[shard].face().standing(node::Standing::Eligible)
    }

    #[inline]
    fn available(&self, shard: usize) -> u64 {
        self.shards[shard].face().available()
    }
}

impl<R: Resource> Drop for Core<R> {
    /// Frees what is left. No lease is alive; some may have been forgotten, and tokens may be out.
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        for Ticket { node, value, .. } in self.tokens.drain() {
            // SAFETY: the token's unit of capacity kept both (rules 5 and 6 of `node`); nobody else is here.
            let superseded = unsafe {
                value != node.as_ref().value_ptr()
                    && value.as_ref().with_claims(|claims| {
                        claims.leases -= 1;
                        claims.leases == 0 && claims.pins == 0
                    })
            };
            if superseded {
                // SAFETY: rule 6: that was the last claim.
                unsafe { node::free(value.as_ptr()) };
            }
        }
        for shard in &mut self.shards {
            for node in shard.drain_nodes() {
                // SAFETY: a node in a slot table is not spent, so it has not been retired; `&mut self` is the last owner.
                unsafe { node::free(node.as_ptr()) };
            }
        }
    }
}

impl<R: Resource> fmt::Debug for Core<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core").field("shards", &self.shards.len()).finish_non_exhaustive()
    }
}

/// A shortcut for operations that must not run on a closed scheduler.
pub fn open<R: Resource>(core: &Core<R>) -> Result<(), AcquireError> {
    if core.is_closed() { Err(AcquireError::Closed) } else { Ok(()) }
}
