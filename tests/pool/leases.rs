//! Jobs that run with a lease of a scheduler.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use leasehold::pool::{Ending, Pool, RejectReason, Task};

use super::common::{Gate, LONG, at_gate, closures, eventually, task};

/// Jobs with leases: never more at once than are lent, each returned with its outcome, also after a panic.
#[test]
fn jobs_run_with_leases() {
    use leasehold::{Entry, Outcome, Scheduler, WaitError};
    let fleet = Arc::new(Scheduler::<Entry<u32, u32, AtomicUsize>>::builder().build().expect("in range"));
    for key in 0..2 {
        fleet.insert(Entry::new(key, 0, AtomicUsize::new(0))).expect("new");
    }
    let pool = closures(4);
    let jobs: Vec<_> = (0..200)
        .map(|i| {
            pool.submit_with_lease(fleet.acquire_async_owned(), move |lease, _| {
                assert_eq!(lease.value.fetch_add(1, SeqCst), 0, "nobody else has it");
                lease.value.fetch_sub(1, SeqCst);
                assert!(i % 50 != 49, "one of fifty panics");
                (i, Outcome::Ok { latency: Duration::ZERO })
            })
            .expect("open")
        })
        .collect();
    let results: Vec<_> = jobs.into_iter().map(|job| job.wait()).collect();
    let panicked = results.iter().filter(|result| matches!(result, Err(Ending::Panicked(_)))).count();
    assert_eq!((panicked, results.len()), (4, 200));
    let stats = fleet.stats();
    assert_eq!(stats.in_flight, 0);
    eventually("they are told", || pool.stats().awaiting_lease == 0);
    // Nobody will lend any more.
    let held: Vec<_> = (0..2).map(|_| fleet.acquire_owned().expect("free")).collect();
    let late = pool.submit_with_lease(fleet.acquire_async_owned(), |_, _| ((), Outcome::Cancelled));
    fleet.close();
    assert!(matches!(late.expect("open").wait(), Ok(Err(WaitError::Closed))));
    drop(held);
}

/// Jobs that wait for a lease hold no worker, nor a place in the queue; with the lease they wait for one.
#[test]
fn a_job_waits_for_its_lease_without_a_worker() {
    use leasehold::{Entry, Outcome, Scheduler};
    let fleet = Arc::new(Scheduler::<Entry<u32, u32, ()>>::builder().build().expect("in range"));
    fleet.insert(Entry::new(1, 0, ())).expect("new");
    let pool = Pool::<Task>::builder().workers(1).capacity(1).build().expect("in range");
    let done = || Outcome::Ok { latency: Duration::ZERO };
    let held = fleet.acquire_owned().expect("free");
    let mut jobs: Vec<_> = (0..10)
        .map(|i| pool.submit_with_lease(fleet.acquire_async_owned(), move |_, _| (i, done())).expect("open"))
        .collect();
    assert_eq!(pool.stats().awaiting_lease, 10);
    assert_eq!(pool.spawn(|_| 7).expect("open").wait().expect("run"), 7, "the only worker is free");
    // A full queue: whoever gets the lease waits for room, and nobody for him.
    let gate = Gate::default();
    pool.submit(at_gate(&gate)).expect("open");
    gate.has(1);
    pool.try_submit(task(|| ())).expect("room");
    drop(held);
    eventually("the first has the lease", || fleet.stats().in_flight == 1);
    assert_eq!(pool.stats().awaiting_lease, 10);
    gate.open();
    let last = jobs.pop().expect("ten").wait();
    assert_eq!(last.expect("run").expect("lent"), 9);
    for (i, job) in jobs.into_iter().enumerate() {
        assert_eq!(job.wait().expect("run").expect("lent"), i);
    }
    eventually("all are over", || pool.stats().awaiting_lease == 0 && fleet.stats().in_flight == 0);
}

/// A pool that closes gives up what waits for leases: the jobs are told, and the scheduler keeps nobody.
#[test]
fn a_pool_that_closes_gives_up_waiting_for_leases() {
    use leasehold::{Entry, Outcome, Scheduler};
    let fleet = Arc::new(Scheduler::<Entry<u32, u32, ()>>::builder().build().expect("in range"));
    fleet.insert(Entry::new(1, 0, ())).expect("new");
    for dropped in [false, true] {
        let held = fleet.acquire_owned().expect("free");
        let pool = closures(1);
        let job = pool.submit_with_lease(fleet.acquire_async_owned(), |_, _| ((), Outcome::Failed));
        let job = job.expect("open");
        if dropped {
            drop(pool);
        } else {
            assert!(pool.shutdown(LONG).is_complete());
            let late = pool.submit_with_lease(fleet.acquire_async_owned(), |_, _| ((), Outcome::Failed));
            assert!(matches!(late, Err(RejectReason::Closed)));
            assert_eq!(pool.stats().rejected_closed, 1);
        }
        assert!(matches!(job.wait(), Err(Ending::Dropped)));
        drop(held);
        assert_eq!(fleet.stats().in_flight, 0, "nobody was lent anything");
    }
}

/// A future that panics, and one that is never woken, end with their jobs.
#[test]
fn a_lease_that_never_comes_is_told() {
    use leasehold::{Entry, Outcome, OwnedLease};
    type Lent = Result<OwnedLease<Entry<u32, u32, ()>>, ()>;
    let pool = closures(1);
    let panics = async { panic!("no lease") };
    let job = pool.submit_with_lease::<_, (), ()>(panics, |_: &OwnedLease<Entry<u32, u32, ()>>, _| {
        ((), Outcome::Failed)
    });
    assert!(matches!(job.expect("open").wait(), Err(Ending::Dropped)));
    assert_eq!(pool.stats().awaiting_lease, 0);
    let never = std::future::pending::<Lent>();
    let job = pool.submit_with_lease(never, |_, _| ((), Outcome::Failed)).expect("open");
    assert_eq!(pool.stats().awaiting_lease, 1);
    assert!(pool.shutdown(LONG).is_complete());
    assert!(matches!(job.wait(), Err(Ending::Dropped)));
}

/// A job that was dropped has returned its lease, though nobody has asked its handle.
#[test]
fn a_dropped_job_returns_its_lease_at_once() {
    use leasehold::{Entry, Outcome, Scheduler};
    let fleet = Arc::new(Scheduler::<Entry<u32, u32, ()>>::builder().build().expect("in range"));
    fleet.insert(Entry::new(1, 0, ())).expect("new");
    let (gate, pool) = (Gate::default(), closures(1));
    pool.submit(at_gate(&gate)).expect("open");
    gate.has(1);
    let job = pool.submit_with_lease(fleet.acquire_async_owned(), |_, _| ((), Outcome::Failed));
    let unread = job.expect("open");
    assert_eq!((fleet.stats().in_flight, pool.stats().queued), (1, 1));
    drop(pool);
    assert_eq!(fleet.stats().in_flight, 0, "it is not captive in the handle");
    assert!(matches!(unread.wait(), Err(Ending::Dropped)));
    gate.open();
}
