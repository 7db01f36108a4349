//! A subscriber that counts what it is told: without one nothing would be made of the events.

use std::sync::atomic::{AtomicU64, Ordering};

use leasehold::tracing::TracingObserver;
use tracing::{
    Event, Metadata, Subscriber,
    span::{Attributes, Id, Record},
};

static EVENTS: AtomicU64 = AtomicU64::new(0);

struct Counts;

impl Subscriber for Counts {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "leasehold"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        EVENTS.fetch_add(1, Ordering::Relaxed);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

pub fn observer() -> TracingObserver {
    // Of several subjects only the first sets it; it counts for all.
    let _ = tracing::subscriber::set_global_default(Counts);
    TracingObserver::new("soak")
}

pub fn count() -> u64 {
    EVENTS.load(Ordering::Relaxed)
}
