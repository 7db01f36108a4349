//! Budgets: how often the whole fleet uses one in a period, whatever goes wrong, and when what somebody had who was killed is lent again.

use std::time::Duration;

use super::{
    is_noticed, quiet_as, run, some_plan, with_mistake,
    world::{Outcome, Plan, World},
};
use crate::cluster::planted::Planted;

const SECOND: Duration = Duration::from_secs(1);

/// Faults of all kinds, in fleets of budgets.
fn some_budgets(seed: u64) -> Plan {
    let period = Duration::from_millis([300, 1_000, 2_500][seed as usize % 3]);
    Plan { period, load: [110, 300][seed as usize % 2], ..some_plan(seed) }
}

#[test]
fn no_budget_is_used_more_often_than_its_period_allows() {
    let mut sum = Outcome::default();
    for seed in 0..200 {
        let one = run(some_budgets(seed));
        sum.leases += one.leases;
        sum.faulty_leases += one.faulty_leases;
        sum.faulty_grants += one.faulty_grants;
        sum.epochs += one.epochs;
        sum.used_up += one.used_up;
    }
    println!("{sum:?}");
    // None of it is hollow: each fault and each epoch moves units, and what there is of a budget is used up.
    assert!(sum.faulty_leases > 10_000 && sum.faulty_grants > 4_000 && sum.epochs > 400, "{sum:?}");
    assert!(sum.used_up > 10_000, "{sum:?}");
}

#[test]
fn a_unit_that_is_lent_before_it_is_ripe_is_noticed() {
    let noticed = with_mistake(Planted::LendsUnripe, || is_noticed("uses in a period", some_budgets));
    assert!(noticed);
}

fn held_and_lent(world: &World, of: usize) -> (usize, u32) {
    let held = (0..of).map(|place| world.held(place).len()).sum();
    (held, world.processes[..of].iter().map(|process| process.desk.lent()).sum())
}

/// Claimed, and lent, after a kill: within the time to live and a second, and within a period more.
fn after_a_kill(seed: u64) -> [(usize, u32); 2] {
    let period = SECOND * 3;
    let plan = Plan { seed, processes: 4, resources: 40, period, ..Plan::default() };
    let mut world = quiet_as(plan);
    (0..4).for_each(|place| world.want(place, 40));
    world.run_until(SECOND * 20);
    assert_eq!(held_and_lent(&world, 4), (40, 40));
    world.kill(3);
    let claimed = SECOND * 20 + plan.terms.ttl() + SECOND;
    world.run_until(claimed);
    let then = held_and_lent(&world, 3);
    world.run_until(claimed + period);
    [then, held_and_lent(&world, 3)]
}

#[test]
fn after_a_kill_budgets_are_claimed_in_time_and_lent_a_period_later() {
    for seed in 0..10 {
        let [(claimed, lent), later] = after_a_kill(seed);
        assert_eq!((claimed, later), (40, (40, 40)), "seed {seed}");
        // What the dead one has used of them is not over yet, and nobody knows what that was.
        assert!(lent <= 30, "seed {seed}: {lent}");
    }
}

/// What somebody had who was killed ripens elsewhere, and then another one comes who lacks units. Answers how many of those are lent in time.
fn lent_though_another_comes(seed: u64) -> usize {
    let period = SECOND * 4;
    let plan = Plan { seed, processes: 4, resources: 12, period, ..Plan::default() };
    let mut world = quiet_as(plan);
    world.cut_off(3, true);
    // The first one has the best.
    world.want(0, 12);
    world.run_until(SECOND * 12);
    (0..4).for_each(|place| world.want(place, 12));
    world.run_until(SECOND * 40);
    let had = world.held(0);
    assert_eq!(had, [0, 1, 2, 3]);
    world.kill(0);
    let claimed = SECOND * 40 + plan.terms.ttl() + SECOND;
    world.run_until(claimed);
    assert_eq!(held_and_lent(&world, 4).0, 12 + had.len(), "those of the dead one, twice");
    world.cut_off(3, false);
    world.run_until(claimed + period);
    let lent = |rank: &&u64| (1..4).any(|place| world.processes[place].desk.lends(**rank as usize));
    had.iter().filter(lent).count()
}

#[test]
fn what_ripens_is_not_given_away_as_if_it_were_unused() {
    for seed in 0..10 {
        assert_eq!(lent_though_another_comes(seed), 4, "seed {seed}");
    }
    let least = with_mistake(Planted::GivesUnripe, || (0..10).map(lent_though_another_comes).min());
    assert!(least < Some(4), "it ripens anew elsewhere");
}
