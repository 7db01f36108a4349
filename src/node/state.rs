//! The state word of a resource: who may lend it, how many leases are out, why it is held.
//!
//! One 64-bit word, changed only by the transitions of this file, each of which is **one successful CAS**: its
//! linearization point. Where the resource stands in a heap is a consequence (see [`Standing`]) that the holder of the
//! home shard's lock brings about before it unlocks.
//!
//! # Layout
//!
//! | bits | field | meaning |
//! |---|---|---|
//! | 63..32 | generation | grows by one with every return, cleared hold, update and removal: with all that can make it eligible; so a word never comes back within 2^32 of them |
//! | 31..8 | in-flight | leases out now |
//! | 7 | `UNLINKED` | no longer reachable by key |
//! | 6 | `REMOVED` | out of the fleet for good |
//! | 5 | `STAGED` | not yet visible: being inserted, or part of a batch that is not absorbed |
//! | 4 | `DRAINING` | hold |
//! | 3 | `EJECTED` | hold |
//! | 2 | `COOLING` | hold; its deadline is beside the word, guarded by the home lock |
//! | 1 | `EXCLUDED` | hold |
//! | 0 | `FULL` | in-flight has reached the capacity |
//!
//! # Transitions
//!
//! | transition | from | to | who |
//! |---|---|---|---|
//! | [`admit`](NodeState::admit) | `STAGED` | not `STAGED`, and `DRAINING` while the whole fleet drains | inserter; of a batch, whoever absorbs its run |
//! | [`abort`](NodeState::abort) | `STAGED` | `REMOVED`, generation + 1 | inserter that undoes |
//! | [`lend`](NodeState::lend) | no flag set | in-flight + 1, `FULL` if that is the limit | acquirer |
//! | [`give_back`](NodeState::give_back) | in-flight >= 1 | in-flight - 1, not `FULL`, generation + 1, and `COOLING`, `EJECTED` if asked for | holder of a lease |
//! | [`hold`](NodeState::hold) | not `STAGED`, not `REMOVED` | that hold set | anyone |
//! | [`clear`](NodeState::clear) | not `STAGED`, not `REMOVED` | that hold clear, generation + 1 if it was set | anyone |
//! | [`revalue`](NodeState::revalue) | not `STAGED`, not `REMOVED` | `FULL` as the new limit says, generation + 1 | updater |
//! | [`remove`](NodeState::remove) | not `STAGED`, not `REMOVED` | `REMOVED`, generation + 1 | remover |
//! | [`unlink`](NodeState::unlink) | `REMOVED` | `UNLINKED` | remover, after the lookup forgot the key |
//!
//! Each touches only what its row names: clearing a hold never frees a lease, a return never clears a hold.
//!
//! # Orderings
//!
//! All transitions run under the home shard's lock, which orders them among themselves; the CAS still decides, and a
//! failed CAS is retried on the word it found. Readers without the lock use [`NodeState::load`]:
//!
//! * Release on every successful CAS pairs with Acquire in `load`. A reader that sees the new word also sees what was
//!   written before the transition: for `admit` of a batch that is every other member in the lookup (no batch is
//!   visible in part), for the seqlock of the shard's face it is the odd count. A reader that sees the old word
//!   answers as of before the transition.
//!   What was written before the critical section, and the odd count itself, is ordered by the fence of F1 (`shard::face`) as
//!   well: for them a Relaxed CAS would do. Release is needed for what is written between that fence and the CAS, which is
//!   the content number alone (`touch_content`), for a reader that learned of the change from this word.
//! * Relaxed on failure and on loads under the lock: the lock's own Acquire already ordered them.

use std::fmt;

use crate::{resource::Capacity, sync::atomic::Ordering};

/// One bit of a state word. Those that a user can set are [`Hold`]s.
mod flag {
    pub const FULL: u32 = 1 << 0;
    pub const EXCLUDED: u32 = 1 << 1;
    pub const COOLING: u32 = 1 << 2;
    pub const EJECTED: u32 = 1 << 3;
    pub const DRAINING: u32 = 1 << 4;
    pub const STAGED: u32 = 1 << 5;
    pub const REMOVED: u32 = 1 << 6;
    pub const UNLINKED: u32 = 1 << 7;
    pub const ALL: u32 = 0xff;
}

const IN_FLIGHT_SHIFT: u32 = 8;

/// A reason why a resource is not lent. Holds are independent of each other and of leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Hold {
    /// An operator took it out of rotation.
    Excluded,
    /// It rests until a deadline, for instance after a rate limit.
    Cooling,
    /// It was found unhealthy.
    Ejected,
    /// Its leases run out before it goes.
    Draining,
}

impl Hold {
    /// Each of them.
    pub const ALL: [Hold; 4] = [Hold::Excluded, Hold::Cooling, Hold::Ejected, Hold::Draining];

    const fn flag(self) -> u32 {
        match self {
            Hold::Excluded => flag::EXCLUDED,
            Hold::Cooling => flag::COOLING,
            Hold::Ejected => flag::EJECTED,
            Hold::Draining => flag::DRAINING,
        }
    }
}

/// Where a resource stands: the one obstacle that matters most, or none. A pure function of the word.
///
/// Under the home shard's lock, and whenever nobody holds it: `Eligible` resources are in the ready heap, `Cooling`
/// ones (nothing else in the way) in the cooling heap, all others in no heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[repr(u8)]
pub enum Standing {
    /// Can be lent now.
    Eligible,
    /// Every unit of its capacity is out.
    AtCapacity,
    /// Only a cooling deadline stands in the way.
    Cooling,
    /// Ejected, whatever else.
    Ejected,
    /// Draining, whatever else but exclusion.
    Draining,
    /// Excluded, whatever else.
    Excluded,
    /// Not yet visible.
    Staged,
    /// Out of the fleet.
    Removed,
}

impl Standing {
    /// How many there are.
    pub const COUNT: usize = 8;

    /// What keeps a member of the fleet from being lent.
    pub const OBSTACLES: [Standing; 5] =
        [Standing::AtCapacity, Standing::Cooling, Standing::Ejected, Standing::Draining, Standing::Excluded];
}

/// A snapshot of the word.
#[derive(Clone, Copy, PartialEq, Eq, bytemuck::NoUninit, bytemuck::AnyBitPattern)]
#[repr(C, align(8))]
pub struct State {
    generation: u32,
    bits: u32,
}

impl State {
    const fn staged() -> Self {
        State { generation: 0, bits: flag::STAGED }
    }

    /// Grows with every return, cleared hold, update and removal.
    pub const fn generation(self) -> u32 {
        self.generation
    }

    /// Leases out now.
    pub const fn in_flight(self) -> u32 {
        self.bits >> IN_FLIGHT_SHIFT
    }

    const fn has(self, flag: u32) -> bool {
        self.bits & flag != 0
    }

    const fn with(self, flag: u32) -> Self {
        State { bits: self.bits | flag, ..self }
    }

    const fn without(self, flag: u32) -> Self {
        State { bits: self.bits & !flag, ..self }
    }

    const fn next_generation(self) -> Self {
        State { generation: self.generation.wrapping_add(1), ..self }
    }

    /// `FULL` as `limit` says.
    const fn capped(self, limit: u32) -> Self {
        if self.in_flight() >= limit { self.with(flag::FULL) } else { self.without(flag::FULL) }
    }

    /// No flag is set: it can be lent.
    pub const fn is_eligible(self) -> bool {
        self.bits & flag::ALL == 0
    }

    /// Whether this hold is set.
    pub const fn is_held(self, hold: Hold) -> bool {
        self.has(hold.flag())
    }

    /// One bit for each hold that is set, in the order of [`Hold::ALL`].
    pub const fn holds(self) -> u32 {
        self.bits >> flag::EXCLUDED.trailing_zeros() & 0b1111
    }

    /// Every unit of capacity is out.
    pub const fn is_full(self) -> bool {
        self.has(flag::FULL)
    }

    /// Not yet visible through its own word; see the batch protocol for when it is visible all the same.
    pub const fn is_staged(self) -> bool {
        self.has(flag::STAGED)
    }

    /// Out of the fleet.
    pub const fn is_removed(self) -> bool {
        self.has(flag::REMOVED)
    }

    /// In the fleet: neither staged nor removed.
    pub const fn is_in(self) -> bool {
        !self.has(flag::STAGED | flag::REMOVED)
    }

    /// Whether a return to this state is of interest to others than those who lend: it cools, drains, or was removed.
    #[inline]
    pub const fn is_remarkable(self) -> bool {
        self.has(flag::COOLING | flag::DRAINING | flag::REMOVED)
    }

    /// Out of the fleet, unreachable by key and with no lease out.
    pub const fn is_spent(self) -> bool {
        self.has(flag::UNLINKED) && self.in_flight() == 0
    }

    /// The obstacle that matters most.
    pub const fn standing(self) -> Standing {
        if self.is_eligible() {
            Standing::Eligible
        } else if self.has(flag::REMOVED) {
            Standing::Removed
        } else if self.has(flag::STAGED) {
            Standing::Staged
        } else if self.has(flag::EXCLUDED) {
            Standing::Excluded
        } else if self.has(flag::DRAINING) {
            Standing::Draining
        } else if self.has(flag::EJECTED) {
            Standing::Ejected
        } else if self.has(flag::FULL) {
            Standing::AtCapacity
        } else {
            Standing::Cooling
        }
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("generation", &self.generation)
            .field("in_flight", &self.in_flight())
            .field("standing", &self.standing())
            .field("flags", &format_args!("{:#010b}", self.bits & flag::ALL))
            .finish()
    }
}

/// A transition that happened.
#[derive(Clone, Copy, Debug)]
#[must_use = "the heap must follow the word"]
pub struct Moved {
    /// The word before.
    pub from: State,
    /// The word after.
    pub to: State,
}

/// The word did not allow the transition; nothing was touched.
#[derive(Clone, Copy, Debug)]
pub struct Refused(pub State);

/// Holds that a return adds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Added {
    pub cool: bool,
    pub eject: bool,
}

/// The state word itself. See the module header.
pub struct NodeState(cell::AtomicState);

impl NodeState {
    /// The word of a resource that is not visible yet.
    pub fn new_staged() -> Self {
        NodeState(cell::AtomicState::new(State::staged()))
    }

    /// The word, for readers without the lock.
    #[inline]
    pub fn load(&self) -> State {
        // Acquire: pairs with the Release of every transition; see the module header for both outcomes.
        self.0.load(Ordering::Acquire)
    }

    /// `STAGED` -> visible, and draining if asked for. Refused if it was done before.
    pub fn admit(&self, draining: bool) -> Result<Moved, Refused> {
        self.transition(|state| {
            let hold = if draining { flag::DRAINING } else { 0 };
            state.is_staged().then(|| state.without(flag::STAGED).with(hold))
        })
    }

    /// `STAGED` -> `REMOVED`: the insertion is undone. It never was visible.
    ///
    /// Not the same as forgetting it: whoever still holds the node must be able to tell it from a member of a later batch
    /// with the same number.
    pub fn abort(&self) -> Result<Moved, Refused> {
        self.transition(|state| {
            state.is_staged().then(|| state.without(flag::STAGED).with(flag::REMOVED).next_generation())
        })
    }

    /// Takes one unit of capacity of a resource that nothing stands in the way of.
    #[inline]
    pub fn lend(&self, limit: u32) -> Result<Moved, Refused> {
        self.transition(|state| {
            state
                .is_eligible()
                .then(|| State { bits: state.bits + (1 << IN_FLIGHT_SHIFT), ..state }.capped(limit))
        })
    }

    /// Returns one unit of capacity; with holds, the resource starts to cool, or is ejected, in the same instant.
    ///
    /// Refused when no lease is out, which no caller can bring about through the public interface.
    #[inline]
    pub fn give_back(&self, limit: u32, holds: Added) -> Result<Moved, Refused> {
        self.transition(|state| {
            (state.in_flight() > 0).then(|| {
                let state = State { bits: state.bits - (1 << IN_FLIGHT_SHIFT), ..state };
                let state = state.capped(limit);
                let state = if holds.cool { state.with(flag::COOLING) } else { state };
                let state = if holds.eject { state.with(flag::EJECTED) } else { state };
                state.next_generation()
            })
        })
    }

    /// Adds a hold. The word may already have it: then `from == to`, and nothing was written.
    pub fn hold(&self, hold: Hold) -> Result<Moved, Refused> {
        self.transition(|state| state.is_member().then(|| state.with(hold.flag())))
    }

    /// Clears a hold. The word may lack it: then `from == to`, and nothing was written.
    pub fn clear(&self, hold: Hold) -> Result<Moved, Refused> {
        self.transition(|state| {
            let cleared = || {
                if state.is_held(hold) { state.without(hold.flag()).next_generation() } else { state }
            };
            state.is_member().then(cleared)
        })
    }

    /// The value changed, and with it the limit.
    pub fn revalue(&self, limit: u32) -> Result<Moved, Refused> {
        self.transition(|state| state.is_member().then(|| state.capped(limit).next_generation()))
    }

    /// Out of the fleet. Exactly one caller succeeds.
    pub fn remove(&self) -> Result<Moved, Refused> {
        self.transition(|state| state.is_member().then(|| state.with(flag::REMOVED).next_generation()))
    }

    /// The lookup has forgotten the key of a removed resource.
    pub fn unlink(&self) -> Result<Moved, Refused> {
        self.transition(|state| state.is_removed().then(|| state.with(flag::UNLINKED)))
    }

    #[inline]
    fn transition(&self, step: impl Fn(State) -> Option<State>) -> Result<Moved, Refused> {
        // Relaxed: the caller holds the home shard's lock, which ordered all earlier transitions before this load; a
        // stale word would only make the CAS below fail.
        let mut from = self.0.load(Ordering::Relaxed);
        loop {
            let Some(to) = step(from) else { return Err(Refused(from)) };
            if to == from {
                return Ok(Moved { from, to });
            }
            // Release, strong: see the module header. Strong because a spurious failure would only cost a turn here.
            // ABA: the generation makes a word that was read and comes back the same mean the same.
            match self.0.compare_exchange(from, to, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return Ok(Moved { from, to }),
                Err(found) => from = found,
            }
        }
    }
}

impl State {
    /// Visible and not removed.
    const fn is_member(self) -> bool {
        !self.has(flag::STAGED | flag::REMOVED)
    }
}

impl fmt::Debug for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.load().fmt(f)
    }
}

const _: () =
    assert!(Capacity::MAX == u32::MAX >> IN_FLIGHT_SHIFT, "in-flight must be able to reach every limit");

/// `atomic::Atomic` in production, an instrumented integer in a model and where traffic is counted.
mod cell {
    use super::State;
    use crate::sync::atomic::Ordering;

    #[cfg(not(any(loom, shuttle, leasehold_counted)))]
    type Cell = atomic::Atomic<State>;
    #[cfg(not(any(loom, shuttle, leasehold_counted)))]
    const _: () = assert!(Cell::is_lock_free(), "the state word must be one machine word");
    #[cfg(any(loom, shuttle, leasehold_counted))]
    type Cell = crate::sync::atomic::AtomicU64;

    /// What the cell stores, and back: the state itself in production, its bits in a model.
    trait Word {
        fn encode(state: State) -> Self;
        fn decode(self) -> State;
    }

    impl Word for State {
        #[inline(always)]
        fn encode(state: State) -> Self {
            state
        }
        #[inline(always)]
        fn decode(self) -> State {
            self
        }
    }

    impl Word for u64 {
        fn encode(state: State) -> Self {
            bytemuck::must_cast(state)
        }
        fn decode(self) -> State {
            bytemuck::must_cast(self)
        }
    }

    pub struct AtomicState(Cell);

    impl AtomicState {
        pub fn new(state: State) -> Self {
            AtomicState(Cell::new(Word::encode(state)))
        }

        #[inline]
        pub fn load(&self, order: Ordering) -> State {
            self.0.load(order).decode()
        }

        #[inline]
        pub fn compare_exchange(
            &self,
            from: State,
            to: State,
            ok: Ordering,
            no: Ordering,
        ) -> Result<State, State> {
            let result = self.0.compare_exchange(Word::encode(from), Word::encode(to), ok, no);
            result.map(Word::decode).map_err(Word::decode)
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
