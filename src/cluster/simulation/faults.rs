//! What goes wrong.

use super::{
    process::{Life, Skewed},
    world::{Event, MILLI, ORIGIN, World},
};
use crate::cluster::{ledger::Ledger, unit::Unit};

impl World {
    /// How long what goes wrong lasts.
    fn some_time(&mut self) -> u64 {
        let ttl = self.plan.terms.ttl().as_millis() as u64;
        (1 + self.below(3 * ttl)) * MILLI
    }

    /// Something happens to a process, or to its line.
    pub(super) fn fault(&mut self) {
        self.outcome.faults += 1;
        let place = self.below(self.plan.processes as u64) as usize;
        let lasts = self.some_time();
        match self.below(5) {
            0 | 1 => {
                self.processes[place].life = Life::Dead;
                self.at(lasts, Event::Mend(place));
            }
            2 | 3 => {
                if self.processes[place].life == Life::Running {
                    self.processes[place].life = Life::Stopped;
                    self.processes[place].late = true;
                    self.at(lasts, Event::Mend(place));
                }
            }
            _ => {
                self.processes[place].cut_off = true;
                self.at(lasts, Event::Mend(place));
            }
        }
    }

    /// Something happens to the engine: after most of it nothing is granted for a time to live.
    pub(super) fn outage(&mut self) {
        self.outcome.outages += 1;
        let lasts = self.some_time();
        // A clock that is set back and data that are lost at once are more than tokens bear: docs/cluster.md.
        match self.below(if self.plan.set_back { 3 } else { 4 }) {
            0 => {
                self.engine_up = false;
                self.at(lasts, Event::EngineUp);
            }
            1 => self.new_epoch(false),
            2 if self.plan.set_back => {
                let ttl = self.plan.terms.ttl().as_millis() as u64;
                self.engine.offset -= self.below(5 * ttl) * MILLI;
            }
            // Everything was deleted, under a server that goes on.
            2 => {
                self.outcome.epochs += 1;
                self.ledger = Ledger::default();
            }
            _ => self.new_epoch(true),
        }
    }

    /// Another server takes over, or the same one starts again: with all that was written, or without the last of it.
    fn new_epoch(&mut self, loses: bool) {
        self.epoch += u64::from(!(loses && self.plan.silent));
        self.outcome.epochs += 1;
        if loses {
            let back = self.below(self.past.len() as u64 + 1) as usize;
            self.ledger = self.past.get(back).cloned().unwrap_or_default();
        }
        // Another machine, another clock: any two are less than the time to live apart, with what they go wrong in a run.
        let skew = self.below(self.plan.terms.ttl().as_millis() as u64 / 4) * MILLI;
        let earlier = self.below(2) == 0;
        let offset = ORIGIN + self.time;
        let offset = if earlier { offset - skew } else { offset + skew };
        let rate = self.some_rate();
        self.engine = Skewed { rate, offset: offset - (self.time as f64 * rate) as u64 };
    }

    pub(super) fn mend(&mut self, place: usize) {
        self.processes[place].cut_off = false;
        match self.processes[place].life {
            Life::Running => {}
            // Its threads run before its cluster thread does, as late as `Run` comes.
            Life::Stopped => self.processes[place].life = Life::Running,
            Life::Dead => {
                let units: Vec<Unit> =
                    self.processes[place].desk.units().map(|claim| claim.unit.clone()).collect();
                for unit in units {
                    self.holders.entry(unit).or_default().remove(&place);
                }
                self.outcome.revoked += self.processes[place].desk.revoked;
                let incarnation = self.processes[place].incarnation + 1;
                self.processes[place] = self.some_process(place);
                self.processes[place].incarnation = incarnation;
            }
        }
    }
}
