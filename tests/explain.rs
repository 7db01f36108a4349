//! Why this one, and why not the others: as a struct, and as it is serialized.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::{
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use leasehold::{
    AcquireError, AcquireKeyError, Affinity, Capacity, Ejection, Entry, ManualClock, Outcome, Scheduler,
    SelectShard, ShardView, SplitMix64, Standing, Strategy, Why,
};
use serde_json::{Value, json};

type Fleet = Scheduler<Entry<&'static str, u32, ()>>;

fn fleet(shards: usize, members: &[(&'static str, u32)]) -> Fleet {
    let fleet = Fleet::builder().shards(shards).build().expect("in range");
    for &(key, rank) in members {
        fleet.insert(Entry::new(key, rank, ())).expect("new");
    }
    fleet
}

#[test]
fn each_obstacle_is_named() {
    let fleet = fleet(1, &[("best", 1), ("worse", 3), ("out", 0), ("cooling", 0), ("both", 0)]);
    let _out = fleet.acquire_key(&"out").expect("free");
    fleet.cool(&"cooling", Duration::from_secs(3_600)).expect("there");
    fleet.cool(&"both", Duration::from_secs(3_600)).expect("there");
    fleet.exclude(&"both").expect("there");
    let (lease, explanation) = fleet.acquire_explained();
    assert_eq!(*lease.expect("free").key(), "best");
    assert!(explanation.consistent);
    let json = serde_json::to_value(&explanation).expect("plain data");
    assert_eq!(json["lent"], "best");
    let why = |key: &str| {
        let candidates = json["candidates"].as_array().expect("a list");
        let one = candidates.iter().find(|one| one["state"]["key"] == key).expect("everybody is there");
        one["why"].clone()
    };
    assert_eq!(why("best"), "lent");
    assert_eq!(why("worse"), "outranked");
    assert_eq!(why("out"), json!({ "not_eligible": "at_capacity" }));
    assert_eq!(why("cooling"), json!({ "not_eligible": "cooling" }));
    // The heavier of two is named; the state has both.
    assert_eq!(why("both"), json!({ "not_eligible": "excluded" }));
    let both =
        json["candidates"].as_array().expect("a list").iter().find(|one| one["state"]["key"] == "both");
    assert!(both.expect("there")["state"].to_string().contains("cool"), "{both:?}");
}

/// Whoever reads the trace sees until when, on the clock that is in it.
#[test]
fn deadlines_are_in_the_trace() {
    let clock = Arc::new(ManualClock::new());
    let rules = Ejection::default().consecutive_failures(1).max_share(50).jitter(0);
    let builder = Fleet::builder().shards(1).clock(clock.clone()).ejection(rules);
    let fleet = builder.build().expect("in range");
    for key in ["free", "cools", "ejected", "both", "by hand", "drains", "lent"] {
        fleet.insert(Entry::new(key, 0, ())).expect("new");
    }
    let second = 1_000_000_000u64;
    clock.advance(Duration::from_secs(5));
    fleet.cool(&"cools", Duration::from_secs(7)).expect("there");
    for key in ["ejected", "both"] {
        fleet.acquire_key(&key).expect("free").finish(Outcome::Failed);
    }
    fleet.cool(&"both", Duration::from_secs(60)).expect("there");
    assert!(fleet.eject(&"by hand").expect("there"));
    assert!(fleet.drain(&"drains").expect("there"));
    fleet.cool(&"drains", Duration::from_secs(8)).expect("there");
    let _lent = fleet.acquire_key(&"lent").expect("free");
    let (lease, explanation) = fleet.acquire_explained();
    assert_eq!(*lease.expect("one is left").key(), "free");
    assert_eq!(explanation.now, 5 * second);
    let json = serde_json::to_value(&explanation).expect("plain data");
    let expected = [
        ("free", Why::Lent, [None, None, Some(0)]),
        ("cools", Why::NotEligible(Standing::Cooling), [Some(12), None, Some(12)]),
        ("ejected", Why::NotEligible(Standing::Ejected), [None, Some(35), Some(35)]),
        // The later of the two.
        ("both", Why::NotEligible(Standing::Ejected), [Some(65), Some(35), Some(65)]),
        // These take somebody, whatever else has a deadline.
        ("by hand", Why::NotEligible(Standing::Ejected), [None, None, None]),
        ("drains", Why::NotEligible(Standing::Draining), [Some(13), None, None]),
        ("lent", Why::NotEligible(Standing::AtCapacity), [None, None, None]),
    ];
    assert_eq!(explanation.candidates.len(), expected.len());
    for (key, why, deadlines) in expected {
        let deadlines = deadlines.map(|seconds| seconds.map(|seconds| seconds * second));
        let one = explanation.candidates.iter().find(|one| one.state.key == key).expect("there");
        let state = &one.state;
        assert_eq!(one.why, why, "{key}");
        assert_eq!([state.cooling_until, state.ejected_until, state.ready_at], deadlines, "{key}");
        let written = json["candidates"].as_array().expect("a list").iter();
        let state = &written.clone().find(|one| one["state"]["key"] == key).expect("there")["state"];
        let words = ["cooling_until", "ejected_until", "ready_at"].map(|word| state[word].as_u64());
        assert_eq!(words, deadlines, "{key}, as it is written");
    }
    // They come true.
    clock.advance(Duration::from_secs(30));
    let (_, explanation) = fleet.acquire_explained();
    let why = |key| why(&explanation, key);
    assert_eq!(why("both"), Why::NotEligible(Standing::Cooling), "its ejection is over");
    assert!(
        [why("cools"), why("ejected")].iter().all(|why| matches!(why, Why::Lent | Why::Tied)),
        "{explanation:?}"
    );
    assert_eq!(why("drains"), Why::NotEligible(Standing::Draining));
}

#[test]
fn what_is_due_does_not_stand_in_the_way_however_much_it_is() {
    let clock = Arc::new(ManualClock::new());
    let fleet =
        Scheduler::<Entry<u32, u32, ()>>::builder().shards(1).clock(clock.clone()).build().expect("in range");
    for key in 0..100 {
        fleet.insert(Entry::new(key, key, ())).expect("new");
        fleet.cool(&key, Duration::from_secs(1)).expect("there");
    }
    clock.advance(Duration::from_secs(1));
    let (lease, explanation) = fleet.acquire_explained();
    assert_eq!(*lease.expect("all are due").key(), 0);
    assert_eq!(explanation.candidates.iter().filter(|one| one.why == Why::Outranked).count(), 99);
}

#[test]
fn nothing_lent_is_explained_as_well() {
    let fleet = fleet(2, &[("a", 0), ("b", 1)]);
    fleet.exclude(&"a").expect("there");
    fleet.exclude(&"b").expect("there");
    let (lease, explanation) = fleet.acquire_explained();
    assert!(lease.is_err());
    assert_eq!(explanation.lent, None);
    assert!(explanation.candidates.iter().all(|one| matches!(one.why, Why::NotEligible(_))));
    assert_eq!(serde_json::to_value(&explanation).expect("plain data")["lent"], Value::Null);
}

#[test]
fn equals_wait_for_their_turn_and_better_ones_elsewhere_are_named() {
    let fleet = fleet(4, &[("a", 5), ("b", 5), ("c", 5), ("d", 5), ("e", 4), ("f", 3), ("g", 2), ("h", 1)]);
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..200 {
        let (lease, explanation) = fleet.acquire_explained();
        let lease = lease.expect("free");
        let lent = explanation.candidates.iter().find(|one| one.why == Why::Lent).expect("one was lent");
        assert_eq!(lent.state.key, *lease.key());
        for one in &explanation.candidates {
            let expected = match one.state.rank.cmp(&lent.state.rank) {
                _ if one.state.key == lent.state.key => Why::Lent,
                std::cmp::Ordering::Greater => Why::Outranked,
                std::cmp::Ordering::Equal => Why::Tied,
                std::cmp::Ordering::Less => Why::AnotherShard,
            };
            assert_eq!(one.why, expected, "{explanation:?}");
            seen.insert(format!("{:?}", one.why));
        }
        // All of them in turn.
        lease.release_after(Duration::from_nanos(1));
    }
    assert!(seen.contains("Lent") && seen.contains("Outranked"), "{seen:?}");
}

fn why(explanation: &leasehold::Explanation<&'static str>, key: &str) -> Why {
    explanation.candidates.iter().find(|one| one.state.key == key).expect("everybody is there").why
}

#[test]
fn of_equals_the_other_one_is_tied() {
    let fleet = fleet(1, &[("a", 5), ("b", 5), ("c", 6)]);
    let (lease, explanation) = fleet.acquire_explained();
    let other = if *lease.expect("free").key() == "a" { "b" } else { "a" };
    assert_eq!((why(&explanation, other), why(&explanation, "c")), (Why::Tied, Why::Outranked));
}

type Call = Box<dyn FnOnce() + Send>;

/// Key and rank, the best first.
type Members = Vec<(&'static str, u64)>;

/// Chooses the shard that it is told to, and calls somebody just before.
#[derive(Clone, Default)]
struct Told {
    shard: Arc<AtomicUsize>,
    before: Arc<Mutex<Option<Call>>>,
}

impl SelectShard for Told {
    fn select(&self, _: &dyn ShardView, _: &mut SplitMix64) -> usize {
        let before = self.before.lock().expect("no panic").take();
        before.into_iter().for_each(|before| before());
        self.shard.load(SeqCst)
    }
}

/// Two shards and a strategy that obeys; each shard has a better and a worse one.
fn obeying() -> (Arc<Fleet>, Told, [Members; 2]) {
    let told = Told::default();
    let strategy = Strategy::Custom(Box::new(told.clone()));
    let fleet = Arc::new(Fleet::builder().shards(2).strategy(strategy).build().expect("in range"));
    for (key, rank) in [("a", 1), ("b", 2), ("c", 3), ("d", 4), ("e", 5), ("f", 6), ("g", 7), ("h", 8)] {
        fleet.insert(Entry::new(key, rank, ())).expect("new");
    }
    let mut members = [Vec::new(), Vec::new()];
    for state in fleet.snapshot() {
        members[state.shard].push((state.key, state.rank));
    }
    members.iter_mut().for_each(|shard| shard.sort_by_key(|one| one.1));
    assert!(members.iter().all(|shard| shard.len() >= 2), "each shard has some: {members:?}");
    (fleet, told, members)
}

#[test]
fn a_better_one_elsewhere_is_in_another_shard() {
    let (fleet, told, members) = obeying();
    let worse = usize::from(members[0][0].1 < members[1][0].1);
    told.shard.store(worse, SeqCst);
    let (lease, explanation) = fleet.acquire_explained();
    assert_eq!(*lease.expect("free").key(), members[worse][0].0);
    assert_eq!(why(&explanation, members[1 - worse][0].0), Why::AnotherShard);
}

#[test]
fn what_changes_between_look_and_acquisition_shows() {
    let (fleet, told, members) = obeying();
    let [best, next] = [members[0][0].0, members[0][1].0];
    let late: Weak<Fleet> = Arc::downgrade(&fleet);
    *told.before.lock().expect("no panic") = Some(Box::new(move || {
        let fleet = late.upgrade().expect("it acquires");
        assert!(fleet.exclude(&best).expect("there"));
    }));
    let (lease, explanation) = fleet.acquire_explained();
    assert_eq!(*lease.expect("free").key(), next);
    assert!(explanation.consistent, "nothing changed while it was read");
    assert_eq!((why(&explanation, best), why(&explanation, next)), (Why::Changed, Why::Lent));
}

#[test]
fn whoever_is_refused_is_told_so() {
    let (fleet, told, _) = obeying();
    told.shard.store(9, SeqCst);
    let (lease, explanation) = fleet.acquire_explained();
    assert!(lease.is_err());
    assert!(explanation.candidates.iter().all(|one| one.why == Why::Refused), "{explanation:?}");
    fleet.exclude(&"a").expect("there");
    fleet.close();
    let (lease, explanation) = fleet.acquire_explained();
    assert!(lease.is_err());
    assert!(matches!(why(&explanation, "a"), Why::NotEligible(_)), "that stands in the way as well");
    assert_eq!(why(&explanation, "b"), Why::Refused);
}

/// Everybody's reasons, by key.
fn whys(explanation: &leasehold::Explanation<&'static str>) -> std::collections::BTreeMap<&'static str, Why> {
    explanation.candidates.iter().map(|one| (one.state.key, one.why)).collect()
}

/// Where the lease is said to have begun must be the caller's line, not one of the library's.
#[test]
fn the_callers_place_is_kept() {
    let builder = Fleet::builder().shards(1).max_hold(Duration::from_secs(3_600));
    let fleet = builder.build().expect("in range");
    for key in ["a", "b", "c", "d", "e"] {
        fleet.insert(Entry::new(key, 0, ())).expect("new");
    }
    let from = line!();
    let leases = [
        fleet.acquire_explained().0.expect("free"),
        fleet.acquire_where_explained(|_| true).0.expect("free"),
        fleet.acquire_excluding_explained(&["nobody"]).0.expect("free"),
        fleet.acquire_by_affinity_explained(&7).0.expect("free"),
    ];
    let last = fleet.acquire_key_explained(leases[0].key()).0;
    assert!(matches!(last, Err(AcquireKeyError::NotEligible { .. })));
    let free = fleet.iter_keys().find(|key| leases.iter().all(|lease| lease.key() != key)).expect("one");
    let _last = fleet.acquire_key_explained(&free).0.expect("free");
    let places = fleet.leases();
    assert_eq!(places.len(), 5);
    for info in places {
        let place = info.call_site;
        assert!(place.file().ends_with("explain.rs") && place.file().starts_with("tests"), "{place}");
        assert!((from..line!()).contains(&place.line()), "{place}");
    }
}

#[test]
fn what_the_filter_refuses_is_not_wanted() {
    let fleet = fleet(1, &[("a", 0), ("b", 1), ("c", 2), ("d", 3), ("e", 4)]);
    let mut asked = Vec::new();
    let (lease, explanation) = fleet.acquire_where_explained(|entry| {
        asked.push(entry.key);
        entry.key >= "c"
    });
    assert_eq!((*lease.expect("free").key(), &asked[..]), ("c", &["a", "b", "c"][..]));
    // `d` and `e` were not asked about: better than they is enough.
    let expected = [
        ("a", Why::NotWanted),
        ("b", Why::NotWanted),
        ("c", Why::Lent),
        ("d", Why::Outranked),
        ("e", Why::Outranked),
    ];
    assert_eq!(whys(&explanation), expected.into());
    let json = serde_json::to_value(&explanation).expect("plain data");
    assert_eq!((&json["candidates"][0]["why"], &json["preferences"]), (&json!("not_wanted"), &json!([])));
    assert_eq!(json["published"], json!([0]), "what the one shard has to offer, whoever wants it");
    // Nobody is wanted: also who is asked about twice, and who could not be lent anyway, has one reason.
    fleet.exclude(&"b").expect("there");
    let (lease, explanation) = fleet.acquire_where_explained(|_| false);
    assert!(matches!(lease, Err(AcquireError::NoneEligible(_))));
    assert_eq!(explanation.candidates.len(), 5);
    assert!(explanation.candidates.iter().all(|one| one.why == Why::NotWanted), "{explanation:?}");
    assert!(explanation.candidates.iter().any(|one| one.state.standing == Standing::Excluded));
}

/// Nine that are refused are more than a shard offers at once: then everybody is asked about.
#[test]
fn a_filter_that_has_to_look_at_everybody_is_explained_as_well() {
    let fleet = Scheduler::<Entry<u32, u32, ()>>::builder().shards(2).build().expect("in range");
    for key in 0..40 {
        fleet.insert(Entry::new(key, key, ())).expect("new");
    }
    fleet.exclude(&35).expect("there");
    let (lease, explanation) = fleet.acquire_where_explained(|entry| entry.key >= 35);
    assert_eq!(*lease.expect("free").key(), 36);
    for one in &explanation.candidates {
        let expected = match one.state.key {
            0..35 => Why::NotWanted,
            35 => Why::NotEligible(Standing::Excluded),
            36 => Why::Lent,
            _ => Why::Outranked,
        };
        assert_eq!(one.why, expected, "{one:?}");
    }
}

#[test]
fn what_is_excluded_is_not_wanted() {
    let fleet = fleet(1, &[("a", 0), ("b", 1), ("c", 2), ("d", 3)]);
    let _held = fleet.acquire_key(&"d").expect("free");
    // `d` is not asked about; it is excluded all the same.
    let (lease, explanation) = fleet.acquire_excluding_explained(&["a", "d", "nobody"]);
    assert_eq!(*lease.expect("free").key(), "b");
    let expected = [("a", Why::NotWanted), ("b", Why::Lent), ("c", Why::Outranked), ("d", Why::NotWanted)];
    assert_eq!(whys(&explanation), expected.into());
    let (lease, explanation) = fleet.acquire_excluding_explained(&[]);
    assert_eq!(*lease.expect("free").key(), "a");
    assert_eq!(why(&explanation, "d"), Why::NotEligible(Standing::AtCapacity));
    let (lease, explanation) = fleet.acquire_excluding_explained(&["a", "b", "c"]);
    assert!(lease.is_err());
    assert_eq!(why(&explanation, "d"), Why::NotEligible(Standing::AtCapacity));
    assert_eq!(why(&explanation, "a"), Why::NotWanted);
}

#[test]
fn a_better_one_elsewhere_that_was_not_asked_about_is_in_another_shard() {
    let (fleet, told, members) = obeying();
    let worse = usize::from(members[0][0].1 < members[1][0].1);
    told.shard.store(worse, SeqCst);
    let [better, best_there, next] = [members[1 - worse][0], members[worse][0], members[worse][1]];
    let (lease, explanation) = fleet.acquire_excluding_explained(&[best_there.0]);
    assert_eq!(*lease.expect("free").key(), next.0);
    assert_eq!(
        (why(&explanation, better.0), why(&explanation, best_there.0)),
        (Why::AnotherShard, Why::NotWanted)
    );
    // What the strategy could have compared.
    let published = members.each_ref().map(|shard| Some(shard[0].1));
    assert_eq!(explanation.published, published);
}

#[test]
fn what_was_accepted_and_was_gone_by_then_has_changed() {
    let fleet = fleet(1, &[("a", 0), ("b", 1)]);
    let (lease, explanation) = fleet.acquire_where_explained(|entry| {
        if entry.key == "a" {
            fleet.exclude(&"a").expect("there");
        }
        true
    });
    assert_eq!(*lease.expect("the other one").key(), "b");
    assert_eq!(whys(&explanation), [("a", Why::Changed), ("b", Why::Lent)].into());
}

#[test]
fn whoever_asks_for_a_key_wants_nobody_else() {
    let fleet = fleet(2, &[("a", 0), ("b", 1), ("c", 2)]);
    let (lease, explanation) = fleet.acquire_key_explained(&"b");
    assert_eq!((*lease.expect("free").key(), explanation.lent), ("b", Some("b")));
    assert_eq!(whys(&explanation), [("a", Why::NotWanted), ("b", Why::Lent), ("c", Why::NotWanted)].into());
    let _held = fleet.acquire_key(&"b").expect("free");
    let (lease, explanation) = fleet.acquire_key_explained(&"b");
    assert!(matches!(lease, Err(AcquireKeyError::NotEligible { standing: Standing::AtCapacity, .. })));
    assert_eq!(why(&explanation, "b"), Why::NotEligible(Standing::AtCapacity));
    let (lease, explanation) = fleet.acquire_key_explained(&"nobody");
    assert!(matches!(lease, Err(AcquireKeyError::NotFound { .. })));
    assert!(explanation.candidates.iter().all(|one| one.why == Why::NotWanted), "{explanation:?}");
    fleet.close();
    let (lease, explanation) = fleet.acquire_key_explained(&"a");
    assert!(matches!(lease, Err(AcquireKeyError::Closed)));
    assert_eq!((why(&explanation, "a"), why(&explanation, "c")), (Why::Refused, Why::NotWanted));
}

#[test]
fn an_id_prefers_its_shard_whatever_is_elsewhere() {
    let builder = Scheduler::<Entry<u32, u32, ()>>::builder().shards(4);
    let fleet = builder.build().expect("in range");
    for key in 0..40 {
        fleet.insert(Entry::new(key, key, ())).expect("new");
    }
    for id in 0..20u32 {
        let (lease, explanation) = fleet.acquire_by_affinity_explained(&id);
        let lease = lease.expect("free");
        let order: Vec<_> = explanation.preferences.iter().map(|one| one.shard).collect();
        let mut all = order.clone();
        all.sort_unstable();
        assert_eq!((all, order[0]), (vec![0, 1, 2, 3], lease.shard()), "every shard, the id's own first");
        assert!(explanation.preferences.iter().all(|one| one.choices.is_empty()));
        for one in &explanation.candidates {
            let expected = match one.state.shard == lease.shard() {
                _ if one.state.key == *lease.key() => Why::Lent,
                true => Why::Outranked,
                false => Why::Affinity,
            };
            assert_eq!(one.why, expected, "{one:?}");
        }
        // Nothing is left there: the next shard of the id's order is another id's first, or nobody's.
        let here: Vec<u32> = explanation
            .candidates
            .iter()
            .filter(|one| one.state.shard == lease.shard())
            .map(|one| one.state.key)
            .collect();
        drop(lease);
        here.iter().for_each(|key| assert!(fleet.exclude(key).expect("there")));
        let (lease, explanation) = fleet.acquire_by_affinity_explained(&id);
        let lease = lease.expect("elsewhere");
        assert_eq!(lease.shard(), order[1]);
        for one in &explanation.candidates {
            let expected = match order.iter().position(|&shard| shard == one.state.shard) {
                Some(0) => Why::NotEligible(Standing::Excluded),
                _ if one.state.key == *lease.key() => Why::Lent,
                Some(1) => Why::Outranked,
                _ => Why::Affinity,
            };
            assert_eq!(one.why, expected, "{one:?}");
        }
        drop(lease);
        here.iter().for_each(|key| assert!(fleet.include(key).expect("there")));
    }
}

#[test]
fn an_id_keeps_its_resource_whatever_the_ranks() {
    let builder = Scheduler::<Entry<u32, u32, ()>>::builder().shards(2).affinity(Affinity::Resource);
    let fleet = builder.build().expect("in range");
    fleet.insert_batch((0..40).map(|key| Entry::new(key, key, ())).collect()).expect("new");
    let mut orders = std::collections::BTreeSet::new();
    for id in 0..20u32 {
        let mut leases = Vec::new();
        let (_, explanation) = fleet.acquire_by_affinity_explained(&id);
        let first = explanation.preferences[0].clone();
        assert!((1..=3).contains(&first.choices.len()), "{first:?}");
        orders.insert(first.choices.clone());
        // One choice after the other; then by rank.
        for turn in 0..=first.choices.len() {
            let (lease, explanation) = fleet.acquire_by_affinity_explained(&id);
            assert_eq!(explanation.preferences[0], first, "it is the id's own");
            let lease = lease.expect("free");
            match first.choices.get(turn) {
                Some(choice) => assert_eq!(lease.key(), choice),
                None => assert!(!first.choices.contains(lease.key())),
            }
            assert_eq!(lease.shard(), first.shard);
            for one in &explanation.candidates {
                let is_taken = first.choices.iter().take(turn).any(|key| *key == one.state.key);
                let expected = match one.state.shard == first.shard {
                    _ if one.state.key == *lease.key() => Why::Lent,
                    _ if is_taken => Why::NotEligible(Standing::AtCapacity),
                    true if turn == first.choices.len() => Why::Outranked,
                    _ => Why::Affinity,
                };
                assert_eq!(one.why, expected, "turn {turn}: {one:?}");
            }
            leases.push(lease);
        }
    }
    assert!(orders.len() > 10, "ids differ: {orders:?}");
    let (_, explanation) = fleet.acquire_by_affinity_explained(&0);
    let json = serde_json::to_value(&explanation).expect("plain data");
    assert_eq!(json["preferences"][0]["choices"][0], json["lent"]);
    assert!(json["candidates"].as_array().expect("a list").iter().any(|one| one["why"] == "affinity"));
    fleet.close();
    let (lease, explanation) = fleet.acquire_by_affinity_explained(&0);
    assert!(lease.is_err() && explanation.candidates.iter().all(|one| one.why == Why::Refused));
}

/// With more than one unit: the id's own until it is full.
#[test]
fn a_hot_id_spills_over_and_is_told_why() {
    let fleet = Fleet::builder().shards(1).affinity(Affinity::Resource).build().expect("in range");
    for key in ["a", "b", "c", "d", "e"] {
        fleet.insert(Entry::new(key, 0, ()).with_capacity(Capacity::Limited(2))).expect("new");
    }
    let own = fleet.acquire_by_affinity_explained(&3).1.preferences[0].choices[0];
    let _held = [fleet.acquire_by_affinity(&3).expect("free"), fleet.acquire_by_affinity(&3).expect("free")];
    let (lease, explanation) = fleet.acquire_by_affinity_explained(&3);
    assert_ne!(*lease.expect("another").key(), own);
    assert_eq!(why(&explanation, own), Why::NotEligible(Standing::AtCapacity));
}

/// A key whose clone changes the fleet: no attempt to read it finds it at rest.
#[test]
fn a_snapshot_says_whether_it_is_of_one_moment() {
    #[derive(PartialEq, Eq, Hash, Debug)]
    struct Key(u32);
    struct Numbered(u32);
    static BUSY: AtomicBool = AtomicBool::new(false);
    static FLEET: Mutex<Weak<Scheduler<Numbered>>> = Mutex::new(Weak::new());
    impl Clone for Key {
        fn clone(&self) -> Self {
            if BUSY.load(SeqCst) {
                let fleet = FLEET.lock().expect("no panic").upgrade().expect("it is being read");
                let _ = fleet.exclude(&Key(1)).expect("there") || fleet.include(&Key(1)).expect("there");
            }
            Key(self.0)
        }
    }
    impl leasehold::Resource for Numbered {
        type Key = Key;
        type Priority = u32;
        fn key(&self) -> Key {
            Key(self.0)
        }
        fn priority(&self, _: u32) -> u32 {
            self.0
        }
    }
    let fleet = Arc::new(Scheduler::<Numbered>::builder().shards(2).build().expect("in range"));
    *FLEET.lock().expect("no panic") = Arc::downgrade(&fleet);
    for key in 0..4 {
        assert!(fleet.insert(Numbered(key)).is_ok());
    }
    assert!(fleet.snapshot().is_consistent());
    BUSY.store(true, SeqCst);
    let snapshot = fleet.snapshot();
    BUSY.store(false, SeqCst);
    assert!(!snapshot.is_consistent(), "it changed each time");
    assert_eq!(snapshot.len(), 4);
    assert!(fleet.snapshot().is_consistent());
}
