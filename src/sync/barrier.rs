//! A pair of barriers of which one is all but free.
//!
//! Both are full fences against each other: of a [`light`] and a [`heavy`] one, the stores before whichever comes first are seen by
//! the loads after the other. Two light ones order nothing. The heavy one makes the kernel interrupt every running thread of the
//! process (`membarrier`), so that the light one need only keep the compiler from moving accesses across it.
//!
//! Where the kernel has no such call, on other systems, and in a model, both are `fence(SeqCst)`. That is more than is promised: it orders
//! two light ones as well, and no model would notice a protocol that needs them to be. Whoever uses the pair has to argue from one light and
//! one heavy barrier alone, as the header of `lookup::reclaim::sections` does: what a section does is compared with what a retirement does,
//! never with another section.

use super::atomic::{Ordering, fence};

#[cfg(all(target_os = "linux", not(any(loom, shuttle, miri))))]
mod kernel {
    use std::sync::{
        Once,
        atomic::{AtomicBool, Ordering},
    };

    const QUERY: libc::c_int = 0;
    const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
    const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

    static ASKED: Once = Once::new();
    /// Settled by [`prepare`], never changed again.
    static HELPS: AtomicBool = AtomicBool::new(false);

    #[allow(unsafe_code)]
    fn membarrier(command: libc::c_int) -> libc::c_long {
        // SAFETY: takes a command and flags, touches no memory.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0) }
    }

    pub(super) fn prepare() {
        ASKED.call_once(|| {
            let offered = membarrier(QUERY);
            let wanted = libc::c_long::from(PRIVATE_EXPEDITED | REGISTER_PRIVATE_EXPEDITED);
            let helps =
                offered > 0 && offered & wanted == wanted && membarrier(REGISTER_PRIVATE_EXPEDITED) == 0;
            // Relaxed: `Once` publishes it to whoever has prepared, and nobody else asks.
            HELPS.store(helps, Ordering::Relaxed);
        });
    }

    #[inline(always)]
    pub(super) fn helps() -> bool {
        HELPS.load(Ordering::Relaxed)
    }

    pub(super) fn interrupt() -> bool {
        membarrier(PRIVATE_EXPEDITED) == 0
    }
}

/// To be called by each thread before its first barrier.
pub fn prepare() {
    #[cfg(all(target_os = "linux", not(any(loom, shuttle, miri))))]
    kernel::prepare();
}

/// Orders the stores before it with the loads after it, against [`heavy`].
#[inline(always)]
pub fn light() {
    #[cfg(all(target_os = "linux", not(any(loom, shuttle, miri))))]
    if kernel::helps() {
        // Survives SeqCst -> AcqRel: no model compiles it. A store before it must not move behind a load after it, which is what
        // AcqRel allows; a compiler's fence has no other effect, and today's compilers make the same of both.
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
        return;
    }
    // SeqCst: pairs with the one in `heavy`.
    fence(Ordering::SeqCst);
}

/// The other side of [`light`]. Answers `false` if the kernel, which has promised it, refuses: then nothing is ordered.
pub fn heavy() -> bool {
    // SeqCst: pairs with the one in `light`; and for our own accesses where the kernel interrupts the others.
    fence(Ordering::SeqCst);
    #[cfg(all(target_os = "linux", not(any(loom, shuttle, miri))))]
    if kernel::helps() {
        let interrupted = kernel::interrupt();
        // Survives removal: no model compiles it. The kernel runs barriers of its own on the caller's side, before and after it has
        // interrupted the others, and says so; the call is opaque to the compiler besides. It costs a hundredth of the call.
        // Survives SeqCst -> AcqRel: no model compiles it; as its removal.
        fence(Ordering::SeqCst);
        return interrupted;
    }
    true
}
