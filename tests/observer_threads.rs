//! A thread is started for each observer, and for nothing else; it ends with the scheduler. Alone in its process.
#![cfg(target_os = "linux")]
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::{fs, future::Future, sync::Arc, thread, time::Duration};

use leasehold::{Entry, Event, ManualClock, Scheduler};

type Fleet = Scheduler<Entry<u32, u32, ()>>;

/// Threads of this process whose name is that of an observer's, as far as the system keeps names.
fn observers() -> usize {
    let tasks = fs::read_dir("/proc/self/task").expect("Linux");
    let name = |task: fs::DirEntry| fs::read_to_string(task.path().join("comm")).unwrap_or_default();
    tasks.filter_map(Result::ok).map(name).filter(|name| name.starts_with("leasehold-obser")).count()
}

/// How many threads this process has.
fn threads() -> usize {
    fs::read_dir("/proc/self/task").expect("Linux").count()
}

/// C6 (f) and (h): the seed starts a goroutine with a timer for each resource that cools; it lives until then, whatever becomes of the
/// scheduler, and frees what it finds under the key. Here no thread comes, and what has ended wakes nobody.
fn cooling_needs_no_thread_and_ends_with_the_scheduler() {
    let before = threads();
    let clock = Arc::new(ManualClock::new());
    let fleet = Fleet::builder().clock(clock.clone()).build().expect("in range");
    (0..1_000).for_each(|key| fleet.insert(Entry::new(key, 0, ())).expect("new"));
    let minute = Duration::from_secs(60);
    for _ in 0..1_000 {
        fleet.acquire().expect("free").release_after(minute);
        assert_eq!(threads(), before);
    }
    assert_eq!(fleet.stats().reasons.cooling, 1_000);
    let mut waiting = Box::pin(fleet.acquire_async());
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(waiting.as_mut().poll(&mut context).is_pending());
    fleet.close();
    assert!(matches!(waiting.as_mut().poll(&mut context), std::task::Poll::Ready(Err(_))), "closed");
    drop(waiting);
    clock.advance(2 * minute);
    thread::sleep(Duration::from_millis(20));
    let _ = fleet.tick();
    let stats = fleet.stats();
    assert_eq!((threads(), fleet.acquire().is_err()), (before, true), "nothing is lent after the closing");
    assert_eq!(stats.lent, 1_000);
    drop(fleet);
    assert_eq!((threads(), Arc::strong_count(&clock)), (before, 1), "nobody is left to look at the clock");
}

// One test: others would have threads of their own beside it.
#[test]
fn threads_are_for_observers() {
    cooling_needs_no_thread_and_ends_with_the_scheduler();
    a_thread_for_each_observer_and_none_without();
}

fn a_thread_for_each_observer_and_none_without() {
    let quiet = Fleet::builder().event_capacity(64).build().expect("in range");
    quiet.insert(Entry::new(1, 0, ())).expect("new");
    drop(quiet.acquire().expect("free"));
    assert_eq!(observers(), 0, "events alone need no thread");
    let observer = |_: &Event<u32>| ();
    let watched = Fleet::builder().observer(observer).observer(observer).build().expect("in range");
    // A thread names itself when it starts to run.
    while observers() < 2 {
        std::thread::yield_now();
    }
    watched.observe(observer).expect("a thread");
    while observers() < 3 {
        std::thread::yield_now();
    }
    watched.close();
    assert_eq!(observers(), 0, "closed, they are gone");
    drop(Fleet::builder().observer(observer).build().expect("in range"));
    assert_eq!(observers(), 0, "dropped, they are gone");
}
