//! Holds between a member's scheduler and the fleet: what is set in one is told, and what is heard is done.

use super::{Local, Member};
use crate::{
    cluster::{
        engine::{HoldNote, Request},
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

    /// What is to be told of holds. One request of these and one of another kind take turns, so that a storm of holds holds up nothing.
    pub(super) fn letter(&mut self, now: Timestamp) -> Option<Request> {
        let notes = self.holds.letter(now, &self.roll, LETTER);
        (!notes.is_empty()).then(|| {
            self.told_holds = true;
            Request::Hold(notes)
        })
    }

    /// Lends units of a resource that may not have been there: with the holds that it has elsewhere.
    pub(super) fn lend_anew(&mut self, now: Timestamp, place: usize, units: u32, local: &mut impl Local) {
        local.lend(place, units);
        let holds = self.holds.of(now, place);
        self.apply(&holds, local);
    }

    /// Whether it knows of a hold, and until when.
    #[cfg(test)]
    pub fn known(
        &self,
        now: Timestamp,
        place: usize,
        kind: crate::cluster::engine::HoldKind,
    ) -> Option<Option<Timestamp>> {
        self.holds.known(now, place, kind)
    }
}
