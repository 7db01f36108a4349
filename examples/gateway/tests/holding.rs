//! How long a key is held, and what its end means.

mod support;

use std::time::Duration;

use gateway::mock::Act;
use http_body_util::BodyExt;
use support::{LONG, Stand, body, in_order};
use tokio::{
    net::{TcpSocket, TcpStream},
    time::{Instant, sleep, timeout},
};

#[tokio::test]
async fn a_key_is_held_until_the_body_has_ended() {
    let stand = Stand::start(&in_order(&["a"], 1)).await;
    stand.mock.script("a", [Act::Endless]);
    let mut answer = stand.send(stand.post(), "").await;
    answer.body_mut().frame().await.expect("a token").expect("whole");
    assert_eq!(stand.gateway.keys().stats().in_flight, 1);
    let leases = stand.gateway.keys().leases();
    assert!(leases[0].call_site.file().ends_with("lending.rs"), "{}", leases[0]);
    drop(answer);
    stand.at_rest().await;
    // The next one has it again.
    let answer = stand.send(stand.post(), "").await;
    body(answer).await.expect("whole");
    let stats = stand.gateway.keys().stats();
    assert_eq!(
        (stats.succeeded, stats.cancelled, stats.in_flight),
        (1, 1, 0),
        "back before the last byte is out"
    );
}

#[tokio::test]
async fn a_client_that_leaves_does_not_harm_the_key() {
    let stand = Stand::start(&in_order(&["a"], 4)).await;
    stand.mock.script("a", [Act::Hold, Act::Endless]);
    // Before the answer.
    let request = stand.spawn(stand.post().header("x-request-id", "1"));
    timeout(LONG, stand.mock.seen("1")).await.expect("it comes");
    request.abort();
    stand.at_rest().await;
    // In the midst of it.
    let mut answer = stand.send(stand.post(), "").await;
    answer.body_mut().frame().await.expect("a token").expect("whole");
    drop(answer);
    stand.at_rest().await;
    let seen = stand.gateway.keys().resource_stats("a").expect("remembered");
    assert_eq!((seen.cancelled, seen.failed, seen.failures_in_a_row), (2, 0, 0));
    let text = stand.look("/metrics").await;
    for line in [
        "gateway_clients_gone_total{when=\"before_answer\"} 1",
        "gateway_clients_gone_total{when=\"in_body\"} 1",
        "gateway_attempts_total{key=\"a\",result=\"abandoned\"} 2",
        "gateway_requests_in_flight 0",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    stand.until(|stand| stand.mock.counts().keys["a"].left == 2).await;
}

/// A line break after the body, as old clients send it, or the next request: the client's end is behind it.
#[tokio::test]
async fn a_client_that_has_sent_more_and_leaves_is_noticed() {
    let stand = Stand::start(&in_order(&["a"], 1)).await;
    let request = "POST /v1/chat HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n";
    for (number, more) in ["\r\n".to_owned(), format!("{request}\r\n")].into_iter().enumerate() {
        stand.mock.script("a", [Act::Hold]);
        let client = TcpStream::connect(stand.gateway.address()).await.expect("it listens");
        let sent = format!("{request}x-request-id: {number}\r\n\r\n{more}");
        client.writable().await.expect("connected");
        assert_eq!(client.try_write(sent.as_bytes()).expect("there is room"), sent.len());
        timeout(LONG, stand.mock.seen(&number.to_string())).await.expect("it comes");
        let started = Instant::now();
        drop(client);
        stand.at_rest().await;
        assert!(started.elapsed() < Duration::from_secs(20), "an attempt may take 30 s");
    }
    let stats = stand.gateway.keys().stats();
    assert_eq!((stats.cancelled, stats.failed), (2, 0), "that says nothing about the key");
}

#[tokio::test]
async fn a_client_that_leaves_the_queue_takes_nothing_along() {
    let stand = Stand::start(&in_order(&["a"], 1)).await;
    stand.mock.script("a", [Act::Hold]);
    let first = stand.spawn(stand.post().header("x-request-id", "1"));
    timeout(LONG, stand.mock.seen("1")).await.expect("it comes");
    let waiting = |stand: &Stand| {
        let waits = stand.gateway.keys().stats().waits;
        waits.waited - waits.cancelled - waits.handed_off
    };
    let second = stand.spawn(stand.post());
    stand.until(|stand| waiting(stand) == 1).await;
    second.abort();
    stand.until(|stand| waiting(stand) == 0).await;
    first.abort();
    stand.at_rest().await;
    assert_eq!(stand.send(stand.post(), "").await.status(), 200);
}

#[tokio::test]
async fn an_answer_that_stops_is_broken_off() {
    let stand = Stand::start_with(&in_order(&["a"], 1), Default::default(), |settings| {
        settings.limits.idle = Duration::from_millis(200);
    })
    .await;
    stand.mock.script("a", [Act::Stall]);
    let answer = stand.send(stand.post(), "").await;
    assert!(body(answer).await.is_err());
    stand.at_rest().await;
    assert_eq!(stand.gateway.keys().stats().failed, 1);
    assert!(stand.look("/metrics").await.contains("result=\"stalled\"} 1"));
}

#[tokio::test]
async fn a_slow_answer_is_not_one_that_stops() {
    // Longer in all than it may pause, with pauses of a tenth of that. A busy machine makes longer ones; then all of it takes longer.
    for (idle, last) in [(Duration::from_secs(1), false), (Duration::from_secs(10), true)] {
        let mut fleet = in_order(&["a"], 1);
        fleet[0].tokens_per_second = 10.0 / idle.as_secs_f64();
        let stand =
            Stand::start_with(&fleet, Default::default(), |settings| settings.limits.idle = idle).await;
        let started = Instant::now();
        let answer = stand.send(stand.post(), "").await;
        if body(answer).await.is_ok() {
            assert!(started.elapsed() > idle, "{:?}", started.elapsed());
            return;
        }
        assert!(!last, "it was broken off");
    }
}

#[tokio::test]
async fn a_key_that_is_held_for_too_long_is_taken_back_and_not_used_any_more() {
    let stand = Stand::start_with(&in_order(&["a"], 1), Default::default(), |settings| {
        // Longer than a busy machine takes for the second one.
        settings.policy.max_hold = Duration::from_secs(3);
        settings.limits.patience = LONG;
    })
    .await;
    stand.mock.script("a", [Act::Endless]);
    let first = stand.send(stand.post(), "").await;
    // It waits for the only key, and gets it when the other one's time is over.
    let second = stand.spawn(stand.post());
    assert!(body(first).await.is_err(), "an answer without an end is broken off");
    let second = timeout(LONG, second).await.expect("in time").expect("no panic");
    assert_eq!(second.status(), 200);
    stand.until(|stand| stand.look_revoked() >= 1).await;
    let text = stand.look("/metrics").await;
    for line in [
        "gateway_attempts_total{key=\"a\",result=\"revoked\"} 1",
        "gateway_attempts_late_total{result=\"revoked\"} 1",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}

/// Before the head of an answer nobody looks whether the key was taken back: the attempt ends as it ends. The scheduler has not heard it.
#[tokio::test]
async fn what_comes_of_a_key_that_was_taken_back_is_counted_once_and_as_late() {
    let stand = Stand::start(&in_order(&["a"], 1)).await;
    stand.mock.script("a", [Act::Hold]);
    let request = stand.spawn(stand.post().header("x-request-id", "1"));
    timeout(LONG, stand.mock.seen("1")).await.expect("it comes");
    let keys = stand.gateway.keys();
    assert_eq!(keys.revoke(keys.leases()[0].token), Ok(()));
    request.abort();
    let late = "gateway_attempts_late_total{result=\"abandoned\"} 1";
    let counted = async {
        loop {
            let text = stand.look("/metrics").await;
            if text.contains(late) {
                return text;
            }
        }
    };
    let text = timeout(LONG, counted).await.expect("in time");
    assert!(text.contains("gateway_attempts_total{key=\"a\",result=\"abandoned\"} 1"), "{text}");
    let stats = stand.gateway.keys().stats();
    assert_eq!((stats.cancelled, stats.revoked, stats.in_flight), (0, 1, 0));
}

#[tokio::test]
async fn an_answer_without_a_body_holds_nothing() {
    let stand = Stand::start(&in_order(&["a"], 1)).await;
    stand.mock.script("a", [Act::status(http::StatusCode::NO_CONTENT), Act::status(http::StatusCode::OK)]);
    for method in ["POST", "HEAD"] {
        let answer = stand.send(stand.post().method(method), "").await;
        assert_eq!(stand.gateway.keys().stats().in_flight, 0, "{method}");
        assert_eq!(body(answer).await.expect("whole"), "");
    }
    sleep(Duration::from_millis(20)).await;
    assert_eq!(stand.gateway.keys().stats().succeeded, 2);
}

/// So many bytes; none if the connection was closed before.
async fn read(client: &TcpStream, bytes: usize) -> Option<Vec<u8>> {
    let mut read = vec![0; bytes];
    let mut place = 0;
    while place < bytes {
        timeout(LONG, client.readable()).await.expect("in time").expect("connected");
        match client.try_read(&mut read[place..]) {
            Ok(0) => return None,
            Ok(more) => place += more,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
            Err(error) => panic!("{error}"),
        }
    }
    Some(read)
}

/// A provider that says as much as is taken, a gateway that gives a client so much time, and a client that has read the head.
async fn flooded(idle: Duration) -> (Stand, TcpStream) {
    let mut fleet = in_order(&["a"], 1);
    fleet[0].tokens_per_second = f64::INFINITY;
    let stand = Stand::start_with(&fleet, Default::default(), |settings| settings.limits.idle = idle).await;
    stand.mock.script("a", [Act::Endless]);
    let socket = TcpSocket::new_v4().expect("a socket");
    // What the systems keep for a client that does not read is not to be much.
    socket.set_recv_buffer_size(16 * 1024).expect("a size");
    let client = socket.connect(stand.gateway.address()).await.expect("it listens");
    let request = b"POST /v1/chat HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n";
    client.writable().await.expect("connected");
    assert_eq!(client.try_write(request).expect("there is room"), request.len());
    assert_eq!(read(&client, 12).await.expect("open"), b"HTTP/1.1 200");
    (stand, client)
}

#[tokio::test]
async fn a_client_that_stops_reading_holds_nothing_for_long() {
    let (stand, client) = flooded(Duration::from_millis(300)).await;
    stand.at_rest().await;
    stand.until(|stand| stand.mock.counts().keys["a"].left == 1).await;
    let stats = stand.gateway.keys().stats();
    assert_eq!((stats.cancelled, stats.failed, stats.revoked), (1, 0, 0), "that says nothing about the key");
    let text = stand.look("/metrics").await;
    for line in [
        "gateway_clients_gone_total{when=\"in_body\"} 1",
        "gateway_attempts_total{key=\"a\",result=\"abandoned\"} 1",
        "gateway_requests_in_flight 0",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    drop(client);
}

#[tokio::test]
async fn a_client_that_stops_reading_does_not_keep_the_gateway_from_its_end() {
    let (stand, client) = flooded(Duration::from_millis(300)).await;
    let Stand { gateway, .. } = stand;
    let started = Instant::now();
    let end = gateway.shut_down(LONG).await;
    assert!(end.is_clean(), "{end:?}");
    assert!(started.elapsed() < LONG / 2, "it took {:?}", started.elapsed());
    drop(client);
}

#[tokio::test]
async fn a_client_that_reads_slowly_is_not_one_that_stops() {
    // A client on a busy machine may stop for longer than it should; then it is given more time.
    for (idle, last) in [(Duration::from_millis(500), false), (Duration::from_secs(5), true)] {
        let (stand, client) = flooded(idle).await;
        let started = Instant::now();
        let mut is_open = true;
        while is_open && started.elapsed() < 4 * idle {
            is_open = read(&client, 32 * 1024).await.is_some();
            sleep(Duration::from_millis(20)).await;
        }
        is_open &= stand.gateway.keys().stats().in_flight == 1;
        drop(client);
        stand.at_rest().await;
        if is_open {
            return;
        }
        assert!(!last, "it was given up");
    }
}

impl Stand {
    fn look_revoked(&self) -> u64 {
        self.gateway.keys().stats().revoked
    }
}
