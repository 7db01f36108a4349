//! What operators see, and what they do not.

mod support;

use std::time::Duration;

use gateway::mock::Act;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use leasehold::{Cooldown, Ejection};
use serde_json::Value;
use support::{Stand, body, field, in_order, uri};

#[tokio::test]
async fn the_fleet_as_data() {
    let stand = Stand::start(&in_order(&["a", "b", "c"], 2)).await;
    stand.mock.script("a", [Act::limit(Some(60)), Act::Endless]);
    body(stand.send(stand.post(), "").await).await.expect("whole");
    stand.mock.script("b", [Act::Endless]);
    let mut held = stand.send(stand.post(), "").await;
    held.body_mut().frame().await.expect("a token").expect("whole");
    let fleet: Value = serde_json::from_str(&stand.look("/fleet.json").await).expect("JSON");
    assert_eq!(
        (&fleet["in_flight"], &fleet["eligible"], &fleet["reasons"]["cooling"]),
        (&1.into(), &2.into(), &1.into())
    );
    let keys = fleet["keys"].as_array().expect("a list");
    let names: Vec<&str> = keys.iter().map(|key| key["name"].as_str().expect("a name")).collect();
    assert_eq!(names, ["a", "b", "c"], "in order of tier");
    assert_eq!(keys[0]["outcomes"]["rate_limited"], 1);
    let ready = keys[0]["ready_in_ms"].as_u64().expect("a matter of time");
    assert!((50_000..=60_000).contains(&ready), "{ready}");
    assert_eq!((&keys[1]["in_flight"], &keys[1]["outcomes"]["ok"]), (&1.into(), &1.into()));
    assert_eq!(fleet["oldest"][0]["key"], "b");
}

#[tokio::test]
async fn what_has_cooled_is_shown_so_although_nobody_has_asked_for_a_key() {
    let stand = Stand::start(&in_order(&["a"], 1)).await;
    stand.gateway.keys().cool("a", std::time::Duration::from_millis(20)).expect("in the fleet");
    tokio::time::sleep(std::time::Duration::from_millis(40)).await;
    let fleet: Value = serde_json::from_str(&stand.look("/fleet.json").await).expect("JSON");
    assert_eq!((&fleet["eligible"], &fleet["keys"][0]["ready_in_ms"]), (&1.into(), &Value::Null));
    assert!(stand.look("/metrics").await.contains("leasehold_resources_eligible{scheduler=\"keys\"} 1"));
}

#[tokio::test]
async fn when_a_key_comes_back_is_when_its_last_hold_ends() {
    let stand = Stand::start(&in_order(&["a", "b", "c"], 2)).await;
    stand.mock.script("a", vec![Act::status(StatusCode::INTERNAL_SERVER_ERROR); 5]);
    let keys = stand.gateway.keys();
    for _ in 0..5 {
        keys.warm("a").expect("in the fleet");
        body(stand.send(stand.post(), "").await).await.expect("whole");
    }
    // Ejected for 10 s, and to cool for longer; ejected by hand, which no clock ends.
    keys.cool("a", std::time::Duration::from_secs(60)).expect("in the fleet");
    keys.cool("b", std::time::Duration::from_secs(60)).expect("in the fleet");
    keys.eject("b").expect("in the fleet");
    let fleet: Value = serde_json::from_str(&stand.look("/fleet.json").await).expect("JSON");
    assert_eq!(
        (&fleet["keys"][0]["standing"], &fleet["keys"][1]["standing"]),
        (&"ejected".into(), &"ejected".into())
    );
    let ready = fleet["keys"][0]["ready_in_ms"].as_u64().expect("a matter of time");
    assert!((50_000..=60_000).contains(&ready), "{ready}");
    assert_eq!(
        (&fleet["keys"][1]["ready_in_ms"], &fleet["keys"][2]["ready_in_ms"]),
        (&Value::Null, &Value::Null)
    );
}

#[tokio::test]
async fn the_page_needs_nothing_from_elsewhere() {
    let stand = Stand::start(&in_order(&["a"], 1)).await;
    let page = stand.send(Request::get(uri(stand.gateway.admin(), "/fleet")), "").await;
    assert_eq!(field(&page, "content-type"), Some("text/html; charset=utf-8"));
    assert!(field(&page, "content-security-policy").expect("a policy").starts_with("default-src 'none'"));
    let page = body(page).await.expect("whole");
    assert!(page.contains("prefers-color-scheme: dark") && page.contains("width=device-width"));
    assert!(!page.contains("http://") && !page.contains("https://"));
    let root = stand.send(Request::get(uri(stand.gateway.admin(), "/")), "").await;
    assert_eq!((root.status(), field(&root, "location")), (StatusCode::TEMPORARY_REDIRECT, Some("/fleet")));
}

#[tokio::test]
async fn why_this_key() {
    let stand = Stand::start(&in_order(&["a", "b"], 1)).await;
    stand.gateway.keys().exclude("a").expect("in the fleet");
    let explain = || uri(stand.gateway.admin(), "/explain");
    let refused = stand.send(Request::get(explain()), "").await;
    assert_eq!(refused.status(), StatusCode::METHOD_NOT_ALLOWED, "whoever only looks lends nothing");
    let explanation = body(stand.send(Request::post(explain()), "").await).await.expect("whole");
    let explanation: Value = serde_json::from_str(&explanation).expect("JSON");
    assert_eq!((&explanation["lent"], &explanation["candidates"][0]["why"]), (&"b".into(), &"lent".into()));
    assert_eq!(stand.gateway.keys().stats().in_flight, 0, "it is given back");
}

/// It is what a request of that session, or one that has tried these, would get.
#[tokio::test]
async fn why_this_key_for_a_session_and_after_attempts() {
    let stand = Stand::start(&in_order(&["a", "b", "c"], 4)).await;
    let explain = async |session: Option<&str>, supposed: &str| {
        let request = Request::post(uri(stand.gateway.admin(), "/explain"));
        let request = session.into_iter().fold(request, |it, name| it.header("x-leasehold-session", name));
        let answer = stand.send(request, supposed.to_owned()).await;
        let status = answer.status();
        let text = body(answer).await.expect("whole");
        (status, serde_json::from_str::<Value>(&text).unwrap_or(Value::Null))
    };
    let whys = |explanation: &Value| -> std::collections::BTreeMap<String, String> {
        let candidates = explanation["candidates"].as_array().expect("a list").iter();
        candidates
            .map(|one| {
                (
                    one["state"]["key"].as_str().expect("a name").into(),
                    one["why"].as_str().expect("a word").into(),
                )
            })
            .collect()
    };
    let of = |pairs: [(&str, &str); 3]| pairs.map(|(key, why)| (key.to_owned(), why.to_owned())).into();
    let (_, explanation) = explain(None, r#"{"tried": ["a"]}"#).await;
    assert_eq!(whys(&explanation), of([("a", "not_wanted"), ("b", "lent"), ("c", "outranked")]));
    // A session keeps its key, whatever the tier; when that was tried, it is as any other.
    let mut seen = std::collections::BTreeSet::new();
    for session in 0..20 {
        let session = session.to_string();
        let (_, explanation) = explain(Some(&session), "").await;
        let lent = explanation["lent"].as_str().expect("a name").to_owned();
        assert_eq!(explanation["preferences"][0]["choices"][0], lent.as_str());
        let others = whys(&explanation).into_iter().filter(|(key, _)| *key != lent);
        assert!(others.map(|(_, why)| why).all(|why| why == "affinity"), "{explanation}");
        let answer = stand.send(stand.post().header("x-leasehold-session", &session), "").await;
        assert_eq!(field(&answer, "x-leasehold-key"), Some(&*lent), "what is told is what is done");
        body(answer).await.expect("whole");
        let (_, after) = explain(Some(&session), &serde_json::json!({ "tried": [lent] }).to_string()).await;
        assert_eq!(after["preferences"], serde_json::json!([]));
        assert_ne!(after["lent"], lent.as_str());
        seen.insert(lent);
    }
    assert_eq!(seen.len(), 3, "sessions differ");
    for (session, supposed) in [(None, "tried=a"), (None, r#"{"tired": []}"#), (Some(""), "")] {
        assert_eq!(explain(session, supposed).await.0, StatusCode::BAD_REQUEST, "{session:?} {supposed}");
    }
    assert_eq!(stand.gateway.keys().stats().in_flight, 0);
}

#[tokio::test]
async fn no_secret_is_shown_anywhere() {
    let stand = Stand::start(&in_order(&["a", "b"], 2)).await;
    stand.mock.script("a", [Act::status(StatusCode::INTERNAL_SERVER_ERROR), Act::Endless]);
    let answer = stand.send(stand.post(), "").await;
    let mut shown = format!("{:?}", answer.headers()) + &body(answer).await.expect("whole");
    let held = stand.send(stand.post(), "").await;
    for path in ["/fleet", "/fleet.json", "/metrics"] {
        shown += &stand.look(path).await;
    }
    shown += &body(stand.send(Request::post(uri(stand.gateway.admin(), "/explain")), "").await)
        .await
        .expect("whole");
    shown += &format!("{:?} {:?}", stand.gateway, stand.gateway.keys().leases());
    let lease = stand.gateway.keys().acquire_key("b").expect("free");
    shown += &format!("{lease:?} {:?}", *lease);
    drop((held, lease));
    assert!(shown.contains("\"b\"") && !shown.contains("sk-mock"), "{shown}");
}

/// A name is whatever the file says; the text format has its own ideas of quotes, backslashes and lines.
#[tokio::test]
async fn every_name_of_a_key_is_a_label() {
    let name = "a \"b\" \\c\nd";
    let stand = Stand::start(&in_order(&[name], 1)).await;
    body(stand.send(stand.post(), "").await).await.expect("whole");
    stand.at_rest().await;
    let metrics = stand.look("/metrics").await;
    let expected = r#"gateway_attempts_total{key="a \"b\" \\c\nd",result="ok"} 1"#;
    assert!(metrics.lines().any(|line| line == expected), "{metrics}");
}

#[tokio::test]
async fn the_page_is_data_for_whoever_asks_for_data() {
    let stand = Stand::start(&in_order(&["a"], 1)).await;
    let ask = |accept: &'static str| {
        stand.send(Request::get(uri(stand.gateway.admin(), "/fleet")).header("accept", accept), "")
    };
    for accept in ["application/json", "text/plain, Application/JSON;q=0.9"] {
        let answer = ask(accept).await;
        assert_eq!(field(&answer, "content-type"), Some("application/json"));
        assert_eq!(
            (field(&answer, "vary"), field(&answer, "cache-control")),
            (Some("accept"), Some("no-store"))
        );
        let fleet: Value = serde_json::from_str(&body(answer).await.expect("whole")).expect("JSON");
        assert_eq!(fleet["keys"][0]["name"], "a");
    }
    for accept in ["*/*", "text/html,application/xhtml+xml,application/json;q=0.8"] {
        assert_eq!(field(&ask(accept).await, "content-type"), Some("text/html; charset=utf-8"), "{accept}");
    }
}

/// Of a key that is ejected while an answer of it is still streamed nobody knows when it comes back, and one on its ramp is not "in use".
#[tokio::test]
async fn the_earliest_moment_is_the_schedulers() {
    let ejection =
        Ejection::default().consecutive_failures(1).max_share(50).jitter(0).base(Duration::from_secs(10));
    let stand = Stand::start_with(&in_order(&["a", "b"], 4), Default::default(), |settings| {
        settings.policy.ejection = ejection;
        settings.policy.cooldown = Cooldown::default();
    })
    .await;
    stand.mock.script("a", [Act::Endless, Act::status(StatusCode::INTERNAL_SERVER_ERROR)]);
    let mut held = stand.send(stand.post(), "").await;
    held.body_mut().frame().await.expect("a token").expect("whole");
    body(stand.send(stand.post(), "").await).await.expect("whole");
    stand.mock.script("b", [Act::limit(Some(60))]);
    let answer = stand.send(stand.post(), "").await;
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    let after: u64 = field(&answer, "retry-after").expect("a time").parse().expect("seconds");
    assert!((50..=60).contains(&after), "not the end of the ejection: {after}");
    let fleet: Value = serde_json::from_str(&stand.look("/fleet.json").await).expect("JSON");
    assert_eq!(
        (&fleet["keys"][0]["standing"], &fleet["keys"][0]["ready_in_ms"]),
        (&"ejected".into(), &Value::Null)
    );
    drop(held);
    stand.at_rest().await;
    let fleet: Value = serde_json::from_str(&stand.look("/fleet.json").await).expect("JSON");
    let ready = fleet["keys"][0]["ready_in_ms"].as_u64().expect("a matter of time");
    assert!((5_000..=10_000).contains(&ready), "{ready}");
}

/// "Retry-After: 0", or a date that is past, each time.
#[tokio::test]
async fn a_limit_that_ends_at_once_lets_the_key_rest_all_the_same() {
    let stand = Stand::start(&in_order(&["a", "b"], 2)).await;
    let past = Act::Plain(
        StatusCode::TOO_MANY_REQUESTS,
        vec![("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT".to_owned())],
    );
    for act in [Act::limit(Some(0)), past] {
        stand.mock.script("a", [act]);
        stand.gateway.keys().warm("a").expect("in the fleet");
        body(stand.send(stand.post(), "").await).await.expect("whole");
        let states = stand.gateway.keys().snapshot();
        let state = states.iter().find(|state| &*state.key == "a").expect("in the fleet");
        assert!(
            state.cooling_until.is_some_and(|until| until > stand.gateway.keys().now().as_nanos()),
            "{state:?}"
        );
    }
}

#[tokio::test]
async fn clients_are_not_told_more_than_they_should_know() {
    let stand =
        Stand::start_with(&in_order(&["a"], 1), Default::default(), |settings| settings.tells_key = false)
            .await;
    let answer = stand.send(stand.post(), "").await;
    assert_eq!((field(&answer, "x-leasehold-key"), field(&answer, "x-leasehold-attempts")), (None, None));
    // What operators look at, clients do not get: it goes to the provider like everything else.
    let answer = stand.send(Request::get(uri(stand.gateway.address(), "/metrics")), "").await;
    assert_eq!(answer.status(), 200);
    assert_eq!(stand.mock.recorded()[1].target, "/metrics");
}
