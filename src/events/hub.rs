//! From the rings to whoever observes: each reader has an inbox of its own.
//!
//! # States and steps
//!
//! ```text
//! pump, one at a time by a mutex
//!   U1  take what is ready out of every ring, into one batch
//!   U2  inboxes' mutex: put the batch into each inbox that has room; where there is none, count what is missed
//! reader
//!   U3  inboxes' mutex: take the first batch out of its own inbox
//!   U4  go through it without any lock; where a sequence number is not the expected one, the difference was dropped
//! ```
//!
//! U1 and U2 are one turn, so every inbox has the batches in the order in which they left the rings. Whoever reads pumps first, if it
//! is nobody's turn: so a reader that is slow, or stuck in its callback, keeps nobody from events, as long as there is another one; and
//! what it misses is what found no room in *its* inbox. The newest are dropped, as in a ring, and show as a gap in the same way.
//!
//! A drop that no later event shows is told by W4 of `ring`, which travels with the batch.
//!
//! A closing that flushes tells every reader of everything below a mark; its steps are those of `flush`.
//!
//! No user code runs in a pump: keys are moved, not cloned.

use std::{collections::VecDeque, sync::PoisonError};

use super::{Dropped, Event, EventKind, Range, Ring, flush::Flush, ring::Taken};
use crate::{
    node::{Node, quietly},
    resource::Resource,
    shard::Pin,
    sync::{Arc, Mutex, MutexGuard, SpinLock, atomic::Ordering, count},
};

/// What one pump has taken out.
struct Batch<K> {
    events: Vec<Event<K>>,
    /// Shards of which nothing below the sequence number is still to come.
    complete: Vec<(u32, u64)>,
}

impl<K> Batch<K> {
    /// What it counts in an inbox. Never 0: a batch without events takes memory too, and nothing else would bound their number.
    fn weight(&self) -> usize {
        self.events.len().max(1)
    }
}

/// What one reader has not read yet.
struct Inbox<K> {
    batches: VecDeque<Arc<Batch<K>>>,
    /// Their weights.
    len: usize,
    /// It has missed a batch since the last one that it got.
    is_behind: bool,
    /// Its reader is gone.
    is_closed: bool,
}

impl<K> Inbox<K> {
    fn push(&mut self, batch: Arc<Batch<K>>) {
        self.len += batch.weight();
        self.batches.push_back(batch);
    }

    fn pop(&mut self) -> Option<Arc<Batch<K>>> {
        let batch = self.batches.pop_front()?;
        self.len -= batch.weight();
        Some(batch)
    }
}

/// What belongs to whoever pumps.
pub(super) struct Turn {
    /// By ring, the sequence number up to which readers have been told.
    pub(super) told: Vec<u64>,
    pub(super) flush: Flush,
}

/// All rings of a scheduler, and all who read them.
pub struct Hub<R: Resource> {
    /// By shard; the last one is for what belongs to no shard.
    rings: Box<[Arc<Ring<R>>]>,
    /// Orders the producers of the last ring, as a shard's lock orders those of its ring.
    fleet: SpinLock<()>,
    turn: Mutex<Turn>,
    inboxes: Mutex<Vec<Inbox<R::Key>>>,
    /// Events an inbox holds, at which it takes no further batch.
    backlog: usize,
    // Lint: `count` is std's own under loom, on purpose.
    #[allow(clippy::disallowed_types)]
    missed: count::AtomicU64,
    #[allow(clippy::disallowed_types)]
    discarded: count::AtomicU64,
    #[allow(clippy::disallowed_types)]
    panics: count::AtomicU64,
}

/// Full rings that an inbox has room for.
const ROUNDS: usize = 16;
/// Events of one ring in one batch, at most: so that a batch is neither larger than a cache nor than what an allocator keeps at hand.
const AT_ONCE: usize = 4_096;

impl<R: Resource> Hub<R> {
    /// Rings for `shards` shards and the fleet, each with room for `capacity` events.
    #[allow(clippy::disallowed_types)]
    pub fn new(shards: usize, capacity: usize) -> Self {
        Hub {
            rings: (0..=shards as u32).map(|shard| Arc::new(Ring::new(capacity, shard))).collect(),
            fleet: SpinLock::new(()),
            turn: Mutex::new(Turn { told: vec![0; shards + 1], flush: Flush::No }),
            inboxes: Mutex::new(Vec::new()),
            // What one pump may find has room in an inbox that is empty, however many shards there are.
            backlog: capacity.next_power_of_two().saturating_mul(ROUNDS.max(shards + 1)),
            missed: count::AtomicU64::new(0),
            discarded: count::AtomicU64::new(0),
            panics: count::AtomicU64::new(0),
        }
    }

    /// By shard, and that of the fleet at the end.
    pub fn rings(&self) -> &[Arc<Ring<R>>] {
        &self.rings
    }

    /// For what belongs to no shard.
    pub fn fleet_ring(&self) -> &Ring<R> {
        &self.rings[self.rings.len() - 1]
    }

    /// Makes an event that belongs to no shard. The caller keeps the node, if there is one, until this returns.
    #[cold]
    #[allow(unsafe_code)]
    pub fn tell(&self, kind: EventKind, node: Option<&Node<R>>, guard: &Pin<'_>) {
        let ring = self.fleet_ring();
        let mut range = Range::default();
        {
            let _producer = self.fleet.lock();
            // SAFETY: the lock of this ring's producers is held.
            unsafe { ring.reserve(&mut range, kind, node, 0) };
        }
        if !range.is_empty() {
            // SAFETY: the lock is free, the range is of the section above, and the caller keeps the node.
            unsafe { ring.publish(range, guard) };
        }
    }

    /// Events that found no room in an inbox, each as often as there were such inboxes.
    pub fn missed(&self) -> u64 {
        // Relaxed, here and below: counts.
        self.missed.load(Ordering::Relaxed)
    }

    /// Events that were in an inbox, or on the way out of it, when its reader left; each as often as there were such readers.
    pub fn discarded(&self) -> u64 {
        self.discarded.load(Ordering::Relaxed)
    }

    fn discard(&self, events: usize) {
        self.discarded.fetch_add(events as u64, Ordering::Relaxed);
    }

    /// Panics of observers.
    pub fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    /// An observer has panicked.
    pub fn saw_panic(&self) {
        self.panics.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn turn(&self) -> MutexGuard<'_, Turn> {
        // A pump that panics has at worst not told what it took out, which the next one's numbers show.
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn inboxes(&self) -> MutexGuard<'_, Vec<Inbox<R::Key>>> {
        // Nothing that can panic in the middle of a change runs under it.
        self.inboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether anybody reads.
    pub fn is_read(&self) -> bool {
        self.inboxes().iter().any(|inbox| !inbox.is_closed)
    }

    /// U1 and U2, if it is nobody else's turn; waits for its turn if `wait`. Answers whether to come again at once: there was more than fits
    /// into a batch, or so much in a ring that it would have been full soon.
    pub fn pump(&self, wait: bool) -> bool {
        let turn = if wait { Some(self.turn()) } else { self.turn.try_lock().ok() };
        let Some(mut turn) = turn else { return false };
        let Turn { told, flush } = &mut *turn;
        let mut batch = Batch { events: Vec::new(), complete: Vec::new() };
        // Before the rings are read: what is below the mark finds room, however much the inboxes hold.
        let must_fit = flush.wants_more(told);
        let mut has_more = false;
        for (ring, told) in self.rings.iter().zip(told.iter_mut()) {
            // A bound also so that a producer that is as fast as we are does not keep us here.
            let before = batch.events.len();
            let Taken { complete, is_cut } = ring.take(&mut batch.events, AT_ONCE);
            let taken = batch.events.len() - before;
            has_more |= is_cut || taken > ring.capacity() / 2;
            if let Some(last) = batch.events.last().filter(|last| last.shard == ring.shard()) {
                *told = last.sequence + 1;
            }
            if let Some(sequence) = complete.filter(|sequence| sequence > told) {
                *told = sequence;
                batch.complete.push((ring.shard(), sequence));
            }
        }
        let batch = Arc::new(batch);
        self.distribute(&batch, told, must_fit);
        drop(turn);
        // The last reference may be ours, and keys are user code.
        let _ = quietly(|| drop(batch));
        has_more
    }

    /// U2.
    fn distribute(&self, batch: &Arc<Batch<R::Key>>, told: &[u64], must_fit: bool) {
        let is_empty = batch.events.is_empty() && batch.complete.is_empty();
        for inbox in self.inboxes().iter_mut().filter(|inbox| !inbox.is_closed) {
            if inbox.len >= self.backlog && !must_fit {
                // Relaxed: a count.
                self.missed.fetch_add(batch.events.len() as u64, Ordering::Relaxed);
                inbox.is_behind |= !is_empty;
                continue;
            }
            if !is_empty {
                inbox.push(Arc::clone(batch));
            }
            if std::mem::take(&mut inbox.is_behind) {
                // What it has missed may be followed by nothing.
                let complete = (0..).zip(told.iter().copied()).collect();
                inbox.push(Arc::new(Batch { events: Vec::new(), complete }));
            }
        }
    }

    /// One more reader. It begins with what has not left the rings yet, and tells of drops from the sequence number `from` of each
    /// shard on; without, from the first event that it sees.
    // Not a method: loom's `Arc` is no receiver.
    pub fn reader(hub: &Arc<Self>, from: Option<u64>) -> Reader<R> {
        let inbox = Inbox { batches: VecDeque::new(), len: 0, is_behind: false, is_closed: false };
        let mut inboxes = hub.inboxes();
        inboxes.push(inbox);
        let index = inboxes.len() - 1;
        drop(inboxes);
        Reader { hub: Arc::clone(hub), index, expected: vec![from; hub.rings.len()] }
    }
}

/// The place of one who observes.
pub struct Reader<R: Resource> {
    hub: Arc<Hub<R>>,
    index: usize,
    /// By shard, the sequence number that comes next; none before the first.
    expected: Vec<Option<u64>>,
}

/// What a reader is told.
pub enum News<'a, K> {
    /// Something has happened.
    Event(&'a Event<K>),
    /// What comes before the next event was dropped.
    Dropped(Dropped),
}

impl<R: Resource> Reader<R> {
    /// U3 and U4: one batch. `tell` answers whether to go on; if not, it has told of nothing, and the rest of the batch is lost to this
    /// reader, and counts as discarded. Answers whether there was one.
    pub fn read(&mut self, mut tell: impl FnMut(News<'_, R::Key>) -> bool) -> bool {
        let batch = {
            let mut inboxes = self.hub.inboxes();
            let Some(batch) = inboxes[self.index].pop() else { return false };
            batch
        };
        for (event, left) in batch.events.iter().zip((1..=batch.events.len()).rev()) {
            if let Some(dropped) = self.advance(event.shard, event.sequence)
                && !tell(News::Dropped(dropped))
            {
                self.hub.discard(left);
                return true;
            }
            self.expected[event.shard as usize] = Some(event.sequence + 1);
            if !tell(News::Event(event)) {
                self.hub.discard(left);
                return true;
            }
        }
        for &(shard, sequence) in &batch.complete {
            if let Some(dropped) = self.advance(shard, sequence)
                && !tell(News::Dropped(dropped))
            {
                return true;
            }
        }
        true
    }

    pub(super) fn hub(&self) -> &Hub<R> {
        &self.hub
    }

    /// Its inbox is empty, and nothing was kept out of it that it was not told of.
    pub(super) fn has_nothing_left(&self) -> bool {
        let inbox = &self.hub.inboxes()[self.index];
        inbox.batches.is_empty() && !inbox.is_behind
    }

    /// If nothing is expected of this shard yet, this is.
    pub(super) fn expect_from(&mut self, shard: u32, sequence: u64) {
        self.expected[shard as usize].get_or_insert(sequence);
    }

    /// The next one is this one: what was expected before it was dropped.
    pub(super) fn advance(&mut self, shard: u32, sequence: u64) -> Option<Dropped> {
        let expected = &mut self.expected[shard as usize];
        let first = expected.unwrap_or(sequence);
        *expected = Some(sequence.max(first));
        (sequence > first).then(|| Dropped { shard, first, count: sequence - first })
    }
}

impl<R: Resource> Drop for Reader<R> {
    fn drop(&mut self) {
        let mut inboxes = self.hub.inboxes();
        let inbox = &mut inboxes[self.index];
        inbox.is_closed = true;
        inbox.len = 0;
        let batches = std::mem::take(&mut inbox.batches);
        drop(inboxes);
        self.hub.discard(batches.iter().map(|batch| batch.events.len()).sum());
        // Keys are user code.
        drop(batches);
    }
}
