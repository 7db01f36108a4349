//! Affinity over a whole fleet: a conversation goes to the process that has its prompt cache, whichever process a client asks first.
//!
//! `Cluster::member_for` only names that process. Here it is another one in the same program, with an engine in memory; a real one forwards the request,
//! once, to where that name is reached. If that fails it serves the request itself: any process may, with a cold cache.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::{
    collections::{HashMap, HashSet},
    error::Error,
    sync::Arc,
    thread,
    time::Duration,
};

use leasehold::{
    Capacity, Entry, Scheduler,
    cluster::{Cluster, MemoryEngine, Share, StartError, Terms},
};

type Key = Entry<Arc<str>, u64, ()>;

struct Gateway {
    keys: Arc<Scheduler<Key>>,
    cluster: Cluster<Key>,
    /// Conversations whose beginning is in its cache.
    warm: HashSet<u32>,
}

impl Gateway {
    fn join(name: &str, weight: u32, engine: &MemoryEngine) -> Result<Self, Box<dyn Error>> {
        let keys = Arc::new(Scheduler::<Key>::builder().max_hold(Duration::from_secs(30)).build()?);
        let cluster: Result<_, StartError> = Cluster::builder(name)
            .weight(weight)
            .terms(Terms::new(Duration::from_secs(3)).floor(4))
            .shares((0..6).map(|number| Share::new(format!("key-{number}"), number).units(2)))
            .start(engine.connect(), &keys, |share, units| {
                Entry::new(share.name.clone(), share.rank, ()).with_capacity(Capacity::Limited(units))
            });
        Ok(Gateway { keys, cluster: cluster?, warm: HashSet::new() })
    }

    /// Serves it with a key of its own; whether its cache was warm.
    fn serve(&mut self, conversation: u32) -> Result<bool, Box<dyn Error>> {
        let lease = self.keys.acquire_timeout(Duration::from_secs(60))?;
        drop(lease);
        Ok(!self.warm.insert(conversation))
    }
}

type Gateways = HashMap<String, Gateway>;

/// A client has asked `first`. Forwarded once at most: who is forwarded to serves it, whatever he thinks himself, so that two who see different
/// members do not send it to and fro.
fn handle(gateways: &mut Gateways, first: &str, conversation: u32) -> Result<bool, Box<dyn Error>> {
    let named = gateways[first].cluster.member_for(&conversation);
    let name = named.as_deref().filter(|name| gateways.contains_key(*name)).unwrap_or(first).to_owned();
    gateways.get_mut(&name).expect("it is there").serve(conversation)
}

/// Until everybody sees so many members.
fn settle(gateways: &Gateways, members: usize) {
    while !gateways.values().all(|gateway| gateway.cluster.members().len() == members) {
        thread::sleep(Duration::from_millis(10));
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    const CONVERSATIONS: u32 = 300;
    let engine = MemoryEngine::new();
    let mut gateways = Gateways::new();
    // The third has the memory of two.
    for (name, weight) in [("one", 1), ("two", 1), ("three", 2)] {
        gateways.insert(name.to_owned(), Gateway::join(name, weight, &engine)?);
    }
    settle(&gateways, 3);

    // Whoever is asked first: the second question finds a warm cache.
    for conversation in 0..CONVERSATIONS {
        assert!(!handle(&mut gateways, "one", conversation)?);
        assert!(handle(&mut gateways, "two", conversation)?);
    }
    let held: HashMap<String, usize> =
        gateways.iter().map(|(name, gateway)| (name.clone(), gateway.warm.len())).collect();
    println!("conversations by gateway: {held:?}");

    // One leaves: its conversations, and no others, find a cold cache.
    let gone = gateways.remove("two").expect("it is there");
    let lost = gone.warm.len();
    gone.cluster.close(Duration::from_secs(60));
    settle(&gateways, 2);
    let mut cold = 0;
    for conversation in 0..CONVERSATIONS {
        cold += usize::from(!handle(&mut gateways, "one", conversation)?);
    }
    assert_eq!(cold, lost);
    println!("{cold} of {CONVERSATIONS} have moved");
    Ok(())
}
