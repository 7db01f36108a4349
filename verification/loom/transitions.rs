//! Races between two transitions of one resource, through the real scheduler: the upper triangle of the table in
//! `node::state`, and insertion and batches against it.
//!
//! Each model is named for its pair. One shard, one resource (key 0) unless the model says otherwise. What both threads
//! were answered, and what is found afterwards, must be explained by one of the two orders; the shard's heaps, words and
//! face must agree; every resource must be dropped once.

use crate::{
    common::{race, race_then, race_within, steps},
    driver::{Setup, Step, Step::Release as Return, Step::ReleaseAfter as ReturnAfter},
    specification::Op::*,
};

/// `name: before; one thread | the other`.
macro_rules! races {
    ($($(#[$doc:meta])* $name:ident $(($($field:ident: $value:expr),*))?: [$($before:expr),*]; [$($left:expr),*] | [$($right:expr),*];)*) => {$(
        $(#[$doc])*
        #[test]
        fn $name() {
            let setup = Setup { $($($field: $value,)*)? ..Setup::default() };
            race(setup, vec![$(step($before)),*], vec![vec![$(step($left)),*], vec![$(step($right)),*]]);
        }
    )*};
}

fn step(step: impl Into<Step>) -> Step {
    step.into()
}

impl From<crate::specification::Op> for Step {
    fn from(op: crate::specification::Op) -> Self {
        Step::Do(op)
    }
}

races! {
    acquire_acquire: [Insert(0)]; [Acquire] | [Acquire];
    /// Two units, and the loser of the first takes the second.
    acquire_acquire_of_two(units: 2): [Insert(0)]; [Acquire] | [Acquire];
    /// Each lease ranks the resource anew, against the other's.
    acquire_acquire_by_load(units: 2, by_load: true): [Insert(0)]; [Acquire] | [Acquire];
    acquire_key_acquire: [Insert(0)]; [AcquireKey(0)] | [Acquire];
    acquire_release: [Insert(0), Acquire]; [Return] | [Acquire];
    acquire_exclude: [Insert(0)]; [Acquire] | [Exclude(0)];
    acquire_include: [Insert(0), Exclude(0)]; [Acquire] | [Include(0)];
    acquire_cool: [Insert(0)]; [Acquire] | [Cool(0)];
    acquire_warm: [Insert(0), Cool(0)]; [Acquire] | [Warm(0)];
    acquire_drain: [Insert(0)]; [Acquire] | [Drain(0)];
    acquire_remove: [Insert(0)]; [Acquire] | [Remove(0)];
    acquire_update: [Insert(0)]; [Acquire] | [Update(0)];
    acquire_update_with: [Insert(0)]; [Acquire] | [UpdateWith(0)];
    acquire_evict: [Insert(0)]; [Acquire] | [Evict];
    acquire_insert: []; [Acquire] | [Insert(0)];
    acquire_release_after: [Insert(0), Acquire]; [ReturnAfter] | [Acquire];
    release_release(units: 2): [Insert(0), Acquire]; [Return] | [Acquire, Return];
    /// Ranked by the load that each return has left behind it.
    release_release_by_load(units: 2, by_load: true): [Insert(0), Acquire]; [Return] | [Acquire, Return];
    release_exclude: [Insert(0), Acquire]; [Return] | [Exclude(0)];
    release_include: [Insert(0), Acquire, Exclude(0)]; [Return] | [Include(0)];
    release_cool: [Insert(0), Acquire]; [Return] | [Cool(0)];
    release_warm: [Insert(0), Acquire, Cool(0)]; [Return] | [Warm(0)];
    release_release_after(units: 2): [Insert(0), Acquire]; [Return] | [Acquire, ReturnAfter];
    release_after_release_after(units: 2): [Insert(0), Acquire]; [ReturnAfter] | [Acquire, ReturnAfter];
    release_after_exclude: [Insert(0), Acquire]; [ReturnAfter] | [Exclude(0)];
    release_after_include: [Insert(0), Acquire, Exclude(0)]; [ReturnAfter] | [Include(0)];
    release_after_cool: [Insert(0), Acquire]; [ReturnAfter] | [Cool(0)];
    release_after_warm: [Insert(0), Acquire]; [ReturnAfter] | [Warm(0)];
    release_after_update: [Insert(0), Acquire]; [ReturnAfter] | [UpdateWith(0)];
    release_after_remove: [Insert(0), Acquire]; [ReturnAfter] | [Remove(0)];
    release_after_evict(units: 2): [Insert(0), Acquire]; [ReturnAfter] | [Evict];
    /// The lease is of a resource that is gone, the newcomer has its key.
    release_after_insert: [Insert(0), Acquire, Remove(0)]; [ReturnAfter] | [Insert(0)];
    release_insert: [Insert(0), Acquire, Remove(0)]; [Return] | [Insert(0)];
    /// Whoever comes second frees the node.
    release_remove: [Insert(0), Acquire]; [Return] | [Remove(0)];
    /// The value that the lease claims is superseded before or after the return.
    release_update: [Insert(0), Acquire]; [Return] | [Update(0)];
    release_update_by_load(units: 2, by_load: true): [Insert(0), Acquire]; [Return] | [Update(0)];
    /// The rank is computed after the unlock, from a value that may be gone by then.
    release_remove_by_load(units: 2, by_load: true): [Insert(0), Acquire]; [Return] | [Remove(0)];
    release_evict(units: 2): [Insert(0), Acquire]; [Return] | [Evict];
    exclude_exclude: [Insert(0)]; [Exclude(0)] | [Exclude(0)];
    exclude_include: [Insert(0), Exclude(0)]; [Exclude(0)] | [Include(0)];
    include_include: [Insert(0), Exclude(0)]; [Include(0)] | [Include(0)];
    exclude_cool: [Insert(0)]; [Exclude(0)] | [Cool(0)];
    exclude_warm: [Insert(0), Cool(0)]; [Exclude(0)] | [Warm(0)];
    include_cool: [Insert(0), Exclude(0)]; [Include(0)] | [Cool(0)];
    include_warm: [Insert(0), Exclude(0), Cool(0)]; [Include(0)] | [Warm(0)];
    exclude_remove: [Insert(0)]; [Exclude(0)] | [Remove(0)];
    exclude_update: [Insert(0)]; [Exclude(0)] | [Update(0)];
    exclude_evict: [Insert(0)]; [Exclude(0)] | [Evict];
    /// A hold on a resource whose insertion is going on must not be lost, nor come too early.
    exclude_insert: []; [Exclude(0)] | [Insert(0)];
    /// Two holds of which neither knows the other.
    exclude_drain: [Insert(0)]; [Exclude(0)] | [Drain(0)];
    exclude_undrain: [Insert(0), Drain(0)]; [Exclude(0)] | [Undrain(0)];
    include_update: [Insert(0), Exclude(0)]; [Include(0)] | [UpdateWith(0)];
    include_remove: [Insert(0), Exclude(0)]; [Include(0)] | [Remove(0)];
    include_evict: [Insert(0), Exclude(0)]; [Include(0)] | [Evict];
    include_insert: []; [Include(0)] | [Insert(0)];
    include_undrain: [Insert(0), Exclude(0), Drain(0)]; [Include(0)] | [Undrain(0)];
    cool_cool: [Insert(0)]; [Cool(0)] | [Cool(0)];
    cool_warm: [Insert(0), Cool(0)]; [Cool(0)] | [Warm(0)];
    cool_remove: [Insert(0)]; [Cool(0)] | [Remove(0)];
    cool_update: [Insert(0)]; [Cool(0)] | [Update(0)];
    cool_evict: [Insert(0)]; [Cool(0)] | [Evict];
    cool_insert: []; [Cool(0)] | [Insert(0)];
    warm_warm: [Insert(0), Cool(0)]; [Warm(0)] | [Warm(0)];
    warm_update: [Insert(0), Cool(0)]; [Warm(0)] | [Update(0)];
    warm_remove: [Insert(0), Cool(0)]; [Warm(0)] | [Remove(0)];
    warm_evict: [Insert(0), Cool(0)]; [Warm(0)] | [Evict];
    warm_insert: []; [Warm(0)] | [Insert(0)];
    remove_remove: [Insert(0)]; [Remove(0)] | [Remove(0)];
    remove_update: [Insert(0)]; [Remove(0)] | [Update(0)];
    remove_update_with: [Insert(0)]; [Remove(0)] | [UpdateWith(0)];
    remove_evict: [Insert(0)]; [Remove(0)] | [Evict];
    remove_insert: [Insert(0)]; [Remove(0)] | [Insert(0)];
    evict_evict: [Insert(0), Insert(1)]; [Evict] | [Evict];
    /// The newcomer is better than what the eviction is about to take, or takes itself.
    evict_insert: [Insert(1)]; [Evict] | [Insert(0)];
    /// No room was made ahead: slots and heap grow under the eviction.
    evict_insert_growing(room: 0): [Insert(0)]; [Evict] | [Insert(1)];
    evict_insert_into_nothing: []; [Evict] | [Insert(0)];
    update_evict: [Insert(0)]; [UpdateWith(0)] | [Evict];
    update_insert: []; [UpdateWith(0)] | [Insert(0)];
    update_update: [Insert(0)]; [Update(0)] | [Update(0)];
    update_update_with: [Insert(0), UpdateWith(0)]; [Update(0)] | [UpdateWith(0)];
    /// No update is lost: the version counts both.
    update_with_update_with: [Insert(0)]; [UpdateWith(0)] | [UpdateWith(0)];
    /// A lease on the first value, two that supersede it.
    update_update_leased: [Insert(0), Acquire]; [Update(0), Return] | [Update(0)];
    insert_insert_same_key: []; [Insert(0)] | [Insert(0)];
    insert_remove_leased: [Insert(0), Acquire]; [Insert(0), Return] | [Remove(0)];
    insert_acquire_key: []; [Insert(0)] | [AcquireKey(0)];
    insert_len: [Insert(1)]; [Insert(0)] | [Len { slack: 0 }, Get(0), Len { slack: 0 }];
    remove_get: [Insert(0)]; [Remove(0)] | [Get(0), Get(0)];
    update_get: [Insert(0)]; [UpdateWith(0)] | [Get(0), Get(0)];
    insert_get: []; [Insert(0)] | [Get(0), AcquireKey(0)];
    remove_reinsert_get: [Insert(0)]; [Remove(0), Insert(0)] | [Get(0), AcquireKey(0)];
}

/// A rank that is computed after the lease has begun, while the load changes. Looked at while the lease is out: its return would
/// rank the resource anew.
#[test]
fn acquire_key_release_by_load() {
    let setup = Setup { units: 2, by_load: true, ..Setup::default() };
    let threads = vec![steps(&[AcquireKey(0)]), steps(&[Acquire])];
    race_then(setup, steps(&[Insert(0)]), threads, steps(&[Snapshot]), |_, _| ());
}

/// Slots, heap and lookup grow under both.
#[test]
fn insert_insert() {
    let setup = Setup { room: 0, ..Setup::default() };
    race_within(1, setup, steps(&[Insert(0)]), vec![steps(&[Insert(1)]), steps(&[Insert(2)])]);
}

#[test]
fn exclude_include_acquire_acquire() {
    let setup = Setup { units: 2, ..Setup::default() };
    race_within(
        1,
        setup,
        steps(&[Insert(0)]),
        vec![steps(&[Exclude(0), Include(0)]), steps(&[Acquire, Acquire])],
    );
}

/// Three threads: a lease comes back to a resource that is removed and inserted again.
#[test]
fn release_remove_insert() {
    race(
        Setup::default(),
        steps(&[Insert(0), Acquire]),
        vec![vec![Return], steps(&[Remove(0)]), steps(&[Insert(0)])],
    );
}
