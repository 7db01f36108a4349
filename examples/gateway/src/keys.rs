//! An API key as a resource, and the scheduler that lends it.

use std::{fmt, sync::Arc, time::Duration};

use http::HeaderValue;
use leasehold::{
    Affinity, Backoff, BuildError, Capacity, Cooldown, Ejection, Overdue, Resource, ResourceState, Scheduler,
    Standing, Timestamp, TokioTimer, tracing::TracingObserver,
};

use crate::fleet::{Secrets, Spec};

/// The scheduler of the gateway.
pub type Keys = Scheduler<ApiKey>;

/// What is lent: the right to send one request with this key's secret.
pub struct ApiKey {
    /// Its name in the fleet file.
    pub name: Arc<str>,
    /// The value of `Authorization`.
    pub authorization: HeaderValue,
    /// The better tier, the lower number, goes first.
    pub tier: u8,
    slots: u32,
    weight: u32,
}

impl ApiKey {
    /// A key of the fleet file with its secret.
    pub fn new(spec: &Spec, authorization: HeaderValue) -> Self {
        ApiKey {
            name: Arc::clone(&spec.key),
            authorization,
            tier: spec.tier,
            slots: spec.max_in_flight,
            weight: spec.weight,
        }
    }
}

impl Resource for ApiKey {
    type Key = Arc<str>;
    /// Tier, then load.
    type Priority = (u8, u16);

    fn key(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    /// The load is the share of the slots in use, in 65,535ths, divided by the weight. The scheduler asks again whenever the number of
    /// leases changes: nobody has to keep a load up to date.
    fn priority(&self, in_flight: u32) -> (u8, u16) {
        let full = u64::from(self.slots) * u64::from(self.weight);
        let load = u64::from(in_flight.min(self.slots)) * u64::from(u16::MAX) / full;
        (self.tier, load as u16)
    }

    fn capacity(&self) -> Capacity {
        Capacity::Limited(self.slots)
    }
}

/// Without the secret.
impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiKey").field("name", &self.name).finish_non_exhaustive()
    }
}

/// When a key can be lent by itself: now, or when the last of its holds has ended, or a ramp allows one more. `None` if that is not a matter
/// of time: it takes a return, or an operator, who alone ends an exclusion, or an ejection by hand.
pub fn ready_at(state: &ResourceState<Arc<str>>, now: Timestamp) -> Option<Timestamp> {
    state.ready_at.map(|ready| now.max(Timestamp::from_nanos(ready)))
}

/// Whether a key may be lent until then: by itself, or because others return it. What only an operator lets back does not come.
pub fn may_come(state: &ResourceState<Arc<str>>, until: Timestamp) -> bool {
    let in_time = |moment: u64| moment <= until.as_nanos();
    let is_free = match state.standing {
        Standing::Excluded | Standing::Draining | Standing::Removed => false,
        // By hand it has no end.
        Standing::Ejected => state.ejected_until.is_some_and(in_time),
        _ => true,
    };
    is_free && state.cooling_until.is_none_or(in_time)
}

/// What follows from what happens to a key.
#[derive(Clone, Debug)]
pub struct Policy {
    /// When a key is taken out because of its failures.
    pub ejection: Ejection,
    /// How long a key rests after a failure; after a rate limit it rests as long as the provider says, and a little if that is not at all.
    pub cooldown: Cooldown,
    /// For how long a key may be held by one request, the streamed answer included; then it is taken back.
    pub max_hold: Duration,
    /// Requests that may wait for a key at once; the next one is refused.
    pub max_waiters: usize,
}

impl Default for Policy {
    fn default() -> Self {
        let rest = Backoff::Exponential { base: Duration::from_millis(100), longest: Duration::from_secs(5) };
        Policy {
            // A small fleet: with the default of 10 % nobody would be ejected.
            ejection: Ejection::default()
                .failure_rate(50, 20)
                .base(Duration::from_secs(10))
                .longest(Duration::from_secs(120))
                .ramp(Duration::from_secs(10))
                .max_share(34),
            cooldown: Cooldown::default().on_failure(rest),
            max_hold: Duration::from_secs(600),
            max_waiters: 1_000,
        }
    }
}

/// Makes the scheduler of a fleet. To be called inside a tokio runtime, which becomes its timer.
///
/// # Errors
/// [`BuildError`], if the policy is out of range.
///
/// # Panics
/// If a key of the fleet has no secret: [`Secrets`] are made for a fleet.
pub fn scheduler(fleet: &[Spec], secrets: &Secrets, policy: &Policy) -> Result<Arc<Keys>, BuildError> {
    let keys = Keys::builder()
        // Some dozens of keys, and milliseconds for each request: one shard keeps them in exact order.
        .shards(1)
        // A session keeps to its key, whatever the tier: the provider has its prompt cached there.
        .affinity(Affinity::Resource)
        .expected_resources(fleet.len())
        // Who is cooling must become eligible in time, while only tasks wait.
        .timer(TokioTimer::current())
        .max_waiters(policy.max_waiters)
        .shed_late(true)
        .max_hold(policy.max_hold)
        .overdue(Overdue::Revoke)
        .ejection(policy.ejection)
        .cooldown(policy.cooldown)
        .measure(16)
        .observer(TracingObserver::new("keys"))
        .build()?;
    let fleet = fleet.iter().map(|spec| {
        let secret = secrets.get(&spec.key).expect("made for this fleet");
        ApiKey::new(spec, secret.clone())
    });
    keys.insert_batch(fleet.collect()).expect("every name once, every capacity in its range: `fleet::parse`");
    Ok(Arc::new(keys))
}
