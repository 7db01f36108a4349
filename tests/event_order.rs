//! What events say of the order of things: of one resource, of one key that comes back, and with many threads.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::{
    collections::BTreeMap,
    fmt,
    future::{Future, IntoFuture},
    hash::Hash,
    pin::pin,
    sync::{Arc, Mutex},
    task::{Context, Waker},
    thread,
    time::Duration,
};

use leasehold::{
    Capacity, Dropped, Ejection, Entry, Event,
    EventKind::{self, *},
    Hold, ManualClock, Observer, Outcome, Scheduler, SplitMix64,
};

/// A key, made of a number.
trait Key: Clone + Ord + Hash + fmt::Debug + Send + Sync + 'static {
    fn of(number: u32) -> Self;
    fn number(&self) -> u32;
}

impl Key for u32 {
    fn of(number: u32) -> Self {
        number
    }

    fn number(&self) -> u32 {
        *self
    }
}

impl Key for Arc<str> {
    fn of(number: u32) -> Self {
        format!("resource {number}").into()
    }

    fn number(&self) -> u32 {
        self.strip_prefix("resource ").and_then(|number| number.parse().ok()).expect("made of a number")
    }
}

type Fleet<K = u32> = Scheduler<Entry<K, u32, ()>>;

#[derive(Clone)]
struct Recorder<K>(Arc<Mutex<Vec<Event<K>>>>);

impl<K> Default for Recorder<K> {
    fn default() -> Self {
        Recorder(Arc::default())
    }
}

impl<K> Recorder<K> {
    fn told(&self) -> Vec<Event<K>> {
        std::mem::take(&mut self.0.lock().expect("no panic"))
    }
}

impl<K: Key> Observer<K> for Recorder<K> {
    fn on_event(&mut self, event: &Event<K>) {
        self.0.lock().expect("no panic").push(event.clone());
    }

    fn on_drop(&mut self, dropped: Dropped) {
        panic!("there is room for all: {dropped:?}");
    }
}

/// A key comes back into another shard, and is told of in whatever order: the number of its membership says which is the later.
#[test]
fn a_key_that_moves_is_followed_by_its_membership() {
    for batch in [false, true] {
        let recorder = Recorder::default();
        let fleet = <Fleet>::builder().shards(2).observer(recorder.clone()).build().expect("in range");
        let insert = |key: u32| {
            let one = Entry::new(key, 0, ());
            if batch {
                assert_eq!(fleet.insert_batch(vec![one]).map_err(|error| error.error), Ok(1));
            } else {
                fleet.insert(one).expect("new");
            }
        };
        insert(1);
        insert(2);
        fleet.remove(&1).expect("a member");
        fleet.remove(&2).expect("a member");
        insert(2);
        fleet.close();
        let events: Vec<_> = recorder.told().into_iter().filter(|event| event.key == Some(2)).collect();
        let mut shards: Vec<u32> = events.iter().map(|event| event.shard).collect();
        shards.sort_unstable();
        assert_eq!(shards, [0, 1, 1], "it has moved");
        let (mut known, mut is_member) = (0, false);
        for event in &events {
            if event.membership >= known {
                known = event.membership;
                is_member = event.kind != Removed;
            }
        }
        assert!(is_member, "{events:?}");
        let numbers =
            |kind| events.iter().filter(move |event| event.kind == kind).map(|event| event.membership);
        assert_eq!(numbers(Inserted).max(), Some(3));
        assert_eq!(numbers(Removed).collect::<Vec<_>>(), [2]);
    }
}

/// What is known of one resource from its events alone.
#[derive(Debug)]
struct Replayed<K> {
    key: Option<K>,
    shard: u32,
    is_member: bool,
    is_gone: bool,
    out: u32,
    excluded: bool,
    cooling: bool,
    ejected: bool,
    draining: bool,
    generation: u32,
    sequence: u64,
}

impl<K> Default for Replayed<K> {
    fn default() -> Self {
        Replayed {
            key: None,
            shard: 0,
            is_member: false,
            is_gone: false,
            out: 0,
            excluded: false,
            cooling: false,
            ejected: false,
            draining: false,
            generation: 0,
            sequence: 0,
        }
    }
}

impl<K: Key> Replayed<K> {
    fn is_held(&self) -> bool {
        self.excluded || self.cooling || self.ejected || self.draining
    }

    fn holds(&self) -> Vec<Hold> {
        let all = [
            (self.excluded, Hold::Excluded),
            (self.cooling, Hold::Cooling),
            (self.ejected, Hold::Ejected),
            (self.draining, Hold::Draining),
        ];
        all.into_iter().filter(|(is_held, _)| *is_held).map(|(_, hold)| hold).collect()
    }

    /// Panics if this cannot come next.
    fn step(&mut self, event: &Event<K>) {
        let begins = |hold: &mut bool| {
            assert!(!std::mem::replace(hold, true), "it was held");
        };
        let ends = |hold: &mut bool| {
            assert!(std::mem::replace(hold, false), "it was not held");
        };
        if event.kind == Inserted {
            assert!(!self.is_member && !self.is_gone, "once for each membership");
            assert!(event.key.is_some(), "of a resource");
            (self.key, self.shard, self.is_member) = (event.key.clone(), event.shard, true);
        } else {
            assert!(event.sequence > self.sequence && event.shard == self.shard);
            assert!(event.generation >= self.generation, "it never falls");
            assert!(self.is_member || event.kind == Released, "only leases end after a removal");
        }
        assert_eq!(event.key, self.key, "a membership is one key's");
        (self.generation, self.sequence) = (event.generation, event.sequence);
        match event.kind {
            Inserted | Updated => {}
            Acquired => {
                assert!(!self.is_held(), "nobody lends what is held");
                self.out += 1;
                let number = self.key.as_ref().expect("inserted").number();
                assert!(self.out <= limit_of(number), "its capacity");
            }
            Released => self.out = self.out.checked_sub(1).expect("it was lent"),
            Excluded => begins(&mut self.excluded),
            Included => ends(&mut self.excluded),
            // Also if the deadline moves.
            Cooled => self.cooling = true,
            Warmed => ends(&mut self.cooling),
            Ejected => begins(&mut self.ejected),
            Readmitted => ends(&mut self.ejected),
            Drained => begins(&mut self.draining),
            Undrained => ends(&mut self.draining),
            Removed | Evicted => (self.is_member, self.is_gone) = (false, true),
            other => panic!("{other:?} is about no resource here"),
        }
    }
}

fn limit_of(key: u32) -> u32 {
    1 + key % 3
}

fn entry<K: Key>(number: u32, rank: u32) -> Entry<K, u32, ()> {
    Entry::new(K::of(number), rank, ()).with_capacity(Capacity::Limited(limit_of(number)))
}

/// Waits for it as a task, for two polls between which time passes; it ends with a lease, at its deadline, or is given up.
fn wait_for<F: Future>(wait: F, pass: impl FnOnce()) -> Option<F::Output> {
    let mut wait = pin!(wait);
    let mut context = Context::from_waker(Waker::noop());
    let mut poll = || match wait.as_mut().poll(&mut context) {
        std::task::Poll::Ready(output) => Some(output),
        std::task::Poll::Pending => None,
    };
    poll().or_else(|| {
        pass();
        poll()
    })
}

/// Does something at random.
fn act<K: Key>(fleet: &Fleet<K>, clock: &ManualClock, random: &mut SplitMix64) {
    const KEYS: u64 = 12;
    let number = (random.next_u64() % KEYS) as u32;
    let key = K::of(number);
    let span = Duration::from_nanos(random.next_u64() % 50);
    let pass = || {
        clock.advance(span);
        let _ = fleet.tick();
    };
    match random.next_u64() % 20 {
        0..=4 => {
            let Ok(lease) = fleet.acquire() else { return };
            let ok = Outcome::Ok { latency: span };
            match random.next_u64() % 4 {
                0 => drop(lease),
                1 => lease.release_after(span),
                2 => lease.finish(ok),
                _ => lease.finish(Outcome::Failed),
            }
        }
        5 => {
            let leases: Vec<_> = (0..3).map_while(|_| fleet.acquire_key(&key).ok()).collect();
            // While it is out: the return comes after all of this.
            let _ = (fleet.remove(&key), fleet.insert(entry(number, 1)));
            drop(leases);
        }
        6 => drop(fleet.remove(&key)),
        7 => drop(fleet.insert(entry(number, number))),
        8 => drop(fleet.insert_batch(vec![entry(number, 2), entry((number + 1) % KEYS as u32, 3)])),
        9 => drop(fleet.update(entry(number, 4))),
        10 => _ = (fleet.exclude(&key), fleet.include(&key)),
        11 => _ = (fleet.cool(&key, span), fleet.warm(&key)),
        12 => _ = (fleet.eject(&key), fleet.readmit(&key)),
        13 => _ = (fleet.drain(&key), fleet.undrain(&key)),
        14 => _ = fleet.evict_worst(),
        15 => {
            // All of it is out, so that somebody waits.
            let leases: Vec<_> = (0..3).map_while(|_| fleet.acquire_key(&key).ok()).collect();
            let request = fleet.request().timeout(span);
            match random.next_u64() % 4 {
                0 => drop(wait_for(request.key(&key).into_future(), || drop(leases))),
                1 => drop(wait_for(request.key(&key).into_future(), pass)),
                2 => drop(wait_for(request.many(5).into_future(), || drop(leases))),
                _ => drop(wait_for(request.into_future(), pass)),
            }
        }
        16 => {
            let Ok(mut lease) = fleet.acquire() else { return };
            let token = lease.token();
            fleet.revoke(token).expect("it is out");
            // Too late, all of them.
            assert!(fleet.release(token).is_err() && lease.try_release().is_err());
        }
        17 => {
            let Ok(lease) = fleet.acquire_key(&key) else { return };
            fleet.release(lease.into_token()).expect("it is out");
        }
        18 if random.next_u64().is_multiple_of(4) => {
            drop(fleet.drain_all_async());
            let _ = (fleet.insert(entry(number, 5)), fleet.undrain_all());
        }
        _ => pass(),
    }
}

/// Several threads, several shards: each resource's events are a life that it can have had, and end where it stands now.
#[test]
fn what_is_told_is_what_has_happened() {
    let rounds = if cfg!(miri) { 20 } else { 15_000 };
    for (shards, seed) in [(1, 1), (3, 2), (8, 3)] {
        replayed::<u32>(shards, seed, rounds, RAMP);
    }
    replayed::<u32>(3, 5, rounds / 3, Duration::ZERO);
    // Keys that are cloned for each event, and freed.
    replayed::<Arc<str>>(3, 4, rounds / 3, RAMP);
}

const RAMP: Duration = Duration::from_nanos(100);

fn replayed<K: Key>(shards: usize, seed: u64, rounds: u32, ramp: Duration) {
    let (recorder, clock) = (Recorder::<K>::default(), Arc::new(ManualClock::new()));
    let rules = Ejection::default().consecutive_failures(2).max_share(50).base(Duration::from_nanos(100));
    let fleet = Fleet::<K>::builder()
        .shards(shards)
        .clock(clock.clone())
        .ejection(rules.ramp(ramp))
        .event_capacity(1 << 18)
        .observer(recorder.clone())
        .build()
        .expect("in range");
    thread::scope(|scope| {
        for number in 0..4 {
            let (fleet, clock) = (&fleet, &clock);
            scope.spawn(move || {
                let mut random = SplitMix64::new(seed << 8 | number);
                (0..rounds).for_each(|_| act(fleet, clock, &mut random));
            });
        }
    });
    let snapshot = fleet.snapshot();
    assert!(snapshot.is_consistent());
    fleet.close();
    let stats = fleet.stats();
    assert_eq!((stats.events_dropped, stats.events_missed, stats.observer_panics), (0, 0, 0));

    let mut lives: BTreeMap<u64, Replayed<K>> = BTreeMap::new();
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    // Of requests, by the membership of what they wait for.
    let mut waiting: BTreeMap<u64, (u64, Option<K>)> = BTreeMap::new();
    for event in recorder.told() {
        if event.kind == Closed {
            assert_eq!((event.membership, event.shard), (0, shards as u32));
            continue;
        }
        *counts.entry(EventKind::name(event.kind)).or_default() += 1;
        if matches!(event.kind, WaitStarted | WaitEnded) {
            assert_eq!((event.shard, event.key.is_some()), (shards as u32, event.membership > 0));
            let (number, key) = waiting.entry(event.membership).or_insert((0, event.key.clone()));
            assert_eq!(*key, event.key, "a membership is one key's");
            *number = if event.kind == WaitStarted { Some(*number + 1) } else { number.checked_sub(1) }
                .expect("none ends that has not begun");
            continue;
        }
        lives.entry(event.membership).or_default().step(&event);
    }
    for (membership, (number, key)) in waiting {
        assert_eq!(number, 0, "each has ended");
        assert!(membership == 0 || lives[&membership].key == key, "a request's resource was in the fleet");
    }
    let mut members: Vec<_> = lives.into_values().filter(|life| life.is_member).collect();
    members.sort_by(|one, other| one.key.cmp(&other.key));
    let mut states = snapshot.into_vec();
    states.sort_by(|one, other| one.key.cmp(&other.key));
    assert_eq!(members.len(), states.len());
    for (life, state) in members.iter().zip(&states) {
        let mut holds = state.holds.clone();
        holds.sort_by_key(|hold| *hold as u8);
        let mut replayed = life.holds();
        replayed.sort_by_key(|hold| *hold as u8);
        assert_eq!(
            (life.key.as_ref(), life.shard as usize, life.out, replayed),
            (Some(&state.key), state.shard, state.in_flight, holds)
        );
        // Nobody is told that the rules allow more leases: after the last event, from one to as many as it has.
        let steps = limit_of(state.key.number()) - 1;
        let untold = state.generation.checked_sub(life.generation).expect("what is told has happened");
        assert!(untold <= steps, "{untold} changes that nobody was told of, of {steps}");
    }
    // And they are what was counted.
    for (kind, counted) in [
        (Inserted, stats.inserted),
        (Updated, stats.updated),
        (Removed, stats.removed),
        (Evicted, stats.evicted),
        (Acquired, stats.lent),
        (Released, stats.returned),
        (Cooled, stats.cooled),
        (Warmed, stats.warmed),
        (Ejected, stats.ejected),
        (Readmitted, stats.readmitted),
        (Drained, stats.drained),
        (Undrained, stats.undrained),
        (WaitStarted, stats.waits.waited),
        (WaitEnded, stats.waits.waited),
    ] {
        assert!(counted > 0 || cfg!(miri), "{kind:?} has happened");
        assert_eq!(counts.get(kind.name()).copied().unwrap_or(0), counted, "{kind:?}");
    }
    let waits = &stats.waits;
    for (what, counted) in [
        ("handed off", waits.handed_off),
        ("timed out", waits.timed_out),
        ("cancelled", waits.cancelled),
        ("revoked", stats.revoked),
    ] {
        assert!(counted > 0 || cfg!(miri), "{what}: some");
    }
}
