//! Tokio as timer and clock, with paused time, which is exact, and with real time.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::{
    sync::{Arc, mpsc},
    time::Duration,
};

use leasehold::{Clock, Entry, Scheduler, TokioTimer, WaitError};
use tokio::{
    runtime,
    time::{Instant, sleep, timeout},
};

type Fleet = Scheduler<Entry<u32, u32, ()>>;

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn filled(fleet: Fleet, resources: u32) -> Fleet {
    for key in 0..resources {
        fleet.insert(Entry::new(key, key, ())).unwrap();
    }
    fleet
}

/// On the time of the runtime that it is called in.
fn fleet(resources: u32) -> Fleet {
    let timer = TokioTimer::current();
    filled(Fleet::builder().shards(2).clock(timer.clone()).timer(timer).build().unwrap(), resources)
}

/// Without a timer.
fn untimed(resources: u32) -> Fleet {
    filled(Fleet::builder().shards(2).build().unwrap(), resources)
}

/// Tokio's timers may be late by the millisecond that they count in.
fn assert_took(start: Instant, exact: Duration) {
    let took = start.elapsed();
    assert!((exact..=exact + millis(2)).contains(&took), "{took:?}, not {exact:?}");
}

#[tokio::test(start_paused = true)]
async fn a_task_wakes_when_the_first_resource_is_warm() {
    let fleet = fleet(3);
    for (key, duration) in [(0, secs(50)), (1, secs(3)), (2, secs(10))] {
        fleet.cool(&key, duration).unwrap();
    }
    let start = Instant::now();
    let lease = fleet.acquire_async().await.unwrap();
    assert_eq!(*lease.key(), 1);
    assert_took(start, secs(3));
    // And the next one, for which the timer is set anew.
    assert_eq!(*fleet.acquire_async().await.unwrap().key(), 2);
    assert_took(start, secs(10));
}

#[tokio::test(start_paused = true)]
async fn a_resource_that_begins_to_cool_during_the_wait_wakes_as_well() {
    let fleet = Arc::new(fleet(1));
    let lease = fleet.acquire_owned().unwrap();
    let start = Instant::now();
    let waits = tokio::spawn(fleet.acquire_async_owned());
    sleep(secs(1)).await;
    lease.release_after(secs(4));
    drop(waits.await.unwrap().unwrap());
    assert_took(start, secs(5));
}

#[tokio::test(start_paused = true)]
async fn a_deadline_expires_through_the_timer() {
    let fleet = fleet(1);
    let lease = fleet.acquire().unwrap();
    let start = Instant::now();
    let ended = fleet.request().timeout(secs(5)).await;
    let Err(WaitError::TimedOut { waited }) = ended else { panic!("{ended:?}") };
    assert!(waited >= secs(5));
    assert_took(start, secs(5));
    // Earlier ones than the timer is set for, while it is set.
    let (long, short) = tokio::join!(
        async { (fleet.request().timeout(secs(9)).await.unwrap_err(), start.elapsed().as_secs()) },
        async { (fleet.request().timeout(secs(2)).await.unwrap_err(), start.elapsed().as_secs()) },
    );
    assert!(matches!((long.0, short.0), (WaitError::TimedOut { .. }, WaitError::TimedOut { .. })));
    assert_eq!((long.1, short.1), (14, 7));
    drop(lease);
    assert!(fleet.acquire_async().await.is_ok());
    assert_eq!(fleet.stats().waits.timed_out, 3);
}

/// Without a timer of the scheduler's own, too: a wait needs none for that.
#[tokio::test(start_paused = true)]
async fn a_timeout_of_tokio_around_a_wait_loses_nothing() {
    for (fleet, returns_first) in
        [(fleet(1), false), (fleet(1), true), (untimed(1), false), (untimed(1), true)]
    {
        let fleet = Arc::new(fleet);
        let lease = fleet.acquire_owned().unwrap();
        // The lease arrives at the very instant at which the first one gives up: either may have it, nobody loses it.
        let (returns, mut is_back) = (async { sleep(secs(1)).await }, None);
        let mut returns = Some(async move {
            returns.await;
            drop(lease);
        });
        if returns_first {
            is_back = returns.take().map(tokio::spawn);
            tokio::task::yield_now().await;
        }
        let given_up = tokio::spawn({
            let fleet = Arc::clone(&fleet);
            async move { timeout(secs(1), fleet.acquire_async()).await.map(drop) }
        });
        let patient = tokio::spawn(fleet.acquire_async_owned());
        tokio::task::yield_now().await;
        let is_back = is_back.unwrap_or_else(|| tokio::spawn(returns.take().expect("not yet")));
        let _ = given_up.await.unwrap();
        is_back.await.unwrap();
        drop(patient.await.unwrap().unwrap());
        assert_eq!(fleet.stats().in_flight, 0);
        assert!(fleet.acquire().is_ok());
    }
}

/// Holders that time out, give up and are served in real time, on two threads: each lease comes back.
#[test]
fn real_time_on_two_threads() {
    on_two_threads(true);
}

/// With tokio's time-outs alone.
#[test]
fn real_time_on_two_threads_without_a_timer() {
    on_two_threads(false);
}

fn on_two_threads(has_timer: bool) {
    let runtime = runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
    let fleet = if has_timer {
        let builder = Fleet::builder().timer(TokioTimer::new(runtime.handle().clone()));
        filled(builder.build().unwrap(), 2)
    } else {
        untimed(2)
    };
    let fleet = Arc::new(fleet);
    let tasks: Vec<_> = (0..64u64)
        .map(|i| {
            let fleet = Arc::clone(&fleet);
            runtime.spawn(async move {
                let mut served = 0;
                for round in 0..20 {
                    let patience = millis(1 + (i + round) % 5);
                    let lease = if has_timer && i % 2 == 0 {
                        fleet.request().timeout(patience).await.ok()
                    } else {
                        timeout(patience, fleet.acquire_async()).await.ok().map(Result::unwrap)
                    };
                    if let Some(lease) = lease {
                        served += 1;
                        sleep(millis(i % 2)).await;
                        if has_timer && round % 4 == 0 {
                            lease.release_after(millis(1));
                        }
                    }
                }
                served
            })
        })
        .collect();
    let served: u64 = runtime.block_on(async {
        let mut served = 0;
        for task in tasks {
            served += task.await.unwrap();
        }
        served
    });
    let stats = fleet.stats();
    assert!(served > 0);
    assert_eq!((stats.in_flight, stats.lent), (0, stats.returned));
    let waits = stats.waits;
    assert_eq!(waits.waited, waits.handed_off + waits.timed_out + waits.cancelled);
    let given_up = if has_timer { waits.timed_out } else { waits.cancelled };
    assert!(given_up > 0 && waits.handed_off > 0, "{waits:?}");
    // What cools still comes back, and nobody is in the queue.
    assert!(runtime.block_on(fleet.acquire_many_async(2)).is_ok());
}

#[test]
fn a_task_of_any_executor_is_woken_by_a_timer_that_runs_elsewhere() {
    let runtime = runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
    let builder = Fleet::builder().timer(TokioTimer::new(runtime.handle().clone()));
    let fleet = filled(builder.build().unwrap(), 1);
    fleet.cool(&0, millis(30)).unwrap();
    let start = std::time::Instant::now();
    drop(futures_lite::future::block_on(fleet.acquire_async()).unwrap());
    assert!(start.elapsed() >= millis(30));
}

#[test]
fn a_runtime_that_nobody_drives_keeps_no_thread_waiting() {
    let runtime = runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let fleet = filled(Fleet::builder().timer(TokioTimer::new(runtime.handle().clone())).build().unwrap(), 1);
    fleet.cool(&0, millis(20)).unwrap();
    drop(fleet.request().wait().unwrap());
}

#[test]
fn a_runtime_that_has_shut_down_leaves_a_scheduler_that_works() {
    let runtime = runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let fleet = filled(Fleet::builder().timer(TokioTimer::new(runtime.handle().clone())).build().unwrap(), 1);
    drop(runtime);
    fleet.cool(&0, millis(20)).unwrap();
    // A thread relies on no timer.
    let start = std::time::Instant::now();
    drop(fleet.request().wait().unwrap());
    assert!(start.elapsed() >= millis(20));
}

#[test]
#[should_panic(expected = "time")]
fn a_runtime_without_time_is_refused() {
    let runtime = runtime::Builder::new_current_thread().build().unwrap();
    let _ = TokioTimer::new(runtime.handle().clone());
}

/// Threads outside of the runtime read the same time.
#[tokio::test(start_paused = true)]
async fn paused_time_is_one_time_for_all_threads() {
    let timer = TokioTimer::current();
    tokio::time::advance(secs(100)).await;
    let (sender, receiver) = mpsc::channel();
    let other = timer.clone();
    std::thread::spawn(move || sender.send(other.now()).unwrap()).join().unwrap();
    assert_eq!(receiver.recv().unwrap(), timer.now());
    assert_eq!(timer.now().as_nanos(), secs(100).as_nanos() as u64);
}
