//! Submitters that wait for room with a job that is cancelled.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::Poll,
    thread,
    time::Duration,
};

use leasehold::{
    Entry, Outcome, Scheduler,
    pool::{CancelToken, EndingKind, LeaseJob, Pool, RejectReason, Task},
};

use super::common::{LONG, block, bounded, eventually, in_time, poll_by, task, waker};

/// A pool whose worker is in a job until the sender is dropped, and whose queue is full.
fn full() -> (Arc<Pool<Task>>, std::sync::mpsc::Sender<()>) {
    let pool = Arc::new(bounded(1, 1));
    let go = block(&pool);
    pool.try_submit(task(|| ())).expect("room");
    (pool, go)
}

/// A waker, and how often it was called.
fn counted() -> (std::task::Waker, Arc<AtomicUsize>) {
    let woken = Arc::new(AtomicUsize::new(0));
    let here = Arc::clone(&woken);
    (waker(move || _ = here.fetch_add(1, SeqCst)), woken)
}

/// Threads, with a limit and without, and a task: who waits with a job of that token is let go at once, and gets it back; nobody else is.
#[test]
fn who_waits_with_a_cancelled_job_waits_no_longer() {
    let (pool, go) = full();
    let (token, other) = (CancelToken::new(), CancelToken::new());
    let threads = [None, Some(LONG * 10), None].map(|limit| {
        let (pool, job) = (Arc::clone(&pool), task(|| ()).cancel_with(token.clone()));
        thread::spawn(move || match limit {
            None => pool.submit(job),
            Some(limit) => pool.submit_timeout(job, limit),
        })
    });
    let ((waker, woken), (other_waker, other_woken)) = (counted(), counted());
    let mut future = pool.submit_async(task(|| ()).cancel_with(token.clone()));
    assert!(poll_by(&mut future, &waker).is_pending());
    let mut stays = pool.submit_async(task(|| ()).cancel_with(other));
    assert!(poll_by(&mut stays, &other_waker).is_pending());
    eventually("all wait", || pool.stats().waiting == 5);
    token.cancel();
    for thread in threads {
        let refused = in_time("it is let go", move || thread.join().unwrap()).expect_err("cancelled");
        assert_eq!(refused.reason, RejectReason::Cancelled);
        assert!(refused.into_job().is_cancelled());
    }
    assert_eq!(woken.load(SeqCst), 1);
    let refused = poll_by(&mut future, &waker);
    assert!(matches!(refused, Poll::Ready(Err(refused)) if refused.reason == RejectReason::Cancelled));
    let stats = pool.stats();
    assert_eq!((stats.waiting, stats.rejected_cancelled, other_woken.load(SeqCst)), (1, 4, 0));
    drop(go);
    futures_lite::future::block_on(stays).expect("room");
    assert!(pool.shutdown(LONG).is_complete());
}

/// The wakers that it calls may panic, and may cancel it once more; each is called, and nothing is locked.
#[test]
fn a_cancelled_token_calls_any_waker() {
    let (pool, _go) = full();
    let token = CancelToken::new();
    let again = token.clone();
    let (counts, woken) = counted();
    let wakers =
        [waker(|| std::panic::resume_unwind(Box::new("a waker"))), waker(move || again.cancel()), counts];
    let mut futures: Vec<_> =
        wakers.iter().map(|_| pool.submit_async(task(|| ()).cancel_with(token.clone()))).collect();
    for (future, waker) in futures.iter_mut().zip(&wakers) {
        assert!(poll_by(future, waker).is_pending());
    }
    let here = token.clone();
    in_time("it returns", move || here.cancel());
    assert_eq!(woken.load(SeqCst), 1);
    for (future, waker) in futures.iter_mut().zip(&wakers) {
        assert!(matches!(poll_by(future, waker), Poll::Ready(Err(_))));
    }
    assert_eq!(pool.stats().waiting, 0);
}

/// Who has been let in, or has given up, is forgotten: a token that lives on keeps no waker, and wakes nobody.
#[test]
fn a_token_forgets_who_waits_no_more() {
    let (pool, go) = full();
    let token = CancelToken::new();
    let ((let_in, woken), (gives_up, not_woken)) = (counted(), counted());
    let mut first = pool.submit_async(task(|| ()).cancel_with(token.clone()));
    assert!(poll_by(&mut first, &let_in).is_pending());
    let mut second = pool.submit_async(task(|| ()).cancel_with(token.clone()));
    assert!(poll_by(&mut second, &gives_up).is_pending());
    drop(second);
    drop(gives_up);
    assert_eq!(Arc::strong_count(&not_woken), 1, "the waker is gone");
    drop(go);
    eventually("there is room", || woken.load(SeqCst) == 1);
    assert!(matches!(poll_by(&mut first, &let_in), Poll::Ready(Ok(()))));
    token.cancel();
    assert_eq!((woken.load(SeqCst), not_woken.load(SeqCst)), (1, 0));
}

/// A job with its lease that waits for room is let go too, and its lease goes back.
#[test]
fn a_cancelled_job_that_waits_for_room_returns_its_lease_at_once() {
    let keys = Arc::new(Scheduler::<Entry<&str, u32, ()>>::builder().build().expect("in range"));
    keys.insert(Entry::new("only", 1, ())).expect("new");
    let (pool, _go) = full();
    let token = CancelToken::new();
    let (job, answer) = LeaseJob::new(keys.acquire_async_owned(), |_, _| ((), Outcome::Cancelled));
    pool.submit_when_lent(job.cancel_with(token.clone())).expect("open");
    eventually("it waits for room", || pool.stats().waiting == 1);
    assert!(keys.acquire().is_err(), "it has its lease");
    token.cancel();
    let ending = in_time("its handle is told", move || answer.wait().expect_err("cancelled").kind());
    assert_eq!(ending, EndingKind::Cancelled);
    assert!(keys.acquire_timeout(Duration::from_secs(5)).is_ok(), "its lease is back");
    let stats = pool.stats();
    assert_eq!((stats.waiting, stats.awaiting_lease, stats.rejected_cancelled), (0, 0, 1));
}
