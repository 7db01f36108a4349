//! After each round: every count must balance, and every resource must be in a state. After the last one: and everything must be there.

use std::{collections::HashSet, thread, time::Duration};

use leasehold::{
    AcquireError, Scheduler, Stats,
    baseline::{Lend, Lent},
};

#[cfg(feature = "peers")]
use super::peers;
use super::{
    asset::Asset,
    chores::{Done, SEVERAL},
    drive::State,
    outcome::Counts,
    referee::Referee,
    result::Check,
    scenario::Scenario,
    subject::Subject,
    worker,
};

/// Coolings that go on for longer than this are ended by hand.
const PATIENCE: Duration = Duration::from_secs(3);

/// Of so many that should be seen it does not happen that none is.
const SEEN: f64 = 40.0;

/// What must be so between two rounds, when nobody holds or waits: one check, which tells all that is wrong. What a round has lost must not
/// be found again by the next one.
pub fn between_rounds(scenario: &Scenario, state: &State, round: u32) -> Check {
    let counts = &state.sum.counts;
    let given = state.referee.leases();
    let mut looks = vec![
        ("requests that ended", counts.total(), state.begun),
        ("leases that ended", counts.leases() + state.chores.leases, given),
        ("leases out", state.referee.in_flight(), 0),
    ];
    if let Some(scheduler) = state.subject.scheduler() {
        let stats = scheduler.stats();
        looks.extend([
            ("in flight", stats.in_flight, 0),
            ("leaving", stats.leaving, 0),
            ("in a state", stats.eligible + stats.reasons.total(), stats.members),
            ("waits that ended", ended(&stats), stats.waits.waited),
        ]);
        if state.claims.is_none() {
            // What was away when the scheduler was closed could not come back.
            let expected = match scheduler.is_closed() {
                true => members(&state.referee),
                false => scenario.resources.into(),
            };
            looks.push(("members", stats.members, expected));
        }
    }
    let wrong: Vec<String> = looks
        .iter()
        .filter(|(_, found, expected)| found != expected)
        .map(|(what, found, expected)| format!("{what} {found}, expected {expected}"))
        .collect();
    let found = if wrong.is_empty() { format!("{} counts agree", looks.len()) } else { wrong.join("; ") };
    Check::that(&format!("after round {}", round + 1), wrong.is_empty(), found)
}

/// Lineages that are in the fleet.
fn members(referee: &Referee) -> u64 {
    (0..referee.lineages()).filter(|&lineage| referee.current(lineage).is_some()).count() as u64
}

fn ended(stats: &Stats) -> u64 {
    let waits = &stats.waits;
    waits.handed_off + waits.timed_out + waits.cancelled + waits.failed + waits.closed
}

/// What must be so when nobody holds or waits any more.
pub fn settle(scenario: &Scenario, state: &State, now: u64) -> Vec<Check> {
    let counts = &state.sum.counts;
    let given = state.referee.leases();
    let mut checks = vec![
        Check::equal("requests", ("begun", state.begun), ("ended", counts.total())),
        Check::equal("leases", ("given", given), ("ended", counts.leases() + state.chores.leases)),
        Check::equal("leases out", ("seen", state.referee.in_flight()), ("expected", 0)),
    ];
    let left = Duration::from_nanos(state.referee.cooled_by().saturating_sub(now));
    // Only the scheduler can be told to end a cooling.
    let still_cools = state.subject.scheduler().is_none() && left > PATIENCE;
    if state.subject.fleet().is_some() && !still_cools {
        thread::sleep(left.min(PATIENCE));
    }
    match &*state.subject {
        Subject::Leasehold(scheduler) => {
            let stats = scheduler.stats();
            of_the_scheduler(&mut checks, scenario, state, &stats);
            put_back(scheduler);
            if scheduler.is_closed() {
                // It may be that nobody has asked since.
                let (told, asks) = (counts.scheduler.closed, scheduler.acquire());
                let says = matches!(asks, Err(AcquireError::Closed));
                let now = if says { "and so is whoever asks now" } else { "and whoever asks now is NOT" };
                checks.push(Check::that("closed", says, format!("{told} requests were told so, {now}")));
            } else if state.claims.is_none() {
                // Of a fleet that is shared only the server knows where everything is, and one that is closed lends nothing.
                everything_is_there(&mut checks, scenario, state, &**scheduler, still_cools);
            }
            let after = scheduler.stats();
            checks.push(Check::equal("in flight at last", ("seen", after.in_flight), ("expected", 0)));
        }
        Subject::Mutex(lender) => everything_is_there(&mut checks, scenario, state, lender, still_cools),
        Subject::Naive(lender) => everything_is_there(&mut checks, scenario, state, lender, still_cools),
        #[cfg(feature = "peers")]
        Subject::Deadpool(pool) => {
            checks.push(peers::nothing_is_lost(pool.units(), |wait| pool.acquire(wait)))
        }
        #[cfg(feature = "peers")]
        Subject::Bb8(pool) => checks.push(peers::nothing_is_lost(pool.units(), |wait| pool.acquire(wait))),
    }
    checks
}

/// The scheduler's own counts against ours.
fn of_the_scheduler(checks: &mut Vec<Check>, scenario: &Scenario, state: &State, stats: &Stats) {
    let counts = &state.sum.counts;
    let given = state.referee.leases();
    let equal = |name: &str, own: u64, ours: u64| Check::equal(name, ("scheduler", own), ("harness", ours));
    checks.push(Check::equal("lent", ("lent", stats.lent), ("returned", stats.returned)));
    checks.push(equal("in flight", stats.in_flight, 0));
    // Whatever comes back while somebody waits is lent again before it is known to whom, and a future may be dropped when it
    // has its lease already: no caller knows of these, and the scheduler counts them as unused. And of several that were asked for at once
    // and not to be had, all but one may have been taken and returned.
    let waits = &stats.waits;
    let most = state.chores.in_vain * (SEVERAL - 1);
    let more = stats.lent.checked_sub(given + waits.unused);
    let found = format!(
        "scheduler {}, harness {given}, never anybody's {}, returned because there were not enough at most {most}",
        stats.lent, waits.unused
    );
    checks.push(Check::that("lent and given", more.is_some_and(|more| more <= most), found));
    checks.push(equal("succeeded", stats.succeeded, counts.completed));
    checks.push(equal("failed", stats.failed, counts.backend.failed + counts.backend.timed_out));
    checks.push(equal("rate limited", stats.rate_limited, counts.backend.rate_limited));
    // What is revoked has no outcome.
    let of_chores = state.chores.leases - state.chores.neglected;
    let cancelled = counts.caller.cancelled_served + counts.cut_short + counts.claim_lost + of_chores;
    checks.push(equal("cancelled", stats.cancelled, cancelled));
    // A rule of which nothing was seen was not checked.
    let tokens = state.referee.tokens();
    let expected = scenario.tokens * counts.leases() as f64;
    if scenario.tokens > 0.0 {
        let found = format!("{tokens} tokens seen, about {expected:.0} expected");
        checks.push(Check::that("fencing", tokens > 0 || expected < SEEN, found));
    }
    checks.push(Check::equal("waits", ("begun", waits.waited), ("ended", ended(stats))));
    let timed = waits.histogram.iter().sum();
    checks.push(Check::equal("hand-offs", ("counted", waits.handed_off), ("timed", timed)));
    if state.claims.is_none() {
        let Done { updates, removals, insertions, exclusions, drains, .. } = state.chores;
        let resources = u64::from(scenario.resources);
        // A soak begins with an update of each.
        let before = if scenario.soak { resources } else { 0 };
        checks.push(equal("updated", stats.updated, before + updates));
        checks.push(equal("removed", stats.removed, removals));
        checks.push(equal("inserted", stats.inserted, resources + insertions));
        checks.push(equal("excluded", stats.excluded, exclusions));
        checks.push(equal("drained", stats.drained, drains));
        checks.push(equal("members", stats.members, members(&state.referee)));
    }
    let placed = stats.eligible + stats.reasons.total();
    checks.push(Check::equal("states", ("members", stats.members), ("in a state", placed)));
    checks.push(equal("leaving", stats.leaving, 0));
    checks.extend(attracts(scenario, state.throughput.len() as u64, counts));
    if scenario.shed || scenario.max_waiters > 0 {
        let refused = counts.scheduler.shed + counts.scheduler.queue_full;
        let own = waits.shed + waits.refused;
        checks.push(equal("refused", own, refused));
    }
}

/// Failures in a row by which the rules take a resource out, unless told otherwise.
const IN_A_ROW: u64 = 5;

/// Whether those that fail at once attract the load, where ejection is on and nothing else fails: together they may get 2 % of the calls,
/// and each time that one falls what it takes to notice: five failures in a row, and what was lent of it by then.
fn attracts(scenario: &Scenario, rounds: u64, counts: &Counts) -> Option<Check> {
    if scenario.flapping == 0.0 || !scenario.ejection || scenario.failures > 0.0 {
        return None;
    }
    let course = 2.0 * scenario.flap_every.0.as_secs_f64();
    let falls = rounds * ((scenario.duration.0.as_secs_f64() / course).ceil() as u64 + 1);
    let noticed = |one| IN_A_ROW + u64::from(scenario.limit_of(one).unwrap_or(scenario.workers));
    let noticing: u64 = worker::flapping(scenario).map(|one| falls * noticed(one)).sum();
    let (failed, calls) = (counts.backend.failed, counts.leases());
    let found = format!("{failed} of {calls} calls failed, at most 2 % of them and {noticing} may");
    Some(Check::that("flapping", failed <= calls / 50 + noticing, found))
}

/// Ends by hand what still holds resources back.
fn put_back(scheduler: &Scheduler<Asset>) {
    for key in scheduler.iter_keys().collect::<Vec<_>>() {
        // Each is a member, or was removed by nobody; what there is to end is ended.
        let _ = scheduler.readmit(&key);
        let _ = scheduler.warm(&key);
    }
}

/// Leases that are taken at once to see that all are there. Of fleets with more units every resource is had once.
pub const MOST_UNITS: u64 = 4_000_000;

/// Nothing is lost: whoever asks for the best again and again gets every unit once and no more, and of what is unlimited, or of too many units,
/// every resource, which is then taken aside. Not of a fleet of which a part `still_cools`.
fn everything_is_there<L: Lend<Asset>>(
    checks: &mut Vec<Check>,
    scenario: &Scenario,
    state: &State,
    lender: &L,
    still_cools: bool,
) {
    let referee = &state.referee;
    let there: Vec<u32> = (0..referee.lineages()).filter_map(|lineage| referee.current(lineage)).collect();
    checks.push(Check::equal("fleet", ("members", lender.len() as u64), ("expected", there.len() as u64)));
    if still_cools {
        return;
    }
    let units = |index: &u32| u64::from(referee.limit(*index).unwrap_or(1));
    let all: u64 = there.iter().map(units).sum();
    let each_once = all > MOST_UNITS;
    let expected = if each_once { there.len() as u64 } else { all };
    let (mut had, mut taken, mut aside) = (HashSet::new(), Vec::new(), Vec::new());
    // One more than there should be, so that one too many is seen.
    while taken.len() as u64 <= expected
        && let Ok(lease) = lender.acquire()
    {
        had.insert(lease.index);
        if (each_once || referee.limit(lease.index).is_none()) && lender.exclude(&lease.index) {
            aside.push(lease.index);
        }
        taken.push(lease);
    }
    for index in aside {
        lender.include(&index);
    }
    let resources = ("had", had.len() as u64);
    checks.push(Check::equal("resources", resources, ("expected", there.len() as u64)));
    let count = taken.len() as u64;
    if scenario.ejection {
        // A resource that comes back from an ejection is given few units at first.
        let found = format!("had {count}, at most {expected} may be");
        checks.push(Check::that("units", count <= expected, found));
    } else {
        checks.push(Check::equal("units", ("had", count), ("expected", expected)));
    }
    taken.into_iter().for_each(|lease| lease.finish(leasehold::Outcome::Cancelled));
}

#[cfg(test)]
mod tests {
    use leasehold::Outcome;

    use super::{
        super::{
            clock::Clock,
            drive::{at_once, idle},
            outcome::{Ending, Trouble},
            scenario::Driver,
            subject::Wish,
        },
        *,
    };

    /// A subject that nobody has used, and what its rounds would have left.
    fn state(scenario: &Scenario) -> State {
        state_of("sticky@2", scenario)
    }

    fn state_of(name: &str, scenario: &Scenario) -> State {
        idle(name, scenario).1
    }

    fn small() -> Scenario {
        Scenario { resources: 6, capacity: vec![1, 3, 0], ..Scenario::default() }
    }

    /// A request that was served and one that was not.
    fn play(state: &mut State) {
        let lease = state.subject.scheduler().unwrap().acquire().unwrap();
        let grant = state.referee.granted(*lease.key(), 1, 2);
        state.referee.returns(grant, 3);
        lease.finish(Outcome::Ok { latency: Duration::ZERO });
        state.sum.counts.add(Ending::Completed);
        state.sum.counts.add(Ending::CutWaiting);
        state.begun += 2;
    }

    fn wrong(scenario: &Scenario, state: &State) -> Vec<String> {
        let checks = settle(scenario, state, 0);
        assert!(checks.len() > 12, "{checks:?}");
        checks.into_iter().filter(|check| !check.holds).map(|check| check.name).collect()
    }

    #[test]
    fn what_balances_is_right() {
        for scenario in [small(), Scenario { ejection: true, ..small() }] {
            let mut state = state(&scenario);
            play(&mut state);
            let between = between_rounds(&scenario, &state, 0);
            assert!(between.holds && between.name == "after round 1", "{between:?}");
            assert_eq!(wrong(&scenario, &state), [""; 0]);
        }
    }

    #[test]
    fn a_request_without_an_end_is_missed() {
        let mut state = state(&small());
        play(&mut state);
        state.begun += 1;
        assert_eq!(wrong(&small(), &state), ["requests"]);
        let between = between_rounds(&small(), &state, 0);
        assert!(!between.holds && between.found == "requests that ended 2, expected 3", "{between:?}");
    }

    #[test]
    fn a_lease_that_never_comes_back_is_missed() {
        let mut state = state(&small());
        play(&mut state);
        std::mem::forget(state.subject.scheduler().unwrap().acquire_key(&1).unwrap());
        let wrong = wrong(&small(), &state);
        for name in ["lent", "in flight", "lent and given", "units", "in flight at last"] {
            assert!(wrong.iter().any(|wrong| wrong == name), "{name}: {wrong:?}");
        }
        assert!(!between_rounds(&small(), &state, 0).holds);
    }

    /// By its key it is still there, and who asks for the best does not get it.
    #[test]
    fn a_resource_that_cannot_be_had_is_missed() {
        for index in 0..6 {
            let mut state = state(&small());
            state.subject.scheduler().unwrap().exclude(&index).unwrap();
            // As if somebody had been told to.
            state.chores.exclusions = 1;
            assert_eq!(wrong(&small(), &state), ["resources", "units"], "{index}");
        }
    }

    /// What is left of the longest cooling counts, not how long one is on average.
    #[test]
    fn who_cannot_be_told_to_end_a_cooling_is_waited_for_or_left() {
        for name in ["mutex", "naive"] {
            for (rest, is_judged) in [(Duration::from_millis(100), true), (Duration::from_secs(60), false)] {
                let mut state = state_of(name, &small());
                let Ok(held) = at_once(state.subject.acquire(
                    Driver::Threads,
                    &Clock::new(),
                    Wish::Anything,
                    0,
                    Duration::ZERO,
                )) else {
                    panic!("{name}: it has a fleet")
                };
                let grant = state.referee.granted(held.index(), 1, 2);
                state.referee.returns(grant, 3);
                held.finish(Outcome::RateLimited { retry_after: rest }, Duration::ZERO);
                // The return took 20 ms; the cooling began at its end.
                state.referee.cools(grant.index, 0, rest.as_nanos() as u64, 20_000_000);
                state.sum.counts.add(Ending::Backend(Trouble::RateLimited));
                state.begun += 1;
                let checks = settle(&small(), &state, 20_000_000);
                let wrong: Vec<_> = checks.iter().filter(|check| !check.holds).collect();
                assert!(wrong.is_empty(), "{name}, {rest:?}: {wrong:?}");
                assert_eq!(
                    checks.iter().any(|check| check.name == "resources"),
                    is_judged,
                    "{name}, {rest:?}"
                );
            }
        }
    }

    /// A lease for each unit of a fleet of that size would be minutes and gigabytes.
    #[test]
    fn fleets_of_very_many_units_are_looked_at_by_resource() {
        let scenario = Scenario { capacity: vec![16_000_000], ..small() };
        for name in ["sticky@2", "mutex", "naive"] {
            let state = state_of(name, &scenario);
            let checks = settle(&scenario, &state, 0);
            let found = |name| checks.iter().find(|check| check.name == name).unwrap();
            assert!(checks.iter().all(|check| check.holds), "{name}: {checks:?}");
            assert!(found("units").found.contains("had 6"), "{name}: {:?}", found("units"));
        }
        let state = state(&scenario);
        state.subject.scheduler().unwrap().exclude(&3).unwrap();
        let checks = settle(&scenario, &state, 0);
        assert!(checks.iter().any(|check| check.name == "resources" && !check.holds), "{checks:?}");
    }

    /// Where leases should have been passed on as tokens and none was, fencing was not checked.
    #[test]
    fn fencing_that_was_not_looked_at_is_missed() {
        let played = |tokens| {
            let scenario = Scenario { tokens, ..small() };
            let mut state = state(&scenario);
            (0..100).for_each(|_| play(&mut state));
            (scenario, state)
        };
        let (scenario, state) = played(0.5);
        assert_eq!(wrong(&scenario, &state), ["fencing"]);
        let (scenario, state) = played(0.01);
        assert_eq!(wrong(&scenario, &state), [""; 0], "of a hundred it may be that none is");
        let (scenario, mut state) = played(0.5);
        let scheduler = state.subject.scheduler().unwrap();
        let lease = scheduler.acquire().unwrap();
        let grant = state.referee.granted(*lease.key(), 1, 2);
        let token = lease.into_token();
        state.referee.token(token);
        state.referee.returns(grant, 3);
        scheduler.finish(token, Outcome::Cancelled).unwrap();
        state.chores.leases = 1;
        assert_eq!(wrong(&scenario, &state), [""; 0]);
    }

    #[test]
    fn who_fails_at_once_and_attracts_the_load_is_seen() {
        let scenario = Scenario { flapping: 1.0, ejection: true, ..small() };
        let check = |scenario: &Scenario, failed, completed| {
            let mut counts = Counts { completed, ..Counts::default() };
            counts.backend.failed = failed;
            attracts(scenario, 2, &counts)
        };
        // In each of two rounds of 5 s one that flaps every second falls three times, and once more before; of two each with one unit, three
        // and no limit.
        let noticing = 2 * 4 * 2 * (6 + 8 + 5 + 64);
        let found = check(&scenario, noticing + 2_000, 98_000 - noticing).expect("it applies");
        assert!(found.holds && found.name == "flapping", "{found:?}");
        assert!(!check(&scenario, noticing + 2_001, 97_999 - noticing).expect("it applies").holds);
        for other in [
            Scenario { flapping: 0.0, ..scenario.clone() },
            Scenario { ejection: false, ..scenario.clone() },
            Scenario { failures: 0.01, ..scenario.clone() },
        ] {
            assert!(check(&other, 1_000_000, 0).is_none());
        }
    }

    /// What was done to the fleet is what the scheduler has counted of it.
    #[test]
    fn a_chore_that_was_not_done_is_missed() {
        let mut state = state(&small());
        state.chores.drains = 1;
        assert_eq!(wrong(&small(), &state), ["drained"]);
    }
}
