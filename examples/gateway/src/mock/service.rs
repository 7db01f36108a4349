//! One request to the provider.

use std::{io, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{
    HeaderMap, Request, Response, StatusCode,
    header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE},
};
use http_body_util::{BodyExt, Either, Full};
use hyper::body::Incoming;
use tokio::time::sleep;

use super::{
    MOST_IDS, RECORDED, Recorded, Shared,
    act::{Act, Decision},
    counts::Guest,
    speech::{Speech, Then},
};

type Answer = Response<Either<Full<Bytes>, Speech>>;

/// Tokens of an answer, if the request does not say.
const TOKENS: u64 = 16;

/// And at most.
const MOST_TOKENS: u64 = 100_000;

/// Answers; an error closes the connection.
pub async fn answer(shared: Arc<Shared>, request: Request<Incoming>) -> io::Result<Answer> {
    let (parts, body) = request.into_parts();
    if let Some(what) = parts.uri.path().strip_prefix("/mock/") {
        return shared.tell(what).await;
    }
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let Some(index) = shared.index_of(&parts.headers) else {
        shared.state().counts.unknown += 1;
        return Ok(plain(StatusCode::UNAUTHORIZED, ""));
    };
    let guest = Guest::new(Arc::clone(&shared), index);
    let (tokens, size) = (tokens_of(&body), body.len() as u64 / 4);
    shared.note(Recorded {
        key: Arc::clone(&shared.fleet[index].key),
        method: parts.method,
        target: parts.uri.to_string(),
        headers: parts.headers.clone(),
        body,
    });
    let asked = parts.headers.get("x-mock").and_then(|asked| asked.to_str().ok());
    let Decision { after, act } = shared.decide(index, asked, tokens, size);
    if !after.is_zero() {
        sleep(after).await;
    }
    let gap = Duration::from_secs_f64(1.0 / (shared.fleet[index].tokens_per_second * shared.speed));
    perform(act, gap, guest).await
}

async fn perform(act: Act, gap: Duration, mut guest: Guest) -> io::Result<Answer> {
    let (tokens, then) = match act {
        Act::Answer { tokens } => (tokens, Then::Finish),
        Act::Cut { tokens } => (tokens, Then::Cut),
        Act::Endless => (u64::MAX, Then::Finish),
        Act::Stall => (1, Then::Stall),
        Act::Hold => std::future::pending().await,
        Act::Drop => {
            guest.end(|counts| counts.dropped += 1);
            return Err(io::Error::other("as it was told"));
        }
        Act::Plain(status, fields) => {
            let text = if status.is_success() { "well\n" } else { "" };
            guest.end(|counts| match status {
                StatusCode::TOO_MANY_REQUESTS => counts.rate_limited += 1,
                status if status.is_server_error() || status == StatusCode::UNAUTHORIZED => {
                    counts.failed += 1
                }
                _ => {
                    counts.complete += 1;
                    counts.bytes += text.len() as u64;
                }
            });
            let mut answer = plain(status, text);
            for (name, value) in fields {
                answer.headers_mut().append(name, value.parse().expect("a value of a header field"));
            }
            return Ok(answer);
        }
    };
    let mut answer = Response::new(Either::Right(Speech::new(tokens, gap, then, guest)));
    let fields = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-cache")];
    answer.headers_mut().extend(fields.map(|(name, value)| (name, http::HeaderValue::from_static(value))));
    Ok(answer)
}

fn plain(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Either::Left(Full::new(body.into())));
    *answer.status_mut() = status;
    answer
}

fn tokens_of(body: &[u8]) -> u64 {
    let asked: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    let tokens = asked.and_then(|asked| asked.get("max_tokens")?.as_u64());
    tokens.unwrap_or(TOKENS).min(MOST_TOKENS)
}

impl Shared {
    /// Which key a secret belongs to.
    fn index_of(&self, headers: &HeaderMap) -> Option<usize> {
        let secret = headers.get(AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer sk-mock-")?;
        secret.parse().ok().filter(|&index| index < self.fleet.len())
    }

    fn note(&self, recorded: Recorded) {
        let id = recorded.headers.get("x-request-id").and_then(|id| id.to_str().ok()).map(str::to_owned);
        let mut state = self.state();
        if let Some(id) = id {
            if state.ids.len() >= MOST_IDS {
                state.ids.clear();
            }
            let times = state.ids.entry(id).or_default();
            *times += 1;
            let is_repeat = *times > 1;
            state.counts.repeats += u64::from(is_repeat);
        }
        if state.recorded.len() == RECORDED {
            state.recorded.pop_front();
        }
        state.recorded.push_back(recorded);
        drop(state);
        self.arrival.notify_waiters();
    }

    pub(super) async fn seen(&self, id: &str) {
        loop {
            // Counted as waiting before the look, so that no arrival falls in between.
            let mut arrival = std::pin::pin!(self.arrival.notified());
            arrival.as_mut().enable();
            if self.state().ids.contains_key(id) {
                return;
            }
            arrival.await;
        }
    }

    /// The mock's own paths.
    async fn tell(&self, what: &str) -> io::Result<Answer> {
        match what.split_once('/') {
            Some(("seen", id)) => {
                self.seen(id).await;
                Ok(plain(StatusCode::OK, "seen\n"))
            }
            None if what == "counts" => {
                let counts = serde_json::to_vec(&self.state().counts)?;
                Ok(plain(StatusCode::OK, counts))
            }
            _ => Ok(plain(StatusCode::NOT_FOUND, "")),
        }
    }
}
