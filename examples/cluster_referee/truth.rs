//! The truth: which unit is used by whom, under which token.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

/// How long after it goes on a process may still tell of what it decided before it was stopped.
const AFTERWARDS: Duration = Duration::from_secs(1);

/// A use that goes on.
struct Use {
    member: String,
    token: u64,
}

#[derive(Default)]
struct Unit {
    highest: u64,
    by: String,
    open: Option<Use>,
    last: Option<Instant>,
}

/// What the referee knows.
#[derive(Default)]
pub struct Truth {
    units: HashMap<String, Unit>,
    /// Who is stopped now, or until when he was.
    stopped: HashMap<String, Option<Instant>>,
    pub checked: u64,
    /// Uses under old tokens that were refused, of processes that had been stopped.
    pub fenced: u64,
    /// Uses that went on in a stopped process when the unit was used elsewhere, under a higher token.
    pub overtaken: u64,
    pub violations: Vec<String>,
}

impl Truth {
    /// A process is stopped, or goes on.
    pub fn stopped(&mut self, member: &str, now: Option<Instant>) {
        self.stopped.insert(member.to_owned(), now);
    }

    /// Whether what it says may be old.
    fn is_late(&self, member: &str, now: Instant) -> bool {
        match self.stopped.get(member) {
            None => false,
            Some(None) => true,
            Some(Some(since)) => now.duration_since(*since) < AFTERWARDS,
        }
    }

    /// A use is about to begin. Whether it may.
    pub fn begin(&mut self, member: &str, name: &str, token: u64, now: Instant) -> bool {
        self.checked += 1;
        let late = self.is_late(member, now);
        let mut violation = None;
        let (highest, by, open) = match self.units.get(name) {
            Some(unit) => (
                unit.highest,
                unit.by.clone(),
                unit.open.as_ref().map(|open| (open.member.clone(), open.token)),
            ),
            None => (0, String::new(), None),
        };
        if token < highest {
            if late {
                self.fenced += 1;
            } else {
                violation =
                    Some(format!("{member} uses {name} under token {token}, after {by} under {highest}"));
            }
        } else if token == highest && by != member {
            violation = Some(format!("{member} and {by} both use {name} under token {token}"));
        } else if let Some((other, theirs)) = open {
            if token == theirs {
                violation = Some(format!("{member} uses {name} twice at once under token {token}"));
            } else if self.is_late(&other, now) {
                self.overtaken += 1;
            } else {
                violation = Some(format!(
                    "{member} uses {name} under token {token} while {other} does under {theirs}"
                ));
            }
        }
        let allowed = token >= highest && violation.is_none();
        if allowed {
            let unit = self.units.entry(name.to_owned()).or_default();
            (unit.highest, unit.by) = (token, member.to_owned());
            unit.open = Some(Use { member: member.to_owned(), token });
            unit.last = Some(now);
        }
        self.violations.extend(violation);
        allowed
    }

    /// A use has ended.
    pub fn end(&mut self, member: &str, name: &str, token: u64) {
        if let Some(unit) = self.units.get_mut(name)
            && unit.open.as_ref().is_some_and(|open| open.member == member && open.token == token)
        {
            unit.open = None;
        }
    }

    /// Units that were not used since then.
    pub fn idle_since(&self, then: Instant) -> usize {
        self.units.values().filter(|unit| unit.last.is_none_or(|last| last < then)).count()
    }

    pub fn units(&self) -> usize {
        self.units.len()
    }
}
