//! Where units come from that somebody waits for.

use leasehold::{Ejection, Overdue, OwnedLease, Timer, Token};

use crate::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A lease comes back.
    Return,
    /// What rests after a return is warm again.
    Rest,
    Include,
    Insert,
    /// A lease is taken back by hand.
    Revoke,
    /// A lease is taken back, for it was held for too long.
    Overdue,
    Readmit,
    /// An ejection by the rules ends: one unit, on probation.
    Probe,
}

impl Source {
    /// Each of them, with either fairness, and where time has a part in it with a timer and without.
    pub fn each() -> impl Iterator<Item = (Source, Fairness, bool)> {
        use Source::*;
        let all = [Return, Rest, Include, Insert, Revoke, Overdue, Readmit, Probe];
        let fair = [Fairness::Strict, Fairness::Throughput];
        let each = all.into_iter().flat_map(move |source| fair.map(|fairness| (source, fairness)));
        each.flat_map(|(source, fairness)| {
            let timers = if matches!(source, Return | Rest | Overdue | Probe) { 2 } else { 1 };
            [false, true].into_iter().take(timers).map(move |has_timer| (source, fairness, has_timer))
        })
    }

    /// When the unit of `key` comes, if that is a matter of time: 0 before 1.
    fn due(self, key: u32) -> Option<Timestamp> {
        let after = match self {
            Source::Rest => SECOND,
            Source::Overdue => HOLD,
            Source::Probe => EJECTED,
            _ => return None,
        };
        Some(Timestamp::ZERO.saturating_add(after + key * SECOND))
    }
}

const HOLD: Duration = Duration::from_secs(10);
/// That is how long the rules do without it at first.
const EJECTED: Duration = Duration::from_secs(30);

/// A timer whose calls are made when the clock has been moved.
struct Calls {
    clock: Arc<ManualClock>,
    to_come: Mutex<Vec<(Timestamp, Call)>>,
}

type Call = Box<dyn FnOnce() + Send>;

type Owned = OwnedLease<Entry<u32, u32, u32>>;

impl Timer for Calls {
    fn call_after(&self, after: Duration, call: Call) {
        self.to_come.lock().unwrap().push((self.clock.now().saturating_add(after), call));
    }
}

impl Calls {
    fn make(&self) {
        loop {
            let now = self.clock.now();
            let due: Vec<_> = self.to_come.lock().unwrap().extract_if(.., |(at, _)| *at <= now).collect();
            if due.is_empty() {
                return;
            }
            due.into_iter().for_each(|(_, call)| call());
        }
    }
}

/// A fleet of two whose units are to come.
pub struct Scene {
    pub fleet: Fleet,
    source: Source,
    clock: Arc<ManualClock>,
    calls: Option<Arc<Calls>>,
    leases: Mutex<Vec<Option<Owned>>>,
    tokens: Vec<Token>,
}

impl Scene {
    pub fn new(source: Source, fairness: Fairness, has_timer: bool) -> Self {
        let clock = Arc::new(ManualClock::new());
        let calls =
            has_timer.then(|| Arc::new(Calls { clock: Arc::clone(&clock), to_come: Mutex::default() }));
        let mut builder = Fleet::builder().shards(2).clock(Arc::clone(&clock)).fairness(fairness);
        if let Some(calls) = &calls {
            builder = builder.timer(Arc::clone(calls));
        }
        builder = match source {
            Source::Overdue => builder.max_hold(HOLD).overdue(Overdue::Revoke),
            Source::Probe => {
                builder.ejection(Ejection::default().consecutive_failures(1).max_share(100).jitter(0))
            }
            _ => builder,
        };
        let fleet = builder.build().unwrap();
        let (mut leases, mut tokens) = (Vec::new(), Vec::new());
        for key in 0..2 {
            // What begins now ends at the moment that is due.
            clock.advance_to(Timestamp::ZERO.saturating_add(match source {
                Source::Overdue | Source::Probe => key * SECOND,
                _ => Duration::ZERO,
            }));
            if source == Source::Insert {
                continue;
            }
            fleet.insert(Entry::new(key, key, 0)).unwrap();
            match source {
                Source::Return => leases.push(Some(fleet.acquire_key_owned(&key).unwrap())),
                Source::Rest => fleet.acquire_key(&key).unwrap().release_after((key + 1) * SECOND),
                Source::Include => assert!(fleet.exclude(&key).unwrap()),
                Source::Insert => unreachable!("not yet"),
                Source::Revoke | Source::Overdue => {
                    tokens.push(fleet.acquire_key(&key).unwrap().into_token());
                }
                Source::Readmit => assert!(fleet.eject(&key).unwrap()),
                Source::Probe => fleet.acquire_key(&key).unwrap().finish(Outcome::Failed),
            }
        }
        Scene { fleet, source, clock, calls, leases: Mutex::new(leases), tokens }
    }

    /// The unit of `key` comes: 0 before 1.
    pub fn comes(&self, key: u32) {
        let fleet = &self.fleet;
        match self.source {
            Source::Return => drop(self.leases.lock().unwrap()[key as usize].take()),
            Source::Include => assert!(fleet.include(&key).unwrap()),
            Source::Insert => fleet.insert(Entry::new(key, key, 0)).unwrap(),
            Source::Revoke => fleet.revoke(self.tokens[key as usize]).unwrap(),
            Source::Readmit => assert!(fleet.readmit(&key).unwrap()),
            Source::Rest | Source::Overdue | Source::Probe => {}
        }
        if let Some(due) = self.source.due(key) {
            self.clock.advance_to(due);
            match &self.calls {
                Some(calls) => calls.make(),
                None => drop(fleet.tick()),
            }
        }
    }
}
