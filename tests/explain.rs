//! Why this one, and why not the others: as a struct, and as it is serialized.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::time::Duration;

use leasehold::{Entry, Scheduler, Why};
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
