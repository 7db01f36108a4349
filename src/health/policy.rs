//! Settings: when a resource is ejected, and how long it rests.

use std::time::Duration;

use crate::outcome::Outcome;

/// When a resource is taken out because of its outcomes, for how long, and how it comes back.
///
/// Only leases that are [finished](crate::Lease::finish) with an outcome count. An ejected resource has the hold
/// [`Ejected`](crate::Hold::Ejected); when its time is over it is lent once, as a probe: a failure ejects it again, for twice as long; a
/// success lets it back, at first for a small part of the time or of its capacity, which grows linearly to all of it during
/// [`ramp`](Ejection::ramp).
///
/// **A probe that is not given back keeps its resource out**: leaked by `mem::forget`, or held by a thread that hangs. Time does not end
/// it, as nobody can tell it from one that takes long; and a second one beside it would be two. The same goes for leases from before the ejection, which come
/// back before the probe is lent. [`max_hold`](crate::Builder::max_hold) with [`Overdue::Revoke`](crate::Overdue::Revoke) bounds both: what is
/// overdue is taken back, says nothing, and the next lease is the probe. Without that, such a resource is to be seen:
/// [`Stats::probing`](crate::Stats::probing) counts them, [`ResourceStats::probing_since`](crate::ResourceStats::probing_since) tells since when,
/// and [`readmit`](crate::Scheduler::readmit) lets one with several units back at once.
///
/// ```
/// use leasehold::{Ejection, Entry, Hold, Outcome, Scheduler};
/// use std::time::Duration;
///
/// let rules = Ejection::default().consecutive_failures(3).max_share(50).base(Duration::from_secs(10));
/// let scheduler = Scheduler::<Entry<u8, u32, ()>>::builder().shards(1).ejection(rules).build()?;
/// scheduler.insert(Entry::new(1, 0, ()))?;
/// scheduler.insert(Entry::new(2, 1, ()))?;
/// for _ in 0..3 {
///     scheduler.acquire_key(&1)?.finish(Outcome::Failed);
/// }
/// assert_eq!(*scheduler.acquire()?.key(), 2);
/// assert_eq!(scheduler.stats().ejected, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use]
pub struct Ejection {
    pub(crate) consecutive: u32,
    pub(crate) rate: Option<(u32, u32)>,
    pub(crate) latency: Option<(f64, u32)>,
    pub(crate) base: Duration,
    pub(crate) longest: Duration,
    pub(crate) jitter: u32,
    pub(crate) max_share: u32,
    pub(crate) ramp: Duration,
    pub(crate) without_place: Backoff,
}

impl Default for Ejection {
    /// Five failures in a row; 30 s, doubled each time, at most 300 s, up to 10 % less at random; at most 10 % of the fleet, and whoever
    /// finds no place rests for 100 ms, doubled each time, at most 2 s, or for as long as [`without_place`](Ejection::without_place) says;
    /// a ramp of 30 s. Neither rate nor latency ejects.
    fn default() -> Self {
        Ejection {
            consecutive: 5,
            rate: None,
            latency: None,
            base: Duration::from_secs(30),
            longest: Duration::from_secs(300),
            jitter: 10,
            max_share: 10,
            ramp: Duration::from_secs(30),
            without_place: Backoff::Exponential {
                base: Duration::from_millis(100),
                longest: Duration::from_secs(2),
            },
        }
    }
}

impl Ejection {
    /// After how many failures in a row; 0: their number alone does not matter.
    pub fn consecutive_failures(self, failures: u32) -> Self {
        Ejection { consecutive: failures, ..self }
    }

    /// If at least `percent` of its last 64 outcomes are failures, and there are at least `calls` of them.
    pub fn failure_rate(self, percent: u32, calls: u32) -> Self {
        Ejection { rate: Some((percent, calls)), ..self }
    }

    /// If its mean latency, weighted exponentially, exceeds `factor` times the fleet's median, and at least `calls` of its last 64
    /// outcomes are known. The median is an estimate: the lower median of those of up to 64 shards.
    pub fn latency(self, factor: f64, calls: u32) -> Self {
        Ejection { latency: Some((factor, calls)), ..self }
    }

    /// For how long the first time; each time after that twice as long, until it has been well for as long as it was ejected last.
    pub fn base(self, base: Duration) -> Self {
        Ejection { base, ..self }
    }

    /// For how long at most.
    pub fn longest(self, longest: Duration) -> Self {
        Ejection { longest, ..self }
    }

    /// By how many percent an ejection is shortened at most, at random: so that those that were ejected together do not come back
    /// together.
    pub fn jitter(self, percent: u32) -> Self {
        Ejection { jitter: percent, ..self }
    }

    /// How many percent of the fleet may be ejected by these rules at once, rounded down: with 10, nobody in a fleet of nine. Counted
    /// with the ejection in question, and kept when members leave: then those whose time is over first come back early, in the call that
    /// removes; for the moment between the removal and that, within this call, there may be one too many for each removal that is going on. No
    /// ejection makes it more. What somebody has [ejected](crate::Scheduler::eject) by hand takes no place, and is no reason to keep others in: whoever does so knows why.
    ///
    /// While there is no place, these rules eject nobody: of two that fail at once, and one place, the other one only
    /// [rests](Ejection::without_place), for a short time, again and again.
    pub fn max_share(self, percent: u32) -> Self {
        Ejection { max_share: percent, ..self }
    }

    /// How long a resource that is to be ejected rests if there is no place under the [share](Ejection::max_share): after a failure
    /// that the rules object to, `times` counting the rests since it was well; of many that come back together, after the first. A probe
    /// that fails without a place rests likewise, and stays a probe. [`Backoff::None`]: such a one is lent as before, and if it has the best
    /// rank and fails at once, to nearly everybody.
    ///
    /// A rest knows no share: if all fail, all rest, and an acquisition that comes meanwhile is told when the first of them is back. So
    /// it should be short: after a fault of all of them at once the fleet is back that much later. A success that is too slow lets nobody
    /// rest: it was one.
    ///
    /// [`Backoff::Exponential`] goes on growing beyond its `longest`, up to [that of ejections](Ejection::longest), as long as others are
    /// well and it would be asked too often: if since its last rest began there were successes in the fleet, but fewer than a hundred for
    /// each of its calls that failed in that time (of one with several units all may be lent before the first is back). Then the next rest is
    /// as many times longer as that takes, at least twice, and at most twice for each such call. So one that fails at once gets
    /// about a hundredth of the calls in the long run, and two hundredths at most, if fifty successes for each of its units take no longer
    /// than the longest ejection. If they take longer it gets more: it is asked again after that time all the same. To rest until slow calls
    /// have added up to so many would keep it out for hours after a quiet night.
    pub fn without_place(self, rest: Backoff) -> Self {
        Ejection { without_place: rest, ..self }
    }

    /// How long it takes after a successful probe until the resource is lent as before. Zero: at once.
    ///
    /// A resource with several units gets them back one after another; one without a limit as many as were lent of it at most, and at the
    /// end of the ramp all. One with a single unit rests after each lease, in proportion to how long that took (or takes in the mean,
    /// if its outcome does not say), so that the part of the time during which it works grows linearly.
    pub fn ramp(self, ramp: Duration) -> Self {
        Ejection { ramp, ..self }
    }

    /// What is wrong with it.
    pub(crate) fn fault(&self) -> Option<&'static str> {
        let percent = |percent: u32| percent <= 100;
        if !percent(self.max_share) || !percent(self.jitter) {
            Some("share and jitter are percentages: at most 100")
        } else if self
            .rate
            .is_some_and(|(rate, calls)| !(1..=100).contains(&rate) || !(1..=64).contains(&calls))
        {
            Some("the failure rate is 1 to 100 percent, of 1 to 64 calls at least")
        } else if self
            .latency
            .is_some_and(|(factor, calls)| factor.is_nan() || factor <= 1.0 || !(1..=64).contains(&calls))
        {
            Some("the latency's factor is above 1, of 1 to 64 calls at least")
        } else if self.base.is_zero() || self.base > self.longest {
            Some("the base is above zero, and not above the longest")
        } else {
            None
        }
    }

    /// For how long one rests that has found no place, the `times`th time since it was well. `last`: for how long before; meanwhile: its
    /// calls that have failed, and the successes of others, if they are known.
    pub(crate) fn rest_without_place(
        &self,
        times: u32,
        last: u64,
        (calls, others): (u32, Option<u64>),
    ) -> Option<u64> {
        let usual = self.without_place.after(times)?;
        let is_fixed = !matches!(self.without_place, Backoff::Exponential { .. });
        let calls = u64::from(calls).max(1);
        let enough = ENOUGH * calls;
        Some(match others {
            _ if times < 2 || is_fixed => usual,
            Some(0) => usual,
            Some(others) if others < enough => {
                // Asked more often than it should be, and the others do what there is to do. Not as much longer as a few successes would
                // say: there may soon be many.
                let longer = (enough / others).clamp(2, 2 * calls);
                last.saturating_mul(longer).min(nanos(self.longest)).max(usual)
            }
            _ => last.max(usual),
        })
    }

    /// For how long the `times`th ejection in a row lasts. `draw` is uniform over 16 bits.
    pub(crate) fn duration(&self, times: u32, draw: u16) -> u64 {
        let (base, longest) = (nanos(self.base), nanos(self.longest));
        let full = doubled(base, times).min(longest);
        let most = u128::from(full) * u128::from(self.jitter) / 100;
        full - (most * u128::from(draw) / u128::from(u16::MAX)) as u64
    }
}

/// Successes of others for each call of one that has no place, at least.
const ENOUGH: u64 = 100;

/// How long a resource rests after an outcome that is no success.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backoff {
    /// Not at all.
    #[default]
    None,
    /// The same time each time.
    Fixed(Duration),
    /// `base`, doubled with each further such outcome in a row, at most `longest`.
    Exponential {
        /// The first time.
        base: Duration,
        /// At most.
        longest: Duration,
    },
}

impl Backoff {
    /// In nanoseconds, after `times` in a row.
    pub(crate) fn after(self, times: u32) -> Option<u64> {
        match self {
            Backoff::None => None,
            Backoff::Fixed(rest) => Some(nanos(rest)),
            Backoff::Exponential { base, longest } => Some(doubled(nanos(base), times).min(nanos(longest))),
        }
    }
}

/// How outcomes let a resource cool: for the fleet by [`Builder::cooldown`](crate::Builder::cooldown), for one resource by
/// [`Resource::cooldown`](crate::Resource::cooldown), for one lease by [`Lease::finish_after`](crate::Lease::finish_after). Of all that
/// apply, the latest deadline counts.
///
/// Cooling begins inside the return: there is no moment at which the resource can be lent before.
///
/// ```
/// use leasehold::{Backoff, Cooldown};
/// use std::time::Duration;
///
/// let (base, longest) = (Duration::from_millis(100), Duration::from_secs(10));
/// let rules = Cooldown::default().on_failure(Backoff::Exponential { base, longest }).retry_after_at_most(longest);
/// # let _ = rules;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Cooldown {
    failure: Backoff,
    rate_limit: Backoff,
    retry_after_at_most: Duration,
}

impl Default for Cooldown {
    /// As long as a rate limit says, but at least 100 ms, doubled with each further one in a row, at most 2 s: one that says "at once", each
    /// time, would otherwise be free all the time, and get nearly all the traffic. Not at all after a failure.
    fn default() -> Self {
        let rate_limit =
            Backoff::Exponential { base: Duration::from_millis(100), longest: Duration::from_secs(2) };
        Cooldown { failure: Backoff::None, rate_limit, retry_after_at_most: Duration::MAX }
    }
}

impl Cooldown {
    /// The rest after [`Outcome::Failed`].
    pub fn on_failure(self, backoff: Backoff) -> Self {
        Cooldown { failure: backoff, ..self }
    }

    /// The least rest after [`Outcome::RateLimited`]; it is longer if the outcome says so. [`Backoff::None`]: as long as it says.
    pub fn on_rate_limit(self, backoff: Backoff) -> Self {
        Cooldown { rate_limit: backoff, ..self }
    }

    /// The longest rest that the `retry_after` of an outcome, which comes from elsewhere, can bring about.
    pub fn retry_after_at_most(self, longest: Duration) -> Self {
        Cooldown { retry_after_at_most: longest, ..self }
    }

    /// The rest after an outcome, the `times`th in a row that is no success.
    pub(crate) fn rest(&self, outcome: Outcome, times: u32) -> Option<u64> {
        match outcome {
            Outcome::Failed => self.failure.after(times),
            Outcome::RateLimited { retry_after } => {
                let told = nanos(retry_after.min(self.retry_after_at_most));
                Some(self.rate_limit.after(times).map_or(told, |rest| rest.max(told)))
            }
            _ => None,
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// `base x 2^(times - 1)`, at most what a word can hold.
fn doubled(base: u64, times: u32) -> u64 {
    let shift = times.saturating_sub(1);
    if base == 0 {
        0
    } else if shift > base.leading_zeros() {
        u64::MAX
    } else {
        base << shift
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ejections_double_are_capped_and_shortened_at_most_by_the_jitter() {
        let rules = Ejection::default();
        let seconds = |times, draw| rules.duration(times, draw) / 1_000_000_000;
        assert_eq!(
            [1, 2, 3, 4, 5, 64, 1000].map(|times| seconds(times, 0)),
            [30, 60, 120, 240, 300, 300, 300]
        );
        assert_eq!((seconds(1, u16::MAX), seconds(9, u16::MAX)), (27, 270));
        for draw in (0..=u16::MAX).step_by(97) {
            let once = rules.duration(1, draw);
            assert!((27_000_000_000..=30_000_000_000).contains(&once));
        }
    }

    #[test]
    fn rests() {
        let second = Duration::from_secs(1);
        let limited = |seconds: u32| Outcome::RateLimited { retry_after: seconds * second };
        let plain = Cooldown::default();
        assert_eq!(plain.rest(Outcome::Failed, 1), None);
        assert_eq!(plain.rest(limited(3), 9), Some(3_000_000_000));
        let at_once = [1, 2, 3, 4, 5, 6, 99].map(|times| plain.rest(limited(0), times).expect("it rests"));
        assert_eq!(at_once.map(|rest| rest / 1_000_000), [100, 200, 400, 800, 1_600, 2_000, 2_000]);
        assert_eq!(plain.on_rate_limit(Backoff::None).rest(limited(0), 9), Some(0), "what it says");
        let backoff = Backoff::Exponential { base: second, longest: 5 * second };
        let rules = plain
            .on_failure(backoff)
            .on_rate_limit(Backoff::Fixed(2 * second))
            .retry_after_at_most(4 * second);
        let failed = |times| rules.rest(Outcome::Failed, times).expect("it rests") / 1_000_000_000;
        assert_eq!([1, 2, 3, 4, 99].map(failed), [1, 2, 4, 5, 5]);
        let told =
            [0, 3, 4, 100].map(|seconds| rules.rest(limited(seconds), 1).expect("it rests") / 1_000_000_000);
        assert_eq!(told, [2, 3, 4, 4]);
        assert_eq!(rules.rest(Outcome::Cancelled, 1), None);
    }

    #[test]
    fn faults_are_told() {
        let rules = Ejection::default();
        assert_eq!(rules.fault(), None);
        for wrong in [
            rules.max_share(101),
            rules.jitter(101),
            rules.failure_rate(0, 1),
            rules.failure_rate(101, 1),
            rules.failure_rate(50, 0),
            rules.failure_rate(50, 65),
            rules.latency(1.0, 5),
            rules.latency(2.0, 0),
            rules.latency(2.0, 65),
            rules.latency(f64::NAN, 5),
            rules.base(Duration::ZERO),
            rules.longest(Duration::from_secs(1)),
        ] {
            assert!(wrong.fault().is_some(), "{wrong:?}");
        }
        for right in [
            rules.max_share(0),
            rules.max_share(100),
            rules.jitter(100),
            rules.failure_rate(1, 1),
            rules.failure_rate(100, 64),
            rules.latency(1.001, 1),
            rules.latency(2.0, 64),
            rules.base(Duration::from_secs(300)),
        ] {
            assert_eq!(right.fault(), None, "{right:?}");
        }
    }

    #[test]
    fn doubling_ends_where_the_word_does() {
        assert_eq!([0, 1, 2, 3].map(|times| doubled(5, times)), [5, 5, 10, 20]);
        assert_eq!([63, 64, 65].map(|times| doubled(1, times)), [1 << 62, 1 << 63, u64::MAX]);
        assert_eq!([62, 63].map(|times| doubled(3, times)), [3 << 61, 3 << 62]);
        assert_eq!((doubled(3, 64), doubled(0, 99)), (u64::MAX, 0));
    }

    #[test]
    fn a_draw_takes_its_part_of_the_jitter() {
        let rules = Ejection::default().base(Duration::from_nanos(65_535_000)).jitter(20);
        assert_eq!(
            [0, 1, 30_000, 65_535].map(|draw| 65_535_000 - rules.duration(1, draw)),
            [0, 200, 6_000_000, 13_107_000]
        );
    }
}
