//! Events and leases for `tracing`, with field names in the manner of OpenTelemetry.

use std::{fmt, hash::BuildHasher, ops::Deref};

use tracing::{Level, Span, field::Empty};

use crate::{AcquireError, Dropped, Event, Lease, Observer, Outcome, Resource, Scheduler};

/// An [`Observer`] that makes a `tracing` event of each event of the scheduler: target `leasehold`, level `DEBUG`; drops are `WARN`.
///
/// | field | meaning |
/// |---|---|
/// | `leasehold.scheduler.name` | the name given here |
/// | `leasehold.event.name` | [`EventKind::name`](crate::EventKind::name) |
/// | `leasehold.resource.key` | the key, as its `Debug` shows it; absent if there is none |
/// | `leasehold.resource.generation` | the generation of its state |
/// | `leasehold.shard.id` | the shard |
/// | `leasehold.event.sequence` | the sequence number in the shard |
/// | `leasehold.events.dropped` | of a drop: how many |
#[derive(Clone, Debug)]
pub struct TracingObserver {
    name: String,
}

impl TracingObserver {
    /// For a scheduler of this name.
    pub fn new(name: impl Into<String>) -> Self {
        TracingObserver { name: name.into() }
    }
}

impl<K: fmt::Debug> Observer<K> for TracingObserver {
    fn on_event(&mut self, event: &Event<K>) {
        tracing::event!(
            target: "leasehold",
            Level::DEBUG,
            leasehold.scheduler.name = self.name,
            leasehold.event.name = event.kind.name(),
            leasehold.resource.key = event.key.as_ref().map(tracing::field::debug),
            leasehold.resource.generation = event.generation,
            leasehold.shard.id = event.shard,
            leasehold.event.sequence = event.sequence
        );
    }

    fn on_drop(&mut self, dropped: Dropped) {
        tracing::event!(
            target: "leasehold",
            Level::WARN,
            leasehold.scheduler.name = self.name,
            leasehold.shard.id = dropped.shard,
            leasehold.event.sequence = dropped.first,
            leasehold.events.dropped = dropped.count,
            "events were dropped"
        );
    }
}

/// A lease with a span around it: `leasehold.lease`, from the acquisition to the return.
///
/// Made by [`acquire_traced`]. Dereferences to the lease.
#[derive(Debug)]
pub struct TracedLease<'s, R: Resource> {
    lease: Lease<'s, R>,
    span: Span,
}

impl<R: Resource> TracedLease<'_, R> {
    /// Its span, to be entered by whoever works with the lease.
    pub fn span(&self) -> &Span {
        &self.span
    }

    /// As [`Lease::finish`]; the span has the outcome.
    pub fn finish(self, outcome: Outcome) {
        let name = match outcome {
            Outcome::Ok { .. } => "ok",
            Outcome::Failed => "failed",
            Outcome::RateLimited { .. } => "rate_limited",
            Outcome::Cancelled => "cancelled",
        };
        self.span.record("leasehold.lease.outcome", name);
        self.lease.finish(outcome);
    }
}

impl<'s, R: Resource> Deref for TracedLease<'s, R> {
    type Target = Lease<'s, R>;

    fn deref(&self) -> &Lease<'s, R> {
        &self.lease
    }
}

/// As [`Scheduler::acquire`], inside a span `leasehold.acquire`; the lease has one of its own.
///
/// # Errors
/// As there; the span of the acquisition then has `error.type`.
#[track_caller]
pub fn acquire_traced<'s, R: Resource, S: BuildHasher>(
    name: &str,
    scheduler: &'s Scheduler<R, S>,
) -> Result<TracedLease<'s, R>, AcquireError> {
    let span = tracing::debug_span!(
        target: "leasehold",
        "leasehold.acquire",
        leasehold.scheduler.name = name,
        error.type = Empty,
    );
    let lease = span.in_scope(|| scheduler.acquire());
    let lease = lease.inspect_err(|error| {
        let kind = match error {
            AcquireError::NoneEligible(_) => "none_eligible",
            AcquireError::Strategy { .. } => "strategy",
            AcquireError::Closed => "closed",
        };
        span.record("error.type", kind);
    })?;
    let span = tracing::debug_span!(
        target: "leasehold",
        "leasehold.lease",
        leasehold.scheduler.name = name,
        leasehold.resource.key = tracing::field::debug(lease.key()),
        leasehold.shard.id = lease.shard() as u64,
        leasehold.lease.outcome = Empty,
    );
    Ok(TracedLease { lease, span })
}
