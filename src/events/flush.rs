//! A closing that flushes: who reads is told of everything below a mark, or that it was dropped.
//!
//! # States and steps
//!
//! ```text
//! closer
//!   C1  hub's turn: flush := begun                from here on an inbox that is full takes what it would have missed
//!   C2  the Closed event
//!   C3  hub's turn: flush := until M              M: by ring, the sequence number after C2
//!   C4  tell the dispatchers; join them           `dispatch`
//! reader, after C4
//!   T1  pump; read all batches
//!   T2  hub's turn, inboxes' mutex: told >= M, the own inbox is empty and lacks nothing: done
//!   T3  otherwise T1 again, in a moment; not for ever: then what is missing below M is told as dropped
//! ```
//!
//! Between C1 and the pump that reaches M no inbox misses anything, whoever pumps: a reader that sleeps need not be the one who takes
//! its last events out of the rings. That costs memory for what the rings hold at C3, not more: whatever is recorded later, by
//! returns, finds room or not, as before.
//!
//! T3 waits for producers that are between V1 and V4 of `ring`: their events, and the complete ones behind them, are below M. A
//! producer that runs comes to V4; one that does not (its key's `Clone` hangs) is waited for as long as `dispatch` says. What is
//! told as dropped then is still in the ring, for [`take_events`](crate::Scheduler::take_events).
//!
//! M is read after C2 by the thread that did C2, and the sequence of a ring only grows: so the Closed event, and every event that
//! happened before C2, is below M.

use super::{Dropped, Hub, News, Reader};
use crate::resource::Resource;

/// How far a closing has got.
pub enum Flush {
    /// Nobody closes, or whoever does discards.
    No,
    /// C1.
    Begun,
    /// C3, with the mark of each ring.
    Until(Box<[u64]>),
}

impl Flush {
    /// Whether something that must be told has not left the rings, or may not have.
    pub fn wants_more(&self, told: &[u64]) -> bool {
        match self {
            Flush::No => false,
            Flush::Begun => true,
            Flush::Until(mark) => told.iter().zip(mark).any(|(told, mark)| told < mark),
        }
    }
}

impl<R: Resource> Hub<R> {
    /// C1.
    pub fn begin_flush(&self) {
        self.turn().flush = Flush::Begun;
    }

    /// C3.
    pub fn mark_flush(&self) {
        let mut turn = self.turn();
        turn.flush = Flush::Until(self.rings().iter().map(|ring| ring.sequence()).collect());
    }
}

impl<R: Resource> Reader<R> {
    /// T2: whether this reader has read everything below the mark.
    pub fn is_through(&self) -> bool {
        // The turn first, as in a pump: what is told is in the inbox.
        let turn = self.hub().turn();
        !turn.flush.wants_more(&turn.told) && self.has_nothing_left()
    }

    /// T3, the end of patience. To be called with nothing left to read.
    pub fn give_up(&mut self, mut tell: impl FnMut(News<'_, R::Key>) -> bool) {
        let missing: Vec<(u32, u64, u64)> = {
            let turn = self.hub().turn();
            let Flush::Until(mark) = &turn.flush else { return };
            (0..).zip(&turn.told).zip(mark).map(|((shard, &told), &mark)| (shard, told, mark)).collect()
        };
        for (shard, told, mark) in missing {
            if let Some(dropped) = self.skip(shard, told, mark)
                && !tell(News::Dropped(dropped))
            {
                return;
            }
        }
    }

    /// What it has not seen of this shard below the mark; who has seen nothing at all misses nothing below `told`.
    fn skip(&mut self, shard: u32, told: u64, mark: u64) -> Option<Dropped> {
        self.expect_from(shard, told);
        self.advance(shard, mark)
    }
}
