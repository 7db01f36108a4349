//! The facade: the only module that names a concurrency primitive.
//!
//! Every other module takes atomics, cells, locks, threads, spinning, time and randomness from here, so that the
//! model checkers see all of them. Four builds exist:
//!
//! | build | atomics, cell, threads | what for |
//! |---|---|---|
//! | plain | `std` | production, stress tests, sanitizers |
//! | `--cfg loom` | loom | every interleaving of two or three threads, weak orderings included |
//! | `--cfg shuttle` | shuttle | the whole scheduler under random schedules, sequentially consistent |
//! | `--cfg leasehold_counted` | `std`, each access counted | `docs/scaling.md`: read-modify-writes and transfers of cache lines per operation |
//!
//! `clippy.toml` rejects the way around. What the checkers cannot see (the reclaimers) has a stand-in in `lookup::reclaim`, used only in
//! models.

#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

pub mod barrier;
#[cfg(not(loom))]
mod cell;
mod clock;
#[cfg(leasehold_counted)]
mod counted;
#[allow(unsafe_code)]
mod proven;
mod random;
mod spin;
mod spinlock;
#[cfg(leasehold_counted)]
pub mod traffic;
#[cfg(loom)]
#[allow(unsafe_code)]
mod weak;

pub use clock::{Clock, ManualClock, MonotonicClock, Timestamp};
pub use crossbeam_utils::CachePadded;
pub use proven::Proven;
pub use random::SplitMix64;
pub use spin::Spin;
pub use spinlock::{SpinGuard, SpinLock};
#[cfg(any(loom, shuttle))]
pub use spinlock::{lain_down, lie_down_at_once};

#[cfg(loom)]
pub use loom::{
    alloc::Track,
    cell::{MutPtr, UnsafeCell},
    sync::{Arc, Condvar, Mutex, MutexGuard, atomic},
    thread, thread_local,
};
#[cfg(loom)]
pub use weak::Weak;

#[cfg(shuttle)]
pub use {
    cell::{MutPtr, UnsafeCell},
    shuttle::{
        sync::{Arc, Condvar, Mutex, MutexGuard, Weak, atomic},
        thread, thread_local,
    },
};

#[cfg(not(any(loom, shuttle)))]
pub use {
    cell::{MutPtr, UnsafeCell},
    std::{
        sync::{Arc, Condvar, Mutex, MutexGuard, Weak},
        thread, thread_local,
    },
};

#[cfg(leasehold_counted)]
pub use counted::atomic;
#[cfg(not(any(loom, shuttle, leasehold_counted)))]
pub use std::sync::atomic;

/// Atomics for counts: Relaxed words that are changed by read-modify-writes only and order nothing else.
///
/// Loom does not see them. Its modification order is incomplete for Relaxed read-modify-writes of several threads (it
/// fails its own assertion), and a stronger ordering would hide what the product lacks. Sequential consistency is all
/// that such a word can show, and that is shuttle's field: there they are instrumented.
pub mod count {
    #[cfg(not(loom))]
    pub use super::atomic::{AtomicU64, AtomicUsize};
    #[cfg(loom)]
    pub use std::sync::atomic::{AtomicU64, AtomicUsize};
}

/// `Arc` for what nobody changes: text. Who owns it last decides nothing, so loom, whose own holds sized values only, need not see
/// it.
pub mod frozen {
    #[cfg(not(loom))]
    pub use super::Arc;
    #[cfg(loom)]
    pub use std::sync::Arc;
}

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

#[cfg(any(loom, shuttle))]
pub use model::thread_hint;

#[cfg(any(loom, shuttle))]
mod model {
    /// A number that tells the running thread from most others; the same thread always gets the same one.
    ///
    /// In a model it is the thread's number, which repeats from run to run; loom's hash of a `ThreadId` does not.
    pub fn thread_hint() -> usize {
        let id = format!("{:?}", super::thread::current().id());
        // Not 0, which means nobody where a hint names an owner.
        1 + id
            .bytes()
            .filter(u8::is_ascii_digit)
            .fold(0, |number, digit| 10 * number + usize::from(digit - b'0'))
    }
}

/// Waits to be woken through a condition variable, for at most `limit`. May wake for nothing.
///
/// In a model there is no time, and so no limit.
pub fn wait_for<'a, T>(
    alarm: &Condvar,
    guard: MutexGuard<'a, T>,
    limit: Option<std::time::Duration>,
) -> MutexGuard<'a, T> {
    use std::sync::PoisonError;
    #[cfg(not(any(loom, shuttle)))]
    if let Some(limit) = limit {
        return alarm.wait_timeout(guard, limit).unwrap_or_else(PoisonError::into_inner).0;
    }
    let _ = limit;
    alarm.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// Starts a thread. For those whose user has asked for threads.
///
/// # Errors
/// The system's, if it starts none.
pub fn spawn(name: String, body: impl FnOnce() + Send + 'static) -> std::io::Result<thread::JoinHandle<()>> {
    #[cfg(not(any(loom, shuttle)))]
    return thread::Builder::new().name(name).spawn(body);
    #[cfg(any(loom, shuttle))]
    {
        let _ = name;
        Ok(thread::spawn(body))
    }
}

/// Which thread is running; none in a model.
pub fn current_thread() -> Option<std::thread::ThreadId> {
    #[cfg(not(any(loom, shuttle)))]
    return Some(thread::current().id());
    #[cfg(any(loom, shuttle))]
    None
}

/// Which thread that is; none in a model.
pub fn id_of(handle: &thread::JoinHandle<()>) -> Option<std::thread::ThreadId> {
    let _ = handle;
    #[cfg(not(any(loom, shuttle)))]
    return Some(handle.thread().id());
    #[cfg(any(loom, shuttle))]
    None
}

/// Asks the processor for a cache line that will be read soon. Follows nothing: any pointer will do.
#[inline(always)]
pub fn prefetch<T>(pointer: *const T) {
    #[cfg(all(target_arch = "x86_64", not(any(loom, shuttle, miri))))]
    // SAFETY: a hint; it neither faults nor reads.
    #[allow(unsafe_code)]
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(pointer.cast());
    }
    let _ = pointer;
}

/// As [`prefetch`], for a line that will be written soon: it is taken from other processors now.
#[inline(always)]
pub fn prefetch_to_write<T>(pointer: *const T) {
    // By its name: the intrinsic is made a plain prefetch, which takes nothing from anybody, unless the target is told to have the instruction.
    #[cfg(all(target_arch = "x86_64", not(any(loom, shuttle, miri))))]
    // SAFETY: a hint; it neither faults nor reads, whatever the pointer. A processor that does not know it does nothing.
    #[allow(unsafe_code, clippy::pointers_in_nomem_asm_block)]
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) pointer.cast::<()>(), options(nomem, nostack, preserves_flags));
    }
    let _ = pointer;
}

/// How many threads the machine can run at once; 2 in a model, so that runs repeat.
pub fn parallelism() -> usize {
    #[cfg(any(loom, shuttle))]
    return 2;
    #[cfg(not(any(loom, shuttle)))]
    std::thread::available_parallelism().map_or(1, usize::from)
}
