//! A closing that flushes: every reader is told of everything below the mark, whoever pumps and whoever is still recording.
//!
//! The steps are those of `events::flush`. What a dispatcher does in a flush is done here by the main thread: T1 and T2, again and
//! again. Its threads and their joining are not in the model.

use leasehold::{
    Event, EventKind,
    internals::{
        events::{News, Reader},
        sync::{Arc, thread},
    },
};

use crate::{
    common::{model_within, steps},
    driver::{Actor, Fleet, Res, Setup, Step},
    specification::Op::*,
};

/// Events that an inbox has room for when each ring has one place.
const BACKLOG: usize = 16;

/// What one reader was told: by ring, the next sequence number.
struct Told {
    reader: Reader<Res>,
    next: [u64; 2],
    events: Vec<Event<u8>>,
}

impl Told {
    fn new(fleet: &Fleet) -> Self {
        let reader = fleet.scheduler.event_reader().expect("there are events");
        Told { reader, next: [0; 2], events: Vec::new() }
    }

    /// All batches that are there.
    fn read(&mut self) {
        let Told { reader, next, events } = self;
        while reader.read(|news| {
            let (shard, first, count) = match news {
                News::Event(event) => {
                    events.push(event.clone());
                    (event.shard, event.sequence, 1)
                }
                News::Dropped(gap) => (gap.shard, gap.first, gap.count),
            };
            assert_eq!(first, next[shard as usize], "it begins where the last one ended");
            next[shard as usize] += count;
            true
        }) {}
    }

    /// T1 and T2, until done.
    fn flush(&mut self, fleet: &Fleet) {
        loop {
            fleet.scheduler.pump_events(true);
            self.read();
            if self.reader.is_through() {
                break;
            }
            thread::yield_now();
        }
    }

    fn was_told_of_the_end(&self) -> bool {
        self.events.iter().any(|event| event.kind == EventKind::Closed)
    }
}

fn gone(fleet: Arc<Fleet>) {
    let Ok(fleet) = Arc::try_unwrap(fleet) else { panic!("all threads are gone") };
    fleet.finish();
}

/// Both inboxes are full when the scheduler is closed, and somebody pumps at any moment of that.
#[test]
fn a_full_inbox() {
    model_within(2, || {
        let setup = Setup { shards: 1, ..Setup::default() };
        let fleet = Arc::new(Fleet::with(setup, |builder| builder.event_capacity(1)));
        let mut readers = [Told::new(&fleet), Told::new(&fleet)];
        let mut actor = Actor::new(&fleet, 0);
        actor.run(&steps(&[Insert(0)]));
        fleet.scheduler.pump_events(true);
        for _ in 0..BACKLOG / 2 {
            for change in [Exclude(0), Include(0)] {
                actor.run(&steps(&[change]));
                fleet.scheduler.pump_events(true);
            }
        }
        drop(actor);
        let closer = {
            let fleet = Arc::clone(&fleet);
            crate::common::spawn(move || assert!(fleet.scheduler.close()))
        };
        fleet.scheduler.pump_events(false);
        closer.join().expect("no panic");
        for told in &mut readers {
            told.flush(&fleet);
            assert_eq!(told.next[0], 1 + BACKLOG as u64, "each was told of, or that it was dropped");
            assert!(told.was_told_of_the_end(), "whoever took it out of its ring");
        }
        drop(readers);
        gone(fleet);
    });
}

/// A fleet that was closed while somebody recorded an event; one who reads, the recorder, and how many events had a number before.
fn closed_while_recording() -> (Arc<Fleet>, Told, thread::JoinHandle<()>, u64) {
    let setup = Setup { shards: 1, ..Setup::default() };
    let fleet = Arc::new(Fleet::with(setup, |builder| builder.event_capacity(4)));
    let told = Told::new(&fleet);
    Actor::new(&fleet, 0).run(&steps(&[Insert(0)]));
    let recorder = {
        let fleet = Arc::clone(&fleet);
        const EXCLUDE: &[Step] = &[Step::Do(Exclude(0))];
        crate::common::spawn(move || Actor::new(&fleet, 1).run(EXCLUDE))
    };
    let stats = fleet.scheduler.stats_by_shard();
    let before = stats[0].events_emitted + stats[0].events_dropped;
    assert!(fleet.scheduler.close());
    (fleet, told, recorder, before)
}

/// Somebody records an event while the scheduler is closed: what has got a number before the mark is told.
#[test]
fn one_who_records() {
    model_within(2, || {
        let (fleet, mut told, recorder, before) = closed_while_recording();
        told.flush(&fleet);
        assert!(told.next[0] >= before, "everything that was numbered before was told of");
        assert!(told.was_told_of_the_end());
        recorder.join().expect("no panic");
        drop(told);
        gone(fleet);
    });
}

/// An event that never becomes complete: whoever gives up tells of it.
#[test]
fn one_who_gives_up() {
    model_within(2, || {
        let (fleet, mut told, recorder, before) = closed_while_recording();
        // No patience at all.
        fleet.scheduler.pump_events(true);
        told.read();
        let mut lost = 0;
        let Told { reader, next, .. } = &mut told;
        if !reader.is_through() {
            reader.give_up(|news| {
                let News::Dropped(gap) = news else { panic!("nothing else is told here") };
                assert_eq!(gap.first, next[gap.shard as usize], "it begins where the last one ended");
                next[gap.shard as usize] += gap.count;
                lost += gap.count;
                true
            });
        }
        assert!(told.next[0] >= before && told.next[1] >= 1, "everything below the mark was told of");
        recorder.join().expect("no panic");
        // It is still there, once.
        let left = fleet.scheduler.stats().events_emitted - told.events.len() as u64;
        assert!(left >= lost, "what was given up was not lost to others");
        drop(told);
        gone(fleet);
    });
}
