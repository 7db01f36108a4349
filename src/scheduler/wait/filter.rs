//! The filter of a waiter: user code that is run by whoever has something to offer.
//!
//! A filter that borrows is treated as if it did not: [`Filter::borrowed`]. What makes that sound is in [`Borrow`], the guard of
//! the blocking call: it neither returns nor unwinds before it has dropped the filter itself.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
};

use crate::node::quietly;

type Ask<'a, R> = dyn FnMut(&R) -> bool + Send + 'a;

/// What a waiter says yes to.
pub struct Filter<R: 'static>(Option<Box<Ask<'static, R>>>);

impl<R> Filter<R> {
    pub fn new(accepts: impl FnMut(&R) -> bool + Send + 'static) -> Self {
        Filter(Some(Box::new(accepts)))
    }

    /// A filter that may borrow from its owner.
    ///
    /// # Safety
    /// The filter must be dropped before what it borrows from ends.
    #[allow(unsafe_code)]
    pub unsafe fn borrowed<'a>(accepts: impl FnMut(&R) -> bool + Send + 'a) -> Self
    where
        R: 'a,
    {
        let accepts: Box<Ask<'a, R>> = Box::new(accepts);
        // SAFETY: only the lifetime changes; that it is kept is passed on to the caller.
        let accepts = unsafe { std::mem::transmute::<Box<Ask<'a, R>>, Box<Ask<'static, R>>>(accepts) };
        Filter(Some(accepts))
    }

    /// Asks. May panic.
    pub fn accepts(&mut self, resource: &R) -> bool {
        (self.0.as_mut().expect("until it is dropped"))(resource)
    }

    /// Asks; a panic is an answer.
    pub fn try_accepts(&mut self, resource: &R) -> Result<bool, Box<dyn Any + Send>> {
        catch_unwind(AssertUnwindSafe(|| self.accepts(resource)))
    }
}

impl<R> Drop for Filter<R> {
    /// Its own `Drop` is user code, and may run in the thread of somebody else: a panic stops here.
    fn drop(&mut self) {
        let accepts = self.0.take();
        let _ = quietly(|| drop(accepts));
    }
}
