//! `leasehold pressure` from outside, with small runs: its reports, its exit codes, and that the pool holds back who submits too much.
//!
//! Cost: a second.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::process::{Command, Output};

use serde_json::Value;

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_leasehold")).arg("pressure").args(arguments).output().unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Once of many the queue gets full, though the machine lets the submitter alone wait. `is_full`: says so of an output.
fn full(arguments: &[&str], is_full: impl Fn(&Output) -> bool) -> Output {
    (0..20).map(|_| run(arguments)).find(is_full).expect("once it is full")
}

/// 2 GB go through a queue of 20 MB, which is full, and no fuller: far less than either a run's worth, or the limit, is resident.
#[test]
fn a_queue_s_worth_is_resident() {
    let arguments = ["--jobs", "2000", "--bytes", "1000000", "--capacity", "20", "--limit", "200000000"];
    let arguments = [&arguments[..], &["--format", "json"]].concat();
    let output = full(&arguments, |output| json(output)["no_verdict"].is_null());
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let report = json(&output);
    assert_eq!((report["schema"].as_u64(), report["jobs"].as_u64()), (Some(1), Some(2_000)));
    assert_eq!(report["kind"], "pressure");
    assert_eq!(report["holds"], Value::Bool(true));
    assert_eq!((report["most_queued"].as_u64(), report["work_seconds"].as_f64()), (Some(20), Some(0.001)));
    assert_eq!(report["no_verdict"], Value::Null);
    let resident = report["resident_bytes"].as_u64().expect("Linux says so");
    // A full queue's payloads at least.
    assert!((20_000_000..200_000_000).contains(&resident), "{resident}");
    assert!(report["seconds"].as_f64().expect("a number") > 0.0);
}

#[test]
fn too_much_is_told_and_fails() {
    let output = run(&["--jobs", "100", "--bytes", "100000", "--limit", "1000"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let table = String::from_utf8(output.stdout).unwrap();
    for expected in ["jobs                              100\n", "verdict                        FAILED\n"] {
        assert!(table.contains(expected), "{table}");
    }
}

/// A queue that was never full shows nothing, though little was resident.
#[test]
fn without_pressure_there_is_no_verdict() {
    let arguments = ["--jobs", "100", "--bytes", "1000", "--capacity", "200", "--work", "0"];
    let output = run(&arguments);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.contains("none: the queue was never full: nobody was held back\n"), "{table}");
    let output = run(&[&arguments[..], &["--format", "json"]].concat());
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let report = json(&output);
    assert_eq!((&report["holds"], report["most_queued"].as_u64() < Some(200)), (&Value::Null, true));
    assert_eq!(report["no_verdict"], "the queue was never full: nobody was held back");
}

#[test]
fn bad_numbers_are_refused() {
    for arguments in
        [["--jobs", "0"], ["--workers", "0"], ["--bytes", "x"], ["--capacity", "0"], ["--work", "1"]]
    {
        let output = run(&arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{arguments:?}");
    }
}

#[test]
fn the_report_goes_where_it_should() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("report.json");
    let arguments = ["--jobs", "50", "--capacity", "5", "--format", "json", "--out"];
    let arguments = [&arguments[..], &[path.to_str().unwrap()]].concat();
    let output = full(&arguments, |output| output.status.success());
    assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
    let report: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).expect("JSON");
    assert_eq!(report["bytes_per_job"].as_u64(), Some(500_000));
}
