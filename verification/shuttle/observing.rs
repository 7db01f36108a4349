//! Events from the rings to readers, beside a fleet at work: whoever reads is told of everything, or exactly what is missing.

use leasehold::internals::{
    events::{News, Reader},
    sync::{Arc, thread},
};

use crate::{
    common::scenario,
    driver::{Fleet, Res, Setup},
};

const SHARDS: usize = 2;

/// Goes through a reader's news and holds them against each other.
struct Told {
    reader: Reader<Res>,
    next: [u64; SHARDS + 1],
    events: u64,
    dropped: u64,
}

impl Told {
    fn new(fleet: &Fleet) -> Self {
        let reader = fleet.scheduler.event_reader().expect("there are events");
        Told { reader, next: [0; SHARDS + 1], events: 0, dropped: 0 }
    }

    fn read(&mut self) -> bool {
        let Told { reader, next, events, dropped } = self;
        reader.read(|news| {
            match news {
                News::Event(event) => {
                    let next = &mut next[event.shard as usize];
                    assert_eq!(event.sequence, *next, "what is missing was told before");
                    *next += 1;
                    *events += 1;
                }
                News::Dropped(gap) => {
                    let next = &mut next[gap.shard as usize];
                    assert_eq!(gap.first, *next, "it begins where the last one ended");
                    *next += gap.count;
                    *dropped += gap.count;
                }
            }
            true
        })
    }
}

/// Three at work, one who reads all the time, one who is asleep until the end.
fn observed(capacity: usize) {
    let fleet = Fleet::with(
        Setup { shards: SHARDS, units: 1, by_load: false, room: 12, rules: false, period: 1 },
        |builder| builder.event_capacity(capacity),
    );
    let fleet = Arc::new(fleet);
    let (mut awake, mut asleep) = (Told::new(&fleet), Told::new(&fleet));
    for key in 0..3 {
        fleet.scheduler.insert(fleet.resource(key)).expect("new");
    }
    let works: [fn(&Fleet); 3] = [
        |fleet| drop((fleet.scheduler.acquire(), fleet.scheduler.acquire())),
        |fleet| {
            let _ = fleet.scheduler.exclude(&1);
            let _ = fleet.scheduler.include(&1);
        },
        |fleet| {
            let _ = fleet.scheduler.remove(&2);
            fleet.scheduler.close();
        },
    ];
    let workers = works.map(|work| {
        let fleet = Arc::clone(&fleet);
        thread::spawn(move || work(&fleet))
    });
    let reader = {
        let fleet = Arc::clone(&fleet);
        thread::spawn(move || {
            for _ in 0..4 {
                fleet.scheduler.pump_events(false);
                while awake.read() {}
                thread::yield_now();
            }
            awake
        })
    };
    workers.into_iter().for_each(|worker| worker.join().expect("no panic"));
    let awake = reader.join().expect("no panic");
    fleet.scheduler.pump_events(true);
    let stats = fleet.scheduler.stats();
    for mut told in [awake, std::mem::replace(&mut asleep, Told::new(&fleet))] {
        while told.read() {}
        assert_eq!(told.next.iter().sum::<u64>(), stats.events_emitted + stats.events_dropped);
        assert_eq!(told.events + told.dropped, stats.events_emitted + stats.events_dropped);
        assert!(told.dropped <= stats.events_dropped + stats.events_missed, "each drop was counted");
    }
    drop(asleep);
    let Ok(fleet) = Arc::try_unwrap(fleet) else { panic!("all threads are gone") };
    fleet.finish();
}

#[test]
fn observed_with_room() {
    scenario("observed_with_room", || observed(16));
}

#[test]
fn observed_without() {
    scenario("observed_without", || observed(1));
}
