//! Holds between a member's scheduler and the fleet: what is set in one is told, and what is heard is done.

use super::{Local, Member};
use crate::{
    cluster::{
        engine::{HoldKind, HoldNote, Request},
        holds::{Apply, HoldTable},
        planted::{Planted, is_planted},
    },
    sync::Timestamp,
};

/// Words on holds in one request; of some it has two.
const LETTER: usize = 64;

impl Member {
    /// Tells this process from another one that has, or had, the name.
    #[must_use]
    pub fn with_nonce(mut self, nonce: u64) -> Self {
        self.holds = HoldTable::new(format!("{}#{nonce:016x}", self.me).into());
        self
    }

    /// What is over ends before the scheduler is looked at: it would look as if somebody here had set it without an end.
    pub(super) fn look_at_holds(&mut self, now: Timestamp, local: &mut impl Local) {
        if is_planted(Planted::LooksFirst)
            && let Some(seen) = local.holds()
        {
            self.holds.compare(now, &seen);
        }
        let over = self.holds.ended(now);
        self.apply(&over, local);
        if let Some(seen) = local.holds() {
            self.holds.compare(now, &seen);
        }
    }

    /// Does to the scheduler what was heard of holds. A resource of which no unit is held may be there still, until its leases are back.
    pub(super) fn apply(&self, todo: &[Apply], local: &mut impl Local) {
        for apply in todo {
            if is_planted(Planted::HeldOnly) && self.book.held_of(apply.place) == 0 {
                continue;
            }
            local.hold(apply.place, apply.kind, apply.change);
        }
    }

    fn known_of(&self, notes: &[HoldNote]) -> Vec<(usize, HoldNote)> {
        notes.iter().filter_map(|note| Some((self.roll.place(&note.name)?, note.clone()))).collect()
    }

    /// Holds that others have told of.
    pub fn hear(&mut self, now: Timestamp, notes: &[HoldNote], local: &mut impl Local) {
        for note in notes {
            if let Some(place) = self.roll.place(&note.name) {
                let todo = self.holds.hear(now, place, note);
                self.apply(&todo, local);
            }
        }
    }

    /// What was told is recorded.
    pub(super) fn recorded(&mut self, now: Timestamp, notes: &[HoldNote], local: &mut impl Local) {
        let notes = self.known_of(notes);
        let todo = self.holds.answered(now, &notes);
        self.apply(&todo, local);
    }

    /// All holds were fetched.
    pub(super) fn fetched(
        &mut self,
        now: Timestamp,
        notes: &[HoldNote],
        version: u64,
        local: &mut impl Local,
    ) {
        let notes = self.known_of(notes);
        self.holds_version = version;
        self.view.holds = version;
        let todo = self.holds.reconcile(now, &notes, version);
        self.apply(&todo, local);
    }

    /// Somebody here sets or clears a hold, whether the resource is in this scheduler or not.
    pub fn command(
        &mut self,
        now: Timestamp,
        place: usize,
        kind: HoldKind,
        set: bool,
        local: &mut impl Local,
    ) {
        let todo = self.holds.command(now, place, kind, set);
        self.apply(&[todo], local);
    }

    /// The next request that is about holds. One of these and one of another kind take turns, so that a storm of holds holds up nothing. What
    /// others have set comes first: nothing is lent here that rests elsewhere.
    pub(super) fn travel(&mut self, now: Timestamp) -> Option<Request> {
        let request = if self.view.holds != self.holds_version { Request::Holds } else { self.letter(now)? };
        self.told_holds = true;
        Some(request)
    }

    /// What is to be told of holds: so often that they are elsewhere in a moment, and not each by a request of its own. Who leaves has no time to
    /// wait: none then if there is nothing to tell.
    pub(super) fn letter(&mut self, now: Timestamp) -> Option<Request> {
        if now < self.next_letter && self.holds.pending() < LETTER && !self.leaving {
            return None;
        }
        let notes = self.holds.letter(now, &self.roll, LETTER);
        (!notes.is_empty()).then(|| {
            self.next_letter = now.saturating_add(self.terms.letters());
            Request::Hold(notes)
        })
    }

    /// Lends units of a resource that may not have been there: with the holds that it has elsewhere.
    pub(super) fn lend_anew(&mut self, now: Timestamp, place: usize, units: u32, local: &mut impl Local) {
        let holds = self.holds.of(now, place);
        local.lend_with(place, units, &holds);
    }

    /// Whether it knows of a hold, and until when.
    #[cfg(test)]
    pub fn known(&self, now: Timestamp, place: usize, kind: HoldKind) -> Option<Option<Timestamp>> {
        self.holds.known(now, place, kind)
    }
}
