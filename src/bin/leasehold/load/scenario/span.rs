//! A span of time as people write it: `250us`, `5ms`, `1.5s`, `10m`.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "String")]
pub struct Span(pub Duration);

/// Units, the longest first, in nanoseconds.
const UNITS: [(&str, u64); 6] = [
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("expected a span from 0 to 24h such as 250us, 5ms, 1.5s or 10m, found {text:?}");
        if text == "0" {
            return Ok(Span(Duration::ZERO));
        }
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(bad)?;
        let (number, unit) = text.split_at(digits);
        let &(_, nanos) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(bad)?;
        let number: f64 = number.parse().ok().filter(|number: &f64| number.is_finite()).ok_or_else(bad)?;
        let nanos = number * nanos as f64;
        if nanos > 24.0 * UNITS[0].1 as f64 {
            return Err(bad());
        }
        Ok(Span(Duration::from_nanos(nanos.round() as u64)))
    }
}

impl TryFrom<Written> for Span {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        written.text().parse()
    }
}

/// A text, or a number that was written without quotes: `0` is the one that means something.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a text such as \"5ms\", or 0")]
pub enum Written {
    Text(String),
    Number(i64),
}

impl Written {
    pub fn text(self) -> String {
        match self {
            Written::Text(text) => text,
            Written::Number(number) => number.to_string(),
        }
    }
}

impl fmt::Display for Span {
    /// The longest unit of which it is a whole number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos() as u64;
        if nanos == 0 {
            return f.write_str("0");
        }
        let (name, unit) = UNITS.iter().find(|(_, unit)| nanos.is_multiple_of(*unit)).expect("of 1 all are");
        write!(f, "{}{name}", nanos / unit)
    }
}

impl From<Span> for String {
    fn from(span: Span) -> String {
        span.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes() {
        for (text, nanos, again) in [
            ("0", 0, "0"),
            ("250us", 250_000, "250us"),
            ("1.5s", 1_500_000_000, "1500ms"),
            ("10m", 600_000_000_000, "10m"),
            ("24h", 86_400_000_000_000, "24h"),
            ("7ns", 7, "7ns"),
        ] {
            let span: Span = text.parse().unwrap();
            assert_eq!((span.0.as_nanos(), span.to_string().as_str()), (nanos, again));
        }
        for text in ["", "5", "ms", "-5ms", "5 ms", "1.2.3s", "25h", "5d"] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
    }
}
