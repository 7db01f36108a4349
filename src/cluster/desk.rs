//! The scheduler as a member's [`Local`]: claimed units become capacity, lost ones are revoked.
//!
//! A resource is in the scheduler while some of its units are lent here, or leases are out on it. When its last unit is to leave, it drains, and is
//! removed once nothing is out; so it never comes back half-way. A resource that drains by somebody else's wish is not undrained.

use std::{
    collections::{BTreeSet, HashMap},
    hash::BuildHasher,
    time::Duration,
};

use super::{
    engine::{Change, HoldKind},
    fence::Fences,
    holds::Seen,
    member::{Demand, Local, Loss},
    unit::{Claim, Roll, Share},
};
use crate::{
    node::{Hold, quietly},
    resource::Resource,
    scheduler::{InsertError, LeaseInfo, Scheduler, Stats},
    sync::{Arc, Clock, Timestamp},
};

/// Makes a resource of so many units.
pub type Make<R> = Box<dyn Fn(&Share, u32) -> R + Send>;

#[derive(Clone, Copy, Debug, Default)]
struct Presence {
    present: bool,
    /// It drains, and nobody but this desk wants that.
    drained: bool,
}

/// See the module.
pub struct Desk<R: Resource, S> {
    scheduler: Arc<Scheduler<R, S>>,
    roll: Arc<Roll>,
    keys: Vec<R::Key>,
    places: HashMap<R::Key, usize>,
    make: Make<R>,
    fences: Arc<Fences<R::Key>>,
    clock: Arc<dyn Clock>,
    present: HashMap<usize, Presence>,
    /// Resources that are removed once nothing is out.
    parting: BTreeSet<usize>,
    /// Resources with more leases out than claimed units allow, and how many they allow: what is recorded is revoked. A lease that was
    /// handed to somebody who has not woken up yet is recorded when he does.
    excess: HashMap<usize, u32>,
    stats: Stats,
    seen_holds: u64,
    pub revoked: u64,
    pub outlived: u64,
    /// Changes that the scheduler has refused, or whose callbacks have panicked.
    pub faults: u64,
}

impl<R: Resource, S: BuildHasher> Desk<R, S> {
    /// `None` if the resource of some share has the key of another one.
    pub fn new(
        scheduler: Arc<Scheduler<R, S>>,
        roll: Arc<Roll>,
        make: Make<R>,
        fences: Arc<Fences<R::Key>>,
        clock: Arc<dyn Clock>,
    ) -> Option<Self> {
        let keys: Vec<R::Key> = roll.shares().iter().map(|share| make(share, 1).key()).collect();
        let places: HashMap<_, _> =
            keys.iter().cloned().enumerate().map(|(place, key)| (key, place)).collect();
        (places.len() == keys.len()).then(|| Desk {
            scheduler,
            roll,
            keys,
            places,
            make,
            fences,
            clock,
            present: HashMap::new(),
            parting: BTreeSet::new(),
            excess: HashMap::new(),
            stats: Stats::default(),
            seen_holds: 0,
            revoked: 0,
            outlived: 0,
            faults: 0,
        })
    }

    fn count(&self, place: usize) -> u32 {
        self.scheduler.in_flight(&self.keys[place]).unwrap_or(0)
    }

    /// Whether there are leases that should not be out.
    pub fn is_in_excess(&self) -> bool {
        !self.excess.is_empty()
    }

    /// Gives leases up that could not be revoked: those who have them have not picked them up yet.
    pub fn give_up(&mut self) {
        for (place, allowed) in std::mem::take(&mut self.excess) {
            self.outlived += u64::from(self.count(place).saturating_sub(allowed));
        }
    }

    /// Revokes what should not be out, removes what has drained, withdraws again what somebody has undrained.
    pub fn tidy(&mut self) {
        if !self.excess.is_empty() {
            self.revoke_excess();
        }
        for &place in &self.parting {
            if let Some(presence) = self.present.get_mut(&place) {
                presence.drained |= self.scheduler.drain(&self.keys[place]).unwrap_or(false);
            }
        }
        let idle: Vec<usize> = self.parting.iter().copied().filter(|&place| self.count(place) == 0).collect();
        for place in idle {
            self.parting.remove(&place);
            self.present.remove(&place);
            // Somebody else may have removed it.
            let _ = self.scheduler.remove(&self.keys[place]);
        }
    }

    /// Lends nothing any more, and nothing may be out: for when the member cannot go on, and nobody keeps its deadlines.
    pub fn stop(&mut self) {
        self.fences.set_good_until(Timestamp::ZERO);
        for place in self.present.keys().copied().collect::<Vec<_>>() {
            self.withdraw(place);
            if self.scheduler.records_leases() {
                self.excess.insert(place, 0);
            }
        }
    }

    fn withdraw(&mut self, place: usize) {
        let Some(presence) = self.present.get_mut(&place) else { return };
        if !presence.drained {
            // `Ok(false)`: somebody else drains it already.
            presence.drained = self.scheduler.drain(&self.keys[place]).unwrap_or(false);
        }
        self.parting.insert(place);
    }

    /// Whether the scheduler has the resource now.
    fn put(&mut self, place: usize, units: u32) -> bool {
        let make = |roll: &Roll| quietly(|| (self.make)(roll.get(place), units));
        let Some(resource) = make(&self.roll) else { return false };
        let present = self.present.get(&place).is_some_and(|presence| presence.present);
        let updated = quietly(|| {
            if present {
                match self.scheduler.update(resource) {
                    Ok(()) => return true,
                    Err(rejected) => return self.scheduler.insert(rejected.into_inner()).is_ok(),
                }
            }
            match self.scheduler.insert(resource) {
                Ok(()) => true,
                Err(rejected) if matches!(rejected.error, InsertError::Duplicate { .. }) => {
                    self.scheduler.update(rejected.into_inner()).is_ok()
                }
                Err(_) => false,
            }
        });
        updated == Some(true)
    }

    /// Revokes leases, the oldest first, of resources that have more of them out than they may.
    fn revoke_excess(&mut self) {
        self.settle_excess();
        if self.excess.is_empty() {
            return;
        }
        let mut out: HashMap<usize, Vec<LeaseInfo<R::Key>>> = HashMap::new();
        for info in self.scheduler.leases() {
            if let Some(&place) = self.places.get(&info.key)
                && self.excess.contains_key(&place)
            {
                out.entry(place).or_default().push(info);
            }
        }
        for (place, leases) in out {
            for info in leases {
                if self.count(place) <= self.excess[&place] {
                    break;
                }
                self.revoked += u64::from(self.scheduler.revoke(info.token).is_ok());
            }
        }
        self.settle_excess();
    }

    /// Forgets resources that have no more leases out than they may.
    fn settle_excess(&mut self) {
        let (scheduler, keys) = (&self.scheduler, &self.keys);
        self.excess.retain(|&place, allowed| scheduler.in_flight(&keys[place]).unwrap_or(0) > *allowed);
    }
}

impl<R: Resource, S: BuildHasher> Local for Desk<R, S> {
    fn demand(&mut self) -> Demand {
        self.stats = self.scheduler.stats();
        let waits = &self.stats.waits;
        let ended = waits.handed_off + waits.timed_out + waits.cancelled + waits.failed + waits.closed;
        Demand { in_use: self.stats.in_flight, waiting: waits.waited.saturating_sub(ended) }
    }

    fn in_flight(&mut self, place: usize) -> u32 {
        self.count(place)
    }

    fn admit(&mut self, place: usize, claim: &Claim) {
        self.fences.admit(&self.keys[place], claim, self.roll.get(place).leases_per_unit);
    }

    fn lend(&mut self, place: usize, units: u32) {
        if units == 0 {
            self.withdraw(place);
            return;
        }
        if !self.put(place, units) {
            self.faults += 1;
            // Of what cannot be made smaller nothing more is lent.
            self.withdraw(place);
            return;
        }
        if let Some(allowed) = self.excess.get_mut(&place) {
            *allowed = (*allowed).max(units * self.roll.get(place).leases_per_unit);
        }
        self.parting.remove(&place);
        let presence = self.present.entry(place).or_default();
        presence.present = true;
        if std::mem::take(&mut presence.drained) {
            let _ = self.scheduler.undrain(&self.keys[place]);
        }
    }

    fn take(&mut self, place: usize, claim: &Claim) -> bool {
        self.fences.take(&self.keys[place], claim)
    }

    fn lose(&mut self, losses: &[Loss]) {
        let mut bound = Vec::new();
        for loss in losses {
            bound.extend(self.fences.lose(&self.keys[loss.place], &loss.claims));
            if loss.units_left == 0 {
                self.withdraw(loss.place);
            }
        }
        for token in bound {
            self.revoked += u64::from(self.scheduler.revoke(token).is_ok());
        }
        for loss in losses {
            let allowed = loss.units_left * self.roll.get(loss.place).leases_per_unit;
            let over = u64::from(self.count(loss.place).saturating_sub(allowed));
            if self.scheduler.records_leases() {
                self.excess.insert(loss.place, allowed);
            } else {
                self.outlived += over;
            }
        }
        // What has drained is removed by `tidy`, when the member has looked at the holds that were set there meanwhile.
        if !self.excess.is_empty() {
            self.revoke_excess();
        }
    }

    fn good_until(&mut self, until: Timestamp) {
        self.fences.set_good_until(until);
    }

    fn hold(&mut self, place: usize, kind: HoldKind, change: Change) {
        let key = &self.keys[place];
        let scheduler = &self.scheduler;
        // `NotFound`: it is not here, or not any more.
        let _ = match (kind, change) {
            (HoldKind::Cooling, Change::Set(duration)) => {
                scheduler.cool(key, duration.unwrap_or(Duration::MAX))
            }
            (HoldKind::Cooling, Change::Cleared) => scheduler.warm(key),
            (HoldKind::Excluded, Change::Set(_)) => scheduler.exclude(key),
            (HoldKind::Excluded, Change::Cleared) => scheduler.include(key),
            (HoldKind::Ejected, Change::Set(_)) => scheduler.eject(key),
            (HoldKind::Ejected, Change::Cleared) => scheduler.readmit(key),
        };
    }

    fn holds(&mut self) -> Option<HashMap<usize, Seen>> {
        let stats = &self.stats;
        let changes =
            stats.cooled + stats.warmed + stats.excluded + stats.included + stats.ejected + stats.readmitted;
        if std::mem::replace(&mut self.seen_holds, changes) == changes {
            return None;
        }
        let (theirs, ours) = (self.scheduler.now(), self.clock.now());
        // From the scheduler's clock to the cluster's.
        let moment = |nanos: u64| ours.saturating_add(Timestamp::from_nanos(nanos).saturating_since(theirs));
        let seen = self.scheduler.snapshot().into_iter().filter_map(|state| {
            let place = *self.places.get(&state.key)?;
            let is = |hold| state.holds.contains(&hold);
            let holds = [
                is(Hold::Cooling).then(|| state.cooling_until.map(moment)),
                is(Hold::Excluded).then_some(None),
                is(Hold::Ejected).then(|| state.ejected_until.map(moment)),
            ];
            Some((place, holds))
        });
        Some(seen.collect())
    }
}
