//! Events, taken out by hand: in order, one for each change, with a gap for each drop.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    time::Duration,
};

use leasehold::{
    Entry,
    EventKind::{self, *},
    Overflow, Resource, Scheduler,
};

type Fleet = Scheduler<Entry<u32, u32, ()>>;

fn fleet(capacity: usize) -> Fleet {
    let builder = Fleet::builder().shards(1).event_capacity(capacity);
    builder.max_resources(2, Overflow::EvictWorst).build().unwrap()
}

#[test]
fn events_in_order_with_gaps() {
    let s = fleet(4);
    s.insert(Entry::new(1, 0, ())).unwrap();
    s.acquire().unwrap().release_after(Duration::from_secs(1));
    s.remove(&1).unwrap();
    let events = s.take_events(100);
    let kinds: Vec<_> = events.iter().map(|e| e.kind).collect();
    assert_eq!(kinds, [Inserted, Acquired, Released, Cooled]);
    assert_eq!(events.iter().map(|e| e.sequence).collect::<Vec<_>>(), [0, 1, 2, 3]);
    s.insert(Entry::new(2, 0, ())).unwrap();
    let e = s.take_events(1);
    assert_eq!((e[0].sequence, e[0].kind), (5, Inserted));
    let stats = s.stats();
    assert_eq!((stats.events_emitted, stats.events_dropped), (5, 1));
}

#[test]
fn every_change_has_an_event_of_its_kind() {
    let s = fleet(64);
    let mut expected: Vec<(EventKind, u32)> = Vec::new();
    s.insert_batch(vec![Entry::new(1, 5, ()), Entry::new(2, 6, ())]).unwrap();
    expected.extend([(Inserted, 1), (Inserted, 2)]);
    s.update(Entry::new(1, 4, ())).unwrap();
    expected.push((Updated, 1));
    let hold = Duration::from_secs(9);
    type Call = fn(&Fleet, Duration) -> bool;
    let calls: [(EventKind, Call); 8] = [
        (Excluded, |s, _| s.exclude(&1).unwrap()),
        (Included, |s, _| s.include(&1).unwrap()),
        (Cooled, |s, hold| s.cool(&1, hold).unwrap()),
        (Warmed, |s, _| s.warm(&1).unwrap()),
        (Ejected, |s, _| s.eject(&1).unwrap()),
        (Readmitted, |s, _| s.readmit(&1).unwrap()),
        (Drained, |s, _| s.drain(&1).unwrap()),
        (Undrained, |s, _| s.undrain(&1).unwrap()),
    ];
    for (kind, call) in calls {
        assert!(call(&s, hold), "{kind:?}");
        expected.push((kind, 1));
        assert!(kind == Cooled || !call(&s, hold), "{kind:?} again changes nothing, and is no event");
    }
    drop(s.acquire_key(&1).unwrap());
    expected.extend([(Acquired, 1), (Released, 1)]);
    // The fleet is full: the worst makes room.
    s.insert(Entry::new(3, 0, ())).unwrap();
    s.remove(&3).unwrap();
    expected.extend([(Evicted, 2), (Inserted, 3), (Removed, 3)]);
    let mut events = Vec::new();
    loop {
        let some = s.take_events(3);
        assert!(some.len() <= 3, "no more than asked for");
        if some.is_empty() {
            break;
        }
        events.extend(some);
    }
    let mut told: Vec<(EventKind, u32)> =
        events.iter().map(|event| (event.kind, event.key.expect("of a resource"))).collect();
    // Whether the newcomer comes before or after the one that makes room for it is not promised.
    let newcomer = told.iter().position(|&event| event == (Inserted, 3)).expect("an event");
    if told[newcomer + 1] == (Evicted, 2) {
        told.swap(newcomer, newcomer + 1);
    }
    assert_eq!(told, expected);
    assert!(events.iter().map(|event| event.sequence).eq(0..expected.len() as u64), "no gap");
    assert!(events.iter().all(|event| event.shard == 0));
    assert_eq!(s.stats().events_dropped, 0);
}

/// The number in an event is that of the state that the change has left.
#[test]
fn an_event_has_the_generation_of_its_state() {
    let s = fleet(64);
    s.insert(Entry::new(1, 5, ())).unwrap();
    let hold = Duration::from_secs(9);
    let calls: [(&[EventKind], &dyn Fn()); 12] = [
        (&[Inserted], &|| {}),
        (&[Updated], &|| assert!(s.update(Entry::new(1, 4, ())).is_ok())),
        (&[Excluded], &|| assert!(s.exclude(&1).unwrap())),
        (&[Included], &|| assert!(s.include(&1).unwrap())),
        (&[Cooled], &|| assert!(s.cool(&1, hold).unwrap())),
        (&[Warmed], &|| assert!(s.warm(&1).unwrap())),
        (&[Ejected], &|| assert!(s.eject(&1).unwrap())),
        (&[Readmitted], &|| assert!(s.readmit(&1).unwrap())),
        (&[Drained], &|| assert!(s.drain(&1).unwrap())),
        (&[Undrained], &|| assert!(s.undrain(&1).unwrap())),
        (&[Acquired], &|| {
            assert!(s.get(&1).is_some() && s.acquire().map(|lease| lease.into_token()).is_ok())
        }),
        (&[Cooled], &|| assert!(s.cool(&1, hold).unwrap())),
    ];
    let mut last = None;
    for (kinds, call) in calls {
        call();
        let events = s.take_events(9);
        assert!(events.iter().map(|event| &event.kind).eq(kinds), "{events:?}");
        let state = s.snapshot().into_iter().next().expect("a member");
        assert!(events.iter().all(|event| event.generation == state.generation), "{events:?}, {state:?}");
        last = Some(state.generation);
    }
    // All that can make it eligible has counted: an update, four ends of holds.
    assert_eq!(last, Some(5));
    s.remove(&1).unwrap();
    let events = s.take_events(9);
    assert_eq!(events.iter().map(|event| (event.kind, event.generation)).collect::<Vec<_>>(), [(Removed, 6)]);
}

#[test]
fn no_room_asked_for_no_events() {
    let s = fleet(0);
    s.insert(Entry::new(1, 0, ())).unwrap();
    assert!(s.take_events(9).is_empty());
    assert_eq!((s.stats().events_emitted, s.stats().events_dropped), (0, 0));
}

#[test]
fn a_key_that_cannot_be_cloned_leaves_a_gap() {
    #[derive(PartialEq, Eq, Hash, Debug)]
    struct Key(u32);
    struct Numbered(u32);
    static PANICS: AtomicBool = AtomicBool::new(false);
    impl Clone for Key {
        fn clone(&self) -> Self {
            assert!(!PANICS.load(SeqCst), "told to");
            Key(self.0)
        }
    }
    impl Resource for Numbered {
        type Key = Key;
        type Priority = ();
        fn key(&self) -> Key {
            Key(self.0)
        }
        fn priority(&self, _: u32) {}
    }
    let s = Scheduler::<Numbered>::builder().shards(1).event_capacity(8).build().unwrap();
    assert!(s.insert(Numbered(1)).is_ok());
    PANICS.store(true, SeqCst);
    let lease = catch_unwind(AssertUnwindSafe(|| s.acquire().expect("free"))).expect("the panic stops there");
    PANICS.store(false, SeqCst);
    drop(lease);
    let events: Vec<_> = s.take_events(9).into_iter().map(|event| (event.kind, event.sequence)).collect();
    assert_eq!(events, [(Inserted, 0), (Released, 2)]);
    assert_eq!(s.stats().events_dropped, 1);
}
