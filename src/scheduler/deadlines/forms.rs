//! Listing and revoking leases.

use std::hash::BuildHasher;

use super::{Limits, describe, info::LeaseInfo};
use crate::{
    resource::Resource,
    scheduler::{Scheduler, core::Core, error::ReleaseError, returning::Ending, token::Token},
};

impl<R: Resource> Core<R> {
    /// The recorded leases on resources that `wanted` says yes to, by address.
    pub fn holders(&self, now: u64, wanted: impl Fn(usize) -> bool) -> Vec<(usize, LeaseInfo<R::Key>)> {
        let guard = self.pin();
        let mut found: Vec<_> = self
            .tokens
            .recorded()
            .map(|out| (out.ticket.node.addr().get(), out))
            .filter(|&(address, _)| wanted(address))
            .map(|(address, out)| (address, describe(&out, self.node_of(&out, &guard), now)))
            .collect();
        found.sort_by_key(|(_, info)| info.since);
        found
    }

    fn overdue(&self, limits: &Limits<R::Key>, now: u64) -> Vec<LeaseInfo<R::Key>> {
        // All of them first: keys are cloned, which is user code, and who panics then has taken nothing back that nobody hears of.
        let guard = self.pin();
        let due = self.tokens.recorded().filter(|out| out.terms.deadline <= now);
        let described: Vec<_> =
            due.map(|out| (describe(&out, self.node_of(&out, &guard), now), out)).collect();
        let mut found = Vec::new();
        for (mut info, out) in described {
            if limits.revokes() {
                if !self.revoke_overdue(limits, out, now) {
                    continue;
                }
                info.revoked = true;
            } else if self.tokens.notice(&out) {
                self.tell_overdue(limits, self.node_of(&out, &guard), || self.tokens.is_out(&out));
            }
            found.push(info);
        }
        found.sort_by_key(|info| info.deadline);
        found
    }
}

impl<R: Resource, S: BuildHasher> Scheduler<R, S> {
    /// The leases that are out, the oldest first, if they are recorded: see [`Builder::max_hold`](crate::Builder::max_hold);
    /// otherwise the list is empty. With [`Overdue::Revoke`](crate::Overdue::Revoke) those that are overdue are taken back first.
    ///
    /// Each is true of some moment of the call, not all of one. A lease that began a moment ago, in another thread, may be
    /// missing, while its entry is still being written. O(leases that were ever out at once). Works on a closed scheduler too.
    ///
    /// # Callbacks
    /// The clock, `Clone` of the keys, and what a return calls, outside every lock.
    ///
    /// ```
    /// use leasehold::{Entry, Scheduler};
    /// use std::time::Duration;
    ///
    /// let scheduler = Scheduler::<Entry<&str, u32, ()>>::builder().max_hold(Duration::from_secs(30)).build()?;
    /// scheduler.insert(Entry::new("a", 1, ()))?;
    /// let lease = scheduler.acquire()?;
    /// let out = scheduler.leases();
    /// assert_eq!(out[0].key, "a");
    /// assert_eq!(out[0].call_site.file(), file!());
    /// println!("{}", out[0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn leases(&self) -> Vec<LeaseInfo<R::Key>> {
        let core = &*self.core;
        let Some(limits) = &core.limits else { return Vec::new() };
        let now = core.now();
        if limits.revokes() {
            let _ = core.reap(limits, now);
        }
        core.holders(now, |_| true).into_iter().map(|(_, info)| info).collect()
    }

    /// The leases that are out for longer than they may be, the one that is overdue for the longest time first. With
    /// [`Overdue::Revoke`](crate::Overdue::Revoke) they are taken back by this call, and say so.
    ///
    /// As [`leases`](Scheduler::leases) otherwise.
    ///
    /// ```
    /// use leasehold::{Entry, ManualClock, Overdue, Scheduler};
    /// use std::{sync::Arc, time::Duration};
    ///
    /// let clock = Arc::new(ManualClock::new());
    /// let scheduler = Scheduler::<Entry<&str, u32, ()>>::builder()
    ///     .clock(Arc::clone(&clock))
    ///     .max_hold(Duration::from_secs(30))
    ///     .overdue(Overdue::Revoke)
    ///     .build()?;
    /// scheduler.insert(Entry::new("a", 1, ()))?;
    /// // A bug: it never comes back.
    /// std::mem::forget(scheduler.acquire()?);
    /// clock.advance(Duration::from_secs(31));
    /// let overdue = scheduler.overdue();
    /// assert!(overdue[0].revoked);
    /// assert_eq!(overdue[0].overdue_by(), Some(Duration::from_secs(1)));
    /// assert!(scheduler.acquire().is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn overdue(&self) -> Vec<LeaseInfo<R::Key>> {
        let core = &*self.core;
        let Some(limits) = &core.limits else { return Vec::new() };
        core.overdue(limits, core.now())
    }

    /// The overdue leases that were taken back lately, by whomever ([`Overdue::Revoke`](crate::Overdue::Revoke)): the last
    /// 64 of them, the latest last, whether their holders have noticed by now or not. Held for so long, and asked for there, when
    /// they were taken back.
    ///
    /// Whoever looks for the culprit asks here: an acquisition that finds nothing takes back what is overdue, and after that it is in
    /// neither [`leases`](Scheduler::leases) nor [`overdue`](Scheduler::overdue). O(64), under a mutex of its own; works on a closed
    /// scheduler too.
    ///
    /// # Callbacks
    /// `Clone` of the keys, outside every lock. (A key whose clone panics when its lease is taken back is not remembered.)
    ///
    /// ```
    /// use leasehold::{Entry, ManualClock, Overdue, Scheduler};
    /// use std::{sync::Arc, time::Duration};
    ///
    /// let clock = Arc::new(ManualClock::new());
    /// let scheduler = Scheduler::<Entry<&str, u32, ()>>::builder()
    ///     .clock(Arc::clone(&clock))
    ///     .max_hold(Duration::from_secs(30))
    ///     .overdue(Overdue::Revoke)
    ///     .build()?;
    /// scheduler.insert(Entry::new("a", 1, ()))?;
    /// let forgotten = scheduler.acquire()?;
    /// clock.advance(Duration::from_secs(31));
    /// assert!(scheduler.acquire().is_ok(), "takes it back");
    /// let revoked = scheduler.revoked();
    /// assert_eq!((revoked[0].key, revoked[0].call_site.file()), ("a", file!()));
    /// # drop(forgotten);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn revoked(&self) -> Vec<LeaseInfo<R::Key>> {
        let lately = self.core.limits.as_ref().map(Limits::lately).unwrap_or_default();
        lately.iter().map(|info| LeaseInfo::clone(info)).collect()
    }

    /// Takes back what is overdue, with [`Overdue::Revoke`](crate::Overdue::Revoke), and answers how many leases that were; with
    /// [`Overdue::Report`](crate::Overdue::Report) it only counts them, for [`Stats::overdue`](crate::Stats::overdue), and answers 0.
    ///
    /// An acquisition that finds nothing does this by itself, when there may be something. O(leases that were ever out at once).
    /// Works on a closed scheduler too.
    ///
    /// # Callbacks
    /// The clock, and what a return calls.
    pub fn reap_overdue(&self) -> usize {
        let core = &*self.core;
        core.limits.as_ref().map_or(0, |limits| core.reap(limits, core.now()))
    }

    /// Takes a lease back, whether it is overdue or not, and whether or not there is a limit: its unit can be lent to others at
    /// once. The holder still reads its value; its drop changes nothing; a return that asks ([`Lease::try_release`](crate::Lease::try_release),
    /// [`release`](Scheduler::release) with the token) is told that the lease was revoked.
    ///
    /// Of several revocations and returns of one lease exactly one succeeds. Blocking on the home shard's lock; O(log n). Works
    /// on a closed scheduler too.
    ///
    /// # Errors
    /// [`ReleaseError`]; nothing is touched then.
    ///
    /// ```
    /// use leasehold::{Entry, ReleaseError, Scheduler};
    ///
    /// let scheduler = Scheduler::<Entry<u8, u32, ()>>::builder().build()?;
    /// scheduler.insert(Entry::new(1, 0, ()))?;
    /// let token = scheduler.acquire()?.into_token();
    /// scheduler.revoke(token)?;
    /// assert!(scheduler.acquire().is_ok());
    /// assert!(matches!(scheduler.release(token), Err(ReleaseError::Revoked { .. })));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn revoke(&self, token: Token) -> Result<(), ReleaseError> {
        let ticket = self.core.tokens.revoke(token)?;
        self.core.land(ticket, &Ending::revoked());
        Ok(())
    }
}
