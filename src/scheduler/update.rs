//! Replacing a resource's value, and removing a resource.

use std::{borrow::Borrow, hash::BuildHasher, hash::Hash, ptr::NonNull};

use super::{
    Scheduler,
    core::Core,
    error::{KeyError, Rejected, UpdateError},
};
use crate::{
    lookup::Keyed,
    node::{Node, Value},
    resource::Resource,
    shard::{Count, Forecast, Garbage, Gone, Pin},
};

/// What came of one attempt to replace a value.
enum Attempt<R: Resource> {
    Done,
    /// Another update came between.
    Changed,
    Refused(Rejected<R, UpdateError<R::Key>>),
}

impl<R: Resource> Core<R> {
    /// Replaces the value by one with the key `given`, with `expected` only if that is still the current one.
    fn try_update(
        &self,
        node: &Node<R>,
        given: R::Key,
        resource: R,
        expected: Option<NonNull<Value<R>>>,
        guard: &Pin<'_>,
    ) -> Attempt<R> {
        let capacity = resource.capacity();
        let Some(limit) = capacity.limit() else {
            let error = UpdateError::Capacity { key: given, capacity };
            return Attempt::Refused(Rejected { returned: resource, error });
        };
        self.expect_limit(limit);
        // An exclusive resource is ranked while it is free; others by their load at the transition, guessed here.
        let load = if limit == 1 { 0 } else { node.state.load().in_flight() };
        let value = Node::boxed_value(resource);
        let Forecast { rank, seen, .. } = self.rank_of(node, &value, load);
        self.settle(node);
        let shard = self.home(node);
        let mut locked = self.lock(shard);
        let outcome = locked.revalue(node, value, limit, rank, expected);
        let taken = if outcome.is_ok() { self.take_for_waiters(&mut locked, node) } else { None };
        drop(locked);
        let revalued = match outcome {
            Ok(revalued) => {
                // First: what follows may run user code.
                self.hand_on(taken, node, guard);
                revalued
            }
            Err((value, refused)) => {
                if refused.0.is_removed() {
                    let returned = value.into_resource();
                    return Attempt::Refused(Rejected {
                        returned,
                        error: UpdateError::NotFound { key: given },
                    });
                }
                return Attempt::Changed;
            }
        };
        if revalued.moved.to.is_held(crate::node::Hold::Cooling) {
            self.note_earliest(shard);
        }
        self.retire_in(revalued.garbage, guard);
        let load_then = revalued.moved.to.in_flight();
        if node.is_shared() && (load_then != load || node.seen() != seen) {
            // Ours, or a later one, whose updater asks it as well.
            let forecast = self.forecast(node, load_then, guard);
            shard.lock().rerank(node, &forecast);
        }
        Attempt::Done
    }

    /// The tail of a removal, by the one who won it.
    pub(super) fn forget(&self, node: &Node<R>, gone: Gone, guard: &Pin<'_>) {
        if self.health.is_some() {
            if !gone.alone {
                self.strike_all(node);
            }
            self.trim_ejected();
        }
        // Somebody who wants to insert the key may have been faster.
        let _ = self.map.remove_item(node, guard);
        self.fail_named(node);
        let garbage = if gone.alone { Garbage::node(node) } else { self.home(node).lock().unlink(node) };
        // In the caller's section: one of its own would be left on the long way.
        self.retire_in(garbage, guard);
    }
}

/// What a removal found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Removed {
    /// Leases that were out at that moment. They stay valid.
    pub in_flight: u32,
}

impl<R: Resource, S: BuildHasher> Scheduler<R, S> {
    /// Replaces the value of the resource with the same key, and ranks it anew. Leases keep the value they were lent with.
    ///
    /// Whatever the current value is, it is replaced: to change a value in terms of itself use
    /// [`update_with`](Scheduler::update_with).
    ///
    /// Blocking on the home shard's lock; O(log n). One allocation, outside the lock. Holds, leases and the place among
    /// equals are not touched.
    ///
    /// # Callbacks
    /// The value's `key`, `capacity` and `priority`, `Hash` and `Eq` of the key, before anything is changed; if one panics,
    /// the resource is as before. `priority` once more afterwards if the load has changed meanwhile: a panic there leaves the
    /// update done, with the rank of the load before.
    ///
    /// # Errors
    /// The value comes back with an [`UpdateError`].
    pub fn update(&self, resource: R) -> Result<(), Rejected<R, UpdateError<R::Key>>> {
        let core = &*self.core;
        if core.is_closed() {
            return Err(Rejected { returned: resource, error: UpdateError::Closed });
        }
        let key = resource.key();
        let guard = core.pin();
        let Some(node) = core.find(self.hasher.hash_one(&key), &key, &guard) else {
            return Err(Rejected { returned: resource, error: UpdateError::NotFound { key } });
        };
        match core.try_update(node, key, resource, None, &guard) {
            Attempt::Done => Ok(()),
            Attempt::Refused(rejected) => Err(rejected),
            Attempt::Changed => unreachable!("no value was expected"),
        }
    }

    /// Replaces the value of the resource with this key by `change` of it: no update in between is lost.
    ///
    /// Lock-free but for the home shard's lock; O(log n) per attempt.
    ///
    /// # Callbacks
    /// `change` runs outside every lock, and **more than once** if another update comes between. If it panics, the
    /// resource is as before. Otherwise as [`update`](Scheduler::update).
    ///
    /// # Errors
    /// [`UpdateError`], without the value: `change` made it, and would make it again.
    ///
    /// ```
    /// use leasehold::{Entry, Scheduler};
    ///
    /// let scheduler = Scheduler::<Entry<&str, u32, u64>>::builder().build()?;
    /// scheduler.insert(Entry::new("key", 0, 10))?;
    /// scheduler.update_with("key", |old| Entry { value: old.value + 5, ..*old })?;
    /// assert_eq!(scheduler.get("key").expect("inserted").value, 15);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn update_with<Q>(
        &self,
        key: &Q,
        mut change: impl FnMut(&R) -> R,
    ) -> Result<(), UpdateError<Q::Owned>>
    where
        R::Key: Borrow<Q>,
        Q: Hash + Eq + ToOwned + ?Sized,
    {
        let core = &*self.core;
        if core.is_closed() {
            return Err(UpdateError::Closed);
        }
        let guard = core.pin();
        let node = core
            .find(self.hasher.hash_one(key), key, &guard)
            .ok_or_else(|| UpdateError::NotFound { key: key.to_owned() })?;
        loop {
            let old = node.value(&guard);
            let new = change(old.resource());
            let given = new.key();
            if given != *node.key() {
                return Err(UpdateError::KeyChanged { key: key.to_owned() });
            }
            match core.try_update(node, given, new, Some(NonNull::from(old)), &guard) {
                Attempt::Done => return Ok(()),
                Attempt::Changed => {}
                Attempt::Refused(rejected) => return Err(rejected.error.about(key.to_owned())),
            }
        }
    }

    /// Takes the resource with this key out of the fleet, also while it is lent: its leases stay valid, and their return
    /// changes nothing but counts. The key may be inserted again at once.
    ///
    /// Of several callers exactly one succeeds. Blocking on the home shard's lock (twice if it is lent or waited for); O(log n). The value is dropped
    /// when no lease and no reader needs it any more, maybe on another thread.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn remove<Q>(&self, key: &Q) -> Result<Removed, KeyError<Q::Owned>>
    where
        R::Key: Borrow<Q>,
        Q: Hash + Eq + ToOwned + ?Sized,
    {
        self.with_member(key, |core, node, guard| {
            let mut locked = core.lock(core.home(node));
            let gone = locked.remove(node, Count::Removed).ok()?;
            let until = core.take_over(&mut locked, node);
            drop(locked);
            core.roster.subtract();
            if let Some(until) = until {
                core.taken_over(node, until);
            }
            core.forget(node, gone, guard);
            Some(Removed { in_flight: gone.in_flight })
        })
    }
}
