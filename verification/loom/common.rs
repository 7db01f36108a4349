//! How a model is run, and races of short programs on one fleet.

#![allow(clippy::disallowed_types)]

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    time::{Duration, Instant},
};

use leasehold::internals::sync::{Arc, lain_down, lie_down_at_once, thread};

use crate::{
    checker::{History, demand},
    driver::{Actor, Fleet, Setup, Step, allow_slack, observe},
    specification::{Answer, Op, State},
};

/// In which of the two orders the threads of a model start; see [`spawn`].
static MAIN_WAITS: AtomicBool = AtomicBool::new(false);

/// Starts a thread of a model. In half of the exploration it runs first, and the main thread waits.
///
/// That matters: of all accesses to an atomic, loom remembers the last. It overlooks the race of a load with another
/// thread's store if that thread has loaded the same atomic in between, as every load-then-swap loop and every counter
/// under a lock does, unless its first execution happens to run them the other way round.
pub fn spawn<T: 'static>(body: impl FnOnce() -> T + 'static) -> thread::JoinHandle<T> {
    let thread = thread::spawn(body);
    if MAIN_WAITS.load(SeqCst) {
        thread::yield_now();
    }
    thread
}

/// Explores `body` within the bounds of the environment: two preemptions if none is given. Prints the cost, and fails if
/// there was nothing to explore.
pub fn model(body: impl Fn() + Send + Sync + 'static) {
    model_within(2, body);
}

/// As [`model`], for a model that is dear: in the fast tier (a bound of 2) at most `bound` preemptions, unless
/// `LOOM_OWN_BOUNDS` is "no".
pub fn model_within(bound: usize, body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    let asked = *builder.preemption_bound.get_or_insert(2);
    if asked == 2 && std::env::var("LOOM_OWN_BOUNDS").as_deref() != Ok("no") {
        builder.preemption_bound = Some(bound);
    }
    // A whole scheduler takes more steps than loom's default allows.
    builder.max_branches = builder.max_branches.max(20_000);
    // Where the time limit is looked at.
    builder.checkpoint_interval = builder.checkpoint_interval.min(100);
    let runs = std::sync::Arc::new(AtomicUsize::new(0));
    let counter = runs.clone();
    let body = std::sync::Arc::new(body);
    let start = Instant::now();
    let limit = builder.max_duration;
    let mut cut = false;
    for (main_waits, halves) in [(false, 1), (true, 2)] {
        let (counter, body) = (counter.clone(), body.clone());
        // Half of the time for either order, and what the first leaves goes to the second.
        builder.max_duration = limit.map(|limit| (limit * halves / 2).saturating_sub(start.elapsed()));
        let began = Instant::now();
        MAIN_WAITS.store(main_waits, SeqCst);
        builder.check(move || {
            counter.fetch_add(1, SeqCst);
            body();
        });
        cut |= builder.max_duration.is_some_and(|limit| began.elapsed() >= limit);
    }
    let (runs, took) = (runs.load(SeqCst), start.elapsed());
    assert!(runs > 2, "the model has one thread, or nothing that its threads share");
    let cut = if cut { ", CUT SHORT" } else { "" };
    let bound = builder.preemption_bound.unwrap_or(0);
    let name = thread_name();
    println!("loom {name}: {runs} executions, {} ms, p{bound}{cut}", took.as_millis());
}

/// Runs `models` with locks whose waiters lie down at once: what outside takes eleven failed attempts, of which no model has so
/// many. Fails if nobody has lain down.
pub fn lying_down(models: impl FnOnce()) {
    lie_down_at_once();
    models();
    assert!(lain_down() > 0, "nobody has found a lock taken");
}

#[allow(clippy::disallowed_methods)]
fn thread_name() -> String {
    std::thread::current().name().unwrap_or("?").to_owned()
}

/// A short program, as the models write it.
pub fn steps(ops: &[Op]) -> Vec<Step> {
    ops.iter().map(|&op| Step::Do(op)).collect()
}

/// Runs `before` alone, then each of `threads` in its own thread (the first in the main one), then looks at everything;
/// what was answered must be explained by some order of the operations, and the structure be consistent.
pub fn race(setup: Setup, before: Vec<Step>, threads: Vec<Vec<Step>>) {
    race_within(2, setup, before, threads);
}

/// As [`race`], for a model that is dear: see [`model_within`].
pub fn race_within(bound: usize, setup: Setup, before: Vec<Step>, threads: Vec<Vec<Step>>) {
    run(bound, setup, before, threads, Vec::new(), |_, _| ());
}

/// As [`race`], with a program for the main thread after all others have ended, and a last look at fleet and
/// specification.
pub fn race_then(
    setup: Setup,
    before: Vec<Step>,
    threads: Vec<Vec<Step>>,
    after: Vec<Step>,
    look: impl Fn(&Fleet, &State) + Send + Sync + 'static,
) {
    run(2, setup, before, threads, after, look);
}

fn run(
    bound: usize,
    setup: Setup,
    before: Vec<Step>,
    threads: Vec<Vec<Step>>,
    after: Vec<Step>,
    look: impl Fn(&Fleet, &State) + Send + Sync + 'static,
) {
    model_within(bound, move || {
        let fleet = Arc::new(Fleet::new(setup));
        let mut history = Vec::new();
        {
            let mut main = Actor::new(&fleet, 0);
            main.run(&before);
            let began = main.events.len();
            let others: Vec<_> = threads[1..]
                .iter()
                .enumerate()
                .map(|(i, steps)| {
                    let (fleet, steps) = (Arc::clone(&fleet), steps.clone());
                    spawn(move || {
                        let mut actor = Actor::new(&fleet, i as u8 + 1);
                        actor.run(&steps);
                        // Leases that are left end with the thread: as operations, so that they are in the history.
                        while actor.holds() {
                            actor.step(Step::Release);
                        }
                        actor.events
                    })
                })
                .collect();
            main.run(&threads[0]);
            let ended = main.events.len();
            history.extend(others.into_iter().map(|other| other.join().expect("no panic")));
            main.run(&after);
            while main.holds() {
                main.step(Step::Release);
            }
            observe(&mut main);
            history.insert(0, main.events);
            by_phase(&mut history, began, ended);
        }
        allow_slack(&mut history);
        let end = demand(&fleet.specification(), &history);
        let tally = fleet.scheduler.check_invariants();
        assert_eq!((tally.members as usize, tally.in_flight as usize), (end.len(), end.in_flight()));
        assert_eq!(fleet.scheduler.ejected_by_rules() as usize, end.ejected_by_rules(), "places are counted");
        look(&fleet, &end);
        let Ok(fleet) = Arc::try_unwrap(fleet) else { panic!("all threads are gone") };
        fleet.finish();
    });
}

/// Forgets when operations happened but for the phase: before the race, in it, after it. Threads that share nothing else
/// have no common time: a load may miss a store that was earlier by the wall clock, and be right. What is left is the
/// order within each thread, spawn and join.
fn by_phase(history: &mut History<Op, Answer>, began: usize, ended: usize) {
    for (thread, events) in history.iter_mut().enumerate() {
        for (i, event) in events.iter_mut().enumerate() {
            let phase = if thread > 0 || (began..ended).contains(&i) {
                1
            } else if i < began {
                0
            } else {
                2
            };
            (event.call, event.done) = (2 * phase, 2 * phase + 1);
        }
    }
}

/// A duration that a manual clock reaches.
pub const SHORT: Duration = Duration::from_nanos(10);
