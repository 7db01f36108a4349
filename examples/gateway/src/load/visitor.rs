//! One request: what is sent, and what the client then does.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, StatusCode, header::RETRY_AFTER, request::Builder};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::HttpInfo;
use leasehold::SplitMix64;
use tokio::time::{Instant, sleep};

use super::{
    Plan, Tally,
    caller::{Caller, at},
};
use crate::{
    proxy::headers::{CLASS, SESSION},
    server::GRACE,
};

/// How long a client waits that was told to come back later. Not as long as it was told: the load is to go on.
const REST: Duration = Duration::from_millis(200);

/// A client that sends one request after another.
pub struct Visitor {
    pub caller: Caller,
    pub plan: Plan,
    pub luck: SplitMix64,
    /// Numbers the requests of all clients.
    pub numbers: Arc<AtomicU64>,
    pub tally: Tally,
    /// Of its connections, the ports on which something was answered.
    pub ports: HashSet<u16>,
}

fn port(info: &HttpInfo) -> u16 {
    info.local_addr().port()
}

/// What a client is up to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Intent {
    /// An answer.
    Ask,
    /// To be refused: a class that is none.
    Malformed,
    /// To be refused: a body that is too large.
    TooLarge,
    /// To leave before the answer, once the provider has the request. Earlier, nobody could say whether it will ever have it.
    LeaveBefore,
    /// To leave in the midst of an answer that never ends.
    LeaveWithin,
}

impl Visitor {
    fn below(&mut self, bound: u64) -> u64 {
        self.luck.next_u64() % bound
    }

    fn intent(&mut self) -> Intent {
        let draw = self.below(100);
        match draw {
            0..2 if self.plan.too_large > 0 => Intent::TooLarge,
            _ if !self.plan.misbehave => Intent::Ask,
            2..5 => Intent::Malformed,
            5..8 => Intent::LeaveBefore,
            8..11 => Intent::LeaveWithin,
            _ => Intent::Ask,
        }
    }

    /// One request. `false` if nobody was there.
    pub async fn visit(&mut self) -> bool {
        let intent = self.intent();
        let id = self.id();
        let request = self.request(intent, &id);
        self.tally.requests += 1;
        let (caller, mock) = (self.caller.clone(), self.plan.mock.clone());
        let began = Instant::now();
        let answer = if intent == Intent::LeaveBefore {
            let path = format!("/mock/seen/{id}");
            tokio::select! {
                answer = self.caller.send(request) => answer,
                // Dropping the request closes its connection.
                _ = caller.text(&mock, &path) => {
                    self.tally.left_before += 1;
                    return true;
                }
            }
        } else {
            self.caller.send(request).await
        };
        match answer {
            Ok(answer) => {
                self.ports.extend(answer.extensions().get().map(port));
                let is_refused = answer.status() == StatusCode::SERVICE_UNAVAILABLE;
                self.read(answer, intent).await;
                if is_refused {
                    sleep(REST).await;
                }
            }
            Err(error) if error.is_connect() => {
                self.tally.nobody += 1;
                return false;
            }
            Err(error) => {
                self.tally.lost += 1;
                let mut known = http::Extensions::new();
                if let Some(connection) = error.connect_info() {
                    connection.get_extras(&mut known);
                }
                let is_new = known.get().is_some_and(|info| !self.ports.contains(&port(info)));
                // Longer, and the client may have kept back its request: a server that ends waits for its first byte for so long.
                let is_new = is_new && began.elapsed() < GRACE;
                self.tally.lost_new += u64::from(is_new);
            }
        }
        true
    }

    /// Unlike that of any other request, also of an earlier run.
    fn id(&mut self) -> String {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let moment = std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos());
        format!("{number}-{moment:x}")
    }

    fn request(&mut self, intent: Intent, id: &str) -> Request<Full<Bytes>> {
        let uri = at(&self.plan.gateway, "/v1/chat/completions").expect("a plan's address and a path");
        // The client's own credentials, which nobody else is to see.
        let mut request =
            Request::post(uri).header("x-request-id", id).header("authorization", "Bearer client");
        if self.below(2) == 0 {
            request = request.header("idempotency-key", id);
        }
        if self.below(3) == 0 {
            let session = self.below(50);
            request = request.header(SESSION, format!("session-{session}"));
        }
        let tokens = 1 + self.below(8);
        let asks = |request: Builder, what: &str| request.header("x-mock", what.to_owned());
        let class = self.below(4);
        let request = match intent {
            Intent::Malformed => request.header(CLASS, "urgent"),
            Intent::LeaveBefore => asks(request, "hold"),
            Intent::LeaveWithin => asks(request, "endless"),
            Intent::Ask | Intent::TooLarge => request.header(CLASS, class),
        };
        let mut body = format!("{{\"max_tokens\":{tokens}}}");
        if intent == Intent::TooLarge {
            body.extend(std::iter::repeat_n(' ', self.plan.too_large));
        }
        request.body(Full::from(body)).expect("well formed")
    }

    async fn read(&mut self, answer: Response<Incoming>, intent: Intent) {
        let status = answer.status();
        *self.tally.answers.entry(status.as_u16()).or_default() += 1;
        if status == StatusCode::SERVICE_UNAVAILABLE {
            let after = answer.headers().get(RETRY_AFTER).and_then(|after| after.to_str().ok()?.parse().ok());
            self.tally.unsound += u64::from(after.is_none_or(|seconds: u64| seconds == 0));
        }
        let mut body = answer.into_body();
        let mut bytes = 0;
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else {
                self.tally.broken += 1;
                return;
            };
            bytes += frame.data_ref().map_or(0, Bytes::len) as u64;
            if status == StatusCode::OK && intent == Intent::LeaveWithin {
                self.tally.left_within += 1;
                return;
            }
        }
        if status == StatusCode::OK {
            self.tally.complete += 1;
            self.tally.bytes += bytes;
        }
    }
}
