//! Named schedulers, ready to replay a trace.
//!
//! To add one: a value of [`Choice`] to name it, and an arm in [`build`] that makes it.

use std::{
    hash::{BuildHasherDefault, Hasher},
    sync::Arc,
};

use leasehold::{
    ManualClock, Scheduler, SplitMix64,
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

/// A simulation whose events somebody takes out as time goes by.
struct Observed<'a, L: Lend<Server>> {
    simulation: Simulation<'a, L>,
    lender: &'a L,
    take_events: fn(&L),
}

impl<'a, L: Lend<Server> + 'a> Run for Observed<'a, L> {
    fn arrive(&mut self, request: Request) {
        self.simulation.arrive(request);
        (self.take_events)(self.lender);
    }

    fn finish(self: Box<Self>) -> Statistics {
        let statistics = self.simulation.finish();
        (self.take_events)(self.lender);
        statistics
    }
}

struct Named<L> {
    name: String,
    lender: L,
    clock: Arc<ManualClock>,
    events: Events<L>,
}

/// How to take a subject's events out, and how many it has emitted and dropped.
struct Events<L> {
    take: fn(&L),
    count: fn(&L) -> (u64, u64),
}

impl<L: Lend<Server>> Subject for Named<L> {
    fn name(&self) -> &str {
        &self.name
    }

    fn start<'a>(&'a self, fleet: &Fleet, rules: Rules) -> Box<dyn Run + 'a> {
        let simulation = Simulation::new(&self.lender, &self.clock, fleet, rules);
        Box::new(Observed { simulation, lender: &self.lender, take_events: self.events.take })
    }

    fn events(&self) -> (u64, u64) {
        (self.events.count)(&self.lender)
    }
}

/// Makes the scheduler that `choice` names, with the whole fleet in it.
pub fn build(choice: &Choice, fleet: &Fleet, shards: u32, seed: u64) -> Result<Box<dyn Subject>> {
    let clock = Arc::new(ManualClock::new());
    match choice.strategy(shards) {
        Some(strategy) => {
            let scheduler = Scheduler::builder()
                .hasher(BuildHasherDefault::<KeyHasher>::default())
                .shards(shards as usize)
                .strategy(strategy)
                .clock(clock.clone())
                .seed(seed)
                .event_capacity(EVENT_CAPACITY)
                .build()
                .map_err(|error| Error::Options(format!("strategy {choice}: {error}")))?;
            filled(choice, fleet, scheduler, clock, Events { take: take_events, count: count_events })
        }
        None if *choice == Choice::Naive => {
            filled(choice, fleet, RoundRobinScheduler::with_clock(clock.clone()), clock, no_events())
        }
        None => filled(choice, fleet, MutexScheduler::with_clock(clock.clone()), clock, no_events()),
    }
}

/// Events of one shard between two arrivals: more than one request can cause, so a drop would be a finding.
const EVENT_CAPACITY: usize = 1024;

type Real = Scheduler<Server, BuildHasherDefault<KeyHasher>>;

fn take_events(scheduler: &Real) {
    while !scheduler.take_events(EVENT_CAPACITY).is_empty() {}
}

fn count_events(scheduler: &Real) -> (u64, u64) {
    let stats = scheduler.stats();
    (stats.events_emitted, stats.events_dropped)
}

/// For what has no events.
fn no_events<L>() -> Events<L> {
    Events { take: |_| {}, count: |_| (0, 0) }
}

/// Puts the fleet into an empty scheduler.
fn filled<L: Lend<Server> + 'static>(
    choice: &Choice,
    fleet: &Fleet,
    lender: L,
    clock: Arc<ManualClock>,
    events: Events<L>,
) -> Result<Box<dyn Subject>> {
    let name = choice.to_string();
    if let Err(refused) = lender.insert_batch(fleet.servers()) {
        return Err(Error::Options(format!("strategy {name}: refused {} resources", refused.len())));
    }
    Ok(Box::new(Named { name, lender, clock, events }))
}

/// Hashes the fleet's keys alike on every machine and in every run; the library's own hasher is seeded at random.
#[derive(Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u32(u32::from(byte)));
    }

    fn write_u32(&mut self, key: u32) {
        self.0 = SplitMix64::mix(self.0 ^ (u64::from(key) + 1));
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_choice_builds() {
        let fleet = Fleet::built_in();
        for text in [
            "sticky",
            "sticky:2:16",
            "best-of:3",
            "round-robin",
            "weighted",
            "weighted:1:0:3:4",
            "adaptive",
            "strict",
        ] {
            let subject = build(&text.parse().unwrap(), &fleet, 4, 1).unwrap();
            assert_eq!(subject.name(), text);
        }
        let error = build(&"weighted:1:2".parse().unwrap(), &fleet, 4, 1).err().unwrap().to_string();
        assert!(error.starts_with("strategy weighted:1:2: "), "{error}");
    }

    #[test]
    fn keys_hash_to_different_numbers() {
        let hash = |key: u32| {
            let mut hasher = KeyHasher::default();
            hasher.write_u32(key);
            hasher.finish()
        };
        let hashes: std::collections::BTreeSet<u64> = (0..10_000).map(hash).collect();
        assert_eq!(hashes.len(), 10_000);
    }
}
