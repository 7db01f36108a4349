//! A process of the simulation: a member, and a scheduler reduced to what matters: who uses which unit, until when.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use crate::{
    cluster::{
        engine::{Change, HoldKind},
        holds::Seen,
        member::{Demand, Local, Loss, Member},
        planted::{Planted, is_planted},
        terms::Terms,
        unit::{Claim, Roll, Unit},
    },
    sync::Timestamp,
};

/// A hold in a scheduler.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// When it ends by itself, if it does.
    pub until: Option<Timestamp>,
}

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

    /// The moment of the world at which it shows this.
    pub fn when(&self, moment: Timestamp) -> u64 {
        (moment.as_nanos().saturating_sub(self.offset) as f64 / self.rate) as u64
    }
}

/// A lease; with a fence it is bound to the unit.
#[derive(Clone, Debug)]
pub struct Use {
    pub place: usize,
    pub claim: Claim,
    pub ends: u64,
    pub fenced: bool,
    pub number: u64,
}

/// The scheduler of a process.
#[derive(Debug, Default)]
pub struct Desk {
    roll: Arc<Roll>,
    slots: BTreeMap<usize, Vec<Claim>>,
    lent: BTreeMap<usize, u32>,
    uses: Vec<Use>,
    number: u64,
    /// Uses of each resource.
    out: HashMap<usize, u32>,
    /// Fenced uses of each claim, by its token, which is one of a kind.
    bound: HashMap<u64, u32>,
    pub good_until: Timestamp,
    /// Leases that this process wants to have out.
    pub wanted: u64,
    /// Units that were taken out or admitted since the world has looked.
    pub moved: Vec<(Unit, bool)>,
    pub revoked: u64,
    /// The clock, as of the last event.
    pub now: Timestamp,
    /// Resources that are there: lent, or with uses that go on.
    present: BTreeSet<usize>,
    holds: BTreeMap<(usize, HoldKind), Held>,
    /// Resources that leases without a record keep there for so long, after their units are lost: nobody can revoke those.
    pub kept: Vec<(usize, u64)>,
    /// Whether there are such leases.
    pub unrecorded: bool,
    holds_changed: bool,
    /// Of budgets: the tokens of what is held, and when each is ripe.
    ripening: HashMap<usize, Vec<(u64, Timestamp)>>,
    /// Of those, how many units are to be lent, and how many are.
    asked: BTreeMap<usize, (u32, u32)>,
}

impl Desk {
    /// Removes resources that are idle and not lent, with the holds that they have here.
    pub fn tidy(&mut self) {
        let (lent, out) = (&self.lent, &self.out);
        let kept = |place: &usize| self.kept.iter().any(|(kept, _)| kept == place);
        self.present.retain(|place| {
            lent.contains_key(place) || out.get(place).is_some_and(|out| *out > 0) || kept(place)
        });
        let (present, now) = (&self.present, self.now);
        self.holds
            .retain(|(place, _), held| present.contains(place) && held.until.is_none_or(|until| until > now));
    }

    pub fn present(&self) -> impl Iterator<Item = usize> + '_ {
        self.present.iter().copied()
    }

    pub fn is_present(&self, place: usize) -> bool {
        self.present.contains(&place)
    }

    pub fn held(&self, place: usize, kind: HoldKind) -> Option<Held> {
        let held = self.holds.get(&(place, kind)).copied();
        held.filter(|held| held.until.is_none_or(|until| until > self.now))
    }

    /// Sets a hold, as the application, rules or the cluster do. An end is moved to a later moment only, and by hand there is none.
    pub fn set_hold(&mut self, place: usize, kind: HoldKind, until: Option<Timestamp>) {
        if !self.present.contains(&place) {
            return;
        }
        let until = match self.held(place, kind) {
            Some(Held { until: before }) => before.zip(until).map(|(before, until)| before.max(until)),
            None => until,
        };
        self.holds.insert((place, kind), Held { until });
        self.holds_changed = true;
    }

    pub fn clear_hold(&mut self, place: usize, kind: HoldKind) {
        self.holds_changed |= self.holds.remove(&(place, kind)).is_some();
    }

    fn bound(&self, claim: &Claim) -> u32 {
        self.bound.get(&claim.token).copied().unwrap_or(0)
    }

    fn count(&self, place: usize) -> u32 {
        self.out.get(&place).copied().unwrap_or(0)
    }

    /// Ends uses; answers how many.
    pub fn end(&mut self, over: impl Fn(&Use) -> bool) -> u64 {
        let before = self.uses.len();
        let (out, bound) = (&mut self.out, &mut self.bound);
        self.uses.retain(|used| {
            let over = over(used);
            if over {
                *out.get_mut(&used.place).expect("it is counted") -= 1;
                if used.fenced {
                    *bound.get_mut(&used.claim.token).expect("it is counted") -= 1;
                }
            }
            !over
        });
        (before - self.uses.len()) as u64
    }

    pub fn in_use(&self) -> u64 {
        self.uses.len() as u64
    }

    /// Whether some fenced use of this unit goes on.
    pub fn uses(&self, unit: &Unit, time: u64) -> bool {
        self.uses.iter().any(|used| used.fenced && used.claim.unit == *unit && used.ends > time)
    }

    /// A resource with more leases out than its units allow.
    pub fn overdrawn(&self) -> Option<usize> {
        let units = |place| self.slots.get(&place).map_or(0, |slots| slots.len() as u32);
        let over = |&(place, out): &(usize, u32)| out > units(place) * self.roll.get(place).leases_per_unit;
        self.out.iter().map(|(&place, &out)| (place, out)).find(over).map(|(place, _)| place)
    }

    /// Begins a lease on the best unit there is, if the claims are good by this clock.
    pub fn acquire(&mut self, now: Timestamp, ends: u64, fenced: bool) -> Option<Use> {
        // A fence reads the clock; the scheduler does not, and lends until the cluster's thread has run.
        if fenced && now >= self.good_until {
            return None;
        }
        for (&place, units) in &self.lent {
            let leases = self.roll.get(place).leases_per_unit;
            if self.count(place) < units * leases
                && HoldKind::ALL.iter().all(|kind| self.held(place, *kind).is_none())
                && let Some(claim) = self.slots[&place].iter().find(|claim| self.bound(claim) < leases)
            {
                let used = Use { place, claim: claim.clone(), ends, fenced, number: self.number };
                self.number += 1;
                *self.out.entry(place).or_default() += 1;
                *self.bound.entry(used.claim.token).or_default() += u32::from(fenced);
                self.uses.push(used.clone());
                return Some(used);
            }
        }
        None
    }

    pub fn units(&self) -> impl Iterator<Item = &Claim> {
        self.slots.values().flatten()
    }

    /// Units that leases may begin on.
    pub fn lent(&self) -> u32 {
        self.lent.values().sum()
    }

    /// Whether leases may begin on some of its units.
    pub fn lends(&self, place: usize) -> bool {
        self.lent.contains_key(&place)
    }

    /// How many units of a budget are old enough.
    fn ripe(&self, place: usize) -> u32 {
        let units = self.ripening.get(&place).into_iter().flatten();
        units.filter(|(_, ripe)| *ripe <= self.now || is_planted(Planted::LendsUnripe)).count() as u32
    }

    fn forget(&mut self, place: usize, claim: &Claim) {
        if let Some(units) = self.ripening.get_mut(&place) {
            units.retain(|(token, _)| *token != claim.token);
        }
    }
}

impl Local for Desk {
    fn demand(&mut self) -> Demand {
        let in_use = self.in_use();
        Demand { in_use, waiting: self.wanted.saturating_sub(in_use) }
    }

    fn in_flight(&mut self, place: usize) -> u32 {
        self.count(place)
    }

    fn admit(&mut self, place: usize, claim: &Claim) {
        self.slots.entry(place).or_default().push(claim.clone());
        self.moved.push((claim.unit.clone(), true));
        let period = self.roll.get(place).period;
        if !period.is_zero() {
            let ripe = self.now.saturating_add(period);
            self.ripening.entry(place).or_default().push((claim.token, ripe));
        }
    }

    fn lend(&mut self, place: usize, units: u32) {
        let units = if self.roll.get(place).period.is_zero() {
            units
        } else {
            let ripe = units.min(self.ripe(place));
            self.asked.insert(place, (units, ripe));
            ripe
        };
        if units == 0 {
            self.lent.remove(&place);
        } else {
            self.lent.insert(place, units);
            self.present.insert(place);
        }
    }

    fn take(&mut self, place: usize, claims: &[Claim], most: u32) -> Vec<Claim> {
        let unbound = claims.iter().rev().filter(|claim| self.bound(claim) == 0);
        let taken: Vec<Claim> = unbound.take(most as usize).cloned().collect();
        if let Some(slots) = self.slots.get_mut(&place) {
            slots.retain(|slot| !taken.contains(slot));
        }
        for claim in &taken {
            self.moved.push((claim.unit.clone(), false));
            self.forget(place, claim);
        }
        taken
    }

    fn lose(&mut self, losses: &[Loss]) {
        for loss in losses {
            loss.claims.iter().for_each(|claim| self.forget(loss.place, claim));
            if loss.units_left == 0 {
                self.lent.remove(&loss.place);
                self.asked.remove(&loss.place);
            } else if let Some(&(units, lent)) = self.asked.get(&loss.place)
                && lent > self.ripe(loss.place)
            {
                self.lend(loss.place, units);
            }
            if let Some(slots) = self.slots.get_mut(&loss.place) {
                slots.retain(|slot| !loss.claims.contains(slot));
            }
            let place = loss.place;
            self.revoked +=
                self.end(|used| used.fenced && used.place == place && loss.claims.contains(&used.claim));
            let allowed = loss.units_left * self.roll.get(place).leases_per_unit;
            let over = self.count(place).saturating_sub(allowed);
            let others = self.uses.iter().filter(|used| !used.fenced && used.place == place);
            let last: Vec<u64> = others.take(over as usize).map(|used| used.number).collect();
            if self.unrecorded && !last.is_empty() {
                let ends = self.uses.iter().filter(|used| last.contains(&used.number)).map(|used| used.ends);
                // As long as applications let them be.
                let ends = ends.max().unwrap_or(0) + 3_000_000_000;
                self.kept.push((place, ends));
            }
            self.revoked += self.end(|used| last.contains(&used.number));
            self.moved.extend(loss.claims.iter().map(|claim| (claim.unit.clone(), false)));
        }
    }

    fn ripened(&mut self) -> Vec<usize> {
        let grown = |(&place, &(units, lent)): (&usize, &(u32, u32))| {
            (lent < units.min(self.ripe(place))).then_some(place)
        };
        self.asked.iter().filter_map(grown).collect()
    }

    fn ripening(&mut self, place: usize) -> u32 {
        self.asked.get(&place).map_or(0, |(units, lent)| units - lent)
    }

    fn good_until(&mut self, until: Timestamp) {
        self.good_until = until;
    }

    fn hold(&mut self, place: usize, kind: HoldKind, change: Change) {
        match (kind, change) {
            (HoldKind::Cooling, Change::Set(duration)) => {
                let until = duration.map(|duration| self.now.saturating_add(duration));
                self.set_hold(place, kind, until);
            }
            // By hand: it has no end.
            (_, Change::Set(_)) => self.set_hold(place, kind, None),
            (_, Change::Cleared) => self.clear_hold(place, kind),
        }
    }

    fn holds(&mut self) -> Option<HashMap<usize, Seen>> {
        let changed = std::mem::take(&mut self.holds_changed);
        let of = |place| HoldKind::ALL.map(|kind| self.held(place, kind).map(|held| held.until));
        changed.then(|| self.present.iter().map(|&place| (place, of(place))).collect())
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
    pub fn new(name: String, nonce: u64, terms: Terms, roll: &Arc<Roll>, clock: Skewed) -> Self {
        let me: Arc<str> = name.into();
        Process {
            life: Life::Running,
            incarnation: 0,
            late: false,
            clock,
            member: Member::new(me, 1, terms, Arc::clone(roll)).with_nonce(nonce),
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
