//! The subjects, behind one trait: something that is waited for, held and dropped; and the turns that they take.

use std::{convert::Infallible, future::Future, sync::Arc, time::Duration};

use leasehold::{AcquireOwned, Entry, Fairness, OwnedLease, Scheduler};
use tokio::runtime::{Builder, Runtime};

pub trait Pool: Clone + Send + Sync + 'static {
    type Lease: Send;

    fn get(&self) -> impl Future<Output = Self::Lease> + Send;
}

/// One that holds numbers.
#[derive(Clone, Copy)]
pub struct Numbers;

pub type Fleet = Scheduler<Entry<u32, u32, ()>>;

#[derive(Clone)]
pub struct Leasehold(pub Arc<Fleet>);

pub fn fleet(size: u32, fairness: Fairness) -> Fleet {
    let fleet = Fleet::builder().fairness(fairness).build().expect("valid");
    for key in 0..size {
        fleet.insert(Entry::new(key, 0, ())).expect("a new key");
    }
    fleet
}

pub fn leasehold(size: usize, fairness: Fairness) -> Leasehold {
    Leasehold(Arc::new(fleet(size as u32, fairness)))
}

impl Pool for Leasehold {
    type Lease = OwnedLease<Entry<u32, u32, ()>>;

    async fn get(&self) -> Self::Lease {
        let lease: AcquireOwned<_> = self.0.acquire_async_owned();
        lease.await.expect("open")
    }
}

impl deadpool::managed::Manager for Numbers {
    type Type = u32;
    type Error = Infallible;

    async fn create(&self) -> Result<u32, Infallible> {
        Ok(0)
    }

    async fn recycle(
        &self,
        _: &mut u32,
        _: &deadpool::managed::Metrics,
    ) -> deadpool::managed::RecycleResult<Infallible> {
        Ok(())
    }
}

pub type Deadpool = deadpool::managed::Pool<Numbers>;

pub async fn deadpool(size: usize) -> Deadpool {
    let pool = Deadpool::builder(Numbers).max_size(size).build().expect("no timeouts");
    // Filled before anything is measured.
    let mut all = Vec::new();
    for _ in 0..size {
        all.push(pool.get().await.expect("made of nothing"));
    }
    drop(all);
    pool
}

impl Pool for Deadpool {
    type Lease = deadpool::managed::Object<Numbers>;

    async fn get(&self) -> Self::Lease {
        Deadpool::get(self).await.expect("made of nothing")
    }
}

impl bb8::ManageConnection for Numbers {
    type Connection = u32;
    type Error = Infallible;

    async fn connect(&self) -> Result<u32, Infallible> {
        Ok(0)
    }

    async fn is_valid(&self, _: &mut u32) -> Result<(), Infallible> {
        Ok(())
    }

    fn has_broken(&self, _: &mut u32) -> bool {
        false
    }
}

pub type Bb8 = bb8::Pool<Numbers>;

pub async fn bb8(size: usize) -> Bb8 {
    Bb8::builder()
        .max_size(size as u32)
        .min_idle(size as u32)
        .test_on_check_out(false)
        .connection_timeout(Duration::from_secs(600))
        .build(Numbers)
        .await
        .expect("made of nothing")
}

impl Pool for Bb8 {
    type Lease = bb8::PooledConnection<'static, Numbers>;

    async fn get(&self) -> Self::Lease {
        self.get_owned().await.expect("made of nothing")
    }
}

/// What is done with a pool of so many.
pub trait Workload {
    const SIZE: usize;
    type Outcome;

    fn run(&self, pool: impl Pool) -> impl Future<Output = Self::Outcome>;
}

pub const NAMES: [&str; 4] = ["leasehold, Strict", "leasehold, Throughput", "deadpool", "bb8"];
pub const STRICT: usize = 0;
pub const DEADPOOL: usize = 2;

fn once<W: Workload>(workload: &W, runtime: &Runtime, subject: usize) -> W::Outcome {
    runtime.block_on(async {
        match subject {
            0 => workload.run(leasehold(W::SIZE, Fairness::Strict)).await,
            1 => workload.run(leasehold(W::SIZE, Fairness::Throughput)).await,
            2 => workload.run(deadpool(W::SIZE).await).await,
            _ => workload.run(bb8(W::SIZE).await).await,
        }
    })
}

/// Runs the workload with each subject in turn, on two threads.
pub fn take_turns<W: Workload>(workload: &W, runs: usize) -> Vec<[W::Outcome; NAMES.len()]> {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_time().build().expect("a runtime");
    let run = |turn: usize| {
        let mut outcomes = [const { None }; NAMES.len()];
        for subject in (0..NAMES.len()).map(|i| (i + turn) % NAMES.len()) {
            outcomes[subject] = Some(once(workload, &runtime, subject));
        }
        outcomes.map(|outcome| outcome.expect("each had its turn"))
    };
    (0..runs).map(run).collect()
}
