//! The exporters say what the scheduler counts, for several schedulers in one registry.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

#[cfg(feature = "pool")]
mod blocked;

use std::{
    collections::BTreeMap,
    future::Future,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use leasehold::{
    Entry, Event, ManualClock, Outcome, Scheduler, Strategy,
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

/// The seed feeds its counters with events, and loses counts where it loses those. Here four places per shard are not enough by far.
#[test]
fn c18_exported_counts_are_exact_while_events_drop() {
    let collector = SchedulerCollector::new();
    let registry = registry(&collector);
    let observer = |_: &Event<u32>| std::thread::sleep(Duration::from_millis(1));
    let builder = Fleet::builder().shards(2).event_capacity(4).observer(observer);
    let fleet = Arc::new(builder.build().expect("in range"));
    collector.watch("fleet", &fleet);
    for key in 0..8 {
        fleet.insert(Entry::new(key, key, ())).expect("new");
    }
    std::thread::scope(|scope| {
        for own in 0..4 {
            let fleet = &fleet;
            scope.spawn(move || {
                for i in 0..500 {
                    fleet.acquire().expect("more than there are threads").finish(if i % 5 == 0 {
                        Outcome::Failed
                    } else {
                        Outcome::Ok { latency: Duration::ZERO }
                    });
                    let _ = fleet.exclude(&own).expect("a member") && fleet.include(&own).expect("a member");
                }
            });
        }
    });
    let read = samples(&registry);
    let of = |name: &str| read[name] as u64;
    let kind =
        |kind: &str| of(&format!("leasehold_transitions_total{{scheduler=\"fleet\",kind=\"{kind}\"}}"));
    let stats = fleet.stats();
    assert!(stats.events_dropped > 0, "four places are not enough");
    assert_eq!(
        of("leasehold_events_dropped_total{scheduler=\"fleet\",place=\"ring\"}"),
        stats.events_dropped
    );
    assert_eq!([kind("inserted"), kind("acquired"), kind("released")], [8, 2_000, 2_000]);
    assert_eq!([kind("excluded"), kind("included")], [2_000, 2_000]);
    assert_eq!(of("leasehold_outcomes_total{scheduler=\"fleet\",outcome=\"ok\"}"), 1_600);
    assert_eq!(of("leasehold_outcomes_total{scheduler=\"fleet\",outcome=\"failed\"}"), 400);
    assert_eq!(of("leasehold_leases{scheduler=\"fleet\"}"), 0);
    assert!(fleet.close_with(leasehold::Closing::Discard));
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

/// Nobody acquires, and no timer is set: a scrape must let time pass, or an alert on an empty fleet goes on for ever.
#[test]
fn what_time_has_brought_about_is_in_the_scrape() {
    let clock = Arc::new(leasehold::ManualClock::new());
    let fleet = Arc::new(Fleet::builder().shards(2).clock(clock.clone()).build().expect("in range"));
    for key in 0..4 {
        fleet.insert(Entry::new(key, key, ())).expect("new");
        fleet.cool(&key, Duration::from_secs(1)).expect("there");
    }
    let collector = SchedulerCollector::new();
    let registry = registry(&collector);
    collector.watch("fleet", &fleet);
    let eligible = || samples(&registry)["leasehold_resources_eligible{scheduler=\"fleet\"}"];
    assert_eq!(eligible(), 0.0);
    clock.advance(Duration::from_secs(2));
    assert_eq!(eligible(), 4.0);
    assert_eq!(samples(&registry)["leasehold_transitions_total{scheduler=\"fleet\",kind=\"warmed\"}"], 4.0);
}

/// A scheduler may die in a scrape: whoever reads it holds it for so long. What it takes along is user code, which may use the collector.
#[test]
fn a_scheduler_that_dies_in_a_scrape_does_so_outside_the_collectors_lock() {
    use leasehold::{SelectShard, ShardView, SplitMix64, Strategy};
    use std::sync::{Mutex, mpsc};

    /// Watches something else when it goes.
    struct Last(SchedulerCollector, Arc<Fleet>);
    impl Drop for Last {
        fn drop(&mut self) {
            self.0.watch("other", &self.1);
        }
    }
    type Dying = Scheduler<Entry<u32, u32, Last>>;
    type Owner = Arc<Mutex<Option<Arc<Dying>>>>;
    /// Asked for its name, in the midst of a scrape, it lets go of the scheduler.
    struct LetsGo(Owner);
    impl SelectShard for LetsGo {
        fn select(&self, _: &dyn ShardView, _: &mut SplitMix64) -> usize {
            0
        }
        fn name(&self) -> &str {
            let _owner = self.0.lock().expect("no panic").take();
            "lets-go"
        }
    }

    let (done, is_done) = mpsc::channel();
    std::thread::spawn(move || {
        let collector = SchedulerCollector::new();
        let owner = Owner::default();
        let strategy = Strategy::Custom(Box::new(LetsGo(owner.clone())));
        let dying = Arc::new(Dying::builder().shards(1).strategy(strategy).build().expect("in range"));
        let other = Arc::new(Fleet::builder().shards(1).build().expect("in range"));
        dying.insert(Entry::new(1, 0, Last(collector.clone(), other))).unwrap_or_else(|_| panic!("new"));
        collector.watch("dying", &dying);
        *owner.lock().expect("no panic") = Some(dying);
        let registry = registry(&collector);
        let in_its_last_scrape = samples(&registry);
        done.send((in_its_last_scrape, format!("{collector:?}"))).expect("somebody waits");
    });
    let (read, watched) = is_done.recv_timeout(Duration::from_secs(10)).expect("no deadlock");
    assert_eq!(read["leasehold_resources{scheduler=\"dying\"}"], 1.0);
    assert!(watched.contains("\"other\""), "the value has gone: {watched}");
}

/// Each hold counts, also of a resource that has several; and none of what has left.
#[test]
fn holds_are_counted_one_by_one() {
    let fleet = Arc::new(Fleet::builder().shards(2).build().expect("in range"));
    for key in 0..6 {
        fleet.insert(Entry::new(key, key, ())).expect("new");
    }
    let collector = SchedulerCollector::new();
    let registry = registry(&collector);
    collector.watch("fleet", &fleet);
    let minute = Duration::from_secs(60);
    let held = |family: &str| {
        let read = samples(&registry);
        ["excluded", "cooling", "ejected", "draining"].map(|reason| {
            read[&format!("leasehold_{family}{{scheduler=\"fleet\",reason=\"{reason}\"}}")] as u64
        })
    };
    assert_eq!(held("holds"), [0; 4]);
    fleet.exclude(&0).expect("there");
    fleet.cool(&0, minute).expect("there");
    fleet.cool(&0, 2 * minute).expect("there");
    fleet.eject(&0).expect("there");
    fleet.cool(&1, minute).expect("there");
    fleet.acquire_key(&2).expect("free").release_after(minute);
    let leased = fleet.acquire_key(&3).expect("free");
    fleet.drain(&3).expect("there");
    fleet.exclude(&3).expect("there");
    assert_eq!(held("holds"), [2, 3, 1, 1]);
    assert_eq!(held("resources_ineligible"), [2, 2, 0, 0], "each once");
    fleet.include(&0).expect("there");
    fleet.warm(&1).expect("there");
    assert_eq!(held("holds"), [1, 2, 1, 1]);
    // What leaves takes its holds along; also when it comes back.
    fleet.remove(&0).expect("there");
    fleet.remove(&3).expect("there");
    assert_eq!(held("holds"), [0, 1, 0, 0]);
    drop(leased);
    fleet.insert(Entry::new(0, 0, ())).expect("new again");
    assert_eq!(held("holds"), [0, 1, 0, 0]);
}

/// A unit that was handed to somebody who is gone, with nobody else there, was taken and is no lease. Exactly those are counted.
#[test]
fn units_that_nobody_used_are_counted() {
    use std::{
        future::Future,
        pin::Pin,
        task::{Context, Waker},
    };

    let fleet = Arc::new(Fleet::builder().shards(1).build().expect("in range"));
    fleet.insert(Entry::new(1, 0, ())).expect("new");
    let collector = SchedulerCollector::new();
    let registry = registry(&collector);
    collector.watch("fleet", &fleet);
    let mut context = Context::from_waker(Waker::noop());
    let mut leases = 0;
    for round in 0..10 {
        let lease = fleet.acquire().expect("free");
        leases += 1;
        let mut waiting = Box::pin(fleet.acquire_async());
        assert!(Pin::as_mut(&mut waiting).poll(&mut context).is_pending());
        // Handed over, and then taken or not.
        drop(lease);
        if round % 2 == 0 {
            assert!(Pin::as_mut(&mut waiting).poll(&mut context).is_ready());
            leases += 1;
        }
        drop(waiting);
    }
    let read = samples(&registry);
    let unused = read["leasehold_units_unused_total{scheduler=\"fleet\"}"];
    let acquired = read["leasehold_transitions_total{scheduler=\"fleet\",kind=\"acquired\"}"];
    assert_eq!((unused, acquired - unused), (5.0, f64::from(leases)));
    assert_eq!(acquired, read["leasehold_transitions_total{scheduler=\"fleet\",kind=\"released\"}"]);
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

/// Each number of a pool while it is another one than nothing: blocked, idle again, ended.
#[cfg(feature = "pool")]
#[test]
fn a_pool_is_told_as_it_is() {
    use leasehold::prometheus::PoolCollector;
    let collector = PoolCollector::new();
    let mut registry = Registry::default();
    registry.register_collector(Box::new(collector.clone()));
    let mut run = 0.0;
    let look = |state: usize| {
        let read = samples(&registry);
        for (name, label, values) in blocked::EXPECTED {
            let name = match label {
                None => format!("leasehold_pool_{name}{{pool=\"p\"}}"),
                Some(("le", le)) => format!("leasehold_pool_{name}{{le=\"{le}\",pool=\"p\"}}"),
                Some((label, value)) => format!("leasehold_pool_{name}{{pool=\"p\",{label}=\"{value}\"}}"),
            };
            let found = read.get(&name).unwrap_or_else(|| panic!("no {name} in {read:#?}"));
            assert_eq!(*found, values[state], "{name} in state {state}");
        }
        run = read["leasehold_pool_run_seconds_sum{pool=\"p\"}"];
    };
    let at_least = blocked::blocked(|pool| collector.watch("p", pool), look);
    assert!(run >= at_least.as_secs_f64() - 1e-6, "{run}, {at_least:?}");
    blocked::with_jobs_on_a_tray(
        |pool| collector.watch("tray", pool),
        || assert_eq!(samples(&registry)["leasehold_pool_jobs_taken{pool=\"tray\"}"], 5.0),
    );
}

/// Jobs that wait for a lease when their pool ends have been given up, and a scrape says so.
#[cfg(feature = "pool")]
#[test]
fn jobs_that_were_given_up_are_told() {
    use leasehold::{
        pool::{Pool, Task},
        prometheus::PoolCollector,
    };
    let collector = PoolCollector::new();
    let mut registry = registry(&SchedulerCollector::new());
    registry.register_collector(Box::new(collector.clone()));
    let pool = Arc::new(Pool::<Task>::builder().workers(1).build().expect("in range"));
    collector.watch("waits", &pool);
    let fleet = Arc::new(Fleet::builder().build().expect("in range"));
    let handles = [0, 1].map(|_| {
        pool.submit_with_lease(fleet.acquire_async_owned(), |_, _| ((), Outcome::Cancelled)).expect("open")
    });
    let told = || {
        let read = samples(&registry);
        ["awaited", "given_up_total"]
            .map(|what| read[&format!("leasehold_pool_leases_{what}{{pool=\"waits\"}}")])
    };
    assert_eq!(told(), [2.0, 0.0]);
    assert_eq!(pool.shutdown(Duration::ZERO).given_up, 2);
    assert_eq!(told(), [0.0, 2.0]);
    drop(handles);
}

#[test]
fn values_of_waits_drops_and_rank_errors_are_those_that_were() {
    let clock = Arc::new(ManualClock::new());
    // Room for four events a shard, and nobody who takes them out.
    let builder = Fleet::builder().shards(2).clock(clock.clone()).event_capacity(4).measure(1);
    let strategy = Strategy::BestOf { choices: 1 };
    let fleet = Arc::new(builder.strategy(strategy).seed(1).build().expect("in range"));
    let collector = SchedulerCollector::new();
    let registry = registry(&collector);
    collector.watch("f", &fleet);
    let mut context = Context::from_waker(Waker::noop());

    // Two waits of known length that end with a lease, one that is given up.
    fleet.insert(Entry::new(0, 0, ())).expect("new");
    for waited in [Duration::from_millis(2), Duration::from_millis(40)] {
        let held = fleet.acquire_key(&0).expect("free");
        let mut waiting = pin!(fleet.acquire_key_async(&0));
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        clock.advance(waited);
        drop(held);
        let Poll::Ready(Ok(lease)) = waiting.as_mut().poll(&mut context) else { panic!("handed on") };
        drop(lease);
    }
    {
        let _held = fleet.acquire_key(&0).expect("free");
        let mut given_up = Box::pin(fleet.acquire_key_async(&0));
        assert!(given_up.as_mut().poll(&mut context).is_pending());
        clock.advance(Duration::from_millis(2_500));
    }
    // Ranks differ, and one shard of two is chosen blindly.
    (1..32).for_each(|key| fleet.insert(Entry::new(key, key, ())).expect("new"));
    (0..200).for_each(|_| drop(fleet.acquire().expect("free")));

    let read = samples(&registry);
    let of = |name: &str| *read.get(name).unwrap_or_else(|| panic!("no {name} in {read:#?}"));
    let (stats, telemetry) = (fleet.stats(), fleet.telemetry().expect("asked for"));

    assert_eq!(of("leasehold_waiting_seconds_sum{scheduler=\"f\"}"), 0.042);
    assert_eq!(of("leasehold_waiting_seconds_count{scheduler=\"f\"}"), 2.0);
    assert_eq!(of("leasehold_waiting_in_vain_seconds_total{scheduler=\"f\"}"), 2.5);
    // Powers of four of 1.024 microseconds. Each bucket has what is below it.
    let waited = |le: &str| of(&format!("leasehold_waiting_seconds_bucket{{le=\"{le}\",scheduler=\"f\"}}"));
    for (le, expected) in [
        ("0.001048576", 0.0),
        ("0.004194304", 1.0),
        ("0.016777216", 1.0),
        ("0.067108864", 2.0),
        ("+Inf", 2.0),
    ] {
        assert_eq!(waited(le), expected, "{le}");
    }
    assert_eq!((telemetry.waits.count(), telemetry.waits.sum()), (2, 42_000_000));
    let ended = |how: &str| of(&format!("leasehold_waits_ended_total{{scheduler=\"f\",how=\"{how}\"}}"));
    for (how, expected) in
        [("handed_off", 2.0), ("cancelled", 1.0), ("timed_out", 0.0), ("failed", 0.0), ("closed", 0.0)]
    {
        assert_eq!(ended(how), expected, "{how}");
    }
    assert_eq!(of("leasehold_waits_total{scheduler=\"f\"}"), 3.0);

    // All that has happened, less what there was room for.
    let dropped =
        |place: &str| of(&format!("leasehold_events_dropped_total{{scheduler=\"f\",place=\"{place}\"}}"));
    let happened = stats.inserted + stats.lent + stats.returned + 2 * stats.waits.waited;
    assert_eq!(of("leasehold_events_emitted_total{scheduler=\"f\"}"), 3.0 * 4.0, "two shards and the fleet");
    assert_eq!(dropped("ring"), (happened - 12) as f64);
    assert_eq!(dropped("inbox"), 0.0);

    let errors = &telemetry.rank_errors;
    assert_eq!(of("leasehold_rank_error_count{scheduler=\"f\"}"), 200.0, "plain acquisitions");
    assert_eq!(of("leasehold_rank_error_sum{scheduler=\"f\"}"), errors.sum() as f64);
    assert_eq!(of("leasehold_rank_errors_saturated_total{scheduler=\"f\"}"), 0.0);
    let wrong = |le: &str| of(&format!("leasehold_rank_error_bucket{{le=\"{le}\",scheduler=\"f\"}}"));
    // Nothing stays out, so it is the better of the two shards' best, or the other one: which has the first few of all before it.
    let (right, few) = (200.0 - errors.sum() as f64 / errors.max() as f64, errors.max());
    assert!((1..=16).contains(&few) && (50.0..150.0).contains(&right), "{few} {right}");
    assert_eq!((wrong("0.0"), wrong("16.0"), wrong("+Inf")), (right, 200.0, 200.0));
    // Each return is followed by a lending of it or of the other shard's best.
    let delays = &telemetry.delays;
    assert_eq!(of("leasehold_order_delay_sum{scheduler=\"f\"}"), delays.sum() as f64);
    assert_eq!(of("leasehold_order_delay_count{scheduler=\"f\"}"), delays.count() as f64);
    // One sample in 16 of a shard begins one.
    assert!((5..=14).contains(&delays.count()), "{}", delays.count());
    for how in ["discarded", "given_up"] {
        let name = format!("leasehold_order_delays_unfinished_total{{scheduler=\"f\",how=\"{how}\"}}");
        assert_eq!(of(&name), 0.0, "{how}");
    }
}
