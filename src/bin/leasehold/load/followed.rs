//! A sample of delays: how many strictly worse resources are lent while one can be had.
//!
//! One resource at a time is followed. A lease that is sampled names it; it is *back* when that lease, or another one on it, is
//! returned; from then on each lending of a worse one counts, and its own lending ends the sample. Steps are changes of one word, so of
//! several threads one does each; what is counted beside a step may be one more or less.

use std::sync::atomic::{AtomicU64, Ordering};

/// So many samples later one that has not ended is given up, so that a resource which is never lent does not stay for ever.
const PATIENCE: u64 = 64;

/// Nothing is followed. Otherwise the resource's number, and beside it whether it is back.
const NOTHING: u64 = u64::MAX;
const BACK: u64 = 1 << 32;

pub struct Followed {
    /// Relaxed, as all here: it is a sample.
    what: AtomicU64,
    worse: AtomicU64,
    /// Samples that could not begin since this one did.
    behind: AtomicU64,
    unfinished: AtomicU64,
}

impl Followed {
    pub fn new() -> Self {
        Followed {
            what: AtomicU64::new(NOTHING),
            worse: AtomicU64::new(0),
            behind: AtomicU64::new(0),
            unfinished: AtomicU64::new(0),
        }
    }

    fn step(&self, from: u64, to: u64) -> bool {
        self.what.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// A sampled lease is on this resource.
    pub fn begin(&self, index: u32) {
        let what = self.what.load(Ordering::Relaxed);
        if what == NOTHING {
            self.behind.store(0, Ordering::Relaxed);
            self.step(NOTHING, u64::from(index));
        } else if self.behind.fetch_add(1, Ordering::Relaxed) + 1 >= PATIENCE {
            self.discard(what);
        }
    }

    /// A lease on it is about to be returned.
    pub fn back(&self, index: u32) {
        if self.what.load(Ordering::Relaxed) == u64::from(index) {
            self.worse.store(0, Ordering::Relaxed);
            self.step(u64::from(index), u64::from(index) | BACK);
        }
    }

    /// The resource that is back, if one is followed that is.
    pub fn waits(&self) -> Option<u32> {
        let what = self.what.load(Ordering::Relaxed);
        (what != NOTHING && what & BACK != 0).then_some(what as u32)
    }

    /// How many worse ones have been lent by now of the one that is back, if there is one.
    pub fn so_far(&self) -> u64 {
        self.waits().map_or(0, |_| self.worse.load(Ordering::Relaxed))
    }

    /// A worse one was lent.
    pub fn passed_over(&self) {
        self.worse.fetch_add(1, Ordering::Relaxed);
    }

    /// It was lent to somebody who asked for the best: its delay, unless another thread was first. That is `at_most` what there was when he asked:
    /// he may have had it ever since, and tell it late.
    pub fn lent(&self, index: u32, at_most: u64) -> Option<u64> {
        let worse = self.worse.load(Ordering::Relaxed).min(at_most);
        self.step(u64::from(index) | BACK, NOTHING).then_some(worse)
    }

    /// Something else became of the resource.
    pub fn forget(&self, index: u32) {
        let what = self.what.load(Ordering::Relaxed);
        if what != NOTHING && what as u32 == index {
            self.discard(what);
        }
    }

    /// The round is over.
    pub fn end(&self) {
        let what = self.what.load(Ordering::Relaxed);
        if what != NOTHING {
            self.discard(what);
        }
    }

    fn discard(&self, what: u64) {
        if self.step(what, NOTHING) {
            self.unfinished.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Samples that ended without a delay.
    pub fn unfinished(&self) -> u64 {
        self.unfinished.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_is_counted_from_the_return_to_the_lending() {
        let followed = Followed::new();
        followed.begin(7);
        assert_eq!(followed.waits(), None, "it is out");
        followed.back(6);
        followed.back(7);
        assert_eq!(followed.waits(), Some(7));
        (0..3).for_each(|_| followed.passed_over());
        let asked = followed.so_far();
        followed.passed_over();
        assert_eq!(followed.lent(6, asked), None);
        assert_eq!(
            (followed.lent(7, asked), followed.lent(7, asked), followed.waits()),
            (Some(3), None, None)
        );
        // The next one begins with none.
        followed.begin(5);
        followed.back(5);
        assert_eq!((followed.lent(5, asked), followed.unfinished()), (Some(0), 0));
    }

    #[test]
    fn what_does_not_end_is_given_up() {
        let followed = Followed::new();
        followed.begin(7);
        followed.back(7);
        followed.forget(6);
        assert_eq!((followed.waits(), followed.unfinished()), (Some(7), 0));
        (0..PATIENCE).for_each(|_| followed.begin(8));
        assert_eq!((followed.waits(), followed.unfinished()), (None, 1));
        followed.begin(8);
        followed.forget(8);
        followed.begin(9);
        followed.end();
        followed.end();
        assert_eq!(followed.unfinished(), 3);
    }
}
