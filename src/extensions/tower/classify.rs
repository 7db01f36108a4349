//! What a response or an error means for the resource.

use std::time::Duration;

use crate::Outcome;

/// Says what a response or an error means for the resource that was used for it. Implemented for closures.
///
/// Called once for each response or error of the inner service, outside of all locks.
///
/// ```
/// use leasehold::{Outcome, tower::{ByResult, Classify}};
/// use std::time::Duration;
///
/// let by_status = |result: Result<&u16, &std::io::Error>, latency| match result {
///     Ok(429) => Outcome::RateLimited { retry_after: Duration::from_secs(30) },
///     Ok(500..) => Outcome::Failed,
///     other => ByResult.classify(other, latency),
/// };
/// assert_eq!(by_status.classify(Ok(&503), Duration::ZERO), Outcome::Failed);
/// ```
pub trait Classify<Response, Error> {
    /// What it means. `latency` is the time from the call to the response or the error, on the scheduler's clock; what follows in a
    /// body is not in it.
    fn classify(&self, result: Result<&Response, &Error>, latency: Duration) -> Outcome;
}

/// A response is [`Outcome::Ok`], an error [`Outcome::Failed`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByResult;

impl<Response, Error> Classify<Response, Error> for ByResult {
    fn classify(&self, result: Result<&Response, &Error>, latency: Duration) -> Outcome {
        match result {
            Ok(_) => Outcome::Ok { latency },
            Err(_) => Outcome::Failed,
        }
    }
}

impl<Response, Error, F> Classify<Response, Error> for F
where
    F: Fn(Result<&Response, &Error>, Duration) -> Outcome,
{
    fn classify(&self, result: Result<&Response, &Error>, latency: Duration) -> Outcome {
        self(result, latency)
    }
}
