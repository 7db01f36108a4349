//! What is large waits for its end in smaller bags: how much a thread keeps is bounded by bytes too. In a process of its own, for a
//! section anywhere in it keeps what others retire.
//!
//! Cost: nothing to speak of.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use leasehold::{Entry, Scheduler};

static ALIVE: AtomicUsize = AtomicUsize::new(0);

struct Large(#[expect(dead_code, reason = "it is only there")] [u8; 16 << 10]);

impl Large {
    fn new() -> Self {
        ALIVE.fetch_add(1, SeqCst);
        Large([0; 16 << 10])
    }
}

impl Drop for Large {
    fn drop(&mut self) {
        ALIVE.fetch_sub(1, SeqCst);
    }
}

#[test]
fn large_values_do_not_gather() {
    what_is_large_itself();
    #[cfg(feature = "internals")]
    what_owns_much();
}

fn what_is_large_itself() {
    let fleet = Scheduler::<Entry<u8, u32, Large>>::builder().shards(2).build().expect("in range");
    fleet.insert(Entry::new(0, 0, Large::new())).expect("new");
    let mut most = 0;
    for rank in 1..1_000 {
        fleet.update(Entry::new(0, rank, Large::new())).expect("known");
        most = most.max(ALIVE.load(SeqCst));
    }
    // Of each 512 bytes one counts as a pointer more: four fill a bag, and up to three bags wait. By their number alone it would be hundreds.
    assert!((3..=16).contains(&most), "{most} at once");

    // Nor with threads that retire one each, and end.
    let mut most = 0;
    for rank in 1..200 {
        let updates = || assert!(fleet.update(Entry::new(0, rank, Large::new())).is_ok(), "known");
        std::thread::scope(|scope| scope.spawn(updates).join()).expect("no panic");
        most = most.max(ALIVE.load(SeqCst));
    }
    assert!((3..=24).contains(&most), "{most} at once, of threads that have ended");
}

/// What is small itself, and says what it has elsewhere.
#[cfg(feature = "internals")]
#[expect(unsafe_code, reason = "the reclaimer's own contract")]
fn what_owns_much() {
    use leasehold::internals::lookup::{DefaultReclaim, Guard, Reclaim};

    unsafe fn free(pointer: *mut Box<Large>) {
        // SAFETY: from the box below.
        drop(unsafe { Box::from_raw(pointer) });
    }

    let reclaim = DefaultReclaim::new();
    let mut most = 0;
    for _ in 1..1_000 {
        let owner = Box::into_raw(Box::new(Box::new(Large::new())));
        // SAFETY: nobody else has the pointer.
        unsafe { reclaim.pin().retire_owner(owner, size_of::<Large>(), free) };
        most = most.max(ALIVE.load(SeqCst));
    }
    assert!((3..=16).contains(&most), "{most} owners at once");
}
