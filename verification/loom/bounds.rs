//! A bounded fleet: a newcomer that finds no room, or takes the place of the worst, against everything that meets it on the
//! way.
//!
//! "Full" is said by the roster, which counts a resource a moment before it is seen and a moment after it is gone; so these
//! models judge sums and the end, not each answer by itself.

use leasehold::{InsertError, Overflow, internals::sync::Arc};

use crate::{
    common::model_within,
    driver::{Fleet, Setup},
};

/// How an insertion ended: in, duplicate, full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Came {
    In,
    Duplicate,
    Full,
}
use Came::{Duplicate, Full, In};

fn insert(fleet: &Fleet, key: u8) -> Came {
    match fleet.scheduler.insert(fleet.resource(key)).map_err(|rejected| rejected.error) {
        Ok(()) => In,
        Err(InsertError::Duplicate { .. }) => Duplicate,
        Err(InsertError::Full { .. }) => Full,
        Err(error) => panic!("{error}"),
    }
}

fn batch(fleet: &Fleet, from: u8, count: u8) -> Came {
    let batch = (from..from + count).map(|key| fleet.resource(key)).collect();
    match fleet.scheduler.insert_batch(batch).map_err(|rejected| rejected.error) {
        Ok(_) => In,
        Err(InsertError::Duplicate { .. }) => Duplicate,
        Err(InsertError::Full { .. }) => Full,
        Err(error) => panic!("{error}"),
    }
}

/// Two threads on a fleet with the members `before` and room for `max`; `judge` gets both results and the keys of the end.
fn bounded<A: 'static, B: 'static>(
    bound: usize,
    (max, overflow): (usize, Overflow),
    before: &'static [u8],
    main: fn(&Fleet) -> A,
    other: fn(&Fleet) -> B,
    judge: fn(A, B, &[u8]),
) {
    model_within(bound, move || {
        let fleet = Arc::new(Fleet::with(Setup::default(), |builder| builder.max_resources(max, overflow)));
        before.iter().for_each(|&key| assert_eq!(insert(&fleet, key), In));
        let thread = {
            let fleet = Arc::clone(&fleet);
            crate::common::spawn(move || other(&fleet))
        };
        let mine = main(&fleet);
        let others = thread.join().expect("no panic");
        let mut keys: Vec<u8> = fleet.scheduler.iter_keys().collect();
        keys.sort_unstable();
        assert!(keys.len() <= max, "the bound holds");
        assert_eq!(fleet.scheduler.check_invariants().members, keys.len() as u64);
        judge(mine, others, &keys);
        let Ok(fleet) = Arc::try_unwrap(fleet) else { panic!("all threads are gone") };
        fleet.finish();
    });
}

const ONE: (usize, Overflow) = (1, Overflow::Reject);
const ONE_EVICTS: (usize, Overflow) = (1, Overflow::EvictWorst);
const TWO_EVICT: (usize, Overflow) = (2, Overflow::EvictWorst);

/// The first insertion of a key has linked it and then fails for want of room; the second, which has waited for it, gets in.
#[test]
fn insert_full_insert_same_key() {
    bounded(
        2,
        ONE,
        &[],
        |fleet| insert(fleet, 0),
        |fleet| {
            let in_the_way = insert(fleet, 2);
            if in_the_way == In {
                fleet.scheduler.remove(&2).expect("nobody else removes");
            }
            (in_the_way, insert(fleet, 0))
        },
        |first, (in_the_way, second), keys| {
            assert_eq!(keys, [0]);
            match first {
                In => assert_ne!(second, In),
                Full => assert_eq!((in_the_way, second), (In, In)),
                Duplicate => assert_eq!(second, In),
            }
        },
    );
}

#[test]
fn insert_insert_for_one_place() {
    bounded(
        2,
        ONE,
        &[],
        |fleet| insert(fleet, 0),
        |fleet| insert(fleet, 1),
        |one, two, keys| {
            assert!(matches!((one, two, keys), (In, Full, [0]) | (Full, In, [1])));
        },
    );
}

#[test]
fn insert_remove_for_one_place() {
    bounded(
        2,
        ONE,
        &[1],
        |fleet| insert(fleet, 0),
        |fleet| fleet.scheduler.remove(&1).expect("nobody else removes").in_flight,
        |came, _, keys| assert!(matches!((came, keys), (In, [0]) | (Full, []))),
    );
}

/// A batch that has staged everything and then finds no room: undone, its number goes to the next one.
#[test]
fn undone_for_want_of_room_then_the_next() {
    bounded(
        2,
        (2, Overflow::Reject),
        &[1],
        |fleet| (batch(fleet, 2, 2), batch(fleet, 4, 1)),
        |fleet| {
            let early = fleet.scheduler.get(&2).is_some();
            (early, fleet.scheduler.acquire_key(&3).is_ok(), fleet.scheduler.remove(&2).is_ok())
        },
        |came, seen, keys| {
            assert_eq!((came, seen), ((Full, In), (false, false, false)));
            assert_eq!(keys, [1, 4]);
        },
    );
}

/// A batch against a single newcomer, room for one of them.
#[test]
fn batch_insert_for_one_place() {
    bounded(
        2,
        (2, Overflow::Reject),
        &[],
        |fleet| batch(fleet, 0, 2),
        |fleet| insert(fleet, 2),
        |one, two, keys| assert!(matches!((one, two, keys), (In, Full, [0, 1]) | (Full, In, [2]))),
    );
}

/// Whoever is lent is not evicted, whoever is evicted is not lent. The lease goes on until all is over: by then its resource must be there.
#[test]
fn evicting_insert_acquire() {
    bounded(
        2,
        ONE_EVICTS,
        &[1],
        |fleet| insert(fleet, 0),
        |fleet| fleet.scheduler.acquire_owned().ok(),
        |came, lent, keys| {
            let lent = lent.as_ref().map(|lease| lease.check());
            assert!(lent.is_none_or(|key| keys.contains(&key)), "it is lent, and has gone all the same");
            assert!(
                matches!((came, lent, keys), (In, Some(0) | None, [0]) | (Full, Some(1), [1])),
                "{came:?}, {lent:?}"
            );
        },
    );
}

/// The worst comes back, or does not, while a newcomer looks for it.
#[test]
fn evicting_insert_release() {
    model_within(2, || {
        let fleet = Arc::new(Fleet::with(Setup::default(), |b| b.max_resources(1, Overflow::EvictWorst)));
        assert_eq!(insert(&fleet, 1), In);
        let lease = fleet.scheduler.acquire_owned().expect("eligible");
        let other = {
            let fleet = Arc::clone(&fleet);
            crate::common::spawn(move || insert(&fleet, 0))
        };
        lease.check();
        drop(lease);
        let came = other.join().expect("no panic");
        let keys: Vec<u8> = fleet.scheduler.iter_keys().collect();
        assert!(matches!((came, &keys[..]), (In, [0]) | (Full, [1])), "{came:?}, {keys:?}");
        fleet.scheduler.check_invariants();
        let Ok(fleet) = Arc::try_unwrap(fleet) else { panic!("all threads are gone") };
        fleet.finish();
    });
}

/// Two newcomers, each better than what is there: the two best of four stay.
#[test]
fn evicting_insert_evicting_insert() {
    bounded(
        1,
        TWO_EVICT,
        &[2, 3],
        |fleet| insert(fleet, 0),
        |fleet| insert(fleet, 1),
        |one, two, keys| {
            assert_eq!((one, two, keys), (In, In, &[0, 1][..]));
        },
    );
}

/// Room for one: the better newcomer stays, whatever came of the other.
#[test]
fn evicting_inserts_for_one_place() {
    bounded(
        1,
        ONE_EVICTS,
        &[2],
        |fleet| insert(fleet, 0),
        |fleet| insert(fleet, 1),
        |one, two, keys| {
            match (one, two) {
                (In, In) => assert!(keys == [0] || keys == [1]),
                (In, Full) => assert_eq!(keys, [0]),
                // The first saw nobody eligible: the second was between its eviction and its admission.
                (Full, In) => assert_eq!(keys, [1]),
                other => panic!("{other:?}"),
            }
        },
    );
}

/// The same key twice: one evicts and gets in, the other is a duplicate; or finds nobody to evict.
#[test]
fn evicting_insert_same_key() {
    bounded(
        2,
        ONE_EVICTS,
        &[1],
        |fleet| insert(fleet, 0),
        |fleet| insert(fleet, 0),
        |one, two, keys| {
            assert_eq!(keys, [0]);
            assert!((one == In) != (two == In), "{one:?}, {two:?}");
        },
    );
}

/// The key that is in the way is the one to be evicted, or removed.
#[test]
fn evicting_insert_remove() {
    bounded(
        2,
        ONE_EVICTS,
        &[1],
        |fleet| insert(fleet, 0),
        |fleet| fleet.scheduler.remove(&1).is_ok(),
        |came, removed, keys| assert!(matches!((came, removed, keys), (In, _, [0]) | (Full, true, []))),
    );
}

/// A newcomer evicts while the one it wants to evict is evicted by hand.
#[test]
fn evicting_insert_evict() {
    bounded(
        2,
        TWO_EVICT,
        &[1, 2],
        |fleet| insert(fleet, 0),
        |fleet| fleet.scheduler.evict_worst(),
        |came, evicted, keys| match (came, evicted) {
            (In, Some(2)) => assert!(keys == [0, 1] || keys == [0], "{keys:?}"),
            (In, Some(1)) => assert_eq!(keys, [0]),
            (Full, Some(2)) => assert_eq!(keys, [1]),
            other => panic!("{other:?}"),
        },
    );
}
