//! Who is in the fleet.

use leasehold::{InsertError, KeyError, Rejected, UpdateError};

use super::super::{
    op::{Change, Op},
    oracle::Refusal,
    resource::{Item, Key, Site, Spec, probe},
};
use super::Driver;

impl Driver<'_> {
    pub(super) fn membership(&mut self, op: &Op) -> &'static str {
        let real = self.real;
        match op {
            Op::Insert(spec) => self.insert(*spec),
            Op::InsertBatch(specs) => self.insert_batch(specs),
            Op::Update(spec) => {
                let item = self.item(*spec);
                let version = item.version;
                let result = real.update(item).map_err(|Rejected { returned, error }| {
                    assert_eq!(returned.version, version, "the value comes back");
                    (error, ())
                });
                self.check_update(result, spec.key, Some((*spec, version)))
            }
            Op::UpdateWith { key, change } => {
                let version = self.versions + 1;
                let mut made = None;
                let mut calls = 0;
                let current = self.oracle.member(*key).map(|node| node.version);
                let ledger = self.ledger;
                let result = real.update_with(&Key(*key), |old| {
                    probe(Site::Change);
                    calls += 1;
                    assert_eq!(Some(old.version), current, "the current value is shown");
                    let spec = match *change {
                        Change::To(spec) => spec,
                        Change::Worsen => Spec { base: old.spec.base.saturating_add(1), ..old.spec },
                        Change::Rename => Spec { key: old.spec.key.wrapping_add(100), ..old.spec },
                    };
                    made = Some((spec, version));
                    Item::new(spec, version, ledger)
                });
                self.versions += 1;
                assert!(calls <= 1, "nobody came between");
                self.check_update(result.map_err(|error| (error, ())), *key, made)
            }
            Op::Remove(key) => match real.remove(&Key(*key)) {
                Err(KeyError::Closed) if self.oracle.closed => "closed",
                _ if self.oracle.closed => panic!("a closed scheduler changes"),
                Err(KeyError::NotFound { key: named }) => {
                    assert!(named.0 == *key && self.oracle.member(*key).is_none());
                    "not found"
                }
                Ok(removed) => {
                    assert_eq!(removed.in_flight, self.oracle.remove(*key), "leases that were out");
                    if removed.in_flight == 0 { "ok" } else { "ok, lent" }
                }
                Err(error) => panic!("unexpected {error:?}"),
            },
            Op::EvictWorst => {
                let evicted = real.evict_worst();
                if self.oracle.closed {
                    assert_eq!(evicted, None, "a closed scheduler changes");
                    return "closed";
                }
                self.oracle.thaw();
                match evicted {
                    Some(key) => {
                        self.oracle.check_worst(key.0);
                        self.oracle.evict(key.0);
                        "ok"
                    }
                    None => {
                        assert_eq!(self.oracle.eligible().count(), 0);
                        "none"
                    }
                }
            }
            _ => unreachable!("told apart by the caller"),
        }
    }

    pub(super) fn item(&mut self, spec: Spec) -> Item {
        self.versions += 1;
        Item::new(spec, self.versions, self.ledger)
    }

    pub(super) fn insert(&mut self, spec: Spec) -> &'static str {
        let item = self.item(spec);
        let version = item.version;
        let mut refusal = self.oracle.refusal(&spec);
        // A home is chosen before anybody is evicted, so that a newcomer who does not get in costs nobody's place.
        let populations: Vec<usize> =
            (0..self.oracle.config.shards).map(|shard| self.oracle.population(shard)).collect();
        let result = self.real.insert(item);
        let mut end = "ok";
        if refusal.is_none() && self.oracle.is_full(1) {
            refusal = Some(Refusal::Full(spec.key));
            if self.oracle.evicts() {
                self.oracle.thaw();
                let worst = self.oracle.eligible().map(|node| node.rank).max();
                if worst.is_some_and(|worst| worst > spec.rank(0)) {
                    refusal = None;
                    // Which of several equals in different shards went is seen from the outside.
                    let listed: Vec<u8> = self.real.iter_keys().map(|key| key.0).collect();
                    let gone: Vec<u8> =
                        self.oracle.by_key.keys().filter(|key| !listed.contains(key)).copied().collect();
                    assert_eq!(gone.len(), 1, "one resource made room");
                    self.oracle.check_worst(gone[0]);
                    self.oracle.evict(gone[0]);
                    end = "ok, evicted";
                }
            }
        }
        match (result, refusal) {
            (Ok(()), None) => {
                let shard = self.shard_of(spec.key);
                match spec.home {
                    Some(home) => assert_eq!(shard, home, "the home that was asked for"),
                    None => {
                        assert_eq!(populations.iter().min(), Some(&populations[shard]), "the emptiest shard")
                    }
                }
                self.oracle.insert(spec, version, shard);
                end
            }
            (Err(Rejected { returned, error }), Some(refusal)) => {
                assert_eq!(returned.version, version, "the resource comes back");
                self.check_insert_error(error, refusal)
            }
            (result, refusal) => panic!("{result:?} instead of {refusal:?}"),
        }
    }

    pub(super) fn check_insert_error(&self, error: InsertError<Key>, refusal: Refusal) -> &'static str {
        let config = &self.oracle.config;
        match (error, refusal) {
            (InsertError::Closed, Refusal::Closed) => "closed",
            (InsertError::Capacity { key, .. }, Refusal::Capacity(wrong)) if key.0 == wrong => "capacity",
            (InsertError::Home { key, shards, home }, Refusal::Home(wrong)) if key.0 == wrong => {
                assert!(shards == config.shards && home >= shards);
                "home"
            }
            (InsertError::Duplicate { key }, Refusal::Duplicate(wrong)) if key.0 == wrong => "duplicate",
            (InsertError::Full { key, max }, Refusal::Full(wrong)) if key.0 == wrong => {
                assert_eq!(Some(max), config.max.map(|(max, _)| max));
                "full"
            }
            (error, refusal) => panic!("{error:?} instead of {refusal:?}"),
        }
    }

    pub(super) fn shard_of(&self, key: u8) -> usize {
        let snapshot = self.real.snapshot();
        snapshot.iter().find(|state| state.key.0 == key).expect("inserted").shard
    }

    pub(super) fn insert_batch(&mut self, specs: &[Spec]) -> &'static str {
        let items: Vec<Item> = specs.iter().map(|&spec| self.item(spec)).collect();
        let versions: Vec<u32> = items.iter().map(|item| item.version).collect();
        let refusal = self.oracle.batch_refusal(specs);
        match (self.real.insert_batch(items), refusal) {
            (Ok(count), None) => {
                assert_eq!(count, specs.len());
                // Best first; equals as they were given.
                let mut order: Vec<usize> = (0..specs.len()).collect();
                order.sort_by_key(|&i| specs[i].rank(0));
                for i in order {
                    let shard = self.shard_of(specs[i].key);
                    assert!(specs[i].home.is_none_or(|home| home == shard), "the home that was asked for");
                    self.oracle.insert(specs[i], versions[i], shard);
                }
                if specs.is_empty() { "empty" } else { "ok" }
            }
            (Err(Rejected { returned, error }), Some(refusal)) => {
                let back: Vec<u32> = returned.iter().map(|item| item.version).collect();
                assert_eq!(back, versions, "all come back, in order");
                self.check_insert_error(error, refusal)
            }
            (result, refusal) => panic!("{result:?} instead of {refusal:?}"),
        }
    }

    pub(super) fn check_update<T>(
        &mut self,
        result: Result<(), (UpdateError<Key>, T)>,
        key: u8,
        new: Option<(Spec, u32)>,
    ) -> &'static str {
        let valid = new.and_then(|(spec, version)| (spec.key == key).then_some((spec, version)));
        match result {
            Err((UpdateError::Closed, _)) if self.oracle.closed => "closed",
            _ if self.oracle.closed => panic!("a closed scheduler changes"),
            Err((UpdateError::NotFound { key: named }, _))
                if named.0 == key && self.oracle.member(key).is_none() =>
            {
                "not found"
            }
            Err((UpdateError::KeyChanged { key: named }, _)) if named.0 == key && valid.is_none() => {
                "key changed"
            }
            Err((UpdateError::Capacity { key: named, .. }, _))
                if named.0 == key && valid.is_some_and(|(spec, _)| spec.limit().is_none()) =>
            {
                "capacity"
            }
            Ok(()) => {
                let (spec, version) = valid.expect("the key stays");
                self.oracle.update(spec, version);
                "ok"
            }
            Err((error, _)) => panic!("unexpected {error:?}"),
        }
    }
}
