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
    Arc, CachePadded, Spin, UnsafeCell,
    atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering},
    barrier, prefetch, prefetch_to_write,
};

/// States of a slot: the number of the segment's life, times [`LIFE`], and one of these. A state of an earlier life is empty, so that a
/// segment that is used again need not be touched before. A reserved slot is its producer's until it is `FULL`, and then its consumer's.
const FULL: u32 = 1;
/// Its consumer had passed by, looked once more, and has taken the item after all.
const TAKEN: u32 = 2;
/// Its consumer has passed by, and the producer has taken the item back.
const BACK: u32 = 3;
/// From one life to the next.
const LIFE: u32 = 4;

/// How often a consumer looks again before it passes by a producer: each time it waits twice as long as before. None in a
/// model, where either outcome is explored.
const PATIENCE: u32 = if cfg!(any(loom, shuttle)) { 0 } else { 6 };

/// So that a slot of up to 64 bytes is in one line.
const LINE: usize = 64;

/// How far ahead, in bytes, producers and consumers ask for the lines that they will use.
const AHEAD: usize = 512;

/// Set in `tail`: no slot is reserved any more. More than any index, so that one comparison tells a segment that is closed, or used up.
const CLOSED: usize = 1 << (usize::BITS - 1);

struct Slot<T> {
    state: AtomicU32,
    /// The segment's `life` in which its consumer has passed by; beside the state, so that a producer finds it in the same line.
    passed: AtomicU32,
    value: UnsafeCell<MaybeUninit<T>>,
}

/// So many slots, the indices of producers and consumers, and a link.
pub struct Segment<T> {
    /// Reserved slots, and `CLOSED`. Never more than there are slots.
    tail: CachePadded<AtomicUsize>,
    head: CachePadded<Head>,
    /// The segment after this one; null if there is none yet; [`Segment::end`] if there will be none.
    pub next: AtomicPtr<Segment<T>>,
    /// The next one in the store.
    pub below: AtomicPtr<Segment<T>>,
    /// The position of the first slot. Changed only while nobody else can reach the segment, as is `store`.
    base: u64,
    /// Which of its lives this is, from 1, times [`LIFE`]: a state is this and one of those above. With `base`.
    life: u32,
    /// Where it goes when nobody can be reading it any more; none while it is there.
    store: Option<Arc<Store<T>>>,
    slots: Slots<T>,
}

/// What consumers write.
struct Head {
    /// Claimed slots; never more than are reserved.
    claimed: AtomicUsize,
    /// So many slots, at least, are reserved: so that consumers read the producers' line only when they have come so far.
    seen: AtomicUsize,
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
            let slot = Slot {
                state: AtomicU32::new(0),
                passed: AtomicU32::new(0),
                value: UnsafeCell::new(MaybeUninit::uninit()),
            };
            // SAFETY: within the allocation, which is aligned for slots.
            unsafe { first.add(index).write(slot) };
        }
        Slots { first, count }
    }
}

impl<T> Slots<T> {
    /// The first slots, as far ahead as producers and consumers look: one in each line. Not to be followed.
    fn ahead(&self) -> impl Iterator<Item = *const Slot<T>> + use<T> {
        let (first, count) = (self.first.as_ptr().cast_const(), self.count.min(Segment::<T>::AHEAD));
        (0..count).step_by(Segment::<T>::PER_LINE).map(move |index| first.wrapping_add(index))
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
    /// [`AHEAD`], in slots.
    pub const AHEAD: usize = AHEAD.div_ceil(size_of::<Slot<T>>());

    /// Slots that begin in one line, at least one.
    const PER_LINE: usize = if size_of::<Slot<T>>() < LINE { LINE / size_of::<Slot<T>>() } else { 1 };

    /// The size of so many slots.
    pub fn bytes(slots: usize) -> usize {
        slots.saturating_mul(size_of::<Slot<T>>())
    }

    /// A segment that nobody else can reach.
    pub fn new(slots: usize) -> Box<Self> {
        Box::new(Segment {
            tail: CachePadded::new(AtomicUsize::new(0)),
            head: CachePadded::new(Head { claimed: AtomicUsize::new(0), seen: AtomicUsize::new(0) }),
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

    /// Gives a fresh or a reset segment its place in a queue.
    ///
    /// # Safety
    /// The segment is there, and the caller's alone, but for its `below`.
    pub unsafe fn place(segment: *mut Self, base: u64, store: Arc<Store<T>>) {
        // SAFETY: the caller's promise; no reference is made but to these fields.
        unsafe {
            (*segment).base = base;
            // `reset` ends the last life.
            (*segment).life += LIFE;
            (*segment).store = Some(store);
        }
        // Its lines are where its last consumer was. One by one, each would hold up its push, whose read-modify-write waits for the stores before it.
        // SAFETY: as above.
        let (tail, slots) = unsafe { (&raw const (*segment).tail, &(*segment).slots) };
        prefetch_to_write(tail);
        slots.ahead().for_each(prefetch_to_write);
    }

    /// A state in this life.
    fn now(&self, state: u32) -> u32 {
        self.life | state
    }

    /// Makes it as new, without a place; none if its queue has gone, or if this was its last life. The caller is the only one who can reach it, and its
    /// values have been taken out.
    ///
    /// The number of a life never comes again: a slot remembers in which it was passed by, and in the 2^30th life every slot that never was would
    /// look as if it had been.
    pub fn reset(&mut self) -> Option<Arc<Store<T>>> {
        if self.life > u32::MAX - LIFE {
            self.store = None;
            return None;
        }
        // Relaxed: nobody else is here; what publishes the segment again publishes these.
        self.tail.store(0, Ordering::Relaxed);
        self.head.claimed.store(0, Ordering::Relaxed);
        self.head.seen.store(0, Ordering::Relaxed);
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
        self.base + (self.tail.load(Ordering::Relaxed) & !CLOSED) as u64
    }

    /// The position up to which slots are claimed.
    pub fn head_position(&self) -> u64 {
        // Relaxed: as above.
        self.base + self.head.claimed.load(Ordering::Relaxed) as u64
    }

    /// P3: reserves up to `want` slots, if `room` says how many there is room for beyond a position.
    #[inline]
    pub fn reserve(&self, want: usize, room: impl Fn(u64) -> usize) -> Reserved {
        // Relaxed, here and in the CAS: the index decides who has which slot, and nothing is read through it. A consumer that sees
        // a slot as reserved learns from the slot's own state whether there is anything in it.
        let mut word = self.tail.load(Ordering::Relaxed);
        loop {
            if word & CLOSED != 0 {
                return Reserved::Refused(Refusal::Closed);
            }
            let left = self.slots.len() - word;
            if left == 0 {
                return Reserved::UsedUp;
            }
            let count = want.min(left).min(room(self.base + word as u64));
            if count == 0 {
                return Reserved::Refused(Refusal::Full);
            }
            match self.reserve_from(word, count) {
                Ok(()) => return Reserved::Slots(word, count),
                Err(found) => word = found,
            }
        }
    }

    /// The CAS of P3; what was there if it fails.
    #[inline(always)]
    fn reserve_from(&self, word: usize, count: usize) -> Result<(), usize> {
        // Relaxed, both: see `reserve`.
        self.tail.compare_exchange_weak(word, word + count, Ordering::Relaxed, Ordering::Relaxed).map(|_| ())
    }

    /// P3 to P7 for one item as they usually go: there is a slot, and room, nobody is faster, and no consumer passes by. Otherwise the item
    /// comes back. Calls nothing: what it leaves alone is `reserve` and `publish` by themselves.
    #[inline(always)]
    pub fn push_at_once(&self, item: T, has_room: impl FnOnce(u64) -> bool) -> Result<(), T> {
        // Relaxed: as in `reserve`.
        let word = self.tail.load(Ordering::Relaxed);
        let slots: &[Slot<T>] = &self.slots;
        // None of one that is used up, or closed.
        let Some(slot) = slots.get(word) else { return Err(item) };
        if !has_room(self.base + word as u64) || self.reserve_from(word, 1).is_err() {
            return Err(item);
        }
        if let Some(later) = slots.get(word + Self::AHEAD) {
            prefetch_to_write(later);
        }
        self.fill(slot, item)
    }

    /// P4 to P7: fills a slot that the caller has reserved; the item comes back if its consumer has passed by.
    #[inline]
    pub fn publish(&self, index: usize, item: T) -> Result<(), T> {
        if let Some(later) = self.slots.get(index + Self::AHEAD) {
            prefetch_to_write(later);
        }
        self.fill(&self.slots[index], item)
    }

    /// P4 to P7, of a slot that the caller has reserved.
    #[inline(always)]
    fn fill(&self, slot: &Slot<T>, item: T) -> Result<(), T> {
        // SAFETY: reserved by the caller, and its own until the state is `FULL`.
        slot.value.with_mut(|value| unsafe { (*value).write(item) });
        // P5. Release: pairs with the Acquire loads of `take` and `pass`: whoever sees `FULL` sees the item.
        slot.state.store(self.now(FULL), Ordering::Release);
        // P6.
        barrier::light();
        // P7. Acquire: pairs with the Release of C4: a consumer that has passed has claimed the slot, and so we see that there is room
        // for another one.
        if slot.passed.load(Ordering::Acquire) != self.life {
            return Ok(());
        }
        self.take_back(slot)
    }

    /// P8: the consumer has passed by, or is about to; one of both gets the item.
    #[cold]
    fn take_back(&self, slot: &Slot<T>) -> Result<(), T> {
        // Relaxed: the item is what we have written ourselves; on failure nothing is read.
        let taken =
            slot.state.compare_exchange(self.now(FULL), self.now(BACK), Ordering::Relaxed, Ordering::Relaxed);
        match taken {
            // SAFETY: the CAS made it ours again, and it holds what we have just written.
            Ok(_) => Err(slot.value.with(|value| unsafe { (*value).assume_init_read() })),
            Err(_) => Ok(()),
        }
    }

    /// Whether the item of an unclaimed slot is there, and so the slot is reserved.
    #[inline]
    fn is_full(&self, slot: &Slot<T>) -> bool {
        // Acquire: pairs with the Release of P5: the item; and whoever reads the `head` that we make of it, and then `tail`, does not read that as less.
        slot.state.load(Ordering::Acquire) == self.now(FULL)
    }

    /// Up to which slot they are known to be reserved, with a look at `tail` if that is not enough for `max` after `head`; for one, and within a
    /// segment, rather with a look at its slot, for `tail` is in the producers' line.
    #[inline]
    fn reserved(&self, head: usize, max: usize) -> usize {
        // Acquire: pairs with the Release of the store below: who made `head` may have learned from this word, and not from `tail`, that
        // so many slots are reserved.
        // - it reads that store, or a later one: `tail`, if we come to it, is not read to be less than what was stored;
        // - it reads an earlier number of this life: as true, and `tail` is asked.
        // Survives Acquire -> Relaxed: it takes a producer and three consumers, each of which learns from the one before.
        let mut tail = self.head.seen.load(Ordering::Acquire);
        if tail.saturating_sub(head) < max && tail < self.slots.len() {
            if max == 1 && head > 0 && self.is_full(&self.slots[head]) {
                return head + 1;
            }
            let known = tail;
            // Relaxed: see `reserve`.
            tail = self.tail.load(Ordering::Relaxed) & !CLOSED;
            if tail != known {
                // Release: pairs with the Acquire above.
                // Survives Release -> Relaxed: as above.
                self.head.seen.store(tail, Ordering::Release);
            }
        }
        tail
    }

    /// C2: claims up to `max` reserved slots.
    #[inline]
    pub fn claim(&self, max: usize) -> Claimed {
        // Acquire: pairs with the Release of the CAS below: who made it had seen so many slots reserved, and so do we: `tail` is
        // never read to be less than `head`.
        // Survives Acquire -> Relaxed: it takes a producer and two consumers, of which one reads the head of the other and a tail from
        // before; the models with three threads are cut short before they find it.
        let mut head = self.head.claimed.load(Ordering::Acquire);
        loop {
            if head == self.slots.len() {
                return Claimed::UsedUp;
            }
            let tail = self.reserved(head, max);
            let count = max.min(tail - head);
            if count == 0 {
                return Claimed::Nothing;
            }
            match self.claim_from(head, count) {
                Ok(()) => return Claimed::Slots(head, count),
                Err(found) => head = found,
            }
        }
    }

    /// The CAS of C2; what was there if it fails.
    #[inline(always)]
    fn claim_from(&self, head: usize, count: usize) -> Result<(), usize> {
        let claimed = &self.head.claimed;
        // Release, and Acquire on failure: as at the load of it in `claim`.
        // Survives success Release -> Relaxed: as at that load.
        // Survives failure Acquire -> Relaxed: as at that load.
        claimed.compare_exchange_weak(head, head + count, Ordering::Release, Ordering::Acquire).map(|_| ())
    }

    /// C2 and C3 for one item as they usually go: its slot is not the first one, the item is there, and nobody is faster. Otherwise nothing
    /// has happened. Calls nothing, as `push_at_once`.
    #[inline(always)]
    pub fn pop_at_once(&self) -> Option<T> {
        // Acquire: as in `claim`.
        // Survives Acquire -> Relaxed: as in `claim`.
        let head = self.head.claimed.load(Ordering::Acquire);
        let slot = self.slots.get(head)?;
        if head == 0 || !self.is_full(slot) || self.claim_from(head, 1).is_err() {
            return None;
        }
        self.expect_after(head);
        // SAFETY: `FULL` before the CAS, by which it came to be ours: no other consumer has passed by it, for none has claimed it; and its
        // producer takes back only what was passed by.
        Some(slot.value.with(|value| unsafe { (*value).assume_init_read() }))
    }

    /// Asks for the line of a slot that will be taken soon.
    #[inline]
    pub fn expect(&self, index: usize) {
        if let Some(slot) = self.slots.get(index) {
            prefetch(slot);
        }
    }

    /// As `expect`, of what comes after a slot that was taken by itself, if it is known that there is so much: the lines of a producer that is near are
    /// better left to it.
    #[inline]
    pub fn expect_after(&self, index: usize) {
        // Relaxed: a hint.
        if self.head.seen.load(Ordering::Relaxed) > index + Self::AHEAD {
            if index == 0 {
                self.slots.ahead().for_each(prefetch);
            }
            self.expect(index + Self::AHEAD);
        }
    }

    /// C3: takes the item of a slot that the caller has claimed; none if it passes by a producer that is not done.
    #[inline]
    pub fn take(&self, index: usize) -> Option<T> {
        let slot = &self.slots[index];
        // Acquire: pairs with the Release of P5.
        // - it reads `FULL`: the item is there, and ours, for we have not passed by;
        // - it reads a state of an earlier life: the producer is not done, as far as we can see.
        let full = slot.state.load(Ordering::Acquire) == self.now(FULL);
        if full || self.pass(slot) {
            // SAFETY: `FULL`, and claimed by the caller alone, who comes once.
            return Some(slot.value.with(|value| unsafe { (*value).assume_init_read() }));
        }
        None
    }

    /// C3 to C7: whether the item has come, after a while or at the last moment.
    #[cold]
    fn pass(&self, slot: &Slot<T>) -> bool {
        let mut spin = Spin::new();
        while spin.attempts() < PATIENCE {
            spin.once();
            // Acquire: as in `take`.
            // Survives Acquire -> Relaxed: models have no patience, and do not come here; it is the load of C6, which they judge.
            if slot.state.load(Ordering::Acquire) == self.now(FULL) {
                return true;
            }
        }
        // C4. Release: pairs with the Acquire of P7.
        slot.passed.store(self.life, Ordering::Release);
        // C5. This thread may not have had a barrier before.
        barrier::prepare();
        let ordered = barrier::heavy();
        loop {
            // C6. Acquire: as in `take`.
            let state = slot.state.load(Ordering::Acquire);
            if state == self.now(FULL) {
                // C7. Relaxed: the load above has seen the item; on failure the producer has taken it back, and nothing is read.
                let taken = self.now(TAKEN);
                let won = slot.state.compare_exchange(state, taken, Ordering::Relaxed, Ordering::Relaxed);
                return won.is_ok();
            }
            if ordered || state == self.now(BACK) {
                return false;
            }
            // The kernel gives no order any more: the producer need not have seen us, and may leave its item here.
            spin.once();
        }
    }

    /// Reserves nothing any more; `true` if it was used up already, so that the end must be marked at `next`.
    pub fn close(&self) -> bool {
        // Relaxed: as for `reserve`; who must see what came before is told by the pool, not by this word.
        self.tail.fetch_or(CLOSED, Ordering::Relaxed) & !CLOSED == self.slots.len()
    }

    /// Drops what has not been claimed.
    pub fn drop_items(&mut self) {
        // Relaxed: nobody else is here.
        let head = self.head.claimed.load(Ordering::Relaxed);
        let tail = self.tail.load(Ordering::Relaxed) & !CLOSED;
        for slot in &self.slots[head..tail] {
            if slot.state.load(Ordering::Relaxed) == self.now(FULL) {
                // SAFETY: full, and nobody has claimed it.
                drop(slot.value.with(|value| unsafe { (*value).assume_init_read() }));
            }
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    /// It is used until no number is left for another life, and not again.
    #[test]
    fn a_segment_ends_with_its_last_number() {
        let segment = Box::into_raw(Segment::<u8>::new(2));
        let store = Arc::new(Store::new(1));
        // SAFETY: nobody else has it.
        unsafe {
            (*segment).life = u32::MAX - 3 * LIFE + 1;
            for is_used_again in [true, false] {
                Segment::place(segment, 0, Arc::clone(&store));
                assert_eq!((*segment).reset().is_some(), is_used_again);
            }
            assert!((*segment).store.is_none(), "it keeps nobody");
            drop(Box::from_raw(segment));
        }
    }
}
