//! What the gateway counts, beside what the scheduler counts by itself.
//!
//! Counts are made where the thing happens, and before the client can know of it: whoever has got the last byte of an answer finds
//! it counted.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicU64},
    time::Duration,
};

use leasehold::prometheus::{SchedulerCollector, text};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Registry, Unit},
};

use crate::keys::Keys;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Answered {
    code: u32,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Tried {
    key: String,
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Late {
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Gone {
    when: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Ended {
    end: &'static str,
}

/// How the body of an answer has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyEnd {
    /// It was passed on to its last byte.
    Complete,
    /// The provider has broken it off, or was too slow, or the key was taken back.
    Failed,
    /// The client has gone.
    Abandoned,
}

/// The counters of a gateway. Clones count together.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
    answers: Family<Answered, Counter>,
    attempts: Family<Tried, Counter>,
    late: Family<Late, Counter>,
    gone: Family<Gone, Counter>,
    bodies: Family<Ended, Counter>,
    bytes: Family<Ended, Counter>,
    retries: Counter,
    in_flight: Gauge<i64>,
    time_to_head: Histogram,
}

impl Metrics {
    /// All zero. The scheduler's own numbers are in the same registry, under the name `keys`.
    pub fn new(keys: &Arc<Keys>) -> Self {
        let bounds = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];
        let metrics = Metrics {
            registry: Arc::default(),
            answers: Family::default(),
            attempts: Family::default(),
            late: Family::default(),
            gone: Family::default(),
            bodies: Family::default(),
            bytes: Family::default(),
            retries: Counter::<u64, AtomicU64>::default(),
            in_flight: Gauge::default(),
            time_to_head: Histogram::new(bounds),
        };
        let collector = SchedulerCollector::new();
        collector.watch("keys", keys);
        metrics.with_registry(|registry| {
            registry.register_collector(Box::new(collector));
            let own = registry.sub_registry_with_prefix("gateway");
            own.register("answers", "Answers to clients, by status.", metrics.answers.clone());
            own.register(
                "attempts",
                "Requests to the provider that have ended, by key and by how.",
                metrics.attempts.clone(),
            );
            own.register(
                "attempts_late",
                "Of these, those whose key had been taken back before: their outcomes count for no key.",
                metrics.late.clone(),
            );
            own.register("retries", "Attempts after the first one of a request.", metrics.retries.clone());
            own.register(
                "clients_gone",
                "Clients that left, before their answer or in the midst of it.",
                metrics.gone.clone(),
            );
            own.register("bodies", "Bodies of answers, by how they ended.", metrics.bodies.clone());
            own.register_with_unit(
                "bodies",
                "Bytes of bodies that were passed on, by how these ended.",
                Unit::Bytes,
                metrics.bytes.clone(),
            );
            own.register("requests_in_flight", "Requests being served.", metrics.in_flight.clone());
            own.register_with_unit(
                "time_to_head",
                "From a request to the head of its answer.",
                Unit::Seconds,
                metrics.time_to_head.clone(),
            );
        });
        metrics
    }

    fn with_registry<T>(&self, f: impl FnOnce(&mut Registry) -> T) -> T {
        f(&mut self.registry.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Everything in the text format of Prometheus.
    ///
    /// # Errors
    /// None, as long as all that is registered can be written.
    pub fn text(&self) -> Result<String, fmt::Error> {
        self.with_registry(|registry| text(registry))
    }

    /// An attempt with this key has ended; late, if the key had been taken back by then.
    pub fn tried(&self, key: &str, result: &'static str, is_late: bool) {
        self.attempts.get_or_create(&Tried { key: escaped(key), result }).inc();
        if is_late {
            self.late.get_or_create(&Late { result }).inc();
        }
    }

    /// A request is sent once more.
    pub fn retried(&self) {
        self.retries.inc();
    }

    fn body(&self, end: BodyEnd, bytes: u64) {
        let ended = Ended {
            end: match end {
                BodyEnd::Complete => "complete",
                BodyEnd::Failed => "failed",
                BodyEnd::Abandoned => "abandoned",
            },
        };
        self.bodies.get_or_create(&ended).inc();
        self.bytes.get_or_create(&ended).inc_by(bytes);
        if end == BodyEnd::Abandoned {
            self.gone.get_or_create(&Gone { when: "in_body" }).inc();
        }
    }
}

/// As a label's value stands in the text format: `prometheus-client` writes it as it is, and a quote in it would end it.
fn escaped(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n")
}

/// One request, while it is served: until its answer's body has ended. Dropped before its answer, its client has gone.
pub struct Visit {
    metrics: Metrics,
    since: tokio::time::Instant,
    is_answered: bool,
}

impl Visit {
    /// It has come.
    pub fn begin(metrics: &Metrics) -> Self {
        metrics.in_flight.inc();
        Visit { metrics: metrics.clone(), since: tokio::time::Instant::now(), is_answered: false }
    }

    /// The head of the answer is there.
    pub fn answered(&mut self, status: http::StatusCode) {
        self.is_answered = true;
        let code = u32::from(status.as_u16());
        self.metrics.answers.get_or_create(&Answered { code }).inc();
        self.metrics.time_to_head.observe(self.elapsed().as_secs_f64());
    }

    /// The provider's body has ended, after so many bytes.
    pub fn body_ended(&self, end: BodyEnd, bytes: u64) {
        self.metrics.body(end, bytes);
    }

    /// Since it has come.
    pub fn elapsed(&self) -> Duration {
        self.since.elapsed()
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        if !self.is_answered {
            self.metrics.gone.get_or_create(&Gone { when: "before_answer" }).inc();
        }
        self.metrics.in_flight.dec();
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").field("in_flight", &self.in_flight.get()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Visit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Visit").field("is_answered", &self.is_answered).finish_non_exhaustive()
    }
}
