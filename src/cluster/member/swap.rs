//! The best units are not hoarded: while nothing is free nothing can be exchanged, so an idle member gives its best units back.
//!
//! ```text
//!   rests --- idle, nothing free, nobody short, somebody works ---> gives its best back, an eighth of what it has; claims nothing for two renewals
//!     ^                                                                |
//!     +---- it claims the worst that is free, and rests (longer each time that this is no worse than what it gave) +
//! ```
//!
//! Those who work see a unit that is better than their worst, and exchange it: it is their worst that is free then. If nobody has a worse one
//! it comes back, and so it does if those who have were not heard of in time, a stall or a lost message being enough: which of the two it was is not
//! known here. So it is offered again, each time after twice as long. Whether somebody is short meanwhile is decided as ever: an idle member's floor never comes
//! before a need.

use super::{Local, Member, plan::Giving};
use crate::{
    cluster::planted::{Planted, is_planted},
    sync::Timestamp,
};

/// The longest rest after offers that nobody took, in multiples of `calm`: of 2, 4, 8, and then this.
const LONGEST: u32 = 16;

/// What an idle member has offered.
#[derive(Clone, Copy, Debug, Default)]
pub struct Swap {
    /// Nothing is offered before this; none while there is no reason to.
    next: Option<Timestamp>,
    /// Nothing is claimed before this: it is the turn of the others.
    waits: Timestamp,
    /// The rank that was offered last.
    offered: Option<u64>,
    /// Offers in a row that nobody took.
    missed: u32,
}

impl Swap {
    /// Whether others have their turn at what was offered.
    pub fn waits(&self, now: Timestamp) -> bool {
        now < self.waits
    }

    /// There is no reason to offer anything.
    pub fn reset(&mut self) {
        self.next = None;
        self.offered = None;
        self.missed = 0;
    }
}

impl Member {
    /// It is idle, has its share, and nothing is free, while others work.
    pub(super) fn offer_best(&mut self, now: Timestamp, local: &mut impl Local) {
        let Some(best) = self.edge(now) else { return };
        let rests = |times: u32| now.saturating_add(self.terms.calm() * times);
        if let Some(offered) = self.swap.offered.take() {
            // What has come instead is worse, as it should be; or nobody wanted it.
            self.swap.missed = if best > offered { 0 } else { self.swap.missed + 1 };
            let times = if is_planted(Planted::OffersOnce) { LONGEST } else { 1 << self.swap.missed.min(4) };
            self.swap.next = Some(rests(if best > offered { 1 } else { times.min(LONGEST) }));
        }
        if now < *self.swap.next.get_or_insert(rests(1)) || is_planted(Planted::Hoards) {
            return;
        }
        // The others see it at their next renewal, and have claimed it a round trip later.
        self.swap.waits = now.saturating_add(self.terms.period() * 2);
        self.swap.offered = Some(best);
        // As many as an exchange takes: in fifteen rounds at most everything was offered, however much it has.
        let some = (self.book.lendable() / 8).max(1);
        self.give(now, some, Giving::Unused, local);
    }
}
