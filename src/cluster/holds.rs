//! What a member knows of the fleet's holds, and what follows from what it sees and hears.
//!
//! A hold is known under (resource, kind). What the scheduler shows and the table does not have was set here: it is told. What the table has
//! and the scheduler does not show was cleared here. What is heard goes into the table *and* into the scheduler, so that the next look finds
//! no difference. Versions, given by the engine, decide which of two messages of an epoch is the later one.
//!
//! * **A word of one's own that is not told yet** (in the outbox, or in the letter at work) counts until the engine has answered: what is heard
//!   meanwhile was said before it, or is fetched after the next renewal. The outbox has no durations: a letter says what the table knows when it
//!   is sent, and nothing of what is over.
//! * **Ends.** Cooling ends by itself in every scheduler. An ejection that came from elsewhere has no end in this scheduler, where it counts as
//!   made by hand: its end is the table's (`by_hand`), whoever has set it, and the desk is told.
//! * **What was only heard is never told**, or it would overrule what is said meanwhile. So the table knows each end as the scheduler has it: an
//!   end that comes a little earlier than the one that cools here already moves neither.
//! * **A note of one's own that nobody here has sent** since comes from a request that arrived late: if it contradicts, what the table knows is
//!   said again. What is said again gives way to a word of somebody else, even on its way.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    time::Duration,
};

use super::{
    engine::{Change, HoldKind, HoldNote},
    planted::{Planted, is_planted},
    unit::Roll,
};
use crate::sync::{Arc, Timestamp};

/// Two ends of one hold that are less than this apart are the same: they went through two clocks.
const SLACK: Duration = Duration::from_millis(100);
/// An end that moves to an earlier moment by less than this is not told: schedulers would have to end the hold to set it anew.
const SHORTER: Duration = Duration::from_secs(1);

/// The holds of one resource that is in the scheduler: for each kind whether it is set, and until when.
pub type Seen = [Option<Option<Timestamp>>; 3];

type Key = (usize, HoldKind);

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
    /// In the present epoch; 0 until the engine has told it.
    version: u64,
    mine: bool,
    /// The desk was told to set it, and the scheduler knows no end.
    by_hand: bool,
}

impl Entry {
    fn lives(&self, now: Timestamp) -> bool {
        self.set && self.until.is_none_or(|until| until > now)
    }

    fn change(&self, now: Timestamp) -> Change {
        if self.lives(now) {
            Change::Set(self.until.map(|until| until.saturating_since(now)))
        } else {
            Change::Cleared
        }
    }

    /// Whether a word says the same.
    fn agrees(&self, now: Timestamp, set: bool, until: Option<Timestamp>) -> bool {
        match (self.lives(now), set) {
            (false, false) => true,
            (true, true) => match (self.until, until) {
                (None, None) => true,
                (Some(one), Some(other)) => one.max(other).saturating_since(one.min(other)) <= SLACK,
                _ => false,
            },
            _ => false,
        }
    }
}

/// A word that is to be told.
#[derive(Clone, Copy, Debug, Default)]
struct Pending {
    /// It was told before: a later word of somebody else replaces it.
    again: bool,
    /// What is on record is to be cleared first: it may end later.
    clears: bool,
}

/// The holds that are known.
#[derive(Clone, Debug)]
pub struct HoldTable {
    /// Who says what is said here: one process, whatever its name.
    origin: Arc<str>,
    epoch: Option<Arc<str>>,
    entries: BTreeMap<Key, Entry>,
    outbox: BTreeMap<Key, Pending>,
    /// In the letter that the engine has not answered.
    at_work: BTreeMap<Key, Pending>,
    /// The last of the outbox that was told: the next letter goes on from there.
    turn: Option<Key>,
    #[cfg(test)]
    durations: HashMap<Key, Change>,
}

impl HoldTable {
    pub fn new(origin: Arc<str>) -> Self {
        HoldTable {
            origin,
            epoch: None,
            entries: BTreeMap::new(),
            outbox: BTreeMap::new(),
            at_work: BTreeMap::new(),
            turn: None,
            #[cfg(test)]
            durations: HashMap::new(),
        }
    }

    /// Compares with what the scheduler shows; what was done here is to be told.
    pub fn compare(&mut self, now: Timestamp, seen: &HashMap<usize, Seen>) {
        for (&place, holds) in seen {
            for (kind, &shown) in HoldKind::ALL.into_iter().zip(holds) {
                let known = self.entries.get(&(place, kind)).copied().filter(|entry| entry.lives(now));
                let soon = now.saturating_add(SLACK);
                match (shown, known) {
                    (Some(until), None) if until.is_none_or(|until| until > soon) => {
                        self.set_here(now, (place, kind), until, false);
                    }
                    // Its end is the table's.
                    (Some(None), Some(entry)) if entry.by_hand => {}
                    (Some(None), Some(Entry { until: Some(_), .. })) => {
                        self.set_here(now, (place, kind), None, false);
                    }
                    (Some(Some(until)), Some(entry)) => {
                        let later = entry.until.is_some_and(|known| until > known.saturating_add(SLACK));
                        // Cleared here, and set anew.
                        let earlier = entry.until.is_none_or(|known| until.saturating_add(SHORTER) < known);
                        if later || earlier {
                            self.set_here(now, (place, kind), Some(until), earlier);
                        }
                    }
                    (None, Some(entry)) if entry.until.is_none_or(|until| until > soon) => {
                        let entry = Entry { set: false, version: 0, mine: true, by_hand: false, ..entry };
                        self.say(now, (place, kind), entry, Pending { again: false, clears: true });
                    }
                    _ => {}
                }
            }
        }
    }

    fn set_here(&mut self, now: Timestamp, key: Key, until: Option<Timestamp>, clears: bool) {
        let entry = Entry { set: true, until, version: 0, mine: true, by_hand: false };
        self.say(now, key, entry, Pending { again: false, clears });
    }

    /// Somebody here sets a hold, until it is cleared, or clears it, by the resource's name: what the scheduler shows does not matter, and
    /// neither whether anybody here has heard of the hold. Answers what is to be done.
    pub fn command(&mut self, now: Timestamp, place: usize, kind: HoldKind, set: bool) -> Apply {
        let entry = Entry { set, until: None, version: 0, mine: true, by_hand: set };
        self.say(now, (place, kind), entry, Pending { again: false, clears: !set });
        Apply { place, kind, change: if set { Change::Set(None) } else { Change::Cleared } }
    }

    /// How many words are to be told.
    pub fn pending(&self) -> usize {
        self.outbox.len()
    }

    /// Whether something of this resource is to be told.
    pub fn is_pending(&self, place: usize) -> bool {
        self.outbox.range((place, HoldKind::Cooling)..=(place, HoldKind::Ejected)).next().is_some()
    }

    /// A word that nobody knows yet. Only the last one on each counts: an outage makes no long letter.
    fn say(&mut self, _now: Timestamp, key: Key, entry: Entry, mut pending: Pending) {
        pending.clears |= self.outbox.get(&key).is_some_and(|before| before.clears);
        self.entries.insert(key, entry);
        self.outbox.insert(key, pending);
        #[cfg(test)]
        self.durations.insert(key, entry.change(_now));
    }

    /// Whether there is something to tell.
    #[cfg(test)]
    pub fn has_mail(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// What is to be told next: at most so many words. It is at work until [`answered`](Self::answered) or
    /// [`unanswered`](Self::unanswered). May be empty: what is over is not told.
    pub fn letter(&mut self, now: Timestamp, roll: &Roll, most: usize) -> Vec<HoldNote> {
        let mut notes = Vec::new();
        while notes.len() < most
            && let Some((key, pending)) = self.take_next()
        {
            let entry = self.entries.get(&key).copied();
            let change = entry.map_or(Change::Cleared, |entry| entry.change(now));
            #[cfg(test)]
            let change = match self.durations.get(&key) {
                Some(kept) if is_planted(Planted::KeepsDurations) => *kept,
                _ => change,
            };
            let note = |change| HoldNote {
                name: Arc::clone(&roll.get(key.0).name),
                kind: key.1,
                change,
                origin: Arc::clone(&self.origin),
                epoch: self.epoch.clone().unwrap_or_default(),
                version: 0,
            };
            let sets = change != Change::Cleared;
            if pending.clears {
                notes.push(note(Change::Cleared));
            }
            if sets {
                notes.push(note(change));
            }
            if pending.clears || sets {
                self.at_work.insert(key, pending);
            }
        }
        notes
    }

    fn take_next(&mut self) -> Option<(Key, Pending)> {
        use std::ops::Bound::{Excluded, Unbounded};
        let after = self.turn.and_then(|turn| self.outbox.range((Excluded(turn), Unbounded)).next());
        let key = *after.or_else(|| self.outbox.first_key_value())?.0;
        self.turn = Some(key);
        Some((key, self.outbox.remove(&key)?))
    }

    /// Nobody knows what has become of the letter.
    pub fn unanswered(&mut self) {
        for (key, pending) in std::mem::take(&mut self.at_work) {
            let later = self.outbox.entry(key).or_insert(pending);
            later.clears |= pending.clears;
        }
    }

    /// The engine has recorded the letter, and says how; answers what is to be done.
    pub fn answered(&mut self, now: Timestamp, notes: &[(usize, HoldNote)]) -> Vec<Apply> {
        let at_work = std::mem::take(&mut self.at_work);
        // Of two on one hold the later one counts.
        let last: BTreeMap<Key, &HoldNote> =
            notes.iter().map(|(place, note)| ((*place, note.kind), note)).collect();
        let answers = last.into_iter();
        answers.flat_map(|(key, note)| self.hear_as(now, key, note, at_work.contains_key(&key))).collect()
    }

    /// Something was heard of a resource; answers what is to be done, if it is news.
    pub fn hear(&mut self, now: Timestamp, place: usize, note: &HoldNote) -> Vec<Apply> {
        self.hear_as(now, (place, note.kind), note, false)
    }

    fn hear_as(&mut self, now: Timestamp, key: Key, note: &HoldNote, is_answer: bool) -> Vec<Apply> {
        let of_epoch = self.epoch.as_ref() == Some(&note.epoch) || is_planted(Planted::AnyEpoch);
        let known = self.entries.get(&key).copied();
        if !of_epoch || known.is_some_and(|entry| note.version <= entry.version) {
            return Vec::new();
        }
        let mine = note.origin == self.origin;
        if let Some(pending) = self.at_work.get(&key) {
            if !pending.again || mine || self.outbox.contains_key(&key) {
                return Vec::new();
            }
            // Somebody has spoken since. What is said again here may arrive after that: too late.
            self.at_work.remove(&key);
        }
        match self.outbox.get(&key) {
            Some(pending) if pending.again && !mine => {
                self.outbox.remove(&key);
            }
            Some(_) => return Vec::new(),
            None => {}
        }
        let (set, until) = match note.change {
            Change::Cleared => (false, None),
            Change::Set(duration) => (true, duration.map(|duration| now.saturating_add(duration))),
        };
        let agrees = known.is_some_and(|entry| entry.agrees(now, set, until));
        let stray = mine && !is_answer && !is_planted(Planted::LateCounts);
        if stray {
            // Of a request that had been given up. Versions tell that nothing was said since, but by others.
            let mut entry =
                known.unwrap_or(Entry { set: false, until: None, version: 0, mine, by_hand: false });
            entry.version = note.version;
            self.entries.insert(key, entry);
            if !agrees {
                self.say(now, key, Entry { mine, ..entry }, Pending { again: true, clears: set });
            }
            return Vec::new();
        }
        let agrees = agrees || is_planted(Planted::SameIsSame);
        if let Some(entry) = known.filter(|entry| entry.mine && mine && agrees) {
            self.entries.insert(key, Entry { version: note.version, ..entry });
            return Vec::new();
        }
        let by_hand = set && key.1 != HoldKind::Cooling;
        let mut entry = Entry { set, until, version: note.version, mine, by_hand };
        let mut todo = Vec::new();
        let apply = |change| Apply { place: key.0, kind: key.1, change };
        let mut change = note.change;
        // What cools never cools for a shorter time.
        if set
            && key.1 == HoldKind::Cooling
            && let Some(until) = until
            && let Some(known) = known.filter(|known| known.lives(now))
        {
            match known.until {
                Some(before) if until > before => {}
                // The scheduler keeps the end that it has, and so does the table: otherwise it would look as if somebody here had moved it.
                Some(before) if until.saturating_add(SHORTER) >= before => {
                    if !is_planted(Planted::EchoesEnds) {
                        entry.until = Some(before);
                        change = entry.change(now);
                    }
                }
                _ => todo.push(apply(Change::Cleared)),
            }
        }
        self.entries.insert(key, entry);
        todo.push(apply(change));
        todo
    }

    /// All that are set were fetched, as of `version` in `epoch`; answers what is to be done.
    pub fn reconcile(&mut self, now: Timestamp, notes: &[(usize, HoldNote)], version: u64) -> Vec<Apply> {
        let listed: HashSet<Key> = notes.iter().map(|(place, note)| (*place, note.kind)).collect();
        let mut todo: Vec<_> = notes.iter().flat_map(|(place, note)| self.hear(now, *place, note)).collect();
        for (key, entry) in &mut self.entries {
            // A word that is on its way there stands.
            let gone = entry.lives(now) && entry.version <= version && !self.outbox.contains_key(key);
            let gone = gone && (entry.version != 0 || !is_planted(Planted::NeedsVersion));
            if gone && !listed.contains(key) {
                (entry.set, entry.by_hand) = (false, false);
                todo.push(Apply { place: key.0, kind: key.1, change: Change::Cleared });
            }
        }
        todo
    }

    /// A session has begun. In another epoch versions begin anew, and what was set here may be forgotten: it is told again.
    pub fn begin(&mut self, now: Timestamp, epoch: &Arc<str>) {
        let before = self.epoch.replace(Arc::clone(epoch));
        if before.is_none_or(|before| before == *epoch) {
            return;
        }
        for (key, entry) in &mut self.entries {
            entry.version = 0;
            if entry.mine && entry.lives(now) {
                self.outbox.entry(*key).or_insert(Pending { again: true, clears: false });
            }
        }
    }

    /// Ejections whose end only this table knows, and that are over. (Cooling ends by itself, and ejections by rules by those.)
    pub fn ended(&mut self, now: Timestamp) -> Vec<Apply> {
        let mut todo = Vec::new();
        self.entries.retain(|&(place, kind), entry| {
            let over = entry.set && !entry.lives(now);
            let ends = entry.by_hand && !(entry.mine && is_planted(Planted::EndsOthersOnly));
            if over && ends {
                todo.push(Apply { place, kind, change: Change::Cleared });
            }
            if over {
                (entry.set, entry.by_hand) = (false, false);
            }
            // A version is kept as long as the engine may still tell of an older one.
            !over || entry.version != 0
        });
        todo
    }

    /// What a resource that joins the scheduler must have.
    pub fn of(&mut self, now: Timestamp, place: usize) -> Vec<Apply> {
        let all = self.entries.range_mut((place, HoldKind::Cooling)..=(place, HoldKind::Ejected));
        let living = all.filter(|(_, entry)| entry.lives(now));
        let apply = |(&(place, kind), entry): (&Key, &mut Entry)| {
            entry.by_hand = kind != HoldKind::Cooling;
            Apply { place, kind, change: entry.change(now) }
        };
        living.map(apply).collect()
    }

    #[cfg(test)]
    pub fn known(&self, now: Timestamp, place: usize, kind: HoldKind) -> Option<Option<Timestamp>> {
        self.entries.get(&(place, kind)).filter(|entry| entry.lives(now)).map(|entry| entry.until)
    }

    /// Resources that some hold keeps from being lent.
    pub fn blocked(&self, now: Timestamp) -> impl Iterator<Item = usize> + '_ {
        let mut last = None;
        let living = self.entries.iter().filter(move |(_, entry)| entry.lives(now));
        living.map(|((place, _), _)| *place).filter(move |place| last.replace(*place) != Some(*place))
    }
}

#[cfg(test)]
mod tests;
