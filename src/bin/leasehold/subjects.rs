//! Named schedulers, ready to replay a trace.
//!
//! To add one: a value of [`Choice`] to name it, and an arm in [`build`] that makes it.

use std::sync::Arc;

use leasehold::{
    ManualClock,
    baseline::{Lend, MutexScheduler, RoundRobinScheduler},
};

use crate::{
    choice::Choice,
    error::{Error, Result},
    fleet::{Fleet, Server},
    simulate::{Rules, Simulation, Statistics},
    trace::Request,
};

/// A scheduler with its name and its clock, whatever its type.
pub trait Subject {
    fn name(&self) -> &str;

    /// A run from time 0. One subject runs once: its clock never goes back.
    fn start<'a>(&'a self, fleet: &Fleet, rules: Rules) -> Box<dyn Run + 'a>;

    /// Events emitted and dropped so far.
    fn events(&self) -> (u64, u64);
}

/// A run under way.
pub trait Run {
    fn arrive(&mut self, request: Request);
    fn finish(self: Box<Self>) -> Statistics;
}

impl<'a, L: Lend<Server> + 'a> Run for Simulation<'a, L> {
    fn arrive(&mut self, request: Request) {
        Simulation::arrive(self, request);
    }

    fn finish(self: Box<Self>) -> Statistics {
        Simulation::finish(*self)
    }
}

struct Named<L> {
    name: String,
    lender: L,
    clock: Arc<ManualClock>,
    events: fn(&L) -> (u64, u64),
}

impl<L: Lend<Server>> Subject for Named<L> {
    fn name(&self) -> &str {
        &self.name
    }

    fn start<'a>(&'a self, fleet: &Fleet, rules: Rules) -> Box<dyn Run + 'a> {
        Box::new(Simulation::new(&self.lender, &self.clock, fleet, rules))
    }

    fn events(&self) -> (u64, u64) {
        (self.events)(&self.lender)
    }
}

/// Makes the scheduler that `choice` names, with the whole fleet in it.
pub fn build(choice: &Choice, fleet: &Fleet, shards: u32, seed: u64) -> Result<Box<dyn Subject>> {
    let clock = Arc::new(ManualClock::new());
    match choice.strategy(shards) {
        Some(_strategy) => {
            let _ = seed;
            Err(Error::Options(format!("strategy {choice}: not available yet")))
        }
        None if *choice == Choice::Naive => {
            filled(choice, fleet, RoundRobinScheduler::with_clock(clock.clone()), clock, no_events)
        }
        None => filled(choice, fleet, MutexScheduler::with_clock(clock.clone()), clock, no_events),
    }
}

/// The yardsticks have no events.
fn no_events<L>(_: &L) -> (u64, u64) {
    (0, 0)
}

/// Puts the fleet into an empty scheduler.
fn filled<L: Lend<Server> + 'static>(
    choice: &Choice,
    fleet: &Fleet,
    lender: L,
    clock: Arc<ManualClock>,
    events: fn(&L) -> (u64, u64),
) -> Result<Box<dyn Subject>> {
    let name = choice.to_string();
    if let Err(refused) = lender.insert_batch(fleet.servers()) {
        return Err(Error::Options(format!("strategy {name}: refused {} resources", refused.len())));
    }
    Ok(Box::new(Named { name, lender, clock, events }))
}
