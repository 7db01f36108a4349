//! Time is injected: a scheduler reads it through [`Clock`] and only while something is cooling.

use std::time::{Duration, Instant};

use super::atomic::{AtomicU64, Ordering};

/// A moment on the scheduler's clock: nanoseconds since that clock's own origin.
///
/// Timestamps of different clocks must not be compared. 64 bits of nanoseconds last 584 years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The clock's origin.
    pub const ZERO: Timestamp = Timestamp(0);
    /// The latest moment; used as "never".
    pub const MAX: Timestamp = Timestamp(u64::MAX);

    /// The moment `nanos` nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Timestamp(nanos)
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// This moment plus `duration`, at most [`Timestamp::MAX`].
    #[must_use]
    pub fn saturating_add(self, duration: Duration) -> Self {
        Timestamp(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// The time from `earlier` to this moment, zero if `earlier` is later.
    #[must_use]
    pub const fn saturating_since(self, earlier: Timestamp) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// A source of time that never runs backwards.
///
/// The scheduler calls [`Clock::now`] outside every lock. It may be called from any thread.
pub trait Clock: Send + Sync {
    /// The present moment. Must not be earlier than any moment it has answered before.
    fn now(&self) -> Timestamp;
}

/// The machine's monotonic clock, with its origin at construction.
#[derive(Clone, Debug)]
pub struct MonotonicClock {
    origin: Instant,
}

impl MonotonicClock {
    /// A clock that starts now.
    pub fn new() -> Self {
        MonotonicClock { origin: Instant::now() }
    }
}

impl Default for MonotonicClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for MonotonicClock {
    fn now(&self) -> Timestamp {
        Timestamp::ZERO.saturating_add(self.origin.elapsed())
    }
}

/// A clock that stands still until told otherwise: for tests, models and virtual time.
#[derive(Debug, Default)]
pub struct ManualClock {
    nanos: AtomicU64,
}

impl ManualClock {
    /// A clock at its origin.
    pub fn new() -> Self {
        ManualClock { nanos: AtomicU64::new(0) }
    }

    /// Moves the clock forwards by `duration`, at most to [`Timestamp::MAX`].
    pub fn advance(&self, duration: Duration) {
        self.advance_to(self.now().saturating_add(duration));
    }

    /// Moves the clock to `moment`; a moment in the past leaves it where it is.
    pub fn advance_to(&self, moment: Timestamp) {
        // Relaxed: the clock carries no data but its own value, and fetch_max keeps it monotonic.
        self.nanos.fetch_max(moment.0, Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        // Relaxed: as in `advance_to`.
        Timestamp(self.nanos.load(Ordering::Relaxed))
    }
}

impl<C: Clock + ?Sized> Clock for super::Arc<C> {
    fn now(&self) -> Timestamp {
        (**self).now()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Timestamp::MAX.saturating_add(Duration::from_secs(1)), Timestamp::MAX);
        assert_eq!(Timestamp::ZERO.saturating_add(Duration::MAX), Timestamp::MAX);
        assert_eq!(Timestamp::ZERO.saturating_since(Timestamp::MAX), Duration::ZERO);
        assert_eq!(
            Timestamp::from_nanos(5).saturating_since(Timestamp::from_nanos(2)),
            Duration::from_nanos(3)
        );
    }

    #[test]
    fn manual_clock_never_runs_backwards() {
        let clock = ManualClock::new();
        clock.advance(Duration::from_secs(2));
        clock.advance_to(Timestamp::from_nanos(1));
        assert_eq!(clock.now(), Timestamp::from_nanos(2_000_000_000));
    }

    #[test]
    fn monotonic_clock_is_monotonic() {
        let clock = MonotonicClock::new();
        let earlier = clock.now();
        assert!(clock.now() >= earlier);
    }
}
