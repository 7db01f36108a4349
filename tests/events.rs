//! Events, taken out by hand: in order, with a gap for each drop.

use std::time::Duration;

use leasehold::{
    Entry,
    EventKind::{Acquired, Cooled, Inserted, Released},
    Scheduler,
};

#[test]
fn events_in_order_with_gaps() {
    let s = Scheduler::<Entry<u32, u32, ()>>::builder().shards(1).event_capacity(4).build().unwrap();
    s.insert(Entry::new(1, 0, ())).unwrap();
    s.acquire().unwrap().release_after(Duration::from_secs(1));
    s.remove(&1).unwrap();
    let events = s.take_events(100);
    let kinds: Vec<_> = events.iter().map(|e| e.kind).collect();
    assert_eq!(kinds, [Inserted, Acquired, Released, Cooled]);
    assert_eq!(events.iter().map(|e| e.sequence).collect::<Vec<_>>(), [0, 1, 2, 3]);
    s.insert(Entry::new(2, 0, ())).unwrap();
    let e = s.take_events(1);
    assert_eq!((e[0].sequence, e[0].kind), (5, Inserted));
    let stats = s.stats();
    assert_eq!((stats.events_emitted, stats.events_dropped), (5, 1));
}
