//! `std`'s atomics, each access of which is told to [`traffic`](super::traffic); only in the build that counts.
//!
//! They have the interface that the library uses of `std`'s, and no more.

/// Takes the place of `std::sync::atomic`.
pub mod atomic {
    pub use std::sync::atomic::{Ordering, fence};

    use super::super::traffic::{note_load, note_rmw, note_store};

    macro_rules! counted {
        ($name:ident $(<$parameter:ident>)?, $value:ty) => {
            #[doc = concat!("`", stringify!($name), "`, counted.")]
            #[derive(Debug, Default)]
            #[repr(transparent)]
            pub struct $name $(<$parameter>)? (std::sync::atomic::$name $(<$parameter>)?);

            #[allow(missing_docs)]
            impl $(<$parameter>)? $name $(<$parameter>)? {
                pub const fn new(value: $value) -> Self {
                    Self(std::sync::atomic::$name::new(value))
                }

                pub fn load(&self, order: Ordering) -> $value {
                    note_load(self);
                    self.0.load(order)
                }

                pub fn store(&self, value: $value, order: Ordering) {
                    note_store(self);
                    self.0.store(value, order);
                }

                pub fn swap(&self, value: $value, order: Ordering) -> $value {
                    note_rmw(self);
                    self.0.swap(value, order)
                }

                pub fn compare_exchange(
                    &self,
                    current: $value,
                    new: $value,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$value, $value> {
                    note_rmw(self);
                    self.0.compare_exchange(current, new, success, failure)
                }

                pub fn compare_exchange_weak(
                    &self,
                    current: $value,
                    new: $value,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$value, $value> {
                    note_rmw(self);
                    self.0.compare_exchange_weak(current, new, success, failure)
                }

                pub fn get_mut(&mut self) -> &mut $value {
                    self.0.get_mut()
                }

                pub fn into_inner(self) -> $value {
                    self.0.into_inner()
                }
            }
        };
    }

    macro_rules! number {
        ($name:ident, $value:ty) => {
            counted!($name, $value);

            #[allow(missing_docs)]
            impl $name {
                pub fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                    note_rmw(self);
                    self.0.fetch_add(value, order)
                }

                pub fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                    note_rmw(self);
                    self.0.fetch_sub(value, order)
                }

                pub fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                    note_rmw(self);
                    self.0.fetch_or(value, order)
                }

                pub fn fetch_and(&self, value: $value, order: Ordering) -> $value {
                    note_rmw(self);
                    self.0.fetch_and(value, order)
                }

                pub fn fetch_max(&self, value: $value, order: Ordering) -> $value {
                    note_rmw(self);
                    self.0.fetch_max(value, order)
                }

                pub fn fetch_min(&self, value: $value, order: Ordering) -> $value {
                    note_rmw(self);
                    self.0.fetch_min(value, order)
                }
            }
        };
    }

    number!(AtomicU8, u8);
    number!(AtomicU16, u16);
    number!(AtomicU32, u32);
    number!(AtomicU64, u64);
    number!(AtomicUsize, usize);
    counted!(AtomicBool, bool);
    counted!(AtomicPtr<T>, *mut T);
}
