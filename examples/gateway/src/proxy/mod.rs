//! One request: a key, an attempt, another key, a streamed answer.
//!
//! * **A key is held until the answer's body has ended**, or until the client goes, whichever comes first: [`streamed`]. A client that
//!   goes says nothing about the key: [`attempt`].
//! * **A retry goes elsewhere**: every key is tried once at most. An attempt that was refused (429, 5xx, a key that the provider does
//!   not know, no connection) is repeated for every request; one whose fate is not known (a broken connection, a timeout) only if
//!   the request may be repeated. Once the head of an answer has been passed on, nothing is.
//! * **What the provider says about time is kept**: a key cools for as long as `Retry-After` says, in the very step of its return.
//! * **What the client is told about time is true**: when nothing can be had, `Retry-After` is the moment at which the first key can be
//!   lent again; a second if that is not a matter of time.

pub mod asked;
pub mod attempt;
pub mod headers;
pub mod lending;
pub mod refusal;
pub mod retry_after;
pub mod streamed;

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use axum::{
    body::Body,
    extract::State,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http::{HeaderValue, Request, StatusCode, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use leasehold::OwnedLease;
use tokio::time::{Instant, timeout_at};
use tracing::{Instrument, info, info_span};

use self::{
    asked::Asked,
    attempt::{Attempt, Trouble},
    lending::NoKey,
    refusal::Refusal,
    streamed::Streamed,
};
use crate::{
    keys::{ApiKey, Keys},
    metrics::{Metrics, Visit},
};

/// How much a request may cost.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of a request's body: it is kept in memory, to be sent again.
    pub body: usize,
    /// Keys that are tried for one request.
    pub attempts: usize,
    /// How long a request waits for a key, each time.
    pub patience: Duration,
    /// How long an attempt may take until the head of its answer.
    pub attempt: Duration,
    /// The same for the whole request.
    pub request: Duration,
    /// How long a streamed answer may pause, and a client not read it.
    pub idle: Duration,
    /// How long a key rests that was limited without being told for how long.
    pub rest: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            body: 1024 * 1024,
            attempts: 3,
            patience: Duration::from_secs(5),
            attempt: Duration::from_secs(30),
            request: Duration::from_secs(60),
            idle: Duration::from_secs(30),
            rest: Duration::from_secs(5),
        }
    }
}

/// The gateway's work.
#[derive(Debug)]
pub struct Proxy {
    keys: Arc<Keys>,
    client: Client<HttpConnector, Full<Bytes>>,
    provider: Uri,
    limits: Limits,
    metrics: Metrics,
    tells_key: bool,
}

impl Proxy {
    /// To a provider at `http://host[:port][/base]`. `tells_key`: clients are told which key has answered.
    pub fn new(keys: Arc<Keys>, provider: Uri, limits: Limits, metrics: Metrics, tells_key: bool) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(limits.attempt));
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(15))
            .build(connector);
        Proxy { keys, client, provider, limits, metrics, tells_key }
    }

    /// Serves a request. Dropped at any moment, it gives back what it holds.
    pub async fn serve(State(proxy): State<Arc<Proxy>>, request: Request<Body>) -> Response {
        let span = info_span!("request", method = %request.method(), path = request.uri().path());
        proxy.answer(request).instrument(span).await
    }

    async fn answer(&self, request: Request<Body>) -> Response {
        let mut visit = Visit::begin(&self.metrics);
        let mut tried = Vec::new();
        let found = self.find(request, &mut tried).await;
        let status = found.as_ref().map_or_else(Refusal::status, |(answer, _)| answer.status());
        visit.answered(status);
        info!(status = status.as_u16(), ?tried, after = ?visit.elapsed(), "answered");
        let mut response = match found {
            Ok((answer, attempt)) => self.pass_on(answer, attempt, visit),
            Err(refusal) => refusal.into_response(),
        };
        if self.tells_key {
            let headers = response.headers_mut();
            headers.insert(headers::ATTEMPTS, HeaderValue::from(tried.len()));
            // A name that no header can have is not told.
            let name = tried.last().and_then(|name| HeaderValue::from_str(name).ok());
            name.map(|name| headers.insert(headers::KEY, name));
        }
        response
    }

    /// An answer that can be passed on. `tried` has the keys in the order in which they were tried.
    async fn find(
        &self,
        request: Request<Body>,
        tried: &mut Vec<Arc<str>>,
    ) -> Result<(http::Response<Incoming>, Attempt), Refusal> {
        let deadline = Instant::now() + self.limits.request;
        let asked = Asked::read(request, &self.provider, self.limits.body, deadline).await?;
        let mut last = None;
        // With one that was never tried the fleet is empty, and it is the scheduler that says so.
        while tried.is_empty() || tried.len() < self.limits.attempts.min(self.keys.len()) {
            let patience = self.limits.patience.min(deadline.saturating_duration_since(Instant::now()));
            let until = self.keys.now().saturating_add(patience);
            let lease = match lending::lend(&self.keys, &asked, tried, until).await {
                Ok(lease) => lease,
                Err(NoKey::Closed) => return Err(Refusal::Closing),
                Err(NoKey::Later(after)) if tried.is_empty() => return Err(Refusal::NoKey { after }),
                Err(NoKey::Later(_)) => break,
            };
            if !tried.is_empty() {
                self.metrics.retried();
            }
            tried.push(Arc::clone(lease.key()));
            let trouble = match self.attempt(lease, &asked, deadline).await {
                Ok(answer) => return Ok(answer),
                Err(trouble) => trouble,
            };
            last = Some(trouble);
            // With no time left, a further key could only be blamed for it.
            if !(trouble.says_undone() || asked.is_repeatable) || Instant::now() >= deadline {
                break;
            }
        }
        match last {
            None | Some(Trouble::RateLimited { .. }) => {
                Err(Refusal::NoKey { after: lending::soonest(&self.keys) })
            }
            Some(trouble) => Err(Refusal::Upstream(trouble)),
        }
    }

    /// One attempt with one key.
    async fn attempt(
        &self,
        lease: OwnedLease<ApiKey>,
        asked: &Asked,
        deadline: Instant,
    ) -> Result<(http::Response<Incoming>, Attempt), Trouble> {
        let request = asked.with_key(&lease);
        let mut attempt = Attempt::begin(lease, &self.metrics);
        let (own, request_ends) = (Instant::now() + self.limits.attempt, deadline);
        let answer = match timeout_at(own.min(request_ends), self.client.request(request)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) if error.is_connect() => return Err(attempt.fail(Trouble::Unreachable)),
            Ok(Err(_)) => return Err(attempt.fail(Trouble::Lost)),
            Err(_) if own <= request_ends => return Err(attempt.fail(Trouble::TimedOut)),
            // It had less time than an attempt may take.
            Err(_) => return Err(attempt.fail(Trouble::OutOfTime)),
        };
        attempt.head_is_there();
        match self.judge(&answer) {
            Some(trouble) => Err(attempt.fail(trouble)),
            None => Ok((answer, attempt)),
        }
    }

    /// What an answer means for the key. What is wrong with the request itself, the client is told by the provider.
    fn judge(&self, answer: &http::Response<Incoming>) -> Option<Trouble> {
        let status = answer.status();
        let told = retry_after::read(answer.headers(), SystemTime::now());
        match (status, told) {
            (StatusCode::TOO_MANY_REQUESTS, told) => {
                Some(Trouble::RateLimited { retry_after: told.unwrap_or(self.limits.rest) })
            }
            (StatusCode::SERVICE_UNAVAILABLE, Some(retry_after)) => {
                Some(Trouble::RateLimited { retry_after })
            }
            // The key is ours: that it is not known is not the client's fault.
            (StatusCode::UNAUTHORIZED, _) => Some(Trouble::Status(status)),
            // Nobody has asked to switch protocols.
            _ if status.is_server_error() || status.is_informational() => Some(Trouble::Status(status)),
            _ => None,
        }
    }

    fn pass_on(&self, answer: http::Response<Incoming>, attempt: Attempt, visit: Visit) -> Response {
        let (mut parts, body) = answer.into_parts();
        headers::to_client(&mut parts.headers);
        let body = Streamed::new(body, attempt, visit, self.limits.idle);
        Response::from_parts(parts, Body::new(body))
    }
}
