//! A shard: one spinlock, a heap of eligible resources, a heap of cooling ones, and a published face.
//!
//! # The one rule
//!
//! The state word decides, the heap follows. Whoever changes a word holds the home shard's lock, makes the CAS, and
//! brings the heaps in line with [`Standing`](crate::node::Standing) before the lock is free. So whenever the lock is
//! free:
//!
//! * the ready heap holds exactly the nodes that stand `Eligible`, the cooling heap exactly those that stand
//!   `Cooling`;
//! * the face shows the best node, the earliest deadline, and how many nodes stand where.
//!
//! Under the lock there is no user code, no allocation, no system call, no other lock, and no work beyond O(log n):
//! ranks come in as numbers, room is made ahead ([`Shortage`]), garbage goes out ([`Garbage`]).
//!
//! | file | idea |
//! |---|---|
//! | `face` | the words that others read without the lock |
//! | `holds` | how many members have each hold |
//! | `slots` | slot numbers to nodes and heap positions |
//! | `locked` | the lock held: heaps and face brought in line with a transition |
//! | `lending` | transitions of leases, values and ranks |
//! | `membership` | transitions of membership and holds |
//! | `check` | all of it from scratch, for tests |
//! | `staged` | a batch that becomes visible at once |

#[cfg(any(test, loom, shuttle, feature = "internals"))]
mod check;
mod face;
mod holds;
mod lending;
mod locked;
mod membership;
mod slots;
mod staged;

use std::ptr::NonNull;

#[cfg(any(test, loom, shuttle, feature = "internals"))]
pub use check::Tally;
pub use face::{Count, Face, NEVER};
pub use lending::{Bare, Forecast, Garbage, Lent};
pub use locked::Locked;
pub use membership::Gone;
pub use staged::{Roster, Run};

#[cfg(feature = "telemetry")]
use crate::delay::Watch;
use crate::{
    events,
    heap::{MinMaxHeap, Queue, Segment},
    lookup::{DefaultReclaim, Reclaim},
    node::{Hold, Node},
    resource::Resource,
    sync::{Arc, SpinLock},
};
use slots::{SlotSegment, Slots};

/// Which of equally ranked resources is lent first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Ties {
    /// The one that has not been used for the longest time: spreads the work.
    #[default]
    LeastRecent,
    /// The one used last: keeps caches and connections warm.
    MostRecent,
}

/// One shard. Aligned so that the end of its face, the lock, and what changes with every queueing share a line.
#[repr(C, align(128))]
pub struct Shard<R: Resource> {
    face: Face<R>,
    lock: SpinLock<Inner<R>>,
    index: u32,
    events: Option<Arc<events::Ring<R>>>,
    /// Which lendings are samples, and what is counted for them.
    #[cfg(feature = "telemetry")]
    watch: Watch,
    /// Behind all that is touched by each lease.
    holds: holds::Holds,
}

/// A section in which nodes and values found by this thread stay allocated.
pub type Pin<'a> = <DefaultReclaim as Reclaim>::Guard<'a>;

/// What the lock guards. In this order, so that what every critical section touches is on the lock's line.
#[repr(C)]
struct Inner<R: Resource> {
    /// Grows with every queueing; equal ranks are ordered by it.
    ticket: u64,
    /// Nodes with the `COOLING` hold; the cooling heap has room for all of them.
    cooled: u32,
    ties: Ties,
    /// The part of a batch that is not absorbed yet.
    staged: Option<Box<Run<R>>>,
    ready: Queue,
    slots: Slots<R>,
    cooling: MinMaxHeap,
}

// SAFETY: the slot table's pointers are to nodes, which are `Send + Sync`; who may follow them is rule 2 and 5 of `node`.
#[allow(unsafe_code)]
unsafe impl<R: Resource> Send for Inner<R> {}

/// Room that must be made, outside the lock, before something can be done under it.
#[derive(Debug)]
#[must_use]
pub enum Shortage {
    /// The next segment of the slot table.
    Slots(usize),
    /// The next segment of the ready heap.
    Ready(usize),
    /// The next segment of the cooling heap.
    Cooling(usize),
    /// The shard holds as many resources as a slot number can tell apart.
    Exhausted,
}

impl<R: Resource> Shard<R> {
    /// An empty shard that puts its events into `events`.
    pub fn new(index: u32, ties: Ties, events: Option<Arc<events::Ring<R>>>) -> Self {
        Shard {
            face: Face::new(),
            lock: SpinLock::new(Inner {
                ticket: 0,
                cooled: 0,
                ties,
                staged: None,
                ready: Queue::new(),
                slots: Slots::new(),
                cooling: MinMaxHeap::new(),
            }),
            index,
            events,
            #[cfg(feature = "telemetry")]
            watch: Watch::new(0, 0),
            holds: holds::Holds::default(),
        }
    }

    /// Which lendings are samples, and what is counted for them.
    #[cfg(feature = "telemetry")]
    #[inline(always)]
    pub fn watch(&self) -> &Watch {
        &self.watch
    }

    /// The same, for a shard that nobody uses yet.
    #[cfg(feature = "telemetry")]
    pub fn watched(self, watch: Watch) -> Self {
        Shard { watch, ..self }
    }

    /// Which one it is.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// The published words.
    #[inline]
    pub fn face(&self) -> &Face<R> {
        &self.face
    }

    /// How many members have this hold. Of those excluded no more than there are members, even if what is read is of several moments.
    pub fn holds(&self, hold: Hold) -> u64 {
        match hold {
            // Read at several moments it may be less than nothing, or as much too large as exclusions came between.
            Hold::Excluded => {
                (self.held(hold).cast_signed()).clamp(0, self.face.members().cast_signed()).cast_unsigned()
            }
            _ => self.held(hold),
        }
    }

    /// The same, as the words say it.
    fn held(&self, hold: Hold) -> u64 {
        let counted = self.holds.of(hold);
        match hold {
            Hold::Excluded => {
                let (begun, ended) = (self.face.count(Count::Excluded), self.face.count(Count::Included));
                counted.wrapping_add(begun).wrapping_sub(ended)
            }
            _ => counted,
        }
    }

    /// The events, if anybody wants them.
    pub fn events(&self) -> Option<&events::Ring<R>> {
        self.events.as_deref()
    }

    /// Takes the lock, waiting for it, for something that makes no event.
    #[inline]
    pub fn lock(&self) -> Locked<'_, R> {
        self.lock_pinned(None)
    }

    /// Takes the lock, waiting for it. `pin` is needed if the shard has a ring: see [`Locked`].
    #[inline]
    pub fn lock_pinned<'s>(&'s self, pin: Option<Pin<'s>>) -> Locked<'s, R> {
        Locked::new(self, self.lock.lock(), pin)
    }

    /// Takes the lock if it is free. `pin` as for [`lock_pinned`](Self::lock_pinned).
    #[inline]
    pub fn try_lock<'s>(&'s self, pin: Option<Pin<'s>>) -> Option<Locked<'s, R>> {
        self.lock.try_lock().map(|inner| Locked::new(self, inner, pin))
    }

    /// Takes the lock soon, for something that changes nothing and is seldom done.
    #[cfg(feature = "telemetry")]
    pub fn lock_to_look(&self) -> Locked<'_, R> {
        Locked::new(self, self.lock.lock_to_look(), None)
    }

    /// Whether somebody has the lock who only looks. A hint.
    #[cfg(feature = "telemetry")]
    pub fn is_looked_at(&self) -> bool {
        self.lock.is_looked_at()
    }

    /// Takes the lock with room for so many more nodes, made outside the lock.
    ///
    /// `None` if the shard cannot hold as many.
    pub fn lock_with_slots<'s>(&'s self, nodes: usize, pin: Option<Pin<'s>>) -> Option<Locked<'s, R>> {
        self.lock_with(pin, |locked| locked.shortage_for_more(nodes))
    }

    /// Takes the lock with room for one more node to cool, made outside the lock.
    pub fn lock_with_cooling<'s>(&'s self, pin: Option<Pin<'s>>) -> Locked<'s, R> {
        self.lock_with(pin, |locked| locked.shortage_for_cooling())
            .expect("no more nodes cool than there are slots")
    }

    /// Makes room for `nodes` nodes.
    pub fn reserve(&self, nodes: usize) {
        drop(self.lock_with(None, |locked| locked.shortage_for(nodes)));
    }

    fn lock_with<'s>(
        &'s self,
        pin: Option<Pin<'s>>,
        shortage: impl Fn(&Locked<'s, R>) -> Option<Shortage>,
    ) -> Option<Locked<'s, R>> {
        let mut locked = self.lock_pinned(pin);
        // Ends: each turn adds a segment, or finds that somebody else has.
        while let Some(short) = shortage(&locked) {
            // Allocation and its first writes happen here, with the lock free.
            let pin = locked.unlock();
            let room = match short {
                Shortage::Slots(len) => Room::Slots(SlotSegment::new(len)),
                Shortage::Ready(len) => Room::Ready(Segment::new(len)),
                Shortage::Cooling(len) => Room::Cooling(Segment::new(len)),
                Shortage::Exhausted => return None,
            };
            locked = self.lock_pinned(pin);
            if let Some(surplus) = locked.add_room(room) {
                let pin = locked.unlock();
                drop(surplus);
                locked = self.lock_pinned(pin);
            }
        }
        Some(locked)
    }

    /// Every node that has a slot, for the owner of the whole scheduler.
    pub fn drain_nodes(&mut self) -> Vec<NonNull<Node<R>>> {
        self.lock.lock().slots.nodes().collect()
    }
}

/// Room to be linked in under the lock.
enum Room<R: Resource> {
    Slots(SlotSegment<R>),
    Ready(Segment),
    Cooling(Segment),
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::mem::offset_of;

    use super::*;
    use crate::resource::Entry;

    #[test]
    fn what_every_critical_section_writes_is_on_the_line_of_the_lock() {
        const LINE: usize = 64;
        type Held = Shard<Entry<u64, u64, u64>>;
        // The lock's word is its first, then comes what it guards: see `SpinLock`.
        let lock = offset_of!(Held, lock);
        assert_eq!(lock / LINE, size_of::<Face<Entry<u64, u64, u64>>>() / LINE);
        assert!(lock % LINE <= LINE - 16, "the ticket and the lengths follow on the same line: {lock}");
        assert_eq!(align_of::<Held>(), 128);
    }
}
