//! Runs operations on the real scheduler and on the oracle, and compares everything after each.

use std::{
    collections::BTreeMap,
    ops::{Deref, RangeInclusive},
    sync::Arc,
    time::Duration,
};

use leasehold::{
    AcquireError, AcquireKeyError, Hold, InsertError, KeyError, Lease, ManualClock, NoneEligible, Outcome,
    OwnedLease, Peek, Rejected, ReleaseError, Standing, Token, UpdateError, WeightsError,
};

use super::{
    config::Config,
    op::{Accept, Change, Ended, Op},
    oracle::{LeaseFacts, Oracle, Refusal},
    resource::{Item, Key, Ledger, ModelHash, Site, Spec, probe},
};

/// The scheduler under test.
pub type Scheduler = leasehold::Scheduler<Item, ModelHash>;

/// How often which operation ended how: a run that met nothing has checked nothing.
#[derive(Debug, Default)]
pub struct Coverage(pub BTreeMap<(&'static str, &'static str), u64>);

impl Coverage {
    fn saw(&mut self, op: &'static str, end: &'static str) {
        *self.0.entry((op, end)).or_default() += 1;
    }

    pub fn add(&mut self, other: Coverage) {
        for (key, count) in other.0 {
            *self.0.entry(key).or_default() += count;
        }
    }

    pub fn operations(&self) -> u64 {
        self.0.values().sum()
    }
}

enum Guard<'s> {
    Borrowed(Lease<'s, Item>),
    Owned(OwnedLease<Item>),
}

impl Deref for Guard<'_> {
    type Target = Item;

    fn deref(&self) -> &Item {
        match self {
            Guard::Borrowed(lease) => lease,
            Guard::Owned(lease) => lease,
        }
    }
}

impl Guard<'_> {
    fn key(&self) -> &Key {
        match self {
            Guard::Borrowed(lease) => lease.key(),
            Guard::Owned(lease) => lease.key(),
        }
    }

    fn shard(&self) -> usize {
        match self {
            Guard::Borrowed(lease) => lease.shard(),
            Guard::Owned(lease) => lease.shard(),
        }
    }

    fn token(&mut self) -> Token {
        match self {
            Guard::Borrowed(lease) => lease.token(),
            Guard::Owned(lease) => lease.token(),
        }
    }

    fn into_token(self) -> Token {
        match self {
            Guard::Borrowed(lease) => lease.into_token(),
            Guard::Owned(lease) => lease.into_token(),
        }
    }

    fn end(self, ended: Ended) {
        match (self, ended) {
            (guard, Ended::Dropped) => drop(guard),
            (Guard::Borrowed(lease), Ended::Released) => lease.release(),
            (Guard::Owned(lease), Ended::Released) => lease.release(),
            (Guard::Borrowed(lease), Ended::After(span)) => lease.release_after(span),
            (Guard::Owned(lease), Ended::After(span)) => lease.release_after(span),
            (Guard::Borrowed(lease), Ended::Finished(outcome)) => lease.finish(outcome),
            (Guard::Owned(lease), Ended::Finished(outcome)) => lease.finish(outcome),
        }
    }
}

struct Held<'s> {
    guard: Guard<'s>,
    facts: LeaseFacts,
    token: Option<Token>,
}

impl Held<'_> {
    /// The holder sees what was lent, whatever has happened to the resource since.
    fn check(&self) {
        assert_eq!(self.guard.version, self.facts.version, "a lease keeps its value");
        assert_eq!(self.guard.spec.key, self.facts.key);
        assert_eq!(self.guard.key().0, self.facts.key);
        assert_eq!(self.guard.shard(), self.facts.shard);
    }
}

/// Both schedulers, and everything that is out.
pub struct Driver<'s> {
    real: &'s Scheduler,
    clock: &'s ManualClock,
    ledger: &'s Arc<Ledger>,
    pub oracle: Oracle,
    pub coverage: Coverage,
    held: Vec<Held<'s>>,
    tokens: Vec<Token>,
    peeks: Vec<(Peek<'s, Item>, u32)>,
    /// Where each id was sent when every shard had something to lend.
    affinity: BTreeMap<u8, usize>,
    versions: u32,
}

const PEEKS: usize = 4;

impl<'s> Driver<'s> {
    pub fn new(config: Config, real: &'s Scheduler, clock: &'s ManualClock, ledger: &'s Arc<Ledger>) -> Self {
        let mut driver = Driver {
            real,
            clock,
            ledger,
            oracle: Oracle::new(config),
            coverage: Coverage::default(),
            held: Vec::new(),
            tokens: Vec::new(),
            peeks: Vec::new(),
            affinity: BTreeMap::new(),
            versions: 0,
        };
        let room = config.max.map_or(usize::MAX, |(max, _)| max);
        for key in 0..config.initial.min(room.min(200) as u8) {
            let bytes = [0, key, key.wrapping_mul(29) ^ config.seed as u8, key >> 2, 0, 0];
            if let Op::Insert(spec) = Op::decode(bytes) {
                driver.insert(Spec { home: spec.home.filter(|&home| home < config.shards), ..spec });
            }
        }
        driver
    }

    fn item(&mut self, spec: Spec) -> Item {
        self.versions += 1;
        Item::new(spec, self.versions, self.ledger)
    }

    fn deadline(&self, span: Duration) -> u64 {
        self.oracle.now.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)).min(u64::MAX - 1)
    }

    fn expect_none(&self, error: &AcquireError, filtered: bool, accepts: impl Fn(u8) -> bool) {
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
    fn refused<T>(&self, result: Result<T, AcquireError>) -> Result<Result<T, AcquireError>, &'static str> {
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

    fn lend(&mut self, guard: Guard<'s>) {
        let key = guard.key().0;
        let facts = self.oracle.lend(key);
        let held = Held { guard, facts, token: None };
        held.check();
        self.held.push(held);
    }

    fn check_affinity(&mut self, id: u8, shard: usize) {
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

    fn keep_peek(&mut self, peek: Peek<'s, Item>, keep: bool) {
        let version = peek.version;
        if keep {
            if self.peeks.len() == PEEKS {
                self.peeks.remove(0);
            }
            self.peeks.push((peek, version));
        }
    }

    fn insert(&mut self, spec: Spec) -> &'static str {
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

    fn check_insert_error(&self, error: InsertError<Key>, refusal: Refusal) -> &'static str {
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

    fn shard_of(&self, key: u8) -> usize {
        let snapshot = self.real.snapshot();
        snapshot.iter().find(|state| state.key.0 == key).expect("inserted").shard
    }

    fn insert_batch(&mut self, specs: &[Spec]) -> &'static str {
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

    fn check_update<T>(
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

    fn end_of(&self, ended: Ended) -> (Option<u64>, Option<Outcome>) {
        match ended {
            Ended::Dropped | Ended::Released => (None, None),
            Ended::After(span) => (Some(self.deadline(span)), None),
            Ended::Finished(outcome) => (self.cooling_of(outcome), Some(outcome)),
        }
    }

    fn cooling_of(&self, outcome: Outcome) -> Option<u64> {
        match outcome {
            Outcome::RateLimited { retry_after } => Some(self.deadline(retry_after)),
            _ => None,
        }
    }

    /// The lease of a token, if it is out: its entry is then free again.
    fn redeem(&mut self, token: Token) -> Option<LeaseFacts> {
        let (generation, lease) = self.oracle.tokens.get_mut(&token.slot())?;
        if *generation != token.generation() {
            return None;
        }
        let facts = lease.take()?;
        *generation += 1;
        Some(facts)
    }

    fn mint(&mut self, token: Token, facts: &LeaseFacts) {
        let (generation, lease) = self.oracle.tokens.entry(token.slot()).or_insert((1, None));
        assert_eq!(token.generation(), *generation, "a new token has its entry's generation");
        assert!(lease.is_none(), "the entry is in use");
        *lease = Some(facts.clone());
        let bytes = Token::from_bytes(token.to_bytes());
        assert_eq!(bytes, token);
        self.tokens.push(token);
    }

    fn hold(
        &mut self,
        key: u8,
        hold: Hold,
        on: bool,
        call: impl FnOnce(&Scheduler, &Key) -> Result<bool, KeyError<Key>>,
    ) -> &'static str {
        match call(self.real, &Key(key)) {
            Err(KeyError::Closed) if self.oracle.closed => "closed",
            _ if self.oracle.closed => panic!("a closed scheduler changes"),
            Err(KeyError::NotFound { key: named }) if named.0 == key && self.oracle.member(key).is_none() => {
                "not found"
            }
            Ok(changed) => {
                assert_eq!(changed, self.oracle.set_hold(key, hold, on), "whether it changed anything");
                if changed { "changed" } else { "as before" }
            }
            Err(error) => panic!("unexpected {error:?}"),
        }
    }

    /// Runs one operation on both sides and compares what can be seen of it.
    pub fn step(&mut self, op: &Op) {
        let end = self.run_op(op);
        self.coverage.saw(op.name(), end);
        self.check();
    }

    fn run_op(&mut self, op: &Op) -> &'static str {
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
            Op::Get { key, keep } => {
                let found = real.get(&Key(*key));
                assert_eq!(
                    found.as_ref().map(|peek| peek.version),
                    self.oracle.member(*key).map(|node| node.version)
                );
                assert_eq!(real.contains(&Key(*key)), found.is_some());
                match found {
                    Some(peek) => {
                        self.keep_peek(peek, *keep);
                        "found"
                    }
                    None => "not found",
                }
            }
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
            Op::End { lease, ended } => {
                if self.held.is_empty() {
                    return "no lease";
                }
                let held = self.held.swap_remove(usize::from(*lease) % self.held.len());
                held.check();
                let Held { guard, facts, token } = held;
                let (deadline, outcome) = self.end_of(*ended);
                guard.end(*ended);
                match token {
                    None => {
                        self.oracle.give_back(&facts, deadline, outcome);
                        "ok"
                    }
                    Some(token) => {
                        let out = self.redeem(token).is_some();
                        if out {
                            self.oracle.give_back(&facts, deadline, outcome);
                        }
                        self.oracle.unpin(facts.node);
                        if out { "before its token" } else { "after its token" }
                    }
                }
            }
            Op::Token { lease } => {
                if self.held.is_empty() {
                    return "no lease";
                }
                let index = usize::from(*lease) % self.held.len();
                let token = self.held[index].guard.token();
                if let Some(earlier) = self.held[index].token {
                    assert_eq!(token, earlier, "asked again, the token is the same");
                    return "again";
                }
                self.held[index].token = Some(token);
                let facts = self.held[index].facts.clone();
                self.mint(token, &facts);
                self.oracle.pin(facts.node);
                "ok"
            }
            Op::IntoToken { lease } => {
                if self.held.is_empty() {
                    return "no lease";
                }
                let Held { guard, facts, token } =
                    self.held.swap_remove(usize::from(*lease) % self.held.len());
                let minted = guard.into_token();
                match token {
                    Some(token) => {
                        assert_eq!(token, minted);
                        self.oracle.unpin(facts.node);
                        "again"
                    }
                    None => {
                        self.mint(minted, &facts);
                        "ok"
                    }
                }
            }
            Op::Redeem { token, outcome } => {
                if self.tokens.is_empty() {
                    return "no token";
                }
                let token = self.tokens[usize::from(*token) % self.tokens.len()];
                let deadline = outcome.and_then(|outcome| self.cooling_of(outcome));
                let result = match outcome {
                    None => real.release(token),
                    Some(outcome) => real.finish(token, *outcome),
                };
                match self.redeem(token) {
                    Some(facts) => {
                        assert_eq!(result, Ok(()), "the token's lease is out");
                        self.oracle.give_back(&facts, deadline, *outcome);
                        "ok"
                    }
                    None => {
                        let current = self.oracle.tokens[&token.slot()].0;
                        let generation = token.generation();
                        assert_eq!(result, Err(ReleaseError::Stale { generation, current }));
                        "stale"
                    }
                }
            }
            Op::RedeemForeign { bits } => {
                // Another scheduler's, and (if there is one to be bent) one of a slot or generation that never was.
                let base = self.tokens.first().map_or([0x55; 16], |token| token.to_bytes());
                let mut other = base;
                other[15] ^= 1 | bits;
                assert_eq!(real.release(Token::from_bytes(other)), Err(ReleaseError::Foreign));
                let mut beyond = base;
                beyond[0] |= 0x80;
                assert_eq!(real.release(Token::from_bytes(beyond)), Err(ReleaseError::Foreign));
                let mut early = base;
                early[4] = 0x40;
                assert_eq!(real.release(Token::from_bytes(early)), Err(ReleaseError::Foreign));
                "refused"
            }
            Op::Exclude(key) => self.hold(*key, Hold::Excluded, true, |s, key| s.exclude(key)),
            Op::Include(key) => self.hold(*key, Hold::Excluded, false, |s, key| s.include(key)),
            Op::Warm(key) => self.hold(*key, Hold::Cooling, false, |s, key| s.warm(key)),
            Op::Eject(key) => self.hold(*key, Hold::Ejected, true, |s, key| s.eject(key)),
            Op::Readmit(key) => self.hold(*key, Hold::Ejected, false, |s, key| s.readmit(key)),
            Op::Drain(key) => self.hold(*key, Hold::Draining, true, |s, key| s.drain(key)),
            Op::Undrain(key) => self.hold(*key, Hold::Draining, false, |s, key| s.undrain(key)),
            Op::Cool { key, span } => match real.cool(&Key(*key), *span) {
                Err(KeyError::Closed) if self.oracle.closed => "closed",
                _ if self.oracle.closed => panic!("a closed scheduler changes"),
                Err(KeyError::NotFound { key: named }) => {
                    assert!(named.0 == *key && self.oracle.member(*key).is_none());
                    "not found"
                }
                Ok(changed) => {
                    let deadline = self.deadline(*span);
                    assert_eq!(changed, self.oracle.cool(*key, deadline), "whether it changed anything");
                    if changed { "changed" } else { "as before" }
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
            Op::Peek { keep } => {
                let peek = real.peek();
                let exact = self.oracle.config.is_exact();
                self.oracle.check_peek(peek.as_ref().map(|peek| peek.spec.key), exact);
                match peek {
                    Some(peek) => {
                        self.check_version(&peek);
                        self.keep_peek(peek, *keep);
                        "some"
                    }
                    None => "none",
                }
            }
            Op::PeekByAffinity { id } => {
                let peek = real.peek_by_affinity(id);
                self.oracle.check_peek(peek.as_ref().map(|peek| peek.spec.key), false);
                match peek {
                    Some(peek) => {
                        self.check_version(&peek);
                        "some"
                    }
                    None => "none",
                }
            }
            Op::PeekWorst => {
                let peek = real.peek_worst();
                self.oracle.thaw();
                match peek {
                    Some(peek) => {
                        self.oracle.check_worst(peek.spec.key);
                        self.check_version(&peek);
                        "some"
                    }
                    None => {
                        assert_eq!(self.oracle.eligible().count(), 0);
                        "none"
                    }
                }
            }
            Op::DropPeeks => {
                self.check_peeks();
                self.peeks.clear();
                "ok"
            }
            Op::Advance(span) => {
                self.clock.advance(*span);
                self.oracle.now += span.as_nanos() as u64;
                assert_eq!(real.now().as_nanos(), self.oracle.now);
                "ok"
            }
            Op::SetWeights(weights) => {
                let shards = self.oracle.config.shards;
                let length = if weights.len() > 4 { shards + 1 } else { shards };
                let weights: Vec<u32> = weights.iter().copied().cycle().take(length).collect();
                match real.set_shard_weights(&weights) {
                    Ok(()) => {
                        assert!(!self.oracle.closed, "nothing changes after the close");
                        assert!(weights.len() == shards && weights.iter().any(|&weight| weight > 0));
                        self.affinity.clear();
                        "ok"
                    }
                    Err(WeightsError::Closed) => {
                        assert!(self.oracle.closed);
                        "closed"
                    }
                    Err(WeightsError::Length { given, .. }) => {
                        assert!(given == weights.len() && given != shards);
                        "length"
                    }
                    Err(_) => {
                        assert!(weights.iter().all(|&weight| weight == 0));
                        "no weight"
                    }
                }
            }
            Op::Snapshot => {
                self.check_snapshot();
                "ok"
            }
            Op::Close => {
                assert_eq!(real.close(), !self.oracle.closed, "one call closes");
                self.oracle.closed = true;
                assert!(real.is_closed());
                "ok"
            }
        }
    }

    fn acquired(&mut self, result: Result<Guard<'s>, AcquireError>) -> &'static str {
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

    fn acquired_where(
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

    fn check_version(&self, item: &Item) {
        let current = self.oracle.member(item.spec.key).map(|node| node.version);
        assert_eq!(Some(item.version), current, "the current value is shown");
    }

    fn check_peeks(&self) {
        for (peek, version) in &self.peeks {
            assert_eq!(peek.version, *version, "a peek keeps its value");
        }
    }

    /// The structure from scratch, and every count.
    pub fn check(&self) {
        let (real, oracle) = (self.real, &self.oracle);
        let tally = real.check_invariants();
        assert_eq!(tally.members, oracle.by_key.len() as u64, "members");
        assert_eq!(tally.in_flight, oracle.in_flight(), "leases out");
        assert_eq!(tally.leaving, oracle.leaving(), "removed but lent");
        assert_eq!(real.len(), oracle.by_key.len());
        assert_eq!(real.is_empty(), oracle.by_key.is_empty());
        let stats = real.stats();
        let none = oracle.none(|_| true);
        assert!(stats.consistent, "nobody else is here");
        assert_eq!(stats.members, oracle.by_key.len() as u64);
        assert_eq!(stats.eligible, none.filtered);
        assert_eq!(stats.reasons.at_capacity, none.at_capacity);
        assert_eq!(stats.reasons.cooling, none.cooling);
        assert_eq!(stats.reasons.ejected, none.ejected);
        assert_eq!(stats.reasons.draining, none.draining);
        assert_eq!(stats.reasons.excluded, none.excluded);
        assert_eq!(stats.reasons.filtered, 0);
        assert_eq!(stats.available, oracle.available());
        assert_eq!(stats.leaving, oracle.leaving());
        assert_eq!(stats.in_flight, oracle.in_flight());
        assert_eq!(stats.closed, oracle.closed);
        assert_eq!(stats.shards.len(), oracle.config.shards);
        for (shard, &eligible) in stats.shards.iter().enumerate() {
            assert_eq!(eligible as usize, oracle.in_shard(shard).count(), "eligible in shard {shard}");
        }
        macro_rules! same {
            ($($count:ident)*) => { $( assert_eq!(stats.$count, oracle.counts.$count, stringify!($count)); )* };
        }
        same!(inserted updated removed evicted lent returned excluded included cooled warmed);
        same!(ejected readmitted drained undrained succeeded failed rate_limited cancelled);
    }

    /// Every word of every resource.
    pub fn check_snapshot(&self) {
        let mut snapshot = self.real.snapshot();
        snapshot.sort_by_key(|state| state.key.0);
        assert_eq!(snapshot.len(), self.oracle.by_key.len());
        for (state, node) in snapshot.iter().zip(self.oracle.members()) {
            assert_eq!(state.key.0, node.spec.key);
            assert_eq!(state.shard, node.shard, "{state:?}");
            assert_eq!(state.rank, node.rank, "{state:?}");
            assert_eq!(state.in_flight, node.in_flight, "{state:?}");
            assert_eq!(state.limit, node.limit, "{state:?}");
            assert_eq!(state.standing, node.standing(), "{state:?}");
            assert_eq!(state.holds, node.holds(), "{state:?}");
            assert_eq!(state.cooling_until, node.cooling.then_some(node.deadline), "{state:?}");
            assert_eq!(state.generation, node.generation, "{state:?}");
        }
        let mut keys: Vec<u8> = self.real.iter_keys().map(|key| key.0).collect();
        keys.sort_unstable();
        assert!(keys.iter().eq(self.oracle.by_key.keys()), "the keys of the fleet");
        for held in &self.held {
            held.check();
        }
        self.check_peeks();
    }

    /// Ends every borrowed lease; what is owned outlives the scheduler.
    fn finish(mut self) -> (Vec<(OwnedLease<Item>, LeaseFacts)>, Coverage) {
        self.check_snapshot();
        self.peeks.clear();
        let mut owned = Vec::new();
        for held in std::mem::take(&mut self.held) {
            held.check();
            match held {
                Held { guard: Guard::Owned(lease), facts, .. } => owned.push((lease, facts)),
                Held { guard, facts, token } => {
                    drop(guard);
                    let out = token.is_none_or(|token| self.redeem(token).is_some());
                    if out {
                        self.oracle.give_back(&facts, None, None);
                    }
                    if token.is_some() {
                        self.oracle.unpin(facts.node);
                    }
                }
            }
        }
        self.check();
        (owned, self.coverage)
    }
}

/// Waits until every resource is dropped. Collection is other threads' business too: bounded, but patient.
pub fn settle(ledger: &Ledger, expected: RangeInclusive<i64>) {
    for turn in 0..30_000 {
        if expected.contains(&ledger.alive()) {
            return;
        }
        leasehold::collect_garbage();
        if turn > 64 {
            std::thread::yield_now();
        }
        if turn > 1_000 {
            std::thread::sleep(Duration::from_micros(100));
        }
    }
    panic!("{} resources alive instead of {expected:?}: each is dropped once", ledger.alive());
}

/// One run: builds the scheduler, runs all operations, checks everything at the end, and that nothing leaks.
pub fn run(config: Config, ops: &[Op]) -> Coverage {
    let clock = Arc::new(ManualClock::new());
    let ledger = Arc::new(Ledger::default());
    let scheduler = config.build(&clock);
    let (owned, coverage) = {
        let mut driver = Driver::new(config, &scheduler, &clock, &ledger);
        driver.check();
        for (i, op) in ops.iter().enumerate() {
            driver.step(op);
            if i % 16 == 15 {
                driver.check_snapshot();
            }
        }
        driver.finish()
    };
    drop(scheduler);
    for (lease, facts) in owned {
        assert_eq!(lease.version, facts.version, "an owned lease outlives the scheduler");
    }
    settle(&ledger, 0..=0);
    coverage
}
