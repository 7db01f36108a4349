//! Other people's pools of connections, where the scenario asks for nothing that a pool does not have.
//!
//! Their connections are the units of the fleet: the number of a resource, as often as it has units.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use leasehold::Capacity;
use tokio::{
    runtime::{Builder, Handle},
    time::timeout,
};

use super::{
    asset::Asset,
    outcome::Refusal,
    result::Check,
    scenario::{Driver, Scenario},
    settle::MOST_UNITS,
    subject::Unfit,
};

/// The units of the fleet, or what the scenario asks for that pools do not have.
pub fn units(scenario: &Scenario, fleet: &[Asset]) -> Result<Vec<u32>, Unfit> {
    for (asked, what) in [
        (scenario.driver == Driver::Threads, "threads that block: it is for tasks"),
        (scenario.wait.0.is_zero(), "an answer at once"),
        (scenario.cooldown.0 > Duration::ZERO || scenario.rate_limits > 0.0, "resources that rest"),
        (scenario.ejection, "resources that are taken out for their failures"),
        (
            scenario.affinity + scenario.named + scenario.filtered + scenario.peeks > 0.0,
            "ids, names, filters and looks",
        ),
        (scenario.classes > 1, "classes"),
        (scenario.chores() > 0.0, "a fleet that changes"),
        (scenario.shed || scenario.max_waiters > 0, "a queue with a bound"),
        (scenario.soak, "everything"),
    ] {
        if asked {
            return Err(format!("the scenario asks for {what}, which it does not have"));
        }
    }
    let limit = |asset: &Asset| match asset.capacity {
        Capacity::Exclusive => Ok(1),
        Capacity::Limited(limit) => Ok(limit),
        Capacity::Unlimited => Err("the scenario asks for unlimited capacity, which it does not have"),
    };
    let mut left =
        fleet.iter().map(|asset| Ok((asset.index, limit(asset)?))).collect::<Result<Vec<_>, Unfit>>()?;
    let all: u64 = left.iter().map(|&(_, limit)| u64::from(limit)).sum();
    if all > MOST_UNITS {
        return Err(format!(
            "the fleet has {all} units, and a pool keeps a connection for each: at most {MOST_UNITS}"
        ));
    }
    // Dealt in turns, so that a pool that hands out its connections in their order uses all resources.
    let mut units = Vec::new();
    let mut round = 0;
    while !left.is_empty() {
        left.retain(|&(_, limit)| limit > round);
        units.extend(left.iter().map(|&(index, _)| index));
        round += 1;
    }
    Ok(units)
}

/// Hands out each unit once; neither pool makes more than that, as connections never break. Shared with the pool, which keeps it for itself.
#[derive(Clone)]
pub struct Units(Arc<Shared>);

struct Shared {
    units: Vec<u32>,
    /// Connections that were made.
    next: AtomicUsize,
}

impl Units {
    fn new(units: Vec<u32>) -> Self {
        Units(Arc::new(Shared { units, next: AtomicUsize::new(0) }))
    }

    fn next(&self) -> u32 {
        self.0.next()
    }
}

impl Shared {
    fn next(&self) -> u32 {
        self.units[self.next.fetch_add(1, Ordering::Relaxed) % self.units.len()]
    }
}

impl deadpool::managed::Manager for Units {
    type Type = u32;
    type Error = Infallible;

    async fn create(&self) -> Result<u32, Infallible> {
        Ok(self.next())
    }

    async fn recycle(
        &self,
        _: &mut u32,
        _: &deadpool::managed::Metrics,
    ) -> deadpool::managed::RecycleResult<Infallible> {
        Ok(())
    }
}

impl bb8::ManageConnection for Units {
    type Connection = u32;
    type Error = Infallible;

    async fn connect(&self) -> Result<u32, Infallible> {
        Ok(self.next())
    }

    async fn is_valid(&self, _: &mut u32) -> Result<(), Infallible> {
        Ok(())
    }

    fn has_broken(&self, _: &mut u32) -> bool {
        false
    }
}

/// What is held of a pool.
pub trait Connection {
    fn index(&self) -> u32;
}

/// How long a pool may take to hand out what it has.
const HANDED_WITHIN: Duration = Duration::from_secs(5);

/// Nobody holds any more: every unit can be had once, and no more than that; and no connection was made twice, which is how a pool makes up for
/// one that it has lost.
pub fn nothing_is_lost<'p, H: Connection, F>(units: &Units, acquire: impl Fn(Duration) -> F) -> Check
where
    F: Future<Output = Result<H, Refusal>> + 'p,
{
    let Shared { units, next } = &*units.0;
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return Check::that("pool", false, format!("its units cannot be taken: {error}")),
    };
    let (taken, one_more) = runtime.block_on(async {
        let mut taken = Vec::new();
        while taken.len() < units.len()
            && let Ok(held) = acquire(HANDED_WITHIN).await
        {
            taken.push(held);
        }
        let one_more = acquire(Duration::from_millis(5)).await.is_ok();
        (taken, one_more)
    });
    let mut had: Vec<u32> = taken.iter().map(Connection::index).collect();
    let mut expected = units.clone();
    had.sort_unstable();
    expected.sort_unstable();
    let made = next.load(Ordering::Relaxed);
    // As they came they go, in the runtime that they may need for that.
    runtime.block_on(async { drop(taken) });
    let found = format!(
        "{} of {} units had, {made} connections made{}",
        had.len(),
        units.len(),
        if one_more { ", and ONE MORE had" } else { "" }
    );
    Check::that("pool", had == expected && made == units.len() && !one_more, found)
}

pub struct Deadpool(deadpool::managed::Pool<Units>, Units);

pub struct DeadpoolHeld(deadpool::managed::Object<Units>);

impl Deadpool {
    pub fn new(units: Vec<u32>) -> Self {
        let size = units.len();
        let units = Units::new(units);
        let pool = deadpool::managed::Pool::builder(units.clone());
        Deadpool(pool.max_size(size).build().expect("no timeouts that would need a runtime"), units)
    }

    pub async fn acquire(&self, patience: Duration) -> Result<DeadpoolHeld, Refusal> {
        match timeout(patience, self.0.get()).await {
            Ok(Ok(object)) => Ok(DeadpoolHeld(object)),
            Ok(Err(_)) => Err(Refusal::Closed),
            Err(_) => Err(Refusal::TimedOut),
        }
    }

    pub fn units(&self) -> &Units {
        &self.1
    }
}

impl Connection for DeadpoolHeld {
    fn index(&self) -> u32 {
        *self.0
    }
}

pub struct Bb8(bb8::Pool<Units>, Units);

pub struct Bb8Held<'s>(bb8::PooledConnection<'s, Units>);

impl Bb8 {
    pub fn new(units: Vec<u32>, runtime: &Handle) -> Self {
        let size = units.len() as u32;
        let _entered = runtime.enter();
        // Of its own limit of time ours is the shorter.
        let builder = bb8::Pool::builder()
            .max_size(size)
            .test_on_check_out(false)
            .idle_timeout(None)
            .max_lifetime(None)
            .connection_timeout(Duration::from_secs(100_000));
        let units = Units::new(units);
        Bb8(builder.build_unchecked(units.clone()), units)
    }

    pub async fn acquire(&self, patience: Duration) -> Result<Bb8Held<'_>, Refusal> {
        match timeout(patience, self.0.get()).await {
            Ok(Ok(connection)) => Ok(Bb8Held(connection)),
            Ok(Err(_)) => Err(Refusal::Closed),
            Err(_) => Err(Refusal::TimedOut),
        }
    }

    pub fn units(&self) -> &Units {
        &self.1
    }
}

impl Connection for Bb8Held<'_> {
    fn index(&self) -> u32 {
        *self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(deadpool: &Deadpool) -> Check {
        nothing_is_lost(deadpool.units(), |wait| deadpool.acquire(wait))
    }

    /// What a pool has lost it makes anew: that all came back says nothing, and who counts sees it.
    #[test]
    fn a_connection_that_is_lost_is_missed() {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let patience = Duration::from_secs(1);
        let deadpool = Deadpool::new(vec![4, 5, 4]);
        assert!(check(&deadpool).holds && check(&deadpool).holds, "{:?}", check(&deadpool));
        let held = runtime.block_on(deadpool.acquire(patience)).unwrap();
        assert!(check(&deadpool).found.starts_with("2 of 3 units had"), "{:?}", check(&deadpool));
        // Out of the pool for good, which then makes another one.
        let _ = deadpool::managed::Object::take(held.0);
        let found = check(&deadpool);
        assert!(!found.holds && found.found == "3 of 3 units had, 4 connections made", "{found:?}");

        let bb8 = Bb8::new(vec![4, 5, 4], runtime.handle());
        let of = |bb8: &Bb8| nothing_is_lost(bb8.units(), |wait| bb8.acquire(wait));
        assert!(of(&bb8).holds, "{:?}", of(&bb8));
        let held = runtime.block_on(bb8.acquire(patience)).unwrap();
        assert!(!of(&bb8).holds);
        runtime.block_on(async { drop(held) });
        assert!(of(&bb8).holds);
    }
}
