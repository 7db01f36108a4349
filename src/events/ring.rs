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
//!   V2  write kind, generation, sequence, node into the slot: it is this producer's alone until V4
//! producer, lock free again
//!   V3  clone the key (user code); if that panics, the slot becomes void and counts as dropped
//!   V4  stamp := t + 1 (Release)
//! consumer, one at a time by a mutex
//!   W1  load the stamp of the slot of `consumed` (Acquire); not t + 1: nothing more for now
//!   W2  take the event
//!   W3  consumed := t + 1 (Release), after some tickets and after the last: their slots may be used for tickets t + length
//!   W4  load the sequence (Acquire), then the ticket; if that is `consumed`, everything below the sequence was taken or dropped
//! ```
//!
//! V1 reads `consumed` with Acquire, so V2 comes after W2 of the slot's last use. The producer keeps what it has read, and reads
//! again when the ring seems full: the consumer's line is fetched once a round. A producer that stalls between V2 and V4
//! holds up the events behind its own, and nothing else: others go on, and drop when the ring is full.
//!
//! W4 tells of drops that no later event shows. V1's Release orders the ticket before the sequence, so a ticket read after a sequence
//! covers all that are below it.

#![allow(unsafe_code)]

use std::ptr::NonNull;

use super::{Event, EventKind};
use crate::{
    lookup::{Guard, Keyed},
    node::{Node, quietly},
    resource::Resource,
    sync::{
        CachePadded, Mutex, UnsafeCell,
        atomic::{AtomicU64, Ordering},
    },
};

/// A consumer frees slots in so many steps, not one by one: a producer that finds the ring full reads how far it has got, each time.
const FREED_BY: u64 = 8;

/// What an event is about.
enum About<R: Resource> {
    Nobody,
    /// Between V2 and V3.
    Node(NonNull<Node<R>>),
    Key(R::Key),
    /// The key could not be cloned.
    Void,
}

struct Body<R: Resource> {
    kind: EventKind,
    generation: u32,
    sequence: u64,
    about: About<R>,
}

struct Slot<R: Resource> {
    /// The ticket after the one whose event is here and complete.
    stamp: AtomicU64,
    body: UnsafeCell<Option<Body<R>>>,
}

/// Tickets that one critical section has handed out.
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

/// What only the holder of the shard's lock writes. Padded as a whole: consumers read it seldom.
#[derive(Default)]
struct Producer {
    ticket: AtomicU64,
    sequence: AtomicU64,
    /// What was read of `consumed`.
    consumed: AtomicU64,
}

/// The ring of one shard.
pub struct Ring<R: Resource> {
    slots: Box<[Slot<R>]>,
    producer: CachePadded<Producer>,
    consumed: CachePadded<AtomicU64>,
    /// Events whose key could not be cloned.
    void: AtomicU64,
    consumer: Mutex<()>,
    shard: u32,
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
            .map(|_| Slot { stamp: AtomicU64::new(0), body: UnsafeCell::new(None) })
            .collect();
        Ring {
            slots,
            producer: CachePadded::new(Producer::default()),
            consumed: CachePadded::new(AtomicU64::new(0)),
            void: AtomicU64::new(0),
            consumer: Mutex::new(()),
            shard,
        }
    }

    /// The shard, as its events name it.
    pub fn shard(&self) -> u32 {
        self.shard
    }

    fn slot(&self, ticket: u64) -> &Slot<R> {
        &self.slots[ticket as usize & (self.slots.len() - 1)]
    }

    /// V1 and V2. `false` if the event was dropped.
    ///
    /// # Safety
    /// The caller holds the shard's lock.
    pub unsafe fn reserve(
        &self,
        range: &mut Range,
        kind: EventKind,
        node: Option<&Node<R>>,
        generation: u32,
    ) -> bool {
        let producer = &*self.producer;
        // Relaxed, here and below where nothing else is said: written under the lock that the caller holds.
        let ticket = producer.ticket.load(Ordering::Relaxed);
        let sequence = producer.sequence.load(Ordering::Relaxed);
        let is_full = |consumed: u64| ticket - consumed == self.slots.len() as u64;
        let mut has_room = !is_full(producer.consumed.load(Ordering::Relaxed));
        if !has_room {
            // Acquire: pairs with the Release of W3.
            // - it reads the W3 that freed the slot: V2 comes after W2; so do the V2 of later critical sections, by the lock;
            // - it reads an older one: the ring looks full, and the event is dropped.
            let consumed = self.consumed.load(Ordering::Acquire);
            producer.consumed.store(consumed, Ordering::Relaxed);
            has_room = !is_full(consumed);
        }
        if has_room {
            let about = node.map_or(About::Nobody, |node| About::Node(NonNull::from(node)));
            let body = Body { kind, generation, sequence, about };
            // SAFETY: the slot was freed by W3 (or never used), and this ticket is ours alone. What it held was taken by W2, so
            // nothing is dropped here.
            self.slot(ticket).body.with_mut(|slot| unsafe { *slot = Some(body) });
            if range.len == 0 {
                range.first = ticket;
            }
            range.len += 1;
            producer.ticket.store(ticket + 1, Ordering::Relaxed);
        }
        // Release: pairs with the Acquire of W4: whoever reads this number reads the ticket above, or a later one.
        producer.sequence.store(sequence + 1, Ordering::Release);
        has_room
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
                // SAFETY: ours between V2 and V4.
                let body = unsafe { (*body).as_mut() }.expect("written by V2");
                if let About::Node(node) = body.about {
                    guard.touch(node.as_ptr());
                    // SAFETY: the caller's guard keeps the nodes alive.
                    let key = quietly(|| unsafe { node.as_ref() }.key().clone());
                    if key.is_none() {
                        // Relaxed: a count. Here and not in W2: it is a loss at once, whether or not anybody takes events out.
                        self.void.fetch_add(1, Ordering::Relaxed);
                    }
                    body.about = key.map_or(About::Void, About::Key);
                }
            });
            // Release: pairs with the Acquire of W1: whoever sees the stamp sees the event.
            slot.stamp.store(ticket + 1, Ordering::Release);
        }
    }

    /// W1 to W3, until nothing is ready or `max` were taken; then W4. Answers below which sequence nothing is missing any more but
    /// what was dropped, if that is known. Nothing is done if another thread is taking.
    pub fn take(&self, events: &mut Vec<Event<R::Key>>, max: usize) -> Option<u64> {
        let Ok(_turn) = self.consumer.try_lock() else { return None };
        // Relaxed: only the consumer, whose turn it is, writes it; the mutex ordered earlier turns.
        let mut ticket = self.consumed.load(Ordering::Relaxed);
        // Release: pairs with the Acquire of V1; outcomes there.
        let free_until = |ticket| self.consumed.store(ticket, Ordering::Release);
        let step = self.slots.len() as u64 / FREED_BY;
        let mut freed = ticket;
        for _ in 0..max {
            let slot = self.slot(ticket);
            // Acquire: pairs with the Release of V4; if it reads an older stamp, the event is not ready.
            if slot.stamp.load(Ordering::Acquire) != ticket + 1 {
                break;
            }
            // SAFETY: complete since V4, and ours until W3.
            let body = slot.body.with_mut(|body| unsafe { (*body).take() });
            ticket += 1;
            if ticket - freed >= step {
                free_until(ticket);
                freed = ticket;
            }
            let Some(Body { kind, generation, sequence, about }) = body else { continue };
            let key = match about {
                About::Nobody => None,
                About::Key(key) => Some(key),
                About::Node(_) | About::Void => continue,
            };
            events.push(Event { kind, key, generation, shard: self.shard, sequence });
        }
        if ticket != freed {
            free_until(ticket);
        }
        // Acquire: pairs with the Release of V1.
        // - it reads a number: the ticket below is that of its critical section, or a later one;
        // - a later number is there: what it stands for is seen the next time.
        let sequence = self.producer.sequence.load(Ordering::Acquire);
        // Relaxed: ordered by the load above.
        (self.producer.ticket.load(Ordering::Relaxed) == ticket).then_some(sequence)
    }

    /// The sequence number that comes next.
    pub fn sequence(&self) -> u64 {
        // Relaxed: a mark. What happened before the call, in program order or by the shard's lock, is below it: nothing older can be read.
        // Whoever holds what is told against it reads the sequence again, by W4.
        self.producer.sequence.load(Ordering::Relaxed)
    }

    /// Events whose key could not be cloned, so far.
    pub fn void(&self) -> u64 {
        self.void.load(Ordering::Relaxed)
    }

    /// Events that got a slot, and events that got none, so far.
    pub fn counts(&self) -> (u64, u64) {
        // Acquire, first: as W4: the tickets of all that is in the number are seen, or events would count as dropped that were not.
        // Survives Acquire -> Relaxed: no model reads the counts while events are recorded by others; at rest a join has come first.
        let sequence = self.producer.sequence.load(Ordering::Acquire);
        let ticket = self.producer.ticket.load(Ordering::Relaxed).min(sequence);
        (ticket, sequence - ticket)
    }
}
