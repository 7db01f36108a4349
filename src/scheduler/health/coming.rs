//! When a resource comes back by itself: the moment that "none" tells.
//!
//! The book's first moment says that something is due then, and no more: what is readmitted then may be excluded, may cool for longer, or
//! may have leases out from before; a step of a ramp may give nothing to anybody. So whoever has found nothing, and has to say when there
//! will be something, asks the resources themselves.
//!
//! Between O2 and O3 of an ejection, and between P1 and P2, the resource is not in the book: an acquisition that looks just then does not
//! tell its moment.

use super::{Core, Health, RAMP_STEPS};
use crate::{
    health::{Phase, Record},
    node::{Hold, Node, Standing, State},
    resource::Resource,
    shard::NEVER,
};

impl<R: Resource> Core<R> {
    /// When a resource that stands like this can be lent by itself. [`NEVER`] if that takes a return, or somebody who clears a hold.
    pub fn comes_back(&self, node: &Node<R>, state: State) -> u64 {
        let rested = if state.is_held(Hold::Cooling) { node.deadline() } else { 0 };
        let moment = match state.standing() {
            Standing::Cooling => Some(0),
            Standing::Ejected => Self::readmitted_at(node, state),
            Standing::AtCapacity => self.has_more_at(node, state),
            _ => None,
        };
        moment.map_or(NEVER, |moment| moment.max(rested))
    }

    /// When the rules readmit it, if it can be lent then: it comes back with one unit, which leases from before count against.
    fn readmitted_at(node: &Node<R>, state: State) -> Option<u64> {
        let record = node.record().filter(|record| record.phase() == Phase::Ejected)?;
        (state.in_flight() == 0).then(|| record.until())
    }

    /// When its ramp allows more leases than are out.
    fn has_more_at(&self, node: &Node<R>, state: State) -> Option<u64> {
        let health = self.health.as_ref()?;
        let rules = health.rules?;
        let record = node.record().filter(|record| record.phase() == Phase::Ramping)?;
        let full = record.full_limit().filter(|&full| full > state.in_flight())?;
        let began = record.until();
        let mut moment = began;
        // As many as there are, and those that a division leaves. Not more, even if somebody ejects it while we count.
        for _ in 0..2 * RAMP_STEPS {
            moment = self.next_step(health, began, moment);
            if record.ramped(&rules, moment, full) > state.in_flight() {
                return Some(moment);
            }
        }
        None
    }

    /// The first moment before `bound` at which something of the book comes back; else `bound`.
    ///
    /// In order of the book, up to the first entry that is not before what was found: as a rule that is the second one. O(entries) if all
    /// that are in it are kept by something else as well.
    pub fn first_back(&self, health: &Health<R>, bound: u64) -> u64 {
        health.book.least(bound, |node| self.comes_back(node, node.state.load()))
    }

    /// Does what is due for one resource at `now`, out of its turn.
    pub fn let_back(&self, node: &Node<R>, now: u64) {
        let Some((health, record)) = self.health.as_ref().zip(node.record()) else { return };
        match record.phase() {
            Phase::Ejected => self.readmit_early(health, record, node, now),
            Phase::Ramping => {
                {
                    let mut locked = self.lock(self.home(node));
                    if record.phase() != Phase::Ramping || node.state.load().is_removed() {
                        return;
                    }
                    self.step_up(&mut locked, node, now);
                }
                self.note_if_cooling(node);
            }
            Phase::Healthy | Phase::Probing => {}
        }
    }

    fn readmit_early(&self, health: &Health<R>, record: &Record, node: &Node<R>, now: u64) {
        let until = record.until();
        if until > now {
            return;
        }
        // Whoever has taken the entry out already finds it stale.
        self.probe(health, until, node);
        self.strike(health, until, node);
    }
}
