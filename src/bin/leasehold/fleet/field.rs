//! The numbers of a fleet file: each with its range, checked where the parser still knows the place.

use std::fmt;

use serde::{
    Deserializer,
    de::{Error, Unexpected, Visitor},
};

/// A TOML number, whole or not.
enum Number {
    Whole(i64),
    Decimal(f64),
}

/// Takes numbers alone, and tells for anything else what the field wants.
struct Expected(&'static str);

impl Visitor<'_> for Expected {
    type Value = Number;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Number, E> {
        Ok(Number::Whole(number))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Number, E> {
        Ok(Number::Decimal(number))
    }
}

fn decimal<'de, D: Deserializer<'de>>(
    from: D,
    low: f64,
    high: f64,
    expected: &'static str,
) -> Result<f64, D::Error> {
    let number = match from.deserialize_any(Expected(expected))? {
        // Exact up to 2^53, above every range below.
        Number::Whole(number) => number as f64,
        Number::Decimal(number) => number,
    };
    // Not-a-number is in no range.
    if (low..=high).contains(&number) {
        Ok(number)
    } else {
        Err(D::Error::invalid_value(Unexpected::Float(number), &expected))
    }
}

fn whole<'de, D: Deserializer<'de>>(from: D, high: i64, expected: &'static str) -> Result<u64, D::Error> {
    match from.deserialize_any(Expected(expected))? {
        Number::Whole(number) if (1..=high).contains(&number) => Ok(number as u64),
        Number::Whole(number) => Err(D::Error::invalid_value(Unexpected::Signed(number), &expected)),
        Number::Decimal(number) => Err(D::Error::invalid_value(Unexpected::Float(number), &expected)),
    }
}

pub fn slots<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    // At 65,536 slots one lease still changes the load by its smallest step (see `Server`).
    whole(from, 65_536, "a whole number from 1 to 65536").map(|number| number as u32)
}

pub fn weight<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    whole(from, 1_000, "a whole number from 1 to 1000").map(|number| number as u32)
}

pub fn requests_per_minute<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    whole(from, 1_000_000_000, "a whole number from 1 to 1000000000").map(Some)
}

pub fn tokens_per_minute<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    whole(from, 1_000_000_000_000, "a whole number from 1 to 1000000000000").map(Some)
}

/// Seconds, as nanoseconds.
pub fn nanos<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let seconds = decimal(from, 0.0, 1e9, "seconds as a number from 0 to 1000000000")?;
    // One multiplication and one rounding, both exact by IEEE 754: the same on every machine.
    Ok((seconds * 1e9).round() as u64)
}

/// Tokens per second, as nanoseconds per token.
pub fn nanos_per_token<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let per_second = decimal(from, 0.1, 1e6, "a number from 0.1 to 1000000")?;
    Ok((1e9 / per_second).round() as u64)
}

/// A probability, out of 2^32.
pub fn failure_rate<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let rate = decimal(from, 0.0, 1.0, "a number from 0 to 1")?;
    Ok((rate * 4_294_967_296.0).round() as u64)
}
