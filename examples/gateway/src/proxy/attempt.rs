//! One use of one key: from its lease to the end of the provider's answer.

use std::{fmt, sync::Arc, time::Duration};

use http::StatusCode;
use leasehold::{Outcome, OwnedLease, tracing::TracedLease};
use tokio::time::Instant;
use tracing::{Span, debug};

use crate::{keys::ApiKey, metrics::Metrics};

/// Why an attempt has brought no answer that can be passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The provider has refused for now, and has said, or is assumed to mean, for how long.
    RateLimited {
        /// How long the key is left alone.
        retry_after: Duration,
    },
    /// The provider has failed, or does not know the key.
    Status(StatusCode),
    /// There was no connection: nothing was sent.
    Unreachable,
    /// The connection broke before the answer.
    Lost,
    /// The answer did not begin in time.
    TimedOut,
    /// The time of the whole request was over, which says nothing about the key.
    OutOfTime,
}

impl Trouble {
    /// Whether the provider says that it has not done what was asked, so that it is asked for again in any case. A 500 or a 504 may come of work that
    /// was done, and charged for: whoever cannot bear that sends an `Idempotency-Key` which the provider honours, or leaves 5xx out here.
    pub fn says_undone(self) -> bool {
        match self {
            Trouble::RateLimited { .. } | Trouble::Status(_) | Trouble::Unreachable => true,
            Trouble::Lost | Trouble::TimedOut | Trouble::OutOfTime => false,
        }
    }

    fn end(self) -> End {
        match self {
            Trouble::RateLimited { retry_after } => End::RateLimited { retry_after },
            Trouble::Status(_) => End::Failed("status"),
            Trouble::Unreachable => End::Failed("unreachable"),
            Trouble::Lost => End::Failed("lost"),
            Trouble::TimedOut => End::Failed("timed_out"),
            Trouble::OutOfTime => End::GivenUp,
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::RateLimited { .. } => f.write_str("the provider limits the rate"),
            Trouble::Status(status) => write!(f, "the provider answered {}", status.as_u16()),
            Trouble::Unreachable => f.write_str("the provider cannot be reached"),
            Trouble::Lost => f.write_str("the provider broke the connection off"),
            Trouble::TimedOut | Trouble::OutOfTime => f.write_str("the provider did not answer in time"),
        }
    }
}

/// How an attempt ends, for the key and for the counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The answer was passed on to its end.
    Complete,
    /// The provider has refused for now.
    RateLimited {
        /// For how long.
        retry_after: Duration,
    },
    /// It went wrong, and the key is to blame; with the name in the counts.
    Failed(&'static str),
    /// The client has gone: that says nothing about the key.
    Abandoned,
    /// The request's time was over: nor does that.
    GivenUp,
}

/// A lease and what becomes of it. Dropped without an end, it was abandoned: that is what happens when a client goes, and its future
/// or its body is dropped.
#[derive(Debug)]
pub struct Attempt {
    /// There until the end; with a span of its own, in the request's.
    lease: Option<TracedLease<OwnedLease<ApiKey>>>,
    metrics: Metrics,
    /// The request's, which the body outlives.
    span: Span,
    since: Instant,
    /// From the request to the head of the answer.
    latency: Duration,
}

impl Attempt {
    /// Begins now.
    pub fn begin(lease: OwnedLease<ApiKey>, metrics: &Metrics) -> Self {
        Attempt {
            lease: Some(TracedLease::new("keys", lease)),
            metrics: metrics.clone(),
            span: Span::current(),
            since: Instant::now(),
            latency: Duration::ZERO,
        }
    }

    /// Whether the key was taken back: it was held for too long, and somebody else may have it by now.
    pub fn is_revoked(&self) -> bool {
        self.lease.as_ref().is_some_and(|lease| lease.is_revoked())
    }

    /// The head of the answer is there. What follows depends on how much was asked for, and says nothing about the key.
    pub fn head_is_there(&mut self) {
        self.latency = self.since.elapsed();
    }

    /// Gives the key back. The first call counts.
    pub fn end(&mut self, end: End) {
        let Some(lease) = self.lease.take() else { return };
        let (result, outcome) = match end {
            End::Complete => ("ok", Outcome::Ok { latency: self.latency }),
            End::RateLimited { retry_after } => ("rate_limited", Outcome::RateLimited { retry_after }),
            End::Failed(how) => (how, Outcome::Failed),
            End::Abandoned => ("abandoned", Outcome::Cancelled),
            End::GivenUp => ("given_up", Outcome::Cancelled),
        };
        debug!(parent: &self.span, key = %lease.name, result, after = ?self.since.elapsed(), "an attempt has ended");
        let name = Arc::clone(&lease.name);
        // A lease that was taken back has returned already: its outcome harms nobody, and the scheduler does not count it. Here both is
        // counted: what was done, and that it was too late.
        let is_late = lease.try_finish(outcome).is_err();
        self.metrics.tried(&name, result, is_late);
    }

    /// Ends it with a trouble, which is handed back.
    pub fn fail(mut self, trouble: Trouble) -> Trouble {
        self.end(trouble.end());
        trouble
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        self.end(End::Abandoned);
    }
}
