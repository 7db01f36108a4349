//! Clusters of real schedulers and real threads over the engine in memory.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use leasehold::{
    Capacity, Clock, Entry, Hold, KeyError, MonotonicClock, Overdue, Scheduler, Timestamp,
    cluster::{Cluster, End, Engine, Lost, MemoryEngine, Reply, Request, Share, Start, StartError, Terms},
};

type Key = Entry<Arc<str>, u64, u32>;
type Keys = Arc<Scheduler<Key>>;

/// Long beside what a busy machine keeps a thread waiting: from 3/5 of it on nothing is lent, from 7/10 on claims are lost.
const TTL: Duration = Duration::from_secs(5);
/// Of fleets whose members must be told, or picked up from, within a part of it.
const LONG: Duration = Duration::from_secs(60);

/// The machine's clock, and so many nanoseconds more.
struct Ahead(MonotonicClock, Arc<AtomicU64>);

impl Clock for Ahead {
    fn now(&self) -> Timestamp {
        self.0.now().saturating_add(Duration::from_nanos(self.1.load(Ordering::SeqCst)))
    }
}

/// An engine that knows a fleet for longer than its time to live, by its own clock: it grants at once, so that a long one costs nothing.
fn engine_for(ttl: Duration) -> MemoryEngine {
    let more = Arc::new(AtomicU64::new(0));
    let mut engine = MemoryEngine::with_clock(Arc::new(Ahead(MonotonicClock::new(), Arc::clone(&more))));
    let join = Request::Join { member: "first".into(), ttl, weight: 1, previous: None };
    let Reply::Joined(session) = engine.call(&join, ttl).unwrap() else { panic!("it is the first") };
    assert_eq!(engine.call(&Request::Leave { session }, ttl).unwrap(), Reply::Done);
    more.store(ttl.as_nanos() as u64, Ordering::SeqCst);
    engine
}

fn engine() -> MemoryEngine {
    engine_for(TTL)
}

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
    let end = Instant::now() + Duration::from_secs(60);
    while !is() {
        assert!(Instant::now() < end, "it never came to this: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn units_become_capacity_and_go_back_on_close() {
    let (engine, keys) = (engine(), keys());
    let cluster = join("a", &engine, &keys, fleet(2, 3), 100);
    until("all six units", || keys.stats().available == 6);
    assert_eq!(keys.get("key-0").unwrap().value, 3);
    let lease = keys.acquire().unwrap();
    let report = std::thread::scope(|scope| {
        let closing = scope.spawn(|| cluster.close(Duration::from_secs(60)));
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
    // After the grace a fifth of it is left to tell the engine.
    let (engine, keys) = (engine_for(LONG), keys());
    let cluster = Cluster::builder("a")
        .terms(Terms::new(LONG))
        .shares(fleet(1, 1))
        .start(engine.connect(), &keys, make)
        .unwrap();
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
    let (engine, keys) = (engine(), keys());
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
    // So long that a tenth of it passes on no machine before the lease is picked up.
    let (engine, keys) = (engine_for(LONG), keys());
    let cluster = Cluster::builder("a")
        .terms(Terms::new(LONG))
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
        std::thread::sleep(Duration::from_millis(200));
        let Poll::Ready(Ok(lease)) = second.as_mut().poll(&mut context) else { panic!("it was handed over") };
        until("it is revoked", || lease.is_revoked());
        closing.join().unwrap()
    });
    assert_eq!((report.revoked, report.outlived), (1, 0));
}

#[test]
fn a_revoked_lease_has_no_fence_and_a_lease_has_one_unit() {
    let (engine, keys) = (engine(), keys());
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
    let (engine, keys) = (engine(), keys());
    let cluster = join("a", &engine, &keys, fleet(1, 2), 2);
    until("two units", || keys.stats().available == 2);
    let lease = keys.acquire().unwrap();
    std::thread::scope(|scope| {
        let closing = scope.spawn(|| cluster.close(Duration::from_secs(60)));
        until("nothing is lent", || keys.acquire().is_err());
        keys.undrain_all();
        until("nothing is lent again", || keys.acquire().is_err());
        drop(lease);
        assert_eq!(closing.join().unwrap().revoked, 0);
    });
}

#[test]
fn two_members_share_and_never_exceed_the_whole() {
    let engine = engine();
    let (one, two) = (keys(), keys());
    let a = join("a", &engine, &one, fleet(5, 2), 10);
    until("one has all", || one.stats().available == 10);
    let b = join("b", &engine, &two, fleet(5, 2), 10);
    until("half each", || one.stats().available == 5 && two.stats().available == 5);
    for id in 0..100u32 {
        assert_eq!(a.member_for(&id), b.member_for(&id), "both say the same");
    }
    until("nothing is missing anywhere", || a.stats().imbalance == 0.0);
    // Leases that are not given back keep somebody short of his share.
    let leases: Vec<_> = (0..5).map(|_| one.acquire().unwrap()).collect();
    let third = self::keys();
    let c = join("c", &engine, &third, fleet(5, 2), 10);
    until("somebody is short", || a.stats().imbalance > 0.0);
    drop((leases, c));
    drop(b);
    until("all is back", || one.stats().available == 10);
}

#[test]
fn an_outage_ends_with_nothing_lent_and_heals_by_itself() {
    let (engine, keys) = (engine(), keys());
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
    until("both losses are told", || cluster.stats().losses >= 2 && !cluster.stats().connected);
    engine.set_reachable(true);
    until("two units again", || keys.stats().available == 2);
    let mut again = keys.acquire().unwrap();
    let fence = cluster.fence(&mut again).unwrap();
    assert!(fence.check().unwrap() > token, "tokens grow");
}

#[test]
fn a_restart_of_the_engine_takes_nothing_from_those_who_hold() {
    let (engine, keys) = (engine(), keys());
    let cluster = join("a", &engine, &keys, fleet(3, 1), 3);
    until("three units", || keys.stats().available == 3);
    let mut lease = keys.acquire().unwrap();
    let fence = cluster.fence(&mut lease).unwrap();
    engine.restart();
    until("it is noticed", || cluster.stats().epochs >= 1);
    until("everything is reinstated", || cluster.stats().reinstated >= 3);
    // Longer than the claims of before were good for, and than the engine grants nothing.
    std::thread::sleep(TTL * 5 / 4);
    assert!(fence.check().is_ok() && !lease.is_revoked());
    assert_eq!(cluster.stats().losses, 0);
}

#[test]
fn holds_travel_and_end() {
    let engine = engine();
    let (one, two) = (keys(), keys());
    let _a = join("a", &engine, &one, fleet(1, 4), 4);
    let _b = join("b", &engine, &two, fleet(1, 4), 4);
    // Each has some of it: nobody leaves, and the resource stays where it is.
    until("two units each", || one.stats().available == 2 && two.stats().available == 2);
    let is_excluded = |keys: &Keys| {
        let here = keys.snapshot().into_iter().find(|state| &*state.key == "key-0");
        let state = here.expect("its units are here");
        state.holds.contains(&Hold::Excluded)
    };
    for (owner, other) in [(&one, &two), (&two, &one)] {
        owner.exclude("key-0").unwrap();
        until("the other knows", || is_excluded(other));
        assert!(is_excluded(owner) && other.acquire().is_err() && owner.acquire().is_err());
        owner.include("key-0").unwrap();
        until("and that it is over", || !is_excluded(other));
        assert!(!is_excluded(owner) && other.acquire().is_ok() && owner.acquire().is_ok());
    }
}

#[test]
fn cooling_travels_to_a_member_that_has_units_of_the_same_resource() {
    let engine = engine();
    let (one, two) = (keys(), keys());
    let _a = join("a", &engine, &one, fleet(1, 4), 4);
    let _b = join("b", &engine, &two, fleet(1, 4), 4);
    until("two units each", || one.stats().available == 2 && two.stats().available == 2);
    let began = Instant::now();
    one.cool("key-0", Duration::from_secs(5)).unwrap();
    // Not before it is over, or there is nothing to see.
    until("the other cools too", || two.acquire().is_err());
    until("and it ends there by itself", || two.acquire().is_ok());
    assert!(began.elapsed() >= Duration::from_millis(4_800), "{:?}", began.elapsed());
    one.eject("key-0").unwrap();
    until("ejection travels", || two.acquire().is_err());
    one.readmit("key-0").unwrap();
    until("and its end", || two.acquire().is_ok());
}

#[test]
fn what_cannot_start_says_why() {
    let unrecorded: Keys = Arc::new(Scheduler::builder().build().unwrap());
    let engine = engine();
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
    let engine = engine();
    let cluster = Cluster::builder("a")
        .terms(Terms::new(TTL).unrecorded_leases(true))
        .shares(fleet(1, 1))
        .start(engine.connect(), &keys, make)
        .unwrap();
    until("a unit", || keys.stats().available == 1);
    let mut lease = keys.acquire().unwrap();
    let fence = cluster.fence(&mut lease).unwrap();
    engine.set_reachable(false);
    until("it is lost", || cluster.stats().losses >= 1);
    assert_eq!((fence.check(), cluster.stats().outlived), (Err(Lost), 1));
    assert!(!lease.is_revoked(), "nobody could");
}

#[test]
fn resources_that_a_member_does_not_know_are_left_to_others() {
    // Whatever is lost on the way comes back.
    const TTL: Duration = Duration::from_secs(1);
    let engine = engine_for(TTL);
    let (one, two) = (keys(), keys());
    let start = |name: &str, keys: &Keys, shares: Vec<Share>, floor: u32| {
        let builder = Cluster::builder(name).terms(Terms::new(TTL).floor(floor)).shares(shares);
        builder.start(engine.connect(), keys, make).unwrap()
    };
    let _more = start("a", &one, fleet(6, 1), 1);
    until("a unit", || one.stats().available == 1);
    let began = Instant::now();
    let less = start("b", &two, fleet(2, 1), 2);
    until("what it knows", || two.stats().available >= 1);
    std::thread::sleep(TTL);
    assert!(two.iter_keys().all(|key| &*key < "key-2"));
    let requests = less.stats().requests;
    // It renews five times in it, and asks as often.
    let most = 20 + 20 * began.elapsed().as_millis() / TTL.as_millis();
    assert!(u128::from(requests) <= most, "and it does not ask again and again: {requests} of {most}");
}

#[test]
fn a_panic_of_make_lends_nothing_and_is_counted() {
    let (engine, keys) = (engine(), keys());
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

#[test]
fn a_unit_that_waits_to_be_picked_up_is_not_given_to_others_by_a_close() {
    // A tenth of it is how long the lease is waited for.
    let ttl = LONG;
    let (engine, keys) = (engine_for(ttl), keys());
    let cluster = Cluster::builder("a")
        .terms(Terms::new(ttl))
        .shares(fleet(1, 1))
        .start(engine.connect(), &keys, make)
        .unwrap();
    until("a unit", || keys.stats().available == 1);
    let mut other = engine.connect();
    let mut ask = |request: Request| other.call(&request, TTL).unwrap();
    let join = Request::Join { member: "b".into(), ttl, weight: 1, previous: None };
    let Reply::Joined(session) = ask(join) else { panic!() };
    let mut claimed = || {
        let skip = Vec::new();
        match ask(Request::Claim { session: session.clone(), count: 1, end: End::Best, skip }) {
            Reply::Claims(claims) => claims.len(),
            reply => panic!("{reply:?}"),
        }
    };
    let first = keys.acquire().unwrap();
    let mut second = std::pin::pin!(keys.acquire_async());
    let mut context = Context::from_waker(Waker::noop());
    assert!(second.as_mut().poll(&mut context).is_pending());
    drop(first);
    std::thread::scope(|scope| {
        let closing = scope.spawn(|| cluster.close(Duration::ZERO));
        until("nothing is lent", || !keys.snapshot().iter().any(|state| state.holds.is_empty()));
        let end = Instant::now() + Duration::from_millis(200);
        while Instant::now() < end {
            assert_eq!(claimed(), 0, "it was handed over here, and its holder will have it in a moment");
            std::thread::sleep(Duration::from_millis(1));
        }
        let Poll::Ready(Ok(lease)) = second.as_mut().poll(&mut context) else { panic!("it was handed over") };
        until("it is free elsewhere", || claimed() == 1);
        assert!(lease.is_revoked(), "two have it");
        assert!(closing.join().unwrap().told);
    });
}

#[test]
fn a_unit_that_cannot_be_lent_here_goes_to_others() {
    let engine = engine();
    let (one, two) = (keys(), keys());
    let works = Arc::new(AtomicBool::new(true));
    // What does not divide evenly is of the later name.
    let terms = Terms::new(TTL);
    let broken = Cluster::builder("z")
        .terms(terms)
        .shares(fleet(1, 1))
        .start(engine.connect(), &one, {
            let works = Arc::clone(&works);
            move |share, units| {
                assert!(works.load(Ordering::SeqCst), "it cannot be made any more");
                make(share, units)
            }
        })
        .unwrap();
    works.store(false, Ordering::SeqCst);
    until("it is counted", || broken.stats().faults > 0);
    let _other =
        Cluster::builder("b").terms(terms).shares(fleet(1, 1)).start(engine.connect(), &two, make).unwrap();
    until("it is lent there", || two.acquire().is_ok());
    assert!(one.acquire().is_err());
    assert_eq!(broken.stats().losses, 0, "it was given back");
}

#[test]
fn a_resource_with_more_capacity_than_its_units_have_is_not_lent() {
    let (engine, keys) = (engine(), keys());
    let cluster = Cluster::builder("a")
        .terms(Terms::new(TTL).floor(2))
        .shares(fleet(2, 2))
        .start(engine.connect(), &keys, |share, units| {
            // One looks at what it was given, and one does not.
            let leases = if share.rank == 0 { units } else { 9 };
            Entry::new(share.name.clone(), share.rank, units).with_capacity(Capacity::Limited(leases))
        })
        .unwrap();
    until("it is counted", || cluster.stats().faults > 0);
    until("the other is lent", || keys.contains("key-0"));
    assert!(!keys.contains("key-1"), "nine processes might do as much");
    let error = cluster.stats().last_error.unwrap();
    assert!(error.contains("key-1"), "{error}");
}

#[test]
fn a_hold_ends_though_nobody_has_the_resource() {
    let engine = engine();
    let (one, two) = (keys(), keys());
    let a = join("a", &engine, &one, fleet(1, 1), 1);
    until("a unit", || one.stats().available == 1);
    one.exclude("key-0").unwrap();
    let mut looks = engine.connect();
    let mut on_record = || match looks.call(&Request::Holds, TTL).unwrap() {
        Reply::Holds(notes, _) => notes.len(),
        reply => panic!("{reply:?}"),
    };
    until("it is told", || on_record() == 1);
    drop(a);
    let b = join("b", &engine, &two, fleet(1, 1), 1);
    until("it has looked around", || b.stats().renewals > 2);
    assert!(matches!(two.include("key-0"), Err(KeyError::NotFound { .. })), "it is nowhere");
    b.include("key-0").unwrap();
    until("it is lent again", || two.acquire().is_ok());
    until("it is off the record", || on_record() == 0);
    b.exclude("key-0").unwrap();
    until("it is lent no more", || two.acquire().is_err());
    until("it is on record", || on_record() == 1);
    assert_eq!(b.include("key-1"), Err(KeyError::NotFound { key: "key-1".into() }));
    b.close(Duration::ZERO);
    assert_eq!(b.include("key-0"), Err(KeyError::Closed));
}

/// What somebody has set, and was told that it is, is on record though its member leaves at once.
#[test]
fn what_was_set_is_told_before_its_member_leaves() {
    for closes in [false, true] {
        let (engine, keys) = (engine(), keys());
        let a = join("a", &engine, &keys, fleet(2, 1), 2);
        until("two units", || keys.stats().available == 2);
        let lease = keys.acquire_key("key-1").unwrap();
        // A first letter has just gone: the next one would come later.
        a.exclude("key-0").unwrap();
        let mut looks = engine.connect();
        let mut on_record = || match looks.call(&Request::Holds, TTL).unwrap() {
            Reply::Holds(notes, _) => notes.len(),
            reply => panic!("{reply:?}"),
        };
        until("it is told", || on_record() == 1);
        lease.release_after(Duration::from_secs(600));
        if closes {
            assert!(a.close(Duration::from_secs(60)).told);
        } else {
            a.exclude("key-1").unwrap();
        }
        drop(a);
        until("that too", || on_record() >= 2);
    }
}

/// A fence of a lease that was taken back holds nothing: others get one for its unit, and the unit goes back.
#[test]
fn a_fence_of_a_revoked_lease_keeps_no_unit() {
    let (engine, keys) = (engine(), keys());
    let a = join("a", &engine, &keys, fleet(1, 1), 1);
    until("a unit", || keys.stats().available == 1);
    let mut first = keys.acquire().unwrap();
    let fence = a.fence(&mut first).unwrap();
    keys.revoke(first.token()).unwrap();
    let mut second = keys.acquire().unwrap();
    let other = a.fence(&mut second).expect("its claim is good");
    assert_eq!((fence.check(), other.check()), (Err(Lost), Ok(other.token())));
    keys.revoke(second.token()).unwrap();
    let start = Instant::now();
    let report = a.close(Duration::from_secs(60));
    assert!(report.told && start.elapsed() < Duration::from_secs(30), "both fences are there still");
    assert_eq!(a.stats().returned, 1);
    drop((fence, other));
}

#[test]
fn ejections_and_cooling_end_though_nobody_has_the_resource() {
    let engine = engine();
    let (one, two) = (keys(), keys());
    let a = join("a", &engine, &one, fleet(2, 1), 2);
    until("two units", || one.stats().available == 2);
    one.eject("key-0").unwrap();
    one.cool("key-1", Duration::from_secs(600)).unwrap();
    let mut looks = engine.connect();
    until("they are told", || match looks.call(&Request::Holds, TTL).unwrap() {
        Reply::Holds(notes, _) => notes.len() == 2,
        reply => panic!("{reply:?}"),
    });
    drop(a);
    let b = join("b", &engine, &two, fleet(2, 1), 2);
    until("it has looked around", || b.stats().renewals > 2);
    assert!(two.is_empty());
    b.readmit("key-0").unwrap();
    b.warm("key-1").unwrap();
    until("both are lent", || two.stats().available == 2);
}

/// A budget whose unit is not ripe is nowhere: what was set by name meanwhile counts when it comes to be lent.
#[test]
fn a_budget_that_ripens_comes_with_the_holds_that_were_set_meanwhile() {
    const PERIOD: Duration = Duration::from_secs(4);
    let (engine, keys) = (engine(), keys());
    let a = join("a", &engine, &keys, vec![Share::new("key-0", 0).period(PERIOD)], 1);
    until("a unit is held", || a.stats().held == 1);
    assert!(keys.is_empty(), "it is not ripe");
    a.exclude("key-0").unwrap();
    let began = Instant::now();
    while began.elapsed() < PERIOD + Duration::from_secs(1) {
        let got = keys.request().timeout(Duration::from_millis(20)).wait();
        assert!(got.is_err(), "it is excluded");
    }
    until("it is there, and excluded", || keys.contains("key-0"));
    a.include("key-0").unwrap();
    until("it is lent", || keys.acquire().is_ok());
}

/// A resource that was taken out because the engine was away comes back with the holds that were set meanwhile: who waits gets none of it before.
#[test]
fn who_waits_gets_nothing_that_was_excluded_while_nothing_was_lent() {
    // Half of it after a renewal nothing is lent, and the claims are good for two fifths more.
    let ttl = TTL * 2;
    let (engine, keys) = (engine_for(ttl), keys());
    let a = Cluster::builder("a")
        .terms(Terms::new(ttl).lead(ttl * 2 / 5).floor(1))
        .shares(fleet(1, 1))
        .start(engine.connect(), &keys, make)
        .unwrap();
    until("a unit", || keys.stats().available == 1);
    engine.set_reachable(false);
    until("nothing is lent", || a.stats().suspended && keys.is_empty());
    a.exclude("key-0").unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| keys.acquire_timeout(Duration::from_secs(60)).is_ok());
        until("somebody waits", || keys.stats().waits.waited == 1);
        engine.set_reachable(true);
        until("it is back", || keys.contains("key-0"));
        std::thread::sleep(Duration::from_millis(100));
        assert!(!waits.is_finished(), "it is excluded");
        a.include("key-0").unwrap();
        assert!(waits.join().unwrap());
    });
}

#[test]
fn a_budget_is_never_exceeded_when_its_units_move() {
    const PERIOD: Duration = Duration::from_millis(600);
    const PATIENCE: Duration = Duration::from_millis(20);
    let (engine, slots) = (engine(), 4);
    let budget = || vec![Share::new("key-0", 0).units(2).leases_per_unit(2).period(PERIOD)];
    let (one, two) = (keys(), keys());
    let a = join("a", &engine, &one, budget(), 2);
    // Uses it for so long at least, and until that is so.
    let use_up = |keys: &Keys, cluster: &Cluster<Key>, time: Duration, is_so: &dyn Fn(usize) -> bool| {
        let (mut uses, began) = (Vec::new(), Instant::now());
        while began.elapsed() < time || !is_so(uses.len()) {
            assert!(began.elapsed() < Duration::from_secs(60), "only {} uses", uses.len());
            let Ok(lease) = keys.request().timeout(PATIENCE).wait_owned() else { continue };
            uses.push(Instant::now());
            cluster.spend(lease);
        }
        uses
    };
    until("a unit", || one.stats().available > 0);
    let mut uses = use_up(&one, &a, PERIOD * 3, &|here| here > slots);
    let b = join("b", &engine, &two, budget(), 2);
    // One of them goes over, when its leases are back; and then the other, though its leases have been a moment ago.
    let (there_already, alone) = (AtomicUsize::new(0), AtomicUsize::new(usize::MAX));
    let both = std::thread::scope(|scope| {
        let there = scope.spawn(|| {
            use_up(&two, &b, PERIOD * 8, &|there| {
                there_already.store(there, Ordering::SeqCst);
                // All slots, since the other one has gone.
                there > alone.load(Ordering::SeqCst).saturating_add(slots)
            })
        });
        uses.extend(use_up(&one, &a, PERIOD * 4, &|_| there_already.load(Ordering::SeqCst) >= slots / 2));
        drop(a);
        until("both are there", || b.stats().lendable == 2);
        alone.store(there_already.load(Ordering::SeqCst), Ordering::SeqCst);
        there.join().unwrap()
    });
    uses.extend(both);
    uses.sort();
    for pair in uses.windows(slots + 1) {
        let time = pair[slots] - pair[0];
        assert!(time >= PERIOD, "{slots} uses and one more in {time:?}");
    }
}

/// A lease that is spent comes back a period after that, however long its use took, and whatever `max_hold` says of leases that go on.
#[test]
fn a_spent_lease_is_not_overdue_before_its_period_is_over() {
    const PERIOD: Duration = Duration::from_millis(2_500);
    const USE: Duration = Duration::from_millis(500);
    let engine = engine();
    // Less than a use and its period, and more than a use by what a busy machine takes.
    let builder = Scheduler::<Key>::builder().max_hold(PERIOD + USE * 3 / 5).overdue(Overdue::Revoke);
    let keys: Keys = Arc::new(builder.build().unwrap());
    let cluster = join("a", &engine, &keys, vec![Share::new("key-0", 0).period(PERIOD)], 1);
    until("a unit", || keys.stats().available == 1);
    for _ in 0..2 {
        let lease = keys.request().timeout(PERIOD * 20).wait_owned().unwrap();
        std::thread::sleep(USE);
        assert!(!lease.is_revoked(), "a busy machine");
        let used = Instant::now();
        cluster.spend(lease);
        let again = keys.request().timeout(PERIOD * 20).wait_owned().unwrap();
        assert!(used.elapsed() >= PERIOD, "the next use after {:?}", used.elapsed());
        drop(again);
    }
    assert_eq!(keys.stats().overdue, 0);
}

/// A lease that is taken back frees its use: not before the period is over, even if it was used at once.
#[test]
fn a_budget_needs_leases_that_may_be_out_for_longer_than_its_period() {
    const PERIOD: Duration = Duration::from_millis(600);
    let engine = engine();
    let start = |max_hold: Duration, overdue: Overdue| {
        let keys: Keys = Arc::new(Scheduler::builder().max_hold(max_hold).overdue(overdue).build().unwrap());
        let budget = [Share::new("key-0", 0), Share::new("key-1", 1).period(PERIOD)];
        let builder = Cluster::builder("a").terms(Terms::new(TTL)).shares(budget);
        builder.start(engine.connect(), &keys, make).map(drop)
    };
    let error = start(PERIOD, Overdue::Revoke).unwrap_err();
    assert!(
        matches!(&error, StartError::MaxHold { name, period, max_hold }
            if &**name == "key-1" && (*period, *max_hold) == (PERIOD, PERIOD)),
        "{error:?}"
    );
    let text = error.to_string();
    assert!(
        text.contains("\"key-1\"") && text.contains("600ms") && text.contains("Overdue::Report"),
        "{text}"
    );
    start(PERIOD + Duration::from_millis(1), Overdue::Revoke).unwrap();
    start(Duration::from_millis(1), Overdue::Report).unwrap();
}

#[test]
fn ids_belong_to_members_by_weight_and_move_only_with_their_member() {
    const IDS: u32 = 4_000;
    let engine = engine();
    let weights = [("a", 1), ("b", 2), ("c", 3)];
    let clusters = weights.map(|(name, weight)| {
        let builder = Cluster::builder(name).terms(Terms::new(TTL)).shares(fleet(3, 1)).weight(weight);
        builder.start(engine.connect(), &keys(), make).unwrap()
    });
    let seen = |cluster: &Cluster<Key>| {
        let members = cluster.members();
        members.iter().map(|view| (view.member.to_string(), view.line.weight)).collect::<Vec<_>>()
    };
    let all: Vec<_> = weights.map(|(name, weight)| (name.to_owned(), weight)).into();
    until("all see all", || clusters.iter().all(|cluster| seen(cluster) == all));
    let owners = |cluster: &Cluster<Key>| -> Vec<String> {
        (0..IDS).map(|id| cluster.member_for(&id).unwrap().to_string()).collect()
    };
    let before = owners(&clusters[0]);
    assert!(clusters.iter().all(|cluster| owners(cluster) == before), "all say the same");
    for (name, weight) in weights {
        let share = before.iter().filter(|owner| *owner == name).count() as f64;
        let fair = f64::from(IDS * weight) / 6.0;
        // Six standard deviations of a binomial share, at most.
        assert!((share - fair).abs() <= 6.0 * (f64::from(IDS) / 4.0).sqrt(), "{name}: {share} of {fair}");
    }
    let [a, b, c] = clusters;
    drop(c);
    until("both see both", || [&a, &b].iter().all(|cluster| seen(cluster) == all[..2]));
    let after = owners(&a);
    assert_eq!(after, owners(&b));
    let mut heirs = [0.0_f64; 2];
    for (before, after) in before.iter().zip(&after) {
        if before == "c" {
            heirs[usize::from(after == "b")] += 1.0;
        } else {
            assert_eq!(before, after, "only what was the other's moves");
        }
    }
    // And that goes to both, by their weights.
    let (left, third) = (heirs[0] + heirs[1], (heirs[0] + heirs[1]) / 3.0);
    assert!((heirs[0] - third).abs() <= 6.0 * (left / 4.0).sqrt(), "{heirs:?}");
}

#[test]
fn whoever_drains_everything_gives_it_to_others() {
    let engine = engine();
    let (one, two) = (keys(), keys());
    let a = join("a", &engine, &one, fleet(4, 1), 4);
    let b = join("b", &engine, &two, fleet(4, 1), 4);
    until("two each", || one.stats().available == 2 && two.stats().available == 2);
    assert_eq!(one.drain_all_timeout(Duration::from_secs(60)).leases(), 0);
    until("the other has all", || two.stats().available == 4);
    assert!(a.stats().live, "it is a member all the same");
    one.undrain_all();
    until("two each again", || one.stats().available == 2 && two.stats().available == 2);
    two.close();
    until("it is closed", || one.stats().available == 4);
    until("and says so", || b.stats().held == 0);
}

#[test]
fn whoever_drains_a_resource_gives_it_to_others() {
    let engine = engine();
    let (one, two) = (keys(), keys());
    let a = join("a", &engine, &one, fleet(1, 4), 4);
    let b = join("b", &engine, &two, fleet(1, 4), 4);
    until("two each", || one.stats().available == 2 && two.stats().available == 2);
    let lease = one.acquire().unwrap();
    a.drain("key-0").unwrap();
    until("what is not in use goes", || two.stats().available == 3);
    assert!(!lease.is_revoked(), "it has time");
    assert!(one.acquire().is_err(), "nothing more is lent");
    drop(lease);
    until("the other has all", || two.stats().available == 4);
    until("and nothing is here", || one.get("key-0").is_none() && a.stats().held == 0);
    // Nor is it claimed again, though it is needed.
    assert!(one.acquire_timeout(Duration::from_secs(2)).is_err());
    assert!(a.stats().live && a.stats().held == 0 && two.stats().available == 4);
    a.undrain("key-0").unwrap();
    until("two each again", || one.stats().available == 2 && two.stats().available == 2);
    // What everybody has given up is free, and whoever wants it again has all of it.
    a.drain("key-0").unwrap();
    b.drain("key-0").unwrap();
    until("nobody has it", || a.stats().held == 0 && b.stats().held == 0);
    b.undrain("key-0").unwrap();
    until("one has all", || two.stats().available == 4);
    assert!(matches!(a.drain("nothing"), Err(KeyError::NotFound { .. })));
}

#[cfg(feature = "prometheus")]
#[test]
fn every_figure_is_exported() {
    let (engine, keys) = (engine(), keys());
    let cluster = join("a", &engine, &keys, fleet(2, 3), 6);
    let collector = leasehold::cluster::ClusterCollector::new();
    collector.watch(&cluster);
    let mut registry = prometheus_client::registry::Registry::default();
    registry.register_collector(Box::new(collector));
    until("all six units", || keys.stats().available == 6);
    until("they are seen", || cluster.stats().held == 6);
    let lease = keys.acquire().unwrap();
    let before = cluster.stats();
    engine.set_reachable(false);
    until("they are lost", || cluster.stats().losses >= before.losses + 6 && cluster.stats().failures > 0);
    assert!(lease.is_revoked());
    let text = leasehold::prometheus::text(&registry).unwrap();
    let stats = cluster.stats();
    let value = |name: &str| -> f64 {
        let start = format!("leasehold_cluster_{name}{{member=\"a\"}} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&start));
        line.unwrap_or_else(|| panic!("{start} is not in {text}")).parse().unwrap()
    };
    for name in ["connected", "live", "suspended", "units_held", "units_lendable", "units_reinstated_total"] {
        assert_eq!(value(name), 0.0, "{name}");
    }
    assert_eq!((value("hears_news"), value("namesakes")), (1.0, 0.0));
    for name in ["epochs_total", "leases_outlived_total", "faults_total"] {
        assert_eq!(value(name), 0.0, "{name}");
    }
    assert_eq!(value("units_claimed_total"), before.claimed as f64);
    assert_eq!(value("units_lost_total"), before.losses as f64 + 6.0);
    assert_eq!(value("units_returned_total"), 0.0);
    assert_eq!(value("leases_revoked_total"), 1.0);
    assert_eq!(value("members"), 1.0);
    assert!(value("units_free") <= 6.0 && (0.0..=1.0).contains(&value("imbalance")));
    assert!(value("renewals_total") >= 1.0 && value("renewals_total") <= stats.renewals as f64);
    assert!(value("requests_total") > value("renewals_total"));
    assert!(value("request_failures_total") >= 1.0);
    let sum = value("request_seconds_count");
    assert!(sum >= value("renewals_total") && value("request_seconds_sum") >= 0.0);
    assert!(text.contains("leasehold_cluster_request_seconds_bucket{le=\"+Inf\",member=\"a\"}"), "{text}");
}

/// What a thread has a key call, once.
type Hook = std::cell::Cell<Option<Box<dyn FnOnce()>>>;

thread_local! {
    static ON_HASH: Hook = const { Hook::new(None) };
    static ON_EQ: Hook = const { Hook::new(None) };
    static ON_CLONE: Hook = const { Hook::new(None) };
}

const HOOKS: [&std::thread::LocalKey<Hook>; 3] = [&ON_HASH, &ON_EQ, &ON_CLONE];

fn call(hook: &'static std::thread::LocalKey<Hook>) {
    if let Some(hook) = hook.take() {
        hook();
    }
}

/// A key whose callbacks call what is hooked into them.
#[derive(Debug)]
struct Hooked(u64);

impl std::hash::Hash for Hooked {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        call(&ON_HASH);
        self.0.hash(state);
    }
}

impl PartialEq for Hooked {
    fn eq(&self, other: &Self) -> bool {
        call(&ON_EQ);
        self.0 == other.0
    }
}

impl Eq for Hooked {}

impl Clone for Hooked {
    fn clone(&self) -> Self {
        call(&ON_CLONE);
        Hooked(self.0)
    }
}

type HookedKeys = Arc<Scheduler<Entry<Hooked, u64, ()>>>;

fn hooked(units: u64) -> (HookedKeys, Cluster<Entry<Hooked, u64, ()>>) {
    let keys: HookedKeys = Arc::new(Scheduler::builder().max_hold(Duration::from_secs(60)).build().unwrap());
    let cluster = Cluster::builder("a")
        .terms(Terms::new(TTL).floor(units as u32))
        .shares(fleet(units, 1))
        .start(MemoryEngine::new(), &keys, |share, _| Entry::new(Hooked(share.rank), share.rank, ()))
        .unwrap();
    until("all units", || keys.stats().available == units);
    (keys, cluster)
}

#[test]
fn a_key_that_panics_while_a_fence_is_made_leaves_no_lease_bound() {
    let (keys, cluster) = hooked(1);
    let mut panics = 0;
    for hook in HOOKS {
        let mut lease = keys.acquire().unwrap();
        // Not one of those that the scheduler makes for this.
        let _ = lease.token();
        hook.set(Some(Box::new(|| panic!("by the test"))));
        let fence = std::panic::AssertUnwindSafe(|| cluster.fence(&mut lease).map(drop));
        panics += u32::from(std::panic::catch_unwind(fence).is_err());
        hook.set(None);
    }
    assert!(panics >= 2, "the key is looked up");
    // A unit that a fence names would stay.
    cluster.drain("key-0").unwrap();
    until("it is given back", || cluster.stats().held == 0);
}

#[test]
fn a_key_may_ask_for_a_fence_while_one_is_made() {
    for hook in HOOKS {
        let (keys, cluster) = hooked(2);
        let (mut one, mut two) = (keys.acquire_owned().unwrap(), keys.acquire_owned().unwrap());
        let (done, told) = std::sync::mpsc::channel();
        // It may be stuck for ever: nobody joins it then.
        std::thread::spawn(move || {
            let _ = (one.token(), two.token());
            let cluster = Arc::new(cluster);
            let inner = Arc::clone(&cluster);
            hook.set(Some(Box::new(move || drop(inner.fence_owned(&mut two).unwrap()))));
            let fence = cluster.fence_owned(&mut one).unwrap();
            let was_called = hook.take().is_none();
            done.send((fence.check().is_ok(), was_called)).unwrap();
        });
        let (is_good, was_called) = told.recv_timeout(Duration::from_secs(30)).expect("it is stuck");
        assert!(is_good && (was_called || std::ptr::eq(hook, &ON_CLONE)), "no key is cloned");
    }
}

/// A key that counts its clones.
#[derive(Debug)]
struct Cloned(Arc<AtomicU64>);

impl std::hash::Hash for Cloned {
    fn hash<H: std::hash::Hasher>(&self, _: &mut H) {}
}

impl PartialEq for Cloned {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Cloned {}

impl Clone for Cloned {
    fn clone(&self) -> Self {
        self.0.fetch_add(1, Ordering::Relaxed);
        Cloned(Arc::clone(&self.0))
    }
}

/// While fences keep units that are to leave, the cluster's thread looks at the leases that they name, again and again, and at no others: a look at all
/// clones the key of each.
#[test]
fn units_that_fences_keep_cost_no_look_at_all_leases() {
    let keys: Arc<Scheduler<Entry<Cloned, u64, ()>>> =
        Arc::new(Scheduler::builder().max_hold(Duration::from_secs(60)).build().unwrap());
    let clones = Arc::new(AtomicU64::new(0));
    let counts = Arc::clone(&clones);
    let cluster = Cluster::builder("a")
        .terms(Terms::new(TTL).floor(8))
        .shares([Share::new("key", 1).units(8).leases_per_unit(10)])
        .start(engine().connect(), &keys, move |share, units| {
            let leases = Capacity::Limited(units * share.leases_per_unit);
            Entry::new(Cloned(Arc::clone(&counts)), share.rank, ()).with_capacity(leases)
        })
        .unwrap();
    until("all units", || cluster.stats().lendable == 8);
    let mut leases: Vec<_> = (0..80).map(|_| keys.acquire_timeout(TTL).unwrap()).collect();
    let fences: Vec<_> = leases.iter_mut().map(|lease| cluster.fence(lease).unwrap()).collect();
    // Five of ten on each unit go on.
    let mut number = 0;
    leases.retain(|_| {
        number += 1;
        number % 2 == 0
    });
    number = 0;
    let mut ended = Vec::new();
    let kept: Vec<_> = fences
        .into_iter()
        .filter_map(|fence| {
            number += 1;
            if number % 2 == 0 {
                return Some(fence);
            }
            ended.push(fence);
            None
        })
        .collect();
    drop(ended);
    cluster.drain("key").unwrap();
    until("it lends nothing", || cluster.stats().lendable == 0);
    let before = clones.load(Ordering::Relaxed);
    std::thread::sleep(Duration::from_millis(250));
    let looked_at = clones.load(Ordering::Relaxed) - before;
    assert_eq!((cluster.stats().held, looked_at), (8, 0));
    // As soon as fences end the units leave.
    drop(kept);
    drop(leases);
    until("it is given back", || cluster.stats().held == 0);
}

#[cfg(feature = "prometheus")]
#[test]
fn members_of_one_name_in_two_fleets_are_exported_both() {
    use leasehold::cluster::{EngineError, HoldNote};

    struct Named(MemoryEngine, &'static str);

    impl Engine for Named {
        fn call(&mut self, request: &Request, patience: Duration) -> Result<Reply, EngineError> {
            self.0.call(request, patience)
        }

        fn news(&mut self) -> Vec<HoldNote> {
            self.0.news()
        }

        fn fleet(&self) -> Option<Arc<str>> {
            Some(self.1.into())
        }
    }

    let collector = leasehold::cluster::ClusterCollector::new();
    let mut registry = prometheus_client::registry::Registry::default();
    registry.register_collector(Box::new(collector.clone()));
    let start = |fleet_name, units: u32| {
        let keys = keys();
        let cluster = Cluster::builder("host-7")
            .terms(Terms::new(TTL).floor(units))
            .shares(fleet(1, units))
            .start(Named(MemoryEngine::new(), fleet_name), &keys, make)
            .unwrap();
        until("all units", || cluster.stats().held == units);
        collector.watch(&cluster);
        cluster
    };
    let series = || -> Vec<String> {
        let text = leasehold::prometheus::text(&registry).unwrap();
        let lines = text.lines().filter_map(|line| line.strip_prefix("leasehold_cluster_units_held"));
        lines.map(str::to_owned).collect()
    };
    let (one, two) = (start("keys", 1), start("models", 2));
    let both = [r#"{fleet="keys",member="host-7"} 1.0"#, r#"{fleet="models",member="host-7"} 2.0"#];
    assert_eq!(series(), both);
    // Watched again it is no other one.
    collector.watch(&two);
    assert_eq!(series(), both);
    // A later life of the same member is in its place, while the earlier one is kept somewhere.
    one.close(Duration::ZERO);
    let later = start("keys", 3);
    assert_eq!(series(), [both[1], r#"{fleet="keys",member="host-7"} 3.0"#]);
    drop((one, later));
}

/// A clock that counts how often it is read.
struct Counted(MonotonicClock, Arc<AtomicU64>);

impl Clock for Counted {
    fn now(&self) -> Timestamp {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.now()
    }
}

#[test]
fn a_lease_that_nobody_ever_picks_up_keeps_the_keeper_busy_for_a_while_only() {
    let (engine, keys, reads) = (engine(), keys(), Arc::new(AtomicU64::new(0)));
    let cluster = Cluster::builder("a")
        .terms(Terms::new(TTL))
        .shares(fleet(1, 1))
        .clock(Counted(MonotonicClock::new(), Arc::clone(&reads)))
        .start(engine.connect(), &keys, make)
        .unwrap();
    until("a unit", || keys.stats().available == 1);
    let first = keys.acquire().unwrap();
    let mut second = Box::pin(keys.acquire_async());
    assert!(second.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(first);
    engine.set_reachable(false);
    until("the claim is lost", || cluster.stats().losses == 1);
    // In a turn it reads its clock a few times: 40 turns in a second, and not a thousand.
    until("it is at its pace", || {
        let (before, began) = (reads.load(Ordering::Relaxed), Instant::now());
        std::thread::sleep(Duration::from_secs(1));
        let read = reads.load(Ordering::Relaxed) - before;
        (read as f64) < 500.0 * began.elapsed().as_secs_f64()
    });
    drop(second);
}

/// An engine that denies that a unit is its member's.
struct Denies(MemoryEngine, Arc<std::sync::Mutex<Option<leasehold::cluster::Unit>>>);

impl Engine for Denies {
    fn call(
        &mut self,
        request: &Request,
        patience: Duration,
    ) -> Result<Reply, leasehold::cluster::EngineError> {
        let denied = self.1.lock().unwrap().clone();
        let mut reply = self.0.call(request, patience)?;
        if let Some(unit) = denied {
            match (request, &mut reply) {
                (Request::Owned { .. }, Reply::Claims(claims)) => claims.retain(|claim| claim.unit != unit),
                // It asks what it owns.
                (_, Reply::Renewed(view)) => view.owned += 1,
                _ => {}
            }
        }
        Ok(reply)
    }

    fn news(&mut self) -> Vec<leasehold::cluster::HoldNote> {
        self.0.news()
    }
}

#[test]
fn a_lease_that_is_bound_to_a_unit_that_stays_is_revoked_last() {
    let (engine, keys) = (engine(), keys());
    let denied = Arc::default();
    let cluster = Cluster::builder("a")
        .terms(Terms::new(TTL).floor(2))
        .shares(fleet(1, 2))
        .start(Denies(engine.connect(), Arc::clone(&denied)), &keys, make)
        .unwrap();
    until("two units", || keys.stats().available == 2);
    let mut older = keys.acquire().unwrap();
    let fence = cluster.fence(&mut older).unwrap();
    // Its record, so that it is the younger one.
    let mut younger = keys.acquire().unwrap();
    let _ = younger.token();
    let other = leasehold::cluster::Unit { index: 1 - fence.unit().index, ..fence.unit().clone() };
    *denied.lock().unwrap() = Some(other);
    until("one is lost", || cluster.stats().losses == 1 && cluster.stats().revoked == 1);
    assert!(!older.is_revoked() && fence.check().is_ok(), "its unit is still there");
    assert!(younger.is_revoked());
}

/// Where a callback finds the cluster that calls it.
type Kept = Arc<std::sync::Mutex<Option<Arc<Cluster<Key>>>>>;

/// A cluster whose `make`, from the second unit on, does something with it, in the cluster's thread.
fn with_itself(
    engine: &MemoryEngine,
    keys: &Keys,
    does: impl Fn(Arc<Cluster<Key>>) + Send + 'static,
) -> (Kept, Arc<AtomicBool>) {
    let (kept, done) = (Kept::default(), Arc::new(AtomicBool::new(false)));
    let cluster = Cluster::builder("a").terms(Terms::new(TTL).floor(1)).shares(fleet(1, 2));
    let cluster = cluster.start(engine.connect(), keys, {
        let (kept, done) = (Arc::clone(&kept), Arc::clone(&done));
        move |share, units| {
            let cluster = if units == 2 { kept.lock().unwrap().take() } else { None };
            if let Some(cluster) = cluster {
                does(cluster);
                done.store(true, Ordering::SeqCst);
            }
            make(share, units)
        }
    });
    *kept.lock().unwrap() = Some(Arc::new(cluster.unwrap()));
    until("a unit", || keys.stats().available == 1);
    (kept, done)
}

#[test]
fn a_cluster_may_be_closed_in_its_own_thread() {
    let (engine, keys) = (engine(), keys());
    let (kept, done) = with_itself(&engine, &keys, |cluster| {
        cluster.close(Duration::from_secs(600));
    });
    let cluster = Arc::clone(kept.lock().unwrap().as_ref().unwrap());
    let lease = keys.acquire().unwrap();
    cluster.expect_units(2);
    until("`make` has closed it", || done.load(Ordering::SeqCst));
    until("it has ended", || lease.is_revoked() && keys.acquire().is_err());
    // From elsewhere, once more.
    assert!(!cluster.close(Duration::from_secs(60)).told);
}

#[test]
fn the_last_of_a_cluster_may_be_dropped_in_its_own_thread() {
    let (engine, keys) = (engine(), keys());
    let (kept, done) = with_itself(&engine, &keys, drop);
    let lease = keys.acquire().unwrap();
    let cluster = Arc::downgrade(kept.lock().unwrap().as_ref().unwrap());
    cluster.upgrade().unwrap().expect_units(2);
    until("`make` has dropped it", || done.load(Ordering::SeqCst));
    until("it has ended", || lease.is_revoked() && keys.acquire().is_err());
}

/// A key whose hash panics once in the cluster's thread, when it is armed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Armed(u64);

static ARMED: AtomicBool = AtomicBool::new(false);

impl std::hash::Hash for Armed {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        if std::thread::current().name() == Some("leasehold-keeper") && ARMED.swap(false, Ordering::SeqCst) {
            panic!("by the test");
        }
        self.0.hash(state);
    }
}

#[test]
fn a_callback_that_panics_in_the_cluster_s_thread_ends_it_with_nothing_lent() {
    type Entries = Scheduler<Entry<Armed, u64, ()>>;
    let engine = engine();
    let keys: Arc<Entries> =
        Arc::new(Scheduler::builder().max_hold(Duration::from_secs(60)).build().unwrap());
    let cluster = Cluster::builder("a")
        .terms(Terms::new(TTL))
        .shares(fleet(1, 1))
        .start(engine.connect(), &keys, |share, _| Entry::new(Armed(share.rank), share.rank, ()))
        .unwrap();
    until("a unit", || keys.stats().available == 1);
    let mut lease = keys.acquire().unwrap();
    let fence = cluster.fence(&mut lease).unwrap();
    ARMED.store(true, Ordering::SeqCst);
    cluster.exclude("key-0").unwrap();
    until("it has ended", || matches!(cluster.exclude("key-0"), Err(KeyError::Closed)));
    let stats = cluster.stats();
    assert!(
        stats.last_error.as_ref().is_some_and(|error| error.contains("a callback has panicked")),
        "{stats:?}"
    );
    assert_eq!((stats.live, stats.held, stats.lendable), (false, 0, 0), "{stats:?}");
    assert!(lease.is_revoked() && keys.acquire().is_err());
    assert_eq!(fence.check(), Err(Lost));
    // Its session ends by itself; the hold may have been told, and may not.
    let other_keys = self::keys();
    let other = join("b", &engine, &other_keys, fleet(1, 1), 1);
    other.include("key-0").unwrap();
    until("another one has its unit", || other.stats().held == 1);
}
