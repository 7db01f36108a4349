//! `std`'s cell with loom's closure interface, so that a model sees every access to plain memory.

/// A cell whose contents are reached only inside a closure.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct UnsafeCell<T>(core::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    /// Wraps `value`.
    pub const fn new(value: T) -> Self {
        Self(core::cell::UnsafeCell::new(value))
    }

    /// Runs `f` on a pointer that it may read through, if the caller's protocol allows reading now.
    #[inline(always)]
    pub fn with<O>(&self, f: impl FnOnce(*const T) -> O) -> O {
        f(self.0.get())
    }

    /// Runs `f` on a pointer that it may write through, if the caller's protocol makes it the only accessor now.
    #[inline(always)]
    pub fn with_mut<O>(&self, f: impl FnOnce(*mut T) -> O) -> O {
        f(self.0.get())
    }

    /// A pointer for longer exclusive access, such as a lock guard's; loom watches its whole life.
    #[inline(always)]
    pub fn get_mut(&self) -> MutPtr<T> {
        MutPtr(self.0.get())
    }
}

/// Exclusive access to the contents of an [`UnsafeCell`], for as long as it lives.
#[derive(Debug)]
pub struct MutPtr<T>(*mut T);

impl<T> MutPtr<T> {
    /// The contents.
    ///
    /// # Safety
    /// The cell must be alive, and the caller's protocol must make it the only accessor while the reference lives.
    #[allow(clippy::mut_from_ref, unsafe_code)]
    #[inline(always)]
    pub unsafe fn deref(&self) -> &mut T {
        // SAFETY: passed on to the caller.
        unsafe { &mut *self.0 }
    }
}
