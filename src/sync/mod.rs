//! The facade: the only module that names a concurrency primitive.
//!
//! Every other module takes atomics, cells, locks, threads, spinning, time and randomness from here, so that the
//! model checkers see all of them. Three builds exist:
//!
//! | build | atomics, cell, threads | what for |
//! |---|---|---|
//! | plain | `std` | production, stress tests, sanitizers |
//! | `--cfg loom` | loom | every interleaving of two or three threads, weak orderings included |
//! | `--cfg shuttle` | shuttle | the whole scheduler under random schedules, sequentially consistent |
//!
//! `clippy.toml` rejects the way around. Dependencies that the checkers cannot see (`ArcSwap`, the epoch collector)
//! have stand-ins here and in `lookup::reclaim`, used only in models.

#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

#[cfg(not(loom))]
mod cell;
mod clock;
mod fault;
mod published;
mod random;
mod spin;
mod spinlock;

pub use clock::{Clock, ManualClock, MonotonicClock, Timestamp};
pub use crossbeam_utils::CachePadded;
pub use fault::planted;
pub use published::Published;
pub use random::SplitMix64;
pub use spin::Spin;
pub use spinlock::{SpinGuard, SpinLock};

#[cfg(loom)]
pub use loom::{
    cell::{MutPtr, UnsafeCell},
    sync::{Arc, Condvar, Mutex, atomic},
    thread, thread_local,
};

#[cfg(shuttle)]
pub use {
    cell::{MutPtr, UnsafeCell},
    shuttle::{
        sync::{Arc, Condvar, Mutex, atomic},
        thread, thread_local,
    },
};

#[cfg(not(any(loom, shuttle)))]
pub use {
    cell::{MutPtr, UnsafeCell},
    std::{
        sync::{Arc, Condvar, Mutex, atomic},
        thread, thread_local,
    },
};

/// A number that tells the running thread from most others; the same thread always gets the same one.
///
/// Used only to spread threads over striped state: two threads with equal numbers are slower, never wrong.
#[cfg(not(any(loom, shuttle)))]
#[inline]
pub fn thread_hint() -> usize {
    std::thread_local! {
        // The address of a thread-local byte identifies the thread: no counter is shared, nothing is registered.
        static MARK: u8 = const { 0 };
    }
    MARK.with(|mark| std::ptr::from_ref(mark).addr())
}

/// A number that tells the running thread from most others; the same thread always gets the same one.
#[cfg(any(loom, shuttle))]
pub fn thread_hint() -> usize {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    // As text: a model's identity of a thread also carries the run's number, and runs of a model must repeat.
    format!("{:?}", thread::current().id()).hash(&mut hasher);
    hasher.finish() as usize
}

/// How many threads the machine can run at once; 2 in a model, so that runs repeat.
pub fn parallelism() -> usize {
    #[cfg(any(loom, shuttle))]
    return 2;
    #[cfg(not(any(loom, shuttle)))]
    std::thread::available_parallelism().map_or(1, usize::from)
}
