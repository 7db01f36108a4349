//! Races between two transitions of one resource, through the real scheduler: the upper triangle of the table in
//! `node::state`, and insertion and batches against it.
//!
//! Each model is named for its pair. One shard, one resource (key 0) unless the model says otherwise. What both threads
//! were answered, and what is found afterwards, must be explained by one of the two orders; the shard's heaps, words and
//! face must agree; every resource must be dropped once.

use crate::{
    common::{race, race_then, race_within, steps},
    driver::{Setup, Step, Step::Fail, Step::Release as Return, Step::ReleaseAfter as ReturnAfter},
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

// Holds beside others: ejection, by hand and by the rules, and draining. In a fleet with rules one failure ejects; what a model has
// ejected beforehand by `Fail` the rules hold, with a place and an entry in their book, and a hand takes it over from them.
races! {
    acquire_eject(rules: true): [Insert(0)]; [Acquire] | [Eject(0)];
    acquire_readmit(rules: true): [Insert(0), Acquire, Fail]; [Acquire] | [Readmit(0)];
    acquire_readmit_by_hand: [Insert(0), Eject(0)]; [Acquire] | [Readmit(0)];
    acquire_fail(rules: true): [Insert(0), Acquire]; [Fail] | [Acquire];
    /// There is a second unit: lent before the failure, or not at all.
    acquire_fail_of_two(rules: true, units: 2): [Insert(0), Acquire]; [Fail] | [Acquire];
    acquire_undrain: [Insert(0), Drain(0)]; [Acquire] | [Undrain(0)];
    release_fail(rules: true, units: 2): [Insert(0), Acquire]; [Return] | [Acquire, Fail];
    release_eject(rules: true): [Insert(0), Acquire]; [Return] | [Eject(0)];
    release_readmit(rules: true, units: 2): [Insert(0), Acquire, Acquire, Fail]; [Return] | [Readmit(0)];
    release_drain: [Insert(0), Acquire]; [Return] | [Drain(0)];
    release_undrain: [Insert(0), Acquire, Drain(0)]; [Return] | [Undrain(0)];
    release_after_fail(rules: true, units: 2): [Insert(0), Acquire]; [ReturnAfter] | [Acquire, Fail];
    release_after_eject(rules: true): [Insert(0), Acquire]; [ReturnAfter] | [Eject(0)];
    release_after_readmit(rules: true, units: 2): [Insert(0), Acquire, Acquire, Fail]; [ReturnAfter] | [Readmit(0)];
    release_after_drain: [Insert(0), Acquire]; [ReturnAfter] | [Drain(0)];
    release_after_undrain: [Insert(0), Acquire, Drain(0)]; [ReturnAfter] | [Undrain(0)];
    /// The rules eject it once, and take one place.
    fail_fail(rules: true, units: 2): [Insert(0), Acquire]; [Fail] | [Acquire, Fail];
    fail_exclude(rules: true): [Insert(0), Acquire]; [Fail] | [Exclude(0)];
    fail_include(rules: true): [Insert(0), Acquire, Exclude(0)]; [Fail] | [Include(0)];
    fail_cool(rules: true): [Insert(0), Acquire]; [Fail] | [Cool(0)];
    fail_warm(rules: true): [Insert(0), Acquire, Cool(0)]; [Fail] | [Warm(0)];
    /// By hand before: the rules find it ejected, and take no place; after: the place is given back.
    fail_eject(rules: true): [Insert(0), Acquire]; [Fail] | [Eject(0)];
    fail_readmit(rules: true): [Insert(0), Acquire]; [Fail] | [Readmit(0)];
    /// Ejected by hand: readmitted before the failure, or after it in vain.
    fail_readmit_by_hand(rules: true): [Insert(0), Acquire, Eject(0)]; [Fail] | [Readmit(0)];
    fail_drain(rules: true): [Insert(0), Acquire]; [Fail] | [Drain(0)];
    fail_undrain(rules: true): [Insert(0), Acquire, Drain(0)]; [Fail] | [Undrain(0)];
    fail_update(rules: true): [Insert(0), Acquire]; [Fail] | [UpdateWith(0)];
    /// The place goes with the member, whoever comes first.
    fail_remove(rules: true): [Insert(0), Acquire]; [Fail] | [Remove(0)];
    fail_evict(rules: true, units: 2): [Insert(0), Acquire]; [Fail] | [Evict];
    /// The lease is of a resource that is gone: nobody is ejected.
    fail_insert(rules: true): [Insert(0), Acquire, Remove(0)]; [Fail] | [Insert(0)];
    exclude_eject(rules: true): [Insert(0)]; [Exclude(0)] | [Eject(0)];
    exclude_readmit(rules: true): [Insert(0), Acquire, Fail]; [Exclude(0)] | [Readmit(0)];
    include_eject(rules: true): [Insert(0), Exclude(0)]; [Include(0)] | [Eject(0)];
    include_readmit(rules: true): [Insert(0), Acquire, Fail, Exclude(0)]; [Include(0)] | [Readmit(0)];
    include_drain: [Insert(0), Exclude(0)]; [Include(0)] | [Drain(0)];
    cool_eject(rules: true): [Insert(0)]; [Cool(0)] | [Eject(0)];
    cool_readmit(rules: true): [Insert(0), Acquire, Fail]; [Cool(0)] | [Readmit(0)];
    cool_drain: [Insert(0)]; [Cool(0)] | [Drain(0)];
    cool_undrain: [Insert(0), Drain(0)]; [Cool(0)] | [Undrain(0)];
    warm_eject(rules: true): [Insert(0), Cool(0)]; [Warm(0)] | [Eject(0)];
    warm_readmit(rules: true): [Insert(0), Acquire, Fail, Cool(0)]; [Warm(0)] | [Readmit(0)];
    warm_drain: [Insert(0), Cool(0)]; [Warm(0)] | [Drain(0)];
    warm_undrain: [Insert(0), Cool(0), Drain(0)]; [Warm(0)] | [Undrain(0)];
    eject_eject(rules: true): [Insert(0)]; [Eject(0)] | [Eject(0)];
    /// Ejected by the rules: one of two hands takes it over, and the place is given back once.
    eject_eject_by_rules(rules: true): [Insert(0), Acquire, Fail]; [Eject(0)] | [Eject(0)];
    eject_readmit(rules: true): [Insert(0), Acquire, Fail]; [Eject(0)] | [Readmit(0)];
    eject_readmit_by_hand: [Insert(0), Eject(0)]; [Eject(0)] | [Readmit(0)];
    eject_drain(rules: true): [Insert(0)]; [Eject(0)] | [Drain(0)];
    eject_undrain(rules: true): [Insert(0), Drain(0)]; [Eject(0)] | [Undrain(0)];
    eject_update(rules: true): [Insert(0)]; [Eject(0)] | [UpdateWith(0)];
    eject_remove(rules: true): [Insert(0)]; [Eject(0)] | [Remove(0)];
    /// The rules' hold is taken over, or goes with its member.
    eject_remove_by_rules(rules: true): [Insert(0), Acquire, Fail]; [Eject(0)] | [Remove(0)];
    eject_evict(rules: true): [Insert(0)]; [Eject(0)] | [Evict];
    eject_insert(rules: true): []; [Eject(0)] | [Insert(0)];
    readmit_readmit(rules: true): [Insert(0), Acquire, Fail]; [Readmit(0)] | [Readmit(0)];
    readmit_drain(rules: true): [Insert(0), Acquire, Fail]; [Readmit(0)] | [Drain(0)];
    readmit_undrain(rules: true): [Insert(0), Acquire, Fail, Drain(0)]; [Readmit(0)] | [Undrain(0)];
    readmit_update(rules: true): [Insert(0), Acquire, Fail]; [Readmit(0)] | [UpdateWith(0)];
    readmit_remove(rules: true): [Insert(0), Acquire, Fail]; [Readmit(0)] | [Remove(0)];
    readmit_evict(rules: true): [Insert(0), Acquire, Fail]; [Readmit(0)] | [Evict];
    readmit_insert(rules: true): []; [Readmit(0)] | [Insert(0)];
    drain_drain: [Insert(0)]; [Drain(0)] | [Drain(0)];
    drain_undrain: [Insert(0), Drain(0)]; [Drain(0)] | [Undrain(0)];
    drain_update: [Insert(0)]; [Drain(0)] | [UpdateWith(0)];
    drain_remove: [Insert(0)]; [Drain(0)] | [Remove(0)];
    drain_evict: [Insert(0)]; [Drain(0)] | [Evict];
    drain_insert: []; [Drain(0)] | [Insert(0)];
    undrain_undrain: [Insert(0), Drain(0)]; [Undrain(0)] | [Undrain(0)];
    undrain_update: [Insert(0), Drain(0)]; [Undrain(0)] | [UpdateWith(0)];
    undrain_remove: [Insert(0), Drain(0)]; [Undrain(0)] | [Remove(0)];
    undrain_evict: [Insert(0), Drain(0)]; [Undrain(0)] | [Evict];
    undrain_insert: []; [Undrain(0)] | [Insert(0)];
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
