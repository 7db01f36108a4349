//! The k-th call of an observer panics, for every k.
//!
//! Observers have threads of their own. So a panic of one must cost nothing but what it made of that call: it is counted, the same
//! observer is told of the next event, others of all, and whoever works with the fleet notices nothing.

use std::{
    panic::panic_any,
    sync::{Arc, Mutex, PoisonError, Weak, mpsc},
    time::{Duration, Instant},
};

use leasehold::{Dropped, Event, ManualClock, Observer};

use super::{
    contain,
    model::{Key, Ledger, Op, Plan, Planted, Scheduler, Site, settle},
    panics::{Run, script, setting},
    quiet,
};

/// Which call panics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fails {
    Never,
    Event(u64),
    Dropped(u64),
    /// The observer's `Drop`.
    End,
}

/// What an observer was told: shard, number of the first event, how many were dropped from there on, if they were.
type Told = Arc<Mutex<Vec<(u32, u64, Option<u64>)>>>;

struct Watcher {
    told: Told,
    fails: Fails,
    events: u64,
    drops: u64,
}

impl Watcher {
    fn new(fails: Fails) -> (Self, Told) {
        let told = Told::default();
        (Watcher { told: Arc::clone(&told), fails, events: 0, drops: 0 }, told)
    }

    fn note(&self, shard: u32, first: u64, dropped: Option<u64>) {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).push((shard, first, dropped));
    }

    fn fail_if(&self, fails: Fails) {
        if self.fails == fails {
            panic_any(Planted(Site::Observer));
        }
    }
}

impl Observer<Key> for Watcher {
    fn on_event(&mut self, event: &Event<Key>) {
        self.note(event.shard, event.sequence, None);
        self.events += 1;
        self.fail_if(Fails::Event(self.events));
    }

    fn on_drop(&mut self, dropped: Dropped) {
        self.note(dropped.shard, dropped.first, Some(dropped.count));
        self.drops += 1;
        self.fail_if(Fails::Dropped(self.drops));
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.fail_if(Fails::End);
    }
}

/// Everything was told once, in the order of its shard: how many calls there were for events, and for gaps.
fn demand_all(told: &Told, all: u64) -> (u64, u64) {
    let told = told.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut next, mut calls) = ([0; 3], (0, 0));
    for &(shard, first, dropped) in told.iter() {
        let next = &mut next[shard as usize];
        assert_eq!(first, *next, "what comes next in shard {shard}");
        *next += dropped.unwrap_or(1);
        *if dropped.is_some() { &mut calls.1 } else { &mut calls.0 } += 1;
    }
    assert_eq!(next.iter().sum::<u64>(), all, "everything was told");
    calls
}

/// Waits until a panic was counted. Observers look every 16 ms at least.
fn wait_for_panic(fleet: &Scheduler) {
    let end = Instant::now() + Duration::from_secs(10);
    while fleet.stats().observer_panics == 0 {
        assert!(Instant::now() < end, "the panic was not counted");
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Runs the script under the eyes of two observers, of which one may fail; how many calls that one got, for events and for gaps, and
/// whether it failed.
fn run(capacity: usize, fails: Fails, ops: &[Op]) -> (u64, u64, bool) {
    let (clock, ledger) = (Arc::new(ManualClock::new()), Arc::new(Ledger::default()));
    let ((watcher, told), (other, told_other)) = (Watcher::new(fails), Watcher::new(Fails::Never));
    let (config, _) = setting(Plan::Exact, None);
    let builder = config.builder(&clock).event_capacity(capacity).observer(watcher).observer(other);
    let fleet = builder.build().expect("settings in range");
    let mut run = Run::new(&fleet, &clock, &ledger);
    for op in ops {
        assert!(!contain(|| run.apply(op)), "a bystander has met the panic, in {op:?}");
        let _ = fleet.check_invariants();
    }
    if matches!(fails, Fails::Event(k) if k <= fleet.stats().events_emitted) {
        wait_for_panic(&fleet);
    }
    let seen = run.seen();
    run.use_every_shard();
    assert_eq!(run.seen(), seen, "using every shard changes nothing");
    run.give_back();
    assert!(fleet.close());
    assert_eq!(run.seen().in_flight, 0);
    drop(run);
    let stats = fleet.stats();
    let all = stats.events_emitted + stats.events_dropped;
    let (events, drops) = demand_all(&told, all);
    demand_all(&told_other, all);
    let fired = match fails {
        Fails::Never => false,
        Fails::Event(k) => events >= k,
        Fails::Dropped(k) => drops >= k,
        // Not a call for anything that has happened.
        Fails::End => true,
    };
    assert_eq!(stats.observer_panics, u64::from(fired && fails != Fails::End), "{fails:?}");
    drop(fleet);
    settle(&ledger, 0..=0);
    (events, drops, fired)
}

#[test]
fn an_observer_may_panic_at_every_event() {
    quiet();
    let ops = script();
    let (events, drops, _) = run(512, Fails::Never, &ops);
    assert!(events > 50 && drops == 0, "{events} events, {drops} gaps");
    for k in 1..=events {
        assert!(run(512, Fails::Event(k), &ops).2, "call {k} of {events}");
    }
    run(512, Fails::End, &ops);
}

/// How many gaps there are is a matter of who is faster: as far as they go.
#[test]
fn an_observer_may_panic_at_every_gap() {
    quiet();
    let ops = script();
    let fired = (1..=50).take_while(|&k| run(1, Fails::Dropped(k), &ops).2).count();
    println!("{fired} planted panics");
    assert!(fired > 0, "no gap was told");
}

/// Calls the scheduler back, and fails with a lease in its hand.
struct Caller {
    fleet: Weak<Scheduler>,
    fail_at: u64,
    events: u64,
    /// Whether there is a lease in its hand.
    met: mpsc::Sender<bool>,
}

impl Observer<Key> for Caller {
    fn on_event(&mut self, _: &Event<Key>) {
        self.events += 1;
        if self.events == self.fail_at
            && let Some(fleet) = self.fleet.upgrade()
        {
            let lease = fleet.acquire_owned();
            let _seen = fleet.peek();
            let _ = self.met.send(lease.is_ok());
            panic_any(Planted(Site::Observer));
        }
    }
}

#[test]
fn an_observer_may_panic_with_a_lease_in_its_hand() {
    quiet();
    for fail_at in 1..=10 {
        let (clock, ledger) = (Arc::new(ManualClock::new()), Arc::new(Ledger::default()));
        let (config, _) = setting(Plan::Exact, None);
        let fleet = Arc::new(config.build_with_events(&clock, 512));
        let (met, was_met) = mpsc::channel();
        let caller = Caller { fleet: Arc::downgrade(&fleet), fail_at, events: 0, met };
        fleet.observe(caller).expect("open");
        let insertion = script().into_iter().take(5).collect::<Vec<_>>();
        let mut run = Run::new(&fleet, &clock, &ledger);
        insertion.iter().for_each(|op| run.apply(op));
        // Some of what it is told it has done itself.
        while fleet.stats().events_emitted < fail_at {
            drop(fleet.acquire().expect("there is room for two"));
        }
        assert!(
            was_met.recv_timeout(Duration::from_secs(30)).expect("it was told"),
            "there was one to be had"
        );
        wait_for_panic(&fleet);
        run.use_every_shard();
        drop(run);
        assert!(fleet.close());
        let stats = fleet.stats();
        assert_eq!((stats.observer_panics, stats.lent), (1, stats.returned), "at {fail_at}");
        assert_eq!(fleet.check_invariants().in_flight, 0);
        let Ok(fleet) = Arc::try_unwrap(fleet) else { panic!("the observer is gone") };
        drop(fleet);
        settle(&ledger, 0..=0);
    }
}
