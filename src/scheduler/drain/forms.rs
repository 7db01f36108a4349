//! Draining and waiting for it.

use std::{
    borrow::Borrow,
    hash::{BuildHasher, Hash},
    ptr::NonNull,
    time::Duration,
};

use super::{progress::Drain, report::DrainReport, sweep};
use crate::{
    node::Hold,
    resource::Resource,
    scheduler::{Scheduler, error::KeyError},
    shard::Count,
    sync::Timestamp,
};

impl<R: Resource, S: BuildHasher> Scheduler<R, S> {
    /// Drains one resource and waits until its leases have come back, for at most `timeout`.
    ///
    /// As [`drain`](Scheduler::drain), which does not wait, it only adds a hold: the resource stays in the fleet, draining, whether
    /// the leases have come back or not. If it is removed meanwhile, its leases are waited for all the same. Works on a closed scheduler
    /// too.
    ///
    /// # Callbacks
    /// The clock, before anything is changed and after each wake-up; `Clone` of the key, for the report.
    ///
    /// # Errors
    /// [`KeyError::NotFound`]. What is still out when time is over is no error, but in the report.
    ///
    /// ```
    /// use leasehold::{Entry, Scheduler};
    /// use std::time::Duration;
    ///
    /// let scheduler = Scheduler::<Entry<&str, u32, ()>>::builder().build()?;
    /// scheduler.insert(Entry::new("a", 1, ()))?;
    /// let lease = scheduler.acquire()?;
    /// let report = scheduler.drain_timeout("a", Duration::from_millis(1))?;
    /// assert_eq!(report.outstanding[0].in_flight, 1);
    /// drop(lease);
    /// assert!(scheduler.drain_timeout("a", Duration::from_millis(1))?.is_drained());
    /// assert!(scheduler.acquire().is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn drain_timeout<Q>(
        &self,
        key: &Q,
        timeout: Duration,
    ) -> Result<DrainReport<R::Key>, KeyError<Q::Owned>>
    where
        R::Key: Borrow<Q>,
        Q: Hash + Eq + ToOwned + ?Sized,
    {
        let deadline = self.core.after(timeout);
        Ok(self.drain_async(key)?.wait_until(deadline))
    }

    /// As [`drain_timeout`](Scheduler::drain_timeout), until a moment on the scheduler's clock.
    ///
    /// # Errors
    /// As there.
    pub fn drain_deadline<Q>(
        &self,
        key: &Q,
        deadline: Timestamp,
    ) -> Result<DrainReport<R::Key>, KeyError<Q::Owned>>
    where
        R::Key: Borrow<Q>,
        Q: Hash + Eq + ToOwned + ?Sized,
    {
        Ok(self.drain_async(key)?.wait_until(deadline.as_nanos()))
    }

    /// As [`drain_timeout`](Scheduler::drain_timeout), to be waited for as a task, without a limit of its own. The resource drains from
    /// this call on, not from the first poll.
    ///
    /// # Errors
    /// As there.
    pub fn drain_async<Q>(&self, key: &Q) -> Result<Drain<R>, KeyError<Q::Owned>>
    where
        R::Key: Borrow<Q>,
        Q: Hash + Eq + ToOwned + ?Sized,
    {
        let mut drain = Drain::new(&self.core);
        self.with_node(key, |core, node, _| {
            let mut locked = core.lock(core.home(node));
            // D1.
            let _ = core.withhold(&mut locked, node, Hold::Draining, Count::Drained).ok()?;
            let pinned = locked.pin_node(node);
            debug_assert!(pinned, "what is held is a member");
            drop(locked);
            core.take_parts_back();
            drain.add(NonNull::from(node));
            Some(())
        })?;
        Ok(drain)
    }

    /// Drains the whole fleet, and waits until every lease has come back, those on removed resources included, until `deadline` at
    /// most.
    ///
    /// From then on nothing is lent, until [`undrain_all`](Scheduler::undrain_all): every resource drains, and one that is **inserted
    /// later is in the fleet, but draining too**. [`undrain`](Scheduler::undrain) lets a single one be lent again. Works on a
    /// closed scheduler too: after [`close`](Scheduler::close) this waits for what is still out.
    ///
    /// The report counts all that is out, and names the holders only with [`max_hold`](crate::Builder::max_hold): without it no lease is recorded.
    /// A unit that was handed to a task which has not polled since is counted, but recorded nowhere, so it has no holder to be named.
    ///
    /// O(resources) to begin with, a few at a time under each shard's lock; then it sleeps, and is woken once for each resource at most.
    ///
    /// # Consistency
    /// An acquisition that begins after all holds are set finds nothing. One that has begun before may still succeed, and is then
    /// waited for as any other.
    ///
    /// # Callbacks
    /// As [`drain_timeout`](Scheduler::drain_timeout).
    ///
    /// ```
    /// use leasehold::{Entry, Scheduler};
    /// use std::time::Duration;
    ///
    /// let scheduler = Scheduler::<Entry<&str, u32, ()>>::builder().max_hold(Duration::from_secs(60)).build()?;
    /// scheduler.insert(Entry::new("a", 1, ()))?;
    /// let _lost = scheduler.acquire()?.into_token();
    /// let report = scheduler.drain_all_timeout(Duration::from_millis(1));
    /// assert_eq!(report.leases(), 1);
    /// // Says which resource, and where in the program its lease was asked for.
    /// println!("{report}");
    /// scheduler.insert(Entry::new("b", 1, ()))?;
    /// assert!(scheduler.acquire().is_err());
    /// assert_eq!(scheduler.undrain_all(), 2);
    /// assert_eq!(*scheduler.acquire()?.key(), "b");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn drain_all(&self, deadline: Timestamp) -> DrainReport<R::Key> {
        self.drain_all_async().wait_until(deadline.as_nanos())
    }

    /// As [`drain_all`](Scheduler::drain_all), for at most `timeout`.
    pub fn drain_all_timeout(&self, timeout: Duration) -> DrainReport<R::Key> {
        let deadline = self.core.after(timeout);
        self.drain_all_async().wait_until(deadline)
    }

    /// As [`drain_all`](Scheduler::drain_all), to be waited for as a task, without a limit of its own. The fleet drains from this
    /// call on, not from the first poll.
    pub fn drain_all_async(&self) -> Drain<R> {
        sweep::drain_all(&self.core)
    }

    /// Whether somebody drains the whole fleet, newcomers included. As of some moment.
    #[cfg(feature = "cluster")]
    pub(crate) fn drains_all(&self) -> bool {
        self.core.roster.newcomers_drain()
    }

    /// Ends the draining of every resource, whoever began it, and of those to come. Answers how many were draining.
    ///
    /// One after another: not of one moment. At the same time as [`drain_all`](Scheduler::drain_all) it leaves some of the
    /// fleet draining, or none, or all. On a closed scheduler it changes nothing, and answers 0.
    pub fn undrain_all(&self) -> usize {
        if self.core.is_closed() { 0 } else { sweep::undrain_all(&self.core) }
    }
}
