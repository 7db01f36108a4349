//! The scheduler as a member's [`Local`]: claimed units become capacity, lost ones are revoked.
//!
//! A resource is in the scheduler while some of its units are lent here, or leases are out on it. When its last unit is to leave, it drains, and is
//! removed once nothing is out; so it never comes back half-way. A resource that drains by somebody else's wish is not undrained.
//!
//! Units of a budget ([`Share::period`](method@Share::period)) are lent once they have *ripened*: a period after their claim.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::BuildHasher,
    time::Duration,
};

use super::{
    engine::{Change, HoldKind},
    fence::Fences,
    holds::{Apply, Seen},
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
    /// Of these, what had nothing out at the last look: the member has looked since at the holds that its last lease has set.
    idle: BTreeSet<usize>,
    /// Resources with more leases out than claimed units allow, and how many they allow: what is recorded is revoked. A lease that was
    /// handed to somebody who has not woken up yet is recorded when he does.
    excess: HashMap<usize, u32>,
    /// When something has come there last.
    excess_at: Timestamp,
    /// Of resources with a period: the tokens of what is held, and when each is ripe.
    ripening: HashMap<usize, Vec<(u64, Timestamp)>>,
    /// Of those, how many units are to be lent, and how many are.
    asked: BTreeMap<usize, (u32, u32)>,
    /// What could not be lent, and nobody has been told yet.
    refused: Vec<usize>,
    /// Why, the last time.
    pub refusal: Option<String>,
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
        clock: Arc<dyn Clock>,
    ) -> Option<Self> {
        let keys: Vec<R::Key> = roll.shares().iter().map(|share| make(share, 1).key()).collect();
        let places: HashMap<_, _> =
            keys.iter().cloned().enumerate().map(|(place, key)| (key, place)).collect();
        (places.len() == keys.len()).then(|| Desk {
            fences: Arc::new(Fences::new(places.clone(), Arc::clone(&clock))),
            scheduler,
            roll,
            keys,
            places,
            make,
            clock,
            present: HashMap::new(),
            parting: BTreeSet::new(),
            idle: BTreeSet::new(),
            excess: HashMap::new(),
            excess_at: Timestamp::ZERO,
            ripening: HashMap::new(),
            asked: BTreeMap::new(),
            refused: Vec::new(),
            refusal: None,
            stats: Stats::default(),
            seen_holds: 0,
            revoked: 0,
            outlived: 0,
            faults: 0,
        })
    }

    /// What ties leases to the units that are here.
    pub fn fences(&self) -> &Arc<Fences<R::Key>> {
        &self.fences
    }

    fn count(&self, place: usize) -> u32 {
        self.scheduler.in_flight(&self.keys[place]).unwrap_or(0)
    }

    /// The period of each resource that is a budget.
    pub fn periods(&self) -> HashMap<R::Key, Duration> {
        let all = self.keys.iter().zip(self.roll.shares());
        all.filter(|(_, share)| !share.period.is_zero())
            .map(|(key, share)| (key.clone(), share.period))
            .collect()
    }

    /// Whether somebody has closed the scheduler.
    pub fn is_closed(&self) -> bool {
        self.scheduler.is_closed()
    }

    /// Whether somebody drains everything, newcomers included.
    pub fn drains_all(&self) -> bool {
        self.scheduler.drains_all()
    }

    /// Gives leases up that could not be revoked: those who have them have not picked them up yet.
    pub fn give_up(&mut self) {
        for (place, allowed) in std::mem::take(&mut self.excess) {
            self.outlived += u64::from(self.count(place).saturating_sub(allowed));
        }
    }

    /// Whether leases are out that should not be, and the last of them have become so within `patience`.
    pub fn is_in_excess_since(&self, now: Timestamp, patience: Duration) -> bool {
        !self.excess.is_empty() && now.saturating_since(self.excess_at) < patience
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
        let idle = self.parting.iter().copied().filter(|&place| self.count(place) == 0).collect();
        let before = std::mem::replace(&mut self.idle, idle);
        // What drains is lent no more, so it has been idle since.
        for place in before.intersection(&self.idle).copied().collect::<Vec<_>>() {
            self.idle.remove(&place);
            self.parting.remove(&place);
            self.present.remove(&place);
            // Somebody else may have removed it.
            let _ = self.scheduler.remove(&self.keys[place]);
        }
    }

    /// Lends nothing any more, and nothing may be out: for when the member cannot go on, and nobody keeps its deadlines.
    pub fn stop(&mut self) {
        self.fences.set_good_until(Timestamp::ZERO);
        // Nothing ripens any more.
        self.asked.clear();
        self.ripening.clear();
        for place in self.present.keys().copied().collect::<Vec<_>>() {
            // User code, which may be what has brought it to this.
            let _ = quietly(|| self.withdraw(place));
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

    /// How many units of a budget are old enough.
    fn ripe(&self, place: usize) -> u32 {
        let now = self.clock.now();
        let units = self.ripening.get(&place).into_iter().flatten();
        units.filter(|(_, ripe)| *ripe <= now).count() as u32
    }

    fn forget(&mut self, place: usize, claim: &Claim) {
        if let Some(units) = self.ripening.get_mut(&place) {
            units.retain(|(token, _)| *token != claim.token);
        }
    }

    /// What the units amount to; none if it is more than they allow.
    fn made(&self, place: usize, units: u32) -> Result<R, String> {
        let share = self.roll.get(place);
        let allowed = units * share.leases_per_unit;
        let made = quietly(|| {
            let resource = (self.make)(share, units);
            let leases = resource.capacity().limit().unwrap_or(crate::Capacity::MAX);
            let same = resource.key() == self.keys[place];
            (resource, leases, same)
        });
        match made {
            None => Err("making it has panicked".to_owned()),
            Some((_, _, false)) => Err("it was made with another key".to_owned()),
            Some((_, leases, _)) if leases > allowed => {
                Err(format!("it was made with a capacity of {leases}; {units} of its units allow {allowed}"))
            }
            Some((resource, ..)) => Ok(resource),
        }
    }

    /// The scheduler has the resource now, or the reason why not. `draining`: if it is new there it drains, by this desk's wish.
    fn put(&mut self, place: usize, units: u32, draining: bool) -> Result<(), String> {
        let resource = self.made(place, units)?;
        let present = self.present.get(&place).is_some_and(|presence| presence.present);
        let mut drained = false;
        let mut insert = |resource| {
            let inserted = if draining {
                self.scheduler.insert_draining(resource)
            } else {
                self.scheduler.insert(resource)
            };
            drained = draining && inserted.is_ok();
            inserted
        };
        let updated = quietly(|| {
            if present {
                match self.scheduler.update(resource) {
                    Ok(()) => return true,
                    // Somebody else has removed it.
                    Err(rejected) => return insert(rejected.into_inner()).is_ok(),
                }
            }
            match insert(resource) {
                Ok(()) => true,
                Err(rejected) if matches!(rejected.error, InsertError::Duplicate { .. }) => {
                    self.scheduler.update(rejected.into_inner()).is_ok()
                }
                Err(_) => false,
            }
        });
        if drained {
            self.present.entry(place).or_default().drained = true;
        }
        match updated {
            Some(true) => Ok(()),
            Some(false) => Err("the scheduler refuses it".to_owned()),
            None => Err("a callback of it has panicked".to_owned()),
        }
    }

    /// Revokes leases of resources that have more of them out than they may, the oldest first; those that are bound to a unit that is still held
    /// after all others, as that unit stays theirs.
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
        for (place, mut leases) in out {
            let bound = self.fences.bound(place);
            leases.sort_by_key(|info| bound.contains(&info.token));
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
        let share = self.roll.get(place);
        self.fences.admit(place, claim, share.leases_per_unit);
        if !share.period.is_zero() {
            let ripe = self.clock.now().saturating_add(share.period);
            self.ripening.entry(place).or_default().push((claim.token, ripe));
        }
    }

    fn lend(&mut self, place: usize, units: u32) {
        let is_here = self.present.get(&place).is_some_and(|presence| presence.present);
        if units > 0 && !is_here && !self.roll.get(place).period.is_zero() {
            // Units of it are held, and none was ripe so far. It comes with the holds that it has elsewhere, when `ripened` has told of it.
            self.asked.insert(place, (units, 0));
            return;
        }
        self.lend_with(place, units, &[]);
    }

    fn lend_with(&mut self, place: usize, units: u32, holds: &[Apply]) {
        let units = if self.roll.get(place).period.is_zero() {
            units
        } else {
            let ripe = units.min(self.ripe(place));
            self.asked.insert(place, (units, ripe));
            ripe
        };
        if units == 0 {
            self.withdraw(place);
            return;
        }
        if let Err(reason) = self.put(place, units, !holds.is_empty()) {
            self.faults += 1;
            self.refusal = Some(format!("resource {:?} is not lent: {reason}", self.roll.get(place).name));
            self.refused.push(place);
            self.asked.remove(&place);
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
        let drained = std::mem::take(&mut presence.drained);
        // Before it is open: somebody may wait for it.
        for apply in holds {
            self.hold(apply.place, apply.kind, apply.change);
        }
        if drained {
            let _ = self.scheduler.undrain(&self.keys[place]);
        }
    }

    fn take(&mut self, place: usize, claims: &[Claim], most: u32) -> Vec<Claim> {
        let most = most as usize;
        let mut taken = self.fences.take(place, claims, most);
        if taken.len() < most && self.scheduler.records_leases() {
            // A fence of a lease that was taken back keeps nobody from giving the unit back.
            self.scheduler.take_back_due();
            if self.fences.untie(place, |token| self.scheduler.is_lent(token)) {
                let left: Vec<_> = claims.iter().filter(|claim| !taken.contains(claim)).cloned().collect();
                taken.extend(self.fences.take(place, &left, most - taken.len()));
            }
        }
        taken.iter().for_each(|claim| self.forget(place, claim));
        taken
    }

    fn lose(&mut self, losses: &[Loss]) {
        let mut bound = Vec::new();
        for loss in losses {
            loss.claims.iter().for_each(|claim| self.forget(loss.place, claim));
            bound.extend(self.fences.lose(loss.place, &loss.claims));
            if loss.units_left == 0 {
                self.asked.remove(&loss.place);
                self.withdraw(loss.place);
            } else if let Some(&(units, lent)) = self.asked.get(&loss.place)
                && lent > self.ripe(loss.place)
            {
                // Those that were lost were the ripe ones.
                self.lend(loss.place, units);
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
                self.excess_at = self.clock.now();
            } else {
                self.outlived += over;
            }
        }
        // What has drained is removed by `tidy`, when the member has looked at the holds that were set there meanwhile.
        if !self.excess.is_empty() {
            self.revoke_excess();
        }
    }

    fn refused(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.refused)
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

    fn is_in_excess(&mut self) -> bool {
        !self.excess.is_empty()
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
