//! Real processes share one fleet through a real server, under a referee who owns the truth: every use of a unit is reported to him, with
//! its fencing token, before it begins and after it has ended, and so is every use of a budget. Meanwhile he kills and stops processes, cuts one off
//! from the server, stalls and restarts the server, and lets a replica take over that lacks what was written last, claims among it.
//!
//! ```text
//! cluster_referee referee --server redis-server --seconds 30 --processes 4 --seed 1
//! ```
//!
//! Prints what was checked; ends with 1 if a unit was used twice at once, if a budget was used too often, if something was not used again in time, if
//! nothing was checked, if some kind of trouble was not made, if no promotion has lost a claim, or if no use of a stopped process was overtaken.

mod control;
mod member;
mod proxy;
mod referee;
mod server;
mod truth;

use std::{collections::HashMap, error::Error, process::ExitCode, time::Duration};

/// Resources of the fleet that are lent.
pub const RESOURCES: usize = 10;
/// Units of each resource.
pub const UNITS: u32 = 2;
/// Resources of the fleet that are budgets.
pub const BUDGETS: usize = 2;
/// Uses that a unit of one allows in its period.
pub const USES_PER_UNIT: u32 = 2;
/// The period.
pub const PERIOD: Duration = Duration::from_secs(2);
/// Uses of one budget in any period.
pub const USES: usize = (UNITS * USES_PER_UNIT) as usize;
/// The time to live.
pub const TTL: Duration = Duration::from_secs(3);
/// How much earlier than the server a process ends its claims: so long a thread may take to say that its use has ended.
pub const MARGIN: Duration = Duration::from_secs(1);

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
                [options.get("server", None)?, options.get("spare", None)?],
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
