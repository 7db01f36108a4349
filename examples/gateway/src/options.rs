//! The command line.

use std::{
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{Args, Parser};
use http::Uri;
use tracing_subscriber::filter::Targets;

use crate::{
    fleet::{self, FileError, Secrets, Spec},
    keys::Policy,
    mock::{Faults, MockOptions},
    proxy::Limits,
};

/// An LLM-style gateway over a fleet of API keys. Without a provider it starts a mock one.
#[derive(Debug, Parser)]
#[command(version, about)]
pub struct Options {
    /// The fleet file, as `leasehold replay` reads it; a built-in one if absent.
    #[arg(long, value_name = "FILE")]
    fleet: Option<PathBuf>,
    /// The provider's address: plain HTTP, with or without a path that everything is below.
    #[arg(long, value_name = "URL", requires = "secrets")]
    pub provider: Option<Uri>,
    /// The secrets, "key" = "secret" in each line.
    #[arg(long, value_name = "FILE", requires = "provider")]
    secrets: Option<PathBuf>,
    /// Where clients come in.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    pub listen: SocketAddr,
    /// Where operators look: /fleet, /metrics, /healthz, and POST /explain.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8081")]
    pub admin: SocketAddr,
    /// Tell clients which key has answered, and after how many attempts.
    #[arg(long)]
    pub tell_key: bool,
    /// Seconds that requests have to finish when the gateway shuts down.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    pub drain: Duration,
    /// What is logged: a level, or a list such as "info,leasehold=debug".
    #[arg(long, value_name = "LEVELS", default_value = "warn")]
    pub log: Targets,
    #[command(flatten)]
    cost: Cost,
    #[command(flatten)]
    mock: Mock,
}

/// How much a request may cost.
#[derive(Debug, Args)]
struct Cost {
    /// Bytes of a request's body.
    #[arg(long, value_name = "BYTES", default_value_t = Limits::default().body)]
    max_body: usize,
    /// Keys that are tried for one request.
    #[arg(long, value_name = "N", default_value_t = Limits::default().attempts as u16, value_parser = clap::value_parser!(u16).range(1..))]
    attempts: u16,
    /// Seconds that a request waits for a key.
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    patience: Duration,
    /// Seconds until the head of an answer, for each attempt.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    attempt_timeout: Duration,
    /// Seconds until the head of an answer, for the whole request.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    timeout: Duration,
    /// Seconds that a streamed answer may pause, or a client not read what is there.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    idle: Duration,
    /// Seconds that a key may be held by one request.
    #[arg(long, value_name = "SECONDS", default_value = "600", value_parser = seconds)]
    max_hold: Duration,
    /// Requests that may wait for a key.
    #[arg(long, value_name = "N", default_value_t = Policy::default().max_waiters)]
    max_waiters: usize,
}

/// The mock provider.
#[derive(Debug, Args)]
struct Mock {
    /// Where the mock provider listens.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8082")]
    mock: SocketAddr,
    /// How much faster than the fleet file says.
    #[arg(long, value_name = "FACTOR", default_value = "1", value_parser = factor)]
    mock_speed: f64,
    /// Beside the failures of the fleet file, let it limit, fail, break off and hang at random.
    #[arg(long)]
    mock_faults: bool,
    /// The seed of its luck.
    #[arg(long, value_name = "N", default_value = "1")]
    mock_seed: u64,
}

impl Options {
    /// The fleet.
    ///
    /// # Errors
    /// The file cannot be read, or says something that is not allowed.
    pub fn fleet(&self) -> io::Result<Vec<Spec>> {
        match &self.fleet {
            None => fleet::parse(fleet::BUILT_IN).map_err(|error| bad(fleet_name(None), &error)),
            Some(path) => fleet::parse(&fs::read_to_string(path).map_err(|error| unread(path, &error))?)
                .map_err(|error| bad(fleet_name(Some(path)), &error)),
        }
    }

    /// The secrets of a real provider; those of the mock if there is none.
    ///
    /// # Errors
    /// As for the fleet.
    pub fn secrets(&self, fleet: &[Spec]) -> io::Result<Secrets> {
        let Some(path) = &self.secrets else { return Ok(Secrets::of_mock(fleet)) };
        let text = fs::read_to_string(path).map_err(|error| unread(path, &error))?;
        Secrets::parse(&text, fleet).map_err(|error| bad(fleet_name(Some(path)), &error))
    }

    /// How much a request may cost.
    pub fn limits(&self) -> Limits {
        Limits {
            body: self.cost.max_body,
            attempts: usize::from(self.cost.attempts),
            patience: self.cost.patience,
            attempt: self.cost.attempt_timeout,
            request: self.cost.timeout,
            idle: self.cost.idle,
            ..Limits::default()
        }
    }

    /// What follows from what happens to a key.
    pub fn policy(&self) -> Policy {
        Policy { max_hold: self.cost.max_hold, max_waiters: self.cost.max_waiters, ..Policy::default() }
    }

    /// How the mock provider behaves.
    pub fn mock(&self) -> MockOptions {
        MockOptions {
            listen: self.mock.mock,
            speed: self.mock.mock_speed,
            faults: if self.mock.mock_faults { Faults::some() } else { Faults::default() },
            seed: self.mock.mock_seed,
        }
    }
}

fn fleet_name(path: Option<&PathBuf>) -> String {
    path.map_or_else(|| "built-in fleet".to_owned(), |path| path.display().to_string())
}

fn bad(name: String, error: &FileError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{name}: {error}"))
}

fn unread(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Above zero, and less than a day.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.001..=86_400.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "allowed are 0.001 to 86400".to_owned())
}

fn factor(text: &str) -> Result<f64, String> {
    let factor = text.parse().ok().filter(|factor| (0.01..=1_000.0).contains(factor));
    factor.ok_or_else(|| "allowed are 0.01 to 1000".to_owned())
}
