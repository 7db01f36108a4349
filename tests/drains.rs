//! Drains that wait, as threads and as tasks: what they report, what ends them, and what comes in meanwhile.
//!
//! Cost: under a second.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::{
    future::Future,
    pin::pin,
    sync::{
        Arc, Barrier,
        atomic::{AtomicU32, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::{Duration, Instant},
};

use leasehold::{
    Capacity, Clock, Drain, DrainReport, Entry, KeyError, ManualClock, Overdue, Overflow, Scheduler,
    Timestamp,
};

type Fleet = Scheduler<Entry<u32, u32, ()>>;

fn fleet(members: u32) -> Fleet {
    let fleet = Fleet::builder().shards(3).build().expect("in range");
    for key in 0..members {
        fleet.insert(Entry::new(key, key, ()).with_capacity(Capacity::Limited(3))).expect("new");
    }
    fleet
}

/// Counts how often it was rung.
#[derive(Default)]
struct Bell(AtomicU32);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Bell {
    fn rung(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }
}

fn outstanding(report: &DrainReport<u32>) -> Vec<(u32, u32)> {
    let mut all: Vec<_> = report.outstanding.iter().map(|out| (out.key, out.in_flight)).collect();
    all.sort_unstable();
    all
}

const SOON: Duration = Duration::from_millis(5);
const LATE: Duration = Duration::from_secs(60);

#[test]
fn a_drain_says_what_is_still_out() {
    let fleet = fleet(3);
    let (one, two) = (fleet.acquire_key(&1).expect("free"), fleet.acquire_key(&1).expect("free"));
    let other = fleet.acquire_key(&2).expect("free");
    let start = Instant::now();
    let report = fleet.drain_timeout(&1, SOON).expect("a member");
    assert!(start.elapsed() >= SOON);
    assert_eq!(outstanding(&report), [(1, 2)]);
    assert_eq!(report.leases(), 2);
    assert!(!report.is_drained() && report.undrained.is_empty());
    assert!(report.to_string().contains("2 leases are out on 1 resource\nresource 1: 2 out"), "{report}");
    assert!(fleet.acquire_key(&1).is_err(), "the hold stays");
    drop(one);
    assert_eq!(outstanding(&fleet.drain_deadline(&1, Timestamp::ZERO).expect("a member")), [(1, 1)]);
    drop(two);
    assert!(fleet.drain_deadline(&1, Timestamp::ZERO).expect("a member").is_drained());
    assert!(fleet.drain_timeout(&0, LATE).expect("a member").is_drained(), "nothing was out");
    assert_eq!(fleet.drain_timeout(&9, LATE), Err(KeyError::NotFound { key: 9 }));
    drop(other);
    assert_eq!(fleet.stats().drained, 2, "the same resource drains once");
}

#[test]
fn a_thread_is_woken_by_the_last_return() {
    let fleet = fleet(1);
    let (one, two) = (fleet.acquire().expect("free"), fleet.acquire().expect("free"));
    let start = Barrier::new(2);
    std::thread::scope(|scope| {
        let drain = scope.spawn(|| {
            start.wait();
            fleet.drain_timeout(&0, LATE).expect("a member")
        });
        start.wait();
        while fleet.acquire().is_ok() {
            std::thread::yield_now();
        }
        drop(one);
        std::thread::sleep(SOON);
        assert!(!drain.is_finished());
        drop(two);
        assert!(drain.join().expect("no panic").is_drained());
    });
}

#[test]
fn a_task_is_rung_by_what_it_waits_for_and_nothing_else() {
    let fleet = fleet(2);
    let (one, two) = (fleet.acquire_key(&0).expect("free"), fleet.acquire_key(&0).expect("free"));
    let other = fleet.acquire_key(&1).expect("free");
    fleet.drain(&1).expect("a member");
    let bell = Arc::new(Bell::default());
    let waker = Waker::from(Arc::clone(&bell));
    let mut context = Context::from_waker(&waker);
    let mut drain = pin!(fleet.drain_async(&0).expect("a member"));
    assert!(fleet.acquire_key(&0).is_err(), "it drains before the first poll");
    assert!(drain.as_mut().poll(&mut context).is_pending());
    assert!(drain.as_mut().poll(&mut context).is_pending(), "polled for no reason");
    drop(other);
    drop(one);
    assert_eq!(bell.rung(), 0, "another resource, and not the last lease");
    assert_eq!(outstanding(&drain.report()), [(0, 1)]);
    two.release_after(LATE);
    assert_eq!(bell.rung(), 1);
    assert_eq!(drain.report().leases(), 0);
    let Poll::Ready(report) = drain.as_mut().poll(&mut context) else { panic!("drained") };
    assert!(report.is_drained());
}

#[test]
fn every_waiter_is_rung_and_one_that_is_gone_is_not() {
    let fleet = fleet(1);
    let lease = fleet.acquire().expect("free");
    let bells: Vec<Arc<Bell>> = (0..3).map(|_| Arc::default()).collect();
    let mut drains: Vec<_> = bells
        .iter()
        .map(|bell| {
            let mut drain = Box::pin(fleet.drain_async(&0).expect("a member"));
            assert!(
                drain.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::clone(bell)))).is_pending()
            );
            drain
        })
        .collect();
    drop(drains.remove(1));
    drop(lease);
    assert_eq!(bells.iter().map(|bell| bell.rung()).collect::<Vec<_>>(), [1, 0, 1]);
    fleet.remove(&0).expect("a member");
    assert_eq!(fleet.stats().leaving, 1, "two drains still look at it");
    drop(drains);
    assert_eq!(fleet.stats().leaving, 0);
}

#[test]
fn a_removed_resource_is_drained_when_its_leases_are_back() {
    let fleet = fleet(1);
    let lease = fleet.acquire().expect("free");
    let bell = Arc::new(Bell::default());
    let waker = Waker::from(Arc::clone(&bell));
    let mut context = Context::from_waker(&waker);
    let mut drain = pin!(fleet.drain_async(&0).expect("a member"));
    assert!(drain.as_mut().poll(&mut context).is_pending());
    fleet.remove(&0).expect("a member");
    // A new one under the same key is none of its business.
    fleet.insert(Entry::new(0, 0, ())).expect("the key is free");
    let other = fleet.acquire().expect("free");
    assert!(drain.as_mut().poll(&mut context).is_pending());
    assert_eq!(outstanding(&drain.report()), [(0, 1)]);
    drop(other);
    assert_eq!(bell.rung(), 0);
    drop(lease);
    assert_eq!(bell.rung(), 1);
    assert!(matches!(drain.as_mut().poll(&mut context), Poll::Ready(report) if report.is_drained()));
}

#[test]
fn undraining_ends_the_wait() {
    let fleet = fleet(2);
    let (lease, other) = (fleet.acquire_key(&0).expect("free"), fleet.acquire_key(&1).expect("free"));
    let start = Barrier::new(2);
    let report = std::thread::scope(|scope| {
        let drain = scope.spawn(|| {
            start.wait();
            fleet.drain_timeout(&0, LATE).expect("a member")
        });
        start.wait();
        while !fleet.undrain(&0).expect("a member") {
            std::thread::yield_now();
        }
        drain.join().expect("no panic")
    });
    assert_eq!((report.undrained.as_slice(), report.outstanding.len()), (&[0][..], 0));
    assert!(!report.is_drained());
    assert!(report.to_string().contains("undrained: [0]"), "{report}");
    let all = fleet.drain_all_async();
    fleet.undrain(&1).expect("a member");
    let report = all.report();
    assert_eq!((report.undrained.as_slice(), outstanding(&report)), (&[1][..], vec![(0, 1)]));
    drop((lease, other));
}

#[test]
fn a_whole_fleet_drains_with_what_comes_in() {
    let fleet = fleet(40);
    let leases: Vec<_> = (0..10).map(|key| fleet.acquire_key(&key).expect("free")).collect();
    let twice = fleet.acquire_key(&3).expect("free");
    // Out before the drain, and already removed: waited for too.
    let gone = fleet.acquire_key(&39).expect("free");
    fleet.remove(&39).expect("a member");
    fleet.undrain(&5).expect("not draining: nothing to do");
    let report = fleet.drain_all_timeout(SOON);
    let expected = (0..10).map(|key| (key, if key == 3 { 2 } else { 1 })).chain([(39, 1)]);
    assert_eq!(outstanding(&report), expected.collect::<Vec<_>>());
    assert!(fleet.acquire().is_err());
    fleet.insert(Entry::new(100, 0, ())).expect("new");
    fleet.insert_batch((101..105).map(|key| Entry::new(key, 0, ())).collect()).expect("new");
    let stats = fleet.stats();
    assert_eq!((stats.eligible, stats.reasons.draining, stats.members), (0, 44, 44));
    assert!(
        fleet.acquire().is_err()
            && fleet.acquire_key(&100).is_err()
            && fleet.acquire_where(|_| true).is_err()
    );
    fleet.undrain(&102).expect("a member");
    let lease = fleet.acquire().expect("one was undrained");
    assert_eq!(*lease.key(), 102);
    std::thread::scope(|scope| {
        let drain = scope.spawn(|| fleet.drain_all_timeout(LATE));
        drop((leases, twice, gone));
        while fleet.stats().reasons.draining < 44 {
            std::thread::yield_now();
        }
        assert!(!drain.is_finished());
        drop(lease);
        assert!(drain.join().expect("no panic").is_drained());
    });
    assert_eq!(fleet.undrain_all(), 44);
    assert_eq!(fleet.undrain_all(), 0);
    fleet.insert(Entry::new(200, 0, ())).expect("new");
    assert_eq!(fleet.stats().eligible, 45, "newcomers are lent again");
    let stats = fleet.stats();
    assert_eq!(stats.drained - stats.undrained, 0);
    #[cfg(feature = "internals")]
    fleet.check_invariants();
}

#[test]
fn a_bounded_fleet_that_drains_evicts_nobody() {
    let fleet = Fleet::builder().max_resources(1, Overflow::EvictWorst).build().expect("in range");
    fleet.insert(Entry::new(0, 9, ())).expect("room");
    assert!(fleet.drain_all_timeout(LATE).is_drained());
    assert!(fleet.insert(Entry::new(1, 0, ())).is_err(), "nothing is eligible, so nothing is evicted");
    assert_eq!(fleet.undrain_all(), 1);
    fleet.insert(Entry::new(1, 0, ())).expect("better than the other");
}

#[test]
fn a_closed_scheduler_still_drains() {
    let fleet = fleet(2);
    let lease = fleet.acquire_key(&1).expect("free");
    fleet.close();
    assert_eq!(fleet.drain(&1), Err(KeyError::Closed), "the hold alone is a change of the fleet");
    assert_eq!(outstanding(&fleet.drain_all_timeout(SOON)), [(1, 1)]);
    assert_eq!(outstanding(&fleet.drain_timeout(&1, SOON).expect("a member")), [(1, 1)]);
    std::thread::scope(|scope| {
        let drain = scope.spawn(|| fleet.drain_all_timeout(LATE));
        drop(lease);
        assert!(drain.join().expect("no panic").is_drained());
    });
}

#[test]
fn the_holders_are_named_if_leases_are_recorded() {
    let fleet = Fleet::builder().shards(1).max_hold(LATE).build().expect("in range");
    for key in 0..3 {
        fleet.insert(Entry::new(key, key, ()).with_capacity(Capacity::Limited(2))).expect("new");
    }
    let lines = [line!() + 1, line!() + 2, line!() + 3];
    let one = fleet.acquire_key(&0).expect("free");
    let two = fleet.acquire_key(&0).expect("free");
    let three = fleet.acquire_key(&2).expect("free");
    let report = fleet.drain_all_timeout(SOON);
    assert_eq!(outstanding(&report), [(0, 2), (2, 1)]);
    let found: Vec<(u32, u32)> = report
        .outstanding
        .iter()
        .flat_map(|out| out.holders.iter().map(|holder| (holder.key, holder.call_site.line())))
        .collect();
    assert_eq!(found.len(), 3);
    assert!(
        found.contains(&(0, lines[0])) && found.contains(&(0, lines[1])) && found.contains(&(2, lines[2]))
    );
    assert!(report.to_string().contains("tests/drains.rs"), "{report}");
    // What a revocation takes back is back.
    let token = report.outstanding[1].holders[0].token;
    fleet.revoke(token).expect("out");
    drop((one, two));
    assert!(fleet.drain_all_timeout(SOON).is_drained());
    drop(three);
}

#[test]
fn a_hand_moved_clock_ends_a_wait_with_a_tick() {
    let clock = Arc::new(ManualClock::new());
    let fleet = Fleet::builder().clock(Arc::clone(&clock)).build().expect("in range");
    fleet.insert(Entry::new(0, 0, ())).expect("new");
    let lease = fleet.acquire().expect("free");
    std::thread::scope(|scope| {
        let drain = scope.spawn(|| fleet.drain_all_timeout(LATE));
        let due = loop {
            if let Some(due) = fleet.tick() {
                break due;
            }
            std::thread::yield_now();
        };
        assert_eq!(due, Timestamp::ZERO.saturating_add(LATE));
        clock.advance_to(due);
        let start = Instant::now();
        let _ = fleet.tick();
        assert_eq!(drain.join().expect("no panic").leases(), 1);
        assert!(start.elapsed() < LATE / 2, "it did not sleep it out");
    });
    drop(lease);
}

#[test]
fn a_waker_that_panics_reaches_nobody() {
    struct Angry;
    impl Wake for Angry {
        fn wake(self: Arc<Self>) {
            std::panic::resume_unwind(Box::new("angry"));
        }
    }
    let fleet = fleet(1);
    let lease = fleet.acquire().expect("free");
    let mut angry = Box::pin(fleet.drain_async(&0).expect("a member"));
    let waker = Waker::from(Arc::new(Angry));
    assert!(angry.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    let bell = Arc::new(Bell::default());
    let calm_waker = Waker::from(Arc::clone(&bell));
    let mut calm = Box::pin(fleet.drain_async(&0).expect("a member"));
    assert!(calm.as_mut().poll(&mut Context::from_waker(&calm_waker)).is_pending());
    drop(lease);
    assert_eq!(bell.rung(), 1);
    assert!(calm.as_mut().poll(&mut Context::from_waker(&calm_waker)).is_ready());
}

/// Many threads return while several drain, undrain and remove: nobody hangs, and in the end nothing is out.
#[test]
fn threads_return_while_others_drain() {
    const ROUNDS: u32 = 300;
    let fleet = fleet(4);
    let start = Barrier::new(6);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                start.wait();
                for round in 0..ROUNDS {
                    let lease = fleet.acquire();
                    if round % 7 == 0 {
                        std::thread::yield_now();
                    }
                    drop(lease);
                }
            });
        }
        scope.spawn(|| {
            start.wait();
            for round in 0..ROUNDS {
                let key = round % 4;
                let report = fleet.drain_timeout(&key, LATE);
                assert!(report.is_ok_and(|report| report.outstanding.is_empty()));
                let _ = fleet.undrain(&key);
            }
        });
        scope.spawn(|| {
            start.wait();
            for _ in 0..ROUNDS / 10 {
                assert!(fleet.drain_all_timeout(LATE).outstanding.is_empty());
                let _ = fleet.undrain_all();
            }
        });
        start.wait();
    });
    let _ = fleet.undrain_all();
    assert_eq!((fleet.stats().in_flight, fleet.stats().eligible), (0, 4));
    #[cfg(feature = "internals")]
    fleet.check_invariants();
}

fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Nobody uses what one who waits for several has got so far: it does not keep a drain waiting.
#[test]
fn a_drain_takes_back_what_a_collector_has() {
    let fleet = Fleet::builder().shards(1).build().expect("in range");
    for key in 0..2 {
        fleet.insert(Entry::new(key, key, ())).expect("new");
    }
    let (one, two) = (fleet.acquire_owned().expect("free"), fleet.acquire_owned().expect("free"));
    let mut many = fleet.acquire_many_async_owned(2);
    assert!(poll(&mut many).is_pending());
    drop(one);
    assert_eq!(fleet.stats().in_flight, 2, "it has one");
    let mut drain = fleet.drain_all_async();
    assert_eq!(fleet.stats().in_flight, 1);
    assert!(poll(&mut drain).is_pending());
    drop(two);
    let Poll::Ready(report) = poll(&mut drain) else { panic!("nobody has a lease") };
    assert!(report.is_drained());
    assert!(poll(&mut many).is_pending());
    assert_eq!(fleet.undrain_all(), 2);
    let Poll::Ready(Ok(leases)) = poll(&mut many) else { panic!("both are free") };
    assert_eq!(leases.len(), 2);
}

/// One that drains, or is removed, is taken back alone, and its place is that of its arrival again when it has nothing left.
#[test]
fn a_part_that_is_taken_back_is_collected_anew() {
    for removed in [false, true] {
        let fleet = Fleet::builder().shards(1).build().expect("in range");
        for key in 0..3 {
            fleet.insert(Entry::new(key, key, ())).expect("new");
        }
        let [zero, one, two] = [0, 1, 2].map(|key| fleet.acquire_key_owned(&key).expect("free"));
        let mut many = fleet.acquire_many_async_owned(2);
        assert!(poll(&mut many).is_pending());
        let mut urgent = fleet.request().class(1).owned();
        assert!(poll(&mut urgent).is_pending());
        // The one of the higher class is first, then the other one collects, and nobody comes before that.
        drop(zero);
        let Poll::Ready(Ok(zero)) = poll(&mut urgent) else { panic!("it is the first") };
        drop(zero);
        let mut urgent = fleet.request().class(1).owned();
        assert!(poll(&mut urgent).is_pending());
        if removed {
            assert_eq!(fleet.remove(&0).expect("a member").in_flight, 1);
        } else {
            assert!(fleet.drain(&0).expect("a member"));
        }
        assert_eq!(fleet.stats().in_flight, 2, "taken back");
        drop(one);
        let Poll::Ready(Ok(one)) = poll(&mut urgent) else { panic!("it is the first again") };
        drop((one, two));
        let Poll::Ready(Ok(leases)) = poll(&mut many) else { panic!("two are free") };
        let mut keys: Vec<_> = leases.iter().map(|lease| *lease.key()).collect();
        keys.sort_unstable();
        assert_eq!(keys, [1, 2]);
        drop(leases);
        assert_eq!(fleet.stats().in_flight, 0);
    }
}

/// A drain is dropped after every number of polls, before and after each of three returns on two resources, one of which may be removed or
/// undrained meanwhile. It leaves the hold, and nothing else: no bell, no pin, and a drain beside it ends as if it had never been.
#[test]
fn dropped_at_every_poll() {
    type Make = fn(&Fleet) -> Drain<Entry<u32, u32, ()>>;
    let kinds: [Make; 2] =
        [|fleet| fleet.drain_async(&0).expect("a member"), |fleet| fleet.drain_all_async()];
    for (make, polls, meanwhile) in kinds
        .iter()
        .flat_map(|make| (0..81u32).flat_map(move |polls| (0..3).map(move |what| (make, polls, what))))
    {
        let fleet = fleet(2);
        let mut leases: Vec<_> = [0, 1, 0].map(|key| fleet.acquire_key(&key).expect("free")).into();
        let bell = Arc::new(Bell::default());
        let mut drain = Some(make(&fleet));
        let mut other = fleet.drain_async(&0).expect("a member");
        assert!(poll(&mut other).is_pending());
        let mut ended = false;
        let mut turn = |turn: u32, drain: &mut Drain<_>| {
            for _ in 0..polls / 3u32.pow(turn) % 3 {
                let waker = Waker::from(Arc::clone(&bell));
                // Whoever has ended is not polled again.
                ended = ended || pin!(&mut *drain).poll(&mut Context::from_waker(&waker)).is_ready();
            }
        };
        for i in 0..3 {
            turn(i, drain.as_mut().expect("not yet"));
            drop(leases.pop());
            match (i, meanwhile) {
                (0, 1) => assert_eq!(fleet.remove(&0).expect("a member").in_flight, 1),
                (0, 2) => assert!(fleet.undrain(&0).expect("a member")),
                _ => {}
            }
        }
        turn(3, drain.as_mut().expect("not yet"));
        let rung = bell.rung();
        drop(drain.take());
        assert_eq!(Arc::strong_count(&bell), 1, "its waker has gone with it");
        let Poll::Ready(report) = poll(&mut other) else { panic!("nothing is out") };
        assert_eq!(report.undrained.len(), usize::from(meanwhile == 2));
        drop(other);
        assert_eq!((bell.rung(), fleet.stats().leaving), (rung, 0), "{polls} {meanwhile}");
        let _ = fleet.undrain_all();
        let members = if meanwhile == 1 { 1 } else { 2 };
        assert_eq!((fleet.stats().eligible, fleet.stats().in_flight), (members, 0));
        #[cfg(feature = "internals")]
        fleet.check_invariants();
    }
}

const LIMIT: Duration = Duration::from_secs(10);

fn limited() -> (Fleet, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new());
    let builder = Fleet::builder().shards(1).clock(Arc::clone(&clock)).max_hold(LIMIT);
    let fleet = builder.overdue(Overdue::Revoke).build().expect("in range");
    fleet.insert(Entry::new(0, 0, ())).expect("new");
    (fleet, clock)
}

/// Also if the drain has no time at all.
#[test]
fn what_is_overdue_is_not_outstanding() {
    let (fleet, clock) = limited();
    std::mem::forget(fleet.acquire().expect("free"));
    clock.advance(2 * LIMIT);
    assert!(fleet.drain_all(fleet.now()).is_drained());
    assert_eq!(fleet.stats().revoked, 1);
    assert_eq!(fleet.undrain_all(), 1);
    std::mem::forget(fleet.acquire().expect("taken back"));
    let mut drain = fleet.drain_all_async();
    assert!(poll(&mut drain).is_pending());
    clock.advance(2 * LIMIT);
    assert!(poll(&mut drain).is_ready(), "a task looks as well");
}

/// A thread that sleeps until leases are overdue is told if that is earlier.
#[test]
fn a_renewal_to_an_earlier_moment_wakes_a_drain() {
    let builder = Fleet::builder().shards(1).max_hold(LATE).overdue(Overdue::Revoke);
    let fleet = builder.build().expect("in range");
    fleet.insert(Entry::new(0, 0, ())).expect("new");
    let mut lease = fleet.acquire().expect("free");
    let start = Instant::now();
    std::thread::scope(|scope| {
        let drain = scope.spawn(|| fleet.drain_all_timeout(LATE));
        while fleet.stats().reasons.draining == 0 {
            std::thread::yield_now();
        }
        std::thread::sleep(SOON);
        lease.renew(SOON).expect("not overdue");
        assert!(drain.join().expect("no panic").is_drained());
    });
    assert!(start.elapsed() < LATE / 2);
    drop(lease);
}

/// Counts how often the thread that drains has looked at it.
#[derive(Default)]
struct Watch {
    clock: ManualClock,
    looks: AtomicU32,
}

const DRAINS: &str = "drains";

impl Clock for Watch {
    fn now(&self) -> Timestamp {
        if std::thread::current().name() == Some(DRAINS) {
            self.looks.fetch_add(1, Ordering::SeqCst);
        }
        self.clock.now()
    }
}

/// Others look for what is overdue, time and again, and find the same moment each time: that is no news for whoever sleeps until then.
#[test]
fn a_look_that_finds_nothing_new_wakes_no_drain() {
    let watch = Arc::new(Watch::default());
    let builder = Fleet::builder().shards(1).clock(Arc::clone(&watch)).max_hold(LATE);
    let fleet = builder.overdue(Overdue::Revoke).build().expect("in range");
    fleet.insert(Entry::new(0, 0, ())).expect("new");
    let lease = fleet.acquire().expect("free");
    let looks = || watch.looks.load(Ordering::SeqCst);
    std::thread::scope(|scope| {
        let drain = std::thread::Builder::new().name(DRAINS.into());
        let drain = drain.spawn_scoped(scope, || fleet.drain_all_timeout(2 * LATE)).expect("a thread");
        while fleet.stats().reasons.draining == 0 {
            std::thread::yield_now();
        }
        std::thread::sleep(10 * SOON);
        let before = looks();
        for _ in 0..20 {
            watch.clock.advance(SOON);
            assert_eq!(fleet.leases().len(), 1);
            std::thread::sleep(Duration::from_millis(1));
        }
        // It may not have slept yet when the first of them came.
        assert!(looks() <= before + 4, "woken by {} of 20", looks() - before);
        drop(lease);
        assert!(drain.join().expect("no panic").is_drained());
    });
}

const HOLD: Duration = Duration::from_millis(200);

/// Taking back what was overdue asks a filter that takes its time: the thread that drains sleeps until its deadline all the same, and no longer.
#[test]
fn a_slow_look_for_what_is_overdue_is_not_slept_again() {
    // The look was from the first moment of the limit to the third; with another sleep of three it would be six, every time.
    let took: Vec<Duration> =
        (0..20).map_while(|_| Some(slow_look()).filter(|&took| took >= HOLD * 5)).collect();
    assert!(took.len() < 20, "{took:?}");
}

/// How long a drain of four takes.
fn slow_look() -> Duration {
    let builder = Fleet::builder().shards(1).max_hold(HOLD).overdue(Overdue::Revoke);
    let fleet = builder.build().expect("in range");
    for key in 0..2 {
        fleet.insert(Entry::new(key, key, ())).expect("new");
    }
    let mut kept = fleet.acquire_key(&1).expect("free");
    kept.renew(LATE).expect("it is out");
    let _overdue = fleet.acquire_key(&0).expect("free");
    let slow = |_: &Entry<u32, u32, ()>| {
        std::thread::sleep(HOLD * 2);
        false
    };
    let mut waits = pin!(fleet.acquire_where_async(slow));
    assert!(waits.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let start = Instant::now();
    let report = fleet.drain_timeout(&1, HOLD * 4).expect("a member");
    let took = start.elapsed();
    assert_eq!(report.leases(), 1);
    assert!(took >= HOLD * 4, "{took:?}");
    took
}
