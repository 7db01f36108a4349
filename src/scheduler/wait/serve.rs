//! A unit looks for a taker. Steps H1 to H6 of the module header.

use std::{any::Any, ptr::NonNull};

use super::{
    error::WaitError,
    filter::Filter,
    queue::{Brought, Gate, Left, Next, Order, QueueGuard, Search},
    waiter::{Named, Units, Waiter},
    work::{Came, Work},
};
use crate::{
    node::{Hold, Node, State, Value, quietly},
    resource::Resource,
    scheduler::{
        core::Core,
        held::{Held, node_of},
        returning::Load,
    },
    shard::{Count, Lent, Locked, Pin},
    sync::Arc,
};

/// What a search has found.
enum Found<'q, R: Resource> {
    /// This one has left the queue for the unit, or collects it.
    Claimed(Left<R>),
    /// Somebody would take it.
    Wanted,
    /// Nobody, of all who had registered by this ticket: that of the beginning of the search.
    Nobody(u64),
    /// The resource was removed, or is held, since the unit was taken: it is not to be handed over.
    Withheld,
    /// The filter of this one is away: the unit is to be left there, before the mutex is free.
    Away(QueueGuard<'q, R>, Order),
}

/// What a search is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aim {
    /// Whether anybody would take it.
    Look,
    /// To hand it over.
    Claim,
    /// To wake somebody for it. One that collects is not woken but served.
    Nudge,
}

fn address<R: Resource>(node: &Node<R>) -> usize {
    std::ptr::from_ref(node).addr()
}

/// What drains or was removed is not to be kept by one who waits for more.
fn is_leaving(state: State) -> bool {
    state.is_held(Hold::Draining) || state.is_removed()
}

/// What is held back from those who ask now.
fn is_withheld(state: State) -> bool {
    state.is_removed() || state.holds() != 0
}

impl<R: Resource> Core<R> {
    // A unit looks for a taker.

    /// H4. Asks filters about `value`, which the caller keeps alive.
    fn search<'q>(
        &'q self,
        node: &Node<R>,
        value: &Value<R>,
        search: &mut Search,
        aim: Aim,
        work: &mut Work<R>,
    ) -> Found<'q, R> {
        search.about(std::ptr::from_ref(value).addr());
        // Read before the mutex is taken: the clock is user code.
        let now =
            if aim == Aim::Claim && self.waiters.rules.shed_late { quietly(|| self.now()) } else { None };
        loop {
            let mut queue = self.waiters.queue();
            let known = search.knows_until(queue.ticket);
            let next = queue.next(address(node), search);
            let (waiter, mut filter) = match next {
                Next::Nobody => return Found::Nobody(known),
                Next::Away(order) if aim == Aim::Claim => return Found::Away(queue, order),
                // It may want it. Of two that wait, one that is being asked about something else is not overtaken.
                Next::Away(_) => return Found::Wanted,
                Next::Taker(_) if aim == Aim::Look => return Found::Wanted,
                Next::Taker(place) if aim == Aim::Nudge && queue.collects_at(place) => return Found::Wanted,
                // Whoever is found here may have asked after a removal or a hold that had returned by then. It has registered under this
                // mutex, so what came before that is seen here; and what is not seen comes after this moment, at which it waited already.
                Next::Taker(_) if aim == Aim::Claim && is_withheld(node.state.load()) => {
                    return Found::Withheld;
                }
                Next::Taker(place) => {
                    if let Some(now) = now
                        && place.is_open()
                    {
                        queue.pace.tick(now);
                    }
                    if aim == Aim::Nudge {
                        queue.goes_away();
                    }
                    return Found::Claimed(queue.claim(place));
                }
                Next::Ask(waiter, filter) if !work.may_ask() => {
                    // F6.
                    queue.keep_filter(waiter.order, filter);
                    drop(queue);
                    search.passes_over(waiter.order);
                    work.pass_over(waiter);
                    continue;
                }
                Next::Ask(waiter, filter) => (waiter, filter),
            };
            drop(queue);
            let answer = filter.try_accepts(value.resource());
            match answer {
                Ok(yes) => {
                    search.answered(waiter.order, yes);
                    self.put_filter(&waiter, filter, work);
                }
                Err(payload) => {
                    search.answered(waiter.order, false);
                    self.fail_panicking(&waiter, payload, Some(filter), work);
                }
            }
        }
    }

    /// Puts a filter back, and goes on with what was left with it.
    pub fn put_filter(&self, waiter: &Waiter<R>, filter: Filter<R>, work: &mut Work<R>) {
        let Brought { left, parked, is_asked_for } = self.waiters.queue().put_filter(waiter.order, filter);
        work.add(parked);
        if let Some(filter) = left {
            waiter.hand_back(filter);
        }
        if is_asked_for {
            // F7.
            waiter.overlook();
        }
    }

    /// Ends a wait by a panic of its own user code. The filter, if that was away.
    pub fn fail_panicking(
        &self,
        waiter: &Arc<Waiter<R>>,
        payload: Box<dyn Any + Send>,
        filter: Option<Filter<R>>,
        work: &mut Work<R>,
    ) {
        // Whoever else has taken it out ends it, and the panic goes unheard.
        let (left, parked) = {
            let mut queue = self.waiters.queue();
            (queue.remove(waiter), queue.unpark(waiter.order))
        };
        work.add(parked);
        match left {
            Some((_, kept)) => self.free(waiter.fail_panicking(payload, filter.or(kept))),
            None => {
                let _ = quietly(|| drop(payload));
                if let Some(filter) = filter {
                    waiter.hand_back(filter);
                }
            }
        }
    }

    /// Returns what a waiter has collected in vain.
    pub fn free(&self, units: Units<R>) {
        for lent in units {
            self.give_up(&lent);
        }
    }

    /// Returns a unit that nobody has used.
    fn give_up(&self, lent: &Lent<R>) {
        self.waiters.counts.unused();
        let held = Held::new(lent);
        // In somebody else's thread, maybe: a panic of `priority` leaves the old rank.
        let _ = quietly(|| self.end(&held, None, None));
    }

    /// H4 to H6: a unit in hand goes to whoever wants it, or back; and so do those that are left with the filters that it asks. Answers
    /// what has become of the first.
    pub fn offer(&self, lent: Lent<R>, search: Search) -> Came {
        let mut work = Work::new();
        let came = self.offer_one(lent, search, &mut work);
        self.run(work);
        came
    }

    /// F4 and F5.
    #[allow(unsafe_code)]
    pub fn run(&self, mut work: Work<R>) {
        while let Some((lent, search)) = work.next() {
            let (guard, node) = (self.pin(), lent.node);
            if self.offer_one(lent, search, &mut work) == Came::Taken {
                // Whoever has parked it has left the rest of its resource to us, too. SAFETY: the guard is older than its return.
                self.offer_free(unsafe { node.as_ref() }, &guard, &mut work);
            }
        }
    }

    #[allow(unsafe_code)]
    fn offer_one(&self, mut lent: Lent<R>, mut search: Search, work: &mut Work<R>) -> Came {
        loop {
            // SAFETY: rules 5 and 6 of `node`: the unit keeps both; `lent` goes to nobody before the last use.
            let (node, value) = unsafe { (lent.node.as_ref(), lent.value.as_ref()) };
            match self.search(node, value, &mut search, Aim::Claim, work) {
                Found::Claimed((waiter, filter)) => {
                    // Of a part. The guard is older than its return, so it keeps the node when the unit does not any more.
                    let guard = (waiter.count() > 1).then(|| self.pin());
                    match waiter.deliver(lent, filter) {
                        Ok(()) => {
                            // P3, P4.
                            if guard.is_some() && is_leaving(node.state.load()) {
                                drop(guard);
                                self.take_parts_back();
                            }
                            return Came::Taken;
                        }
                        Err(back) => lent = back,
                    }
                }
                // Its finder is gone: now as any other.
                Found::Nobody(_) if search.stops_passing() => {}
                Found::Nobody(ticket) => {
                    if self.give_back_unless(&mut lent, ticket) {
                        return Came::Back;
                    }
                    search.nobody_until(ticket);
                }
                // As any other return: the hold may be gone by now, and somebody wait.
                Found::Withheld => {
                    self.give_up(&lent);
                    return Came::Back;
                }
                Found::Away(mut queue, order) => {
                    queue.park(order, lent, search);
                    return Came::Parked;
                }
                Found::Wanted => unreachable!("claimed"),
            }
        }
    }

    /// P2: whoever collects gives back what drains or was removed.
    #[inline]
    pub fn take_parts_back(&self) {
        if !self.waiters.gate().is_free() {
            let parts = self.waiters.queue().take_parts(|lent| is_leaving(node_of(lent).state.load()));
            for lent in parts {
                self.give_up(&lent);
            }
        }
    }

    /// H6: gives the unit back unless somebody has registered since the ticket, or may want what the resource has become since: then it
    /// is lent with its present value.
    fn give_back_unless(&self, lent: &mut Lent<R>, ticket: u64) -> bool {
        let guard = self.pin();
        let shard = self.home(node_of(lent));
        let mut locked = self.lock(shard);
        let gate = self.waiters.gate();
        if !gate.is_unchanged(ticket) {
            return false;
        }
        let by_load = node_of(lent).is_shared();
        // The unit has kept the value that filters were asked about, so no other one has its address.
        let is_outdated = !gate.is_free() && lent.value != node_of(lent).value_ptr();
        let (garbage, moved, _) = locked.give_back(node_of(lent), lent.value, (None, false), None, None);
        if is_outdated && let Ok(anew) = locked.lend(node_of(lent)) {
            drop(locked);
            *lent = anew;
            self.waiters.counts.unused();
            self.retire(garbage);
            return false;
        }
        drop(locked);
        self.waiters.counts.unused();
        let load = self.gave_back(shard, lent.node, moved, garbage, Some(guard).filter(|_| by_load));
        let _ = quietly(|| self.rerank_returned(load));
        true
    }

    /// The return of the unit of an exclusive resource while somebody waits; most often that is somebody who takes anything, and it takes
    /// no more than this: H2 in the critical section that the caller has begun, by what it has seen of the gate there, H4 and H5.
    #[cold]
    #[inline(never)]
    pub fn hand_over(&self, mut locked: Locked<'_, R>, gate: Gate, held: &Held<R>, outcome: Option<Count>) {
        let hands_on = gate.is_open() && self.waiters.is_strict();
        let lent = if hands_on { locked.hand_over(held.node(), held.value, outcome) } else { None };
        drop(locked);
        match lent {
            // The load is what it was, and so is the rank.
            Some(lent) => {
                if let Err(lent) = self.hand_to_first(lent) {
                    self.offer(lent, Search::new());
                }
            }
            None => {
                let load = self.give_back_waited(held.node, held.value, true, outcome);
                self.rerank_returned(load);
            }
        }
    }

    /// H4 and H5, where nobody waits but those who take anything, and the first of them wants one unit. The unit comes back if that is
    /// not so, and it is as if nothing had been done.
    fn hand_to_first(&self, mut lent: Lent<R>) -> Result<(), Lent<R>> {
        // The clock would have to be read.
        if self.waiters.rules.shed_late {
            return Err(lent);
        }
        loop {
            let waiter = {
                let mut queue = self.waiters.queue();
                if is_withheld(node_of(&lent).state.load()) {
                    return Err(lent);
                }
                let Some(waiter) = queue.claim_first() else { return Err(lent) };
                waiter
            };
            match waiter.deliver(lent, None) {
                Ok(()) => return Ok(()),
                Err(back) => lent = back,
            }
        }
    }

    /// The return of a unit while somebody waits: H1 to H3, then the rest.
    #[cold]
    #[allow(unsafe_code)]
    pub fn give_back_waited(
        &self,
        node: NonNull<Node<R>>,
        value: NonNull<Value<R>>,
        exclusive: bool,
        outcome: Option<Count>,
    ) -> Option<Load<'_, R>> {
        let guard = self.pin();
        // SAFETY: rule 5 of `node`: the unit of capacity that is given back below keeps it, and then the guard.
        let alive = unsafe { node.as_ref() };
        let shard = self.home(alive);
        let strict = self.waiters.is_strict();
        let mut work = Work::new();
        let mut search = Search::new();
        let (mut wanted, mut unwanted) = (false, None);
        let (moved, garbage, lent, nudge, by_load) = loop {
            let mut locked = self.lock(shard);
            let gate = self.waiters.gate();
            // Who has said no to one value may want the one that has taken its place.
            let is_present = |asked: NonNull<Value<R>>| asked == alive.value_ptr();
            let is_unwanted =
                unwanted.is_some_and(|(ticket, asked)| gate.is_unchanged(ticket) && is_present(asked));
            let hands_on = strict && !gate.is_free() && !is_unwanted;
            if hands_on && !gate.is_open() && !wanted && locked.would_be_eligible(alive) {
                // H3.
                drop(locked);
                // The guard keeps it, so no other one has its address.
                let asked = alive.value(&guard);
                match self.search(alive, asked, &mut search, Aim::Look, &mut work) {
                    Found::Nobody(ticket) => {
                        search.nobody_until(ticket);
                        unwanted = Some((ticket, NonNull::from(asked)));
                    }
                    _ => wanted = true,
                }
                continue;
            }
            let by_load = !exclusive || alive.is_shared();
            let (garbage, moved, _) = locked.give_back(alive, value, (None, false), outcome, None);
            // H2: in the same critical section.
            let lent = if hands_on { locked.lend(alive).ok() } else { None };
            let nudges = !strict && !gate.is_free() && moved.to.is_eligible();
            let nudge = (nudges && locked.pin_node(alive)).then(|| Named::new(alive));
            break (moved, garbage, lent, nudge, by_load);
        };
        let load = match lent {
            Some(lent) => {
                self.retire(garbage);
                // The load is what it was, and so is the rank, unless the outcome has a say in it.
                let state = lent.state;
                self.offer_one(lent, search, &mut work);
                self.ranks_by_outcomes().then_some(Load { node, state, guard })
            }
            None => {
                if let Some(nudge) = nudge {
                    self.nudge(nudge, &guard, &mut work);
                }
                self.gave_back(shard, node, moved, garbage, Some(guard).filter(|_| by_load))
            }
        };
        self.run(work);
        load
    }

    /// Offers a resource that may have become eligible to whoever waits. Costs a load if nobody does.
    #[inline]
    pub fn offer_node(&self, node: &Node<R>, guard: &Pin<'_>) {
        if !self.waiters.gate().is_free() {
            self.offer_waited(node, guard);
        }
    }

    /// H2, for whoever has just made a resource eligible, in this very critical section: a unit for those who wait, which no passer-by
    /// can have.
    #[inline]
    pub fn take_for_waiters(&self, locked: &mut Locked<'_, R>, node: &Node<R>) -> Option<Lent<R>> {
        if self.waiters.hands_on() { locked.lend(node).ok() } else { None }
    }

    /// What was taken for those who wait, if anything was, goes to them; and what else the resource has, if it is still eligible. But
    /// nobody wants more of what nobody has wanted, and whoever goes on with a unit that was left with a filter goes on with the rest.
    #[inline]
    pub fn hand_on(&self, taken: Option<Lent<R>>, node: &Node<R>, guard: &Pin<'_>) {
        if taken.is_none_or(|lent| self.offer(lent, Search::new()) == Came::Taken) {
            self.offer_node(node, guard);
        }
    }

    #[cold]
    fn offer_waited(&self, node: &Node<R>, guard: &Pin<'_>) {
        let mut work = Work::new();
        self.offer_free(node, guard, &mut work);
        self.run(work);
    }

    /// Lends a resource on behalf of waiters as long as it is eligible and somebody wants it.
    fn offer_free(&self, node: &Node<R>, guard: &Pin<'_>, work: &mut Work<R>) {
        while node.state.load().is_eligible() {
            let gate = self.waiters.gate();
            if gate.is_free() {
                return;
            }
            let mut search = Search::new();
            if !gate.is_open() {
                let found = self.search(node, node.value(guard), &mut search, Aim::Look, work);
                if matches!(found, Found::Nobody(_)) {
                    return;
                }
            }
            let lent = self.lock(self.home(node)).lend(node);
            let Ok(lent) = lent else { return };
            if self.offer_one(lent, search, work) != Came::Taken {
                return;
            }
        }
    }

    /// Wakes the first waiter that wants a resource which has become eligible. The pin goes with the nudge, or ends.
    fn nudge(&self, named: Named<R>, guard: &Pin<'_>, work: &mut Work<R>) {
        let node = named.node();
        let mut search = Search::new();
        loop {
            match self.search(node, node.value(guard), &mut search, Aim::Nudge, work) {
                Found::Claimed((waiter, filter)) => {
                    if waiter.nudge(named, filter) {
                        return;
                    }
                    self.waiters.queue().is_back();
                }
                Found::Wanted => {
                    let lent = self.lock(self.home(node)).lend(node);
                    if let Ok(lent) = lent {
                        self.offer_one(lent, search, work);
                    }
                    break;
                }
                Found::Nobody(_) | Found::Withheld | Found::Away(..) => break,
            }
        }
        self.unpin(named);
    }

    // Waits that end otherwise.

    /// Ends a wait, unless somebody else has.
    pub fn fail(&self, waiter: &Arc<Waiter<R>>, error: WaitError) {
        let left = self.waiters.queue().remove(waiter);
        if let Some((_, filter)) = left {
            self.free(waiter.fail(error, filter));
        }
    }

    /// Ends the waits of those who have left the queue.
    pub fn fail_all(&self, left: Vec<Left<R>>, error: impl Fn(&Waiter<R>) -> WaitError) {
        for (waiter, filter) in left {
            self.free(waiter.fail(error(&waiter), filter));
        }
    }

    /// The scheduler is closed: nobody waits any more, nor begins to.
    pub fn fail_everybody(&self) {
        let left = {
            let mut queue = self.waiters.queue();
            queue.is_closed = true;
            queue.leave_all()
        };
        self.fail_all(left, |_| WaitError::Closed);
    }

    /// A node was removed: nobody needs to wait for it any more, nor keeps it as a part.
    #[inline]
    pub fn fail_named(&self, node: &Node<R>) {
        if !self.waiters.gate().is_free() {
            let left = self.waiters.queue().leave_named(address(node));
            self.fail_all(left, |_| WaitError::NotFound);
            self.take_parts_back();
        }
    }

    /// Passes a nudge on: somebody else may want the very resource that this one was woken for and has not taken.
    pub fn pass_nudge(&self, named: Named<R>) {
        // If it is not eligible, whoever makes it eligible again has a duty of his own.
        if !named.node().state.load().is_eligible() {
            return self.unpin(named);
        }
        let mut work = Work::new();
        let guard = self.pin();
        self.nudge(named, &guard, &mut work);
        drop(guard);
        self.run(work);
    }

    /// Ends the pin of a node that somebody has waited for, or was woken for.
    pub fn unpin(&self, named: Named<R>) {
        let node = named.node();
        let garbage = self.home(node).lock().unpin_node(node);
        self.retire(garbage);
    }
}
