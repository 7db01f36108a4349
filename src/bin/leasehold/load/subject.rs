//! Who is under load: the scheduler with a strategy, the mutex, other people's pools; one enum, so that the life of a
//! request is written once.

use std::{sync::Arc, time::Duration};

use leasehold::{
    AcquireError, AcquireKeyError, Backoff, Builder, Cooldown, Ejection, Lease, Outcome, Scheduler, Strategy,
    TokioTimer, WaitError,
    baseline::{Lend, Lent, MutexLease, MutexScheduler, RoundRobinLease, RoundRobinScheduler},
};
use tokio::runtime::Handle;

#[cfg(feature = "peers")]
use super::peers::{Bb8, Bb8Held, Connection, Deadpool, DeadpoolHeld};
use super::{
    asset::Asset,
    clock::Clock,
    outcome::Refusal,
    scenario::{Driver, Fairness, Scenario},
};
use crate::{
    choice::Choice,
    error::{Error, Result},
};

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    Anything,
    /// The resource that this id belongs to, or a near one.
    Affinity(u64),
    Named(u32),
    /// One of every second lineage.
    Matching,
}

/// What the filter of [`Wish::Matching`] accepts.
pub fn accepts(asset: &Asset) -> bool {
    asset.index.is_multiple_of(2)
}

pub enum Subject {
    Leasehold(Arc<Scheduler<Asset>>),
    Mutex(MutexScheduler<Asset>),
    Naive(RoundRobinScheduler<Asset>),
    #[cfg(feature = "peers")]
    Deadpool(Deadpool),
    #[cfg(feature = "peers")]
    Bb8(Bb8),
}

/// A lease of any of them.
pub enum Held<'s> {
    Leasehold(Lease<'s, Asset>),
    Mutex(MutexLease<'s, Asset>),
    Naive(RoundRobinLease<'s, Asset>),
    #[cfg(feature = "peers")]
    Deadpool(DeadpoolHeld),
    #[cfg(feature = "peers")]
    Bb8(Bb8Held<'s>),
}

/// Calls of the builder, and the same as text: what is recommended as code must be what was run.
macro_rules! calls {
    ($calls:ident, $text:ident: $(.$name:ident($argument:expr))+) => {
        fn $calls(builder: Builder<Asset>) -> Builder<Asset> {
            builder$(.$name($argument))+
        }
        pub const $text: &[&str] = &[$(concat!(".", stringify!($name), "(", stringify!($argument), ")")),+];
    };
}

// The library's default ejects for 30 s at first, longer than most rounds; and a rate limit lasts as long as the scenario says.
calls! { with_ejection, WITH_EJECTION:
    .ejection(Ejection::default().base(Duration::from_millis(500)).longest(Duration::from_secs(4)).ramp(Duration::from_millis(500)).max_share(30))
    .cooldown(Cooldown::default().on_rate_limit(Backoff::None))
}

/// Lends what is out already: whether that is seen.
#[cfg(test)]
pub const DOUBLE_LENDING: &str = "double-lending";

/// Why a subject has no part in a scenario.
pub type Unfit = String;

impl Subject {
    /// The names that are no strategies.
    const PEERS: [&str; 2] = ["deadpool", "bb8"];

    /// Makes the subject of this name, with the whole fleet in it; or tells why the scenario is not for it.
    pub fn build(
        name: &str,
        scenario: &Scenario,
        fleet: Vec<Asset>,
        runtime: &Handle,
    ) -> Result<std::result::Result<Self, Unfit>> {
        if Subject::PEERS.contains(&name) {
            return Ok(Subject::peer(name, scenario, fleet, runtime));
        }
        #[cfg(test)]
        if name == DOUBLE_LENDING {
            let subject = RoundRobinScheduler::new();
            let fleet = fleet.into_iter().map(|asset| asset.with_capacity(leasehold::Capacity::Unlimited));
            assert!(Lend::insert_batch(&subject, fleet.collect()).is_ok());
            return Ok(Ok(Subject::Naive(subject)));
        }
        let (choice, shards) = choice(name, scenario)?;
        let refused = |_| Error::Options(format!("subject {name}: refused the fleet"));
        let Some(strategy) = choice.strategy(shards) else {
            return Ok(Ok(if choice == Choice::Naive {
                let subject = RoundRobinScheduler::new();
                Lend::insert_batch(&subject, fleet).map_err(|fleet| refused(fleet.len()))?;
                Subject::Naive(subject)
            } else {
                let subject = MutexScheduler::new();
                Lend::insert_batch(&subject, fleet).map_err(|fleet| refused(fleet.len()))?;
                Subject::Mutex(subject)
            }));
        };
        let scheduler = scheduler(name, strategy, shards, scenario, fleet.len(), runtime)?;
        scheduler.insert_batch(fleet).map_err(|_| refused(0))?;
        Ok(Ok(Subject::Leasehold(Arc::new(scheduler))))
    }

    /// The scheduler of this name with nothing in it yet; `None`: what has this name is no scheduler.
    #[cfg(all(feature = "cluster", unix))]
    pub fn empty(name: &str, scenario: &Scenario, runtime: &Handle) -> Result<Option<Arc<Scheduler<Asset>>>> {
        if Subject::PEERS.contains(&name) {
            return Ok(None);
        }
        let (choice, shards) = choice(name, scenario)?;
        let Some(strategy) = choice.strategy(shards) else { return Ok(None) };
        let resources = scenario.resources as usize;
        scheduler(name, strategy, shards, scenario, resources, runtime)
            .map(|scheduler| Some(Arc::new(scheduler)))
    }

    #[cfg(feature = "peers")]
    fn peer(
        name: &str,
        scenario: &Scenario,
        fleet: Vec<Asset>,
        runtime: &Handle,
    ) -> std::result::Result<Self, Unfit> {
        let units = super::peers::units(scenario, &fleet)?;
        Ok(match name {
            "deadpool" => Subject::Deadpool(Deadpool::new(units)),
            _ => Subject::Bb8(Bb8::new(units, runtime)),
        })
    }

    #[cfg(not(feature = "peers"))]
    fn peer(_: &str, _: &Scenario, _: Vec<Asset>, _: &Handle) -> std::result::Result<Self, Unfit> {
        Err("not in this build: needs the feature `peers`".into())
    }

    /// A lease, waiting for it at most so long. In a thread this blocks and is ready at the first poll.
    pub async fn acquire(
        &self,
        driver: Driver,
        clock: &Clock,
        wish: Wish,
        class: u8,
        patience: Duration,
    ) -> std::result::Result<Held<'_>, Refusal> {
        match self {
            Subject::Leasehold(scheduler) => {
                acquire(scheduler, driver, wish, class, patience).await.map(Held::Leasehold)
            }
            Subject::Mutex(lender) => ask_again(lender, driver, clock, wish, patience).await.map(Held::Mutex),
            Subject::Naive(lender) => ask_again(lender, driver, clock, wish, patience).await.map(Held::Naive),
            #[cfg(feature = "peers")]
            Subject::Deadpool(pool) => pool.acquire(patience).await.map(Held::Deadpool),
            #[cfg(feature = "peers")]
            Subject::Bb8(pool) => pool.acquire(patience).await.map(Held::Bb8),
        }
    }

    /// Looks at the best without taking it; `false` if there is nothing to see.
    pub fn peek(&self) -> bool {
        match self {
            Subject::Leasehold(scheduler) => scheduler.peek().is_some(),
            Subject::Mutex(lender) => lender.peek_with(|_| ()).is_some(),
            Subject::Naive(lender) => lender.peek_with(|_| ()).is_some(),
            #[cfg(feature = "peers")]
            Subject::Deadpool(_) | Subject::Bb8(_) => false,
        }
    }

    /// What changes the fleet and finds out about it; pools have nothing of the kind.
    pub fn fleet(&self) -> Option<Fleet<'_>> {
        match self {
            Subject::Leasehold(scheduler) => Some(Fleet::new(&**scheduler)),
            Subject::Mutex(lender) => Some(Fleet::new(lender)),
            Subject::Naive(lender) => Some(Fleet::new(lender)),
            #[cfg(feature = "peers")]
            Subject::Deadpool(_) | Subject::Bb8(_) => None,
        }
    }

    pub fn scheduler(&self) -> Option<&Scheduler<Asset>> {
        match self {
            Subject::Leasehold(scheduler) => Some(scheduler),
            _ => None,
        }
    }
}

/// What a subject's name says: a strategy, or a yardstick; and so many shards.
fn choice(name: &str, scenario: &Scenario) -> Result<(Choice, u32)> {
    let wrong = |expected: &str| Error::Options(format!("subject {name:?}: {expected}"));
    let (strategy, own_shards) = match name.split_once('@') {
        None => (name, None),
        Some((strategy, shards)) => {
            let shards = shards.parse().ok().filter(|shards| (1..=1024).contains(shards));
            (strategy, Some(shards.ok_or_else(|| wrong("expected 1 to 1024 shards after the `@`"))?))
        }
    };
    let choice: Choice =
        strategy.parse().map_err(|expected: String| wrong(&(expected + ", or deadpool or bb8")))?;
    Ok((choice, own_shards.or(scenario.shards).unwrap_or_else(library_shards)))
}

/// A scheduler as the scenario wants it, without a fleet.
fn scheduler(
    name: &str,
    strategy: Strategy,
    shards: u32,
    scenario: &Scenario,
    resources: usize,
    runtime: &Handle,
) -> Result<Scheduler<Asset>> {
    let mut builder: Builder<Asset> = Scheduler::builder()
        .shards(shards as usize)
        .strategy(strategy)
        .seed(scenario.seed)
        .expected_resources(resources)
        .shed_late(scenario.shed)
        .fairness(match scenario.fairness {
            Fairness::Strict => leasehold::Fairness::Strict,
            Fairness::Throughput => leasehold::Fairness::Throughput,
        });
    if scenario.max_waiters > 0 {
        builder = builder.max_waiters(scenario.max_waiters as usize);
    }
    if scenario.ejection {
        builder = with_ejection(builder);
    }
    if scenario.driver != Driver::Threads {
        builder = builder.timer(TokioTimer::new(runtime.clone()));
    }
    if scenario.soak {
        builder = super::soak::everything_on(builder, scenario);
    }
    builder.build().map_err(|error| Error::Options(format!("subject {name}: {error}")))
}

/// As many as the library makes by itself.
pub fn library_shards() -> u32 {
    Scheduler::<Asset>::builder().build().map_or(1, |scheduler| scheduler.shards() as u32)
}

/// What the load does to a fleet beside borrowing, of any lender.
pub struct Fleet<'s> {
    pub update: Box<dyn Fn(Asset) -> bool + Send + 's>,
    pub insert: Box<dyn Fn(Asset) -> bool + Send + 's>,
    pub remove: Box<dyn Fn(u32) -> bool + Send + 's>,
    pub exclude: Box<dyn Fn(u32) -> bool + Send + 's>,
    pub include: Box<dyn Fn(u32) -> bool + Send + 's>,
    pub len: Box<dyn Fn() -> usize + Send + 's>,
}

impl<'s> Fleet<'s> {
    fn new<L: Lend<Asset>>(lender: &'s L) -> Self {
        Fleet {
            update: Box::new(|asset| lender.update(asset).is_ok()),
            insert: Box::new(|asset| lender.insert(asset).is_ok()),
            remove: Box::new(|index| lender.remove(&index)),
            exclude: Box::new(|index| lender.exclude(&index)),
            include: Box::new(|index| lender.include(&index)),
            len: Box::new(|| lender.len()),
        }
    }
}

async fn acquire<'s>(
    scheduler: &'s Scheduler<Asset>,
    driver: Driver,
    wish: Wish,
    class: u8,
    patience: Duration,
) -> std::result::Result<Lease<'s, Asset>, Refusal> {
    if patience.is_zero() {
        let none = |error| match error {
            AcquireError::Closed => Refusal::Closed,
            AcquireError::NoneEligible(_) => Refusal::NoneEligible,
            error => unexpected(&error),
        };
        return match wish {
            Wish::Anything => scheduler.acquire().map_err(none),
            Wish::Affinity(id) => scheduler.acquire_by_affinity(&id).map_err(none),
            Wish::Matching => scheduler.acquire_where(accepts).map_err(none),
            Wish::Named(index) => scheduler.acquire_key(&index).map_err(|error| match error {
                AcquireKeyError::Closed => Refusal::Closed,
                AcquireKeyError::NotFound { .. } | AcquireKeyError::NotEligible { .. } => {
                    Refusal::NotEligible
                }
                error => unexpected(&error),
            }),
        };
    }
    let request = scheduler.request().class(class).timeout(patience);
    let request = match wish {
        Wish::Anything => request,
        Wish::Affinity(id) => request.affinity(&id),
        Wish::Named(index) => request.key(&index),
        Wish::Matching => {
            let request = request.matching(accepts);
            let lease = match driver {
                Driver::Threads => request.wait(),
                Driver::Tasks | Driver::Pool => request.await,
            };
            return lease.map_err(refusal);
        }
    };
    let lease = match driver {
        Driver::Threads => request.wait(),
        Driver::Tasks | Driver::Pool => request.await,
    };
    lease.map_err(refusal)
}

pub fn refusal(error: WaitError) -> Refusal {
    match error {
        WaitError::Closed => Refusal::Closed,
        WaitError::QueueFull { .. } => Refusal::QueueFull,
        WaitError::Shed { .. } => Refusal::Shed,
        WaitError::NotFound => Refusal::NotEligible,
        WaitError::TimedOut { .. } => Refusal::TimedOut,
        error => unexpected(&error),
    }
}

/// What no subject can answer must not be counted as something else: the worker that is told so panics, and the run says that one has.
fn unexpected(error: &dyn std::fmt::Display) -> ! {
    panic!("the scheduler answers what it cannot: {error}")
}

/// What has no queue is asked again and again, as its users would: after 50 us, then after twice as long each time, up to
/// a millisecond, which is also the least that tokio's timer sleeps.
async fn ask_again<'s, L: Lend<Asset>>(
    lender: &'s L,
    driver: Driver,
    clock: &Clock,
    wish: Wish,
    patience: Duration,
) -> std::result::Result<L::Lease<'s>, Refusal> {
    const LONGEST: Duration = Duration::from_millis(1);
    let end = clock.now() + patience.as_nanos() as u64;
    let mut pause = Duration::from_micros(50);
    loop {
        let lease = match wish {
            // Affinity and filters are the scheduler's own: others serve such a request with anything.
            Wish::Anything | Wish::Affinity(_) | Wish::Matching => lender.acquire().ok(),
            Wish::Named(index) => lender.acquire_key(&index),
        };
        if let Some(lease) = lease {
            return Ok(lease);
        }
        if patience.is_zero() {
            return Err(if let Wish::Named(_) = wish { Refusal::NotEligible } else { Refusal::NoneEligible });
        }
        if let Wish::Named(index) = wish
            && lender.get_with(&index, |_| ()).is_none()
        {
            return Err(Refusal::NotEligible);
        }
        let left = Duration::from_nanos(end.saturating_sub(clock.now()));
        if left.is_zero() {
            return Err(Refusal::TimedOut);
        }
        match driver {
            Driver::Threads => std::thread::sleep(pause.min(left)),
            Driver::Tasks | Driver::Pool => tokio::time::sleep(LONGEST).await,
        }
        pause = (pause * 2).min(LONGEST);
    }
}

impl<'s> Held<'s> {
    pub fn index(&self) -> u32 {
        match self {
            Held::Leasehold(lease) => *lease.key(),
            Held::Mutex(lease) => lease.index,
            Held::Naive(lease) => lease.index,
            #[cfg(feature = "peers")]
            Held::Deadpool(held) => held.index(),
            #[cfg(feature = "peers")]
            Held::Bb8(held) => held.index(),
        }
    }

    /// The lease, if it is the scheduler's.
    pub fn lease(&mut self) -> Option<&mut Lease<'s, Asset>> {
        match self {
            Held::Leasehold(lease) => Some(lease),
            _ => None,
        }
    }

    /// Returns it. The resource then rests for `rest`, if that is any time, or for as long as the outcome says.
    pub fn finish(self, outcome: Outcome, rest: Duration) {
        match self {
            Held::Leasehold(lease) if rest.is_zero() => lease.finish(outcome),
            Held::Leasehold(lease) => lease.finish_after(outcome, rest),
            Held::Mutex(lease) => lease.finish(resting(outcome, rest)),
            Held::Naive(lease) => lease.finish(resting(outcome, rest)),
            #[cfg(feature = "peers")]
            Held::Deadpool(held) => drop(held),
            #[cfg(feature = "peers")]
            Held::Bb8(held) => drop(held),
        }
    }
}

/// The yardsticks know one way to return and to rest in one step.
fn resting(outcome: Outcome, rest: Duration) -> Outcome {
    match outcome {
        Outcome::RateLimited { retry_after } => Outcome::RateLimited { retry_after: retry_after.max(rest) },
        outcome if rest.is_zero() => outcome,
        _ => Outcome::RateLimited { retry_after: rest },
    }
}
