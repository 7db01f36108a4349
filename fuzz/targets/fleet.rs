//! The fleet file against a second reader, written from `docs/cli.md` over plain TOML values: which files are taken, with what
//! numbers, and that a refusal names a place in the file.
//!
//! Input: the file; or, after a zero byte, the resources to write one of.
#![cfg_attr(fuzzing, no_main)]

use std::collections::HashSet;

use leasehold_fuzz::{Bytes, target};
use toml::{Table, Value};

#[allow(dead_code)]
#[path = "../../src/bin/leasehold/error.rs"]
mod error;
#[allow(dead_code, unused_imports)]
#[path = "../../src/bin/leasehold/fleet/mod.rs"]
mod fleet;

use error::Error;
use fleet::Fleet;

const MOST_RESOURCES: usize = 10_000;
const MOST_SLOTS: u64 = 10_000_000;

/// A resource as the file has it: in seconds.
#[derive(Debug, Default)]
struct Plain {
    key: String,
    tier: u64,
    max_in_flight: u64,
    requests_per_minute: Option<u64>,
    tokens_per_minute: Option<u64>,
    time_to_first_token: f64,
    tokens_per_second: f64,
    failure_rate: f64,
    outages: Vec<(f64, f64)>,
    weight: u64,
}

fn whole(value: &Value, low: i64, high: i64) -> Option<u64> {
    value.as_integer().filter(|number| (low..=high).contains(number)).map(|number| number as u64)
}

fn number(value: &Value, low: f64, high: f64) -> Option<f64> {
    let number = value.as_float().or_else(|| value.as_integer().map(|number| number as f64))?;
    (low <= number && number <= high).then_some(number)
}

const SECONDS: f64 = 1e9;

/// The range of time of an outage. Equal after rounding to nanoseconds is equal.
fn outage(value: &Value) -> Option<(f64, f64)> {
    let table = value.as_table().filter(|table| table.len() == 2)?;
    let from = number(table.get("from")?, 0.0, SECONDS)?;
    let to = number(table.get("to")?, 0.0, SECONDS)?;
    (nanos(from) < nanos(to)).then_some((from, to))
}

fn nanos(seconds: f64) -> u64 {
    (seconds * 1e9).round() as u64
}

fn resource(table: &Table) -> Option<Plain> {
    let mut plain = Plain { weight: 1, ..Plain::default() };
    let needed = ["key", "max_in_flight", "tokens_per_second"];
    if needed.iter().any(|name| !table.contains_key(*name)) {
        return None;
    }
    for (name, value) in table {
        match name.as_str() {
            "key" => plain.key = value.as_str().filter(|key| !key.is_empty())?.to_owned(),
            "tier" => plain.tier = whole(value, 0, 255)?,
            "max_in_flight" => plain.max_in_flight = whole(value, 1, 65_536)?,
            "requests_per_minute" => plain.requests_per_minute = Some(whole(value, 1, 1_000_000_000)?),
            "tokens_per_minute" => plain.tokens_per_minute = Some(whole(value, 1, 1_000_000_000_000)?),
            "time_to_first_token" => plain.time_to_first_token = number(value, 0.0, SECONDS)?,
            "tokens_per_second" => plain.tokens_per_second = number(value, 0.1, 1e6)?,
            "failure_rate" => plain.failure_rate = number(value, 0.0, 1.0)?,
            "outages" => plain.outages = value.as_array()?.iter().map(outage).collect::<Option<_>>()?,
            "weight" => plain.weight = whole(value, 1, 1_000)?,
            _ => return None,
        }
    }
    plain.outages.sort_by_key(|&(from, _)| nanos(from));
    Some(plain)
}

/// The resources, if the file is good.
fn read(text: &str) -> Option<Vec<Plain>> {
    let table: Table = text.parse().ok()?;
    let resources = table.get("resource")?.as_array()?;
    if table.len() != 1 || resources.is_empty() || resources.len() > MOST_RESOURCES {
        return None;
    }
    let plain: Vec<Plain> =
        resources.iter().map(|value| resource(value.as_table()?)).collect::<Option<_>>()?;
    let keys: HashSet<&str> = plain.iter().map(|plain| plain.key.as_str()).collect();
    let slots: u64 = plain.iter().map(|plain| plain.max_in_flight).sum();
    (keys.len() == plain.len() && slots <= MOST_SLOTS).then_some(plain)
}

fn compare(fleet: &Fleet, expected: &[Plain]) {
    assert_eq!(fleet.resources.len(), expected.len());
    for (spec, plain) in fleet.resources.iter().zip(expected) {
        assert_eq!(spec.key.get_ref(), &plain.key);
        assert_eq!(u64::from(spec.tier), plain.tier);
        assert_eq!(u64::from(spec.max_in_flight), plain.max_in_flight);
        assert_eq!(u64::from(spec.weight), plain.weight);
        assert_eq!(spec.requests_per_minute, plain.requests_per_minute);
        assert_eq!(spec.tokens_per_minute, plain.tokens_per_minute);
        assert_eq!(spec.time_to_first_token, nanos(plain.time_to_first_token));
        assert_eq!(spec.nanos_per_token, (1e9 / plain.tokens_per_second).round() as u64);
        assert!((1_000..=10_000_000_000).contains(&spec.nanos_per_token));
        assert_eq!(spec.failure_rate, (plain.failure_rate * 4_294_967_296.0).round() as u64);
        let outages: Vec<(u64, u64)> =
            spec.outages.iter().map(|outage| (outage.get_ref().from, outage.get_ref().to)).collect();
        let expected: Vec<(u64, u64)> =
            plain.outages.iter().map(|&(from, to)| (nanos(from), nanos(to))).collect();
        assert_eq!(outages, expected);
    }
    let servers = fleet.servers();
    assert!(servers.iter().map(|server| server.index).eq(0..expected.len() as u32));
}

/// A refusal is one line, about a place that is there.
fn check_place(file: &[u8], error: &Error) {
    let told = error.to_string();
    assert!(!told.contains(|c: char| c.is_control()), "{told:?}");
    let Error::Content { place, message } = error else { panic!("{told}") };
    assert!(!message.is_empty());
    let line = file.split(|&byte| byte == b'\n').nth(place.line as usize - 1);
    let line = line.unwrap_or_else(|| panic!("there is no line {}: {told}", place.line));
    assert!((1..=line.len() as u64 + 1).contains(&place.column), "no such column: {told}");
}

fn check(file: &[u8]) {
    let fleet = Fleet::from_bytes("f.toml", file.to_vec());
    let expected = std::str::from_utf8(file).ok().and_then(read);
    match (fleet, expected) {
        (Ok(fleet), Some(expected)) => compare(&fleet, &expected),
        (Err(error), None) => check_place(file, &error),
        (Ok(fleet), None) => panic!("taken: {fleet:?}"),
        (Err(error), Some(expected)) => panic!("refused: {error}; {expected:?}"),
    }
}

/// A number near the ends of its range, or anywhere.
fn near(bytes: &mut Bytes<'_>, low: i64, high: i64) -> i64 {
    match bytes.u8() % 8 {
        0 => low,
        1 => low - 1,
        2 => high,
        3 => high + 1,
        4 => i64::from(bytes.u16()) - 100,
        _ => low + (bytes.u32() as i64).rem_euclid(high - low + 1),
    }
}

fn seconds(bytes: &mut Bytes<'_>) -> String {
    match bytes.u8() % 8 {
        0 => String::from("0"),
        1 => String::from("1_000_000_000.0"),
        2 => String::from("1000000000.1"),
        3 => String::from("-0.0"),
        4 => String::from(["nan", "inf", "-inf", "-1e-9"][usize::from(bytes.u8() % 4)]),
        5 => format!("{:e}", f64::from_bits(bytes.u64())),
        _ => format!("{}", f64::from(bytes.u16()) / 256.0),
    }
}

/// A file of resources that are good, or nearly.
fn write(bytes: &mut Bytes<'_>) -> String {
    let mut text = String::new();
    for number in 0..=bytes.u8() {
        let fields = bytes.u16();
        text.push_str("\n[[resource]]\n");
        // All bits clear, as at the end of the input, is a resource with everything.
        let mut put = |bit: u32, name: &str, value: String| {
            if fields >> bit & 1 == 0 {
                text.push_str(&format!("{name} = {value}\n"));
            }
        };
        let key = match bytes.u8() {
            0 => String::from("\"\""),
            1 => format!("'{}'", number / 2),
            _ => format!("\"key {number}\""),
        };
        put(15, "key", key);
        put(14, "max_in_flight", near(bytes, 1, 65_536).to_string());
        put(13, "tokens_per_second", seconds(bytes));
        put(0, "tier", near(bytes, 0, 255).to_string());
        put(1, "weight", near(bytes, 1, 1_000).to_string());
        put(2, "requests_per_minute", near(bytes, 1, 1_000_000_000).to_string());
        put(3, "tokens_per_minute", near(bytes, 1, 1_000_000_000_000).to_string());
        put(4, "time_to_first_token", seconds(bytes));
        put(5, "failure_rate", seconds(bytes));
        let outages = (0..bytes.u8() % 3)
            .map(|_| format!("{{ from = {}, to = {} }}", seconds(bytes), seconds(bytes)))
            .collect::<Vec<_>>();
        put(6, "outages", format!("[{}]", outages.join(", ")));
    }
    text
}

fn run(data: &[u8]) {
    match data {
        [0, rest @ ..] => check(write(&mut Bytes(rest)).as_bytes()),
        file => check(file),
    }
}

target!(run);
