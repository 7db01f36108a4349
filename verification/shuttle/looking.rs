//! Looking, filtering and evicting while batches come and values change. No story here draws anything: a schedule is all
//! that a run depends on, so it can be pinned.

use leasehold::{
    Overflow,
    internals::sync::{Arc, thread},
};

use crate::{
    checker::demand,
    common::scenario,
    driver::{Actor, Fleet, Setup, Step},
    specification::Op,
};

const ONE: Setup = Setup { shards: 1, units: 1, by_load: false, room: 12, rules: false, period: 1 };

/// `work` in threads of their own, then quiescence.
fn together(fleet: Fleet, work: &[fn(&Fleet)]) {
    let fleet = Arc::new(fleet);
    let threads: Vec<_> = work
        .iter()
        .map(|&work| {
            let fleet = Arc::clone(&fleet);
            thread::spawn(move || work(&fleet))
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    let Ok(fleet) = Arc::try_unwrap(fleet) else { panic!("all threads are gone") };
    fleet.finish();
}

fn batch(fleet: &Fleet, keys: std::ops::Range<u8>) -> bool {
    fleet.scheduler.insert_batch(keys.map(|key| fleet.resource(key)).collect()).is_ok()
}

/// The best would be 0 and 1, but they are refused for want of room, when they are staged already: nobody ever sees them.
/// By affinity, because that looks once where a plain peek looks twice: whoever has seen something sees something again.
pub fn refused_batches() {
    let peek: fn(&Fleet) = |fleet| {
        let mut seen = false;
        for _ in 0..3 {
            let shown = fleet.scheduler.peek_by_affinity(&1).map(|shown| shown.check());
            assert!(shown.is_none_or(|key| key >= 4), "a batch that was refused was shown: {shown:?}");
            assert!(!seen || shown.is_some(), "what was there is there");
            seen |= shown.is_some() || fleet.scheduler.get(&5).is_some();
        }
    };
    let insert: fn(&Fleet) = |fleet| {
        assert!(batch(fleet, 4..6));
        assert!(!batch(fleet, 0..2), "there is room for one more");
    };
    let filter: fn(&Fleet) = |fleet| {
        assert!(fleet.scheduler.acquire_where(|resource| resource.key < 2).is_err());
    };
    let fleet = Fleet::with(ONE, |builder| builder.max_resources(3, Overflow::Reject));
    together(fleet, &[insert, peek, peek, filter]);
}

/// 0 is due, 1 is not.
fn one_due() -> Fleet {
    let fleet = Fleet::new(ONE);
    for (key, nanos) in [(0, 5), (1, 50)] {
        fleet.scheduler.insert(fleet.resource(key)).expect("new");
        fleet.scheduler.cool(&key, std::time::Duration::from_nanos(nanos)).expect("a member");
    }
    fleet.clock.advance(std::time::Duration::from_nanos(5));
    fleet
}

/// Who cools moves from one heap to the other under those who look, and is in one of them all the time.
pub fn deadlines() {
    let peek: fn(&Fleet) = |fleet| {
        for _ in 0..3 {
            let shown = fleet.scheduler.peek_by_affinity(&1).map(|shown| shown.check());
            assert_eq!(shown, Some(0), "due, or warm");
        }
    };
    let warm: fn(&Fleet) = |fleet| {
        fleet.scheduler.warm(&0).expect("a member");
    };
    together(one_due(), &[peek, peek, warm]);
}

/// Who was the first to be due makes place for the next, whose deadline has not come.
pub fn the_next_deadline() {
    let peek: fn(&Fleet) = |fleet| {
        for _ in 0..3 {
            let shown = fleet.scheduler.peek_by_affinity(&1).map(|shown| shown.check());
            assert_ne!(shown, Some(1), "it cools all the time");
        }
    };
    let exclude: fn(&Fleet) = |fleet| {
        fleet.scheduler.exclude(&0).expect("a member");
        fleet.scheduler.include(&0).expect("a member");
    };
    together(one_due(), &[peek, peek, exclude]);
}

/// Version 1 is acceptable, and always one of three has it; there are units for everybody.
pub fn changing_values() {
    let fleet = Fleet::new(Setup { shards: 2, units: 8, ..ONE });
    for key in 0..3 {
        fleet.scheduler.insert(fleet.resource(key)).expect("new");
    }
    let renew = |fleet: &Fleet, key: u8, version| {
        fleet.scheduler.update_with(&key, |old| old.again(version)).expect("a member");
    };
    renew(&fleet, 0, 1);
    let change: fn(&Fleet) = |fleet| {
        let renew = |key: u8, version| {
            fleet.scheduler.update_with(&key, |old| old.again(version)).expect("a member");
        };
        for key in 0..3 {
            renew((key + 1) % 3, 1);
            renew(key, 0);
        }
    };
    let filter: fn(&Fleet) = |fleet| {
        for _ in 0..2 {
            let lease = fleet.scheduler.acquire_where(|resource| resource.version == 1);
            assert_eq!(lease.expect("one of three is acceptable").version, 1, "it is what was accepted");
        }
    };
    together(fleet, &[change, filter, filter]);
}

/// Each program in a thread of its own; every answer must be explained.
pub fn judged(setup: Setup, before: &[Op], programs: &'static [&'static [Op]]) {
    let fleet = Arc::new(Fleet::new(setup));
    let mut main = Actor::new(&fleet, 0);
    before.iter().for_each(|&op| main.step(Step::Do(op)));
    let others: Vec<_> = (1..)
        .zip(programs)
        .map(|(number, ops)| {
            let fleet = Arc::clone(&fleet);
            thread::spawn(move || {
                let mut actor = Actor::new(&fleet, number);
                ops.iter().for_each(|&op| actor.step(Step::Do(op)));
                while actor.holds() {
                    actor.step(Step::Release);
                }
                actor.events
            })
        })
        .collect();
    let mut history: Vec<_> = others.into_iter().map(|other| other.join().expect("no panic")).collect();
    history.push(std::mem::take(&mut main.events));
    drop(main);
    let _ = demand(&fleet.specification(), &history);
    let Ok(fleet) = Arc::try_unwrap(fleet) else { panic!("all threads are gone") };
    fleet.finish();
}

/// The worst is the worst of what is there, a batch that has just come included.
pub fn evictions() {
    const PROGRAMS: &[&[Op]] =
        &[&[Op::InsertBatch(1, 4)], &[Op::Evict, Op::Evict], &[Op::Get(2), Op::Evict], &[Op::Acquire]];
    judged(ONE, &[Op::Insert(0)], PROGRAMS);
}

/// Nothing is ever eligible, and one of two is excluded at every instant: a "none" that tells of none excluded has counted at
/// two moments.
pub fn honest_reasons() {
    const FLIP: &[Op] =
        &[Op::Exclude(1), Op::Include(0), Op::Exclude(0), Op::Include(1), Op::Exclude(1), Op::Include(0)];
    const PROGRAMS: &[&[Op]] = &[FLIP, &[Op::Acquire, Op::Acquire], &[Op::Acquire]];
    let before = [Op::Insert(0), Op::Insert(1), Op::Drain(0), Op::Drain(1), Op::Exclude(0)];
    judged(Setup { shards: 2, ..ONE }, &before, PROGRAMS);
}

/// A batch that is committed and not yet absorbed, in a shard that a scan has passed; whoever has seen it takes the rest
/// away. The scan must look at what waits there a second time.
pub fn a_batch_behind_the_scan() {
    const PROGRAMS: &[&[Op]] = &[&[Op::InsertBatch(2, 1)], &[Op::Get(2), Op::Remove(1)], &[Op::Acquire]];
    judged(Setup { shards: 2, ..ONE }, &[Op::Insert(1)], PROGRAMS);
}

/// Their names are written out: the script reads them.
mod scenarios {
    use super::scenario;

    #[test]
    fn refused_batches() {
        scenario("refused_batches", super::refused_batches);
    }

    #[test]
    fn deadlines() {
        scenario("deadlines", super::deadlines);
    }

    #[test]
    fn the_next_deadline() {
        scenario("the_next_deadline", super::the_next_deadline);
    }

    #[test]
    fn changing_values() {
        scenario("changing_values", super::changing_values);
    }

    #[test]
    fn evictions() {
        scenario("evictions", super::evictions);
    }

    #[test]
    fn honest_reasons() {
        scenario("honest_reasons", super::honest_reasons);
    }

    #[test]
    fn a_batch_behind_the_scan() {
        scenario("a_batch_behind_the_scan", super::a_batch_behind_the_scan);
    }
}
