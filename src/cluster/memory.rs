//! An engine in memory: for tests, and for several clusters of one process.

use std::{fmt, time::Duration};

use super::{
    engine::{Engine, EngineError, HoldNote, Reply, Request},
    ledger::Ledger,
};
use crate::sync::{Arc, Clock, MonotonicClock, Mutex};

struct Shared {
    ledger: Ledger,
    runs: u64,
    reachable: bool,
    /// By connection: what it has not heard yet; none if it was dropped.
    listeners: Vec<Option<Vec<HoldNote>>>,
}

/// An [`Engine`] in memory: its clones are connections to the same one. For tests, and for several schedulers of one process.
///
/// ```
/// use leasehold::cluster::MemoryEngine;
///
/// let engine = MemoryEngine::new();
/// let another = engine.connect();
/// # drop(another);
/// ```
pub struct MemoryEngine {
    shared: Arc<Mutex<Shared>>,
    clock: Arc<dyn Clock>,
    place: usize,
}

impl MemoryEngine {
    /// An engine that knows nothing, on the machine's monotonic clock.
    pub fn new() -> Self {
        Self::with_clock(Arc::new(MonotonicClock::new()))
    }

    /// As [`new`](Self::new), on another clock.
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        let shared =
            Shared { ledger: Ledger::default(), runs: 1, reachable: true, listeners: vec![Some(Vec::new())] };
        MemoryEngine { shared: Arc::new(Mutex::new(shared)), clock, place: 0 }
    }

    fn shared(&self) -> crate::sync::MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Another connection.
    #[must_use]
    pub fn connect(&self) -> Self {
        let mut shared = self.shared();
        let place = match shared.listeners.iter().position(Option::is_none) {
            Some(place) => place,
            None => {
                shared.listeners.push(None);
                shared.listeners.len() - 1
            }
        };
        shared.listeners[place] = Some(Vec::new());
        drop(shared);
        MemoryEngine { shared: Arc::clone(&self.shared), clock: Arc::clone(&self.clock), place }
    }

    /// Whether calls succeed: `false` is an outage.
    pub fn set_reachable(&self, reachable: bool) {
        self.shared().reachable = reachable;
    }

    /// What a restart looks like: another epoch; nothing that was written is sure to be there.
    pub fn restart(&self) {
        self.shared().runs += 1;
    }
}

impl Drop for MemoryEngine {
    /// Nobody keeps what it would have heard.
    fn drop(&mut self) {
        let place = self.place;
        self.shared().listeners[place] = None;
    }
}

impl Default for MemoryEngine {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryEngine").field("place", &self.place).finish_non_exhaustive()
    }
}

impl Engine for MemoryEngine {
    fn call(&mut self, request: &Request, _patience: Duration) -> Result<Reply, EngineError> {
        let now = self.clock.now().as_nanos();
        let mut shared = self.shared();
        if !shared.reachable {
            return Err(EngineError::new("the engine is unreachable, by MemoryEngine::set_reachable"));
        }
        let Shared { ledger, runs, listeners, .. } = &mut *shared;
        let (reply, news) = ledger.step(now, &runs.to_string(), request);
        for listener in listeners.iter_mut().flatten() {
            listener.extend(news.iter().cloned());
        }
        Ok(reply)
    }

    fn news(&mut self) -> Vec<HoldNote> {
        let place = self.place;
        let mut shared = self.shared();
        let reachable = shared.reachable;
        let heard = shared.listeners[place].as_mut().map(std::mem::take).unwrap_or_default();
        // Nobody hears what is told during an outage.
        if reachable { heard } else { Vec::new() }
    }
}
