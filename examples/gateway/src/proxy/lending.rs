//! Which key a request gets, how long it waits for it, and what it is told if there is none.

use std::{sync::Arc, time::Duration};

use leasehold::{AcquireError, Explanation, NoneEligible, OwnedLease, Timestamp, WaitError};

use super::asked::Asked;
use crate::keys::{ApiKey, Keys, ready_at};

/// Why there is no key.
#[derive(Debug)]
pub enum NoKey {
    /// None was to be had in time; of those that were not tried, the first one can be lent after so long, if that is known.
    Later(Option<Duration>),
    /// The gateway shuts down.
    Closed,
}

/// Lends a key that is none of `tried`: the session's own if it has one and that can be had, else the best. Waits until `until` at
/// most, and only if waiting can help.
pub async fn lend(
    keys: &Keys,
    asked: &Asked,
    tried: &[Arc<str>],
    until: Timestamp,
) -> Result<OwnedLease<ApiKey>, NoKey> {
    let none = match at_once(keys, asked, tried)? {
        Ok(lease) => return Ok(lease),
        Err(none) => none,
    };
    // Somebody will return one, or the time of one comes.
    if none.reasons.at_capacity == 0 && none.earliest.is_none_or(|earliest| earliest > until) {
        return Err(NoKey::Later(none.retry_after));
    }
    match wait(keys, asked, tried, until).await {
        Ok(lease) => return Ok(lease),
        Err(WaitError::Closed) => return Err(NoKey::Closed),
        // Too late, or too many wait. That says nothing about when to come back; a last look does.
        Err(_) => {}
    }
    at_once(keys, asked, tried)?.map_err(|none| NoKey::Later(none.retry_after))
}

fn at_once(
    keys: &Keys,
    asked: &Asked,
    tried: &[Arc<str>],
) -> Result<Result<OwnedLease<ApiKey>, NoneEligible>, NoKey> {
    let lease = match (&asked.session, tried) {
        (Some(session), []) => keys.acquire_by_affinity_owned(session),
        (_, tried) => keys.acquire_excluding_owned(tried),
    };
    match lease {
        Ok(lease) => Ok(Ok(lease)),
        Err(AcquireError::NoneEligible(none)) => Ok(Err(none)),
        Err(_) => Err(NoKey::Closed),
    }
}

/// Which key a request would get at once, and why not the others. Lends it, and gives it back.
pub fn explain(keys: &Keys, session: Option<&str>, tried: &[Arc<str>]) -> Explanation<Arc<str>> {
    // As `at_once`. Of the pair the lease is back before the answer is.
    match (session, tried) {
        (Some(session), []) => keys.acquire_by_affinity_explained(session).1,
        (_, tried) => keys.acquire_excluding_explained(tried).1,
    }
}

/// In the scheduler's queue: fair, and left without a trace if the client goes.
async fn wait(
    keys: &Keys,
    asked: &Asked,
    tried: &[Arc<str>],
    until: Timestamp,
) -> Result<OwnedLease<ApiKey>, WaitError> {
    let request = keys.request().class(asked.class).deadline(until);
    match (&asked.session, tried) {
        (Some(session), []) => request.affinity(session).owned().await,
        (None, []) => request.owned().await,
        (_, tried) => {
            // The filter is run by whoever returns a key, so it owns what it needs.
            let tried = tried.to_vec();
            request.matching(move |key| !tried.contains(&key.name)).owned().await
        }
    }
}

/// After how long a key of the fleet can be lent, if that is a matter of time: for whoever has tried some, and is told to come back.
///
/// Looks at every key: a request comes here once, after attempts that took far longer.
pub fn soonest(keys: &Keys) -> Option<Duration> {
    let now = keys.now();
    let ready = keys.snapshot().iter().filter_map(|state| ready_at(state, now)).min();
    ready.map(|ready| ready.saturating_since(now))
}
