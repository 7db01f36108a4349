//! Looking without taking: peek, get, keys, events.

use std::{
    borrow::Borrow, fmt, hash::BuildHasher, hash::Hash, marker::PhantomData, ops::Deref, ptr::NonNull,
};

use super::{Scheduler, core::Core};
use crate::{
    events::Event,
    lookup::{Guard, Keyed},
    node::{Node, Value},
    resource::Resource,
    ring::affinity_hash,
    shard::{NEVER, Pin, Shard},
    sync::{
        Timestamp,
        atomic::{AtomicPtr, Ordering},
    },
};

/// A resource's value, read without a lease. It stays as it was read while the peek lives, whatever happens to the
/// resource.
///
/// Hold it briefly: while it lives, nothing that was superseded or removed meanwhile is freed, in the whole process.
/// Bound to its thread.
pub struct Peek<'s, R> {
    value: NonNull<Value<R>>,
    // Keeps the value (rule 3 of `node`).
    _guard: Pin<'s>,
    marker: PhantomData<&'s R>,
}

impl<'s, R> Peek<'s, R> {
    fn new(value: NonNull<Value<R>>, guard: Pin<'s>) -> Self {
        Peek { value, _guard: guard, marker: PhantomData }
    }
}

impl<R> Deref for Peek<'_, R> {
    type Target = R;

    #[inline]
    fn deref(&self) -> &R {
        // SAFETY: rules 3 and 6 of `node`: the value was current under the guard, which still lives.
        #[allow(unsafe_code)]
        unsafe { self.value.as_ref() }.resource()
    }
}

impl<R: fmt::Debug> fmt::Debug for Peek<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<R: Resource> Core<R> {
    /// The best node that a shard shows: of its ready heap, of a committed batch, or the first whose cooling is over.
    ///
    /// The ready heap is looked at last: a node that moves there is published as ready before it leaves the other two.
    #[inline]
    fn shown<'g>(&self, shard: &Shard<R>, now: Option<u64>, guard: &'g Pin<'_>) -> Option<&'g Node<R>> {
        let face = shard.face();
        if now.is_none() && face.staged() == 0 {
            return self.follow(face.best(), guard);
        }
        // The batch that counts is the node's own: that of the face may be another one by now, which is not committed.
        let batch = self.follow(face.staged_best(), guard).filter(|node| self.visible(node).is_some());
        // Likewise the deadline.
        let due =
            now.and_then(|now| self.follow(face.first_due(), guard).filter(|node| node.deadline() <= now));
        let ready = self.follow(face.best(), guard);
        [ready, batch, due].into_iter().flatten().min_by_key(|node| node.rank())
    }

    /// Reads a pointer of a face.
    #[inline]
    pub(super) fn follow<'g>(&self, pointer: &AtomicPtr<Node<R>>, guard: &'g Pin<'_>) -> Option<&'g Node<R>> {
        // Acquire: pairs with the Release of the face's F3: a node that is seen is complete. It is not freed while the
        // guard lives, because it leaves the face before it is retired.
        let node = guard.protect(pointer, Ordering::Acquire);
        guard.touch(node);
        // SAFETY: as above (rule 5 of `node`).
        #[allow(unsafe_code)]
        unsafe {
            node.as_ref()
        }
    }

    /// A peek at one shard, at all if that one shows nothing.
    #[inline]
    fn look<'g>(&self, first: usize, now: Option<u64>, guard: &'g Pin<'_>) -> Option<&'g Node<R>> {
        let shown = self.shards.get(first).and_then(|shard| self.shown(shard, now, guard));
        shown.or_else(|| self.look_everywhere(now, guard))
    }

    #[cold]
    fn look_everywhere<'g>(&self, now: Option<u64>, guard: &'g Pin<'_>) -> Option<&'g Node<R>> {
        self.shards.iter().filter_map(|shard| self.shown(shard, now, guard)).min_by_key(|node| node.rank())
    }

    /// The present moment, if something that cools may be due.
    #[inline]
    fn now_if_due(&self) -> Option<u64> {
        // Relaxed: a hint, as in `thaw_due`; a node that is shown is judged by its own deadline.
        let earliest = self.earliest.load(Ordering::Relaxed);
        if earliest == NEVER { None } else { Some(self.now()).filter(|&now| now >= earliest) }
    }
}

impl<R: Resource, S: BuildHasher> Scheduler<R, S> {
    /// Looks at the best resource without taking capacity: shared use without counting.
    ///
    /// The strategy chooses the shard as for [`acquire`](Scheduler::acquire). What is seen was its best at some moment of
    /// this call. Answers on a closed scheduler too. `None` if no shard showed a resource.
    ///
    /// # Progress and cost
    /// Wait-free: takes no lock, never retries; O(1), O(shards) if the chosen one shows nothing. No allocation. While
    /// something is cooling it reads the clock, and takes into account, of each shard, the resource that was due first, unless
    /// an acquisition is warming up just then.
    ///
    /// ```
    /// use leasehold::{Entry, Scheduler};
    ///
    /// let scheduler = Scheduler::<Entry<u8, u32, &str>>::builder().build()?;
    /// assert!(scheduler.peek().is_none());
    /// scheduler.insert(Entry::new(1, 5, "replica"))?;
    /// assert_eq!(scheduler.peek().expect("one is eligible").value, "replica");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn peek(&self) -> Option<Peek<'_, R>> {
        let core = &*self.core;
        // The usual case alone is in line, and needs few registers: a strategy that stays, and a shard that has nothing but its
        // ready heap to show. Relaxed: as in `now_if_due`.
        if core.earliest.load(Ordering::Relaxed) == NEVER
            && let Some((_, shard)) = core.stay(core.stripe())
        {
            let guard = core.pin();
            // After `stay` has seen that nothing is staged there: see `Face::staged`.
            if let Some(node) = core.follow(shard.face().best(), &guard) {
                return Some(Peek::new(NonNull::from(node.value(&guard)), guard));
            }
        }
        self.peek_anew()
    }

    #[inline(never)]
    fn peek_anew(&self) -> Option<Peek<'_, R>> {
        let core = &*self.core;
        let now = core.now_if_due();
        let first = core.choose(core.stripe());
        let guard = core.pin();
        let value = NonNull::from(core.look(first, now, &guard)?.value(&guard));
        Some(Peek::new(value, guard))
    }

    /// As [`peek`](Scheduler::peek), at the best of the shard that `id` belongs to on the ring, then of the others in that id's
    /// order; also with [`Affinity::Resource`](super::Affinity::Resource). The first call of all builds the ring.
    #[inline]
    pub fn peek_by_affinity<I: Hash + ?Sized>(&self, id: &I) -> Option<Peek<'_, R>> {
        let core = &*self.core;
        let hash = affinity_hash(id);
        // The usual case alone is in line: nothing cools, there is a ring, and the shard has nothing but its ready heap to show.
        // Relaxed: as in `now_if_due`.
        if core.earliest.load(Ordering::Relaxed) == NEVER {
            let guard = core.pin();
            if let Some(ring) = core.built_ring(&guard) {
                let face = core.shards[ring.shard_of(hash)].face();
                // In this order: see `Face::staged`.
                if face.staged() == 0
                    && let Some(node) = core.follow(face.best(), &guard)
                {
                    return Some(Peek::new(NonNull::from(node.value(&guard)), guard));
                }
            }
        }
        self.peek_by_hash(hash)
    }

    #[inline(never)]
    fn peek_by_hash(&self, hash: u64) -> Option<Peek<'_, R>> {
        let core = &*self.core;
        let now = core.now_if_due();
        let guard = core.pin();
        let node = core.with_ring(&guard, |ring| {
            let first = core.shown(&core.shards[ring.shard_of(hash)], now, &guard);
            first.or_else(|| {
                ring.successors(hash).skip(1).find_map(|i| core.shown(&core.shards[i], now, &guard))
            })
        })?;
        let value = NonNull::from(node.value(&guard));
        Some(Peek::new(value, guard))
    }

    /// Looks at the worst eligible resource of the fleet. Blocking on one shard's lock at a time; O(shards). Warms up what
    /// is due, as [`acquire`](Scheduler::acquire) does.
    pub fn peek_worst(&self) -> Option<Peek<'_, R>> {
        let core = &*self.core;
        core.thaw_due();
        let guard = core.pin();
        let value = NonNull::from(core.worst(&guard)?.value(&guard));
        Some(Peek::new(value, guard))
    }

    /// The value of the resource with this key, held or not, lent or not. Answers on a closed scheduler too.
    ///
    /// Wait-free; one hash, expected O(1). No allocation.
    #[inline]
    pub fn get<Q>(&self, key: &Q) -> Option<Peek<'_, R>>
    where
        R::Key: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let core = &*self.core;
        let hash = self.hasher.hash_one(key);
        let guard = core.pin();
        let value = NonNull::from(core.find(hash, key, &guard)?.value(&guard));
        Some(Peek::new(value, guard))
    }

    /// How many leases are out on the resource with this key; `None` if it is not in the fleet. As [`get`](Scheduler::get).
    pub fn in_flight<Q>(&self, key: &Q) -> Option<u32>
    where
        R::Key: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let core = &*self.core;
        let hash = self.hasher.hash_one(key);
        let guard = core.pin();
        Some(core.find(hash, key, &guard)?.state.load().in_flight())
    }

    /// Whether a resource with this key is in the fleet. As [`get`](Scheduler::get).
    pub fn contains<Q>(&self, key: &Q) -> bool
    where
        R::Key: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.get(key).is_some()
    }

    /// How many resources are in the fleet, held ones included. Wait-free, O(1).
    ///
    /// A batch counts as a whole from the moment it is visible; a single insertion or removal counts for some moment
    /// while it is going on.
    pub fn len(&self) -> usize {
        self.core.roster.members() as usize
    }

    /// Whether the fleet has no resource. As [`len`](Scheduler::len).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The keys of the fleet, in no order. A resource that is in it all the time is listed once; one that comes or goes
    /// meanwhile may be listed or not. Clones each key; takes no lock.
    pub fn iter_keys(&self) -> impl Iterator<Item = R::Key> {
        // A guard cannot travel with an iterator that borrows it, and must not be held for as long as a caller likes.
        let core = &*self.core;
        let guard = core.pin();
        let keys: Vec<R::Key> = core
            .map
            .iter(&guard)
            .filter(|node| core.visible(node).is_some())
            .map(|node| node.key().clone())
            .collect();
        keys.into_iter()
    }

    /// Takes out up to `max` events that have not been taken yet, shard by shard; the order within a shard is that of the
    /// transitions. Empty without [`event_capacity`](super::Builder::event_capacity), and while there are
    /// [observers](super::Builder::observer), to whom they go.
    ///
    /// What was dropped after a shard's last event shows once another one comes there; [`Stats::events_dropped`](super::Stats) has counted it.
    ///
    /// Does not wait: a shard whose events another thread is taking out right now is passed over. Allocates the list.
    ///
    /// ```
    /// use leasehold::{Entry, EventKind, Scheduler};
    ///
    /// let scheduler = Scheduler::<Entry<u8, u32, ()>>::builder().event_capacity(64).build()?;
    /// scheduler.insert(Entry::new(1, 0, ()))?;
    /// drop(scheduler.acquire()?);
    /// let kinds: Vec<_> = scheduler.take_events(10).into_iter().map(|event| event.kind).collect();
    /// assert_eq!(kinds, [EventKind::Inserted, EventKind::Acquired, EventKind::Released]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn take_events(&self, max: usize) -> Vec<Event<R::Key>> {
        let mut events = Vec::new();
        let shards = &self.core.shards;
        // From a random one on, so that a busy shard does not keep the others' events back.
        let start = self.core.cell().draw_below(shards.len() as u32) as usize;
        let Some(hub) = self.core.hub.as_ref().filter(|hub| !hub.is_read()) else { return events };
        // The fleet's own comes last.
        let rings = (0..shards.len()).map(|i| (start + i) % shards.len()).chain([shards.len()]);
        for ring in rings.map(|i| &hub.rings()[i]) {
            let left = max.saturating_sub(events.len());
            let _ = ring.take(&mut events, left);
        }
        events
    }

    /// Whether leases are recorded: [`leases`](Scheduler::leases) lists them, and each can be revoked.
    #[cfg(feature = "cluster")]
    pub(crate) fn records_leases(&self) -> bool {
        self.core.limits.is_some()
    }

    /// Whether the lease of a token is out, if it was when the caller got the token. O(1).
    #[cfg(feature = "cluster")]
    pub(crate) fn is_lent(&self, token: super::Token) -> bool {
        self.core.tokens.is_lent(token)
    }

    /// Takes back what is overdue, if that is wanted, and if it is time to look. What [`reap_overdue`](Scheduler::reap_overdue) calls.
    #[cfg(feature = "cluster")]
    pub(crate) fn take_back_due(&self) {
        if let Some(limits) = &self.core.limits {
            let _ = self.core.reap_due(limits, self.core.now());
        }
    }

    /// After how long a lease is taken back by itself; none if it never is.
    #[cfg(feature = "cluster")]
    pub(crate) fn revokes_after(&self) -> Option<std::time::Duration> {
        self.core.limits.as_ref()?.revokes_after()
    }

    /// Whether resources are removed, or refused, to keep a bound.
    #[cfg(feature = "cluster")]
    pub(crate) fn is_bounded(&self) -> bool {
        self.core.max_resources.is_some()
    }

    /// The moment that the scheduler's clock shows.
    pub fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.core.now())
    }
}
