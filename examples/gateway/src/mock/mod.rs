//! A provider that is slow, limits, fails and breaks off: as the fleet file says, at random, or by a script.
//!
//! | file | idea |
//! |---|---|
//! | `act` | what it does with a request, and how that is decided |
//! | `bucket` | limits per minute |
//! | `counts` | what it has done, key by key |
//! | `speech` | an answer that is streamed token by token |
//! | `service` | one request |
//!
//! Its own paths: `/mock/counts` tells its counts; `/mock/seen/ID` answers once a request with `x-request-id: ID` has come.

mod act;
mod bucket;
mod counts;
mod service;
mod speech;

use std::{
    collections::{HashMap, VecDeque},
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use http::{HeaderMap, Method, Uri};
use hyper::service::service_fn;
use leasehold::SplitMix64;
use tokio::{sync::Notify, time::Instant};

pub use act::{Act, Faults};
pub use counts::{Counts, KeyCounts};

use self::bucket::Buckets;
use crate::{
    fleet::Spec,
    server::{Bounds, Server},
};

/// How the mock behaves, beside what the fleet file says.
#[derive(Clone, Debug)]
pub struct MockOptions {
    /// Where it listens. Port 0: any that is free.
    pub listen: SocketAddr,
    /// How much faster than the fleet file says.
    pub speed: f64,
    /// What goes wrong at random.
    pub faults: Faults,
    /// The seed of its luck.
    pub seed: u64,
}

impl Default for MockOptions {
    fn default() -> Self {
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        MockOptions { listen, speed: 1.0, faults: Faults::default(), seed: 1 }
    }
}

/// A request as the provider has got it.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The name of the key that it came with.
    pub key: Arc<str>,
    /// Its method.
    pub method: Method,
    /// Path and query.
    pub target: String,
    /// Its header fields.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

/// Requests that are kept to be looked at.
const RECORDED: usize = 64;

/// Ids of requests that are remembered; then they are forgotten all at once.
const MOST_IDS: usize = 1_000_000;

/// A mock provider that runs. Dropped, it ends.
#[derive(Debug)]
pub struct Mock {
    server: Server,
    shared: Arc<Shared>,
}

/// What all requests share.
#[derive(Debug)]
struct Shared {
    fleet: Vec<Spec>,
    speed: f64,
    faults: Faults,
    since: Instant,
    state: Mutex<State>,
    arrival: Notify,
}

#[derive(Debug)]
struct State {
    luck: SplitMix64,
    counts: Counts,
    buckets: Vec<Buckets>,
    scripts: HashMap<Arc<str>, VecDeque<Act>>,
    /// How often each id has come.
    ids: HashMap<String, u64>,
    recorded: VecDeque<Recorded>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Mock {
    /// Starts it. It knows the keys of this fleet by the secrets of [`Secrets::of_mock`](crate::fleet::Secrets::of_mock).
    ///
    /// # Errors
    /// The address cannot be had.
    pub async fn start(fleet: &[Spec], options: MockOptions) -> io::Result<Mock> {
        let since = Instant::now();
        let state = State {
            luck: SplitMix64::new(options.seed),
            counts: Counts::new(fleet.iter().map(|spec| &*spec.key)),
            buckets: fleet.iter().map(|spec| Buckets::new(spec, options.speed, since)).collect(),
            scripts: HashMap::new(),
            ids: HashMap::new(),
            recorded: VecDeque::new(),
        };
        let shared = Arc::new(Shared {
            fleet: fleet.to_vec(),
            speed: options.speed,
            faults: options.faults,
            since,
            state: Mutex::new(state),
            arrival: Notify::new(),
        });
        let service = {
            let shared = Arc::clone(&shared);
            service_fn(move |request| service::answer(Arc::clone(&shared), request))
        };
        let server = Server::start(options.listen, Bounds::default(), service).await;
        let server =
            server.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", options.listen)))?;
        Ok(Mock { server, shared })
    }

    /// Where it is.
    pub fn uri(&self) -> Uri {
        format!("http://{}", self.server.address).parse().expect("an address is an authority")
    }

    /// What it does with the next requests that come with this key, one after another; then it goes on as before.
    pub fn script(&self, key: &str, acts: impl IntoIterator<Item = Act>) {
        self.shared.state().scripts.entry(Arc::from(key)).or_default().extend(acts);
    }

    /// What it has done.
    pub fn counts(&self) -> Counts {
        self.shared.state().counts.clone()
    }

    /// The last requests, the oldest first.
    pub fn recorded(&self) -> Vec<Recorded> {
        self.shared.state().recorded.iter().cloned().collect()
    }

    /// Once a request with this id has come.
    pub async fn seen(&self, id: &str) {
        self.shared.seen(id).await;
    }
}
