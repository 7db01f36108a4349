//! The slot table of a shard: which node a heap entry means, and where in a heap it is.
//!
//! A slot is 12 bytes, kept apart from the nodes so that sifting writes a compact array and chases no pointer. Slots
//! live in segments of doubling length that never move; the caller allocates a segment outside the lock and hands it
//! in. Free slots form a list through their positions.
//!
//! # Why `unsafe`
//!
//! A sift looks at a dozen slots. With segments as slices each look chooses one, subtracts its start, and compares twice; as in the heap's
//! storage there is one pointer per segment instead, moved back by the slot that the segment begins with, and one comparison: with the
//! slots that were ever given out, all of which have room.

#![allow(unsafe_code)]

use std::ptr::{self, NonNull};

use crate::{heap::Positions, node::Node, resource::Resource};

const FIRST: u32 = if cfg!(any(loom, shuttle)) { 4 } else { 32 };
const SEGMENTS: usize = (25 - FIRST.ilog2()) as usize;
const NO_SLOT: u32 = u32::MAX;

type Occupant<R> = Option<NonNull<Node<R>>>;

/// Room for slots, allocated outside the lock.
pub struct SlotSegment<R: Resource> {
    nodes: Box<[Occupant<R>]>,
    positions: Box<[u32]>,
}

impl<R: Resource> SlotSegment<R> {
    /// Room for `len` slots. Allocates and writes all of it.
    pub fn new(len: usize) -> Self {
        SlotSegment { nodes: vec![None; len].into(), positions: vec![NO_SLOT; len].into() }
    }
}

/// All slots of one shard.
pub struct Slots<R: Resource> {
    /// Where the node of slot 0 would be, if the segment began there.
    nodes: [*mut Occupant<R>; SEGMENTS],
    /// The same for positions.
    positions: [*mut u32; SEGMENTS],
    count: usize,
    /// Slots that were ever given out.
    used: u32,
    free: u32,
    live: u32,
}

impl<R: Resource> Slots<R> {
    pub fn new() -> Self {
        Slots {
            nodes: [ptr::null_mut(); SEGMENTS],
            positions: [ptr::null_mut(); SEGMENTS],
            count: 0,
            used: 0,
            free: NO_SLOT,
            live: 0,
        }
    }

    /// Slots that there is room for: as many as may be live at once, since a free slot is taken first.
    pub fn capacity(&self) -> usize {
        if self.count == 0 { 0 } else { (FIRST as usize) << (self.count - 1) }
    }

    /// Slots that were ever given out.
    pub fn used(&self) -> u32 {
        self.used
    }

    /// Slots in use.
    pub fn live(&self) -> u32 {
        self.live
    }

    /// The length of the next segment; `None` if the table has reached its limit.
    pub fn next_segment_len(&self) -> Option<usize> {
        (self.count < SEGMENTS).then(|| self.capacity().max(FIRST as usize))
    }

    /// Links `segment` in, or gives it back if it is not the next one any more.
    pub fn add_segment(&mut self, segment: SlotSegment<R>) -> Result<(), SlotSegment<R>> {
        if self.next_segment_len() != Some(segment.nodes.len()) {
            return Err(segment);
        }
        let start = self.capacity();
        self.nodes[self.count] = Box::into_raw(segment.nodes).cast::<Occupant<R>>().wrapping_sub(start);
        self.positions[self.count] = Box::into_raw(segment.positions).cast::<u32>().wrapping_sub(start);
        self.count += 1;
        Ok(())
    }

    /// The segment of a slot that was given out.
    #[inline(always)]
    fn segment(&self, slot: u32) -> usize {
        assert!(slot < self.used, "the slot was given out");
        // Segment 0 holds slots below FIRST; every further one doubles the table.
        ((slot | (FIRST - 1)).ilog2() - (FIRST - 1).ilog2()) as usize
    }

    #[inline(always)]
    fn node_at(&self, slot: u32) -> *mut Occupant<R> {
        self.nodes[self.segment(slot)].wrapping_add(slot as usize)
    }

    #[inline(always)]
    fn position_at(&self, slot: u32) -> *mut u32 {
        self.positions[self.segment(slot)].wrapping_add(slot as usize)
    }

    /// Takes a slot for `node`. The caller has checked that there is room.
    ///
    /// # Panics
    /// If there is none.
    pub fn take(&mut self, node: NonNull<Node<R>>) -> u32 {
        let slot = if self.free != NO_SLOT {
            let slot = self.free;
            self.free = self.position(slot);
            slot
        } else {
            assert!((self.used as usize) < self.capacity(), "room was made");
            self.used += 1;
            self.used - 1
        };
        // SAFETY: below `used`, so in the segment that was linked in for it; `&mut self`.
        unsafe { *self.node_at(slot) = Some(node) };
        self.live += 1;
        slot
    }

    /// Gives a slot back.
    pub fn release(&mut self, slot: u32) {
        // SAFETY: as in `take`.
        unsafe { *self.node_at(slot) = None };
        let free = self.free;
        self.set(slot, free);
        self.free = slot;
        self.live -= 1;
    }

    /// The node in a slot that is in use.
    #[inline(always)]
    pub fn node(&self, slot: u32) -> Option<NonNull<Node<R>>> {
        // SAFETY: as in `take`; `&self`: nobody writes.
        unsafe { *self.node_at(slot) }
    }

    /// The heap position last told for a slot.
    #[inline]
    pub fn position(&self, slot: u32) -> u32 {
        // SAFETY: as in `node`.
        unsafe { *self.position_at(slot) }
    }

    /// Every node that has a slot.
    pub fn nodes(&self) -> impl Iterator<Item = NonNull<Node<R>>> + '_ {
        (0..self.used).filter_map(|slot| self.node(slot))
    }
}

impl<R: Resource> Positions for Slots<R> {
    #[inline]
    fn set(&mut self, slot: u32, position: u32) {
        // SAFETY: as in `take`.
        unsafe { *self.position_at(slot) = position };
    }
}

impl<R: Resource> Drop for Slots<R> {
    fn drop(&mut self) {
        for segment in 0..self.count {
            let (start, len) = match segment {
                0 => (0, FIRST as usize),
                _ => (((FIRST as usize) << (segment - 1)), (FIRST as usize) << (segment - 1)),
            };
            let nodes = ptr::slice_from_raw_parts_mut(self.nodes[segment].wrapping_add(start), len);
            let positions = ptr::slice_from_raw_parts_mut(self.positions[segment].wrapping_add(start), len);
            // SAFETY: from the boxes in `add_segment`, of this length; nobody else has them.
            drop(unsafe { (Box::from_raw(nodes), Box::from_raw(positions)) });
        }
    }
}
