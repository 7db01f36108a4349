//! How long something has waited, as far as the keeper has looked.
//!
//! Jobs have no times of their own, for to read a clock costs more than to run a small one. So the keeper puts a *mark* behind all that is there, and
//! another one when as many have been begun: what waits in order cannot all have been begun before. While a mark stays, something waits that was there then.
//!
//! By priority more urgent jobs that come later are begun first, and counts alone would not miss one that is overtaken. There the turns are marked as well
//! (`queue::bucket`): for each of those to come the moment at which something was first seen to wait for it. Before its turn has come nothing is taken
//! from there, so that is how long the first that waits there has waited. Of those whose turn it is the counts tell: nothing goes before them.

use std::time::Duration;

use crate::sync::Timestamp;

/// What is marked; nothing at first.
#[derive(Default)]
pub struct Marks {
    /// At that moment so many had been accepted.
    all: Option<(u64, Timestamp)>,
    /// For each bucket a turn, and the moment at which something was first seen to wait for it.
    turns: Vec<(u64, Timestamp)>,
}

/// What there is to be seen of a queue and of the trays.
pub struct Seen {
    /// So many have been begun, and so many accepted.
    pub begun: u64,
    pub accepted: u64,
    /// The turn, and a bit for each number of turns after which something is due. Nothing, in a queue that has none.
    pub turn: u64,
    pub due_in: u64,
}

impl Marks {
    /// Whether something has waited for so long.
    pub fn is_late(&mut self, seen: &Seen, now: Timestamp, limit: Duration) -> bool {
        let has_passed = |since| now.saturating_since(since) >= limit;
        let (mark, since) = *self.all.get_or_insert((seen.accepted, now));
        let mut is_late = seen.begun < mark && has_passed(since);
        if seen.begun >= mark {
            self.all = Some((seen.accepted, now));
        }
        // A turn is never 0, nor is there a second time.
        self.turns.resize(u64::BITS as usize, (0, now));
        for turn in (1..u64::BITS)
            .filter(|turns| seen.due_in >> turns & 1 == 1)
            .map(|turns| seen.turn + u64::from(turns))
        {
            let mark = &mut self.turns[(turn % u64::from(u64::BITS)) as usize];
            if mark.0 != turn {
                *mark = (turn, now);
            }
            is_late |= has_passed(mark.1);
        }
        is_late
    }
}
