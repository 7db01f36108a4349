//! Two who are done with one piece of memory: one of them gives it back, after the other's last use.

use leasehold::internals::{
    node::{Parting, Party},
    sync::{
        Arc, UnsafeCell,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::common::{model, spawn};

struct Shared {
    parting: Parting,
    memory: UnsafeCell<()>,
    given_back: AtomicUsize,
}

// SAFETY: the memory is used by those who have not left, and written by whoever leaves last; loom sees whether that is so.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

impl Shared {
    fn leave(&self, party: Party) {
        self.memory.with(|_| ());
        if self.parting.leave(party) {
            self.memory.with_mut(|_| ());
            self.given_back.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[test]
fn one_gives_back_what_both_have_used() {
    model(|| {
        let shared = Arc::new(Shared {
            parting: Parting::new(),
            memory: UnsafeCell::new(()),
            given_back: AtomicUsize::new(0),
        });
        let other = {
            let shared = Arc::clone(&shared);
            spawn(move || shared.leave(Party::Other))
        };
        shared.leave(Party::One);
        other.join().expect("no panic");
        assert_eq!(shared.given_back.load(Ordering::Relaxed), 1, "once");
    });
}
