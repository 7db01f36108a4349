//! Who waits, in which order.
//!
//! | file | idea |
//! |---|---|
//! | `order` | who comes first |
//! | `line` | what stands in order |
//! | `search` | one unit's search for a taker |
//! | `gate` | what the rest of the scheduler sees |
//! | `pace` | how fast things are handed over |
//! | `time` | who looks after the time |
//!
//! Three indexes: waiters that take anything, those for one resource, those with a filter; the first of a resource's
//! candidates is the least of the three by order. And who has a deadline, and who sleeps as a thread.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
};

mod gate;
mod line;
mod order;
mod pace;
mod search;
mod time;

pub use self::{
    gate::{Gate, QueueGuard},
    order::Order,
    search::{Next, Place, Search},
};
use self::{line::Line, pace::Pace};
use super::{
    filter::Filter,
    waiter::{Waiter, Want},
};
use crate::{
    resource::Resource,
    shard::{Lent, NEVER},
    sync::{Arc, atomic::Ordering},
};

/// Takes anything.
struct Open<R: Resource> {
    waiter: Arc<Waiter<R>>,
    known: Known,
    settled: bool,
    /// Units that nobody has claimed for it yet.
    missing: usize,
}

/// A copy of what the queue needs to know of a waiter that leaves: whoever takes it out has its memory in no cache.
#[derive(Clone, Copy)]
struct Known {
    deadline: u64,
    /// It wants so many in all.
    units: u64,
    is_thread: bool,
}

impl Known {
    fn of<R: Resource>(waiter: &Waiter<R>) -> Self {
        let units = (waiter.count() as u64).min(MOST);
        Known { deadline: waiter.deadline, units, is_thread: waiter.is_thread }
    }
}

/// Units of one waiter that are counted: so many more than any fleet has that the rest says nothing, and sums cannot overflow.
const MOST: u64 = u32::MAX as u64;

/// What those in `open` want who are of one class.
#[derive(Clone, Copy, Default)]
struct Wanted {
    waiters: u64,
    units: u64,
}

impl Wanted {
    /// At least so many units are before one that passes the last `passed` arrivals.
    fn but_for(self, passed: u64) -> u64 {
        // What each of those it passes wants is not known: maybe all of them several, and the rest one each.
        if passed == 0 { self.units } else { self.waiters.saturating_sub(passed) }
    }
}

/// Has a filter.
struct Picky<R: Resource> {
    waiter: Arc<Waiter<R>>,
    /// Not here while it is asked, and during the waiter's own look.
    filter: Option<Filter<R>>,
    /// F7: its waiter wants it for a look, and it was not here.
    is_asked_for: bool,
    /// Of its registration.
    ticket: u64,
    /// Of the last F7; 0 if there was none.
    anew: u64,
}

/// A unit whose search has come to a filter that is away: whoever brings that back goes on with it.
struct Parked<R: Resource> {
    at: Order,
    lent: Lent<R>,
    search: Search,
}

/// A unit that looks for a taker, and how far it has got.
pub type InHand<R> = (Lent<R>, Search);

/// What whoever brings a filter back has to do.
pub struct Brought<R: Resource> {
    /// Its waiter has left, and is to have it.
    pub left: Option<Filter<R>>,
    /// To go on with.
    pub parked: Vec<InHand<R>>,
    /// The waiter is to be told that it may look.
    pub is_asked_for: bool,
}

/// A waiter that has left the queue, with its filter if that was there.
pub type Left<R> = (Arc<Waiter<R>>, Option<Filter<R>>);

/// All who wait.
pub struct Queue<R: Resource> {
    open: Line<Open<R>>,
    /// Has got a part of its units, and stands before all others in `open`.
    collector: Option<Open<R>>,
    /// By the node's address.
    keyed: BTreeMap<(usize, Order), Arc<Waiter<R>>>,
    picky: BTreeMap<Order, Picky<R>>,
    /// In no order. Of filters that are away, also if their waiters have left meanwhile.
    parked: Vec<Parked<R>>,
    /// How many of `open` and `collector` are settled.
    settled: usize,
    /// Of the latest registration.
    pub ticket: u64,
    arrivals: u64,
    ageing: u32,
    len: usize,
    /// Those who were woken to try for themselves, and may come back.
    away: usize,
    /// What those in `open` want, by class; as many as the highest that there was. Whoever waits for a certain resource keeps nobody
    /// from another one.
    classes: Vec<Wanted>,
    pub is_closed: bool,
    /// Tasks: somebody else must look after their time. Threads do so themselves.
    task_deadlines: BTreeMap<(u64, Order), Arc<Waiter<R>>>,
    thread_deadlines: BTreeMap<(u64, Order), Arc<Waiter<R>>>,
    threads: Line<Arc<Waiter<R>>>,
    /// The thread that looks after the time for all.
    keeper: Option<Arc<Waiter<R>>>,
    /// The moment that the keeper is set for.
    pub set_for: u64,
    /// The moments for which the timer has been asked to call and has not.
    calls: BTreeSet<u64>,
    /// And such that it will not make.
    has_lost_calls: bool,
    pub pace: Pace,
    /// Waiters that searches have come by.
    #[cfg(test)]
    passed: usize,
}

impl<R: Resource> Queue<R> {
    pub fn new(ageing: u32) -> Self {
        Queue {
            open: Line::new(),
            collector: None,
            keyed: BTreeMap::new(),
            picky: BTreeMap::new(),
            parked: Vec::new(),
            settled: 0,
            ticket: 0,
            arrivals: 0,
            ageing,
            len: 0,
            away: 0,
            classes: Vec::new(),
            is_closed: false,
            task_deadlines: BTreeMap::new(),
            thread_deadlines: BTreeMap::new(),
            threads: Line::new(),
            keeper: None,
            set_for: NEVER,
            calls: BTreeSet::new(),
            has_lost_calls: false,
            pace: Pace::default(),
            #[cfg(test)]
            passed: 0,
        }
    }

    /// Whether nobody waits who takes anything.
    pub fn is_open_empty(&self) -> bool {
        self.collector.is_none() && self.open.is_empty()
    }

    /// How many wait, those included who were woken to try for themselves.
    pub fn waiting(&self) -> usize {
        self.len + self.away
    }

    /// Whoever has just left the queue may come back.
    pub fn goes_away(&mut self) {
        self.away += 1;
    }

    /// It has come back, or will not.
    pub fn is_back(&mut self) {
        self.away -= 1;
    }

    /// Units that those take, whatever they are, who stand before one that arrives now in this class: at least so many. Of the classes
    /// below, those who arrived last stand behind it, and of these there are no more than make up for the difference. Whoever collects
    /// stands before every class, and takes what it lacks.
    pub fn ahead_of(&self, class: u8) -> u64 {
        let class = usize::from(class);
        let in_line: u64 = (0..)
            .zip(&self.classes)
            .map(|(other, wanted)| {
                wanted.but_for(class.saturating_sub(other) as u64 * u64::from(self.ageing))
            })
            .sum();
        let lacks = self.collector.as_ref().map_or(0, |open| open.missing as u64);
        in_line.saturating_add(lacks)
    }

    /// The place of one that arrives now.
    pub fn arrive(&mut self, class: u8) -> Order {
        self.arrivals += 1;
        Order::new(self.arrivals, class, self.ageing)
    }

    /// N1. Answers whether it has to look for itself. If it has a filter, that is away at first: for this look.
    pub fn insert(&mut self, waiter: &Arc<Waiter<R>>) -> bool {
        self.ticket += 1;
        let order = waiter.order;
        let mut looks = true;
        match &waiter.want {
            Want::Best | Want::Near(_) | Want::Many(_) => {
                // A settled one is found by everybody who has something.
                let settled = self.settled > 0;
                looks = !settled;
                self.settled += usize::from(settled);
                let (waiter, missing) = (Arc::clone(waiter), waiter.count());
                self.join(Open { known: Known::of(&waiter), waiter, settled, missing });
            }
            Want::Named(named) => {
                self.keyed.insert((named.address(), order), Arc::clone(waiter));
            }
            Want::Matching => {
                let waiter = Arc::clone(waiter);
                let ticket = self.ticket;
                self.picky
                    .insert(order, Picky { waiter, filter: None, is_asked_for: false, ticket, anew: 0 });
            }
        }
        self.enrol(waiter);
        looks
    }

    /// It stands in its own place among those who take anything.
    fn join(&mut self, open: Open<R>) {
        let order = open.waiter.order;
        if order.class() >= self.classes.len() {
            self.classes.resize(order.class() + 1, Wanted::default());
        }
        let wanted = &mut self.classes[order.class()];
        wanted.waiters += 1;
        wanted.units += open.known.units;
        self.open.insert(order, open);
    }

    /// It does not any more.
    #[inline]
    fn step_out(&mut self, order: Order) -> Option<Open<R>> {
        let open = self.open.remove(order)?;
        let wanted = &mut self.classes[order.class()];
        wanted.waiters -= 1;
        wanted.units -= open.known.units;
        Some(open)
    }

    fn enrol(&mut self, waiter: &Arc<Waiter<R>>) {
        self.len += 1;
        if waiter.is_thread {
            self.threads.insert(waiter.order, Arc::clone(waiter));
        }
        if waiter.deadline != NEVER {
            let deadlines =
                if waiter.is_thread { &mut self.thread_deadlines } else { &mut self.task_deadlines };
            deadlines.insert((waiter.deadline, waiter.order), Arc::clone(waiter));
        }
    }

    fn strike(&mut self, order: Order, Known { deadline, is_thread, .. }: Known) {
        self.len -= 1;
        if is_thread {
            self.threads.remove(order);
        }
        if deadline != NEVER {
            let deadlines = if is_thread { &mut self.thread_deadlines } else { &mut self.task_deadlines };
            deadlines.remove(&(deadline, order));
        }
    }

    fn collects(&self, order: Order) -> bool {
        self.collector.as_ref().is_some_and(|open| open.waiter.order == order)
    }

    pub fn contains(&self, waiter: &Waiter<R>) -> bool {
        let order = waiter.order;
        match &waiter.want {
            Want::Best | Want::Near(_) | Want::Many(_) => {
                self.collects(order) || self.open.get(order).is_some()
            }
            Want::Named(named) => self.keyed.contains_key(&(named.address(), order)),
            Want::Matching => self.picky.contains_key(&order),
        }
    }

    /// Takes it out, for whatever reason; `None` if somebody else has done so.
    pub fn remove(&mut self, waiter: &Waiter<R>) -> Option<Left<R>> {
        let order = waiter.order;
        let place = match &waiter.want {
            Want::Best | Want::Near(_) | Want::Many(_) if self.collects(order) => Place::Collector,
            Want::Best | Want::Near(_) | Want::Many(_) => Place::Open(order),
            Want::Named(named) => Place::Keyed(named.address(), order),
            Want::Matching => Place::Picky(order),
        };
        self.take(place)
    }

    fn take(&mut self, place: Place) -> Option<Left<R>> {
        let (order, known, left) = match place {
            Place::Collector => {
                let open = self.collector.take()?;
                self.settled -= usize::from(open.settled);
                (open.waiter.order, open.known, (open.waiter, None))
            }
            Place::Open(order) => {
                let open = self.step_out(order)?;
                self.settled -= usize::from(open.settled);
                (order, open.known, (open.waiter, None))
            }
            Place::Keyed(node, order) => {
                let waiter = self.keyed.remove(&(node, order))?;
                (order, Known::of(&waiter), (waiter, None))
            }
            Place::Picky(order) => {
                let picky = self.picky.remove(&order)?;
                (order, Known::of(&picky.waiter), (picky.waiter, picky.filter))
            }
        };
        self.strike(order, known);
        Some(left)
    }

    /// H4: the first in order that wants the resource, or may want it.
    pub fn next(&mut self, node: usize, search: &Search) -> Next<R> {
        // Whoever collects stands before all that take anything, but in its own place among the others: those who wait for this very
        // resource, or for one like it, are overtaken by those before them only.
        let mut first = match &self.collector {
            Some(open) => Some((open.waiter.order, Place::Collector)),
            None => self.open.first().map(|order| (order, Place::Open(order))),
        };
        let mut keyed = self.keyed.range((node, Order::FIRST)..=(node, Order::LAST));
        if let Some((&(_, order), _)) = keyed.next()
            && first.is_none_or(|(before, _)| order < before)
        {
            first = Some((order, Place::Keyed(node, order)));
        }
        let bound = first.map_or(Order::LAST, |(order, _)| order);
        // Not from the first one on: all that were asked before would be passed over again each time.
        if search.cursor >= bound {
            return first.map_or(Next::Nobody, |(_, place)| Next::Taker(place));
        }
        let rest = (Bound::Excluded(search.cursor), Bound::Excluded(bound));
        for (&order, picky) in self.picky.range_mut(rest) {
            #[cfg(test)]
            {
                self.passed += 1;
            }
            let accepted = search.accepted == Some(order);
            if !accepted && !search.is_new(order, picky.ticket, picky.anew) {
                continue;
            }
            if picky.filter.is_none() {
                if search.passes && !accepted {
                    continue;
                }
                return Next::Away(order);
            }
            if accepted {
                return Next::Taker(Place::Picky(order));
            }
            let filter = picky.filter.take().expect("just seen");
            return Next::Ask(Arc::clone(&picky.waiter), filter);
        }
        first.map_or(Next::Nobody, |(_, place)| Next::Taker(place))
    }

    /// As [`next`](Self::next) and [`claim`](Self::claim), if nobody waits but those who take anything, and the first wants one unit.
    pub fn claim_first(&mut self) -> Option<Arc<Waiter<R>>> {
        if self.collector.is_some() || !self.keyed.is_empty() || !self.picky.is_empty() {
            return None;
        }
        let order = self.open.first()?;
        if self.open.get(order).is_none_or(|open| open.known.units > 1) {
            return None;
        }
        // As `take`.
        let open = self.step_out(order)?;
        self.settled -= usize::from(open.settled);
        self.strike(order, open.known);
        Some(open.waiter)
    }

    /// Whether whoever stands there wants several units.
    pub fn collects_at(&self, place: Place) -> bool {
        match place {
            Place::Collector => true,
            Place::Open(order) => self.open.get(order).is_some_and(|open| open.missing > 1),
            Place::Keyed(..) | Place::Picky(_) => false,
        }
    }

    /// One unit is for whoever stands there; it leaves the queue unless it collects more.
    pub fn claim(&mut self, place: Place) -> Left<R> {
        if let Place::Open(order) = place
            && self.open.get(order).is_some_and(|open| open.missing > 1)
        {
            debug_assert!(self.collector.is_none(), "one collects at a time");
            self.collector = self.step_out(order);
            return self.collect();
        }
        if let (Place::Collector, Some(open)) = (place, &self.collector)
            && open.missing > 1
        {
            return self.collect();
        }
        self.take(place).expect("found under the same lock")
    }

    fn collect(&mut self) -> Left<R> {
        let open = self.collector.as_mut().expect("it collects");
        open.missing -= 1;
        (Arc::clone(&open.waiter), None)
    }

    /// Leaves a unit with a filter that is away.
    pub fn park(&mut self, at: Order, lent: Lent<R>, search: Search) {
        self.parked.push(Parked { at, lent, search });
    }

    /// The filter that was taken out comes back. It is answered if its waiter has left; and what was left with it, in any case.
    pub fn put_filter(&mut self, order: Order, filter: Filter<R>) -> Brought<R> {
        let (left, is_asked_for) = match self.picky.get_mut(&order) {
            Some(picky) => {
                picky.filter = Some(filter);
                (None, std::mem::take(&mut picky.is_asked_for))
            }
            None => (Some(filter), false),
        };
        Brought { left, parked: self.unpark(order), is_asked_for }
    }

    /// A filter that was taken out comes back under the same lock: nobody has missed it.
    pub fn keep_filter(&mut self, order: Order, filter: Filter<R>) {
        self.picky.get_mut(&order).expect("found under the same lock").filter = Some(filter);
    }

    /// F7: a waiter registers anew, in its own place, for what has passed it over, and takes its filter out for a look. If that is away, it will be told when it is
    /// back; if the waiter has left, it has nothing to look for.
    pub fn look_anew(&mut self, waiter: &Waiter<R>) -> Option<Filter<R>> {
        let picky = self.picky.get_mut(&waiter.order)?;
        let filter = picky.filter.take();
        match &filter {
            Some(_) => {
                self.ticket += 1;
                picky.anew = self.ticket;
            }
            None => picky.is_asked_for = true,
        }
        filter
    }

    /// What was left with a filter.
    pub fn unpark(&mut self, order: Order) -> Vec<InHand<R>> {
        let parked = self.parked.extract_if(.., |parked| parked.at == order);
        parked.map(|Parked { lent, search, .. }| (lent, search)).collect()
    }

    /// Whether it waits, and nothing that it has said yes to is left with its filter.
    pub fn still_looks(&self, waiter: &Waiter<R>) -> bool {
        let order = waiter.order;
        let accepted = |parked: &Parked<R>| parked.at == order && parked.search.accepted == Some(order);
        self.contains(waiter) && !self.parked.iter().any(accepted)
    }

    /// It has looked everywhere, and there was nothing.
    pub fn settle(&mut self, waiter: &Waiter<R>) {
        let open = match &mut self.collector {
            Some(open) if open.waiter.order == waiter.order => Some(open),
            _ => self.open.get_mut(waiter.order),
        };
        if let Some(open) = open
            && !std::mem::replace(&mut open.settled, true)
        {
            self.settled += 1;
        }
    }

    /// P2: takes from whoever collects the units that `leaves` says yes to; it wants as many more then.
    pub fn take_parts(&mut self, leaves: impl Fn(&Lent<R>) -> bool) -> Vec<Lent<R>> {
        let Some(open) = &mut self.collector else { return Vec::new() };
        let parts = open.waiter.take_parts(leaves);
        open.missing += parts.len();
        if open.missing == open.waiter.count()
            && let Some(open) = self.collector.take()
        {
            // It has nothing, and nothing is on its way: it stands in its own place again.
            self.join(open);
        }
        parts
    }

    // Many at once.

    /// Those who wait for this node.
    pub fn leave_named(&mut self, node: usize) -> Vec<Left<R>> {
        let range = (node, Order::FIRST)..=(node, Order::LAST);
        let orders: Vec<Order> = self.keyed.range(range).map(|(&(_, order), _)| order).collect();
        orders.into_iter().filter_map(|order| self.take(Place::Keyed(node, order))).collect()
    }

    /// Those whose deadline has come.
    pub fn leave_overdue(&mut self, now: u64) -> Vec<Left<R>> {
        let due = ..=(now, Order::LAST);
        let tasks = self.task_deadlines.range(due).map(|(_, waiter)| waiter);
        let threads = self.thread_deadlines.range(due).map(|(_, waiter)| waiter);
        let overdue: Vec<_> = tasks.chain(threads).cloned().collect();
        overdue.into_iter().filter_map(|waiter| self.remove(&waiter)).collect()
    }

    /// Everybody.
    pub fn leave_all(&mut self) -> Vec<Left<R>> {
        let open = self.open.orders().map(Place::Open);
        let keyed = self.keyed.keys().map(|&(node, order)| Place::Keyed(node, order));
        let picky = self.picky.keys().map(|&order| Place::Picky(order));
        let places: Vec<_> = [Place::Collector].into_iter().chain(open).chain(keyed).chain(picky).collect();
        places.into_iter().filter_map(|place| self.take(place)).collect()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
