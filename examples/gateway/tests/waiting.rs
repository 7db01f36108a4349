//! Who gets a key when there are not enough, and which one.

mod support;

use std::{collections::HashSet, time::Duration};

use gateway::mock::Act;
use http_body_util::BodyExt;
use support::{LONG, Stand, body, field, in_order};
use tokio::time::{Instant, timeout};

/// Takes the only unit of `a`, until what is answered is dropped.
async fn occupy(stand: &Stand) -> http::Response<hyper::body::Incoming> {
    stand.mock.script("a", [Act::Endless]);
    let mut answer = stand.send(stand.post(), "").await;
    answer.body_mut().frame().await.expect("a token").expect("whole");
    answer
}

async fn waiters(stand: &Stand, number: u64) {
    stand.until(|stand| stand.gateway.keys().stats().waits.waited == number).await;
}

#[tokio::test]
async fn the_better_tier_first_then_the_smaller_load() {
    let stand = Stand::start(&in_order(&["a", "b"], 2)).await;
    let mut held = Vec::new();
    for expected in ["a", "a", "b", "b"] {
        stand.mock.script(expected, [Act::Endless]);
        let answer = stand.send(stand.post(), "").await;
        assert_eq!(field(&answer, "x-leasehold-key"), Some(expected));
        held.push(answer);
    }
}

#[tokio::test]
async fn whoever_waits_is_served_in_turn() {
    let stand = Stand::start(&in_order(&["a"], 1)).await;
    let held = occupy(&stand).await;
    let first = stand.spawn(stand.post().header("x-request-id", "first"));
    waiters(&stand, 1).await;
    let second = stand.spawn(stand.post().header("x-request-id", "second"));
    waiters(&stand, 2).await;
    drop(held);
    for request in [first, second] {
        let answer = timeout(LONG, request).await.expect("in time").expect("no panic");
        body(answer).await.expect("whole");
    }
    assert_eq!(order(&stand), ["first", "second"]);
    let stats = stand.gateway.keys().stats();
    assert_eq!((stats.waits.handed_off, stats.in_vain), (2, 0), "a wait that ends well is nothing in vain");
}

/// Of those who have to wait: which key may be there within their patience, 5 s.
#[tokio::test]
async fn nobody_waits_for_what_cannot_come() {
    let stand = Stand::start(&in_order(&["a", "b"], 1)).await;
    let keys = stand.gateway.keys();
    let _held = occupy(&stand).await;
    let hour = Duration::from_secs(3_600);
    keys.cool("b", hour).expect("in the fleet");
    let refused = async || {
        let started = Instant::now();
        let answer = stand.send(stand.post(), "").await;
        assert!(started.elapsed() < Duration::from_secs(4), "at once: {:?}", started.elapsed());
        assert_eq!(answer.status(), 503);
        let after: u64 = field(&answer, "retry-after").expect("told").parse().expect("seconds");
        assert!((3_500..=3_600).contains(&after), "{after}");
    };
    // The one that is lent rests when it comes back.
    keys.cool("a", hour).expect("in the fleet");
    refused().await;
    keys.warm("a").expect("in the fleet");
    keys.exclude("a").expect("in the fleet");
    refused().await;
    keys.include("a").expect("in the fleet");
    keys.drain("a").expect("in the fleet");
    refused().await;
    keys.undrain("a").expect("in the fleet");
    keys.eject("a").expect("in the fleet");
    refused().await;
    assert_eq!(keys.stats().in_vain, 4, "each is told once");
}

#[tokio::test]
async fn a_higher_class_goes_first() {
    let stand = Stand::start(&in_order(&["a"], 1)).await;
    let held = occupy(&stand).await;
    let low = stand.spawn(stand.post().header("x-request-id", "low"));
    waiters(&stand, 1).await;
    let high = stand.spawn(stand.post().header("x-request-id", "high").header("x-leasehold-class", "9"));
    waiters(&stand, 2).await;
    drop(held);
    let (low, high) = tokio::join!(low, high);
    for answer in [low, high] {
        body(answer.expect("no panic")).await.expect("whole");
    }
    assert_eq!(order(&stand), ["high", "low"]);
}

/// The ids of requests in the order in which the provider got them.
fn order(stand: &Stand) -> Vec<String> {
    let ids = stand.mock.recorded().into_iter().filter_map(|seen| seen.headers.get("x-request-id").cloned());
    ids.map(|id| id.to_str().expect("text").to_owned()).collect()
}

#[tokio::test]
async fn patience_ends_with_503() {
    let stand = Stand::start_with(&in_order(&["a"], 1), Default::default(), |settings| {
        settings.limits.patience = Duration::from_millis(200);
    })
    .await;
    let _held = occupy(&stand).await;
    let started = Instant::now();
    let answer = stand.send(stand.post(), "").await;
    assert_eq!(
        (answer.status().as_u16(), field(&answer, "retry-after")),
        (503, Some("1")),
        "nobody knows when"
    );
    assert!(started.elapsed() >= Duration::from_millis(200));
}

#[tokio::test]
async fn a_key_that_is_soon_there_is_waited_for() {
    let stand = Stand::start(&in_order(&["a"], 1)).await;
    let started = Instant::now();
    stand.gateway.keys().cool("a", Duration::from_millis(300)).expect("in the fleet");
    assert_eq!(stand.send(stand.post(), "").await.status(), 200);
    assert!(started.elapsed() >= Duration::from_millis(290));
}

#[tokio::test]
async fn the_queue_is_bounded() {
    let stand = Stand::start_with(&in_order(&["a"], 1), Default::default(), |settings| {
        settings.policy.max_waiters = 1;
    })
    .await;
    let held = occupy(&stand).await;
    let first = stand.spawn(stand.post());
    waiters(&stand, 1).await;
    let started = Instant::now();
    assert_eq!(stand.send(stand.post(), "").await.status(), 503);
    assert!(started.elapsed() < Duration::from_secs(4), "at once: the patience is 5 s");
    drop(held);
    assert_eq!(timeout(LONG, first).await.expect("in time").expect("no panic").status(), 200);
}

#[tokio::test]
async fn a_session_keeps_its_key_and_moves_only_if_it_must() {
    let names: Vec<String> = (0..8).map(|i| format!("key-{i}")).collect();
    let stand = Stand::start(&in_order(&names.iter().map(String::as_str).collect::<Vec<_>>(), 4)).await;
    let ask = async |session: &str| {
        let answer = stand.send(stand.post().header("x-leasehold-session", session), "").await;
        let key = field(&answer, "x-leasehold-key").expect("told").to_owned();
        body(answer).await.expect("whole");
        key
    };
    let mut used = HashSet::new();
    for session in 0..16 {
        let session = format!("session-{session}");
        let key = ask(&session).await;
        for _ in 0..2 {
            assert_eq!(ask(&session).await, key);
        }
        used.insert(key);
    }
    assert!(used.len() > 2, "sessions spread over the fleet, whatever the tiers: {used:?}");
    let key = ask("session-0").await;
    stand.gateway.keys().exclude(key.as_str()).expect("in the fleet");
    assert_ne!(ask("session-0").await, key);
    stand.gateway.keys().include(key.as_str()).expect("in the fleet");
    assert_eq!(ask("session-0").await, key);
    // Its key fails: the answer comes from another one.
    stand.mock.script(&key, [Act::status(http::StatusCode::BAD_GATEWAY)]);
    assert_ne!(ask("session-0").await, key);
}
