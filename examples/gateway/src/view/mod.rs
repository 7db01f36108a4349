//! What operators look at, on a socket of their own: clients have no business there.
//!
//! | path | answer |
//! |---|---|
//! | `/fleet` | a page that shows the fleet live; as data for whoever accepts `application/json` rather than a page |
//! | `/fleet.json` | the same as data |
//! | `POST /explain` | which key a request would be lent now, and why not the others. `x-leasehold-session` is its session, and a body `{"tried": ["a"]}` says which keys it has tried. Lends the key, and gives it back at once, which its events and counters show, and which may be the one probe of a key that was ejected: so not by `GET`, which a browser may send by itself |
//! | `/metrics` | for Prometheus |
//! | `/healthz` | 200 while requests are taken, 503 while the gateway shuts down |

pub mod fleet;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use axum::{
    Json, Router,
    extract::State,
    response::{Html, IntoResponse, Redirect, Response},
    routing::{get, post},
};
use bytes::Bytes;
use http::{
    HeaderMap, StatusCode,
    header::{ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, VARY},
};

use serde::Deserialize;

use crate::{
    keys::Keys,
    metrics::Metrics,
    proxy::{asked::session, lending, refusal::Refusal},
};

/// All of the page: no other file, and nothing from elsewhere.
const PAGE: &str = include_str!("page.html");

/// The page may talk to where it comes from, and to nobody else.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:";

/// What is looked at.
#[derive(Clone, Debug)]
pub struct View {
    /// The fleet.
    pub keys: Arc<Keys>,
    /// The counters.
    pub metrics: Metrics,
    /// Whether the gateway shuts down.
    pub is_draining: Arc<AtomicBool>,
}

impl View {
    /// The routes.
    pub fn router(self) -> Router {
        Router::new()
            .route("/", get(|| async { Redirect::temporary("/fleet") }))
            .route("/fleet", get(fleet))
            .route("/fleet.json", get(fleet_json))
            .route("/explain", post(explain))
            .route("/metrics", get(metrics))
            .route("/healthz", get(healthz))
            .with_state(self)
    }

    fn is_draining(&self) -> bool {
        // Relaxed: a flag that publishes nothing.
        self.is_draining.load(Ordering::Relaxed)
    }
}

async fn fleet(state: State<View>, fields: HeaderMap) -> Response {
    if wants_data(&fields) {
        return ([(VARY, "accept")], fleet_json(state).await).into_response();
    }
    let fields = [(CONTENT_SECURITY_POLICY, POLICY), (CACHE_CONTROL, "no-cache")];
    ([(VARY, "accept")], fields, Html(PAGE)).into_response()
}

/// Whether JSON is named, and no page is: a browser names both.
fn wants_data(fields: &HeaderMap) -> bool {
    let names = |kind: &str| {
        let accepted = fields.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let mut kinds = accepted.flat_map(|value| value.split(',')).map(|one| one.split(';').next());
        kinds.any(|one| one.is_some_and(|one| one.trim().eq_ignore_ascii_case(kind)))
    };
    names("application/json") && !names("text/html")
}

async fn fleet_json(State(view): State<View>) -> impl IntoResponse {
    ([(CACHE_CONTROL, "no-store")], Json(fleet::Fleet::read(&view.keys, view.is_draining())))
}

/// What the body of an `/explain` may say.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Supposed {
    /// Keys that the request has tried.
    #[serde(default)]
    tried: Vec<Arc<str>>,
}

async fn explain(
    State(view): State<View>,
    fields: HeaderMap,
    body: Bytes,
) -> Result<impl IntoResponse, Refusal> {
    let session = session(&fields)?;
    let supposed = if body.is_empty() { Ok(Supposed::default()) } else { serde_json::from_slice(&body) };
    let Supposed { tried } =
        supposed.map_err(|_| Refusal::Malformed("a body like {\"tried\": [\"a\"]}, or none"))?;
    Ok(Json(lending::explain(&view.keys, session.as_deref(), &tried)))
}

async fn metrics(State(view): State<View>) -> Response {
    match view.metrics.text() {
        Ok(text) => ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn healthz(State(view): State<View>) -> (StatusCode, &'static str) {
    if view.is_draining() {
        (StatusCode::SERVICE_UNAVAILABLE, "draining\n")
    } else {
        (StatusCode::OK, "ok\n")
    }
}
