//! Linearizability of the whole scheduler, on real threads: histories are recorded, and each must be explained by one
//! order of its operations that the sequential specification allows, in real time.
//!
//! ```sh
//! cargo nextest run --test linearizability --features internals
//! ```
//!
//! `run` beside this file does that, then the same for random schedules under shuttle. The checker is checked too:
//! `verification/planted` demands that it rejects what a broken scheduler has answered.
//!
//! | file | what |
//! |---|---|
//! | `checker` | the search for an order |
//! | `specification` | what each operation may answer |
//! | `driver` | runs programs, records answers; shared with the loom and shuttle models |
//!
//! What it cannot see: orderings that this machine's processor never reorders (loom's job), and schedules that two cores
//! never make (shuttle's). The stamps order a little more than the scheduler itself does.
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `HISTORIES` | histories, of four threads and 25 operations each | 2,000 |
//! | `SEED` | of the programs | fixed |
#![cfg(not(any(loom, shuttle)))]
#![allow(unsafe_code, missing_docs, dead_code, clippy::disallowed_types, clippy::disallowed_methods)]

mod checker;
mod driver;
mod specification;

use std::{
    sync::{Arc, Barrier},
    thread,
    time::Instant,
};

use checker::{Event, Verdict, check, demand};
use driver::{Actor, Fleet, Setup, Step, allow_slack, any_step, observe};
use leasehold::internals::sync::SplitMix64;
use specification::{Answer, Op, State};

const THREADS: u8 = 4;
const LENGTH: usize = 25;

fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is no number")))
}

/// Two shards take turns in having the only eligible resource, with an overlap: there is always something to lend.
fn turn(number: u8, i: usize) -> Step {
    match number {
        1 => Step::Do([Op::Include(1), Op::Exclude(0), Op::Include(0), Op::Exclude(1)][i % 4]),
        _ if i.is_multiple_of(2) => Step::Do(Op::Acquire),
        _ => Step::Release,
    }
}

/// One history of real threads; answers with how many situations the search looked at.
fn one(seed: u64) -> usize {
    let mut random = SplitMix64::new(seed);
    let setup = Setup {
        shards: 1 + random.below(3) as usize,
        units: 1 + random.below(2) as u8,
        by_load: false,
        room: 0,
        rules: random.below(2) == 0,
        period: 1 + random.below(3),
    };
    // Every fourth history.
    let turns = setup.shards == 2 && random.below(4) < 3;
    let setup = if turns { Setup { units: 4, ..setup } } else { setup };
    let fleet = Arc::new(Fleet::new(setup));
    let mut first = Actor::new(&fleet, 0);
    if turns {
        first.run(&[Op::Insert(0), Op::Insert(1), Op::Exclude(1)].map(Step::Do));
    }
    let start = Arc::new(Barrier::new(THREADS as usize));
    let actors: Vec<_> = (1..=THREADS)
        .map(|number| {
            let (fleet, start) = (Arc::clone(&fleet), Arc::clone(&start));
            let mut random = SplitMix64::new(random.next_u64());
            thread::spawn(move || {
                let mut actor = Actor::new(&fleet, number);
                start.wait();
                for i in 0..LENGTH {
                    actor.step(if turns { turn(number, i) } else { any_step(&mut random) });
                }
                while actor.holds() {
                    actor.step(Step::Release);
                }
                actor.events
            })
        })
        .collect();
    let mut history: Vec<_> = actors.into_iter().map(|actor| actor.join().expect("no panic")).collect();
    {
        observe(&mut first);
        history.push(std::mem::take(&mut first.events));
        drop(first);
    }
    allow_slack(&mut history);
    let start = fleet.specification();
    let Verdict::Linearizable { end, situations } = check(&start, &history) else {
        println!("seed {seed}, {setup:?}");
        demand(&start, &history);
        unreachable!("it was refused before");
    };
    let tally = fleet.scheduler.check_invariants();
    assert_eq!((tally.members as usize, tally.in_flight as usize), (end.len(), end.in_flight()));
    assert_eq!(fleet.scheduler.ejected_by_rules() as usize, end.ejected_by_rules(), "places are counted");
    let Ok(fleet) = Arc::try_unwrap(fleet) else { panic!("all threads are gone") };
    fleet.finish();
    situations
}

#[test]
fn histories_of_real_threads() {
    let (histories, seed) = (variable("HISTORIES", 2_000), variable("SEED", 1));
    let start = Instant::now();
    let most = (0..histories).map(|i| one(SplitMix64::mix(seed ^ i << 32))).max().unwrap_or(0);
    assert!(most > LENGTH * THREADS as usize, "histories were recorded and searched");
    println!(
        "linearizability real threads: {histories} histories of {THREADS}x{LENGTH}, {} ms, {most} situations at most",
        start.elapsed().as_millis()
    );
}

fn event(op: Op, answer: Answer, call: u64, done: u64) -> Event<Op, Answer> {
    Event { op, answer, call, done }
}

fn refused(history: Vec<Vec<Event<Op, Answer>>>) -> bool {
    matches!(check(&State::new(1, true), &history), Verdict::Wrong { .. })
}

#[test]
fn the_checker_takes_any_order_of_what_overlaps() {
    let lent = Answer::Lent { key: 0, version: 0, lease: (2, 0) };
    assert!(!refused(vec![
        vec![event(Op::Insert(0), Answer::Done, 0, 3)],
        vec![event(Op::Acquire, lent, 1, 2)],
    ]));
    assert!(!refused(vec![
        vec![event(Op::Insert(0), Answer::Done, 0, 3)],
        vec![event(Op::Acquire, Answer::None([0; 5]), 1, 2)],
    ]));
}

#[test]
fn the_checker_refuses_what_real_time_forbids() {
    assert!(refused(vec![
        vec![event(Op::Insert(0), Answer::Done, 0, 1)],
        vec![event(Op::Acquire, Answer::None([0; 5]), 2, 3)],
    ]));
    let lent = |thread| Answer::Lent { key: 0, version: 0, lease: (thread, 0) };
    assert!(
        refused(vec![
            vec![event(Op::Insert(0), Answer::Done, 0, 1), event(Op::Acquire, lent(1), 2, 5)],
            vec![event(Op::Acquire, lent(2), 3, 4)],
        ]),
        "one unit, lent twice"
    );
}

/// "None" with something eligible at every instant: released behind the scan, taken ahead of it.
#[test]
fn the_checker_refuses_a_dishonest_none() {
    let lent = |key, lease| Answer::Lent { key, version: 0, lease };
    assert!(refused(vec![
        vec![
            event(Op::Insert(0), Answer::Done, 0, 1),
            event(Op::Insert(1), Answer::Done, 2, 3),
            event(Op::AcquireKey(0), lent(0, (1, 0)), 4, 5),
            event(Op::Release((1, 0)), Answer::Done, 7, 8),
            event(Op::AcquireKey(1), lent(1, (1, 1)), 9, 10),
        ],
        vec![event(Op::Acquire, Answer::None([2, 0, 0, 0, 0]), 6, 11)],
    ]));
}

#[test]
fn the_checker_refuses_a_lost_update_and_wrong_counts() {
    assert!(refused(vec![
        vec![event(Op::Insert(0), Answer::Done, 0, 1), event(Op::UpdateWith(0), Answer::Done, 2, 5)],
        vec![event(Op::UpdateWith(0), Answer::Done, 3, 4), event(Op::Get(0), Answer::Version(1), 6, 7)],
    ]));
    assert!(refused(vec![vec![
        event(Op::Insert(0), Answer::Done, 0, 1),
        event(Op::Exclude(0), Answer::Changed(true), 2, 3),
        event(Op::Acquire, Answer::None([0, 1, 0, 0, 0]), 4, 5),
    ]]));
}

/// What was ejected by hand is not lent, and is not excluded; and what the rules have ejected a hand readmits once.
#[test]
fn the_checker_refuses_what_ejection_forbids() {
    let lent = Answer::Lent { key: 0, version: 0, lease: (1, 0) };
    let ejected = |answer| {
        refused(vec![vec![
            event(Op::Insert(0), Answer::Done, 0, 1),
            event(Op::Eject(0), Answer::Changed(true), 2, 3),
            event(Op::Acquire, answer, 4, 5),
        ]])
    };
    assert!(ejected(lent) && ejected(Answer::None([0, 0, 0, 0, 1])));
    assert!(!ejected(Answer::None([0, 0, 1, 0, 0])));
    let failed = |rules, first, second| {
        let history = vec![
            vec![
                event(Op::Insert(0), Answer::Done, 0, 1),
                event(Op::Acquire, lent, 2, 3),
                event(Op::Fail((1, 0)), Answer::Done, 4, 5),
                event(Op::Readmit(0), Answer::Changed(first), 6, 9),
            ],
            vec![event(Op::Readmit(0), Answer::Changed(second), 7, 8)],
        ];
        matches!(check(&State::new(1, true).with_rules(rules), &history), Verdict::Wrong { .. })
    };
    assert!(!failed(true, true, false) && !failed(true, false, true) && !failed(false, false, false));
    assert!(failed(true, true, true) && failed(true, false, false) && failed(false, true, false));
}
