//! How claims go round: who has how many units, and that nobody starves or churns, when lists differ, units are blocked, clocks are set back,
//! and sessions are left behind.

use std::{sync::Arc, time::Duration};

use super::{
    process::{Process, Skewed},
    quiet, with_mistake,
    world::{Plan, World},
};
use crate::cluster::{
    engine::{Change, HoldKind, HoldNote, Line, MemberView, Reply, Request, Session, View},
    ledger::Ledger,
    planted::Planted,
    terms::Terms,
    unit::{Claim, Roll, Share, Unit},
};
use crate::sync::Timestamp;

const SECOND: Duration = Duration::from_secs(1);

impl World {
    fn step(&mut self, request: &Request) -> Reply {
        let now = self.engine.read(self.time).as_nanos();
        self.ledger.step(now, &self.epoch.to_string(), request).0
    }

    /// A process that begins anew, with these terms and this list.
    fn enlist(&mut self, place: usize, terms: Terms, shares: Vec<Share>) {
        self.enlist_as(format!("p{place:03}"), place, terms, shares);
    }

    fn enlist_as(&mut self, name: String, place: usize, terms: Terms, shares: Vec<Share>) {
        let roll = Arc::new(Roll::new(shares).expect("names differ"));
        let clock = Skewed { rate: 1.0, offset: 7_000_000_000 };
        let incarnation = self.processes[place].incarnation + 1;
        self.holders.values_mut().for_each(|holders| {
            holders.remove(&place);
        });
        // Nobody else has this one: `some_process` counts up from 1.
        let nonce = u64::MAX - incarnation;
        self.processes[place] = Process::new(name, nonce, terms, &roll, clock);
        self.processes[place].incarnation = incarnation;
    }

    pub(super) fn floor(&mut self, place: usize, units: u32) {
        self.processes[place].member.set_floor(units);
    }

    fn counts(&self) -> Vec<(u64, u64)> {
        let counts = self.processes.iter().map(|process| process.member.counts());
        counts.map(|counts| (counts.claimed, counts.returned)).collect()
    }

    fn run_for(&mut self, time: Duration) {
        self.run_until(Duration::from_nanos(self.time) + time);
    }
}

fn shares(resources: std::ops::Range<usize>, units: u32) -> Vec<Share> {
    resources.map(|number| Share::new(format!("r{number:05}"), number as u64).units(units)).collect()
}

#[test]
fn a_member_that_was_refused_does_not_set_the_time_to_live_after_a_loss() {
    for seed in 0..20 {
        let mut world = World::new(Plan {
            seed,
            processes: 3,
            resources: 6,
            units: 1,
            faults: 0.0,
            outages: 0.0,
            losses: 0,
            load: 300,
            ..Plan::default()
        });
        world.freeze_demand();
        (0..2).for_each(|place| world.want(place, 6));
        world.cut_off(2, true);
        world.run_for(SECOND);
        world.enlist(2, Terms::new(Duration::from_millis(400)), shares(0..6, 1));
        world.want(2, 6);
        world.run_for(SECOND * 8);
        world.ledger = Ledger::default();
        world.epoch += 1;
        world.run_for(SECOND * 8);
        assert!(world.held(0).len() + world.held(1).len() == 6, "seed {seed}");
    }
}

#[test]
fn thousands_of_units_of_somebody_who_was_killed_are_back_in_time() {
    let mut world = quiet(2, 10_000);
    (0..2).for_each(|place| world.floor(place, 10_000));
    world.run_for(SECOND * 10);
    assert_eq!((world.held(0).len(), world.held(1).len()), (5_000, 5_000));
    world.kill(1);
    world.run_for(Plan::default().terms.ttl() + SECOND);
    assert_eq!(world.held(0).len(), 10_000);
}

#[test]
fn who_lists_fewer_units_of_a_resource_has_those_that_it_lists() {
    let mut world = quiet(2, 4);
    world.enlist(0, Plan::default().terms, shares(0..4, 4));
    world.run_for(SECOND * 4);
    world.enlist(1, Plan::default().terms, shares(0..4, 2));
    for _ in 0..3 {
        world.want(1, 8);
        world.run_for(SECOND * 8);
        assert!(world.held(1).len() >= 7, "{:?}", world.held(1));
        world.want(1, 0);
        world.run_for(SECOND * 12);
        assert!(world.held(1).len() <= 2, "{:?}", world.held(1));
    }
}

#[test]
fn units_that_nobody_lists_any_more_hide_nobody_who_starves() {
    let mut world = quiet(3, 4);
    world.enlist(0, Plan::default().terms, shares(0..20, 1));
    world.run_for(SECOND * 4);
    world.kill(0);
    world.want(1, 4);
    world.run_for(SECOND * 6);
    assert_eq!(world.held(1).len(), 4);
    world.want(2, 4);
    world.run_for(SECOND * 4);
    assert_eq!((world.held(1).len(), world.held(2).len()), (2, 2));
}

#[test]
fn units_that_a_hold_blocks_are_nobodys_share() {
    let mut world = quiet(2, 8);
    world.cut_off(1, true);
    world.floor(0, 8);
    world.run_for(SECOND * 6);
    assert_eq!(world.held(0).len(), 8);
    for number in 0..4 {
        let name = format!("r{number:05}").into();
        let change = Change::Set(None);
        let (origin, epoch) = ("x".into(), "".into());
        let note = HoldNote { name, kind: HoldKind::Excluded, change, origin, epoch, version: 0 };
        world.step(&Request::Hold(vec![note]));
    }
    world.floor(1, 8);
    world.cut_off(1, false);
    world.run_for(SECOND * 6);
    let usable = |world: &World, place| world.held(place).iter().filter(|rank| **rank >= 4).count();
    assert_eq!((usable(&world, 0), usable(&world, 1)), (2, 2), "{:?} {:?}", world.held(0), world.held(1));
    let before = world.counts();
    world.run_for(SECOND * 10);
    assert_eq!(world.counts(), before, "at rest nothing goes round");
}

/// Two who have what they need of twenty units, the better ten of which are on nobody's list any more.
fn half_is_on_no_list() -> World {
    let mut world = quiet(2, 20);
    world.run_for(SECOND * 4);
    for place in 0..2 {
        world.enlist(place, Plan::default().terms, shares(10..20, 1));
        world.want(place, 4);
    }
    world.run_for(SECOND * 10);
    world
}

#[test]
fn better_units_that_a_member_cannot_use_are_not_claimed_over_and_over() {
    let mut world = half_is_on_no_list();
    let (before, requests) = (world.counts(), world.outcome.requests);
    world.run_for(SECOND * 20);
    assert_eq!(world.counts(), before);
    let rate = (world.outcome.requests - requests) as f64 / 20.0 / 2.0;
    assert!(rate < 2.6, "renewals alone are 2.5: {rate}");
}

#[test]
fn a_late_join_under_the_same_name_takes_no_share() {
    let mut world = quiet(2, 10);
    (0..2).for_each(|place| world.floor(place, 10));
    world.run_for(SECOND * 8);
    assert_eq!((world.held(0).len(), world.held(1).len()), (5, 5));
    let before = world.counts();
    for _ in 0..8 {
        let ttl = Plan::default().terms.ttl();
        world.step(&Request::Join { member: "p000".into(), ttl, weight: 1, previous: None });
        world.run_for(SECOND);
    }
    assert_eq!(world.counts(), before);
}

#[test]
fn a_clock_of_the_engine_that_is_set_back_keeps_nothing_for_longer() {
    let mut world = quiet(2, 10);
    (0..2).for_each(|place| world.floor(place, 10));
    world.run_for(SECOND * 8);
    world.kill(1);
    world.engine.offset -= 100 * 1_000_000_000;
    world.run_for(Plan::default().terms.ttl() + SECOND);
    assert_eq!(world.held(0).len(), 10);
}

#[test]
fn where_there_are_fewer_units_than_needs_everybody_has_his_turn() {
    let who_had_one = || {
        let mut world = quiet(3, 2);
        (0..3).for_each(|place| world.want(place, 1));
        world.run_for(SECOND * 4);
        let mut had = [false; 3];
        for _ in 0..120 {
            world.run_for(SECOND / 4);
            (0..3).for_each(|place| had[place] |= !world.held(place).is_empty());
        }
        had
    };
    assert_eq!(who_had_one(), [true; 3]);
    assert_ne!(with_mistake(Planted::NoTurns, who_had_one), [true; 3]);
}

/// The bar: two commands in a second for each hundred resources, with the default terms.
#[test]
fn at_rest_a_member_sends_at_most_two_requests_a_second_for_a_hundred_resources() {
    let mut world = World::new(Plan {
        processes: 4,
        resources: 100,
        units: 1,
        faults: 0.0,
        outages: 0.0,
        losses: 0,
        terms: Terms::default(),
        ..Plan::default()
    });
    world.freeze_demand();
    (0..4).for_each(|place| world.want(place, 20));
    world.run_for(SECOND * 30);
    let before = world.outcome.requests;
    world.run_for(SECOND * 30);
    let rate = (world.outcome.requests - before) as f64 / 30.0 / 4.0;
    assert!(rate <= 2.0, "{rate} a second");
    assert!(rate >= 0.9, "renewals are counted: {rate}");
}

/// How many units somebody has who begins to need fifty, three renewals later, while the best 1,500 are free and rest; and how many of these.
fn has_beside_many_that_rest() -> (usize, usize) {
    const RESTING: usize = 1_500;
    let mut world = quiet(2, RESTING + 300);
    let note = |number: usize| {
        let (name, origin, epoch) = (format!("r{number:05}").into(), "x".into(), "".into());
        HoldNote { name, kind: HoldKind::Excluded, change: Change::Set(None), origin, epoch, version: 0 }
    };
    world.run_for(SECOND);
    let _ = world.step(&Request::Hold((0..RESTING).map(note).collect()));
    world.run_for(SECOND * 7);
    let held = |world: &World| {
        let (usable, resting): (Vec<_>, Vec<_>) =
            world.held(0).into_iter().partition(|rank| *rank >= RESTING as u64);
        (usable.len(), resting.len())
    };
    assert!(held(&world).0 <= 2, "nothing is needed");
    world.want(0, 50);
    world.run_for(Plan::default().terms.period() * 3 + SECOND / 5);
    held(&world)
}

#[test]
fn many_free_units_that_rest_starve_nobody() {
    let (usable, resting) = has_beside_many_that_rest();
    assert!(usable >= 50 && resting == 0, "{usable} {resting}");
    let (usable, resting) = with_mistake(Planted::SkipsSome, has_beside_many_that_rest);
    assert!(
        usable < 50 && resting > 50,
        "whoever leaves only some of them alone claims the others: {usable} {resting}"
    );
}

#[test]
fn what_is_told_as_free_is_what_nobody_has() {
    let world = half_is_on_no_list();
    let free = world.ledger.known() - world.ledger.owners().len() as u32;
    assert!((10..20).contains(&free), "{free}");
    for place in 0..2 {
        assert_eq!(world.processes[place].member.view().free, free);
    }
}

/// Of eight units that two processes need all, what the second one gets that has the first one's name; and how many of its name each sees.
fn with_one_name() -> (usize, [u32; 2]) {
    let mut world = quiet(2, 8);
    world.want(0, 8);
    world.run_for(SECOND * 8);
    let terms = world.plan.terms;
    world.enlist_as("p000".to_owned(), 1, terms, shares(0..8, 1));
    world.want(1, 8);
    world.run_for(SECOND * 12);
    (world.held(1).len(), [0, 1].map(|place: usize| world.processes[place].member.namesakes()))
}

#[test]
fn two_processes_of_one_name_share_and_are_told() {
    assert_eq!(with_one_name(), (4, [1, 1]));
    let starved = with_mistake(Planted::DeniesNamesakes, with_one_name);
    assert_eq!(starved.0, 0, "the second one starves");
}

/// A member alone, at one moment, to whom the test is the engine.
struct Alone {
    process: Process,
    now: Timestamp,
}

impl Alone {
    fn new(units: u32) -> Self {
        let roll = Arc::new(Roll::new(shares(0..1, units)).expect("names differ"));
        let clock = Skewed { rate: 1.0, offset: 0 };
        let process = Process::new("m".to_owned(), 1, Terms::default(), &roll, clock);
        Alone { process, now: Timestamp::from_nanos(1_000_000_000) }
    }

    fn asks(&mut self) -> Option<Request> {
        self.process.member.poll(self.now, &mut self.process.desk)
    }

    fn hears(&mut self, reply: Reply) {
        self.process.member.answered(self.now, Some(reply), &mut self.process.desk);
    }

    /// It joins, by the session of this number, and renews: then some units are free.
    fn joins(&mut self, number: u64, free: u32) {
        assert!(matches!(self.asks(), Some(Request::Join { .. })));
        self.hears(Reply::Joined(Session { epoch: "e".into(), number }));
        assert!(matches!(self.asks(), Some(Request::Renew { .. })));
        let line = Line { weight: 1, ..Line::default() };
        let members = vec![MemberView { member: "m".into(), line }];
        self.hears(Reply::Renewed(View { members, free, ..View::default() }));
    }

    fn claims(&mut self, tokens: &[u64]) {
        assert!(matches!(self.asks(), Some(Request::Claim { .. })));
        let unit = Unit { name: "r00000".into(), index: 0 };
        self.hears(Reply::Claims(tokens.iter().map(|&token| Claim { unit: unit.clone(), token }).collect()));
    }

    fn registers(&mut self) {
        let asks = self.asks();
        assert!(matches!(asks, Some(Request::Register { .. })), "{asks:?}");
        self.hears(Reply::Done);
    }
}

#[test]
fn an_answer_to_another_question_is_a_failure() {
    let mut alone = Alone::new(2);
    assert!(matches!(alone.asks(), Some(Request::Join { .. })));
    alone.hears(Reply::Done);
    assert_eq!((alone.process.member.counts().failures, alone.asks()), (1, None), "not at once");
    alone.now = alone.now.saturating_add(SECOND);
    alone.joins(1, 2);
}

#[test]
fn a_unit_that_is_granted_twice_in_an_answer_is_held_once() {
    let mut alone = Alone::new(2);
    alone.joins(1, 2);
    alone.registers();
    alone.claims(&[5, 6]);
    assert_eq!(alone.process.member.held(), 1);
    assert!(matches!(alone.asks(), Some(Request::Owned { .. })), "it asks whose it is");
}

#[test]
fn units_are_made_known_once_in_an_epoch_and_hold_up_no_claims() {
    let mut alone = Alone::new(600);
    alone.joins(1, 2);
    alone.registers();
    // In turns.
    alone.claims(&[5]);
    alone.registers();
    alone.registers();
    assert_eq!(alone.asks(), None);
    // Its session is over, in the same epoch: everything is known.
    alone.now = alone.now.saturating_add(SECOND);
    assert!(matches!(alone.asks(), Some(Request::Renew { .. })));
    alone.hears(Reply::Gone { epoch: "e".into() });
    alone.joins(2, 2);
    alone.claims(&[6]);
    assert_eq!(alone.asks(), None);
}
