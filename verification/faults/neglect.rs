//! What is never given back. Leaked peeks and callbacks that call back have processes of their own in `tests/`.

use std::{mem, sync::Arc};

use leasehold::{Capacity, Entry, ManualClock, Resource, Scheduler, Ties};

use super::model::{Config, Item, Key, Ledger, Plan, Slope, Spec, settle};

fn exclusive(key: u8) -> Spec {
    Spec { key, base: 1, slope: Slope::Flat, capacity: Capacity::Exclusive, home: None }
}

fn small() -> Config {
    Config {
        shards: 2,
        plan: Plan::Exact,
        ties: Ties::LeastRecent,
        max: None,
        hash_mask: u64::MAX,
        expected: 0,
        seed: 1,
        initial: 0,
    }
}

#[test]
fn a_forgotten_lease_keeps_its_unit_and_nothing_else() {
    let (clock, ledger) = (Arc::new(ManualClock::new()), Arc::new(Ledger::default()));
    let fleet = small().build(&clock);
    for key in 0..3 {
        fleet.insert(Item::new(exclusive(key), 0, &ledger)).unwrap();
    }
    mem::forget(fleet.acquire_key(&Key(0)).unwrap());
    assert_eq!(fleet.check_invariants().in_flight, 1);
    assert!(fleet.acquire_key(&Key(0)).is_err());
    assert!(fleet.acquire_many(2).is_ok(), "the others are lent as ever");
    fleet.update(Item::new(exclusive(1), 1, &ledger)).unwrap();
    // It can be replaced, under the same key.
    assert_eq!(fleet.remove(&Key(0)).unwrap().in_flight, 1);
    fleet.insert(Item::new(exclusive(0), 2, &ledger)).unwrap();
    assert!(fleet.acquire_key(&Key(0)).is_ok());
    assert_eq!(fleet.check_invariants().leaving, 1);
    drop(fleet);
    settle(&ledger, 0..=0);
}

#[test]
fn a_forgotten_lease_of_a_superseded_value_leaks_that_value_only() {
    let (clock, ledger) = (Arc::new(ManualClock::new()), Arc::new(Ledger::default()));
    let fleet = small().build(&clock);
    fleet.insert(Item::new(exclusive(0), 0, &ledger)).unwrap();
    mem::forget(fleet.acquire().unwrap());
    fleet.update(Item::new(exclusive(0), 1, &ledger)).unwrap();
    drop(fleet);
    settle(&ledger, 1..=1);
}

#[test]
fn a_token_that_is_lost_leaks_nothing() {
    let (clock, ledger) = (Arc::new(ManualClock::new()), Arc::new(Ledger::default()));
    let fleet = small().build(&clock);
    fleet.insert(Item::new(exclusive(0), 0, &ledger)).unwrap();
    let _lost = fleet.acquire().unwrap().into_token();
    fleet.update(Item::new(exclusive(0), 1, &ledger)).unwrap();
    fleet.remove(&Key(0)).unwrap();
    drop(fleet);
    settle(&ledger, 0..=0);
}

/// The unit comes back by the token; what the guard could still read stays as long as the scheduler that it borrows.
#[test]
fn a_forgotten_guard_beside_its_token_keeps_its_value_while_the_fleet_lives() {
    let (clock, ledger) = (Arc::new(ManualClock::new()), Arc::new(Ledger::default()));
    let fleet = small().build(&clock);
    fleet.insert(Item::new(exclusive(0), 0, &ledger)).unwrap();
    let mut lease = fleet.acquire().unwrap();
    let token = lease.token();
    mem::forget(lease);
    fleet.release(token).unwrap();
    fleet.update(Item::new(exclusive(0), 1, &ledger)).unwrap();
    assert_eq!(fleet.acquire().unwrap().version, 1);
    fleet.remove(&Key(0)).unwrap();
    fleet.insert(Item::new(exclusive(0), 2, &ledger)).unwrap();
    let tally = fleet.check_invariants();
    assert_eq!((tally.members, tally.in_flight, tally.leaving), (1, 0, 1), "the pinned node keeps its slot");
    drop(fleet);
    settle(&ledger, 0..=0);
}

#[test]
fn a_thread_that_dies_returns_what_it_held() {
    let fleet = Arc::new(Scheduler::<Entry<u8, u8, ()>>::builder().shards(2).build().unwrap());
    for key in 0..4 {
        fleet.insert(Entry::new(key, 0, ())).unwrap();
    }
    let on_thread = Arc::clone(&fleet);
    let died = std::thread::spawn(move || {
        let _one = on_thread.acquire().unwrap();
        let _two = on_thread.acquire_owned().unwrap();
        let mut three = on_thread.acquire_many(2).unwrap();
        let _token = three[0].token();
        let _seen = on_thread.get(&0).unwrap();
        // No hook is run, so that nothing is printed.
        std::panic::resume_unwind(Box::new("died"));
    })
    .join();
    assert!(died.is_err());
    let tally = fleet.check_invariants();
    assert_eq!((tally.members, tally.in_flight), (4, 0));
    assert_eq!(fleet.acquire_many(4).unwrap().len(), 4);
}

/// Worse with each lease, and beyond asking once its thread is dying.
struct Fragile;

impl Resource for Fragile {
    type Key = u8;
    type Priority = u32;

    fn key(&self) -> u8 {
        0
    }

    fn priority(&self, in_flight: u32) -> u32 {
        assert!(!std::thread::panicking(), "asked while its thread is dying");
        in_flight
    }

    fn capacity(&self) -> Capacity {
        Capacity::Limited(3)
    }
}

/// The return ranks the resource anew, which panics while the thread is panicking already: that must not abort.
#[test]
fn a_thread_that_dies_is_not_stopped_by_a_priority_that_panics() {
    let fleet = Arc::new(Scheduler::<Fragile>::builder().shards(1).build().unwrap());
    fleet.insert(Fragile).map_err(|rejected| rejected.error).unwrap();
    let on_thread = Arc::clone(&fleet);
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let died = std::thread::spawn(move || {
        let _leases = on_thread.acquire_many(2).unwrap();
        std::panic::resume_unwind(Box::new("died"));
    })
    .join();
    std::panic::set_hook(hook);
    assert!(died.is_err());
    assert_eq!(fleet.check_invariants().in_flight, 0);
    assert_eq!(fleet.acquire_many(3).unwrap().len(), 3);
}
