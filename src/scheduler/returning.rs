//! How a unit of capacity comes back: by its guard, its token, or somebody else.
//!
//! A resource that is ranked by its load gets the rank of the new load in the critical section of the return, if that was
//! [forecast](Forecast): computed before, by user code, for the load that there was then, less one. If the load or the value is another
//! by the time the lock is held, the rank is set in a critical section of its own afterwards.

use std::{ptr::NonNull, time::Duration};

use super::{
    core::Core,
    error::ReleaseError,
    health::Told,
    held::Held,
    outcome_count,
    token::{Ticket, Token},
};
use crate::{
    node::{self, Moved, Node, State, Value},
    outcome::Outcome,
    resource::Resource,
    shard::{Count, Forecast, Garbage, Lent, Locked, Pin, Shard},
};

/// A resource whose load has changed, and which is to be ranked anew.
pub struct Load<'a, R: Resource> {
    pub(super) node: NonNull<Node<R>>,
    pub(super) state: State,
    pub(super) guard: Pin<'a>,
}

/// How a lease ends.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ending {
    /// The resource cools until then.
    deadline: Option<u64>,
    /// What it counts as.
    count: Option<Count>,
    /// What is to be judged.
    told: Option<Told>,
    /// An outcome that nobody remembers: the resource may have a rule for it. Without one it cools until the moment beside it.
    plain: Option<(Outcome, Option<u64>)>,
}

impl Ending {
    /// Taken back.
    pub fn revoked() -> Self {
        Ending { count: Some(Count::Revoked), ..Ending::default() }
    }

    /// The resource cools until `deadline` at least.
    pub fn and_rest_until(self, deadline: Option<u64>) -> Self {
        Ending { deadline: self.deadline.max(deadline), ..self }
    }
}

/// A unit that is about to be given back.
struct Unit<'a, R: Resource> {
    core: &'a Core<R>,
    node: NonNull<Node<R>>,
    value: NonNull<Value<R>>,
    ending: Ending,
}

#[allow(unsafe_code)]
impl<'a, R: Resource> Unit<'a, R> {
    fn give_back(self, mut guard: Option<Pin<'a>>, forecast: Option<Forecast<R>>) -> Option<Load<'a, R>> {
        let Unit { core, node, value, ending: Ending { deadline, count, told, plain } } = self;
        // SAFETY: rules 5 and 6 of `node`: the unit of capacity that is given back below has kept both until here.
        let (alive, lent) = unsafe { (node.as_ref(), value.as_ref()) };
        let plain = plain.and_then(|(outcome, until)| core.rest_by_itself(lent.resource(), outcome, until));
        let deadline = deadline.max(plain);
        let shard = core.home(alive);
        let report = told.and_then(|told| core.report(alive, lent.resource(), &told));
        if report.is_some() && guard.is_none() {
            // The node is needed after the return.
            guard = Some(core.pin());
        }
        let lock = || match (deadline, &report) {
            (None, None) => core.lock(shard),
            _ => shard.lock_with_cooling(core.pin_for_events()),
        };
        let mut locked = lock();
        if guard.is_none() && alive.is_shared() {
            // An update has given it more units since it was lent. The guard must be older than the return.
            drop(locked);
            guard = Some(core.pin());
            locked = lock();
        }
        let verdict = report.as_ref().map(|report| core.pass_judgement(&mut locked, alive, report));
        let deadline = deadline.max(verdict.and_then(|verdict| verdict.cool));
        let eject = verdict.is_some_and(|verdict| verdict.eject.is_some());
        if deadline.is_none() && !eject && !core.waiters.gate().is_free() {
            if let Some((verdict, report)) = verdict.zip(report) {
                let due = core.after_judgement(&mut locked, alive, &verdict, report.now);
                drop(locked);
                core.enter_verdict(alive, due);
            } else {
                drop(locked);
            }
            let load = core.give_back_waited(node, value, guard.is_none(), count);
            if let Some(guard) = guard.filter(|_| verdict.is_some_and(|verdict| verdict.ramps)) {
                // A successful probe gives it more units than the one that was handed on.
                core.offer_node(alive, &guard);
            }
            return load;
        }
        let (garbage, moved, ranked) =
            locked.give_back(alive, value, (deadline, eject), count, forecast.as_ref());
        let Some((verdict, report)) = verdict.zip(report) else {
            drop(locked);
            return core.gave_back(shard, node, moved, garbage, guard.filter(|_| !ranked));
        };
        let due = core.after_judgement(&mut locked, alive, &verdict, report.now);
        drop(locked);
        core.enter_verdict(alive, due);
        // With the outcome the forecast has become false, if outcomes have a say.
        let is_ranked_anew = alive.is_shared() && !ranked;
        core.gave_back(shard, node, moved, garbage, guard.filter(|_| is_ranked_anew))
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

/// As [`Anyhow`], of a lease that ends as usual. Nothing else is made before it has to be.
struct Usual<'a, R: Resource> {
    core: &'a Core<R>,
    held: &'a Held<R>,
    outcome: Option<Count>,
}

impl<R: Resource> Usual<'_, R> {
    /// User code has not panicked.
    fn calm(self) {
        std::mem::forget(self);
    }
}

impl<R: Resource> Drop for Usual<'_, R> {
    #[cold]
    fn drop(&mut self) {
        let ending = Ending { count: self.outcome, ..Ending::default() };
        let unit = Unit { core: self.core, node: self.held.node, value: self.held.value, ending };
        // The rank stays that of the load before.
        drop(unit.give_back(None, None));
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
        let forecast = self.rank_of(held.node(), held.value(), state.in_flight());
        if forecast.rank != lent_rank {
            self.home(held.node()).lock().rerank(held.node(), &forecast);
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

    /// This call ends the lease. Only then is it known how long that was. Answers whether the return begins a sample of the delay.
    #[inline(always)]
    fn note_end(&self, held: &Held<R>) -> bool {
        #[cfg(feature = "telemetry")]
        if held.since > 0 {
            return self.lease_ended(held.since);
        }
        let _ = held;
        false
    }

    /// Gives the unit of a lease back, after which a sample of the delay begins.
    #[cfg(feature = "telemetry")]
    #[cold]
    fn give_back_sampled(&self, held: &Held<R>, ending: &Ending) {
        // Older than the return: the node is looked at after it.
        let guard = self.pin();
        let before = held.node().state.load();
        self.give_back_anyhow(held, ending);
        self.begin_delay(held.node, before, &guard);
    }

    #[cfg(not(feature = "telemetry"))]
    fn give_back_sampled(&self, _: &Held<R>, _: &Ending) {}

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
                if self.note_end(held) {
                    self.give_back_sampled(held, &Ending { deadline, count: outcome, ..Ending::default() });
                    return Ok(());
                }
                let is_usual = deadline.is_none()
                    && if held.exclusive {
                        self.give_back_usual(held, outcome)
                    } else {
                        self.give_back_loaded(held, outcome)
                    };
                if !is_usual {
                    self.give_back_anyhow(held, &Ending { deadline, count: outcome, ..Ending::default() });
                }
                Ok(())
            }
            Some(token) => {
                self.end_pinned(held, token, &Ending { deadline, count: outcome, ..Ending::default() })
            }
        }
    }

    /// As [`end`](Self::end), with an outcome that may have to be judged.
    #[inline]
    pub fn conclude(&self, held: &Held<R>, ending: &Ending) -> Result<(), ReleaseError> {
        if ending.told.is_none() && ending.plain.is_none() {
            return self.end(held, ending.deadline, ending.count);
        }
        self.witness(held);
        match held.token {
            None => {
                if self.note_end(held) {
                    self.give_back_sampled(held, ending);
                } else {
                    self.give_back_anyhow(held, ending);
                }
                Ok(())
            }
            Some(token) => self.end_pinned(held, token, ending),
        }
    }

    /// The usual return: of an exclusive resource that is not ranked by outcomes. `false`: it is not that, and nothing was done.
    #[inline(always)]
    fn give_back_usual(&self, held: &Held<R>, outcome: Option<Count>) -> bool {
        let node = held.node();
        let shard = self.home(node);
        let mut locked = self.lock(shard);
        // An update may have given it more units since it was lent.
        let owned = locked.details(node);
        let has_more = node.is_shared() && !node.is_single(owned.limit);
        if has_more {
            return false;
        }
        let gate = self.waiters.gate();
        if !gate.is_free() {
            self.hand_over(locked, gate, held, outcome);
            return true;
        }
        let (garbage, moved, _) =
            locked.give_back_in_line(node, owned, held.value, (None, false), outcome, None);
        // A node that is spent has given its slot up, and is the best of nothing.
        locked.finish_after(node, owned.slot);
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
        let unit = Usual { core: self, held, outcome };
        let forecast = self.forecast(node, in_flight - 1, &guard);
        unit.calm();
        let shard = self.home(node);
        let mut locked = self.lock(shard);
        let load = if self.waiters.gate().is_free() {
            let owned = locked.details(node);
            let (garbage, moved, ranked) =
                locked.give_back_in_line(node, owned, held.value, (None, false), outcome, Some(&forecast));
            Locked::note_nothing_out(node, moved);
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
    fn give_back_anyhow(&self, held: &Held<R>, ending: &Ending) {
        let load = self.give_back(held.node, held.value, held.exclusive, ending);
        self.rerank_returned(load);
    }

    /// A guard that has an entry in the token table: somebody may have returned the unit already; the pin ends in any case.
    #[cold]
    fn end_pinned(
        &self,
        held: &Held<R>,
        (slot, generation): (u32, u32),
        ending: &Ending,
    ) -> Result<(), ReleaseError> {
        let ended = self.tokens.end(slot, generation);
        let load = match ended {
            Ok(()) => {
                let _ = self.note_end(held);
                // No forecast: it is user code, and the pin is still to be undone.
                let guard = if held.exclusive { None } else { Some(self.pin()) };
                let unit = Unit { core: self, node: held.node, value: held.value, ending: *ending };
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
    pub fn redeem(&self, token: Token, ending: &Ending) -> Result<(), ReleaseError> {
        let ticket = self.tokens.redeem(token)?;
        self.land(ticket, ending);
        Ok(())
    }

    /// Returns the unit of a lease that somebody else than its guard has ended.
    ///
    /// It counts as held until now, whatever its guard does later. A return by somebody else begins no sample of the delay.
    pub fn land(&self, ticket: Ticket<R>, ending: &Ending) {
        let Ticket { node, value, exclusive, .. } = ticket;
        #[cfg(feature = "telemetry")]
        if ticket.since > 0 {
            let _ = self.lease_ended(ticket.since);
        }
        let load = self.give_back(node, value, exclusive, ending);
        self.rerank_returned(load);
    }

    /// What an outcome asks for. Reads the clock, which is user code, before anything is changed.
    #[inline]
    pub fn judge(&self, outcome: Outcome) -> Ending {
        let count = Some(outcome_count(outcome));
        if self.health.is_some() {
            let told = Told { outcome, now: self.now(), draw: self.cell().draw_below(1 << 16) as u16 };
            return Ending { count, told: Some(told), ..Ending::default() };
        }
        let plain = match outcome {
            Outcome::RateLimited { retry_after } => Some((outcome, self.rest(retry_after))),
            Outcome::Failed => Some((outcome, None)),
            _ => None,
        };
        Ending { count, plain, ..Ending::default() }
    }

    /// Until when a resource of which nothing is remembered cools: each outcome is the first. Asks it, and the clock if it says so; a panic
    /// of either stops here: it may be too late to undo anything.
    fn rest_by_itself(&self, resource: &R, outcome: Outcome, until: Option<u64>) -> Option<u64> {
        let own = node::quietly(|| {
            let rest = resource.cooldown()?.rest(outcome, 1)?;
            Some(self.rest(Duration::from_nanos(rest)))
        });
        own.flatten().unwrap_or(until)
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
        ending: &Ending,
    ) -> Option<Load<'_, R>> {
        let unit = Unit { core: self, node, value, ending: *ending };
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
            let forecast = self.forecast(node, state.in_flight(), &guard);
            // A hint: `rerank` looks again under the lock.
            if forecast.rank != node.rank() {
                self.home(node).lock().rerank(node, &forecast);
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
