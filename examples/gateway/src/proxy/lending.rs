//! Which key a request gets, how long it waits for it, and what it is told if there is none.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use leasehold::{AcquireError, Explanation, NoneEligible, OwnedLease, Timestamp, WaitError};

use super::asked::Asked;
use crate::keys::{ApiKey, Keys, may_come, ready_at};

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
///
/// It does not look first and wait then: whoever waits is given at once what there is, and an acquisition that finds nothing is one in
/// vain, in the scheduler's counts, whatever comes after it.
pub async fn lend(
    keys: &Keys,
    asked: &Asked,
    tried: &[Arc<str>],
    until: Timestamp,
) -> Result<OwnedLease<ApiKey>, NoKey> {
    match in_turn(keys, asked, tried, until).await {
        Ok(lease) => return Ok(lease),
        Err(Some(WaitError::Closed)) => return Err(NoKey::Closed),
        // It cannot help, or too many wait, or it was in vain. That says nothing about when to come back; a last look does.
        Err(_) => {}
    }
    at_once(keys, asked, tried)?.map_err(|none| NoKey::Later(none.retry_after))
}

/// Takes what there is, else waits; `Err(None)` if that cannot help.
async fn in_turn(
    keys: &Keys,
    asked: &Asked,
    tried: &[Arc<str>],
    until: Timestamp,
) -> Result<OwnedLease<ApiKey>, Option<WaitError>> {
    let mut wait = pin!(wait(keys, asked, tried, until));
    let first = poll_fn(|context| Poll::Ready(wait.as_mut().poll(context))).await;
    if let Poll::Ready(ended) = first {
        return ended.map_err(Some);
    }
    // Looks at every key: who has to wait has the time. Not by the reasons that an acquisition tells, which are those of the whole fleet:
    // the return of a key that was tried is no help.
    let may_help = keys.snapshot().iter().any(|state| !tried.contains(&state.key) && may_come(state, until));
    if may_help { wait.await.map_err(Some) } else { Err(None) }
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
