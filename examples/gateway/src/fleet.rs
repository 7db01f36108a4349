//! The fleet file, as the tool reads it (`docs/cli.md`), and the secrets beside it.
//!
//! The file says what there is to lend, and is shown to anybody who asks; the tool refuses fields that it does not know. So
//! secrets have a file of their own: `"name of the key" = "secret"`, one for each.

use std::{
    collections::{HashMap, HashSet},
    error::Error,
    fmt,
    sync::Arc,
};

use http::HeaderValue;
use serde::Deserialize;

/// The fleet file that is built in.
pub const BUILT_IN: &str = include_str!("../fleet.toml");

/// One key of the fleet file. The gateway itself uses the first four fields; the others are how the mock provider behaves.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// Its name, which is no secret.
    pub key: Arc<str>,
    /// The better tier, the lower number, goes first.
    #[serde(default)]
    pub tier: u8,
    /// Requests at once.
    pub max_in_flight: u32,
    /// Share inside the tier: at weight 2 it looks half as busy as it is.
    #[serde(default = "one")]
    pub weight: u32,
    /// What the provider allows.
    pub requests_per_minute: Option<u64>,
    /// What the provider allows; prompt and answer count.
    pub tokens_per_minute: Option<u64>,
    /// Seconds.
    #[serde(default)]
    pub time_to_first_token: f64,
    /// Speed of the answer.
    pub tokens_per_second: f64,
    /// Share of requests that fail.
    #[serde(default)]
    pub failure_rate: f64,
    /// When everything is refused.
    #[serde(default)]
    pub outages: Vec<Outage>,
}

/// Seconds since the start in which everything is refused: `from` is in it, `to` is not.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outage {
    /// The first moment.
    pub from: f64,
    /// The first one after it.
    pub to: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default, rename = "resource")]
    resources: Vec<Spec>,
}

fn one() -> u32 {
    1
}

const MOST_KEYS: usize = 10_000;
const MOST_SLOTS: u64 = 10_000_000;
const MOST_SECONDS: f64 = 1e9;

/// What is wrong with a file: where, what is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileError(String);

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for FileError {}

/// Reads a fleet file: at least one key, every name once, every number in its range.
///
/// # Errors
/// [`FileError`] says which key, what is wrong with it and what is allowed.
pub fn parse(text: &str) -> Result<Vec<Spec>, FileError> {
    let File { resources } = toml::from_str(text).map_err(|error| FileError(error.to_string()))?;
    if !(1..=MOST_KEYS).contains(&resources.len()) {
        let message = format!("{} resources: allowed are 1 to {MOST_KEYS}", resources.len());
        return Err(FileError(message));
    }
    let mut names = HashSet::new();
    for spec in &resources {
        if let Some(fault) = spec.fault() {
            return Err(FileError(format!("resource {:?}: {fault}", spec.key)));
        }
        if !names.insert(&spec.key) {
            return Err(FileError(format!("resource {:?}: the key is taken, each needs its own", spec.key)));
        }
    }
    let slots: u64 = resources.iter().map(|spec| u64::from(spec.max_in_flight)).sum();
    if slots > MOST_SLOTS {
        return Err(FileError(format!("max_in_flight is {slots} in all: at most {MOST_SLOTS} are allowed")));
    }
    Ok(resources)
}

impl Spec {
    fn fault(&self) -> Option<String> {
        let seconds = 0.0..=MOST_SECONDS;
        let out = |field: &str, value: &dyn fmt::Display, allowed: &str| {
            Some(format!("{field} is {value}: allowed are {allowed}"))
        };
        if self.key.is_empty() {
            return Some("the key needs at least one character".into());
        }
        if !(1..=65_536).contains(&self.max_in_flight) {
            return out("max_in_flight", &self.max_in_flight, "1 to 65536");
        }
        if !(1..=1_000).contains(&self.weight) {
            return out("weight", &self.weight, "1 to 1000");
        }
        if let Some(limit) = self.requests_per_minute.filter(|limit| !(1..=1_000_000_000).contains(limit)) {
            return out("requests_per_minute", &limit, "1 to 1000000000");
        }
        if let Some(limit) = self.tokens_per_minute.filter(|limit| !(1..=1_000_000_000_000).contains(limit)) {
            return out("tokens_per_minute", &limit, "1 to 1000000000000");
        }
        if !seconds.contains(&self.time_to_first_token) {
            return out("time_to_first_token", &self.time_to_first_token, "0 to 1000000000 s");
        }
        if !(0.1..=1e6).contains(&self.tokens_per_second) {
            return out("tokens_per_second", &self.tokens_per_second, "0.1 to 1000000");
        }
        if !(0.0..=1.0).contains(&self.failure_rate) {
            return out("failure_rate", &self.failure_rate, "0 to 1");
        }
        // As the tool compares them: in whole nanoseconds.
        let nanos = |seconds: f64| (seconds * 1e9).round() as u64;
        let is_wrong = |outage: &&Outage| {
            !seconds.contains(&outage.from)
                || !seconds.contains(&outage.to)
                || nanos(outage.from) >= nanos(outage.to)
        };
        let Outage { from, to } = self.outages.iter().find(is_wrong)?;
        Some(format!("an outage from {from} to {to}: allowed are 0 to 1000000000 s, `from` before `to`"))
    }
}

/// The secret of each key, by the key's name, ready to be sent. `Debug` shows none of them.
#[derive(Clone, Debug)]
pub struct Secrets(HashMap<Arc<str>, HeaderValue>);

impl Secrets {
    /// Reads a file of secrets for a fleet.
    ///
    /// # Errors
    /// A key without a secret, a secret without a key, a secret that cannot be sent. No error shows a secret.
    pub fn parse(text: &str, fleet: &[Spec]) -> Result<Self, FileError> {
        // Not the parser's own words: they show the line.
        let mut secrets: HashMap<String, String> = toml::from_str(text)
            .map_err(|_| FileError("secrets: expected lines of the form \"key\" = \"secret\"".into()))?;
        let mut known = HashMap::new();
        for spec in fleet {
            let secret = secrets.remove(&*spec.key);
            let secret = secret.ok_or_else(|| FileError(format!("no secret for key {:?}", spec.key)))?;
            known.insert(Arc::clone(&spec.key), bearer(&spec.key, &secret)?);
        }
        match secrets.into_keys().next() {
            Some(name) => Err(FileError(format!("a secret for key {name:?}, which is not in the fleet"))),
            None => Ok(Secrets(known)),
        }
    }

    /// What the mock provider takes.
    pub fn of_mock(fleet: &[Spec]) -> Self {
        let secret = |(index, spec): (usize, &Spec)| {
            let header = bearer(&spec.key, &format!("sk-mock-{index}")).expect("visible characters");
            (Arc::clone(&spec.key), header)
        };
        Secrets(fleet.iter().enumerate().map(secret).collect())
    }

    /// The value of `Authorization` for a key.
    pub fn get(&self, name: &str) -> Option<&HeaderValue> {
        self.0.get(name)
    }
}

fn bearer(name: &str, secret: &str) -> Result<HeaderValue, FileError> {
    let mut value = HeaderValue::try_from(format!("Bearer {secret}"))
        .map_err(|_| FileError(format!("the secret of key {name:?} has characters that cannot be sent")))?;
    // Never shown by `Debug`, never kept by header compression.
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_complete_and_not_shown() {
        let fleet = parse(BUILT_IN).expect("sound");
        let lines = |skip: usize| -> String {
            fleet.iter().skip(skip).map(|spec| format!("{:?} = \"sk-hidden\"\n", spec.key)).collect()
        };
        let secrets = Secrets::parse(&lines(0), &fleet).expect("one for each");
        assert_eq!(secrets.get("fallback").expect("there"), "Bearer sk-hidden");
        assert!(!format!("{secrets:?}").contains("hidden"));
        let says = |text: &str| Secrets::parse(text, &fleet).expect_err("incomplete").to_string();
        assert_eq!(says(&lines(1)), "no secret for key \"reserved-1\"");
        assert_eq!(
            says(&(lines(0) + "other = \"sk-hidden\"")),
            "a secret for key \"other\", which is not in the fleet"
        );
        let broken = says(&(lines(1) + "reserved-1 = \"sk-hidden\\n\""));
        assert_eq!(broken, "the secret of key \"reserved-1\" has characters that cannot be sent");
        assert!(!says("reserved-1 = sk-hidden").contains("hidden"));
    }

    #[test]
    fn errors_say_what_is_allowed() {
        let good = "[[resource]]\nkey = \"a\"\nmax_in_flight = 2\ntokens_per_second = 50\n";
        assert_eq!(parse(good).expect("sound").len(), 1);
        for (line, says) in [
            ("weight = 0", "resource \"a\": weight is 0: allowed are 1 to 1000"),
            ("failure_rate = 1.5", "resource \"a\": failure_rate is 1.5: allowed are 0 to 1"),
            ("failure_rate = nan", "allowed are 0 to 1"),
            ("time_to_first_token = -1", "allowed are 0 to 1000000000 s"),
            ("outages = [{ from = 2, to = 2 }]", "`from` before `to`"),
            ("speed = 1", "unknown field `speed`"),
            (good, "the key is taken"),
        ] {
            let error = parse(&format!("{good}{line}\n")).expect_err(line).to_string();
            assert!(error.contains(says), "{line}: {error}");
        }
        assert_eq!(parse("").expect_err("empty").to_string(), "0 resources: allowed are 1 to 10000");
    }
}
