//! What cannot be played by many processes, told in one line.

use std::time::Duration;

use super::super::scenario::Scenario;
use crate::{
    choice::Choice,
    error::{Error, Result},
};

/// Claims are made in batches of 256 units, each of which takes the server some milliseconds: more units would only be waited for.
const MOST_UNITS: u64 = 100_000;

/// The units of the fleet, if the scenario is for so many processes.
pub fn check(scenario: &Scenario, count: u32) -> Result<u64> {
    for (asked, what, why) in [
        // First: who plays it has asked for most of the others with it.
        (scenario.soak, "soak", "it watches the memory of one process"),
        (
            scenario.churn > 0.0,
            "churn",
            "the list of resources is the same in every process, from beginning to end",
        ),
        (scenario.updates > 0.0, "updates", "a resource has the same priority in every process"),
        (scenario.exclusions > 0.0, "exclusions", "the resource that is drawn may be in another process"),
        (scenario.drains > 0.0, "drains", "the resource that is drawn may be in another process"),
        (scenario.close_at.0 > Duration::ZERO, "close-at", "each process has a scheduler of its own"),
        (scenario.several > 0.0, "several", "only what one process has just now can be had at once"),
    ] {
        if asked {
            return refuse(&format!(
                "the scenario asks for {what}, but {why}: change it with --set {what}={}",
                if what == "soak" { "false" } else { "0" }
            ));
        }
    }
    let Some(units) = scenario.units() else {
        return refuse(
            "the scenario has capacity 0, which is unlimited, and what has no units cannot be divided: change it with --set capacity=[N]",
        );
    };
    let least = u64::from(count);
    for (what, there) in [("workers", u64::from(scenario.workers)), ("units of capacity", units)] {
        if there < least {
            return refuse(&format!(
                "expected at least one of the {what} for each of {count} processes, found {there}"
            ));
        }
    }
    if units > MOST_UNITS {
        return refuse(&format!(
            "expected at most {MOST_UNITS} units of capacity in the fleet, found {units}"
        ));
    }
    Ok(units)
}

/// The scheduler that all processes have: the one that was asked for, or the scenario's first.
pub fn subject(asked: &[String], scenario: &Scenario) -> Result<String> {
    if let [_, _, ..] = asked {
        return refuse(&format!("expected one --subject, found {}", asked.len()));
    }
    let name = match asked.first() {
        Some(name) if is_scheduler(name) => Some(name),
        Some(name) => {
            return refuse(&format!(
                "--subject {name}: expected a strategy of the scheduler, as only it can share a fleet"
            ));
        }
        None => scenario.subjects.iter().find(|name| is_scheduler(name)),
    };
    match name {
        Some(name) => Ok(name.clone()),
        None => refuse(
            "the scenario's subjects are no strategies of the scheduler, which alone can share a fleet: choose one with --subject",
        ),
    }
}

/// Whether it is the scheduler. A name that is nothing at all is told where it is used.
fn is_scheduler(name: &str) -> bool {
    let strategy = name.split('@').next().unwrap_or(name);
    !["deadpool", "bb8"].contains(&strategy)
        && !matches!(strategy.parse::<Choice>(), Ok(Choice::Mutex | Choice::Naive))
}

fn refuse<T>(why: &str) -> Result<T> {
    Err(Error::Options(format!("--processes: {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal<T: std::fmt::Debug>(result: Result<T>) -> String {
        let text = result.unwrap_err().to_string();
        assert!(text.starts_with("--processes: ") && !text.contains('\n'), "{text}");
        text
    }

    #[test]
    fn says_what_does_not_fit() {
        let fits = Scenario { capacity: vec![2], ..Scenario::default() };
        assert_eq!(check(&fits, 4).unwrap(), 128);
        for (scenario, part) in [
            (Scenario { churn: 1.0, ..fits.clone() }, "asks for churn"),
            (Scenario { updates: 1.0, ..fits.clone() }, "--set updates=0"),
            (Scenario { exclusions: 1.0, ..fits.clone() }, "may be in another process"),
            (Scenario { drains: 1.0, ..fits.clone() }, "--set drains=0"),
            (Scenario { several: 1.0, ..fits.clone() }, "asks for several"),
            (Scenario { close_at: "1s".parse().unwrap(), ..fits.clone() }, "--set close-at=0"),
            (Scenario { soak: true, ..fits.clone() }, "--set soak=false"),
            (Scenario { capacity: vec![0], ..fits.clone() }, "unlimited"),
            (Scenario { workers: 3, ..fits.clone() }, "workers for each of 4 processes, found 3"),
            (Scenario { resources: 1, ..fits.clone() }, "units of capacity for each of 4 processes, found 2"),
            (Scenario { resources: 1_000_000, ..fits.clone() }, "at most 100000 units"),
        ] {
            let text = refusal(check(&scenario, 4));
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn only_the_scheduler_shares_a_fleet() {
        let scenario =
            Scenario { subjects: ["mutex", "strict@4"].map(str::to_owned).into(), ..Scenario::default() };
        assert_eq!(subject(&[], &scenario).unwrap(), "strict@4");
        assert_eq!(subject(&["best-of:2".into()], &scenario).unwrap(), "best-of:2");
        for name in ["mutex", "naive", "deadpool", "bb8"] {
            assert!(refusal(subject(&[name.into()], &scenario)).contains("expected a strategy"));
        }
        assert!(
            refusal(subject(&["strict".into(), "sticky".into()], &scenario))
                .contains("expected one --subject")
        );
        let none = Scenario { subjects: vec!["mutex".into()], ..Scenario::default() };
        assert!(refusal(subject(&[], &none)).contains("choose one"));
    }
}
