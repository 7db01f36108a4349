//! The waiting acquisitions by name: short for a [`Request`](super::Request).

use std::{
    borrow::Borrow,
    future::IntoFuture,
    hash::{BuildHasher, Hash},
    time::Duration,
};

use super::{
    error::WaitError,
    future::{Acquire, AcquireMany, AcquireManyOwned, AcquireOwned},
};
use crate::{
    resource::Resource,
    scheduler::{Scheduler, lease::Lease},
    sync::Timestamp,
};

/// `timeout`, `deadline`, `async` and `async_owned` of one kind of acquisition.
macro_rules! forms {
    ($(
        $kind:ident, $leases:ty, $future:ident, $owned:ident, [$($generic:tt)*], ($($name:ident: $type:ty),*), [$($bound:tt)*], [$($static:tt)*]:
        $timeout:ident $deadline:ident $wait:ident $wait_owned:ident [$($of:tt)*];
    )*) => {$(
        #[doc = concat!("As [`", stringify!($kind), "`](Scheduler::", stringify!($kind), "), waiting for at most `timeout`.")]
        ///
        /// # Errors
        /// [`WaitError`].
        #[track_caller]
        pub fn $timeout<$($generic)*>(&self, $($name: $type,)* timeout: Duration) -> Result<$leases, WaitError>
        where
            $($bound)*
        {
            self.request()$($of)*.timeout(timeout).wait()
        }

        #[doc = concat!("As [`", stringify!($kind), "`](Scheduler::", stringify!($kind), "), waiting until `deadline` at most.")]
        ///
        /// # Errors
        /// [`WaitError`].
        #[track_caller]
        pub fn $deadline<$($generic)*>(&self, $($name: $type,)* deadline: Timestamp) -> Result<$leases, WaitError>
        where
            $($bound)*
        {
            self.request()$($of)*.deadline(deadline).wait()
        }

        #[doc = concat!("As [`", stringify!($kind), "`](Scheduler::", stringify!($kind), "), waiting as a task, on any runtime.")]
        ///
        #[doc = concat!("See [`", stringify!($future), "`] for what happens when it is dropped. Needs no timer, but to wake when something cools or is overdue:")]
        /// [`Builder::timer`](crate::Builder::timer).
        #[inline]
        #[track_caller]
        pub fn $wait<$($generic)*>(&self, $($name: $type),*) -> $future<'_, R>
        where
            $($bound)* $($static)*
        {
            self.request()$($of)*.into_future()
        }

        #[doc = concat!("As [`", stringify!($wait), "`](Scheduler::", stringify!($wait), "), with nothing borrowed: to be spawned.")]
        #[track_caller]
        pub fn $wait_owned<$($generic)*>(&self, $($name: $type),*) -> $owned<R>
        where
            $($bound)* $($static)*
        {
            self.request()$($of)*.owned()
        }
    )*};
}

#[allow(clippy::multiple_bound_locations)]
impl<R: Resource, S: BuildHasher> Scheduler<R, S> {
    forms! {
        acquire, Lease<'_, R>, Acquire, AcquireOwned, [], (), [], []:
            acquire_timeout acquire_deadline acquire_async acquire_async_owned [];
        acquire_key, Lease<'_, R>, Acquire, AcquireOwned, [Q: Hash + Eq + ?Sized], (key: &Q), [R::Key: Borrow<Q>,], []:
            acquire_key_timeout acquire_key_deadline acquire_key_async acquire_key_async_owned [.key(key)];
        acquire_by_affinity, Lease<'_, R>, Acquire, AcquireOwned, [I: Hash + ?Sized], (id: &I), [], []:
            acquire_by_affinity_timeout acquire_by_affinity_deadline acquire_by_affinity_async acquire_by_affinity_async_owned [.affinity(id)];
        acquire_where, Lease<'_, R>, Acquire, AcquireOwned, [F], (accepts: F), [F: FnMut(&R) -> bool + Send,], [F: 'static]:
            acquire_where_timeout acquire_where_deadline acquire_where_async acquire_where_async_owned [.matching(accepts)];
        acquire_many, Vec<Lease<'_, R>>, AcquireMany, AcquireManyOwned, [], (count: usize), [], []:
            acquire_many_timeout acquire_many_deadline acquire_many_async acquire_many_async_owned [.many(count)];
    }
}
