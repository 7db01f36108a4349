//! What happens to the fleet while it is borrowed from: priorities change, resources go and come, are taken out and put
//! back, drained, several are borrowed at once. One thread, at the rates of the scenario.

use std::{collections::VecDeque, sync::atomic::Ordering, thread, time::Duration};

use leasehold::{Lease, Outcome, Scheduler, SplitMix64};
use serde::{Deserialize, Serialize};

use super::{
    asset::{Asset, Census},
    referee::Grant,
    subject::{Fleet, Subject},
    worker::Round,
};

/// How often each was done.
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
    }
}

/// Works this often at the least; what has become due meanwhile is done at once.
const EVERY: Duration = Duration::from_millis(2);
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
    while !round.stop.is_set() {
        let now = round.clock.now();
        let seconds = (now.saturating_sub(round.begins)) as f64 / 1e9;
        let due = |rate: f64, done: u64| ((rate * seconds) as u64).saturating_sub(done);
        chores.return_several();
        chores.put_back(now);
        (0..due(scenario.updates, chores.done.updates)).for_each(|_| chores.update());
        (0..due(scenario.churn, chores.done.removals)).for_each(|_| chores.remove(now));
        (0..due(scenario.exclusions, chores.done.exclusions)).for_each(|_| chores.exclude(now));
        if let Some(scheduler) = round.subject.scheduler() {
            (0..due(scenario.drains, chores.done.drains)).for_each(|_| chores.drain(scheduler, now));
            (0..due(scenario.several, chores.done.several)).for_each(|_| chores.borrow_several(scheduler));
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

    fn update(&mut self) {
        self.done.updates += 1;
        let Some(index) = self.draw() else { return };
        let base = self.random.below(u32::MAX);
        let mut asset = self.round.referee.asset(index).counted(self.census);
        asset.base = base;
        if !(self.fleet.update)(asset) {
            self.round.referee.breach(format!("resource {index}: update refused, though it is in the fleet"));
        }
        self.round.referee.updated(index, base);
        self.round.retired.fetch_add(1, Ordering::Relaxed);
    }

    fn remove(&mut self, now: u64) {
        self.done.removals += 1;
        let Some(index) = self.draw() else { return };
        // Without a number to come back under it stays.
        if self.round.referee.successor(index).is_none() {
            return;
        }
        if !(self.fleet.remove)(index) {
            self.round
                .referee
                .breach(format!("resource {index}: removal refused, though it is in the fleet"));
        }
        self.round.referee.removed(index, self.round.clock.now());
        self.round.retired.fetch_add(1, Ordering::Relaxed);
        self.away.push_back((now + AWAY, index));
    }

    fn exclude(&mut self, now: u64) {
        self.done.exclusions += 1;
        let Some(index) = self.draw() else { return };
        if (self.fleet.exclude)(index) {
            self.round.referee.excluded(index, true);
            self.out.push_back((now + AWAY, index));
        }
    }

    fn drain(&mut self, scheduler: &Scheduler<Asset>, now: u64) {
        self.done.drains += 1;
        let Some(index) = self.draw() else { return };
        if scheduler.drain(&index) == Ok(true) {
            self.drained.push_back((now + AWAY, index));
        }
    }

    /// Two to four, all or none, until the next time.
    fn borrow_several(&mut self, scheduler: &'a Scheduler<Asset>) {
        self.done.several += 1;
        let count = 2 + self.random.below(3) as usize;
        let asked = self.round.clock.now();
        let Ok(leases) = scheduler.acquire_many(count) else { return };
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
        }
    }

    /// Brings back whose time is over.
    fn put_back(&mut self, now: u64) {
        while let Some(index) = pop_due(&mut self.away, now) {
            let successor = self.round.referee.successor(index).expect("looked at before the removal");
            let next = successor.index;
            if !(self.fleet.insert)(successor.counted(self.census)) {
                self.round
                    .referee
                    .breach(format!("resource {next}: insertion refused, though its key is new"));
            }
            self.round.referee.inserted(next);
            self.done.insertions += 1;
        }
        while let Some(index) = pop_due(&mut self.out, now) {
            (self.fleet.include)(index);
            self.round.referee.excluded(index, false);
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
