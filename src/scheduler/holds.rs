//! Holds: reasons why a resource is not lent. Each operation adds or clears its own reason and nothing else.

use std::{borrow::Borrow, hash::BuildHasher, hash::Hash, ptr::NonNull, time::Duration};

use super::{Scheduler, core::Core, error::KeyError};
use crate::{
    node::{Hold, Moved, Node, Refused},
    resource::Resource,
    shard::{Count, Locked, Pin},
};

impl<R: Resource> Core<R> {
    /// Adds a hold that no moment ends. The lock is its home's.
    pub(super) fn withhold(
        &self,
        locked: &mut Locked<'_, R>,
        node: &Node<R>,
        hold: Hold,
        count: Count,
    ) -> Result<Moved, Refused> {
        let moved = locked.hold(node, hold, count)?;
        self.forget_median(locked, node);
        Ok(moved)
    }
}

impl<R: Resource, S: BuildHasher> Scheduler<R, S> {
    /// Runs `f` on the visible node with this key, absorbed; `None` from it means that the node is gone.
    pub(super) fn with_member<Q, T>(
        &self,
        key: &Q,
        f: impl FnOnce(&Core<R>, &Node<R>, &Pin<'_>) -> Option<T>,
    ) -> Result<T, KeyError<Q::Owned>>
    where
        R::Key: Borrow<Q>,
        Q: Hash + Eq + ToOwned + ?Sized,
    {
        if self.core.is_closed() {
            return Err(KeyError::Closed);
        }
        self.with_node(key, f)
    }

    /// As [`with_member`](Self::with_member), on a closed scheduler too.
    pub(super) fn with_node<Q, T>(
        &self,
        key: &Q,
        f: impl FnOnce(&Core<R>, &Node<R>, &Pin<'_>) -> Option<T>,
    ) -> Result<T, KeyError<Q::Owned>>
    where
        R::Key: Borrow<Q>,
        Q: Hash + Eq + ToOwned + ?Sized,
    {
        let core = &*self.core;
        let hash = self.hasher.hash_one(key);
        let guard = core.pin();
        core.find(hash, key, &guard)
            .and_then(|node| {
                core.settle(node);
                f(core, node, &guard)
            })
            .ok_or_else(|| KeyError::NotFound { key: key.to_owned() })
    }

    fn hold<Q>(&self, key: &Q, hold: Hold, count: Count) -> Result<bool, KeyError<Q::Owned>>
    where
        R::Key: Borrow<Q>,
        Q: Hash + Eq + ToOwned + ?Sized,
    {
        self.with_member(key, |core, node, _| {
            let mut locked = core.lock(core.home(node));
            let moved = core.withhold(&mut locked, node, hold, count).ok()?;
            // An ejection by hand has no end: it takes over one that has.
            let until = if hold == Hold::Ejected { core.take_over(&mut locked, node) } else { None };
            drop(locked);
            if let Some(until) = until {
                core.taken_over(node, until);
            }
            if hold == Hold::Draining {
                core.take_parts_back();
            }
            Some(moved.from != moved.to)
        })
    }

    fn clear<Q>(&self, key: &Q, hold: Hold, count: Count) -> Result<bool, KeyError<Q::Owned>>
    where
        R::Key: Borrow<Q>,
        Q: Hash + Eq + ToOwned + ?Sized,
    {
        self.with_member(key, |core, node, guard| {
            let shard = core.home(node);
            let mut locked = core.lock(shard);
            let moved = locked.clear(node, hold, count).ok()?;
            let until = if hold == Hold::Ejected { core.take_over(&mut locked, node) } else { None };
            let taken = core.take_for_waiters(&mut locked, node);
            drop(locked);
            // First: what follows may run user code.
            core.hand_on(taken, node, guard);
            if let Some(until) = until {
                core.taken_over(node, until);
            }
            if moved.to.is_held(Hold::Cooling) {
                // What is left may be a deadline alone.
                core.note_earliest(shard);
            }
            if hold == Hold::Draining && moved.from != moved.to {
                core.drains.tell(NonNull::from(node));
            }
            Some(moved.from != moved.to)
        })
    }

    /// Takes the resource out of rotation until [`include`](Scheduler::include). Legal at any time, also while it is lent:
    /// leases stay valid.
    ///
    /// Idempotent: `Ok(true)` if it was not excluded before. This holds for all operations on holds. Blocking on the home
    /// shard's lock; O(log n); no allocation but in the error.
    ///
    /// # Errors
    /// [`KeyError`].
    ///
    /// ```
    /// use leasehold::{Entry, Scheduler};
    ///
    /// let scheduler = Scheduler::<Entry<&str, u32, ()>>::builder().build()?;
    /// scheduler.insert(Entry::new("a", 1, ()))?;
    /// let lease = scheduler.acquire()?;
    /// assert!(scheduler.exclude("a")?);
    /// drop(lease);
    /// assert!(scheduler.acquire().is_err(), "a return clears no hold");
    /// assert!(scheduler.include("a")?);
    /// assert!(scheduler.acquire().is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn exclude<Q>(&self, key: &Q) -> Result<bool, KeyError<Q::Owned>>
    where
        R::Key: Borrow<Q>,
        Q: Hash + Eq + ToOwned + ?Sized,
    {
        self.hold(key, Hold::Excluded, Count::Excluded)
    }

    /// Ends an exclusion, and nothing else: not a lease, not cooling. As [`exclude`](Scheduler::exclude) otherwise.
    pub fn include<Q>(&self, key: &Q) -> Result<bool, KeyError<Q::Owned>>
    where
        R::Key: Borrow<Q>,
        Q: Hash + Eq + ToOwned + ?Sized,
    {
        self.clear(key, Hold::Excluded, Count::Included)
    }

    /// Lets the resource rest for `duration` from now on; it becomes eligible by itself afterwards. If it is cooling
    /// already, the later deadline counts: extending never shortens.
    ///
    /// `Ok(true)` if it was not cooling, or the deadline moved. No timer runs: an acquisition, a [`peek`](Scheduler::peek)
    /// finds what is due. As [`exclude`](Scheduler::exclude) otherwise.
    ///
    /// # Callbacks
    /// The clock, before anything is changed.
    pub fn cool<Q>(&self, key: &Q, duration: Duration) -> Result<bool, KeyError<Q::Owned>>
    where
        R::Key: Borrow<Q>,
        Q: Hash + Eq + ToOwned + ?Sized,
    {
        self.with_member(key, |core, node, _| {
            let deadline = core.after(duration);
            let shard = core.home(node);
            let changed = shard.lock_with_cooling(core.pin_for_events()).cool(node, deadline).ok()?;
            core.note_earliest(shard);
            Some(changed)
        })
    }

    /// Ends cooling before its deadline. As [`include`](Scheduler::include) otherwise.
    pub fn warm<Q>(&self, key: &Q) -> Result<bool, KeyError<Q::Owned>>
    where
        R::Key: Borrow<Q>,
        Q: Hash + Eq + ToOwned + ?Sized,
    {
        self.clear(key, Hold::Cooling, Count::Warmed)
    }

    /// Takes an unhealthy resource out until [`readmit`](Scheduler::readmit): a reason of its own, so that a health check
    /// and an operator do not undo each other's work. As [`exclude`](Scheduler::exclude) otherwise.
    ///
    /// One that the [rules](crate::Ejection) have ejected already stays so until it is readmitted by hand (and the answer is `false`).
    pub fn eject<Q>(&self, key: &Q) -> Result<bool, KeyError<Q::Owned>>
    where
        R::Key: Borrow<Q>,
        Q: Hash + Eq + ToOwned + ?Sized,
    {
        self.hold(key, Hold::Ejected, Count::Ejected)
    }

    /// Ends an ejection. As [`include`](Scheduler::include) otherwise.
    pub fn readmit<Q>(&self, key: &Q) -> Result<bool, KeyError<Q::Owned>>
    where
        R::Key: Borrow<Q>,
        Q: Hash + Eq + ToOwned + ?Sized,
    {
        self.clear(key, Hold::Ejected, Count::Readmitted)
    }

    /// Lends the resource no more, so that its leases run out, and does not wait for that:
    /// [`drain_timeout`](Scheduler::drain_timeout) and [`drain_async`](Scheduler::drain_async) do,
    /// [`drain_all`](Scheduler::drain_all) for the whole fleet. [`snapshot`](Scheduler::snapshot) and
    /// [`remove`](Scheduler::remove) tell how many are left. As [`exclude`](Scheduler::exclude) otherwise.
    pub fn drain<Q>(&self, key: &Q) -> Result<bool, KeyError<Q::Owned>>
    where
        R::Key: Borrow<Q>,
        Q: Hash + Eq + ToOwned + ?Sized,
    {
        self.hold(key, Hold::Draining, Count::Drained)
    }

    /// Lends a draining resource again. As [`include`](Scheduler::include) otherwise.
    pub fn undrain<Q>(&self, key: &Q) -> Result<bool, KeyError<Q::Owned>>
    where
        R::Key: Borrow<Q>,
        Q: Hash + Eq + ToOwned + ?Sized,
    {
        self.clear(key, Hold::Draining, Count::Undrained)
    }
}
