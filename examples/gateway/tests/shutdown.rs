//! The end: requests finish, and every key comes back.

mod support;

use std::{
    io::{Read, Write},
    time::Duration,
};

use gateway::mock::Act;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use support::{LONG, Stand, body, in_order, uri};
use tokio::time::{Instant, sleep, timeout};

#[tokio::test]
async fn what_has_begun_is_finished_and_nothing_more_is_taken() {
    let mut fleet = in_order(&["a"], 1);
    fleet[0].tokens_per_second = 20.0;
    let stand = Stand::start(&fleet).await;
    // 0.8 s.
    let streaming = stand.send(stand.post(), "").await;
    let waiting = stand.spawn(stand.post());
    stand.until(|stand| stand.gateway.keys().stats().waits.waited == 1).await;
    let (address, admin) = (stand.gateway.address(), stand.gateway.admin());
    let Stand { gateway, mock, .. } = stand;
    let end = tokio::spawn(gateway.shut_down(LONG));
    // Operators are told; clients find nobody.
    let caller = gateway::load::Caller::new();
    let ask = async |address, path| {
        caller.send(Request::get(uri(address, path)).body(Full::default()).expect("well formed")).await
    };
    let started = Instant::now();
    while ask(admin, "/healthz").await.expect("still there").status() == StatusCode::OK {
        assert!(started.elapsed() < LONG);
        sleep(Duration::from_millis(2)).await;
    }
    while ask(address, "/").await.is_ok() {
        assert!(started.elapsed() < LONG);
        sleep(Duration::from_millis(2)).await;
    }
    assert!(body(streaming).await.expect("whole").ends_with("data: [DONE]\n\n"));
    let waiting = timeout(LONG, waiting).await.expect("in time").expect("no panic");
    assert_eq!(waiting.status(), StatusCode::OK, "one that waited for the key has got it");
    body(waiting).await.expect("whole");
    let end = timeout(LONG, end).await.expect("in time").expect("no panic");
    assert!(end.is_clean(), "{end:?}");
    assert_eq!(mock.counts().keys["a"].complete, mock.counts().keys["a"].arrivals);
}

/// Clients that have connected, and have sent their request, before they were accepted: the system has done both for the server.
#[tokio::test]
async fn who_has_connected_is_served() {
    for round in 0..5 {
        let stand = Stand::start(&in_order(&["a"], 64)).await;
        let address = stand.gateway.address();
        // On the runtime's only thread: nothing is accepted before the stop has been sent.
        let clients: Vec<_> = (0..32)
            .map(|_| {
                let mut client = std::net::TcpStream::connect(address).expect("it listens");
                client
                    .write_all(b"POST /v1/chat HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n")
                    .expect("room");
                client
            })
            .collect();
        let Stand { gateway, mock, .. } = stand;
        assert!(gateway.shut_down(LONG).await.is_clean(), "round {round}");
        for mut client in clients {
            let mut answer = String::new();
            client.read_to_string(&mut answer).expect("not reset");
            assert!(answer.starts_with("HTTP/1.1 200 "), "round {round}: {answer}");
        }
        assert_eq!(mock.counts().keys["a"].complete, 32);
    }
}

#[tokio::test]
async fn what_does_not_end_in_time_is_broken_off() {
    let stand = Stand::start(&in_order(&["a"], 2)).await;
    stand.mock.script("a", [Act::Endless, Act::Hold]);
    let mut streaming = stand.send(stand.post(), "").await;
    streaming.body_mut().frame().await.expect("a token").expect("whole");
    let caller = gateway::load::Caller::new();
    let request = stand.post().header("x-request-id", "1").body(Full::default()).expect("well formed");
    let held = tokio::spawn(async move { caller.send(request).await });
    timeout(LONG, stand.mock.seen("1")).await.expect("it comes");
    let Stand { gateway, .. } = stand;
    let started = Instant::now();
    let end = gateway.shut_down(Duration::from_millis(300)).await;
    assert!(started.elapsed() >= Duration::from_millis(300));
    assert!(!end.is_graceful && !end.is_clean());
    assert!(end.drain.is_drained(), "whatever was broken off has given its key back: {}", end.drain);
    assert!(body(streaming).await.is_err());
    assert!(timeout(LONG, held).await.expect("in time").expect("no panic").is_err());
}

#[tokio::test]
async fn with_nothing_going_on_it_ends_at_once() {
    let stand = Stand::start(&in_order(&["a"], 1)).await;
    // An idle connection.
    body(stand.send(stand.post(), "").await).await.expect("whole");
    let started = Instant::now();
    let Stand { gateway, .. } = stand;
    assert!(gateway.shut_down(LONG).await.is_clean());
    assert!(started.elapsed() < Duration::from_secs(5));
}
