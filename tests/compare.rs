//! `leasehold compare` from outside: the shape of its reports and what it refuses. Never how fast anything is.

use std::{
    collections::BTreeSet,
    fs,
    process::{Command, Output},
    thread,
};

use serde_json::Value;

const NAMES: [&str; 6] = ["acquire+release", "peek", "get", "update", "insert+remove", "exclude+include"];
const QUICK: [&str; 7] = ["compare", "--resources", "64", "--milliseconds", "1", "--pairs", "5"];

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_leasehold")).args(arguments).output().unwrap()
}

fn succeed(arguments: &[&str]) -> String {
    let output = run(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {stderr}");
    assert_eq!(stderr, "", "{arguments:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// 5n/6 - 1 + 1/(6n) and 5 %, of the three shards that the test asks for.
const BEST_OF_TWO: f64 = 1.05 * (2.5 - 1.0 + 1.0 / 18.0);

/// Every row of the table that the scheduler is held to: name, threads, what it is measured against, and the most that it may be.
const BARS: [(&str, u64, &str, Option<f64>); 49] = [
    ("pair", 1, "Mutex<BinaryHeap>", Some(0.65)),
    ("pair", 2, "Mutex<BinaryHeap>", Some(0.25)),
    ("pair/best-of-2", 2, "Mutex<BinaryHeap>", Some(1.5)),
    ("pair/2-threads-to-1", 2, "itself, 1 thread", Some(1.25)),
    ("return-elsewhere", 2, "MutexScheduler", Some(0.8)),
    ("return-elsewhere/heap", 2, "Mutex<BinaryHeap>", Some(0.8)),
    ("peek/lock", 1, "Mutex lock+unlock", Some(0.75)),
    ("peek/2-threads-to-1", 2, "itself, 1 thread", Some(1.2)),
    ("get/scc", 1, "scc::HashIndex", Some(1.0)),
    ("get/scc", 2, "scc::HashIndex", Some(1.0)),
    ("get/papaya", 1, "papaya", Some(0.8)),
    ("get/papaya", 2, "papaya", Some(0.8)),
    ("lookup-churn", 1, "dashmap", Some(1.2)),
    ("lookup-churn", 2, "dashmap, scc::HashMap", Some(1.1)),
    ("lookup-churn/boxes", 1, "dashmap of boxes", None),
    ("lookup-churn/boxes", 2, "dashmap of boxes", None),
    ("update/mutex", 1, "MutexScheduler", Some(0.6)),
    ("update/mutex", 2, "MutexScheduler", Some(0.4)),
    ("exclude+include/mutex", 1, "MutexScheduler", Some(0.7)),
    ("exclude+include/mutex", 2, "MutexScheduler", Some(0.4)),
    ("affinity-peek", 1, "peek", Some(3.0)),
    ("affinity-peek/allocations", 1, "", Some(0.0)),
    ("insert-batch", 1, "MutexScheduler", Some(0.7)),
    ("insert-batch/allocations", 1, "", Some(3.0)),
    ("pair/16", 2, "MutexScheduler", Some(0.35)),
    ("pair/256", 2, "MutexScheduler", Some(0.35)),
    ("strict", 2, "MutexScheduler", Some(1.2)),
    ("strict/rank-error", 2, "", Some(0.0)),
    ("least-loaded", 1, "MutexScheduler", Some(1.0)),
    ("least-loaded", 2, "MutexScheduler", Some(0.5)),
    ("growth", 1, "a thousandth of it", Some(1.6)),
    ("64-threads", 64, "MutexScheduler", Some(1.0 / 1.5)),
    ("64-threads/p99.9", 64, "MutexScheduler", Some(1.0)),
    ("acquire/p99.99", 2, "MutexScheduler", Some(0.5)),
    ("pair/sampled", 1, "itself, unsampled", Some(1.02)),
    ("pair/sampled", 2, "itself, unsampled", Some(1.02)),
    ("pair/sampled-64-shards", 1, "itself, unsampled", Some(1.02)),
    ("pair/sampled-64-shards", 2, "itself, unsampled", Some(1.02)),
    ("pair/observed", 1, "itself, unobserved", Some(1.25)),
    ("pair/observed-arc", 1, "itself, unobserved", None),
    ("pair/observed-string", 1, "itself, unobserved", None),
    ("pair/observed-measured", 1, "itself, unobserved", None),
    ("pair/recorded", 1, "itself, unrecorded", None),
    ("pair/clustered", 1, "itself, alone", Some(1.05)),
    ("pair/clustered-plain", 1, "itself, alone", Some(1.05)),
    ("memory", 1, "", Some(128.0)),
    ("memory/blocks", 1, "", None),
    ("rank-error/best-of-2", 1, "", Some(BEST_OF_TWO)),
    ("rank-error/best-of-all", 1, "", Some(0.0)),
];

/// One thread and all of them, which may be the same.
fn thread_counts() -> BTreeSet<u64> {
    [1, thread::available_parallelism().map_or(1, usize::from) as u64].into()
}

/// A machine with more processors than that needs more resources than [`QUICK`] has.
fn assert_small_machine() {
    assert!(thread_counts().iter().all(|&threads| threads <= 64), "raise --resources in QUICK");
}

#[test]
fn json_has_every_case() {
    assert_small_machine();
    let text = succeed(&[&QUICK[..], &["--shards", "3", "--format", "json"]].concat());
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&report["schema"], &report["kind"]), (&1.into(), &"compare".into()));
    assert_eq!(report.as_object().unwrap().len(), 6);
    assert!(report["pairs"].is_u64() && report["milliseconds"].is_u64());
    assert_every_bar(&report["bars"]);
    let mut seen = BTreeSet::new();
    for case in report["cases"].as_array().unwrap() {
        let fields: BTreeSet<&str> = case.as_object().unwrap().keys().map(String::as_str).collect();
        let expected =
            ["name", "threads", "resources", "shards", "leasehold_ns", "baseline_ns", "ratio", "spread"];
        assert_eq!(fields, expected.into());
        assert_eq!((&case["resources"], &case["shards"]), (&64.into(), &3.into()));
        let number = |field: &str| case[field].as_f64().unwrap();
        assert!(number("leasehold_ns") > 0.0 && number("baseline_ns") > 0.0, "{case}");
        let (min, max) = (case["spread"]["min"].as_f64().unwrap(), case["spread"]["max"].as_f64().unwrap());
        assert!(0.0 < min && min <= number("ratio") && number("ratio") <= max, "{case}");
        seen.insert((case["name"].as_str().unwrap().to_owned(), case["threads"].as_u64().unwrap()));
    }
    let expected: BTreeSet<_> =
        NAMES.iter().flat_map(|name| thread_counts().into_iter().map(|n| ((*name).to_owned(), n))).collect();
    assert_eq!(seen, expected);
    assert_eq!(report["cases"].as_array().unwrap().len(), expected.len());
}

/// Each row is there, with a verdict that follows from its numbers.
fn assert_every_bar(bars: &Value) {
    let bars = bars.as_array().unwrap();
    let seen: Vec<_> = bars
        .iter()
        .map(|bar| {
            let baseline = bar["baseline"].as_str().unwrap_or_default();
            (bar["name"].as_str().unwrap(), bar["threads"].as_u64().unwrap(), baseline)
        })
        .collect();
    assert_eq!(seen, BARS.map(|(name, threads, baseline, _)| (name, threads, baseline)));
    for (bar, (name, threads, _, limit)) in bars.iter().zip(BARS) {
        let stated = bar["limit"].as_f64();
        let agrees =
            stated.zip(limit).map_or(stated == limit, |(stated, limit)| (stated - limit).abs() < 1e-3);
        assert!(agrees, "{name}, {threads}: {stated:?}, and is held to {limit:?}");
    }
    for bar in bars {
        let needs_peers = ["get/", "lookup-churn", "pair/observed", "pair/sampled"]
            .iter()
            .any(|of| bar["name"].as_str().unwrap().starts_with(of));
        let missing = if needs_peers && !cfg!(feature = "peers") {
            Some("peers")
        } else if bar["name"].as_str().unwrap().starts_with("pair/clustered") && !cfg!(feature = "cluster") {
            Some("cluster")
        } else {
            None
        };
        if let Some(missing) = missing {
            assert_eq!(
                (&bar["missing"], &bar["measured"], &bar["holds"]),
                (&missing.into(), &Value::Null, &Value::Null)
            );
            continue;
        }
        assert_eq!(bar["missing"], Value::Null, "{bar}");
        let number = |field: &str| bar[field].as_f64().unwrap_or_else(|| panic!("{field}: {bar}"));
        let measured = number("measured");
        if bar["baseline"].is_null() {
            assert_eq!(measured, number("leasehold_value"), "{bar}");
        } else {
            assert!(number("leasehold_value") > 0.0 && number("baseline_value") > 0.0, "{bar}");
            let (min, max) = (bar["spread"]["min"].as_f64().unwrap(), bar["spread"]["max"].as_f64().unwrap());
            assert!(0.0 < min && min <= measured && measured <= max, "{bar}");
        }
        match bar["limit"].as_f64() {
            Some(limit) => {
                let dropped = bar["dropped"].as_f64();
                assert_eq!(dropped.is_some(), bar["name"] == "pair/observed", "{bar}");
                assert_eq!(
                    bar["holds"],
                    measured <= limit && dropped.is_none_or(|share| share <= 0.01),
                    "{bar}"
                );
            }
            None => assert_eq!(bar["holds"], Value::Null, "{bar}"),
        }
    }
    // What no clock decides.
    for (name, figure) in
        [("strict/rank-error", 0.0), ("rank-error/best-of-all", 0.0), ("affinity-peek/allocations", 0.0)]
    {
        let bar = bars.iter().find(|bar| bar["name"] == name).unwrap();
        assert_eq!(bar["measured"].as_f64(), Some(figure), "{bar}");
    }
}

#[test]
fn only_what_is_asked_for_is_measured() {
    let only = ["--only", "peek", "--only", "pair", "--only", "memory", "--format", "json"];
    let report: Value = serde_json::from_str(&succeed(&[&QUICK[..], &only].concat())).unwrap();
    let names = |part: &str| -> BTreeSet<_> {
        report[part].as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names("cases"), ["peek".to_owned()].into());
    assert_eq!(names("bars"), ["pair".to_owned(), "memory".to_owned()].into());

    let output = run(&["compare", "--only", "pairs"]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{stderr}");
    assert!(stderr.contains("\"pairs\"") && stderr.contains("best-of-2"), "{stderr}");
}

/// A row that no clock decides and that holds; one that this build may not be able to measure.
#[test]
fn a_check_tells_by_its_exit_code() {
    let check = |name| run(&[&QUICK[..], &["--check", "--only", name]].concat());
    let held = check("rank-error/best-of-all");
    assert_eq!(held.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&held.stdout).contains("1 hold, 0 missed, 0 not measured"));
    if !cfg!(feature = "peers") {
        let absent = check("get/scc");
        assert_eq!(absent.status.code(), Some(1));
        let stdout = String::from_utf8_lossy(&absent.stdout);
        assert!(stdout.contains("build with --features peers"), "{stdout}");
        assert!(stdout.contains("0 hold, 0 missed, 2 not measured"), "{stdout}");
    }
}

#[test]
fn table_goes_to_a_file() {
    assert_small_machine();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("report");
    assert_eq!(succeed(&[&QUICK[..], &["--out", path.to_str().unwrap()]].concat()), "");
    let text = fs::read_to_string(&path).unwrap();
    for name in NAMES {
        let rows = |part: &str| part.lines().filter(|line| line.split(' ').next() == Some(name)).count();
        let rows = rows(text.split("bars: ").next().unwrap());
        assert_eq!(rows, thread_counts().len(), "{name}: {text}");
    }
}

#[test]
fn numbers_out_of_range_are_told_in_one_line() {
    for (option, value) in [
        ("--resources", "0"),
        ("--resources", "10000001"),
        ("--resources", "many"),
        ("--shards", "0"),
        ("--shards", "1025"),
        ("--pairs", "4"),
        ("--pairs", "-5"),
        ("--pairs", "1001"),
        ("--milliseconds", "0"),
        ("--milliseconds", "60001"),
        ("--milliseconds", "1.5"),
        ("--out", "/no/such/directory/report"),
    ] {
        let output = run(&["compare", option, value]);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{option} {value}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{option} {value}: {stderr}");
        assert!(stderr.contains(option.trim_start_matches("--out")) && stderr.contains(value), "{stderr}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn arguments_unknown_to_it_are_refused() {
    for arguments in [&["compare", "--format", "csv"][..], &["compare", "--unknown"], &["compare", "extra"]] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(!output.stderr.is_empty() && output.stdout.is_empty(), "{arguments:?}");
    }
}
