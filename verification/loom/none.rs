//! The honest "none" of an acquisition over two shards (`scheduler::acquire`, step A6).
//!
//! Key 0 lives in shard 0, key 1 in shard 1. In each arrangement the main thread makes one resource eligible behind a scan
//! and takes the other one away ahead of it, so that at every instant something is eligible: whoever acquires meanwhile
//! must get it. The specification refuses a "none" that no instant explains, and one whose counts are not of one instant.

use std::time::Duration;

use leasehold::internals::sync::Arc;

use crate::{
    common::{SHORT, model_within, race_within, steps},
    driver::{Actor, Fleet, Setup, Step, Step::Release},
    specification::Op::{self, *},
};

const TWO: Setup = Setup { shards: 2, units: 1, by_load: false, room: 12, rules: false, period: 1 };

/// `before`, then `main` against one acquisition.
fn never_none(bound: usize, before: &[Op], main: Vec<Step>) {
    race_within(bound, TWO, steps(before), vec![main, steps(&[Acquire])]);
}

#[test]
fn released_in_front_taken_at_the_back() {
    never_none(2, &[Insert(0), Insert(1), AcquireKey(0)], vec![Release, Step::Do(AcquireKey(1))]);
}

#[test]
fn released_at_the_back_taken_in_front() {
    never_none(2, &[Insert(0), Insert(1), AcquireKey(1)], vec![Release, Step::Do(AcquireKey(0))]);
}

#[test]
fn included_in_front_excluded_at_the_back() {
    never_none(2, &[Insert(0), Insert(1), Exclude(0)], steps(&[Include(0), Exclude(1)]));
}

#[test]
fn included_at_the_back_excluded_in_front() {
    never_none(2, &[Insert(0), Insert(1), Exclude(1)], steps(&[Include(1), Exclude(0)]));
}

#[test]
fn inserted_in_front_removed_at_the_back() {
    never_none(2, &[Insert(1)], steps(&[Insert(0), Remove(1)]));
}

#[test]
fn inserted_at_the_back_removed_in_front() {
    never_none(2, &[Insert(0)], steps(&[Insert(1), Remove(0)]));
}

#[test]
fn warmed_in_front_cooled_at_the_back() {
    never_none(2, &[Insert(0), Insert(1), Cool(0)], steps(&[Warm(0), Cool(1)]));
}

/// A batch commits, and what was there before goes.
#[test]
fn batch_in_front_removed_at_the_back() {
    never_none(1, &[Insert(1)], steps(&[InsertBatch(2, 1), Remove(1)]));
}

#[test]
fn batch_at_the_back_removed_in_front() {
    never_none(1, &[Insert(0)], steps(&[InsertBatch(3, 1), Remove(0)]));
}

/// The same with a third thread, which takes away what was there before as soon as it has seen the batch: not absorbed yet, it has
/// changed no shard since it became visible.
fn batch_seen_by_another(before: u8, batch: u8) {
    model_within(1, move || {
        let fleet = Arc::new(Fleet::new(TWO));
        let mut actor = Actor::new(&fleet, 0);
        actor.run(&steps(&[Insert(before)]));
        let one = {
            let fleet = Arc::clone(&fleet);
            crate::common::spawn(move || Actor::new(&fleet, 1).run(&steps(&[InsertBatch(batch, 1)])))
        };
        let two = {
            let fleet = Arc::clone(&fleet);
            crate::common::spawn(move || {
                fleet.scheduler.acquire().expect("at every instant one was eligible").check();
            })
        };
        if fleet.scheduler.get(&batch).is_some() {
            fleet.scheduler.exclude(&before).expect("a member");
        }
        one.join().expect("no panic");
        two.join().expect("no panic");
        drop(actor);
        let Ok(fleet) = Arc::try_unwrap(fleet) else { panic!("all threads are gone") };
        fleet.finish();
    });
}

#[test]
fn batch_in_front_seen_by_another() {
    batch_seen_by_another(1, 2);
}

#[test]
fn batch_at_the_back_seen_by_another() {
    batch_seen_by_another(0, 3);
}

/// Everything changes places twice.
#[test]
fn to_and_fro() {
    never_none(
        1,
        &[Insert(0), Insert(1), AcquireKey(0)],
        vec![Release, Step::Do(AcquireKey(1)), Step::Do(AcquireKey(0)), Release],
    );
}

/// Runs `main` against `other` on two resources, key 0 cooling until [`SHORT`].
fn cooling(
    bound: usize,
    main: impl Fn(&Fleet) + Send + Sync + 'static,
    other: impl Fn(&Fleet) -> bool + Send + Sync + Copy + 'static,
) {
    model_within(bound, move || {
        let fleet = Arc::new(Fleet::new(TWO));
        for key in 0..2 {
            fleet.scheduler.insert(fleet.resource(key)).expect("new");
        }
        assert!(fleet.scheduler.cool(&0, SHORT).expect("a member"));
        let thread = {
            let fleet = Arc::clone(&fleet);
            crate::common::spawn(move || assert!(other(&fleet), "at every instant something was eligible"))
        };
        main(&fleet);
        thread.join().expect("no panic");
        let Ok(fleet) = Arc::try_unwrap(fleet) else { panic!("all threads are gone") };
        fleet.finish();
    });
}

/// The deadline comes, then the other resource is taken for good.
fn expire_and_exclude(fleet: &Fleet) {
    fleet.clock.advance(SHORT);
    fleet.scheduler.exclude(&1).expect("a member");
}

#[test]
fn cooling_expires_in_front() {
    cooling(1, expire_and_exclude, |fleet| fleet.scheduler.acquire().is_ok());
}

/// As before, by the ring: the two ids begin at different shards.
#[test]
fn cooling_expires_by_affinity() {
    cooling(1, expire_and_exclude, |fleet| fleet.scheduler.acquire_by_affinity("id").is_ok());
}

/// As before, with a filter that refuses nothing.
#[test]
fn cooling_expires_with_filter() {
    cooling(1, expire_and_exclude, |fleet| fleet.scheduler.acquire_where(|_| true).is_ok());
}

/// The deadline is moved by one who cools again: a later one counts, and the earliest of the face with it.
#[test]
fn cooling_expires_and_another_begins() {
    cooling(
        1,
        |fleet| {
            fleet.clock.advance(SHORT);
            fleet.scheduler.cool(&1, Duration::from_secs(1)).expect("a member");
        },
        |fleet| fleet.scheduler.acquire().is_ok(),
    );
}

/// `main` against an acquisition that goes another way.
fn other_way(before: &'static [Op], main: &'static [Op], other: fn(&Fleet) -> bool) {
    model_within(1, move || {
        let fleet = Arc::new(Fleet::new(TWO));
        let perform = |ops: &[Op]| {
            let mut actor = crate::driver::Actor::new(&fleet, 0);
            actor.run(&steps(ops));
        };
        perform(before);
        let thread = {
            let fleet = Arc::clone(&fleet);
            crate::common::spawn(move || assert!(other(&fleet), "at every instant something was eligible"))
        };
        perform(main);
        thread.join().expect("no panic");
        let Ok(fleet) = Arc::try_unwrap(fleet) else { panic!("all threads are gone") };
        fleet.finish();
    });
}

#[test]
fn by_affinity() {
    other_way(&[Insert(0), Insert(1), Exclude(0)], &[Include(0), Exclude(1)], |fleet| {
        fleet.scheduler.acquire_by_affinity(&1).is_ok()
    });
}

#[test]
fn with_filter() {
    other_way(&[Insert(0), Insert(1), Exclude(0)], &[Include(0), Exclude(1)], |fleet| {
        fleet.scheduler.acquire_where(|_| true).is_ok()
    });
}

#[test]
fn with_filter_backwards() {
    other_way(&[Insert(0), Insert(1), Exclude(1)], &[Include(1), Exclude(0)], |fleet| {
        fleet.scheduler.acquire_where(|_| true).is_ok()
    });
}

/// A refusal must be of the value that was eligible: version 1 is acceptable, and always one of the two has it.
#[test]
fn with_filter_and_update() {
    other_way(&[Insert(0), Insert(1), UpdateWith(1)], &[UpdateWith(0), Update(1)], |fleet| {
        fleet.scheduler.acquire_where(|resource| resource.version == 1).is_ok()
    });
}
