//! What is measured, under which names: the same for every exporter.
//!
//! Names follow the conventions of Prometheus: base units, `_total` for what only grows and for nothing else. The exporters add that
//! suffix where their format wants it.

use crate::{Stats, scheduler::Telemetry};

/// What kind of number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// A distribution.
    Histogram,
}

/// A number.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Of a counter.
    Count(u64),
    /// Of a counter of time.
    Seconds(f64),
    /// Of a gauge.
    Level(f64),
    /// Of a histogram: the sum, and how many values were in each bucket, by upper bound; the last one has none.
    Distribution { sum: f64, buckets: Vec<(f64, u64)> },
}

/// One family.
#[derive(Clone, Debug)]
pub struct Series {
    /// Without the prefix, the unit and `_total`.
    pub name: &'static str,
    /// In one sentence.
    pub help: &'static str,
    /// `seconds`, or nothing.
    pub unit: Option<&'static str>,
    /// What kind.
    pub kind: Kind,
    /// The name of the label that tells the samples apart, if there are several.
    pub label: Option<&'static str>,
    /// The label's value, and the number.
    pub samples: Vec<(&'static str, Value)>,
}

impl Series {
    /// The whole name, without `_total`.
    #[cfg(feature = "metrics")]
    pub fn full_name(&self) -> String {
        let unit = self.unit.map(|unit| format!("_{unit}")).unwrap_or_default();
        format!("leasehold_{}{unit}", self.name)
    }
}

pub(super) fn counter(name: &'static str, help: &'static str, count: u64) -> Series {
    counters(name, help, None, vec![("", count)])
}

pub(super) fn counters(
    name: &'static str,
    help: &'static str,
    label: Option<&'static str>,
    counts: Vec<(&'static str, u64)>,
) -> Series {
    let samples = counts.into_iter().map(|(label, count)| (label, Value::Count(count))).collect();
    Series { name, help, unit: None, kind: Kind::Counter, label, samples }
}

pub(super) fn gauge(name: &'static str, help: &'static str, level: u64) -> Series {
    gauges(name, help, None, vec![("", level)])
}

pub(super) fn gauges(
    name: &'static str,
    help: &'static str,
    label: Option<&'static str>,
    levels: Vec<(&'static str, u64)>,
) -> Series {
    let samples = levels.into_iter().map(|(label, level)| (label, Value::Level(level as f64))).collect();
    Series { name, help, unit: None, kind: Kind::Gauge, label, samples }
}

/// Every family that a scheduler may have, with nothing counted.
#[cfg(feature = "metrics")]
pub fn every_series() -> Vec<Series> {
    series(&Stats::default(), Some(&Telemetry::nothing()))
}

/// Every family, in an order that is always the same.
pub fn series(stats: &Stats, telemetry: Option<&Telemetry>) -> Vec<Series> {
    let empty = stats.shards.iter().filter(|&&eligible| eligible == 0).count() as u64;
    let shards = stats.shards.len() as u64;
    let reasons = &stats.reasons;
    let waits = &stats.waits;
    let ended = waits.handed_off + waits.timed_out + waits.cancelled + waits.failed + waits.closed;
    let mut all = vec![
        gauge("shards", "Shards of the scheduler.", shards),
        gauge("shards_empty", "Shards with nothing to lend.", empty),
        gauge("shards_nonempty", "Shards with something to lend.", shards - empty),
        gauge("resources", "Resources in the fleet.", stats.members),
        gauge("resources_eligible", "Resources that can be lent now.", stats.eligible),
        gauges(
            "resources_ineligible",
            "Resources that cannot be lent now, each once, by the reason that matters most.",
            Some("reason"),
            vec![
                ("at_capacity", reasons.at_capacity),
                ("cooling", reasons.cooling),
                ("ejected", reasons.ejected),
                ("draining", reasons.draining),
                ("excluded", reasons.excluded),
            ],
        ),
        gauges(
            "holds",
            "Holds that are set, by reason: a resource with several counts in each.",
            Some("reason"),
            vec![
                ("excluded", stats.holds.excluded),
                ("cooling", stats.holds.cooling),
                ("ejected", stats.holds.ejected),
                ("draining", stats.holds.draining),
            ],
        ),
        gauge(
            "resources_probing",
            "Resources whose ejection is over and of which no probe has decided yet.",
            stats.probing,
        ),
        gauge("resources_leaving", "Resources that were removed and still have leases out.", stats.leaving),
        gauge("capacity_available", "Free units of capacity over all eligible resources.", stats.available),
        gauge("leases", "Leases out.", stats.in_flight),
        gauge("waiters", "Requests that wait.", waits.waited.saturating_sub(ended)),
        gauge("closed", "1 if the scheduler is closed.", u64::from(stats.closed)),
        gauge(
            "consistent",
            "1 if the gauges of resources, capacity and leases are of one moment; 0 if changes kept coming while they were read.",
            u64::from(stats.consistent),
        ),
        counters("transitions", "Changes of resources, by kind.", Some("kind"), transitions(stats)),
        counters(
            "outcomes",
            "Leases that were finished with an outcome, by outcome.",
            Some("outcome"),
            vec![
                ("ok", stats.succeeded),
                ("failed", stats.failed),
                ("rate_limited", stats.rate_limited),
                ("cancelled", stats.cancelled),
            ],
        ),
        counter(
            "acquisitions_in_vain",
            "Acquisitions that did not wait and were told that there was nothing eligible.",
            stats.in_vain,
        ),
        counter("leases_revoked", "Leases that were taken back.", stats.revoked),
        counter("leases_overdue", "Leases that were found to be held for too long.", stats.overdue),
        counter("waits", "Requests that had to wait.", waits.waited),
        counters(
            "waits_ended",
            "Waits that ended, by how.",
            Some("how"),
            vec![
                ("handed_off", waits.handed_off),
                ("timed_out", waits.timed_out),
                ("cancelled", waits.cancelled),
                ("failed", waits.failed),
                ("closed", waits.closed),
            ],
        ),
        counters(
            "waits_refused",
            "Requests that were not let into the queue, by why.",
            Some("why"),
            vec![("queue_full", waits.refused), ("shed", waits.shed)],
        ),
        counter(
            "units_unused",
            "Units that were taken for requests that wait, and came back without having been a lease.",
            waits.unused,
        ),
        counter("events_emitted", "Events that found room in a ring.", stats.events_emitted),
        counters(
            "events_dropped",
            "Events that somebody was not told of, by where there was no room, or no time.",
            Some("place"),
            vec![
                ("ring", stats.events_dropped),
                ("inbox", stats.events_missed),
                ("closing", stats.events_discarded),
            ],
        ),
        counter("observer_panics", "Panics of observers.", stats.observer_panics),
        Series {
            name: "waiting_in_vain",
            help: "How long requests have waited, together, whose waits ended without a lease.",
            unit: Some("seconds"),
            kind: Kind::Counter,
            label: None,
            samples: vec![("", Value::Seconds(seconds(waits.waited_in_vain_nanos)))],
        },
        Series {
            name: "waiting",
            help: "How long requests have waited that ended with a lease.",
            unit: Some("seconds"),
            kind: Kind::Histogram,
            label: None,
            samples: vec![("", waiting(waits))],
        },
    ];
    if let Some(telemetry) = telemetry {
        all.extend(measured(telemetry));
    }
    all
}

fn transitions(stats: &Stats) -> Vec<(&'static str, u64)> {
    vec![
        ("inserted", stats.inserted),
        ("updated", stats.updated),
        ("removed", stats.removed),
        ("evicted", stats.evicted),
        ("acquired", stats.lent),
        ("released", stats.returned),
        ("excluded", stats.excluded),
        ("included", stats.included),
        ("cooled", stats.cooled),
        ("warmed", stats.warmed),
        ("ejected", stats.ejected),
        ("readmitted", stats.readmitted),
        ("drained", stats.drained),
        ("undrained", stats.undrained),
    ]
}

/// From powers of two of nanoseconds: one bucket for every second one from a microsecond on, up to a minute.
fn waiting(waits: &crate::WaitStats) -> Value {
    let mut buckets = Vec::new();
    let mut from = 0;
    for exponent in (10..=36).step_by(2) {
        let count = waits.histogram.get(from..exponent).unwrap_or_default().iter().sum();
        buckets.push((seconds(1 << exponent), count));
        from = exponent;
    }
    let rest = waits.histogram.get(from..).unwrap_or_default().iter().sum();
    buckets.push((f64::MAX, rest));
    Value::Distribution { sum: seconds(waits.waiting_nanos), buckets }
}

pub(super) fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

fn measured(telemetry: &Telemetry) -> Vec<Series> {
    let times =
        |bounds: &[f64], distribution: &crate::scheduler::Distribution, scale: f64| Value::Distribution {
            sum: distribution.sum() as f64 * scale,
            buckets: distribution
                .counts(bounds.iter().map(|bound| bound / scale))
                .into_iter()
                .zip(bounds)
                .map(|(count, &bound)| (bound, count))
                .collect(),
        };
    let bounds = [1e-6, 1e-5, 1e-4, 1e-3, 5e-3, 1e-2, 5e-2, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, f64::MAX];
    let places = [0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 4096.0, f64::MAX];
    vec![
        Series {
            name: "hold",
            help: "How long leases were held.",
            unit: Some("seconds"),
            kind: Kind::Histogram,
            label: None,
            samples: vec![("", times(&bounds, &telemetry.holds, 1e-9))],
        },
        Series {
            name: "rank_error",
            help: "Resources that could be had and were better than what was lent, sampled.",
            unit: None,
            kind: Kind::Histogram,
            label: None,
            samples: vec![("", times(&places, &telemetry.rank_errors, 1.0))],
        },
        counter(
            "rank_errors_saturated",
            "Samples of the rank error that are of so much or more: counting has a bound.",
            telemetry.rank_errors_saturated,
        ),
        Series {
            name: "order_delay",
            help: "Worse resources that were lent while one could be had, sampled.",
            unit: None,
            kind: Kind::Histogram,
            label: None,
            samples: vec![("", times(&places, &telemetry.delays, 1.0))],
        },
        counters(
            "order_delays_unfinished",
            "Samples of the delay that did not end with a lending of the best.",
            Some("how"),
            vec![("discarded", telemetry.delays_discarded), ("given_up", telemetry.delays_given_up)],
        ),
    ]
}
