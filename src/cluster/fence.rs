//! Fences: what ties a lease to one unit of the engine, its token, and its deadline.
//!
//! Units are kept by the place of their resource in the roll, under one mutex. A key is looked up before it is taken: so nothing of the user's
//! runs under it, neither `Hash` nor `Eq`, `Clone` or `Drop` of keys, nor the clock. A key may call what has called it, and panic, and a lease is bound either
//! way or not at all.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    error::Error,
    fmt,
    hash::Hash,
    sync::PoisonError,
    time::Duration,
};

use super::unit::{Claim, Unit};
use crate::{
    scheduler::Token,
    sync::{
        Arc, Clock, Mutex, MutexGuard, Timestamp,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// A unit that is held, and the leases that name it.
struct Slot {
    claim: Claim,
    leases: u32,
    lost: Arc<AtomicBool>,
    bound: Vec<Bound>,
}

/// A lease's fences: their number, how many there are, and the lease's token if leases are recorded.
struct Bound {
    number: u64,
    fences: u32,
    lease: Option<Token>,
    /// The lease was taken back.
    ended: Arc<AtomicBool>,
}

/// All units that a member holds, and until when they are good.
pub struct Fences<K> {
    /// In nanoseconds on the cluster's clock.
    good_until: AtomicU64,
    /// Where each key is in the roll.
    places: HashMap<K, usize>,
    slots: Mutex<BTreeMap<usize, Vec<Slot>>>,
    number: AtomicU64,
    clock: Arc<dyn Clock>,
}

impl<K> Fences<K> {
    /// None yet, of resources with these places in the roll, on this clock.
    pub fn new(places: HashMap<K, usize>, clock: Arc<dyn Clock>) -> Self {
        Fences {
            good_until: AtomicU64::new(0),
            places,
            slots: Mutex::new(BTreeMap::new()),
            number: AtomicU64::new(0),
            clock,
        }
    }

    fn slots(&self) -> MutexGuard<'_, BTreeMap<usize, Vec<Slot>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Claims are good until then.
    pub fn set_good_until(&self, until: Timestamp) {
        // Release: pairs with the Acquire in `Fence::check`: who sees the deadline of a new session sees that what was lost before
        // it is lost.
        self.good_until.store(until.as_nanos(), Ordering::Release);
    }

    /// A claim has come, of so many leases.
    pub fn admit(&self, place: usize, claim: &Claim, leases: u32) {
        let slot =
            Slot { claim: claim.clone(), leases, lost: Arc::new(AtomicBool::new(false)), bound: Vec::new() };
        self.slots().entry(place).or_default().push(slot);
    }

    /// Takes units away that no fence names, of these of a resource: the last ones first, at most so many. Answers which. O(units of the resource).
    pub fn take(&self, place: usize, claims: &[Claim], most: usize) -> Vec<Claim> {
        let mut all = self.slots();
        let slots = all.entry(place).or_default();
        // Tokens are one of a kind.
        let named: HashSet<u64> =
            slots.iter().filter(|slot| !slot.bound.is_empty()).map(|slot| slot.claim.token).collect();
        let unnamed = claims.iter().rev().filter(|claim| !named.contains(&claim.token));
        let taken: Vec<Claim> = unnamed.take(most).cloned().collect();
        let tokens: HashSet<u64> = taken.iter().map(|claim| claim.token).collect();
        slots.retain(|slot| !tokens.contains(&slot.claim.token));
        if slots.is_empty() {
            all.remove(&place);
        }
        taken
    }

    /// Unties fences from units of a resource if their leases are not out, as is found afterwards: they were taken back, and
    /// their holders have not noticed yet. Whether there were any. O(leases that are bound to units of the resource).
    pub fn untie(&self, place: usize, is_out: impl Fn(Token) -> bool) -> bool {
        let mut ended = self.bound(place);
        // A lease that is out and bound was out before: one that is found to have ended never is again.
        ended.retain(|token| !is_out(*token));
        if ended.is_empty() {
            return false;
        }
        let mut all = self.slots();
        for slot in all.get_mut(&place).into_iter().flatten() {
            slot.bound.retain(|bound| {
                let is_ended = bound.lease.is_some_and(|token| ended.contains(&token));
                if is_ended {
                    // Relaxed: a hint to whoever goes on; its lease says the same.
                    bound.ended.store(true, Ordering::Relaxed);
                }
                !is_ended
            });
        }
        true
    }

    /// Where a resource is in the roll.
    pub fn place(&self, key: &K) -> Option<usize>
    where
        K: Hash + Eq,
    {
        self.places.get(key).copied()
    }

    /// The recorded leases that are bound to units of a resource.
    pub fn bound(&self, place: usize) -> HashSet<Token> {
        let all = self.slots();
        let slots = all.get(&place).into_iter().flatten();
        slots.flat_map(|slot| slot.bound.iter().filter_map(|bound| bound.lease)).collect()
    }

    /// Takes units away whoever uses them; answers with the recorded leases that are bound to them.
    pub fn lose(&self, place: usize, claims: &[Claim]) -> Vec<Token> {
        // Tokens are one of a kind.
        let tokens: HashSet<u64> = claims.iter().map(|claim| claim.token).collect();
        let mut all = self.slots();
        let Some(slots) = all.get_mut(&place) else { return Vec::new() };
        let mut leases = Vec::new();
        slots.retain(|slot| {
            let lost = tokens.contains(&slot.claim.token);
            if lost {
                // Relaxed: ordered by the Release of `set_good_until` where it matters; until then the deadline tells.
                slot.lost.store(true, Ordering::Relaxed);
                leases.extend(slot.bound.iter().filter_map(|bound| bound.lease));
            }
            !lost
        });
        if slots.is_empty() {
            all.remove(&place);
        }
        leases
    }

    /// Binds a lease to a unit of its resource: to the one that it is bound to already, if leases are recorded.
    // Not a method: loom's `Arc` cannot be a receiver.
    pub fn bind(this: &Arc<Self>, place: usize, lease: Option<Token>) -> Result<Fence<K>, Lost> {
        let mut all = this.slots();
        let slots = all.get_mut(&place).ok_or(Lost)?;
        let same = |bound: &Bound| lease.is_some() && bound.lease == lease;
        let unit = slots
            .iter()
            .position(|slot| slot.bound.iter().any(same))
            .or_else(|| slots.iter().position(|slot| (slot.bound.len() as u32) < slot.leases))
            .ok_or(Lost)?;
        let slot = &mut slots[unit];
        let (number, ended) = match slot.bound.iter_mut().find(|bound| same(bound)) {
            Some(bound) => {
                bound.fences += 1;
                (bound.number, Arc::clone(&bound.ended))
            }
            None => {
                // Relaxed: the numbers only have to differ.
                let number = this.number.fetch_add(1, Ordering::Relaxed);
                let ended = Arc::new(AtomicBool::new(false));
                slot.bound.push(Bound { number, fences: 1, lease, ended: Arc::clone(&ended) });
                (number, ended)
            }
        };
        let fence = Fence {
            fences: Arc::clone(this),
            place,
            claim: slot.claim.clone(),
            lost: Arc::clone(&slot.lost),
            ended,
            number,
        };
        // Dropping the fence takes the lock again, and the clock may be the user's.
        drop(all);
        fence.check()?;
        Ok(fence)
    }
}

/// Ties a lease to one unit and its token. Drop it before the lease, or with it: while it lives the unit does not leave by itself.
///
/// Made by [`Cluster::fence`](super::Cluster::fence).
#[must_use = "a fence that is dropped ties nothing"]
pub struct Fence<K> {
    fences: Arc<Fences<K>>,
    place: usize,
    claim: Claim,
    lost: Arc<AtomicBool>,
    ended: Arc<AtomicBool>,
    number: u64,
}

impl<K> Fence<K> {
    /// The unit, named as on the engine.
    pub fn unit(&self) -> &Unit {
        &self.claim.unit
    }

    /// The fencing token, whether it is still good or not. See [`check`](Self::check).
    pub fn token(&self) -> u64 {
        self.claim.token
    }

    /// The token, if the claim is good at this moment by the clock. Wait-free: three loads and the clock.
    ///
    /// It is about the claim. A lease that was taken back ([`Overdue::Revoke`](crate::Overdue::Revoke), [`revoke`](crate::Scheduler::revoke)) says so itself;
    /// its fences do as soon as the unit is wanted for somebody else: for a fence of another lease, or to be given back.
    ///
    /// Between this and the use of the resource the process may be stopped for any time: whoever guards the resource can refuse a token that
    /// is less than one he has seen for this unit.
    ///
    /// # Errors
    /// [`Lost`].
    pub fn check(&self) -> Result<u64, Lost> {
        self.remaining().map(|_| self.claim.token)
    }

    /// For how long the claim is good if it is not renewed. As [`check`](Self::check).
    ///
    /// # Errors
    /// [`Lost`].
    pub fn remaining(&self) -> Result<Duration, Lost> {
        // Acquire, and first: see `Fences::set_good_until`.
        // - it sees a later session's deadline: it also sees that this claim is lost;
        // - it sees the deadline of its own session, or an earlier one: the clock decides.
        let until = Timestamp::from_nanos(self.fences.good_until.load(Ordering::Acquire));
        let left = until.saturating_since(self.fences.clock.now());
        // Relaxed, both: as above, and a hint.
        let is_lost = self.lost.load(Ordering::Relaxed) || self.ended.load(Ordering::Relaxed);
        if left.is_zero() || is_lost { Err(Lost) } else { Ok(left) }
    }
}

impl<K> Drop for Fence<K> {
    fn drop(&mut self) {
        let mut all = self.fences.slots();
        let slots = all.get_mut(&self.place).into_iter().flatten();
        for slot in slots.filter(|slot| slot.claim == self.claim) {
            slot.bound.retain_mut(|bound| {
                bound.fences -= u32::from(bound.number == self.number);
                bound.fences > 0
            });
        }
    }
}

impl<K> fmt::Debug for Fence<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fence").field("claim", &self.claim).finish_non_exhaustive()
    }
}

/// The claim behind a lease is not good any more: the resource may be lent elsewhere. Stop using it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost;

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the claim behind this lease has ended: stop using the resource, return the lease and acquire anew")
    }
}

impl Error for Lost {}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::ManualClock;

    fn claim(index: u32) -> Claim {
        Claim { unit: Unit { name: "a".into(), index }, token: 10 + u64::from(index) }
    }

    fn fences(clock: &Arc<ManualClock>) -> Arc<Fences<u8>> {
        let fences = Arc::new(Fences::new(HashMap::from([(1, 0)]), Arc::clone(clock) as Arc<dyn Clock>));
        fences.set_good_until(Timestamp::from_nanos(100));
        fences
    }

    #[test]
    fn a_unit_has_as_many_fences_as_leases() {
        let clock = Arc::new(ManualClock::new());
        let fences = fences(&clock);
        fences.admit(0, &claim(0), 2);
        let one = Fences::bind(&fences, 0, None).unwrap();
        let two = Fences::bind(&fences, 0, None).unwrap();
        assert_eq!((one.token(), Fences::bind(&fences, 0, None).err()), (10, Some(Lost)));
        drop(two);
        assert!(Fences::bind(&fences, 0, None).is_ok());
        assert!(fences.take(0, &[claim(0)], 1).is_empty(), "it is named");
        drop(one);
        assert_eq!(fences.take(0, &[claim(0)], 1), [claim(0)]);
        assert_eq!(Fences::bind(&fences, 0, None).err(), Some(Lost));
    }

    #[test]
    fn of_many_units_those_without_a_fence_leave_and_no_more_than_asked_for() {
        let clock = Arc::new(ManualClock::new());
        let fences = fences(&clock);
        let all: Vec<Claim> = (0..5).map(claim).collect();
        all.iter().for_each(|claim| fences.admit(0, claim, 1));
        // The first one, and the second.
        let [_one, two] = [(); 2].map(|()| Fences::bind(&fences, 0, None).unwrap());
        assert_eq!(fences.take(0, &all, 2), [claim(4), claim(3)]);
        assert_eq!(fences.take(0, &all[..3], 9), [claim(2)]);
        drop(two);
        assert_eq!(fences.take(0, &all[..2], 9), [claim(1)]);
        assert!(fences.take(0, &all[..1], 9).is_empty());
    }

    #[test]
    fn the_clock_ends_claims() {
        let clock = Arc::new(ManualClock::new());
        let fences = fences(&clock);
        fences.admit(0, &claim(0), 1);
        let fence = Fences::bind(&fences, 0, None).unwrap();
        clock.advance(Duration::from_nanos(99));
        assert_eq!(fence.check(), Ok(10));
        clock.advance(Duration::from_nanos(1));
        assert_eq!(fence.check(), Err(Lost));
        fences.set_good_until(Timestamp::from_nanos(200));
        assert_eq!(fence.check(), Ok(10), "renewed");
    }

    #[test]
    fn what_is_lost_stays_lost() {
        let clock = Arc::new(ManualClock::new());
        let fences = fences(&clock);
        fences.admit(0, &claim(0), 1);
        let fence = Fences::bind(&fences, 0, None).unwrap();
        assert!(fences.lose(0, &[claim(0)]).is_empty());
        fences.set_good_until(Timestamp::from_nanos(200));
        fences.admit(0, &claim(1), 1);
        assert_eq!(fence.check(), Err(Lost));
    }
}
