//! How long leases may be held: recording them, finding those that are overdue, taking them back.
//!
//! | file | idea |
//! |---|---|
//! | this one | recording, reaping |
//! | `info` | what an operator is told |
//! | `forms` | the public surface |
//!
//! Off, unless the builder says otherwise, and then an acquisition pays one comparison for it. On, every lease has an entry in the
//! token table (`token::table`), which knows when it began, until when it may be held, and where it was asked for, and the guard
//! is one whose token was given out: its unit is returned by whoever comes first, the guard, the token, or a revocation, and its
//! value is pinned, so that a late holder still reads it.
//!
//! # Reaping
//!
//! No thread of ours runs. Overdue leases are looked for by an acquisition that finds nothing (if they are to be revoked), by
//! [`Scheduler::reap_overdue`](crate::Scheduler::reap_overdue), by [`Scheduler::tick`](crate::Scheduler::tick), and by whoever lists. So that an acquisition that finds nothing does not go
//! over all entries each time, `next` says when to look again:
//!
//! ```text
//! lease                                       reaper
//!   K1  now := clock                            P1  swap next := now + max_hold (Acquire)
//!   K2  mint, with deadline now + max_hold      P2  go over all entries; take back what is overdue;
//!                                                   least := the earliest deadline of the rest
//!                                               P3  next := min(next, least)
//! renewal
//!   K3  the entry's deadline, its word
//!   K4  next := min(next, deadline) (Release)
//! ```
//!
//! A lease writes nothing shared but its entry: P1 leaves a moment at which any lease that P2 misses is looked for. It was missed
//! because its K2 was not to be seen in P2, so K1 was at most the time between K1 and K2 before P1: it is found that much late, if its
//! thread was suspended just there. A renewal may come to an earlier deadline than that: K4 before P1: P1 reads it, or
//! another read-modify-write since, which passes it on, and P2 sees K3; P1 before K4: K4's value stands. Every write of `next` is a
//! read-modify-write for that reason.
//!
//! What is overdue when P2 looks may have been renewed, returned or revoked when it acts: the CAS of the entry's word, which counts
//! renewals, decides.
//!
//! Nobody oversleeps. Between P1 and P3, which may be long, for filters and wakers run in P2, whoever goes to sleep (`wait::time`, T1; a
//! thread that drains) reads the later moment of P1. So P3, if it has lowered that, K4, and a look that a panic has ended (`LookAgain`) tell
//! whoever would sleep beyond the earlier moment, under the mutex of T1, or that of the drains: it reads that moment afterwards, or is found
//! there, with the later one.
//!
//! Whoever takes a lease back has the unit, and may not be the one who wants to know: `lately` remembers the last of them.

mod forms;
mod info;

use std::{collections::VecDeque, panic::Location, time::Duration};

pub use info::LeaseInfo;

use super::{
    core::Core,
    error::ReleaseError,
    held::Held,
    returning::Ending,
    token::{Out, Terms},
};
use crate::{
    events::EventKind,
    lookup::{Guard, Keyed},
    node::{Node, quietly},
    resource::Resource,
    shard::{NEVER, Pin},
    sync::{
        Arc, CachePadded, Mutex, Timestamp,
        atomic::{AtomicU64, Ordering},
        count,
    },
};

/// What happens to a lease that is held for longer than [`max_hold`](crate::Builder::max_hold).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Overdue {
    /// It is listed and counted; its holder keeps it.
    #[default]
    Report,
    /// It is taken back: its unit is lent to others, and what its holder does with it later is harmless.
    Revoke,
}

/// Leases that were taken back and are remembered.
const LATELY: usize = 64;

/// The limit on how long leases are held.
pub struct Limits<K> {
    max_hold: Duration,
    overdue: Overdue,
    /// No lease is overdue, that is not known to be, before this moment. See the module header.
    next: CachePadded<AtomicU64>,
    /// By shard: leases that were found to be overdue.
    // Lint: `count` is std's own under loom, on purpose.
    #[allow(clippy::disallowed_types)]
    seen: Box<[count::AtomicU64]>,
    /// The last overdue leases that were taken back, the latest last. Shared: keys are cloned and dropped outside the mutex.
    lately: Mutex<VecDeque<Arc<LeaseInfo<K>>>>,
}

impl<K> Limits<K> {
    #[allow(clippy::disallowed_types)]
    pub fn new(max_hold: Duration, overdue: Overdue, shards: usize) -> Self {
        Limits {
            max_hold,
            overdue,
            next: CachePadded::new(AtomicU64::new(0)),
            seen: (0..shards).map(|_| count::AtomicU64::new(0)).collect(),
            lately: Mutex::new(VecDeque::new()),
        }
    }

    fn deadline(&self, since: u64) -> u64 {
        // One less than "never": it is a moment, if a late one.
        Timestamp::from_nanos(since).saturating_add(self.max_hold).as_nanos().min(NEVER - 1)
    }

    fn revokes(&self) -> bool {
        self.overdue == Overdue::Revoke
    }

    /// After how long leases are taken back, if they are.
    #[cfg(feature = "cluster")]
    pub fn revokes_after(&self) -> Option<Duration> {
        self.revokes().then_some(self.max_hold)
    }

    /// How many leases on resources of one shard were found to be overdue.
    pub fn seen(&self, shard: u32) -> u64 {
        self.seen[shard as usize].load(Ordering::Relaxed)
    }

    fn remember(&self, info: LeaseInfo<K>) {
        let info = Arc::new(info);
        let forgotten = {
            let mut lately = self.lately.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            lately.push_back(info);
            if lately.len() > LATELY { lately.pop_front() } else { None }
        };
        // A key is user code.
        let _ = quietly(|| drop(forgotten));
    }

    fn lately(&self) -> VecDeque<Arc<LeaseInfo<K>>> {
        self.lately.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    fn saw_one(&self, shard: u32) {
        // Relaxed: a count.
        self.seen[shard as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// Lets the next one look again, unless the look was finished: user code may have panicked in its midst.
struct LookAgain<'a, R: Resource>(&'a Core<R>, &'a Limits<R::Key>);

impl<R: Resource> Drop for LookAgain<'_, R> {
    fn drop(&mut self) {
        let LookAgain(core, limits) = self;
        // Relaxed: a moment in the past is a hint to look, no more. Not a store: that would not pass K4 on.
        let before = limits.next.fetch_min(0, Ordering::Relaxed);
        if before > 0 {
            core.hasten(limits, 0);
        }
    }
}

/// What is told of a lease whose node the caller keeps. The key is user code.
fn describe<R: Resource>(out: &Out<R>, node: &Node<R>, now: u64) -> LeaseInfo<R::Key> {
    LeaseInfo {
        key: node.key().clone(),
        token: out.token,
        shard: node.home() as usize,
        since: Timestamp::from_nanos(out.terms.since),
        held_for: Duration::from_nanos(now.saturating_sub(out.terms.since)),
        deadline: Timestamp::from_nanos(out.terms.deadline),
        call_site: out.terms.site,
        revoked: false,
    }
}

#[allow(unsafe_code)]
impl<R: Resource> Core<R> {
    /// Gives a lease its entry. Reads the clock, which is user code.
    #[cold]
    pub fn record(&self, limits: &Limits<R::Key>, held: &mut Held<R>, site: &'static Location<'static>) {
        let since = self.now();
        let terms = Terms { since, deadline: limits.deadline(since), site };
        // The pin first: once the entry exists, its unit may be taken back at any time, and the guard still dereferences.
        self.home(held.node()).lock().pin(held.node(), held.value);
        let token = self.tokens.mint(held.ticket(), true, Some(terms));
        held.token = Some((token.slot(), token.generation()));
    }

    /// Another deadline for a recorded lease.
    pub fn renew(&self, held: &Held<R>, hold: Duration) -> Result<(), ReleaseError> {
        let Some((limits, (slot, generation))) = self.limits.as_ref().zip(held.token) else { return Ok(()) };
        let deadline = self.after(hold);
        self.tokens.renew(slot, generation, deadline)?;
        // K4. Release: pairs with P1; outcomes in the module header.
        let before = limits.next.fetch_min(deadline, Ordering::Release);
        if deadline < before {
            self.hasten(limits, deadline);
        }
        Ok(())
    }

    /// `next` is this earlier moment now: somebody who waits, for a lease or for a drain, may sleep until the later one.
    #[cold]
    fn hasten(&self, limits: &Limits<R::Key>, moment: u64) {
        if !limits.revokes() {
            return;
        }
        // Not by the gate: it is not ordered against `next`, and these mutexes are. A timer is asked for nothing if nobody waits.
        let drains = self.drains.hurry(moment);
        if drains || self.waiters.anybody() {
            self.alarm(moment);
        }
    }

    /// The node of a recorded lease, found under this guard.
    fn node_of<'g>(&self, out: &Out<R>, guard: &'g Pin<'_>) -> &'g Node<R> {
        guard.touch(out.ticket.node.as_ptr());
        // SAFETY: "Looking" in `token::table`: the unit was out after the guard was taken.
        unsafe { &*out.ticket.node.as_ptr() }
    }

    /// For an acquisition that has found nothing: whether something was taken back meanwhile.
    #[inline]
    pub fn reap_for_more(&self) -> bool {
        match &self.limits {
            Some(limits) if limits.revokes() => self.reap_due(limits, self.now()) > 0,
            _ => false,
        }
    }

    /// Takes back, or counts, what is overdue, if it is time to look.
    #[cold]
    pub fn reap_due(&self, limits: &Limits<R::Key>, now: u64) -> usize {
        // Relaxed: a hint, as the module header tells.
        if now < limits.next.load(Ordering::Relaxed) { 0 } else { self.reap(limits, now) }
    }

    /// P1 to P3. Answers how many were revoked. The caller holds no lock.
    pub fn reap(&self, limits: &Limits<R::Key>, now: u64) -> usize {
        // P1. Acquire: pairs with K4; outcomes in the module header.
        let next = limits.deadline(now);
        // At the end of time there is no later moment, and no later lease either.
        limits.next.swap(if next > now { next } else { NEVER }, Ordering::Acquire);
        let again = LookAgain(self, limits);
        let mut least = NEVER;
        let mut revoked = 0;
        let guard = self.pin();
        for out in self.tokens.recorded() {
            let deadline = out.terms.deadline;
            if deadline > now {
                least = least.min(deadline);
            } else if limits.revokes() {
                revoked += usize::from(self.revoke_overdue(limits, out, now));
            } else if self.tokens.notice(&out) {
                let node = self.node_of(&out, &guard);
                self.tell_overdue(limits, node, || self.tokens.is_out(&out));
            }
        }
        drop(guard);
        std::mem::forget(again);
        // P3. Relaxed: a read-modify-write that undoes no K4 and passes it on; whoever looks next sees the entries for himself.
        let before = limits.next.fetch_min(least, Ordering::Relaxed);
        if least < before {
            self.hasten(limits, least);
        }
        revoked
    }

    /// Takes back a lease that was seen to be overdue. `false` if it was returned, revoked or renewed meanwhile.
    fn revoke_overdue(&self, limits: &Limits<R::Key>, out: Out<R>, now: u64) -> bool {
        if !self.tokens.revoke_overdue(&out) {
            return false;
        }
        // SAFETY: the unit is ours: it keeps node and value.
        let node = unsafe { out.ticket.node.as_ref() };
        if !out.is_noticed() {
            self.tell_overdue(limits, node, || true);
        }
        // The key is user code, in the midst of what somebody else wants.
        if let Some(info) = quietly(|| LeaseInfo { revoked: true, ..describe(&out, node, now) }) {
            limits.remember(info);
        }
        // Whoever has come across it has nothing to do with that resource: a panic of its `priority` leaves the old rank, as in
        // `give_up`.
        let _ = quietly(|| self.land(out.ticket, &Ending::revoked()));
        true
    }

    /// Counts one that was found to be overdue, and makes an event of it, if anybody wants events; then neither, if it has come back before
    /// the lock was taken: `Released` has been told, or is about to be, as if nobody had looked.
    fn tell_overdue(&self, limits: &Limits<R::Key>, node: &Node<R>, is_out: impl FnOnce() -> bool) {
        if self.hub.is_none() {
            return limits.saw_one(node.home());
        }
        let mut locked = self.lock(self.home(node));
        // Whoever ends a lease ends its entry first, and takes this lock then: while the entry is live, the unit is out, and so the node is
        // not on its way to be freed, for which the pin for the event would be too late.
        if is_out() {
            limits.saw_one(node.home());
            locked.emit(EventKind::Overdue, node, node.state.load());
        }
    }

    /// When overdue leases should be looked for next; [`NEVER`] if they are not taken back.
    pub fn next_reap(&self) -> u64 {
        match &self.limits {
            // Relaxed: a hint.
            Some(limits) if limits.revokes() => limits.next.load(Ordering::Relaxed),
            _ => NEVER,
        }
    }

    /// Takes back, or counts, what is overdue, if it is time to look.
    pub fn reap_overdue(&self, now: u64) -> usize {
        self.limits.as_ref().map_or(0, |limits| self.reap_due(limits, now))
    }

    /// What [`Scheduler::tick`](crate::Scheduler::tick) does for leases and drains. Answers when to come again.
    pub fn tick_holders(&self, now: u64) -> u64 {
        let _ = self.reap_overdue(now);
        self.drains.tick(now).min(self.next_reap())
    }
}
