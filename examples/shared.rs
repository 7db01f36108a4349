//! Resources that several callers use at once: counted capacity, least-loaded choice, and looking without a lease.

use leasehold::{Capacity, Resource, Scheduler};

/// A database replica that takes a number of connections; the one with the fewest is the best.
struct Replica {
    name: &'static str,
    connections: u32,
}

impl Resource for Replica {
    type Key = &'static str;
    type Priority = u32;

    fn key(&self) -> &'static str {
        self.name
    }

    // The scheduler counts leases; ranking by that count needs no updates from us.
    fn priority(&self, in_flight: u32) -> u32 {
        in_flight
    }

    fn capacity(&self) -> Capacity {
        Capacity::Limited(self.connections)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let replicas = Scheduler::<Replica>::builder().shards(1).build()?;
    replicas.insert(Replica { name: "a", connections: 2 })?;
    replicas.insert(Replica { name: "b", connections: 8 })?;

    // Leases go to whichever replica has fewer out: two each, then `a` is full.
    let leases = (0..4).map(|_| replicas.acquire()).collect::<Result<Vec<_>, _>>()?;
    let on_a = leases.iter().filter(|lease| *lease.key() == "a").count();
    assert_eq!((on_a, leases.len() - on_a), (2, 2));
    assert_eq!(*replicas.acquire()?.key(), "b");

    // Looking takes no capacity and no lock, and works as often as you like.
    for _ in 0..1_000 {
        assert_eq!(replicas.peek().expect("b has room").name, "b");
    }
    assert_eq!(replicas.stats().in_flight, 4);

    drop(leases);
    assert_eq!(replicas.stats().available, 10);
    println!("two replicas, ten connections, never more");
    Ok(())
}
