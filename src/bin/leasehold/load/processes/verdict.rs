//! No unit is lent by two at once: decided from what each process has noted, after the run.
//!
//! The rule is that of `examples/cluster_referee/truth.rs`: under a token that is not the greatest so far nothing begins, and nothing goes
//! on when a use under a greater one begins. Moments are of one clock, and each process takes them after it has the lease and before it
//! gives it back, so what overlaps here has overlapped; the rule is never too strict.

use super::{
    super::scenario::Scenario,
    crew,
    uses::{Span, by_unit},
};

#[derive(Debug, Default)]
pub struct Verdict {
    pub uses: u64,
    /// How often a unit was used by another process than before.
    pub handed_over: u64,
    /// Uses that had not ended.
    pub open: u64,
    pub violations: Vec<String>,
}

pub fn judge<'a>(scenario: &Scenario, spans: impl Iterator<Item = (usize, &'a Span)>) -> Verdict {
    let mut verdict = Verdict::default();
    let mut units: Vec<_> = by_unit(spans).into_iter().collect();
    units.sort_unstable_by_key(|(unit, _)| *unit);
    for (unit, mut spans) in units {
        spans.sort_by_key(|(process, span)| (span.token, *process));
        // The process whose uses have gone on for the longest so far, and the last one.
        let mut longest: Option<(usize, &Span)> = None;
        let mut before: Option<(usize, &Span)> = None;
        for (process, span) in spans {
            verdict.uses += span.uses;
            verdict.open += u64::from(span.open);
            let by = crew::name(process as u32);
            let of = || shown(scenario, unit);
            if let Some((other, last)) = before {
                if last.token == span.token {
                    let other = crew::name(other as u32);
                    verdict.violations.push(format!(
                        "{}: {other} and {by} both used it under token {}",
                        of(),
                        span.token
                    ));
                }
                verdict.handed_over += u64::from(other != process);
            }
            if let Some((other, last)) = longest
                && last.token != span.token
                && last.last > span.first
            {
                let other = crew::name(other as u32);
                verdict.violations.push(format!(
                    "{}: {by} used it under token {} from {} ns before the end of its last use by {other} under token {}",
                    of(),
                    span.token,
                    last.last - span.first,
                    last.token
                ));
            }
            before = Some((process, span));
            if longest.is_none_or(|(_, longest)| longest.last < span.last) {
                longest = before;
            }
        }
    }
    verdict
}

/// A unit as people see it: of which resource, and which of its units.
fn shown(scenario: &Scenario, unit: u32) -> String {
    let mut left = unit;
    for index in 0..scenario.resources {
        let units = scenario.limit_of(index).unwrap_or(1);
        if left < units {
            return format!("resource {index}, unit {left}");
        }
        left -= units;
    }
    format!("unit {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(unit: u32, token: u64, first: u64, last: u64) -> Span {
        Span { unit, token, first, last, uses: 2, open: 0 }
    }

    fn of(spans: &[(usize, Span)]) -> Verdict {
        let scenario = Scenario { resources: 3, capacity: vec![2], ..Scenario::default() };
        judge(&scenario, spans.iter().map(|(process, span)| (*process, span)))
    }

    #[test]
    fn one_after_the_other_is_fine() {
        let spans = [
            (0, span(3, 5, 10, 20)),
            (1, span(3, 9, 20, 30)),
            (0, span(3, 12, 31, 40)),
            (0, span(3, 13, 50, 60)),
            (1, span(4, 7, 15, 35)),
        ];
        let verdict = of(&spans);
        assert_eq!(verdict.violations, [""; 0]);
        assert_eq!((verdict.uses, verdict.handed_over, verdict.open), (10, 2, 0));
    }

    #[test]
    fn two_at_once_are_seen() {
        for (spans, part) in [
            // It goes on when the next one begins.
            (
                [(0, span(3, 5, 10, 21)), (1, span(3, 9, 20, 30))],
                "resource 1, unit 1: process-2 used it under token 9 from 1 ns",
            ),
            // It begins after a greater token was used.
            (
                [(0, span(3, 9, 10, 20)), (1, span(3, 5, 30, 40))],
                "process-1 used it under token 9 from 30 ns",
            ),
            // A token has one owner.
            (
                [(0, span(3, 5, 10, 20)), (1, span(3, 5, 30, 40))],
                "process-1 and process-2 both used it under token 5",
            ),
            // The process itself must not either.
            ([(0, span(3, 5, 10, 21)), (0, span(3, 9, 20, 30))], "process-1 used it under token 9"),
        ] {
            let violations = of(&spans).violations;
            assert!(violations.len() == 1 && violations[0].contains(part), "{violations:?}");
        }
    }

    #[test]
    fn the_longest_use_counts_not_the_last() {
        let spans = [(0, span(0, 1, 10, 90)), (1, span(0, 2, 90, 95)), (2, span(0, 3, 93, 99))];
        assert_eq!(of(&spans).violations.len(), 1);
        let spans = [(0, span(0, 1, 10, 90)), (1, span(0, 2, 20, 30)), (2, span(0, 3, 40, 50))];
        assert_eq!(of(&spans).violations.len(), 2, "the first goes on during both others");
    }
}
