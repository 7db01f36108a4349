//! The truth: which unit is used by whom, under which token, and how often budgets were used.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    time::{Duration, Instant},
};

use crate::{MARGIN, PERIOD, TTL, USES, control::Control};

/// So long a process that is stopped has its claims for certain: it has renewed them a fifth of the time to live before, or a little more.
const SURELY: Duration = Duration::from_millis(TTL.as_millis() as u64 * 6 / 10);

/// How long after it goes on a process may still tell of what it decided before it was stopped, and how soon its uses must end that others have
/// overtaken: as long as it takes to run each of its threads once, on a machine that is busy with other things. One of the threads of each process
/// ends no use by itself, so what nobody ends is seen however long that is.
pub const PROMPT: Duration = Duration::from_secs(3);

/// A thread that was kept waiting for so long may have told of its use's end after the margin.
const NEARLY_MARGIN: Duration = Duration::from_millis(MARGIN.as_millis() as u64 / 2);

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

/// Resources that units are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Keys,
    Budgets,
}

impl Kind {
    /// Units are named `INDEX#RESOURCE`.
    pub fn of(unit: &str) -> Kind {
        let resource = unit.split_once('#').map_or(unit, |(_, resource)| resource);
        if resource.starts_with("budget") { Kind::Budgets } else { Kind::Keys }
    }
}

/// What the referee knows.
#[derive(Default)]
pub struct Truth {
    units: HashMap<String, Unit>,
    /// Of each budget: its uses in the last period.
    budgets: HashMap<String, VecDeque<Instant>>,
    /// Who was killed: what is still read of his was said before.
    dead: HashSet<String>,
    /// Since when who is stopped, and until when he was.
    stopped: HashMap<String, (Instant, Option<Instant>)>,
    /// Whose units others must take over: that he uses them does not count.
    apart: Option<String>,
    /// How late threads run here.
    control: Control,
    /// Uses that were overtaken and have not ended.
    to_end: HashSet<(String, String, u64)>,
    /// When each has used something last.
    lately: HashMap<String, Instant>,
    pub checked: u64,
    /// Of these, uses of budgets.
    pub spent: u64,
    /// Uses under old tokens that were refused, of processes that had been stopped.
    pub fenced: u64,
    /// Uses that went on in a stopped process when the unit was used elsewhere, under a higher token.
    pub overtaken: u64,
    /// Of these, those that have ended in time when the process went on, and how long the slowest of them took.
    pub ended: u64,
    pub slowest_end: Duration,
    /// Uses that had begun when the one before had not been said to have ended, or had not been said to begin when the next one had begun, on a
    /// machine that had kept threads waiting.
    pub excused: u64,
    pub violations: Vec<String>,
}

impl Truth {
    pub fn new(control: Control) -> Self {
        Truth { control, ..Truth::default() }
    }

    /// A process is stopped.
    pub fn stopped(&mut self, member: &str, now: Instant) {
        self.stopped.insert(member.to_owned(), (now, None));
        self.apart(Some(member));
    }

    /// It goes on.
    pub fn goes_on(&mut self, member: &str, now: Instant) {
        if let Some((_, until)) = self.stopped.get_mut(member) {
            *until = Some(now);
        }
        self.apart(None);
    }

    /// The units of this one must be used by others, whatever he does; or of nobody.
    pub fn apart(&mut self, member: Option<&str>) {
        self.apart = member.map(str::to_owned);
    }

    /// A process was killed.
    pub fn killed(&mut self, member: &str) {
        self.dead.insert(member.to_owned());
        self.to_end.retain(|(whose, ..)| whose != member);
    }

    /// Whether what it says may be old.
    fn is_late(&self, member: &str, now: Instant) -> bool {
        match self.stopped.get(member) {
            None => false,
            Some((_, None)) => true,
            Some((_, Some(until))) => now.saturating_duration_since(*until) < PROMPT,
        }
    }

    /// Whether its claims may have ended while it is, or was, stopped: then others have its units.
    fn may_be_over(&self, member: &str, now: Instant) -> bool {
        let since = self.stopped.get(member).map(|(since, _)| now.duration_since(*since));
        self.is_late(member, now) && since.is_some_and(|stopped| stopped >= SURELY)
    }

    /// Whether the machine may have kept back who would have said that a use has ended, or that one begins.
    fn may_be_unsaid(&self, now: Instant) -> bool {
        !self.control.was_punctual(now.checked_sub(TTL).unwrap_or(now), NEARLY_MARGIN)
    }

    /// Whether a use under this token is one of an owner, but for others that go on.
    fn owns(&mut self, member: &str, name: &str, token: u64, now: Instant) -> bool {
        let late = self.is_late(member, now);
        let Some(Unit { highest, by, .. }) = self.units.get(name) else { return true };
        if token < *highest {
            if late {
                self.fenced += 1;
            } else if self.may_be_unsaid(now) {
                self.excused += 1;
            } else {
                let text = format!("{member} uses {name} under token {token}, after {by} under {highest}");
                self.violations.push(text);
            }
            return false;
        }
        if token == *highest && by != member {
            self.violations.push(format!("{member} and {by} both use {name} under token {token}"));
            return false;
        }
        true
    }

    fn note(&mut self, member: &str, name: &str, token: u64, now: Instant) -> &mut Unit {
        self.lately.insert(member.to_owned(), now);
        let counts = self.apart.as_deref() != Some(member);
        let unit = self.units.entry(name.to_owned()).or_default();
        (unit.highest, unit.by) = (token, member.to_owned());
        if counts {
            unit.last = Some(now);
        }
        unit
    }

    /// A use is about to begin. Whether it may.
    pub fn begin(&mut self, member: &str, name: &str, token: u64, now: Instant) -> bool {
        if self.dead.contains(member) {
            return false;
        }
        self.checked += 1;
        if !self.owns(member, name, token, now) {
            return false;
        }
        let open = self.units.get(name).and_then(|unit| unit.open.as_ref());
        if let Some((other, theirs)) = open.map(|open| (open.member.clone(), open.token)) {
            if token == theirs {
                self.violations.push(format!("{member} uses {name} twice at once under token {token}"));
                return false;
            }
            if self.may_be_over(&other, now) {
                self.overtaken += 1;
                self.to_end.insert((other, name.to_owned(), theirs));
            } else if self.may_be_unsaid(now) {
                self.excused += 1;
            } else {
                self.violations.push(format!(
                    "{member} uses {name} under token {token} while {other} does under {theirs}"
                ));
                return false;
            }
        }
        self.note(member, name, token, now).open = Some(Use { member: member.to_owned(), token });
        true
    }

    /// A use has ended.
    pub fn end(&mut self, member: &str, name: &str, token: u64, now: Instant) {
        if self.to_end.remove(&(member.to_owned(), name.to_owned(), token)) {
            // It goes on already if nobody has said so yet: of what it has said before it was stopped nothing is read after others took over.
            let until = self.stopped.get(member).and_then(|(_, until)| *until);
            let took = until.map_or(Duration::ZERO, |until| now.saturating_duration_since(until));
            if took <= PROMPT {
                self.ended += 1;
                self.slowest_end = self.slowest_end.max(took);
            } else {
                let text =
                    format!("{member} goes on, and ends its use of {name} under {token} {took:?} later");
                self.violations.push(text);
            }
        }
        if let Some(unit) = self.units.get_mut(name)
            && unit.open.as_ref().is_some_and(|open| open.member == member && open.token == token)
        {
            unit.open = None;
        }
    }

    /// A use of a budget. Whether it may be.
    pub fn spend(&mut self, member: &str, name: &str, token: u64, now: Instant) -> bool {
        if self.dead.contains(member) {
            return false;
        }
        self.checked += 1;
        if !self.owns(member, name, token, now) {
            return false;
        }
        self.spent += 1;
        let resource = name.split_once('#').map_or(name, |(_, resource)| resource);
        let uses = self.budgets.entry(resource.to_owned()).or_default();
        while uses.front().is_some_and(|first| now.duration_since(*first) >= PERIOD) {
            uses.pop_front();
        }
        uses.push_back(now);
        let count = uses.len();
        self.note(member, name, token, now);
        if count > USES {
            let text = format!("{member} uses {resource}: {count} uses in {PERIOD:?}, of {USES}");
            self.violations.push(text);
        }
        count <= USES
    }

    /// Uses of this process that others have overtaken, and that go on.
    pub fn overtaken_of(&self, member: &str) -> usize {
        self.to_end.iter().filter(|(whose, ..)| whose == member).count()
    }

    /// Units that nobody uses, and nobody has used since then; but for those who are apart.
    pub fn idle_since(&self, kind: Kind, then: Instant) -> usize {
        let counts = |used: &Use| {
            !self.dead.contains(&used.member) && self.apart.as_deref() != Some(used.member.as_str())
        };
        let idle =
            |unit: &Unit| unit.last.is_none_or(|last| last < then) && !unit.open.as_ref().is_some_and(counts);
        self.units.iter().filter(|(name, unit)| Kind::of(name) == kind && idle(unit)).count()
    }

    /// Whether this process has used something since then.
    pub fn works_since(&self, member: &str, then: Instant) -> bool {
        self.lately.get(member).is_some_and(|last| *last >= then)
    }

    /// Units of this kind that were ever used.
    pub fn units(&self, kind: Kind) -> usize {
        self.units.keys().filter(|name| Kind::of(name) == kind).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_process_has_said_is_no_use_elsewhere() {
        let (mut truth, now) = (Truth::default(), Instant::now());
        assert!(truth.begin("a", "unit", 1, now));
        let killed = now + Duration::from_millis(1);
        truth.killed("a");
        assert!(!truth.begin("a", "unit", 1, killed + Duration::from_millis(1)), "it was read late");
        assert_eq!(truth.idle_since(Kind::Keys, killed), 1);
        truth.end("a", "unit", 1, killed);
        assert!(truth.begin("b", "unit", 2, killed + Duration::from_millis(2)));
        assert_eq!(truth.idle_since(Kind::Keys, killed), 0);
        assert!(truth.violations.is_empty());
    }

    #[test]
    fn two_at_once_and_old_tokens_are_violations() {
        let (mut truth, now) = (Truth::default(), Instant::now());
        assert!(truth.begin("a", "unit", 1, now));
        assert!(!truth.begin("b", "unit", 2, now), "at once");
        truth.end("a", "unit", 1, now);
        assert!(truth.begin("b", "unit", 3, now));
        truth.end("b", "unit", 3, now);
        assert!(!truth.begin("a", "unit", 1, now), "an old token");
        assert_eq!(truth.violations.len(), 2);
    }

    #[test]
    fn what_the_machine_has_kept_back_is_no_violation() {
        let (control, now) = (Control::default(), Instant::now());
        let mut truth = Truth::new(control.clone());
        control.note(now, now + MARGIN);
        assert!(truth.begin("a", "unit", 1, now));
        assert!(truth.begin("b", "unit", 2, now + TTL));
        assert!(!truth.begin("a", "unit", 1, now + TTL), "it is late, and refused");
        assert_eq!((truth.excused, truth.overtaken, truth.violations.len()), (2, 0, 0));
        assert!(!truth.begin("c", "unit", 3, now + TTL * 2), "that was long ago");
        assert!(!truth.begin("a", "unit", 1, now + TTL * 2));
        assert_eq!((truth.excused, truth.overtaken, truth.violations.len()), (2, 0, 2));
    }

    #[test]
    fn who_was_stopped_is_overtaken_and_fenced_and_ends_in_time() {
        let (mut truth, now) = (Truth::default(), Instant::now());
        let goes_on = now + TTL;
        assert!(truth.begin("a", "unit", 1, now));
        assert!(truth.begin("a", "other", 1, now));
        truth.stopped("a", now);
        assert!(truth.begin("b", "unit", 2, goes_on), "it is stopped");
        assert!(truth.begin("b", "other", 3, goes_on), "it is stopped");
        truth.goes_on("a", goes_on);
        assert!(!truth.begin("a", "unit", 1, goes_on));
        assert_eq!((truth.overtaken, truth.fenced, truth.overtaken_of("a")), (2, 1, 2));
        truth.end("a", "unit", 1, goes_on + PROMPT / 2);
        assert_eq!((truth.ended, truth.overtaken_of("a"), truth.violations.len()), (1, 1, 0));
        truth.end("a", "other", 1, goes_on + PROMPT * 2);
        assert_eq!((truth.ended, truth.overtaken_of("a"), truth.violations.len()), (1, 0, 1), "too late");
        assert!(!truth.begin("a", "unit", 1, goes_on + PROMPT));
        assert_eq!(truth.violations.len(), 2, "and an old token");
    }

    #[test]
    fn who_takes_over_from_a_stopped_process_too_early_is_seen() {
        let (mut truth, now) = (Truth::default(), Instant::now());
        assert!(truth.begin("a", "unit", 1, now));
        truth.stopped("a", now);
        assert!(!truth.begin("b", "unit", 2, now + TTL / 2), "its claims are good");
        assert_eq!((truth.overtaken, truth.violations.len()), (0, 1));
    }

    #[test]
    fn what_goes_on_is_in_use_but_not_by_somebody_who_is_apart() {
        let (mut truth, now) = (Truth::default(), Instant::now());
        assert!(truth.begin("a", "unit", 1, now));
        let then = now + TTL;
        assert_eq!(truth.idle_since(Kind::Keys, then), 0, "it goes on");
        truth.apart(Some("a"));
        assert_eq!(truth.idle_since(Kind::Keys, then), 1, "others must have it");
        truth.end("a", "unit", 1, then);
        assert!(truth.begin("a", "unit", 1, then));
        truth.end("a", "unit", 1, then);
        assert_eq!(truth.idle_since(Kind::Keys, then), 1, "again by the same one");
        assert!(truth.works_since("a", then));
        truth.apart(None);
        assert!(truth.begin("b", "unit", 2, then));
        assert_eq!((truth.idle_since(Kind::Keys, then), truth.violations.len()), (0, 0));
    }

    #[test]
    fn a_use_too_many_in_a_period_is_seen() {
        let (mut truth, now) = (Truth::default(), Instant::now());
        let moment = |number: u32| now + Duration::from_millis(1) * number;
        for number in 0..USES as u32 {
            assert!(truth.spend("a", "0#budget-0", 1, moment(number)));
        }
        assert!(!truth.spend("b", "1#budget-0", 2, moment(0) + PERIOD - Duration::from_millis(1)));
        assert!(truth.spend("b", "1#budget-1", 3, moment(9)), "another budget");
        let mut truth = Truth { budgets: HashMap::new(), violations: Vec::new(), ..truth };
        for number in 0..USES as u32 {
            assert!(truth.spend("a", "0#budget-0", 1, moment(number)));
        }
        assert!(truth.spend("b", "1#budget-0", 2, moment(0) + PERIOD), "the first is over");
        assert!(truth.violations.is_empty());
        assert_eq!(truth.units(Kind::Budgets), 3);
    }
}
