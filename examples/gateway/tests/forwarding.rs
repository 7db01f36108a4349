//! What passes between client and provider, and what does not.

mod support;

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use gateway::mock::Act;
use http::{Request, StatusCode};
use support::{LONG, Stand, body, field, in_order, uri};

/// What is answered to these bytes, until the connection is closed.
async fn raw(stand: &Stand, bytes: &[u8]) -> String {
    let (address, bytes) = (stand.gateway.address(), bytes.to_vec());
    let talk = move || {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(LONG))?;
        stream.write_all(&bytes)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        std::io::Result::Ok(answer)
    };
    tokio::task::spawn_blocking(talk).await.expect("no panic").expect("an answer and its end")
}

#[tokio::test]
async fn method_path_fields_and_body_pass() {
    let stand = Stand::start(&in_order(&["a"], 1)).await;
    let put = Request::put(uri(stand.gateway.address(), "/v1/files/7?part=2&x=%20"));
    let answer = stand.send(put.header("x-mine", "1").header("content-type", "text/plain"), "hello").await;
    assert_eq!((answer.status(), field(&answer, "x-leasehold-key")), (StatusCode::OK, Some("a")));
    assert!(body(answer).await.expect("whole").ends_with("data: [DONE]\n\n"));
    let seen = &stand.mock.recorded()[0];
    assert_eq!((seen.method.as_str(), seen.target.as_str()), ("PUT", "/v1/files/7?part=2&x=%20"));
    assert_eq!((&seen.headers["x-mine"], &seen.body[..]), (&"1".parse().unwrap(), &b"hello"[..]));
    assert_eq!(seen.headers["via"], "1.1 leasehold");
    assert_eq!(seen.headers["host"], stand.mock.uri().authority().unwrap().as_str());
}

#[tokio::test]
async fn a_provider_may_have_a_base() {
    let fleet = in_order(&["a"], 1);
    let stand = Stand::start_with(&fleet, Default::default(), |settings| {
        settings.provider = format!("{}api/", settings.provider).parse().expect("an address");
    })
    .await;
    stand.send(stand.post(), "").await;
    assert_eq!(stand.mock.recorded()[0].target, "/api/v1/chat");
}

#[tokio::test]
async fn the_keys_secret_replaces_the_clients_credentials() {
    let stand = Stand::start(&in_order(&["a", "b"], 1)).await;
    let request = stand.post().header("authorization", "Bearer of-client").header("cookie", "of-client");
    stand.send(request.header("x-api-key", "of-client").header("x-leasehold-session", "s"), "").await;
    let seen = &stand.mock.recorded()[0];
    let secret = seen.headers["authorization"].to_str().expect("text");
    assert!(secret.starts_with("Bearer sk-mock-"), "{secret}");
    assert!(!format!("{:?}", seen.headers).contains("of-client"), "{:?}", seen.headers);
    assert!(!seen.headers.contains_key("x-leasehold-session"));
}

#[tokio::test]
async fn what_concerns_one_connection_stays_there() {
    let stand = Stand::start(&in_order(&["a"], 1)).await;
    let fields =
        [("connection", "x-theirs"), ("x-theirs", "1"), ("proxy-authenticate", "Basic"), ("x-kept", "1")];
    let fields = fields.map(|(name, value)| (name, value.to_owned())).to_vec();
    stand.mock.script("a", [Act::Plain(StatusCode::OK, fields)]);
    let request = stand.post().header("connection", "x-ours").header("x-ours", "1").header("te", "trailers");
    let answer = stand.send(request, "").await;
    assert_eq!(field(&answer, "x-kept"), Some("1"));
    assert_eq!((field(&answer, "x-theirs"), field(&answer, "proxy-authenticate")), (None, None));
    assert_eq!(body(answer).await.expect("whole"), "well\n");
    assert_eq!(stand.gateway.keys().stats().succeeded, 1, "a body of known length ends with its last byte");
    let seen = &stand.mock.recorded()[0];
    assert!(!seen.headers.contains_key("x-ours") && !seen.headers.contains_key("te"), "{:?}", seen.headers);
}

#[tokio::test]
async fn what_is_wrong_with_the_request_the_provider_says() {
    let stand = Stand::start(&in_order(&["a", "b"], 1)).await;
    for status in [400, 403, 404, 422] {
        let status = StatusCode::from_u16(status).expect("a status");
        stand.mock.script("a", [Act::status(status)]);
        let answer = stand.send(stand.post(), "").await;
        assert_eq!((answer.status(), field(&answer, "x-leasehold-attempts")), (status, Some("1")));
    }
    assert_eq!(stand.gateway.keys().stats().succeeded, 4, "the key has done its work");
}

#[tokio::test]
async fn bodies_are_buffered_up_to_the_limit() {
    let stand = Stand::start_with(&in_order(&["a"], 1), Default::default(), |settings| {
        settings.limits.body = 1_000;
    })
    .await;
    assert_eq!(stand.send(stand.post(), vec![b' '; 1_000]).await.status(), StatusCode::OK);
    let answer = stand.send(stand.post(), vec![b' '; 1_001]).await;
    assert_eq!(answer.status(), StatusCode::PAYLOAD_TOO_LARGE);
    assert!(body(answer).await.expect("whole").contains("at most 1000 bytes"));
    // Nobody says beforehand how long a chunked one will be.
    let head = "POST / HTTP/1.1\r\nhost: g\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n";
    let chunk = format!("1f4\r\n{}\r\n", " ".repeat(500));
    let answer = raw(&stand, format!("{head}{chunk}{chunk}1\r\n \r\n0\r\n\r\n").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    assert_eq!(stand.mock.counts().keys["a"].arrivals, 1, "no key was used for it");
}

#[tokio::test]
async fn nonsense_is_refused() {
    let stand = Stand::start(&in_order(&["a"], 1)).await;
    for (name, value) in
        [("x-leasehold-class", "256"), ("x-leasehold-class", "-1"), ("x-leasehold-session", "")]
    {
        let answer = stand.send(stand.post().header(name, value), "").await;
        assert_eq!(answer.status(), StatusCode::BAD_REQUEST, "{name}: {value}");
    }
    for request in [
        "nonsense\r\n\r\n",
        "GET / HTTP/1.1\r\nno colon\r\n\r\n",
        "POST / HTTP/1.1\r\nhost: g\r\ncontent-length: x\r\n\r\n",
        "POST / HTTP/1.1\r\nhost: g\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        "OPTIONS * HTTP/1.1\r\nhost: g\r\nconnection: close\r\n\r\n",
        "CONNECT other:443 HTTP/1.1\r\nhost: g\r\nconnection: close\r\n\r\n",
    ] {
        let answer = raw(&stand, request.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{request:?}: {answer:?}");
    }
    assert_eq!(stand.mock.counts().keys["a"].arrivals, 0);
}

#[tokio::test]
async fn heads_are_bounded_in_size_and_time() {
    let stand = Stand::start_with(&in_order(&["a"], 1), Default::default(), |settings| {
        settings.bounds.headers = 10;
        settings.bounds.head_bytes = 8 * 1024;
        settings.bounds.head_time = Duration::from_millis(200);
    })
    .await;
    let many: String = (0..11).map(|i| format!("x-{i}: 1\r\n")).collect();
    let long = format!("x: {}\r\n", "y".repeat(9_000));
    for fields in [many, long] {
        let answer = raw(&stand, format!("GET / HTTP/1.1\r\n{fields}\r\n").as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    }
    // It never ends: the connection does.
    let answer = raw(&stand, b"GET / HTTP/1.1\r\nhost:").await;
    assert!(!answer.contains(" 200 "), "{answer}");
}

#[tokio::test]
async fn a_target_that_is_too_long_below_the_providers_base_is_refused() {
    let stand = Stand::start_with(&in_order(&["a"], 1), Default::default(), |settings| {
        settings.provider =
            format!("{}{}", settings.provider, "base/".repeat(200)).parse().expect("an address");
        settings.bounds.head_bytes = 128 * 1024;
    })
    .await;
    let target = "x".repeat(65_000);
    let answer = raw(&stand, format!("GET /{target} HTTP/1.1\r\nconnection: close\r\n\r\n").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 414 "), "{answer}");
}

#[tokio::test]
async fn a_body_that_does_not_come_is_given_up() {
    let stand = Stand::start_with(&in_order(&["a"], 1), Default::default(), |settings| {
        settings.limits.request = Duration::from_millis(200);
    })
    .await;
    let head = "POST / HTTP/1.1\r\nhost: g\r\nconnection: close\r\ncontent-length: 10\r\n\r\nhalf";
    let answer = raw(&stand, head.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
}
