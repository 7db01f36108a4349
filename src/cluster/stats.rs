//! What is told of a cluster.

use super::engine::MemberView;

/// How a member stands, and what has happened to it.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ClusterStats {
    /// Whether the last request to the engine was answered.
    pub connected: bool,
    /// Whether holds of others are heard of at once; if not, with the renewals alone: [`Engine::hears_news`](super::Engine::hears_news).
    pub hears_news: bool,
    /// Other processes that have this member's name, as of the last renewal: each needs a name of its own.
    pub namesakes: u32,
    /// Whether there is a session whose claims are good.
    pub live: bool,
    /// Whether nothing is lent because the claims are about to end.
    pub suspended: bool,
    /// Units claimed.
    pub held: u32,
    /// Of those, units that are lent.
    pub lendable: u32,
    /// Units that nobody has, as of the last renewal.
    pub free: u32,
    /// The members, as of the last renewal.
    pub members: Vec<MemberView>,
    /// The part of all units that other members should have than have them, as of the last renewal: 0 is balance.
    pub imbalance: f64,
    /// Renewals that were acknowledged.
    pub renewals: u64,
    /// Units that were claimed.
    pub claimed: u64,
    /// Units that were given back.
    pub returned: u64,
    /// Units whose claims have ended without having been given back.
    pub losses: u64,
    /// Units that were taken over into a new epoch.
    pub reinstated: u64,
    /// New epochs: restarts and failovers of the engine that were noticed.
    pub epochs: u64,
    /// Leases that were revoked because their claims had ended.
    pub revoked: u64,
    /// Leases that could not be, and went on. See [`Terms::unrecorded_leases`](super::Terms::unrecorded_leases).
    pub outlived: u64,
    /// Requests to the engine.
    pub requests: u64,
    /// Of those, requests whose fate is unknown.
    pub failures: u64,
    /// Changes that the scheduler has refused, or whose callbacks have panicked.
    pub faults: u64,
    /// How long the engine has taken for all requests together, in nanoseconds.
    pub engine_nanos: u64,
    /// How many requests took 2^i microseconds and less than 2^(i+1), at index i; index 0 has the shorter ones too.
    pub engine_histogram: [u64; 24],
    /// What the last failure said.
    pub last_error: Option<String>,
}

impl ClusterStats {
    pub(super) fn took(&mut self, nanos: u64) {
        self.engine_nanos += nanos;
        let bucket = (nanos / 1_000).max(1).ilog2() as usize;
        let last = self.engine_histogram.len() - 1;
        self.engine_histogram[bucket.min(last)] += 1;
    }
}
