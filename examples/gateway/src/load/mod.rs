//! A client that counts what it sees, and holds that against what the gateway and the mock provider have counted.
//!
//! | file | idea |
//! |---|---|
//! | `caller` | HTTP, as a client does it |
//! | `visitor` | one request: what is sent, and what the client then does |
//! | `tally` | what the clients have seen |
//! | `scrape` | reading what Prometheus would read |
//! | `check` | who must have counted the same |

mod caller;
mod check;
mod scrape;
mod tally;
mod visitor;

use std::{
    collections::HashSet,
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use http::Uri;
use leasehold::SplitMix64;
use serde::Serialize;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

pub use caller::Caller;
pub use check::{Difference, compare};
pub use scrape::Scrape;
pub use tally::Tally;

use crate::mock::Counts;

/// Anything that goes wrong in the load itself.
pub type LoadError = Box<dyn Error + Send + Sync>;

/// Who is loaded, and with what.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where clients come in.
    pub gateway: Uri,
    /// Where operators look.
    pub admin: Uri,
    /// The mock provider.
    pub mock: Uri,
    /// For how long.
    pub duration: Duration,
    /// Clients at once.
    pub clients: usize,
    /// The seed of what they send.
    pub seed: u64,
    /// Some requests have so large a body, and are to be refused for that. 0: none.
    pub too_large: usize,
    /// Whether clients send requests that make no sense, and leave before their answer or in the midst of it.
    pub misbehave: bool,
    /// The gateway is going to end: who finds nobody there stops, and nothing is compared.
    pub until_end: bool,
}

/// What has come of it.
#[derive(Debug, Serialize)]
pub struct Report {
    /// What the clients have seen.
    pub clients: Tally,
    /// What the provider has seen; not known if the gateway was to end.
    pub provider: Counts,
    /// Numbers that were compared.
    pub compared: usize,
    /// Those that differ.
    pub differences: Vec<Difference>,
}

/// Loads a gateway and compares.
///
/// # Errors
/// Nobody is there, or nothing comes to rest.
pub async fn run(plan: Plan) -> Result<Report, LoadError> {
    let caller = Caller::new();
    let before = Numbers::read(&caller, &plan).await?;
    let started = Instant::now();
    let numbers = Arc::new(AtomicU64::new(0));
    let is_over = Arc::new(AtomicBool::new(false));
    let mut clients = JoinSet::new();
    for client in 0..plan.clients {
        let visitor = visitor::Visitor {
            // Connections of its own, as clients have them.
            caller: Caller::new(),
            plan: plan.clone(),
            luck: SplitMix64::new(plan.seed ^ (client as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            numbers: Arc::clone(&numbers),
            tally: Tally::default(),
            ports: HashSet::new(),
        };
        let is_over = Arc::clone(&is_over);
        clients.spawn(async move {
            let mut visitor = visitor;
            // Relaxed: a flag that publishes nothing.
            while started.elapsed() < visitor.plan.duration && !is_over.load(Ordering::Relaxed) {
                if !visitor.visit().await {
                    is_over.store(true, Ordering::Relaxed);
                }
            }
            visitor.tally
        });
    }
    let mut tally = Tally::default();
    while let Some(one) = clients.join_next().await {
        tally.add(&one?);
    }
    if plan.until_end {
        let counts = caller.counts(&plan.mock).await?;
        let provider = counts.since(&before.provider);
        return Ok(Report { clients: tally, provider, compared: 0, differences: Vec::new() });
    }
    let after = at_rest(&caller, &plan).await?;
    let gateway = after.gateway.since(&before.gateway);
    let provider = after.provider.since(&before.provider);
    let (compared, differences) = compare(&tally, &gateway, &provider);
    Ok(Report { clients: tally, provider, compared, differences })
}

/// What the gateway and the provider have counted.
struct Numbers {
    gateway: Scrape,
    provider: Counts,
}

impl Numbers {
    async fn read(caller: &Caller, plan: &Plan) -> Result<Numbers, LoadError> {
        let gateway = Scrape::read(&caller.text(&plan.admin, "/metrics").await?);
        Ok(Numbers { gateway, provider: caller.counts(&plan.mock).await? })
    }

    /// Nothing is going on: neither here nor there.
    fn is_at_rest(&self) -> bool {
        self.gateway.sum("gateway_requests_in_flight", &[]) == 0
            && self.gateway.sum("leasehold_leases", &[]) == 0
            && self.provider.sum(|counts| counts.arrivals) == self.provider.sum(|counts| counts.ended())
    }
}

/// Clients that leave are noticed a moment later.
async fn at_rest(caller: &Caller, plan: &Plan) -> Result<Numbers, LoadError> {
    for _ in 0..600 {
        let numbers = Numbers::read(caller, plan).await?;
        if numbers.is_at_rest() {
            return Ok(numbers);
        }
        sleep(Duration::from_millis(100)).await;
    }
    Err("the gateway did not come to rest within 60 s".into())
}
