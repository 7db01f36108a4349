//! Whole clusters in virtual time: real members, the contract's ledger as engine, and a world that loses, delays, drifts, stops, kills and fails
//! over. Everything follows from the seed; each message of a failed check names it. No order of a hash map is seen by anything that happens: what is iterated
//! has an order of its own, or its order does not matter.
//!
//! Checked at each step: no unit is granted while somebody owns it by his own clock; no unit is lent while somebody else honours a lease on it;
//! no more leases are out than the units that are held allow; nothing is lent in the lead; a budget is used no more often in any period than it
//! allows; tokens grow, over the whole fleet. Ten times a second:
//! the engine's books are consistent; no unit is without use for longer than the time to live and the margin, each reason for it taken by itself. At the end, after a quiet time:
//! nothing is lost, everybody has his share, and the units that he should have; everybody knows the same holds, has them where he has the
//! resource, and none that lasts longer than anybody said.

mod budgets;
mod checks;
mod claims;
mod faults;
mod process;
mod steady;
mod travel;
mod world;

use std::{collections::BTreeSet, time::Duration};

use self::world::{Outcome, Plan, World};
use crate::{
    cluster::{
        planted::{MISTAKE, Planted},
        terms::Terms,
    },
    sync::SplitMix64,
};

fn run(plan: Plan) -> Outcome {
    World::new(plan).run()
}

/// How far a clock may go wrong: two that do so in opposite directions differ by 9% then, which is what the margin of a tenth leaves for them
/// when a thread is up to 35 ms late to withdraw, of 200.
const MOST_DRIFT: f64 = 0.043;

/// Faults of all kinds, in fleets of all small shapes.
fn some_plan(seed: u64) -> Plan {
    let mut random = SplitMix64::new(seed);
    let mut below = |bound| random.below(bound);
    Plan {
        seed,
        processes: 2 + below(5) as usize,
        resources: 1 + below(12) as usize,
        units: 1 + below(3),
        leases_per_unit: 1 + below(3),
        faults: [0.2, 0.5, 2.0][below(3) as usize],
        outages: [0.05, 0.2, 0.6][below(3) as usize],
        losses: [0, 20, 100][below(3) as usize],
        lateness: Duration::from_secs([0, 4][below(2) as usize]),
        drift: [0.0, 0.02, MOST_DRIFT][below(3) as usize],
        load: [30, 80, 110, 300][below(4) as usize],
        holds: [0.0, 0.2, 1.0][below(3) as usize],
        ..Plan::default()
    }
}

fn many(seeds: std::ops::Range<u64>) -> Outcome {
    let mut sum = Outcome::default();
    for seed in seeds {
        let one = run(some_plan(seed));
        sum.leases += one.leases;
        sum.checks += one.checks;
        sum.revoked += one.revoked;
        sum.faults += one.faults;
        sum.outages += one.outages;
        sum.faulty_leases += one.faulty_leases;
        sum.faulty_grants += one.faulty_grants;
        sum.epochs += one.epochs;
        sum.grants += one.grants;
        sum.churn += one.churn;
        sum.acts += one.acts;
        sum.standing += one.standing;
        sum.longest_limbo = sum.longest_limbo.max(one.longest_limbo);
    }
    println!("{sum:?}");
    sum
}

/// The best units belong to those who work, and somebody who dies is replaced in time.
fn quiet(processes: usize, resources: usize) -> World {
    quiet_as(Plan { processes, resources, ..Plan::default() })
}

/// The same of this seed, and with these distances.
fn quiet_as(plan: Plan) -> World {
    let processes = plan.processes;
    let mut world = World::new(Plan { units: 1, faults: 0.0, outages: 0.0, losses: 0, ..plan });
    for place in 0..processes {
        world.want(place, 0);
    }
    world.freeze_demand();
    world
}

#[test]
fn units_follow_demand_and_the_best_go_to_those_who_use_them() {
    let mut world = quiet(3, 30);
    world.run_until(Duration::from_secs(10));
    let idle: Vec<usize> = (0..3).map(|place| world.held(place).len()).collect();
    assert_eq!(idle, [1, 1, 1], "a floor each");
    assert!((0..3).all(|place| world.held(place)[0] >= 27), "the worst are enough for those who idle");
    world.want(0, 8);
    world.run_until(Duration::from_secs(14));
    let busy = world.held(0);
    assert!((8..=12).contains(&busy.len()), "{busy:?}");
    assert_eq!(busy[..8], [0, 1, 2, 3, 4, 5, 6, 7], "the best");
    // All want everything.
    (0..3).for_each(|place| world.want(place, 30));
    world.run_until(Duration::from_secs(20));
    let fair: Vec<usize> = (0..3).map(|place| world.held(place).len()).collect();
    assert_eq!(fair, [10, 10, 10]);
    // It falls slowly, and then it is given back.
    (0..3).for_each(|place| world.want(place, 0));
    world.run_until(Duration::from_secs(40));
    assert!((0..3).all(|place| world.held(place).len() <= 2), "{:?}", world.held(0));
}

#[test]
fn a_member_that_joins_has_its_share_after_three_renewals_and_a_lease() {
    // Renewals of the two are at any moments in relation to each other.
    for seed in 0..20 {
        let mut world = quiet_as(Plan { seed, processes: 2, resources: 20, ..Plan::default() });
        world.cut_off(1, true);
        world.want(0, 20);
        let joins = Duration::from_secs(10) + Duration::from_millis(20 * seed);
        world.run_until(joins);
        assert_eq!(world.held(0).len(), 20);
        world.want(1, 20);
        world.cut_off(1, false);
        // Its own retry (ttl / 20), renewals of ttl / 5, leases of up to 0.2 s, and threads that are late.
        world.run_until(joins + Duration::from_millis(100 + 3 * 400 + 200 + 200));
        assert!(world.held(1).len() >= 9, "seed {seed}: {:?}", world.held(1));
    }
}

#[test]
fn a_member_whose_need_rises_has_its_share_after_three_renewals_and_a_lease() {
    for seed in 0..20 {
        let mut world = quiet_as(Plan { seed, processes: 2, resources: 20, ..Plan::default() });
        world.want(0, 20);
        let rises = Duration::from_secs(10) + Duration::from_millis(20 * seed);
        world.run_until(rises);
        assert!(world.held(0).len() >= 19, "seed {seed}: a floor comes after a need");
        world.want(1, 20);
        // Three renewals, leases of up to 0.2 s, and threads that are late.
        world.run_until(rises + Duration::from_millis(3 * 400 + 200 + 200));
        assert!(world.held(1).len() >= 9, "seed {seed}: {:?}", world.held(1));
    }
}

#[test]
fn after_a_kill_everything_is_used_elsewhere_within_the_time_to_live_and_a_second() {
    let mut world = quiet(4, 40);
    (0..4).for_each(|place| world.want(place, 40));
    world.run_until(Duration::from_secs(12));
    assert_eq!(world.held(3).len(), 10);
    world.kill(3);
    let ttl = Plan::default().terms.ttl();
    world.run_until(Duration::from_secs(12) + ttl + Duration::from_secs(1));
    let held: usize = (0..3).map(|place| world.held(place).len()).sum();
    assert_eq!(held, 40);
}

/// The size of the specification. Minutes: for the full run.
#[test]
#[ignore = "minutes: run by .ci/cluster --full and the tier `long`"]
fn a_hundred_processes_share_ten_thousand_resources() {
    let mut outages = 0;
    for seed in 1..=4 {
        let outcome = run(Plan {
            seed,
            processes: 100,
            resources: 10_000,
            units: 1,
            faults: 2.5,
            // One in ten times to live: most of the time units are lent, die with their processes, and go elsewhere.
            outages: 0.02,
            faulty: Duration::from_secs(60),
            terms: Terms::new(Duration::from_secs(5)),
            lateness: Duration::from_secs(4),
            quiet: Duration::from_secs(40),
            ..Plan::default()
        });
        println!("seed {seed}: {outcome:?}");
        // Each unit once, and more again: of those that were killed, or stopped for longer than their claims last.
        assert!(outcome.faulty_grants > 12_000 && outcome.faulty_leases > 100_000, "{outcome:?}");
        assert!(outcome.leases > 160_000 && outcome.faults > 100, "{outcome:?}");
        outages += outcome.outages;
    }
    assert!(outages > 0);
}

/// Thousands of runs, other ones than in the everyday test.
#[test]
#[ignore = "minutes: run by .ci/cluster --full and the tier `long`"]
fn thousands_of_runs_with_faults_lend_no_unit_twice() {
    let sum = many(1_000..5_000);
    assert!(sum.leases > 5_000_000 && sum.epochs > 8_000, "{sum:?}");
    assert!(sum.faulty_leases > 2_400_000 && sum.faulty_grants > 80_000, "{sum:?}");
}

/// A failure that is told by its seed is seen again by it.
#[test]
fn a_run_follows_from_its_seed() {
    let mut traces = BTreeSet::new();
    for seed in 0..12 {
        let plan = Plan { traced: true, losses: 100, lateness: Duration::from_secs(4), ..some_plan(seed) };
        let (first, second) = (run(plan), run(plan));
        assert_eq!(first, second, "seed {seed}");
        traces.insert(first.trace);
    }
    assert_eq!(traces.len(), 12, "and no two are alike");
}

/// Whether some run of so many is stopped by a check with this in its message.
fn is_noticed(message: &str, plan: impl Fn(u64) -> Plan) -> bool {
    (0..200).any(|seed| {
        let plan = plan(seed);
        let caught = std::panic::catch_unwind(move || run(plan));
        caught
            .is_err_and(|payload| payload.downcast_ref::<String>().is_some_and(|text| text.contains(message)))
    })
}

#[test]
fn a_margin_that_does_not_cover_the_drift_is_noticed() {
    let terms = Terms::new(Duration::from_secs(2)).margin(Duration::from_millis(1));
    let plan =
        |seed| Plan { seed, terms, drift: 0.1, faults: 1.1, outages: 0.9, load: 300, ..Plan::default() };
    assert!(is_noticed("owns it", plan) || is_noticed("is lent by", plan));
}

/// A mistake that is made on purpose is noticed.
fn planted(mistake: Planted, messages: &[&str]) {
    // What holds block is not lent, and shows no mistake. With more faults hardly anything is granted between two quarantines.
    let late = |seed| {
        let lateness = Duration::from_secs(2 + 2 * (seed % 2));
        Plan { faults: 0.2, outages: 0.1, losses: 100, lateness, load: 300, holds: 0.0, ..some_plan(seed) }
    };
    let often = |seed| Plan { faults: 1.1, outages: 0.9, ..late(seed) };
    // Replies that are later than the margin, and not given up yet.
    let terms = Terms::new(Duration::from_secs(2)).margin(Duration::from_millis(20));
    let lateness = Duration::from_millis(150);
    let narrow = |seed| Plan { terms, lateness, drift: 0.0, faults: 0.6, outages: 0.4, ..late(seed) };
    let noticed = with_mistake(mistake, || {
        messages.iter().any(|message| {
            is_noticed(message, late) || is_noticed(message, often) || is_noticed(message, narrow)
        })
    });
    assert!(noticed, "{mistake:?}");
}

fn with_mistake<T>(mistake: Planted, run: impl FnOnce() -> T) -> T {
    MISTAKE.set(Some(mistake));
    let result = run();
    MISTAKE.set(None);
    result
}

#[test]
fn claims_that_are_counted_from_the_reply_are_noticed() {
    planted(Planted::UntilFromReply, &["owns it", "is lent by"]);
}

#[test]
fn a_return_whatever_the_token_is_noticed() {
    planted(Planted::ReturnWithoutToken, &["owns it", "is lent by"]);
}

#[test]
fn a_late_reinstatement_is_noticed() {
    planted(Planted::ReinstateLate, &["is reinstated under"]);
}

#[test]
fn units_that_are_given_back_in_use_are_noticed() {
    planted(Planted::LetGoInUse, &["in use"]);
}

#[test]
fn units_of_the_dead_that_are_never_freed_are_noticed() {
    planted(Planted::ReapsNothing, &["is lost for"]);
}

#[test]
fn a_quarantine_that_is_too_long_is_noticed() {
    planted(Planted::LongQuarantine, &["is lost for"]);
}

#[test]
fn claims_whose_answers_were_lost_and_that_nobody_returns_are_noticed() {
    planted(Planted::NeverAsks, &["is lost for"]);
}

#[test]
fn lending_in_the_lead_is_noticed() {
    planted(Planted::SuspendsLate, &["lends in the lead"]);
}

#[test]
fn a_share_that_is_kept_from_others_is_noticed() {
    planted(Planted::KeepsExcess, &["is short of his share"]);
}

/// The books go back in time, and the run stays: what no engine may do, as it cannot be seen.
#[test]
fn a_loss_under_the_same_run_is_noticed() {
    let plan = |seed| Plan { seed, silent: true, faults: 1.1, outages: 0.9, load: 300, ..Plan::default() };
    assert!(is_noticed("owns it", plan) || is_noticed("is lent by", plan) || is_noticed("token", plan));
}

#[test]
fn an_engine_without_quarantine_is_noticed() {
    let plan = |seed| Plan { seed, hasty: true, faults: 1.1, outages: 0.9, load: 300, ..Plan::default() };
    assert!(is_noticed("owns it", plan) || is_noticed("is lent by", plan));
}

#[test]
fn an_engine_whose_clock_is_set_back_lends_no_unit_twice() {
    let (mut faults, mut outages) = (0, 0);
    for seed in 0..150 {
        let outcome = run(Plan { set_back: true, holds: 0.0, ..some_plan(seed) });
        (faults, outages) = (faults + outcome.faults, outages + outcome.outages);
    }
    // Of these a third sets it back.
    assert!(faults > 1_000 && outages > 600, "{faults} {outages}");
}

/// Between the everyday sizes and that of the specification.
#[test]
fn twenty_processes_share_five_hundred_resources() {
    for seed in 1..=6 {
        let outcome = run(Plan {
            seed,
            processes: 20,
            resources: 500,
            units: 2,
            faults: 1.5,
            outages: 0.1,
            holds: 1.0,
            faulty: Duration::from_secs(12),
            quiet: Duration::from_secs(28),
            ..Plan::default()
        });
        println!("{outcome:?}");
        assert!(outcome.leases > 100_000 && outcome.faults > 8, "{outcome:?}");
        assert!(outcome.faulty_leases > 25_000 && outcome.faulty_grants > 1_200, "{outcome:?}");
    }
}

/// A quarter of a thousand runs: four tests, so that they run side by side.
fn a_quarter(number: u64) {
    let sum = many(250 * number..250 * (number + 1));
    // None of it is hollow.
    assert!(sum.leases > 300_000 && sum.faults > 2_000 && sum.epochs > 500 && sum.revoked > 300, "{sum:?}");
    // Nor what happens while things go wrong. All units of these fleets together are some 3,250: each is granted more than once.
    assert!(sum.faulty_leases > 150_000 && sum.faulty_grants > 5_000, "{sum:?}");
    // At rest hardly anything goes round.
    assert!(sum.churn < 250, "{sum:?}");
}

#[test]
fn a_thousand_runs_with_faults_lend_no_unit_twice_first_quarter() {
    a_quarter(0);
}

#[test]
fn a_thousand_runs_with_faults_lend_no_unit_twice_second_quarter() {
    a_quarter(1);
}

#[test]
fn a_thousand_runs_with_faults_lend_no_unit_twice_third_quarter() {
    a_quarter(2);
}

#[test]
fn a_thousand_runs_with_faults_lend_no_unit_twice_last_quarter() {
    a_quarter(3);
}
