//! The thread that looks after the time for all who wait, by story: no timer, nobody ticks, and no time goes by, so what is due is due at
//! once. A timekeeper that is not told, or leaves without an heir, is a deadlock.

use std::time::Duration;

use leasehold::{
    Fairness, Overdue, Timestamp,
    internals::sync::{Arc, thread},
};
use shuttle::rand::{Rng, thread_rng};

use crate::{
    common::scenario,
    driver::{Fleet, Setup},
    tasks::{spawn, waits_have_ended},
};

const MEMBERS: u8 = 2;
const LIMIT: Duration = Duration::from_nanos(10);

fn fleet(revokes: bool) -> Arc<Fleet> {
    let setup = Setup { shards: 2, units: 1, by_load: false, room: 0, rules: false, period: 1 };
    let fairness = if thread_rng().r#gen() { Fairness::Strict } else { Fairness::Throughput };
    let fleet = Arc::new(Fleet::with(setup, |builder| {
        let builder = builder.fairness(fairness);
        if revokes { builder.max_hold(LIMIT).overdue(Overdue::Revoke) } else { builder }
    }));
    for key in 0..MEMBERS {
        fleet.scheduler.insert(fleet.resource(key)).expect("new");
    }
    fleet
}

fn at_rest(fleet: Arc<Fleet>) {
    waits_have_ended(&fleet);
    assert_eq!(fleet.scheduler.check_invariants().in_flight, 0);
    let all = fleet.scheduler.acquire_many(usize::from(MEMBERS)).expect("no unit is lost");
    assert!(fleet.scheduler.acquire().is_err(), "none is doubled");
    drop(all);
    let Ok(fleet) = Arc::try_unwrap(fleet) else { panic!("all threads are gone") };
    fleet.finish();
}

/// Threads wait, for anything and by name; what they had cools when it comes back, and is due at once.
#[test]
fn threads_look_after_what_cools() {
    scenario("threads_look_after_what_cools", || {
        let fleet = fleet(false);
        let threads: Vec<_> = (0..4)
            .map(|_| {
                spawn(&fleet, |fleet, random| {
                    for _ in 0..2 {
                        let request = fleet.scheduler.request().class(random.below(2) as u8);
                        let key = random.below(u32::from(MEMBERS)) as u8;
                        let request = if random.below(2) == 0 { request } else { request.key(&key) };
                        let lease = request.wait().expect("in the end");
                        thread::yield_now();
                        if random.below(3) > 0 {
                            fleet.scheduler.cool(lease.key(), Duration::ZERO).expect("a member");
                        }
                        drop(lease);
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("no panic");
        }
        at_rest(fleet);
    });
}

/// Threads wait, and keep what they get, but for a renewal to this very moment: then it is overdue. In the end somebody waits for a drain.
#[test]
fn threads_look_after_what_is_overdue() {
    scenario("threads_look_after_what_is_overdue", || {
        let fleet = fleet(true);
        let threads: Vec<_> = (0..3)
            .map(|_| {
                spawn(&fleet, |fleet, random| {
                    let mut kept = Vec::new();
                    for _ in 0..2 {
                        let mut lease = fleet.scheduler.request().wait_owned().expect("in the end");
                        thread::yield_now();
                        if random.below(3) == 0 {
                            drop(lease);
                            continue;
                        }
                        // It may be taken back in the midst of it.
                        let _ = lease.renew(Duration::ZERO);
                        kept.push(lease);
                    }
                    kept
                })
            })
            .collect();
        let kept: Vec<_> = threads.into_iter().map(|thread| thread.join().expect("no panic")).collect();
        let _ = fleet.scheduler.reap_overdue();
        assert!(kept.iter().flatten().all(|lease| lease.is_revoked()), "nobody has lost it to another one");
        let mut last = fleet.scheduler.acquire_owned().expect("free");
        let drainer = spawn(&fleet, |fleet, _| fleet.scheduler.drain_all(Timestamp::MAX).is_drained());
        let _ = last.renew(Duration::ZERO);
        assert!(drainer.join().expect("no panic"));
        drop((kept, last));
        let _ = fleet.scheduler.undrain_all();
        at_rest(fleet);
    });
}
