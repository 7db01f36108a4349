//! The smallest whole use: a fleet, the best resource, its return.
//!
//! Lower priority is better. A lease returns itself when it is dropped.

use leasehold::{AcquireError, Entry, Scheduler};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // One shard, so that the order is the fleet's and not a shard's.
    let replicas = Scheduler::<Entry<&str, u32, &str>>::builder().shards(1).build()?;
    replicas.insert(Entry::new("far", 40, "10.0.2.1:5432"))?;
    replicas.insert(Entry::new("near", 2, "10.0.1.1:5432"))?;

    let first = replicas.acquire()?;
    assert_eq!((*first.key(), first.value), ("near", "10.0.1.1:5432"));

    // The best one is out, so the next best is lent.
    let second = replicas.acquire()?;
    assert_eq!(*second.key(), "far");

    // Nothing is left: the error says why.
    match replicas.acquire() {
        Err(AcquireError::NoneEligible(none)) => {
            println!("as expected: {none}");
            assert_eq!(none.reasons.at_capacity, 2);
        }
        other => panic!("both are lent, yet: {other:?}"),
    }

    drop(first);
    assert_eq!(*replicas.acquire()?.key(), "near");

    // A measurement came in: the near one has become slow. The lease above keeps the value it was lent with.
    replicas.update_with("near", |old| Entry { priority: 90, ..*old })?;
    drop(second);
    assert_eq!(*replicas.acquire()?.key(), "far");

    let stats = replicas.stats();
    assert_eq!((stats.members, stats.in_flight, stats.lent, stats.returned), (2, 0, 4, 4));
    println!("lent {} times, all came back", stats.lent);
    Ok(())
}
