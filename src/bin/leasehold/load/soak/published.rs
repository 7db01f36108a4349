//! A recorder of the `metrics` facade that counts what it is told.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use leasehold::{Scheduler, publish_metrics};
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
    with_local_recorder,
};

use super::super::asset::Asset;

#[derive(Default)]
struct Counts(Arc<Told>);

#[derive(Default)]
struct Told(AtomicU64);

impl Told {
    fn one_more(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl CounterFn for Told {
    fn increment(&self, _: u64) {
        self.one_more();
    }

    fn absolute(&self, _: u64) {
        self.one_more();
    }
}

impl GaugeFn for Told {
    fn increment(&self, _: f64) {
        self.one_more();
    }

    fn decrement(&self, _: f64) {
        self.one_more();
    }

    fn set(&self, _: f64) {
        self.one_more();
    }
}

impl Recorder for Counts {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(Arc::clone(&self.0))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(Arc::clone(&self.0))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

/// Publishes once; how many numbers that were.
pub fn publish(scheduler: &Scheduler<Asset>) -> u64 {
    let recorder = Counts::default();
    with_local_recorder(&recorder, || publish_metrics("soak", scheduler));
    recorder.0.0.load(Ordering::Relaxed)
}
