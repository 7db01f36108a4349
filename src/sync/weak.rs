//! Weak references under loom, which has none: a stand-in.
//!
//! It counts as std's do, and loom does not see it: what it leads to is there, or is gone, without an order of its own. Whoever has
//! upgraded one owns the value in std's count only; if the last owner that loom knows leaves meanwhile, loom fails. So no model ends a
//! scheduler while a call of its timer runs; shuttle, with real weak references, has that.

use std::{mem::ManuallyDrop, sync};

use super::Arc;

/// See the module header.
#[derive(Debug)]
pub struct Weak<T>(sync::OnceLock<sync::Weak<T>>);

impl<T> Weak<T> {
    /// Leads nowhere.
    pub const fn new() -> Self {
        Weak(sync::OnceLock::new())
    }

    /// Leads to `arc` from now on; once.
    pub fn point_to(&self, arc: &Arc<T>) {
        // SAFETY: loom's `Arc` is a std one inside, and this is its pointer; the share of the count that `from_raw` assumes is not
        // given back.
        let inner = ManuallyDrop::new(unsafe { sync::Arc::from_raw(Arc::as_ptr(arc)) });
        assert!(self.0.set(sync::Arc::downgrade(&inner)).is_ok(), "it leads somewhere already");
    }

    /// What it leads to, if that is still there.
    pub fn upgrade(&self) -> Option<sync::Arc<T>> {
        self.0.get()?.upgrade()
    }
}

impl<T> Default for Weak<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Clone for Weak<T> {
    fn clone(&self) -> Self {
        Weak(self.0.clone())
    }
}
