//! What operators look at, on a socket of their own: clients have no business there.
//!
//! | path | answer |
//! |---|---|
//! | `/fleet` | a page that shows the fleet live |
//! | `/fleet.json` | the same as data |
//! | `/explain` | which key would be lent now, and why not the others. Lends it, and gives it back at once |
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
    routing::get,
};
use http::{
    StatusCode,
    header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE},
};

use crate::{keys::Keys, metrics::Metrics};

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
            .route("/fleet", get(page))
            .route("/fleet.json", get(fleet_json))
            .route("/explain", get(explain))
            .route("/metrics", get(metrics))
            .route("/healthz", get(healthz))
            .with_state(self)
    }

    fn is_draining(&self) -> bool {
        // Relaxed: a flag that publishes nothing.
        self.is_draining.load(Ordering::Relaxed)
    }
}

async fn page() -> impl IntoResponse {
    ([(CONTENT_SECURITY_POLICY, POLICY), (CACHE_CONTROL, "no-cache")], Html(PAGE))
}

async fn fleet_json(State(view): State<View>) -> impl IntoResponse {
    ([(CACHE_CONTROL, "no-store")], Json(fleet::Fleet::read(&view.keys, view.is_draining())))
}

async fn explain(State(view): State<View>) -> impl IntoResponse {
    // The lease is back before the answer is.
    let (_, explanation) = view.keys.acquire_explained();
    Json(explanation)
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
