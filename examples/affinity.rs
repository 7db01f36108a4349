//! The same caller finds the same shard again: warm caches, prompt caches, sessions.
//!
//! Affinity leads to a *shard*, and to the best resource in it. With one resource a shard it leads to a resource.

use std::collections::HashMap;

use leasehold::{Capacity, Entry, Resource, Scheduler};

/// A cache node that lives in a shard of its own.
struct CacheNode(usize);

impl Resource for CacheNode {
    type Key = usize;
    type Priority = ();

    fn key(&self) -> usize {
        self.0
    }

    fn priority(&self, _in_flight: u32) {}

    fn capacity(&self) -> Capacity {
        Capacity::Unlimited
    }

    fn home(&self, shards: usize) -> Option<usize> {
        Some(self.0 % shards)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    const NODES: usize = 8;
    let nodes = Scheduler::<CacheNode>::builder().shards(NODES).build()?;
    nodes.insert_batch((0..NODES).map(CacheNode).collect())?;

    let of = |user: u32| nodes.acquire_by_affinity(&user).map(|lease| *lease.key());
    let before: HashMap<u32, usize> =
        (0..1_000).map(|user| Ok((user, of(user)?))).collect::<Result<_, leasehold::AcquireError>>()?;
    for (&user, &node) in &before {
        assert_eq!(of(user)?, node, "the same user, the same node");
    }

    // A node goes out of service: only its users move, and they spread over all others.
    nodes.exclude(&3)?;
    let mut takers = [0; NODES];
    for (&user, &node) in &before {
        let now = of(user)?;
        assert!(now == node || node == 3, "nobody else moves");
        takers[now] += usize::from(node == 3);
    }
    assert_eq!(takers[3], 0);
    assert!(takers.iter().filter(|&&users| users > 0).count() == NODES - 1, "{takers:?}");

    // It comes back: so do they.
    nodes.include(&3)?;
    assert!(before.iter().all(|(&user, &node)| of(user) == Ok(node)));
    println!("users of the lost node went to {takers:?}");

    // Entries have no `home`; the scheduler then places them where the fewest are.
    let plain = Scheduler::<Entry<u8, u8, ()>>::builder().shards(2).build()?;
    plain.insert(Entry::new(1, 0, ()))?;
    assert!(plain.acquire_by_affinity("any id").is_ok(), "an empty shard's callers go on to the next");
    Ok(())
}
