//! What the `metrics` facade hears is what the scheduler counts.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

#[cfg(feature = "pool")]
mod blocked;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use leasehold::{Entry, Scheduler, describe_metrics, publish_metrics};
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};

type Fleet = Scheduler<Entry<u32, u32, ()>>;

/// Name and labels, and the last value.
type Heard = Arc<Mutex<BTreeMap<String, f64>>>;

struct Ear {
    name: String,
    heard: Heard,
}

impl Ear {
    fn set(&self, value: f64) {
        self.heard.lock().expect("no panic").insert(self.name.clone(), value);
    }
}

impl CounterFn for Ear {
    fn increment(&self, _: u64) {
        panic!("{}: counters are set to what they are", self.name);
    }

    fn absolute(&self, value: u64) {
        self.set(value as f64);
    }
}

impl GaugeFn for Ear {
    fn increment(&self, _: f64) {
        panic!("{}: gauges are set", self.name);
    }

    fn decrement(&self, _: f64) {
        panic!("{}: gauges are set", self.name);
    }

    fn set(&self, value: f64) {
        self.set(value);
    }
}

/// By name: kind, unit and help.
type Described = Arc<Mutex<BTreeMap<String, (&'static str, Option<Unit>, String)>>>;

#[derive(Default)]
struct Ears(Heard, Described);

impl Ears {
    fn ear(&self, key: &Key) -> Arc<Ear> {
        let labels: Vec<_> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        Arc::new(Ear { name: format!("{}{{{}}}", key.name(), labels.join(",")), heard: Arc::clone(&self.0) })
    }

    fn learn(&self, name: &KeyName, kind: &'static str, unit: Option<Unit>, help: &SharedString) {
        let told = (kind, unit, help.to_string());
        let before = self.1.lock().expect("no panic").insert(name.as_str().to_owned(), told);
        assert_eq!(before, None, "{name:?} is described twice");
    }
}

impl Recorder for Ears {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, help: SharedString) {
        self.learn(&name, "counter", unit, &help);
    }

    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, help: SharedString) {
        self.learn(&name, "gauge", unit, &help);
    }

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {
        panic!("the facade takes single values: distributions are counters and a gauge");
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.ear(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.ear(key))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        panic!("the facade takes single values: distributions are counters and a gauge");
    }
}

fn published(fleets: &[(&str, &Fleet)]) -> BTreeMap<String, f64> {
    let heard = Heard::default();
    metrics::with_local_recorder(&Ears(Arc::clone(&heard), Described::default()), || {
        for (name, fleet) in fleets {
            publish_metrics(name, fleet);
        }
    });
    let heard = heard.lock().expect("no panic");
    heard.clone()
}

#[cfg(feature = "pool")]
fn pool() -> leasehold::pool::Pool<leasehold::pool::Task, leasehold::pool::AtomicMetrics> {
    let builder = leasehold::pool::Pool::builder().workers(1);
    builder.metrics(leasehold::pool::AtomicMetrics::default()).build().expect("in range")
}

/// A pool's numbers have their own label, and are the pool's own; jobs whose wait for a lease came to nothing are among them.
#[cfg(feature = "pool")]
#[test]
fn the_recorder_hears_what_a_pool_counts() {
    let (pool, fleet) = (pool(), Arc::new(Fleet::builder().build().expect("in range")));
    assert_eq!(pool.spawn(|_| 1).expect("open").wait().expect("run"), 1);
    let waits =
        pool.submit_with_lease(fleet.acquire_async_owned(), |_, _| ((), leasehold::Outcome::Cancelled));
    assert_eq!(pool.shutdown(std::time::Duration::ZERO).given_up, 1);
    // Until the worker has ended.
    assert_eq!(pool.shutdown(std::time::Duration::from_secs(20)).given_up, 1);
    let heard = Heard::default();
    metrics::with_local_recorder(&Ears(Arc::clone(&heard), Described::default()), || {
        leasehold::publish_pool_metrics("mail", &pool);
    });
    let heard = heard.lock().expect("no panic");
    let of = |name: &str| *heard.get(name).unwrap_or_else(|| panic!("no {name} in {heard:#?}"));
    assert_eq!(of("leasehold_pool_jobs_total{pool=mail,ended=done}"), 1.0);
    assert_eq!(of("leasehold_pool_leases_given_up_total{pool=mail}"), 1.0);
    assert_eq!(of("leasehold_pool_workers{pool=mail,state=busy}"), 0.0);
    assert_eq!(of("leasehold_pool_run_seconds_count{pool=mail}"), 1.0);
    assert_eq!(of("leasehold_pool_run_seconds_bucket{pool=mail,le=+Inf}"), 1.0);
    drop(waits);
}

/// Each number of a pool while it is another one than nothing: blocked, idle again, ended.
#[cfg(feature = "pool")]
#[test]
fn the_recorder_hears_a_pool_as_it_is() {
    use std::cell::RefCell;
    let watched = RefCell::new(None);
    let heard = || {
        let heard = Heard::default();
        metrics::with_local_recorder(&Ears(Arc::clone(&heard), Described::default()), || {
            let watched = watched.borrow();
            let pool: &Arc<blocked::Watched> = watched.as_ref().expect("there is one");
            leasehold::publish_pool_metrics("p", pool);
        });
        let heard = heard.lock().expect("no panic");
        heard.clone()
    };
    let watch = |pool: &Arc<blocked::Watched>| _ = watched.replace(Some(Arc::clone(pool)));
    let mut run = 0.0;
    let look = |state: usize| {
        let heard = heard();
        for (name, label, values) in blocked::EXPECTED {
            let label = label.map_or_else(String::new, |(label, value)| format!(",{label}={value}"));
            let name = format!("leasehold_pool_{name}{{pool=p{label}}}");
            let found = heard.get(&name).unwrap_or_else(|| panic!("no {name} in {heard:#?}"));
            assert_eq!(*found, values[state], "{name} in state {state}");
        }
        run = heard["leasehold_pool_run_seconds_sum{pool=p}"];
    };
    let at_least = blocked::blocked(watch, look);
    assert!(run >= at_least.as_secs_f64() - 1e-6, "{run}, {at_least:?}");
    blocked::with_jobs_on_a_tray(watch, || assert_eq!(heard()["leasehold_pool_jobs_taken{pool=p}"], 5.0));
}

#[test]
fn the_recorder_hears_what_is_counted() {
    let one = Fleet::builder().shards(2).measure(1).build().expect("in range");
    let two = Fleet::builder().shards(1).build().expect("in range");
    for key in 0..5 {
        one.insert(Entry::new(key, key, ())).expect("new");
    }
    one.exclude(&4).expect("there");
    let out = one.acquire().expect("free");
    drop(one.acquire().expect("free"));
    let heard = published(&[("one", &one), ("two", &two)]);
    let of = |name: &str| *heard.get(name).unwrap_or_else(|| panic!("no {name} in {heard:#?}"));
    assert_eq!(of("leasehold_resources{scheduler=one}"), 5.0);
    assert_eq!(of("leasehold_resources{scheduler=two}"), 0.0);
    assert_eq!(of("leasehold_shards{scheduler=one}"), 2.0);
    assert_eq!(of("leasehold_transitions_total{scheduler=one,kind=acquired}"), 2.0);
    assert_eq!(of("leasehold_transitions_total{scheduler=one,kind=released}"), 1.0);
    assert_eq!(of("leasehold_transitions_total{scheduler=one,kind=excluded}"), 1.0);
    assert_eq!(of("leasehold_transitions_total{scheduler=two,kind=acquired}"), 0.0);
    // One hold has ended.
    assert_eq!(of("leasehold_hold_seconds_count{scheduler=one}"), 1.0);
    assert!(heard.contains_key("leasehold_hold_seconds_sum{scheduler=one}"));
    assert!(!heard.contains_key("leasehold_hold_seconds_count{scheduler=two}"), "it does not measure");
    drop(out);
    // Heard again, a counter has its new value, not the sum of both.
    let again = published(&[("one", &one)]);
    assert_eq!(again["leasehold_transitions_total{scheduler=one,kind=released}"], 2.0);
}

/// What Prometheus makes a histogram of: buckets that hold all below, with an upper bound each and one without.
#[test]
fn a_distribution_has_its_buckets() {
    let clock = Arc::new(leasehold::ManualClock::new());
    clock.advance(std::time::Duration::from_secs(1));
    let fleet = Fleet::builder().shards(1).clock(clock.clone()).measure(0).build().expect("in range");
    fleet.insert(Entry::new(1, 0, ())).expect("new");
    for millis in [2, 2, 700, 100_000] {
        let lease = fleet.acquire().expect("free");
        clock.advance(std::time::Duration::from_millis(millis));
        drop(lease);
    }
    let heard = published(&[("one", &fleet)]);
    let below = |bound| heard[&format!("leasehold_hold_seconds_bucket{{scheduler=one,le={bound}}}")];
    assert_eq!(["0.001", "0.005", "0.5", "1", "60", "+Inf"].map(below), [0.0, 2.0, 2.0, 3.0, 3.0, 4.0]);
    assert_eq!(heard["leasehold_hold_seconds_count{scheduler=one}"], 4.0);
    let waits = heard.keys().filter(|name| name.starts_with("leasehold_waiting_seconds_bucket")).count();
    assert!(waits > 10 && heard.contains_key("leasehold_waiting_seconds_bucket{scheduler=one,le=+Inf}"));
}

#[test]
fn whatever_is_published_is_described_with_its_unit() {
    let fleet = Fleet::builder().shards(1).measure(1).build().expect("in range");
    let ears = Ears::default();
    metrics::with_local_recorder(&ears, || {
        describe_metrics();
        publish_metrics("one", &fleet);
        #[cfg(feature = "pool")]
        leasehold::publish_pool_metrics("one", &pool());
    });
    let (heard, described) = (ears.0.lock().expect("no panic"), ears.1.lock().expect("no panic"));
    let named: std::collections::BTreeSet<&str> =
        heard.keys().map(|name| name.split_once('{').expect("labels").0).collect();
    assert_eq!(named, described.keys().map(String::as_str).collect(), "no more and no less");
    for (name, (kind, unit, help)) in described.iter() {
        let is_counted = ["_total", "_bucket", "_count"].iter().any(|suffix| name.ends_with(suffix));
        assert_eq!(*kind == "counter", is_counted, "{name}");
        let is_time = ["_seconds_sum", "_seconds"].iter().any(|suffix| name.ends_with(suffix));
        assert_eq!(*unit, Some(if is_time { Unit::Seconds } else { Unit::Count }), "{name}");
        assert!(help.ends_with('.'), "{name}: {help}");
    }
}

#[test]
fn a_sum_is_in_the_unit_of_its_name() {
    let clock = Arc::new(leasehold::ManualClock::new());
    clock.advance(std::time::Duration::from_secs(1));
    let fleet = Fleet::builder().shards(1).clock(clock.clone()).measure(0).build().expect("in range");
    fleet.insert(Entry::new(1, 0, ())).expect("new");
    let lease = fleet.acquire().expect("free");
    clock.advance(std::time::Duration::from_millis(2_500));
    drop(lease);
    assert_eq!(published(&[("one", &fleet)])["leasehold_hold_seconds_sum{scheduler=one}"], 2.5);
}

#[test]
fn what_time_has_brought_about_is_heard() {
    let clock = Arc::new(leasehold::ManualClock::new());
    let fleet = Fleet::builder().shards(1).clock(clock.clone()).build().expect("in range");
    fleet.insert(Entry::new(1, 0, ())).expect("new");
    fleet.cool(&1, std::time::Duration::from_secs(1)).expect("there");
    assert_eq!(published(&[("one", &fleet)])["leasehold_resources_eligible{scheduler=one}"], 0.0);
    clock.advance(std::time::Duration::from_secs(2));
    assert_eq!(published(&[("one", &fleet)])["leasehold_resources_eligible{scheduler=one}"], 1.0);
}

#[test]
fn only_who_asks_for_the_best_has_an_error_in_rank() {
    let fleet = Fleet::builder().shards(2).measure(1).build().expect("in range");
    for key in 0..8 {
        fleet.insert(Entry::new(key, key, ())).expect("new");
    }
    let sampled = || fleet.telemetry().expect("asked for").rank_errors.count();
    drop(fleet.acquire_key(&7).expect("free"));
    drop(fleet.acquire_by_affinity("id").expect("free"));
    drop(fleet.acquire_where(|entry| entry.key > 5).expect("free"));
    assert_eq!(sampled(), 0, "what they were lent is what they asked for");
    drop(fleet.acquire().expect("free"));
    drop(fleet.acquire_owned().expect("free"));
    assert_eq!(sampled(), 2);
    assert_eq!(fleet.telemetry().expect("asked for").holds.count(), 5, "every lease is measured");
    drop(fleet.request().wait().expect("free"));
    drop(fleet.acquire_timeout(std::time::Duration::from_secs(1)).expect("free"));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let mut task = std::pin::pin!(fleet.acquire_async());
    assert!(task.as_mut().poll(&mut context).is_ready());
    let mut task = std::pin::pin!(fleet.acquire_async_owned());
    assert!(task.as_mut().poll(&mut context).is_ready());
    assert_eq!(sampled(), 6, "who need not wait takes the best as well");
    let held = fleet.acquire_many(8).expect("all are free");
    let mut waits = std::pin::pin!(fleet.acquire_async());
    assert!(waits.as_mut().poll(&mut context).is_pending());
    drop(held);
    assert!(waits.as_mut().poll(&mut context).is_ready());
    assert_eq!(sampled(), 14, "several are; what was handed over is not");
}
