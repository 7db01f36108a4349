//! A process of the simulation: a member, and a scheduler reduced to what matters: who uses which unit, until when.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use crate::{
    cluster::{
        engine::{Change, HoldKind},
        holds::Seen,
        member::{Demand, Local, Loss, Member},
        terms::Terms,
        unit::{Claim, Roll, Unit},
    },
    sync::Timestamp,
};

/// A clock with a rate and an origin of its own.
#[derive(Clone, Copy, Debug)]
pub struct Skewed {
    pub rate: f64,
    pub offset: u64,
}

impl Skewed {
    pub fn read(&self, time: u64) -> Timestamp {
        Timestamp::from_nanos(self.offset + (time as f64 * self.rate) as u64)
    }
}

/// A lease, bound to a unit as by a fence.
#[derive(Clone, Debug)]
pub struct Use {
    pub place: usize,
    pub claim: Claim,
    pub ends: u64,
}

/// The scheduler of a process.
#[derive(Debug, Default)]
pub struct Desk {
    roll: Arc<Roll>,
    slots: BTreeMap<usize, Vec<Claim>>,
    lent: BTreeMap<usize, u32>,
    pub uses: Vec<Use>,
    pub good_until: Timestamp,
    /// Leases that this process wants to have out.
    pub wanted: u64,
    /// Units that were taken out or admitted since the world has looked.
    pub moved: Vec<(Unit, bool)>,
    pub revoked: u64,
}

impl Desk {
    fn slot_is_free(&self, claim: &Claim, place: usize) -> bool {
        let used = self.uses.iter().filter(|used| used.place == place && used.claim == *claim).count();
        used < self.roll.get(place).leases_per_unit as usize
    }

    /// Begins a lease on the best unit there is, if the claims are good by this clock.
    pub fn acquire(&mut self, now: Timestamp, ends: u64) -> Option<Use> {
        if now >= self.good_until {
            return None;
        }
        let places: Vec<usize> = self.lent.keys().copied().collect();
        for place in places {
            let leases = self.lent[&place] * self.roll.get(place).leases_per_unit;
            if self.count(place) < leases
                && let Some(claim) = self.slots[&place].iter().find(|claim| self.slot_is_free(claim, place))
            {
                let used = Use { place, claim: claim.clone(), ends };
                self.uses.push(used.clone());
                return Some(used);
            }
        }
        None
    }

    fn count(&self, place: usize) -> u32 {
        self.uses.iter().filter(|used| used.place == place).count() as u32
    }

    pub fn units(&self) -> impl Iterator<Item = &Claim> {
        self.slots.values().flatten()
    }
}

impl Local for Desk {
    fn demand(&mut self) -> Demand {
        let in_use = self.uses.len() as u64;
        Demand { in_use, waiting: self.wanted.saturating_sub(in_use) }
    }

    fn in_flight(&mut self, place: usize) -> u32 {
        self.count(place)
    }

    fn admit(&mut self, place: usize, claim: &Claim) {
        self.slots.entry(place).or_default().push(claim.clone());
        self.moved.push((claim.unit.clone(), true));
    }

    fn lend(&mut self, place: usize, units: u32) {
        if units == 0 {
            self.lent.remove(&place);
        } else {
            self.lent.insert(place, units);
        }
    }

    fn take(&mut self, place: usize, claim: &Claim) -> bool {
        let free = !self.uses.iter().any(|used| used.place == place && used.claim == *claim);
        if free && let Some(slots) = self.slots.get_mut(&place) {
            slots.retain(|slot| slot != claim);
            self.moved.push((claim.unit.clone(), false));
        }
        free
    }

    fn lose(&mut self, losses: &[Loss]) {
        for loss in losses {
            if loss.units_left == 0 {
                self.lent.remove(&loss.place);
            }
            if let Some(slots) = self.slots.get_mut(&loss.place) {
                slots.retain(|slot| !loss.claims.contains(slot));
            }
            let before = self.uses.len();
            self.uses.retain(|used| used.place != loss.place || !loss.claims.contains(&used.claim));
            self.revoked += (before - self.uses.len()) as u64;
            self.moved.extend(loss.claims.iter().map(|claim| (claim.unit.clone(), false)));
        }
    }

    fn good_until(&mut self, until: Timestamp) {
        self.good_until = until;
    }

    fn hold(&mut self, _place: usize, _kind: HoldKind, _change: Change) {}

    fn holds(&mut self) -> Option<HashMap<usize, Seen>> {
        None
    }
}

/// What a process is at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    Running,
    /// Stopped, as by SIGSTOP.
    Stopped,
    Dead,
}

/// A process.
#[derive(Debug)]
pub struct Process {
    pub life: Life,
    /// Which of its lives this is: what was meant for an earlier one is dropped.
    pub incarnation: u64,
    /// It was stopped, and its member has not run since.
    pub late: bool,
    pub clock: Skewed,
    pub member: Member,
    pub desk: Desk,
    /// The request that it waits for.
    pub waits: Option<u64>,
    pub cut_off: bool,
}

impl Process {
    pub fn new(name: String, terms: Terms, roll: &Arc<Roll>, clock: Skewed) -> Self {
        let me: Arc<str> = name.into();
        Process {
            life: Life::Running,
            incarnation: 0,
            late: false,
            clock,
            member: Member::new(me, 1, terms, Arc::clone(roll)),
            desk: Desk { roll: Arc::clone(roll), ..Desk::default() },
            waits: None,
            cut_off: false,
        }
    }

    /// Whether it honours what it holds, at this moment of the world: by its own clock if it was stopped, which is what fences do; at all
    /// events if it runs.
    pub fn honours(&self, time: u64) -> bool {
        match self.life {
            Life::Dead => false,
            Life::Running if !self.late => true,
            _ => self.clock.read(time) < self.desk.good_until,
        }
    }
}
