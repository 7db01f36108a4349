//! Another key: when, how often, and what the client is told when there is none.

mod support;

use std::time::Duration;

use gateway::{mock::Act, proxy::lending::soonest};
use http::StatusCode;
use leasehold::Standing;
use support::{Stand, body, field, in_order};
use tokio::time::Instant;

const ERROR: StatusCode = StatusCode::INTERNAL_SERVER_ERROR;

/// When the client is told to come back, in seconds.
fn retry_after(answer: &http::Response<hyper::body::Incoming>) -> u64 {
    field(answer, "retry-after").expect("told").parse().expect("seconds")
}

/// Key, attempts and status of an answer.
fn told(answer: &http::Response<hyper::body::Incoming>) -> (Option<&str>, Option<&str>, u16) {
    (field(answer, "x-leasehold-key"), field(answer, "x-leasehold-attempts"), answer.status().as_u16())
}

#[tokio::test]
async fn a_rate_limit_goes_elsewhere_and_cools_the_key_for_as_long_as_it_says() {
    let stand = Stand::start(&in_order(&["a", "b"], 2)).await;
    stand.mock.script("a", [Act::limit(Some(30))]);
    let answer = stand.send(stand.post(), "").await;
    assert_eq!(told(&answer), (Some("b"), Some("2"), 200));
    let state =
        stand.gateway.keys().snapshot().into_iter().find(|state| &*state.key == "a").expect("in the fleet");
    assert_eq!(state.standing, Standing::Cooling);
    let left = state.cooling_until.expect("it cools") - stand.gateway.keys().now().as_nanos();
    assert!((25..=30).contains(&(left / 1_000_000_000)), "{left}");
    // The next one does not try it.
    assert_eq!(told(&stand.send(stand.post(), "").await), (Some("b"), Some("1"), 200));
}

#[tokio::test]
async fn a_provider_that_is_away_for_a_while_is_taken_at_its_word() {
    let stand = Stand::start(&in_order(&["a", "b"], 2)).await;
    let fields = vec![("retry-after", "7".to_owned())];
    stand.mock.script("a", [Act::Plain(StatusCode::SERVICE_UNAVAILABLE, fields)]);
    assert_eq!(told(&stand.send(stand.post(), "").await), (Some("b"), Some("2"), 200));
    assert_eq!(stand.gateway.keys().stats().rate_limited, 1);
}

#[tokio::test]
async fn a_failure_goes_elsewhere_until_the_attempts_are_used_up() {
    let stand = Stand::start(&in_order(&["a", "b", "c", "d"], 2)).await;
    for key in ["a", "b", "c", "d"] {
        stand.mock.script(key, [Act::status(ERROR)]);
    }
    let answer = stand.send(stand.post(), "").await;
    assert_eq!(told(&answer), (Some("c"), Some("3"), 502));
    assert!(body(answer).await.expect("whole").contains("the provider answered 500"));
    let arrivals = |key: &str| stand.mock.counts().keys[key].arrivals;
    assert_eq!(["a", "b", "c", "d"].map(arrivals), [1, 1, 1, 0], "each once");
    assert_eq!(stand.mock.counts().repeats, 0, "without an id nobody can tell");
}

#[tokio::test]
async fn a_key_that_the_provider_does_not_know_is_our_fault() {
    let stand = Stand::start(&in_order(&["a", "b"], 2)).await;
    stand.mock.script("a", [Act::status(StatusCode::UNAUTHORIZED)]);
    assert_eq!(told(&stand.send(stand.post(), "").await), (Some("b"), Some("2"), 200));
    assert_eq!(stand.gateway.keys().stats().failed, 1);
}

#[tokio::test]
async fn a_lost_request_is_repeated_only_if_it_may_be() {
    let stand = Stand::start(&in_order(&["a", "b"], 2)).await;
    stand.mock.script("a", [Act::Drop]);
    let answer = stand.send(stand.post(), "").await;
    assert_eq!(told(&answer), (Some("a"), Some("1"), 502), "it may have been done");
    assert_eq!(stand.mock.counts().keys["b"].arrivals, 0);

    stand.gateway.keys().warm("a").expect("in the fleet");
    stand.mock.script("a", [Act::Drop]);
    let answer = stand.send(stand.post().header("idempotency-key", "1"), "").await;
    assert_eq!(told(&answer), (Some("b"), Some("2"), 200), "the provider will notice");

    stand.gateway.keys().warm("a").expect("in the fleet");
    stand.mock.script("a", [Act::Drop]);
    let get = stand.post().method("GET");
    assert_eq!(told(&stand.send(get, "").await), (Some("b"), Some("2"), 200), "safe by its method");
}

#[tokio::test]
async fn no_answer_in_time_is_504() {
    let stand = Stand::start_with(&in_order(&["a", "b"], 2), Default::default(), |settings| {
        settings.limits.attempt = Duration::from_millis(200);
    })
    .await;
    stand.mock.script("a", [Act::Hold]);
    let answer = stand.send(stand.post(), "").await;
    assert_eq!(told(&answer), (Some("a"), Some("1"), 504));
    stand.at_rest().await;
    assert_eq!(stand.gateway.keys().stats().failed, 1);
}

#[tokio::test]
async fn a_provider_that_is_not_there_is_502_after_every_key() {
    let stand = Stand::start_with(&in_order(&["a", "b"], 2), Default::default(), |settings| {
        // Nobody listens on a port that was free a moment ago.
        let port =
            std::net::TcpListener::bind("127.0.0.1:0").expect("free").local_addr().expect("bound").port();
        settings.provider = format!("http://127.0.0.1:{port}").parse().expect("an address");
    })
    .await;
    let answer = stand.send(stand.post(), "").await;
    assert_eq!(told(&answer), (Some("b"), Some("2"), 502), "nothing was sent, so it may be tried again");
}

#[tokio::test]
async fn once_the_answer_has_begun_nothing_is_repeated() {
    let stand = Stand::start(&in_order(&["a", "b"], 2)).await;
    stand.mock.script("a", [Act::Cut { tokens: 2 }]);
    let answer = stand.send(stand.post().header("idempotency-key", "1"), "").await;
    assert_eq!(told(&answer), (Some("a"), Some("1"), 200));
    assert!(body(answer).await.is_err(), "the client sees that it is not whole");
    assert_eq!(stand.mock.counts().keys["b"].arrivals, 0);
    assert_eq!(stand.gateway.keys().stats().failed, 1);
}

#[tokio::test]
async fn when_all_are_limited_the_client_is_told_the_earliest_moment() {
    let stand = Stand::start(&in_order(&["a", "b", "c"], 2)).await;
    for (key, seconds) in [("a", 50), ("b", 20), ("c", 40)] {
        stand.mock.script(key, [Act::limit(Some(seconds))]);
    }
    let answer = stand.send(stand.post(), "").await;
    assert_eq!(told(&answer), (Some("c"), Some("3"), 503));
    let after = retry_after(&answer);
    assert!((15..=20).contains(&after), "{after}");
    // Now it is the scheduler that knows; nothing is tried, and nobody waits for what cannot come in time.
    let started = Instant::now();
    let answer = stand.send(stand.post(), "").await;
    assert_eq!(told(&answer), (None, Some("0"), 503));
    let after = retry_after(&answer);
    assert!((15..=20).contains(&after), "{after}");
    assert!(started.elapsed() < Duration::from_secs(4), "the patience is 5 s");
}

/// That the key which has failed is out again, with somebody else, keeps nobody waiting who does not get it a second time.
#[tokio::test]
async fn the_return_of_a_key_that_was_tried_is_not_waited_for() {
    let stand = Stand::start_with(&in_order(&["a", "b"], 1), Default::default(), |settings| {
        // It goes straight on to whoever waits.
        settings.policy.cooldown = leasehold::Cooldown::default();
    })
    .await;
    stand.gateway.keys().cool("b", Duration::from_secs(3_600)).expect("in the fleet");
    stand.mock.script("a", [Act::Endless, Act::status(ERROR), Act::Endless]);
    let first = stand.send(stand.post(), "").await;
    let second = stand.spawn(stand.post());
    stand.until(|stand| stand.gateway.keys().stats().waits.waited == 1).await;
    let third = stand.spawn(stand.post());
    stand.until(|stand| stand.gateway.keys().stats().waits.waited == 2).await;
    drop(first);
    let started = Instant::now();
    let second = second.await.expect("no panic");
    assert_eq!(told(&second), (Some("a"), Some("1"), 502));
    assert!(started.elapsed() < Duration::from_secs(4), "the patience is 5 s: {:?}", started.elapsed());
    let _third = third.await.expect("no panic");
    assert_eq!(stand.gateway.keys().stats().in_flight, 1);
}

#[tokio::test]
async fn keys_that_were_not_tried_count_for_when_to_come_back() {
    let stand = Stand::start(&in_order(&["a", "b", "c", "d"], 2)).await;
    let ask = async || {
        for key in ["a", "b", "c"] {
            stand.gateway.keys().warm(key).expect("in the fleet");
            stand.mock.script(key, [Act::limit(Some(50))]);
        }
        let answer = stand.send(stand.post(), "").await;
        assert_eq!(told(&answer), (Some("c"), Some("3"), 503), "the attempts are used up");
        retry_after(&answer)
    };
    assert_eq!(ask().await, 1, "the fourth is free");
    stand.gateway.keys().cool("d", Duration::from_secs(20)).expect("in the fleet");
    let after = ask().await;
    assert!((15..=20).contains(&after), "{after}");
    stand.gateway.keys().exclude("d").expect("in the fleet");
    let after = ask().await;
    assert!((45..=50).contains(&after), "what is excluded does not come back by itself: {after}");
}

#[tokio::test]
async fn what_comes_back_only_by_hand_is_not_promised() {
    let stand = Stand::start(&in_order(&["a", "b"], 2)).await;
    let keys = stand.gateway.keys();
    keys.cool("a", Duration::from_secs(5)).expect("in the fleet");
    keys.cool("b", Duration::from_secs(20)).expect("in the fleet");
    keys.eject("a").expect("in the fleet");
    let after = soonest(keys).expect("b cools");
    assert!((Duration::from_secs(15)..=Duration::from_secs(20)).contains(&after), "{after:?}");
    keys.eject("b").expect("in the fleet");
    assert_eq!(soonest(keys), None);
}

#[tokio::test]
async fn when_the_request_is_out_of_time_the_key_is_not_blamed() {
    let stand = Stand::start_with(&in_order(&["a", "b"], 2), Default::default(), |settings| {
        settings.limits.request = Duration::from_millis(200);
    })
    .await;
    stand.mock.script("a", [Act::Hold]);
    let answer = stand.send(stand.post().header("idempotency-key", "1"), "").await;
    assert_eq!(told(&answer), (Some("a"), Some("1"), 504), "no time for another one");
    let stats = stand.gateway.keys().stats();
    assert_eq!((stats.failed, stats.cancelled, stats.in_flight), (0, 1, 0));
}

#[tokio::test]
async fn a_limit_without_a_time_rests_as_long_as_the_gateway_says() {
    let stand = Stand::start_with(&in_order(&["a"], 2), Default::default(), |settings| {
        settings.limits.rest = Duration::from_millis(8_500);
    })
    .await;
    // What is left is less when a busy machine comes to tell it.
    for _ in 0..20 {
        stand.gateway.keys().warm("a").expect("in the fleet");
        stand.mock.script("a", [Act::limit(None)]);
        let started = Instant::now();
        let answer = stand.send(stand.post(), "").await;
        let took = started.elapsed();
        assert_eq!(answer.status(), 503);
        if took < Duration::from_millis(400) {
            assert_eq!(retry_after(&answer), 9, "rounded up");
            return;
        }
        assert!((1..=9).contains(&retry_after(&answer)));
    }
    panic!("never in time");
}

#[tokio::test]
async fn a_key_that_keeps_failing_is_ejected() {
    let stand = Stand::start_with(&in_order(&["a", "b", "c"], 2), Default::default(), |settings| {
        settings.policy.cooldown = leasehold::Cooldown::default();
    })
    .await;
    stand.mock.script("a", vec![Act::status(ERROR); 5]);
    for _ in 0..5 {
        assert_eq!(told(&stand.send(stand.post(), "").await), (Some("b"), Some("2"), 200));
    }
    assert_eq!(stand.gateway.keys().stats().ejected, 1);
    assert_eq!(told(&stand.send(stand.post(), "").await), (Some("b"), Some("1"), 200), "it is left alone");
}
