//! A thread is started for each observer, and for nothing else; it ends with the scheduler. Alone in its process.
#![cfg(target_os = "linux")]
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::fs;

use leasehold::{Entry, Event, Scheduler};

type Fleet = Scheduler<Entry<u32, u32, ()>>;

/// Threads of this process whose name is that of an observer's, as far as the system keeps names.
fn observers() -> usize {
    let tasks = fs::read_dir("/proc/self/task").expect("Linux");
    let name = |task: fs::DirEntry| fs::read_to_string(task.path().join("comm")).unwrap_or_default();
    tasks.filter_map(Result::ok).map(name).filter(|name| name.starts_with("leasehold-obser")).count()
}

#[test]
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
