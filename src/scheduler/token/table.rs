//! The table of tokens: an entry for each lease that has one.
//!
//! # States and steps of an entry
//!
//! ```text
//!            mint M1..M3              redeem, end, revoke R1..R4
//!   FREE g  ------------->  LIVE g  -----------------------------+--->  FREE g+1
//!                                                                |        ^
//!                              a guard or a record is left:      v        | R4
//!                                              RETURNED g, REVOKED g -----+
//!
//! M1  take an index: pop the free list, or the next unused one (a new chunk is allocated if need be)
//! M2  store node, value and, if leases are recorded, when and by whom (Release what those who look rely on)
//! M3  word := LIVE g (Release)                      the token is (index, g)
//! R1  load word (Acquire); another generation: stale; REVOKED: said so; nothing is touched
//! R2  load node and value; then CAS the word out of LIVE g (Release)
//!                                                   the one winner returns the unit; linearization point
//! R4  if the word is FREE now: push the index onto the free list (Release)
//! ```
//!
//! R1 reads M3's store, or what was made of it by CAS, so R2 sees M2. R2 loads before its CAS: the next M2 of this entry comes
//! after that CAS in every case, through R4 and M1 or through the guard's own CAS, so it does not overtake the loads, and if the
//! CAS succeeds they were of g. The free list's head carries a tag against ABA. A generation repeats after 2^32 leases of one entry.
//!
//! While a guard lives, its entry is not freed: it can always tell what has become of its lease. A token that was revoked
//! without a guard keeps its entry as well, so that a late return is told the truth; of those only the last [`KEPT`] stay,
//! and what comes later than that is *stale*.
//!
//! # Looking
//!
//! Somebody who lists leases owns nothing:
//!
//! ```text
//! L1  pin
//! L2  load word (Acquire); not LIVE: nothing here
//! L3  load the fields (Acquire)
//! L4  load word again; the same lease, still LIVE: the fields are of it, and its node is alive until the pin ends
//! ```
//!
//! A field that a later M2 has written was read with Acquire from a Release store; the CAS that ended g comes before that M2 (as
//! above), so L4 sees it, and does not find g LIVE. The node of a lease that is LIVE at L4 has a unit out then, after the pin; so it is
//! retired later than the pin, if at all.
//!
//! Progress: lock-free, but for the list of revoked tokens, which has a mutex. What a caller is told is decided by the CAS of R2; it is
//! tried again only if a renewal, a notice or the guard's parting came between: at most once for each of these.

#![allow(unsafe_code)]

use std::{collections::VecDeque, panic::Location, ptr::NonNull};

use super::{
    Token,
    entries::{Entries, Entry, stored},
    word::{Phase, Word},
};
use crate::{
    node::{Node, Value},
    resource::Resource,
    scheduler::error::ReleaseError,
    sync::{Mutex, atomic::Ordering},
};

/// What a token stands for: the lease's part that is not in the guard.
pub struct Ticket<R: Resource> {
    pub node: NonNull<Node<R>>,
    pub value: NonNull<Value<R>>,
    pub exclusive: bool,
    /// As [`Held::since`](crate::scheduler::held::Held): for whoever ends the lease without its guard.
    #[cfg(feature = "telemetry")]
    pub since: u64,
}

/// When a lease began, until when it may be held, and where it was asked for.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    pub since: u64,
    pub deadline: u64,
    pub site: &'static Location<'static>,
}

/// A recorded lease that is out, as somebody who looks has found it.
pub struct Out<R: Resource> {
    pub token: Token,
    pub ticket: Ticket<R>,
    pub terms: Terms,
    slot: u32,
    word: Word,
}

impl<R: Resource> Out<R> {
    /// Whether it was found to be overdue before.
    pub fn is_noticed(&self) -> bool {
        self.word.is_noticed()
    }
}

/// What an entry still claims when the scheduler is dropped.
pub struct Left<R: Resource> {
    pub ticket: Ticket<R>,
    /// The unit of capacity.
    pub unit: bool,
    /// The pin of a guard that was forgotten.
    pub pin: bool,
}

/// Revoked tokens without a guard that are remembered.
pub const KEPT: usize = if cfg!(any(loom, shuttle)) { 1 } else { 4096 };

/// The table of one scheduler.
pub struct Tokens<R: Resource> {
    entries: Entries<R>,
    /// Index and generation of revoked tokens without a guard, oldest first.
    revoked: Mutex<VecDeque<(u32, u32)>>,
    scheduler: u64,
}

impl<R: Resource> Tokens<R> {
    /// An empty table. `scheduler` tells this scheduler's tokens from others'.
    pub fn new(scheduler: u64) -> Self {
        Tokens { entries: Entries::new(), revoked: Mutex::new(VecDeque::new()), scheduler }
    }

    /// The token of an entry that the caller's lease minted.
    pub const fn token(&self, slot: u32, generation: u32) -> Token {
        Token { slot, generation, scheduler: self.scheduler }
    }

    /// M1..M3. `guarded` if the guard lives on beside the token.
    pub fn mint(&self, ticket: Ticket<R>, guarded: bool, terms: Option<Terms>) -> Token {
        let (slot, entry) = self.entries.take();
        // Release, here and for the other fields: pairs with L3.
        // - L3 reads ours: the end of the lease before, which came before M1, is seen by L4, which then does not take this one for it;
        // - L3 reads an older field: it is of the lease whose word L2 has read, or L4 finds another word.
        // Relaxed for those that those who look leave alone: M3 orders them, see `ticket`.
        entry.node.store(ticket.node.as_ptr(), Ordering::Release);
        entry.value.store(ticket.value.as_ptr(), Ordering::Relaxed);
        entry.exclusive.store(u32::from(ticket.exclusive), Ordering::Relaxed);
        #[cfg(feature = "telemetry")]
        entry.measured.store(ticket.since, Ordering::Relaxed);
        let mut recorded_at = std::ptr::null();
        if let Some(Terms { since, deadline, site }) = terms {
            // Release, for these three: as for the node above.
            entry.since.store(since, Ordering::Release);
            entry.deadline.store(deadline, Ordering::Release);
            recorded_at = site;
        }
        entry.site.store(recorded_at.cast_mut(), Ordering::Release);
        // Relaxed: nobody else writes the word of an entry that is free and in our hands.
        let live = entry.load(Ordering::Relaxed).mint(guarded);
        // Release: pairs with the Acquire of R1 and L2: they see M2.
        entry.store(live, Ordering::Release);
        self.token(slot, live.generation())
    }

    /// The entry of a token, if it may be one of ours.
    fn entry_of(&self, token: Token) -> Result<&Entry<R>, ReleaseError> {
        if token.scheduler != self.scheduler {
            return Err(ReleaseError::Foreign);
        }
        self.entries.get(token.slot).ok_or(ReleaseError::Foreign)
    }

    /// R1 and R2: one transition of the lease's word. The word before it, or why there was none.
    fn step(
        entry: &Entry<R>,
        generation: u32,
        step: impl Fn(Word) -> Option<Word>,
    ) -> Result<(Word, Word, Option<Ticket<R>>), ReleaseError> {
        // Acquire: pairs with the Release of M3: R2's loads see M2.
        let mut from = entry.load(Ordering::Acquire);
        loop {
            let to = if from.generation() == generation { step(from) } else { None };
            let Some(to) = to else { return Err(refusal(from, generation)) };
            let ticket = ticket(entry);
            // Release: orders R2's loads, the new deadline of a renewal, and what a revoker did before, for whoever reads it. No
            // Acquire: it replaces the very word that was read with Acquire, for none comes back. Failure Acquire: the word found
            // is used as R1's.
            match entry.compare_exchange(from, to, Ordering::Release, Ordering::Acquire) {
                Ok(()) => return Ok((from, to, ticket)),
                Err(found) => from = found,
            }
        }
    }

    /// R4, if the transition has freed the entry.
    fn free_if(&self, slot: u32, entry: &Entry<R>, to: Word) {
        if to.phase() == Phase::Free {
            self.entries.give_back(slot, entry);
        }
    }

    /// By its token, a lease comes back: the caller returns the unit.
    pub fn redeem(&self, token: Token) -> Result<Ticket<R>, ReleaseError> {
        let entry = self.entry_of(token)?;
        let (_, to, ticket) = Self::step(entry, token.generation, Word::redeem)?;
        self.free_if(token.slot, entry, to);
        Ok(ticket.expect("a live entry has a node and a value"))
    }

    /// A lease is taken back: the caller returns the unit.
    pub fn revoke(&self, token: Token) -> Result<Ticket<R>, ReleaseError> {
        let entry = self.entry_of(token)?;
        let (_, to, ticket) = Self::step(entry, token.generation, Word::revoke)?;
        self.keep_if_unguarded(token.slot, to);
        Ok(ticket.expect("a live entry has a node and a value"))
    }

    /// As [`revoke`](Self::revoke), unless the lease has been renewed since it was looked at. Answers whether it was still overdue.
    pub fn revoke_overdue(&self, out: &Out<R>) -> bool {
        let revoked = out.word.revoke();
        let done = self.change_seen(out, revoked);
        if let (true, Some(to)) = (done, revoked) {
            self.keep_if_unguarded(out.slot, to);
        }
        done
    }

    /// Marks a lease as overdue. Answers whether this was the first time, and it had not been renewed.
    pub fn notice(&self, out: &Out<R>) -> bool {
        self.change_seen(out, out.word.notice())
    }

    /// Whether the lease has not ended, and was not taken back, since it was looked at. For the holder of the lock of its home.
    pub fn is_out(&self, out: &Out<R>) -> bool {
        // Relaxed: whoever ends a lease takes that lock afterwards, to return the unit: if that was before, the lock shows us the end; if
        // we miss it, the return is still to come.
        self.entries.get(out.slot).is_some_and(|entry| out.word.is_same_lease(entry.load(Ordering::Relaxed)))
    }

    /// Whether the lease of a token is out. For whoever has the token from those who have seen the lease begin.
    #[cfg(feature = "cluster")]
    pub fn is_lent(&self, token: Token) -> bool {
        let Ok(entry) = self.entry_of(token) else { return false };
        // Relaxed: its beginning is seen by way of the token, and it ends once; nothing else is concluded from it.
        let word = entry.load(Ordering::Relaxed);
        word.generation() == token.generation && word.is_live()
    }

    /// One attempt from the word that was seen. A word does not come back while its lease is out: renewals are numbered.
    fn change_seen(&self, out: &Out<R>, to: Option<Word>) -> bool {
        let Some((entry, to)) = self.entries.get(out.slot).zip(to) else { return false };
        // Release: as in `step`; L2 was the Acquire. Failure Relaxed: nothing is made of it.
        entry.compare_exchange(out.word, to, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// The guard ends. `Ok`: the unit is the caller's to return; else somebody else has done that. The entry is free.
    pub fn end(&self, slot: u32, generation: u32) -> Result<(), ReleaseError> {
        let entry = self.entries.get(slot).expect("the guard's entry");
        let (from, to, _) = Self::step(entry, generation, Word::end)?;
        self.free_if(slot, entry, to);
        if from.is_live() { Ok(()) } else { Err(refusal(from, generation)) }
    }

    /// The guard becomes its token.
    pub fn part(&self, slot: u32, generation: u32) {
        let entry = self.entries.get(slot).expect("the guard's entry");
        if let Ok((_, to, _)) = Self::step(entry, generation, Word::part) {
            self.free_if(slot, entry, to);
            self.keep_if_unguarded(slot, to);
        }
    }

    /// Another deadline for the lease of a guard.
    pub fn renew(&self, slot: u32, generation: u32, deadline: u64) -> Result<(), ReleaseError> {
        let entry = self.entries.get(slot).expect("the guard's entry");
        // Release: pairs with L3. The entry is ours while the guard lives; whoever has seen the old deadline fails at his CAS, which
        // expects the word before the one below.
        entry.deadline.store(deadline, Ordering::Release);
        Self::step(entry, generation, Word::renew).map(drop)
    }

    /// Whether the lease of a guard was revoked.
    pub fn is_revoked(&self, slot: u32) -> bool {
        // Acquire: what the revoker did before is seen by a holder who asks.
        self.entries.get(slot).is_some_and(|entry| entry.load(Ordering::Acquire).phase() == Phase::Revoked)
    }

    /// Remembers a revoked token that no guard keeps; forgets the oldest, if there are too many.
    fn keep_if_unguarded(&self, slot: u32, word: Word) {
        if word.phase() != Phase::Revoked || word.is_guarded() {
            return;
        }
        let oldest = {
            let mut revoked = self.revoked.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            revoked.push_back((slot, word.generation()));
            if revoked.len() > KEPT { revoked.pop_front() } else { None }
        };
        if let Some((slot, generation)) = oldest
            && let Some(entry) = self.entries.get(slot)
            && let Ok((_, to, _)) = Self::step(entry, generation, Word::forget)
        {
            self.free_if(slot, entry, to);
        }
    }

    /// L2 to L4, for each entry in turn. The caller is pinned (L1).
    pub fn recorded(&self) -> impl Iterator<Item = Out<R>> + '_ {
        self.entries.used().filter_map(|slot| {
            let entry = self.entries.get(slot)?;
            // Acquire: pairs with the Release of M3.
            let word = entry.load(Ordering::Acquire);
            if !word.is_live() {
                return None;
            }
            let ticket = ticket(entry)?;
            // SAFETY: stored from a `&'static` by M2, never changed to anything else.
            let site = unsafe { stored(&entry.site)?.as_ref() };
            let terms = Terms {
                since: entry.since.load(Ordering::Acquire),
                deadline: entry.deadline.load(Ordering::Acquire),
                site,
            };
            // Relaxed: after the Acquire loads above.
            if !entry.load(Ordering::Relaxed).is_same_lease(word) {
                return None;
            }
            Some(Out { token: self.token(slot, word.generation()), ticket, terms, slot, word })
        })
    }

    /// Whatever is still claimed. For the owner of the whole scheduler, when no guard is alive.
    pub fn drain(&mut self) -> Vec<Left<R>> {
        let left = |slot| {
            // Relaxed: `&mut self`.
            let entry = self.entries.get(slot)?;
            let word = entry.load(Ordering::Relaxed);
            entry.store(Word::FIRST, Ordering::Relaxed);
            if word.phase() == Phase::Free {
                return None;
            }
            Some(Left { ticket: ticket(entry)?, unit: word.is_live(), pin: word.is_guarded() })
        };
        self.entries.used().filter_map(left).collect()
    }
}

/// Why the lease of a generation cannot be returned, by the word found.
fn refusal(found: Word, generation: u32) -> ReleaseError {
    let current = match found.phase() {
        Phase::Revoked if found.generation() == generation => return ReleaseError::Revoked { generation },
        // Spent, though its guard is still to free the entry.
        Phase::Returned | Phase::Revoked => found.generation().wrapping_add(1),
        Phase::Live | Phase::Free => found.generation(),
    };
    if (current.wrapping_sub(generation) as i32) > 0 {
        ReleaseError::Stale { generation, current }
    } else {
        // Never minted.
        ReleaseError::Foreign
    }
}

fn ticket<R: Resource>(entry: &Entry<R>) -> Option<Ticket<R>> {
    Some(Ticket {
        node: stored(&entry.node)?,
        // Relaxed, these: the Acquire of the word lets us see M2's, and nothing is made of them unless the CAS that follows
        // succeeds, whose Release keeps the next M2's from being read here.
        value: NonNull::new(entry.value.load(Ordering::Relaxed))?,
        exclusive: entry.exclusive.load(Ordering::Relaxed) != 0,
        #[cfg(feature = "telemetry")]
        since: entry.measured.load(Ordering::Relaxed),
    })
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
