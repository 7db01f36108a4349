//! `Send` and `Sync`, proven once.

use std::{
    marker::PhantomData,
    ops::{Deref, DerefMut},
};

/// A value that is `Send + Sync`: that was proven when it was wrapped, and is not asked again.
///
/// Why: an `async` block is `Send` if all that it keeps across an `.await` is, and there the compiler asks for *any* lifetimes, because it
/// has forgotten which ones are in the types. `impl<R: Resource> Send for Lease<R>` does not answer that question for an
/// `Entry<u32, u32, &'static str>`: `Resource` wants `'static`, and "any" is not that. So a task could not have kept such a lease
/// (`tests/sendable.rs`). An answer that asks for nothing is needed, at the places that public types reach everything else by.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Proven<T> {
    value: T,
    /// Exactly this type, not one with other lifetimes that it could stand for: it may be `Send` where that one is not.
    invariant: PhantomData<fn(T) -> T>,
}

// SAFETY: there is no other way to make one than `new`, which has the proof; and what is put in later, through `DerefMut`, is of the
// same type.
unsafe impl<T> Send for Proven<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Proven<T> {}

impl<T: Send + Sync> Proven<T> {
    /// Wraps it, with the proof.
    #[inline]
    pub const fn new(value: T) -> Self {
        Proven { value, invariant: PhantomData }
    }
}

impl<T> Proven<T> {
    /// What was wrapped.
    #[inline]
    pub fn into_inner(self) -> T {
        self.value
    }
}

impl<T> Deref for Proven<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Proven<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}
