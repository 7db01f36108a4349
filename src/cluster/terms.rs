//! The times of a cluster, and what follows from them.

use std::{error::Error, fmt, time::Duration};

/// How long claims last, and with what margins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    ttl: Duration,
    margin: Duration,
    lead: Duration,
    unrecorded: bool,
    floor: u32,
    headroom: u32,
}

impl Terms {
    /// The shortest time to live.
    pub const MIN_TTL: Duration = Duration::from_millis(100);
    /// The longest.
    pub const MAX_TTL: Duration = Duration::from_secs(86_400);

    /// With this time to live, a tenth of it as margin, and a tenth as lead.
    pub const fn new(ttl: Duration) -> Self {
        let tenth = Duration::from_nanos((ttl.as_nanos() / 10) as u64);
        Terms { ttl, margin: tenth, lead: tenth, unrecorded: false, floor: 1, headroom: 25 }
    }

    /// How much earlier than the engine a member ends its own claims: covers the drift between clocks over the time to live, and how
    /// late the cluster's thread may run.
    #[must_use]
    pub const fn margin(mut self, margin: Duration) -> Self {
        self.margin = margin;
        self
    }

    /// How long before that nothing is lent any more, so that leases can come back by themselves.
    #[must_use]
    pub const fn lead(mut self, lead: Duration) -> Self {
        self.lead = lead;
        self
    }

    /// Allows a scheduler that does not record its leases (see [`Builder::max_hold`](crate::Builder::max_hold)). They cannot be revoked: one that
    /// outlives its claim goes on, and only a [`Fence`](super::Fence) tells its holder. Default: refused.
    #[must_use]
    pub const fn unrecorded_leases(mut self, allowed: bool) -> Self {
        self.unrecorded = allowed;
        self
    }

    /// Units that a member keeps whatever it needs. Default: 1. What is asked for by forms that do not wait shows as need only
    /// if there is something to lend.
    #[must_use]
    pub const fn floor(mut self, units: u32) -> Self {
        self.floor = units;
        self
    }

    /// Units that a member keeps free, in per cent of what it needs. Default: 25.
    #[must_use]
    pub const fn headroom(mut self, percent: u32) -> Self {
        self.headroom = percent;
        self
    }

    /// The time to live.
    pub const fn ttl(&self) -> Duration {
        self.ttl
    }

    pub(super) const fn allows_unrecorded(&self) -> bool {
        self.unrecorded
    }

    pub(super) const fn least(&self) -> u32 {
        self.floor
    }

    /// Free units beside so many that are needed.
    pub(super) fn spare_for(&self, need: u32) -> u32 {
        let share = u64::from(need) * u64::from(self.headroom);
        u32::try_from(share.div_ceil(100)).unwrap_or(u32::MAX)
    }

    pub(super) fn check(self) -> Result<Self, TermsError> {
        let fault = if self.ttl < Self::MIN_TTL {
            "a time to live of at least 100 ms is allowed"
        } else if self.ttl > Self::MAX_TTL {
            "a time to live of at most a day is allowed"
        } else if self.margin < self.ttl / 100 {
            "a margin of at least a hundredth of the time to live is allowed: clocks drift"
        } else if self.margin.saturating_add(self.lead) > self.ttl / 2 {
            "margin and lead together may be at most half of the time to live, or no time is left to renew"
        } else {
            return Ok(self);
        };
        Err(TermsError { terms: self, fault })
    }

    /// How long claims are good from before the request.
    pub(super) fn good_for(&self) -> Duration {
        self.ttl - self.margin
    }

    /// Of that, how long things are lent.
    pub(super) fn lent_for(&self) -> Duration {
        self.good_for().saturating_sub(self.lead)
    }

    /// From one renewal to the next.
    pub(super) fn period(&self) -> Duration {
        self.ttl / 5
    }

    /// How long an answer is waited for: where claims last for long, a connection that is dead is not to hold up everything for long.
    pub(super) fn patience(&self) -> Duration {
        (self.ttl / 10).min(Duration::from_secs(2))
    }

    /// How long a lease may take that was handed to somebody who has not woken up yet.
    pub(super) fn pick_up(&self) -> Duration {
        self.ttl / 10
    }

    /// How long after so many failures in a row, one at least, it is tried again: a second and then twice as long each time, never more than a
    /// twentieth of the time to live, on which what is promised counts.
    pub(super) fn retry(&self, failures: u32) -> Duration {
        let longer = Duration::from_secs(1).saturating_mul(1 << failures.saturating_sub(1).min(16));
        (self.ttl / 20).min(longer)
    }

    /// How often holds are told.
    pub(super) fn letters(&self) -> Duration {
        (self.ttl / 20).min(Duration::from_secs(1))
    }

    /// How long something must have been in excess before it is given back unasked.
    pub(super) fn calm(&self) -> Duration {
        self.ttl * 2
    }
}

impl Default for Terms {
    /// A time to live of 5 s.
    fn default() -> Self {
        Terms::new(Duration::from_secs(5))
    }
}

/// Why terms cannot be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TermsError {
    terms: Terms,
    fault: &'static str,
}

impl fmt::Display for TermsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Terms { ttl, margin, lead, .. } = self.terms;
        write!(f, "time to live {ttl:?}, margin {margin:?}, lead {lead:?}: {}", self.fault)
    }
}

impl Error for TermsError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds() {
        let second = Duration::from_secs(1);
        assert!(Terms::default().check().is_ok());
        assert!(Terms::new(Terms::MIN_TTL).check().is_ok());
        assert!(Terms::new(Terms::MIN_TTL / 2).check().is_err());
        assert!(Terms::new(Terms::MAX_TTL).check().is_ok());
        assert!(Terms::new(Duration::MAX).check().is_err());
        assert!(Terms::new(second).margin(Duration::from_millis(9)).check().is_err());
        assert!(Terms::new(second).margin(second / 4).lead(second / 4).check().is_ok());
        let text = Terms::new(second).margin(second / 2).check().unwrap_err().to_string();
        assert!(text.contains("half of the time to live"), "{text}");
    }

    #[test]
    fn long_times_to_live_wait_no_longer_for_a_dead_connection() {
        let of = |seconds| Terms::new(Duration::from_secs(seconds));
        assert_eq!([5, 20, 3_600].map(|ttl| of(ttl).patience().as_millis()), [500, 2_000, 2_000]);
        assert_eq!([1, 2, 9].map(|failures| of(5).retry(failures).as_millis()), [250, 250, 250]);
        assert_eq!([1, 2, 9, 99].map(|failures| of(3_600).retry(failures).as_secs()), [1, 2, 180, 180]);
    }

    #[test]
    fn spare_units_follow_need() {
        let terms = Terms::new(Duration::from_secs(1)).headroom(50);
        assert_eq!([0, 1, 3, 100].map(|need| terms.spare_for(need)), [0, 1, 2, 50]);
        assert_eq!(terms.headroom(u32::MAX).spare_for(u32::MAX), u32::MAX);
    }
}
