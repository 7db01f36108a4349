//! Waiting: returns against registrations and cancellations. A lost wake-up shows as a deadlock, a lost unit as a later "none",
//! a doubled one in the counts.
//!
//! A time-out cannot be modelled as such: it is the dropping of a future, or a `tick`.

use std::{
    future::{Future, IntoFuture},
    pin::Pin,
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
    task::{Context, Poll, Wake, Waker},
};

use leasehold::{
    Acquire, Builder, Fairness, WaitError,
    internals::sync::{Arc, thread},
};
use loom::future::block_on;

use crate::{
    common::{SHORT, model, model_within},
    driver::{Fixed, Fleet, Res, Setup},
};

/// A future that a model polls by hand.
pub struct Task<F> {
    future: Pin<Box<F>>,
    woken: std::sync::Arc<Bell>,
}

#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

impl<F: Future> Task<F> {
    pub fn new(future: F) -> Self {
        Task { future: Box::pin(future), woken: std::sync::Arc::default() }
    }

    /// Polled once, and waiting.
    pub fn waiting(future: F) -> Self {
        let mut task = Self::new(future);
        assert!(task.poll().is_none(), "nothing is free");
        task
    }

    pub fn poll(&mut self) -> Option<F::Output> {
        let waker = Waker::from(self.woken.clone());
        match self.future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    /// Polled with another waker. What the old one has heard does not count any more.
    pub fn poll_anew(&mut self) -> Option<F::Output> {
        self.woken = std::sync::Arc::default();
        self.poll()
    }

    /// What has come by now, which must have been told.
    pub fn done(&mut self) -> F::Output {
        assert!(self.woken.0.load(SeqCst) > 0, "woken");
        self.poll().expect("it was woken")
    }

    pub fn is_woken(&self) -> bool {
        self.rings() > 0
    }

    /// How often it was woken.
    pub fn rings(&self) -> usize {
        self.woken.0.load(SeqCst)
    }
}

/// Resources 0 to `count`.
pub fn fleet(setup: Setup, count: u8) -> Arc<Fleet> {
    with(setup, count, Fairness::Strict)
}

pub fn with(setup: Setup, count: u8, fairness: Fairness) -> Arc<Fleet> {
    built(setup, count, |builder| builder.fairness(fairness))
}

pub fn built(
    setup: Setup,
    count: u8,
    more: impl FnOnce(Builder<Res, Fixed>) -> Builder<Res, Fixed>,
) -> Arc<Fleet> {
    let fleet = Arc::new(Fleet::with(setup, more));
    for key in 0..count {
        fleet.scheduler.insert(fleet.resource(key)).expect("new");
    }
    fleet
}

pub fn spawn<T: 'static>(
    fleet: &Arc<Fleet>,
    body: impl FnOnce(&Fleet) -> T + 'static,
) -> thread::JoinHandle<T> {
    let fleet = Arc::clone(fleet);
    crate::common::spawn(move || body(&fleet))
}

/// Waits as a task does, and holds what it gets for a moment.
pub fn use_one(future: Acquire<'_, Res>) -> Result<u8, WaitError> {
    block_on(future).map(|lease| lease.check())
}

/// Every wait has ended once, `free` units can be had, and no more.
pub fn at_rest(fleet: Arc<Fleet>, free: usize) {
    let waits = fleet.scheduler.stats().waits;
    let ended = waits.handed_off + waits.timed_out + waits.cancelled + waits.failed + waits.closed;
    assert_eq!(waits.waited, ended, "every wait has ended once");
    assert_eq!(waits.histogram.iter().sum::<u64>(), waits.handed_off, "each length is counted");
    assert_eq!(fleet.scheduler.check_invariants().in_flight, 0);
    if !fleet.scheduler.is_closed() {
        let all = fleet.scheduler.acquire_many(free).expect("no unit is lost");
        assert!(fleet.scheduler.acquire().is_err(), "none is doubled");
        drop(all);
    }
    let Ok(fleet) = Arc::try_unwrap(fleet) else { panic!("all threads are gone") };
    fleet.finish();
}

#[test]
fn register_release() {
    model(|| {
        let fleet = fleet(Setup::default(), 1);
        let lease = fleet.scheduler.acquire_owned().expect("free");
        let other = spawn(&fleet, |fleet| use_one(fleet.scheduler.acquire_async()));
        drop(lease);
        assert_eq!(other.join().expect("no panic"), Ok(0));
        at_rest(fleet, 1);
    });
}

#[test]
fn thread_register_release() {
    model(|| {
        let fleet = fleet(Setup::default(), 1);
        let lease = fleet.scheduler.acquire_owned().expect("free");
        let other = spawn(&fleet, |fleet| fleet.scheduler.request().wait().map(|lease| lease.check()));
        drop(lease);
        assert_eq!(other.join().expect("no panic"), Ok(0));
        at_rest(fleet, 1);
    });
}

#[test]
fn named_register_release() {
    model(|| {
        let fleet = fleet(Setup::default(), 1);
        let lease = fleet.scheduler.acquire_owned().expect("free");
        let other = spawn(&fleet, |fleet| use_one(fleet.scheduler.acquire_key_async(&0)));
        drop(lease);
        assert_eq!(other.join().expect("no panic"), Ok(0));
        at_rest(fleet, 1);
    });
}

/// Nobody wants what is returned, and then somebody registers who does.
#[test]
fn filter_register_release() {
    model_within(2, || {
        let fleet = fleet(Setup::default(), 1);
        let lease = fleet.scheduler.acquire_owned().expect("free");
        let picky = Task::waiting(fleet.scheduler.acquire_where_async_owned(|res| res.check() == 9));
        let other = spawn(&fleet, |fleet| {
            block_on(fleet.scheduler.acquire_where_async(|res| res.check() == 0)).map(|lease| lease.check())
        });
        drop(lease);
        assert_eq!(other.join().expect("no panic"), Ok(0));
        drop(picky);
        at_rest(fleet, 1);
    });
}

#[test]
fn two_waiters_two_releases() {
    model_within(1, || {
        let fleet = fleet(Setup::default(), 2);
        let one = fleet.scheduler.acquire_owned().expect("free");
        let two = fleet.scheduler.acquire_owned().expect("free");
        let others = [(); 2].map(|()| spawn(&fleet, |fleet| use_one(fleet.scheduler.acquire_async())));
        drop(one);
        drop(two);
        for other in others {
            assert!(other.join().expect("no panic").is_ok());
        }
        at_rest(fleet, 2);
    });
}

/// Two are queued, two return at the same time: the first gets one, and the second the other.
#[test]
fn two_returners() {
    model(|| {
        let fleet = fleet(Setup { shards: 2, ..Setup::default() }, 2);
        let one = fleet.scheduler.acquire_owned().expect("free");
        let two = fleet.scheduler.acquire_owned().expect("free");
        let mut tasks = [(); 2].map(|()| Task::waiting(fleet.scheduler.acquire_async_owned()));
        let other = spawn(&fleet, move |_| drop(one));
        drop(two);
        other.join().expect("no panic");
        let keys = tasks.each_mut().map(|task| task.done().expect("a unit each").check());
        assert_ne!(keys[0], keys[1]);
        drop(tasks);
        at_rest(fleet, 2);
    });
}

/// A future is dropped at the moment of the hand-off: its unit goes to the next, or back.
#[test]
fn cancel_release() {
    model(|| {
        let fleet = fleet(Setup::default(), 1);
        let lease = fleet.scheduler.acquire_owned().expect("free");
        let first = Task::waiting(fleet.scheduler.acquire_async_owned());
        let mut second = Task::waiting(fleet.scheduler.acquire_async_owned());
        let other = spawn(&fleet, move |_| drop(lease));
        drop(first);
        other.join().expect("no panic");
        drop(second.done().expect("the next one"));
        drop(second);
        at_rest(fleet, 1);
    });
}

#[test]
fn cancel_release_alone() {
    model(|| {
        let fleet = fleet(Setup::default(), 1);
        let lease = fleet.scheduler.acquire_owned().expect("free");
        let task = Task::waiting(fleet.scheduler.acquire_async_owned());
        let other = spawn(&fleet, move |_| drop(lease));
        drop(task);
        other.join().expect("no panic");
        at_rest(fleet, 1);
    });
}

/// Both of two are dropped while the unit is on its way.
#[test]
fn cancel_cancel_release() {
    model_within(1, || {
        let fleet = fleet(Setup::default(), 1);
        let lease = fleet.scheduler.acquire_owned().expect("free");
        let one = Task::waiting(fleet.scheduler.acquire_async_owned());
        let two = Task::waiting(fleet.scheduler.acquire_key_async_owned(&0));
        let returner = spawn(&fleet, move |_| drop(lease));
        let other = spawn(&fleet, move |_| drop(two));
        drop(one);
        returner.join().expect("no panic");
        other.join().expect("no panic");
        at_rest(fleet, 1);
    });
}

/// An overdue wait is ended at the moment of the hand-off.
#[test]
fn overdue_release() {
    model(|| {
        let fleet = fleet(Setup::default(), 1);
        let lease = fleet.scheduler.acquire_owned().expect("free");
        let mut first = Task::waiting(fleet.scheduler.request().timeout(SHORT).owned());
        let mut second = Task::waiting(fleet.scheduler.acquire_async_owned());
        fleet.clock.advance(SHORT);
        let other = spawn(&fleet, move |_| drop(lease));
        let _ = fleet.scheduler.tick();
        other.join().expect("no panic");
        match first.done() {
            Ok(lease) => {
                assert!(!second.is_woken());
                drop(lease);
            }
            Err(error) => assert_eq!(error, WaitError::TimedOut { waited: SHORT }),
        }
        drop(second.done().expect("the next one"));
        drop((first, second));
        at_rest(fleet, 1);
    });
}

/// While somebody waits, nobody else gets what is returned.
#[test]
fn passer_by() {
    model(|| {
        let fleet = fleet(Setup::default(), 1);
        let lease = fleet.scheduler.acquire_owned().expect("free");
        let mut task = Task::waiting(fleet.scheduler.acquire_async_owned());
        let other = spawn(&fleet, move |_| drop(lease));
        assert!(fleet.scheduler.acquire().is_err(), "no barging");
        other.join().expect("no panic");
        drop(task.done().expect("handed over"));
        drop(task);
        at_rest(fleet, 1);
    });
}

#[test]
fn passer_by_named() {
    model(|| {
        let fleet = fleet(Setup::default(), 1);
        let lease = fleet.scheduler.acquire_owned().expect("free");
        let mut task = Task::waiting(fleet.scheduler.acquire_key_async_owned(&0));
        let other = spawn(&fleet, move |_| drop(lease));
        assert!(fleet.scheduler.acquire().is_err(), "no barging");
        other.join().expect("no panic");
        drop(task.done().expect("handed over"));
        drop(task);
        at_rest(fleet, 1);
    });
}

/// A newcomer that waits does not overtake.
#[test]
fn newcomer() {
    model(|| {
        let fleet = fleet(Setup::default(), 1);
        let lease = fleet.scheduler.acquire_owned().expect("free");
        let mut first = Task::waiting(fleet.scheduler.acquire_async_owned());
        let other = spawn(&fleet, move |_| drop(lease));
        let mut second = Task::waiting(fleet.scheduler.acquire_async_owned());
        other.join().expect("no panic");
        drop(first.done().expect("handed over"));
        drop(second.done().expect("handed over"));
        drop((first, second));
        at_rest(fleet, 1);
    });
}

/// The filter refuses one and accepts the other; both come back at the same time, so that it may be away when it would
/// say yes.
#[test]
fn filter_missed() {
    model(|| {
        let fleet = fleet(Setup::default(), 2);
        let refused = fleet.scheduler.acquire_owned().expect("free");
        let accepted = fleet.scheduler.acquire_owned().expect("free");
        assert_eq!((refused.check(), accepted.check()), (0, 1));
        let mut task = Task::waiting(fleet.scheduler.acquire_where_async_owned(|res| {
            // A schedule point, where a filter of a user would do something.
            thread::yield_now();
            res.check() == 1
        }));
        let other = spawn(&fleet, move |_| drop(refused));
        drop(accepted);
        other.join().expect("no panic");
        assert_eq!(task.done().expect("handed over").check(), 1);
        drop(task);
        at_rest(fleet, 2);
    });
}

/// Two filters, and each is being asked about one unit when the other one comes by: either may be left with a filter.
#[test]
fn filters_missed() {
    model(|| {
        let fleet = fleet(Setup::default(), 2);
        let wanted = fleet.scheduler.acquire_owned().expect("free");
        let refused = fleet.scheduler.acquire_owned().expect("free");
        assert_eq!((wanted.check(), refused.check()), (0, 1));
        let mut first = Task::waiting(fleet.scheduler.acquire_where_async_owned(|res| res.check() == 0));
        let second = Task::waiting(fleet.scheduler.acquire_where_async_owned(|_| false));
        let other = spawn(&fleet, move |_| drop(refused));
        drop(wanted);
        other.join().expect("no panic");
        assert_eq!(first.done().expect("handed over").check(), 0);
        drop((first, second));
        at_rest(fleet, 2);
    });
}

/// As above, and somebody behind it takes anything: it is not overtaken, whichever comes back first.
#[test]
fn filter_not_overtaken() {
    model(|| {
        let fleet = fleet(Setup::default(), 2);
        let refused = fleet.scheduler.acquire_owned().expect("free");
        let accepted = fleet.scheduler.acquire_owned().expect("free");
        let mut first = Task::waiting(fleet.scheduler.acquire_where_async_owned(|res| {
            thread::yield_now();
            res.check() == 1
        }));
        let mut second = Task::waiting(fleet.scheduler.acquire_async_owned());
        let other = spawn(&fleet, move |_| drop(refused));
        drop(accepted);
        other.join().expect("no panic");
        let leases = [first.done(), second.done()].map(|lease| lease.expect("handed over"));
        assert_eq!([leases[0].check(), leases[1].check()], [1, 0]);
        drop((first, second, leases));
        at_rest(fleet, 2);
    });
}

/// Nobody wants what is returned, and somebody of a higher class registers who does: it stands before the one that was asked.
#[test]
fn filter_register_higher_release() {
    model_within(2, || {
        let fleet = fleet(Setup::default(), 1);
        let lease = fleet.scheduler.acquire_owned().expect("free");
        let picky = Task::waiting(fleet.scheduler.acquire_where_async_owned(|res| res.check() == 9));
        let other = spawn(&fleet, |fleet| {
            let request = fleet.scheduler.request().class(1).matching(|res: &Res| res.check() == 0);
            block_on(request.into_future()).map(|lease| lease.check())
        });
        drop(lease);
        assert_eq!(other.join().expect("no panic"), Ok(0));
        drop(picky);
        at_rest(fleet, 1);
    });
}

/// More come to a filter than whoever asks it goes on with (in a model: one): it is passed over, told, and looks for itself.
#[test]
fn filter_passed_over() {
    model_within(1, || {
        let fleet = fleet(Setup::default(), 3);
        let leases = [0, 1, 2].map(|key| fleet.scheduler.acquire_key_owned(&key).expect("free"));
        let [own, first, second] = leases;
        let mut task = Task::waiting(fleet.scheduler.acquire_where_async_owned(|res| {
            thread::yield_now();
            res.check() == 2
        }));
        let other = spawn(&fleet, move |_| {
            drop(first);
            drop(second);
        });
        drop(own);
        other.join().expect("no panic");
        assert_eq!(task.done().expect("handed over, or there").check(), 2);
        drop(task);
        at_rest(fleet, 3);
    });
}

/// As above, and it looks while the unit that it was not asked about may still be on its way.
#[test]
fn filter_passed_over_look() {
    model_within(1, || {
        let fleet = fleet(Setup::default(), 3);
        let leases = [0, 1, 2].map(|key| fleet.scheduler.acquire_key_owned(&key).expect("free"));
        let [own, first, second] = leases;
        let mut task = Task::waiting(fleet.scheduler.acquire_where_async_owned(|res| {
            let key = res.check();
            if key == 0 {
                thread::yield_now();
            }
            key == 2
        }));
        let other = spawn(&fleet, move |_| drop(own));
        drop(first);
        drop(second);
        // Before it is told, while the unit is in hand, or after.
        let early = task.poll();
        other.join().expect("no panic");
        let served = early.unwrap_or_else(|| task.poll().expect("it is there, or was handed over"));
        assert_eq!(served.expect("handed over, or there").check(), 2);
        drop(task);
        at_rest(fleet, 3);
    });
}

/// A future is dropped while its filter is being asked, or a unit is left with that.
#[test]
fn filter_cancel_parked() {
    model_within(1, || {
        let fleet = fleet(Setup::default(), 2);
        let refused = fleet.scheduler.acquire_owned().expect("free");
        let accepted = fleet.scheduler.acquire_owned().expect("free");
        let task = Task::waiting(fleet.scheduler.acquire_where_async_owned(|res| {
            thread::yield_now();
            res.check() == 1
        }));
        let others = [refused, accepted].map(|lease| spawn(&fleet, move |_| drop(lease)));
        drop(task);
        for other in others {
            other.join().expect("no panic");
        }
        at_rest(fleet, 2);
    });
}

/// A filter is dropped with its future while it is being asked.
#[test]
fn filter_cancel() {
    model(|| {
        let fleet = fleet(Setup::default(), 1);
        let lease = fleet.scheduler.acquire_owned().expect("free");
        let task = Task::waiting(fleet.scheduler.acquire_where_async_owned(|res| {
            thread::yield_now();
            res.check() == 0
        }));
        let other = spawn(&fleet, move |_| drop(lease));
        drop(task);
        other.join().expect("no panic");
        at_rest(fleet, 1);
    });
}

/// A filter that borrows is back before its owner's call returns, also if the wait is overdue while it is being asked.
#[test]
fn borrowed_filter_overdue() {
    model_within(1, || {
        let fleet = fleet(Setup::default(), 1);
        let lease = fleet.scheduler.acquire_owned().expect("free");
        let returner = spawn(&fleet, move |_| drop(lease));
        let clock = spawn(&fleet, |fleet| {
            fleet.clock.advance(SHORT);
            let _ = fleet.scheduler.tick();
        });
        let borrowed = AtomicUsize::new(0);
        let accepts = |res: &Res| {
            thread::yield_now();
            assert_eq!(borrowed.load(SeqCst), 0, "asked after its call has returned");
            res.check() == 0
        };
        let waited = fleet.scheduler.acquire_where_timeout(accepts, SHORT).map(|lease| lease.check());
        borrowed.store(1, SeqCst);
        match waited {
            Ok(key) => assert_eq!(key, 0),
            Err(error) => assert_eq!(error, WaitError::TimedOut { waited: SHORT }),
        }
        returner.join().expect("no panic");
        clock.join().expect("no panic");
        at_rest(fleet, 1);
    });
}

/// A part of several units is there when the future is dropped.
#[test]
fn many_cancel() {
    model(|| {
        let fleet = fleet(Setup { shards: 2, ..Setup::default() }, 2);
        let one = fleet.scheduler.acquire_owned().expect("free");
        let two = fleet.scheduler.acquire_owned().expect("free");
        let many = Task::waiting(fleet.scheduler.acquire_many_async_owned(2));
        let mut next = Task::waiting(fleet.scheduler.acquire_async_owned());
        let other = spawn(&fleet, move |_| drop(one));
        drop(many);
        other.join().expect("no panic");
        drop(next.done().expect("the next one"));
        drop((next, two));
        at_rest(fleet, 2);
    });
}

/// Two that want all of the fleet: one after the other.
#[test]
fn many_many() {
    model_within(1, || {
        let fleet = fleet(Setup { shards: 2, ..Setup::default() }, 2);
        let one = fleet.scheduler.acquire_owned().expect("free");
        let two = fleet.scheduler.acquire_owned().expect("free");
        let others = [(); 2].map(|()| {
            spawn(&fleet, |fleet| {
                let leases = block_on(fleet.scheduler.acquire_many_async(2)).expect("in the end");
                assert_eq!(leases.len(), 2);
            })
        });
        drop(one);
        drop(two);
        for other in others {
            other.join().expect("no panic");
        }
        at_rest(fleet, 2);
    });
}

/// Throughput: a nudge that is cancelled goes on.
#[test]
fn nudge_cancel() {
    model(|| {
        let fleet = with(Setup::default(), 1, Fairness::Throughput);
        let lease = fleet.scheduler.acquire_owned().expect("free");
        let first = Task::waiting(fleet.scheduler.acquire_async_owned());
        let mut second = Task::waiting(fleet.scheduler.acquire_async_owned());
        let other = spawn(&fleet, move |_| drop(lease));
        drop(first);
        other.join().expect("no panic");
        drop(second.done().expect("it was nudged, or served"));
        drop(second);
        at_rest(fleet, 1);
    });
}

/// Throughput: whoever loses against a passer-by waits again.
#[test]
fn nudge_passer_by() {
    model(|| {
        let fleet = with(Setup::default(), 1, Fairness::Throughput);
        let lease = fleet.scheduler.acquire_owned().expect("free");
        let other = spawn(&fleet, |fleet| use_one(fleet.scheduler.acquire_async()));
        drop(lease);
        drop(fleet.scheduler.acquire());
        assert_eq!(other.join().expect("no panic"), Ok(0));
        at_rest(fleet, 1);
    });
}

/// Throughput: two nudges about two resources are under way, and the one who got the first gives up. Each resource finds who wants it.
#[test]
fn nudges_of_two() {
    model(|| {
        let fleet = with(Setup::default(), 2, Fairness::Throughput);
        let zero = fleet.scheduler.acquire_owned().expect("free");
        let one = fleet.scheduler.acquire_owned().expect("free");
        let first = Task::waiting(fleet.scheduler.acquire_async_owned());
        let mut for_zero = Task::waiting(fleet.scheduler.acquire_key_async_owned(&0));
        let mut for_one = Task::waiting(fleet.scheduler.acquire_key_async_owned(&1));
        let other = spawn(&fleet, move |_| {
            drop(one);
            drop(zero);
        });
        drop(first);
        other.join().expect("no panic");
        drop(for_zero.done().expect("it was nudged"));
        drop(for_one.done().expect("it was nudged"));
        drop((for_zero, for_one));
        at_rest(fleet, 2);
    });
}

/// The same with others who take anything: whoever comes first takes the best, and answers for the other.
#[test]
fn nudges_of_two_and_anybody() {
    model_within(1, || {
        let fleet = with(Setup::default(), 2, Fairness::Throughput);
        let zero = fleet.scheduler.acquire_owned().expect("free");
        let one = fleet.scheduler.acquire_owned().expect("free");
        let mut first = Task::waiting(fleet.scheduler.acquire_async_owned());
        let for_zero = Task::waiting(fleet.scheduler.acquire_key_async_owned(&0));
        let other_one = Task::waiting(fleet.scheduler.acquire_async_owned());
        let other = spawn(&fleet, move |_| {
            drop(one);
            drop(zero);
        });
        let early = first.poll();
        other.join().expect("no panic");
        let late = if early.is_none() && first.is_woken() { first.poll() } else { None };
        // Those who were woken try, once each, and none of the two resources is left then.
        let others = [for_zero, other_one].map(|mut task| if task.is_woken() { task.poll() } else { None });
        let taken: Vec<_> = early.into_iter().chain(late).chain(others.into_iter().flatten()).collect();
        assert_eq!(taken.len(), 2);
        assert!(fleet.scheduler.acquire().is_err());
        drop((first, taken));
        at_rest(fleet, 2);
    });
}
