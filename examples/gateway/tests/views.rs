//! What operators see, and what they do not.

mod support;

use gateway::mock::Act;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
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
    let explanation: Value = serde_json::from_str(&stand.look("/explain").await).expect("JSON");
    assert_eq!((&explanation["lent"], &explanation["candidates"][0]["why"]), (&"b".into(), &"lent".into()));
    assert_eq!(stand.gateway.keys().stats().in_flight, 0, "it is given back");
}

#[tokio::test]
async fn no_secret_is_shown_anywhere() {
    let stand = Stand::start(&in_order(&["a", "b"], 2)).await;
    stand.mock.script("a", [Act::status(StatusCode::INTERNAL_SERVER_ERROR), Act::Endless]);
    let answer = stand.send(stand.post(), "").await;
    let mut shown = format!("{:?}", answer.headers()) + &body(answer).await.expect("whole");
    let held = stand.send(stand.post(), "").await;
    for path in ["/fleet", "/fleet.json", "/metrics", "/explain"] {
        shown += &stand.look(path).await;
    }
    shown += &format!("{:?} {:?}", stand.gateway, stand.gateway.keys().leases());
    let lease = stand.gateway.keys().acquire_key("b").expect("free");
    shown += &format!("{lease:?} {:?}", *lease);
    drop((held, lease));
    assert!(shown.contains("\"b\"") && !shown.contains("sk-mock"), "{shown}");
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
