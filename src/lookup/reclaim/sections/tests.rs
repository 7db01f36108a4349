//! With real threads; the protocol itself is in a model. Other tests of the process may be in sections of their own, so
//! what must happen is waited for.

use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use super::{Sections, SectionsGuard, collect_garbage};
use crate::lookup::reclaim::{Guard, Reclaim};

/// Counts its drops.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn so_far(freed: &AtomicUsize) -> usize {
    freed.load(Ordering::SeqCst)
}

unsafe fn free<T>(pointer: *mut T) {
    // SAFETY: retired by `retire` below.
    drop(unsafe { Box::from_raw(pointer) });
}

fn retire<T: Send + 'static>(guard: &impl Guard, value: T) {
    // SAFETY: nobody else has the pointer.
    unsafe { guard.retire(Box::into_raw(Box::new(value)), free::<T>) };
}

fn wait_for(what: &str, mut come: impl FnMut() -> bool) {
    let patience = Instant::now() + Duration::from_secs(60);
    while !come() {
        assert!(Instant::now() < patience, "{what}");
        collect_garbage();
        thread::yield_now();
    }
}

#[test]
fn nothing_is_freed_while_an_older_guard_lives() {
    let freed = Arc::new(AtomicUsize::new(0));
    let (in_section, leave) = (mpsc::channel(), mpsc::channel::<()>());
    let reader = thread::spawn(move || {
        let sections = Sections::new();
        let outer = sections.pin();
        // Sections nest: the inner end is not the end.
        drop(sections.pin());
        in_section.0.send(()).expect("waited for");
        leave.1.recv().expect("told to leave");
        drop(outer);
    });
    in_section.1.recv().expect("it enters");
    for _ in 0..1_000 {
        retire(&Sections::new().pin(), Counted(Arc::clone(&freed)));
        collect_garbage();
    }
    assert_eq!(so_far(&freed), 0, "the reader is older than all of them");
    leave.0.send(()).expect("it waits");
    reader.join().expect("no panic");
    wait_for("all are freed", || so_far(&freed) == 1_000);
}

#[test]
fn our_own_guard_keeps_what_we_retire() {
    let freed = Arc::new(AtomicUsize::new(0));
    let sections = Sections::new();
    let guard = sections.pin();
    for _ in 0..1_000 {
        retire(&guard, Counted(Arc::clone(&freed)));
    }
    collect_garbage();
    assert_eq!(so_far(&freed), 0);
    drop(guard);
    wait_for("all are freed", || so_far(&freed) == 1_000);
}

#[test]
fn an_ended_thread_leaves_its_garbage_to_others() {
    let freed = Arc::new(AtomicUsize::new(0));
    for _ in 0..10 {
        let freed = Arc::clone(&freed);
        let thread = thread::spawn(move || retire(&Sections::new().pin(), Counted(freed)));
        thread.join().expect("no panic");
    }
    wait_for("what ten threads have left", || so_far(&freed) == 10);
}

#[test]
fn threads_that_retire_one_thing_each_keep_no_more_than_a_few_bags() {
    const THREADS: usize = 4_000;
    let freed = Arc::new(AtomicUsize::new(0));
    for _ in 0..THREADS {
        let freed = Arc::clone(&freed);
        let thread = thread::spawn(move || retire(&Sections::new().pin(), Counted(freed)));
        thread.join().expect("no panic");
    }
    // Sections of other tests delay it, none for long. Nobody collects here.
    assert!(so_far(&freed) > THREADS / 2, "{} of {THREADS}", so_far(&freed));
}

#[test]
fn a_thread_that_ends_within_a_section_gives_its_record_back() {
    thread_local! {
        /// Set before the reclaimer's own thread-local is there, so that it may be dropped after it.
        static HELD: Cell<Option<SectionsGuard<'static>>> = const { Cell::new(None) };
        static LATE: Cell<Option<Late>> = const { Cell::new(None) };
    }
    struct Late;
    impl Drop for Late {
        fn drop(&mut self) {
            drop(Sections::new().pin());
            collect_garbage();
        }
    }
    static SECTIONS: std::sync::LazyLock<Sections> = std::sync::LazyLock::new(Sections::new);
    for round in 0..200 {
        let thread = thread::spawn(move || {
            HELD.set(None);
            LATE.set((round % 2 == 0).then_some(Late));
            HELD.set(Some(SECTIONS.pin()));
        });
        thread.join().expect("no panic");
    }
    // Others' threads have some too.
    assert!(super::records() < 100, "{}", super::records());
}

#[test]
fn a_guard_that_is_made_while_its_thread_departs_is_the_last_to_go() {
    thread_local! {
        /// First used when the reclaimer's own thread-local is gone already: dropped after that.
        static KEPT: Cell<Option<Kept>> = const { Cell::new(None) };
    }
    static SECTIONS: std::sync::LazyLock<Sections> = std::sync::LazyLock::new(Sections::new);
    static DROPPED: AtomicUsize = AtomicUsize::new(0);
    struct Kept(SectionsGuard<'static>);
    impl Drop for Kept {
        fn drop(&mut self) {
            // It is a section still: what is retired in it waits for its end.
            let freed = Arc::new(AtomicUsize::new(0));
            retire(&self.0, Counted(Arc::clone(&freed)));
            thread::spawn(collect_garbage).join().expect("no panic");
            assert_eq!(so_far(&freed), 0);
            DROPPED.fetch_add(1, Ordering::SeqCst);
        }
    }
    /// What is freed by a thread on its way out keeps a section of that thread.
    struct Keeps(thread::ThreadId);
    impl Drop for Keeps {
        fn drop(&mut self) {
            if thread::current().name() == Some("departs") && thread::current().id() != self.0 {
                KEPT.set(Some(Kept(SECTIONS.pin())));
            }
        }
    }
    let depart = || {
        let departs = thread::Builder::new().name("departs".into());
        let body = || retire(&SECTIONS.pin(), Keeps(thread::current().id()));
        departs.spawn(body).expect("a thread").join().expect("no panic");
    };
    // What one has left behind is sealed under our section, so that it is for the next one to free. Others' threads may be faster.
    let patience = Instant::now() + Duration::from_secs(60);
    while so_far(&DROPPED) < 20 {
        assert!(Instant::now() < patience, "nobody departs with a guard");
        depart();
        let guard = SECTIONS.pin();
        collect_garbage();
        drop(guard);
        depart();
    }
    assert!(super::records() < 100, "{}", super::records());
}

#[test]
fn a_guard_in_a_thread_local_outlives_the_threads_own_end() {
    thread_local! {
        /// Dropped after the reclaimer's own thread-locals, or before; the order is the system's.
        static LATE: Cell<Option<Late>> = const { Cell::new(None) };
    }
    struct Late(Arc<AtomicUsize>);
    impl Drop for Late {
        fn drop(&mut self) {
            retire(&Sections::new().pin(), Counted(Arc::clone(&self.0)));
        }
    }
    let freed = Arc::new(AtomicUsize::new(0));
    for first in [true, false] {
        let late = Late(Arc::clone(&freed));
        let thread = thread::spawn(move || {
            if first {
                drop(Sections::new().pin());
            }
            LATE.set(Some(late));
            drop(Sections::new().pin());
        });
        thread.join().expect("no panic");
    }
    wait_for("both are freed", || so_far(&freed) == 2);
}

#[test]
fn large_things_of_ended_threads_count_by_their_bytes() {
    // Less than a bag, by their number.
    const THREADS: usize = 100;
    thread_local! {
        /// Set before the reclaimer's own thread-local is there, so that it may be dropped after it.
        static HELD: Cell<Option<SectionsGuard<'static>>> = const { Cell::new(None) };
    }
    static SECTIONS: std::sync::LazyLock<Sections> = std::sync::LazyLock::new(Sections::new);
    let freed = Arc::new(AtomicUsize::new(0));
    for _ in 0..THREADS {
        let freed = Arc::clone(&freed);
        // As much as a bag holds, and the section ends with the thread: it does not seal it itself.
        let body = move || {
            HELD.set(None);
            let guard = SECTIONS.pin();
            let owner = Box::into_raw(Box::new(Counted(freed)));
            // SAFETY: nobody else has the pointer.
            unsafe { guard.retire_owner(owner, 1 << 20, free::<Counted>) };
            HELD.set(Some(guard));
        };
        thread::spawn(body).join().expect("no panic");
    }
    // Each of them fills the bag that is left behind. Sections of other tests delay it.
    assert!(so_far(&freed) > THREADS / 2, "{} of {THREADS}", so_far(&freed));
}

/// Retires another one of its kind for each that is freed.
struct Endless(Arc<AtomicUsize>);

impl Drop for Endless {
    fn drop(&mut self) {
        if self.0.fetch_add(1, Ordering::SeqCst) < 1_000_000 {
            retire(&Sections::new().pin(), Endless(Arc::clone(&self.0)));
        }
    }
}

#[test]
fn what_is_retired_while_garbage_is_freed_waits() {
    let freed = Arc::new(AtomicUsize::new(0));
    for _ in 0..500 {
        retire(&Sections::new().pin(), Endless(Arc::clone(&freed)));
    }
    for _ in 0..10 {
        collect_garbage();
    }
    assert!(so_far(&freed) < 100_000, "each call frees what was there when it began");
    // Let them end.
    freed.store(1_000_000, Ordering::SeqCst);
}
