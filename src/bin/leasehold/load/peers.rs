//! Other people's pools of connections, where the scenario asks for nothing that a pool does not have.
//!
//! Their connections are the units of the fleet: the number of a resource, as often as it has units.

use std::{
    convert::Infallible,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use leasehold::Capacity;
use tokio::{runtime::Handle, time::timeout};

use super::{
    asset::Asset,
    outcome::Refusal,
    scenario::{Driver, Scenario},
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
    let mut units = Vec::new();
    let limit = |asset: &Asset| match asset.capacity {
        Capacity::Exclusive => Ok(1),
        Capacity::Limited(limit) => Ok(limit),
        Capacity::Unlimited => Err("the scenario asks for unlimited capacity, which it does not have"),
    };
    let most = fleet.iter().map(limit).try_fold(0, |most, limit| limit.map(|limit| limit.max(most)))?;
    // Dealt in turns, so that a pool that hands out its connections in their order uses all resources.
    for round in 0..most {
        for asset in fleet {
            if limit(asset)? > round {
                units.push(asset.index);
            }
        }
    }
    Ok(units)
}

/// Hands out each unit once; neither pool makes more than that, as connections never break.
pub struct Units {
    units: Vec<u32>,
    next: AtomicUsize,
}

impl Units {
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

pub struct Deadpool(deadpool::managed::Pool<Units>);

pub struct DeadpoolHeld(deadpool::managed::Object<Units>);

impl Deadpool {
    pub fn new(units: Vec<u32>) -> Self {
        let size = units.len();
        let pool = deadpool::managed::Pool::builder(Units { units, next: AtomicUsize::new(0) });
        Deadpool(pool.max_size(size).build().expect("no timeouts that would need a runtime"))
    }

    pub async fn acquire(&self, patience: Duration) -> Result<DeadpoolHeld, Refusal> {
        match timeout(patience, self.0.get()).await {
            Ok(Ok(object)) => Ok(DeadpoolHeld(object)),
            Ok(Err(_)) => Err(Refusal::Closed),
            Err(_) => Err(Refusal::TimedOut),
        }
    }

    /// Whether everything that was made is there.
    pub fn is_whole(&self) -> bool {
        let status = self.0.status();
        status.available == status.size && status.waiting == 0
    }
}

impl DeadpoolHeld {
    pub fn index(&self) -> u32 {
        *self.0
    }
}

pub struct Bb8(bb8::Pool<Units>);

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
        Bb8(builder.build_unchecked(Units { units, next: AtomicUsize::new(0) }))
    }

    pub async fn acquire(&self, patience: Duration) -> Result<Bb8Held<'_>, Refusal> {
        match timeout(patience, self.0.get()).await {
            Ok(Ok(connection)) => Ok(Bb8Held(connection)),
            Ok(Err(_)) => Err(Refusal::Closed),
            Err(_) => Err(Refusal::TimedOut),
        }
    }

    /// Whether everything that was made is there.
    pub fn is_whole(&self) -> bool {
        let state = self.0.state();
        state.connections == state.idle_connections
    }
}

impl Bb8Held<'_> {
    pub fn index(&self) -> u32 {
        *self.0
    }
}
