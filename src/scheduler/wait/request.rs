//! What a waiting acquisition is asked for with.

use std::{
    borrow::Borrow,
    fmt,
    future::IntoFuture,
    hash::{BuildHasher, Hash},
    panic::Location,
    time::Duration,
};

use super::{
    error::WaitError,
    filter::Filter,
    future::{Acquire, AcquireMany, AcquireManyOwned, AcquireOwned, leases},
    pending::Pending,
    waiter::Named,
    wish::{Until, Wish},
};
use crate::{
    DefaultHashBuilder,
    resource::Resource,
    ring::affinity_hash,
    scheduler::{
        Scheduler,
        core::Core,
        lease::{Lease, OwnedLease},
    },
    sync::{Arc, Proven, Timestamp},
};

/// A request that may have to wait; made by [`Scheduler::request`].
///
/// Say what is wanted and for how long, then [`wait`](Request::wait), or `.await` it, or turn it into a future that can be spawned
/// with [`owned`](Request::owned).
///
/// ```
/// use leasehold::{Entry, Scheduler, WaitError};
/// use std::time::Duration;
///
/// let scheduler = Scheduler::<Entry<&str, u32, ()>>::builder().build()?;
/// scheduler.insert(Entry::new("a", 1, ()))?;
/// let lease = scheduler.request().wait()?;
/// let soon = Duration::from_millis(1);
/// assert!(matches!(scheduler.request().timeout(soon).wait(), Err(WaitError::TimedOut { .. })));
/// drop(lease);
/// assert_eq!(*scheduler.request().key("a").class(1).wait()?.key(), "a");
/// assert_eq!(scheduler.request().key("b").wait().unwrap_err(), WaitError::NotFound);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a request does nothing until it is waited for"]
pub struct Request<'s, R: Resource, S = DefaultHashBuilder, K = One> {
    scheduler: &'s Scheduler<R, S>,
    pending: Pending<&'s Core<R>, R>,
    kind: K,
}

/// A [`Request`] for one lease.
#[derive(Clone, Copy, Debug)]
pub struct One;

/// A [`Request`] for one lease on what the filter accepts.
#[derive(Clone, Copy, Debug)]
pub struct Matching<F>(F);

/// A [`Request`] for several leases.
#[derive(Clone, Copy, Debug)]
pub struct Several;

impl<R: Resource, S: BuildHasher> Scheduler<R, S> {
    /// A request that may wait: for the best resource, unless told otherwise, and for ever.
    ///
    /// The place in the program that leases are recorded with ([`Builder::max_hold`](crate::Builder::max_hold)) is that of this call.
    #[inline]
    #[track_caller]
    pub fn request(&self) -> Request<'_, R, S> {
        Request { scheduler: self, pending: Pending::new(&*self.core), kind: One }
    }
}

impl<'s, R: Resource, S, K> Request<'s, R, S, K> {
    /// Its class; higher ones go first, up to a point: see [`Builder::ageing`](crate::Builder::ageing). Default: 0.
    pub fn class(mut self, class: u8) -> Self {
        self.pending.class = class;
        self
    }

    /// How long it waits at most, from the first attempt on. A unit that has arrived by then is taken, though the time is up.
    ///
    /// A thread wakes by itself. A task is woken for this by the scheduler's [timer](crate::Builder::timer), by a thread that waits as well, or by whoever calls
    /// [`tick`](Scheduler::tick): without any of these put the runtime's own time-out around it, which loses nothing.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.pending.until = Until::After(timeout);
        self
    }

    /// Until when it waits at most, on the scheduler's clock: as [`timeout`](Self::timeout). [`Timestamp::MAX`] means that it waits without a limit.
    pub fn deadline(mut self, deadline: Timestamp) -> Self {
        self.pending.until = Until::At(deadline);
        self
    }

    /// The place in the program that leases are recorded with, instead of that of the [`request`](Scheduler::request): for whoever asks
    /// on behalf of somebody else.
    pub fn call_site(mut self, site: &'static Location<'static>) -> Self {
        self.pending.site = site;
        self
    }

    #[inline]
    fn own(self) -> Pending<Arc<Core<R>>, R> {
        self.pending.with_core(Arc::clone(&self.scheduler.core))
    }
}

impl<'s, R: Resource, S: BuildHasher> Request<'s, R, S> {
    /// For the resource with this key, looked up now. If it is not in the fleet, or is removed during the wait, the answer is
    /// [`WaitError::NotFound`]. Until the request ends, the resource's memory is kept.
    pub fn key<Q>(mut self, key: &Q) -> Self
    where
        R::Key: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let core = self.pending.core;
        let hash = self.scheduler.hasher.hash_one(key);
        let guard = core.pin();
        let found = core.find(hash, key, &guard).and_then(|node| {
            core.settle(node);
            let pinned = core.home(node).lock().pin_node(node);
            pinned.then(|| Named::new(node))
        });
        drop(guard);
        self.pending
            .ask(found.map_or(Wish::Refused(WaitError::NotFound), |named| Wish::Named(Proven::new(named))));
        self
    }

    /// For a resource of the shard that `id` belongs to, or that is the id's own, as
    /// [`acquire_by_affinity`](Scheduler::acquire_by_affinity). What is returned while it waits is taken wherever it comes from.
    pub fn affinity<I: Hash + ?Sized>(mut self, id: &I) -> Self {
        self.pending.ask(Wish::Near(affinity_hash(id)));
        self
    }

    /// For a resource that `accepts` says yes to, instead of what was asked for before: a name or an affinity does not count any more.
    ///
    /// # Callbacks
    /// While the request waits, the filter is run by whoever has something to offer: in other threads, inside their returns, but
    /// outside every lock. If it panics, the wait is over, and the panic goes on where the request is waited for.
    ///
    /// It should be quick. Whoever comes while it is asked leaves his unit there, lent to nobody and eligible for nobody, to be gone on with by
    /// the one who asks. That one goes on like that with 16 units of others; where a filter would have to be asked about more, it is passed
    /// over: its request looks for itself then, in its own thread or when it is polled, and may be overtaken by those behind it. So a return
    /// takes as long as each filter before its taker needs for its own unit and for 16 more, at most, and for as many requests as come
    /// meanwhile; a unit is withheld for no longer than that.
    pub fn matching<F: FnMut(&R) -> bool + Send>(self, accepts: F) -> Request<'s, R, S, Matching<F>> {
        Request { scheduler: self.scheduler, pending: self.pending, kind: Matching(accepts) }
    }

    /// For `count` units at once, of whatever is best: instead of what was asked for before.
    ///
    /// It stands in the queue like others until its first unit comes; from then on it takes every unit that is returned until it
    /// has all of them, but for those that somebody before it in the queue wants by name or with a filter. So nothing is lent to
    /// anybody else who waits meanwhile, of whatever class, and for ever if `count` is more than the fleet can lend: give it a deadline.
    /// What it has got of a resource that is then drained or removed is taken back, and it waits for another.
    pub fn many(mut self, count: usize) -> Request<'s, R, S, Several> {
        self.pending.ask(Wish::Many(count));
        Request { scheduler: self.scheduler, pending: self.pending, kind: Several }
    }

    /// Blocks the thread until there is a lease, or there will be none.
    ///
    /// # Progress
    /// Blocking. If nobody waits and something is free, what an acquisition costs that does not wait; otherwise one allocation, the queue's
    /// mutex, and a look into each shard under its lock. The thread sleeps; it wakes for its lease, for its deadline, and, if it is the one
    /// that looks after the time, for what cools and what is overdue. It relies on no timer.
    ///
    /// # Callbacks
    /// The clock. [`Resource::priority`] of what it gets, whose panic comes out here, with the lease returned; of resources whose overdue
    /// leases it [takes back](crate::Overdue::Revoke), where a panic stops. A custom strategy. Filters and wakers of others who wait, when
    /// it finds something for them. None of them under a lock.
    ///
    /// # Errors
    /// [`WaitError`].
    pub fn wait(self) -> Result<Lease<'s, R>, WaitError> {
        let (core, site) = (self.pending.core, self.pending.site);
        Ok(Lease::asked_at(core, self.pending.wait()?.only(), site))
    }

    /// As [`wait`](Request::wait), for a lease that may outlive the scheduler.
    pub fn wait_owned(self) -> Result<OwnedLease<R>, WaitError> {
        let core = &self.scheduler.core;
        Ok(self.wait()?.into_owned(core))
    }

    /// A future that borrows nothing, for a lease that borrows nothing: to be spawned.
    #[inline]
    pub fn owned(self) -> AcquireOwned<R> {
        AcquireOwned(self.own())
    }
}

impl<'s, R: Resource, S> IntoFuture for Request<'s, R, S> {
    type Output = Result<Lease<'s, R>, WaitError>;
    type IntoFuture = Acquire<'s, R>;

    #[inline]
    fn into_future(self) -> Acquire<'s, R> {
        Acquire(self.pending)
    }
}

impl<'s, R: Resource, S, F: FnMut(&R) -> bool + Send> Request<'s, R, S, Matching<F>> {
    /// As [`Request::wait`]; the filter may borrow.
    ///
    /// # Errors
    /// [`WaitError`].
    pub fn wait(self) -> Result<Lease<'s, R>, WaitError> {
        let (core, site) = (self.pending.core, self.pending.site);
        let mut pending = self.pending;
        // SAFETY: `pending` is dropped before this returns or unwinds, and has its filter back then (`borrows`).
        #[allow(unsafe_code)]
        let filter = unsafe { Filter::borrowed(self.kind.0) };
        pending.borrows = true;
        pending.ask(Wish::Matching(Some(filter)));
        Ok(Lease::asked_at(core, pending.wait()?.only(), site))
    }

    /// As [`Request::wait_owned`]; the filter may borrow.
    pub fn wait_owned(self) -> Result<OwnedLease<R>, WaitError> {
        let core = &self.scheduler.core;
        Ok(self.wait()?.into_owned(core))
    }

    /// As [`Request::owned`].
    pub fn owned(self) -> AcquireOwned<R>
    where
        F: 'static,
    {
        let Request { scheduler, mut pending, kind } = self;
        pending.ask(Wish::Matching(Some(Filter::new(kind.0))));
        AcquireOwned(pending.with_core(Arc::clone(&scheduler.core)))
    }
}

impl<'s, R: Resource, S, F: FnMut(&R) -> bool + Send + 'static> IntoFuture
    for Request<'s, R, S, Matching<F>>
{
    type Output = Result<Lease<'s, R>, WaitError>;
    type IntoFuture = Acquire<'s, R>;

    fn into_future(self) -> Acquire<'s, R> {
        let mut pending = self.pending;
        pending.ask(Wish::Matching(Some(Filter::new(self.kind.0))));
        Acquire(pending)
    }
}

impl<'s, R: Resource, S> Request<'s, R, S, Several> {
    /// As [`Request::wait`].
    ///
    /// # Errors
    /// [`WaitError`].
    pub fn wait(self) -> Result<Vec<Lease<'s, R>>, WaitError> {
        let (core, site) = (self.pending.core, self.pending.site);
        Ok(leases(core, self.pending.wait()?, site))
    }

    /// As [`Request::wait_owned`].
    pub fn wait_owned(self) -> Result<Vec<OwnedLease<R>>, WaitError> {
        let core = &self.scheduler.core;
        Ok(self.wait()?.into_iter().map(|lease| lease.into_owned(core)).collect())
    }

    /// As [`Request::owned`].
    pub fn owned(self) -> AcquireManyOwned<R> {
        AcquireManyOwned(self.own())
    }
}

impl<'s, R: Resource, S> IntoFuture for Request<'s, R, S, Several> {
    type Output = Result<Vec<Lease<'s, R>>, WaitError>;
    type IntoFuture = AcquireMany<'s, R>;

    fn into_future(self) -> AcquireMany<'s, R> {
        AcquireMany(self.pending)
    }
}

impl<R: Resource, S, K> fmt::Debug for Request<'_, R, S, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").field("until", &self.pending.until).finish_non_exhaustive()
    }
}
