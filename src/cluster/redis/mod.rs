//! The engine for Redis 7 and Valkey servers: each step is one script, called by its digest.
//!
//! | file | idea |
//! |---|---|
//! | this one | connections: they are made anew when they fail, at the next address if there are several |
//! | `scripts` | the steps; all begin with `base.lua`, which changes nothing, and but for the overview with `prelude.lua` |
//! | `wire` | arguments and answers |
//! | `listener` | a thread for what is published |
//!
//! Keys of the fleet `f`: `leasehold:{f}:meta` (hash: run, epoch, quarantine, ttl, last session, last token, version of the holds), `:sessions` (sorted
//! set: when each is over), `:lines` (hash: what each said last), `:ranks` (hash: units), `:free` (sorted set: units by rank), `:owned` (sorted set:
//! units by session), `:tokens` (hash), `:holds` (hash); and the channel `leasehold:{f}:news`. The braces put them on one node of a cluster.

mod listener;
mod wire;

use std::{error::Error, fmt, time::Duration};

use redis::{Client, Cmd, Connection, ErrorKind, RedisError, Script, ServerErrorKind, Value, cmd};

use self::listener::Listener;
use super::engine::{Engine, EngineError, HoldNote, Reply, Request};
use crate::sync::{Arc, Clock, MonotonicClock};

/// The names of the keys that a fleet has, in the order in which scripts take them.
const KEYS: [&str; 8] = ["meta", "sessions", "lines", "ranks", "free", "owned", "tokens", "holds"];

macro_rules! step {
    ($name:literal) => {
        Script::new(concat!(
            include_str!("scripts/base.lua"),
            include_str!("scripts/prelude.lua"),
            include_str!(concat!("scripts/", $name, ".lua"))
        ))
    };
}

/// The scripts.
struct Steps {
    join: Script,
    register: Script,
    renew: Script,
    claim: Script,
    give_back: Script,
    reinstate: Script,
    owned: Script,
    leave: Script,
    hold: Script,
    holds: Script,
    overview: Script,
}

impl Steps {
    fn new() -> Self {
        Steps {
            join: step!("join"),
            register: step!("register"),
            renew: step!("renew"),
            claim: step!("claim"),
            give_back: step!("return"),
            reinstate: step!("reinstate"),
            owned: step!("owned"),
            leave: step!("leave"),
            hold: step!("hold"),
            holds: step!("holds"),
            overview: Script::new(concat!(
                include_str!("scripts/base.lua"),
                include_str!("scripts/overview.lua")
            )),
        }
    }

    fn of(&self, request: &Request) -> &Script {
        match request {
            Request::Join { .. } => &self.join,
            Request::Register { .. } => &self.register,
            Request::Renew { .. } => &self.renew,
            Request::Claim { .. } => &self.claim,
            Request::Return { .. } => &self.give_back,
            Request::Reinstate { .. } => &self.reinstate,
            Request::Owned { .. } => &self.owned,
            Request::Leave { .. } => &self.leave,
            Request::Hold(_) => &self.hold,
            Request::Holds => &self.holds,
            Request::Overview => &self.overview,
        }
    }
}

/// A fleet on a Redis 7 or Valkey server.
///
/// Connects when it is first used. A connection that fails is dropped and made anew with the next request, at the next address in turn. Where
/// nobody listens, or a replica answers, the others are tried at once. Give IP addresses, or names that are resolved without delay. A thread of its own listens for holds, from the first request on, until this is dropped.
/// What a user of the server must be allowed to do is in `docs/cluster.md`, Rights.
///
/// ```no_run
/// use leasehold::cluster::RedisEngine;
///
/// let engine = RedisEngine::new("api-keys", ["redis://10.0.0.1/", "redis://10.0.0.2/"])?;
/// # Ok::<(), leasehold::cluster::RedisEngineError>(())
/// ```
pub struct RedisEngine {
    clients: Vec<Client>,
    /// Whose turn it is.
    turn: usize,
    connection: Option<Connection>,
    steps: Steps,
    fleet: Arc<str>,
    keys: Vec<String>,
    channel: Arc<str>,
    listener: Option<Listener>,
    listens: bool,
}

/// Why there is no engine.
#[derive(Debug)]
#[non_exhaustive]
pub enum RedisEngineError {
    /// An address is not of the form `redis://[user:password@]host[:port][/database]`.
    Address(String),
    /// There is no address.
    NoAddress,
    /// A fleet's name is 1 to 200 bytes without braces and control characters.
    Fleet(String),
}

impl fmt::Display for RedisEngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Without the address: it may have a password.
            RedisEngineError::Address(message) => {
                write!(f, "expected an address as redis://[user:password@]host[:port][/database]: {message}")
            }
            RedisEngineError::NoAddress => f.write_str("expected at least one address of a server"),
            RedisEngineError::Fleet(name) => write!(
                f,
                "the fleet's name is {name:?}: 1 to 200 bytes without braces and control characters are allowed"
            ),
        }
    }
}

impl Error for RedisEngineError {}

impl RedisEngine {
    /// The fleet with this name, on the servers with these addresses, of which one is the primary.
    ///
    /// # Errors
    /// [`RedisEngineError`], without connecting.
    pub fn new<A: AsRef<str>>(
        fleet: &str,
        addresses: impl IntoIterator<Item = A>,
    ) -> Result<Self, RedisEngineError> {
        let bad = |c: char| c.is_control() || c == '{' || c == '}';
        if fleet.is_empty() || fleet.len() > 200 || fleet.chars().any(bad) {
            return Err(RedisEngineError::Fleet(fleet.to_owned()));
        }
        let open = |address: A| {
            Client::open(address.as_ref()).map_err(|error| RedisEngineError::Address(error.to_string()))
        };
        let clients: Vec<Client> = addresses.into_iter().map(open).collect::<Result<_, _>>()?;
        if clients.is_empty() {
            return Err(RedisEngineError::NoAddress);
        }
        Ok(RedisEngine {
            clients,
            turn: 0,
            connection: None,
            steps: Steps::new(),
            fleet: fleet.into(),
            keys: KEYS.iter().map(|key| format!("leasehold:{{{fleet}}}:{key}")).collect(),
            channel: format!("leasehold:{{{fleet}}}:news").into(),
            listener: None,
            listens: true,
        })
    }

    /// Without the thread that listens for holds: for tools that only ask.
    #[must_use]
    pub fn without_news(mut self) -> Self {
        self.listens = false;
        self
    }

    /// Asks at the address whose turn it is. What it says in turn takes `patience` together; but a server that sends one answer in pieces has what
    /// is left for each of them.
    fn ask(&mut self, request: &Request, patience: Duration) -> Result<Reply, Failure> {
        let limit = Limit { clock: MonotonicClock::new(), patience };
        let mut arguments = Vec::new();
        wire::write(request, &self.channel, &mut arguments);
        let script = self.steps.of(request);
        let mut invocation = cmd("EVALSHA");
        invocation.arg(script.get_hash()).arg(self.keys.len()).arg(&self.keys).arg(arguments);
        // All addresses together take as long as one.
        let to_connect = (patience / self.clients.len() as u32).max(Duration::from_millis(1));
        let client = &self.clients[self.turn];
        let connection = connected(&mut self.connection, client, to_connect).map_err(Failure::Elsewhere)?;
        let value = invoked(connection, script, &invocation, &limit).map_err(|error| {
            let refused = matches!(
                error.kind(),
                ErrorKind::Server(
                    ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown | ServerErrorKind::BusyLoading
                )
            );
            let error = EngineError::with_source("the server has not carried out a step", error);
            if refused { Failure::Elsewhere(error) } else { Failure::Unknown(error) }
        })?;
        wire::read(value)
            .ok_or_else(|| Failure::Unknown(EngineError::new("the server's answer is none of this protocol")))
    }
}

/// Until when an address may take, from when the clock began.
struct Limit {
    clock: MonotonicClock,
    patience: Duration,
}

impl Limit {
    /// For the next command there is what the others have left; the socket takes no limit of zero.
    fn set(&self, connection: &Connection) -> Result<(), RedisError> {
        let gone = Duration::from_nanos(self.clock.now().as_nanos());
        let left = self.patience.saturating_sub(gone).max(Duration::from_millis(1));
        connection.set_read_timeout(Some(left))?;
        connection.set_write_timeout(Some(left))
    }
}

/// What a script answers, which the server is told first if it does not know it.
fn invoked(
    connection: &mut Connection,
    script: &Script,
    invocation: &Cmd,
    limit: &Limit,
) -> Result<Value, RedisError> {
    limit.set(connection)?;
    match invocation.query(connection) {
        Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
            limit.set(connection)?;
            script.load(connection)?;
            limit.set(connection)?;
            invocation.query(connection)
        }
        other => other,
    }
}

/// Why there is no answer.
enum Failure {
    /// It was not carried out, and may be at another address.
    Elsewhere(EngineError),
    /// It may have been carried out.
    Unknown(EngineError),
}

/// The connection, made if there is none.
fn connected<'c>(
    connection: &'c mut Option<Connection>,
    client: &Client,
    to_connect: Duration,
) -> Result<&'c mut Connection, EngineError> {
    let fail = |error| EngineError::with_source("no connection to the server", error);
    match connection {
        Some(connection) => Ok(connection),
        none => Ok(none.insert(client.get_connection_with_timeout(to_connect).map_err(fail)?)),
    }
}

impl Engine for RedisEngine {
    fn call(&mut self, request: &Request, patience: Duration) -> Result<Reply, EngineError> {
        let mut tries = self.clients.len();
        loop {
            let failure = match self.ask(request, patience) {
                Ok(reply) => {
                    if self.listens
                        && self.listener.as_ref().is_none_or(|listener| listener.turn() != self.turn)
                    {
                        let client = self.clients[self.turn].clone();
                        self.listener =
                            Listener::start(client, Arc::clone(&self.channel), self.turn, patience);
                    }
                    return Ok(reply);
                }
                Err(failure) => failure,
            };
            // What is still to come on it belongs to a request that was given up.
            self.connection = None;
            self.turn = (self.turn + 1) % self.clients.len();
            tries -= 1;
            match failure {
                Failure::Elsewhere(_) if tries > 0 => {}
                // One that is late opens a session without units.
                Failure::Unknown(_) if tries > 0 && matches!(request, Request::Join { .. }) => {}
                Failure::Elsewhere(error) | Failure::Unknown(error) => return Err(error),
            }
        }
    }

    fn news(&mut self) -> Vec<HoldNote> {
        self.listener.as_ref().map(Listener::take).unwrap_or_default()
    }

    fn hears_news(&self) -> bool {
        self.listener.as_ref().is_some_and(Listener::hears)
    }

    fn fleet(&self) -> Option<Arc<str>> {
        Some(Arc::clone(&self.fleet))
    }
}

impl fmt::Debug for RedisEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisEngine").field("channel", &self.channel).finish_non_exhaustive()
    }
}
