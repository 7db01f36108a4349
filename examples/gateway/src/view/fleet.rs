//! The fleet as it stands, for people and programs. Names, states and counts; no secret.

use std::{sync::Arc, time::Duration};

use leasehold::{Phase, Reasons, ResourceState, Standing, Timestamp};
use serde::Serialize;

use crate::keys::{Keys, ready_at};

/// Leases that are listed: the oldest ones, which are those that somebody looks for.
const LISTED: usize = 10;

/// Everything that the page shows.
#[derive(Debug, Serialize)]
pub struct Fleet {
    /// Whether the gateway shuts down.
    pub draining: bool,
    /// Keys that can be lent.
    pub eligible: u64,
    /// Those that cannot, by reason.
    pub reasons: Reasons,
    /// Leases out.
    pub in_flight: u64,
    /// Units that could be lent.
    pub available: u64,
    /// Requests that wait for a key.
    pub waiting: u64,
    /// What has become of leases.
    pub outcomes: Outcomes,
    /// Each key, in order of tier and name: the same at every look.
    pub keys: Vec<Key>,
    /// The leases that are out the longest.
    pub oldest: Vec<Held>,
}

/// Finished leases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Outcomes {
    /// Well.
    pub ok: u64,
    /// Badly.
    pub failed: u64,
    /// The provider has limited the rate.
    pub rate_limited: u64,
    /// The client has gone.
    pub cancelled: u64,
}

/// One key.
#[derive(Debug, Serialize)]
pub struct Key {
    /// Its name.
    pub name: Arc<str>,
    /// Its tier.
    pub tier: u8,
    /// Whether it can be lent, or what stands in the way most.
    pub standing: Standing,
    /// Until it can be lent again, if that is a matter of time.
    pub ready_in_ms: Option<u64>,
    /// Where it is on its way back after an ejection.
    pub phase: Phase,
    /// Leases out.
    pub in_flight: u32,
    /// Leases allowed.
    pub limit: u32,
    /// The mean time to the head of an answer.
    pub latency_ms: f64,
    /// Times it was ejected.
    pub ejections: u64,
    /// What has become of its leases.
    pub outcomes: Outcomes,
}

/// A lease that is out.
#[derive(Debug, Serialize)]
pub struct Held {
    /// The key.
    pub key: Arc<str>,
    /// For how long.
    pub held_ms: u64,
}

impl Fleet {
    /// Reads it. Each number is true at some moment of the call.
    pub fn read(keys: &Keys, draining: bool) -> Self {
        // Whose time is over can be lent, also if nobody has asked for a key since.
        keys.tick();
        let stats = keys.stats();
        let waits = &stats.waits;
        let ended = waits.handed_off + waits.timed_out + waits.cancelled + waits.failed + waits.closed;
        let now = keys.now();
        let mut rows: Vec<Key> =
            keys.snapshot().into_iter().map(|state| Key::read(keys, state, now)).collect();
        rows.sort_by(|one, other| (one.tier, &one.name).cmp(&(other.tier, &other.name)));
        // The oldest come first.
        let mut oldest = keys.leases();
        oldest.truncate(LISTED);
        let held =
            |lease: leasehold::LeaseInfo<Arc<str>>| Held { key: lease.key, held_ms: millis(lease.held_for) };
        Fleet {
            draining,
            eligible: stats.eligible,
            reasons: stats.reasons,
            in_flight: stats.in_flight,
            available: stats.available,
            waiting: waits.waited.saturating_sub(ended),
            outcomes: Outcomes {
                ok: stats.succeeded,
                failed: stats.failed,
                rate_limited: stats.rate_limited,
                cancelled: stats.cancelled,
            },
            keys: rows,
            oldest: oldest.into_iter().map(held).collect(),
        }
    }
}

impl Key {
    fn read(keys: &Keys, state: ResourceState<Arc<str>>, now: Timestamp) -> Self {
        // The resource itself, read without a lease.
        let tier = keys.get(&state.key).map_or(0, |key| key.tier);
        let seen = keys.resource_stats(&state.key).unwrap_or_default();
        let ready = ready_at(&state, now).filter(|_| state.standing != Standing::Eligible);
        let left = ready.map(|ready| ready.saturating_since(now));
        Key {
            name: state.key,
            tier,
            standing: state.standing,
            ready_in_ms: left.map(millis),
            phase: state.phase,
            in_flight: state.in_flight,
            limit: state.limit,
            latency_ms: seen.latency_nanos as f64 / 1e6,
            ejections: seen.ejections,
            outcomes: Outcomes {
                ok: seen.succeeded,
                failed: seen.failed,
                rate_limited: seen.rate_limited,
                cancelled: seen.cancelled,
            },
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
