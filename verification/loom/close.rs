//! Closing against everything that lends or changes the fleet: what began before may succeed or be refused, what begins
//! afterwards is refused, and a return always lands.

use crate::{
    common::{race, race_then, steps},
    driver::{Setup, Step, Step::Release},
    specification::{
        Answer,
        Op::{self, *},
    },
};

/// `main` against a close; afterwards everything is refused, and `left` leases are out.
fn closing(before: &[Op], main: Vec<Step>) {
    race_then(Setup::default(), steps(before), vec![main, steps(&[Close])], Vec::new(), |fleet, _| {
        assert!(fleet.scheduler.is_closed());
        assert!(!fleet.scheduler.close(), "it was closed once");
        for op in [Acquire, AcquireKey(0), Insert(5), InsertBatch(4, 2), Remove(0), UpdateWith(0), Exclude(0)]
        {
            let mut actor = crate::driver::Actor::new(fleet, 9);
            actor.step(Step::Do(op));
            assert_eq!(actor.events[0].answer, Answer::Closed, "{op:?} after the close");
        }
    });
}

#[test]
fn close_acquire() {
    closing(&[Insert(0)], steps(&[Acquire]));
}

#[test]
fn close_acquire_key() {
    closing(&[Insert(0)], steps(&[AcquireKey(0)]));
}

#[test]
fn close_insert() {
    closing(&[], steps(&[Insert(0)]));
}

#[test]
fn close_batch() {
    closing(&[], steps(&[InsertBatch(0, 2)]));
}

#[test]
fn close_remove() {
    closing(&[Insert(0), Acquire], vec![Step::Do(Remove(0)), Release]);
}

#[test]
fn close_close() {
    closing(&[Insert(0)], steps(&[Close]));
}

/// Who is refused sees what the closer has done before.
#[test]
fn insert_close_refused_get() {
    race(Setup::default(), Vec::new(), vec![steps(&[Insert(0), Close]), steps(&[Insert(1), Get(0)])]);
}

/// As before, who comes too late to close.
#[test]
fn insert_close_close_get() {
    race(Setup::default(), Vec::new(), vec![steps(&[Insert(0), Close]), steps(&[Close, Get(0)])]);
}
