//! One segment: so many slots, each used once between two resets.
//!
//! The protocol of which it is a part is told in the header of [`segmented`](super::segmented).

use std::{
    alloc::{self, Layout},
    mem::MaybeUninit,
    ops::Deref,
    ptr::NonNull,
};

use super::{Refusal, recycle::Store};
use crate::sync::{
    Arc, CachePadded, UnsafeCell,
    atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering},
    prefetch, prefetch_to_write,
};

/// States of a slot: the number of the segment's life, times four, and one of these. A state of an earlier life is `EMPTY`, so that a
/// segment that is used again need not be touched before. A reserved slot is its producer's until it is `FULL`, and then its consumer's.
const FULL: u32 = 1;
/// Its consumer came before its item, and has gone on.
const PASSED: u32 = 2;

/// So that a slot of up to 64 bytes is in one line.
const LINE: usize = 64;

/// How far ahead producers and consumers ask for the lines that they will use.
pub const AHEAD: usize = 8;

/// Set in `tail`: no slot is reserved any more.
const CLOSED: usize = 1;
/// One slot in `tail`.
const ONE: usize = 2;

struct Slot<T> {
    state: AtomicU32,
    value: UnsafeCell<MaybeUninit<T>>,
}

/// So many slots, the indices of producers and consumers, and a link.
pub struct Segment<T> {
    /// Reserved slots, times `ONE`, and `CLOSED`. Never more than there are slots.
    tail: CachePadded<AtomicUsize>,
    /// Claimed slots; never more than are reserved.
    head: CachePadded<AtomicUsize>,
    /// The segment after this one; null if there is none yet; [`Segment::end`] if there will be none.
    pub next: AtomicPtr<Segment<T>>,
    /// The next one in the store.
    pub below: AtomicPtr<Segment<T>>,
    /// The position of the first slot. Changed only while nobody else can reach the segment, as is `store`.
    base: u64,
    /// Which of its lives this is, from 1. With `base`.
    life: u32,
    /// Where it goes when nobody can be reading it any more; none while it is there.
    store: Option<Arc<Store<T>>>,
    slots: Slots<T>,
}

/// A slice of slots that begins with a line.
struct Slots<T> {
    first: NonNull<Slot<T>>,
    count: usize,
}

impl<T> Slots<T> {
    fn layout(count: usize) -> Layout {
        let array = Layout::array::<Slot<T>>(count).and_then(|array| array.align_to(LINE));
        array.expect("a segment is smaller than the address space")
    }

    fn new(count: usize) -> Self {
        let layout = Self::layout(count);
        // SAFETY: a slot has a state, and there is at least one: the size is not 0.
        let first = unsafe { alloc::alloc(layout) }.cast::<Slot<T>>();
        let Some(first) = NonNull::new(first) else { alloc::handle_alloc_error(layout) };
        for index in 0..count {
            let slot = Slot { state: AtomicU32::new(0), value: UnsafeCell::new(MaybeUninit::uninit()) };
            // SAFETY: within the allocation, which is aligned for slots.
            unsafe { first.add(index).write(slot) };
        }
        Slots { first, count }
    }
}

impl<T> Deref for Slots<T> {
    type Target = [Slot<T>];

    #[inline(always)]
    fn deref(&self) -> &[Slot<T>] {
        // SAFETY: so many were written in `new`, and live as long as this.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.count) }
    }
}

impl<T> Drop for Slots<T> {
    fn drop(&mut self) {
        // SAFETY: written and allocated by `new`, with this layout; nobody else is here.
        unsafe {
            std::ptr::drop_in_place(std::ptr::slice_from_raw_parts_mut(self.first.as_ptr(), self.count));
            alloc::dealloc(self.first.as_ptr().cast(), Self::layout(self.count));
        }
    }
}

// SAFETY: values go from one thread to another, which is all that `T: Send` allows; indices and states are atomic.
unsafe impl<T: Send> Send for Segment<T> {}
// SAFETY: as above: a slot's value is accessed by its producer, then by its consumer, never by two at once.
unsafe impl<T: Send> Sync for Segment<T> {}

/// What a producer got.
pub enum Reserved {
    /// So many slots, from this index on.
    Slots(usize, usize),
    /// The segment has been used up.
    UsedUp,
    /// The caller has said that there is no room, or the segment is closed.
    Refused(Refusal),
}

/// What a consumer got.
pub enum Claimed {
    /// So many slots, from this index on.
    Slots(usize, usize),
    /// Nothing is reserved that is not claimed, and more may be.
    Nothing,
    /// The segment has been used up.
    UsedUp,
}

impl<T> Segment<T> {
    /// A segment that nobody else can reach.
    pub fn new(slots: usize) -> Box<Self> {
        Box::new(Segment {
            tail: CachePadded::new(AtomicUsize::new(0)),
            head: CachePadded::new(AtomicUsize::new(0)),
            next: AtomicPtr::new(std::ptr::null_mut()),
            below: AtomicPtr::new(std::ptr::null_mut()),
            base: 0,
            life: 0,
            store: None,
            slots: Slots::new(slots),
        })
    }

    /// What `next` holds where no segment will follow: never null, never followed.
    pub fn end() -> *mut Self {
        std::ptr::without_provenance_mut(std::mem::align_of::<Self>())
    }

    /// Gives a fresh or a reset segment its place in a queue. The caller is the only one who can reach it.
    pub fn place(&mut self, base: u64, store: Arc<Store<T>>) {
        self.base = base;
        self.life = self.life.wrapping_add(1) & (u32::MAX >> 2);
        self.store = Some(store);
    }

    /// A state in this life.
    fn now(&self, state: u32) -> u32 {
        self.life << 2 | state
    }

    /// Makes it as new, without a place. The caller is the only one who can reach it, and its values have been taken out.
    pub fn reset(&mut self) -> Option<Arc<Store<T>>> {
        // Relaxed: nobody else is here; what publishes the segment again publishes these.
        self.tail.store(0, Ordering::Relaxed);
        self.head.store(0, Ordering::Relaxed);
        self.next.store(std::ptr::null_mut(), Ordering::Relaxed);
        self.store.take()
    }

    /// The position after the last slot.
    pub fn end_position(&self) -> u64 {
        self.base + self.slots.len() as u64
    }

    /// The position up to which slots are reserved.
    pub fn tail_position(&self) -> u64 {
        // Relaxed: a position that was current at some moment is all that is asked.
        self.base + (self.tail.load(Ordering::Relaxed) / ONE) as u64
    }

    /// The position up to which slots are claimed.
    pub fn head_position(&self) -> u64 {
        // Relaxed: as above.
        self.base + self.head.load(Ordering::Relaxed) as u64
    }

    /// P3: reserves up to `want` slots, if `room` says how many there is room for beyond a position.
    pub fn reserve(&self, want: usize, room: impl Fn(u64) -> usize) -> Reserved {
        // Relaxed, here and in the CAS: the index decides who has which slot, and nothing is read through it. A consumer that sees
        // a slot as reserved learns from the slot's own state whether there is anything in it.
        let mut word = self.tail.load(Ordering::Relaxed);
        loop {
            if word & CLOSED != 0 {
                return Reserved::Refused(Refusal::Closed);
            }
            let from = word / ONE;
            let left = self.slots.len() - from;
            if left == 0 {
                return Reserved::UsedUp;
            }
            let count = want.min(left).min(room(self.base + from as u64));
            if count == 0 {
                return Reserved::Refused(Refusal::Full);
            }
            let new = word + count * ONE;
            match self.tail.compare_exchange_weak(word, new, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Reserved::Slots(from, count),
                Err(found) => word = found,
            }
        }
    }

    /// P4 and P5: fills a slot that the caller has reserved; the item comes back if its consumer has passed by.
    pub fn publish(&self, index: usize, item: T) -> Result<(), T> {
        let slot = &self.slots[index];
        if let Some(later) = self.slots.get(index + AHEAD) {
            prefetch_to_write(later);
        }
        // Relaxed: a state of an earlier life, which came with the segment, or `PASSED`, which the CAS would find as well.
        let empty = slot.state.load(Ordering::Relaxed);
        // SAFETY: reserved by the caller, and its own until the state is `FULL`.
        slot.value.with_mut(|value| unsafe { (*value).write(item) });
        if empty != self.now(PASSED) {
            // Release: pairs with the Acquire loads of `take`: whoever sees `FULL` sees the item. Strong: a spurious failure would be
            // taken for a consumer that has passed. Acquire on failure: pairs with the Release of `take`: a consumer that has
            // passed has claimed the slot, and so we see that there is room for another one.
            let full = self.now(FULL);
            if slot.state.compare_exchange(empty, full, Ordering::Release, Ordering::Acquire).is_ok() {
                return Ok(());
            }
        } else {
            // Acquire: as on failure.
            // Survives Acquire -> Relaxed: no model comes here: the consumer would have to pass between the reservation and the first
            // look, of a producer that was not there to be waited for.
            let _ = slot.state.load(Ordering::Acquire);
        }
        // SAFETY: `PASSED`: the slot stays ours, and holds what we have just written.
        Err(slot.value.with(|value| unsafe { (*value).assume_init_read() }))
    }

    /// C2: claims up to `max` reserved slots.
    pub fn claim(&self, max: usize) -> Claimed {
        // Acquire: pairs with the Release of the CAS below: who made it had seen so many slots reserved, and so do we: `tail` is
        // never read to be less than `head`.
        // Survives Acquire -> Relaxed: it takes a producer and two consumers, of which one reads the head of the other and a tail from
        // before; the models with three threads are cut short before they find it.
        let mut head = self.head.load(Ordering::Acquire);
        loop {
            if head == self.slots.len() {
                return Claimed::UsedUp;
            }
            // Relaxed: see `reserve`.
            let tail = self.tail.load(Ordering::Relaxed) / ONE;
            let count = max.min(tail - head);
            if count == 0 {
                return Claimed::Nothing;
            }
            let new = head + count;
            // Release, and Acquire on failure: as above.
            // Survives success Release -> Relaxed: as above.
            // Survives failure Acquire -> Relaxed: as above.
            match self.head.compare_exchange_weak(head, new, Ordering::Release, Ordering::Acquire) {
                Ok(_) => return Claimed::Slots(head, count),
                Err(found) => head = found,
            }
        }
    }

    /// Asks for the line of a slot that will be taken soon.
    pub fn expect(&self, index: usize) {
        if let Some(slot) = self.slots.get(index) {
            prefetch(slot);
        }
    }

    /// C3: takes the item of a slot that the caller has claimed; none if it passes by a producer that is not done. `patience`
    /// waits a little, and says whether to look again.
    pub fn take(&self, index: usize, mut patience: impl FnMut() -> bool) -> Option<T> {
        let slot = &self.slots[index];
        let full = self.now(FULL);
        loop {
            // Acquire: pairs with the Release of `publish`.
            // - it reads `FULL`: the item is there, and ours;
            // - it reads a state of an earlier life: the producer is not done, as far as we can see.
            let state = slot.state.load(Ordering::Acquire);
            if state == full {
                break;
            }
            if patience() {
                continue;
            }
            // Release on success: pairs with the Acquire of `publish`. Acquire on failure: as above.
            let passed = self.now(PASSED);
            match slot.state.compare_exchange(state, passed, Ordering::Release, Ordering::Acquire) {
                Ok(_) => return None,
                Err(_) => break,
            }
        }
        // SAFETY: `FULL`, and claimed by the caller alone, who comes once.
        Some(slot.value.with(|value| unsafe { (*value).assume_init_read() }))
    }

    /// Reserves nothing any more; `true` if it was used up already, so that the end must be marked at `next`.
    pub fn close(&self) -> bool {
        // Relaxed: as for `reserve`; who must see what came before is told by the pool, not by this word.
        self.tail.fetch_or(CLOSED, Ordering::Relaxed) / ONE == self.slots.len()
    }

    /// Drops what has not been claimed.
    pub fn drop_items(&mut self) {
        // Relaxed: nobody else is here.
        let (head, tail) = (self.head.load(Ordering::Relaxed), self.tail.load(Ordering::Relaxed) / ONE);
        for slot in &self.slots[head..tail] {
            if slot.state.load(Ordering::Relaxed) == self.now(FULL) {
                // SAFETY: full, and nobody has claimed it.
                drop(slot.value.with(|value| unsafe { (*value).assume_init_read() }));
            }
        }
    }
}
