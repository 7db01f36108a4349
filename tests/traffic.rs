//! What the build that counts traffic counts. In a target of its own: there the library's own tests need not be built for it.
//!
//! ```sh
//! RUSTFLAGS='--cfg leasehold_counted' cargo test --test traffic --features internals
//! ```
#![cfg(leasehold_counted)]

use std::{sync::atomic::Ordering, thread};

use leasehold::internals::sync::{
    CachePadded,
    atomic::AtomicU64,
    traffic::{Traffic, traffic},
};

/// What `f` does in a thread of its own.
fn elsewhere(f: impl FnOnce() + Send) -> Traffic {
    let here = || {
        let before = traffic();
        f();
        traffic() - before
    };
    thread::scope(|scope| scope.spawn(here).join().unwrap())
}

#[test]
fn lines_go_to_and_fro() {
    let word = CachePadded::new(AtomicU64::new(0));
    let add = || _ = word.fetch_add(1, Ordering::Relaxed);
    let load = || _ = word.load(Ordering::Relaxed);
    add();
    assert_eq!(elsewhere(add), Traffic { rmws: 1, taken: 1, ..Traffic::default() });
    assert_eq!(elsewhere(load), Traffic { loads: 1, fetched: 1, ..Traffic::default() });
    let before = traffic();
    load();
    load();
    add();
    add();
    word.store(0, Ordering::Relaxed);
    let expected = Traffic { loads: 2, fetched: 1, rmws: 2, stores: 1, taken: 1, ..Traffic::default() };
    assert_eq!(traffic() - before, expected);
}

#[test]
fn what_nobody_wrote_moves_once_it_is_written() {
    let word = CachePadded::new(AtomicU64::new(0));
    let load = || _ = word.load(Ordering::Relaxed);
    load();
    assert_eq!(elsewhere(load).fetched, 0);
    let before = traffic();
    word.store(1, Ordering::Relaxed);
    assert_eq!((traffic() - before).taken, 1);
    assert_eq!(elsewhere(|| (0..2).for_each(|_| load())).fetched, 1);
}

#[test]
fn words_of_one_line_go_together() {
    let words = CachePadded::new([AtomicU64::new(0), AtomicU64::new(0)]);
    words[0].store(1, Ordering::Relaxed);
    assert_eq!(elsewhere(|| words[1].store(1, Ordering::Relaxed)).taken, 1);
    let before = traffic();
    words[0].store(1, Ordering::Relaxed);
    assert_eq!((traffic() - before).taken, 1);
}
