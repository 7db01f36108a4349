//! What a thread has to do for others: units that were left with filters while it asked them.

use std::collections::{BTreeMap, VecDeque};

use super::{
    queue::{InHand, Order},
    waiter::Waiter,
};
use crate::{resource::Resource, sync::Arc};

/// Units of others that a thread asks filters about as about its own, before F5. Those that nobody has to be asked about do not count: F6 goes round
/// only where so many have had an answer.
///
/// Whoever waits is served whatever it is; in a model it is so small that the end of the patience is within reach.
const PATIENCE: usize = if cfg!(any(loom, shuttle)) { 1 } else { 16 };

/// The units that one thread has found with filters that it has brought back.
pub struct Work<R: Resource> {
    /// The oldest first: however many come after it, it has its turn.
    units: VecDeque<InHand<R>>,
    /// Whether this is one of them, and filters were asked about it: `None` for the thread's own, which may always ask.
    has_asked: Option<bool>,
    /// How many have asked.
    asking: usize,
    /// F6: whose filters were passed over.
    passed: BTreeMap<Order, Arc<Waiter<R>>>,
}

impl<R: Resource> Work<R> {
    pub const fn new() -> Self {
        Work { units: VecDeque::new(), has_asked: None, asking: 0, passed: BTreeMap::new() }
    }

    /// What was left with one filter, in the order in which it came.
    pub fn add(&mut self, parked: Vec<InHand<R>>) {
        self.units.extend(parked);
    }

    /// The one that has waited for longest.
    pub fn next(&mut self) -> Option<InHand<R>> {
        let next = self.units.pop_front()?;
        self.has_asked = Some(false);
        Some(next)
    }

    /// Whether a filter may be asked about the one that has its turn. F5: once that is not so, nothing more is left with one.
    pub fn may_ask(&mut self) -> bool {
        if self.has_asked == Some(false) && self.asking < PATIENCE {
            self.asking += 1;
            self.has_asked = Some(true);
        }
        self.has_asked != Some(false)
    }

    /// F6.
    pub fn pass_over(&mut self, waiter: Arc<Waiter<R>>) {
        self.passed.insert(waiter.order, waiter);
    }
}

/// F6, its end: also if user code has panicked on the way.
impl<R: Resource> Drop for Work<R> {
    fn drop(&mut self) {
        self.passed.values().for_each(|waiter| waiter.overlook());
    }
}

/// What has become of a unit in hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Came {
    Taken,
    /// Nobody wanted it, or nobody was to have it.
    Back,
    /// Whoever brings a filter back goes on with it, and with what else its resource has.
    Parked,
}
