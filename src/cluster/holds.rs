//! What a member knows of the fleet's holds, and what follows from what it sees and hears.
//!
//! A hold is known under (resource, kind). What the scheduler shows and the table does not have was set here: it is told. What the table has
//! and the scheduler does not show was cleared here. What is heard goes into the table *and* into the scheduler, so that the next look finds
//! no difference. Versions, given by the engine, decide which of two messages is the later one.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    time::Duration,
};

use super::engine::{Change, HoldKind, HoldNote};
use crate::sync::{Arc, Timestamp};

/// Two ends of one hold that are less than this apart are the same: they went through two clocks.
const SLACK: Duration = Duration::from_millis(100);

/// The holds of one resource that is in the scheduler: for each kind whether it is set, and until when.
pub type Seen = [Option<Option<Timestamp>>; 3];

/// What is to be done to the scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Apply {
    pub place: usize,
    pub kind: HoldKind,
    pub change: Change,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    set: bool,
    until: Option<Timestamp>,
    /// 0 until the engine has told it.
    version: u64,
    mine: bool,
}

impl Entry {
    fn lives(&self, now: Timestamp) -> bool {
        self.set && self.until.is_none_or(|until| until > now)
    }

    fn change(&self, now: Timestamp) -> Change {
        Change::Set(self.until.map(|until| until.saturating_since(now)))
    }
}

/// The holds that are known.
#[derive(Clone, Debug, Default)]
pub struct HoldTable {
    entries: BTreeMap<(usize, HoldKind), Entry>,
}

impl HoldTable {
    /// Compares with what the scheduler shows; answers what is to be told.
    pub fn compare(&mut self, now: Timestamp, seen: &HashMap<usize, Seen>) -> Vec<Apply> {
        let mut news = Vec::new();
        for (&place, holds) in seen {
            for (kind, &shown) in HoldKind::ALL.into_iter().zip(holds) {
                let known = self.entries.get(&(place, kind)).copied().filter(|entry| entry.lives(now));
                match (shown, known) {
                    (Some(until), None) if until.is_none_or(|until| until > now) => {
                        news.push(self.set_here(now, place, kind, until));
                    }
                    (Some(Some(until)), Some(Entry { until: Some(known), .. }))
                        if until > known.saturating_add(SLACK) =>
                    {
                        news.push(self.set_here(now, place, kind, Some(until)));
                    }
                    (None, Some(entry))
                        if entry.until.is_none_or(|until| until > now.saturating_add(SLACK)) =>
                    {
                        let entry = Entry { set: false, version: 0, mine: true, ..entry };
                        self.entries.insert((place, kind), entry);
                        news.push(Apply { place, kind, change: Change::Cleared });
                    }
                    _ => {}
                }
            }
        }
        news
    }

    fn set_here(&mut self, now: Timestamp, place: usize, kind: HoldKind, until: Option<Timestamp>) -> Apply {
        let entry = Entry { set: true, until, version: 0, mine: true };
        self.entries.insert((place, kind), entry);
        Apply { place, kind, change: entry.change(now) }
    }

    /// Something was heard of a resource; answers what is to be done, if it is news.
    pub fn hear(&mut self, now: Timestamp, place: usize, note: &HoldNote, me: &str) -> Option<Apply> {
        let known = self.entries.get(&(place, note.kind));
        if known.is_some_and(|entry| note.version <= entry.version) {
            return None;
        }
        let (set, until) = match note.change {
            Change::Cleared => (false, None),
            Change::Set(duration) => (true, duration.map(|duration| now.saturating_add(duration))),
        };
        let mine = &*note.origin == me;
        let same = known.is_some_and(|entry| entry.mine && mine);
        self.entries.insert((place, note.kind), Entry { set, until, version: note.version, mine });
        (!same).then_some(Apply { place, kind: note.kind, change: note.change })
    }

    /// All that are set were fetched, as of `version`; answers what is to be done.
    pub fn reconcile(
        &mut self,
        now: Timestamp,
        notes: &[(usize, HoldNote)],
        version: u64,
        me: &str,
    ) -> Vec<Apply> {
        let listed: HashSet<(usize, HoldKind)> =
            notes.iter().map(|(place, note)| (*place, note.kind)).collect();
        let mut todo: Vec<_> =
            notes.iter().filter_map(|(place, note)| self.hear(now, *place, note, me)).collect();
        for (&(place, kind), entry) in &mut self.entries {
            // One that the engine has not numbered yet is on its way there.
            let gone = entry.lives(now) && entry.version != 0 && entry.version <= version;
            if gone && !listed.contains(&(place, kind)) {
                entry.set = false;
                todo.push(Apply { place, kind, change: Change::Cleared });
            }
        }
        todo
    }

    /// The engine may have forgotten: what was set here is to be told anew.
    pub fn new_epoch(&mut self, now: Timestamp) -> Vec<Apply> {
        for entry in self.entries.values_mut() {
            entry.version = 0;
        }
        let mine = self.entries.iter().filter(|(_, entry)| entry.mine && entry.lives(now));
        mine.map(|(&(place, kind), entry)| Apply { place, kind, change: entry.change(now) }).collect()
    }

    /// Ejections from elsewhere that are over. (Cooling ends by itself, and one's own ejections by the rules that made them.)
    pub fn ended(&mut self, now: Timestamp) -> Vec<Apply> {
        let mut todo = Vec::new();
        self.entries.retain(|&(place, kind), entry| {
            let over = entry.set && !entry.lives(now);
            if over && kind == HoldKind::Ejected && !entry.mine {
                todo.push(Apply { place, kind, change: Change::Cleared });
            }
            // A version is kept as long as the engine may still tell of an older one.
            !over || entry.version != 0
        });
        for entry in self.entries.values_mut() {
            entry.set &= entry.lives(now);
        }
        todo
    }

    /// What a resource that joins the scheduler must have.
    pub fn of(&self, now: Timestamp, place: usize) -> Vec<Apply> {
        let all = self.entries.range((place, HoldKind::Cooling)..=(place, HoldKind::Ejected));
        let living = all.filter(|(_, entry)| entry.lives(now));
        living.map(|(&(place, kind), entry)| Apply { place, kind, change: entry.change(now) }).collect()
    }

    /// Resources that some hold keeps from being lent.
    pub fn blocked(&self, now: Timestamp) -> impl Iterator<Item = usize> + '_ {
        let mut last = None;
        let living = self.entries.iter().filter(move |(_, entry)| entry.lives(now));
        living.map(|((place, _), _)| *place).filter(move |place| last.replace(*place) != Some(*place))
    }
}

/// The message for a change.
pub fn note(apply: &Apply, name: &Arc<str>, me: &Arc<str>) -> HoldNote {
    HoldNote {
        name: Arc::clone(name),
        kind: apply.kind,
        change: apply.change,
        origin: Arc::clone(me),
        version: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_nanos(seconds * 1_000_000_000)
    }

    fn seen(holds: Seen) -> HashMap<usize, Seen> {
        HashMap::from([(3, holds)])
    }

    fn heard(kind: HoldKind, change: Change, origin: &str, version: u64) -> HoldNote {
        HoldNote { name: "x".into(), kind, change, origin: origin.into(), version }
    }

    #[test]
    fn what_is_set_here_is_told_once() {
        let mut table = HoldTable::default();
        let cooling = seen([Some(Some(at(9))), None, None]);
        let told = table.compare(at(1), &cooling);
        assert_eq!(
            told,
            [Apply { place: 3, kind: HoldKind::Cooling, change: Change::Set(Some(SECOND * 8)) }]
        );
        assert!(table.compare(at(2), &cooling).is_empty());
        let later = seen([Some(Some(at(20))), None, None]);
        assert_eq!(table.compare(at(2), &later).len(), 1, "a later end is news");
        assert!(table.compare(at(21), &seen([None, None, None])).is_empty(), "it ended by itself");
    }

    #[test]
    fn what_is_cleared_here_is_told() {
        let mut table = HoldTable::default();
        let note = heard(HoldKind::Excluded, Change::Set(None), "other", 4);
        assert!(table.hear(at(1), 3, &note, "me").is_some());
        assert!(table.compare(at(1), &seen([None, Some(None), None])).is_empty(), "that is the one heard of");
        let told = table.compare(at(2), &seen([None, None, None]));
        assert_eq!(told, [Apply { place: 3, kind: HoldKind::Excluded, change: Change::Cleared }]);
    }

    #[test]
    fn older_news_is_ignored() {
        let mut table = HoldTable::default();
        let set = heard(HoldKind::Excluded, Change::Set(None), "other", 4);
        let cleared = heard(HoldKind::Excluded, Change::Cleared, "other", 5);
        assert!(table.hear(at(1), 3, &cleared, "me").is_some());
        assert!(table.hear(at(1), 3, &set, "me").is_none());
        assert_eq!(table.blocked(at(1)).count(), 0);
    }

    #[test]
    fn reconciling_clears_what_is_not_listed() {
        let mut table = HoldTable::default();
        let set = heard(HoldKind::Excluded, Change::Set(None), "other", 4);
        table.hear(at(1), 3, &set, "me");
        // Set here, and not told yet: it stays.
        table.compare(at(1), &seen([Some(Some(at(9))), Some(None), None]));
        let todo = table.reconcile(at(2), &[], 6, "me");
        assert_eq!(todo, [Apply { place: 3, kind: HoldKind::Excluded, change: Change::Cleared }]);
        assert_eq!(table.blocked(at(2)).collect::<Vec<_>>(), [3]);
    }

    #[test]
    fn ejections_from_elsewhere_end() {
        let mut table = HoldTable::default();
        table.hear(at(1), 3, &heard(HoldKind::Ejected, Change::Set(Some(SECOND)), "other", 1), "me");
        assert!(table.ended(at(1)).is_empty());
        assert_eq!(table.ended(at(2)).len(), 1);
        assert!(table.ended(at(3)).is_empty(), "once");
    }

    #[test]
    fn a_new_epoch_is_told_what_was_set_here() {
        let mut table = HoldTable::default();
        table.hear(at(1), 3, &heard(HoldKind::Excluded, Change::Set(None), "me", 7), "me");
        table.hear(at(1), 4, &heard(HoldKind::Excluded, Change::Set(None), "other", 8), "me");
        let told: Vec<_> = table.new_epoch(at(2)).into_iter().map(|apply| apply.place).collect();
        assert_eq!(told, [3]);
        let low = heard(HoldKind::Excluded, Change::Cleared, "other", 1);
        assert!(table.hear(at(2), 4, &low, "me").is_some(), "versions begin anew");
    }
}
