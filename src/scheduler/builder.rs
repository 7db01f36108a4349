//! Settings of a scheduler.

use std::{
    hash::{BuildHasher, RandomState},
    sync::PoisonError,
    time::Duration,
};

#[cfg(feature = "telemetry")]
use super::telemetry::Meters;
use super::{
    Scheduler,
    affinity::{Affinity, Rings},
    core::{Core, Parts},
    deadlines::{Limits, Overdue},
    drain::Drains,
    error::BuildError,
    health::Health,
    token::Tokens,
    turn::Turn,
    wait::{Fairness, Rules, Timer, Waiters},
};
#[cfg(not(any(loom, shuttle)))]
use crate::events::{Dispatchers, Observer};
use crate::{
    DefaultHashBuilder,
    events::{Hub, ObserveError},
    health::{Cooldown, Ejection},
    heap::Entry,
    lookup::Map,
    resource::Resource,
    ring::Ring,
    shard::{NEVER, Roster, Shard, Ties},
    shard_set::MAX_SHARDS,
    strategy::{Cell, Selector, Strategy},
    sync::{
        Arc, CachePadded, Clock, MonotonicClock, Mutex, Proven,
        atomic::{AtomicBool, AtomicU64},
        parallelism,
    },
};

/// What happens when a resource is inserted into a bounded fleet that is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Overflow {
    /// The newcomer is refused.
    #[default]
    Reject,
    /// The worst eligible resource is evicted if it ranks worse than the newcomer; otherwise the newcomer is refused.
    EvictWorst,
}

/// Starts an observer. Not the observer itself: its type names the key's, of which the compiler would ask too much where a builder is
/// kept across an `.await`. In a mutex it is `Sync`, for the proof.
type Start<R> = Box<dyn FnOnce(&Core<R>) -> Result<(), ObserveError> + Send>;

/// Settings of a [`Scheduler`]; made by [`Scheduler::builder`].
///
/// ```
/// use leasehold::{Entry, Scheduler, Strategy, Ties};
///
/// let scheduler = Scheduler::<Entry<u32, u64, &str>>::builder()
///     .shards(4)
///     .strategy(Strategy::BestOf { choices: 4 })
///     .ties(Ties::MostRecent)
///     .build()?;
/// # Ok::<(), leasehold::BuildError>(())
/// ```
#[must_use]
pub struct Builder<R: Resource, S = DefaultHashBuilder> {
    shards: Option<usize>,
    strategy: Strategy,
    ties: Ties,
    hasher: S,
    clock: Box<dyn Clock>,
    seed: Option<u64>,
    expected: usize,
    max: Option<(usize, Overflow)>,
    weights: Option<Vec<u32>>,
    virtual_nodes: u32,
    events: usize,
    observers: Proven<Vec<Mutex<Start<R>>>>,
    affinity: Affinity,
    max_hold: Option<Duration>,
    overdue: Overdue,
    rules: Rules,
    timer: Option<Box<dyn Timer>>,
    health: Remember,
    /// Of so many acquisitions one is looked at for its order; whether leases and waits are measured too.
    measure: Option<(u32, bool)>,
    marker: std::marker::PhantomData<fn() -> R>,
}

impl<R: Resource, S: BuildHasher + Default> Builder<R, S> {
    pub(super) fn new() -> Self {
        Builder {
            shards: None,
            strategy: Strategy::default(),
            ties: Ties::default(),
            hasher: S::default(),
            clock: Box::new(MonotonicClock::new()),
            seed: None,
            expected: 0,
            max: None,
            weights: None,
            virtual_nodes: Ring::DEFAULT_VIRTUAL_NODES,
            events: 0,
            observers: Proven::new(Vec::new()),
            affinity: Affinity::default(),
            max_hold: None,
            overdue: Overdue::default(),
            rules: Rules::default(),
            timer: None,
            health: Remember::default(),
            measure: None,
            marker: std::marker::PhantomData,
        }
    }
}

impl<R: Resource, S: BuildHasher> Builder<R, S> {
    /// How many shards, 1 to 1024. Default: four times the machine's parallelism, at most 64.
    ///
    /// More shards let more threads work side by side; the price is order, see [`Strategy`].
    pub fn shards(mut self, shards: usize) -> Self {
        self.shards = Some(shards);
        self
    }

    /// How an acquisition chooses the shard that it tries first. Default: [`Strategy::Sticky`].
    pub fn strategy(mut self, strategy: Strategy) -> Self {
        self.strategy = strategy;
        self
    }

    /// Which of equally ranked resources goes first. Default: [`Ties::LeastRecent`].
    pub fn ties(mut self, ties: Ties) -> Self {
        self.ties = ties;
        self
    }

    /// The hasher of keys. Default: [`DefaultHashBuilder`], seeded at random per scheduler.
    pub fn hasher<H: BuildHasher>(self, hasher: H) -> Builder<R, H> {
        let Builder {
            shards,
            strategy,
            ties,
            hasher: _,
            clock,
            seed,
            expected,
            max,
            weights,
            virtual_nodes,
            events,
            observers,
            affinity,
            max_hold,
            overdue,
            rules,
            timer,
            health,
            measure,
            marker,
        } = self;
        Builder {
            shards,
            strategy,
            ties,
            hasher,
            clock,
            seed,
            expected,
            max,
            weights,
            virtual_nodes,
            events,
            observers,
            affinity,
            max_hold,
            overdue,
            rules,
            timer,
            health,
            measure,
            marker,
        }
    }

    /// The source of time. Default: the machine's monotonic clock. It is read only while something is cooling, by who waits, for leases with
    /// [`max_hold`](Builder::max_hold) or that are [measured](Builder::measure), and for each outcome where outcomes are remembered
    /// ([`remember_outcomes`](Builder::remember_outcomes)) or make a resource rest ([`Resource::cooldown`]).
    pub fn clock(mut self, clock: impl Clock + 'static) -> Self {
        self.clock = Box::new(clock);
        self
    }

    /// The seed of all random choices. With one thread, one seed makes runs repeat. Default: random.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// How many resources are expected: room is made for them now rather than while inserting. Default: 0.
    pub fn expected_resources(mut self, expected: usize) -> Self {
        self.expected = expected;
        self
    }

    /// Bounds the fleet: at most `max` resources, 1 to 4,294,967,295. Default: bounded by memory only.
    pub fn max_resources(mut self, max: usize, overflow: Overflow) -> Self {
        self.max = Some((max, overflow));
        self
    }

    /// The shards' weights on the affinity ring, one per shard. Default: all equal.
    pub fn shard_weights(mut self, weights: Vec<u32>) -> Self {
        self.weights = Some(weights);
        self
    }

    /// What an id of [`acquire_by_affinity`](Scheduler::acquire_by_affinity) belongs to. Default: [`Affinity::Shard`].
    pub fn affinity(mut self, affinity: Affinity) -> Self {
        self.affinity = affinity;
        self
    }

    /// How long a lease may be held, on the scheduler's clock. Default: for ever, and then leases are not recorded and cost nothing
    /// for it.
    ///
    /// With a limit every lease is recorded with the moment and the place in the program at which it was asked for, and pins its
    /// value: see [`leases`](Scheduler::leases). An acquisition and a return then take the shard's lock twice each, read the clock,
    /// and share the token table with all threads. What happens to leases that are held for longer is said by
    /// [`overdue`](Builder::overdue); no thread watches them. `Duration::MAX` records without a limit. A unit that was handed to a future which nobody
    /// polls is out, but no lease yet: it is recorded, and its time begins, with the poll. Until then a drain waits for it and counts it, and
    /// nobody can say who has it.
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.max_hold = Some(max_hold);
        self
    }

    /// What happens to leases that are held for longer than [`max_hold`](Builder::max_hold). Default: [`Overdue::Report`]. Without
    /// `max_hold` no lease is, and this does nothing.
    pub fn overdue(mut self, overdue: Overdue) -> Self {
        self.overdue = overdue;
        self
    }

    /// Points on the affinity ring per shard of average weight. Default: [`Ring::DEFAULT_VIRTUAL_NODES`].
    pub fn virtual_nodes(mut self, virtual_nodes: u32) -> Self {
        self.virtual_nodes = virtual_nodes;
        self
    }

    /// Room for so many events per shard, rounded up to a power of two, at most 16,777,216; 0 for none. Default: 0.
    ///
    /// A key that is a number, a `char` or a `bool` is then copied for each event. Any other one is cloned, in the thread that makes the
    /// event, after the shard's lock is free: also when a lease is dropped. That `Clone` may allocate; if it panics, the event becomes a
    /// gap; it must not call the scheduler.
    ///
    /// Events go to observers, see [`observer`](Builder::observer) and [`Scheduler::observe`]; without any they are taken out with
    /// [`Scheduler::take_events`]. Those that find no room are dropped, newest first, counted, and visible as gaps in the sequence. An
    /// observer's thread looks into the rings every half millisecond, down to every 50 µs if it finds one more than half full, and every
    /// 16 ms when nothing has happened: a ring should have room for what its shard does in that time.
    ///
    /// # Memory
    /// As many rings as there are shards, and one for waits and the closing. In each, for each event, 32 bytes if a key takes eight at most,
    /// else 24 and the key; what a key owns comes on top. So 1,024 take 288 KiB in 8 shards. They are there from the beginning, whether events
    /// come or not. What an observer has not been told of is somewhere else: see [`observer`](Builder::observer).
    pub fn event_capacity(mut self, events: usize) -> Self {
        self.events = events;
        self
    }

    /// Somebody to be told of events, in a thread of its own that [`build`](Builder::build) starts. May be called several times.
    ///
    /// Unless [`event_capacity`](Builder::event_capacity) says otherwise, there is then room for 262,144 events in all, but for 1,024 to 16,384
    /// of them per shard. A scheduler that is dropped without [`close`](Scheduler::close) discards what has not been told by then.
    ///
    /// # Memory
    /// The rings, as [there](Builder::event_capacity): with keys of eight bytes 8.5 MiB in 16 shards, 1.5 MiB in two. And an inbox for each
    /// observer, which is empty as long as it keeps up. One that is stuck in its callback has 16 full rings in it, or as many as there are rings
    /// if those are more, and then misses what comes. There an event takes 48 bytes with such a key, with a `String` 32 and the key; up to
    /// twice that, for a list that grows doubles its room. So with keys of eight bytes it holds 13 MiB in 16 shards, and 26 MiB at most. Those
    /// that are stuck alike share what they hold.
    #[cfg(not(any(loom, shuttle)))]
    pub fn observer(mut self, observer: impl Observer<R::Key> + 'static) -> Self {
        self.observers.push(Mutex::new(Box::new(|core| core.observe(Some(0), Box::new(observer)))));
        self
    }

    /// Who gets what is returned while somebody waits. Default: [`Fairness::Strict`].
    pub fn fairness(mut self, fairness: Fairness) -> Self {
        self.rules.fairness = fairness;
        self
    }

    /// How many later arrivals make up for one class of a [`Request`](super::Request). Default: 32.
    ///
    /// A waiter is overtaken by those of a class d above its own that arrive less than `d x ageing` arrivals after it: so by fewer than
    /// `255 x ageing` in any case. 0: classes do not matter. By no others with [`Fairness::Strict`], which says when one may come first who does not
    /// wait, and with these exceptions ([`Fairness::Throughput`] has no bound):
    ///
    /// * one that has got a part of [several](super::Request::many): until it has all it is before everybody who takes anything, of
    ///   whatever class. There is one such at a time, and whoever begins to collect stands before all of these in order: so each of them is
    ///   overtaken by one of these at most, which had got a unit before it came, and by as many units as that one lacked then. One that wants
    ///   more than the fleet can lend, and has no deadline, never has all, and everybody who takes anything waits as long;
    /// * a waiter with a filter that is slow. What comes while it is being asked is left there, but whoever asks goes on with 16 units like
    ///   that and no more: then it is passed over, and looks for itself. So it may be passed over any number of times
    ///   ([`matching`](super::Request::matching));
    /// * for what somebody's own look has found, which was free before: filters that are being asked at that moment are passed over by it.
    pub fn ageing(mut self, arrivals: u32) -> Self {
        self.rules.ageing = arrivals;
        self
    }

    /// How many requests may wait at once; further ones are refused with
    /// [`WaitError::QueueFull`](super::WaitError::QueueFull). Default: as many as memory allows.
    pub fn max_waiters(mut self, max: usize) -> Self {
        self.rules.max = max;
        self
    }

    /// Whether a request is refused with [`WaitError::Shed`](super::WaitError::Shed), instead of waiting in vain, if it cannot meet
    /// its deadline: because that is past; because no lease is out, and all that will be eligible again by itself will be so too late; or
    /// because what those before it want, and itself, would take longer at the mean interval of recent hand-offs. Default: no.
    ///
    /// The last is an estimate for those who take anything, of hand-offs to such: who asks for a name, or with a filter, is refused for the
    /// other two reasons only. The first in line is let in whatever the pace, and a pace is forgotten when nothing has been handed over for four
    /// times its longest interval: so a bad time ends.
    pub fn shed_late(mut self, shed: bool) -> Self {
        self.rules.shed_late = shed;
        self
    }

    /// Wakes the scheduler when a moment has come, for tasks that wait. Default: none, and no thread; then a thread that waits keeps
    /// the time for all, and if none does, [`tick`](Scheduler::tick) has to be called.
    pub fn timer(mut self, timer: impl Timer + 'static) -> Self {
        self.timer = Some(Box::new(timer));
        self
    }

    /// Takes resources out because of their outcomes, and lets them back: see [`Ejection`]. Default: nobody is taken out but by hand.
    pub fn ejection(mut self, rules: Ejection) -> Self {
        self.health.rules = Some(rules);
        self
    }

    /// How outcomes let a resource cool, unless it says so itself: see [`Cooldown`]. Default: as long as a rate limit says; if outcomes are
    /// remembered, as `Cooldown::default()`.
    pub fn cooldown(mut self, rules: Cooldown) -> Self {
        self.health.cooldown = Some(rules);
        self
    }

    /// Whether resources are ranked by what was seen of them too: by [`Resource::priority_seen`] instead of [`Resource::priority`]. Each
    /// outcome then costs a second critical section, and a resource with one unit is treated as one with several: it is asked for its
    /// priority when it is lent, too, and again when it is returned. Default: no.
    pub fn rank_by_outcomes(mut self, rank: bool) -> Self {
        self.health.ranks = rank;
        self
    }

    /// Whether outcomes are remembered for each resource, see [`Scheduler::resource_stats`]: some 100 bytes for each, and the clock once
    /// for each outcome. Default: only if one of [`ejection`](Builder::ejection), [`cooldown`](Builder::cooldown) and
    /// [`rank_by_outcomes`](Builder::rank_by_outcomes) needs it.
    pub fn remember_outcomes(mut self, remember: bool) -> Self {
        self.health.asked = remember;
        self
    }

    /// Measures how long leases are held and requests wait, and samples the order: see [`measure_order`](Builder::measure_order), with `sample` as
    /// there. See [`Scheduler::telemetry`]. Default: nothing is measured.
    ///
    /// Each lease then costs the clock twice and a histogram's mutex that few threads share.
    #[cfg(feature = "telemetry")]
    pub fn measure(mut self, sample: u32) -> Self {
        self.measure = Some((sample, true));
        self
    }

    /// Samples the order, and measures nothing else: in each shard one lending out of every `sample`, if it is one to somebody who has asked for the
    /// best, or else the next that is; 0: none. Default: nothing is sampled.
    ///
    /// * The **error in rank**: how many resources that could be had were strictly better than what was lent. See
    ///   [`Telemetry::rank_errors`](crate::Telemetry::rank_errors).
    /// * The **delay**: from the return of a sample's lease until its resource is lent again, how many worse ones were lent to those who had asked for the
    ///   best. One sample in 16 of a shard, one resource of the scheduler at a time, and none whose lease has a token, as each has with [`max_hold`](Builder::max_hold). See [`Telemetry::delays`](crate::Telemetry::delays).
    ///
    /// With one thread both are exact. With several there is no moment at which all shards are looked at: what changes meanwhile may be counted or
    /// not. What else they do not say is in `docs/order-quality.md`.
    ///
    /// Sampled is every form that asks for the best, one or several, and takes it from what is free: [`acquire`](Scheduler::acquire),
    /// [`acquire_many`](Scheduler::acquire_many), and a request that need not wait. Who names a key, an id or a filter has not asked for the best; a
    /// wait ends with what comes back.
    ///
    /// For production: what is no sample costs two comparisons more. A sample takes, one after the other and waiting for it, the lock of each other
    /// shard that shows something better, for as long as it takes to count up to 512 resources, and a mutex that other samples share for a few
    /// additions. While a resource is tagged for its delay, a lending is counted under the lock that it has anyway. At one out of 1,024 that is less than 2 % of the
    /// instructions of an acquisition and a return (`docs/order-quality.md`). After [`measure`](Builder::measure) it only sets how many are sampled.
    ///
    /// ```
    /// use leasehold::{Entry, Scheduler};
    ///
    /// let scheduler = Scheduler::<Entry<u8, u32, ()>>::builder().shards(1).measure_order(4).build()?;
    /// (0..8).for_each(|key| scheduler.insert(Entry::new(key, u32::from(key), ())).expect("a new key"));
    /// (0..8).for_each(|_| drop(scheduler.acquire()));
    /// let telemetry = scheduler.telemetry().expect("asked for");
    /// assert_eq!((telemetry.rank_errors.count(), telemetry.delays.count(), telemetry.holds.count()), (2, 1, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "telemetry")]
    pub fn measure_order(mut self, sample: u32) -> Self {
        self.measure = Some((sample, self.measure.is_some_and(|(_, times)| times)));
        self
    }

    /// Checks the settings and makes the scheduler. O(shards + expected resources + room for events); starts no thread but those of observers. The affinity ring is built when it is first
    /// needed.
    ///
    /// # Errors
    /// [`BuildError`] says which setting is wrong, and what is allowed.
    pub fn build(self) -> Result<Scheduler<R, S>, BuildError> {
        let shards = self.shards.unwrap_or_else(|| (4 * parallelism()).min(64));
        if !(1..=MAX_SHARDS).contains(&shards) {
            return Err(BuildError::Shards { given: shards, max: MAX_SHARDS });
        }
        // Far below what the lookup can hold, and above what memory can.
        let most = shards.saturating_mul(Entry::MAX_SLOT as usize + 1).min(1 << 30);
        if self.expected > most {
            return Err(BuildError::Expected { given: self.expected, max: most });
        }
        if self.events > MAX_EVENTS {
            return Err(BuildError::EventCapacity { given: self.events, max: MAX_EVENTS });
        }
        let max_resources = match self.max {
            None => None,
            Some((given, overflow)) => match u32::try_from(given) {
                Ok(max) if max >= 1 => Some((max, overflow)),
                _ => return Err(BuildError::MaxResources { given, max: u32::MAX as usize }),
            },
        };
        if self.max_hold.is_some_and(|max_hold| max_hold.is_zero()) {
            return Err(BuildError::MaxHold);
        }
        if let Some(fault) = self.health.rules.as_ref().and_then(Ejection::fault) {
            return Err(BuildError::Ejection { fault });
        }
        let selector = Selector::new(self.strategy, shards).map_err(BuildError::Strategy)?;
        let weights = self.weights.unwrap_or_else(|| vec![1; shards]);
        if weights.len() != shards {
            return Err(BuildError::Weights { given: weights.len(), shards });
        }
        let ring = Rings::plan(weights, self.virtual_nodes).map_err(BuildError::Ring)?;
        let seed = self.seed.unwrap_or_else(random_seed);
        let cells = (4 * parallelism()).next_power_of_two().clamp(CELLS_MIN, 1024);
        let is_observed = !self.observers.is_empty();
        let events = if is_observed && self.events == 0 { observed_events(shards) } else { self.events };
        let hub = (events > 0).then(|| Arc::new(Hub::new(shards, events)));
        let ring_of = |shard: u32| hub.as_ref().map(|hub| Arc::clone(&hub.rings()[shard as usize]));
        let shards: Box<[Shard<R>]> =
            (0..shards as u32).map(|index| Shard::new(index, self.ties, ring_of(index))).collect();
        #[cfg(feature = "telemetry")]
        let shards = super::order::watched(shards, self.measure.map_or(0, |(sample, _)| sample));
        for shard in &shards {
            shard.reserve(self.expected.div_ceil(shards.len()));
        }
        let (rules, timer) = (self.rules, self.timer);
        let waiters = Waiters::new(rules, timer);
        let core = Core::new(Parts {
            map: Map::with_capacity(self.expected),
            // Not from the seed: schedulers made alike must not take each other's tokens.
            tokens: Tokens::new(random_seed()),
            roster: Roster::new(),
            batch: Turn::new(),
            selector,
            cells: (0..cells).map(|_| CachePadded::new(Cell::blank())).collect(),
            seed,
            seeded: AtomicU64::new(0),
            ring: ring.publish(),
            affinity: self.affinity,
            clock: self.clock,
            max_resources,
            virtual_nodes: self.virtual_nodes,
            hub,
            #[cfg(not(any(loom, shuttle)))]
            dispatchers: Dispatchers::default(),
            unusual: AtomicBool::new(
                self.max_hold.is_some() || self.health.ranks || self.measure.is_some_and(|(_, times)| times),
            ),
            #[cfg(feature = "telemetry")]
            meters: self.measure.map(|(_, times)| Meters::new(times)),
            #[cfg(feature = "telemetry")]
            delays: crate::delay::Delays::default(),
            health: self.health.build(shards.len()),
            closed: AtomicBool::new(false),
            earliest: CachePadded::new(AtomicU64::new(NEVER)),
            limits: self.max_hold.map(|max_hold| Limits::new(max_hold, self.overdue, shards.len())),
            drains: Drains::new(),
            shards,
            waiters,
        });
        for start in self.observers.into_inner() {
            let start = start.into_inner().unwrap_or_else(PoisonError::into_inner);
            start(&core).map_err(|error| BuildError::Observer { error: error.to_string() })?;
        }
        Ok(Scheduler { core: share(core), hasher: self.hasher })
    }
}

#[cfg(not(loom))]
mod timed {
    use super::{Arc, Core, Resource};

    /// A core that its timer's calls can find.
    pub fn share<R: Resource>(mut core: Core<R>) -> Arc<Core<R>> {
        Arc::new_cyclic(|weak| {
            core.waiters.know_core(weak);
            core
        })
    }
}

#[cfg(loom)]
mod timed {
    use super::{Arc, Core, Resource};

    /// A core that its timer's calls can find.
    pub fn share<R: Resource>(core: Core<R>) -> Arc<Core<R>> {
        let core = Arc::new(core);
        core.waiters.know_core(&core);
        core
    }
}

use timed::share;

/// Room for events per shard if somebody observes, and nothing was said: what a busy shard does while the observer's thread sleeps, as
/// far as memory allows.
fn observed_events(shards: usize) -> usize {
    ((1 << 18) / shards).clamp(1 << 10, 1 << 14)
}

/// Room for events per shard at most.
const MAX_EVENTS: usize = 1 << 24;

/// What is remembered of resources, and why.
#[derive(Default)]
struct Remember {
    rules: Option<Ejection>,
    cooldown: Option<Cooldown>,
    ranks: bool,
    asked: bool,
}

impl Remember {
    fn build<R: Resource>(self, shards: usize) -> Option<Health<R>> {
        let Remember { rules, cooldown, ranks, asked } = self;
        let is_needed = rules.is_some() || cooldown.is_some() || ranks || asked;
        is_needed.then(|| Health::new(rules, cooldown, ranks, shards))
    }
}

/// Few in a model, so that threads do share.
const CELLS_MIN: usize = if cfg!(any(loom, shuttle)) { 1 } else { 64 };

/// Random without a global of ours: the standard library keys every `RandomState` differently.
fn random_seed() -> u64 {
    if cfg!(any(loom, shuttle)) {
        // Runs of a model must repeat.
        return 0x5eed;
    }
    RandomState::new().hash_one(0u8)
}
