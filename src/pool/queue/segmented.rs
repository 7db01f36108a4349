//! A lock-free queue of many producers and many consumers: a list of segments, first in, first out.
//!
//! ```text
//!          head                                   tail
//!           |                                      |
//!           v                                      v
//!     +-----------+   next   +-----------+   next   +-----------+   next
//!     | ######### | -------> | ######### | -------> | ####..... | -------> null, or the end mark
//!     +-----------+          +-----------+          +-----------+
//!        claimed up to `head`, reserved up to `tail`: an index each, in every segment
//! ```
//!
//! # States of a slot
//!
//! | from | to | by | meaning |
//! |---|---|---|---|
//! | empty | `FULL` | its producer (P5) | the item is there, and its consumer's |
//! | `FULL` | `TAKEN` | its consumer, after it has said that it passes by (C7) | the item is the consumer's all the same |
//! | `FULL` | `BACK` | its producer, after the consumer has said so (P8) | the item is the producer's again, which tries another slot |
//!
//! A slot has one producer, by the index that it reserved, and one consumer, by the index that it claimed; each slot is used once
//! in each life of its segment. A state carries the number of the life; one of an earlier life is empty. Beside the state is a second
//! word, `passed`, in which a consumer says that it goes on without the item.
//!
//! # Steps
//!
//! ```text
//!   push                                          pop
//!     P1  pin; the segment at `tail`                C1  pin; the segment at `head`
//!     P2  used up: append a segment if none           used up: the segment after it; help `tail` over it,
//!         follows (CAS next), help `tail`, P1              CAS head, retire the old one, C1
//!     P3  CAS the segment's tail: slots reserved    C2  CAS the segment's head: slots claimed
//!     P4  write the item                            C3  FULL: take the item. Empty: wait a little, then
//!     P5  state := FULL                             C4  passed := this life
//!     P6  light barrier                             C5  heavy barrier
//!     P7  passed? no: done                          C6  still empty: go on, the item is the producer's
//!     P8  CAS FULL -> BACK: take the item back, P1  C7  CAS FULL -> TAKEN: take the item; BACK: go on
//!   close: set CLOSED in the last segment's tail; if that was used up, CAS its `next` from null to the end mark; if
//!          another one follows already, the same there
//! ```
//!
//! **One of both gets the item.** P6 and C5 are a full fence on both sides (`sync::barrier`): either P7 sees that the consumer passes by,
//! or C6 sees the item, or both. If both, a CAS decides; if only P7, P8 meets nobody; if only C6, C7 meets nobody. So a push
//! costs one read-modify-write, that of P3, and the price of a producer that is late, a system call, is paid by whoever passes it by.
//!
//! A pop that has claimed slots and found every producer of them missing starts again.
//!
//! **At once, or patiently.** A push or a pop of one item takes these steps once and in a row first, without a loop and without a call: nobody
//! is faster at the CAS, nobody passes by, the segment goes on. Where it is otherwise nothing has happened but, at most, an item that came back at P8,
//! and the same steps are taken from the beginning, out of line, as often as needed. A locked instruction waits for all stores before it, the
//! saving of registers among them, so that what a call costs comes on top of it: the usual way should have none.
//!
//! **A stalled producer** holds up nobody: what it has reserved is passed by, and what was pushed after it comes out. A stalled
//! consumer holds up what it has claimed, and nothing else.
//!
//! **First in, first out.** An item that is taken was pushed at the CAS of P3 of the slot where it was found, and popped at
//! that of C2: indices are handed out in order, and a slot that was passed by contains nothing. What one call pushes or pops at
//! once is pushed and popped one after another, in order, others in between.
//!
//! **Never more than the capacity.** P3 reads how far consumers are, `head`, before its CAS; `head` only grows. So after the CAS the
//! difference is at most the capacity. The number that is read may be an earlier one, kept in `consumed`; before a push is refused
//! it is read anew. It is refused at a moment at which the queue was full: `tail` was read before `head`, and only grows too.
//!
//! **A single pop does not ask producers.** C2 need not read tail if it wants one item and the slot at head is `FULL`: then it is reserved. So a
//! consumer that keeps up with a producer meets it in the item's line only. At the first slot of a segment it asks all the same, for it may be far behind.
//! C3 need not look again then: a producer takes back only what was passed by, and nobody passes by a slot that he has not claimed.
//!
//! **Empty at some moment.** Otherwise C2 reads head, then tail, of a segment that is not used up. If they are equal then, they were when
//! tail was read: head had not become more, since it is never more than tail.
//!
//! **Closed.** A slot is reserved before CLOSED is set in its segment, or not at all; and a segment is appended before the end mark, or
//! not at all. So after `close` returns the set of reserved slots is fixed.
//!
//! **Memory.** `tail` never points to a segment before `head`: C1 helps it first. So after the CAS of C1 the old segment is
//! reachable by nobody who pins later, and is retired through the guard (rule 2 of `lookup::reclaim`); producers and consumers that are
//! still at work in it have pinned earlier. The reclaimer resets it and puts it into the store, from which P2 takes: that a
//! segment is used again while somebody still sees its old life is as impossible as that it were freed. What loses the race of
//! P2 goes the same way.
//!
//! The indices handed out by one word each, and consumers that overtake producers by spoiling their slots, are the idea of P. Ramalhete
//! and A. Correia's `FAAArrayQueue` (2016), after A. Morrison and Y. Afek's LCRQ (2013); the list of segments is that of M. Michael
//! and M. Scott's queue (1996).

use std::{collections::VecDeque, fmt};

use super::{
    JobPriority, JobQueue, PushError, Refusal,
    recycle::Store,
    segment::{Claimed, Reserved, Segment},
};
use crate::{
    lookup::{DefaultReclaim, Guard, Reclaim},
    sync::{
        Arc, CachePadded,
        atomic::{AtomicPtr, AtomicU64, Ordering},
    },
};

/// Slots in a segment, unless another number is asked for.
pub const SEGMENT_SLOTS: usize = 64;

/// Bytes of slots that are kept to be used again, at most. The reclaimer gives segments back 128 at a time, of each thread; a burst that has
/// gone should not be paid for again by the next one, and large items should not keep a multiple of it.
const KEPT: usize = 16 << 20;

/// A lock-free queue of many producers and many consumers, first in, first out.
///
/// *Progress:* lock-free. A producer that stalls in the middle of a push delays its own item only; a consumer that stalls
/// delays what it has claimed. A consumer waits for up to some microseconds for a producer whose slot it has come to, then goes on
/// without it, for the price of a system call (on Linux). If a sandbox forbids that call, `membarrier`, which it allowed before, a consumer
/// waits for such a producer instead.
///
/// *Ordering:* what happened before a push happens before what follows the pop of that item.
///
/// *Complexity:* O(1) for each item, with one read-modify-write for each push or batch of them, and one for each pop or batch. Allocates a segment now and then; once so many segments are in use as the threads need, none: segments
/// are used again, and up to 16 MiB of them are kept.
///
/// ```
/// use leasehold::pool::{JobPriority, JobQueue, Refusal, SegmentedQueue};
/// use std::collections::VecDeque;
///
/// let queue = SegmentedQueue::bounded(2);
/// let any = JobPriority::NORMAL;
/// queue.push("a", any)?;
/// queue.push("b", any)?;
/// let refused = queue.push("c", any).unwrap_err();
/// assert_eq!((refused.item, refused.reason), ("c", Refusal::Full));
///
/// let mut batch = VecDeque::new();
/// assert_eq!(queue.pop_many(10, &mut batch), 2);
/// assert_eq!(batch, ["a", "b"]);
/// # Ok::<(), leasehold::pool::PushError<&str>>(())
/// ```
pub struct SegmentedQueue<T: Send + 'static, G: Reclaim = DefaultReclaim> {
    head: CachePadded<AtomicPtr<Segment<T>>>,
    tail: CachePadded<Tail<T>>,
    limit: u64,
    slots: usize,
    store: Arc<Store<T>>,
    reclaim: G,
}

struct Tail<T> {
    segment: AtomicPtr<Segment<T>>,
    /// How far consumers were when a producer looked last.
    consumed: AtomicU64,
}

impl<T: Send + 'static> SegmentedQueue<T> {
    /// A queue that takes up to `capacity` items at once (at least one).
    pub fn bounded(capacity: usize) -> Self {
        Self::with(capacity.max(1) as u64, SEGMENT_SLOTS)
    }

    /// A queue that takes as many items as there is memory for.
    pub fn unbounded() -> Self {
        Self::with(u64::MAX, SEGMENT_SLOTS)
    }
}

impl<T: Send + 'static, G: Reclaim> SegmentedQueue<T, G> {
    /// As [`bounded`](SegmentedQueue::bounded) or, with `u64::MAX`, [`unbounded`](SegmentedQueue::unbounded), with segments of `slots`
    /// slots (at least one). More slots are fewer segments to be linked and retired, and more memory while there is little in the queue.
    pub fn with(limit: u64, slots: usize) -> Self {
        let slots = slots.max(1);
        let store = Arc::new(Store::new((KEPT / Segment::<T>::bytes(slots)).max(1)));
        let first = Box::into_raw(Segment::new(slots));
        // SAFETY: nobody else knows it.
        unsafe { Segment::place(first, 0, Arc::clone(&store)) };
        SegmentedQueue {
            head: CachePadded::new(AtomicPtr::new(first)),
            tail: CachePadded::new(Tail { segment: AtomicPtr::new(first), consumed: AtomicU64::new(0) }),
            limit: limit.max(1),
            slots,
            store,
            reclaim: G::new(),
        }
    }

    /// A segment that a guard keeps alive.
    ///
    /// # Safety
    /// `pointer` was read through `guard`, or is what follows such a one, and is neither null nor the end mark.
    unsafe fn follow<'g>(guard: &'g G::Guard<'_>, pointer: *mut Segment<T>) -> &'g Segment<T> {
        guard.touch(pointer);
        // SAFETY: the module's argument: it was not retired when the guard was made.
        unsafe { &*pointer }
    }

    /// P1. Acquire: pairs with the Release of the CAS that put it there: its contents.
    #[inline]
    fn last<'g>(&self, guard: &'g G::Guard<'_>) -> &'g Segment<T> {
        // SAFETY: `tail` is never null, nor the end mark.
        unsafe { Self::follow(guard, guard.protect(&self.tail.segment, Ordering::Acquire)) }
    }

    /// C1. Acquire: as `last`.
    #[inline]
    fn first<'g>(&self, guard: &'g G::Guard<'_>) -> &'g Segment<T> {
        // Acquire: pairs with the Release in `advance`.
        // Survives Acquire -> Relaxed: a consumer that comes to a segment by `head` alone, without having followed `next`, is a third
        // thread beside the one that appended it and the one that advanced; the models with three are cut short before they find it.
        let first = guard.protect(&self.head, Ordering::Acquire);
        // SAFETY: as `last`.
        unsafe { Self::follow(guard, first) }
    }

    /// For how many items there is room beyond `position`.
    #[inline]
    fn room(&self, position: u64, guard: &G::Guard<'_>) -> usize {
        if self.limit == u64::MAX {
            return usize::MAX;
        }
        // Relaxed: a number that only grows; an old one makes the queue look fuller, and is read anew then.
        let mut consumed = self.tail.consumed.load(Ordering::Relaxed);
        if position.wrapping_sub(consumed) >= self.limit || position < consumed {
            consumed = self.first(guard).head_position();
            self.tail.consumed.store(consumed, Ordering::Relaxed);
        }
        // A position of the past, from before what has been consumed since: the CAS will fail.
        let used = position.saturating_sub(consumed);
        usize::try_from(self.limit.saturating_sub(used)).unwrap_or(usize::MAX)
    }

    /// P2: makes sure that something follows, and moves `tail` there.
    #[cold]
    fn append(&self, used_up: &Segment<T>, guard: &G::Guard<'_>) -> Result<(), Refusal> {
        // Acquire: pairs with the Release of the CAS below, on failure too: the next segment's contents.
        let mut next = used_up.next.load(Ordering::Acquire);
        if next.is_null() {
            let fresh = self.store.take(guard).unwrap_or_else(|| Box::into_raw(Segment::new(self.slots)));
            // SAFETY: it is ours until the CAS below.
            unsafe { Segment::place(fresh, used_up.end_position(), Arc::clone(&self.store)) };
            let null = std::ptr::null_mut();
            match used_up.next.compare_exchange(null, fresh, Ordering::Release, Ordering::Acquire) {
                Ok(_) => next = fresh,
                Err(found) => {
                    // SAFETY: it was never reachable; nobody else knows it. Through the reclaimer, for it may have come from the
                    // store, and must not go back there while somebody believes to know what was below it.
                    unsafe { guard.retire_owner(fresh, Segment::<T>::bytes(self.slots), Store::put) };
                    next = found;
                }
            }
        }
        if next == Segment::end() {
            return Err(Refusal::Closed);
        }
        self.help(used_up, next);
        Ok(())
    }

    /// Moves `tail` from a segment to the next one, unless somebody has.
    fn help(&self, used_up: &Segment<T>, next: *mut Segment<T>) {
        // Release: pairs with the Acquire of P1. Relaxed on failure: it is not followed. A failure means that `tail` is beyond: it was
        // at this segment, at least, when we came to know it, and only moves on.
        let used_up = std::ptr::from_ref(used_up).cast_mut();
        let _ = self.tail.segment.compare_exchange(used_up, next, Ordering::Release, Ordering::Relaxed);
    }

    /// C1, where the first segment is used up. Whether there is another one.
    #[cold]
    fn advance(&self, used_up: &Segment<T>, guard: &G::Guard<'_>) -> bool {
        // Acquire: pairs with the Release of P2: the segment's contents, which `head` passes on.
        let next = used_up.next.load(Ordering::Acquire);
        if next.is_null() || next == Segment::end() {
            return false;
        }
        self.help(used_up, next);
        let old = std::ptr::from_ref(used_up).cast_mut();
        // Release: pairs with the Acquire of C1: the next segment's contents, and that `tail` has left the old one.
        // Survives Release -> Relaxed: as in `first`.
        if self.head.compare_exchange(old, next, Ordering::Release, Ordering::Relaxed).is_ok() {
            // SAFETY: neither `head` nor `tail` leads to it any more, and only the winner of the CAS comes here. Its slots are all
            // claimed; who has claimed or reserved one and is not done holds a guard.
            unsafe { guard.retire_owner(old, Segment::<T>::bytes(self.slots), Store::put) };
        }
        true
    }

    /// P1 to P8 for one item; it comes back if it is refused.
    #[inline(always)]
    pub(in crate::pool) fn push_one(&self, item: T) -> Result<(), PushError<T>> {
        let guard = self.reclaim.pin();
        // Relaxed: as in `room`, which is asked if there seems to be none. That of a queue without a limit is never written.
        let has_room =
            |position: u64| position.wrapping_sub(self.tail.consumed.load(Ordering::Relaxed)) < self.limit;
        match self.last(&guard).push_at_once(item, has_room) {
            Ok(()) => Ok(()),
            Err(item) => self.push_patiently(item, &guard),
        }
    }

    /// As `push_one`, whatever comes between.
    #[cold]
    #[inline(never)]
    fn push_patiently(&self, mut item: T, guard: &G::Guard<'_>) -> Result<(), PushError<T>> {
        loop {
            let segment = self.last(guard);
            match segment.reserve(1, |position| self.room(position, guard)) {
                Reserved::Slots(index, _) => match segment.publish(index, item) {
                    Ok(()) => return Ok(()),
                    Err(back) => item = back,
                },
                Reserved::UsedUp => {
                    if let Err(reason) = self.append(segment, guard) {
                        return Err(PushError { item, reason });
                    }
                }
                Reserved::Refused(reason) => return Err(PushError { item, reason }),
            }
        }
    }

    /// P1 to P8 for as many items as there are. What is refused stays in `items`.
    fn push_all(&self, items: &mut VecDeque<T>) -> Result<(), Refusal> {
        let guard = self.reclaim.pin();
        while !items.is_empty() {
            let segment = self.last(&guard);
            match segment.reserve(items.len(), |position| self.room(position, &guard)) {
                Reserved::Slots(from, count) => {
                    for index in from..from + count {
                        let Some(item) = items.pop_front() else { break };
                        if let Err(item) = segment.publish(index, item) {
                            // Into the next slot, so that the order is kept.
                            items.push_front(item);
                        }
                    }
                }
                Reserved::UsedUp => self.append(segment, &guard)?,
                Reserved::Refused(reason) => return Err(reason),
            }
        }
        Ok(())
    }

    /// Takes one item out; none if the queue was empty at some moment of this call. Lock-free.
    #[inline(always)]
    pub fn pop(&self) -> Option<T> {
        let guard = self.reclaim.pin();
        match self.first(&guard).pop_at_once() {
            None => self.pop_patiently(&guard),
            item => item,
        }
    }

    /// As `pop`, whatever comes between.
    #[cold]
    #[inline(never)]
    fn pop_patiently(&self, guard: &G::Guard<'_>) -> Option<T> {
        loop {
            let segment = self.first(guard);
            match segment.claim(1) {
                Claimed::Slots(index, _) => {
                    segment.expect_after(index);
                    let item = segment.take(index);
                    if item.is_some() {
                        return item;
                    }
                }
                Claimed::Nothing => return None,
                Claimed::UsedUp => {
                    if !self.advance(segment, guard) {
                        return None;
                    }
                }
            }
        }
    }

    /// A section in which sections of the same thread nest: until it ends, none of them ends by freeing anything.
    #[inline]
    pub(in crate::pool) fn section(&self) -> G::Guard<'_> {
        self.reclaim.pin()
    }

    /// C1 to C7: at most `max` items are given to `into`, which must not panic; answers how many.
    #[inline]
    pub(in crate::pool) fn pop_into(&self, max: usize, mut into: impl FnMut(T)) -> usize {
        if max == 0 {
            return 0;
        }
        if max == 1 {
            // There is less to be done for one.
            let Some(item) = self.pop() else { return 0 };
            into(item);
            return 1;
        }
        let guard = self.reclaim.pin();
        let mut taken = 0;
        loop {
            let segment = self.first(&guard);
            match segment.claim(max) {
                Claimed::Slots(from, count) => {
                    let end = from + count;
                    (from..end.min(from + Segment::<T>::AHEAD)).for_each(|index| segment.expect(index));
                    for index in from..end {
                        if index + Segment::<T>::AHEAD < end {
                            segment.expect(index + Segment::<T>::AHEAD);
                        }
                        if let Some(item) = segment.take(index) {
                            into(item);
                            taken += 1;
                        }
                    }
                    if taken > 0 {
                        return taken;
                    }
                }
                Claimed::Nothing => return 0,
                Claimed::UsedUp => {
                    if !self.advance(segment, &guard) {
                        return 0;
                    }
                }
            }
        }
    }
}

impl<T: Send + 'static, G: Reclaim> JobQueue<T> for SegmentedQueue<T, G> {
    #[inline(always)]
    fn push(&self, item: T, _priority: JobPriority) -> Result<(), PushError<T>> {
        self.push_one(item)
    }

    fn push_many(&self, items: &mut VecDeque<T>, _priority: JobPriority) -> Result<(), Refusal> {
        self.push_all(items)
    }

    #[inline]
    fn pop_many(&self, max: usize, into: &mut VecDeque<T>) -> usize {
        self.pop_into(max, |item| into.push_back(item))
    }

    fn len(&self) -> usize {
        let guard = self.reclaim.pin();
        let (last, first) = (self.last(&guard).tail_position(), self.first(&guard).head_position());
        usize::try_from(last.saturating_sub(first)).unwrap_or(usize::MAX)
    }

    fn capacity(&self) -> Option<usize> {
        (self.limit != u64::MAX).then(|| usize::try_from(self.limit).unwrap_or(usize::MAX))
    }

    fn passed(&self) -> u64 {
        self.first(&self.reclaim.pin()).head_position()
    }

    fn close(&self) {
        let guard = self.reclaim.pin();
        let mut segment = self.last(&guard);
        while segment.close() {
            // Relaxed: nothing is published. Acquire on failure: pairs with the Release of P2.
            let null = std::ptr::null_mut();
            match segment.next.compare_exchange(null, Segment::end(), Ordering::Relaxed, Ordering::Acquire) {
                Ok(_) => return,
                Err(found) if found == Segment::end() => return,
                // SAFETY: linked after one that the guard keeps, so not retired before it.
                Err(found) => segment = unsafe { Self::follow(&guard, found) },
            }
        }
    }
}

impl<T: Send + 'static, G: Reclaim> fmt::Debug for SegmentedQueue<T, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SegmentedQueue")
            .field("len", &self.len())
            .field("capacity", &self.capacity())
            .finish_non_exhaustive()
    }
}

impl<T: Send + 'static, G: Reclaim> Drop for SegmentedQueue<T, G> {
    fn drop(&mut self) {
        // Relaxed: nobody else is here.
        let mut next = self.head.load(Ordering::Relaxed);
        while !next.is_null() && next != Segment::end() {
            // SAFETY: what can be reached from `head` was never retired, and `&mut self` rules out that anybody is at work in it.
            let mut segment = unsafe { Box::from_raw(next) };
            next = segment.next.load(Ordering::Relaxed);
            segment.drop_items();
        }
    }
}
