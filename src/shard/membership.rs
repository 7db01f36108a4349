//! Joining and leaving the fleet; holds; looking.

use std::ptr::NonNull;

use super::{Count, Garbage, Locked};
use crate::{
    node::{Hold, Moved, Node, Owned, Refused, Standing},
    resource::Resource,
};

/// A removal that happened.
#[derive(Clone, Copy, Debug)]
#[must_use = "the key must be forgotten, and the node freed"]
pub struct Gone {
    /// Leases that are out.
    pub in_flight: u32,
    /// Nobody else has a claim on the node: its slot is free again, and its remover is the one who frees it.
    pub alone: bool,
}

impl<'s, R: Resource> Locked<'s, R> {
    /// Makes a staged node, which has a slot, visible and eligible, or `draining`, in one transition.
    ///
    /// Refused if it is not staged.
    pub fn admit(&mut self, node: &Node<R>, draining: bool) -> Result<Moved, Refused> {
        self.write();
        if !node.state.load().is_staged() {
            return Err(Refused(node.state.load()));
        }
        let owned = self.owned(node, |owned| *owned);
        debug_assert_ne!(owned.slot, Owned::NO_SLOT, "a node is seated before it is admitted");
        self.face().touch_content();
        let moved = node.state.admit(draining)?;
        self.face().raise_slots(owned.slot + 1);
        // A staged node is not counted before it is visible.
        self.face().add_standing(Standing::Staged, 1);
        self.follow(node, moved, owned.limit, owned);
        self.tally(Count::Inserted, node, moved.to);
        if draining {
            self.holds().follow(moved);
            self.tally(Count::Drained, node, moved.to);
        }
        Ok(moved)
    }

    /// Gives `node` a slot. The caller has made room.
    pub fn seat(&mut self, node: &Node<R>) -> u32 {
        let slot = self.inner.slots.take(NonNull::from(node));
        self.owned(node, |owned| owned.slot = slot);
        slot
    }

    /// Undoes the insertion of a staged node: marks it and takes its slot back, if it has one.
    pub fn abort(&mut self, node: &Node<R>) {
        self.write();
        if node.state.abort().is_ok() {
            let slot = self.owned(node, |owned| owned.slot);
            if slot != Owned::NO_SLOT {
                self.inner.slots.release(slot);
            }
        }
    }

    /// Takes `node` out of the fleet. Exactly one caller succeeds, and must then forget the key; and then retire the node, if
    /// it is [alone](Gone::alone) with it, or call [`Locked::unlink`].
    pub fn remove(&mut self, node: &Node<R>, count: Count) -> Result<Gone, Refused> {
        self.write();
        let moved = node.state.remove()?;
        let owned = self.owned(node, |owned| *owned);
        self.follow(node, moved, owned.limit, owned);
        self.holds().follow(moved);
        if moved.from.is_held(Hold::Cooling) {
            self.inner.cooled -= 1;
        }
        self.tally(count, node, moved.to);
        #[cfg(feature = "telemetry")]
        self.watch().forget(std::ptr::from_ref(node).addr());
        // No lease and no pin, and a removed node gets neither any more.
        let alone = moved.to.in_flight() == 0 && owned.pins.is_none();
        if alone {
            self.inner.slots.release(owned.slot);
            self.face().add_standing(Standing::Removed, u32::MAX);
        }
        Ok(Gone { in_flight: moved.to.in_flight(), alone })
    }

    /// The lookup has forgotten the key.
    pub fn unlink(&mut self, node: &Node<R>) -> Garbage<R> {
        self.write();
        let Ok(moved) = node.state.unlink() else { return Garbage::NONE };
        Garbage { node: self.release_if_spent(node, moved.to), ..Garbage::NONE }
    }

    // Holds.

    /// Adds a hold other than cooling. `from == to` if it was there already.
    pub fn hold(&mut self, node: &Node<R>, hold: Hold, count: Count) -> Result<Moved, Refused> {
        debug_assert_ne!(hold, Hold::Cooling, "cooling has a deadline");
        self.write();
        let moved = node.state.hold(hold)?;
        self.after_hold(node, moved, hold, count);
        Ok(moved)
    }

    /// Lets `node` cool until `deadline`, or until its present deadline if that is later.
    ///
    /// The caller has come through [`Shard::lock_with_cooling`]. Answers whether anything changed.
    pub fn cool(&mut self, node: &Node<R>, deadline: u64) -> Result<bool, Refused> {
        self.write();
        let moved = node.state.hold(Hold::Cooling)?;
        let changed = self.note_cooling(node, moved, deadline);
        if changed {
            let owned = self.owned(node, |owned| *owned);
            self.follow(node, moved, owned.limit, owned);
            self.holds().follow(moved);
            self.tally(Count::Cooled, node, moved.to);
        }
        Ok(changed)
    }

    /// Keeps the later of two deadlines, and count of who cools.
    pub(super) fn note_cooling(&mut self, node: &Node<R>, moved: Moved, deadline: u64) -> bool {
        let was_cooling = moved.from.is_held(Hold::Cooling);
        if !was_cooling {
            self.inner.cooled += 1;
        }
        let old = node.deadline();
        let later = if was_cooling { deadline.max(old) } else { deadline };
        node.set_deadline(later);
        !was_cooling || later != old
    }

    /// Clears a hold. `from == to` if it was not there.
    pub fn clear(&mut self, node: &Node<R>, hold: Hold, count: Count) -> Result<Moved, Refused> {
        self.write();
        let moved = node.state.clear(hold)?;
        if hold == Hold::Cooling && moved.from.is_held(Hold::Cooling) {
            self.inner.cooled -= 1;
        }
        self.after_hold(node, moved, hold, count);
        Ok(moved)
    }

    /// A hold of a member, which a transition of nothing else was about, has moved or not.
    fn after_hold(&mut self, node: &Node<R>, moved: Moved, hold: Hold, count: Count) {
        if moved.from != moved.to {
            let owned = self.owned(node, |owned| *owned);
            self.follow(node, moved, owned.limit, owned);
            self.holds().follow_one(hold, moved.to.is_held(hold));
            self.tally(count, node, moved.to);
        }
    }

    /// Warms up resources whose deadline has come, as many as there are places for. Answers how many; fewer than places
    /// means that no further one is due.
    pub fn thaw(&mut self, now: u64, places: &mut [Option<&'s Node<R>>]) -> usize {
        let mut thawed = 0;
        while thawed < places.len()
            && let Some(entry) = self.inner.cooling.peek_min()
            && entry.rank() <= now
        {
            let node = self.node_in(entry.slot());
            let cleared = self.clear(node, Hold::Cooling, Count::Warmed);
            debug_assert!(cleared.is_ok(), "a cooling node is a member");
            places[thawed] = Some(node);
            thawed += 1;
        }
        thawed
    }

    // Looking.

    /// The limit and what else the words do not tell.
    pub fn details(&mut self, node: &Node<R>) -> Owned {
        self.owned(node, |owned| *owned)
    }

    /// Slots that were ever in use.
    pub fn slots_used(&self) -> u32 {
        self.inner.slots.used()
    }

    /// The node in a slot below [`slots_used`](Self::slots_used), if there is one.
    #[allow(unsafe_code)]
    pub fn node_at(&self, slot: u32) -> Option<&'s Node<R>> {
        // SAFETY: rule 5 of `node`: a node in the slot table is not spent. It outlives the borrow as in `node_in`.
        self.inner.slots.node(slot).map(|node| unsafe { &*node.as_ptr() })
    }

    /// Up to eight of the best nodes, best first, with their ranks.
    pub fn best_nodes(&self) -> impl Iterator<Item = &'s Node<R>> + use<'_, 's, R> {
        let best = self.inner.ready.best();
        (0..best.len()).map(move |i| self.node_in(best[i].slot()))
    }

    /// How many that can be had have a better rank than that; `most` if it is more. O(answer + log n).
    #[cfg(feature = "telemetry")]
    pub fn better_than(&self, rank: u64, roster: &super::Roster, most: usize) -> usize {
        let ready = self.inner.ready.count_below(rank, most);
        (ready + self.staged_better_than(rank, roster)).min(most)
    }

    /// The worst eligible node.
    pub fn worst(&self) -> Option<&'s Node<R>> {
        self.inner.ready.peek_max().map(|entry| self.node_in(entry.slot()))
    }
}
