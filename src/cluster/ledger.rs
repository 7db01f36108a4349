//! The engine's contract as a data structure, without a clock of its own: what the engine in memory and the simulation are made of.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

use super::{
    engine::{
        Change, End, HoldKind, HoldNote, Line, MemberView, Overview, Reply, Request, Session, TURN, View,
    },
    planted::{Planted, is_planted},
    unit::{Claim, Unit},
};
use crate::sync::Arc;

/// Units that are freed in one step, of sessions that are over.
const REAPED_AT_ONCE: usize = 512;

#[derive(Clone, Debug)]
struct Open {
    member: Arc<str>,
    line: Line,
    over: u64,
}

#[derive(Clone, Debug)]
struct Held {
    until: Option<u64>,
    origin: Arc<str>,
    version: u64,
}

/// What an engine keeps of one fleet, and its steps. Times are nanoseconds on the engine's clock.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    run: Arc<str>,
    epoch: Arc<str>,
    ttl: u64,
    quarantine: u64,
    last_session: u64,
    last_token: u64,
    sessions: BTreeMap<u64, Open>,
    ranks: HashMap<Unit, u64>,
    free: BTreeSet<(u64, Unit)>,
    owners: HashMap<Unit, (u64, u64)>,
    owned: BTreeMap<u64, BTreeSet<Unit>>,
    holds: BTreeMap<(Arc<str>, HoldKind), Held>,
    holds_version: u64,
}

impl Ledger {
    /// One step at `now`, in this run of the engine. Also answers what is to be told to everybody who listens.
    pub fn step(&mut self, now: u64, run: &str, request: &Request) -> (Reply, Vec<HoldNote>) {
        if *request == Request::Overview {
            return (Reply::Overview(self.overview(now)), Vec::new());
        }
        if &*self.run != run {
            self.begin(now, run);
        }
        // The clock may have been set back.
        if !is_planted(Planted::LongQuarantine) {
            self.quarantine = self.quarantine.min(now + self.ttl);
        }
        let reply = match request {
            Request::Join { member, ttl, weight, previous } => {
                if let Some(previous) = previous
                    && previous.epoch == self.epoch
                {
                    self.end(now, previous.number);
                }
                self.join(now, member, *ttl, *weight)
            }
            Request::Hold(notes) => {
                let notes: Vec<_> = notes.iter().map(|note| self.hold(now, note)).collect();
                return (Reply::Holds(notes.clone(), self.holds_version), notes);
            }
            Request::Holds => {
                self.holds.retain(|_, held| held.until.is_none_or(|until| until > now));
                Reply::Holds(self.list_holds(now), self.holds_version)
            }
            Request::Overview => unreachable!("answered above"),
            Request::Register { session, .. }
            | Request::Renew { session, .. }
            | Request::Claim { session, .. }
            | Request::Return { session, .. }
            | Request::Reinstate { session, .. }
            | Request::Owned { session }
            | Request::Leave { session } => {
                let lives = self.sessions.get(&session.number).is_some_and(|open| now < open.over);
                if session.epoch == self.epoch && lives {
                    self.within(now, session.number, request)
                } else {
                    Reply::Gone { epoch: Arc::clone(&self.epoch) }
                }
            }
        };
        (reply, Vec::new())
    }

    /// A new epoch.
    fn begin(&mut self, now: u64, run: &str) {
        let kept = std::mem::take(self);
        *self = Ledger {
            run: run.into(),
            // Books may come back that have had this run before.
            epoch: format!("{run}-{now}").into(),
            ttl: kept.ttl,
            quarantine: now + kept.ttl * if is_planted(Planted::LongQuarantine) { 2 } else { 1 },
            last_token: kept.last_token,
            holds: kept.holds,
            holds_version: kept.holds_version,
            ..Ledger::default()
        };
    }

    fn join(&mut self, now: u64, member: &Arc<str>, ttl: Duration, weight: u32) -> Reply {
        let ttl = ttl.as_nanos() as u64;
        if self.ttl == 0 {
            // The first of all.
            self.ttl = ttl;
            self.quarantine = now + ttl;
        }
        if self.ttl != ttl {
            return Reply::Refused { ttl: Duration::from_nanos(self.ttl) };
        }
        self.last_session += 1;
        let line = Line { weight, ..Line::default() };
        self.sessions.insert(self.last_session, Open { member: Arc::clone(member), line, over: now + ttl });
        Reply::Joined(Session { epoch: Arc::clone(&self.epoch), number: self.last_session })
    }

    /// A step of a session that lives.
    fn within(&mut self, now: u64, session: u64, request: &Request) -> Reply {
        match request {
            Request::Register { units, .. } => {
                for (unit, rank) in units {
                    self.make_known(unit, *rank);
                }
                Reply::Done
            }
            Request::Renew { line, .. } => {
                let over = now + self.ttl;
                if let Some(open) = self.sessions.get_mut(&session) {
                    (open.over, open.line) = (over, *line);
                }
                self.reap(now);
                Reply::Renewed(self.view(now, session))
            }
            Request::Claim { count, end, skip, .. } => {
                self.reap(now);
                Reply::Claims(self.claim(now, session, *count, *end, skip))
            }
            Request::Return { claims, .. } => {
                for claim in claims {
                    let token = |token| token == claim.token || is_planted(Planted::ReturnWithoutToken);
                    if self.owners.get(&claim.unit).is_some_and(|owner| owner.0 == session && token(owner.1))
                    {
                        self.set_free(session, &claim.unit);
                    }
                }
                Reply::Done
            }
            Request::Reinstate { claims, .. } => Reply::Claims(self.reinstate(now, session, claims)),
            Request::Owned { .. } => Reply::Claims(self.claims_of(session)),
            Request::Leave { .. } => {
                self.end(now, session);
                Reply::Done
            }
            Request::Join { .. } | Request::Hold(_) | Request::Holds | Request::Overview => {
                unreachable!("these need no session")
            }
        }
    }

    fn make_known(&mut self, unit: &Unit, rank: u64) {
        let before = self.ranks.insert(unit.clone(), rank);
        if before != Some(rank) && !self.owners.contains_key(unit) {
            if let Some(before) = before {
                self.free.remove(&(before, unit.clone()));
            }
            self.free.insert((rank, unit.clone()));
        }
    }

    fn set_free(&mut self, session: u64, unit: &Unit) {
        self.owners.remove(unit);
        if let Some(owned) = self.owned.get_mut(&session) {
            owned.remove(unit);
        }
        let rank = self.ranks.get(unit).copied().unwrap_or(u64::MAX);
        self.free.insert((rank, unit.clone()));
    }

    fn give(&mut self, session: u64, unit: &Unit, token: u64) {
        let rank = self.ranks.get(unit).copied().unwrap_or(u64::MAX);
        self.free.remove(&(rank, unit.clone()));
        self.owners.insert(unit.clone(), (session, token));
        self.owned.entry(session).or_default().insert(unit.clone());
    }

    fn reap(&mut self, now: u64) {
        let longest = now + self.ttl;
        self.sessions.values_mut().for_each(|open| open.over = open.over.min(longest));
        if is_planted(Planted::ReapsNothing) {
            return;
        }
        let mut left = REAPED_AT_ONCE;
        let over: Vec<u64> =
            self.sessions.iter().filter(|(_, open)| open.over <= now).map(|(number, _)| *number).collect();
        for session in over {
            let units: Vec<Unit> =
                self.owned.get(&session).into_iter().flatten().take(left).cloned().collect();
            left -= units.len();
            for unit in &units {
                self.set_free(session, unit);
            }
            if self.owned.get(&session).is_none_or(BTreeSet::is_empty) {
                self.owned.remove(&session);
                self.sessions.remove(&session);
            }
        }
    }

    /// A session is over now.
    fn end(&mut self, now: u64, session: u64) {
        if let Some(open) = self.sessions.get_mut(&session) {
            open.over = 0;
        }
        self.reap(now);
    }

    fn claim(&mut self, now: u64, session: u64, count: u32, end: End, skip: &[Unit]) -> Vec<Claim> {
        if now < self.quarantine {
            return Vec::new();
        }
        let skip: HashMap<&str, u32> = skip.iter().map(|from| (&*from.name, from.index)).collect();
        let wanted = |(_, unit): &&(u64, Unit)| skip.get(&*unit.name).is_none_or(|&from| unit.index < from);
        let units: Vec<Unit> = match end {
            End::Best => {
                self.free.iter().filter(wanted).take(count as usize).map(|(_, unit)| unit.clone()).collect()
            }
            End::Worst => self
                .free
                .iter()
                .rev()
                .filter(wanted)
                .take(count as usize)
                .map(|(_, unit)| unit.clone())
                .collect(),
        };
        let mut claims = Vec::with_capacity(units.len());
        for unit in units {
            self.last_token = (self.last_token + 1).max(now / 1_000);
            let token = self.last_token;
            self.give(session, &unit, token);
            claims.push(Claim { unit, token });
        }
        claims
    }

    fn reinstate(&mut self, now: u64, session: u64, claims: &[(Claim, u64)]) -> Vec<Claim> {
        if now >= self.quarantine && !is_planted(Planted::ReinstateLate) {
            return Vec::new();
        }
        let mut taken = Vec::with_capacity(claims.len());
        for (claim, rank) in claims {
            self.make_known(&claim.unit, *rank);
            if self.owners.get(&claim.unit).is_some_and(|(owner, _)| *owner != session) {
                continue;
            }
            self.last_token = self.last_token.max(claim.token);
            self.give(session, &claim.unit, claim.token);
            taken.push(claim.clone());
        }
        taken
    }

    fn claims_of(&self, session: u64) -> Vec<Claim> {
        let token = |unit: &Unit| self.owners.get(unit).map_or(0, |(_, token)| *token);
        let units = self.owned.get(&session).into_iter().flatten();
        units.map(|unit| Claim { unit: unit.clone(), token: token(unit) }).collect()
    }

    fn left(until: u64, now: u64) -> Option<Duration> {
        (until > now).then(|| Duration::from_nanos(until - now))
    }

    fn view(&self, now: u64, session: u64) -> View {
        let living = || self.sessions.iter().filter(|(_, open)| open.over > now);
        let over = self.sessions.iter().filter(|(_, open)| open.over <= now);
        let owned_by = |number: &u64| self.owned.get(number).map_or(0, BTreeSet::len);
        let freed: usize = over.map(|(number, _)| owned_by(number)).sum();
        let mut members: Vec<_> = living()
            .map(|(number, open)| (number, MemberView { member: Arc::clone(&open.member), line: open.line }))
            .collect();
        members.sort_by(|(a, one), (b, other)| (&one.member, a).cmp(&(&other.member, b)));
        let me = members.iter().position(|(number, _)| **number == session).unwrap_or(0);
        let blocked = self.blocked(now);
        let ranks =
            || self.free.iter().filter(|(_, unit)| !blocked.contains(&unit.name)).map(|(rank, _)| *rank);
        let next = living().filter(|(number, _)| **number != session).map(|(_, open)| open.over).min();
        View {
            members: members.into_iter().map(|(_, view)| view).collect(),
            me,
            free: (self.free.len() + freed) as u32,
            best_free: ranks().next(),
            worst_free: ranks().next_back(),
            owned: owned_by(&session) as u32,
            next_expiry: next.and_then(|over| Self::left(over, now)),
            holds: self.holds_version,
            quarantine: Self::left(self.quarantine, now),
            turn: now / (self.ttl * TURN).max(1),
        }
    }

    fn hold(&mut self, now: u64, note: &HoldNote) -> HoldNote {
        let key = (Arc::clone(&note.name), note.kind);
        self.holds_version += 1;
        let mut note =
            HoldNote { epoch: Arc::clone(&self.epoch), version: self.holds_version, ..note.clone() };
        match note.change {
            Change::Cleared => {
                self.holds.remove(&key);
            }
            Change::Set(duration) => {
                let mut until = duration.map(|duration| {
                    now.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
                });
                if let Some(on_record) = self.holds.get(&key) {
                    until = until.zip(on_record.until).map(|(until, before)| until.max(before));
                    note.change = Change::Set(until.map(|until| Duration::from_nanos(until - now)));
                }
                self.holds
                    .insert(key, Held { until, origin: Arc::clone(&note.origin), version: note.version });
            }
        }
        note
    }

    fn list_holds(&self, now: u64) -> Vec<HoldNote> {
        let note = |((name, kind), held): (&(Arc<str>, HoldKind), &Held)| HoldNote {
            name: Arc::clone(name),
            kind: *kind,
            change: Change::Set(held.until.and_then(|until| Self::left(until, now))),
            origin: Arc::clone(&held.origin),
            epoch: Arc::clone(&self.epoch),
            version: held.version,
        };
        let living = self.holds.iter().filter(|(_, held)| held.until.is_none_or(|until| until > now));
        living.map(note).collect()
    }

    fn overview(&self, now: u64) -> Overview {
        let mut overview = Overview {
            epoch: Arc::clone(&self.epoch),
            quarantine: Self::left(self.quarantine, now),
            free: self.free.len() as u32,
            holds: self.list_holds(now),
            ..Overview::default()
        };
        for (number, open) in &self.sessions {
            let claims = self.claims_of(*number);
            let view = MemberView { member: Arc::clone(&open.member), line: open.line };
            let left = Self::left(open.over, now).unwrap_or_default();
            overview.members.push((view, claims.len() as u32, left));
            overview.claims.extend(claims.into_iter().map(|claim| (claim, Arc::clone(&open.member))));
        }
        overview
    }

    /// The owner's session of each unit that has one.
    #[cfg(test)]
    pub fn owners(&self) -> &HashMap<Unit, (u64, u64)> {
        &self.owners
    }

    /// Units that are known.
    #[cfg(test)]
    pub fn known(&self) -> u32 {
        self.ranks.len() as u32
    }

    /// Resources that a hold keeps from being lent.
    pub fn blocked(&self, now: u64) -> BTreeSet<Arc<str>> {
        let living = self.holds.iter().filter(|(_, held)| held.until.is_none_or(|until| until > now));
        living.map(|((name, _), _)| Arc::clone(name)).collect()
    }

    /// The best and the worst rank that nobody owns and no hold blocks.
    #[cfg(test)]
    pub fn free_ranks(&self, blocked: &BTreeSet<Arc<str>>) -> Option<(u64, u64)> {
        let mut ranks =
            self.free.iter().filter(|(_, unit)| !blocked.contains(&unit.name)).map(|(rank, _)| *rank);
        let first = ranks.next()?;
        Some((first, ranks.next_back().unwrap_or(first)))
    }

    /// Sessions that are not over, with their lines and the units that they own and no hold blocks.
    #[cfg(test)]
    pub fn living(&self, now: u64, blocked: &BTreeSet<Arc<str>>) -> Vec<(u64, Line, u32)> {
        let living = self.sessions.iter().filter(|(_, open)| open.over > now);
        let owned = |number| {
            let owned = self.owned.get(number).into_iter().flatten();
            owned.filter(|unit| !blocked.contains(&unit.name)).count() as u32
        };
        living.map(|(number, open)| (*number, open.line, owned(number))).collect()
    }

    /// The end of a hold that is on record.
    #[cfg(test)]
    pub fn held(&self, name: &Arc<str>, kind: HoldKind) -> Option<Option<u64>> {
        self.holds.get(&(Arc::clone(name), kind)).map(|held| held.until)
    }

    /// Whether it is known, and nobody owns it.
    #[cfg(test)]
    pub fn is_free(&self, unit: &Unit) -> bool {
        self.ranks.contains_key(unit) && !self.owners.contains_key(unit)
    }

    #[cfg(test)]
    pub fn epoch(&self) -> &str {
        &self.epoch
    }

    /// When the quarantine ends.
    #[cfg(test)]
    pub fn quarantine(&self) -> u64 {
        self.quarantine
    }

    /// What an engine without quarantine does.
    #[cfg(test)]
    pub fn end_quarantine(&mut self) {
        self.quarantine = 0;
    }

    /// Whether this is the run on record.
    #[cfg(test)]
    pub fn is_of(&self, run: &str) -> bool {
        &*self.run == run
    }

    /// When the session is over.
    #[cfg(test)]
    pub fn over(&self, session: u64) -> Option<u64> {
        self.sessions.get(&session).map(|open| open.over)
    }

    /// Panics unless free units, owners and sessions fit together.
    #[cfg(test)]
    pub fn check(&self) {
        assert_eq!(self.free.len() + self.owners.len(), self.ranks.len(), "each known unit is free or owned");
        assert!(self.free.iter().all(|(_, unit)| !self.owners.contains_key(unit)));
        let listed: usize = self.owned.values().map(BTreeSet::len).sum();
        assert_eq!(listed, self.owners.len(), "each owned unit is listed once");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn join(ledger: &mut Ledger, now: u64, run: &str, member: &str) -> Session {
        let ttl = Duration::from_nanos(100);
        let request = Request::Join { member: member.into(), ttl, weight: 1, previous: None };
        match ledger.step(now, run, &request).0 {
            Reply::Joined(session) => session,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_run_that_comes_back_is_another_epoch() {
        let mut ledger = Ledger::default();
        let mine = join(&mut ledger, 0, "a", "me");
        join(&mut ledger, 10, "b", "me");
        let strangers = join(&mut ledger, 20, "a", "stranger");
        assert_ne!(mine.epoch, strangers.epoch);
        let (reply, _) = ledger.step(30, "a", &Request::Owned { session: mine });
        assert!(matches!(reply, Reply::Gone { .. }), "{reply:?}");
        // As after all was deleted under a server that goes on.
        let mut empty = Ledger::default();
        let others = join(&mut empty, 40, "a", "other");
        assert_ne!(strangers.epoch, others.epoch);
    }

    #[test]
    fn the_last_rank_that_was_told_counts() {
        let mut ledger = Ledger::default();
        let session = join(&mut ledger, 0, "a", "me");
        let unit = |name: &str| Unit { name: name.into(), index: 0 };
        for units in [vec![(unit("x"), 1), (unit("y"), 2)], vec![(unit("x"), 3)]] {
            ledger.step(1, "a", &Request::Register { session: session.clone(), units });
        }
        ledger.check();
        let (reply, _) = ledger.step(2, "a", &Request::Renew { session, line: Line::default() });
        let Reply::Renewed(view) = reply else { panic!() };
        assert_eq!((view.free, view.best_free, view.worst_free), (2, Some(2), Some(3)));
    }

    #[test]
    fn what_rests_is_not_offered() {
        let mut ledger = Ledger::default();
        let session = join(&mut ledger, 0, "a", "me");
        let unit = |name: &str| Unit { name: name.into(), index: 0 };
        let units = vec![(unit("x"), 1), (unit("y"), 2), (unit("z"), 3)];
        ledger.step(1, "a", &Request::Register { session: session.clone(), units });
        let mut ranks = |now: u64, name: &str, change: Change| {
            let note = HoldNote {
                name: name.into(),
                kind: HoldKind::Cooling,
                change,
                origin: "me".into(),
                epoch: "".into(),
                version: 0,
            };
            ledger.step(now, "a", &Request::Hold(vec![note]));
            let renew = Request::Renew { session: session.clone(), line: Line::default() };
            let (Reply::Renewed(view), _) = ledger.step(now, "a", &renew) else { panic!() };
            (view.free, view.best_free, view.worst_free)
        };
        let nanos = |nanos| Change::Set(Some(Duration::from_nanos(nanos)));
        assert_eq!(ranks(2, "x", nanos(10)), (3, Some(2), Some(3)));
        assert_eq!(ranks(2, "z", nanos(50)), (3, Some(2), Some(2)));
        assert_eq!(ranks(2, "y", nanos(50)), (3, None, None));
        assert_eq!(ranks(12, "y", Change::Cleared), (3, Some(1), Some(2)), "what is over counts no more");
    }
}
