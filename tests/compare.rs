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
    assert_eq!(report["schema"], 1);
    assert_eq!(report.as_object().unwrap().len(), 2);
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

#[test]
fn table_goes_to_a_file() {
    assert_small_machine();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("report");
    assert_eq!(succeed(&[&QUICK[..], &["--out", path.to_str().unwrap()]].concat()), "");
    let text = fs::read_to_string(&path).unwrap();
    for name in NAMES {
        let rows = text.lines().filter(|line| line.split(' ').next() == Some(name)).count();
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
