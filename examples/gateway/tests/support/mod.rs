//! A gateway and a mock provider on real sockets, and a client to talk to them.
#![allow(dead_code, reason = "each test uses its part")]

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use bytes::Bytes;
use gateway::{
    app::{Gateway, Settings},
    fleet::{Secrets, Spec, parse},
    keys::Policy,
    load::Caller,
    mock::{Mock, MockOptions},
    proxy::Limits,
    server::Bounds,
};
use http::{Request, Response, Uri, request::Builder};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use tokio::time::{sleep, timeout};

/// Longer than anything takes.
pub const LONG: Duration = Duration::from_secs(60);

/// A fleet that is written as a file.
pub fn fleet(text: &str) -> Vec<Spec> {
    parse(text).expect("sound")
}

/// Keys of these names in tiers from 0 on, so that they are tried in this order; each takes `slots` requests at once.
pub fn in_order(names: &[&str], slots: u32) -> Vec<Spec> {
    let one = |(tier, name): (usize, &&str)| {
        format!(
            "[[resource]]\nkey = {name:?}\ntier = {tier}\nmax_in_flight = {slots}\ntokens_per_second = 1e6\n"
        )
    };
    fleet(&names.iter().enumerate().map(one).collect::<String>())
}

/// The two of them.
pub struct Stand {
    pub gateway: Gateway,
    pub mock: Mock,
    caller: Caller,
}

impl Stand {
    pub async fn start(fleet: &[Spec]) -> Stand {
        Self::start_with(fleet, MockOptions::default(), |_| {}).await
    }

    pub async fn start_with(fleet: &[Spec], mock: MockOptions, change: impl FnOnce(&mut Settings)) -> Stand {
        let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let mock = Mock::start(fleet, mock).await.expect("a free port");
        let mut settings = Settings {
            fleet: fleet.to_vec(),
            secrets: Secrets::of_mock(fleet),
            provider: mock.uri(),
            listen: free,
            admin: free,
            policy: Policy::default(),
            limits: Limits::default(),
            bounds: Bounds::default(),
            tells_key: true,
        };
        change(&mut settings);
        let gateway = Gateway::start(settings).await.expect("a free port");
        Stand { gateway, mock, caller: Caller::new() }
    }

    pub fn clients(&self) -> Uri {
        uri(self.gateway.address(), "/")
    }

    pub fn admin(&self) -> Uri {
        uri(self.gateway.admin(), "/")
    }

    /// A request to be finished.
    pub fn post(&self) -> Builder {
        Request::post(uri(self.gateway.address(), "/v1/chat"))
    }

    /// Sends it.
    pub async fn send(&self, request: Builder, body: impl Into<Bytes>) -> Response<Incoming> {
        let request = request.body(Full::new(body.into())).expect("well formed");
        timeout(LONG, self.caller.send(request)).await.expect("in time").expect("an answer")
    }

    /// As [`send`](Self::send), as a task of its own.
    pub fn spawn(&self, request: Builder) -> tokio::task::JoinHandle<Response<Incoming>> {
        let caller = self.caller.clone();
        let request = request.body(Full::default()).expect("well formed");
        tokio::spawn(async move { caller.send(request).await.expect("an answer") })
    }

    /// What operators see.
    pub async fn look(&self, path: &str) -> String {
        self.caller.text(&self.admin(), path).await.expect("200")
    }

    /// Until all leases are back.
    pub async fn at_rest(&self) {
        self.until(|stand| stand.gateway.keys().stats().in_flight == 0).await;
    }

    /// Until it is so.
    pub async fn until(&self, is_so: impl Fn(&Stand) -> bool) {
        let wait = async {
            while !is_so(self) {
                sleep(Duration::from_millis(2)).await;
            }
        };
        timeout(LONG, wait).await.expect("it becomes so in time");
    }
}

pub fn uri(address: SocketAddr, path: &str) -> Uri {
    format!("http://{address}{path}").parse().expect("an address")
}

/// The whole body, if it did not break.
pub async fn body(answer: Response<Incoming>) -> Result<String, hyper::Error> {
    let bytes = timeout(LONG, answer.into_body().collect()).await.expect("in time")?.to_bytes();
    Ok(String::from_utf8(bytes.to_vec()).expect("text"))
}

/// A field of the head.
pub fn field<'a>(answer: &'a Response<Incoming>, name: &str) -> Option<&'a str> {
    answer.headers().get(name).map(|value| value.to_str().expect("text"))
}
