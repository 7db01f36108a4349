//! Counted sections: nothing is freed under a reader, and everything is in the end.
//!
//! The reclaimer of production, without its thread-locals, which no model has. Its two barriers are fences here.

use leasehold::internals::{
    lookup::reclaim::sections::{Domain, Grace},
    sync::{
        Arc, UnsafeCell,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::common::{model, spawn};

const FREED: u32 = 0;

/// Values that are followed by number, so that one that is freed can be told from one that is not.
struct Shared {
    domain: Domain,
    current: AtomicUsize,
    values: [UnsafeCell<u32>; 2],
}

// SAFETY: values are read in a section, and written when no section may read them; loom sees whether that is so.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

impl Shared {
    fn new() -> Arc<Self> {
        Arc::new(Shared {
            domain: Domain::empty(),
            current: AtomicUsize::new(0),
            values: [UnsafeCell::new(1), UnsafeCell::new(1)],
        })
    }

    /// Reads what is current, in so many sections of one thread.
    fn read(&self, sections: usize) {
        let record = self.domain.enrol();
        for _ in 0..sections {
            assert!(record.enter());
            // Acquire: as the scheduler's own pointers are read.
            let current = self.current.load(Ordering::Acquire);
            // SAFETY: nobody may be writing it; loom sees whether that is so.
            let value = self.values[current].with(|value| unsafe { *value });
            assert_ne!(value, FREED, "freed under a reader");
            record.leave();
        }
        record.resign();
    }

    /// Makes the other value current. What must come before the old one is freed.
    fn replace(&self) -> Grace<'_> {
        self.current.store(1, Ordering::Release);
        self.domain.grace(self.domain.no_grace()).expect("fences do not fail")
    }

    fn free(&self) {
        // SAFETY: nobody may be reading it; loom sees whether that is so.
        self.values[0].with_mut(|value| unsafe { *value = FREED });
    }
}

/// Whoever has replaced looks once whether it may free, and once more when the reader is gone.
fn replace_while_read(sections: usize) {
    model(move || {
        let shared = Shared::new();
        let reader = {
            let shared = Arc::clone(&shared);
            spawn(move || shared.read(sections))
        };
        let mut grace = shared.replace();
        let over = grace.is_over();
        if over {
            shared.free();
        }
        reader.join().expect("no panic");
        if !over {
            assert!(grace.is_over(), "the reader has left");
            shared.free();
        }
    });
}

#[test]
fn replace_read() {
    replace_while_read(1);
}

/// The count of the second section may be read where that of the first one is waited for.
#[test]
fn replace_read_read() {
    replace_while_read(2);
}

/// The record goes on from where another thread has left it.
#[test]
fn replace_read_by_the_next_thread() {
    model(|| {
        let shared = Shared::new();
        shared.read(1);
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let shared = Arc::clone(&shared);
                spawn(move || shared.read(1))
            })
            .collect();
        if shared.replace().is_over() {
            shared.free();
        }
        for reader in readers {
            reader.join().expect("no panic");
        }
    });
}

/// A reader that also replaces: its own section is waited for, like anybody's.
#[test]
fn replace_in_a_section() {
    model(|| {
        let shared = Shared::new();
        let reader = {
            let shared = Arc::clone(&shared);
            spawn(move || shared.read(1))
        };
        let record = shared.domain.enrol();
        assert!(record.enter() && !record.enter());
        let mut grace = shared.replace();
        assert!(!grace.is_over(), "we are in a section");
        record.leave();
        if grace.is_over() {
            shared.free();
        }
        reader.join().expect("no panic");
        assert!(grace.is_over());
    });
}
