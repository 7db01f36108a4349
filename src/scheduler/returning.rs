//! How a unit of capacity comes back: by its guard, its token, or somebody else.
//!
//! A resource that is ranked by its load gets the rank of the new load in the critical section of the return, if that was
//! [forecast](Forecast): computed before, by user code, for the load that there was then, less one. If the load or the value is another
//! by the time the lock is held, the rank is set in a critical section of its own afterwards.

use std::ptr::NonNull;

use super::{
    core::Core,
    error::ReleaseError,
    held::Held,
    outcome_count,
    token::{Ticket, Token},
};
use crate::{
    node::{self, Moved, Node, State, Value},
    outcome::Outcome,
    rank::Priority,
    resource::Resource,
    shard::{Count, Forecast, Garbage, Lent, Pin, Shard},
};

/// A resource whose load has changed, and which is to be ranked anew.
pub struct Load<'a, R: Resource> {
    node: NonNull<Node<R>>,
    state: State,
    guard: Pin<'a>,
}

/// A unit that is about to be given back.
struct Unit<'a, R: Resource> {
    core: &'a Core<R>,
    node: NonNull<Node<R>>,
    value: NonNull<Value<R>>,
    deadline: Option<u64>,
    outcome: Option<Count>,
}

#[allow(unsafe_code)]
impl<'a, R: Resource> Unit<'a, R> {
    fn give_back(self, mut guard: Option<Pin<'a>>, forecast: Option<Forecast<R>>) -> Option<Load<'a, R>> {
        let Unit { core, node, value, deadline, outcome } = self;
        // SAFETY: rule 5 of `node`: the unit of capacity that is given back below has kept it until here.
        let alive = unsafe { node.as_ref() };
        let shard = core.home(alive);
        let lock = || match deadline {
            Some(_) => shard.lock_with_cooling(core.pin_for_events()),
            None => core.lock(shard),
        };
        let mut locked = lock();
        if guard.is_none() && locked.details(alive).limit != 1 {
            // An update has given it more units since it was lent. The guard must be older than the return.
            drop(locked);
            guard = Some(core.pin());
            locked = lock();
        }
        if deadline.is_none() && !core.waiters.gate().is_free() {
            drop(locked);
            return core.give_back_waited(node, value, guard.is_none(), outcome);
        }
        let (garbage, moved, ranked) = locked.give_back(alive, value, deadline, outcome, forecast.as_ref());
        drop(locked);
        core.gave_back(shard, node, moved, garbage, guard.filter(|_| !ranked))
    }
}

/// Gives a unit back if user code panics.
struct Anyhow<'a, R: Resource>(Option<Unit<'a, R>>);

impl<'a, R: Resource> Anyhow<'a, R> {
    /// It has not.
    fn calm(mut self) -> Unit<'a, R> {
        self.0.take().expect("taken once, here")
    }
}

impl<R: Resource> Drop for Anyhow<'_, R> {
    fn drop(&mut self) {
        if let Some(unit) = self.0.take() {
            // The rank stays that of the load before.
            drop(unit.give_back(None, None));
        }
    }
}

impl<R: Resource> Core<R> {
    /// Gives the resource the rank of its load after a lease was taken. Runs user code.
    #[inline]
    pub fn rerank_lent(&self, held: &Held<R>, lent: &Lent<R>) {
        if !held.exclusive && !lent.ranked {
            self.rerank_held(held, lent.rank, lent.state);
        }
    }

    fn rerank_held(&self, held: &Held<R>, lent_rank: u64, state: State) {
        let rank = held.resource().priority(state.in_flight()).rank();
        if rank != lent_rank {
            self.home(held.node()).lock().rerank(held.node(), held.value, state.in_flight(), rank);
        }
    }

    /// In a model: fails unless the lease's node and value are alive, which its unit of capacity or its pin answers for.
    #[inline(always)]
    pub fn witness(&self, held: &Held<R>) {
        #[cfg(any(loom, shuttle))]
        {
            self.map.reclaim().witness(held.node.as_ptr());
            self.map.reclaim().witness(held.value.as_ptr());
        }
        let _ = held;
    }

    /// Ends a lease: by its guard. An error says that the unit was returned, or taken back, before.
    #[inline]
    pub fn end(
        &self,
        held: &Held<R>,
        deadline: Option<u64>,
        outcome: Option<Count>,
    ) -> Result<(), ReleaseError> {
        self.witness(held);
        match held.token {
            None => {
                let is_usual = deadline.is_none()
                    && if held.exclusive {
                        self.give_back_usual(held, outcome)
                    } else {
                        self.give_back_loaded(held, outcome)
                    };
                if !is_usual {
                    self.give_back_anyhow(held, deadline, outcome);
                }
                Ok(())
            }
            Some(token) => self.end_pinned(held, token, deadline, outcome),
        }
    }

    /// The usual return: of an exclusive resource, with nobody waiting. `false`: it is not that, and nothing was done.
    #[inline(always)]
    fn give_back_usual(&self, held: &Held<R>, outcome: Option<Count>) -> bool {
        let node = held.node();
        let shard = self.home(node);
        let mut locked = self.lock(shard);
        // An update may have given it more units since it was lent.
        if locked.details(node).limit != 1 || !self.waiters.gate().is_free() {
            return false;
        }
        let (garbage, moved, _) = locked.give_back_in_line(node, held.value, None, outcome, None);
        locked.finish();
        let _ = self.gave_back(shard, held.node, moved, garbage, None);
        true
    }

    /// The usual return of one unit of several, as [`give_back`](Self::give_back) but that nothing goes through memory. `false`: it is
    /// not that, and nothing was done. Runs user code.
    #[inline(never)]
    fn give_back_loaded(&self, held: &Held<R>, outcome: Option<Count>) -> bool {
        let node = held.node();
        let in_flight = node.state.load().in_flight();
        if std::thread::panicking() || !node.is_shared() || in_flight == 0 {
            return false;
        }
        let guard = self.pin();
        let unit = Unit { core: self, node: held.node, value: held.value, deadline: None, outcome };
        let unit = Anyhow(Some(unit));
        let forecast = self.forecast(node, in_flight - 1, &guard);
        let _ = unit.calm();
        let shard = self.home(node);
        let mut locked = self.lock(shard);
        let load = if self.waiters.gate().is_free() {
            let (garbage, moved, ranked) =
                locked.give_back_in_line(node, held.value, None, outcome, Some(&forecast));
            locked.finish();
            self.gave_back(shard, held.node, moved, garbage, Some(guard).filter(|_| !ranked))
        } else {
            drop(locked);
            self.give_back_waited(held.node, held.value, false, outcome)
        };
        self.rerank_returned(load);
        true
    }

    #[inline(never)]
    fn give_back_anyhow(&self, held: &Held<R>, deadline: Option<u64>, outcome: Option<Count>) {
        let load = self.give_back(held.node, held.value, held.exclusive, deadline, outcome);
        self.rerank_returned(load);
    }

    /// A guard that has an entry in the token table: somebody may have returned the unit already; the pin ends in any case.
    #[cold]
    fn end_pinned(
        &self,
        held: &Held<R>,
        (slot, generation): (u32, u32),
        deadline: Option<u64>,
        outcome: Option<Count>,
    ) -> Result<(), ReleaseError> {
        let ended = self.tokens.end(slot, generation);
        let load = match ended {
            Ok(()) => {
                // No forecast: it is user code, and the pin is still to be undone.
                let guard = if held.exclusive { None } else { Some(self.pin()) };
                let unit = Unit { core: self, node: held.node, value: held.value, deadline, outcome };
                unit.give_back(guard, None)
            }
            Err(_) => None,
        };
        let garbage = self.home(held.node()).lock().unpin(held.node(), held.value);
        self.retire(garbage);
        self.rerank_returned(load);
        ended
    }

    /// Ends a lease: by its token.
    pub fn redeem(
        &self,
        token: Token,
        deadline: Option<u64>,
        outcome: Option<Count>,
    ) -> Result<(), ReleaseError> {
        let ticket = self.tokens.redeem(token)?;
        self.land(ticket, deadline, outcome);
        Ok(())
    }

    /// Returns the unit of a lease that somebody else than its guard has ended.
    pub fn land(&self, ticket: Ticket<R>, deadline: Option<u64>, outcome: Option<Count>) {
        let Ticket { node, value, exclusive } = ticket;
        let load = self.give_back(node, value, exclusive, deadline, outcome);
        self.rerank_returned(load);
    }

    /// The deadline that an outcome asks for, and what it counts as. Reads the clock, which is user code, before
    /// anything is changed.
    pub fn judge(&self, outcome: Outcome) -> (Option<u64>, Option<Count>) {
        let deadline = match outcome {
            Outcome::RateLimited { retry_after } => Some(self.after(retry_after)),
            _ => None,
        };
        (deadline, Some(outcome_count(outcome)))
    }

    /// Returns the unit. What is left to do, because it runs user code, is [`Core::rerank_returned`], after everything else.
    ///
    /// Runs user code for a resource that is ranked by its load. If that panics, the unit is returned all the same.
    #[allow(unsafe_code)]
    fn give_back(
        &self,
        node: NonNull<Node<R>>,
        value: NonNull<Value<R>>,
        exclusive: bool,
        deadline: Option<u64>,
        outcome: Option<Count>,
    ) -> Option<Load<'_, R>> {
        let unit = Unit { core: self, node, value, deadline, outcome };
        if exclusive {
            return unit.give_back(None, None);
        }
        // A resource that is ranked by its load is read before, and maybe once more after the unlock, when others may already
        // have removed it.
        let guard = self.pin();
        // SAFETY: rule 5 of `node`: the unit of capacity that is given back below has kept it until here.
        let alive = unsafe { node.as_ref() };
        let unit = Anyhow(Some(unit));
        let forecast = || {
            let in_flight = alive.state.load().in_flight();
            (alive.is_shared() && in_flight > 0).then(|| self.forecast(alive, in_flight - 1, &guard))
        };
        let forecast = if std::thread::panicking() {
            // A second panic would abort the process.
            node::quietly(forecast).flatten()
        } else {
            forecast()
        };
        unit.calm().give_back(Some(guard), forecast)
    }

    /// What follows a return, with the lock free. The guard, which is older than the return, is for a rank that depends on
    /// the load.
    #[inline]
    pub fn gave_back<'a>(
        &'a self,
        shard: &Shard<R>,
        node: NonNull<Node<R>>,
        moved: Moved,
        garbage: Garbage<R>,
        guard: Option<Pin<'a>>,
    ) -> Option<Load<'a, R>> {
        if moved.to.is_remarkable() {
            self.remark(shard, node, moved.to);
        }
        self.retire(garbage);
        let guard = guard.filter(|_| !moved.to.is_removed())?;
        Some(Load { node, state: moved.to, guard })
    }

    /// What else follows the return of a unit of a resource that is not as usual. The lock is free.
    #[cold]
    fn remark(&self, shard: &Shard<R>, node: NonNull<Node<R>>, state: State) {
        if state.is_held(node::Hold::Cooling) {
            self.note_earliest(shard);
        }
        if state.in_flight() == 0 && (state.is_held(node::Hold::Draining) || state.is_removed()) {
            self.drains.tell(node);
        }
    }

    /// Gives the resource the rank of its load after a return. Runs user code, maybe inside a `Drop`.
    pub fn rerank_returned(&self, load: Option<Load<'_, R>>) {
        let Some(Load { node, state, guard }) = load else { return };
        // SAFETY: rule 5 of `node`: the guard is older than the return, before which the node was not spent.
        #[allow(unsafe_code)]
        let node = unsafe { node.as_ref() };
        let rerank = || {
            let value = node.value(&guard);
            let rank = value.resource().priority(state.in_flight()).rank();
            // A hint: `rerank` looks again under the lock.
            if rank != node.rank() {
                self.home(node).lock().rerank(node, NonNull::from(value), state.in_flight(), rank);
            }
        };
        if std::thread::panicking() {
            // A second panic would abort the process. The resource keeps the rank it had.
            let _ = node::quietly(rerank);
        } else {
            rerank();
        }
    }
}
