//! C1 to C7: what a resource may be, and who may change it.

use super::*;

#[test]
fn c01_what_is_found_by_key_is_complete() {
    // Hold, update and remove a key while it is being inserted: no bystander is touched.
    let fleet = filled(1, 1);
    race(
        ROUNDS,
        &[
            &|| fleet.insert(Entry::new(7, 9, 0)).expect("new"),
            &|| {
                let _ = fleet.exclude(&7);
                let _ = fleet.update(Entry::new(7, 8, 1));
            },
            &|| drop(fleet.remove(&7)),
        ],
        || {
            let _ = fleet.remove(&7);
            let tally = fleet.check_after_race();
            assert_eq!(tally, (1, 1), "the bystander is eligible");
        },
    );
}

/// Members and eligible resources, with nothing going on.
#[test]
fn c02_an_excluded_newcomer_is_not_lent_and_not_queued_twice() {
    let fleet = fleet(1);
    race(
        ROUNDS,
        &[&|| fleet.insert(Entry::new(1, 0, 0)).expect("new"), &|| {
            if fleet.exclude(&1).is_ok() {
                assert!(fleet.acquire().is_err(), "excluded");
                fleet.include(&1).expect("known");
            }
        }],
        || {
            let first = fleet.acquire().expect("included");
            assert!(fleet.acquire().is_err(), "one resource, one holder");
            drop(first);
            fleet.remove(&1).expect("known");
        },
    );
}

#[test]
fn c02b_a_removed_newcomer_is_no_ghost() {
    let fleet = fleet(1);
    race(ROUNDS, &[&|| fleet.insert(Entry::new(1, 0, 0)).expect("new"), &|| drop(fleet.remove(&1))], || {
        if !fleet.contains(&1) {
            assert!(fleet.acquire().is_err(), "a ghost was lent");
            assert!(fleet.peek().is_none());
        }
        let _ = fleet.remove(&1);
        assert_eq!(fleet.check_after_race(), (0, 0));
    });
}

#[test]
fn c03_a_batch_is_visible_as_a_whole() {
    let batches = 400u32;
    let fleet = fleet(4);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for batch in 0..batches {
                let keys = batch * 20..batch * 20 + 20;
                fleet.insert_batch(keys.map(|key| Entry::new(key, 0, 0)).collect()).expect("new");
            }
        });
        for batch in 0..batches {
            // Whoever sees one member, whichever it is, sees all.
            let first = batch * 20 + batch % 20;
            while !fleet.contains(&first) {
                std::hint::spin_loop();
            }
            assert!((batch * 20..batch * 20 + 20).all(|key| fleet.contains(&key)), "a part of a batch");
            assert_eq!(fleet.len() % 20, 0);
        }
    });
    let refused =
        fleet.insert_batch(vec![Entry::new(9_001, 0, 0), Entry::new(9_002, 0, 0), Entry::new(1, 0, 0)]);
    assert_eq!(refused.unwrap_err().returned.len(), 3);
    assert_eq!(fleet.check_after_race(), (u64::from(batches) * 20, u64::from(batches) * 20));
}

#[test]
fn c04_a_return_frees_its_own_lease_only() {
    let fleet = filled(1, 1);
    let first = fleet.acquire().expect("free").into_token();
    fleet.release(first).expect("out");
    let second = fleet.acquire().expect("free");
    assert!(matches!(fleet.release(first), Err(ReleaseError::Stale { .. })), "doubled");
    assert!(fleet.acquire().is_err(), "the second lease is still out");
    // Removed and inserted anew while lent: the old lease is not the new resource's.
    fleet.remove(&0).expect("known");
    fleet.insert(Entry::new(0, 0, 1)).expect("gone");
    let third = fleet.acquire().expect("new");
    drop(second);
    assert!(fleet.acquire().is_err(), "the third lease is still out");
    drop(third);
    // Another scheduler's token.
    let other = filled(1, 1);
    let foreign = other.acquire().expect("free").into_token();
    assert_eq!(fleet.release(foreign), Err(ReleaseError::Foreign));
}

#[test]
fn c04b_holds_and_leases_are_independent() {
    let clock = Arc::new(ManualClock::new());
    let fleet = Fleet::builder().shards(1).clock(Arc::clone(&clock)).build().expect("in range");
    fleet.insert(Entry::new(0, 0, 0)).expect("new");
    let lease = fleet.acquire().expect("free");
    assert_eq!(fleet.include(&0), Ok(false));
    assert!(fleet.acquire().is_err(), "including frees no lease");
    fleet.exclude(&0).expect("known");
    fleet.cool(&0, Duration::from_secs(5)).expect("known");
    drop(lease);
    let standing = |fleet: &Fleet| fleet.snapshot()[0].standing;
    assert_eq!(standing(&fleet), Standing::Excluded, "a return clears no hold");
    fleet.include(&0).expect("known");
    assert_eq!(standing(&fleet), Standing::Cooling, "including ends no cooling");
    clock.advance(Duration::from_secs(5));
    assert!(fleet.acquire().is_ok());
}

#[test]
fn c04c_a_lent_resource_can_be_excluded() {
    let fleet = filled(1, 1);
    let lease = fleet.acquire().expect("free");
    assert_eq!(fleet.exclude(&0), Ok(true));
    drop(lease);
    assert!(fleet.acquire().is_err(), "it is not lent the moment it comes back");
}

/// Panics in `priority` when told to.
struct Moody(u32, Arc<AtomicBool>);

impl Resource for Moody {
    type Key = u32;
    type Priority = u32;

    fn key(&self) -> u32 {
        self.0
    }

    fn priority(&self, in_flight: u32) -> u32 {
        if self.1.load(SeqCst) {
            std::panic::resume_unwind(Box::new("moody"));
        }
        in_flight
    }

    fn capacity(&self) -> Capacity {
        Capacity::Limited(2)
    }
}

#[test]
fn c05_a_panic_leaves_no_lock_and_no_wrong_count() {
    // The thorough version is `verification/faults`.
    let moody = Arc::new(AtomicBool::new(false));
    let fleet = Scheduler::<Moody>::builder().shards(1).build().expect("in range");
    fleet.insert(Moody(0, Arc::clone(&moody))).expect("new");
    let lease = fleet.acquire().expect("free");
    moody.store(true, SeqCst);
    assert!(catch_unwind(AssertUnwindSafe(|| fleet.acquire().map(drop))).is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| fleet.insert(Moody(1, Arc::clone(&moody))).is_ok())).is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| drop(lease))).is_err());
    moody.store(false, SeqCst);
    let stats = fleet.stats();
    assert_eq!((stats.members, stats.eligible, stats.in_flight), (1, 1, 0));
    assert_eq!(fleet.acquire_many(2).expect("all free").len(), 2);
}

#[test]
fn c06_cooling_begins_in_the_return_itself() {
    let clock = Arc::new(ManualClock::new());
    let fleet = Fleet::builder().shards(1).clock(Arc::clone(&clock)).build().expect("in range");
    fleet.insert(Entry::new(0, 0, 0)).expect("new");
    let minute = Duration::from_secs(60);
    // (a), (b), (c): no window, nothing skipped, no event to drop.
    fleet.acquire().expect("free").finish(Outcome::RateLimited { retry_after: minute });
    assert!(fleet.acquire().is_err());
    // (d): ended early and lent again, the old deadline frees nothing.
    assert_eq!(fleet.warm(&0), Ok(true));
    let lease = fleet.acquire().expect("warm");
    clock.advance(2 * minute);
    assert!(fleet.acquire().is_err(), "lent");
    // (e): a second cooling takes the later deadline, also while lent.
    assert_eq!(fleet.cool(&0, 2 * minute), Ok(true));
    lease.release_after(minute);
    clock.advance(minute);
    assert!(fleet.acquire().is_err(), "extending never shortens");
    clock.advance(minute);
    assert!(fleet.acquire().is_ok());
    // (g): a new resource under the key does not inherit the deadline, nor end by it.
    fleet.cool(&0, minute).expect("known");
    fleet.remove(&0).expect("known");
    fleet.insert(Entry::new(0, 0, 1)).expect("gone");
    assert!(fleet.acquire().is_ok(), "the newcomer does not cool");
    fleet.exclude(&0).expect("known");
    clock.advance(2 * minute);
    assert!(fleet.acquire().is_err(), "the old deadline clears nothing of the newcomer");
}

#[test]
fn c06_a_lost_event_is_no_lost_cooling() {
    // (c): there the observer of a return lets the resource cool, and returns that find the queue of events full are not told. Here nobody
    // takes events out, and the only observer hangs: nearly all are lost, and everything cools.
    let clock = Arc::new(ManualClock::new());
    let (let_go, stuck) = std::sync::mpsc::channel::<()>();
    let observer = move |_: &leasehold::Event<u32>| {
        let _ = stuck.recv();
    };
    let builder = Fleet::builder().shards(1).clock(clock.clone()).event_capacity(1).observer(observer);
    let fleet = builder.build().expect("in range");
    // Dropped before the fleet, whatever happens: that waits for its observer.
    let _let_go = let_go;
    (0..64).for_each(|key| fleet.insert(Entry::new(key, 0, 0)).expect("new"));
    let minute = Duration::from_secs(60);
    for cooled in 1..=64 {
        let lease = fleet.acquire().expect("free");
        if cooled % 2 == 0 {
            lease.release_after(minute);
        } else {
            lease.finish(Outcome::RateLimited { retry_after: minute });
        }
        assert_eq!(fleet.stats().reasons.cooling, cooled, "each in its return");
    }
    let stats = fleet.stats();
    assert!(stats.events_dropped + stats.events_missed >= 64, "events were lost: {stats:?}");
    let Err(AcquireError::NoneEligible(none)) = fleet.acquire() else { panic!("all are cooling") };
    assert_eq!(none.retry_after, Some(minute));
    clock.advance(minute);
    assert!((0..64).all(|_| fleet.acquire().map(leasehold::Lease::into_token).is_ok()), "all are back");
}

#[test]
fn c07_of_concurrent_removals_one_succeeds_and_a_new_resource_stays() {
    let fleet = fleet(2);
    let removed = AtomicU32::new(0);
    let remove = || {
        if fleet.remove(&1).is_ok() {
            removed.fetch_add(1, SeqCst);
        }
    };
    let again = AtomicBool::new(false);
    fleet.insert(Entry::new(1, 0, 0)).expect("new");
    race(
        ROUNDS,
        &[&remove, &|| {
            remove();
            again.store(fleet.insert(Entry::new(1, 0, 1)).is_ok(), SeqCst);
        }],
        || {
            let members = u64::from(fleet.contains(&1));
            // One resource was in, one came at most: every one is either there or was removed once.
            let came = 1 + u32::from(again.load(SeqCst));
            assert_eq!(removed.swap(0, SeqCst) + members as u32, came);
            assert_eq!(fleet.check_after_race(), (members, members));
            if members == 0 {
                fleet.insert(Entry::new(1, 0, 0)).expect("gone");
            }
        },
    );
    assert_eq!(fleet.remove(&1).map(|removed| removed.in_flight), Ok(0));
    assert_eq!(fleet.remove(&1), Err(KeyError::NotFound { key: 1 }));
}
