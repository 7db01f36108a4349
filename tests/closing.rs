//! What a closing promises, with the schedules that broke it pinned.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::{
    cell::Cell,
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use leasehold::{Dropped, Entry, Event, EventKind, Observer, Resource, Scheduler, internals::events::News};

/// By shard, the number that comes next; what was told, what was told as dropped.
#[derive(Default)]
struct Told {
    next: BTreeMap<u32, u64>,
    events: Vec<EventKind>,
    dropped: u64,
}

#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Told>>);

impl<K> Observer<K> for Recorder {
    fn on_event(&mut self, event: &Event<K>) {
        let mut told = self.0.lock().expect("no panic");
        let next = told.next.entry(event.shard).or_default();
        assert_eq!(event.sequence, *next, "what is missing was told before");
        *next += 1;
        told.events.push(event.kind);
    }

    fn on_drop(&mut self, dropped: Dropped) {
        let mut told = self.0.lock().expect("no panic");
        let next = told.next.entry(dropped.shard).or_default();
        assert_eq!(dropped.first, *next, "it begins where the last one ended");
        *next += dropped.count;
        told.dropped += dropped.count;
    }
}

/// Both dispatchers sleep while their inboxes fill; then the scheduler is closed. The last pump finds no room, and is the last.
#[test]
fn a_full_inbox_gets_the_tail_of_a_flush() {
    for _ in 0..20 {
        let recorders = [Recorder::default(), Recorder::default()];
        let builder = Scheduler::<Entry<u32, u32, ()>>::builder().shards(1).event_capacity(1);
        let [one, two] = recorders.clone();
        let fleet = builder.observer(one).observer(two).build().expect("in range");
        fleet.insert(Entry::new(1, 0, ())).expect("new");
        // Until both have slept for so long that they sleep long.
        thread::sleep(Duration::from_millis(30));
        for i in 0..32 {
            let _ = if i % 2 == 0 { fleet.exclude(&1) } else { fleet.include(&1) };
            fleet.pump_events(true);
        }
        fleet.close();
        let stats = fleet.stats();
        for recorder in &recorders {
            let told = recorder.0.lock().expect("no panic");
            assert_eq!(told.next.values().sum::<u64>(), stats.events_emitted + stats.events_dropped);
            assert_eq!(told.events.last(), Some(&EventKind::Closed), "everybody is told of the end");
        }
    }
}

thread_local! {
    /// Whether a key that is cloned in this thread waits for the gate.
    static STALLS: Cell<bool> = const { Cell::new(false) };
}

#[derive(Debug)]
struct Gate {
    reached: AtomicBool,
    open: AtomicBool,
}

#[derive(Debug)]
struct Key(u32, Arc<Gate>);

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Key {}

impl std::hash::Hash for Key {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl Clone for Key {
    fn clone(&self) -> Self {
        if STALLS.get() {
            self.1.reached.store(true, SeqCst);
            while !self.1.open.load(SeqCst) {
                thread::sleep(Duration::from_micros(100));
            }
        }
        Key(self.0, Arc::clone(&self.1))
    }
}

struct Numbered(u32, Arc<Gate>);

impl Resource for Numbered {
    type Key = Key;
    type Priority = u32;
    fn key(&self) -> Key {
        Key(self.0, Arc::clone(&self.1))
    }
    fn priority(&self, _: u32) -> u32 {
        self.0
    }
}

/// What is waited for by a flush that has just begun: it waits for a second at least.
const IN_TIME: Duration = Duration::from_millis(800);

/// What was told, how much there was to be told, and how long after the closing began the stalled event was complete at the latest.
struct Stalled {
    told: Told,
    total: u64,
    took: Duration,
}

/// One thread stalls between reserving an event and completing it; another one's events behind it are complete. `early`: it goes on
/// while the flush waits; otherwise after.
fn stalled(early: bool) -> Stalled {
    let gate = Arc::new(Gate { reached: AtomicBool::new(false), open: AtomicBool::new(false) });
    let recorder = Recorder::default();
    let builder = Scheduler::<Numbered>::builder().shards(1).event_capacity(64);
    let fleet = builder.observer(recorder.clone()).build().expect("in range");
    for key in 0..2 {
        assert!(fleet.insert(Numbered(key, Arc::clone(&gate))).is_ok());
    }
    let (total, took) = thread::scope(|scope| {
        let stalls = scope.spawn(|| {
            STALLS.set(true);
            let lease = fleet.acquire().expect("free");
            STALLS.set(false);
            let complete = Instant::now();
            drop(lease);
            complete
        });
        while !gate.reached.load(SeqCst) {
            thread::yield_now();
        }
        // Complete, and behind the other one's.
        drop(fleet.acquire().expect("free"));
        let (done, closed) = mpsc::channel();
        let begun = Instant::now();
        let fleet = &fleet;
        scope.spawn(move || {
            fleet.close();
            let stats = fleet.stats();
            let _ = done.send(stats.events_emitted + stats.events_dropped);
        });
        if early {
            thread::sleep(Duration::from_millis(50));
            gate.open.store(true, SeqCst);
        }
        let total = closed.recv().expect("closed");
        gate.open.store(true, SeqCst);
        (total, stalls.join().expect("no panic").duration_since(begun))
    });
    let told = std::mem::take(&mut *recorder.0.lock().expect("no panic"));
    Stalled { told, total, took }
}

#[test]
fn a_flush_waits_for_an_event_that_is_being_recorded() {
    // On a machine that stalls for longer than a flush waits the event comes too late: such a time says nothing.
    let mut attempts = (0..20).map(|_| stalled(true));
    let Stalled { told, .. } = attempts.find(|stalled| stalled.took < IN_TIME).expect("once it is in time");
    let count = |kind| told.events.iter().filter(|&&one| one == kind).count();
    assert_eq!(count(EventKind::Acquired), 2, "also those behind it: {:?}", told.events);
    assert!(count(EventKind::Released) >= 1);
    assert_eq!((count(EventKind::Closed), told.dropped), (1, 0));
}

#[test]
fn a_flush_tells_what_it_does_not_wait_for() {
    let Stalled { told, total, .. } = stalled(false);
    assert_eq!(told.dropped, 3, "two acquisitions and a return");
    assert_eq!(told.next.values().sum::<u64>(), total, "all of it was told");
    assert!(told.events.contains(&EventKind::Closed));
}

/// An event whose key cannot be cloned is a loss at once, and one that shows in the inbox of who is stuck.
#[test]
fn voids_are_counted_where_they_happen_and_bounded() {
    #[derive(PartialEq, Eq, Hash, Debug)]
    struct Fragile(u32);
    static BREAKS: AtomicBool = AtomicBool::new(false);
    impl Clone for Fragile {
        fn clone(&self) -> Self {
            assert!(!BREAKS.load(SeqCst), "told to");
            Fragile(self.0)
        }
    }
    struct One(u32);
    impl Resource for One {
        type Key = Fragile;
        type Priority = ();
        fn key(&self) -> Fragile {
            Fragile(self.0)
        }
        fn priority(&self, _: u32) {}
    }
    let fleet = Scheduler::<One>::builder().shards(1).event_capacity(1).build().expect("in range");
    let mut reader = fleet.event_reader().expect("there are events");
    assert!(fleet.insert(One(1)).is_ok());
    let before = fleet.stats().events_dropped;
    BREAKS.store(true, SeqCst);
    for i in 0..100 {
        let _ = if i % 2 == 0 { fleet.exclude(&Fragile(1)) } else { fleet.include(&Fragile(1)) };
        assert_eq!(fleet.stats().events_dropped - before, i + 1, "nobody has taken it out yet");
        fleet.pump_events(true);
    }
    let mut batches = 0;
    while reader.read(|_| true) {
        batches += 1;
    }
    assert!(batches <= 16, "an inbox is as bounded for batches that only tell of losses: {batches}");
    // And all of them are told in the end.
    let mut lost = 0;
    fleet.pump_events(true);
    while reader.read(|news| {
        if let News::Dropped(dropped) = news {
            lost += dropped.count;
        }
        true
    }) {}
    assert!(lost > 0, "what found no room is told of later");
}
