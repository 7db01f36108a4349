//! Wakers that do something, or panic; a clock that panics; a scheduler that goes while somebody waits.

use std::any::Any;

use super::*;

/// A waker that does something.
struct Does(Act);

impl Wake for Does {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

fn doing(act: impl Fn() + Send + Sync + 'static) -> Waker {
    Waker::from(Arc::new(Does(Box::new(act))))
}

/// Whatever a waker does, the unit goes to its task, and nothing is lost.
#[test]
fn a_waker_may_do_anything() {
    for what in 0..5 {
        let (fleet, _) = fleet(|builder| builder, 2);
        let fleet = Arc::new(fleet);
        let mut leases = fleet.acquire_many_owned(2).unwrap();
        let other = Arc::new(Mutex::new(leases.pop()));
        let mut task = fleet.acquire_async_owned();
        let next = Arc::new(Mutex::new(None));
        let rung = Arc::new(AtomicUsize::new(0));
        let waker = {
            let (fleet, other, next, rung) = (fleet.clone(), other.clone(), next.clone(), rung.clone());
            doing(move || {
                rung.fetch_add(1, SeqCst);
                // A panic in here would not be heard.
                let as_expected = match what {
                    0 => fleet.acquire().is_err(),
                    1 => other.lock().unwrap().take().is_some(),
                    2 => next.lock().unwrap().take().is_some(),
                    3 => fleet.close(),
                    _ => return boom(),
                };
                rung.fetch_add(10 * usize::from(!as_expected), SeqCst);
            })
        };
        assert!(poll_with(&mut task, &waker).is_pending());
        *next.lock().unwrap() = Some(waiting(fleet.acquire_async_owned()));
        drop(leases);
        assert_eq!(rung.load(SeqCst), 1, "{what}");
        drop(done(&mut task).expect("handed over before it was woken"));
        if let Some(mut next) = next.lock().unwrap().take() {
            match what {
                3 => assert_eq!(done(&mut next).map(drop), Err(WaitError::Closed)),
                _ => drop(done(&mut next).expect("the next one")),
            }
        }
        drop(other.lock().unwrap().take());
        drop((task, waker));
        assert_eq!(fleet.stats().in_flight, 0, "{what}");
        let waits = fleet.stats().waits;
        assert_eq!(waits.waited, waits.handed_off + waits.cancelled + waits.closed);
    }
}

/// Each of a crowd gives up in its waker, as an executor's does that has gone: the unit goes from one to the next, and no stack grows with them.
#[test]
fn a_crowd_that_gives_up_in_its_wakers_needs_no_deep_stack() {
    type Future = Box<dyn Any + Send>;
    const CROWD: usize = 50_000;
    for drains in [false, true] {
        let (fleet, _) = fleet(|builder| builder, 1);
        let fleet = Arc::new(fleet);
        let lease = fleet.acquire_owned().expect("free");
        let crowd: Arc<Vec<Mutex<Option<Future>>>> = Arc::new((0..CROWD).map(|_| Mutex::default()).collect());
        let rung = Arc::new(AtomicUsize::new(0));
        for number in 0..CROWD {
            let (here, rung) = (Arc::clone(&crowd), Arc::clone(&rung));
            let waker = doing(move || {
                rung.fetch_add(1, SeqCst);
                let future = here[number].lock().unwrap().take();
                drop(future);
            });
            let boxed: Future = if drains {
                let mut task = fleet.drain_async(&0).expect("a member");
                assert!(poll_with(&mut task, &waker).is_pending());
                Box::new(task)
            } else {
                let mut task = fleet.acquire_async_owned();
                assert!(poll_with(&mut task, &waker).is_pending());
                Box::new(task)
            };
            *crowd[number].lock().unwrap() = Some(boxed);
        }
        drop(lease);
        assert_eq!(rung.load(SeqCst), CROWD);
        assert_eq!(fleet.stats().in_flight, 0);
    }
}

/// A future that borrows nothing keeps what it needs; its lease may be the last that is left of the scheduler.
#[test]
fn a_scheduler_that_goes_under_a_waiting_future() {
    for served in [false, true] {
        let (fleet, _) = fleet(|builder| builder, 1);
        let lease = fleet.acquire_owned().unwrap();
        let mut task = waiting(fleet.acquire_async_owned());
        drop(fleet);
        if served {
            drop(lease);
            drop(done(&mut task).expect("it comes back all the same"));
        } else {
            drop(task);
            drop(lease);
        }
    }
}

/// A clock that panics, while somebody waits, takes nothing along.
#[test]
fn a_clock_that_panics_while_somebody_waits() {
    struct Bad(AtomicBool);
    impl Clock for Bad {
        fn now(&self) -> Timestamp {
            if self.0.load(SeqCst) {
                boom();
            }
            Timestamp::ZERO
        }
    }
    let clock = Arc::new(Bad(AtomicBool::new(false)));
    let fleet = Fleet::builder().shards(2).clock(Arc::clone(&clock)).build().unwrap();
    fleet.insert(Entry::new(0, 0, 0)).unwrap();
    let lease = fleet.acquire().unwrap();
    let mut first = waiting(fleet.request().timeout(SECOND).into_future());
    let mut second = waiting(fleet.acquire_async());
    clock.0.store(true, SeqCst);
    assert!(catch_unwind(AssertUnwindSafe(|| fleet.tick())).is_err());
    // A registration asks for the time, too.
    let mut third = fleet.acquire_async();
    assert!(catch_unwind(AssertUnwindSafe(|| poll(&mut third).is_pending())).is_err());
    drop(third);
    drop(lease);
    drop(done(&mut first).expect("handed over"));
    clock.0.store(false, SeqCst);
    drop(done(&mut second).expect("the next one"));
    assert_eq!(fleet.stats().in_flight, 0);
}

/// A task that has moved: the new waker is rung, and the old one is let go of at once. The same one again is not even cloned.
#[test]
fn another_waker_takes_the_place_of_the_first() {
    for fairness in [Fairness::Strict, Fairness::Throughput] {
        let (fleet, _) = fleet(|builder| builder.fairness(fairness), 1);
        let lease = fleet.acquire().unwrap();
        let bells = [(); 2].map(|()| Arc::new(Bell::default()));
        let counts = || bells.each_ref().map(Arc::strong_count);
        let rings = || bells.each_ref().map(|bell| bell.0.load(SeqCst));
        let mut task = fleet.acquire_async();
        for (polled_with, kept) in [(0, [2, 1]), (0, [2, 1]), (1, [1, 2]), (1, [1, 2])] {
            let waker = Waker::from(Arc::clone(&bells[polled_with]));
            assert!(poll_with(&mut task, &waker).is_pending());
            drop(waker);
            assert_eq!(counts(), kept);
        }
        drop(lease);
        assert_eq!((rings(), counts()), ([0, 1], [1, 1]), "the last one is rung");
        drop(done(&mut task).expect("it was woken"));
    }
}

/// Whatever the new waker does as it is cloned, what comes meanwhile is found by this very poll.
#[test]
fn another_waker_may_do_anything_when_it_is_cloned() {
    for what in 0..5 {
        let (fleet, _) = fleet(|builder| builder, 2);
        let fleet = Arc::new(fleet);
        let mut leases = fleet.acquire_many_owned(2).unwrap();
        let other = Arc::new(Mutex::new(leases.pop()));
        let mut task = waiting(fleet.acquire_async_owned());
        let next = Arc::new(Mutex::new(Some(waiting(fleet.acquire_async_owned()))));
        let (armed, missed) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(false)));
        let waker = {
            let (fleet, other, next) = (Arc::clone(&fleet), Arc::clone(&other), Arc::clone(&next));
            let (armed, missed) = (Arc::clone(&armed), Arc::clone(&missed));
            let on_clone = move || {
                let as_expected = !armed.swap(false, SeqCst)
                    || match what {
                        0 => fleet.acquire().is_err(),
                        1 => other.lock().unwrap().take().is_some(),
                        2 => next.lock().unwrap().take().is_some(),
                        3 => fleet.close(),
                        _ => return boom(),
                    };
                missed.fetch_or(!as_expected, SeqCst);
            };
            odd(on_clone, || {})
        };
        let polled = catch_unwind(AssertUnwindSafe(|| poll_with(&mut task, &waker)));
        assert!(!armed.load(SeqCst) && !missed.load(SeqCst), "{what}");
        match (what, polled) {
            (1, Ok(Poll::Ready(lease))) => drop(lease.expect("handed over as it was cloned")),
            (3, Ok(Poll::Ready(ended))) => assert_eq!(ended.map(drop), Err(WaitError::Closed)),
            (0 | 2, Ok(Poll::Pending)) | (4, Err(_)) => {
                drop(leases.pop());
                drop(done(&mut task).expect("handed over"));
            }
            (_, polled) => panic!("{what}: {:?}", polled.map(|poll| poll.is_pending())),
        }
        if let Some(mut next) = next.lock().unwrap().take() {
            match what {
                3 => assert_eq!(done(&mut next).map(drop), Err(WaitError::Closed)),
                _ => drop(done(&mut next).expect("the next one")),
            }
        }
        drop((task, waker, leases));
        drop(other.lock().unwrap().take());
        assert_eq!(fleet.stats().in_flight, 0, "{what}");
        let waits = fleet.stats().waits;
        assert_eq!(waits.waited, waits.handed_off + waits.cancelled + waits.closed, "{what}");
    }
}

/// Whatever the old waker does as it is let go of, what comes meanwhile rings the new one.
#[test]
fn the_first_waker_may_do_anything_when_it_is_let_go_of() {
    for what in 0..5 {
        let (fleet, _) = fleet(|builder| builder, 2);
        let fleet = Arc::new(fleet);
        let mut leases = fleet.acquire_many_owned(2).unwrap();
        let other = Arc::new(Mutex::new(leases.pop()));
        let next = Arc::new(Mutex::new(None));
        let (armed, missed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let first = {
            let (fleet, other, next) = (Arc::clone(&fleet), Arc::clone(&other), Arc::clone(&next));
            let (armed, missed) = (Arc::clone(&armed), Arc::clone(&missed));
            let on_drop = move || {
                let as_expected = !armed.swap(false, SeqCst)
                    || match what {
                        0 => fleet.acquire().is_err(),
                        1 => other.lock().unwrap().take().is_some(),
                        2 => next.lock().unwrap().take().is_some(),
                        3 => fleet.close(),
                        _ => return boom(),
                    };
                missed.fetch_or(!as_expected, SeqCst);
            };
            odd(|| {}, on_drop)
        };
        let mut task = fleet.acquire_async_owned();
        assert!(poll_with(&mut task, &first).is_pending());
        *next.lock().unwrap() = Some(waiting(fleet.acquire_async_owned()));
        let bell = Arc::new(Bell::default());
        armed.store(true, SeqCst);
        assert!(poll_with(&mut task, &Waker::from(Arc::clone(&bell))).is_pending(), "it has looked before");
        assert!(!armed.load(SeqCst) && !missed.load(SeqCst), "{what}");
        if ![1, 3].contains(&what) {
            assert_eq!(bell.0.load(SeqCst), 0, "{what}");
            drop(leases.pop());
        }
        assert_eq!(bell.0.load(SeqCst), 1, "{what}");
        match what {
            3 => assert_eq!(done(&mut task).map(drop), Err(WaitError::Closed)),
            _ => drop(done(&mut task).expect("handed over")),
        }
        if let Some(mut next) = next.lock().unwrap().take() {
            match what {
                3 => assert_eq!(done(&mut next).map(drop), Err(WaitError::Closed)),
                _ => drop(done(&mut next).expect("the next one")),
            }
        }
        drop((task, first, leases));
        drop(other.lock().unwrap().take());
        assert_eq!(fleet.stats().in_flight, 0, "{what}");
        let waits = fleet.stats().waits;
        assert_eq!(waits.waited, waits.handed_off + waits.cancelled + waits.closed, "{what}");
    }
}
