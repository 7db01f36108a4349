//! The honest "none" of an acquisition with a filter (`scheduler::filter`, W2 and W3): always something acceptable is
//! eligible, somewhere; whoever asks must get it.
//!
//! In a model W1 looks at two candidates of a shard. The refused 1 and 3 keep it busy, so that what is acceptable is found by
//! W2, in the lookup's order. Which of two is looked at first depends on the hash, hence the mirrored models.

use leasehold::{Strategy, internals::sync::Arc};

use crate::{
    common::{model_within, steps},
    driver::{Actor, Fleet, Res, Setup, Step, Step::Release},
    specification::Op::{self, *},
};

/// `before`, then `main` against one acquisition that must find something. Even keys live in shard 0, odd ones in shard 1.
fn never_none(
    bound: usize,
    strategy: fn() -> Strategy,
    before: &'static [Op],
    main: &'static [Step],
    accepts: fn(&Res) -> bool,
) {
    model_within(bound, move || {
        let setup = Setup { shards: 2, units: 1, by_load: false, room: 12, rules: false, period: 1 };
        let fleet = Arc::new(Fleet::with(setup, |builder| builder.strategy(strategy())));
        let mut actor = Actor::new(&fleet, 0);
        actor.run(&steps(before));
        let other = {
            let fleet = Arc::clone(&fleet);
            crate::common::spawn(move || {
                let lease = fleet.scheduler.acquire_where(accepts);
                assert!(accepts(&lease.expect("at every instant something acceptable was eligible")));
            })
        };
        actor.run(main);
        other.join().expect("no panic");
        while actor.holds() {
            actor.step(Release);
        }
        drop(actor);
        let Ok(fleet) = Arc::try_unwrap(fleet) else { panic!("all threads are gone") };
        fleet.finish();
    });
}

fn exact() -> Strategy {
    Strategy::BestOf { choices: usize::MAX }
}

/// Shards that show nothing are passed over.
fn inexact() -> Strategy {
    Strategy::RoundRobin
}

fn not_one_or_three(resource: &Res) -> bool {
    resource.key != 1 && resource.key != 3
}

fn renewed(resource: &Res) -> bool {
    resource.version == 1
}

macro_rules! none {
    ($($(#[$doc:meta])* $name:ident: $bound:literal, $strategy:ident, [$($before:expr),*], [$($main:expr),*], $accepts:ident;)*) => {$(
        $(#[$doc])*
        #[test]
        fn $name() {
            never_none($bound, $strategy, &[$($before),*], &[$($main),*], $accepts);
        }
    )*};
}

none! {
    returned_behind_the_scan: 2, exact, [Insert(1), Insert(3), Insert(0), Insert(5), AcquireKey(0)],
        [Release, Step::Do(Exclude(5))], not_one_or_three;
    returned_behind_the_scan_mirrored: 2, exact, [Insert(1), Insert(3), Insert(0), Insert(5), AcquireKey(5)],
        [Release, Step::Do(Exclude(0))], not_one_or_three;
    returned_to_a_shard_passed_over: 2, inexact, [Insert(1), Insert(3), Insert(0), Insert(5), AcquireKey(0)],
        [Release, Step::Do(AcquireKey(5))], not_one_or_three;
    /// The number has grown, the word has not changed yet, when the scan begins.
    inserted_while_the_scan_begins: 2, inexact, [Insert(1), Insert(3), Insert(5)],
        [Step::Do(Insert(0)), Step::Do(Exclude(5))], not_one_or_three;
    inserted_while_the_scan_begins_2: 2, inexact, [Insert(1), Insert(3), Insert(5)],
        [Step::Do(Insert(2)), Step::Do(Exclude(5))], not_one_or_three;
    inserted_while_the_scan_begins_4: 2, inexact, [Insert(1), Insert(3), Insert(5)],
        [Step::Do(Insert(4)), Step::Do(Exclude(5))], not_one_or_three;
    /// A refused one becomes acceptable, the acceptable one is taken.
    updated_behind_the_scan: 2, exact, [Insert(0), Insert(2), Insert(4), UpdateWith(4)],
        [Step::Do(UpdateWith(0)), Step::Do(Exclude(4))], renewed;
    updated_behind_the_scan_2: 2, exact, [Insert(0), Insert(2), Insert(4), UpdateWith(4)],
        [Step::Do(UpdateWith(2)), Step::Do(Exclude(4))], renewed;
    updated_in_another_shard: 2, exact, [Insert(0), Insert(2), Insert(4), Insert(1), UpdateWith(4)],
        [Step::Do(UpdateWith(1)), Step::Do(Update(4))], renewed;
    /// A batch becomes visible, what was acceptable goes.
    batch_behind_the_scan: 1, inexact, [Insert(1), Insert(3), Insert(5)],
        [Step::Do(InsertBatch(2, 1)), Step::Do(Remove(5))], not_one_or_three;
    batch_behind_the_scan_2: 1, inexact, [Insert(1), Insert(3), Insert(5)],
        [Step::Do(InsertBatch(4, 1)), Step::Do(Remove(5))], not_one_or_three;
}

/// Three threads. One does `writer`, which makes something acceptable, in front of what is taken away in the order of the scan (of the
/// keys here: 2, 1, 5, 3, 4, 0); the main one learns of it from one word, without a lock,
/// and only then takes away what was acceptable before. So at every instant something is, and the third must get it.
///
/// What the main thread has seen orders all that was written before that word, for the third as well: also the number that the
/// third rests on, that of the content, which is written after F1 (`shard::face`).
fn learned(
    bound: usize,
    before: &'static [Op],
    writer: Op,
    learns: fn(&Fleet) -> bool,
    taken: u8,
    accepts: fn(&Res) -> bool,
) {
    model_within(bound, move || {
        // Two units, so that what is lent is still eligible.
        let setup = Setup { shards: 2, units: 2, by_load: false, room: 12, rules: false, period: 1 };
        let fleet = Arc::new(Fleet::with(setup, |builder| builder.strategy(inexact())));
        let mut actor = Actor::new(&fleet, 0);
        actor.run(&steps(before));
        let one = {
            let fleet = Arc::clone(&fleet);
            crate::common::spawn(move || Actor::new(&fleet, 1).run(&steps(&[writer])))
        };
        let two = {
            let fleet = Arc::clone(&fleet);
            crate::common::spawn(move || {
                let lease = fleet.scheduler.acquire_where(accepts);
                assert!(accepts(&lease.expect("at every instant something acceptable was eligible")));
            })
        };
        if learns(&fleet) {
            fleet.scheduler.exclude(&taken).expect("a member");
        }
        one.join().expect("no panic");
        two.join().expect("no panic");
        drop(actor);
        let Ok(fleet) = Arc::try_unwrap(fleet) else { panic!("all threads are gone") };
        fleet.finish();
    });
}

/// From the state word: it is not staged any more.
#[test]
fn learned_from_the_word() {
    learned(
        2,
        &[Insert(1), Insert(3), Insert(5)],
        Insert(2),
        |fleet| fleet.scheduler.get(&2).is_some(),
        5,
        not_one_or_three,
    );
}

/// From the best of a shard that showed nothing.
#[test]
fn learned_from_the_best() {
    learned(
        2,
        &[Insert(1), Insert(3), Insert(5)],
        Insert(2),
        |fleet| fleet.scheduler.peek().is_some_and(|found| found.check() == 2),
        5,
        not_one_or_three,
    );
}

/// From the value, by a peek: it is the new one. A lease keeps the old one from being retired, which would order more.
#[test]
fn learned_from_the_value() {
    learned(
        2,
        &[Insert(2), Insert(1), Insert(3), Insert(5), UpdateWith(5), AcquireKey(2)],
        UpdateWith(2),
        |fleet| fleet.scheduler.peek().is_some_and(|found| found.version == 1),
        5,
        renewed,
    );
}

/// From the roster: the batch is visible, and not absorbed yet.
#[test]
fn learned_from_the_roster() {
    learned(
        1,
        &[Insert(1), Insert(3), Insert(5)],
        InsertBatch(4, 1),
        |fleet| fleet.scheduler.get(&4).is_some(),
        5,
        not_one_or_three,
    );
}

/// From the roster, within the scan: the filter itself learns of the batch and takes away what was acceptable before. The number
/// of the batch that the scan begins with is the last one to see; whoever has read it must find the members. The scan comes by the new
/// key first, then by one that is refused, then by the one that is taken away.
#[test]
fn learned_within_the_scan() {
    model_within(1, || {
        let setup = Setup { shards: 2, units: 2, by_load: false, room: 12, rules: false, period: 1 };
        let fleet = Arc::new(Fleet::with(setup, |builder| builder.strategy(inexact())));
        let mut actor = Actor::new(&fleet, 0);
        actor.run(&steps(&[Insert(1), Insert(3), Insert(5)]));
        let other = {
            let fleet = Arc::clone(&fleet);
            crate::common::spawn(move || Actor::new(&fleet, 1).run(&steps(&[InsertBatch(2, 1)])))
        };
        // Plain: only this thread counts.
        let asked = std::cell::Cell::new(0);
        let lease = fleet.scheduler.acquire_where(|resource| {
            asked.set(asked.get() + 1);
            // W1 asks about the two that are refused; after them it is W2.
            if !not_one_or_three(resource) && asked.get() > 2 && fleet.scheduler.get(&2).is_some() {
                let _ = fleet.scheduler.exclude(&5);
            }
            not_one_or_three(resource)
        });
        lease.expect("at every instant something acceptable was eligible").check();
        other.join().expect("no panic");
        drop(actor);
        let Ok(fleet) = Arc::try_unwrap(fleet) else { panic!("all threads are gone") };
        fleet.finish();
    });
}
