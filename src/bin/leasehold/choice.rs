//! Which scheduler replays the trace: the values of `--strategy`.

use std::{fmt, str::FromStr};

use leasehold::Strategy;

/// A strategy of the scheduler, or one of the two yardsticks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Stay on a shard for `period` leases, then choose among `choices`; the library's defaults where absent.
    Sticky {
        choices: Option<usize>,
        period: Option<u32>,
    },
    BestOf {
        choices: usize,
    },
    RoundRobin,
    /// One weight a shard; all equal if there are none.
    Weighted(Vec<u32>),
    Adaptive,
    /// Best of all shards.
    Strict,
    /// The baseline: one mutex, one heap.
    Mutex,
    /// The baseline without priorities: each resource in its turn.
    Naive,
}

/// What `--baseline` adds.
pub const BASELINES: [Choice; 2] = [Choice::Naive, Choice::Mutex];

pub const SYNTAX: &str =
    "sticky[:d[:s]], best-of:d, round-robin, weighted[:w:w...], adaptive, strict, mutex or naive";

impl Choice {
    /// The strategy of a scheduler with so many shards; `None` for the yardsticks, which have none.
    pub fn strategy(&self, shards: u32) -> Option<Strategy> {
        let (default_choices, default_period) = match Strategy::default() {
            Strategy::Sticky { choices, period } => (choices, period),
            _ => unreachable!("the library's default is sticky, and its documentation says so"),
        };
        Some(match self {
            Choice::Sticky { choices, period } => Strategy::Sticky {
                choices: choices.unwrap_or(default_choices),
                period: period.unwrap_or(default_period),
            },
            Choice::BestOf { choices } => Strategy::BestOf { choices: *choices },
            Choice::RoundRobin => Strategy::RoundRobin,
            Choice::Weighted(weights) if weights.is_empty() => Strategy::Weighted(vec![1; shards as usize]),
            Choice::Weighted(weights) => Strategy::Weighted(weights.clone()),
            Choice::Adaptive => Strategy::Adaptive,
            Choice::Strict => Strategy::BestOf { choices: usize::MAX },
            Choice::Mutex | Choice::Naive => return None,
        })
    }
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, parameters) = match text.split_once(':') {
            Some((name, rest)) => (name, rest.split(':').collect()),
            None => (text, Vec::new()),
        };
        let bad = || format!("expected {SYNTAX}");
        match (name, parameters.as_slice()) {
            ("sticky", []) => Ok(Choice::Sticky { choices: None, period: None }),
            ("sticky", [d]) => Ok(Choice::Sticky { choices: Some(number_or_all(d)?), period: None }),
            ("sticky", [d, s]) => {
                Ok(Choice::Sticky { choices: Some(number_or_all(d)?), period: Some(number(s)?) })
            }
            ("best-of", [d]) => Ok(Choice::BestOf { choices: number(d)? }),
            ("round-robin", []) => Ok(Choice::RoundRobin),
            ("weighted", weights) => {
                weights.iter().map(|w| number_from(0, w)).collect::<Result<_, _>>().map(Choice::Weighted)
            }
            ("adaptive", []) => Ok(Choice::Adaptive),
            ("strict", []) => Ok(Choice::Strict),
            ("mutex", []) => Ok(Choice::Mutex),
            ("naive", []) => Ok(Choice::Naive),
            _ => Err(bad()),
        }
    }
}

/// How many shards are compared, or `all` of them.
fn number_or_all(text: &str) -> Result<usize, String> {
    if text == "all" { Ok(usize::MAX) } else { number(text) }
}

fn number<T: FromStr + PartialOrd + From<u8>>(text: &str) -> Result<T, String> {
    number_from(1, text)
}

fn number_from<T: FromStr + PartialOrd + From<u8>>(least: u8, text: &str) -> Result<T, String> {
    let number: Option<T> = text.parse().ok();
    number
        .filter(|number| *number >= T::from(least))
        .ok_or_else(|| format!("expected a number from {least}, found {text:?}"))
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Choice::Sticky { choices: None, .. } => f.write_str("sticky"),
            Choice::Sticky { choices: Some(choices), period } => {
                f.write_str("sticky:")?;
                if *choices == usize::MAX {
                    f.write_str("all")?
                } else {
                    write!(f, "{choices}")?
                }
                period.map_or(Ok(()), |period| write!(f, ":{period}"))
            }
            Choice::BestOf { choices } => write!(f, "best-of:{choices}"),
            Choice::RoundRobin => f.write_str("round-robin"),
            Choice::Weighted(weights) => {
                f.write_str("weighted")?;
                weights.iter().try_for_each(|weight| write!(f, ":{weight}"))
            }
            Choice::Adaptive => f.write_str("adaptive"),
            Choice::Strict => f.write_str("strict"),
            Choice::Mutex => f.write_str("mutex"),
            Choice::Naive => f.write_str("naive"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes() {
        let texts = [
            "sticky",
            "sticky:2",
            "sticky:2:16",
            "sticky:all",
            "sticky:all:16",
            "best-of:3",
            "round-robin",
            "weighted",
            "weighted:3:1",
            "adaptive",
            "strict",
            "mutex",
            "naive",
        ];
        for text in texts {
            assert_eq!(text.parse::<Choice>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn names_strategies_of_the_library() {
        let strategy = |text: &str| text.parse::<Choice>().unwrap().strategy(3);
        assert!(matches!(strategy("sticky"), Some(Strategy::Sticky { choices: 2, .. })));
        assert!(matches!(strategy("sticky:5:7"), Some(Strategy::Sticky { choices: 5, period: 7 })));
        assert!(matches!(strategy("sticky:all"), Some(Strategy::Sticky { choices: usize::MAX, .. })));
        assert!(matches!(strategy("strict"), Some(Strategy::BestOf { choices: usize::MAX })));
        assert!(matches!(strategy("weighted"), Some(Strategy::Weighted(weights)) if weights == [1, 1, 1]));
        assert!(matches!(strategy("weighted:0:2"), Some(Strategy::Weighted(weights)) if weights == [0, 2]));
        assert!(strategy("mutex").is_none() && strategy("naive").is_none());
    }

    #[test]
    fn refuses_the_rest() {
        for text in [
            "",
            "fast",
            "sticky:",
            "sticky:0",
            "sticky:1:2:3",
            "best-of",
            "best-of:x",
            "strict:1",
            "weighted:-1",
        ] {
            assert!(text.parse::<Choice>().is_err(), "{text}");
        }
    }
}
