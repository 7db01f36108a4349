//! The exporters say what the scheduler counts, for several schedulers in one registry.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use leasehold::{
    Entry, Event, Outcome, Scheduler,
    prometheus::{SchedulerCollector, text},
};
use prometheus_client::registry::Registry;

type Fleet = Scheduler<Entry<u32, u32, ()>>;

fn samples(registry: &Registry) -> BTreeMap<String, f64> {
    let text = text(registry).expect("text");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').expect("a sample");
            (name.to_owned(), value.parse().expect("a number"))
        })
        .collect()
}

fn registry(collector: &SchedulerCollector) -> Registry {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(collector.clone()));
    registry
}

#[test]
fn c23_several_schedulers_in_one_registry() {
    let collector = SchedulerCollector::new();
    let registry = registry(&collector);
    assert!(samples(&registry).is_empty(), "nobody is watched: nothing, and no panic");
    let one = Arc::new(Fleet::builder().shards(2).build().expect("in range"));
    let two = Arc::new(Fleet::builder().shards(3).measure(1).build().expect("in range"));
    collector.watch("one", &one);
    collector.watch("two", &two);
    for key in 0..5 {
        one.insert(Entry::new(key, key, ())).expect("new");
    }
    two.insert(Entry::new(9, 0, ())).expect("new");
    drop(two.acquire().expect("free"));
    let read = samples(&registry);
    let of = |name: &str| *read.get(name).unwrap_or_else(|| panic!("no {name}"));
    assert_eq!(of("leasehold_resources{scheduler=\"one\"}"), 5.0);
    assert_eq!(of("leasehold_resources{scheduler=\"two\"}"), 1.0);
    assert_eq!(of("leasehold_shards{scheduler=\"two\"}"), 3.0);
    assert_eq!(of("leasehold_transitions_total{scheduler=\"one\",kind=\"inserted\"}"), 5.0);
    assert_eq!(of("leasehold_transitions_total{scheduler=\"two\",kind=\"released\"}"), 1.0);
    assert_eq!(of("leasehold_hold_seconds_count{scheduler=\"two\"}"), 1.0);
    assert!(!read.keys().any(|name| name.starts_with("leasehold_hold_seconds") && name.contains("\"one\"")));
    // Gauges have no `_total`, counters do; each family is described once.
    let text = text(&registry).expect("text");
    let mut described = std::collections::BTreeSet::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, kind) = line.split_once(' ').expect("a type");
        assert_eq!(name.ends_with("_total"), kind == "counter", "{name}");
        assert!(described.insert(name.to_owned()), "{name} is described twice");
    }
    drop(two);
    assert!(!samples(&registry).keys().any(|name| name.contains("\"two\"")), "it is gone");
}

#[test]
fn exported_counts_are_the_schedulers_own() {
    let collector = SchedulerCollector::new();
    let registry = registry(&collector);
    let events = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let seen = events.clone();
    let observer = move |_: &Event<u32>| _ = seen.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let fleet = Arc::new(
        Fleet::builder().shards(2).event_capacity(1 << 14).observer(observer).build().expect("in range"),
    );
    collector.watch("fleet", &fleet);
    for key in 0..8 {
        fleet.insert(Entry::new(key, key, ())).expect("new");
    }
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for i in 0..500u32 {
                    let lease = fleet.request().wait().expect("sooner or later");
                    lease.finish(if i % 5 == 0 {
                        Outcome::Failed
                    } else {
                        Outcome::Ok { latency: Duration::ZERO }
                    });
                }
            });
        }
        // A scrape in the midst of it all.
        assert!(!samples(&registry).is_empty());
    });
    let read = samples(&registry);
    let of = |name: &str| read[name] as u64;
    assert_eq!(of("leasehold_outcomes_total{scheduler=\"fleet\",outcome=\"ok\"}"), 1_600);
    assert_eq!(of("leasehold_outcomes_total{scheduler=\"fleet\",outcome=\"failed\"}"), 400);
    assert_eq!(of("leasehold_leases{scheduler=\"fleet\"}"), 0);
    let kind =
        |kind: &str| of(&format!("leasehold_transitions_total{{scheduler=\"fleet\",kind=\"{kind}\"}}"));
    assert_eq!(kind("acquired"), kind("released"));
    let by_shard = fleet.stats_by_shard();
    assert!(by_shard.iter().all(|stats| stats.consistent));
    assert_eq!(by_shard.iter().map(|stats| stats.lent).sum::<u64>(), kind("acquired"));
    fleet.close();
    let (stats, events) = (fleet.stats(), events.load(std::sync::atomic::Ordering::Relaxed));
    assert_eq!(
        events + stats.events_missed,
        stats.events_emitted,
        "the observer was told of what was emitted"
    );
}

/// Name, labels, value.
type Sample = (String, Vec<(String, String)>, f64);

/// One line of the text format, taken apart as a scraper does: name, labels, value.
fn parse(line: &str) -> Option<Sample> {
    let name: String = line.chars().take_while(|c| c.is_ascii_alphanumeric() || "_:".contains(*c)).collect();
    let mut rest = &line[name.len()..];
    let mut labels = Vec::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        while !rest.starts_with('}') {
            let (label, after) = rest.trim_start_matches(',').split_once("=\"")?;
            let mut value = String::new();
            let mut chars = after.char_indices();
            let end = loop {
                match chars.next()? {
                    (at, '"') => break at,
                    (_, '\\') => value.push(match chars.next()?.1 {
                        'n' => '\n',
                        c @ ('"' | '\\') => c,
                        _ => return None,
                    }),
                    (_, c) => value.push(c),
                }
            };
            labels.push((label.to_owned(), value));
            rest = &after[end + 1..];
        }
        rest = &rest[1..];
    }
    Some((name, labels, rest.strip_prefix(' ')?.parse().ok()?))
}

#[test]
fn a_name_may_have_any_characters() {
    let name = "a \"quoted\" one\\with\na line # {and more} 1";
    let collector = SchedulerCollector::new();
    let registry = registry(&collector);
    let fleet = Arc::new(Fleet::builder().shards(1).measure(1).build().expect("in range"));
    collector.watch("before", &fleet);
    collector.watch(name, &fleet);
    let text = text(&registry).expect("text");
    let mut of_it = 0;
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (_, labels, _) = parse(line).unwrap_or_else(|| panic!("no scraper reads {line:?}"));
        of_it += usize::from(labels.iter().any(|(label, value)| label == "scheduler" && value == name));
    }
    assert!(of_it > 20, "its samples have its name: {of_it}");
}

#[test]
fn types_that_the_text_format_lacks_become_ones_that_it_has() {
    use prometheus_client::metrics::{
        counter::ConstCounter, exemplar::CounterWithExemplar, gauge::ConstGauge, info::Info,
    };
    let mut registry = Registry::default();
    registry.register("build", "What is running", Info::new([("version", "1.0 # {x} 1")]));
    registry.register("level", "A level", ConstGauge::new(3i64));
    registry.register("steps", "A counter", ConstCounter::new(4u64));
    let traced = CounterWithExemplar::<Vec<(String, String)>>::default();
    traced.inc_by(2, Some(vec![("trace".to_owned(), "7".to_owned())]), None);
    registry.register("traced", "With an exemplar", traced);
    let text = text(&registry).expect("text");
    for expected in [
        "# TYPE build_info gauge",
        "# HELP build_info What is running.",
        "build_info{version=\"1.0 # {x} 1\"} 1",
        "# TYPE level gauge",
        "# TYPE steps_total counter",
        "steps_total 4",
        "traced_total 2",
    ] {
        assert!(text.lines().any(|line| line == expected), "{expected} in\n{text}");
    }
    let kinds = ["counter", "gauge", "histogram", "summary", "untyped"];
    for line in text.lines() {
        match line.strip_prefix("# ") {
            Some(described) if described.starts_with("TYPE ") => {
                assert!(kinds.contains(&described.rsplit(' ').next().expect("a word")), "{line}");
            }
            Some(described) => assert!(described.starts_with("HELP "), "{line}"),
            None => assert!(parse(line).is_some(), "{line}"),
        }
    }
}

/// The table of the documentation is the proof that nothing of the Go collector is missing here.
#[test]
fn every_series_of_the_go_collector_has_one_here() {
    let gauges = ["heap_count", "resources_total", "resources_active", "resources_inactive"];
    let gauges = gauges.iter().chain(&["heaps_empty", "heaps_non_empty"]).map(|name| format!("crs_{name}"));
    let counters = ["add", "acquire", "release", "exclude", "include", "remove", "update"];
    let theirs: Vec<_> = gauges.chain(counters.map(|name| format!("crs_events_{name}_total"))).collect();
    assert_eq!(theirs.len(), 13);
    let table = include_str!("../docs/observability/README.md");
    let rows: BTreeMap<&str, &str> = table
        .lines()
        .filter_map(|line| {
            let (theirs, ours) = line.strip_prefix("| `crs_")?.split_once("` | `")?;
            Some((theirs, ours.split_once('`')?.0))
        })
        .collect();
    assert_eq!(rows.len(), 13, "{rows:?}");
    let collector = SchedulerCollector::new();
    let registry = registry(&collector);
    let fleet = Arc::new(Fleet::builder().shards(2).build().expect("in range"));
    collector.watch("fleet", &fleet);
    let text = text(&registry).expect("text");
    let written: Vec<_> =
        text.lines().filter(|line| !line.starts_with('#')).map(|line| parse(line).expect("read")).collect();
    for name in theirs {
        let ours = rows.get(&name["crs_".len()..]).unwrap_or_else(|| panic!("{name} has no row"));
        let (family, label) =
            ours.split_once('{').map_or((*ours, None), |(family, label)| (family, Some(label)));
        let is_it = |(name, labels, _): &Sample| {
            name == family
                && label.is_none_or(|wanted| {
                    labels.iter().any(|(label, value)| format!("{label}=\"{value}\"}}") == wanted)
                })
        };
        assert!(written.iter().any(is_it), "{name}: no {ours}");
    }
}

/// A9: a pool's numbers are there for whoever scrapes, and two pools do not clash. They are the pool's own.
#[cfg(feature = "pool")]
#[test]
fn a09_several_pools_in_one_registry() {
    use leasehold::{
        pool::{AtomicMetrics, CancelToken, Job, Pool},
        prometheus::PoolCollector,
    };
    let collector = PoolCollector::new();
    let mut registry = registry(&SchedulerCollector::new());
    registry.register_collector(Box::new(collector.clone()));
    let timed = Pool::<u32>::builder().workers(2).capacity(50).metrics(AtomicMetrics::default());
    let timed = Arc::new(timed.build().expect("in range"));
    let plain = Arc::new(Pool::<u32>::builder().workers(3).build().expect("in range"));
    collector.watch("timed", &timed);
    collector.watch("plain", &plain);
    let token = CancelToken::new();
    for i in 0..40 {
        let job = Job::new(i, |i, _| match *i {
            0..20 => Ok(()),
            20..30 => Err("failed".into()),
            // Not by `panic!`, which would be printed.
            _ => std::panic::resume_unwind(Box::new("panicked")),
        });
        timed.submit(job).expect("open");
    }
    token.cancel();
    let cancelled = Job::new(0, |_, _| Ok(())).cancel_with(token);
    timed.try_submit(cancelled).expect_err("cancelled");
    assert!(timed.shutdown(Duration::from_secs(20)).is_complete());
    timed.try_submit(Job::new(0, |_, _| Ok(()))).expect_err("closed");
    let read = samples(&registry);
    let of = |name: &str| *read.get(name).unwrap_or_else(|| panic!("no {name}"));
    for (ended, count) in [("done", 20.0), ("failed", 10.0), ("panicked", 10.0), ("cancelled", 0.0)] {
        assert_eq!(of(&format!("leasehold_pool_jobs_total{{pool=\"timed\",ended=\"{ended}\"}}")), count);
    }
    for (reason, count) in [("full", 0.0), ("closed", 1.0), ("cancelled", 1.0), ("timed_out", 0.0)] {
        let name = format!("leasehold_pool_rejected_total{{pool=\"timed\",reason=\"{reason}\"}}");
        assert_eq!(of(&name), count);
    }
    assert_eq!(of("leasehold_pool_run_seconds_count{pool=\"timed\"}"), 40.0);
    assert_eq!(of("leasehold_pool_queue_wait_seconds_count{pool=\"timed\"}"), 40.0);
    assert_eq!(of("leasehold_pool_queue_depth{pool=\"timed\"}"), 0.0);
    let workers = |state: &str| of(&format!("leasehold_pool_workers{{pool=\"plain\",state=\"{state}\"}}"));
    assert_eq!(workers("busy") + workers("idle"), 3.0);
    assert_eq!(of("leasehold_pool_scalings_total{pool=\"plain\",direction=\"up\"}"), 0.0);
    assert!(!read.keys().any(|name| name.contains("seconds") && name.contains("\"plain\"")), "no times");
    drop(timed);
    assert!(!samples(&registry).keys().any(|name| name.contains("\"timed\"")), "it is gone");
}
