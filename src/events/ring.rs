//! The bounded ring of one shard.
//!
//! # States and steps of a slot
//!
//! A *ticket* numbers the events that got a slot, a *sequence* all events; both are handed out under the shard's lock, so
//! the order of tickets is the order of transitions. The slot of ticket t is t modulo the length.
//!
//! ```text
//! producer, shard lock held
//!   V1  sequence += 1; if ticket - consumed = length: the event is dropped and counted. Otherwise ticket += 1
//!   V2  write kind, generation, sequence, node into the slot: it is this producer's alone until V4
//! producer, lock free again
//!   V3  clone the key (user code); if that panics, the slot becomes void and counts as dropped
//!   V4  stamp := t + 1 (Release)
//! consumer, one at a time by a mutex
//!   W1  load the stamp of the slot of `consumed` (Acquire); not t + 1: nothing more for now
//!   W2  take the event
//!   W3  consumed := t + 1 (Release): the slot may be used for ticket t + length
//! ```
//!
//! V1 reads `consumed` with Acquire, so V2 comes after W2 of the slot's last use. A producer that stalls between V2 and V4
//! holds up the events behind its own, and nothing else: others go on, and drop when the ring is full.

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

struct Body<R: Resource> {
    kind: EventKind,
    generation: u32,
    sequence: u64,
    node: NonNull<Node<R>>,
    key: Option<R::Key>,
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

/// What only the holder of the shard's lock touches.
#[derive(Default)]
struct Producer {
    ticket: u64,
    sequence: u64,
}

/// The ring of one shard.
pub struct Ring<R: Resource> {
    slots: Box<[Slot<R>]>,
    producer: UnsafeCell<Producer>,
    consumed: CachePadded<AtomicU64>,
    /// Events whose key could not be cloned.
    void: AtomicU64,
    consumer: Mutex<()>,
    shard: u32,
}

// SAFETY: `producer` is touched under the shard's lock only, a body by one thread at a time (V2 to W2), and what is in it
// is `Send`: keys are, and the node pointer is followed by the producer alone.
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
            producer: UnsafeCell::new(Producer::default()),
            consumed: CachePadded::new(AtomicU64::new(0)),
            void: AtomicU64::new(0),
            consumer: Mutex::new(()),
            shard,
        }
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
        node: &Node<R>,
        generation: u32,
    ) -> bool {
        // Acquire: pairs with the Release of W3.
        // - it reads the W3 that freed the slot: V2 comes after W2;
        // - it reads an older one: the ring looks full, and the event is dropped.
        let consumed = self.consumed.load(Ordering::Acquire);
        // SAFETY: the lock makes this the only access to `producer`.
        let (ticket, sequence) = self.producer.with_mut(|producer| unsafe {
            let sequence = (*producer).sequence;
            (*producer).sequence += 1;
            let room = (*producer).ticket - consumed < self.slots.len() as u64;
            let ticket = room.then_some((*producer).ticket);
            (*producer).ticket += u64::from(room);
            (ticket, sequence)
        });
        let Some(ticket) = ticket else { return false };
        let body = Body { kind, generation, sequence, node: NonNull::from(node), key: None };
        // SAFETY: the slot was freed by W3 (or never used), and this ticket is ours alone. What it held was taken by W2, so
        // nothing is dropped here.
        self.slot(ticket).body.with_mut(|slot| unsafe { *slot = Some(body) });
        if range.len == 0 {
            range.first = ticket;
        }
        range.len += 1;
        true
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
                let body = unsafe { &mut *body };
                let node = body.as_ref().expect("written by V2").node;
                guard.touch(node.as_ptr());
                // SAFETY: the caller's guard keeps the nodes alive.
                let key = quietly(|| unsafe { node.as_ref() }.key().clone());
                if let Some(body) = body {
                    body.key = key;
                }
            });
            // Release: pairs with the Acquire of W1: whoever sees the stamp sees the event.
            slot.stamp.store(ticket + 1, Ordering::Release);
        }
    }

    /// W1 to W3, until nothing is ready or `events` has `max`. Nothing if another thread is taking.
    pub fn take(&self, events: &mut Vec<Event<R::Key>>, max: usize) {
        let Ok(_turn) = self.consumer.try_lock() else { return };
        while events.len() < max {
            // Relaxed: only the consumer, whose turn it is, writes it; the mutex ordered earlier turns.
            let ticket = self.consumed.load(Ordering::Relaxed);
            let slot = self.slot(ticket);
            // Acquire: pairs with the Release of V4; if it reads an older stamp, the event is not ready.
            if slot.stamp.load(Ordering::Acquire) != ticket + 1 {
                return;
            }
            // SAFETY: complete since V4, and ours until W3.
            let body = slot.body.with_mut(|body| unsafe { (*body).take() });
            // Release: pairs with the Acquire of V1; outcomes there.
            self.consumed.store(ticket + 1, Ordering::Release);
            match body {
                Some(Body { kind, generation, sequence, key: Some(key), .. }) => {
                    events.push(Event { kind, key, generation, shard: self.shard, sequence });
                }
                _ => {
                    // Relaxed: a count.
                    self.void.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }

    /// Events whose key could not be cloned, so far.
    pub fn void(&self) -> u64 {
        self.void.load(Ordering::Relaxed)
    }
}
