//! A member as a pure state machine: time, what the scheduler shows and the engine's replies go in; requests come out, and what is to be
//! done to the scheduler goes through [`Local`]. The thread of a real cluster and the simulation drive the same code.
//!
//! ```text
//!            Joined                   Gone, another epoch
//!   Out --------------> Live ----------------------------------> Moving
//!    ^                   |  ^                                      |  |
//!    |  Gone, same epoch |  |   Joined, and all is reinstated      |  |
//!    +-------------------+  +--------------------------------------+  |
//!    |  until has passed                                              |
//!    +----------------------------------------------------------------+  (or Live, without units, if Joined)
//! ```
//!
//! `until` is the moment, on the member's own clock, at which its claims end unless they are renewed: counted from before the last renewal that
//! was acknowledged had been sent. `lead` before it the member is *suspended*: nothing is lent, and nothing is given back. While it is Moving the
//! old `until` counts.
//!
//! One request is at work at a time. What its failure leaves unknown is found out later (`uncertain`).
//!
//! | file | idea |
//! |---|---|
//! | this one | states, deadlines, what is lost |
//! | `requests` | which request is next |
//! | `answers` | what replies do |
//! | `plan` | how many units it should have, and which |
//! | `swap` | an idle member offers its best unit |
//! | `share` | who should have how many |
//! | `demand` | what it needs |
//! | `book` | what it has |
//! | `travel` | holds: between its scheduler and the fleet |

mod answers;
mod book;
mod demand;
mod plan;
mod requests;
pub(super) mod share;
mod swap;
mod travel;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

pub use demand::Demand;

use self::{book::Book, demand::Peak, plan::Offer, swap::Swap};
use super::{
    engine::{Change, End, HoldKind, Line, Request, Session, View},
    holds::{Apply, HoldTable, Seen},
    planted::{Planted, is_planted},
    terms::Terms,
    unit::{Claim, Roll},
};
use crate::sync::{Arc, Timestamp};

/// Units in one request.
pub const BATCH: usize = 256;

/// Units that are lost at once, and how many of the resource's units remain.
#[derive(Clone, Debug)]
pub struct Loss {
    pub place: usize,
    pub claims: Vec<Claim>,
    pub units_left: u32,
}

/// The scheduler, as a member sees it. Resources are named by their places in the roll.
pub trait Local {
    /// Leases out and requests that wait. What [`holds`](Self::holds) shows is as of this call, or later.
    fn demand(&mut self) -> Demand;
    /// Leases out on a resource.
    fn in_flight(&mut self, place: usize) -> u32;
    /// A unit is there, to be named by fences; it is lent from the next `lend` on.
    fn admit(&mut self, place: usize, claim: &Claim);
    /// From now on leases on so many units may begin; 0 takes the resource out.
    fn lend(&mut self, place: usize, units: u32);
    /// As `lend`, of a resource that may not have been there: with these holds, and no lease begins before they are on.
    fn lend_with(&mut self, place: usize, units: u32, holds: &[Apply]) {
        self.lend(place, units);
        for apply in holds {
            self.hold(apply.place, apply.kind, apply.change);
        }
    }
    /// Takes units away that no fence names, of these, the last ones first: at most so many. Answers which.
    fn take(&mut self, place: usize, claims: &[Claim], most: u32) -> Vec<Claim>;
    /// Takes units away at once, whoever uses them, and revokes the leases for which none is left.
    fn lose(&mut self, losses: &[Loss]);
    /// Resources of which the last `lend` could not be done, since the last call: none of their units is lent.
    fn refused(&mut self) -> Vec<usize> {
        Vec::new()
    }
    /// Resources of which more may be lent by now than when `lend` was called last.
    fn ripened(&mut self) -> Vec<usize> {
        Vec::new()
    }
    /// How many units of those that `lend` has named last are not lent yet, and will be.
    fn ripening(&mut self, _place: usize) -> u32 {
        0
    }
    /// Whether leases are out that should not be, and that cannot be revoked yet.
    fn is_in_excess(&mut self) -> bool {
        false
    }
    /// Until when claims are good.
    fn good_until(&mut self, until: Timestamp);
    /// Sets or clears a hold.
    fn hold(&mut self, place: usize, kind: HoldKind, change: Change);
    /// The holds of all resources that are there; none if nothing has changed since the last call.
    fn holds(&mut self) -> Option<HashMap<usize, Seen>>;
}

/// What has happened to a member, and how it stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub renewals: u64,
    pub failures: u64,
    pub claimed: u64,
    pub returned: u64,
    pub lost: u64,
    pub reinstated: u64,
    pub epochs: u64,
    pub requests: u64,
}

#[derive(Debug)]
enum State {
    Out,
    Live { session: Session, until: Timestamp },
    Moving { until: Timestamp, joined: Option<(Session, Timestamp)>, todo: Vec<(usize, Claim)> },
}

/// A request that is at work.
#[derive(Debug)]
struct Sent {
    at: Timestamp,
    request: Request,
}

/// See the module.
#[derive(Debug)]
pub struct Member {
    me: Arc<str>,
    weight: u32,
    terms: Terms,
    roll: Arc<Roll>,
    state: State,
    /// The epoch of the last session.
    epoch: Option<Arc<str>>,
    /// When that has begun.
    joined_at: Timestamp,
    /// Units that there are to share: what is on the list and not blocked.
    total: u32,
    /// The last session, if it was given up.
    previous: Option<Session>,
    suspended: bool,
    leaving: bool,
    left: bool,
    /// Somebody here drains everything: it claims nothing, and gives back what it has.
    retired: bool,
    book: Book,
    /// Resources that somebody here drains: nothing of them is claimed, and what is held is given back.
    declined: BTreeSet<usize>,
    /// Resources that this scheduler has refused: nothing of them is claimed until then.
    failing: BTreeMap<usize, Timestamp>,
    /// Since when leases are out that should not be.
    excess_since: Option<Timestamp>,
    /// Taken from the scheduler, to be given back to the engine.
    returning: Vec<Claim>,
    sent: Option<Sent>,
    next_try: Timestamp,
    /// Failures since the last answer.
    failed_in_a_row: u32,
    next_renewal: Timestamp,
    /// The line that the engine has.
    told: Line,
    told_at: Timestamp,
    /// The next unit to be made known: of which resource, and which.
    unregistered: Option<(usize, u32)>,
    /// The epoch in which all are known.
    registered: Option<Arc<str>>,
    /// The last request made units known: it is the turn of something else.
    told_units: bool,
    uncertain: bool,
    view: View,
    planned: bool,
    want: u32,
    want_end: End,
    /// Other processes that have its name.
    namesakes: u32,
    /// What is claimed next replaces something worse.
    upgrade: bool,
    surplus_since: Option<Timestamp>,
    swap: Swap,
    /// Resources that a hold blocks, and at which plan that was seen first.
    blocked_since: BTreeMap<usize, Timestamp>,
    peak: Peak,
    demand: Demand,
    floor: u32,
    /// Units that others know and this member does not: of each of these resources from which index on.
    skip: BTreeMap<Arc<str>, u32>,
    /// What is free, as of the last renewal.
    offer: Offer,
    /// What was free when an exchange brought nothing.
    futile: Option<Offer>,
    holds: HoldTable,
    holds_version: u64,
    /// The last request but renewals told of holds: it is the turn of something else.
    told_holds: bool,
    /// When holds may be told again.
    next_letter: Timestamp,
    refused: Option<Duration>,
    counts: Counts,
}

impl Member {
    pub fn new(me: Arc<str>, weight: u32, terms: Terms, roll: Arc<Roll>) -> Self {
        Member {
            holds: HoldTable::new(Arc::clone(&me)),
            me,
            weight,
            terms,
            total: roll.units(),
            roll,
            state: State::Out,
            epoch: None,
            joined_at: Timestamp::ZERO,
            previous: None,
            suspended: false,
            leaving: false,
            left: false,
            retired: false,
            book: Book::default(),
            declined: BTreeSet::new(),
            failing: BTreeMap::new(),
            excess_since: None,
            returning: Vec::new(),
            sent: None,
            next_try: Timestamp::ZERO,
            failed_in_a_row: 0,
            next_renewal: Timestamp::ZERO,
            told: Line::default(),
            told_at: Timestamp::ZERO,
            unregistered: None,
            registered: None,
            told_units: false,
            uncertain: false,
            view: View::default(),
            planned: true,
            want: 0,
            want_end: End::Best,
            namesakes: 0,
            upgrade: false,
            surplus_since: None,
            swap: Swap::default(),
            blocked_since: BTreeMap::new(),
            peak: Peak::default(),
            demand: Demand::default(),
            floor: terms.least(),
            skip: BTreeMap::new(),
            offer: Offer::default(),
            futile: None,
            holds_version: 0,
            told_holds: false,
            next_letter: Timestamp::ZERO,
            refused: None,
            counts: Counts::default(),
        }
    }

    /// Units to have at least, whatever is needed.
    pub fn set_floor(&mut self, units: u32) {
        self.floor = units;
    }

    /// From now on it lends nothing, and leaves once everything is given back.
    pub fn leave(&mut self, local: &mut impl Local) {
        self.leaving = true;
        for place in self.book.places() {
            self.lower(place, u32::MAX, local);
        }
    }

    /// Whether to hold nothing for now: what it has is given back as leases return, and nothing is claimed until this is over.
    pub fn retire(&mut self, retired: bool, local: &mut impl Local) {
        if std::mem::replace(&mut self.retired, retired) != retired && retired {
            for place in self.book.places() {
                self.lower(place, u32::MAX, local);
            }
        }
    }

    /// Whether to have none of a resource: what is held of it is given back as leases return, and none is claimed until this is over.
    pub fn decline(&mut self, place: usize, declined: bool, local: &mut impl Local) {
        if !declined {
            self.declined.remove(&place);
        } else if self.declined.insert(place) {
            self.lower(place, u32::MAX, local);
        }
    }

    /// Whether nothing of a resource is claimed here.
    fn is_unwanted(&self, place: usize) -> bool {
        self.failing.contains_key(&place) || self.declined.contains(&place)
    }

    /// Resources of which nothing is claimed here, each once.
    fn unwanted(&self) -> impl Iterator<Item = usize> + '_ {
        let failing = self.failing.keys().filter(|place| !self.declined.contains(place));
        self.declined.iter().chain(failing).copied()
    }

    /// Whether it claims nothing.
    fn wants_nothing(&self) -> bool {
        self.leaving || self.retired
    }

    /// Ends all claims now, whoever uses them, and leaves.
    pub fn abandon(&mut self, local: &mut impl Local) {
        self.leaving = true;
        let all: Vec<_> = self.book.claims().map(|(place, claim)| (place, claim.clone())).collect();
        self.lose(all, local);
        self.returning.clear();
        self.uncertain = false;
    }

    /// It has left: nothing is held, and the engine knows, or will know when the session is over.
    pub fn has_left(&self) -> bool {
        self.left
    }

    pub fn is_suspended(&self) -> bool {
        self.suspended
    }

    pub fn is_live(&self) -> bool {
        matches!(self.state, State::Live { .. })
    }

    /// Whether it is a member in this epoch, or about to be, by the session of this number.
    #[cfg(test)]
    pub fn is_in(&self, epoch: &str, number: u64) -> bool {
        let session = match &self.state {
            State::Live { session, .. } => Some(session),
            State::Moving { joined, .. } => joined.as_ref().map(|(session, _)| session),
            State::Out => None,
        };
        session.is_some_and(|session| session.number == number && &*session.epoch == epoch)
    }

    pub fn counts(&self) -> Counts {
        self.counts
    }

    pub fn view(&self) -> &View {
        &self.view
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.me
    }

    /// Whether a session of this member's name was left behind by an earlier life, or opened by a request that came late: such a one is over by
    /// then, or has nothing and asks for nothing. Any other is renewed by another process.
    fn may_be_left_behind(&self, now: Timestamp) -> bool {
        now.saturating_since(self.joined_at) <= self.terms.ttl() + self.terms.period() * 2
    }

    /// The part of all units that somebody else should have, as this member sees it: 0 is balance.
    pub fn imbalance(&self) -> f64 {
        let lines: Vec<_> = self.view.members.iter().map(|view| view.line).collect();
        let targets = share::targets(&lines, self.total, self.view.turn);
        let missing: u64 =
            lines.iter().zip(targets).map(|(line, target)| u64::from(target.saturating_sub(line.held))).sum();
        if self.total == 0 { 0.0 } else { missing as f64 / f64::from(self.total) }
    }

    /// Other processes that have this name, as of the last plan.
    pub fn namesakes(&self) -> u32 {
        self.namesakes
    }

    pub fn held(&self) -> u32 {
        self.book.held()
    }

    pub fn lendable(&self) -> u32 {
        if self.suspended { 0 } else { self.book.lendable() }
    }

    /// The time to live that the engine insists on, if it is another one. This member does not ask again: after a loss of data it would be the
    /// first, and its own time to live would end the quarantine while others still lend.
    pub fn refused(&self) -> Option<Duration> {
        self.refused
    }

    fn until(&self) -> Option<Timestamp> {
        match &self.state {
            State::Out => None,
            State::Live { until, .. } | State::Moving { until, .. } => Some(*until),
        }
    }

    fn session(&self) -> Option<&Session> {
        match &self.state {
            State::Live { session, .. } => Some(session),
            _ => None,
        }
    }

    /// Before `until`, but not long before: nothing is lent from here on.
    fn lent_until(&self) -> Option<Timestamp> {
        let lead = if is_planted(Planted::SuspendsLate) {
            Duration::ZERO
        } else {
            self.terms.good_for() - self.terms.lent_for()
        };
        self.until()
            .map(|until| Timestamp::from_nanos(until.as_nanos().saturating_sub(lead.as_nanos() as u64)))
    }

    /// When [`tick`](Self::tick) must be called next, whatever happens.
    pub fn deadline(&self) -> Option<Timestamp> {
        if self.suspended { self.until() } else { self.lent_until() }
    }

    /// Deadlines, leases that have come back, holds.
    pub fn tick(&mut self, now: Timestamp, local: &mut impl Local) {
        if self.until().is_some_and(|until| now >= until) {
            self.lose_all(now, local);
        } else if !self.suspended && self.lent_until().is_some_and(|until| now >= until) {
            self.suspended = true;
            for place in self.book.places() {
                local.lend(place, 0);
            }
        }
        self.give_up_refused(now, local);
        if !self.suspended {
            self.let_go(local);
        }
        // After that: a hold that the last lease of what goes has set is seen before its unit is returned.
        self.demand = local.demand();
        self.peak.note(now, self.demand.in_use + self.demand.waiting, self.calm());
        self.look_at_holds(now, local);
        if !self.suspended {
            for place in local.ripened() {
                self.lend_anew(now, place, self.book.lendable_of(place), local);
            }
        }
    }

    /// What this scheduler cannot lend is given back: others may be able to.
    fn give_up_refused(&mut self, now: Timestamp, local: &mut impl Local) {
        for place in local.refused() {
            self.book.lower(place, u32::MAX);
            self.failing.insert(place, now.saturating_add(self.terms.calm()));
        }
    }

    /// How long something must have been in excess before it is given back unasked.
    fn calm(&self) -> Duration {
        if is_planted(Planted::NoCalm) { Duration::ZERO } else { self.terms.calm() }
    }

    /// Units that are leaving go as soon as fewer leases are out than what remains allows.
    fn let_go(&mut self, local: &mut impl Local) {
        for place in self.book.leaving() {
            let (held, lendable) = (self.book.held_of(place), self.book.lendable_of(place));
            let in_use = local.in_flight(place).div_ceil(self.roll.get(place).leases_per_unit);
            let stay = if is_planted(Planted::LetGoInUse) { lendable } else { lendable.max(in_use) };
            if held > stay {
                // All at once: this is done in each turn for as long as fences keep some of them.
                let gone = local.take(place, self.book.claims_of(place), held - stay);
                self.book.remove_all(place, &gone);
                self.returning.extend(gone);
            }
        }
    }

    fn lower(&mut self, place: usize, by: u32, local: &mut impl Local) {
        self.book.lower(place, by);
        if !self.suspended {
            local.lend(place, self.book.lendable_of(place));
        }
    }

    /// All claims have ended.
    fn lose_all(&mut self, now: Timestamp, local: &mut impl Local) {
        let losses: Vec<Loss> = self
            .book
            .clear()
            .into_iter()
            .map(|(place, holding)| Loss { place, claims: holding.claims, units_left: 0 })
            .collect();
        self.counts.lost += losses.iter().map(|loss| loss.claims.len() as u64).sum::<u64>();
        if !losses.is_empty() {
            local.lose(&losses);
        }
        self.returning.clear();
        self.suspended = false;
        self.want = 0;
        self.planned = true;
        self.state = match std::mem::replace(&mut self.state, State::Out) {
            State::Moving { joined: Some((session, sent)), .. } => {
                // What was reinstated is the engine's to think ours: it is returned.
                self.uncertain = true;
                let until = sent.saturating_add(self.terms.good_for());
                self.begin_session(now, &session, until, local);
                State::Live { session, until }
            }
            State::Live { session, .. } => {
                self.previous = Some(session);
                State::Out
            }
            _ => State::Out,
        };
    }

    /// A session has begun, and is good until then.
    fn begin_session(&mut self, now: Timestamp, session: &Session, until: Timestamp, local: &mut impl Local) {
        let before = self.epoch.replace(Arc::clone(&session.epoch));
        if before.is_some_and(|before| before != session.epoch) {
            self.counts.epochs += 1;
            self.holds_version = u64::MAX;
        }
        self.holds.begin(now, &session.epoch);
        self.joined_at = now;
        // An epoch forgets no unit.
        self.unregistered = (self.registered.as_ref() != Some(&session.epoch)).then_some((0, 0));
        self.next_renewal = Timestamp::ZERO;
        self.told = Line::default();
        local.good_until(until);
    }

    /// Some claims have ended.
    fn lose(&mut self, claims: Vec<(usize, Claim)>, local: &mut impl Local) {
        // In an order of its own: what a run does follows from its seed alone.
        let mut losses: BTreeMap<usize, Vec<Claim>> = BTreeMap::new();
        for (place, claim) in claims {
            losses.entry(place).or_default().push(claim);
        }
        losses.iter().for_each(|(&place, claims)| self.book.remove_all(place, claims));
        let losses: Vec<Loss> = losses
            .into_iter()
            .map(|(place, claims)| Loss { place, claims, units_left: self.book.held_of(place) })
            .collect();
        for loss in &losses {
            self.counts.lost += loss.claims.len() as u64;
            if !self.suspended {
                local.lend(loss.place, self.book.lendable_of(loss.place));
            }
        }
        if !losses.is_empty() {
            local.lose(&losses);
        }
    }
}
