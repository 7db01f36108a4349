//! The k-th call of each callback panics, for every k.

use std::{collections::BTreeMap, sync::Arc};

use leasehold::{
    Capacity, Event, Lease, ManualClock, Outcome, Overflow, OwnedLease, SplitMix64, Ties, Token,
};

use super::{
    contain, is_left_to_the_reclaimer,
    model::{
        Accept, Change, Config, Ended, Item, Key, Ledger, Op, Plan, Probe, Scheduler, Site, Slope, Spec,
        probe, settle,
    },
    quiet, tidy_up,
};

enum Guard<'s> {
    Borrowed(Lease<'s, Item>),
    Owned(OwnedLease<Item>),
}

/// One scheduler, and all that is out. Executes operations without knowing what they should answer.
pub(super) struct Run<'s> {
    real: &'s Scheduler,
    clock: &'s ManualClock,
    ledger: &'s Arc<Ledger>,
    guards: Vec<Guard<'s>>,
    tokens: Vec<Token>,
    versions: u32,
    /// Events that were taken out.
    taken: Vec<Event<Key>>,
}

impl<'s> Run<'s> {
    pub(super) fn new(real: &'s Scheduler, clock: &'s ManualClock, ledger: &'s Arc<Ledger>) -> Self {
        let (guards, tokens, taken) = (Vec::new(), Vec::new(), Vec::new());
        Run { real, clock, ledger, guards, tokens, versions: 0, taken }
    }

    fn item(&mut self, spec: Spec) -> Item {
        self.versions += 1;
        Item::new(spec, self.versions, self.ledger)
    }

    fn keep<E>(&mut self, lease: Result<Guard<'s>, E>) {
        self.guards.extend(lease.ok());
    }

    fn pick(&mut self, index: u8) -> Option<Guard<'s>> {
        (!self.guards.is_empty()).then(|| self.guards.remove(usize::from(index) % self.guards.len()))
    }

    pub(super) fn apply(&mut self, op: &Op) {
        let real = self.real;
        match op {
            Op::Insert(spec) => {
                let item = self.item(*spec);
                let _ = real.insert(item);
            }
            Op::InsertBatch(specs) => {
                let items = specs.iter().map(|&spec| self.item(spec)).collect();
                let _ = real.insert_batch(items);
            }
            Op::Update(spec) => {
                let item = self.item(*spec);
                let _ = real.update(item);
            }
            Op::UpdateWith { key, change } => {
                let ledger = self.ledger;
                let version = self.versions + 1;
                self.versions += 1;
                let _ = real.update_with(&Key(*key), |old| {
                    probe(Site::Change);
                    let spec = match *change {
                        Change::To(spec) => spec,
                        Change::Worsen => Spec { base: old.spec.base.saturating_add(1), ..old.spec },
                        Change::Rename => Spec { key: old.spec.key.wrapping_add(100), ..old.spec },
                    };
                    Item::new(spec, version, ledger)
                });
            }
            Op::Remove(key) => drop(real.remove(&Key(*key))),
            Op::Get { key, .. } => drop(real.get(&Key(*key))),
            Op::Acquire { owned: false } => self.keep(real.acquire().map(Guard::Borrowed)),
            Op::Acquire { owned: true } => self.keep(real.acquire_owned().map(Guard::Owned)),
            Op::AcquireKey { key, owned: false } => {
                self.keep(real.acquire_key(&Key(*key)).map(Guard::Borrowed));
            }
            Op::AcquireKey { key, owned: true } => {
                self.keep(real.acquire_key_owned(&Key(*key)).map(Guard::Owned));
            }
            Op::AcquireWhere { accept, .. } => {
                let filter = |item: &Item| {
                    probe(Site::Filter);
                    accept.accepts(item.spec.key)
                };
                self.keep(real.acquire_where(filter).map(Guard::Borrowed));
            }
            Op::AcquireExcluding { keys, .. } => {
                let keys: Vec<Key> = keys.iter().copied().map(Key).collect();
                self.keep(real.acquire_excluding(&keys).map(Guard::Borrowed));
            }
            Op::AcquireByAffinity { id, .. } => {
                self.keep(real.acquire_by_affinity(id).map(Guard::Borrowed));
            }
            Op::AcquireMany { count, .. } => {
                if let Ok(all) = real.acquire_many(usize::from(*count)) {
                    self.guards.extend(all.into_iter().map(Guard::Borrowed));
                }
            }
            Op::End { lease, ended } => {
                let Some(guard) = self.pick(*lease) else { return };
                match (guard, *ended) {
                    (guard, Ended::Dropped) => drop(guard),
                    (Guard::Borrowed(lease), Ended::Released) => lease.release(),
                    (Guard::Owned(lease), Ended::Released) => lease.release(),
                    (Guard::Borrowed(lease), Ended::After(span)) => lease.release_after(span),
                    (Guard::Owned(lease), Ended::After(span)) => lease.release_after(span),
                    (Guard::Borrowed(lease), Ended::Finished(outcome)) => lease.finish(outcome),
                    (Guard::Owned(lease), Ended::Finished(outcome)) => lease.finish(outcome),
                }
            }
            Op::Token { lease } => {
                if !self.guards.is_empty() {
                    let index = usize::from(*lease) % self.guards.len();
                    let token = match &mut self.guards[index] {
                        Guard::Borrowed(lease) => lease.token(),
                        Guard::Owned(lease) => lease.token(),
                    };
                    self.tokens.push(token);
                }
            }
            Op::IntoToken { lease } => {
                let token = match self.pick(*lease) {
                    Some(Guard::Borrowed(lease)) => lease.into_token(),
                    Some(Guard::Owned(lease)) => lease.into_token(),
                    None => return,
                };
                self.tokens.push(token);
            }
            Op::Redeem { token, outcome } => {
                if !self.tokens.is_empty() {
                    let token = self.tokens[usize::from(*token) % self.tokens.len()];
                    let _ = match outcome {
                        None => real.release(token),
                        Some(outcome) => real.finish(token, *outcome),
                    };
                }
            }
            Op::RedeemForeign { .. } => drop(real.release(Token::from_bytes([7; 16]))),
            Op::Exclude(key) => drop(real.exclude(&Key(*key))),
            Op::Include(key) => drop(real.include(&Key(*key))),
            Op::Cool { key, span } => drop(real.cool(&Key(*key), *span)),
            Op::Warm(key) => drop(real.warm(&Key(*key))),
            Op::Eject(key) => drop(real.eject(&Key(*key))),
            Op::Readmit(key) => drop(real.readmit(&Key(*key))),
            Op::Drain(key) => drop(real.drain(&Key(*key))),
            Op::Undrain(key) => drop(real.undrain(&Key(*key))),
            Op::EvictWorst => drop(real.evict_worst()),
            Op::Peek { .. } => drop(real.peek()),
            Op::PeekByAffinity { id } => drop(real.peek_by_affinity(id)),
            Op::PeekWorst => drop(real.peek_worst()),
            Op::DropPeeks => {}
            Op::Advance(span) => self.clock.advance(*span),
            Op::SetWeights(weights) => {
                let weights: Vec<u32> = weights.iter().copied().cycle().take(real.shards()).collect();
                let _ = real.set_shard_weights(&weights);
            }
            Op::Snapshot => {
                drop(real.snapshot());
                drop(real.stats());
                real.iter_keys().for_each(drop);
            }
            // It would end the run.
            Op::Close => {}
        }
    }

    /// What else may run user code: the reclaimer, and whoever takes events out.
    fn tidy_up(&mut self) {
        tidy_up();
        self.taken.extend(self.real.take_events(usize::MAX));
    }

    /// Every event that was emitted has come out, or became a gap because its key could not be cloned.
    fn check_events(&self) {
        let stats = self.real.stats();
        assert_eq!(
            self.taken.len() as u64 + stats.events_dropped,
            stats.events_emitted,
            "events are counted"
        );
        for shard in 0..self.real.shards() {
            let sequences = self.taken.iter().filter(|event| event.shard as usize == shard);
            assert!(sequences.is_sorted_by(|a, b| a.sequence < b.sequence), "events keep their order");
        }
    }

    /// The keys of the fleet, and leases out.
    pub(super) fn seen(&self) -> Seen {
        let mut keys: Vec<u8> = self.real.iter_keys().map(|key| key.0).collect();
        keys.sort_unstable();
        Seen { keys, in_flight: self.real.check_invariants().in_flight }
    }

    /// All that is out comes back.
    pub(super) fn give_back(&mut self) {
        self.guards.clear();
        for token in std::mem::take(&mut self.tokens) {
            let _ = self.real.release(token);
        }
    }

    /// Every shard lends and takes back.
    pub(super) fn use_every_shard(&mut self) {
        let real = self.real;
        let bounded = real.len();
        for home in 0..real.shards() {
            let key = 200 + home as u8;
            let spec =
                Spec { key, base: 9, slope: Slope::Rising, capacity: Capacity::Limited(2), home: Some(home) };
            let item = self.item(spec);
            if real.insert(item).is_ok() {
                let lease = real.acquire_key(&Key(key)).expect("just inserted");
                assert_eq!(lease.shard(), home);
                drop(lease);
                assert_eq!(real.remove(&Key(key)).expect("just inserted").in_flight, 0);
            } else {
                let full = real.snapshot();
                assert!(full.len() == bounded, "refused only because there is no room");
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) keys: Vec<u8>,
    pub(super) in_flight: u64,
}

struct Outcomes {
    calls: u64,
    fired: bool,
    trace: Vec<Seen>,
}

/// A scheduler's settings, and its room for events.
pub(super) type Setting = (Config, usize);

/// Says which fault it was, if a check fails.
struct Named(Site, u64);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the fault was at call {} of {:?}", self.1, self.0);
        }
    }
}

/// Runs the script with one planted panic (`fail_at` 0: none). `dry` is what a run without one has seen.
fn run((config, events): Setting, script: &[Op], site: Site, fail_at: u64, dry: &[Seen]) -> Outcomes {
    let _named = Named(site, fail_at);
    let clock = Arc::new(ManualClock::new());
    let ledger = Arc::new(Ledger::default());
    let scheduler = config.build_with_events(&clock, events);
    let mut calls = 0;
    let mut fired = false;
    let mut trace = Vec::new();
    {
        let mut run = Run::new(&scheduler, &clock, &ledger);
        for (i, op) in script.iter().enumerate() {
            let remaining = fail_at.saturating_sub(calls);
            Probe::arm(site, remaining);
            let panicked = contain(|| run.apply(op));
            assert!(!contain(|| run.tidy_up()), "a panic in `Drop` or `Clone` has reached a bystander");
            let now_fired = Probe::fired();
            calls += Probe::disarm();
            let seen = run.seen();
            if fail_at == 0 {
                assert!(!panicked);
                trace.push(seen);
                continue;
            }
            if now_fired && !fired {
                fired = true;
                let nothing = Seen { keys: Vec::new(), in_flight: 0 };
                let before = if i == 0 { &nothing } else { &dry[i - 1] };
                // A newcomer's `Eq` may fail after somebody was evicted for it.
                let evicted = |keys: &[u8]| {
                    let evicts = config.max.is_some_and(|(_, overflow)| overflow == Overflow::EvictWorst);
                    evicts
                        && matches!(op, Op::Insert(_))
                        && before.keys.iter().filter(|key| keys.contains(key)).count()
                            == before.keys.len() - 1
                        && keys.len() == before.keys.len() - 1
                };
                let legal = [&before.keys, &dry[i].keys];
                assert!(
                    legal.contains(&&seen.keys) || evicted(&seen.keys),
                    "{op:?}: the fleet is {seen:?}, not {before:?} or {:?}",
                    dry[i]
                );
                let legal = [before.in_flight, dry[i].in_flight];
                assert!(legal.contains(&seen.in_flight), "{op:?}: {seen:?}, not {before:?} or {:?}", dry[i]);
                run.use_every_shard();
                assert_eq!(run.seen(), seen, "using every shard changes nothing");
            }
        }
        drop(std::mem::take(&mut run.guards));
        let tokens = std::mem::take(&mut run.tokens);
        // Half of the tokens are lost.
        for token in tokens.iter().step_by(2) {
            let _ = scheduler.release(*token);
        }
        run.tidy_up();
        run.check_events();
        scheduler.check_invariants();
    }
    drop(scheduler);
    // If a key's `Drop` panics while a function returns, the language itself drops what is being returned not at all
    // (rust-lang/rust#47949): one resource that was on its way back to the caller may leak.
    let leaked = i64::from(fail_at != 0 && matches!(site, Site::DropKey | Site::DropItem));
    if leaked == 0 || ledger.alive() > leaked {
        settle(&ledger, 0..=leaked);
    }
    Outcomes { calls, fired, trace }
}

/// Planted panics that were met, by site.
type Faults = BTreeMap<Site, u64>;

/// Every call of every site in turn.
fn every_call(setting: Setting, script: &[Op]) -> Faults {
    quiet();
    let mut faults = Faults::new();
    for site in Site::ALL {
        let dry = run(setting, script, site, 0, &[]);
        let met = (1..=dry.calls).filter(|&k| run(setting, script, site, k, &dry.trace).fired).count() as u64;
        let enough = if is_left_to_the_reclaimer(site) { 1 } else { dry.calls };
        assert!(met >= enough.min(dry.calls), "{site:?}: {met} of {} calls", dry.calls);
        if met > 0 {
            faults.insert(site, met);
        }
    }
    faults
}

/// There were so many at least, and one in every callback but those that the script has none of: nobody is asked for a priority by
/// outcomes by a fleet that remembers none.
fn demand(faults: &Faults, least: u64, but_for: &[Site]) {
    let never: Vec<Site> = Site::ALL.into_iter().filter(|site| !faults.contains_key(site)).collect();
    assert_eq!(never, [&[Site::PrioritySeen], but_for].concat(), "never called");
    let sum: u64 = faults.values().sum();
    assert!(sum >= least, "{sum} planted panics");
}

pub(super) fn setting(plan: Plan, max: Option<(usize, Overflow)>) -> Setting {
    let config = Config {
        shards: 2,
        plan,
        ties: Ties::LeastRecent,
        max,
        hash_mask: 1,
        expected: 0,
        seed: 7,
        initial: 0,
    };
    (config, 0)
}

/// With more room for events than a script makes.
fn with_events(setting: Setting) -> Setting {
    (setting.0, 512)
}

fn spec(key: u8, base: u64, capacity: Capacity) -> Spec {
    Spec { key, base, slope: Slope::Rising, capacity, home: None }
}

/// All operations, in an order in which each has something to do.
pub(super) fn script() -> Vec<Op> {
    use std::time::Duration;
    let nanos = Duration::from_nanos;
    let limited = Outcome::RateLimited { retry_after: nanos(5) };
    let mut ops: Vec<Op> = (0..5)
        .map(|key| {
            let capacity = if key % 2 == 0 { Capacity::Limited(3) } else { Capacity::Exclusive };
            Op::Insert(spec(key, u64::from(key), capacity))
        })
        .collect();
    ops.extend([
        Op::Insert(spec(1, 0, Capacity::Exclusive)),
        Op::Insert(Spec { home: Some(9), ..spec(9, 0, Capacity::Exclusive) }),
        Op::Insert(spec(9, 0, Capacity::Limited(0))),
        Op::InsertBatch((10..13).map(|key| spec(key, 4, Capacity::Limited(2))).collect()),
        Op::InsertBatch([14, 15, 2, 16].map(|key| spec(key, 4, Capacity::Limited(2))).to_vec()),
        Op::InsertBatch((20..29).map(|key| spec(key, 4, Capacity::Exclusive)).collect()),
        Op::Acquire { owned: false },
        Op::Acquire { owned: true },
        Op::AcquireKey { key: 2, owned: false },
        Op::AcquireKey { key: 99, owned: false },
        Op::AcquireKey { key: 1, owned: true },
        Op::AcquireKey { key: 1, owned: true },
        Op::AcquireWhere { accept: Accept::Even, owned: false },
        Op::AcquireWhere { accept: Accept::None, owned: false },
        Op::AcquireExcluding { keys: vec![0, 2, 4], owned: false },
        Op::AcquireByAffinity { id: 3, owned: false },
        Op::AcquireMany { count: 3, owned: false },
        Op::AcquireMany { count: 200, owned: false },
        Op::Update(spec(2, 7, Capacity::Limited(2))),
        Op::Update(spec(1, 3, Capacity::Limited(2))),
        Op::Update(spec(77, 3, Capacity::Limited(2))),
        Op::Update(spec(1, 3, Capacity::Limited(0))),
        Op::UpdateWith { key: 0, change: Change::Worsen },
        Op::UpdateWith { key: 0, change: Change::Rename },
        Op::UpdateWith { key: 78, change: Change::Worsen },
        // A token beside its guard: returned first, and second.
        Op::Token { lease: 0 },
        Op::Update(spec(0, 1, Capacity::Limited(4))),
        Op::Redeem { token: 0, outcome: Some(limited) },
        Op::End { lease: 0, ended: Ended::Dropped },
        Op::Redeem { token: 0, outcome: None },
        Op::Token { lease: 1 },
        Op::End { lease: 1, ended: Ended::Finished(limited) },
        Op::Redeem { token: 1, outcome: None },
        Op::Token { lease: 1 },
        Op::IntoToken { lease: 1 },
        Op::Redeem { token: 2, outcome: None },
        Op::IntoToken { lease: 0 },
        Op::RedeemForeign { bits: 1 },
        Op::End { lease: 0, ended: Ended::After(nanos(9)) },
        Op::End { lease: 0, ended: Ended::Released },
        Op::Exclude(2),
        Op::Eject(4),
        Op::Drain(3),
        Op::Cool { key: 10, span: nanos(3) },
        Op::Cool { key: 88, span: nanos(3) },
        Op::Exclude(88),
        Op::Acquire { owned: false },
        Op::Advance(nanos(4)),
        Op::Acquire { owned: false },
        Op::Advance(nanos(4)),
        Op::Peek { keep: false },
        Op::Cool { key: 10, span: nanos(1) },
        Op::Advance(nanos(2)),
        Op::PeekWorst,
        Op::PeekByAffinity { id: 2 },
        Op::Include(2),
        Op::Readmit(4),
        Op::Undrain(3),
        Op::Warm(10),
        Op::Get { key: 2, keep: false },
        Op::Remove(0),
        Op::Remove(0),
        Op::Insert(spec(0, 2, Capacity::Limited(2))),
        Op::EvictWorst,
        Op::SetWeights(vec![1, 2]),
        Op::Snapshot,
        Op::End { lease: 0, ended: Ended::Finished(Outcome::Failed) },
    ]);
    // Fills a bounded fleet until it evicts.
    ops.extend((30..36).map(|key| Op::Insert(spec(key, 0, Capacity::Limited(2)))));
    ops.extend((0..6).map(|_| Op::End { lease: 0, ended: Ended::Dropped }));
    ops
}

#[test]
fn every_callback_may_panic_at_every_call() {
    let faults = every_call(setting(Plan::Custom { shard: 0 }, None), &script());
    demand(&faults, 500, &[]);
}

/// The key is cloned for each event, after the lock is free: then a panic costs the event, and nothing else.
#[test]
fn with_an_observer() {
    let faults = every_call(with_events(setting(Plan::Exact, None)), &script());
    demand(&faults, 500, &[Site::Select]);
}

#[test]
fn in_a_bounded_fleet_that_evicts() {
    let faults = every_call(setting(Plan::Exact, Some((10, Overflow::EvictWorst))), &script());
    demand(&faults, 500, &[Site::Select]);
}

#[test]
fn in_random_scripts() {
    let mut random = SplitMix64::new(11);
    let mut faults = Faults::new();
    for turn in 0..12 {
        let ops: Vec<Op> = (0..60)
            .map(|_| {
                let bytes = random.next_u64().to_le_bytes();
                Op::decode([bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5]])
            })
            .collect();
        let plan = if turn % 2 == 0 { Plan::Custom { shard: 1 } } else { Plan::Sticky { period: 3 } };
        let setting = setting(plan, None);
        for (site, met) in every_call(if turn % 3 == 0 { with_events(setting) } else { setting }, &ops) {
            *faults.entry(site).or_default() += met;
        }
    }
    demand(&faults, 2_000, &[]);
}
