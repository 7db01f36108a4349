//! C16 to C30: the scheduler as a whole: concurrency of keyed operations, counts, events, the end.

use super::*;

#[test]
fn c16_keyed_operations_go_on_beside_a_stalled_one() {
    // One thread stays in the middle of a lookup, inside the key's own `Eq`: it stops nobody.
    #[derive(Debug)]
    struct Gate {
        reached: AtomicBool,
        open: AtomicBool,
    }
    #[derive(Clone, Debug)]
    struct Slow(u32, Arc<Gate>);
    impl Hash for Slow {
        fn hash<H: Hasher>(&self, state: &mut H) {
            self.0.hash(state);
        }
    }
    impl PartialEq for Slow {
        fn eq(&self, other: &Self) -> bool {
            if std::thread::current().name() == Some("stalled") {
                self.1.reached.store(true, SeqCst);
                while !self.1.open.load(SeqCst) {
                    std::thread::sleep(Duration::from_micros(50));
                }
            }
            self.0 == other.0
        }
    }
    impl Eq for Slow {}
    let gate = Arc::new(Gate { reached: AtomicBool::new(false), open: AtomicBool::new(false) });
    let fleet = Scheduler::<Entry<Slow, u32, ()>>::builder().shards(2).build().expect("in range");
    let key = |number| Slow(number, Arc::clone(&gate));
    fleet.insert(Entry::new(key(0), 0, ())).expect("new");
    std::thread::scope(|scope| {
        let stalled = std::thread::Builder::new().name("stalled".into());
        let found = stalled.spawn_scoped(scope, || fleet.get(&key(0)).is_some()).expect("a thread");
        while !gate.reached.load(SeqCst) {
            std::thread::yield_now();
        }
        for number in 1..200 {
            fleet.insert(Entry::new(key(number), 0, ())).expect("new");
            fleet.update(Entry::new(key(0), number, ())).expect("known");
            drop(fleet.acquire_key(&key(0)).expect("free"));
            fleet.remove(&key(number)).expect("known");
        }
        gate.open.store(true, SeqCst);
        assert!(found.join().expect("no panic"));
    });
}

#[test]
fn c17_no_update_is_lost() {
    let fleet = filled(1, 1);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    fleet.update_with(&0, |old| Entry { value: old.value + 1, ..*old }).expect("known");
                }
            });
        }
    });
    assert_eq!(fleet.get(&0).expect("known").value, u64::from(4 * ROUNDS));
}

/// The priority is a number that the application writes whenever it likes, also while the resource is queued and compared.
#[test]
fn c17_priorities_that_change_under_the_queue_break_no_order() {
    struct Loaded(u32, Arc<AtomicU32>);
    impl Resource for Loaded {
        type Key = u32;
        type Priority = u32;
        fn key(&self) -> u32 {
            self.0
        }
        fn priority(&self, _: u32) -> u32 {
            self.1.load(SeqCst)
        }
    }
    let fleet = Scheduler::<Loaded>::builder().shards(1).build().expect("in range");
    let loads: Vec<_> = (0..32).map(|load| Arc::new(AtomicU32::new(load))).collect();
    for (key, load) in (0..).zip(&loads) {
        assert!(fleet.insert(Loaded(key, Arc::clone(load))).is_ok());
    }
    let check = || {
        #[cfg(feature = "internals")]
        fleet.check_invariants();
    };
    // Turned upside down behind the scheduler's back: it goes by what it was told, until it is told anew.
    loads.iter().for_each(|load| load.store(100 - load.load(SeqCst), SeqCst));
    check();
    let leases: Vec<_> = (0..32).map(|_| fleet.acquire().expect("one is free")).collect();
    assert!(leases.iter().map(|lease| *lease.key()).eq(0..32), "the order of the ranks at insertion");
    drop(leases);
    check();
    assert_eq!(*fleet.acquire().expect("free").key(), 0, "a return of the only unit asks for no priority");
    assert!(fleet.update_with(&31, |old| Loaded(old.0, Arc::clone(&old.1))).is_ok());
    check();
    // And while others lend.
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = 1u32;
            while !done.load(SeqCst) {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                loads[random as usize >> 16 & 31].store(random & 0xff, SeqCst);
            }
        });
        let workers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    for i in 0..ROUNDS {
                        let lease = fleet.acquire().expect("more than there are threads");
                        let key = (*lease.key() + i) % 32;
                        drop(lease);
                        let _ = fleet.update_with(&key, |old| Loaded(old.0, Arc::clone(&old.1)));
                    }
                })
            })
            .collect();
        workers.into_iter().for_each(|worker| worker.join().expect("no panic"));
        done.store(true, SeqCst);
    });
    check();
    let leases: Vec<_> = std::iter::from_fn(|| fleet.acquire().ok()).collect();
    let mut keys: Vec<_> = leases.iter().map(|lease| *lease.key()).collect();
    keys.sort_unstable();
    assert!(keys.into_iter().eq(0..32), "nobody is lost, nobody is there twice");
}

#[test]
fn c18_counts_are_exact_under_load() {
    let fleet = filled(2, 8);
    let lent = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..ROUNDS * 5 {
                    lent.fetch_add(u64::from(fleet.acquire().is_ok()), SeqCst);
                }
            });
        }
    });
    let stats = fleet.stats();
    assert_eq!((stats.lent, stats.returned, stats.in_flight), (lent.load(SeqCst), lent.load(SeqCst), 0));
}

#[test]
fn c21_returns_land_after_close() {
    let fleet = filled(1, 2);
    let lease = fleet.acquire().expect("free");
    let token = fleet.acquire().expect("free").into_token();
    assert!(fleet.close());
    assert!(matches!(fleet.acquire(), Err(AcquireError::Closed)));
    assert_eq!(
        fleet.snapshot().iter().map(|state| state.in_flight).sum::<u32>(),
        2,
        "who is out can be listed"
    );
    assert_eq!(fleet.release(token), Ok(()));
    drop(lease);
    assert_eq!(fleet.stats().in_flight, 0);
}

#[test]
fn c22_stats_are_of_one_moment_or_say_so() {
    let fleet = filled(4, 12);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (fleet, done) = (&fleet, &done);
            scope.spawn(move || {
                for i in 0..ROUNDS * 10 {
                    let key = (i + thread) % 12;
                    let _ = (fleet.exclude(&key), fleet.include(&key), fleet.acquire().map(drop));
                }
                done.store(true, SeqCst);
            });
        }
        let mut consistent = 0;
        while !done.load(SeqCst) {
            let stats = fleet.stats();
            assert!(stats.eligible <= 12 && stats.reasons.total() <= 12, "a negative number: {stats:?}");
            if stats.consistent {
                consistent += 1;
                assert_eq!(stats.members, 12);
                assert!(stats.in_flight <= 2);
                // Words that are written at different places of one change: a reading with a change in its midst has only one of them.
                assert_eq!(stats.excluded - stats.included, stats.reasons.excluded, "{stats:?}");
                assert_eq!(stats.eligible, stats.shards.iter().map(|&one| u64::from(one)).sum::<u64>());
                assert!(stats.reasons.at_capacity <= stats.in_flight, "{stats:?}");
                assert_eq!(stats.available, stats.eligible, "one free unit each: {stats:?}");
            }
        }
        assert!(consistent > 0, "never consistent");
    });
}

/// What the documentation of `close` says of each call: it is refused, it returns what is out, or it only looks.
#[test]
fn c24_after_close_it_is_as_documented() {
    let clock = Arc::new(ManualClock::new());
    let hour = Duration::from_secs(3_600);
    let builder = Fleet::builder().shards(1).clock(clock.clone()).remember_outcomes(true);
    let builder = builder.max_hold(hour).overdue(Overdue::Revoke);
    #[cfg(feature = "telemetry")]
    let builder = builder.measure(1);
    let fleet = builder.build().expect("in range");
    (0..6).for_each(|key| fleet.insert(Entry::new(key, u64::from(key), 0)).expect("new"));
    let tokens: Vec<_> = (0..4).map(|_| fleet.acquire().expect("free").into_token()).collect();
    assert!(fleet.drain(&4).expect("a member"));
    assert!(fleet.cool(&5, hour / 60).expect("a member"));
    let standing = |key: u32| fleet.snapshot().iter().find(|one| one.key == key).expect("a member").standing;
    assert!(fleet.close());
    assert!(!fleet.close() && fleet.is_closed());
    let closed = |answer: Result<bool, KeyError<u32>>| answer == Err(KeyError::Closed);
    fn ends<T>(wait: impl Future<Output = Result<T, WaitError>>) -> bool {
        let ended = std::pin::pin!(wait).poll(&mut Context::from_waker(Waker::noop()));
        matches!(ended, Poll::Ready(Err(WaitError::Closed)))
    }
    let later = fleet.now().saturating_add(hour);
    let refused = [
        ("insert", fleet.insert(Entry::new(9, 0, 0)).is_err_and(|no| no.error == InsertError::Closed)),
        ("insert_batch", fleet.insert_batch(vec![]).is_err_and(|no| no.error == InsertError::Closed)),
        ("update", fleet.update(Entry::new(0, 0, 0)).is_err()),
        ("update_with", fleet.update_with(&0, |old| *old).is_err()),
        ("remove", fleet.remove(&0) == Err(KeyError::Closed)),
        ("evict_worst", fleet.evict_worst().is_none()),
        ("exclude", closed(fleet.exclude(&0))),
        ("include", closed(fleet.include(&0))),
        ("cool", closed(fleet.cool(&0, hour))),
        ("warm", closed(fleet.warm(&0))),
        ("eject", closed(fleet.eject(&0))),
        ("readmit", closed(fleet.readmit(&0))),
        ("drain", closed(fleet.drain(&0))),
        ("undrain", closed(fleet.undrain(&0))),
        ("acquire", matches!(fleet.acquire(), Err(AcquireError::Closed))),
        ("acquire_key", matches!(fleet.acquire_key(&0), Err(AcquireKeyError::Closed))),
        ("acquire_many", matches!(fleet.acquire_many(0), Err(AcquireError::Closed))),
        ("acquire_by_affinity", matches!(fleet.acquire_by_affinity(&0), Err(AcquireError::Closed))),
        ("acquire_where", matches!(fleet.acquire_where(|_| true), Err(AcquireError::Closed))),
        ("acquire_excluding", matches!(fleet.acquire_excluding(&[]), Err(AcquireError::Closed))),
        ("acquire_explained", matches!(fleet.acquire_explained().0, Err(AcquireError::Closed))),
        (
            "acquire_where_explained",
            matches!(fleet.acquire_where_explained(|_| true).0, Err(AcquireError::Closed)),
        ),
        (
            "acquire_excluding_explained",
            matches!(fleet.acquire_excluding_explained(&[]).0, Err(AcquireError::Closed)),
        ),
        (
            "acquire_by_affinity_explained",
            matches!(fleet.acquire_by_affinity_explained(&0).0, Err(AcquireError::Closed)),
        ),
        ("acquire_key_explained", matches!(fleet.acquire_key_explained(&0).0, Err(AcquireKeyError::Closed))),
        ("acquire_owned", matches!(fleet.acquire_owned(), Err(AcquireError::Closed))),
        ("acquire_key_owned", matches!(fleet.acquire_key_owned(&0), Err(AcquireKeyError::Closed))),
        ("acquire_many_owned", matches!(fleet.acquire_many_owned(0), Err(AcquireError::Closed))),
        (
            "acquire_by_affinity_owned",
            matches!(fleet.acquire_by_affinity_owned(&0), Err(AcquireError::Closed)),
        ),
        ("acquire_where_owned", matches!(fleet.acquire_where_owned(|_| true), Err(AcquireError::Closed))),
        ("acquire_excluding_owned", matches!(fleet.acquire_excluding_owned(&[]), Err(AcquireError::Closed))),
        ("request().wait", matches!(fleet.request().timeout(hour).wait(), Err(WaitError::Closed))),
        (
            "request().wait_owned",
            matches!(fleet.request().timeout(hour).wait_owned(), Err(WaitError::Closed)),
        ),
        ("request().owned", ends(fleet.request().owned())),
        ("acquire_timeout", matches!(fleet.acquire_timeout(hour), Err(WaitError::Closed))),
        ("acquire_deadline", matches!(fleet.acquire_deadline(later), Err(WaitError::Closed))),
        ("acquire_key_timeout", matches!(fleet.acquire_key_timeout(&0, hour), Err(WaitError::Closed))),
        ("acquire_many_timeout", matches!(fleet.acquire_many_timeout(2, hour), Err(WaitError::Closed))),
        ("acquire_async", ends(fleet.acquire_async())),
        ("acquire_key_async", ends(fleet.acquire_key_async(&0))),
        ("acquire_by_affinity_async", ends(fleet.acquire_by_affinity_async(&0))),
        ("acquire_where_async", ends(fleet.acquire_where_async(|_| true))),
        ("acquire_many_async", ends(fleet.acquire_many_async(2))),
        ("acquire_async_owned", ends(fleet.acquire_async_owned())),
        ("acquire_key_async_owned", ends(fleet.acquire_key_async_owned(&0))),
        ("acquire_by_affinity_async_owned", ends(fleet.acquire_by_affinity_async_owned(&0))),
        ("acquire_where_async_owned", ends(fleet.acquire_where_async_owned(|_| true))),
        ("acquire_many_async_owned", ends(fleet.acquire_many_async_owned(2))),
        ("set_shard_weights", fleet.set_shard_weights(&[1]) == Err(WeightsError::Closed)),
        ("undrain_all", fleet.undrain_all() == 0),
        ("and it still drains", standing(4) == Standing::Draining),
        ("observe", fleet.observe(|_: &leasehold::Event<u32>| ()).is_err()),
    ];
    let looking = [
        ("len", fleet.len() == 6 && !fleet.is_empty()),
        ("stats", fleet.stats().members == 6 && fleet.stats().closed),
        ("stats_by_shard", fleet.stats_by_shard()[0].members == 6),
        ("snapshot", fleet.snapshot().len() == 6),
        ("iter_keys", fleet.iter_keys().count() == 6),
        ("contains", fleet.contains(&0) && !fleet.contains(&9)),
        ("get", fleet.get(&0).is_some()),
        ("in_flight", fleet.in_flight(&0) == Some(1) && fleet.in_flight(&9).is_none()),
        ("resource_stats", fleet.resource_stats(&0).is_some_and(|stats| stats.failed == 0)),
        ("ejected_by_rules", fleet.ejected_by_rules() == 0),
        ("leases", fleet.leases().len() == 4),
        ("overdue", fleet.overdue().is_empty() && fleet.revoked().is_empty()),
        ("take_events", fleet.take_events(9).is_empty()),
        #[cfg(feature = "telemetry")]
        ("telemetry", fleet.telemetry().is_some_and(|telemetry| telemetry.holds.count() == 0)),
    ];
    clock.advance(hour / 60);
    let _ = fleet.tick();
    let returning = [
        ("tick", standing(5) == Standing::Eligible && fleet.stats().warmed == 1),
        ("release", fleet.release(tokens[0]).is_ok() && fleet.release(tokens[0]).is_err()),
        ("finish", fleet.finish(tokens[1], Outcome::Failed).is_ok()),
        ("and both count", fleet.stats().in_flight == 2 && fleet.stats().failed == 1),
        ("revoke", fleet.revoke(tokens[2]).is_ok() && fleet.stats().in_flight == 1),
        ("peek", fleet.peek().is_some()),
        ("peek_worst", fleet.peek_worst().is_some()),
        ("peek_by_affinity", fleet.peek_by_affinity(&0).is_some()),
        ("drain_timeout", fleet.drain_timeout(&0, Duration::ZERO).is_ok_and(|report| report.is_drained())),
        ("drain_all", fleet.drain_all(fleet.now()).leases() == 1),
        ("drain_all_timeout", fleet.drain_all_timeout(Duration::ZERO).leases() == 1),
        ("and everything drains", fleet.snapshot().iter().all(|one| one.standing == Standing::Draining)),
    ];
    clock.advance(hour);
    let in_time = [
        ("reap_overdue", fleet.reap_overdue() == 1 && fleet.reap_overdue() == 0),
        ("revoked", fleet.revoked().len() == 1),
        ("a late return", matches!(fleet.release(tokens[3]), Err(ReleaseError::Revoked { .. }))),
        ("drain_all_async", fleet.drain_all_async().report().is_drained()),
        (
            "and nothing is lent",
            matches!(fleet.acquire(), Err(AcquireError::Closed)) && fleet.stats().in_flight == 0,
        ),
    ];
    for (call, is_so) in refused.into_iter().chain(looking).chain(returning).chain(in_time) {
        assert!(is_so, "{call} does not do what it is documented to do after `close`");
    }
}

#[test]
fn c25_refused_insertions_move_nobody() {
    // Homes follow from how full the shards are, not from a counter that may wrap or run on.
    let fleet = fleet(2);
    for key in 0..10 {
        fleet.insert(Entry::new(key, 0, 0)).expect("new");
        assert!(fleet.insert(Entry::new(key, 0, 0)).is_err());
    }
    assert_eq!(fleet.stats().shards, [5, 5]);
}

#[test]
fn c27_affinity_allocates_nothing() {
    // Counted in `tests/allocations.rs`; here: an id of any length and type is taken by reference.
    let fleet = filled(4, 4);
    let long = "x".repeat(10_000);
    let shard = fleet.acquire_by_affinity(long.as_str()).expect("free").shard();
    assert_eq!(fleet.acquire_by_affinity(&*long).expect("free").shard(), shard);
    assert!(fleet.acquire_by_affinity(&[1u8, 2, 3][..]).is_ok());
}

#[test]
fn c28_filters_exclusions_several_at_once_and_the_instant_to_come_back() {
    let clock = Arc::new(ManualClock::new());
    let fleet = Fleet::builder().shards(1).clock(Arc::clone(&clock)).build().expect("in range");
    for key in 0..3 {
        fleet.insert(Entry::new(key, u64::from(key), 0)).expect("new");
    }
    assert_eq!(*fleet.acquire_where(|entry| entry.key > 0).expect("free").key(), 1);
    assert_eq!(*fleet.acquire_excluding(&[0, 1]).expect("free").key(), 2);
    let all = fleet.acquire_many(3).expect("free");
    for lease in all {
        lease.release_after(Duration::from_secs(7));
    }
    let Err(AcquireError::NoneEligible(none)) = fleet.acquire() else { panic!("all are cooling") };
    assert_eq!(none.reasons.cooling, 3);
    assert_eq!(none.retry_after, Some(Duration::from_secs(7)), "nobody has to spin");
    clock.advance(Duration::from_secs(7));
    assert!(fleet.acquire().is_ok());
}

#[test]
fn c29_newcomers_fill_the_gaps_of_those_removed() {
    let fleet = fleet(4);
    for key in 0..40 {
        fleet.insert(Entry::new(key, 0, 0)).expect("new");
    }
    let crowded: Vec<u32> =
        fleet.snapshot().iter().filter(|state| state.shard != 2).map(|state| state.key).collect();
    for key in &crowded {
        fleet.remove(key).expect("known");
    }
    assert_eq!(fleet.stats().shards, [0, 0, 10, 0]);
    for key in crowded {
        fleet.insert(Entry::new(key, 0, 0)).expect("gone");
    }
    assert_eq!(fleet.stats().shards, [10; 4]);
}

/// Counts how often it is asked for its key, and never answers the same twice.
struct Fickle(AtomicU32, Arc<AtomicU32>);

impl Resource for Fickle {
    type Key = u32;
    type Priority = u32;

    fn key(&self) -> u32 {
        self.1.fetch_add(1, SeqCst);
        self.0.fetch_add(1, SeqCst)
    }

    fn priority(&self, _in_flight: u32) -> u32 {
        0
    }
}

#[test]
fn c30_a_key_is_asked_for_once() {
    let asked = Arc::new(AtomicU32::new(0));
    let fleet = Scheduler::<Fickle>::builder().build().expect("in range");
    let batch = (0..10).map(|i| Fickle(AtomicU32::new(i * 100), Arc::clone(&asked))).collect();
    assert!(fleet.insert_batch(batch).is_ok());
    assert_eq!(asked.load(SeqCst), 10, "once for each");
    assert!(fleet.insert(Fickle(AtomicU32::new(5), Arc::clone(&asked))).is_ok());
    assert_eq!(asked.load(SeqCst), 11);
    // The key that was answered then stays the key.
    assert!((0..10).all(|i| fleet.contains(&(i * 100))));
    let lease = fleet.acquire_key(&300).expect("free");
    assert_eq!(*lease.key(), 300);
    drop(lease);
    assert!(fleet.remove(&300).is_ok());
}
