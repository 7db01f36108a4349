//! What happens to the fleet while it is borrowed from: priorities change, resources go and come, are taken out and put
//! back, drained, several are borrowed at once. One thread, at the rates of the scenario.

use std::{collections::VecDeque, sync::atomic::Ordering, thread, time::Duration};

use leasehold::{Lease, Outcome, ReleaseError, Scheduler, SplitMix64};
use serde::{Deserialize, Serialize};

use super::{
    asset::{Asset, Census},
    referee::Grant,
    subject::{Fleet, Subject},
    worker::Round,
};

/// How often each was done. What was due and could not be done (whoever was drawn was away, or nothing was to be had) is not in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    pub updates: u64,
    pub removals: u64,
    pub insertions: u64,
    pub exclusions: u64,
    #[serde(default)]
    pub drains: u64,
    /// Times that several were borrowed at once, and leases of that.
    #[serde(default)]
    pub several: u64,
    #[serde(default)]
    pub leases: u64,
    /// Leases, also in `leases`, that were kept for longer than they may be, and so were revoked.
    #[serde(default)]
    pub neglected: u64,
    /// Times that several were wanted and not to be had: each may have taken some and returned them.
    #[serde(default)]
    pub in_vain: u64,
    /// Times that a lease was to be neglected and none was to be had.
    #[serde(default)]
    pub none_to_neglect: u64,
}

impl Done {
    pub fn merge(&mut self, other: Done) {
        self.updates += other.updates;
        self.removals += other.removals;
        self.insertions += other.insertions;
        self.exclusions += other.exclusions;
        self.drains += other.drains;
        self.several += other.several;
        self.leases += other.leases;
        self.neglected += other.neglected;
        self.in_vain += other.in_vain;
        self.none_to_neglect += other.none_to_neglect;
    }
}

/// How often something has been tried, which follows the scenario's rate whatever comes of it.
#[derive(Default)]
struct Due(u64);

impl Due {
    /// How often it is to be tried now, `seconds` after the beginning.
    fn now(&mut self, rate: f64, seconds: f64) -> u64 {
        let due = ((rate * seconds) as u64).saturating_sub(self.0);
        self.0 += due;
        due
    }
}

/// Works this often at the least; what has become due meanwhile is done at once.
const EVERY: Duration = Duration::from_millis(2);
/// The most that are borrowed at once.
pub const SEVERAL: u64 = 4;
/// One of so many times that several are borrowed, a soak neglects a lease instead.
pub const NEGLECTED: u64 = 16;
/// How long it takes at the most until a lease that is overdue is revoked, while somebody looks.
const REVOKED_WITHIN: u64 = 5_000_000_000;
/// How long a resource is away, or out.
const AWAY: u64 = 20_000_000;

struct Chores<'a> {
    round: &'a Round,
    fleet: Fleet<'a>,
    census: &'a Census,
    random: SplitMix64,
    /// With the moment of their return.
    away: VecDeque<(u64, u32)>,
    out: VecDeque<(u64, u32)>,
    drained: VecDeque<(u64, u32)>,
    held: Vec<(Lease<'a, Asset>, Grant)>,
    done: Done,
}

/// Does what the scenario asks for until the round ends, then puts everything back.
pub fn run(round: &Round, census: &Census) -> Done {
    let scenario = &round.scenario;
    let Some(fleet) = Subject::fleet(&round.subject) else { return Done::default() };
    if scenario.chores() == 0.0 {
        return Done::default();
    }
    let random = SplitMix64::new(SplitMix64::mix(scenario.seed ^ u64::from(round.number)));
    let mut chores = Chores {
        round,
        fleet,
        census,
        random,
        away: VecDeque::new(),
        out: VecDeque::new(),
        drained: VecDeque::new(),
        held: Vec::new(),
        done: Done::default(),
    };
    while round.clock.now() < round.begins && !round.stop.is_set() {
        thread::sleep(EVERY);
    }
    let mut due: [Due; 5] = Default::default();
    let [updates, removals, exclusions, drains, several] = &mut due;
    while !round.stop.is_set() && !chores.is_closed() {
        let now = round.clock.now();
        let seconds = (now.saturating_sub(round.begins)) as f64 / 1e9;
        chores.return_several();
        chores.put_back(now);
        (0..updates.now(scenario.updates, seconds)).for_each(|_| chores.update());
        (0..removals.now(scenario.churn, seconds)).for_each(|_| chores.remove(now));
        (0..exclusions.now(scenario.exclusions, seconds)).for_each(|_| chores.exclude(now));
        if let Some(scheduler) = round.subject.scheduler() {
            (0..drains.now(scenario.drains, seconds)).for_each(|_| chores.drain(scheduler, now));
            (0..several.now(scenario.several, seconds)).for_each(|_| chores.borrow_several(scheduler));
        }
        thread::sleep(EVERY);
    }
    chores.return_several();
    chores.put_back(u64::MAX);
    chores.done
}

impl<'a> Chores<'a> {
    /// A member of the fleet, drawn at random; `None` if the one that was drawn is away.
    fn draw(&mut self) -> Option<u32> {
        let lineage = self.random.below(self.round.referee.lineages());
        self.round.referee.current(lineage)
    }

    /// A scheduler that was closed refuses all of this, and that is no fault: also where it was closed between the look and the call.
    fn is_closed(&self) -> bool {
        self.round.subject.scheduler().is_some_and(Scheduler::is_closed)
    }

    /// The fleet has refused what it must do, unless it is closed.
    fn refused(&self, what: String) {
        if !self.is_closed() {
            self.round.referee.breach(what);
        }
    }

    fn update(&mut self) {
        let Some(index) = self.draw() else { return };
        let base = self.random.below(u32::MAX);
        let mut asset = self.round.referee.asset(index).counted(self.census);
        asset.base = base;
        self.round.referee.updates(index);
        if !(self.fleet.update)(asset) {
            return self.refused(format!("resource {index}: update refused, though it is in the fleet"));
        }
        self.done.updates += 1;
        self.round.referee.updated(index, base, self.round.clock.now());
        self.round.retired.fetch_add(1, Ordering::Relaxed);
    }

    fn remove(&mut self, now: u64) {
        let Some(index) = self.draw() else { return };
        // Without a number to come back under it stays.
        if self.round.referee.successor(index).is_none() {
            return;
        }
        if !(self.fleet.remove)(index) {
            return self.refused(format!("resource {index}: removal refused, though it is in the fleet"));
        }
        self.done.removals += 1;
        self.round.referee.removed(index, self.round.clock.now());
        self.round.retired.fetch_add(1, Ordering::Relaxed);
        self.away.push_back((now + AWAY, index));
    }

    fn exclude(&mut self, now: u64) {
        let Some(index) = self.draw() else { return };
        if (self.fleet.exclude)(index) {
            self.done.exclusions += 1;
            self.round.referee.excluded(index, true, self.round.clock.now());
            self.out.push_back((now + AWAY, index));
        }
    }

    fn drain(&mut self, scheduler: &Scheduler<Asset>, now: u64) {
        let Some(index) = self.draw() else { return };
        if scheduler.drain(&index) == Ok(true) {
            self.done.drains += 1;
            self.drained.push_back((now + AWAY, index));
        }
    }

    /// Keeps a lease for longer than it may be kept: it is taken back, and a return then tells so.
    fn neglect(&mut self, scheduler: &'a Scheduler<Asset>) {
        let Round { clock, referee, .. } = self.round;
        let asked = clock.now();
        let Ok(mut lease) = scheduler.acquire() else {
            self.done.none_to_neglect += 1;
            return;
        };
        let (index, now) = (*lease.key(), clock.now());
        // From here on it may be lent to somebody else at any moment.
        referee.returns(referee.granted(index, asked, now), now);
        self.done.leases += 1;
        if let Err(error) = lease.renew(Duration::from_micros(1)) {
            return referee.breach(format!("resource {index}: its lease cannot be renewed: {error}"));
        }
        while !lease.is_revoked() && clock.now() < now + REVOKED_WITHIN {
            scheduler.tick();
        }
        let returned = lease.try_release();
        referee.is_back(index, clock.now());
        match returned {
            Err(ReleaseError::Revoked { .. }) => self.done.neglected += 1,
            returned => {
                referee.breach(format!("resource {index}: overdue, and its return says {returned:?}"))
            }
        }
    }

    /// Two to four, all or none, until the next time.
    fn borrow_several(&mut self, scheduler: &'a Scheduler<Asset>) {
        // Also those in vain: of a fleet that is always full no turn would ever come otherwise.
        let Done { several, neglected, in_vain, none_to_neglect, .. } = self.done;
        let times = several + neglected + in_vain + none_to_neglect;
        if self.round.scenario.soak && times % NEGLECTED == NEGLECTED - 1 {
            return self.neglect(scheduler);
        }
        let count = 2 + self.random.below(SEVERAL as u32 - 1) as usize;
        let asked = self.round.clock.now();
        let Ok(leases) = scheduler.acquire_many(count) else {
            self.done.in_vain += 1;
            return;
        };
        self.done.several += 1;
        if leases.len() != count {
            self.round.referee.breach(format!("{} leases of {count} that were asked for", leases.len()));
        }
        let now = self.round.clock.now();
        for lease in leases {
            self.done.leases += 1;
            let grant = self.round.referee.granted(*lease.key(), asked, now);
            self.held.push((lease, grant));
        }
    }

    fn return_several(&mut self) {
        for (lease, grant) in self.held.drain(..) {
            self.round.referee.returns(grant, self.round.clock.now());
            lease.finish(Outcome::Cancelled);
            self.round.referee.is_back(grant.index, self.round.clock.now());
        }
    }

    /// Brings back whose time is over.
    fn put_back(&mut self, now: u64) {
        while let Some(index) = pop_due(&mut self.away, now) {
            let successor = self.round.referee.successor(index).expect("looked at before the removal");
            let next = successor.index;
            if !(self.fleet.insert)(successor.counted(self.census)) {
                self.refused(format!("resource {next}: insertion refused, though its key is new"));
                continue;
            }
            self.round.referee.inserted(next, self.round.clock.now());
            self.done.insertions += 1;
        }
        while let Some(index) = pop_due(&mut self.out, now) {
            (self.fleet.include)(index);
            self.round.referee.excluded(index, false, self.round.clock.now());
        }
        while let Some(index) = pop_due(&mut self.drained, now) {
            // It may have been removed meanwhile.
            if let Some(scheduler) = self.round.subject.scheduler() {
                let _ = scheduler.undrain(&index);
            }
        }
    }
}

/// The first in the line whose moment has come.
fn pop_due(line: &mut VecDeque<(u64, u32)>, now: u64) -> Option<u32> {
    let &(moment, index) = line.front()?;
    (moment <= now).then(|| {
        line.pop_front();
        index
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What has failed is not due again: the rate is that of the scenario, and not of what came of it.
    #[test]
    fn what_is_due_follows_the_rate() {
        let mut due = Due::default();
        assert_eq!([0.5, 0.5, 1.0, 1.25, 3.0].map(|seconds| due.now(4.0, seconds)), [2, 0, 2, 1, 7]);
    }
}
