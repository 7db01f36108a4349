//! What must hold.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use super::{
    process::{Life, Process},
    world::{MILLI, World},
};
use crate::{
    cluster::{engine::TURN, member::share, unit::Unit},
    sync::Timestamp,
};

/// Why nobody can use a unit. Each reason has an end of its own, and the time counts anew when it becomes another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limbo {
    /// It is claimed, and its member has not got it: the answer was lost. He finds out when he renews, and returns it; if that fails he tries again.
    Orphan { failures: u64 },
    /// Nobody renews its session: that is over then, and the next one who renews frees it. A renewal that comes late makes it later.
    Left { over: u64 },
    /// An epoch has begun: it is not known yet, or in quarantine, which lasts until then.
    Fresh { until: u64 },
}

/// Requests of all who are left that fail one after the other, where messages are lost.
const TRIES: u32 = 2;

impl World {
    /// Nobody else honours a lease on this unit.
    pub(super) fn check_alone(&mut self, place: usize, unit: &Unit) {
        self.outcome.checks += 1;
        for &holder in self.holders.get(unit).into_iter().flatten() {
            let other = &self.processes[holder];
            assert!(
                holder == place || !other.honours(self.time) || !other.desk.uses(unit, self.time),
                "{}: {unit} is lent by {place} and by {holder}",
                self.tag()
            );
        }
    }

    /// A budget is used: not more often than it has uses in a period, by whomever; a period by the fastest clock.
    pub(super) fn check_budget(&mut self, place: usize, budget: usize) {
        let period = self.plan.period.as_nanos() as f64 / (1.0 + self.plan.drift);
        let (time, window) = (self.time, period as u64 - MILLI);
        let uses = self.uses.entry(budget).or_default();
        while uses.front().is_some_and(|first| time - first >= window) {
            uses.pop_front();
        }
        uses.push_back(time);
        let (count, all) = (uses.len() as u32, self.plan.units * self.plan.leases_per_unit);
        self.outcome.used_up += u64::from(count == all);
        assert!(
            count <= all,
            "{}: {place} uses budget {budget}, {count} uses in a period, of {all}",
            self.tag()
        );
    }

    /// Now and then: the engine's books, and units that nobody can use.
    pub(super) fn look(&mut self) {
        self.ledger.check();
        self.past.push_front(self.ledger.clone());
        self.past.truncate(10);
        if !self.ledger.is_of(&self.epoch.to_string()) {
            // Nobody has called the new server yet, and its clock says nothing about the old one's books.
            self.limbo.clear();
            return;
        }
        let now = self.engine.read(self.time).as_nanos();
        // Who frees what is left behind by sessions that are over.
        let renews =
            |process: &Process| process.life == Life::Running && !process.cut_off && process.member.is_live();
        let somebody_renews = self.engine_up && self.processes.iter().any(renews);
        let mut limbo = HashMap::new();
        let mut note = |unit: &Unit, state| {
            let before = self.limbo.get(unit).filter(|(_, before)| *before == state);
            limbo.insert(unit.clone(), (before.map_or(self.time, |(since, _)| *since), state));
        };
        for (unit, (session, _)) in self.ledger.owners() {
            let over = self.ledger.over(*session).expect("a session is there as long as it owns something");
            if over <= now && !somebody_renews {
                continue;
            }
            let owner = self.sessions[session];
            let process = &self.processes[owner];
            let runs = process.life == Life::Running;
            let has = self.holders.get(unit).is_some_and(|holders| holders.contains(&owner));
            if over <= now || !runs || !(has || process.member.is_in(self.ledger.epoch(), *session)) {
                note(unit, Limbo::Left { over });
            } else if !has {
                note(unit, Limbo::Orphan { failures: process.member.counts().failures });
            }
        }
        let until = self.ledger.quarantine();
        if somebody_renews && (now < until || self.ledger.known() < self.roll.units()) {
            let units = self.roll.shares().iter().flat_map(|share| {
                (0..share.units).map(|index| Unit { name: Arc::clone(&share.name), index })
            });
            for unit in units {
                let is_free = self.ledger.is_free(&unit);
                if !(is_free && now >= until || self.ledger.owners().contains_key(&unit)) {
                    note(&unit, Limbo::Fresh { until });
                }
            }
        }
        self.limbo = limbo;
        // A session whose clock was set back may go on for its time to live from the first step after that, whenever the engine can be reached
        // again; that nothing is lost at the end is checked there.
        if self.plan.set_back {
            return;
        }
        for (unit, (since, state)) in &self.limbo {
            let lost = Duration::from_nanos(self.time - since);
            self.outcome.longest_limbo = self.outcome.longest_limbo.max(lost);
            if lost > self.allowed(*state) {
                let owner = self.ledger.owners().get(unit).map(|(session, _)| self.sessions[session]);
                let process = owner.map(|owner| &self.processes[owner]);
                panic!("{}: {unit} is lost for {lost:?}, {state:?}: {owner:?} is {process:?}", self.tag());
            }
        }
    }

    /// How long a unit may be of no use for this reason, while somebody renews.
    fn allowed(&self, state: Limbo) -> Duration {
        let terms = self.plan.terms;
        // The pace of looking, and of threads.
        let pace = Duration::from_millis(200);
        match state {
            // Until the next renewal, which asks and returns at once.
            Limbo::Orphan { .. } => terms.period() * 2 + terms.patience() + pace,
            // The time to live begins when a renewal arrives, and when the epoch does. The rest: the two clocks, and requests that have failed.
            Limbo::Left { .. } | Limbo::Fresh { .. } => {
                let margin = terms.ttl() - terms.good_for();
                let tries = if self.plan.losses > 0 { TRIES } else { 0 };
                terms.ttl() + margin + pace + (terms.patience() + terms.retry(u32::MAX)) * tries
            }
        }
    }

    /// Lent so long before the end of the claims that leases can come back; but for the pace of the cluster's thread.
    pub(super) fn check_lead(&self, place: usize, now: Timestamp) {
        let process = &self.processes[place];
        if !process.late {
            let lead = self.plan.terms.good_for() - self.plan.terms.lent_for();
            let left = process.desk.good_until.saturating_since(now) + Duration::from_millis(50);
            assert!(left >= lead, "{}: {place} lends in the lead, {left:?} before the end", self.tag());
        }
    }

    /// The last of the quiet: at no time is somebody short of his share all along, or has worse units than are free.
    pub(super) fn settles(&mut self, time: Duration) {
        const LOOKS: u32 = 10;
        let claimed = |world: &World| -> u64 {
            world.processes.iter().map(|process| process.member.counts().claimed).sum()
        };
        let before = claimed(self);
        let (mut short, mut misplaced) = (HashMap::<usize, u32>::new(), HashMap::<usize, u32>::new());
        let mut lacking = 0;
        for _ in 0..LOOKS {
            self.run_until(Duration::from_nanos(self.time) + time / LOOKS);
            let now = self.engine.read(self.time).as_nanos();
            // Of units that a hold blocks nobody has a share: they stay where they are.
            let blocked = self.ledger.blocked(now);
            let is_usable = |place: usize| !blocked.contains(&self.roll.get(place).name);
            let usable = (0..self.roll.len()).filter(|place| is_usable(*place));
            let usable: u32 = usable.map(|place| self.roll.get(place).units).sum();
            let mut living = self.ledger.living(now, &blocked);
            // In the order of names, as members see it.
            living.sort_by_key(|(number, ..)| self.sessions[number]);
            let lines: Vec<_> = living.iter().map(|(_, line, _)| *line).collect();
            let targets =
                share::targets(&lines, usable, now / (self.plan.terms.ttl().as_nanos() as u64 * TURN));
            let free = self.ledger.free_ranks(&blocked);
            let greedy = living.iter().zip(&targets).any(|((_, _, owned), target)| owned > target);
            for ((number, _, owned), target) in living.iter().zip(&targets) {
                let place = self.sessions[number];
                if owned < target && (greedy || free.is_some()) {
                    *short.entry(place).or_default() += 1;
                }
                let held: Vec<u64> =
                    self.held(place).into_iter().filter(|rank| is_usable(*rank as usize)).collect();
                if let (Some((best, worst)), Some(first), Some(last)) = (free, held.first(), held.last()) {
                    let idle = self.processes[place].desk.wanted == 0;
                    let off = if idle { *first < worst } else { *last > best };
                    // Whose units count again after a hold may have too many: he keeps them for `calm`, and exchanges nothing meanwhile.
                    let waits = self.plan.holds > 0.0 && owned > target;
                    *misplaced.entry(place).or_default() += u32::from(off && !waits);
                }
            }
            lacking += u32::from(self.lacks(&blocked));
        }
        let always = |counts: &HashMap<usize, u32>| counts.values().any(|count| *count == LOOKS);
        assert!(!always(&short), "{}: somebody is short of his share: {short:?}", self.tag());
        assert!(!always(&misplaced), "{}: somebody has the wrong units: {misplaced:?}", self.tag());
        assert!(lacking < LOOKS, "{}: what is needed is not held", self.tag());
        self.outcome.churn = claimed(self) - before;
    }

    /// Whether less is held than is needed, or than there is.
    fn lacks(&self, blocked: &BTreeSet<Arc<str>>) -> bool {
        let is_usable = |name| !blocked.contains(name);
        let usable = self.roll.shares().iter().filter(|share| is_usable(&share.name));
        let all: u64 = usable.map(|share| u64::from(share.units)).sum();
        let units = self.processes.iter().flat_map(|process| process.desk.units());
        let held = units.filter(|claim| is_usable(&claim.unit.name)).count() as u64;
        let needed: u64 =
            self.processes.iter().map(|process| u64::from(self.roll.units_for(process.desk.wanted))).sum();
        held < needed.min(all)
    }

    /// After the quiet: nothing is lost, and everybody has his share.
    pub(super) fn settled(&mut self) {
        // A claim whose answer is on its way is nobody's for that long, and members balance on.
        let on_its_way = self.plan.terms.patience() + Duration::from_millis(200);
        for (unit, (since, _)) in &self.limbo {
            let lost = Duration::from_nanos(self.time - since);
            assert!(lost <= on_its_way, "{}: {unit} is lost for {lost:?}", self.tag());
        }
        assert_eq!(self.ledger.known(), self.roll.units(), "{}: units that the engine knows", self.tag());
        // A hold that has ended just now leaves units free that somebody is about to claim, and so does a turn: see `settles`.
        let needy = self.processes.iter().filter(|process| process.desk.wanted > 0).count();
        let moves = self.plan.holds > 0.0 || (self.roll.units() as usize) < needy;
        let lacks = !moves && self.lacks(&BTreeSet::new());
        assert!(!lacks, "{}: what is needed is not held", self.tag());
        for process in &self.processes {
            assert!(process.member.is_live(), "{}: somebody is out", self.tag());
            self.outcome.revoked += process.desk.revoked;
        }
    }
}
