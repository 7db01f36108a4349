//! How many units a member should have, and which.
//!
//! Made once for each renewal, from what it has told:
//!
//! * Everybody computes everybody's target from the same lines (`share`). Who has less claims; who has more gives, at once if somebody else
//!   has too little and nothing is free, else only after the excess has lasted for `calm`.
//! * Who is at work claims the best free units and gives its worst; who is idle the other way round: so the best units end up with those who
//!   use them. If something better than one's worst (or, idle, worse than one's best) is free, a few are exchanged at a time; each exchange
//!   improves the order strictly, so they end.
//! * Units of a resource with a hold count for nothing, neither as held nor in what there is to share, and stay: the hold travels, so they are of
//!   no use elsewhere either.
//! * Of what the engine calls free only as much counts as the list has and nobody holds: the rest is on nobody's list any more. A unit that a
//!   hold blocks is left out of that once everybody has had the time to leave it out of what he holds.
//! * Nothing is free, and an idle member has a good unit: it offers it (`swap`).

use std::collections::BTreeSet;

use super::{Local, Member};
use crate::{
    cluster::{
        engine::{End, Line, MemberView},
        member::share,
        planted::{Planted, is_planted},
    },
    sync::Timestamp,
};

/// Which units are given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Giving {
    /// Only those that are not in use.
    Unused,
    /// Those first, then others.
    UnusedFirst,
    /// In use or not.
    InOrder,
}

/// What is free, as the engine tells it, but for what rests: also units that are on no list here, or that this scheduler refuses. The best and the
/// worst may be such, and hide that another unit has become free; then their number, or what holds leave to share, is another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    best: Option<u64>,
    worst: Option<u64>,
    free: u32,
    total: u32,
}

impl Member {
    pub(super) fn plan(&mut self, now: Timestamp, local: &mut impl Local) {
        self.want = 0;
        self.upgrade = false;
        self.namesakes = self.other_selves(now);
        if self.wants_nothing() {
            return;
        }
        self.failing.retain(|_, until| now < *until);
        let me = self.view.me;
        if me >= self.view.members.len() {
            return;
        }
        // Another session of this name asks for nothing, if it may have been left behind.
        let left_behind = self.may_be_left_behind(now) || is_planted(Planted::DeniesNamesakes);
        let asks = |view: &MemberView| {
            if left_behind && view.member == self.me { Line::default() } else { view.line }
        };
        let mut lines: Vec<_> = self.view.members.iter().map(asks).collect();
        lines[me] = self.line(now);
        let blocked: u32 = self.holds.blocked(now).map(|place| self.roll.get(place).units).sum();
        let total = self.roll.units() - blocked;
        self.total = total;
        let (best, worst) = (self.view.best_free, self.view.worst_free);
        self.offer = Offer { best, worst, free: self.view.free, total };
        let held = lines.iter().fold(0u32, |sum, line| sum.saturating_add(line.held));
        // The least and the most of what is free that may be of use, while not everybody knows of a hold: who lacks claims the most, and who has too much
        // relies on the least.
        let surely = self.view.free.min(total.saturating_sub(held));
        let room = self.view.free.min(self.listed(now).saturating_sub(held));
        if self.futile != Some(self.offer) {
            self.futile = None;
        }
        let targets = share::targets(&lines, total, self.view.turn);
        let short =
            |place: usize| if place == me { 0 } else { targets[place].saturating_sub(lines[place].held) };
        let missing: u32 = (0..lines.len()).map(short).sum();
        let starving = missing.saturating_sub(surely);
        let (usable, target) = (self.book.lendable() - self.blocked(now), targets[me]);
        let idle = self.peak.most() == 0;
        self.want_end = if idle { End::Worst } else { End::Best };
        if usable < target {
            self.surplus_since = None;
            // Who has work again waits for no exchange.
            if idle && self.swap.waits(now) {
                return;
            }
            self.want = (target - usable - self.keep(now, target - usable, local)).min(room);
            return;
        }
        let surplus = if is_planted(Planted::KeepsExcess) { 0 } else { usable - target };
        if surplus == 0 {
            self.surplus_since = None;
        } else if starving > 0 {
            self.give(now, surplus.min(starving), Giving::UnusedFirst, local);
        } else if now.saturating_since(*self.surplus_since.get_or_insert(now)) >= self.calm() {
            self.surplus_since = None;
            self.give(now, surplus, Giving::Unused, local);
        }
        if surplus == 0 && starving == 0 {
            self.exchange(now, room);
        }
        let works = |(place, line): (usize, &Line)| place != me && line.need > 0;
        if !idle || !lines.iter().enumerate().any(works) {
            self.swap.reset();
        } else if surplus == 0 && missing == 0 && room == 0 {
            self.offer_best(now, local);
        }
    }

    /// Sessions of this member's name that somebody else renews.
    fn other_selves(&self, now: Timestamp) -> u32 {
        if self.may_be_left_behind(now) {
            return 0;
        }
        let mine = |view: &&MemberView| view.member == self.me && view.line.need + view.line.spare > 0;
        (self.view.members.iter().filter(mine).count() as u32).saturating_sub(1)
    }

    /// Units that the lines are about: of all but those that a hold has blocked for so long that the others have left them out of what they say
    /// they hold. One who hears of a hold takes his units off his line, and the others see that line after his next renewal: until then they
    /// are held there, and free nowhere. What this member has left out of its own line already is left out here.
    fn listed(&mut self, now: Timestamp) -> u32 {
        let blocked: BTreeSet<usize> = self.holds.blocked(now).collect();
        self.blocked_since.retain(|place, _| blocked.contains(place));
        for &place in &blocked {
            self.blocked_since.entry(place).or_insert(now);
        }
        // Some hear of it when they renew, and say so at the next renewal.
        let known = self.terms.period() * 2 + self.terms.patience();
        let left_out = |(&place, &since): (&usize, &Timestamp)| {
            let old = now.saturating_since(since) >= known || is_planted(Planted::BlockedAtOnce);
            if old { self.roll.get(place).units } else { self.book.lendable_of(place) }
        };
        self.roll.units() - self.blocked_since.iter().map(left_out).sum::<u32>()
    }

    /// Units that were about to leave are kept: at most so many. Answers how many.
    fn keep(&mut self, now: Timestamp, most: u32, local: &mut impl Local) -> u32 {
        let mut kept = 0;
        let leaving: Vec<_> =
            self.book.leaving().into_iter().filter(|place| !self.is_unwanted(*place)).collect();
        for place in leaving {
            let before = self.book.lendable_of(place);
            let raised = self.book.raise(place, most - kept);
            let units = self.book.lendable_of(place);
            if raised > 0 && before == 0 {
                // Its unit was kept by a fence alone: the resource may have been removed.
                self.lend_anew(now, place, units, local);
            } else if raised > 0 {
                local.lend(place, units);
            }
            kept += raised;
        }
        kept
    }

    /// What is lent and not blocked, in the order in which it is given back: the worst first, or for an idle member the best.
    fn in_turn(&self, now: Timestamp) -> Vec<(usize, u32)> {
        let blocked: BTreeSet<usize> = self.holds.blocked(now).collect();
        let mut lent: Vec<_> = self.book.lent().filter(|(place, _)| !blocked.contains(place)).collect();
        if self.want_end == End::Best {
            lent.reverse();
        }
        lent
    }

    /// The rank of what an exchange replaces.
    pub(super) fn edge(&self, now: Timestamp) -> Option<u64> {
        self.in_turn(now).first().map(|(place, _)| self.roll.get(*place).rank)
    }

    /// Whether it is a gain to replace one rank by another.
    pub(super) fn gains(&self, mine: u64, other: u64) -> bool {
        if self.want_end == End::Worst { other > mine } else { other < mine }
    }

    /// Something better, or for an idle member something worse, is free, of the `room` units that are: it is claimed, to replace something.
    fn exchange(&mut self, now: Timestamp, room: u32) {
        let offer = if self.want_end == End::Worst { self.offer.worst } else { self.offer.best };
        let gains = self.edge(now).zip(offer).is_some_and(|(mine, offer)| self.gains(mine, offer));
        if gains && self.futile != Some(self.offer) {
            self.upgrade = true;
            self.want = (self.book.lendable() / 8).max(1).min(room);
        }
    }

    /// Stops lending so many units: the worst, or the best if idle. Those in use leave when their leases have come back.
    pub(super) fn give(&mut self, now: Timestamp, count: u32, which: Giving, local: &mut impl Local) {
        let mut left = count;
        let passes: &[bool] = match which {
            Giving::Unused => &[false],
            Giving::UnusedFirst => &[false, true],
            Giving::InOrder => &[true],
        };
        // While somebody lacks units those that ripen are in use: given away before they were ever lent they would ripen anew there, and go round.
        let keeps_unripe = which == Giving::UnusedFirst && !is_planted(Planted::GivesUnripe);
        for &in_use in passes {
            for (place, units) in self.in_turn(now) {
                if left == 0 {
                    break;
                }
                let busy = if in_use {
                    0
                } else {
                    local.in_flight(place).div_ceil(self.roll.get(place).leases_per_unit)
                        + if keeps_unripe { local.ripening(place) } else { 0 }
                };
                let by = units.saturating_sub(busy).min(left);
                if by > 0 {
                    self.lower(place, by, local);
                    left -= by;
                }
            }
        }
    }
}
