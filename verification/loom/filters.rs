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
        let setup = Setup { shards: 2, units: 1, by_load: false, room: 12 };
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
