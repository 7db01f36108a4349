//! When overdue leases are looked for, and by whom: what an acquisition, a tick and a timer make of limits on leases.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::{
    future::Future,
    panic::resume_unwind,
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Waker},
    time::Duration,
};

use leasehold::{
    Builder, Capacity, Entry, ManualClock, Outcome, Overdue, ReleaseError, Resource, Scheduler, Timer,
    Timestamp,
};

type Plain = Entry<u32, u32, ()>;

const LIMIT: Duration = Duration::from_secs(10);

fn limited<R: Resource>(overdue: Overdue, max_hold: Duration) -> (Builder<R>, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new());
    let builder = Scheduler::<R>::builder().shards(1).clock(Arc::clone(&clock));
    (builder.max_hold(max_hold).overdue(overdue), clock)
}

/// Reports are for those who ask: an acquisition that finds nothing does not look, and nothing is due by itself.
#[test]
fn what_is_only_reported_is_looked_for_by_who_asks() {
    let (builder, clock) = limited::<Plain>(Overdue::Report, LIMIT);
    let fleet = builder.build().expect("in range");
    fleet.insert(Entry::new(0, 0, ())).expect("new");
    let _lease = fleet.acquire().expect("free");
    assert_eq!(fleet.tick(), None);
    clock.advance(2 * LIMIT);
    assert!(fleet.acquire().is_err());
    assert_eq!(fleet.stats().overdue, 0);
    assert_eq!(fleet.tick(), None);
    assert_eq!(fleet.overdue().len(), 1);
    assert_eq!(fleet.stats().overdue, 1);
}

/// If leases are taken back there is always a moment to look again, be it the last of all.
#[test]
fn the_longest_limit_is_a_moment() {
    let (builder, _) = limited::<Plain>(Overdue::Revoke, Duration::MAX);
    let fleet = builder.build().expect("in range");
    fleet.insert(Entry::new(0, 0, ())).expect("new");
    let _lease = fleet.acquire().expect("free");
    assert!(fleet.tick().is_some());
    assert!(fleet.tick().is_some());
}

/// Keeps what it is asked for.
#[derive(Default)]
struct Kept(Mutex<Vec<Duration>>);

impl Timer for Kept {
    fn call_after(&self, after: Duration, _call: Box<dyn FnOnce() + Send>) {
        self.0.lock().expect("no panic").push(after);
    }
}

/// Somebody who waits may sleep until the later moment.
#[test]
fn a_renewal_to_an_earlier_moment_sets_the_timer() {
    let (builder, _) = limited::<Plain>(Overdue::Revoke, LIMIT);
    let timer = Arc::new(Kept::default());
    let fleet = builder.timer(Arc::clone(&timer)).build().expect("in range");
    fleet.insert(Entry::new(0, 0, ())).expect("new");
    let mut lease = fleet.acquire().expect("free");
    assert_eq!(fleet.reap_overdue(), 0);
    lease.renew(LIMIT / 2).expect("not overdue");
    assert!(timer.0.lock().expect("no panic").is_empty(), "nobody waits");
    lease.renew(LIMIT).expect("not overdue");
    assert_eq!(fleet.reap_overdue(), 0);
    let mut waits = pin!(fleet.acquire_async());
    assert!(waits.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    timer.0.lock().expect("no panic").clear();
    lease.renew(2 * LIMIT).expect("not overdue");
    assert!(timer.0.lock().expect("no panic").is_empty(), "nothing is due earlier");
    lease.renew(LIMIT / 2).expect("not overdue");
    assert_eq!(*timer.0.lock().expect("no panic"), [LIMIT / 2]);
}

static FRAGILE: AtomicBool = AtomicBool::new(false);

/// Its rank is asked for when a unit comes back, and that may panic.
struct Fragile(u8);

impl Resource for Fragile {
    type Key = u8;
    type Priority = u32;

    fn key(&self) -> u8 {
        self.0
    }

    fn priority(&self, in_flight: u32) -> u32 {
        // Without the hook, which belongs to all tests of the process.
        if self.0 < 2 && FRAGILE.load(Ordering::Relaxed) {
            resume_unwind(Box::new("fragile"));
        }
        in_flight
    }

    fn capacity(&self) -> Capacity {
        Capacity::Limited(2)
    }
}

/// Whoever takes back what is overdue, because he wants a lease or ticks, has nothing to do with the resources whose leases those are: a
/// panic of theirs does not reach him, and all are taken back.
#[test]
fn a_panic_of_a_resource_that_is_taken_back_reaches_nobody() {
    let (builder, clock) = limited::<Fragile>(Overdue::Revoke, LIMIT);
    let fleet = builder.build().expect("in range");
    for key in 0..2 {
        fleet.insert(Fragile(key)).map_err(|rejected| rejected.error).expect("new");
    }
    let leases = fleet.acquire_many(4).expect("free");
    let mut waiting = pin!(fleet.acquire_key_async(&0));
    let mut context = Context::from_waker(Waker::noop());
    assert!(waiting.as_mut().poll(&mut context).is_pending());
    clock.advance(LIMIT);
    FRAGILE.store(true, Ordering::Relaxed);
    assert_eq!(fleet.reap_overdue(), 4);
    FRAGILE.store(false, Ordering::Relaxed);
    assert_eq!(fleet.stats().revoked, 4);
    assert!(waiting.as_mut().poll(&mut context).is_ready());
    assert_eq!(fleet.acquire_many(3).expect("taken back").len(), 3);
    drop(leases);
}

/// Whoever holds a lease can ask, and a return with an outcome is told.
#[test]
fn a_holder_is_told_in_every_form() {
    let (builder, _) = limited::<Plain>(Overdue::Report, LIMIT);
    let fleet = Arc::new(builder.build().expect("in range"));
    fleet.insert(Entry::new(0, 0, ())).expect("new");
    let mut owned = fleet.acquire_owned().expect("free");
    assert!(!owned.is_revoked());
    fleet.revoke(owned.token()).expect("out");
    assert!(owned.is_revoked());
    assert!(matches!(owned.try_finish(Outcome::Ok { latency: LIMIT }), Err(ReleaseError::Revoked { .. })));
    let mut lease = fleet.acquire().expect("taken back");
    fleet.revoke(lease.token()).expect("out");
    assert!(matches!(lease.try_finish(Outcome::Ok { latency: LIMIT }), Err(ReleaseError::Revoked { .. })));
    let lease = fleet.acquire().expect("taken back");
    let before = fleet.stats().succeeded;
    assert_eq!(lease.try_finish(Outcome::Ok { latency: LIMIT }), Ok(()));
    assert_eq!((fleet.stats().succeeded, fleet.stats().in_flight), (before + 1, 0));
}

/// Whoever takes a lease back is not the one who wants to know whose it was.
#[test]
fn who_held_what_was_taken_back_is_told_afterwards() {
    let (builder, clock) = limited::<Plain>(Overdue::Revoke, LIMIT);
    let fleet = builder.build().expect("in range");
    fleet.insert(Entry::new(7, 0, ())).expect("new");
    clock.advance(LIMIT);
    let forgotten = fleet.acquire().expect("free");
    let line = line!() - 1;
    let token = fleet.leases()[0].token;
    assert_eq!(fleet.revoked(), []);
    clock.advance(2 * LIMIT);
    let next = fleet.acquire().expect("taken back");
    assert_eq!(fleet.overdue(), []);
    let check = |held_for: Duration| {
        let [revoked] = &*fleet.revoked() else { panic!("one was taken back") };
        assert_eq!((revoked.key, revoked.token, revoked.revoked), (7, token, true));
        assert_eq!(
            (revoked.since, revoked.deadline),
            (Timestamp::ZERO.saturating_add(LIMIT), Timestamp::ZERO.saturating_add(2 * LIMIT))
        );
        assert_eq!((revoked.held_for, revoked.overdue_by()), (held_for, Some(held_for - LIMIT)));
        assert_eq!((revoked.call_site.file(), revoked.call_site.line()), (file!(), line));
    };
    check(2 * LIMIT);
    // Whatever becomes of it, and of its resource.
    drop(forgotten);
    fleet.revoke(fleet.leases()[0].token).expect("by hand");
    drop(next);
    fleet.remove(&7).expect("a member");
    fleet.close();
    clock.advance(LIMIT);
    check(2 * LIMIT);
}

#[test]
fn the_last_that_were_taken_back_are_remembered() {
    let (builder, clock) = limited::<Plain>(Overdue::Revoke, LIMIT);
    let fleet = builder.build().expect("in range");
    fleet.insert(Entry::new(0, 0, ())).expect("new");
    for _ in 0..100 {
        std::mem::forget(fleet.acquire().expect("taken back"));
        clock.advance(LIMIT);
    }
    assert_eq!(fleet.overdue().len(), 1);
    let revoked = fleet.revoked();
    assert_eq!(revoked.len(), 64);
    let since: Vec<_> = revoked.iter().map(|info| info.since).collect();
    let expected: Vec<_> = (36..100).map(|i| Timestamp::ZERO.saturating_add(i * LIMIT)).collect();
    assert_eq!(since, expected, "the latest last");
}
