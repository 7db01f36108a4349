//! Jobs that wait for a lease and are handed back, cancelled, or more urgent than others.

use std::{
    sync::{Arc, Mutex, mpsc},
    task::Poll,
    time::Duration,
};

use leasehold::{
    Entry, Outcome, WaitError,
    pool::{CancelToken, Ending, EndingKind, JobPriority, LeaseJob, Order, Pool, RejectReason, Task},
};

use super::{
    common::{Gate, LONG, at_gate, closures, eventually, poll, task},
    leases::{Fleet, done, one, poll_once},
};

/// What a shutdown hands back before there was a lease goes on waiting, in another pool or with whoever awaits it, and is run there once; in the order
/// in which it was submitted.
#[test]
fn a_job_that_waits_for_its_lease_is_handed_back_and_run_elsewhere() {
    let fleet = one();
    let held = fleet.acquire_owned().expect("free");
    let (first, second) = (closures(1), closures(1));
    let order = Arc::new(Mutex::new(Vec::new()));
    let jobs: Vec<_> = (0..20)
        .map(|i| {
            let order = Arc::clone(&order);
            let job = first.submit_with_lease(fleet.acquire_async_owned(), move |_, _| {
                order.lock().unwrap().push(i);
                (i, done())
            });
            job.expect("open")
        })
        .collect();
    let ended = first.shutdown(Duration::ZERO);
    assert_eq!((ended.unlent.len(), ended.given_up, ended.handed_back), (20, 20, 0));
    assert!(ended.unlent.iter().all(|job| !job.is_lent()));
    assert_eq!((first.stats().given_up, first.stats().awaiting_lease), (20, 0));
    assert_eq!((first.shutdown(LONG).unlent.len(), first.shutdown(LONG).given_up), (0, 20), "once");
    drop(first);
    for job in ended.unlent {
        second.submit_when_lent(job).expect("open");
    }
    assert_eq!((second.stats().awaiting_lease, fleet.stats().waits.cancelled), (20, 0), "they wait on");
    drop(held);
    for (i, job) in jobs.into_iter().enumerate() {
        assert_eq!(job.wait().expect("run").expect("lent"), i);
    }
    assert_eq!(*order.lock().unwrap(), (0..20).collect::<Vec<_>>());
    assert!(second.shutdown(LONG).is_complete());
    assert_eq!(fleet.stats().in_flight, 0);
}

/// One that had its lease and no room is handed back with it: it can be run at once, or gives the lease back when it is dropped. Awaited, each is a job.
#[test]
fn a_job_without_room_is_handed_back_with_its_lease() {
    let (fleet, gate) = (Arc::new(Fleet::builder().build().expect("in range")), Gate::default());
    (0..2).for_each(|key| fleet.insert(Entry::new(key, 0, ())).expect("new"));
    let pool = Pool::<Task>::builder().workers(1).capacity(1).build().expect("in range");
    pool.submit(at_gate(&gate)).expect("open");
    gate.has(1);
    pool.submit(task(|| ())).expect("room");
    let mut handles: Vec<_> = (0..2)
        .map(|i| pool.submit_with_lease(fleet.acquire_async_owned(), move |_, _| (i, done())).expect("open"))
        .collect();
    assert_eq!((fleet.stats().in_flight, pool.stats().waiting), (2, 2));
    let mut ended = pool.shutdown(Duration::ZERO);
    assert_eq!((ended.unlent.len(), ended.unrun.len(), ended.handed_back, ended.given_up), (2, 1, 1, 2));
    assert!(ended.unlent.iter().all(LeaseJob::is_lent));
    assert_eq!((pool.stats().waiting, fleet.stats().in_flight), (0, 2), "nobody waits for room any more");
    drop(ended.unlent.pop());
    assert_eq!(fleet.stats().in_flight, 1);
    assert!(matches!(handles.pop().expect("two").wait(), Err(Ending::Dropped)));
    let job = poll_once(ended.unlent.pop().expect("two")).expect("it has its lease");
    let second = closures(1);
    second.try_submit(job).expect("room");
    assert_eq!(handles.pop().expect("two").wait().expect("run").expect("lent"), 0);
    gate.open();
    eventually("it is returned", || fleet.stats().in_flight == 0);
}

/// A pool that takes nothing more gives the job back; awaited without a pool, one that gets no lease has ended, and its handle was told.
#[test]
fn a_job_that_waits_for_its_lease_is_refused_as_it_was() {
    let fleet = one();
    let held = fleet.acquire_owned().expect("free");
    let pool = closures(1);
    let _ = pool.shutdown(LONG);
    let (job, handle) = LeaseJob::new(fleet.acquire_async_owned(), |_, _| (7, done()));
    let refused = pool.submit_when_lent(job).expect_err("closed");
    assert_eq!(refused.to_string(), "the pool takes no more jobs");
    assert_eq!(format!("{refused:?}"), "LeaseJobError { reason: Closed, .. }");
    assert_eq!((refused.reason, pool.stats().rejected_closed), (RejectReason::Closed, 1));
    let mut job = refused.into_job();
    assert_eq!(format!("{job:?}"), "LeaseJob { priority: 32, is_cancelled: false, is_lent: false, .. }");
    assert!(poll(&mut job).is_pending());
    fleet.close();
    assert!(matches!(poll(&mut job), Poll::Ready(None)));
    assert!(matches!(handle.wait(), Ok(Err(WaitError::Closed))));
    drop(held);
}

/// One that is cancelled before its lease comes gives that back at once, to the next who waits, though no worker is free; its cleanup runs once. One that was
/// cancelled before it was submitted asks for nothing.
#[test]
fn a_cancelled_job_returns_its_lease_at_once() {
    let (fleet, gate) = (one(), Gate::default());
    let held = fleet.acquire_owned().expect("free");
    let pool = closures(1);
    pool.submit(at_gate(&gate)).expect("open");
    gate.has(1);
    let (token, (tell, told)) = (CancelToken::new(), mpsc::channel());
    let cancelled = || {
        let tell = tell.clone();
        let lease = fleet.acquire_async_owned();
        let (job, handle) = LeaseJob::new(lease, |_, _| -> ((), Outcome) { panic!("it was cancelled") });
        let job = job.cancel_with(token.clone());
        (job.cleanup(move |ending| tell.send(ending.kind()).unwrap()), handle)
    };
    let (job, waits) = cancelled();
    assert!(!job.is_cancelled());
    pool.submit_when_lent(job).expect("open");
    let next = pool.submit_with_lease(fleet.acquire_async_owned(), |_, _| (7, done())).expect("open");
    assert_eq!(pool.stats().awaiting_lease, 2);
    token.cancel();
    let (job, late) = cancelled();
    assert!(job.is_cancelled());
    pool.submit_when_lent(job).expect("open");
    assert_eq!((told.try_recv(), told.try_recv().is_err()), (Ok(EndingKind::Cancelled), true), "at once");
    assert!(matches!(late.wait(), Err(Ending::Cancelled)));
    assert_eq!((pool.stats().awaiting_lease, pool.stats().rejected_cancelled), (2, 1));
    drop(held);
    assert_eq!(
        (told.try_recv(), told.try_recv().is_err()),
        (Ok(EndingKind::Cancelled), true),
        "here and now"
    );
    assert!(matches!(waits.wait(), Err(Ending::Cancelled)));
    assert_eq!(
        (pool.stats().awaiting_lease, pool.stats().queued, pool.stats().rejected_cancelled),
        (0, 1, 2)
    );
    assert_eq!((fleet.stats().in_flight, next.is_finished()), (1, false), "the next one has it");
    gate.open();
    assert_eq!(next.wait().expect("run").expect("lent"), 7);
    assert!(pool.shutdown(LONG).is_complete());
    assert_eq!(fleet.stats().in_flight, 0);
}

/// One that is cancelled while it waits for room passes on its place, and its lease.
#[test]
fn a_job_that_is_cancelled_while_it_waits_for_room_leaves_its_place() {
    let (fleet, gate) = (Arc::new(Fleet::builder().build().expect("in range")), Gate::default());
    (0..2).for_each(|key| fleet.insert(Entry::new(key, 0, ())).expect("new"));
    let pool = Pool::<Task>::builder().workers(1).capacity(1).build().expect("in range");
    pool.submit(at_gate(&gate)).expect("open");
    gate.has(1);
    pool.submit(task(|| ())).expect("room");
    let token = CancelToken::new();
    let (first, cancelled) = LeaseJob::new(fleet.acquire_async_owned(), |_, _| ((), done()));
    pool.submit_when_lent(first.cancel_with(token.clone())).expect("open");
    let second = pool.submit_with_lease(fleet.acquire_async_owned(), |_, _| (7, done())).expect("open");
    assert_eq!((pool.stats().waiting, fleet.stats().in_flight), (2, 2));
    token.cancel();
    gate.open();
    assert_eq!(second.wait().expect("run").expect("lent"), 7);
    assert!(matches!(cancelled.wait(), Err(Ending::Cancelled)));
    assert!(pool.shutdown(LONG).is_complete());
    assert_eq!((fleet.stats().in_flight, pool.stats().rejected_cancelled), (0, 1));
}

/// A cleanup is run once, whatever becomes of the job, and finds the lease returned.
#[test]
fn a_job_with_a_lease_is_cleaned_up_once() {
    let fleet = one();
    let (tell, told) = mpsc::channel();
    let job = |panics: bool| {
        let (tell, here) = (tell.clone(), Arc::clone(&fleet));
        let body = move |_: &leasehold::OwnedLease<Entry<u32, u32, ()>>, _: &leasehold::pool::Context<'_>| {
            assert!(!panics, "it panics");
            ((), done())
        };
        let (job, _handle) = LeaseJob::new(fleet.acquire_async_owned(), body);
        job.cleanup(move |ending| tell.send((ending.kind(), here.stats().in_flight)).unwrap())
    };
    let ended = |kind| {
        assert_eq!(told.recv_timeout(LONG), Ok((kind, 0)));
        assert!(told.try_recv().is_err(), "once");
    };
    let pool = closures(1);
    pool.submit_when_lent(job(false)).expect("open");
    ended(EndingKind::Done);
    pool.submit_when_lent(job(true)).expect("open");
    ended(EndingKind::Panicked);
    // It has its lease, and is cancelled in the queue.
    let (gate, token) = (Gate::default(), CancelToken::new());
    pool.submit(at_gate(&gate)).expect("open");
    gate.has(1);
    pool.submit_when_lent(job(false).cancel_with(token.clone())).expect("open");
    assert_eq!((fleet.stats().in_flight, pool.stats().queued), (1, 1));
    token.cancel();
    gate.open();
    ended(EndingKind::Cancelled);
    eventually("it is counted", || pool.stats().cancelled == 1);
    // Never submitted; with its lease, but not run.
    drop(job(false));
    ended(EndingKind::Dropped);
    drop(poll_once(job(false)).expect("lent"));
    ended(EndingKind::Dropped);
    let held = fleet.acquire_owned().expect("free");
    let other = closures(1);
    other.submit_when_lent(job(false)).expect("open");
    pool.submit_when_lent(job(false)).expect("open");
    let back = pool.shutdown(Duration::ZERO);
    assert_eq!((back.unlent.len(), told.try_recv().is_err()), (1, true));
    drop((other, back));
    for _ in 0..2 {
        assert_eq!(told.try_recv(), Ok((EndingKind::Dropped, 1)), "while somebody else has the lease");
    }
    assert!(told.try_recv().is_err(), "once");
    drop(held);
    fleet.close();
    let last = closures(1);
    last.submit_when_lent(job(false)).expect("open");
    ended(EndingKind::Dropped);
    assert!(last.shutdown(LONG).is_complete(), "it has ended without a lease");
}

/// Its closure has something of which the drop panics, and is never called: the cleanup comes all the same.
#[test]
fn a_closure_whose_drop_panics_does_not_keep_the_cleanup() {
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            std::panic::resume_unwind(Box::new("in a drop"));
        }
    }
    let fleet = one();
    let (tell, told) = mpsc::channel();
    let pool = closures(1);
    let (gate, token) = (Gate::default(), CancelToken::new());
    pool.submit(at_gate(&gate)).expect("open");
    gate.has(1);
    let panics = Panics;
    let (job, _handle) = LeaseJob::new(fleet.acquire_async_owned(), move |_, _| {
        let _ = &panics;
        ((), done())
    });
    let job = job.cleanup(move |ending| tell.send(ending.kind()).unwrap()).cancel_with(token.clone());
    pool.submit_when_lent(job).expect("open");
    eventually("it is queued", || pool.stats().queued == 1);
    token.cancel();
    gate.open();
    assert_eq!(told.recv_timeout(LONG), Ok(EndingKind::Cancelled));
    assert!(pool.shutdown(LONG).is_complete());
    assert_eq!(fleet.stats().in_flight, 0);
}

/// Once they have their leases, the more urgent ones go first.
#[test]
fn jobs_with_leases_go_by_their_priority() {
    let (fleet, gate) = (Arc::new(Fleet::builder().build().expect("in range")), Gate::default());
    (0..4).for_each(|key| fleet.insert(Entry::new(key, 0, ())).expect("new"));
    let held: Vec<_> = (0..4).map(|_| fleet.acquire_owned().expect("free")).collect();
    let pool = Pool::<Task>::builder().workers(1).order(Order::Priority).build().expect("in range");
    pool.submit(at_gate(&gate)).expect("open");
    gate.has(1);
    let order = Arc::new(Mutex::new(Vec::new()));
    let handles: Vec<_> = [32, 1, 63, 5]
        .map(|number| {
            let order = Arc::clone(&order);
            let (job, handle) = LeaseJob::new(fleet.acquire_async_owned(), move |_, _| {
                order.lock().unwrap().push(number);
                ((), done())
            });
            let job = job.priority(JobPriority::new(number).expect("in range"));
            assert_eq!(job.get_priority().get(), number);
            pool.submit_when_lent(job).expect("open");
            handle
        })
        .into();
    assert_eq!(pool.stats().awaiting_lease, 4);
    drop(held);
    assert_eq!((pool.stats().awaiting_lease, pool.stats().queued), (0, 4));
    gate.open();
    handles.into_iter().for_each(|handle| handle.wait().expect("run").expect("lent"));
    assert_eq!(*order.lock().unwrap(), [1, 5, 32, 63]);
}
