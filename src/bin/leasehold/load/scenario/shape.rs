//! How the load changes over a round: steady, on and off, a ramp, a herd that comes all at once.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};

use super::span::Span;

/// How strong the load is at a moment of the round, as a multiple of what the scenario's rate says.
///
/// | text | is |
/// |---|---|
/// | `steady` | 1 all the time |
/// | `on-off 2s 0.25` | a period of 2 s, of which the first quarter has it all: 4 times the rate, then nothing |
/// | `ramp 0.5 2` | from half to double, evenly over the round |
/// | `herd 500ms` | every worker at once, each half second |
/// | `trace` | the moments of the scenario's trace |
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Shape {
    Steady,
    OnOff { period: Span, on: f64 },
    Ramp { from: f64, to: f64 },
    Herd { every: Span },
    Trace,
}

impl Shape {
    /// The strength at a moment of a round of this length.
    pub fn strength(&self, at: Duration, length: Duration) -> f64 {
        match *self {
            Shape::Steady | Shape::Herd { .. } | Shape::Trace => 1.0,
            Shape::OnOff { period: Span(period), on } => {
                let part = at.as_secs_f64() / period.as_secs_f64();
                if part.fract() < on { 1.0 / on } else { 0.0 }
            }
            Shape::Ramp { from, to } => {
                from + (to - from) * (at.as_secs_f64() / length.as_secs_f64()).min(1.0)
            }
        }
    }

    /// What has come until this moment of a round of this length, in seconds of the plain rate. Not of herds and traces, whose moments are their own.
    pub fn come_until(&self, at: Duration, length: Duration) -> f64 {
        let at = at.as_secs_f64();
        match *self {
            Shape::Steady | Shape::Herd { .. } | Shape::Trace => at,
            Shape::OnOff { period: Span(period), on } => {
                let parts = at / period.as_secs_f64();
                (parts.trunc() + (parts.fract() / on).min(1.0)) * period.as_secs_f64()
            }
            Shape::Ramp { from, to } => {
                let length = length.as_secs_f64();
                let climbed = at.min(length);
                from * climbed + (to - from) * climbed * climbed / (2.0 * length) + to * (at - climbed)
            }
        }
    }

    /// The greatest strength there is.
    pub fn greatest(&self) -> f64 {
        match *self {
            Shape::Steady | Shape::Herd { .. } | Shape::Trace => 1.0,
            Shape::OnOff { on, .. } => 1.0 / on,
            Shape::Ramp { from, to } => from.max(to),
        }
    }

    /// How long it takes until the load begins anew; zero if it has no period of its own.
    pub fn period(&self) -> Duration {
        match *self {
            Shape::Steady | Shape::Ramp { .. } | Shape::Trace => Duration::ZERO,
            Shape::OnOff { period: Span(period), .. } | Shape::Herd { every: Span(period) } => period,
        }
    }

    /// The first moment from `at` on at which there is any load.
    pub fn next_on(&self, at: Duration) -> Duration {
        match *self {
            Shape::OnOff { period: Span(period), .. } if self.strength(at, Duration::ZERO) == 0.0 => {
                let periods = (at.as_nanos() / period.as_nanos()) as u32 + 1;
                period * periods
            }
            Shape::Herd { every: Span(every) } => {
                let herds = at.as_nanos().div_ceil(every.as_nanos()) as u32;
                every * herds
            }
            _ => at,
        }
    }
}

impl FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let number = |text: &str, low: f64, high: f64| {
            let number = text.parse().ok().filter(|number| (low..=high).contains(number));
            number.ok_or_else(|| format!("expected a number from {low} to {high}, found {text:?}"))
        };
        let span = |text: &str| {
            let span: Span = text.parse()?;
            if span.0 < Duration::from_millis(1) {
                return Err(format!("expected a period of 1ms or more, found {text:?}"));
            }
            Ok(span)
        };
        match words[..] {
            ["steady"] => Ok(Shape::Steady),
            ["trace"] => Ok(Shape::Trace),
            ["on-off", period, on] => Ok(Shape::OnOff { period: span(period)?, on: number(on, 0.01, 1.0)? }),
            ["ramp", from, to] => {
                Ok(Shape::Ramp { from: number(from, 0.01, 100.0)?, to: number(to, 0.01, 100.0)? })
            }
            ["herd", every] => Ok(Shape::Herd { every: span(every)? }),
            _ => Err(format!(
                "expected `steady`, `on-off PERIOD SHARE`, `ramp FROM TO`, `herd PERIOD` or `trace`, found {text:?}"
            )),
        }
    }
}

impl TryFrom<String> for Shape {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Shape::Steady => f.write_str("steady"),
            Shape::OnOff { period, on } => write!(f, "on-off {period} {on}"),
            Shape::Ramp { from, to } => write!(f, "ramp {from} {to}"),
            Shape::Herd { every } => write!(f, "herd {every}"),
            Shape::Trace => f.write_str("trace"),
        }
    }
}

impl From<Shape> for String {
    fn from(shape: Shape) -> String {
        shape.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn reads_what_it_writes() {
        for text in ["steady", "on-off 2s 0.25", "ramp 0.5 2", "herd 500ms", "trace"] {
            assert_eq!(text.parse::<Shape>().unwrap().to_string(), text);
        }
        for text in ["", "on-off 0 0.5", "on-off 1s 0", "on-off 1s 2", "ramp 1", "herd 1ns", "wave"] {
            assert!(text.parse::<Shape>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_period_has_the_whole_load() {
        for text in ["steady", "on-off 1s 0.25", "ramp 0.5 1.5"] {
            let shape: Shape = text.parse().unwrap();
            let steps = 10_000;
            let sum: f64 = (0..steps).map(|i| shape.strength(SECOND * i / steps, SECOND)).sum();
            assert!((sum / f64::from(steps) - 1.0).abs() < 0.01, "{text}: {sum}");
            assert!((0..steps).all(|i| shape.strength(SECOND * i / steps, SECOND) <= shape.greatest()));
        }
    }

    #[test]
    fn after_a_pause_it_goes_on() {
        let shape: Shape = "on-off 2s 0.25".parse().unwrap();
        assert_eq!(shape.next_on(SECOND), 2 * SECOND);
        assert_eq!(shape.next_on(2 * SECOND + SECOND / 4), 2 * SECOND + SECOND / 4);
        let herd: Shape = "herd 500ms".parse().unwrap();
        assert_eq!(herd.next_on(Duration::ZERO), Duration::ZERO);
        assert_eq!(herd.next_on(SECOND * 6 / 10), SECOND);
        assert_eq!(herd.next_on(SECOND), SECOND);
    }
}
