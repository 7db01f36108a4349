//! Real processes share one fleet through a real server, under a referee who owns the truth: every use of a unit is reported to him, with
//! its fencing token, before it begins and after it has ended. Meanwhile he kills and stops processes and restarts the server.
//!
//! ```text
//! cluster_referee referee --server redis-server --seconds 30 --processes 4 --seed 1
//! ```
//!
//! Prints what was checked; ends with 1 if a unit was used twice at once, or nothing was checked.

mod member;
mod referee;
mod server;
mod truth;

use std::{collections::HashMap, error::Error, process::ExitCode, time::Duration};

/// Resources of the fleet.
pub const RESOURCES: usize = 10;
/// Units of each.
pub const UNITS: u32 = 2;
/// The time to live.
pub const TTL: Duration = Duration::from_secs(3);

/// The options after the first word.
struct Options(HashMap<String, String>);

impl Options {
    fn read(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = HashMap::new();
        while let Some(word) = words.next() {
            let name =
                word.strip_prefix("--").ok_or_else(|| format!("expected an option, found {word:?}"))?;
            let value = words.next().ok_or_else(|| format!("--{name}: expected a value"))?;
            options.insert(name.to_owned(), value);
        }
        Ok(Options(options))
    }

    fn get<T: std::str::FromStr>(&self, name: &str, default: Option<T>) -> Result<T, String> {
        match (self.0.get(name), default) {
            (Some(text), _) => text.parse().map_err(|_| format!("--{name}: cannot read {text:?}")),
            (None, Some(default)) => Ok(default),
            (None, None) => Err(format!("--{name} is missing")),
        }
    }
}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let role = words.next().unwrap_or_default();
    let run = || -> Result<bool, Box<dyn Error>> {
        let options = Options::read(words)?;
        match role.as_str() {
            "referee" => referee::run(&referee::Settings {
                server: options.get("server", Some("redis-server".to_owned()))?,
                seconds: options.get("seconds", Some(30))?,
                processes: options.get("processes", Some(4))?,
                seed: options.get("seed", Some(1))?,
            }),
            "member" => member::run(
                &options.get::<String>("name", None)?,
                options.get("server", None)?,
                options.get("referee", None)?,
            )
            .map(|()| true),
            _ => Err("expected `referee` or `member`".into()),
        }
    };
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("cluster_referee {role}: {error}");
            ExitCode::from(2)
        }
    }
}
