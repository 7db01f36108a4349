//! Observers: each in a thread of its own, told of everything or of exactly what is missing, and of nothing after the closing.
//!
//! The defects C18, C19, C20 and C26 of the Go scheduler are here.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, OnceLock, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use leasehold::{
    Closing, Dropped, Entry, Event,
    EventKind::{self, *},
    ManualClock, ObserveError, Observer, Overdue, Scheduler,
};

type Fleet = Scheduler<Entry<u32, u32, ()>>;

/// What an observer was told, by shard.
#[derive(Default)]
struct Told {
    next: BTreeMap<u32, u64>,
    events: Vec<Event<u32>>,
    dropped: u64,
}

impl Told {
    fn total(&self) -> u64 {
        self.next.values().sum()
    }
}

#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Told>>);

impl Observer<u32> for Recorder {
    fn on_event(&mut self, event: &Event<u32>) {
        let mut told = self.0.lock().expect("no panic");
        let next = told.next.entry(event.shard).or_default();
        assert_eq!(event.sequence, *next, "what is missing was told before");
        *next += 1;
        told.events.push(event.clone());
    }

    fn on_drop(&mut self, dropped: Dropped) {
        let mut told = self.0.lock().expect("no panic");
        let next = told.next.entry(dropped.shard).or_default();
        assert_eq!(dropped.first, *next, "it begins where the last one ended");
        *next += dropped.count;
        told.dropped += dropped.count;
    }
}

/// As a slow one, but one that can be let go.
struct Stuck(mpsc::Receiver<()>);

impl Observer<u32> for Stuck {
    fn on_event(&mut self, _: &Event<u32>) {
        let _ = self.0.recv();
    }
}

fn until(what: &str, condition: impl Fn() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < Duration::from_secs(20), "in vain: {what}");
        thread::sleep(Duration::from_micros(200));
    }
}

fn work(fleet: &Fleet, keys: u32) {
    for key in 0..keys {
        fleet.insert(Entry::new(key, key, ())).expect("new");
    }
    for _ in 0..keys {
        drop(fleet.acquire().expect("one is free"));
    }
}

#[test]
fn all_kinds_in_order() {
    let recorder = Recorder::default();
    let clock = Arc::new(ManualClock::new());
    let builder = Fleet::builder().shards(1).clock(clock.clone()).observer(recorder.clone());
    let fleet = builder.max_hold(Duration::from_secs(1)).overdue(Overdue::Report).build().expect("in range");
    fleet.insert(Entry::new(1, 0, ())).expect("new");
    let lease = fleet.acquire().expect("free");
    assert!(fleet.request().key(&1).timeout(Duration::ZERO).wait().is_err());
    clock.advance(Duration::from_secs(2));
    fleet.reap_overdue();
    drop(lease);
    fleet.close();
    let told = recorder.0.lock().expect("no panic");
    let of = |shard| told.events.iter().filter(move |event| event.shard == shard);
    let kinds: Vec<_> = of(0).map(|event| event.kind).collect();
    assert_eq!(kinds, [Inserted, Acquired, Overdue_, Released]);
    assert!(of(0).all(|event| event.key == Some(1)));
    let apart: Vec<_> = of(1).map(|event| (event.kind, event.key)).collect();
    assert_eq!(apart, [(WaitStarted, Some(1)), (WaitEnded, Some(1)), (Closed, None)]);
    assert_eq!(told.dropped, 0);
}

#[allow(non_upper_case_globals)]
const Overdue_: EventKind = EventKind::Overdue;

#[test]
fn c18_drops_are_counted_and_told() {
    let recorder = Recorder::default();
    let fleet =
        Fleet::builder().shards(2).event_capacity(4).observer(recorder.clone()).build().expect("in range");
    work(&fleet, 2_000);
    fleet.close();
    let (told, stats) = (recorder.0.lock().expect("no panic"), fleet.stats());
    assert!(stats.events_dropped > 0, "four places are not enough");
    assert_eq!(told.total(), stats.events_emitted + stats.events_dropped);
    assert_eq!(told.events.len() as u64, stats.events_emitted - stats.events_missed);
    assert_eq!(told.dropped, stats.events_dropped + stats.events_missed);
    assert_eq!(
        (stats.inserted, stats.lent, stats.returned),
        (2_000, 2_000, 2_000),
        "counts are exact all the same"
    );
}

#[test]
fn c19_a_panicking_observer_is_counted_and_alone() {
    let recorder = Recorder::default();
    let panicking = |event: &Event<u32>| assert_ne!(event.kind, Acquired, "told to");
    let builder = Fleet::builder().shards(1).event_capacity(1 << 14);
    let fleet = builder.observer(panicking).observer(recorder.clone()).build().expect("in range");
    work(&fleet, 50);
    fleet.close();
    assert_eq!(recorder.0.lock().expect("no panic").events.len(), 151);
    assert_eq!(fleet.stats().observer_panics, 50, "it is told of the next one after each panic");
}

#[test]
fn c19_a_slow_observer_delays_nobody() {
    let recorder = Recorder::default();
    let (let_go, stuck) = mpsc::channel();
    let builder = Fleet::builder().shards(1).event_capacity(64);
    let fleet = builder.observer(Stuck(stuck)).observer(recorder.clone()).build().expect("in range");
    let keys = 5_000;
    for key in 0..keys {
        fleet.insert(Entry::new(key, key, ())).expect("new");
        if key % 32 == 0 {
            // As many as the rings hold; the stuck one has room for sixteen times as many.
            until("the other one is told", || recorder.0.lock().expect("no panic").total() > u64::from(key));
        }
    }
    let stats = fleet.stats();
    assert!(stats.events_missed > 0, "its inbox is full");
    assert_eq!(stats.events_dropped, 0, "nobody else misses anything");
    assert_eq!(recorder.0.lock().expect("no panic").dropped, 0);
    drop(let_go);
    fleet.close();
}

#[test]
fn c20_nobody_is_called_after_the_closing() {
    for closing in [Closing::Flush, Closing::Discard] {
        let is_closed = Arc::new(AtomicBool::new(false));
        let count = Arc::new(AtomicU64::new(0));
        // Of one that discards the first is in its first event until the second one has ended, and with it this.
        let (held, let_go) = mpsc::channel::<()>();
        let observer = {
            let (is_closed, count) = (is_closed.clone(), count.clone());
            move |_: &Event<u32>| {
                let _ = let_go.recv();
                assert!(!is_closed.load(SeqCst), "called after the closing");
                thread::sleep(Duration::from_micros(50));
                count.fetch_add(1, SeqCst);
            }
        };
        let fleet =
            Fleet::builder().shards(1).event_capacity(4096).observer(observer).build().expect("in range");
        if closing == Closing::Discard {
            fleet.observe(move |_: &Event<u32>| _ = &held).expect("a thread");
        } else {
            drop(held);
        }
        work(&fleet, 400);
        let lease = fleet.acquire().expect("free");
        assert!(fleet.close_with(closing));
        is_closed.store(true, SeqCst);
        let told = count.load(SeqCst);
        drop(lease);
        thread::sleep(Duration::from_millis(30));
        assert_eq!((count.load(SeqCst), fleet.stats().observer_panics), (told, 0));
        match closing {
            Closing::Flush => assert_eq!(told, 1_202, "all that happened before"),
            Closing::Discard => assert!(told < 1_202, "not all"),
        }
        let later: Vec<_> = fleet.take_events(9_999).iter().map(|event| event.kind).collect();
        assert!(later.contains(&Released), "what happens later can be taken out");
        assert!(matches!(fleet.observe(|_: &Event<u32>| ()), Err(ObserveError::Closed)));
    }
}

#[test]
fn observers_call_back() {
    let fleet = Arc::new(Fleet::builder().shards(1).event_capacity(256).build().expect("in range"));
    let back: Weak<Fleet> = Arc::downgrade(&fleet);
    let seen = Arc::new(OnceLock::new());
    let observer = {
        let seen = seen.clone();
        move |event: &Event<u32>| {
            let Some(fleet) = back.upgrade() else { return };
            match (event.kind, event.key) {
                // Whoever is returned rests: as a user's own cooldown.
                (Released, Some(key)) => _ = fleet.cool(&key, Duration::from_secs(3600)),
                (Cooled, Some(_)) => {
                    let _ = seen.set(fleet.acquire().is_err());
                    assert!(fleet.close(), "also to close it");
                }
                _ => {}
            }
        }
    };
    fleet.observe(observer).expect("a thread");
    fleet.insert(Entry::new(1, 0, ())).expect("new");
    drop(fleet.acquire().expect("free"));
    until("the observer has closed", || fleet.is_closed());
    assert_eq!(seen.get(), Some(&true));
    assert!(!fleet.close(), "and this waits for it");
    assert_eq!(fleet.stats().observer_panics, 0);
}

#[test]
fn c26_observers_belong_to_the_scheduler() {
    // They are moved in, so nobody can exchange one later: that this is refused by the compiler is in the documentation of `Observer`. What
    // is left to see here is that the scheduler ends what it owns.
    struct Gone(mpsc::Sender<()>);
    impl Observer<u32> for Gone {
        fn on_event(&mut self, _: &Event<u32>) {}
    }
    impl Drop for Gone {
        fn drop(&mut self) {
            let _ = self.0.send(());
        }
    }
    let (sender, gone) = mpsc::channel();
    let fleet = Fleet::builder().observer(Gone(sender)).build().expect("in range");
    assert!(gone.try_recv().is_err(), "it lives");
    drop(fleet);
    assert_eq!(gone.recv(), Ok(()), "dropped with the scheduler, its thread waited for");
}

#[test]
fn without_room_there_are_no_events() {
    let fleet = Fleet::builder().build().expect("in range");
    let refused = fleet.observe(|_: &Event<u32>| ()).expect_err("no room");
    assert!(matches!(refused, ObserveError::NoEvents));
    assert_eq!(refused.to_string(), "the scheduler was built without room for events");
}

#[test]
fn one_who_comes_later_is_told_of_what_comes_then() {
    let fleet = Fleet::builder().shards(1).event_capacity(256).build().expect("in range");
    fleet.insert(Entry::new(1, 0, ())).expect("new");
    assert_eq!(fleet.take_events(9).len(), 1);
    let recorder = Arc::new(Mutex::new(Vec::new()));
    let late = recorder.clone();
    fleet
        .observe(move |event: &Event<u32>| late.lock().expect("no panic").push(event.kind))
        .expect("a thread");
    assert!(fleet.take_events(9).is_empty(), "they are the observer's now");
    drop(fleet.acquire().expect("free"));
    fleet.close();
    let mut kinds = recorder.lock().expect("no panic").clone();
    assert_eq!(kinds.pop(), Some(Closed));
    assert_eq!(kinds, [Acquired, Released]);
}

#[test]
fn events_read_no_clock() {
    struct Counting(AtomicU64);
    impl leasehold::Clock for Counting {
        fn now(&self) -> leasehold::Timestamp {
            leasehold::Timestamp::from_nanos(self.0.fetch_add(1, SeqCst))
        }
    }
    let reads = Arc::new(Counting(AtomicU64::new(0)));
    let told = Recorder::default();
    let builder = Fleet::builder().shards(2).clock(reads.clone()).event_capacity(1 << 10);
    let fleet = builder.observer(told.clone()).build().expect("in range");
    (0..8).for_each(|key| fleet.insert(Entry::new(key, key, ())).expect("new"));
    let before = reads.0.load(SeqCst);
    for _ in 0..100 {
        drop(fleet.acquire().expect("free"));
    }
    fleet.exclude(&1).expect("there");
    fleet.include(&1).expect("there");
    until("all is told", || told.0.lock().expect("no panic").total() == 8 + 200 + 2);
    assert_eq!(reads.0.load(SeqCst), before);
}
