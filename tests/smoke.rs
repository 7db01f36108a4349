//! The main promises, one after another, on one thread.
#![cfg(all(feature = "internals", not(any(loom, shuttle))))]

use leasehold::*;
use std::sync::Arc;
use std::time::Duration;

type S = Scheduler<Entry<u32, u32, &'static str>>;

fn fleet(n: u32, shards: usize) -> S {
    let s = S::builder()
        .shards(shards)
        .seed(1)
        .strategy(Strategy::BestOf { choices: usize::MAX })
        .build()
        .unwrap();
    for i in 0..n {
        s.insert(Entry::new(i, i * 10, "x")).unwrap();
    }
    s
}

#[test]
fn order_and_return() {
    for shards in [1, 2, 8] {
        let s = fleet(20, shards);
        let mut leases: Vec<_> = (0..20)
            .map(|i| {
                let l = s.acquire().unwrap();
                assert_eq!(*l.key(), i);
                l
            })
            .collect();
        let err = s.acquire().unwrap_err();
        let AcquireError::NoneEligible(none) = err else { panic!() };
        assert_eq!(none.reasons.at_capacity, 20);
        leases.remove(7).release();
        assert_eq!(*s.acquire().unwrap().key(), 7);
        drop(leases);
        assert_eq!(s.check_invariants().in_flight, 0);
        let st = s.stats();
        assert!(st.consistent);
        assert_eq!((st.members, st.eligible, st.lent, st.returned), (20, 20, 21, 21));
    }
}

#[test]
fn everything_once() {
    let clock = Arc::new(ManualClock::new());
    let s =
        Scheduler::<Entry<u32, u32, &str>>::builder().shards(2).clock(Arc::clone(&clock)).build().unwrap();
    s.insert_batch((0..50).map(|i| Entry::new(i, i, "b").with_capacity(Capacity::Limited(2))).collect())
        .unwrap();
    assert_eq!(s.len(), 50);
    s.check_invariants();
    let a = s.acquire_key(&7).unwrap();
    let b = s.acquire_key(&7).unwrap();
    assert!(s.acquire_key(&7).is_err());
    s.remove(&7).unwrap();
    assert_eq!(s.remove(&7), Err(KeyError::NotFound { key: 7 }));
    assert_eq!(a.value, "b");
    s.insert(Entry::new(7, 0, "new")).unwrap();
    drop(a);
    let t = b.into_token();
    s.check_invariants();
    s.release(t).unwrap();
    assert!(s.release(t).is_err());
    s.check_invariants();
    let mut l = s.acquire_key(&7).unwrap();
    let t = l.token();
    s.update(Entry::new(7, 3, "newer")).unwrap();
    s.release(t).unwrap();
    assert_eq!(l.value, "new");
    assert_eq!(s.get(&7).unwrap().value, "newer");
    drop(l);
    s.check_invariants();
    s.acquire_key(&7).unwrap().finish(Outcome::RateLimited { retry_after: Duration::from_secs(5) });
    assert!(s.acquire_key(&7).is_err());
    clock.advance(Duration::from_secs(4));
    s.cool(&7, Duration::from_millis(1)).unwrap();
    assert!(s.acquire_key(&7).is_err());
    clock.advance(Duration::from_secs(1));
    assert!(s.acquire_key(&7).is_ok());
    s.check_invariants();
    assert!(s.acquire_where(|r| r.key == 33).is_ok());
    assert!(s.acquire_where(|r| r.key == 99).is_err());
    assert!(s.acquire_many(51 * 2).is_err());
    s.check_invariants();
}

#[test]
fn events_in_order_with_gaps() {
    let s = Scheduler::<Entry<u32, u32, ()>>::builder().shards(1).event_capacity(4).build().unwrap();
    s.insert(Entry::new(1, 0, ())).unwrap();
    s.acquire().unwrap().release_after(Duration::from_secs(1));
    s.remove(&1).unwrap();
    let events = s.take_events(100);
    let kinds: Vec<_> = events.iter().map(|e| e.kind).collect();
    use EventKind::*;
    assert_eq!(kinds, [Inserted, Acquired, Released, Cooled]);
    assert_eq!(events.iter().map(|e| e.sequence).collect::<Vec<_>>(), [0, 1, 2, 3]);
    s.insert(Entry::new(2, 0, ())).unwrap();
    let e = s.take_events(1);
    assert_eq!((e[0].sequence, e[0].kind), (5, Inserted));
    let stats = s.stats();
    assert_eq!((stats.events_emitted, stats.events_dropped), (5, 1));
}
