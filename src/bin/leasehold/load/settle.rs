//! After the last round: every count must balance, and everything must be there.

use std::{collections::HashSet, thread, time::Duration};

use leasehold::{
    Scheduler, Stats,
    baseline::{Lend, Lent},
};

use super::{
    asset::Asset,
    drive::State,
    result::Check,
    scenario::{Distribution, Scenario},
    subject::Subject,
};

/// Coolings that go on for longer than this are ended by hand.
const PATIENCE: Duration = Duration::from_secs(3);

/// What must be so when nobody holds or waits any more.
pub fn settle(scenario: &Scenario, state: &State, now: u64) -> Vec<Check> {
    let counts = &state.sum.counts;
    let given = state.referee.leases();
    let mut checks = vec![
        Check::equal("requests", ("begun", state.begun), ("ended", counts.total())),
        Check::equal("leases", ("given", given), ("ended", counts.leases() + state.chores.leases)),
        Check::equal("leases out", ("seen", state.referee.in_flight()), ("expected", 0)),
    ];
    let left = Duration::from_nanos(state.referee.cool_until().saturating_sub(now));
    if state.subject.fleet().is_some() {
        thread::sleep(left.min(PATIENCE));
    }
    match &*state.subject {
        Subject::Leasehold(scheduler) => {
            let stats = scheduler.stats();
            of_the_scheduler(&mut checks, scenario, state, &stats);
            put_back(scheduler);
            // Of a fleet that is shared only the server knows where everything is.
            if state.claims.is_none() {
                everything_is_there(&mut checks, scenario, state, &**scheduler);
            }
            let after = scheduler.stats();
            checks.push(Check::equal("in flight at last", ("seen", after.in_flight), ("expected", 0)));
        }
        Subject::Mutex(lender) => everything_is_there(&mut checks, scenario, state, lender),
        Subject::Naive(lender) => everything_is_there(&mut checks, scenario, state, lender),
        #[cfg(feature = "peers")]
        Subject::Deadpool(pool) => checks.push(Check::that("pool", pool.is_whole(), "all came back".into())),
        #[cfg(feature = "peers")]
        Subject::Bb8(pool) => checks.push(Check::that("pool", pool.is_whole(), "all came back".into())),
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
    // has its lease already: of both the scheduler knows, and no caller. Where nobody has waited there is neither,
    // unless several were asked for at once: of these some may have been taken, and returned because there were not enough.
    let waits = &stats.waits;
    let more = stats.lent.checked_sub(given);
    let holds = more.is_some_and(|more| more == 0 || waits.waited > 0 || state.chores.several > 0);
    checks.push(Check::that("lent and given", holds, format!("scheduler {}, harness {given}", stats.lent)));
    checks.push(equal("succeeded", stats.succeeded, counts.completed));
    checks.push(equal("failed", stats.failed, counts.backend.failed + counts.backend.timed_out));
    checks.push(equal("rate limited", stats.rate_limited, counts.backend.rate_limited));
    let cancelled =
        counts.caller.cancelled_served + counts.cut_short + counts.claim_lost + state.chores.leases;
    checks.push(equal("cancelled", stats.cancelled, cancelled));
    let ended = waits.handed_off + waits.timed_out + waits.cancelled + waits.failed + waits.closed;
    checks.push(Check::equal("waits", ("begun", waits.waited), ("ended", ended)));
    let timed = waits.histogram.iter().sum();
    checks.push(Check::equal("hand-offs", ("counted", waits.handed_off), ("timed", timed)));
    if state.claims.is_none() {
        let members =
            (0..state.referee.lineages()).filter(|&lineage| state.referee.current(lineage).is_some());
        checks.push(equal("members", stats.members, members.count() as u64));
    }
    let placed = stats.eligible + stats.reasons.total();
    checks.push(Check::equal("states", ("members", stats.members), ("in a state", placed)));
    checks.push(equal("leaving", stats.leaving, 0));
    if scenario.shed || scenario.max_waiters > 0 {
        let refused = counts.scheduler.shed + counts.scheduler.queue_full;
        let own = waits.shed + waits.refused;
        checks.push(equal("refused", own, refused));
    }
}

/// Ends by hand what still holds resources back.
fn put_back(scheduler: &Scheduler<Asset>) {
    for key in scheduler.iter_keys().collect::<Vec<_>>() {
        // Each is a member, or was removed by nobody; what there is to end is ended.
        let _ = scheduler.readmit(&key);
        let _ = scheduler.warm(&key);
    }
}

/// Nothing is lost: every unit can be had once and no more, or, where that has no end, every resource.
fn everything_is_there<L: Lend<Asset>>(
    checks: &mut Vec<Check>,
    scenario: &Scenario,
    state: &State,
    lender: &L,
) {
    let referee = &state.referee;
    let there: Vec<u32> = (0..referee.lineages()).filter_map(|lineage| referee.current(lineage)).collect();
    checks.push(Check::equal("fleet", ("members", lender.len() as u64), ("expected", there.len() as u64)));
    let rests = scenario.rate_limits > 0.0 && scenario.retry_after != Distribution::ZERO;
    let still_cools = state.subject.scheduler().is_none()
        && (rests || scenario.cooldown.0 > Duration::ZERO)
        && scenario.retry_after.mean() + scenario.cooldown.0 > PATIENCE;
    if still_cools {
        // Only the scheduler can be told to end a cooling.
        return;
    }
    // A resource that comes back from an ejection is given few units at first.
    if let Some(units) = scenario.units()
        && !scenario.ejection
    {
        let mut taken = Vec::new();
        // One more than there should be, so that one too many is seen.
        while taken.len() as u64 <= units
            && let Ok(lease) = lender.acquire()
        {
            taken.push(lease);
        }
        checks.push(Check::equal("units", ("had", taken.len() as u64), ("expected", units)));
        taken.into_iter().for_each(|lease| lease.finish(leasehold::Outcome::Cancelled));
        return;
    }
    let had: HashSet<u32> =
        there.iter().copied().filter(|index| lender.acquire_key(index).is_some()).collect();
    checks.push(Check::equal("resources", ("had", had.len() as u64), ("expected", there.len() as u64)));
}
