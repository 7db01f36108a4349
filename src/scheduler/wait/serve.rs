//! A unit looks for a taker; a waiter looks for a unit. Steps H1 to H6 and N2 of the module header.

use std::{any::Any, panic::AssertUnwindSafe, panic::catch_unwind, ptr::NonNull};

use super::{
    error::WaitError,
    filter::Filter,
    queue::{Left, Next, Search},
    waiter::{Named, Units, Waiter, Want},
};
use crate::{
    node::{Hold, Node, Standing, State, Value, quietly},
    resource::Resource,
    scheduler::{core::Core, error::AcquireError, held::Held, returning::Load},
    shard::{Count, Lent, NEVER, Pin, Shard},
    strategy::ShardView,
    sync::Arc,
};

/// Waiters that were passed over while their filter was being asked, and have to look for themselves.
pub struct Work<R: Resource>(Vec<Arc<Waiter<R>>>);

/// What a search has found.
enum Found<R: Resource> {
    /// This one has left the queue for the unit, or collects it.
    Claimed(Left<R>),
    /// Somebody would take it.
    Wanted,
    /// Nobody, of all who had registered by this ticket: that of the beginning of the search.
    Nobody(u64),
    /// The resource was removed, or is held, since the unit was taken: it is not to be handed over.
    Withheld,
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

#[allow(unsafe_code)]
fn node_of<R: Resource>(lent: &Lent<R>) -> &Node<R> {
    // SAFETY: rule 5 of `node`: the unit keeps it.
    unsafe { lent.node.as_ref() }
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
    fn search(
        &self,
        node: &Node<R>,
        value: &Value<R>,
        search: &mut Search,
        aim: Aim,
        work: &mut Work<R>,
    ) -> Found<R> {
        search.about(std::ptr::from_ref(value).addr());
        // Read before the mutex is taken: the clock is user code.
        let now =
            if aim == Aim::Claim && self.waiters.rules.shed_late { quietly(|| self.now()) } else { None };
        loop {
            let mut queue = self.waiters.queue();
            let known = search.knows_until(queue.ticket);
            let (waiter, mut filter) = match queue.next(address(node), search) {
                Next::Nobody => return Found::Nobody(known),
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
                Next::Ask(waiter, filter) => (waiter, filter),
            };
            drop(queue);
            let answer = filter.try_accepts(value.resource());
            match answer {
                Ok(yes) => {
                    search.answered(waiter.order, yes);
                    if self.put_filter(&waiter, filter) {
                        work.0.push(waiter);
                    }
                }
                Err(payload) => {
                    search.answered(waiter.order, false);
                    self.fail_panicking(&waiter, payload, Some(filter));
                }
            }
        }
    }

    /// Puts a filter back. Answers whether somebody came by meanwhile.
    fn put_filter(&self, waiter: &Waiter<R>, filter: Filter<R>) -> bool {
        let put = self.waiters.queue().put_filter(waiter.order, filter);
        put.unwrap_or_else(|filter| {
            waiter.hand_back(filter);
            false
        })
    }

    /// Ends a wait by a panic of its own user code.
    fn fail_panicking(
        &self,
        waiter: &Arc<Waiter<R>>,
        payload: Box<dyn Any + Send>,
        filter: Option<Filter<R>>,
    ) {
        // Whoever else has taken it out ends it, and the panic goes unheard.
        let left = self.waiters.queue().remove(waiter);
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

    /// H4 to H6: a unit in hand goes to whoever wants it, or back.
    #[allow(unsafe_code)]
    fn offer(&self, mut lent: Lent<R>, mut search: Search, work: &mut Work<R>) {
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
                            return;
                        }
                        Err(back) => lent = back,
                    }
                }
                Found::Nobody(ticket) => {
                    if self.give_back_unless(&lent, ticket) {
                        return;
                    }
                    search.nobody_until(ticket);
                }
                // As any other return: the hold may be gone by now, and somebody wait.
                Found::Withheld => return self.give_up(&lent),
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

    /// H6: gives the unit back unless somebody has registered since the ticket.
    fn give_back_unless(&self, lent: &Lent<R>, ticket: u64) -> bool {
        let guard = self.pin();
        let shard = self.home(node_of(lent));
        let mut locked = self.lock(shard);
        if !self.waiters.gate().is_unchanged(ticket) {
            return false;
        }
        let by_load = !lent.exclusive || locked.details(node_of(lent)).limit != 1;
        let (garbage, moved, _) = locked.give_back(node_of(lent), lent.value, (None, false), None, None);
        drop(locked);
        self.waiters.counts.unused();
        let load = self.gave_back(shard, lent.node, moved, garbage, Some(guard).filter(|_| by_load));
        let _ = quietly(|| self.rerank_returned(load));
        true
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
        let (mut wanted, mut unwanted_until) = (false, None);
        let (moved, garbage, lent, nudge, by_load) = loop {
            let mut locked = self.lock(shard);
            let gate = self.waiters.gate();
            let unwanted = unwanted_until.is_some_and(|ticket| gate.is_unchanged(ticket));
            let hands_on = strict && !gate.is_free() && !unwanted;
            if hands_on && !gate.is_open() && !wanted && locked.would_be_eligible(alive) {
                // H3.
                drop(locked);
                match self.search(alive, alive.value(&guard), &mut search, Aim::Look, &mut work) {
                    Found::Nobody(ticket) => {
                        search.nobody_until(ticket);
                        unwanted_until = Some(ticket);
                    }
                    _ => wanted = true,
                }
                continue;
            }
            let by_load = !exclusive || locked.details(alive).limit != 1;
            let (garbage, moved, _) = locked.give_back(alive, value, (None, false), outcome, None);
            // H2: in the same critical section.
            let lent = if hands_on { locked.lend(alive).ok() } else { None };
            let nudges = !strict && !gate.is_free() && moved.to.is_eligible();
            let nudge = (nudges && locked.pin_node(alive)).then(|| Named::new(alive));
            break (moved, garbage, lent, nudge, by_load);
        };
        let load = match lent {
            Some(lent) => {
                // The load, and so the rank, is what it was.
                self.retire(garbage);
                self.offer(lent, search, &mut work);
                None
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
            let mut work = Work::new();
            self.offer_free(node, guard, &mut work);
            self.run(work);
        }
    }

    /// Lends a resource on behalf of waiters as long as it is eligible and somebody wants it.
    pub fn offer_free(&self, node: &Node<R>, guard: &Pin<'_>, work: &mut Work<R>) {
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
            self.offer(lent, search, work);
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
                        self.offer(lent, search, work);
                    }
                    break;
                }
                Found::Nobody(_) | Found::Withheld => break,
            }
        }
        self.unpin(named);
    }

    /// Runs what is left to do for waiters that were passed over.
    pub fn run(&self, mut work: Work<R>) {
        while let Some(waiter) = work.0.pop() {
            self.look_for(&waiter, &mut work);
        }
    }

    // A waiter looks for a unit.

    /// N2, on the waiter's own behalf or by somebody who has passed it over. A panic of user code ends the wait.
    pub fn look_for(&self, waiter: &Arc<Waiter<R>>, work: &mut Work<R>) {
        let looked = catch_unwind(AssertUnwindSafe(|| self.seek(waiter, work)));
        if let Err(payload) = looked {
            self.fail_panicking(waiter, payload, None);
        }
    }

    fn seek(&self, waiter: &Arc<Waiter<R>>, work: &mut Work<R>) {
        if matches!(waiter.want, Want::Matching) {
            return self.seek_matching(waiter, work);
        }
        while self.waiters.queue().contains(waiter) {
            let lent = match &waiter.want {
                Want::Named(named) => match self.take_named(named.node()) {
                    Ok(lent) => Some(lent),
                    Err(state) if state.is_removed() => return self.fail(waiter, WaitError::NotFound),
                    Err(_) => None,
                },
                Want::Near(hash) => self.take_any(Some(*hash)),
                _ => self.take_any(None),
            };
            match lent {
                Some(lent) => self.offer(lent, Search::new(), work),
                None => return self.waiters.queue().settle(waiter),
            }
        }
    }

    fn seek_matching(&self, waiter: &Arc<Waiter<R>>, work: &mut Work<R>) {
        loop {
            let Some(mut filter) = self.waiters.queue().take_filter(waiter.order) else { return };
            // Whoever makes something acceptable after this sees the gate, and finds us being asked.
            for shard in &self.shards {
                drop(shard.lock());
            }
            let lent =
                catch_unwind(AssertUnwindSafe(|| self.lend_where(&mut |_, value| filter.accepts(value))));
            let lent = match lent {
                Ok(lent) => lent,
                Err(payload) => return self.fail_panicking(waiter, payload, Some(filter)),
            };
            let missed = self.put_filter(waiter, filter);
            match lent {
                Ok(lent) => {
                    let search = Search::accepted(lent.value.addr().get(), waiter.order);
                    self.offer(lent, search, work);
                }
                Err(AcquireError::Strategy { chosen, shards }) => {
                    return self.fail(waiter, WaitError::Strategy { chosen, shards });
                }
                // Whoever closes fails everybody.
                Err(AcquireError::Closed) => return,
                Err(AcquireError::NoneEligible(none)) => {
                    if let Some(earliest) = none.earliest {
                        self.note(earliest.as_nanos());
                    }
                    if !missed {
                        return;
                    }
                }
            }
        }
    }

    /// Ends a wait, unless somebody else has.
    fn fail(&self, waiter: &Arc<Waiter<R>>, error: WaitError) {
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

    /// Takes the best unit there is, looking into every shard, each with its lock; the shard that belongs to an id first.
    fn take_any(&self, hash: Option<u64>) -> Option<Lent<R>> {
        loop {
            let mut earliest = NEVER;
            let mut take = |shard: &Shard<R>| {
                let mut locked = self.lock(shard);
                let lent = self.lend_best(&mut locked, None);
                earliest = earliest.min(shard.face().earliest());
                lent
            };
            let lent = match hash {
                Some(hash) => self.with_ring(|ring| {
                    let mut shards = ring.successors(hash).map(|i| &self.shards[i]);
                    shards.find_map(|shard| {
                        let own = self.lend_of(shard, hash);
                        own.or_else(|| take(shard))
                    })
                }),
                None => {
                    let ranked = (0..self.shards.len()).filter_map(|i| Some((self.best_rank(i)?, i)));
                    let best = ranked.min().and_then(|(_, i)| take(&self.shards[i]));
                    best.or_else(|| self.shards.iter().find_map(take))
                }
            };
            if lent.is_some() {
                return lent;
            }
            if earliest == NEVER {
                return None;
            }
            let now = self.now();
            if now < earliest {
                self.note(earliest);
                return None;
            }
            self.thaw(now, true);
        }
    }

    /// Takes a unit of one resource; else says how it stands.
    pub fn take_named(&self, node: &Node<R>) -> Result<Lent<R>, State> {
        self.settle(node);
        let shard = self.home(node);
        let mut result = self.lock(shard).lend(node);
        if result.as_ref().is_err_and(|state| state.standing() == Standing::Cooling) {
            // Only a deadline stands in the way: it may have come.
            let now = self.now();
            let pin = self.pin();
            result = self.lock(shard).lend_if_due(node, now);
            if result.is_ok() {
                // It may have more units.
                self.offer_node(node, &pin);
            }
        }
        if let Err(state) = result
            && state.standing() == Standing::Cooling
        {
            self.note(node.deadline());
        }
        result
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

impl<R: Resource> Work<R> {
    pub const fn new() -> Self {
        Work(Vec::new())
    }
}
