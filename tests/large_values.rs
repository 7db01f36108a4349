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
    {
        what_owns_much();
        many_threads_share_a_budget();
    }
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

/// What many threads keep, of each reclaimer. Only the library's own bounds it by bytes.
#[cfg(feature = "internals")]
fn many_threads_share_a_budget() {
    use leasehold::internals::lookup::reclaim::{Epoch, Sections};

    let sections = crowd::keeps::<Sections>("sections", &crowd::KEPT[0]);
    // A mebibyte in all, and of each thread the one that has filled its bag.
    assert!(sections <= (1 << 20) + crowd::THREADS * crowd::BYTES, "{sections} bytes");
    let epoch = crowd::keeps::<Epoch>("epoch", &crowd::KEPT[1]);
    // 64 of each thread, and what a queue for all still has.
    assert!(epoch <= (64 * crowd::THREADS + 4_096) * crowd::BYTES, "{epoch} bytes");
    #[cfg(feature = "seize")]
    {
        use leasehold::internals::lookup::reclaim::Seize;

        let most = std::thread::available_parallelism().map_or(32, |processors| processors.get().max(32));
        let seize = crowd::keeps::<Seize>("seize", &crowd::KEPT[2]);
        assert!(seize <= most.next_power_of_two() * crowd::THREADS * crowd::BYTES, "{seize} bytes");
    }
}

/// Threads that stay, and have each retired much: all but what it hands over only together with more is freed.
#[cfg(feature = "internals")]
mod crowd {
    #![expect(unsafe_code, reason = "the reclaimer's own contract")]

    use std::{
        sync::{
            Barrier, Mutex,
            atomic::{AtomicUsize, Ordering::SeqCst},
        },
        thread,
    };

    use leasehold::internals::lookup::{Guard, Reclaim};

    pub const THREADS: usize = if cfg!(miri) { 32 } else { 200 };
    /// As a segment of the worker pool's queue.
    pub const BYTES: usize = 3_400;
    /// Odd, as two of them fill a bag of one of 200 threads: one is left in it.
    const EACH: usize = if cfg!(miri) { 21 } else { 201 };

    /// Bytes that wait, of each reclaimer: what its threads leave behind at their end may be freed while the next one is measured.
    pub static KEPT: [AtomicUsize; 3] = [const { AtomicUsize::new(0) }; 3];

    unsafe fn free(pointer: *mut &'static AtomicUsize) {
        // SAFETY: from the box below.
        let kept = *unsafe { Box::from_raw(pointer) };
        kept.fetch_sub(BYTES, SeqCst);
    }

    /// Bytes that wait when all have done. They take turns, so nobody is in a section when another one looks.
    pub fn keeps<C: Reclaim>(name: &str, kept: &'static AtomicUsize) -> usize {
        let reclaim = C::new();
        let (all, turn) = (Barrier::new(THREADS), Mutex::new(()));
        let retire = || {
            drop(reclaim.pin());
            all.wait();
            let one_by_one = turn.lock().expect("no panic");
            for _ in 0..EACH {
                kept.fetch_add(BYTES, SeqCst);
                // SAFETY: nobody else has the pointer.
                unsafe { reclaim.pin().retire_owner(Box::into_raw(Box::new(kept)), BYTES, free) };
            }
            drop(one_by_one);
            let kept = all.wait().is_leader().then(|| kept.load(SeqCst));
            // Nobody ends before that, and leaves to others what it has.
            all.wait();
            kept
        };
        let kept = thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(retire)).collect();
            let kept = threads.into_iter().filter_map(|thread| thread.join().expect("no panic"));
            kept.sum::<usize>()
        });
        eprintln!("{name}: {THREADS} threads keep {kept} of {} bytes", THREADS * EACH * BYTES);
        assert!(kept > 0, "{name}: nothing is gathered");
        kept
    }
}
