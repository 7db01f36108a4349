//! Who does not wait and finds nothing is counted, once, whatever the way; and nobody else is.

use std::time::Duration;

use leasehold::{AcquireError, Entry, Scheduler};

type Fleet = Scheduler<Entry<u32, u32, ()>>;

fn fleet() -> Fleet {
    let fleet = Fleet::builder().shards(4).build().expect("in range");
    (0..2).for_each(|key| fleet.insert(Entry::new(key, key, ())).expect("new"));
    fleet
}

#[test]
fn each_acquisition_that_finds_nothing_counts_once() {
    type Way = fn(&Fleet) -> bool;
    let ways: [(&str, Way); 15] = [
        ("acquire", |fleet| fleet.acquire().is_err()),
        ("acquire_owned", |fleet| fleet.acquire_owned().is_err()),
        ("acquire_many", |fleet| fleet.acquire_many(2).is_err()),
        ("acquire_many_owned", |fleet| fleet.acquire_many_owned(2).is_err()),
        ("acquire_where", |fleet| fleet.acquire_where(|_| true).is_err()),
        ("acquire_where_owned", |fleet| fleet.acquire_where_owned(|_| true).is_err()),
        ("acquire_excluding", |fleet| fleet.acquire_excluding(&[0]).is_err()),
        ("acquire_excluding nobody", |fleet| fleet.acquire_excluding(&[]).is_err()),
        ("acquire_by_affinity", |fleet| fleet.acquire_by_affinity("id").is_err()),
        ("acquire_by_affinity_owned", |fleet| fleet.acquire_by_affinity_owned("id").is_err()),
        ("acquire_key", |fleet| fleet.acquire_key(&1).is_err()),
        ("acquire_explained", |fleet| fleet.acquire_explained().0.is_err()),
        ("acquire_where_explained", |fleet| fleet.acquire_where_explained(|_| true).0.is_err()),
        ("acquire_by_affinity_explained", |fleet| fleet.acquire_by_affinity_explained("id").0.is_err()),
        ("acquire_key_explained", |fleet| fleet.acquire_key_explained(&1).0.is_err()),
    ];
    for (way, refused) in ways {
        let fleet = fleet();
        assert!(!refused(&fleet), "{way}: there is something");
        assert_eq!(fleet.stats().in_vain, 0, "{way}");
        let _out = [fleet.acquire_key(&0).expect("free"), fleet.acquire_key(&1).expect("free")];
        for times in 1..=3 {
            assert!(refused(&fleet), "{way}: there is nothing");
            assert_eq!(fleet.stats().in_vain, times, "{way}");
        }
        assert!(fleet.stats_by_shard().iter().all(|stats| stats.in_vain == 0));
    }
}

#[test]
fn waits_and_other_refusals_are_no_acquisitions_in_vain() {
    let fleet = fleet();
    let out = [fleet.acquire().expect("free"), fleet.acquire().expect("free")];
    assert!(fleet.acquire_timeout(Duration::from_millis(1)).is_err());
    assert!(fleet.request().matching(|_| true).timeout(Duration::from_millis(1)).wait().is_err());
    assert!(fleet.request().affinity("id").timeout(Duration::from_millis(1)).wait().is_err());
    assert!(fleet.acquire_key(&7).is_err(), "there is no such resource");
    assert!(fleet.peek().is_none());
    fleet.close();
    assert!(matches!(fleet.acquire(), Err(AcquireError::Closed)));
    assert!(matches!(fleet.acquire_where(|_| true), Err(AcquireError::Closed)));
    let stats = fleet.stats();
    assert_eq!((stats.in_vain, stats.waits.timed_out), (0, 3));
    drop(out);
}
