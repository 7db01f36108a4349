//! Observers that call the scheduler that calls them, end it, and own it: each comes back, within a deadline.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::{
    sync::{Arc, Barrier, Mutex, Weak, mpsc},
    thread,
    time::Duration,
};

use leasehold::{
    Closing, Entry, Event,
    EventKind::{Closed, Inserted, Removed},
    Scheduler,
};

type Fleet = Scheduler<Entry<u32, u32, ()>>;

/// Ten times what a loaded machine needs, and a hundred times what an idle one does.
const DEADLINE: Duration = Duration::from_secs(20);

fn fleet() -> Arc<Fleet> {
    Arc::new(Fleet::builder().shards(2).event_capacity(1 << 10).build().expect("in range"))
}

/// Runs it in a thread of its own, and panics if that does not come back. What hangs is left behind.
fn in_time(what: &str, run: impl FnOnce() + Send + 'static) {
    let (done, is_done) = mpsc::channel();
    let thread = thread::spawn(move || {
        run();
        let _ = done.send(());
    });
    match is_done.recv_timeout(DEADLINE) {
        Ok(()) | Err(mpsc::RecvTimeoutError::Disconnected) => thread.join().expect("no panic"),
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it hangs: {what}"),
    }
}

/// What an observer does when it is told that key 1 was inserted, and what has become of it.
fn on_insertion(fleet: &Arc<Fleet>, call: impl Fn(&Fleet) + Send + 'static) -> mpsc::Receiver<()> {
    let (done, is_done) = mpsc::channel();
    let back: Weak<Fleet> = Arc::downgrade(fleet);
    let observer = move |event: &Event<u32>| {
        if (event.kind, event.key) == (Inserted, Some(1))
            && let Some(fleet) = back.upgrade()
        {
            call(&fleet);
            let _ = done.send(());
        }
    };
    fleet.observe(observer).expect("a thread");
    fleet.insert(Entry::new(1, 0, ())).expect("new");
    is_done
}

#[test]
fn an_observer_may_call_whatever_there_is() {
    type Call = fn(&Fleet);
    let calls: [(&str, Call); 9] = [
        ("insert", |fleet| fleet.insert(Entry::new(2, 0, ())).expect("new")),
        ("insert_batch", |fleet| {
            assert_eq!(fleet.insert_batch(vec![Entry::new(2, 0, ()), Entry::new(3, 0, ())]).ok(), Some(2));
        }),
        ("remove", |fleet| _ = fleet.remove(&1).expect("a member")),
        ("update", |fleet| fleet.update(Entry::new(1, 7, ())).expect("a member")),
        ("lease", |fleet| drop(fleet.acquire().expect("free"))),
        ("wait", |fleet| assert!(fleet.request().key(&9).timeout(Duration::from_millis(1)).wait().is_err())),
        ("observe", |fleet| fleet.observe(|_: &Event<u32>| ()).expect("a thread")),
        ("drain_all", |fleet| assert!(fleet.drain_all_timeout(DEADLINE).is_drained())),
        ("take_events", |fleet| drop(fleet.take_events(99))),
    ];
    for (name, call) in calls {
        in_time(name, move || {
            let fleet = fleet();
            let is_done = on_insertion(&fleet, call);
            is_done.recv().expect("it has come back, and has not panicked");
            fleet.close();
            assert_eq!(fleet.stats().observer_panics, 0);
        });
    }
}

#[test]
fn an_observer_may_close_either_way() {
    for closing in [Closing::Flush, Closing::Discard] {
        in_time("close_with", move || {
            let fleet = fleet();
            let is_done = on_insertion(&fleet, move |fleet| assert!(fleet.close_with(closing)));
            is_done.recv().expect("it has come back");
            assert!(!fleet.close(), "whoever comes second waits for the first");
            assert_eq!(fleet.stats().observer_panics, 0);
        });
    }
}

#[test]
fn two_observers_may_close_at_once() {
    for closings in [
        [Closing::Flush, Closing::Flush],
        [Closing::Flush, Closing::Discard],
        [Closing::Discard, Closing::Discard],
    ] {
        in_time("two at once", move || {
            let fleet = fleet();
            let together = Arc::new(Barrier::new(2));
            let (sender, closed) = mpsc::channel();
            for closing in closings {
                let (together, sender, back) =
                    (Arc::clone(&together), sender.clone(), Arc::downgrade(&fleet));
                let observer = move |event: &Event<u32>| {
                    if event.kind == Inserted
                        && let Some(fleet) = back.upgrade()
                    {
                        together.wait();
                        let _ = sender.send(fleet.close_with(closing));
                    }
                };
                fleet.observe(observer).expect("a thread");
            }
            fleet.insert(Entry::new(1, 0, ())).expect("new");
            let both = [closed.recv().expect("one"), closed.recv().expect("the other")];
            assert_ne!(both[0], both[1], "one of them was the first");
            assert!(!fleet.close());
            assert_eq!(fleet.stats().observer_panics, 0);
        });
    }
}

/// It should not own its scheduler, and if it does, it is the one to end it.
#[test]
fn an_observer_may_drop_the_last_handle() {
    for closes in [false, true] {
        in_time("the last handle", move || {
            let fleet = fleet();
            let (sender, gone) = mpsc::channel();
            let mut own = Some(Arc::clone(&fleet));
            let weak = Arc::downgrade(&fleet);
            let observer = move |event: &Event<u32>| {
                if event.kind == Removed
                    && let Some(fleet) = own.take()
                {
                    while Arc::strong_count(&fleet) > 1 {
                        thread::yield_now();
                    }
                    if closes {
                        fleet.close();
                    }
                    drop(fleet);
                    let _ = sender.send(());
                }
            };
            fleet.observe(observer).expect("a thread");
            fleet.insert(Entry::new(1, 0, ())).expect("new");
            fleet.remove(&1).expect("a member");
            drop(fleet);
            gone.recv().expect("it has come back");
            assert!(weak.upgrade().is_none(), "dropped in its own observer's thread");
        });
    }
}

/// Nothing is told of that was discarded, and all of it is in some count.
#[test]
fn what_a_closing_discards_is_counted() {
    for capacity in [1 << 4, 1 << 12] {
        // A slow observer is not slow if the machine lets nobody else run: until something is left to be discarded.
        assert!((0..20).any(|_| discards(capacity)), "it was slow, every time");
    }
}

/// Closes with a slow observer, and counts; whether something was left that it had not been told.
fn discards(capacity: usize) -> bool {
    struct Slow(Arc<Mutex<u64>>);
    impl leasehold::Observer<u32> for Slow {
        fn on_event(&mut self, _: &Event<u32>) {
            thread::sleep(Duration::from_micros(100));
            *self.0.lock().expect("no panic") += 1;
        }
    }
    let told = Arc::new(Mutex::new(0));
    let fleet = Fleet::builder()
        .shards(2)
        .event_capacity(capacity)
        .observer(Slow(Arc::clone(&told)))
        .build()
        .expect("in range");
    for round in 0..40 {
        (0..50).for_each(|key| fleet.insert(Entry::new(50 * round + key, 0, ())).expect("new"));
        thread::sleep(Duration::from_micros(200));
    }
    assert!(fleet.close_with(Closing::Discard));
    let in_rings = fleet.take_events(usize::MAX).len() as u64;
    let (stats, told) = (fleet.stats(), *told.lock().expect("no panic"));
    assert_eq!(
        told + stats.events_missed + stats.events_discarded + in_rings,
        stats.events_emitted,
        "{stats:?}"
    );
    // All insertions, and the closing.
    assert_eq!(stats.events_emitted + stats.events_dropped, 2_001);
    stats.events_discarded > 0 || in_rings > 0
}

/// The one that is stuck in its last event has a full inbox: that is what is discarded.
#[test]
fn a_full_inbox_is_discarded_and_counted() {
    in_time("a full inbox", || {
        let (let_go, stuck) = mpsc::channel::<()>();
        let observer = move |_: &Event<u32>| _ = stuck.recv();
        let fleet =
            Fleet::builder().shards(1).event_capacity(1 << 10).observer(observer).build().expect("in range");
        // Another one pumps meanwhile.
        let (sender, told) = mpsc::channel();
        fleet.observe(move |event: &Event<u32>| _ = sender.send(event.kind)).expect("a thread");
        (0..100).for_each(|key| fleet.insert(Entry::new(key, 0, ())).expect("new"));
        assert!((0..100).all(|_| told.recv() == Ok(Inserted)));
        let rest = thread::scope(|scope| {
            let closer = scope.spawn(|| fleet.close_with(Closing::Discard));
            // Until the other one has ended, which is when no more is told.
            let rest = told.iter().filter(|&kind| kind == Closed).count() as u64;
            drop(let_go);
            assert!(closer.join().expect("no panic"));
            rest
        });
        let in_rings = fleet.take_events(9).len() as u64;
        let stats = fleet.stats();
        // One event was told to the stuck one; the other has seen the closing, or it is in the ring or was discarded twice.
        assert_eq!(stats.events_missed, 0);
        assert!((99..=101).contains(&stats.events_discarded), "{stats:?}, {rest} told, {in_rings} left");
    });
}

/// Whoever says nothing of capacities has room for a burst, while the observer's thread sleeps.
#[test]
fn by_default_there_is_room_for_a_burst() {
    let count = Arc::new(Mutex::new(0u64));
    let counting = Arc::clone(&count);
    let observer = move |_: &Event<u32>| *counting.lock().expect("no panic") += 1;
    let fleet = Fleet::builder().shards(1).observer(observer).build().expect("in range");
    fleet.insert(Entry::new(1, 0, ())).expect("new");
    // It sleeps by now, for up to 16 ms.
    thread::sleep(Duration::from_millis(100));
    for _ in 0..6_000 {
        drop(fleet.acquire().expect("free"));
    }
    fleet.close();
    let stats = fleet.stats();
    assert_eq!((stats.events_dropped, stats.events_missed), (0, 0));
    assert_eq!(*count.lock().expect("no panic"), 12_002);
}

/// With many shards: who is held up by its callback has room for what one look at all rings can find.
#[test]
fn an_inbox_has_room_for_all_rings() {
    in_time("all rings", || {
        let (let_go, stuck) = mpsc::channel::<()>();
        let count = Arc::new(Mutex::new(0u64));
        let counting = Arc::clone(&count);
        let observer = move |_: &Event<u32>| {
            let _ = stuck.recv();
            *counting.lock().expect("no panic") += 1;
        };
        let fleet =
            Fleet::builder().shards(64).event_capacity(4).observer(observer).build().expect("in range");
        // Another one pumps meanwhile.
        let (sender, told) = mpsc::channel();
        fleet.observe(move |event: &Event<u32>| _ = sender.send(event.kind)).expect("a thread");
        for round in 0..3 {
            // One or two for each ring; the first of all is in the callback, maybe with those beside it.
            let keys = 80 * round..80 * round + 80;
            assert!(fleet.insert_batch(keys.map(|key| Entry::new(key, 0, ())).collect()).is_ok());
            assert!((0..80).all(|_| told.recv() == Ok(Inserted)));
        }
        assert_eq!(fleet.stats().events_missed, 0, "less than all rings hold");
        drop(let_go);
        fleet.close();
        assert_eq!(*count.lock().expect("no panic"), 241);
    });
}
