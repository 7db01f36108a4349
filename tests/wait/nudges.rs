//! Fairness for throughput: each waiter that is woken answers for the resource that it was woken for, also with several under way.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll, Wake, Waker},
};

use leasehold::{AcquireOwned, Entry, Fairness, OwnedLease, Scheduler, Standing, WaitError};

type Item = Entry<&'static str, u32, ()>;

/// Ranked in the order of the keys.
fn fleet(keys: &[&'static str]) -> Scheduler<Item> {
    let builder = Scheduler::<Item>::builder().shards(1);
    let fleet = builder.fairness(Fairness::Throughput).build().unwrap();
    for (rank, &key) in (0..).zip(keys) {
        fleet.insert(Entry::new(key, rank, ())).unwrap();
    }
    fleet
}

#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

struct Task {
    future: AcquireOwned<Item>,
    bell: Arc<Bell>,
}

impl Task {
    fn waiting(future: AcquireOwned<Item>) -> Self {
        let mut task = Task { future, bell: Arc::default() };
        assert!(task.poll().is_pending(), "nothing is free");
        task
    }

    fn poll(&mut self) -> Poll<Result<OwnedLease<Item>, WaitError>> {
        let waker = Waker::from(Arc::clone(&self.bell));
        Pin::new(&mut self.future).poll(&mut Context::from_waker(&waker))
    }

    fn is_woken(&self) -> bool {
        self.bell.0.load(SeqCst) > 0
    }

    /// What it takes when it is polled, having been woken.
    #[track_caller]
    fn takes(&mut self) -> OwnedLease<Item> {
        assert!(self.is_woken(), "woken");
        match self.poll() {
            Poll::Ready(lease) => lease.unwrap(),
            Poll::Pending => panic!("it finds nothing"),
        }
    }
}

#[track_caller]
fn nothing_is_free(fleet: &Scheduler<Item>) {
    let free: Vec<_> =
        fleet.snapshot().into_iter().filter(|state| state.standing == Standing::Eligible).collect();
    assert!(free.is_empty(), "somebody waits for {free:?}");
}

/// One who takes something else than he was woken for passes on what that was, and not whatever is best.
#[test]
fn a_nudge_that_is_passed_on_is_about_the_same_resource() {
    let fleet = fleet(&["Y", "W", "X"]);
    let [y, w, x] = ["Y", "W", "X"].map(|key| Some(fleet.acquire_key_owned(key).unwrap()));
    let mut any = Task::waiting(fleet.acquire_async_owned());
    let mut for_y = Task::waiting(fleet.acquire_key_async_owned("Y"));
    let mut for_w = Task::waiting(fleet.acquire_key_async_owned("W"));
    let mut other = Task::waiting(fleet.acquire_async_owned());
    let mut for_x = Task::waiting(fleet.acquire_key_async_owned("X"));
    drop(x);
    drop(y);
    drop(w);
    assert!(any.is_woken() && for_y.is_woken() && for_w.is_woken() && !other.is_woken());
    let first = any.takes();
    assert_eq!(*first.key(), "Y");
    assert!(for_y.poll().is_pending());
    let second = for_w.takes();
    let third = other.takes();
    assert_eq!((*second.key(), *third.key()), ("W", "X"));
    nothing_is_free(&fleet);
    drop(third);
    assert_eq!(*for_x.takes().key(), "X");
}

/// Two nudges under way, and the one who got the first gives up.
#[test]
fn a_nudge_of_one_who_gives_up_is_about_the_same_resource() {
    let fleet = fleet(&["Y", "X"]);
    let [y, x] = ["Y", "X"].map(|key| fleet.acquire_key_owned(key).unwrap());
    let any = Task::waiting(fleet.acquire_async_owned());
    let mut for_y = Task::waiting(fleet.acquire_key_async_owned("Y"));
    let mut other = Task::waiting(fleet.acquire_async_owned());
    let mut for_x = Task::waiting(fleet.acquire_key_async_owned("X"));
    drop(x);
    drop(y);
    assert!(any.is_woken() && for_y.is_woken());
    drop(any);
    let y = for_y.takes();
    let x = other.takes();
    assert_eq!((*y.key(), *x.key()), ("Y", "X"));
    drop(x);
    drop(for_x.takes());
}

/// A filter has said yes when it was woken, and says no when it tries: the next one is told.
#[test]
fn a_nudge_that_is_not_wanted_any_more_goes_on() {
    let fleet = fleet(&["X"]);
    let lease = fleet.acquire_owned().unwrap();
    let wants = Arc::new(AtomicBool::new(true));
    let asked = Arc::clone(&wants);
    let mut picky = Task::waiting(fleet.acquire_where_async_owned(move |_| asked.load(SeqCst)));
    let mut for_x = Task::waiting(fleet.acquire_key_async_owned("X"));
    drop(lease);
    assert!(picky.is_woken());
    wants.store(false, SeqCst);
    assert!(picky.poll().is_pending());
    drop(for_x.takes());
    drop(picky);
}

/// What a nudge is about may be gone from the fleet by the time it is answered: its memory is not.
#[test]
fn a_nudge_outlives_the_membership_of_its_resource() {
    let fleet = fleet(&["X"]);
    let lease = fleet.acquire_owned().unwrap();
    let mut any = Task::waiting(fleet.acquire_async_owned());
    drop(lease);
    fleet.remove("X").unwrap();
    for rank in 0..100 {
        fleet.insert(Entry::new("Z", rank, ())).unwrap();
        fleet.remove("Z").unwrap();
    }
    assert!(any.poll().is_pending());
    fleet.insert(Entry::new("Y", 0, ())).unwrap();
    assert_eq!(*any.takes().key(), "Y");
}
