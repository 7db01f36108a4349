//! A resource inside the scheduler: its state word, its current value, and what the home shard's lock guards.
//!
//! # Who may touch what
//!
//! 1. [`Node::state`] changes only through the transitions of [`state`], each one CAS. Anyone may read it.
//! 2. [`Owned`], and each value's [`Claims`], are touched only by the holder of the home shard's lock.
//! 3. `value`, `rank`, `deadline` and `shared` are *written* only under that lock; anyone may read them. A value is read through a guard of
//!    the reclaimer, or by a lease that claims it.
//! 4. `key`, `hash`, `home`, `batch` and `ranked` never change.
//! 5. A node is freed when its word [is spent](State::is_spent), no pin is left, and every guard of that time is gone.
//! 6. A value is freed when another has superseded it (or its node is freed), no lease and no pin claims it, and every
//!    guard of that time is gone.
//! 7. The first value lives in the node's own memory: one allocation, and one cache miss less for whoever reads it. Superseded, it
//!    is dropped by rule 6 like any other; that may be before or after the node is dropped by rule 5, in another thread. The memory
//!    is given back by whichever of the two comes last: see [`Parting`].
//!
//! # How a lease keeps its value alive without a reference count
//!
//! A lease needs its value until it ends, even if an update replaces it meanwhile. Leases on the *current* value are
//! not counted apart: they are all those in flight, less those on superseded values (`Owned::superseded`). Only when
//! an update supersedes a value that is lent does it write that number into the old value's [`Claims`]; a returning
//! lease whose value is not the current one takes itself off there. So the common path pays nothing, and a lease pins
//! exactly one value, however many updates pass by.

mod parting;
mod state;
mod wake;

use std::{mem::ManuallyDrop, ptr::NonNull};

pub use parting::{Parting, Party};
pub use state::{Added, Hold, Moved, NodeState, Refused, Standing, State};
pub use wake::wake;

use crate::{
    health::{Record, Seen},
    lookup::{Guard, Keyed, Link},
    resource::Resource,
    sync::{
        UnsafeCell,
        atomic::{AtomicBool, AtomicPtr, AtomicU16, AtomicU32, AtomicU64, Ordering},
    },
};

/// The resource's value of one version.
pub struct Value<R> {
    claims: UnsafeCell<Claims>,
    resource: R,
}

/// Who keeps a superseded value alive. Guarded by the home lock (rule 2).
#[derive(Clone, Copy, Debug, Default)]
pub struct Claims {
    /// Leases on this value, counted from the moment it was superseded.
    pub leases: u32,
    /// Lease guards whose token was given out: they may outlive their unit of capacity.
    pub pins: Pins,
}

/// So many keep something. Whoever forgets more of them than can be counted (`mem::forget` is safe) keeps it for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pins(u32);

impl Pins {
    /// Nobody does.
    #[inline]
    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    /// One more.
    #[inline]
    pub fn more(&mut self) {
        self.0 = self.0.saturating_add(1);
    }

    /// One less, unless there were too many to know.
    #[inline]
    pub fn less(&mut self) {
        if self.0 != u32::MAX {
            self.0 -= 1;
        }
    }
}

impl<R> Value<R> {
    fn new(resource: R) -> Self {
        Value { claims: UnsafeCell::new(Claims::default()), resource }
    }

    /// The user's value, out of one that was never published.
    pub fn into_resource(self) -> R {
        self.resource
    }

    /// The user's value.
    #[inline]
    pub fn resource(&self) -> &R {
        &self.resource
    }
}

/// What only the holder of the home lock touches (rule 2).
#[derive(Clone, Copy, Debug)]
pub struct Owned {
    /// Index in the home shard's slot table; [`Owned::NO_SLOT`] before it has one.
    pub slot: u32,
    /// Leases allowed at once, by the current value.
    pub limit: u32,
    /// Leases out on superseded values.
    pub superseded: u32,
    /// Lease guards whose token was given out, on any value; and whoever waits for it, and the books.
    pub pins: Pins,
}

impl Owned {
    /// No slot yet.
    pub const NO_SLOT: u32 = u32::MAX;
}

/// A resource inside the scheduler. What a lookup needs comes first: in a large fleet each line is a cache miss.
#[repr(C)]
pub struct Node<R: Resource> {
    /// The state word.
    pub state: NodeState,
    key: ManuallyDrop<R::Key>,
    value: AtomicPtr<Value<R>>,
    /// Rule 7. Not the facade's cell: it is reached through the pointer in `value` only, as the contents of a box would be.
    #[allow(clippy::disallowed_types)]
    first: std::cell::UnsafeCell<ManuallyDrop<Value<R>>>,
    link: Link<Self>,
    hash: u64,
    rank: AtomicU64,
    owned: UnsafeCell<Owned>,
    batch: u32,
    home: u16,
    /// See [`Node::is_shared`].
    shared: AtomicBool,
    /// Outcomes have a say in the rank. Never changes (rule 4).
    ranked: bool,
    /// Rule 7: `One` is the first value, superseded, `Other` the node without it.
    parting: Parting,
    /// See [`Node::membership`]: 48 bits, in what would else be padding.
    membership_high: AtomicU16,
    membership_low: AtomicU32,
    deadline: AtomicU64,
    /// What its outcomes say, if they are remembered.
    record: Option<Box<Record>>,
}

// SAFETY: all parts are `Send` (`Resource` requires it of the value and its key); the raw pointer owns its value.
#[allow(unsafe_code)]
unsafe impl<R: Resource> Send for Node<R> {}
// SAFETY: the cells are guarded by the home lock (rule 2), the value is read as rule 3 says, and both the value and
// the key are `Sync` (`Resource` requires it).
#[allow(unsafe_code)]
unsafe impl<R: Resource> Sync for Node<R> {}

impl<R: Resource> Keyed for Node<R> {
    type Key = R::Key;

    fn key(&self) -> &R::Key {
        &self.key
    }

    fn hash(&self) -> u64 {
        self.hash
    }

    fn link(&self) -> &Link<Self> {
        &self.link
    }

    /// The first value begins behind the key; it may end on another line, and both are fetched at once.
    #[inline(always)]
    fn expect(&self) {
        const LINE: usize = 64;
        let first = self.first.get().cast::<u8>();
        crate::sync::prefetch(first.wrapping_add(size_of::<Value<R>>().min(LINE) - 1));
    }
}

/// All that user code has to say about a value, asked before any lock is taken.
pub struct Draft<R: Resource> {
    pub key: R::Key,
    pub hash: u64,
    pub limit: u32,
    pub rank: u64,
    pub resource: R,
    /// Outcomes are remembered.
    pub remember: bool,
    /// They have a say in the rank.
    pub ranked: bool,
}

#[allow(unsafe_code)]
impl<R: Resource> Node<R> {
    /// A node that nobody can see yet, to be freed by [`Node::free`]. `batch` is 0 for a resource inserted alone.
    #[allow(clippy::disallowed_types)]
    pub fn boxed(draft: Draft<R>, home: u32, batch: u32) -> NonNull<Self> {
        let Draft { key, hash, limit, rank, resource, remember, ranked } = draft;
        let node = Box::into_raw(Box::new(Node {
            link: Link::new(),
            state: NodeState::new_staged(),
            value: AtomicPtr::new(std::ptr::null_mut()),
            rank: AtomicU64::new(rank),
            membership_high: AtomicU16::new(0),
            membership_low: AtomicU32::new(0),
            deadline: AtomicU64::new(0),
            record: remember.then(Box::default),
            hash,
            // There are 1,024 shards at most.
            home: home as u16,
            shared: AtomicBool::new(limit != 1 || ranked),
            ranked,
            batch,
            owned: UnsafeCell::new(Owned {
                slot: Owned::NO_SLOT,
                limit,
                superseded: 0,
                pins: Pins::default(),
            }),
            key: ManuallyDrop::new(key),
            parting: Parting::new(),
            first: std::cell::UnsafeCell::new(ManuallyDrop::new(Value::new(resource))),
        }));
        // SAFETY: just allocated. The pointer comes from the box, not from a reference to the field: `drop_first` finds its way
        // back to the node. Relaxed: nobody else can see it.
        unsafe {
            let first = (&raw mut (*node).first).cast();
            (*node).value.store(first, Ordering::Relaxed);
            NonNull::new_unchecked(node)
        }
    }

    /// Whether `value` is the one that lives in the node (rule 7).
    pub fn is_first(&self, value: NonNull<Value<R>>) -> bool {
        value.as_ptr().addr() == self.first.get().addr()
    }

    /// Drops the first value of a node after it was superseded, by rules 6 and 7.
    ///
    /// # Safety
    /// `value` was the first one of its node; it is given up here, once.
    pub unsafe fn drop_first(value: *mut Value<R>) {
        // SAFETY: in its node, whose memory is still there (rule 7), and with the provenance of the whole of it (`boxed`).
        let node = unsafe { value.byte_sub(std::mem::offset_of!(Self, first)) }.cast::<Self>();
        // SAFETY: given up by the caller.
        let _ = quietly(|| unsafe { value.drop_in_place() });
        // SAFETY: as above.
        unsafe { Self::leave(node, Party::One) };
    }

    /// Frees a node, by rules 5 and 7. A panicking `Drop` of the user's stops here.
    ///
    /// # Safety
    /// `node` comes from [`Node::boxed`] and is given up here, once.
    pub unsafe fn free(node: *mut Self) {
        // SAFETY: given up by the caller, the last owner of the key and of the current value. No exclusive reference: the first
        // value may be dropped by another thread at this very moment. Relaxed: nobody replaces the value any more.
        let (value, is_first) = unsafe {
            let value = NonNull::new((*node).value.load(Ordering::Relaxed));
            (value, value.is_none_or(|value| (*node).is_first(value)))
        };
        if let Some(value) = value {
            // SAFETY: rule 6: with its node, the current value goes.
            unsafe {
                if is_first {
                    let _ = quietly(|| value.drop_in_place());
                } else {
                    free(value.as_ptr());
                }
            }
        }
        // SAFETY: dropped once, here.
        let _ = quietly(|| unsafe { ManuallyDrop::drop(&mut (*node).key) });
        if is_first {
            // It was never superseded: nobody else has anything to do with the memory.
            // SAFETY: from the box of `boxed`; what needs to be dropped has been.
            drop(unsafe { Box::from_raw(node) });
        } else {
            // SAFETY: as above.
            unsafe { Self::leave(node, Party::Other) };
        }
    }

    /// # Safety
    /// The caller is one of the two of rule 7, and has done its part.
    unsafe fn leave(node: *mut Self, party: Party) {
        // SAFETY: the memory is there until both have left.
        if unsafe { (*node).parting.leave(party) } {
            // SAFETY: from the box of `boxed`; what needs to be dropped has been.
            drop(unsafe { Box::from_raw(node) });
        }
    }

    /// The index of the home shard.
    #[inline]
    pub fn home(&self) -> u32 {
        u32::from(self.home)
    }

    /// What its outcomes say, if they are remembered.
    #[inline]
    pub fn record(&self) -> Option<&Record> {
        self.record.as_deref()
    }

    /// Whether leases may change the rank: the current value allows more than one, though it may have only one for a while (on its way back
    /// from an ejection), or leases from before a probe were out when the limit was noted last, or outcomes have a say in it. `false` is exact
    /// under the home lock; without it a hint.
    #[inline]
    pub fn is_shared(&self) -> bool {
        // Relaxed: as `rank`.
        self.shared.load(Ordering::Relaxed)
    }

    /// Notes whether leases change the rank, now that they are limited to so many. The caller holds the home lock.
    pub fn note_limit(&self, limit: u32) {
        // Relaxed: as `rank`.
        self.shared.store(!self.is_single(limit) || self.ranked, Ordering::Relaxed);
    }

    /// Whether one lease is allowed, by a limit that holds now and by the one that holds again if that is for a while only; and leases from
    /// before a probe are back. The caller holds the home lock.
    #[inline]
    pub fn is_single(&self, limit: u32) -> bool {
        let is_one = |record: &Record| record.full_limit().is_none_or(|full| full == 1) && !record.is_stale();
        limit == 1 && self.record().is_none_or(is_one)
    }

    /// What a rank may depend on beside value and load, if it does.
    #[inline]
    pub fn seen(&self) -> Option<Seen> {
        if !self.ranked {
            return None;
        }
        self.record().map(Record::seen)
    }

    /// Which of all that have joined the fleet it is, if there are events; 0 before it has its key.
    #[inline]
    pub fn membership(&self) -> u64 {
        // Relaxed: written before it becomes visible, and never again; whoever reads it has found it visible.
        let high = self.membership_high.load(Ordering::Relaxed);
        u64::from(high) << 32 | u64::from(self.membership_low.load(Ordering::Relaxed))
    }

    /// Numbers it. It has its key, and is not visible yet.
    pub fn set_membership(&self, number: u64) {
        // Relaxed: see `membership`.
        self.membership_high.store((number >> 32) as u16, Ordering::Relaxed);
        self.membership_low.store(number as u32, Ordering::Relaxed);
    }

    /// The batch it was inserted with; 0 if alone.
    pub fn batch(&self) -> u32 {
        self.batch
    }

    /// The rank at the load that it was last computed for.
    #[inline]
    pub fn rank(&self) -> u64 {
        // Relaxed: under the lock it is exact; without it, a hint for ordering candidates, validated later.
        self.rank.load(Ordering::Relaxed)
    }

    /// Sets the rank. The caller holds the home lock.
    #[inline]
    pub fn set_rank(&self, rank: u64) {
        // Relaxed: see `rank`.
        self.rank.store(rank, Ordering::Relaxed);
    }

    /// When cooling ends, if the `COOLING` hold is set. Nanoseconds on the scheduler's clock.
    pub fn deadline(&self) -> u64 {
        // Relaxed: as `rank`.
        self.deadline.load(Ordering::Relaxed)
    }

    /// Sets the deadline. The caller holds the home lock.
    pub fn set_deadline(&self, deadline: u64) {
        // Relaxed: as `rank`.
        self.deadline.store(deadline, Ordering::Relaxed);
    }

    /// The current value, for a reader with a guard (rule 3).
    #[inline]
    pub fn value<'g>(&self, guard: &'g impl Guard) -> &'g Value<R> {
        // Acquire: pairs with the Release in `swap_value`.
        // - the new pointer: its value is completely written;
        // - the old one: it is alive, because it was retired after the swap, and our guard is older than that.
        let value = guard.protect(&self.value, Ordering::Acquire);
        guard.touch(value);
        // SAFETY: rules 3 and 6: the pointer was current while the guard was held.
        unsafe { &*value }
    }

    /// The current value's address. The caller holds the home lock, so it stays current until the unlock; or is the last owner.
    #[inline]
    pub fn value_ptr(&self) -> NonNull<Value<R>> {
        // Relaxed: written under the lock that the caller holds.
        // SAFETY: never null: set at construction and only ever replaced by another box.
        unsafe { NonNull::new_unchecked(self.value.load(Ordering::Relaxed)) }
    }

    /// Publishes `new` and hands the old value to the caller, who must free it by rule 6. Home lock held.
    pub fn swap_value(&self, new: Box<Value<R>>) -> NonNull<Value<R>> {
        let old = self.value_ptr();
        // Release: pairs with the Acquire in `value`; outcomes there. The value itself is ordered by the fence of F1 (`shard::face`)
        // as well; Release is needed for what is written after that fence, the content number, as for the state word.
        self.value.store(Box::into_raw(new), Ordering::Release);
        old
    }

    /// A value that is not published yet.
    pub fn boxed_value(resource: R) -> Box<Value<R>> {
        Box::new(Value::new(resource))
    }

    /// Runs `f` on the guarded part.
    ///
    /// # Safety
    /// The caller holds the home shard's lock (rule 2), and `f` does not come back here.
    #[inline]
    pub unsafe fn with_owned<O>(&self, f: impl FnOnce(&mut Owned) -> O) -> O {
        // SAFETY: the lock makes this the only access.
        self.owned.with_mut(|owned| f(unsafe { &mut *owned }))
    }

    /// Takes the user's value back out of a node that was never visible.
    ///
    /// # Safety
    /// The node is still `STAGED`, will never be admitted, and the caller is the only one to do this. Nobody reads the
    /// value of such a node. The node itself may still be read by key comparisons under a guard.
    pub unsafe fn take_unborn(&self) -> R {
        // Relaxed: nobody else reads or writes it.
        let value = self.value.swap(std::ptr::null_mut(), Ordering::Relaxed);
        // SAFETY: the first value, taken once, read by nobody. `free` finds no value then, and drops none.
        unsafe { value.read() }.resource
    }
}

impl<R> Value<R> {
    /// Runs `f` on the claims.
    ///
    /// # Safety
    /// The caller holds the home lock of the node that this value belongs or belonged to (rule 2), the value has not
    /// been freed, and `f` does not come back here.
    #[allow(unsafe_code)]
    pub unsafe fn with_claims<O>(&self, f: impl FnOnce(&mut Claims) -> O) -> O {
        // SAFETY: the lock makes this the only access.
        self.claims.with_mut(|claims| f(unsafe { &mut *claims }))
    }
}

/// Runs user code whose panic must stop here; `None` if it did panic.
pub fn quietly<T>(f: impl FnOnce() -> T) -> Option<T> {
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f));
    caught
        .map_err(|payload| {
            // The payload is user code as well. If its drop panics, what that leaves is leaked.
            let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(payload)));
            dropped.map_err(std::mem::forget)
        })
        .ok()
}

/// Frees a box that was retired; a panicking `Drop` of the user's value stops here.
///
/// It would otherwise unwind through whichever thread happens to collect garbage, or out of a node's own `Drop`.
///
/// # Safety
/// `pointer` comes from [`Box::into_raw`] and is given up here, once.
#[allow(unsafe_code)]
pub unsafe fn free<T>(pointer: *mut T) {
    // SAFETY: passed on to the caller. The box frees its memory even if the value's `Drop` panics.
    let owned = unsafe { Box::from_raw(pointer) };
    let _ = quietly(|| drop(owned));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_more_keep_than_can_be_counted_is_kept_for_ever() {
        let mut pins = Pins(u32::MAX - 1);
        pins.more();
        pins.more();
        for _ in 0..3 {
            pins.less();
        }
        assert_eq!(pins, Pins(u32::MAX));
        let mut pins = Pins::default();
        pins.more();
        assert!(!pins.is_none());
        pins.less();
        assert!(pins.is_none());
    }
}
