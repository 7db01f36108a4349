//! The slot table of a shard: which node a heap entry means, and where in a heap it is.
//!
//! A slot is 12 bytes, kept apart from the nodes so that sifting writes a compact array and chases no pointer. Slots
//! live in segments of doubling length that never move; the caller allocates a segment outside the lock and hands it
//! in. Free slots form a list through their positions.

use std::ptr::NonNull;

use crate::{heap::Positions, node::Node, resource::Resource};

const FIRST: u32 = if cfg!(any(loom, shuttle)) { 4 } else { 32 };
const SEGMENTS: usize = (25 - FIRST.ilog2()) as usize;
const NO_SLOT: u32 = u32::MAX;

/// Room for slots, allocated outside the lock.
pub struct SlotSegment<R: Resource> {
    nodes: Box<[Option<NonNull<Node<R>>>]>,
    positions: Box<[u32]>,
}

impl<R: Resource> SlotSegment<R> {
    /// Room for `len` slots. Allocates and writes all of it.
    pub fn new(len: usize) -> Self {
        SlotSegment { nodes: vec![None; len].into(), positions: vec![NO_SLOT; len].into() }
    }

    fn empty() -> Self {
        SlotSegment { nodes: Box::default(), positions: Box::default() }
    }
}

/// All slots of one shard.
pub struct Slots<R: Resource> {
    segments: [SlotSegment<R>; SEGMENTS],
    count: usize,
    /// Slots that were ever given out.
    used: u32,
    free: u32,
    live: u32,
}

impl<R: Resource> Slots<R> {
    pub fn new() -> Self {
        Slots {
            segments: std::array::from_fn(|_| SlotSegment::empty()),
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
        self.segments[self.count] = segment;
        self.count += 1;
        Ok(())
    }

    #[inline(always)]
    fn locate(slot: u32) -> (usize, usize) {
        // Segment 0 holds slots below FIRST; every further one doubles the table.
        let level = (slot | (FIRST - 1)).ilog2();
        let segment = (level + 1 - FIRST.ilog2()) as usize;
        let base = (1 << level) & !(FIRST - 1);
        (segment, (slot ^ base) as usize)
    }

    /// Takes a slot for `node`. The caller has checked that there is room.
    pub fn take(&mut self, node: NonNull<Node<R>>) -> u32 {
        let slot = if self.free != NO_SLOT {
            let slot = self.free;
            self.free = self.position(slot);
            slot
        } else {
            debug_assert!((self.used as usize) < self.capacity());
            self.used += 1;
            self.used - 1
        };
        let (segment, offset) = Self::locate(slot);
        self.segments[segment].nodes[offset] = Some(node);
        self.live += 1;
        slot
    }

    /// Gives a slot back.
    pub fn release(&mut self, slot: u32) {
        let (segment, offset) = Self::locate(slot);
        self.segments[segment].nodes[offset] = None;
        let free = self.free;
        self.set(slot, free);
        self.free = slot;
        self.live -= 1;
    }

    /// The node in a slot that is in use.
    #[inline(always)]
    pub fn node(&self, slot: u32) -> Option<NonNull<Node<R>>> {
        let (segment, offset) = Self::locate(slot);
        self.segments[segment].nodes[offset]
    }

    /// The heap position last told for a slot.
    #[inline]
    pub fn position(&self, slot: u32) -> u32 {
        let (segment, offset) = Self::locate(slot);
        self.segments[segment].positions[offset]
    }

    /// Every node that has a slot.
    pub fn nodes(&self) -> impl Iterator<Item = NonNull<Node<R>>> + '_ {
        self.segments.iter().flat_map(|segment| segment.nodes.iter().copied()).flatten()
    }
}

impl<R: Resource> Positions for Slots<R> {
    #[inline]
    fn set(&mut self, slot: u32, position: u32) {
        let (segment, offset) = Self::locate(slot);
        self.segments[segment].positions[offset] = position;
    }
}
