//! A value that many read and few replace as a whole.

#[cfg(not(any(loom, shuttle)))]
mod imp {
    use std::sync::Arc;

    use arc_swap::ArcSwap;

    /// A value that is read without waiting and replaced as a whole.
    ///
    /// A reader keeps the snapshot that it loaded: one load per decision, never two.
    #[derive(Debug)]
    pub struct Published<T>(ArcSwap<T>);

    impl<T> Published<T> {
        /// Publishes `value` as the first version.
        pub fn new(value: T) -> Self {
            Published(ArcSwap::from_pointee(value))
        }

        /// The version that is current at some moment of this call. Lock-free, wait-free in all but the rarest case
        /// (`arc-swap` falls back to a reference count when a thread holds more than eight snapshots).
        pub fn load(&self) -> impl std::ops::Deref<Target = Arc<T>> + '_ {
            #[cfg(leasehold_counted)]
            crate::sync::traffic::note_snapshot();
            self.0.load()
        }

        /// Replaces the current version.
        pub fn store(&self, value: T) {
            self.0.store(Arc::new(value));
        }

        /// Replaces the current version by what `f` makes of it; `None` leaves it. No version that is stored in between is
        /// lost: then `f` is asked again.
        pub fn refine(&self, mut f: impl FnMut(&T) -> Option<T>) {
            self.0.rcu(|old| f(old).map_or_else(|| Arc::clone(old), Arc::new));
        }
    }
}

/// The model's stand-in: the checkers cannot see inside `ArcSwap`. Each version lives until the cell is dropped.
#[cfg(any(loom, shuttle))]
mod model {
    use std::sync::{Arc, Mutex as StdMutex};

    use crate::sync::{
        UnsafeCell,
        atomic::{AtomicPtr, Ordering},
    };

    /// A value that is read without waiting and replaced as a whole.
    #[derive(Debug)]
    pub struct Published<T> {
        current: AtomicPtr<Version<T>>,
        // Never held across a schedule point.
        versions: StdMutex<Vec<Kept<T>>>,
    }

    #[derive(Debug)]
    struct Version<T> {
        // Loom sees plain memory only here: a read that publication does not order fails.
        seal: UnsafeCell<()>,
        value: Arc<T>,
    }

    impl<T> Version<T> {
        fn boxed(value: T) -> *mut Self {
            Box::into_raw(Box::new(Version { seal: UnsafeCell::new(()), value: Arc::new(value) }))
        }

        fn value(&self) -> &Arc<T> {
            self.seal.with(|_| ());
            &self.value
        }
    }

    #[derive(Debug)]
    struct Kept<T>(*mut Version<T>);

    // SAFETY: the pointer owns an `Arc<T>`, which may move between threads if `T` is `Send + Sync`.
    #[allow(unsafe_code)]
    unsafe impl<T: Send + Sync> Send for Kept<T> {}

    impl<T> Published<T> {
        /// Publishes `value` as the first version.
        pub fn new(value: T) -> Self {
            let first = Version::boxed(value);
            Published { current: AtomicPtr::new(first), versions: StdMutex::new(vec![Kept(first)]) }
        }

        /// The version that is current at some moment of this call.
        pub fn load(&self) -> impl std::ops::Deref<Target = Arc<T>> + '_ {
            // Acquire: pairs with the Release of `store` and `refine`: the version is complete.
            let current = self.current.load(Ordering::Acquire);
            // SAFETY: every version stays allocated until the cell is dropped, and `self` is borrowed.
            #[allow(unsafe_code)]
            unsafe { &*current }.value()
        }

        /// Replaces the current version.
        pub fn store(&self, value: T) {
            let new = Version::boxed(value);
            self.versions.lock().expect("no panic while held").push(Kept(new));
            // Release: pairs with the Acquire of who reads it.
            self.current.swap(new, Ordering::Release);
        }

        /// Replaces the current version by what `f` makes of it; `None` leaves it. No version that is stored in between is
        /// lost: then `f` is asked again.
        pub fn refine(&self, mut f: impl FnMut(&T) -> Option<T>) {
            loop {
                // Acquire: as in `load`.
                let old = self.current.load(Ordering::Acquire);
                // SAFETY: as in `load`.
                #[allow(unsafe_code)]
                let Some(new) = f(unsafe { &*old }.value()) else { return };
                let new = Version::boxed(new);
                self.versions.lock().expect("no panic while held").push(Kept(new));
                // Release: as in `store`. Relaxed on failure: it is loaded again.
                if self.current.compare_exchange(old, new, Ordering::Release, Ordering::Relaxed).is_ok() {
                    return;
                }
            }
        }
    }

    impl<T> Drop for Published<T> {
        fn drop(&mut self) {
            for Kept(version) in self.versions.get_mut().expect("no panic while held").drain(..) {
                // SAFETY: allocated by `Box::into_raw` above, kept once, and no borrow of `self` is left.
                #[allow(unsafe_code)]
                drop(unsafe { Box::from_raw(version) });
            }
        }
    }
}

#[cfg(not(any(loom, shuttle)))]
pub use imp::Published;
#[cfg(any(loom, shuttle))]
pub use model::Published;
