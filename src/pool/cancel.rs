//! One flag for any number of jobs.

use crate::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// Cancels jobs: those that have not begun are not run; those that run may ask.
///
/// Clones are the same token. Wait-free.
///
/// ```
/// use leasehold::pool::CancelToken;
///
/// let token = CancelToken::new();
/// let same = token.clone();
/// token.cancel();
/// assert!(same.is_cancelled());
/// ```
#[derive(Clone, Debug, Default)]
pub struct CancelToken(Arc<AtomicBool>);

impl CancelToken {
    /// A token that is not cancelled.
    pub fn new() -> Self {
        CancelToken(Arc::new(AtomicBool::new(false)))
    }

    /// Cancels, for good.
    pub fn cancel(&self) {
        // Relaxed: it publishes nothing, and a job that begins at the same time may or may not see it.
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it was cancelled.
    pub fn is_cancelled(&self) -> bool {
        // Relaxed: as above.
        self.0.load(Ordering::Relaxed)
    }
}
