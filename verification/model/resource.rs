//! What the checks lend, and the hooks by which the fault checks make its callbacks fail.

use std::{
    cell::Cell,
    hash::{BuildHasher, Hash, Hasher},
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

use leasehold::{Capacity, Cooldown, Resource, Seen};

/// A place where the scheduler calls user code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Site {
    Key,
    Priority,
    /// A priority that depends on outcomes.
    PrioritySeen,
    Capacity,
    Home,
    Hash,
    Eq,
    CloneKey,
    DropItem,
    DropKey,
    Select,
    Filter,
    Change,
    Clock,
    Cooldown,
    /// On threads of its own, which no probe watches: not in [`Site::ALL`], but in `verification/faults/observing.rs`.
    Observer,
}

impl Site {
    pub const ALL: [Site; 15] = [
        Site::Key,
        Site::Priority,
        Site::PrioritySeen,
        Site::Capacity,
        Site::Home,
        Site::Hash,
        Site::Eq,
        Site::CloneKey,
        Site::DropItem,
        Site::DropKey,
        Site::Select,
        Site::Filter,
        Site::Change,
        Site::Clock,
        Site::Cooldown,
    ];
}

thread_local! {
    static WATCHED: Cell<Option<Site>> = const { Cell::new(None) };
    static CALLS: Cell<u64> = const { Cell::new(0) };
    static FAIL_AT: Cell<u64> = const { Cell::new(0) };
}

/// Watches one site on this thread, and makes its k-th call panic.
pub struct Probe;

impl Probe {
    /// Counts the calls of `site` from now on; the `fail_at`-th one panics (0: none does).
    pub fn arm(site: Site, fail_at: u64) {
        WATCHED.set(Some(site));
        CALLS.set(0);
        FAIL_AT.set(fail_at);
    }

    /// Stops watching. Answers how many calls there were.
    pub fn disarm() -> u64 {
        WATCHED.set(None);
        CALLS.get()
    }

    /// Whether the call that was to fail has come.
    pub fn fired() -> bool {
        let at = FAIL_AT.get();
        at != 0 && CALLS.get() >= at
    }
}

/// The payload of a planted panic.
#[derive(Debug)]
pub struct Planted(pub Site);

/// Called by every callback.
#[inline]
pub fn probe(site: Site) {
    if WATCHED.get() == Some(site) {
        let call = CALLS.get() + 1;
        CALLS.set(call);
        if call == FAIL_AT.get() {
            std::panic::panic_any(Planted(site));
        }
    }
}

/// A key: few of them, so that operations meet.
#[derive(Debug, PartialOrd, Ord)]
pub struct Key(pub u8);

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        probe(Site::Hash);
        state.write_u8(self.0);
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        probe(Site::Eq);
        self.0 == other.0
    }
}

impl Eq for Key {}

impl Clone for Key {
    fn clone(&self) -> Self {
        probe(Site::CloneKey);
        Key(self.0)
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        probe(Site::DropKey);
    }
}

/// Hashes of which only some bits differ, so that probe sequences in the lookup run into each other.
#[derive(Clone, Debug)]
pub struct ModelHash {
    pub mask: u64,
}

pub struct ModelHasher {
    mask: u64,
    state: u64,
}

impl BuildHasher for ModelHash {
    type Hasher = ModelHasher;

    fn build_hasher(&self) -> ModelHasher {
        ModelHasher { mask: self.mask, state: 0 }
    }
}

impl Hasher for ModelHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.state = (self.state ^ u64::from(byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        }
    }

    fn finish(&self) -> u64 {
        self.state & self.mask
    }
}

/// How many resources are alive.
#[derive(Debug, Default)]
pub struct Ledger {
    alive: AtomicI64,
}

impl Ledger {
    pub fn alive(&self) -> i64 {
        self.alive.load(Ordering::SeqCst)
    }

    pub fn born(&self) {
        self.alive.fetch_add(1, Ordering::SeqCst);
    }

    pub fn died(&self) {
        self.alive.fetch_sub(1, Ordering::SeqCst);
    }
}

/// How the rank depends on the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slope {
    /// Not at all.
    Flat,
    /// Worse with each lease: spreads.
    Rising,
    /// Better with each lease: fills up.
    Falling,
}

/// All that decides how a resource behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    pub key: u8,
    pub base: u64,
    pub slope: Slope,
    pub capacity: Capacity,
    pub home: Option<usize>,
}

impl Spec {
    pub fn rank(&self, in_flight: u32) -> u64 {
        match self.slope {
            Slope::Flat => self.base,
            Slope::Rising => self.base.saturating_add(u64::from(in_flight)),
            Slope::Falling => self.base.saturating_sub(u64::from(in_flight)),
        }
    }

    /// Leases allowed at once; `None` if the scheduler must refuse it.
    pub fn limit(&self) -> Option<u32> {
        match self.capacity {
            Capacity::Exclusive => Some(1),
            Capacity::Limited(n) if (1..=Capacity::MAX).contains(&n) => Some(n),
            Capacity::Limited(_) => None,
            Capacity::Unlimited => Some(Capacity::MAX),
        }
    }
}

/// The resource.
#[derive(Debug)]
pub struct Item {
    pub spec: Spec,
    /// Which of all resources and values of a run this is.
    pub version: u32,
    ledger: Arc<Ledger>,
}

impl Item {
    pub fn new(spec: Spec, version: u32, ledger: &Arc<Ledger>) -> Self {
        ledger.born();
        Item { spec, version, ledger: Arc::clone(ledger) }
    }
}

impl Drop for Item {
    fn drop(&mut self) {
        // Counted before the hook: a panicking drop has dropped all the same.
        self.ledger.died();
        probe(Site::DropItem);
    }
}

impl Resource for Item {
    type Key = Key;
    type Priority = u64;

    fn key(&self) -> Key {
        probe(Site::Key);
        Key(self.spec.key)
    }

    fn priority(&self, in_flight: u32) -> u64 {
        probe(Site::Priority);
        self.spec.rank(in_flight)
    }

    fn priority_seen(&self, in_flight: u32, seen: Seen) -> u64 {
        probe(Site::PrioritySeen);
        self.spec.rank(in_flight).saturating_add(u64::from(seen.failures))
    }

    fn cooldown(&self) -> Option<Cooldown> {
        probe(Site::Cooldown);
        None
    }

    fn capacity(&self) -> Capacity {
        probe(Site::Capacity);
        self.spec.capacity
    }

    fn home(&self, _shards: usize) -> Option<usize> {
        probe(Site::Home);
        self.spec.home
    }
}
