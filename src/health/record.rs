//! What is remembered of one resource, and what an outcome makes of it.
//!
//! Every word is written with the home shard's lock held, by plain stores, and read by anyone: Relaxed throughout, as the words of
//! the shard's face; each is true at some moment.

use std::time::Duration;

use super::{Cooldown, Ejection};
use crate::{
    outcome::Outcome,
    resource::Capacity,
    sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed},
};

/// Where a resource is in the picture of `health`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[repr(u8)]
pub enum Phase {
    /// Lent as any other.
    #[default]
    Healthy,
    /// Ejected by the rules, until a moment.
    Ejected,
    /// Its time is over: it is lent once, and the outcome decides.
    Probing,
    /// The probe has succeeded: it is lent a little, and more and more.
    Ramping,
}

const PHASES: [Phase; 4] = [Phase::Healthy, Phase::Ejected, Phase::Probing, Phase::Ramping];

/// What a priority may depend on beside the load; see [`Resource::priority_seen`](crate::Resource::priority_seen).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Seen {
    /// The mean latency of its successes, the newer the heavier (each counts an eighth, at first more); `None` before the first.
    pub latency: Option<Duration>,
    /// Outcomes in a row that were failures, up to now.
    pub failures: u32,
}

/// What the outcomes of one resource's leases say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ResourceStats {
    /// Leases finished with [`Outcome::Ok`].
    pub succeeded: u64,
    /// Leases finished with [`Outcome::Failed`].
    pub failed: u64,
    /// Leases finished with [`Outcome::RateLimited`].
    pub rate_limited: u64,
    /// Leases finished with [`Outcome::Cancelled`].
    pub cancelled: u64,
    /// Failures in a row, up to now.
    pub failures_in_a_row: u32,
    /// Failures among the last 64 successes and failures; after an ejection, from the probe on that succeeded.
    pub recent_failures: u32,
    /// How many of those there were.
    pub recent: u32,
    /// The mean latency of successes, weighted exponentially, in nanoseconds; 0 before the first.
    pub latency_nanos: u64,
    /// How often the rules have ejected it.
    pub ejections: u64,
    /// Where it is on its way back.
    pub phase: Phase,
    /// Until when it is ejected, in nanoseconds on the scheduler's clock, if it is.
    pub ejected_until: Option<u64>,
    /// Since when it may be lent as a probe, in nanoseconds on the scheduler's clock, if nothing has come of that yet. If that is long ago,
    /// either nobody has asked for it, or a lease that was not given back stands in the way: see [`Ejection`].
    pub probing_since: Option<u64>,
}

/// All that a judgement needs and that is found out before the lock is taken.
#[derive(Clone, Copy, Debug)]
pub struct Report {
    pub outcome: Outcome,
    /// The moment of the return.
    pub now: u64,
    /// The cooldown that applies to this resource, if one does.
    pub cooldown: Option<Cooldown>,
    /// The fleet's median latency; 0 if it is not known.
    pub median: u64,
    /// The fleet's successes so far, if there seemed to be no place.
    pub successes: Option<u64>,
    /// Uniform.
    pub draw: u16,
}

/// How a resource stands when an outcome comes.
#[derive(Clone, Copy, Debug)]
pub struct Circumstances {
    /// Nothing else has ejected or removed it.
    pub can_eject: bool,
    /// Its ramp goes by time.
    pub has_one_unit: bool,
    /// It rests already: what comes back now was lent before.
    pub cools: bool,
    /// Leases that are out, this one among them.
    pub out: u32,
}

/// What follows from an outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Verdict {
    /// It cools until then, or until later.
    pub cool: Option<u64>,
    /// It is ejected until then. A place under the share is taken.
    pub eject: Option<u64>,
    /// The ramp begins.
    pub ramps: bool,
}

/// What is remembered of one resource.
#[derive(Debug, Default)]
pub struct Record {
    succeeded: AtomicU64,
    failed: AtomicU64,
    rate_limited: AtomicU64,
    cancelled: AtomicU64,
    /// One bit for each of the last outcomes, 1 for a failure; the newest is the lowest.
    recent: AtomicU64,
    known: AtomicU32,
    /// Failures in a row, of those by which it is judged.
    in_a_row: AtomicU32,
    /// The mean latency, of the successes by which it is judged.
    judged: AtomicU64,
    /// Failures in a row, whatever has been forgotten.
    failures: AtomicU32,
    /// Outcomes in a row that were no successes, rate limits among them. Of many that were lent together and come back while it rests, each
    /// says the same: they count as one.
    troubles: AtomicU32,
    latency: AtomicU64,
    phase: AtomicU8,
    /// Ejections, less those that it has made good.
    repeats: AtomicU32,
    ejections: AtomicU64,
    /// Of an ejection: when it ends. Afterwards: when the probe succeeded.
    moment: AtomicU64,
    /// How long the last ejection was.
    lasted: AtomicU64,
    /// The limit on leases outside of probe and ramp; 0 if there it is what it is.
    full: AtomicU32,
    /// The most leases that were out at an outcome while it was healthy.
    busiest: AtomicU32,
    /// Rests after failures that the rules objected to while there was no place, since it was well.
    spared: AtomicU32,
    /// Such failures since the last of those rests began, with the one that it began with.
    spared_calls: AtomicU32,
    /// How long the last of those rests was to be.
    spared_rest: AtomicU64,
    /// The fleet's successes when it began.
    spared_at: AtomicU64,
    /// Leases from before the probe are out, or may be: what comes back first is not it.
    stale: AtomicBool,
}

impl Record {
    pub fn phase(&self) -> Phase {
        PHASES[usize::from(self.phase.load(Relaxed))]
    }

    /// Home lock held, as for all that follows.
    pub fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u8, Relaxed);
    }

    /// When the ejection ends.
    pub fn until(&self) -> u64 {
        self.moment.load(Relaxed)
    }

    /// The limit that holds again after the ramp, if another one holds now.
    pub fn full_limit(&self) -> Option<u32> {
        Some(self.full.load(Relaxed)).filter(|&full| full > 0)
    }

    /// Remembers the limit that is to hold again; `None`: it holds.
    pub fn set_full_limit(&self, full: Option<u32>) {
        self.full.store(full.unwrap_or(0), Relaxed);
    }

    /// What it is judged by begins anew; what has been counted stays, and what a priority sees: nobody looks better for having failed.
    fn forget(&self) {
        self.recent.store(0, Relaxed);
        self.known.store(0, Relaxed);
        self.in_a_row.store(0, Relaxed);
        self.judged.store(0, Relaxed);
    }

    /// The next outcome but for those of `out` leases, which are older, is the probe's.
    pub fn begin_probe(&self, out: u32) {
        self.forget();
        self.stale.store(out > 0, Relaxed);
        self.set_phase(Phase::Probing);
    }

    /// The probe has succeeded, and is the first thing that it is judged by. What came while it was waited for was lent before the
    /// ejection, or was a probe that failed without a place: neither says how it is now.
    fn begin_with_probe(&self, latency: u64) {
        self.forget();
        self.push(0);
        self.judged.store(latency.max(1), Relaxed);
    }

    /// No lease is out any more: the next one is not from before the probe, whether or not the last of those said anything.
    pub fn nothing_is_out(&self) {
        // Nearly always so already: then its line is not written.
        if self.is_stale() {
            self.stale.store(false, Relaxed);
        }
    }

    /// Leases from before the probe may be out.
    pub fn is_stale(&self) -> bool {
        self.stale.load(Relaxed)
    }

    /// Somebody knows better: it is healthy, and was never ejected.
    pub fn begin_anew(&self) {
        self.forget();
        self.repeats.store(0, Relaxed);
        self.lasted.store(0, Relaxed);
        self.spared.store(0, Relaxed);
        self.set_phase(Phase::Healthy);
    }

    /// Whether a return with so many leases out, its own among them, is the probe's.
    fn is_probe(&self, out: u32) -> bool {
        // The probe is lent when all others are back. The last of those either comes by here, or says nothing: see `nothing_is_out`.
        out <= 1 && !self.stale.swap(false, Relaxed)
    }

    /// For a priority.
    pub fn seen(&self) -> Seen {
        let latency = self.latency.load(Relaxed);
        Seen {
            latency: (latency > 0).then(|| Duration::from_nanos(latency)),
            failures: self.failures.load(Relaxed),
        }
    }

    pub fn stats(&self) -> ResourceStats {
        let phase = self.phase();
        ResourceStats {
            succeeded: self.succeeded.load(Relaxed),
            failed: self.failed.load(Relaxed),
            rate_limited: self.rate_limited.load(Relaxed),
            cancelled: self.cancelled.load(Relaxed),
            failures_in_a_row: self.failures.load(Relaxed),
            recent_failures: self.recent.load(Relaxed).count_ones(),
            recent: self.known.load(Relaxed),
            latency_nanos: self.latency.load(Relaxed),
            ejections: self.ejections.load(Relaxed),
            phase,
            ejected_until: (phase == Phase::Ejected).then(|| self.until()),
            // Until the probe succeeds that is when its ejection was to end.
            probing_since: (phase == Phase::Probing).then(|| self.until()),
        }
    }

    /// The limit while the ramp is at `now`: at least one, and never more than it will be. One without a limit gets back what was lent of
    /// it at most before, and then everything.
    pub fn ramped(&self, rules: &Ejection, now: u64, full: u32) -> u32 {
        let (gone, ramp) = self.on_ramp(rules, now);
        let top = if full == Capacity::MAX { self.busiest.load(Relaxed) } else { full };
        if gone >= ramp {
            full
        } else {
            (u128::from(top) * u128::from(gone) / u128::from(ramp)).max(1) as u32
        }
    }

    /// Whether the ramp is over at `now`.
    pub fn ramp_is_over(&self, rules: &Ejection, now: u64) -> bool {
        let (gone, ramp) = self.on_ramp(rules, now);
        gone >= ramp
    }

    /// How far the ramp is, and how long it is.
    fn on_ramp(&self, rules: &Ejection, now: u64) -> (u64, u64) {
        let ramp = u64::try_from(rules.ramp.as_nanos()).unwrap_or(u64::MAX);
        (now.saturating_sub(self.until()), ramp)
    }

    /// Records an outcome and decides; `take` takes a place under the share, if there is one.
    pub fn judge(
        &self,
        report: &Report,
        rules: Option<&Ejection>,
        Circumstances { can_eject, has_one_unit, cools, out }: Circumstances,
        take: impl FnOnce() -> bool,
    ) -> Verdict {
        let mut verdict = Verdict::default();
        self.remember(report.outcome, cools);
        let at = |rest: u64| report.now.saturating_add(rest).min(u64::MAX - 1);
        let rest = report.cooldown.and_then(|rules| rules.rest(report.outcome, self.troubles.load(Relaxed)));
        // No rest is not a rest that is over at once: that would let waiters wait until somebody looks.
        verdict.cool = rest.filter(|&rest| rest > 0).map(at);
        let Some(rules) = rules else { return verdict };
        let phase = self.phase();
        if phase == Phase::Healthy {
            self.busiest.store(self.busiest.load(Relaxed).max(out), Relaxed);
        }
        let is_ill = match phase {
            Phase::Ejected => false,
            Phase::Probing if !self.is_probe(out) => false,
            Phase::Probing => match report.outcome {
                Outcome::Failed => true,
                Outcome::Ok { latency } => {
                    let is_slow = is_outlier(rules, nanos(latency), report.median);
                    if !is_slow {
                        self.begin_with_probe(nanos(latency));
                        self.set_phase(Phase::Ramping);
                        self.moment.store(report.now, Relaxed);
                        verdict.ramps = true;
                    }
                    is_slow
                }
                _ => false,
            },
            _ => self.is_ill(rules, report),
        };
        let is_well = matches!(report.outcome, Outcome::Ok { .. }) && !is_ill;
        if is_well && (verdict.ramps || matches!(phase, Phase::Healthy | Phase::Ramping)) {
            self.spared.store(0, Relaxed);
        }
        if is_ill && can_eject && take() {
            verdict.eject = Some(self.eject(rules, report));
            verdict.ramps = false;
        } else if is_ill && can_eject && report.outcome == Outcome::Failed {
            // A slow success is none of this: when all are slower than they were, nobody would be left.
            let calls = self.spared_calls.load(Relaxed);
            if cools {
                // Of many that fail together, each says the same, and one lets it rest. But each was a call.
                self.spared_calls.store(calls.saturating_add(1), Relaxed);
            } else {
                self.spared_calls.store(1, Relaxed);
                let rest = self.rest_without_place(rules, calls, report.successes);
                verdict.cool = verdict.cool.max(rest.filter(|&rest| rest > 0).map(at));
            }
        }
        if verdict.eject.is_none() && phase == Phase::Ramping && has_one_unit {
            // After every outcome: whoever fails must not be asked sooner than whoever succeeds. The probe's success has left a mean.
            let latency = match report.outcome {
                Outcome::Ok { latency } => nanos(latency),
                _ => self.latency.load(Relaxed),
            };
            let rest = self.rest_on_ramp(rules, report.now, latency);
            verdict.cool = verdict.cool.max(rest.filter(|&rest| rest > 0).map(at));
        }
        verdict
    }

    /// `calls`: of its own that have failed since it rested last, or was about to.
    fn rest_without_place(&self, rules: &Ejection, calls: u32, successes: Option<u64>) -> Option<u64> {
        let times = self.spared.load(Relaxed).saturating_add(1);
        self.spared.store(times, Relaxed);
        // Its own are not among them: with one it would be well. Not known: the place was taken after they would have been asked for.
        let others = successes.map(|now| now.saturating_sub(self.spared_at.load(Relaxed)));
        let rest = rules.rest_without_place(times, self.spared_rest.load(Relaxed), (calls, others))?;
        self.spared_rest.store(rest, Relaxed);
        if let Some(successes) = successes {
            self.spared_at.store(successes, Relaxed);
        }
        Some(rest)
    }

    /// Works for w of the time if it rests `(1 - w) / w` times as long as it has worked.
    fn rest_on_ramp(&self, rules: &Ejection, now: u64, latency: u64) -> Option<u64> {
        let (gone, ramp) = self.on_ramp(rules, now);
        if gone >= ramp {
            return None;
        }
        // Not below a sixteenth: from nothing it would never come back.
        let gone = gone.max(ramp / 16).max(1);
        let rest = u128::from(latency) * u128::from(ramp - gone) / u128::from(gone);
        Some(u64::try_from(rest).unwrap_or(u64::MAX))
    }

    fn remember(&self, outcome: Outcome, cools: bool) {
        if !cools && matches!(outcome, Outcome::Failed | Outcome::RateLimited { .. }) {
            self.troubles.store(self.troubles.load(Relaxed).saturating_add(1), Relaxed);
        }
        let add = |count: &AtomicU64| count.store(count.load(Relaxed) + 1, Relaxed);
        let more = |count: &AtomicU32| count.store(count.load(Relaxed).saturating_add(1), Relaxed);
        match outcome {
            Outcome::Ok { latency } => {
                add(&self.succeeded);
                self.in_a_row.store(0, Relaxed);
                self.failures.store(0, Relaxed);
                self.troubles.store(0, Relaxed);
                self.push(0);
                let new = nanos(latency).max(1);
                for mean in [&self.latency, &self.judged] {
                    mean.store(towards_mean(mean.load(Relaxed), new), Relaxed);
                }
            }
            Outcome::Failed => {
                add(&self.failed);
                more(&self.in_a_row);
                more(&self.failures);
                self.push(1);
            }
            Outcome::RateLimited { .. } => add(&self.rate_limited),
            Outcome::Cancelled => add(&self.cancelled),
        }
    }

    fn push(&self, failure: u64) {
        self.recent.store(self.recent.load(Relaxed) << 1 | failure, Relaxed);
        self.known.store((self.known.load(Relaxed) + 1).min(64), Relaxed);
    }

    fn is_ill(&self, rules: &Ejection, report: &Report) -> bool {
        let known = self.known.load(Relaxed);
        match report.outcome {
            Outcome::Failed => {
                let in_a_row = rules.consecutive > 0 && self.in_a_row.load(Relaxed) >= rules.consecutive;
                let failures = self.recent.load(Relaxed).count_ones();
                in_a_row
                    || rules
                        .rate
                        .is_some_and(|(percent, calls)| known >= calls && 100 * failures >= percent * known)
            }
            Outcome::Ok { .. } => {
                rules.latency.is_some_and(|(_, calls)| known >= calls)
                    && is_outlier(rules, self.judged.load(Relaxed), report.median)
            }
            _ => false,
        }
    }

    /// A place is taken. Answers until when.
    fn eject(&self, rules: &Ejection, report: &Report) -> u64 {
        let lasted = self.lasted.load(Relaxed);
        let mut repeats = self.repeats.load(Relaxed);
        if self.phase() != Phase::Probing && lasted > 0 {
            // Well for as long as it was ejected: one less counts.
            let well = report.now.saturating_sub(self.until());
            repeats = repeats.saturating_sub(u32::try_from(well / lasted).unwrap_or(u32::MAX));
        }
        let repeats = repeats.saturating_add(1);
        let duration = rules.duration(repeats, report.draw);
        let until = report.now.saturating_add(duration).min(u64::MAX - 1);
        self.repeats.store(repeats, Relaxed);
        self.lasted.store(duration, Relaxed);
        self.ejections.store(self.ejections.load(Relaxed) + 1, Relaxed);
        self.moment.store(until, Relaxed);
        self.spared.store(0, Relaxed);
        self.set_phase(Phase::Ejected);
        until
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// An exponential mean; 0 before the first value.
fn towards_mean(mean: u64, value: u64) -> u64 {
    if mean == 0 { value } else { ((u128::from(mean) * 7 + u128::from(value)) / 8) as u64 }
}

fn is_outlier(rules: &Ejection, latency: u64, median: u64) -> bool {
    median > 0 && rules.latency.is_some_and(|(factor, _)| latency as f64 > factor * median as f64)
}

/// Moves an estimate of the median towards a new value: up if that is above it, else down, by a sixteenth. After "frugal streaming"
/// (Q. Ma, S. Muthukrishnan, M. Sandler, 2014).
pub fn towards_median(estimate: u64, value: u64) -> u64 {
    let step = (estimate / 16).max(1);
    match estimate {
        0 => value,
        _ if value > estimate => estimate.saturating_add(step).min(value),
        _ => (estimate - step).max(value),
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
