//! The ring of events (`events::ring`): what is taken out is complete, in the order of the transitions, and what found no room
//! is counted and shows as a gap.
//!
//! And the way from the rings to readers (`events::hub`): each is told the same, in the same order, and exactly what is missing.
//!
//! The payload is plain memory in the facade's cell: a consumer that sees an incomplete event, or a producer that reuses a
//! slot too early, is a race that loom reports.

use std::sync::Mutex;

use leasehold::{
    Entry, Event, EventKind, ManualClock, Scheduler,
    internals::{
        events::{News, Reader},
        sync::{Arc, thread},
    },
};

use crate::{
    common::{model_within, steps},
    driver::{Actor, Fixed, Fleet, Res, Setup, Step, Step::Release},
    specification::Op::{self, *},
};

type Taken = Vec<Event<u8>>;

fn in_order(events: &[Event<u8>]) {
    for shard in 0..2 {
        let of_shard = events.iter().filter(|event| event.shard == shard);
        assert!(
            of_shard.is_sorted_by(|a, b| a.sequence < b.sequence),
            "the order is that of the transitions"
        );
    }
}

/// `before`, then each of `programs` in a thread of its own, the last one against `takes` attempts of the main thread to take
/// at most `max` events; afterwards the rest is taken.
fn taking(
    bound: usize,
    (shards, capacity): (usize, usize),
    before: &'static [Op],
    programs: &'static [&'static [Step]],
    (takes, max): (usize, usize),
    judge: fn(&Taken),
) {
    model_within(bound, move || {
        let setup = Setup { shards, ..Setup::default() };
        let fleet = Arc::new(Fleet::with(setup, |builder| builder.event_capacity(capacity)));
        Actor::new(&fleet, 0).run(&steps(before));
        let mut taken = fleet.scheduler.take_events(usize::MAX);
        let others: Vec<_> = programs
            .iter()
            .zip(1..)
            .map(|(program, number)| {
                let fleet = Arc::clone(&fleet);
                crate::common::spawn(move || {
                    let mut actor = Actor::new(&fleet, number);
                    actor.run(program);
                    while actor.holds() {
                        actor.step(Release);
                    }
                })
            })
            .collect();
        for _ in 0..takes {
            let some = fleet.scheduler.take_events(max);
            assert!(some.len() <= max * shards);
            taken.extend(some);
        }
        others.into_iter().for_each(|other| other.join().expect("no panic"));
        taken.extend(fleet.scheduler.take_events(usize::MAX));
        finish(fleet, &taken);
        judge(&taken);
    });
}

/// Nothing is left, nothing is lost without a count, nothing comes twice.
fn finish(fleet: Arc<Fleet>, taken: &Taken) {
    in_order(taken);
    assert!(fleet.scheduler.take_events(1).is_empty());
    let stats = fleet.scheduler.stats();
    assert_eq!(stats.events_emitted, taken.len() as u64, "what was emitted is taken, once");
    for shard in 0..2 {
        let last = taken.iter().filter(|event| event.shard == shard).map(|event| event.sequence).max();
        let here = taken.iter().filter(|event| event.shard == shard).count() as u64;
        let gaps = last.map_or(0, |last| last + 1 - here);
        assert!(gaps <= stats.events_dropped, "each gap was counted");
    }
    let Ok(fleet) = Arc::try_unwrap(fleet) else { panic!("all threads are gone") };
    fleet.finish();
}

const LEND_TWICE: &[Step] = &[Step::Do(Acquire), Release, Step::Do(Acquire), Release];

/// Room enough: all events, in their order.
#[test]
fn take_acquire_release() {
    taking(2, (1, 8), &[Insert(0)], &[LEND_TWICE], (2, usize::MAX), |taken| {
        let kinds: Vec<_> = taken.iter().map(|event| event.kind).collect();
        let [acquired, released] = [EventKind::Acquired, EventKind::Released];
        assert_eq!(kinds, [EventKind::Inserted, acquired, released, acquired, released]);
        assert!(taken.iter().all(|event| event.key == Some(0)));
        assert!(taken.is_sorted_by_key(|event| event.generation));
    });
}

/// One slot, used again and again.
#[test]
fn wrap_around_of_one() {
    taking(2, (1, 1), &[Insert(0)], &[LEND_TWICE], (3, usize::MAX), |_| ());
}

/// Two slots, taken out one by one.
#[test]
fn wrap_around_of_two() {
    taking(2, (1, 2), &[Insert(0)], &[LEND_TWICE], (2, 1), |_| ());
}

/// Two producers of one shard: tickets are in the order of the transitions, completion is not.
#[test]
fn two_producers() {
    const EXCLUDE: &[Step] = &[Step::Do(Exclude(0))];
    const COOL: &[Step] = &[Step::Do(Cool(1))];
    taking(1, (1, 4), &[Insert(0), Insert(1)], &[EXCLUDE, COOL], (2, usize::MAX), |taken| {
        assert_eq!(taken.len(), 4);
        assert!(taken.iter().all(|event| match event.kind {
            EventKind::Excluded => event.key == Some(0),
            EventKind::Cooled => event.key == Some(1),
            _ => true,
        }));
    });
}

/// Nobody takes: two producers, two slots, three events.
#[test]
fn full_under_two_producers() {
    const LEND: &[Step] = &[Step::Do(AcquireKey(0)), Release];
    const COOL: &[Step] = &[Step::Do(Cool(1))];
    taking(2, (1, 2), &[Insert(0), Insert(1)], &[LEND, COOL], (0, 0), |taken| {
        assert_eq!(taken.iter().filter(|event| event.kind != EventKind::Inserted).count(), 2);
    });
}

/// The event is completed after the unlock, when the resource may be gone: its node must not be.
#[test]
fn completed_after_the_removal() {
    const EXCLUDE: &[Step] = &[Step::Do(Exclude(0))];
    const REMOVE: &[Step] = &[Step::Do(Remove(0))];
    taking(2, (1, 4), &[Insert(0)], &[EXCLUDE, REMOVE], (0, 0), |_| ());
}

#[test]
fn completed_after_the_return_of_a_removed_one() {
    const LEND: &[Step] = &[Step::Do(AcquireKey(0)), Release];
    const REMOVE: &[Step] = &[Step::Do(Remove(0))];
    taking(2, (1, 8), &[Insert(0)], &[LEND, REMOVE], (1, usize::MAX), |_| ());
}

/// A key that is a number: an event is complete in the critical section that makes it. The drivers' resources have keys of one byte, which
/// go the long way in a model; these have not.
fn plain_keys(capacity: usize, max: usize) {
    model_within(2, move || {
        // Nothing random: an execution repeats.
        let builder = Scheduler::<Entry<u32, u32, ()>>::builder().shards(1).hasher(Fixed).seed(7);
        let builder =
            builder.clock(Arc::new(ManualClock::new())).expected_resources(4).event_capacity(capacity);
        let fleet = Arc::new(builder.build().expect("in range"));
        fleet.insert(Entry::new(7, 0, ())).expect("new");
        let other = {
            let fleet = Arc::clone(&fleet);
            crate::common::spawn(move || (0..2).for_each(|_| drop(fleet.acquire().expect("it is free"))))
        };
        let mut taken = fleet.take_events(max);
        taken.extend(fleet.take_events(max));
        other.join().expect("no panic");
        taken.extend(fleet.take_events(usize::MAX));
        let stats = fleet.stats();
        assert_eq!(taken.len() as u64, stats.events_emitted, "each once");
        assert_eq!(stats.events_emitted + stats.events_dropped, 5, "all are numbered");
        assert!(
            taken.is_sorted_by(|a, b| a.sequence < b.sequence)
                && taken.iter().all(|event| event.key == Some(7))
        );
    });
}

#[test]
fn plain_keys_in_one_slot() {
    plain_keys(1, usize::MAX);
}

#[test]
fn plain_keys_one_by_one() {
    plain_keys(2, 1);
}

/// Two consumers: no event goes to both.
#[test]
fn two_consumers() {
    model_within(2, || {
        let fleet = Arc::new(Fleet::with(Setup::default(), |builder| builder.event_capacity(2)));
        fleet.scheduler.insert(fleet.resource(0)).expect("new");
        let take = |fleet: &Arc<Fleet>| -> thread::JoinHandle<Taken> {
            let fleet = Arc::clone(fleet);
            crate::common::spawn(move || fleet.scheduler.take_events(usize::MAX))
        };
        let other = take(&fleet);
        // In any order: whoever comes too late finds nothing.
        let all = Mutex::new(fleet.scheduler.take_events(usize::MAX));
        fleet.scheduler.exclude(&0).expect("a member");
        all.lock().expect("no panic").extend(other.join().expect("no panic"));
        let mut all = all.into_inner().expect("no panic");
        all.extend(fleet.scheduler.take_events(usize::MAX));
        all.sort_by_key(|event| event.sequence);
        assert_eq!(all.len(), 2);
        finish(fleet, &all);
    });
}

/// Somebody reads the counts again and again while events are dropped, taken out and recorded: no count runs backwards, nor ahead of what
/// has happened.
#[test]
fn counts_do_not_run_backwards() {
    model_within(2, || {
        let fleet = Arc::new(Fleet::with(Setup::default(), |builder| builder.event_capacity(1)));
        for key in 0..2 {
            fleet.scheduler.insert(fleet.resource(key)).expect("new");
        }
        let other = {
            let fleet = Arc::clone(&fleet);
            crate::common::spawn(move || {
                let taken = fleet.scheduler.take_events(usize::MAX).len();
                fleet.scheduler.exclude(&0).expect("a member");
                taken
            })
        };
        let counts = || {
            let stats = fleet.scheduler.stats();
            (stats.events_emitted, stats.events_dropped)
        };
        let (first, second) = (counts(), counts());
        let taken = other.join().expect("no panic") + fleet.scheduler.take_events(usize::MAX).len();
        let last = counts();
        assert_eq!((last, taken), ((2, 1), 2), "the second newcomer's event was dropped");
        for (before, after) in [(first, second), (second, last)] {
            assert!(before.0 <= after.0 && before.1 <= after.1, "{before:?}, {after:?}");
        }
        let Ok(fleet) = Arc::try_unwrap(fleet) else { panic!("all threads are gone") };
        fleet.finish();
    });
}

/// What one reader was told, and how far it got.
struct Told {
    reader: Reader<Res>,
    events: Taken,
    /// Of the one shard: the next sequence number, by what was told.
    next: u64,
    dropped: u64,
}

impl Told {
    fn new(fleet: &Fleet) -> Self {
        let reader = fleet.scheduler.event_reader().expect("there are events");
        Told { reader, events: Vec::new(), next: 0, dropped: 0 }
    }

    /// One batch.
    fn read(&mut self) {
        let Told { reader, events, next, dropped } = self;
        let _ = reader.read(|news| {
            match news {
                News::Event(event) => {
                    assert_eq!(event.sequence, *next, "what is missing was told before");
                    *next += 1;
                    events.push(event.clone());
                }
                News::Dropped(gap) => {
                    assert_eq!((gap.shard, gap.first), (0, *next), "it begins where the last one ended");
                    *next += gap.count;
                    *dropped += gap.count;
                }
            }
            true
        });
    }

    /// What is left, with nothing going on.
    fn finish(&mut self, fleet: &Fleet) {
        fleet.scheduler.pump_events(true);
        (0..8).for_each(|_| self.read());
        let stats = fleet.scheduler.stats();
        assert_eq!(self.next, stats.events_emitted + stats.events_dropped, "everything was told of");
        assert_eq!(self.events.len() as u64 + self.dropped, self.next);
    }
}

/// One thread lends, another one pumps and reads, the main thread does the same.
fn observing(bound: usize, capacity: usize, program: &'static [Step], judge: fn(&Told)) {
    model_within(bound, move || {
        let setup = Setup { shards: 1, ..Setup::default() };
        let fleet = Arc::new(Fleet::with(setup, |builder| builder.event_capacity(capacity)));
        let (mut mine, mut theirs) = (Told::new(&fleet), Told::new(&fleet));
        Actor::new(&fleet, 0).run(&steps(&[Insert(0)]));
        let lender = {
            let fleet = Arc::clone(&fleet);
            crate::common::spawn(move || Actor::new(&fleet, 1).run(program))
        };
        let other = {
            let fleet = Arc::clone(&fleet);
            crate::common::spawn(move || {
                fleet.scheduler.pump_events(false);
                theirs.read();
                theirs
            })
        };
        fleet.scheduler.pump_events(false);
        mine.read();
        lender.join().expect("no panic");
        let mut theirs = other.join().expect("no panic");
        for told in [&mut mine, &mut theirs] {
            told.finish(&fleet);
            judge(told);
        }
        assert_eq!(mine.events, theirs.events, "both are told the same");
        drop((mine, theirs));
        let Ok(fleet) = Arc::try_unwrap(fleet) else { panic!("all threads are gone") };
        fleet.finish();
    });
}

/// Room enough: both readers are told of everything.
#[test]
fn two_readers() {
    const LEND: &[Step] = &[Step::Do(Acquire), Release];
    observing(2, 4, LEND, |told| assert_eq!((told.events.len(), told.dropped), (3, 0)));
}

/// One slot: what is dropped is told of, also if nothing follows it.
#[test]
fn drops_are_told() {
    const LEND: &[Step] = &[Step::Do(Acquire), Release];
    observing(2, 1, LEND, |told| assert_eq!(told.next, 3));
}
