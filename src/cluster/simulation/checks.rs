//! What must hold.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use super::{
    process::{Life, Process},
    world::World,
};
use crate::{
    cluster::{member::share, unit::Unit},
    sync::Timestamp,
};

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
        let mut limbo = HashMap::new();
        // Who frees what is left behind by sessions that are over.
        let renews =
            |process: &Process| process.life == Life::Running && !process.cut_off && process.member.is_live();
        let somebody_renews = self.engine_up && self.processes.iter().any(renews);
        for (unit, (session, _)) in self.ledger.owners() {
            let over = self.ledger.over(*session).expect("a session is there as long as it owns something");
            if over <= now && !somebody_renews {
                continue;
            }
            let owner = self.sessions.get(session).copied();
            let runs = owner.is_some_and(|owner| self.processes[owner].life == Life::Running);
            let holds = owner
                .is_some_and(|owner| self.holders.get(unit).is_some_and(|holders| holders.contains(&owner)));
            if over <= now || !(runs && holds) {
                // Of a process that does not run the time counts from when it stopped, or from its last renewal.
                let state = if runs { 0 } else { over };
                let before = self.limbo.get(unit).filter(|(_, before)| *before == state);
                limbo.insert(unit.clone(), (before.map_or(self.time, |(since, _)| *since), state));
            }
        }
        self.limbo = limbo;
        let longest = self.limbo.values().map(|(since, _)| self.time - since).max().unwrap_or(0);
        self.outcome.longest_limbo = self.outcome.longest_limbo.max(Duration::from_nanos(longest));
        let terms = self.plan.terms;
        // The time to live begins when a renewal arrives. The rest: the two clocks, and the pace of looking.
        let margin = terms.ttl() - terms.good_for();
        let allowed = self.plan.lateness + terms.ttl() + margin + Duration::from_millis(200);
        if Duration::from_nanos(longest) > allowed {
            let unit = self
                .limbo
                .iter()
                .find(|(_, (since, _))| self.time - since == longest)
                .expect("it is there")
                .0;
            let (session, _) = self.ledger.owners()[unit];
            let owner = self.sessions[&session];
            let member = &self.processes[owner];
            panic!(
                "{}: {unit} of session {session} is lost for {longest} ns: {owner} is {:?}, cut off {}, {:?}",
                self.tag(),
                member.life,
                member.cut_off,
                member.member
            );
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
            let targets = share::targets(&lines, usable);
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
        // A hold that has ended just now leaves units free that somebody is about to claim: see `settles`.
        let lacks = self.plan.holds == 0.0 && self.lacks(&BTreeSet::new());
        assert!(!lacks, "{}: what is needed is not held", self.tag());
        for process in &self.processes {
            assert!(process.member.is_live(), "{}: somebody is out", self.tag());
            self.outcome.revoked += process.desk.revoked;
        }
    }
}
