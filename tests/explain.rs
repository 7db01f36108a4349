//! Why this one, and why not the others: as a struct, and as it is serialized.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::{
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use leasehold::{Entry, Scheduler, SelectShard, ShardView, SplitMix64, Strategy, Why};
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
