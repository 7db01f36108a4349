//! A peek that is leaked: nothing that is superseded from then on is freed in the whole process, as its documentation
//! says, and nothing worse happens. In a process of its own for that reason.
//!
//! Cost: nothing to speak of.

use leasehold::{Entry, Scheduler};

#[test]
fn a_leaked_peek_stops_no_operation() {
    let fleet = Scheduler::<Entry<u8, u8, u32>>::builder().shards(2).build().expect("in range");
    fleet.insert(Entry::new(0, 0, 0)).expect("new");
    let seen: &Entry<u8, u8, u32> = Box::leak(Box::new(fleet.peek().expect("eligible")));
    for version in 1..1_000 {
        fleet.update(Entry::new(0, 0, version)).expect("known");
        assert_eq!(fleet.acquire().expect("free").value, version);
    }
    fleet.remove(&0).expect("known");
    assert!(fleet.is_empty() && fleet.acquire().is_err());
    assert_eq!(seen.value, 0, "it still sees what it saw");
}
