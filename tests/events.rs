//! Events, taken out by hand: in order, one for each change, with a gap for each drop.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::{
    future::{Future, IntoFuture},
    hash::{Hash, Hasher},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use leasehold::{
    Ejection, Entry,
    EventKind::{self, *},
    ManualClock, Outcome, Overflow, Resource, Scheduler,
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

/// Keys that are cloned go another way than numbers, which takes a guard where the change is made: every place that makes an event has it.
#[test]
fn every_change_has_an_event_of_its_kind_also_if_keys_are_no_numbers() {
    type Key = Arc<str>;
    type Named = Scheduler<Entry<Key, u32, ()>>;
    let clock = Arc::new(ManualClock::new());
    let rules = Ejection::default().consecutive_failures(1).max_share(50).jitter(0).ramp(Duration::ZERO);
    let s = Named::builder()
        .shards(2)
        .clock(clock.clone())
        .ejection(rules)
        .event_capacity(256)
        .max_resources(5, Overflow::EvictWorst)
        .max_hold(Duration::from_secs(100))
        .build()
        .unwrap();
    let named = |key: &str, rank: u32| Entry::new(Key::from(key), rank, ());
    let second = Duration::from_secs(1);
    let told = |of: &str| {
        let events = s.take_events(99);
        assert!(
            events.iter().all(|event| event.key.as_deref().is_none_or(|key| key == of)),
            "{of}: {events:?}"
        );
        // Those of the fleet are in a ring of their own.
        events.into_iter().map(|event| event.kind).collect::<Vec<_>>()
    };
    s.insert(named("a", 0)).unwrap();
    assert_eq!(told("a"), [Inserted]);
    s.insert_batch(vec![named("b", 8), named("c", 9)]).unwrap();
    assert_eq!(
        s.take_events(9).iter().filter(|event| event.kind == Inserted && event.key.is_some()).count(),
        2
    );
    s.update(named("a", 1)).unwrap();
    s.update_with("a", |old| named(&old.key, 2)).unwrap();
    assert_eq!(told("a"), [Updated, Updated]);
    s.cool("a", second).unwrap();
    clock.advance(second);
    s.tick();
    assert_eq!(told("a"), [Cooled, Warmed], "a thaw");
    s.cool("a", second).unwrap();
    clock.advance(second);
    drop(s.acquire_key("a").unwrap());
    assert_eq!(told("a"), [Cooled, Warmed, Acquired, Released], "out of its turn");
    s.acquire_key("a").unwrap().release_after(second);
    s.warm("a").unwrap();
    assert_eq!(told("a"), [Acquired, Released, Cooled, Warmed]);
    s.acquire_key("a").unwrap().finish(Outcome::Failed);
    clock.advance(30 * second);
    s.tick();
    s.acquire_key("a").unwrap().finish(Outcome::Ok { latency: second });
    assert_eq!(told("a"), [Acquired, Released, Ejected, Readmitted, Acquired, Released], "by the rules");
    s.eject("a").unwrap();
    s.readmit("a").unwrap();
    s.exclude("a").unwrap();
    s.include("a").unwrap();
    s.drain("a").unwrap();
    s.undrain("a").unwrap();
    assert_eq!(told("a"), [Ejected, Readmitted, Excluded, Included, Drained, Undrained]);
    // By its token; and what comes back after the removal.
    let token = s.acquire_key("a").unwrap().into_token();
    s.release(token).unwrap();
    let lease = s.acquire_key("a").unwrap();
    s.remove("a").unwrap();
    drop(lease);
    s.insert(named("a", 2)).unwrap();
    assert_eq!(told("a"), [Acquired, Released, Acquired, Removed, Released, Inserted]);
    // Handed on, in one step; then taken back.
    let lease = s.acquire_key("a").unwrap();
    let key = Key::from("a");
    let mut waiting = std::pin::pin!(s.request().key(&key).into_future());
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(waiting.as_mut().poll(&mut context).is_pending());
    drop(lease);
    let std::task::Poll::Ready(Ok(mut lease)) = waiting.as_mut().poll(&mut context) else { panic!("free") };
    clock.advance(101 * second);
    s.reap_overdue();
    s.revoke(lease.token()).unwrap();
    drop(lease);
    let mut kinds = told("a");
    kinds.retain(|kind| ![WaitStarted, WaitEnded].contains(kind));
    assert_eq!(kinds, [Acquired, Released, Acquired, Overdue, Released], "handed on, overdue, revoked");
    // The worst makes room, twice.
    s.insert_batch(vec![named("d", 3), named("e", 4)]).unwrap();
    let _ = s.take_events(9);
    s.insert(named("f", 0)).unwrap();
    assert_eq!(s.evict_worst().as_deref(), Some("b"));
    let mut gone: Vec<_> =
        s.take_events(9).into_iter().map(|event| (event.kind, event.key.unwrap())).collect();
    gone.sort_by(|one, other| one.1.cmp(&other.1));
    assert_eq!(gone, [(Evicted, Key::from("b")), (Evicted, Key::from("c")), (Inserted, Key::from("f"))]);
    s.close();
    assert_eq!(s.take_events(9).into_iter().map(|event| event.kind).collect::<Vec<_>>(), [Closed]);
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

/// A key whose `Clone` panics while it is told to.
#[derive(Debug)]
struct Key(u32, Arc<AtomicBool>);

impl Clone for Key {
    fn clone(&self) -> Self {
        assert!(!self.1.load(SeqCst), "told to");
        Key(self.0, Arc::clone(&self.1))
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

struct Numbered(u32, Arc<AtomicBool>);

impl Resource for Numbered {
    type Key = Key;
    type Priority = ();
    fn key(&self) -> Key {
        Key(self.0, Arc::clone(&self.1))
    }
    fn priority(&self, _: u32) {}
}

/// One resource, lent once without its key.
fn with_a_void_event(capacity: usize) -> Scheduler<Numbered> {
    let panics = Arc::new(AtomicBool::new(false));
    let s = Scheduler::<Numbered>::builder().shards(1).event_capacity(capacity).build().unwrap();
    assert!(s.insert(Numbered(1, Arc::clone(&panics))).is_ok());
    panics.store(true, SeqCst);
    let lease = catch_unwind(AssertUnwindSafe(|| s.acquire().expect("free"))).expect("the panic stops there");
    panics.store(false, SeqCst);
    drop(lease);
    s
}

#[test]
fn a_key_that_cannot_be_cloned_leaves_a_gap() {
    let s = with_a_void_event(8);
    let events: Vec<_> = s.take_events(9).into_iter().map(|event| (event.kind, event.sequence)).collect();
    assert_eq!(events, [(Inserted, 0), (Released, 2)]);
    assert_eq!(s.stats().events_dropped, 1);
}

/// Whoever pumps is told that there is more, also if a part of what it has taken out is no event.
#[cfg(feature = "internals")]
#[test]
fn a_pump_that_ends_early_says_so() {
    let s = with_a_void_event(8_192);
    for _ in 0..2_100 {
        drop(s.acquire().expect("free"));
    }
    assert!(s.pump_events(true), "it takes 4,096 at once");
    assert!(!s.pump_events(true));
}
