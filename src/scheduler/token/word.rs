//! The word of an entry in the token table: whose lease it is, and what has become of it.
//!
//! # Layout
//!
//! | bits | field | meaning |
//! |---|---|---|
//! | 63..32 | generation | of the lease; grows by one when the entry is freed |
//! | 31..4 | renewals | grows with each renewal, so that who read the old deadline cannot act on it |
//! | 3 | `NOTICED` | found to be overdue, and counted |
//! | 2 | `GUARDED` | a guard lives on; it, and nobody else, frees the entry |
//! | 1..0 | phase | `FREE`, `LIVE`, `RETURNED`, `REVOKED` |
//!
//! # Transitions
//!
//! Each is one successful CAS but for `mint`, which owns the entry.
//!
//! | transition | from | to | who |
//! |---|---|---|---|
//! | [`mint`](Word::mint) | `FREE` g | `LIVE` g, `GUARDED` if the guard lives on | the lease |
//! | [`redeem`](Word::redeem) | `LIVE` g | guarded: `RETURNED` g; else `FREE` g+1 | whoever has the token |
//! | [`revoke`](Word::revoke) | `LIVE` g | `REVOKED` g, `GUARDED` as before | anyone |
//! | [`end`](Word::end) | any phase of g, `GUARDED` | `FREE` g+1 | the guard, when it ends |
//! | [`part`](Word::part) | g, `GUARDED` | the same without a guard; `RETURNED`: `FREE` g+1 | the guard, when it becomes its token |
//! | [`renew`](Word::renew) | `LIVE` g, `GUARDED` | one more renewal, not `NOTICED` | the guard |
//! | [`notice`](Word::notice) | `LIVE` g | `NOTICED` | whoever looks |
//! | [`forget`](Word::forget) | `REVOKED` g, no guard | `FREE` g+1 | whoever revokes much later |
//!
//! The one transition out of `LIVE` (`redeem`, `revoke`, `end`) decides who returns the unit of capacity.

use std::fmt;

/// See the module header.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Word(u64);

/// What has become of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// There is none.
    Free,
    /// Its unit is out.
    Live,
    /// Its token has returned the unit; the guard lives on.
    Returned,
    /// The unit was taken back.
    Revoked,
}

const PHASE: u64 = 0b11;
const GUARDED: u64 = 1 << 2;
const NOTICED: u64 = 1 << 3;
const RENEWAL: u64 = 1 << 4;
const RENEWALS: u64 = (u32::MAX as u64) & !(RENEWAL - 1);

impl Word {
    /// Of an entry that was never used.
    pub const FIRST: Word = Word::free(1);

    pub const fn from_bits(bits: u64) -> Self {
        Word(bits)
    }

    pub const fn bits(self) -> u64 {
        self.0
    }

    const fn free(generation: u32) -> Self {
        Word((generation as u64) << 32 | Phase::Free as u64)
    }

    pub const fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }

    pub const fn phase(self) -> Phase {
        match self.0 & PHASE {
            0 => Phase::Free,
            1 => Phase::Live,
            2 => Phase::Returned,
            _ => Phase::Revoked,
        }
    }

    pub fn is_live(self) -> bool {
        self.phase() == Phase::Live
    }

    pub const fn is_guarded(self) -> bool {
        self.0 & GUARDED != 0
    }

    pub const fn is_noticed(self) -> bool {
        self.0 & NOTICED != 0
    }

    /// The same lease, still out: nothing but renewals and notices may lie between the two readings.
    pub fn is_same_lease(self, other: Word) -> bool {
        self.generation() == other.generation() && self.is_live() && other.is_live()
    }

    const fn in_phase(self, phase: Phase) -> Self {
        Word(self.0 & !PHASE | phase as u64)
    }

    const fn freed(self) -> Self {
        Word::free(self.generation().wrapping_add(1))
    }

    // Transitions; `None` if the word does not allow it.

    pub fn mint(self, guarded: bool) -> Self {
        debug_assert_eq!(self.phase(), Phase::Free, "the entry is the caller's");
        let live = Word::free(self.generation()).in_phase(Phase::Live);
        if guarded { Word(live.0 | GUARDED) } else { live }
    }

    pub fn redeem(self) -> Option<Self> {
        self.is_live().then(|| if self.is_guarded() { self.in_phase(Phase::Returned) } else { self.freed() })
    }

    pub fn revoke(self) -> Option<Self> {
        self.is_live().then(|| self.in_phase(Phase::Revoked))
    }

    pub fn end(self) -> Option<Self> {
        self.is_guarded().then(|| self.freed())
    }

    pub fn part(self) -> Option<Self> {
        self.is_guarded().then(|| match self.phase() {
            Phase::Live | Phase::Revoked => Word(self.0 & !GUARDED),
            Phase::Returned | Phase::Free => self.freed(),
        })
    }

    pub fn renew(self) -> Option<Self> {
        let renewals = self.0.wrapping_add(RENEWAL) & RENEWALS;
        (self.is_live() && self.is_guarded()).then_some(Word(self.0 & !RENEWALS & !NOTICED | renewals))
    }

    pub fn notice(self) -> Option<Self> {
        (self.is_live() && !self.is_noticed()).then_some(Word(self.0 | NOTICED))
    }

    pub fn forget(self) -> Option<Self> {
        (self.phase() == Phase::Revoked && !self.is_guarded()).then(|| self.freed())
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Word")
            .field("generation", &self.generation())
            .field("phase", &self.phase())
            .field("guarded", &self.is_guarded())
            .field("noticed", &self.is_noticed())
            .field("renewals", &((self.0 & RENEWALS) / RENEWAL))
            .finish()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    /// Every word that a lease of the last generation can have.
    fn words() -> impl Iterator<Item = Word> {
        (0..16u64).flat_map(|low| {
            [0, RENEWAL, RENEWALS].map(|renewals| Word(u64::from(u32::MAX) << 32 | renewals | low))
        })
    }

    #[test]
    fn one_transition_leaves_live_and_none_comes_back() {
        for word in words() {
            let all = [
                word.redeem(),
                word.revoke(),
                word.end(),
                word.part(),
                word.renew(),
                word.notice(),
                word.forget(),
            ];
            for to in all.into_iter().flatten() {
                assert!(to != word, "{word:?}");
                if to.is_live() {
                    assert!(word.is_live(), "{word:?} does not come back to life");
                }
                if to.phase() == Phase::Free {
                    assert_eq!(to, Word::free(0), "the generation wraps, the rest is clear");
                } else {
                    assert_eq!(to.generation(), word.generation());
                }
            }
            if !word.is_live() {
                assert_eq!(
                    [word.redeem(), word.revoke(), word.renew(), word.notice()],
                    [None; 4],
                    "{word:?}"
                );
            }
        }
    }

    #[test]
    fn a_guard_alone_frees_its_entry() {
        let live = Word::FIRST.mint(true);
        assert_eq!(live.redeem().map(Word::phase), Some(Phase::Returned));
        let revoked = live.revoke().expect("live");
        assert_eq!(revoked.forget(), None);
        assert_eq!(revoked.end(), Some(Word::free(2)));
        assert_eq!(revoked.part().and_then(Word::forget), Some(Word::free(2)));
        let lone = Word::FIRST.mint(false);
        assert_eq!((lone.end(), lone.part(), lone.renew()), (None, None, None));
        assert_eq!(lone.redeem(), Some(Word::free(2)));
    }

    #[test]
    fn a_renewal_shows_and_wraps_within_its_bits() {
        let live = Word::FIRST.mint(true).notice().expect("live");
        let renewed = live.renew().expect("live");
        assert!(renewed != live && renewed.is_same_lease(live) && !renewed.is_noticed());
        let last = Word(live.0 | RENEWALS);
        let wrapped = last.renew().expect("live");
        assert_eq!(wrapped.0 & RENEWALS, 0);
        assert!(wrapped.is_same_lease(last));
    }
}
