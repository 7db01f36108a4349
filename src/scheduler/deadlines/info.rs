//! What an operator is told about a lease.

use std::{fmt, panic::Location, time::Duration};

use crate::{scheduler::token::Token, sync::Timestamp};

/// A lease that is out, as [`Scheduler::leases`](crate::Scheduler::leases) and [`Scheduler::overdue`](crate::Scheduler::overdue) tell of it;
/// or one that was taken back, as [`Scheduler::revoked`](crate::Scheduler::revoked) does.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseInfo<K> {
    /// The resource that is lent.
    pub key: K,
    /// What [`Scheduler::revoke`](crate::Scheduler::revoke) takes it back by.
    pub token: Token,
    /// The resource's shard.
    pub shard: usize,
    /// When it was lent, on the scheduler's clock.
    pub since: Timestamp,
    /// How long it has been out, or had been when it was taken back.
    pub held_for: Duration,
    /// Until when it may be held.
    pub deadline: Timestamp,
    /// Where in the program it was asked for.
    pub call_site: &'static Location<'static>,
    /// Whether it was taken back: just now, or lately.
    pub revoked: bool,
}

impl<K> LeaseInfo<K> {
    /// By how much it is overdue; `None` if it is not.
    pub fn overdue_by(&self) -> Option<Duration> {
        let now = self.since.saturating_add(self.held_for);
        (now >= self.deadline).then(|| now.saturating_since(self.deadline))
    }
}

impl<K: fmt::Debug> fmt::Display for LeaseInfo<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is held for {:?} by {}", self.key, self.held_for, self.call_site)?;
        if let Some(by) = self.overdue_by() {
            write!(f, ", {by:?} over its limit")?;
        }
        if self.revoked {
            f.write_str(", revoked")?;
        }
        write!(f, " (shard {}, token {})", self.shard, self.token)
    }
}
