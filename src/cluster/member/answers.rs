//! What replies do to a member.

use std::collections::{BTreeMap, BTreeSet};

use super::{Local, Member, Sent, State, plan::Giving};
use crate::{
    cluster::{
        engine::{Reply, Request, Session, View},
        planted::{Planted, is_planted},
        unit::Claim,
    },
    sync::{Arc, Timestamp},
};

impl Member {
    /// What has become of the request that is at work; `None` if nobody knows.
    pub fn answered(&mut self, now: Timestamp, reply: Option<Reply>, local: &mut impl Local) {
        if self.until().is_some_and(|until| now >= until) {
            self.lose_all(now, local);
        }
        let Some(Sent { at, request }) = self.sent.take() else { return };
        let Some(reply) = reply.filter(|reply| request.is_answered_by(reply)) else {
            self.failed(now, request);
            return;
        };
        self.failed_in_a_row = 0;
        match (request, reply) {
            (Request::Join { .. }, Reply::Joined(session)) => self.joined(now, at, session, local),
            (Request::Join { .. }, Reply::Refused { ttl }) => self.refused = Some(ttl),
            (Request::Renew { session, line }, Reply::Renewed(view)) if self.session() == Some(&session) => {
                (self.told, self.told_at) = (line, at);
                self.renewed(now, at, session, view, local);
            }
            (Request::Claim { session, count, .. }, Reply::Claims(claims))
                if self.session() == Some(&session) =>
            {
                self.granted(now, count, claims, local);
            }
            (Request::Owned { session }, Reply::Claims(claims)) if self.session() == Some(&session) => {
                self.owned(claims, local);
            }
            (Request::Register { session, units }, Reply::Done) if self.session() == Some(&session) => {
                self.unregistered = units.last().and_then(|(last, _)| {
                    let place = self.roll.place(&last.name)?;
                    let next = last.index + 1;
                    Some(if next == self.roll.get(place).units { (place + 1, 0) } else { (place, next) })
                });
                if self.unregistered.is_none_or(|(place, _)| place == self.roll.len()) {
                    self.registered = Some(session.epoch);
                }
            }
            (Request::Return { claims, .. }, Reply::Done) => self.counts.returned += claims.len() as u64,
            (Request::Reinstate { session, claims }, Reply::Claims(taken)) => {
                self.reinstated(now, &session, claims.len(), taken, local);
            }
            (Request::Leave { .. }, Reply::Done) => {
                self.state = State::Out;
                self.left = true;
            }
            // With their versions they are known: the listeners' copies are no news then.
            (Request::Hold(_), Reply::Holds(notes, _)) => self.recorded(now, &notes, local),
            (Request::Holds, Reply::Holds(notes, version)) => self.fetched(now, &notes, version, local),
            (request, Reply::Gone { epoch }) => self.gone(now, request.session(), &epoch, local),
            // Of a session that this member does not have any more.
            _ => {}
        }
    }

    fn failed(&mut self, now: Timestamp, request: Request) {
        self.counts.failures += 1;
        self.failed_in_a_row = self.failed_in_a_row.saturating_add(1);
        self.next_try = now.saturating_add(self.terms.retry(self.failed_in_a_row));
        match request {
            Request::Claim { .. } | Request::Return { .. } => self.uncertain = true,
            Request::Hold(_) => self.holds.unanswered(),
            _ => {}
        }
    }

    fn joined(&mut self, now: Timestamp, sent: Timestamp, session: Session, local: &mut impl Local) {
        let until = sent.saturating_add(self.terms.good_for());
        match &mut self.state {
            State::Out => {
                if until > now {
                    self.begin_session(now, &session, until, local);
                    self.state = State::Live { session, until };
                }
            }
            State::Moving { joined, todo, .. } => {
                *todo = self.book.claims().map(|(place, claim)| (place, claim.clone())).collect();
                *joined = Some((session, sent));
                self.moved(now, local);
            }
            State::Live { .. } => {}
        }
    }

    /// Ends the move if everything is reinstated.
    fn moved(&mut self, now: Timestamp, local: &mut impl Local) {
        if let State::Moving { joined: Some((session, sent)), todo, .. } = &self.state
            && todo.is_empty()
        {
            let (session, until) = (session.clone(), sent.saturating_add(self.terms.good_for()));
            self.begin_session(now, &session, until, local);
            self.state = State::Live { session, until };
            self.resume(now, local);
        }
    }

    /// Lends again what was suspended, if there is time.
    fn resume(&mut self, now: Timestamp, local: &mut impl Local) {
        if self.suspended && self.lent_until().is_some_and(|until| now < until) {
            self.suspended = false;
            let lent: Vec<_> = self.book.lent().collect();
            for (place, units) in lent {
                self.lend_anew(now, place, units, local);
            }
        }
    }

    fn renewed(
        &mut self,
        now: Timestamp,
        sent: Timestamp,
        session: Session,
        view: View,
        local: &mut impl Local,
    ) {
        self.counts.renewals += 1;
        let sent = if is_planted(Planted::UntilFromReply) { now } else { sent };
        let until = sent.saturating_add(self.terms.good_for());
        self.state = State::Live { session, until };
        local.good_until(until);
        self.resume(now, local);
        self.next_renewal = sent.saturating_add(self.terms.period());
        // A little later than the moment, which is on another clock.
        let after = |left: std::time::Duration| now.saturating_add(left + self.terms.ttl() / 100);
        if let Some(left) = view.next_expiry {
            self.next_renewal = self.next_renewal.min(after(left));
        }
        if let Some(left) = view.quarantine {
            self.next_renewal = self.next_renewal.min(after(left));
        }
        if view.owned as usize != self.book.held() as usize + self.returning.len() {
            self.uncertain = true;
        }
        self.view = view;
        self.planned = false;
        // Before anything is claimed.
        self.told_holds = false;
        self.want = 0;
        self.upgrade = false;
    }

    fn granted(&mut self, now: Timestamp, asked: u32, claims: Vec<Claim>, local: &mut impl Local) {
        let got = claims.len() as u32;
        self.counts.claimed += u64::from(got);
        // Of what is exchanged: what comes must be better than what goes.
        let exchanged = if self.upgrade { self.edge(now) } else { None };
        let mut of_use = 0;
        // A hold that was heard of since it was asked for: such a unit stays here, and is of no use.
        let blocked: BTreeSet<usize> = self.holds.blocked(now).collect();
        let mut touched = BTreeMap::new();
        let mut named = BTreeSet::new();
        for claim in claims {
            if !named.insert(claim.unit.clone()) {
                // An engine that names a unit twice: it is lent once, and asked whose it is.
                self.uncertain = true;
                continue;
            }
            match self.roll.place_of(&claim.unit) {
                Some(place)
                    if !self.suspended
                        && !self.wants_nothing()
                        // Drained since it was asked for.
                        && !self.declined.contains(&place)
                        && exchanged.is_none_or(|mine| self.gains(mine, self.roll.get(place).rank)) =>
                {
                    of_use += u32::from(!blocked.contains(&place) || is_planted(Planted::SkipsSome));
                    local.admit(place, &claim);
                    touched.entry(place).or_insert_with(|| self.book.lendable_of(place));
                    self.book.add(place, claim);
                }
                Some(_) => self.returning.push(claim),
                None => {
                    let known = self.roll.place(&claim.unit.name);
                    let units = known.map_or(0, |place| self.roll.get(place).units);
                    self.skip.insert(Arc::clone(&claim.unit.name), units);
                    self.returning.push(claim);
                }
            }
        }
        self.want = if got < asked { 0 } else { self.want.saturating_sub(of_use) };
        for (place, before) in touched {
            let units = self.book.lendable_of(place);
            if before == 0 { self.lend_anew(now, place, units, local) } else { local.lend(place, units) }
        }
        if self.upgrade && of_use > 0 {
            // What is worse goes, as much of it.
            self.upgrade = self.want > 0;
            self.give(now, of_use, Giving::InOrder, local);
        } else if self.upgrade {
            // What is free is nothing for this member: not again until something else is.
            self.want = 0;
            let skips = !self.skipped(now).is_empty();
            self.futile = skips.then_some(self.offer);
        }
    }

    /// What the engine thinks ours, against what is.
    fn owned(&mut self, listed: Vec<Claim>, local: &mut impl Local) {
        self.uncertain = false;
        let listed: BTreeSet<Claim> = listed.into_iter().collect();
        let missing: Vec<(usize, Claim)> = self
            .book
            .claims()
            .filter(|(_, claim)| !listed.contains(claim))
            .map(|(place, claim)| (place, claim.clone()))
            .collect();
        let ours: BTreeSet<&Claim> =
            self.book.claims().map(|(_, claim)| claim).chain(&self.returning).collect();
        let orphans: Vec<Claim> = listed.iter().filter(|claim| !ours.contains(claim)).cloned().collect();
        // Never adopted: a unit that was lent once on a guess is lent twice.
        self.returning.extend(orphans);
        self.returning.retain(|claim| listed.contains(claim));
        self.lose(missing, local);
    }

    fn reinstated(
        &mut self,
        now: Timestamp,
        of: &Session,
        asked: usize,
        taken: Vec<Claim>,
        local: &mut impl Local,
    ) {
        let State::Moving { joined: Some((session, _)), todo, .. } = &mut self.state else { return };
        if session != of {
            return;
        }
        let taken: BTreeSet<Claim> = taken.into_iter().collect();
        let batch: Vec<_> = todo.drain(..asked.min(todo.len())).collect();
        self.counts.reinstated += taken.len() as u64;
        let lost = batch.into_iter().filter(|(_, claim)| !taken.contains(claim)).collect();
        self.lose(lost, local);
        self.moved(now, local);
    }

    /// The session that a request named is over, or forgotten.
    fn gone(&mut self, now: Timestamp, named: Option<&Session>, epoch: &str, local: &mut impl Local) {
        match &mut self.state {
            State::Live { session, until } if named == Some(session) => {
                if &*session.epoch == epoch {
                    // The clocks disagree by more than the margin, or somebody has ended it.
                    self.lose_all(now, local);
                    return;
                }
                let until = *until;
                self.state = State::Moving { until, joined: None, todo: Vec::new() };
                // Nobody's, in the new epoch.
                self.returning.clear();
                self.uncertain = false;
                self.want = 0;
                self.planned = true;
            }
            State::Moving { joined, .. } if joined.as_ref().map(|(session, _)| session) == named => {
                *joined = None;
            }
            _ => {}
        }
    }
}

impl Request {
    /// Whether a reply is of a kind that answers this at all. What is not is a failure.
    fn is_answered_by(&self, reply: &Reply) -> bool {
        match (self, reply) {
            (Request::Join { .. }, Reply::Joined(_) | Reply::Refused { .. })
            | (Request::Renew { .. }, Reply::Renewed(_))
            | (Request::Claim { .. } | Request::Owned { .. } | Request::Reinstate { .. }, Reply::Claims(_))
            | (Request::Register { .. } | Request::Return { .. } | Request::Leave { .. }, Reply::Done)
            | (Request::Hold(_) | Request::Holds, Reply::Holds(..))
            | (Request::Overview, Reply::Overview(_)) => true,
            (request, Reply::Gone { .. }) => request.session().is_some(),
            _ => false,
        }
    }

    /// The session that it names.
    pub fn session(&self) -> Option<&Session> {
        match self {
            Request::Register { session, .. }
            | Request::Renew { session, .. }
            | Request::Claim { session, .. }
            | Request::Return { session, .. }
            | Request::Reinstate { session, .. }
            | Request::Owned { session }
            | Request::Leave { session } => Some(session),
            Request::Join { .. } | Request::Hold(_) | Request::Holds | Request::Overview => None,
        }
    }
}
