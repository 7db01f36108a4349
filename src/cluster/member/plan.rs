//! How many units a member should have, and which.
//!
//! Made once for each renewal, from what it has told:
//!
//! * Everybody computes everybody's target from the same lines (`share`). Who has less claims; who has more gives, at once if somebody else
//!   has too little and nothing is free, else only after the excess has lasted for `calm`.
//! * Who is at work claims the best free units and gives its worst; who is idle the other way round: so the best units end up with those who
//!   use them. If something better than one's worst (or, idle, worse than one's best) is free, a few are exchanged at a time; each exchange
//!   improves the order strictly, so they end.
//! * Units of a resource with a hold count for nothing, and stay: the hold travels, so they are of no use elsewhere either.

use super::{Local, Member};
use crate::{
    cluster::{engine::End, member::share},
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

impl Member {
    pub(super) fn plan(&mut self, now: Timestamp, local: &mut impl Local) {
        self.want = 0;
        self.upgrade = false;
        if self.leaving {
            return;
        }
        let line = self.line();
        let mut lines: Vec<_> = self.view.members.iter().map(|view| view.line).collect();
        // The last of this name: an earlier session of the same member may not be over yet.
        let Some(me) = self.view.members.iter().rposition(|view| view.member == self.me) else { return };
        lines[me] = line;
        let targets = share::targets(&lines, self.roll.units());
        let short =
            |place: usize| if place == me { 0 } else { targets[place].saturating_sub(lines[place].held) };
        let missing: u32 = (0..lines.len()).map(short).sum();
        let starving = missing.saturating_sub(self.view.free);
        let blocked: u32 = self.holds.blocked(now).map(|place| self.book.lendable_of(place)).sum();
        let (usable, target) = (self.book.lendable() - blocked, targets[me]);
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
            self.give(surplus.min(starving), Giving::UnusedFirst, local);
        } else if now.saturating_since(*self.surplus_since.get_or_insert(now)) >= self.terms.calm() {
            self.surplus_since = None;
            self.give(surplus, Giving::Unused, local);
        }
        if surplus == 0 && starving == 0 {
            self.exchange(idle);
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

    /// Something better, or for an idle member something worse, is free: it is claimed, to replace something.
    fn exchange(&mut self, idle: bool) {
        let rank = |(place, _): (usize, u32)| self.roll.get(place).rank;
        let gains = if idle {
            self.book
                .lent()
                .next()
                .map(rank)
                .zip(self.view.worst_free)
                .is_some_and(|(mine, free)| free > mine)
        } else {
            self.book
                .lent()
                .next_back()
                .map(rank)
                .zip(self.view.best_free)
                .is_some_and(|(mine, free)| free < mine)
        };
        if gains {
            self.upgrade = true;
            self.want = (self.book.lendable() / 8).max(1).min(self.view.free);
        }
    }

    /// Stops lending so many units: the worst, or the best if idle. Those in use leave when their leases have come back.
    pub(super) fn give(&mut self, count: u32, which: Giving, local: &mut impl Local) {
        let idle = self.peak.most() == 0;
        let mut left = count;
        let passes: &[bool] = match which {
            Giving::Unused => &[false],
            Giving::UnusedFirst => &[false, true],
            Giving::InOrder => &[true],
        };
        for &in_use in passes {
            let mut lent: Vec<_> = self.book.lent().collect();
            if !idle {
                lent.reverse();
            }
            for (place, units) in lent {
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
