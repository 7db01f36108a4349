//! How many resources may be ejected at once.
//!
//! ```text
//! return that ejects                              removal
//!   S1  count < places(members): count + 1 (CAS)     R1  members - 1
//!   S2  fence                                        R2  fence
//!   S3  members again: too many by now: count - 1,   R3  count > places(members): readmit those due first
//!       and no ejection
//!   S4  the hold; into the book; R3
//! ```
//!
//! S1 makes the number true before the hold is set, and it is given back after the hold is gone: so at no moment are more ejected than
//! there are places, but between R1 and R3. A removal takes places away: of S2 and R2 one comes first. If it is S2, R3 sees the count of S1; if R2, S3 sees the
//! members of R1. What R3 cannot find in the book yet, the ejector's own R3 finds.

use crate::sync::atomic::{AtomicU32, Ordering, fence};

/// Counts those that are ejected by rules.
#[derive(Debug)]
pub struct Share {
    percent: u32,
    count: AtomicU32,
}

impl Share {
    pub fn new(percent: u32) -> Self {
        Share { percent, count: AtomicU32::new(0) }
    }

    /// How many places there are in a fleet of so many.
    pub fn places(&self, members: u32) -> u32 {
        (u64::from(members) * u64::from(self.percent) / 100) as u32
    }

    /// Whether there seems to be a place. A hint.
    pub fn has_place(&self, members: u32) -> bool {
        self.count() < self.places(members)
    }

    /// S1 to S3: takes a place, if there is one.
    pub fn take(&self, members: impl Fn() -> u32) -> bool {
        // Relaxed throughout: the fence orders it; nothing else is published by the count.
        let places = self.places(members());
        let mut count = self.count();
        loop {
            if count >= places {
                return false;
            }
            match self.count.compare_exchange_weak(count, count + 1, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => break,
                Err(found) => count = found,
            }
        }
        // SeqCst: pairs with the one in `exceeds`; both outcomes in the module header.
        // Survives removal: in one shard the lock orders the two; in two, whoever ejects looks once more at the end of S4, behind the
        // fence of `exceeds`, and what is too many by then comes back. Without this one it would only be too many for longer.
        // Survives SeqCst -> AcqRel: as its removal.
        fence(Ordering::SeqCst);
        if self.count() > self.places(members()) {
            self.give_back();
            return false;
        }
        true
    }

    /// A place is free again: the hold is gone, or was never set.
    pub fn give_back(&self) {
        let before = self.count.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "only a place that was taken is given back");
    }

    /// R2 and R3: whether there are more than there may be.
    pub fn exceeds(&self, members: impl Fn() -> u32) -> bool {
        // SeqCst: pairs with the one in `take`.
        fence(Ordering::SeqCst);
        self.count() > self.places(members())
    }

    /// How many are ejected by rules.
    pub fn count(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn never_more_than_the_share_for_every_size() {
        for percent in 0..=100u32 {
            for members in 0..=64u32 {
                let share = Share::new(percent);
                let mut taken = 0;
                while share.take(|| members) {
                    taken += 1;
                    assert!(100 * taken <= percent * members, "counted after the ejection");
                }
                assert!(100 * (taken + 1) > percent * members, "{percent} % of {members}: there was a place");
                assert_eq!((share.count(), share.places(members)), (taken, taken));
            }
        }
    }

    #[test]
    fn members_that_leave_take_their_places_with_them() {
        let share = Share::new(50);
        assert!((0..5).all(|_| share.take(|| 10)) && !share.take(|| 10));
        assert!(!share.exceeds(|| 10) && share.exceeds(|| 9));
        share.give_back();
        assert!(!share.exceeds(|| 9));
    }

    #[test]
    fn a_place_that_goes_while_it_is_taken_is_given_back() {
        let share = Share::new(50);
        let asked = std::cell::Cell::new(0);
        // Two members at the first look, one at the second.
        let members = || {
            asked.set(asked.get() + 1);
            if asked.get() == 1 { 2 } else { 1 }
        };
        assert!(!share.take(members));
        assert_eq!(share.count(), 0);
    }
}
