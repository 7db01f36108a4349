//! The bounded ring of one shard.
//!
//! # States and steps of a slot
//!
//! A *ticket* numbers the events that got a slot, a *sequence* all events; both are handed out under the shard's lock, so
//! the order of tickets is the order of transitions. The slot of ticket t is t modulo the length.
//!
//! ```text
//! producer, shard lock held
//!   V1  if ticket - consumed = length: the event is dropped. Otherwise V2, ticket += 1; then sequence += 1 (Release)
//!   V2  write kind, generation, membership, node into the slot, and the stamp 2 (sequence + 1): it is this producer's alone until V4
//! producer; lock free again, unless there is nothing to do in V3
//!   V3  clone the key (user code); if that panics, the slot becomes void and counts as dropped
//!   V4  stamp += 1 (Release): it is odd
//! consumer, one at a time by a mutex, which keeps the stamp of the last event that was taken
//!   W1  load the stamp of the slot of `consumed` (Acquire); even, or not above the last one: nothing more for now
//!   W2  copy the event out
//!   W3  consumed := t + 1 (Release), after some tickets and after the last: their slots may be used for tickets t + length
//!   W4  load the sequence (Acquire), then the ticket; if that is `consumed`, everything below the sequence was taken or dropped
//! ```
//!
//! V1 reads `consumed` with Acquire, so V2 comes after W2 of the slot's last use. The producer keeps what it has read, and reads
//! again when the ring seems full: the consumer's line is fetched once a round. A producer that stalls between V2 and V4
//! holds up the events behind its own, and nothing else: others go on, and drop when the ring is full.
//!
//! Stamps grow from ticket to ticket, so what a slot shows of its last use is never above the last one that was taken.
//!
//! W4 tells of drops that no later event shows. V1's Release orders the ticket before the sequence, so a ticket read after a sequence
//! covers all that are below it.
//!
//! # What it costs
//!
//! The consumer writes into no slot, and looks at the producer's words once a turn. A slot is half a line for a key of eight bytes, and
//! its line is asked for some events before it is written: a line that another processor has read costs the producer nothing then.
//!
//! A key that is a number is copied in V2: no user code runs, so V4 follows at once, and neither V3 nor a pin is needed.

#![allow(unsafe_code)]

use std::{
    any::TypeId,
    mem::{MaybeUninit, needs_drop},
    ptr::NonNull,
};

use super::{Event, EventKind};
use crate::{
    lookup::{Guard, Keyed},
    node::{Node, quietly},
    resource::Resource,
    sync::{
        CachePadded, Mutex, UnsafeCell,
        atomic::{AtomicU64, Ordering},
        prefetch_to_write,
    },
};

/// A consumer frees slots in so many steps, not one by one: a producer that finds the ring full reads how far it has got, each time.
const FREED_BY: u64 = 8;
/// So many slots ahead a line is asked for: as long as it takes to come, at the pace of a thread that does nothing else.
const AHEAD: u64 = 8;

/// Whether a key is a number: its `Clone` is the compiler's, and may run under a lock. Known when the program is compiled.
#[inline(always)]
pub fn is_plain<K: 'static>() -> bool {
    let key = TypeId::of::<K>();
    let is = |one: TypeId| one == key;
    // The models' resources have keys of one byte, and are to go the long way.
    (is(TypeId::of::<u8>()) && !cfg!(any(loom, shuttle)))
        || is(TypeId::of::<u16>())
        || is(TypeId::of::<u32>())
        || is(TypeId::of::<u64>())
        || is(TypeId::of::<u128>())
        || is(TypeId::of::<usize>())
        || is(TypeId::of::<i8>())
        || is(TypeId::of::<i16>())
        || is(TypeId::of::<i32>())
        || is(TypeId::of::<i64>())
        || is(TypeId::of::<i128>())
        || is(TypeId::of::<isize>())
        || is(TypeId::of::<char>())
        || is(TypeId::of::<bool>())
}

/// What an event is about, with what it says. Each variant by itself, not a common part and a key: so that it has room for a number of eight
/// bytes in 24.
enum Body<R: Resource> {
    Nobody {
        kind: EventKind,
    },
    /// Between V2 and V3.
    Node {
        kind: EventKind,
        generation: u32,
        membership: u64,
        node: NonNull<Node<R>>,
    },
    Key {
        kind: EventKind,
        generation: u32,
        membership: u64,
        key: R::Key,
    },
    /// The key could not be cloned.
    Void,
}

struct Slot<R: Resource> {
    /// Twice the number after the event's sequence number, and one more when the event is complete; 0 before the first.
    stamp: AtomicU64,
    /// There from V2 to W2.
    body: UnsafeCell<MaybeUninit<Body<R>>>,
}

impl<R: Resource> Slot<R> {
    /// V4.
    #[inline]
    fn complete(&self, stamp: u64) {
        // Release: pairs with the Acquire of W1: whoever sees the stamp sees the event.
        self.stamp.store(stamp | 1, Ordering::Release);
    }
}

/// Tickets that one critical section has handed out, and that are to be completed after it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Range {
    first: u64,
    len: u64,
}

impl Range {
    /// There are none.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.len == 0
    }
}

/// How far a consumer has got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Below this sequence number nothing is missing any more but what was dropped, if that is known.
    pub complete: Option<u64>,
    /// It has stopped because it was to take no more, not because nothing more was ready.
    pub is_cut: bool,
}

/// What only the holder of the shard's lock writes. Padded as a whole: consumers read it seldom.
#[derive(Default)]
struct Producer {
    ticket: AtomicU64,
    sequence: AtomicU64,
    /// Events without a ticket.
    dropped: AtomicU64,
    /// What was read of `consumed`.
    consumed: AtomicU64,
}

/// What consumers write, for each event that they take: padded as a whole, so that the producer finds where the slots are in its cache.
struct Consumer {
    consumed: AtomicU64,
    /// The stamp of the last event that was taken.
    last: Mutex<u64>,
}

/// The ring of one shard.
pub struct Ring<R: Resource> {
    slots: Box<[Slot<R>]>,
    /// Events whose key could not be cloned.
    void: AtomicU64,
    shard: u32,
    producer: CachePadded<Producer>,
    consumer: CachePadded<Consumer>,
}

// SAFETY: a body is touched by one thread at a time (V2 to W2), and what is in it is `Send`: keys are, and the node pointer is
// followed by the producer alone.
unsafe impl<R: Resource> Send for Ring<R> {}
// SAFETY: as above.
unsafe impl<R: Resource> Sync for Ring<R> {}

impl<R: Resource> Ring<R> {
    /// A ring for `capacity` events, rounded up to a power of two.
    pub fn new(capacity: usize, shard: u32) -> Self {
        let slots = (0..capacity.next_power_of_two())
            .map(|_| Slot { stamp: AtomicU64::new(0), body: UnsafeCell::new(MaybeUninit::uninit()) })
            .collect();
        Ring {
            slots,
            void: AtomicU64::new(0),
            shard,
            producer: CachePadded::new(Producer::default()),
            consumer: CachePadded::new(Consumer { consumed: AtomicU64::new(0), last: Mutex::new(0) }),
        }
    }

    /// The shard, as its events name it.
    pub fn shard(&self) -> u32 {
        self.shard
    }

    /// How many events it has room for.
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    fn slot(&self, ticket: u64) -> &Slot<R> {
        &self.slots[ticket as usize & (self.slots.len() - 1)]
    }

    /// V1 and V2, and V4 if there is no V3.
    ///
    /// # Safety
    /// The caller holds the shard's lock. In one critical section, for which `range` was empty, either all events are about nodes whose keys
    /// [are not plain](is_plain), or none: the tickets to be completed follow each other, and no other ticket is among them.
    #[inline]
    pub unsafe fn reserve(
        &self,
        range: &mut Range,
        kind: EventKind,
        node: Option<&Node<R>>,
        generation: u32,
    ) {
        let producer = &*self.producer;
        // Relaxed, here and below where nothing else is said: written under the lock that the caller holds.
        let ticket = producer.ticket.load(Ordering::Relaxed);
        let sequence = producer.sequence.load(Ordering::Relaxed);
        if self.has_room(ticket) {
            let slot = self.slot(ticket);
            prefetch_to_write(self.slot(ticket + AHEAD));
            let body = match node {
                None => Body::Nobody { kind },
                // No user code: see `is_plain`.
                Some(node) if is_plain::<R::Key>() => {
                    Body::Key { kind, generation, membership: node.membership(), key: node.key().clone() }
                }
                Some(node) => {
                    Body::Node { kind, generation, membership: node.membership(), node: NonNull::from(node) }
                }
            };
            let is_pending = matches!(body, Body::Node { .. });
            // SAFETY: the slot was freed by W3 (or never used), and this ticket is ours alone. What it held was copied out by W2,
            // so nothing is to be dropped here.
            slot.body.with_mut(|slot| unsafe { (*slot).write(body) });
            let stamp = (sequence + 1) << 1;
            if is_pending {
                // Relaxed: even, so that nobody follows it. It is here for V4.
                slot.stamp.store(stamp, Ordering::Relaxed);
                if range.len == 0 {
                    range.first = ticket;
                }
                debug_assert_eq!(range.first + range.len, ticket, "all or none of a section are pending");
                range.len += 1;
            } else {
                slot.complete(stamp);
            }
            producer.ticket.store(ticket + 1, Ordering::Relaxed);
        } else {
            self.count_drop();
        }
        self.count_to(sequence + 1);
    }

    /// V1, the question.
    #[inline]
    fn has_room(&self, ticket: u64) -> bool {
        let is_full = |consumed: u64| ticket - consumed == self.slots.len() as u64;
        let mut has_room = !is_full(self.producer.consumed.load(Ordering::Relaxed));
        if !has_room {
            // Acquire: pairs with the Release of W3.
            // - it reads the W3 that freed the slot: V2 comes after W2; so do the V2 of later critical sections, by the lock;
            // - it reads an older one: the ring looks full, and the event is dropped.
            let consumed = self.consumer.consumed.load(Ordering::Acquire);
            self.producer.consumed.store(consumed, Ordering::Relaxed);
            has_room = !is_full(consumed);
        }
        has_room
    }

    /// V1: there is no ticket for an event.
    #[inline]
    fn count_drop(&self) {
        let dropped = &self.producer.dropped;
        // Relaxed, both: written under the lock that the caller holds, and read as a count.
        dropped.store(dropped.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// V1, its end.
    #[inline]
    fn count_to(&self, sequence: u64) {
        // Release: pairs with the Acquire of W4: whoever reads this number reads the ticket of its event, or a later one.
        self.producer.sequence.store(sequence, Ordering::Release);
    }

    /// Numbers an event, and drops it.
    ///
    /// # Safety
    /// The caller holds the shard's lock.
    #[cold]
    pub unsafe fn lose(&self) {
        self.count_drop();
        // Relaxed: written under the lock that the caller holds.
        self.count_to(self.producer.sequence.load(Ordering::Relaxed) + 1);
    }

    /// V3 and V4 for every ticket of `range`. Runs the key's `Clone`; a panic there is caught.
    ///
    /// # Safety
    /// The shard's lock is free, the range comes from this thread's last critical section, and `guard` is older than that: it
    /// keeps the nodes alive.
    #[cold]
    pub unsafe fn publish(&self, range: Range, guard: &impl Guard) {
        for ticket in range.first..range.first + range.len {
            let slot = self.slot(ticket);
            slot.body.with_mut(|body| {
                // SAFETY: ours between V2, which has written it, and V4: every ticket of the range is pending (`reserve`).
                let body = unsafe { (*body).assume_init_mut() };
                if let Body::Node { kind, generation, membership, node } = *body {
                    guard.touch(node.as_ptr());
                    // SAFETY: the caller's guard keeps the nodes alive.
                    let key = quietly(|| unsafe { node.as_ref() }.key().clone());
                    if key.is_none() {
                        // Relaxed: a count. Here and not in W2: it is a loss at once, whether or not anybody takes events out.
                        self.void.fetch_add(1, Ordering::Relaxed);
                    }
                    *body = key.map_or(Body::Void, |key| Body::Key { kind, generation, membership, key });
                }
            });
            // Relaxed: our own store of V2.
            slot.complete(slot.stamp.load(Ordering::Relaxed));
        }
    }

    /// W1 to W3, until nothing is ready or the slots of `max` were freed; then W4. Nothing is done if another thread is taking.
    pub fn take(&self, events: &mut Vec<Event<R::Key>>, max: usize) -> Taken {
        // Poisoned: a turn has broken off between W2 and W3. Nothing is taken twice.
        let Ok(mut last) = self.consumer.last.try_lock() else { return Taken::default() };
        // Relaxed: only the consumer, whose turn it is, writes it; the mutex ordered earlier turns.
        let mut ticket = self.consumer.consumed.load(Ordering::Relaxed);
        // Release: pairs with the Acquire of V1; outcomes there.
        let free_until = |ticket| self.consumer.consumed.store(ticket, Ordering::Release);
        let step = self.slots.len() as u64 / FREED_BY;
        let mut freed = ticket;
        let mut left = max;
        while left > 0 {
            let slot = self.slot(ticket);
            // Acquire: pairs with the Release of V4; if it reads an older stamp, the event is not ready.
            let stamp = slot.stamp.load(Ordering::Acquire);
            if stamp.is_multiple_of(2) || stamp <= *last {
                break;
            }
            // SAFETY: complete since V4, and ours until W3. Read once: nobody else has the turn, and the next ticket is another's.
            let body = slot.body.with(|body| unsafe { (*body).assume_init_read() });
            *last = stamp;
            ticket += 1;
            left -= 1;
            if ticket - freed >= step {
                free_until(ticket);
                freed = ticket;
            }
            let (kind, generation, membership, key) = match body {
                Body::Nobody { kind } => (kind, 0, 0, None),
                Body::Key { kind, generation, membership, key } => (kind, generation, membership, Some(key)),
                Body::Node { .. } | Body::Void => continue,
            };
            let sequence = (stamp >> 1) - 1;
            events.push(Event { kind, key, generation, membership, shard: self.shard, sequence });
        }
        if ticket != freed {
            free_until(ticket);
        }
        // Acquire: pairs with the Release of V1.
        // - it reads a number: the ticket below is that of its critical section, or a later one;
        // - a later number is there: what it stands for is seen the next time.
        let sequence = self.producer.sequence.load(Ordering::Acquire);
        // Relaxed: ordered by the load above.
        let is_all = self.producer.ticket.load(Ordering::Relaxed) == ticket;
        Taken { complete: is_all.then_some(sequence), is_cut: left == 0 }
    }

    /// The sequence number that comes next; or comes after that, if an event is just being numbered.
    pub fn sequence(&self) -> u64 {
        // Relaxed: a mark. What happened before the call, in program order or by the shard's lock, is below it: nothing older can be read.
        // By the words of `tally`, which are written before the sequence, so that what somebody has seen there is below it too. Whoever
        // holds what is told against it reads the sequence again, by W4.
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        count(&self.producer.ticket) + count(&self.producer.dropped)
    }

    /// Events that got a slot, and events that are dropped, so far. Those whose key could not be cloned are both.
    ///
    /// Exact: each is counted where it happens. Neither runs backwards; while events are recorded they may be of two moments.
    pub fn tally(&self) -> (u64, u64) {
        // Relaxed: counts.
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (count(&self.producer.ticket), count(&self.producer.dropped) + count(&self.void))
    }
}

impl<R: Resource> Drop for Ring<R> {
    /// What was not taken out: nobody records any more, so all of it is complete.
    fn drop(&mut self) {
        if needs_drop::<R::Key>() {
            let mut left = Vec::new();
            let _ = self.take(&mut left, usize::MAX);
            let _ = quietly(|| drop(left));
        }
    }
}

#[cfg(all(test, target_pointer_width = "64", not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::Entry;

    /// The documents of `Builder::event_capacity` and `Builder::observer` say so.
    #[test]
    fn events_take_what_the_documents_say() {
        const fn sizes<K: Clone + Eq + std::fmt::Debug + std::hash::Hash + Send + Sync + 'static>()
        -> (usize, usize) {
            (size_of::<Slot<Entry<K, u32, ()>>>(), size_of::<Event<K>>())
        }
        assert_eq!(sizes::<u64>(), (32, 48));
        assert_eq!(sizes::<u32>().0, 32);
        assert_eq!(sizes::<String>(), (24 + size_of::<String>(), 32 + size_of::<String>()));
        assert_eq!(sizes::<std::sync::Arc<str>>().0, 24 + size_of::<&str>());
    }
}
