//! Which request is next, and what it says.

use super::{BATCH, Local, Member, Sent, State};
use crate::{
    cluster::{
        engine::{Line, Request, Session},
        planted::{Planted, is_planted},
        unit::{Claim, Unit},
    },
    sync::{Arc, Timestamp},
};

impl Member {
    /// What the others are told. Units that a hold blocks are not held: they are of no use to anybody.
    pub(super) fn line(&self, now: Timestamp) -> Line {
        let held = self.lendable().saturating_sub(self.blocked(now));
        if self.wants_nothing() {
            return Line { held, ..Line::default() };
        }
        // What this scheduler has refused, or somebody drains here, serves no need of it.
        let unwanted: u32 = self.unwanted().map(|place| self.roll.get(place).units).sum();
        let most = self.roll.units() - unwanted;
        let need = self.roll.units_for(self.peak.most()).min(most);
        let mut spare = self.terms.spare_for(need);
        if self.book.lendable() > 0 && self.roll.units_for(self.demand.in_use) >= self.book.lendable() {
            // Everything is out, and those who do not wait are sent away unseen.
            spare = spare.max(self.book.lendable() / 2);
        }
        spare = spare.max(self.floor.saturating_sub(need)).min(most - need);
        Line { need, spare, held, weight: self.weight }
    }

    /// Units that are lent here, but for a hold.
    pub(super) fn blocked(&self, now: Timestamp) -> u32 {
        self.holds.blocked(now).map(|place| self.book.lendable_of(place)).sum()
    }

    /// The next request, if there is one and none is at work. `now` is taken as the moment before it is sent.
    pub fn poll(&mut self, now: Timestamp, local: &mut impl Local) -> Option<Request> {
        if !local.is_in_excess() {
            self.excess_since = None;
        }
        if self.sent.is_some() || self.left || now < self.next_try {
            return None;
        }
        let request = self.next(now, local)?;
        self.counts.requests += 1;
        self.sent = Some(Sent { at: now, request: request.clone() });
        Some(request)
    }

    fn next(&mut self, now: Timestamp, local: &mut impl Local) -> Option<Request> {
        // While leases are out that should not be, what was claimed before is nobody's yet.
        let excess = local.is_in_excess();
        let join = || Request::Join {
            member: Arc::clone(&self.me),
            ttl: self.terms.ttl(),
            weight: self.weight,
            previous: self.previous.clone().filter(|_| !excess),
        };
        match &mut self.state {
            State::Out if self.leaving => {
                // A hold needs no session. Who was refused is no member, and says nothing.
                let letter = if self.refused.is_none() { self.letter(now) } else { None };
                self.left = letter.is_none();
                letter
            }
            State::Out | State::Moving { joined: None, .. } => self.refused.is_none().then(join),
            State::Moving { joined: Some((session, _)), todo, .. } => {
                let roll = &self.roll;
                let claims = todo
                    .iter()
                    .take(BATCH)
                    .map(|(place, claim)| (claim.clone(), roll.get(*place).rank))
                    .collect();
                Some(Request::Reinstate { session: session.clone(), claims })
            }
            State::Live { session, .. } => {
                let session = session.clone();
                self.next_live(now, session, local)
            }
        }
    }

    fn next_live(&mut self, now: Timestamp, session: Session, local: &mut impl Local) -> Option<Request> {
        let line = self.line(now);
        let asked = |line: &Line| line.need.saturating_add(line.spare);
        let needs_more =
            asked(&line) > asked(&self.told) && now.saturating_since(self.told_at) >= self.terms.period() / 4;
        if now >= self.next_renewal || needs_more {
            return Some(Request::Renew { session, line });
        }
        if self.leaving
            && self.book.is_empty()
            && self.returning.is_empty()
            && !self.waits_for_excess(now, local)
        {
            // What was set here and nobody knows yet is told by nobody else.
            return self.letter(now).or(Some(Request::Leave { session }));
        }
        if self.uncertain && !is_planted(Planted::NeverAsks) {
            return Some(Request::Owned { session });
        }
        // This and something else take turns: of a long list the units that are known already are claimed meanwhile.
        if !std::mem::take(&mut self.told_units)
            && let Some(units) = self.unregistered()
        {
            self.told_units = true;
            return Some(Request::Register { session, units });
        }
        let request = self.next_of_units_and_holds(now, &session, local);
        match request {
            None => self.unregistered().map(|units| Request::Register { session, units }),
            some => some,
        }
    }

    /// What is claimed or given back, and what is told of holds.
    fn next_of_units_and_holds(
        &mut self,
        now: Timestamp,
        session: &Session,
        local: &mut impl Local,
    ) -> Option<Request> {
        // At once, from what the renewal has told: the next one makes it obsolete, and holds may take up all the time until then.
        if !self.planned && !self.suspended {
            self.planned = true;
            self.plan(now, local);
        }
        let units_first = std::mem::take(&mut self.told_holds) && !is_planted(Planted::HoldsFirst);
        if units_first && let Some(request) = self.move_units(now, session, local) {
            return Some(request);
        }
        self.travel(now).or_else(|| self.move_units(now, session, local))
    }

    /// What is given back, or else claimed.
    fn move_units(&mut self, now: Timestamp, session: &Session, local: &mut impl Local) -> Option<Request> {
        let session = session.clone();
        if !self.returning.is_empty() && !self.waits_for_excess(now, local) {
            let claims = self.next_returned();
            if !claims.is_empty() {
                return Some(Request::Return { session, claims });
            }
        }
        if self.want > 0 && !self.suspended && !self.wants_nothing() {
            let count = self.want.min(BATCH as u32);
            let skip = self.skipped(now);
            return Some(Request::Claim { session, count, end: self.want_end, skip });
        }
        None
    }

    /// What is given back next. A unit with a hold that nobody knows yet waits until that is told: elsewhere it would be lent without it.
    fn next_returned(&mut self) -> Vec<Claim> {
        let (roll, holds) = (&self.roll, &self.holds);
        let waits = |claim: &Claim| roll.place(&claim.unit.name).is_some_and(|place| holds.is_pending(place));
        let mut next = Vec::new();
        self.returning.retain(|claim| {
            let goes = next.len() < BATCH && !waits(claim);
            if goes {
                next.push(claim.clone());
            }
            !goes
        });
        next
    }

    /// Whether what is given back would be lent elsewhere while leases are out here that should not be: they are revoked as soon as somebody
    /// picks them up, and he may never come.
    fn waits_for_excess(&mut self, now: Timestamp, local: &mut impl Local) -> bool {
        let waits = |since| now.saturating_since(since) < self.terms.pick_up();
        local.is_in_excess() && waits(*self.excess_since.get_or_insert(now))
    }

    /// Units that are of no use here: what is not on the list, what a hold blocks, what this scheduler has refused, and what somebody drains here.
    pub(super) fn skipped(&self, now: Timestamp) -> Vec<Unit> {
        let mut skip = self.skip.clone();
        let most = if is_planted(Planted::SkipsSome) { BATCH } else { usize::MAX };
        for place in self.holds.blocked(now).take(most).chain(self.unwanted()) {
            skip.insert(Arc::clone(&self.roll.get(place).name), 0);
        }
        skip.into_iter().map(|(name, index)| Unit { name, index }).collect()
    }

    /// The next units to be made known.
    fn unregistered(&mut self) -> Option<Vec<(Unit, u64)>> {
        let (mut place, mut index) = self.unregistered?;
        let mut units = Vec::new();
        while place < self.roll.len() && units.len() < BATCH {
            let share = self.roll.get(place);
            units.push((Unit { name: Arc::clone(&share.name), index }, share.rank));
            index += 1;
            if index == share.units {
                (place, index) = (place + 1, 0);
            }
        }
        (!units.is_empty()).then_some(units)
    }
}
