//! Events and leases for `tracing`, with field names in the manner of OpenTelemetry.

use std::{
    fmt,
    future::Future,
    hash::BuildHasher,
    ops::{Deref, DerefMut},
    time::Duration,
};

use tracing::{Instrument, Level, Span, field::Empty};

use crate::{
    AcquireError, AcquireKeyError, Dropped, Event, Lease, Observer, Outcome, OwnedLease, ReleaseError,
    Resource, Scheduler, WaitError,
};

/// An [`Observer`] that makes a `tracing` event of each event of the scheduler: target `leasehold`, level `DEBUG`; drops are `WARN`.
///
/// | field | meaning |
/// |---|---|
/// | `leasehold.scheduler.name` | the name given here |
/// | `leasehold.event.name` | [`EventKind::name`](crate::EventKind::name) |
/// | `leasehold.resource.key` | the key, as its `Debug` shows it; absent if there is none |
/// | `leasehold.resource.generation` | the generation of its state |
/// | `leasehold.resource.membership` | [`Event::membership`]: of two events of one key, the larger is the later; absent if there is no resource |
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
            leasehold.resource.membership = (event.membership > 0).then_some(event.membership),
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

/// A lease that a span can be put around: [`Lease`] and [`OwnedLease`].
pub trait Traceable: ends::Ends {}

impl<R: Resource> Traceable for Lease<'_, R> {}
impl<R: Resource> Traceable for OwnedLease<R> {}

/// An error whose kind is told in `error.type`: that of any way to acquire.
pub trait Refusal: kinds::Kind {}

impl Refusal for AcquireError {}
impl<K> Refusal for AcquireKeyError<K> {}
impl Refusal for WaitError {}

/// What the two kinds of leases have in common. Nobody else has it.
mod ends {
    use super::{Duration, Lease, Outcome, OwnedLease, ReleaseError, Resource, fmt};

    pub trait Ends: Sized {
        type Key: fmt::Debug;
        fn key(&self) -> &Self::Key;
        fn shard(&self) -> usize;
        fn try_finish(self, outcome: Outcome) -> Result<(), ReleaseError>;
        fn try_finish_after(self, outcome: Outcome, rest: Duration) -> Result<(), ReleaseError>;
        fn try_release_after(self, rest: Duration) -> Result<(), ReleaseError>;
    }

    macro_rules! ends {
        ($lease:ty) => {
            type Key = R::Key;

            fn key(&self) -> &R::Key {
                <$lease>::key(self)
            }

            fn shard(&self) -> usize {
                <$lease>::shard(self)
            }

            fn try_finish(self, outcome: Outcome) -> Result<(), ReleaseError> {
                <$lease>::try_finish(self, outcome)
            }

            fn try_finish_after(self, outcome: Outcome, rest: Duration) -> Result<(), ReleaseError> {
                <$lease>::try_finish_after(self, outcome, rest)
            }

            fn try_release_after(self, rest: Duration) -> Result<(), ReleaseError> {
                <$lease>::try_release_after(self, rest)
            }
        };
    }

    impl<R: Resource> Ends for Lease<'_, R> {
        ends!(Lease<'_, R>);
    }

    impl<R: Resource> Ends for OwnedLease<R> {
        ends!(OwnedLease<R>);
    }
}

mod kinds {
    use super::{AcquireError, AcquireKeyError, WaitError};

    pub trait Kind {
        fn kind(&self) -> &'static str;
    }

    impl Kind for AcquireError {
        fn kind(&self) -> &'static str {
            match self {
                AcquireError::NoneEligible(_) => "none_eligible",
                AcquireError::Strategy { .. } => "strategy",
                AcquireError::Closed => "closed",
            }
        }
    }

    impl<K> Kind for AcquireKeyError<K> {
        fn kind(&self) -> &'static str {
            match self {
                AcquireKeyError::NotFound { .. } => "not_found",
                AcquireKeyError::NotEligible { .. } => "not_eligible",
                AcquireKeyError::Closed => "closed",
            }
        }
    }

    impl Kind for WaitError {
        fn kind(&self) -> &'static str {
            match self {
                WaitError::Closed => "closed",
                WaitError::TimedOut { .. } => "timed_out",
                WaitError::QueueFull { .. } => "queue_full",
                WaitError::Shed { .. } => "shed",
                WaitError::NotFound => "not_found",
                WaitError::Strategy { .. } => "strategy",
            }
        }
    }
}

/// A lease with a span around it: `leasehold.lease`, target `leasehold`, level `DEBUG`, from the acquisition to the return.
///
/// | field | meaning |
/// |---|---|
/// | `leasehold.scheduler.name` | the name given here |
/// | `leasehold.resource.key` | the key, as its `Debug` shows it |
/// | `leasehold.shard.id` | the shard |
/// | `leasehold.lease.outcome` | of a lease that was finished, if that counts: `ok`, `failed`, `rate_limited` or `cancelled` |
/// | `leasehold.lease.rest` | for how many seconds the resource rests, if whoever returned it said so, and that counts |
/// | `error.type` | of a lease that was over before it was finished, or released with a rest: `revoked`, or `stale` if its token came back first |
///
/// They are noted when the lease has come back: what the span says has happened. A lease that is dropped says nothing.
///
/// Made by [`traced`], [`traced_async`] and [`acquire_traced`], and around any lease by [`TracedLease::new`]. Dereferences to the lease.
///
/// ```
/// use leasehold::{Entry, Outcome, Scheduler, tracing::{TracedLease, traced}};
/// use std::time::Duration;
///
/// let scheduler = Scheduler::<Entry<u8, u32, ()>>::builder().build()?;
/// scheduler.insert(Entry::new(1, 0, ()))?;
/// let lease = traced("keys", || scheduler.acquire_by_affinity("session"))?;
/// lease.span().in_scope(|| tracing::info!("at work"));
/// lease.finish_after(Outcome::Failed, Duration::ZERO);
/// // From wherever it comes.
/// for lease in scheduler.acquire_many(1)? {
///     drop(TracedLease::new("keys", lease));
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "a lease that is dropped at once lends nothing"]
pub struct TracedLease<L> {
    lease: L,
    span: Span,
}

impl<L: Traceable> TracedLease<L> {
    /// Puts a span around a lease of the scheduler of this name: a child of the one that is entered now.
    pub fn new(name: &str, lease: L) -> Self {
        let span = tracing::debug_span!(
            target: "leasehold",
            "leasehold.lease",
            leasehold.scheduler.name = name,
            leasehold.resource.key = tracing::field::debug(lease.key()),
            leasehold.shard.id = lease.shard() as u64,
            leasehold.lease.outcome = Empty,
            leasehold.lease.rest = Empty,
            error.type = Empty,
        );
        TracedLease { lease, span }
    }

    /// Its span, to be entered by whoever works with the lease.
    pub fn span(&self) -> &Span {
        &self.span
    }

    /// The lease, which goes on; the span ends. For what only the lease itself can do: to become a token, to be released
    /// with an answer.
    pub fn into_inner(self) -> L {
        self.lease
    }

    /// As [`Lease::finish`]; the span has the outcome, or why it does not count.
    pub fn finish(self, outcome: Outcome) {
        let _ = self.try_finish(outcome);
    }

    /// As [`Lease::finish_after`]; the span has the outcome and the rest, or why they do not count.
    pub fn finish_after(self, outcome: Outcome, rest: Duration) {
        let _ = self.try_finish_after(outcome, rest);
    }

    /// As [`Lease::release_after`]; the span has the rest, or why it does not count.
    pub fn release_after(self, rest: Duration) {
        let _ = self.try_release_after(rest);
    }

    /// As [`Lease::try_finish`]; the span as for [`finish`](Self::finish).
    ///
    /// # Errors
    /// As there: the lease was returned, or taken back, before.
    pub fn try_finish(self, outcome: Outcome) -> Result<(), ReleaseError> {
        let TracedLease { lease, span } = self;
        note_end(&span, lease.try_finish(outcome), Some(outcome), None)
    }

    /// As [`Lease::try_finish_after`]; the span as for [`finish_after`](Self::finish_after).
    ///
    /// # Errors
    /// As there: the lease was returned, or taken back, before.
    pub fn try_finish_after(self, outcome: Outcome, rest: Duration) -> Result<(), ReleaseError> {
        let TracedLease { lease, span } = self;
        note_end(&span, lease.try_finish_after(outcome, rest), Some(outcome), Some(rest))
    }

    /// As [`Lease::try_release_after`]; the span as for [`release_after`](Self::release_after).
    ///
    /// # Errors
    /// As there: the lease was returned, or taken back, before.
    pub fn try_release_after(self, rest: Duration) -> Result<(), ReleaseError> {
        let TracedLease { lease, span } = self;
        note_end(&span, lease.try_release_after(rest), None, Some(rest))
    }
}

impl<L> Deref for TracedLease<L> {
    type Target = L;

    fn deref(&self) -> &L {
        &self.lease
    }
}

impl<L> DerefMut for TracedLease<L> {
    fn deref_mut(&mut self) -> &mut L {
        &mut self.lease
    }
}

/// What has become of a lease, after it came back or did not: what was refused is not told as done.
fn note_end(
    span: &Span,
    ended: Result<(), ReleaseError>,
    outcome: Option<Outcome>,
    rest: Option<Duration>,
) -> Result<(), ReleaseError> {
    if let Err(error) = &ended {
        let kind = match error {
            ReleaseError::Revoked { .. } => "revoked",
            ReleaseError::Stale { .. } => "stale",
            ReleaseError::Foreign => "foreign",
        };
        span.record("error.type", kind);
        return ended;
    }
    if let Some(outcome) = outcome {
        let name = match outcome {
            Outcome::Ok { .. } => "ok",
            Outcome::Failed => "failed",
            Outcome::RateLimited { .. } => "rate_limited",
            Outcome::Cancelled => "cancelled",
        };
        span.record("leasehold.lease.outcome", name);
    }
    if let Some(rest) = rest {
        span.record("leasehold.lease.rest", rest.as_secs_f64());
    }
    ended
}

fn acquisition(name: &str) -> Span {
    tracing::debug_span!(
        target: "leasehold",
        "leasehold.acquire",
        leasehold.scheduler.name = name,
        error.type = Empty,
    )
}

/// What has come of an acquisition, whose span ends here.
fn acquired<L: Traceable, E: Refusal>(
    name: &str,
    span: Span,
    lease: Result<L, E>,
) -> Result<TracedLease<L>, E> {
    if let Err(error) = &lease {
        span.record("error.type", error.kind());
    }
    drop(span);
    lease.map(|lease| TracedLease::new(name, lease))
}

/// Acquires in whatever way, inside a span `leasehold.acquire`; the lease has one of its own. By key, by affinity, with a filter, owned,
/// after a wait of this thread; `name` is the scheduler's.
///
/// # Errors
/// Those of `acquire`; the span of the acquisition then has `error.type`.
pub fn traced<L: Traceable, E: Refusal>(
    name: &str,
    acquire: impl FnOnce() -> Result<L, E>,
) -> Result<TracedLease<L>, E> {
    let span = acquisition(name);
    let lease = span.in_scope(acquire);
    acquired(name, span, lease)
}

/// As [`traced`], for a task: awaits any future that ends with a lease. The span is entered whenever it is polled, and lasts for as long as
/// the wait. Cancel-safe if the future is.
///
/// # Errors
/// Those of `waiting`; the span of the acquisition then has `error.type`.
pub async fn traced_async<L: Traceable, E: Refusal>(
    name: &str,
    waiting: impl Future<Output = Result<L, E>>,
) -> Result<TracedLease<L>, E> {
    let span = acquisition(name);
    let lease = waiting.instrument(span.clone()).await;
    acquired(name, span, lease)
}

/// As [`Scheduler::acquire`], inside a span `leasehold.acquire`; the lease has one of its own.
///
/// # Errors
/// As there; the span of the acquisition then has `error.type`.
#[track_caller]
pub fn acquire_traced<'s, R: Resource, S: BuildHasher>(
    name: &str,
    scheduler: &'s Scheduler<R, S>,
) -> Result<TracedLease<Lease<'s, R>>, AcquireError> {
    let span = acquisition(name);
    // Not in a closure, which would be the place in the program that has asked.
    let entered = span.enter();
    let lease = scheduler.acquire();
    drop(entered);
    acquired(name, span, lease)
}
