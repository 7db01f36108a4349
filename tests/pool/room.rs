//! Those who wait for room.

use std::{
    future::Future,
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    task::{Context as Task_, Poll, Waker},
    thread,
    time::{Duration, Instant},
};

use leasehold::pool::{CancelToken, Pool, RejectReason, Task};

use super::common::{Gate, LONG, at_gate, eventually, in_time, poll, poll_by, task, waker};

#[test]
fn submitters_wait_for_room_or_time() {
    let gate = Gate::default();
    let pool = Arc::new(Pool::<Task>::builder().workers(1).capacity(1).build().expect("in range"));
    pool.submit(at_gate(&gate)).expect("open");
    gate.has(1);
    pool.submit(task(|| ())).expect("open");
    let start = Instant::now();
    let refused = pool.submit_timeout(task(|| ()), Duration::from_millis(20)).expect_err("full");
    assert_eq!(refused.reason, RejectReason::TimedOut);
    assert!(start.elapsed() >= Duration::from_millis(20));
    assert_eq!(pool.try_submit(refused.into_job()).expect_err("full").reason, RejectReason::Full);
    let waiting = {
        let pool = Arc::clone(&pool);
        thread::spawn(move || pool.submit(task(|| ())).is_ok())
    };
    let mut future = pool.submit_async(task(|| ()));
    assert!(poll(&mut future).is_pending());
    eventually("both wait", || pool.stats().waiting == 2);
    gate.open();
    assert!(waiting.join().unwrap());
    futures_lite::future::block_on(future).expect("room");
    assert!(pool.shutdown(LONG).is_complete());
    let stats = pool.stats();
    assert_eq!((stats.done, stats.rejected_full, stats.rejected_timed_out, stats.waiting), (4, 1, 1, 0));
}

/// A task that was woken for a place and gives up passes it on.
#[test]
fn a_submission_that_is_given_up_passes_its_place_on() {
    let gate = Gate::default();
    let pool = Pool::<Task>::builder().workers(1).capacity(1).build().expect("in range");
    pool.submit(at_gate(&gate)).expect("open");
    gate.has(1);
    pool.submit(task(|| ())).expect("open");
    let woken = Arc::new(AtomicUsize::new(0));
    struct Count(Arc<AtomicUsize>);
    impl std::task::Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }
    let waker = Waker::from(Arc::new(Count(Arc::clone(&woken))));
    let mut context = Task_::from_waker(&waker);
    let mut first = Box::pin(pool.submit_async(task(|| ())));
    let mut second = pin!(pool.submit_async(task(|| ())));
    assert!(first.as_mut().poll(&mut context).is_pending());
    assert!(second.as_mut().poll(&mut context).is_pending());
    gate.open();
    eventually("the first is woken", || woken.load(SeqCst) >= 1);
    drop(first);
    eventually("so is the second", || woken.load(SeqCst) >= 2);
    assert!(matches!(second.as_mut().poll(&mut context), Poll::Ready(Ok(()))));
    assert!(pool.shutdown(LONG).is_complete());
}

/// One who was rung, and whose job turns out to be cancelled, passes the place on.
#[test]
fn a_cancelled_submission_passes_its_place_on() {
    let (first_gate, second_gate) = (Gate::default(), Gate::default());
    let pool = Pool::<Task>::builder().workers(1).capacity(1).build().expect("in range");
    pool.submit(at_gate(&first_gate)).expect("open");
    first_gate.has(1);
    pool.submit(at_gate(&second_gate)).expect("open");
    let token = CancelToken::new();
    let woken: Arc<[AtomicUsize; 2]> = Arc::default();
    let wakers = [0, 1].map(|i| {
        let woken = Arc::clone(&woken);
        waker(move || _ = woken[i].fetch_add(1, SeqCst))
    });
    let mut first = pool.submit_async(task(|| ()).cancel_with(token.clone()));
    let mut second = pool.submit_async(task(|| ()));
    assert!(poll_by(&mut first, &wakers[0]).is_pending());
    assert!(poll_by(&mut second, &wakers[1]).is_pending());
    first_gate.open();
    second_gate.has(1);
    eventually("the first is woken", || woken[0].load(SeqCst) == 1);
    assert_eq!(woken[1].load(SeqCst), 0, "there is room for one");
    token.cancel();
    let refused = poll_by(&mut first, &wakers[0]);
    assert!(matches!(refused, Poll::Ready(Err(refused)) if refused.reason == RejectReason::Cancelled));
    eventually("the second is woken in its place", || woken[1].load(SeqCst) == 1);
    assert!(matches!(poll_by(&mut second, &wakers[1]), Poll::Ready(Ok(()))));
    second_gate.open();
    assert!(pool.shutdown(LONG).is_complete());
}

/// A waker that waits for whoever ends the pool holds nobody up.
#[test]
fn a_waker_that_waits_for_the_end_does_not_delay_it() {
    for dropped in [false, true] {
        let gate = Gate::default();
        let pool = Pool::<Task>::builder().workers(1).capacity(1).build().expect("in range");
        pool.submit(at_gate(&gate)).expect("open");
        gate.has(1);
        pool.submit(task(|| ())).expect("open");
        let at_end = Gate::default();
        let here = at_end.clone();
        let mut future = Box::pin(pool.submit_async(task(|| ())));
        assert!(poll_by(&mut future, &waker(move || here.pass())).is_pending());
        gate.open();
        at_end.has(1);
        drop(future);
        if dropped {
            in_time("the pool is dropped", move || drop(pool));
        } else {
            let ended = in_time("the pool is shut down", move || pool.shutdown(Duration::ZERO));
            assert!(ended.unrun.len() + ended.still_running <= 1);
        }
        at_end.open();
    }
}

/// A waker may end the pool itself.
#[test]
fn a_waker_may_end_the_pool() {
    let gate = Gate::default();
    let pool = Arc::new(Pool::<Task>::builder().workers(1).capacity(1).build().expect("in range"));
    pool.submit(at_gate(&gate)).expect("open");
    gate.has(1);
    pool.submit(task(|| ())).expect("open");
    let (sender, ended) = mpsc::channel();
    let (sender, here) = (Mutex::new(sender), Arc::clone(&pool));
    let end = waker(move || {
        let ended = here.shutdown(Duration::ZERO);
        sender.lock().unwrap().send(ended.unrun.len()).unwrap();
    });
    let mut future = pool.submit_async(task(|| ()));
    assert!(poll_by(&mut future, &end).is_pending());
    gate.open();
    assert_eq!(ended.recv_timeout(LONG).expect("it returns"), 0, "the job was begun");
    assert!(matches!(poll_by(&mut future, Waker::noop()), Poll::Ready(Err(_))));
    assert!(pool.shutdown(LONG).is_complete());
    assert_eq!(pool.stats().done, 2);
}
