//! The invariants of a shard, checked from scratch. For tests, models and fuzz targets.

use std::{collections::BTreeMap, ptr};

use super::{Count, Locked, Shard, face::NEVER, holds::counted};
use crate::{
    node::{Hold, Standing},
    resource::Resource,
    sync::atomic::Ordering,
};

/// What a whole-scheduler check adds up over shards.
#[derive(Debug, Default)]
pub struct Tally {
    /// Visible members.
    pub members: u64,
    /// Leases out on members and on removed nodes.
    pub in_flight: u64,
    /// Nodes removed but still lent.
    pub leaving: u64,
}

#[allow(unsafe_code)]
impl<R: Resource> Shard<R> {
    /// Panics unless heaps, slots, words and face agree. Call it when no operation is going on elsewhere for the sums
    /// over shards to mean something; each shard is checked under its lock.
    pub fn check_invariants(&self) -> Tally {
        let mut locked = self.lock();
        locked.inner.ready.check_invariants();
        locked.inner.cooling.check_invariants();
        let mut tally = Tally::default();
        let mut standings = BTreeMap::<u8, u32>::new();
        let (mut cooled, mut available) = (0, 0u64);
        let mut holds = [0; Hold::ALL.len()];
        let nodes: Vec<_> = locked.inner.slots.nodes().collect();
        assert_eq!(nodes.len(), locked.inner.slots.live() as usize, "slots in use");
        for node in nodes {
            // SAFETY: a node in the slot table is not spent (rule 5 of `node`), and the lock is held.
            let node = unsafe { node.as_ref() };
            let state = node.state.load();
            let owned = locked.details(node);
            let standing = state.standing();
            if standing == Standing::Staged {
                continue;
            }
            *standings.entry(standing as u8).or_default() += 1;
            tally.in_flight += u64::from(state.in_flight());
            if state.is_removed() {
                tally.leaving += 1;
            } else {
                tally.members += 1;
                assert!(owned.slot < self.face().slots(), "the slot of a member counts");
                for hold in Hold::ALL {
                    holds[hold as usize] += u64::from(counted(state) >> hold as u32 & 1);
                }
                cooled += u32::from(state.is_held(Hold::Cooling));
                assert_eq!(state.is_full(), state.in_flight() >= owned.limit, "full means at the limit");
            }
            assert!(owned.superseded <= state.in_flight(), "claims on old values are leases");
            let position = locked.inner.slots.position(owned.slot);
            let entry = match standing {
                Standing::Eligible => {
                    available += u64::from(owned.limit - state.in_flight());
                    locked.inner.ready.get(owned.slot, position)
                }
                Standing::Cooling => locked.inner.cooling.get(position),
                _ => continue,
            };
            assert_eq!(entry.slot(), owned.slot, "the slot table points at the node's own entry");
            let rank = if standing == Standing::Eligible { node.rank() } else { node.deadline() };
            assert_eq!(entry.rank(), rank, "the entry carries the node's rank");
        }
        let face = self.face();
        for i in 0..Standing::Staged as u8 {
            let standing = STANDINGS[i as usize];
            assert_eq!(
                face.standing(standing),
                standings.get(&i).copied().unwrap_or(0),
                "{standing:?} on the face"
            );
        }
        assert_eq!(
            face.standing(Standing::Removed),
            tally.leaving as u32,
            "removed nodes that still have a slot"
        );
        assert_eq!(face.standing(Standing::Staged), 0, "staged nodes are never counted");
        assert_eq!(locked.inner.ready.len() as u32, face.standing(Standing::Eligible), "the ready heap");
        assert_eq!(locked.inner.cooling.len() as u32, face.standing(Standing::Cooling), "the cooling heap");
        assert_eq!(locked.inner.cooled, cooled, "nodes with the cooling hold");
        assert_eq!(Hold::ALL.map(|hold| self.held(hold)), holds, "members with each hold");
        assert_eq!(face.available(), available, "free units");
        locked.check_face();
        tally
    }
}

impl<R: Resource> Locked<'_, R> {
    /// What the face says of the heaps, the run and the slots, against these themselves.
    fn check_face(&self) {
        let (face, inner) = (self.face(), &**self.inner);
        // Relaxed: written under the lock that is held.
        let order = Ordering::Relaxed;
        let node = |slot| ptr::from_ref(self.node_in(slot)).cast_mut();
        let best = inner.ready.peek_min();
        assert_eq!(face.best_rank(), best.map(|entry| entry.rank()), "best rank");
        assert_eq!(
            face.best().load(order),
            best.map_or(ptr::null_mut(), |entry| node(entry.slot())),
            "best node"
        );
        let due = inner.cooling.peek_min();
        assert_eq!(face.earliest(), due.map_or(NEVER, |entry| entry.rank()), "earliest deadline");
        assert_eq!(
            face.first_due().load(order),
            due.map_or(ptr::null_mut(), |entry| node(entry.slot())),
            "first to be due"
        );
        let run = self.staged();
        assert_eq!(
            (face.staged(), face.staged_rank(), face.staged_best().load(order)),
            (run.batch, run.rank, run.best),
            "what waits to be absorbed: batch, rank, node"
        );
        // A slot counts from the first admission in it on.
        assert!(face.slots() <= inner.slots.used(), "no more slots than were ever given out");
        let contents = face.count(Count::Inserted) + face.count(Count::Updated);
        assert_eq!(face.content(), contents, "each admission and each new value is a change of the content");
        assert!(face.begin_read().is_some(), "no write is going on under our own lock");
    }
}

const STANDINGS: [Standing; 6] = [
    Standing::Eligible,
    Standing::AtCapacity,
    Standing::Cooling,
    Standing::Ejected,
    Standing::Draining,
    Standing::Excluded,
];
