//! The engine's contract as a data structure, without a clock of its own: what the engine in memory and the simulation are made of.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

use super::{
    engine::{Change, End, HoldKind, HoldNote, Line, MemberView, Overview, Reply, Request, Session, View},
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
    /// One step at `now`, in the run of the engine named `epoch`. Also answers what is to be told to everybody who listens.
    pub fn step(&mut self, now: u64, epoch: &str, request: &Request) -> (Reply, Vec<HoldNote>) {
        if &*self.epoch != epoch {
            self.begin(now, epoch);
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
            Request::Holds => Reply::Holds(self.list_holds(now), self.holds_version),
            Request::Overview => Reply::Overview(self.overview(now)),
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
    fn begin(&mut self, now: u64, epoch: &str) {
        let kept = std::mem::take(self);
        *self = Ledger {
            epoch: epoch.into(),
            ttl: kept.ttl,
            quarantine: now + kept.ttl,
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
                    if self.owners.get(&claim.unit) == Some(&(session, claim.token)) {
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
        if !self.ranks.contains_key(unit) {
            self.ranks.insert(unit.clone(), rank);
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

    fn claim(&mut self, now: u64, session: u64, count: u32, end: End, skip: &[Arc<str>]) -> Vec<Claim> {
        if now < self.quarantine {
            return Vec::new();
        }
        let wanted = |(_, unit): &&(u64, Unit)| !skip.contains(&unit.name);
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
        if now >= self.quarantine {
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
        let mut members: Vec<_> = living()
            .map(|(_, open)| MemberView { member: Arc::clone(&open.member), line: open.line })
            .collect();
        members.sort_by(|a, b| a.member.cmp(&b.member));
        let next = living().filter(|(number, _)| **number != session).map(|(_, open)| open.over).min();
        View {
            members,
            free: self.free.len() as u32,
            best_free: self.free.first().map(|(rank, _)| *rank),
            worst_free: self.free.last().map(|(rank, _)| *rank),
            owned: self.owned.get(&session).map_or(0, |owned| owned.len() as u32),
            next_expiry: next.and_then(|over| Self::left(over, now)),
            holds: self.holds_version,
            quarantine: Self::left(self.quarantine, now),
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
                let mut until = duration.map(|duration| now + duration.as_nanos() as u64);
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

    fn list_holds(&mut self, now: u64) -> Vec<HoldNote> {
        self.holds.retain(|_, held| held.until.is_none_or(|until| until > now));
        let note = |((name, kind), held): (&(Arc<str>, HoldKind), &Held)| HoldNote {
            name: Arc::clone(name),
            kind: *kind,
            change: Change::Set(held.until.and_then(|until| Self::left(until, now))),
            origin: Arc::clone(&held.origin),
            epoch: Arc::clone(&self.epoch),
            version: held.version,
        };
        self.holds.iter().map(note).collect()
    }

    fn overview(&mut self, now: u64) -> Overview {
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

    /// The end of a hold that is on record.
    #[cfg(test)]
    pub fn held(&self, name: &Arc<str>, kind: HoldKind) -> Option<Option<u64>> {
        self.holds.get(&(Arc::clone(name), kind)).map(|held| held.until)
    }

    /// What an engine without quarantine does.
    #[cfg(test)]
    pub fn end_quarantine(&mut self) {
        self.quarantine = 0;
    }

    /// Whether this is the epoch on record.
    #[cfg(test)]
    pub fn is_of(&self, epoch: &str) -> bool {
        &*self.epoch == epoch
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
