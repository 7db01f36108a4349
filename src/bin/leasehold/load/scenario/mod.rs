//! What is played: who asks, for what, how often, and what the backends do to them. A TOML file, or one word.
//!
//! Every number has a default and a range; an unknown name is an error, because a misspelt failure rate must not become
//! none. `--set NAME=VALUE` changes single fields before the ranges are checked.

mod distribution;
mod ready;
mod shape;
mod span;

use std::{
    fs,
    path::{Path, PathBuf},
};

use leasehold::Capacity;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

pub use self::{
    distribution::{Distribution, LONGEST},
    ready::{READY, Ready},
    shape::Shape,
    span::Span,
};
use crate::error::{Error, Result};

/// Who the callers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Driver {
    /// Tasks on a tokio runtime with a thread for each processor.
    Tasks,
    /// A thread of the system each.
    Threads,
    /// Tasks, each of whose requests is a job of the library's pool: it asks for its lease, and is served on one of the pool's threads.
    Pool,
}

/// What decides when a request is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Loop {
    /// Each worker sends its next request when it has done with the last one, after thinking.
    Closed,
    /// Requests have moments of their own. One that is sent late because its worker was busy has waited since its moment:
    /// so what the load does to it is in the figures.
    Open,
}

/// What a resource's rank is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ranking {
    /// A number of its own that only updates change.
    Fixed,
    /// The share of its capacity that is out.
    LeastLoaded,
}

/// Who gets what comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fairness {
    Strict,
    Throughput,
}

/// A scenario; docs/cli.md describes each field.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Scenario {
    pub driver: Driver,
    pub workers: u32,
    #[serde(rename = "loop")]
    pub pace: Loop,
    /// Requests a second of all workers; open loop only.
    pub rate: f64,
    pub think: Distribution,
    pub burst: Shape,
    pub duration: Span,
    pub rounds: u32,
    #[serde(deserialize_with = "seed", serialize_with = "written_seed")]
    pub seed: u64,

    pub resources: u32,
    /// Capacities, dealt to the resources in turns; 0 is unlimited.
    pub capacity: Vec<u32>,
    /// Better tiers, lower numbers, go first; dealt in turns.
    pub tiers: u8,
    /// The tier of each resource, if they come from a fleet file: then none is dealt. No field of the file.
    #[serde(skip)]
    pub given_tiers: Vec<u8>,
    pub ranking: Ranking,
    /// The library's default if absent.
    pub shards: Option<u32>,
    pub fairness: Fairness,
    /// The most that may wait; 0: any number.
    pub max_waiters: u32,
    /// Refuses at once whom it cannot serve in time.
    pub shed: bool,
    /// Takes resources out because of their failures.
    pub ejection: bool,
    pub subjects: Vec<String>,

    /// How long a lease is held: what the backend takes before it answers, and from then on.
    pub delay: Distribution,
    pub hold: Distribution,
    /// How long a request waits for a lease; 0: not at all.
    pub wait: Span,
    /// A lease that is held for so long has met the backend's time limit; 0: there is none.
    pub backend_timeout: Span,
    pub failures: f64,
    pub rate_limits: f64,
    pub retry_after: Distribution,
    /// Rests after each use.
    pub cooldown: Span,
    /// Share of resources that work and fail in turns.
    pub flapping: f64,
    pub flap_every: Span,
    /// Share of requests that are given up after `patience`, waiting or served.
    pub cancellations: f64,
    pub patience: Distribution,

    /// Shares of requests that ask for an id's resource, for a named one, for one that a filter accepts, or only look.
    pub affinity: f64,
    pub ids: u32,
    pub named: f64,
    pub filtered: f64,
    pub peeks: f64,
    /// Classes of workers, dealt in turns; higher ones go first.
    pub classes: u8,
    /// Share of leases that are passed on as tokens and returned twice, of which the second must be refused.
    pub tokens: f64,

    /// Priorities changed, resources replaced, resources taken out or drained for a moment, several borrowed at once: each a second.
    pub updates: f64,
    pub churn: f64,
    pub exclusions: f64,
    pub drains: f64,
    pub several: f64,

    /// Moments and tokens of requests, for `"trace"` in `burst`, `hold` and `delay`: a file, or `built-in`.
    pub trace: Option<PathBuf>,
    /// Trace seconds a second.
    pub speed: f64,
    /// Tokens a second of an answer, for `hold = "trace"`; and of a prompt, which come before it, for `delay = "trace"`.
    pub tokens_per_second: f64,
    pub prompt_tokens_per_second: f64,

    /// Closes the scheduler at this moment of the last round; 0: never.
    pub close_at: Span,

    /// Watches memory and freeing, with a reader that stays.
    pub soak: bool,
}

impl Default for Scenario {
    fn default() -> Self {
        Scenario {
            driver: Driver::Tasks,
            workers: 64,
            pace: Loop::Closed,
            rate: 1_000.0,
            think: Distribution::ZERO,
            burst: Shape::Steady,
            duration: seconds(5),
            rounds: 2,
            seed: 1,
            resources: 64,
            capacity: vec![1],
            tiers: 1,
            given_tiers: Vec::new(),
            ranking: Ranking::Fixed,
            shards: None,
            fairness: Fairness::Strict,
            max_waiters: 0,
            shed: false,
            ejection: false,
            subjects: vec!["sticky".into(), "mutex".into()],
            delay: Distribution::ZERO,
            hold: Distribution::ZERO,
            wait: seconds(1),
            backend_timeout: Span::default(),
            failures: 0.0,
            rate_limits: 0.0,
            retry_after: Distribution::ZERO,
            cooldown: Span::default(),
            flapping: 0.0,
            flap_every: seconds(1),
            cancellations: 0.0,
            patience: Distribution::ZERO,
            affinity: 0.0,
            ids: 1_000,
            named: 0.0,
            filtered: 0.0,
            peeks: 0.0,
            classes: 1,
            tokens: 0.01,
            updates: 0.0,
            churn: 0.0,
            exclusions: 0.0,
            drains: 0.0,
            several: 0.0,
            trace: None,
            speed: 1.0,
            tokens_per_second: 50.0,
            prompt_tokens_per_second: 2_000.0,
            close_at: Span::default(),
            soak: false,
        }
    }
}

const fn seconds(seconds: u64) -> Span {
    Span(std::time::Duration::from_secs(seconds))
}

/// The file that is read for a scenario of this name, if it is none of the ready ones.
pub fn file(source: &str) -> Option<&Path> {
    Ready::named(source).is_none().then(|| Path::new(source))
}

impl Scenario {
    /// The scenario of this name or in this file, with `changes` (`NAME=VALUE`) made to it.
    pub fn open(source: &str, changes: &[String]) -> Result<Self> {
        let ready = Ready::named(source);
        let text = match ready {
            Some(ready) => ready.text.to_owned(),
            None => fs::read_to_string(source).map_err(|cause| {
                let names: Vec<&str> = READY.iter().map(|ready| ready.name).collect();
                Error::Options(format!(
                    "scenario {source:?}: expected one of {}, or a file: {cause}",
                    names.join(", ")
                ))
            })?,
        };
        Scenario::parse(source, &text, ready.map_or(&[][..], |ready| ready.peers), changes)
    }

    /// `more`: subjects beside those of the text.
    fn parse(source: &str, text: &str, more: &[&str], changes: &[String]) -> Result<Self> {
        let fail = |message: &str| {
            Error::Options(format!("scenario {source}: {}", message.trim_end().replace('\n', ", ")))
        };
        let mut table: toml::Table = text.parse().map_err(|error: toml::de::Error| fail(error.message()))?;
        if let Some(toml::Value::Array(subjects)) = table.get_mut("subjects") {
            subjects.extend(more.iter().map(|&name| toml::Value::from(name)));
        }
        for change in changes {
            let (name, value) = change
                .split_once('=')
                .ok_or_else(|| Error::Options(format!("--set: expected NAME=VALUE, found {change:?}")))?;
            table.insert(name.trim().to_owned(), value_of(value.trim()));
        }
        let scenario: Scenario = table.try_into().map_err(|error: toml::de::Error| fail(error.message()))?;
        scenario.check().map_err(|message| fail(&message))?;
        Ok(scenario)
    }

    /// What is out of its range, or does not go together.
    fn check(&self) -> std::result::Result<(), String> {
        let range = |name: &str, value: f64, low: f64, high: f64| {
            let fits = (low..=high).contains(&value);
            if fits { Ok(()) } else { Err(format!("{name}: expected {low} to {high}, found {value}")) }
        };
        let threads = if self.driver == Driver::Threads { 20_000.0 } else { 100_000.0 };
        if self.driver == Driver::Pool && !self.cooldown.0.is_zero() {
            return Err(
                "driver: a job of the pool returns its lease with an outcome, so not with a `cooldown`"
                    .into(),
            );
        }
        if self.driver == Driver::Pool && self.wait.0.is_zero() {
            return Err("driver: a job of the pool waits for its lease: `wait` must not be 0".into());
        }
        range("workers", self.workers.into(), 1.0, threads)?;
        range("resources", self.resources.into(), 1.0, 1_000_000.0)?;
        range("rounds", self.rounds.into(), 1.0, 1_000.0)?;
        range("rate", self.rate, 0.001, 1e7)?;
        range("duration, in seconds,", self.duration.0.as_secs_f64(), 0.05, 86_400.0)?;
        range("flap-every, in seconds,", self.flap_every.0.as_secs_f64(), 0.01, 3_600.0)?;
        range("tiers", self.tiers.into(), 1.0, 255.0)?;
        range("shards", self.shards.unwrap_or(1).into(), 1.0, 1024.0)?;
        range("classes", self.classes.into(), 1.0, 255.0)?;
        range("ids", self.ids.into(), 1.0, 1e9)?;
        range("speed", self.speed, 1e-6, 1e6)?;
        range("tokens-per-second", self.tokens_per_second, 0.1, 1e9)?;
        range("prompt-tokens-per-second", self.prompt_tokens_per_second, 0.1, 1e9)?;
        for (name, share) in [
            ("failures", self.failures),
            ("rate-limits", self.rate_limits),
            ("flapping", self.flapping),
            ("cancellations", self.cancellations),
            ("affinity", self.affinity),
            ("named", self.named),
            ("filtered", self.filtered),
            ("peeks", self.peeks),
            ("tokens", self.tokens),
            ("failures + rate-limits", self.failures + self.rate_limits),
            ("affinity + named + filtered + peeks", self.affinity + self.named + self.filtered + self.peeks),
        ] {
            range(name, share, 0.0, 1.0)?;
        }
        for (name, rate) in [
            ("updates", self.updates),
            ("churn", self.churn),
            ("exclusions", self.exclusions),
            ("drains", self.drains),
            ("several", self.several),
        ] {
            range(name, rate, 0.0, 1e6)?;
        }
        if self.capacity.is_empty() {
            return Err("capacity: expected at least one number".into());
        }
        let most = Capacity::MAX;
        if let Some(capacity) = self.capacity.iter().find(|&&capacity| capacity > most) {
            return Err(format!(
                "capacity: expected numbers from 0, which is unlimited, to {most}, found {capacity}"
            ));
        }
        if self.subjects.is_empty() {
            return Err("subjects: expected at least one".into());
        }
        let wants_trace =
            [self.hold, self.delay].contains(&Distribution::Trace) || self.burst == Shape::Trace;
        if wants_trace && self.trace.is_none() {
            return Err(
                "trace: expected a file or \"built-in\", because `hold`, `delay` or `burst` asks for it"
                    .into(),
            );
        }
        if self.close_at.0 >= self.duration.0 {
            return Err(format!(
                "close-at: expected a moment of the round, which is {} long, found {}",
                self.duration, self.close_at
            ));
        }
        if self.soak && !self.close_at.0.is_zero() {
            return Err("close-at: not with `soak`: once the scheduler is closed nothing is replaced or removed, and a thread that retires \
                        nothing more keeps what it has gathered, so that what waits to be freed would tell nothing"
                .into());
        }
        if self.burst == Shape::Trace && self.pace == Loop::Closed {
            return Err("burst: \"trace\" needs loop = \"open\": its requests have moments".into());
        }
        for (name, distribution) in
            [("think", self.think), ("retry-after", self.retry_after), ("patience", self.patience)]
        {
            if distribution == Distribution::Trace {
                return Err(format!("{name}: \"trace\" is for `hold` and `delay`"));
            }
        }
        Ok(())
    }

    /// Units of the whole fleet that may be out at once; `None` if some resource has no limit.
    pub fn units(&self) -> Option<u64> {
        (0..self.resources).map(|index| self.limit_of(index).map(u64::from)).sum()
    }

    /// What is done to the fleet beside borrowing from it, a second.
    pub fn chores(&self) -> f64 {
        self.updates + self.churn + self.exclusions + self.drains + self.several
    }

    /// How many leases of a resource may be out; `None` if it is unlimited.
    pub fn limit_of(&self, index: u32) -> Option<u32> {
        Some(self.capacity[index as usize % self.capacity.len()]).filter(|&capacity| capacity > 0)
    }

    /// The tier of a resource.
    pub fn tier_of(&self, index: u32) -> u8 {
        let given = self.given_tiers.get(index as usize);
        given.copied().unwrap_or((index % u32::from(self.tiers)) as u8)
    }

    pub fn capacity_of(&self, index: u32) -> Capacity {
        match self.limit_of(index) {
            None => Capacity::Unlimited,
            Some(1) => Capacity::Exclusive,
            Some(limit) => Capacity::Limited(limit),
        }
    }
}

/// A value of `--set` as TOML, or as a text if it is none: quotes may be left out.
fn value_of(text: &str) -> toml::Value {
    let document: std::result::Result<toml::Table, _> = format!("value = {text}").parse();
    let value = document.ok().and_then(|mut table| table.remove("value"));
    match value {
        Some(value) => value,
        None => toml::Value::String(text.to_owned()),
    }
}

/// TOML's integers have a sign: the greater half is written as text.
fn seed<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<u64, D::Error> {
    #[derive(Deserialize)]
    #[serde(
        untagged,
        expecting = "expected a seed, 0 to 18446744073709551615, in quotes from 9223372036854775808 on"
    )]
    enum Seed {
        Number(u64),
        Text(String),
    }
    match Seed::deserialize(from)? {
        Seed::Number(number) => Ok(number),
        Seed::Text(text) => text.parse().map_err(|error| D::Error::custom(format!("{text:?}: {error}"))),
    }
}

fn written_seed<S: Serializer>(seed: &u64, to: S) -> std::result::Result<S::Ok, S::Error> {
    match i64::try_from(*seed) {
        Ok(_) => to.serialize_u64(*seed),
        Err(_) => to.collect_str(seed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(changes: &[&str]) -> String {
        let changes: Vec<String> = changes.iter().map(|&change| change.to_owned()).collect();
        Scenario::parse("s", "", &[], &changes).unwrap_err().to_string()
    }

    #[test]
    fn a_soak_is_not_closed_in_the_middle() {
        let changes = ["soak=true", "close-at=2s"];
        assert!(error(&changes).contains("close-at: not with `soak`"), "{}", error(&changes));
    }

    #[test]
    fn changes_need_no_quotes() {
        let changes = ["hold=exponential 3ms", "workers=7", "capacity=[1, 0]", "wait=2s"].map(str::to_owned);
        let scenario = Scenario::parse("s", "workers = 3", &[], &changes).unwrap();
        assert_eq!((scenario.workers, scenario.wait), (7, seconds(2)));
        assert_eq!(scenario.hold.to_string(), "exponential 3ms");
        assert_eq!(scenario.units(), None);
    }

    #[test]
    fn every_seed_can_be_written() {
        for (change, seed) in [("seed=7", 7), ("seed=18446744073709551615", u64::MAX), ("seed=\"8\"", 8)] {
            let scenario = Scenario::parse("s", "", &[], &[change.to_owned()]).unwrap();
            assert_eq!(scenario.seed, seed, "{change}");
            // As other processes are told it.
            let told = serde_json::to_string(&scenario).unwrap();
            assert_eq!(serde_json::from_str::<Scenario>(&told).unwrap().seed, seed);
            // As `--show` prints it.
            let shown = toml::to_string(&scenario).unwrap();
            assert_eq!(Scenario::parse("s", &shown, &[], &[]).unwrap(), scenario, "{shown}");
        }
        let greatest_number = Scenario { seed: i64::MAX as u64, ..Scenario::default() };
        assert!(toml::to_string(&greatest_number).unwrap().contains("seed = 9223372036854775807\n"));
    }

    #[test]
    fn says_what_is_wrong() {
        for (change, part) in [
            ("seed=-1", "expected a seed, 0 to"),
            ("seed=one", "invalid digit"),
            ("workers=0", "workers: expected 1 to 100000, found 0"),
            ("worker=1", "unknown field `worker`"),
            ("failures=1.5", "failures: expected 0 to 1"),
            ("hold=gamma 3ms", "expected `0`, `fixed SPAN`"),
            ("duration=1", "duration"),
            ("capacity=[]", "capacity: expected at least one"),
            ("burst=trace", "trace: expected a file"),
            ("delay=trace", "trace: expected a file"),
            ("think=trace", "think: \"trace\" is for `hold` and `delay`"),
            ("close-at=5s", "close-at: expected a moment of the round, which is 5s long, found 5s"),
            ("nothing", "--set: expected NAME=VALUE"),
        ] {
            let message = error(&[change]);
            assert!(message.contains(part) || change == "duration=1", "{change}: {message}");
            assert!(!message.contains('\n'));
        }
        assert!(error(&["failures=0.6", "rate-limits=0.6"]).contains("failures + rate-limits"));
        assert!(error(&["driver=threads", "workers=30000"]).contains("1 to 20000"));
    }

    #[test]
    fn reads_what_it_writes() {
        for ready in READY {
            let scenario = Scenario::open(ready.name, &[]).unwrap();
            let text = toml::to_string(&scenario).unwrap();
            assert_eq!(Scenario::parse("again", &text, &[], &[]).unwrap(), scenario, "{}", ready.name);
        }
    }
}
