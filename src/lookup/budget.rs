//! How many slots of a table may still be used, counted strictly and without a line that all threads write.
//!
//! A table must never fill up: chains end in an `EMPTY` slot, and a copy must find room whatever happens. So each
//! insertion *consumes* one unit of allowance before it uses a slot. The allowance is granted by one central word, in
//! batches, to stripes; a thread consumes from its own stripe. The same word of the stripe counts removals.
//!
//! From this follows a bound on what a resize will have to copy, without stopping anybody. Once the centre is closed,
//!
//! ```text
//! items now or ever after  <=  copied in + granted - removed so far
//! ```
//!
//! because each further insertion consumes a unit that has been granted, and a removal is counted after it happened.
//! All is Relaxed: each word is changed by read-modify-writes and stands for itself; a removal that is read late
//! makes the bound larger, which is the safe side.

use crate::sync::{
    CachePadded,
    atomic::Ordering,
    count::{AtomicU64, AtomicUsize},
};

/// The centre's bits: what is left in the low half, what has been granted above, and the top bit once closed.
const CLOSED: u64 = 1 << 63;
const GRANTED: u64 = 1 << 32;
/// A stripe's bits: the allowance in the low half, removals above.
const REMOVED: u64 = 1 << 32;
const LOW: u64 = GRANTED - 1;

/// Tables smaller than this per stripe get fewer stripes: a batch must be small against the table.
const SLOTS_PER_STRIPE: usize = 256;
/// What can be stranded in stripes is at most this part of a table's limit.
const STRANDED_PART: usize = 8;

/// Allowance and counts of one table.
pub(super) struct Budget {
    centre: CachePadded<AtomicU64>,
    stripes: Box<[CachePadded<AtomicU64>]>,
    batch: u64,
    /// Items that came from the table before; an upper bound until that one has been left.
    copied_in: AtomicUsize,
}

/// One consumed unit; gives itself back unless it is used.
pub(super) struct Permit<'a> {
    stripe: &'a AtomicU64,
}

impl Budget {
    /// The budget of a table with `slots` slots, of which `copies` are kept for the table before.
    pub(super) fn new(slots: usize, copies: usize) -> Self {
        let stripes = stripes(slots, crate::sync::parallelism());
        Budget {
            centre: CachePadded::new(AtomicU64::new((limit(slots) - copies) as u64)),
            stripes: (0..stripes).map(|_| CachePadded::new(AtomicU64::new(0))).collect(),
            batch: batch(slots, stripes) as u64,
            copied_in: AtomicUsize::new(copies),
        }
    }

    #[inline]
    fn stripe(&self) -> &AtomicU64 {
        if self.stripes.len() == 1 {
            return &self.stripes[0];
        }
        let spread = (crate::sync::thread_hint() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        &self.stripes[spread as usize & (self.stripes.len() - 1)]
    }

    /// Consumes one unit. `None`: the table is worn out.
    #[inline]
    pub(super) fn consume(&self) -> Option<Permit<'_>> {
        let stripe = self.stripe();
        let mut now = stripe.load(Ordering::Relaxed);
        loop {
            if now & LOW == 0 {
                // The unit that this thread needs never shows up in the stripe: nobody can take it away.
                let granted = self.grant()?;
                if granted > 1 {
                    stripe.fetch_add(granted - 1, Ordering::Relaxed);
                }
                return Some(Permit { stripe });
            }
            match stripe.compare_exchange_weak(now, now - 1, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(Permit { stripe }),
                Err(changed) => now = changed,
            }
        }
    }

    #[cold]
    fn grant(&self) -> Option<u64> {
        let mut now = self.centre.load(Ordering::Relaxed);
        loop {
            let granted = self.batch.min(now & LOW);
            if granted == 0 || now & CLOSED != 0 {
                return None;
            }
            let then = now - granted + granted * GRANTED;
            match self.centre.compare_exchange_weak(now, then, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(granted),
                Err(changed) => now = changed,
            }
        }
    }

    /// Counts one removal that has happened in this table.
    #[inline]
    pub(super) fn removed(&self) {
        self.stripe().fetch_add(REMOVED, Ordering::Relaxed);
    }

    /// Grants nothing from now on, and answers the bound on the items that a resize will have to copy.
    pub(super) fn close(&self) -> usize {
        let centre = self.centre.fetch_or(CLOSED, Ordering::Relaxed);
        let granted = (centre & !CLOSED) / GRANTED;
        let removed: u64 = self.stripes.iter().map(|stripe| stripe.load(Ordering::Relaxed) / REMOVED).sum();
        (self.copied_in.load(Ordering::Relaxed) as u64 + granted - removed) as usize
    }

    /// States how many items came from the table before. Every caller knows the same, final number.
    pub(super) fn set_copied_in(&self, copies: usize) {
        self.copied_in.store(copies, Ordering::Relaxed);
    }

    /// Gives `units` that had been kept for the table before to everyone.
    pub(super) fn refund(&self, units: usize) {
        self.centre.fetch_add(units as u64, Ordering::Relaxed);
    }

    /// At quiescence: how many slots have been used, and how many of those died.
    pub(super) fn used_and_removed(&self) -> (usize, usize) {
        let granted = (self.centre.load(Ordering::Relaxed) & !CLOSED) / GRANTED;
        let (mut left, mut removed) = (0, 0);
        for stripe in &self.stripes {
            let stripe = stripe.load(Ordering::Relaxed);
            left += stripe & LOW;
            removed += stripe / REMOVED;
        }
        let used = self.copied_in.load(Ordering::Relaxed) as u64 + granted - left;
        (used as usize, removed as usize)
    }
}

impl Permit<'_> {
    /// The slot has been used.
    #[inline(always)]
    pub(super) fn spend(self) {
        std::mem::forget(self);
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.stripe.fetch_add(1, Ordering::Relaxed);
    }
}

/// How many slots of a table may be used: three in four, and never all.
pub(super) const fn limit(slots: usize) -> usize {
    slots - slots.div_ceil(4)
}

/// The size of a table in which `items` use at most half of the limit, so that as many more can come.
pub(super) const fn slots_for(items: usize) -> usize {
    let mut slots = 2;
    while limit(slots) < 2 * items {
        slots *= 2;
    }
    slots
}

/// Two stripes in a model, each of which takes two units at a time: enough for an allowance to be left over in one
/// while another thread finds the table worn out.
fn stripes(slots: usize, processors: usize) -> usize {
    if cfg!(any(loom, shuttle)) {
        return 2;
    }
    (2 * processors).next_power_of_two().min(64).min((slots / SLOTS_PER_STRIPE).max(1))
}

/// What a stripe is granted at a time.
fn batch(slots: usize, stripes: usize) -> usize {
    if cfg!(any(loom, shuttle)) { 2 } else { (limit(slots) / (stripes * STRANDED_PART)).max(1) }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn grants_exactly_the_limit() {
        for slots in [2, 4, 8, 256, 1 << 14] {
            let budget = Budget::new(slots, 0);
            let mut consumed = 0;
            while let Some(permit) = budget.consume() {
                permit.spend();
                consumed += 1;
            }
            // One thread sees its own stripe only, and drains it fully.
            assert_eq!(consumed, limit(slots));
            assert!(consumed < slots);
            assert_eq!(budget.close(), consumed);
        }
    }

    #[test]
    fn a_table_is_the_smallest_that_leaves_room_for_as_many_again() {
        for items in 0..2_000 {
            let slots = slots_for(items);
            assert!(slots.is_power_of_two() && limit(slots) >= 2 * items, "{slots} slots for {items}");
            assert!(slots == 2 || limit(slots / 2) < 2 * items, "{slots} slots for {items}");
        }
    }

    #[test]
    fn stripes_are_two_a_processor_as_far_as_the_table_is_large_enough() {
        for bits in 1..=31 {
            let slots = 1 << bits;
            for processors in [1, 2, 3, 5, 8, 31, 1_000] {
                let count = stripes(slots, processors);
                assert!(count.is_power_of_two(), "a hash is cut to it by a mask");
                assert!(count <= 64 && count < 4 * processors);
                assert!(count == 1 || slots / count >= SLOTS_PER_STRIPE);
                assert!(slots < 64 * SLOTS_PER_STRIPE || count >= (2 * processors).min(64));
                // What is stranded when all stripes but one are never used again: little, but no less than is allowed.
                let most = limit(slots) / STRANDED_PART;
                let batch = batch(slots, count);
                assert!(batch == 1 || batch * count <= most, "{batch} of {slots} in {count} stripes");
                assert!((batch + 1) * count > most, "{batch} of {slots} in {count} stripes");
            }
        }
    }

    #[test]
    fn an_unused_permit_comes_back() {
        let budget = Budget::new(2, 0);
        drop(budget.consume().expect("one slot may be used"));
        let permit = budget.consume().expect("it came back");
        assert!(budget.consume().is_none());
        permit.spend();
        budget.removed();
        assert_eq!(budget.used_and_removed(), (1, 1));
        assert_eq!(budget.close(), 0);
    }

    #[test]
    fn room_for_copies_is_kept_and_refunded() {
        let slots = slots_for(3);
        assert_eq!((slots, limit(slots)), (8, 6));
        let budget = Budget::new(slots, 3);
        for _ in 0..3 {
            budget.consume().expect("half is free").spend();
        }
        assert!(budget.consume().is_none());
        budget.set_copied_in(2);
        budget.refund(1);
        budget.consume().expect("refunded").spend();
        assert!(budget.consume().is_none());
        assert_eq!(budget.close(), 6);
    }
}
