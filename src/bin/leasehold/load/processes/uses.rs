//! Which unit was used when, and under which token: for each claim the first moment and the last, so that what is kept follows the claims
//! and not the uses.
//!
//! That is enough to find what a referee who is asked each time would: a unit has one claim at a time, each with a greater token, so
//! all uses under one must be over before the first under the next.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use leasehold::{
    Lease,
    cluster::{Cluster, Fence},
};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use super::super::{
    asset::Asset,
    claim::{Claimed, Claims},
    recorder::lock,
    referee::Referee,
    scenario::Scenario,
};

/// The uses of one unit under one token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// Of all units of the fleet, by resource and then by number.
    pub unit: u32,
    pub token: u64,
    /// When the first use began and the last one ended, nanoseconds on the machine's monotonic clock, which all its processes share.
    pub first: u64,
    pub last: u64,
    pub uses: u64,
    /// Uses that go on.
    pub open: u32,
}

/// All uses in this process.
pub struct Uses {
    cluster: Arc<Cluster<Asset>>,
    referee: Arc<Referee>,
    /// The number of each resource's first unit.
    firsts: Vec<u32>,
    /// The spans of each unit, the last one last.
    spans: Box<[Mutex<Vec<Span>>]>,
    /// Leases whose claim had ended before they could be used.
    unused: AtomicU64,
}

/// A handle for the workers.
pub struct Shared(pub Arc<Uses>);

/// One use.
struct Use {
    uses: Arc<Uses>,
    unit: u32,
    fence: Fence<u32>,
}

fn monotonic() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

impl Uses {
    pub fn new(scenario: &Scenario, cluster: Arc<Cluster<Asset>>, referee: Arc<Referee>) -> Self {
        let mut next = 0;
        let firsts = (0..scenario.resources).map(|index| {
            let first = next;
            next += scenario.limit_of(index).unwrap_or(1);
            first
        });
        let firsts = firsts.collect();
        let spans = (0..next).map(|_| Mutex::default()).collect();
        Uses { cluster, referee, firsts, spans, unused: AtomicU64::new(0) }
    }

    fn begin(&self, unit: u32, token: u64) {
        let mut spans = lock(&self.spans[unit as usize]);
        // After the lock: a use that ended before this one has written it.
        let now = monotonic();
        match spans.iter_mut().rev().find(|span| span.token == token) {
            Some(span) => {
                if span.open > 0 {
                    self.referee.breach(format!("unit {unit}: used twice at once under token {token}"));
                }
                span.open += 1;
                span.uses += 1;
            }
            None => spans.push(Span { unit, token, first: now, last: now, uses: 1, open: 1 }),
        }
    }

    fn end(&self, unit: u32, token: u64) {
        let mut spans = lock(&self.spans[unit as usize]);
        if let Some(span) = spans.iter_mut().rev().find(|span| span.token == token) {
            span.last = span.last.max(monotonic());
            span.open = span.open.saturating_sub(1);
        }
    }

    pub fn all(&self) -> Vec<Span> {
        self.spans.iter().flat_map(|spans| lock(spans).clone()).collect()
    }

    pub fn unused(&self) -> u64 {
        self.unused.load(Ordering::Relaxed)
    }
}

impl Claims for Shared {
    fn claimed(&self, lease: &mut Lease<'_, Asset>) -> Option<Box<dyn Claimed>> {
        let Shared(uses) = self;
        let index = *lease.key();
        let Ok(fence) = uses.cluster.fence(lease) else {
            uses.unused.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        let unit = uses.firsts[index as usize] + fence.unit().index;
        uses.begin(unit, fence.token());
        Some(Box::new(Use { uses: Arc::clone(uses), unit, fence }))
    }
}

impl Claimed for Use {
    fn left(&self) -> Duration {
        self.fence.remaining().unwrap_or(Duration::ZERO)
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        self.uses.end(self.unit, self.fence.token());
    }
}

/// The spans of all processes, by unit.
pub fn by_unit<'a>(spans: impl Iterator<Item = (usize, &'a Span)>) -> HashMap<u32, Vec<(usize, &'a Span)>> {
    let mut units: HashMap<u32, Vec<(usize, &Span)>> = HashMap::new();
    spans.for_each(|(process, span)| units.entry(span.unit).or_default().push((process, span)));
    units
}
