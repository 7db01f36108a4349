//! A process that shares a fleet through a server, and has claimed all of it; one of its two keys is taken out for everybody.
//!
//! ```sh
//! cargo run --example cluster_fleet --features cluster redis://127.0.0.1/
//! ```
//!
//! Meanwhile `leasehold cluster --fleet shown` shows it. Without an address it uses an engine in memory, looks once, and leaves.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::{
    error::Error,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use leasehold::{
    Capacity, Entry, Hold, Scheduler,
    cluster::{Cluster, Engine, MemoryEngine, RedisEngine, Share, StartError, Terms},
};

type Key = Entry<Arc<str>, u64, ()>;

fn join(engine: impl Engine + 'static, keys: &Arc<Scheduler<Key>>) -> Result<Cluster<Key>, StartError> {
    Cluster::builder("alone")
        // It asks for all four units, whatever is needed.
        .terms(Terms::new(Duration::from_secs(5)).floor(4))
        .shares((0..2).map(|number| Share::new(format!("key-{number}"), number).units(2)))
        .start(engine, keys, |share, units| {
            Entry::new(share.name.clone(), share.rank, ()).with_capacity(Capacity::Limited(units))
        })
}

/// The first answer must come within a tenth of the time to live: a server that is busy is asked again, for a minute.
fn join_server(address: &str, keys: &Arc<Scheduler<Key>>) -> Result<Cluster<Key>, Box<dyn Error>> {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        match join(RedisEngine::new("shown", [address])?, keys) {
            Err(StartError::Engine(_)) if Instant::now() < end => {}
            joined => return Ok(joined?),
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let keys = Arc::new(Scheduler::<Key>::builder().max_hold(Duration::from_secs(30)).build()?);
    let address = std::env::args().nth(1);
    let cluster = match &address {
        Some(address) => join_server(address, &keys)?,
        None => join(MemoryEngine::new(), &keys)?,
    };
    while cluster.stats().lendable < 4 {
        thread::sleep(Duration::from_millis(10));
    }
    cluster.exclude("key-1")?;
    while !keys.snapshot().iter().any(|state| state.holds.contains(&Hold::Excluded)) {
        thread::sleep(Duration::from_millis(10));
    }
    // Until the engine has heard of it, too.
    thread::sleep(Duration::from_millis(500));
    println!("ready");
    if address.is_some() {
        loop {
            thread::park();
        }
    }
    assert_eq!(cluster.close(Duration::from_secs(1)).revoked, 0);
    Ok(())
}
