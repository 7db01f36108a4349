//! One unit's search for a taker.

use std::collections::BTreeSet;

use super::{
    super::{filter::Filter, waiter::Waiter},
    order::Order,
};
use crate::{resource::Resource, sync::Arc};

/// One unit's search through the queue.
#[derive(Debug)]
pub struct Search {
    /// The value that filters were asked about.
    value: usize,
    /// Filters registered up to this ticket have said no.
    pub(super) since: u64,
    /// Of the later ones, those up to here.
    pub(super) cursor: Order,
    /// This one has said yes.
    pub(super) accepted: Option<Order>,
    /// Of a look, which has taken what was eligible: filters that are away are passed over, but for the one that has said yes.
    pub(super) passes: bool,
    /// The ticket when it began.
    begun: Option<u64>,
    /// F6: those who were passed over, and have not answered since.
    passed: BTreeSet<Order>,
}

impl Search {
    pub const fn new() -> Self {
        Search {
            value: 0,
            since: 0,
            cursor: Order::FIRST,
            accepted: None,
            passes: false,
            begun: None,
            passed: BTreeSet::new(),
        }
    }

    /// For what a waiter's own look has taken.
    pub fn of_a_look() -> Self {
        Search { passes: true, ..Self::new() }
    }

    /// As [`of_a_look`](Self::of_a_look), if the waiter has a filter: `order` has accepted the value.
    pub fn accepted(value: usize, order: Order) -> Self {
        Search { value, accepted: Some(order), passes: true, ..Self::new() }
    }

    /// Answers are about one value; for another one everybody is asked again.
    pub fn about(&mut self, value: usize) {
        if self.value != value {
            *self = Search { value, passes: self.passes, ..Self::new() };
        }
    }

    pub fn answered(&mut self, order: Order, yes: bool) {
        self.passed.remove(&order);
        if yes {
            self.accepted = Some(order);
        } else {
            self.cursor = order;
        }
    }

    /// F6.
    pub fn passes_over(&mut self, order: Order) {
        self.passed.insert(order);
        self.cursor = order;
    }

    /// Whether one who has registered, and looked anew, with these tickets has still to be asked.
    pub fn is_new(&self, order: Order, ticket: u64, anew: u64) -> bool {
        // F7 is for what has passed it over: what it has refused already, it is not asked about again.
        ticket > self.since || anew > self.since && self.passed.contains(&order)
    }

    /// The ticket up to which this search knows of everybody: that of its beginning. Whoever has registered since may stand before the
    /// cursor, and has looked for itself, and not seen what is in hand.
    pub fn knows_until(&mut self, ticket: u64) -> u64 {
        *self.begun.get_or_insert(ticket)
    }

    /// From now on it passes nobody over, and begins anew. Answers whether it has done so until now.
    pub fn stops_passing(&mut self) -> bool {
        let passed = self.passes;
        if passed {
            *self = Search { value: self.value, begun: self.begun, ..Self::new() };
        }
        passed
    }

    /// Nobody wanted it who had registered by then.
    pub fn nobody_until(&mut self, ticket: u64) {
        let passed = std::mem::take(&mut self.passed);
        *self = Search { value: self.value, since: ticket, passed, ..Self::new() };
    }
}

/// Where the first candidate stands.
pub enum Next<R: Resource> {
    Nobody,
    /// It takes the resource.
    Taker(Place),
    /// Its filter must be asked.
    Ask(Arc<Waiter<R>>, Filter<R>),
    /// Its filter must be asked, and is away.
    Away(Order),
}

#[derive(Clone, Copy)]
pub enum Place {
    Collector,
    Open(Order),
    Keyed(usize, Order),
    Picky(Order),
}

impl Place {
    /// Of one who takes anything.
    pub const fn is_open(self) -> bool {
        matches!(self, Place::Collector | Place::Open(_))
    }
}
