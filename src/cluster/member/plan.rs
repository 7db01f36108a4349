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
//! * Of what the engine calls free only as much counts as the list has and nobody holds: the rest is on nobody's list any more.

use std::collections::HashSet;

use super::{Local, Member};
use crate::{
    cluster::{
        engine::{End, Line, MemberView},
        member::share,
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

/// What is free, as the engine tells it: also units that a hold blocks or that are on no list here. The best and the worst may be such, and hide
/// that another unit has become free; then their number, or what holds leave to share, is another one.
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
        if self.leaving {
            return;
        }
        let me = self.view.me;
        if me >= self.view.members.len() {
            return;
        }
        // Another session of this name was left behind, by an earlier life or a request that came late: it asks for nothing.
        let asks = |view: &MemberView| if view.member == self.me { Line::default() } else { view.line };
        let mut lines: Vec<_> = self.view.members.iter().map(asks).collect();
        lines[me] = self.line(now);
        let blocked: u32 = self.holds.blocked(now).map(|place| self.roll.get(place).units).sum();
        let total = self.roll.units() - blocked;
        self.total = total;
        let (best, worst) = (self.view.best_free, self.view.worst_free);
        self.offer = Offer { best, worst, free: self.view.free, total };
        let held = lines.iter().fold(0u32, |sum, line| sum.saturating_add(line.held));
        self.view.free = self.view.free.min(total.saturating_sub(held));
        if self.futile != Some(self.offer) {
            self.futile = None;
        }
        let targets = share::targets(&lines, total);
        let short =
            |place: usize| if place == me { 0 } else { targets[place].saturating_sub(lines[place].held) };
        let missing: u32 = (0..lines.len()).map(short).sum();
        let starving = missing.saturating_sub(self.view.free);
        let (usable, target) = (self.book.lendable() - self.blocked(now), targets[me]);
        let idle = self.peak.most() == 0;
        self.want_end = if idle { End::Worst } else { End::Best };
        if usable < target {
            self.surplus_since = None;
            self.want = (target - usable - self.keep(now, target - usable, local)).min(self.view.free);
            return;
        }
        let surplus = usable - target;
        if surplus == 0 {
            self.surplus_since = None;
        } else if starving > 0 {
            self.give(now, surplus.min(starving), Giving::UnusedFirst, local);
        } else if now.saturating_since(*self.surplus_since.get_or_insert(now)) >= self.terms.calm() {
            self.surplus_since = None;
            self.give(now, surplus, Giving::Unused, local);
        }
        if surplus == 0 && starving == 0 {
            self.exchange(now);
        }
    }

    /// Units that were about to leave are kept: at most so many. Answers how many.
    fn keep(&mut self, now: Timestamp, most: u32, local: &mut impl Local) -> u32 {
        let mut kept = 0;
        for place in self.book.leaving() {
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
        let blocked: HashSet<usize> = self.holds.blocked(now).collect();
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

    /// Something better, or for an idle member something worse, is free: it is claimed, to replace something.
    fn exchange(&mut self, now: Timestamp) {
        let offer = if self.want_end == End::Worst { self.offer.worst } else { self.offer.best };
        let gains = self.edge(now).zip(offer).is_some_and(|(mine, offer)| self.gains(mine, offer));
        if gains && self.futile != Some(self.offer) {
            self.upgrade = true;
            self.want = (self.book.lendable() / 8).max(1).min(self.view.free);
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
        for &in_use in passes {
            for (place, units) in self.in_turn(now) {
                if left == 0 {
                    break;
                }
                let busy = if in_use {
                    0
                } else {
                    local.in_flight(place).div_ceil(self.roll.get(place).leases_per_unit)
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
