//! Results of other commands, read and told apart.

use std::{fs, path::Path};

use serde::Deserialize;
use serde_json::Value;

use super::{
    compare::Compare,
    pressure::Pressure,
    section::{Quantiles, Rank, Row, Section},
    tune::Tune,
};
use crate::{
    error::{Error, Result},
    load::result::LoadResult,
    order::OrderResult,
};

pub enum Input {
    Section(Box<Section>),
    Order(OrderResult),
    Compare(Compare),
    Tune(Tune),
    Pressure(Pressure),
}

/// What a page can be made of, as errors say it.
const EXPECTED: &str =
    "expected a result of `load`, `replay`, `order`, `compare`, `tune` or `pressure` in JSON, schema 1";

/// The only version there is, of all of them.
const SCHEMA: u64 = 1;

pub fn read(path: &Path) -> Result<Input> {
    let name = path.display().to_string();
    let text = fs::read_to_string(path).map_err(|cause| Error::file(&name, "cannot be read", cause))?;
    parse(&name, &text)
}

fn parse(name: &str, text: &str) -> Result<Input> {
    let fail = |error: serde_json::Error| {
        let (line, column) = (error.line().max(1) as u64, error.column().max(1) as u64);
        Error::content(name, line, column, error.to_string())
    };
    let value: Value = serde_json::from_str(text).map_err(fail)?;
    let kind = value["kind"].as_str().unwrap_or_else(|| kind_by_fields(&value));
    if value["schema"].as_u64() != Some(SCHEMA) || kind.is_empty() {
        return Err(Error::content(name, 1, 1, EXPECTED));
    }
    // From the text again, so that an error has a place.
    match kind {
        "load" => {
            let result: LoadResult = serde_json::from_str(text).map_err(fail)?;
            Ok(Input::Section(Box::new(Section::of_load(result))))
        }
        "order" => serde_json::from_str(text).map_err(fail).map(Input::Order),
        "replay" => {
            let result: Replay = serde_json::from_str(text).map_err(fail)?;
            Ok(Input::Section(Box::new(of_replay(result))))
        }
        "compare" => serde_json::from_str(text).map_err(fail).map(Input::Compare),
        "tune" => serde_json::from_str(text).map_err(fail).map(Input::Tune),
        "pressure" => serde_json::from_str(text).map_err(fail).map(Input::Pressure),
        other => Err(Error::content(name, 1, 1, format!("{EXPECTED}, found {other:?}"))),
    }
}

/// Results that do not say of which command they are: a replay's never does, those of two others did not always.
fn kind_by_fields(value: &Value) -> &'static str {
    if value["trace"].is_object() {
        "replay"
    } else if value["cases"].is_array() && value["bars"].is_array() {
        "compare"
    } else if value["bytes_per_job"].is_u64() {
        "pressure"
    } else {
        ""
    }
}

/// What is used of a replay's result.
#[derive(Deserialize)]
struct Replay {
    trace: Trace,
    settings: Settings,
    subjects: Vec<Subject>,
}

#[derive(Deserialize)]
struct Trace {
    source: String,
    format: String,
    requests: u64,
}

#[derive(Deserialize)]
struct Settings {
    seed: u64,
    shards: u32,
    speed: f64,
    max_retries: u32,
    max_queue: u32,
}

#[derive(Deserialize)]
struct Subject {
    name: String,
    completed: u64,
    failed: u64,
    rejected: u64,
    duration_ns: u64,
    waiting_ns: Waiting,
    rank_error: RankError,
    disagreements: u64,
    fairness: Fairness,
    resources: Vec<Resource>,
}

#[derive(Deserialize)]
struct Resource {
    key: String,
    utilisation: f64,
}

#[derive(Deserialize)]
struct Waiting {
    p50: u64,
    p90: u64,
    p99: u64,
    p99_9: u64,
    max: u64,
}

#[derive(Deserialize)]
struct RankError {
    mean: f64,
    p99: u64,
    max: u64,
}

#[derive(Deserialize)]
struct Fairness {
    within_tiers: f64,
}

fn of_replay(result: Replay) -> Section {
    let Replay { trace, settings, subjects } = result;
    let facts = [
        ("trace", trace.source.clone()),
        ("format", trace.format),
        ("requests", trace.requests.to_string()),
        ("seed", settings.seed.to_string()),
        ("shards", settings.shards.to_string()),
        ("speed", settings.speed.to_string()),
        ("max retries", settings.max_retries.to_string()),
        ("max queue", settings.max_queue.to_string()),
    ];
    let rows = subjects.into_iter().map(|subject| {
        let Waiting { p50, p90, p99, p99_9, max } = subject.waiting_ns;
        let has_shards = !["mutex", "naive"].contains(&subject.name.as_str());
        let ended = subject.completed + subject.failed > 0;
        let utilisation = subject.resources.into_iter().map(|resource| (resource.key, resource.utilisation));
        Row {
            throughput: Some(subject.completed as f64 * 1e9 / subject.duration_ns.max(1) as f64),
            waiting: vec![(0.5, p50), (0.9, p90), (0.99, p99), (0.999, p99_9)],
            waits: ended.then_some(Quantiles { p50, p99, p99_9, max }),
            latencies: None,
            uncorrected: None,
            held: None,
            delay: None,
            late: None,
            latency: Vec::new(),
            refused: subject.rejected,
            failed: subject.failed,
            cancelled: None,
            unsent: None,
            rank: Some(Rank {
                mean: subject.rank_error.mean,
                p99: subject.rank_error.p99,
                max: subject.rank_error.max,
                histogram: Vec::new(),
                shards: has_shards.then_some(settings.shards),
            }),
            fairness: subject.fairness.within_tiers,
            fairness_of_workers: None,
            series: Vec::new(),
            heat: None,
            utilisation: utilisation.collect(),
            processes: None,
            faults: (subject.disagreements > 0)
                .then(|| format!("{} answers break the rules", subject.disagreements))
                .into_iter()
                .collect(),
            name: subject.name,
        }
    });
    Section {
        title: format!("replay of {}", trace.source),
        partial: false,
        virtual_time: true,
        facts: facts.map(|(name, value)| (name.to_owned(), value)).into(),
        resources: 0,
        settings: None,
        rows: rows.collect(),
        unfit: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_what_it_cannot_read() {
        for (text, part) in [
            ("", "f:1:1: EOF"),
            ("{}", "f:1:1: expected a result of `load`, `replay`, `order`, `compare`"),
            (r#"{"schema": 1, "members": []}"#, "`tune` or `pressure` in JSON"),
            (r#"{"schema": 2, "kind": "load"}"#, "schema 1"),
            (r#"{"schema": 1, "kind": "tea"}"#, "found \"tea\""),
            (r#"{"schema": 1, "kind": "load"}"#, "missing field"),
            (r#"{"schema": 1, "cases": [], "bars": [{"name": "pair"}]}"#, "missing field `threads`"),
            (r#"{"schema": 1, "kind": "tune"}"#, "missing field"),
        ] {
            let error = parse("f", text).err().unwrap().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
