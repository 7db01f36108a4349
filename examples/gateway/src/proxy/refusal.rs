//! What the gateway answers by itself.

use std::time::Duration;

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use http::{StatusCode, header::RETRY_AFTER};
use serde_json::json;

use super::{attempt::Trouble, retry_after};

/// Why a request is not answered by the provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The request makes no sense.
    Malformed(&'static str),
    /// The body is larger than what is buffered.
    TooLarge {
        /// The most allowed, in bytes.
        limit: usize,
    },
    /// The target is longer than an address can be.
    TargetTooLong,
    /// The client has taken too long to send its request.
    TooSlow,
    /// No key could be had in time.
    NoKey {
        /// When there will be one, if that is known.
        after: Option<Duration>,
    },
    /// The gateway shuts down.
    Closing,
    /// The last attempt has failed, and there is none left.
    Upstream(Trouble),
}

impl Refusal {
    /// The status of the answer.
    pub fn status(&self) -> StatusCode {
        match self {
            Refusal::Malformed(_) => StatusCode::BAD_REQUEST,
            Refusal::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Refusal::TargetTooLong => StatusCode::URI_TOO_LONG,
            Refusal::TooSlow => StatusCode::REQUEST_TIMEOUT,
            Refusal::NoKey { .. } | Refusal::Closing => StatusCode::SERVICE_UNAVAILABLE,
            Refusal::Upstream(Trouble::TimedOut | Trouble::OutOfTime) => StatusCode::GATEWAY_TIMEOUT,
            Refusal::Upstream(_) => StatusCode::BAD_GATEWAY,
        }
    }

    fn message(&self) -> String {
        match self {
            Refusal::Malformed(what) => (*what).to_owned(),
            Refusal::TooLarge { limit } => {
                format!("the body is too large: at most {limit} bytes are allowed")
            }
            Refusal::TargetTooLong => "the target is too long".to_owned(),
            Refusal::TooSlow => "the request took too long to arrive".to_owned(),
            Refusal::NoKey { .. } => "no key of the provider is available: come back later".to_owned(),
            Refusal::Closing => "the gateway is shutting down".to_owned(),
            Refusal::Upstream(trouble) => trouble.to_string(),
        }
    }

    /// What goes into `Retry-After`, if anything does. No time is written as the least that can be: a second.
    fn retry_after(&self) -> Option<Duration> {
        match self {
            Refusal::NoKey { after } => Some(after.unwrap_or_default()),
            Refusal::Closing => Some(Duration::from_secs(1)),
            _ => None,
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = self.status();
        let error = json!({ "error": { "code": status.as_u16(), "message": self.message() } });
        let mut response = (status, Json(error)).into_response();
        if let Some(after) = self.retry_after() {
            response.headers_mut().insert(RETRY_AFTER, retry_after::write(after));
        }
        response
    }
}
