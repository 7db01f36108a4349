//! The k-th call of each callback panics, for every k, while leases are recorded, listed, renewed, taken back and drained.

use std::{
    mem,
    pin::pin,
    sync::Arc,
    task::{Context, Waker},
    time::Duration,
};

use leasehold::{Capacity, ManualClock, Outcome, Overdue, OwnedLease, Ties};

use super::{
    contain, is_left_to_the_reclaimer,
    model::{Config, Item, Key, Ledger, Plan, Probe, Scheduler, Site, Slope, Spec, probe, settle},
    quiet, tidy_up,
};

const LIMIT: Duration = Duration::from_nanos(100);
const MEMBERS: u8 = 4;

struct Story {
    fleet: Scheduler,
    clock: Arc<ManualClock>,
    leases: Vec<OwnedLease<Item>>,
}

/// One after another; each may panic once, and what comes after copes with what it finds.
const STEPS: &[fn(&mut Story)] = &[
    |story| story.lend(|fleet| fleet.acquire_owned().ok()),
    |story| story.lend(|fleet| fleet.acquire_key_owned(&Key(0)).ok()),
    |story| {
        let filter = |_: &Item| {
            probe(Site::Filter);
            true
        };
        story.lend(|fleet| fleet.acquire_where_owned(filter).ok());
    },
    |story| {
        if let Ok(many) = story.fleet.acquire_many_owned(3) {
            story.leases.extend(many);
        }
    },
    |story| assert!(story.fleet.leases().len() <= 6),
    |story| {
        story.clock.advance(LIMIT / 2);
        if let Some(lease) = story.leases.first_mut() {
            let _ = lease.renew(2 * LIMIT);
        }
    },
    |story| story.clock.advance(LIMIT / 2),
    |story| {
        let _ = story.fleet.overdue();
    },
    |story| story.lend(|fleet| fleet.acquire_owned().ok()),
    |story| {
        story.clock.advance(LIMIT);
        let _ = story.fleet.reap_overdue();
    },
    |story| {
        if let Some(lease) = story.leases.pop() {
            let _ = lease.try_finish(Outcome::RateLimited { retry_after: LIMIT });
        }
    },
    |story| story.leases.truncate(1),
    |story| story.clock.advance(2 * LIMIT),
    // Whatever can be had, until the overdue ones are taken back too.
    |story| {
        for _ in 0..10 {
            story.lend(|fleet| fleet.acquire_owned().ok());
        }
    },
    // In time, so that it is asked how long it should rest.
    |story| {
        if let Some(lease) = story.leases.pop() {
            let _ = lease.try_finish(Outcome::Failed);
        }
    },
    |story| {
        let infos = story.fleet.leases();
        if let Some(info) = infos.first() {
            let _ = story.fleet.revoke(info.token);
        }
    },
    |story| {
        let mut drain = pin!(story.fleet.drain_async(&Key(1)).expect("a member"));
        let mut context = Context::from_waker(Waker::noop());
        let _ = drain.as_mut().poll(&mut context);
        let _ = drain.report();
        story.leases.clear();
        let _ = drain.as_mut().poll(&mut context);
    },
    |story| {
        story.lend(|fleet| fleet.acquire_owned().ok());
        let _ = story.fleet.undrain(&Key(1));
        let drain = story.fleet.drain_all_async();
        let _ = story.fleet.undrain(&Key(0));
        let _ = drain.report();
    },
    |story| {
        let item = Item::new(spec(77), 1, &Arc::new(Ledger::default()));
        let _ = story.fleet.insert(item);
    },
    |story| assert!(story.fleet.drain_deadline(&Key(2), leasehold::Timestamp::ZERO).is_ok()),
    |story| {
        let _ = story.fleet.undrain_all();
    },
    // It is nobody's, and freed.
    |story| drop(story.fleet.remove(&Key(77))),
    |story| {
        let _ = story.fleet.tick();
    },
    |story| {
        if let Some(lease) = story.leases.pop() {
            mem::forget(lease);
        }
    },
];

use std::future::Future;

impl Story {
    fn lend(&mut self, f: impl FnOnce(&Scheduler) -> Option<OwnedLease<Item>>) {
        self.leases.extend(f(&self.fleet));
    }
}

fn spec(key: u8) -> Spec {
    let capacity = if key.is_multiple_of(2) { Capacity::Limited(2) } else { Capacity::Exclusive };
    Spec { key, base: u64::from(key), slope: Slope::Rising, capacity, home: None }
}

/// Answers how often the site was called, and whether the planted panic fired.
fn run(overdue: Overdue, site: Site, fail_at: u64) -> (u64, bool) {
    let (clock, ledger) = (Arc::new(ManualClock::new()), Arc::new(Ledger::default()));
    let config = Config {
        shards: 2,
        plan: Plan::Exact,
        ties: Ties::LeastRecent,
        max: None,
        hash_mask: u64::MAX,
        expected: 0,
        seed: 1,
        initial: 0,
    };
    let fleet =
        config.builder(&clock).max_hold(LIMIT).overdue(overdue).event_capacity(64).build().expect("in range");
    for key in 0..MEMBERS {
        fleet.insert(Item::new(spec(key), 0, &ledger)).expect("new");
    }
    let mut story = Story { fleet, clock, leases: Vec::new() };
    let (mut calls, mut fired) = (0, false);
    for step in STEPS {
        Probe::arm(site, fail_at.saturating_sub(calls));
        let panicked = contain(|| {
            step(&mut story);
            tidy_up();
        });
        fired |= Probe::fired();
        calls += Probe::disarm();
        assert!(fail_at > 0 || !panicked);
        let tally = story.fleet.check_invariants();
        let out = story.fleet.leases().len() as u64;
        // A forgotten lease is recorded as well.
        assert!(
            tally.in_flight == out || overdue == Overdue::Revoke && out <= tally.in_flight,
            "{tally:?}, {out} listed"
        );
    }
    // Every lock is free, and everything that is out can be taken back.
    for info in story.fleet.leases() {
        story.fleet.revoke(info.token).expect("out");
    }
    assert_eq!(story.fleet.check_invariants().in_flight, 0, "at {fail_at} of {site:?}");
    story.leases.clear();
    assert!(story.fleet.drain_all_async().report().is_drained());
    let _ = story.fleet.undrain_all();
    for key in 0..MEMBERS {
        let _ = story.fleet.warm(&Key(key));
    }
    assert_eq!(story.fleet.stats().reasons.total(), 0, "nothing is held, nothing is out");
    drop(story.fleet);
    if matches!(site, Site::DropKey | Site::DropItem) && fail_at > 0 {
        return (calls, fired);
    }
    // The forgotten guard keeps an `Arc` of the inside: it, and what is in it, leaks.
    let forgotten = i64::from(MEMBERS);
    if ledger.alive() > forgotten {
        settle(&ledger, 0..=forgotten);
    }
    (calls, fired)
}

#[test]
fn every_callback_may_panic_while_leases_are_taken_back() {
    quiet();
    let mut faults = 0;
    for overdue in [Overdue::Report, Overdue::Revoke] {
        let mut never = Vec::new();
        for site in Site::ALL {
            let (calls, _) = run(overdue, site, 0);
            let met = (1..=calls).filter(|&k| run(overdue, site, k).1).count() as u64;
            assert!(met == calls || is_left_to_the_reclaimer(site), "{site:?}: {met} of {calls} calls");
            faults += met;
            if met == 0 {
                never.push(site);
            }
        }
        // This fleet has no strategy of the user's, replaces nothing in terms of what it was, and remembers no outcomes.
        assert_eq!(never, [Site::PrioritySeen, Site::Select, Site::Change], "never called");
    }
    println!("{faults} planted panics");
    assert!(faults > 100, "{faults} planted panics");
}

#[test]
fn a_forgotten_lease_with_a_limit_leaks_nothing() {
    let (clock, ledger) = (Arc::new(ManualClock::new()), Arc::new(Ledger::default()));
    let config = Config {
        shards: 2,
        plan: Plan::Exact,
        ties: Ties::LeastRecent,
        max: None,
        hash_mask: u64::MAX,
        expected: 0,
        seed: 1,
        initial: 0,
    };
    let fleet = config.builder(&clock).max_hold(LIMIT).overdue(Overdue::Revoke).build().expect("in range");
    fleet.insert(Item::new(spec(0), 0, &ledger)).expect("new");
    // Two guards of a value that is superseded, one of them taken back before that, and one of a removed resource.
    mem::forget(fleet.acquire().expect("free"));
    clock.advance(LIMIT);
    assert_eq!(fleet.reap_overdue(), 1);
    mem::forget(fleet.acquire().expect("free"));
    fleet.update(Item::new(spec(0), 1, &ledger)).expect("a member");
    mem::forget(fleet.acquire().expect("free"));
    fleet.remove(&Key(0)).expect("a member");
    assert_eq!(fleet.check_invariants().leaving, 1);
    drop(fleet);
    settle(&ledger, 0..=0);
}
