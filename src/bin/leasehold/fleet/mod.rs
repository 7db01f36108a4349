//! The fleet file: what there is to lend and how it behaves.

mod field;
mod server;

use std::{collections::HashSet, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{SeqAccess, Visitor},
};
use toml::Spanned;

pub use server::Server;

use self::field::{
    failure_rate, nanos, nanos_per_token, requests_per_minute, slots, tokens_per_minute, weight,
};
use crate::error::{Error, Result};

/// The built-in fleet file.
pub const DEFAULT: &str = include_str!("default.toml");

/// What the report calls the built-in fleet.
pub const DEFAULT_NAME: &str = "built-in";

/// A fleet that has been checked: at least one resource, every key once, every number in its range.
#[derive(Debug)]
pub struct Fleet {
    pub name: String,
    pub resources: Vec<Spec>,
}

/// One resource of the fleet file. Units inside are nanoseconds; the file speaks of seconds.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    pub key: Spanned<String>,
    #[serde(default)]
    pub tier: u8,
    #[serde(deserialize_with = "slots")]
    pub max_in_flight: u32,
    /// No limit if absent.
    #[serde(default, deserialize_with = "requests_per_minute")]
    pub requests_per_minute: Option<u64>,
    /// No limit if absent.
    #[serde(default, deserialize_with = "tokens_per_minute")]
    pub tokens_per_minute: Option<u64>,
    #[serde(default, deserialize_with = "nanos")]
    pub time_to_first_token: u64,
    #[serde(rename = "tokens_per_second", deserialize_with = "nanos_per_token")]
    pub nanos_per_token: u64,
    /// Out of 2^32.
    #[serde(default, deserialize_with = "failure_rate")]
    pub failure_rate: u64,
    #[serde(default)]
    pub outages: Vec<Spanned<Outage>>,
    #[serde(default = "one", deserialize_with = "weight")]
    pub weight: u32,
}

/// A range of virtual time in which a resource answers nothing but "429": `from` is in it, `to` is not.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Outage {
    #[serde(deserialize_with = "nanos")]
    pub from: u64,
    #[serde(deserialize_with = "nanos")]
    pub to: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default, rename = "resource", deserialize_with = "tables")]
    resources: Vec<Spec>,
}

/// The list of resources. Whoever writes a single table is told how to write the list.
fn tables<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<Vec<Spec>, D::Error> {
    struct Tables;

    impl<'de> Visitor<'de> for Tables {
        type Value = Vec<Spec>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of tables: write [[resource]]")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut tables: A) -> std::result::Result<Vec<Spec>, A::Error> {
            let mut resources = Vec::new();
            while let Some(spec) = tables.next_element()? {
                resources.push(spec);
            }
            Ok(resources)
        }
    }

    from.deserialize_seq(Tables)
}

fn one() -> u32 {
    1
}

/// More would only make the report unreadable and the exact oracle slow to build.
const MOST_RESOURCES: usize = 10_000;

/// Bounds the requests in flight, and with them the memory of a run.
const MOST_SLOTS: u64 = 10_000_000;

impl Fleet {
    pub fn built_in() -> Self {
        Fleet::parse(DEFAULT_NAME, DEFAULT).expect("a unit test parses the built-in fleet")
    }

    /// As [`Fleet::parse`], from a file as it was read.
    pub fn from_bytes(name: &str, bytes: Vec<u8>) -> Result<Self> {
        let text = String::from_utf8(bytes).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            // Up to there it is text.
            let (line, column) = place(&String::from_utf8_lossy(&error.as_bytes()[..at]), at);
            Error::content(name, line, column, "expected UTF-8")
        })?;
        Fleet::parse(name, &text)
    }

    /// `name` is what errors and the report call the file.
    pub fn parse(name: &str, text: &str) -> Result<Self> {
        let fail = |at: usize, message: String| {
            let (line, column) = place(text, at);
            Error::content(name, line, column, message)
        };
        let File { mut resources } = toml::from_str(text).map_err(|error| {
            fail(error.span().map_or(0, |span| span.start), error.message().trim_end().replace('\n', ", "))
        })?;
        if resources.is_empty() {
            return Err(fail(0, "expected at least one [[resource]], the fleet is empty".into()));
        }
        if resources.len() > MOST_RESOURCES {
            let at = resources[MOST_RESOURCES].key.span().start;
            return Err(fail(at, format!("expected at most {MOST_RESOURCES} resources")));
        }
        let mut keys = HashSet::new();
        let mut slots = 0;
        for Spec { key, outages, max_in_flight, .. } in &mut resources {
            slots += u64::from(*max_in_flight);
            if slots > MOST_SLOTS {
                let message =
                    format!("expected at most {MOST_SLOTS} slots (max_in_flight) in the whole fleet");
                return Err(fail(key.span().start, message));
            }
            if key.get_ref().is_empty() {
                return Err(fail(key.span().start, "expected a key of at least one character".into()));
            }
            if !keys.insert(key.get_ref().clone()) {
                let message = format!("expected a key of its own, {:?} is taken", key.get_ref());
                return Err(fail(key.span().start, message));
            }
            if let Some(outage) = outages.iter().find(|outage| outage.get_ref().from >= outage.get_ref().to) {
                return Err(fail(outage.span().start, "expected an outage with `from` before `to`".into()));
            }
            outages.sort_by_key(|outage| outage.get_ref().from);
        }
        Ok(Fleet { name: name.to_owned(), resources })
    }

    /// The resources to lend, keyed by their position.
    pub fn servers(&self) -> Vec<Server> {
        self.resources.iter().zip(0..).map(|(spec, index)| Server::new(index, spec)).collect()
    }
}

/// Line and column, from 1, of a byte offset.
fn place(text: &str, at: usize) -> (u64, u64) {
    let before = &text.as_bytes()[..at.min(text.len())];
    let line_start = before.iter().rposition(|&byte| byte == b'\n').map_or(0, |newline| newline + 1);
    let line = before.iter().filter(|&&byte| byte == b'\n').count();
    (line as u64 + 1, (before.len() - line_start) as u64 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        Fleet::parse("f.toml", text).unwrap_err().to_string()
    }

    const GOOD: &str = "[[resource]]\nkey = \"a\"\nmax_in_flight = 2\ntokens_per_second = 50\n";

    #[test]
    fn built_in_fleet_is_sound() {
        let fleet = Fleet::built_in();
        assert_eq!(fleet.resources.len(), 12);
        assert!(fleet.resources.iter().any(|spec| !spec.outages.is_empty()));
    }

    #[test]
    fn defaults_and_units() {
        let fleet = Fleet::parse("f", GOOD).unwrap();
        let spec = &fleet.resources[0];
        assert_eq!((spec.tier, spec.weight, spec.failure_rate), (0, 1, 0));
        assert_eq!((spec.nanos_per_token, spec.time_to_first_token), (20_000_000, 0));
        assert_eq!((spec.requests_per_minute, spec.tokens_per_minute), (None, None));
        let text = format!(
            "{GOOD}failure_rate = 0.5\ntime_to_first_token = 0.25\nrequests_per_minute = 9\noutages = [{{ from = 5, to = 6.5 }}, {{ from = 1, to = 2 }}]"
        );
        let spec = &Fleet::parse("f", &text).unwrap().resources[0];
        assert_eq!((spec.failure_rate, spec.time_to_first_token), (1 << 31, 250_000_000));
        assert_eq!(spec.requests_per_minute, Some(9));
        let outages: Vec<Outage> = spec.outages.iter().map(|outage| *outage.get_ref()).collect();
        assert_eq!(
            outages,
            [
                Outage { from: 1_000_000_000, to: 2_000_000_000 },
                Outage { from: 5_000_000_000, to: 6_500_000_000 }
            ]
        );
    }

    #[test]
    fn errors_name_line_and_column() {
        let cases: &[(&str, &str, &str)] = &[
            ("", "f.toml:1:1:", "at least one [[resource]]"),
            ("# nothing\n", "f.toml:1:1:", "at least one [[resource]]"),
            ("[[resource]]\nkey = \n", "f.toml:2:7:", ""),
            (
                "[[resource]]\nkey = \"a\"\nspeed = 1\n",
                "f.toml:3:1:",
                "unknown field `speed`, expected one of",
            ),
            ("[[resource]]\nkey = \"a\"\nmax_in_flight = 0\n", "f.toml:3:17:", "1 to 65536"),
            ("[[resource]]\nkey = \"a\"\nmax_in_flight = \"2\"\n", "f.toml:3:17:", "1 to 65536"),
            (
                "[[resource]]\nkey = \"a\"\nmax_in_flight = 2\n",
                "f.toml:1:1:",
                "missing field `tokens_per_second`",
            ),
            ("[[resource]]\nkey = \"a\"\ntier = 300\n", "f.toml:3:8:", "u8"),
            ("resources = 3\n", "f.toml:1:1:", "unknown field"),
            ("[resource]\nkey = \"a\"\n", "f.toml:1:1:", "write [[resource]]"),
            ("resource = 3\n", "f.toml:1:12:", "write [[resource]]"),
        ];
        for (text, place, expected) in cases {
            let error = error(text);
            assert!(error.starts_with(place) && error.contains(expected), "{text:?}: {error}");
            assert!(!error.contains('\n'));
        }
        for (line, expected) in [
            ("tokens_per_second = 0", ""),
            ("failure_rate = 1.5", "0 to 1"),
            ("failure_rate = nan", "0 to 1"),
            ("time_to_first_token = -1", "seconds"),
            ("weight = 0", "1 to 1000"),
            ("requests_per_minute = 0", "1 to"),
            ("requests_per_minute = 99999999999999999999", "1 to"),
            ("tokens_per_minute = 1.5", "1 to"),
            ("weight = true", "boolean `true`, expected a whole number from 1 to 1000"),
            ("outages = [{ from = 2, to = 2 }]", "before"),
        ] {
            let text = format!("{GOOD}{line}\n");
            let error = error(&text);
            assert!(error.starts_with("f.toml:5:") && error.contains(expected), "{line}: {error}");
        }
        let twice = error(&format!("{GOOD}{GOOD}"));
        assert!(twice.starts_with("f.toml:6:7:") && twice.contains("taken"), "{twice}");
    }
}
