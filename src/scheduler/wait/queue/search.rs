//! One unit's search for a taker.

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
    /// The ticket when it began.
    begun: Option<u64>,
}

impl Search {
    pub const fn new() -> Self {
        Search { value: 0, since: 0, cursor: Order::FIRST, accepted: None, begun: None }
    }

    /// A search whose end is known: `order` has accepted the value.
    pub const fn accepted(value: usize, order: Order) -> Self {
        Search { value, accepted: Some(order), ..Self::new() }
    }

    /// Answers are about one value; for another one everybody is asked again.
    pub fn about(&mut self, value: usize) {
        if self.value != value {
            *self = Search { value, ..Self::new() };
        }
    }

    pub fn answered(&mut self, order: Order, yes: bool) {
        if yes {
            self.accepted = Some(order);
        } else {
            self.cursor = order;
        }
    }

    /// The ticket up to which this search knows of everybody: that of its beginning. Whoever was passed over while it was being asked
    /// has looked for itself since, under a later ticket, and not seen what is in hand.
    pub fn knows_until(&mut self, ticket: u64) -> u64 {
        *self.begun.get_or_insert(ticket)
    }

    /// Nobody wanted it who had registered by then.
    pub fn nobody_until(&mut self, ticket: u64) {
        *self = Search { value: self.value, since: ticket, ..Self::new() };
    }
}

/// Where the first candidate stands.
pub enum Next<R: Resource> {
    Nobody,
    /// It takes the resource.
    Taker(Place),
    /// Its filter must be asked.
    Ask(Arc<Waiter<R>>, Filter<R>),
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
