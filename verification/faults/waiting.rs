//! The k-th call of each callback panics, for every k, while others wait: units are handed on by whoever returns one, inserts, updates, lets
//! something back or keeps time, and that one's thread asks the filters, and ranks what is lent, of those who wait. Failures eject and let cool.

use std::{
    collections::BTreeSet,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use leasehold::{
    Backoff, Capacity, Cooldown, Ejection, ManualClock, Outcome, OwnedLease, Ties, WaitError, WaitStats,
};

use super::{
    contain, is_left_to_the_reclaimer,
    model::{Config, Item, Key, Ledger, Plan, Probe, Scheduler, Site, Slope, Spec, probe, settle},
    quiet, tidy_up,
};

const LONG: Duration = Duration::from_nanos(100);
const MEMBERS: u8 = 4;

type Leases = Vec<OwnedLease<Item>>;
type Waiting = Pin<Box<dyn Future<Output = Result<Leases, WaitError>>>>;

struct Story {
    fleet: Scheduler,
    clock: Arc<ManualClock>,
    ledger: Arc<Ledger>,
    leases: Leases,
    /// Those who wait.
    waiting: Vec<Waiting>,
}

/// One after another; each may panic once, and what comes after copes with what it finds.
const STEPS: &[fn(&mut Story)] = &[
    // All units.
    |story| story.leases.extend(story.fleet.acquire_many_owned(6).unwrap_or_default()),
    |story| {
        let future = story.fleet.acquire_async_owned();
        story.waits(async move { Ok(vec![future.await?]) });
    },
    |story| {
        let future = story.fleet.acquire_key_async_owned(&Key(1));
        story.waits(async move { Ok(vec![future.await?]) });
    },
    |story| {
        let future = story.fleet.acquire_where_async_owned(even);
        story.waits(async move { Ok(vec![future.await?]) });
    },
    |story| {
        let future = story.fleet.acquire_by_affinity_async_owned(&3);
        story.waits(async move { Ok(vec![future.await?]) });
    },
    |story| {
        let future = story.fleet.acquire_many_async_owned(2);
        story.waits(future);
    },
    // Another one that is picky, behind all of those.
    |story| {
        let future = story.fleet.acquire_where_async_owned(even);
        story.waits(async move { Ok(vec![future.await?]) });
    },
    |story| drop(story.lease_of(1)),
    |story| drop(story.lease_of(2)),
    |story| story.finish(0, Outcome::Ok { latency: LONG }),
    // Ejected, and not handed on.
    |story| story.finish(2, Outcome::Failed),
    |story| story.finish(3, Outcome::RateLimited { retry_after: LONG / 4 }),
    |story| {
        let item = story.item(10);
        let _ = story.fleet.insert(item);
    },
    |story| {
        let items = [11, 12].map(|key| story.item(key)).into();
        let _ = story.fleet.insert_batch(items);
    },
    |story| {
        for key in [0, 1] {
            let future = story.fleet.acquire_key_async_owned(&Key(key));
            story.waits(async move { Ok(vec![future.await?]) });
        }
        let future = story.fleet.acquire_where_async_owned(even);
        story.waits(async move { Ok(vec![future.await?]) });
    },
    |story| {
        let item = story.item(0);
        let _ = story.fleet.update(item);
    },
    |story| {
        let ledger = Arc::clone(&story.ledger);
        let _ = story.fleet.update_with(&Key(0), |old| {
            probe(Site::Change);
            Item::new(Spec { capacity: Capacity::Limited(4), ..old.spec }, 9, &ledger)
        });
    },
    |story| {
        let _ = story.fleet.exclude(&Key(3));
        story.finish(0, Outcome::Ok { latency: 2 * LONG });
        let _ = story.fleet.include(&Key(3));
    },
    // What the rules have ejected comes back, one unit first, to whoever waits.
    |story| {
        story.clock.advance(LONG);
        let _ = story.fleet.tick();
    },
    |story| story.finish(2, Outcome::Ok { latency: LONG }),
    |story| {
        story.clock.advance(LONG);
        let _ = story.fleet.tick();
    },
    // Its name leaves.
    |story| drop(story.fleet.remove(&Key(1))),
    // Nobody takes what was meant for them.
    |story| story.waiting.truncate(1),
    // In their own call, and out of time at once.
    |story| story.leases.extend(story.fleet.request().timeout(Duration::ZERO).wait_owned().ok()),
    |story| {
        let request = story.fleet.request().matching(even);
        story.leases.extend(request.timeout(Duration::ZERO).wait_owned().ok());
    },
    |story| story.leases.truncate(2),
    |story| {
        let future = story.fleet.acquire_many_async_owned(40);
        story.waits(future);
    },
    |story| story.finish(0, Outcome::Failed),
    |story| drop(story.fleet.evict_worst()),
    |story| {
        let _ = story.fleet.close();
    },
];

/// What the picky ones take.
fn even(item: &Item) -> bool {
    probe(Site::Filter);
    item.spec.key.is_multiple_of(2)
}

impl Story {
    /// Comes into the queue.
    fn waits(&mut self, future: impl Future<Output = Result<Leases, WaitError>> + 'static) {
        self.waiting.push(Box::pin(future));
    }

    /// Everybody who waits looks whether it has been served.
    fn poll(&mut self) {
        let mut context = Context::from_waker(Waker::noop());
        for mut future in std::mem::take(&mut self.waiting) {
            // A panic ends the one that it is told to.
            match future.as_mut().poll(&mut context) {
                Poll::Ready(Ok(leases)) => self.leases.extend(leases),
                Poll::Ready(Err(_)) => {}
                Poll::Pending => self.waiting.push(future),
            }
        }
    }

    fn item(&self, key: u8) -> Item {
        Item::new(spec(key), 1, &self.ledger)
    }

    /// A lease of that resource, or of any.
    fn lease_of(&mut self, key: u8) -> Option<OwnedLease<Item>> {
        let at = self.leases.iter().position(|lease| lease.spec.key == key);
        at.or((!self.leases.is_empty()).then_some(0)).map(|at| self.leases.remove(at))
    }

    fn finish(&mut self, key: u8, outcome: Outcome) {
        if let Some(lease) = self.lease_of(key) {
            lease.finish(outcome);
        }
    }
}

fn units(key: u8) -> usize {
    if key.is_multiple_of(2) { 2 } else { 1 }
}

fn spec(key: u8) -> Spec {
    let capacity = if units(key) > 1 { Capacity::Limited(2) } else { Capacity::Exclusive };
    Spec { key, base: u64::from(key), slope: Slope::Rising, capacity, home: None }
}

/// Answers how often the site was called, and whether the planted panic fired.
fn run(ranks: bool, site: Site, fail_at: u64) -> (u64, bool) {
    let (clock, ledger) = (Arc::new(ManualClock::new()), Arc::new(Ledger::default()));
    let config = Config {
        shards: 2,
        plan: Plan::Custom { shard: 0 },
        ties: Ties::LeastRecent,
        max: None,
        hash_mask: u64::MAX,
        expected: 0,
        seed: 1,
        initial: 0,
    };
    let rules = Ejection::default().consecutive_failures(1).max_share(50).jitter(0).base(LONG);
    let rules = rules.without_place(Backoff::Fixed(LONG / 3)).ramp(LONG);
    let builder = config.builder(&clock).ejection(rules).cooldown(Cooldown::default()).event_capacity(256);
    let fleet = builder.rank_by_outcomes(ranks).build().expect("in range");
    for key in 0..MEMBERS {
        fleet.insert(Item::new(spec(key), 0, &ledger)).expect("new");
    }
    let mut story = Story { fleet, clock, ledger, leases: Vec::new(), waiting: Vec::new() };
    let (mut calls, mut fired) = (0, false);
    for (i, step) in STEPS.iter().enumerate() {
        Probe::arm(site, fail_at.saturating_sub(calls));
        let panicked = contain(|| {
            step(&mut story);
            story.poll();
            tidy_up();
        });
        fired |= Probe::fired();
        calls += Probe::disarm();
        assert!(fail_at > 0 || !panicked);
        // One that waits may be told now what has happened to its filter. Whoever was not asked by that panic is still there.
        while contain(|| story.poll()) {}
        let tally = story.fleet.check_invariants();
        assert!(tally.in_flight >= story.leases.len() as u64, "step {i}: {tally:?}");
    }
    assert!(story.waiting.is_empty(), "the closing has told everybody");
    let Story { fleet, ledger, leases, .. } = story;
    drop(leases);
    // Nothing is lost: every lock is free, no unit is with one that has gone, nobody stands in the queue.
    let tally = fleet.check_invariants();
    assert_eq!(tally.in_flight, 0, "call {fail_at} of {site:?}");
    let WaitStats { waited, handed_off, timed_out, cancelled, failed, closed, .. } = fleet.stats().waits;
    assert_eq!(waited, handed_off + timed_out + cancelled + failed + closed, "every wait has ended once");
    let leaked = i64::from(fail_at != 0 && matches!(site, Site::DropKey | Site::DropItem));
    drop(fleet);
    if leaked == 0 || ledger.alive() > leaked {
        settle(&ledger, 0..=leaked);
    }
    (calls, fired)
}

#[test]
fn every_callback_may_panic_while_others_wait() {
    quiet();
    let (mut faults, mut called) = (0, BTreeSet::new());
    for ranks in [false, true] {
        for site in Site::ALL {
            let (calls, _) = run(ranks, site, 0);
            if calls > 0 {
                called.insert(site);
            }
            let met = (1..=calls).filter(|&k| run(ranks, site, k).1).count() as u64;
            assert!(
                met == calls || is_left_to_the_reclaimer(site) && met > 0,
                "{site:?}: {met} of {calls} calls"
            );
            faults += met;
        }
    }
    assert_eq!(called, BTreeSet::from(Site::ALL), "every callback was called");
    println!("{faults} planted panics");
    assert!(faults > 500, "{faults} planted panics");
}
