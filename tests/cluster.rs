//! Clusters of real schedulers and real threads over the engine in memory.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use leasehold::{
    Capacity, Entry, Overdue, Scheduler,
    cluster::{Cluster, Lost, MemoryEngine, Share, Start, StartError, Terms},
};

type Key = Entry<Arc<str>, u64, u32>;
type Keys = Arc<Scheduler<Key>>;

/// Long beside what a busy machine keeps a thread waiting: claims that expire in mid-test are counted as losses.
const TTL: Duration = Duration::from_millis(800);

fn keys() -> Keys {
    let builder = Scheduler::<Key>::builder().max_hold(Duration::from_secs(60)).overdue(Overdue::Revoke);
    Arc::new(builder.build().unwrap())
}

fn make(share: &Share, units: u32) -> Key {
    let leases = units * share.leases_per_unit;
    Entry::new(share.name.clone(), share.rank, units).with_capacity(Capacity::Limited(leases))
}

fn fleet(resources: u64, units: u32) -> Vec<Share> {
    (0..resources).map(|number| Share::new(format!("key-{number}"), number).units(units)).collect()
}

fn join(name: &str, engine: &MemoryEngine, keys: &Keys, shares: Vec<Share>, floor: u32) -> Cluster<Key> {
    Cluster::builder(name)
        .terms(Terms::new(TTL).floor(floor))
        .shares(shares)
        .start(engine.connect(), keys, make)
        .unwrap()
}

/// Waits for something that must come to pass.
fn until(what: &str, mut is: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !is() {
        assert!(Instant::now() < end, "it never came to this: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn units_become_capacity_and_go_back_on_close() {
    let (engine, keys) = (MemoryEngine::new(), keys());
    let cluster = join("a", &engine, &keys, fleet(2, 3), 100);
    until("all six units", || keys.stats().available == 6);
    assert_eq!(keys.get("key-0").unwrap().value, 3);
    let lease = keys.acquire().unwrap();
    let report = std::thread::scope(|scope| {
        let closing = scope.spawn(|| cluster.close(Duration::from_secs(5)));
        until("nothing is lent", || keys.acquire().is_err());
        std::thread::sleep(Duration::from_millis(100));
        assert!(!lease.is_revoked(), "it has time");
        drop(lease);
        closing.join().unwrap()
    });
    assert!(report.told && report.revoked == 0 && keys.is_empty());
    let stats = cluster.stats();
    assert_eq!((stats.claimed, stats.returned, stats.losses), (6, 6, 0));
    // Somebody else has them at once.
    let other_keys = self::keys();
    let _other = join("b", &engine, &other_keys, fleet(2, 3), 100);
    until("the other has all", || other_keys.stats().available == 6);
}

#[test]
fn what_is_out_when_grace_ends_is_revoked() {
    let (engine, keys) = (MemoryEngine::new(), keys());
    let cluster = join("a", &engine, &keys, fleet(1, 1), 1);
    until("a unit", || keys.stats().available == 1);
    let mut lease = keys.acquire().unwrap();
    let fence = cluster.fence(&mut lease).unwrap();
    let report = cluster.close(Duration::from_millis(50));
    assert_eq!((report.revoked, report.outlived, report.told), (1, 0, true));
    assert!(lease.is_revoked());
    assert_eq!(fence.check(), Err(Lost));
}

#[test]
fn a_cluster_that_ends_while_make_is_slow_leaves_nothing_lent() {
    let (engine, keys) = (MemoryEngine::new(), keys());
    let (slow, begun) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let cluster = Cluster::builder("a")
        .terms(Terms::new(TTL).floor(1))
        .shares(fleet(1, 2))
        .start(engine.connect(), &keys, {
            let (slow, begun) = (Arc::clone(&slow), Arc::clone(&begun));
            move |share, units| {
                if slow.load(Ordering::SeqCst) {
                    begun.store(true, Ordering::SeqCst);
                    std::thread::sleep(TTL / 2);
                }
                make(share, units)
            }
        })
        .unwrap();
    until("a unit", || keys.stats().available == 1);
    let lease = keys.acquire().unwrap();
    slow.store(true, Ordering::SeqCst);
    cluster.expect_units(2);
    until("the cluster's thread is in `make`", || begun.load(Ordering::SeqCst));
    drop(cluster);
    assert!(lease.is_revoked(), "the claim has ended");
    assert!(keys.acquire().is_err(), "nobody keeps its claim");
}

#[test]
fn a_lease_that_waits_to_be_picked_up_is_revoked_by_a_close() {
    let (engine, keys) = (MemoryEngine::new(), keys());
    // So long that a tenth of it passes on no machine before the lease is picked up.
    let cluster = Cluster::builder("a")
        .terms(Terms::new(TTL * 10))
        .shares(fleet(1, 1))
        .start(engine.connect(), &keys, make)
        .unwrap();
    until("a unit", || keys.stats().available == 1);
    let first = keys.acquire().unwrap();
    let mut second = std::pin::pin!(keys.acquire_async());
    let mut context = Context::from_waker(Waker::noop());
    assert!(second.as_mut().poll(&mut context).is_pending());
    drop(first);
    // It is handed over, and its holder has not been to the door yet.
    let report = std::thread::scope(|scope| {
        let closing = scope.spawn(|| cluster.close(Duration::ZERO));
        until("nothing is lent", || !keys.snapshot().iter().any(|state| state.holds.is_empty()));
        std::thread::sleep(TTL / 4);
        let Poll::Ready(Ok(lease)) = second.as_mut().poll(&mut context) else { panic!("it was handed over") };
        until("it is revoked", || lease.is_revoked());
        closing.join().unwrap()
    });
    assert_eq!((report.revoked, report.outlived), (1, 0));
}

#[test]
fn a_revoked_lease_has_no_fence_and_a_lease_has_one_unit() {
    let (engine, keys) = (MemoryEngine::new(), keys());
    let cluster = join("a", &engine, &keys, fleet(1, 2), 2);
    until("two units", || keys.stats().available == 2);
    let mut one = keys.acquire().unwrap();
    let (first, again) = (cluster.fence(&mut one).unwrap(), cluster.fence(&mut one).unwrap());
    assert_eq!(first.unit(), again.unit());
    let mut two = keys.acquire().unwrap();
    let other = cluster.fence(&mut two).unwrap();
    assert_ne!(first.unit(), other.unit());
    drop(first);
    assert_eq!(cluster.fence(&mut one).unwrap().unit(), again.unit(), "while one is left it is the same");
    drop((again, other));
    keys.revoke(one.token()).unwrap();
    assert_eq!(cluster.fence(&mut one).err(), Some(Lost));
}

#[test]
fn what_somebody_undrains_is_withdrawn_again() {
    let (engine, keys) = (MemoryEngine::new(), keys());
    let cluster = join("a", &engine, &keys, fleet(1, 2), 2);
    until("two units", || keys.stats().available == 2);
    let lease = keys.acquire().unwrap();
    std::thread::scope(|scope| {
        let closing = scope.spawn(|| cluster.close(Duration::from_secs(20)));
        until("nothing is lent", || keys.acquire().is_err());
        keys.undrain_all();
        until("nothing is lent again", || keys.acquire().is_err());
        drop(lease);
        assert_eq!(closing.join().unwrap().revoked, 0);
    });
}

#[test]
fn two_members_share_and_never_exceed_the_whole() {
    let engine = MemoryEngine::new();
    let (one, two) = (keys(), keys());
    let a = join("a", &engine, &one, fleet(5, 2), 10);
    until("one has all", || one.stats().available == 10);
    let b = join("b", &engine, &two, fleet(5, 2), 10);
    until("half each", || one.stats().available == 5 && two.stats().available == 5);
    for id in 0..100u32 {
        assert_eq!(a.member_for(&id), b.member_for(&id), "both say the same");
    }
    until("nothing is missing anywhere", || a.stats().imbalance == 0.0);
    drop(b);
    until("all is back", || one.stats().available == 10);
}

#[test]
fn an_outage_ends_with_nothing_lent_and_heals_by_itself() {
    let (engine, keys) = (MemoryEngine::new(), keys());
    let cluster = join("a", &engine, &keys, fleet(1, 2), 2);
    until("two units", || keys.stats().available == 2);
    let mut lease = keys.acquire().unwrap();
    let fence = cluster.fence(&mut lease).unwrap();
    let token = fence.token();
    engine.set_reachable(false);
    assert!(keys.acquire().is_ok(), "what is claimed is good for a while");
    until("nothing is lent", || keys.acquire().is_err());
    until("the lease is revoked", || lease.is_revoked());
    assert_eq!(fence.check(), Err(Lost));
    // What the keeper counts is published when its round is over, not before.
    until("both losses are told", || cluster.stats().losses == 2 && !cluster.stats().connected);
    engine.set_reachable(true);
    until("two units again", || keys.stats().available == 2);
    let mut again = keys.acquire().unwrap();
    let fence = cluster.fence(&mut again).unwrap();
    assert!(fence.check().unwrap() > token, "tokens grow");
}

#[test]
fn a_restart_of_the_engine_takes_nothing_from_those_who_hold() {
    let (engine, keys) = (MemoryEngine::new(), keys());
    let cluster = join("a", &engine, &keys, fleet(3, 1), 3);
    until("three units", || keys.stats().available == 3);
    let mut lease = keys.acquire().unwrap();
    let fence = cluster.fence(&mut lease).unwrap();
    engine.restart();
    until("it is noticed", || cluster.stats().epochs == 1);
    until("everything is reinstated", || cluster.stats().reinstated == 3);
    std::thread::sleep(TTL * 2);
    assert!(fence.check().is_ok() && !lease.is_revoked());
    assert_eq!(cluster.stats().losses, 0);
}

#[test]
fn holds_travel_and_end() {
    let engine = MemoryEngine::new();
    let (one, two) = (keys(), keys());
    let shares = || fleet(2, 2);
    let _a = join("a", &engine, &one, shares(), 4);
    let _b = join("b", &engine, &two, shares(), 4);
    let has = |keys: &Keys, key: &str| keys.contains(key);
    until("both have some of the first", || has(&one, "key-0") || has(&two, "key-0"));
    // Whoever has it: everybody who has it, or comes to have it, knows.
    let (owner, other) = if has(&one, "key-0") { (&one, &two) } else { (&two, &one) };
    owner.exclude("key-0").unwrap();
    until("the other knows, if it has it", || {
        let known = other.snapshot().into_iter().find(|state| &*state.key == "key-0");
        known.is_none_or(|state| state.holds.contains(&leasehold::Hold::Excluded))
    });
    owner.include("key-0").unwrap();
    until("and that it is over", || {
        let known = other.snapshot().into_iter().find(|state| &*state.key == "key-0");
        known.is_none_or(|state| state.holds.is_empty())
    });
}

#[test]
fn cooling_travels_to_a_member_that_has_units_of_the_same_resource() {
    let engine = MemoryEngine::new();
    let (one, two) = (keys(), keys());
    let _a = join("a", &engine, &one, fleet(1, 4), 4);
    let _b = join("b", &engine, &two, fleet(1, 4), 4);
    until("two units each", || one.stats().available == 2 && two.stats().available == 2);
    one.cool("key-0", Duration::from_millis(3_000)).unwrap();
    let began = Instant::now();
    until("the other cools too", || two.acquire().is_err());
    assert!(began.elapsed() < Duration::from_millis(2_500));
    until("and it ends there by itself", || two.acquire().is_ok());
    assert!(began.elapsed() >= Duration::from_millis(2_800), "{:?}", began.elapsed());
    one.eject("key-0").unwrap();
    until("ejection travels", || two.acquire().is_err());
    one.readmit("key-0").unwrap();
    until("and its end", || two.acquire().is_ok());
}

#[test]
fn what_cannot_start_says_why() {
    let unrecorded: Keys = Arc::new(Scheduler::builder().build().unwrap());
    let engine = MemoryEngine::new();
    let builder = || Cluster::builder("a").terms(Terms::new(TTL)).shares(fleet(1, 1));
    let error = builder().start(engine.connect(), &unrecorded, make).unwrap_err();
    assert!(matches!(error, StartError::Unrecorded) && error.to_string().contains("max_hold"), "{error}");
    let allowed = builder().terms(Terms::new(TTL).unrecorded_leases(true));
    drop(allowed.start(engine.connect(), &unrecorded, make).unwrap());
    let bounded = Scheduler::<Key>::builder()
        .max_hold(Duration::from_secs(60))
        .max_resources(9, leasehold::Overflow::EvictWorst);
    let error = builder().start(engine.connect(), &Arc::new(bounded.build().unwrap()), make).unwrap_err();
    assert!(error.to_string().contains("max_resources"), "{error}");
    let keys = keys();
    let other = builder().terms(Terms::new(TTL * 2));
    let error = other.start(engine.connect(), &keys, make).unwrap_err();
    assert!(matches!(error, StartError::Refused { ttl } if ttl == TTL), "{error}");
    let error = Cluster::builder("a\n").start(engine.connect(), &keys, make).unwrap_err();
    assert!(matches!(error, StartError::Name(_)), "{error}");
    engine.set_reachable(false);
    let error = builder().start(engine.connect(), &keys, make).unwrap_err();
    assert!(matches!(error, StartError::Engine(_)) && error.to_string().contains("Start::Empty"), "{error}");
    let empty = builder().on_start(Start::Empty).start(engine.connect(), &keys, make).unwrap();
    assert!(keys.acquire().is_err());
    engine.set_reachable(true);
    until("it is healed", || keys.acquire().is_ok());
    drop(empty);
}

#[test]
fn unrecorded_leases_that_outlive_their_claims_are_counted() {
    let keys: Keys = Arc::new(Scheduler::builder().build().unwrap());
    let engine = MemoryEngine::new();
    let cluster = Cluster::builder("a")
        .terms(Terms::new(TTL).unrecorded_leases(true))
        .shares(fleet(1, 1))
        .start(engine.connect(), &keys, make)
        .unwrap();
    until("a unit", || keys.stats().available == 1);
    let mut lease = keys.acquire().unwrap();
    let fence = cluster.fence(&mut lease).unwrap();
    engine.set_reachable(false);
    until("it is lost", || cluster.stats().losses == 1);
    assert_eq!((fence.check(), cluster.stats().outlived), (Err(Lost), 1));
    assert!(!lease.is_revoked(), "nobody could");
}

#[test]
fn resources_that_a_member_does_not_know_are_left_to_others() {
    let engine = MemoryEngine::new();
    let (one, two) = (keys(), keys());
    let _more = join("a", &engine, &one, fleet(6, 1), 1);
    until("a unit", || one.stats().available == 1);
    let less = join("b", &engine, &two, fleet(2, 1), 2);
    until("what it knows", || two.stats().available >= 1);
    std::thread::sleep(TTL);
    assert!(two.iter_keys().all(|key| &*key < "key-2"));
    assert!(less.stats().requests < 60, "and it does not ask again and again: {}", less.stats().requests);
}

#[test]
fn a_panic_of_make_lends_nothing_and_is_counted() {
    let (engine, keys) = (MemoryEngine::new(), keys());
    let cluster = Cluster::builder("a")
        .terms(Terms::new(TTL).floor(2))
        .shares(fleet(1, 2))
        .start(engine.connect(), &keys, |share, units| {
            assert!(units < 2, "too many");
            make(share, units)
        })
        .unwrap();
    until("it is counted", || cluster.stats().faults > 0);
    assert!(keys.acquire().is_err());
    assert!(cluster.stats().live, "the cluster goes on");
}
