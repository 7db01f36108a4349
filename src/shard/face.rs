//! What a shard shows to those who do not hold its lock.
//!
//! All words are written under the shard's lock by plain stores, and read by anyone. Each is true at some moment; for
//! several that are true at *one* moment, readers use the seqlock:
//!
//! ```text
//! writer (holds the lock)                      reader
//!   F1  sequence := odd; fence(Release)          R1  load sequence (Acquire); odd: a change is going on
//!   F2  the state word's CAS                     R2  load words (Relaxed)
//!   F3  words := ... (note)                      R3  fence(Acquire)
//!   F4  sequence := even (Release)               R4  load sequence (Relaxed); same as R1: R2 saw one moment
//! ```
//!
//! F1's fence comes before every CAS of a state word and every swap of a value, so it orders whatever was written before the
//! critical section for whoever reads them with Acquire. Their own Release orders what is written after it: the content number.
//!
//! Note: Relaxed, but for the pointers and the batch number, which peeks read by themselves: those are Release.
//!
//! F1 comes before F2 and F3 for everyone who sees their effect. So if R4 still reads the number of R1, no state word of
//! this shard changed between the two: the honest "none" of an acquire rests on that.

use std::ptr;

use crate::{
    events::EventKind,
    node::{Node, Standing},
    resource::Resource,
    sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence},
};

/// What is counted in each shard. Exact: counted under the lock, where the transition happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Count {
    Inserted,
    Removed,
    Evicted,
    Cooled,
    Warmed,
    Ejected,
    Readmitted,
    Drained,
    Undrained,
    Succeeded,
    Failed,
    RateLimited,
    Cancelled,
    Revoked,
    Excluded,
    Included,
    Updated,
    /// Insertions and updates, each counted before its CAS: see [`Face::content`].
    Content,
    // The last two are on the line of the standings.
    Lent,
    Returned,
}

impl Count {
    /// How many kinds there are.
    pub const KINDS: usize = 20;

    /// The event that tells of it.
    pub(super) const fn event(self) -> Option<EventKind> {
        Some(match self {
            Count::Inserted => EventKind::Inserted,
            Count::Updated => EventKind::Updated,
            Count::Removed => EventKind::Removed,
            Count::Evicted => EventKind::Evicted,
            Count::Lent => EventKind::Acquired,
            Count::Returned => EventKind::Released,
            Count::Excluded => EventKind::Excluded,
            Count::Included => EventKind::Included,
            Count::Cooled => EventKind::Cooled,
            Count::Warmed => EventKind::Warmed,
            Count::Ejected => EventKind::Ejected,
            Count::Readmitted => EventKind::Readmitted,
            Count::Drained => EventKind::Drained,
            Count::Undrained => EventKind::Undrained,
            _ => return None,
        })
    }
}

/// The published words of one shard.
///
/// In this order, and with the lock right behind (`Shard`), an acquisition and a return write two lines of it: from the last two counts to
/// `spare`, and from `sequence` to the lock and what it guards first. An update writes the second of these, and the line that ends with the
/// counts before the last two.
#[repr(C)]
pub struct Face<R: Resource> {
    /// Nothing: with it the last two counts begin a line.
    _room: u64,
    // What changes seldom.
    earliest: AtomicU64,
    first_due: AtomicPtr<Node<R>>,
    staged_rank: AtomicU64,
    staged_best: AtomicPtr<Node<R>>,
    staged: AtomicU32,
    slots: AtomicU32,
    counts: [AtomicU64; Count::KINDS],
    // What every change of a standing writes.
    standings: [AtomicU32; Standing::COUNT],
    /// Free units of eligible resources beside the first of each: exclusive ones have none.
    spare: AtomicU64,
    /// Nothing: with it `sequence` begins a line.
    _more_room: u64,
    // What every critical section writes, and others read to choose a shard.
    sequence: AtomicU64,
    best_rank: AtomicU64,
    best: AtomicPtr<Node<R>>,
}

/// What waits to be absorbed: batch 0 for nothing.
pub struct Staged<R: Resource> {
    pub batch: u32,
    pub rank: u64,
    pub best: *mut Node<R>,
}

/// The earliest deadline, and whose it is.
pub type Due<R> = (u64, *mut Node<R>);

/// "No deadline": later than every moment.
pub const NEVER: u64 = u64::MAX;

impl<R: Resource> Face<R> {
    pub fn new() -> Self {
        Face {
            _room: 0,
            _more_room: 0,
            sequence: AtomicU64::new(0),
            best_rank: AtomicU64::new(u64::MAX),
            best: AtomicPtr::new(ptr::null_mut()),
            earliest: AtomicU64::new(NEVER),
            spare: AtomicU64::new(0),
            staged: AtomicU32::new(0),
            staged_rank: AtomicU64::new(u64::MAX),
            staged_best: AtomicPtr::new(ptr::null_mut()),
            first_due: AtomicPtr::new(ptr::null_mut()),
            slots: AtomicU32::new(0),
            standings: std::array::from_fn(|_| AtomicU32::new(0)),
            counts: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    // Readers. Relaxed throughout: each word is a hint or is validated by the sequence (R2).

    /// The rank of the best resource in the ready heap, or `None` if there is none.
    #[inline]
    pub fn best_rank(&self) -> Option<u64> {
        // On one line with the rank, where the count is on another. A null is compared, never followed.
        let is_none = self.best.load(Ordering::Relaxed).is_null();
        if is_none { None } else { Some(self.best_rank.load(Ordering::Relaxed)) }
    }

    /// The same; the worst of ranks if there is none.
    #[inline(always)]
    pub fn best_rank_or_last(&self) -> u64 {
        self.best_rank.load(Ordering::Relaxed)
    }

    /// Where the best eligible resource is published; null if there is none. Load it through a guard, with Acquire.
    #[inline]
    pub fn best(&self) -> &AtomicPtr<Node<R>> {
        &self.best
    }

    /// The resource whose deadline is the earliest, published like `best`; null if nothing cools by itself.
    pub fn first_due(&self) -> &AtomicPtr<Node<R>> {
        &self.first_due
    }

    /// The earliest cooling deadline of a resource that nothing else holds back; [`NEVER`] if there is none.
    #[inline]
    pub fn earliest(&self) -> u64 {
        self.earliest.load(Ordering::Relaxed)
    }

    /// Free units of capacity over all eligible resources.
    #[inline]
    pub fn available(&self) -> u64 {
        u64::from(self.standing(Standing::Eligible)) + self.spare.load(Ordering::Relaxed)
    }

    /// The batch of which a part waits here to be absorbed; 0 if none does.
    #[inline]
    pub fn staged(&self) -> u32 {
        // Acquire: pairs with the Release in `end_write`: who sees that nothing is left here sees the ready heap's best.
        self.staged.load(Ordering::Acquire)
    }

    /// The rank of the best of that part.
    pub fn staged_rank(&self) -> u64 {
        self.staged_rank.load(Ordering::Relaxed)
    }

    /// The best of that part, published like `best`.
    pub fn staged_best(&self) -> &AtomicPtr<Node<R>> {
        &self.staged_best
    }

    /// Slots up to the last that a member has had: what was refused does not count. Only grows.
    pub fn slots(&self) -> u32 {
        self.slots.load(Ordering::Relaxed)
    }

    /// Grows before a resource is admitted or its value is replaced: before the word's CAS.
    pub fn content(&self) -> u64 {
        // Relaxed: whatever told us of that CAS's effect was read with Acquire and published after this number, so we read it
        // or a later one. If we read an older one, nothing that we have seen comes after that CAS.
        self.count(Count::Content)
    }

    /// How many resources stand there.
    #[inline]
    pub fn standing(&self, standing: Standing) -> u32 {
        self.standings[standing as usize].load(Ordering::Relaxed)
    }

    /// Visible members: everything but the staged and the removed.
    pub fn members(&self) -> u64 {
        (0..Standing::Staged as usize).map(|i| u64::from(self.standings[i].load(Ordering::Relaxed))).sum()
    }

    /// How often something happened here.
    pub fn count(&self, count: Count) -> u64 {
        self.counts[count as usize].load(Ordering::Relaxed)
    }

    /// R1: the sequence if no change is going on.
    #[inline]
    pub fn begin_read(&self) -> Option<u64> {
        // Acquire: pairs with the Release of F4.
        // - it reads that store: the words of R2 are at least as new;
        // - it reads an older one: R4 will see a newer number, or the words are of the older moment.
        let sequence = self.sequence.load(Ordering::Acquire);
        sequence.is_multiple_of(2).then_some(sequence)
    }

    /// R3 and R4: the sequence now, ordered after the words read before. Compare with the one of R1.
    #[inline]
    pub fn end_read(&self) -> u64 {
        // Acquire fence: pairs with the Release fence of F1.
        // - a word of R2 came from a change that began after R1: the load below sees that change's odd number;
        // - none did: the words are those of R1's moment.
        fence(Ordering::Acquire);
        self.sequence.load(Ordering::Relaxed)
    }

    // Writers: the holder of the lock. Relaxed: loads read the holder's own or earlier holders' stores; stores are ordered
    // by F1's fence and F4.

    /// F1.
    #[inline]
    pub(super) fn begin_write(&self) {
        let sequence = self.sequence.load(Ordering::Relaxed);
        debug_assert!(sequence.is_multiple_of(2), "the lock's holder writes once at a time");
        self.sequence.store(sequence + 1, Ordering::Relaxed);
        // Release fence: pairs with the Acquire fence of R3; outcomes there.
        fence(Ordering::Release);
    }

    /// F3 and F4. What has not changed need not be said again.
    #[inline(always)]
    pub(super) fn end_write(&self, best_rank: u64, best: *mut Node<R>, more: Option<(Due<R>, Staged<R>)>) {
        self.best_rank.store(best_rank, Ordering::Relaxed);
        // Release: pairs with the Acquire of a peek. It sees a node: the node is complete.
        self.best.store(best, Ordering::Release);
        if let Some(((earliest, first_due), Staged { batch, rank, best })) = more {
            self.earliest.store(earliest, Ordering::Relaxed);
            // Release, after `best`: a peek that sees a node gone from here finds it there.
            self.first_due.store(first_due, Ordering::Release);
            self.staged_rank.store(rank, Ordering::Relaxed);
            // Release: as for `first_due`.
            self.staged_best.store(best, Ordering::Release);
            self.staged.store(batch, Ordering::Release);
        }
        let sequence = self.sequence.load(Ordering::Relaxed);
        // Release: pairs with R1; outcomes there.
        self.sequence.store(sequence + 1, Ordering::Release);
    }

    pub(super) fn raise_slots(&self, slots: u32) {
        self.slots.store(self.slots().max(slots), Ordering::Relaxed);
    }

    /// To be called before the CAS, whose Release orders it.
    pub(super) fn touch_content(&self) {
        self.tally(Count::Content);
    }

    #[inline]
    pub(super) fn tally(&self, count: Count) {
        let cell = &self.counts[count as usize];
        cell.store(cell.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn shift(&self, from: Standing, to: Standing) {
        self.add_standing(from, u32::MAX);
        self.add_standing(to, 1);
    }

    #[inline]
    pub(super) fn add_standing(&self, standing: Standing, difference: u32) {
        let cell = &self.standings[standing as usize];
        cell.store(cell.load(Ordering::Relaxed).wrapping_add(difference), Ordering::Relaxed);
    }

    /// A resource had so many units [to spare](Face), and has now so many.
    #[inline]
    pub(super) fn change_spare(&self, before: u32, after: u32) {
        if before != after {
            let spare = self.spare.load(Ordering::Relaxed) + u64::from(after) - u64::from(before);
            self.spare.store(spare, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
