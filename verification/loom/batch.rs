//! A batch that becomes visible at once (`shard::staged`), against everything that could see a part of it.
//!
//! Up to three resources in one or two shards; one member is absorbed per critical section, so that every state between B1
//! and B5 is met. Judged as in `transitions`: a look that sees one member must see all.

use crate::{
    common::{race, race_within, steps},
    driver::{
        Setup,
        Step::{self, Do, Fail, Release, ReleaseAfter},
    },
    specification::Op::{self, *},
};

const TWO: Setup = Setup { shards: 2, units: 1, by_load: false, room: 12, rules: false, period: 1 };

fn one() -> Setup {
    Setup::default()
}

/// One shard in which a failure ejects.
fn ruled() -> Setup {
    Setup { rules: true, ..one() }
}

#[test]
fn batch_get() {
    race(TWO, vec![], vec![steps(&[InsertBatch(0, 2)]), steps(&[Get(0), Get(1)])]);
}

#[test]
fn batch_get_backwards() {
    race(TWO, vec![], vec![steps(&[InsertBatch(0, 2)]), steps(&[Get(1), Get(0)])]);
}

#[test]
fn batch_len() {
    race(TWO, vec![], vec![steps(&[InsertBatch(0, 2)]), steps(&[Len { slack: 0 }, Get(1)])]);
}

/// Nothing, or a resource: and then the other one is there as well.
#[test]
fn batch_acquire() {
    race(one(), vec![], vec![steps(&[InsertBatch(0, 2)]), steps(&[Acquire, Acquire])]);
}

#[test]
fn batch_acquire_two_shards() {
    race_within(1, TWO, vec![], vec![steps(&[InsertBatch(0, 2)]), steps(&[Acquire, Acquire])]);
}

/// Found by key, it must be lent by key, whoever absorbs it.
#[test]
fn batch_acquire_key() {
    race(one(), vec![], vec![steps(&[InsertBatch(0, 2)]), steps(&[AcquireKey(1), AcquireKey(0)])]);
}

#[test]
fn batch_acquire_key_two_shards() {
    race(TWO, vec![], vec![steps(&[InsertBatch(0, 2)]), steps(&[AcquireKey(1), AcquireKey(0)])]);
}

#[test]
fn batch_remove() {
    race(one(), vec![], vec![steps(&[InsertBatch(0, 2)]), steps(&[Remove(1), Get(0)])]);
}

#[test]
fn batch_exclude() {
    race(one(), vec![], vec![steps(&[InsertBatch(0, 2)]), steps(&[Exclude(1), Get(0)])]);
}

/// The lease is on the worst of what will be there.
fn returning(how: Step) {
    let setup = if how == Fail { ruled() } else { one() };
    race(setup, steps(&[Insert(2), Acquire]), vec![vec![how, Do(Get(0))], steps(&[InsertBatch(0, 2)])]);
}

#[test]
fn batch_fail() {
    returning(Fail);
}

#[test]
fn batch_release() {
    returning(Release);
}

#[test]
fn batch_release_after() {
    returning(ReleaseAfter);
}

#[test]
fn batch_include() {
    race(
        one(),
        steps(&[Insert(2), Exclude(2)]),
        vec![steps(&[InsertBatch(0, 2)]), steps(&[Include(2), Include(1)])],
    );
}

#[test]
fn batch_cool() {
    race(one(), vec![], vec![steps(&[InsertBatch(0, 2)]), steps(&[Cool(1), Get(0)])]);
}

#[test]
fn batch_warm() {
    race(one(), steps(&[Insert(2), Cool(2)]), vec![steps(&[InsertBatch(0, 2)]), steps(&[Warm(2), Warm(1)])]);
}

#[test]
fn batch_eject() {
    race(ruled(), vec![], vec![steps(&[InsertBatch(0, 2)]), steps(&[Eject(1), Get(0)])]);
}

/// The rules have ejected one that is there, and nobody the member of the batch.
#[test]
fn batch_readmit() {
    race(
        ruled(),
        vec![Do(Insert(2)), Do(Acquire), Fail],
        vec![steps(&[InsertBatch(0, 2)]), steps(&[Readmit(2), Readmit(1)])],
    );
}

#[test]
fn batch_drain() {
    race(one(), vec![], vec![steps(&[InsertBatch(0, 2)]), steps(&[Drain(1), Get(0)])]);
}

#[test]
fn batch_undrain() {
    race(
        one(),
        steps(&[Insert(2), Drain(2)]),
        vec![steps(&[InsertBatch(0, 2)]), steps(&[Undrain(2), Undrain(1)])],
    );
}

#[test]
fn batch_update() {
    race(one(), vec![], vec![steps(&[InsertBatch(0, 2)]), steps(&[UpdateWith(1), Get(0)])]);
}

#[test]
fn batch_evict() {
    race(one(), vec![], vec![steps(&[InsertBatch(0, 2)]), steps(&[Evict, Get(0)])]);
}

/// The single insertion wins before the batch has linked its key; otherwise it waits for the batch and is a duplicate.
#[test]
fn batch_insert() {
    race(one(), vec![], vec![steps(&[InsertBatch(0, 2)]), steps(&[Insert(1)])]);
}

#[test]
fn batch_insert_two_shards() {
    race(TWO, vec![], vec![steps(&[InsertBatch(0, 2)]), steps(&[Insert(1), Get(0)])]);
}

/// Overlapping batches: one gets in.
#[test]
fn batch_batch() {
    race(one(), vec![], vec![steps(&[InsertBatch(0, 2)]), steps(&[InsertBatch(1, 2)])]);
}

/// Disjoint batches: both get in.
#[test]
fn batch_batch_disjoint() {
    race(TWO, vec![], vec![steps(&[InsertBatch(0, 2)]), steps(&[InsertBatch(2, 2)])]);
}

/// The last key exists: the others, linked already, are never seen, and their memory goes through the reclaimer.
#[test]
fn undone_batch_get() {
    race(
        one(),
        steps(&[Insert(2)]),
        vec![steps(&[InsertBatch(1, 2)]), steps(&[Get(1), Len { slack: 0 }, AcquireKey(1)])],
    );
}

#[test]
fn undone_batch_insert() {
    race(one(), steps(&[Insert(2)]), vec![steps(&[InsertBatch(1, 2)]), steps(&[Insert(1)])]);
}

/// The key that is in the way goes while the batch comes.
#[test]
fn batch_remove_of_the_obstacle() {
    race(one(), steps(&[Insert(1)]), vec![steps(&[InsertBatch(0, 2)]), steps(&[Remove(1), Get(0)])]);
}

/// Between two absorptions a third thread looks: three threads, two shards.
#[test]
fn batch_get_acquire_key() {
    race_within(
        1,
        TWO,
        vec![],
        vec![steps(&[InsertBatch(0, 2)]), steps(&[Get(0), Get(1)]), steps(&[AcquireKey(1)])],
    );
}

/// The batch commits while another thread is between its look at the roster, under the shard's lock, and its CAS there; a
/// third one has seen the batch. The first must have come before it.
fn behind_the_look(bound: usize, before: &[Op], main: &[Op], seen: &[Op]) {
    race_within(bound, one(), steps(before), vec![steps(main), steps(&[InsertBatch(0, 2)]), steps(seen)]);
}

#[test]
fn behind_the_look_of_an_acquisition() {
    behind_the_look(1, &[Insert(4)], &[Acquire], &[Get(1), AcquireKey(4)]);
}

#[test]
fn behind_the_look_of_an_eviction() {
    behind_the_look(1, &[Insert(4)], &[Evict], &[Get(1), Remove(4)]);
}

#[test]
fn behind_the_look_of_an_eviction_of_nothing() {
    behind_the_look(1, &[], &[Evict], &[Get(1), Remove(1)]);
}

/// What is removed is of the batch itself.
#[test]
fn behind_the_look_of_a_removal() {
    behind_the_look(1, &[], &[Remove(1)], &[Get(0), Evict]);
}

/// A batch is undone, and the next one gets its number: whoever still holds a member of the first must not take it for one of
/// the second. That is for those who look, and lend; who removes or holds would be refused by the word itself, which is staged or removed,
/// so that no single fault lets such a model fail.
fn ghost(ops: &[Op]) {
    race(one(), steps(&[Insert(1)]), vec![steps(&[InsertBatch(0, 2), InsertBatch(2, 2)]), steps(ops)]);
}

#[test]
fn ghost_get() {
    ghost(&[Get(0), Get(2)]);
}

#[test]
fn ghost_acquire_key() {
    ghost(&[AcquireKey(0)]);
}

#[test]
fn ghost_update() {
    ghost(&[UpdateWith(0)]);
}

/// The single insertion that has met the ghost gets in.
#[test]
fn ghost_insert() {
    ghost(&[Insert(0), Get(0)]);
}

/// A member of the second batch is absorbed by the eviction, in the middle of its commit.
#[test]
fn ghost_evict() {
    race_within(
        1,
        one(),
        steps(&[Insert(1)]),
        vec![steps(&[InsertBatch(0, 2), InsertBatch(2, 2)]), steps(&[Evict])],
    );
}
