//! Who is let into the queue, and who goes first, by story: classes that age, a bound, and deadlines that cannot be met.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use leasehold::{
    AcquireOwned, Builder, OwnedLease, WaitError,
    internals::sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
        thread,
    },
};
use shuttle::future::block_on;

use crate::{
    common::scenario,
    driver::{Fixed, Fleet, Res, Setup},
    tasks::{spawn, waits_have_ended},
};

const SHORT: Duration = Duration::from_nanos(10);

/// One resource.
fn fleet(more: impl FnOnce(Builder<Res, Fixed>) -> Builder<Res, Fixed>) -> Arc<Fleet> {
    let fleet = Arc::new(Fleet::with(
        Setup { shards: 1, units: 1, by_load: false, room: 0, rules: false, period: 1 },
        more,
    ));
    fleet.scheduler.insert(fleet.resource(0)).expect("new");
    fleet
}

fn poll(future: &mut AcquireOwned<Res>) -> Poll<Result<OwnedLease<Res>, WaitError>> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

fn at_rest(fleet: Arc<Fleet>) {
    waits_have_ended(&fleet);
    assert_eq!(fleet.scheduler.check_invariants().in_flight, 0);
    let lease = fleet.scheduler.acquire().expect("no unit is lost");
    assert!(fleet.scheduler.acquire().is_err(), "none is doubled");
    drop(lease);
    let Ok(fleet) = Arc::try_unwrap(fleet) else { panic!("all threads are gone") };
    fleet.finish();
}

/// One of the lowest class waits, and others of all classes come again and again: of each class, d above, fewer than d x ageing are served
/// before it.
#[test]
fn no_class_starves() {
    const AGEING: usize = 2;
    scenario("no_class_starves", || {
        let fleet = fleet(|builder| builder.ageing(AGEING as u32));
        let lease = fleet.scheduler.acquire_owned().expect("free");
        let mut first = fleet.scheduler.request().owned();
        assert!(poll(&mut first).is_pending());
        // In the order in which they have had the one unit.
        let served = Arc::new(Mutex::new(Vec::new()));
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let served = Arc::clone(&served);
                spawn(&fleet, move |fleet, random| {
                    for _ in 0..3 {
                        let class = random.below(3) as u8;
                        let lease =
                            block_on(fleet.scheduler.request().class(class).owned()).expect("in the end");
                        served.lock().unwrap().push(class);
                        thread::yield_now();
                        drop(lease);
                    }
                })
            })
            .collect();
        drop(lease);
        let mine = block_on(first).expect("in the end");
        let before = served.lock().unwrap().clone();
        drop(mine);
        for class in 0..3 {
            let overtaken = before.iter().filter(|&&other| usize::from(other) == class).count();
            assert!(overtaken < (class * AGEING).max(1), "{overtaken} of class {class} were before it");
        }
        for thread in threads {
            thread.join().expect("no panic");
        }
        at_rest(fleet);
    });
}

/// Two may wait, four want to, and some of those who do give up. While nothing comes back, never more than two are in; nobody is refused but
/// with two in; all who stay are served.
#[test]
fn a_bounded_queue() {
    const MAX: usize = 2;
    scenario("a_bounded_queue", || {
        let fleet = fleet(|builder| builder.max_waiters(MAX));
        let lease = fleet.scheduler.acquire_owned().expect("free");
        // Counted after they came in and before they leave: never more than there are.
        let inside = Arc::new(AtomicU64::new(0));
        let refused = Arc::new(AtomicU64::new(0));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let (inside, refused) = (Arc::clone(&inside), Arc::clone(&refused));
                spawn(&fleet, move |fleet, random| {
                    for _ in 0..2 {
                        let mut future = fleet.scheduler.request().class(random.below(2) as u8).owned();
                        match poll(&mut future) {
                            Poll::Pending => {
                                let others = inside.fetch_add(1, Ordering::SeqCst);
                                assert!(others < MAX as u64, "{others} wait already");
                                if random.below(2) == 0 {
                                    return Some(future);
                                }
                                inside.fetch_sub(1, Ordering::SeqCst);
                            }
                            Poll::Ready(Err(error)) => {
                                assert_eq!(error, WaitError::QueueFull { waiting: MAX, max: MAX });
                                refused.fetch_add(1, Ordering::SeqCst);
                            }
                            Poll::Ready(Ok(_)) => panic!("it is lent"),
                        }
                    }
                    None
                })
            })
            .collect();
        let left: Vec<_> =
            threads.into_iter().filter_map(|thread| thread.join().expect("no panic")).collect();
        assert!(left.len() <= MAX);
        assert_eq!(fleet.scheduler.stats().waits.refused, refused.load(Ordering::SeqCst));
        // There is room for exactly as many as have left.
        let more: Vec<_> = (left.len()..MAX)
            .map(|_| {
                let mut future = fleet.scheduler.request().owned();
                assert!(poll(&mut future).is_pending(), "there is room");
                future
            })
            .collect();
        assert!(matches!(
            poll(&mut fleet.scheduler.request().owned()),
            Poll::Ready(Err(WaitError::QueueFull { .. }))
        ));
        drop(lease);
        let threads: Vec<_> = left
            .into_iter()
            .chain(more)
            .map(|future| thread::spawn(move || drop(block_on(future).expect("in the end"))))
            .collect();
        for thread in threads {
            thread.join().expect("no panic");
        }
        at_rest(fleet);
    });
}

/// Those who have little time are told at once, and have nothing; all others get the unit or run out of time. Each is counted once. Nobody is
/// told so who has time, and nobody before it.
#[test]
fn deadlines_that_cannot_be_met() {
    /// In all schedules.
    static SHED: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    scenario("deadlines_that_cannot_be_met", || {
        let fleet = fleet(|builder| builder.shed_late(true).ageing(2));
        let shed = Arc::new(AtomicU64::new(0));
        // Counted before they come in and after they have left, never fewer than there are; and all who came.
        let (inside, came) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let lease = fleet.scheduler.acquire_owned().expect("free");
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let (shed, inside, came) = (Arc::clone(&shed), Arc::clone(&inside), Arc::clone(&came));
                spawn(&fleet, move |fleet, random| {
                    for _ in 0..3 {
                        let time = SHORT * random.below(4);
                        let request = fleet.scheduler.request().class(random.below(2) as u8);
                        let request = if random.below(3) == 0 { request } else { request.timeout(time) };
                        let before = came.load(Ordering::SeqCst);
                        let others = inside.fetch_add(1, Ordering::SeqCst);
                        came.fetch_add(1, Ordering::SeqCst);
                        let ended = block_on(request.owned());
                        let alone = others == 0 && came.load(Ordering::SeqCst) == before + 1;
                        inside.fetch_sub(1, Ordering::SeqCst);
                        match ended {
                            Ok(lease) => {
                                lease.check();
                                fleet.clock.advance(SHORT);
                                drop(lease);
                            }
                            Err(WaitError::Shed { expected, left }) => {
                                assert!(left.is_zero() || !alone, "{expected:?}, {left:?}");
                                shed.fetch_add(1, Ordering::SeqCst);
                            }
                            Err(WaitError::TimedOut { .. }) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                })
            })
            .collect();
        fleet.clock.advance(SHORT);
        let _ = fleet.scheduler.tick();
        drop(lease);
        for thread in threads {
            thread.join().expect("no panic");
        }
        let shed = shed.load(Ordering::SeqCst);
        assert_eq!(fleet.scheduler.stats().waits.shed, shed);
        SHED.fetch_add(shed, Ordering::SeqCst);
        at_rest(fleet);
    });
    if std::env::var_os("SHUTTLE_REPLAY").is_none() {
        assert!(SHED.load(Ordering::SeqCst) > 0, "in some schedule somebody comes too late");
    }
}
