//! The whole fleet, shard by shard, a few slots in one critical section.

use std::ptr::NonNull;

use super::progress::Drain;
use crate::{
    node::{Hold, Node},
    resource::Resource,
    scheduler::core::Core,
    shard::{Count, Locked, Pin, Shard},
    sync::Arc,
};

/// Slots looked at in one critical section.
const AT_ONCE: u32 = if cfg!(any(loom, shuttle)) { 2 } else { 16 };

type Few<R> = [Option<NonNull<Node<R>>>; AT_ONCE as usize];

impl<R: Resource> Core<R> {
    /// Goes over every node of a shard that has a slot. Those that `step` says yes to are handed to `then`, with the lock free.
    fn sweep(
        &self,
        shard: &Shard<R>,
        step: impl Fn(&mut Locked<'_, R>, &Node<R>) -> bool,
        mut then: impl FnMut(NonNull<Node<R>>),
    ) {
        let mut next = 0;
        loop {
            let mut few: Few<R> = [None; AT_ONCE as usize];
            let used = {
                let mut locked = self.lock(shard);
                let used = locked.slots_used();
                for (place, slot) in few.iter_mut().zip(next..used) {
                    *place = locked.node_at(slot).filter(|node| step(&mut locked, node)).map(NonNull::from);
                }
                used
            };
            few.into_iter().flatten().for_each(&mut then);
            next += AT_ONCE;
            if next >= used {
                return;
            }
        }
    }
}

/// A1, A2, and P2 of `wait`.
pub fn drain_all<R: Resource>(core: &Arc<Core<R>>) -> Drain<R> {
    let mut drain = Drain::new(core);
    core.roster.let_newcomers_drain(true);
    for shard in &core.shards {
        core.sweep(
            shard,
            |locked, node| {
                // Refused if it is staged, and will be admitted as I1 says, or was removed.
                let _ = core.withhold(locked, node, Hold::Draining, Count::Drained);
                locked.pin_lent(node)
            },
            |node| drain.add(node),
        );
    }
    core.take_parts_back();
    drain
}

/// Undoes it. Answers how many resources were draining.
#[allow(unsafe_code)]
pub fn undrain_all<R: Resource>(core: &Core<R>) -> usize {
    core.roster.let_newcomers_drain(false);
    let mut undrained = 0;
    let guard = core.pin();
    for shard in &core.shards {
        core.sweep(
            shard,
            |locked, node| {
                let moved = locked.clear(node, Hold::Draining, Count::Undrained);
                moved.is_ok_and(|moved| moved.from != moved.to)
            },
            |node| {
                undrained += 1;
                // SAFETY: rule 5 of `node`: it had a slot, so it was not spent, when the guard was held already.
                core.undrained(unsafe { node.as_ref() }, &guard);
            },
        );
    }
    drop(guard);
    undrained
}

impl<R: Resource> Core<R> {
    /// What follows when a resource is not draining any more. The lock is free.
    fn undrained(&self, node: &Node<R>, guard: &Pin<'_>) {
        if node.state.load().is_held(Hold::Cooling) {
            // What is left may be a deadline alone.
            self.note_earliest(self.home(node));
        }
        self.drains.tell(NonNull::from(node));
        self.offer_node(node, guard);
    }
}
