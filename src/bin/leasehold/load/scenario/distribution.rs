//! How long things take: the distributions that a scenario names.

use std::{fmt, str::FromStr, time::Duration};

use rand::{Rng, RngExt};
use rand_distr::{Distribution as _, Exp1, LogNormal};
use serde::{Deserialize, Serialize};

use super::span::{Span, Written};

/// A distribution of spans of time, as it is written in a scenario.
///
/// | text | is |
/// |---|---|
/// | `0` | no time at all |
/// | `fixed 5ms` | always the same |
/// | `uniform 1ms 5ms` | evenly between the two |
/// | `exponential 3ms` | of this mean |
/// | `log-normal 3ms 0.8` | of this median, and this standard deviation of the logarithm |
/// | `trace` | the tokens of each request of the scenario's trace, at its speed: those of the answer for a hold, those of the prompt for a delay |
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "String")]
pub enum Distribution {
    Fixed(Span),
    Uniform(Span, Span),
    Exponential(Span),
    LogNormal(Span, f64),
    Trace,
}

/// What is drawn is at most this: an hour. The tail of a log-normal has no end, a run must have one.
pub const LONGEST: Duration = Duration::from_secs(3_600);

impl Distribution {
    pub const ZERO: Distribution = Distribution::Fixed(Span(Duration::ZERO));

    /// A draw. [`Distribution::Trace`] has none of its own: whoever plays a trace has the span.
    pub fn draw(&self, random: &mut impl Rng) -> Duration {
        let seconds = match *self {
            Distribution::Fixed(Span(span)) => return span,
            Distribution::Trace => return Duration::ZERO,
            Distribution::Uniform(Span(from), Span(to)) => {
                from.as_secs_f64() + random.random::<f64>() * (to - from).as_secs_f64()
            }
            Distribution::Exponential(Span(mean)) => {
                let unit: f64 = Exp1.sample(random);
                unit * mean.as_secs_f64()
            }
            Distribution::LogNormal(Span(median), sigma) => {
                // The reader has refused what this could refuse.
                let logarithm = LogNormal::new(0.0, sigma).expect("a finite deviation, not negative");
                median.as_secs_f64() * logarithm.sample(random)
            }
        };
        Duration::from_secs_f64(seconds.min(LONGEST.as_secs_f64()))
    }

    pub fn mean(&self) -> Duration {
        match *self {
            Distribution::Fixed(Span(span)) | Distribution::Exponential(Span(span)) => span,
            Distribution::Trace => Duration::ZERO,
            Distribution::Uniform(Span(from), Span(to)) => (from + to) / 2,
            Distribution::LogNormal(Span(median), sigma) => {
                let mean = median.as_secs_f64() * (sigma * sigma / 2.0).exp();
                Duration::from_secs_f64(mean.min(LONGEST.as_secs_f64()))
            }
        }
    }

    pub fn is_zero(&self) -> bool {
        *self == Distribution::ZERO
    }
}

impl FromStr for Distribution {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let bad = || {
            format!(
                "expected `0`, `fixed SPAN`, `uniform SPAN SPAN`, `exponential SPAN`, `log-normal SPAN SIGMA` or `trace`, found {text:?}"
            )
        };
        let read = match words[..] {
            ["0"] => Distribution::ZERO,
            ["fixed", span] => Distribution::Fixed(span.parse()?),
            ["exponential", mean] => Distribution::Exponential(mean.parse()?),
            ["trace"] => Distribution::Trace,
            ["uniform", from, to] => {
                let (from, to): (Span, Span) = (from.parse()?, to.parse()?);
                if from.0 > to.0 {
                    return Err(format!("expected the lesser of two spans first, found {text:?}"));
                }
                Distribution::Uniform(from, to)
            }
            ["log-normal", median, sigma] => {
                let sigma = sigma.parse().ok().filter(|sigma| (0.0..=5.0).contains(sigma));
                let sigma = sigma.ok_or_else(|| format!("expected a SIGMA from 0 to 5, found {text:?}"))?;
                Distribution::LogNormal(median.parse()?, sigma)
            }
            _ => return Err(bad()),
        };
        Ok(read)
    }
}

impl TryFrom<Written> for Distribution {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        written.text().parse()
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Distribution::Fixed(Span(Duration::ZERO)) => f.write_str("0"),
            Distribution::Fixed(span) => write!(f, "fixed {span}"),
            Distribution::Uniform(from, to) => write!(f, "uniform {from} {to}"),
            Distribution::Exponential(mean) => write!(f, "exponential {mean}"),
            Distribution::LogNormal(median, sigma) => write!(f, "log-normal {median} {sigma}"),
            Distribution::Trace => f.write_str("trace"),
        }
    }
}

impl From<Distribution> for String {
    fn from(distribution: Distribution) -> String {
        distribution.to_string()
    }
}

#[cfg(test)]
mod tests {
    use rand::{SeedableRng, rngs::SmallRng};

    use super::*;

    #[test]
    fn reads_what_it_writes() {
        for text in
            ["0", "fixed 5ms", "uniform 1ms 1s 500ms", "exponential 3us", "log-normal 2ms 0.8", "trace"]
        {
            let text = text.replace("1s 500ms", "1500ms");
            let read: Distribution = text.parse().unwrap();
            assert_eq!(read.to_string().parse::<Distribution>().unwrap(), read, "{text}");
        }
    }

    #[test]
    fn means_are_those_of_the_draws() {
        let mut random = SmallRng::seed_from_u64(1);
        for text in ["fixed 5ms", "uniform 1ms 5ms", "exponential 3ms", "log-normal 3ms 0.8"] {
            let distribution: Distribution = text.parse().unwrap();
            let draws = 100_000;
            let sum: f64 = (0..draws).map(|_| distribution.draw(&mut random).as_secs_f64()).sum();
            let ratio = sum / f64::from(draws) / distribution.mean().as_secs_f64();
            assert!((0.97..1.03).contains(&ratio), "{text}: {ratio}");
        }
    }

    /// Not the means alone: where half of the draws are, and nine in ten.
    #[test]
    fn draws_have_their_shape() {
        let mut random = SmallRng::seed_from_u64(1);
        for (text, p50, p90) in [
            ("uniform 1ms 5ms", 3.0, 4.6),
            // ln 2 and ln 10 times the mean.
            ("exponential 3ms", 3.0 * std::f64::consts::LN_2, 3.0 * std::f64::consts::LN_10),
            // The median, and 1.28155 deviations above it.
            ("log-normal 3ms 0.8", 3.0, 3.0 * (0.8 * 1.281_551_6_f64).exp()),
        ] {
            let distribution: Distribution = text.parse().unwrap();
            let mut draws: Vec<f64> =
                (0..100_000).map(|_| distribution.draw(&mut random).as_secs_f64() * 1e3).collect();
            draws.sort_by(f64::total_cmp);
            for (at, expected) in [(50_000, p50), (90_000, p90)] {
                let ratio = draws[at] / expected;
                assert!((0.98..1.02).contains(&ratio), "{text}: {} of {expected}", draws[at]);
            }
        }
    }

    #[test]
    fn draws_end() {
        let mut random = SmallRng::seed_from_u64(1);
        let wild: Distribution = "log-normal 1h 5".parse().unwrap();
        assert!((0..1_000).all(|_| wild.draw(&mut random) <= LONGEST));
    }

    #[test]
    fn refuses_the_rest() {
        for text in [
            "",
            "5ms",
            "fixed",
            "fixed x",
            "uniform 5ms 1ms",
            "log-normal 1ms -1",
            "log-normal 1ms x",
            "gamma 1ms",
        ] {
            assert!(text.parse::<Distribution>().is_err(), "{text}");
        }
    }
}
