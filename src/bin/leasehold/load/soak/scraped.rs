//! Scrapes as a Prometheus server would.

use std::sync::Arc;

use leasehold::{
    Scheduler,
    prometheus::{SchedulerCollector, text},
};
use prometheus_client::registry::Registry;

use super::super::asset::Asset;

pub fn registry(scheduler: &Arc<Scheduler<Asset>>) -> Registry {
    let collector = SchedulerCollector::new();
    collector.watch("soak", scheduler);
    let mut registry = Registry::default();
    registry.register_collector(Box::new(collector));
    registry
}

/// Scrapes once.
pub fn lines(registry: &Registry) -> u64 {
    text(registry).map_or(0, |text| text.lines().count() as u64)
}
