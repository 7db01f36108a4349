//! All of it together, and how it shuts down.

use std::{
    error::Error,
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::Router;
use http::Uri;
use hyper_util::service::TowerToHyperService;
use leasehold::DrainReport;
use tokio::time::{Instant, timeout};
use tracing::{info, warn};

use crate::{
    fleet::{Secrets, Spec},
    keys::{self, Keys, Policy},
    metrics::Metrics,
    proxy::{Limits, Proxy},
    server::{Bounds, Server},
    view::View,
};

/// Everything that a gateway is told.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The keys.
    pub fleet: Vec<Spec>,
    /// Their secrets.
    pub secrets: Secrets,
    /// `http://host[:port][/base]`.
    pub provider: Uri,
    /// Where clients come in. Port 0: any that is free.
    pub listen: SocketAddr,
    /// Where operators look.
    pub admin: SocketAddr,
    /// What follows from what happens to a key.
    pub policy: Policy,
    /// How much a request may cost.
    pub limits: Limits,
    /// What a connection may cost. Its `write_time` is `limits.idle`.
    pub bounds: Bounds,
    /// Whether clients are told which key has answered.
    pub tells_key: bool,
}

/// A gateway that runs. Dropped, it ends at once; [`shut_down`](Gateway::shut_down) lets requests finish.
#[derive(Debug)]
pub struct Gateway {
    keys: Arc<Keys>,
    metrics: Metrics,
    is_draining: Arc<AtomicBool>,
    public: Server,
    admin: Server,
}

/// How a gateway has ended.
#[derive(Debug)]
pub struct ShutDown {
    /// Whether every request has finished in time; the others were broken off.
    pub is_graceful: bool,
    /// Leases that did not come back, and who holds them.
    pub drain: DrainReport<Arc<str>>,
}

impl ShutDown {
    /// Nothing was broken off, and nothing is missing.
    pub fn is_clean(&self) -> bool {
        self.is_graceful && self.drain.is_drained()
    }
}

/// How long what is left may take to come back once all connections are gone.
const LAST: Duration = Duration::from_secs(1);

impl Gateway {
    /// Starts it.
    ///
    /// # Errors
    /// An address that cannot be had, a provider's address that makes no sense, a policy out of range.
    pub async fn start(settings: Settings) -> Result<Gateway, Box<dyn Error + Send + Sync>> {
        let provider = settings.provider;
        if provider.scheme_str() != Some("http") || provider.host().is_none() || provider.query().is_some() {
            return Err(format!("{provider}: expected http://host[:port][/base]").into());
        }
        let keys = keys::scheduler(&settings.fleet, &settings.secrets, &settings.policy)?;
        let metrics = Metrics::new(&keys);
        let is_draining = Arc::new(AtomicBool::new(false));
        let proxy = Arc::new(Proxy::new(
            Arc::clone(&keys),
            provider,
            settings.limits,
            metrics.clone(),
            settings.tells_key,
        ));
        let view =
            View { keys: Arc::clone(&keys), metrics: metrics.clone(), is_draining: Arc::clone(&is_draining) };
        let clients = Router::new().fallback(Proxy::serve).with_state(proxy);
        // A client that does not read is a pause like any other, and nobody looks at the body meanwhile.
        let bounds = Bounds { write_time: settings.limits.idle, ..settings.bounds };
        let public = serve(settings.listen, bounds, clients).await?;
        let admin = serve(settings.admin, bounds, view.router()).await?;
        Ok(Gateway { keys, metrics, is_draining, public, admin })
    }

    /// Where clients come in.
    pub fn address(&self) -> SocketAddr {
        self.public.address
    }

    /// Where operators look.
    pub fn admin(&self) -> SocketAddr {
        self.admin.address
    }

    /// The scheduler.
    pub fn keys(&self) -> &Arc<Keys> {
        &self.keys
    }

    /// The counters.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Takes no further request, lets those finish that have come, also those that wait for a key, and sees that every key has come
    /// back. What is not done within `limit` is broken off. Operators can look until the end.
    ///
    /// The scheduler is closed *after* the requests: one that is being served may still need another key.
    pub async fn shut_down(self, limit: Duration) -> ShutDown {
        // Relaxed: a flag that publishes nothing.
        self.is_draining.store(true, Ordering::Relaxed);
        let since = Instant::now();
        let is_graceful = self.public.stop(limit).await;
        info!(is_graceful, after = ?since.elapsed(), "connections have ended");
        // It waits for the scheduler's observers, if there are any: not on a thread that serves.
        let keys = Arc::clone(&self.keys);
        if let Err(error) = tokio::task::spawn_blocking(move || keys.close()).await {
            warn!(%error, "the scheduler was not closed");
        }
        let mut drain = Box::pin(self.keys.drain_all_async());
        let drain = match timeout(LAST, drain.as_mut()).await {
            Ok(report) => report,
            Err(_) => drain.report(),
        };
        self.admin.stop(Duration::ZERO).await;
        ShutDown { is_graceful, drain }
    }
}

async fn serve(address: SocketAddr, bounds: Bounds, router: Router) -> io::Result<Server> {
    let server = Server::start(address, bounds, TowerToHyperService::new(router)).await;
    server.map_err(|error| io::Error::new(error.kind(), format!("{address}: {error}")))
}
