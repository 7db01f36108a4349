//! Taking units.

use std::time::Duration;

use leasehold::{AcquireError, AcquireKeyError, NoneEligible, Standing};

use super::super::{
    op::Op,
    resource::{Item, Key, Site, probe},
};
use super::{
    Driver,
    guard::{Guard, Held},
};

impl<'s> Driver<'s> {
    pub(super) fn lending(&mut self, op: &Op) -> &'static str {
        let real = self.real;
        match op {
            Op::Acquire { owned } => {
                let result = match owned {
                    false => real.acquire().map(Guard::Borrowed),
                    true => real.acquire_owned().map(Guard::Owned),
                };
                self.acquired(result)
            }
            Op::AcquireKey { key, owned } => {
                let result = match owned {
                    false => real.acquire_key(&Key(*key)).map(Guard::Borrowed),
                    true => real.acquire_key_owned(&Key(*key)).map(Guard::Owned),
                };
                match result {
                    Err(AcquireKeyError::Closed) if self.oracle.closed => return "closed",
                    _ if self.oracle.closed => panic!("a closed scheduler lends"),
                    _ => self.oracle.thaw(),
                }
                match result {
                    Ok(guard) => {
                        let node = self.oracle.member(*key).expect("lent");
                        assert_eq!(guard.key().0, *key);
                        assert_eq!(node.standing(), Standing::Eligible);
                        self.lend(guard);
                        "ok"
                    }
                    Err(AcquireKeyError::NotFound { key: named }) => {
                        assert!(named.0 == *key && self.oracle.member(*key).is_none());
                        "not found"
                    }
                    Err(AcquireKeyError::NotEligible { key: named, standing, in_flight, earliest }) => {
                        let node = self.oracle.member(*key).expect("it is in the fleet");
                        assert_eq!((named.0, standing, in_flight), (*key, node.standing(), node.in_flight));
                        assert_ne!(standing, Standing::Eligible);
                        let deadline = (standing == Standing::Cooling).then_some(node.deadline);
                        assert_eq!(earliest.map(|moment| moment.as_nanos()), deadline);
                        "not eligible"
                    }
                    Err(error) => panic!("unexpected {error:?}"),
                }
            }
            Op::AcquireWhere { accept, owned } => {
                let filter = |item: &Item| {
                    probe(Site::Filter);
                    accept.accepts(item.spec.key)
                };
                let result = match owned {
                    false => real.acquire_where(filter).map(Guard::Borrowed),
                    true => real.acquire_where_owned(filter).map(Guard::Owned),
                };
                self.acquired_where(result, |key| accept.accepts(key))
            }
            Op::AcquireExcluding { keys, owned } => {
                let list: Vec<Key> = keys.iter().copied().map(Key).collect();
                let result = match owned {
                    false => real.acquire_excluding(&list).map(Guard::Borrowed),
                    true => real.acquire_excluding_owned(&list).map(Guard::Owned),
                };
                if keys.is_empty() {
                    self.acquired(result)
                } else {
                    self.acquired_where(result, |key| !keys.contains(&key))
                }
            }
            Op::AcquireByAffinity { id, owned } => {
                let result = match owned {
                    false => real.acquire_by_affinity(id).map(Guard::Borrowed),
                    true => real.acquire_by_affinity_owned(id).map(Guard::Owned),
                };
                match &result {
                    Err(AcquireError::Closed) if self.oracle.closed => return "closed",
                    _ if self.oracle.closed => panic!("a closed scheduler lends"),
                    _ => self.oracle.thaw(),
                }
                match result {
                    Ok(guard) => {
                        let shard = guard.shard();
                        self.check_affinity(*id, shard);
                        assert_eq!(Some(guard.key().0), self.oracle.best_of(shard), "the best of its shard");
                        self.lend(guard);
                        "ok"
                    }
                    Err(error) => {
                        self.expect_none(&error, false, |_| true);
                        "none"
                    }
                }
            }
            Op::AcquireMany { count, owned } => {
                let count = usize::from(*count);
                let result: Result<Vec<Guard<'s>>, AcquireError> = match owned {
                    false => {
                        real.acquire_many(count).map(|all| all.into_iter().map(Guard::Borrowed).collect())
                    }
                    true => {
                        real.acquire_many_owned(count).map(|all| all.into_iter().map(Guard::Owned).collect())
                    }
                };
                if count == 0 && !self.oracle.closed {
                    assert_eq!(result.expect("nothing was asked for").len(), 0);
                    return "nothing";
                }
                match self.refused(result) {
                    Err(end) => {
                        if end == "bad strategy" {
                            self.oracle.thaw();
                        }
                        end
                    }
                    Ok(Ok(guards)) => {
                        self.oracle.thaw();
                        assert_eq!(guards.len(), count);
                        for guard in guards {
                            self.oracle.check_best(guard.key().0);
                            self.lend(guard);
                        }
                        "ok"
                    }
                    Ok(Err(error)) => {
                        self.oracle.thaw();
                        assert!(self.oracle.available() < count as u64, "there were enough units");
                        // All there were have been lent, each shard's in its order, and returned in the same.
                        let mut taken = Vec::new();
                        while let Some(key) =
                            (0..self.oracle.config.shards).find_map(|shard| self.oracle.best_of(shard))
                        {
                            taken.push(self.oracle.lend(key));
                        }
                        self.expect_none(&error, false, |_| true);
                        for facts in taken {
                            self.oracle.give_back(&facts, None, None);
                        }
                        "none"
                    }
                }
            }
            _ => unreachable!("told apart by the caller"),
        }
    }

    pub(super) fn expect_none(&self, error: &AcquireError, filtered: bool, accepts: impl Fn(u8) -> bool) {
        let AcquireError::NoneEligible(none) = error else { panic!("unexpected {error:?}") };
        let NoneEligible { reasons, earliest, retry_after, .. } = none;
        let expected = self.oracle.none(accepts);
        assert!(filtered || expected.filtered == 0, "something is eligible: {none:?}");
        assert_eq!(reasons.at_capacity, expected.at_capacity, "{none:?}");
        assert_eq!(reasons.cooling, expected.cooling, "{none:?}");
        assert_eq!(reasons.ejected, expected.ejected, "{none:?}");
        assert_eq!(reasons.draining, expected.draining, "{none:?}");
        assert_eq!(reasons.excluded, expected.excluded, "{none:?}");
        assert_eq!(reasons.filtered, expected.filtered, "{none:?}");
        assert_eq!(reasons.total(), self.oracle.by_key.len() as u64, "{none:?}");
        assert_eq!(earliest.map(|moment| moment.as_nanos()), expected.earliest, "{none:?}");
        let after = expected.earliest.map(|moment| Duration::from_nanos(moment - self.oracle.now));
        assert_eq!(*retry_after, after, "{none:?}");
    }

    /// What an acquisition that asks the strategy must do before all else. `None` if it was refused, as it should be.
    pub(super) fn refused<T>(
        &self,
        result: Result<T, AcquireError>,
    ) -> Result<Result<T, AcquireError>, &'static str> {
        let config = &self.oracle.config;
        match &result {
            Err(AcquireError::Closed) if self.oracle.closed => Err("closed"),
            _ if self.oracle.closed => panic!("a closed scheduler lends"),
            Err(AcquireError::Strategy { chosen, shards }) => {
                assert_eq!((Some(*chosen), *shards), (config.bad_choice(), config.shards));
                Err("bad strategy")
            }
            _ if config.bad_choice().is_some() => panic!("a choice out of range was taken"),
            _ => Ok(result),
        }
    }

    pub(super) fn lend(&mut self, guard: Guard<'s>) {
        let key = guard.key().0;
        let facts = self.oracle.lend(key);
        let held = Held { guard, facts, token: None };
        held.check();
        self.held.push(held);
    }

    pub(super) fn check_affinity(&mut self, id: u8, shard: usize) {
        let all = (0..self.oracle.config.shards).all(|shard| self.oracle.best_of(shard).is_some());
        match self.affinity.get(&id) {
            Some(&home) if self.oracle.best_of(home).is_some() => {
                assert_eq!(shard, home, "id {id} left its shard, which has something");
            }
            Some(_) => {}
            None if all => {
                self.affinity.insert(id, shard);
            }
            None => {}
        }
    }

    pub(super) fn acquired(&mut self, result: Result<Guard<'s>, AcquireError>) -> &'static str {
        let refused = self.refused(result);
        if !self.oracle.closed {
            self.oracle.thaw();
        }
        match refused {
            Err(end) => end,
            Ok(Ok(guard)) => {
                self.oracle.check_best(guard.key().0);
                self.lend(guard);
                "ok"
            }
            Ok(Err(error)) => {
                self.expect_none(&error, false, |_| true);
                "none"
            }
        }
    }

    pub(super) fn acquired_where(
        &mut self,
        result: Result<Guard<'s>, AcquireError>,
        accepts: impl Fn(u8) -> bool,
    ) -> &'static str {
        let refused = self.refused(result);
        if !self.oracle.closed {
            self.oracle.thaw();
        }
        match refused {
            Err(end) => end,
            Ok(Ok(guard)) => {
                self.oracle.check_where(guard.key().0, &accepts);
                self.lend(guard);
                "ok"
            }
            Ok(Err(error)) => {
                assert!(!self.oracle.eligible().any(|node| accepts(node.spec.key)), "one was acceptable");
                self.expect_none(&error, true, accepts);
                "none"
            }
        }
    }
}
