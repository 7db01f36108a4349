//! Results of other commands, read and told apart.

use std::{fs, path::Path};

use serde::Deserialize;
use serde_json::Value;

use super::{
    compare::Compare,
    pressure::Pressure,
    section::{PassedOver, Quantiles, Rank, Row, Section},
    tune::Tune,
};
use crate::{
    error::{Error, Result},
    load::result::{LoadResult, Point},
    order::OrderResult,
};

pub enum Input {
    Section(Box<Section>),
    Order(OrderResult),
    Compare(Compare),
    Tune(Box<Tune>),
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
    checked(&value, "").map_err(|what| Error::content(name, 1, 1, what))?;
    // Of control characters nothing is left: names go into pictures, where they would make the page one that no browser can read.
    let kind = kind.to_owned();
    let seen = shown(value.clone());
    let text = &if seen == value { text.to_owned() } else { serde_json::to_string(&seen).map_err(fail)? };
    // From the text again, so that an error has a place.
    match &*kind {
        "load" => {
            let result: LoadResult = serde_json::from_str(text).map_err(fail)?;
            drawable(&result).map_err(|what| Error::content(name, 1, 1, what))?;
            Ok(Input::Section(Box::new(Section::of_load(result))))
        }
        "order" => serde_json::from_str(text).map_err(fail).map(Input::Order),
        "replay" => {
            let result: Replay = serde_json::from_str(text).map_err(fail)?;
            if !(1..=MOST_SHARDS).contains(&result.settings.shards) {
                return Err(Error::content(name, 1, 1, format!("settings.shards: {SHARDS}")));
            }
            Ok(Input::Section(Box::new(of_replay(result))))
        }
        "compare" => serde_json::from_str(text).map_err(fail).map(Input::Compare),
        "tune" => serde_json::from_str(text).map_err(fail).map(Box::new).map(Input::Tune),
        "pressure" => serde_json::from_str(text).map_err(fail).map(Input::Pressure),
        other => Err(Error::content(name, 1, 1, format!("{EXPECTED}, found {other:?}"))),
    }
}

/// No number of a result is greater: thirty years in nanoseconds. Sums of them, and what is a little more, are numbers still.
const GREATEST: f64 = 1e18;
/// Nothing in a list is longer: the seconds of eleven days, such as three rounds of a day for each of three subjects have together.
const LONGEST: usize = 1_000_000;
const MOST_SHARDS: u32 = 1_024;
const SHARDS: &str = "expected 1 to 1024 shards";

/// Whether all numbers are of a size that a measurement can have; if not, where.
fn checked(value: &Value, place: &str) -> std::result::Result<(), String> {
    let below = |name: &str| if place.is_empty() { name.to_owned() } else { format!("{place}.{name}") };
    match value {
        Value::Number(number) => {
            let size = number.as_f64().unwrap_or(f64::INFINITY).abs();
            // A seed is any number.
            if size > GREATEST && !place.ends_with("seed") {
                return Err(format!("{place}: expected a number from -1e18 to 1e18, found {number}"));
            }
            Ok(())
        }
        Value::Array(items) if items.len() > LONGEST => {
            Err(format!("{place}: expected at most {LONGEST} items, found {}", items.len()))
        }
        Value::Array(items) => items.iter().try_for_each(|item| checked(item, &format!("{place}[]"))),
        Value::Object(fields) => fields.iter().try_for_each(|(name, field)| checked(field, &below(name))),
        Value::Null | Value::Bool(_) | Value::String(_) => Ok(()),
    }
}

/// The same with a question mark for each control character that is no end of a line.
fn shown(value: Value) -> Value {
    match value {
        Value::String(text) => {
            // The last two are none of any language, and XML has no place for them.
            let unseen = |c: char| (c.is_control() && c != '\n') || matches!(c, '\u{FFFE}' | '\u{FFFF}');
            let seen = |c: char| if unseen(c) { '?' } else { c };
            Value::String(text.chars().map(seen).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(shown).collect()),
        Value::Object(fields) => {
            Value::Object(fields.into_iter().map(|(name, field)| (name, shown(field))).collect())
        }
        other => other,
    }
}

/// Whether what a load result says of its fleet and of its heat map can be drawn.
fn drawable(result: &LoadResult) -> std::result::Result<(), String> {
    let most = 1_000_000;
    if !(1..=most).contains(&result.scenario.resources) {
        return Err(format!("scenario.resources: expected 1 to {most}, found {}", result.scenario.resources));
    }
    for subject in &result.subjects {
        let Some(run) = &subject.run else { continue };
        if run.shards.is_some_and(|shards| !(1..=MOST_SHARDS).contains(&shards)) {
            return Err(format!("subjects[].run.shards: {SHARDS}"));
        }
        let heat = &run.heat;
        if heat.rows.is_empty() {
            continue;
        }
        let (rows, columns) = (heat.rows.len(), heat.rows.iter().map(Vec::len).max().unwrap_or(0));
        if rows > 1_000 || columns > 1_000 {
            return Err(format!("heat.rows: expected at most 1000 rows of 1000, found {rows} of {columns}"));
        }
        if !(1..=most).contains(&heat.resources_of_a_row) || !(1e-6..=1e6).contains(&heat.seconds_of_a_column)
        {
            return Err(
                "heat: expected rows of 1 to 1000000 resources and columns of 1e-6 to 1e6 seconds".into()
            );
        }
        if heat.rows.iter().flatten().any(|load| !(0.0..=1_000.0).contains(load)) {
            return Err("heat.rows: expected loads from 0 to 1000".into());
        }
    }
    Ok(())
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
    /// Results of older versions have no name of it.
    #[serde(default)]
    fleet: Fleet,
    settings: Settings,
    subjects: Vec<Subject>,
}

#[derive(Deserialize)]
struct Trace {
    source: String,
    format: String,
    requests: u64,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Fleet {
    source: String,
    resources: u64,
}

#[derive(Deserialize)]
struct Settings {
    seed: u64,
    shards: u32,
    speed: f64,
    #[serde(default)]
    limit: Option<u64>,
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
    /// Results of older versions have no delays, curves, histograms and series.
    delay: Option<RankError>,
    #[serde(default)]
    series: Series,
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
    #[serde(default)]
    curve: Vec<(f64, u64)>,
}

#[derive(Deserialize)]
struct RankError {
    mean: f64,
    p99: u64,
    max: u64,
    #[serde(default)]
    histogram: Vec<(u64, u64)>,
}

#[derive(Default, Deserialize)]
struct Series {
    points: Vec<Interval>,
}

#[derive(Deserialize)]
struct Interval {
    at: f64,
    completed: f64,
    waiting: u64,
}

impl From<Interval> for Point {
    /// What a simulation does not tell by the interval is nothing.
    fn from(Interval { at, completed, waiting }: Interval) -> Point {
        Point { at, completed, waiting, round: 0, refused: 0.0, failed: 0.0, in_flight: 0, p50: 0, p99: 0 }
    }
}

#[derive(Deserialize)]
struct Fairness {
    within_tiers: f64,
}

fn of_replay(result: Replay) -> Section {
    let Replay { trace, fleet, settings, subjects } = result;
    let facts = [
        ("trace", trace.source.clone()),
        ("format", trace.format),
        ("requests", trace.requests.to_string()),
        ("limit", settings.limit.map_or_else(|| "none".into(), |limit| limit.to_string())),
        ("fleet", format!("{}, {} resources", fleet.source, fleet.resources)),
        ("seed", settings.seed.to_string()),
        ("shards", settings.shards.to_string()),
        ("speed", settings.speed.to_string()),
        ("max retries", settings.max_retries.to_string()),
        ("max queue", settings.max_queue.to_string()),
    ];
    let rows = subjects.into_iter().map(|subject| {
        let Waiting { p50, p90, p99, p99_9, max, curve } = subject.waiting_ns;
        let few = vec![(0.5, p50), (0.9, p90), (0.99, p99), (0.999, p99_9)];
        let has_shards = !["mutex", "naive"].contains(&subject.name.as_str());
        let ended_count = subject.completed + subject.failed;
        let ended = ended_count > 0;
        let utilisation = subject.resources.into_iter().map(|resource| (resource.key, resource.utilisation));
        Row {
            throughput: Some(subject.completed as f64 * 1e9 / subject.duration_ns.max(1) as f64),
            waiting: if curve.is_empty() { few } else { curve },
            waits: ended.then_some(Quantiles { p50, p99, p99_9, max }),
            latencies: None,
            uncorrected: None,
            unanswered: None,
            unanswered_count: None,
            failures: None,
            sent_late: None,
            sent_late_count: None,
            share_without_wait: 1.0 - ended_count as f64 / (ended_count + subject.rejected).max(1) as f64,
            share_without_latency: 0.0,
            driver: None,
            held: None,
            delay: None,
            late: None,
            latency: Vec::new(),
            refused: subject.rejected,
            failed: subject.failed,
            cancelled: None,
            too_late: None,
            unsent: None,
            rank: Some(Rank {
                mean: subject.rank_error.mean,
                p99: subject.rank_error.p99,
                max: subject.rank_error.max,
                histogram: subject.rank_error.histogram,
                looks: None,
                shards: has_shards.then_some(settings.shards),
            }),
            passed_over: subject.delay.map(|delay| PassedOver {
                mean: delay.mean,
                p99: delay.p99,
                looks: None,
            }),
            fairness: ended.then_some(subject.fairness.within_tiers),
            fairness_of_workers: None,
            series: subject.series.points.into_iter().map(Point::from).collect(),
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
            (
                r#"{"schema": 1, "kind": "load", "a": {"b": [1e308]}}"#,
                "f:1:1: a.b[]: expected a number from -1e18",
            ),
            (r#"{"schema": 1, "kind": "load", "max": 18446744073709551615}"#, "max: expected a number"),
        ] {
            let error = parse("f", text).err().unwrap().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
